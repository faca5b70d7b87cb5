"""The sections of a report that answer: verdict, deployment, P/D range, throughput, links, modes, simulation."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dualplan.model.closed_form import Range
from dualplan.plan.evaluate import Evaluation, Load
from dualplan.plan.movements import Movement, movements, path_turns_per_s
from dualplan.report.blocks import (
    Block,
    Bullets,
    Figure,
    Folded,
    Name,
    Paragraph,
    Prose,
    Section,
    Table,
    Text,
    Tiles,
    Verdict,
    say,
    table,
)
from dualplan.report.feasible import ratio_text
from dualplan.report.figure_paths import Arrow, path_diagram
from dualplan.report.figure_ratio import RangeBar, range_bars, rate_curve, regions
from dualplan.report.figures import bars
from dualplan.report.labels import Labels
from dualplan.report.review import Review
from dualplan.spec.workload import mean_turns
from dualplan.units import show, significant

NO_VALUE = "–"
COMMA = say("list.comma")
SEMICOLON = say("list.semicolon")


# ---------------------------------------------------------------- words for numbers


def resource(name: str | None) -> Text:
    """A resource in words."""
    return NO_VALUE if name is None else say(f"resource.{name}")


def amount(value: float, unit: str) -> Text:
    """A load or capacity with its unit."""
    return turns(value) if unit == "turns/s" else show(value, unit)


def turns(value: float) -> Text:
    """A turn rate."""
    return say("unit.turns_per_s", n=significant(value))


def per_cent(share: float, digits: int = 0) -> str:
    """A share as per cent."""
    return f"{100 * share:.{digits}f} %"


def change(gain: float) -> str:
    """A relative change: per cent with a sign, or a factor where that reads better."""
    if abs(gain) < 5e-4:
        return "0 %"
    return f"{1 + gain:.2g}×" if gain >= 2 else f"{100 * gain:+.{0 if abs(gain) >= 0.0995 else 1}f} %".replace("-", "−")


def end(bound: Fraction | None) -> str | None:
    """An end of a range: a small fraction exactly, others in three digits; None without a limit."""
    if bound is None:
        return None
    return str(bound) if bound.denominator < 100 and bound.numerator < 100 else significant(float(bound))


def deployment(answer: Evaluation) -> str:
    """Nodes of both sides, as in 2P4D."""
    return f"{answer.prefill_nodes}P{answer.decode_nodes}D"


def joined(parts: list[Text], between: Text = COMMA) -> Text:
    """Texts in a row."""
    row: list[Text] = []
    for part in parts:
        row += [between, part] if row else [part]
    return tuple(row)


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
        return say("answer.no", deployment=deployment(answer), reasons=Prose(" ".join(answer.reasons)))
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
        text.append(say("answer.speedup", times=f"{significant(answer.speedup_over_basic, 2)}×"))
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
        tpot = show(answer.tpot_s, "s", 2) if rate else NO_VALUE
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
        fault = str(splits.error[index])
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


# ---------------------------------------------------------------- links of both read paths


def links_section(review: Review, labels: Labels, prefix: str) -> Section:
    """A diagram of each read path with the load of every movement, and all resources."""
    answer = review.answer
    blocks: list[Block] = [Paragraph(say("links.lead"))]
    for path, moves in movements(answer).items():
        drawn = [move for move in moves if not move.collective]
        if drawn and answer.turns_per_s:
            blocks.append(_diagram(answer, path, drawn, moves, labels, prefix))
    blocks.append(resources_table(answer))
    return Section("links", say("title.links"), tuple(blocks))


def _diagram(
    answer: Evaluation, path: str, drawn: list[Movement], moves: tuple[Movement, ...], labels: Labels, prefix: str
) -> Figure:
    name = f"{prefix}path-{path}"
    rate = path_turns_per_s(answer, "decode" if path == "decode" else "prefill")
    title = labels[f"links.figure_{path}"]
    arrows = [
        Arrow(
            move.source,
            move.target,
            f"{', '.join(move.steps)}: {show(move.load, 'B/s')}",
            ""
            if move.tightest is None
            else labels["links.of"].format(
                capacity=show(move.tightest.capacity, "B/s"), share=per_cent(move.tightest.utilization)
            ),
            None if move.tightest is None else move.tightest.utilization,
        )
        for move in drawn
    ]
    svg = path_diagram(
        name,
        title,
        arrows,
        _boxes(answer, labels),
        {
            side: labels[f"links.{side}_nodes"].format(n=getattr(answer, f"{side}_nodes"))
            for side in ("prefill", "decode")
        },
    )
    rows: list[tuple[Text, ...]] = []
    for move in moves:
        full = move.tightest
        rows.append(
            (
                ", ".join(move.steps),
                say(f"place.{move.source}"),
                say(f"place.{move.target}"),
                show(move.bytes, "B"),
                show(move.load, "B/s"),
                NO_VALUE if full is None else resource(full.name),
                NO_VALUE if full is None else show(full.capacity, full.unit),
                NO_VALUE if full is None else per_cent(full.utilization),
            )
        )
    columns = ("step", "from", "to", "bytes_of_turn", "load", "tightest", "capacity", "used_in_all")
    data = table(say("links.caption"), [say(f"column.{column}") for column in columns], rows, "lllrrlrr")
    fullest = max(drawn, key=lambda move: move.tightest.utilization if move.tightest else 0.0)
    alt = say(
        f"links.alt_{path}",
        rate=turns(rate),
        count=str(len(drawn)),
        fullest=NO_VALUE if fullest.tightest is None else resource(fullest.tightest.name),
        share=NO_VALUE if fullest.tightest is None else per_cent(fullest.tightest.utilization),
    )
    return Figure(name, svg, alt, say(f"links.figure_{path}_long", rate=turns(rate)), data)


def _boxes(answer: Evaluation, labels: Labels) -> dict[str, str]:
    boxes = {"storage": labels["place.storage"]}
    for side, hardware in answer.scenario.sides:
        nodes = answer.prefill_nodes if side == "prefill" else answer.decode_nodes
        gpu, cnic, snic, dram = hardware.gpu, hardware.cnic, hardware.snic, hardware.dram
        bandwidth = "" if dram.bandwidth is None else f"\n{nodes} × {show(dram.bandwidth, 'B/s')}"
        boxes |= {
            f"{side}_snic": f"{labels['box.snic']}\n{nodes * snic.count} × {show(snic.rate, 'B/s')}",
            f"{side}_host": f"{labels['box.host']}{bandwidth}",
            f"{side}_cnic": f"{labels['box.cnic']}\n{nodes * cnic.count} × {show(cnic.rate, 'B/s')}",
            f"{side}_gpu": f"{labels['box.gpu']}\n{nodes * gpu.count} × {show(gpu.hbm_capacity, 'B')}",
        }
    return boxes


def resources_table(answer: Evaluation) -> Table:
    """Every resource, the fullest first."""
    check = answer.demand_check
    loads = sorted(answer.loads, key=lambda load: -load.utilization)
    header = [say(f"column.{name}") for name in ("resource", "load", "capacity")]
    if check is not None:
        header.append(say("column.at_demand"))
    rows: list[tuple[Text, ...]] = []
    marked = []
    for index, load in enumerate(loads):
        cells: list[Text] = [_load_name(load), amount(load.load, load.unit), amount(load.capacity, load.unit)]
        if check is not None:
            cells.append(per_cent(load.utilization * min(check.utilization, 1)))
        binds = load.utilization > 1 - 1e-9
        if binds:
            marked.append(index)
        share = per_cent(load.utilization, 1)
        rows.append((*cells, (share, " ", say("links.binds")) if binds else share))
    align = "lrr" + ("r" if check is not None else "") + "r"
    return table(
        say("links.resources"),
        [*header, say("column.used")],
        rows,
        align,
        marked=marked,
        bars=[min(load.utilization, 1.0) for load in loads],
    )


def _load_name(load: Load) -> Text:
    return (resource(load.name), " (", Prose(load.detail), ")") if load.detail else resource(load.name)


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
        times = f"{significant(mode.turns_per_s / basic, 2)}×" if basic else NO_VALUE
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
                show(mode.ttft_unloaded_s, "s", 2),
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
        text = Prose(" ".join(found["reasons"]))
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
