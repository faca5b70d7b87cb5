"""A deployment with symbols in place of its numbers: for the machines, the memory and what a mean turn asks for."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from dualplan.model.demand import TurnDemand, delivered
from dualplan.model.symbolic import value_of
from dualplan.model.traffic import Bytes
from dualplan.nomenclature import PLACED
from dualplan.plan.explain.notation import Symbols
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import CollectiveLoad, Scenario
from dualplan.steady.problem import Problem, build
from dualplan.steady.setup import Setup, given_collectives, kv_share


def symbolic_demand(symbols: Symbols, demand: TurnDemand, scenario: Scenario, mode: str) -> TurnDemand:
    """What a turn asks for, as symbols; what is nothing stays 0."""

    def known(name: str, value: Any) -> Any:
        return symbols.known(name, value) if value else 0

    amounts, settings = demand.amounts, scenario.settings
    hit = known("hit", amounts.hit)
    pool = known("pool_share", settings.pool_share) if mode == "dram-pool" else 0
    loaded, read, pooled = delivered(hit, known("residency", settings.residency), pool)
    times: dict[str, Any] = {}
    if demand.decode_quadratic:
        times["decode_quadratic"] = known("decode_step_quadratic_s", demand.decode_quadratic)
    if demand.expert_share:
        times["decode_experts"] = symbols.known("decode_step_experts_s", demand.decode_experts)
        times["expert_share"] = symbols.known("expert_share", demand.expert_share)
        times["expert_ranks"] = symbols.known("expert_ranks", demand.expert_ranks)
    if demand.passes is not None:
        passes = demand.passes
        times["passes"] = msgspec.structs.replace(
            passes,
            handover=known("handover", passes.handover),
            read_variation=known("read_variation", passes.read_variation),
            prefill_bytes=known("batch_bytes", passes.prefill_bytes),
            held_bytes=known("held_bytes", passes.held_bytes),
            base=known("pass_base", passes.base),
            chunks=1 if passes.chunks == 1 else known("pass_chunks", passes.chunks),
            excess=known("pass_excess", passes.excess),
            fullest=None if passes.fullest is None else known("pass_turns", passes.fullest),
            read_service=known("pass_read_time", passes.read_service),
        )
    return msgspec.structs.replace(
        demand,
        **times,
        amounts=Bytes(
            hit=hit,
            read=read,
            loaded=loaded,
            pooled=pooled,
            miss=known("miss", amounts.miss),
            append=known("append_bytes", amounts.append),
            generated=known("generated", amounts.generated),
            prefill_collective=known("prefill_collective", amounts.prefill_collective),
            decode_collective=known("decode_collective", amounts.decode_collective),
        ),
        generated=known("generated_tokens", demand.generated),
        layers=symbols.known("layers", demand.layers),
        kv_per_gpu={side: _unless_one(symbols, "kv_per_gpu", share, side) for side, share in demand.kv_per_gpu.items()},
        sequence_bytes=known("sequence_bytes", demand.sequence_bytes),
        layer_block_bytes=known("layer_block_bytes", demand.layer_block_bytes),
        prefill_gpu_seconds=known("prefill_gpu_seconds", demand.prefill_gpu_seconds),
        prefill_latency=known("prefill_latency", demand.prefill_latency),
        decode_base=known("decode_step_base_s", demand.decode_base),
        decode_slope=known("decode_step_per_sequence_s", demand.decode_slope),
    )


def symbolic_setup(symbols: Symbols, setup: Setup) -> Setup:
    """A deployment with symbols for node counts, memory and the machines."""
    scenario = setup.scenario
    alike = scenario.hardware == scenario.decode_hardware
    given = given_collectives(scenario)
    machines, loads = [], []
    for (side, hardware), load in zip(scenario.sides, (given.prefill, given.decode) if given else (0, 0), strict=True):
        machines.append(_symbolic_hardware(symbols, hardware, "" if alike else side))
        share = float(kv_share(hardware, load))
        loads.append(1 - symbols.known("kv_available_share", share, side) if share != 1 else 0)
    settings = msgspec.structs.replace(
        scenario.settings,
        collective_load=CollectiveLoad(*loads) if given else None,
        balance=_unless_one(symbols, "balance", build(setup, scenario.settings.mode).balance),
    )
    if settings.slo.tpot is not None:
        slo = msgspec.structs.replace(settings.slo, tpot=symbols.known("tpot_limit", settings.slo.tpot))
        settings = msgspec.structs.replace(settings, slo=slo)
    memories = {}
    for side, memory in (("prefill", setup.prefill_memory), ("decode", setup.decode_memory)):
        room = symbols.known(f"{side}_kv_room", memory.kv_bytes_per_gpu)
        memories[f"{side}_memory"] = msgspec.structs.replace(memory, kv_bytes_per_gpu=room)
    idle = setup.times.pass_idle
    return msgspec.structs.replace(
        setup,
        times=msgspec.structs.replace(setup.times, pass_idle=symbols.known("pass_base", idle) if idle else idle),
        scenario=msgspec.structs.replace(
            scenario, settings=settings, hardware=machines[0], decode_hardware=machines[1], variants=()
        ),
        prefill_nodes=symbols.known("prefill_nodes", setup.prefill_nodes),
        decode_nodes=symbols.known("decode_nodes", setup.decode_nodes),
        **memories,
    )


def _unless_one(symbols: Symbols, name: str, value: Any, side: str = "") -> Any:
    return 1 if value == 1 else symbols.known(name, value, side)


def _symbolic_hardware(symbols: Symbols, hardware: Hardware, side: str) -> Hardware:
    """A machine with symbols for what can be bought or measured; the arbiter's part is in the share that KV gets."""
    replace = msgspec.structs.replace
    parts: dict[str, Any] = {}
    for quantity in PLACED:
        if "symbol" not in quantity.roles:
            continue
        section, field = quantity.field.split(".")
        part = parts.get(section, getattr(hardware, section))
        value = getattr(part, field, None)
        # a share of 1 and what is nothing are left out of equations
        if value and not (quantity.most == 1 and value == 1):
            parts[section] = replace(part, **{field: symbols.known(quantity.name, value, side)})
    uplinks = hardware.pcie.uplinks
    if len({uplink.rate for uplink in uplinks}) == 1:
        rate = symbols.known("uplink_rate", uplinks[0].rate, side)
        parts["pcie"] = replace(
            parts.get("pcie", hardware.pcie), uplinks=tuple(replace(uplink, rate=rate) for uplink in uplinks)
        )
    return replace(hardware, qos=None, **parts)


