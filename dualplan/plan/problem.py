"""A deployment as a linear programme: who runs where, what a resource can do, what a turn takes of it, the rate."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec

from dualplan.errors import InputError
from dualplan.model.demand import SideMemory, TurnDemand, side_memory, turn_demand, usable_hbm
from dualplan.model.latency import (
    batch_at_tpot,
    decoding_batch,
    effective_read_rate,
    read_time,
    time_per_output_token,
    turn_rate_at_batch,
)
from dualplan.model.throughput import Rate, Use, best_split
from dualplan.model.traffic import Bytes, Path, steps
from dualplan.plan.resources import NodeLinks, Resource, copy_resource, link_resources, ordered, side_loads
from dualplan.spec.choices import Mode
from dualplan.spec.hardware import Hardware
from dualplan.spec.parallel import Parallel, default_parallel, hosted
from dualplan.spec.scenario import CollectiveLoad, Scenario

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
    """Parallelism and memory of both sides. Raises InputError where node counts are missing or a parallelism cannot
    be hosted.
    """
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
    return parallel, side_memory(scenario.model, parallel, hardware)


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
    scenario, settings = setup.scenario, setup.scenario.settings
    prefill, decode = scenario.hardware, scenario.decode_hardware
    given = given_collectives(scenario)
    demand = known_demand or turn_demand(
        scenario,
        mode,
        setup.prefill_parallel,
        setup.decode_parallel,
        setup.decode_memory,
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
            cost, how = (hardware.copy.engine, "copy engine") if by_engine else (hardware.copy.cnic, "RDMA writes")
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
        ("read_bandwidth", "ingress", "reads"),
        ("write_bandwidth", "egress", "writes"),
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
                    detail=detail,
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


def read_seconds(hardware: Hardware, size: float) -> float:
    """One read that meets no other [s]: latency of the store, time per read of the NIC, its bytes."""
    snic, latency = hardware.snic, hardware.storage.latency if hardware.storage is not None else None
    return (latency or 0.0) + read_time(size, snic.rate * snic.efficiency, snic.time_per_read) if size else 0.0


def _prefill_resources(setup: Setup, demand: TurnDemand, mode: Mode) -> list[Resource]:
    gpus = setup.prefill_nodes * setup.scenario.hardware.gpu.count
    resources = [_serves("prefill_compute", "prefill", gpus / demand.prefill_gpu_seconds)]
    room = setup.prefill_memory.kv_bytes_per_gpu
    if room <= 0:
        return resources
    hit, miss, computing = demand.amounts.hit, demand.amounts.miss, demand.prefill_latency
    reading = read_seconds(setup.scenario.hardware, demand.amounts.read)
    one_layer = (hit + miss) / demand.layers * computing
    held = (one_layer, one_layer)
    if mode == "basic":
        # a batch's whole KV lies in HBM from the start of its read to the end of its prefill
        held = ((hit + miss) * (reading + computing),) * 2
    elif setup.scenario.settings.staging == "gds" and mode != "oracle":
        # GPUDirect Storage reads the whole prefix into HBM, of the side that reads
        held = (hit * (reading + computing) + miss * computing, one_layer)
    return [*resources, _holds("prefill_hbm", "prefill", gpus * room, *held)]


def _decode_resources(setup: Setup, demand: TurnDemand) -> tuple[list[Resource], bool]:
    """Decode slots from HBM, and decode speed: by the TPOT that is asked for, else the asymptote of ever larger
    batches.
    """
    if not demand.generated:
        return [], False
    base, slope, generated = demand.decode_base, demand.decode_slope, demand.generated
    engines = decode_engines(setup)
    tpot = setup.scenario.settings.slo.tpot
    unreachable = tpot is not None and time_per_output_token(base, slope, 1) > tpot
    fastest = engines / (generated * slope)
    if tpot is not None and not unreachable:
        fastest = engines * turn_rate_at_batch(base, slope, batch_at_tpot(base, slope, tpot), generated)
    resources = [_serves("decode_compute", "decode", fastest)]
    room = setup.decode_memory.kv_bytes_per_gpu / demand.kv_per_gpu["decode"]
    if room > 0:
        held = []
        for before in held_before(setup, demand):
            batch = decoding_batch(base, slope, room / demand.sequence_bytes, generated, before)
            # bytes times seconds such that the memory is full at the rate at which its slots are
            held.append(engines * room / (engines * turn_rate_at_batch(base, slope, batch, generated)))
        resources.append(_holds("decode_hbm", "decode", engines * room, *held))
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
        if any(held):
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
