"""Numbers that remember their formula: the same value as without, and a formula that gives it."""

import math
from fractions import Fraction

import pytest
import sympy as sp

from dualplan.model.elementwise import minimum
from dualplan.model.symbolic import Known, constant, exact


def test_value_and_formula_go_together():
    a, b = Known.named("a", 6.0), Known.named("b", 4)
    found = (3 - a / b) ** 2 + 2 * -b + 1 / a - b
    assert found.value == pytest.approx((3 - 6 / 4) ** 2 - 8 + 1 / 6 - 4)
    symbols = {a.formula: 6, b.formula: 4}
    assert float(found.formula.subs(symbols)) == pytest.approx(found.value)


def test_branches_follow_the_value_and_the_formula_is_that_of_the_branch():
    a, b = Known.named("a", 6.0), Known.named("b", 4.0)
    assert minimum(a, b).formula == b.formula
    assert max(a, 5).formula == a.formula
    assert a > b and b < 5 <= a and a != b and a == 6.0
    assert not Known(0, sp.Symbol("z")) and bool(a)
    assert abs(Known(-2.0, -a.formula)).formula == a.formula


def test_whole_blocks():
    tokens = Known.named("c", 130.0)
    blocks = math.floor(tokens / 64) * 64
    assert blocks.value == 128
    assert blocks.formula == 64 * sp.floor(tokens.formula / 64)


def test_nothing_drops_the_formula_silently():
    with pytest.raises(TypeError):
        float(Known.named("a", 1.0))
    with pytest.raises(TypeError):
        math.log(Known.named("a", 1.0))


def test_decimals_are_exact():
    assert exact(0.1) == Fraction(1, 10)
    assert constant(0.1) == sp.Rational(1, 10)
    assert constant(Fraction(3, 7)) == sp.Rational(3, 7)
    assert exact(Fraction(1, 3)) == Fraction(1, 3)
    assert (Known.named("a", Fraction(1, 3)) * 3).value == 1
