"""The inner loop of the simulation, as plain functions over arrays.

Every function here runs as ordinary Python; ``compiled`` gives the same functions through Numba, with the same
results to the last bit. Nothing in this file knows records, names or units of people: ``cluster`` lays the arrays
out, ``run`` states what they mean.

Time goes from event to event, three kinds of them in one heap: a boundary between two passes of a prefill group, the
start of the decode of a turn (also the return of an agent from a tool), and the next completion in a decode group.

* A *prefill group* is the engines that meet in every layer (an expert-parallel group; one engine for dense models).
  It runs synchronised passes back to back. At a boundary it ends the running pass, fetches waiting requests (places
  them on a prefill and a decode engine, reserves memory on both and issues the read), and starts the next pass with
  what was fetched at an earlier boundary and has been read since. A pass takes its base plus the work of its slowest
  engine. An idle group passes boundaries too, ``idle`` seconds apart; they are not simulated one by one.
* A storage NIC serves reads in the order of issue, so the end of a read is known when it is issued. The time per read
  stands for its blocks: each side of a split read takes its share of it, as in the steady model.
* A *decode group* is the engines that step together. Its clock counts the steps since the start; a turn ends when
  the clock reaches its mark.

A turn of an agent is under way in one place at a time, so lists are links between agents.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualplan.schedule import placement
from dualplan.schedule.placement import (
    decode_by_threshold,
    in_turn,
    least_tokens,
    prefill_three_classes,
    shorter_queue,
    split_shares,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# entries of State.number: settings that do not change
BLOCK, KV_BYTES, STATE_BYTES, PASS_BASE, PASS_IDLE = 0, 1, 2, 3, 4
PER_REQUEST, PER_TOKEN, PER_CONTEXT, PER_TOKEN_CONTEXT, QUOTA = 5, 6, 7, 8, 9
PREFILL_NIC, DECODE_NIC, TIME_PER_READ, BACKEND = 10, 11, 12, 13
DECODE_BASE, DECODE_SLOPE, DECODE_QUADRATIC = 14, 15, 16
HANDOVER, HANDOVER_RATE, ALPHA, BETA, HELD_SHARE = 17, 18, 19, 20, 21
HORIZON, STEP_TOKENS, PREFILL_ROOM, CHUNK_TOKENS = 22, 23, 24, 25
N_NUMBERS = 26

# entries of State.choice: how it is run
MODE, PREFILL_POLICY, DECODE_POLICY, READ_POLICY = 0, 1, 2, 3
PREFILL_GROUPS, PREFILL_GROUP_SIZE, PREFILL_PER_NODE, PREFILL_NICS = 4, 5, 6, 7
DECODE_GROUPS, DECODE_GROUP_SIZE, DECODE_PER_NODE, DECODE_NICS = 8, 9, 10, 11
N_CHOICES = 12
ORACLE, ONE_SIDE, BOTH_SIDES, SPLIT = 0, 1, 2, 3

# entries of State.counter
N_HEAP, N_ARRIVED, N_DONE, N_RECORDS, N_SAMPLES, N_EVENTS, N_WAITING = 0, 1, 2, 3, 4, 5, 6
N_PREFILLING, N_DECODING, TURN_PREFILL, TURN_DECODE, TURN_SIDE, TURN_GROUP, N_PASSES = 7, 8, 9, 10, 11, 12, 13
STOPPED, N_UNDER_WAY = 14, 15
N_COUNTS = 16

# entries of State.total
NOW, LAST_DONE, BACKEND_FREE, WORKING_SET, PEAK_WORKING_SET, SAMPLE_EVERY, NEXT_SAMPLE = 0, 1, 2, 3, 4, 5, 6
UNDER_WAY_TIME, UNDER_WAY_SINCE, WORK_MAX, WORK_MEAN, PASS_TIME, READ_BYTES, WRITTEN_BYTES = 7, 8, 9, 10, 11, 12, 13
COMPUTED_TOKENS, GENERATED_TOKENS, HIT_BYTES, DECODE_READ_BYTES = 14, 15, 16, 17
N_TOTALS = 18

# columns of State.agent (times in s) and State.agent_index
READY, FETCHED, STARTED, READABLE, JOINED, FIRST, DECODING, MARK, LEFT, COST, NEEDS, HELD, DONE_AT = range(13)
TURN, END_TURN, NEXT, LEFT_CHILD, RIGHT_CHILD, PREFILL_ENGINE, DECODE_ENGINE, CHUNK, BUFFER_SIDE = range(9)
# columns of State.group (prefill groups), State.group_index
LOAD, LAST = 0, 1
QUEUE, QUEUE_TAIL, PENDING, PENDING_TAIL, ACTIVE = range(5)
# columns of State.pool (decode groups), State.pool_index
CLOCK, SINCE, STEP, QUEUED, POOL_TOKENS, BUSY = 0, 1, 2, 3, 4, 5
ROOT, N_IN_POOL = 0, 1
# columns of State.engine (prefill) and State.decoder
P_LOAD, P_ROOM, P_WORK, P_ATTENTION, P_MARKED = range(5)
D_TOKENS, D_SEQUENCES, D_ROOM = range(3)
# columns of State.turns
CONTEXT, APPEND, GENERATED, THINK = range(4)
# columns of State.record (durations in s), State.record_time is when the turn ended
R_SCHEDULING, R_ALLOCATION, R_READ, R_PREFILL, R_TTST, R_TPOT = range(6)
# columns of State.sample
S_TIME, S_WAITING, S_PREFILLING, S_DECODING, S_TURNS, S_WORKING_SET, S_READ = range(7)

NONE = -1
TIE = 1e-6
"""Tokens by which a mark may be ahead of the clock and still be reached: far below one step."""


class State(NamedTuple):
    """All arrays of a run; entries and columns are named above."""

    number: Floats
    choice: Ints
    counter: Ints
    total: Floats
    arrival: Floats
    agent: Floats
    agent_index: Ints
    turns: Floats
    group: Floats
    group_index: Ints
    pool: Floats
    pool_index: Ints
    engine: Floats
    decoder: Floats
    prefill_nic: Floats
    decode_nic: Floats
    prefill_nic_busy: Floats
    decode_nic_busy: Floats
    prefill_queue: Floats
    prefill_buffer: Floats
    decode_buffer: Floats
    heap_time: Floats
    heap_item: Ints
    record: npt.NDArray[np.float32]
    record_time: Floats
    record_turn: Ints
    sample: Floats


# ---------------------------------------------------------------- heaps


def push(s: State, time: float, item: int) -> None:
    """Add an event. Items: 3*agent for a decode start or a return, 3*group + 1 a boundary, 3*pool + 2 a completion."""
    i = s.counter[N_HEAP]
    s.counter[N_HEAP] += 1
    while i > 0:
        parent = (i - 1) >> 1
        above = s.heap_time[parent]
        if above < time or (above == time and s.heap_item[parent] <= item):
            break
        s.heap_time[i] = above
        s.heap_item[i] = s.heap_item[parent]
        i = parent
    s.heap_time[i] = time
    s.heap_item[i] = item


def pop(s: State) -> int:
    """Remove the earliest event and return its item; of equal times the lowest item."""
    first = s.heap_item[0]
    s.counter[N_HEAP] -= 1
    n = s.counter[N_HEAP]
    time, item = s.heap_time[n], s.heap_item[n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        right = child + 1
        if right < n and (
            s.heap_time[right] < s.heap_time[child]
            or (s.heap_time[right] == s.heap_time[child] and s.heap_item[right] < s.heap_item[child])
        ):
            child = right
        below = s.heap_time[child]
        if time < below or (time == below and item <= s.heap_item[child]):
            break
        s.heap_time[i] = below
        s.heap_item[i] = s.heap_item[child]
        i = child
    s.heap_time[i] = time
    s.heap_item[i] = item
    return int(first)


def merge(s: State, a: int, b: int) -> int:
    """Merge two skew heaps of marks; returns the root."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if s.agent[b, MARK] < s.agent[a, MARK]:
        a, b = b, a
    root = a
    while True:
        # swap the children of a, then go on merging b into what is now its left child
        right = s.agent_index[a, RIGHT_CHILD]
        s.agent_index[a, RIGHT_CHILD] = s.agent_index[a, LEFT_CHILD]
        if right == NONE:
            s.agent_index[a, LEFT_CHILD] = b
            return root
        if s.agent[b, MARK] < s.agent[right, MARK]:
            right, b = b, right
        s.agent_index[a, LEFT_CHILD] = right
        a = right


