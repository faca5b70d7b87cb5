"""A deployment as a linear programme: what each resource can do, and what a turn takes of it."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from dualplan.messages import message
from dualplan.model.demand import TurnDemand, turn_demand
from dualplan.model.passes import pass_rate
from dualplan.model.queueing import decode_filling_rate, prefill_filling_rate
from dualplan.model.traffic import Bytes, Path, steps
from dualplan.spec.choices import SINGLE_SIDED, Mode
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import CollectiveLoad, Scenario
from dualplan.steady.latencies import (
    decode_turns,
    held_before,
    pass_flow,
    prefill_turns,
    reachable_read_rate,
    read_seconds,
)
from dualplan.steady.resources import NodeLinks, Resource, copy_resource, link_resources, ordered, side_loads
from dualplan.steady.setup import Setup, balance_factor, given_collectives, kv_share


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a deployment under one mode. ``filling``: turn rates at which turns in passes fill a memory, by
    resource [1/s]; infinite where none does.
    """

    mode: Mode
    demand: TurnDemand
    amounts: Bytes
    resources: tuple[Resource, ...]
    balance: float
    given: CollectiveLoad | None
    read_rates: tuple[float, float]
    tpot_unreachable: bool
    filling: dict[str, Any]


def build(
    setup: Setup, mode: Mode, known_demand: TurnDemand | None = None, filling: dict[str, Any] | None = None
) -> Problem:
    """The resources of a deployment under a mode, with what a turn takes of each.

    ``known_demand``: what a mean turn asks for, ``filling``: the rates that are found by search, where they are not to
    be worked out again.
    """
    setup = _reading_both_sides(setup, mode)
    scenario, settings = setup.scenario, setup.scenario.settings
    prefill, decode = scenario.hardware, scenario.decode_hardware
    given = given_collectives(scenario)
    demand = known_demand or turn_demand(
        scenario,
        mode,
        (setup.prefill_parallel, setup.decode_parallel),
        setup.times,
        setup.turns,
        setup.kv_format,
        derive_collectives=given is None,
    )
    amounts = demand.amounts
    table = steps(mode, staging=settings.staging, copy=settings.copy, persist=settings.persist)
    by_path = side_loads(table, amounts, prefill, decode)
    balance = balance_factor(scenario, mode)
    read_rates = (reachable_read_rate(prefill, amounts.read), reachable_read_rate(decode, amounts.read))
    resources: list[Resource] = []
    loads = (given.prefill, given.decode) if given else (0.0, 0.0)
    for (side, hardware), read_rate, load in zip(scenario.sides, read_rates, loads, strict=True):
        links = NodeLinks(
            hardware=hardware,
            side=side,
            nodes=setup.nodes(side),
            kv_share=kv_share(hardware, load),
            read_rate=read_rate,
            balance=balance,
        )
        resources += link_resources(links, by_path)
        if hardware.copy is not None:
            by_engine = settings.copy == "engine"
            cost, how = (hardware.copy.engine, "copy_engine") if by_engine else (hardware.copy.cnic, "rdma_writes")
            submission = copy_resource(links, table, amounts, demand.layer_block_bytes, cost, hardware.copy.queues, how)
            resources += [submission] if submission else []
    resources += _store(scenario, by_path)
    filling = _filling_rates(setup, demand) if filling is None else filling
    resources += _prefill_resources(setup, demand, mode, filling)
    serving, unreachable = _decode_resources(setup, demand, filling)
    resources += serving + _buffers(setup, demand, mode)
    return Problem(
        mode=mode,
        demand=demand,
        amounts=amounts,
        resources=tuple(ordered(resources)),
        balance=balance,
        given=given,
        read_rates=read_rates,
        tpot_unreachable=unreachable,
        filling=filling,
    )


def _store(scenario: Scenario, by_path: dict[str, tuple[Any, Any]]) -> list[Resource]:
    """The store behind the storage NICs: both sides use one, so the tighter of two figures counts."""
    stores = [hardware.storage for _, hardware in scenario.sides if hardware.storage is not None]
    result = []
    for key, direction, detail in (
        ("read_bandwidth", "ingress", "detail.reads"),
        ("write_bandwidth", "egress", "detail.writes"),
    ):
        limits = [limit for store in stores if (limit := getattr(store, key)) is not None]
        loads = [by_path.get(f"{side}_snic_{direction}", (0, 0)) for side, _ in scenario.sides]
        prefill, decode = (sum(load[path] for load in loads) for path in (0, 1))
        if limits and (prefill or decode):
            limit = min(limits)
            result.append(
                Resource(
                    name="storage_backend",
                    side=None,
                    unit="B/s",
                    nominal=limit,
                    capacity=limit,
                    prefill=prefill,
                    decode=decode,
                    detail=message(detail),
                )
            )
    return result


def _serves(name: str, side: Path, capacity: Any) -> Resource:
    return Resource(name=name, side=side, unit="turns/s", nominal=capacity, capacity=capacity, prefill=1, decode=1)


def _holds(name: str, side: Path, capacity: Any, prefill: Any, decode: Any) -> Resource:
    """A memory that turns hold bytes of for a time: by Little's law, bytes times seconds of a turn at the turn rate."""
    return Resource(name=name, side=side, unit="B", nominal=capacity, capacity=capacity, prefill=prefill, decode=decode)


