"""Service times of a deployment: the one record that every command counts with, and what it says of passes and steps.

An engine is the group of GPUs that serves one sequence. Times in seconds, lengths in tokens. The functions are plain
arithmetic on floats, arrays and symbols; the inner loop of the simulation calls those that it needs through Numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from dualplan.messages import Message, message
from dualplan.model import compute, kv
from dualplan.model.collectives import decode_collective_bytes_per_token
from dualplan.model.elementwise import maximum, minimum
from dualplan.model.latency import decode_base, decode_slope, touched
from dualplan.model.memory import kv_share_per_gpu, weight_bytes_per_gpu
from dualplan.spec.fitted_sets import Fitted, ParameterSet, origin_of
from dualplan.spec.hardware import Gpu, Hardware
from dualplan.spec.layers import Attention, Compressed, GroupedQuery, Latent
from dualplan.spec.model import Model
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import Scenario

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


def curve_through(function: Callable[[float], Any], spans: Iterable[float]) -> Curve:
    """The curve of a function that is linear between ``spans`` and beyond the last of them."""
    ends = [0.0, *sorted({float(span) for span in spans})]
    values = [function(end) for end in ends]
    far = 2 * ends[-1] + 1
    rises = [(values[i + 1] - values[i]) / (ends[i + 1] - ends[i]) for i in range(len(ends) - 1)]
    rises.append((function(far) - values[-1]) / (far - ends[-1]))
    slopes = [rises[i] - rises[i + 1] for i in range(len(rises) - 1)] + [rises[-1]]
    parts = [(slope, span) for slope, span in zip(slopes, [*ends[1:], math.inf], strict=True) if slope]
    return Curve(values[0], tuple(slope for slope, _ in parts), tuple(span for _, span in parts))


def attention_spans(model: Model) -> list[float]:
    """Contexts at which attention of some layer of a model stops growing [tokens]."""
    return [span for group in model.layers for span in _spans(group.attention)]


def _spans(attention: Attention | None) -> tuple[float, ...]:
    match attention:
        case GroupedQuery(window=int(window)):
            return (window,)
        case Latent(indexer=indexer) if indexer is not None:
            return (indexer.topk,)
        case Compressed(ratio=0) | Compressed(indexer=None):
            return (attention.window,)
        case Compressed(indexer=indexer) if indexer is not None:
            return (attention.window, indexer.topk * attention.ratio)
        case _:
            return ()


class ServiceTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Service times of a prefill engine, a decode engine and a storage NIC. Times in s, rates in B/s.

    ``name`` names a fitted set or is ``roofline``; ``origin`` says where the times come from.

    Prefill: a pass takes ``pass_base``, ``pass_experts`` for the experts that its tokens touch, and the work of its
    slowest engine, at least ``pass_floor`` (:func:`pass_time`). A request takes ``per_request``, ``per_token`` for each
    new token, ``per_context`` for each cached one, and for each new token ``attention`` at the context that it sees on
    average. ``per_token_hidden``: what overlaps with that; ``per_token_link``: what does not (:func:`turn_work`). An
    engine takes ``quota`` of attention into a pass.
    Decode: ``decode_base``, ``decode_slope`` and ``decode_quadratic`` by sequences of an engine, ``decode_experts`` for
    the experts touched, ``decode_cache`` of each sequence at its context (:func:`step_time`).
    ``decode_read_slowdown``: what loading and persisting KV adds to a step, in every mode but oracle.
    ``expert_share``: share of the experts of a layer that a token is sent to; ``expert_ranks``: engines of a group.
    ``both_sides``: share of its rate that a storage NIC keeps when both sides read. ``handover``, ``handover_rate``:
    from the end of prefill to decode.
    """

    name: str
    origin: Message
    pass_base: Any = 0.0
    pass_experts: Any = 0.0
    pass_floor: Any = 0.0
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
        return self.pass_experts * touched(self.expert_share, tokens) if self.pass_experts else 0.0

    @property
    def pass_idle(self) -> Any:
        """A pass without work [s]."""
        return maximum(self.pass_base, self.pass_floor)

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


# ---------------------------------------------------------------- sources


def service_times(scenario: Scenario, prefill: Parallel, decode_parallel: Parallel, fit: Fitted | None) -> ServiceTimes:
    """Those of the fitted set of a scenario, with the roofline for parts where the user's own figures win; or of the
    roofline.
    """
    if fit is None:
        return from_roofline(scenario, prefill, decode_parallel)
    times = from_set(fit.chosen, scenario.model.num_layers)
    if not fit.given:
        return times
    roofline = from_roofline(scenario, prefill, decode_parallel, fit.chosen.redundant_experts)
    changes: dict[str, Any] = {name: getattr(roofline, name) for part in fit.given for name in _PARTS[part]}
    return msgspec.structs.replace(times, origin=fit.origin, **changes)


_PARTS = {
    "prefill": ("pass_base", "pass_floor", "per_request", "per_token", "per_context", "attention"),
    "decode": ("decode_base", "decode_slope", "decode_quadratic", "decode_cache"),
    "storage": ("snic_efficiency", "time_per_read", "both_sides"),
}
"""Fields by the part of a fitted set that they belong to."""


