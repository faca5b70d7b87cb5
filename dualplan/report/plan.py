"""The answer of ``plan`` for people, and in all formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dualplan.plan.purchase.cost import node_price, price_origin
from dualplan.plan.purchase.fleet import Fleet, Group
from dualplan.plan.purchase.search import Plan, Purchase
from dualplan.plan.purchase.upgrades import Upgrade, Upgrades
from dualplan.report.blocks import GAP, MORE, Block, Facts, Paragraph, Table, assumed, table
from dualplan.report.near_limit import near_limit
from dualplan.report.output import Output
from dualplan.report.plan_document import CURRENCY, Answer, assumption_lines, document, plan_row, rejection
from dualplan.spec.fitted_sets import fitted
from dualplan.spec.hardware import source_of
from dualplan.spec.workload import mean_turns
from dualplan.steady.resources import TITLES
from dualplan.units import many_times, show, significant

if TYPE_CHECKING:
    from dualplan.spec.scenario import Scenario

RUNGS = 5
"""Rungs of the ladder of bottlenecks that people are shown."""

SHOWN = 10
"""Plans in the table for people."""

EXPLAINED = 4
"""Plans up to which people are told in words why they lost."""

CONFIRM = "let --confirm decide, or leave room with --headroom"

MISSES = 4
"""Kinds without a plan that people are shown."""


def output(answer: Answer) -> Output:
    """The result in all formats; csv and jsonl hold a row a plan, or a row an upgrade where only these were asked."""
    data = document(answer)
    return Output(
        data=data,
        rows=_rows(data) if answer.purchase is not None else data["upgrades"]["upgrades"],
        view=lambda: view(answer),
        document=lambda: view(answer, whole=True),
    )


def _rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The plans with the same keys in every row."""
    nothing = dict.fromkeys(("slo_met", "ttft_s", "tpot_s", "turns_per_s", "steady", "reason", "refused"))
    return [plan | {"confirmed": plan["confirmed"] or nothing} for plan in data["plans"]]


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


def room(headroom: float) -> str:
    """Head-room in per cent; of a rate that is many times the demand, how many times."""
    return many_times(1 + headroom) or f"{100 * headroom:+.0f} %"


def _share(share: float) -> str:
    return many_times(share) or f"{100 * share:.0f} %"


def plan_facts(plan: Plan) -> list[tuple[str, str]]:
    """What the best plan costs, carries and needs beside the nodes."""
    facts = []
    row = plan_row(plan, 1)
    if plan.cost is not None:
        per = row["cost_per_million_output_tokens"]
        whole = f"{significant(row['cost_per_million_tokens'])}"
        tokens = f"{whole} {CURRENCY} a million"
        if per is not None:
            tokens = f"{significant(per)} {CURRENCY} a million output tokens, {whole} a million in all"
        facts.append(("Tokens", tokens))
    bound = TITLES.get(plan.answer.bottleneck.resource or "", "nothing that is modelled")
    rate = f"{significant(plan.answer.turns_per_s)} turns/s, head-room {room(plan.headroom)}"
    facts.append(("Rate", f"{rate}, bound by {bound}"))
    if plan.confirmed is None and (near := near_limit(1 / (1 + plan.headroom), CONFIRM)):
        facts.append(("Near limit", str(near)))
    facts.append(("P/D", f"{plan.prefill_nodes}:{plan.decode_nodes} {_range_words(plan)}"))
    storage = plan.storage
    store = f"{show(storage.capacity_bytes, 'B')} for {significant(storage.agents)} agents under way, reads "
    store += f"{show(storage.read_bytes_per_s, 'B/s')}, writes {show(storage.write_bytes_per_s, 'B/s')}, "
    facts.append(("Store", f"{store}{storage.nics} NICs"))
    spare, turns = plan.spare, plan.kind.scenario.settings.demand.turn_rate or 1.0
    some, end = ("a", "") if spare.nodes == 1 else (f"{spare.nodes}", "s" if spare.nodes > 1 else "")
    rates = (("prefill", spare.prefill_down_turns_per_s), ("decode", spare.decode_down_turns_per_s))
    down = [f"{_share(rate / turns)} with {some} {side} node{end} down" for side, rate in rates]
    verdict = "yes" if spare.meets_demand else "no"
    facts.append((f"N+{spare.nodes}", f"{verdict}: {', '.join(down)} (of the demand)"))
    if plan.power is not None:
        facts.append(("Power", f"{show(plan.power, 'W')} at most"))
    if plan.confirmed is not None:
        times = f"TTFT {show(plan.confirmed.ttft_s, 's', 2)}, TPOT {show(plan.confirmed.tpot_s, 's', 2)}"
        facts.append(("Simulated", f"{'SLO met' if plan.confirmed.slo_met else 'SLO missed'}: mean {times}"))
    return facts


