"""Values that are not known exactly, as text: ``0.68 +- 0.08``, ``429 +- 20 %``, ``350Gb/s..400Gb/s``.

``x +- d`` is a normal distribution with mean x and standard deviation d, per cent of x where d has that unit, cut at
the values that the key may have. ``a..b`` is an interval in which every value is as likely. Where nothing is sampled,
a scenario has its uncertain values at their centres.
"""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Literal

import msgspec

from dualplan.errors import InputError, did_you_mean, each
from dualplan.spec.change import changed
from dualplan.spec.hardware import Hardware
from dualplan.spec.load import Node, hint_of
from dualplan.spec.scenario import Scenario, Settings
from dualplan.spec.workload import MEANS
from dualplan.units import number, parse, plain

HARDWARE = ("hardware", "prefill_hardware", "decode_hardware")
MOST = 40
"""Uncertain values of one scenario."""

_UNIT = re.compile(r".*?[0-9.]\s*([A-Za-zµ%/]+)\s*", re.ASCII)
_NORMAL = NormalDist()


class Uncertain(msgspec.Struct, frozen=True, kw_only=True):
    """One value. ``centre`` and ``spread`` (standard deviation) in the base ``unit`` of the key, empty for plain
    numbers; ``low`` and ``high``: where it is cut, or the ends of the interval.
    """

    key: str
    text: str
    unit: str
    shape: Literal["normal", "uniform"]
    centre: float
    spread: float
    low: float
    high: float

    @property
    def path(self) -> tuple[str, ...]:
        """The key path."""
        return tuple(self.key.split("."))

    def quantile(self, u: float) -> float:
        """The value that is not exceeded with probability u, 0 < u < 1."""
        if self.shape == "uniform":
            return self.low + u * (self.high - self.low)
        if self.spread == 0:
            return self.centre
        below, above = (_NORMAL.cdf((end - self.centre) / self.spread) for end in (self.low, self.high))
        inside = min(max(below + u * (above - below), 1e-300), 1 - 1e-16)
        return min(max(self.centre + self.spread * _NORMAL.inv_cdf(inside), self.low), self.high)

    def written(self, value: float) -> str:
        """A value as a scenario file has it."""
        return f"{value!r}{'' if self.unit == '1' else self.unit}"


def parse_uncertain(key: str, text: str, where: str) -> Uncertain:
    """An uncertain value of a scenario key. Raises InputError for unknown keys, keys that are no plain number, and
    text that is neither of the two forms.
    """
    kind, extra = _key(key, where)
    dimension = extra.get("dimension", "")
    if kind is int:
        raise InputError(where, f"{key} is a whole number and known", "compare its values with dualplan sweep")
    clean = text.replace("±", "+-").strip()
    if "+-" in clean:
        left, _, right = clean.partition("+-")
        centre = _quantity(_with_unit(left, right, ("%",)), dimension, where)
        if right.strip().endswith("%"):
            spread = abs(centre) * _quantity(right.strip()[:-1], "", where) / 100
        else:
            spread = _quantity(right, dimension, where)
        if spread < 0:
            raise InputError(where, f'"{text[:60]}" has a negative spread')
        low, high = _bounds(key, extra)
        shape: Literal["normal", "uniform"] = "normal"
    elif ".." in clean:
        left, _, right = clean.partition("..")
        low, high = _quantity(_with_unit(left, right), dimension, where), _quantity(right, dimension, where)
        if low > high:
            raise InputError(where, f'the ends of "{text[:60]}" are in the wrong order')
        centre, spread, shape = (low + high) / 2, (high - low) / math.sqrt(12), "uniform"
    else:
        raise InputError(where, f'"{text[:60]}" is no uncertain value', "write 0.68 +- 0.08, 429 +- 20 % or 0.8..0.95")
    bottom, top = _bounds(key, extra)
    ends = (centre,) if shape == "normal" else (low, high)
    if not all(bottom <= end <= top for end in ends):
        raise InputError(where, f'"{text[:60]}" leaves the values that {key} may have', f"{bottom:g} to {top:g}")
    return Uncertain(
        key=key, text=text.strip(), unit=dimension, shape=shape, centre=centre, spread=spread, low=low, high=high
    )


