"""Formulas as text, LaTeX and MathML: with symbols, and with the numbers of a scenario in their place."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from dualplan.model.symbolic import Known, value_of
from dualplan.nomenclature import QUANTITIES
from dualplan.units import show, significant

DIGITS = 4
PLAIN = 1000
"""Whole numbers and denominators below this are written out, others as decimals."""


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A symbol of an equation: its value in this scenario and what it means."""

    name: str
    symbol: str
    latex: str
    value: float
    unit: str
    meaning: str
    source: str


class Symbols:
    """The symbols in use: each is one quantity of the nomenclature with its value."""

    def __init__(self) -> None:
        self.inputs: dict[Any, Input] = {}

    def known(self, name: str, value: Any, side: str = "") -> Any:
        """A quantity by its name in the nomenclature, as a symbol. ``side``: its side, where the sides differ."""
        quantity = QUANTITIES[name]
        text, latex, meaning = quantity.symbol, quantity.latex, quantity.meaning
        if side:
            text, latex = _of_side(text, side[0]), _latex_of_side(latex, side[0])
            meaning = f"{meaning} ({side} side)"
        result = Known.named(text, value)
        self.inputs[result.formula] = Input(
            name=name,
            symbol=text,
            latex=latex,
            value=float(value_of(value)),
            unit=quantity.unit,
            meaning=meaning,
            source=quantity.source,
        )
        return result

    def of(self, *formulas: Any) -> tuple[Input, ...]:
        """The symbols of formulas, by name."""
        used = {atom for formula in formulas for atom in formula.free_symbols}
        return tuple(sorted((self.inputs[atom] for atom in used if atom in self.inputs), key=lambda entry: entry.name))

    def text(self, formula: Any) -> str:
        """The formula in plain text."""
        return plain_text(formula, {})

    def substituted(self, formula: Any) -> str:
        """The formula in plain text with numbers and units in place of symbols."""
        values = {atom: quantity_text(entry.value, entry.unit) for atom, entry in self.inputs.items()}
        return plain_text(formula, values)

    def latex(self, formula: Any) -> str:
        """The formula in LaTeX."""
        return _latex({atom: entry.latex for atom, entry in self.inputs.items()}, formula)

    def substituted_latex(self, formula: Any) -> str:
        """The formula in LaTeX with numbers and units in place of symbols."""
        return _latex({atom: quantity_latex(entry.value, entry.unit) for atom, entry in self.inputs.items()}, formula)

    def mathml(self, formula: Any) -> str:
        """The formula in presentation MathML, without the math element."""
        from sympy.printing.mathml import mathml

        return str(mathml(_readable(formula), printer="presentation", mul_symbol="&#183;"))


def _of_side(text: str, letter: str) -> str:
    return f"{text}{letter}" if "_" in text else f"{text}_{letter}"


def _latex_of_side(text: str, letter: str) -> str:
    base, _, below = text.partition("_")
    return f"{base}_{{{below.strip('{}')},{letter}}}" if below else f"{base}_{letter}"


def quantity_text(value: float, unit: str) -> str:
    """A value with its unit: 50.0 GB/s, 108/s, 2."""
    if unit == "1/s":
        return f"{significant(value, DIGITS)}/s"
    if unit == "tokens":
        return f"{significant(value, DIGITS)} tokens"
    if unit in ("1", ""):
        return str(int(value)) if value == int(value) and abs(value) < 1e6 else number_text(value)
    return show(value, unit, DIGITS)


def quantity_latex(value: float, unit: str) -> str:
    """As quantity_text, in LaTeX."""
    number, space, name = quantity_text(value, unit).replace(",", r"{,}").partition(" ")
    if number.endswith("/s"):
        return number.removesuffix("/s") + r"\,\mathrm{s^{-1}}"
    return number + (r"\,\mathrm{" + name + "}" if space else "")


def number_text(value: float) -> str:
    """A plain number: with few digits, or as a power of ten where it is very small or large."""
    if value and (abs(value) >= 1e9 or abs(value) < 1e-4):
        mantissa, _, power = f"{value:.{DIGITS - 1}e}".partition("e")
        return f"{mantissa}e{int(power)}"
    return significant(value, DIGITS)


def _readable(formula: Any) -> Any:
    """The formula with unwieldy fractions as decimals."""
    import sympy as sp

    unwieldy = {
        number: sp.Float(number)
        for number in formula.atoms(sp.Rational)
        if abs(number.q) >= PLAIN or (number.q > 1 and abs(number.p) >= PLAIN) or abs(number.p) >= 10 * PLAIN
    }
    return formula.xreplace(unwieldy)


def plain_text(formula: Any, values: Mapping[Any, str]) -> str:
    """A formula in plain text, with texts in place of some symbols."""
    printed: str = _text_printer()(values).doprint(_readable(formula))
    return printed.replace("**", "^").replace("*", "·")


@cache
def _text_printer() -> Any:
    from sympy.printing.str import StrPrinter

    class Printer(StrPrinter):  # type: ignore[misc]
        """Plain text with a middle dot for products."""

        def __init__(self, values: Mapping[Any, str]) -> None:
            super().__init__()
            self.values = values

        def _print_Symbol(self, symbol: Any) -> str:  # noqa: N802
            text = self.values.get(symbol, symbol.name)
            return f"({text})" if symbol in self.values and "/" in text else text

        def _print_Float(self, number: Any) -> str:  # noqa: N802
            return number_text(float(number))

        def _print_Pow(self, power: Any, rational: bool = False) -> str:  # noqa: N802
            printed: str = super()._print_Pow(power, rational=rational)
            text = self.values.get(power.base, "")
            # (144 tokens)^2, not 144 tokens^2
            return printed.replace(text, f"({text})", 1) if " " in text and printed.startswith(f"{text}**") else printed

    return Printer


def _latex(names: Mapping[Any, str], formula: Any) -> str:
    printer = _latex_printer()({"symbol_names": dict(names), "mul_symbol": "dot"})
    printed: str = printer.doprint(_readable(formula))
    return printed


@cache
def _latex_printer() -> Any:
    from sympy.printing.latex import LatexPrinter

    class Printer(LatexPrinter):  # type: ignore[misc]
        """LaTeX with few digits."""

        def _print_Float(self, number: Any) -> str:  # noqa: N802
            text = number_text(float(number)).replace(",", r"{,}")
            mantissa, power, exponent = text.partition("e")
            return rf"{mantissa} \cdot 10^{{{exponent}}}" if power else mantissa

        def _print_Pow(self, power: Any) -> str:  # noqa: N802
            printed: str = super()._print_Pow(power)
            text = self._settings["symbol_names"].get(power.base, "")
            wide = r"\," in text and printed.startswith(f"{text}^")
            return printed.replace(text, rf"\left({text}\right)", 1) if wide else printed

    return Printer
