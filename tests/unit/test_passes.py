"""Synchronised passes: hand values, limits, the same equations in the kernel, and a second formulation by drawing."""

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import sympy as sp

from dualplan.model import passes, queueing
from dualplan.model.elementwise import root
from dualplan.model.latency import (
    DecodeStep,
    batch_at_tpot,
    batch_at_turn_rate,
    highest_turn_rate,
    touched,
    turn_rate_at_batch,
)
from dualplan.model.memory import held_turns
from dualplan.model.service_times import Curve, ServiceTimes, linear
from dualplan.serving.turns import chunk_attention, chunk_work, fitting_tokens

NAMES = {"name": "test", "origin": "test", "decode_base": 0.0}


def test_work_of_a_turn_by_hand():
    # 1 ms a request, 0.1 ms a new token, 1 us a cached one: 300 new tokens on 30,000
    times = ServiceTimes(**NAMES, per_request=1e-3, per_token=1e-4, per_context=1e-6)
    assert times.turn_work(300, 30_000) == pytest.approx(0.001 + 0.030 + 0.030)
    # pairs: 300 tokens see 30,000 cached ones and on average half of the new ones
    pairs = ServiceTimes(**NAMES, attention=linear(1e-9))
    assert pairs.attention_work(300, 30_000) == pytest.approx(1e-9 * 300 * 30_150)
    # bytes of an all-to-all hide behind compute as far as they take no longer; those of an all-reduce do not
    assert msgspec.structs.replace(times, per_token_hidden=1e-4).turn_work(300, 30_000) == times.turn_work(300, 30_000)
    assert msgspec.structs.replace(times, per_token_hidden=3e-4).turn_work(300, 30_000) == pytest.approx(0.001 + 0.09)
    linked = msgspec.structs.replace(times, per_token_link=1e-5)
    assert linked.turn_work(300, 30_000) == pytest.approx(0.061 + 0.003)


def test_experts_touched_by_random_tokens():
    # 8 of 256 experts a token: one token touches 8; of 100 draws of a share q, 1 - (1 - q)^100 are met
    assert touched(8 / 256, 1) == pytest.approx(8 / 256)
    assert touched(8 / 256, 100) == pytest.approx(1 - (248 / 256) ** 100)
    assert touched(0.0, 5) == 0.0


def test_the_kernel_counts_work_as_the_steady_model_does():
    curve = Curve(2e-6, (1.5e-9, 4e-9), (math.inf, 2048.0))
    costs = {"per_request": 7e-3, "per_token": 2.5e-4, "per_context": 6.8e-7}
    setting = SimpleNamespace(**costs, per_token_hidden=0.0, per_token_link=0.0, attention_fixed=curve.fixed)
    state = SimpleNamespace(setting=setting, attention=np.array([curve.slopes, curve.spans]))
    attention = chunk_attention(state, 32_768.0, 429.0)
    expected = 7e-3 + 429 * (2.5e-4 + 2e-6 + 1.5e-9 * (32_768 + 214.5) + 4e-9 * 2048) + 6.8e-7 * 32_768
    assert chunk_work(state, 429.0, attention) + attention == pytest.approx(expected)
    assert ServiceTimes(**NAMES, **costs, attention=curve).turn_work(429.0, 32_768.0) == pytest.approx(expected)


@pytest.mark.parametrize("context", [0.0, 500.0, 1900.0, 5000.0])
@pytest.mark.parametrize("room", [1e-4, 1e-2, 0.3])
def test_a_chunk_takes_the_most_blocks_that_the_quota_leaves_room_for(context, room):
    setting = SimpleNamespace(block=64.0, per_context=1e-9, attention_fixed=0.0)
    curve = np.array([(1e-9, 8e-9, 3e-9), (math.inf, 2048.0, 128.0)])
    state = SimpleNamespace(setting=setting, attention=curve)
    tokens = fitting_tokens(state, context, room)
    assert tokens % 64 == 0
    assert tokens == 64 or chunk_attention(state, context, tokens) <= room * (1 + 1e-12)
    assert chunk_attention(state, context, tokens + 64) > room


def test_pass_time_at_a_rate_holds_what_arrives_in_it():
    base, work, excess, rate = sp.symbols("base work excess rate", positive=True)
    time = passes.pass_time_at_rate(base, work, excess, rate)
    assert sp.simplify(base + (rate * time + excess) * work - time) == 0
    assert sp.simplify(passes.pass_rate(base, work, excess, rate * time) - rate) == 0


