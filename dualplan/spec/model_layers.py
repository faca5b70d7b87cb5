"""The layers of a decoder from its config.json: which attention each layer has, family by family.

Rules follow the modelling code of each family; what a file leaves out is filled with the default of its library where
one is known.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dualplan.errors import did_you_mean
from dualplan.spec.layers import (
    Attention,
    Compressed,
    Dense,
    FeedForward,
    GroupedQuery,
    Indexer,
    Latent,
    LayerGroup,
)
from dualplan.spec.model_config import MAX_LAYERS, Config
from dualplan.spec.model_families import Family
from dualplan.spec.model_ffn import ffn_kinds, ffn_table
from dualplan.spec.model_recurrent import RECURRENT

_ALIASES = {
    "full": "full",
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "global_attention": "full",
    "sliding": "sliding",
    "sliding_attention": "sliding",
    "sliding_window": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "kda": "linear",
    "mamba": "linear",
    "mamba2": "linear",
}


def read_layers(config: Config, family: Family, rules: list[str]) -> tuple[LayerGroup, ...]:
    """All layers, alike ones together. Faults of the file become problems of ``config``."""
    for key, value in family.defaults.items():
        if not config.has(key):
            config.values[key] = value
            rules.append(f"{key} is not in the file: {value}, the default of its library")
    count = config.integer("num_hidden_layers", most=MAX_LAYERS)
    if config.has("hybrid_override_pattern", "layers_block_type"):
        kinds, feed = _block_pattern(config, count)
    else:
        kinds, feed = _attention_kinds(config, family, count, rules), ffn_kinds(config, count)
    attention = _attention_table(config, family, count, rules)
    groups: dict[tuple[Attention | None, FeedForward | None], LayerGroup] = {}
    shared = config.integer("num_kv_shared_layers", default=0, least=0, most=count)
    ffn = ffn_table(config, plain=family.plain_mlp, gated_shared=family.gated_shared)
    wide = config.boolean("use_double_wide_mlp", False)
    for index, (kind, inner) in enumerate(zip(kinds, feed, strict=False)):
        layer = None if kind == "none" else attention(kind, index)
        mlp = None if inner == "none" else ffn(inner)
        if index >= count - shared and isinstance(layer, GroupedQuery):
            layer = msgspec.structs.replace(layer, shares_kv=True)
            if wide and isinstance(mlp, Dense):
                mlp = msgspec.structs.replace(mlp, intermediate=2 * mlp.intermediate)
        group = groups.get((layer, mlp))
        groups[layer, mlp] = LayerGroup(
            count=group.count + 1 if group else 1, first=group.first if group else index, attention=layer, ffn=mlp
        )
    return tuple(groups.values())


# ---------------------------------------------------------------- which attention


def _attention_kinds(config: Config, family: Family, count: int, rules: list[str]) -> tuple[str, ...]:
    """One word per layer: full, sliding, chunked, linear, mla, compressed, or none."""
    full = "mla" if _has_latent(config) else "full"
    if config.has("compress_ratios"):
        return ("compressed",) * count
    if config.has("linear_attn_config"):
        linear = config.mapping("linear_attn_config")
        recurrent, rest = set(linear.integers("kda_layers")), set(linear.integers("full_attn_layers"))
        if recurrent | rest != set(range(1, count + 1)) or recurrent & rest:
            linear.refuse("kda_layers", f"with full_attn_layers does not name each of the layers 1 to {count} once")
        return tuple("linear" if index + 1 in recurrent else full for index in range(count))
    if config.has("hybrid_layer_pattern"):
        return _numbered(config, "hybrid_layer_pattern", {0: full, 1: "sliding"}, count)
    if config.has("attn_type_list"):
        return _numbered(config, "attn_type_list", {0: "linear", 1: full}, count)
    if config.has("layer_types"):
        return tuple(full if kind == "full" else kind for kind in _named(config, "layer_types", count))
    if config.has("full_attention_interval") or family.linear == "gated-delta-net":
        every = config.integer("full_attention_interval", default=4)
        return tuple(full if (index + 1) % every == 0 else "linear" for index in range(count))
    return tuple(full if kind == "full" else kind for kind in _window_kinds(config, family, count, rules))


def _window_kinds(config: Config, family: Family, count: int, rules: list[str]) -> tuple[str, ...]:
    if family.window == "chunked":
        return _chunked_kinds(config, count)
    width = config.integer("sliding_window", "sliding_window_size", default=0, least=0)
    flag = config.boolean("use_sliding_window", family.window != "flag")
    if width == 0 or not flag:
        if width and not flag:
            rules.append(f"sliding_window {width} is not in use (use_sliding_window is false): full attention")
        return ("full",) * count
    limit = config.integer("max_position_embeddings", default=0, least=0)
    if limit and width >= limit:
        rules.append(
            f"the sliding window of {width} is not shorter than the longest context of {limit}: full attention"
        )
        return ("full",) * count
    if config.has("sliding_window_pattern", "_sliding_window_pattern") or family.window == "pattern":
        value = config.values.get("sliding_window_pattern")
        if isinstance(value, str):
            return _lettered(config, "sliding_window_pattern", {"L": "sliding", "G": "full"}, value, count, cycle=True)
        every = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=family.pattern)
        return tuple("full" if (index + 1) % every == 0 else "sliding" for index in range(count))
    if family.window == "flag":
        first = config.integer("max_window_layers", default=0, least=0)
        return tuple("sliding" if index >= first else "full" for index in range(count))
    if family.window in ("even", "all"):
        step = 2 if family.window == "even" else 1
        return tuple("sliding" if index % step == 0 else "full" for index in range(count))
    config.refuse("sliding_window", f"{width} is set, and which layers slide is not said", "layer_types lists them")
    return ("full",) * count


def _chunked_kinds(config: Config, count: int) -> tuple[str, ...]:
    """Llama 4: chunked attention where there are rotary positions, full attention in every fourth layer."""
    if not config.has("attention_chunk_size"):
        return ("full",) * count
    if config.values.get("no_rope_layers"):
        return _numbered(config, "no_rope_layers", {0: "full", 1: "chunked"}, count)
    every = config.integer("no_rope_layer_interval", default=4)
    return tuple("full" if (index + 1) % every == 0 else "chunked" for index in range(count))


def _numbered(config: Config, key: str, words: dict[int, str], count: int) -> tuple[str, ...]:
    values = config.integers(key, count)
    for value in dict.fromkeys(values):
        if value not in words:
            config.refuse(
                key,
                f"the attention kind {value} is not known, so nothing is computed",
                f"known: {', '.join(map(str, words))}",
            )
    return tuple(words.get(value, "full") for value in values)


def _named(config: Config, key: str, count: int) -> tuple[str, ...]:
    names = config.texts(key, count)
    for name in dict.fromkeys(names):
        if name not in _ALIASES:
            config.refuse(
                key, f'the attention kind "{name}" is not known, so nothing is computed', did_you_mean(name, _ALIASES)
            )
    return tuple(_ALIASES.get(name, "full") for name in names)


def _lettered(
    config: Config, key: str, words: dict[str, str], text: str, count: int, *, cycle: bool = False
) -> tuple[str, ...]:
    if not text or (len(text) != count and not cycle):
        config.refuse(key, f"has {len(text)} letters for {count} layers")
        return ("full",) * count
    for letter in dict.fromkeys(text):
        if letter not in words:
            config.refuse(
                key, f'the layer kind "{letter}" is not known, so nothing is computed', f"known: {' '.join(words)}"
            )
    return tuple(words.get(text[index % len(text)], "full") for index in range(count))


def _block_pattern(config: Config, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Nemotron-H: each layer is one block, either attention or feed-forward."""
    if config.has("hybrid_override_pattern"):
        letters = {"M": "linear", "*": "full", "E": "moe", "-": "dense"}
        words = _lettered(config, "hybrid_override_pattern", letters, config.text("hybrid_override_pattern"), count)
    else:
        blocks = {"mamba": "linear", "attention": "full", "moe": "moe", "mlp": "dense"}
        names = config.texts("layers_block_type", count)
        for name in dict.fromkeys(names):
            if name not in blocks:
                config.refuse(
                    "layers_block_type",
                    f'the layer kind "{name}" is not known, so nothing is computed',
                    "known: " + ", ".join(blocks),
                )
        words = tuple(blocks.get(name, "full") for name in names)
    return (
        tuple(word if word in ("linear", "full") else "none" for word in words),
        tuple(word if word in ("moe", "dense") else "none" for word in words),
    )