def interruption(purchase: Purchase) -> str:
    """What an interrupted simulation leaves open."""
    done = sum(plan.confirmed is not None for plan in (*purchase.plans, *purchase.rejected))
    left = sum(plan.confirmed is None for plan in purchase.plans)
    return f"INTERRUPTED  {done} of {done + left} plans were simulated; the others are as the steady model has them"


def basis_facts(answer: Answer) -> list[tuple[str, str]]:
    """What a ranking rests on before anything else: prices with their origin, the share of the peak that prefill
    reaches.
    """
    if answer.purchase is None or answer.wanted is None:
        return []
    plans, prices = answer.purchase.plans[:SHOWN], answer.wanted.prices
    priced: dict[tuple[str, float], str] = {}
    for plan in plans:
        for (_, hardware), extra in zip(plan.kind.scenario.sides, plan.kind.extra_snics, strict=True):
            price = node_price(hardware, prices, extra)
            if price is not None:
                more = f" with {hardware.snic.count} storage NICs" if extra and prices.snic_per_hour else ""
                text = f"{hardware.name}{more} {money(price)} ({price_origin(hardware, prices)})"
                priced[hardware.name, price] = text
    if not plans:
        return []
    none = "none known, so ranked by GPUs: --price NAME=USD gives that of a node-hour"
    known = f"{CURRENCY} a node-hour: {', '.join(priced.values())}" if priced else none
    prefill = {plan.kind.scenario.hardware.name: _prefill_times(plan.kind.scenario) for plan in plans}
    return [("Prices", known), ("Prefill", ", ".join(prefill.values()))]


def _prefill_times(scenario: Scenario) -> str:
    """What the times of prefill rest on, in short."""
    hardware, found = scenario.hardware, fitted(scenario)
    if found is not None and found.has("prefill"):
        return f"{hardware.name} as fitted on measured runs"
    if hardware.efficiency.prefill is None:
        return f"{hardware.name} by the roofline"
    source = source_of(hardware, "efficiency.prefill")
    origin = "no source" if source is None else "assumed" if source.startswith("assumed") else "published"
    return f"{hardware.name} at {hardware.efficiency.prefill:.2g} of its peak ({origin})"


def _range_words(plan: Plan) -> str:
    found = plan.answer.ranges.all_traffic
    if found.empty_because:
        return "outside: no P/D lets the storage NICs run at line rate"
    low = "0" if found.lower is None else significant(float(found.lower))
    high = "any" if found.upper is None else significant(float(found.upper))
    return f"lies {'inside' if plan.inside_range else 'outside'} {low} .. {high}"


def view(answer: Answer, *, whole: bool = False) -> Iterator[Block]:
    """The best plan first, the others, what is no plan and why, fleet, upgrades, assumptions. People are shown the
    first ones of each, ``whole``: all of them.
    """
    yield Paragraph(headline(answer), "title")
    purchase = answer.purchase
    if purchase is not None:
        yield GAP
        if purchase.interrupted:
            yield from (Paragraph(interruption(purchase), "warning", hanging=13), GAP)
        if purchase.plans:
            most, explained = (len(purchase.plans),) * 2 if whole else (SHOWN, EXPLAINED)
            yield from _best(answer, purchase.plans[0])
            if len(purchase.plans) > 1:
                yield from (GAP, _plans(purchase.plans[:most]))
            for i, plan in enumerate(purchase.plans[1:explained], 2):
                yield Paragraph(f"{i}. {plan.label} {plan.lost_because}", hanging=3)
            if len(purchase.plans) > most:
                yield Paragraph(f"and {len(purchase.plans) - most} more plans (--json)", hanging=3)
        else:
            yield Paragraph("NO PLAN  no candidate does what is asked", "bad")
        for plan in purchase.rejected:
            yield Paragraph(f"Dropped: {rejection(plan)}", hanging=9)
        if purchase.misses:
            yield from (GAP, *_misses(answer, purchase, len(purchase.misses) if whole else MISSES))
    if answer.fleet is not None:
        yield from (GAP, Facts(tuple(fleet_facts(answer.fleet))))
    if answer.upgrades is not None:
        yield from (GAP, *_upgrades(answer.upgrades))
    yield from assumed(assumption_lines(answer))


def _best(answer: Answer, plan: Plan) -> Iterator[Block]:
    cost = "" if plan.cost is None else f", {money(plan.cost)} {CURRENCY}/h"
    yield Paragraph(f"BUY  {plan.label}: {plan.nodes} nodes, {plan.gpus} GPUs{cost}", "good", hanging=11)
    yield Facts((*plan_facts(plan), *basis_facts(answer)))


