"""The answers of ``sweep`` for people and for machines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.errors import InputError
from dualplan.plan.sweep.points import Points
from dualplan.plan.sweep.table import Table
from dualplan.report.blocks import GAP, Block, Drawing, Paragraph, table
from dualplan.report.blocks import Table as BlockTable
from dualplan.report.output import Output, csv_text
from dualplan.steady.resources import TITLES
from dualplan.units import counted, significant

if TYPE_CHECKING:
    from dualplan.report.chart import Mark

NUMBER = re.compile(r"[+-]?\.?\d")
"""How the label of a point on a numeric axis begins."""
SCHEMA = "dualplan/sweep/1"
SHOWN_ROWS = 40
"""Rows of the human view, unless a number is asked for."""

# columns of the human view: name, heading
_STEADY = (
    ("throughput.turns_per_s", "turns/s"),
    ("throughput.agents_per_s", "agents/s"),
    ("feasible", "feasible"),
    ("bottleneck.resource", "bound by"),
)
_SIMULATED = (
    ("capacity_agents_per_s", "agents/s"),
    ("jct_s", "JCT s"),
    ("turns_per_s", "turns/s"),
    ("ttft_s.mean", "TTFT s"),
    ("tpot_s.mean", "TPOT s"),
    ("feasible", "feasible"),
)
SHOWN_REASONS = 4
"""Reasons why points are not feasible that people are told."""

LONGEST_TEXT = 60
"""Characters of a text of the human view."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep: its points, the table of answers, and the positions that are shown, in that order.

    ``chosen``: how they were chosen, in words, empty for all points. ``shown_rows``: how many rows people asked for.
    ``nodes``: of the scenario, where it has node counts of its own.
    """

    name: str
    points: Points
    table: Table
    order: NDArray[np.int64]
    chosen: str = ""
    shown_rows: int | None = None
    nodes: int | None = None
    assumptions: tuple[str, ...] = ()
    sources: tuple[dict[str, str], ...] = ()
    inputs_sha256: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Points, how many were evaluated, failed, and are feasible."""
        table = self.table
        return {
            "points": self.points.count,
            "evaluated": int(table.answered.sum()),
            "failed": int(table.failed.sum()),
            "feasible": int(table.feasible.sum()),
        }


def output(answer: Answer, *, plot: bool = False) -> Output:
    """The result in all formats; a row a point, columns named as the keys of ``feasible --json`` or of ``simulate``.

    ``plot``: people get a chart in place of the rows.
    """
    data = {
        "schema": SCHEMA,
        "name": answer.name,
        "axes": [{"key": axis.key, "values": list(axis.values)} for axis in answer.points.axes],
        **answer.counts,
        "chosen": answer.chosen or None,
        "rows": _Lazy(answer),
        "assumptions": list(answer.assumptions),
        "sources": list(answer.sources),
        "inputs_sha256": answer.inputs_sha256,
    }
    return Output(data=data, rows=_Lazy(answer), view=lambda: view(answer, plot), csv=lambda: csv(answer))


class _Lazy(list[dict[str, Any]]):
    """Rows that are made when they are asked for: a CSV needs none of them."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return rows(self._answer.table, self._answer.order)

    def __len__(self) -> int:
        return len(self._answer.order)


# ---------------------------------------------------------------- machines


def rows(table: Table, order: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Points as nested records: varied keys as they are, results as in ``feasible --json``."""
    order = np.asarray(order, dtype=np.int64)
    lists = {name: plain_list(column[order]) for name, column in column_order(table)}
    for index in range(len(order)):
        row: dict[str, Any] = {}
        for name, values in lists.items():
            if name in table.keys:
                row[name] = values[index]
                continue
            at, (*sections, last) = row, name.split(".")
            for section in sections:
                at = at.setdefault(section, {})
            at[last] = values[index]
        yield row


