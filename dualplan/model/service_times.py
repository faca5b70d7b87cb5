"""Service times of a deployment: the one record that every command counts with, and what it says of passes and steps.

An engine is the group of GPUs that serves one sequence. Times in seconds, lengths in tokens. The functions are plain
arithmetic on floats, arrays and symbols; the inner loop of the simulation calls those that it needs through Numba.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from dualplan.messages import Message
from dualplan.model.elementwise import maximum, minimum
from dualplan.model.latency import touched
from dualplan.spec.constants import Interval
from dualplan.spec.hardware import Hardware

QUOTA = 0.3
"""Attention time of one engine in one pass [s] (DualPath, section 5.4)."""

CHUNK_TOKENS = 8192
"""New tokens of one request in one pass (chunked prefill): the default of SGLang and of vLLM on such GPUs."""

READ_QUEUE = 3.0
"""alpha: reads that wait at a node before it stops being preferred [s] (DualPath, section 5.2)."""

ENGINE_QUEUE = 5.0
"""beta: work of an engine beyond which it gets nothing [s] (DualPath, section 5.2)."""

BASIC_COPIES = 2.0
"""Mode ``basic`` keeps a batch's whole KV in HBM: half of the room for the batch that is read, half for the one that
is computed. An assumption; it reproduces the published basic runs of DeepSeek-V3.2, which HBM binds."""

SHORTEST_PASS = 1e-3
"""A pass takes at least this long [s], so that idle groups do not spin."""


class Curve(msgspec.Struct, frozen=True):
    """What grows with the context, each part up to a span: ``fixed + sum_k slopes[k] * min(context, spans[k])``.

    Attention of every layer kind is of this form: a window or the top-k of a sparse layer is a span, of full attention
    it is infinite, a recurrent state is fixed. Spans in tokens, infinity allowed.
    """

    fixed: Any = 0.0
    slopes: tuple[Any, ...] = ()
    spans: tuple[float, ...] = ()

    def value(self, context: Any) -> Any:
        """The value at a context."""
        return self.times(1, context)

    def times(self, count: Any, context: Any) -> Any:
        """``count`` times the value at a context."""
        return on_curve(self.fixed, self.slopes, self.spans, count, context)

    def rise(self, context: Any) -> Any:
        """What one more token of context adds."""
        return sum(slope for slope, span in zip(self.slopes, self.spans, strict=True) if span > context)


def on_curve(fixed: Any, slopes: Any, spans: Any, count: Any, context: Any) -> Any:
    """``count`` times a curve at a context; slopes and spans are sequences or arrays of one length."""
    total = fixed * count
    for part in range(len(slopes)):
        total = total + slopes[part] * count * minimum(context, spans[part])
    return total


def linear(slope: Any) -> Curve:
    """A curve in proportion to the context."""
    return Curve(0.0, (slope,), (math.inf,)) if slope else Curve()


class Intervals(msgspec.Struct, frozen=True, kw_only=True):
    """Factors of the figures between which the true ones lie in 80 of 100 cases. ``seen``: whether the machine and the
    model are among those that the times were fitted on.
    """

    tpot: Interval
    ttft: Interval
    prefill_rate: Interval
    seen: bool


class ServiceTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Service times of a prefill engine, a decode engine and a storage NIC. Times in s, rates in B/s.

    ``name`` names a fitted set or is ``roofline``; ``origin`` says where the times come from.

    Prefill: a pass takes ``pass_base``, ``pass_experts`` for the experts that its tokens touch, and the work of its
    slowest engine, at least ``pass_idle``, which is a pass without work (:func:`pass_time`). A request takes
    ``per_request``, ``per_token`` for each new token, ``per_context`` for each cached one, and for each new token
    ``attention`` at the context that it sees on average. ``per_token_hidden``: what overlaps with that;
    ``per_token_link``: what does not (:func:`turn_work`). An engine takes ``quota`` of attention into a pass.
    Decode: ``decode_base``, ``decode_slope`` and ``decode_quadratic`` by sequences of an engine, ``decode_experts`` for
    the experts touched, ``decode_cache`` of each sequence at its context (:func:`step_time`).
    ``decode_read_slowdown``: what loading and persisting KV adds to a step, in every mode but oracle.
    ``expert_share``: share of the experts of a layer that a token is sent to; ``expert_ranks``: engines of a group.
    ``both_sides``: share of its rate that a storage NIC keeps when both sides read. ``handover``, ``handover_rate``:
    from the end of prefill to decode. ``interval``: how sure they are, None where nothing says so.
    """

    name: str
    origin: Message
    pass_base: Any = 0.0
    pass_experts: Any = 0.0
    pass_idle: Any = 0.0
    per_request: Any = 0.0
    per_token: Any = 0.0
    per_token_hidden: Any = 0.0
    per_token_link: Any = 0.0
    per_context: Any = 0.0
    attention: Curve = Curve()
    quota: float = QUOTA
    decode_base: Any
    decode_slope: Any = 0.0
    decode_quadratic: Any = 0.0
    decode_experts: Any = 0.0
    decode_cache: Curve = Curve()
    decode_read_slowdown: float = 0.0
    expert_share: float = 0.0
    expert_ranks: int = 1
    snic_efficiency: Any = 1.0
    time_per_read: Any = 0.0
    both_sides: float = 1.0
    handover: float = 0.0
    handover_rate: float = math.inf
    redundant_experts: int = 0
    interval: Intervals | None = None

    def attention_work(self, new: Any, old: Any) -> Any:
        """Attention of ``new`` tokens over ``old`` cached ones on an engine [s]: the part that the quota limits."""
        return attention_work(self.per_context, self.attention.times(new, seen(new, old)), old)

    def turn_work(self, new: Any, old: Any) -> Any:
        """Work of an engine for the prefill of a turn, without its share of the base of a pass [s]."""
        attention = self.attention_work(new, old)
        link = (self.per_token_hidden, self.per_token_link)
        return token_work(self.per_request, self.per_token, *link, new, attention) + attention

    def experts_time(self, tokens: Any) -> Any:
        """Time of a pass for the experts that its new tokens touch [s]."""
        return self.pass_experts * touched(self.expert_share, tokens) if self.expert_share else 0.0

    def slowed(self, mode: str) -> ServiceTimes:
        """Decode steps as they are under a mode: loading and persisting KV slows all of them."""
        slower = 1.0 if mode == "oracle" else 1 + self.decode_read_slowdown
        steps = ("decode_base", "decode_slope", "decode_quadratic", "decode_experts")
        cache = self.decode_cache
        slopes = tuple(slope * slower for slope in cache.slopes)
        return msgspec.structs.replace(
            self,
            **{name: getattr(self, name) * slower for name in steps},
            decode_cache=Curve(cache.fixed * slower, slopes, cache.spans),
            decode_read_slowdown=0.0,
        )


