"""What is wrong with a lane's setting, and settings that guarantee it a floor."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import msgspec

from dualplan.flow.arbitration import guaranteed
from dualplan.spec.qos import ClassTable, LaneTables, Setting, TableEntries


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A setting and the share that it guarantees to the lane it was made for."""

    setting: Setting
    guaranteed: Fraction


def high_lanes_in_low_table(tables: LaneTables, lane: int) -> tuple[int, ...]:
    """Lanes other than ``lane`` with weight in both tables, ascending."""
    high = {other for other, weight in tables.high if weight}
    return tuple(sorted({other for other, weight in tables.low if weight and other in high and other != lane}))


def dilution(tables: LaneTables, lane: int, *, mtu: int = 4096) -> Fraction | None:
    """Factor by which a lane's guarantee would grow if the lanes of the high table left the low one.

    The published setting has its collective lanes in both tables, which costs its KV lane a factor of 10. None if the
    lane is guaranteed nothing now.
    """
    now = guaranteed(tables, lane, mtu=mtu)
    return guaranteed(_undiluted(tables, lane), lane, busy=tables.lanes(), mtu=mtu) / now if now else None


def settings_for_floor(setting: Setting, lane: int, floor: Fraction, *, mtu: int = 4096) -> list[Suggestion]:
    """Settings near ``setting`` that guarantee ``lane`` at least ``floor`` while all its other lanes are backlogged.

    InfiniBand: the other lanes keep their weights in the high table and the limit does not rise. First the low table
    without the lanes of the high one, then the low table as it is, each with the largest limit that will do. Only if
    neither will do, a larger weight in the low table; only if that will not do, a weight in the high table as well.
    RoCE: all classes on ETS with whole per cents, at least 1 for every class in use. Every setting has been checked
    through ``guaranteed``. Empty if none of these reaches the floor.
    """
    if isinstance(setting, ClassTable):
        classes = _classes_for_floor(setting, lane, floor)
        return [Suggestion(setting=classes, guaranteed=guaranteed(classes, lane))] if classes else []

    busy = tuple(other for other in setting.lanes() if other != lane)

    def reached(tables: LaneTables) -> Fraction:
        return guaranteed(tables, lane, busy=busy, mtu=mtu)

    def largest_limit(tables: LaneTables) -> LaneTables | None:
        limits = range(setting.high_limit, -1, -1)
        candidates = (msgspec.structs.replace(tables, high_limit=limit) for limit in limits)
        return next((tables for tables in candidates if reached(tables) >= floor), None)

    def least_weight(weighted: Callable[[int], LaneTables]) -> LaneTables | None:
        heaviest = largest_limit(weighted(255))
        if heaviest is None:
            return None
        limit = heaviest.high_limit
        candidates = (msgspec.structs.replace(weighted(weight), high_limit=limit) for weight in range(1, 256))
        return next(tables for tables in candidates if reached(tables) >= floor)

    undiluted = _undiluted(setting, lane)

    def heavier(weight: int) -> LaneTables:
        return msgspec.structs.replace(undiluted, low=_with_weight(undiluted.low, lane, weight))

    def in_both(weight: int) -> LaneTables:
        return msgspec.structs.replace(heavier(255), high=_with_weight(setting.high, lane, weight))

    found = [largest_limit(undiluted), largest_limit(setting)]
    if not any(found):
        found = [least_weight(heavier) or least_weight(in_both)]
    tables = list(dict.fromkeys(tables for tables in found if tables is not None))
    return [Suggestion(setting=each, guaranteed=reached(each)) for each in tables]


def _with_weight(table: TableEntries, lane: int, weight: int) -> TableEntries:
    """The table with one entry for ``lane``, where its first was or at the end."""
    place = next((index for index, (other, _) in enumerate(table) if other == lane), len(table))
    before = tuple(entry for entry in table[:place] if entry[0] != lane)
    after = tuple(entry for entry in table[place:] if entry[0] != lane)
    return (*before, (lane, weight), *after)


def _undiluted(tables: LaneTables, lane: int) -> LaneTables:
    """The low table without the lanes of the high one, and with weight for ``lane``."""
    leave = high_lanes_in_low_table(tables, lane)
    low = tuple((other, weight) for other, weight in tables.low if weight and other not in leave)
    if lane not in {other for other, _ in low}:
        low = (*low, (lane, 64))
    return msgspec.structs.replace(tables, low=low)


def _classes_for_floor(table: ClassTable, lane: int, floor: Fraction) -> ClassTable | None:
    others = {traffic.number: traffic.bandwidth or 0 for traffic in table.classes if traffic.number in table.lanes()}
    own = others.pop(lane, None)
    wanted = max(1, -(-100 * floor.numerator // floor.denominator))
    spare = 100 - wanted - len(others)
    if own is None or spare < 0:
        return None
    total = sum(others.values())
    weights = {
        number: 1 + (spare * bandwidth // total if total else spare // len(others))
        for number, bandwidth in others.items()
    }
    weights[lane] = 100 - sum(weights.values())
    classes = tuple(
        msgspec.structs.replace(traffic, selection="ets", bandwidth=weights.get(traffic.number, 0))
        for traffic in table.classes
    )
    found = msgspec.structs.replace(table, classes=classes)
    return found if guaranteed(found, lane) >= floor else None
