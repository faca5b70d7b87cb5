"""Synchronised passes: hand values, limits, the same equations in the kernel, and a second formulation by drawing."""

from types import SimpleNamespace

import numpy as np
import pytest
import sympy as sp

from dualplan.model import passes
from dualplan.model.latency import batch_at_tpot, batch_at_turn_rate, highest_turn_rate, turn_rate_at_batch
from dualplan.serving.turns import chunk_attention, chunk_work


def test_work_of_a_turn_by_hand():
    # 1 ms a request, 0.1 ms a new token, 1 us a cached one: 300 new tokens on 30,000
    assert passes.turn_work(1e-3, 1e-4, 1e-6, 0.0, 300, 30_000) == pytest.approx(0.001 + 0.030 + 0.030)
    # pairs: 300 tokens see 30,000 cached ones and on average half of the new ones
    assert passes.attention_work(0.0, 1e-9, 300, 30_000) == pytest.approx(1e-9 * 300 * 30_150)


def test_the_kernel_counts_work_as_the_steady_model_does():
    costs = (7e-3, 2.5e-4, 6.8e-7, 1.5e-9)
    names = ("per_request", "per_token", "per_context", "per_token_context")
    s = SimpleNamespace(setting=SimpleNamespace(**dict(zip(names, costs, strict=True))))
    whole = chunk_work(s, 32_768.0, 429.0) + chunk_attention(s, 32_768.0, 429.0)
    assert whole == pytest.approx(passes.turn_work(*costs, 429.0, 32_768.0))


def test_pass_time_at_a_rate_holds_what_arrives_in_it():
    base, work, excess, rate = sp.symbols("base work excess rate", positive=True)
    time = passes.pass_time_at_rate(base, work, excess, rate)
    assert sp.simplify(passes.pass_time(base, work, excess, rate * time) - time) == 0
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
    assert passes.time_to_first_token(0.3, 0.1) == pytest.approx(0.6)
    assert passes.time_to_first_token(0.3, 0.5) == pytest.approx(0.5 + 0.15 + 0.3)
    assert passes.unloaded_time_to_first_token(0.1, 0.05, 0.02) == pytest.approx(0.05 + 0.1 + 0.15)
    assert passes.place_taken(0.3, 0.6, 0.2) == pytest.approx(0.95)


def test_read_response_of_a_closed_queue():
    # exponential: idle the read alone; saturated with 10 under way all ten, as ten wait or are served
    assert passes.read_response(0.05, 1.0, 0.0, 10) == pytest.approx(0.05)
    assert passes.read_response(0.05, 1.0, 20.0, 10) == pytest.approx(0.5)
    # many under way: the formula of Pollaczek and Khinchine, here at half load with equal and with varied reads
    assert passes.read_response(0.05, 0.0, 10.0, 1e9) == pytest.approx(0.05 + 0.5 * 0.05 / (2 * 0.5))
    assert passes.read_response(0.05, 0.6, 10.0, 1e9) == pytest.approx(0.05 + 0.5 * 0.05 * (1 + 0.36) / (2 * 0.5))


def test_held_turns():
    assert passes.held_turns(10.0, 3.0, alike=True) == 3
    assert passes.held_turns(10.0, 3.0, alike=False) == pytest.approx(10 / 3 - 0.5)
    assert passes.held_turns(2.0, 3.0, alike=True) == 1


def test_root_of_floats_and_arrays():
    assert passes.root(lambda x: x * x - 2, 0.0, 5.0) == pytest.approx(2**0.5)
    found = passes.root(lambda x: x * x - np.array([1.0, 4.0, 100.0]), 0.0, np.array([5.0, 5.0, 5.0]))
    assert found == pytest.approx([1.0, 2.0, 5.0])


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
