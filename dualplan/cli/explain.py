"""``dualplan explain``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit, print_text, write_text
from dualplan.cli.scenario_flags import ScenarioFlags, scenario_command

if TYPE_CHECKING:
    from dualplan.plan.explain.equation import Equation
    from dualplan.plan.explain.solve_for import Solution
    from dualplan.spec.scenario import Scenario

MOST_NAMES = 6
"""Names that are suggested for a word that many have."""


@scenario_command
def explain(
    flags: ScenarioFlags,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="What feasible prints: a resource, turns/s, TPOT, range; or a symbol."),
    ] = None,
    solve_for: Annotated[
        str | None,
        typer.Option(metavar="X", help="The X at which P/D sits on the end of the range, such as snic_count."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="RATE=VALUE", help="With --solve-for: turns_per_s=62 or agents_per_s=0.4.")
    ] = None,
    range_: Annotated[
        str, typer.Option("--range", metavar="all|paper", help="With --solve-for: all traffic, or hit bytes only.")
    ] = "all",
    elasticities: Annotated[
        bool, typer.Option("--elasticities", help="How rate and range follow each quantity.")
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="A LaTeX document.")] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="End with 0 even if there is no solution.")] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """The equations behind the answer of feasible: derivation from the step table, numbers, LaTeX; solved for any X.

    Without a name all equations, a line each. -f md gives Markdown with LaTeX, --latex a LaTeX document. With
    --solve-for ends with 4 where no value solves it (the reason is printed).
    """
    from dualplan.errors import UsageError

    names = _names(flags, names or [])
    if target is not None and solve_for is None:
        raise UsageError("--target needs --solve-for: say what may change, such as --solve-for snic_count")
    if sum((solve_for is not None, elasticities, latex, bool(names and (solve_for or elasticities)))) > 1:
        raise UsageError("--solve-for, --elasticities and --latex are answers of their own: give one, without names")
    if latex and (as_json or fmt is not Format.table):
        raise UsageError("--latex is a format of its own: leave out --format and --json")
    if range_ not in ("all", "paper"):
        raise typer.BadParameter(f'"{range_[:40]}" is not one of all, paper', param_hint="--range")
    scenario = flags.resolve()
    from dualplan.report import explain as report
    from dualplan.steady.answer import evaluate

    answer = evaluate(scenario)
    if solve_for is not None:
        found = _solved(scenario, solve_for, target, range_)
        emit(
            report.solution_output(answer, solve_for, "paper" if range_ == "paper" else "all", found),
            fmt,
            as_json,
            output_file,
        )
        if isinstance(found, str) and not exit_zero:
            raise typer.Exit(4)
    elif elasticities:
        from dualplan.plan.explain.sensitivity import elasticities as all_elasticities
        from dualplan.plan.explain.sensitivity import held_by_fitted_set, tornado

        spread, found_all = 0.1, all_elasticities(scenario)
        output = report.elasticity_output(
            answer, found_all, tornado(scenario, spread), spread, held_by_fitted_set(scenario)
        )
        emit(output, fmt, as_json, output_file)
    else:
        chosen = _chosen(scenario, names)
        if latex:
            text = report.latex(answer, chosen)
            print_text(text) if output_file is None else write_text(output_file, text)
        else:
            emit(report.output(answer, chosen, whole=bool(names)), fmt, as_json, output_file)


def _names(flags: ScenarioFlags, names: list[str]) -> list[str]:
    """The names asked for. Where flags describe the scenario, the first word is a name and not a file."""
    from dualplan.steady.resources import TITLES

    first = flags.file
    described = {"hardware", "model", "workload"} <= flags.values.keys()
    if first is not None and described and (str(first) in TITLES or not first.exists()) and first.suffix == "":
        flags.file = None
        return [str(first), *names]
    return names


def _chosen(scenario: Scenario, names: list[str]) -> tuple[Equation, ...]:
    """The equations of these names, in their order; all of them without names. Raises InputError."""
    from dualplan.errors import InputError, problem
    from dualplan.plan.explain.derivations import equations
    from dualplan.plan.explain.equation import GROUPS
    from dualplan.steady.resources import TITLES

    found = equations(scenario)
    if not names:
        return found
    known = list(dict.fromkeys(equation.name for equation in found))
    printed = {title.lower(): name for name, title in TITLES.items()} | WORDS
    symbols = {equation.symbol: equation.name for equation in found if equation.kind == "value"}
    names = [_as_named(name, printed, symbols, {*known, *GROUPS, *TITLES}) for name in names]
    problems = []
    for name in names:
        if name in known or name in GROUPS:
            continue
        if name in TITLES:
            problems.append(problem(name, "this deployment has no such resource, or it sets no limit here"))
        else:
            hint = _hint(name[:60].lower(), known, [*known, *GROUPS, *symbols])
            problems.append(problem("NAME", f'"{name[:60]}" is no equation of this answer', hint))
    if problems:
        raise InputError("", problems=problems)
    return tuple(equation for equation in found if equation.name in names or equation.group in names)


WORDS = {
    "rate": "throughput",
    "the rate": "throughput",
    "p/d": "range",
    "p/d range": "range",
    "p/d ratio": "range",
    "pd_ratio": "range",
    "pd": "range",
    "ttft": "ttft_unloaded_s",
    "tpot": "tpot_s",
    "links": "loads",
    "load": "loads",
    "capacity": "capacities",
    "bound": "range",
    "bounds": "range",
    "latencies": "latency",
    "pair": "pairs",
}
"""Everyday words for quantities and groups."""


def _as_named(name: str, printed: dict[str, str], symbols: dict[str, str], names: set[str]) -> str:
    """A name as it stands in JSON, for one that may be given as it is printed, in any case, or as a symbol."""
    if name in names:
        return name
    plain = " ".join(name.lower().split())
    joined = plain.replace("/", "_per_").replace(" ", "_")
    if plain in printed:
        return printed[plain]
    return joined if joined in names else symbols.get(name, name)


def _hint(word: str, known: Sequence[str], close: Sequence[str]) -> str:
    """The names that have all these words, else the one that is nearest."""
    from dualplan.errors import did_you_mean
    from dualplan.steady.resources import TITLES, few

    words = {name: {*name.split("_"), *TITLES.get(name, "").lower().split()} for name in known}
    parts = [name for name in known if word and words[name].issuperset(word.split())]
    parts.sort(key=lambda name: name not in TITLES)  # of many first the resources, which feasible prints
    if len(parts) > 1:
        return f"did you mean {few(parts, ' or ', MOST_NAMES)}? All names: dualplan explain SCENARIO"
    return did_you_mean(word, [*parts, *close]) or "all names: dualplan explain SCENARIO"


def _solved(scenario: Scenario, name: str, target: str | None, range_: str) -> Solution | str:
    """The solution, or why there is none."""
    from dualplan.errors import InfeasibleError
    from dualplan.plan.explain.solve_for import solve_range, solve_target

    try:
        if target is None:
            return solve_range(scenario, name, which="paper" if range_ == "paper" else "all")
        return solve_target(scenario, name, *_rate(target))
    except InfeasibleError as error:
        return str(error)


def _rate(text: str) -> tuple[str, float]:
    """``turns_per_s=62`` as a name and a number. Raises InputError."""
    import re

    from dualplan.errors import InputError

    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?", value.strip(), re.ASCII):
        raise InputError("--target", f'"{text[:60]}" is not a rate', "write for example turns_per_s=62")
    number = float(value)
    if number <= 0:
        raise InputError("--target", f'"{text[:60]}" is not above 0')
    return name.strip(), number