def column_order(table: Table) -> list[tuple[str, NDArray[Any]]]:
    """Columns in the order in which they are written; ``error`` last, which is there even if nothing failed."""
    columns = {name: column for name, column in table.columns.items() if name != "error"}
    none = np.full(len(table.done), None, dtype=object)
    return [*columns.items(), ("error", table.columns.get("error", none))]


def plain_list(column: NDArray[Any]) -> list[Any]:
    """A column as plain values, None where there is no number."""
    values: list[Any] = column.tolist()
    if column.dtype.kind == "f":
        return [None if value != value or abs(value) == np.inf else value for value in values]
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def csv(answer: Answer) -> str:
    """One header line, one line a point. Made column by column: a sweep may have many points."""
    columns = column_order(answer.table)
    cells = [_cells(name, column[answer.order]) for name, column in columns]
    header = csv_text([dict.fromkeys(name for name, _ in columns)]).partition("\n")[0]
    return header + "\n" + "".join(",".join(row) + "\n" for row in zip(*cells, strict=True))


def _cells(name: str, column: NDArray[Any]) -> list[str]:
    """Cells as text; what is there several times is made into text once."""
    if column.dtype.kind in "if":
        values, where = np.unique(column, return_inverse=True)
        texts = ["" if value is None else repr(value) for value in plain_list(values)]
        cells: list[str] = np.array(texts, dtype=object)[where].tolist()
        return cells
    known: dict[Any, str] = {(type(None), None): ""}
    cells = []
    for value in plain_list(column):
        # 1 and True are one key of a dictionary
        key = (type(value), value)
        if key not in known:
            known[key] = csv_text([{name: value}]).partition("\n")[2][:-1]
        cells.append(known[key])
    return cells


# ---------------------------------------------------------------- people


def view(answer: Answer, plot: bool = False) -> Iterator[Block]:
    """The best point first, then a row a point, or a chart."""
    yield from (Paragraph(headline(answer), "title", hanging=0), GAP)
    for line in verdict(answer):
        yield Paragraph(line)
    if plot:
        yield from (GAP, Drawing(lambda width: chart(answer, width)))
        return
    order = answer.order[: answer.shown_rows or SHOWN_ROWS]
    if len(order):
        yield from (GAP, _points(answer, order))
    if len(order) < len(answer.order):
        yield Paragraph(f"... {len(answer.order) - len(order):,} more: --limit N shows N of them, -f csv all")


def _points(answer: Answer, order: NDArray[np.int64]) -> BlockTable:
    """A row a point; a number in brackets says why one is not feasible."""
    columns = answer.table.columns
    names = shown_columns(answer.table)
    cells = [[cell(value) for value in plain_list(columns[name][order])] for name, _ in names]
    marks, at = _marked(_reasons(answer.table)), [name for name, _ in names].index("feasible")
    for number, position in enumerate(order.tolist()):
        if marks and cells[at][number] == "no" and (mark := marks.get(_reason(answer.table, position))):
            cells[at][number] = f"no ({mark})"
    align = "".join("r" if columns[name].dtype.kind in "if" else "l" for name, _ in names)
    heads = [heading for _, heading in names]
    return table("", heads, list(zip(*cells, strict=True)), align, flow="f" * len(names))


