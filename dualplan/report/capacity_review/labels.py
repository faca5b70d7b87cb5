"""The words of a report in one language."""

from __future__ import annotations

from dualplan.messages import Language, sentence


class Labels:
    """The texts of one language, by code."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def __getitem__(self, code: str) -> str:
        return sentence(code, self.language)
