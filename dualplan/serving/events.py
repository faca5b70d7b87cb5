"""The heaps of the kernel: events in time, and the turns of a decode group by their marks."""

from __future__ import annotations

from typing import Any

from dualplan.serving.layout import (
    LEFT_CHILD,
    N_HEAP,
    NEXT_AT,
    NONE,
    QUEUED,
    READY,
    RIGHT_CHILD,
    SECOND_LINE,
    TURN,
    State,
)


def ahead(table: Any, row: int, column: int) -> None:
    """Have an entry brought near that will be needed soon: with many agents waiting for memory takes most of the time.

    Nothing to ordinary Python. The entry need not exist.
    """


def turn_ahead(s: State, a: int) -> None:
    """Have what is known of the turn of an agent brought near."""
    ahead(s.agent, a, READY)
    ahead(s.agent, a, SECOND_LINE)
    ahead(s.agent_index, a, TURN)


def mark_ahead(s: State, a: int) -> None:
    """Have a turn in the heap of a decode group brought near."""
    ahead(s.mark, a, 0)
    ahead(s.child, a, LEFT_CHILD)


def push(s: State, time: float, item: int) -> None:
    """Add an event. Items: 3*agent for a decode start or a return, 3*group + 1 a boundary, 3*pool + 2 a completion."""
    if s.counter[N_HEAP] == len(s.heap_time):
        drop_stale(s)
    i = s.counter[N_HEAP]
    s.counter[N_HEAP] += 1
    rise(s, i, time, item)


def rise(s: State, i: int, time: float, item: int) -> None:
    """Put an event into the heap from its last place ``i`` upwards."""
    while i > 0:
        parent = (i - 1) >> 1
        above = s.heap_time[parent]
        if above < time or (above == time and s.heap_item[parent] <= item):
            break
        s.heap_time[i] = above
        s.heap_item[i] = s.heap_item[parent]
        i = parent
    s.heap_time[i] = time
    s.heap_item[i] = item


def drop_stale(s: State) -> None:
    """Take out the boundaries and completions that an earlier one has replaced; they would do nothing."""
    kept = 0
    for i in range(s.counter[N_HEAP]):
        time, item = s.heap_time[i], s.heap_item[i]
        kind, number = item % 3, item // 3
        if (
            kind == 0
            or (kind == 1 and s.group[number, NEXT_AT] == time)
            or (kind == 2 and s.pool[number, QUEUED] == time)
        ):
            rise(s, kept, time, item)
            kept += 1
    s.counter[N_HEAP] = kept


def pop(s: State) -> int:
    """Remove the earliest event and return its item; of equal times the lowest item."""
    first = s.heap_item[0]
    s.counter[N_HEAP] -= 1
    n = s.counter[N_HEAP]
    time, item = s.heap_time[n], s.heap_item[n]
    # the place of the first goes down to the end without a look at the last event, which belongs far down; which of
    # two events is earlier cannot be guessed, so it is counted with rather than branched on
    i, child = 0, 1
    while child + 1 < n:
        left, right = s.heap_time[child], s.heap_time[child + 1]
        child += (right < left) | ((right == left) & (s.heap_item[child + 1] < s.heap_item[child]))
        s.heap_time[i] = s.heap_time[child]
        s.heap_item[i] = s.heap_item[child]
        i = child
        child = 2 * i + 1
    if child < n:
        s.heap_time[i] = s.heap_time[child]
        s.heap_item[i] = s.heap_item[child]
        i = child
    rise(s, i, time, item)
    return int(first)


def merge(s: State, a: int, b: int) -> int:
    """Merge two skew heaps of marks; returns the root."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if s.mark[b] < s.mark[a]:
        a, b = b, a
    root = a
    while True:
        # swap the children of a, then go on merging b into what is now its left child
        right = s.child[a, RIGHT_CHILD]
        s.child[a, RIGHT_CHILD] = s.child[a, LEFT_CHILD]
        if right == NONE:
            s.child[a, LEFT_CHILD] = b
            return root
        if s.mark[b] < s.mark[right]:
            right, b = b, right
        s.child[a, LEFT_CHILD] = right
        a = right
