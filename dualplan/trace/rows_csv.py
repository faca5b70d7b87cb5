"""Rows as CSV, for every row format, read by DuckDB: all columns parsed in one parallel pass."""

from __future__ import annotations

import csv
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.trace.columns import Columns
from dualplan.trace.documents import BEYOND, seconds
from dualplan.trace.formats import Field, RowFormat, Sample, resolve
from dualplan.trace.record import LATEST_S, Progress, ReadOptions
from dualplan.trace.source import Text
from dualplan.trace.tally import SHOWN, Tally

_INTEGERS: tuple[Field, ...] = ("input", "output", "turn", "cached")
_FLOATS: tuple[Field, ...] = ("arrival", "offset", "think")
_KEYS: tuple[Field, ...] = ("session", "model")
_LINE = 16 << 20

# a row may have several faults: the first one counts
_FIRST_FAULTS = """select distinct on (line_byte_position)
    coalesce(line_byte_position, 1) as position, column_name, error_type as kind, coalesce(csv_line, '') as line,
    coalesce(contains(csv_line, chr(0)), false) as nul
    from reject_errors order by line_byte_position, error_type desc, column_name"""
_STRAY_LINE_ENDS = "select 1 from reject_errors where ends_with(csv_line, chr(13)) limit 1"
_FAULTS = (
    ("select kind, nul, count(*)", "group by kind, nul order by kind, nul"),
    ("select position, column_name, kind, line[:100], nul", f"order by position limit {SHOWN}"),
)

_T = TypeVar("_T")


class _File(NamedTuple):
    """A file on its way into the columns: where it is, its name in messages, what its columns mean."""

    path: Path
    name: str
    form: RowFormat
    fields: dict[Field, str]
    found: Sample
    units: dict[Field, float]
    columns: Columns
    tally: Tally
    progress: Progress | None


def read_rows(
    text: Text,
    path: Path | None,
    form: RowFormat,
    found: Sample,
    columns: Columns,
    tally: Tally,
    options: ReadOptions,
    progress: Progress | None = None,
) -> None:
    """Add all rows of a CSV file. Bad rows go to the tally with their line numbers.

    DuckDB reads a plain UTF-8 file where it is, under another name, as it would take some for patterns; anything else
    (compressed, UTF-16, standard input, a pipe) goes through a temporary file first.
    """
    fields = resolve(form, found.columns)
    with tempfile.TemporaryDirectory(prefix="dualplan-") as folder:
        plain = Path(folder, "trace.csv")
        if path is not None and text.plain and path.is_file():
            plain.symlink_to(path.resolve())
        else:
            progress = None
            _spool(text, plain)
        units = form.units(options.time_unit)
        _read(_File(plain, text.name, form, fields, found, units, columns, tally, progress))


def _spool(text: Text, target: Path) -> None:
    with target.open("wb") as spool:
        while data := text.read():
            try:
                spool.write(data)
            except OSError as error:
                what = f"cannot be kept in {target.parent.parent}: {error.strerror or error}"
                raise InputError(text.name, what, "TMPDIR names a folder with more space") from None


def _read(file: _File) -> None:
    import duckdb

    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "temp_directory": tempfile.gettempdir(),
        }
    )
    # DuckDB would print a bar of its own on standard output in an interactive session
    connection.execute(f"set enable_progress_bar={str(file.progress is not None).lower()}")
    connection.execute("set enable_progress_bar_print=false; set progress_bar_time=100")
    fields, tally, table = file.fields, file.tally, _table(file)
    size = file.path.stat().st_size

    def run(sql: str) -> dict[str, Any]:
        def fetch() -> Any:
            return connection.execute(sql, [str(file.path)]).fetchnumpy()

        return _watched(fetch, connection, size, file.progress)

    chosen = f"select {', '.join(_selected(file))} from "
    try:
        data = None
        with suppress(duckdb.InvalidInputException):
            data = run(chosen + table)
        # strict mode, which tells of surplus columns, does not cope with line ends that differ
        if data is None or connection.execute(_STRAY_LINE_ENDS).fetchall():
            tally.note("line ends or quotes are not the same throughout; read all the same")
            connection.execute("drop table if exists reject_errors; drop table if exists reject_scans")
            table = table.replace("strict_mode=true", "strict_mode=false")
            data = run(chosen + table)
        faults = [connection.execute(f"{query} from ({_FIRST_FAULTS}) {rest}").fetchall() for query, rest in _FAULTS]
        keys = {field: _names(run, fields[field], table) for field in _KEYS if field in fields}
    except (duckdb.Error, UnicodeDecodeError) as error:
        raise InputError(file.name, f"cannot be read as CSV: {str(error).splitlines()[0]}") from None
    finally:
        connection.close()
    lost = _report_rejects(file, *faults)
    tally.read += len(data["input"]) + lost
    parts = {field: _filled(column) for field, column in data.items()}
    beyond = np.zeros(len(data["input"]), bool)
    for field in _FLOATS:
        if field in parts:
            beyond |= ~np.isnan(parts[field]) & ~(np.abs(parts[field]) <= LATEST_S)
    if beyond.any():
        _report_beyond(file, int(beyond.sum()))
        parts = {field: column[~beyond] for field, column in parts.items()}
    for field, labels in keys.items():
        parts[field] = _numbered(parts[field], labels, field, file.columns)
    if "offset" in parts:
        parts["arrival"] = parts.pop("offset")
    count = len(parts["input"])
    file.columns.add(count, **parts)
    if "blocks" in fields:
        tally.note("block ids in CSV are not read; JSON lines carry them")


