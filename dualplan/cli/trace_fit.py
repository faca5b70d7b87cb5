"""``dualplan trace fit`` and ``trace generate``: a workload from a trace, and trajectories from a workload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import (
    Format,
    FormatOption,
    JsonOption,
    OutputOption,
    emit,
    note,
    print_bytes,
    print_text,
    write_text,
)
from dualplan.cli.trace import SourceArgument, TraceFlags, trace_command

if TYPE_CHECKING:
    from dualplan.spec.workload import Workload
    from dualplan.trace.generate import Trajectories


@trace_command
def fit(
    source: SourceArgument,
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the workload; the file's by default.", show_default=False)
    ] = None,
    flags: TraceFlags,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Fit a workload to a trace: distributions of turns, context, append, generated and think time, as YAML.

    The result is a workload file for --workload, trace generate and workload show. The YAML also has turns measured on
    the trace (classes), with which a plan has the bytes and GPU seconds of a plan with the trace. -f and --json show
    the fit in other formats, which no command reads.
    """
    from dualplan.report.output import Output
    from dualplan.report.workload import document
    from dualplan.trace.fit import fit_workload, workload_yaml

    trace = flags.read(source)
    workload = fit_workload(trace, name or _stem(source))
    report = trace.report
    for text in (*report.notes, *(f"{count:,} rows dropped: {why}" for why, count in report.dropped.items())):
        note(text)
    note(f"{report.format}: {report.rows_used:,} of {report.rows_read:,} rows used")
    if as_json or fmt is not Format.table:
        data = document(workload) | {"schema": "dualplan/trace-fit/1"}
        rows = [{"length": key, **value} for key, value in data.items() if isinstance(value, dict) and "mean" in value]
        emit(Output(data=data, rows=rows), fmt, as_json, file)
    elif file is None:
        print_text(workload_yaml(workload))
    else:
        write_text(file, workload_yaml(workload))


def generate(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="A shipped workload, a YAML file, or a trace.", show_default=False)
    ],
    count: Annotated[int, typer.Option("-n", "--count", metavar="N", help="Number of trajectories.")] = 500,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed gives the same bytes.")] = 0,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Generate trajectories that reproduce a workload, as a dualplan/trace/1 file (.gz and .zst compress).

    Means and quantiles of turns, append and generated are the workload's. Contexts follow from the turns before, so
    only their mean is; where it cannot be, a note says so. With --json the means go to standard output, and the trace
    to the file of -o; without -o, or with -o -, the trace goes to standard output.
    """
    from dualplan.errors import InputError, UsageError
    from dualplan.trace.convert import lines, write
    from dualplan.trace.generate import as_trace, generate_trajectories

    to_stdout = file is None or str(file) == "-"
    if as_json and to_stdout:
        raise UsageError("--json shows the means: add -o FILE for the trajectories")
    if count < 1:
        raise InputError("-n", f"{count} trajectories", "at least 1")
    if seed < 0:
        raise InputError("--seed", f"{seed} is negative", "0 or more")
    source = _workload(workload)
    trajectories = generate_trajectories(source, count, seed)
    trace = as_trace(trajectories, f"generated from {source.name or workload}")
    if file is None or to_stdout:
        print_bytes(lines(trace, "dualplan"))
    else:
        write(trace, "dualplan", file)
    data = _summary(source, trajectories, seed)
    if as_json:
        _emit_summary(data)
    for text in trajectories.notes:
        note(str(text))
    turns = data["per_turn"]
    note(
        f"{count:,} trajectories of {source.name or workload}, {data['turns']:,} turns; means over turns:"
        f" context {turns['context_tokens']:,.0f}, append {turns['append_tokens']:,.0f}, "
        f"generated {turns['generated_tokens']:,.0f}"
    )


def _workload(name: str) -> Workload:
    from dualplan.spec.workload import load_workload

    path = Path(name)
    if path.suffix in ("", ".yaml", ".yml") and not path.is_dir():
        return load_workload(name, where="trace generate")
    from dualplan.trace.fit import fit_workload

    return fit_workload(TraceFlags({}).read(name), _stem(name))


def _stem(source: str) -> str:
    name = Path(source).name
    for suffix in (".gz", ".zst", ".jsonl", ".json", ".csv"):
        name = name.removesuffix(suffix)
    return "trace" if name in ("", "-") else name


def _summary(source: Workload, trajectories: Trajectories, seed: int) -> dict[str, Any]:
    import msgspec

    from dualplan.trace.generate import trajectory_means

    means = msgspec.structs.asdict(trajectory_means(trajectories))
    return {
        "schema": "dualplan/trace-generate/1",
        "workload": source.name,
        "seed": seed,
        "trajectories": trajectories.count,
        "turns": int(trajectories.offsets[-1]),
        "per_trajectory": {key if key == "turns" else f"{key}_tokens": value for key, value in means.items()},
        "per_turn": {
            f"{key}_tokens": float(getattr(trajectories, key).mean()) for key in ("context", "append", "generated")
        },
        "prompt_tokens": int((trajectories.context + trajectories.append).sum()),
        "resets": int(trajectories.resets.sum()),
        "notes": list(trajectories.notes),
    }


def _emit_summary(data: dict[str, Any]) -> None:
    from dualplan.report.output import Output

    emit(Output(data=data, rows=[data]), as_json=True)
