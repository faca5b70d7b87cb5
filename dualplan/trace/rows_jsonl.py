"""Rows as JSON lines, for every row format: runs of lines are decoded into one typed record a line."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.trace.columns import LONGEST, Columns, float_column, id_column, int_column, raw_id_column
from dualplan.trace.documents import BEYOND, TOO_DEEP
from dualplan.trace.formats import Field, RowFormat, Sample, resolve
from dualplan.trace.record import LATEST_S, Ints, ReadOptions
from dualplan.trace.source import Text
from dualplan.trace.tally import Tally

_Length = Annotated[int, msgspec.Meta(ge=-LONGEST, le=LONGEST)]
_Key = int | str | None
_BlockIds = tuple[Ints, npt.NDArray[Any]]
_TYPES: dict[Field, tuple[Any, Any]] = {
    "arrival": (float | None, None),
    "offset": (float | None, None),
    "input": (_Length, msgspec.NODEFAULT),
    "output": (_Length, msgspec.NODEFAULT),
    "session": (_Key, None),
    "turn": (Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None, None),
    "cached": (_Length | None, None),
    "think": (float | None, None),
    "model": (str | None, None),
    "blocks": (list[int], msgspec.field(default_factory=list)),
    "chat": (int | str, msgspec.NODEFAULT),
    "parent": (_Key, None),
}


def read_rows(text: Text, form: RowFormat, found: Sample, columns: Columns, tally: Tally, options: ReadOptions) -> None:
    """Add all rows of a file. Bad lines go to the tally with their numbers."""
    fields = resolve(form, found.columns)
    if not {"input", "output"} <= fields.keys():
        raise InputError(text.name, f"has no fields of {form.name}")
    text_ids = "blocks" in fields and _may_have_text_ids(found, fields["blocks"])
    row = _row_type(form, fields, list[int | str] if text_ids else list[int], options)
    raw = None
    if "blocks" in fields and not text_ids:
        raw = msgspec.json.Decoder(_row_type(form, fields, msgspec.Raw, options))
    strict, lax = msgspec.json.Decoder(row), msgspec.json.Decoder(row, strict=False)
    header = form.marker[0] if form.name == "dualplan" else ""
    run_columns = _Run(columns, form, fields, options)
    with _no_collection():
        for first, run in text.chunks():
            if header and first == 1:
                # blank lines may stand above it
                end = run.find(b"\n", len(run) - len(run.lstrip())) + 1
                first, run = first + run.count(b"\n", 0, end), run[end:] if end else b""
            try:
                rows, blocks = _with_raw_ids(run, raw) if raw else ([], None)
                if blocks is None:
                    rows = strict.decode_lines(run)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                rows, blocks = list(_one_by_one(run, first, strict, lax, text.name, tally)), None
            tally.read += len(rows)
            run_columns.add(rows, blocks)
    run_columns.finish()


def _with_raw_ids(run: bytes, decoder: Any) -> tuple[list[Any], _BlockIds | None]:
    rows = decoder.decode_lines(run)
    return rows, raw_id_column([row.blocks or b"" for row in rows])


def _row_type(form: RowFormat, fields: dict[Field, str], ids: Any, options: ReadOptions) -> type[msgspec.Struct]:
    members = []
    latest = {field: LATEST_S * unit for field, unit in form.units(options.time_unit).items()}
    for field, name in fields.items():
        kind, default = _TYPES[field]
        if field == "blocks":
            kind = ids
        elif field in latest:
            kind = Annotated[float, msgspec.Meta(ge=-latest[field], le=latest[field])] | None
        if default is msgspec.NODEFAULT:
            members.append((field, kind, msgspec.field(name=name)))
        elif field == "blocks":
            kind = kind if kind is msgspec.Raw else kind | None
            members.append((field, kind, msgspec.field(default=None, name=name)))
        else:
            members.append((field, kind, msgspec.field(default=default, name=name)))
    # required members first, as a record demands
    members.sort(key=lambda member: member[2].default is not msgspec.NODEFAULT)
    return msgspec.defstruct("Row", members, gc=False)


def _may_have_text_ids(found: Sample, name: str) -> bool:
    """Whether ids of the sample are text; it may be that the first prompts are shorter than a block and have none."""
    lists = [record.get(name) for record in found.records if isinstance(record, dict)]
    ids = [value for some in lists if isinstance(some, list) for value in some]
    return not ids or any(isinstance(value, str) for value in ids)


@contextmanager
def _no_collection() -> Iterator[None]:
    # millions of small lists without cycles: looking for cycles costs a quarter of the time
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _one_by_one(run: bytes, first: int, strict: Any, lax: Any, name: str, tally: Tally) -> Iterable[Any]:
    lines = run.split(b"\n")
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            yield strict.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                row = lax.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                cut_off = number == first + len(lines) - 1  # a last line has no line end behind it
                what, reason = _fault(line, error, cut_off)
                tally.read += 1
                tally.malformed(f"{name}:{number}", what, reason)
            else:
                tally.note("numbers written as text or as whole decimals were taken as numbers")
                yield row


def _fault(line: bytes, error: Exception, cut_off: bool) -> tuple[str, str]:
    if b"\x00" in line:
        return "contains NUL bytes", "NUL bytes"
    if isinstance(error, RecursionError):
        return TOO_DEEP, "nested too deeply"
    if isinstance(error, msgspec.ValidationError):
        text = str(error).replace(" - at `$", " at `").replace("`.", "`")
        if "missing required field" in text:
            return f"{text[0].lower()}{text[1:]}: another format, or a damaged row", "field missing"
        if "`float` <=" in text or "`float` >=" in text:
            return f"the time {text[text.rfind('at `') :]} {BEYOND}", "wrong type or out of range"
        return text[0].lower() + text[1:], "wrong type or out of range"
    if cut_off:
        return "the last line is cut off", "cut off"
    return f"is not JSON: {str(error).removeprefix('JSON is malformed: ')}", "not JSON"


class _Run:
    """Turns decoded rows into columns."""

    def __init__(
        self,
        columns: Columns,
        form: RowFormat,
        fields: dict[Field, str],
        options: ReadOptions,
    ) -> None:
        self._columns, self._fields = columns, fields
        self._units = form.units(options.time_unit)
        self._local = form.local_ids
        self._chats: dict[int | str, int] = {}
        self._parents: list[int] = []
        self._unresolved: list[Ints] = []

    def add(self, rows: list[Any], blocks: _BlockIds | None) -> None:
        n, has, columns = len(rows), self._fields, self._columns
        if not n:
            return
        session = self._sessions(rows)
        columns.add(
            n,
            input=int_column([row.input for row in rows], n),
            output=int_column([row.output for row in rows], n),
            arrival=self._arrival(rows, n),
            session=session,
            turn=int_column([row.turn for row in rows], n) if "turn" in has else None,
            cached=int_column([row.cached for row in rows], n) if "cached" in has else None,
            think=float_column([row.think for row in rows], n, self._units["think"]) if "think" in has else None,
            model=np.fromiter((columns.model_index(row.model) for row in rows), np.int64, n)
            if "model" in has
            else None,
        )
        if "blocks" in has:
            counts, ids = blocks or id_column([row.blocks or [] for row in rows])
            # hashes as text mean the same in all sessions
            text_ids = blocks is None and any(isinstance(value, str) for row in rows for value in row.blocks or [])
            local = self._local and not text_ids and session is not None
            scope = session if local else np.full(n, columns.file, np.int64)
            columns.add_blocks(counts, ids, scope)

    def _arrival(self, rows: list[Any], n: int) -> Any:
        if "arrival" in self._fields:
            return float_column([row.arrival for row in rows], n, self._units["arrival"])
        if "offset" in self._fields:
            return float_column([row.offset for row in rows], n, self._units["arrival"])
        return None

    def _sessions(self, rows: list[Any]) -> Any:
        if "session" in self._fields:
            keys = [row.session for row in rows]
        elif "chat" in self._fields:
            chats = np.fromiter((self._joined(row.chat, row.parent) for row in rows), np.int64, len(rows))
            self._unresolved.append(chats)
            return chats
        else:
            return None
        # the same number in two files is two sessions
        index, file = self._columns.session_index, self._columns.file
        return np.fromiter((-1 if key in (None, "") else index((file, key)) for key in keys), np.int64, len(keys))

    def finish(self) -> None:
        """Put the sessions in place of the chats: which one a chat belongs to is known when all lines are read."""
        index, file = self._columns.session_index, self._columns.file
        for chats in self._unresolved:
            chats[:] = [index((file, self._root(chat))) for chat in chats.tolist()]

    def _joined(self, chat: int | str, parent: int | str | None) -> int:
        """Number of a chat, now in one set with its parent. A parent that is not in the file (the trace is a cut-out)
        starts a session of its own.
        """
        number = self._chat(chat)
        if parent is not None and parent not in (-1, "-1"):
            self._parents[self._root(number)] = self._root(self._chat(parent))
        return number

    def _chat(self, key: int | str) -> int:
        number = self._chats.setdefault(key, len(self._parents))
        if number == len(self._parents):
            self._parents.append(number)
        return number

    def _root(self, chat: int) -> int:
        parents = self._parents
        while parents[chat] != chat:
            parents[chat] = parents[parents[chat]]
            chat = parents[chat]
        return chat
