"""The options that every command shares, and the one place that prints a result or writes it to a file."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from dualplan.report.output import Format as FormatName
    from dualplan.report.output import Output


class Format(StrEnum):
    """Output formats."""

    table = "table"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"
    md = "md"


FormatOption = Annotated[Format, typer.Option("-f", "--format", help="Output format.", show_default=True)]
JsonOption = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write to this file instead of standard output.")
]


def emit(output: Output, fmt: Format = Format.table, as_json: bool = False, file: Path | None = None) -> None:
    """Print a result, or write it to ``file`` through a temporary name so that no half-written file is ever left."""
    try:
        _emit(output, fmt, as_json, file)
    except BrokenPipeError:
        raise ClosedPipeError from None


class ClosedPipeError(Exception):
    """Standard output has no reader any more. The option parser has an opinion on EPIPE of its own, so it gets
    another name.
    """


def _emit(output: Output, fmt: Format, as_json: bool, file: Path | None) -> None:
    from dualplan.report.output import render

    form: FormatName = "json" if as_json else fmt.value
    if form != "table":
        text = render(output, form)
        if file is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            write_text(file, text)
        return
    if file is None:
        output.text(console())
        sys.stdout.flush()
    else:
        import io

        buffer = io.StringIO()
        output.text(console(buffer))
        write_text(file, buffer.getvalue())


def console(file: object | None = None) -> Console:
    """A rich console for standard output (or ``file``), obeying --color, NO_COLOR, FORCE_COLOR, TERM=dumb and the
    terminal's width.
    """
    from rich.console import Console

    class QuietConsole(Console):
        def on_broken_pipe(self) -> None:
            raise ClosedPipeError

    color = os.environ.get("DUALPLAN_COLOR", "auto")
    plain = file is not None or color == "never" or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    if color == "always" and file is None:
        plain = False
    return QuietConsole(
        file=file or sys.stdout,  # type: ignore[arg-type]
        force_terminal=True if color == "always" and file is None else None,
        no_color=plain,
        color_system=None if plain else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        legacy_windows=False,
        width=None if file is None else 100,
    )


def note(text: str) -> None:
    """A line for people beside the result, on standard error."""
    sys.stderr.write(text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises InputError where that is impossible."""
    import tempfile

    from dualplan.errors import InputError

    if path.is_dir():
        raise InputError(f"-o {path}", "is a directory, a file name is needed")
    if path.exists() and not path.is_file():
        # a pipe or device such as /dev/stdout cannot be renamed over
        with path.open("w", encoding="utf-8") as device:
            device.write(text)
        return
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:50]}.", suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as part:
            part.write(text)
            part.flush()
            os.fsync(part.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(f"-o {path}", f"cannot be written: {error.strerror or error}") from None
