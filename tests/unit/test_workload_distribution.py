"""Distributions from means and quantiles, against lognormal facts and numeric integration."""

import math
from itertools import pairwise
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.errors import InputError
from dualplan.spec.distribution import (
    QUANTILES,
    Distribution,
    Durations,
    integral,
    quantile,
    quantile_function,
    stratum_means,
)


def test_mean_and_median_are_a_lognormal():
    # sigma = sqrt(2 ln(mean / median)); the 90th percentile lies 1.28155 sigma above ln(median)
    sigma = math.sqrt(2 * math.log(3242 / 713))
    length = Distribution(mean=3242, p50=713)
    assert quantile(length, 0.5) == pytest.approx(713)
    assert quantile(length, 0.9) == pytest.approx(713 * math.exp(1.2815515655 * sigma), rel=1e-9)
    assert quantile(length, 0.05) == pytest.approx(713 * math.exp(-1.6448536270 * sigma), rel=1e-9)


def test_mean_alone_is_constant():
    length = Distribution(mean=429)
    assert [quantile(length, u) for u in (0.01, 0.5, 0.99)] == [429, 429, 429]
    assert stratum_means(length, 3) == pytest.approx((429, 429, 429))


def test_stated_quantiles_come_out():
    stated = {"p10": 20, "p50": 100, "p90": 900, "p99": 4000}
    length = Distribution(mean=330, **stated)
    for name, value in stated.items():
        assert quantile(length, QUANTILES[name]) == pytest.approx(value)
    assert integral(quantile_function(length), 0, 1) == pytest.approx(330)


def test_extremes_bound_the_values():
    length = Distribution(mean=300, min=50, p50=100, max=2000)
    assert quantile(length, 1e-9) == pytest.approx(50, abs=1)
    assert quantile(length, 1 - 1e-9) == pytest.approx(2000, abs=1)
    assert sum(stratum_means(length, 5)) / 5 == pytest.approx(300)


def test_mean_below_the_median():
    # no lognormal has this: one power for all pieces gives the mean, the quantiles stay
    length = Distribution(mean=343, p50=350, p95=700, max=2000)
    assert quantile(length, 0.5) == pytest.approx(350)
    assert quantile(length, 0.95) == pytest.approx(700)
    assert integral(quantile_function(length), 0, 1) == pytest.approx(343)


def test_zeros():
    # half of all requests hit nothing
    length = Distribution(mean=512, min=0, p25=0, p50=0, p90=2048, max=4096)
    assert quantile(length, 0.3) == 0
    assert quantile(length, 0.9) == pytest.approx(2048)
    assert stratum_means(length, 4)[0] == 0
    assert sum(stratum_means(length, 4)) / 4 == pytest.approx(512)


def test_means_of_classes_by_numeric_integration():
    length = Distribution(mean=330, p10=20, p50=100, p90=900)
    steps = 40_000
    for i, mean in enumerate(stratum_means(length, 4)):
        points = ((i + (j + 0.5) / steps) / 4 for j in range(steps))
        assert mean == pytest.approx(sum(quantile(length, u) for u in points) / steps, rel=2e-3)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"mean": 5, "p50": 10, "p90": 9}, "p50, p90: 10 is more than 9"),
        ({"mean": 5, "min": 6, "p50": 7}, "mean: 5 lies outside 6 .. inf"),
        ({"mean": 500, "p50": 10, "max": 20}, "mean: 500 lies outside 0 .. 20"),
        ({"mean": 1, "p50": 10, "p90": 20}, "mean: 1 does not go with the quantiles"),
        ({"mean": 900, "p50": 10, "max": 1000}, "mean: 900 does not go with the quantiles"),
    ],
)
def test_figures_that_disagree(figures, message):
    with pytest.raises(InputError, match=message):
        Distribution(**figures)


def test_durations_are_alike():
    wait = Durations(mean=172, p50=10)
    sigma = math.sqrt(2 * math.log(17.2))
    assert quantile(wait, 0.9) == pytest.approx(10 * math.exp(NormalDist().inv_cdf(0.9) * sigma))


@given(st.lists(st.one_of(st.just(0.0), st.floats(0.01, 1e6)), min_size=2, max_size=60), st.integers(1, 12))
def test_figures_of_a_sample_go_together(values, classes):
    """Mean and quantiles that a sample really has are never refused, and all of them come out."""
    ordered = sorted(values)
    known = {name: ordered[math.ceil(QUANTILES[name] * len(ordered)) - 1] for name in ("p10", "p50", "p90")}
    mean = min(max(math.fsum(values) / len(values), ordered[0]), ordered[-1])
    length = Distribution(mean=mean, min=ordered[0], max=ordered[-1], **known)
    assert integral(quantile_function(length), 0, 1) == pytest.approx(mean, rel=1e-6)
    for name, value in known.items():
        assert quantile(length, QUANTILES[name]) == pytest.approx(value, rel=1e-9)
    means = stratum_means(length, classes)
    assert math.fsum(means) / classes == pytest.approx(mean, rel=1e-6)
    assert all(low <= high * (1 + 1e-9) for low, high in pairwise(means))
