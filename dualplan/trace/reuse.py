"""Hit rate against cache size under LRU: Mattson's stack distances over blocks, in O(n log n) array operations.

With items accessed in order, the depth of an access is the weight of all distinct items accessed since the same item's
access before, itself included; a cache of that weight or more hits. With W(i) the weight of accesses 0..i-1 and p(i)
the access before of the same item,

    depth(i) = W(i) - W(p(i)) - sum of w(p(j)) over j < i with p(j) > p(i)

as each such j is an item met twice in between, of which only the later access counts. The sum is an inversion count: it
is found bit by bit over the ranks of p, each step a running sum and a stable partition.

Blocks that always come together (same number of accesses, always after the same block) are one item: each of them has
the same depth as the whole. That makes 24 million block accesses a few million. Beyond :data:`LIMIT` accesses, items
are sampled by a hash of their code and depths divided by the sampled share (SHARDS: Waldspurger et al., FAST 2015).

References: R. L. Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970;
P. J. Denning, The working set model for program behavior, CACM 11(5), 1968.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from dualplan.trace.blocks import pieces
from dualplan.trace.hits import growth_key, session_context
from dualplan.trace.record import Blocks, Bools, Codes, Floats, Ints, Trace

LIMIT = 4_000_000
"""Accesses for which depths are exact."""

WINDOWS_S = (60.0, 600.0, 3600.0)
"""Windows of the working set [s]."""

SHARES = (0.5, 0.8, 0.9, 0.99)
"""Shares of the infinite cache's hits for which a cache size is given."""


