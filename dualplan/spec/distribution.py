"""Distributions of lengths and times from what sources print: a mean and a few quantiles.

Between two known quantiles ln x is linear in the normal score z of the probability, so a mean and a median alone are
a lognormal. Above the highest known quantile the slope is set such that the stated mean comes out; below the lowest the
nearest slope goes on. With ``x = exp(a + b z)`` over ``z1..z2``

    integral of x dPhi(z) = exp(a + b*b/2) * (Phi(z2 - b) - Phi(z1 - b))

Where no slope gives the mean (a known maximum, a mean below the median), every piece between known values x1, x2 is
``x1 + (x2 - x1) v^p`` instead, v from 0 to 1 with the probability and one p for all pieces that gives the mean. Known
quantiles and the mean always come out, and every mean of a part is in closed form.
"""

from __future__ import annotations

import math
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

STEEPEST = 8.0
"""Largest slope of a tail: sigma of the lognormal that it belongs to."""

POWERS = (1e-9, 1e9)
"""Range of the power p: from all values at the upper ends of their pieces to all at the lower ends."""


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

    ``power`` 0: x = exp(a + b z). Otherwise x = a + b v^power with v = (u - u1) / (u2 - u1).
    """

    u1: float
    u2: float
    a: float
    b: float
    power: float = 0.0

    def value(self, u: float) -> float:
        """x at probability ``u`` (0 < u < 1)."""
        if self.power:
            return float(self.a + self.b * ((u - self.u1) / (self.u2 - self.u1)) ** self.power)
        return math.exp(self.a + self.b * normal_score(u))

    def integral(self, u1: float, u2: float) -> float:
        """Integral of x over probabilities ``u1..u2`` inside the segment."""
        if self.power:
            return self._from_start(u2) - self._from_start(u1)
        if self.b == 0:
            return (u2 - u1) * math.exp(self.a)
        return math.exp(self.a + self.b**2 / 2) * _normal_mass(normal_score(u1) - self.b, normal_score(u2) - self.b)

    def _from_start(self, u: float) -> float:
        v = (u - self.u1) / (self.u2 - self.u1)
        return float((u - self.u1) * (self.a + self.b * v**self.power / (self.power + 1)))


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
    if not points and distribution.max is None:
        return (_flat(0.0, 1.0, distribution.mean),)
    smooth = _lognormal_pieces(points, low, high, distribution.mean) if points and points[0][1] > 0 else None
    return smooth or _power_pieces(points, low, distribution.max, distribution.mean)


def _lognormal_pieces(
    points: list[tuple[float, float]], low: float, high: float, mean: float
) -> tuple[Segment, ...] | None:
    """Pieces linear in ln x over z, the slope of the open tail by bisection; None where no slope gives the mean."""
    body = [_between(*left, *right) for left, right in pairwise(points)]
    known_slope = next((segment.b for segment in body if not segment.power), None)

    def whole(slope: float) -> tuple[Segment, ...]:
        lower = _tail(0.0, points[0][0], *points[0], slope if known_slope is None else known_slope, low, high)
        return (*lower, *body, *_tail(points[-1][0], 1.0, *points[-1], slope, low, high))

    flat, steep = 0.0, STEEPEST
    if not integral(whole(flat), 0.0, 1.0) <= mean <= integral(whole(steep), 0.0, 1.0):
        return None
    for _ in range(80):
        middle = (flat + steep) / 2
        flat, steep = (middle, steep) if integral(whole(middle), 0.0, 1.0) < mean else (flat, middle)
    return whole(flat)


def _power_pieces(
    points: list[tuple[float, float]], low: float, high: float | None, mean: float
) -> tuple[Segment, ...]:
    """Pieces ``x1 + (x2 - x1) v^p`` with the p that gives the mean. Raises InputError where none does."""
    ends = [(0.0, low), *points, (1.0, points[-1][1] if high is None else high)]

    def whole(power: float) -> tuple[Segment, ...]:
        return tuple(Segment(u1, u2, x1, x2 - x1, power) for (u1, x1), (u2, x2) in pairwise(ends))

    small, large = POWERS
    most, least = integral(whole(small), 0.0, 1.0), integral(whole(large), 0.0, 1.0)
    if not least - 1e-7 * mean <= mean <= most + 1e-7 * mean:
        raise InputError("mean", f"{mean:g} does not go with the quantiles", f"they allow {least:.4g} to {most:.4g}")
    for _ in range(100):
        middle = math.sqrt(small * large)
        small, large = (middle, large) if integral(whole(middle), 0.0, 1.0) > mean else (small, middle)
    return whole(small)


def _check_order(
    distribution: Distribution | Durations, names: list[str], values: list[float], low: float, high: float
) -> None:
    values, names = [low, *values, high], ["min", *names, "max"]
    for (name, x), (next_name, next_x) in pairwise(zip(names, values, strict=True)):
        if x > next_x:
            raise InputError(f"{name}, {next_name}", f"{x:g} is more than {next_x:g}", "quantiles must rise")
    if not low <= distribution.mean <= high:
        raise InputError("mean", f"{distribution.mean:g} lies outside {low:g} .. {high:g}")


def _flat(u1: float, u2: float, x: float) -> Segment:
    return Segment(u1, u2, x, 0.0, 1.0)


def _between(u1: float, x1: float, u2: float, x2: float) -> Segment:
    if x1 == x2:
        return _flat(u1, u2, x1)
    z1, z2 = normal_score(u1), normal_score(u2)
    slope = math.log(x2 / x1) / (z2 - z1)
    return Segment(u1, u2, math.log(x1) - slope * z1, slope)


def _tail(start: float, end: float, u: float, x: float, slope: float, low: float, high: float) -> list[Segment]:
    """The piece through ``(u, x)`` that reaches to probability 0 or 1, cut at the lowest and the highest value."""
    if slope == 0:
        return [_flat(start, end, x)]
    intercept = math.log(x) - slope * normal_score(u)
    if start == 0 and low > 0:
        cut = min(_normal_mass(-math.inf, (math.log(low) - intercept) / slope), end)
        return [_flat(0.0, cut, low), Segment(cut, end, intercept, slope)]
    if end == 1 and high < math.inf:
        cut = max(_normal_mass(-math.inf, (math.log(high) - intercept) / slope), start)
        return [Segment(start, cut, intercept, slope), _flat(cut, 1.0, high)]
    return [Segment(start, end, intercept, slope)]


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
