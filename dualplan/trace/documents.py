"""Formats with many requests a document: WEKA session files and OpenHands outputs; and what their readers share."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from dualplan.trace.blocks import LARGEST_BLOCK
from dualplan.trace.columns import LONGEST, Columns, float_column, id_column, int_column
from dualplan.trace.formats import Sample
from dualplan.trace.record import LATEST_S, PER_SECOND, ReadOptions
from dualplan.trace.source import Text
from dualplan.trace.tally import Tally

_D = TypeVar("_D")

TOO_DEEP = "is nested too deeply"
BEYOND = f"is beyond {LATEST_S:g} s: a damaged value or another time unit"


class Row(msgspec.Struct, kw_only=True, gc=False):
    """One request on its way into the columns: tokens, seconds; None where the format says nothing."""

    session: int
    input: int
    output: int
    arrival: float | None = None
    cached: int | None = None
    think: float | None = None
    model: str | None = None


class DocumentReader:
    """Base of the readers. ``read`` takes one file after the other, ``finish`` adds what could not be added before."""

    estimated = False

    def __init__(self, columns: Columns, tally: Tally, options: ReadOptions) -> None:
        self.columns, self.tally, self.options = columns, tally, options
        self.unit = PER_SECOND[options.time_unit or "s"]

    def read(self, text: Text, found: Sample) -> None:
        """Read one file."""
        raise NotImplementedError

    def finish(self) -> None:
        """All files have been read."""

    def session(self, *key: Hashable) -> int:
        """Number of the session of this file with this key."""
        return self.columns.session_index((self.columns.file, *key))

    def add(self, rows: list[Row]) -> None:
        """Add requests to the columns."""
        n, columns = len(rows), self.columns
        if n:
            columns.add(
                n,
                input=int_column((row.input for row in rows), n),
                output=int_column((row.output for row in rows), n),
                session=int_column((row.session for row in rows), n),
                arrival=float_column((row.arrival for row in rows), n, self.unit),
                cached=int_column((row.cached for row in rows), n),
                think=float_column((row.think for row in rows), n, self.unit),
                model=int_column((columns.model_index(row.model) for row in rows), n),
            )

    def documents(self, text: Text, found: Sample, kind: type[_D]) -> Iterator[tuple[str, _D]]:
        """Typed documents of a file with the place of each; malformed ones go to the tally."""
        decoder = msgspec.json.Decoder(kind, strict=False)
        pieces = [(0, text.whole())] if found.kind == "json" else text.lines()
        for number, data in pieces:
            where = f"{text.name}:{number}" if found.kind == "jsonl" else text.name
            try:
                yield where, decoder.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self.tally.read += 1
                what = str(error).replace(" - at `$.", " at `").replace(" - at `$", " at `")
                reason = "wrong type or out of range" if isinstance(error, msgspec.ValidationError) else "not JSON"
                self.tally.malformed(where, what[:1].lower() + what[1:], reason)
            except RecursionError:
                self.tally.read += 1
                self.tally.malformed(where, TOO_DEEP, "nested too deeply")

    def usable(self, where: str, times: tuple[float | None, ...] = (), **lengths: int | None) -> bool:
        """Whether all token counts are there, and these and the times possible; counts the row as read."""
        self.tally.read += 1
        for name, value in lengths.items():
            if value is None:
                self.tally.malformed(where, f"no {name} tokens", "field missing")
                return False
            if not -LONGEST <= value <= LONGEST:
                what = f"{name} tokens are {value}, beyond any prompt"
                self.tally.malformed(where, what, "wrong type or out of range")
                return False
        for time in times:
            if time is not None and not abs(time / self.unit) <= LATEST_S:  # NaN too
                self.tally.malformed(where, f"the time {time:g} {BEYOND}", "wrong type or out of range")
                return False
        return True


def seconds(stamp: str | float | None) -> float | None:
    """A date in ISO 8601 (UTC where it names no zone) as seconds since 1970; numbers stay, None for anything else."""
    if stamp is None or isinstance(stamp, (int, float)):
        return stamp
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class _WekaRequest(msgspec.Struct, gc=False):
    t: float | None = None
    type: str = ""
    model: str | None = None
    input: int | None = msgspec.field(default=None, name="in")
    output: int | None = msgspec.field(default=None, name="out")
    hash_ids: list[int] | None = None
    think_time: float | None = None
    requests: list[_WekaRequest] | None = None


class _WekaSession(msgspec.Struct):
    requests: list[_WekaRequest]
    block_size: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BLOCK)]
    id: str | int | None = None
    hash_id_scope: str = "local"


class Weka(DocumentReader):
    """Sessions of kv-cache-tester. A sub-agent, at any depth, is a session of its own with its own context, and
    shares the block ids of its file. Times count from the session's start; where a sub-agent's requests begin before
    the sub-agent, their times count from it.
    """

    def read(self, text: Text, found: Sample) -> None:
        """Read one file of one session, or of one session a line."""
        for where, document in self.documents(text, found, _WekaSession):
            columns = self.columns
            if columns.block_size not in (None, document.block_size):
                self.tally.note(f"{where} has blocks of {document.block_size} tokens, others of {columns.block_size}")
            columns.block_size = columns.block_size or document.block_size
            self._rows: list[Row] = []
            self._ids: list[list[int]] = []
            name = document.id if document.id is not None else where
            self._walk(document.requests, (name,), 0.0, where)
            if self._rows:
                self.add(self._rows)
                counts, ids = id_column(self._ids)
                scope = self.session("weka", name) if document.hash_id_scope != "global" else 0
                columns.add_blocks(counts, ids, np.full(len(counts), scope, np.int64))

    def _walk(self, requests: list[_WekaRequest], key: tuple[Hashable, ...], start: float, where: str) -> None:
        agents = 0
        for number, request in enumerate(requests):
            place = f"{where}: requests[{number}]"
            if request.requests is not None:
                agents += 1
                begin = start + (request.t or 0.0)
                times = [inner.t for inner in request.requests if inner.t is not None]
                own_clock = bool(times) and min(times) < (request.t or 0.0)
                self.tally.note("sub-agents are sessions of their own")
                self._walk(request.requests, (*key, agents), begin if own_clock else start, place)
            elif self.usable(place, (request.t, request.think_time), input=request.input, output=request.output):
                self._rows.append(
                    Row(
                        session=self.session("weka", *key),
                        input=request.input or 0,
                        output=request.output or 0,
                        arrival=None if request.t is None else start + request.t,
                        think=request.think_time,
                        model=request.model,
                    )
                )
                self._ids.append(request.hash_ids or [])


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cache_read_tokens: int | None = None
    model: str | None = None


class _Cost(msgspec.Struct, gc=False):
    timestamp: float | None = None


class _Latency(msgspec.Struct, gc=False):
    latency: float | None = None


class _Metrics(msgspec.Struct):
    token_usages: list[_Usage] | None = None
    costs: list[_Cost] | None = None
    response_latencies: list[_Latency] | None = None


class _Instance(msgspec.Struct):
    instance_id: str | int | None = None
    metrics: _Metrics | None = None


class OpenHands(DocumentReader):
    """OpenHands output.jsonl: one instance a line is a session; prompt tokens include those read from the cache.

    A usage has no time; where there is a cost record per usage, its time less the response's latency is the arrival.
    """

    def read(self, text: Text, found: Sample) -> None:
        """Read one file."""
        for where, document in self.documents(text, found, _Instance):
            metrics = document.metrics or _Metrics()
            usages = metrics.token_usages or []
            if not usages:
                self.tally.note("instances without token usages hold no requests")
            arrivals = _arrivals(metrics)
            session = self.session("openhands", where if document.instance_id is None else document.instance_id)
            rows = []
            for number, (usage, arrival) in enumerate(zip(usages, arrivals, strict=True)):
                place = f"{where}: token_usages[{number}]"
                cached = usage.cache_read_tokens or 0
                if self.usable(
                    place, (arrival,), prompt=usage.prompt_tokens, completion=usage.completion_tokens, cached=cached
                ):
                    rows.append(
                        Row(
                            session=session,
                            input=usage.prompt_tokens or 0,
                            output=usage.completion_tokens or 0,
                            arrival=arrival,
                            cached=usage.cache_read_tokens,
                            model=usage.model,
                        )
                    )
            self.add(rows)


def _arrivals(metrics: _Metrics) -> list[float | None]:
    usages, costs, latencies = metrics.token_usages or [], metrics.costs or [], metrics.response_latencies or []
    if len(costs) != len(usages):
        return [None] * len(usages)
    waits: list[Any] = [item.latency for item in latencies] if len(latencies) == len(usages) else [0.0] * len(usages)
    return [
        None if cost.timestamp is None else cost.timestamp - (wait or 0.0)
        for cost, wait in zip(costs, waits, strict=True)
    ]
