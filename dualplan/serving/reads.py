"""Reads from storage and the host buffers they go to."""

from __future__ import annotations

import math

from dualplan.serving.layout import Reads, Staging, State
from dualplan.serving.placement import shorter_queue, split_shares
from dualplan.serving.policies import ReadSide
from dualplan.serving.turns import decode_node, prefill_node


def earliest(s: State, node: int) -> int:
    """The storage NIC of a node that is free first."""
    best = s.node["first_nic"][node]
    for nic in range(best + 1, s.node["end_nic"][node]):
        if s.nic["free_at"][nic] < s.nic["free_at"][best]:
            best = nic
    return int(best)


def read_seconds(s: State, nic: int, size: float) -> float:
    """Time of a whole read by a storage NIC [s]."""
    return float(size / s.nic["rate"][nic] + s.nic["time"][nic])


def decode_share(s: State, e: int, d: int, now: float, size: float) -> float:
    """Share of a read of ``size`` bytes that the decode side does."""
    reads = s.setting.reads
    if size <= 0.0 or (reads != Reads.BOTH_SIDES and reads != Reads.SPLIT):
        return 0.0
    p_nic, d_nic = earliest(s, prefill_node(s, e)), earliest(s, decode_node(s, d))
    prefill_free, decode_free = s.nic["free_at"][p_nic], s.nic["free_at"][d_nic]
    if reads == Reads.SPLIT:
        seconds = read_seconds(s, p_nic, size), read_seconds(s, d_nic, size)
        return split_shares(now, prefill_free, decode_free, seconds[0], seconds[1])
    if s.setting.read_side == ReadSide.PREFILL_ONLY:
        return 0.0
    if s.setting.read_side == ReadSide.ROUND_ROBIN:
        return float(s.count["turn_side"] % 2)
    if prefill_free <= now and decode_free <= now:
        # both idle: the one that has been idle longer
        return 0.0 if prefill_free <= decode_free else 1.0
    return float(shorter_queue(max(prefill_free, now), max(decode_free, now)))


def has_room(s: State, node: int, size: float) -> bool:
    """Whether the host buffer of a node has room for so many bytes; a byte of slack, since sums round."""
    return bool(s.node["held"][node] + size <= s.node["size"][node] + 1.0)


def hold(s: State, node: int, size: float) -> None:
    """Take bytes of the host buffer of a node and keep its peak."""
    s.node["held"][node] += size
    s.node["peak"][node] = max(s.node["peak"][node], s.node["held"][node])


def buffers_reads(s: State) -> bool:
    """Whether what is read goes through host memory."""
    return s.setting.reads != Reads.NOBODY and s.setting.staging != Staging.GDS


def stages_turns(s: State) -> bool:
    """Whether the KV of whole turns waits in host memory for the decode side."""
    return s.setting.reads != Reads.NOBODY and s.setting.staging == Staging.HOST


def decode_side_bytes(s: State, loaded: float, before: float) -> float:
    """Host buffer that a read on the decode side takes there: also for what prefill adds, if that is staged."""
    return before if s.setting.staging == Staging.HOST else loaded


def buffered_share(s: State, share: float, e: int, d: int, loaded: float, before: float) -> float:
    """The share of the decode side, changed to the other side where the host buffer is full; -1 if the read waits.

    A split read is buffered on the prefill side, where all of it goes.
    """
    if not buffers_reads(s):
        return share
    prefill = has_room(s, prefill_node(s, e), loaded)
    if share < 1.0 and prefill:
        return share
    # a turn without a prefix reads nothing on either side
    if loaded <= 0.0 or s.setting.reads != Reads.BOTH_SIDES or s.setting.read_side == ReadSide.PREFILL_ONLY:
        return share if prefill or share >= 1.0 else -1.0
    if has_room(s, decode_node(s, d), decode_side_bytes(s, loaded, before)):
        return 1.0
    return 0.0 if prefill and s.setting.read_side == ReadSide.SHORTER_QUEUE else -1.0


def reading_node(s: State, a: int, side: int) -> int:
    """The node of a turn on the prefill side, 0, or the decode side, 1."""
    return decode_node(s, s.agent["decode_engine"][a]) if side == 1 else prefill_node(s, s.agent["prefill_engine"][a])


def issue_read(s: State, a: int, now: float, size: float, share: float) -> None:
    """Queue a read at the storage NICs, ``share`` of it on the decode side; sets when it starts and when it ends."""
    s.agent["started"][a] = now
    s.agent["readable"][a] = now
    s.agent["share"][a] = share
    s.agent["buffer_side"][a] = 1 if share >= 1.0 else 0
    if s.setting.reads == Reads.NOBODY or size <= 0.0:
        return
    s.count["turn_side"] += 1
    started, end = math.inf, now
    for side in range(2):
        part = share if side == 1 else 1.0 - share
        if part <= 0.0:
            continue
        nic = earliest(s, reading_node(s, a, side))
        took = part * read_seconds(s, nic, size)
        start = max(s.nic["free_at"][nic], now)
        s.nic["free_at"][nic] = start + took
        s.nic["busy"][nic] += took
        started, end = min(started, start), max(end, start + took)
    s.total["decode_read_bytes"] += share * size
    if s.setting.backend > 0.0:
        s.total["backend_free"] = max(s.total["backend_free"], now) + size / s.setting.backend
        end = max(end, s.total["backend_free"])
    s.agent["started"][a] = started
    s.agent["readable"][a] = end
    s.total["read_bytes"] += size


def hold_for_read(s: State, a: int, loaded: float, before: float) -> None:
    """Take the host buffer of a read on the side that reads."""
    if not buffers_reads(s):
        return
    if s.agent["buffer_side"][a] == 0:
        hold(s, prefill_node(s, s.agent["prefill_engine"][a]), loaded)
    else:
        hold(s, decode_node(s, s.agent["decode_engine"][a]), decode_side_bytes(s, loaded, before))


def release(s: State, a: int, loaded: float, before: float) -> None:
    """Give the host buffers of a turn back."""
    if not buffers_reads(s):
        return
    node = decode_node(s, s.agent["decode_engine"][a])
    if s.agent["buffer_side"][a] == 1:
        s.node["held"][node] -= decode_side_bytes(s, loaded, before)
        return
    s.node["held"][prefill_node(s, s.agent["prefill_engine"][a])] -= loaded
    if stages_turns(s):
        s.node["held"][node] -= before


def count_moved(s: State, node: int, share: float, loaded: float, computed: float, added: float) -> None:
    """Add the bytes of a turn to those of a node, by the side that read them."""
    for side in range(2):
        part = share if side == 1 else 1.0 - share
        if part > 0.0:
            s.moved["hit"][2 * node + side] += part * loaded
            s.moved["miss"][2 * node + side] += part * computed
            s.moved["append"][2 * node + side] += part * added
