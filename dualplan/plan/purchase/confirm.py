"""Finalists of a plan, simulated: what the steady model leaves out is queueing, batching and the spread of lengths."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dualplan.errors import InfeasibleError, InputError
from dualplan.plan.purchase.runner_up import with_reasons
from dualplan.plan.purchase.search import Confirmed, Kind, Plan, Purchase, Wanted, find_plans, rank
from dualplan.plan.sweep.simulated_point import simulate_point
from dualplan.spec.run import RunSpec
from dualplan.spec.scenario import Demand
from dualplan.spec.workload import mean_turns

FINALISTS = 3
"""Plans that must keep the SLO in the simulation before it ends."""

TRIES = 5
"""Deployments of a kind that are simulated until one keeps the SLO."""

MORE = 0.1
"""Head-room that the next try has more than the one that failed."""

Report = Callable[[Plan], None]


def confirm(plan: Plan, wanted: Wanted, spec: RunSpec) -> Confirmed:
    """An online run of a plan at the demand; the reason where the simulation refuses it."""
    scenario = plan.kind.scenario
    rate = wanted.turns_per_s / mean_turns(scenario.workload)
    demand = Demand(arrival_rate=rate)
    settings = msgspec.structs.replace(scenario.settings, demand=demand)
    try:
        row = simulate_point(msgspec.structs.replace(scenario, settings=settings), spec, {})
    except (InfeasibleError, InputError) as error:
        return Confirmed(
            slo_met=False,
            ttft_s=None,
            tpot_s=None,
            turns_per_s=0.0,
            steady=None,
            reason="; ".join(str(error).splitlines()),
            refused=isinstance(error, InputError),
        )
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
    spec: RunSpec,
    *,
    finalists: int = FINALISTS,
    report: Report | None = None,
) -> Purchase:
    """The plans, simulated from the cheapest on until ``finalists`` keep the SLO: first the best one of each kind, then
    their other splits, so that no plan that was not simulated is cheaper than those that are confirmed.

    One that fails moves to ``rejected`` with its reason, and the cheapest deployment of its kind with more head-room
    queues up instead, TRIES of a kind in all; not after one that cannot be simulated. Plans that are not simulated stay
    behind those that are confirmed, also where an interruption ends it early. Raises InputError where no plan could be
    simulated.
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

    def simulate_all() -> None:
        nonlocal waiting, splits
        while len(passed) < finalists:
            if not waiting and passed:
                waiting, splits = dearer(splits), []
            if not waiting:
                return
            tried = min(waiting, key=rank)
            name = tried.kind.name
            tries[name] += 1
            if report is not None:
                report(tried)
            found = confirm(tried, wanted, spec)
            # only now, so that one that was interrupted still waits
            waiting.remove(tried)
            tried = msgspec.structs.replace(tried, confirmed=found, lost_because="")
            if found.slo_met:
                passed.append(tried)
                continue
            rejected.append(tried)
            if not found.refused and tries[name] < TRIES and not any(plan.kind.name == name for plan in passed):
                roomier = msgspec.structs.replace(wanted, headroom=max(wanted.headroom, tried.headroom + MORE))
                waiting += find_plans([by_name[name]], roomier).plans

    interrupted = False
    try:
        simulate_all()
    except KeyboardInterrupt:
        interrupted = True
    refused = [plan.confirmed.reason for plan in rejected if plan.confirmed and plan.confirmed.refused]
    if refused and len(refused) == len(rejected) and not (passed or interrupted):
        raise InputError("", problems=list(dict.fromkeys(refused)))
    behind = [*waiting, *(dearer(splits) if passed else splits if interrupted else [])]
    ranked = [*sorted(passed, key=rank), *sorted(behind, key=rank)]
    return msgspec.structs.replace(
        purchase, plans=tuple(with_reasons(ranked)), rejected=tuple(rejected), interrupted=interrupted
    )
