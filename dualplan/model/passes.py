"""Synchronised forward passes of a prefill group, and what a steady flow of turns through them takes.

The engines of a group meet in every layer, so they run passes in step. A pass takes a base, whatever it holds, and the
work of its slowest engine. A turn is fetched at the boundary between two passes, is read during the next pass (or as
long as its read takes), joins at the boundary after that and is computed in one pass. With ``n`` turns an engine and
pass, each of mean work ``w``,

    pass = base + (n + excess) * w        turns/s of an engine = n / pass

where ``excess`` is by how much, in mean turns, the slowest engine of a group exceeds the mean. Times in seconds, sizes
in bytes, lengths in tokens. Functions are plain arithmetic on floats, arrays and symbols but for ``excess_work``.
Source of the life cycle: DualPath (arXiv 2602.21548), section 5.
"""

from __future__ import annotations

import math
from typing import Any

from dualplan.model.elementwise import maximum


def excess_work(engines: int, variation: float) -> float:
    """How much the largest of ``engines`` works exceeds their mean, in units of it, if they are lognormal.

    ``variation``: standard deviation over mean. Blom's approximation to the expected largest of a sample: its normal
    score is that of the share (G - 3/8)/(G + 1/4), which for a variation of 1 is 13 % low. A pass of one turn an engine
    takes that much longer than the mean; with more turns, placement levels the others and the largest still stands out.
    """
    from statistics import NormalDist

    if engines < 2 or variation <= 0:
        return 0.0
    spread = math.sqrt(math.log1p(variation * variation))
    score = NormalDist().inv_cdf((engines - 0.375) / (engines + 0.25))
    return math.exp(spread * score - spread * spread / 2) - 1


def pass_rate(base: Any, work: Any, excess: Any, turns: Any) -> Any:
    """Turns/s of an engine whose passes hold ``turns`` turns each."""
    return turns / (base + (turns + excess) * work)


def pass_time_at_rate(base: Any, work: Any, excess: Any, turns_per_s: Any) -> Any:
    """Time of a pass at a turn rate of an engine [s]: with ``turns_per_s * pass`` turns in it. Valid below 1/work."""
    return (base + excess * work) / (1 - turns_per_s * work)


def computing_time(passing: Any, base: Any, work: Any, chunks: float) -> Any:
    """Time of the passes in which a turn of ``chunks`` chunks is computed [s]: one pass, or one for each chunk, which
    together take at least their bases and its work.
    """
    return maximum(chunks * passing, chunks * base + work) if chunks > 1 else passing


def time_to_first_token(passing: Any, reading: Any, computing: Any) -> Any:
    """From fetch to first token [s]: the pass in which it is read, or its read and on average half a pass until the
    next boundary, and the passes in which it is computed.
    """
    return maximum(passing, reading + passing / 2) + computing


def place_taken(passing: Any, to_first_token: Any, handover: Any) -> Any:
    """Seconds that a place on a decode engine is taken for a turn before it decodes there [s]: on average half a pass
    from when it falls free to the next fetch, then until the first token, and to the decode side.
    """
    return passing / 2 + to_first_token + handover


def unloaded_time_to_first_token(idle: Any, alone: Any, reading: Any) -> Any:
    """Time to first token of a turn that meets no other [s]: half an ``idle`` pass until it is fetched, the read until
    a boundary, and a pass with it ``alone``.
    """
    return idle / 2 + maximum(idle, reading + idle / 2) + alone
