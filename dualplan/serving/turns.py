"""What a turn is made of, and how it is queued at a prefill group."""

from __future__ import annotations

import math

from dualplan.model.service_times import attention_work, on_curve, seen, token_work
from dualplan.serving.events import push
from dualplan.serving.layout import (
    ACTIVE,
    APPEND,
    ASLEEP,
    ATTENTION_FIXED,
    AWAKE,
    BLOCK,
    CLUSTERS,
    CONTEXT,
    COST,
    FETCHED,
    GENERATED,
    IDLE,
    KV_BYTES,
    LAST,
    LEFT,
    LOAD,
    MAX_ACTIVE,
    MOST_STEPS,
    N_ADMITTED,
    N_ARRIVED,
    N_ASLEEP,
    N_DONE,
    N_UNDER_WAY,
    N_WAITING,
    NEXT,
    NEXT_AT,
    NONE,
    PASS_IDLE,
    PER_CONTEXT,
    PER_REQUEST,
    PER_TOKEN,
    PER_TOKEN_HIDDEN,
    PER_TOKEN_LINK,
    PREFILL_GROUPS,
    PREFILL_OPEN,
    PREFILL_POLICY,
    QUEUE,
    QUEUE_TAIL,
    READY,
    STATE_BYTES,
    TURN,
    TURN_GROUP,
    UNDER_WAY_SINCE,
    UNDER_WAY_TIME,
    WANTS_ROOM,
    State,
)


def sequence_bytes(s: State, turn: int) -> float:
    """KV of a sequence at the end of a turn [B]."""
    tokens = s.turns[turn, CONTEXT] + s.turns[turn, APPEND] + s.turns[turn, GENERATED]
    return float(tokens * s.number[KV_BYTES] + s.number[STATE_BYTES])


def hit(s: State, turn: int) -> float:
    """Tokens of the context that whole blocks cover."""
    block = s.number[BLOCK]
    return float(math.floor(s.turns[turn, CONTEXT] / block) * block)


def hit_bytes(s: State, turn: int) -> float:
    """KV of the reused prefix of a turn [B]."""
    old = hit(s, turn)
    return float(old * s.number[KV_BYTES] + (s.number[STATE_BYTES] if old > 0.0 else 0.0))


def chunk_work(s: State, tokens: float, attention: float) -> float:
    """Work of ``tokens`` new tokens of a request beside their attention [s]."""
    link = s.number[PER_TOKEN_LINK]
    return float(
        token_work(s.number[PER_REQUEST], s.number[PER_TOKEN], s.number[PER_TOKEN_HIDDEN], link, tokens, attention)
    )


def chunk_attention(s: State, context: float, tokens: float) -> float:
    """Attention of ``tokens`` new tokens over ``context`` older ones [s]."""
    by_pairs = on_curve(s.number[ATTENTION_FIXED], s.attention[0], s.attention[1], tokens, seen(tokens, context))
    return float(attention_work(s.number[PER_CONTEXT], by_pairs, context))


def fitting_tokens(s: State, context: float, room: float) -> float:
    """New tokens whose attention over ``context`` takes at most ``room`` seconds, at least one block.

    Between two spans attention is a quadratic in the tokens: ``quadratic * t^2 + linear * t``.
    """
    block, left = s.number[BLOCK], room - s.number[PER_CONTEXT] * context
    mid, tokens = context, 0.0
    while left > 0.0 and mid < math.inf:
        linear, quadratic, following = s.number[ATTENTION_FIXED], 0.0, math.inf
        for part in range(len(s.attention[0])):
            slope, span = s.attention[0, part], s.attention[1, part]
            if span > mid:
                linear += slope * context
                quadratic += 0.5 * slope
                following = min(following, span)
            else:
                linear += slope * span
        if quadratic > 0.0:
            tokens = (math.sqrt(linear * linear + 4.0 * quadratic * left) - linear) / (2.0 * quadratic)
        elif linear > 0.0:
            tokens = left / linear
        # beyond the next span attention rises less
        mid = following if seen(tokens, context) > following else math.inf
    return float(max(math.floor(tokens / block) * block, block))


def count_under_way(s: State, now: float, change: int) -> None:
    """Add to the turns under way and to their time integral."""
    s.total[UNDER_WAY_TIME] += s.counter[N_UNDER_WAY] * (now - s.total[UNDER_WAY_SINCE])
    s.total[UNDER_WAY_SINCE] = now
    s.counter[N_UNDER_WAY] += change


