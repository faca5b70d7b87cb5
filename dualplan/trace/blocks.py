"""Block ids: made dense, their size and rounding found, the leading blocks that earlier requests had.

All of it runs in pieces of some million ids, so that a trace of 24 million ids stays under a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dualplan.trace.record import Bools, Codes, Ints, Rounding

PIECE = 1 << 21
"""Ids worked on at a time."""

BUCKET = 1500
"""Ids that are sorted at a time."""

LARGEST_BLOCK = 1 << 20
"""Largest block size that a file or a user may give [tokens]."""

SIZES = tuple(2**power for power in range(3, 14))
"""Block sizes tried where the format's own does not fit [tokens]."""


def dense(ids: npt.NDArray[Any], scopes: Ints) -> tuple[Codes, int]:
    """Codes ``0..distinct-1`` for (scope, id) pairs; the same pair, the same code.

    Raises nothing; ids may be any 64-bit numbers. Small non-negative ids in one scope keep their value.
    """
    if not len(ids):
        return np.zeros(0, np.int32), 0
    if len(scopes) and int(scopes.max()) > int(scopes.min()):
        return _dense_pairs(ids, scopes)
    low, high = int(ids.min()), int(ids.max())
    if low >= 0 and high < 4 * len(ids) + 1024:
        return ids.astype(np.int32, copy=False), high + 1
    return _factorised(ids.astype(np.int64, copy=False))


def _dense_pairs(ids: npt.NDArray[Any], scopes: Ints) -> tuple[Codes, int]:
    low, high = int(ids.min()), int(ids.max())
    span = high - low + 1
    if span * (int(scopes.max()) + 2) < 2**62:
        keys = (scopes + 1) * span + (ids.astype(np.int64) - low)
    else:
        codes, distinct = _factorised(ids.astype(np.int64))
        keys = (scopes + 1) * distinct + codes
    return _factorised(keys)


def _factorised(keys: Ints) -> tuple[Codes, int]:
    """Codes in the order in which keys come first, so that what comes together lies together in every table by code.

    Sorting in buckets of mixed bits, each of which fits the processor's cache.
    """
    bits = min(max((len(keys) // BUCKET).bit_length(), 1), 14)
    mixed = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed >>= np.uint64(64 - bits)
    bucket = mixed.astype(np.uint16)
    del mixed
    bounds = np.concatenate(([0], np.cumsum(np.bincount(bucket, minlength=1 << bits)))).tolist()
    order = np.argsort(bucket, kind="stable").astype(np.int32)  # a radix sort
    del bucket
    first = np.empty(len(keys), np.int32)  # where the key of each place came first
    for low, high in pairwise(bounds):
        if low == high:
            continue
        here = keys[order[low:high]]
        sorting = np.argsort(here)
        here, members = here[sorting], order[low:high][sorting]
        new = np.ones(len(here), bool)
        np.not_equal(here[1:], here[:-1], out=new[1:])
        starts = np.flatnonzero(new)
        earliest = np.minimum.reduceat(members, starts)
        first[members] = np.repeat(earliest, np.diff(starts, append=len(here)))
    del order
    number = np.cumsum(first == np.arange(len(first), dtype=np.int32), dtype=np.int32)
    codes = number[first]
    codes -= 1
    return codes, int(number[-1])


def find_size(tokens: Ints, counts: Ints, usual: int | None, given: int | None) -> tuple[int, Rounding, float, str]:
    """Block size, rounding, share of requests that fit, and the reason in words.

    ``tokens`` [n] are the prompt tokens that the ``counts`` [n] ids of a request stand for. With ``ceil`` rounding a
    request of t tokens has ceil(t/size) ids, with ``floor`` it has floor(t/size).
    """
    there = counts > 0
    if not there.any():
        return usual or given or SIZES[3], "given", 0.0, "no request has block ids"
    tokens, counts = tokens[there], counts[there]
    sizes = [given] if given else list(dict.fromkeys(([usual] if usual else []) + list(SIZES)))
    best: tuple[float, int, Rounding] = (-1.0, 0, "ceil")
    for size in sizes:
        up, down = -(-tokens // size), tokens // size
        for rounding, expected in (("ceil", up), ("floor", down)):
            share = float(np.mean(expected == counts))
            if share > best[0] + 1e-9:
                best = (share, size, rounding)  # type: ignore[assignment]
    share, size, rounding = best
    if share < 0.5:
        size = given or usual or size
        because = f"ids fit no block size well ({share:.0%} at best): {size} is " + (
            "given" if given else "usual for this format"
        )
        return size, "given", share, because
    whole = "every id count" if share == 1.0 else f"{share:.2%} of the id counts"
    formula = f"{rounding}(tokens/{size})"
    return size, rounding, share, f"{whole} fits {formula}" + (" with the size given" if given else "")


def pieces(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Runs of whole requests with about :data:`PIECE` ids each, as (first request, request behind the last)."""
    start, n = 0, len(offsets) - 1
    while start < n:
        stop = int(np.searchsorted(offsets, offsets[start] + PIECE, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        yield start, stop
        start = stop


def leading_hits(offsets: Ints, codes: Codes, distinct: int) -> Ints:
    """Leading block ids of each request that an earlier request had [n], requests taken in order; infinite cache."""
    first = np.full(distinct, len(offsets), np.int32)
    hits = np.zeros(len(offsets) - 1, np.int64)
    for start, stop in pieces(offsets):
        low, high = int(offsets[start]), int(offsets[stop])
        run = codes[low:high]
        counts = np.diff(offsets[start : stop + 1])
        owner = np.repeat(np.arange(start, stop, dtype=np.int32), counts)
        new = first[run] == len(offsets)
        # of repeated indices the last assignment stays, so backwards the first request does
        first[run[new][::-1]] = owner[new][::-1]
        hits[start:stop] = _leading(first[run] < owner, offsets[start : stop + 1] - low)
    return hits


def _leading(known: Bools, offsets: Ints) -> Ints:
    """Length of the run of True at the start of each segment."""
    counts = np.diff(offsets)
    result = np.zeros(len(counts), np.int64)
    there = counts > 0
    if there.any():
        place = np.arange(len(known), dtype=np.int64)
        place[known] = len(known)
        starts = offsets[:-1][there]
        stops = np.minimum.reduceat(place, starts)
        result[there] = np.minimum(stops - starts, counts[there])
    return result


def gather(offsets: Ints, codes: npt.NDArray[Any], order: Ints) -> tuple[Ints, npt.NDArray[Any]]:
    """The ids with the requests in another order, or with some of them only."""
    return ranges(codes, offsets[:-1][order], np.diff(offsets)[order])


def ranges(flat: npt.NDArray[Any], starts: Ints, counts: Ints) -> tuple[Ints, npt.NDArray[Any]]:
    """``flat[starts[i]:starts[i] + counts[i]]`` for all i, one after the other, with their offsets [n + 1]."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    result = np.empty(int(offsets[-1]), flat.dtype)
    for start, stop in pieces(offsets):
        source = np.repeat(starts[start:stop] - offsets[start:stop], counts[start:stop])
        source += np.arange(int(offsets[start]), int(offsets[stop]), dtype=np.int64)
        result[offsets[start] : offsets[stop]] = flat[source]
    return offsets, result
