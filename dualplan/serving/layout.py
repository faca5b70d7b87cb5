"""The arrays of a run and the names of their entries and columns.

``cluster`` lays them out, the kernel works on them, ``run`` states what they mean. Times in s, sizes in B.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ShortInts = npt.NDArray[np.int32]

# entries of State.number: settings that do not change
BLOCK, KV_BYTES, STATE_BYTES, PASS_BASE, PASS_IDLE = 0, 1, 2, 3, 4
PER_REQUEST, PER_TOKEN, PER_CONTEXT, ATTENTION_FIXED, QUOTA = 5, 6, 7, 8, 9
READ_SHARE, BACKEND, HANDOVER, HANDOVER_RATE = 10, 11, 12, 13
DECODE_BASE, DECODE_SLOPE, DECODE_QUADRATIC = 14, 15, 16
ALPHA, BETA, HELD_SHARE, HORIZON, STEP_TOKENS, PREFILL_ROOM, DECODE_ROOM, CHUNK_TOKENS, RESIDENT = range(17, 26)
PER_TOKEN_HIDDEN, PER_TOKEN_LINK, PASS_EXPERTS, DECODE_EXPERTS, EXPERT_SHARE, EXPERT_RANKS, CACHE_FIXED = range(26, 33)
N_NUMBERS = 33

# entries of State.choice: how it is run; groups that are open come first among those of a cluster
MODE, PREFILL_POLICY, DECODE_POLICY, READ_POLICY, STAGING = 0, 1, 2, 3, 4
PREFILL_GROUPS, PREFILL_GROUP_SIZE, PREFILL_PER_NODE, PREFILL_NICS, PREFILL_OPEN = 5, 6, 7, 8, 9
DECODE_GROUPS, DECODE_GROUP_SIZE, DECODE_PER_NODE, DECODE_NICS, DECODE_OPEN = 10, 11, 12, 13, 14
CLUSTERS, MAX_ACTIVE = 15, 16
N_CHOICES = 17
ORACLE, ONE_SIDE, BOTH_SIDES, SPLIT = 0, 1, 2, 3
HOST, GPUDIRECT, GDS = 0, 1, 2

# entries of State.counter
N_HEAP, N_ARRIVED, N_ADMITTED, N_DONE, N_RECORDS, N_SAMPLES, N_EVENTS, N_WAITING = 0, 1, 2, 3, 4, 5, 6, 7
N_PREFILLING, N_DECODING, TURN_PREFILL, TURN_DECODE, TURN_SIDE, TURN_GROUP, N_PASSES = 8, 9, 10, 11, 12, 13, 14
N_UNDER_WAY, N_ASLEEP = 15, 16
N_COUNTS = 17

# entries of State.total
NOW, LAST_DONE, BACKEND_FREE, WORKING_SET, PEAK_WORKING_SET, SAMPLE_EVERY, NEXT_SAMPLE = 0, 1, 2, 3, 4, 5, 6
UNDER_WAY_TIME, UNDER_WAY_SINCE, WORK_MAX, WORK_MEAN, READ_BYTES, WRITTEN_BYTES = 7, 8, 9, 10, 11, 12
COMPUTED_TOKENS, GENERATED_TOKENS, HIT_BYTES, DECODE_READ_BYTES = 13, 14, 15, 16
N_TOTALS = 17

# columns of State.agent (times in s) and State.agent_index; State.mark and State.child are the heaps of decode groups
READY, FETCHED, STARTED, READABLE, JOINED, FIRST, DECODING, LEFT, COST, NEEDS, HELD, SHARE = range(12)
TURN, END_TURN, NEXT, PREFILL_ENGINE, DECODE_ENGINE, CHUNK, BUFFER_SIDE, STORED = range(8)
N_AGENT_FLOATS, N_AGENT_INTS = 12, 8
SECOND_LINE = 8
"""A column of State.agent in another line of the processor's cache than the first one."""
LEFT_CHILD, RIGHT_CHILD = 0, 1
# columns of State.group (prefill groups), State.group_index
LOAD, LAST, NEXT_AT, PASS_BUSY, PASS_END, PASS_TOKENS = range(6)
QUEUE, QUEUE_TAIL, PENDING, PENDING_TAIL, ACTIVE, POLLS, WANTS_ROOM = range(7)
IDLE, AWAKE, ASLEEP = 0, 1, 2
# columns of State.pool (decode groups), State.pool_index
CLOCK, SINCE, STEP, QUEUED, POOL_TOKENS, BUSY, POOL_CACHE = range(7)
ROOT, N_IN_POOL = 0, 1
# columns of State.engine (prefill) and State.decoder
P_LOAD, P_ROOM, P_WORK, P_ATTENTION, P_MARKED = range(5)
D_TOKENS, D_SEQUENCES, D_ROOM = range(3)
# columns of State.prefill_nic and State.decode_nic
FREE_AT, NIC_BUSY, NIC_RATE, NIC_TIME = range(4)
# columns of State.prefill_buffer and State.decode_buffer (a row a node)
HELD_BYTES, PEAK_BYTES, BUFFER_SIZE = range(3)
# columns of State.prefill_moved and State.decode_moved: bytes of turns by the side that read them, the second four for
# reads on the decode side
MOVED_HIT, MOVED_MISS, MOVED_APPEND, MOVED_GENERATED = range(4)
# columns of State.turns
CONTEXT, APPEND, GENERATED, THINK = range(4)
# columns of State.record (durations in s), State.record_time is when the turn ended
R_SCHEDULING, R_ALLOCATION, R_READ, R_PREFILL, R_TTST, R_TPOT = range(6)
# columns of State.sample: counts, what is held [B], and sums since the start of the run
S_TIME, S_WAITING, S_PREFILLING, S_DECODING, S_TURNS, S_WORKING_SET, S_READ, S_UNADMITTED = range(8)
S_PREFILL_NIC, S_DECODE_NIC, S_PASSES, S_PREFILL_BUFFER, S_DECODE_BUFFER, S_PREFILL_HBM, S_DECODE_HBM = range(8, 15)
S_PREFILL_OPEN, S_DECODE_OPEN, S_PREFILL_MOVED, S_DECODE_MOVED = 15, 16, 17, 25
N_SAMPLE_COLUMNS = 33

