"""How much of each prompt a cache of any size would hold: by block ids, by what the server reported, by session growth.

Rates, with k the leading blocks of a request that are there (definitions of the hit-rate keys)::

    by_token       = sum min(block * k, input) / sum input
    by_block       = sum k / sum blocks
    mean_of_ratios = mean of min(block * k, input) / input

Rules of session growth, where one model's turns of a session are taken in order:

* The turn before left its prompt and its output in the cache. A prompt at least as long as both begins with them.
* A prompt at least as long as the prompt before, but shorter than both, begins with the prompt before: the output was
  dropped or rewritten, as reasoning is.
* A prompt shorter than the prompt before is a new context (a reset, a compaction): nothing of it is there. That is a
  lower bound, as a shared system prompt may be.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from dualplan.trace.assemble import by_session
from dualplan.trace.record import Ints, Trace

Accounting = Literal["block_hashes", "reported", "session_growth"]

GROWTH_BLOCK = 64
"""Tokens of a block where the trace itself has none [tokens]."""


class HitRates(msgspec.Struct, frozen=True, kw_only=True):
    """Hit rates under one accounting (0..1, None where it has no such figure), and over how many requests."""

    accounting: Accounting
    by_token: float
    by_block: float | None
    mean_of_ratios: float
    requests: int
    block_size: int | None


def main_accounting(trace: Trace) -> Accounting | None:
    """The accounting that the figures of a trace rest on: block ids, else reports, else session growth, else none."""
    for name in ("block_hashes", "reported", "session_growth"):
        if available(trace, name):
            return name
    return None


def available(trace: Trace, accounting: Accounting) -> bool:
    """Whether a trace has what an accounting needs."""
    if accounting == "block_hashes":
        return trace.blocks is not None
    if accounting == "reported":
        return trace.cached_tokens.strides != (0,) and bool((trace.cached_tokens >= 0).any())
    return trace.has_sessions


def context_tokens(trace: Trace, accounting: Accounting | None) -> Ints:
    """Tokens of each prompt that are there from before [n]; the rest of the prompt is the append."""
    if accounting == "block_hashes":
        return tokens_of_blocks(trace, trace.hit_blocks)
    if accounting == "reported":
        return np.maximum(trace.cached_tokens, 0)
    if accounting == "session_growth":
        return session_context(trace)
    return np.zeros(trace.requests, np.int64)


def tokens_of_blocks(trace: Trace, leading: Ints) -> Ints:
    """Prompt tokens that so many leading blocks stand for [n]. Raises ValueError for a trace without blocks."""
    blocks = trace.blocks
    if blocks is None:
        raise ValueError("the trace has no block ids")
    inherited = np.minimum(leading * blocks.size, blocks.before_tokens)
    own = np.minimum((leading - blocks.before) * blocks.size, trace.input_tokens - blocks.before_tokens)
    return np.where(leading >= blocks.before, blocks.before_tokens + own, inherited)


def session_context(trace: Trace) -> Ints:
    """Context of each request by session growth [tokens]."""
    context = np.zeros(trace.requests, np.int64)
    if not trace.has_sessions:
        return context
    order, starts = by_session(growth_key(trace))
    prompt, output = trace.input_tokens[order], trace.output_tokens[order]
    before, both = np.zeros_like(prompt), np.zeros_like(prompt)
    before[1:], both[1:] = prompt[:-1], prompt[:-1] + output[:-1]
    there = np.where(prompt >= both, both, np.where(prompt >= before, before, 0))
    there[starts | (trace.session[order] < 0)] = 0
    context[order] = there
    return context


def growth_key(trace: Trace) -> Ints:
    """One number for each model of each session [n]; -1 without a session."""
    key = trace.session * (len(trace.models) + 1) + trace.model + 1
    return np.where(trace.session < 0, -1, key)


def hit_rates(trace: Trace, accounting: Accounting) -> HitRates:
    """The three rates; under session growth hits are whole blocks of 64 tokens."""
    prompt = trace.input_tokens
    size: int | None = None
    by_block: float | None = None
    if accounting == "reported":
        there = trace.cached_tokens >= 0
        prompt, hits = prompt[there], trace.cached_tokens[there]
    elif accounting == "block_hashes" and trace.blocks is not None:
        hits = tokens_of_blocks(trace, trace.hit_blocks)
        size = trace.blocks.size
        total = len(trace.blocks.codes)
        by_block = float(trace.hit_blocks.sum()) / total if total else 0.0
    else:
        size = GROWTH_BLOCK
        whole = session_context(trace) // size
        hits = whole * size
        by_block = float(whole.sum()) / float((-(-prompt // size)).sum())
    return HitRates(
        accounting=accounting,
        by_token=float(hits.sum()) / float(prompt.sum()),
        by_block=by_block,
        mean_of_ratios=float(np.mean(hits / prompt)),
        requests=len(prompt),
        block_size=size,
    )
