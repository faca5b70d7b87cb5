"""``dualplan validate``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
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

MOST_BYTES = 100_000_000
"""A larger table of --runs is none of runs."""


def validate(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KIND", help="Kinds of figures, such as range or jct; else all.", show_default=False),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All figures; the largest run takes half a minute.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="KIND", help="The same as an option; may be repeated.")
    ] = None,
    samples: Annotated[
        Path | None, typer.Option("--samples", metavar="DIR", help="Folder with public traces, as released.")
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option("--runs", metavar="FILE", help="Predict the measured runs of a CSV table instead; - is stdin."),
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
    nothing about the exit code. A scenario of your own is checked by feasible.
    """
    if runs is not None:
        _check_alone(
            {"KIND": words, "--only": only, "--full": full, "--samples": samples, "--list": listed, "--plot": plot}
        )
        _runs(runs, fmt, as_json, file)
        return
    from dualplan.plan.published.validate import validate as run
    from dualplan.report.validate import output

    kinds = _kinds(words or [], only or [])
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


def _check_alone(others: dict[str, object]) -> None:
    """Raises UsageError for what says nothing about a table of runs."""
    from dualplan.errors import UsageError

    if surplus := [name for name, value in others.items() if value]:
        raise UsageError(f"--runs predicts the runs of one table: leave out {', '.join(surplus)}")


def _runs(path: str, fmt: Format, as_json: bool, file: Path | None) -> None:
    """Predict the runs of a table."""
    from dualplan.plan.measured import runs_document
    from dualplan.report.runs import output
    from dualplan.spec.load import read_text

    name = "standard input" if path == "-" else path
    text = read_text(Path("/dev/stdin" if path == "-" else path), limit=MOST_BYTES, where=name)
    emit(output(runs_document(text, name), name), fmt, as_json, file)


def _kinds(words: list[str], only: list[str]) -> tuple[str, ...]:
    """The wanted kinds, given as arguments and with --only.

    Raises InputError for unknown ones of --only, UsageError for other words.
    """
    from dualplan.errors import InputError, UsageError, problem
    from dualplan.plan.published.points import kinds

    known = kinds()
    named, listed = ([name.strip() for text in texts for name in text.split(",")] for texts in (words, only))
    surplus, unknown = ([name for name in names if name not in known] for names in (named, listed))
    if surplus:
        raise UsageError("\n".join(problem("KIND", f'"{n[:60]}" is not a kind', _hint(n, known)) for n in surplus))
    if unknown:
        lines = [problem("--only", f'"{name[:60]}" is not a kind', _hint(name, known)) for name in unknown]
        raise InputError("", problems=lines)
    return tuple(dict.fromkeys([*named, *listed]))


def _hint(name: str, known: Iterable[str]) -> str:
    """For a word that is no kind: the command that a file is for, or the kinds."""
    from dualplan.errors import did_you_mean

    if "/" in name or Path(name).suffix:
        call = f"dualplan feasible {shlex.quote(name[:60])}"
        return f"validate recomputes published figures; a scenario is checked by: {call}"
    return did_you_mean(name, known) or "known: " + ", ".join(known)


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