def next_boundary(s: State, p: int, time: float) -> float:
    """The first boundary at or after a time of a group that has nothing to do but wait [s].

    Times are summed up pass by pass, so that a group which sleeps finds the boundaries of one which does not; over
    very many passes they are multiplied.
    """
    idle, at = s.number[PASS_IDLE], s.group[p, LAST]
    if idle <= 0.0:
        return time
    if (time - at) / idle > MOST_STEPS:
        return float(max(at + math.ceil((time - at) / idle) * idle, time))
    while at < time:
        at += idle
    return float(at)


def wake(s: State, p: int, now: float) -> None:
    """Give a group that is idle or asleep its next boundary, a whole number of idle passes after the last one."""
    if s.group_index[p, ACTIVE] == ASLEEP:
        if s.group_index[p, WANTS_ROOM] == 1:
            s.counter[N_ASLEEP] -= 1
        at = next_boundary(s, p, now)
    else:
        s.group[p, NEXT_AT] = math.inf
        idle = s.number[PASS_IDLE]
        passed = math.ceil((now - s.group[p, LAST]) / idle) if idle > 0.0 else 0
        at = max(s.group[p, LAST] + passed * idle, now)
    s.group_index[p, ACTIVE] = AWAKE
    if at < s.group[p, NEXT_AT]:
        s.group[p, NEXT_AT] = at
        push(s, at, 3 * p + 1)


def room_freed(s: State, now: float) -> None:
    """Wake the groups that sleep because a decode engine or a host buffer was full, where that may have changed."""
    if s.counter[N_ASLEEP] > 0:
        for p in range(s.choice[PREFILL_GROUPS]):
            if s.group_index[p, ACTIVE] == ASLEEP and s.group_index[p, WANTS_ROOM] == 1:
                wake(s, p, now)


def begin_turn(s: State, a: int, now: float) -> None:
    """A turn is ready: it queues at the prefill group with the least predicted work."""
    s.agent[a, READY] = now
    count_under_way(s, now, 1)
    queue_turn(s, a, now)


def queue_turn(s: State, a: int, now: float) -> None:
    """Put a turn into the queue of a prefill group of its cluster that is open."""
    turn = s.agent_index[a, TURN]
    s.agent[a, FETCHED] = -1.0
    old = hit(s, turn)
    new = s.turns[turn, CONTEXT] - old + s.turns[turn, APPEND]
    s.agent[a, LEFT] = new
    attention = chunk_attention(s, old, new)
    s.agent[a, COST] = chunk_work(s, new, attention) + attention
    clusters, groups = s.choice[CLUSTERS], s.choice[PREFILL_OPEN]
    first = a % clusters * (s.choice[PREFILL_GROUPS] // clusters)
    best = first
    if s.choice[PREFILL_POLICY] == 3:
        best = first + s.counter[TURN_GROUP] // clusters % groups
        s.counter[TURN_GROUP] += 1
    else:
        for p in range(first + 1, first + groups):
            if s.group[p, LOAD] < s.group[best, LOAD]:
                best = p
    s.group[best, LOAD] += s.agent[a, COST]
    s.agent_index[a, NEXT] = NONE
    empty = s.group_index[best, QUEUE] == NONE
    if empty:
        s.group_index[best, QUEUE] = a
    else:
        s.agent_index[s.group_index[best, QUEUE_TAIL], NEXT] = a
    s.group_index[best, QUEUE_TAIL] = a
    s.counter[N_WAITING] += 1
    if s.group_index[best, ACTIVE] == IDLE or (empty and s.group_index[best, ACTIVE] == ASLEEP):
        wake(s, best, now)


def admit(s: State, now: float) -> None:
    """Start the agents that have arrived and may be active, in the order of their arrival."""
    most = s.choice[MAX_ACTIVE]
    while s.counter[N_ADMITTED] < s.counter[N_ARRIVED]:
        if most > 0 and s.counter[N_ADMITTED] - s.counter[N_DONE] >= most:
            break
        a = s.counter[N_ADMITTED]
        s.counter[N_ADMITTED] += 1
        s.admitted[a] = now
        begin_turn(s, a, now)