def symbolic_problem(symbols: Symbols, setup: Setup, demand: TurnDemand, numbers: Problem) -> Problem:
    """The symbolic resources, with plain numbers where a formula does not give the value of the answer. A rate that is
    found by search is a symbol of its own.
    """
    filling = {
        name: rate if rate == math.inf else symbols.known(f"{name}_rate", rate)
        for name, rate in numbers.filling.items()
    }
    known = build(setup, numbers.mode, demand, filling)
    resources = []
    for symbolic, plain in zip(known.resources, numbers.resources, strict=True):
        fields = {
            name: getattr(plain, name)
            for name in ("capacity", "prefill", "decode")
            if not same(getattr(symbolic, name), getattr(plain, name))
        }
        tpot = setup.scenario.settings.slo.tpot
        if symbolic.name == "decode_compute" and numbers.demand.step.searched and tpot and not numbers.tpot_unreachable:
            batch = symbols.known("batch_limit", numbers.demand.step.batch_at(value_of(tpot)))
            fields["capacity"] = setup.engines("decode") * batch / (demand.generated * tpot)
        resources.append(msgspec.structs.replace(symbolic, **fields))
    return msgspec.structs.replace(known, resources=tuple(resources))


def same(known: Any, number: Any) -> bool:
    """Whether a formula gives the number of the answer."""
    return math.isclose(float(value_of(known)), float(number), rel_tol=1e-9, abs_tol=1e-300)
