"""Trajectories: the published means of the population, cuts, scales, traces."""

import numpy as np
import pytest

from dualplan.errors import InputError
from dualplan.serving.trajectories import Trajectories, dealt, equal_turns, for_workload, from_trace, scaled
from dualplan.spec.distribution import Distribution
from dualplan.spec.workload import Workload, load_workload, with_means
from dualplan.trace.generate import generate_trajectories
from dualplan.trace.read import read_trace


def columns(*turns, think=0.0):
    context, append, generated = np.array(turns, float).T
    return Trajectories(
        offsets=np.array([0, len(turns)]),
        context=context,
        append=append,
        generated=generated,
        think=np.full(len(turns), think),
        origin="by hand",
    )


def test_a_recipe_is_the_population_of_trace_generate():
    workload = load_workload("dualpath-32k")
    found, made = for_workload(workload, count=200, seed=1), generate_trajectories("dualpath-32k", 200, 1)
    assert found.offsets.tolist() == made.offsets.tolist()
    for name in ("context", "append", "generated"):
        assert np.array_equal(getattr(found, name), getattr(made, name))
    assert found.longest <= 32768
    assert for_workload(workload, count=200, seed=2).append.sum() != found.append.sum()


def test_scales_grow_contexts_and_cut():
    base = columns((0, 100, 10), (110, 50, 20), (180, 30, 10), (220, 30, 10))
    found = scaled(base, 2, 3, 420)
    # 0+200+30; 230+100+60; 390+60+30 = 480 > 420 ends it
    assert found.context.tolist() == [0, 230]
    assert found.append.tolist() == [200, 100]
    assert found.generated.tolist() == [30, 60]
    assert scaled(base, 1, 1, 420) is base


def test_scaled_lengths_are_whole_tokens_and_at_least_one():
    base = columns((0, 100, 11), (111, 10, 3), (124, 0, 1))
    found = scaled(base, 0.25, 0.3)
    # 25, 2.5, 0 and 3.3, 0.9, 0.3; the contexts are sums of what came before
    assert found.append.tolist() == [25, 2, 0] and found.generated.tolist() == [3, 1, 1]
    assert found.context.tolist() == [0, 28, 31]
    assert "at least one token" in str(found.origin)
    tiny = scaled(base, 1e-6, 1e-6)
    assert tiny.append.tolist() == [1, 1, 0] and tiny.generated.tolist() == [1, 1, 1]
    # means of turns that are all alike stay as they come
    assert scaled(columns((500, 10.5, 5.25)), 0.5, 2).append.tolist() == [5.25]


def test_scales_of_equal_turns_leave_their_context():
    found = scaled(columns((500, 10, 5), (500, 10, 5)), 3, 1)
    assert found.context.tolist() == [500, 500]
    assert found.append.tolist() == [30, 30]


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_scales_must_be_positive(factor):
    with pytest.raises(InputError, match="--append-scale"):
        scaled(columns((0, 10, 5)), factor, 1)


def test_every_trajectory_is_dealt_equally_often():
    base = for_workload(load_workload("dualpath-32k"), count=50)
    counts = np.bincount(dealt(base, 175, 3), minlength=50)
    assert counts.min() == 3 and counts.max() == 4
    assert not np.array_equal(dealt(base, 50, 3), dealt(base, 50, 4))


def test_plain_means_are_equal_turns():
    found = equal_turns(Workload(name="w", turns=3, context=1000, append=100, generated=20, think_time=2.0))
    assert found.turns.tolist() == [3]
    assert found.context.tolist() == [1000] * 3 and found.think.tolist() == [2.0] * 3


def test_distributions_are_drawn():
    lengths = {"turns": Distribution(mean=20, p50=15), "append": Distribution(mean=300, p50=100)}
    found = for_workload(Workload(name="w", context=Distribution(mean=9000, p50=8000), generated=50, **lengths), seed=1)
    assert found.turns.mean() == pytest.approx(20, rel=0.05)
    assert found.append.mean() == pytest.approx(300, rel=0.1)
    assert found.context.mean() == pytest.approx(9000, rel=0.05)


def test_zero_turns_are_refused():
    with pytest.raises(InputError, match="without turns"):
        Trajectories(
            offsets=np.array([0, 0]),
            context=np.zeros(0),
            append=np.zeros(0),
            generated=np.zeros(0),
            think=np.zeros(0),
            origin="",
        )


def test_a_trace_with_block_ids(tmp_path):
    # Mooncake's format, blocks of 512: the second request has the first block of the first one
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp": 0, "input_length": 1000, "output_length": 50, "hash_ids": [1, 2]}\n'
        '{"timestamp": 3000, "input_length": 1200, "output_length": 7, "hash_ids": [1, 3, 4]}\n'
    )
    found, arrivals = from_trace(read_trace(str(path)), "trace")
    assert arrivals.tolist() == [0.0, 3.0]
    assert found.turns.tolist() == [1, 1]
    assert found.context.tolist() == [0, 512]
    assert found.append.tolist() == [1000, 688]
    assert found.generated.tolist() == [50, 7]


@pytest.mark.parametrize(("turns", "agents", "made"), [(20, 4, 500), (20, None, 500), (5000, 4, 4), (2e4, 2, 2)])
def test_a_job_of_few_agents_deals_no_more_very_long_trajectories_than_it_has_agents(turns, agents, made):
    workload = with_means(load_workload("claude-code-weka"), {"turns": turns})
    assert len(for_workload(workload, agents=agents).turns) == made
