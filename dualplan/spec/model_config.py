"""Typed access to a Hugging Face config.json, and what is refused before a single number is read.

Model families name the same fact in many ways; :class:`Config` takes several names for one value and collects every
problem of a file, so that one run reports all of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from dualplan.errors import InputError, did_you_mean, problem

NESTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which multimodal models keep their language model."""

MAX_LAYERS = 10_000
_MAX = 10**9


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ENCODERS = _words(
    """
    albert bert bge big_bird camembert clip convbert deberta dinov2 distilbert electra ernie esm eurobert flaubert
    fnet funnel ibert jina_bert layoutlm longformer luke megatron-bert mobilebert modernbert mpnet mra new nezha
    nomic_bert nystromformer rembert roberta roformer sam siglip splinter squeezebert vit wav2vec2 xlm xlm-roberta
    xlm-roberta-xl xlnet xmod yoso
    """
)
_ENCODER_DECODERS = _words(
    """
    bart blenderbot fsmt led m2m_100 marian mbart mt5 mvp nllb-moe pegasus plbart prophetnet switch_transformers t5
    t5gemma umt5 whisper
    """
)

# A key with one of these words may change what is cached. If it is set and not listed below, the file is refused.
_ATTENTION_WORDS = re.compile(
    r"attn|attention|sliding|window|chunk|compress|index|sparse|kv|mamba|ssm|linear|lora|recurrent|rwkv|hybrid"
    r"|state|layer|block|latent|conv|head_dim|key_value|heads|nope|mla|dsa|multi_query|n_embd|group_num"
)
_READ = _words(
    """
    _sliding_window_pattern attention_chunk_size attention_head_dim attention_k_eq_v attn_output_gate attn_type_list
    compress_ratios conv_kernel decoder_sparse_step full_attention_interval global_head_dim head_dim
    hidden_size_per_layer_input hybrid_layer_pattern hybrid_override_pattern index_head_dim index_n_heads
    index_skip_topk_offset index_topk index_topk_freq indexer_types interleave_moe_layer_step kv_cache_quant_algo
    kv_cache_scheme kv_lora_rank layer_types layers_block_type linear_attn_config linear_conv_kernel_dim
    linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim mamba_head_dim
    mamba_num_heads mamba_ssm_cache_dtype mamba_ssm_dtype max_window_layers mla_use_output_gate mlp_layer_types
    mlp_only_layers moe_latent_size moe_layer_end_index moe_layer_freq moe_layer_interval moe_layer_start_index
    moe_layers no_rope_layer_interval no_rope_layers num_attention_heads num_global_key_value_heads
    num_hidden_layers num_key_value_heads num_kv_shared_layers num_nextn_predict_layers o_lora_rank q_lora_rank
    qk_nope_head_dim qk_rope_head_dim sliding_window sliding_window_pattern sliding_window_size ssm_state_size
    swa_head_dim swa_num_attention_heads swa_num_key_value_heads swa_v_head_dim use_mla use_sliding_window
    v_head_dim vocab_size_per_layer_input
    """
)
# keys that change neither the cache nor the matrices: numerics, positions, training, kernels, speculative layers
_HARMLESS = _words(
    """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal activation_situ_linear_beta
    add_cross_attention add_full_attention_sink_bias add_swa_attention_sink_bias attention_bias attention_dropout
    attention_logits_soft_cap attention_multiplier attention_out_bias attention_probs_dropout_prob
    attention_value_scale attn_implementation attn_logit_softcapping attn_pdrop attn_res_block_size attn_scale
    attn_temperature_tuning block_size chunk_size chunk_size_feed_forward compress_rope_theta embedding_layernorm
    enable_moe_block eoa_token_index flash_attention floor_scale full_attn_alpha_factor full_attn_beta_factor
    ignore_index index_share_for_mtp_iteration indexer_rope_interleave latent_moe_use_norm layer_norm_eps
    layer_norm_epsilon layer_scale layer_switch layernorm_eps layernorm_epsilon layernorm_full_attention_alpha
    layernorm_full_attention_beta layernorm_linear_attention_alpha layernorm_linear_attention_beta
    layernorm_mlp_alpha layernorm_mlp_beta linear_attn_alpha_factor linear_attn_beta_factor mamba_chunk_size
    mamba_dt_max mamba_dt_min mamba_expand mamba_hidden_act mamba_proj_bias mla_use_nope mlp_alpha_factor
    mlp_beta_factor moe_shared_expert_overlap mtp_hybrid_override_pattern mtp_layers_block_type
    mtp_num_hidden_layers mtp_transformer_layers n_shared_experts num_hash_layers num_mtp_layers
    order_of_interleaved_layers output_attentions output_hidden_states qk_head_dim qk_layernorm
    query_pre_attn_scalar residual_in_fp32 rope_local_base_freq use_bidirectional_attention use_conv_bias
    use_flash_attention use_flash_attn use_mamba_kernels use_parallel_block
    """
)
_OTHER_PARTS = ("vision_", "image_", "video_", "audio_", "vit_", "mm_", "projector_")
_KNOWN = frozenset(_READ) | frozenset(_HARMLESS)