NONE = -1
TIE = 1e-6
"""Tokens by which a mark may be ahead of the clock and still be reached: far below one step."""

MOST_POLLS = 64
"""Passes without anything to do after which a group stops looking at every boundary and is woken."""

MOST_STEPS = 100_000
"""Idle passes that are summed up one by one."""


class State(NamedTuple):
    """All arrays of a run; entries and columns are named above.

    ``attention`` and ``cache`` are curves of the service times: a row of slopes and one of spans. ``detail`` has a row
    a sample of what each storage NIC, prefill group, decode group and node has done so far; it has no columns where
    there are too many of them.
    """

    number: Floats
    choice: Ints
    counter: Ints
    total: Floats
    arrival: Floats
    admitted: Floats
    done_at: Floats
    agent: Floats
    agent_index: ShortInts
    mark: Floats
    child: ShortInts
    turns: Floats
    attention: Floats
    cache: Floats
    group: Floats
    group_index: Ints
    pool: Floats
    pool_index: Ints
    engine: Floats
    decoder: Floats
    prefill_nic: Floats
    decode_nic: Floats
    prefill_queue: Floats
    prefill_buffer: Floats
    decode_buffer: Floats
    prefill_moved: Floats
    decode_moved: Floats
    heap_time: Floats
    heap_item: Ints
    record: npt.NDArray[np.float32]
    record_time: Floats
    record_turn: Ints
    sample: Floats
    detail: Floats
