"""The program's own English sentences, in the language of a report.

Assumptions, reasons and derivations are sentences that every output has in English. phrases.yaml holds the templates
that they are made from, and each of them in Chinese: a sentence that fits a template is said in Chinese with the same
values. Whatever fits none stays as it is, such as the free text of profiles.
"""

from __future__ import annotations

from functools import cache
from string import Formatter
from typing import NamedTuple

from dualplan.report.blocks import Name, Text
from dualplan.report.capacity_review.labels import table

LONGEST = 2000
"""Longer texts are none of the program's own."""

_LISTS = ((";", "；"), (",", "、"), (" and", "、"))
"""What parts the members of a list, with a space behind it, in English and in Chinese."""


class Phrase(NamedTuple):
    """A template: its English text between the values, their names, and the Chinese template."""

    literals: tuple[str, ...]
    names: tuple[str, ...]
    chinese: str

    def values(self, text: str) -> dict[str, str] | None:
        """The values with which the template makes ``text``; None where it does not."""
        first, *between, last = self.literals if self.names else (*self.literals, "")
        if not self.names:
            return {} if text == first else None
        place, end = len(first), len(text) - len(last)
        if not (text.startswith(first) and text.endswith(last)):
            return None
        found = []
        for literal in between:
            at = text.find(literal, place, end)
            found.append(text[place:at] if at > place else "")
            place = at + len(literal)
        found.append(text[place:end])
        return dict(zip(self.names, found, strict=True)) if all(found) else None


@cache
def phrases() -> tuple[Phrase, ...]:
    """All templates and the names of resources; those that say most by themselves come first."""
    from importlib.resources import files

    import yaml

    text = files("dualplan.report.capacity_review").joinpath("phrases.yaml").read_text(encoding="utf-8")
    rows: list[dict[str, str]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    rows += [row for key, row in table().items() if key.startswith("resource.")]
    return tuple(sorted(map(_phrase, rows), key=lambda phrase: -sum(map(len, phrase.literals))))


def _phrase(row: dict[str, str]) -> Phrase:
    pieces = list(Formatter().parse(row["en"]))
    literals, names = [piece[0] for piece in pieces], tuple(piece[1] for piece in pieces if piece[1])
    if len(literals) == len(names):
        literals.append("")
    return Phrase(tuple(literals), names, row["zh"])


def chinese(text: str) -> Text | None:
    """A sentence of the program in Chinese, or several on lines of their own; None for one that no template makes."""
    if len(text) > LONGEST:
        return None
    if "\n" in text:
        lines = [chinese(line) for line in text.split("\n")]
        return None if None in lines else tuple(part for line in lines for part in ("；", line))[1:]
    if text.endswith("."):
        whole = _translated(text[:-1])
        return None if whole is None else (whole, "。")
    return _translated(text)


def _translated(text: str) -> Text | None:
    """A list of phrases, or a phrase."""
    return _of_list(text, _LISTS[:1]) or _of_list(text, _LISTS[1:]) or _of_template(text)


def _of_template(text: str) -> Text | None:
    for phrase in phrases():
        values = phrase.values(text)
        if values is not None:
            row: list[Text] = []
            for literal, name, *_ in Formatter().parse(phrase.chinese):
                row += [literal] + ([_value(values[name])] if name else [])
            return tuple(row)
    return None


def _value(text: str) -> Text:
    """A value in Chinese if it is a phrase, a list with phrases, or a phrase with more in brackets; else as it is."""
    found = _translated(text) or _of_list(text, _LISTS[:1], partly=True) or _of_list(text, _LISTS[1:], partly=True)
    if found is None and text.endswith(")"):
        head, bracket, inner = text[:-1].partition(" (")
        said = _translated(head) if bracket else None
        found = None if said is None else (said, "（", _value(inner), "）")
    return _verbatim(text) if found is None else found


def _verbatim(text: str) -> Text:
    return text if text.isascii() else Name(text, LONGEST)


def _of_list(text: str, separators: tuple[tuple[str, str], ...], *, partly: bool = False) -> Text | None:
    """Phrases in a row; ``partly``: members that are none are kept. None where there is no list, or no phrase in it."""
    parts = [("", text)]
    for mark, between in separators:
        parts = [
            (between if number else before, part)
            for before, whole in parts
            for number, part in enumerate(whole.split(f"{mark} "))
        ]
    said = [_of_template(part) for _, part in parts] if len(parts) > 1 else []
    if not any(said) or (None in said and not partly):
        return None
    row: list[Text] = []
    for (between, part), found in zip(parts, said, strict=True):
        row += [between, _verbatim(part) if found is None else found]
    return tuple(row)
