"""Layer kinds of a decoder: what each attention and feed-forward kind is made of, as frozen records.

The records hold shapes only. Bytes are in dualplan.model.kv, FLOPs in dualplan.model.compute, memory in
dualplan.model.memory.
"""

from __future__ import annotations

import msgspec


class Indexer(msgspec.Struct, frozen=True, kw_only=True):
    """The sparse selector of DeepSeek sparse attention: scores every cached key, attention then sees the best ``topk``.

    ``own_keys`` is false in layers that reuse the choice of an earlier layer: they keep no index keys and score
    nothing.
    """

    heads: int
    head_dim: int
    topk: int
    own_keys: bool = True


class GroupedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Softmax attention with keys and values per head: MHA, GQA and MQA.

    ``window``: only the last so many tokens are kept (None: all). ``chunked``: the window is a chunk that starts
    anew, so it is an upper bound. ``output_gate``: the query projection also makes a gate. ``key_is_value``: one
    projection for both, both are cached. ``shares_kv``: reads the cache of an earlier layer and keeps none of its
    own.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    chunked: bool = False
    output_gate: bool = False
    key_is_value: bool = False
    shares_kv: bool = False


class Latent(msgspec.Struct, frozen=True, kw_only=True):
    """Multi-head latent attention (MLA): one latent and one rotary key per token, shared by all heads."""

    heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    output_gate: bool = False
    indexer: Indexer | None = None


class Compressed(msgspec.Struct, frozen=True, kw_only=True):
    """DeepSeek-V4 attention: ``ratio`` tokens become one entry, key and value at once; ratio 0 keeps the window only.

    Every layer also attends to the last ``window`` tokens. ``indexer`` selects entries (ratio 4 in the published
    models).
    """

    heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    ratio: int
    window: int
    indexer: Indexer | None = None


class Recurrent(msgspec.Struct, frozen=True, kw_only=True):
    """Linear attention and state-space layers: a state of constant size per sequence, nothing per token.

    ``rule``: gated-delta-net, kda, mamba2 or lightning. ``state_elements`` of ``state_element_bytes`` each;
    ``conv_elements`` is the tail of the short convolutions, kept in the dtype of the model.
    ``flops_per_state_element`` per token: a multiply-add to update and one to read the state (4), and one more for
    the prediction of the delta rule (6). ``shapes``: matrix name, parameters.
    """

    rule: str
    state_elements: int
    state_element_bytes: int
    conv_elements: int
    conv_element_bytes: int
    flops_per_state_element: int
    shapes: tuple[tuple[str, int], ...]


Attention = GroupedQuery | Latent | Compressed | Recurrent


class Dense(msgspec.Struct, frozen=True, kw_only=True):
    """A feed-forward layer: ``matrices`` is 3 with a gate (SwiGLU), 2 without."""

    intermediate: int
    matrices: int = 3


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """A mixture of experts. ``shared_intermediate``: width of all that every token passes beside the routed experts.

    ``latent``: routed experts work on a vector of this width, which is also what is dispatched.
    ``groups``/``groups_kept``: group-limited routing (DeepSeek: 4 of 8). ``shared_gate``: one more column that weighs
    the shared expert.
    """

    count: int
    top_k: int
    intermediate: int
    matrices: int = 3
    shared_intermediate: int = 0
    shared_gate: bool = False
    groups: int = 1
    groups_kept: int = 1
    latent: int | None = None


FeedForward = Dense | Experts


class LayerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """``count`` layers alike, ``first`` the index of the first. Attention or feed-forward may be absent."""

    count: int
    first: int
    attention: Attention | None
    ffn: FeedForward | None


def kind_name(attention: Attention | None) -> str:
    """A short name of the attention kind for tables and messages."""
    match attention:
        case None:
            return "none"
        case GroupedQuery(window=None):
            return "full"
        case GroupedQuery(chunked=True):
            return f"chunked {attention.window}"
        case GroupedQuery():
            return f"sliding {attention.window}"
        case Latent(indexer=None):
            return "mla"
        case Latent(indexer=Indexer(own_keys=False)):
            return "mla, shared index"
        case Latent():
            return "mla + indexer"
        case Compressed(ratio=0):
            return f"window {attention.window}"
        case Compressed():
            return f"compressed {attention.ratio}"
        case Recurrent():
            return attention.rule


