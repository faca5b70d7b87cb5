"""The inner loops of max-min sharing and of the fluid run, as plain functions over arrays.

Every function here runs as ordinary Python; ``compiled`` gives the same functions through Numba, with the same
results to the last bit. Nothing in this file knows records, names or files: ``store`` lays the arrays out,
``maxmin`` states what they mean. It is one file because Numba's cache looks for changes in the file of a function,
not in those of the functions it calls.

Words: a *lane* is what one traffic class sees of a link (a link without class weights has a single lane); a *class*
is a set of flows with the same route, weight, rate cap, priority and traffic class; a *hop* is one crossing of a
lane, or of a cap-only link, by a class. A class has one service clock (bytes that each of its flows would have got
since the class became busy) and a heap of finish marks on that clock, so that an event costs by the number of busy
classes and not of flows.
"""

from __future__ import annotations

import functools
import math
import sys
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# columns of State.links: capacity now [B/s], what the priorities above have left [B/s]
CAPACITY, LEFT = 0, 1
# columns of State.link_index: its lanes are FIRST_LANE..END_LANE-1, CAP_ONLY is 1 where flows do not share the link
FIRST_LANE, END_LANE, CAP_ONLY = 0, 1, 2
# columns of State.lanes: weight of the traffic class, limit set by arbitration [B/s], capacity not given away yet
# [B/s], sums of weight * times over flows not frozen yet and over all, load [B/s], rate per weight of the classes
# it binds, load being tried, last step and gain of arbitration
LANE_WEIGHT, LIMIT, ROOM, PULL, PULL_ALL, LOAD, LEVEL, TRIAL_LOAD, STEP, GAIN = range(10)
# columns of State.lane_index: link, first hop of the list of busy classes, classes not frozen yet and all, stamp of
# the last region that held it, stamp of TRIAL_LOAD, classes it binds, whether it is listed in State.dirty, two
# flags of arbitration
LINK, HEAD, OPEN, OPEN_ALL, REGION, TRIED, N_BOUND, LISTED, BINDS, SATED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
# columns of State.classes: weight, own rate cap and the lowest cap on the route [B/s], service clock [B] and when
# it was read [s], rate of each flow [B/s], time of the next completion [s], rate being found and its limit from
# outside [B/s], time at own cap [s], bytes of flows that have ended
WEIGHT, RATE_CAP, CAP, SERVED, SINCE, RATE, NEXT, TRIAL, OUTER, HELD_BY_CAP, ENDED_BYTES = range(11)
# columns of State.class_index: hops FIRST_HOP..CUT-1 share their lanes, CUT..END_HOP-1 are cap-only; priority,
# flows, root of the heap of marks, place in State.busy, hop that binds, hop of the lowest cap, binding hop being
# found, hop of OUTER, frozen, stamp
FIRST_HOP, CUT, END_HOP, PRIORITY, FLOWS, ROOT, PLACE = range(7)
BOUND_BY, CAP_HOP, TRIAL_HOP, OUTER_HOP, FROZEN, MEMBER = range(7, 13)
# columns of State.hops: times that the route crosses, time that this hop held the class back [s]
TIMES, HELD = 0, 1
# columns of State.hop_index: lane (link for cap-only hops), class, neighbours in the list of the lane
LANE, CLASS, AFTER, BEFORE = 0, 1, 2, 3
# columns of State.flows
SIZE, START, MARK, FINISH = 0, 1, 2, 3
# columns of State.flow_index: class, children in the heap, first entry in State.held_before, hop that held it longest
CLASS_OF, LEFT_CHILD, RIGHT_CHILD, SNAPSHOT, SNAPSHOT_ROOM, HELD_LONGEST = range(6)
# columns of State.fresh and State.fresh_index: flows that wait to be admitted, as in the columns of flows
FRESH_SIZE, FRESH_START = 0, 1
FRESH_FLOW, FRESH_CLASS = 0, 1
# entries of State.clock: time now, time of the next completion [s]
NOW, NEXT_FINISH = 0, 1
# entries of State.counters
N_BUSY, N_QUEUE, N_FORESEEN, N_FRESH, N_DONE, N_CLASSES, N_LEVELS, N_DIRTY, N_HELD = range(9)
ALL_DIRTY, EVENTS, WORK, STAMPS, TRIES, ARBITRATED, UNSETTLED = range(9, 16)
N_COUNTERS = 16

OWN_CAP = -1
"""In place of a hop: the flow's own rate cap binds."""
NOTHING = -2
"""In place of a hop: nothing has bound the flow (it has no bytes, or has not started)."""

