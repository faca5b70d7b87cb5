"""What storage a scenario needs: working set, servers, load or recompute, a DRAM pool, a remote site.

The equations are in dualplan.model.storage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from dualplan.errors import InputError
from dualplan.model.kv import kv_total_bytes_per_token
from dualplan.model.latency import read_time
from dualplan.model.storage import (
    DAY,
    YEAR,
    agents_in_flight,
    break_even_bandwidth,
    completion_time,
    drive_writes_per_day,
    link_turn_rate,
    retained_bytes,
    think_time_stretch,
    transfer_time,
    working_set_bytes,
)
from dualplan.model.traffic import Bytes, Step, amount, loads, steps
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import Turn, Workload, mean_of, mean_turns, per_turn_means, turn_mix, with_plain_means
from dualplan.steady.answer import Evaluation, evaluate
from dualplan.steady.latencies import reachable_read_rate, read_seconds
from dualplan.steady.problem import build
from dualplan.steady.resources import NodeLinks, link_resources
from dualplan.steady.setup import demand_turns_per_s, prepare

if TYPE_CHECKING:
    from dualplan.trace.reuse import ReuseCurve

# ---------------------------------------------------------------- working set and store


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation measured: completion time of an agent [s], mean working set [B]."""

    completion_time_s: float
    working_set_bytes: float


class WorkingSet(msgspec.Struct, frozen=True, kw_only=True):
    """KV of the agents in flight. Times in s, sizes in B.

    ``bytes`` takes every agent as half way to the mean total.
    ``completion_origin``: given, steady (unloaded times to first token: a lower bound) or simulated. ``stretch``: by
    how much think time lengthens an agent. ``measured_bytes``: the working set of the simulation.
    """

    agents_per_s: float
    completion_time_s: float
    completion_origin: str
    busy_time_s: float
    stretch: float
    agents: float
    total_tokens: float
    kv_bytes_per_token: float
    bytes: float
    bytes_without_thinking: float
    measured_bytes: float | None

    @property
    def needed_bytes(self) -> float:
        """What a simulation holds where there is one, else what the rule gives."""
        return self.bytes if self.measured_bytes is None else self.measured_bytes


class StoreNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a store must hold and move, and how many servers that takes. Sizes in B, rates in B/s.

    ``servers``: the most of ``by_capacity``, ``by_read`` and ``by_write`` (None: not asked). ``with_one_down``: servers
    such that one may fail. ``node_down``: turns/s with one prefill and with one decode node down, None where none is
    left.
    """

    working_set: WorkingSet
    turns_per_s: float
    written_bytes_per_s: float
    written_bytes_per_day: float
    read_bytes_per_s: float
    retention_s: float | None
    stored_bytes: float
    by_capacity: int | None
    by_read: int | None
    by_write: int | None
    servers: int | None
    with_one_down: int | None
    drive_writes_per_day: float | None
    rated_writes_per_day: float
    warranty_s: float
    life_s: float | None
    node_down: tuple[float | None, float | None]
    rate_now: float


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One storage server: usable capacity [B], read and write bandwidth [B/s]; None: not a limit."""

    capacity: float | None = None
    read: float | None = None
    write: float | None = None


LEAST_RATE, MOST_RATE = 1e-9, 1e9
"""Demands that are planned for [turns/s]."""


def check_demand_rate(turns_per_s: float) -> None:
    """Raises InputError for a demand that no store or deployment is planned for."""
    if not LEAST_RATE <= turns_per_s <= MOST_RATE:
        what = f"{turns_per_s:g} turns/s is not a demand of {LEAST_RATE:g} to {MOST_RATE:g}"
        raise InputError("the demand", what)


def arrival_rate(scenario: Scenario, answer: Evaluation) -> float:
    """Agents per second: the demand of the scenario, of two the larger, else what the deployment carries at most."""
    wanted = demand_turns_per_s(scenario)
    if wanted is not None:
        check_demand_rate(wanted)
    return (answer.turns_per_s if wanted is None else wanted) / mean_turns(scenario.workload)


def agent_tokens(workload: Workload) -> float:
    """Tokens of an agent at its end: what its turns append and generate, or a mean turn's sequence where that is
    longer, because others wrote its context.
    """
    means = per_turn_means(workload)
    return max(mean_turns(workload) * (means.append + means.generated), means.context + means.append + means.generated)


def agent_time(answer: Evaluation) -> float:
    """Mean time of an agent in the steady model [s]: times to first token are unloaded, so it is a lower bound."""
    workload = answer.scenario.workload
    turn_time = answer.ttft_unloaded_s + answer.demand.generated * answer.tpot_s
    return float(completion_time(mean_turns(workload), turn_time, mean_of(workload.think_time)))


