"""A deployment as a linear programme: who runs where, what a resource can do, what a turn takes of it, the rate."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec

from dualplan.errors import InputError
from dualplan.messages import message
from dualplan.model.demand import Passes, SideMemory, TurnDemand, mean_turn, side_memory, turn_demand, usable_hbm
from dualplan.model.elementwise import maximum, minimum
from dualplan.model.latency import (
    batch_at_tpot,
    batch_at_turn_rate,
    decoding_batch,
    effective_read_rate,
    highest_turn_rate,
    read_time,
    time_per_output_token,
    turn_rate_at_batch,
)
from dualplan.model.passes import (
    attention_work,
    excess_work,
    held_turns,
    pass_rate,
    pass_time_at_rate,
    place_taken,
    read_response,
    root,
    time_to_first_token,
    turn_work,
)
from dualplan.model.service_times import BASIC_COPIES, QUOTA, Fitted, fitted, from_set, with_measured_storage
from dualplan.model.symbolic import value_of
from dualplan.model.throughput import Rate, Use, best_split
from dualplan.model.traffic import Bytes, Path, steps
from dualplan.spec.choices import Mode
from dualplan.spec.hardware import Hardware
from dualplan.spec.parallel import Parallel, default_parallel, hosted
from dualplan.spec.scenario import CollectiveLoad, Scenario
from dualplan.steady.resources import NodeLinks, Resource, copy_resource, link_resources, ordered, side_loads

BALANCE = {"shortest-queue": 1.18, "round-robin": 1.53}
"""Largest over mean load of a storage NIC by policy of choosing the read side (DualPath, section 7.4)."""

SINGLE_SIDED: tuple[Mode, ...] = ("basic", "layerwise", "dram-pool", "oracle")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs where: what does not depend on the mode. Node counts may be arrays that share one parallelism."""

    scenario: Scenario
    prefill_nodes: Any
    decode_nodes: Any
    prefill_parallel: Parallel
    decode_parallel: Parallel
    prefill_memory: SideMemory
    decode_memory: SideMemory

    def nodes(self, side: str) -> Any:
        """Nodes of a side."""
        return self.prefill_nodes if side == "prefill" else self.decode_nodes


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a deployment under one mode."""

    mode: Mode
    demand: TurnDemand
    amounts: Bytes
    resources: tuple[Resource, ...]
    balance: float
    given: CollectiveLoad | None
    read_rates: tuple[float, float]
    tpot_unreachable: bool


def prepare(scenario: Scenario, prefill_nodes: int | None = None, decode_nodes: int | None = None) -> Setup:
    """Parallelism and memory of both sides, and storage NICs as the parameter set of the scenario has them. Raises
    InputError where node counts are missing or a parallelism cannot be hosted.
    """
    if scenario.mix:
        raise InputError("mix", "several models or workloads are not counted with here", "feasible, sweep, compare are")
    scenario = with_measured_storage(scenario)
    settings = scenario.settings
    prefill_nodes, decode_nodes = prefill_nodes or settings.prefill_nodes, decode_nodes or settings.decode_nodes
    counts = {"prefill": prefill_nodes, "decode": decode_nodes}
    missing = [side for side, count in counts.items() if count is None]
    if prefill_nodes is None or decode_nodes is None:
        flags = " and ".join(f"--{side}" for side in missing)
        raise InputError(
            "",
            problems=[f"{side}_nodes: missing (give {flags}, or --nodes N for the best split)" for side in missing[:1]],
        )
    of_prefill, of_decode = hosting(scenario, "prefill", prefill_nodes), hosting(scenario, "decode", decode_nodes)
    return Setup(
        scenario=scenario,
        prefill_nodes=prefill_nodes,
        decode_nodes=decode_nodes,
        prefill_parallel=of_prefill[0],
        decode_parallel=of_decode[0],
        prefill_memory=of_prefill[1],
        decode_memory=of_decode[1],
    )


def hosting(scenario: Scenario, side: Path, nodes: int) -> tuple[Parallel, SideMemory]:
    """The parallelism of a side of so many nodes, and its memory. Raises InputError where a given one has no room."""
    hardware = scenario.hardware if side == "prefill" else scenario.decode_hardware
    given = scenario.prefill_parallel if side == "prefill" else scenario.decode_parallel
    gpus = nodes * hardware.gpu.count
    if given is None:
        parallel = default_parallel(scenario.model, gpus, hardware.gpu.count, usable_hbm(hardware), side)
    else:
        parallel = hosted(given, scenario.model, gpus, hardware.gpu.count, where=f"{side}.parallel")
    return parallel, side_memory(scenario.model, parallel, hardware, redundant_experts(scenario))


def redundant_experts(scenario: Scenario) -> int:
    """Experts of each layer that are held twice, as in the deployment that was fitted; 0 without one."""
    found = fitted(scenario)
    return 0 if found is None else found.chosen.redundant_experts


def given_collectives(scenario: Scenario) -> CollectiveLoad | None:
    """The collective load of --collective-load, for both sides; None where it is derived."""
    given = scenario.settings.collective_load
    return CollectiveLoad(given, given) if isinstance(given, float | int) else given


def kv_share(hardware: Hardware, collective_load: Any) -> Any:
    """Share of a compute NIC that KV traffic can use while collectives use ``collective_load`` of it.

    What the collectives leave, and under a QoS setting at least what the arbiter guarantees. Exact for Fractions.
    """
    if hardware.qos is None or not collective_load:
        return 1 - collective_load
    from dualplan.flow.arbitration import kv_share_available

    qos = hardware.qos
    return kv_share_available(qos.setting(), qos.kv_lane, qos.collective_lanes, collective_load, mtu=qos.mtu)


def kv_floor(hardware: Hardware) -> Fraction:
    """Share of a compute NIC that the arbiter guarantees KV traffic while all collective lanes are busy; 0 without
    QoS.
    """
    if hardware.qos is None:
        return Fraction(0)
    from dualplan.flow.arbitration import guaranteed

    qos = hardware.qos
    return guaranteed(qos.setting(), qos.kv_lane, busy=qos.collective_lanes, mtu=qos.mtu)


def balance_factor(scenario: Scenario, mode: Mode) -> float:
    """Largest over mean load of a storage NIC: set, or by policy; 1 where reads are not a choice or are split."""
    if scenario.settings.balance is not None:
        return scenario.settings.balance
    return BALANCE[scenario.settings.policy] if mode == "dual-path" else 1.0


def build(setup: Setup, mode: Mode, known_demand: TurnDemand | None = None) -> Problem:
    """The resources of a deployment under a mode, with what a turn takes of each.

    ``known_demand``: what a mean turn asks for, where it is not to be worked out from the workload again.
    """
    found = fitted(setup.scenario)
    setup = _reading_both_sides(setup, mode, found)
    scenario, settings = setup.scenario, setup.scenario.settings
    prefill, decode = scenario.hardware, scenario.decode_hardware
    given = given_collectives(scenario)
    demand = known_demand or _timed(setup, mode, found, derive_collectives=given is None)
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
    resources += _prefill_resources(setup, demand, mode)
    serving, unreachable = _decode_resources(setup, demand)
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


def reachable_read_rate(hardware: Hardware, size: float) -> float:
    """Rate of one storage NIC serving reads of that size one after the other [B/s]; of no size, its reachable rate."""
    rate = hardware.snic.rate * hardware.snic.efficiency
    return effective_read_rate(size, rate, hardware.snic.time_per_read) if size else rate


def _serves(name: str, side: Path, capacity: Any) -> Resource:
    return Resource(name=name, side=side, unit="turns/s", nominal=capacity, capacity=capacity, prefill=1, decode=1)


def _holds(name: str, side: Path, capacity: Any, prefill: Any, decode: Any) -> Resource:
    """A memory that turns hold bytes of for a time: by Little's law, bytes times seconds of a turn at the turn rate."""
    return Resource(name=name, side=side, unit="B", nominal=capacity, capacity=capacity, prefill=prefill, decode=decode)


