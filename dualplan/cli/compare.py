"""``dualplan compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit
from dualplan.cli.scenario_files import scenarios_command
from dualplan.cli.scenario_flags import ScenarioFlags

MOST_SCENARIOS = 20


@scenarios_command
def compare(
    flags: list[ScenarioFlags],
    require_feasible: Annotated[
        bool, typer.Option("--require-feasible", help="End with 4 unless every scenario is feasible.")
    ] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """Scenarios side by side: rates, P/D range, bottleneck, latency and cost, with every difference of the inputs.

    Changes are relative to the first scenario; flags apply to all of them.
    """
    from dualplan.errors import UsageError, each

    if len(flags) < 2:
        raise UsageError("compare needs two scenario files or more")
    if len(flags) > MOST_SCENARIOS:
        raise UsageError(f"{len(flags)} scenarios are more than the {MOST_SCENARIOS} that can be read side by side")
    from dualplan.report.compare import Compared, names_of, output
    from dualplan.steady.answer import evaluate

    for one in flags:
        one.said = flags[0].said  # what holds for several scenarios is said once
    answers = each(flags, lambda one: evaluate(one.resolve(mixed=True)))
    compared = Compared(names=names_of([one.file for one in flags], answers), answers=tuple(answers))
    emit(output(compared), fmt, as_json, output_file)
    if require_feasible and not all(answer.feasible for answer in answers):
        raise typer.Exit(4)
