"""The tables of a run before its first event."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualplan.model.service_times import (
    BASIC_COPIES,
    CHUNK_TOKENS,
    ENGINE_QUEUE,
    READ_QUEUE,
    SHORTEST_PASS,
    Curve,
    ServiceTimes,
)
from dualplan.serving import layout as k
from dualplan.serving.cluster import Cluster
from dualplan.serving.policies import DECODE, PREFILL, READ_SIDE
from dualplan.serving.trajectories import Trajectories, dealt

_READS = {
    "basic": k.Reads.ONE_SIDE,
    "layerwise": k.Reads.ONE_SIDE,
    "dram-pool": k.Reads.ONE_SIDE,
    "dual-path": k.Reads.BOTH_SIDES,
    "split-read": k.Reads.SPLIT,
    "oracle": k.Reads.NOBODY,
}
_STAGINGS = {"host": k.Staging.HOST, "gpudirect": k.Staging.GPUDIRECT, "gds": k.Staging.GDS}
SAMPLES = 512
MOST_DETAILS = 8192
"""Storage NICs, groups and what is counted of nodes, beyond which only their sums are sampled."""


def state(
    laid: Cluster,
    trajectories: Trajectories,
    arrivals: Any,
    *,
    seed: int,
    horizon: float = math.inf,
    replayed: Any = None,
) -> k.State:
    """Tables for one run. ``arrivals``: start times of the agents [s], ascending. ``replayed``: the
    trajectory of each agent; they are dealt at random if None.
    """
    agents, prefill, decode = len(arrivals), laid.prefill, laid.decode
    chosen = dealt(trajectories, agents, seed) if replayed is None else replayed
    turns = trajectories.offsets[chosen], trajectories.offsets[chosen + 1]
    nics = np.repeat(
        (laid.scenario.hardware.snic.count, laid.scenario.decode_hardware.snic.count), (prefill.nodes, decode.nodes)
    )
    details = int(nics.sum()) + prefill.groups + decode.groups + 8 * len(nics)
    rows = {
        "span": agents,
        "mark": agents,
        "turns": len(trajectories.context),
        "group": prefill.groups,
        "pool": decode.groups,
        "engine": prefill.engines,
        "decoder": decode.engines,
        "nic": int(nics.sum()),
        "node": len(nics),
        "moved": 2 * len(nics),
        "event": 2 * agents + 2 * prefill.groups + 64 * decode.groups + 1024,
        "record": int(np.sum(turns[1] - turns[0])),
        "sample": SAMPLES,
    }
    times = laid.times.slowed(laid.mode)
    s = k.State(
        setting=_setting(laid, times),
        attention=_curve(times.attention),
        cache=_curve(times.decode_cache),
        count=np.zeros(1, k.COUNT)[0],
        total=np.zeros(1, k.TOTAL)[0],
        agent=_aligned(agents, k.AGENT),
        detail=np.zeros((SAMPLES, details if details <= MOST_DETAILS else 0)),
        **{name: np.zeros(count, k.TABLES[name]) for name, count in rows.items()},
    )
    s.total["horizon"] = horizon
    s.total["sample_every"] = 1.0 if horizon == math.inf else max(horizon / SAMPLES, 1e-3)
    s.count["prefill_open"], s.count["decode_open"] = (side.open_groups(side.first_nodes) for side in (prefill, decode))
    s.span["arrival"], s.span["admitted"], s.span["done"] = arrivals, math.nan, math.nan
    s.agent["turn"], s.agent["end_turn"] = turns
    for table, links in (
        (s.agent, ("next", "prefill_engine", "decode_engine", "last_chunk", "buffer_side")),
        (s.mark, ("left", "right")),
        (s.group, ("queue", "queue_tail", "pending", "pending_tail")),
        (s.pool, ("root",)),
    ):
        for name in links:
            table[name] = k.NONE
    for name in k.TURN.names or ():
        s.turns[name] = getattr(trajectories, name)
    s.group["next_at"], s.group["activity"] = math.inf, k.IDLE
    s.pool["queued"], s.pool["step"] = math.inf, 1.0
    s.engine["room"], s.decoder["room"] = prefill.room, decode.room
    s.node["size"] = (*prefill.buffers, *decode.buffers)
    s.node["end_nic"] = np.cumsum(nics)
    s.node["first_nic"] = s.node["end_nic"] - nics
    s.nic["rate"] = np.repeat((*prefill.nic_rates, *decode.nic_rates), nics)
    s.nic["time"] = np.repeat((*prefill.nic_times, *decode.nic_times), nics)
    return s


def _setting(laid: Cluster, times: ServiceTimes) -> k.Setting:
    settings, model = laid.scenario.settings, laid.scenario.model
    prefill, decode, store = laid.prefill, laid.decode, laid.scenario.hardware.storage
    numbers = {
        "block": laid.scenario.workload.block,
        "kv_bytes": laid.kv_bytes_per_token,
        "state_bytes": laid.state_bytes,
        "pass_base": times.pass_base,
        "pass_experts": times.pass_experts,
        "pass_idle": max(times.pass_idle, SHORTEST_PASS),
        "per_request": times.per_request,
        "per_token": times.per_token,
        "per_token_hidden": times.per_token_hidden,
        "per_token_link": times.per_token_link,
        "per_context": times.per_context,
        "attention_fixed": times.attention.fixed,
        "quota": times.quota,
        "read_share": (1 - settings.residency) * (1 - (settings.pool_share if laid.mode == "dram-pool" else 0.0)),
        "backend": (store.read_bandwidth if store is not None else None) or 0.0,
        "handover": times.handover,
        "handover_rate": times.handover_rate,
        "decode_base": times.decode_base,
        "decode_slope": times.decode_slope,
        "decode_quadratic": times.decode_quadratic,
        "decode_experts": times.decode_experts,
        "cache_fixed": times.decode_cache.fixed,
        "expert_share": times.expert_share,
        "expert_ranks": times.expert_ranks,
        "alpha": READ_QUEUE,
        "beta": ENGINE_QUEUE,
        "held_share": BASIC_COPIES if laid.mode == "basic" else 1.0 / model.num_layers,
        "step_tokens": laid.tokens_per_step,
        "prefill_room": prefill.room,
        "decode_room": decode.room,
        "chunk_tokens": CHUNK_TOKENS * prefill.parallel.tp,
        "resident": settings.residency,
    }
    whole = {
        "reads": _READS[laid.mode],
        "staging": _STAGINGS[settings.staging],
        "prefill_placement": PREFILL[laid.policies.prefill],
        "decode_placement": DECODE[laid.policies.decode],
        "read_side": READ_SIDE[laid.policies.read_side],
        "clusters": laid.clusters,
        "max_active": laid.max_active,
        "prefill_groups": prefill.groups,
        "prefill_group_size": prefill.group,
        "prefill_per_node": prefill.per_node,
        "prefill_nodes": prefill.nodes,
        "decode_groups": decode.groups,
        "decode_group_size": decode.group,
        "decode_per_node": decode.per_node,
    }
    # Numba compiles for one type of each field
    values: dict[str, Any] = {name: float(value) for name, value in numbers.items()}
    return k.Setting(**values, **{name: int(value) for name, value in whole.items()})


def _curve(curve: Curve) -> k.Floats:
    """Slopes and spans of a curve, a row each."""
    return np.array([curve.slopes, curve.spans], dtype=np.float64)


def _aligned(rows: int, kind: np.dtype[np.void]) -> k.Table:
    """Zeros, rows aligned to lines of the processor's cache as far as their length allows."""
    flat = np.zeros(rows * kind.itemsize + 64, dtype=np.uint8)
    shift = -flat.ctypes.data % 64
    return flat[shift : shift + rows * kind.itemsize].view(kind)
