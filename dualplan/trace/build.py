"""A trace from arrays that are there already: generated sessions, tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dualplan.trace.assemble import Context, assemble
from dualplan.trace.columns import Columns, id_column
from dualplan.trace.record import CachedFrom, Clock, ReadOptions, Trace
from dualplan.trace.tally import Tally


def build_trace(
    *,
    input_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    session: npt.ArrayLike | None = None,
    turn: npt.ArrayLike | None = None,
    arrival_s: npt.ArrayLike | None = None,
    cached_tokens: npt.ArrayLike | None = None,
    think_time_s: npt.ArrayLike | None = None,
    block_ids: Sequence[list[int]] | None = None,
    block_size: int | None = None,
    clock: Clock = "shared",
    because: str = "made here",
    notes: tuple[str, ...] = (),
    cached_from: CachedFrom = "server",
) -> Trace:
    """A trace of n requests: lengths [tokens], times [s], ``session`` any integers with -1 for none.

    The rules of reading hold: failed calls are dropped, requests are put in order. Raises InputError where nothing is
    left.
    """
    columns, tally = Columns(), Tally(lenient=False)
    lengths = np.asarray(input_tokens, np.int64)
    n = len(lengths)
    columns.block_size, columns.cached_from = block_size, cached_from

    def column(values: npt.ArrayLike | None, kind: Any) -> npt.NDArray[Any] | None:
        return None if values is None else np.asarray(values, kind)

    columns.add(
        n,
        input=lengths,
        output=np.asarray(output_tokens, np.int64),
        session=column(session, np.int64),
        turn=column(turn, np.int64),
        arrival=column(arrival_s, np.float64),
        cached=column(cached_tokens, np.int64),
        think=column(think_time_s, np.float64),
    )
    if block_ids is not None:
        counts, ids = id_column(list(block_ids))
        columns.add_blocks(counts, ids, np.zeros(n, np.int64))
    tally.read = n
    for note in notes:
        tally.note(note)
    context = Context(
        where=because,
        format="dualplan",
        because=because,
        files=(),
        clock=clock,
        time_unit="s",
        time_because=because,
        block_size=block_size,
    )
    return assemble(columns, context, tally, ReadOptions())
