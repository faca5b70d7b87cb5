"""``dualplan sweep``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit, note
from dualplan.cli.scenario_flags import KEY_OF_FLAG, ScenarioFlags, scenario_command

if TYPE_CHECKING:
    from dualplan.cli.sweep_file import Journal
    from dualplan.plan.sweep.points import Made, Points
    from dualplan.plan.sweep.table import Table
    from dualplan.report.sweep import Answer
    from dualplan.spec.run import RunSpec
    from dualplan.spec.scenario import Scenario

MOST_JOBS = 1024


@scenario_command
def sweep(
    flags: ScenarioFlags,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=VALUES",
            help="What varies, repeatable: prefill=1..8, decode=1..64*2, hardware.snic.count=1,2,4, "
            "hardware.snic.rate=100Gb/s..400Gb/s+100Gb/s, pd=1:8..8:1, mode=basic,dual-path, or any key of --set.",
        ),
    ] = None,
    zipped: Annotated[
        bool, typer.Option("--zip", help="First values together, then second ones, instead of all combinations.")
    ] = False,
    nodes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Nodes that --vary pd splits; without it a ratio's two numbers are the nodes."),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate every point (with --agents, --arrival-rate, --find-capacity).")
    ] = False,
    agents: Annotated[
        str | None, typer.Option(metavar="N", help="Simulated: agents that start together. Can be varied.")
    ] = None,
    find_capacity: Annotated[
        bool, typer.Option("--find-capacity", help="Simulated: the highest arrival rate that meets the SLO.")
    ] = False,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Simulated: length of an online run.")] = None,
    warm_up: Annotated[
        str | None, typer.Option(metavar="TIME", help="Simulated: turns that end before do not count.")
    ] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Simulated: seed, 0. Can be varied.")] = None,
    append_scale: Annotated[str | None, typer.Option(metavar="X", help="Simulated: multiply all appends.")] = None,
    generated_scale: Annotated[
        str | None, typer.Option(metavar="X", help="Simulated: multiply all generated lengths.")
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", metavar="N", help="Processes.", show_default=True)] = 1,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on the Dask scheduler at this address.")
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="The best point by a column of -f csv, such as turns_per_s, or --limit of them; -KEY or KEY:min: "
            "least.",
        ),
    ] = None,
    pareto: Annotated[
        str | None,
        typer.Option(metavar="KEY,KEY", help="Points that no other beats in all columns, such as turns_per_s,-gpus."),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="The first N rows.")] = None,
    plot: Annotated[bool, typer.Option("--plot", help="A chart of the rate over what varies.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Replace -o FILE.jsonl instead of going on from it.")
    ] = False,
    require_feasible: Annotated[
        bool, typer.Option("--require-feasible", help="End with 4 unless every point is feasible.")
    ] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """The steady or simulated answer over node counts, ratios, hardware, workloads: one row a point.

    With -o FILE.jsonl every finished point is appended, and the same command goes on where it was stopped. Ends with 0
    when every point was evaluated, also infeasible ones; 3 when some failed (column error says why).
    """
    from dualplan.errors import InputError, UsageError
    from dualplan.plan.sweep.simulated_point import for_points
    from dualplan.spec.run import from_flags

    if best is not None and pareto is not None:
        raise UsageError("--best and --pareto choose rows in two ways: give one of them")
    if cluster is not None and jobs != 1:
        raise UsageError("--cluster runs on the cluster's workers: leave out --jobs")
    if not 1 <= jobs <= MOST_JOBS:
        raise InputError("--jobs", f"{jobs} is not a number of processes from 1 to {MOST_JOBS:,}")
    if plot and (as_json or fmt is not Format.table):
        raise UsageError("--plot draws for people: leave out --format and --json")
    if limit is not None and limit < 1:
        raise InputError("--limit", f"{limit} is not a number of rows above 0")
    form = _format(fmt, as_json, output_file)
    if seed is not None:
        flags.values.setdefault("set_", [])
        flags.values["set_"] = [*flags.values["set_"], f"seed={seed}"]
    texts = {
        "agents": agents,
        "append_scale": append_scale,
        "generated_scale": generated_scale,
        "duration": duration,
        "warm_up": warm_up,
    }
    if not simulate:
        given = [name for name, value in texts.items() if value]
        if given or find_capacity:
            flag = "--" + (given or ["find_capacity"])[0].replace("_", "-")
            raise UsageError(f"{flag} belongs to --simulate")
    scenario = flags.resolve(mixed=not simulate)
    asked = {"--agents": agents, "--arrival-rate": flags.values.get("arrival_rate"), "--find-capacity": find_capacity}
    several = [name for name, value in asked.items() if value]
    if simulate and len(several) > 1:
        raise UsageError(f"give one of {' and '.join(several)}")
    points = _points(scenario, vary or [], zipped, nodes)
    arrivals = find_capacity or agents is not None or scenario.settings.demand.arrival_rate is not None
    if simulate and not (arrivals or {"agents", "demand.arrival_rate"} & {axis.key for axis in points.axes}):
        raise UsageError("--simulate needs --agents N, --arrival-rate R or --find-capacity, or one of them varied")
    call = None
    if simulate:
        trace = str(flags.workload_path()) if scenario.workload.mix else None
        call = for_points(from_flags(texts, find_capacity=find_capacity, trace=trace), points.count)
    source = _source(flags, scenario, points, call)
    _caution(flags, points, source, simulated=simulate)

    from dualplan.plan.sweep.table import Table, choose, key_columns

    table = Table(points, key_columns(points))
    journal = _journal(output_file, form, points, source, call, restart)
    interrupted = False
    try:
        for _ in _run(points, source, call, table, journal, _Where(jobs, cluster)):
            choose(table, best, pareto, limit)  # a name that is no column is said at once, not at the end
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if journal is not None:
            journal.close()
    if journal is not None:
        # in order, and with a point whose line Ctrl-C cut off
        journal.finish(table)
    from dualplan.report.sweep import output

    answer = _answer(scenario, points, source, call, table, best, pareto, limit)
    if journal is None:
        emit(output(answer, plot=plot), form, False, output_file)
    else:
        counts = answer.counts
        note(f"{output_file}: {counts['evaluated']:,} of {counts['points']:,} points, {counts['failed']:,} failed")
        if plot or answer.chosen:
            emit(output(answer, plot=plot), Format.table)
    _end(answer, interrupted, require_feasible)


def _end(answer: Answer, interrupted: bool, require_feasible: bool) -> None:
    """The exit code of a sweep whose rows have been written."""
    counts = answer.counts
    if interrupted:
        note(f"{counts['evaluated']:,} of {counts['points']:,} points were evaluated")
        raise typer.Exit(130)
    if counts["failed"]:
        first = answer.table.errors()[0].splitlines()[0]
        note(f"{counts['failed']:,} of {counts['points']:,} points failed: {first}")
        raise typer.Exit(3)
    if require_feasible and counts["feasible"] < counts["points"]:
        raise typer.Exit(4)


def _format(fmt: Format, as_json: bool, file: Path | None) -> Format:
    """The format that was asked for, else the one that the name of the file says."""
    if as_json:
        return Format.json
    if fmt is Format.table and file is not None:
        return {".csv": Format.csv, ".jsonl": Format.jsonl, ".json": Format.json, ".md": Format.md}.get(
            file.suffix.lower(), fmt
        )
    return fmt


def _points(scenario: Scenario, vary: list[str], zipped: bool, nodes: int | None) -> Points:
    from dualplan.errors import each
    from dualplan.plan.sweep.points import points_of
    from dualplan.spec.vary import Axis, parse_axis

    found = each(vary, parse_axis)
    ratios = next((text.partition("=")[2] for text, axis in zip(vary, found, strict=True) if axis.key == "pd"), "")
    axes = [Axis(KEY_OF_FLAG.get(axis.key.replace("-", "_"), axis.key), axis.values) for axis in found]
    return points_of(scenario, axes, zipped=zipped, nodes=nodes, ratios=ratios)


def _source(flags: ScenarioFlags, scenario: Scenario, points: Points, call: RunSpec | None) -> Made:
    """How the points get their scenarios: files are read here, so that workers need none of them.

    What names an input, and everything where nodes of a side differ, is laid over the scenario file as flags are.
    """
    from dualplan.errors import InputError
    from dualplan.plan.sweep.points import assignments, made
    from dualplan.plan.sweep.simulated_point import SIMULATED_KEYS
    from dualplan.spec.change import NAMED

    keys = [axis.key for axis in points.axes]
    for key in SIMULATED_KEYS:
        if key in keys and call is None:
            raise InputError(f"--vary {key}", "belongs to --simulate")
    read = [key for key in keys if key in (*NAMED, "mix") or (scenario.variants and key not in SIMULATED_KEYS)]
    return made(
        points, read, lambda pairs: flags.resolve(assignments(pairs), mixed=call is None) if pairs else scenario
    )


def _caution(flags: ScenarioFlags, points: Points, source: Made, *, simulated: bool) -> None:
    """Say what means that are set or varied do to the workload; the first points tell."""
    from dualplan.errors import InputError
    from dualplan.plan.sweep.points import FIRST

    for pairs in points.pairs[:FIRST]:
        with suppress(InputError):  # which the point says itself
            flags.caution(source(pairs), simulated=simulated)


def _journal(
    file: Path | None, form: Format, points: Points, source: Made, call: RunSpec | None, restart: bool
) -> Journal | None:
    """The file that points are appended to, for JSONL in a file that can be read again."""
    from dualplan.errors import UsageError

    if form is not Format.jsonl or file is None or str(file) == "-" or (file.exists() and not file.is_file()):
        if restart:
            raise UsageError("--restart belongs to -o FILE.jsonl, which a sweep goes on from")
        return None
    from dualplan.cli.sweep_file import Journal
    from dualplan.plan.sweep.points import point_hashes

    return Journal(file, point_hashes(points, source, call), restart)


class _Where(NamedTuple):
    """Where points run: on so many processes, or on a cluster."""

    jobs: int
    cluster: str | None


def _run(
    points: Points, source: Made, call: RunSpec | None, table: Table, journal: Journal | None, where: _Where
) -> Iterator[None]:
    """Evaluate the points that are left, into the table and the journal; yields once, after the first answers."""
    import numpy as np

    from dualplan.cli.progress import progress
    from dualplan.plan.sweep.points import parts_of
    from dualplan.plan.sweep.workers import blocks

    left = np.arange(points.count) if journal is None else journal.begin(table)
    parts = parts_of(points, call, left)
    seen = False
    with progress("points") as show_progress:
        for block in blocks(source, call, parts, jobs=where.jobs, cluster=where.cluster):
            table.put(block)
            if journal is not None:
                journal.append(table, block.positions)
            show_progress(float(table.done.mean()))
            if not seen and "feasible" in table.columns:
                seen = True
                yield


def _answer(
    scenario: Scenario,
    points: Points,
    source: Made,
    call: RunSpec | None,
    table: Table,
    best: str | None,
    pareto: str | None,
    limit: int | None,
) -> Answer:
    import numpy as np

    from dualplan.plan.assumptions import scenario_sha256
    from dualplan.plan.assumptions import sources as sources_of
    from dualplan.plan.sweep.table import choose
    from dualplan.report.sweep import Answer

    order, chosen = choose(table, best, pareto, limit)
    return Answer(
        name=scenario.settings.name,
        points=points,
        table=table,
        order=np.asarray(order),
        chosen=chosen,
        shown_rows=limit,
        nodes=_nodes_of(scenario),
        assumptions=_assumptions(points, source, call, table),
        sources=tuple(sources_of(scenario)),
        inputs_sha256=scenario_sha256(scenario),
    )


def _nodes_of(scenario: Scenario) -> int | None:
    """Nodes of the scenario itself, where it says how many there are."""
    counts = scenario.settings.prefill_nodes, scenario.settings.decode_nodes
    return None if None in counts else sum(count or 0 for count in counts)


def _assumptions(points: Points, source: Made, call: RunSpec | None, table: Table) -> tuple[str, ...]:
    """What the figures rest on: for steady points the assumptions of the first one that has an answer."""
    if call is not None:
        return ("simulated: one run a point, whose assumptions dualplan simulate lists",)
    import numpy as np

    from dualplan.plan.assumptions import assumptions
    from dualplan.steady.answer import evaluate

    good = np.flatnonzero(table.answered)
    if not len(good):
        return ()
    first = int(good[0])
    scenario = source(points.pairs[points.which[first]])
    answer = evaluate(scenario, int(points.prefill_nodes[first]), int(points.decode_nodes[first]))
    return ("of the first point; others differ in what is varied", *map(str, assumptions(answer)))