# ---------------------------------------------------------------- turns


def sequence_bytes(s: State, turn: int) -> float:
    """KV of a sequence at the end of a turn [B]."""
    tokens = s.turns[turn, CONTEXT] + s.turns[turn, APPEND] + s.turns[turn, GENERATED]
    return float(tokens * s.number[KV_BYTES] + s.number[STATE_BYTES])


def hit(s: State, turn: int) -> float:
    """Tokens of the context that whole blocks cover."""
    block = s.number[BLOCK]
    return float(math.floor(s.turns[turn, CONTEXT] / block) * block)


def count_under_way(s: State, now: float, change: int) -> None:
    """Add to the turns under way and to their time integral."""
    s.total[UNDER_WAY_TIME] += s.counter[N_UNDER_WAY] * (now - s.total[UNDER_WAY_SINCE])
    s.total[UNDER_WAY_SINCE] = now
    s.counter[N_UNDER_WAY] += change


def begin_turn(s: State, a: int, now: float) -> None:
    """A turn is ready: it queues at the prefill group with the least predicted work."""
    turn = s.agent_index[a, TURN]
    s.agent[a, READY] = now
    old = hit(s, turn)
    new = s.turns[turn, CONTEXT] - old + s.turns[turn, APPEND]
    s.agent[a, LEFT] = new
    s.agent[a, COST] = chunk_work(s, old, new) + chunk_attention(s, old, new)
    groups = s.choice[PREFILL_GROUPS]
    best = 0
    if s.choice[PREFILL_POLICY] == 3:
        best = s.counter[TURN_GROUP] % groups
        s.counter[TURN_GROUP] += 1
    else:
        for p in range(1, groups):
            if s.group[p, LOAD] < s.group[best, LOAD]:
                best = p
    s.group[best, LOAD] += s.agent[a, COST]
    s.agent_index[a, NEXT] = NONE
    if s.group_index[best, QUEUE] == NONE:
        s.group_index[best, QUEUE] = a
    else:
        s.agent_index[s.group_index[best, QUEUE_TAIL], NEXT] = a
    s.group_index[best, QUEUE_TAIL] = a
    s.counter[N_WAITING] += 1
    count_under_way(s, now, 1)
    if s.group_index[best, ACTIVE] == 0:
        s.group_index[best, ACTIVE] = 1
        idle = s.number[PASS_IDLE]
        passed = math.ceil((now - s.group[best, LAST]) / idle) if idle > 0.0 else 0
        push(s, max(s.group[best, LAST] + passed * idle, now), 3 * best + 1)


