"""Who gets how much of a link whose traffic is kept in lanes: InfiniBand VL arbitration, RoCE ETS and strict classes.

Knows lanes, weights and packet sizes, and nothing of what they carry.

**InfiniBand** (IBA 1.4, section 7.6.9). A turn of an entry (lane, w) of a table sends ceil(64 w / S) packets of the
lane's size S. The high table sends until 4096 * high_limit bytes are gone (limit 0: one packet; 255: for ever), then
one packet of the low table may go and the count restarts. What one lane leaves, the others may take. With d_i the load
offered on lane i as a fraction of the link (backlogged: no bound), this module returns the shares x_i for which

    x_i <= d_i,  sum x_i <= 1,  and sum x_i = 1 if some x_i < d_i                       (work-conserving)
    x_i = S_i (rh qh_i + rl ql_i)          for lanes with x_i < d_i                     (weighted rounds)
    x_i = d_i <= S_i (rh qh_i + rl ql_i)   for the others
    bytes of the high table = B * packets of the low table,  while both tables have a lane with x_i < d_i

where qh_i and ql_i are the packets of lane i in a round of the high and the low table, rh and rl the rounds per byte of
link, and B the bytes of the high table between two packets of the low one. For packets of one size B = n S with
n = max(1, ceil(4096 limit / S)), so the low table has the published fraction 1 / (n + 1). For unequal sizes B is the
mean over the cycle into which the bursts of a round fall.

Exact, and confirmed packet by packet in the tests: all lanes backlogged, whatever their sizes; partial loads where the
lanes of the high table have one packet size and no partly loaded lane has weight in both tables. Estimates otherwise: a
partly loaded lane in both tables is taken to be served by each in proportion to what that table offers it, and B is
taken as if all lanes of the high table were backlogged, which errs by less than one packet a burst.

**RoCE** (IEEE 802.1Qaz). Strict classes go first, the higher number before the lower. ETS classes share what is left by
weight, counted in bytes; those of weight 0 get what the weighted ones leave. ``vendor`` is taken as the mlx5 driver
programs it: one group above the strict classes, with equal weights.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from itertools import accumulate

import msgspec

from dualplan.errors import InputError
from dualplan.spec.qos import ClassTable, LaneTables, Setting, TableEntries

LIMIT_UNIT_BYTES = 4096
WEIGHT_UNIT_BYTES = 64
NO_LIMIT = 255

Load = float | Fraction
_ZERO = Fraction(0)


def shares(
    setting: Setting,
    *,
    backlogged: Collection[int] = (),
    loads: Mapping[int, Load] | None = None,
    mtu: int = 4096,
    packet_bytes: Mapping[int, int] | None = None,
) -> dict[int, float]:
    """Share of the link that each backlogged or loaded lane gets, ascending by lane.

    ``loads``: fraction of the link offered on a lane. ``mtu`` [B]: packet size of the lanes that ``packet_bytes`` does
    not name (without effect on RoCE). A lane without weight gets 0. Raises InputError for lanes that cannot exist,
    loads outside 0 .. 1, and lanes both backlogged and loaded.
    """
    result = exact_shares(setting, backlogged=backlogged, loads=loads, mtu=mtu, packet_bytes=packet_bytes)
    return {lane: float(share) for lane, share in result.items()}


def exact_shares(
    setting: Setting,
    *,
    backlogged: Collection[int] = (),
    loads: Mapping[int, Load] | None = None,
    mtu: int = 4096,
    packet_bytes: Mapping[int, int] | None = None,
) -> dict[int, Fraction]:
    """``shares`` as fractions. A load given as a float counts as the decimal number that it prints as."""
    demands = _demands(setting, backlogged, loads or {})
    if isinstance(setting, ClassTable):
        result = _class_shares(setting, demands)
    else:
        result = _lane_shares(setting, demands, _sizes(demands, mtu, packet_bytes or {}))
    return dict(sorted(result.items()))


def guaranteed(
    setting: Setting,
    lane: int,
    *,
    busy: Collection[int] | None = None,
    mtu: int = 4096,
    packet_bytes: Mapping[int, int] | None = None,
) -> Fraction:
    """Share that a lane gets while the ``busy`` lanes are backlogged; None: all others that traffic can use."""
    others = setting.lanes() if busy is None else busy
    return exact_shares(setting, backlogged={lane, *others}, mtu=mtu, packet_bytes=packet_bytes)[lane]


def kv_share_available(
    setting: Setting,
    kv_lane: int,
    collective_lanes: Collection[int],
    collective_load: Load,
    *,
    mtu: int = 4096,
) -> Load:
    """Share of a link that KV traffic can have while collectives offer ``collective_load`` of it on their lanes.

    max(what the collectives leave, what the arbiter guarantees while all their lanes are backlogged). 0 for a KV lane
    without weight. A Fraction for a load given as one, else a float.
    """
    floor = guaranteed(setting, kv_lane, busy=collective_lanes, mtu=mtu)
    if kv_lane not in setting.lanes():
        return floor if isinstance(collective_load, Fraction) else float(floor)
    if isinstance(collective_load, Fraction):
        return max(1 - collective_load, floor)
    return max(1.0 - collective_load, float(floor))


def _demands(setting: Setting, backlogged: Collection[int], loads: Mapping[int, Load]) -> dict[int, Fraction | None]:
    """Lane -> offered load, None for backlogged."""
    what, last = ("VL", 14) if isinstance(setting, LaneTables) else ("TC", 7)
    demands: dict[int, Fraction | None] = dict.fromkeys(backlogged)
    for lane, load in loads.items():
        if not 0 <= load <= 1:
            raise InputError("loads", f"a load of {float(load):g} on {what}{lane} is not in 0 .. 1")
        if lane in demands:
            raise InputError("loads", f"{what}{lane} is backlogged and has a load as well", "give one of them")
        demands[lane] = load if isinstance(load, Fraction) else Fraction(repr(float(load)))
    for lane in demands:
        if not 0 <= lane <= last:
            raise InputError("lanes", f"{what}{lane} does not exist", f"{what}0 to {what}{last}")
    return demands


def _sizes(lanes: Iterable[int], mtu: int, packet_bytes: Mapping[int, int]) -> dict[int, int]:
    sizes = {lane: packet_bytes.get(lane, mtu) for lane in lanes}
    for lane, size in sizes.items():
        if size < 1:
            raise InputError("packet_bytes", f"{size} bytes on VL{lane} are no packet")
    return sizes


# ---------------------------------------------------------------- InfiniBand


class _Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes with something to send and weight to send it with.

    ``high``, ``low``: packets of a lane in a round of that table. ``measure``: what a packet of a lane counts for in
    the high table, and ``burst`` how much of that lies between two packets of the low one: bytes, but packets for limit
    0. ``burst`` is None if there is no limit.
    """

    sizes: dict[int, int]
    high: dict[int, int]
    low: dict[int, int]
    measure: dict[int, int]
    burst: Fraction | None


