"""Where a request is placed: on a prefill engine, on a decode engine, and which side reads its prefix.

Each policy is a pure function over arrays that runs as ordinary Python and through Numba. An *engine* serves one
sequence at a time (one GPU, or a tensor-parallel group). What is placed on each engine and not finished: ``work`` in
seconds as predicted (prefill), ``tokens`` (decode), ``sequences``; ``room`` is the free KV bytes. Engines ``first`` to
``end - 1`` are candidates.
All return the chosen engine, or -1 when the request must wait. Source: DualPath (arXiv 2602.21548), section 5.
"""

from __future__ import annotations

from typing import Any


def prefill_three_classes(
    work: Any,
    marked: Any,
    room: Any,
    queue: Any,
    engines_per_node: int,
    first: int,
    end: int,
    need: float,
    alpha: float,
    beta: float,
) -> int:
    """Engines with more than ``beta`` seconds of predicted work get nothing; of the rest those on nodes whose storage
    queue is at most ``alpha`` seconds come first; in the preferred class the least work wins.

    The paper counts in tokens: beta is what one GPU prefills in 5 s, alpha what a node reads in 3 s. Here work and
    queues are seconds, so turns with long and short contexts weigh as they take. ``queue``: seconds of reads that
    wait at the storage NICs of each node. ``marked``: work by which engines are classified; the same array as
    ``work``, or a copy from the start of the fetch for the published pseudo-code, which classifies once. ``need``: KV
    bytes that must be free.
    """
    best, best_class = -1, 2
    for e in range(first, end):
        if marked[e] > beta or room[e] < need:
            continue
        kind = 0 if queue[e // engines_per_node] <= alpha else 1
        if kind < best_class or (kind == best_class and work[e] < work[best]):
            best, best_class = e, kind
    return best


def least_load(load: Any, room: Any, first: int, end: int, need: float) -> int:
    """The engine with the least unfinished ``load`` among those with room: work [s] or tokens."""
    best = -1
    for e in range(first, end):
        if room[e] >= need and (best < 0 or load[e] < load[best]):
            best = e
    return best


def in_turn(turn: int, room: Any, first: int, end: int, need: float) -> int:
    """The engine whose turn it is whatever its load, or the next one that has room (round robin)."""
    for step in range(end - first):
        e = first + (turn + step) % (end - first)
        if room[e] >= need:
            return e
    return -1


def decode_by_threshold(
    tokens: Any, sequences: Any, room: Any, total: float, first: int, end: int, length: float, need: float
) -> int:
    """Among engines with room those that stay within ``Z`` tokens, fewest sequences first; if there is none, the
    fewest tokens.

    ``Z = 1.05 * (length + total) / engines`` with ``total`` the tokens on all candidates. ``length`` in tokens,
    ``need`` in bytes.
    """
    limit = 1.05 * (length + total) / (end - first)
    within, other = -1, -1
    for e in range(first, end):
        if room[e] < need:
            continue
        if tokens[e] + length <= limit:
            if within < 0 or sequences[e] < sequences[within]:
                within = e
        elif other < 0 or tokens[e] < tokens[other]:
            other = e
    return within if within >= 0 else other


def shorter_queue(prefill_free: float, decode_free: float) -> int:
    """0 to read on the prefill side, 1 on the decode side: where the storage NIC is free earlier."""
    return 0 if prefill_free <= decode_free else 1


def split_shares(
    now: float, prefill_free: float, decode_free: float, prefill_seconds: float, decode_seconds: float
) -> float:
    """Decode-side share of a read split so that both storage NICs end together; ``*_seconds``: the whole read on each.

    Bounded to 0..1 where one queue is longer than the whole read.
    """
    prefill, decode = max(prefill_free - now, 0.0), max(decode_free - now, 0.0)
    if prefill_seconds + decode_seconds <= 0.0:
        return 0.0
    return min(max((prefill - decode + prefill_seconds) / (prefill_seconds + decode_seconds), 0.0), 1.0)
