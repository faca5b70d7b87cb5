"""The steady rate: the most turns per second over both read paths under every resource.

With X turns/s of which a share φ reads on the decode side, resource r is busy for ``X·((1-φ)·p_r + φ·d_r)`` seconds
a second, where
``p_r`` and ``d_r`` are the seconds that one turn of either path takes of it (its units over the capacity). So

    maximise X  subject to  X·((1-φ)·p_r + φ·d_r) <= 1 for all r,  0 <= φ <= 1,

a two-variable linear programme in X_p = (1-φ)X and X_d = φX. Since 1/X is the largest of lines in φ, it is solved by
walking down that convex, piecewise linear envelope: exact on Fractions, and finite because every step takes a new line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class Use(msgspec.Struct, frozen=True):
    """Seconds of a resource that one turn takes when read on the prefill and on the decode side."""

    name: str
    prefill: Any
    decode: Any

    def at(self, share: Any) -> Any:
        """Seconds a turn, with ``share`` of the turns read on the decode side."""
        return self.prefill + share * (self.decode - self.prefill)


class Rate(msgspec.Struct, frozen=True):
    """The optimum: turns/s (None if nothing limits), share of turns read on the decode side, index of the binding
    resource.
    """

    turns_per_s: Any
    decode_share: Any
    binding: int | None


def best_split(uses: Sequence[Use], *, both_paths: bool, balance: Sequence[int] = (), near_share: Any = None) -> Rate:
    """The highest rate and the split that reaches it.

    Where several splits reach the same rate: the one closest to ``near_share``, else the one at which the largest use
    of the resources ``balance`` (indices of the storage NICs) is smallest.
    """
    if not uses:
        return Rate(None, 0, None)
    if not both_paths:
        slowest = _highest(uses, 0)
        turns = _inverse(uses, slowest, 0)
        return Rate(turns, 0, None if turns is None else slowest)
    share = _lowest_point(uses, 0, 1)
    binding = _highest(uses, share)
    if binding is None or uses[binding].at(share) == 0:
        return Rate(None, share, None)
    storage = [uses[index] for index in balance]
    if storage or near_share is not None:
        low, high = _level(uses, uses[binding].at(share))
        if low <= high:
            # what limits the rate is full at every best split; others may be full just at the one that is chosen
            binding = _highest(uses, (low + high) / 2)
            wanted = _lowest_point(storage, 0, 1) if near_share is None else near_share
            share = min(max(wanted, low), high)
    return Rate(_inverse(uses, binding, share), share, binding)


def _highest(uses: Sequence[Use], share: Any) -> int | None:
    """Index of the most used resource; of equals, but for rounding, the first."""
    if not uses:
        return None
    values = [use.at(share) for use in uses]
    top = max(values)
    return next(i for i, value in enumerate(values) if value == top or value >= top * (1 - 1e-12))


def _inverse(uses: Sequence[Use], index: int | None, share: Any) -> Any:
    if index is None:
        return None
    seconds = uses[index].at(share)
    return 1 / seconds if seconds > 0 else None


def _lowest_point(uses: Sequence[Use], low: Any, high: Any) -> Any:
    """The share in low..high at which the largest use is smallest; of equals the lowest."""
    left = max(uses, key=lambda use: (use.at(low), use.decode - use.prefill))
    if left.decode - left.prefill >= 0:
        return low
    right = max(uses, key=lambda use: (use.at(high), use.prefill - use.decode))
    if right.decode - right.prefill < 0:
        return high
    for _ in range(len(uses) + 2):
        share = _crossing(left, right)
        top = max(use.at(share) for use in uses)
        if not top > left.at(share) or (isinstance(top, float) and top <= left.at(share) * (1 + 1e-14)):
            return share
        highest = max(uses, key=lambda use: use.at(share))
        if highest.decode - highest.prefill < 0:
            left = highest
        else:
            right = highest
    return share


def _crossing(left: Use, right: Use) -> Any:
    gap = left.prefill - right.prefill
    slopes = (right.decode - right.prefill) - (left.decode - left.prefill)
    return gap / slopes


def _level(uses: Sequence[Use], top: Any) -> tuple[Any, Any]:
    """The interval of shares at which no use exceeds ``top``."""
    low: Any = 0
    high: Any = 1
    slack = top * 1e-12 if isinstance(top, float) else 0
    for use in uses:
        slope = use.decode - use.prefill
        if use.at(low) > top + slack and slope < 0:
            low = max(low, (top - use.prefill) / slope)
        if use.at(high) > top + slack and slope > 0:
            high = min(high, (top - use.prefill) / slope)
    return low, high
