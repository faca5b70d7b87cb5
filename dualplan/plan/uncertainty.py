"""How sure a verdict is where inputs are not known exactly: samples, what decides, what to measure next.

Samples are a Latin hypercube over all uncertain values, which are independent. What a value is worth is said by Sobol
indices with the usual estimators (A. Saltelli et al., Computer Physics Communications 181 (2010) 259-270): with
samples A and B, and AB_i as A with value i from B,

    first order   S_i = mean(f(B) (f(AB_i) - f(A))) / V          the part of the variance V that goes if i is known
                  S_i = 1 - mean((f(B) - f(AB_i))^2) / (2 V)     the same, by Jansen
    total        ST_i = mean((f(A) - f(AB_i))^2) / (2 V)         the part that stays if all but i are known

The first form of S_i has the smaller error for values of little influence, and is exactly 0 for none; the second for
values of much, and is exactly 1 where nothing else matters. They are taken in the shares 1 - ST_i and ST_i. f is the
turn rate, and the verdict as 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.errors import InputError
from dualplan.model.closed_form import Constraint, feasible_range
from dualplan.spec.scenario import Scenario
from dualplan.spec.uncertain import Uncertain, uncertain_values, with_values
from dualplan.steady.latencies import unloaded_ttft
from dualplan.steady.problem import Problem, build
from dualplan.steady.ranges import saturated
from dualplan.steady.rate import check_demand, solve
from dualplan.steady.reasons import misfits
from dualplan.steady.resources import storage_bandwidth
from dualplan.steady.setup import prepare

Floats = NDArray[np.float64]

SAMPLES = 1000
MOST_SAMPLES = 100_000
INDEX_EVALUATIONS = 1500
"""Evaluations for indices, shared by the values."""

FEWEST = 64
"""Evaluations for the index of one value, at least."""

FAULTS = ("memory", "range", "demand", "ttft", "tpot")
"""What a sample may fail by."""

FAULT_TITLES = {
    "memory": "memory",
    "range": "the P/D range",
    "demand": "the demand",
    "ttft": "the TTFT",
    "tpot": "the TPOT",
}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The steady rate and verdict of one sample; ``faults``: names of FAULTS, none where it is feasible."""

    turns_per_s: float
    faults: tuple[str, ...]


class Influence(msgspec.Struct, frozen=True, kw_only=True):
    """What one uncertain value does. ``correlation``: rank correlation with the rate (its sign says which way).

    ``first`` and ``total``: Sobol indices of the rate, ``first_error`` the standard error of the former;
    ``verdict_total``: total index of the verdict, None where all samples agree. ``flips_at``: where the verdict changes
    while the others stay at their centres [``unit``]; None where it does not between the 0.5 and 99.5 % quantiles.
    ``feasible_above``: whether it is feasible above that value.
    """

    key: str
    text: str
    unit: str
    correlation: float
    first: float
    first_error: float
    total: float
    verdict_total: float | None
    flips_at: float | None
    feasible_above: bool | None


class Uncertainty(msgspec.Struct, frozen=True, kw_only=True):
    """How robust a verdict is. ``feasible_share`` of the samples, ``share_error`` its standard error; quantiles of the
    rate [turns/s]; ``failures``: share of the samples by fault. ``influences``: what decides comes first: the verdict
    where samples disagree, else the rate. ``decides`` and ``measure_next``: keys, None where nothing matters.
    """

    samples: int
    seed: int
    evaluations: int
    feasible_share: float
    share_error: float
    turns_per_s: dict[str, float]
    failures: dict[str, float]
    influences: tuple[Influence, ...]
    decides: str | None
    measure_next: str | None