def _table(file: _File) -> str:
    form, fields, found = file.form, file.fields, file.found
    kinds = {fields[field]: "INTEGER" for field in _INTEGERS if field in fields}
    # without an offset in the text, TIMESTAMPTZ would take the time zone of this machine
    when = "TIMESTAMPTZ" if form.utc_offset else "TIMESTAMP" if form.time_unit == "timestamp" else "DOUBLE"
    kinds |= {fields[field]: when if field == "arrival" else "DOUBLE" for field in _FLOATS if field in fields}
    columns = {column or f"column {i}": kinds.get(column, "VARCHAR") for i, column in enumerate(found.columns)}
    if len({column.lower() for column in columns}) < len(found.columns):
        raise InputError(file.name, "has two columns of one name")
    # an empty cell of these is a fault with a line number, not a gap
    needed = ", ".join(_quoted(fields[field]) for field in ("input", "output"))
    struct = ", ".join(f"{_quoted(column)}: '{kind}'" for column, kind in columns.items())
    return (
        f"read_csv(?, auto_detect=false, header=true, skip={found.skip}, delim={_quoted(found.delimiter)}, quote='\"',"
        f" compression='none', escape='\"', strict_mode=true, max_line_size={_LINE}, columns={{{struct}}},"
        f" store_rejects=true, rejects_limit=0, force_not_null=[{needed}])"
    )


def _selected(file: _File) -> list[str]:
    form, fields, units = file.form, file.fields, file.units
    chosen = [f"{_named(fields[field])} as {field}" for field in _INTEGERS if field in fields]
    for field in _FLOATS:
        if field in fields:
            column = _named(fields[field])
            # NaN would pass for a gap, and an infinite date for none
            if field == "arrival" and form.time_unit == "timestamp":
                column = f"case when isfinite({column}) then epoch_us({column}) / 1e6 when {column} is not null"
            else:
                column = f"case when not isnan({column}) then {column} / {units[field]!r} when {column} is not null"
            chosen.append(f"{column} then 'inf'::double end as {field}")
    chosen += [
        f"case when coalesce({_named(fields[field])}, '') = '' then 0 else hash({_named(fields[field])}) end as {field}"
        for field in _KEYS
        if field in fields
    ]
    return chosen


def _names(run: Callable[[str], dict[str, Any]], column: str, table: str) -> dict[int, str]:
    name = _named(column)
    table = table.replace("store_rejects=true, rejects_limit=0", "ignore_errors=true")
    # sessions need numbers only; models are few and shown by name
    found = run(f"select distinct hash({name}) as code, {name} as label from {table} where {name} <> '' limit 1000")
    return dict(zip(found["code"].tolist(), found["label"].tolist(), strict=True))


def _numbered(
    codes: npt.NDArray[np.uint64], labels: dict[int, str], field: Field, columns: Columns
) -> npt.NDArray[np.int64]:
    distinct, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    number = np.full(len(distinct), -1, np.int64)
    for position in np.argsort(first).tolist():
        code = int(distinct[position])
        if code:
            number[position] = (
                columns.session_index((columns.file, code))
                if field == "session"
                else columns.model_index(labels.get(code, f"model {code}"))
            )
    return number[inverse]


