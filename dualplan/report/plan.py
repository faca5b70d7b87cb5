"""The answer of ``plan`` for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.plan.assumptions import assumptions, scenario_sha256, sources
from dualplan.plan.cost import node_price, price_origin
from dualplan.plan.fleet import CLOSE, Fleet, Group
from dualplan.plan.purchase import Confirmed, Kind, Miss, Plan, Purchase, Storage, Wanted, priced
from dualplan.plan.resources import TITLES
from dualplan.plan.upgrades import Upgrade, Upgrades
from dualplan.report.output import Output
from dualplan.serving.times import fitted
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import mean_turns
from dualplan.units import show, significant

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "dualplan/plan/1"
CURRENCY = "USD"
RUNGS = 5
"""Rungs of the ladder of bottlenecks that people are shown."""

SHOWN = 10
"""Plans in the table for people."""

EXPLAINED = 4
"""Plans up to which people are told in words why they lost."""

MISSES = 4
"""Kinds without a plan that people are shown."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What ``plan`` found. ``scenario``: one of those asked about; ``demand_origin``: the demand in the asker's words.

    ``upgraded``: the deployment that the upgrades are for.
    """

    scenario: Scenario
    kinds: tuple[Kind, ...]
    wanted: Wanted | None
    demand_origin: str
    slo_defaults: tuple[str, ...]
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


def output(answer: Answer) -> Output:
    """The result in all formats; csv and jsonl hold a row a plan, or a row an upgrade where only these were asked."""
    data = document(answer)
    return Output(
        data=data,
        rows=_rows(data) if answer.purchase is not None else data["upgrades"]["upgrades"],
        text=lambda console: show_answer(answer, console),
        markdown=lambda: markdown(answer),
    )


def _rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The plans with the same keys in every row."""
    nothing = dict.fromkeys(("slo_met", "ttft_s", "tpot_s", "turns_per_s", "steady", "reason"))
    return [plan | {"confirmed": plan["confirmed"] or nothing} for plan in data["plans"]]


# ---------------------------------------------------------------- machines


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
        "plans": [] if purchase is None else [_plan(plan, i + 1) for i, plan in enumerate(purchase.plans)],
        "rejected": [] if purchase is None else [_plan(plan, None) for plan in purchase.rejected],
        "misses": misses,
        "nearest_miss": misses[0] if misses and best is None else None,
        "fleet": None if answer.fleet is None else _fleet(answer.fleet),
        "upgrades": None if answer.upgrades is None else _upgrades(answer.upgrades),
        "points_evaluated": None if purchase is None else purchase.points,
        "assumptions": _assumptions(answer),
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
            "purchase_price": hardware.cost.price,
            "power_w": hardware.cost.power,
        }
        for (_, hardware), extra in zip(kind.scenario.sides, kind.extra_snics, strict=True)
    ]
    return {"name": kind.name, "prefill": sides[0], "decode": sides[1]}


def _plan(plan: Plan, rank: int | None) -> dict[str, Any]:
    scenario, answer = plan.kind.scenario, plan.answer
    turns, found = scenario.settings.demand.turn_rate or 0.0, answer.ranges.all_traffic
    hourly = 3600 * turns / 1e6
    tokens = answer.demand.prompt_tokens + answer.demand.generated
    return {
        "rank": rank,
        "hardware": scenario.hardware.name,
        "decode_hardware": scenario.decode_hardware.name,
        "prefill_nodes": plan.prefill_nodes,
        "decode_nodes": plan.decode_nodes,
        "nodes": plan.nodes,
        "gpus": plan.gpus,
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
        "bottleneck": answer.bottleneck.resource,
        "decode_read_share": answer.decode_read_share,
        "ttft_unloaded_s": answer.ttft_unloaded_s,
        "tpot_s": answer.tpot_s,
        "compute_times": answer.demand.compute_origin,
        "storage": _storage(plan.storage),
        "spare": {
            "nodes": plan.spare.nodes,
            "prefill_down_turns_per_s": plan.spare.prefill_down_turns_per_s,
            "decode_down_turns_per_s": plan.spare.decode_down_turns_per_s,
            "meets_demand": plan.spare.meets_demand,
        },
        "confirmed": None if plan.confirmed is None else _confirmed(plan.confirmed),
        "slo_met": None if plan.confirmed is None else plan.confirmed.slo_met,
        "lost_because": plan.lost_because or None,
    }