def parse_json(text: str, where: str) -> dict[str, Any]:
    """The object in a JSON file. Duplicate keys are refused; the ``Infinity`` and ``NaN`` of Python are read."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise InputError(where, f'the key "{key}" appears twice in one object')
            result[key] = value
        return result

    if not text.strip():
        raise InputError(where, "is empty")
    try:
        value = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        what = "it ends too early" if cut else error.msg[:1].lower() + error.msg[1:]
        raise InputError(f"{where}:{error.lineno}", f"is not valid JSON: {what} (column {error.colno})") from None
    except RecursionError:
        raise InputError(where, "is nested too deeply") from None
    except ValueError:
        raise InputError(where, "has a number with too many digits") from None
    if not isinstance(value, dict):
        raise InputError(where, "is not a JSON object", "a Hugging Face config.json is needed")
    return value


class Config:
    """One level of a config.json. ``problems`` collects what is wrong; reading goes on with a stand-in value."""

    def __init__(self, values: dict[str, Any], where: str, problems: list[str]) -> None:
        self.values = values
        self.where = where
        self.problems = problems

    def has(self, *keys: str) -> bool:
        """Whether one of the keys is there and not null."""
        return any(self.values.get(key) is not None for key in keys)

    def refuse(self, key: str, what: str, hint: str = "") -> None:
        """Note a problem with a key."""
        line = problem(f"{self.where}: {key}", what, hint)
        if line not in self.problems:
            self.problems.append(line)

    def integer(self, *keys: str, default: int | None = None, least: int = 1, most: int = _MAX) -> int:
        """The first of several names that is set, as a whole number from ``least``; required without a default.

        The usual name of a value comes last: it is what a message about a missing one says.
        """
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                self.refuse(key, f"is {_form(value)}, a whole number is needed")
            elif isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
                self.refuse(key, f"{value} is not a whole number")
            elif not least <= value <= most:
                self.refuse(key, f"{_short(int(value))} is out of range", f"{least} to {most:,}")
            else:
                return int(value)
            return max(least, default or least)
        if default is None:
            hint = f"nor is there {', '.join(keys[:-1])}" if len(keys) > 1 else did_you_mean(keys[0], self.values)
            self.refuse(keys[-1], "missing", hint)
            return max(least, 1)
        return default

    def boolean(self, key: str, default: bool) -> bool:
        """A true or false value."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(key, f"is {_form(value)}, true or false is needed")
            return default
        return value

    def text(self, *keys: str, default: str = "") -> str:
        """The first of several names that is set, as text."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, str):
                return value
            if value is not None:
                self.refuse(key, f"is {_form(value)}, text is needed")
        return default

    def mapping(self, key: str) -> Config:
        """A nested object; an empty one where there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self.refuse(key, f"is {_form(value)}, an object is needed")
        return Config(value if isinstance(value, dict) else {}, f"{self.where}: {key}", self.problems)

    def integers(self, key: str, length: int | None = None, *, at_least: int | None = None) -> tuple[int, ...]:
        """A list of whole numbers, of a given length where one is given."""
        return self._list(key, int, "whole numbers", length, at_least)

    def texts(self, key: str, length: int | None = None) -> tuple[str, ...]:
        """A list of texts, of a given length where one is given."""
        return self._list(key, str, "texts", length, None)

    def _list(self, key: str, kind: type, noun: str, length: int | None, at_least: int | None) -> tuple[Any, ...]:
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(v, kind) and not isinstance(v, bool) for v in value):
            self.refuse(key, f"is {_form(value)}, a list of {noun} is needed")
        elif length is not None and len(value) != length:
            self.refuse(key, f"has {len(value)} entries for {length} layers")
        elif at_least is not None and len(value) < at_least:
            self.refuse(key, f"has {len(value)} entries for {at_least} layers")
        else:
            return tuple(value)
        return ()


