"""Charts for a terminal, in plain ASCII: a line over one axis with named regions, a table over two.

Words and shapes carry everything, so colour, width and encoding of the terminal do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap

import msgspec

from dualplan.units import significant

HEIGHT = 12
LEAST_WIDTH = 24
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a chart: its label on the axis, its value (None: there is none), the region it lies in."""

    label: str
    value: float | None
    region: str = ""
    feasible: bool = True
    chosen: bool = False


def line_chart(marks: Sequence[Mark], title: str, width: int) -> list[str]:
    """Values over their labels, evenly spaced, with the runs of regions named below the axis.

    ``*`` is a feasible point, ``o`` one that is not, ``#`` the chosen one. More points than columns are thinned out,
    the chosen one and the highest stay.
    """
    top = max((mark.value for mark in marks if mark.value is not None), default=0.0)
    scale = [_figure(top * share) for share in (1, 0.5, 0)]
    left = max(map(len, scale)) + 2
    room = max(width - left, LEAST_WIDTH)
    marks = _thinned(marks, room)
    step = (room - 1) / max(len(marks) - 1, 1)
    columns = [round(index * step) if len(marks) > 1 else room // 2 for index in range(len(marks))]
    canvas = [[" "] * room for _ in range(HEIGHT + 1)]
    _draw(canvas, marks, columns, top)
    lines = [title]
    for row, cells in enumerate(canvas):
        label = {0: scale[0], HEIGHT // 2: scale[1], HEIGHT: scale[2]}.get(row, "")
        lines.append(f"{label:>{left - 1}}|{''.join(cells)}".rstrip())
    lines.append(" " * (left - 1) + "+" + "-" * room)
    lines.append(" " * left + _ticks([mark.label for mark in marks], columns, room))
    regions, legend = _regions(marks, columns, room)
    shapes = [("*", "feasible", any(m.feasible and not m.chosen for m in marks))]
    shapes += [("o", "not feasible", any(not m.feasible and not m.chosen for m in marks))]
    shapes += [("#", "this one", any(m.chosen for m in marks))]
    if regions.strip():
        lines.append(" " * left + regions)
    words = [f"{letter} {name}" for letter, name in legend] + [
        f"{shape} {word}" for shape, word, used in shapes if used
    ]
    return [*lines, *_wrapped(words, width, left)]


def _figure(value: float) -> str:
    """Three digits, however small or large the value."""
    return significant(value) if not value or 1e-3 <= abs(value) < 1e7 else f"{value:.2e}"


def _thinned(marks: Sequence[Mark], room: int) -> list[Mark]:
    """At most one mark a column."""
    if len(marks) <= room:
        return list(marks)
    kept = {round(index * (len(marks) - 1) / (room - 3)) for index in range(room - 2)}
    kept |= {index for index, mark in enumerate(marks) if mark.chosen}
    kept.add(max(range(len(marks)), key=lambda index: marks[index].value or 0.0))
    return [marks[index] for index in sorted(kept)]


def _draw(canvas: list[list[str]], marks: Sequence[Mark], columns: Sequence[int], top: float) -> None:
    """Points, and dots on the line between neighbours."""

    def row(value: float) -> int:
        return HEIGHT - round(HEIGHT * value / top) if top > 0 else HEIGHT

    for (mark, x), (following, to) in zip(
        zip(marks, columns, strict=True), list(zip(marks, columns, strict=True))[1:], strict=False
    ):
        if mark.value is None or following.value is None:
            continue
        for column in range(x + 1, to):
            canvas[row(mark.value + (following.value - mark.value) * (column - x) / (to - x))][column] = "."
    for mark, x in zip(marks, columns, strict=True):
        if mark.value is not None:
            canvas[row(mark.value)][x] = "#" if mark.chosen else "*" if mark.feasible else "o"


def _ticks(labels: Sequence[str], columns: Sequence[int], room: int) -> str:
    """Labels under their columns, as many as there is room for; the first and the last, then those between."""
    cells = [" "] * room
    for index in (0, len(labels) - 1, *range(len(labels))):
        text = labels[index]
        start = min(max(columns[index] - len(text) // 2, 0), room - len(text))
        if start >= 0 and all(cell == " " for cell in cells[max(start - 1, 0) : start + len(text) + 1]):
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()


def _regions(marks: Sequence[Mark], columns: Sequence[int], room: int) -> tuple[str, list[tuple[str, str]]]:
    """A line that names the runs of regions below the axis; letters, with what they mean, for runs too short."""
    cells = [" "] * room
    letters: dict[str, str] = {}
    at = 0
    for name, run in groupby(marks, key=lambda mark: mark.region):
        size = len(list(run))
        start = 0 if at == 0 else (columns[at - 1] + columns[at]) // 2 + 1
        end = room if at + size == len(marks) else (columns[at + size - 1] + columns[at + size]) // 2 + 1
        at += size
        if name:
            fits = len(name) + 2 <= end - start
            if not fits:
                letters.setdefault(name, LETTERS[len(letters) % len(LETTERS)])
            text = "|" + (name if fits else letters[name])
            cells[start : start + min(len(text), end - start)] = text[: end - start]
    return "".join(cells).rstrip(), [(letter, name) for name, letter in letters.items()]


def grid_chart(
    rows: Sequence[str], columns: Sequence[str], marks: Sequence[Sequence[Mark]], title: str, width: int
) -> list[str]:
    """Values in a table, a row for each of ``rows``; a letter says the region, parentheses that it is not feasible.

    What does not fit is thinned out, and said.
    """
    names: dict[str, str] = {}
    for mark in (mark for row in marks for mark in row):
        if mark.region:
            names.setdefault(mark.region, LETTERS[len(names) % len(LETTERS)])

    def text(mark: Mark) -> str:
        if mark.value is None:
            return "-"
        value = _figure(mark.value) + names.get(mark.region, "")
        return value if mark.feasible else f"({value})"

    cells = [[text(mark) for mark in row] for row in marks]
    left = max(len(row) for row in (*rows, "")) + 2
    size = max(len(one) for one in (*columns, *(cell for row in cells for cell in row))) + 2
    across, down = _kept(len(columns), max((width - left) // size, 1)), _kept(len(rows), 2 * HEIGHT)
    lines = [title, " " * left + "".join(columns[j].rjust(size) for j in across)]
    lines += [rows[i].ljust(left) + "".join(cells[i][j].rjust(size) for j in across) for i in down]
    words = [f"{letter} {name}" for name, letter in names.items()]
    if any(not mark.feasible for row in marks for mark in row):
        words.append("( ) not feasible")
    if len(across) < len(columns) or len(down) < len(rows):
        words.append(f"{len(down)} of {len(rows)} rows and {len(across)} of {len(columns)} columns are shown")
    return [*lines, *_wrapped(words, width, 0)]


def _kept(count: int, room: int) -> list[int]:
    """Indices that are shown: all, or evenly spaced ones with both ends."""
    if count <= room:
        return list(range(count))
    return sorted({round(index * (count - 1) / max(room - 1, 1)) for index in range(room)})


def _wrapped(words: Sequence[str], width: int, indent: int) -> list[str]:
    """Phrases in lines, none of them broken unless it is longer than a line."""
    lines: list[str] = []
    for word in words:
        if lines and indent + len(lines[-1]) + 2 + len(word) <= width:
            lines[-1] += "  " + word
        else:
            lines += wrap(word, max(width - indent, 1))
    return [" " * indent + line for line in lines]
