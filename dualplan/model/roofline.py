"""Service times of an engine from counts of its kernels, bytes and FLOPs, and a few constants of physics.

A *rank* is the ``tp`` GPUs that share one copy of the attention; ``dp`` ranks make an engine, whose routed experts are
spread over ``ep`` GPUs. ``rank`` counts what one GPU of a rank does, without any fitted figure; ``decode_step`` and
``prefill_pass`` put the constants in and give the coefficients of the service times. All are plain arithmetic: fields
may be floats, arrays or symbols. Times in s, lengths in tokens, rates in B/s and FLOP/s.

Each term by itself:

* A step replays its graph kernel by kernel; each takes a time that no size explains (``kernel_count``). A prefill pass
  is launched by the host, which takes an order longer.
* Weights cross HBM once a step; of the routed experts those that some token chose: 1 - (1 - k/E)^B of them.
* Each sequence's cache crosses HBM once a step; latent caches are whole on each GPU, KV heads are split over tp.
* FLOPs run at a share of what large matrix products reach of the peak of each matrix's own type; 4-bit weights on a GPU
  without FP4 units are widened first and run in bf16.
* tp > 1: two all-reduces a layer, each a latency and bytes; dp > 1: dispatch and combine in each layer with experts.
* Prefill computes latent attention unabsorbed (sparse attention absorbed), hides the all-to-all behind compute, and
  sends a token once to each node.

Sources: shapes of the matrix products; DeepEP (copies of a token); ring all-reduce 2(n-1)/n of nccl-tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from dualplan.model.collectives import remote_copies, remote_nodes
from dualplan.model.compute import index_flops, per_key_flops
from dualplan.model.elementwise import maximum, minimum
from dualplan.model.kv import (
    check_format,
    entry_bytes,
    index_key_bytes,
    kv_total_bytes_per_token,
    state_bytes_per_sequence,
)
from dualplan.model.latency import touched
from dualplan.model.memory import kv_share_per_gpu
from dualplan.model.service_times import CHUNK_TOKENS, Curve, scale_up_gpus, seen, token_work
from dualplan.model.service_times import Intervals as ModelIntervals
from dualplan.spec.constants import Constants, interval_classes, roofline_data, widest
from dualplan.spec.hardware import Efficiencies, Hardware
from dualplan.spec.layers import (
    Attention,
    Compressed,
    Dense,
    Experts,
    GroupedQuery,
    Latent,
    LayerGroup,
    Recurrent,
    attention_shapes,
)
from dualplan.spec.model import Model, count_parameters
from dualplan.spec.parallel import Parallel

KERNELS: dict[type, int] = {GroupedQuery: 5, Latent: 10, Compressed: 14, Recurrent: 9, Dense: 3, Experts: 7}
"""Kernels of a layer's attention and feed-forward in a replayed step. Grouped query: norm, QKV, rotary and cache write,
attention, output. Latent: two projections more on each side of the latent, their norms, the absorbed products.
Compressed: as latent, with pooling. Recurrent: projections, convolution, gates, state, norm, output. Dense: norm with
gate and up, activation, down. Experts: norm, router, top-k, permutation, two grouped products, activation."""

INDEXER_KERNELS, SHARED_EXPERT_KERNELS, QUANTISED_KERNELS = 6, 3, 2
"""Kernels that an indexer adds, a shared expert, and the quantisation of the inputs of an attention or feed-forward."""

NVLINK_SHARE = 0.85
"""Share of the link rate inside the scale-up domain that large transfers reach: nccl-tests on NVSwitch nodes."""

TILE_ROWS = 128
"""Rows of a tile of a grouped matrix product on Hopper and Blackwell; each expert's last tile is half empty."""

MEMORY_SHARE = 0.95
"""Share of HBM that engines which serve large batches are started with; a closed loop holds no more sequences."""

HANDOVER_SHARE = 0.75
"""Share of the NICs' line rate that a hand-over of KV reaches: 0.82 with 4 NICs of 400 Gb/s (H20), 0.71 to 0.76 with 8
of 200 Gb/s (H800), Mooncake documentation."""


# ---------------------------------------------------------------- counting


def kernel_count(model: Model) -> int:
    """Kernels of one decode step of a model: 12 a layer for Llama in fp8, 14 for gpt-oss, 24 for DeepSeek-V3."""
    return sum(group.count * _layer_kernels(group, model) for group in model.layers)


