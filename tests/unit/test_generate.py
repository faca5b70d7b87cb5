"""Generated trajectories: the DualPath table, how they are cut, other workloads, traces and back."""

import numpy as np
import pytest

from dualplan.errors import InputError
from dualplan.spec.load import decode, parse_yaml, shipped_names
from dualplan.spec.workload import Workload, load_workload, per_turn_means
from dualplan.trace.build import build_trace
from dualplan.trace.generate import as_trace, generate_trajectories, trajectories_of_trace, trajectory_means
from dualplan.trace.recipe import grow, load_recipe

TABLE = {
    "dualpath-32k": (60, 608, 148, 28_639, 17_183),
    "dualpath-48k": (106, 474, 172, 42_607, 25_120),
    "dualpath-64k": (157, 429, 176, 55_958, 32_721),
}
"""The paper's table: turns, append, generated, total, context (means over trajectories)."""


def read(text):
    return decode(parse_yaml(text, "w.yaml"), Workload)


def row(trajectories):
    means = trajectory_means(trajectories)
    return np.array([means.turns, means.append, means.generated, means.total, means.context])


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize(("count", "seeds"), [(500, range(12)), (5000, range(100, 102))])
def test_fifteen_means(name, count, seeds):
    rows = np.array([row(generate_trajectories(name, count, seed)) for seed in seeds])
    errors = rows / TABLE[name] - 1
    assert abs(errors.mean(axis=0)).max() < 0.02
    # what one set of 500 may differ from the mean of many: one standard deviation
    assert errors.std(axis=0).max() < (0.015 if count == 500 else 0.006)


def test_token_factor_of_the_48k_set():
    turns, append, _, _, context = TABLE["dualpath-48k"]
    for seed in range(4):
        made = generate_trajectories("dualpath-48k", 500, seed)
        factor = (made.context + made.append).sum() / (500 * turns * (context + append))
        assert 1.15 <= factor <= 1.18


def test_per_turn_means_of_the_shipped_sets():
    for name in TABLE:
        made, shipped = generate_trajectories(name, 5000, 7), per_turn_means(load_workload(name))
        assert made.context.mean() == pytest.approx(shipped.context, rel=0.01)
        assert made.append.mean() == pytest.approx(shipped.append, rel=0.03)
        assert made.generated.mean() == pytest.approx(shipped.generated, rel=0.03)


@pytest.mark.parametrize("name", TABLE)
def test_trajectories_are_trajectories(name):
    made = generate_trajectories(name, 200, 3)
    first = made.offsets[:-1]
    later = np.setdiff1d(np.arange(len(made.context)), first)
    assert (made.context[first] == 0).all()
    whole = made.context + made.append + made.generated
    assert (made.context[later] == whole[later - 1]).all()
    assert whole.max() == load_workload(name).max_length
    assert made.append.min() >= 1
    assert made.generated.min() >= 1
    assert (made.turns >= 1).all()
    assert (made.think_time_s == 0).all()


def test_sets_are_one_population_cut_at_three_lengths():
    recipe = load_recipe("dualpath")
    short, long = grow(recipe, 32_768, 300, 5), grow(recipe, 65_536, 300, 5)
    assert (short.counts <= long.counts).all()
    starts, ends = np.cumsum(short.counts) - short.counts, np.cumsum(long.counts) - long.counts
    for i, turns in enumerate(short.counts):
        mine, same = slice(starts[i], starts[i] + turns), slice(ends[i], ends[i] + turns)
        assert (short.append[mine] == long.append[same]).all()
        assert (short.generated[mine][:-1] == long.generated[same][:-1]).all()


def test_longer_than_the_paper():
    made = grow(load_recipe("dualpath"), 131_072, 100, 0)
    assert (made.context + made.append + made.generated).max() == 131_072


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("length", [2, 3, 64, 4096])
def test_small_populations_and_short_limits(count, length):
    made = grow(load_recipe("dualpath"), length, count, 0)
    assert len(made.counts) == count
    assert made.counts.min() >= 1
    assert made.append.min() >= 1
    assert made.generated.min() >= 1
    assert (made.context + made.append + made.generated).max() <= length


def test_same_seed_same_trajectories():
    for name in ("dualpath-32k", "claude-code-weka", "mooncake-conversation"):
        one, same, other = (generate_trajectories(name, 50, seed) for seed in (1, 1, 2))
        for field in ("offsets", "context", "append", "generated", "think_time_s"):
            assert getattr(one, field).tobytes() == getattr(same, field).tobytes()
        assert one.generated.tobytes() != other.generated.tobytes()


def test_claude_code_set():
    made = generate_trajectories("claude-code-weka", 500, 0)
    first = made.offsets[:-1]
    later = np.setdiff1d(np.arange(len(made.context)), first)
    assert made.turns.mean() == pytest.approx(69.5, rel=1e-3)
    assert np.median(made.turns) == pytest.approx(46, rel=0.02)
    assert made.append[later].mean() == pytest.approx(3242, rel=1e-3)
    assert np.median(made.append[later]) == pytest.approx(713, rel=0.01)
    assert np.median(made.generated) == pytest.approx(216, rel=0.01)
    assert (made.context[first] == 0).all()
    assert made.think_time_s[later].mean() == pytest.approx(172, rel=1e-6)
    assert np.median(made.think_time_s[later]) == pytest.approx(10, rel=0.01)
    prompt = made.context + made.append
    assert prompt.mean() == pytest.approx(122_000, rel=1e-3)
    assert made.context.sum() / prompt.sum() == pytest.approx(0.963, abs=1e-3)


