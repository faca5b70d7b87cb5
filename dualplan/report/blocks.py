"""What a result is made of, before it is lines of a terminal, Markdown or HTML: blocks, and texts of known origin.

Commands and reports build the same blocks; dualplan.report.renderers turns them into characters. A text is plain
data (numbers with their units), a labelled sentence, a name that a user chose, prose of the program, code, or several
of these in a row. Renderers escape all of them; names are isolated, so that right-to-left text and long text stay
where they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


class Formula(_Record, frozen=True):
    """A formula within a sentence: LaTeX, and plain characters where there is none."""

    latex: str
    text: str


Text = str | Message | Name | Prose | Typed | Formula | tuple[Any, ...]
Align = Literal["left", "right"]


say = message
"""A labelled sentence: ``say("answer.speedup", times="1.9×")``; its values are texts."""


def prose(sentences: Iterable[Message | str]) -> Text:
    """Sentences of the program, one after the other."""
    row: list[Text] = []
    for sentence in sentences:
        row += [" ", Prose(sentence)] if row else [Prose(sentence)]
    return tuple(row)


Role = Literal["", "title", "heading", "lead", "good", "bad", "warning", "note"]


class Paragraph(_Record, frozen=True):
    """A paragraph: ``title`` names the result, ``heading`` a part of it, ``lead`` opens what follows, ``good``, ``bad``
    and ``warning`` are verdicts, a ``note`` is set smaller. On a terminal it stands ``indent`` characters in, its
    further lines ``hanging`` more.
    """

    kind: ClassVar[str] = "paragraph"
    text: Text
    role: Role = ""
    indent: int = 2
    hanging: int = 2


class Facts(_Record, frozen=True):
    """Short keys with a text each. A text without a key stands at the margin, one below the key ``MORE`` with the
    text before it. ``room``: characters of the keys.
    """

    kind: ClassVar[str] = "facts"
    items: tuple[tuple[str, Text], ...]
    room: int = 11
    indent: int = 2


MORE = " "


class Gap(_Record, frozen=True):
    """An empty line of a terminal."""

    kind: ClassVar[str] = "gap"


GAP = Gap()


class Drawing(_Record, frozen=True):
    """Lines of plain characters, drawn for a number of columns."""

    kind: ClassVar[str] = "drawing"
    draw: Callable[[int], Sequence[str]]
    indent: int = 2


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
    """A list without an order; ``role`` of its items as of paragraphs."""

    kind: ClassVar[str] = "bullets"
    items: tuple[Text, ...]
    role: Role = ""


class Table(_Record, frozen=True):
    """``align`` of the columns; ``marked``: rows that stand out, each with ``mark`` in words in one of its cells.

    ``bars``: for each row the share (0..1) drawn as a bar behind its last cell. The first column names the rows.

    What a terminal does where it is too narrow: ``flow`` has a letter a column, ``w`` wraps words, ``f`` breaks
    anywhere, ``s`` takes what the others leave, ``.`` stays; with ``below`` columns that do not fit follow in a table
    below. ``widths``: characters that columns take at least.
    """

    kind: ClassVar[str] = "table"
    caption: Text
    header: tuple[Text, ...]
    rows: tuple[tuple[Text, ...], ...]
    align: tuple[Align, ...]
    marked: tuple[int, ...] = ()
    bars: tuple[float, ...] = ()
    flow: str = ""
    below: bool = False
    widths: tuple[int, ...] = ()
    head: Literal["lead", "note", ""] = "lead"
    indent: int = 2


class Figure(_Record, frozen=True):
    """An SVG drawing by its name, with what it shows in words and the table of its values."""

    kind: ClassVar[str] = "figure"
    name: str
    svg: str
    alt: Text
    caption: Text
    table: Table


class Equation(_Record, frozen=True):
    """One equation: its title, and the name by which a command finds it; plain text, MathML and LaTeX; the right side
    in numbers, and in LaTeX; where it comes from.
    """

    kind: ClassVar[str] = "equation"
    title: Text
    mathml: str
    latex: str
    numbers: str = ""
    derivation: tuple[Text, ...] = ()
    latex_numbers: str = ""
    text: str = ""
    name: str = ""
    source: str = ""


class Code(_Record, frozen=True):
    """Lines to copy, as they are."""

    kind: ClassVar[str] = "code"
    text: str


class Folded(_Record, frozen=True):
    """Blocks behind a line that opens them."""

    kind: ClassVar[str] = "folded"
    summary: Text
    blocks: tuple[Any, ...]


Block = Paragraph | Facts | Gap | Drawing | Verdict | Tiles | Bullets | Table | Figure | Equation | Code | Folded


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
    flow: str = "",
    below: bool = False,
    widths: Sequence[int] = (),
    head: Literal["lead", "note", ""] = "lead",
    indent: int = 2,
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
        flow=flow,
        below=below,
        widths=tuple(widths),
        head=head,
        indent=indent,
    )


def assumed(sentences: Iterable[str], title: str = "Assumed (all figures and their sources: --json)") -> list[Block]:
    """What an answer rests on, at its end; nothing where there are no assumptions."""
    items = tuple(sentences)
    return [GAP, Paragraph(title, "note"), Bullets(items, "note")] if items else []


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
