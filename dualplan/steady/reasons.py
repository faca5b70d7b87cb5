"""Why a deployment is not feasible: a message for each reason, and the same in a few words for tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from dualplan.messages import Message, message
from dualplan.model.demand import side_memory
from dualplan.model.memory import kv_share_per_gpu
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import SideName
from dualplan.steady.problem import Problem
from dualplan.steady.ranges import Ranges
from dualplan.steady.rate import DemandCheck
from dualplan.steady.resources import title
from dualplan.steady.setup import Setup

MOST_NAMES = 3
"""Links that are named as the reason of an empty range; of more the first ones and how many there are."""

DEMAND = message("short.demand")
TTFT = message("short.ttft")
TPOT = message("short.tpot")


def no_room(side: str) -> Message:
    """What a side without room lacks, in a few words."""
    return message("short.no_room", where=message("where.side", side=side))


def range_empty(constraints: Sequence[str], *, crossing: bool) -> Message:
    """A range that is empty because of these links, in a few words. ``crossing``: because their bounds exclude each
    other.
    """
    if crossing:
        low, high = constraints
        return message("short.range_crossing", low=title(low), high=title(high))
    return message("short.range_empty", names=_few(constraints))


def outside(where: Literal["below", "above"], constraint: str) -> Message:
    """A ratio outside the range, in a few words."""
    return message(f"short.{where}", resource=title(constraint))


def in_few_words(reason: Message) -> Message:
    """A reason as tables have it."""
    if reason.code == "reason.range_empty":
        return message("short.range_empty", names=reason.value("names"))
    if reason.code == "reason.range_crossing":
        return message("short.range_crossing", low=reason.value("low"), high=reason.value("high"))
    if reason.code in ("reason.below", "reason.above"):
        return message(reason.code.replace("reason", "short"), resource=reason.value("resource"))
    return {"reason.ttft": TTFT, "reason.tpot": TPOT, "reason.tpot_of": TPOT}.get(reason.code, DEMAND)


def _few(constraints: Sequence[str]) -> tuple[Message, ...]:
    """Links in a row; of a long list the first ones and how many more there are."""
    names = tuple(title(name) for name in constraints)
    if len(names) <= MOST_NAMES:
        return names
    return (*names[: MOST_NAMES - 1], message("list.more", n=len(names) - MOST_NAMES + 1))


def misfits(setup: Setup, problem: Problem) -> dict[str, Message]:
    """Sides with nodes whose HBM cannot hold the weights and one context, each with the reason."""
    found: dict[str, Message] = {}
    scenario, parallels = setup.scenario, {"prefill": setup.prefill_parallel, "decode": setup.decode_parallel}
    kinds = [(side, message("where.side", side=side), hardware) for side, hardware in scenario.sides]
    kinds += [(v.side, message("where.some_nodes", nodes=v.nodes, side=v.side), v.hardware) for v in scenario.variants]
    for side, where, hardware in kinds:
        memory = side_memory(scenario.model, parallels[side], hardware, setup.times.redundant_experts)
        context = problem.demand.sequence_bytes * problem.demand.kv_per_gpu[side]
        nothing_left = memory.kv_bytes_per_gpu <= 0
        if not nothing_left and memory.kv_bytes_per_gpu >= context:
            continue
        how = {"where": where, "parallel": str(parallels[side]), "roomier": _roomier(setup, problem, side)}
        if nothing_left:
            usable = max(memory.usable_bytes_per_gpu, 0.0)
            reason = message("reason.weights", weights=memory.weight_bytes_per_gpu, usable=usable, **how)
        else:
            reason = message("reason.context", context=float(context), left=memory.kv_bytes_per_gpu, **how)
        found.setdefault(side, reason)
    return found


def _roomier(setup: Setup, problem: Problem, side: SideName) -> Message | str:
    """The least tensor parallelism inside a node that leaves room for weights and one context, as a hint."""
    model, hardware = setup.scenario.model, dict(setup.scenario.sides)[side]
    for tp in range(2, hardware.gpu.count + 1):
        if hardware.gpu.count % tp or model.experts is not None:
            continue
        parallel = Parallel(tp=tp, dp=1)
        context = problem.demand.sequence_bytes * kv_share_per_gpu(model, parallel, problem.demand.kv_format)
        if side_memory(model, parallel, hardware, setup.times.redundant_experts).kv_bytes_per_gpu >= context:
            return message("reason.roomier", side=side, tp=tp)
    return ""


def reasons_of(
    setup: Setup, problem: Problem, found: Ranges, check: DemandCheck | None, *, ttft: float, lone_tpot: float
) -> list[Message]:
    """Why a deployment that fits is not feasible; empty when it is. ``lone_tpot``: time per output token of a single
    sequence [s].
    """
    reasons = _range_reasons(setup, found)
    slo = setup.scenario.settings.slo
    if check is not None and check.utilization > 1:
        demand, times = check.turns_per_s, check.utilization
        carried = times < math.inf
        reasons.append(
            message("reason.demand", demand=demand, times=times)
            if carried
            else message("reason.demand_none", demand=demand)
        )
    if slo.ttft is not None and ttft > slo.ttft:
        reasons.append(message("reason.ttft", ttft=ttft, limit=slo.ttft))
    if problem.tpot_unreachable and slo.tpot is not None:
        reasons.append(message("reason.tpot", tpot=lone_tpot, limit=slo.tpot))
    return reasons


def _range_reasons(setup: Setup, found: Ranges) -> list[Message]:
    """Why P/D is not in the range, one reason at most."""
    full, ratio = found.all_traffic, Fraction(setup.prefill_nodes, setup.decode_nodes)
    if full.empty_because and full.crossing is not None:
        (low, high), (lower, upper) = map(title, full.empty_because), map(float, full.crossing)
        return [message("reason.range_crossing", low=low, high=high, lower=lower, upper=upper)]
    if full.empty_because:
        return [message("reason.range_empty", names=_few(full.empty_because))]
    if full.lower is not None and ratio < full.lower:
        code, bound, constraint = "reason.below", full.lower, full.lower_constraints[0]
    elif full.upper is not None and ratio > full.upper:
        code, bound, constraint = "reason.above", full.upper, full.upper_constraints[0]
    else:
        return []
    reachable = message("reason.not_at_reachable") if found.effective.contains(ratio) else ""
    nodes = {"prefill": setup.prefill_nodes, "decode": setup.decode_nodes}
    return [message(code, **nodes, bound=float(bound), resource=title(constraint), reachable=reachable)]