def attention_shapes(attention: Attention | None, hidden: int) -> dict[str, int]:
    """Parameters of each matrix of an attention layer by module name; norms and biases are left out (below 0.1 %)."""
    match attention:
        case None:
            return {}
        case GroupedQuery():
            return _grouped_query_shapes(attention, hidden)
        case Latent():
            return _latent_shapes(attention, hidden)
        case Compressed():
            return _compressed_shapes(attention, hidden)
        case Recurrent():
            return dict(attention.shapes)


def _grouped_query_shapes(layer: GroupedQuery, hidden: int) -> dict[str, int]:
    shapes = {
        "q_proj": hidden * layer.heads * layer.head_dim * (2 if layer.output_gate else 1),
        "o_proj": layer.heads * layer.v_head_dim * hidden,
    }
    if not layer.shares_kv:
        shapes["k_proj"] = hidden * layer.kv_heads * layer.head_dim
        if not layer.key_is_value:
            shapes["v_proj"] = hidden * layer.kv_heads * layer.v_head_dim
    return shapes


def _latent_shapes(layer: Latent, hidden: int) -> dict[str, int]:
    query = layer.heads * (layer.qk_nope_head_dim + layer.qk_rope_head_dim)
    if layer.q_lora_rank is None:
        shapes = {"q_proj": hidden * query}
    else:
        shapes = {"q_a_proj": hidden * layer.q_lora_rank, "q_b_proj": layer.q_lora_rank * query}
    shapes |= {
        "kv_a_proj_with_mqa": hidden * (layer.kv_lora_rank + layer.qk_rope_head_dim),
        "kv_b_proj": layer.kv_lora_rank * layer.heads * (layer.qk_nope_head_dim + layer.v_head_dim),
        "o_proj": layer.heads * layer.v_head_dim * hidden,
    }
    if layer.output_gate:
        shapes["g_proj"] = hidden * layer.heads * layer.v_head_dim
    if layer.indexer and layer.indexer.own_keys:
        index = layer.indexer
        shapes |= {
            "indexer.wq_b": (layer.q_lora_rank or hidden) * index.heads * index.head_dim,
            "indexer.wk": hidden * index.head_dim,
            "indexer.weights_proj": hidden * index.heads,
        }
    return shapes


def _compressed_shapes(layer: Compressed, hidden: int) -> dict[str, int]:
    width = layer.heads * layer.head_dim
    shapes = {
        "wq_a": hidden * layer.q_lora_rank,
        "wq_b": layer.q_lora_rank * width,
        "wkv": hidden * layer.head_dim,
        "wo_a": width * layer.o_lora_rank,
        "wo_b": layer.o_groups * layer.o_lora_rank * hidden,
    }
    # values and gates have a pooling projection each; ratio 4 pools overlapping windows and has them twice as wide
    pooling = 2 * hidden * (2 if layer.ratio == 4 else 1)
    if layer.ratio:
        shapes["compressor.wkv_gate"] = pooling * layer.head_dim
    if layer.indexer:
        shapes |= {
            "indexer.wq_b": layer.q_lora_rank * layer.indexer.heads * layer.indexer.head_dim,
            "indexer.weights_proj": hidden * layer.indexer.heads,
            "indexer.compressor.wkv_gate": pooling * layer.indexer.head_dim,
        }
    return shapes


class FeedForwardSize(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of one feed-forward layer by part; ``expert`` is one routed expert."""

    dense: int = 0
    expert: int = 0
    shared: int = 0
    router: int = 0


def ffn_size(ffn: FeedForward | None, hidden: int) -> FeedForwardSize:
    """Parameters of a feed-forward layer. The projections into and out of a latent width count as shared."""
    match ffn:
        case None:
            return FeedForwardSize()
        case Dense():
            return FeedForwardSize(dense=ffn.matrices * hidden * ffn.intermediate)
        case Experts():
            shared = ffn.matrices * hidden * ffn.shared_intermediate + (hidden if ffn.shared_gate else 0)
            return FeedForwardSize(
                expert=ffn.matrices * (ffn.latent or hidden) * ffn.intermediate,
                shared=shared + (2 * hidden * ffn.latent if ffn.latent else 0),
                router=hidden * ffn.count,
            )
