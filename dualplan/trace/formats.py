"""The trace formats: what names them, which columns they have, what their numbers mean.

A row format has one request a row, as JSON lines or CSV, and is only a :class:`RowFormat` record; two engines read them
all. A document format has a function of its own. Recognition goes down :data:`FORMATS` and takes the first whose
evidence is in the file.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any, Literal

import msgspec

from dualplan.errors import InputError, did_you_mean
from dualplan.trace.record import PER_SECOND, Clock, TimeUnit
from dualplan.trace.source import Text

SCHEMA = "dualplan/trace/1"
"""First line of dualplan's own JSON lines: ``{"schema": "dualplan/trace/1", "clock": "shared"}``."""

Kind = Literal["csv", "jsonl", "json"]
Field = Literal[
    "arrival", "offset", "input", "output", "session", "turn", "cached", "think", "model", "blocks", "chat", "parent"
]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a file. ``columns``: of the CSV header, or all keys of the first records. ``skip``: lines before the
    header. ``row``: the first CSV row. ``records``: the first JSON objects, or the one document.
    """

    kind: Kind
    columns: tuple[str, ...]
    records: tuple[Any, ...] = ()
    delimiter: str = ","
    skip: int = 0
    row: tuple[str, ...] = ()


class RowFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A format with one request a row.

    ``fields``: meaning -> names it goes by, the first one found counts. ``evidence``: names of which all (a tuple: one
    of them) must be there. ``time_unit``: of arrivals, ``timestamp`` for dates; ``think_unit`` of waits.
    ``absolute``: times of several files are on one clock. ``utc_offset``: dates carry one.
    ``local_ids``: block ids hold within a session only.
    """

    name: str
    title: str
    fields: dict[Field, tuple[str, ...]]
    evidence: tuple[str | tuple[str, ...], ...]
    time_unit: TimeUnit | Literal["timestamp"]
    time_because: str
    think_unit: TimeUnit = "s"
    clock: Clock = "shared"
    absolute: bool = False
    utc_offset: bool = False
    block_size: int | None = None
    local_ids: bool = False
    may_be_delta: bool = False
    marker: tuple[str, str] = ("", "")

    def units(self, given: TimeUnit | None) -> dict[Field, float]:
        """How many of the units of arrivals, offsets and waits make a second; ``given``: where the user says it."""
        unit = 1.0 if self.time_unit == "timestamp" else PER_SECOND[given or self.time_unit]
        return {"arrival": unit, "offset": unit, "think": PER_SECOND[given or self.think_unit]}


class DocumentFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A format with many requests a document or a session log. ``text_only``: it has no token counts."""

    name: str
    title: str
    text_only: bool = False


_LENGTHS: dict[Field, tuple[str, ...]] = {"input": ("input_length",), "output": ("output_length",)}
_TOKENS: dict[Field, tuple[str, ...]] = {
    "input": ("input_tokens", "gen_ai.usage.input_tokens"),
    "output": ("output_tokens", "gen_ai.usage.output_tokens"),
    "model": ("model", "model_id", "gen_ai.request.model", "gen_ai.response.model"),
    "cached": ("cached_tokens", "cache_read_input_tokens", "gen_ai.usage.cache_read.input_tokens"),
}
_AZURE: dict[Field, tuple[str, ...]] = {
    "arrival": ("TIMESTAMP",),
    "input": ("ContextTokens",),
    "output": ("GeneratedTokens",),
}

ROW_FORMATS: tuple[RowFormat, ...] = (
    RowFormat(
        name="dualplan",
        title="dualplan's own JSON lines",
        fields={
            "arrival": ("arrival_s",),
            "input": ("input_tokens",),
            "output": ("output_tokens",),
            "session": ("session",),
            "turn": ("turn",),
            "cached": ("cached_tokens",),
            "think": ("think_time_s",),
            "model": ("model",),
            "blocks": ("hash_ids",),
        },
        evidence=("schema",),
        marker=("schema", SCHEMA),
        time_unit="s",
        time_because="the name arrival_s says so",
    ),
    RowFormat(
        name="bailian",
        title="Qwen-Bailian usage traces",
        fields={
            **_LENGTHS,
            "arrival": ("timestamp",),
            "chat": ("chat_id",),
            "parent": ("parent_chat_id",),
            "turn": ("turn",),
            "blocks": ("hash_ids",),
        },
        evidence=("chat_id", "parent_chat_id", "input_length", "output_length"),
        time_unit="s",
        time_because="Bailian documents seconds since the first request",
        block_size=16,
    ),
    RowFormat(
        name="mooncake",
        title="Mooncake, plain or with session_id and delay",
        fields={
            **_LENGTHS,
            "arrival": ("timestamp", "created_time"),
            "session": ("session_id",),
            "think": ("delay", "delay_ms"),
            "model": ("model",),
            "blocks": ("hash_ids",),
        },
        evidence=("input_length", "output_length", ("hash_ids", "timestamp", "session_id")),
        time_unit="ms",
        think_unit="ms",
        time_because="Mooncake documents milliseconds",
        block_size=512,
        may_be_delta=True,
    ),
    RowFormat(
        name="session-rows",
        title="flattened sessions, one turn a row",
        fields={
            **_TOKENS,
            "offset": ("request_arrival_delta_s",),
            "session": ("session_id",),
            "turn": ("turn_index",),
            "think": ("think_time_s",),
            "blocks": ("block_hashes", "hash_ids"),
        },
        evidence=(
            "session_id",
            "turn_index",
            "input_tokens",
            "output_tokens",
            ("request_arrival_delta_s", "think_time_s", "block_hashes"),
        ),
        time_unit="s",
        time_because="the name request_arrival_delta_s says so",
        clock="session",
        block_size=64,
        local_ids=True,
    ),
    RowFormat(
        name="otel",
        title="OpenTelemetry-like rows",
        fields={**_TOKENS, "arrival": ("start_time_s",), "session": ("session_id", "gen_ai.conversation.id")},
        evidence=(
            "start_time_s",
            ("input_tokens", "gen_ai.usage.input_tokens"),
            ("output_tokens", "gen_ai.usage.output_tokens"),
        ),
        time_unit="s",
        time_because="the name start_time_s says so",
        absolute=True,
    ),
    RowFormat(
        name="azure-2024",
        title="Azure LLM inference traces of 2024",
        fields=_AZURE,
        evidence=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        marker=("TIMESTAMP", "+"),
        utc_offset=True,
        time_unit="timestamp",
        time_because="dates with a UTC offset",
        absolute=True,
    ),
    RowFormat(
        name="azure-2023",
        title="Azure LLM inference traces of 2023",
        fields=_AZURE,
        evidence=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        time_unit="timestamp",
        time_because="dates without an offset",
        absolute=True,
    ),
    RowFormat(
        name="burstgpt",
        title="BurstGPT, with or without Session ID and Elapsed time",
        fields={
            "arrival": ("Timestamp",),
            "input": ("Request tokens",),
            "output": ("Response tokens",),
            "model": ("Model",),
            "session": ("Session ID",),
        },
        evidence=("Timestamp", "Request tokens", "Response tokens"),
        time_unit="s",
        time_because="BurstGPT documents seconds",
    ),
    RowFormat(
        name="vidur",
        title="vidur request traces",
        fields={"arrival": ("arrived_at",), "input": ("num_prefill_tokens",), "output": ("num_decode_tokens",)},
        evidence=("num_prefill_tokens", "num_decode_tokens"),
        time_unit="s",
        time_because="vidur simulates in seconds",
    ),
)

DOCUMENT_FORMATS: tuple[DocumentFormat, ...] = (
    DocumentFormat(name="weka", title="WEKA session files of kv-cache-tester, nested sub-agents included"),
    DocumentFormat(name="openhands", title="OpenHands output.jsonl, metrics.token_usages"),
    DocumentFormat(name="codex", title="Codex session logs, token_count events"),
    DocumentFormat(name="claude-code", title="Claude Code session logs, message.usage"),
    DocumentFormat(name="swe-agent", title="SWE-agent trajectories (text only)", text_only=True),
    DocumentFormat(name="tau-bench", title="tau-bench results (text only)", text_only=True),
    DocumentFormat(name="lmcache-agent", title="LMCache agent traces (text only)", text_only=True),
)

FORMATS: tuple[RowFormat | DocumentFormat, ...] = (*ROW_FORMATS, *DOCUMENT_FORMATS)

_CONTROL = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r")

_COMMENTS = re.compile(rb"(?:[ \t\r]*(?:#[^\n]*)?\n)+")
"""Blank lines and lines of comment on top of a file."""

SAMPLED = 50
"""JSON lines looked at to recognise a format; rows may lack optional fields."""


def sample(text: Text) -> Sample:
    """Look at the start of a file without using it up. Raises InputError for an empty file or one that is no text."""
    head = text.head()
    if not head.strip():
        raise InputError(text.name, "is empty")
    first = head[:4096]
    if len(first.translate(None, _CONTROL)) < 0.97 * len(first):
        raise InputError(text.name, "is binary data", "a text trace is needed, plain or as .gz or .zst")
    comments = _COMMENTS.match(head)
    above = comments.end() if comments else 0
    start = head[above:].lstrip()
    if start[:1] == b"{" or (start[:1] == b"[" and start[1:].lstrip()[:1] in (b"{", b"[", b"]", b"")):
        return _json_sample(text, text.blank(above) if above else head)
    return _csv_sample(text, head)


def _json_sample(text: Text, head: bytes) -> Sample:
    lines = [line for line in head.split(b"\n")[: SAMPLED + 1] if line.strip()]
    if len(lines) > 1 and not head.endswith(b"\n"):
        lines.pop()  # the last line of the sample may be cut off by the sample itself
    records = [record for line in lines if isinstance(record := _decoded(line), dict)]
    # in a document over many lines the first is no JSON by itself, and hardly any other one is
    if records and (isinstance(_decoded(lines[0]), dict) or 2 * len(records) >= len(lines)):
        keys = dict.fromkeys(key for record in records for key in record)
        return Sample(kind="jsonl", columns=tuple(keys), records=tuple(records))
    document = _document(text)
    keys = dict.fromkeys(document if isinstance(document, dict) else ())
    return Sample(kind="json", columns=tuple(keys), records=(document,))


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _document(text: Text) -> Any:
    data = text.whole()
    text.push_back(data)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(text.name, f"is neither JSON lines nor one JSON document: {error}") from None
    except RecursionError:
        raise InputError(text.name, "is JSON that is nested too deeply") from None


def _csv_sample(text: Text, head: bytes) -> Sample:
    # only what ends a line in CSV: splitlines knows more
    lines = re.split("\r\n|\n|\r", head.decode("utf-8", errors="replace"))
    skip = 0
    while skip < len(lines) and (not lines[skip].strip() or lines[skip].startswith("#")):
        skip += 1
    if skip == len(lines):
        raise InputError(text.name, "has comments only")
    delimiter = max((",", "\t", ";"), key=lines[skip].count)
    try:
        rows = list(csv.reader(io.StringIO("\n".join(lines[skip : skip + 2])), delimiter=delimiter))
    except csv.Error as error:
        raise InputError(f"{text.name}:{skip + 1}", f"is neither JSON nor a CSV header: {error}") from None
    columns = tuple(name.strip().removeprefix("﻿") for name in rows[0])
    row = tuple(rows[1]) if len(rows) > 1 else ()
    return Sample(kind="csv", columns=columns, delimiter=delimiter, skip=skip, row=row)


def recognise(where: str, found: Sample) -> tuple[RowFormat | DocumentFormat, str]:
    """The format of a file and the reason in words. Raises InputError where none fits."""
    for candidate in ROW_FORMATS:
        why = _row_evidence(candidate, found)
        if why:
            return candidate, why
    name, why = _document_evidence(found)
    if name:
        return next(form for form in DOCUMENT_FORMATS if form.name == name), why
    known = ", ".join(form.name for form in FORMATS)
    names = _listed(found.columns)
    if found.kind == "json" and isinstance(found.records[0], list):
        raise InputError(where, "is a JSON array of no known format", "write one request a line, as by jq -c '.[]'")
    raise InputError(where, f"no known trace format has the fields {names}", f"--trace-format takes {known}")


def named(name: str, found: Sample, where: str) -> RowFormat | DocumentFormat:
    """The format that the user names. Raises InputError where there is no such format or its fields are not there."""
    for form in FORMATS:
        if form.name == name:
            if isinstance(form, RowFormat):
                missing = [field for field in ("input", "output") if field not in resolve(form, found.columns)]
                if missing:
                    names = " and ".join(form.fields[field][0] for field in missing)  # type: ignore[index]
                    raise InputError(where, f"has no {names}, which {name} needs", f"it has {_listed(found.columns)}")
            return form
    known = [form.name for form in FORMATS]
    raise InputError("--trace-format", f'there is no format "{name}"', did_you_mean(name, known) or ", ".join(known))


def _listed(columns: tuple[str, ...]) -> str:
    """The first names, none of them long."""
    names = [name if len(name) <= 40 else f"{name[:37]}..." for name in columns[:12]]
    more = len(columns) - len(names)
    return ", ".join(names + ([f"and {more:,} more"] if more else [])) or "none"


def resolve(form: RowFormat, columns: tuple[str, ...]) -> dict[Field, str]:
    """Meaning -> the column of this file that has it."""
    found: dict[Field, str] = {}
    for field, names in form.fields.items():
        for name in names:
            if name in columns:
                found[field] = name
                break
    return found


def _row_evidence(form: RowFormat, found: Sample) -> str:
    if found.kind == "json" or (found.kind == "jsonl" and form.time_unit == "timestamp"):
        return ""
    hits = []
    for needed in form.evidence:
        names = (needed,) if isinstance(needed, str) else needed
        hit = next((name for name in names if name in found.columns), None)
        if hit is None:
            return ""
        hits.append(hit)
    why = f"{'columns' if found.kind == 'csv' else 'keys'} {', '.join(hits)}"
    column, value = form.marker
    if not column:
        return why
    if found.kind == "csv":
        position = found.columns.index(column)
        there = found.row[position] if position < len(found.row) else ""
    else:
        there = str(found.records[0].get(column, ""))
    return f'{why}; "{value}" in {column}' if value in there else ""


def _document_evidence(found: Sample) -> tuple[str, str]:
    for record in found.records:
        if isinstance(record, list) and record and isinstance(record[0], dict) and "traj" in record[0]:
            return "tau-bench", "a list of records with traj"
        if not isinstance(record, dict):
            continue
        if isinstance(record.get("requests"), list) and "block_size" in record:
            return "weka", "requests[] and block_size"
        if isinstance(record.get("metrics"), dict) and "token_usages" in record["metrics"]:
            return "openhands", "metrics.token_usages"
        if isinstance(record.get("payload"), dict) and "type" in record:
            return "codex", "lines with type and payload"
        if isinstance(record.get("traj"), list):
            return "tau-bench", "records with traj"
        if isinstance(record.get("trajectory"), list) or isinstance(record.get("history"), list):
            return "swe-agent", "trajectory or history"
        if isinstance(record.get("message"), dict) and ("sessionId" in record or "usage" in record["message"]):
            return "claude-code", "lines with message and sessionId"
        if isinstance(record.get("input"), (str, list)) and "output" in record:
            return "lmcache-agent", "lines with input and output text"
    if any(isinstance(record, dict) and record.get("type") in _CLAUDE_LINES for record in found.records):
        return "claude-code", "line types of Claude Code"
    return "", ""


_CLAUDE_LINES = ("summary", "file-history-snapshot", "queue-operation")
