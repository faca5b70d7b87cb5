"""Blocks as Markdown: a document with a folder of figures, or the answer of a command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dualplan.errors import printable
from dualplan.messages import Message
from dualplan.messages import text as in_words
from dualplan.report.blocks import Block, Document, Formula, Name, Prose, Section, Typed, figures
from dualplan.report.renderers.words import Words, shortened

if TYPE_CHECKING:
    from dualplan.report.capacity_review.labels import Labels

HEADINGS = {"title": "## ", "heading": "### "}
COLUMNS = 76
"""Characters of a line of a drawing."""


def markdown(document: Document, labels: Labels, folder: str) -> tuple[str, dict[str, str]]:
    """The report as Markdown, and its figures by file name; ``folder`` is what the text calls their folder.

    An empty folder leaves the figures out and keeps the tables behind them.
    """
    show = _Markdown(MarkdownWords(labels), folder)
    parts = [f"# {show.t(document.title)}", show.t(document.subtitle)]
    for section in document.sections:
        parts += show.section(section, 2)
    parts += ["---", show.t(document.footer)]
    drawn = {f"{figure.name}.svg": _standalone(figure.svg) for figure in figures(document.sections)} if folder else {}
    return _joined(parts), drawn


def markdown_text(blocks: Iterable[Block]) -> str:
    """The answer of a command."""
    return _joined(_Markdown(MarkdownWords(), "").blocks(blocks))


def _joined(parts: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(part for part in parts if part)).strip() + "\n"


def _standalone(svg: str) -> str:
    return '<?xml version="1.0" encoding="utf-8"?>\n' + svg


class _Markdown:
    """A function for each kind of block; ``t`` makes Markdown of a text."""

    def __init__(self, words: MarkdownWords, folder: str) -> None:
        self.words = words
        self.t = words.text
        self.folder = folder

    def section(self, section: Section, level: int) -> list[str]:
        parts = [f"{'#' * level} {self.t(section.title)}", *self.blocks(section.blocks)]
        for inner in section.sections:
            parts += self.section(inner, level + 1)
        return parts

    def blocks(self, blocks: Iterable[Block]) -> list[str]:
        shows: dict[str, Callable[[Any], str]] = {name: getattr(self, name) for name in KINDS}
        return [shows[block.kind](block) for block in blocks]

    def gap(self, block: Any) -> str:
        return ""

    def paragraph(self, block: Any) -> str:
        text = re.sub(" +", " ", self.t(block.text))
        if block.role in HEADINGS:
            return HEADINGS[block.role] + text
        if block.role in ("lead", "good", "bad", "warning"):
            return f"**{text}**"
        return f"> {text}" if block.role == "note" else text

    def facts(self, block: Any) -> str:
        return "\n".join(
            f"- {key.strip()}: {self.t(text)}" if key.strip() else f"- {self.t(text)}" for key, text in block.items
        )

    def drawing(self, block: Any) -> str:
        return "\n".join(["```", *block.draw(COLUMNS), "```"])

    def verdict(self, block: Any) -> str:
        return f"**{self.t(block.word)}**\n\n" + " ".join(self.t(sentence) for sentence in block.sentences)

    def tiles(self, block: Any) -> str:
        rows = [_pipes([self.t(label), f"**{self.t(value)}**", self.t(note)]) for label, value, note in block.items]
        return "\n".join(["| | | |", "|:--|:--|:--|", *rows])

    def bullets(self, block: Any) -> str:
        return "\n".join(f"- {self.t(item)}" for item in block.items)

    def table(self, block: Any) -> str:
        """A pipe table; rows that stand out are bold."""
        rule = [":--" if side == "left" else "--:" for side in block.align]
        lines = [f"*{self.t(block.caption)}*", ""] if block.caption else []
        lines += [_pipes([self.t(cell) for cell in block.header]), _pipes(rule)]
        for index, row in enumerate(block.rows):
            cells = [self.t(cell) for cell in row]
            if index in block.marked:
                cells = [f"**{cell.strip()}**" if cell.strip() else cell for cell in cells]
            lines.append(_pipes(cells))
        return "\n".join(lines)

    def figure(self, block: Any) -> str:
        if not self.folder:
            return self.table(block.table)
        picture = f"![{self.t(block.alt)}]({self.folder}/{block.name}.svg)\n\n*{self.t(block.caption)}*"
        return f"{picture}\n\n{_details(self.words.label('document.figure_data'), self.table(block.table))}"

    def equation(self, block: Any) -> str:
        name = f" ({_code_span(block.name)})" if block.name else ""
        numbers = f"$${block.latex_numbers}$$" if block.latex_numbers else self.t(block.numbers)
        lines = [self.t(line) for line in block.derivation]
        lines += [f"source: {self.t(block.source)}"] if block.source else []
        parts = [f"**{self.t(block.title)}{name}**", f"$${block.latex}$$", numbers]
        return "\n\n".join([*filter(None, parts), "\n".join(f"- {line}" for line in lines)])

    def code(self, block: Any) -> str:
        return f"```sh\n{block.text}\n```"

    def folded(self, block: Any) -> str:
        return _details(self.t(block.summary), "\n\n".join(self.blocks(block.blocks)))


KINDS = (
    *("paragraph", "facts", "gap", "drawing", "verdict", "tiles", "bullets", "table"),
    *("figure", "equation", "code", "folded"),
)


def _details(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


class MarkdownWords(Words):
    """What Markdown would read as markup is escaped; names with other directions are isolated by characters."""

    def text(self, text: Any) -> str:
        if isinstance(text, Message):
            return self.text(self.parts(text))
        if isinstance(text, Name):
            shown = _marked(shortened(text))
            return f"\u2068{shown}\u2069" if _has_right_to_left(shown) else shown
        if isinstance(text, Prose):
            said = self.said(text)
            return _marked(printable(in_words(text.text))) if said is None else self.text(said)
        if isinstance(text, Typed):
            return _code_span(printable(text.text))
        if isinstance(text, Formula):
            return f"${text.latex}$"
        if isinstance(text, tuple):
            return "".join(self.text(part) for part in text)
        return _marked(str(text))


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _code_span(text: str) -> str:
    """Markdown for this text as code; a bar would end a cell of a table, and a fence of bars the code."""
    return _marked(text) if "|" in text or "`" in text or not text.strip() else f"`{text}`"


_UNDERSCORES = re.compile(r"(?<!_)(?:(?<![^\W_])_++|_++(?![^\W_]))")
"""Runs of underscores that could begin or end emphasis; inside a word they are letters."""


def _marked(text: str) -> str:
    """Markdown for literally this text."""
    text = re.sub(r"[\\`*\[\]|~#$]", r"\\\g<0>", text.replace("\n", " "))
    text = _UNDERSCORES.sub(lambda run: r"\_" * len(run[0]), text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _has_right_to_left(text: str) -> bool:
    import unicodedata

    return any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text)