def chunk_work(s: State, context: float, tokens: float) -> float:
    """Work of ``tokens`` new tokens of a request apart from attention [s]."""
    return float(s.number[PER_REQUEST] + s.number[PER_TOKEN] * tokens)


def chunk_attention(s: State, context: float, tokens: float) -> float:
    """Attention of ``tokens`` new tokens over ``context`` older ones [s]."""
    return float(s.number[PER_CONTEXT] * context + s.number[PER_TOKEN_CONTEXT] * tokens * (context + 0.5 * tokens))


def fitting_tokens(s: State, context: float, room: float) -> float:
    """New tokens whose attention over ``context`` takes at most ``room`` seconds, at least one block."""
    linear = s.number[PER_TOKEN_CONTEXT] * context
    quadratic = 0.5 * s.number[PER_TOKEN_CONTEXT]
    left = room - s.number[PER_CONTEXT] * context
    block = s.number[BLOCK]
    if left <= 0.0 or quadratic <= 0.0:
        return float(block)
    root = (math.sqrt(linear * linear + 4.0 * quadratic * left) - linear) / (2.0 * quadratic)
    return float(max(math.floor(root / block) * block, block))


# ---------------------------------------------------------------- prefill


def issue_read(s: State, a: int, now: float, size: float) -> None:
    """Choose the side of a read and queue it at a storage NIC; sets when it starts and when it ends."""
    mode = s.choice[MODE]
    s.agent[a, STARTED] = now
    s.agent[a, READABLE] = now
    s.agent_index[a, BUFFER_SIDE] = 0
    s.total[HIT_BYTES] += size
    if mode == ORACLE or size <= 0.0:
        return
    p_nic = earliest(
        s.prefill_nic, s.agent_index[a, PREFILL_ENGINE] // s.choice[PREFILL_PER_NODE], s.choice[PREFILL_NICS]
    )
    d_nic = earliest(s.decode_nic, s.agent_index[a, DECODE_ENGINE] // s.choice[DECODE_PER_NODE], s.choice[DECODE_NICS])
    share = 0.0
    if mode == SPLIT:
        seconds = size / s.number[PREFILL_NIC] + s.number[TIME_PER_READ]
        share = split_shares(now, s.prefill_nic[p_nic], s.decode_nic[d_nic], seconds)
    elif mode == BOTH_SIDES:
        side = 0
        if s.choice[READ_POLICY] == 0:
            side = shorter_queue(max(s.prefill_nic[p_nic], now), max(s.decode_nic[d_nic], now))
            if s.prefill_nic[p_nic] <= now and s.decode_nic[d_nic] <= now:
                # both idle: the one that has been idle longer
                side = 0 if s.prefill_nic[p_nic] <= s.decode_nic[d_nic] else 1
        elif s.choice[READ_POLICY] == 1:
            side = s.counter[TURN_SIDE] % 2
            s.counter[TURN_SIDE] += 1
        share = float(side)
    started, end = math.inf, now
    if share < 1.0:
        took = (1.0 - share) * (size / s.number[PREFILL_NIC] + s.number[TIME_PER_READ])
        start = max(s.prefill_nic[p_nic], now)
        s.prefill_nic[p_nic] = start + took
        s.prefill_nic_busy[p_nic] += took
        started, end = start, start + took
    if share > 0.0:
        took = share * (size / s.number[DECODE_NIC] + s.number[TIME_PER_READ])
        start = max(s.decode_nic[d_nic], now)
        s.decode_nic[d_nic] = start + took
        s.decode_nic_busy[d_nic] += took
        s.total[DECODE_READ_BYTES] += share * size
        started, end = min(started, start), max(end, start + took)
        s.agent_index[a, BUFFER_SIDE] = 1 if share >= 1.0 else 0
    if s.number[BACKEND] > 0.0:
        s.total[BACKEND_FREE] = max(s.total[BACKEND_FREE], now) + size / s.number[BACKEND]
        end = max(end, s.total[BACKEND_FREE])
    s.agent[a, STARTED] = started
    s.agent[a, READABLE] = end
    s.total[READ_BYTES] += size


def earliest(free: Floats, node: int, per_node: int) -> int:
    """The storage NIC of a node that is free first."""
    best = node * per_node
    for nic in range(best + 1, (node + 1) * per_node):
        if free[nic] < free[best]:
            best = nic
    return int(best)


def place_prefill(s: State, a: int, p: int, now: float, need: float) -> int:
    """A prefill engine of a group for a request, or -1."""
    size = s.choice[PREFILL_GROUP_SIZE]
    first, end = p * size, (p + 1) * size
    policy = s.choice[PREFILL_POLICY]
    load, room = s.engine[:, P_LOAD], s.engine[:, P_ROOM]
    if policy == 3:
        return in_turn(s.counter[TURN_PREFILL], room, first, end, need)
    if policy == 2:
        return least_tokens(load, room, first, end, need)
    per_node, nics = s.choice[PREFILL_PER_NODE], s.choice[PREFILL_NICS]
    for node in range(first // per_node, (end - 1) // per_node + 1):
        waits = 0.0
        for nic in range(node * nics, (node + 1) * nics):
            waits += max(s.prefill_nic[nic] - now, 0.0)
        s.prefill_queue[node] = waits / nics
    marked = s.engine[:, P_MARKED] if policy == 1 else load
    return prefill_three_classes(
        load, marked, room, s.prefill_queue, per_node, first, end, need, s.number[ALPHA], s.number[BETA]
    )


def place_decode(s: State, length: float, need: float) -> int:
    """A decode engine: of the group with the fewest tokens on it, one by the policy; -1 if none has room."""
    best = 0
    for d in range(1, s.choice[DECODE_GROUPS]):
        if s.pool[d, POOL_TOKENS] < s.pool[best, POOL_TOKENS]:
            best = d
    size = s.choice[DECODE_GROUP_SIZE]
    first, end = best * size, (best + 1) * size
    tokens, room = s.decoder[:, D_TOKENS], s.decoder[:, D_ROOM]
    policy = s.choice[DECODE_POLICY]
    if policy == 2:
        return in_turn(s.counter[TURN_DECODE], room, first, end, need)
    if policy == 1:
        return least_tokens(tokens, room, first, end, need)
    total = s.pool[best, POOL_TOKENS]
    return decode_by_threshold(tokens, s.decoder[:, D_SEQUENCES], room, total, first, end, length, need)


def fetch(s: State, p: int, now: float) -> None:
    """Take requests from the queue of a group in their order, as long as there is room for the first of them."""
    size = s.choice[PREFILL_GROUP_SIZE]
    for e in range(p * size, (p + 1) * size):
        s.engine[e, P_MARKED] = s.engine[e, P_LOAD]
    while s.group_index[p, QUEUE] != NONE:
        a = s.group_index[p, QUEUE]
        turn = s.agent_index[a, TURN]
        length = s.turns[turn, CONTEXT] + s.turns[turn, APPEND] + s.turns[turn, GENERATED]
        whole = sequence_bytes(s, turn)
        before = whole - s.turns[turn, GENERATED] * s.number[KV_BYTES]
        held = min(before * s.number[HELD_SHARE], s.number[PREFILL_ROOM])
        # a byte of slack: sums of what was taken and given back round
        e = place_prefill(s, a, p, now, held - 1.0)
        if e < 0:
            break
        d = place_decode(s, length, whole - 1.0)
        if d < 0:
            break
        s.counter[TURN_PREFILL] += 1
        s.counter[TURN_DECODE] += 1
        s.group_index[p, QUEUE] = s.agent_index[a, NEXT]
        s.agent_index[a, NEXT] = NONE
        if s.group_index[p, PENDING] == NONE:
            s.group_index[p, PENDING] = a
        else:
            s.agent_index[s.group_index[p, PENDING_TAIL], NEXT] = a
        s.group_index[p, PENDING_TAIL] = a
        s.agent_index[a, PREFILL_ENGINE] = e
        s.agent_index[a, DECODE_ENGINE] = d
        s.agent_index[a, CHUNK] = 0
        s.agent[a, FETCHED] = now
        s.agent[a, JOINED] = -1.0
        s.agent[a, NEEDS] = whole
        s.agent[a, HELD] = held
        s.engine[e, P_LOAD] += s.agent[a, COST]
        s.engine[e, P_ROOM] -= held
        s.decoder[d, D_TOKENS] += length
        s.decoder[d, D_SEQUENCES] += 1.0
        s.decoder[d, D_ROOM] -= whole
        s.pool[d // s.choice[DECODE_GROUP_SIZE], POOL_TOKENS] += length
        s.counter[N_WAITING] -= 1
        s.counter[N_PREFILLING] += 1
        old = hit(s, turn)
        loaded = old * s.number[KV_BYTES] + (s.number[STATE_BYTES] if old > 0.0 else 0.0)
        issue_read(s, a, now, loaded)
        if s.choice[MODE] != ORACLE:
            if s.agent_index[a, BUFFER_SIDE] == 0:
                hold(s.prefill_buffer, e // s.choice[PREFILL_PER_NODE], loaded)
            else:
                hold(s.decode_buffer, d // s.choice[DECODE_PER_NODE], before)


def hold(buffer: Floats, node: int, size: float) -> None:
    """Take bytes of a host buffer and keep its peak."""
    buffer[node, 0] += size
    buffer[node, 1] = max(buffer[node, 1], buffer[node, 0])


def boundary(s: State, p: int, now: float) -> None:
    """End the running pass of a group, fetch, and start the next pass."""
    size = s.choice[PREFILL_GROUP_SIZE]
    first, end = p * size, (p + 1) * size
    for e in range(first, end):
        s.engine[e, P_WORK] = 0.0
        s.engine[e, P_ATTENTION] = 0.0
    before, a = NONE, s.group_index[p, PENDING]
    while a != NONE:
        following = s.agent_index[a, NEXT]
        chunk = s.agent_index[a, CHUNK]
        if chunk == 1:
            # its last chunk was in the pass that ends now
            if before == NONE:
                s.group_index[p, PENDING] = following
            else:
                s.agent_index[before, NEXT] = following
            if following == NONE:
                s.group_index[p, PENDING_TAIL] = before
            first_token(s, a, now)
        else:
            if s.agent[a, READABLE] <= now:
                join(s, a, now)
            before = a
        a = following
    slowest, attention, heaviest = 0.0, 0.0, 0.0
    for e in range(first, end):
        slowest = max(slowest, s.engine[e, P_WORK] + s.engine[e, P_ATTENTION])
        attention += s.engine[e, P_ATTENTION]
        heaviest = max(heaviest, s.engine[e, P_ATTENTION])
    fetch(s, p, now)
    s.group[p, LAST] = now
    if s.group_index[p, PENDING] == NONE and s.group_index[p, QUEUE] == NONE:
        s.group_index[p, ACTIVE] = 0
        return
    took = max(s.number[PASS_BASE] + slowest, s.number[PASS_IDLE])
    if slowest > 0.0:
        s.counter[N_PASSES] += 1
        s.total[PASS_TIME] += took
        s.total[WORK_MAX] += heaviest
        s.total[WORK_MEAN] += attention / size
    push(s, now + took, 3 * p + 1)


def join(s: State, a: int, now: float) -> None:
    """Put a request into the pass that starts, as far as its chunk and the attention quota of its engine allow."""
    e = s.agent_index[a, PREFILL_ENGINE]
    turn = s.agent_index[a, TURN]
    left = s.agent[a, LEFT]
    old = s.turns[turn, CONTEXT] + s.turns[turn, APPEND] - left
    room = s.number[QUOTA] - s.engine[e, P_ATTENTION]
    tokens = min(left, s.number[CHUNK_TOKENS])
    if chunk_attention(s, old, tokens) > room:
        if s.engine[e, P_ATTENTION] > 0.0 and chunk_attention(s, old, s.number[BLOCK]) > room:
            return
        tokens = min(fitting_tokens(s, old, room), tokens)
    s.engine[e, P_WORK] += chunk_work(s, old, tokens)
    s.engine[e, P_ATTENTION] += chunk_attention(s, old, tokens)
    s.agent[a, LEFT] = left - tokens
    # placement levels the passes to come, each by itself: what has joined a pass no longer counts
    share = s.agent[a, COST] * min(tokens / left, 1.0) if left > 0.0 else s.agent[a, COST]
    s.agent[a, COST] -= share
    s.engine[e, P_LOAD] -= share
    s.group[e // s.choice[PREFILL_GROUP_SIZE], LOAD] -= share
    s.total[COMPUTED_TOKENS] += tokens
    if s.agent[a, JOINED] < 0.0:
        s.agent[a, JOINED] = now
        if s.choice[MODE] != ORACLE and s.agent_index[a, BUFFER_SIDE] == 0:
            # layer by layer the KV of the turn goes to the decode side, which has it already if it read the prefix
            whole = s.agent[a, NEEDS] - s.turns[turn, GENERATED] * s.number[KV_BYTES]
            hold(s.decode_buffer, s.agent_index[a, DECODE_ENGINE] // s.choice[DECODE_PER_NODE], whole)
    if tokens >= left:
        s.agent_index[a, CHUNK] = 1


def first_token(s: State, a: int, now: float) -> None:
    """Prefill of a turn is done: its first token is out, its KV goes to the decode engine."""
    e, d = s.agent_index[a, PREFILL_ENGINE], s.agent_index[a, DECODE_ENGINE]
    s.agent[a, FIRST] = now
    s.engine[e, P_ROOM] += s.agent[a, HELD]
    s.counter[N_PREFILLING] -= 1
    turn = s.agent_index[a, TURN]
    wait = s.number[HANDOVER]
    if s.choice[MODE] != ORACLE:
        old = hit(s, turn)
        loaded = old * s.number[KV_BYTES] + (s.number[STATE_BYTES] if old > 0.0 else 0.0)
        if s.agent_index[a, BUFFER_SIDE] == 0:
            s.prefill_buffer[e // s.choice[PREFILL_PER_NODE], 0] -= loaded
        whole = s.agent[a, NEEDS] - s.turns[turn, GENERATED] * s.number[KV_BYTES]
        s.decode_buffer[d // s.choice[DECODE_PER_NODE], 0] -= whole
        wait += whole / s.number[HANDOVER_RATE]
    if s.turns[turn, GENERATED] <= 1.0:
        s.agent[a, DECODING] = now
        end_turn(s, a, now, 0.0)
    else:
        push(s, now + wait, 3 * a)


# ---------------------------------------------------------------- decode


def step_time(s: State, batch: float) -> float:
    """Time of a step of engines that hold ``batch`` sequences each on average [s]."""
    return float(s.number[DECODE_BASE] + s.number[DECODE_SLOPE] * batch + s.number[DECODE_QUADRATIC] * batch * batch)


def advance_pool(s: State, d: int, now: float) -> None:
    """Bring the clock of a decode group up to now."""
    if s.pool_index[d, N_IN_POOL] > 0:
        s.pool[d, CLOCK] += (now - s.pool[d, SINCE]) / s.pool[d, STEP]
        s.pool[d, BUSY] += s.pool_index[d, N_IN_POOL] * (now - s.pool[d, SINCE])
    s.pool[d, SINCE] = now


def expect(s: State, d: int, now: float) -> None:
    """Set the step time of a decode group and see to it that its next completion is in the heap."""
    n = s.pool_index[d, N_IN_POOL]
    if n == 0:
        return
    s.pool[d, STEP] = step_time(s, n / s.choice[DECODE_GROUP_SIZE])
    wait = max(s.agent[s.pool_index[d, ROOT], MARK] - s.pool[d, CLOCK], 0.0) * s.pool[d, STEP]
    if now + wait < s.pool[d, QUEUED]:
        s.pool[d, QUEUED] = now + wait
        push(s, now + wait, 3 * d + 2)


def start_decode(s: State, a: int, now: float) -> None:
    """A turn enters the continuous batch of its decode group."""
    d = s.agent_index[a, DECODE_ENGINE] // s.choice[DECODE_GROUP_SIZE]
    advance_pool(s, d, now)
    s.agent[a, DECODING] = now
    steps = (s.turns[s.agent_index[a, TURN], GENERATED] - 1.0) / s.number[STEP_TOKENS]
    s.agent[a, MARK] = s.pool[d, CLOCK] + steps
    s.agent_index[a, LEFT_CHILD] = NONE
    s.agent_index[a, RIGHT_CHILD] = NONE
    s.pool_index[d, ROOT] = merge(s, s.pool_index[d, ROOT], a)
    s.pool_index[d, N_IN_POOL] += 1
    s.counter[N_DECODING] += 1
    expect(s, d, now)


def complete(s: State, d: int, now: float) -> None:
    """End the turns of a decode group whose marks the clock has reached."""
    if s.pool[d, QUEUED] <= now:
        s.pool[d, QUEUED] = math.inf
    advance_pool(s, d, now)
    step = s.pool[d, STEP]
    while s.pool_index[d, N_IN_POOL] > 0:
        a = s.pool_index[d, ROOT]
        if s.agent[a, MARK] > s.pool[d, CLOCK] + TIE:
            break
        s.pool_index[d, ROOT] = merge(s, s.agent_index[a, LEFT_CHILD], s.agent_index[a, RIGHT_CHILD])
        s.pool_index[d, N_IN_POOL] -= 1
        s.counter[N_DECODING] -= 1
        end_turn(s, a, now, step)
    expect(s, d, now)


def end_turn(s: State, a: int, now: float, step: float) -> None:
    """Free what a turn held, record it, and go on to the next turn of the agent."""
    turn = s.agent_index[a, TURN]
    d = s.agent_index[a, DECODE_ENGINE]
    generated = s.turns[turn, GENERATED]
    length = s.turns[turn, CONTEXT] + s.turns[turn, APPEND] + generated
    s.decoder[d, D_TOKENS] -= length
    s.decoder[d, D_SEQUENCES] -= 1.0
    s.decoder[d, D_ROOM] += s.agent[a, NEEDS]
    s.pool[d // s.choice[DECODE_GROUP_SIZE], POOL_TOKENS] -= length
    count_under_way(s, now, -1)
    k = s.counter[N_RECORDS]
    if k < len(s.record_time):
        s.record[k, R_SCHEDULING] = s.agent[a, FETCHED] - s.agent[a, READY]
        s.record[k, R_ALLOCATION] = s.agent[a, STARTED] - s.agent[a, FETCHED]
        s.record[k, R_READ] = s.agent[a, JOINED] - s.agent[a, STARTED]
        s.record[k, R_PREFILL] = s.agent[a, FIRST] - s.agent[a, JOINED]
        s.record[k, R_TTST] = s.agent[a, DECODING] - s.agent[a, FIRST] + step
        s.record[k, R_TPOT] = (now - s.agent[a, DECODING]) / (generated - 1.0) if generated > 1.0 else 0.0
        s.record_time[k] = now
        s.record_turn[k] = turn
    s.counter[N_RECORDS] += 1
    s.total[GENERATED_TOKENS] += generated
    grown = s.turns[turn, APPEND] + generated
    s.total[WRITTEN_BYTES] += grown * s.number[KV_BYTES]
    s.total[WORKING_SET] += grown * s.number[KV_BYTES]
    s.total[PEAK_WORKING_SET] = max(s.total[PEAK_WORKING_SET], s.total[WORKING_SET])
    s.agent_index[a, TURN] = turn + 1
    if turn + 1 < s.agent_index[a, END_TURN]:
        think = s.turns[turn, THINK]
        if think > 0.0:
            s.agent[a, READY] = -1.0
            s.agent[a, FIRST] = -1.0
            push(s, now + think, 3 * a)
        else:
            begin_turn(s, a, now)
    else:
        s.total[WORKING_SET] -= length * s.number[KV_BYTES]
        s.agent[a, DONE_AT] = now
        s.counter[N_DONE] += 1
        s.total[LAST_DONE] = now


# ---------------------------------------------------------------- the run


def take_sample(s: State, time: float) -> None:
    """Note the state at a time; when the samples are full every second one goes and the interval doubles."""
    k = s.counter[N_SAMPLES]
    if k == len(s.sample):
        half = k // 2
        for i in range(half):
            for column in range(s.sample.shape[1]):
                s.sample[i, column] = s.sample[2 * i + 1, column]
        s.counter[N_SAMPLES] = k = half
        s.total[SAMPLE_EVERY] *= 2.0
    s.sample[k, S_TIME] = time
    s.sample[k, S_WAITING] = s.counter[N_WAITING]
    s.sample[k, S_PREFILLING] = s.counter[N_PREFILLING]
    s.sample[k, S_DECODING] = s.counter[N_DECODING]
    s.sample[k, S_TURNS] = s.counter[N_RECORDS]
    s.sample[k, S_WORKING_SET] = s.total[WORKING_SET]
    s.sample[k, S_READ] = s.total[READ_BYTES]
    s.counter[N_SAMPLES] = k + 1
    s.total[NEXT_SAMPLE] = time + s.total[SAMPLE_EVERY]


def run(s: State, budget: int) -> bool:
    """Run up to ``budget`` events; True when nothing is left to do before the horizon."""
    agents = len(s.arrival)
    enough = s.counter[N_EVENTS] + budget
    while s.counter[N_EVENTS] < enough:
        arrived = s.counter[N_ARRIVED]
        arrives = s.arrival[arrived] if arrived < agents else math.inf
        now = min(arrives, s.heap_time[0] if s.counter[N_HEAP] > 0 else math.inf)
        if now > s.number[HORIZON] or now == math.inf:
            if s.number[HORIZON] < math.inf:
                count_under_way(s, s.number[HORIZON], 0)
                s.total[NOW] = s.number[HORIZON]
            return True
        while s.total[NEXT_SAMPLE] <= now:
            take_sample(s, s.total[NEXT_SAMPLE])
        s.total[NOW] = now
        s.counter[N_EVENTS] += 1
        if arrives <= now:
            s.counter[N_ARRIVED] += 1
            begin_turn(s, arrived, now)
            continue
        item = pop(s)
        kind, number = item % 3, item // 3
        if kind == 1:
            boundary(s, number, now)
        elif kind == 2:
            complete(s, number, now)
        elif s.agent[number, FIRST] < 0.0:
            begin_turn(s, number, now)
        else:
            start_decode(s, number, now)
    return False


PLAIN = SimpleNamespace(run=run)

_POLICIES = (prefill_three_classes, least_tokens, in_turn, decode_by_threshold, shorter_queue, split_shares)
_PARTS: tuple[Callable[..., Any], ...] = (
    *_POLICIES,
    push,
    pop,
    merge,
    sequence_bytes,
    hit,
    count_under_way,
    chunk_work,
    chunk_attention,
    fitting_tokens,
    begin_turn,
    earliest,
    issue_read,
    place_prefill,
    place_decode,
    hold,
    fetch,
    step_time,
    advance_pool,
    expect,
    start_decode,
    end_turn,
    first_token,
    join,
    boundary,
    complete,
    take_sample,
)


@functools.cache
def compiled() -> SimpleNamespace | None:
    """The kernel through Numba, or None where Numba cannot be imported.

    Machine code is kept in Numba's cache; a cache that cannot be read or written must not stop a run, so any failure
    with it means compiling in memory.
    """
    try:
        import numba
    except ImportError:
        return None
    try:
        return _compile(numba, cache=True)
    except Exception:
        return _compile(numba, cache=False)


def _compile(numba: Any, cache: bool) -> SimpleNamespace:
    floats, table = numba.float64[::1], numba.float64[:, ::1]
    ints, indices = numba.int64[::1], numba.int64[:, ::1]
    tables = {"agent", "turns", "group", "pool", "engine", "decoder", "prefill_buffer", "decode_buffer", "sample"}
    vectors = {"choice", "counter", "heap_item", "record_turn"}
    fields = [
        numba.float32[:, ::1]
        if name == "record"
        else table
        if name in tables
        else indices
        if name.endswith("_index")
        else ints
        if name in vectors
        else floats
        for name in State._fields
    ]
    state = numba.types.NamedTuple(fields, State)
    # Numba knows a cached function by file, name and line, and does not see changes in what it calls in other files
    digest = hashlib.sha256(inspect.getsource(placement).encode()).hexdigest()[:12]
    namespace: dict[str, Any] = dict(globals())

    def build(function: Callable[..., Any], *signature: Any, **options: Any) -> Any:
        assert isinstance(function, FunctionType)
        copy = FunctionType(function.__code__, namespace, function.__name__)
        copy.__qualname__ = f"{function.__name__}_{digest}"
        copy.__module__ = __name__
        # no array is made or kept inside, so references need not be counted, which would take half of the time
        made = numba.njit(*signature, nogil=True, _nrt=False, error_model="numpy", **options)(copy)
        namespace[function.__name__] = made
        return made

    for part in _PARTS:
        build(part)
    return SimpleNamespace(run=build(run, numba.boolean(state, numba.int64), cache=cache))
