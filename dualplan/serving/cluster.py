"""A deployment as the simulation sees it: engines, groups, storage NICs, memory."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from dualplan.errors import InfeasibleError, InputError
from dualplan.messages import Message, message
from dualplan.model import kv
from dualplan.model.demand import SideMemory
from dualplan.model.memory import kv_bytes_left, kv_share_per_gpu, weight_bytes_per_gpu
from dualplan.model.service_times import ServiceTimes
from dualplan.model.sources import service_times
from dualplan.serving.policies import Policies
from dualplan.serving.trajectories import Trajectories
from dualplan.spec.choices import Mode
from dualplan.spec.fitted_sets import fitted, with_measured_storage
from dualplan.spec.hardware import Hardware
from dualplan.spec.parallel import Parallel, default_parallel, hosted
from dualplan.spec.scenario import Scenario


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
    notes: tuple[Message, ...] = ()


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
    notes: list[Message] = []
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
            raise InfeasibleError(message("refusal.buffer", side=name, need=need, buffer=min(side.buffers)))


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
    notes: list[Message],
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
            notes.append(message("simulated.expert_groups", side=name, gpus=fitted_ep))
    memory, room = _room(scenario, parallel, hardware, form, redundant)
    if given is None and model.experts is None:
        usual = parallel.tp
        while room < longest and parallel.tp * 2 <= hardware.gpu.count and gpus % (parallel.tp * 2) == 0:
            parallel = Parallel(tp=parallel.tp * 2, dp=gpus // (parallel.tp * 2))
            memory, room = _room(scenario, parallel, hardware, form, redundant)
        if parallel.tp != usual:
            notes.append(message("simulated.tensor_parallel", side=name, gpus=parallel.tp, context=longest))
    if memory.kv_bytes_per_gpu <= 0:
        sizes = {"weights": memory.weight_bytes_per_gpu, "usable": max(memory.usable_bytes_per_gpu, 0.0)}
        raise InfeasibleError(message("refusal.weights", side=name, parallel=str(parallel), **sizes))
    if room < longest:
        raise InfeasibleError(message("refusal.context", side=name, context=longest, gpus=parallel.tp, room=room))
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