def seen(new: Any, old: Any) -> Any:
    """Context that each of ``new`` tokens sees on average beside ``old`` cached ones [tokens]."""
    return old + new / 2


def attention_work(per_context: Any, by_pairs: Any, old: Any) -> Any:
    """Attention of a chunk [s], of which ``by_pairs`` is what its new tokens take at the context that they see."""
    return per_context * old + by_pairs


def token_work(per_request: Any, per_token: Any, hidden: Any, link: Any, new: Any, attention: Any) -> Any:
    """Work of a request of ``new`` tokens beside its ``attention`` [s], with what overlaps with both of them.

    Together they take ``per_request + max(new * per_token + attention, new * hidden) + new * link``.
    """
    return per_request + maximum(per_token * new, hidden * new - attention) + link * new


def pass_time(base: Any, experts: Any, slowest: Any, floor: Any) -> Any:
    """Time of a pass [s]: a base, the experts that its tokens touch, its slowest engine; at least ``floor``."""
    return maximum(base + experts + slowest, floor)


def step_time(base: Any, slope: Any, quadratic: Any, sequences: Any, experts: Any, cache: Any) -> Any:
    """Time of a decode step of engines with so many sequences each [s]; ``experts``: of those that they touch,
    ``cache``: of all sequences of an engine.
    """
    return base + slope * sequences + quadratic * sequences * sequences + experts + cache


def scale_up_gpus(hardware: Hardware) -> int:
    """GPUs that reach each other without a compute NIC: those of the node, or of its NVLink domain."""
    return max(hardware.gpu.count, hardware.nvlink.domain_gpus if hardware.nvlink else 1)
