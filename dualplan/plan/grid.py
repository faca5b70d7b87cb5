"""Many P/D points at once: the steady rate and verdict over arrays of node counts, by the same equations.

Points that share a parallelism share the demand of a turn; only node counts vary, so the resources become arrays.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.model.throughput_arrays import Floats, level, lowest_point
from dualplan.plan.evaluate import misfits, unloaded_ttft
from dualplan.plan.problem import SINGLE_SIDED, Problem, Setup, build, prepare, storage_positions, uses
from dualplan.plan.ranges import all_traffic_range
from dualplan.spec.scenario import Scenario


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """One entry a point. ``bottleneck``: names; ``decode_read_share``: NaN in modes without a choice.

    ``meets_slo``: whether unloaded TTFT and the TPOT of a lone sequence keep the SLO of the scenario.
    """

    prefill_nodes: NDArray[np.int64]
    decode_nodes: NDArray[np.int64]
    turns_per_s: Floats
    decode_read_share: Floats
    bottleneck: NDArray[np.str_]
    inside_range: NDArray[np.bool_]
    fits: NDArray[np.bool_]
    meets_slo: NDArray[np.bool_]


def evaluate_grid(scenario: Scenario, prefill_nodes: Any, decode_nodes: Any) -> Grid:
    """The steady rate of every (prefill_nodes[i], decode_nodes[i]); integer arrays of one length."""
    prefill = np.asarray(prefill_nodes, dtype=np.int64)
    decode = np.asarray(decode_nodes, dtype=np.int64)
    turns, share = np.zeros(len(prefill)), np.full(len(prefill), np.nan)
    names = np.full(len(prefill), "", dtype="<U24")
    inside, fits, meets_slo = (np.zeros(len(prefill), dtype=bool) for _ in range(3))
    limit = scenario.settings.slo.ttft
    for setup, members in _groups(scenario, prefill, decode):
        problem = build(setup, scenario.settings.mode)
        found = all_traffic_range(setup, problem)
        ratio = prefill[members] / decode[members]
        low = -np.inf if found.lower is None else float(found.lower)
        high = np.inf if found.upper is None else float(found.upper)
        inside[members] = (not found.empty_because) & (low <= ratio * (1 + 1e-15)) & (ratio * (1 - 1e-15) <= high)
        missing = misfits(setup, problem)
        fits[members] = not missing
        if missing:
            names[members] = f"{next(iter(missing))}_hbm"
            continue
        turns[members], split, binding = _rates(problem, len(members))
        names[members] = np.array([resource.name for resource in problem.resources])[binding]
        ttft = unloaded_ttft(setup, problem, split)
        meets_slo[members] = (not problem.tpot_unreachable) & (True if limit is None else ttft <= limit)
        share[members] = np.nan if problem.mode in SINGLE_SIDED else split
    return Grid(
        prefill_nodes=prefill,
        decode_nodes=decode,
        turns_per_s=turns,
        decode_read_share=share,
        bottleneck=names,
        inside_range=inside,
        fits=fits,
        meets_slo=meets_slo,
    )


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The steady rate over P/D, one entry a ratio. ``bottleneck``: names."""

    pd_ratio: Floats
    turns_per_s: Floats
    bottleneck: NDArray[np.str_]


def ratio_curve(scenario: Scenario, prefill_nodes: int, decode_nodes: int, pd_ratio: Floats) -> Curve:
    """The steady rate of as many nodes at other P/D ratios, under the parallelism of the given split.

    Nodes may be fractions here: the curve shows where bottlenecks change, ``evaluate_grid`` what whole nodes give.
    """
    setup = prepare(scenario, prefill_nodes, decode_nodes)
    nodes = prefill_nodes + decode_nodes
    split = {"prefill_nodes": nodes * pd_ratio / (1 + pd_ratio), "decode_nodes": nodes / (1 + pd_ratio)}
    problem = build(msgspec.structs.replace(setup, **split), scenario.settings.mode)
    missing = misfits(setup, problem)
    if missing:
        none = np.zeros(len(pd_ratio))
        names = np.full(len(pd_ratio), f"{next(iter(missing))}_hbm")
        return Curve(pd_ratio=pd_ratio, turns_per_s=none, bottleneck=names)
    turns, _, binding = _rates(problem, len(pd_ratio))
    names = np.array([resource.name for resource in problem.resources])[binding]
    return Curve(pd_ratio=pd_ratio, turns_per_s=turns, bottleneck=names)


def _groups(scenario: Scenario, prefill: NDArray[np.int64], decode: NDArray[np.int64]) -> list[tuple[Setup, Any]]:
    """Points that share a parallelism, as one setup with arrays of node counts."""
    keys: dict[tuple[Any, ...], list[int]] = {}
    setups: dict[tuple[Any, ...], Setup] = {}
    sides = {
        "prefill": {int(n): prepare(scenario, int(n), int(decode.max(initial=1))) for n in np.unique(prefill)},
        "decode": {int(n): prepare(scenario, int(prefill.max(initial=1)), int(n)) for n in np.unique(decode)},
    }
    for index, (p, d) in enumerate(zip(prefill.tolist(), decode.tolist(), strict=True)):
        of_prefill, of_decode = sides["prefill"][p], sides["decode"][d]
        # the number of replicas, dp, follows from the node count and changes nothing about a turn
        degrees = of_prefill.prefill_parallel, of_decode.decode_parallel
        key = tuple((parallel.ep, parallel.tp) for parallel in degrees)
        keys.setdefault(key, []).append(index)
        if key not in setups:
            setups[key] = msgspec.structs.replace(
                of_prefill, decode_parallel=of_decode.decode_parallel, decode_memory=of_decode.decode_memory
            )
    groups = []
    for key, members in keys.items():
        chosen = np.array(members)
        nodes = {"prefill_nodes": prefill[chosen].astype(float), "decode_nodes": decode[chosen].astype(float)}
        groups.append((msgspec.structs.replace(setups[key], **nodes), chosen))
    return groups


def _rates(problem: Problem, count: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Turns/s, share of decode-read turns and index of the binding resource, for arrays of node counts."""
    found = uses(problem)
    starts = np.stack([np.broadcast_to(np.asarray(use.prefill, dtype=float), count) for use in found])
    slopes = np.stack([np.broadcast_to(np.asarray(use.decode - use.prefill, dtype=float), count) for use in found])
    share = np.zeros(count)
    if problem.mode not in SINGLE_SIDED:
        share = lowest_point(starts, slopes)
        top = (starts + share * slopes).max(axis=0)
        storage = storage_positions(found)
        low, high = level(starts, slopes, top)
        middle = starts + (low + high) / 2 * slopes
        share = np.clip(lowest_point(starts[storage], slopes[storage]), low, high)
        return 1 / top, share, (middle >= middle.max(axis=0) * (1 - 1e-12)).argmax(axis=0)
    values = starts + share * slopes
    top = values.max(axis=0)
    binding = (values >= top * (1 - 1e-12)).argmax(axis=0)
    return 1 / top, share, binding
