"""A deployment as the arrays of the kernel: engines, groups, storage NICs, memory."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from dualplan.errors import InfeasibleError, InputError
from dualplan.model import kv
from dualplan.model.demand import SideMemory
from dualplan.model.memory import kv_bytes_left, kv_share_per_gpu, weight_bytes_per_gpu
from dualplan.schedule.registry import Policies, codes
from dualplan.serving import kernel as k
from dualplan.serving.times import (
    CHUNK_TOKENS,
    ENGINE_QUEUE,
    READ_QUEUE,
    SHORTEST_PASS,
    ParameterSet,
    Times,
    find_set,
    from_roofline,
    from_set,
)
from dualplan.serving.trajectories import Trajectories, dealt
from dualplan.spec.choices import Mode
from dualplan.spec.hardware import Hardware
from dualplan.spec.parallel import Parallel, default_parallel, hosted
from dualplan.spec.scenario import Scenario

_KINDS = {
    "basic": k.ONE_SIDE,
    "layerwise": k.ONE_SIDE,
    "dual-path": k.BOTH_SIDES,
    "split-read": k.SPLIT,
    "oracle": k.ORACLE,
}
SAMPLES = 512

BASIC_COPIES = 2.0
"""Mode ``basic`` keeps a batch's whole KV in HBM: half of the room for the batch that is read, half for the one that
is computed. An assumption; it reproduces the published basic runs of DeepSeek-V3.2, which HBM binds."""


class SideLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Engines of a side: ``engines`` in all, ``group`` of them in step, ``per_node`` on a node, ``room`` KV bytes of
    sequences each can hold.
    """

    parallel: Parallel
    memory: SideMemory
    nodes: int
    engines: int
    group: int
    per_node: int
    room: float


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment under one mode, ready to be run. ``notes``: what was derived and a reader should know."""

    scenario: Scenario
    mode: Mode
    policies: Policies
    times: Times
    prefill: SideLayout
    decode: SideLayout
    kv_bytes_per_token: float
    state_bytes: float
    prefill_nic_rate: float
    decode_nic_rate: float
    tokens_per_step: float
    notes: tuple[str, ...]


def cluster(
    scenario: Scenario,
    trajectories: Trajectories,
    *,
    mode: Mode | None = None,
    policies: Policies | None = None,
    times: Times | None = None,
    tokens_per_step: float = 1.0,
) -> Cluster:
    """Lay a scenario out. ``times`` replaces the fitted set or the roofline; ``tokens_per_step``: with speculative
    decoding more than 1.

    Raises InputError for what is missing or not simulated, InfeasibleError where weights or the longest context of
    the trajectories do not fit.
    """
    settings = scenario.settings
    mode = mode or settings.mode
    if mode not in _KINDS:
        raise InputError("mode", f"{mode} is not simulated", "simulated: " + ", ".join(_KINDS))
    if scenario.variants:
        raise InputError("variants", "nodes of a side that differ are not simulated", "feasible counts with them")
    if settings.staging != "host":
        raise InputError("staging", f"{settings.staging} is not simulated", "only host; feasible counts with all")
    form = kv.check_format(settings.kv_format or scenario.model.kv_format, scenario.model, "kv_format")
    per_token = kv.kv_total_bytes_per_token(scenario.model, form)
    state = kv.state_bytes_per_sequence(scenario.model, form)
    notes: list[str] = []
    longest = trajectories.longest * per_token + state
    found = _parameter_set(scenario) if times is None else None
    redundant = times.redundant_experts if times else found.redundant_experts if found else 0
    fitted = {"prefill": found.prefill_ep, "decode": found.decode_ep} if found else {}
    sides = [
        _side(scenario, name, hardware, given, count, form, longest, redundant, fitted.get(name), notes)
        for (name, hardware), given, count in zip(
            scenario.sides,
            (scenario.prefill_parallel, scenario.decode_parallel),
            (settings.prefill_nodes, settings.decode_nodes),
            strict=True,
        )
    ]
    if times is None and found is not None:
        times = from_set(found, scenario.model.num_layers)
    times = times or from_roofline(scenario, sides[0].parallel, sides[1].parallel)
    both = times.both_sides if mode in ("dual-path", "split-read") else 1.0
    return Cluster(
        scenario=scenario,
        mode=mode,
        policies=policies or Policies(),
        times=times,
        prefill=sides[0],
        decode=sides[1],
        kv_bytes_per_token=per_token,
        state_bytes=state,
        prefill_nic_rate=scenario.hardware.snic.rate * times.snic_efficiency * both,
        decode_nic_rate=scenario.decode_hardware.snic.rate * times.snic_efficiency * both,
        tokens_per_step=tokens_per_step,
        notes=tuple(notes),
    )


def _parameter_set(scenario: Scenario) -> ParameterSet | None:
    """The fitted set of the scenario's model and hardware; None where the sides differ or there is none."""
    if scenario.hardware.name != scenario.decode_hardware.name:
        return None
    return find_set(_model_key(scenario), scenario.hardware.name)


