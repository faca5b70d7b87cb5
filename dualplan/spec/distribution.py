"""Distributions of lengths and times from what sources print: a mean and a few quantiles.

Between two known quantiles ln x is linear in the normal score z of the probability, so a mean and a median alone are
a lognormal. Above the highest known quantile the slope is set such that the stated mean comes out; below the lowest the
nearest slope goes on. From a known 0 upwards x is linear in the probability. With ``x = exp(a + b z)`` over ``z1..z2``

    integral of x dPhi(z) = exp(a + b*b/2) * (Phi(z2 - b) - Phi(z1 - b))

so every mean below is in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import msgspec

from dualplan.errors import InputError
from dualplan.spec.load import Duration, NonNegative

QUANTILES = {
    "p1": 0.01,
    "p5": 0.05,
    "p10": 0.1,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p999": 0.999,
}
"""Key of a distribution -> probability."""

SCALE_LIMIT = 0.05
"""Where no tail gives the stated mean, all values are scaled to it by at most this share; beyond, the figures
disagree.
"""


class Distribution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A length or a count by its mean, quantiles (``p50`` is the median) and extremes. At least the mean."""

    mean: NonNegative
    min: NonNegative | None = None
    p1: NonNegative | None = None
    p5: NonNegative | None = None
    p10: NonNegative | None = None
    p25: NonNegative | None = None
    p50: NonNegative | None = None
    p75: NonNegative | None = None
    p90: NonNegative | None = None
    p95: NonNegative | None = None
    p99: NonNegative | None = None
    p999: NonNegative | None = None
    max: NonNegative | None = None

    def __post_init__(self) -> None:
        quantile_function(self)


