"""The range of dualplan.model.closed_form for many machines at once: the same bounds, a column for each.

Floats instead of Fractions, so what is equal but for rounding (1e-12) counts as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.model.closed_form import Constraint, lower_bound, upper_bound

Floats = NDArray[np.float64]
ROUNDING = 1e-12


class RangeArrays(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals of P/D, one entry a machine: NaN for a bound that nothing sets; ``empty`` ones have no bounds.

    The constraints are the first that set a bound, by name; empty text where there is none. ``causes``: names of the
    constraints that exclude all P/D, and whether they do so by bounds that cross; ``cause``: which of these makes the
    interval empty, -1 where it is not.
    """

    lower: Floats
    upper: Floats
    lower_constraint: NDArray[np.str_]
    upper_constraint: NDArray[np.str_]
    empty: NDArray[np.bool_]
    cause: NDArray[np.int64]
    causes: tuple[tuple[tuple[str, ...], bool], ...]

    def contains(self, pd_ratio: Floats) -> NDArray[np.bool_]:
        """Whether each ratio lies inside its range, ends included."""
        above = ~(pd_ratio < self.lower * (1 - ROUNDING))
        return above & ~(pd_ratio > self.upper * (1 + ROUNDING)) & ~self.empty


def no_range(count: int) -> RangeArrays:
    """No bound at all, for ``count`` machines."""
    unknown = np.full((1, count), np.nan)
    return _ranges(unknown, unknown, [""], np.zeros((1, count), dtype=bool))


def feasible_ranges(
    constraints: Sequence[Constraint], prefill_storage: Any, decode_storage: Any, count: int
) -> RangeArrays:
    """``feasible_range`` for ``count`` machines; capacities and storage rates are arrays or plain numbers [B/s]."""
    lowers, uppers = (np.full((len(constraints) + 1, count), np.nan) for _ in range(2))
    never = np.zeros((len(constraints) + 1, count), dtype=bool)
    for row, c in enumerate(constraints):
        capacity = np.broadcast_to(np.asarray(c.capacity, dtype=float), count)
        arguments = (capacity, prefill_storage, decode_storage, float(c.prefill_share), float(c.decode_share))
        own, other = (
            (prefill_storage * arguments[3], decode_storage * arguments[4])
            if c.side == "prefill"
            else (decode_storage * arguments[4], prefill_storage * arguments[3])
        )
        room, slack = capacity - own, ROUNDING * capacity
        moves = np.broadcast_to(np.asarray(other > 0), count)
        holds = room > slack
        never[row] = (room < -slack) | (moves & ~holds)
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = lower_bound(*arguments) if c.side == "prefill" else upper_bound(*arguments)
        (lowers if c.side == "prefill" else uppers)[row] = np.where(moves & holds, bound, np.nan)
    return _ranges(lowers, uppers, [*(c.name for c in constraints), ""], never)


def _ranges(lowers: Floats, uppers: Floats, names: list[str], never: NDArray[np.bool_]) -> RangeArrays:
    """The tightest bounds of all rows; the last row is empty and stands for no bound. ``never``: rows that hold for no
    P/D.
    """
    label = np.array(names)
    falls, rises = np.where(np.isnan(lowers), -np.inf, lowers), np.where(np.isnan(uppers), np.inf, uppers)
    low, high = falls.max(axis=0), rises.min(axis=0)
    at_low = np.where(np.isinf(low), len(names) - 1, (falls >= low * (1 - ROUNDING)).argmax(axis=0))
    at_high = np.where(np.isinf(high), len(names) - 1, (rises <= high * (1 + ROUNDING)).argmax(axis=0))
    with np.errstate(invalid="ignore"):
        empty = never.any(axis=0) | (low * (1 - ROUNDING) > high)
    cause, causes = _causes(names, empty, never, at_low, at_high)
    return RangeArrays(
        lower=np.where(np.isinf(low) | empty, np.nan, low),
        upper=np.where(np.isinf(high) | empty, np.nan, high),
        lower_constraint=np.where(empty, "", label[at_low]),
        upper_constraint=np.where(empty, "", label[at_high]),
        empty=empty,
        cause=cause,
        causes=causes,
    )


def _causes(
    names: list[str],
    empty: NDArray[np.bool_],
    never: NDArray[np.bool_],
    at_low: NDArray[np.int64],
    at_high: NDArray[np.int64],
) -> tuple[NDArray[np.int64], tuple[tuple[tuple[str, ...], bool], ...]]:
    """What makes each interval empty."""
    cause = np.full(len(empty), -1)
    at = np.flatnonzero(empty)
    if not len(at):
        return cause, ()
    rows = never[:, at].T.copy()
    crossing = np.flatnonzero(~rows.any(axis=1))
    rows[crossing, at_low[at[crossing]]] = rows[crossing, at_high[at[crossing]]] = True
    crosses = np.isin(np.arange(len(at)), crossing)
    kinds, which = np.unique(np.column_stack([rows, crosses]), axis=0, return_inverse=True)
    cause[at] = which.ravel()
    return cause, tuple(
        (tuple(name for name, here in zip(names, kind, strict=True) if here), crosses)
        for *kind, crosses in kinds.tolist()
    )