def _filled(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column with its gaps filled: -1 among integers, NaN among floats."""
    if isinstance(column, np.ma.MaskedArray):
        return np.asarray(column.filled(np.nan if column.dtype.kind == "f" else -1))
    return column


def _report_rejects(file: _File, counts: list[tuple[Any, ...]], shown: list[tuple[Any, ...]]) -> int:
    """Tell the tally of rows that DuckDB could not read; returns how many there are."""
    # in a file with CR LF, DuckDB lets a row begin with the LF of the row before
    shown = [
        (place + len(line) - len(line.lstrip("\r\n")), column, kind, line.lstrip("\r\n"), nul)
        for place, column, kind, line, nul in shown
    ]
    name, tally = file.name, file.tally
    numbers = _line_numbers(file.path, [place for place, *_ in shown])
    left = {(kind, nul): count for kind, nul, count in counts}
    for position, column, kind, line, nul in shown:
        where = f"{name}:{numbers[position]}" if position in numbers else name
        tally.malformed(where, _fault(column, kind, line, nul), _reason(kind, nul))
        left[kind, nul] -= 1
    for (kind, nul), count in left.items():
        if count:
            tally.malformed(name, f"{count:,} more rows: {_reason(kind, nul)}", _reason(kind, nul), "", count)
    return sum(count for *_, count in counts)


def _report_beyond(file: _File, count: int) -> None:
    """Tell the tally of rows with impossible times. DuckDB does not say where a row was, so they are looked for."""
    reason, left = "wrong type or out of range", count
    name, found, tally, dates = file.name, file.found, file.tally, file.form.time_unit == "timestamp"
    limits = {file.fields[field]: LATEST_S * unit for field, unit in file.units.items() if field in file.fields}
    with file.path.open(encoding="utf-8", errors="replace", newline="") as stream, suppress(csv.Error):
        for _ in range(found.skip + 1):
            next(stream, None)
        rows = csv.reader(stream, delimiter=found.delimiter)
        for row in rows:
            for column, cell in zip(found.columns, row, strict=False):
                if column in limits and _beyond(cell, limits[column], dates):
                    place = f"{name}:{found.skip + 1 + rows.line_num}"
                    tally.malformed(place, f'{column} {BEYOND}: "{cell[:40]}"', reason)
                    left -= 1
                    break
            if not left or count - left == SHOWN:
                break
    if left:
        tally.malformed(name, f"{left:,} more rows: {reason}", reason, "", left)


def _beyond(cell: str, limit: float, dates: bool) -> bool:
    if dates:
        moment = seconds(cell.strip())
        # what Python has no date for: years of more than four digits, and infinite ones
        return "inf" in cell.lower() or len(cell.strip().partition("-")[0]) > 4 if moment is None else moment > limit
    try:
        return not abs(float(cell)) <= limit
    except ValueError:
        return False


# kind of DuckDB: the reason that is counted, and the fault in words
_KINDS = {
    "MISSING COLUMNS": ("field missing", 'too few columns: "{line}"'),
    "TOO MANY COLUMNS": ("too many columns", 'too many columns: "{line}"'),
    "CAST": ("wrong type or out of range", '{column} is not what it should be: "{line}"'),
    "LINE SIZE OVER MAXIMUM": ("line too long", f"the line is longer than {_LINE >> 20} MiB"),
}


def _fault(column: str | None, kind: str, line: str, nul: bool) -> str:
    if nul:
        return "contains NUL bytes"
    shown = line if len(line) <= 80 else line[:77] + "..."
    return _KINDS.get(kind, ("", kind.lower() + ': "{line}"'))[1].format(column=column, line=shown)


def _reason(kind: str, nul: bool) -> str:
    return "NUL bytes" if nul else _KINDS.get(kind, ("not CSV", ""))[0]


def _line_numbers(path: Path, positions: list[int]) -> dict[int, int]:
    """Byte positions (from 1) -> line numbers, by counting; DuckDB's own number is off where lines were skipped."""
    numbers: dict[int, int] = {}
    line, done = 1, 0
    with path.open("rb") as stream:
        for position in sorted(positions):
            while done < position - 1:
                data = stream.read(min(1 << 22, position - 1 - done))
                if not data:
                    break
                line += data.count(b"\n")
                done += len(data)
            numbers[position] = line
    return numbers


def _watched(fetch: Callable[[], _T], connection: Any, size: int, progress: Progress | None) -> _T:
    """Run a query in a thread and report how far it is, as DuckDB has no callback for it."""
    if progress is None:
        return fetch()
    outcome: list[_T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(fetch())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
            with suppress(Exception):
                progress(int(max(connection.query_progress(), 0.0) / 100 * size), size)
    except KeyboardInterrupt:
        connection.interrupt()
        thread.join()
        raise
    if failure:
        raise failure[0]
    return outcome[0]


def _named(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
