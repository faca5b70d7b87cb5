"""The answer of ``feasible`` for people, and in all formats."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dualplan.plan.assumptions import assumptions, deciding
from dualplan.report.feasible_document import document
from dualplan.report.near_limit import LEAVE_ROOM, SIMULATE, near_limit
from dualplan.report.output import Output
from dualplan.spec.workload import mean_turns
from dualplan.steady.answer import Evaluation, Load
from dualplan.steady.resources import TITLES, few
from dualplan.units import many_times, show, significant

if TYPE_CHECKING:
    from rich.console import Console

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
        text=lambda console: show_answer(answer, console, uncertainty, verbose=verbose),
        markdown=lambda: markdown(answer, uncertainty),
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
    """The answer in lines without style: verdict, rate, bottleneck, demand."""
    found = answer.ranges.all_traffic
    if answer.feasible:
        inside = f"P/D {ratio_text(answer)} lies inside {_bound(found.lower, '0')} .. {_bound(found.upper, 'no limit')}"
        lines = [f"FEASIBLE   {'no link limits P/D' if found.lower is found.upper is None else inside}"]
    else:
        lines = [f"NOT FEASIBLE   {answer.reasons[0]}", *map(str, answer.reasons[1:])]
        if only_the_range(answer):
            lines.append(f"Still      {STILL}")
    turns = answer.turns_per_s
    if not turns:
        return lines
    rate = f"{significant(turns)} turns/s ({significant(turns / mean_turns(answer.scenario.workload))} agents/s, "
    rate += f"{show(turns * answer.demand.prompt_tokens, '').strip()} prompt tok/s)"
    if answer.speedup_over_basic is not None and answer.scenario.settings.mode != "basic":
        rate += f" · {significant(answer.speedup_over_basic)}x basic at this P/D"
    lines.append(rate)
    lines.append(f"Bound by   {_bound_by(answer)}")
    check = answer.demand_check
    if check is not None:
        used = check.utilization
        share = f"{100 * used:.0f} % of" if used < 2 else f"{significant(used)} times"
        share += f" the rate, head-room {_times(check.headroom)}"
        lines.append(f"Demand     {significant(check.turns_per_s)} turns/s: {share}")
        if near := near_limit(used, LEAVE_ROOM if answer.classes else SIMULATE):
            lines.append(f"Near limit {near}")
    where = "At that   " if check is None or check.utilization > 1 else "At demand "
    times = f"unloaded TTFT of a mean turn {show(answer.ttft_unloaded_s, 's')} (a lower bound), TPOT "
    lines.append(f"{where} {times}{show(answer.tpot_s, 's')}")
    if answer.pairs is not None and not answer.scenario.variants:
        gap = answer.pairs.turns_per_s / answer.closed_form_turns_per_s - 1
        lines.append(f"Checked    the flow problem over all pairs of nodes gives the same rate to {abs(gap):.1e}")
    return lines


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


def show_answer(
    answer: Evaluation, console: Console, uncertainty: Uncertainty | None = None, *, verbose: bool = False
) -> None:
    """Print the human view: the answer, the ranges, the resources, and what was assumed that bears on this answer;
    ``verbose``: all that was assumed.
    """
    from rich.text import Text

    width = min(console.width, 100)

    def line(text: str = "", style: str = "", indent: int = 2) -> None:
        console.print(Text(" " * indent + text if text else "", style=style), overflow="fold")

    def wrapped(text: str, style: str = "", indent: int = 2, hanging: int = 2) -> None:
        for part in _wrapped(text, width - indent, hanging):
            line(part, style, indent)

    wrapped(headline(answer), "bold", indent=0, hanging=2)
    line()
    lines = verdict(answer)
    count = 1 if answer.feasible else len(answer.reasons)
    for text in lines[:count]:
        wrapped(text, "bold green" if answer.feasible else "bold red")
    for text in lines[count:]:
        wrapped(text, hanging=11)
    if uncertainty is not None:
        from dualplan.report.uncertainty import lines as uncertainty_lines

        for text in uncertainty_lines(uncertainty):
            wrapped(text, hanging=11)
    line()
    _show_ranges(answer, console, width)
    if answer.classes:
        line()
        _show_classes(answer, console)
    if answer.splits:
        line()
        _show_splits(answer, console)
    if answer.turns_per_s:
        line()
        _show_resources(answer, console, width)
    line()
    every, matter = assumptions(answer), deciding(answer)
    wrapped(_assumed(len(every), len(every) if verbose else len(matter)), "dim")
    for one in every if verbose else matter:
        wrapped(f"- {one}", "dim")


def _assumed(every: int, shown: int) -> str:
    if shown == every:
        return "Assumed (all figures and their sources: --json)"
    return f"Assumed ({shown} of {every}: what bears on this answer; all: --verbose or --json)"


def _show_ranges(answer: Evaluation, console: Console, width: int) -> None:
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", width=width - 2)
    rows = range_rows(answer)
    for header, fixed in (("P/D range", True), ("lower", True), ("", False), ("upper", True), ("", False)):
        table.add_column(header, no_wrap=fixed, ratio=None if fixed else 1)
    for row in rows:
        table.add_row(*row)
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    first = max(len(row[0]) for row in rows) + 2
    for name, text in zip(("  all traffic", ""), range_bar(answer, width - first - 10), strict=True):
        console.print(f"{name:<{first}}  {text}")


def class_rows(answer: Evaluation) -> list[list[str]]:
    """The classes of a mix: who, share, turns/s, that rate if alone, unloaded TTFT, TPOT."""
    return [
        [
            f"{one.model} on {one.workload}",
            f"{100 * one.share:.3g} %",
            significant(one.turns_per_s),
            significant(one.alone_turns_per_s),
            show(one.ttft_unloaded_s, "s"),
            show(one.tpot_s, "s"),
        ]
        for one in answer.classes
    ]


CLASS_HEADS = ("Class", "share", "turns/s", "if alone", "TTFT", "TPOT")


def _show_classes(answer: Evaluation, console: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(CLASS_HEADS[0], overflow="fold")
    for head in CLASS_HEADS[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    for row in class_rows(answer):
        table.add_row(*row)
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _show_splits(answer: Evaluation, console: Console) -> None:
    """The best splits of the nodes, one a line."""
    console.print("  Split      turns/s              bound by", style="bold")
    for split in answer.splits:
        verdict_word = "feasible" if split.feasible else "not"
        name = f"{split.prefill_nodes}P{split.decode_nodes}D"
        bound = TITLES[split.bottleneck] if split.bottleneck else "-"
        console.print(f"  {name:<10} {significant(split.turns_per_s):>7}  {verdict_word:<11} {bound}")


def _show_resources(answer: Evaluation, console: Console, width: int) -> None:
    from rich.padding import Padding
    from rich.table import Table

    loads = sorted(answer.loads, key=lambda load: -load.utilization)
    shown = [load for load in loads if load.utilization >= QUIET]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Resource", max_width=38)
    # a demand that is not carried has no use of its own: what it would take is said above
    check = answer.demand_check if answer.demand_check and answer.demand_check.utilization <= 1 else None
    for header in ("load", "capacity", "used", *(["at demand"] if check else [])):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for load in shown:
        bar = "#" * round((10 if check else 20) * min(load.utilization, 1))
        amounts = [_amount(value, load.unit) for value in (load.load, load.capacity)]
        binds = load.name == answer.bottleneck.resource and load.utilization > 1 - 1e-9
        used = f"{100 * load.utilization:.0f} %"
        at_demand = [f"{100 * load.utilization * check.utilization:.0f} %"] if check else []
        table.add_row(_name(load), *amounts, used, *at_demand, bar, style="bold yellow" if binds else None)
    console.print(Padding(table, (0, 0, 0, 2), expand=False), width=width)
    if len(shown) < len(loads):
        names = ", ".join(_name(load) for load in loads[len(shown) :])
        for part in _wrapped(f"under {QUIET:.0%}: {names}".replace("%", " %"), width - 2):
            console.print("  " + part, style="dim")


def _wrapped(text: str, width: int, hanging: int = 2) -> list[str]:
    from textwrap import wrap

    return wrap(text, width, subsequent_indent=" " * hanging, break_on_hyphens=False)


def _name(load: Load) -> str:
    return TITLES[load.name] + (f" ({load.detail})" if load.detail else "")


def _amount(value: float, unit: str) -> str:
    return f"{significant(value)}/s" if unit == "turns/s" else show(value, unit)


def markdown(answer: Evaluation, uncertainty: Uncertainty | None = None) -> str:
    """The answer as a short Markdown section."""
    lines = [f"## {headline(answer)}", ""]
    lines += [f"- {text}" for text in verdict(answer)]
    if uncertainty is not None:
        from dualplan.report import uncertainty as about

        lines += [f"- {' '.join(text.split())}" for text in about.lines(uncertainty)]
        lines += about.markdown(uncertainty)
    lines += ["", "| P/D range | lower | set by | upper | set by |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in range_rows(answer)]
    if answer.classes:
        lines += ["", "| " + " | ".join(CLASS_HEADS) + " |", "|---|--:|--:|--:|--:|--:|"]
        lines += ["| " + " | ".join(row) + " |" for row in class_rows(answer)]
    lines += ["", "| resource | load | capacity | used |", "|---|--:|--:|--:|"]
    lines += [
        f"| {_name(load)} | {_amount(load.load, load.unit)} | {_amount(load.capacity, load.unit)} "
        f"| {100 * load.utilization:.1f} % |"
        for load in answer.loads
    ]
    lines += ["", "Assumed:", ""]
    lines += [f"- {text}" for text in assumptions(answer)]
    return "\n".join(lines) + "\n"