@pytest.mark.parametrize(("engines", "variation"), [(8, 0.3), (16, 0.5), (16, 1.0), (32, 0.7)])
def test_excess_is_that_of_lognormal_works(engines, variation):
    # the score of the largest stands for its mean, 13 % low where works scatter as much as their mean
    spread = np.sqrt(np.log1p(variation**2))
    works = np.random.default_rng(3).lognormal(-(spread**2) / 2, spread, (200_000, engines))
    assert passes.excess_work(engines, variation) == pytest.approx(works.max(axis=1).mean() - 1, rel=0.15)


def test_alike_works_and_lone_engines_have_no_excess():
    assert passes.excess_work(16, 0.0) == passes.excess_work(1, 2.0) == 0.0


def test_a_read_costs_nothing_until_it_outlasts_a_pass():
    assert passes.time_to_first_token(0.3, 0.1, 0.3) == pytest.approx(0.6)
    assert passes.time_to_first_token(0.3, 0.5, 0.3) == pytest.approx(0.5 + 0.15 + 0.3)
    assert passes.unloaded_time_to_first_token(0.1, 0.15, 0.02) == pytest.approx(0.05 + 0.1 + 0.15)
    assert passes.place_taken(0.3, 0.6, 0.2) == pytest.approx(0.95)


def test_a_turn_of_several_chunks_takes_as_many_passes():
    # 3 passes of 0.3 s; at little load 3 bases of 0.1 s and its own work of 2 s
    assert passes.computing_time(0.3, 0.1, 0.2, 3) == pytest.approx(0.9)
    assert passes.computing_time(0.1, 0.1, 2.0, 3) == pytest.approx(2.3)
    assert passes.computing_time(0.3, 0.1, 0.2, 1) == 0.3


def test_read_response_of_a_closed_queue():
    # exponential: idle the read alone; saturated with 10 under way all ten, as ten wait or are served
    assert queueing.read_response(0.05, 1.0, 0.0, 10) == pytest.approx(0.05)
    assert queueing.read_response(0.05, 1.0, 20.0, 10) == pytest.approx(0.5)
    # many under way: the formula of Pollaczek and Khinchine, here at half load with equal and with varied reads
    assert queueing.read_response(0.05, 0.0, 10.0, 1e9) == pytest.approx(0.05 + 0.5 * 0.05 / (2 * 0.5))
    assert queueing.read_response(0.05, 0.6, 10.0, 1e9) == pytest.approx(0.05 + 0.5 * 0.05 * (1 + 0.36) / (2 * 0.5))


def test_held_turns():
    assert held_turns(10.0, 3.0, alike=True) == 3
    assert held_turns(10.0, 3.0, alike=False) == pytest.approx(10 / 3 - 0.5)
    assert held_turns(2.0, 3.0, alike=True) == 1


def test_root_of_floats_and_arrays():
    assert root(lambda x: x * x - 2, 0.0, 5.0) == pytest.approx(2**0.5)
    found = root(lambda x: x * x - np.array([1.0, 4.0, 100.0]), 0.0, np.array([5.0, 5.0, 5.0]))
    assert found == pytest.approx([1.0, 2.0, math.inf])  # the third stays below 0


def test_decode_steps_with_a_quadratic_term():
    base, slope, quadratic, generated = 0.028, 5e-4, 5e-5, 120.0
    for batch in (1.0, 8.0, 20.0):
        rate = turn_rate_at_batch(base, slope, batch, generated, quadratic)
        assert batch_at_turn_rate(base, slope, rate, generated, quadratic) == pytest.approx(batch)
    best = (base / quadratic) ** 0.5
    assert highest_turn_rate(base, slope, generated, quadratic) == pytest.approx(
        turn_rate_at_batch(base, slope, best, generated, quadratic)
    )
    assert batch_at_tpot(base, slope, base + 10 * slope + 100 * quadratic, quadratic) == pytest.approx(10)


def test_decode_steps_that_touch_more_experts_with_more_sequences():
    # 20 ms, 0.1 ms a sequence, 30 ms for all experts: 8 of 256 a token, 4 engines share them
    step = DecodeStep(base=0.02, slope=1e-4, experts=0.03, share=8 / 256, ranks=4)
    assert step.time(1) == pytest.approx(0.02 + 1e-4 + 0.03 * (1 - (248 / 256) ** 4))
    for batch in (0.5, 3.0, 80.0):
        assert step.batch_at(step.time(batch)) == pytest.approx(batch)
        assert step.batch_at_rate(step.rate_at(batch, 200.0), 200.0) == pytest.approx(batch)
        slots = batch + 2.0 * step.rate_at(batch, 200.0)
        assert step.decoding_batch(slots, 200.0, 2.0) == pytest.approx(batch)
    # however many there are, a sequence takes its slope
    assert step.highest_rate(200.0) == pytest.approx(1 / (200 * 1e-4))