def judge(scenario: Scenario, prefill_nodes: int, decode_nodes: int) -> Judged:
    """Rate and verdict alone, by the rules of dualplan.steady.answer."""
    setup = prepare(scenario, prefill_nodes, decode_nodes)
    problem = build(setup, scenario.settings.mode)
    memory = misfits(setup, problem)
    slo, faults = scenario.settings.slo, ["memory"] if memory else []
    rate = None if memory else solve(problem)
    turns = 0.0 if rate is None else float(rate.turns_per_s or 0.0)
    if not _inside_range(problem, scenario, prefill_nodes / decode_nodes):
        faults.append("range")
    check = check_demand(setup, turns)
    if check is not None and check.utilization > 1:
        faults.append("demand")
    share = rate.decode_share if rate else 0
    if slo.ttft is not None and unloaded_ttft(setup, problem.demand, problem.mode, share) > slo.ttft:
        faults.append("ttft")
    if problem.tpot_unreachable:
        faults.append("tpot")
    return Judged(turns_per_s=turns, faults=tuple(faults))


def _inside_range(problem: Problem, scenario: Scenario, pd_ratio: float) -> bool:
    """Whether a ratio lies in the range with all traffic, in floats: exact fractions of sampled values take longer and
    say the same.
    """
    read = problem.amounts.read
    if not read or problem.mode == "oracle":
        return True
    found = feasible_range(
        [
            Constraint(resource.name, resource.side, resource.nominal, resource.prefill / read, resource.decode / read)
            for resource in problem.resources
            if resource.in_range and resource.side is not None
        ],
        *saturated(problem, (storage_bandwidth(scenario.hardware), storage_bandwidth(scenario.decode_hardware))),
    )
    # a ratio on a bound is inside, whatever rounding says
    return found.contains(pd_ratio) or found.contains(pd_ratio * (1 + 1e-12)) or found.contains(pd_ratio * (1 - 1e-12))


def hypercube(count: int, dimensions: int, seed: int) -> Floats:
    """A Latin hypercube: ``count`` points of (0, 1)^dimensions, each of ``count`` equal classes of each dimension met
    once.
    """
    random = np.random.default_rng([seed, 6])
    classes = np.stack([random.permutation(count) for _ in range(dimensions)], axis=1)
    return np.clip((classes + random.random((count, dimensions))) / count, 1e-12, 1 - 1e-12)


def sobol_indices(at_a: Floats, at_b: Floats, at_mixed: Floats) -> tuple[Floats, Floats, Floats]:
    """First-order and total indices and the standard errors of the former, one entry a value.

    ``at_a``, ``at_b``: f at M points; ``at_mixed``: f at the points of A with value i from B, shape (values, M). All 0
    where f does not vary.
    """
    both = np.concatenate([at_a, at_b])
    variance = both.var()
    if not variance > 1e-18 * max(float(both.mean()) ** 2, 1e-300):
        nothing = np.zeros(len(at_mixed))
        return nothing, nothing, nothing
    total = ((at_a - at_mixed) ** 2).mean(axis=1) / (2 * variance)
    weight = np.clip(total, 0.0, 1.0)[:, None]
    # about the mean the products are small, so that their mean is exact
    products = (at_b - both.mean()) * (at_mixed - at_a) / variance
    terms = (1 - weight) * products + weight * (1 - (at_b - at_mixed) ** 2 / (2 * variance))
    return terms.mean(axis=1), total, terms.std(axis=1) / np.sqrt(len(at_a))


