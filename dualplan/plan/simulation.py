"""A scenario simulated, and what the run asked of every resource, also of those that the kernel takes not to bind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.messages import Message
from dualplan.model.collectives import decode_collective_bytes_per_token, prefill_collective_bytes_per_token
from dualplan.model.demand import scale_up_gpus
from dualplan.model.traffic import SIDES, Bytes, loads, steps
from dualplan.serving import layout as k
from dualplan.serving.cluster import Cluster, SideLayout, cluster
from dualplan.serving.elastic import Elastic, most_nodes
from dualplan.serving.policies import Policies, policies
from dualplan.serving.result import Result, Slo, open_share
from dualplan.serving.run import DURATION, Progress, offline, online
from dualplan.serving.trajectories import Trajectories, for_workload, from_trace, scaled, with_set_lengths
from dualplan.spec.choices import Mode
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import Workload, turns_changed
from dualplan.steady.problem import given_collectives, kv_share
from dualplan.steady.resources import ORDER, NodeLinks, link_resources

Floats = npt.NDArray[np.float64]

AFTER_TRACE = 60.0
"""Seconds that a run goes on after the last arrival of a trace, unless a duration is given."""

WINDOWS = 50
"""Windows of a run in which a resource is looked at for its busiest time."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a scenario is run beside what it says itself. None: as the scenario or the default has it.

    ``max_active``: agents that may have started and not ended, 0 for any number; ``clusters``: equal clusters that the
    nodes are split into; ``elastic``: nodes change their roles.
    """

    mode: Mode | None = None
    policies: Policies | None = None
    tokens_per_step: float = 1.0
    max_active: int = 0
    clusters: int = 1
    elastic: Elastic | None = None

    def lay_out(self, scenario: Scenario, trajectories: Trajectories) -> Cluster:
        """The deployment under these options. Raises InputError and InfeasibleError."""

        def laid(most: tuple[int, int] | None = None) -> Cluster:
            return cluster(
                scenario,
                trajectories,
                mode=self.mode,
                policies=self.policies or policies(scenario.settings.policy),
                tokens_per_step=self.tokens_per_step,
                clusters=self.clusters,
                max_active=self.max_active,
                most_nodes=most,
            )

        if self.elastic is None:
            return laid()
        if self.clusters > 1:
            raise InputError("--elastic", "roles change within one cluster", "leave out --clusters")
        return laid(most_nodes(laid(), self.elastic, "--elastic"))


def trajectories_of(
    workload: Workload,
    *,
    seed: int = 0,
    trace: str | Path | None = None,
    scales: tuple[float, float] = (1.0, 1.0),
    agents: int | None = None,
) -> tuple[Trajectories, Floats | None]:
    """What the agents of a workload replay, and when they start where it is a trace that says so [s].

    ``trace``: the file, for a workload that is one. ``scales`` multiply appends and generated lengths. ``agents``:
    those of a job, where it is one. Raises InputError.
    """
    arrivals = None
    if not workload.mix or turns_changed(workload):
        made = for_workload(workload, seed=seed, agents=agents)
    elif trace is None:
        raise InputError("workload", "a trace cannot be simulated without its file", "give it as trace=FILE")
    else:
        from dualplan.trace.read import read_trace

        made, arrivals = from_trace(read_trace(str(trace)), Path(trace).name)
        made = with_set_lengths(made, workload)
    return scaled(made, *scales, workload.max_length), arrivals


def simulate(
    scenario: Scenario,
    *,
    agents: int | None = None,
    arrival_rate: float | None = None,
    trace_times: bool = False,
    duration: float | None = None,
    warm_up: float | None = None,
    seed: int | None = None,
    options: Options | None = None,
    trace: str | Path | None = None,
    scales: tuple[float, float] = (1.0, 1.0),
    drawn: tuple[Trajectories, Floats | None] | None = None,
    slo: Slo | None = None,
    label: str | None = None,
    progress: Progress | None = None,
    compiled: bool | None = None,
) -> Result:
    """One run: ``agents`` that start together, arrivals at ``arrival_rate`` agents/s, or at the times of the trace.

    Times in s. An online run takes ``duration`` (3,000 s; with ``trace_times`` a minute after the last arrival), turns
    that end in its ``warm_up`` (a third of it; 0 with ``trace_times``) do not count. ``drawn``: trajectories and start
    times, where the caller has them. Raises InputError, and InfeasibleError for what does not fit.
    """
    given = options or Options()
    seed = scenario.settings.seed if seed is None else seed
    trajectories, arrivals = drawn or trajectories_of(
        scenario.workload, seed=seed, trace=trace, scales=scales, agents=agents
    )
    if agents is None and not trace_times and arrival_rate is None:
        arrival_rate = scenario.settings.demand.arrival_rate
    if sum((agents is not None, arrival_rate is not None, trace_times)) != 1:
        raise InputError("simulate", "needs one of agents, arrival_rate and trace_times")
    laid = given.lay_out(scenario, trajectories)
    common: dict[str, Any] = {
        "seed": seed,
        "elastic": given.elastic,
        "label": label,
        "progress": progress,
        "compiled": compiled,
    }
    if agents is not None:
        if duration is not None or warm_up is not None:
            raise InputError("simulate", "a job of agents runs to its end", "leave out duration and warm_up")
        return offline(laid, trajectories, agents, **common)
    if trace_times:
        if arrivals is None:
            raise InputError("--trace-times", "the workload is not a trace with times on one clock")
        duration = float(arrivals.max()) + AFTER_TRACE if duration is None else duration
    limits = slo or slo_of(scenario)
    return online(
        laid,
        trajectories,
        arrival_rate,
        arrivals=arrivals if trace_times else None,
        duration=DURATION if duration is None else duration,
        warm_up=warm_up,
        slo=limits,
        **common,
    )


def slo_of(scenario: Scenario) -> Slo:
    """The SLO that a scenario gives, DualPath's 4 s and 50 ms where it gives none."""
    given = scenario.settings.slo
    return Slo(
        ttft=Slo().ttft if given.ttft is None else given.ttft, tpot=Slo().tpot if given.tpot is None else given.tpot
    )


