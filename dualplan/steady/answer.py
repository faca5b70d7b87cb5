"""The steady answer for one deployment: rate, loads, bottleneck, ranges, verdict. The one place that joins them.

Nothing here is an equation of its own: traffic, closed form, throughput and latency are in dualplan.model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from dualplan.errors import InputError
from dualplan.messages import Message, message
from dualplan.model.closed_form import pair_traffic_decode_read, pair_traffic_prefill_read
from dualplan.model.demand import SideMemory, TurnDemand
from dualplan.model.throughput import Rate
from dualplan.spec.choices import SINGLE_SIDED
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import Scenario
from dualplan.steady.latencies import tpot_at, unloaded_ttft
from dualplan.steady.problem import Problem, build
from dualplan.steady.ranges import Ranges, ranges
from dualplan.steady.rate import (
    Bottleneck,
    DemandCheck,
    Load,
    bottleneck_of,
    check_demand,
    loads_at,
    solve,
    utilization,
)
from dualplan.steady.reasons import in_few_words, misfits, no_room, reasons_of
from dualplan.steady.resources import cnic_bandwidth, storage_bandwidth
from dualplan.steady.setup import Setup, kv_floor, kv_share, prepare
from dualplan.steady.solved import ClassRate, Solved

if TYPE_CHECKING:
    from dualplan.steady.pairs import PairRates

MOST_NODES = 10_000
FEW_NODES = 24
SHOWN_SPLITS = 6


class Collectives(msgspec.Struct, frozen=True, kw_only=True):
    """Share of each side's compute NICs that collectives take at the predicted rate.

    ``kv_floor``: share that the arbiter guarantees KV traffic while all collective lanes are busy, by side; None where
    the profile has no QoS setting. ``kv_available``: what KV traffic can have at this collective load.
    """

    prefill: float
    decode: float
    origin: str
    kv_floor: tuple[float | None, float | None]
    kv_available: tuple[float, float]


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """One of the splits that were compared when the best one was asked for."""

    prefill_nodes: int
    decode_nodes: int
    feasible: bool
    turns_per_s: float
    bottleneck: str | None


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The steady answer. Rates in 1/s, times in s; ``decode_read_share`` is None in modes without a choice.

    ``pairs``: the flow problem over all pairs of nodes, where it was solved; ``turns_per_s`` is its rate if nodes of a
    side differ, else that of the closed form. ``classes``: of a mix; then ``scenario`` and ``demand`` hold the mean
    over the classes, and latencies are those of the slowest class. ``reasons``: why it is not feasible; ``why_not``:
    the same in a few words each.
    """

    scenario: Scenario
    prefill_nodes: int
    decode_nodes: int
    prefill_parallel: Parallel
    decode_parallel: Parallel
    demand: TurnDemand
    memory: dict[str, SideMemory]
    turns_per_s: float
    decode_read_share: float | None
    loads: tuple[Load, ...]
    bottleneck: Bottleneck
    ranges: Ranges
    collectives: Collectives
    balance: float
    speedup_over_basic: float | None
    ttft_unloaded_s: float
    tpot_s: float
    pair_traffic: tuple[float, float]
    closed_form_turns_per_s: float
    pairs: PairRates | None
    demand_check: DemandCheck | None
    feasible: bool
    reasons: tuple[Message, ...]
    why_not: tuple[Message, ...]
    splits: tuple[Split, ...] = ()
    classes: tuple[ClassRate, ...] = ()


