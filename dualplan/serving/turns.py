"""What a turn is made of, and how it is queued at a prefill group."""

from __future__ import annotations

import math

from dualplan.model.service_times import attention_work, on_curve, seen, token_work
from dualplan.serving.events import push
from dualplan.serving.layout import ASLEEP, AWAKE, IDLE, MOST_STEPS, NONE, State
from dualplan.serving.policies import Prefill


def prefill_node(s: State, e: int) -> int:
    """The node of a prefill engine."""
    return e // s.setting.prefill_per_node


def decode_node(s: State, d: int) -> int:
    """The node of a decode engine; they come after those of the prefill side."""
    return s.setting.prefill_nodes + d // s.setting.decode_per_node


def sequence_bytes(s: State, turn: int) -> float:
    """KV of a sequence at the end of a turn [B]."""
    tokens = s.turns["context"][turn] + s.turns["append"][turn] + s.turns["generated"][turn]
    return float(tokens * s.setting.kv_bytes + s.setting.state_bytes)


def hit(s: State, turn: int) -> float:
    """Tokens of the context that whole blocks cover."""
    block = s.setting.block
    return float(math.floor(s.turns["context"][turn] / block) * block)


def hit_bytes(s: State, turn: int) -> float:
    """KV of the reused prefix of a turn [B]."""
    old = hit(s, turn)
    return float(old * s.setting.kv_bytes + (s.setting.state_bytes if old > 0.0 else 0.0))


def chunk_work(s: State, tokens: float, attention: float) -> float:
    """Work of ``tokens`` new tokens of a request beside their attention [s]."""
    per_request, per_token = s.setting.per_request, s.setting.per_token
    hidden, link = s.setting.per_token_hidden, s.setting.per_token_link
    return float(token_work(per_request, per_token, hidden, link, tokens, attention))


def chunk_attention(s: State, context: float, tokens: float) -> float:
    """Attention of ``tokens`` new tokens over ``context`` older ones [s]."""
    by_pairs = on_curve(s.setting.attention_fixed, s.attention[0], s.attention[1], tokens, seen(tokens, context))
    return float(attention_work(s.setting.per_context, by_pairs, context))


def fitting_tokens(s: State, context: float, room: float) -> float:
    """New tokens whose attention over ``context`` takes at most ``room`` seconds, at least one block.

    Between two spans attention is a quadratic in the tokens: ``quadratic * t^2 + linear * t``.
    """
    block, left = s.setting.block, room - s.setting.per_context * context
    mid, tokens = context, 0.0
    while left > 0.0 and mid < math.inf:
        linear, quadratic, following = s.setting.attention_fixed, 0.0, math.inf
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
    s.total["under_way_time"] += s.count["under_way"] * (now - s.total["under_way_since"])
    s.total["under_way_since"] = now
    s.count["under_way"] += change


def next_boundary(s: State, p: int, time: float) -> float:
    """The first boundary at or after a time of a group that has nothing to do but wait [s].

    Times are summed up pass by pass, so that a group which sleeps finds the boundaries of one which does not; over
    very many passes they are multiplied.
    """
    idle, at = s.setting.pass_idle, s.group["last"][p]
    if idle <= 0.0:
        return time
    if (time - at) / idle > MOST_STEPS:
        return float(max(at + math.ceil((time - at) / idle) * idle, time))
    while at < time:
        at += idle
    return float(at)


def wake(s: State, p: int, now: float) -> None:
    """Give a group that is idle or asleep its next boundary, a whole number of idle passes after the last one."""
    if s.group["activity"][p] == ASLEEP:
        if s.group["starved"][p] == 1:
            s.count["asleep"] -= 1
        at = next_boundary(s, p, now)
    else:
        s.group["next_at"][p] = math.inf
        idle = s.setting.pass_idle
        passed = math.ceil((now - s.group["last"][p]) / idle) if idle > 0.0 else 0
        at = max(s.group["last"][p] + passed * idle, now)
    s.group["activity"][p] = AWAKE
    if at < s.group["next_at"][p]:
        s.group["next_at"][p] = at
        push(s, at, 3 * p + 1)


def room_freed(s: State, now: float) -> None:
    """Wake the groups that sleep because a decode engine or a host buffer was full, where that may have changed."""
    if s.count["asleep"] > 0:
        for p in range(s.setting.prefill_groups):
            if s.group["activity"][p] == ASLEEP and s.group["starved"][p] == 1:
                wake(s, p, now)


def begin_turn(s: State, a: int, now: float) -> None:
    """A turn is ready: it queues at the prefill group with the least predicted work."""
    s.agent["ready"][a] = now
    count_under_way(s, now, 1)
    queue_turn(s, a, now)


def queue_turn(s: State, a: int, now: float) -> None:
    """Put a turn into the queue of a prefill group of its cluster that is open."""
    turn = s.agent["turn"][a]
    s.agent["fetched"][a] = -1.0
    old = hit(s, turn)
    new = s.turns["context"][turn] - old + s.turns["append"][turn]
    s.agent["left"][a] = new
    attention = chunk_attention(s, old, new)
    s.agent["cost"][a] = chunk_work(s, new, attention) + attention
    clusters, groups = s.setting.clusters, s.count["prefill_open"]
    first = a % clusters * (s.setting.prefill_groups // clusters)
    best = first
    if s.setting.prefill_placement == Prefill.ROUND_ROBIN:
        best = first + s.count["turn_group"] // clusters % groups
        s.count["turn_group"] += 1
    else:
        for p in range(first + 1, first + groups):
            if s.group["load"][p] < s.group["load"][best]:
                best = p
    s.group["load"][best] += s.agent["cost"][a]
    s.agent["next"][a] = NONE
    empty = s.group["queue"][best] == NONE
    if empty:
        s.group["queue"][best] = a
    else:
        s.agent["next"][s.group["queue_tail"][best]] = a
    s.group["queue_tail"][best] = a
    s.count["waiting"] += 1
    if s.group["activity"][best] == IDLE or (empty and s.group["activity"][best] == ASLEEP):
        wake(s, best, now)


def admit(s: State, now: float) -> None:
    """Start the agents that have arrived and may be active, in the order of their arrival."""
    most = s.setting.max_active
    while s.count["admitted"] < s.count["arrived"]:
        if most > 0 and s.count["admitted"] - s.count["done"] >= most:
            break
        a = s.count["admitted"]
        s.count["admitted"] += 1
        s.span["admitted"][a] = now
        begin_turn(s, a, now)
