"""KV-cache bytes: what grows per token, what is constant per sequence, what a decode step reads.

Sizes in bytes, lengths in tokens. Formats by name, as :func:`check_format` gives them for a model:

* ``bf16``, ``fp16``: 2 B per element. ``fp8``, ``int8``: 1 B per element. ``nvfp4``: 4 bits and an fp8 scale for 16.
* For MLA layers ``fp8`` is the layout of FlashMLA: the latent in fp8 with an fp32 scale for 128, the rotary part in
  bf16 (512 + 16 + 128 = 656 B).
* DeepSeek-V4 entries have one layout whatever is asked, the model is trained with it: 448 fp8 + 8 for scales of 64 +
  128 = 584 B.
* ``fp8-tensor``: 1 B per element everywhere, one scale for a whole tensor.
* ``mla-704``: the unstated convention that reproduces the DeepSeek rows of DualPath's cache-compute table: 576 + 128
  B per token and MLA layer, with or without an indexer. For that table only.

Index keys of sparse attention are fp8 with an fp32 scale for 128 in every format (128 + 4 = 132 B).
Sources: FlashMLA and DeepGEMM (cache layouts), model configurations (shapes).
"""

from __future__ import annotations

from typing import Any

import msgspec

from dualplan.errors import InputError, did_you_mean
from dualplan.model.elementwise import floor, minimum
from dualplan.spec.layers import Attention, Compressed, GroupedQuery, Indexer, Latent, Recurrent
from dualplan.spec.model import KV_FORMATS, Model

BLOCK_TOKENS = 64
"""Tokens of a cache block, the unit of a hit."""

_ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp8-tensor": 1, "int8": 1, "nvfp4": 0.5625}


_OTHER_NAMES = {
    "auto": "",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_ds_mla": "fp8",
    "flashmla": "fp8",
}


def check_format(name: str, model: Model, where: str = "--kv-dtype") -> str:
    """The KV format of that name (or of a name that engines use for it) for a model. Raises InputError."""
    form = _OTHER_NAMES.get(name.lower(), name.lower()) or model.kv_format
    if form not in KV_FORMATS:
        hint = did_you_mean(name, (*KV_FORMATS, *_OTHER_NAMES)) or "known: " + ", ".join(KV_FORMATS)
        raise InputError(where, f'"{name}" is not a KV-cache format', hint)
    if form == "mla-704" and not model.is_latent:
        raise InputError(where, f"mla-704 is a format of MLA models, {model.name} is not one")
    return "fp8" if has_own_layout(model) else form


def has_own_layout(model: Model) -> bool:
    """Whether the cache of a model has one layout that no format changes (DeepSeek-V4)."""
    return any(isinstance(group.attention, Compressed) for group in model.layers)


def paper_format(model: Model) -> str:
    """The format of DualPath's cache-compute table: 704 B per token and MLA layer, else the model's default."""
    return "mla-704" if model.is_latent else model.kv_format


