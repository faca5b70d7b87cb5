"""The cheapest deployments that carry a demand, over kinds of nodes and their numbers.

The search over node counts is exhaustive: the points of a kind that the bounds of their sides do not rule out
(dualplan.plan.purchase.side_bounds) are taken in the order of their cost and evaluated as arrays (dualplan.steady.grid)
until one is good, so no other of that kind is cheaper. A fleet of several deployments is another question, an integer
programme: dualplan.plan.purchase.fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.errors import InputError
from dualplan.messages import Message, message
from dualplan.model.kv import kv_total_bytes_per_token
from dualplan.model.storage import agents_in_flight, working_set_bytes
from dualplan.plan.purchase.cost import Prices, node_price
from dualplan.plan.purchase.runner_up import with_reasons
from dualplan.plan.purchase.side_bounds import Known, bounds
from dualplan.plan.purchase.upgrades import with_snics
from dualplan.plan.sizing import agent_time, agent_tokens, check_demand_rate, store_traffic
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import mean_turns
from dualplan.steady.answer import Evaluation, evaluate
from dualplan.steady.grid import evaluate_grid
from dualplan.steady.problem import build
from dualplan.steady.reasons import misfits
from dualplan.steady.resources import title
from dualplan.steady.setup import prepare

FIRST_POINTS = 4
"""Points of a kind that are evaluated first."""

GROWTH = 8
"""So many times as many follow while none is good: most time goes into parallelisms, which a chunk shares."""

SPARE_POINTS = 64
"""Good points that are looked at together with nodes down."""

MOST_NODES = 4096
"""Nodes of a deployment up to which the search goes."""

Floats = NDArray[np.float64]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a deployment.

    ``headroom``: share of the demand that must be left over. ``spare``: nodes of either side that may be down while
    the demand is still met. ``available``: nodes that can be had, by profile name.
    """

    turns_per_s: float
    max_nodes: int = 256
    headroom: float = 0.0
    spare: int = 0
    allow_outside_range: bool = False
    prices: Prices = Prices()
    available: dict[str, int] = {}


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of deployment: a scenario with its hardware, and storage NICs of each side beyond its profile's."""

    scenario: Scenario
    extra_snics: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        """Profiles and storage NICs, in words."""
        names = [
            f"{hardware.name} ({hardware.snic.count} storage {'NIC' if hardware.snic.count == 1 else 'NICs'})"
            if extra
            else hardware.name
            for (_, hardware), extra in zip(self.scenario.sides, self.extra_snics, strict=True)
        ]
        return names[0] if names[0] == names[1] else f"{names[0]} + {names[1]}"


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """What the store must hold and deliver at the demand.

    ``capacity_bytes``: the working set, KV of the agents that are under way. ``agent_time_s``, from arrival to the
    last turn, has unloaded times to first token, so both are lower bounds. ``nics``: storage NICs of all nodes.
    """

    capacity_bytes: float
    agent_time_s: float
    agents: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    nics: int


class Spare(msgspec.Struct, frozen=True, kw_only=True):
    """The rate with ``nodes`` nodes of a side down [turns/s]; 0 where the rest cannot serve."""

    nodes: int
    prefill_down_turns_per_s: float
    decode_down_turns_per_s: float
    meets_demand: bool


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulation says of a deployment at the demand: means [s]. ``refused``: it did not run, ``reason`` says
    why.
    """

    slo_met: bool
    ttft_s: float | None
    tpot_s: float | None
    turns_per_s: float
    steady: bool | None
    reason: str
    refused: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment that does what is asked. ``cost``: USD an hour, None without a price."""

    kind: Kind
    answer: Evaluation
    prefill_nodes: int
    decode_nodes: int
    cost: float | None
    gpus: int
    power: float | None
    headroom: float
    inside_range: bool
    storage: Storage
    spare: Spare
    confirmed: Confirmed | None = None
    lost_because: str = ""

    @property
    def nodes(self) -> int:
        """Nodes of both sides."""
        return self.prefill_nodes + self.decode_nodes

    @property
    def label(self) -> str:
        """Such as ``2P3D dgx-h200``."""
        return f"{self.prefill_nodes}P{self.decode_nodes}D {self.kind.name}"


class Miss(msgspec.Struct, frozen=True, kw_only=True):
    """The point of a kind that comes closest, and what stops it: ``stage`` is spare, range, rate, slo, memory or
    parallel. ``share``: its rate over what is asked.
    """

    kind: Kind
    stage: str
    share: float
    prefill_nodes: int | None
    decode_nodes: int | None
    reasons: tuple[Message, ...]