def _misses(answer: Answer, purchase: Purchase, most: int) -> Iterator[Block]:
    yield Paragraph("Nearest misses" if not purchase.plans else "Not among them", "lead")
    for miss in purchase.misses[:most]:
        yield Paragraph(f"{miss.kind.name}: {' '.join(map(str, miss.reasons))}")
    left = len(purchase.misses) - most
    if left > 0:
        yield Paragraph(f"and {left} more kinds of nodes (--json)")
    stages = {miss.stage for miss in purchase.misses[:most]}
    if "range" in stages and answer.wanted is not None and not answer.wanted.allow_outside_range:
        yield Paragraph("--allow-outside-range accepts a P/D outside the range: the rate stands, links bind.")


def _plans(shown: Sequence[Plan]) -> Table:
    """Plans below each other; columns that none of them fills are left out."""
    columns: list[tuple[str, list[str]]] = [
        ("", [f"{i}" for i in range(1, len(shown) + 1)]),
        ("plan", [plan.label for plan in shown]),
        (f"{CURRENCY}/h", [money(plan.cost) for plan in shown]),
        ("GPUs", [f"{plan.gpus}" for plan in shown]),
    ]
    if any(plan.power is not None for plan in shown):
        columns.append(("kW", ["-" if plan.power is None else significant(plan.power / 1000) for plan in shown]))
    columns.append(("room", [room(plan.headroom) for plan in shown]))
    columns.append((f"N+{shown[0].spare.nodes}", ["yes" if plan.spare.meets_demand else "no" for plan in shown]))
    if any(plan.confirmed for plan in shown):
        times = ["-" if plan.confirmed is None else show(plan.confirmed.ttft_s, "s", 2) for plan in shown]
        columns.append(("TTFT", times))
    columns.append(("bound by", [TITLES.get(plan.answer.bottleneck.resource or "", "-") for plan in shown]))
    heads, cells = zip(*columns, strict=True)
    middle = len(columns) - 3
    return table("", heads, list(zip(*cells, strict=True)), f"rl{'r' * middle}l", flow=f".f{'.' * middle}w")


def fleet_facts(fleet: Fleet) -> list[tuple[str, str]]:
    """What the fleet costs and carries, and its groups."""
    if not fleet.groups:
        most = fleet.most_turns_per_s
        all_of_them = "" if most is None else f"; all of them carry {significant(most)} turns/s"
        return [("Fleet", f"no combination of the nodes that can be had meets the demand{all_of_them}")]
    cost = f"{money(fleet.cost)} {CURRENCY}/h" if fleet.cost is not None else f"{fleet.gpus} GPUs"
    whole = ("Fleet", f"{cost} for {significant(fleet.turns_per_s)} turns/s")
    return [whole, *((MORE, _group(group)) for group in fleet.groups)]


def _group(group: Group) -> str:
    name = f"{group.prefill_nodes}P{group.decode_nodes}D {group.kind.name}"
    return f"{group.count} x {name}, {significant(group.turns_per_s)} turns/s each"


def _upgrades(found: Upgrades) -> Iterator[Block]:
    """Ladder of bottlenecks and upgrades."""
    now = f"now {significant(found.turns_per_s)} turns/s"
    yield Paragraph(f"Upgrades of {found.prefill_nodes}P{found.decode_nodes}D, {now}", hanging=11)
    facts = []
    steps = [f"{TITLES[rung.resource]} until {significant(rung.turns_per_s)}" for rung in found.ladder[:RUNGS]]
    if steps:
        facts.append(("Ladder", ", then ".join(steps) + (" ..." if len(found.ladder) > RUNGS else " turns/s")))
    if found.duals:
        held = ", ".join(f"{TITLES[dual.resource]} {dual.value:.2f}" for dual in found.duals)
        facts.append(("Dual", f"{held} (relative rise of the rate for that of a capacity)"))
    # what one side brings alone need not be bought for both
    of_one_side = {
        upgrade.key.partition("_")[2]: upgrade.gain for upgrade in reversed(found.upgrades) if _one_side(upgrade)
    }
    useful = [
        upgrade
        for upgrade in found.upgrades
        if upgrade.gain > 0 and not of_one_side.get(upgrade.key, -1.0) > upgrade.gain * (1 - 1e-9)
    ]
    facts += [(f"{100 * upgrade.gain:+6.1f} %", _upgrade(upgrade)) for upgrade in useful]
    every = "upgrade.every_node"
    idle = [str(one.title) for one in found.upgrades if one.gain == 0 and one.title.code == every]
    if idle:
        facts.append(("No gain", "from " + ", ".join(idle)))
    unknown = [str(title) for title in found.unknown if title.code == every]
    if unknown:
        held_fast = "times are a fitted set, which does not say how they scale"
        facts.append(("Not known", f"{', '.join(unknown)}: {held_fast}"))
    yield Facts(tuple(facts))


def _one_side(upgrade: Upgrade) -> bool:
    return upgrade.title.code == "upgrade.each_node"


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
