"""Workloads fitted to traces: figures of the trace, what is kept apart, YAML that reads back."""

import numpy as np
import pytest

from dualplan.errors import InputError
from dualplan.spec.distribution import Distribution, Durations
from dualplan.spec.load import decode, parse_yaml, shipped_names
from dualplan.spec.workload import Workload, load_workload, mean_turns, per_turn_means
from dualplan.trace.build import build_trace
from dualplan.trace.fit import fit_workload, workload_yaml
from dualplan.trace.generate import as_trace, generate_trajectories
from dualplan.trace.read import read_trace
from dualplan.trace.stats import summarise


def again(workload):
    return decode(parse_yaml(workload_yaml(workload), "w.yaml"), Workload)


def test_two_sessions():
    # session 0 has turns of 100, then 150 (130 known), then 200 (170 known); session 1 has 300, then 400 (310 known)
    trace = build_trace(
        input_tokens=[100, 150, 200, 300, 400],
        output_tokens=[30, 20, 10, 10, 40],
        session=[0, 0, 0, 1, 1],
        turn=[0, 1, 2, 0, 1],
        think_time_s=[np.nan, 4, 8, np.nan, 30],
    )
    workload = fit_workload(trace, "two")
    assert workload.turns == Distribution(mean=2.5, min=2, max=3)
    assert workload.first_append == Distribution(mean=200, min=100, max=300)
    assert workload.first_context == 0
    # (130 + 170 + 310) / 3 known, (20 + 30 + 90) / 3 new
    assert workload.context.mean == pytest.approx(610 / 3, rel=1e-4)
    assert workload.append.mean == pytest.approx(140 / 3, rel=1e-4)
    assert workload.generated.mean == 22
    assert workload.think_time == Durations(mean=14, min=4, max=30)
    assert workload.block == 64
    means = per_turn_means(workload)
    assert means.context == pytest.approx(610 / 5, rel=1e-3)
    assert means.append == pytest.approx((400 + 140) / 5, rel=1e-3)


def test_requests_without_sessions():
    trace = build_trace(input_tokens=[10, 30, 80], output_tokens=[1, 2, 3], arrival_s=[0, 1, 2])
    workload = fit_workload(trace, "x")
    assert (workload.turns, workload.context, workload.first_append) == (1, 0, None)
    assert workload.append == Distribution(mean=40, min=10, max=80)
    assert workload.correlation is None
    assert workload.hit_rate is None
    assert any("every prompt is computed whole" in note for note in workload.notes)


def test_one_request():
    workload = fit_workload(build_trace(input_tokens=[10], output_tokens=[4]), "x")
    assert (workload.turns, workload.append, workload.generated) == (1, 10, 4)
    assert again(workload) == workload


def test_nothing_to_plan_for():
    trace = build_trace(input_tokens=[64, 64], output_tokens=[1, 1], cached_tokens=[64, 64])
    with pytest.raises(InputError, match="nothing to plan for"):
        fit_workload(trace, "x")


@pytest.mark.parametrize("case", ["weka", "mooncake/conversation_head1000.jsonl", "azure/code_2023_head400.csv"])
def test_samples(shared_cases, case):
    trace = read_trace(str(shared_cases / "traces" / case))
    workload, figures = fit_workload(trace, "sample"), summarise(trace)
    means = per_turn_means(workload)
    assert means.context + means.append == pytest.approx(figures.input_tokens.mean, rel=1e-4)
    assert means.generated == pytest.approx(figures.output_tokens.mean, rel=1e-4)
    if figures.context_tokens:
        assert means.context == pytest.approx(figures.context_tokens.mean, rel=1e-4)
    assert workload.generated.p50 == pytest.approx(figures.output_tokens.p50, rel=1e-4)
    if figures.turns_per_session:
        assert mean_turns(workload) == figures.turns_per_session.mean
    assert again(workload) == workload


def test_claude_code_sample(shared_cases):
    # the published append (mean 3,242, median 713) is that of later turns: the ten sampled sessions have 2,704 and 717
    workload = fit_workload(read_trace(str(shared_cases / "traces" / "weka")), "weka")
    assert workload.append.mean == pytest.approx(2704.3, abs=0.1)
    assert workload.append.p50 == pytest.approx(717, abs=1)
    assert workload.first_append.mean == pytest.approx(90_594, abs=1)


@pytest.mark.parametrize("name", ["dualpath-32k", "claude-code-weka", "mooncake-conversation", "codex-swebench-pro"])
def test_fit_of_what_was_generated(name):
    """Trajectories of a fitted workload have the means and quantiles of the trace that it was fitted to."""
    trace = as_trace(generate_trajectories(name, 300, 0))
    fitted = fit_workload(trace, name)
    second = fit_workload(as_trace(generate_trajectories(fitted, 300, 1)), name)
    for field in ("turns", "context", "append", "generated", "think_time", "first_append"):
        one, other = getattr(fitted, field), getattr(second, field)
        if isinstance(one, Distribution | Durations):
            assert other.mean == pytest.approx(one.mean, rel=2e-3, abs=0.5)
            assert other.p50 == pytest.approx(one.p50, rel=0.05, abs=1)
            assert other.p90 == pytest.approx(one.p90, rel=0.05, abs=1)
        else:
            assert other == one


@pytest.mark.parametrize("name", shipped_names("workloads", ".yaml"))
def test_text_of_shipped_workloads_reads_back(name):
    workload = load_workload(name)
    assert again(workload) == workload


def test_growth_of_contexts_survives():
    """Position in the trajectory, its length and context hang together in generated trajectories as in their source."""
    fitted = fit_workload(as_trace(generate_trajectories("dualpath-64k", 300, 0)), "x")
    assert fitted.correlation.turn_context > 0.7
    second = fit_workload(as_trace(generate_trajectories(fitted, 300, 1)), "x").correlation
    assert second.turn_context == pytest.approx(fitted.correlation.turn_context, abs=0.02)
    assert second.turns_context == pytest.approx(fitted.correlation.turns_context, abs=0.02)
    assert second.append_context == pytest.approx(fitted.correlation.append_context, abs=0.02)
    assert second.session_context == pytest.approx(fitted.correlation.session_context, abs=0.1)


def test_text_is_plain():
    text = workload_yaml(fit_workload(as_trace(generate_trajectories("claude-code-weka", 30, 0)), "cc"))
    assert text.startswith("name: cc\n")
    assert "think_time: {mean: 172" in text
    assert "null" not in text
