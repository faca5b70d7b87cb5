"""Equations, inverse questions and elasticities for people and for machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from dualplan.nomenclature import QUANTITIES
from dualplan.plan.assumptions import assumptions, inputs_sha256, sources
from dualplan.plan.explain.equation import GROUPS, RELATIONS, Equation
from dualplan.plan.explain.notation import Input, quantity_text
from dualplan.plan.explain.parameters import Parameter, is_plain
from dualplan.plan.explain.sensitivity import Bar, Elasticity
from dualplan.plan.explain.solve_for import RangeName, Solution
from dualplan.report.blocks import GAP, Block, Formula, Paragraph, Role, table
from dualplan.report.blocks import Equation as BlockEquation
from dualplan.report.feasible import headline, ratio_text
from dualplan.report.feasible_document import INPUTS
from dualplan.report.output import Output
from dualplan.report.records import pick, pick_all
from dualplan.report.renderers.latex import latex_document
from dualplan.steady.answer import Evaluation
from dualplan.steady.resources import TITLES
from dualplan.units import significant

SCHEMA = "dualplan/explain/1"
ELASTICITY = """
    parameter=parameter.name key=parameter.key value unit=parameter.unit turns_per_s lower upper method
"""
MOST_DIGITS = 30
"""Longer fractions are for machines."""


def output(answer: Evaluation, found: Sequence[Equation], *, whole: bool) -> Output:
    """Equations of an answer; ``whole``: with derivation and symbols, else one line each."""
    rows = pick_all(found, RECORD)
    return Output(
        data=_document(answer, {"equations": rows}),
        rows=rows,
        view=lambda: view(answer, found, whole=whole),
        document=lambda: paper(answer, found),
    )


def _document(answer: Evaluation, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **pick(answer.scenario, f"{INPUTS} mode=settings.mode"),
        "prefill_nodes": answer.prefill_nodes,
        "decode_nodes": answer.decode_nodes,
        "pd_ratio": answer.prefill_nodes / answer.decode_nodes,
        **body,
        "assumptions": list(assumptions(answer)),
        "sources": sources(answer.scenario),
        "inputs_sha256": inputs_sha256(answer),
    }


RECORD = """
    name kind group title symbol relation latex text mathml substituted substituted_latex value unit exact derivation
    inputs source