def _turn(weight: int, size: int) -> int:
    """Packets of a turn."""
    return -(-WEIGHT_UNIT_BYTES * weight // size)


def _round(table: TableEntries, sizes: Mapping[int, int]) -> dict[int, int]:
    """Packets of each lane in a round of a table."""
    packets: dict[int, int] = {}
    for lane, weight in table:
        if weight and lane in sizes:
            packets[lane] = packets.get(lane, 0) + _turn(weight, sizes[lane])
    return packets


def _lanes(tables: LaneTables, sizes: dict[int, int]) -> _Lanes:
    burst = None
    if tables.high_limit == 0:
        burst = Fraction(1)
    elif tables.high_limit != NO_LIMIT:
        burst = _burst_bytes(tables, sizes)
    return _Lanes(
        sizes=sizes,
        high=_round(tables.high, sizes),
        low=_round(tables.low, sizes),
        measure=dict.fromkeys(sizes, 1) if tables.high_limit == 0 else sizes,
        burst=burst,
    )


def _lane_shares(tables: LaneTables, demands: dict[int, Fraction | None], sizes: dict[int, int]) -> dict[int, Fraction]:
    lanes = _lanes(tables, {lane: sizes[lane] for lane, demand in demands.items() if demand != 0})
    hungry = lanes.high.keys() | lanes.low.keys()
    given: dict[int, Fraction] = {}
    by_high: dict[int, Fraction] = {}
    while True:
        high, low = _round_rates(lanes, hungry, given, by_high)
        offers_high = {lane: lanes.sizes[lane] * high * lanes.high.get(lane, 0) for lane in hungry}
        offers = {lane: offers_high[lane] + lanes.sizes[lane] * low * lanes.low.get(lane, 0) for lane in hungry}
        content = {lane: demand for lane in hungry if (demand := demands[lane]) is not None and demand <= offers[lane]}
        if not content:
            return dict.fromkeys(demands, _ZERO) | offers | given
        # What a content lane leaves goes to the others of its table. Lanes of the low table first: with packets of
        # other sizes in their place the bursts of the high table get rarer, and only then is it known what that offers.
        content = {lane: demand for lane, demand in content.items() if lane not in lanes.high} or content
        given |= content
        by_high |= {lane: demand * offers_high[lane] / offers[lane] for lane, demand in content.items()}
        hungry -= content.keys()


def _round_rates(
    lanes: _Lanes, hungry: set[int], given: Mapping[int, Fraction], by_high: Mapping[int, Fraction]
) -> tuple[Fraction, Fraction]:
    """Rounds of the high and of the low table per byte of link.

    ``given``: shares of the lanes that get all they ask for, ``by_high``: what the high table serves of that. While
    both tables have hungry lanes, with capitals for a round of these and small letters for the given shares:

        rh A + a = burst (rl P + p)      what the high table counts = bursts, one for each packet of the low table
        rh H + rl L = left               bytes
    """
    size = lanes.sizes
    hungry_high, hungry_low = hungry & lanes.high.keys(), hungry & lanes.low.keys()
    H = sum(lanes.high[lane] * size[lane] for lane in hungry_high)
    L = sum(lanes.low[lane] * size[lane] for lane in hungry_low)
    left = 1 - sum(given.values(), _ZERO)
    if not H:
        return _ZERO, left / L if L else _ZERO
    if not L or lanes.burst is None:
        return left / H, _ZERO
    A = sum(lanes.high[lane] * lanes.measure[lane] for lane in hungry_high)
    P = sum(lanes.low[lane] for lane in hungry_low)
    a = sum((share * lanes.measure[lane] / size[lane] for lane, share in by_high.items()), _ZERO)
    p = sum(((share - by_high[lane]) / size[lane] for lane, share in given.items()), _ZERO)
    low = (left - H * (lanes.burst * p - a) / A) / (L + H * lanes.burst * P / A)
    high = (left - low * L) / H
    # where splits and bursts are estimates, the given shares may leave one table less than nothing
    return (_ZERO, left / L) if high < 0 else (left / H, _ZERO) if low < 0 else (high, low)


def _burst_bytes(tables: LaneTables, sizes: Mapping[int, int]) -> Fraction:
    """Mean bytes of the high table between two packets of the low one, while all lanes of ``sizes`` are backlogged.

    A burst is the shortest run of whole packets that reaches the limit. The round of the table is a fixed row of
    packets and a burst starts where the last one ended, so its starting points run into a cycle; the mean over it is
    exact.
    """
    limit = LIMIT_UNIT_BYTES * tables.high_limit
    row = [sizes[lane] for lane, weight in tables.high if lane in sizes for _ in range(_turn(weight, sizes[lane]))]
    if len(set(row)) <= 1:
        return Fraction(-(-limit // row[0]) * row[0] if row else limit)
    sums = [0, *accumulate(row)]
    lengths: dict[int, int] = {}
    start = 0
    while start not in lengths:
        rounds, rest = divmod(sums[start] + limit, sums[-1])
        end = bisect_left(sums, rest)
        lengths[start] = rounds * sums[-1] + sums[end] - sums[start]
        start = end % len(row)
    starts = list(lengths)
    cycle = starts[starts.index(start) :]
    return Fraction(sum(lengths[start] for start in cycle), len(cycle))


# ---------------------------------------------------------------- RoCE


def _groups(table: ClassTable) -> list[dict[int, int]]:
    """Classes with their weights, in the order in which the groups are served."""
    vendor = {traffic.number: 1 for traffic in table.classes if traffic.selection == "vendor"}
    strict = sorted((traffic.number for traffic in table.classes if traffic.selection == "strict"), reverse=True)
    ets = {traffic.number: traffic.bandwidth or 0 for traffic in table.classes if traffic.selection == "ets"}
    weighted = {number: weight for number, weight in ets.items() if weight}
    unweighted = dict.fromkeys(ets.keys() - weighted.keys(), 1)
    return [vendor, *({number: 1} for number in strict), weighted, unweighted]


def _class_shares(table: ClassTable, demands: dict[int, Fraction | None]) -> dict[int, Fraction]:
    result = dict.fromkeys(demands, _ZERO)
    left = Fraction(1)
    for group in _groups(table):
        hungry = {number: weight for number, weight in group.items() if number in demands}
        while hungry:
            offers = {number: left * weight / sum(hungry.values()) for number, weight in hungry.items()}
            content = {n: demand for n in hungry if (demand := demands[n]) is not None and demand <= offers[n]}
            served = content or offers
            result |= served
            left -= sum(served.values(), _ZERO)
            hungry = {number: weight for number, weight in hungry.items() if number not in served}
    return result