def assess(
    scenario: Scenario,
    prefill_nodes: int,
    decode_nodes: int,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Uncertainty:
    """Sample the uncertain values of a scenario. Raises InputError for numbers of samples out of range and for values
    that cannot be sampled.
    """
    values = uncertain_values(scenario)
    if not 2 <= samples <= MOST_SAMPLES:
        raise InputError("--samples", f"{samples} is not a number of 2 to {MOST_SAMPLES:,}")
    if scenario.variants:
        raise InputError("uncertain", "values are not sampled where nodes of a side differ (variants)")
    if not values:
        raise InputError("uncertain", "no value is uncertain", "give --uncertain KEY='0.68 +- 0.08'")
    points = hypercube(samples, len(values), seed)
    per_value = min(samples // 2, max(INDEX_EVALUATIONS // len(values), FEWEST))
    evaluations = samples + per_value * len(values)
    done = 0

    def run(rows: Floats) -> tuple[Floats, list[tuple[str, ...]]]:
        nonlocal done
        turns, faults = np.zeros(len(rows)), []
        for i, row in enumerate(rows):
            numbers = [value.quantile(float(u)) for value, u in zip(values, row, strict=True)]
            judged = judge(with_values(scenario, values, numbers), prefill_nodes, decode_nodes)
            turns[i] = judged.turns_per_s
            faults.append(judged.faults)
            done += 1
            if progress is not None:
                progress(done / evaluations)
        return turns, faults

    turns, faults = run(points)
    good = np.array([not fault for fault in faults], dtype=float)
    # A and B are two halves of the samples: rows of a hypercube are as good as independent
    first_half, second_half = points[:per_value], points[per_value : 2 * per_value]
    mixed_turns, mixed_good = np.zeros((len(values), per_value)), np.zeros((len(values), per_value))
    for i in range(len(values)):
        rows = first_half.copy()
        rows[:, i] = second_half[:, i]
        mixed_turns[i], mixed_faults = run(rows)
        mixed_good[i] = [not fault for fault in mixed_faults]
    part_a, part_b = slice(0, per_value), slice(per_value, 2 * per_value)
    first, total, error = sobol_indices(turns[part_a], turns[part_b], mixed_turns)
    share = float(good.mean())
    split = 0 < share < 1
    verdict = sobol_indices(good[part_a], good[part_b], mixed_good)[1] if split else None
    influences = []
    for i, value in enumerate(values):
        flips, above = _flip(scenario, values, i, prefill_nodes, decode_nodes)
        influences.append(
            Influence(
                key=value.key,
                text=value.text,
                unit=value.unit,
                correlation=rank_correlation(points[:, i], turns) if total[i] > 0 else 0.0,
                first=min(max(float(first[i]), 0.0), 1.0),
                first_error=float(error[i]),
                total=min(float(total[i]), 1.0),
                verdict_total=None if verdict is None else min(float(verdict[i]), 1.0),
                flips_at=flips,
                feasible_above=above,
            )
        )
    ranked = sorted(influences, key=lambda one: (-(one.verdict_total or 0.0), -one.total))
    top = ranked[0]
    p5, p50, p95 = np.percentile(turns, [5, 50, 95])
    return Uncertainty(
        samples=samples,
        seed=seed,
        evaluations=evaluations,
        feasible_share=share,
        share_error=float(np.sqrt(share * (1 - share) / samples)),
        turns_per_s={"p5": float(p5), "p50": float(p50), "p95": float(p95), "mean": float(turns.mean())},
        failures={name: sum(name in fault for fault in faults) / samples for name in FAULTS},
        influences=tuple(ranked),
        decides=top.key if (top.verdict_total or top.total) else None,
        measure_next=_measure(ranked),
    )


def _measure(ranked: Sequence[Influence]) -> str | None:
    """What to measure: what decides the verdict where samples disagree, else what carries most of the rate's variance
    by itself.
    """
    if ranked[0].verdict_total:
        return ranked[0].key
    best = max(ranked, key=lambda one: (one.first, one.total))
    return best.key if best.total > 0 else None


def _flip(
    scenario: Scenario, values: Sequence[Uncertain], index: int, prefill_nodes: int, decode_nodes: int
) -> tuple[float | None, bool | None]:
    """Where the verdict changes along one value while the others stay at their centres, by bisection."""
    centres = [value.centre for value in values]

    def feasible(u: float) -> bool:
        numbers = [*centres]
        numbers[index] = values[index].quantile(u)
        return not judge(with_values(scenario, values, numbers), prefill_nodes, decode_nodes).faults

    low, high = 0.005, 0.995
    at_low, at_high = feasible(low), feasible(high)
    if at_low == at_high:
        return None, None
    for _ in range(20):
        middle = (low + high) / 2
        if feasible(middle) == at_low:
            low = middle
        else:
            high = middle
    return values[index].quantile((low + high) / 2), at_high


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's rank correlation; 0 where one of them does not vary."""
    ranks = [_ranks(a), _ranks(b)]
    spread = [rank.std() for rank in ranks]
    if not all(spread):
        return 0.0
    return float(((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())).mean() / (spread[0] * spread[1]))


def _ranks(values: Floats) -> Floats:
    """Ranks, equal values sharing the mean of theirs."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: Floats = ends - (counts - 1) / 2
    return means[where]
