"""From columns to a trace: rows dropped by rule, deltas summed up, requests put in order, blocks made comparable.

Rules, all of them reported:

* A request with zero or negative input, or with negative output, is a failed call and is dropped, each kind counted
  for itself, with or without ``lenient``. One with input and no output is kept: its prompt was processed.
* A negative wait counts as none.
* A cached count beyond the prompt is cut to the prompt.
* Requests out of time order are sorted; rows without a time keep their place behind the row before them.
* Models do not share a cache: the same block id of two models is two blocks.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError, printable
from dualplan.trace.blocks import dense, find_size, gather, leading_hits, ranges
from dualplan.trace.columns import EMPTY, Columns, Name
from dualplan.trace.record import (
    Blocks,
    Bools,
    Clock,
    Floats,
    Ints,
    LaterTurns,
    ReadOptions,
    ReadReport,
    Trace,
    constant,
)
from dualplan.trace.tally import Tally


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the format says about the columns, see RowFormat; ``offsets``: arrivals count from the session's start, or
    from the turn before.
    """

    where: str
    format: str
    because: str
    files: tuple[str, ...]
    clock: Clock
    time_unit: str | None
    time_because: str
    offsets: bool = False
    may_be_delta: bool = False
    block_size: int | None = None
    estimated: bool = False


class _Table:
    """The columns of all rows, with the block ids beside them."""

    def __init__(self, columns: Columns) -> None:
        self.ints: dict[Name, Any] = {name: columns.ints(name) for name in EMPTY if name not in ("arrival", "think")}
        self.floats: dict[Name, Any] = {name: columns.floats(name) for name in ("arrival", "think")}
        self.counts, self.ids, self.scopes = columns.blocks()
        self.before = constant(0, len(self.counts))
        self.before_tokens = constant(0, len(self.counts))

    @property
    def rows(self) -> int:
        return len(self.ints["input"])

    @property
    def block_offsets(self) -> Ints:
        offsets = np.zeros(len(self.counts) + 1, np.int64)
        np.cumsum(self.counts, out=offsets[1:])
        return offsets

    def take(self, order: npt.NDArray[Any]) -> None:
        """Keep these rows in this order."""
        if len(self.ids):
            _, self.ids = gather(self.block_offsets, self.ids, order)
        self.counts, self.scopes = self.counts[order], self.scopes[order]
        self.before, self.before_tokens = self.before[order], self.before_tokens[order]
        for columns in (self.ints, self.floats):
            for name, column in columns.items():
                # a column of one value stays one that takes no memory
                columns[name] = column[order] if column.strides != (0,) else column[: len(order)]


def assemble(columns: Columns, context: Context, tally: Tally, options: ReadOptions) -> Trace:
    """Make the trace. Raises InputError where malformed rows were met without ``lenient``, or nothing is left."""
    tally.close()
    table = _Table(columns)
    _drop_failed_calls(table, tally)
    if not table.rows:
        lost = ", ".join(f"{count:,} {reason}" for reason, count in tally.dropped.items())
        raise InputError(context.where, f"no usable request in {tally.read:,} rows", lost)
    backwards = table.floats["think"] < 0
    if backwards.any():
        tally.note(f"{int(backwards.sum()):,} negative waits were taken as none")
        table.floats["think"] = np.maximum(table.floats["think"], 0.0)
    clock, offsets_because = _arrivals(table, context, tally)
    later, later_because = _later_turns(table, context, options, tally)
    _order(table, clock)
    start = 0.0
    if clock == "shared":
        start = float(np.nanmin(table.floats["arrival"]))
        table.floats["arrival"] = table.floats["arrival"] - start
    beyond = table.ints["cached"] > table.ints["input"]
    if beyond.any():
        tally.note(f"{int(beyond.sum()):,} cached counts were beyond their prompts and cut to them")
        table.ints["cached"] = np.minimum(table.ints["cached"], table.ints["input"])
    blocks, block_because = _blocks(table, columns, context, options)
    hits = leading_hits(blocks.offsets, blocks.codes, blocks.distinct) if blocks else constant(-1, table.rows)
    unit = options.time_unit or context.time_unit
    because = "given by --time-unit" if options.time_unit and context.time_unit else context.time_because
    report = ReadReport(
        format=context.format,
        format_because=context.because,
        files=context.files,
        rows_read=tally.read,
        rows_used=table.rows,
        dropped=dict(sorted(tally.dropped.items())),
        time_unit=unit if clock != "none" else None,
        time_unit_because=because + offsets_because if clock != "none" else "the trace has no times",
        later_turns=later,
        later_turns_because=later_because,
        block_because=block_because,
        estimated_tokens=context.estimated,
        notes=tuple(tally.notes),
        cached_from=columns.cached_from,
    )
    return Trace(
        session=table.ints["session"],
        turn=_turns(table.ints["session"]),
        arrival_s=table.floats["arrival"],
        input_tokens=table.ints["input"],
        output_tokens=table.ints["output"],
        cached_tokens=table.ints["cached"],
        think_time_s=table.floats["think"],
        model=table.ints["model"],
        hit_blocks=hits,
        models=tuple(map(printable, columns.models)),
        clock=clock,
        start_s=start,
        blocks=blocks,
        report=report,
    )


