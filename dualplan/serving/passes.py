"""Prefill groups: fetching, reads, and synchronised passes."""

from __future__ import annotations

import math

from dualplan.model.latency import touched
from dualplan.model.service_times import pass_time
from dualplan.serving.events import push, turn_ahead
from dualplan.serving.layout import (
    ACTIVE,
    ALPHA,
    APPEND,
    ASLEEP,
    AWAKE,
    BACKEND,
    BACKEND_FREE,
    BETA,
    BLOCK,
    BOTH_SIDES,
    BUFFER_SIDE,
    BUFFER_SIZE,
    CHUNK,
    CHUNK_TOKENS,
    COMPUTED_TOKENS,
    CONTEXT,
    COST,
    D_ROOM,
    D_SEQUENCES,
    D_TOKENS,
    DECODE_ENGINE,
    DECODE_GROUP_SIZE,
    DECODE_NICS,
    DECODE_PER_NODE,
    DECODE_READ_BYTES,
    DECODING,
    EXPERT_SHARE,
    FETCHED,
    FIRST,
    FREE_AT,
    GDS,
    GENERATED,
    HANDOVER,
    HANDOVER_RATE,
    HELD,
    HELD_BYTES,
    HELD_SHARE,
    HIT_BYTES,
    HOST,
    IDLE,
    JOINED,
    KV_BYTES,
    LAST,
    LEFT,
    LOAD,
    MODE,
    MOST_POLLS,
    MOVED_APPEND,
    MOVED_HIT,
    MOVED_MISS,
    N_ASLEEP,
    N_PASSES,
    N_PREFILLING,
    N_WAITING,
    NEEDS,
    NEXT,
    NEXT_AT,
    NIC_BUSY,
    NIC_RATE,
    NIC_TIME,
    NONE,
    ORACLE,
    P_ATTENTION,
    P_LOAD,
    P_MARKED,
    P_ROOM,
    P_WORK,
    PASS_BASE,
    PASS_BUSY,
    PASS_END,
    PASS_EXPERTS,
    PASS_IDLE,
    PASS_TOKENS,
    PEAK_BYTES,
    PENDING,
    PENDING_TAIL,
    POLLS,
    POOL_TOKENS,
    PREFILL_ENGINE,
    PREFILL_GROUP_SIZE,
    PREFILL_NICS,
    PREFILL_PER_NODE,
    PREFILL_POLICY,
    PREFILL_ROOM,
    QUEUE,
    QUOTA,
    READ_BYTES,
    READ_POLICY,
    READ_SHARE,
    READABLE,
    RESIDENT,
    SHARE,
    SPLIT,
    STAGING,
    STARTED,
    STATE_BYTES,
    TURN,
    TURN_DECODE,
    TURN_PREFILL,
    TURN_SIDE,
    WANTS_ROOM,
    WORK_MAX,
    WORK_MEAN,
    Floats,
    State,
)
from dualplan.serving.placement import in_turn, least_tokens, prefill_three_classes, shorter_queue, split_shares
from dualplan.serving.pools import end_turn, place_decode
from dualplan.serving.turns import (
    chunk_attention,
    chunk_work,
    fitting_tokens,
    hit_bytes,
    next_boundary,
    room_freed,
    sequence_bytes,
)

# ---------------------------------------------------------------- reads and host buffers


def earliest(nics: Floats, node: int, per_node: int) -> int:
    """The storage NIC of a node that is free first."""
    best = node * per_node
    for nic in range(best + 1, (node + 1) * per_node):
        if nics[nic, FREE_AT] < nics[best, FREE_AT]:
            best = nic
    return int(best)


def read_seconds(nics: Floats, nic: int, size: float) -> float:
    """Time of a whole read by a storage NIC [s]."""
    return float(size / nics[nic, NIC_RATE] + nics[nic, NIC_TIME])


