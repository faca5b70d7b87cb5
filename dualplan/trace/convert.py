"""Write a trace in another format, where the trace has what the format is about; refuse where it has not.

Lengths and times are kept. Block ids become small integers that are unique over the whole trace; the blocks keep their
size. Session and model names are not kept, only which requests share one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Literal

import msgspec
import numpy as np

from dualplan.errors import InputError, did_you_mean
from dualplan.spec.load import written
from dualplan.trace.assemble import by_session
from dualplan.trace.formats import SCHEMA
from dualplan.trace.record import Floats, Ints, Trace

Need = Literal["times", "dates", "blocks", "sessions"]
RUN = 10_000
"""Rows written at a time."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A format that can be written: what it needs, its usual block size [tokens], its rows."""

    name: str
    csv: bool
    needs: tuple[Need, ...]
    row: Callable[[_Request], dict[str, Any]]
    block_size: int | None = None


class _Request(msgspec.Struct, kw_only=True):
    """One request as the writers see it; None where the trace knows nothing."""

    number: int
    session: int | None
    turn: int
    parent: int
    arrival_s: float | None
    offset_s: float | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int | None
    think_time_s: float | None
    model: str | None
    blocks: list[int] | None
    start_s: float


def _dualplan(request: _Request) -> dict[str, Any]:
    row: dict[str, Any] = {
        "session": request.session,
        "turn": request.turn,
        "arrival_s": request.arrival_s,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
        "cached_tokens": request.cached_tokens,
        "think_time_s": request.think_time_s,
    }
    return row | _given(model=request.model, hash_ids=request.blocks)


def _mooncake(request: _Request) -> dict[str, Any]:
    row = {
        "timestamp": _milliseconds(request.arrival_s),
        "input_length": request.input_tokens,
        "output_length": request.output_tokens,
        "hash_ids": request.blocks,
    }
    return row | _given(session_id=request.session, delay=_milliseconds(request.think_time_s))


def _bailian(request: _Request) -> dict[str, Any]:
    return {
        "chat_id": request.number,
        "parent_chat_id": request.parent,
        "timestamp": request.arrival_s,
        "input_length": request.input_tokens,
        "output_length": request.output_tokens,
        "type": "text",
        "turn": request.turn + 1,
        "hash_ids": request.blocks,
    }


def _session_rows(request: _Request) -> dict[str, Any]:
    row: dict[str, Any] = {
        "session_id": request.session,
        "turn_index": request.turn,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
        "request_arrival_delta_s": request.offset_s,
    }
    if request.blocks is not None:
        # as text, since numbers mean the same block only within one session
        row["block_hashes"] = [format(code, "x") for code in request.blocks]
    return row | _given(think_time_s=request.think_time_s, model=request.model)


def _otel(request: _Request) -> dict[str, Any]:
    return {
        "start_time_s": request.start_s + (request.arrival_s or 0.0),
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
        "session_id": request.session,
        "cached_tokens": request.cached_tokens,
        "model": request.model,
    }


def _azure(request: _Request) -> dict[str, Any]:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=request.start_s + (request.arrival_s or 0.0))
    return {
        "TIMESTAMP": moment.isoformat(sep=" ", timespec="microseconds"),
        "ContextTokens": request.input_tokens,
        "GeneratedTokens": request.output_tokens,
    }


def _burstgpt(request: _Request) -> dict[str, Any]:
    return {
        "Timestamp": request.arrival_s,
        "Session ID": request.session,
        "Elapsed time": None,
        "Model": request.model,
        "Request tokens": request.input_tokens,
        "Response tokens": request.output_tokens,
        "Total tokens": request.input_tokens + request.output_tokens,
        "Log Type": None,
    }


def _vidur(request: _Request) -> dict[str, Any]:
    return {
        "arrived_at": request.arrival_s,
        "num_prefill_tokens": request.input_tokens,
        "num_decode_tokens": request.output_tokens,
    }


TARGETS: tuple[Target, ...] = (
    Target(name="dualplan", csv=False, needs=(), row=_dualplan),
    Target(name="mooncake", csv=False, needs=("times", "blocks"), row=_mooncake, block_size=512),
    Target(name="bailian", csv=False, needs=("times", "blocks"), row=_bailian, block_size=16),
    Target(name="session-rows", csv=False, needs=("sessions",), row=_session_rows, block_size=64),
    Target(name="otel", csv=True, needs=("times",), row=_otel),
    Target(name="azure-2024", csv=True, needs=("dates",), row=_azure),
    Target(name="burstgpt", csv=True, needs=("times",), row=_burstgpt),
    Target(name="vidur", csv=True, needs=("times",), row=_vidur),
)


def target(name: str) -> Target:
    """The target of this name. Raises InputError where there is none."""
    for candidate in TARGETS:
        if candidate.name == name:
            return candidate
    known = [candidate.name for candidate in TARGETS]
    raise InputError("--to", f'"{name}" cannot be written', did_you_mean(name, known) or f"one of {', '.join(known)}")


def check(trace: Trace, form: Target) -> list[str]:
    """What a reader of the result should know. Raises InputError with all that the trace lacks for this format."""
    lacks = [why for need in form.needs if (why := _lack(trace, need))]
    if lacks:
        problems = [f"--to {form.name}: {why}" for why in lacks]
        raise InputError("", problems=problems)
    notes = []
    blocks = trace.blocks
    if blocks is not None and _summed_up(trace):
        notes.append("block ids are left out: those of delta turns do not cover what was generated")
    elif blocks is not None and form.block_size not in (None, blocks.size):
        notes.append(f"blocks have {blocks.size} tokens; readers of {form.name} take {form.block_size} unless told")
    elif blocks is not None and form.name not in ("dualplan", "mooncake", "bailian", "session-rows"):
        notes.append(f"block ids are left out: {form.name} has no place for them")
    if form.name == "session-rows" and blocks is not None and not _summed_up(trace) and trace.clock == "shared":
        notes.append(
            "hit rates may change: session-rows has no time between sessions, and readers take one after the other"
        )
    if form.name == "otel" and trace.report.cached_from == "generator":
        notes.append("cached tokens are those of the generator: otel cannot say so, and readers take them as reported")
    return notes


