"""Published figures as records: what was printed, where, how closely it should be met, and what to compute it from.

The figures are in ``dualplan/data``: ``published.yaml`` holds kinds and most points, ``calibration-published.yaml`` the
runs that the simulation is compared with, ``cache_compute_ratio.json`` the paper's table; parameter counts are in the
model files and figures of traces in the workload files. This module makes one list of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

from dualplan.plan.ratio import published_table
from dualplan.spec.choices import Mode, Policy
from dualplan.spec.load import Count, CountOrZero, Node, Positive, decode, read_yaml

Steps = Literal["layerwise", "dual-path without scheduler", "dual-path"]


class Goals(msgspec.Struct, frozen=True, kw_only=True):
    """What the errors of a kind should be, as relative errors over all its figures."""

    median: float | None = None
    p90: float | None = None
    worst: float | None = None


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """How figures of a kind are compared: within ``tolerance`` of the published value, or within ``absolute`` of it in
    its own unit; not judged where there is neither. ``why`` gives the reason for either.
    """

    title: str
    why: str
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

NEAR_CAPACITY = 0.8
"""Share of the published capacity above which latencies are a kind of their own."""

ONLINE_SECONDS = 3000.0
SEARCH_RUNS = 10
"""Runs of a search for a capacity, about."""


class _Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    published: str
    source: str
    unit: str = "1"


class _TraceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    workload: str
    file: str
    figures: tuple[str, ...]


class _Heads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sources: dict[str, str]
    kinds: dict[str, Kind]
    traces: tuple[_TraceFile, ...]
    sections: dict[str, str]


class _Offline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str
    prefill_nodes: Count
    decode_nodes: Count
    workload: str
    agents: Count
    jct_s: dict[str, Positive]


class _Online(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str
    prefill_nodes: Count
    decode_nodes: Count
    workload: str
    mode: Mode
    arrival_rate: Positive
    ttft_s: Positive
    tpot_s: Positive | None = None
    ttst_s: Positive | None = None


class _Capacity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str
    prefill_nodes: Count
    decode_nodes: Count
    workload: str
    mode: Mode
    agents_per_s: Positive


class _Shares(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str
    prefill_nodes: Count
    decode_nodes: Count
    workload: str
    mode: Mode
    arrival_rate: Positive
    shares: dict[str, Positive]


class _Runs(msgspec.Struct, frozen=True, kw_only=True):
    offline: tuple[_Offline, ...]
    online: tuple[_Online, ...]
    capacity: tuple[_Capacity, ...]
    ttft_shares: tuple[_Shares, ...]
    ablation: dict[str, Positive]
    balance: dict[str, Positive]


def kinds() -> dict[str, Kind]:
    """All kinds, in the order in which they are shown."""
    return _heads(_data("published.yaml")).kinds


def points() -> list[Point]:
    """All published figures, by kind in the order of ``kinds``."""
    tree = _data("published.yaml")
    file = _heads(tree)
    sections = {name: _cited(text, file.sources) for name, text in file.sections.items()}
    runs = decode(_data("calibration-published.yaml"), _Runs)
    found = [
        *_listed(tree.items()["points"], file.sources),
        *_table(sections["ratio"]),
        *_parameters(sections["parameters"]),
        *_traces(file.traces),
        *_offline(runs, sections["offline"]),
        *_online(runs, sections["online"]),
        *_capacities(runs, sections["capacity"]),
        *_shares(runs, sections["ttft_shares"]),
        *_ablation(runs, sections["ablation"]),
        *_balance(runs, sections["balance"]),
    ]
    order = list(file.kinds)
    return sorted(found, key=lambda point: order.index(point.kind))


def _heads(tree: Node) -> _Heads:
    """All of published.yaml but its points."""
    return decode(Node({k: v for k, v in tree.items().items() if k != "points"}, tree.place), _Heads)


def _data(name: str) -> Node:
    return read_yaml(Path(str(files("dualplan.data") / name)))


def _cited(text: str, sources: dict[str, str]) -> str:
    """A source with its short name written out: ``paper, section 4``."""
    name, mark, rest = text, "", ""
    for separator in (",", ":"):
        if separator in text and text.index(separator) < len(name):
            name, mark, rest = text[: text.index(separator)], separator, text[text.index(separator) + 1 :]
    return f"{sources.get(name, name)}{mark}{rest}"


def _listed(tree: Node, sources: dict[str, str]) -> Iterator[Point]:
    """The points that published.yaml lists."""
    for kind, entries in tree.items().items():
        for node in entries.value if isinstance(entries.value, list) else ():
            given = node.items().get("given", Node({}, node.place))
            text = decode(Node({k: v for k, v in node.items().items() if k != "given"}, node.place), _Text)
            record = decode(given, GIVEN[kind], f"points.{kind}.{text.id}")
            yield Point(
                id=text.id,
                kind=kind,
                published=float(Fraction(text.published)),
                unit=text.unit,
                source=_cited(text.source, sources),
                given=record,
                effort=_effort_of(record),
            )


def _effort_of(given: Given) -> float:
    if isinstance(given, Capacities):
        return _turns(given.workload) * ONLINE_SECONDS * 0.25 * given.prefill_nodes * SEARCH_RUNS
    return FEW_AGENTS * _turns("dualpath-64k") if isinstance(given, EqualTimes | AppendScale) else 0.0


def _table(source: str) -> Iterator[Point]:
    from dualplan.spec.model import load_model

    table = published_table()
    for row in table["rows"]:
        latent = load_model(row["model"]).is_latent
        yield Point(
            id=f"ratio-{row['model']}-{row['context']}",
            kind="ratio-mla" if latent else "ratio",
            published=float(row["gb_per_pflop"]),
            unit="GB/PFLOP",
            source=source,
            given=CacheCompute(model=row["model"], context=row["context"], append=table["append"]),
        )


def _parameters(source: str) -> Iterator[Point]:
    from dualplan.spec.model import load_model, shipped_models

    for name in shipped_models():
        printed = load_model(name).published
        for of, value in (("total", printed.total), ("active", printed.active)):
            if value is not None:
                given = ParameterCount(model=name, of=of)  # type: ignore[arg-type]
                identity = f"parameters-{name}-{of}"
                yield Point(
                    id=identity, kind="parameters", published=value, unit="parameters", source=source, given=given
                )


def _traces(traces: tuple[_TraceFile, ...]) -> Iterator[Point]:
    from dualplan.spec.workload import load_workload

    for entry in traces:
        workload = load_workload(entry.workload)
        for figure in workload.published:
            if figure.name in entry.figures:
                yield Point(
                    id=f"{entry.workload}-{figure.name.replace('_', '-')}",
                    kind="trace",
                    published=figure.value,
                    unit=_unit_of_figure(figure.name),
                    source=_trace_source(workload.sources, figure.source),
                    given=TraceFigure(file=entry.file, figure=figure.name),
                )


def _unit_of_figure(name: str) -> str:
    return "requests" if name == "requests" else "1" if name.startswith("hit_rate") else "tokens"


def _trace_source(sources: tuple[str, ...], name: str) -> str:
    return next((line.partition(": ")[2] for line in sources if line.startswith(f"{name}: ")), name)


def _turns(workload: str) -> float:
    from dualplan.spec.workload import load_workload, mean_turns

    return mean_turns(load_workload(workload))


def _deployment(entry: Any) -> Deployment:
    return Deployment(**{name: getattr(entry, name) for name in Deployment.__struct_fields__})


def label(deployment: Deployment) -> str:
    """A deployment in short: ``deepseek-v3.2-2p4d-64k``."""
    nodes = f"{deployment.prefill_nodes}p{deployment.decode_nodes}d"
    return f"{deployment.model}-{nodes}-{deployment.workload.removeprefix('dualpath-')}"


def _offline(runs: _Runs, source: str) -> Iterator[Point]:
    """Completion times, speed-ups of dual-path over basic, and what a larger copy of a deployment takes."""
    for entry in runs.offline:
        deployment = _deployment(entry)
        effort = entry.agents * _turns(entry.workload)
        name = f"{label(deployment)}-{entry.agents}"
        for mode, published in entry.jct_s.items():
            given = JobTime(deployment=deployment, agents=entry.agents, mode=mode)  # type: ignore[arg-type]
            yield Point(
                id=f"jct-{name}-{mode}",
                kind="jct",
                published=published,
                unit="s",
                source=source,
                given=given,
                effort=effort,
            )
        if {"basic", "dual-path"} <= entry.jct_s.keys():
            given = JobTime(deployment=deployment, agents=entry.agents, mode="dual-path", over="basic")
            published = entry.jct_s["basic"] / entry.jct_s["dual-path"]
            yield Point(
                id=f"speed-up-{name}",
                kind="speed-up",
                published=published,
                unit="1",
                source=source,
                given=given,
                effort=effort,
            )
        for small in runs.offline:
            factor = entry.prefill_nodes / small.prefill_nodes
            same = (small.model, small.workload) == (entry.model, entry.workload)
            repeated = small.decode_nodes * factor == entry.decode_nodes and small.agents * factor == entry.agents
            if same and factor > 1 and repeated:
                pair = [JobTime(deployment=_deployment(e), agents=e.agents, mode="dual-path") for e in (small, entry)]
                yield Point(
                    id=f"scale-{name}",
                    kind="scale",
                    published=entry.jct_s["dual-path"] / small.jct_s["dual-path"],
                    unit="1",
                    source=source,
                    given=Growth(small=pair[0], large=pair[1]),
                    effort=effort,
                )


def _online(runs: _Runs, source: str) -> Iterator[Point]:
    seen: set[str] = set()
    for entry in runs.online:
        deployment = _deployment(entry)
        near = entry.arrival_rate > NEAR_CAPACITY * _capacity_of(runs, entry) * (1 + 1e-9)
        for of, published in (("ttft", entry.ttft_s), ("tpot", entry.tpot_s), ("ttst", entry.ttst_s)):
            if published is None:
                continue
            identity = f"{of}-{label(deployment)}-{entry.arrival_rate:g}-{entry.mode}"
            identity += "-table" if identity in seen else ""
            seen.add(identity)
            kind = "second-token" if of == "ttst" else f"{of}-near-capacity" if near else of
            given = Latency(deployment=deployment, mode=entry.mode, arrival_rate=entry.arrival_rate, of=of)
            effort = entry.arrival_rate * ONLINE_SECONDS * _turns(entry.workload)
            yield Point(
                id=identity, kind=kind, published=published, unit="s", source=source, given=given, effort=effort
            )


def _capacity_of(runs: _Runs, entry: _Online) -> float:
    """The published capacity of a run's mode, in proportion to the nodes [agents/s]."""
    for found in runs.capacity:
        if (found.mode, found.model, found.workload) == (entry.mode, entry.model, entry.workload):
            return found.agents_per_s * entry.prefill_nodes / found.prefill_nodes
    return float("inf")


