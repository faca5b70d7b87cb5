"""What each side of a deployment allows by itself, for all node counts at once: bounds before points are evaluated.

A point is a prefill and a decode side. Most of what decides it belongs to one of them: its links, compute and memory,
whether the model fits, and the end of the P/D range that its links set. So a side is worked out once for each
parallelism and profile, and the points that cannot carry a demand whatever the other side is are never evaluated. The
bounds leave out what depends on both sides; they never refuse a point that dualplan.steady.grid accepts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.errors import InputError
from dualplan.messages import Message
from dualplan.model.closed_form import Constraint
from dualplan.model.closed_form_arrays import feasible_ranges
from dualplan.model.demand import SideMemory
from dualplan.model.traffic import SIDES, Path
from dualplan.spec.choices import SINGLE_SIDED
from dualplan.spec.fitted_sets import fitted
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import Scenario
from dualplan.steady.grid import lines_of
from dualplan.steady.problem import build
from dualplan.steady.ranges import constraints
from dualplan.steady.reasons import misfits
from dualplan.steady.resources import storage_bandwidth
from dualplan.steady.setup import Host, hosting, setup_of

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

ROOM = 1e-9
"""Share by which a bound may be off through rounding."""

_OF_BOTH = ("hbm", "buffer")
"""Ends of the names of resources that turns hold for times which the other side sets."""


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """One side with one parallelism. A node of it serves at most ``turns_per_s`` and reads ``reads_per_s`` (infinite:
    no limit). ``maybe_slo``: whether it can keep the SLO at all.
    """

    turns_per_s: float
    reads_per_s: float
    constraints: tuple[Constraint, ...]
    fits: bool
    maybe_slo: bool


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """One entry a point. ``turns_per_s``: it carries no more. ``fits``: exact. ``maybe_slo``, ``maybe_inside``: False
    where the SLO cannot be kept, or P/D lies outside the range. ``error``: as that of the grid.
    """

    turns_per_s: Floats
    fits: Flags
    maybe_slo: Flags
    maybe_inside: Flags
    error: NDArray[np.object_]


class _Side:
    """One side of some scenarios: what hosts the model by node count (or why nothing does), halves by (ep, tp)."""

    def __init__(self) -> None:
        self.hosts: dict[int, tuple[Parallel, SideMemory] | Message] = {}
        self.halves: dict[tuple[int, int], Half] = {}
        self._ends: dict[tuple[float, float, int], tuple[list[float], list[float], list[float]]] = {}

    def ends(self, prefill_storage: float, decode_storage: float) -> tuple[list[float], list[float], list[float]]:
        """Of each half: the lowest and the highest P/D that its links allow (NaN: no end), and 1 where they allow none,
        while storage delivers these rates a node [B/s].
        """
        key = (prefill_storage, decode_storage, len(self.halves))
        if key not in self._ends:
            found = [feasible_ranges(half.constraints, *key[:2], 1) for half in self.halves.values()]
            ends = [(float(one.lower[0]), float(one.upper[0]), float(one.empty[0])) for one in found]
            self._ends[key] = ([e[0] for e in ends], [e[1] for e in ends], [e[2] for e in ends])
        return self._ends[key]


class Known:
    """Sides that were worked out, so that many kinds of deployments share them."""

    def __init__(self) -> None:
        self._found: list[tuple[Scenario, Path, _Side]] = []

    def of(self, scenario: Scenario, side: Path) -> _Side:
        """What is known of a side, to be added to."""
        for other, of_side, found in self._found:
            if side == of_side and _same(scenario, other, side):
                return found
        self._found.append((scenario, side, _Side()))
        return self._found[-1][2]


def _same(one: Scenario, other: Scenario, side: Path) -> bool:
    """Whether a side of two scenarios is the same to the equations. A fitted set is one of both sides together."""
    if one is other:
        return True
    if fitted(one) is not None or fitted(other) is not None:
        return False
    own = "hardware" if side == "prefill" else "decode_hardware"
    return all(
        getattr(one, name) is getattr(other, name) or getattr(one, name) == getattr(other, name)
        for name in (own, f"{side}_parallel", "model", "workload", "settings")
    )


def bounds(scenario: Scenario, prefill_nodes: Counts, decode_nodes: Counts, known: Known) -> Bounds:
    """What can be said of every (prefill_nodes[i], decode_nodes[i]) before it is evaluated."""
    error = np.full(len(prefill_nodes), "", dtype=object)
    sides = (known.of(scenario, "prefill"), known.of(scenario, "decode"))
    for name, nodes, side in zip(SIDES, (prefill_nodes, decode_nodes), sides, strict=True):
        _host(scenario, name, nodes, side, error)
    good = error == ""
    if not good.any():
        return Bounds(turns_per_s=np.zeros(len(error)), fits=good, maybe_slo=good, maybe_inside=good, error=error)
    hosts = [next(host for host in side.hosts.values() if not isinstance(host, Message)) for side in sides]
    for name, side in zip(SIDES, sides, strict=True):
        for host in list(side.hosts.values()):
            if not isinstance(host, Message) and _key(host) not in side.halves:
                pair = (host, hosts[1]) if name == "prefill" else (hosts[0], host)
                side.halves[_key(host)] = _half(scenario, name, pair)
    prefill, decode = _Points(sides[0], prefill_nodes), _Points(sides[1], decode_nodes)
    reads = prefill_nodes * prefill.values("reads_per_s")
    if scenario.settings.mode not in SINGLE_SIDED:
        reads = reads + decode_nodes * decode.values("reads_per_s")
    most = np.minimum(prefill_nodes * prefill.values("turns_per_s"), decode_nodes * decode.values("turns_per_s"))
    return Bounds(
        turns_per_s=np.minimum(most, reads) * (1 + ROOM),
        fits=good & (prefill.values("fits") > 0) & (decode.values("fits") > 0),
        maybe_slo=good & (prefill.values("maybe_slo") > 0) & (decode.values("maybe_slo") > 0),
        maybe_inside=good & _maybe_inside(scenario, prefill, decode, prefill_nodes / decode_nodes),
        error=error,
    )


class _Points:
    """The halves of a side and which of them each point has (-1: none)."""

    def __init__(self, side: _Side, nodes: Counts) -> None:
        self.side, self.halves = side, list(side.halves.values())
        places = {key: index for index, key in enumerate(side.halves)}
        of_count = np.full(int(nodes.max()) + 1, -1, dtype=np.int64)
        for count, host in side.hosts.items():
            if count < len(of_count) and not isinstance(host, Message):
                of_count[count] = places[_key(host)]
        self._of_point = of_count[nodes]

    def values(self, name: str) -> Floats:
        """A figure of the half of each point."""
        return self.spread([getattr(half, name) for half in self.halves])

    def spread(self, of_halves: Sequence[float]) -> Floats:
        """Figures of halves for each point."""
        found: Floats = np.array([*of_halves, 0.0], dtype=float)[self._of_point]
        return found


def _key(host: tuple[Parallel, SideMemory]) -> tuple[int, int]:
    """The number of replicas, dp, follows from the node count and changes nothing about a turn."""
    return host[0].ep, host[0].tp


def _host(scenario: Scenario, name: Path, nodes: Counts, side: _Side, error: NDArray[np.object_]) -> None:
    """Find what hosts the model on each number of nodes; ``error`` is filled where a given parallelism has no room."""
    fit = fitted(scenario)
    for count in np.flatnonzero(np.bincount(nodes)).tolist():
        if count not in side.hosts:
            try:
                side.hosts[count] = hosting(scenario, name, count, fit)
            except InputError as fault:
                side.hosts[count] = lines_of(fault)
        host = side.hosts[count]
        if isinstance(host, Message):
            error[(nodes == count) & (error == "")] = host


Hosts = tuple[Host, Host]


def _half(scenario: Scenario, side: Path, hosts: Hosts) -> Half:
    """One side, worked out beside any other one."""
    setup = setup_of(scenario, fitted(scenario), (1.0, 1.0), *hosts)
    settings = scenario.settings
    problem = build(setup, settings.mode)
    busy, reading = 0.0, 0.0
    for resource in problem.resources:
        if resource.side != side or resource.name.endswith(_OF_BOTH):
            continue
        paths = [resource.prefill] if settings.mode in SINGLE_SIDED else [resource.prefill, resource.decode]
        busy = max(busy, float(min(paths) / resource.capacity))
        if resource.name == f"{side}_snic_ingress":
            reading = float(max(paths) / resource.capacity)
    ttft = settings.slo.ttft
    late = ttft is not None and float(problem.demand.prefill_latency) > ttft * (1 + ROOM)
    links = constraints(setup, problem, problem.amounts) if problem.amounts.read and settings.mode != "oracle" else []
    return Half(
        turns_per_s=1 / busy if busy else np.inf,
        reads_per_s=1 / reading if reading else np.inf,
        constraints=tuple(link for link in links if link.side == side),
        fits=side not in misfits(setup, problem),
        maybe_slo=not (late if side == "prefill" else problem.tpot_unreachable),
    )


def _maybe_inside(scenario: Scenario, prefill: _Points, decode: _Points, pd_ratio: Floats) -> Flags:
    """Whether P/D lies between the ends that the links of each side set."""
    first, second = (storage_bandwidth(hardware) for _, hardware in scenario.sides)
    both = (first, 0.0 if scenario.settings.mode in SINGLE_SIDED else second)
    lowers, _, never_prefill = prefill.side.ends(*both)
    _, uppers, never_decode = decode.side.ends(*both)
    outside = pd_ratio < prefill.spread(lowers) * (1 - ROOM)
    outside |= pd_ratio > decode.spread(uppers) * (1 + ROOM)
    return ~outside & ~(prefill.spread(never_prefill) > 0) & ~(decode.spread(never_decode) > 0)
