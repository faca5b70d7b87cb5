"""Read a trace: a file, a folder, a glob or standard input, in any of the formats of formats.py."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import msgspec

from dualplan.errors import InputError
from dualplan.trace.assemble import Context, assemble
from dualplan.trace.blocks import LARGEST_BLOCK
from dualplan.trace.columns import Columns
from dualplan.trace.documents import DocumentReader, OpenHands, Weka
from dualplan.trace.formats import DocumentFormat, RowFormat, Sample, named, recognise, sample
from dualplan.trace.record import Progress, ReadOptions, Trace
from dualplan.trace.rows_csv import read_rows as read_csv
from dualplan.trace.rows_jsonl import read_rows as read_jsonl
from dualplan.trace.sessions import ClaudeCode, Codex
from dualplan.trace.source import Text, expand, open_file
from dualplan.trace.tally import Tally
from dualplan.trace.text import LmCacheAgent, SweAgent, TauBench

_READERS: dict[str, type[DocumentReader]] = {
    "weka": Weka,
    "openhands": OpenHands,
    "codex": Codex,
    "claude-code": ClaudeCode,
    "swe-agent": SweAgent,
    "tau-bench": TauBench,
    "lmcache-agent": LmCacheAgent,
}

_CLOCKS = {
    "weka": ("session", "s", "kv-cache-tester documents seconds from the session's start"),
    "openhands": ("shared", "s", "cost records have seconds since 1970"),
    "codex": ("shared", "timestamp", "dates with a UTC offset"),
    "claude-code": ("shared", "timestamp", "dates with a UTC offset"),
}
"""Document format -> clock, time unit, reason; the others have no times."""


def read_trace(
    source: str,
    options: ReadOptions | None = None,
    *,
    stdin: BinaryIO | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Read ``source``: a path, a folder, a glob, or ``-`` for ``stdin``.

    ``progress`` is called with (bytes read, bytes in all). Raises InputError with every problem found: no such file,
    no known format, malformed rows (unless ``options.lenient``), text without token counts.
    """
    options = options or ReadOptions()
    reading = _Reading(source, options, progress)
    if source == "-":
        if stdin is None:
            raise InputError("-", "there is no standard input")
        # the stream is the caller's and stays open
        reading.one(Text("-", stdin, 0, progress), None)
    else:
        files, problems = expand(source)
        for line in problems:
            where, _, what = line.partition(": ")
            reading.tally.malformed(where, what, "file unreadable")
        for number, path in enumerate(files):
            reading.columns.file = number
            reading.file(path, alone=len(files) == 1)
    return reading.trace()