def _capacities(runs: _Runs, source: str) -> Iterator[Point]:
    for entry in runs.capacity:
        deployment = _deployment(entry)
        yield Point(
            id=f"capacity-{label(deployment)}-{entry.mode}",
            kind="capacity",
            published=entry.agents_per_s,
            unit="agents/s",
            source=source,
            given=Capacity(deployment=deployment, mode=entry.mode),
            effort=entry.agents_per_s * ONLINE_SECONDS * _turns(entry.workload) * SEARCH_RUNS,
        )


def _shares(runs: _Runs, source: str) -> Iterator[Point]:
    for entry in runs.ttft_shares:
        deployment = _deployment(entry)
        for of, share in entry.shares.items():
            yield Point(
                id=f"ttft-share-{label(deployment)}-{entry.arrival_rate:g}-{of}",
                kind="ttft-share",
                published=share,
                unit="1",
                source=source,
                given=Latency(deployment=deployment, mode=entry.mode, arrival_rate=entry.arrival_rate, of=of),
                effort=entry.arrival_rate * ONLINE_SECONDS * _turns(entry.workload),
            )


def _ablation(runs: _Runs, source: str) -> Iterator[Point]:
    for step, saved in runs.ablation.items():
        given = Saving(deployment=ABLATION, agents=ABLATION_AGENTS, step=step)  # type: ignore[arg-type]
        yield Point(
            id=f"ablation-{step.replace(' ', '-')}",
            kind="ablation",
            published=saved,
            unit="1",
            source=source,
            given=given,
            effort=ABLATION_AGENTS * _turns(ABLATION.workload),
        )


def _balance(runs: _Runs, source: str) -> Iterator[Point]:
    given: dict[str, tuple[Policy, Literal["snic", "attention"]]] = {
        "snic_round_robin": ("round-robin", "snic"),
        "snic_scheduler": ("shortest-queue", "snic"),
        "attention": ("shortest-queue", "attention"),
    }
    for name, published in runs.balance.items():
        policy, of = given[name]
        yield Point(
            id=f"balance-{name.replace('_', '-')}",
            kind="balance",
            published=published,
            unit="1",
            source=source,
            given=Balance(deployment=ABLATION, agents=ABLATION_AGENTS, policy=policy, of=of),
            effort=ABLATION_AGENTS * _turns(ABLATION.workload),
        )
