"""Prefill groups: fetching and synchronised passes."""

from __future__ import annotations

import math

from dualplan.model.latency import touched
from dualplan.model.service_times import pass_time
from dualplan.serving.events import push, turn_ahead
from dualplan.serving.layout import ASLEEP, AWAKE, IDLE, MOST_POLLS, NONE, Reads, Staging, State
from dualplan.serving.placement import in_turn, least_load, prefill_three_classes
from dualplan.serving.policies import Prefill
from dualplan.serving.pools import end_turn, place_decode
from dualplan.serving.reads import (
    buffered_share,
    count_moved,
    decode_share,
    has_room,
    hold,
    hold_for_read,
    issue_read,
    release,
    stages_turns,
)
from dualplan.serving.turns import (
    chunk_attention,
    chunk_work,
    decode_node,
    fitting_tokens,
    hit_bytes,
    next_boundary,
    prefill_node,
    room_freed,
    sequence_bytes,
)

# ---------------------------------------------------------------- fetching


def place_prefill(s: State, a: int, p: int, now: float, need: float) -> int:
    """A prefill engine of a group for a request, or -1."""
    size = s.setting.prefill_group_size
    first, end = p * size, (p + 1) * size
    policy = s.setting.prefill_placement
    load, room = s.engine["load"], s.engine["room"]
    if policy == Prefill.ROUND_ROBIN:
        return in_turn(s.count["turn_prefill"], room, first, end, need)
    if policy == Prefill.LEAST_TOKENS:
        return least_load(load, room, first, end, need)
    for node in range(prefill_node(s, first), prefill_node(s, end - 1) + 1):
        nic, end_nic = s.node["first_nic"][node], s.node["end_nic"][node]
        waits = 0.0
        for i in range(nic, end_nic):
            waits += max(s.nic["free_at"][i] - now, 0.0)
        s.node["read_queue"][node] = waits / (end_nic - nic)
    marked = s.engine["marked"] if policy == Prefill.PAPER_LITERAL else load
    queue, per_node = s.node["read_queue"], s.setting.prefill_per_node
    alpha, beta = s.setting.alpha, s.setting.beta
    return prefill_three_classes(load, marked, room, queue, per_node, first, end, need, alpha, beta)


