"""A workload fitted to a trace: distributions of all lengths, how they hang together, and its YAML text.

A session is a trajectory, a request outside of sessions a trajectory of one turn. What is context and what append
follows the trace's main accounting (:mod:`dualplan.trace.hits`). Where sessions have several turns, their first turns
stand apart. What a turn finds of the turn before, and how often a prompt gets shorter, is measured as
:mod:`dualplan.trace.generate` uses it. ``classes`` are the turns that a plan with the trace itself counts with, so that
a plan with the fit has the same bytes and GPU seconds.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.spec.distribution import QUANTILES, Distribution, Durations
from dualplan.spec.workload import Correlation, Figure, HitRate, Resets, Turn, Workload
from dualplan.trace.generate import normal_scores, regression
from dualplan.trace.hits import HitRates, context_tokens, hit_rates, main_accounting
from dualplan.trace.mix import turn_mix
from dualplan.trace.record import Bools, Floats, Ints, Trace

T = TypeVar("T")

DIGITS = 5
"""Significant digits of fitted figures."""

IN_TAIL = 3
"""A quantile is kept where at least so many values lie beyond it."""


def fit_workload(trace: Trace, name: str) -> Workload:
    """The workload that a trace is a sample of. Raises InputError where every prompt was there entirely."""
    accounting = main_accounting(trace)
    notes = [*trace.report.notes]
    order, starts = _trajectories(trace)
    context = context_tokens(trace, accounting)[order]
    append = trace.input_tokens[order] - context
    if not append.any():
        raise InputError(name, "no request has a token that is not cached, so there is nothing to plan for")
    counts = np.diff(np.append(np.flatnonzero(starts), len(order)))
    apart = accounting is not None and bool(append[starts].any() and append[~starts].any())
    later = ~starts if apart else np.ones(len(order), bool)
    waits = trace.waits_s
    rates = hit_rates(trace, accounting) if accounting else None
    if accounting is None:
        notes.append("nothing in the trace tells what is cached: every prompt is computed whole")
    if not len(waits):
        notes.append("the trace has no think times")
    lengths = {
        "turns": counts,
        "context": context[later],
        "append": append[later],
        "generated": trace.output_tokens[order],
        "first_context": context[starts] if apart else None,
        "first_append": append[starts] if apart else None,
    }
    fitted: dict[str, Any] = {
        key: _fitted(Distribution, key, values, notes) for key, values in lengths.items() if values is not None
    }
    block = trace.blocks.size if trace.blocks is not None and accounting == "block_hashes" else None
    turns = _Turns(
        context=context,
        append=append,
        generated=trace.output_tokens[order],
        counts=counts,
        later=later,
        resets=_resets(context + append, starts) if apart else np.zeros(len(order), bool),
    )
    return Workload(
        name=name,
        description=f"fitted to {trace.requests:,} requests in {len(counts):,} trajectories ({trace.report.format})",
        **fitted,
        think_time=_fitted(Durations, "think_time", waits, notes),
        correlation=_correlation(turns),
        carry_over=_carry_over(turns, block or 1) if apart else None,
        resets=_fitted_resets(turns, notes),
        block=rates.block_size if rates and rates.block_size and accounting == "session_growth" else 1,
        context_block=block,
        classes=_turn_classes(trace),
        hit_rate=HitRate(value=_round(rates.by_token), definition="by_token") if rates else None,
        measured=_figures(rates, trace),
        notes=tuple(notes),
        sources=(f"trace {name}: {trace.report.format}, {trace.report.format_because}",),
    )


def _trajectories(trace: Trace) -> tuple[Ints, Bools]:
    """Order of the requests trajectory by trajectory, and which of them are first turns [n]."""
    alone = trace.session < 0
    session = np.where(alone, trace.session.max() + 1 + np.arange(trace.requests), trace.session)
    order = np.lexsort((trace.turn, session))
    starts = np.ones(len(order), bool)
    starts[1:] = np.diff(session[order]) != 0
    return order, starts


class _Turns(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All turns, trajectory by trajectory; ``later``: those that ``context`` and ``append`` of the fit are about."""

    context: Ints
    append: Ints
    generated: Ints
    counts: Ints
    later: Bools
    resets: Bools


def _resets(prompt: Ints, starts: Bools) -> Bools:
    """Turns whose prompt is shorter than that of the turn before."""
    shorter: Bools = np.append(False, prompt[1:] < prompt[:-1])
    return shorter & ~starts


def _carry_over(turns: _Turns, block: int) -> float | None:
    """What turns find of the turn before, over all turns but resets; see :class:`dualplan.spec.workload.Workload`."""
    now = np.flatnonzero(turns.later & ~turns.resets)
    if not len(now):
        return None
    before = (turns.context[now - 1] + turns.append[now - 1]) // block * block
    more = float((turns.context[now] - before).sum())
    of = turns.generated[now - 1] if more >= 0 else turns.append[now]
    return _coefficient(more / of.sum()) if of.any() else 0.0


def _fitted_resets(turns: _Turns, notes: list[str]) -> Resets | None:
    there = turns.resets & (turns.append > 0)
    if not there.any():
        return None
    return Resets(
        share=_round(float(there.sum() / turns.later.sum())),
        context=_fitted(Distribution, "resets.context", turns.context[there], notes),
        append=_round(float(turns.append[there].mean())),
    )