def store_traffic(answer: Evaluation) -> tuple[float, float]:
    """Bytes that a turn reads from the store and writes to it, by the rows of the step table [B]."""
    settings, amounts = answer.scenario.settings, answer.demand.amounts
    table = steps(settings.mode, staging=settings.staging, copy=settings.copy, persist=settings.persist)
    read = sum(amount(step, amounts) for step in table["prefill"] if step.source == "storage")
    written = sum(amount(step, amounts) for step in table["prefill"] if step.target == "storage")
    return float(read), float(written)


def working_set(scenario: Scenario, given_time: float | None = None, run: Run | None = None) -> WorkingSet:
    """The working set at the demand of a scenario, with the completion time of an agent that is given, simulated or,
    without either, that of the steady model.
    """
    answer = evaluate(scenario)
    workload, demand = scenario.workload, answer.demand
    turns, rate = mean_turns(workload), arrival_rate(scenario, answer)
    if not rate:
        raise InputError("", "the deployment carries no turns, so there is no working set", "see: dualplan feasible")
    thinking = (turns - 1) * mean_of(workload.think_time)
    whole, origin = agent_time(answer), "steady"
    if run is not None:
        whole, origin = run.completion_time_s, "simulated"
    if given_time is not None:
        whole, origin = given_time, "given"
    if whole <= thinking:
        raise InputError("--completion-time", f"{whole:g} s is not longer than the {thinking:g} s that an agent thinks")
    total, per_token = agent_tokens(workload), kv_total_bytes_per_token(scenario.model, demand.kv_format)
    size = working_set_bytes(rate, whole, total, per_token)
    stretch = think_time_stretch(whole - thinking, thinking)
    return WorkingSet(
        agents_per_s=rate,
        completion_time_s=whole,
        completion_origin=origin,
        busy_time_s=whole - thinking,
        stretch=stretch,
        agents=agents_in_flight(rate, whole),
        total_tokens=total,
        kv_bytes_per_token=per_token,
        bytes=size,
        bytes_without_thinking=size / stretch,
        measured_bytes=None if run is None else run.working_set_bytes,
    )


def simulated(scenario: Scenario, rate: float) -> Run:
    """Completion time and working set of a simulation with agents that arrive at ``rate`` a second.

    Raises InputError for a workload that is a trace, and where no agent ends within the run.
    """
    from dualplan.plan.simulation import simulate
    from dualplan.spec.run import RunSpec, Slo

    if scenario.workload.mix:
        raise InputError("--simulate", "the workload is a trace", "make a workload of it first: dualplan trace fit")
    result = simulate(scenario, RunSpec(arrival_rate=rate, slo=Slo()))
    if result.agent_time_s.mean is None or result.stopped != "end of the run":
        what = f"{rate:.4g} agents/s are more than this deployment carries, so nothing settles"
        raise InputError("--simulate", what, "give a lower --arrival-rate")
    return Run(completion_time_s=result.agent_time_s.mean, working_set_bytes=result.mean_working_set_bytes)


def store_needs(
    scenario: Scenario,
    held: WorkingSet,
    *,
    server: Server,
    retention: float | None = None,
    rated_writes_per_day: float = 1.0,
    warranty: float = 5 * YEAR,
) -> StoreNeeds:
    """What the store must hold and move at the rate of a working set, the simulated one where there is one."""
    answer = evaluate(scenario)
    turns = held.agents_per_s * mean_turns(scenario.workload)
    read, written = (turns * size for size in store_traffic(answer))
    # an oracle keeps KV where it is needed
    kept = retained_bytes(written, retention or 0.0)
    stored = 0.0 if scenario.settings.mode == "oracle" else max(held.needed_bytes, kept)
    counts = [
        None if limit is None else max(math.ceil(asked_for / limit * (1 - 1e-12)), 1)
        for asked_for, limit in ((stored, server.capacity), (read, server.read), (written, server.write))
    ]
    asked = [count for count in counts if count is not None]
    servers = max(asked) if asked else None
    flash = None if servers is None or server.capacity is None else servers * server.capacity
    writes = None if flash is None or not written else drive_writes_per_day(written, flash)
    return StoreNeeds(
        working_set=held,
        turns_per_s=turns,
        written_bytes_per_s=written,
        written_bytes_per_day=written * DAY,
        read_bytes_per_s=read,
        retention_s=retention,
        stored_bytes=stored,
        by_capacity=counts[0],
        by_read=counts[1],
        by_write=counts[2],
        servers=servers,
        with_one_down=None if servers is None else servers + 1,
        drive_writes_per_day=writes,
        rated_writes_per_day=rated_writes_per_day,
        warranty_s=warranty,
        life_s=None if writes is None else rated_writes_per_day / writes * warranty,
        node_down=(_with_fewer(scenario, answer, 1, 0), _with_fewer(scenario, answer, 0, 1)),
        rate_now=answer.turns_per_s,
    )