def chart(answer: Answer, width: int) -> list[str]:
    """The measure over one varied axis as a line or bars, over two as a table. Raises InputError for more."""
    from dualplan.report.chart import grid_chart, line_chart
    from dualplan.trace.chart import bar_chart

    axes, table = answer.points.axes, answer.table
    varied = [axis for axis in axes if len(axis.values) > 1] or [axes[0]]
    zipped = len(axes) > 1 and answer.points.count != prod(len(axis.values) for axis in axes)
    if len(varied) > 2 and not zipped:
        raise InputError("--plot", f"draws one or two keys, {len(varied)} are varied", "fewer --vary, or -f csv")
    name = next((name for name in (*_MEASURES, "jct_s") if name in table.columns), None)
    if name is None:
        return ["no point has an answer"]
    marks = _marks(table, name)
    title = {**_MEASURES, "jct_s": "JCT s"}[name]
    if len(varied) == 2 and not zipped:
        rows, columns = varied
        square = [marks[at : at + len(columns.values)] for at in range(0, len(marks), len(columns.values))]
        heading = f"{title}, {_short(rows.key)} down, {_short(columns.key)} across"
        return grid_chart(rows.values, columns.values, square, heading, width)
    labels = [_label(answer, varied[0].key, position) for position in range(len(marks))]
    marks = [msgspec.structs.replace(mark, label=label) for mark, label in zip(marks, labels, strict=True)]
    if all(NUMBER.match(label) for label in labels):
        return line_chart(marks, f"{title} over {_short(varied[0].key)}", width)
    values = [mark.value or 0.0 for mark in marks]
    texts = [f"{significant(value)}  {mark.region}".rstrip() for value, mark in zip(values, marks, strict=True)]
    return [
        f"{title} by {_short(varied[0].key)}",
        *bar_chart(labels, values, texts, width, ascii_only=True).splitlines(),
    ]


def _marks(table: Table, name: str) -> list[Mark]:
    from dualplan.report.chart import Mark

    count = len(table.done)
    none = [None] * count
    regions = plain_list(table.columns["bottleneck.resource"]) if "bottleneck.resource" in table.columns else none
    feasible = plain_list(table.columns["feasible"])
    values = plain_list(table.columns[name])
    return [
        Mark(label="", value=value, region=TITLES.get(region or "", ""), feasible=fine is not False)
        for value, region, fine in zip(values, regions, feasible, strict=True)
    ]


def _label(answer: Answer, key: str, position: int) -> str:
    """What a point is called on the axis of a key."""
    if key == "pd":
        ratio = Fraction(int(answer.points.prefill_nodes[position]), int(answer.points.decode_nodes[position]))
        return f"{ratio.numerator}:{ratio.denominator}"
    axis = next(index for index, axis in enumerate(answer.points.axes) if axis.key == key)
    return answer.points.axes[axis].values[int(answer.points.indices[axis][position])]


def _short(key: str) -> str:
    return {"prefill_nodes": "prefill nodes", "decode_nodes": "decode nodes", "pd": "P/D"}.get(key, key)


def headline(answer: Answer) -> str:
    """What was varied over what."""
    names = {"prefill_nodes": "prefill", "decode_nodes": "decode", "pd": "P/D"}
    axes = ", ".join(f"{names.get(axis.key, axis.key)} ({len(axis.values):,})" for axis in answer.points.axes)
    name = answer.name or ""
    short = name if len(name) <= LONGEST_TEXT else name[: LONGEST_TEXT - 4] + " ..."
    return " · ".join(part for part in (short, f"{counted(answer.points.count, 'point')} over {axes}") if part)


def verdict(answer: Answer) -> list[str]:
    """How many points are feasible, why the others are not, and the best of them by what is compared."""
    from dualplan.plan.sweep.table import goal, ranked

    counts, table = answer.counts, answer.table
    feasible, evaluated = counts["feasible"], counts["evaluated"]
    others = "; the other: " if evaluated - feasible == 1 else "; the others: "
    alike = [(others if feasible else ": ") + text for text in _reasons(table)]
    lines = ["".join([_how_many(feasible, evaluated), *(alike if len(alike) == 1 else [])]), *_why_not(table)]
    if feasible < evaluated and _nodes_vary(answer):
        number = answer.nodes or int(np.max(answer.points.prefill_nodes + answer.points.decode_nodes))
        lines.append(
            "The two numbers of each pd are taken as nodes, so sums differ: "
            f"--nodes {number} splits {number} nodes by each ratio"
        )
    if counts["failed"]:
        lines.append(f"{counts['failed']:,} failed, first: {table.errors()[0].splitlines()[0]}")
    left = counts["points"] - evaluated - counts["failed"]
    if left:
        lines.append(f"{counted(left, 'point')} {'was' if left == 1 else 'were'} not reached")
    if answer.chosen:
        lines.append(answer.chosen)
    name = next((name for name in _MEASURES if name in table.columns), None)
    if name is not None and not answer.chosen and feasible:
        best = ranked(table, goal(name, table, ""))[:1]
        value = cell(plain_list(table.columns[name][best])[0])
        where = ", ".join(f"{title} {cell(plain_list(table.columns[key][best])[0])}" for key, title in _where(table))
        lines.append(f"Best {_MEASURES[name]}: {value} at {where}")
    return lines