def _per(cost: float | None, amount: float) -> float | None:
    return None if cost is None or not amount else cost / amount


def _storage(storage: Storage) -> dict[str, Any]:
    return {
        "capacity_bytes": storage.capacity_bytes,
        "read_bytes_per_s": storage.read_bytes_per_s,
        "write_bytes_per_s": storage.write_bytes_per_s,
        "nics": storage.nics,
        "agents": storage.agents,
        "agent_time_s": storage.agent_time_s,
    }


def _confirmed(found: Confirmed) -> dict[str, Any]:
    return {
        "slo_met": found.slo_met,
        "ttft_s": found.ttft_s,
        "tpot_s": found.tpot_s,
        "turns_per_s": found.turns_per_s,
        "steady": found.steady,
        "reason": found.reason or None,
    }


def _miss(miss: Miss) -> dict[str, Any]:
    scenario = miss.kind.scenario
    return {
        "hardware": scenario.hardware.name,
        "decode_hardware": scenario.decode_hardware.name,
        "snics_per_node": {side: hardware.snic.count for side, hardware in scenario.sides},
        "prefill_nodes": miss.prefill_nodes,
        "decode_nodes": miss.decode_nodes,
        "stopped_by": miss.stage,
        "share_of_demand": miss.share,
        "reasons": list(miss.reasons),
    }


def _fleet(fleet: Fleet) -> dict[str, Any]:
    return {
        "cost_per_hour": fleet.cost,
        "gpus": fleet.gpus,
        "turns_per_s": fleet.turns_per_s,
        "optimality_gap": fleet.gap,
        "most_turns_per_s": fleet.most_turns_per_s,
        "groups": [
            {
                "count": group.count,
                "hardware": group.kind.scenario.hardware.name,
                "decode_hardware": group.kind.scenario.decode_hardware.name,
                "prefill_nodes": group.prefill_nodes,
                "decode_nodes": group.decode_nodes,
                "turns_per_s": group.turns_per_s,
                "cost_per_hour": None if fleet.cost is None else group.cost,
            }
            for group in fleet.groups
        ],
    }


def _upgrades(found: Upgrades) -> dict[str, Any]:
    return {
        "prefill_nodes": found.prefill_nodes,
        "decode_nodes": found.decode_nodes,
        "turns_per_s": found.turns_per_s,
        "ladder": [msgspec.structs.asdict(rung) | {"tied": list(rung.tied)} for rung in found.ladder],
        "dual_values": [msgspec.structs.asdict(dual) for dual in found.duals],
        "upgrades": [msgspec.structs.asdict(upgrade) for upgrade in found.upgrades],
        "not_evaluated": list(found.unknown),
    }


def _reasons(answer: Answer) -> list[str]:
    """Why there is no plan, nearest miss first; empty where there is one."""
    if answer.feasible or answer.purchase is None:
        return []
    found = [_rejection(plan) for plan in answer.purchase.rejected]
    return found + [f"{miss.kind.name}: {' '.join(miss.reasons)}" for miss in answer.purchase.misses]


def _rejection(plan: Plan) -> str:
    reason = plan.confirmed.reason if plan.confirmed else ""
    return f"{plan.label}: the simulation misses the SLO, {reason}."


def _assumptions(answer: Answer) -> list[str]:
    found = list(answer.notes)
    wanted, purchase = answer.wanted, answer.purchase
    if wanted is not None:
        found += _about_the_demand(answer, wanted)
    plans = purchase.plans if purchase is not None else ()
    if plans:
        found.append(
            "the store holds the agents under way (unloaded times, a lower bound); the cost is that of nodes alone, "
            "without store, switches and space"
        )
        found += assumptions(plans[0].answer)
    return found


def _about_the_demand(answer: Answer, wanted: Wanted) -> list[str]:
    found = [
        f"the demand is a steady mean, {significant(mean_turns(answer.scenario.workload))} turns an agent"
        + (f" ({answer.demand_origin})" if answer.demand_origin else "")
    ]
    if answer.slo_defaults:
        found.append("SLO not given, so " + " and ".join(answer.slo_defaults) + " by default")
    if not (answer.purchase and any(plan.confirmed for plan in answer.purchase.plans)):
        found.append("rates are steady upper bounds without queueing: --confirm simulates, --headroom leaves room")
    missing: dict[str, list[str]] = {}
    for kind in answer.kinds:
        for _, hardware in kind.scenario.sides:
            if node_price(hardware, wanted.prices) is None:
                why = price_origin(hardware, wanted.prices)
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


