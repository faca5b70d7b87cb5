"""Any workload that can be stated is reproduced: means, quantiles, extremes, whole trajectories."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from dualplan.spec.distribution import Distribution, Durations
from dualplan.spec.workload import Correlation, Workload, per_turn_means
from dualplan.trace.build import build_trace
from dualplan.trace.fit import fit_workload
from dualplan.trace.generate import as_trace, generate_trajectories, trajectories_of_trace
from dualplan.trace.recipe import grow, load_recipe
from tests.unit.test_generate import assert_coherent


@st.composite
def lognormals(draw, low, high):
    median = draw(st.floats(low, high))
    return Distribution(mean=median * draw(st.floats(1.0, 3.0)), p50=median)


@st.composite
def workloads(draw):
    tokens = lognormals(20, 50_000) | st.floats(20, 50_000)
    return Workload(
        turns=draw(lognormals(2, 40) | st.floats(1, 40)),
        context=draw(tokens),
        append=draw(tokens),
        generated=draw(tokens),
        first_append=draw(st.none() | tokens),
        think_time=draw(st.just(0.0) | st.builds(Durations, mean=st.just(9.0), p50=st.floats(1, 9))),
        correlation=draw(
            st.none()
            | st.builds(
                Correlation,
                turn_context=st.floats(-1, 1),
                turns_context=st.floats(-1, 1),
                session_context=st.floats(0, 1),
                append_context=st.floats(-1, 1),
            )
        ),
    )


@given(workloads(), st.integers(1, 60), st.integers(0, 9))
@settings(max_examples=60)
def test_means_come_out(workload, count, seed):
    made = generate_trajectories(workload, count, seed)
    assert made.count == count
    assert made.turns.min() >= 1
    assert made.append.min() >= 1
    later = np.ones(len(made.context), bool)
    if workload.first_append is not None:
        later[made.offsets[:-1]] = False
    means = {key: value.mean if isinstance(value, Distribution) else value for key, value in asdict(workload).items()}
    if later.any():
        # whole tokens: at most one token in all is rounded off, small lengths are raised to 1
        assert made.append[later].mean() == pytest.approx(means["append"], rel=0.02, abs=1.0)
        # contexts follow from the turns before: a mean that cannot come out is noted
        close = made.context[later].mean() == pytest.approx(means["context"], rel=0.02, abs=1.0)
        assert close or any("does not go with" in str(note) for note in made.notes)
    assert_coherent(made)
    mean = per_turn_means(workload).generated
    assert made.generated.mean() == pytest.approx(mean, rel=0.02, abs=1.0)


@given(lognormals(100, 1e5), st.integers(50, 400))
@settings(max_examples=40)
def test_quantiles_come_out(length, count):
    workload = Workload(turns=1, context=0, append=length, generated=1)
    made = generate_trajectories(workload, count)
    assert np.quantile(made.append, 0.5, method="hazen") == pytest.approx(length.p50, rel=0.03, abs=1)
    assert made.append.mean() == pytest.approx(length.mean, abs=0.5)


@given(st.integers(2, 200_000), st.integers(1, 40), st.integers(0, 50))
@settings(max_examples=40)
def test_grown_trajectories_fit_their_limit(limit, count, seed):
    made = grow(load_recipe("dualpath"), limit, count, seed)
    whole = made.context + made.append + made.generated
    assert whole.max() <= limit
    ends = np.cumsum(made.counts)
    later = np.setdiff1d(np.arange(len(whole)), ends - made.counts)
    assert (made.context[later] == whole[later - 1]).all()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5000), st.integers(0, 800)), min_size=1, max_size=40),
    st.integers(0, 3),
)
@settings(max_examples=60)
def test_fits_of_any_sessions(rows, seed):
    trace = build_trace(
        input_tokens=[row[1] for row in rows],
        output_tokens=[row[2] for row in rows],
        session=[row[0] for row in rows],
        turn=np.arange(len(rows)),
    )
    workload, made = fit_workload(trace, "x"), trajectories_of_trace(trace)
    means = per_turn_means(workload)
    # five significant digits are kept
    assert means.context + means.append == pytest.approx(trace.input_tokens.mean(), rel=2e-4)
    assert means.generated == pytest.approx(trace.output_tokens.mean(), rel=2e-4)
    assert (made.context + made.append).sum() == trace.input_tokens.sum()
    assert made.count == len({row[0] for row in rows})
    remade = generate_trajectories(workload, made.count, seed)
    assert_coherent(remade)
    again = as_trace(remade)
    assert again.requests == pytest.approx(trace.requests, abs=1)
