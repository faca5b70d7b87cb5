"""Published figures as records: what was printed, where, how closely it should be met, and what to compute it from.

:mod:`dualplan.plan.published.points` reads them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dualplan.spec.choices import Mode, Policy
from dualplan.spec.load import Count, CountOrZero, Positive

Steps = Literal["layerwise", "dual-path without scheduler", "dual-path"]


class Goals(msgspec.Struct, frozen=True, kw_only=True):
    """What the errors of a kind should be, as relative errors over all its figures."""

    median: float | None = None
    p90: float | None = None
    worst: float | None = None


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """How figures of a kind are compared: within ``tolerance`` of the published value, or within ``absolute`` of it in
    its own unit; not judged where there is neither. ``why`` gives the reason for either. ``ratio``: errors are those of
    the larger over the smaller of the two, less one, so that half of a figure is as far off as its double.
    """

    title: str
    why: str
    ratio: bool = False
    tolerance: Positive | None = None
    absolute: Positive | None = None
    goals: Goals = Goals()


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a figure is computed from; one record for each way to compute one."""


class RangeBound(Given, frozen=True, kw_only=True):
    """An end of a P/D range of the paper's scenario, or whether it is empty (1), with ``set`` laid over it."""

    which: Literal["paper", "all"]
    bound: Literal["lower", "upper", "empty"]
    set: tuple[str, ...] = ()
    collective_load: float = 0.0


class LinkLoad(Given, frozen=True, kw_only=True):
    """The load of a resource in the worked example, of each NIC or node of its side."""

    resource: str
    each: Literal["nic", "node"]


class KvBytes(Given, frozen=True, kw_only=True):
    """KV-cache bytes per token that grow with the context."""

    model: str
    format: str
    index: bool = True


class ParameterCount(Given, frozen=True, kw_only=True):
    """Parameters of a model."""

    model: str
    of: Literal["total", "active"]


class CacheCompute(Given, frozen=True, kw_only=True):
    """GB of KV-cache for each PFLOP, by the convention of the paper's table."""

    model: str
    context: Count
    append: Count


class Trend(Given, frozen=True, kw_only=True):
    """How far network bytes per FLOP fell since the A100 in bf16."""

    gpu: str
    dtype: str


class LaneShare(Given, frozen=True, kw_only=True):
    """Share of a link that a virtual lane gets under the published setting, or with another low table."""

    lane: CountOrZero
    backlogged: tuple[CountOrZero, ...]
    low: str | None = None


class AllToAll(Given, frozen=True, kw_only=True):
    """Bytes of 128 tokens a second where a call takes so many microseconds; or other nodes that a token reaches."""

    what: Literal["dispatch", "combine", "remote"]
    microseconds: Positive | None = None
    nodes: Count | None = None


class CopyRate(Given, frozen=True, kw_only=True):
    """Bytes a second of one queue that submits a layer block of 64 tokens in so many microseconds."""

    model: str
    microseconds: Positive


class WeightBytes(Given, frozen=True, kw_only=True):
    """Weights of one GPU under expert parallelism."""

    model: str
    ep: Count
    redundant: CountOrZero


class NodeCount(Given, frozen=True, kw_only=True):
    """Nodes for the tokens of a day, at so many tokens a second and node."""

    input_tokens: Positive
    output_tokens: Positive
    input_rate: Positive
    output_rate: Positive


class TrajectoryMean(Given, frozen=True, kw_only=True):
    """A mean over the trajectories that a run of the simulation draws from; or, as ``token_factor``, their prompt
    tokens over those of as many turns of the workload's stated means.
    """

    workload: str
    of: Literal["turns", "append", "generated", "total", "context", "token_factor"]


class Batch(Given, frozen=True, kw_only=True):
    """Throughput of a prefill pass with so many requests, relative to one with a single request."""

    batch: Count


class Deployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes of the paper's kind that run a model and a workload."""

    model: str
    prefill_nodes: Count
    decode_nodes: Count
    workload: str


class Steady(Given, frozen=True, kw_only=True):
    """The steady rate of a deployment under a mode [turns/s]."""

    model: str
    prefill_nodes: Count
    decode_nodes: Count
    workload: str
    mode: Mode