# ---------------------------------------------------------------- attention records


def _has_latent(config: Config) -> bool:
    return config.has("kv_lora_rank") and config.boolean("use_mla", True)


def _attention_table(config: Config, family: Family, count: int, rules: list[str]) -> Callable[[str, int], Attention]:
    """A function from the kind and index of a layer to its record; every record is built once."""
    owners = _index_owners(config, count) if config.has("index_topk") and not config.has("compress_ratios") else ()
    ratios = config.integers("compress_ratios", at_least=count) if config.has("compress_ratios") else ()
    known: dict[tuple[str, object], Attention] = {}

    def build(kind: str, variant: object) -> Attention:
        if kind == "mla":
            return _latent(config, variant)
        if kind == "compressed":
            return _compressed(config, int(str(variant)))
        if kind == "linear":
            return _recurrent(config, family, rules)
        return _grouped_query(config, family, kind)

    def layer(kind: str, index: int) -> Attention:
        variant: object = None
        if kind == "mla" and owners:
            variant = owners[index]
        elif kind == "compressed":
            variant = ratios[index] if ratios else 0
        if (kind, variant) not in known:
            known[kind, variant] = build(kind, variant)
        return known[kind, variant]

    return layer


def _recurrent(config: Config, family: Family, rules: list[str]) -> Attention:
    rule = "gated-delta-net" if config.has("linear_num_value_heads") else family.linear
    if rule not in RECURRENT:
        config.refuse("model_type", "the recurrent rule of its linear layers is not known, so nothing is computed")
        return GroupedQuery(heads=1, kv_heads=1, head_dim=1, v_head_dim=1)
    return RECURRENT[rule](config, rules)