def _with_unit(left: str, right: str, not_units: tuple[str, ...] = ()) -> str:
    """``400 +- 50 Gb/s`` has its unit at the end."""
    unit = _UNIT.fullmatch(right)
    bare = plain(left) is not None
    return f"{left.strip()}{unit[1]}" if bare and unit and unit[1] not in not_units else left


def _quantity(text: str, dimension: str, where: str) -> float:
    return parse(text.strip(), dimension, where) if dimension else number(text, where)


def _bounds(key: str, extra: dict[str, Any]) -> tuple[float, float]:
    """Lowest and highest value of a key."""
    low = 1.0 if key == "workload.turns" else float(extra.get("ge", extra.get("gt", -math.inf)))
    return low, float(extra.get("le", extra.get("lt", math.inf)))


def _key(key: str, where: str) -> tuple[Any, dict[str, Any]]:
    """Type and metadata of the number at a key path."""
    root, *rest = key.split(".")
    record: type[Any] = Settings
    if root in HARDWARE:
        record = Hardware
    elif root == "workload":
        if len(rest) != 1 or rest[0] not in MEANS:
            means = ", ".join(f"workload.{name}" for name in MEANS)
            raise InputError(where, f'"{key[:60]}" cannot be uncertain', f"of a workload: {means}")
        return float, {"gt": 0.0} if rest[0] in ("append", "turns") else {"ge": 0.0}
    else:
        rest = [root, *rest]
    hint: Any = record
    for name in rest:
        record = _record(hint) or _no_number(key, where)
        fields = dict(zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True))
        if name not in fields:
            known = sorted(fields)
            raise InputError(
                where, f'"{key[:60]}" is no key', did_you_mean(name, known) or "known: " + ", ".join(known)
            )
        hint = hint_of(record, fields[name])
    return _number(hint) or _no_number(key, where)


def _options(hint: Any) -> tuple[Any, ...]:
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else (hint,)


def _record(hint: Any) -> Any:
    return next((o for o in _options(hint) if isinstance(o, type) and issubclass(o, msgspec.Struct)), None)


def _number(hint: Any) -> tuple[Any, dict[str, Any]] | None:
    for option in _options(hint):
        if typing.get_origin(option) is typing.Annotated:
            kind, *metas = typing.get_args(option)
            if kind in (float, int):
                extra: dict[str, Any] = {}
                for meta in metas:
                    extra |= getattr(meta, "extra", None) or {}
                return kind, extra
    return None


def _no_number(key: str, where: str) -> typing.NoReturn:
    raise InputError(where, f'"{key[:60]}" is no number that can be uncertain', "such as hardware.snic.efficiency")


def uncertain_values(scenario: Scenario) -> tuple[Uncertain, ...]:
    """The uncertain values of a scenario. Raises InputError with every problem."""
    uncertain, origins = scenario.settings.uncertain, scenario.origins
    found = each(
        uncertain,
        lambda key: parse_uncertain(key, uncertain[key], f"{origins.get(f'uncertain.{key}', 'uncertain')}: {key}"),
    )
    if len(found) > MOST:
        raise InputError("uncertain", f"{len(found)} values are more than {MOST}")
    return tuple(found)


def with_values(scenario: Scenario, values: Sequence[Uncertain], numbers: Sequence[float]) -> Scenario:
    """The scenario with each uncertain value at a number. Raises InputError where they do not go together."""
    return changed(
        scenario,
        [
            (value.path, Node(value.written(float(number)), f"uncertain {value.key}", origin="flag"))
            for value, number in zip(values, numbers, strict=True)
        ],
    )


def central_sets(tree: Node) -> list[tuple[tuple[str, ...], Node]]:
    """The centres of a tree's ``uncertain`` values as values to set, for ``resolve``. Raises InputError with every
    problem of them; a node that is no mapping of texts is left to ``resolve`` to refuse.
    """
    node = tree.items().get("uncertain")

    def centre(item: tuple[str, Node]) -> tuple[tuple[str, ...], Node]:
        key, child = item
        value = parse_uncertain(key, str(child.value), f"{child.place}: {key}")
        return value.path, Node(value.written(value.centre), child.place, origin="flag")

    return each([item for item in (node.items() if node else {}).items() if isinstance(item[1].value, str)], centre)


def centred(scenario: Scenario) -> Scenario:
    """A scenario made in Python with its uncertain values at their centres. Raises InputError with every problem."""
    values = uncertain_values(scenario)
    return with_values(scenario, values, [value.centre for value in values]) if values else scenario