SESSIONS = """
turns: {mean: 30, p50: 20}
context: {mean: 60000, p50: 50000, max: 200000}
append: {mean: 1000, p50: 400}
generated: {mean: 300, p50: 200}
first_append: 20000
"""


def later_turns(made):
    later = np.ones(len(made.context), bool)
    later[made.offsets[:-1]] = False
    return np.flatnonzero(later)


def assert_coherent(made):
    """No cached prefix is longer than all of the turn before; no prompt shrinks but at resets."""
    later, prompt = later_turns(made), made.context + made.append
    assert made.context.min() >= 0
    assert (made.context[later] <= prompt[later - 1] + made.generated[later - 1]).all()
    assert (made.resets[later] | (prompt[later] >= prompt[later - 1])).all()
    assert not made.resets[made.offsets[:-1]].any()


def growth_hit_rate(made):
    """By the rule of session growth: a prompt as long as prompt and output before it begins with both, one as long as
    the prompt before with that, a shorter one with nothing."""
    later, prompt = later_turns(made), made.context + made.append
    before, both = prompt[later - 1], prompt[later - 1] + made.generated[later - 1]
    hits = np.where(prompt[later] >= both, both, np.where(prompt[later] >= before, before, 0))
    return hits.sum() / prompt.sum()


HIT_MARGIN = 0.03
"""Session growth cannot see what was computed twice, so it finds more hits than a workload with much of it states."""


@pytest.mark.parametrize("name", shipped_names("workloads", ".yaml"))
@pytest.mark.parametrize("seed", [0, 1])
def test_shipped_workloads_hang_together(name, seed):
    workload, made = load_workload(name), generate_trajectories(name, 300, seed)
    assert_coherent(made)
    means = per_turn_means(workload)
    if workload.recipe is None:
        assert made.context.mean() == pytest.approx(means.context, rel=1e-3)
        assert made.append.mean() == pytest.approx(means.append, rel=1e-3)
        assert made.generated.mean() == pytest.approx(means.generated, rel=1e-3)
    if made.turns.max() > 1:
        assert growth_hit_rate(made) == pytest.approx(means.context / (means.context + means.append), abs=HIT_MARGIN)


def test_contexts_of_equal_turns():
    # first prompt 100, then 20 new and 10 out a turn: 3 turns find 110 and 140 in full, 125 on average
    text = "turns: 3\nappend: 20\ngenerated: 10\nfirst_append: 100\n"
    made = generate_trajectories(read(text + "context: 125\n"), 4)
    assert made.context.tolist() == [0, 110, 140] * 4
    assert made.notes == ()
    # 110 on average: without outputs they find 100 and 120
    made = generate_trajectories(read(text + "context: 110\ncarry_over: 0\n"), 4)
    assert made.context.tolist() == [0, 100, 120] * 4
    # 95: 90 and 100, so half of each append had been computed before
    made = generate_trajectories(read(text + "context: 95\n"), 4)
    assert made.context.tolist() == [0, 90, 100] * 4
    assert any("grow by 50% of each append" in str(note) for note in made.notes)


def test_means_that_do_not_go_together():
    # more than 110 and 140 cannot be found after a first prompt of 100
    made = generate_trajectories(read("turns: 3\nappend: 20\ngenerated: 10\nfirst_append: 100\ncontext: 500\n"), 4)
    assert_coherent(made)
    assert made.context.tolist() == [0, 110, 140] * 4
    assert any("500 tokens, does not go with" in note and note.endswith("have 125") for note in map(str, made.notes))


SHORTER = SESSIONS.replace("60000, p50: 50000", "40000, p50: 30000")


def test_resets_are_as_many_as_stated():
    text = SHORTER + "resets: {share: 0.02, context: 5000, append: 8000}\n"
    made = generate_trajectories(read(text), 200, 0)
    later, prompt = later_turns(made), made.context + made.append
    assert_coherent(made)
    assert made.resets.sum() == round(0.02 * len(later))
    assert (made.context[made.resets] <= 5000).all()
    assert made.append[made.resets].mean() == pytest.approx(8000, rel=0.01)
    shorter = (prompt[later] < prompt[later - 1]).sum()
    assert shorter > 0.9 * made.resets.sum()
    assert made.context[later].mean() == pytest.approx(40_000, rel=5e-3)
    assert not generate_trajectories(read(SESSIONS), 200, 0).resets.any()


def test_contexts_in_whole_blocks():
    made = generate_trajectories(read(SESSIONS + "context_block: 64\nblock: 1\n"), 100, 0)
    assert_coherent(made)
    assert (made.context % 64 == 0).all()


