"""A deployment as the arrays of the kernel: engines, groups, storage NICs, memory."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InfeasibleError, InputError
from dualplan.model import kv
from dualplan.model.demand import SideMemory
from dualplan.model.memory import kv_bytes_left, kv_share_per_gpu, weight_bytes_per_gpu
from dualplan.model.service_times import (
    BASIC_COPIES,
    CHUNK_TOKENS,
    ENGINE_QUEUE,
    READ_QUEUE,
    SHORTEST_PASS,
    Curve,
    ServiceTimes,
)
from dualplan.model.sources import service_times
from dualplan.serving import layout as k
from dualplan.serving.policies import Policies, codes
from dualplan.serving.trajectories import Trajectories, dealt
from dualplan.spec.choices import Mode
from dualplan.spec.fitted_sets import fitted, with_measured_storage
from dualplan.spec.hardware import Hardware
from dualplan.spec.parallel import Parallel, default_parallel, hosted
from dualplan.spec.scenario import Scenario
from dualplan.units import show

_KINDS = {
    "basic": k.ONE_SIDE,
    "layerwise": k.ONE_SIDE,
    "dram-pool": k.ONE_SIDE,
    "dual-path": k.BOTH_SIDES,
    "split-read": k.SPLIT,
    "oracle": k.ORACLE,
}
_STAGINGS = {"host": k.HOST, "gpudirect": k.GPUDIRECT, "gds": k.GDS}
SAMPLES = 512
MOST_DETAILS = 8192
"""Storage NICs, groups and what is counted of nodes, beyond which only their sums are sampled."""


class SideLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Engines of a side: ``engines`` in all, ``group`` of them in step, ``per_node`` on a node, ``room`` KV bytes of
    sequences each can hold.

    A value a node: ``nic_rates`` of one storage NIC as reached [B/s], ``nic_times`` for each read [s], ``buffers`` of
    host memory for KV [B]. ``first_nodes``: nodes of this side at the start, where roles change later.
    """

    parallel: Parallel
    memory: SideMemory
    nodes: int
    engines: int
    group: int
    per_node: int
    room: float
    nic_rates: tuple[float, ...] = ()
    nic_times: tuple[float, ...] = ()
    buffers: tuple[float, ...] = ()
    first_nodes: int = 0

    @property
    def groups(self) -> int:
        """Groups of engines in step."""
        return self.engines // self.group

    def open_groups(self, nodes: int) -> int:
        """Groups of so many nodes."""
        return nodes * self.per_node // self.group


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment under one mode, ready to be run. ``notes``: what was derived and a reader should know."""

    scenario: Scenario
    mode: Mode
    policies: Policies
    times: ServiceTimes
    prefill: SideLayout
    decode: SideLayout
    kv_bytes_per_token: float
    state_bytes: float
    tokens_per_step: float
    clusters: int = 1
    max_active: int = 0
    notes: tuple[str, ...] = ()


def cluster(
    scenario: Scenario,
    trajectories: Trajectories,
    *,
    mode: Mode | None = None,
    policies: Policies | None = None,
    times: ServiceTimes | None = None,
    tokens_per_step: float = 1.0,
    clusters: int = 1,
    max_active: int = 0,
    most_nodes: tuple[int, int] | None = None,
) -> Cluster:
    """Lay a scenario out. ``times`` replaces the fitted set or the roofline; ``tokens_per_step``: with speculative
    decoding more than 1. ``clusters``: equal clusters that the nodes are split into, agents dealt to them in turn.
    ``max_active``: agents that may have started and not ended, 0 for any number. ``most_nodes``: nodes of each side
    in the largest of several splits, where nodes change roles.

    Raises InputError for what is missing or not simulated, InfeasibleError where weights, or the longest context of
    the trajectories, do not fit the HBM or the host buffers.
    """
    settings = scenario.settings
    mode = mode or settings.mode
    if scenario.mix:
        raise InputError("mix", "several models or workloads are not simulated", "feasible counts with them")
    form = kv.check_format(settings.kv_format or scenario.model.kv_format, scenario.model, "kv_format")
    per_token = kv.kv_total_bytes_per_token(scenario.model, form)
    state = kv.state_bytes_per_sequence(scenario.model, form)
    notes: list[str] = []
    longest = trajectories.longest * per_token + state
    found = fitted(scenario) if times is None else None
    scenario = with_measured_storage(scenario, found)
    redundant = times.redundant_experts if times else found.chosen.redundant_experts if found else 0
    expert_groups = {"prefill": found.chosen.prefill_ep, "decode": found.chosen.decode_ep} if found else {}
    sides = [
        _side(scenario, name, hardware, given, count, form, longest, redundant, expert_groups.get(name), notes)
        for (name, hardware), given, count in zip(
            scenario.sides,
            (scenario.prefill_parallel, scenario.decode_parallel),
            (_part(settings.prefill_nodes, clusters), _part(settings.decode_nodes, clusters)),
            strict=True,
        )
    ]
    given, times = times, times or service_times(scenario, sides[0].parallel, sides[1].parallel, found)
    both = times.both_sides if mode in ("dual-path", "split-read") else 1.0
    most = most_nodes or (sides[0].nodes * clusters, sides[1].nodes * clusters)
    sides = [
        _with_nodes(scenario, name, hardware, layout, given, both, count)
        for (name, hardware), layout, count in zip(scenario.sides, sides, most, strict=True)
    ]
    _check_buffers(scenario, mode, trajectories, per_token, state, sides)
    return Cluster(
        scenario=scenario,
        mode=mode,
        policies=policies or Policies(),
        times=times,
        prefill=sides[0],
        decode=sides[1],
        kv_bytes_per_token=per_token,
        state_bytes=state,
        tokens_per_step=tokens_per_step,
        clusters=clusters,
        max_active=max_active,
        notes=tuple(notes),
    )


def _part(nodes: int | None, clusters: int) -> int | None:
    """Nodes of a side in each of equal clusters."""
    if nodes is not None and nodes % clusters:
        what = f"{nodes} {'node' if nodes == 1 else 'nodes'} of a side cannot be split into {clusters} equal clusters"
        raise InputError("--clusters", what)
    return None if nodes is None else nodes // clusters


def _with_nodes(
    scenario: Scenario,
    name: str,
    hardware: Hardware,
    layout: SideLayout,
    given: ServiceTimes | None,
    both: float,
    nodes: int,
) -> SideLayout:
    """A side with so many nodes instead, and what belongs to each node. Nodes that differ come first. ``given``: times
    that replace those of the scenario.
    """
    each = [hardware] * nodes
    first = 0
    for variant in scenario.variants:
        if variant.side != name:
            continue
        other = variant.hardware
        same = (other.gpu, other.efficiency, other.snic.count) == (
            hardware.gpu,
            hardware.efficiency,
            hardware.snic.count,
        )
        if not same:
            what = "nodes of a side with other GPUs or another number of storage NICs are not simulated"
            raise InputError("variants", what, "their rates may differ; feasible counts with all variants")
        if first + variant.nodes > nodes:
            raise InputError("variants", f"are more than the {nodes} nodes of the {name} side")
        each[first : first + variant.nodes] = [other] * variant.nodes
        first += variant.nodes
    rates = [h.snic.rate * (h.snic.efficiency if given is None else given.snic_efficiency) * both for h in each]
    reads = [h.snic.time_per_read if given is None else given.time_per_read for h in each]
    return msgspec.structs.replace(
        layout,
        nodes=nodes,
        engines=layout.engines * nodes // layout.nodes,
        first_nodes=layout.nodes,
        nic_rates=tuple(rates),
        nic_times=tuple(reads),
        buffers=tuple(math.inf if h.dram.kv_buffer is None else h.dram.kv_buffer for h in each),
    )


def _check_buffers(
    scenario: Scenario, mode: Mode, turns: Trajectories, per_token: float, state: float, sides: list[SideLayout]
) -> None:
    """Raise InfeasibleError where a turn can never get its host buffer."""
    staging = scenario.settings.staging
    if mode == "oracle" or staging == "gds":
        return
    hits = kv.hit_tokens(turns.context, scenario.workload.block)
    loaded = float((hits * per_token + np.where(hits > 0, state, 0.0)).max())
    before = float(((turns.context + turns.append) * per_token).max()) + state
    needs = {"prefill": loaded, "decode": before if staging == "host" else loaded}
    if staging != "host" and mode not in ("dual-path", "split-read"):
        needs["decode"] = 0.0
    for (name, need), side in zip(needs.items(), sides, strict=True):
        if need > min(side.buffers):
            raise InfeasibleError(
                f"The longest context does not fit the host buffer of a {name} node: {show(need, 'B')}, "
                f"dram.kv_buffer is {show(min(side.buffers), 'B')}."
            )


def _side(
    scenario: Scenario,
    name: str,
    hardware: Hardware,
    given: Parallel | None,
    nodes: int | None,
    form: str,
    longest: float,
    redundant: int,
    fitted_ep: int | None,
    notes: list[str],
) -> SideLayout:
    if nodes is None:
        raise InputError(f"{name}_nodes", "missing", f"give --{name}")
    model, gpus = scenario.model, nodes * hardware.gpu.count
    usable = hardware.gpu.hbm_capacity * hardware.efficiency.memory - hardware.efficiency.reserve
    if given is not None:
        parallel = hosted(given, model, gpus, hardware.gpu.count, where=f"{name}.parallel")
        if hardware.gpu.count % given.tp:
            what = f"engines of tp={given.tp} that lie across nodes of {hardware.gpu.count} GPUs are not simulated"
            raise InputError(f"{name}.parallel", what, "give a tp that divides the GPUs of a node")
    else:
        parallel = default_parallel(model, gpus, hardware.gpu.count, usable, name)
        if fitted_ep is not None and fitted_ep < parallel.ep:
            parallel = Parallel(ep=fitted_ep, tp=1, dp=parallel.dp)
            notes.append(f"{name}: expert-parallel groups of {fitted_ep} GPUs, as in the deployment that was fitted")
    memory, room = _room(scenario, parallel, hardware, form, redundant)
    if given is None and model.experts is None:
        usual = parallel.tp
        while room < longest and parallel.tp * 2 <= hardware.gpu.count and gpus % (parallel.tp * 2) == 0:
            parallel = Parallel(tp=parallel.tp * 2, dp=gpus // (parallel.tp * 2))
            memory, room = _room(scenario, parallel, hardware, form, redundant)
        if parallel.tp != usual:
            notes.append(
                f"{name}: {parallel.tp} GPUs in tensor parallel, the fewest that hold the weights and the longest "
                f"context ({show(longest, 'B')})"
            )
    if memory.kv_bytes_per_gpu <= 0:
        raise InfeasibleError(
            f"Weights do not fit on the {name} side: {show(memory.weight_bytes_per_gpu, 'B')} a GPU under "
            f"{parallel}, {show(max(memory.usable_bytes_per_gpu, 0.0), 'B')} are usable."
        )
    if room < longest:
        raise InfeasibleError(
            f"The longest context does not fit on the {name} side: {show(longest, 'B', 4)}, an engine of "
            f"{parallel.tp} {'GPU' if parallel.tp == 1 else 'GPUs'} has {show(room, 'B', 4)} beside the weights."
        )
    engines = gpus // parallel.tp
    group = 1
    if model.experts is not None and parallel.ep > 1:
        groups = max(round(gpus / parallel.ep), 1)
        while engines % groups:
            groups -= 1
        group = engines // groups
    elif name == "decode":
        group = hardware.gpu.count // parallel.tp  # engines of a node step alike; one clock for all of them
    return SideLayout(
        parallel=parallel,
        memory=memory,
        nodes=nodes,
        engines=engines,
        group=max(group, 1),
        per_node=max(hardware.gpu.count // parallel.tp, 1),
        room=room,
    )


def _room(
    scenario: Scenario, parallel: Parallel, hardware: Hardware, form: str, redundant: int
) -> tuple[SideMemory, float]:
    """Memory of a GPU with so many redundant experts, and KV bytes of sequences that an engine can hold."""
    efficiency, model = hardware.efficiency, scenario.model
    weights = weight_bytes_per_gpu(model, parallel, redundant_experts=redundant)
    left = kv_bytes_left(hardware.gpu.hbm_capacity, weights, share=efficiency.memory, reserve=efficiency.reserve)
    usable = hardware.gpu.hbm_capacity * efficiency.memory - efficiency.reserve
    memory = SideMemory(usable_bytes_per_gpu=usable, weight_bytes_per_gpu=weights, kv_bytes_per_gpu=left)
    return memory, left / kv_share_per_gpu(model, parallel, form)


def state(
    laid: Cluster,
    trajectories: Trajectories,
    arrivals: Any,
    *,
    seed: int,
    horizon: float = math.inf,
    replayed: Any = None,
) -> k.State:
    """Arrays for one run. ``arrivals``: start times of the agents [s], ascending. ``replayed``: the
    trajectory of each agent; they are dealt at random if None.
    """
    agents, times = len(arrivals), laid.times.slowed(laid.mode)
    prefill, decode = laid.prefill, laid.decode
    chosen = dealt(trajectories, agents, seed) if replayed is None else replayed
    number, choice = np.zeros(k.N_NUMBERS), np.zeros(k.N_CHOICES, dtype=np.int64)
    hardware, other = laid.scenario.hardware, laid.scenario.decode_hardware
    store = hardware.storage.read_bandwidth if hardware.storage is not None else None
    number[k.BLOCK] = laid.scenario.workload.block
    number[k.KV_BYTES], number[k.STATE_BYTES] = laid.kv_bytes_per_token, laid.state_bytes
    number[k.PASS_BASE], number[k.PASS_IDLE] = times.pass_base, max(times.pass_idle, SHORTEST_PASS)
    number[k.PER_REQUEST], number[k.PER_TOKEN] = times.per_request, times.per_token
    number[k.PER_TOKEN_HIDDEN], number[k.PER_TOKEN_LINK] = times.per_token_hidden, times.per_token_link
    number[k.PER_CONTEXT], number[k.ATTENTION_FIXED] = times.per_context, times.attention.fixed
    number[k.PASS_EXPERTS], number[k.DECODE_EXPERTS] = times.pass_experts, times.decode_experts
    number[k.EXPERT_SHARE], number[k.EXPERT_RANKS] = times.expert_share, times.expert_ranks
    number[k.QUOTA] = times.quota
    settings = laid.scenario.settings
    number[k.RESIDENT] = settings.residency
    number[k.READ_SHARE] = (1 - settings.residency) * (1 - (settings.pool_share if laid.mode == "dram-pool" else 0.0))
    number[k.BACKEND] = store or 0.0
    number[k.DECODE_BASE], number[k.DECODE_SLOPE] = times.decode_base, times.decode_slope
    number[k.DECODE_QUADRATIC], number[k.CACHE_FIXED] = times.decode_quadratic, times.decode_cache.fixed
    number[k.HANDOVER], number[k.HANDOVER_RATE] = times.handover, times.handover_rate
    number[k.ALPHA], number[k.BETA] = READ_QUEUE, ENGINE_QUEUE
    number[k.HELD_SHARE] = BASIC_COPIES if laid.mode == "basic" else 1.0 / laid.scenario.model.num_layers
    number[k.PREFILL_ROOM], number[k.DECODE_ROOM] = prefill.room, decode.room
    number[k.CHUNK_TOKENS] = CHUNK_TOKENS * prefill.parallel.tp
    number[k.HORIZON], number[k.STEP_TOKENS] = horizon, laid.tokens_per_step
    policy = codes(laid.policies)
    choice[k.MODE], choice[k.STAGING] = _KINDS[laid.mode], _STAGINGS[settings.staging]
    choice[k.CLUSTERS], choice[k.MAX_ACTIVE] = laid.clusters, laid.max_active
    choice[k.PREFILL_POLICY], choice[k.DECODE_POLICY], choice[k.READ_POLICY] = policy
    if laid.mode == "dual-path" and laid.policies.read_side == "prefill-only":
        choice[k.MODE] = k.ONE_SIDE
    p_groups, d_groups = prefill.groups, decode.groups
    choice[k.PREFILL_GROUPS], choice[k.PREFILL_GROUP_SIZE] = p_groups, prefill.group
    choice[k.DECODE_GROUPS], choice[k.DECODE_GROUP_SIZE] = d_groups, decode.group
    choice[k.PREFILL_OPEN], choice[k.DECODE_OPEN] = (side.open_groups(side.first_nodes) for side in (prefill, decode))
    choice[k.PREFILL_PER_NODE], choice[k.DECODE_PER_NODE] = prefill.per_node, decode.per_node
    choice[k.PREFILL_NICS], choice[k.DECODE_NICS] = hardware.snic.count, other.snic.count
    total = np.zeros(k.N_TOTALS)
    total[k.SAMPLE_EVERY] = 1.0 if horizon == math.inf else max(horizon / SAMPLES, 1e-3)
    agent, agent_index = _rows(agents, k.N_AGENT_FLOATS), np.full((agents, k.N_AGENT_INTS), k.NONE, dtype=np.int32)
    agent_index[:, k.STORED] = 0
    agent_index[:, k.TURN], agent_index[:, k.END_TURN] = trajectories.offsets[chosen], trajectories.offsets[chosen + 1]
    group, pool = np.zeros((p_groups, 6)), np.zeros((d_groups, 7))
    group[:, k.NEXT_AT] = math.inf
    group_index = np.full((p_groups, 7), k.NONE, dtype=np.int64)
    group_index[:, k.ACTIVE], group_index[:, k.POLLS], group_index[:, k.WANTS_ROOM] = k.IDLE, 0, 0
    pool[:, k.QUEUED], pool[:, k.STEP] = math.inf, 1.0
    pool_index = np.zeros((d_groups, 2), dtype=np.int64)
    pool_index[:, k.ROOT] = k.NONE
    engine, decoder = np.zeros((prefill.engines, 5)), np.zeros((decode.engines, 3))
    engine[:, k.P_ROOM], decoder[:, k.D_ROOM] = prefill.room, decode.room
    turns = np.ascontiguousarray(
        np.stack([trajectories.context, trajectories.append, trajectories.generated, trajectories.think], axis=1),
        dtype=np.float64,
    )
    size = int(np.sum(agent_index[:, k.END_TURN] - agent_index[:, k.TURN]))
    heap = 2 * agents + 2 * p_groups + 64 * d_groups + 1024
    nics = [_nics(side, kind.snic.count) for side, kind in ((prefill, hardware), (decode, other))]
    details = len(nics[0]) + len(nics[1]) + p_groups + d_groups + 8 * (prefill.nodes + decode.nodes)
    return k.State(
        number=number,
        choice=choice,
        counter=np.zeros(k.N_COUNTS, dtype=np.int64),
        total=total,
        arrival=np.ascontiguousarray(arrivals, dtype=np.float64),
        admitted=np.full(agents, math.nan),
        done_at=np.full(agents, math.nan),
        agent=agent,
        agent_index=agent_index,
        mark=np.zeros(agents),
        child=np.full((agents, 2), k.NONE, dtype=np.int32),
        turns=turns,
        attention=_curve(times.attention),
        cache=_curve(times.decode_cache),
        group=group,
        group_index=group_index,
        pool=pool,
        pool_index=pool_index,
        engine=engine,
        decoder=decoder,
        prefill_nic=nics[0],
        decode_nic=nics[1],
        prefill_queue=np.zeros(prefill.nodes),
        prefill_buffer=_buffers(prefill),
        decode_buffer=_buffers(decode),
        prefill_moved=np.zeros((prefill.nodes, 8)),
        decode_moved=np.zeros((decode.nodes, 8)),
        heap_time=np.zeros(heap),
        heap_item=np.zeros(heap, dtype=np.int64),
        record=np.zeros((size, 6), dtype=np.float32),
        record_time=np.zeros(size),
        record_turn=np.zeros(size, dtype=np.int64),
        sample=np.zeros((SAMPLES, k.N_SAMPLE_COLUMNS)),
        detail=np.zeros((SAMPLES, details if details <= MOST_DETAILS else 0)),
    )


def _curve(curve: Curve) -> npt.NDArray[np.float64]:
    """Slopes and spans of a curve, a row each."""
    return np.array([curve.slopes, curve.spans], dtype=np.float64)


def _rows(count: int, columns: int) -> npt.NDArray[np.float64]:
    """Zeros, rows aligned to lines of the processor's cache as far as their length allows."""
    flat = np.zeros(count * columns + 8)
    shift = (-flat.ctypes.data // 8) % 8
    return flat[shift : shift + count * columns].reshape(count, columns)


def _nics(side: SideLayout, per_node: int) -> npt.NDArray[np.float64]:
    table = np.zeros((side.nodes * per_node, 4))
    table[:, k.NIC_RATE], table[:, k.NIC_TIME] = (
        np.repeat(side.nic_rates, per_node),
        np.repeat(side.nic_times, per_node),
    )
    return table


def _buffers(side: SideLayout) -> npt.NDArray[np.float64]:
    table = np.zeros((side.nodes, 3))
    table[:, k.BUFFER_SIZE] = side.buffers
    return table