def _with_fewer(scenario: Scenario, answer: Evaluation, prefill: int, decode: int) -> float | None:
    """Turns/s with so many nodes down; None where a side has none left or what is left cannot host the model."""
    counts = answer.prefill_nodes - prefill, answer.decode_nodes - decode
    if min(counts) < 1:
        return None
    try:
        return evaluate(scenario, *counts).turns_per_s
    except InputError:  # the parallelism that was given needs the node
        return None


# ---------------------------------------------------------------- load or recompute


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """Where a prefix may be loaded from, by one prefill node with all its links [B/s], and what limits that."""

    name: str
    bandwidth: float
    limit: str


class BreakEven(msgspec.Struct, frozen=True, kw_only=True):
    """A prefix of ``context`` tokens on one prefill node: to load it or to compute it. Sizes in B, times in s.

    ``loads``: tier -> (time, how many times faster than computing it).
    """

    context: int
    kv_bytes: float
    recompute_s: float
    bandwidth: float
    loads: dict[str, tuple[float, float]]


# rows of the step table between a tier and the GPU that computes, by label
_TIER_ROWS = {"storage": ("1-2", "3", "4"), "dram pool": ("p1", "p2", "p3", "3", "4"), "local dram": ("3", "4")}


def tiers(scenario: Scenario, size: float) -> tuple[Tier, ...]:
    """What a prefill node loads prefixes of ``size`` bytes with, from each tier, by the rows of the step table."""
    settings, hardware = scenario.settings, scenario.hardware
    table = steps("dram-pool", staging=settings.staging, copy=settings.copy, persist=settings.persist)["prefill"]
    found = []
    for name, labels in _TIER_ROWS.items():
        rows = [step for step in table if set(step.label.split(",")) & set(labels)]
        if not rows or (settings.staging == "gds" and name != "storage"):
            continue
        bandwidth, limit = _bandwidth(hardware, rows, size)
        found.append(Tier(name=name, bandwidth=bandwidth, limit=limit))
    return tuple(found)


def _bandwidth(hardware: Hardware, rows: Sequence[Step], size: float) -> tuple[float, str]:
    amounts = Bytes(hit=1, read=1, pooled=1, loaded=0)
    by_path = {name: (load, 0) for name, load in loads(rows, amounts).items()}
    links = NodeLinks(hardware=hardware, side="prefill", nodes=1, read_rate=reachable_read_rate(hardware, size))
    resources = link_resources(links, by_path)
    slowest = min(resources, key=lambda resource: resource.capacity / resource.prefill)
    return float(slowest.capacity / slowest.prefill), slowest.name


def break_even(scenario: Scenario, contexts: Sequence[int]) -> tuple[BreakEven, ...]:
    """For each context: the bandwidth above which a prefill node loads it faster than it computes it, and the tiers."""
    found = []
    for context in contexts:
        seconds, size = _recompute(scenario, context)
        rows = {}
        for tier in tiers(scenario, size):
            # a single read meets the latency of the store and the fixed time of its NIC
            extra = 0.0
            if tier.name == "storage":
                snic = scenario.hardware.snic
                extra = read_seconds(scenario.hardware, size) - read_time(
                    size, snic.rate * snic.efficiency, snic.time_per_read
                )
            time = transfer_time(size, tier.bandwidth, extra)
            rows[tier.name] = (time, seconds / time)
        found.append(
            BreakEven(
                context=context,
                kv_bytes=size,
                recompute_s=seconds,
                bandwidth=break_even_bandwidth(size, seconds),
                loads=rows,
            )
        )
    return tuple(found)


def _recompute(scenario: Scenario, context: float) -> tuple[float, float]:
    """Time in which all GPUs of a prefill node compute a prefix [s], and its bytes."""
    whole = _with_turn(scenario, context=0.0, append=context)
    setup = prepare(whole, scenario.settings.prefill_nodes or 1, scenario.settings.decode_nodes or 1)
    demand = build(setup, scenario.settings.mode).demand
    seconds = demand.prefill_gpu_seconds / scenario.hardware.gpu.count
    return float(seconds), float(demand.amounts.miss)


def _with_turn(scenario: Scenario, *, context: float, append: float) -> Scenario:
    """The scenario with all turns alike."""
    workload = with_plain_means(scenario.workload, context=context, append=append)
    return msgspec.structs.replace(scenario, workload=workload)


# ---------------------------------------------------------------- a DRAM pool beside storage