class Accesses(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Accesses to items in order. ``weight``: cache space [tokens]; ``hit_tokens`` and ``hit_blocks``: what a hit on
    this access is worth; ``request``: whose it is. ``sampled``: share of the items that
    are here.
    """

    item: Ints
    weight: Ints
    hit_tokens: Ints
    hit_blocks: Ints
    request: Ints
    sampled: float


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Hit rates of an LRU cache of this size; by_block is None where the trace has no blocks."""

    cache_tokens: float
    by_token: float
    by_block: float | None


class ReuseCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Hit rate against cache size, and the working set [tokens].

    ``basis``: blocks, or whole sessions. ``for_share``: share of the infinite cache's hit tokens -> cache size.
    ``windows``: window [s] -> mean tokens touched within it, None without a common clock. ``sampled``: share of items
    that the curve rests on.
    """

    basis: Literal["blocks", "sessions"]
    working_set_tokens: float
    points: tuple[CurvePoint, ...]
    for_share: dict[str, float | None]
    windows: dict[str, float] | None
    sampled: float
    because: str


def reuse_curve(trace: Trace) -> ReuseCurve | None:
    """The curve of a trace, or None where nothing says what is used again."""
    if trace.blocks is not None:
        accesses, basis = block_accesses(trace, trace.blocks), "blocks"
        total_blocks, because = len(trace.blocks.codes), "least recently used block goes first"
    elif trace.has_sessions:
        accesses, basis = session_accesses(trace), "sessions"
        total_blocks, because = 0, "least recently used session goes first, whole"
    else:
        return None
    if trace.clock != "shared":
        because += "; sessions taken one after the other, as they have no common clock"
    before = previous(accesses.item)
    again = np.flatnonzero((before >= 0) & (accesses.hit_tokens > 0))
    depth = _prefix_depth(depths(accesses.weight, before)[again], accesses.request[again])
    order = np.argsort(depth, kind="stable")
    found = depth[order] / accesses.sampled
    tokens = np.cumsum(accesses.hit_tokens[again][order]) / accesses.sampled
    blocks = np.cumsum(accesses.hit_blocks[again][order]) / accesses.sampled
    working_set = _last_weights(accesses.weight, accesses.item) / accesses.sampled
    return ReuseCurve(
        basis=basis,  # type: ignore[arg-type]
        working_set_tokens=working_set,
        points=_points(found, tokens, blocks, float(trace.input_tokens.sum()), total_blocks, working_set),
        for_share={f"{share:g}": _size_for(found, tokens, share) for share in SHARES},
        windows=_windows(trace, accesses, before) if trace.clock == "shared" else None,
        sampled=accesses.sampled,
        because=because,
    )


def _points(
    found: Floats, tokens: Floats, blocks: Floats, prompt_tokens: float, total_blocks: int, working_set: float
) -> tuple[CurvePoint, ...]:
    # from half the smallest useful size to twice the largest
    low, high = (float(found[0]), float(found[-1])) if len(found) else (working_set, working_set)
    first, last = (int(np.floor(np.log2(max(low, 2.0)))) - 1, int(np.ceil(np.log2(max(high, 2.0)))) + 1)
    points = []
    for power in range(first, last + 1):
        hits = int(np.searchsorted(found, 2.0**power, side="right"))
        got = (float(tokens[hits - 1]), float(blocks[hits - 1])) if hits else (0.0, 0.0)
        points.append(
            CurvePoint(
                cache_tokens=2.0**power,
                by_token=got[0] / prompt_tokens,
                by_block=got[1] / total_blocks if total_blocks else None,
            )
        )
    return tuple(points)


def _size_for(found: Floats, tokens: Floats, share: float) -> float | None:
    if not len(found):
        return None
    place = int(np.searchsorted(tokens, share * tokens[-1] * (1 - 1e-12)))
    return float(found[min(place, len(found) - 1)])


def previous(item: Ints) -> Ints:
    """The access before of the same item [n], -1 for the first."""
    order = np.argsort(item, kind="stable")
    same = item[order][1:] == item[order][:-1]
    before = np.full(len(item), -1, np.int64)
    before[order[1:][same]] = order[:-1][same]
    return before


def depths(weight: Ints, before: Ints) -> Ints:
    """Depth of each access [n], see the module; 0 where the item comes for the first time."""
    result = np.zeros(len(weight), np.int64)
    again = np.flatnonzero(before >= 0)
    past = before[again]
    total = np.concatenate(([0], np.cumsum(weight)))
    result[again] = total[again] - total[past] - _larger_before(past, weight[past])
    return result


def _larger_before(value: Ints, weight: Ints) -> Ints:
    """For each i the sum of weight[j] over j < i with value[j] > value[i]; values are all different."""
    n = len(value)
    index = np.arange(n, dtype=np.int32)
    own = np.empty(n, np.int32)
    own[np.argsort(value)] = index
    rank, weight, sums = own.copy(), weight.copy(), np.zeros(n, np.int64)
    running, zeros_before = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int32)
    # written over in each step: fresh memory of this size costs more than the arithmetic
    one, group, target, ahead, spare = (np.empty(n, np.int32) for _ in range(5))
    zero, before, spare_sums = np.empty(n, bool), np.empty(n, np.int64), np.empty(n, np.int64)
    for bit in range(max(n - 1, 0).bit_length() - 1, -1, -1):
        # entries that agree in the bits above stand together, in their order; their group starts where the ranks do
        np.right_shift(rank, bit + 1, out=group)
        np.left_shift(group, bit + 1, out=group)
        np.right_shift(rank, bit, out=one)
        np.bitwise_and(one, 1, out=one)
        np.equal(one, 0, out=zero)
        np.multiply(weight, one, out=before)
        np.cumsum(before, out=running[1:])
        np.cumsum(zero, out=zeros_before[1:])
        np.take(running, group, out=before, mode="clip")
        np.subtract(running[:-1], before, out=before)
        np.multiply(before, zero, out=before)
        sums += before
        np.take(zeros_before, group, out=ahead, mode="clip")
        np.subtract(zeros_before[:-1], ahead, out=ahead)
        np.subtract(index, ahead, out=target)
        target += 1 << bit
        ahead += group
        np.copyto(target, ahead, where=zero)
        spare[target] = rank
        rank, spare = spare, rank
        spare_sums[target] = weight
        weight, spare_sums = spare_sums, weight
        spare_sums[target] = sums
        sums, spare_sums = spare_sums, sums
    return sums[own]


def _prefix_depth(depth: Ints, request: Ints) -> Ints:
    """A block is of use only when all before it in the prompt are there: the largest depth so far in the request."""
    if (int(request.max(initial=0)) + 1) * (int(depth.max(initial=0)) + 1) >= 2**62:
        values, rank = np.unique(depth, return_inverse=True)
        return np.asarray(values[_prefix_depth(rank.astype(np.int64), request)])
    base = request * (int(depth.max(initial=0)) + 1)
    return np.asarray(np.maximum.accumulate(depth + base) - base)


def _last_weights(weight: Ints, item: Ints) -> float:
    """Weight of all items as they were left."""
    if not len(item):
        return 0.0
    last = np.zeros(int(item.max()) + 1, np.int64)
    last[item] = weight
    return float(last.sum())


def _windows(trace: Trace, accesses: Accesses, before: Ints) -> dict[str, float] | None:
    """Mean weight touched in the last so many seconds: each access counts until the next one of its item, the end of
    the window or of the trace.
    """
    times = trace.arrival_s[accesses.request]
    if not len(times) or np.isnan(times).any():
        return None
    end = float(times.max())
    if end <= 0:
        return None
    until = end - times
    again = np.flatnonzero(before >= 0)
    until[before[again]] = times[again] - times[before[again]]
    weight = accesses.weight / accesses.sampled
    return {
        f"{window:g}": float((weight * np.minimum(until, window)).sum()) / end for window in WINDOWS_S if window <= end
    }


def session_accesses(trace: Trace) -> Accesses:
    """Each turn is an access to its session's cache of one model, which then holds its prompt and output."""
    there = np.flatnonzero(trace.session >= 0)
    _, item = np.unique(growth_key(trace)[there], return_inverse=True)
    context = session_context(trace)[there]
    return Accesses(
        item=item.astype(np.int64),
        weight=(trace.input_tokens + trace.output_tokens)[there],
        hit_tokens=context,
        hit_blocks=np.zeros(len(there), np.int64),
        request=there,
        sampled=1.0,
    )


def block_accesses(trace: Trace, blocks: Blocks, limit: int = LIMIT) -> Accesses:
    """Accesses to runs of blocks that always come together, in the order of prompts."""
    head = _heads(blocks)
    runs = int(np.count_nonzero(head))
    # where exact is too much, a quarter of what would be is enough: the error falls with the root of the items kept
    sampled = 1.0 if runs <= limit else limit / 4 / runs
    parts = [_piece_of_accesses(trace, blocks, head, sampled, start, stop) for start, stop in pieces(blocks.offsets)]
    item, weight, hit_tokens, hit_blocks, request = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Accesses(
        item=item, weight=weight, hit_tokens=hit_tokens, hit_blocks=hit_blocks, request=request, sampled=sampled
    )


def _piece_of_accesses(
    trace: Trace, blocks: Blocks, head: Bools, sampled: float, start: int, stop: int
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    low, high = int(blocks.offsets[start]), int(blocks.offsets[stop])
    starts = np.flatnonzero(head[low:high]) + low
    lengths = np.diff(np.concatenate((starts, [high])))  # a piece ends with a request, and so does a run
    item = blocks.codes[starts].astype(np.int64)
    if sampled < 1.0:
        mixed = item.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        kept = (mixed >> np.uint64(32)) < np.uint64(int(sampled * 2**32))
        starts, lengths, item = starts[kept], lengths[kept], item[kept]
    request = np.searchsorted(blocks.offsets, starts, side="right") - 1
    position = starts - blocks.offsets[request]
    hit = position < trace.hit_blocks[request]
    tokens = _tokens_between(trace, blocks, request, position, position + lengths)
    return item, lengths * blocks.size, np.where(hit, tokens, 0), np.where(hit, lengths, 0), request


def _tokens_between(trace: Trace, blocks: Blocks, request: Ints, start: Ints, stop: Ints) -> Ints:
    prompt, before, inherited = trace.input_tokens[request], blocks.before[request], blocks.before_tokens[request]

    def until(position: Ints) -> Ints:
        own = inherited + np.minimum((position - before) * blocks.size, prompt - inherited)
        return np.where(position >= before, own, np.minimum(position * blocks.size, inherited))

    return until(stop) - until(start)


def _heads(blocks: Blocks) -> Bools:
    """Block accesses that start a run: the block before is another one at times, or is used without this one."""
    accesses = np.zeros(blocks.distinct, np.int32)
    usual = np.full(blocks.distinct, -2, np.int32)
    loose = np.zeros(blocks.distinct, bool)
    for start, stop in pieces(blocks.offsets):
        run, past = _with_predecessor(blocks, start, stop)
        np.add.at(accesses, run, np.int32(1))  # a plain 1 would take the slow way
        new = usual[run] == -2
        usual[run[new][::-1]] = past[new][::-1]
        loose[run[usual[run] != past]] = True
    head = np.empty(len(blocks.codes), bool)
    for start, stop in pieces(blocks.offsets):
        run, past = _with_predecessor(blocks, start, stop)
        head[blocks.offsets[start] : blocks.offsets[stop]] = (past < 0) | loose[run] | (accesses[run] != accesses[past])
    return head


def _with_predecessor(blocks: Blocks, start: int, stop: int) -> tuple[Codes, Codes]:
    low, high = int(blocks.offsets[start]), int(blocks.offsets[stop])
    run = blocks.codes[low:high]
    past = np.empty_like(run)
    past[1:] = run[:-1]
    firsts = blocks.offsets[start:stop] - low
    past[firsts[firsts < high - low]] = -1
    return run, past
