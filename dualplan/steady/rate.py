"""The steady rate of a deployment: what binds, what would bind next, the load of every resource, the demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from dualplan.messages import Message
from dualplan.model.queueing import waits
from dualplan.model.throughput import Rate, Use, best_split
from dualplan.spec.choices import SINGLE_SIDED
from dualplan.steady.latencies import decode_bytes, decode_sequences, pass_flow, prefill_turns
from dualplan.steady.problem import Problem
from dualplan.steady.resources import Resource
from dualplan.steady.setup import Setup, demand_turns_per_s


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A resource at the predicted rate: totals over all nodes of its side."""

    name: str
    side: str | None
    unit: str
    load: float
    capacity: float
    utilization: float
    detail: Message | Literal[""] = ""


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """What binds, and what would bind next if it were relieved; ``next_gain`` is the relative rise of the rate until
    then.
    """

    resource: str | None
    side: str | None = None
    utilization: float | None = None
    detail: Message | Literal[""] = ""
    next: str | None = None
    next_gain: float | None = None


class DemandCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A wanted turn rate against the predicted one."""

    turns_per_s: float
    utilization: float
    headroom: float


def uses(problem: Problem, without: Sequence[int] = ()) -> list[Use]:
    """Seconds that a turn takes of each resource, but for those left out."""
    return [
        Use(resource.name, resource.prefill / resource.capacity, resource.decode / resource.capacity)
        for index, resource in enumerate(problem.resources)
        if index not in without
    ]


def storage_positions(found: Sequence[Use]) -> list[int]:
    """Positions of the storage NICs, whose use is evened out."""
    return [position for position, use in enumerate(found) if use.name.endswith("snic_ingress")]


def solve(problem: Problem, without: Sequence[int] = (), near_share: Any = None) -> Rate:
    """The highest turn rate of a problem, optionally with some of its resources unlimited.

    ``near_share``: of splits that are as good, the closest to this one.
    """
    found = uses(problem, without)
    kept = [index for index in range(len(problem.resources)) if index not in without]
    rate = best_split(
        found, both_paths=problem.mode not in SINGLE_SIDED, balance=storage_positions(found), near_share=near_share
    )
    return msgspec.structs.replace(rate, binding=None if rate.binding is None else kept[rate.binding])


def loads_at(setup: Setup, problem: Problem, rate: Rate, *, linear: bool) -> tuple[Load, ...]:
    """Loads at a rate. ``linear``: also what turns hold of a memory rises in proportion to the rate."""
    turns, share = rate.turns_per_s or 0.0, rate.decode_share
    loads = []
    for resource in problem.resources:
        load = turns * (resource.prefill + share * (resource.decode - resource.prefill))
        if not linear:
            load = _held(setup, problem, resource, turns, share) or load
        loads.append(
            Load(
                name=resource.name,
                side=resource.side,
                unit=resource.unit,
                load=float(load),
                capacity=float(resource.capacity),
                utilization=utilization(load, resource.capacity),
                detail=resource.detail,
            )
        )
    return tuple(loads)


def utilization(load: float, capacity: float) -> float:
    """Load over capacity; what is full but for rounding is full."""
    share = float(load / capacity)
    return 1.0 if abs(share - 1) < 1e-9 else share


def _held(setup: Setup, problem: Problem, resource: Resource, turns: Any, share: Any) -> Any:
    """What turns hold of a memory at a rate [B], where it does not rise in proportion to it; else None."""
    demand = problem.demand
    if resource.name == "decode_hbm":
        return decode_sequences(setup, demand, turns, share) * decode_bytes(setup, demand)
    if resource.name == "prefill_hbm" and resource.name in problem.filling:
        under_way = turns * waits(pass_flow(setup, demand), turns).first_token
        return under_way * resource.capacity / prefill_turns(setup, demand)
    return None


def bottleneck_of(problem: Problem, rate: Rate, loads: Sequence[Load], missing: dict[str, Message]) -> Bottleneck:
    """What binds a problem at its best rate, and what would bind next."""
    if missing:
        return Bottleneck(resource=f"{next(iter(missing))}_hbm", side=next(iter(missing)))
    if rate.binding is None:
        return Bottleneck(resource=None)
    binding = problem.resources[rate.binding]
    relieved = solve(problem, without=(rate.binding,), near_share=rate.decode_share)
    following = None if relieved.binding is None else problem.resources[relieved.binding].name
    gain = None if relieved.turns_per_s is None else max(float(relieved.turns_per_s / rate.turns_per_s - 1), 0.0)
    used = loads[rate.binding].utilization
    return Bottleneck(resource=binding.name, side=binding.side, utilization=used, next=following, next_gain=gain)


def check_demand(setup: Setup, turns_per_s: float) -> DemandCheck | None:
    """The demand of a scenario, in turns per second, against a rate; None where none is given."""
    wanted = demand_turns_per_s(setup.scenario)
    if wanted is None:
        return None
    used = wanted / turns_per_s if turns_per_s else float("inf")
    return DemandCheck(turns_per_s=wanted, utilization=used, headroom=1 / used - 1)