# ---------------------------------------------------------------- people


def headline(answer: Answer) -> str:
    """What was asked, in a line."""
    scenario, wanted = answer.scenario, answer.wanted
    parts = [scenario.model.title, scenario.workload.name, scenario.settings.mode]
    if wanted is not None:
        agents = wanted.turns_per_s / mean_turns(scenario.workload)
        parts.append(f"{significant(agents)} agents/s ({significant(wanted.turns_per_s)} turns/s)")
        slo = scenario.settings.slo
        given = " (defaults)" if len(answer.slo_defaults) == 2 else ""
        parts.append(f"TTFT {show(slo.ttft, 's', 2)}, TPOT {show(slo.tpot, 's', 2)}{given}")
    return " · ".join(parts)


def money(value: float | None) -> str:
    """A cost an hour."""
    return "-" if value is None else significant(value)


def plan_lines(plan: Plan) -> list[str]:
    """The best plan in lines; the first is the answer."""
    cost = f"{plan.nodes} nodes, {plan.gpus} GPUs"
    if plan.cost is not None:
        cost += f", {money(plan.cost)} {CURRENCY}/h"
    row = _plan(plan, 1)
    lines = [f"BUY  {plan.label}: {cost}"]
    if plan.cost is not None:
        per = row["cost_per_million_output_tokens"]
        whole = row["cost_per_million_tokens"]
        lines.append(
            f"Tokens     {significant(per)} {CURRENCY} a million output tokens, {significant(whole)} a million in all"
            if per is not None
            else f"Tokens     {significant(whole)} {CURRENCY} a million"
        )
    bound = TITLES.get(plan.answer.bottleneck.resource or "", "nothing that is modelled")
    rate = f"{significant(plan.answer.turns_per_s)} turns/s, head-room {100 * plan.headroom:+.0f} %"
    lines.append(f"Rate       {rate}, bound by {bound}")
    lines.append(f"P/D        {plan.prefill_nodes}:{plan.decode_nodes} {_range_words(plan)}")
    storage = plan.storage
    lines.append(
        f"Store      {show(storage.capacity_bytes, 'B')} for {significant(storage.agents)} agents under way, reads "
        f"{show(storage.read_bytes_per_s, 'B/s')}, writes {show(storage.write_bytes_per_s, 'B/s')}, {storage.nics} NICs"
    )
    spare, turns = plan.spare, plan.kind.scenario.settings.demand.turn_rate or 1.0
    down = [
        f"{100 * rate / turns:.0f} % with {'a' if spare.nodes == 1 else spare.nodes} {side} down"
        for side, rate in (
            (f"prefill node{'s' if spare.nodes > 1 else ''}", spare.prefill_down_turns_per_s),
            (f"decode node{'s' if spare.nodes > 1 else ''}", spare.decode_down_turns_per_s),
        )
    ]
    verdict = "yes" if spare.meets_demand else "no"
    lines.append(f"N+{spare.nodes}        {verdict}: {', '.join(down)} (of the demand)")
    if plan.power is not None:
        lines.append(f"Power      {show(plan.power, 'W')} at most")
    if plan.confirmed is not None:
        times = f"TTFT {show(plan.confirmed.ttft_s, 's', 2)}, TPOT {show(plan.confirmed.tpot_s, 's', 2)}"
        lines.append(f"Simulated  {'SLO met' if plan.confirmed.slo_met else 'SLO missed'}: mean {times}")
    return lines


def _range_words(plan: Plan) -> str:
    found = plan.answer.ranges.all_traffic
    if found.empty_because:
        return "outside: no P/D lets the storage NICs run at line rate"
    low = "0" if found.lower is None else significant(float(found.lower))
    high = "any" if found.upper is None else significant(float(found.upper))
    return f"lies {'inside' if plan.inside_range else 'outside'} {low} .. {high}"


