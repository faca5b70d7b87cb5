"""``dualplan size``: working set, store, load or recompute, a DRAM pool, a remote site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit, note
from dualplan.cli.scenario_flags import ScenarioFlags, scenario_command

if TYPE_CHECKING:
    from dualplan.plan.sizing import WorkingSet
    from dualplan.spec.scenario import Scenario

CompletionOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Mean time of an agent, such as 570s; else of the steady model.")
]
SimulateOption = Annotated[bool, typer.Option("--simulate", help="Take that time from a simulation at the demand.")]


@scenario_command
def working_set(
    flags: ScenarioFlags,
    completion_time: CompletionOption = None,
    simulate: SimulateOption = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """KV of the agents under way, at --arrival-rate or --turn-rate, else at the rate that the deployment carries."""
    from dualplan.report.size import working_set_output

    scenario = flags.resolve()
    held = _held(scenario, completion_time, simulate)
    emit(working_set_output(scenario, held), fmt, as_json, output_file)


@scenario_command
def store(
    flags: ScenarioFlags,
    completion_time: CompletionOption = None,
    simulate: SimulateOption = False,
    retention: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep KV so long, such as 24h; else the working set.")
    ] = None,
    server_capacity: Annotated[str | None, typer.Option(metavar="SIZE", help="What one storage server holds.")] = None,
    server_read: Annotated[str | None, typer.Option(metavar="RATE", help="What one storage server reads.")] = None,
    server_write: Annotated[str | None, typer.Option(metavar="RATE", help="What one storage server writes.")] = None,
    dwpd: Annotated[str, typer.Option(metavar="X", help="Rated drive writes a day over the warranty.")] = "1",
    warranty: Annotated[str, typer.Option(metavar="TIME", help="Warranty of the drives.")] = "1825d",
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """Storage servers needed, bytes written a day and drive life, one server or node down."""
    from dualplan.plan.sizing import Server, store_needs
    from dualplan.report.size import store_output
    from dualplan.units import positive

    scenario = flags.resolve()
    units = {"capacity": (server_capacity, "B"), "read": (server_read, "B/s"), "write": (server_write, "B/s")}
    limits = {
        name: None if text is None else positive(text, unit, f"--server-{name}") for name, (text, unit) in units.items()
    }
    rated, covered = positive(dwpd, "1", "--dwpd"), positive(warranty, "s", "--warranty")
    kept = None if retention is None else positive(retention, "s", "--retention")
    held = _held(scenario, completion_time, simulate)
    needs = store_needs(
        scenario, held, server=Server(**limits), retention=kept, rated_writes_per_day=rated, warranty=covered
    )
    emit(store_output(scenario, needs), fmt, as_json, output_file)


@scenario_command
def break_even(
    flags: ScenarioFlags,
    context: Annotated[
        str, typer.Option(metavar="N,N,...", help="Lengths of the prefix [tokens], separated by commas.")
    ] = "1024,8192,32768,131072",
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """Load or recompute: the bandwidth above which a prefill node loads a prefix faster, and each tier."""
    from dualplan.plan.sizing import break_even as of_contexts
    from dualplan.plan.sizing import tiers
    from dualplan.report.size import break_even_output
    from dualplan.units import wholes

    contexts = wholes(context, "--context", "a number of tokens", most=10**8 - 1, hint="write for example 8192,32768")
    scenario = flags.resolve()
    found = of_contexts(scenario, contexts)
    emit(break_even_output(scenario, found, tiers(scenario, found[-1].kv_bytes)), fmt, as_json, output_file)


@scenario_command
def pool(
    flags: ScenarioFlags,
    trace: Annotated[Path, typer.Option(metavar="FILE", help="A trace; its reuse curve gives the share of the hits.")],
    capacity: Annotated[
        str | None, typer.Option(metavar="SIZE,SIZE,...", help="Sizes of the pool; else the DRAM of the prefill nodes.")
    ] = None,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """A DRAM pool on the prefill nodes beside storage: share of the hits that it serves, and the rate with it."""
    from dualplan.errors import InputError
    from dualplan.plan.sizing import pool_sizes
    from dualplan.report.size import pool_output
    from dualplan.trace.read import read_trace
    from dualplan.trace.reuse import reuse_curve
    from dualplan.units import positive

    scenario = flags.resolve()
    dram, nodes = scenario.hardware.dram.capacity, scenario.settings.prefill_nodes
    if capacity is not None:
        sizes = [positive(part, "B", "--capacity") for part in capacity.split(",")]
    else:
        if dram is None or nodes is None:
            raise InputError(
                "--capacity", "missing: the profile does not say how much DRAM a node has", "such as 2TB,8TB"
            )
        sizes = [dram * nodes]
    curve = reuse_curve(read_trace(str(trace)))
    if curve is None:
        raise InputError(
            str(trace), "nothing in the trace tells what is used again", "a trace with block ids or sessions"
        )
    emit(pool_output(scenario, pool_sizes(scenario, curve, sizes), trace.name), fmt, as_json, output_file)


@scenario_command
def wan(
    flags: ScenarioFlags,
    bandwidth: Annotated[str, typer.Option(metavar="RATE", help="The link to the other site, such as 10Gb/s.")],
    latency: Annotated[str, typer.Option(metavar="TIME", help="Its round trip, such as 30ms.")] = "0",
    share: Annotated[str, typer.Option(metavar="X", help="Share of the turns whose prefix is there.")] = "1",
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """KV-cache at another site: load it over the link or compute it again; first token and rate."""
    from dualplan.plan.sizing import remote
    from dualplan.report.size import remote_output
    from dualplan.units import number, positive

    rate = positive(bandwidth, "B/s", "--bandwidth")
    part = number(share, "--share", "a share", dimension="1", above=0.0, most=1.0)
    wait = number(latency, "--latency", "a time", dimension="s", least=0.0)
    scenario = flags.resolve()
    emit(remote_output(scenario, remote(scenario, bandwidth=rate, latency=wait, share=part)), fmt, as_json, output_file)


def _held(scenario: Scenario, completion_time: str | None, simulate: bool) -> WorkingSet:
    """The working set with the completion time that is asked for."""
    from dualplan.errors import UsageError
    from dualplan.plan.sizing import arrival_rate, simulated
    from dualplan.plan.sizing import working_set as of_scenario
    from dualplan.steady.answer import evaluate
    from dualplan.units import positive, significant

    if simulate and completion_time is not None:
        raise UsageError("--completion-time and --simulate both say how long an agent takes: give one")
    given = None if completion_time is None else positive(completion_time, "s", "--completion-time")
    if not simulate:
        return of_scenario(scenario, given)
    rate = arrival_rate(scenario, evaluate(scenario))
    note(f"simulating {significant(rate)} agents/s")
    return of_scenario(scenario, run=simulated(scenario, rate))