def _layer_kernels(group: LayerGroup, model: Model) -> int:
    count = KERNELS.get(type(group.attention), 0) + KERNELS.get(type(group.ffn), 0)
    indexer = getattr(group.attention, "indexer", None)
    if indexer is not None and indexer.own_keys:
        count += INDEXER_KERNELS
    if isinstance(group.ffn, Experts) and group.ffn.shared_intermediate:
        count += SHARED_EXPERT_KERNELS
    if group.attention is not None and model.part_bytes.attention < 2:
        count += QUANTISED_KERNELS
    ffn_bytes = model.part_bytes.routed_experts if isinstance(group.ffn, Experts) else model.part_bytes.dense
    if group.ffn is not None and ffn_bytes < 2:
        count += QUANTISED_KERNELS
    return count


def matrix_type(bytes_per_parameter: float, model: Model) -> str:
    """Type of the products of matrices stored in so many bytes: bf16, fp8, int8, fp4, or int4 (widened to bf16)."""
    if bytes_per_parameter > 1.25:
        return "bf16"
    if bytes_per_parameter > 0.75:
        return "int8" if model.weight_dtype == "int8" else "fp8"
    floats = model.weight_dtype == "fp4" or "fp4" in model.weight_storage or "4-bit float" in model.weight_storage
    return "fp4" if floats else "int4"


def matrix_peak(hardware: Hardware, kind: str) -> float:
    """Dense peak of a GPU for a type of matrices [FLOP/s]; types that it lacks are widened: 4 bits to bf16."""
    flops = hardware.gpu.flops
    peak: float | None = getattr(flops, kind, None)
    return peak if peak is not None else flops.bf16


def serving_kv_format(model: Model) -> str:
    """KV format that engines use for a checkpoint: fp8 where its smallest matrices have 8 bits or fewer, else bf16.

    Latent caches without sparse attention then hold one byte an element; a checkpoint's wish for 4-bit KV is not
    what is run.
    """
    sizes = model.part_bytes
    if min(sizes.routed_experts, sizes.dense, sizes.attention) > 1.25:
        return "bf16"
    sparse = any(getattr(group.attention, "indexer", None) is not None for group in model.layers)
    return "fp8" if sparse or not model.is_latent else "fp8-tensor"


def unabsorbed_key_flops(attention: Latent) -> int:
    """FLOPs of a query token against one key in latent attention with keys and values restored per head."""
    return 2 * attention.heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim)


def prefill_key_flops(attention: GroupedQuery | Latent | Compressed) -> int:
    """FLOPs of a query token against one key in a prefill: latent attention runs unabsorbed unless it is sparse."""
    if isinstance(attention, Latent) and attention.indexer is None:
        return unabsorbed_key_flops(attention)
    return per_key_flops(attention)


def _spans(attention: Attention | None) -> list[tuple[float, float]]:
    """Entries that a query sees as (entries a token, span in tokens)."""
    match attention:
        case GroupedQuery():
            return [(1.0, float(attention.window or inf))]
        case Latent():
            return [(1.0, float(attention.indexer.topk) if attention.indexer else inf)]
        case Compressed(ratio=0):
            return [(1.0, float(attention.window))]
        case Compressed():
            chosen = float(attention.ratio * attention.indexer.topk) if attention.indexer else inf
            return [(1 / attention.ratio, chosen), (1.0, float(attention.window))]
        case _:
            return []


class _Sums(dict[float, list[float]]):
    """Span: bytes, FLOPs of decode, FLOPs of prefill, each per token."""

    def add(self, span: float, *values: float) -> None:
        sums = self.setdefault(span, [0.0, 0.0, 0.0])
        for index, value in enumerate(values):
            sums[index] += value


