"""Means of a workload that are set by hand: what is not set stays, the spread between turns among it."""

import json
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dualplan
from dualplan.plan.simulation import trajectories_of
from dualplan.report.feasible_document import document
from dualplan.spec.load import decode, parse_yaml, shipped_names
from dualplan.spec.run import RunSpec
from dualplan.spec.scenario import read_scenario, resolve, set_flags
from dualplan.spec.workload import MEANS, Workload, has_spread, mean_turns, per_turn_means, turn_mix, with_means
from dualplan.steady.answer import evaluate
from dualplan.trace.workload import read_trace_workload
from tests.cli.runner import in_process

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "examples" / "dualpath-paper.yaml"
TRACE = (
    '{"timestamp": 0, "input_length": 1000, "output_length": 50, "hash_ids": [1, 2]}\n'
    '{"timestamp": 3000, "input_length": 1700, "output_length": 7, "hash_ids": [1, 2, 4]}\n'
    '{"timestamp": 9000, "input_length": 2600, "output_length": 19, "hash_ids": [1, 2, 4, 5, 6]}\n'
)
WRITTEN = {
    "plain": "turns: 12\ncontext: 20000\nappend: 300\ngenerated: 100\n",
    "distributions": "turns: {mean: 12, p50: 8}\ncontext: {mean: 20000, p50: 9000}\nappend: 300\n"
    "generated: {mean: 100, p50: 60}\n",
    "first apart": "turns: 12\ncontext: {mean: 20000, p50: 9000}\nappend: {mean: 300, p50: 90}\ngenerated: 100\n"
    "first_append: 9000\nfirst_context: 1000\nresets: {share: 0.02, append: 5000}\n",
    "scatters": "turns: 12\ncontext: 20000\nappend: 300\ngenerated: 100\n"
    "per_turn: {context: 20000, append: 300, generated: 100, context_scatter: 0.5, append_scatter: 1.5, "
    "generated_by_length: 130}\n",
    "classes": "turns: 12\ncontext: 275\nappend: 3\ngenerated: 4\nclasses:\n"
    "  - {weight: 0.75, context: 100, append: 2, generated: 5}\n"
    "  - {weight: 0.25, context: 800, append: 6, generated: 1}\n",
}
NAMES = [*shipped_names("workloads", ".yaml"), *WRITTEN, "trace"]
subsets = st.sets(st.sampled_from(MEANS), min_size=1)
names = st.sampled_from(NAMES)


@cache
def trace_file():
    path = Path(tempfile.mkdtemp()) / "trace.jsonl"
    path.write_text(TRACE)
    return path


@cache
def scenario(name, *sets):
    """The paper's deployment under a workload, as file and flags give it."""
    tree = read_scenario(PAPER)
    if name in WRITTEN:
        node = parse_yaml(WRITTEN[name], "w.yaml")
    else:
        node = parse_yaml(str(trace_file()) if name == "trace" else name, "--workload")
    return resolve(
        type(tree)({**tree.items(), "workload": node}, tree.place),
        sets=set_flags(sets),
        base=PAPER.parent,
        read_trace=read_trace_workload,
    )


def own(name, key):
    """What a mean of a workload is already."""
    workload = scenario(name).workload
    return mean_turns(workload) if key == "turns" else getattr(per_turn_means(workload), key)


def figures(found):
    """All that an answer says but in words, and the hash of inputs with it."""
    data = document(evaluate(found))
    return {key: value for key, value in data.items() if key not in ("assumptions", "sources", "inputs_sha256")}


def moment(workload, name):
    """Of a length: its variance over turns, over the square of its mean."""
    means, turns = per_turn_means(workload), turn_mix(workload)
    mean = getattr(means, name)
    return sum(turn.weight * (getattr(turn, name) / mean - 1) ** 2 for turn in turns)


