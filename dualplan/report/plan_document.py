"""The answer of ``plan`` as a JSON document."""

from __future__ import annotations

from typing import Any

import msgspec

from dualplan.plan.assumptions import assumptions, given_flags, scenario_sha256, sources
from dualplan.plan.purchase.cost import node_price, price_origin, price_source
from dualplan.plan.purchase.fleet import CLOSE, Fleet
from dualplan.plan.purchase.search import Confirmed, Kind, Miss, Plan, Purchase, Wanted, priced
from dualplan.plan.purchase.upgrades import Upgrades
from dualplan.report.records import pick, pick_all
from dualplan.spec.fitted_sets import fitted
from dualplan.spec.hardware import source_of
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import mean_turns
from dualplan.units import significant

SCHEMA = "dualplan/plan/1"
MACHINES = "hardware=kind.scenario.hardware.name decode_hardware=kind.scenario.decode_hardware.name"
CURRENCY = "USD"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What ``plan`` found. ``scenario``: one of those asked about; ``demand_origin``: the demand in the asker's words.

    ``given``: flags of the command that its figures depend on. ``upgraded``: the deployment that the upgrades are for.
    """

    scenario: Scenario
    kinds: tuple[Kind, ...]
    wanted: Wanted | None
    demand_origin: str
    slo_defaults: tuple[str, ...]
    given: tuple[str, ...] = ()
    purchase: Purchase | None = None
    fleet: Fleet | None = None
    upgrades: Upgrades | None = None
    upgraded: Scenario | None = None
    notes: tuple[str, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether there is a deployment, or a fleet, that does what is asked."""
        asked = [bool(self.purchase.plans)] if self.purchase else []
        asked += [bool(self.fleet.groups)] if self.fleet else []
        return any(asked) or not asked


def document(answer: Answer) -> dict[str, Any]:
    """The JSON document."""
    purchase, wanted = answer.purchase, answer.wanted
    misses = [] if purchase is None else [_miss(miss) for miss in purchase.misses]
    slo = answer.scenario.settings.slo
    best = purchase.plans[0] if purchase is not None and purchase.plans else None
    return {
        "schema": SCHEMA,
        "feasible": answer.feasible,
        "reasons": _reasons(answer),
        "model": answer.scenario.model.name,
        "workload": answer.scenario.workload.name,
        "mode": answer.scenario.settings.mode,
        "demand": None if wanted is None else _demand(answer, wanted),
        "slo": {"ttft_s": slo.ttft, "tpot_s": slo.tpot, "defaults": list(answer.slo_defaults)},
        "currency": CURRENCY,
        "ranked_by": "cost_per_hour" if best is not None and best.cost is not None else "gpus",
        "candidates": [_candidate(kind, wanted or Wanted(turns_per_s=1.0)) for kind in answer.kinds],
        "plans": [] if purchase is None else [plan_row(plan, i + 1) for i, plan in enumerate(purchase.plans)],
        "rejected": [] if purchase is None else [plan_row(plan, None) for plan in purchase.rejected],
        "interrupted": purchase is not None and purchase.interrupted,
        "misses": misses,
        "nearest_miss": misses[0] if misses and best is None else None,
        "fleet": None if answer.fleet is None else _fleet(answer.fleet),
        "upgrades": None if answer.upgrades is None else pick(answer.upgrades, UPGRADES),
        "points_evaluated": None if purchase is None else purchase.points,
        "assumptions": assumption_lines(answer),
        "sources": _sources(answer),
        "inputs_sha256": _hash(answer),
    }


def _demand(answer: Answer, wanted: Wanted) -> dict[str, Any]:
    return {
        "turns_per_s": wanted.turns_per_s,
        "agents_per_s": wanted.turns_per_s / mean_turns(answer.scenario.workload),
        "given": answer.demand_origin,
        "headroom": wanted.headroom,
        "spare_nodes": wanted.spare,
        "max_nodes": wanted.max_nodes,
        "outside_range_allowed": wanted.allow_outside_range,
        "available": dict(wanted.available),
    }