def evaluate(
    scenario: Scenario, prefill_nodes: int | None = None, decode_nodes: int | None = None, *, check_flow: bool = False
) -> Evaluation:
    """The steady answer for a scenario; node counts given here replace its own. Raises InputError without node counts.

    A deployment that cannot hold its weights and a context has no rate: its turns per second are 0, and HBM binds.
    Where nodes of a side differ, the rate is that of the flow problem over all pairs of nodes; ``check_flow`` solves
    it beside the closed form in any case. Ranges are those of the usual nodes. Several models or workloads (``mix``)
    are answered by dualplan.steady.mix.
    """
    if scenario.mix:
        from dualplan.steady.mix import mixed

        if check_flow:
            raise InputError("--check-flow", "does not count with several models or workloads", "leave it out")
        return _answer(mixed(scenario, prefill_nodes, decode_nodes))
    setup = prepare(scenario, prefill_nodes, decode_nodes)
    problem = build(setup, scenario.settings.mode)
    missing = misfits(setup, problem)
    rate = Rate(0.0, 0.0, None) if missing else solve(problem)
    basic = rate if problem.mode == "basic" or missing else solve(build(setup, "basic"))
    pairs, basic_turns = None, basic.turns_per_s
    if (check_flow or scenario.variants) and rate.turns_per_s:
        from dualplan.steady.pairs import solve_pairs

        pairs = solve_pairs(setup, problem.mode, rate.decode_share)
        if scenario.variants:
            of_basic = pairs if problem.mode == "basic" else solve_pairs(setup, "basic", 0.0)
            basic_turns = of_basic.turns_per_s
    found = Solved(
        setup=setup,
        problem=problem,
        rate=rate,
        missing=missing,
        ranges=ranges(setup, problem),
        basic_turns_per_s=basic_turns,
        ttft=unloaded_ttft(setup, problem.demand, problem.mode, rate.decode_share),
    )
    return _answer(found, pairs)


def _answer(found: Solved, pairs: PairRates | None = None) -> Evaluation:
    """The answer from what was solved; ``pairs``: the flow problem, where nodes differ or it was asked for."""
    setup, problem, rate, missing = found.setup, found.problem, found.rate, found.missing
    scenario, closed_form, classes = setup.scenario, float(rate.turns_per_s or 0.0), found.classes
    turns, share = closed_form, None if problem.mode in SINGLE_SIDED else float(rate.decode_share)
    loads = loads_at(setup, problem, rate, linear=bool(classes))
    bottleneck = bottleneck_of(problem, rate, loads, missing)
    if pairs is not None and scenario.variants:
        turns, share = pairs.turns_per_s, pairs.decode_read_share
        loads = _pair_loads(pairs)
        bottleneck = _pair_bottleneck(pairs, loads, closed_form)
    check = check_demand(setup, turns)
    alone = float(tpot_at(setup, problem.demand, 0.0))
    reasons = [*reasons_of(setup, problem, found.ranges, check, ttft=found.ttft, lone_tpot=alone), *found.slow]
    tpot = tpot_at(setup, problem.demand, min(check.turns_per_s, turns) if check else turns)
    return Evaluation(
        scenario=scenario,
        prefill_nodes=setup.prefill_nodes,
        decode_nodes=setup.decode_nodes,
        prefill_parallel=setup.prefill_parallel,
        decode_parallel=setup.decode_parallel,
        demand=problem.demand,
        memory={"prefill": setup.prefill_memory, "decode": setup.decode_memory},
        turns_per_s=turns,
        decode_read_share=share,
        loads=loads,
        bottleneck=bottleneck,
        ranges=found.ranges,
        collectives=collectives_at(setup, problem, turns),
        balance=problem.balance,
        speedup_over_basic=turns / float(found.basic_turns_per_s) if found.basic_turns_per_s else None,
        ttft_unloaded_s=found.ttft,
        tpot_s=max((one.tpot_s for one in classes), default=float(tpot)),
        pair_traffic=pair_traffic_of(setup),
        closed_form_turns_per_s=closed_form,
        pairs=pairs,
        demand_check=check,
        feasible=not (missing or reasons),
        reasons=(*missing.values(), *reasons),
        # without room there is no rate, and nothing else to look at
        why_not=tuple(no_room(side) for side in missing) or tuple(map(in_few_words, reasons)),
        classes=classes,
    )


def best_node_split(scenario: Scenario, nodes: int, *, check_flow: bool = False) -> Evaluation:
    """The split of ``nodes`` with the highest rate among the feasible ones, or among all if none is. Of equals the
    fewest prefill nodes.
    """
    if nodes < 2:
        raise InputError("--nodes", f"{nodes} cannot be split", "at least 2: one prefill and one decode node")
    if nodes > MOST_NODES:
        raise InputError("--nodes", f"{nodes} is more than the {MOST_NODES:,} that are searched")
    answers = []
    faults: list[str] = []
    for prefill in _likely_splits(scenario, nodes):
        try:
            answers.append(evaluate(scenario, prefill, nodes - prefill))
        except InputError as error:  # a given parallelism that this split cannot host
            faults.extend(error.problems)
    if not answers:
        raise InputError("", problems=dict.fromkeys(faults))
    ranked = sorted(answers, key=lambda answer: (not answer.feasible, -answer.turns_per_s))
    best = ranked[0]
    if check_flow:
        best = evaluate(scenario, best.prefill_nodes, best.decode_nodes, check_flow=True)
    splits = tuple(
        Split(
            prefill_nodes=answer.prefill_nodes,
            decode_nodes=answer.decode_nodes,
            feasible=answer.feasible,
            turns_per_s=answer.turns_per_s,
            bottleneck=answer.bottleneck.resource,
        )
        for answer in ranked[:SHOWN_SPLITS]
    )
    return msgspec.structs.replace(best, splits=splits)


