"""All published figures as one list of records, read from where each of them stands.

The figures are in ``dualplan/data``: ``published.yaml`` holds kinds and most points, ``calibration-published.yaml`` the
runs that the simulation is compared with, ``cache_compute_ratio.json`` the paper's table; parameter counts are in the
model files and figures of traces in the workload files.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

from dualplan.plan.published.records import (
    ABLATION,
    ABLATION_AGENTS,
    FEW_AGENTS,
    GIVEN,
    AppendScale,
    Balance,
    CacheCompute,
    Capacities,
    Capacity,
    Deployment,
    EqualTimes,
    Given,
    Growth,
    JobTime,
    Kind,
    Latency,
    MeasuredRun,
    ParameterCount,
    Point,
    PrefillRate,
    Saving,
    TraceFigure,
)
from dualplan.plan.ratio import published_table
from dualplan.spec.choices import Mode, Policy
from dualplan.spec.load import Count, Node, Positive, decode, read_yaml

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


class _Offline(Deployment, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agents: Count
    jct_s: dict[str, Positive]


class _Online(Deployment, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Mode
    arrival_rate: Positive
    ttft_s: Positive
    tpot_s: Positive | None = None
    ttst_s: Positive | None = None


class _Capacity(Deployment, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Mode
    agents_per_s: Positive


class _Shares(Deployment, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
        *_measured_runs(),
        *_prefill_rates(),
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


def _measured_runs() -> Iterator[Point]:
    """Runs of the shipped table whose figures do not contradict themselves."""
    from dualplan.plan.measured import FEW_CLIENTS, SOURCE, predict, shipped_runs

    for line, run in shipped_runs().items():
        prediction = predict(run)
        if not prediction.covered or prediction.not_scored:
            continue
        figures = [("tpot-apart" if run.mode == "disagg" else "tpot-runs", "tpot", run.tpot_ms)]
        if run.sequences is not None and run.clients <= FEW_CLIENTS:
            figures.append(("ttft-runs", "ttft", run.ttft_ms))
        for kind, of, measured in figures:
            if measured is not None:
                yield Point(
                    id=f"{of}-run-{line}-{run.model}-{run.system}",
                    kind=kind,
                    published=measured / 1e3,
                    unit="s",
                    source=SOURCE,
                    given=MeasuredRun(line=line, of=of),  # type: ignore[arg-type]
                )


def _prefill_rates() -> Iterator[Point]:
    from dualplan.plan.measured import published_points

    for point in published_points():
        if point.kind.startswith("pre/"):
            yield Point(
                id=f"prefill-{point.id}-{point.hardware.name}",
                kind="prefill-rate",
                published=point.measured,
                unit="1/s",
                source=point.source,
                given=PrefillRate(id=point.id),
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