def decode_share(s: State, e: int, d: int, now: float, size: float) -> float:
    """Share of a read of ``size`` bytes that the decode side does."""
    mode = s.choice[MODE]
    if size <= 0.0 or (mode != BOTH_SIDES and mode != SPLIT):
        return 0.0
    p_nic = earliest(s.prefill_nic, e // s.choice[PREFILL_PER_NODE], s.choice[PREFILL_NICS])
    d_nic = earliest(s.decode_nic, d // s.choice[DECODE_PER_NODE], s.choice[DECODE_NICS])
    prefill_free, decode_free = s.prefill_nic[p_nic, FREE_AT], s.decode_nic[d_nic, FREE_AT]
    if mode == SPLIT:
        seconds = read_seconds(s.prefill_nic, p_nic, size), read_seconds(s.decode_nic, d_nic, size)
        return split_shares(now, prefill_free, decode_free, seconds[0], seconds[1])
    if s.choice[READ_POLICY] == 1:
        return float(s.counter[TURN_SIDE] % 2)
    if prefill_free <= now and decode_free <= now:
        # both idle: the one that has been idle longer
        return 0.0 if prefill_free <= decode_free else 1.0
    return float(shorter_queue(max(prefill_free, now), max(decode_free, now)))


def has_room(buffer: Floats, node: int, size: float) -> bool:
    """Whether a host buffer has room for so many bytes; a byte of slack, since sums round."""
    return bool(buffer[node, HELD_BYTES] + size <= buffer[node, BUFFER_SIZE] + 1.0)


def decode_side_bytes(s: State, loaded: float, before: float) -> float:
    """Host buffer that a read on the decode side takes there: also for what prefill adds, if that is staged."""
    return before if s.choice[STAGING] == HOST else loaded


def buffered_share(s: State, share: float, e: int, d: int, loaded: float, before: float) -> float:
    """The share of the decode side, changed to the other side where the host buffer is full; -1 if the read waits.

    A split read is buffered on the prefill side, where all of it goes.
    """
    if s.choice[MODE] == ORACLE or s.choice[STAGING] == GDS:
        return share
    prefill = has_room(s.prefill_buffer, e // s.choice[PREFILL_PER_NODE], loaded)
    if share < 1.0 and prefill:
        return share
    # a turn without a prefix reads nothing on either side
    if loaded <= 0.0 or s.choice[MODE] != BOTH_SIDES:
        return share if prefill or share >= 1.0 else -1.0
    if has_room(s.decode_buffer, d // s.choice[DECODE_PER_NODE], decode_side_bytes(s, loaded, before)):
        return 1.0
    return 0.0 if prefill and s.choice[READ_POLICY] == 0 else -1.0


def issue_read(s: State, a: int, now: float, size: float, share: float) -> None:
    """Queue a read at the storage NICs, ``share`` of it on the decode side; sets when it starts and when it ends."""
    s.agent[a, STARTED] = now
    s.agent[a, READABLE] = now
    s.agent[a, SHARE] = share
    s.agent_index[a, BUFFER_SIDE] = 1 if share >= 1.0 else 0
    if s.choice[MODE] == ORACLE or size <= 0.0:
        return
    if s.choice[MODE] == BOTH_SIDES and s.choice[READ_POLICY] == 1:
        s.counter[TURN_SIDE] += 1
    started, end = math.inf, now
    if share < 1.0:
        node = s.agent_index[a, PREFILL_ENGINE] // s.choice[PREFILL_PER_NODE]
        nic = earliest(s.prefill_nic, node, s.choice[PREFILL_NICS])
        took = (1.0 - share) * read_seconds(s.prefill_nic, nic, size)
        start = max(s.prefill_nic[nic, FREE_AT], now)
        s.prefill_nic[nic, FREE_AT] = start + took
        s.prefill_nic[nic, NIC_BUSY] += took
        started, end = start, start + took
    if share > 0.0:
        node = s.agent_index[a, DECODE_ENGINE] // s.choice[DECODE_PER_NODE]
        nic = earliest(s.decode_nic, node, s.choice[DECODE_NICS])
        took = share * read_seconds(s.decode_nic, nic, size)
        start = max(s.decode_nic[nic, FREE_AT], now)
        s.decode_nic[nic, FREE_AT] = start + took
        s.decode_nic[nic, NIC_BUSY] += took
        s.total[DECODE_READ_BYTES] += share * size
        started, end = min(started, start), max(end, start + took)
    if s.number[BACKEND] > 0.0:
        s.total[BACKEND_FREE] = max(s.total[BACKEND_FREE], now) + size / s.number[BACKEND]
        end = max(end, s.total[BACKEND_FREE])
    s.agent[a, STARTED] = started
    s.agent[a, READABLE] = end
    s.total[READ_BYTES] += size


def hold(buffer: Floats, node: int, size: float) -> None:
    """Take bytes of a host buffer and keep its peak."""
    buffer[node, HELD_BYTES] += size
    buffer[node, PEAK_BYTES] = max(buffer[node, PEAK_BYTES], buffer[node, HELD_BYTES])


def hold_for_read(s: State, a: int, loaded: float, before: float) -> None:
    """Take the host buffer of a read on the side that reads."""
    if s.choice[MODE] == ORACLE or s.choice[STAGING] == GDS:
        return
    if s.agent_index[a, BUFFER_SIDE] == 0:
        hold(s.prefill_buffer, s.agent_index[a, PREFILL_ENGINE] // s.choice[PREFILL_PER_NODE], loaded)
    else:
        node = s.agent_index[a, DECODE_ENGINE] // s.choice[DECODE_PER_NODE]
        hold(s.decode_buffer, node, decode_side_bytes(s, loaded, before))


def release(s: State, a: int, loaded: float, before: float) -> None:
    """Give the host buffers of a turn back."""
    if s.choice[MODE] == ORACLE or s.choice[STAGING] == GDS:
        return
    decode_node = s.agent_index[a, DECODE_ENGINE] // s.choice[DECODE_PER_NODE]
    if s.agent_index[a, BUFFER_SIDE] == 0:
        s.prefill_buffer[s.agent_index[a, PREFILL_ENGINE] // s.choice[PREFILL_PER_NODE], HELD_BYTES] -= loaded
        if s.choice[STAGING] == HOST:
            s.decode_buffer[decode_node, HELD_BYTES] -= before
    else:
        s.decode_buffer[decode_node, HELD_BYTES] -= decode_side_bytes(s, loaded, before)


# ---------------------------------------------------------------- fetching


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
            waits += max(s.prefill_nic[nic, FREE_AT] - now, 0.0)
        s.prefill_queue[node] = waits / nics
    marked = s.engine[:, P_MARKED] if policy == 1 else load
    return prefill_three_classes(
        load, marked, room, s.prefill_queue, per_node, first, end, need, s.number[ALPHA], s.number[BETA]
    )


def fetch(s: State, p: int, now: float) -> int:
    """Take requests from the queue of a group in their order, as long as there is room for the first of them.

    Returns how many. A request that only waits for a host buffer counts as fetched: the wait is one for allocation.
    """
    size, fetched = s.choice[PREFILL_GROUP_SIZE], 0
    for e in range(p * size, (p + 1) * size):
        s.engine[e, P_MARKED] = s.engine[e, P_LOAD]
    while s.group_index[p, QUEUE] != NONE:
        a = s.group_index[p, QUEUE]
        turn_ahead(s, s.agent_index[a, NEXT])
        turn = s.agent_index[a, TURN]
        length = s.turns[turn, CONTEXT] + s.turns[turn, APPEND] + s.turns[turn, GENERATED]
        whole = sequence_bytes(s, turn)
        before = whole - s.turns[turn, GENERATED] * s.number[KV_BYTES]
        loaded = hit_bytes(s, turn)
        held = before * s.number[HELD_SHARE]
        if s.choice[STAGING] == GDS and s.choice[MODE] != ORACLE:
            # the prefix ends in HBM whole
            held = max(held, loaded + (before - loaded) * s.number[HELD_SHARE])
        held = min(held, s.number[PREFILL_ROOM])
        # a byte of slack: sums of what was taken and given back round
        e = place_prefill(s, a, p, now, held - 1.0)
        if e < 0:
            break
        d = place_decode(s, a, length, whole - 1.0)
        if d < 0:
            s.group_index[p, WANTS_ROOM] = 1
            break
        share = decode_share(s, e, d, now, loaded * s.number[READ_SHARE])
        share = buffered_share(s, share, e, d, loaded, before)
        if s.agent[a, FETCHED] < 0.0:
            s.agent[a, FETCHED] = now
        if share < 0.0:
            s.group_index[p, WANTS_ROOM] = 1
            break
        fetched += 1
        take(s, a, p)
        s.agent_index[a, PREFILL_ENGINE] = e
        s.agent_index[a, DECODE_ENGINE] = d
        s.agent_index[a, CHUNK] = 0
        s.agent[a, JOINED] = -1.0
        if share >= 1.0:
            held = min(before * s.number[HELD_SHARE], s.number[PREFILL_ROOM])
        s.agent[a, NEEDS] = whole
        s.agent[a, HELD] = held
        s.engine[e, P_LOAD] += s.agent[a, COST]
        s.engine[e, P_ROOM] -= held
        s.decoder[d, D_TOKENS] += length
        s.decoder[d, D_SEQUENCES] += 1.0
        s.decoder[d, D_ROOM] -= whole
        s.pool[d // s.choice[DECODE_GROUP_SIZE], POOL_TOKENS] += length
        s.total[HIT_BYTES] += loaded
        issue_read(s, a, now, loaded * s.number[READ_SHARE], share)
        hold_for_read(s, a, loaded, before)
    if fetched > 0:
        # another decode group may have the fewest tokens now
        room_freed(s, now)
    return fetched


def take(s: State, a: int, p: int) -> None:
    """Move the first request of a group from its queue to the end of those that are read or computed."""
    s.counter[TURN_PREFILL] += 1
    s.counter[TURN_DECODE] += 1
    s.counter[N_WAITING] -= 1
    s.counter[N_PREFILLING] += 1
    s.group_index[p, QUEUE] = s.agent_index[a, NEXT]
    s.agent_index[a, NEXT] = NONE
    if s.group_index[p, PENDING] == NONE:
        s.group_index[p, PENDING] = a
    else:
        s.agent_index[s.group_index[p, PENDING_TAIL], NEXT] = a
    s.group_index[p, PENDING_TAIL] = a


# ---------------------------------------------------------------- passes


def boundary(s: State, p: int, now: float) -> None:
    """End the running pass of a group, fetch, and start the next pass."""
    size = s.choice[PREFILL_GROUP_SIZE]
    first, end = p * size, (p + 1) * size
    if s.group_index[p, ACTIVE] == ASLEEP and s.group_index[p, WANTS_ROOM] == 1:
        s.counter[N_ASLEEP] -= 1
    s.group_index[p, ACTIVE] = AWAKE
    s.group_index[p, WANTS_ROOM] = 0
    for e in range(first, end):
        s.engine[e, P_WORK] = 0.0
        s.engine[e, P_ATTENTION] = 0.0
    s.group[p, PASS_TOKENS] = 0.0
    changed = 0
    before, a = NONE, s.group_index[p, PENDING]
    while a != NONE:
        following = s.agent_index[a, NEXT]
        turn_ahead(s, following)
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
            changed += 1
        else:
            if s.agent[a, READABLE] <= now:
                join(s, a, p, now)
            before = a
        a = following
    slowest, attention, heaviest = 0.0, 0.0, 0.0
    for e in range(first, end):
        slowest = max(slowest, s.engine[e, P_WORK] + s.engine[e, P_ATTENTION])
        attention += s.engine[e, P_ATTENTION]
        heaviest = max(heaviest, s.engine[e, P_ATTENTION])
    experts = touched(s.number[EXPERT_SHARE], s.group[p, PASS_TOKENS])
    changed += fetch(s, p, now)
    s.group[p, LAST] = now
    if s.group_index[p, PENDING] == NONE and s.group_index[p, QUEUE] == NONE:
        s.group_index[p, ACTIVE] = IDLE
        return
    took = s.number[PASS_IDLE]
    if slowest > 0.0:
        took = pass_time(s.number[PASS_BASE], s.number[PASS_EXPERTS] * experts, slowest, took)
        s.counter[N_PASSES] += 1
        s.group[p, PASS_BUSY] += took
        s.group[p, PASS_END] = now + took
        s.total[WORK_MAX] += heaviest
        s.total[WORK_MEAN] += attention / size
        changed += 1
    s.group_index[p, POLLS] = 0 if changed > 0 else s.group_index[p, POLLS] + 1
    if s.group_index[p, POLLS] > MOST_POLLS:
        sleep(s, p, now)
    else:
        s.group[p, NEXT_AT] = now + took
        push(s, now + took, 3 * p + 1)


def sleep(s: State, p: int, now: float) -> None:
    """A group that has had nothing to do for many passes has its next boundary when a read of it ends, or when room is
    freed.
    """
    s.group_index[p, ACTIVE] = ASLEEP
    if s.group_index[p, WANTS_ROOM] == 1:
        s.counter[N_ASLEEP] += 1
    first = math.inf
    a = s.group_index[p, PENDING]
    while a != NONE:
        if s.agent[a, READABLE] > now:
            first = min(first, s.agent[a, READABLE])
        a = s.agent_index[a, NEXT]
    s.group[p, NEXT_AT] = math.inf
    if first < math.inf:
        at = next_boundary(s, p, first)
        s.group[p, NEXT_AT] = at
        push(s, at, 3 * p + 1)


def join(s: State, a: int, p: int, now: float) -> None:
    """Put a request into the pass that starts, as far as its chunk and the attention quota of its engine allow, and
    once the decode node has room for its KV.
    """
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
    if s.agent[a, JOINED] < 0.0:
        if s.choice[MODE] != ORACLE and s.choice[STAGING] == HOST and s.agent_index[a, BUFFER_SIDE] == 0:
            # layer by layer the KV of the turn goes to the decode side, which has it already if it read the prefix
            node = s.agent_index[a, DECODE_ENGINE] // s.choice[DECODE_PER_NODE]
            whole = s.agent[a, NEEDS] - s.turns[turn, GENERATED] * s.number[KV_BYTES]
            if not has_room(s.decode_buffer, node, whole):
                s.group_index[p, WANTS_ROOM] = 1
                return
            hold(s.decode_buffer, node, whole)
        s.agent[a, JOINED] = now
    attention = chunk_attention(s, old, tokens)
    s.engine[e, P_WORK] += chunk_work(s, tokens, attention)
    s.engine[e, P_ATTENTION] += attention
    s.group[p, PASS_TOKENS] += tokens
    s.agent[a, LEFT] = left - tokens
    # placement levels the passes to come, each by itself: what has joined a pass no longer counts
    share = s.agent[a, COST] * min(tokens / left, 1.0) if left > 0.0 else s.agent[a, COST]
    s.agent[a, COST] -= share
    s.engine[e, P_LOAD] -= share
    s.group[p, LOAD] -= share
    s.total[COMPUTED_TOKENS] += tokens
    if tokens >= left:
        s.agent_index[a, CHUNK] = 1


def first_token(s: State, a: int, now: float) -> None:
    """Prefill of a turn is done: its first token is out, its KV goes to the decode engine.

    Staged in host memory it is copied to HBM first; otherwise it is there already.
    """
    e, d = s.agent_index[a, PREFILL_ENGINE], s.agent_index[a, DECODE_ENGINE]
    s.agent[a, FIRST] = now
    s.engine[e, P_ROOM] += s.agent[a, HELD]
    s.counter[N_PREFILLING] -= 1
    turn = s.agent_index[a, TURN]
    loaded = hit_bytes(s, turn)
    whole = s.agent[a, NEEDS] - s.turns[turn, GENERATED] * s.number[KV_BYTES]
    release(s, a, loaded, whole)
    room_freed(s, now)
    wait = s.number[HANDOVER]
    if s.choice[MODE] != ORACLE and s.choice[STAGING] == HOST:
        wait += (whole - loaded * s.number[RESIDENT]) / s.number[HANDOVER_RATE]
    # whole is the hits, what prefill computed, and the fixed state once; that is made anew by prefill
    computed = whole - loaded + (s.number[STATE_BYTES] if loaded > 0.0 else 0.0)
    added = s.turns[turn, APPEND] * s.number[KV_BYTES]
    share = s.agent[a, SHARE]
    count_moved(s.prefill_moved, e // s.choice[PREFILL_PER_NODE], share, loaded, computed, added)
    count_moved(s.decode_moved, d // s.choice[DECODE_PER_NODE], share, loaded, computed, added)
    if s.turns[turn, GENERATED] <= 1.0:
        s.agent[a, DECODING] = now
        end_turn(s, a, now, 0.0)
    else:
        push(s, now + wait, 3 * a)


def count_moved(moved: Floats, node: int, share: float, loaded: float, computed: float, added: float) -> None:
    """Add the bytes of a turn to those of a node, by the side that read them."""
    if share < 1.0:
        rest = 1.0 - share
        moved[node, MOVED_HIT] += rest * loaded
        moved[node, MOVED_MISS] += rest * computed
        moved[node, MOVED_APPEND] += rest * added
    if share > 0.0:
        moved[node, 4 + MOVED_HIT] += share * loaded
        moved[node, 4 + MOVED_MISS] += share * computed
        moved[node, 4 + MOVED_APPEND] += share * added