def _likely_splits(scenario: Scenario, nodes: int) -> Iterable[int]:
    """Prefill node counts worth a full evaluation: all of few, of many the best ones by the grid."""
    if nodes <= FEW_NODES or scenario.prefill_parallel or scenario.decode_parallel or scenario.mix:
        return range(1, nodes)
    from dualplan.steady.grid import evaluate_grid

    prefill = list(range(1, nodes))
    grid = evaluate_grid(scenario, prefill, [nodes - count for count in prefill])
    rank = sorted(
        range(len(prefill)), key=lambda i: (not (grid.fits[i] and grid.inside_range[i]), -grid.turns_per_s[i])
    )
    return sorted({prefill[i] for i in rank[:FEW_NODES]})


def _pair_loads(rates: PairRates) -> tuple[Load, ...]:
    """Loads by class of nodes, the NICs of a class together."""
    totals: dict[tuple[str, Message, str | None, str], tuple[float, float]] = {}
    for resource, label, load, capacity in rates.loads:
        detail = label
        if resource.detail:
            detail = message("detail.of_nodes", nodes=label, detail=resource.detail)
        key = (resource.name, detail, resource.side, resource.unit)
        before = totals.get(key, (0.0, 0.0))
        totals[key] = (before[0] + load, before[1] + capacity)
    return tuple(
        Load(
            name=name, side=side, unit=unit, load=load, capacity=room, utilization=utilization(load, room), detail=label
        )
        for (name, label, side, unit), (load, room) in totals.items()
    )


def _is_of(load: Load, label: Message) -> bool:
    """Whether a load is of these nodes, all of it or one of its parts."""
    return isinstance(load.detail, Message) and label in (load.detail, *dict(load.detail.values).values())


def _pair_bottleneck(rates: PairRates, loads: Iterable[Load], closed_form: float) -> Bottleneck:
    """The full link of the nodes that differ, else the one that holds back most turns.

    What alike nodes would gain stands for relieving it.
    """
    first = rates.binding[0]
    used = (load.utilization for load in loads if load.name == first.resource.name and _is_of(load, first.label))
    return Bottleneck(
        resource=first.resource.name,
        side=first.resource.side,
        utilization=max(used, default=1.0),
        detail=first.label,
        next="alike nodes",
        next_gain=closed_form / rates.turns_per_s - 1,
    )


def collectives_at(setup: Setup, problem: Problem, turns_per_s: float) -> Collectives:
    """Shares of the compute NICs that collectives take at a turn rate."""
    sides = (setup.scenario.hardware, setup.scenario.decode_hardware)
    if problem.given is not None:
        loads = (problem.given.prefill, problem.given.decode)
    else:
        sizes = (problem.amounts.prefill_collective, problem.amounts.decode_collective)
        nodes = (setup.prefill_nodes, setup.decode_nodes)
        loads = tuple(
            turns_per_s * size / (n * cnic_bandwidth(h)) for size, n, h in zip(sizes, nodes, sides, strict=True)
        )
    floors = tuple(None if hardware.qos is None else float(kv_floor(hardware)) for hardware in sides)
    return Collectives(
        prefill=loads[0],
        decode=loads[1],
        origin="derived" if problem.given is None else "given",
        kv_floor=(floors[0], floors[1]),
        kv_available=(float(kv_share(sides[0], loads[0])), float(kv_share(sides[1], loads[1]))),
    )


def pair_traffic_of(setup: Setup) -> tuple[float, float]:
    """Traffic between a GPU of one side and one of the other, by side that reads [B/s]."""
    prefill, decode = setup.scenario.hardware, setup.scenario.decode_hardware
    gpus = prefill.gpu.count, decode.gpu.count
    return (
        pair_traffic_prefill_read(storage_bandwidth(prefill), setup.decode_nodes, *gpus),
        pair_traffic_decode_read(storage_bandwidth(decode), setup.prefill_nodes, *gpus),
    )
