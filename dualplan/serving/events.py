"""The heaps of the kernel: events in time, and the turns of a decode group by their marks."""

from __future__ import annotations

from typing import Any

from dualplan.serving.layout import NONE, SECOND_LINE, State


def ahead(column: Any, row: int) -> None:
    """Have an entry of a table brought near that will be needed soon: with many agents waiting for memory takes most of
    the time.

    Nothing to ordinary Python. The entry need not exist.
    """


def turn_ahead(s: State, a: int) -> None:
    """Have what is known of the turn of an agent brought near."""
    ahead(s.agent["ready"], a)
    ahead(s.agent[SECOND_LINE], a)


def mark_ahead(s: State, a: int) -> None:
    """Have a turn in the heap of a decode group brought near."""
    ahead(s.mark["at"], a)


def push(s: State, time: float, item: int) -> None:
    """Add an event. Items: 3*agent for a decode start or a return, 3*group + 1 a boundary, 3*pool + 2 a completion."""
    if s.count["queued"] == len(s.event):
        drop_stale(s)
    i = s.count["queued"]
    s.count["queued"] += 1
    rise(s, i, time, item)


def rise(s: State, i: int, time: float, item: int) -> None:
    """Put an event into the heap from its last place ``i`` upwards."""
    while i > 0:
        parent = (i - 1) >> 1
        above = s.event["time"][parent]
        if above < time or (above == time and s.event["item"][parent] <= item):
            break
        s.event["time"][i] = above
        s.event["item"][i] = s.event["item"][parent]
        i = parent
    s.event["time"][i] = time
    s.event["item"][i] = item


def drop_stale(s: State) -> None:
    """Take out the boundaries and completions that an earlier one has replaced; they would do nothing."""
    kept = 0
    for i in range(s.count["queued"]):
        time, item = s.event["time"][i], s.event["item"][i]
        kind, number = item % 3, item // 3
        if (
            kind == 0
            or (kind == 1 and s.group["next_at"][number] == time)
            or (kind == 2 and s.pool["queued"][number] == time)
        ):
            rise(s, kept, time, item)
            kept += 1
    s.count["queued"] = kept


def pop(s: State) -> int:
    """Remove the earliest event and return its item; of equal times the lowest item."""
    first = s.event["item"][0]
    s.count["queued"] -= 1
    n = s.count["queued"]
    time, item = s.event["time"][n], s.event["item"][n]
    # the place of the first goes down to the end without a look at the last event, which belongs far down; which of
    # two events is earlier cannot be guessed, so it is counted with rather than branched on
    i, child = 0, 1
    while child + 1 < n:
        left, right = s.event["time"][child], s.event["time"][child + 1]
        child += (right < left) | ((right == left) & (s.event["item"][child + 1] < s.event["item"][child]))
        s.event["time"][i] = s.event["time"][child]
        s.event["item"][i] = s.event["item"][child]
        i = child
        child = 2 * i + 1
    if child < n:
        s.event["time"][i] = s.event["time"][child]
        s.event["item"][i] = s.event["item"][child]
        i = child
    rise(s, i, time, item)
    return int(first)


def merge(s: State, a: int, b: int) -> int:
    """Merge two skew heaps of marks; returns the root."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if s.mark["at"][b] < s.mark["at"][a]:
        a, b = b, a
    root = a
    while True:
        # swap the children of a, then go on merging b into what is now its left child
        right = s.mark["right"][a]
        s.mark["right"][a] = s.mark["left"][a]
        if right == NONE:
            s.mark["left"][a] = b
            return root
        if s.mark["at"][b] < s.mark["at"][right]:
            right, b = b, right
        s.mark["left"][a] = right
        a = right
