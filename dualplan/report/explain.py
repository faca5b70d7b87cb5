"""Equations, inverse questions and elasticities for people and for machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dualplan.nomenclature import QUANTITIES
from dualplan.plan.assumptions import assumptions, inputs_sha256, sources
from dualplan.plan.explain.equation import GROUPS, Equation
from dualplan.plan.explain.notation import Input, quantity_text
from dualplan.plan.explain.parameters import Parameter, is_plain
from dualplan.plan.explain.sensitivity import Bar, Elasticity
from dualplan.plan.explain.solve_for import RangeName, Solution
from dualplan.report.columns import print_table
from dualplan.report.feasible import headline, ratio_text
from dualplan.report.output import Output
from dualplan.steady.answer import Evaluation
from dualplan.steady.resources import TITLES
from dualplan.units import significant

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "dualplan/explain/1"
MOST_DIGITS = 30
"""Longer fractions are for machines."""


def output(answer: Evaluation, found: Sequence[Equation], *, whole: bool) -> Output:
    """Equations of an answer; ``whole``: with derivation and symbols, else one line each."""
    rows = [_record(equation) for equation in found]
    return Output(
        data=_document(answer, {"equations": rows}),
        rows=rows,
        text=lambda console: _show(answer, found, console, whole=whole),
        markdown=lambda: markdown(answer, found),
    )


def _document(answer: Evaluation, body: dict[str, Any]) -> dict[str, Any]:
    scenario = answer.scenario
    return {
        "schema": SCHEMA,
        "name": scenario.settings.name,
        "hardware": scenario.hardware.name,
        "decode_hardware": scenario.decode_hardware.name,
        "model": scenario.model.name,
        "workload": scenario.workload.name,
        "mode": scenario.settings.mode,
        "prefill_nodes": answer.prefill_nodes,
        "decode_nodes": answer.decode_nodes,
        "pd_ratio": answer.prefill_nodes / answer.decode_nodes,
        **body,
        "assumptions": list(assumptions(answer)),
        "sources": sources(scenario),
        "inputs_sha256": inputs_sha256(answer),
    }


def _record(equation: Equation) -> dict[str, Any]:
    return {
        "name": equation.name,
        "kind": equation.kind,
        "group": equation.group,
        "title": equation.title,
        "symbol": equation.symbol,
        "relation": equation.relation,
        "latex": equation.latex,
        "text": equation.text,
        "mathml": equation.mathml,
        "substituted": equation.substituted,
        "substituted_latex": equation.substituted_latex,
        "value": equation.value,
        "unit": equation.unit,
        "exact": equation.exact,
        "derivation": list(equation.derivation),
        "inputs": [_input(entry) for entry in equation.inputs],
        "source": equation.source,
    }


def _input(entry: Input) -> dict[str, Any]:
    return {
        "name": entry.name,
        "symbol": entry.symbol,
        "latex": entry.latex,
        "value": entry.value,
        "unit": entry.unit,
        "meaning": entry.meaning,
        "source": entry.source,
    }


def _by_group(found: Iterable[Equation]) -> Iterator[tuple[str, list[Equation]]]:
    listed = list(found)
    for group, about in GROUPS.items():
        members = [equation for equation in listed if equation.group == group]
        if members:
            yield about, members


def _symbols(found: Iterable[Equation]) -> list[Input]:
    """The symbols of several equations once each."""
    return list({entry.symbol: entry for equation in found for entry in equation.inputs}.values())


def _all_symbols(answer: Evaluation, found: Sequence[Equation]) -> list[Input]:
    """The symbols of several equations, those on the left sides too, each once and in the order of the equations."""
    entries: list[Input] = []
    for equation in found:
        if equation.kind == "value":
            entries.append(_entry(equation.name, equation.symbol, equation.value, equation.unit, str(equation.title)))
        elif equation.kind == "bound":
            ratio = QUANTITIES["pd_ratio"]
            value = answer.prefill_nodes / answer.decode_nodes
            entries.append(_entry(ratio.name, equation.symbol, value, ratio.unit, ratio.meaning))
        entries += equation.inputs
    return list({entry.symbol: entry for entry in reversed(entries)}.values())[::-1]


def _entry(name: str, symbol: str, value: float, unit: str, meaning: str) -> Input:
    """The symbol on the left side of an equation."""
    latex, source = (QUANTITIES[name].latex, QUANTITIES[name].source)
    return Input(name=name, symbol=symbol, latex=latex, value=value, unit=unit, meaning=meaning, source=source)


# ---------------------------------------------------------------- people


def _wrapped(console: Console, text: str, style: str | None = None, *, indent: str = "  ", hanging: int = 4) -> None:
    width = max(console.width, 40)
    lines = wrap(text, width, initial_indent=indent, subsequent_indent=indent + " " * hanging, break_on_hyphens=False)
    for line in lines or [indent]:
        console.print(line, style=style, soft_wrap=True)


def _show(answer: Evaluation, found: Sequence[Equation], console: Console, *, whole: bool) -> None:
    _wrapped(console, headline(answer), indent="", hanging=2)
    for about, members in _by_group(found):
        console.print()
        _wrapped(console, about, "bold", indent="")
        for equation in members:
            if whole:
                _show_whole(equation, console)
            else:
                _wrapped(console, _with_value(equation) if equation.relation == "=" else _bound(equation))
    console.print()
    _show_symbols(_symbols(found) if whole else _all_symbols(answer, found), console)
    if not whole:
        console.print()
        hint = "With a name (of a resource as feasible prints it, a quantity or a group): derivation and numbers."
        _wrapped(console, hint, "dim", indent="", hanging=0)
        names = ", ".join(dict.fromkeys(equation.name for equation in found))
        _wrapped(console, "Names: " + names, "dim", indent="", hanging=2)


def _value(equation: Equation) -> str:
    return quantity_text(equation.value, equation.unit)


def _with_value(equation: Equation) -> str:
    """The formula and its value; an input that stands for itself once."""
    value = _value(equation)
    return equation.text if equation.text.endswith(f"= {value}") else f"{equation.text} = {value}"


def _bound(equation: Equation) -> str:
    title = TITLES.get(equation.name, equation.name)
    return f"{equation.text} = {_value(equation)}   ({title})"


def _show_whole(equation: Equation, console: Console) -> None:
    console.print()
    _wrapped(console, str(equation.title), "bold")
    _wrapped(console, equation.text)
    exact = f"   exactly {equation.exact}" if equation.exact and len(equation.exact) <= MOST_DIGITS else ""
    if not equation.text.endswith(equation.substituted):
        _wrapped(console, f"{equation.relation} {equation.substituted}{exact}", indent="    ")
    for line in equation.derivation:
        _wrapped(console, f"- {line}", "dim", hanging=2)


def _show_symbols(found: Sequence[Input], console: Console) -> None:
    if not found:
        return
    console.print("Symbols", style="bold")
    width = max(len(entry.symbol) for entry in found)
    values = [quantity_text(entry.value, entry.unit) for entry in found]
    room = max(len(value) for value in values)
    for entry, value in zip(found, values, strict=True):
        _wrapped(console, f"{entry.symbol:<{width}}  {value:>{room}}  {entry.meaning}", hanging=width + room + 4)


def with_equations(output: Output, found: Sequence[Equation], binding: str | None, ends: Sequence[str]) -> Output:
    """A result with equations beside it: for people the rate, the capacity of what binds and the bounds at the ends of
    the range, for machines all of them.
    """
    wanted = [("turns_per_s", "value"), (binding, "capacity"), *((name, "bound") for name in ends)]

    def text(console: Console) -> None:
        output.text(console)
        console.print()
        console.print("Equations (all of them: dualplan explain)", style="bold")
        for equation in found:
            if (equation.name, equation.kind) in wanted:
                _wrapped(console, f"{equation.title}: {equation.text}")
                _wrapped(console, f"{equation.relation} {equation.substituted}", indent="      ")

    data = {**output.data, "equations": [_record(equation) for equation in found]}
    return Output(data=data, rows=output.rows, text=text, markdown=output.markdown)


# ---------------------------------------------------------------- documents


def markdown(answer: Evaluation, found: Sequence[Equation]) -> str:
    """A Markdown document with LaTeX between dollar signs."""
    lines = [f"# {headline(answer)}", ""]
    for about, members in _by_group(found):
        lines += [f"## {about}", ""]
        for equation in members:
            lines += [f"### {_escaped(str(equation.title))} (`{equation.name}`)", ""]
            lines += [f"$${equation.latex}$$", ""]
            if not equation.latex.endswith(f" {equation.substituted_latex}"):
                lines += [f"$${_relation(equation)} {equation.substituted_latex}$$", ""]
            lines += [f"- {_escaped(str(line))}" for line in equation.derivation]
            lines += [f"- source: {_escaped(equation.source)}", ""]
    lines += ["## Symbols", "", "| symbol | value | meaning |", "|---|--:|---|"]
    for entry in _symbols(found):
        value = quantity_text(entry.value, entry.unit)
        lines.append(f"| ${entry.latex}$ | {value} | {_escaped(entry.meaning)} |")
    return "\n".join(lines) + "\n"


def _relation(equation: Equation) -> str:
    return {"=": "=", "≥": r"\ge", "≤": r"\le"}[equation.relation]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


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


def latex_document(answer: Evaluation, found: Sequence[Equation]) -> str:
    """A LaTeX document of its own."""
    symbols = _symbols(found)
    lines = [
        r"\documentclass{article}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage{amsmath}",
        r"\begin{document}",
        r"\section*{" + latex_text(headline(answer)) + "}",
    ]
    for about, members in _by_group(found):
        lines.append(r"\section{" + latex_text(about) + "}")
        for equation in members:
            lines.append(r"\subsection*{" + latex_text(str(equation.title)) + "}")
            relation = _relation(equation)
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


# ---------------------------------------------------------------- solve for


def solution_output(answer: Evaluation, name: str, which: RangeName, found: Solution | str) -> Output:
    """The answer of --solve-for, or the reason why there is none."""
    if isinstance(found, str):
        body: dict[str, Any] = {"solve_for": name, "value": None, "exact": None, "constraint": None, "reason": found}
        data = _document(answer, body)
        return Output(data=data, rows=[body], text=lambda console: _wrapped(console, f"No answer: {found}.", indent=""))
    parameter = found.parameter
    body = {
        "solve_for": parameter.name,
        "key": parameter.key,
        "value": found.value,
        "exact": found.exact,
        "unit": parameter.unit,
        "constraint": found.constraint,
        "valid": {"lower": found.valid[0], "upper": found.valid[1]},
        "now": found.now,
        "holds": found.holds,
        "method": found.method,
        "range": None if found.target else which,
        "target": None if found.target is None else {found.target[0]: found.target[1]},
        "ends": [{"value": end.value, "exact": end.exact, "constraint": end.constraint} for end in found.ends],
        "reason": None,
        "note": SCALED if _scales_turns(answer, found) else None,
    }
    return Output(
        data=_document(answer, body),
        rows=[{key: value for key, value in body.items() if key != "ends"}],
        text=lambda console: _show_solution(answer, found, which, console),
    )


SCALED = "a mean over all turns: all turns are scaled alike, as --set does"


def _scales_turns(answer: Evaluation, found: Solution) -> bool:
    """Whether a length was solved for by scaling turns that differ."""
    return found.parameter.workload and not is_plain(answer.scenario.workload)


def _show_solution(answer: Evaluation, found: Solution, which: RangeName, console: Console) -> None:
    parameter = found.parameter

    def amount(value: float) -> str:
        return quantity_text(value, parameter.unit)

    shown = found.exact is not None and len(found.exact) <= MOST_DIGITS and found.exact != str(int(found.value))
    exact = f" (exactly {found.exact})" if shown else ""
    _wrapped(console, headline(answer), indent="", hanging=2)
    console.print()
    _wrapped(console, f"{parameter.name} = {amount(found.value)}{exact}", "bold")
    title = TITLES.get(found.constraint, found.constraint)
    if found.target:
        rate = f"{found.target[1]:g} {'turns/s' if found.target[0] == 'turns_per_s' else 'agents/s'}"
        _wrapped(console, f"There {rate} are reached, everything else as it is; {title} binds.")
        what = f"{rate} are met"
    else:
        hits = " with hit bytes only" if which == "paper" else ""
        ratio = "" if parameter.name == "pd_ratio" else f" {ratio_text(answer)}"
        _wrapped(console, f"There P/D{ratio} sits on the end of its range{hits}, set by {title}.")
        what = f"P/D{ratio} lies inside its range"
    low, high = found.valid
    if low is not None and high is not None:
        interval = f"between {amount(low)} and {amount(high)}"
    else:
        interval = f"from {amount(low)} on" if low is not None else f"up to {amount(high or 0.0)}"
    now = f"; now {amount(found.now)}" if found.now is not None else ""
    _wrapped(console, f"Valid: {what} {interval}{now}.")
    if parameter.whole and found.value != int(found.value):
        whole = int(found.value) if high == found.value else int(found.value) + 1
        _wrapped(console, f"In whole numbers: {whole}.")
    how = "exact, from the formula" if found.method == "exact" else "numeric, by bracketing"
    if _scales_turns(answer, found):
        how += f"; {SCALED}"
    _wrapped(console, f"{parameter.meaning} ({parameter.key}); {how}", "dim")


# ---------------------------------------------------------------- elasticities


def elasticity_output(
    answer: Evaluation, found: Sequence[Elasticity], bars: Sequence[Bar], spread: float, held: Sequence[Parameter]
) -> Output:
    """How rate and range follow each quantity; ``held``: those that a fitted set keeps out."""
    rows = [
        {
            "parameter": entry.parameter.name,
            "key": entry.parameter.key,
            "value": entry.value,
            "unit": entry.parameter.unit,
            "turns_per_s": entry.turns_per_s,
            "lower": entry.lower,
            "upper": entry.upper,
            "method": entry.method,
        }
        for entry in found
    ]
    tornado = [
        {
            "parameter": bar.parameter.name,
            "low_value": bar.low_value,
            "high_value": bar.high_value,
            "turns_per_s": {"low": bar.low, "base": bar.base, "high": bar.high},
        }
        for bar in bars
    ]
    kept = [parameter.name for parameter in held]
    body = {"elasticities": rows, "spread": spread, "tornado": tornado, "held_by_fitted_set": kept}
    return Output(
        data=_document(answer, body),
        rows=rows,
        text=lambda console: _show_elasticities(answer, found, bars, spread, kept, console),
    )


def _show_elasticities(
    answer: Evaluation,
    found: Sequence[Elasticity],
    bars: Sequence[Bar],
    spread: float,
    held: Sequence[str],
    console: Console,
) -> None:
    def show(value: float | None) -> str:
        return "-" if value is None else f"{value:+.2f}" if abs(value) > 5e-4 else "0"

    _wrapped(console, headline(answer), indent="", hanging=2)
    console.print()
    console.print("Per cent of change for one per cent more", style="bold")
    cells = [
        (
            entry.parameter.name,
            quantity_text(entry.value, entry.parameter.unit),
            *(show(value) for value in (entry.turns_per_s, entry.lower, entry.upper)),
        )
        for entry in found
    ]
    heads = ("", "now", "turns/s", "P/D low", "P/D high")
    print_table(console, heads, cells, "lrrrr", indent="  ", head="dim")
    if bars:
        console.print()
        console.print(f"turns/s with each {spread:.0%} lower and higher".replace("%", " %"), style="bold")
        cells = [(bar.parameter.name, *(_changed(value, bar.base) for value in (bar.low, bar.high))) for bar in bars]
        print_table(console, ("", "lower", "higher"), cells, "lrr", indent="  ", head="dim")
    console.print()
    _wrapped(console, "- exact derivatives of what holds now, central differences where there is no formula", "dim")
    if held:
        what = "- compute times are fitted on the machine as it is, so these do not enter: "
        _wrapped(console, what + ", ".join(held), "dim")


def _changed(rate: float, base: float) -> str:
    return f"{significant(rate)} ({100 * (rate / base - 1):+.1f} %)"
