"""``dualplan simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, check_place, emit, note, write_text
from dualplan.cli.scenario_flags import ScenarioFlags, scenario_command

if TYPE_CHECKING:
    from dualplan.spec.choices import Mode
    from dualplan.spec.scenario import Scenario


@scenario_command
def simulate(
    flags: ScenarioFlags,
    agents: Annotated[
        str | None, typer.Option(metavar="N", help="Agents that start together (offline): job completion time.")
    ] = None,
    find_capacity: Annotated[
        bool, typer.Option("--find-capacity", help="The highest arrival rate that meets the SLO.")
    ] = False,
    compare: Annotated[
        str | None, typer.Option(metavar="MODES", help="Several modes in one table: basic,layerwise,dual-path,oracle.")
    ] = None,
    trace_times: Annotated[
        bool, typer.Option("--trace-times", help="Arrivals at the times of the trace given as workload.")
    ] = False,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Length of an online run, 3000s unless given.")
    ] = None,
    warm_up: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Turns that end before do not count; a third of the run, none with --trace-times."
        ),
    ] = None,
    runs: Annotated[
        str | None, typer.Option(metavar="N", help="Offline runs with seeds one after the other, for an interval.")
    ] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Seed of trajectories and arrivals, 0.")] = None,
    append_scale: Annotated[str | None, typer.Option(metavar="X", help="Multiply all appends.")] = None,
    generated_scale: Annotated[str | None, typer.Option(metavar="X", help="Multiply all generated lengths.")] = None,
    tokens_per_step: Annotated[
        str | None, typer.Option(metavar="X", help="Tokens of a decode step (speculative decoding), 1.")
    ] = None,
    prefill_placement: Annotated[
        str | None, typer.Option(metavar="POLICY", help="three-class, paper-literal, least-tokens or round-robin.")
    ] = None,
    decode_placement: Annotated[
        str | None, typer.Option(metavar="POLICY", help="threshold, least-tokens or round-robin.")
    ] = None,
    read_side: Annotated[
        str | None, typer.Option(metavar="POLICY", help="shorter-queue, round-robin or prefill-only.")
    ] = None,
    max_active: Annotated[
        str | None,
        typer.Option(metavar="N", help="Admission control: agents that may be active at a time; others wait."),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(metavar="K,...", help="Split the nodes into K equal clusters; several numbers are compared."),
    ] = None,
    elastic: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN", help="Nodes change roles: 600s:3P3D,1200s:2P4D, or auto; against the static split."
        ),
    ] = None,
    switch_cost: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time a node takes to change its role, 30s.")
    ] = None,
    timeline_file: Annotated[
        Path | None,
        typer.Option(
            "--timeline", metavar="FILE", help="State over time: FILE.csv columns, else Perfetto trace events."
        ),
    ] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="End with 0 even if the SLO is missed.")] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """Job completion time, TTFT, TTST, TPOT and capacity, with scheduling and arrivals simulated over time."""
    from dualplan.errors import InfeasibleError, UsageError

    if str(timeline_file) == "-" and str(output_file or "-") == "-":
        raise UsageError("--timeline - and the result both go to standard output: give -o FILE for the result")
    check_place(timeline_file, "--timeline")
    check_place(output_file, "-o")
    scenario = flags.resolve()
    rate = scenario.settings.demand.arrival_rate
    online_given = "arrival_rate" in flags.values
    if sum((agents is not None, online_given, trace_times, find_capacity)) > 1:
        raise UsageError("give one of --agents N, --arrival-rate R, --trace-times and --find-capacity")
    if agents is None and rate is None and not (find_capacity or trace_times):
        raise UsageError("give --agents N (offline), --arrival-rate R (online) or --find-capacity")
    if agents is not None and (duration is not None or warm_up is not None):
        raise UsageError("--duration and --warm-up belong to online runs; a job of --agents runs to its end")
    if runs is not None and agents is None:
        raise UsageError("--runs belongs to --agents; online runs give one mean over time")
    if switch_cost is not None and elastic is None:
        raise UsageError("--switch-cost belongs to --elastic")
    from dualplan.cli.simulate_run import answer, rows
    from dualplan.spec.run import SWITCH_COST, from_flags, parse_elastic
    from dualplan.units import parse, whole, wholes

    spec = from_flags(
        {
            "agents": agents,
            "duration": duration,
            "warm_up": warm_up,
            "seed": seed,
            "tokens_per_step": tokens_per_step,
            "append_scale": append_scale,
            "generated_scale": generated_scale,
            "max_active": max_active,
        },
        arrival_rate=None if agents is not None or find_capacity or trace_times else rate,
        trace_times=trace_times,
        find_capacity=find_capacity,
        prefill_placement=prefill_placement,
        decode_placement=decode_placement,
        read_side=read_side,
    )
    cost = SWITCH_COST if switch_cost is None else parse(switch_cost, "s", "--switch-cost")
    specs = rows(
        spec,
        modes=_modes(compare, scenario),
        clusters=None if clusters is None else wholes(clusters, "--clusters", most=10_000),
        elastic=None if elastic is None else parse_elastic(elastic, "--elastic", cost),
    )
    repeats = 1 if runs is None else whole(runs, "--runs", most=1000)
    flags.caution(scenario, simulated=True)
    _say_what_is_not_used(scenario)
    from dualplan.report.simulate import infeasible, output

    try:
        found, met = answer(flags, scenario, specs, repeats)
    except InfeasibleError as error:
        emit(infeasible([str(error)]), fmt, as_json, output_file)
        raise typer.Exit(error.exit_code) from None
    if timeline_file is not None:
        from dualplan.report.timeline import timeline

        results = [*found.results, *(run for one in found.capacities for run in one.results)]
        write_text(timeline_file, timeline(results, timeline_file.suffix.lstrip(".").lower()))
    emit(output(found), fmt, as_json, output_file)
    if found.interrupted:
        raise typer.Exit(130)
    if not met and not exit_zero:
        raise typer.Exit(4)


def _say_what_is_not_used(scenario: Scenario) -> None:
    """Notes on settings of ``feasible`` that the simulation has no use for, or another one."""
    settings = scenario.settings
    if settings.balance is not None:
        note("balance is not used: how even storage NICs are follows from the simulated schedule")
    if settings.collective_load is not None:
        note("collective_load slows no turn of the simulation; it enters the check of the compute NICs")


def simulation_documents(flags: ScenarioFlags, scenario: Scenario) -> dict[str, Any]:
    """Documents of ``dualplan simulate``: ``capacity`` under the SLO, and ``run`` at the demand, None without one.

    Only ``reasons`` where the deployment cannot be simulated.
    """
    from dualplan.cli.simulate_run import answer
    from dualplan.errors import InfeasibleError, InputError
    from dualplan.report.simulate import output
    from dualplan.spec.run import RunSpec
    from dualplan.spec.workload import mean_turns

    demand = scenario.settings.demand
    rates = [demand.arrival_rate, demand.turn_rate and demand.turn_rate / mean_turns(scenario.workload)]
    rate = max((rate for rate in rates if rate is not None), default=None)
    found: dict[str, Any] = {"run": None}
    try:
        capacity, _ = answer(flags, scenario, (RunSpec(find_capacity=True).of(scenario),))
        found["capacity"] = output(capacity).data
        if rate is not None:
            run, _ = answer(flags, scenario, (RunSpec(arrival_rate=rate).of(scenario),))
            found["run"] = output(run).data
    except (InfeasibleError, InputError) as error:
        return {"reasons": list(error.messages) or str(error).splitlines()}
    return found


def _modes(text: str | None, scenario: Scenario) -> tuple[Mode, ...]:
    if text is None:
        return (scenario.settings.mode,)
    from dualplan.errors import InputError, did_you_mean
    from dualplan.spec.choices import MODES
    from dualplan.units import listed

    names = listed(text)
    for name in names:
        if name not in MODES:
            hint = did_you_mean(name, MODES) or "known: " + ", ".join(MODES)
            raise InputError("--compare", f'"{name}" is not a mode', hint)
    if not names:
        raise InputError("--compare", "names no mode", "known: " + ", ".join(MODES))
    return tuple(names)  # type: ignore[arg-type]
