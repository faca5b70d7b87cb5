"""Words for numbers and names, as every section of a report writes them."""

from __future__ import annotations

from fractions import Fraction

from dualplan.report.blocks import Text, say
from dualplan.steady.answer import Evaluation
from dualplan.units import show, significant

NO_VALUE = "–"
COMMA = say("list.comma")
SEMICOLON = say("list.semicolon")


def resource(name: str | None) -> Text:
    """A resource in words."""
    return NO_VALUE if name is None else say(f"resource.{name}")


def amount(value: float, unit: str) -> Text:
    """A load or capacity with its unit."""
    return turns(value) if unit == "turns/s" else show(value, unit)


def turns(value: float) -> Text:
    """A turn rate."""
    return say("unit.turns_per_s", n=significant(value))


def per_cent(share: float, digits: int = 0) -> str:
    """A share as per cent."""
    return f"{100 * share:.{digits}f} %"


def change(gain: float) -> str:
    """A relative change: per cent with a sign, or a factor where that reads better."""
    if abs(gain) < 5e-4:
        return "0 %"
    return f"{1 + gain:.2g}×" if gain >= 2 else f"{100 * gain:+.{0 if abs(gain) >= 0.0995 else 1}f} %".replace("-", "−")


def end(bound: Fraction | None) -> str | None:
    """An end of a range: a small fraction exactly, others in three digits; None without a limit."""
    if bound is None:
        return None
    return str(bound) if bound.denominator < 100 and bound.numerator < 100 else significant(float(bound))


def deployment(answer: Evaluation) -> str:
    """Nodes of both sides, as in 2P4D."""
    return f"{answer.prefill_nodes}P{answer.decode_nodes}D"


def joined(parts: list[Text], between: Text = COMMA) -> Text:
    """Texts in a row."""
    row: list[Text] = []
    for part in parts:
        row += [between, part] if row else [part]
    return tuple(row)


def letter_of(number: int) -> str:
    """A, B .. Z, then A26, A27 ..: short names of scenarios in figures and tables."""
    return chr(ord("A") + number) if number < 26 else f"A{number}"
