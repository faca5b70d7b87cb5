"""Tables of aligned text that fit the terminal: what is too wide wraps or continues below, and nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

GAP = "  "
LEAST_WRAPPED = 14
"""A column that wraps is made no narrower than this [characters]."""


def print_table(
    console: Console,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    align: str,
    *,
    indent: str = "",
    wraps: int | None = None,
    head: str | None = "bold",
    styles: Sequence[str | None] = (),
) -> None:
    """Print a table as ``aligned`` makes it. ``head``: style of the header, ``styles``: of the rows."""
    for row, line in aligned(header, rows, align, max(console.width, 40), indent=indent, wraps=wraps):
        style = head if row is None else styles[row] if styles else None
        console.print(line, style=style, soft_wrap=True)


def aligned(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    align: str,
    width: int,
    *,
    indent: str = "",
    wraps: int | None = None,
) -> Iterator[tuple[int | None, str]]:
    """The lines of a table of at most ``width`` characters, each with the number of its row; None for a header.

    ``align`` has a letter a column, ``l`` or ``r``; cells may have several lines. Where the table is too wide, column
    ``wraps`` takes several lines with a hanging indent; columns that still do not fit follow in a table below, which
    repeats the first one. A column that is too wide even beside the first one alone wraps as well. A header without
    any text is left out.
    """
    room = [
        max(len(part) for line in (header, *rows) for part in line[column].split("\n")) for column in range(len(header))
    ]
    if wraps is not None:
        rest = len(indent) + sum(room) - room[wraps] + len(GAP) * (len(room) - 1)
        room[wraps] = min(room[wraps], max(width - rest, LEAST_WRAPPED))
    for column in range(1, len(room)):
        room[column] = min(room[column], max(width - len(indent) - room[0] - len(GAP), LEAST_WRAPPED))
    for number, columns in enumerate(_blocks(room, width - len(indent))):
        if number:
            yield None, ""
        for row, line in ((None, header), *enumerate(rows)) if any(header) else enumerate(rows):
            for text in _lines([line[column] for column in columns], [(room[c], align[c]) for c in columns]):
                yield row, indent + text


def _blocks(room: Sequence[int], width: int) -> Iterator[list[int]]:
    """The columns in groups that fit, the first one in each of them."""
    block = [0]
    for column in range(1, len(room)):
        if len(block) > 1 and sum(len(GAP) + room[c] for c in [*block, column]) - len(GAP) > width:
            yield block
            block = [0]
        block.append(column)
    yield block


def _lines(cells: Sequence[str], columns: Sequence[tuple[int, str]]) -> Iterator[str]:
    """The lines of one row; cells that are too long take several."""
    parts = [
        [
            part
            for line in cell.split("\n")
            for part in (wrap(line, room, subsequent_indent="  ") if len(line) > room else [line])
        ]
        for cell, (room, _) in zip(cells, columns, strict=True)
    ]
    for number in range(max(map(len, parts))):
        texts = [part[number] if number < len(part) else "" for part in parts]
        padded = (
            f"{t:>{room}}" if side == "r" else f"{t:<{room}}" for t, (room, side) in zip(texts, columns, strict=True)
        )
        yield GAP.join(padded).rstrip()
