"""What a report is made of, before it is HTML or Markdown: sections of blocks, and texts of known origin.

A text is plain data (numbers with their units), a labelled sentence, a name that a user chose, prose of the program,
code, or several of these in a row. Renderers escape all of them; names are isolated, so that right-to-left text
and long text stay where they belong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from dualplan.messages import Message, message


class _Record(msgspec.Struct, frozen=True):
    pass


class Name(_Record, frozen=True):
    """Text that a user chose: a name, a note, a path. Of more than ``longest`` characters the first are shown."""

    text: str
    longest: int = 120


class Prose(_Record, frozen=True):
    """What another part of the program says, such as an assumption: its values may be names of any kind.

    As text it is in English in every language, such as an error.
    """

    text: Message | str


class Typed(_Record, frozen=True):
    """What is typed as it stands, such as a key or a command with its flags; shown as code."""

    text: str


Text = str | Message | Name | Prose | Typed | tuple[Any, ...]
Align = Literal["left", "right"]


say = message
"""A labelled sentence: ``say("answer.speedup", times="1.9×")``; its values are texts."""


def prose(sentences: Iterable[Message | str]) -> Text:
    """Sentences of the program, one after the other."""
    row: list[Text] = []
    for sentence in sentences:
        row += [" ", Prose(sentence)] if row else [Prose(sentence)]
    return tuple(row)


class Paragraph(_Record, frozen=True):
    """A paragraph; ``lead`` opens a section, a ``note`` is set smaller."""

    kind: ClassVar[str] = "paragraph"
    text: Text
    role: Literal["", "lead", "note"] = ""


class Verdict(_Record, frozen=True):
    """The answer in a word, and the sentences that say it."""

    kind: ClassVar[str] = "verdict"
    good: bool
    word: Text
    sentences: tuple[Text, ...]


class Tiles(_Record, frozen=True):
    """Key figures: label, value, remark."""

    kind: ClassVar[str] = "tiles"
    items: tuple[tuple[Text, Text, Text], ...]


class Bullets(_Record, frozen=True):
    """A list without an order."""

    kind: ClassVar[str] = "bullets"
    items: tuple[Text, ...]


class Table(_Record, frozen=True):
    """``align`` of the columns; ``marked``: rows that stand out, each with ``mark`` in words in one of its cells.

    ``bars``: for each row the share (0..1) drawn as a bar behind its last cell. The first column names the rows.
    """

    kind: ClassVar[str] = "table"
    caption: Text
    header: tuple[Text, ...]
    rows: tuple[tuple[Text, ...], ...]
    align: tuple[Align, ...]
    marked: tuple[int, ...] = ()
    bars: tuple[float, ...] = ()


class Figure(_Record, frozen=True):
    """An SVG drawing by its name, with what it shows in words and the table of its values."""

    kind: ClassVar[str] = "figure"
    name: str
    svg: str
    alt: Text
    caption: Text
    table: Table


class Equation(_Record, frozen=True):
    """One equation: its name, MathML, LaTeX for Markdown, the right side in numbers, and where it comes from."""

    kind: ClassVar[str] = "equation"
    title: Text
    mathml: str
    latex: str
    numbers: str
    derivation: tuple[Text, ...] = ()


class Code(_Record, frozen=True):
    """Lines to copy, as they are."""

    kind: ClassVar[str] = "code"
    text: str


class Folded(_Record, frozen=True):
    """Blocks behind a line that opens them."""

    kind: ClassVar[str] = "folded"
    summary: Text
    blocks: tuple[Any, ...]


Block = Paragraph | Verdict | Tiles | Bullets | Table | Figure | Equation | Code | Folded


class Section(_Record, frozen=True):
    """A heading and what stands below it; ``anchor`` is its id in the document."""

    anchor: str
    title: Text
    blocks: tuple[Block, ...] = ()
    sections: tuple[Section, ...] = ()


class Document(_Record, frozen=True):
    """A report. ``data``: the JSON document of the same figures."""

    title: Text
    subtitle: Text
    footer: Text
    sections: tuple[Section, ...]
    data: dict[str, Any]


def table(
    caption: Text,
    header: Sequence[Text],
    rows: Sequence[Sequence[Text]],
    align: str,
    *,
    marked: Sequence[int] = (),
    bars: Sequence[float] = (),
) -> Table:
    """A table; ``align`` has a letter a column, ``l`` or ``r``."""
    sides: dict[str, Align] = {"l": "left", "r": "right"}
    return Table(
        caption=caption,
        header=tuple(header),
        rows=tuple(tuple(row) for row in rows),
        align=tuple(sides[letter] for letter in align),
        marked=tuple(marked),
        bars=tuple(bars),
    )


def figures(sections: Sequence[Section]) -> list[Figure]:
    """All figures of sections, in order."""
    found: list[Figure] = []

    def visit(blocks: Sequence[Any]) -> None:
        for block in blocks:
            if isinstance(block, Figure):
                found.append(block)
            elif isinstance(block, Folded):
                visit(block.blocks)

    for section in sections:
        visit(section.blocks)
        found += figures(section.sections)
    return found
