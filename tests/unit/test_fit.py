"""Workloads fitted to traces: figures of the trace, what is kept apart, YAML that reads back."""

import numpy as np
import pytest

from dualplan.errors import InputError
from dualplan.model.demand import mean_turn
from dualplan.spec.distribution import Distribution, Durations
from dualplan.spec.load import decode, parse_yaml, shipped_names
from dualplan.spec.workload import Workload, load_workload, mean_turns, per_turn_means
from dualplan.trace.build import build_trace
from dualplan.trace.fit import fit_workload, workload_yaml
from dualplan.trace.generate import as_trace, generate_trajectories, trajectories_of_trace
from dualplan.trace.read import read_trace
from dualplan.trace.stats import summarise
from dualplan.trace.workload import workload_of_trace
from tests.unit.test_generate import assert_coherent, growth_hit_rate


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
    """Trajectories of a fitted workload have the means and quantiles of the trace that it was fitted to; of contexts,
    which follow from the rest, they have the mean."""
    made = generate_trajectories(name, 300, 0)
    fitted = fit_workload(as_trace(made), name)
    remade = generate_trajectories(fitted, 300, 1)
    assert_coherent(remade)
    second = fit_workload(as_trace(remade), name)
    for field in ("turns", "context", "append", "generated", "think_time", "first_append"):
        one, other = getattr(fitted, field), getattr(second, field)
        if isinstance(one, Distribution | Durations):
            assert other.mean == pytest.approx(one.mean, rel=2e-3, abs=0.5)
            if field != "context":
                assert other.p50 == pytest.approx(one.p50, rel=0.05, abs=1)
                assert other.p90 == pytest.approx(one.p90, rel=0.05, abs=1)
        else:
            assert other == one
    assert growth_hit_rate(remade) == pytest.approx(growth_hit_rate(made), abs=0.01)


GROWTH_MARGIN = 0.25
"""How far mean prompts by turn (2, 3-4, 5-8 and so on) of fits may lie from those of the trace."""


def prompts_by_turn(made):
    position = np.arange(len(made.context)) - np.repeat(made.offsets[:-1], made.turns)
    group = np.ceil(np.log2(position + 1)).astype(int)
    return np.bincount(group, weights=made.context + made.append) / np.bincount(group), np.bincount(group)


@pytest.mark.parametrize("name", ["dualpath-32k", "dualpath-64k", "claude-code-weka", "codex-swebench-pro"])
def test_growth_of_prompts_survives(name):
    made = generate_trajectories(name, 300, 0)
    remade = generate_trajectories(fit_workload(as_trace(made), "x"), 300, 1)
    (before, many), (after, _) = prompts_by_turn(made), prompts_by_turn(remade)
    groups = np.flatnonzero(many >= 1000)
    assert len(groups) >= 3
    assert after[groups] == pytest.approx(before[groups], rel=GROWTH_MARGIN)


def test_sample_of_sessions_remade(shared_cases):
    """Ten sessions, 2 prompts of 134 shorter than the one before, 90.3 % hits by session growth."""
    trace = read_trace(str(shared_cases / "traces" / "weka"))
    workload, source = fit_workload(trace, "weka"), trajectories_of_trace(trace)
    assert source.resets.sum() == 2
    assert growth_hit_rate(source) == pytest.approx(0.9027, abs=1e-4)
    for count, seed in ((10, 0), (46, 0), (46, 1), (300, 2)):
        made = generate_trajectories(workload, count, seed)
        assert_coherent(made)
        assert made.notes == ()
        assert made.resets.sum() == round(2 / 134 * (len(made.context) - count))
        assert growth_hit_rate(made) == pytest.approx(0.9027, abs=0.01)
        assert made.context.mean() == pytest.approx(source.context.mean(), rel=5e-3)
        second = made.context[made.offsets[:-1] + 1] + made.append[made.offsets[:-1] + 1]
        assert second.mean() == pytest.approx(92_804, rel=0.1)


@pytest.mark.parametrize(
    "case",
    [
        "weka",
        "mooncake/conversation_head1000.jsonl",
        "mooncake/synthetic_head500.jsonl",
        "azure/code_2023_head400.csv",
        "sessions/ccusage_claude_chat.jsonl",
        "sessions/ccusage_codex_session.jsonl",
    ],
)
def test_fits_of_samples_hang_together(shared_cases, case):
    trace = read_trace(str(shared_cases / "traces" / case))
    workload = fit_workload(trace, "x")
    for seed in range(3):
        made = generate_trajectories(workload, 200, seed)
        assert_coherent(made)
        means = per_turn_means(workload)
        assert made.context.mean() == pytest.approx(means.context, rel=5e-3, abs=1)
        assert made.append.mean() == pytest.approx(means.append, rel=5e-3, abs=1)
        if workload.context_block:
            assert (made.context % workload.context_block == 0).all()


@pytest.mark.parametrize("case", ["weka", "mooncake/conversation_head1000.jsonl", "azure/code_2023_head400.csv"])
def test_a_plan_with_the_fit_is_a_plan_with_the_trace(shared_cases, case):
    """The same turns with the same hits, so the same bytes and FLOPs; seven digits of a length are kept."""
    trace = read_trace(str(shared_cases / "traces" / case))
    fitted, measured = mean_turn(again(fit_workload(trace, "x"))), mean_turn(workload_of_trace(trace, "x"))
    assert fitted.hits == pytest.approx(measured.hits, rel=1e-6)
    assert fitted.computed == pytest.approx(measured.computed, rel=1e-6)
    # attention: a new token sees the hits and half of the new ones
    for kind in (lambda old, new: old * new + new * new / 2, lambda old, new: new):
        one, other = (
            turns.mean(kind(old, new) for old, new in zip(turns.hits, turns.computed, strict=True))
            for turns in (fitted, measured)
        )
        assert one == pytest.approx(other, rel=1e-6)


def test_classes_do_not_outlive_their_lengths(shared_cases):
    text = workload_yaml(fit_workload(read_trace(str(shared_cases / "traces" / "weka")), "x"))
    edited = text.replace("append: {mean: 2704.3", "append: {mean: 3704.3")
    assert edited != text
    with pytest.raises(InputError, match=r"classes: have a mean append of 8,807\.7 tokens"):
        decode(parse_yaml(edited, "w.yaml"), Workload)


def test_figures_of_a_fit_are_measured():
    workload = fit_workload(build_trace(input_tokens=[10, 20], output_tokens=[4, 4], cached_tokens=[0, 5]), "x")
    assert workload.published == ()
    assert {figure.name: figure.value for figure in workload.measured}["input_tokens_mean"] == 15


def test_block_size_of_the_trace_is_kept(shared_cases):
    # contexts of block ids are whole blocks already: none of them is lost once more
    workload = fit_workload(read_trace(str(shared_cases / "traces/mooncake/conversation_head1000.jsonl")), "x")
    assert (workload.context_block, workload.block) == (512, 1)


@pytest.mark.parametrize("name", shipped_names("workloads", ".yaml"))
def test_text_of_shipped_workloads_reads_back(name):
    workload = load_workload(name)
    assert again(workload) == workload


def test_text_is_plain():
    text = workload_yaml(fit_workload(as_trace(generate_trajectories("claude-code-weka", 30, 0)), "cc"))
    assert text.startswith("name: cc\n")
    assert "think_time: {mean: 172" in text
    assert "null" not in text
