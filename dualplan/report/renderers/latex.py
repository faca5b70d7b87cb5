"""Equations as a LaTeX document of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dualplan.nomenclature import QUANTITIES
from dualplan.plan.explain.equation import RELATIONS, Equation
from dualplan.plan.explain.notation import Input, quantity_text

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "·": r"$\cdot$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
}


def latex_text(text: str) -> str:
    """Text with everything that LaTeX would read as a command made literal; Greek letters as LaTeX has them."""
    greek = {quantity.symbol: quantity.latex for quantity in QUANTITIES.values() if not quantity.symbol.isascii()}
    escaped = "".join(_LATEX.get(char, char) for char in text)
    for symbol, latex in sorted(greek.items(), key=lambda pair: -len(pair[0])):
        escaped = escaped.replace(symbol.replace("_", r"\_"), f"${latex}$")
    return escaped


def latex_document(title: str, groups: Iterable[tuple[str, Sequence[Equation]]], symbols: Sequence[Input]) -> str:
    """The document: equations with their derivations by group, then the symbols."""
    lines = [
        r"\documentclass{article}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage{amsmath}",
        r"\begin{document}",
        r"\section*{" + latex_text(title) + "}",
    ]
    for about, members in groups:
        lines.append(r"\section{" + latex_text(about) + "}")
        for equation in members:
            lines.append(r"\subsection*{" + latex_text(str(equation.title)) + "}")
            relation = RELATIONS[equation.relation]
            rows = [_aligned(equation, relation)]
            if not equation.latex.endswith(f" {equation.substituted_latex}"):
                rows.append(rf"&{relation} {equation.substituted_latex}")
            lines += [r"\begin{align*}", " \\\\\n".join(rows), r"\end{align*}"]
            if equation.derivation:
                lines.append(r"\begin{itemize}")
                lines += [r"\item " + latex_text(str(line)) for line in equation.derivation]
                lines.append(r"\end{itemize}")
    lines += [r"\section*{Symbols}", r"\begin{itemize}"]
    for entry in symbols:
        value = latex_text(quantity_text(entry.value, entry.unit))
        lines.append(rf"\item ${entry.latex}$ = {value}: {latex_text(entry.meaning)}")
    return "\n".join([*lines, r"\end{itemize}", r"\end{document}"]) + "\n"


def _aligned(equation: Equation, relation: str) -> str:
    left, right = equation.latex.split(f" {relation} ", 1)
    return f"{left} &{relation} {right}"
