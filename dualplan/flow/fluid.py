"""Flows over time: rates from max-min sharing, constant between events, and the events exact.

Events are starts, completions and capacity changes. The cost of an event grows with the number of busy classes (sets of
flows with the same route, weight, cap, priority and traffic class), not with the number of flows. A run starts in plain
Python and goes on in compiled kernels once that pays; the results are the same to the last bit.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import pairwise

import numpy as np

from dualplan.flow import kernels
from dualplan.flow import layout as k
from dualplan.flow.maxmin import settled
from dualplan.flow.network import binding_links, lay_out, link_sums
from dualplan.flow.problem import FlowProblem, FlowResult, Link, check

NO_BUDGET = 2**62


def run_fluid(problem: FlowProblem, *, compiled: bool | None = None) -> FlowResult:
    """Run a flow problem to its end. ``compiled``: False never loads compiled kernels, True loads them at once, None
    when the run has become long.

    Raises InputError for an invalid problem, ConvergenceError where class weights do not settle.
    """
    check(problem)
    network = lay_out(problem)
    state = network.state
    _run(state, compiled)
    settled(state)
    finish = state.flows[:, k.FINISH].tolist()
    first = min((flow.start for flow in problem.flows), default=0.0)
    last = max((time for time in finish if time < math.inf), default=first)
    carried = link_sums(network, state.classes[:, k.ENDED_BYTES])
    return FlowResult(
        finish_s=tuple(finish),
        bottlenecks=tuple(binding_links(network, state.flow_index[:, k.HELD_LONGEST])),
        makespan_s=last - first,
        link_bytes=tuple(carried),
        link_utilization=tuple(
            _utilization(link, total, first, last) for link, total in zip(problem.links, carried, strict=True)
        ),
        events=int(state.counters[k.EVENTS]),
        flow_classes=len(state.classes),
    )


def _run(state: k.State, compiled: bool | None) -> None:
    chosen = (kernels.compiled() if compiled else None) or kernels.PLAIN
    budget = kernels.plain_work() if compiled is None else NO_BUDGET
    # plain kernels compute with NumPy's scalars, which warn where floats do not
    with np.errstate(all="ignore") if chosen is kernels.PLAIN else nullcontext():
        if not chosen.run(state, budget):
            (kernels.compiled() or kernels.PLAIN).run(state, NO_BUDGET)


def _utilization(link: Link, carried: float, first: float, last: float) -> float | None:
    if not link.shared:
        return None
    steps = [(0.0, link.capacity), *link.capacity_changes, (math.inf, 0.0)]
    possible = sum(
        capacity * max(min(end, last) - max(begin, first), 0.0) for (begin, capacity), (end, _) in pairwise(steps)
    )
    return carried / possible if possible else 0.0
