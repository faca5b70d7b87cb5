"""Model families: what a model_type says that its config.json does not."""

from __future__ import annotations

import msgspec

from dualplan.errors import InputError, did_you_mean
from dualplan.spec.model_config import Config


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What a model type does that its file does not say.

    ``window``: which layers slide if the file has a window but no list: all, even (the 1st, 3rd, ...), pattern, flag
    (only with use_sliding_window) or none. ``linear``: the recurrent rule of its linear layers. ``defaults``: values
    of the library. ``needs``: keys without which its attention is not known, ``|`` where one of several is enough.
    """

    window: str = "none"
    pattern: int = 0
    linear: str = ""
    gated_query: bool = False
    gated_shared: bool = False
    plain_mlp: bool = False
    tied: bool = False
    defaults: dict[str, object] = {}
    needs: tuple[str, ...] = ()


_GEMMA3: dict[str, object] = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "sliding_window": 4096,
}
_MLA = ("kv_lora_rank",)
_DSA = ("kv_lora_rank", "index_topk")
_QWEN_HYBRID = Family(window="flag", linear="gated-delta-net", gated_query=True, gated_shared=True)
FAMILIES: dict[str, Family] = {
    "apertus": Family(plain_mlp=True),
    "arcee": Family(plain_mlp=True),
    "bailing_moe": Family(),
    "cohere": Family(tied=True),
    "cohere2": Family(tied=True, window="pattern", pattern=4),
    "deepseek": Family(),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(needs=_MLA),
    "deepseek_v32": Family(needs=_DSA),
    "deepseek_v4": Family(needs=("compress_ratios", "head_dim")),
    "dots1": Family(window="flag"),
    "ernie4_5": Family(tied=True),
    "exaone": Family(),
    "exaone4": Family(window="pattern", pattern=4),
    "gemma": Family(tied=True),
    "gemma2": Family(tied=True, window="even"),
    "gemma3": Family(tied=True, window="pattern", pattern=6, defaults=_GEMMA3),
    "gemma4": Family(tied=True, window="pattern", pattern=6),
    "glm": Family(),
    "glm4": Family(),
    "glm_moe_dsa": Family(needs=_DSA),
    "gpt_oss": Family(window="even"),
    "granite": Family(),
    "hunyuan": Family(),
    "internlm": Family(),
    "kimi": Family(needs=_MLA),
    "kimi_linear": Family(linear="kda", needs=("linear_attn_config",)),
    "llama": Family(),
    "llama4": Family(window="chunked"),
    "mimo": Family(window="flag"),
    "mimo_v2": Family(needs=("hybrid_layer_pattern",)),
    "minimax": Family(linear="lightning", needs=("attn_type_list|layer_types",)),
    "minimax_m2": Family(),
    "ministral": Family(window="all"),
    "mistral": Family(window="all"),
    "mixtral": Family(window="all"),
    "nemotron": Family(plain_mlp=True),
    "nemotron_h": Family(linear="mamba2", plain_mlp=True, needs=("hybrid_override_pattern|layers_block_type",)),
    "olmo": Family(),
    "phi3": Family(window="all"),
    "phimoe": Family(window="all"),
    "qwen2": Family(window="flag"),
    "qwen2_moe": Family(window="flag", gated_shared=True),
    "qwen3": Family(window="flag"),
    "qwen3_next": _QWEN_HYBRID,
    "qwen3_5": _QWEN_HYBRID,
    "seed_oss": Family(),
    "smollm3": Family(window="flag"),
    "solar": Family(),
    "stablelm": Family(),
    "starcoder2": Family(window="all", plain_mlp=True),
    "yi": Family(),
}
"""Families by the beginning of model_type; the longest that fits counts."""

_WITHOUT_RULES = {
    "gemma3n": "its AltUp and LAUREL blocks",
    "longcat": "its two attention blocks a layer",
    "nemotron_nas": "its per-layer block_configs",
    "minimax_m3": "its sparse attention",
}


def family_of(config: Config) -> Family:
    """The family of a model type. Raises InputError for types without rules."""
    kind = config.text("model_type").lower().replace("-", "_")
    key = f"{config.where}: model_type"
    if not kind and config.problems:
        raise InputError("", problems=config.problems)
    if not kind:
        raise InputError(key, "missing", "a Hugging Face config.json names its model_type")
    for prefix, why in _WITHOUT_RULES.items():
        if kind.startswith(prefix):
            raise InputError(key, f'"{kind}" has no rule here for {why}, so nothing is computed')
    known = max((name for name in FAMILIES if kind.startswith(name)), key=len, default="")
    if not known:
        close = did_you_mean(kind, FAMILIES)
        raise InputError(
            key,
            f'the attention of "{kind}" is not known, so nothing is computed',
            close or 'if it is plain grouped-query attention, say "model_type": "llama" in a copy',
        )
    for need in FAMILIES[known].needs:
        if not config.has(*need.split("|")):
            config.refuse(need.replace("|", " or "), f'missing, and the attention of "{kind}" is not known without it')
    return FAMILIES[known]