def _candidate(kind: Kind, wanted: Wanted) -> dict[str, Any]:
    sides = [
        {
            "hardware": hardware.name,
            "snics_per_node": hardware.snic.count,
            "price_per_hour": node_price(hardware, wanted.prices, extra),
            "price_origin": price_origin(hardware, wanted.prices),
            "price_source": price_source(hardware, wanted.prices),
            "purchase_price": hardware.cost.price,
            "prefill_efficiency": hardware.efficiency.prefill,
            "prefill_efficiency_source": source_of(hardware, "efficiency.prefill"),
            "power_w": hardware.cost.power,
        }
        for (_, hardware), extra in zip(kind.scenario.sides, kind.extra_snics, strict=True)
    ]
    return {"name": kind.name, "prefill": sides[0], "decode": sides[1]}


def plan_row(plan: Plan, rank: int | None) -> dict[str, Any]:
    """One plan, also as a row of a table; ``rank`` None for a plan that lost to the simulation."""
    scenario, answer = plan.kind.scenario, plan.answer
    turns, found = scenario.settings.demand.turn_rate or 0.0, answer.ranges.all_traffic
    hourly = 3600 * turns / 1e6
    tokens = answer.demand.prompt_tokens + answer.demand.generated
    return {
        "rank": rank,
        **pick(plan, f"{MACHINES} prefill_nodes decode_nodes nodes gpus"),
        "snics_per_node": {side: hardware.snic.count for side, hardware in scenario.sides},
        "pd_ratio": plan.prefill_nodes / plan.decode_nodes,
        "inside_range": plan.inside_range,
        "range": {
            "lower": None if found.lower is None else float(found.lower),
            "upper": None if found.upper is None else float(found.upper),
            "empty_because": list(found.empty_because) or None,
        },
        "cost_per_hour": plan.cost,
        "cost_per_million_tokens": _per(plan.cost, hourly * tokens),
        "cost_per_million_output_tokens": _per(plan.cost, hourly * answer.demand.generated),
        "cost_per_million_computed_tokens": _per(plan.cost, hourly * answer.demand.computed_tokens),
        "power_w": plan.power,
        "turns_per_s": answer.turns_per_s,
        "agents_per_s": answer.turns_per_s / mean_turns(scenario.workload),
        "utilization": 1 / (1 + plan.headroom),
        "headroom": plan.headroom,
        **pick(answer, "bottleneck=bottleneck.resource decode_read_share ttft_unloaded_s tpot_s"),
        "compute_times": answer.demand.compute_origin,
        "storage": pick(plan.storage, "capacity_bytes read_bytes_per_s write_bytes_per_s nics agents agent_time_s"),
        "spare": pick(plan.spare, "nodes prefill_down_turns_per_s decode_down_turns_per_s meets_demand"),
        "confirmed": None if plan.confirmed is None else _confirmed(plan.confirmed),
        "slo_met": None if plan.confirmed is None else plan.confirmed.slo_met,
        "lost_because": plan.lost_because or None,
    }


def _per(cost: float | None, amount: float) -> float | None:
    return None if cost is None or not amount else cost / amount


def _confirmed(found: Confirmed) -> dict[str, Any]:
    row = pick(found, "slo_met ttft_s tpot_s turns_per_s steady reason refused")
    return row | {"reason": found.reason or None}


def _miss(miss: Miss) -> dict[str, Any]:
    counts = {side: hardware.snic.count for side, hardware in miss.kind.scenario.sides}
    figures = pick(miss, "prefill_nodes decode_nodes stopped_by=stage share_of_demand=share reasons")
    return pick(miss, MACHINES) | {"snics_per_node": counts} | figures


def _fleet(fleet: Fleet) -> dict[str, Any]:
    groups = pick_all(fleet.groups, f"count {MACHINES} prefill_nodes decode_nodes turns_per_s cost_per_hour=cost")
    if fleet.cost is None:
        groups = [group | {"cost_per_hour": None} for group in groups]
    figures = pick(fleet, "cost_per_hour=cost gpus turns_per_s optimality_gap=gap most_turns_per_s")
    return figures | {"groups": groups}


UPGRADES = """
    prefill_nodes decode_nodes turns_per_s ladder dual_values=duals upgrades not_evaluated=unknown
"""


def _reasons(answer: Answer) -> list[str]:
    """Why there is no plan, nearest miss first; empty where there is one."""
    if answer.feasible or answer.purchase is None:
        return []
    found = [rejection(plan) for plan in answer.purchase.rejected]
    return found + [f"{miss.kind.name}: {' '.join(map(str, miss.reasons))}" for miss in answer.purchase.misses]


