"""Workload records: representative turns, means per turn, plain means, the shipped files against published figures."""

import pytest

from dualplan.errors import InputError
from dualplan.spec.distribution import Distribution
from dualplan.spec.load import decode, parse_yaml, shipped_names
from dualplan.spec.workload import (
    Turn,
    TurnMeans,
    Workload,
    load_workload,
    mean_turns,
    per_turn_means,
    turn_mix,
    with_plain_means,
)


def read(text):
    return decode(parse_yaml(text, "w.yaml"), Workload)


def problems(text):
    with pytest.raises(InputError) as error:
        read(text)
    return error.value.problems


def weighted(mix, field):
    return sum(turn.weight * getattr(turn, field) for turn in mix)


SPREAD = "append: {mean: 3242, p50: 713}\ngenerated: {mean: 440, p50: 216}\n"


def test_plain_means_are_one_turn():
    workload = read("turns: 157\ncontext: 32721\nappend: 429\ngenerated: 176\n")
    assert turn_mix(workload) == (Turn(weight=1.0, context=32721, append=429, generated=176),)
    assert mean_turns(workload) == 157


def test_mix_keeps_the_means():
    workload = read("turns: 10\ncontext: {mean: 50000, p50: 40000}\n" + SPREAD)
    mix = turn_mix(workload)
    assert len(mix) == 64
    assert weighted(mix, "context") == pytest.approx(50000, rel=1e-12)
    assert weighted(mix, "append") == pytest.approx(3242, rel=1e-12)
    assert weighted(mix, "generated") == pytest.approx(440, rel=1e-12)
    assert sum(turn.weight for turn in mix) == pytest.approx(1, rel=1e-12)


def test_lengths_of_the_mix_are_independent():
    # products of independent lengths: E[context * append] = E[context] E[append], likewise for the other pairs
    mix = turn_mix(read("turns: 10\ncontext: {mean: 50000, p50: 40000}\n" + SPREAD))
    for one, other in (("context", "append"), ("context", "generated"), ("append", "generated")):
        product = sum(turn.weight * getattr(turn, one) * getattr(turn, other) for turn in mix)
        assert product == pytest.approx(weighted(mix, one) * weighted(mix, other), rel=1e-12)


@pytest.mark.parametrize(
    ("lengths", "count"),
    [
        ("context: 9\nappend: {mean: 3242, p50: 713}\ngenerated: 4\n", 8),
        ("context: 9\nappend: 4\ngenerated: {mean: 440, p50: 216}\n", 8),
        ("context: {mean: 50, p50: 40}\nappend: 4\ngenerated: 4\n", 8),
        ("context: 9\n" + SPREAD, 64),
    ],
)
def test_only_spread_lengths_make_classes(lengths, count):
    workload = read("turns: 2\n" + lengths)
    mix = turn_mix(workload)
    assert len(mix) == count
    means = per_turn_means(workload)
    for field in ("context", "append", "generated"):
        assert weighted(mix, field) == pytest.approx(getattr(means, field), rel=1e-12)


def test_first_turns_apart():
    # 4 turns: one of 1,000 tokens on nothing, three of 100 on 2,000: (1000 + 3 * 100) / 4 = 325, 3 * 2000 / 4 = 1500
    workload = read("turns: 4\ncontext: 2000\nappend: 100\ngenerated: 10\nfirst_append: 1000\n")
    assert per_turn_means(workload) == TurnMeans(context=1500, append=325, generated=10)
    assert turn_mix(workload) == (
        Turn(weight=0.25, context=0, append=1000, generated=10),
        Turn(weight=0.75, context=2000, append=100, generated=10),
    )