def _drop_failed_calls(table: _Table, tally: Tally) -> None:
    prompt = table.ints["input"]
    negative = (prompt > 0) & (table.ints["output"] < 0)
    tally.rule("zero input tokens (failed call)", int((prompt == 0).sum()))
    tally.rule("negative input tokens (failed call)", int((prompt < 0).sum()))
    tally.rule("negative output tokens (failed call)", int(negative.sum()))
    bad = (prompt <= 0) | negative
    if bad.any():
        table.take(np.flatnonzero(~bad))


def by_session(session: Ints) -> tuple[Ints, Bools]:
    """Order of the rows session by session, their order within kept, and which of them start one [n]."""
    order = np.argsort(session, kind="stable")
    starts = np.ones(len(order), bool)
    starts[1:] = session[order][1:] != session[order][:-1]
    return order, starts


def _turns(session: Ints) -> Ints:
    if session.strides == (0,):
        return np.asarray(constant(0, len(session)))
    order, starts = by_session(session)
    positions = np.arange(len(order))
    turns = np.empty(len(order), np.int64)
    turns[order] = positions - np.maximum.accumulate(np.where(starts, positions, 0))
    turns[session < 0] = 0
    return turns


def _arrivals(table: _Table, context: Context, tally: Tally) -> tuple[Clock, str]:
    """Make arrivals out of what counts from the turn before; returns the clock and what to say about it."""
    arrival = table.floats["arrival"]
    known = np.isfinite(arrival)
    if not known.any():
        return "none", ""
    if not known.all():
        table.floats["arrival"] = arrival = np.where(known, arrival, np.nan)
    if not context.offsets:
        back = int((np.diff(arrival if known.all() else arrival[known]) < 0).sum())
        if back and context.clock == "shared":
            tally.note(f"the time went back {back:,} times; requests were sorted by time")
        return context.clock, ""
    order = np.lexsort((table.ints["turn"], table.ints["session"]))
    session, offset = table.ints["session"][order], np.nan_to_num(arrival[order])
    same = session[1:] == session[:-1]
    back = int((same & (np.diff(offset) < 0)).sum())
    if back == 0:
        return context.clock, "; taken from the session's start, as it never falls within one"
    starts = np.concatenate(([True], ~same))
    summed = np.cumsum(np.where(starts, 0.0, offset))
    base = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    table.floats["arrival"] = np.empty(len(order))
    table.floats["arrival"][order] = summed - summed[base]
    return context.clock, f"; taken from the turn before, as it falls within a session {back:,} times"