def _lack(trace: Trace, need: Need) -> str:
    if need == "blocks":
        if trace.blocks is None:
            return "it needs block ids, the trace has none"
        return "it needs block ids of whole prompts, the trace has those of deltas" if _summed_up(trace) else ""
    if need == "sessions":
        return "" if trace.has_sessions else "it needs sessions, the trace has none"
    if trace.clock == "none":
        return "it needs arrival times, the trace has none"
    if trace.clock == "session":
        return "it needs arrivals on one clock, each session or file of the trace has its own"
    if np.isnan(trace.arrival_s).any():
        return "it needs an arrival time of every request, some have none"
    if need == "dates" and trace.start_s < 1e9:
        return "it needs dates, the trace has times from its start"
    return ""


def _summed_up(trace: Trace) -> bool:
    return trace.report.later_turns == "delta"


def lines(trace: Trace, name: str) -> Iterator[bytes]:
    """The trace as runs of lines of the named format. Raises InputError where the trace lacks what it needs."""
    form = target(name)
    check(trace, form)
    encoder = msgspec.json.Encoder()
    if form.name == "dualplan":
        yield encoder.encode(_header(trace)) + b"\n"
    first = True
    for requests in _runs(trace):
        rows = [form.row(request) for request in requests]
        if not form.csv:
            yield encoder.encode_lines(rows)
            continue
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        if first:
            writer.writeheader()
            first = False
        writer.writerows(rows)
        yield buffer.getvalue().encode()


def write(trace: Trace, name: str, path: Path) -> None:
    """Write a file, compressed where its name ends in .gz or .zst, whole or not at all. Raises InputError."""
    with written(path) as raw, _compressed(raw, path) as stream:
        for run in lines(trace, name):
            stream.write(run)


def _compressed(raw: IO[bytes], path: Path) -> Any:
    if path.suffix == ".gz":
        import gzip

        # no name and no time inside: the same trace gives the same bytes
        return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
    if path.suffix == ".zst":
        import zstandard

        return zstandard.ZstdCompressor().stream_writer(raw, closefd=False)
    from contextlib import nullcontext

    return nullcontext(raw)


def _header(trace: Trace) -> dict[str, Any]:
    header: dict[str, Any] = {"schema": SCHEMA, "clock": trace.clock, "requests": trace.requests}
    if trace.report.cached_from != "server":
        header["cached_from"] = trace.report.cached_from
    if trace.start_s:
        header["start_time_s"] = trace.start_s
    if trace.blocks is not None and not _summed_up(trace):
        header["block_size"] = trace.blocks.size
    return header


def _runs(trace: Trace) -> Iterator[list[_Request]]:
    parents, starts = _parents(trace), _session_starts(trace)
    blocks = None if trace.blocks is None or _summed_up(trace) else trace.blocks
    for start in range(0, trace.requests, RUN):
        stop = min(start + RUN, trace.requests)
        requests = []
        for offset, values in enumerate(
            zip(
                trace.session[start:stop].tolist(),
                trace.turn[start:stop].tolist(),
                parents[start:stop].tolist(),
                trace.arrival_s[start:stop].tolist(),
                trace.input_tokens[start:stop].tolist(),
                trace.output_tokens[start:stop].tolist(),
                trace.cached_tokens[start:stop].tolist(),
                trace.think_time_s[start:stop].tolist(),
                trace.model[start:stop].tolist(),
                (trace.arrival_s[start:stop] - starts[start:stop]).tolist(),
                strict=True,
            )
        ):
            session, turn, parent, arrival, prompt, output, cached, think, model, since = values
            number = start + offset
            ids = None if blocks is None else blocks.codes[blocks.offsets[number] : blocks.offsets[number + 1]].tolist()
            requests.append(
                _Request(
                    number=number,
                    session=None if session < 0 else session,
                    turn=turn,
                    parent=parent,
                    arrival_s=None if arrival != arrival else arrival,
                    offset_s=None if since != since else since,
                    input_tokens=prompt,
                    output_tokens=output,
                    cached_tokens=None if cached < 0 else cached,
                    think_time_s=None if think != think else think,
                    model=None if model < 0 else trace.models[model],
                    blocks=ids,
                    start_s=trace.start_s,
                )
            )
        yield requests


def _parents(trace: Trace) -> Ints:
    """The request before of the same session [n], -1 for a session's first."""
    parents = np.full(trace.requests, -1, np.int64)
    order = np.argsort(trace.session, kind="stable")
    same = (trace.session[order][1:] == trace.session[order][:-1]) & (trace.session[order][1:] >= 0)
    parents[order[1:][same]] = order[:-1][same]
    return parents


def _session_starts(trace: Trace) -> Floats:
    """Arrival of the first turn of each request's session [n]; of itself outside of sessions."""
    if not trace.has_sessions:
        return trace.arrival_s
    order, first = by_session(trace.session)
    starts = np.empty(trace.requests)
    positions = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    starts[order] = trace.arrival_s[order][positions]
    return np.where(trace.session < 0, trace.arrival_s, starts)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _milliseconds(seconds: float | None) -> float | int | None:
    if seconds is None:
        return None
    value = round(seconds * 1e3, 6)
    return int(value) if value.is_integer() else value
