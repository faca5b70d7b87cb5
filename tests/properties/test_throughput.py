"""The two-variable programme against scipy's LP solver, and its limits."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.model.throughput import Use, best_split

seconds = st.one_of(st.just(0.0), st.floats(1e-4, 10.0))
uses = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=12)


@given(uses)
def test_agrees_with_linear_programme(rows):
    from scipy.optimize import linprog

    rate = best_split([Use(str(i), p, d) for i, (p, d) in enumerate(rows)], both_paths=True)
    solution = linprog([-1, -1], A_ub=rows, b_ub=[1.0] * len(rows), bounds=[(0, None)] * 2, method="highs")
    if solution.status == 3:
        assert rate.turns_per_s is None
    else:
        assert rate.turns_per_s == pytest.approx(-solution.fun, rel=1e-7)
        share = rate.decode_share
        assert all(rate.turns_per_s * ((1 - share) * p + share * d) <= 1 + 1e-9 for p, d in rows)


@given(uses, st.data())
def test_balancing_the_storage_nics_costs_nothing(rows, data):
    storage = data.draw(st.lists(st.sampled_from(range(len(rows))), min_size=1, max_size=2, unique=True))
    resources = [Use(str(i), p, d) for i, (p, d) in enumerate(rows)]
    plain = best_split(resources, both_paths=True)
    balanced = best_split(resources, both_paths=True, balance=storage)
    if plain.turns_per_s is None:
        assert balanced.turns_per_s is None
    else:
        assert balanced.turns_per_s == pytest.approx(plain.turns_per_s, rel=1e-9)
        largest = max(resources[i].at(balanced.decode_share) for i in storage)
        assert largest <= max(resources[i].at(plain.decode_share) for i in storage) * (1 + 1e-9)


@given(
    st.lists(
        st.tuples(st.fractions(0, 5, max_denominator=50), st.fractions(0, 5, max_denominator=50)),
        min_size=1,
        max_size=8,
    )
)
def test_exact_on_fractions(rows):
    rate = best_split([Use(str(i), p, d) for i, (p, d) in enumerate(rows)], both_paths=True)
    if rate.turns_per_s is not None:
        assert isinstance(rate.turns_per_s, Fraction)
        tight = [(1 - rate.decode_share) * p + rate.decode_share * d for p, d in rows]
        assert max(tight) * rate.turns_per_s == 1


def test_one_path_only():
    rate = best_split([Use("a", 0.5, 0.0), Use("b", 0.25, 9.0)], both_paths=False)
    assert (rate.turns_per_s, rate.decode_share, rate.binding) == (2.0, 0, 0)


def test_two_storage_nics_are_used_in_proportion():
    # one prefill node at 40 GB/s and two decode nodes, 2 GB a turn, nothing else: 120/2 turns/s, two thirds on the
    # decode side
    rate = best_split([Use("prefill", 2 / 40, 0.0), Use("decode", 0.0, 2 / 80)], both_paths=True, balance=(0, 1))
    assert rate.turns_per_s == pytest.approx(60)
    assert rate.decode_share == pytest.approx(2 / 3)


def test_storage_is_balanced_when_compute_binds():
    rate = best_split(
        [Use("compute", 0.1, 0.1), Use("prefill", 0.01, 0.0), Use("decode", 0.0, 0.03)], both_paths=True, balance=(1, 2)
    )
    assert rate.turns_per_s == pytest.approx(10)
    assert rate.binding == 0
    assert rate.decode_share == pytest.approx(0.25)
