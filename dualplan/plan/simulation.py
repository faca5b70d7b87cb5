"""A scenario simulated, and what the run asked of every resource, also of those that the kernel takes not to bind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.messages import Message
from dualplan.model.collectives import decode_collective_bytes_per_token, prefill_collective_bytes_per_token
from dualplan.model.service_times import scale_up_gpus
from dualplan.model.traffic import SIDES, Bytes, loads, steps
from dualplan.serving.cluster import Cluster, SideLayout, cluster
from dualplan.serving.elastic import most_nodes
from dualplan.serving.figures import open_share
from dualplan.serving.layout import Table
from dualplan.serving.policies import policies
from dualplan.serving.result import Result
from dualplan.serving.run import Progress, offline, online
from dualplan.serving.trajectories import Trajectories, for_workload, from_trace, scaled, with_set_lengths
from dualplan.spec.hardware import Hardware
from dualplan.spec.run import RunSpec
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import Workload, turns_changed
from dualplan.steady.resources import ORDER, NodeLinks, link_resources
from dualplan.steady.setup import given_collectives, kv_share

Floats = npt.NDArray[np.float64]

AFTER_TRACE = 60.0
"""Seconds that a run goes on after the last arrival of a trace, unless a duration is given."""

WINDOWS = 50
"""Windows of a run in which a resource is looked at for its busiest time."""


def lay_out(scenario: Scenario, trajectories: Trajectories, spec: RunSpec) -> Cluster:
    """The deployment of a run. Raises InputError and InfeasibleError."""

    def laid(most: tuple[int, int] | None = None) -> Cluster:
        return cluster(
            scenario,
            trajectories,
            mode=spec.mode,
            policies=policies(
                scenario.settings.policy,
                prefill=spec.prefill_placement,
                decode=spec.decode_placement,
                read_side=spec.read_side,
            ),
            tokens_per_step=spec.tokens_per_step,
            clusters=spec.clusters,
            max_active=spec.max_active,
            most_nodes=most,
        )

    return laid() if spec.elastic is None else laid(most_nodes(laid(), spec.elastic, "--elastic"))


def trajectories_of(workload: Workload, spec: RunSpec) -> tuple[Trajectories, Floats | None]:
    """What the agents of a workload replay, and when they start where it is a trace that says so [s].

    Follows from seed, agents, trace and scales of the run alone. Raises InputError.
    """
    arrivals = None
    if not workload.mix or turns_changed(workload):
        made = for_workload(workload, seed=spec.seed or 0, agents=spec.agents)
    elif spec.trace is None:
        raise InputError("workload", "a trace cannot be simulated without its file", "give it as trace=FILE")
    else:
        from dualplan.trace.read import read_trace

        made, arrivals = from_trace(read_trace(spec.trace), Path(spec.trace).name)
        made = with_set_lengths(made, workload)
    return scaled(made, spec.append_scale, spec.generated_scale, workload.max_length), arrivals


def simulate(
    scenario: Scenario,
    spec: RunSpec,
    *,
    drawn: tuple[Trajectories, Floats | None] | None = None,
    progress: Progress | None = None,
) -> Result:
    """One run of a scenario. ``drawn``: trajectories and start times, where the caller has them.

    An online run takes 3,000 s, with ``trace_times`` a minute after the last arrival, unless a duration is given; turns
    of its first third do not count, with ``trace_times`` all do, unless a warm-up is given. Raises InputError, and
    InfeasibleError for what does not fit.
    """
    spec = spec.of(scenario)
    if spec.find_capacity or not spec.arrives:
        raise InputError("simulate", "needs one of agents, arrival_rate and trace_times")
    trajectories, arrivals = drawn or trajectories_of(scenario.workload, spec)
    laid = lay_out(scenario, trajectories, spec)
    if spec.agents is not None:
        return offline(laid, trajectories, spec, progress=progress)
    if not spec.trace_times:
        return online(laid, trajectories, spec, progress=progress)
    if arrivals is None:
        raise InputError("--trace-times", "the workload is not a trace with times on one clock")
    if spec.duration is None:
        spec = spec.but(duration=float(arrivals.max()) + AFTER_TRACE)
    return online(laid, trajectories, spec, arrivals=arrivals, progress=progress)


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
    total: Callable[[Table], Floats]
    each: Callable[[Floats], Floats] | None


def _parts(result: Result) -> list[_Part]:
    laid = result.cluster
    prefill, decode = laid.prefill, laid.decode
    open_prefill, open_decode = open_share(laid, result.samples)
    nics = (len(prefill.nic_rates) * laid.scenario.hardware.snic.count, len(decode.nic_rates))
    nics = (nics[0], nics[1] * laid.scenario.decode_hardware.snic.count)
    starts = np.cumsum((0, *nics, prefill.groups, decode.groups, 8 * prefill.nodes))

    def sums(field: str, size: float = 1.0) -> Callable[[Table], Floats]:
        return lambda samples: np.asarray(samples[field] / size)

    def some(place: int, count: int) -> Callable[[Floats], Floats]:
        return lambda detail: detail[:, starts[place] : starts[place] + count]

    found = [
        _Part("prefill_snic_ingress", "", True, False, nics[0] * open_prefill, sums("prefill_nic"), some(0, nics[0])),
        _Part("decode_snic_ingress", "", True, False, nics[1] * open_decode, sums("decode_nic"), some(1, nics[1])),
        _Part(
            "prefill_compute",
            "",
            True,
            False,
            prefill.groups * open_prefill,
            sums("passes"),
            some(2, prefill.groups),
        ),
    ]
    for name, side, share, field in (
        ("prefill_hbm", prefill, open_prefill, "prefill_hbm"),
        ("decode_hbm", decode, open_decode, "decode_hbm"),
    ):
        batches = some(3, decode.groups) if name == "decode_hbm" else None
        found.append(_Part(name, "", True, True, side.engines * share, sums(field, side.room), batches))
    for name, side, share, field in (
        ("prefill_buffer", prefill, open_prefill, "prefill_buffer"),
        ("decode_buffer", decode, open_decode, "decode_buffer"),
    ):
        if max(side.buffers) < np.inf:
            found.append(_Part(name, "", True, True, sum(side.buffers) * share, sums(field), None))
    store = laid.scenario.hardware.storage
    if store is not None and store.read_bandwidth:
        found.append(_Part("storage_backend", "", True, False, 1, sums("read", store.read_bandwidth), None))
    for link in _links(result):
        side, field, place, share = (
            (prefill, "prefill_moved", 4, open_prefill),
            (decode, "decode_moved", 5, open_decode),
        )[link.side]
        found.append(_link_part(link, side, field, int(starts[place]), share))
    return sorted(found, key=lambda part: ORDER.index(part.name))


def _link_part(link: _Link, side: SideLayout, field: str, start: int, share: float) -> _Part:
    def total(samples: Table) -> Floats:
        # of nodes that differ the mean stands for all; each of them is looked at by itself where they are sampled
        return np.asarray(samples[field] @ link.shares.mean(axis=0))

    def each(detail: Floats) -> Floats:
        moved = detail[:, start : start + 8 * side.nodes].reshape(len(detail), side.nodes, 8)
        return np.asarray(np.einsum("tnq,nq->tn", moved, link.shares))

    return _Part(link.name, link.detail, False, False, side.nodes * share, total, each)


def _key(part: _Part) -> str:
    return f"{part.name} ({part.detail})" if part.detail else part.name


def series(result: Result, at: npt.NDArray[np.int64]) -> Series:
    """Resources over time, at some of the samples of a run."""
    samples, detail = result.samples[at], result.detail[at]
    time = samples["time"]
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
    time = result.samples["time"]
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