@settings(max_examples=80)
@given(names, subsets)
def test_a_value_set_to_what_it_is_changes_no_number(name, keys):
    sets = [f"workload.{key}={own(name, key)!r}" for key in sorted(keys)]
    assert figures(scenario(name, *sets)) == figures(scenario(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_value_set_to_what_it_is_changes_no_trajectory(name):
    given = str(trace_file()) if name == "trace" else None
    base = trajectories_of(scenario(name).workload, RunSpec(trace=given))[0]
    same = scenario(name, *(f"workload.{key}={own(name, key)!r}" for key in MEANS)).workload
    found = trajectories_of(same, RunSpec(trace=given))[0]
    for column in ("offsets", "context", "append", "generated", "think"):
        assert np.array_equal(getattr(found, column), getattr(base, column)), column


@settings(max_examples=120)
@given(names, st.sampled_from(MEANS), st.floats(0.3, 3.0))
def test_one_mean_is_set_and_all_else_stays(name, key, factor):
    before = scenario(name).workload
    value = max(own(name, key) * factor, 1.0)
    found = with_means(before, {key: value})
    for other in MEANS:
        now = mean_turns(found) if other == "turns" else getattr(per_turn_means(found), other)
        assert now == pytest.approx(value if other == key else own(name, other), rel=1e-9)
    for length in ("context", "append", "generated"):
        # of more turns fewer are first ones, and these differ from the others
        if own(name, length) and not (key == "turns" and before.first_append):
            assert moment(found, length) == pytest.approx(moment(before, length), rel=1e-6, abs=1e-12)
    for scatter in ("context_scatter", "append_scatter"):
        assert getattr(per_turn_means(found), scatter) == getattr(per_turn_means(before), scatter)
    assert has_spread(found) == has_spread(before)


@settings(max_examples=30)
@given(st.sampled_from(["dualpath-32k", "dualpath-64k"]), st.floats(1.0, 4.0), st.floats(1.0, 3.0))
def test_more_to_append_is_never_faster(name, one, more):
    rates = [
        evaluate(scenario(name, f"workload.append={own(name, 'append') * factor!r}")).turns_per_s
        for factor in (one, one * more)
    ]
    assert rates[1] <= rates[0] * (1 + 1e-5) and rates[0] <= evaluate(scenario(name)).turns_per_s * (1 + 1e-5)


def test_all_three_lengths_set_make_all_turns_alike():
    """The paper's row as plain means per turn: 511 whole blocks of 64 tokens hit."""
    row = ["workload.context=32721", "workload.append=429", "workload.generated=176"]
    found = scenario("dualpath-64k", *row)
    assert not has_spread(found.workload) and found.workload.turns == 157
    assert evaluate(found).demand.hit_tokens == 511 * 64
    # also if one of them came later, as from --vary, and whatever is set after that
    later = with_means(with_means(scenario("dualpath-64k", *row[:2]).workload, {"generated": 176.0}), {"append": 300.0})
    (turn,) = turn_mix(later)
    assert (turn.context, turn.append, turn.generated, has_spread(later)) == (32721, 300, 176, False)


def test_uncertain_lengths_keep_the_spread_of_the_workload():
    rate = evaluate(scenario("dualpath-64k")).turns_per_s
    flags = [f"--uncertain=workload.{key}={own('dualpath-64k', key)!r} +- 0" for key in ("append", "context", "turns")]
    data = json.loads(in_process("feasible", PAPER, *flags, "--samples", "4", "--json").stdout)
    assert data["throughput"]["turns_per_s"] == rate
    assert data["uncertainty"]["turns_per_s"] == {"p5": rate, "p50": rate, "p95": rate, "mean": rate}
    # all three lengths: what the workload has, so no turn is replaced by the mean one
    flags.append(f"--uncertain=workload.generated={own('dualpath-64k', 'generated')!r} +- 1e-6")
    data = json.loads(in_process("feasible", PAPER, *flags, "--samples", "4", "--json").stdout)
    assert data["throughput"]["turns_per_s"] == rate
    assert data["uncertainty"]["turns_per_s"]["p50"] == pytest.approx(rate, rel=1e-6)


def test_sweep_and_explain_give_what_set_gives():
    base = scenario("dualpath-64k")
    swept = dualplan.sweep(base, {"workload.append": [150, 429], "workload.generated": [90]})
    for append, rate in zip((150, 429), swept.columns["throughput.turns_per_s"], strict=True):
        alone = evaluate(scenario("dualpath-64k", f"workload.append={append}", "workload.generated=90"))
        assert rate == pytest.approx(alone.turns_per_s, rel=1e-12)
    solved = json.loads(
        in_process("explain", PAPER, "--solve-for", "append", "--target", "turns_per_s=65", "--json").stdout
    )
    assert evaluate(scenario("dualpath-64k", f"workload.append={solved['value']!r}")).turns_per_s == pytest.approx(65)


@pytest.mark.parametrize("name", ["dualpath-32k", "trace"])
def test_what_is_replayed_is_scaled_length_by_length(name):
    given = str(trace_file()) if name == "trace" else None
    base = trajectories_of(scenario(name).workload, RunSpec(trace=given))[0]
    longer = scenario(name, f"workload.append={own(name, 'append') * 2!r}").workload
    found = trajectories_of(longer, RunSpec(trace=given))[0]
    assert found.append == pytest.approx(2 * base.append)
    assert np.array_equal(found.context, base.context) and np.array_equal(found.offsets, base.offsets)
    assert "append to a mean of" in str(found.origin)
    other = scenario(name, "workload.turns=7").workload
    assert trajectories_of(other, RunSpec(trace=given))[0].turns.tolist() == [7]


def test_a_length_that_nothing_had_is_the_same_for_all_turns():
    workload = decode(parse_yaml("turns: 3\ncontext: 0\nappend: {mean: 300, p50: 90}\ngenerated: 0\n", "w"), Workload)
    found = with_means(workload, {"context": 64.0, "generated": 5.0})
    assert {(turn.context, turn.generated) for turn in turn_mix(found)} == {(64, 5)}
    assert moment(found, "append") == pytest.approx(moment(workload, "append"))


def test_it_is_said_what_setting_means():
    told = in_process("feasible", PAPER, "--set", "workload.append=429")
    text = " ".join(told.stdout.split())
    assert "append 429 tokens (was 232.7); turns differ as before, in proportion" in text
    assert "prints means over trajectories (append 429)" in told.stderr and "there append 232.7" in told.stderr
    told = in_process("feasible", PAPER, "--set", "workload.append=232.7")
    assert not told.stderr and "means over all turns" not in told.stdout
    flags = [f"--set=workload.{name}" for name in ("append=429", "generated=176", "context=32721")]
    told = in_process("feasible", PAPER, *flags)
    assert "all turns are alike" in told.stderr and "all turns are alike" in told.stdout
    told = in_process("sweep", PAPER, *flags[:2], "--vary", "workload.context=1000,2000")
    assert told.stderr.count("all turns are alike") == 1
    told = in_process("simulate", PAPER, "--agents", "2", "--set", "workload.turns=3")
    assert "replay equal turns of the means" in told.stderr