def attention_curves(model: Model, kv_format: str, tp: int) -> tuple[Curve, Curve, Curve]:
    """Of one GPU of ``tp``: cache bytes that a decode step reads for a sequence, and the FLOPs of one token's attention
    in decode and in prefill, over the context. All three have the same spans.
    """
    form = check_format(kv_format, model)
    sums, fixed = _Sums(), [0.0, 0.0]
    for group in model.layers:
        layer, count = group.attention, group.count
        if isinstance(layer, Recurrent):
            fixed[0] += count * 2 * layer.state_elements * layer.state_element_bytes / tp
            fixed[1] += count * layer.flops_per_state_element * layer.state_elements / tp
        elif layer is not None:
            own = msgspec.structs.replace(layer, shares_kv=False) if isinstance(layer, GroupedQuery) else layer
            holders = min(tp, layer.kv_heads) if isinstance(layer, GroupedQuery) else 1
            per_entry = (
                count * entry_bytes(own, form) / holders,
                count * per_key_flops(layer) / tp,
                count * prefill_key_flops(layer) / tp,
            )
            for share, span in _spans(layer):
                sums.add(span, *(share * value for value in per_entry))
            indexer = getattr(layer, "indexer", None)
            if indexer is not None and indexer.own_keys:
                keys = count / (layer.ratio if isinstance(layer, Compressed) else 1)
                scores = keys * index_flops(indexer)
                sums.add(inf, keys * index_key_bytes(indexer), scores, scores)
    spans = tuple(sorted(sums))

    def curve(index: int, at_none: float) -> Curve:
        return Curve(fixed=at_none, slopes=tuple(sums[span][index] for span in spans), spans=spans)

    return curve(0, fixed[0]), curve(1, fixed[1]), curve(2, fixed[1])


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU of a rank does, before any fitted constant.

    ``hbm``: what streams reach of the HBM rate. ``kernels`` of a pass; ``old``: 1 on a GPU without FP4 units, else 0.
    ``weights``: bytes of all but the routed experts; ``experts``: bytes of the routed experts it holds, ``packed``: 1
    where they are 4-bit and must be widened. ``expert_share``: top-k of the experts; ``expert_ranks``: ranks whose
    tokens meet in an expert group. ``dense_time``, ``expert_time``, ``head_time``: seconds for one token of the rank at
    what large matrix products reach of the peak; ``expert_row_time``: for one row of each routed expert that the GPU
    holds. ``vector_bytes``: of a hidden vector. ``room``: bytes for KV beside the weights, of which a sequence holds
    ``held_per_token`` and ``held_per_sequence``. ``cache``: bytes read for a sequence; ``decode_attention``,
    ``prefill_attention``: seconds for a token at that rate in bf16. ``reduces``: all-reduces of a pass, with
    ``reduce_bytes`` a token sent by each GPU in all of them, over NICs where ``reduce_remote`` is 1. ``exchanges``:
    layers with dispatch and combine, over NICs where ``exchange_remote`` is 1, ``decode_exchange_bytes`` and
    ``prefill_exchange_bytes`` a token of the rank. ``link``, ``nic``: rates of a GPU inside the scale-up domain and of
    its NICs.
    """

    tp: Any
    dp: Any
    hbm: Any
    kernels: Any
    old: Any
    weights: Any
    experts: Any
    packed: Any
    expert_share: Any
    expert_ranks: Any
    dense_time: Any
    expert_time: Any
    expert_row_time: Any
    head_time: Any
    layers: Any
    vector_bytes: Any
    room: Any
    held_per_token: Any
    held_per_sequence: Any
    cache: Curve
    decode_attention: Curve
    prefill_attention: Curve
    reduces: Any
    reduce_bytes: Any
    reduce_remote: Any
    exchanges: Any
    exchange_remote: Any
    decode_exchange_bytes: Any
    prefill_exchange_bytes: Any
    link: Any
    nic: Any


_REPLICATED = ("q_a_proj", "kv_a_proj_with_mqa", "indexer.wq_b", "indexer.wk", "indexer.weights_proj", "wq_a", "wkv")
"""Matrices that lead to something without heads (a latent, index keys): whole on each GPU of a tensor-parallel rank."""


def _attention_parameters(model: Model, tp: int) -> float:
    """Attention parameters of one GPU of ``tp``."""
    return sum(
        group.count * parameters / (1 if matrix in _REPLICATED else tp)
        for group in model.layers
        for matrix, parameters in attention_shapes(group.attention, model.hidden_size).items()
    )


def exchange_copies(top_k: int, ranks: int) -> float:
    """Copies of a token that leave its GPU in an expert group of ``ranks`` GPUs: one for each other GPU that holds an
    expert it chose, n (1 - (1 - 1/n)^k) (n - 1)/n.
    """
    return float(touched(1 / ranks, top_k)) * (ranks - 1)


def rank(model: Model, hardware: Hardware, parallel: Parallel, kv_format: str, redundant_experts: int = 0) -> Rank:
    """What one GPU of a rank does, of an engine of ``tp * dp`` GPUs; ``redundant_experts``: copies in each layer.

    Raises InputError for a KV format that the model does not have.
    """
    gpu, tp, dp, ep = hardware.gpu, parallel.tp, parallel.dp, parallel.ep
    domain = scale_up_gpus(hardware)
    counted, size, hidden = count_parameters(model), model.part_bytes, model.hidden_size
    attention = _attention_parameters(model, tp)
    head = hidden * model.vocab_size / tp
    dense = {"attention": attention, "dense": counted.dense / tp, "shared_experts": counted.shared_experts / tp}
    kinds = {part: matrix_type(getattr(size, part), model) for part in size.__struct_fields__}
    peaks = {part: hardware.efficiency.decode * matrix_peak(hardware, kind) for part, kind in kinds.items()}
    experts = model.experts
    shards = max(tp * dp / ep, 1)  # GPUs that share one expert
    held = counted.routed_experts * (1 + redundant_experts / experts.count) / ep / shards if experts else 0.0
    chosen = counted.routed_experts * experts.top_k / experts.count / tp if experts else 0.0
    packed = kinds["routed_experts"] in ("fp4", "int4") and getattr(gpu.flops, kinds["routed_experts"], None) is None
    blocks = sum(group.count * ((group.attention is not None) + (group.ffn is not None)) for group in model.layers)
    exchanges = model.moe_layers if experts and dp > 1 else 0
    spread = -(-ep // domain)
    width = 3 * ((experts.latent or hidden) if experts else hidden)  # dispatch in fp8, combine in bf16
    if experts and ep > 1:
        copies = exchange_copies(experts.top_k, ep)
        decode_copies = float(remote_copies(experts.top_k, spread)) if spread > 1 else copies
        prefill_copies = float(remote_nodes(experts, spread)) if spread > 1 else copies
    else:
        decode_copies = prefill_copies = 0.0
    weights = sum(parameters * getattr(size, part) for part, parameters in dense.items())
    weights += (counted.router + head) * size.plain
    cache, decode_flops, prefill_flops = attention_curves(model, kv_format, tp)
    return Rank(
        tp=tp,
        dp=dp,
        hbm=gpu.hbm_bandwidth * hardware.efficiency.hbm,
        kernels=kernel_count(model),
        old=float(gpu.flops.fp4 is None),
        weights=weights,
        experts=held * size.routed_experts,
        packed=float(packed),
        expert_share=experts.top_k / experts.count if experts else 0.0,
        expert_ranks=dp,
        dense_time=sum(2 * parameters / peaks[part] for part, parameters in dense.items())
        + 2 * counted.router / peaks["plain"],
        expert_time=2 * chosen / peaks["routed_experts"],
        expert_row_time=2 * held / peaks["routed_experts"],
        head_time=2 * head / peaks["plain"],
        layers=model.num_layers,
        vector_bytes=2 * hidden,
        room=MEMORY_SHARE * gpu.hbm_capacity
        - hardware.efficiency.reserve
        - weights
        - held * size.routed_experts
        - counted.embedding * size.plain / tp,
        held_per_token=kv_total_bytes_per_token(model, kv_format) * kv_share_per_gpu(model, parallel, kv_format),
        held_per_sequence=state_bytes_per_sequence(model, kv_format) / tp,
        cache=cache,
        decode_attention=_times(decode_flops, 1 / peaks["plain"]),
        prefill_attention=_times(prefill_flops, 1 / peaks["plain"]),
        reduces=blocks if tp > 1 else 0,
        reduce_bytes=blocks * 4 * hidden * (tp - 1) / tp,
        reduce_remote=float(tp > domain),
        exchanges=exchanges,
        exchange_remote=float(spread > 1),
        decode_exchange_bytes=exchanges * width * decode_copies,
        prefill_exchange_bytes=exchanges * width * prefill_copies,
        link=hardware.nvlink.bandwidth if hardware.nvlink else hardware.pcie.rate or hardware.cnic.rate,
        nic=hardware.cnic.count * hardware.cnic.rate / gpu.count,
    )


def _times(curve: Curve, factor: Any) -> Curve:
    return Curve(fixed=curve.fixed * factor, slopes=tuple(s * factor for s in curve.slopes), spans=curve.spans)


def _plus(first: Curve, second: Curve) -> Curve:
    """The sum of two curves with the same spans."""
    slopes = tuple(a + b for a, b in zip(first.slopes, second.slopes, strict=True))
    return Curve(fixed=first.fixed + second.fixed, slopes=slopes, spans=first.spans)


# ---------------------------------------------------------------- times


class DecodeStep(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of a decode step; ``step_time`` puts them together."""

    base: Any
    slope: Any
    experts: Any
    expert_share: Any
    expert_ranks: Any
    cache: Curve


