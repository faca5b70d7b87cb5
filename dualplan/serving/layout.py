"""The tables of a run: record types with named fields, and the codes in them.

``initial`` makes them, the kernel works on them, ``run`` states what they mean. Times in s, sizes in B. A field of a
table is read as ``s.agent["ready"][a]``: measured, this is as fast as numbered columns, plain and compiled.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Table = npt.NDArray[np.void]
Record = Any
"""One row of a table, ``np.void``: ``s.count["events"]``."""


class Reads(IntEnum):
    """Who reads the prefix of a turn from storage."""

    NOBODY = 0
    ONE_SIDE = 1
    BOTH_SIDES = 2
    SPLIT = 3


class Staging(IntEnum):
    """Where the KV of a turn waits on its way."""

    HOST = 0
    GPUDIRECT = 1
    GDS = 2


IDLE, AWAKE, ASLEEP = range(3)
"""Activity of a prefill group: without turns, at its boundaries, or until it is woken."""

NONE = -1
TIE = 1e-6
"""Tokens by which a mark may be ahead of the clock and still be reached: far below one step."""

MOST_POLLS = 64
"""Passes without anything to do after which a group stops looking at every boundary and is woken."""

MOST_STEPS = 100_000
"""Idle passes that are summed up one by one."""


class Setting(NamedTuple):
    """What does not change in a run. ``reads``, ``staging`` and the placements are the codes of their enums.

    ``held_share``: of the KV of a turn, what a prefill engine holds of it; ``read_share``: of the bytes of a prefix,
    what is read from storage; ``backend``: of the whole store [B/s], 0 for no limit. Nodes and storage NICs of the
    prefill side come first in their tables; ``prefill_nodes`` of them.
    """

    block: float
    kv_bytes: float
    state_bytes: float
    pass_base: float
    pass_experts: float
    pass_idle: float
    per_request: float
    per_token: float
    per_token_hidden: float
    per_token_link: float
    per_context: float
    attention_fixed: float
    quota: float
    read_share: float
    backend: float
    handover: float
    handover_rate: float
    decode_base: float
    decode_slope: float
    decode_quadratic: float
    decode_experts: float
    cache_fixed: float
    expert_share: float
    expert_ranks: float
    alpha: float
    beta: float
    held_share: float
    step_tokens: float
    prefill_room: float
    decode_room: float
    chunk_tokens: float
    resident: float
    reads: int
    staging: int
    prefill_placement: int
    decode_placement: int
    read_side: int
    clusters: int
    max_active: int
    prefill_groups: int
    prefill_group_size: int
    prefill_per_node: int
    prefill_nodes: int
    decode_groups: int
    decode_group_size: int
    decode_per_node: int


def record(**kinds: str) -> np.dtype[np.void]:
    """A record type of named fields: for each kind of number the names that have it, in their order."""
    return np.dtype([(name, kind) for kind, names in kinds.items() for name in names.split()])


COUNT = record(
    i8="queued arrived admitted done records samples events waiting prefilling decoding under_way asleep passes "
    "turn_prefill turn_decode turn_side turn_group prefill_open decode_open"
)
"""``queued``: events in the heap. ``turn_*``: whose turn it is, in round robin. ``*_open``: groups of a cluster that
get turns; they come first among its groups."""

TOTAL = record(
    f8="now horizon last_done backend_free working_set peak_working_set sample_every next_sample under_way_time "
    "under_way_since work_max work_mean read_bytes written_bytes hit_bytes decode_read_bytes computed_tokens "
    "generated_tokens"
)

SPAN = record(f8="arrival admitted done")
"""A row an agent."""

AGENT = record(
    f8="ready fetched started readable joined first decoding left cost needs held share",
    i4="turn end_turn next prefill_engine decode_engine last_chunk buffer_side stored",
)
"""A row an agent, two lines of the processor's cache. ``left``: tokens to compute; ``cost``: their work [s]; ``needs``
and ``held``: KV on the decode and prefill engine [B]; ``share``: of the read, what the decode side does."""

SECOND_LINE = "cost"
"""A field of AGENT in the second line of the processor's cache."""

MARK = record(f8="at", i4="left right")
"""A row an agent: where the clock of its decode group stands when its turn ends, and its children in the heap."""

TURN = record(f8="context append generated think")
GROUP = record(
    f8="load last next_at busy busy_until tokens", i8="queue queue_tail pending pending_tail activity polls starved"
)
"""Prefill groups. ``last``: the boundary before; ``tokens``: of the running pass; ``starved``: 1 where the next turn
waits for room elsewhere."""

POOL = record(f8="clock since step queued tokens busy cache", i8="root size")
"""Decode groups. ``queued``: time of the completion that is in the heap of events; ``root``: of the heap of marks;
``cache``: what the cache of all turns adds to a step [s]."""

ENGINE = record(f8="load room work attention marked")
"""Prefill engines. ``load``: unfinished work [s]; ``work``, ``attention``: in the running pass [s]; ``marked``: load at
the start of the fetch."""

DECODER = record(f8="tokens sequences room")
NIC = record(f8="free_at busy rate time")
NODE = record(f8="held peak size read_queue", i8="first_nic end_nic")
"""Host buffer of a node [B], and the mean time until its storage NICs are free [s]."""

MOVED = record(f8="hit miss append generated")
"""Bytes of turns: a row for what the prefill side of a node's turns read, and one for the decode side."""

EVENT = record(f8="time", i8="item")
RECORD = record(f4="scheduling allocation read prefill ttst tpot", f8="time", i8="turn")
"""A row a turn that has ended: its durations, and when it ended."""

SAMPLE = np.dtype(
    [
        *record(
            f8="time waiting prefilling decoding turns working_set read unadmitted prefill_nic decode_nic passes "
            "prefill_buffer decode_buffer prefill_hbm decode_hbm prefill_open decode_open"
        ).descr,
        ("prefill_moved", "f8", 8),
        ("decode_moved", "f8", 8),
    ]
)
"""Counts, what is held [B], and sums since the start of the run; ``*_moved``: the two rows of MOVED of all nodes."""


class State(NamedTuple):
    """All tables of a run.

    ``attention`` and ``cache`` are curves of the service times: a row of slopes and one of spans. ``detail`` has a row
    a sample of what each storage NIC, prefill group, decode group and node has done so far; it has no columns where
    there are too many of them.
    """

    setting: Setting
    count: Record
    total: Record
    span: Table
    agent: Table
    mark: Table
    turns: Table
    attention: Floats
    cache: Floats
    group: Table
    pool: Table
    engine: Table
    decoder: Table
    nic: Table
    node: Table
    moved: Table
    event: Table
    record: Table
    sample: Table
    detail: Floats


TABLES = {
    "span": SPAN,
    "agent": AGENT,
    "mark": MARK,
    "turns": TURN,
    "group": GROUP,
    "pool": POOL,
    "engine": ENGINE,
    "decoder": DECODER,
    "nic": NIC,
    "node": NODE,
    "moved": MOVED,
    "event": EVENT,
    "record": RECORD,
    "sample": SAMPLE,
}
"""The record type of each table of State."""
