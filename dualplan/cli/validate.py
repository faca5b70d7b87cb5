"""``dualplan validate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualplan.cli.options import (
    Format,
    FormatOption,
    JsonOption,
    OutputOption,
    check_picture,
    check_place,
    emit,
    write_bytes,
)

if TYPE_CHECKING:
    from dualplan.plan.published.recompute import Samples
    from dualplan.plan.published.validate import Validation

MOST_FILES = 100_000
"""Files of a --samples folder that are looked at."""


def validate(
    full: Annotated[bool, typer.Option("--full", help="All figures; the largest run takes half a minute.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="KIND", help="Figures of this kind only; may be repeated.")
    ] = None,
    samples: Annotated[
        Path | None, typer.Option("--samples", metavar="DIR", help="Folder with public traces, as released.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show every figure, not only the summary.")] = False,
    plot: Annotated[
        bool, typer.Option("--plot", help="A chart of all predictions; --plot FILE.svg (.png, .pdf) draws it.")
    ] = False,
    plot_file: Annotated[Path | None, typer.Option("--plot-file", metavar="FILE", hidden=True)] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="End with 0 even if a tolerance is broken.")] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """How accurate is it, and says who? Recompute every published figure and compare.

    Without --full: figures of the steady model and of small simulations, in under 30 s. Ends with 4 if a figure lies
    outside its stated tolerance. Goals are of the errors of a whole kind; one that is missed is shown and changes
    nothing about the exit code.
    """
    from dualplan.plan.published.validate import validate as run
    from dualplan.report.validate import output

    kinds = _kinds(only)
    check_picture(plot_file)
    check_place(file, "-o")
    traces = None if samples is None else _finder(samples)
    with _progress() as show:
        answer: Validation = run(full=full, only=kinds, samples=traces, progress=show)
    if plot_file is not None:
        from dualplan.report.figures.pictures import accuracy

        write_bytes(plot_file, accuracy(answer.comparisons, plot_file.suffix.lower()))
    emit(output(answer, listed=listed, plot=plot and plot_file is None), fmt, as_json, file)
    if answer.interrupted:
        raise typer.Exit(130)
    if answer.outside and not exit_zero:
        raise typer.Exit(4)


def _kinds(only: list[str] | None) -> tuple[str, ...]:
    """The wanted kinds. Raises InputError for unknown ones."""
    from dualplan.errors import InputError, did_you_mean, problem
    from dualplan.plan.published.records import kinds

    known = kinds()
    wanted = [name.strip() for text in only or () for name in text.split(",")]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        hints = [did_you_mean(name, known) or "known: " + ", ".join(known) for name in unknown]
        lines = [problem("--only", f'"{n[:60]}" is not a kind', h) for n, h in zip(unknown, hints, strict=True)]
        raise InputError("", problems=lines)
    return tuple(dict.fromkeys(wanted))


def _finder(folder: Path) -> Samples:
    """Files below a folder by name. Raises InputError for what is no folder."""
    import os

    from dualplan.errors import InputError

    if not folder.is_dir():
        raise InputError("--samples", f"{folder} is not a folder")
    found: dict[str, Path] = {}
    seen = 0
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            found.setdefault(name, Path(place) / name)
        seen += len(names)
        if seen > MOST_FILES:
            raise InputError("--samples", f"{folder} holds more than {MOST_FILES:,} files", "give the traces' folder")
    return found.get


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Figures that were recomputed so far, of how many."""
    from dualplan.cli.progress import progress_line

    with progress_line(quiet=0.0) as show:
        yield lambda done, of: show(lambda _: f"{done} of {of} figures")
