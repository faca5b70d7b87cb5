"""The arrays of a network and its flows, and their columns.

Words: a *lane* is what one traffic class sees of a link (a link without class weights has a single lane); a *class*
is a set of flows with the same route, weight, rate cap, priority and traffic class; a *hop* is one crossing of a
lane, or of a cap-only link, by a class. A class has one service clock (bytes that each of its flows would have got
since the class became busy) and a heap of finish marks on that clock, so that an event costs by the number of busy
classes and not of flows.
"""

from __future__ import annotations

from typing import NamedTuple

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
CLASS_OF, LEFT_CHILD, RIGHT_CHILD, SNAPSHOT, HELD_LONGEST = range(5)
# entries of State.clock: time now [s]
NOW = 0
# entries of State.counters
N_BUSY, QUEUED, N_FORESEEN, N_DIRTY, ALL_DIRTY, EVENTS, WORK, STAMPS, TRIES, ARBITRATED, UNSETTLED = range(11)
N_COUNTERS = 11

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
    """All arrays of a network and its flows; the columns of the two-dimensional ones are named above.

    ``queue_time`` and ``queue_item``: starts of flows, and changes of capacity as -1 - change, in order of time; QUEUED
    of them have happened. ``levels``: priorities in use.
    """

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
    clock: Floats
    counters: Ints
