"""``dualplan feasible``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit
from dualplan.cli.scenario_flags import ScenarioFlags, scenario_command

if TYPE_CHECKING:
    from dualplan.plan.uncertainty import Uncertainty
    from dualplan.report.output import Output
    from dualplan.steady.answer import Evaluation


@scenario_command
def feasible(
    flags: ScenarioFlags,
    nodes: Annotated[
        int | None, typer.Option(help="All nodes; the best split into prefill and decode is found.")
    ] = None,
    check_flow: Annotated[
        bool,
        typer.Option("--check-flow", help="Solve the flow problem over all pairs of nodes beside the closed form."),
    ] = False,
    uncertain: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A value not known exactly: '0.68 +- 0.08', '0.8..0.95'; repeatable."),
    ] = None,
    samples: Annotated[int | None, typer.Option(metavar="N", help="Samples of the uncertain values, 1000.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also the equations of what binds; with --json all equations.")
    ] = False,
    plot: Annotated[
        bool, typer.Option("--plot", help="Also a chart of the rate over P/D at the same number of nodes.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="All assumptions, not only those that bear on the answer.")
    ] = False,
    print_scenario: Annotated[
        bool, typer.Option("--print-scenario", help="Print the resolved scenario with origins, and stop.")
    ] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="End with 0 even if not feasible.")] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """Is this P/D deployment free of bottlenecks, which range is, what throughput, which link binds?

    Feasible: weights and a context fit, P/D lies inside the range in which storage NICs can run at line rate with all
    traffic, and every demand and SLO given is met. Ends with 0 if so, 4 if not (the answer is printed all the same),
    2 for wrong usage, 3 for bad input.
    """
    from dualplan.errors import UsageError

    if nodes is not None and ({"prefill", "decode"} & flags.values.keys()):
        raise UsageError("--nodes finds the split itself: leave out --prefill and --decode")
    if plot and (as_json or fmt is not Format.table):
        raise UsageError("--plot draws for people: leave out --format and --json")
    if uncertain:
        flags.values["uncertain"] = uncertain
    scenario = flags.resolve(mixed=not explain)
    if samples is not None and not scenario.settings.uncertain:
        raise UsageError("--samples belongs to --uncertain, or to the key uncertain of a scenario")
    if print_scenario:
        from dualplan.report.scenario import output as scenario_output

        emit(scenario_output(scenario), fmt, as_json, output_file)
        return
    from dualplan.report.feasible import output
    from dualplan.steady.answer import best_node_split, evaluate

    if nodes is None:
        answer = evaluate(scenario, check_flow=check_flow)
    else:
        answer = best_node_split(scenario, nodes, check_flow=check_flow)
    robust = _robustness(answer, samples) if scenario.settings.uncertain and not scenario.variants else None
    result = output(answer, robust, verbose=verbose)
    result = _explained(result, answer) if explain else result
    emit(_plotted(result, answer) if plot else result, fmt, as_json, output_file)
    if not answer.feasible and not exit_zero:
        raise typer.Exit(4)


def _plotted(result: Output, answer: Evaluation) -> Output:
    """The answer with a chart below it."""
    from msgspec.structs import replace

    from dualplan.report.blocks import GAP, Drawing
    from dualplan.report.splits_chart import splits_chart

    return replace(result, view=lambda: [*result.view(), GAP, Drawing(lambda width: splits_chart(answer, width))])


def _explained(result: Output, answer: Evaluation) -> Output:
    """The answer with its equations; for people those of what binds, the rate and the ends of the range."""
    from msgspec.structs import replace

    from dualplan.plan.explain.derivations import equations
    from dualplan.report.explain import with_equations

    counts = {"prefill_nodes": answer.prefill_nodes, "decode_nodes": answer.decode_nodes}
    scenario = replace(answer.scenario, settings=replace(answer.scenario.settings, **counts))
    ends = answer.ranges.all_traffic
    at_ends = [*ends.lower_constraints[:1], *ends.upper_constraints[:1]]
    return with_equations(result, equations(scenario), answer.bottleneck.resource, at_ends)


def _robustness(answer: Evaluation, samples: int | None) -> Uncertainty:
    """The verdict over samples of the uncertain values, with a progress line on a terminal."""
    from dualplan.cli.progress import progress
    from dualplan.plan.uncertainty import SAMPLES, assess

    scenario = answer.scenario
    with progress("samples") as show:
        return assess(
            scenario,
            answer.prefill_nodes,
            answer.decode_nodes,
            samples=SAMPLES if samples is None else samples,
            seed=scenario.settings.seed,
            progress=show,
        )
