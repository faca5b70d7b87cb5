"""Numbers that remember their formula, so that the equations can be read as symbols without a second copy of them.

A :class:`Known` is a value together with the SymPy expression that gave it. It goes through the same functions as a
float: arithmetic acts on both, and whatever decides a branch (a comparison, a minimum, a whole number of blocks) looks
at the value, so the formula is the one that holds at this point. From it come the text and LaTeX of ``explain``, exact
solutions and exact derivatives.

SymPy is loaded by the first Known. Expressions are made from symbols by arithmetic; text never becomes one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any


def exact(value: Any) -> Any:
    """The decimal number that a float prints as, exactly: 0.1 is 1/10. Whole numbers, Fractions and Knowns stay."""
    return Fraction(repr(value)) if isinstance(value, float) else value


def symbol(name: str) -> Any:
    """A SymPy symbol of a positive quantity; the name is only printed."""
    from sympy import Symbol

    return Symbol(name, positive=True)


def constant(value: Any) -> Any:
    """A number as a SymPy number, exactly; the formula of a Known."""
    from sympy import Integer, Rational

    if isinstance(value, Known):
        return value.formula
    if isinstance(value, int):
        return Integer(value)
    fraction = exact(value if isinstance(value, Fraction) else float(value))
    return Rational(fraction.numerator, fraction.denominator)


def value_of(value: Any) -> Any:
    """The number behind a Known; numbers stay."""
    return value.value if isinstance(value, Known) else value


def as_fraction(number: Any) -> Fraction:
    """A rational SymPy number as a Fraction."""
    return Fraction(int(number.p), int(number.q))


def _both(operate: Callable[[Any, Any], Any]) -> Callable[[Known, Any], Known]:
    def forward(self: Known, other: Any) -> Known:
        return Known(operate(self.value, value_of(other)), operate(self.formula, constant(other)))

    return forward


def _swapped(operate: Callable[[Any, Any], Any]) -> Callable[[Known, Any], Known]:
    def backward(self: Known, other: Any) -> Known:
        return Known(operate(value_of(other), self.value), operate(constant(other), self.formula))

    return backward


def _by_value(compare: Callable[[Any, Any], bool]) -> Callable[[Known, Any], bool]:
    return lambda self, other: compare(self.value, value_of(other))


class Known:
    """A number and its formula. Comparisons and truth look at the number.

    There is no conversion to float: what would silently drop the formula fails instead.
    """

    __slots__ = ("formula", "value")

    def __init__(self, value: Any, formula: Any) -> None:
        self.value = value
        self.formula = formula

    @classmethod
    def named(cls, name: str, value: Any) -> Known:
        """A quantity that is a symbol of its own."""
        return cls(value, symbol(name))

    __add__ = _both(operator.add)
    __radd__ = _swapped(operator.add)
    __sub__ = _both(operator.sub)
    __rsub__ = _swapped(operator.sub)
    __mul__ = _both(operator.mul)
    __rmul__ = _swapped(operator.mul)
    __truediv__ = _both(operator.truediv)
    __rtruediv__ = _swapped(operator.truediv)
    __pow__ = _both(operator.pow)
    __lt__ = _by_value(operator.lt)
    __le__ = _by_value(operator.le)
    __gt__ = _by_value(operator.gt)
    __ge__ = _by_value(operator.ge)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == value_of(other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __neg__(self) -> Known:
        return Known(-self.value, -self.formula)

    def __pos__(self) -> Known:
        return self

    def __abs__(self) -> Known:
        return -self if self.value < 0 else self

    def __bool__(self) -> bool:
        return bool(self.value)

    def __floor__(self) -> Known:
        from sympy import floor

        return Known(math.floor(self.value), floor(self.formula))

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __repr__(self) -> str:
        return f"Known({self.value!r}, {self.formula})"
