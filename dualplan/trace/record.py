"""What a trace is once it has been read: columns, one entry a request, and a report of how they were read.

Units: lengths in tokens, times in seconds. ``n`` is the number of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Clock = Literal["shared", "session", "none"]
"""``shared``: arrivals of all requests are on one clock. ``session``: each session, or file, starts a clock of its own.
``none``: requests are in order, but without times."""

Rounding = Literal["ceil", "floor", "given"]
CachedFrom = Literal["server", "generator"]
"""Who says what was cached: the server that served the requests, or the generator that made them up."""
LaterTurns = Literal["cumulative", "delta"]
TimeUnit = Literal["s", "ms", "us", "ns"]

PER_SECOND: dict[str, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Time unit of a trace -> how many there are in a second. Dividing keeps 471 ms the nearest float to 0.471 s."""

LATEST_S = 1e11
"""Times beyond this, about 3,000 years either way, are faults of the file or of its unit [s]."""

Progress = Callable[[int, int], None]
"""Called while reading with (bytes read, bytes in all; 0 where that is unknown)."""


class Blocks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The block ids of all requests, one after the other.

    ``codes[offsets[i]:offsets[i + 1]]`` are the blocks of request i in prompt order. Ids that mean the same block (same
    file or session where ids are local, same model) have the same code in ``0..distinct-1``. ``size`` is the tokens of
    a block; ``rounding`` says what becomes of a prompt's last, partial block: ``ceil`` it has an id, ``floor`` it has
    none. ``matched`` is the share of requests for which size and rounding give the number of ids that they have.
    ``before`` and ``before_tokens`` [n] are what a request inherits from the turns before it in files that give only
    the delta of later turns: leading blocks, and the tokens (prompts and generated) that these stand for; else 0.
    """

    offsets: Ints
    codes: Codes
    distinct: int
    size: int
    rounding: Rounding
    matched: float
    before: Ints
    before_tokens: Ints


class ReadReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a trace was read: what was recognised and why, what was dropped and why, what was assumed.

    ``cached_from``: where cached counts come from, if there are any.
    """

    format: str
    format_because: str
    files: tuple[str, ...]
    rows_read: int
    rows_used: int
    dropped: dict[str, int]
    time_unit: str | None
    time_unit_because: str
    later_turns: LaterTurns | None
    later_turns_because: str
    block_because: str
    estimated_tokens: bool
    notes: tuple[str, ...]
    cached_from: CachedFrom = "server"


class Trace(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A trace. Every array has n entries.

    Requests stand in time order on a shared clock, else session by session in the order of their turns.

    ``session``: index of the session, -1 where the trace has none. ``turn``: position in the session, from 0.
    ``arrival_s``: NaN where unknown. ``input_tokens``: the whole prompt, cached part included. ``cached_tokens``:
    what the server reported as read from its cache, or the generator wrote, -1 where there is no such count.
    ``think_time_s``: client's wait before the request, NaN where unknown. ``model``: index into ``models``, -1 where
    unknown.
    ``models``: names, control characters made visible. ``hit_blocks``: leading blocks that earlier requests had, -1
    where the trace has no block ids.
    """

    session: Ints
    turn: Ints
    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    cached_tokens: Ints
    think_time_s: Floats
    model: Ints
    hit_blocks: Ints
    models: tuple[str, ...]
    clock: Clock
    start_s: float
    blocks: Blocks | None
    report: ReadReport

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.input_tokens)

    @property
    def has_sessions(self) -> bool:
        """Whether any request belongs to a session."""
        return bool(len(self.session)) and int(self.session.max()) >= 0

    @property
    def waits_s(self) -> Floats:
        """Known think times: waits before later turns of a session. What a file gives for a first turn is none [s]."""
        waits: Floats = self.think_time_s[(self.turn > 0) & ~np.isnan(self.think_time_s)]
        return waits


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may set about reading. ``None`` means: find out.

    ``lenient`` keeps the good rows of a file that has bad ones. ``chars_per_token`` allows text without token counts.
    """

    lenient: bool = False
    trace_format: str | None = None
    chars_per_token: float | None = None
    time_unit: TimeUnit | None = None
    block_size: int | None = None
    later_turns: LaterTurns | None = None


def constant(value: int, n: int) -> Ints:
    """A read-only column of one value that takes no memory."""
    return np.broadcast_to(np.int64(value), n)


def float_constant(value: float, n: int) -> Floats:
    """A read-only column of one value that takes no memory."""
    return np.broadcast_to(np.float64(value), n)