def _how_many(feasible: int, evaluated: int) -> str:
    if not evaluated:
        return "No point has an answer"
    if feasible:
        return f"{feasible:,} of {counted(evaluated, 'point')} {'is' if feasible == 1 else 'are'} feasible"
    return f"None of {evaluated:,} points is feasible" if evaluated > 1 else "The point is not feasible"


def _why_not(table: Table) -> list[str]:
    """Several reasons why points are not feasible, a line each, the most frequent first."""
    counts = _reasons(table)
    marks = _marked(counts)
    lines = [f"({mark}) {counted(counts[text], 'point')}: {text}" for text, mark in marks.items()]
    rest = sum(count for text, count in counts.items() if text not in marks) if marks else 0
    return [*lines, *([f"{counted(rest, 'point')} for other reasons: column reasons of -f csv"] if rest else [])]


def _reasons(table: Table) -> Counter[str]:
    """How many points are not feasible for each reason, the most frequent one first."""
    found = Counter(_reason(table, position) for position in np.flatnonzero(table.answered & ~table.feasible).tolist())
    return Counter(dict(found.most_common()))


def _reason(table: Table, position: int) -> str:
    reasons = table.columns.get("reasons")
    return (None if reasons is None else reasons[position]) or "the SLO is missed"


def _marked(counts: Counter[str]) -> dict[str, str]:
    """A number for each of the reasons that people are told, where there are several."""
    return (
        {}
        if len(counts) < 2
        else dict(zip(list(counts)[:SHOWN_REASONS], map(str, range(1, SHOWN_REASONS + 1)), strict=False))
    )


def _nodes_vary(answer: Answer) -> bool:
    """Whether P/D ratios are varied without a number of nodes that they split."""
    points = answer.points
    varied = any(axis.key == "pd" and len(axis.values) > 1 for axis in points.axes)
    return varied and len(np.unique(points.prefill_nodes + points.decode_nodes)) > 1


_MEASURES = {
    "throughput.turns_per_s": "turns/s",
    "capacity_agents_per_s": "agents/s",
    "turns_per_s": "turns/s",
}


def _where(table: Table) -> list[tuple[str, str]]:
    """The same for a sentence."""
    return [
        (name, {"prefill": "prefill nodes", "decode": "decode nodes"}.get(title, title))
        for name, title in _key_columns(table)
    ]


def _key_columns(table: Table) -> list[tuple[str, str]]:
    """The columns that identify a point, without what stays the same."""
    headings = {"prefill_nodes": "prefill", "decode_nodes": "decode"}
    names = [name for name in table.keys if name != "pd_ratio"]
    varied = [name for name in names if len(set(table.columns[name].tolist())) > 1]
    return [(name, headings.get(name, name)) for name in varied or names[:2]]


def shown_columns(table: Table) -> list[tuple[str, str]]:
    """Columns of the human view with their headings."""
    wanted = _STEADY if "throughput.turns_per_s" in table.columns else _SIMULATED
    have = [(name, heading) for name, heading in wanted if name in table.columns]
    have = [pair for pair in have if any(value is not None for value in plain_list(table.columns[pair[0]]))]
    return [*_key_columns(table), *have, *([("error", "error")] if table.failed.any() else [])]


def cell(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return significant(value)
    if isinstance(value, str):
        text = TITLES.get(value, value).partition("\n")[0]
        return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 4] + " ..."
    return f"{value:,}"
