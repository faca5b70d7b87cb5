"""Hit accounting, the LRU curve, statistics, representative turns: small cases worked out by hand."""

import numpy as np
import pytest

from dualplan.trace.build import build_trace
from dualplan.trace.chart import bar_chart
from dualplan.trace.fit import fit_workload
from dualplan.trace.hits import context_tokens, hit_rates, main_accounting, session_context
from dualplan.trace.mix import turn_mix
from dualplan.trace.reuse import block_accesses, depths, previous, reuse_curve
from dualplan.trace.stats import summarise

# One agent of four turns: 1000 -> 1200 (all of 1000 + 50 kept) -> 1210 (below 1200 + 60: the output was dropped)
# -> 400 (a new context)
PROMPTS, OUTPUTS = [1000, 1200, 1210, 400], [50, 60, 70, 80]


def agent(**more):
    return build_trace(input_tokens=PROMPTS, output_tokens=OUTPUTS, session=[7] * 4, arrival_s=[0, 10, 25, 90], **more)


def test_session_growth_rules():
    trace = agent()
    assert main_accounting(trace) == "session_growth"
    assert session_context(trace).tolist() == [0, 1050, 1200, 0]
    rates = hit_rates(trace, "session_growth")
    # whole blocks of 64: 16 of 1050, 18 of 1200; prompts have 16, 19, 19, 7
    assert rates.by_token == (16 * 64 + 18 * 64) / 3810
    assert rates.by_block == 34 / 61
    assert rates.mean_of_ratios == pytest.approx((1024 / 1200 + 1152 / 1210) / 4)
    assert summarise(trace).resets == 1


def test_requests_outside_sessions_have_no_context():
    trace = build_trace(input_tokens=[100, 200, 300], output_tokens=[1, 1, 1], session=[-1, -1, 3])
    assert session_context(trace).tolist() == [0, 0, 0]
    assert summarise(trace).sessions == 1


def test_reported_counts_beyond_the_prompt_are_cut():
    trace = build_trace(input_tokens=[100, 100], output_tokens=[1, 1], cached_tokens=[250, -1])
    assert trace.cached_tokens.tolist() == [100, -1]
    rates = hit_rates(trace, "reported")
    assert (rates.by_token, rates.requests) == (1.0, 1)  # over the one request that has a report
    assert trace.report.notes == ("1 cached counts were beyond their prompts and cut to them",)
    assert context_tokens(trace, "reported").tolist() == [100, 0]


def test_hits_are_a_prefix():
    ids = [[1, 2, 3], [1, 9, 3], [4, 2, 3], [1, 2, 3, 5]]
    trace = build_trace(
        input_tokens=[40, 48, 48, 50], output_tokens=[1] * 4, block_ids=ids, block_size=16, arrival_s=range(4)
    )
    # a known block behind an unknown one is no hit; the last request has 3 * 16 = 48 of its 50 tokens
    assert trace.hit_blocks.tolist() == [0, 1, 0, 3]
    assert hit_rates(trace, "block_hashes").by_token == (16 + 48) / 186
    assert hit_rates(trace, "block_hashes").by_block == 4 / 13


def test_partial_block_counts_its_tokens_only():
    trace = build_trace(
        input_tokens=[20, 20], output_tokens=[1, 1], block_ids=[[1, 2], [1, 2]], block_size=16, arrival_s=[0, 1]
    )
    assert hit_rates(trace, "block_hashes").by_token == 20 / 40


# ---------------------------------------------------------------- reuse


def test_depths_by_hand():
    # a b c a a c b with weights 1 2 4: a again over {a, b, c} = 7, a at once 1, c over {c, a} = 5, b over all = 7
    item = np.array([0, 1, 2, 0, 0, 2, 1])
    weight = np.array([1, 2, 4, 1, 1, 4, 2])
    assert previous(item).tolist() == [-1, -1, -1, 0, 3, 2, 1]
    assert depths(weight, previous(item)).tolist() == [0, 0, 0, 7, 1, 5, 7]


def test_depth_uses_the_weight_an_item_was_left_with():
    # session 0 grows from 10 to 30 while session 1 waits: session 1 is at depth 30 + 5
    item, weight = np.array([0, 1, 0, 0, 1]), np.array([10, 5, 20, 30, 6])
    assert depths(weight, previous(item)).tolist() == [0, 0, 15, 20, 35]


