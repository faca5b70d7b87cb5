"""What to know about a lane's setting, and settings that guarantee it a floor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction

import msgspec

from dualplan.flow.arbitration import NO_LIMIT, exact_shares, guaranteed
from dualplan.spec.qos import ClassTable, LaneTables, QosFile, Remark, Setting, TableEntries, listed, service_levels_of


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A setting and the share that it guarantees to the lane it was made for."""

    setting: Setting
    guaranteed: Fraction


def high_lanes_in_low_table(tables: LaneTables, lane: int) -> tuple[int, ...]:
    """Lanes other than ``lane`` with weight in both tables, ascending."""
    high = {other for other, weight in tables.high if weight}
    return tuple(sorted({other for other, weight in tables.low if weight and other in high and other != lane}))


def dilution(
    tables: LaneTables, lane: int, *, mtu: int = 4096, packet_bytes: Mapping[int, int] | None = None
) -> Fraction | None:
    """Factor by which a lane's guarantee would grow if the lanes of the high table left the low one.

    The published setting has its collective lanes in both tables, which costs its KV lane a factor of 10. None if the
    lane is guaranteed nothing now.
    """
    now = guaranteed(tables, lane, mtu=mtu, packet_bytes=packet_bytes)
    if not now:
        return None
    apart = _undiluted(tables, lane)
    return guaranteed(apart, lane, busy=tables.lanes(), mtu=mtu, packet_bytes=packet_bytes) / now