class PrefillPass(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of a prefill pass and of a prompt in it; ``prompt_time`` puts the latter together."""

    base: Any
    experts: Any
    expert_share: Any
    expert_ranks: Any
    per_request: Any
    per_token: Any
    attention: Curve
    per_token_hidden: Any
    per_token_link: Any


def link_rate(remote: Any, link: Any, nic: Any, nic_share: Any) -> Any:
    """Rate of a GPU's collectives [B/s]: of the scale-up link, or of its NICs where they leave the domain."""
    return (1 - remote) * NVLINK_SHARE * link + remote * nic_share * nic


def launch_time(r: Rank, c: Constants) -> Any:
    """Time of the kernels of a decode step however little they compute."""
    return r.kernels * c.kernel_time * (1 + r.old * (c.older_kernel_factor - 1))


def expert_read_time(r: Rank, c: Constants) -> Any:
    """Time to read all routed experts of a GPU once; 4-bit ones that must be widened come slower."""
    return r.experts / (r.hbm * c.hbm_share) * (1 + r.packed * (1 / c.unpack_share - 1))


def reduce_latency(r: Rank, c: Constants) -> Any:
    """Latency of all all-reduces of a pass."""
    return r.reduces * ((1 - r.reduce_remote) * c.reduce_latency + r.reduce_remote * c.network_latency)


def exchange_latency(r: Rank, c: Constants) -> Any:
    """Latency of all dispatches and combines of a pass."""
    return r.exchanges * (c.exchange_latency + r.exchange_remote * c.network_latency)


def reduce_time(r: Rank, c: Constants) -> Any:
    """Time of the bytes of all all-reduces for one token."""
    return r.reduce_bytes / link_rate(r.reduce_remote, r.link, r.nic, c.nic_share)


def vector_time(r: Rank, c: Constants) -> Any:
    """Time of norms, residuals and activations for one token: their vectors cross HBM."""
    return c.hidden_vectors * r.layers * r.vector_bytes / (r.hbm * c.hbm_share)


def padding_time(r: Rank, c: Constants) -> Any:
    """Time of the rows that fill the last tile of each routed expert in a prefill pass: half a tile."""
    return TILE_ROWS / 2 * r.expert_row_time / (c.expert_prefill_share * c.compute_share)


def decode_step(r: Rank, c: Constants) -> DecodeStep:
    """Coefficients of a decode step of a rank."""
    exchange = r.decode_exchange_bytes / link_rate(r.exchange_remote, r.link, r.nic, c.nic_share)
    flops = (r.dense_time + r.expert_time + r.head_time) / c.compute_share
    return DecodeStep(
        base=launch_time(r, c) + r.weights / (r.hbm * c.hbm_share) + reduce_latency(r, c) + exchange_latency(r, c),
        slope=c.sequence_time + flops + vector_time(r, c) + reduce_time(r, c) + exchange,
        experts=expert_read_time(r, c),
        expert_share=r.expert_share,
        expert_ranks=r.expert_ranks,
        cache=_plus(_times(r.cache, 1 / (r.hbm * c.hbm_share)), _times(r.decode_attention, 1 / c.compute_share)),
    )


def step_time(d: DecodeStep, sequences: Any, context: Any) -> Any:
    """Decode step of a rank with ``sequences`` sequences of ``context`` tokens."""
    experts = d.experts * touched(d.expert_share, sequences * d.expert_ranks)
    return d.base + experts + sequences * (d.slope + d.cache.value(context))


def prefill_pass(r: Rank, c: Constants) -> PrefillPass:
    """Coefficients of a prefill pass of a rank."""
    return PrefillPass(
        base=r.kernels * c.host_launch_time
        + r.weights / (r.hbm * c.hbm_share)
        + reduce_latency(r, c)
        + exchange_latency(r, c),
        experts=expert_read_time(r, c) + padding_time(r, c),
        expert_share=r.expert_share,
        expert_ranks=r.expert_ranks,
        per_request=r.head_time / c.compute_share,
        per_token=(r.dense_time + r.expert_time / c.expert_prefill_share) / c.compute_share + vector_time(r, c),
        attention=_times(r.prefill_attention, 1 / c.attention_prefill_share),
        per_token_hidden=r.prefill_exchange_bytes / link_rate(r.exchange_remote, r.link, r.nic, c.nic_share),
        per_token_link=reduce_time(r, c),
    )


def prompt_time(p: PrefillPass, tokens: Any, cached: Any = 0.0) -> Any:
    """Work of a prompt of ``tokens`` new tokens over ``cached`` ones, without the pass it is in."""
    attention = p.attention.times(tokens, seen(tokens, cached))
    return token_work(p.per_request, p.per_token, p.per_token_hidden, p.per_token_link, tokens, attention) + attention


def pass_time(p: PrefillPass, tokens: Any) -> Any:
    """What a pass takes beside the work of its prompts; ``tokens``: of one rank in it."""
    return p.base + p.experts * touched(p.expert_share, tokens * p.expert_ranks)


# ---------------------------------------------------------------- what a profile or an engine changes


def prefill_constants(c: Constants, own: Efficiencies) -> Constants:
    """The constants of a prefill engine, with what its profile says itself: ``prefill`` is a share of the peak that
    holds for all that a token takes outside attention.
    """
    if own.prefill is not None:
        c = replace(c, compute_share=own.prefill / own.decode, expert_prefill_share=1.0, hidden_vectors=0.0)
    return c if own.attention is None else replace(c, attention_prefill_share=own.attention / own.decode)


def decode_constants(c: Constants, own: Efficiencies, r: Rank) -> Constants:
    """The constants of a decode engine, with what its profile says itself: ``decode_layer_time`` of a layer is what all
    its kernels take.
    """
    if own.decode_layer_time is None:
        return c
    return replace(c, kernel_time=own.decode_layer_time * r.layers / r.kernels, older_kernel_factor=1.0)


def own_figures(own: Efficiencies) -> bool:
    """Whether a profile says something that constants were fitted for, so that their intervals say nothing."""
    return any(getattr(own, name) is not None for name in ("prefill", "attention", "decode_layer_time"))


def handover_rate(model: Model, kv_format: str, prefill: tuple[Rank, Parallel], decode: tuple[Rank, Parallel]) -> Any:
    """Bytes of a sequence's cache that all NICs of both engines move in a second; the slower side binds. What several
    GPUs of an engine hold moves to each of them (``handover_bytes``).
    """
    sides = (r.nic / kv_share_per_gpu(model, parallel, kv_format) for r, parallel in (prefill, decode))
    return HANDOVER_SHARE * minimum(*sides)


def model_intervals(model: Model, sides: Sequence[tuple[Hardware, Rank]]) -> ModelIntervals:
    """The intervals of all that the roofline says of two sides, by the classes of either."""
    data, classes = roofline_data(), dict[str, None]()
    for hardware, r in sides:
        remote = max(r.reduce_remote, r.exchange_remote) > 0
        classes |= dict.fromkeys(interval_classes(model.name, hardware.gpu.kind, hardware.name, remote=remote))
    names = ("tpot", "ttft", "prefill_rate")
    figures = {name: widest(getattr(data, name), tuple(classes)) for name in names}
    return ModelIntervals(**figures, seen="unseen" not in classes)


# ---------------------------------------------------------------- runs of a closed loop


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """A closed loop of clients, each with one request under way. ``apart``: 1 where prefill and decode are on engines
    of their own, else 0. ``sequences``: clients a decode rank; ``prompt``, ``generated``: tokens of a request.
    """

    apart: Any
    prompt: Any
    generated: Any
    sequences: Any
    prefill_ranks: Any
    decode_ranks: Any


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What a closed loop gets. ``sequences``: of a decode step; ``prompt``: work of one prompt; ``step``: one step."""

    tpot: Any
    ttft: Any
    step: Any
    prompt: Any
    sequences: Any


def resident_sequences(r: Rank, tokens: Any) -> Any:
    """Sequences of ``tokens`` tokens whose cache a rank holds at once, at least 1."""
    return maximum(r.room / (r.held_per_token * tokens + r.held_per_sequence), 1.0)


def aggregated_tpot(step: Any, sequences: Any, generated: Any, prompt: Any) -> Any:
    """TPOT where prefill runs on the same engine: each of the other sequences starts once in ``generated`` steps."""
    return step + maximum(sequences - 1, 0) / generated * prompt


def closed_loop_sequences(
    d: DecodeStep, share: Any, prompts_per_s: Any, generated: Any, ranks: Any, context: Any
) -> Any:
    """Sequences of a decode rank where prefill and decode are apart: at most its ``share`` of the clients, and what
    ``prompts_per_s`` of the prefill side fill: rate * generated * step / ranks. A fixed point, in a dozen rounds.
    """
    sequences = share
    for _ in range(12):
        fed = prompts_per_s * generated * step_time(d, sequences, context) / ranks
        sequences = minimum(share, maximum(fed, 1.0))
    return sequences


def unloaded_ttft(p: PrefillPass, c: Constants, tokens: Any, clients: Any) -> Any:
    """TTFT of a prompt of ``tokens`` with ``clients`` clients of a prefill rank that is not busy all the time: its own
    passes of at most CHUNK_TOKENS, and a share of the others' prompts.
    """
    passes = maximum(1.0, tokens / CHUNK_TOKENS) * pass_time(p, minimum(tokens, CHUNK_TOKENS))
    return passes + prompt_time(p, tokens) * (1 + c.queue_share * maximum(clients - 1, 0))


def serve(loop: Loop, decode: Rank, prefill: Rank, c: Constants) -> Served:
    """TPOT and TTFT of a closed loop.

    A decode rank holds what its memory does; the rest waits, for as long as requests last. Where prefill is apart, its
    passes are full, the decode side gets what they make, and clients beyond that queue for prefill.
    """
    d, p = decode_step(decode, c), prefill_pass(prefill, c)
    prompt = prompt_time(p, loop.prompt)
    context = loop.prompt + loop.generated / 2
    held = minimum(loop.sequences, resident_sequences(decode, loop.prompt + loop.generated))
    made = loop.prefill_ranks / (prompt + p.base * loop.prompt / CHUNK_TOKENS)
    fed = closed_loop_sequences(d, held, made, loop.generated, loop.decode_ranks, context)
    sequences = loop.apart * fed + (1 - loop.apart) * held
    step = step_time(d, sequences, context)
    tpot = aggregated_tpot(step, sequences, loop.generated, (1 - loop.apart) * prompt)
    clients = loop.sequences * loop.decode_ranks
    ttft = unloaded_ttft(p, c, loop.prompt, clients / loop.prefill_ranks) + (1 - loop.apart) * step / 2
    queue = loop.apart * (clients / made - loop.generated * step)
    waiting = (loop.sequences / held - 1) * loop.generated * tpot
    return Served(tpot=tpot, ttft=maximum(ttft, queue) + waiting, step=step, prompt=prompt, sequences=sequences)


def prompt_rate(r: Rank, c: Constants, prompt: Any, batch: Any, generated: Any = 1) -> Any:
    """Prompt tokens/s of a rank that takes ``batch`` prompts in a pass and then decodes what else they generate."""
    p, d = prefill_pass(r, c), decode_step(r, c)
    time = batch * prompt_time(p, prompt) + pass_time(p, batch * prompt)
    return batch * prompt / (time + (generated - 1) * step_time(d, batch, prompt + generated / 2))


def handover_bytes(model: Model, kv_format: str, parallel: Parallel, context: Any) -> Any:
    """Bytes of a sequence's cache that all GPUs of a rank together give out or take in.

    KV heads that are on several GPUs move to each of them (4 heads at tp 8: twice), a latent that is whole on each GPU
    moves tp times; recurrent states and windows are split.
    """
    copies = parallel.tp * kv_share_per_gpu(model, parallel, kv_format)
    return kv_total_bytes_per_token(model, kv_format) * copies * context + state_bytes_per_sequence(model, kv_format)


def handover_time(bytes_sent: Any, bytes_taken: Any, sender: Rank, taker: Rank) -> Any:
    """Time to move a sequence from a prefill to a decode rank with all NICs of both; the slower side binds."""
    return maximum(
        bytes_sent / (sender.tp * sender.nic * HANDOVER_SHARE), bytes_taken / (taker.tp * taker.nic * HANDOVER_SHARE)
    )
