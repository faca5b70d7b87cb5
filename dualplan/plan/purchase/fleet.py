"""A fleet: independent deployments of several kinds that meet a demand together at least cost. An integer programme.

With n_g deployments of each group g (a kind, P and D; rate r_g, cost c_g, a_gk nodes of profile k)

    minimise sum c_g n_g   subject to   sum r_g n_g >= demand,   sum a_gk n_g <= available_k,   n_g whole,

solved by branch and bound (HiGHS through scipy.optimize.milp). One profile without a limit needs no fleet: its single
deployments are searched exhaustively in dualplan.plan.purchase.search.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.errors import ConvergenceError, InputError
from dualplan.plan.purchase.search import Floats, Kind, Wanted, down_rates, node_costs, points_of, priced
from dualplan.steady.grid import evaluate_grid

CLOSE = 1e-3
"""A group is left out where smaller groups of the same kind give as much within this share; also the gap at which the
search for the cheapest fleet may stop.
"""

SECONDS = 20.0
"""Time after which the best fleet found so far is taken."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """``count`` deployments of ``prefill_nodes`` and ``decode_nodes`` of a kind, each of a rate [turns/s]."""

    kind: Kind
    count: int
    prefill_nodes: int
    decode_nodes: int
    turns_per_s: float
    cost: float


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest fleet. ``cost``: USD an hour, None where it was ranked by GPUs. ``gap``: how far, relatively, a
    cheaper one could still be. ``groups``: empty where no fleet meets the demand; ``most_turns_per_s`` is what all the
    nodes that can be had carry then.
    """

    groups: tuple[Group, ...]
    cost: float | None
    gpus: int
    turns_per_s: float
    gap: float
    most_turns_per_s: float | None = None


class _Columns(msgspec.Struct, frozen=True, kw_only=True):
    kinds: tuple[Kind, ...]
    of_kind: NDArray[np.int64]
    prefill: NDArray[np.int64]
    decode: NDArray[np.int64]
    turns: Floats
    cost: Floats


def cheapest_fleet(kinds: Sequence[Kind], wanted: Wanted) -> Fleet:
    """The cheapest fleet, groups of at most ``wanted.max_nodes`` nodes. With ``wanted.spare`` a group counts with what
    it carries with so many nodes of a side down.

    Prices must be known for all kinds or for none: kinds without one are left out where another has one. Raises
    ConvergenceError where the solver gives up.
    """
    with_price = [kind for kind in kinds if priced(kind, wanted.prices)]
    columns = _columns(tuple(with_price or kinds), wanted)
    needed = wanted.turns_per_s * (1 + wanted.headroom)
    nothing = Fleet(groups=(), cost=None, gpus=0, turns_per_s=0.0, gap=0.0)
    if not len(columns.turns):
        return nothing
    rows, limits = _stock(columns, wanted)
    counts, gap = _solve(columns.cost, columns.turns, needed, rows, limits)
    if counts is None:
        most, _ = _solve(-columns.turns, columns.turns, 0.0, rows, limits)
        carried = None if most is None else float(most @ columns.turns)
        return msgspec.structs.replace(nothing, most_turns_per_s=carried)
    chosen = np.flatnonzero(counts)
    groups = tuple(
        Group(
            kind=columns.kinds[columns.of_kind[i]],
            count=int(counts[i]),
            prefill_nodes=int(columns.prefill[i]),
            decode_nodes=int(columns.decode[i]),
            turns_per_s=float(columns.turns[i]),
            cost=float(columns.cost[i]),
        )
        for i in chosen[np.argsort(-(counts * columns.turns)[chosen], kind="stable")].tolist()
    )
    return Fleet(
        groups=groups,
        cost=float(counts @ columns.cost) if with_price else None,
        gpus=sum(g.count * _gpus(g) for g in groups),
        turns_per_s=float(counts @ columns.turns),
        gap=gap,
    )


def _gpus(group: Group) -> int:
    scenario = group.kind.scenario
    nodes = (group.prefill_nodes, group.decode_nodes)
    return sum(n * hardware.gpu.count for n, (_, hardware) in zip(nodes, scenario.sides, strict=True))