def settings_for_floor(
    setting: Setting,
    lane: int,
    floor: Fraction,
    *,
    mtu: int = 4096,
    packet_bytes: Mapping[int, int] | None = None,
) -> list[Suggestion]:
    """Settings near ``setting`` that guarantee ``lane`` at least ``floor`` while all its other lanes are backlogged.

    InfiniBand: the other lanes keep their weights in the high table and the limit does not rise. First the low table
    without the lanes of the high one, then the low table as it is, each with the largest limit that will do. Only if
    neither will do, a larger weight in the low table; only if that will not do, a weight in the high table as well.
    RoCE: the classes in use on ETS with whole per cents, at least 1 for each, and no less for ``lane`` than it has now
    if that is possible. Every setting has been checked through ``guaranteed``. Empty if none reaches the floor.
    """
    if isinstance(setting, ClassTable):
        classes = _classes_for_floor(setting, lane, floor)
        return [Suggestion(setting=classes, guaranteed=guaranteed(classes, lane))] if classes else []

    if lane >= setting.operational_lanes:
        return []
    busy = tuple(other for other in setting.lanes() if other != lane)

    def reached(tables: LaneTables) -> Fraction:
        return guaranteed(tables, lane, busy=busy, mtu=mtu, packet_bytes=packet_bytes)

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
    before = {traffic.number: traffic.bandwidth or 0 for traffic in table.classes if traffic.number in table.lanes()}
    others = {number: weight for number, weight in before.items() if number != lane}
    most, wanted = 100 - len(others), -(-100 * floor.numerator // floor.denominator)
    if lane not in before or wanted > most:
        return None
    weights = {lane: max(wanted, min(before[lane], most)) if others else 100}
    spare, total = most - weights[lane], sum(others.values())
    for number, weight in others.items():
        weights[number] = 1 + (spare * weight // total if total else spare // len(others))
    if others:
        # what rounding leaves goes to the class that had the most
        weights[max(others, key=lambda number: others[number])] += 100 - sum(weights.values())
    classes = tuple(
        msgspec.structs.replace(traffic, selection="ets", bandwidth=weights[traffic.number])
        if traffic.number in weights
        else traffic
        for traffic in table.classes
    )
    found = msgspec.structs.replace(table, classes=classes)
    return found if guaranteed(found, lane) >= floor else None


# ---------------------------------------------------------------- findings


def findings(
    file: QosFile, lane: int | None, *, mtu: int = 4096, packet_bytes: Mapping[int, int] | None = None
) -> list[Remark]:
    """What whoever relies on the setting should know, about the lane of KV traffic where there is one."""
    if isinstance(file.setting, ClassTable):
        return _order_findings(file.setting) if lane is None else _class_findings(file.setting, lane)
    found = _limit_findings(file.setting, mtu, packet_bytes)
    return found if lane is None else [*_lane_findings(file, file.setting, lane, mtu, packet_bytes), *found]


def _lane_findings(
    file: QosFile, tables: LaneTables, lane: int, mtu: int, packet_bytes: Mapping[int, int] | None
) -> list[Remark]:
    if lane not in tables.lanes():
        absent = "is not operational" if lane >= tables.operational_lanes else "has no weight in either table"
        return [Remark(code="kv_without_weight", text=f"VL{lane} {absent}: KV traffic on it is never served.")]
    found = []
    high = sorted({other for other, weight in tables.high if weight})
    both = high_lanes_in_low_table(tables, lane)
    factor = dilution(tables, lane, mtu=mtu, packet_bytes=packet_bytes)
    if lane in high and len(high) > 1:
        rivals = _lanes_text([other for other in high if other != lane])
        text = f"VL{lane} sits in the high table beside {rivals}: KV is not kept behind collectives there."
        found.append(Remark(code="kv_in_high_table", text=text))
    if both and factor is not None and factor > 1:
        sit = "sits" if len(both) == 1 else "sit"
        text = f"{_lanes_text(both, True)} also {sit} in the low table: that dilutes the KV share "
        found.append(Remark(code="diluted_low_table", text=f"{text}{float(factor):.3g}-fold."))
    if file.service_levels and not service_levels_of(file, lane):
        text = f"No service level is mapped to VL{lane}: no traffic can reach it."
        found.append(Remark(code="no_service_level", text=text))
    return found


def _limit_findings(tables: LaneTables, mtu: int, packet_bytes: Mapping[int, int] | None) -> list[Remark]:
    high = {other for other, weight in tables.high if weight}
    low_only = [other for other in tables.lanes() if other not in high]
    if not high or not low_only:
        return []
    if tables.high_limit == NO_LIMIT:
        text = (
            f"Limit 255 means no limit: {_lanes_text(low_only)} get{'s' if len(low_only) == 1 else ''} nothing while "
        )
        return [Remark(code="limit_255", text=f"{text}{_lanes_text(sorted(high))} {_are(high)} busy.")]
    if tables.high_limit == 0:
        all_busy = exact_shares(tables, backlogged=tables.lanes(), mtu=mtu, packet_bytes=packet_bytes)
        kept = float(100 * sum(share for other, share in all_busy.items() if other in high))
        keep = f"{_lanes_text(sorted(high))} {'keeps' if len(high) == 1 else 'keep'} {kept:.3g} %"
        text = f"Limit 0 lets a packet of the low table go after every one of the high: {keep} while all are busy."
        return [Remark(code="limit_0", text=text)]
    return []


def _order_findings(table: ClassTable) -> list[Remark]:
    first = [
        traffic.number for traffic in table.classes if traffic.selection != "ets" and traffic.number in table.lanes()
    ]
    if not first or len(first) == len(table.classes):
        return []
    text = (
        f"{listed(f'TC{number}' for number in first)} {'goes' if len(first) == 1 else 'go'} first (strict or vendor): "
    )
    return [Remark(code="strict_first", text=text + "the ETS classes share what is left by weight.")]


def _class_findings(table: ClassTable, lane: int) -> list[Remark]:
    by_number = {traffic.number: traffic for traffic in table.classes}
    own = by_number.get(lane)
    if own is None:
        return [
            Remark(code="kv_without_weight", text=f"TC{lane} is not among the classes: KV has no share of its own.")
        ]
    found = []
    if lane not in table.lanes():
        found.append(Remark(code="no_priority", text=f"No priority is mapped to TC{lane}: no traffic can reach it."))
    before = classes_before(table, lane)
    if before:
        goes = "goes" if len(before) == 1 else "go"
        text = f"{listed(f'TC{number}' for number in before)} {goes} before TC{lane} (strict or vendor): KV gets what "
        found.append(
            Remark(code="strict_before_kv", text=f"{text}{'it leaves' if len(before) == 1 else 'they leave'}.")
        )
    if own.selection == "ets" and not own.bandwidth:
        text = f"TC{lane} has no ETS weight: it gets what the weighted classes leave."
        found.append(Remark(code="kv_without_weight", text=text))
    return found


def classes_before(table: ClassTable, lane: int) -> tuple[int, ...]:
    """Strict and vendor classes in use that are served before ``lane``, ascending."""
    own = next(traffic for traffic in table.classes if traffic.number == lane)
    rank = {"ets": 0, "strict": 1, "vendor": 2}
    return tuple(
        sorted(
            traffic.number
            for traffic in table.classes
            if traffic.number in table.lanes()
            and (
                rank[traffic.selection] > rank[own.selection]
                or (traffic.selection == own.selection == "strict" and traffic.number > lane)
            )
        )
    )


def _lanes_text(lanes: Collection[int], start: bool = False) -> str:
    word = "lane" if len(lanes) == 1 else "lanes"
    return f"{word.capitalize() if start else word} {listed(lanes)}"


def _are(lanes: Collection[int]) -> str:
    return "is" if len(lanes) == 1 else "are"
