"""Published figures against predictions, for people and for machines."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dualplan import __version__
from dualplan.plan.published.validate import Comparison, Goal, Summary, Validation
from dualplan.report.columns import print_table
from dualplan.report.output import Output
from dualplan.units import significant

if TYPE_CHECKING:
    from rich.console import Console

LISTED = 40
"""Figures that are listed one by one without being asked for."""

ASSUMPTIONS = [
    "service times of the simulation: the shipped parameter sets, fitted on some of these runs (fitted_on in "
    "dualplan/data/calibration.yaml); the other runs are predictions",
    "trajectories: the recipe of dualplan/data/trajectories.yaml, seed 0; online runs of 3,000 s",
    "node: dualpath-hopper, the paper's",
]


def output(answer: Validation, *, listed: bool = False, plot: bool = False) -> Output:
    """A validation as an Output; ``listed``: show every figure to people; ``plot``: and a chart of all of them."""
    rows = [point_row(one) for one in answer.comparisons]
    data: dict[str, Any] = {
        "schema": "dualplan/validate/1",
        "version": __version__,
        "full": answer.full,
        "left_out": answer.left_out,
        "interrupted": answer.interrupted,
        "within_tolerance": not answer.outside,
        "points": rows,
        "summary": [summary_row(found) for found in answer.summaries],
        "assumptions": ASSUMPTIONS,
        "sources": list(dict.fromkeys(one.point.source for one in answer.comparisons)),
        "inputs_sha256": _hash(answer),
    }

    def text(console: Console) -> None:
        _print(answer, console, listed or len(rows) <= LISTED)
        if plot:
            console.print()
            _print_chart(answer, console)

    return Output(data=data, rows=rows, text=text, markdown=lambda: _markdown(answer))


def point_row(one: Comparison) -> dict[str, Any]:
    """A comparison as a record."""
    point = one.point
    return {
        "id": point.id,
        "kind": point.kind,
        "published": point.published,
        "predicted": one.predicted,
        "relative_error": one.relative_error,
        "unit": point.unit,
        "tolerance": one.tolerance,
        "tolerance_is": one.tolerance_is,
        "within": one.within,
        "skipped": one.skipped or None,
        "source": point.source,
    }


def summary_row(found: Summary) -> dict[str, Any]:
    """The summary of a kind as a record."""
    return {
        "kind": found.kind,
        "title": found.title,
        "count": found.count,
        "skipped": found.skipped,
        "error_is": found.error_is,
        "median": found.median,
        "p90": found.p90,
        "worst": found.worst,
        "worst_id": found.worst_id,
        "tolerance": found.tolerance,
        "judged": found.judged,
        "within": found.within,
        "within_share": found.within / found.judged if found.judged else None,
        "goals": [
            {"statistic": goal.statistic, "goal": goal.goal, "found": goal.found, "met": goal.met}
            for goal in found.goals
        ],
        "why": found.why,
    }


def summary_table(summaries: Sequence[Summary]) -> str:
    """The summary as a Markdown table; the README holds it."""
    lines = [
        "| figures | compared | median | p90 | worst | tolerance | within | goals |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for found in summaries:
        cells = [
            found.title,
            _count(found),
            *(_error(value, found) for value in (found.median, found.p90, found.worst)),
            _tolerance(found.tolerance, found.error_is),
            _within(found),
            "; ".join(_goal(goal) for goal in found.goals),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _markdown(answer: Validation) -> str:
    from dualplan.report.output import flat, markdown_table

    points = markdown_table([flat(point_row(one)) for one in answer.comparisons])
    return f"{_verdict(answer)}\n\n{summary_table(answer.summaries)}\n{points}"


def _hash(answer: Validation) -> str:
    import msgspec

    points = [one.point for one in answer.comparisons]
    return hashlib.sha256(msgspec.json.encode(points, order="deterministic")).hexdigest()


# ---------------------------------------------------------------- words


def _count(found: Summary) -> str:
    return str(found.count) if found.count or not found.skipped else "skipped"


def _error(value: float | None, found: Summary) -> str:
    """An error in per cent, or in the unit of the figure where tolerances are absolute."""
    if value is None:
        return "-"
    if found.error_is == "absolute":
        return f"{value:.3f}"
    return f"{100 * value:.1f} %"


def _tolerance(value: float | None, error_is: str) -> str:
    """A stated tolerance; below a millionth it only stands for rounding."""
    if value is None:
        return "-"
    if value < 1e-6:
        return "exact"
    return f"{value:g}" if error_is == "absolute" else f"{100 * value:g} %"


def _within(found: Summary) -> str:
    return f"{found.within} of {found.judged}" if found.judged else "not judged" if found.count else "-"


def _goal(goal: Goal) -> str:
    verdict = "met" if goal.met else "MISSED"
    return f"{goal.statistic} {100 * goal.goal:g} % {verdict}"


def _verdict(answer: Validation) -> str:
    judged = sum(found.judged for found in answer.summaries)
    outside = len(answer.outside)
    compared = sum(found.count for found in answer.summaries)
    if not judged:
        return f"{compared} published figures compared, none of them with a stated tolerance."
    words = "ALL WITHIN" if not outside else f"{outside} OUTSIDE"
    return f"{words}  {judged - outside} of {judged} published figures lie within their stated tolerance."


def _print(answer: Validation, console: Console, listed: bool) -> None:
    verdict = _wrapped(_verdict(answer), console.width)
    console.print(verdict, style="bold red" if answer.outside else "bold green", soft_wrap=True)
    if answer.interrupted:
        console.print("Interrupted: figures that were not computed yet are missing.", style="yellow")
    console.print()
    _print_summary(answer.summaries, console)
    goals = [(found, goal) for found in answer.summaries for goal in found.goals]
    if goals:
        console.print()
        console.print("Goals of accuracy, over all figures of a kind", style="bold")
        for found, goal in goals:
            words = "met" if goal.met else "MISSED"
            about = f"{found.title}: {goal.statistic} {100 * goal.found:.1f} %, goal {100 * goal.goal:g} %"
            line = _wrapped(f"{words:6}  {about}", console.width, indent="  ", hanging=8)
            console.print(line, style=None if goal.met else "yellow", soft_wrap=True)
    if answer.outside and not listed:
        console.print()
        console.print("Outside their tolerance", style="bold")
        _print_points(answer.outside, console)
    if listed:
        console.print()
        console.print("All figures", style="bold")
        _print_points(answer.comparisons, console)
    console.print()
    for reason, count in _reasons(answer):
        console.print(_wrapped(f"{count} skipped: {reason}.", console.width), style="dim")
    if answer.left_out:
        console.print(f"{answer.left_out} figures take longer runs: --full.", style="dim")
    hint = "" if listed else "Every figure: --list. "
    console.print(f"{hint}With sources: --json, -f csv.", style="dim")


def _reasons(answer: Validation) -> list[tuple[str, int]]:
    """Why figures were skipped, and how many for each reason; figures that each lack a file count together."""
    found: dict[str, int] = {}
    for one in answer.comparisons:
        if one.skipped:
            reason = one.skipped
            if reason.startswith("needs the public trace"):
                reason = "need public traces (their folder: --samples DIR)"
            found[reason] = found.get(reason, 0) + 1
    return list(found.items())


def _print_summary(summaries: Sequence[Summary], console: Console) -> None:
    cells = [
        (
            found.title,
            str(found.count),
            *(_error(value, found) for value in (found.median, found.p90, found.worst)),
            _within(found),
        )
        for found in summaries
    ]
    styles = ["red" if found.judged and found.within < found.judged else None for found in summaries]
    print_table(console, ("error of", "n", "median", "p90", "worst", "within"), cells, "lrrrrr", wraps=0, styles=styles)


def _print_points(found: Sequence[Comparison], console: Console) -> None:
    cells = []
    for one in found:
        error = one.error or 0.0
        shown = f"{error:+.3f}" if one.tolerance_is == "absolute" else f"{100 * error:+.1f} %"
        predicted = "skipped" if one.predicted is None else _number(one.predicted)
        allowed = _tolerance(one.tolerance, one.tolerance_is)
        rest = (predicted, "", "") if one.predicted is None else (predicted, shown, allowed)
        cells.append((one.point.id, _number(one.point.published), *rest))
    heads = ("", "published", "predicted", "error", "allowed")
    styles = ["red" if one.within is False else None for one in found]
    print_table(console, heads, cells, "lrrrr", indent="  ", wraps=0, styles=styles)


CHART_FACTOR = 1.5
"""Predictions beyond this factor of the published figure are drawn at the edge."""


def _print_chart(answer: Validation, console: Console) -> None:
    """A line for each kind: where its predictions lie relative to the published figures, on a logarithmic axis."""
    room = 36 if console.width >= 70 else 20
    width = (max(console.width, 40) - room - 2) // 2 * 2 + 1
    middle = width // 2
    console.print(f"{'predicted / published':{room}}" + _axis(width), style="bold")
    for found in answer.summaries:
        ratios = [
            one.predicted / one.point.published
            for one in answer.comparisons
            if one.point.kind == found.kind and one.predicted is not None
        ]
        counts = [0] * width
        for ratio in ratios:
            place = middle * (1 + math.log(ratio) / math.log(CHART_FACTOR)) if ratio > 0 else 0.0
            counts[min(max(round(place), 0), width - 1)] += 1
        cells = [_mark(count) or ("|" if place == middle else " ") for place, count in enumerate(counts)]
        name = found.title if len(found.title) < room else found.title[: room - 2] + "…"
        if ratios:
            console.print(f"{name:{room}}{''.join(cells).rstrip()}", no_wrap=True, crop=True)
    about = f". one figure, o two to four, O more; at the edge: further off than {CHART_FACTOR:g}x"
    console.print(_wrapped(about, console.width), style="dim")


def _axis(width: int) -> str:
    cells = [" "] * (width + 4)
    for value in (1 / CHART_FACTOR, 0.8, 0.9, 1.0, 1.1, 1.25, CHART_FACTOR):
        place = round(width // 2 * (1 + math.log(value) / math.log(CHART_FACTOR)))
        text = f"{value:.2g}" if value != 1.25 else "1.25"
        start = max(min(place - len(text) // 2, width - len(text)), 0)
        if all(cell == " " for cell in cells[max(start - 1, 0) : start + len(text) + 1]):
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()


def _mark(count: int) -> str:
    return "" if not count else "." if count == 1 else "o" if count < 5 else "O"


def _number(value: float) -> str:
    """A figure in at most ten characters."""
    if abs(value) >= 1e6:
        return f"{value:.3e}".replace("e+", "e")
    return significant(value, 4) if abs(value) >= 1e-3 else f"{value:.3g}"


def _wrapped(line: str, width: int, *, indent: str = "", hanging: int = 2) -> str:
    import textwrap

    following = indent + " " * hanging
    return textwrap.fill(line, min(width, 100), initial_indent=indent, subsequent_indent=following)