def read_seconds(hardware: Hardware, size: Any) -> Any:
    """One read that meets no other [s]: latency of the store, time per read of the NIC, its bytes; 0 for no bytes.

    Floats or arrays.
    """
    snic, latency = hardware.snic, hardware.storage.latency if hardware.storage is not None else None
    return ((latency or 0.0) + read_time(size, snic.rate * snic.efficiency, snic.time_per_read)) * (size > 0)


def _reading_both_sides(setup: Setup, mode: Mode, found: Fitted | None) -> Setup:
    """Storage NICs at what they reach where both sides read."""
    if found is None or mode in SINGLE_SIDED or not found.has("storage"):
        return setup
    scenario, share = setup.scenario, found.chosen.both_sides

    def reached(hardware: Hardware) -> Hardware:
        snic = msgspec.structs.replace(hardware.snic, efficiency=hardware.snic.efficiency * share)
        return msgspec.structs.replace(hardware, snic=snic)

    scenario = msgspec.structs.replace(
        scenario, hardware=reached(scenario.hardware), decode_hardware=reached(scenario.decode_hardware)
    )
    return msgspec.structs.replace(setup, scenario=scenario)


def _timed(setup: Setup, mode: Mode, found: Fitted | None, *, derive_collectives: bool) -> TurnDemand:
    """What a mean turn asks for, in times of the roofline or of the fitted set."""
    scenario = setup.scenario
    demand = turn_demand(
        scenario,
        mode,
        setup.prefill_parallel,
        setup.decode_parallel,
        setup.decode_memory,
        derive_collectives=derive_collectives,
    )
    if found is None:
        return demand
    times = from_set(found.chosen, scenario.model.num_layers)
    changes: dict[str, Any] = {"compute_origin": found.origin}
    if found.has("decode"):
        # loading and persisting KV slows its steps
        slower = 1.0 if mode == "oracle" else 1 + times.decode_read_slowdown
        names = ("decode_base", "decode_slope", "decode_quadratic")
        changes |= {name: getattr(times, name) * slower for name in names}
    if found.has("prefill"):
        costs = (times.per_request, times.per_token, times.per_context, times.per_token_context)
        work, attention, variation = _mean_work(scenario, costs)
        amounts, snic = demand.amounts, scenario.hardware.snic
        reading = read_time(amounts.read, snic.rate * snic.efficiency, snic.time_per_read) if amounts.read else 0.0
        moved = 0.0 if mode == "oracle" else (amounts.hit + amounts.miss) / times.handover_rate
        passes = Passes(
            base=times.pass_base,
            excess=excess_work(_in_step(setup.prefill_parallel), variation),
            fullest=QUOTA / attention if attention > 0 else None,
            handover=times.handover + moved,
            read_service=0.0 if mode == "oracle" else reading,
            read_variation=_read_variation(scenario, snic.time_per_read / reading) if amounts.read else 0.0,
            read_sides=_reading_sides(mode) if amounts.read else (),
            prefill_bytes=BASIC_COPIES * (amounts.hit + amounts.miss) if mode == "basic" else 0.0,
            held_bytes=demand.sequence_bytes * _longer_generate_more(scenario),
            alike=variation == 0,
        )
        changes |= {
            "passes": passes,
            "prefill_gpu_seconds": work * setup.prefill_parallel.tp,
            "prefill_latency": times.pass_base + work,
        }
    return msgspec.structs.replace(demand, **changes)