def rejection(plan: Plan) -> str:
    """Why the simulation ruled a plan out, a sentence."""
    reason = plan.confirmed.reason if plan.confirmed else ""
    if plan.confirmed and plan.confirmed.refused:
        return f"{plan.label}: it cannot be simulated, {reason}."
    return f"{plan.label}: the simulation misses the SLO, {reason}."


def assumption_lines(answer: Answer) -> list[str]:
    """What the answer relies on, a sentence each."""
    found = list(answer.notes)
    wanted, purchase = answer.wanted, answer.purchase
    if wanted is not None:
        found += _about_the_demand(answer, wanted)
    plans = purchase.plans if purchase is not None else ()
    if plans:
        found.append(
            "the store holds the agents under way at half their length and unloaded times; a run may hold half as much "
            "again and more (size working-set --simulate); the cost is that of nodes alone, without store, switches "
            "and space"
        )
        return [*found, *map(str, assumptions(plans[0].answer, answer.given))]
    return [*found, *map(str, given_flags(answer.scenario, answer.given))]


def _about_the_demand(answer: Answer, wanted: Wanted) -> list[str]:
    found = [
        f"the demand is a steady mean, {significant(mean_turns(answer.scenario.workload))} turns an agent"
        + (f" ({answer.demand_origin})" if answer.demand_origin else "")
    ]
    if answer.slo_defaults:
        found.append("SLO not given, so " + " and ".join(answer.slo_defaults) + " by default")
    if not (answer.purchase and any(plan.confirmed for plan in answer.purchase.plans)):
        found.append("rates are steady, without queueing: --confirm simulates, --headroom leaves room")
    missing: dict[str, list[str]] = {}
    for kind in answer.kinds:
        for _, hardware in kind.scenario.sides:
            if node_price(hardware, wanted.prices) is None:
                why = str(price_origin(hardware, wanted.prices))
                missing.setdefault(why, []).append(hardware.name)
    found += [f"{', '.join(dict.fromkeys(names))}: {why}" for why, names in missing.items()]
    if missing:
        all_missing = not any(priced(kind, wanted.prices) for kind in answer.kinds)
        found.append(
            "ranked by GPU count, since no price is known"
            if all_missing
            else "what has no price is ranked by GPU count behind what has one (--price NAME=USD an hour)"
        )
    fitted_kinds = [kind.name for kind in answer.kinds if fitted(kind.scenario) is not None]
    if fitted_kinds and len(fitted_kinds) < len(answer.kinds):
        found.append(
            f"times of {', '.join(fitted_kinds)} are fitted on measured runs, those of the others a roofline, which "
            "is kinder: compare with care"
        )
    if any(any(kind.extra_snics) for kind in answer.kinds) and not wanted.prices.snic_per_hour:
        found.append("storage NICs beyond those of a profile cost nothing (--snic-price)")
    if answer.fleet is not None and answer.fleet.cost is not None and missing:
        found.append("the fleet is made of what has a price")
    if answer.fleet is not None:
        found.append(f"each deployment of the fleet has a store of its own; its cost is the least but for {CLOSE:.1%}")
    return [text.replace("%", " %").replace("  %", " %") for text in found]


def _sources(answer: Answer) -> list[dict[str, str]]:
    """Sources of the figures of all candidates, each once."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for kind in answer.kinds:
        for entry in sources(kind.scenario):
            name = (
                kind.scenario.decode_hardware.name if entry["key"].startswith("decode") else kind.scenario.hardware.name
            )
            side, dot, path = entry["key"].partition(".")
            key = f"{name}.{path}" if dot and side.endswith("hardware") else entry["key"]
            found.setdefault((key, entry["source"]), {"key": key, "source": entry["source"]})
    return list(found.values())


def _hash(answer: Answer) -> str:
    import hashlib

    inputs: list[Any] = [
        answer.wanted,
        [scenario_sha256(kind.scenario) for kind in answer.kinds],
        answer.fleet is not None,
    ]
    if answer.upgraded is not None:
        inputs.append(scenario_sha256(answer.upgraded))
    return hashlib.sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()