def _later_turns(table: _Table, context: Context, options: ReadOptions, tally: Tally) -> tuple[LaterTurns | None, str]:
    """Find out whether later turns repeat their session or give only what is new, and make them whole.

    A later turn that begins with the first block of the turn before repeats it. Without block ids, one whose prompt is
    at least as long as all of the turn before (prompt and output) does. The majority decides.
    """
    session = table.ints["session"]
    if not context.may_be_delta or session.strides == (0,):
        return None, ""
    order, starts = by_session(session)
    later = np.flatnonzero(~starts & (session[order] >= 0))
    if not len(later):
        return None, ""
    now, past = order[later], order[later - 1]
    counts = table.counts
    with_ids = (counts[now] > 0) & (counts[past] > 0)
    if with_ids.any():
        first = table.block_offsets[:-1]
        whole = table.ids[first[now[with_ids]]] == table.ids[first[past[with_ids]]]
        because = "begin with the first block of the turn before"
    else:
        inputs = table.ints["input"]
        whole = inputs[now] >= inputs[past] + table.ints["output"][past]
        because = "are as long as all of the turn before"
    share = float(whole.mean())
    found: LaterTurns = options.later_turns or ("cumulative" if share >= 0.5 else "delta")
    because = f"{int(whole.sum()):,} of {len(whole):,} later turns {because}"
    if options.later_turns:
        because = f"given by --later-turns; {because}"
    elif 0.1 < share < 0.9:
        tally.note(f"unclear whether later turns are cumulative or deltas: {because}")
    if found == "delta":
        _sum_up(table, order, starts)
    return found, because


def _sum_up(table: _Table, order: Ints, starts: Bools) -> None:
    table.take(order)
    loose = table.ints["session"] < 0
    starts = starts | loose
    base = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    tokens = table.ints["input"] + table.ints["output"]
    total = np.cumsum(tokens) - tokens
    table.before_tokens = total - total[base]
    table.ints["input"] = table.ints["input"] + table.before_tokens
    offsets = table.block_offsets
    table.before = offsets[:-1] - offsets[:-1][base]
    if len(table.ids):
        table.counts = table.before + table.counts
        _, table.ids = ranges(table.ids, offsets[:-1][base], table.counts)


def _times(table: _Table) -> Floats:
    """Times to sort by: a turn without a time comes its think time behind the turn before it."""
    arrival: Floats = table.floats["arrival"]
    missing = np.isnan(arrival)
    if not missing.any():
        return arrival
    session = table.ints["session"]
    order, starts = by_session(session) if session.strides != (0,) else (np.arange(len(arrival)), missing & False)
    known = ~missing[order]
    wait = np.where(starts | known, 0.0, np.nan_to_num(table.floats["think"][order]))
    waited = np.cumsum(wait)
    anchor = np.maximum.accumulate(np.where(known | starts, np.arange(len(order)), 0))
    times = np.nan_to_num(arrival[order])
    key = np.empty(len(order))
    key[order] = times[anchor] + waited - waited[anchor]
    return key


def _order(table: _Table, clock: Clock) -> None:
    """Put the requests in order; see Trace."""
    session, turn = table.ints["session"], table.ints["turn"]
    if clock == "none":
        if session.strides != (0,):
            table.take(np.lexsort((turn, session)))
        return
    if clock == "session":
        has_turns = turn.strides != (0,)
        times = _times(table)
        table.take(np.lexsort((times, turn, session)) if has_turns else np.lexsort((times, session)))
        return
    times = _times(table)
    if (np.diff(times) < 0).any():
        table.take(np.lexsort((turn, times)) if turn.strides != (0,) else np.argsort(times, kind="stable"))


def _blocks(table: _Table, columns: Columns, context: Context, options: ReadOptions) -> tuple[Blocks | None, str]:
    if not columns.has_blocks or not len(table.ids):
        return None, "no block ids"
    own_tokens, own_counts = table.ints["input"] - table.before_tokens, table.counts - table.before
    size, rounding, matched, because = find_size(own_tokens, own_counts, context.block_size, options.block_size)
    scopes = table.scopes
    if len(columns.models) > 1:
        scopes = scopes * (len(columns.models) + 1) + table.ints["model"] + 1
    one_scope = int(scopes.min()) == int(scopes.max())
    codes, distinct = dense(table.ids, scopes[:1] if one_scope else np.repeat(scopes, table.counts))
    blocks = Blocks(
        offsets=table.block_offsets,
        codes=codes,
        distinct=distinct,
        size=size,
        rounding=rounding,
        matched=matched,
        before=table.before,
        before_tokens=table.before_tokens,
    )
    table.ids = codes  # lets go of the wide ids
    return blocks, because