def _reading_sides(mode: Mode) -> tuple[Path, ...]:
    """Sides whose storage NICs read."""
    if mode == "oracle":
        return ()
    return ("prefill",) if mode in SINGLE_SIDED else ("prefill", "decode")


def _in_step(parallel: Parallel) -> int:
    """Engines that run passes together: those of an expert-parallel group; one for dense models."""
    return max(parallel.ep // parallel.tp, 1)


def _mean_work(scenario: Scenario, costs: tuple[float, float, float, float]) -> tuple[float, float, float]:
    """Prefill work of the turns of a workload on an engine: its mean, the part of attention [s], and its variation,
    standard deviation over mean. Scatter that the workload states beside its means is taken as independent.
    """
    turns, workload = mean_turn(scenario.workload), scenario.workload
    pairs = list(zip(turns.computed, turns.hits, strict=True))
    works = [turn_work(*costs, new, old) for new, old in pairs]
    mean = turns.mean(works)
    variance = turns.mean((work - mean) ** 2 for work in works)
    if workload.per_turn is not None and not workload.classes:
        means = workload.per_turn
        by_append = (costs[1] + costs[3] * means.context) * means.append * means.append_scatter
        by_context = (costs[2] + costs[3] * means.append) * means.context * means.context_scatter
        variance += by_append**2 + by_context**2
    attention = turns.mean(attention_work(costs[2], costs[3], new, old) for new, old in pairs)
    return mean, attention, variance**0.5 / mean if mean else 0.0


def _read_variation(scenario: Scenario, fixed: float) -> float:
    """Standard deviation over mean of the time of a read, ``fixed`` of which does not depend on its size."""
    workload, turns = scenario.workload, mean_turn(scenario.workload)
    if workload.per_turn is not None and not workload.classes:
        return workload.per_turn.context_scatter * (1 - fixed)
    hits = turns.mean(turns.hits)
    return turns.mean((hit - hits) ** 2 for hit in turns.hits) ** 0.5 / hits * (1 - fixed) if hits else 0.0


def _longer_generate_more(scenario: Scenario) -> float:
    """Mean generated tokens with turns weighted by length, over the plain mean: by how much the sequences that decode
    at a moment are longer than those of all turns.
    """
    workload, mix = scenario.workload, mean_turn(scenario.workload).mix
    if workload.per_turn is not None and not workload.classes:
        means = workload.per_turn
        held = means.generated if means.generated_by_length is None else means.generated_by_length
        return held / means.generated if means.generated else 1.0
    lengths = [turn.context + turn.append + turn.generated for turn in mix]
    length = sum(turn.weight * size for turn, size in zip(mix, lengths, strict=True))
    generated = sum(turn.weight * turn.generated for turn in mix)
    both = sum(turn.weight * turn.generated * size for turn, size in zip(mix, lengths, strict=True))
    return both / (length * generated) if generated else 1.0


def _prefill_resources(setup: Setup, demand: TurnDemand, mode: Mode) -> list[Resource]:
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
    if passes is not None and passes.prefill_bytes:
        # bytes times seconds such that the memory is full at the rate at which turns fill it from fetch to first token
        held = (gpus * room / _rate_from_prefill_hbm(setup, demand),) * 2
    elif mode == "basic":
        # a batch's whole KV lies in HBM from the start of its read to the end of its prefill
        held = ((hit + miss) * (reading + computing),) * 2
    elif setup.scenario.settings.staging == "gds" and mode != "oracle":
        # GPUDirect Storage reads the whole prefix into HBM, of the side that reads
        held = (hit * (reading + computing) + miss * computing, one_layer)
    return [*resources, _holds("prefill_hbm", "prefill", gpus * room, *held)]


def _prefill_turns(setup: Setup, demand: TurnDemand, passes: Passes) -> Any:
    """Turns whose whole KV the prefill engines can hold."""
    room = value_of(setup.prefill_memory.kv_bytes_per_gpu) / demand.kv_per_gpu["prefill"]
    return prefill_engines(setup) * held_turns(room, passes.prefill_bytes, alike=passes.alike)


def decode_turns(setup: Setup, demand: TurnDemand, passes: Passes) -> Any:
    """Turns that the decode engines can hold."""
    room = value_of(setup.decode_memory.kv_bytes_per_gpu) / demand.kv_per_gpu["decode"]
    return value_of(decode_engines(setup)) * held_turns(room, passes.held_bytes, alike=passes.alike)


def before_first_token(setup: Setup, demand: TurnDemand, passes: Passes, turns_per_s: Any) -> Any:
    """Seconds from fetch to first token at a turn rate of the deployment. Numbers, not symbols."""
    reading: Any = 0.0
    if passes.read_sides:
        sides = dict(setup.scenario.sides)
        nics = sum(value_of(setup.nodes(side)) * value_of(sides[side].snic.count) for side in passes.read_sides)
        most = decode_turns(setup, demand, passes)
        if passes.prefill_bytes:
            most = minimum(most, _prefill_turns(setup, demand, passes))
        service = value_of(passes.read_service)
        # a closed queue is never longer than all turns that may be under way
        at = minimum(turns_per_s / nics, 1 / service)
        reading = read_response(service, passes.read_variation, at, maximum(most / nics, 1))
    return time_to_first_token(_passing(setup, demand, passes, turns_per_s), reading)


def before_decode(setup: Setup, demand: TurnDemand, passes: Passes, turns_per_s: Any) -> Any:
    """Seconds that a place on a decode engine is taken for a turn before it decodes, as :func:`before_first_token`."""
    passing = _passing(setup, demand, passes, turns_per_s)
    first = before_first_token(setup, demand, passes, turns_per_s)
    return place_taken(passing, first, value_of(passes.handover))


def _passing(setup: Setup, demand: TurnDemand, passes: Passes, turns_per_s: Any) -> Any:
    """Time of a pass at a turn rate of the deployment [s]."""
    work = value_of(demand.prefill_gpu_seconds) / setup.prefill_parallel.tp
    return pass_time_at_rate(passes.base, work, passes.excess, turns_per_s / prefill_engines(setup))


def prefill_engines(setup: Setup) -> Any:
    """Groups of GPUs that prefill a turn each: one GPU, or ``tp`` of them. A number, not a symbol."""
    return value_of(setup.prefill_nodes) * value_of(setup.scenario.hardware.gpu.count) / setup.prefill_parallel.tp


def _fastest_prefill(setup: Setup, demand: TurnDemand) -> Any:
    """Turn rate at which passes would never end [1/s]."""
    work = value_of(demand.prefill_gpu_seconds) / setup.prefill_parallel.tp
    return prefill_engines(setup) / work * (1 - 1e-9)


def _rate_from_prefill_hbm(setup: Setup, demand: TurnDemand) -> Any:
    """Turn rate at which the turns from fetch to first token fill the HBM of the prefill side: by Little's law."""
    assert demand.passes is not None
    passes = demand.passes
    most = _prefill_turns(setup, demand, passes)

    def over(rate: Any) -> Any:
        return rate * before_first_token(setup, demand, passes, rate) - most

    return root(over, 0.0, _fastest_prefill(setup, demand))


def _rate_from_decode_hbm(setup: Setup, demand: TurnDemand) -> Any:
    """Turn rate at which turns fill the HBM of the decode side: each takes its room when it is fetched."""
    assert demand.passes is not None
    passes, engines = demand.passes, value_of(decode_engines(setup))
    times = (demand.decode_base, demand.decode_slope, demand.decode_quadratic, demand.generated)
    base, slope, quadratic, generated = (value_of(value) for value in times)
    most = decode_turns(setup, demand, passes)

    def over(rate: Any) -> Any:
        before = before_decode(setup, demand, passes, rate)
        decoding = batch_at_turn_rate(base, slope, rate / engines, generated, quadratic)
        return rate * before + engines * decoding - most

    asymptote = engines * highest_turn_rate(base, slope, generated, quadratic) * (1 - 1e-9)
    return root(over, 0.0, minimum(asymptote, _fastest_prefill(setup, demand)))


def _decode_resources(setup: Setup, demand: TurnDemand) -> tuple[list[Resource], bool]:
    """Decode slots from HBM, and decode speed: by the TPOT that is asked for, else the best batch, which on the
    roofline is the asymptote of ever larger ones.
    """
    if not demand.generated:
        return [], False
    base, slope, quadratic, generated = (
        demand.decode_base,
        demand.decode_slope,
        demand.decode_quadratic,
        demand.generated,
    )
    engines = decode_engines(setup)
    tpot = setup.scenario.settings.slo.tpot
    unreachable = tpot is not None and time_per_output_token(base, slope, 1, quadratic) > tpot
    fastest = engines * highest_turn_rate(base, slope, generated, quadratic)
    if tpot is not None and not unreachable:
        batch = batch_at_tpot(base, slope, tpot, quadratic)
        if not quadratic or quadratic * batch * batch < base:
            fastest = engines * turn_rate_at_batch(base, slope, batch, generated, quadratic)
    resources = [_serves("decode_compute", "decode", fastest)]
    room = setup.decode_memory.kv_bytes_per_gpu / demand.kv_per_gpu["decode"]
    if room > 0 and demand.passes is not None:
        held = (engines * room / _rate_from_decode_hbm(setup, demand),) * 2
        resources.append(_holds("decode_hbm", "decode", engines * room, *held))
    elif room > 0:
        held_by_path = []
        for before in held_before(setup, demand):
            batch = decoding_batch(base, slope, room / demand.sequence_bytes, generated, before)
            # bytes times seconds such that the memory is full at the rate at which its slots are
            held_by_path.append(engines * room / (engines * turn_rate_at_batch(base, slope, batch, generated)))
        resources.append(_holds("decode_hbm", "decode", engines * room, *held_by_path))
    return resources, unreachable


def decode_engines(setup: Setup) -> Any:
    """Groups of GPUs that decode a sequence each: one GPU, or ``tp`` of them."""
    return setup.decode_nodes * setup.scenario.decode_hardware.gpu.count / setup.decode_parallel.tp


def held_before(setup: Setup, demand: TurnDemand) -> tuple[float, float]:
    """Seconds that a turn holds decode HBM before it decodes, when read on the prefill and on the decode side [s].

    None when staged in host memory; from the first layer of prefill on with GPUDirect; with GPUDirect Storage a read
    on the decode side ends there too.
    """
    staging, computing = setup.scenario.settings.staging, demand.prefill_latency
    if staging == "host":
        return 0.0, 0.0
    reading = read_seconds(setup.scenario.decode_hardware, demand.amounts.read)
    return computing, computing + (reading if staging == "gds" else 0.0)


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