def test_first_turns_apart_with_distributions():
    workload = read("turns: 4\ncontext: {mean: 2000, p50: 1500}\n" + SPREAD + "first_append: 9000\nfirst_context: 64\n")
    mix = turn_mix(workload)
    assert len(mix) == 50
    means = per_turn_means(workload)
    assert means.append == pytest.approx((9000 + 3 * 3242) / 4)
    assert means.context == pytest.approx((64 + 3 * 2000) / 4)
    for field in ("context", "append", "generated"):
        assert weighted(mix, field) == pytest.approx(getattr(means, field), rel=1e-12)


def test_one_turn_is_the_first():
    workload = read("turns: 1\ncontext: 2000\nappend: 100\ngenerated: 10\nfirst_append: 1000\n")
    assert turn_mix(workload) == (Turn(weight=1.0, context=0, append=1000, generated=10),)


def test_means_of_trajectory_means_use_per_turn():
    workload = load_workload("dualpath-64k")
    assert (workload.turns, workload.context, workload.append, workload.generated) == (157, 32721, 429, 176)
    (turn,) = turn_mix(workload)
    assert turn.append + turn.generated == pytest.approx(55958 / 157, rel=1e-3)
    assert turn.context / 32721 == pytest.approx(1.17, abs=0.01)


def test_setting_lengths_replaces_what_was_published():
    workload = with_plain_means(load_workload("dualpath-64k"), context=32721, append=429, generated=176, turns=157)
    assert turn_mix(workload) == (Turn(weight=1.0, context=32721, append=429, generated=176),)
    assert (workload.means, workload.recipe, workload.published) == ("mean_per_turn", None, ())


def test_setting_one_length_keeps_the_other_means_per_turn():
    own = per_turn_means(load_workload("claude-code-weka"))
    workload = with_plain_means(load_workload("claude-code-weka"), append=1000)
    assert turn_mix(workload) == (Turn(weight=1.0, context=own.context, append=1000, generated=own.generated),)
    assert mean_turns(workload) == 69.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("turns: 0.3\ncontext: 1\nappend: 1\ngenerated: 1\n", "w.yaml:1: turns: a trajectory has at least one turn"),
        ("turns: 3\ncontext: 1.0e+308\nappend: 1\ngenerated: 1\n", "w.yaml:1: context: 1e+308 is more than 1e+15"),
        ("turns: 3\ncontext: -1\nappend: 1\ngenerated: 1\n", 'w.yaml:2: context: "-1" must be at least 0'),
        ("turns: 3\ncontext: 1\nappend: 0\ngenerated: 1\n", 'w.yaml:3: append: "0" must be greater than 0'),
        (
            "turns: 3\ncontext: 1\nappend: {mean: 0}\ngenerated: 1\n",
            "w.yaml:1: append: a turn appends at least one token",
        ),
        (
            "turns: 3\ncontext: 1\nappend: 1\ngenerated: 1\nfirst_context: 5\n",
            "w.yaml:1: first_append: missing beside first_context",
        ),
        ("turns: 3\ncontext: 1\nappend: 1\ngenerated: nan\n", 'w.yaml:4: generated: "nan" is not a finite number'),
        (
            "turns: 3\ncontext: 1\nappend: 1\ngenerated: 1\nthink_time: {mean: 3s, p50: 10}\n",
            'w.yaml:5: think_time.p50: "10" has no unit, a time is needed (write for example 300ms)',
        ),
        (
            "turns: 3\ncontext: 1\nappend: {mean: 5, p50: 4, p90: 3}\ngenerated: 1\n",
            "w.yaml:3: append: p50, p90: 4 is more than 3 (quantiles must rise)",
        ),
        (
            "turns: 3\ncontext: 1\nappend: 1\ngenerated: 1\nmeans: mean_of_trajectory_means\n",
            "w.yaml:1: per_turn: missing beside means of trajectory means "
            "({context, append, generated} over all turns)",
        ),
        (
            "turns: 3\ncontext: 1\nappend: 1\ngenerated: 1\ncorrelation: {turn_context: 2}\n",
            'w.yaml:5: correlation.turn_context: "2" must be at most 1',
        ),
    ],
)
def test_faults(text, expected):
    assert problems(text) == (expected,)


