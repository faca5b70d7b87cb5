"""Progressive filling of a region of lanes."""

from __future__ import annotations

import math

from dualplan.flow.clocks import heap_pop, sift_down
from dualplan.flow.layout import (
    AFTER,
    CAP,
    CAP_HOP,
    CAPACITY,
    CLASS,
    CUT,
    FIRST_HOP,
    FLOWS,
    FROZEN,
    HEAD,
    LANE,
    LEFT,
    LEVEL,
    LIMIT,
    LINK,
    LOAD,
    MEMBER,
    N_BOUND,
    N_BUSY,
    NEARLY_FULL,
    OPEN,
    OPEN_ALL,
    OUTER,
    OUTER_HOP,
    PRIORITY,
    PULL,
    PULL_ALL,
    RATE,
    REGION,
    ROOM,
    SAME,
    STAMPS,
    TIMES,
    TRIAL,
    TRIAL_HOP,
    TRIAL_LOAD,
    TRIED,
    TRIES,
    WEIGHT,
    State,
)


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
