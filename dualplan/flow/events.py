"""Events of a run: flows start and end, capacities change."""

from __future__ import annotations

import math

from dualplan.flow.clocks import foresee, merge_marks, next_finish, read_clock
from dualplan.flow.layout import (
    AFTER,
    ALL_DIRTY,
    ARBITRATED,
    BEFORE,
    BOUND_BY,
    CAP,
    CAP_HOP,
    CAP_ONLY,
    CAPACITY,
    CLASS_OF,
    CUT,
    END_HOP,
    END_LANE,
    ENDED_BYTES,
    EVENTS,
    FINISH,
    FIRST_HOP,
    FIRST_LANE,
    FLOWS,
    FROZEN,
    HEAD,
    HELD,
    HELD_BY_CAP,
    HELD_LONGEST,
    LANE,
    LEFT_CHILD,
    LINK,
    LISTED,
    LOAD,
    MARK,
    N_BOUND,
    N_BUSY,
    N_DIRTY,
    NEARLY_FULL,
    NEXT,
    NOTHING,
    NOW,
    OWN_CAP,
    PLACE,
    QUEUED,
    RATE,
    RATE_CAP,
    RIGHT_CHILD,
    ROOT,
    SERVED,
    SINCE,
    SIZE,
    SNAPSHOT,
    TIE,
    TIMES,
    WORK,
    State,
)
from dualplan.flow.sharing import solve


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


def start_flow(s: State, f: int) -> None:
    """Start flow ``f`` now: set its finish mark on the service clock of its class."""
    class_index = s.class_index
    c = s.flow_index[f, CLASS_OF]
    if s.flows[f, SIZE] == 0.0:
        s.flows[f, FINISH] = s.clock[NOW]
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
        s.flows[root, FINISH] = s.clock[NOW]
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
        for c in range(len(s.classes)):
            find_cap(s, c)
        s.counters[ALL_DIRTY] = 1
    for lane in range(s.link_index[link, FIRST_LANE], s.link_index[link, END_LANE]):
        list_dirty(s, lane)


def run(s: State, budget: int) -> bool:
    """Run all events; False if the work exceeded ``budget`` before the last: call again."""
    clock, counters = s.clock, s.counters
    enough = counters[WORK] + budget
    while True:
        if counters[N_DIRTY] > 0 or counters[ALL_DIRTY] == 1:
            if counters[WORK] > enough:
                return False
            solve(s)
        time = next_finish(s)
        if counters[QUEUED] < len(s.queue_time):
            time = min(time, s.queue_time[counters[QUEUED]])
        if time == math.inf:
            return True
        clock[NOW] = max(clock[NOW], time)
        counters[EVENTS] += 1
        horizon = clock[NOW] * (1.0 + TIE)
        while next_finish(s) <= horizon:
            complete(s, s.finish_class[0])
        while counters[QUEUED] < len(s.queue_time) and s.queue_time[counters[QUEUED]] <= clock[NOW]:
            item = s.queue_item[counters[QUEUED]]
            counters[QUEUED] += 1
            if item >= 0:
                start_flow(s, item)
            else:
                change_capacity(s, -1 - item)
        if len(s.levels) > 1 or counters[ARBITRATED] > 0:
            counters[ALL_DIRTY] = 1
