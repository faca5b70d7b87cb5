"""Texts as plain characters, in the language of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualplan.errors import printable
from dualplan.report.blocks import Formula, Name, Prose, Say, Text, Typed

if TYPE_CHECKING:
    from dualplan.report.capacity_review.labels import Labels


def shortened(name: Name) -> str:
    """A name of a length that can be read; how long it was is said."""
    text = printable(name.text.replace("\n", " "))
    return text if len(text) <= name.longest else f"{text[: name.longest - 20]}… ({len(text):,})"


class Words:
    """Texts in one language, as plain text."""

    def __init__(self, labels: Labels | None = None) -> None:
        self.labels = labels

    def said(self, prose: Prose) -> Text | None:
        """A sentence of the program in the language of the report; None where it stays as it is."""
        if self.labels is None or self.labels.language == "en":
            return None
        from dualplan.report.capacity_review.phrases import chinese

        return chinese(prose.text)

    def label(self, key: str) -> str:
        """A sentence of the table of labels, in English where no language is chosen."""
        if self.labels is None:
            from dualplan.report.capacity_review.labels import Labels

            self.labels = Labels("en")
        return self.labels[key]

    def plain(self, text: Any) -> str:
        """A text without any markup, for titles and attributes."""
        if isinstance(text, Say):
            return self.label(text.key).format(**{key: self.plain(value) for key, value in text.values.items()})
        if isinstance(text, Name):
            return shortened(text)
        if isinstance(text, Prose):
            said = self.said(text)
            return printable(text.text) if said is None else self.plain(said)
        if isinstance(text, (Typed, Formula)):
            return printable(text.text)
        if isinstance(text, tuple):
            return "".join(self.plain(part) for part in text)
        return str(text)
