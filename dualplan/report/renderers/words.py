"""Texts as plain characters, in the language of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualplan.errors import printable
from dualplan.messages import Language, Message, parts, sentence
from dualplan.messages import text as in_words
from dualplan.report.blocks import Formula, Name, Prose, Text, Typed

if TYPE_CHECKING:
    from dualplan.report.capacity_review.labels import Labels

LONGEST_TITLE = 2000
"""Characters of a name that are kept where it can be shown whole."""


def shortened(name: Name) -> str:
    """A name of a length that can be read; how long it was is said."""
    text = printable(name.text.replace("\n", " "))
    return text if len(text) <= name.longest else f"{text[: name.longest - 20]}… ({len(text):,})"


def _name(text: str) -> Text:
    return printable(text) if text.isascii() else Name(text, LONGEST_TITLE)


class Words:
    """Texts in one language, as plain text; English where no language is chosen."""

    def __init__(self, labels: Labels | None = None) -> None:
        self.language: Language = labels.language if labels is not None else "en"

    def said(self, prose: Prose) -> Text | None:
        """A message in the language of the report, names in it apart; None for what is in English."""
        if self.language == "en" or isinstance(prose.text, str):
            return None
        return tuple(parts(prose.text, self.language, _name))

    def parts(self, message: Message) -> Text:
        """A message in the language of the report, its values as they are."""
        return tuple(parts(message, self.language))

    def label(self, code: str) -> str:
        """A sentence of the catalogue."""
        return sentence(code, self.language)

    def plain(self, text: Any) -> str:
        """A text without any markup, for titles and attributes."""
        if isinstance(text, Message):
            return self.plain(self.parts(text))
        if isinstance(text, Name):
            return shortened(text)
        if isinstance(text, Prose):
            said = self.said(text)
            return printable(in_words(text.text)) if said is None else self.plain(said)
        if isinstance(text, (Typed, Formula)):
            return printable(text.text)
        if isinstance(text, tuple):
            return "".join(self.plain(part) for part in text)
        return str(text)
