"""The sections of a report that answer: verdict, deployment, P/D range, throughput."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dualplan.model.closed_form import Range
from dualplan.report.blocks import (
    Block,
    Figure,
    Name,
    Paragraph,
    Prose,
    Section,
    Table,
    Text,
    Tiles,
    Verdict,
    prose,
    say,
    table,
)
from dualplan.report.capacity_review.findings import Review
from dualplan.report.capacity_review.labels import Labels
from dualplan.report.capacity_review.words import (
    NO_VALUE,
    SEMICOLON,
    change,
    deployment,
    end,
    joined,
    per_cent,
    resource,
    turns,
)
from dualplan.report.feasible import ratio_text
from dualplan.report.figures.pd_ratio import RangeBar, range_bars, rate_curve, regions
from dualplan.spec.workload import mean_turns
from dualplan.steady.answer import Evaluation
from dualplan.units import show, significant

# ---------------------------------------------------------------- the answer


def answer_section(review: Review) -> Section:
    """The verdict in three sentences, and the key figures."""
    answer = review.answer
    word = say("answer.word_yes" if answer.feasible else "answer.word_no")
    sentences = (_verdict(answer), _rate(answer), _binding(answer))
    blocks: list[Block] = [Verdict(answer.feasible, word, sentences), _tiles(answer)]
    better = _better_split(review)
    if better is not None:
        blocks.append(Paragraph(better))
    return Section("answer", say("title.answer"), tuple(blocks))


def _better_split(review: Review) -> Text | None:
    """Of a deployment that is not feasible: the fastest split of as many nodes that fits and lies inside its range."""
    splits = review.splits
    if review.answer.feasible:
        return None
    fitting = [
        index
        for index in range(len(splits.turns_per_s))
        if splits.fits[index] and splits.inside_range[index] and splits.meets_slo[index]
    ]
    if not fitting:
        return say("answer.no_split")
    best = max(fitting, key=lambda index: float(splits.turns_per_s[index]))
    name = f"{splits.prefill_nodes[best]}P{splits.decode_nodes[best]}D"
    return say("answer.better_split", split=name, rate=turns(float(splits.turns_per_s[best])))


def _verdict(answer: Evaluation) -> Text:
    scenario, found = answer.scenario, answer.ranges.all_traffic
    if not answer.feasible:
        return say("answer.no", deployment=deployment(answer), reasons=prose(answer.reasons))
    values: dict[str, Any] = {
        "deployment": deployment(answer),
        "hardware": _machines(answer),
        "model": Name(scenario.model.title),
        "workload": Name(scenario.workload.name),
        "ratio": ratio_text(answer),
        "lower": end(found.lower) or "0",
        "upper": end(found.upper) or say("range.no_limit"),
    }
    return say("answer.yes_unlimited" if found.lower is found.upper is None else "answer.yes", **values)


def _machines(answer: Evaluation) -> Text:
    scenario = answer.scenario
    if scenario.hardware == scenario.decode_hardware:
        return Name(scenario.hardware.name)
    return (Name(scenario.hardware.name), " + ", Name(scenario.decode_hardware.name))


def _rate(answer: Evaluation) -> Text:
    if not answer.turns_per_s:
        return say("answer.no_rate")
    rate = answer.turns_per_s
    text: list[Text] = [
        say(
            "answer.rate",
            turns=turns(rate),
            agents=say("unit.agents_per_s", n=significant(rate / mean_turns(answer.scenario.workload))),
            tokens=say("unit.prompt_tokens_per_s", n=show(rate * answer.demand.prompt_tokens, "").strip()),
        )
    ]
    if answer.speedup_over_basic is not None and answer.scenario.settings.mode != "basic":
        text.append(say("answer.speedup", times=f"{significant(answer.speedup_over_basic)}×"))
    check = answer.demand_check
    if check is None:
        text.append(say("answer.stop"))
    else:
        text.append(say("answer.demand", demand=turns(check.turns_per_s), share=per_cent(check.utilization)))
    return tuple(text)


def _binding(answer: Evaluation) -> Text:
    found = answer.bottleneck
    if found.resource is None:
        return say("answer.bound_nothing")
    binds = resource(found.resource)
    if not answer.turns_per_s:
        return say("answer.does_not_fit", resource=binds)
    if answer.scenario.variants and found.next_gain is not None:
        return say("answer.bound_variants", resource=binds, nodes=Prose(found.detail), gain=change(found.next_gain))
    if found.next is None or found.next_gain is None:
        return say("answer.bound_alone", resource=binds)
    following = resource(found.next) if found.next != found.resource else say("answer.other_side")
    if found.next_gain < 0.005:
        return say("answer.bound_tied", resource=binds, next=following)
    return say("answer.bound", resource=binds, gain=change(found.next_gain), next=following)


def _tiles(answer: Evaluation) -> Tiles:
    found, rate = answer.ranges.all_traffic, answer.turns_per_s
    limits = say("range.empty") if found.empty_because else (end(found.lower) or "0", " … ", end(found.upper) or "∞")
    items: list[tuple[Text, Text, Text]] = [
        (
            say("tile.rate"),
            turns(rate),
            say("unit.agents_per_s", n=significant(rate / mean_turns(answer.scenario.workload))),
        ),
        (say("tile.range"), limits, say("tile.range_note", ratio=ratio_text(answer))),
        (say("tile.bound"), resource(answer.bottleneck.resource), _next_note(answer)),
    ]
    check = answer.demand_check
    if check is not None:
        note = say("tile.headroom_note", demand=turns(check.turns_per_s))
        items.append((say("tile.headroom"), change(check.headroom), note))
    else:
        tpot = show(answer.tpot_s, "s") if rate else NO_VALUE
        items.append((say("tile.tpot"), tpot, say("tile.tpot_note")))
    return Tiles(tuple(items))


def _next_note(answer: Evaluation) -> Text:
    found = answer.bottleneck
    if found.next is None or found.next_gain is None or answer.scenario.variants:
        return ""
    return say("tile.bound_note", gain=change(found.next_gain), next=resource(found.next))


# ---------------------------------------------------------------- the deployment


def deployment_section(review: Review) -> Section:
    """What stands on either side, what a turn is, what is asked for."""
    answer = review.answer
    return Section(
        "deployment", say("title.deployment"), (_nodes_table(answer), _turn_table(answer), _asked_table(answer))
    )


def _nodes_table(answer: Evaluation) -> Table:
    scenario = answer.scenario
    sides = [
        (answer.prefill_nodes, scenario.hardware, answer.prefill_parallel, answer.memory["prefill"]),
        (answer.decode_nodes, scenario.decode_hardware, answer.decode_parallel, answer.memory["decode"]),
    ]
    rows: list[list[Text]] = [[say(f"nodes.{key}")] for key in _NODE_ROWS]
    for nodes, hardware, parallel, memory in sides:
        gpu, cnic, snic, dram = hardware.gpu, hardware.cnic, hardware.snic, hardware.dram
        cells: tuple[Text, ...] = (
            f"{nodes:,}",
            Name(hardware.name),
            (f"{nodes * gpu.count:,} × ", Name(gpu.kind)),
            str(parallel),
            f"{snic.count} × {show(snic.rate, 'B/s')}",
            f"{cnic.count} × {show(cnic.rate, 'B/s')}",
            NO_VALUE if dram.bandwidth is None else show(dram.bandwidth, "B/s"),
            show(memory.usable_bytes_per_gpu, "B"),
            show(memory.weight_bytes_per_gpu, "B"),
            show(memory.kv_bytes_per_gpu, "B"),
        )
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    header = (say("column.quantity"), say("column.prefill_side"), say("column.decode_side"))
    return table(say("nodes.caption"), header, rows, "lrr")


_NODE_ROWS = ("nodes", "machine", "gpus", "parallel", "snic", "cnic", "dram", "usable", "weights", "kv")


def _turn_table(answer: Evaluation) -> Table:
    demand = answer.demand
    sizes = demand.amounts
    rows: list[tuple[Text, ...]] = [
        (say("turn.hit"), f"{demand.hit_tokens:,.0f}", show(float(sizes.hit), "B")),
        (say("turn.computed"), f"{demand.computed_tokens:,.0f}", show(float(sizes.miss), "B")),
        (say("turn.generated"), f"{demand.generated:,.0f}", show(float(sizes.generated), "B")),
        (say("turn.prefill_collective"), "", show(float(sizes.prefill_collective), "B")),
        (say("turn.decode_collective"), "", show(float(sizes.decode_collective), "B")),
    ]
    header = (say("column.of_a_turn"), say("column.tokens"), say("column.bytes"))
    return table(say("turn.caption", kv_format=Name(str(demand.kv_format))), header, rows, "lrr")


def _asked_table(answer: Evaluation) -> Table:
    settings, check = answer.scenario.settings, answer.demand_check
    agents = settings.demand.arrival_rate
    nothing = say("asked.nothing")
    asked: Text = nothing
    if check is not None:
        asked = turns(check.turns_per_s)
        if agents is not None:
            asked = (say("unit.agents_per_s", n=significant(agents)), " = ", asked)
    chosen = {key: getattr(settings, key) for key in ("staging", "copy", "persist", "policy")}
    rows: list[tuple[Text, ...]] = [
        (say("asked.mode"), settings.mode),
        (
            say("asked.options"),
            say("asked.options_value", **chosen),
        ),
        (say("asked.demand"), asked),
        (say("asked.ttft"), nothing if settings.slo.ttft is None else show(settings.slo.ttft, "s")),
        (say("asked.tpot"), nothing if settings.slo.tpot is None else show(settings.slo.tpot, "s")),
        (say("asked.ttft_found"), (show(answer.ttft_unloaded_s, "s"), " (", say("asked.lower_bound"), ")")),
        (say("asked.tpot_found"), show(answer.tpot_s, "s")),
    ]
    return table(say("asked.caption"), (say("column.quantity"), say("column.value")), rows, "ll")


# ---------------------------------------------------------------- P/D range


RANGES = (("all_traffic", "range.all_traffic"), ("effective", "range.effective"), ("paper", "range.paper"))


def range_section(review: Review, labels: Labels, prefix: str) -> Section:
    """The ranges as bars with the chosen ratio, and what sets each end."""
    answer = review.answer
    shown = [(labels[key], getattr(answer.ranges, name)) for name, key in RANGES]
    rows: list[tuple[Text, ...]] = []
    for name, key in RANGES:
        found: Range = getattr(answer.ranges, name)
        if found.empty_because:
            rows.append((say(key), say("range.empty"), _constraints(found.empty_because), "", ""))
        else:
            lower, upper = end(found.lower) or "0", end(found.upper) or say("range.no_limit")
            ends = _constraints(found.lower_constraints), _constraints(found.upper_constraints)
            rows.append((say(key), lower, ends[0], upper, ends[1]))
    header = (say("column.range"), say("column.lower"), say("column.set_by"), say("column.upper"), say("column.set_by"))
    data = table(say("range.caption"), header, rows, "lrlrl")
    ratio = answer.prefill_nodes / answer.decode_nodes
    chosen = f"{deployment(answer)} ({ratio_text(answer)})"
    title = labels["range.figure"]
    bar_rows = [_bar(title_, found, labels) for title_, found in shown]
    svg = range_bars(f"{prefix}range", title, bar_rows, ratio, chosen, labels["axis.pd"])
    alt = say(
        "range.alt", chosen=chosen, ranges=joined([_range_words(name, found) for name, found in shown], SEMICOLON)
    )
    figure = Figure(f"{prefix}range", svg, alt, say("range.figure"), data)
    return Section("range", say("title.range"), (Paragraph(say("range.lead")), figure))


def _bar(title: str, found: Range, labels: Labels) -> RangeBar:
    def words(bound: Fraction | None, names: tuple[str, ...]) -> str:
        shown = [labels[f"resource.{name}"] for name in names[:2]]
        more = [f"+ {len(names) - 2}"] if len(names) > 2 else []
        return "\n".join([end(bound) or "", *shown, *more])

    return RangeBar(
        title,
        None if found.lower is None else float(found.lower),
        None if found.upper is None else float(found.upper),
        words(found.lower, found.lower_constraints),
        words(found.upper, found.upper_constraints),
        labels["range.empty"] if found.empty_because else "",
    )


def _range_words(name: str, found: Range) -> Text:
    if found.empty_because:
        return (name, " ", say("range.empty"))
    return (name, " ", end(found.lower) or "0", " … ", end(found.upper) or "∞")


def _constraints(names: tuple[str, ...]) -> Text:
    return joined([resource(name) for name in names]) if names else NO_VALUE


# ---------------------------------------------------------------- throughput against P/D


def throughput_section(review: Review, labels: Labels, prefix: str) -> Section:
    """The rate over P/D, and what binds where."""
    answer, curve = review.answer, review.curve
    nodes = answer.prefill_nodes + answer.decode_nodes
    found = regions(curve)
    splits = review.splits
    rows: list[tuple[Text, ...]] = []
    marked = []
    for index, (prefill, decode) in enumerate(zip(splits.prefill_nodes, splits.decode_nodes, strict=True)):
        name = f"{prefill}P{decode}D"
        own = (prefill, decode) == (answer.prefill_nodes, answer.decode_nodes)
        if own:
            marked.append(index)
        inside = say("word.yes") if splits.inside_range[index] else say("word.no")
        fault = splits.error[index]
        binds = Prose(fault) if fault else resource(str(splits.bottleneck[index]) or None)
        cells = (turns(float(splits.turns_per_s[index])), binds, inside)
        rows.append(((name, " ", say("modes.chosen")) if own else name, *cells))
    header = (say("column.split"), say("column.rate"), say("column.bound_by"), say("column.in_range"))
    data = table(say("curve.caption", nodes=f"{nodes:,}"), header, rows, "lrll", marked=marked)
    if not curve.turns_per_s.any():
        blocks: tuple[Block, ...] = (Paragraph(say("curve.no_rate")), *((data,) if rows else ()))
        return Section("throughput", say("title.throughput"), blocks)
    ratio = answer.prefill_nodes / answer.decode_nodes
    words = {
        "curve": labels["curve.any"].format(nodes=nodes),
        "whole": labels["curve.whole"],
        "chosen": labels["curve.chosen"],
        "x": labels["axis.pd_long"],
        "y": labels["axis.turns"],
    }
    names = {region.resource: labels[f"resource.{region.resource}"] for region in found}
    title = labels["curve.figure"]
    svg = rate_curve(
        f"{prefix}curve", title, curve, splits, (ratio, answer.turns_per_s, deployment(answer)), names, words
    )
    words_of_regions: list[Text] = [
        say(
            "curve.region",
            low=significant(region.low, 2),
            high=significant(region.high, 2),
            resource=resource(region.resource),
        )
        for region in found
    ]
    alt = say("curve.alt", peak=turns(float(curve.turns_per_s.max())), regions=joined(words_of_regions, SEMICOLON))
    figure = Figure(f"{prefix}curve", svg, alt, say("curve.figure"), data)
    return Section("throughput", say("title.throughput"), (Paragraph(say("curve.lead", nodes=f"{nodes:,}")), figure))
