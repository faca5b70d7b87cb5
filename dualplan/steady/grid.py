"""Many P/D points at once: the steady rate and verdict over arrays of node counts, by the same equations.

Points that share a parallelism share the demand of a turn; only node counts vary, so the resources become arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.errors import InputError
from dualplan.messages import Message, message
from dualplan.model.throughput_arrays import Floats, level, lowest_point
from dualplan.model.traffic import Path
from dualplan.spec.choices import SINGLE_SIDED
from dualplan.spec.fitted_sets import Fitted, fitted
from dualplan.spec.scenario import Scenario
from dualplan.steady.latencies import tpot_at, unloaded_ttft
from dualplan.steady.problem import Problem, build
from dualplan.steady.ranges import all_traffic_ranges
from dualplan.steady.rate import storage_positions, uses
from dualplan.steady.reasons import DEMAND, TPOT, TTFT, misfits, no_room, outside, range_empty
from dualplan.steady.setup import Host, Setup, demand_turns_per_s, hosting, prepare, setup_of
from dualplan.steady.stacked_hardware import picked

if TYPE_CHECKING:
    from dualplan.model.closed_form_arrays import RangeArrays


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """One entry a point. ``bottleneck``: names; ``decode_read_share``: NaN in modes without a choice.

    ``meets_slo``: whether unloaded TTFT and the TPOT of a lone sequence keep the SLO of the scenario. ``range_lower``
    and ``range_upper``: the P/D range with all traffic, NaN where nothing sets a bound or the range is empty, and the
    names of what sets them. ``basic_turns_per_s``: the rate under mode basic. ``why_not``: messages why a point is not
    feasible, in a few words; None where it is. ``error``: messages why a point has no answer (its node counts cannot
    host a given parallelism), empty where it has one.
    """

    prefill_nodes: NDArray[np.int64]
    decode_nodes: NDArray[np.int64]
    turns_per_s: Floats
    decode_read_share: Floats
    bottleneck: NDArray[np.str_]
    inside_range: NDArray[np.bool_]
    fits: NDArray[np.bool_]
    meets_slo: NDArray[np.bool_]
    range_lower: Floats
    range_upper: Floats
    lower_constraint: NDArray[np.str_]
    upper_constraint: NDArray[np.str_]
    basic_turns_per_s: Floats
    ttft_unloaded_s: Floats
    tpot_s: Floats
    why_not: NDArray[np.object_]
    error: NDArray[np.object_]


def evaluate_grid(scenario: Scenario, prefill_nodes: Any, decode_nodes: Any, *, basic: bool = True) -> Grid:
    """The steady answer of every (prefill_nodes[i], decode_nodes[i]); integer arrays of one length.

    Hardware numbers of the scenario may be arrays of that length (see dualplan.steady.stacked_hardware). Nodes that
    differ (``variants``) are not looked at. Without ``basic`` the rate of that mode is left at 0, which takes less
    time.
    """
    if scenario.mix:
        raise InputError("mix", "several models or workloads are answered point by point")
    prefill = np.asarray(prefill_nodes, dtype=np.int64)
    decode = np.asarray(decode_nodes, dtype=np.int64)
    count = len(prefill)
    grid = Grid(
        prefill_nodes=prefill,
        decode_nodes=decode,
        turns_per_s=np.zeros(count),
        decode_read_share=_unknown(count),
        bottleneck=_names(count),
        inside_range=np.zeros(count, dtype=bool),
        fits=np.zeros(count, dtype=bool),
        meets_slo=np.zeros(count, dtype=bool),
        range_lower=_unknown(count),
        range_upper=_unknown(count),
        lower_constraint=_names(count),
        upper_constraint=_names(count),
        basic_turns_per_s=np.zeros(count),
        ttft_unloaded_s=_unknown(count),
        tpot_s=_unknown(count),
        why_not=np.full(count, None, dtype=object),
        error=np.full(count, "", dtype=object),
    )
    for setup, members in _groups(scenario, prefill, decode, grid.error):
        _fill(grid, setup, members, basic)
    return grid


def _unknown(count: int) -> Floats:
    return np.full(count, np.nan)


def _names(count: int) -> NDArray[np.str_]:
    return np.full(count, "", dtype="<U24")


def _fill(grid: Grid, setup: Setup, members: NDArray[np.int64], with_basic: bool) -> None:
    """The answers of the points of one parallelism."""
    slo, mode, count = setup.scenario.settings.slo, setup.scenario.settings.mode, len(members)
    problem = build(setup, mode)
    found = all_traffic_ranges(setup, problem, count)
    grid.range_lower[members], grid.range_upper[members] = found.lower, found.upper
    grid.lower_constraint[members], grid.upper_constraint[members] = found.lower_constraint, found.upper_constraint
    ratios = grid.prefill_nodes[members] / grid.decode_nodes[members]
    grid.inside_range[members] = found.contains(ratios)
    missing = misfits(setup, problem)
    grid.fits[members] = not missing
    turns, split = np.zeros(count), np.zeros(count)
    if missing:
        grid.bottleneck[members] = f"{next(iter(missing))}_hbm"
    else:
        turns, split, binding = _rates(problem, count)
        grid.turns_per_s[members] = turns
        if with_basic:
            basic = turns if mode == "basic" else _rates(build(setup, "basic"), count)[0]
            grid.basic_turns_per_s[members] = basic
        grid.bottleneck[members] = np.array([resource.name for resource in problem.resources])[binding]
    grid.decode_read_share[members] = np.nan if mode in SINGLE_SIDED else split
    ttft = unloaded_ttft(setup, problem.demand, mode, split)
    grid.ttft_unloaded_s[members] = ttft
    grid.tpot_s[members] = _tpot(setup, problem, turns)
    late = np.broadcast_to(False if slo.ttft is None else ttft > slo.ttft, count)
    grid.meets_slo[members] = ~late & (not problem.tpot_unreachable)
    wanted = demand_turns_per_s(setup.scenario)
    faults = [(np.full(count, True), no_room(side)) for side in missing]
    if not missing:
        faults += _range_faults(found, ratios)
        faults += [] if wanted is None else [(turns < wanted, DEMAND)]
        faults += [(late, TTFT), (np.full(count, problem.tpot_unreachable), TPOT)]
    grid.why_not[members] = _joined(faults, count)


def _range_faults(found: RangeArrays, ratios: Floats) -> list[tuple[NDArray[np.bool_], Message]]:
    """Where P/D is not in its range, and why."""
    faults = []
    inside = found.contains(ratios)
    if inside.all():
        return []
    for number, (names, crossing) in enumerate(found.causes):
        faults.append((found.cause == number, range_empty(names, crossing=crossing)))
    below = ~inside & ~found.empty & (ratios < found.lower)
    for name in np.unique(found.lower_constraint[below]).tolist():
        faults.append((below & (found.lower_constraint == name), outside("below", name)))
    above = ~inside & ~found.empty & ~below
    for name in np.unique(found.upper_constraint[above]).tolist():
        faults.append((above & (found.upper_constraint == name), outside("above", name)))
    return faults


def _joined(faults: Sequence[tuple[NDArray[np.bool_], Message]], count: int) -> NDArray[np.object_]:
    """The messages that hold for each point, None where none does; every combination is one tuple."""
    codes = np.zeros(count, dtype=np.int64)
    for bit, (where, _) in enumerate(faults):
        codes |= where.astype(np.int64) << bit
    known, which = np.unique(codes, return_inverse=True)
    combined = np.empty(len(known), dtype=object)
    for number, code in enumerate(known.tolist()):
        combined[number] = tuple(fault for bit, (_, fault) in enumerate(faults) if code >> bit & 1) or None
    return np.asarray(combined[which])


def _tpot(setup: Setup, problem: Problem, turns: Floats) -> Any:
    """Time per output token at the rate that is asked for, or at the highest one."""
    wanted = demand_turns_per_s(setup.scenario)
    return tpot_at(setup, problem.demand, turns if wanted is None else np.minimum(wanted, turns))


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


def _groups(
    scenario: Scenario, prefill: NDArray[np.int64], decode: NDArray[np.int64], error: NDArray[np.object_]
) -> list[tuple[Setup, NDArray[np.int64]]]:
    """Points that share a parallelism, as one setup with arrays of node counts; ``error`` is filled for the others."""
    fit = fitted(scenario)
    prefill_hosts, prefill_kinds = _hosts(scenario, fit, "prefill", prefill, error)
    decode_hosts, decode_kinds = _hosts(scenario, fit, "decode", decode, error)
    width = len(decode_hosts) + 1
    good = np.flatnonzero(error == "")
    if not len(good):
        return []
    codes, where = np.unique(prefill_kinds[good] * width + decode_kinds[good], return_inverse=True)
    order, ends = np.argsort(where, kind="stable"), np.cumsum(np.bincount(where, minlength=len(codes)))
    groups = []
    for code, members in zip(codes.tolist(), np.split(good[order], ends[:-1]), strict=True):
        of_prefill, of_decode = prefill_hosts[code // width], decode_hosts[code % width]
        nodes = (prefill[members].astype(float), decode[members].astype(float))
        groups.append((setup_of(picked(scenario, members), fit, nodes, of_prefill, of_decode), members))
    return groups


def lines_of(fault: InputError) -> Message:
    """Why nodes cannot host a parallelism."""
    return message("list.lines", lines=fault.messages or fault.problems)


def _hosts(
    scenario: Scenario, fit: Fitted | None, side: Path, nodes: NDArray[np.int64], error: NDArray[np.object_]
) -> tuple[list[Host], NDArray[np.int64]]:
    """The kinds of parallelism of a side, and which kind each point has."""
    counts, where = np.unique(nodes, return_inverse=True)
    found: list[Host] = []
    known: dict[tuple[int, int], int] = {}
    kinds = np.zeros(len(counts), dtype=np.int64)
    for index, count in enumerate(counts.tolist()):
        try:
            host = hosting(scenario, side, count, fit)
        except InputError as fault:
            error[(where == index) & (error == "")] = lines_of(fault)
            continue
        # the number of replicas, dp, follows from the node count and changes nothing about a turn
        kinds[index] = known.setdefault((host[0].ep, host[0].tp), len(found))
        if kinds[index] == len(found):
            found.append(host)
    return found, kinds[where]


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
