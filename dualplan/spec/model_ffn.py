"""The feed-forward part of each layer from its config.json: dense or a mixture of experts, and how wide."""

from __future__ import annotations

from collections.abc import Callable

from dualplan.spec.layers import Dense, Experts, FeedForward
from dualplan.spec.model_config import Config

EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk", "moe_k", "num_experts_per_tok")
_SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")


def _has_experts(config: Config) -> bool:
    enabled = config.boolean("enable_moe_block", True)
    return enabled and config.integer(*EXPERT_COUNTS, default=0, least=0) > 1


def ffn_kinds(config: Config, count: int) -> tuple[str, ...]:
    """dense or moe per layer."""
    if not _has_experts(config):
        return ("dense",) * count
    if config.has("mlp_layer_types"):
        names = config.texts("mlp_layer_types", count)
        for name in dict.fromkeys(names):
            if name not in ("dense", "sparse"):
                config.refuse("mlp_layer_types", f'"{name}" is not known', "known: dense, sparse")
        return tuple("dense" if name == "dense" else "moe" for name in names)
    if isinstance(config.values.get("moe_layer_freq"), list):
        return tuple("moe" if value else "dense" for value in config.integers("moe_layer_freq", count))
    if config.has("moe_layers"):
        chosen = set(config.integers("moe_layers"))
        return tuple("moe" if index in chosen else "dense" for index in range(count))
    first = config.integer("first_k_dense_replace", "moe_layer_start_index", default=0, least=0)
    last = config.integer("moe_layer_end_index", default=-1, least=-1)
    every = config.integer(
        "moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1
    )
    # counted from 0 by moe_layer_freq, from 1 by the others: the n-th layer is the first one with experts
    shift = 0 if config.has("moe_layer_freq") else 1
    dense = set(config.integers("mlp_only_layers")) if config.values.get("mlp_only_layers") else set()
    return tuple(
        "moe"
        if index >= first and (last < 0 or index <= last) and (index + shift) % every == 0 and index not in dense
        else "dense"
        for index in range(count)
    )


def ffn_table(config: Config, *, plain: bool, gated_shared: bool) -> Callable[[str], FeedForward]:
    """A function from dense or moe to the record. ``plain``: two matrices, no gate; ``gated_shared``: see Experts."""
    act = config.text("mlp_hidden_act", "hidden_act", "hidden_activation")
    matrices = 2 if plain or act in ("relu2", "xielu") else 3
    known: dict[str, FeedForward] = {}

    def build(kind: str) -> FeedForward:
        if kind not in known:
            if kind == "moe":
                known[kind] = _experts(config, gated_shared, matrices)
            else:
                known[kind] = Dense(
                    intermediate=config.integer("intermediate_size_mlp", "intermediate_size"), matrices=matrices
                )
        return known[kind]

    return build


def _experts(config: Config, gated_shared: bool, matrices: int) -> Experts:
    count, top_k = config.integer(*EXPERT_COUNTS), config.integer(*_TOP_K)
    if top_k > count:
        config.refuse("num_experts_per_tok", f"{top_k} experts per token of {count}")
    width = config.integer("moe_intermediate_size", "intermediate_size")
    groups = config.integer("n_group", "num_expert_group", default=1)
    kept = config.integer("topk_group", default=groups)
    if count % groups or kept > groups:
        config.refuse("n_group", f"{groups} groups with {kept} kept do not go with {count} experts")
    return Experts(
        count=count,
        top_k=top_k,
        intermediate=width,
        matrices=matrices,
        shared_intermediate=_shared_width(config, width),
        shared_gate=gated_shared,
        groups=groups if groups > kept else 1,
        groups_kept=kept if groups > kept else 1,
        latent=config.integer("moe_latent_size", "routed_expert_hidden_size", default=0, least=0) or None,
    )


def _shared_width(config: Config, width: int) -> int:
    """Width of all that every token passes beside its routed experts."""
    if config.has("interleave_moe_layer_step", "intermediate_size_mlp"):
        return width  # Llama 4: one shared expert as wide as a routed one
    if config.has("enable_moe_block"):
        return config.integer("intermediate_size")  # Gemma 4: the dense block stays beside the experts
    shared = config.integer(*_SHARED_COUNTS, default=0, least=0)
    if shared:
        return config.integer("moe_shared_expert_intermediate_size", default=shared * width)
    return config.integer("shared_expert_intermediate_size", "shared_intermediate_size", default=0, least=0)
