"""Why a deployment is not feasible: a sentence for each reason, and the same in a few words for tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import msgspec

from dualplan.model.demand import side_memory
from dualplan.model.memory import kv_share_per_gpu
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import SideName
from dualplan.steady.problem import Problem
from dualplan.steady.ranges import Ranges
from dualplan.steady.rate import DemandCheck
from dualplan.steady.resources import TITLES, few
from dualplan.steady.setup import Setup
from dualplan.units import show


class Reason(msgspec.Struct, frozen=True):
    """A sentence, and the same in a few words."""

    text: str
    short: str


DEMAND = "the rate is below the demand"
TTFT = "TTFT is above its limit"
TPOT = "TPOT is above its limit"


def no_room(side: str) -> str:
    """What a side without room lacks, in a few words."""
    return f"weights or a context do not fit the {side} side"


def range_empty(constraints: Sequence[str], *, crossing: bool) -> str:
    """A range that is empty because of these links, in a few words. ``crossing``: because their bounds exclude each
    other.
    """
    names = few([TITLES[name] for name in constraints], " and ")
    if crossing:
        return f"no P/D is in range (the bounds of {names} cross)"
    return f"no P/D is in range ({names} {'bind' if len(constraints) > 1 else 'binds'} at any)"


def outside(where: Literal["below", "above"], constraint: str) -> str:
    """A ratio outside the range, in a few words."""
    return f"P/D is {where} its range ({TITLES[constraint]})"


def misfits(setup: Setup, problem: Problem) -> dict[str, str]:
    """Sides with nodes whose HBM cannot hold the weights and one context, each with a sentence."""
    found: dict[str, str] = {}
    scenario, parallels = setup.scenario, {"prefill": setup.prefill_parallel, "decode": setup.decode_parallel}
    kinds = [(side, f"the {side} side", hardware) for side, hardware in scenario.sides]
    kinds += [(v.side, f"{v.nodes} of the {v.side} nodes", v.hardware) for v in scenario.variants]
    for side, where, hardware in kinds:
        memory = side_memory(scenario.model, parallels[side], hardware, setup.times.redundant_experts)
        context = problem.demand.sequence_bytes * problem.demand.kv_per_gpu[side]
        if memory.kv_bytes_per_gpu <= 0:
            what = (
                f"Weights do not fit on {where}: {show(memory.weight_bytes_per_gpu, 'B')} a GPU, "
                f"{show(max(memory.usable_bytes_per_gpu, 0.0), 'B')} are usable"
            )
        elif memory.kv_bytes_per_gpu < context:
            what = (
                f"One context does not fit on {where}: {show(float(context), 'B')} a GPU, "
                f"{show(memory.kv_bytes_per_gpu, 'B')} are left beside the weights"
            )
        else:
            continue
        found.setdefault(side, f"{what} ({parallels[side]}{_roomier(setup, problem, side)}).")
    return found


def _roomier(setup: Setup, problem: Problem, side: SideName) -> str:
    """The least tensor parallelism inside a node that leaves room for weights and one context, as a hint."""
    model, hardware = setup.scenario.model, dict(setup.scenario.sides)[side]
    for tp in range(2, hardware.gpu.count + 1):
        if hardware.gpu.count % tp or model.experts is not None:
            continue
        parallel = Parallel(tp=tp, dp=1)
        context = problem.demand.sequence_bytes * kv_share_per_gpu(model, parallel, problem.demand.kv_format)
        if side_memory(model, parallel, hardware, setup.times.redundant_experts).kv_bytes_per_gpu >= context:
            return f"; --{side}-parallel tp={tp} would fit"
    return ""


def reasons_of(
    setup: Setup, problem: Problem, found: Ranges, check: DemandCheck | None, *, ttft: float, lone_tpot: float
) -> list[Reason]:
    """Why a deployment that fits is not feasible; empty when it is. ``lone_tpot``: time per output token of a single
    sequence [s].
    """
    reasons = _range_reasons(setup, found)
    slo = setup.scenario.settings.slo
    if check is not None and check.utilization > 1:
        text = f"Nothing of the demand of {check.turns_per_s:.4g} turns/s is carried."
        if check.utilization < math.inf:
            times = f"{check.utilization:.3g} times what the deployment carries"
            text = f"The demand of {check.turns_per_s:.4g} turns/s is {times}."
        reasons.append(Reason(text, DEMAND))
    if slo.ttft is not None and ttft > slo.ttft:
        text = f"TTFT is at least {ttft:.3g} s (unloaded, a lower bound); {slo.ttft:.3g} s are asked for."
        reasons.append(Reason(text, TTFT))
    if problem.tpot_unreachable and slo.tpot is not None:
        text = f"TPOT is {lone_tpot * 1e3:.3g} ms for a single sequence; {slo.tpot * 1e3:.3g} ms are asked for."
        reasons.append(Reason(text, TPOT))
    return reasons


def _range_reasons(setup: Setup, found: Ranges) -> list[Reason]:
    """Why P/D is not in the range, one reason at most."""
    full, ratio = found.all_traffic, Fraction(setup.prefill_nodes, setup.decode_nodes)
    if full.empty_because:
        text = "No P/D lets the storage NICs run at line rate: "
        short = range_empty(full.empty_because, crossing=full.crossing is not None)
        if full.crossing is not None:
            (low, high), (lower, upper) = (TITLES[name] for name in full.empty_because), full.crossing
            return [Reason(f"{text}{low} needs at least {float(lower):.3g}, {high} at most {float(upper):.3g}.", short)]
        names = few([TITLES[name] for name in full.empty_because], " and ")
        return [Reason(f"{text}{names} {'bind' if len(full.empty_because) > 1 else 'binds'} before.", short)]
    where: Literal["below", "above"]
    if full.lower is not None and ratio < full.lower:
        where, bound, constraint = "below", full.lower, full.lower_constraints[0]
    elif full.upper is not None and ratio > full.upper:
        where, bound, constraint = "above", full.upper, full.upper_constraints[0]
    else:
        return []
    at_line_rate = f"with storage NICs at line rate {TITLES[constraint]} binds first"
    text = f"P/D {setup.prefill_nodes}:{setup.decode_nodes} is {where} {float(bound):.3g}: {at_line_rate}"
    if found.effective.contains(ratio):
        text += "; at the rates that storage NICs reach it would not"
    return [Reason(f"{text}.", outside(where, constraint))]
