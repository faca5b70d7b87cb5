"""The answer of ``feasible`` for people, and in all formats."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dualplan.model.service_times import Intervals
from dualplan.plan.assumptions import assumptions, deciding
from dualplan.report.blocks import GAP, Block, Drawing, Facts, Paragraph, Table, assumed, table
from dualplan.report.feasible_document import document
from dualplan.report.near_limit import LEAVE_ROOM, SIMULATE, near_limit
from dualplan.report.output import Output
from dualplan.spec.workload import mean_turns
from dualplan.steady.answer import Evaluation
from dualplan.steady.rate import Load
from dualplan.steady.resources import TITLES, few
from dualplan.units import many_times, show, significant

if TYPE_CHECKING:
    from dualplan.plan.uncertainty import Uncertainty

BAR_ENDS = (0.1, 10.0)
QUIET = 0.05
"""Resources used less than this are named in one line instead of a row each."""


def output(answer: Evaluation, uncertainty: Uncertainty | None = None, *, verbose: bool = False) -> Output:
    """The result in all formats; csv and jsonl hold one row with the figures that are compared between deployments.

    ``verbose``: people see all assumptions, not only those that bear on the answer.
    """
    data = document(answer, uncertainty)
    return Output(
        data=data,
        rows=[_row(data)],
        view=lambda: view(answer, uncertainty, verbose=verbose),
        document=lambda: view(answer, uncertainty, whole=True),
    )


def _row(data: dict[str, Any]) -> dict[str, Any]:
    """One line of a table of deployments; the keys of the document, always the same ones."""
    demand = data["demand"] or {"turns_per_s": None, "utilization": None, "headroom": None}
    ends = ("lower", "upper", "lower_constraint", "upper_constraint")
    row = {key: data[key] for key in ("feasible", "prefill_nodes", "decode_nodes", "pd_ratio", "mode")}
    row |= {key: data[key] for key in ("hardware", "decode_hardware", "model", "workload")}
    row |= {key: {end: data[key][end] for end in ends} for key in ("range", "paper_range", "effective_range")}
    row |= {"throughput": data["throughput"], "bottleneck": data["bottleneck"]}
    row |= {key: data[key] for key in ("decode_read_share", "speedup_over_basic")}
    latency = {key: data["latency"][key] for key in ("ttft_unloaded_s", "tpot_s")}
    return row | {"latency": latency, "demand": demand, "reasons": data["reasons"]}


def headline(answer: Evaluation) -> str:
    """What was asked: model, hardware, workload, deployment, mode."""
    scenario = answer.scenario
    hardware = scenario.hardware.name
    if scenario.decode_hardware != scenario.hardware:
        hardware += f" + {scenario.decode_hardware.name}"
    deployment = f"{answer.prefill_nodes}P{answer.decode_nodes}D"
    return " · ".join((scenario.model.title, hardware, scenario.workload.name, deployment, scenario.settings.mode))


def ratio_text(answer: Evaluation) -> str:
    """P:D in lowest terms."""
    ratio = Fraction(answer.prefill_nodes, answer.decode_nodes)
    return f"{ratio.numerator}:{ratio.denominator}"


def verdict(answer: Evaluation) -> list[str]:
    """The answer in a line, or in one for each reason."""
    if not answer.feasible:
        return [f"NOT FEASIBLE   {answer.reasons[0]}", *map(str, answer.reasons[1:])]
    found = answer.ranges.all_traffic
    inside = f"P/D {ratio_text(answer)} lies inside {_bound(found.lower, '0')} .. {_bound(found.upper, 'no limit')}"
    return [f"FEASIBLE   {'no link limits P/D' if found.lower is found.upper is None else inside}"]


def answer_facts(answer: Evaluation) -> list[tuple[str, str]]:
    """Key and text of rate, bottleneck, demand and times."""
    facts = [("Still", STILL)] if only_the_range(answer) else []
    turns = answer.turns_per_s
    if not turns:
        return facts
    rate = f"{significant(turns)} turns/s ({significant(turns / mean_turns(answer.scenario.workload))} agents/s, "
    rate += f"{show(turns * answer.demand.prompt_tokens, '').strip()} prompt tok/s)"
    if answer.speedup_over_basic is not None and answer.scenario.settings.mode != "basic":
        rate += f" · {significant(answer.speedup_over_basic)}x basic at this P/D"
    facts += [("", rate), ("Bound by", _bound_by(answer))]
    check = answer.demand_check
    if check is not None:
        used = check.utilization
        share = f"{100 * used:.0f} % of" if used < 2 else f"{significant(used)} times"
        share += f" the rate, head-room {_times(check.headroom)}"
        facts.append(("Demand", f"{significant(check.turns_per_s)} turns/s: {share}"))
        if near := near_limit(used, LEAVE_ROOM if answer.classes else SIMULATE):
            facts.append(("Near limit", str(near)))
    times = f"unloaded TTFT of a mean turn {show(answer.ttft_unloaded_s, 's')} (a lower bound), TPOT "
    where = "At that" if check is None or check.utilization > 1 else "At demand"
    facts.append((where, times + show(answer.tpot_s, "s")))
    if answer.demand.interval is not None:
        facts.append(("How sure", how_sure(answer.demand.interval)))
    if answer.pairs is not None and not answer.scenario.variants:
        gap = answer.pairs.turns_per_s / answer.closed_form_turns_per_s - 1
        facts.append(("Checked", f"the flow problem over all pairs of nodes gives the same rate to {abs(gap):.1e}"))
    return facts


def how_sure(interval: Intervals) -> str:
    """The intervals of service times in a line."""
    names = (("TPOT", interval.tpot), ("TTFT", interval.ttft), ("prefill rate", interval.prefill_rate))
    parts = [f"{name} {100 * one.low - 100:+.0f}..{100 * one.high - 100:+.0f} %" for name, one in names]
    return f"{', '.join(parts)} ({SEEN if interval.seen else UNSEEN})"


SEEN = "80 of 100 runs left out of the fit lie inside"
UNSEEN = "80 of 100 runs lie inside; machine or model is not among those fitted"
STILL = "the rate holds: the range asks more, that storage NICs could run at line rate"


def only_the_range(answer: Evaluation) -> bool:
    """Whether P/D outside its range is all that a deployment with a rate lacks."""
    ratio = Fraction(answer.prefill_nodes, answer.decode_nodes)
    return bool(answer.turns_per_s) and not answer.ranges.all_traffic.contains(ratio) and len(answer.reasons) == 1


def _times(rise: float) -> str:
    """A relative rise: per cent, or a factor where that reads better."""
    return many_times(1 + rise, 3.0) or f"{100 * rise:+.0f} %"


def _bound_by(answer: Evaluation) -> str:
    bottleneck = answer.bottleneck
    if bottleneck.resource is None:
        return "nothing that is modelled"
    text = TITLES[bottleneck.resource]
    if answer.scenario.variants and bottleneck.next_gain is not None:
        return f"{text} of {bottleneck.detail}; if all nodes were alike {100 * bottleneck.next_gain:+.1f} %"
    if bottleneck.next is not None and bottleneck.next_gain is not None:
        following = TITLES[bottleneck.next] if bottleneck.next != bottleneck.resource else "that of the other side"
        if bottleneck.next_gain < 0.005:
            text += f", tied with {following}"
        else:
            text += f"; relieving it gives {_times(bottleneck.next_gain)}, then {following} binds"
    return text


def _bound(value: Any, absent: str) -> str:
    if value is None:
        return absent
    if isinstance(value, Fraction) and value.denominator < 100 and value.numerator < 100:
        return str(value)
    return significant(float(value))


def _constraint_names(names: tuple[str, ...]) -> str:
    return few([TITLES[name] for name in names], ", ") or "nothing"


def range_rows(answer: Evaluation) -> list[tuple[str, str, str, str, str]]:
    """Name, lower end, what sets it, upper end, what sets it."""
    rows = []
    for name, found in (
        ("hits only (paper)", answer.ranges.paper),
        ("with all traffic", answer.ranges.all_traffic),
        ("at reachable rates", answer.ranges.effective),
    ):
        if found.crossing is not None:
            ends = zip(found.empty_because, ("from", "to"), found.crossing, strict=True)
            lower, upper = (f"{TITLES[by]} {word} {_bound(bound, '')}" for by, word, bound in ends)
            rows.append((name, "empty", lower, "", upper))
        elif found.empty_because:
            rows.append((name, "empty", _constraint_names(found.empty_because), "", ""))
        else:
            lower, upper = _constraint_names(found.lower_constraints), _constraint_names(found.upper_constraints)
            rows.append((name, _bound(found.lower, "-"), lower, _bound(found.upper, "-"), upper))
    return rows


def range_bar(answer: Evaluation, width: int) -> tuple[str, str]:
    """The range with all traffic on a logarithmic axis, the chosen ratio as ``*``; and the line of labels below."""
    found = answer.ranges.all_traffic
    ratio = answer.prefill_nodes / answer.decode_nodes
    ends = [ratio, *(float(bound) for bound in (found.lower, found.upper) if bound)]
    low, high = min(BAR_ENDS[0], *(value / 1.5 for value in ends)), max(BAR_ENDS[1], *(value * 1.5 for value in ends))

    def place(value: float) -> int:
        return round((math.log(value) - math.log(low)) / (math.log(high) - math.log(low)) * (width - 1))

    cells = ["-"] * width
    if not found.empty_because:
        start = place(float(found.lower)) if found.lower else 0
        end = place(float(found.upper)) if found.upper else width - 1
        cells[start : end + 1] = ["#"] * (end + 1 - start)
        if found.lower:
            cells[start] = "["
        if found.upper:
            cells[end] = "]"
    cells[place(ratio)] = "*"
    labels = [" "] * (width + 6)
    marks = [(low, significant(low, 1)), (high, significant(high, 2)), (ratio, "*" + ratio_text(answer))]
    marks += (
        []
        if found.empty_because
        else [(float(bound), _bound(bound, "")) for bound in (found.lower, found.upper) if bound]
    )
    for value, text in marks:
        at = max(min(place(value) - len(text) // 2, width + 6 - len(text)), 0)
        if all(cell == " " for cell in labels[max(at - 1, 0) : at + len(text) + 1]):
            labels[at : at + len(text)] = list(text)
    return "|" + "".join(cells) + "|", " " + "".join(labels).rstrip()


def view(
    answer: Evaluation, uncertainty: Uncertainty | None = None, *, verbose: bool = False, whole: bool = False
) -> Iterator[Block]:
    """The answer, the ranges, the resources, and what was assumed that bears on this answer; ``verbose``: all that
    was assumed, ``whole``: all resources too, as a document has them.
    """
    yield from _answer(answer, uncertainty)
    if whole and uncertainty is not None:
        from dualplan.report.uncertainty import influences

        yield influences(uncertainty)
    yield from (GAP, _ranges(answer, "set by" if whole else ""), Drawing(lambda width: _labelled_bar(answer, width)))
    if answer.classes:
        yield from (GAP, _classes(answer))
    if answer.splits:
        yield from (GAP, _splits(answer))
    if answer.turns_per_s or whole:
        yield from (GAP, *_resources(answer, *((0.0, 1) if whole else (QUIET, 0))))
    every, matter = assumptions(answer), deciding(answer)
    if verbose or whole or len(matter) == len(every):
        yield from assumed(map(str, every))
    else:
        shown = f"{len(matter)} of {len(every)}: what bears on this answer; all: --verbose or --json"
        yield from assumed(map(str, matter), f"Assumed ({shown})")


def _answer(answer: Evaluation, uncertainty: Uncertainty | None) -> Iterator[Block]:
    yield from (Paragraph(headline(answer), "title"), GAP)
    for text in verdict(answer):
        yield Paragraph(text, "good" if answer.feasible else "bad")
    facts = answer_facts(answer)
    if uncertainty is not None:
        from dualplan.report.uncertainty import facts as uncertainty_facts

        facts += uncertainty_facts(uncertainty)
    yield Facts(tuple(facts))


def _ranges(answer: Evaluation, by: str) -> Table:
    return table("", ("P/D range", "lower", by, "upper", by), range_rows(answer), "lllll", flow="..s.s")


def _labelled_bar(answer: Evaluation, width: int) -> list[str]:
    """The bar of the range beside its name, aligned with the table above."""
    first = max(len(row[0]) for row in range_rows(answer)) + 2
    names = ("all traffic", "")
    return [f"{name:<{first}}{text}" for name, text in zip(names, range_bar(answer, width - first - 8), strict=True)]


def _classes(answer: Evaluation) -> Table:
    """The classes of a mix: who, share, turns/s, that rate if alone, unloaded TTFT, TPOT."""
    rows = [
        (
            f"{one.model} on {one.workload}",
            f"{100 * one.share:.3g} %",
            significant(one.turns_per_s),
            significant(one.alone_turns_per_s),
            show(one.ttft_unloaded_s, "s"),
            show(one.tpot_s, "s"),
        )
        for one in answer.classes
    ]
    return table("", ("Class", "share", "turns/s", "if alone", "TTFT", "TPOT"), rows, "lrrrrr", flow="f.....")


def _splits(answer: Evaluation) -> Table:
    """The best splits of the nodes."""
    rows = [
        (
            f"{split.prefill_nodes}P{split.decode_nodes}D",
            significant(split.turns_per_s),
            "feasible" if split.feasible else "not",
            TITLES[split.bottleneck] if split.bottleneck else "-",
        )
        for split in answer.splits
    ]
    return table("", ("Split", "turns/s", "", "bound by"), rows, "lrll", flow="...w", widths=(9, 7, 10, 0))


def _resources(answer: Evaluation, least: float, digits: int) -> Iterator[Block]:
    """The resources by use, in per cent of so many digits; those of which less is used by name."""
    loads = sorted(answer.loads, key=lambda load: -load.utilization)
    shown = [load for load in loads if load.utilization >= least]
    # a demand that is not carried has no use of its own: what it would take is said above
    check = answer.demand_check if answer.demand_check and answer.demand_check.utilization <= 1 else None
    rows = []
    for load in shown:
        used = [load.utilization, *([load.utilization * check.utilization] if check else [])]
        amounts = [_amount(value, load.unit) for value in (load.load, load.capacity)]
        rows.append([_name(load), *amounts, *(f"{100 * share:.{digits}f} %" for share in used)])
    bound = answer.bottleneck.resource
    yield table(
        "",
        ("Resource", "load", "capacity", "used", *(["at demand"] if check else [])),
        rows,
        "lrrrr"[: 5 if check else 4],
        marked=[i for i, load in enumerate(shown) if load.name == bound and load.utilization > 1 - 1e-9],
        bars=[load.utilization for load in shown],
    )
    if len(shown) < len(loads):
        names = ", ".join(_name(load) for load in loads[len(shown) :])
        yield Paragraph(f"under {100 * least:.0f} %: {names}", "note")


def _name(load: Load) -> str:
    return TITLES[load.name] + (f" ({load.detail})" if load.detail else "")


def _amount(value: float, unit: str) -> str:
    return f"{significant(value)}/s" if unit == "turns/s" else show(value, unit)