def test_unknown_keys_are_named():
    found = problems("turns: 3\ncontext: 1\napend: 1\ngenerated: 1\n")
    assert found == (
        "w.yaml:3: apend: unknown key (did you mean append?)",
        "w.yaml:1: append: missing",
    )


def test_unknown_workload():
    with pytest.raises(InputError, match="did you mean dualpath-64k"):
        load_workload("dualpath-65k")


def test_shipped_names():
    assert shipped_names("workloads", ".yaml") == [
        "claude-code-weka",
        "codex-swebench-pro",
        "dualpath-32k",
        "dualpath-48k",
        "dualpath-64k",
        "mooncake-conversation",
        "mooncake-synthetic",
        "mooncake-toolagent",
    ]


@pytest.mark.parametrize("name", shipped_names("workloads", ".yaml"))
def test_shipped_workloads_are_sound(name):
    workload = load_workload(name)
    assert workload.name == name
    assert workload.sources
    assert workload.published
    cited = {figure.source for figure in workload.published}
    assert cited <= {source.partition(":")[0] for source in workload.sources}
    mix, means = turn_mix(workload), per_turn_means(workload)
    assert 1 <= len(mix) <= 64
    for field in ("context", "append", "generated"):
        assert weighted(mix, field) == pytest.approx(getattr(means, field), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "turns", "append", "generated", "total", "context", "length"),
    [
        ("dualpath-32k", 60, 608, 148, 28639, 17183, 32768),
        ("dualpath-48k", 106, 474, 172, 42607, 25120, 49152),
        ("dualpath-64k", 157, 429, 176, 55958, 32721, 65536),
    ],
)
def test_dualpath_rows(name, turns, append, generated, total, context, length):
    workload = load_workload(name)
    assert (workload.turns, workload.append, workload.generated, workload.context) == (
        turns,
        append,
        generated,
        context,
    )
    assert workload.max_length == length
    assert {figure.name: figure.value for figure in workload.published}["total_tokens_mean"] == total
    per_turn = per_turn_means(workload)
    assert per_turn.append + per_turn.generated == pytest.approx(total / turns, rel=1e-3)


def test_claude_code_figures():
    workload = load_workload("claude-code-weka")
    assert isinstance(workload.append, Distribution)
    assert (workload.append.mean, workload.append.p50) == (3242, 713)
    assert (workload.turns.mean, workload.turns.p50) == (69.5, 46)
    assert (workload.generated.mean, workload.generated.p50) == (440, 216)
    assert (workload.think_time.mean, workload.think_time.p50) == (172, 10)
    means = per_turn_means(workload)
    assert means.context + means.append == pytest.approx(122_000, rel=1e-4)
    assert means.context / (means.context + means.append) == pytest.approx(0.963, abs=1e-5)


def test_codex_figures():
    workload = load_workload("codex-swebench-pro")
    assert workload.turns.p50 == 33
    means = per_turn_means(workload)
    assert means.context / (means.context + means.append) == pytest.approx(0.942, abs=1e-4)
    assert (means.context + means.append) / means.generated == pytest.approx(131, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "requests", "input_tokens", "output_tokens", "hit_rate"),
    [
        ("mooncake-conversation", 12_031, 12_035, 343, 0.374),
        ("mooncake-toolagent", 23_608, 8_596, 182, 0.59),
        ("mooncake-synthetic", 3_993, 15_325, 149, 0.651),
    ],
)
def test_mooncake_figures(name, requests, input_tokens, output_tokens, hit_rate):
    workload = load_workload(name)
    means = per_turn_means(workload)
    assert means.context + means.append == input_tokens
    assert means.generated == output_tokens
    assert means.context / input_tokens == pytest.approx(hit_rate, abs=1e-4)
    assert {figure.name: figure.value for figure in workload.published}["requests"] == requests
    assert workload.hit_rate.definition == "by_token"
