"""A report as one HTML file or as Markdown with a folder of figures; both from the same blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dualplan.errors import printable
from dualplan.messages import Message, parts
from dualplan.messages import text as in_words
from dualplan.report.capacity_review.blocks import Document, Name, Prose, Text, Typed, figures
from dualplan.report.capacity_review.labels import Labels
from dualplan.report.figures.drawing import themed
from dualplan.report.output import clean

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

LONGEST_TITLE = 2000
"""Characters that the tooltip of a shortened name holds."""


def html(document: Document, labels: Labels) -> str:
    """The report as one file that needs nothing from anywhere else."""
    from markupsafe import Markup

    words = _HtmlWords(labels)
    drawings = {figure.name: Markup(themed(figure.svg)) for figure in figures(document.sections)}
    template = _environment(words).get_template("report.html")
    # "<" would let a name in the data end the script element, and other letters could turn the direction of the source
    data = json.dumps(clean(document.data), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    text = template.render(document=document, labels=labels, drawings=drawings, data=Markup(data), plain=words.plain)
    return re.sub(r"\n\s*\n+", "\n", text) + "\n"


def markdown(document: Document, labels: Labels, folder: str) -> tuple[str, dict[str, str]]:
    """The report as Markdown, and its figures by file name; ``folder`` is what the text calls their folder.

    An empty folder leaves the figures out and keeps the tables behind them.
    """
    words = _MarkdownWords(labels)
    template = _environment(words).get_template("report.md")
    text = template.render(document=document, labels=labels, folder=folder, table=words.table, plain=words.plain)
    drawn = {f"{figure.name}.svg": _standalone(figure.svg) for figure in figures(document.sections)} if folder else {}
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n", drawn


def _standalone(svg: str) -> str:
    return '<?xml version="1.0" encoding="utf-8"?>\n' + svg


def _environment(words: Any) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dualplan.report.capacity_review"),
        autoescape=isinstance(words, _HtmlWords),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["t"] = words.text
    return environment


def shortened(name: Name) -> str:
    """A name of a length that can be read; how long it was is said."""
    text = printable(name.text.replace("\n", " "))
    return text if len(text) <= name.longest else f"{text[: name.longest - 20]}… ({len(text):,})"


def _name(text: str) -> Text:
    return printable(text) if text.isascii() else Name(text, LONGEST_TITLE)


class _Words:
    """Texts in one language, as plain text."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels

    def said(self, prose: Prose) -> Text | None:
        """A message in the language of the report, names in it apart; None for what is in English."""
        if self.labels.language == "en" or isinstance(prose.text, str):
            return None
        return tuple(parts(prose.text, self.labels.language, _name))

    def parts(self, message: Message) -> Text:
        """A message in the language of the report, its values as they are."""
        return tuple(parts(message, self.labels.language))

    def plain(self, text: Any) -> str:
        """A text without any markup, for titles and attributes."""
        if isinstance(text, Message):
            return self.plain(self.parts(text))
        if isinstance(text, Name):
            return shortened(text)
        if isinstance(text, Prose):
            said = self.said(text)
            return printable(in_words(text.text)) if said is None else self.plain(said)
        if isinstance(text, Typed):
            return printable(text.text)
        if isinstance(text, tuple):
            return "".join(self.plain(part) for part in text)
        return str(text)


class _HtmlWords(_Words):
    """Everything but the templates' own markup is escaped; names are isolated from the direction of what surrounds."""

    def text(self, text: Any) -> Markup:
        from markupsafe import Markup, escape

        if isinstance(text, Message):
            return self.text(self.parts(text))
        if isinstance(text, Name):
            shown = shortened(text)
            whole = printable(text.text)[:LONGEST_TITLE]
            title = Markup(' title="{}"').format(whole) if len(shown) < len(whole) else ""
            return Markup("<bdi{}>{}</bdi>").format(title, shown)
        if isinstance(text, Prose):
            said = self.said(text)
            if said is not None:
                return self.text(said)
            language = Markup(' lang="en"') if self.labels.language != "en" else ""
            return Markup('<span dir="auto"{}>{}</span>').format(language, printable(in_words(text.text)))
        if isinstance(text, Typed):
            return Markup('<code dir="ltr">{}</code>').format(printable(text.text))
        if isinstance(text, tuple):
            return Markup("").join(self.text(part) for part in text)
        return escape(str(text))


class _MarkdownWords(_Words):
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
        if isinstance(text, tuple):
            return "".join(self.text(part) for part in text)
        return _marked(str(text))

    def table(self, block: Any) -> str:
        """A pipe table; rows that stand out are bold."""
        rule = [":--" if side == "left" else "--:" for side in block.align]
        lines = [_pipes([self.text(cell) for cell in block.header]), _pipes(rule)]
        for index, row in enumerate(block.rows):
            cells = [self.text(cell) for cell in row]
            if index in block.marked:
                cells = [f"**{cell.strip()}**" if cell.strip() else cell for cell in cells]
            lines.append(_pipes(cells))
        return "\n".join(lines)


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