def from_set(fit: ParameterSet, layers: int) -> ServiceTimes:
    """A fitted set as service times."""
    return ServiceTimes(
        name=f"{fit.model} on {fit.hardware}",
        origin=origin_of(fit),
        pass_base=fit.pass_time_per_layer * layers,
        per_request=fit.time_per_request,
        per_token=fit.time_per_token,
        per_context=fit.time_per_context_token,
        attention=linear(fit.time_per_token_and_context_token),
        decode_base=fit.decode_base,
        decode_slope=fit.decode_slope,
        decode_quadratic=fit.decode_quadratic,
        decode_read_slowdown=fit.decode_read_slowdown,
        snic_efficiency=fit.snic_efficiency,
        time_per_read=fit.time_per_read,
        both_sides=fit.both_sides,
        handover=fit.handover,
        handover_rate=fit.handover_rate,
        redundant_experts=fit.redundant_experts,
    )


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """What the machines of both sides reach with a model, of one GPU: FLOP/s, B/s, weights [B], launch of a layer [s].

    ``collective_bytes``: of a decoded token, 0 where the collective load is given.
    """

    gemm_rate: Any
    attention_rate: Any
    prefill_hbm_rate: Any
    prefill_weights: Any
    prefill_layer_time: Any
    decode_rate: Any
    hbm_rate: Any
    decode_weights: Any
    layer_time: Any
    gpu_cnic_rate: Any
    collective_bytes: Any


def roofline(scenario: Scenario, prefill: Parallel, decode_parallel: Parallel, redundant_experts: int = 0) -> Roofline:
    """Peaks and weights of a scenario with the profile's named efficiencies."""
    model, first, second = scenario.model, scenario.hardware, scenario.decode_hardware
    peak, efficiency = peak_flops(first.gpu, model.weight_dtype), second.efficiency
    derived = scenario.settings.collective_load is None
    gpus = scale_up_gpus(second)
    return Roofline(
        gemm_rate=peak * first.efficiency.prefill,
        attention_rate=peak * first.efficiency.attention,
        prefill_hbm_rate=first.gpu.hbm_bandwidth * first.efficiency.hbm,
        prefill_weights=weight_bytes_per_gpu(model, prefill, redundant_experts=redundant_experts),
        prefill_layer_time=first.efficiency.decode_layer_time,
        decode_rate=peak_flops(second.gpu, model.weight_dtype) * (efficiency.decode or efficiency.prefill),
        hbm_rate=second.gpu.hbm_bandwidth * efficiency.hbm,
        decode_weights=weight_bytes_per_gpu(model, decode_parallel, redundant_experts=redundant_experts),
        layer_time=efficiency.decode_layer_time,
        gpu_cnic_rate=second.cnic.count * second.cnic.rate * second.cnic.efficiency / second.gpu.count,
        collective_bytes=decode_collective_bytes_per_token(model, decode_parallel, gpus) if derived else 0.0,
    )


def from_roofline(
    scenario: Scenario, prefill: Parallel, decode_parallel: Parallel, redundant_experts: int = 0
) -> ServiceTimes:
    """Service times from peaks and the profile's named efficiencies, each attention kind as a function of the
    context.
    """
    model, first, second = scenario.model, scenario.hardware, scenario.decode_hardware
    reach = roofline(scenario, prefill, decode_parallel, redundant_experts)
    form = kv.check_format(scenario.settings.kv_format or model.kv_format, model, "kv_format")
    share, tp = kv_share_per_gpu(model, decode_parallel, form), decode_parallel.tp
    gemm, attention_rate, layers = compute.gemm_flops(model, 1), reach.attention_rate * prefill.tp, model.num_layers

    def cache(context: float) -> Any:
        reading = share * kv.kv_read_bytes(model, form, context) / reach.hbm_rate
        return reading + compute.attention_flops(model, 1, context) / tp / reach.decode_rate

    spans = attention_spans(model)
    return ServiceTimes(
        name="roofline",
        origin=message("times.efficiencies", machines=tuple(dict.fromkeys((first.name, second.name)))),
        pass_floor=decode_base(reach.prefill_weights, reach.prefill_hbm_rate, layers, reach.prefill_layer_time),
        per_token=gemm / (reach.gemm_rate * prefill.tp),
        attention=curve_through(lambda context: compute.attention_flops(model, 1, context) / attention_rate, spans),
        decode_base=decode_base(reach.decode_weights, reach.hbm_rate, layers, reach.layer_time),
        decode_slope=decode_slope(
            0.0, reach.hbm_rate, gemm / tp, reach.decode_rate, reach.collective_bytes, reach.gpu_cnic_rate
        ),
        decode_cache=curve_through(cache, spans),
        snic_efficiency=first.snic.efficiency,
        time_per_read=first.snic.time_per_read,
        handover_rate=reach.gpu_cnic_rate,
    )


def peak_flops(gpu: Gpu, weight_dtype: str) -> float:
    """Peak of a GPU for a weight type [FLOP/s]; a type that the GPU lacks is computed in the next wider one."""
    wider = {"fp4": ("fp4", "fp8", "bf16"), "fp8": ("fp8", "bf16"), "int8": ("int8", "fp8", "bf16")}
    peaks: list[float | None] = [getattr(gpu.flops, name) for name in wider.get(weight_dtype, ("bf16",))]
    return next(peak for peak in peaks if peak is not None)


def scale_up_gpus(hardware: Hardware) -> int:
    """GPUs that reach each other without a compute NIC: those of the node, or of its NVLink domain."""
    return max(hardware.gpu.count, hardware.nvlink.domain_gpus if hardware.nvlink else 1)
