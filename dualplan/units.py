"""Text with a unit to a float in SI base units, and back.

Rules: a bit is ``b`` and a byte ``B``; ``k`` is 1000 and ``Ki`` 1024; ``K`` is refused, because nobody can tell which
of the two is meant. Only 0 may be written without a unit. Rates end in ``/s``; ``bps`` and its relatives are refused
with the right spelling.

Dimensions are named by their base unit: ``B``, ``B/s``, ``s``, ``FLOP/s``, ``W``, ``USD``, ``USD/h``, ``1`` (ratios,
where ``%`` is known)
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from dualplan.errors import InputError

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def _unit_table() -> dict[str, tuple[str, float]]:
    table: dict[str, tuple[str, float]] = {"%": ("1", 0.01)}
    for prefix, factor in (_DECIMAL | _BINARY).items():
        table[prefix + "B"] = ("B", factor)
        table[prefix + "b"] = ("B", factor / 8)
        table[prefix + "B/s"] = ("B/s", factor)
        table[prefix + "b/s"] = ("B/s", factor / 8)
    for prefix, factor in _DECIMAL.items():
        table[prefix + "FLOP/s"] = ("FLOP/s", factor)
        table[prefix + "FLOPS"] = ("FLOP/s", factor)
        table[prefix + "W"] = ("W", factor)
        table[prefix + "USD"] = ("USD", factor)
    table |= {"USD/h": ("USD/h", 1.0), "USD/hour": ("USD/h", 1.0)}
    for name, seconds in {
        "ns": 1e-9,
        "us": 1e-6,
        "µs": 1e-6,
        "ms": 1e-3,
        "s": 1.0,
        "min": 60.0,
        "h": 3600.0,
        "d": 86400.0,
    }.items():
        table[name] = ("s", seconds)
    return table


UNITS: dict[str, tuple[str, float]] = _unit_table()
"""Unit text -> (dimension, factor to the base unit)."""

_KIND = {
    "B": ("a size", "80GB"),
    "B/s": ("a rate", "400Gb/s"),
    "s": ("a time", "300ms"),
    "FLOP/s": ("a compute rate", "989TFLOPS"),
    "W": ("a power", "700W"),
    "USD": ("an amount of money", "200000USD"),
    "USD/h": ("a price per hour", "55.04USD/h"),
    "1": ("a ratio", "0.5"),
}
NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
"""A decimal number, for regular expressions of ASCII."""

_QUANTITY = re.compile(rf"\s*({NUMBER})\s*(\S.*?)?\s*", re.ASCII)
_PLAIN = re.compile(rf"\s*{NUMBER}\s*", re.ASCII)


def parse(text: str, dimension: str, where: str = "") -> float:
    """Read ``text`` as a quantity of ``dimension`` and return it in the base unit of that dimension.

    Ratios (dimension ``1``) are plain numbers or per cent. Raises InputError naming ``where``.
    """
    kind, example = _KIND[dimension]
    match = _QUANTITY.fullmatch(text) if len(text) <= 100 else None
    if match is None:
        raise InputError(where, f'"{text[:60]}" is not {kind}', f"write for example {example}")
    number, unit = float(match[1]), match[2] or ""
    if not math.isfinite(number) or abs(number) > 1e30:
        raise InputError(where, f'"{text}" is too large for a number')
    if not unit:
        if number == 0 or dimension == "1":
            return number
        raise InputError(where, f'"{text}" has no unit, {kind} is needed', f"write for example {example}")
    if unit not in UNITS:
        raise InputError(where, f'"{text}" has an unknown unit "{unit}"', _unit_hint(unit, dimension))
    found, factor = UNITS[unit]
    if found != dimension:
        raise InputError(
            where, f'"{text}" is {_KIND[found][0]}, {kind} is needed', _near_miss(match[1], unit, dimension)
        )
    # in rationals, so that 2.039TB/s is the float nearest to 2.039e12
    return float(Fraction(match[1]) * Fraction(repr(factor))) if abs(number) > 1e-30 else 0.0


def plain(text: str) -> float | None:
    """A finite decimal number without a unit; None for any other text, such as ``inf``, ``1_000`` or ``4GB``."""
    value = float(text) if len(text) <= 400 and _PLAIN.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


UNBOUNDED = 1e12
"""Upper bounds from here on guard against slips and are not worth a word."""


def number(
    text: str,
    where: str,
    what: str = "a number",
    *,
    dimension: str = "",
    above: float | None = None,
    least: float | None = None,
    most: float = math.inf,
    hint: str = "",
) -> float:
    """A number between bounds: plain, or of a ``dimension`` and in its base unit. ``what``: in words, for the message.

    ``above`` is a bound that it may not have, ``least`` and ``most`` are bounds that it may. Raises InputError.
    """
    value = parse(text, dimension, where) if dimension else plain(text)
    bottom = -math.inf if least is None else least
    if value is None or not bottom <= value <= most or (above is not None and value <= above):
        span = f" of {least:,g} or more" if least is not None else "" if above is None else f" above {above:,g}"
        if most < UNBOUNDED:
            span = f" of {least:,g} to {most:,g}" if least is not None else f"{span} and up to {most:,g}"
        raise InputError(where, f'"{text.strip()[:40]}" is not {f"{what}{span}".strip()}', hint)
    return value


def positive(text: str, dimension: str, where: str, hint: str = "") -> float:
    """A quantity above 0 in the base unit of its dimension. Raises InputError."""
    return number(text, where, "", dimension=dimension, above=0.0, hint=hint)


def listed(text: str | None) -> list[str]:
    """The parts of a text with commas between them, each once; none of an empty one."""
    return [part for part in dict.fromkeys(part.strip() for part in (text or "").split(",")) if part]


def wholes(
    text: str, where: str, what: str = "a whole number", *, most: int = 10_000_000, hint: str = ""
) -> tuple[int, ...]:
    """Whole numbers above 0 with commas between them, each once. Raises InputError."""
    return tuple(dict.fromkeys(whole(part, where, what, most=most, hint=hint) for part in text.split(",")))


def whole(
    text: str, where: str, what: str = "a whole number", *, least: int = 1, most: int = 10_000_000, hint: str = ""
) -> int:
    """A whole number in digits between bounds. Raises InputError."""
    clean = text.strip()
    value = int(clean) if clean.isascii() and clean.isdigit() and len(clean) <= 15 else None
    if value is None or not least <= value <= most:
        raise InputError(where, f'"{clean[:40]}" is not {what} of {least:,} to {most:,}', hint)
    return value


def factor(text: str, where: str, *, least: float | None = None) -> float:
    """A factor above 0, or of at least ``least``. Raises InputError."""
    return number(text, where, "a factor", above=0.0 if least is None else None, least=least)


def _unit_hint(unit: str, dimension: str) -> str:
    if unit.startswith("K"):
        rest = unit[1:].removeprefix("i")
        return f'"K" could be 1000 or 1024: write k{rest} (1000) or Ki{rest} (1024)'
    bits = re.fullmatch(r"([kMGTP]?)(bps|bit/s|bits/s|bit|bits|Bps)", unit)
    if bits:
        letter = "B" if bits[2] == "Bps" else "b"
        return f"did you mean {bits[1]}{letter}{'/s' if dimension == 'B/s' else ''}?"
    from dualplan.errors import did_you_mean

    known = [name for name, (dim, _) in UNITS.items() if dim == dimension]
    same_letters = [
        name for name in known if name.lower() == unit.lower() or name.lower() == unit.lower().replace(" ", "")
    ]
    if same_letters:
        return "did you mean " + " or ".join(same_letters) + "?"
    return did_you_mean(unit, known) or f"write for example {_KIND[dimension][1]}"


def _near_miss(number: str, unit: str, dimension: str) -> str:
    if dimension == "B/s" and UNITS[unit][0] == "B":
        bits = unit.replace("B", "b")
        return (
            f"did you mean {number}{bits}/s or {number}{unit}/s?" if unit != bits else f"did you mean {number}{unit}/s?"
        )
    if dimension == "B" and UNITS[unit][0] == "B/s":
        return f"did you mean {number}{unit.removesuffix('/s')}?"
    return f"write for example {_KIND[dimension][1]}"


def pattern(dimension: str) -> str:
    """A regular expression of the texts that are quantities of a dimension, for JSON Schema."""
    names = "|".join(re.escape(name) for name, (found, _) in UNITS.items() if found == dimension)
    number = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
    return rf"^\s*({number}\s*({names})|[+-]?0+(\.0*)?)\s*$"


def show(value: float | None, dimension: str, digits: int = 3) -> str:
    """A quantity for people: ``show(5e10, "B/s")`` is ``50.0 GB/s``. Decimal prefixes; ``-`` where there is no
    value.

    Rates, times, sizes and factors have three digits in every answer, so that a figure reads the same everywhere;
    equations have four, because they are calculated with, and JSON has all.
    """
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "unlimited"
    if dimension == "s":
        for unit, size in (("d", 172800.0), ("h", 7200.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
            if abs(value) >= size:
                return f"{significant(value / UNITS[unit][1], digits)} {unit}"
        return "0 s" if value == 0 else f"{significant(value / 1e-9, digits)} ns"
    if dimension == "1":
        return significant(value, digits)
    for prefix, factor in reversed(_DECIMAL.items()):
        # the bound is a little under the factor so that 999.96 MB rounds up to 1.00 GB, not to 1,000 MB
        if abs(value) >= factor * (1 - 0.5 * 10.0**-digits) and (factor > 1 or abs(value) >= 1):
            return f"{significant(value / factor, digits)} {prefix}{dimension}"
    return f"{significant(value, digits)} {dimension}"


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things: ``1 link``, ``2,048 links``. ``many``: their name where it is not ``one`` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


MOST_TIMES = 1000
"""Times beyond which the factor itself says nothing."""


def many_times(times: float, least: float = 10.0) -> str | None:
    """A factor where per cent would not be read: ``62x``, ``>1000x``; None below ``least``."""
    if times < least:
        return None
    return f"{significant(times, 2)}x" if times < MOST_TIMES else f">{MOST_TIMES}x"


def significant(value: float, digits: int = 3) -> str:
    """``value`` with that many significant digits: 0.0281, 62.0, 1,170; with an exponent only where nobody would count
    the zeros.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    if not 1e-9 <= abs(value) < 1e15:
        return f"{value:.{digits - 1}e}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    if rounded and math.floor(math.log10(abs(rounded))) > math.floor(math.log10(abs(value))):
        places -= 1
    return f"{rounded:,.{max(places, 0)}f}"