TIE = 4e-15
"""Completions this close, relative to the clock, are one event: about 18 units in the last place."""
SAME = 1e-14
"""A rate found again within this of the old one is the old one: rounding must not travel through the network."""
NEARLY_FULL = 1.0 - 1e-9
"""A lane loaded above this part of its capacity may bind."""
MAX_GROWTHS = 12
"""Times that a region may grow before the whole network is solved instead."""
LIMIT_TOLERANCE = 1e-13
"""Relative change of lane limits at which arbitration has settled."""
MAX_ROUNDS = 1000
STEERED_AFTER = 40


class State(NamedTuple):
    """All arrays of a network and its flows; the columns of the two-dimensional ones are named above."""

    links: Floats
    link_index: Ints
    lanes: Floats
    lane_index: Ints
    classes: Floats
    class_index: Ints
    hops: Floats
    hop_index: Ints
    flows: Floats
    flow_index: Ints
    held_before: Floats
    changes: Floats
    change_link: Ints
    queue_time: Floats
    queue_item: Ints
    finish_time: Floats
    finish_class: Ints
    heap_key: Floats
    heap_node: Ints
    busy: Ints
    members: Ints
    region: Ints
    dirty: Ints
    levels: Ints
    fresh: Floats
    fresh_index: Ints
    done: Ints
    clock: Floats
    counters: Ints


# binary heap in two parallel arrays -----------------------------------------------------------------------------------


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


# rates ----------------------------------------------------------------------------------------------------------------


def gather(s: State, priority: int) -> tuple[int, int]:
    """Make the busy classes of one priority the members, and all lanes they cross the region."""
    s.counters[STAMPS] += 1
    n_members = n_lanes = 0
    for i in range(s.counters[N_BUSY]):
        c = s.busy[i]
        if s.class_index[c, PRIORITY] != priority:
            continue
        s.class_index[c, MEMBER] = s.counters[STAMPS]
        s.members[n_members] = c
        n_members += 1
        pull = s.class_index[c, FLOWS] * s.classes[c, WEIGHT]
        for h in range(s.class_index[c, FIRST_HOP], s.class_index[c, CUT]):
            lane = s.hop_index[h, LANE]
            if s.lane_index[lane, REGION] != s.counters[STAMPS]:
                s.lane_index[lane, REGION] = s.counters[STAMPS]
                s.lane_index[lane, OPEN_ALL] = 0
                s.lanes[lane, PULL_ALL] = 0.0
                s.lanes[lane, LIMIT] = math.inf
                s.region[n_lanes] = lane
                n_lanes += 1
            s.lanes[lane, PULL_ALL] += pull * s.hops[h, TIMES]
            s.lane_index[lane, OPEN_ALL] += 1
    return n_members, n_lanes


def include(s: State, lane: int, n_members: int, n_lanes: int) -> tuple[int, int]:
    """Add a lane to the region, and the busy classes that cross it to the members; the new numbers of both."""
    stamp = s.counters[STAMPS]
    if s.lane_index[lane, REGION] == stamp:
        return n_members, n_lanes
    s.lane_index[lane, REGION] = stamp
    s.region[n_lanes] = lane
    s.lanes[lane, LIMIT] = math.inf
    n_classes = 0
    total = 0.0
    h = s.lane_index[lane, HEAD]
    while h >= 0:
        c = s.hop_index[h, CLASS]
        n_classes += 1
        total += s.class_index[c, FLOWS] * s.classes[c, WEIGHT] * s.hops[h, TIMES]
        if s.class_index[c, MEMBER] != stamp:
            s.class_index[c, MEMBER] = stamp
            s.members[n_members] = c
            n_members += 1
        h = s.hop_index[h, AFTER]
    s.lanes[lane, PULL_ALL] = total
    s.lane_index[lane, OPEN_ALL] = n_classes
    return n_members, n_lanes + 1


def bound_outside(s: State, c: int) -> None:
    """The limit of a member from outside the region: its caps, and the levels of lanes there that bind."""
    outer, hop = s.classes[c, CAP], s.class_index[c, CAP_HOP]
    for h in range(s.class_index[c, FIRST_HOP], s.class_index[c, CUT]):
        lane = s.hop_index[h, LANE]
        if s.lane_index[lane, REGION] != s.counters[STAMPS] and s.lane_index[lane, N_BOUND] > 0:
            limit = s.lanes[lane, LEVEL] * s.classes[c, WEIGHT]
            if limit < outer:
                outer, hop = limit, h
    s.classes[c, OUTER] = outer
    s.class_index[c, OUTER_HOP] = hop


