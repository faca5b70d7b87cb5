"""The options that every command shares, and the one place that prints a result or writes it to a file."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from dualplan.errors import printable

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


class ClosedPipeError(Exception):
    """Standard output has no reader any more.

    The option parser has an opinion on EPIPE of its own, so it gets another name.
    """


def emit(output: Output, fmt: Format = Format.table, as_json: bool = False, file: Path | None = None) -> None:
    """Print a result, or write it to ``file`` through a temporary name so that no half-written file is ever left."""
    from dualplan.report.output import render

    form: FormatName = "json" if as_json else fmt.value
    if form == "table":
        text = _human_view(output, file)
    else:
        text = render(output, form, ascii_only=file is None and not _speaks_unicode())
    if file is None:
        print_text(text)
    else:
        write_text(file, text)


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _human_view(output: Output, file: Path | None) -> str:
    """The human view as text, with codes of styles where colours are wanted."""
    import io

    buffer = io.StringIO()
    output.show(console(buffer, for_file=file is not None))
    return "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))


def print_text(text: str) -> None:
    """Write to standard output. Raises ClosedPipeError if nobody reads it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ClosedPipeError from None


def print_bytes(chunks: Iterable[bytes]) -> None:
    """Write chunks to standard output as they come. Raises ClosedPipeError, or OSError where the disk is full."""
    try:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ClosedPipeError from None


LEAST_COLUMNS = 40
"""Narrower terminals get lines of this width."""


def console(buffer: TextIO, *, for_file: bool = False) -> Console:
    """A rich console that writes to ``buffer`` what standard output (or a file) should get.

    It obeys --color, NO_COLOR, FORCE_COLOR, TERM=dumb and the terminal's width.
    """
    from dualplan.cli.terminal import SafeConsole

    wish = "never" if for_file else os.environ.get("DUALPLAN_COLOR", "auto")
    environment = os.environ
    dumb = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
    terminal = bool(environment.get("FORCE_COLOR")) or sys.stdout.isatty()
    colour = wish == "always" or (wish == "auto" and terminal and not dumb)
    return SafeConsole(
        file=buffer,
        force_terminal=colour,
        color_system="auto" if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        width=100 if for_file else columns(),
    )


def columns() -> int:
    """Width of the terminal, or of COLUMNS; 80 where there is none."""
    import shutil

    return max(shutil.get_terminal_size((80, 24)).columns, LEAST_COLUMNS)


def note(text: str) -> None:
    """A line for people beside the result, on standard error."""
    sys.stderr.write(printable(text) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises InputError where that is impossible."""
    from dualplan.spec.load import written

    if str(path) == "-":
        print_text(text)
        return
    with written(path, f"-o {path}") as file:
        file.write(text.encode("utf-8"))


def check_place(path: Path | None, flag: str) -> None:
    """Find out before a long run whether a file can be written. Raises InputError."""
    from dualplan.errors import InputError

    if path is None or str(path) == "-":
        return
    try:
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise InputError(flag, f"{path} is a directory")
        if target.exists() and not target.is_file():
            return
        folder = target.parent
        if not folder.is_dir():
            raise InputError(flag, f"{path} cannot be written: {folder} is not a folder")
        if not os.access(folder, os.W_OK):
            raise InputError(flag, f"{path} cannot be written: no permission in {folder}")
    except (OSError, ValueError) as error:
        raise InputError(flag, f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None


PICTURES = (".svg", ".png", ".pdf")
"""Endings of files that a plot is written to."""


def check_picture(path: Path | None) -> None:
    """Find out before a long run whether a plot can be drawn to a file. Raises InputError."""
    from dualplan.errors import InputError

    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise InputError("--plot", f"{path} is not a picture", "end it in " + ", ".join(PICTURES))
    if not path.absolute().parent.is_dir():
        raise InputError("--plot", f"{path} cannot be written: {path.absolute().parent} is not a folder")


def write_bytes(path: Path, content: bytes, flag: str = "--plot") -> None:
    """Write a file whole or not at all. Raises InputError where that is impossible."""
    from dualplan.spec.load import written

    with written(path, f"{flag} {path}") as file:
        file.write(content)


def spliced(
    function: Callable[..., None], template: Callable[..., None], make: Callable[..., Any]
) -> Callable[..., None]:
    """A command whose parameter ``flags`` is made by ``make`` of a mapping of the options of ``template``, which stand
    in its place.
    """
    own = inspect.signature(function, eval_str=True).parameters.values()
    shared = inspect.signature(template, eval_str=True).parameters

    def command(**values: Any) -> None:
        flags = make({name: values.pop(name) for name in shared})
        function(flags=flags, **values)

    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in own
        for one in (shared.values() if parameter.name == "flags" else (parameter,))
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    return command