def _grouped_query(config: Config, family: Family, kind: str) -> GroupedQuery:
    full = kind == "full"
    swa = () if full else ("swa_num_attention_heads",)
    heads = config.integer(*swa, "num_attention_heads")
    alike = full and config.boolean("attention_k_eq_v", False)
    kv_names = ("num_global_key_value_heads",) if alike else () if full else ("swa_num_key_value_heads",)
    kv_heads = config.integer(*kv_names, "num_key_value_heads", default=heads)
    if heads % kv_heads and not config.problems:
        config.refuse("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
    names = ("global_head_dim" if full else "swa_head_dim", "head_dim", "attention_head_dim")
    if config.has(*names):
        head_dim = config.integer(*names)
    else:
        hidden = config.integer("hidden_size")
        head_dim = max(1, hidden // heads)
        if hidden % heads and not config.problems:
            config.refuse("head_dim", f"missing, and the hidden size {hidden} is not a multiple of {heads} heads")
    v_names = ("v_head_dim",) if full else ("swa_v_head_dim", "v_head_dim")
    window = None
    if kind == "sliding":
        window = config.integer("sliding_window_size", "sliding_window")
    elif kind == "chunked":
        window = config.integer("attention_chunk_size")
    return GroupedQuery(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=config.integer(*v_names, default=head_dim),
        window=window,
        chunked=kind == "chunked",
        output_gate=config.boolean("attn_output_gate", family.gated_query),
        key_is_value=alike,
    )


def _latent(config: Config, owns_index: object) -> Latent:
    """``owns_index``: None without an indexer, else whether the layer scores keys itself."""
    return Latent(
        heads=config.integer("num_attention_heads"),
        kv_lora_rank=config.integer("kv_lora_rank"),
        qk_rope_head_dim=config.integer("qk_rope_head_dim"),
        qk_nope_head_dim=config.integer("qk_nope_head_dim"),
        v_head_dim=config.integer("v_head_dim"),
        q_lora_rank=config.integer("q_lora_rank") if config.has("q_lora_rank") else None,
        output_gate=config.boolean("mla_use_output_gate", False),
        indexer=None if owns_index is None else _indexer(config, own_keys=bool(owns_index)),
    )


def _indexer(config: Config, *, own_keys: bool = True) -> Indexer:
    return Indexer(
        heads=config.integer("index_n_heads"),
        head_dim=config.integer("index_head_dim"),
        topk=config.integer("index_topk"),
        own_keys=own_keys,
    )


def _index_owners(config: Config, count: int) -> tuple[bool, ...]:
    """For each layer, whether it scores keys itself or reuses the selection of an earlier layer (GLM-5.2)."""
    if config.has("indexer_types"):
        kinds = config.texts("indexer_types", count)
        for kind in dict.fromkeys(kinds):
            if kind not in ("full", "shared"):
                what = f'the indexer kind "{kind}" is not known, so nothing is computed'
                config.refuse("indexer_types", what, "known: full, shared")
        return tuple(kind != "shared" for kind in kinds) or (True,) * count
    every = config.integer("index_topk_freq", default=1)
    offset = config.integer("index_skip_topk_offset", default=0, least=0)
    return tuple(index < offset or (index - offset + 1) % every == 0 for index in range(count))


def _compressed(config: Config, ratio: int) -> Compressed:
    if ratio not in (0, 4, 128):
        what = f"the ratio {ratio} is not known, so nothing is computed"
        config.refuse("compress_ratios", what, "known: 0, 4, 128")
    if config.integer("num_key_value_heads", default=1) != 1:
        config.refuse("num_key_value_heads", "compressed attention keeps one entry for all heads", "1")
    return Compressed(
        heads=config.integer("num_attention_heads"),
        head_dim=config.integer("head_dim"),
        qk_rope_head_dim=config.integer("qk_rope_head_dim"),
        q_lora_rank=config.integer("q_lora_rank"),
        o_groups=config.integer("o_groups"),
        o_lora_rank=config.integer("o_lora_rank"),
        ratio=ratio,
        window=config.integer("sliding_window"),
        indexer=_indexer(config) if ratio == 4 else None,
    )