def _model_key(scenario: Scenario) -> str:
    """The shipped name of a model, as parameter sets have it."""
    return scenario.model.name.lower().replace(" ", "-")


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
                f"context ({longest / 1e9:.1f} GB)"
            )
    if memory.kv_bytes_per_gpu <= 0:
        raise InfeasibleError(
            f"Weights do not fit on the {name} side: {memory.weight_bytes_per_gpu / 1e9:.1f} GB a GPU under "
            f"{parallel}, {memory.usable_bytes_per_gpu / 1e9:.1f} GB are usable."
        )
    if room < longest:
        raise InfeasibleError(
            f"The longest context does not fit on the {name} side: {longest / 1e9:.2f} GB, an engine of "
            f"{parallel.tp} GPU has {room / 1e9:.2f} GB beside the weights."
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
    agents, times = len(arrivals), laid.times
    prefill, decode = laid.prefill, laid.decode
    chosen = dealt(trajectories, agents, seed) if replayed is None else replayed
    number, choice = np.zeros(k.N_NUMBERS), np.zeros(k.N_CHOICES, dtype=np.int64)
    hardware, other = laid.scenario.hardware, laid.scenario.decode_hardware
    slowdown = 1 + (times.decode_read_slowdown if laid.mode in ("dual-path", "split-read") else 0.0)
    store = hardware.storage.read_bandwidth if hardware.storage is not None else None
    number[k.BLOCK] = laid.scenario.workload.block
    number[k.KV_BYTES], number[k.STATE_BYTES] = laid.kv_bytes_per_token, laid.state_bytes
    number[k.PASS_BASE], number[k.PASS_IDLE] = times.pass_base, max(times.pass_base, times.pass_floor, SHORTEST_PASS)
    number[k.PER_REQUEST], number[k.PER_TOKEN] = times.per_request, times.per_token
    number[k.PER_CONTEXT], number[k.PER_TOKEN_CONTEXT] = times.per_context, times.per_token_context
    number[k.QUOTA] = times.quota
    number[k.PREFILL_NIC], number[k.DECODE_NIC] = laid.prefill_nic_rate, laid.decode_nic_rate
    number[k.TIME_PER_READ], number[k.BACKEND] = times.time_per_read, store or 0.0
    number[k.DECODE_BASE], number[k.DECODE_SLOPE] = times.decode_base * slowdown, times.decode_slope * slowdown
    number[k.DECODE_QUADRATIC] = times.decode_quadratic * slowdown
    number[k.HANDOVER], number[k.HANDOVER_RATE] = times.handover, times.handover_rate
    number[k.ALPHA], number[k.BETA] = READ_QUEUE, ENGINE_QUEUE
    number[k.HELD_SHARE] = BASIC_COPIES if laid.mode == "basic" else 1.0 / laid.scenario.model.num_layers
    number[k.PREFILL_ROOM], number[k.CHUNK_TOKENS] = prefill.room, CHUNK_TOKENS * prefill.parallel.tp
    number[k.HORIZON], number[k.STEP_TOKENS] = horizon, laid.tokens_per_step
    policy = codes(laid.policies)
    choice[k.MODE] = _KINDS[laid.mode]
    choice[k.PREFILL_POLICY], choice[k.DECODE_POLICY], choice[k.READ_POLICY] = policy
    if laid.mode == "dual-path" and laid.policies.read_side == "prefill-only":
        choice[k.MODE] = k.ONE_SIDE
    p_groups, d_groups = prefill.engines // prefill.group, decode.engines // decode.group
    choice[k.PREFILL_GROUPS], choice[k.PREFILL_GROUP_SIZE] = p_groups, prefill.group
    choice[k.DECODE_GROUPS], choice[k.DECODE_GROUP_SIZE] = d_groups, decode.group
    choice[k.PREFILL_PER_NODE], choice[k.DECODE_PER_NODE] = prefill.per_node, decode.per_node
    choice[k.PREFILL_NICS], choice[k.DECODE_NICS] = hardware.snic.count, other.snic.count
    total = np.zeros(k.N_TOTALS)
    total[k.SAMPLE_EVERY] = 1.0 if horizon == math.inf else max(horizon / SAMPLES, 1e-3)
    agent, agent_index = np.zeros((agents, 13)), np.full((agents, 9), k.NONE, dtype=np.int64)
    agent_index[:, k.TURN], agent_index[:, k.END_TURN] = trajectories.offsets[chosen], trajectories.offsets[chosen + 1]
    agent[:, k.DONE_AT] = math.nan
    group, pool = np.zeros((p_groups, 2)), np.zeros((d_groups, 6))
    group_index = np.full((p_groups, 5), k.NONE, dtype=np.int64)
    group_index[:, k.ACTIVE] = 0
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
    p_nics, d_nics = prefill.nodes * hardware.snic.count, decode.nodes * other.snic.count
    heap = 2 * agents + p_groups + 64 * d_groups + 1024
    return k.State(
        number=number,
        choice=choice,
        counter=np.zeros(k.N_COUNTS, dtype=np.int64),
        total=total,
        arrival=np.ascontiguousarray(arrivals, dtype=np.float64),
        agent=agent,
        agent_index=agent_index,
        turns=turns,
        group=group,
        group_index=group_index,
        pool=pool,
        pool_index=pool_index,
        engine=engine,
        decoder=decoder,
        prefill_nic=np.zeros(p_nics),
        decode_nic=np.zeros(d_nics),
        prefill_nic_busy=np.zeros(p_nics),
        decode_nic_busy=np.zeros(d_nics),
        prefill_queue=np.zeros(prefill.nodes),
        prefill_buffer=np.zeros((prefill.nodes, 2)),
        decode_buffer=np.zeros((decode.nodes, 2)),
        heap_time=np.zeros(heap),
        heap_item=np.zeros(heap, dtype=np.int64),
        record=np.zeros((size, 6), dtype=np.float32),
        record_time=np.zeros(size),
        record_turn=np.zeros(size, dtype=np.int64),
        sample=np.zeros((SAMPLES, 7)),
    )