def freeze(s: State, c: int, rate: float, hop: int) -> None:
    """Fix the rate of class ``c`` and take it out of every lane of the region that it crosses."""
    s.classes[c, TRIAL] = rate
    s.class_index[c, TRIAL_HOP] = hop
    s.class_index[c, FROZEN] = 1
    flows = s.class_index[c, FLOWS]
    pull = flows * s.classes[c, WEIGHT]
    for h in range(s.class_index[c, FIRST_HOP], s.class_index[c, CUT]):
        lane = s.hop_index[h, LANE]
        if s.lane_index[lane, REGION] == s.counters[STAMPS]:
            times = s.hops[h, TIMES]
            s.lanes[lane, ROOM] -= flows * (rate * times)
            s.lanes[lane, PULL] -= pull * times
            s.lane_index[lane, OPEN] -= 1


def open_pull(s: State, lane: int) -> float:
    """Sum the weights of the classes of a lane that are not frozen anew, where subtracting has cost digits."""
    total = 0.0
    h = s.lane_index[lane, HEAD]
    while h >= 0:
        c = s.hop_index[h, CLASS]
        if s.class_index[c, FROZEN] == 0:
            total += s.class_index[c, FLOWS] * s.classes[c, WEIGHT] * s.hops[h, TIMES]
        h = s.hop_index[h, AFTER]
    return total


