"""Service clocks of classes, and the heaps of what is to end next."""

from __future__ import annotations

import math

from dualplan.flow.layout import (
    BOUND_BY,
    HELD,
    HELD_BY_CAP,
    LEFT_CHILD,
    MARK,
    N_BUSY,
    N_FORESEEN,
    NEXT,
    NOW,
    OWN_CAP,
    RATE,
    RIGHT_CHILD,
    ROOT,
    SERVED,
    SINCE,
    Floats,
    Ints,
    State,
)


def sift_down(key: Floats, node: Ints, n: int, i: int) -> None:
    """Restore the order of a heap of ``n`` entries below entry ``i``."""
    k, v = key[i], node[i]
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and key[child + 1] < key[child]:
            child += 1
        if not key[child] < k:
            break
        key[i], node[i] = key[child], node[child]
        i = child
    key[i], node[i] = k, v


def heap_push(key: Floats, node: Ints, n: int, k: float, v: int) -> None:
    """Add an entry to a heap of ``n`` entries."""
    i = n
    while i > 0:
        parent = (i - 1) // 2
        if not k < key[parent]:
            break
        key[i], node[i] = key[parent], node[parent]
        i = parent
    key[i], node[i] = k, v


def heap_pop(key: Floats, node: Ints, n: int) -> None:
    """Drop the first entry of a heap of ``n`` entries."""
    key[0], node[0] = key[n - 1], node[n - 1]
    sift_down(key, node, n - 1, 0)


def merge_marks(s: State, a: int, b: int) -> int:
    """Merge two heaps of finish marks (skew heaps, -1 is the empty one) and return the root."""
    flows, flow_index = s.flows, s.flow_index
    root = parent = -1
    while a >= 0 and b >= 0:
        if flows[b, MARK] < flows[a, MARK]:
            a, b = b, a
        if parent < 0:
            root = a
        else:
            flow_index[parent, LEFT_CHILD] = a
        parent = a
        below = flow_index[a, RIGHT_CHILD]
        flow_index[a, RIGHT_CHILD] = flow_index[a, LEFT_CHILD]
        a = below
    rest = a if a >= 0 else b
    if parent < 0:
        return rest
    flow_index[parent, LEFT_CHILD] = rest
    return root


def read_clock(s: State, c: int) -> None:
    """Bring the service clock of a busy class up to NOW."""
    passed = s.clock[NOW] - s.classes[c, SINCE]
    if passed > 0.0:
        s.classes[c, SERVED] += s.classes[c, RATE] * passed
        hop = s.class_index[c, BOUND_BY]
        if hop >= 0:
            s.hops[hop, HELD] += passed
        elif hop == OWN_CAP:
            s.classes[c, HELD_BY_CAP] += passed
    s.classes[c, SINCE] = s.clock[NOW]


def foresee(s: State, c: int) -> None:
    """When the flow of a busy class that is first to end will do so, if the rate stays; the clock has been read."""
    root, rate = s.class_index[c, ROOT], s.classes[c, RATE]
    if root < 0 or not rate > 0.0:
        s.classes[c, NEXT] = math.inf
        return
    time = s.clock[NOW] + max(s.flows[root, MARK] - s.classes[c, SERVED], 0.0) / rate
    s.classes[c, NEXT] = time
    n = s.counters[N_FORESEEN]
    if n < len(s.finish_time):
        heap_push(s.finish_time, s.finish_class, n, time, c)
        s.counters[N_FORESEEN] = n + 1
        return
    # the heap keeps times that no longer hold until they come up; when it is full they go
    n = s.counters[N_BUSY]
    for i in range(n):
        s.finish_time[i], s.finish_class[i] = s.classes[s.busy[i], NEXT], s.busy[i]
    for i in range(n // 2 - 1, -1, -1):
        sift_down(s.finish_time, s.finish_class, n, i)
    s.counters[N_FORESEEN] = n


def next_finish(s: State) -> float:
    """Time of the next completion, which then stands first in the heap of them."""
    while s.counters[N_FORESEEN] > 0:
        if s.classes[s.finish_class[0], NEXT] == s.finish_time[0]:
            return float(s.finish_time[0])
        heap_pop(s.finish_time, s.finish_class, s.counters[N_FORESEEN])
        s.counters[N_FORESEEN] -= 1
    return math.inf
