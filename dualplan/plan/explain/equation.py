"""The record of one equation, its left side, and formulas brought into a short form."""

from __future__ import annotations

from typing import Any

import msgspec

from dualplan.messages import Message
from dualplan.model.symbolic import Known
from dualplan.nomenclature import QUANTITIES
from dualplan.plan.explain.notation import Input

GROUPS = {
    "turn": "What a turn moves and computes",
    "loads": "What the links carry",
    "capacities": "What the resources can do",
    "range": "P/D ratios at which no link binds before the storage NICs",
    "throughput": "The rate",
    "latency": "Latencies",
    "pairs": "Traffic of a pair of GPUs",
}
"""Groups of equations in the order in which they are shown."""

OWN = "dualplan"


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """One equation of a scenario.

    ``name``: the resource as ``feasible`` prints it, or a quantity of the nomenclature. ``kind`` tells its equations
    apart: load, capacity, bound, condition, value. ``text``, ``latex``, ``mathml``: the equation with symbols;
    ``substituted`` and ``substituted_latex``: the right side with numbers. ``value`` in ``unit`` (SI); ``exact``: a
    fraction where the value is one. ``derivation``: where it comes from, a line each.
    """

    name: str
    kind: str
    group: str
    title: Message
    symbol: str
    relation: str
    text: str
    latex: str
    mathml: str
    substituted: str
    substituted_latex: str
    value: float
    unit: str
    exact: str | None
    derivation: tuple[Message, ...]
    inputs: tuple[Input, ...]
    source: str


class Sign(msgspec.Struct, frozen=True):
    """The left side of an equation: text, LaTeX, MathML."""

    text: str
    latex: str
    mathml: str


RELATIONS = {"=": "=", "≥": r"\ge", "≤": r"\le"}


def of_quantity(name: str) -> Sign:
    """The symbol of a quantity of the nomenclature."""
    quantity = QUANTITIES[name]
    base, _, below = quantity.symbol.partition("_")
    mathml = f"<msub><mi>{base}</mi><mi>{below}</mi></msub>" if below else f"<mi>{base}</mi>"
    return Sign(quantity.symbol, quantity.latex, mathml)


def of_resource(letter: str, title: str) -> Sign:
    """A letter with the name of a resource below it."""
    below = title.replace("-", "{-}").replace(" ", r"\ ")
    mathml = f"<msub><mi>{letter}</mi><mtext>{title}</mtext></msub>"
    return Sign(f"{letter}[{title}]", rf"{letter}_{{\mathrm{{{below}}}}}", mathml)


def expanded(value: Any) -> Any:
    """A value as a sum of products: a SymPy expression, or a fraction where it has no formula."""
    import sympy as sp

    return sp.expand(value.formula) if isinstance(value, Known) else sp.Rational(value.numerator, value.denominator)


def tidy(formula: Any) -> Any:
    """A formula as one fraction with few brackets; roots of squares are taken."""
    import sympy as sp

    formula = sp.sympify(formula, rational=True) if isinstance(formula, int | float) else formula
    if formula.has(sp.Pow) and any(power.exp == sp.Rational(1, 2) for power in formula.atoms(sp.Pow)):
        formula = formula.replace(
            lambda part: part.is_Pow and part.exp == sp.Rational(1, 2), lambda part: sp.sqrt(sp.factor(part.base))
        )
    together = sp.together(formula)
    return min((formula, together, short_form(formula)), key=sp.count_ops)


def short_form(formula: Any) -> Any:
    """The fraction with what cancels taken out, where that is no longer than before."""
    import sympy as sp

    return min((formula, sp.factor(formula)), key=sp.count_ops) if sp.count_ops(formula) < 300 else formula
