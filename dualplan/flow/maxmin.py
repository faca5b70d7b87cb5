r"""Weighted max-min rates: who gets what of shared links at one instant.

Given: links l with capacity C_l; flows f with weight w_f > 0, cap k_f (infinite if none) and m_lf, how often f
crosses l. Found: rates x_f >= 0, and for each flow what binds it, so that

(1) capacity    sum_f m_lf x_f <= C_l  on shared links (a half-duplex link counts both directions),
                m_lf x_f <= C_l        on cap-only links, for each flow alone.
(2) caps        x_f <= k_f.
(3) fairness    A flow below its cap and below its cap-only links crosses a shared link l that is full,
                sum_g m_lg x_g = C_l, and where none has more for its weight, x_g / w_g <= x_f / w_f for all g on l.
                That link *binds* f. Rates are equalised, not the loads m_lf x_f.

These have exactly one solution, which progressive filling finds: raise x_f / w_f of all flows together, stop a flow at
its cap or when a link on its route is full, go on with the others (Bertsekas and Gallager, Data Networks, 6.5.2).

(4) strict priority    Flows of priority 0 fulfil (1) to (3) as if they were alone, those of priority p with the
                       capacities that the priorities before p leave.
(5) class weights      A link with class weights W_lc has a level t_l. (1) and (3) hold on it for each traffic class c
                       on its own, with capacity W_lc t_l; over all classes the loads do not exceed C_l, and t_l is
                       finite only where they reach it. So backlogged classes get capacity in proportion to their
                       weights, and what a class does not use goes to the others (work-conserving).

(5) leaves one unknown a link. It is found by filling again and again: a level follows from what each class wants there,
and that from the rates elsewhere. On a single link this is generalised processor sharing in two steps. On a network a
solution exists, because rates are continuous in the levels; that it is the only one is not proved here. Levels that do
not settle are a ConvergenceError.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np

from dualplan.errors import ConvergenceError
from dualplan.flow import kernels as k
from dualplan.flow.problem import FlowProblem, Rates, check, priorities
from dualplan.flow.store import Attributes, Store


def solve_rates(problem: FlowProblem) -> Rates:
    """Rates of all flows of ``problem`` active together; sizes, starts and capacity changes play no part.

    Raises InputError for an invalid problem, ConvergenceError where class weights do not settle.
    """
    check(problem)
    store = Store(problem.links)
    of_flow = [store.flow_class(attributes) for attributes in class_attributes(problem)]
    state = store.state
    for c, flows in Counter(of_flow).items():
        k.wake(state, c)
        state.class_index[c, k.FLOWS] = flows
    state.counters[k.ALL_DIRTY] = 1
    turns = 50 if state.counters[k.ARBITRATED] else 1
    with np.errstate(all="ignore"):
        kernels(int(state.counters[k.N_CLASSES]) * turns).solve(state)
    settled(state)
    return Rates(
        rates=tuple(state.classes[of_flow, k.RATE].tolist()),
        binding=tuple(store.binding_links(state.class_index[of_flow, k.BOUND_BY])),
        link_loads=tuple(store.link_loads()),
    )


def class_attributes(problem: FlowProblem) -> list[Attributes]:
    """What decides the class of each flow: route, weight, rate cap, priority, traffic class."""
    by_class = priorities(problem)
    return [
        (flow.route, flow.weight, flow.rate_cap, by_class.get(flow.traffic_class, flow.priority), flow.traffic_class)
        for flow in problem.flows
    ]


def kernels(work: float) -> SimpleNamespace:
    """Plain kernels for little work, compiled ones for much, plain ones again where there is no compiler."""
    return (k.compiled() if work > k.plain_work() else None) or k.PLAIN


def settled(state: k.State) -> None:
    """Raise ConvergenceError if arbitration between classes has not settled."""
    if state.counters[k.UNSETTLED]:
        raise ConvergenceError(f"shares of traffic classes did not settle in {k.MAX_ROUNDS} rounds")
