"""What a sweep varies: ``KEY=VALUES`` as an axis of texts, several axes as points.

VALUES is a list of parts with commas between them; where a value holds a comma itself, all of them are separated by
``|``. A part is a value (``4``, ``400Gb/s``, ``dual-path``) or a range:

* ``1..8`` counts up by 1; ``1..16+3`` by 3; ``100Gb/s..400Gb/s+100Gb/s`` with a unit
* ``1..64*2`` multiplies by 2
* ``1:8..8:1`` are ratios: 1:8, 1:7 .. 1:1, 2:1 .. 8:1

Numbers are counted in decimals, so 0.1..0.5+0.1 ends with 0.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from math import prod

import msgspec

from dualplan.errors import InputError
from dualplan.units import NUMBER

MOST_POINTS = 2_000_000
"""Points of one sweep."""

NODE_KEYS = {"prefill": "prefill_nodes", "decode": "decode_nodes"}
RATIO = re.compile(r"\s*(\d{1,6})\s*:\s*(\d{1,6})\s*", re.ASCII)
_END = re.compile(rf"\s*({NUMBER})\s*(.*?)\s*", re.ASCII)
_RANGE = re.compile(rf"(.+?)\.\.(.+?)(?:([+*])\s*({NUMBER}\s*[^+*]*))?", re.ASCII)


class Axis(msgspec.Struct, frozen=True):
    """A key and the values it takes, as texts of a scenario file; for ``pd`` ratios such as ``1:2``."""

    key: str
    values: tuple[str, ...]


def parse_axis(text: str, flag: str = "--vary") -> Axis:
    """``KEY=VALUES`` as an axis; values given twice are taken once. Raises InputError."""
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(flag, f'"{text[:60]}" is not KEY=VALUES', "such as prefill=1..8 or hardware.snic.count=1,2,4")
    return Axis(NODE_KEYS.get(key, key), tuple(dict.fromkeys(_values(values, f"{flag} {key}", key == "pd"))))


def _values(text: str, where: str, ratios: bool) -> list[str]:
    parts = [part.strip() for part in text.split("|" if "|" in text else ",")]
    if not all(parts):
        raise InputError(where, "has an empty value" if text.strip() else "names no value", "such as 1,2,4 or 1..8")
    found: list[str] = []
    for part in parts:
        if ratios:
            found += _ratios(part, where)
        elif ".." in part and "/.." not in part and not part.startswith(".."):
            found += _range(part, where)
        else:
            found.append(part)
        _check_count(len(found), where)
    return found


def _check_count(count: int, where: str) -> None:
    if count > MOST_POINTS:
        raise InputError(where, f"has more than {MOST_POINTS:,} values")


def _range(text: str, where: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    ends = [_END.fullmatch(part) for part in match.group(1, 2)] if match else []
    if match is None or not all(ends):
        raise InputError(where, f'"{text[:60]}" is not a range', "such as 1..8, 1..16+3 or 1..64*2")
    (first, unit), (last, last_unit) = (end.groups() for end in ends if end is not None)
    low, high = Decimal(first), Decimal(last)
    if unit != last_unit:
        raise InputError(where, f'the ends of "{text[:60]}" have different units', f"write both in {unit or last_unit}")
    if low > high:
        raise InputError(where, f'the range "{text[:60]}" is empty', f"write {last}{unit}..{first}{unit}")
    kind, step = match[3] or "+", _step(match[4], unit, where)
    if match[4] is None and (unit or low != int(low)):
        raise InputError(where, f'"{text[:60]}" does not say its step', f"add +STEP{unit} or *FACTOR")
    if kind == "*" and (step <= 1 or low <= 0):
        raise InputError(where, f'"{text[:60]}" never ends', "a factor is above 1, the first value above 0")
    if step <= 0:
        raise InputError(where, f'"{text[:60]}" never ends', "a step is above 0")
    if kind == "+":
        _check_count(int((high - low) / step) + 1, where)
    values = [low]
    while (value := values[-1] + step if kind == "+" else values[-1] * step) <= high:
        values.append(value)
        _check_count(len(values), where)
    return [f"{value.normalize():f}{unit}" for value in values]


def _step(text: str | None, unit: str, where: str) -> Decimal:
    """The step or factor of a range; a step may repeat the unit of the ends."""
    if text is None:
        return Decimal(1)
    match = _END.fullmatch(text)
    if match is None or match[2] not in ("", unit):
        raise InputError(where, f'"{text[:60]}" is not a step', f"a number{', in ' + unit if unit else ''}")
    return Decimal(match[1])


def _ratios(text: str, where: str) -> list[str]:
    ends = text.split("..")
    matches = [RATIO.fullmatch(end) for end in ends]
    if len(ends) > 2 or not all(matches):
        raise InputError(where, f'"{text[:60]}" is not a P/D ratio or a range of them', "such as 1:2 or 1:8..8:1")
    pairs = [(int(match[1]), int(match[2])) for match in matches if match is not None]
    if any(0 in pair for pair in pairs):
        raise InputError(where, f'"{text[:60]}" has a side without nodes')
    if len(pairs) == 1:
        return ["{}:{}".format(*pairs[0])]
    (low_p, low_d), (high_p, high_d) = pairs
    low, high = Fraction(low_p, low_d), Fraction(high_p, high_d)
    if low > high:
        raise InputError(where, f'the range "{text[:60]}" is empty', f"write {ends[1]}..{ends[0]}")
    if 1 not in (low_p, low_d) or 1 not in (high_p, high_d):
        raise InputError(where, f'the ends of "{text[:60]}" need a 1 on one side', "such as 1:8..8:1")
    _check_count(low_d + high_p, where)
    ratios = [(1, d) for d in range(low_d, 0, -1)] + [(p, 1) for p in range(2, high_p + 1)]
    return [f"{p}:{d}" for p, d in ratios if low <= Fraction(p, d) <= high]


def splits(axis: Axis, nodes: int, text: str) -> tuple[str, ...]:
    """The ratios of a ``pd`` axis as splits ``P:D`` of that many nodes.

    ``text``: the values as given. A range gives every split inside it; a ratio must divide the nodes. Raises
    InputError where one cannot be split so.
    """
    where = "--vary pd"
    if nodes < 2:
        raise InputError("--nodes", f"{nodes} cannot be split", "at least 2: one prefill and one decode node")
    _check_count(nodes, "--nodes")
    found: list[str] = []
    for part in text.split(","):
        ends = [Fraction(*map(int, end.split(":"))) for end in part.replace(" ", "").split("..")]
        if len(ends) == 2:
            found += [f"{p}:{nodes - p}" for p in range(1, nodes) if ends[0] <= Fraction(p, nodes - p) <= ends[1]]
            continue
        prefill = nodes * ends[0] / (1 + ends[0])
        if prefill.denominator != 1:
            raise InputError(where, f"{nodes} nodes cannot be split {part.strip()}", "give a range, or other --nodes")
        found.append(f"{prefill}:{nodes - prefill}")
    if not found:
        raise InputError(where, f"no split of {nodes} nodes lies inside {text}")
    return tuple(dict.fromkeys(found))


def count_points(axes: Iterable[Axis], zipped: bool) -> int:
    """Points of a product of axes, or of axes side by side. Raises InputError for none, too many, unequal lengths or
    a key given twice.
    """
    axes = tuple(axes)
    if not axes:
        raise InputError("--vary", "nothing is varied", "such as --vary prefill=1..8")
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"--vary {key}", "is given twice", "give all values at once")
    if "pd" in keys and {"prefill_nodes", "decode_nodes"} & set(keys):
        raise InputError("--vary pd", "sets both node counts", "leave out prefill and decode")
    lengths = [len(axis.values) for axis in axes]
    if not zipped:
        if prod(lengths) > MOST_POINTS:
            what = " x ".join(f"{length:,}" for length in lengths) + f" = {prod(lengths):,} points"
            raise InputError("--vary", f"{what} are more than {MOST_POINTS:,}", "coarser ranges, or --zip")
        return prod(lengths)
    if len(set(lengths)) > 1:
        what = ", ".join(f"{axis.key} {len(axis.values):,}" for axis in axes)
        raise InputError("--zip", f"the keys have different numbers of values: {what}")
    return lengths[0]