class Durations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As :class:`Distribution`, for times [s]."""

    mean: Duration
    min: Duration | None = None
    p1: Duration | None = None
    p5: Duration | None = None
    p10: Duration | None = None
    p25: Duration | None = None
    p50: Duration | None = None
    p75: Duration | None = None
    p90: Duration | None = None
    p95: Duration | None = None
    p99: Duration | None = None
    p999: Duration | None = None
    max: Duration | None = None

    def __post_init__(self) -> None:
        quantile_function(self)


class Segment(msgspec.Struct, frozen=True):
    """One piece of a quantile function, from probability ``u1`` to ``u2``.

    ``logarithmic``: x = exp(a + b z); otherwise x = a + b (u - u1).
    """

    u1: float
    u2: float
    a: float
    b: float
    logarithmic: bool

    def value(self, u: float) -> float:
        """x at probability ``u`` (0 < u < 1)."""
        return math.exp(self.a + self.b * normal_score(u)) if self.logarithmic else self.a + self.b * (u - self.u1)

    def integral(self, u1: float, u2: float) -> float:
        """Integral of x over probabilities ``u1..u2`` inside the segment."""
        if not self.logarithmic:
            return (u2 - u1) * (self.a + self.b * ((u1 + u2) / 2 - self.u1))
        if self.b == 0:
            return (u2 - u1) * math.exp(self.a)
        return math.exp(self.a + self.b**2 / 2) * _normal_mass(normal_score(u1) - self.b, normal_score(u2) - self.b)


def normal_score(u: float) -> float:
    """z with Phi(z) = u; minus and plus infinity at 0 and 1."""
    if not 0 < u < 1:
        return -math.inf if u <= 0 else math.inf
    from statistics import NormalDist

    return NormalDist().inv_cdf(u)


def _normal_mass(z1: float, z2: float) -> float:
    """Phi(z2) - Phi(z1), from the tail where both are small so that no digits are lost."""
    if z1 > 0:
        return _normal_mass(-z2, -z1)
    return (math.erfc(-z2 / math.sqrt(2)) - math.erfc(-z1 / math.sqrt(2))) / 2


@lru_cache(maxsize=256)
def quantile_function(distribution: Distribution | Durations) -> tuple[Segment, ...]:
    """The quantile function as segments that cover 0..1. Raises InputError where mean and quantiles disagree."""
    known = {name: u for name, u in QUANTILES.items() if getattr(distribution, name) is not None}
    points = [(u, float(getattr(distribution, name))) for name, u in known.items()]
    low = distribution.min or 0.0
    high = math.inf if distribution.max is None else float(distribution.max)
    _check_order(distribution, [*known], [x for _, x in points], low, high)
    if not points:
        return (Segment(0.0, 1.0, distribution.mean, 0.0, False),)
    body = [segment for left, right in pairwise(points) for segment in _between(*left, *right)]
    known_slope = next((segment.b for segment in body if segment.logarithmic), None)

    def whole(slope: float) -> tuple[Segment, ...]:
        lower = _tail(0.0, points[0][0], *points[0], slope if known_slope is None else known_slope, low, high)
        return (*lower, *body, *_tail(points[-1][0], 1.0, *points[-1], slope, low, high))

    return _with_mean(whole, distribution.mean)


def _check_order(
    distribution: Distribution | Durations, names: list[str], values: list[float], low: float, high: float
) -> None:
    values, names = [low, *values, high], ["min", *names, "max"]
    for (name, x), (next_name, next_x) in pairwise(zip(names, values, strict=True)):
        if x > next_x:
            raise InputError(f"{name}, {next_name}", f"{x:g} is more than {next_x:g}", "quantiles must rise")
    if not low <= distribution.mean <= high:
        raise InputError("mean", f"{distribution.mean:g} lies outside {low:g} .. {high:g}")


def _between(u1: float, x1: float, u2: float, x2: float) -> list[Segment]:
    if x1 <= 0 or x1 == x2:
        return [Segment(u1, u2, x1, (x2 - x1) / (u2 - u1), False)]
    z1, z2 = normal_score(u1), normal_score(u2)
    slope = math.log(x2 / x1) / (z2 - z1)
    return [Segment(u1, u2, math.log(x1) - slope * z1, slope, True)]


def _tail(start: float, end: float, u: float, x: float, slope: float, low: float, high: float) -> list[Segment]:
    """The piece through ``(u, x)`` that reaches to probability 0 or 1, cut at the lowest and the highest value."""
    if x <= 0 or slope == 0:
        return [Segment(start, end, x, 0.0, False)]
    intercept = math.log(x) - slope * normal_score(u)
    if start == 0 and low > 0:
        cut = min(_normal_mass(-math.inf, (math.log(low) - intercept) / slope), end)
        return [Segment(0.0, cut, low, 0.0, False), Segment(cut, end, intercept, slope, True)]
    if end == 1 and high < math.inf:
        cut = max(_normal_mass(-math.inf, (math.log(high) - intercept) / slope), start)
        return [Segment(start, cut, intercept, slope, True), Segment(cut, 1.0, high, 0.0, False)]
    return [Segment(start, end, intercept, slope, True)]


def _with_mean(whole: Callable[[float], tuple[Segment, ...]], mean: float) -> tuple[Segment, ...]:
    """Segments with that mean: the slope of the open tail by bisection, else everything scaled a little."""
    low, high = 0.0, 8.0
    if not integral(whole(low), 0.0, 1.0) <= mean <= integral(whole(high), 0.0, 1.0):
        segments = whole(low if integral(whole(low), 0.0, 1.0) > mean else high)
        return _scaled(segments, mean)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if integral(whole(middle), 0.0, 1.0) < mean else (low, middle)
    return _scaled(whole(low), mean)


def _scaled(segments: tuple[Segment, ...], mean: float) -> tuple[Segment, ...]:
    found = integral(segments, 0.0, 1.0)
    if abs(mean - found) > SCALE_LIMIT * max(found, mean):
        raise InputError("mean", f"{mean:g} does not go with the quantiles", f"they allow {found:.4g}")
    factor = mean / found if found else 1.0
    return tuple(
        Segment(s.u1, s.u2, s.a + math.log(factor), s.b, True)
        if s.logarithmic
        else Segment(s.u1, s.u2, s.a * factor, s.b * factor, False)
        for s in segments
    )


def integral(segments: tuple[Segment, ...], u1: float, u2: float) -> float:
    """Integral of the quantile function over probabilities ``u1..u2``; over 0..1 that is the mean."""
    pieces = ((segment, max(segment.u1, u1), min(segment.u2, u2)) for segment in segments)
    return math.fsum(segment.integral(start, end) for segment, start, end in pieces if start < end)


def quantile(distribution: Distribution | Durations, u: float) -> float:
    """The value that a share ``u`` of the population does not exceed (0 < u < 1)."""
    segments = quantile_function(distribution)
    return next((segment for segment in segments if u <= segment.u2), segments[-1]).value(u)


def stratum_means(distribution: Distribution | Durations, count: int) -> tuple[float, ...]:
    """Means of ``count`` classes of equal probability, lowest first. Their mean is the mean of the distribution."""
    segments = quantile_function(distribution)
    return tuple(count * integral(segments, i / count, (i + 1) / count) for i in range(count))
