"""Flows over time: rates from max-min sharing, constant between events, and the events exact.

Events are starts, completions and capacity changes. ``run_fluid`` runs a problem to its end. ``FluidRun`` is the
same engine for a simulation that adds flows while it runs:

    run = FluidRun(links)
    kv = run.flow_class((("prefill0.snic", 1.0), ("prefill0.dram", 2.0)))
    flow = run.add_flow(kv, 1e9)                   # starts now
    while (time := run.next_event_time()) <= horizon:
        for flow, finish in run.advance(time): ...

The cost of an event grows with the number of busy classes (sets of flows with the same route, weight, cap, priority
and traffic class), not with the number of flows. The run starts in plain Python and goes on in compiled kernels
once that pays; the results are the same to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dualplan.errors import InputError
from dualplan.flow import kernels as k
from dualplan.flow.maxmin import class_attributes, settled
from dualplan.flow.problem import (
    LARGEST,
    SMALLEST,
    Flow,
    FlowProblem,
    FlowResult,
    Link,
    Route,
    check,
    flow_problems,
    out_of_range,
    report,
)
from dualplan.flow.store import Store

NO_BUDGET = 2**62


class Completion(NamedTuple):
    """A flow, by the number that ``add_flow`` gave, and when it ended [s]."""

    flow: int
    time: float


class FluidRun:
    """Flows that share links over time, driven from outside. Times in seconds from 0, sizes in bytes, rates in B/s.

    ``compiled``: False never loads compiled kernels, True loads them at once, None when the run has become long.
    ``reuse``: numbers of flows that ``advance`` has returned go to new flows, so that memory stays that of the flows
    under way; ``finish_times`` and ``bottlenecks`` then tell the latest flow of each number.
    """

    def __init__(self, links: Sequence[Link], *, compiled: bool | None = None, reuse: bool = False) -> None:
        check(FlowProblem(links=tuple(links), flows=()))
        self._links = {link.id: link for link in links}
        self._store = Store(links)
        self._kernels = (k.compiled() if compiled else None) or k.PLAIN
        self._plain_work = k.plain_work() if compiled is None else None
        self._reuse = reuse
        self._free: list[int] = []
        self._n_flows = 0
        self._quiet = False
        for link in links:
            for time, capacity in link.capacity_changes:
                self._store.add_change(self._store.link(link.id), capacity, time)

    @property
    def now(self) -> float:
        """Time that the run has reached [s]."""
        return float(self._store.state.clock[k.NOW])

    @property
    def events(self) -> int:
        """Instants so far at which something happened."""
        return int(self._store.state.counters[k.EVENTS])

    @property
    def n_classes(self) -> int:
        """Number of flow classes."""
        return int(self._store.state.counters[k.N_CLASSES])

    def flow_class(
        self,
        route: Route,
        *,
        weight: float = 1.0,
        rate_cap: float = math.inf,
        priority: int = 0,
        traffic_class: str = "",
    ) -> int:
        """The number, for ``add_flow``, of the class of flows with this route and these attributes.

        Raises InputError for unknown links and values out of range.
        """
        attributes = (route, weight, rate_cap, priority, traffic_class)
        if not self._store.knows(attributes):
            flow = Flow(
                id=0,
                route=route,
                size=0.0,
                weight=weight,
                rate_cap=rate_cap,
                priority=priority,
                traffic_class=traffic_class,
            )
            report(flow_problems("flow_class", flow, self._links))
        return self._store.flow_class(attributes)

    def add_flow(self, flow_class: int, size: float, at: float | None = None) -> int:
        """Add a flow of ``size`` bytes that starts at ``at`` (now if None) and return its number.

        Numbers count from 0, without gaps. Raises InputError for a size out of range and a start in the past.
        """
        if not (SMALLEST <= size <= LARGEST or size == 0):
            report(out_of_range("size", size, zero=True))
        start = self._not_before_now(at)
        if not 0 <= flow_class < self.n_classes:
            raise InputError("flow_class", f"{flow_class} is not a class of this run")
        if self._free:
            number = self._free.pop()
        else:
            number = self._n_flows
            self._n_flows += 1
        self._store.add_flow(number, flow_class, size, start)
        self._quiet = False
        return number

    def add_problem(self, problem: FlowProblem) -> None:
        """Add all flows of a problem that has been checked, numbered in its order."""
        classes = [self._store.flow_class(attributes) for attributes in class_attributes(problem)]
        numbers = range(self._n_flows, self._n_flows + len(classes))
        self._n_flows = numbers.stop
        self._quiet = False
        self._store.add_flows(
            numbers, classes, [flow.size for flow in problem.flows], [flow.start for flow in problem.flows]
        )

    def set_capacity(self, link: str, capacity: float, at: float | None = None) -> None:
        """Change the capacity of a link [B/s] at ``at`` (now if None); 0 stops the flows on it. Raises InputError."""
        report(out_of_range("capacity", capacity, zero=True))
        self._store.add_change(self._store.link(link), capacity, self._not_before_now(at))
        self._quiet = False

    def next_event_time(self) -> float:
        """Time of the next start, completion or capacity change [s], infinity if there is none.

        Flows added later may move it either way: ask again after adding.
        """
        self._run(self.now)
        state = self._store.state
        queued = float(state.queue_time[0]) if state.counters[k.N_QUEUE] else math.inf
        return min(float(state.clock[k.NEXT_FINISH]), queued)

    def advance(self, to: float) -> list[Completion]:
        """Run up to and including ``to`` [s]; the flows that have ended since the last call, in order of time.

        With infinity the run stops at the last event. Raises InputError for a time in the past.
        """
        if not to >= self.now:
            raise InputError("to", f"cannot go back to {to:g} s, the run is at {self.now:g} s")
        self._run(to)
        state = self._store.state
        ended = state.done[: state.counters[k.N_DONE]].tolist()
        state.counters[k.N_DONE] = 0
        if self._reuse:
            self._free += ended
        return list(map(Completion, ended, state.flows[ended, k.FINISH].tolist()))

    def rate(self, flow: int) -> float:
        """Rate of a flow now [B/s]; 0 before its start and after its end."""
        self._run(self.now)
        state = self._store.state
        return float(state.classes[state.flow_index[flow, k.CLASS_OF], k.RATE]) if self._under_way(flow) else 0.0

    def remaining(self, flow: int) -> float:
        """Bytes that a flow has still to send."""
        self._run(self.now)
        state = self._store.state
        if not self._under_way(flow):
            return 0.0 if state.flows[flow, k.FINISH] <= self.now else float(state.flows[flow, k.SIZE])
        c = int(state.flow_index[flow, k.CLASS_OF])
        served = state.classes[c, k.SERVED] + state.classes[c, k.RATE] * (self.now - state.classes[c, k.SINCE])
        return max(float(state.flows[flow, k.MARK] - served), 0.0)

    def link_loads(self) -> dict[str, float]:
        """Load of each link now [B/s], each rate counted as often as the flow crosses."""
        self._run(self.now)
        return dict(zip(self._store.link_ids, self._store.link_loads(), strict=True))

    def link_bytes(self) -> dict[str, float]:
        """Bytes that the flows ended so far have carried over each link."""
        carried = self._store.link_sums(self._store.state.classes[:, k.ENDED_BYTES])
        return dict(zip(self._store.link_ids, carried, strict=True))

    def finish_times(self) -> list[float]:
        """When each flow ended [s], by its number; infinity where it has not."""
        self._run(self.now)
        return [float(time) for time in self._store.state.flows[: self._n_flows, k.FINISH]]

    def bottlenecks(self) -> list[str | None]:
        """The link that held each flow back for the longest time; None for its own cap, no bytes, or no end yet."""
        self._run(self.now)
        return self._store.binding_links(self._store.state.flow_index[: self._n_flows, k.HELD_LONGEST])

    def _not_before_now(self, at: float | None) -> float:
        time = self.now if at is None else at
        if not self.now <= time < math.inf:
            raise InputError("at", f"{time:g} s is not a time from now on, the run is at {self.now:g} s")
        return time

    def _under_way(self, flow: int) -> bool:
        # a flow that starts at this instant has been started by the run up to now
        return bool(self._store.state.flows[flow, k.START] <= self.now < self._store.state.flows[flow, k.FINISH])

    def _run(self, to: float) -> None:
        if self._quiet and to <= self.now:
            return
        self._store.make_room()
        # plain kernels compute with NumPy's scalars, which warn where floats do not
        with np.errstate(all="ignore") if self._kernels is k.PLAIN else nullcontext():
            while not self._kernels.advance(self._store.state, to, self._budget()):
                self._kernels = k.compiled() or k.PLAIN
                self._plain_work = None
        settled(self._store.state)
        self._quiet = True

    def _budget(self) -> int:
        if self._plain_work is None:
            return NO_BUDGET
        return max(self._plain_work - int(self._store.state.counters[k.WORK]), 0)


def run_fluid(problem: FlowProblem, *, compiled: bool | None = None) -> FlowResult:
    """Run a flow problem to its end; ``compiled`` as for FluidRun.

    Raises InputError for an invalid problem, ConvergenceError where class weights do not settle.
    """
    check(problem)
    run = FluidRun(problem.links, compiled=compiled)
    run.add_problem(problem)
    run.advance(math.inf)
    finish = run.finish_times()
    first = min((flow.start for flow in problem.flows), default=0.0)
    last = max((time for time in finish if time < math.inf), default=first)
    carried = run.link_bytes()
    return FlowResult(
        finish_s=tuple(finish),
        bottlenecks=tuple(run.bottlenecks()),
        makespan_s=last - first,
        link_bytes=tuple(carried[link.id] for link in problem.links),
        link_utilization=tuple(_utilization(link, carried[link.id], first, last) for link in problem.links),
        events=run.events,
        flow_classes=run.n_classes,
    )


def _utilization(link: Link, carried: float, first: float, last: float) -> float | None:
    if not link.shared:
        return None
    steps = [(0.0, link.capacity), *link.capacity_changes, (math.inf, 0.0)]
    possible = sum(
        capacity * max(min(end, last) - max(begin, first), 0.0) for (begin, capacity), (end, _) in pairwise(steps)
    )
    return carried / possible if possible else 0.0
