"""``dualplan flow``: a flow problem, solved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit, note


def flow(
    path: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A flowcase/1 file (JSON); - for standard input.", show_default=False),
    ],
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """When each flow of a flow problem ends, sharing links max-min fairly, and which links hold flows back.

    Where the file carries expected completion times, the largest relative difference is shown. Ends with 4 if a flow
    never ends.
    """
    import hashlib

    from dualplan.errors import InfeasibleError, problem
    from dualplan.flow.flowcase import parse_flowcase
    from dualplan.flow.fluid import run_fluid
    from dualplan.report.flow import Answer, output, relative_error

    name = "standard input" if str(path) == "-" else str(path)
    text = _text(path)
    case = parse_flowcase(text, name)
    if case.ignored:
        note(problem(name, f"ignored keys: {', '.join(case.ignored)}"))
    result = run_fluid(case.problem)
    expected = case.expected_finish_s
    answer = Answer(
        name=problem("", name),
        case=case,
        result=result,
        max_relative_error=None if expected is None else relative_error(result.finish_s, expected),
        inputs_sha256=hashlib.sha256(text.encode()).hexdigest(),
    )
    emit(output(answer), fmt, as_json, file)
    if answer.unfinished:
        raise InfeasibleError(f"{len(answer.unfinished)} of {len(result.finish_s)} flows never end")


def _text(path: Path) -> str:
    import sys

    from dualplan.errors import InputError
    from dualplan.flow.flowcase import MAX_FILE_BYTES
    from dualplan.spec.load import read_text

    if str(path) != "-":
        return read_text(path, limit=MAX_FILE_BYTES)
    raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise InputError("standard input", f"is larger than {MAX_FILE_BYTES // 1_000_000} MB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("standard input", "is not UTF-8 text") from None
