"""The sections of a report that look ahead: sensitivity, upgrades, working set, uncertainty."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dualplan.errors import InputError
from dualplan.plan.explain.sensitivity import Bar, tornado
from dualplan.plan.purchase.upgrades import Rung, Upgrade, upgrades
from dualplan.plan.sizing import Server, store_needs, working_set
from dualplan.plan.uncertainty import assess
from dualplan.report.blocks import (
    Block,
    Bullets,
    Figure,
    Name,
    Paragraph,
    Prose,
    Section,
    Text,
    Typed,
    prose,
    say,
    table,
)
from dualplan.report.capacity_review.findings import Review
from dualplan.report.capacity_review.labels import Labels
from dualplan.report.capacity_review.words import NO_VALUE, SEMICOLON, change, joined, per_cent, resource, turns
from dualplan.report.figures.drawing import bars, tornado_bars
from dualplan.spec.scenario import Demand, Scenario
from dualplan.spec.uncertain import uncertain_values
from dualplan.units import show, significant

SPREAD = 0.1
"""Relative change of each quantity in the tornado."""

MOST_BARS = 12
MOST_RUNGS = 6
MOST_UPGRADES = 10

SAMPLES = 300
"""Samples of the uncertain values; ``feasible --uncertain`` takes more."""


# ---------------------------------------------------------------- sensitivity


def sensitivity_section(review: Review, labels: Labels, prefix: str) -> Section:
    """The rate with each quantity a little lower and higher."""
    answer = review.answer
    found = tornado(answer.scenario, SPREAD) if answer.turns_per_s else ()
    lead = Paragraph(say("sensitivity.lead", spread=per_cent(SPREAD)))
    if not found:
        return Section("sensitivity", say("title.sensitivity"), (Paragraph(say("sensitivity.nothing")),))
    shown = found[:MOST_BARS]
    rows = [_bar_row(bar) for bar in shown]
    columns = ("quantity", "meaning", "low_value", "high_value", "rate_low", "rate_high")
    data = table(say("sensitivity.caption"), [say(f"column.{name}") for name in columns], rows, "llrrrr")
    name, title = f"{prefix}tornado", labels["sensitivity.figure"]
    svg = tornado_bars(
        name,
        title,
        [bar.parameter.key for bar in shown],
        [(bar.low / bar.base - 1, bar.high / bar.base - 1) for bar in shown],
        (labels["sensitivity.lower"], labels["sensitivity.higher"]),
        labels["axis.rate_change"],
    )
    widest: list[Text] = [
        say(
            "sensitivity.words",
            key=bar.parameter.key,
            low=change(bar.low / bar.base - 1),
            high=change(bar.high / bar.base - 1),
        )
        for bar in shown[:3]
    ]
    figure = Figure(
        name, svg, say("sensitivity.alt", values=joined(widest, SEMICOLON)), say("sensitivity.figure"), data
    )
    return Section("sensitivity", say("title.sensitivity"), (lead, figure))


def _bar_row(bar: Bar) -> tuple[Text, ...]:
    unit = bar.parameter.unit
    return (
        Typed(bar.parameter.key),
        Prose(bar.parameter.meaning),
        _value(bar.low_value, unit),
        _value(bar.high_value, unit),
        (turns(bar.low), f" ({change(bar.low / bar.base - 1)})"),
        (turns(bar.high), f" ({change(bar.high / bar.base - 1)})"),
    )


def _value(value: float, unit: str) -> str:
    return f"{significant(value)} {unit}" if unit == "tokens" else show(value, unit)


# ---------------------------------------------------------------- upgrades


def upgrades_section(review: Review, labels: Labels, prefix: str) -> Section:
    """The bottlenecks one after the other, and what single upgrades bring."""
    answer = review.answer
    if not answer.turns_per_s:
        return Section("upgrades", say("title.upgrades"), (Paragraph(say("upgrades.no_rate")),))
    try:
        found = upgrades(answer.scenario, answer.prefill_nodes, answer.decode_nodes, prices=review.prices)
    except InputError as error:  # a given parallelism that more nodes cannot host
        return Section("upgrades", say("title.upgrades"), (Paragraph(prose(error.messages or error.problems), "note"),))
    blocks: list[Block] = []
    if answer.scenario.variants:
        blocks.append(Paragraph(say("upgrades.usual_nodes"), "note"))
    if found.ladder:
        blocks += [Paragraph(say("upgrades.lead")), _ladder(found.ladder, labels, prefix)]
    useful = [upgrade for upgrade in found.upgrades if upgrade.gain > 0]
    if useful:
        blocks.append(_upgrades_table(useful[:MOST_UPGRADES]))
    keys = {upgrade.key for upgrade in found.upgrades if upgrade.gain <= 0}
    # what does nothing on every node does nothing on those of one side
    idle = [upgrade for upgrade in found.upgrades if upgrade.gain <= 0 and upgrade.key.partition("_")[2] not in keys]
    if idle:
        titles = joined([Prose(upgrade.title) for upgrade in idle], SEMICOLON)
        blocks.append(Paragraph(say("upgrades.idle", titles=titles), "note"))
    return Section("upgrades", say("title.upgrades"), tuple(blocks))


def _ladder(ladder: Sequence[Rung], labels: Labels, prefix: str) -> Figure:
    shown = ladder[:MOST_RUNGS]
    rows: list[tuple[Text, ...]] = []
    texts = []
    for number, rung in enumerate(shown, start=1):
        tied: Text = joined([resource(name) for name in rung.tied]) if rung.tied else NO_VALUE
        gain = NO_VALUE if rung.gain is None else change(rung.gain)
        rows.append((str(number), resource(rung.resource), tied, turns(rung.turns_per_s), gain))
        texts.append(f"{significant(rung.turns_per_s)}" + ("" if rung.gain is None else f" ({gain})"))
    columns = ("number", "bound_by", "tied", "rate", "relieved")
    data = table(say("upgrades.ladder_caption"), [say(f"column.{name}") for name in columns], rows, "rllrr")
    names = [labels[f"resource.{rung.resource}"] for rung in shown]
    name, title = f"{prefix}ladder", labels["upgrades.ladder"]
    rates = [rung.turns_per_s for rung in shown]
    svg = bars(name, title, names, rates, texts, axis_label=labels["axis.turns"], strong=(0,), left=1.9)
    steps: list[Text] = [(resource(rung.resource), f" {significant(rung.turns_per_s)}") for rung in shown]
    return Figure(name, svg, say("upgrades.alt", values=joined(steps, SEMICOLON)), say("upgrades.ladder"), data)


def _upgrades_table(found: Sequence[Upgrade]) -> Block:
    priced = any(one.break_even_usd_per_node_hour is not None for one in found)
    rows: list[tuple[Text, ...]] = []
    for one in found:
        cells: list[Text] = [
            Prose(one.title),
            one.change.replace("->", "→"),
            turns(one.turns_per_s),
            change(one.gain),
            resource(one.bottleneck),
            NO_VALUE if one.worth_nodes is None else significant(one.worth_nodes, 2),
        ]
        if priced:
            value = one.break_even_usd_per_node_hour
            cells.append(NO_VALUE if value is None else f"{value:,.2f} USD")
        rows.append(tuple(cells))
    columns = ["upgrade", "change", "rate", "gain", "then_bound_by", "worth_nodes"]
    columns += ["break_even"] if priced else []
    align = "llrrlr" + ("r" if priced else "")
    return table(say("upgrades.caption"), [say(f"column.{name}") for name in columns], rows, align)


# ---------------------------------------------------------------- working set


def working_set_section(review: Review) -> Section:
    """What the store must hold and deliver, at the demand and at the full rate."""
    answer = review.answer
    scenario, check = answer.scenario, answer.demand_check
    if not answer.turns_per_s:
        return Section("working-set", say("title.working_set"), (Paragraph(say("upgrades.no_rate")),))
    at_full = msgspec.structs.replace(scenario, settings=msgspec.structs.replace(scenario.settings, demand=Demand()))
    asked: list[tuple[Text, Scenario]] = [(say("cost.full_rate"), at_full)]
    if check is not None and check.turns_per_s <= answer.turns_per_s:
        asked.insert(0, (say("cost.at_demand"), scenario))
    needs = [store_needs(one, working_set(one), server=Server()) for _, one in asked]
    rows: list[tuple[Text, ...]] = [
        (say("working_set.rate"), *(turns(need.turns_per_s) for need in needs)),
        (say("working_set.agents"), *(significant(need.working_set.agents) for need in needs)),
        (say("working_set.agent_time"), *(show(need.working_set.completion_time_s, "s") for need in needs)),
        (say("working_set.capacity"), *(show(need.stored_bytes, "B") for need in needs)),
        (say("working_set.read"), *(show(need.read_bytes_per_s, "B/s") for need in needs)),
        (say("working_set.write"), *(show(need.written_bytes_per_s, "B/s") for need in needs)),
        (say("working_set.written_a_day"), *(show(need.written_bytes_per_day, "B") for need in needs)),
    ]
    header = (say("column.quantity"), *(name for name, _ in asked))
    blocks: list[Block] = [
        Paragraph(say("working_set.lead")),
        table(say("working_set.caption"), header, rows, "l" + "r" * len(asked)),
    ]
    run = (review.simulation or {}).get("run")
    if run is not None:
        mean, peak = run["working_set_mean_bytes"], run["peaks"]["working_set_bytes"]
        blocks.append(Paragraph(say("working_set.simulated", mean=show(mean, "B"), peak=show(peak, "B"))))
    return Section("working-set", say("title.working_set"), tuple(blocks))


# ---------------------------------------------------------------- uncertainty


def uncertainty_blocks(review: Review) -> list[Block]:
    """How robust the verdict is, where the scenario has uncertain values."""
    answer = review.answer
    if not uncertain_values(answer.scenario):
        example = Typed("uncertain: {hardware.snic.efficiency: 0.9 +- 0.05}")
        return [Paragraph(say("uncertainty.none", example=example), "note")]
    found = assess(answer.scenario, answer.prefill_nodes, answer.decode_nodes, samples=SAMPLES)
    share = per_cent(found.feasible_share)
    quantiles = ", ".join(f"{name} {significant(value)}" for name, value in found.turns_per_s.items())
    items: list[Text] = [
        say("uncertainty.share", share=share, error=per_cent(found.share_error, 1), samples=str(found.samples)),
        say("uncertainty.quantiles", values=quantiles),
    ]
    if found.decides is not None:
        items.append(say("uncertainty.decides", key=Typed(found.decides)))
    if found.measure_next is not None:
        items.append(say("uncertainty.measure", key=Typed(found.measure_next)))
    rows: list[tuple[Text, ...]] = [
        (Typed(one.key), Name(one.text), f"{one.correlation:+.2f}".replace("-", "−"), per_cent(one.total))
        for one in found.influences
    ]
    columns = ("input", "uncertain", "correlation", "share_of_variance")
    listed = table(say("uncertainty.caption"), [say(f"column.{name}") for name in columns], rows, "llrr")
    return [Bullets(tuple(items)), listed]