def _turn_classes(trace: Trace) -> tuple[Turn, ...]:
    return tuple(
        Turn(
            weight=float(f"{turn.weight:.12g}"),
            **{name: float(f"{getattr(turn, name):.7g}") for name in ("context", "append", "generated")},
        )
        for turn in turn_mix(trace).turns
    )


def _fitted(kind: type[T], key: str, values: npt.NDArray[Any], notes: list[str]) -> T | float:
    """A distribution of some values; their mean where they are all equal, or no distribution of the kind fits them."""
    if not len(values):
        return 0.0
    known = _known(values)
    if known is None:
        return _round(float(values.mean()))
    try:
        return kind(**known)
    except InputError:
        notes.append(f"{key}: only the mean is kept, its quantiles and its mean fit no smooth distribution")
        return known["mean"]


def _known(values: npt.NDArray[Any]) -> dict[str, float] | None:
    """Mean, extremes and the quantiles that the number of values supports; None where all values are equal."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return None
    kept = {name: u for name, u in QUANTILES.items() if min(u, 1 - u) * len(values) >= IN_TAIL}
    # the n-th of N values stands for the probability (n - 1/2) / N, as it does where trajectories are dealt out
    quantiles = np.quantile(values, list(kept.values()), method="hazen") if kept else []
    found = {name: float(x) for name, x in zip(kept, quantiles, strict=True)}
    return {key: _round(x) for key, x in ({"mean": float(values.mean()), "min": low} | found | {"max": high}).items()}


def _correlation(turns: _Turns) -> Correlation | None:
    counts, later = turns.counts, turns.later
    if len(counts) == len(later):  # requests of their own
        pair = normal_scores(turns.append) @ normal_scores(turns.context) / len(later)
        return Correlation(append_context=_coefficient(pair)) if turns.context.any() else None
    session = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    position = np.arange(len(session)) - np.repeat(starts, counts)
    score, append_score = normal_scores(turns.context[later]), normal_scores(turns.append[later])
    if len(score) < 2:
        return None
    known = np.stack([normal_scores(position[later]), normal_scores(counts[session][later])])
    found, appends = known @ score / len(score), known @ append_score / len(score)
    weights, explained = regression(known, found)
    rest = score - weights @ known
    first = (turns.context + turns.append)[starts]
    return Correlation(
        turn_context=_coefficient(found[0]),
        turns_context=_coefficient(found[1]),
        session_context=_coefficient(_share_between(rest, session[later])) if explained < 1 else 0.0,
        append_context=_coefficient(append_score @ score / len(score)),
        turn_append=_coefficient(appends[0]),
        turns_append=_coefficient(appends[1]),
        turns_first=_coefficient(normal_scores(counts) @ normal_scores(first) / len(counts)),
    )


def _share_between(values: Floats, groups: Ints) -> float:
    """Share of the variance of ``values`` that lies between groups: the intraclass correlation of a one-way analysis of
    variance with unequal groups (0..1).
    """
    _, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    k, n = len(sizes), len(values)
    if k < 2 or n <= k:
        return 0.0
    means = np.bincount(index, weights=values) / sizes
    between = float((sizes * (means - values.mean()) ** 2).sum()) / (k - 1)
    within = float(((values - means[index]) ** 2).sum()) / (n - k)
    size = (n - float((sizes**2).sum()) / n) / (k - 1)
    return max(0.0, (between - within) / (between + (size - 1) * within)) if between > 0 else 0.0


def _figures(rates: HitRates | None, trace: Trace) -> tuple[Figure, ...]:
    source = "the trace"
    figures = [
        Figure(name="requests", value=trace.requests, source=source),
        Figure(name="input_tokens_mean", value=_round(float(trace.input_tokens.mean())), source=source),
    ]
    if rates:
        figures.append(Figure(name="hit_rate_by_token", value=_round(rates.by_token), source=source))
        if rates.by_block is not None:
            figures.append(Figure(name="hit_rate_by_block", value=_round(rates.by_block), source=source))
        figures.append(Figure(name="hit_rate_mean_of_ratios", value=_round(rates.mean_of_ratios), source=source))
    return tuple(figures)


def _coefficient(value: Any) -> float:
    return round(float(np.clip(value, -1, 1)), 3) + 0.0


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


# ---------------------------------------------------------------- text


def workload_yaml(workload: Workload) -> str:
    """The workload as a YAML file that reads back as the same workload. Times are in seconds."""
    import yaml

    document = msgspec.to_builtins(workload)
    defaults = msgspec.to_builtins(Workload(turns=1, context=0, append=1, generated=0))
    kept = {key: value for key, value in document.items() if value not in (None, "", []) and value != defaults.get(key)}
    for key in ("turns", "context", "append", "generated"):
        kept[key] = document[key]
    order = [key for key in document if key in kept]
    lines = []
    for key in order:
        value = _plain(_seconds(kept[key]) if key == "think_time" else kept[key])
        inline = True if isinstance(value, dict) else None if isinstance(value, list) else False
        text = yaml.safe_dump(value if inline else {key: value}, sort_keys=False, default_flow_style=inline, width=100)
        lines.append(f"{key}: {text}" if inline else text)
    return "".join(lines)


def _seconds(value: Any) -> Any:
    return {key: f"{x:.12g}s" for key, x in value.items()} if isinstance(value, dict) else f"{value:.12g}s"


def _plain(value: Any) -> Any:
    """Whole floats as integers, as people write them; exponents, which YAML 1.1 reads as text, are avoided."""
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items() if child is not None}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