def show_answer(answer: Answer, console: Console) -> None:
    """Print the human view."""
    from textwrap import wrap

    from rich.text import Text

    width = min(console.width, 100)

    def line(text: str = "", style: str = "", indent: int = 2, hanging: int = 11) -> None:
        parts = wrap(text, width - indent, subsequent_indent=" " * hanging, break_on_hyphens=False) or [""]
        for part in parts:
            console.print(Text(" " * indent + part if part else "", style=style), overflow="fold")

    line(headline(answer), "bold", indent=0, hanging=2)
    purchase = answer.purchase
    if purchase is not None:
        line()
        if purchase.plans:
            first, *rest = plan_lines(purchase.plans[0])
            line(first, "bold green")
            for text in rest:
                line(text)
            _show_table(purchase, console, width)
            for i, plan in enumerate(purchase.plans[1:EXPLAINED], 2):
                line(f"{i}. {plan.label} {plan.lost_because}", hanging=3)
            if len(purchase.plans) > SHOWN:
                line(f"and {len(purchase.plans) - SHOWN} more plans (--json)", hanging=3)
        else:
            line("NO PLAN  no candidate does what is asked", "bold red")
        for plan in purchase.rejected:
            line(f"Dropped: {_rejection(plan)}", hanging=9)
        _show_misses(answer, purchase, line)
    if answer.fleet is not None:
        line()
        for text in fleet_lines(answer.fleet):
            line(text)
    if answer.upgrades is not None:
        line()
        for text in upgrade_lines(answer.upgrades):
            line(text)
    found = _assumptions(answer)
    if found:
        line()
        line("Assumed (all figures and their sources: --json)", "dim")
        for text in found:
            line(f"- {text}", "dim", hanging=2)


def _show_misses(answer: Answer, purchase: Purchase, line: Any) -> None:
    if not purchase.misses:
        return
    line()
    line("Nearest misses" if not purchase.plans else "Not among them", "bold")
    for miss in purchase.misses[:MISSES]:
        line(f"{miss.kind.name}: {' '.join(miss.reasons)}", hanging=2)
    left = len(purchase.misses) - MISSES
    if left > 0:
        line(f"and {left} more kinds of nodes (--json)", hanging=2)
    stages = {miss.stage for miss in purchase.misses[:MISSES]}
    if "range" in stages and answer.wanted is not None and not answer.wanted.allow_outside_range:
        line("--allow-outside-range accepts a P/D outside the range: the rate stands, links bind.", hanging=2)


def _show_table(purchase: Purchase, console: Console, width: int) -> None:
    from rich.padding import Padding
    from rich.table import Table

    if len(purchase.plans) < 2:
        return
    console.print()
    shown = purchase.plans[:SHOWN]
    simulated = any(plan.confirmed for plan in shown)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("plan", overflow="fold")
    powers = any(plan.power is not None for plan in shown)
    for header in (
        f"{CURRENCY}/h",
        "GPUs",
        *(["kW"] if powers else []),
        "room",
        "N+1",
        *(["TTFT"] if simulated else []),
    ):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("bound by")
    for i, plan in enumerate(shown, 1):
        figures = [money(plan.cost), str(plan.gpus)]
        figures += ["-" if plan.power is None else significant(plan.power / 1000)] if powers else []
        figures += [f"{100 * plan.headroom:+.0f} %", "yes" if plan.spare.meets_demand else "no"]
        figures += [show(plan.confirmed.ttft_s, "s", 2) if plan.confirmed else "-"] if simulated else []
        table.add_row(f"{i}", plan.label, *figures, TITLES.get(plan.answer.bottleneck.resource or "", "-"))
    console.print(Padding(table, (0, 0, 0, 2), expand=False), width=width)


def fleet_lines(fleet: Fleet) -> list[str]:
    """The fleet in lines."""
    if not fleet.groups:
        most = (
            ""
            if fleet.most_turns_per_s is None
            else f"; all of them carry {significant(fleet.most_turns_per_s)} turns/s"
        )
        return [f"Fleet      no combination of the nodes that can be had meets the demand{most}"]
    cost = f"{money(fleet.cost)} {CURRENCY}/h" if fleet.cost is not None else f"{fleet.gpus} GPUs"
    lines = [f"Fleet      {cost} for {significant(fleet.turns_per_s)} turns/s"]
    return lines + [f"           {_group(group)}" for group in fleet.groups]


def _group(group: Group) -> str:
    name = f"{group.prefill_nodes}P{group.decode_nodes}D {group.kind.name}"
    return f"{group.count} x {name}, {significant(group.turns_per_s)} turns/s each"


