"""Decode groups: placement, the shared clock of their steps, and the end of turns."""

from __future__ import annotations

import math

from dualplan.model.latency import touched
from dualplan.model.service_times import on_curve, step_time
from dualplan.serving.events import mark_ahead, merge, push, turn_ahead
from dualplan.serving.layout import NONE, TIE, State
from dualplan.serving.placement import decode_by_threshold, in_turn, least_load
from dualplan.serving.policies import Decode
from dualplan.serving.turns import admit, begin_turn, count_under_way, decode_node, room_freed


def place_decode(s: State, a: int, length: float, need: float) -> int:
    """A decode engine: of the group with the fewest tokens on it, one by the policy; -1 if none has room."""
    clusters = s.setting.clusters
    best = a % clusters * (s.setting.decode_groups // clusters)
    for d in range(best + 1, best + s.count["decode_open"]):
        if s.pool["tokens"][d] < s.pool["tokens"][best]:
            best = d
    size = s.setting.decode_group_size
    first, end = best * size, (best + 1) * size
    tokens, room = s.decoder["tokens"], s.decoder["room"]
    policy = s.setting.decode_placement
    if policy == Decode.ROUND_ROBIN:
        return in_turn(s.count["turn_decode"], room, first, end, need)
    if policy == Decode.LEAST_TOKENS:
        return least_load(tokens, room, first, end, need)
    total = s.pool["tokens"][best]
    return decode_by_threshold(tokens, s.decoder["sequences"], room, total, first, end, length, need)


def cache_time(s: State, turn: int) -> float:
    """What the cache of a turn adds to each step of its engine, at half of its generation [s]."""
    context = s.turns["context"][turn] + s.turns["append"][turn] + 0.5 * s.turns["generated"][turn]
    return float(on_curve(s.setting.cache_fixed, s.cache[0], s.cache[1], 1.0, context))


def group_step(s: State, d: int) -> float:
    """Time of a step of a decode group [s]: its engines step together, each with the mean of what they hold."""
    size = s.setting.decode_group_size
    batch = s.pool["size"][d] / size
    experts = s.setting.decode_experts * touched(s.setting.expert_share, batch * s.setting.expert_ranks)
    base, slope, quadratic = s.setting.decode_base, s.setting.decode_slope, s.setting.decode_quadratic
    return float(step_time(base, slope, quadratic, batch, experts, s.pool["cache"][d] / size))


def advance_pool(s: State, d: int, now: float) -> None:
    """Bring the clock of a decode group up to now."""
    if s.pool["size"][d] > 0:
        s.pool["clock"][d] += (now - s.pool["since"][d]) / s.pool["step"][d]
        s.pool["busy"][d] += s.pool["size"][d] * (now - s.pool["since"][d])
    s.pool["since"][d] = now


def expect(s: State, d: int, now: float) -> None:
    """Set the step time of a decode group and see to it that its next completion is in the heap."""
    if s.pool["size"][d] == 0:
        s.pool["cache"][d] = 0.0  # what is left of sums that round
        return
    s.pool["step"][d] = group_step(s, d)
    root = s.pool["root"][d]
    turn_ahead(s, root)
    mark_ahead(s, s.mark["left"][root])
    mark_ahead(s, s.mark["right"][root])
    wait = max(s.mark["at"][root] - s.pool["clock"][d], 0.0) * s.pool["step"][d]
    if now + wait < s.pool["queued"][d]:
        s.pool["queued"][d] = now + wait
        push(s, now + wait, 3 * d + 2)


def start_decode(s: State, a: int, now: float) -> None:
    """A turn enters the continuous batch of its decode group."""
    d = s.agent["decode_engine"][a] // s.setting.decode_group_size
    advance_pool(s, d, now)
    s.agent["decoding"][a] = now
    steps = (s.turns["generated"][s.agent["turn"][a]] - 1.0) / s.setting.step_tokens
    s.mark["at"][a] = s.pool["clock"][d] + steps
    s.mark["left"][a] = NONE
    s.mark["right"][a] = NONE
    s.pool["root"][d] = merge(s, s.pool["root"][d], a)
    s.pool["size"][d] += 1
    s.pool["cache"][d] += cache_time(s, s.agent["turn"][a])
    s.count["decoding"] += 1
    expect(s, d, now)


def complete(s: State, d: int, now: float) -> None:
    """End the turns of a decode group whose marks the clock has reached."""
    if s.pool["queued"][d] <= now:
        s.pool["queued"][d] = math.inf
    advance_pool(s, d, now)
    step = s.pool["step"][d]
    while s.pool["size"][d] > 0:
        a = s.pool["root"][d]
        left = s.mark["at"][a] - s.pool["clock"][d]
        # late in a long run what is left can be too short to move the time
        if s.mark["at"][a] > s.pool["clock"][d] + TIE and now + left * step > now:
            break
        s.pool["root"][d] = merge(s, s.mark["left"][a], s.mark["right"][a])
        s.pool["size"][d] -= 1
        s.pool["cache"][d] -= cache_time(s, s.agent["turn"][a])
        s.count["decoding"] -= 1
        end_turn(s, a, now, step)
    expect(s, d, now)


def end_turn(s: State, a: int, now: float, step: float) -> None:
    """Free what a turn held, record it, and go on to the next turn of the agent."""
    turn = s.agent["turn"][a]
    d = s.agent["decode_engine"][a]
    generated = s.turns["generated"][turn]
    length = s.turns["context"][turn] + s.turns["append"][turn] + generated
    s.decoder["tokens"][d] -= length
    s.decoder["sequences"][d] -= 1.0
    s.decoder["room"][d] += s.agent["needs"][a]
    s.pool["tokens"][d // s.setting.decode_group_size] -= length
    room_freed(s, now)
    count_under_way(s, now, -1)
    k = s.count["records"]
    if k < len(s.record):
        s.record["scheduling"][k] = s.agent["fetched"][a] - s.agent["ready"][a]
        s.record["allocation"][k] = s.agent["started"][a] - s.agent["fetched"][a]
        s.record["read"][k] = s.agent["joined"][a] - s.agent["started"][a]
        s.record["prefill"][k] = s.agent["first"][a] - s.agent["joined"][a]
        s.record["ttst"][k] = s.agent["decoding"][a] - s.agent["first"][a] + step
        s.record["tpot"][k] = (now - s.agent["decoding"][a]) / (generated - 1.0) if generated > 1.0 else 0.0
        s.record["time"][k] = now
        s.record["turn"][k] = turn
    s.count["records"] += 1
    s.total["generated_tokens"] += generated
    made = generated * s.setting.kv_bytes + s.setting.state_bytes
    row, share = 2 * decode_node(s, d), s.agent["share"][a]
    s.moved["generated"][row] += (1.0 - share) * made
    s.moved["generated"][row + 1] += share * made
    s.total["written_bytes"] += (s.turns["append"][turn] + generated) * s.setting.kv_bytes
    s.total["working_set"] += (length - s.agent["stored"][a]) * s.setting.kv_bytes
    s.agent["stored"][a] = int(length)
    s.total["peak_working_set"] = max(s.total["peak_working_set"], s.total["working_set"])
    s.agent["turn"][a] = turn + 1
    if turn + 1 < s.agent["end_turn"][a]:
        think = s.turns["think"][turn]
        if think > 0.0:
            s.agent["ready"][a] = -1.0
            s.agent["first"][a] = -1.0
            push(s, now + think, 3 * a)
        else:
            begin_turn(s, a, now)
    else:
        s.total["working_set"] -= length * s.setting.kv_bytes
        s.span["done"][a] = now
        s.count["done"] += 1
        s.total["last_done"] = now
        admit(s, now)