def _form(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return f'the text "{value[:40]}"'
    return (
        {True: "true", False: "false", None: "null"}.get(value, str(value))
        if value is None or isinstance(value, bool)
        else _short(value)
    )


def _short(value: float) -> str:
    """A number in few characters; whole numbers of a JSON file may have thousands of digits."""
    text = str(value)
    return text if len(text) <= 20 else f"a number of {len(text)} digits"


def language_model(raw: dict[str, Any], where: str, problems: list[str]) -> Config:
    """The part of a config.json that describes the decoder, with what it leaves out taken from the level above."""
    values, place = raw, where
    for key in NESTS:
        if not isinstance(raw.get(key), dict | None):
            problems.append(problem(f"{where}: {key}", f"is {_form(raw[key])}, an object is needed"))
    for _ in range(3):
        nest = next((key for key in NESTS if isinstance(values.get(key), dict) and values[key]), None)
        if nest is None:
            break
        inner = values[nest]
        values = {key: value for key, value in values.items() if key not in inner and key != nest} | inner
        place = f"{place}: {nest}"
    return Config(values, place, problems)


def refuse_other_models(config: Config) -> None:
    """Raise InputError for models that keep no cache from turn to turn: encoders, embedding models and the like."""
    kind = config.text("model_type").lower().replace("-", "_")
    architectures = config.values.get("architectures")
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    key = f"{config.where}: model_type"
    if config.values.get("is_encoder_decoder") is True or _one_of(kind, _ENCODER_DECODERS):
        raise InputError(key, f'"{kind}" is an encoder-decoder', "a decoder-only model is needed")
    if _one_of(kind, _ENCODERS) or any("MaskedLM" in name for name in names):
        raise InputError(
            key, f'"{kind}" is an encoder: it keeps no KV-cache from turn to turn', "a decoder-only model is needed"
        )
    if config.values.get("use_bidirectional_attention") is True or config.values.get("is_causal") is False:
        raise InputError(
            key,
            f'"{kind}" attends in both directions (an embedding model): it keeps no KV-cache',
            "a decoder-only model is needed",
        )


def _one_of(kind: str, names: Sequence[str]) -> bool:
    return any(kind == name.replace("-", "_") for name in names) or kind.endswith(("_bert", "bert_model"))


def refuse_unknown_attention(config: Config) -> None:
    """Note every key that speaks of attention or cache, is set, and has no rule: no byte count beats a wrong one."""
    from difflib import get_close_matches

    for key, value in config.values.items():
        if key in _KNOWN or value in (None, False, 0, "", [], {}) or not _ATTENTION_WORDS.search(key.lower()):
            continue
        if key.endswith(("_token_id", "_token", "_dropout", "_token_index", "_bias", "_eps")) or key.startswith(
            _OTHER_PARTS
        ):
            continue
        close = get_close_matches(key, _READ, n=1, cutoff=0.85)
        hint = f"did you mean {close[0]}?" if close else ""
        config.refuse(key, "speaks of attention or cache and has no rule here, so nothing is computed", hint)