def upgrade_lines(found: Upgrades) -> list[str]:
    """Ladder and upgrades in lines."""
    lines = [f"Upgrades of {found.prefill_nodes}P{found.decode_nodes}D, now {significant(found.turns_per_s)} turns/s"]
    steps = [f"{TITLES[rung.resource]} until {significant(rung.turns_per_s)}" for rung in found.ladder[:RUNGS]]
    if steps:
        lines.append("Ladder     " + ", then ".join(steps) + (" ..." if len(found.ladder) > RUNGS else " turns/s"))
    if found.duals:
        held = ", ".join(f"{TITLES[dual.resource]} {dual.value:.2f}" for dual in found.duals)
        lines.append(f"Dual       {held} (relative rise of the rate for that of a capacity)")
    # what one side brings alone need not be bought for both
    of_one_side = {
        upgrade.key.partition("_")[2]: upgrade.gain for upgrade in reversed(found.upgrades) if _one_side(upgrade)
    }
    useful = [
        upgrade
        for upgrade in found.upgrades
        if upgrade.gain > 0 and not of_one_side.get(upgrade.key, -1.0) > upgrade.gain * (1 - 1e-9)
    ]
    lines += [f"{100 * upgrade.gain:+6.1f} %   {_upgrade(upgrade)}" for upgrade in useful]
    idle = [upgrade.title for upgrade in found.upgrades if upgrade.gain == 0 and "every node" in upgrade.title]
    if idle:
        lines.append("No gain    from " + ", ".join(idle))
    unknown = [title for title in found.unknown if "every node" in title]
    if unknown:
        lines.append(f"Not known  {', '.join(unknown)}: times are a fitted set, which does not say how they scale")
    return lines


def _one_side(upgrade: Upgrade) -> bool:
    return upgrade.title.endswith((" on each prefill node", " on each decode node"))


def _upgrade(upgrade: Upgrade) -> str:
    after = TITLES[upgrade.bottleneck] if upgrade.bottleneck else "nothing"
    text = f"{upgrade.title} ({upgrade.change}), then {after} binds"
    worth = []
    if upgrade.worth_nodes is not None:
        worth.append(f"worth {significant(upgrade.worth_nodes, 2)} nodes")
    if upgrade.break_even_usd_per_node_hour is not None:
        worth.append(f"pays below {significant(upgrade.break_even_usd_per_node_hour)} {CURRENCY}/h a node")
    if upgrade.break_even_usd_per_node is not None:
        worth.append(f"pays below {show(upgrade.break_even_usd_per_node, CURRENCY)} a node at purchase")
    if not upgrade.inside_range:
        worth.append("P/D outside the range")
    return text + ("; " + ", ".join(worth) if worth else "")


def markdown(answer: Answer) -> str:
    """The answer as a short Markdown document."""
    lines = [f"## {headline(answer)}", ""]
    purchase = answer.purchase
    if purchase is not None and purchase.plans:
        lines += [f"- {' '.join(text.split())}" for text in plan_lines(purchase.plans[0])]
        lines += [
            "",
            f"| rank | plan | {CURRENCY}/h | GPUs | power | head-room | lost because |",
            "|--:|---|--:|--:|--:|--:|---|",
        ]
        lines += [
            f"| {i} | {plan.label} | {money(plan.cost)} | {plan.gpus} | {show(plan.power, 'W')} "
            f"| {100 * plan.headroom:.0f} % | {plan.lost_because} |"
            for i, plan in enumerate(purchase.plans, 1)
        ]
    elif purchase is not None:
        lines.append("No candidate does what is asked.")
    if purchase is not None:
        lines += ["", *(f"- dropped: {_rejection(plan)}" for plan in purchase.rejected)]
        lines += [f"- {miss.kind.name}: {' '.join(miss.reasons)}" for miss in purchase.misses]
    if answer.fleet is not None:
        lines += ["", *(f"- {' '.join(text.split())}" for text in fleet_lines(answer.fleet))]
    if answer.upgrades is not None:
        lines += ["", *(f"- {' '.join(text.split())}" for text in upgrade_lines(answer.upgrades))]
    lines += ["", "Assumed:", ""]
    lines += [f"- {text}" for text in _assumptions(answer)]
    return "\n".join(lines) + "\n"
