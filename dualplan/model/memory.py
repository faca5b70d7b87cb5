"""GPU memory: weights of one GPU by part under a parallelism, and what is left for KV-cache. Sizes in bytes.

Check values: DeepSeek-V3.2 on 80 GiB cards, EP32 with 32 redundant experts 42.9 GB of weights and 30.2 GB for KV;
EP144 with 32 redundant 25.0 and 48.1 GB.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dualplan.model.elementwise import floor, maximum
from dualplan.model.kv import layer_cache
from dualplan.spec.layers import Experts, GroupedQuery, attention_shapes, ffn_size
from dualplan.spec.model import Model, count_parameters
from dualplan.spec.parallel import Parallel

UTILIZATION = 0.9
"""Share of HBM that an engine may use: vLLM's gpu_memory_utilization, and SGLang's documented mem-fraction-static."""

OTHER_RESERVE = 3.5 * 2**30
"""Activations, graphs and runtime [B]: other_mem of aiconfigurator's system files."""

NCCL_RESERVE = 392 * 2**20
"""Communication buffers of 8 GPUs [B]: nccl_mem of aiconfigurator's system files."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of one GPU by part [B]. ``embedding``: input embedding, LM head and other look-up tables."""

    routed_experts: float
    shared_experts: float
    attention: float
    dense: float
    router: float
    embedding: float

    @property
    def total(self) -> float:
        """All parts."""
        return self.routed_experts + self.shared_experts + self.attention + self.dense + self.router + self.embedding


def weights_per_gpu(
    model: Model, parallel: Parallel, *, redundant_experts: int = 0, prediction_layers: int = 0
) -> Weights:
    """Weights of one GPU by part [B].

    With expert parallelism a GPU holds ``ceil((experts + redundant) / ep)`` whole experts of each layer, and its
    share of the rest: everything under data parallelism, 1/tp under tensor parallelism. Without (ep 1) experts are
    sharded over tp too. ``prediction_layers``: layers for multi-token prediction, each like the last layer with one
    projection of two hidden vectors.
    """
    counted, size, tp = count_parameters(model), model.part_bytes, parallel.tp
    routed = sum(
        group.count
        * _experts_held(group.ffn, parallel, redundant_experts)
        * ffn_size(group.ffn, model.hidden_size).expert
        for group in model.layers
        if isinstance(group.ffn, Experts)
    )
    last = model.layers[-1]
    extra = ffn_size(last.ffn, model.hidden_size)
    if isinstance(last.ffn, Experts):
        routed += prediction_layers * _experts_held(last.ffn, parallel, redundant_experts) * extra.expert
    attention = sum(attention_shapes(last.attention, model.hidden_size).values()) + 2 * model.hidden_size**2
    return Weights(
        routed_experts=routed * size.routed_experts,
        shared_experts=(counted.shared_experts + prediction_layers * extra.shared) * size.shared_experts / tp,
        attention=(counted.attention + prediction_layers * attention) * size.attention / tp,
        dense=(counted.dense + prediction_layers * extra.dense) * size.dense / tp,
        router=(counted.router + prediction_layers * extra.router) * size.plain / tp,
        embedding=(counted.embedding + counted.head + counted.other) * size.plain / tp,
    )


def _experts_held(experts: Experts, parallel: Parallel, redundant: int) -> float:
    if parallel.ep == 1:
        return (experts.count + redundant) / parallel.tp
    return -(-(experts.count + redundant) // parallel.ep)


def weight_bytes_per_gpu(model: Model, parallel: Parallel, *, redundant_experts: int = 0) -> float:
    """All weights of one GPU [B]."""
    return weights_per_gpu(model, parallel, redundant_experts=redundant_experts).total


def kv_bytes_left(
    capacity: Any, weights: Any, *, share: float = UTILIZATION, reserve: float = OTHER_RESERVE + NCCL_RESERVE
) -> Any:
    """Bytes of one GPU for KV-cache: share * capacity - weights - reserve. Negative where the weights do not fit."""
    return share * capacity - weights - reserve


def kv_share_per_gpu(model: Model, parallel: Parallel, kv_format: str) -> float:
    """Share of a sequence's growing cache that each GPU of a tensor-parallel group holds, 1/tp to 1.

    KV heads are split over the group; what has no heads to split (a latent, a compressed entry) is held by every GPU.
    """
    whole = held = 0.0
    for group in model.layers:
        cache = layer_cache(group.attention, kv_format)
        size = group.count * (cache.per_token + cache.index_per_token)
        heads = group.attention.kv_heads if isinstance(group.attention, GroupedQuery) else 1
        whole += size
        held += size / min(parallel.tp, heads)
    return held / whole if whole else 1.0


def held_turns(room: Any, size: Any, *, alike: bool) -> Any:
    """Turns of mean ``size`` that a memory of ``room`` holds [both B], at least one.

    Whole ones if all turns are alike; else on average half a turn's size is left over.
    """
    return maximum(floor(room / size) if alike else room / size - 0.5, 1)