"""


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


def view(answer: Evaluation, found: Sequence[Equation], *, whole: bool) -> Iterator[Block]:
    """Equations by group, and the symbols in them."""
    yield Paragraph(headline(answer), indent=0)
    for about, members in _by_group(found):
        yield from (GAP, _line(about, "lead", indent=0))
        for equation in members:
            if whole:
                yield from (GAP, _whole(equation))
            else:
                yield _line(_with_value(equation) if equation.relation == "=" else _bound(equation))
    yield from (GAP, *_symbol_lines(_symbols(found) if whole else _all_symbols(answer, found)))
    if not whole:
        hint = "With a name (of a resource as feasible prints it, a quantity or a group): derivation and numbers."
        names = ", ".join(dict.fromkeys(equation.name for equation in found))
        yield from (GAP, Paragraph(hint, "note", indent=0, hanging=0), Paragraph(f"Names: {names}", "note", indent=0))


def _line(text: str, role: Role = "", indent: int = 2) -> Paragraph:
    return Paragraph(text, role, indent, hanging=4)


def _value(equation: Equation) -> str:
    return quantity_text(equation.value, equation.unit)


def _with_value(equation: Equation) -> str:
    """The formula and its value; an input that stands for itself once."""
    value = _value(equation)
    return equation.text if equation.text.endswith(f"= {value}") else f"{equation.text} = {value}"


def _bound(equation: Equation) -> str:
    title = TITLES.get(equation.name, equation.name)
    return f"{equation.text} = {_value(equation)}   ({title})"


def _whole(equation: Equation) -> BlockEquation:
    exact = f"   exactly {equation.exact}" if equation.exact and len(equation.exact) <= MOST_DIGITS else ""
    in_numbers = equation.text.endswith(equation.substituted)
    in_latex = equation.latex.endswith(f" {equation.substituted_latex}")
    return BlockEquation(
        title=equation.title,
        name=equation.name,
        text=equation.text,
        mathml=equation.mathml,
        latex=equation.latex,
        numbers="" if in_numbers else f"{equation.relation} {equation.substituted}{exact}",
        latex_numbers="" if in_latex else f"{RELATIONS[equation.relation]} {equation.substituted_latex}",
        derivation=equation.derivation,
        source=equation.source,
    )


def _symbol_lines(found: Sequence[Input]) -> Iterator[Block]:
    if not found:
        return
    yield Paragraph("Symbols", "lead", indent=0)
    width = max(len(entry.symbol) for entry in found)
    values = [quantity_text(entry.value, entry.unit) for entry in found]
    room = max(len(value) for value in values)
    for entry, value in zip(found, values, strict=True):
        yield Paragraph(f"{entry.symbol:<{width}}  {value:>{room}}  {entry.meaning}", hanging=width + room + 4)


def with_equations(output: Output, found: Sequence[Equation], binding: str | None, ends: Sequence[str]) -> Output:
    """A result with equations beside it: for people the rate, the capacity of what binds and the bounds at the ends of
    the range, for machines all of them.
    """
    wanted = [("turns_per_s", "value"), (binding, "capacity"), *((name, "bound") for name in ends)]

    def view() -> Iterator[Block]:
        yield from output.view()
        yield from (GAP, Paragraph("Equations (all of them: dualplan explain)", "lead", indent=0))
        for equation in found:
            if (equation.name, equation.kind) in wanted:
                yield _line(f"{equation.title}: {equation.text}")
                yield _line(f"{equation.relation} {equation.substituted}", indent=6)

    data = {**output.data, "equations": pick_all(found, RECORD)}
    return msgspec.structs.replace(output, data=data, view=view)


# ---------------------------------------------------------------- documents


def paper(answer: Evaluation, found: Sequence[Equation]) -> Iterator[Block]:
    """The equations with derivation, numbers and sources, and the symbols."""
    yield Paragraph(headline(answer), "title")
    for about, members in _by_group(found):
        yield Paragraph(about, "heading")
        yield from map(_whole, members)
    rows = [
        (Formula(entry.latex, entry.symbol), quantity_text(entry.value, entry.unit), entry.meaning)
        for entry in _symbols(found)
    ]
    yield from (Paragraph("Symbols", "heading"), table("", ("symbol", "value", "meaning"), rows, "lrl"))


def latex(answer: Evaluation, found: Sequence[Equation]) -> str:
    """The equations as a LaTeX document."""
    return latex_document(headline(answer), _by_group(found), _symbols(found))


# ---------------------------------------------------------------- solve for


def solution_output(answer: Evaluation, name: str, which: RangeName, found: Solution | str) -> Output:
    """The answer of --solve-for, or the reason why there is none."""
    if isinstance(found, str):
        body: dict[str, Any] = {"solve_for": name, "value": None, "exact": None, "constraint": None, "reason": found}
        data = _document(answer, body)
        return Output(data=data, rows=[body], view=lambda: [_line(f"No answer: {found}.", indent=0)])
    parameter = found.parameter
    body = {
        "solve_for": parameter.name,
        "key": parameter.key,
        **pick(found, "value exact unit=parameter.unit constraint"),
        "valid": {"lower": found.valid[0], "upper": found.valid[1]},
        "now": found.now,
        "holds": found.holds,
        "method": found.method,
        "range": None if found.target else which,
        "target": None if found.target is None else {found.target[0]: found.target[1]},
        "ends": pick_all(found.ends, "value exact constraint"),
        "reason": None,
        "note": SCALED if _scales_turns(answer, found) else None,
    }
    return Output(
        data=_document(answer, body),
        rows=[{key: value for key, value in body.items() if key != "ends"}],
        view=lambda: solution_view(answer, found, which),
    )


SCALED = "a mean over all turns: all turns are scaled alike, as --set does"


def _scales_turns(answer: Evaluation, found: Solution) -> bool:
    """Whether a length was solved for by scaling turns that differ."""
    return found.parameter.workload and not is_plain(answer.scenario.workload)


def solution_view(answer: Evaluation, found: Solution, which: RangeName) -> Iterator[Block]:
    """The value, what holds there, and where the answer is valid."""
    parameter = found.parameter

    def amount(value: float) -> str:
        return quantity_text(value, parameter.unit)

    shown = found.exact is not None and len(found.exact) <= MOST_DIGITS and found.exact != str(int(found.value))
    exact = f" (exactly {found.exact})" if shown else ""
    yield from (Paragraph(headline(answer), indent=0), GAP)
    yield _line(f"{parameter.name} = {amount(found.value)}{exact}", "lead")
    title = TITLES.get(found.constraint, found.constraint)
    if found.target:
        rate = f"{found.target[1]:g} {'turns/s' if found.target[0] == 'turns_per_s' else 'agents/s'}"
        yield _line(f"There {rate} are reached, everything else as it is; {title} binds.")
        what = f"{rate} are met"
    else:
        hits = " with hit bytes only" if which == "paper" else ""
        ratio = "" if parameter.name == "pd_ratio" else f" {ratio_text(answer)}"
        yield _line(f"There P/D{ratio} sits on the end of its range{hits}, set by {title}.")
        what = f"P/D{ratio} lies inside its range"
    low, high = found.valid
    if low is not None and high is not None:
        interval = f"between {amount(low)} and {amount(high)}"
    else:
        interval = f"from {amount(low)} on" if low is not None else f"up to {amount(high or 0.0)}"
    now = f"; now {amount(found.now)}" if found.now is not None else ""
    yield _line(f"Valid: {what} {interval}{now}.")
    if parameter.whole and found.value != int(found.value):
        whole = int(found.value) if high == found.value else int(found.value) + 1
        yield _line(f"In whole numbers: {whole}.")
    how = "exact, from the formula" if found.method == "exact" else "numeric, by bracketing"
    if _scales_turns(answer, found):
        how += f"; {SCALED}"
    yield _line(f"{parameter.meaning} ({parameter.key}); {how}", "note")


# ---------------------------------------------------------------- elasticities


def elasticity_output(
    answer: Evaluation, found: Sequence[Elasticity], bars: Sequence[Bar], spread: float, held: Sequence[Parameter]
) -> Output:
    """How rate and range follow each quantity; ``held``: those that a fitted set keeps out."""
    rows = pick_all(found, ELASTICITY)
    tornado = [
        pick(bar, "parameter=parameter.name low_value high_value") | {"turns_per_s": pick(bar, "low base high")}
        for bar in bars
    ]
    kept = [parameter.name for parameter in held]
    body = {"elasticities": rows, "spread": spread, "tornado": tornado, "held_by_fitted_set": kept}
    return Output(
        data=_document(answer, body),
        rows=rows,
        view=lambda: elasticity_view(answer, found, bars, spread, kept),
    )


def elasticity_view(
    answer: Evaluation, found: Sequence[Elasticity], bars: Sequence[Bar], spread: float, held: Sequence[str]
) -> Iterator[Block]:
    """Elasticities, then the rate at both ends of each quantity."""

    def show(value: float | None) -> str:
        return "-" if value is None else f"{value:+.2f}" if abs(value) > 5e-4 else "0"

    yield from (Paragraph(headline(answer), indent=0), GAP)
    yield Paragraph("Per cent of change for one per cent more", "lead", indent=0)
    rows = [
        (
            entry.parameter.name,
            quantity_text(entry.value, entry.parameter.unit),
            *(show(value) for value in (entry.turns_per_s, entry.lower, entry.upper)),
        )
        for entry in found
    ]
    heads = ("", "now", "turns/s", "P/D low", "P/D high")
    yield table("", heads, rows, "lrrrr", below=True, head="note")
    if bars:
        yield from (GAP, Paragraph(f"turns/s with each {100 * spread:.0f} % lower and higher", "lead", indent=0))
        changes = [(bar.parameter.name, _changed(bar.low, bar.base), _changed(bar.high, bar.base)) for bar in bars]
        yield table("", ("", "lower", "higher"), changes, "lrr", below=True, head="note")
    yield GAP
    yield _line("- exact derivatives of what holds now, central differences where there is no formula", "note")
    if held:
        what = "- compute times are fitted on the machine as it is, so these do not enter: "
        yield _line(what + ", ".join(held), "note")


def _changed(rate: float, base: float) -> str:
    return f"{significant(rate)} ({100 * (rate / base - 1):+.1f} %)"
