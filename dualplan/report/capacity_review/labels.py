"""The words of a report in each language. They all stand in labels.yaml; sentences that other parts of the program make
in English are in phrases.yaml.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, get_args

Language = Literal["en", "zh"]
LANGUAGES: tuple[str, ...] = get_args(Language)


@cache
def table() -> dict[str, dict[str, str]]:
    """Key -> language -> text with names of values in braces."""
    from importlib.resources import files

    import yaml

    text = files("dualplan.report.capacity_review").joinpath("labels.yaml").read_text(encoding="utf-8")
    rows: dict[str, dict[str, str]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return rows


class Labels:
    """The texts of one language."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self._rows = table()

    def __getitem__(self, key: str) -> str:
        return self._rows[key][self.language]
