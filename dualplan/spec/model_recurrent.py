"""Recurrent layers from config.json: size of the state and of the convolution tail, weight matrices.

The state is kept in fp32 unless the file says otherwise; convolutions keep kernel - 1 inputs in 16 bits. Sources: the
modelling code of Qwen3-Next (gated delta net), Kimi Linear (KDA), Nemotron-H (Mamba-2) and MiniMax-01 (lightning
attention).
"""

from __future__ import annotations

from collections.abc import Callable

from dualplan.spec.layers import Recurrent
from dualplan.spec.model_config import Config


def _state_bytes(config: Config, rules: list[str]) -> int:
    name = config.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype", default="float32")
    sizes = {"float32": 4, "bfloat16": 2, "float16": 2}
    if name not in sizes:
        config.refuse("mamba_ssm_dtype", f'"{name}" is not known', "float32, bfloat16 or float16")
    rule = f"recurrent state in {name}" + (
        "" if config.has("mamba_ssm_cache_dtype", "mamba_ssm_dtype") else " (assumed: not in the file)"
    )
    if rule not in rules:
        rules.append(rule)
    return sizes.get(name, 4)


def _gated_delta_net(config: Config, rules: list[str]) -> Recurrent:
    hidden = config.integer("hidden_size")
    key_heads, key_dim = config.integer("linear_num_key_heads"), config.integer("linear_key_head_dim")
    value_heads, value_dim = config.integer("linear_num_value_heads"), config.integer("linear_value_head_dim")
    kernel = config.integer("linear_conv_kernel_dim", default=4)
    keys, values = key_heads * key_dim, value_heads * value_dim
    return Recurrent(
        rule="gated-delta-net",
        state_elements=value_heads * key_dim * value_dim,
        state_element_bytes=_state_bytes(config, rules),
        conv_elements=(2 * keys + values) * (kernel - 1),
        conv_element_bytes=2,
        flops_per_state_element=6,
        shapes=(
            ("in_proj_qkvz", hidden * (2 * keys + 2 * values)),
            ("in_proj_ba", hidden * 2 * value_heads),
            ("conv1d", (2 * keys + values) * kernel),
            ("out_proj", values * hidden),
        ),
    )


def _kda(config: Config, rules: list[str]) -> Recurrent:
    hidden = config.integer("hidden_size")
    linear = config.mapping("linear_attn_config")
    heads, dim = linear.integer("num_heads"), linear.integer("head_dim")
    kernel = linear.integer("short_conv_kernel_size", default=4)
    width = heads * dim
    low_rank = hidden * dim + dim * width
    gate = hidden * width if linear.boolean("use_full_rank_gate", False) else low_rank
    return Recurrent(
        rule="kda",
        state_elements=heads * dim * dim,
        state_element_bytes=_state_bytes(config, rules),
        conv_elements=3 * width * (kernel - 1),
        conv_element_bytes=2,
        flops_per_state_element=6,
        shapes=(
            ("q_proj", hidden * width),
            ("k_proj", hidden * width),
            ("v_proj", hidden * width),
            ("f_proj", low_rank),
            ("g_proj", gate),
            ("b_proj", hidden * heads),
            ("conv1d", 3 * width * kernel),
            ("o_proj", width * hidden),
        ),
    )


def _mamba2(config: Config, rules: list[str]) -> Recurrent:
    hidden = config.integer("hidden_size")
    heads, dim = config.integer("mamba_num_heads"), config.integer("mamba_head_dim")
    state, groups = config.integer("ssm_state_size"), config.integer("n_groups", default=1)
    kernel = config.integer("conv_kernel", default=4)
    inner = heads * dim
    convolved = inner + 2 * groups * state
    return Recurrent(
        rule="mamba2",
        state_elements=inner * state,
        state_element_bytes=_state_bytes(config, rules),
        conv_elements=convolved * (kernel - 1),
        conv_element_bytes=2,
        flops_per_state_element=4,
        shapes=(
            ("in_proj", hidden * (inner + convolved + heads)),
            ("conv1d", convolved * kernel),
            ("out_proj", inner * hidden),
        ),
    )


def _lightning(config: Config, rules: list[str]) -> Recurrent:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    dim = config.integer("head_dim", default=max(1, hidden // heads))
    width = heads * dim
    return Recurrent(
        rule="lightning",
        state_elements=heads * dim * dim,
        state_element_bytes=_state_bytes(config, rules),
        conv_elements=0,
        conv_element_bytes=2,
        flops_per_state_element=4,
        shapes=(("qkv_proj", 3 * hidden * width), ("output_gate", hidden * width), ("out_proj", width * hidden)),
    )


RECURRENT: dict[str, Callable[[Config, list[str]], Recurrent]] = {
    "gated-delta-net": _gated_delta_net,
    "kda": _kda,
    "mamba2": _mamba2,
    "lightning": _lightning,
}
"""Readers by rule."""
