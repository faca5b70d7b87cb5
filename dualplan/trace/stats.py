"""The figures of a trace: lengths, sessions, arrivals, growth of the context, hit rates."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.trace.assemble import by_session
from dualplan.trace.hits import (
    Accounting,
    HitRates,
    available,
    context_tokens,
    growth_key,
    hit_rates,
    main_accounting,
)
from dualplan.trace.record import CachedFrom, Ints, Trace
from dualplan.trace.reuse import ReuseCurve, reuse_curve

PEAK_S = 60.0
"""Window of the peak arrival rate [s]."""


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """Mean, quantiles (linear between values) and extremes over ``count`` values."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    min: float
    max: float


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals of requests on one clock. ``interarrival_cv``: standard deviation over mean of the times between two
    requests; 1 for a Poisson process. None where there are too few requests or they have no common clock.
    """

    duration_s: float | None
    requests_per_s: float | None
    sessions_per_s: float | None
    peak_requests_per_s: float | None
    interarrival_cv: float | None
    because: str


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the requests whose turn, from 1, is in ``first..last`` [tokens]; None without a context accounting."""

    first: int
    last: int
    requests: int
    input_tokens: float
    output_tokens: float
    context_tokens: float | None
    append_tokens: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a trace. ``context_tokens`` is what is there from before under ``accounting``, ``append_tokens``
    the rest of the prompt. ``resets``: turns whose prompt is shorter than the one before of the same session and model.
    ``turn_gap_s``: time between the arrivals of a session's turns, service included.
    """

    requests: int
    sessions: int | None
    models: dict[str, int]
    zero_outputs: int
    resets: int | None
    input_tokens: Moments
    output_tokens: Moments
    context_tokens: Moments | None
    append_tokens: Moments | None
    turns_per_session: Moments | None
    think_time_s: Moments | None
    turn_gap_s: Moments | None
    arrivals: Arrivals
    growth: tuple[Growth, ...]
    accounting: Accounting | None
    hit_rates: dict[str, HitRates]
    cached_from: CachedFrom
    curve: ReuseCurve | None


def summarise(trace: Trace) -> Summary:
    """Compute all figures."""
    accounting = main_accounting(trace)
    context = context_tokens(trace, accounting) if accounting else None
    append = trace.input_tokens - context if context is not None else None
    sessions = len(np.unique(trace.session[trace.session >= 0])) if trace.has_sessions else None
    return Summary(
        requests=trace.requests,
        sessions=sessions,
        models=_models(trace),
        zero_outputs=int((trace.output_tokens == 0).sum()),
        resets=_resets(trace) if sessions else None,
        input_tokens=_moments(trace.input_tokens),
        output_tokens=_moments(trace.output_tokens),
        context_tokens=_optional(context),
        append_tokens=_optional(append),
        turns_per_session=_optional(_turn_counts(trace)) if sessions else None,
        think_time_s=_optional(trace.waits_s),
        turn_gap_s=_optional(_turn_gaps(trace)) if sessions else None,
        arrivals=_arrivals(trace, sessions),
        growth=_growth(trace, context) if sessions else (),
        accounting=accounting,
        hit_rates={
            name: hit_rates(trace, name)
            for name in ("block_hashes", "reported", "session_growth")
            if available(trace, name)
        },
        cached_from=trace.report.cached_from,
        curve=reuse_curve(trace),
    )


def _moments(values: npt.NDArray[Any]) -> Moments:
    p50, p90, p99 = np.percentile(values, (50, 90, 99)).tolist()
    return Moments(
        count=len(values),
        mean=float(values.mean()),
        p50=p50,
        p90=p90,
        p99=p99,
        min=float(values.min()),
        max=float(values.max()),
    )


def _optional(values: npt.NDArray[Any] | None) -> Moments | None:
    """Moments over the values that are known, None where none is."""
    if values is None or (values.strides == (0,) and len(values) and np.isnan(values[0])):
        return None
    if values.dtype.kind == "f":
        values = values[~np.isnan(values)]
    return _moments(values) if len(values) else None


def _models(trace: Trace) -> dict[str, int]:
    if not trace.models:
        return {}
    counts = np.bincount(trace.model[trace.model >= 0], minlength=len(trace.models)).tolist()
    return {name: count for name, count in zip(trace.models, counts, strict=True) if count}


def _turn_counts(trace: Trace) -> Ints:
    _, counts = np.unique(trace.session[trace.session >= 0], return_counts=True)
    return np.asarray(counts)


def _resets(trace: Trace) -> int:
    order, starts = by_session(growth_key(trace))
    fell = np.diff(trace.input_tokens[order]) < 0
    return int((fell & ~starts[1:] & (trace.session[order][1:] >= 0)).sum())


def _turn_gaps(trace: Trace) -> npt.NDArray[np.float64]:
    order, starts = by_session(trace.session)
    gaps = np.diff(trace.arrival_s[order])
    return gaps[~starts[1:] & (trace.session[order][1:] >= 0)]


def _arrivals(trace: Trace, sessions: int | None) -> Arrivals:
    def none(because: str) -> Arrivals:
        return Arrivals(
            duration_s=None,
            requests_per_s=None,
            sessions_per_s=None,
            peak_requests_per_s=None,
            interarrival_cv=None,
            because=because,
        )

    if trace.clock != "shared":
        return none("no common clock" if trace.clock == "session" else "the trace has no times")
    times = trace.arrival_s
    known = times[~np.isnan(times)]
    duration = float(known.max() - known.min())
    if len(known) < 2 or duration <= 0:
        return none("fewer than two requests at different times")
    rate, peak, cv, because = None, None, None, ""
    if len(known) == trace.requests:
        gaps = np.diff(times)
        rate = (trace.requests - 1) / duration
        cv = float(gaps.std() / gaps.mean()) if len(gaps) > 1 else None
        _, in_window = np.unique(times // PEAK_S, return_counts=True)
        peak = float(in_window.max()) / min(PEAK_S, duration)
    else:
        because = f"{trace.requests - len(known):,} requests have no time of their own"
    return Arrivals(
        duration_s=duration,
        requests_per_s=rate,
        sessions_per_s=sessions / duration if sessions else None,
        peak_requests_per_s=peak,
        interarrival_cv=cv,
        because=because,
    )


def _growth(trace: Trace, context: Ints | None) -> tuple[Growth, ...]:
    """Turns 1, 2, 3-4, 5-8, 9-16 and so on."""
    there = trace.session >= 0
    group = np.ceil(np.log2(trace.turn[there] + 1)).astype(np.int64)
    counts = np.bincount(group)

    def means(values: Ints) -> list[float]:
        averages = np.bincount(group, weights=values[there]) / np.maximum(counts, 1)
        return [float(average) for average in averages]

    prompts, outputs = means(trace.input_tokens), means(trace.output_tokens)
    contexts = means(context) if context is not None else None
    return tuple(
        Growth(
            first=2 ** (power - 1) + 1 if power else 1,
            last=2**power,
            requests=int(count),
            input_tokens=prompts[power],
            output_tokens=outputs[power],
            context_tokens=contexts[power] if contexts else None,
            append_tokens=prompts[power] - contexts[power] if contexts else None,
        )
        for power, count in enumerate(counts)
        if count
    )