def fill(s: State, n_members: int, n_lanes: int) -> None:
    """Progressive filling: raise rate / weight of all members together; one stops at its limit or where a lane is full.

    The heap holds the level (rate per weight) at which each lane would be full and each limit reached. Levels of
    lanes only rise while classes stop, so an entry that has become too low is corrected when it comes up. Classes
    that are not members count as frozen.
    """
    classes, class_index, lanes, lane_index = s.classes, s.class_index, s.lanes, s.lane_index
    key, node = s.heap_key, s.heap_node
    n = 0
    for i in range(n_lanes):
        lane = s.region[i]
        lanes[lane, ROOM] = min(s.links[lane_index[lane, LINK], LEFT], lanes[lane, LIMIT])
        lanes[lane, PULL] = lanes[lane, PULL_ALL]
        lane_index[lane, OPEN] = lane_index[lane, OPEN_ALL]
        if lane_index[lane, OPEN] > 0:
            key[n], node[n] = lanes[lane, ROOM] / lanes[lane, PULL], lane
            n += 1
    for i in range(n_members):
        c = s.members[i]
        class_index[c, FROZEN] = 0
        bound_outside(s, c)
        if classes[c, OUTER] < math.inf:
            key[n], node[n] = classes[c, OUTER] / classes[c, WEIGHT], -1 - c
            n += 1
    for i in range(n // 2 - 1, -1, -1):
        sift_down(key, node, n, i)
    left = n_members
    while left > 0:
        lane = node[0]
        if lane < 0:
            c = -1 - lane
            if class_index[c, FROZEN] == 0:
                freeze(s, c, classes[c, OUTER], class_index[c, OUTER_HOP])
                left -= 1
        elif lane_index[lane, OPEN] > 0:
            if lanes[lane, PULL] < 1e-4 * lanes[lane, PULL_ALL]:
                lanes[lane, PULL] = open_pull(s, lane)
            level = max(lanes[lane, ROOM], 0.0) / lanes[lane, PULL]
            if level > key[0]:
                key[0] = level
                sift_down(key, node, n, 0)
                continue
            lanes[lane, LEVEL] = level
            h = lane_index[lane, HEAD]
            while h >= 0:
                c = s.hop_index[h, CLASS]
                if class_index[c, FROZEN] == 0:
                    freeze(s, c, min(level * classes[c, WEIGHT], classes[c, OUTER]), h)
                    left -= 1
                h = s.hop_index[h, AFTER]
        heap_pop(key, node, n)
        n -= 1


def differs(s: State, c: int) -> bool:
    """Whether the rate just found is another than the present one."""
    return bool(abs(s.classes[c, TRIAL] - s.classes[c, RATE]) > SAME * s.classes[c, RATE])


def widen(s: State, n_members: int, n_lanes: int) -> tuple[int, int]:
    """Add the lanes outside the region that the rates just found would disturb; the new numbers of members and lanes.

    A change of rate disturbs a lane that binds, and one that it makes full.
    """
    s.counters[TRIES] += 1
    n_tried = n_lanes
    for i in range(n_members):
        c = s.members[i]
        if not differs(s, c):
            continue
        more = s.class_index[c, FLOWS] * (s.classes[c, TRIAL] - s.classes[c, RATE])
        for h in range(s.class_index[c, FIRST_HOP], s.class_index[c, CUT]):
            lane = s.hop_index[h, LANE]
            if s.lane_index[lane, REGION] == s.counters[STAMPS]:
                continue
            if s.lane_index[lane, TRIED] != s.counters[TRIES]:
                s.lane_index[lane, TRIED] = s.counters[TRIES]
                s.lanes[lane, TRIAL_LOAD] = s.lanes[lane, LOAD]
                s.region[n_tried] = lane
                n_tried += 1
            s.lanes[lane, TRIAL_LOAD] += more * s.hops[h, TIMES]
    # the lanes tried stand behind the region in its list; those that stay are moved forward
    for i in range(n_lanes, n_tried):
        lane = s.region[i]
        load = s.lanes[lane, TRIAL_LOAD]
        full = NEARLY_FULL * s.links[s.lane_index[lane, LINK], CAPACITY]
        if s.lane_index[lane, N_BOUND] > 0 or (load > full and load > s.lanes[lane, LOAD]):
            n_members, n_lanes = include(s, lane, n_members, n_lanes)
    return n_members, n_lanes


def steered(s: State, lane: int, old: float, new: float, turn: int) -> float:
    """A limit between or beyond the old and the new one: shorter steps where it swings, longer ones where it creeps."""
    step = new - old
    if turn == STEERED_AFTER:
        s.lanes[lane, GAIN] = 0.5
    elif step * s.lanes[lane, STEP] > 0.0:
        s.lanes[lane, GAIN] = min(1.2 * s.lanes[lane, GAIN], 3.0)
    else:
        s.lanes[lane, GAIN] *= 0.6
    s.lanes[lane, STEP] = step
    return float(max(old + s.lanes[lane, GAIN] * step, 0.5 * old))


def arbitrate(s: State, n_members: int, n_lanes: int, turn: int) -> float:
    """Divide links with class weights among their lanes after the rates just found; the largest relative change of
    a limit.

    A lane that binds nobody wants its load, a lane that binds wants all it can get; the limit of a lane is its
    weight times the level of its link, the level at which the wants, each cut off at the limit, fill the link.
    """
    lanes, lane_index = s.lanes, s.lane_index
    for i in range(n_lanes):
        lane = s.region[i]
        lanes[lane, TRIAL_LOAD] = 0.0
        lane_index[lane, BINDS] = 0
    for i in range(n_members):
        c = s.members[i]
        for h in range(s.class_index[c, FIRST_HOP], s.class_index[c, CUT]):
            lanes[s.hop_index[h, LANE], TRIAL_LOAD] += s.class_index[c, FLOWS] * (
                s.classes[c, TRIAL] * s.hops[h, TIMES]
            )
        h = s.class_index[c, TRIAL_HOP]
        if s.class_index[c, FIRST_HOP] <= h < s.class_index[c, CUT]:
            lane_index[s.hop_index[h, LANE], BINDS] = 1
    stamp = s.counters[STAMPS]
    change = 0.0
    for i in range(n_lanes):
        link = lane_index[s.region[i], LINK]
        first, end = s.link_index[link, FIRST_LANE], s.link_index[link, END_LANE]
        if end - first < 2:
            continue
        while lane_index[first, REGION] != stamp:
            first += 1
        if first != s.region[i]:
            continue
        level = link_level(s, link, first, end)
        for lane in range(first, end):
            if lane_index[lane, REGION] != stamp:
                continue
            old, new = lanes[lane, LIMIT], lanes[lane, LANE_WEIGHT] * level
            if old == new:
                continue
            if old < math.inf and new < math.inf:
                change = max(change, abs(new - old) / max(new, old))
                if turn >= STEERED_AFTER:
                    new = steered(s, lane, old, new, turn)
            else:
                change = 1.0
            lanes[lane, LIMIT] = new
    return change


def link_level(s: State, link: int, first: int, end: int) -> float:
    """Level at which the wants of the lanes of a link, cut off at weight * level, fill it; infinity if never."""
    for lane in range(first, end):
        s.lane_index[lane, SATED] = 0 if s.lane_index[lane, REGION] == s.counters[STAMPS] else 1
    left = s.links[link, LEFT]
    while True:
        weight = 0.0
        for lane in range(first, end):
            if s.lane_index[lane, SATED] == 0:
                weight += s.lanes[lane, LANE_WEIGHT]
        if weight == 0.0:
            return math.inf
        level = max(left, 0.0) / weight
        settled = True
        for lane in range(first, end):
            wants = s.lanes[lane, TRIAL_LOAD]
            if (
                s.lane_index[lane, SATED] == 0
                and s.lane_index[lane, BINDS] == 0
                and wants <= s.lanes[lane, LANE_WEIGHT] * level
            ):
                s.lane_index[lane, SATED] = 1
                left -= wants
                settled = False
        if settled:
            return float(level)


def commit(s: State, n_members: int) -> None:
    """Give the members the rates just found, and move the service clocks of those that change."""
    classes, class_index = s.classes, s.class_index
    for i in range(n_members):
        c = s.members[i]
        changed = differs(s, c)
        old, new = class_index[c, BOUND_BY], class_index[c, TRIAL_HOP]
        if not changed and old == new:
            continue
        read_clock(s, c)
        if old != new:
            if class_index[c, FIRST_HOP] <= old < class_index[c, CUT]:
                s.lane_index[s.hop_index[old, LANE], N_BOUND] -= 1
            if class_index[c, FIRST_HOP] <= new < class_index[c, CUT]:
                s.lane_index[s.hop_index[new, LANE], N_BOUND] += 1
            class_index[c, BOUND_BY] = new
        if changed:
            more = class_index[c, FLOWS] * (classes[c, TRIAL] - classes[c, RATE])
            for h in range(class_index[c, FIRST_HOP], class_index[c, CUT]):
                s.lanes[s.hop_index[h, LANE], LOAD] += more * s.hops[h, TIMES]
            classes[c, RATE] = classes[c, TRIAL]
            foresee(s, c)


def solve_region(s: State) -> None:
    """Find the rates that a change at the dirty lanes moves, and no others (one priority, no class weights).

    The region starts as the dirty lanes. Its classes get rates as if the levels of binding lanes outside stayed;
    where that disturbs a lane outside, the region grows by it. What remains outside keeps its rates, and all
    conditions hold there as before.
    """
    s.counters[STAMPS] += 1
    n_members = n_lanes = 0
    for i in range(s.counters[N_DIRTY]):
        n_members, n_lanes = include(s, s.dirty[i], n_members, n_lanes)
    growths = 0
    while True:
        if s.counters[ALL_DIRTY] == 1 or growths == MAX_GROWTHS:
            n_members, n_lanes = gather(s, s.levels[0])
        fill(s, n_members, n_lanes)
        s.counters[WORK] += n_members
        before = n_lanes
        n_members, n_lanes = widen(s, n_members, n_lanes)
        growths += 1
        if n_lanes == before:
            break
    commit(s, n_members)
    for i in range(n_lanes):
        # summed afresh, so that adding changes does not collect rounding
        lane = s.region[i]
        s.lanes[lane, LOAD] = s.links[s.lane_index[lane, LINK], CAPACITY] - s.lanes[lane, ROOM]


def solve_levels(s: State) -> None:
    """Find the rates of all busy classes, priority by priority, with arbitration where links have class weights."""
    counters = s.counters
    for link in range(len(s.links)):
        s.links[link, LEFT] = s.links[link, CAPACITY]
    for i in range(counters[N_LEVELS]):
        n_members, n_lanes = gather(s, s.levels[i])
        turn = 0
        while n_members > 0:
            fill(s, n_members, n_lanes)
            counters[WORK] += n_members
            if counters[ARBITRATED] == 0 or arbitrate(s, n_members, n_lanes, turn) <= LIMIT_TOLERANCE:
                break
            turn += 1
            if turn == MAX_ROUNDS:
                counters[UNSETTLED] = 1
                break
        for j in range(n_members):
            c = s.members[j]
            for h in range(s.class_index[c, FIRST_HOP], s.class_index[c, CUT]):
                link = s.lane_index[s.hop_index[h, LANE], LINK]
                s.links[link, LEFT] -= s.class_index[c, FLOWS] * (s.classes[c, TRIAL] * s.hops[h, TIMES])
        for link in range(len(s.links)):
            # what rounding leaves of a full link is nothing
            if s.links[link, LEFT] < 1e-13 * s.links[link, CAPACITY]:
                s.links[link, LEFT] = 0.0
        commit(s, n_members)


def solve(s: State) -> None:
    """Find the rates at time NOW after a change."""
    if s.counters[N_LEVELS] > 1 or s.counters[ARBITRATED] > 0:
        solve_levels(s)
    elif s.counters[N_LEVELS] == 1:
        solve_region(s)
    for i in range(s.counters[N_DIRTY]):
        s.lane_index[s.dirty[i], LISTED] = 0
    s.counters[N_DIRTY] = 0
    s.counters[ALL_DIRTY] = 0


# service clocks and events --------------------------------------------------------------------------------------------


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


def list_dirty(s: State, lane: int) -> None:
    """Remember that something on this lane has changed."""
    if s.lane_index[lane, LISTED] == 0:
        s.lane_index[lane, LISTED] = 1
        s.dirty[s.counters[N_DIRTY]] = lane
        s.counters[N_DIRTY] += 1


def wake(s: State, c: int) -> None:
    """Enter an idle class among the busy ones, with its service clock at zero."""
    class_index, hop_index = s.class_index, s.hop_index
    class_index[c, PLACE] = s.counters[N_BUSY]
    s.busy[s.counters[N_BUSY]] = c
    s.counters[N_BUSY] += 1
    class_index[c, BOUND_BY] = NOTHING
    class_index[c, FROZEN] = 1
    s.classes[c, SERVED] = 0.0
    s.classes[c, SINCE] = s.clock[NOW]
    for h in range(class_index[c, FIRST_HOP], class_index[c, CUT]):
        lane = hop_index[h, LANE]
        head = s.lane_index[lane, HEAD]
        hop_index[h, AFTER] = head
        hop_index[h, BEFORE] = -1
        if head >= 0:
            hop_index[head, BEFORE] = h
        s.lane_index[lane, HEAD] = h


def rest(s: State, c: int) -> None:
    """Take a class that has no flows left out of the busy ones."""
    class_index, hop_index = s.class_index, s.hop_index
    s.counters[N_BUSY] -= 1
    last = s.busy[s.counters[N_BUSY]]
    s.busy[class_index[c, PLACE]] = last
    class_index[last, PLACE] = class_index[c, PLACE]
    s.classes[c, RATE] = 0.0
    s.classes[c, NEXT] = math.inf
    for h in range(class_index[c, FIRST_HOP], class_index[c, CUT]):
        lane, after, before = hop_index[h, LANE], hop_index[h, AFTER], hop_index[h, BEFORE]
        if h == class_index[c, BOUND_BY]:
            s.lane_index[lane, N_BOUND] -= 1
        if after >= 0:
            hop_index[after, BEFORE] = before
        if before >= 0:
            hop_index[before, AFTER] = after
        else:
            s.lane_index[lane, HEAD] = after
        if s.lane_index[lane, HEAD] < 0:
            s.lanes[lane, LOAD] = 0.0


def load_more(s: State, c: int) -> None:
    """Load the lanes of a class with one more flow at its present rate, and list those that this disturbs."""
    class_index, lanes = s.class_index, s.lanes
    first, cut = class_index[c, FIRST_HOP], class_index[c, CUT]
    listed = False
    tightest, least = -1, math.inf
    for h in range(first, cut):
        lane = s.hop_index[h, LANE]
        capacity = s.links[s.lane_index[lane, LINK], CAPACITY]
        lanes[lane, LOAD] += s.classes[c, RATE] * s.hops[h, TIMES]
        if s.lane_index[lane, N_BOUND] > 0 or lanes[lane, LOAD] > NEARLY_FULL * capacity:
            list_dirty(s, lane)
            listed = True
        room = (capacity - lanes[lane, LOAD]) / s.hops[h, TIMES]
        if room < least:
            tightest, least = lane, room
    if class_index[c, BOUND_BY] == NOTHING and not listed:
        if tightest >= 0:
            list_dirty(s, tightest)
        else:
            s.classes[c, RATE] = s.classes[c, CAP]
            class_index[c, BOUND_BY] = class_index[c, CAP_HOP]


def end_flow(s: State, f: int) -> None:
    """Record that flow ``f`` has ended now."""
    s.flows[f, FINISH] = s.clock[NOW]
    s.done[s.counters[N_DONE]] = f
    s.counters[N_DONE] += 1


def start_flow(s: State, f: int) -> None:
    """Start flow ``f`` now: set its finish mark on the service clock of its class."""
    class_index = s.class_index
    c = s.flow_index[f, CLASS_OF]
    if s.flows[f, SIZE] == 0.0:
        end_flow(s, f)
        return
    if class_index[c, FLOWS] == 0:
        wake(s, c)
    else:
        read_clock(s, c)
    first, end = class_index[c, FIRST_HOP], class_index[c, END_HOP]
    at = s.flow_index[f, SNAPSHOT]
    for h in range(first, end):
        s.held_before[at + h - first] = s.hops[h, HELD]
    s.held_before[at + end - first] = s.classes[c, HELD_BY_CAP]
    s.flows[f, MARK] = s.classes[c, SERVED] + s.flows[f, SIZE]
    class_index[c, ROOT] = merge_marks(s, class_index[c, ROOT], f)
    class_index[c, FLOWS] += 1
    load_more(s, c)
    foresee(s, c)


def held_longest(s: State, f: int) -> int:
    """The hop (or OWN_CAP) that held a flow back for the longest time, the first of the route among equals."""
    c = s.flow_index[f, CLASS_OF]
    first, end = s.class_index[c, FIRST_HOP], s.class_index[c, END_HOP]
    at = s.flow_index[f, SNAPSHOT]
    longest, hop = s.classes[c, HELD_BY_CAP] - s.held_before[at + end - first], OWN_CAP
    for h in range(first, end):
        held = s.hops[h, HELD] - s.held_before[at + h - first]
        if held > longest or (hop == OWN_CAP and held == longest):
            longest, hop = held, h
    return hop


def complete(s: State, c: int) -> None:
    """End the flows of class ``c`` whose finish mark the service clock has reached."""
    class_index, flow_index = s.class_index, s.flow_index
    read_clock(s, c)
    root = class_index[c, ROOT]
    s.classes[c, SERVED] = max(s.classes[c, SERVED], s.flows[root, MARK])
    reached = s.classes[c, SERVED] * (1.0 + TIE)
    ended = 0
    while root >= 0 and s.flows[root, MARK] <= reached:
        flow_index[root, HELD_LONGEST] = held_longest(s, root)
        end_flow(s, root)
        s.classes[c, ENDED_BYTES] += s.flows[root, SIZE]
        ended += 1
        root = merge_marks(s, flow_index[root, LEFT_CHILD], flow_index[root, RIGHT_CHILD])
    class_index[c, ROOT] = root
    class_index[c, FLOWS] -= ended
    for h in range(class_index[c, FIRST_HOP], class_index[c, CUT]):
        lane = s.hop_index[h, LANE]
        s.lanes[lane, LOAD] -= ended * (s.classes[c, RATE] * s.hops[h, TIMES])
        if s.lane_index[lane, N_BOUND] > 0:
            list_dirty(s, lane)
    if root >= 0:
        foresee(s, c)
    else:
        rest(s, c)


def find_cap(s: State, c: int) -> None:
    """The lowest cap of a class: its own, or a cap-only link on its route."""
    s.classes[c, CAP] = s.classes[c, RATE_CAP]
    s.class_index[c, CAP_HOP] = OWN_CAP
    for h in range(s.class_index[c, CUT], s.class_index[c, END_HOP]):
        cap = s.links[s.hop_index[h, LANE], CAPACITY] / s.hops[h, TIMES]
        if cap < s.classes[c, CAP]:
            s.classes[c, CAP] = cap
            s.class_index[c, CAP_HOP] = h


def change_capacity(s: State, change: int) -> None:
    """Apply a change of capacity."""
    link = s.change_link[change]
    s.links[link, :] = s.changes[change, 1]
    if s.link_index[link, CAP_ONLY] == 1:
        for c in range(s.counters[N_CLASSES]):
            find_cap(s, c)
        s.counters[ALL_DIRTY] = 1
    for lane in range(s.link_index[link, FIRST_LANE], s.link_index[link, END_LANE]):
        list_dirty(s, lane)


def admit(s: State, i: int) -> None:
    """Queue the start of a fresh flow."""
    f, c = s.fresh_index[i, FRESH_FLOW], s.fresh_index[i, FRESH_CLASS]
    s.flows[f, SIZE] = s.fresh[i, FRESH_SIZE]
    s.flows[f, START] = s.fresh[i, FRESH_START]
    s.flows[f, FINISH] = math.inf
    s.flow_index[f, CLASS_OF] = c
    s.flow_index[f, LEFT_CHILD] = -1
    s.flow_index[f, RIGHT_CHILD] = -1
    s.flow_index[f, HELD_LONGEST] = NOTHING
    # a number used again keeps its entries in held_before if they are enough for the route
    needed = s.class_index[c, END_HOP] - s.class_index[c, FIRST_HOP] + 1
    if needed > s.flow_index[f, SNAPSHOT_ROOM]:
        s.flow_index[f, SNAPSHOT] = s.counters[N_HELD]
        s.flow_index[f, SNAPSHOT_ROOM] = needed
        s.counters[N_HELD] += needed
    heap_push(s.queue_time, s.queue_item, s.counters[N_QUEUE], s.flows[f, START], f)
    s.counters[N_QUEUE] += 1


def advance(s: State, to: float, budget: int) -> bool:
    """Run all events up to and including time ``to``; False if the work exceeded ``budget`` before: call again."""
    clock, counters = s.clock, s.counters
    for i in range(counters[N_FRESH]):
        admit(s, i)
    counters[N_FRESH] = 0
    enough = counters[WORK] + budget
    while True:
        if counters[N_DIRTY] > 0 or counters[ALL_DIRTY] == 1:
            if counters[WORK] > enough:
                return False
            solve(s)
        clock[NEXT_FINISH] = time = next_finish(s)
        if counters[N_QUEUE] > 0 and s.queue_time[0] < time:
            time = s.queue_time[0]
        if time == math.inf or time > to:
            break
        clock[NOW] = max(clock[NOW], time)
        counters[EVENTS] += 1
        horizon = clock[NOW] * (1.0 + TIE)
        while next_finish(s) <= horizon:
            complete(s, s.finish_class[0])
        while counters[N_QUEUE] > 0 and s.queue_time[0] <= clock[NOW]:
            item = s.queue_item[0]
            heap_pop(s.queue_time, s.queue_item, counters[N_QUEUE])
            counters[N_QUEUE] -= 1
            if item >= 0:
                start_flow(s, item)
            else:
                change_capacity(s, -1 - item)
        if counters[N_LEVELS] > 1 or counters[ARBITRATED] > 0:
            counters[ALL_DIRTY] = 1
    if clock[NOW] < to < math.inf:
        clock[NOW] = to
    return True


PLAIN = SimpleNamespace(solve=solve, advance=advance)

_INLINED = (sift_down, heap_push, heap_pop, include, bound_outside, freeze, differs, read_clock, foresee, list_dirty)
_RATES = (gather, open_pull, fill, widen, link_level, steered, arbitrate, commit, solve_region, solve_levels)
_EVENTS = (
    merge_marks,
    next_finish,
    wake,
    rest,
    load_more,
    end_flow,
    start_flow,
    held_longest,
    complete,
    find_cap,
    admit,
)


def plain_work() -> int:
    """Rates to find in plain Python (some 20 us each) before going on compiled pays: few if machine code is kept.

    Making machine code takes about ten seconds, loading it half a second.
    """
    here = Path(__file__)
    pattern = f"{here.stem}.advance-*.py{sys.version_info.major}{sys.version_info.minor}.nbi"
    made = [file.stat().st_mtime for file in (here.parent / "__pycache__").glob(pattern)]
    return 30_000 if made and max(made) > here.stat().st_mtime else 400_000


@functools.cache
def compiled() -> SimpleNamespace | None:
    """The kernels through Numba, or None where Numba cannot be imported.

    Machine code is kept in Numba's cache (beside this file, else in the user's cache folder). A cache that cannot
    be read or written must not stop a run, so any failure with it means compiling in memory.
    """
    try:
        import numba
    except ImportError:
        return None
    try:
        return _compile(numba, cache=True)
    except Exception:
        return _compile(numba, cache=False)


def _compile(numba: Any, cache: bool) -> SimpleNamespace:
    floats, table, ints, indices = numba.float64[::1], numba.float64[:, ::1], numba.int64[::1], numba.int64[:, ::1]
    tables = {"links", "lanes", "classes", "hops", "flows", "changes", "fresh"}
    vectors = {"held_before", "queue_time", "finish_time", "heap_key", "clock"}
    fields = [
        table if name in tables else floats if name in vectors else indices if name.endswith("_index") else ints
        for name in State._fields
    ]
    kinds = {"int": numba.int64, "float": numba.float64, "Floats": floats, "Ints": ints}
    kinds["State"] = numba.types.NamedTuple(fields, State)
    # Copies of the functions see the compiled callees instead of the plain ones. Passing State costs some hundred
    # words a call, so what runs for every class is put in place; wrappers for calls from Python are made for the
    # entry points only. No array is made or kept inside, so references need not be counted (half of the time
    # otherwise).
    names = dict(globals())
    options = {"cache": cache, "no_cfunc_wrapper": True, "_nrt": False}
    for function in (*_INLINED, *_RATES, solve, *_EVENTS, change_capacity, advance):
        name = function.__name__
        arguments = [kinds[kind] for argument, kind in function.__annotations__.items() if argument != "return"]
        inner = function not in (solve, advance)
        njit = numba.njit([tuple(arguments)], no_cpython_wrapper=inner, forceinline=function in _INLINED, **options)
        names[name] = njit(FunctionType(function.__code__, names, name))
    return SimpleNamespace(solve=names["solve"], advance=names["advance"])
