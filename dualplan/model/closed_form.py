"""P/D ratios at which no link binds before the storage NICs do, in closed form.

Let every storage NIC deliver at its capacity: S_p on each prefill node and S_d on each decode node. A prefill node then
carries the traffic of S_p bytes of prefill-read hits and of S_d/ρ bytes of decode-read hits, a decode node that of
ρ·S_p and of S_d. With ``a_p`` and ``a_d`` the bytes that a byte of hit puts on a resource under either read path (from
the step table), and C its capacity:

    a prefill resource holds iff  S_p·a_p + S_d·a_d/ρ <= C,  so  ρ >= S_d·a_d / (C - S_p·a_p)
    a decode resource holds iff   ρ·S_p·a_p + S_d·a_d <= C,  so  ρ <= (C - S_d·a_d) / (S_p·a_p)

With one compute NIC of rate B for each of g GPUs, S = s·B, and hit bytes only, these are the published bounds
(DualPath, section 4):
ρ >= s/(g-s), ρ <= (g-2s)/s, ρ <= (g-s)/(2s), ρ <= (M/(sB) - 3)/2, and 2s/g <= 1, which the paper states as s <= g
although it needs s <= g/2.

The functions are plain arithmetic: floats, arrays, Fractions and symbols.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec


def prefill_side_load(
    pd_ratio: Any, prefill_storage: Any, decode_storage: Any, prefill_share: Any, decode_share: Any
) -> Any:
    """Load of a prefill node's resource with all storage NICs busy [B/s]: S_p·a_p + S_d·a_d/ρ."""
    return prefill_storage * prefill_share + decode_storage * decode_share / pd_ratio


def decode_side_load(
    pd_ratio: Any, prefill_storage: Any, decode_storage: Any, prefill_share: Any, decode_share: Any
) -> Any:
    """Load of a decode node's resource with all storage NICs busy [B/s]: ρ·S_p·a_p + S_d·a_d."""
    return pd_ratio * prefill_storage * prefill_share + decode_storage * decode_share


def lower_bound(capacity: Any, prefill_storage: Any, decode_storage: Any, prefill_share: Any, decode_share: Any) -> Any:
    """Lowest ρ at which a prefill node's resource holds: S_d·a_d / (C - S_p·a_p). Valid while C > S_p·a_p."""
    return decode_storage * decode_share / (capacity - prefill_storage * prefill_share)


def upper_bound(capacity: Any, prefill_storage: Any, decode_storage: Any, prefill_share: Any, decode_share: Any) -> Any:
    """Highest ρ at which a decode node's resource holds: (C - S_d·a_d) / (S_p·a_p). Valid where a_p > 0."""
    return (capacity - decode_storage * decode_share) / (prefill_storage * prefill_share)


def pair_traffic_prefill_read(storage: Any, decode_nodes: Any, prefill_gpus: Any, decode_gpus: Any) -> Any:
    """T_p, traffic between one prefill and one decode GPU from prefill-side reads [B/s]: S_p / (D·g_p·g_d)."""
    return storage / (decode_nodes * prefill_gpus * decode_gpus)


def pair_traffic_decode_read(storage: Any, prefill_nodes: Any, prefill_gpus: Any, decode_gpus: Any) -> Any:
    """T_c, traffic between one decode and one prefill GPU from decode-side reads [B/s]: S_d / (P·g_p·g_d)."""
    return storage / (prefill_nodes * prefill_gpus * decode_gpus)


class Constraint(msgspec.Struct, frozen=True):
    """A resource of one node: its capacity [B/s], and the bytes on it for each byte of hit read on either side."""

    name: str
    side: Literal["prefill", "decode"]
    capacity: Any
    prefill_share: Any
    decode_share: Any


class Range(msgspec.Struct, frozen=True):
    """An interval of P/D. A bound that nothing sets is None.

    An empty one has no bounds and names what excludes it: constraints that hold for no P/D at all, else the two that
    exclude each other, and then ``crossing`` are the lower and the upper bound that these set.
    """

    lower: Any = None
    upper: Any = None
    lower_constraints: tuple[str, ...] = ()
    upper_constraints: tuple[str, ...] = ()
    empty_because: tuple[str, ...] = ()
    crossing: tuple[Any, Any] | None = None

    def contains(self, pd_ratio: Any) -> bool:
        """Whether a ratio lies inside, ends included."""
        return (
            not self.empty_because
            and (self.lower is None or self.lower <= pd_ratio)
            and (self.upper is None or pd_ratio <= self.upper)
        )


def feasible_range(constraints: Iterable[Constraint], prefill_storage: Any, decode_storage: Any) -> Range:
    """The P/D ratios at which all constraints hold while storage delivers these rates a node [B/s].

    Constraints are given in the order in which ties are named. Numbers only (floats or Fractions): bounds are compared.
    """
    lowers: dict[str, Any] = {}
    uppers: dict[str, Any] = {}
    never: list[str] = []
    for c in constraints:
        arguments = (c.capacity, prefill_storage, decode_storage, c.prefill_share, c.decode_share)
        if c.side == "prefill":
            falls = decode_storage * c.decode_share
            room = c.capacity - prefill_storage * c.prefill_share
            if room < 0 or (room == 0 and falls > 0):
                never.append(c.name)
            elif falls > 0:
                lowers[c.name] = lower_bound(*arguments)
        else:
            rises = prefill_storage * c.prefill_share
            room = c.capacity - decode_storage * c.decode_share
            if room < 0 or (room == 0 and rises > 0):
                never.append(c.name)
            elif rises > 0:
                uppers[c.name] = upper_bound(*arguments)
    if never:
        return Range(empty_because=tuple(never))
    lower = max(lowers.values()) if lowers else None
    upper = min(uppers.values()) if uppers else None
    at_lower = tuple(name for name, bound in lowers.items() if bound == lower)
    at_upper = tuple(name for name, bound in uppers.items() if bound == upper)
    if lower is not None and upper is not None and lower > upper:
        return Range(empty_because=(at_lower[0], at_upper[0]), crossing=(lower, upper))
    return Range(lower, upper, at_lower, at_upper)
