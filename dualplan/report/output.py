"""A result in the formats that every command offers: table, json, jsonl, csv, md.

A command makes one ``Output``; this module turns it into text. Nothing here opens a file or prints.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dualplan.errors import printable, printable_lines
from dualplan.messages import Message

if TYPE_CHECKING:
    from rich.console import Console

    from dualplan.report.blocks import Block

Format = Literal["table", "json", "jsonl", "csv", "md"]


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """One result.

    ``data``: the JSON document, ``schema`` first. ``rows``: the records of csv, jsonl and md; nested keys become
    dotted columns.
    ``view``: the blocks that people see on a terminal. ``document``: those of Markdown, where rows are not enough.
    ``csv``: the text of the rows, where they are too many to make one by one.
    ``text`` and ``markdown``: printers of the same two for commands that have no blocks.
    """

    data: dict[str, Any]
    rows: Sequence[dict[str, Any]]
    view: Callable[[], Iterable[Block]] = tuple
    document: Callable[[], Iterable[Block]] | None = None
    csv: Callable[[], str] | None = None
    text: Callable[[Console], None] | None = None
    markdown: Callable[[], str] | None = None

    def show(self, console: Console) -> None:
        """Print what people see on a rich console."""
        from dualplan.report.renderers.terminal import print_blocks

        if self.text is None:
            print_blocks(self.view(), console)
        else:
            self.text(console)


def render(output: Output, form: Format, *, ascii_only: bool = False) -> str:
    """The text of an output in a machine format; ``table`` is printed through a console instead.

    ``ascii_only``: JSON with escapes instead of other characters, for an output that cannot hold them. Nothing in
    names and texts of files can steer a terminal that shows it.
    """
    if form == "json":
        return _json(output.data, ascii_only, indent=2)
    if form == "jsonl":
        return "".join(_json(row, ascii_only) for row in output.rows)
    if form == "csv":
        return output.csv() if output.csv else csv_text([flat(clean(row)) for row in output.rows])
    if output.document is not None:
        from dualplan.report.renderers.markdown import markdown_text

        return printable_lines(markdown_text(output.document()))
    text = output.markdown() if output.markdown else markdown_table([flat(clean(row)) for row in output.rows])
    return printable_lines(text)


_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters of JSON text that terminals obey: C1 controls, and those that set the direction of writing."""


def _json(data: Any, ascii_only: bool, indent: int | None = None) -> str:
    text = json.dumps(clean(data), indent=indent, ensure_ascii=ascii_only, allow_nan=False)
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def clean(value: Any) -> Any:
    """A value that JSON can hold: NaN and infinities become null, tuples lists, NumPy scalars plain numbers, messages
    English sentences.
    """
    if isinstance(value, dict):
        return {str(key): clean(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(child) for child in value]
    if isinstance(value, Message):
        return str(value)
    if hasattr(value, "tolist"):
        return clean(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A row with nested mappings as dotted columns; lists of scalars are joined by ``;``, other lists are left out."""
    result: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            if not any(isinstance(item, (dict, list)) for item in value):
                result[prefix + key] = ";".join("" if item is None else str(item) for item in value)
        else:
            result[prefix + key] = value
    return result


def _columns(rows: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """RFC 4180 text with one header line. Text cells that a spreadsheet would run as a formula get a leading
    apostrophe.
    """
    import csv
    import io

    columns = _columns(rows)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = []
        for column in columns:
            value = row.get(column)
            text = "".join(c for c in _cell(value) if c in "\n\t" or c.isprintable())
            formula = isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t")
            cells.append("'" + text if formula else text)
        writer.writerow(cells)
    return buffer.getvalue()


def markdown_table(rows: Sequence[dict[str, Any]]) -> str:
    """A pipe table; one row is turned into a table of key and value."""
    columns = _columns(rows)
    if len(rows) == 1 and len(columns) > 6:
        rows, columns = [{"key": key, "value": value} for key, value in rows[0].items()], ["key", "value"]

    def escape(value: Any) -> str:
        text = f"{value:.6g}" if isinstance(value, float) else printable(_cell(value).replace("\n", " "))
        return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")

    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(escape(row.get(column)) for column in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"
