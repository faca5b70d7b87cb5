"""Blocks as lines of a terminal. Words and shapes carry everything; colours only repeat it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dualplan.report.blocks import Block
from dualplan.report.renderers.words import Words

if TYPE_CHECKING:
    from rich.console import Console

WIDEST = 100
NARROWEST = 40
BAR_ROOM = 20
"""Characters of a full bar of a table; half as many beside more than four columns."""

LEAST_WRAPPED = 10
"""Characters that a column which wraps must have; where there are fewer, columns go below each other."""

LONGEST_NAME = 38
"""Characters of the first column of a table with bars; what is longer wraps."""

STYLES = {
    "": "",
    "title": "bold",
    "heading": "bold",
    "lead": "bold",
    "good": "bold green",
    "bad": "bold red",
    "warning": "yellow",
    "note": "dim",
}
MARKED = "bold yellow"


def print_blocks(blocks: Iterable[Block], console: Console) -> None:
    """Print blocks on a rich console, at most its width and ``WIDEST`` wide."""
    terminal = _Terminal(console)
    for block in blocks:
        terminal.show[block.kind](block)


class _Terminal:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = max(min(console.width, WIDEST), NARROWEST)
        self.plain = Words().plain
        self.show: dict[str, Callable[[Any], None]] = {name: getattr(self, name) for name in KINDS}

    def line(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self.console.print(Text(text, style=style), overflow="fold")

    def wrapped(self, text: str, style: str = "", indent: int = 2, hanging: int = 2) -> None:
        from textwrap import wrap

        start = " " * indent
        for part in wrap(text, self.width - indent, subsequent_indent=" " * hanging, break_on_hyphens=False):
            self.line(start + part, style)

    def gap(self, block: Any) -> None:
        self.console.print()

    def paragraph(self, block: Any) -> None:
        indent = 0 if block.role == "title" else block.indent
        self.wrapped(self.plain(block.text), STYLES[block.role], indent, block.hanging)

    def facts(self, block: Any) -> None:
        for key, text in block.items:
            self.wrapped((f"{key:<{block.room}}" if key else "") + self.plain(text), "", block.indent, block.room)

    def bullets(self, block: Any) -> None:
        for item in block.items:
            self.wrapped(f"- {self.plain(item)}", STYLES[block.role])

    def equation(self, block: Any) -> None:
        self.wrapped(self.plain(block.title), STYLES["lead"], hanging=4)
        self.wrapped(block.text, hanging=4)
        if block.numbers:
            self.wrapped(block.numbers, indent=4, hanging=4)
        for line in block.derivation:
            self.wrapped(f"- {self.plain(line)}", STYLES["note"])

    def drawing(self, block: Any) -> None:
        for line in block.draw(self.width - block.indent):
            self.console.print(" " * block.indent + line, soft_wrap=True)

    def code(self, block: Any) -> None:
        for line in block.text.split("\n"):
            self.console.print(line, soft_wrap=True)

    def table(self, block: Any) -> None:
        rows = [[self.plain(cell) for cell in row] for row in block.rows]
        header = [self.plain(cell) for cell in block.header]
        if block.caption:
            self.line(f"  {self.plain(block.caption)}", STYLES["lead"])
        if block.below or not self._fits(block, header, rows):
            self._table_in_parts(block, header, rows)
        else:
            self._table(block, header, rows)

    def _fits(self, block: Any, header: list[str], rows: list[list[str]]) -> bool:
        """Whether all columns stand beside each other, those that wrap with ``LEAST_WRAPPED`` characters."""
        room = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
        room = [max(pair) for pair in zip(room, block.widths or (0,) * len(header), strict=True)]
        least = [r if way == "." else min(r, LEAST_WRAPPED) for r, way in zip(room, _flow(block), strict=True)]
        bar = [1] if block.bars else []
        return sum(least + bar) + 2 * len(least + bar) <= self.width

    def _table_in_parts(self, block: Any, header: list[str], rows: list[list[str]]) -> None:
        from dualplan.report.columns import print_table

        wraps = next((i for i, way in enumerate(_flow(block)) if way != "." and block.flow), -1)
        align = "".join(side[0] for side in block.align)
        styles = [MARKED if index in block.marked else None for index in range(len(rows))]
        head = STYLES[block.head]
        wraps_at = wraps if wraps >= 0 else None
        print_table(
            self.console, header, rows, align, indent=" " * block.indent, wraps=wraps_at, head=head, styles=styles
        )

    def _table(self, block: Any, header: list[str], rows: list[list[str]]) -> None:
        from rich.padding import Padding
        from rich.table import Table

        shares = "s" in block.flow
        head = STYLES[block.head]
        table = Table(
            box=None,
            pad_edge=False,
            padding=(0, 2, 0, 0),
            header_style=head,
            width=self.width - 2 if shares else None,
        )
        least = block.widths or (None,) * len(header)
        for text, side, way, room in zip(header, block.align, _flow(block), least, strict=True):
            table.add_column(
                text,
                justify=side,
                no_wrap=way == ".",
                overflow="fold",
                min_width=room,
                ratio=1 if way == "s" else None,
                max_width=LONGEST_NAME if block.bars and table.columns == [] else None,
            )
        if block.bars:
            table.add_column("", no_wrap=True)
        room = BAR_ROOM if len(header) <= 4 else BAR_ROOM // 2
        bars = ["#" * round(room * min(share, 1)) for share in block.bars]
        for index, row in enumerate(rows):
            cells = [*row, bars[index]] if bars else row
            table.add_row(*cells, style=MARKED if index in block.marked else None)
        self.console.print(Padding(table, (0, 0, 0, block.indent), expand=False), width=self.width)


KINDS = ("paragraph", "facts", "gap", "bullets", "equation", "drawing", "code", "table")
"""The kinds that commands make; the others belong to reports."""


def _flow(block: Any) -> str:
    """A letter a column; the first one wraps where nothing else is said."""
    return block.flow or "w" + "." * (len(block.header) - 1)
