"""Links, classes and flows laid out as the arrays that the kernels work on; they grow as flows are added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError, did_you_mean
from dualplan.flow import kernels as k
from dualplan.flow.problem import Link, Route

Number = TypeVar("Number", np.float64, np.int64)


Attributes = tuple[Route, float, float, int, str]
"""What flows of a class have in common: route, weight, rate cap, priority, traffic class."""


class Store:
    """The arrays of a network. ``state`` is replaced when arrays grow: read it afresh after adding anything."""

    def __init__(self, links: Sequence[Link]) -> None:
        self.link_ids = [link.id for link in links]
        self._link_index = {name: i for i, name in enumerate(self.link_ids)}
        self._lane_index: dict[tuple[int, str], int] = {}
        self._weighted = [bool(link.class_weights) for link in links]
        self._classes: dict[Attributes, int] = {}
        self._by_content: dict[tuple[object, ...], int] = {}
        self._n_hops = 0
        self._n_flows = 0
        self._longest = 0
        self._n_changes = 0
        lane_weights: list[float] = []
        lane_links: list[int] = []
        bounds: list[tuple[int, int]] = []
        for i, link in enumerate(links):
            first = len(lane_links)
            for name, weight in (link.class_weights or {"": 1.0}).items():
                self._lane_index[i, name] = len(lane_links)
                lane_links.append(i)
                lane_weights.append(weight)
            bounds.append((first, len(lane_links)))
        n_links, n_lanes = len(links), len(lane_links)
        self.state = k.State(
            links=np.zeros((n_links, k.LEFT + 1)),
            link_index=_indices(n_links, k.CAP_ONLY + 1),
            lanes=np.zeros((n_lanes, k.GAIN + 1)),
            lane_index=_indices(n_lanes, k.SATED + 1),
            classes=np.zeros((0, k.ENDED_BYTES + 1)),
            class_index=_indices(0, k.MEMBER + 1),
            hops=np.zeros((0, k.HELD + 1)),
            hop_index=_indices(0, k.BEFORE + 1),
            flows=np.zeros((0, k.FINISH + 1)),
            flow_index=_indices(0, k.HELD_LONGEST + 1),
            held_before=np.zeros(0),
            changes=np.zeros((0, 2)),
            change_link=_indices(0),
            queue_time=np.zeros(0),
            queue_item=_indices(0),
            finish_time=np.zeros(0),
            finish_class=_indices(0),
            heap_key=np.zeros(n_lanes),
            heap_node=_indices(n_lanes),
            busy=_indices(0),
            members=_indices(0),
            region=_indices(n_lanes),
            dirty=_indices(n_lanes),
            levels=_indices(0),
            fresh=np.zeros((0, k.FRESH_START + 1)),
            fresh_index=_indices(0, k.FRESH_CLASS + 1),
            done=_indices(0),
            clock=np.array([0.0, math.inf]),
            counters=_indices(k.N_COUNTERS),
        )
        state = self.state
        state.links[:] = np.array([[link.capacity] for link in links]).reshape(n_links, 1)
        state.link_index[:, k.CAP_ONLY] = [not link.shared for link in links]
        state.link_index[:, k.FIRST_LANE] = [first for first, _ in bounds]
        state.link_index[:, k.END_LANE] = [end for _, end in bounds]
        state.lanes[:, k.LANE_WEIGHT] = lane_weights
        state.lane_index[:, k.LINK] = lane_links
        state.lane_index[:, k.HEAD] = -1
        state.counters[k.ARBITRATED] = sum(end - first > 1 for first, end in bounds)

    def link(self, name: str) -> int:
        """Place of a link. Raises InputError for an unknown one."""
        try:
            return self._link_index[name]
        except KeyError:
            raise InputError("link", f'unknown link "{name}"', did_you_mean(name, self._link_index)) from None

    def knows(self, attributes: Attributes) -> bool:
        """Whether there is a class of flows with these attributes."""
        return attributes in self._classes

    def flow_class(self, attributes: Attributes) -> int:
        """Place of the class of flows with these attributes, made on first use. Raises InputError for unknown links."""
        known = self._classes.get(attributes)
        if known is None:
            known = self._classes[attributes] = self._same_class(*attributes)
        return known

    def _same_class(self, route: Route, weight: float, rate_cap: float, priority: int, traffic_class: str) -> int:
        # routes that list the same links in another order, or one of them twice, are the same class
        times: dict[int, float] = {}
        for name, count in route:
            times[self.link(name)] = times.get(self.link(name), 0.0) + count
        cap_only = self.state.link_index[:, k.CAP_ONLY]
        crossed = sorted(times.items(), key=lambda item: (cap_only[item[0]], item[0]))
        lanes: list[int] = []
        for link, _ in crossed:
            lane = self._lane_index.get((link, traffic_class if self._weighted[link] else ""))
            if lane is None:
                raise InputError(
                    "traffic_class", f'link "{self.link_ids[link]}" has no weight for class "{traffic_class}"'
                )
            lanes.append(link if cap_only[link] else lane)
        content = (tuple(zip(lanes, (count for _, count in crossed), strict=True)), weight, rate_cap, priority)
        if content not in self._by_content:
            shared = sum(1 for link, _ in crossed if not cap_only[link])
            self._by_content[content] = self._new_class(
                lanes, [count for _, count in crossed], shared, weight, rate_cap, priority
            )
        return self._by_content[content]

    def _new_class(
        self, lanes: list[int], times: list[float], shared: int, weight: float, rate_cap: float, priority: int
    ) -> int:
        c, first = int(self.state.counters[k.N_CLASSES]), self._n_hops
        end = self._n_hops = first + len(lanes)
        self._longest = max(self._longest, len(lanes) + 1)
        self._reserve_classes(c + 1, end)
        state = self.state
        state.classes[c] = 0.0
        state.classes[c, k.WEIGHT] = weight
        state.classes[c, k.RATE_CAP] = rate_cap
        state.classes[c, k.NEXT] = math.inf
        state.class_index[c] = 0
        state.class_index[c, k.FIRST_HOP], state.class_index[c, k.CUT], state.class_index[c, k.END_HOP] = (
            first,
            first + shared,
            end,
        )
        state.class_index[c, k.PRIORITY] = priority
        state.class_index[c, k.ROOT] = -1
        state.class_index[c, k.BOUND_BY] = k.NOTHING
        state.hops[first:end, k.TIMES] = times
        state.hop_index[first:end, k.LANE] = lanes
        state.hop_index[first:end, k.CLASS] = c
        state.counters[k.N_CLASSES] = c + 1
        levels = np.union1d(state.levels[: state.counters[k.N_LEVELS]], [priority])
        state.counters[k.N_LEVELS] = len(levels)
        self.state = state._replace(levels=levels.astype(np.int64))
        k.find_cap(self.state, c)
        return c

    def add_flow(self, number: int, flow_class: int, size: float, start: float) -> None:
        """Have a flow admitted by the next ``advance`` under this number, a new one or one whose flow has ended."""
        n = int(self.state.counters[k.N_FRESH])
        if n == len(self.state.fresh):
            self._reserve_fresh(n + 1)
        state = self.state
        state.fresh_index[n, k.FRESH_FLOW] = number
        state.fresh_index[n, k.FRESH_CLASS] = flow_class
        state.fresh[n, k.FRESH_SIZE] = size
        state.fresh[n, k.FRESH_START] = start
        state.counters[k.N_FRESH] = n + 1
        self._n_flows = max(self._n_flows, number + 1)

    def add_flows(
        self, numbers: range, classes: Sequence[int], sizes: Sequence[float], starts: Sequence[float]
    ) -> None:
        """Many flows at once."""
        n, end = int(self.state.counters[k.N_FRESH]), int(self.state.counters[k.N_FRESH]) + len(numbers)
        self._reserve_fresh(end)
        state = self.state
        state.fresh_index[n:end, k.FRESH_FLOW] = numbers
        state.fresh_index[n:end, k.FRESH_CLASS] = classes
        state.fresh[n:end, k.FRESH_SIZE] = sizes
        state.fresh[n:end, k.FRESH_START] = starts
        state.counters[k.N_FRESH] = end
        self._n_flows = max(self._n_flows, numbers.stop)

    def make_room(self) -> None:
        """Have room for all flows added so far; to be called before ``advance``."""
        state = self.state
        if self._n_flows > len(state.flows):
            self.state = state = state._replace(
                flows=_grown(state.flows, self._n_flows),
                flow_index=_grown(state.flow_index, self._n_flows),
                done=_grown(state.done, self._n_flows),
            )
            self._reserve_queue()
            state = self.state
        held = int(state.counters[k.N_HELD] + state.counters[k.N_FRESH] * self._longest)
        if held > len(state.held_before):
            self.state = state._replace(held_before=_grown(state.held_before, held))

    def link_loads(self) -> list[float]:
        """Load of each link [B/s], rates counted as often as they cross; on cap-only links the sum over flows too."""
        return self.link_sums(self.state.classes[:, k.RATE] * self.state.class_index[:, k.FLOWS])

    def link_sums(self, of_class: npt.NDArray[Any]) -> list[float]:
        """For each link, the sum over classes of a quantity times how often the class crosses it."""
        links = self._hop_links()
        state, n = self.state, len(links)
        weights = of_class[state.hop_index[:n, k.CLASS]] * state.hops[:n, k.TIMES]
        return [float(total) for total in np.bincount(links, weights=weights, minlength=len(state.links))]

    def binding_links(self, hops: k.Ints) -> list[str | None]:
        """Names of the links of these hops; None in place of OWN_CAP and NOTHING."""
        links = self._hop_links()
        return [self.link_ids[links[hop]] if hop >= 0 else None for hop in hops.tolist()]

    def _hop_links(self) -> k.Ints:
        state, n_classes = self.state, int(self.state.counters[k.N_CLASSES])
        links = state.hop_index[: self._n_hops, k.LANE].copy()
        for first, cut in state.class_index[:n_classes, [k.FIRST_HOP, k.CUT]]:
            links[first:cut] = state.lane_index[links[first:cut], k.LINK]
        return links

    def add_change(self, link: int, capacity: float, time: float) -> None:
        """Queue a change of capacity."""
        change = self._n_changes
        self._n_changes += 1
        state = self.state
        self.state = state = state._replace(
            changes=_grown(state.changes, change + 1), change_link=_grown(state.change_link, change + 1)
        )
        self._reserve_queue()
        state = self.state
        state.changes[change] = time, capacity
        state.change_link[change] = link
        k.heap_push(state.queue_time, state.queue_item, int(state.counters[k.N_QUEUE]), time, -1 - change)
        state.counters[k.N_QUEUE] += 1

    def _reserve_classes(self, n_classes: int, n_hops: int) -> None:
        state = self.state
        n_nodes = n_classes + len(state.lanes)
        self.state = state._replace(
            classes=_grown(state.classes, n_classes),
            class_index=_grown(state.class_index, n_classes),
            busy=_grown(state.busy, n_classes),
            members=_grown(state.members, n_classes),
            finish_time=_grown(state.finish_time, 4 * n_classes),
            finish_class=_grown(state.finish_class, 4 * n_classes),
            heap_key=_grown(state.heap_key, n_nodes),
            heap_node=_grown(state.heap_node, n_nodes),
            hops=_grown(state.hops, n_hops),
            hop_index=_grown(state.hop_index, n_hops),
        )

    def _reserve_fresh(self, n: int) -> None:
        state = self.state
        self.state = state._replace(fresh=_grown(state.fresh, n), fresh_index=_grown(state.fresh_index, n))

    def _reserve_queue(self) -> None:
        state = self.state
        most = len(state.flows) + self._n_changes
        self.state = state._replace(
            queue_time=_grown(state.queue_time, most), queue_item=_grown(state.queue_item, most)
        )


def _indices(*shape: int) -> k.Ints:
    return np.zeros(shape, dtype=np.int64)


def _grown(array: npt.NDArray[Number], n: int) -> npt.NDArray[Number]:
    if len(array) >= n:
        return array
    longer = np.zeros((max(n, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