class _Reading:
    """State over the files of one trace."""

    def __init__(self, source: str, options: ReadOptions, progress: Progress | None) -> None:
        self.source, self.options, self.progress = source, options, progress
        self.columns, self.tally = Columns(), Tally(options.lenient)
        self.names: list[str] = []
        self._form: RowFormat | DocumentFormat | None = None
        self._because = ""
        self._reader: DocumentReader | None = None
        self._kind = ""

    def file(self, path: Path, alone: bool) -> None:
        """Read one of several files: a bad one counts as malformed, as does the rest of one that breaks off.

        Raises InputError where it is the only one and gives nothing.
        """
        rows = self.columns.rows
        try:
            with closing(open_file(path, self.progress)) as text:
                self.one(text, path)
        except InputError as error:
            begun = self.columns.rows > rows
            if (alone and not (begun and self.options.lenient)) or error.problems[0].startswith("--"):
                raise
            self.tally.failed(error, "rest of a file unreadable" if begun else "file unreadable")

    def one(self, text: Text, path: Path | None) -> None:
        """Read one file or standard input."""
        try:
            self._one(text, path)
        except RecursionError:  # where a reader cannot tell the line
            raise InputError(text.name, "is JSON that is nested too deeply") from None

    def _one(self, text: Text, path: Path | None) -> None:
        found = sample(text)
        form, because = self._format(text, found)
        if self._form is None:
            self._form, self._because, self._kind = form, because, found.kind
        elif form != self._form:
            hint = "one format at a time: give a glob"
            raise InputError(text.name, f"is {form.name}, but {self.names[0]} is {self._form.name}", hint)
        self.names.append(text.name)
        unit = form.time_unit if isinstance(form, RowFormat) else _CLOCKS.get(form.name, ("", "timestamp"))[1]
        if self.options.time_unit and unit == "timestamp":
            raise InputError("--time-unit", f"{form.name} has dates or no times, there is no unit to choose")
        if isinstance(form, DocumentFormat):
            if form.text_only and not self.options.chars_per_token:
                what = f"is {form.title}: it has text but no token counts"
                raise InputError(text.name, what, "--chars-per-token 4, for example, estimates them from the text")
            if self._reader is None:
                self._reader = _READERS[form.name](self.columns, self.tally, self.options)
            self._reader.read(text, found)
        elif found.kind == "csv":
            read_csv(text, path, form, found, self.columns, self.tally, self.options, self.progress)
        elif found.kind == "jsonl":
            _own_header(form, found, self.columns)
            read_jsonl(text, form, found, self.columns, self.tally, self.options)
        else:
            raise InputError(text.name, "is one JSON document", f"{form.name} has one request a line")
        for note in text.notes:
            self.tally.note(note)

    def _format(self, text: Text, found: Sample) -> tuple[RowFormat | DocumentFormat, str]:
        if self.options.trace_format:
            return named(self.options.trace_format, found, text.name), "given by --trace-format"
        try:
            return recognise(text.name, found)
        except InputError:
            # a log of an agent may hold nothing yet; beside others of its kind it is one of them
            if isinstance(self._form, DocumentFormat):
                return self._form, self._because
            raise

    def trace(self) -> Trace:
        """Put everything together. Raises InputError for malformed rows, unless they are to be dropped."""
        if self._reader is not None:
            self._reader.finish()
        if self._form is None:
            self.tally.close()
            raise InputError(self.source, "no file could be read")
        form = self._form
        common: dict[str, object] = {
            "where": self.source,
            "format": form.name,
            "because": self._because,
            "files": tuple(self.names),
            "block_size": self.columns.block_size,
            "estimated": self._reader is not None and self._reader.estimated,
        }
        if isinstance(form, DocumentFormat):
            clock, unit, because = _CLOCKS.get(form.name, ("none", None, ""))
            context = msgspec.convert(
                {**common, "clock": clock, "time_unit": unit, "time_because": because}, type=Context
            )
            return assemble(self.columns, context, self.tally, self.options)
        return assemble(self.columns, self._row_context(form, common), self.tally, self.options)

    def _row_context(self, form: RowFormat, common: dict[str, object]) -> Context:
        clock = self.columns.clock or form.clock
        if len(self.names) > 1 and not form.absolute and clock == "shared":
            clock = "session"
            self.tally.note("each file has a clock of its own: no arrival rate over all of them")
        return msgspec.convert(
            {
                **common,
                "clock": clock,
                "time_unit": form.time_unit,
                "time_because": form.time_because,
                "offsets": "offset" in form.fields,
                "may_be_delta": form.may_be_delta,
                "block_size": self.columns.block_size or form.block_size,
            },
            type=Context,
        )


def _own_header(form: RowFormat, found: Sample, columns: Columns) -> None:
    """Take clock, block size and origin of cached counts from the first line of dualplan's own format."""
    header = found.records[0] if form.name == "dualplan" and isinstance(found.records[0], dict) else {}
    if header.get("clock") in ("shared", "session", "none"):
        columns.clock = header["clock"]
    if header.get("cached_from") == "generator":
        columns.cached_from = "generator"
    size = header.get("block_size")
    if isinstance(size, int) and 1 <= size <= LARGEST_BLOCK:
        columns.block_size = size
