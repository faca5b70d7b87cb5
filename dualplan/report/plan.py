"""The answer of ``plan`` for people, and in all formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualplan.model.service_times import fitted
from dualplan.plan.purchase.cost import node_price, price_origin
from dualplan.plan.purchase.fleet import Fleet, Group
from dualplan.plan.purchase.search import Plan, Purchase
from dualplan.plan.purchase.upgrades import Upgrade, Upgrades
from dualplan.report.near_limit import near_limit
from dualplan.report.output import Output
from dualplan.report.plan_document import CURRENCY, Answer, assumption_lines, document, plan_row, rejection
from dualplan.spec.hardware import source_of
from dualplan.spec.workload import mean_turns
from dualplan.steady.resources import TITLES
from dualplan.units import many_times, show, significant

if TYPE_CHECKING:
    from rich.console import Console

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
        text=lambda console: show_answer(answer, console),
        markdown=lambda: markdown(answer),
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


def plan_lines(plan: Plan) -> list[str]:
    """The best plan in lines; the first is the answer."""
    cost = f"{plan.nodes} nodes, {plan.gpus} GPUs"
    if plan.cost is not None:
        cost += f", {money(plan.cost)} {CURRENCY}/h"
    row = plan_row(plan, 1)
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
    rate = f"{significant(plan.answer.turns_per_s)} turns/s, head-room {room(plan.headroom)}"
    lines.append(f"Rate       {rate}, bound by {bound}")
    if plan.confirmed is None and (near := near_limit(1 / (1 + plan.headroom), CONFIRM)):
        lines.append(f"Near limit {near}")
    lines.append(f"P/D        {plan.prefill_nodes}:{plan.decode_nodes} {_range_words(plan)}")
    storage = plan.storage
    lines.append(
        f"Store      {show(storage.capacity_bytes, 'B')} for {significant(storage.agents)} agents under way, reads "
        f"{show(storage.read_bytes_per_s, 'B/s')}, writes {show(storage.write_bytes_per_s, 'B/s')}, {storage.nics} NICs"
    )
    spare, turns = plan.spare, plan.kind.scenario.settings.demand.turn_rate or 1.0
    down = [
        f"{_share(rate / turns)} with {'a' if spare.nodes == 1 else spare.nodes} {side} down"
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


def interruption(purchase: Purchase) -> str:
    """What an interrupted simulation leaves open."""
    done = sum(plan.confirmed is not None for plan in (*purchase.plans, *purchase.rejected))
    left = sum(plan.confirmed is None for plan in purchase.plans)
    return f"INTERRUPTED  {done} of {done + left} plans were simulated; the others are as the steady model has them"


def basis_lines(answer: Answer) -> list[str]:
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
    known = f"{CURRENCY} a node-hour: {', '.join(priced.values())}"
    none = "none known, so ranked by GPUs: --price NAME=USD gives that of a node-hour"
    prefill = {plan.kind.scenario.hardware.name: _prefill_times(plan.kind.scenario) for plan in plans}
    return [f"Prices     {known if priced else none}", f"Prefill    {', '.join(prefill.values())}"] if plans else []


def _prefill_times(scenario: Scenario) -> str:
    """What the times of prefill rest on, in short."""
    hardware, found = scenario.hardware, fitted(scenario)
    if found is not None and found.has("prefill"):
        return f"{hardware.name} as fitted on measured runs"
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
        if purchase.interrupted:
            line(interruption(purchase), "yellow", hanging=13)
            line()
        if purchase.plans:
            first, *rest = plan_lines(purchase.plans[0])
            line(first, "bold green")
            for text in [*rest, *basis_lines(answer)]:
                line(text)
            _show_table(purchase, console, width)
            for i, plan in enumerate(purchase.plans[1:EXPLAINED], 2):
                line(f"{i}. {plan.label} {plan.lost_because}", hanging=3)
            if len(purchase.plans) > SHOWN:
                line(f"and {len(purchase.plans) - SHOWN} more plans (--json)", hanging=3)
        else:
            line("NO PLAN  no candidate does what is asked", "bold red")
        for plan in purchase.rejected:
            line(f"Dropped: {rejection(plan)}", hanging=9)
        _show_misses(answer, purchase, line)
    if answer.fleet is not None:
        line()
        for text in fleet_lines(answer.fleet):
            line(text)
    if answer.upgrades is not None:
        line()
        for text in upgrade_lines(answer.upgrades):
            line(text)
    found = assumption_lines(answer)
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
        line(f"{miss.kind.name}: {' '.join(map(str, miss.reasons))}", hanging=2)
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
        f"N+{shown[0].spare.nodes}",
        *(["TTFT"] if simulated else []),
    ):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("bound by")
    for i, plan in enumerate(shown, 1):
        figures = [money(plan.cost), str(plan.gpus)]
        figures += ["-" if plan.power is None else significant(plan.power / 1000)] if powers else []
        figures += [f"{room(plan.headroom)}", "yes" if plan.spare.meets_demand else "no"]
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
    every = "upgrade.every_node"
    idle = [str(one.title) for one in found.upgrades if one.gain == 0 and one.title.code == every]
    if idle:
        lines.append("No gain    from " + ", ".join(idle))
    unknown = [str(title) for title in found.unknown if title.code == every]
    if unknown:
        lines.append(f"Not known  {', '.join(unknown)}: times are a fitted set, which does not say how they scale")
    return lines


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


def markdown(answer: Answer) -> str:
    """The answer as a short Markdown document."""
    lines = [f"## {headline(answer)}", ""]
    purchase = answer.purchase
    if purchase is not None and purchase.interrupted:
        lines += [f"- {interruption(purchase)}"]
    if purchase is not None and purchase.plans:
        lines += [f"- {' '.join(text.split())}" for text in [*plan_lines(purchase.plans[0]), *basis_lines(answer)]]
        lines += [
            "",
            f"| rank | plan | {CURRENCY}/h | GPUs | power | head-room | lost because |",
            "|--:|---|--:|--:|--:|--:|---|",
        ]
        lines += [
            f"| {i} | {plan.label} | {money(plan.cost)} | {plan.gpus} | {show(plan.power, 'W')} "
            f"| {room(plan.headroom)} | {plan.lost_because} |"
            for i, plan in enumerate(purchase.plans, 1)
        ]
    elif purchase is not None:
        lines.append("No candidate does what is asked.")
    if purchase is not None:
        lines += ["", *(f"- dropped: {rejection(plan)}" for plan in purchase.rejected)]
        lines += [f"- {miss.kind.name}: {' '.join(map(str, miss.reasons))}" for miss in purchase.misses]
    if answer.fleet is not None:
        lines += ["", *(f"- {' '.join(text.split())}" for text in fleet_lines(answer.fleet))]
    if answer.upgrades is not None:
        lines += ["", *(f"- {' '.join(text.split())}" for text in upgrade_lines(answer.upgrades))]
    lines += ["", "Assumed:", ""]
    lines += [f"- {text}" for text in assumption_lines(answer)]
    return "\n".join(lines) + "\n"
