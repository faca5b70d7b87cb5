"""Decode groups: placement, the shared clock of their steps, and the end of turns."""

from __future__ import annotations

import math

from dualplan.model.service_times import on_curve, step_time, touched
from dualplan.serving.events import mark_ahead, merge, push, turn_ahead
from dualplan.serving.layout import (
    APPEND,
    BUSY,
    CACHE_FIXED,
    CLOCK,
    CLUSTERS,
    CONTEXT,
    D_ROOM,
    D_SEQUENCES,
    D_TOKENS,
    DECODE_BASE,
    DECODE_ENGINE,
    DECODE_EXPERTS,
    DECODE_GROUP_SIZE,
    DECODE_GROUPS,
    DECODE_OPEN,
    DECODE_PER_NODE,
    DECODE_POLICY,
    DECODE_QUADRATIC,
    DECODE_SLOPE,
    DECODING,
    END_TURN,
    EXPERT_RANKS,
    EXPERT_SHARE,
    FETCHED,
    FIRST,
    GENERATED,
    GENERATED_TOKENS,
    JOINED,
    KV_BYTES,
    LAST_DONE,
    LEFT_CHILD,
    MOVED_GENERATED,
    N_DECODING,
    N_DONE,
    N_IN_POOL,
    N_RECORDS,
    NEEDS,
    NONE,
    PEAK_WORKING_SET,
    POOL_CACHE,
    POOL_TOKENS,
    QUEUED,
    R_ALLOCATION,
    R_PREFILL,
    R_READ,
    R_SCHEDULING,
    R_TPOT,
    R_TTST,
    READY,
    RIGHT_CHILD,
    ROOT,
    SHARE,
    SINCE,
    STARTED,
    STATE_BYTES,
    STEP,
    STEP_TOKENS,
    STORED,
    THINK,
    TIE,
    TURN,
    TURN_DECODE,
    WORKING_SET,
    WRITTEN_BYTES,
    State,
)
from dualplan.serving.placement import decode_by_threshold, in_turn, least_tokens
from dualplan.serving.turns import admit, begin_turn, count_under_way, room_freed


def place_decode(s: State, a: int, length: float, need: float) -> int:
    """A decode engine: of the group with the fewest tokens on it, one by the policy; -1 if none has room."""
    clusters = s.choice[CLUSTERS]
    best = a % clusters * (s.choice[DECODE_GROUPS] // clusters)
    for d in range(best + 1, best + s.choice[DECODE_OPEN]):
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


def cache_time(s: State, turn: int) -> float:
    """What the cache of a turn adds to each step of its engine, at half of its generation [s]."""
    context = s.turns[turn, CONTEXT] + s.turns[turn, APPEND] + 0.5 * s.turns[turn, GENERATED]
    return float(on_curve(s.number[CACHE_FIXED], s.cache[0], s.cache[1], 1.0, context))


def group_step(s: State, d: int) -> float:
    """Time of a step of a decode group [s]: its engines step together, each with the mean of what they hold."""
    size = s.choice[DECODE_GROUP_SIZE]
    batch = s.pool_index[d, N_IN_POOL] / size
    experts = s.number[DECODE_EXPERTS] * touched(s.number[EXPERT_SHARE], batch * s.number[EXPERT_RANKS])
    base, slope, quadratic = s.number[DECODE_BASE], s.number[DECODE_SLOPE], s.number[DECODE_QUADRATIC]
    return float(step_time(base, slope, quadratic, batch, experts, s.pool[d, POOL_CACHE] / size))


def advance_pool(s: State, d: int, now: float) -> None:
    """Bring the clock of a decode group up to now."""
    if s.pool_index[d, N_IN_POOL] > 0:
        s.pool[d, CLOCK] += (now - s.pool[d, SINCE]) / s.pool[d, STEP]
        s.pool[d, BUSY] += s.pool_index[d, N_IN_POOL] * (now - s.pool[d, SINCE])
    s.pool[d, SINCE] = now


def expect(s: State, d: int, now: float) -> None:
    """Set the step time of a decode group and see to it that its next completion is in the heap."""
    if s.pool_index[d, N_IN_POOL] == 0:
        s.pool[d, POOL_CACHE] = 0.0  # what is left of sums that round
        return
    s.pool[d, STEP] = group_step(s, d)
    root = s.pool_index[d, ROOT]
    turn_ahead(s, root)
    mark_ahead(s, s.child[root, LEFT_CHILD])
    mark_ahead(s, s.child[root, RIGHT_CHILD])
    wait = max(s.mark[root] - s.pool[d, CLOCK], 0.0) * s.pool[d, STEP]
    if now + wait < s.pool[d, QUEUED]:
        s.pool[d, QUEUED] = now + wait
        push(s, now + wait, 3 * d + 2)


def start_decode(s: State, a: int, now: float) -> None:
    """A turn enters the continuous batch of its decode group."""
    d = s.agent_index[a, DECODE_ENGINE] // s.choice[DECODE_GROUP_SIZE]
    advance_pool(s, d, now)
    s.agent[a, DECODING] = now
    steps = (s.turns[s.agent_index[a, TURN], GENERATED] - 1.0) / s.number[STEP_TOKENS]
    s.mark[a] = s.pool[d, CLOCK] + steps
    s.child[a, LEFT_CHILD] = NONE
    s.child[a, RIGHT_CHILD] = NONE
    s.pool_index[d, ROOT] = merge(s, s.pool_index[d, ROOT], a)
    s.pool_index[d, N_IN_POOL] += 1
    s.pool[d, POOL_CACHE] += cache_time(s, s.agent_index[a, TURN])
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
        left = s.mark[a] - s.pool[d, CLOCK]
        # late in a long run what is left can be too short to move the time
        if s.mark[a] > s.pool[d, CLOCK] + TIE and now + left * step > now:
            break
        s.pool_index[d, ROOT] = merge(s, s.child[a, LEFT_CHILD], s.child[a, RIGHT_CHILD])
        s.pool_index[d, N_IN_POOL] -= 1
        s.pool[d, POOL_CACHE] -= cache_time(s, s.agent_index[a, TURN])
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
    room_freed(s, now)
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
    made = generated * s.number[KV_BYTES] + s.number[STATE_BYTES]
    node, share = d // s.choice[DECODE_PER_NODE], s.agent[a, SHARE]
    s.decode_moved[node, MOVED_GENERATED] += (1.0 - share) * made
    s.decode_moved[node, 4 + MOVED_GENERATED] += share * made
    s.total[WRITTEN_BYTES] += (s.turns[turn, APPEND] + generated) * s.number[KV_BYTES]
    s.total[WORKING_SET] += (length - s.agent_index[a, STORED]) * s.number[KV_BYTES]
    s.agent_index[a, STORED] = int(length)
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
        s.done_at[a] = now
        s.counter[N_DONE] += 1
        s.total[LAST_DONE] = now
        admit(s, now)