def entry_bytes(attention: Attention | None, kv_format: str) -> float:
    """Bytes of one cached entry of a layer without its index key; 0 for layers that cache nothing of their own."""
    if isinstance(attention, GroupedQuery):
        if attention.shares_kv:
            return 0
        elements = attention.kv_heads * (attention.head_dim + attention.v_head_dim)
        return elements * _ELEMENT_BYTES.get(kv_format, 1)
    if isinstance(attention, Latent):
        return _latent_entry(attention.kv_lora_rank, attention.qk_rope_head_dim, kv_format)
    if isinstance(attention, Compressed):
        rope = attention.qk_rope_head_dim
        latent = attention.head_dim - rope
        return latent + _round_up(_round_up(latent, 64) // 64, 8) + 2 * rope
    return 0


def _latent_entry(rank: int, rope: int, kv_format: str) -> float:
    if kv_format == "fp8":
        return rank + 4 * (_round_up(rank, 128) // 128) + 2 * rope
    if kv_format == "mla-704":
        return rank + rope + 128
    return (rank + rope) * _ELEMENT_BYTES[kv_format]


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def index_key_bytes(indexer: Indexer | None) -> int:
    """Bytes of one index key: fp8 elements and an fp32 scale for 128."""
    if indexer is None or not indexer.own_keys:
        return 0
    return indexer.head_dim + 4 * (_round_up(indexer.head_dim, 128) // 128)


class LayerCache(msgspec.Struct, frozen=True, kw_only=True):
    """Cache of one layer [B]: per token, its index keys per token, per sequence however long it is.

    ``tail``: the window that compressed layers keep beside their entries. Engines rebuild it from the last tokens, so
    it is not part of what is stored for a prefix.
    """

    per_token: float = 0
    index_per_token: float = 0
    per_sequence: float = 0
    tail: float = 0


def layer_cache(attention: Attention | None, kv_format: str) -> LayerCache:
    """The cache of one layer in a format."""
    entry = entry_bytes(attention, kv_format)
    match attention:
        case GroupedQuery(window=None):
            return LayerCache(per_token=entry)
        case GroupedQuery(window=int(window)):
            return LayerCache(per_sequence=window * entry)
        case Latent():
            return LayerCache(
                per_token=entry, index_per_token=0 if kv_format == "mla-704" else index_key_bytes(attention.indexer)
            )
        case Compressed(ratio=0):
            return LayerCache(per_sequence=attention.window * entry)
        case Compressed():
            return LayerCache(
                per_token=entry / attention.ratio,
                index_per_token=index_key_bytes(attention.indexer) / attention.ratio,
                tail=attention.window * entry,
            )
        case Recurrent():
            state = attention.state_elements * attention.state_element_bytes
            return LayerCache(per_sequence=state + attention.conv_elements * attention.conv_element_bytes)
        case _:
            return LayerCache()


def _sum(model: Model, kv_format: str, field: str) -> float:
    total: float = sum(group.count * getattr(layer_cache(group.attention, kv_format), field) for group in model.layers)
    return int(total) if total == int(total) else total


def kv_bytes_per_token(model: Model, kv_format: str) -> float:
    """Bytes that the cache grows by per token, over all layers, without index keys."""
    return _sum(model, kv_format, "per_token")


def kv_index_bytes_per_token(model: Model, kv_format: str) -> float:
    """Bytes of index keys per token, over all layers."""
    return _sum(model, kv_format, "index_per_token")


def kv_total_bytes_per_token(model: Model, kv_format: str) -> float:
    """Bytes that the cache grows by per token with its index keys: what is stored and moved."""
    return kv_bytes_per_token(model, kv_format) + kv_index_bytes_per_token(model, kv_format)


def state_bytes_per_sequence(model: Model, kv_format: str) -> float:
    """Bytes per sequence that do not grow: recurrent states and full sliding windows."""
    return _sum(model, kv_format, "per_sequence")


def window_tail_bytes_per_sequence(model: Model, kv_format: str) -> float:
    """Bytes of the windows that compressed layers keep in GPU memory beside their entries."""
    return _sum(model, kv_format, "tail")


def hit_tokens(context: Any, block: int = BLOCK_TOKENS) -> Any:
    """Tokens of a cached context that are reused: whole blocks."""
    return floor(context / block) * block


def hit_bytes(model: Model, kv_format: str, context: Any, block: int = BLOCK_TOKENS) -> Any:
    """Bytes to load for a cached context: whole blocks of what grows, and the state."""
    growing = kv_total_bytes_per_token(model, kv_format) * hit_tokens(context, block)
    return growing + state_bytes_per_sequence(model, kv_format)


def kv_read_bytes(model: Model, kv_format: str, context: Any) -> Any:
    """Bytes of cache that a decode step reads from HBM for one sequence of ``context`` tokens.

    Sparse attention reads all index keys and the chosen entries only; a recurrent state is read and written.
    """
    return sum(group.count * _layer_read(group.attention, kv_format, context) for group in model.layers)


def _layer_read(attention: Attention | None, kv_format: str, context: Any) -> Any:
    if isinstance(attention, GroupedQuery) and attention.shares_kv:
        attention = msgspec.structs.replace(attention, shares_kv=False)  # it reads the cache of an earlier layer
    entry = entry_bytes(attention, kv_format)
    match attention:
        case GroupedQuery(window=None) | Latent(indexer=None):
            return entry * context
        case GroupedQuery(window=int(window)):
            return entry * minimum(context, window)
        case Latent(indexer=Indexer() as indexer):
            return index_key_bytes(indexer) * context + entry * minimum(context, indexer.topk)
        case Compressed(ratio=0):
            return entry * minimum(context, attention.window)
        case Compressed(indexer=None):
            return entry * (context / attention.ratio + minimum(context, attention.window))
        case Compressed(indexer=Indexer() as indexer):
            entries = context / attention.ratio
            chosen = minimum(entries, indexer.topk) + minimum(context, attention.window)
            return index_key_bytes(indexer) * entries + entry * chosen
        case Recurrent():
            return 2 * attention.state_elements * attention.state_element_bytes
        case _:
            return 0
