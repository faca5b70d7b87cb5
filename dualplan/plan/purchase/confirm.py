"""Finalists of a plan, simulated: what the steady model leaves out is queueing, batching and the spread of lengths."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dualplan.errors import InfeasibleError
from dualplan.plan.purchase.runner_up import with_reasons
from dualplan.plan.purchase.search import Confirmed, Kind, Plan, Purchase, Wanted, find_plans, rank
from dualplan.plan.sweep.simulated_point import Simulated, simulate_point
from dualplan.spec.scenario import Demand
from dualplan.spec.workload import mean_turns

FINALISTS = 3
"""Plans that must keep the SLO in the simulation before it ends."""

TRIES = 5
"""Deployments of a kind that are simulated until one keeps the SLO."""

MORE = 0.1
"""Head-room that the next try has more than the one that failed."""

Report = Callable[[Plan], None]


def confirm(plan: Plan, wanted: Wanted, call: Simulated) -> Confirmed:
    """An online run of a plan at the demand. Raises InputError where the scenario cannot be simulated."""
    scenario = plan.kind.scenario
    rate = wanted.turns_per_s / mean_turns(scenario.workload)
    demand = Demand(arrival_rate=rate)
    settings = msgspec.structs.replace(scenario.settings, demand=demand)
    try:
        row = simulate_point(msgspec.structs.replace(scenario, settings=settings), call, {})
    except InfeasibleError as error:
        return Confirmed(slo_met=False, ttft_s=None, tpot_s=None, turns_per_s=0.0, steady=None, reason=str(error))
    return Confirmed(
        slo_met=bool(row["slo_met"]),
        ttft_s=row["ttft_s.mean"],
        tpot_s=row["tpot_s.mean"],
        turns_per_s=row["turns_per_s"],
        steady=row["stopped"] == "end of the run",
        reason=row["missed_by"] or "",
    )


def confirmed(
    purchase: Purchase,
    kinds: tuple[Kind, ...],
    call: Simulated,
    *,
    finalists: int = FINALISTS,
    report: Report | None = None,
) -> Purchase:
    """The plans, simulated from the cheapest on until ``finalists`` keep the SLO: first the best one of each kind, then
    their other splits, so that no plan that was not simulated is cheaper than those that are confirmed.

    One that fails moves to ``rejected`` with its reason, and the cheapest deployment of its kind with more head-room
    queues up instead, TRIES of a kind in all. Plans that are not simulated stay behind those that are confirmed.
    """
    wanted = purchase.wanted
    by_name = {kind.name: kind for kind in kinds}
    waiting = list({plan.kind.name: plan for plan in reversed(purchase.plans)}.values())
    splits = [plan for plan in purchase.plans if plan not in waiting]
    tries = dict.fromkeys(by_name, 0)
    passed: list[Plan] = []
    rejected: list[Plan] = []

    def dearer(plans: list[Plan]) -> list[Plan]:
        """Splits that are behind all confirmed plans and were not tried as one of them."""
        last, tried = max(map(rank, passed)), {plan.label for plan in (*passed, *rejected)}
        return [plan for plan in plans if rank(plan) > last and plan.label not in tried]

    while len(passed) < finalists:
        if not waiting and passed:
            waiting, splits = dearer(splits), []
        if not waiting:
            break
        tried = min(waiting, key=rank)
        waiting.remove(tried)
        name = tried.kind.name
        tries[name] += 1
        if report is not None:
            report(tried)
        tried = msgspec.structs.replace(tried, confirmed=confirm(tried, wanted, call), lost_because="")
        if tried.confirmed is not None and tried.confirmed.slo_met:
            passed.append(tried)
            continue
        rejected.append(tried)
        if tries[name] < TRIES and not any(plan.kind.name == name for plan in passed):
            roomier = msgspec.structs.replace(wanted, headroom=max(wanted.headroom, tried.headroom + MORE))
            waiting += find_plans([by_name[name]], roomier).plans
    behind = [*waiting, *(dearer(splits) if passed else [])]
    ranked = [*sorted(passed, key=rank), *sorted(behind, key=rank)]
    return msgspec.structs.replace(purchase, plans=tuple(with_reasons(ranked)), rejected=tuple(rejected))