def test_longer_trajectories_may_append_less():
    made = generate_trajectories(read(SHORTER + "correlation: {turns_append: -0.6}\n"), 400, 0)
    turns, later = np.repeat(made.turns, made.turns), later_turns(made)
    short = turns[later] <= np.median(turns[later])
    assert made.append[later][short].mean() > 1.5 * made.append[later][~short].mean()
    assert made.append[later].mean() == pytest.approx(1000, rel=1e-3)


def test_first_contexts_make_up_for_what_turns_do_not_add():
    # no first prompt stands apart, so a trajectory may begin with something cached: 60,000 tokens on average
    made = generate_trajectories(read("turns: 4\ncontext: 60000\nappend: 100\ngenerated: 50\n"), 50, 0)
    assert_coherent(made)
    # + 150 a turn: the first begins 1.5 x 150 below the mean
    assert made.context.tolist()[:4] == pytest.approx([59_775, 59_925, 60_075, 60_225], abs=1)


def test_plain_means():
    made = generate_trajectories(read("turns: 2.5\ncontext: 100.5\nappend: 7\ngenerated: 3\nthink_time: 2s\n"), 100, 0)
    assert sorted(set(made.turns)) == [2, 3]
    assert made.turns.mean() == 2.5
    assert made.context.mean() == pytest.approx(100.5, abs=0.01)
    assert set(made.append) == {7}
    assert (made.think_time_s[made.offsets[:-1]] == 0).all()
    assert made.think_time_s.sum() == pytest.approx(2 * 150)


MIX = (
    "context: 275\nappend: 3\ngenerated: 4\n"
    "mix:\n  - {weight: 0.75, context: 100, append: 2, generated: 5}\n"
    "  - {weight: 0.25, context: 800, append: 6, generated: 1}\n"
)


def test_mixes_keep_their_turns_together():
    made = generate_trajectories(read("turns: 1\n" + MIX), 200, 0)
    kinds, counts = np.unique(np.stack([made.context, made.append, made.generated]), axis=1, return_counts=True)
    assert kinds.T.tolist() == [[100, 2, 5], [800, 6, 1]]
    assert counts.tolist() == [150, 50]


def test_trajectories_of_mixes():
    made = generate_trajectories(read("turns: 4\n" + MIX), 50, 0)
    assert_coherent(made)
    assert made.context.mean() == pytest.approx(275, abs=0.1)
    for lengths, expected in ((made.append, ([2, 6], [150, 50])), (made.generated, ([1, 5], [50, 150]))):
        kinds, counts = np.unique(lengths, return_counts=True)
        assert (kinds.tolist(), counts.tolist()) == expected


def test_there_and_back_as_a_trace():
    made = generate_trajectories("dualpath-32k", 40, 0)
    trace = as_trace(made)
    again = trajectories_of_trace(trace)
    for field in ("offsets", "context", "append", "generated"):
        assert (getattr(again, field) == getattr(made, field)).all()
    assert trace.clock == "none"


def test_single_requests_claim_no_sessions():
    made = generate_trajectories("mooncake-toolagent", 30, 0)
    trace = as_trace(made)
    assert not trace.has_sessions
    again = trajectories_of_trace(trace)
    assert (again.context == made.context).all()
    assert (again.turns == 1).all()


def test_waits_there_and_back():
    made = generate_trajectories("codex-swebench-pro", 20, 0)
    again = trajectories_of_trace(as_trace(made))
    assert (again.think_time_s == made.think_time_s).all()


def test_sessions_of_a_trace():
    # session 5: 10 in, 4 out, then 30 in (14 known); a request of its own; a prompt known entirely keeps one token
    trace = build_trace(
        input_tokens=[10, 30, 20, 14],
        output_tokens=[4, 2, 9, 0],
        session=[5, 5, -1, 6],
        arrival_s=[0, 10, 3, 20],
        cached_tokens=[0, 14, 0, 14],
        think_time_s=[np.nan, 7, np.nan, np.nan],
    )
    made = trajectories_of_trace(trace)
    assert made.turns.tolist() == [2, 1, 1]
    assert made.context.tolist() == [0, 14, 13, 0]
    assert made.append.tolist() == [10, 16, 1, 20]
    assert made.generated.tolist() == [4, 2, 1, 9]
    assert made.think_time_s.tolist() == [0, 7, 0, 0]


@pytest.mark.parametrize(
    ("count", "seed", "message"),
    [(0, 0, "at least 1"), (1, -1, "negative"), (10_000_000, 0, "at most 50,000,000")],
)
def test_what_cannot_be_made(count, seed, message):
    with pytest.raises(InputError, match=message):
        generate_trajectories("dualpath-64k", count, seed)


def test_unknown_recipe():
    with pytest.raises(InputError, match="did you mean dualpath"):
        load_recipe("dualpaht")


def test_recipe_without_a_length():
    workload = read("turns: 1\ncontext: 1\nappend: 1\ngenerated: 1\nrecipe: dualpath\n")
    with pytest.raises(InputError, match="max_length: needed by the recipe dualpath"):
        generate_trajectories(workload, 5)
