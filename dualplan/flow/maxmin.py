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

from types import SimpleNamespace

import numpy as np

from dualplan.errors import ConvergenceError
from dualplan.flow import kernels
from dualplan.flow import layout as k
from dualplan.flow.events import wake
from dualplan.flow.network import binding_links, lay_out, link_sums
from dualplan.flow.problem import FlowProblem, Rates, check


def solve_rates(problem: FlowProblem) -> Rates:
    """Rates of all flows of ``problem`` active together; sizes, starts and capacity changes play no part.

    Raises InputError for an invalid problem, ConvergenceError where class weights do not settle.
    """
    check(problem)
    network = lay_out(problem)
    state, n_classes = network.state, len(network.state.classes)
    state.class_index[:, k.FLOWS] = np.bincount(network.of_flow, minlength=n_classes)
    for c in range(n_classes):
        wake(state, c)
    state.counters[k.ALL_DIRTY] = 1
    turns = 50 if state.counters[k.ARBITRATED] else 1
    with np.errstate(all="ignore"):
        _kernels(n_classes * turns).solve(state)
    settled(state)
    return Rates(
        rates=tuple(state.classes[network.of_flow, k.RATE].tolist()),
        binding=tuple(binding_links(network, state.class_index[network.of_flow, k.BOUND_BY])),
        link_loads=tuple(link_sums(network, state.classes[:, k.RATE] * state.class_index[:, k.FLOWS])),
    )


def _kernels(work: float) -> SimpleNamespace:
    """Plain kernels for little work, compiled ones for much, plain ones again where there is no compiler."""
    return (kernels.compiled() if work > kernels.plain_work() else None) or kernels.PLAIN


def settled(state: k.State) -> None:
    """Raise ConvergenceError if arbitration between classes has not settled."""
    if state.counters[k.UNSETTLED]:
        raise ConvergenceError(f"shares of traffic classes did not settle in {k.MAX_ROUNDS} rounds")
