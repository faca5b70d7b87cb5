"""Links, classes and flows of a problem laid out as the arrays that the kernels work on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualplan.flow import layout as k
from dualplan.flow.events import find_cap
from dualplan.flow.problem import FlowProblem, Link, Route, priorities


class Network(NamedTuple):
    """A problem laid out. ``of_flow``: the class of each flow; ``hop_links``: the link of each hop; ``link_ids``: names
    of the links. All in the order of the problem.
    """

    state: k.State
    of_flow: k.Ints
    hop_links: k.Ints
    link_ids: tuple[str, ...]


class _Class(NamedTuple):
    """What flows of a class have in common. ``hops``: lane (link where ``cap_only``), link and times of each crossing,
    those of cap-only links last, ``shared`` before them.
    """

    hops: tuple[tuple[int, int, float], ...]
    shared: int
    weight: float
    rate_cap: float
    priority: int


def lay_out(problem: FlowProblem) -> Network:
    """The arrays of a problem that has been checked."""
    lanes = _Lanes(problem.links)
    places: dict[_Class, int] = {}
    known: dict[tuple[object, ...], int] = {}
    by_class = priorities(problem)
    of_flow = np.zeros(len(problem.flows), dtype=np.int64)
    for i, flow in enumerate(problem.flows):
        priority = by_class.get(flow.traffic_class, flow.priority)
        attributes = (flow.route, flow.weight, flow.rate_cap, priority, flow.traffic_class)
        place = known.get(attributes)
        if place is None:
            crossed = lanes.crossed(flow.route, flow.traffic_class)
            one = _Class(*crossed, flow.weight, flow.rate_cap, priority)
            place = known[attributes] = places.setdefault(one, len(places))
        of_flow[i] = place
    classes = list(places)
    state = _state(problem, lanes, classes, of_flow)
    for c in range(len(classes)):
        find_cap(state, c)
    hop_links = np.array([link for one in classes for _, link, _ in one.hops], dtype=np.int64)
    return Network(state, of_flow, hop_links, tuple(link.id for link in problem.links))


def link_sums(network: Network, of_class: npt.NDArray[Any]) -> list[float]:
    """For each link, the sum over classes of a quantity times how often the class crosses it."""
    state = network.state
    weights = of_class[state.hop_index[:, k.CLASS]] * state.hops[:, k.TIMES]
    sums = np.bincount(network.hop_links, weights=weights, minlength=len(state.links))
    return [float(total) for total in sums]


def binding_links(network: Network, hops: k.Ints) -> list[str | None]:
    """Names of the links of these hops; None in place of OWN_CAP and NOTHING."""
    return [network.link_ids[network.hop_links[hop]] if hop >= 0 else None for hop in hops.tolist()]


class _Lanes:
    """Lanes of the links: one for each class weight, a single one on a link without."""

    def __init__(self, links: Sequence[Link]) -> None:
        self.links = links
        self.places = {link.id: i for i, link in enumerate(links)}
        weights = [link.class_weights or {"": 1.0} for link in links]
        pairs = [(i, name) for i, of_link in enumerate(weights) for name in of_link]
        self.index = {pair: lane for lane, pair in enumerate(pairs)}
        self.weight = [weight for of_link in weights for weight in of_link.values()]
        counts = np.array([len(of_link) for of_link in weights], dtype=np.int64)
        self.firsts, self.ends = np.cumsum(counts) - counts, np.cumsum(counts)
        self.link = np.repeat(np.arange(len(links)), counts)

    def crossed(self, route: Route, traffic_class: str) -> tuple[tuple[tuple[int, int, float], ...], int]:
        """Hops of a route, and how many of them share their lane. Routes that list the same links in another order, or
        one of them twice, have the same.
        """
        times: dict[int, float] = {}
        for name, count in route:
            times[self.places[name]] = times.get(self.places[name], 0.0) + count
        shared = [link for link in sorted(times) if self.links[link].shared]
        capped = [link for link in sorted(times) if not self.links[link].shared]
        lanes = [self.index[i, traffic_class if self.links[i].class_weights else ""] for i in shared]
        places = zip([*lanes, *capped], [*shared, *capped], strict=True)
        return tuple((lane, link, times[link]) for lane, link in places), len(shared)


def _state(problem: FlowProblem, lanes: _Lanes, classes: Sequence[_Class], of_flow: k.Ints) -> k.State:
    links, flows = problem.links, problem.flows
    n_links, n_lanes, n_classes, n_flows = len(links), len(lanes.weight), len(classes), len(flows)
    lengths = np.array([len(one.hops) for one in classes], dtype=np.int64)
    ends = np.cumsum(lengths)
    firsts = ends - lengths
    snapshots = (lengths + 1)[of_flow]
    hops = [hop for one in classes for hop in one.hops]
    changes = [(time, capacity, i) for i, link in enumerate(links) for time, capacity in link.capacity_changes]
    times = np.array([*(time for time, _, _ in changes), *(flow.start for flow in flows)], dtype=np.float64)
    items = np.concatenate([-1 - np.arange(len(changes)), np.arange(n_flows)])
    order = np.argsort(times, kind="stable")
    state = k.State(
        links=np.zeros((n_links, k.LEFT + 1)),
        link_index=_indices(n_links, k.CAP_ONLY + 1),
        lanes=np.zeros((n_lanes, k.GAIN + 1)),
        lane_index=_indices(n_lanes, k.SATED + 1),
        classes=np.zeros((n_classes, k.ENDED_BYTES + 1)),
        class_index=_indices(n_classes, k.MEMBER + 1),
        hops=np.zeros((len(hops), k.HELD + 1)),
        hop_index=_indices(len(hops), k.BEFORE + 1),
        flows=np.zeros((n_flows, k.FINISH + 1)),
        flow_index=_indices(n_flows, k.HELD_LONGEST + 1),
        held_before=np.zeros(int(snapshots.sum())),
        changes=np.array([(time, capacity) for time, capacity, _ in changes], dtype=np.float64).reshape(-1, 2),
        change_link=np.array([link for _, _, link in changes], dtype=np.int64),
        queue_time=times[order],
        queue_item=items[order],
        finish_time=np.zeros(4 * n_classes),
        finish_class=_indices(4 * n_classes),
        heap_key=np.zeros(n_classes + n_lanes),
        heap_node=_indices(n_classes + n_lanes),
        busy=_indices(n_classes),
        members=_indices(n_classes),
        region=_indices(n_lanes),
        dirty=_indices(n_lanes),
        levels=np.unique(np.array([one.priority for one in classes], dtype=np.int64)),
        clock=np.zeros(1),
        counters=_indices(k.N_COUNTERS),
    )
    state.links[:] = np.array([[link.capacity] for link in links]).reshape(n_links, 1)
    state.link_index[:, k.CAP_ONLY] = [not link.shared for link in links]
    state.link_index[:, k.END_LANE] = lanes.ends
    state.link_index[:, k.FIRST_LANE] = lanes.firsts
    state.lanes[:, k.LANE_WEIGHT] = lanes.weight
    state.lane_index[:, k.LINK] = lanes.link
    state.lane_index[:, k.HEAD] = -1
    state.counters[k.ARBITRATED] = sum(len(link.class_weights) > 1 for link in links)
    state.classes[:, k.WEIGHT] = [one.weight for one in classes]
    state.classes[:, k.RATE_CAP] = [one.rate_cap for one in classes]
    state.classes[:, k.NEXT] = math.inf
    state.class_index[:, k.FIRST_HOP], state.class_index[:, k.END_HOP] = firsts, ends
    state.class_index[:, k.CUT] = firsts + np.array([one.shared for one in classes], dtype=np.int64)
    state.class_index[:, k.PRIORITY] = [one.priority for one in classes]
    state.class_index[:, k.ROOT], state.class_index[:, k.BOUND_BY] = -1, k.NOTHING
    state.hops[:, k.TIMES] = [count for _, _, count in hops]
    state.hop_index[:, k.LANE] = [lane for lane, _, _ in hops]
    state.hop_index[:, k.CLASS] = np.repeat(np.arange(n_classes), lengths)
    state.flows[:, k.SIZE], state.flows[:, k.START] = [flow.size for flow in flows], [flow.start for flow in flows]
    state.flows[:, k.FINISH] = math.inf
    state.flow_index[:, k.CLASS_OF] = of_flow
    state.flow_index[:, k.LEFT_CHILD], state.flow_index[:, k.RIGHT_CHILD] = -1, -1
    state.flow_index[:, k.SNAPSHOT] = np.cumsum(snapshots) - snapshots
    state.flow_index[:, k.HELD_LONGEST] = k.NOTHING
    return state


def _indices(*shape: int) -> k.Ints:
    return np.zeros(shape, dtype=np.int64)