class PoolSize(msgspec.Struct, frozen=True, kw_only=True):
    """A DRAM pool of some size: share of the hits that it serves, and the rate with it.

    ``turns_per_s``: mode dram-pool with that share; ``without``: the mode below it, layerwise; ``dual_path``: reading
    on both sides instead.
    """

    capacity_bytes: float
    hit_share: float
    turns_per_s: float
    without: float
    dual_path: float
    bottleneck: str | None


def hit_share(curve: ReuseCurve, tokens: float) -> float:
    """Share of all hits that a cache of ``tokens`` tokens serves, between the points of a reuse curve."""
    points = curve.points
    most = points[-1].by_token
    if most <= 0 or tokens <= 0:
        return 0.0
    place = [(math.log2(point.cache_tokens), point.by_token) for point in points]
    at = math.log2(tokens)
    if at <= place[0][0]:
        return place[0][1] / most
    for (x0, y0), (x1, y1) in pairwise(place):
        if at <= x1:
            return (y0 + (y1 - y0) * (at - x0) / (x1 - x0)) / most
    return 1.0


def pool_sizes(scenario: Scenario, curve: ReuseCurve, capacities: Sequence[float]) -> tuple[PoolSize, ...]:
    """What pools of these sizes on the prefill nodes bring."""
    model = scenario.model

    def rate(mode: str, share: float | None = None) -> Evaluation:
        settings = msgspec.structs.replace(scenario.settings, mode=mode)
        if share is not None:
            settings = msgspec.structs.replace(settings, pool_share=share)
        return evaluate(msgspec.structs.replace(scenario, settings=settings))

    without, dual = rate("layerwise"), rate("dual-path")
    per_token = kv_total_bytes_per_token(model, without.demand.kv_format)
    found = []
    for capacity in capacities:
        share = hit_share(curve, capacity / per_token)
        with_pool = rate("dram-pool", share)
        found.append(
            PoolSize(
                capacity_bytes=capacity,
                hit_share=share,
                turns_per_s=with_pool.turns_per_s,
                without=without.turns_per_s,
                dual_path=dual.turns_per_s,
                bottleneck=with_pool.bottleneck.resource,
            )
        )
    return tuple(found)


# ---------------------------------------------------------------- a remote site


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """KV of another site over a WAN link. Sizes in B, times in s, rates in turns/s.

    ``loaded_*``: the prefix crosses the link and then takes the local path; ``recomputed_*``: it is computed here.
    ``share``: of the turns whose prefix is remote. ``break_even``: link bandwidth above which loading gives the earlier
    first token (None: never, the latency alone is longer).
    """

    bandwidth: float
    latency_s: float
    share: float
    prefix_bytes: float
    loaded_ttft_s: float
    recomputed_ttft_s: float
    break_even: float | None
    loaded_turns_per_s: float
    recomputed_turns_per_s: float
    local_turns_per_s: float
    link_turns_per_s: float

    @property
    def pays_in_time(self) -> bool:
        """Whether loading gives the earlier first token."""
        return self.loaded_ttft_s < self.recomputed_ttft_s

    @property
    def pays_in_rate(self) -> bool:
        """Whether loading gives the higher rate."""
        return self.loaded_turns_per_s > self.recomputed_turns_per_s


def remote(scenario: Scenario, *, bandwidth: float, latency: float, share: float = 1.0) -> Remote:
    """Loading the prefixes of ``share`` of the turns over a WAN link, against computing them again."""
    local = evaluate(scenario)
    size, workload = local.demand.amounts.read, scenario.workload
    if not size:
        raise InputError("", "no prefix is read from storage in this mode and workload, so none is remote")
    again = tuple(
        Turn(weight=t.weight * share, context=0.0, append=t.context + t.append, generated=t.generated)
        for t in turn_mix(workload)
    )
    kept = tuple(msgspec.structs.replace(t, weight=t.weight * (1 - share)) for t in turn_mix(workload))
    mixed = msgspec.structs.replace(workload, mix=(*(kept if share < 1 else ()), *again))
    recomputed = evaluate(msgspec.structs.replace(scenario, workload=mixed))
    means = per_turn_means(workload)
    alone = evaluate(_with_turn(scenario, context=0.0, append=means.context + means.append))
    link = link_turn_rate(bandwidth, size, share)
    room = alone.ttft_unloaded_s - local.ttft_unloaded_s - latency
    return Remote(
        bandwidth=bandwidth,
        latency_s=latency,
        share=share,
        prefix_bytes=size,
        loaded_ttft_s=local.ttft_unloaded_s + transfer_time(size, bandwidth, latency),
        recomputed_ttft_s=alone.ttft_unloaded_s,
        break_even=break_even_bandwidth(size, room) if room > 0 else None,
        loaded_turns_per_s=min(local.turns_per_s, link),
        recomputed_turns_per_s=recomputed.turns_per_s,
        local_turns_per_s=local.turns_per_s,
        link_turns_per_s=link,
    )
