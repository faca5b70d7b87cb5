"""Several models or workloads that share one cluster, by shares of turns.

What a turn takes of a resource is linear in the turns, so a mixed turn takes the sum over the classes of share times
seconds of the resource, and the rate of the mix is that of this mixed turn. Every GPU holds the weights of all models.
Engines serve one class at a time: a class that has a share f of the engines of a side reaches f times the rate that it
would reach on all of them, so the seconds of compute and of HBM add up like those of a link. All classes read the same
share on the decode side, as a policy that does not tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dualplan.errors import InputError
from dualplan.messages import Message, message
from dualplan.model.demand import SideMemory, TurnDemand
from dualplan.model.symbolic import exact
from dualplan.model.throughput import Rate
from dualplan.model.traffic import Bytes
from dualplan.spec.choices import Mode
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import Turn, Workload, mean_turns
from dualplan.steady.latencies import tpot_at, unloaded_ttft
from dualplan.steady.problem import Problem, build
from dualplan.steady.ranges import exact_bytes, ranges
from dualplan.steady.rate import solve
from dualplan.steady.resources import Resource, ordered
from dualplan.steady.setup import Setup, prepare
from dualplan.steady.solved import ClassRate, Solved


class _Class(msgspec.Struct, frozen=True, kw_only=True):
    """One class with the deployment as it finds it: the weights of all models are resident."""

    share: float
    setup: Setup
    problem: Problem


def mixed(scenario: Scenario, prefill_nodes: int | None, decode_nodes: int | None) -> Solved:
    """A mix on one deployment: joint rate, bottleneck and ranges, and the rates by class.

    Raises InputError without node counts, and where nodes of a side differ.
    """
    if scenario.variants:
        raise InputError("variants", "nodes that differ are not counted with under a mix", "leave one of the two out")
    mode = scenario.settings.mode
    classes = _classes(scenario, mode, prefill_nodes, decode_nodes)
    problem = _joint(classes)
    setup = msgspec.structs.replace(classes[0].setup, scenario=_joint_scenario(scenario, classes))
    missing = _misfits(classes)
    rate = Rate(0.0, 0.0, None) if missing else solve(problem)
    basic = rate
    if mode != "basic" and not missing:
        basic = solve(_joint(_classes(scenario, "basic", prefill_nodes, decode_nodes)))
    rates = tuple(_class_rate(one, problem, rate) for one in classes)
    shares = [exact(one.share) for one in classes]
    amounts = _mean_bytes(shares, [exact_bytes(one.setup, one.problem) for one in classes])
    return Solved(
        setup=setup,
        problem=problem,
        rate=rate,
        missing=missing,
        ranges=ranges(setup, problem, amounts),
        basic_turns_per_s=basic.turns_per_s,
        ttft=max(one.ttft_unloaded_s for one in rates),
        classes=rates,
        slow=tuple(_slow_classes(classes)),
    )


def _classes(scenario: Scenario, mode: Mode, prefill_nodes: int | None, decode_nodes: int | None) -> list[_Class]:
    """Each class on the whole deployment, with what the weights of all models leave of the memory."""
    setups = []
    for one in scenario.mix:
        alone = msgspec.structs.replace(scenario, model=one.model, workload=one.workload, mix=())
        setups.append(prepare(alone, prefill_nodes, decode_nodes))
    held = {side: _weights(setups, side) for side in ("prefill_memory", "decode_memory")}
    found = []
    for one, setup in zip(scenario.mix, setups, strict=True):
        left = {side: _beside(getattr(setup, side), weights) for side, weights in held.items()}
        setup = msgspec.structs.replace(setup, **left)
        found.append(_Class(share=one.share, setup=setup, problem=build(setup, mode)))
    return found


def _weights(setups: Sequence[Setup], side: str) -> float:
    """Weights of all models on a GPU of a side [B]; a model that several classes use is there once."""
    by_model = {setup.scenario.model.name: getattr(setup, side).weight_bytes_per_gpu for setup in setups}
    return float(sum(by_model.values()))


def _beside(memory: SideMemory, weights: float) -> SideMemory:
    return msgspec.structs.replace(memory, kv_bytes_per_gpu=memory.usable_bytes_per_gpu - weights)


def _joint(classes: Sequence[_Class]) -> Problem:
    """The resources of a mixed turn."""
    first = classes[0].problem
    by_key: dict[tuple[str, str | None, Message | str], list[tuple[float, Resource]]] = {}
    for one in classes:
        for resource in one.problem.resources:
            key = (resource.name, resource.side, resource.detail)
            by_key.setdefault(key, []).append((one.share, resource))
    shares = [one.share for one in classes]
    amounts = _mean_bytes(shares, [one.problem.amounts for one in classes])
    return msgspec.structs.replace(
        first,
        demand=_mean_demand(classes, amounts),
        amounts=amounts,
        resources=tuple(ordered([_shared(uses) for uses in by_key.values()])),
        read_rates=(_read_rate(classes, 0), _read_rate(classes, 1)),
        tpot_unreachable=False,  # which is said by class
        filling={},
    )


def _shared(uses: Sequence[tuple[float, Resource]]) -> Resource:
    """One resource under all classes: seconds of it add up by share.

    Classes may reach different capacities (reads of other sizes, another model's decode speed); the capacity of the
    mix is the one at which its amounts take these seconds.
    """
    first = uses[0][1]
    prefill = sum(share * resource.prefill / resource.capacity for share, resource in uses)
    decode = sum(share * resource.decode / resource.capacity for share, resource in uses)
    total = sum(share * (resource.prefill + resource.decode) for share, resource in uses)
    capacity = total / (prefill + decode) if prefill + decode else first.capacity
    return msgspec.structs.replace(first, capacity=capacity, prefill=prefill * capacity, decode=decode * capacity)


def _mean_bytes(shares: Sequence[Any], amounts: Sequence[Bytes]) -> Bytes:
    """Bytes of a mixed turn."""
    names = Bytes.__struct_fields__
    rows = list(zip(shares, amounts, strict=True))
    return Bytes(**{name: sum(share * getattr(one, name) for share, one in rows) for name in names})


def _read_rate(classes: Sequence[_Class], side: int) -> float:
    """Rate of a storage NIC that serves the reads of all classes one after the other [B/s]."""
    size = sum(one.share * one.problem.amounts.read for one in classes)
    seconds = sum(one.share * one.problem.amounts.read / one.problem.read_rates[side] for one in classes)
    return float(size / seconds) if seconds else classes[0].problem.read_rates[side]


_MEANS = (
    "context",
    "hit_tokens",
    "computed_tokens",
    "generated",
    "prompt_tokens",
    "sequence_bytes",
    "layer_block_bytes",
    "prefill_gpu_seconds",
    "prefill_latency",
    "decode_base",
    "decode_slope",
    "decode_experts",
)


def _mean_demand(classes: Sequence[_Class], amounts: Bytes) -> TurnDemand:
    """What a mixed turn asks for: means over the classes. Passes and steps differ by class and are not a mean."""
    demands = [(one.share, one.problem.demand) for one in classes]
    means = {name: sum(share * getattr(demand, name) for share, demand in demands) for name in _MEANS}
    origins = dict.fromkeys(f"{one.setup.scenario.model.title}: {one.problem.demand.compute_origin}" for one in classes)
    formats = dict.fromkeys(demand.kv_format for _, demand in demands)
    return msgspec.structs.replace(
        demands[0][1],
        **means,
        amounts=amounts,
        passes=None,
        interval=None,
        compute_origin="; ".join(origins),
        kv_format=" and ".join(formats),
    )


def _joint_scenario(scenario: Scenario, classes: Sequence[_Class]) -> Scenario:
    """The scenario with the mean workload of the mix, under the names of all its models."""
    models = {one.model.name: one.model for one in scenario.mix}
    model = msgspec.structs.replace(
        scenario.mix[0].model, name=" + ".join(models), title=" + ".join(one.title for one in models.values())
    )
    turns = tuple(
        Turn(
            weight=one.share,
            context=demand.context,
            append=demand.prompt_tokens - demand.context,
            generated=demand.generated,
        )
        for one in classes
        for demand in [one.problem.demand]
    )
    workload = Workload(
        name=" + ".join(dict.fromkeys(one.workload.name for one in scenario.mix)),
        # agents of a class start at its turn rate over its turns, so the turns of a mean agent are a harmonic mean
        turns=1 / sum(one.share / mean_turns(one.workload) for one in scenario.mix),
        context=sum(turn.weight * turn.context for turn in turns),
        append=sum(turn.weight * turn.append for turn in turns),
        generated=sum(turn.weight * turn.generated for turn in turns),
        mix=turns,
        sources=tuple(dict.fromkeys(source for one in scenario.mix for source in one.workload.sources)),
    )
    first = classes[0].setup.scenario
    return msgspec.structs.replace(
        scenario, hardware=first.hardware, decode_hardware=first.decode_hardware, model=model, workload=workload
    )


def _class_rate(one: _Class, problem: Problem, rate: Rate) -> ClassRate:
    """Rates and latencies of a class in the mix. Its engines are as busy as those of the others."""
    turns = one.share * float(rate.turns_per_s or 0.0)
    demand, scenario = one.problem.demand, one.setup.scenario
    used = next((r for r in problem.resources if r.name == "decode_compute"), None)
    own = next((r for r in one.problem.resources if r.name == "decode_compute"), None)
    busy = 0.0 if used is None else float((rate.turns_per_s or 0.0) / used.capacity)
    at_full = 0.0 if own is None else float(own.capacity)
    alone = 0.0 if rate.turns_per_s == 0 else float(solve(one.problem).turns_per_s or 0.0)
    return ClassRate(
        model=scenario.model.name,
        workload=scenario.workload.name,
        share=one.share,
        turns_per_s=turns,
        agents_per_s=turns / mean_turns(scenario.workload),
        prompt_tokens_per_s=turns * demand.prompt_tokens,
        output_tokens_per_s=turns * demand.generated,
        ttft_unloaded_s=float(unloaded_ttft(one.setup, demand, one.problem.mode, rate.decode_share)),
        tpot_s=float(tpot_at(one.setup, demand, busy * at_full)),
        alone_turns_per_s=alone,
    )


def _misfits(classes: Sequence[_Class]) -> dict[str, Message]:
    """Sides whose memory cannot hold the weights of all models and one context, each with the reason."""
    found: dict[str, Message] = {}
    for side in ("prefill", "decode"):
        where = message("where.side", side=side)
        for one in classes:
            memory: SideMemory = getattr(one.setup, f"{side}_memory")
            demand, model = one.problem.demand, one.setup.scenario.model
            context = demand.sequence_bytes * demand.kv_per_gpu[side]
            if memory.kv_bytes_per_gpu <= 0:
                weights = memory.usable_bytes_per_gpu - memory.kv_bytes_per_gpu
                usable = max(memory.usable_bytes_per_gpu, 0.0)
                reason = message("reason.weights_of_all", where=where, weights=weights, usable=usable)
            elif memory.kv_bytes_per_gpu < context:
                sizes = {"context": float(context), "left": memory.kv_bytes_per_gpu}
                reason = message("reason.context_of", model=model.title, where=where, **sizes)
            else:
                continue
            found.setdefault(side, reason)
    return found


def _slow_classes(classes: Sequence[_Class]) -> list[Message]:
    """Classes whose lone sequence is slower than the TPOT that is asked for."""
    found = []
    for one in classes:
        tpot = one.setup.scenario.settings.slo.tpot
        if one.problem.tpot_unreachable and tpot is not None:
            alone, scenario = tpot_at(one.setup, one.problem.demand, 0.0), one.setup.scenario
            names = {"model": scenario.model.title, "workload": scenario.workload.name}
            found.append(message("reason.tpot_of", **names, tpot=float(alone), limit=tpot))
    return found
