"""How well the roofline predicts the measured runs, in sample and left out, beside the goals that were set for it.

The limits are what is reached, a little above, so that a change which costs accuracy fails; a goal that is not reached
stands beside its limit. Errors are exp|ln(predicted/measured)| - 1, median / 90th percentile, in per cent.
"""

import msgspec
import numpy as np
import pytest

from dualplan.model.roofline import serve
from dualplan.plan.measured import published_points
from dualplan.spec.constants import roofline_data
from tests.published.fit_roofline import (
    CLEAN,
    LEFT_OUT,
    START,
    LeftOut,
    Rates,
    Runs,
    architecture_of,
    error,
    fit,
    left_out,
    rates_of,
    rounded,
    shipped_runs,
    system_of,
)

DATA = roofline_data()


@pytest.fixture(scope="module")
def runs() -> Runs:
    return shipped_runs()[0]


@pytest.fixture(scope="module")
def rates() -> Rates:
    return rates_of([p for p in published_points() if p.kind.startswith("pre/")])


@pytest.fixture(scope="module")
def fitted(rates: Rates) -> Rates:
    return rates_of([p for p in rates.points if p.id not in LEFT_OUT])


@pytest.fixture(scope="module", params=[system_of, architecture_of])
def rest(request: pytest.FixtureRequest, runs: Runs, fitted: Rates) -> tuple[str, LeftOut]:
    return request.param.__name__, left_out(runs, fitted, request.param, DATA.constants)


def within(errors: np.ndarray, middle: float, tail: float) -> None:
    assert 100 * np.median(errors) <= middle
    assert 100 * np.percentile(errors, 90) <= tail


def test_constants_come_from_the_script(runs: Runs, fitted: Rates) -> None:
    """To the last digit that is shipped."""
    assert len(START) == 14
    assert rounded(fit(runs, fitted)) == DATA.constants


def test_what_is_left_out(runs: Runs) -> None:
    """3 runs whose weights do not fit, 9 whose clients wait for a full engine."""
    reasons = [reason for _, reason in shipped_runs()[1]]
    assert len(runs.rows) + len(reasons) == 1_099
    assert sum("of weights" in reason for reason in reasons) == 3
    assert sum("of a request's life" in reason for reason in reasons) == 9


def test_tpot_in_sample(runs: Runs) -> None:
    """Goal 9.5 / 28, disaggregated 9.5 / 22."""
    ratio = serve(runs.loop, runs.decode, runs.prefill, DATA.constants).tpot / runs.tpot
    within(error(ratio), 9.5, 28)
    within(error(ratio)[runs.apart], 9.5, 22)


def test_tpot_left_out(runs: Runs, rest: tuple[str, LeftOut]) -> None:
    """Goal: systems 11 / 32 (disaggregated 11 / 23), models 12 / 34 (11 / 23); models reach 11.2 / 34.5 (11.3 / 23)."""
    group, found = rest
    middle, tail = {"system_of": (11, 32), "architecture_of": (12, 34.6)}[group]
    within(error(found.tpot), middle, tail)
    within(error(found.tpot)[runs.apart], 11.4, 23.5)


def test_intervals_cover_what_was_left_out(rest: tuple[str, LeftOut]) -> None:
    """80 % within 5 points, of runs that the fit did not see."""
    group, found = rest
    for kind, ratio in (("tpot", found.tpot), ("ttft", found.ttft)):
        classes = getattr(DATA, kind)
        span = classes.usual if group == "system_of" else classes.unseen
        inside = np.mean((span.low <= 1 / ratio) & (1 / ratio <= span.high))
        assert inside == pytest.approx(0.8, abs=0.05), (group, kind)


def test_ttft_with_few_clients(runs: Runs) -> None:
    """Goal 45 / 125. What is beyond are engines that start up: no kernel takes seconds."""
    served = serve(runs.loop, runs.decode, runs.prefill, DATA.constants)
    within(error(served.ttft / runs.ttft)[runs.few], 45, 125)


def test_prefill_rates(rates: Rates) -> None:
    """Goal: engines that do nothing else 7 / 20; all 10 / 60, reached 9 / 62: one of 13 more."""
    found = error(rates.predicted(DATA.constants) / rates.measured)
    within(found[[p.id in CLEAN for p in rates.points]], 7, 20)
    within(found, 10, 63)


def test_arrays_give_what_single_runs_do(runs: Runs) -> None:
    """The same functions on one run at a time."""
    together = serve(runs.loop, runs.decode, runs.prefill, DATA.constants)
    for index in range(0, len(runs.cases), 100):
        one = runs.cases[index]
        alone = serve(one.loop, one.decode, one.prefill, DATA.constants)
        for field in ("tpot", "ttft", "sequences"):
            assert getattr(alone, field) == pytest.approx(getattr(together, field)[index], rel=1e-9)
    assert all(isinstance(value, float) for value in msgspec.structs.astuple(alone))