def _columns(kinds: tuple[Kind, ...], wanted: Wanted) -> _Columns:
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]] = []
    for kind in kinds:
        prefill, decode = points_of(kind, wanted)
        grid = evaluate_grid(kind.scenario, prefill, decode, basic=False)
        good = grid.fits & grid.meets_slo & (grid.turns_per_s > 0)
        if not wanted.allow_outside_range:
            good &= grid.inside_range
        prefill, decode, turns = prefill[good], decode[good], grid.turns_per_s[good]
        if wanted.spare and len(turns):
            turns = np.minimum(*down_rates(kind.scenario, prefill, decode, wanted.spare))
        weights = node_costs(kind, wanted.prices)
        cost = prefill * weights[0] + decode * weights[1]
        kept = _worth_having(cost, turns)
        parts.append((prefill[kept], decode[kept], turns[kept], cost[kept]))
    sizes = [len(part[0]) for part in parts]
    prefill, decode, turns, cost = (np.concatenate(column) for column in zip(*parts, strict=True))
    of_kind = np.repeat(np.arange(len(kinds)), sizes)
    return _Columns(kinds=kinds, of_kind=of_kind, prefill=prefill, decode=decode, turns=turns, cost=cost)


def _worth_having(cost: Floats, turns: Floats) -> NDArray[np.int64]:
    """Positions of points that carry more than every point, and but for CLOSE every sum of points, of no more cost."""
    order = np.lexsort((-turns, cost))
    kept: list[int] = []
    best = 0.0
    reached: dict[float, float] = {}
    for i in order.tolist():
        if turns[i] <= best * (1 + 1e-12):
            continue
        best = float(turns[i])
        key = round(float(cost[i]), 9)
        # the most that two smaller groups, or sums of groups, of no more cost carry together
        pairs = [reached[c] + reached.get(round(key - c, 9), 0.0) for c in reached if c < key]
        composed = max(pairs, default=0.0)
        if best > composed * (1 + CLOSE):
            kept.append(i)
        reached[key] = max(composed, best if kept and kept[-1] == i else 0.0)
    return np.array(kept, dtype=np.int64)


def _stock(columns: _Columns, wanted: Wanted) -> tuple[list[Floats], list[float]]:
    """Rows of nodes of each limited profile that a group takes."""
    rows, limits = [], []
    for name, limit in wanted.available.items():
        row = np.zeros(len(columns.turns))
        for index, kind in enumerate(columns.kinds):
            members = columns.of_kind == index
            for (_, hardware), nodes in zip(kind.scenario.sides, (columns.prefill, columns.decode), strict=True):
                if hardware.name == name:
                    row[members] += nodes[members]
        if row.any():
            rows.append(row)
            limits.append(float(limit))
    return rows, limits


def _solve(
    cost: Floats, turns: Floats, needed: float, rows: list[Floats], limits: list[float]
) -> tuple[NDArray[np.int64] | None, float]:
    from scipy.optimize import Bounds, LinearConstraint, milp

    scale = float(np.abs(cost).max()) or 1.0
    enough = np.ceil(needed / turns) + 1 if needed else np.full(len(turns), np.inf)
    constraints = [LinearConstraint(turns[None, :] / max(needed, 1e-300), lb=1.0)] if needed else []
    constraints += [LinearConstraint(row[None, :], ub=limit) for row, limit in zip(rows, limits, strict=True)]
    if not needed and not rows:
        raise InputError("--available", "no limit, so no most")
    found = milp(
        cost / scale,
        integrality=np.ones(len(cost)),
        bounds=Bounds(0, enough),
        constraints=constraints,
        options={"mip_rel_gap": CLOSE, "time_limit": SECONDS},
    )
    if found.status == 2:
        return None, 0.0
    if found.x is None:
        raise ConvergenceError(f"no fleet was found in {SECONDS:g} s ({found.message})")
    return np.round(found.x).astype(np.int64), float(found.mip_gap or 0.0)