STAGES = ("spare", "range", "rate", "slo", "memory", "parallel")
"""What may stop a kind, nearest to an answer first."""


class Purchase(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: plans, best first; a miss for each kind without a plan, nearest first. ``points``: deployments that
    were evaluated. ``rejected``: plans that the simulation did not confirm. ``interrupted``: it was stopped before the
    end, so that plans without :class:`Confirmed` are as the steady model has them.
    """

    wanted: Wanted
    plans: tuple[Plan, ...]
    misses: tuple[Miss, ...]
    points: int
    rejected: tuple[Plan, ...] = ()
    interrupted: bool = False


def kinds(scenarios: Sequence[Scenario], *, mixed: bool = False, snic_counts: Iterable[int] = ()) -> tuple[Kind, ...]:
    """Kinds to search: each scenario, with ``mixed`` also the prefill side of each with the decode side of each other
    one, all of them with each number of storage NICs. Numbers that a profile's PCIe uplinks rule out are left out.
    """
    pairs = list(scenarios)
    if mixed:
        pairs += [
            msgspec.structs.replace(first, decode_hardware=second.decode_hardware)
            for first in scenarios
            for second in scenarios
            if first is not second
        ]
    counts = tuple(dict.fromkeys(snic_counts))
    if not counts:
        return tuple(Kind(scenario=scenario) for scenario in pairs)
    found = []
    for scenario in pairs:
        for count in counts:
            try:
                prefill, decode = (with_snics(hardware, count) for _, hardware in scenario.sides)
            except InputError:
                continue
            extra = (count - scenario.hardware.snic.count, count - scenario.decode_hardware.snic.count)
            changed = msgspec.structs.replace(scenario, hardware=prefill, decode_hardware=decode)
            found.append(Kind(scenario=changed, extra_snics=extra))
    return tuple(found)


def find_plans(
    found: Sequence[Kind], wanted: Wanted, *, splits: int = 1, progress: Callable[[float], None] | None = None
) -> Purchase:
    """The cheapest deployments of each kind, at most ``splits`` of each, ranked by cost, those without a price by GPU
    count behind them. ``progress`` is called with the share of the kinds that are done. Raises InputError for a demand
    or a number of nodes that cannot be searched.
    """
    check_demand_rate(wanted.turns_per_s)
    if not 2 <= wanted.max_nodes <= MOST_NODES:
        raise InputError("--max-nodes", f"{wanted.max_nodes} is not a number of nodes of 2 to {MOST_NODES:,}")
    plans: list[Plan] = []
    misses: list[Miss] = []
    points, known = 0, Known()
    for done, kind in enumerate(found):
        if progress is not None:
            progress(done / len(found))
        search = _Search(kind, wanted, known)
        chosen = search.cheapest(splits)
        points += search.evaluated
        plans += [plan_of(kind, wanted, p, d) for p, d in chosen]
        if not chosen:
            misses.append(search.miss())
    ranked = sorted(plans, key=rank)
    return Purchase(
        wanted=wanted,
        plans=tuple(with_reasons(ranked)),
        misses=tuple(sorted(misses, key=lambda miss: (STAGES.index(miss.stage), -miss.share))),
        points=points,
    )


def rank(plan: Plan) -> tuple[Any, ...]:
    """Order of plans: priced ones by cost, others by GPU count; of equals fewer nodes, then more head-room."""
    return (plan.cost is None, round(plan.cost or 0.0, 9), plan.gpus, plan.nodes, -plan.headroom, plan.kind.name)


class _Search:
    """The points of one kind in the order of their cost, evaluated as far as needed."""

    def __init__(self, kind: Kind, wanted: Wanted, known: Known) -> None:
        self.kind, self.wanted = kind, wanted
        self.needed = wanted.turns_per_s * (1 + wanted.headroom)
        prefill, decode = points_of(kind, wanted)
        weights = node_costs(kind, wanted.prices)
        gpus = [hardware.gpu.count for _, hardware in kind.scenario.sides]
        keys = np.stack(
            [
                np.round(prefill * weights[0] + decode * weights[1], 9),
                prefill * gpus[0] + decode * gpus[1],
                prefill + decode,
            ]
        )
        order = np.lexsort((prefill, *keys[::-1]))
        self.prefill, self.decode, keys = prefill[order], decode[order], keys[:, order]
        # place in the order of cost, GPUs and nodes, as plans are ranked: points of one place differ in their rate
        self.place = np.cumsum(np.any(np.diff(keys, axis=1, prepend=keys[:, :1]) != 0, axis=0))
        self.bounds = bounds(kind.scenario, self.prefill, self.decode, known)
        count = len(order)
        self.turns, self.bottleneck = np.full(count, np.nan), np.full(count, "", dtype="<U24")
        self.meets_slo, self.inside, self.lacks_spare = (np.zeros(count, dtype=bool) for _ in range(3))

    @property
    def evaluated(self) -> int:
        return int((~np.isnan(self.turns)).sum())

    def _evaluate(self, members: NDArray[np.int64]) -> None:
        """The exact answers of some points, each once."""
        members = members[np.isnan(self.turns[members])]
        if len(members):
            grid = evaluate_grid(self.kind.scenario, self.prefill[members], self.decode[members], basic=False)
            self.turns[members], self.bottleneck[members] = grid.turns_per_s, grid.bottleneck
            self.meets_slo[members], self.inside[members] = grid.meets_slo, grid.inside_range

    def cheapest(self, splits: int) -> list[tuple[int, int]]:
        """The cheapest good points; of equal cost and size those with more head-room."""
        likely = np.flatnonzero(self._likely() & (self.bounds.turns_per_s >= self.needed))
        chosen: list[int] = []
        for members in self._chunks(likely):
            self._evaluate(members)
            chosen += self._chosen(members, splits - len(chosen))
            if len(chosen) >= splits:
                break
        return [(int(self.prefill[i]), int(self.decode[i])) for i in chosen]

    def _likely(self) -> NDArray[np.bool_]:
        """Points that the bounds of their sides do not rule out, whatever rate they carry."""
        likely = self.bounds.fits & self.bounds.maybe_slo
        return likely if self.wanted.allow_outside_range else likely & self.bounds.maybe_inside

    def _chunks(self, points: NDArray[np.int64]) -> Iterable[NDArray[np.int64]]:
        """Points in ever larger chunks. Those of one place stay together, so that the one with most head-room is
        found.
        """
        start, size = 0, FIRST_POINTS
        while start < len(points):
            end = min(start + size, len(points))
            end = int(np.searchsorted(self.place[points], self.place[points[end - 1]], side="right"))
            yield points[start:end]
            start, size = end, GROWTH * size

    def _chosen(self, members: NDArray[np.int64], splits: int) -> list[int]:
        """The first good points of a chunk, by place and head-room."""
        good = self.meets_slo[members] & (self.turns[members] >= self.needed)
        if not self.wanted.allow_outside_range:
            good &= self.inside[members]
        members = members[good]
        members = members[np.lexsort((-self.turns[members], self.place[members]))]
        if not self.wanted.spare:
            return [int(i) for i in members[:splits]]
        chosen: list[int] = []
        for batch in np.split(members, range(SPARE_POINTS, len(members), SPARE_POINTS)):
            alive = survives(self.kind.scenario, self.prefill[batch], self.decode[batch], self.wanted)
            self.lacks_spare[batch[~alive]] = True
            chosen += batch[alive].tolist()
            if len(chosen) >= splits:
                break
        return chosen[:splits]

    def miss(self) -> Miss:
        """The point that comes closest: as far along the stages as any, then of the highest rate, then the cheapest.
        Of those that carry the demand the cheapest comes first.
        """
        if not len(self.place):
            sides = {hardware.name for _, hardware in self.kind.scenario.sides}
            available = self.wanted.available.items()
            limits = [message("miss.limit", nodes=n, hardware=name) for name, n in available if name in sides]
            why = message("miss.none_left", limits=tuple(limits) or (message("miss.no_node"),))
            return Miss(kind=self.kind, stage="rate", share=0.0, prefill_nodes=None, decode_nodes=None, reasons=(why,))
        stage, best = self._nearest()
        p, d, turns = int(self.prefill[best]), int(self.decode[best]), float(np.nan_to_num(self.turns[best]))
        fault = self.bounds.error[best]
        return Miss(
            kind=self.kind,
            stage=stage,
            share=turns / self.needed,
            prefill_nodes=p,
            decode_nodes=d,
            reasons=(fault,) if stage == "parallel" else self._reasons(stage, p, d, turns, str(self.bottleneck[best])),
        )

    def _nearest(self) -> tuple[str, int]:
        """The stage that is reached, and the point that reaches it."""
        if self.lacks_spare.any():
            return "spare", int(np.flatnonzero(self.lacks_spare)[0])
        slo = self.bounds.fits & self.bounds.maybe_slo
        for members in self._chunks(np.flatnonzero(slo & (self.bounds.turns_per_s >= self.needed))):
            self._evaluate(members)
            carried = members[self.meets_slo[members] & (self.turns[members] >= self.needed)]
            if len(carried):
                return "range", int(carried[0])
        likely = (("rate", self._likely(), True), ("rate", slo, False), ("slo", self.bounds.fits, False))
        for stage, points, inside in likely:
            best = self._fastest(np.flatnonzero(points), needs_slo=stage == "rate", inside=inside)
            if best is not None:
                return stage, best
        no_fault = np.flatnonzero(self.bounds.error == "")
        if len(no_fault):
            return "memory", int(no_fault[np.argmax(np.minimum(self.prefill, self.decode)[no_fault])])
        return "parallel", 0

    def _fastest(self, points: NDArray[np.int64], *, needs_slo: bool, inside: bool) -> int | None:
        """The point of the highest rate, the cheapest of equals: looked for where the bounds are highest."""
        points = points[np.argsort(-self.bounds.turns_per_s[points], kind="stable")]
        most, best, start, size = -1.0, None, 0, FIRST_POINTS
        while start < len(points) and self.bounds.turns_per_s[points[start]] >= most:
            members = points[start : start + size]
            self._evaluate(members)
            good = np.ones(len(members), dtype=bool)
            if needs_slo:
                good &= self.meets_slo[members]
                if inside and not self.wanted.allow_outside_range:
                    good &= self.inside[members]
            for i in members[good].tolist():
                if self.turns[i] > most or (self.turns[i] == most and best is not None and i < best):
                    most, best = float(self.turns[i]), i
            start, size = start + size, GROWTH * size
        return best

    def _reasons(self, stage: str, p: int, d: int, turns: float, bottleneck: str) -> tuple[Message, ...]:
        scenario, wanted = self.kind.scenario, self.wanted
        name = f"{p}P{d}D"
        if stage == "spare":
            down = message("miss.one_node") if wanted.spare == 1 else message("miss.nodes", nodes=wanted.spare)
            return (message("miss.spare", split=name, down=down, most=wanted.max_nodes),)
        if stage == "rate":
            bound = message("miss.bound", resource=title(bottleneck)) if bottleneck else ""
            limit = min((wanted.available.get(h.name, wanted.max_nodes) for _, h in scenario.sides), default=0)
            up_to = message("miss.up_to", nodes=wanted.max_nodes)
            where = up_to if limit >= wanted.max_nodes else message("miss.available")
            share = turns / self.needed
            return (message("miss.rate", turns=turns, split=name, share=share, bound=bound, where=where),)
        if stage == "memory":
            setup = prepare(scenario, p, d)
            return tuple(misfits(setup, build(setup, scenario.settings.mode)).values())
        reasons = evaluate(without_demand(scenario), p, d).reasons
        if stage == "range":
            return (message("miss.range", split=name, reasons=reasons),)
        return tuple(reason for reason in reasons if reason.code in ("reason.ttft", "reason.tpot"))


def points_of(kind: Kind, wanted: Wanted) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Node counts of both sides that may be tried: as many as are allowed and can be had."""
    scenario, most = kind.scenario, wanted.max_nodes - 1
    sides = [hardware for _, hardware in scenario.sides]
    limits = [min(most, wanted.available.get(hardware.name, most)) for hardware in sides]
    counts = [np.arange(1, limit + 1, dtype=np.int64) for limit in limits]
    prefill, decode = (grid.ravel() for grid in np.meshgrid(*counts, indexing="ij"))
    most_together = wanted.max_nodes
    if sides[0].name == sides[1].name:
        most_together = min(most_together, wanted.available.get(sides[0].name, most_together))
    kept = prefill + decode <= most_together
    return prefill[kept], decode[kept]


def without_demand(scenario: Scenario) -> Scenario:
    """The scenario with no demand of its own, since the question has one."""
    from dualplan.spec.scenario import Demand

    return msgspec.structs.replace(scenario, settings=msgspec.structs.replace(scenario.settings, demand=Demand()))


def node_costs(kind: Kind, prices: Prices) -> tuple[float, float]:
    """What the search minimises for a prefill and a decode node: USD an hour, or GPUs where a price is missing."""
    sides = [hardware for _, hardware in kind.scenario.sides]
    costs = [node_price(hardware, prices, extra) for hardware, extra in zip(sides, kind.extra_snics, strict=True)]
    if costs[0] is None or costs[1] is None:
        return float(sides[0].gpu.count), float(sides[1].gpu.count)
    return costs[0], costs[1]


def priced(kind: Kind, prices: Prices) -> bool:
    """Whether both kinds of nodes have an hourly price."""
    return all(node_price(hardware, prices) is not None for _, hardware in kind.scenario.sides)


def down_rates(scenario: Scenario, prefill: Any, decode: Any, spare: int) -> tuple[Floats, Floats]:
    """Rates with ``spare`` nodes of the prefill or of the decode side down [turns/s], 0 where none of a side is left,
    or the rest does not hold the weights or keep the SLO.
    """
    rates = []
    for p, d in ((prefill - spare, decode), (prefill, decode - spare)):
        rate = np.zeros(len(p))
        left = (p > 0) & (d > 0)
        if left.any():
            grid = evaluate_grid(scenario, p[left], d[left], basic=False)
            rate[left] = np.where(grid.fits & grid.meets_slo, grid.turns_per_s, 0.0)
        rates.append(rate)
    return rates[0], rates[1]


def survives(
    scenario: Scenario, prefill: NDArray[np.int64], decode: NDArray[np.int64], wanted: Wanted
) -> NDArray[np.bool_]:
    """Which points meet the demand with ``wanted.spare`` nodes of either side down."""
    first, second = down_rates(scenario, prefill, decode, wanted.spare)
    kept: NDArray[np.bool_] = np.minimum(first, second) >= wanted.turns_per_s
    return kept


def plan_of(kind: Kind, wanted: Wanted, prefill_nodes: int, decode_nodes: int) -> Plan:
    """A deployment with all figures at the demand."""
    settings = kind.scenario.settings
    demand = msgspec.structs.replace(settings.demand, arrival_rate=None, turn_rate=wanted.turns_per_s)
    changed = msgspec.structs.replace(settings, demand=demand, prefill_nodes=prefill_nodes, decode_nodes=decode_nodes)
    scenario = msgspec.structs.replace(kind.scenario, settings=changed)
    answer = evaluate(scenario)
    sides = [(hardware, n) for (_, hardware), n in zip(scenario.sides, (prefill_nodes, decode_nodes), strict=True)]
    powers = [hardware.cost.power for hardware, _ in sides]
    costs = node_costs(kind, wanted.prices)
    spare = max(wanted.spare, 1)
    down = down_rates(kind.scenario, np.array([prefill_nodes]), np.array([decode_nodes]), spare)
    return Plan(
        kind=msgspec.structs.replace(kind, scenario=scenario),
        answer=answer,
        prefill_nodes=prefill_nodes,
        decode_nodes=decode_nodes,
        cost=prefill_nodes * costs[0] + decode_nodes * costs[1] if priced(kind, wanted.prices) else None,
        gpus=sum(n * hardware.gpu.count for hardware, n in sides),
        power=None if None in powers else sum(n * (hardware.cost.power or 0.0) for hardware, n in sides),
        headroom=answer.turns_per_s / wanted.turns_per_s - 1,
        inside_range=answer.ranges.all_traffic.contains(Fraction(prefill_nodes, decode_nodes)),
        storage=storage_needs(answer, wanted.turns_per_s, sides),
        spare=Spare(
            nodes=spare,
            prefill_down_turns_per_s=float(down[0][0]),
            decode_down_turns_per_s=float(down[1][0]),
            meets_demand=bool(min(down[0][0], down[1][0]) >= wanted.turns_per_s),
        ),
    )


def storage_needs(answer: Evaluation, turns_per_s: float, sides: Sequence[tuple[Hardware, int]]) -> Storage:
    """What the store must hold and deliver at a turn rate."""
    scenario = answer.scenario
    agents_per_s, time = turns_per_s / mean_turns(scenario.workload), agent_time(answer)
    stored = 0.0 if scenario.settings.mode == "oracle" else 1.0
    per_token = kv_total_bytes_per_token(scenario.model, answer.demand.kv_format)
    read, written = store_traffic(answer)
    return Storage(
        capacity_bytes=stored * working_set_bytes(agents_per_s, time, agent_tokens(scenario.workload), per_token),
        agent_time_s=time,
        agents=agents_in_flight(agents_per_s, time),
        read_bytes_per_s=turns_per_s * read,
        write_bytes_per_s=turns_per_s * written,
        nics=sum(hardware.snic.count * n for hardware, n in sides),
    )