# ---------------------------------------------------------------- resources


class ResourceUse(msgspec.Struct, frozen=True, kw_only=True):
    """A resource over a run. ``utilization``: mean share of its capacity; ``peak``: the same in the busiest of
    ``WINDOWS`` windows; ``max_over_mean``: of its nodes, NICs, engines or groups in the whole run.

    ``simulated``: whether it can bind in the simulation. Loads of others follow from the bytes that turns moved.
    ``capacity_used``: share of what it could do, as the steady model counts. It is another figure for prefill compute
    alone: a group runs passes, however empty, while any turn is there, so its busy share is high at any load.
    """

    name: str
    detail: Message | str
    utilization: float
    peak: float
    max_over_mean: float | None
    simulated: bool
    capacity_used: float

    @property
    def over(self) -> float | None:
        """How many times its capacity a resource would have had to carry; None where it did not bind."""
        most = max(self.peak, self.utilization * (self.max_over_mean or 1.0))
        return most if not self.simulated and most > 1 else None


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Resources over time: each value is for the time from the one before to ``time_s``; sizes as the samples asked
    for. ``max_over_mean`` has no entry where the parts of a resource were too many to be sampled.
    """

    time_s: Floats
    utilization: dict[str, Floats]
    max_over_mean: dict[str, Floats]


class _Link(msgspec.Struct, frozen=True):
    """One link or bus of a side: share of it that a byte a second of each quantity moved takes, per node."""

    name: str
    detail: Message | str
    side: int
    shares: Floats


def _links(result: Result) -> list[_Link]:
    """Links and buses of both sides, from the step table. Shares have shape (nodes, 8): differing nodes differ."""
    laid = result.cluster
    found: dict[tuple[str, Message | str], _Link] = {}
    for side, (hardware, layout) in enumerate(
        ((laid.scenario.hardware, laid.prefill), (laid.scenario.decode_hardware, laid.decode))
    ):
        kinds: list[Hardware] = [hardware] * layout.nodes
        first = 0
        for variant in laid.scenario.variants:
            if variant.side == SIDES[side]:
                kinds[first : first + variant.nodes] = [variant.hardware] * variant.nodes
                first += variant.nodes
        for kind in {id(kind): kind for kind in kinds}.values():
            rows = np.array([other is kind for other in kinds])
            for key, shares in _node_shares(laid, side, kind).items():
                link = found.setdefault(key, _Link(*key, side, np.zeros((layout.nodes, 8))))
                link.shares[rows] = shares
    return sorted(found.values(), key=lambda link: (ORDER.index(link.name), link.side))


def _node_shares(laid: Cluster, side: int, hardware: Hardware) -> dict[tuple[str, Message | str], Floats]:
    """Of each link of one node: the share that a byte a second of each quantity takes, by the side that reads."""
    scenario, settings = laid.scenario, laid.scenario.settings
    table = steps(laid.mode, staging=settings.staging, copy=settings.copy, persist=settings.persist)
    given = given_collectives(scenario)
    load = 0.0 if given is None else (given.prefill, given.decode)[side]
    links = NodeLinks(
        hardware=hardware, side=SIDES[side], nodes=1, kv_share=float(kv_share(hardware, load)), read_rate=1.0
    )
    shares_cnic = (scenario.hardware.snic.shares_cnic, scenario.decode_hardware.snic.shares_cnic)
    found: dict[tuple[str, Message | str], Floats] = {}
    for path, rows in table.items():
        for quantity, amounts in enumerate(_units(laid, collectives=given is None)):
            charged = {name: (value, 0) for name, value in loads(rows, amounts, shares_cnic=shares_cnic).items()}
            for resource in link_resources(links, charged):
                if resource.name.endswith("snic_ingress"):
                    continue
                column = 4 * SIDES.index(path) + quantity
                shares = found.setdefault((resource.name, resource.detail), np.zeros(8))
                shares[column] = float(resource.prefill) / float(resource.capacity)
    return found


def _units(laid: Cluster, *, collectives: bool) -> tuple[Bytes, ...]:
    """What a turn moves for one byte of hits, of computed KV, of appended and of generated KV."""
    scenario, settings = laid.scenario, laid.scenario.settings
    loaded = 1.0 - settings.residency
    pooled = settings.pool_share if laid.mode == "dram-pool" else 0.0
    zero = {"hit": 0.0, "read": 0.0, "loaded": 0.0}
    per_token = laid.kv_bytes_per_token
    sent = [0.0, 0.0]
    if collectives and per_token > 0:
        model = scenario.model
        sent = [
            float(prefill_collective_bytes_per_token(model, laid.prefill.parallel, scale_up_gpus(scenario.hardware))),
            float(
                decode_collective_bytes_per_token(model, laid.decode.parallel, scale_up_gpus(scenario.decode_hardware))
            ),
        ]
    return (
        Bytes(hit=1.0, read=loaded * (1 - pooled), pooled=loaded * pooled, loaded=loaded),
        Bytes(**zero, miss=1.0, prefill_collective=sent[0] / per_token if per_token else 0.0),
        Bytes(**zero, append=1.0),
        Bytes(**zero, generated=1.0, decode_collective=sent[1] / per_token if per_token else 0.0),
    )


class _Part(msgspec.Struct, frozen=True):
    """How a resource is read off the samples: sums since the start, or what is held; ``total`` for all parts together
    and ``each`` a part, both in units of what one part can carry or hold.
    """

    name: str
    detail: Message | str
    simulated: bool
    gauge: bool
    parts: float
    total: Callable[[Floats], Floats]
    each: Callable[[Floats], Floats] | None


def _parts(result: Result) -> list[_Part]:
    laid = result.cluster
    prefill, decode = laid.prefill, laid.decode
    open_prefill, open_decode = open_share(laid, result.samples)
    nics = (len(prefill.nic_rates) * laid.scenario.hardware.snic.count, len(decode.nic_rates))
    nics = (nics[0], nics[1] * laid.scenario.decode_hardware.snic.count)
    starts = np.cumsum((0, *nics, prefill.groups, decode.groups, 8 * prefill.nodes))

    def sums(column: int, size: float = 1.0) -> Callable[[Floats], Floats]:
        return lambda samples: samples[:, column] / size

    def some(place: int, count: int) -> Callable[[Floats], Floats]:
        return lambda detail: detail[:, starts[place] : starts[place] + count]

    found = [
        _Part("prefill_snic_ingress", "", True, False, nics[0] * open_prefill, sums(k.S_PREFILL_NIC), some(0, nics[0])),
        _Part("decode_snic_ingress", "", True, False, nics[1] * open_decode, sums(k.S_DECODE_NIC), some(1, nics[1])),
        _Part(
            "prefill_compute",
            "",
            True,
            False,
            prefill.groups * open_prefill,
            sums(k.S_PASSES),
            some(2, prefill.groups),
        ),
    ]
    for name, side, share, column in (
        ("prefill_hbm", prefill, open_prefill, k.S_PREFILL_HBM),
        ("decode_hbm", decode, open_decode, k.S_DECODE_HBM),
    ):
        batches = some(3, decode.groups) if name == "decode_hbm" else None
        found.append(_Part(name, "", True, True, side.engines * share, sums(column, side.room), batches))
    for name, side, share, column in (
        ("prefill_buffer", prefill, open_prefill, k.S_PREFILL_BUFFER),
        ("decode_buffer", decode, open_decode, k.S_DECODE_BUFFER),
    ):
        if max(side.buffers) < np.inf:
            found.append(_Part(name, "", True, True, sum(side.buffers) * share, sums(column), None))
    store = laid.scenario.hardware.storage
    if store is not None and store.read_bandwidth:
        found.append(_Part("storage_backend", "", True, False, 1, sums(k.S_READ, store.read_bandwidth), None))
    for link in _links(result):
        side, column, place, share = (
            (prefill, k.S_PREFILL_MOVED, 4, open_prefill),
            (decode, k.S_DECODE_MOVED, 5, open_decode),
        )[link.side]
        found.append(_link_part(link, side, column, int(starts[place]), share))
    return sorted(found, key=lambda part: ORDER.index(part.name))


def _link_part(link: _Link, side: SideLayout, column: int, start: int, share: float) -> _Part:
    def total(samples: Floats) -> Floats:
        # of nodes that differ the mean stands for all; each of them is looked at by itself where they are sampled
        return np.asarray(samples[:, column : column + 8] @ link.shares.mean(axis=0))

    def each(detail: Floats) -> Floats:
        moved = detail[:, start : start + 8 * side.nodes].reshape(len(detail), side.nodes, 8)
        return np.asarray(np.einsum("tnq,nq->tn", moved, link.shares))

    return _Part(link.name, link.detail, False, False, side.nodes * share, total, each)


def _key(part: _Part) -> str:
    return f"{part.name} ({part.detail})" if part.detail else part.name


def series(result: Result, at: npt.NDArray[np.int64]) -> Series:
    """Resources over time, at some of the samples of a run."""
    samples, detail = result.samples[at], result.detail[at]
    time = samples[:, k.S_TIME]
    widths = np.maximum(np.diff(time, prepend=0.0), 1e-12)
    used: dict[str, Floats] = {}
    uneven: dict[str, Floats] = {}
    for part in _parts(result):
        values = part.total(samples)
        # sums never fall; what is held may be below nothing by rounding
        grown = values if part.gauge else np.diff(values, prepend=0.0) / widths
        used[_key(part)] = np.maximum(grown / part.parts, 0.0)
        if part.each is not None and detail.shape[1]:
            each = part.each(detail)
            each = each if part.gauge else np.diff(each, axis=0, prepend=0.0)
            mean = each.mean(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                uneven[_key(part)] = np.where(mean > 1e-12, each.max(axis=1) / mean, np.nan)
    return Series(time_s=time, utilization=used, max_over_mean=uneven)


def resources(result: Result) -> tuple[ResourceUse, ...]:
    """Every resource over a run, in the order of the resource list.

    The busiest window is of all parts together; a load counts when the first token of a turn is out, so windows are
    not shorter than a hundredth of the run or ten seconds.
    """
    time = result.samples[:, k.S_TIME]
    end = float(time[-1])
    edges = np.linspace(0.0, end, min(max(int(end / 10.0), 1), WINDOWS) + 1)[1:]
    at = np.unique(np.minimum(np.searchsorted(time, edges - 1e-9), len(time) - 1))
    over_time = series(result, at)
    moved = (result.prefill_moved, result.decode_moved)
    whole = {(link.name, link.detail): (moved[link.side] * link.shares).sum(axis=1) for link in _links(result)}
    alike = {
        "prefill_snic_ingress": "prefill_snic",
        "decode_snic_ingress": "decode_snic",
        "prefill_compute": "prefill_passes",
        "decode_hbm": "decode_sequences",
        "prefill_buffer": "prefill_buffer_peak",
        "decode_buffer": "decode_buffer_peak",
    }
    found = []
    for part in _parts(result):
        peak = float(over_time.utilization[_key(part)].max())
        if part.simulated:
            mean = result.utilization.get(part.name, float(part.total(result.samples[-1:])[0]) / max(end, 1e-12))
            uneven = result.max_over_mean.get(alike.get(part.name, ""))
        else:
            each = whole[part.name, part.detail]
            mean = float(each.sum()) / (max(end, 1e-12) * part.parts)
            uneven = float(each.max() / each.mean()) if each.any() else None
        found.append(
            ResourceUse(
                name=part.name,
                detail=part.detail,
                utilization=mean,
                peak=max(peak, mean),
                max_over_mean=uneven,
                simulated=part.simulated,
                capacity_used=result.prefill_capacity_used if part.name == "prefill_compute" else mean,
            )
        )
    return tuple(found)