def test_blocks_that_come_together_are_one_item():
    ids = [[1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2, 3, 4]]
    trace = build_trace(
        input_tokens=[64, 80, 64], output_tokens=[1] * 3, block_ids=ids, block_size=16, arrival_s=range(3)
    )
    accesses = block_accesses(trace, trace.blocks)
    # (1 2 3) (4) | (1 2 3) (5 6) | (1 2 3) (4)
    assert (accesses.weight // 16).tolist() == [3, 1, 3, 2, 3, 1]
    curve = reuse_curve(trace)
    assert curve.working_set_tokens == 6 * 16
    # (1 2 3) again after (4): depth 4 blocks; after (5 6): 5; (4) again over (1 2 3), (5 6) and itself: 6
    points = {point.cache_tokens: point.by_block for point in curve.points}
    assert points[64] == 3 / 13 and points[128] == 7 / 13
    assert curve.for_share == {"0.5": 80.0, "0.8": 80.0, "0.9": 96.0, "0.99": 96.0}


def test_curve_of_sessions():
    trace = build_trace(
        input_tokens=[100, 40, 120, 60],
        output_tokens=[10, 5, 10, 5],
        session=[0, 1, 0, 1],
        arrival_s=[0, 1, 2, 3],
    )
    curve = reuse_curve(trace)
    assert curve.basis == "sessions"
    # session 0 again over its own 110 and the other's 45; session 1 over 45 and 130
    assert curve.for_share["0.5"] == 155.0 and curve.for_share["0.99"] == 175.0
    assert curve.points[-1].by_token == (110 + 45) / 320
    assert curve.working_set_tokens == 130 + 65


def test_working_set_of_a_window():
    # one block of 16 tokens used at 0, 10 and 100 s; within any 60 s: 10 + 60 of 100 s it is in the set
    trace = build_trace(
        input_tokens=[16] * 3, output_tokens=[1] * 3, block_ids=[[1]] * 3, block_size=16, arrival_s=[0, 10, 100]
    )
    assert reuse_curve(trace).windows == {"60": pytest.approx(16 * 70 / 100)}


def test_sampled_curve_comes_close():
    rng = np.random.default_rng(5)
    blocks = rng.zipf(1.3, (4000, 8)) % 3000
    trace = build_trace(
        input_tokens=[128] * 4000,
        output_tokens=[1] * 4000,
        block_ids=blocks.tolist(),
        block_size=16,
        arrival_s=range(4000),
    )
    whole = block_accesses(trace, trace.blocks)
    part = block_accesses(trace, trace.blocks, limit=20_000)
    assert whole.sampled == 1.0 and part.sampled == pytest.approx(5000 / len(whole.item))
    assert set(part.item.tolist()) < set(whole.item.tolist())


# ---------------------------------------------------------------- statistics


def test_summary_of_an_agent():
    summary = summarise(agent(think_time_s=[np.nan, 4, 8, 30]))
    assert (summary.requests, summary.sessions, summary.turns_per_session.mean) == (4, 1, 4)
    assert summary.input_tokens.mean == 952.5 and summary.input_tokens.p50 == 1100
    assert summary.context_tokens.mean == 562.5 and summary.append_tokens.mean == 390
    assert summary.think_time_s.mean == 14 and summary.think_time_s.count == 3
    assert summary.turn_gap_s.max == 65
    assert [(group.first, group.last, group.input_tokens) for group in summary.growth] == [
        (1, 1, 1000),
        (2, 2, 1200),
        (3, 4, 805),
    ]
    assert summary.growth[2].context_tokens == 600 and summary.growth[2].append_tokens == 205


def test_arrivals():
    def arrivals(times, **more):
        n = len(times)
        return summarise(build_trace(input_tokens=[5] * n, output_tokens=[1] * n, arrival_s=times, **more)).arrivals

    even = arrivals([0, 10, 20, 30, 40])
    assert (even.duration_s, even.requests_per_s, even.interarrival_cv) == (40, 0.1, 0)
    # gaps 0, 30: mean 15, standard deviation 15
    assert arrivals([0, 0, 30]).interarrival_cv == 1
    # 3 of 4 requests are in the first minute
    assert arrivals([0, 1, 2, 120]).peak_requests_per_s == 3 / 60
    assert arrivals([5, 5]).requests_per_s is None
    own_clocks = arrivals([0, 5], clock="session", session=[1, 2])
    assert own_clocks.requests_per_s is None and own_clocks.because == "no common clock"


def test_think_time_is_that_before_later_turns():
    # what a file gives for a first turn, often 0, is no wait: (4 + 8 + 30) / 3
    trace = agent(think_time_s=[0, 4, 8, 30])
    summary = summarise(trace)
    assert (summary.think_time_s.mean, summary.think_time_s.count) == (14, 3)
    assert turn_mix(trace).think_time_s == 14
    assert fit_workload(trace, "t").think_time.mean == 14
    alone = build_trace(input_tokens=[64, 64], output_tokens=[1, 1], think_time_s=[0, 3])
    assert summarise(alone).think_time_s is None and turn_mix(alone).think_time_s is None


# ---------------------------------------------------------------- representative turns


def test_turn_mix_of_an_agent():
    mix = turn_mix(agent(think_time_s=[np.nan, 4, 8, 30]))
    assert mix.turns_per_session == 4 and mix.think_time_s == 14
    assert sorted((turn.context, turn.append, turn.generated) for turn in mix.turns) == [
        (0, 400, 80),
        (0, 1000, 50),
        (1050, 150, 60),
        (1200, 10, 70),
    ]
    two = turn_mix(agent(), classes=2)
    assert [(turn.weight, turn.context, turn.append, turn.generated) for turn in two.turns] == [
        (0.5, 0, 700, 65),
        (0.5, 1125, 80, 65),
    ]


def test_turn_mix_without_sessions():
    mix = turn_mix(build_trace(input_tokens=[10, 30], output_tokens=[1, 3]), classes=1)
    assert mix.accounting is None and mix.turns_per_session == 1 and mix.think_time_s is None
    assert [(turn.context, turn.append, turn.generated) for turn in mix.turns] == [(0, 20, 2)]
    with pytest.raises(ValueError, match="at least one class"):
        turn_mix(agent(), classes=0)


def test_bar_chart():
    lines = bar_chart(["a", "bb"], [4.0, 2.0], ["4", "2.0"], 20, ascii_only=True).splitlines()
    # 20 columns less labels of 2, texts of 3 and " |" and " " between them leave 11
    assert lines == [" a |########### 4", "bb |###### 2.0"]
    assert bar_chart(["a"], [0.0], ["0"], 20, ascii_only=False) == "a | 0"
    assert "▌" in bar_chart(["a", "b"], [2.0, 1.0], ["", ""], 14, ascii_only=False)
