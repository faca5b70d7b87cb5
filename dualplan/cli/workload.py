"""``dualplan workload list|show``: the shipped workloads, one with its lengths, published figures and sources."""

from __future__ import annotations

from typing import Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit


def list_workloads(
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """List the shipped workloads: turns, lengths per turn, hit rate and kind of means."""
    from dualplan.report.workload import list_output
    from dualplan.spec.load import shipped_names
    from dualplan.spec.workload import KIND, load_workload

    names = shipped_names(KIND, ".yaml")
    emit(list_output([load_workload(name, where="workload list") for name in names]), fmt, as_json, file)


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A shipped workload, or a YAML file.", show_default=False)
    ],
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Show one workload: lengths and their quantiles, means per turn, published or measured figures, what is assumed,
    sources.
    """
    from pathlib import Path

    from dualplan.errors import InputError
    from dualplan.report.workload import output
    from dualplan.spec.workload import load_workload

    if Path(name).suffix in (".jsonl", ".json", ".csv", ".gz", ".zst"):
        raise InputError("workload show", f'"{name}" is not a workload file', f"dualplan trace inspect {name}")
    emit(output(load_workload(name, where="workload show")), fmt, as_json, file)
