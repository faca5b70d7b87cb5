"""Rates of all classes after a change: where it reaches, by priorities, and between traffic classes."""

from __future__ import annotations

import math

from dualplan.flow.clocks import foresee, read_clock
from dualplan.flow.filling import differs, fill, gather, include, widen
from dualplan.flow.layout import (
    ALL_DIRTY,
    ARBITRATED,
    BINDS,
    BOUND_BY,
    CAPACITY,
    CUT,
    END_LANE,
    FIRST_HOP,
    FIRST_LANE,
    FLOWS,
    GAIN,
    LANE,
    LANE_WEIGHT,
    LEFT,
    LIMIT,
    LIMIT_TOLERANCE,
    LINK,
    LISTED,
    LOAD,
    MAX_GROWTHS,
    MAX_ROUNDS,
    N_BOUND,
    N_DIRTY,
    RATE,
    REGION,
    ROOM,
    SATED,
    STAMPS,
    STEERED_AFTER,
    STEP,
    TIMES,
    TRIAL,
    TRIAL_HOP,
    TRIAL_LOAD,
    UNSETTLED,
    WORK,
    State,
)


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
    for i in range(len(s.levels)):
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
    if len(s.levels) > 1 or s.counters[ARBITRATED] > 0:
        solve_levels(s)
    elif len(s.levels) == 1:
        solve_region(s)
    for i in range(s.counters[N_DIRTY]):
        s.lane_index[s.dirty[i], LISTED] = 0
    s.counters[N_DIRTY] = 0
    s.counters[ALL_DIRTY] = 0