def fetch(s: State, p: int, now: float) -> int:
    """Take requests from the queue of a group in their order, as long as there is room for the first of them.

    Returns how many. A request that only waits for a host buffer counts as fetched: the wait is one for allocation.
    """
    size, fetched = s.setting.prefill_group_size, 0
    for e in range(p * size, (p + 1) * size):
        s.engine["marked"][e] = s.engine["load"][e]
    while s.group["queue"][p] != NONE:
        a = s.group["queue"][p]
        turn_ahead(s, s.agent["next"][a])
        turn = s.agent["turn"][a]
        length = s.turns["context"][turn] + s.turns["append"][turn] + s.turns["generated"][turn]
        whole = sequence_bytes(s, turn)
        before = whole - s.turns["generated"][turn] * s.setting.kv_bytes
        loaded = hit_bytes(s, turn)
        held = before * s.setting.held_share
        if s.setting.staging == Staging.GDS and s.setting.reads != Reads.NOBODY:
            # the prefix ends in HBM whole
            held = max(held, loaded + (before - loaded) * s.setting.held_share)
        held = min(held, s.setting.prefill_room)
        # a byte of slack: sums of what was taken and given back round
        e = place_prefill(s, a, p, now, held - 1.0)
        if e < 0:
            break
        d = place_decode(s, a, length, whole - 1.0)
        if d < 0:
            s.group["starved"][p] = 1
            break
        share = decode_share(s, e, d, now, loaded * s.setting.read_share)
        share = buffered_share(s, share, e, d, loaded, before)
        if s.agent["fetched"][a] < 0.0:
            s.agent["fetched"][a] = now
        if share < 0.0:
            s.group["starved"][p] = 1
            break
        fetched += 1
        take(s, a, p)
        s.agent["prefill_engine"][a] = e
        s.agent["decode_engine"][a] = d
        s.agent["last_chunk"][a] = 0
        s.agent["joined"][a] = -1.0
        if share >= 1.0:
            held = min(before * s.setting.held_share, s.setting.prefill_room)
        s.agent["needs"][a] = whole
        s.agent["held"][a] = held
        s.engine["load"][e] += s.agent["cost"][a]
        s.engine["room"][e] -= held
        s.decoder["tokens"][d] += length
        s.decoder["sequences"][d] += 1.0
        s.decoder["room"][d] -= whole
        s.pool["tokens"][d // s.setting.decode_group_size] += length
        s.total["hit_bytes"] += loaded
        issue_read(s, a, now, loaded * s.setting.read_share, share)
        hold_for_read(s, a, loaded, before)
    if fetched > 0:
        # another decode group may have the fewest tokens now
        room_freed(s, now)
    return fetched


def take(s: State, a: int, p: int) -> None:
    """Move the first request of a group from its queue to the end of those that are read or computed."""
    s.count["turn_prefill"] += 1
    s.count["turn_decode"] += 1
    s.count["waiting"] -= 1
    s.count["prefilling"] += 1
    s.group["queue"][p] = s.agent["next"][a]
    s.agent["next"][a] = NONE
    if s.group["pending"][p] == NONE:
        s.group["pending"][p] = a
    else:
        s.agent["next"][s.group["pending_tail"][p]] = a
    s.group["pending_tail"][p] = a


# ---------------------------------------------------------------- passes


def boundary(s: State, p: int, now: float) -> None:
    """End the running pass of a group, fetch, and start the next pass."""
    size = s.setting.prefill_group_size
    first, end = p * size, (p + 1) * size
    if s.group["activity"][p] == ASLEEP and s.group["starved"][p] == 1:
        s.count["asleep"] -= 1
    s.group["activity"][p] = AWAKE
    s.group["starved"][p] = 0
    for e in range(first, end):
        s.engine["work"][e] = 0.0
        s.engine["attention"][e] = 0.0
    s.group["tokens"][p] = 0.0
    changed = 0
    before, a = NONE, s.group["pending"][p]
    while a != NONE:
        following = s.agent["next"][a]
        turn_ahead(s, following)
        chunk = s.agent["last_chunk"][a]
        if chunk == 1:
            # its last chunk was in the pass that ends now
            if before == NONE:
                s.group["pending"][p] = following
            else:
                s.agent["next"][before] = following
            if following == NONE:
                s.group["pending_tail"][p] = before
            first_token(s, a, now)
            changed += 1
        else:
            if s.agent["readable"][a] <= now:
                join(s, a, p, now)
            before = a
        a = following
    slowest, attention, heaviest = 0.0, 0.0, 0.0
    for e in range(first, end):
        slowest = max(slowest, s.engine["work"][e] + s.engine["attention"][e])
        attention += s.engine["attention"][e]
        heaviest = max(heaviest, s.engine["attention"][e])
    experts = s.setting.pass_experts * touched(s.setting.expert_share, s.group["tokens"][p])
    changed += fetch(s, p, now)
    s.group["last"][p] = now
    if s.group["pending"][p] == NONE and s.group["queue"][p] == NONE:
        s.group["activity"][p] = IDLE
        return
    took = s.setting.pass_idle
    if slowest > 0.0:
        took = pass_time(s.setting.pass_base, experts, slowest, took)
        s.count["passes"] += 1
        s.group["busy"][p] += took
        s.group["busy_until"][p] = now + took
        s.total["work_max"] += heaviest
        s.total["work_mean"] += attention / size
        changed += 1
    s.group["polls"][p] = 0 if changed > 0 else s.group["polls"][p] + 1
    if s.group["polls"][p] > MOST_POLLS:
        sleep(s, p, now)
    else:
        s.group["next_at"][p] = now + took
        push(s, now + took, 3 * p + 1)


def sleep(s: State, p: int, now: float) -> None:
    """A group that has had nothing to do for many passes has its next boundary when a read of it ends, or when room is
    freed.
    """
    s.group["activity"][p] = ASLEEP
    if s.group["starved"][p] == 1:
        s.count["asleep"] += 1
    first = math.inf
    a = s.group["pending"][p]
    while a != NONE:
        if s.agent["readable"][a] > now:
            first = min(first, s.agent["readable"][a])
        a = s.agent["next"][a]
    s.group["next_at"][p] = math.inf
    if first < math.inf:
        at = next_boundary(s, p, first)
        s.group["next_at"][p] = at
        push(s, at, 3 * p + 1)


def join(s: State, a: int, p: int, now: float) -> None:
    """Put a request into the pass that starts, as far as its chunk and the attention quota of its engine allow, and
    once the decode node has room for its KV.
    """
    e = s.agent["prefill_engine"][a]
    turn = s.agent["turn"][a]
    left = s.agent["left"][a]
    old = s.turns["context"][turn] + s.turns["append"][turn] - left
    room = s.setting.quota - s.engine["attention"][e]
    tokens = min(left, s.setting.chunk_tokens)
    if chunk_attention(s, old, tokens) > room:
        if s.engine["attention"][e] > 0.0 and chunk_attention(s, old, s.setting.block) > room:
            return
        tokens = min(fitting_tokens(s, old, room), tokens)
    if s.agent["joined"][a] < 0.0:
        if stages_turns(s) and s.agent["buffer_side"][a] == 0:
            # layer by layer the KV of the turn goes to the decode side, which has it already if it read the prefix
            node = decode_node(s, s.agent["decode_engine"][a])
            whole = s.agent["needs"][a] - s.turns["generated"][turn] * s.setting.kv_bytes
            if not has_room(s, node, whole):
                s.group["starved"][p] = 1
                return
            hold(s, node, whole)
        s.agent["joined"][a] = now
    attention = chunk_attention(s, old, tokens)
    s.engine["work"][e] += chunk_work(s, tokens, attention)
    s.engine["attention"][e] += attention
    s.group["tokens"][p] += tokens
    s.agent["left"][a] = left - tokens
    # placement levels the passes to come, each by itself: what has joined a pass no longer counts
    share = s.agent["cost"][a] * min(tokens / left, 1.0) if left > 0.0 else s.agent["cost"][a]
    s.agent["cost"][a] -= share
    s.engine["load"][e] -= share
    s.group["load"][p] -= share
    s.total["computed_tokens"] += tokens
    if tokens >= left:
        s.agent["last_chunk"][a] = 1


def first_token(s: State, a: int, now: float) -> None:
    """Prefill of a turn is done: its first token is out, its KV goes to the decode engine.

    Staged in host memory it is copied to HBM first; otherwise it is there already.
    """
    e, d = s.agent["prefill_engine"][a], s.agent["decode_engine"][a]
    s.agent["first"][a] = now
    s.engine["room"][e] += s.agent["held"][a]
    s.count["prefilling"] -= 1
    turn = s.agent["turn"][a]
    loaded = hit_bytes(s, turn)
    whole = s.agent["needs"][a] - s.turns["generated"][turn] * s.setting.kv_bytes
    release(s, a, loaded, whole)
    room_freed(s, now)
    wait = s.setting.handover
    if stages_turns(s):
        wait += (whole - loaded * s.setting.resident) / s.setting.handover_rate
    # whole is the hits, what prefill computed, and the fixed state once; that is made anew by prefill
    computed = whole - loaded + (s.setting.state_bytes if loaded > 0.0 else 0.0)
    added = s.turns["append"][turn] * s.setting.kv_bytes
    share = s.agent["share"][a]
    count_moved(s, prefill_node(s, e), share, loaded, computed, added)
    count_moved(s, decode_node(s, d), share, loaded, computed, added)
    if s.turns["generated"][turn] <= 1.0:
        s.agent["decoding"][a] = now
        end_turn(s, a, now, 0.0)
    else:
        push(s, now + wait, 3 * a)