def _reading_both_sides(setup: Setup, mode: Mode) -> Setup:
    """Storage NICs at what they reach where both sides read."""
    scenario, share = setup.scenario, setup.times.both_sides
    if share == 1 or mode in SINGLE_SIDED:
        return setup

    def reached(hardware: Hardware) -> Hardware:
        snic = msgspec.structs.replace(hardware.snic, efficiency=hardware.snic.efficiency * share)
        return msgspec.structs.replace(hardware, snic=snic)

    scenario = msgspec.structs.replace(
        scenario, hardware=reached(scenario.hardware), decode_hardware=reached(scenario.decode_hardware)
    )
    return msgspec.structs.replace(setup, scenario=scenario)


def _filling_rates(setup: Setup, demand: TurnDemand) -> dict[str, Any]:
    """Turn rates at which turns in passes fill a memory, by Little's law; only of memories that they can fill."""
    passes = demand.passes
    if passes is None:
        return {}
    flow, rates = pass_flow(setup, demand), {}
    if passes.prefill_bytes and setup.prefill_memory.kv_bytes_per_gpu > 0:
        rates["prefill_hbm"] = prefill_filling_rate(flow, prefill_turns(setup, demand))
    if demand.generated and setup.decode_memory.kv_bytes_per_gpu > 0:
        holding = (setup.engines("decode"), demand.generated, decode_turns(setup, demand))
        rates["decode_hbm"] = decode_filling_rate(flow, demand.step, *holding)
    return rates


def _filled_at(capacity: Any, turns_per_s: Any) -> Any:
    """Bytes times seconds of a turn such that a memory is full at a turn rate [B s]; none where no rate fills it."""
    return 0.0 if isinstance(turns_per_s, float) and turns_per_s == math.inf else capacity / turns_per_s


def _prefill_resources(setup: Setup, demand: TurnDemand, mode: Mode, filling: dict[str, Any]) -> list[Resource]:
    gpus, passes = setup.prefill_nodes * setup.scenario.hardware.gpu.count, demand.passes
    rate = gpus / demand.prefill_gpu_seconds
    if passes is not None and passes.fullest is not None:
        tp = setup.prefill_parallel.tp
        rate = gpus * pass_rate(passes.base * tp, demand.prefill_gpu_seconds, passes.excess, passes.fullest)
    resources = [_serves("prefill_compute", "prefill", rate)]
    room = setup.prefill_memory.kv_bytes_per_gpu
    if room <= 0:
        return resources
    hit, miss, computing = demand.amounts.hit, demand.amounts.miss, demand.prefill_latency
    reading = read_seconds(setup.scenario.hardware, demand.amounts.read)
    one_layer = (hit + miss) / demand.layers * computing
    held = (one_layer, one_layer)
    if "prefill_hbm" in filling:
        # bytes times seconds such that the memory is full at the rate at which turns fill it from fetch to first token
        held = (_filled_at(gpus * room, filling["prefill_hbm"]),) * 2
    elif mode == "basic":
        # a batch's whole KV lies in HBM from the start of its read to the end of its prefill
        held = ((hit + miss) * (reading + computing),) * 2
    elif setup.scenario.settings.staging == "gds" and mode != "oracle":
        # GPUDirect Storage reads the whole prefix into HBM, of the side that reads
        held = (hit * (reading + computing) + miss * computing, one_layer)
    return [*resources, _holds("prefill_hbm", "prefill", gpus * room, *held)]


def _decode_resources(setup: Setup, demand: TurnDemand, filling: dict[str, Any]) -> tuple[list[Resource], bool]:
    """Decode slots from HBM, and decode speed: by the TPOT that is asked for, else the best batch, which on the
    roofline is the asymptote of ever larger ones.
    """
    if not demand.generated:
        return [], False
    step, generated = demand.step, demand.generated
    engines = setup.engines("decode")
    tpot = setup.scenario.settings.slo.tpot
    unreachable = tpot is not None and step.time(1) > tpot
    fastest = engines * step.highest_rate(generated)
    if tpot is not None and not unreachable:
        batch, best = step.batch_at(tpot), step.best_batch()
        if best is None or batch < best:
            fastest = engines * batch / (generated * tpot)
    resources = [_serves("decode_compute", "decode", fastest)]
    room = setup.decode_memory.kv_bytes_per_gpu / demand.kv_per_gpu["decode"]
    if "decode_hbm" in filling:
        held = (_filled_at(engines * room, filling["decode_hbm"]),) * 2
        resources.append(_holds("decode_hbm", "decode", engines * room, *held))
    elif room > 0:
        held_by_path = []
        for before in held_before(setup, demand):
            batch = step.decoding_batch(room / demand.sequence_bytes, generated, before)
            # bytes times seconds such that the memory is full at the rate at which its slots are
            held_by_path.append(engines * room / (engines * step.rate_at(batch, generated)))
        resources.append(_holds("decode_hbm", "decode", engines * room, *held_by_path))
    return resources, unreachable


def _buffers(setup: Setup, demand: TurnDemand, mode: Mode) -> list[Resource]:
    """Host memory for KV in flight, over the unloaded times of a turn: more under queueing, so these loads are lower
    bounds.
    """
    staging = setup.scenario.settings.staging
    if mode == "oracle" or staging == "gds":
        return []
    amounts, prefill_time = demand.amounts, demand.prefill_latency
    result = []
    for side, hardware in setup.scenario.sides:
        buffer = hardware.dram.kv_buffer
        if buffer is None:
            continue
        reading = amounts.hit * (read_seconds(hardware, amounts.read) + prefill_time)
        if side == "prefill":
            held = (reading, 0.0)
        elif staging == "host":
            held = ((amounts.loaded + amounts.miss) * prefill_time, reading + amounts.miss * prefill_time)
        else:
            held = (0.0, reading)
        if amounts.hit or (side == "decode" and staging == "host" and amounts.miss):
            result.append(_holds(f"{side}_buffer", side, buffer * setup.nodes(side), *held))
    return result
