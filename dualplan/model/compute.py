"""FLOPs of a turn: GEMMs from the active parameters, attention by layer kind. A multiply-add counts 2.

Tokens and contexts may be floats, arrays, fractions or symbols. Attention of ``tokens`` new tokens is counted against
the cached ``context`` alone, as DualPath's cache-compute table does; for a prefill without a prefix, or a long one,
pass the mean length that a new token sees, ``context + tokens / 2``. MLA is counted absorbed, in the latent space.
Source of the formulas: shapes of the matrix products of each kind; DualPath (arXiv 2602.21548), table 1, to check
them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dualplan.model.elementwise import minimum
from dualplan.spec.layers import Attention, Compressed, GroupedQuery, Indexer, Latent, Recurrent
from dualplan.spec.model import Model, count_parameters


class TurnFlops(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs of a turn or a step: matrix products with weights, and attention over the cache."""

    gemm: Any
    attention: Any

    @property
    def total(self) -> Any:
        """Both together."""
        return self.gemm + self.attention


def active_parameters(model: Model) -> int:
    """Parameters that one token multiplies with: routed experts by top-k, the LM head, not the input embedding."""
    return count_parameters(model).active


def gemm_flops(model: Model, tokens: Any) -> Any:
    """FLOPs of ``tokens`` tokens in matrix products with weights: 2 * active parameters * tokens."""
    return 2 * active_parameters(model) * tokens


def attention_flops(model: Model, tokens: Any, context: Any) -> Any:
    """FLOPs of ``tokens`` new tokens in attention over ``context`` cached tokens, over all layers."""
    per_token = sum(group.count * layer_attention_flops(group.attention, context) for group in model.layers)
    return per_token * tokens


def turn_flops(model: Model, append: Any, context: Any) -> TurnFlops:
    """FLOPs of the prefill of a turn that appends ``append`` tokens to a cached context of ``context`` tokens."""
    return TurnFlops(gemm=gemm_flops(model, append), attention=attention_flops(model, append, context))


def decode_step_flops(model: Model, context: Any) -> TurnFlops:
    """FLOPs of one decoded token of one sequence with ``context`` cached tokens."""
    return turn_flops(model, 1, context)


def layer_attention_flops(attention: Attention | None, context: Any) -> Any:
    """FLOPs of one new token in the attention of one layer over ``context`` cached tokens, without projections."""
    match attention:
        case GroupedQuery(window=None):
            return per_key_flops(attention) * context
        case GroupedQuery(window=int(window)):
            return per_key_flops(attention) * minimum(context, window)
        case Latent(indexer=None):
            return per_key_flops(attention) * context
        case Latent(indexer=Indexer() as indexer):
            return per_key_flops(attention) * minimum(context, indexer.topk) + index_flops(indexer) * context
        case Compressed(ratio=0):
            return per_key_flops(attention) * minimum(context, attention.window)
        case Compressed(indexer=None):
            return per_key_flops(attention) * (context / attention.ratio + minimum(context, attention.window))
        case Compressed(indexer=Indexer() as indexer):
            entries = context / attention.ratio
            seen = minimum(entries, indexer.topk) + minimum(context, attention.window)
            return per_key_flops(attention) * seen + index_flops(indexer) * entries
        case Recurrent():
            return attention.flops_per_state_element * attention.state_elements
        case _:
            return 0


def per_key_flops(attention: GroupedQuery | Latent | Compressed) -> int:
    """FLOPs of one query token against one cached entry: scores and the weighted sum, over all heads."""
    if isinstance(attention, GroupedQuery):
        return 2 * attention.heads * (attention.head_dim + attention.v_head_dim)
    if isinstance(attention, Latent):
        return 2 * attention.heads * (2 * attention.kv_lora_rank + attention.qk_rope_head_dim)
    return 2 * attention.heads * 2 * attention.head_dim


def index_flops(indexer: Indexer) -> int:
    """FLOPs of the indexer per query token and index key; 0 in layers that reuse another layer's choice."""
    return 2 * indexer.heads * indexer.head_dim if indexer.own_keys else 0


def cache_compute_ratio(kv_bytes: Any, flops: Any) -> Any:
    """GB of KV-cache to load for each PFLOP of compute (DualPath, table 1)."""
    return kv_bytes / 10**9 / (flops / 10**15)
