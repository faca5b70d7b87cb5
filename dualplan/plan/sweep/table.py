"""The answers of a sweep as a table: columns with one entry a point, and which points are chosen from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.errors import InputError, did_you_mean
from dualplan.plan.sweep.points import NODE_AXES, Block, Points


class Table:
    """The answers so far: named columns with one entry a point, None (NaN in columns of numbers) where unknown."""

    def __init__(self, points: Points, columns: Mapping[str, Any]) -> None:
        self.columns: dict[str, NDArray[Any]] = dict(columns)
        self.keys = tuple(columns)
        self.done = np.zeros(points.count, dtype=bool)

    def put(self, block: Block) -> None:
        """Take in the answers of a block."""
        for name, values in block.columns.items():
            if name in self.keys:
                continue
            values = np.asarray(values) if not isinstance(values, list) else _as_array(values)
            if name not in self.columns:
                number = values.dtype.kind == "f"
                self.columns[name] = np.full(
                    len(self.done), np.nan if number else None, dtype=None if number else object
                )
            column = self.columns[name]
            if column.dtype.kind == "f" and values.dtype.kind != "f":
                column = self.columns[name] = column.astype(object)
                column[column != column] = None
            if column.dtype == object and values.dtype.kind != "O":
                values = values.astype(object)
                values[(values == "") | (values != values)] = None
            column[block.positions] = values
        self.done[block.positions] = True

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Which points have no answer, for the reason in column ``error``."""
        errors = self.columns.get("error")
        if errors is None:
            return np.zeros(len(self.done), dtype=bool)
        return np.array([error is not None for error in errors.tolist()], dtype=bool)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which points have one."""
        return self.done & ~self.failed

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Which points are feasible."""
        found = self.columns.get("feasible")
        if found is None:
            return np.zeros(len(self.done), dtype=bool)
        return np.array([bool(one) for one in found.tolist()], dtype=bool)

    def errors(self) -> list[str]:
        """Why points failed, in the order of the points."""
        return [str(error) for error in self.columns["error"][self.failed]] if "error" in self.columns else []


def _as_array(values: list[Any]) -> NDArray[Any]:
    """Numbers, and None between them, as floats; anything else, and only None, as it is."""
    if all(value is None or type(value) is float for value in values) and any(value is not None for value in values):
        return np.array([np.nan if value is None else value for value in values], dtype=float)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def key_columns(points: Points) -> dict[str, NDArray[Any]]:
    """What identifies a point: node counts, their ratio and sum, and the other varied keys in their order."""
    prefill, decode = points.prefill_nodes, points.decode_nodes
    columns: dict[str, NDArray[Any]] = {"prefill_nodes": prefill, "decode_nodes": decode, "pd_ratio": prefill / decode}
    for axis, index in zip(points.axes, points.indices, strict=True):
        if axis.key not in NODE_AXES:
            column = np.empty(len(axis.values), dtype=object)
            column[:] = [number_or_text(value) for value in axis.values]
            columns[axis.key] = column[index]
    return columns


def number_or_text(text: str) -> Any:
    """A plain number as int or float, anything else as text."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if np.isfinite(value) and text.isascii() and "_" not in text else text
    return text


class Goal(msgspec.Struct, frozen=True):
    """A column and whether more or less of it is better."""

    column: str
    less: bool


def goal(text: str, table: Table, flag: str) -> Goal:
    """``KEY``, ``-KEY``, ``KEY:min`` or ``KEY:max``; the last part of a key is enough where only one ends so.

    Raises InputError for a key that is no column of numbers.
    """
    name, less = text.strip(), False
    if name.startswith("-"):
        name, less = name[1:], True
    for ending, is_less in ((":min", True), (":max", False)):
        if name.endswith(ending):
            name, less = name.removesuffix(ending), is_less
    found = [name] if name in table.columns else [key for key in table.columns if key.endswith("." + name)]
    numbers = [key for key, column in table.columns.items() if _is_number(column)]
    if len(found) != 1:
        hint = "one of " + ", ".join(found) if found else did_you_mean(name, numbers) or "known: " + ", ".join(numbers)
        raise InputError(flag, f'"{name[:60]}" is not a column', hint)
    if found[0] not in numbers:
        raise InputError(flag, f"{found[0]} is not a number", "known: " + ", ".join(numbers))
    return Goal(found[0], less)


def _is_number(column: NDArray[Any]) -> bool:
    return column.dtype.kind in "if" or any(
        isinstance(value, int | float) and not isinstance(value, bool) for value in column[:100]
    )


def _heights(table: Table, one: Goal) -> NDArray[np.float64]:
    """A column as floats of which more is better; NaN where there is no number."""
    column = table.columns[one.column]
    if column.dtype == object:
        column = np.array([value if isinstance(value, int | float) else np.nan for value in column], dtype=float)
    return -column.astype(float) if one.less else column.astype(float)


def _candidates(table: Table, values: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
    """Points with all values: the feasible ones, or all of them if none is."""
    have = table.done & ~np.any([np.isnan(value) for value in values], axis=0)
    feasible = have & table.feasible
    return np.flatnonzero(feasible if feasible.any() else have)


def ranked(table: Table, one: Goal) -> NDArray[np.int64]:
    """Points from the best on; of equals the first. Only feasible ones where there are any."""
    values = _heights(table, one)
    found = _candidates(table, [values])
    return found[np.argsort(-values[found], kind="stable")]


def pareto(table: Table, goals: Sequence[Goal]) -> NDArray[np.int64]:
    """Points that no other point beats in one column without losing in another; in the order of the first column.

    Only feasible points count where there are any.
    """
    values = [_heights(table, one) for one in goals]
    found = _candidates(table, values)
    heights = np.stack([value[found] for value in values])
    order = np.lexsort((found, *(-row for row in heights[::-1])))
    front: list[int] = []
    for index in order.tolist():
        point = heights[:, index : index + 1]
        rivals = heights[:, front]
        beaten = ((rivals >= point).all(axis=0) & (rivals > point).any(axis=0)).any()
        if not beaten:
            front.append(index)
    return found[front]


def choose(table: Table, best: str | None, pareto_keys: str | None, limit: int | None) -> tuple[NDArray[np.int64], str]:
    """Positions of the finished points that are asked for, in their order, and how they were chosen in words.

    ``best``: a goal, ``pareto_keys``: several with commas between them. Raises InputError for what is no column.
    """
    of = "" if table.feasible.any() else ", of points that are not feasible"
    if best is not None:
        one = goal(best, table, "--best")
        order = ranked(table, one)[: limit or 1]
        return order, f"{'Least' if one.less else 'Most'} {one.column}{of}"
    if pareto_keys is not None:
        goals = [goal(text, table, "--pareto") for text in pareto_keys.split(",")]
        if len(goals) < 2:
            raise InputError("--pareto", "compares two columns or more", "such as turns_per_s,-gpus; or --best KEY")
        names = " and ".join(f"{'least' if one.less else 'most'} {one.column}" for one in goals)
        return pareto(table, goals)[:limit], f"No other point has both {names}{of}"
    return np.flatnonzero(table.done)[:limit], ""