class Capacities(Given, frozen=True, kw_only=True):
    """Capacity of dual-path over that of basic."""

    model: str
    prefill_nodes: Count
    decode_nodes: Count
    workload: str


class WorkingSet(Given, frozen=True, kw_only=True):
    """KV-cache of agents in flight at an arrival rate [agents/s] and a completion time [s]."""

    model: str
    arrival_rate: Positive
    completion_time: Positive
    total_tokens: Positive


class BreakEven(Given, frozen=True, kw_only=True):
    """Bandwidth above which loading a prefix [tokens] is faster than computing it on so many GPUs [B/s]."""

    model: str
    prefix: Positive
    gpus: Count
    flop_per_s: Positive


class AppendScale(Given, frozen=True, kw_only=True):
    """The least or the largest speed-up of dual-path over basic with appends multiplied by each of ``scales``."""

    scales: tuple[Positive, ...]
    which: Literal["least", "most"]


class EqualTimes(Given, frozen=True, kw_only=True):
    """Completion time of one deployment over that of another, each written like ``basic 1P2D``."""

    one: str
    other: str


class TraceFigure(Given, frozen=True, kw_only=True):
    """A figure of a trace file."""

    file: str
    figure: str


class MeasuredRun(Given, frozen=True, kw_only=True):
    """TPOT or TTFT [s] of a measured run on a machine that is not the paper's, by the ``line`` of its table."""

    line: int
    of: Literal["tpot", "ttft"]


class PrefillRate(Given, frozen=True, kw_only=True):
    """A published rate of prompt tokens [1/s], by its name in the table of public points."""

    id: str


class JobTime(Given, frozen=True, kw_only=True):
    """Completion time of agents that start together [s]; ``over`` divides it into that of another mode."""

    deployment: Deployment
    agents: Count
    mode: Mode
    policy: Policy = "shortest-queue"
    over: Mode | None = None


class Growth(Given, frozen=True, kw_only=True):
    """Completion time of a large deployment over that of a small one."""

    small: JobTime
    large: JobTime


class Latency(Given, frozen=True, kw_only=True):
    """A mean latency under arrivals [s], or a part of TTFT as a share of it."""

    deployment: Deployment
    mode: Mode
    arrival_rate: Positive
    of: str


class Capacity(Given, frozen=True, kw_only=True):
    """The highest arrival rate within the SLO [agents/s]."""

    deployment: Deployment
    mode: Mode


class Saving(Given, frozen=True, kw_only=True):
    """Completion time that a step saves against basic, as a share."""

    deployment: Deployment
    agents: Count
    step: Steps


class Balance(Given, frozen=True, kw_only=True):
    """Largest over mean load."""

    deployment: Deployment
    agents: Count
    policy: Policy
    of: Literal["snic", "attention"]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A published figure. ``effort``: turns of the largest simulation that it takes, 0 for the steady model."""

    id: str
    kind: str
    published: float
    unit: str
    source: str
    given: Given
    effort: float = 0.0


GIVEN: dict[str, type[Given]] = {
    "range": RangeBound,
    "traffic": LinkLoad,
    "kv-bytes": KvBytes,
    "hardware-trend": Trend,
    "lanes": LaneShare,
    "collectives": AllToAll,
    "copies": CopyRate,
    "memory": WeightBytes,
    "nodes": NodeCount,
    "trajectories": TrajectoryMean,
    "batch": Batch,
    "steady": Steady,
    "working-set": WorkingSet,
    "break-even": BreakEven,
    "append-scale": AppendScale,
    "capacity-ratio": Capacities,
    "equal-nics": EqualTimes,
    "trace": TraceFigure,
}
"""The record of each kind that published.yaml has points of."""

ABLATION = Deployment(model="deepseek-v3.2", prefill_nodes=2, decode_nodes=4, workload="dualpath-64k")
"""The deployment of the ablation and of the figures of balance, at ABLATION_AGENTS."""

ABLATION_AGENTS = 2048
FEW_AGENTS = 1024
"""Agents of the comparisons of P/D ratios and of append lengths."""
