"""The sections of a report that compare modes, steady and simulated."""

from __future__ import annotations

from typing import Any

from dualplan.report.blocks import (
    Block,
    Bullets,
    Figure,
    Folded,
    Paragraph,
    Prose,
    Section,
    Table,
    Text,
    prose,
    say,
    table,
)
from dualplan.report.capacity_review.findings import Review
from dualplan.report.capacity_review.labels import Labels
from dualplan.report.capacity_review.words import NO_VALUE, SEMICOLON, end, joined, per_cent, resource, turns
from dualplan.report.figures.drawing import bars
from dualplan.units import show, significant

# ---------------------------------------------------------------- modes


def modes_section(review: Review, labels: Labels, prefix: str) -> Section:
    """All modes on the same nodes."""
    answer = review.answer
    basic = next(mode for mode in review.modes if mode.scenario.settings.mode == "basic").turns_per_s
    rows: list[tuple[Text, ...]] = []
    texts, marked = [], []
    for index, mode in enumerate(review.modes):
        name, found = mode.scenario.settings.mode, mode.ranges.all_traffic
        own = name == answer.scenario.settings.mode
        if own:
            marked.append(index)
        times = f"{significant(mode.turns_per_s / basic)}×" if basic else NO_VALUE
        limits = say("range.empty") if found.empty_because else f"{end(found.lower) or '0'} … {end(found.upper) or '∞'}"
        texts.append(f"{significant(mode.turns_per_s)} ({times})")
        rows.append(
            (
                (name, " ", say("modes.chosen")) if own else name,
                say(f"mode.{name}"),
                turns(mode.turns_per_s),
                times,
                limits,
                resource(mode.bottleneck.resource),
                show(mode.ttft_unloaded_s, "s"),
            )
        )
    columns = ("mode", "reads", "rate", "over_basic", "range_all", "bound_by", "ttft")
    data = table(say("modes.caption"), [say(f"column.{name}") for name in columns], rows, "llrrllr", marked=marked)
    names = [mode.scenario.settings.mode for mode in review.modes]
    rates = [mode.turns_per_s for mode in review.modes]
    title = labels["modes.figure"]
    svg = bars(f"{prefix}modes", title, names, rates, texts, axis_label=labels["axis.turns"], strong=marked, left=1.0)
    alt = say(
        "modes.alt", values=joined([f"{name} {text}" for name, text in zip(names, texts, strict=True)], SEMICOLON)
    )
    figure = Figure(f"{prefix}modes", svg, alt, say("modes.figure"), data)
    return Section("modes", say("title.modes"), (Paragraph(say("modes.lead")), figure))


# ---------------------------------------------------------------- simulation


def simulation_section(review: Review) -> Section | None:
    """Latencies and capacity of ``dualplan simulate``, where asked for."""
    found = review.simulation
    if found is None:
        return None
    if "reasons" in found:
        text = prose(found["reasons"])
        return Section("simulation", say("title.simulation"), (Paragraph(say("simulation.impossible", reasons=text)),))
    blocks: list[Block] = []
    capacity = found.get("capacity")
    run = found.get("run")
    if capacity is not None:
        low, high = capacity["interval"]
        slo = capacity["slo"]
        words = {"ttft": show(slo["ttft_s"], "s"), "tpot": show(slo["tpot_s"], "s")}
        if not low:
            blocks.append(Paragraph(say("simulation.no_capacity", rate=significant(high), **words), "lead"))
        else:
            above = say("simulation.above", rate=significant(high)) if high is not None else ""
            blocks.append(Paragraph((say("simulation.capacity", rate=significant(low), **words), above), "lead"))
    document = run or capacity
    if run is not None:
        met = say("simulation.met" if run["slo_met"] else "simulation.missed")
        blocks.append(Paragraph((say("simulation.run", rate=significant(run["arrival_rate"])), met)))
    if document is not None:
        blocks += [_latency_table(document), _parts_table(document)]
        if document["steady"] is False:
            blocks.append(Paragraph(say("simulation.not_steady"), "note"))
        if document["stopped"] == "TTFT above the limit":
            blocks.append(Paragraph(say("simulation.above_capacity"), "note"))
        notes = tuple(Prose(text) for text in document["assumptions"])
        blocks.append(Folded(say("simulation.assumed"), (Bullets(notes),)))
    return Section("simulation", say("title.simulation"), tuple(blocks))


def _latency_table(document: dict[str, Any]) -> Table:
    rows: list[tuple[Text, ...]] = []
    for key in ("ttft_s", "ttst_s", "tpot_s", "agent_time_s"):
        values = document[key]
        rows.append((say(f"simulation.{key}"), *(show(values[name], "s") for name in ("mean", "p50", "p90", "p99"))))
    header = (say("column.time"), say("column.mean"), "p50", "p90", "p99")
    caption = say(
        "simulation.caption",
        rate=NO_VALUE if document["arrival_rate"] is None else significant(document["arrival_rate"]),
        turns=f"{document['turns']:,}",
        seconds=f"{document['simulated_s']:,.0f}",
        seed=str(document["seed"]),
    )
    return table(caption, header, rows, "lrrrr")


def _parts_table(document: dict[str, Any]) -> Table:
    rows: list[tuple[Text, ...]] = [
        (say(f"simulation.part_{name}"), NO_VALUE if share is None else per_cent(share))
        for name, share in document["ttft_shares"].items()
    ]
    return table(say("simulation.parts"), (say("column.part"), say("column.share")), rows, "lr")
