"""Reader of config.json: real files, the traps that they hold, families by small files written here."""

import json
from collections import Counter

import pytest

from dualplan.errors import InputError
from dualplan.model import kv
from dualplan.spec.layers import Dense, Experts, GroupedQuery, Latent, Recurrent, kind_name
from dualplan.spec.model import count_parameters, load_model, read_model, shipped_models

KIB = 1024
INDEX = 132

# growing KV per token in bf16 [KiB] and index keys per token [B], as published for these models
GROWING = {
    "meta-llama--Meta-Llama-3.1-70B": (320, 0),
    "meta-llama--Meta-Llama-3.1-405B": (504, 0),
    "Qwen--Qwen3-235B-A22B": (188, 0),
    "openai--gpt-oss-120b": (36, 0),
    "deepseek-ai--DeepSeek-V3": (68.6, 0),
    "moonshotai--Kimi-K2-Instruct": (68.6, 0),
    "deepseek-ai--DeepSeek-V3.2": (68.6, INDEX * 61),
    "nvidia--DeepSeek-V3.2-NVFP4": (68.6, INDEX * 61),
    "zai-org--GLM-5": (87.8, INDEX * 78),
    "zai-org--GLM-5.2": (87.8, INDEX * 21),  # 57 of 78 layers reuse the choice of an earlier one
    "moonshotai--Kimi-K3": (27, 0),
    "Qwen--Qwen3.5-397B-A17B": (30, 0),
    "MiniMaxAI--MiniMax-M2.5": (248, 0),
    "XiaomiMiMo--MiMo-V2-Flash": (22.5, 0),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (8, 0),
    # by hand: layers * KV heads * (head + value head) * 2 B
    "Qwen--Qwen3-32B": (64 * 8 * 256 * 2 / KIB, 0),
    "Qwen--Qwen3-8B": (36 * 8 * 256 * 2 / KIB, 0),
    "mistralai--Mixtral-8x7B-v0.1": (32 * 8 * 256 * 2 / KIB, 0),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (12 * 8 * 256 * 2 / KIB, 0),  # every 4th of 48 layers is full
    "google--gemma-4-26B-A4B": (5 * 2 * 1024 * 2 / KIB, 0),  # 5 full layers: 2 heads of 512
}
DEFAULTS = {"Qwen3Next-defaults": 24, "Gemma3TextConfig-defaults": 4 * 4 * 512 * 2 / KIB}


@pytest.mark.parametrize("name", sorted(GROWING))
def test_growing_kv_of_real_files(shared_cases, name):
    model = load_model(str(shared_cases / "models" / f"{name}_config.json"))
    growing, index = GROWING[name]
    assert kv.kv_bytes_per_token(model, "bf16") / KIB == pytest.approx(growing, abs=0.05)
    assert kv.kv_index_bytes_per_token(model, "bf16") == index


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_growing_kv_of_library_defaults(shared_cases, name):
    model = load_model(str(shared_cases / "models" / f"{name}.json"))
    assert kv.kv_bytes_per_token(model, "bf16") / KIB == DEFAULTS[name]


def test_every_real_file_is_read(shared_cases):
    files = [path for path in (shared_cases / "models").glob("*.json") if "hf_quant" not in path.name]
    assert len(files) >= 23
    for path in files:
        assert load_model(str(path)).num_layers > 0


def test_shipped_models_agree_with_real_files(shared_cases):
    pairs = {
        "deepseek-v3": "deepseek-ai--DeepSeek-V3",
        "deepseek-v3.2": "deepseek-ai--DeepSeek-V3.2",
        "deepseek-v4-flash": "deepseek-ai--DeepSeek-V4-Flash",
        "qwen3-235b-a22b": "Qwen--Qwen3-235B-A22B",
        "gpt-oss-120b": "openai--gpt-oss-120b",
        "kimi-k2": "moonshotai--Kimi-K2-Instruct",
        "glm-5": "zai-org--GLM-5",
        "glm-5.2": "zai-org--GLM-5.2",
        "qwen3-8b": "Qwen--Qwen3-8B",
        "qwen3-32b": "Qwen--Qwen3-32B",
        "qwen3.5-397b-a17b": "Qwen--Qwen3.5-397B-A17B",
        "minimax-m2.5": "MiniMaxAI--MiniMax-M2.5",
        "llama-3.1-70b": "meta-llama--Meta-Llama-3.1-70B",
        "llama-3.1-405b": "meta-llama--Meta-Llama-3.1-405B",
        "mixtral-8x7b": "mistralai--Mixtral-8x7B-v0.1",
    }
    for name, file in pairs.items():
        shipped, real = load_model(name), load_model(str(shared_cases / "models" / f"{file}_config.json"))
        assert shipped.layers == real.layers, name
        assert count_parameters(shipped) == count_parameters(real), name
        assert shipped.part_bytes == real.part_bytes, name
        assert shipped.max_context == real.max_context, name


# total and active parameters as their makers print them [1e9]
PUBLISHED = {
    "deepseek-v3": (671, 37),
    "deepseek-v3.2": (671, 37),
    "deepseek-v4-pro": (1600, 49),
    "deepseek-v4-flash": (284, 13),
    "kimi-k2": (1030, 32),
    "glm-4.6": (355, 32),
    "glm-5": (744, 40),
    "glm-5.2": (744, 40),
    "qwen3-235b-a22b": (235, 22),
    "gpt-oss-120b": (116.8, 5.1),
    "gpt-oss-20b": (20.9, 3.6),
    "mixtral-8x7b": (46.7, 12.9),
    "minimax-m2.5": (229, 10.4),
    "llama-3.1-70b": (70.6, 69.5),
    "llama-3.1-8b": (8.03, 7.5),
    "llama-3.1-405b": (405.9, 403.7),
    "ds-27b": (27, None),
    "qwen2.5-32b": (32.8, 32.0),
    "qwen3-8b": (8.2, 7.6),
    "qwen3-32b": (32.8, 32.0),
    "qwen3-30b-a3b": (30.5, 3.04),  # 3.3 with the input embedding
    "qwen3-coder-480b-a35b": (480, 35),
    "qwen3.5-397b-a17b": (397, 16.3),
}


@pytest.mark.parametrize("name", shipped_models())
def test_parameters_of_shipped_models(name):
    model = load_model(name)
    total, active = PUBLISHED[name]
    counted = count_parameters(model)
    assert counted.total / 1e9 == pytest.approx(total, rel=0.02)
    if active is not None:
        assert counted.active / 1e9 == pytest.approx(active, rel=0.03)
    assert model.sources
    assert model.published.total is not None


REAL_PARAMETERS = {
    "mistralai--Mixtral-8x7B-v0.1": (46.7, 12.8),
    "Qwen--Qwen3.5-397B-A17B": (397, 16.3),
    "XiaomiMiMo--MiMo-V2-Flash": (309, 14.8),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120.7, 12.2),
    "Qwen--Qwen3-32B": (32.8, 32.0),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (107.8, 16.1),  # 109e9 and 17e9 with vision and embedding
    "google--gemma-4-26B-A4B": (25.2, 3.8),
    "moonshotai--Kimi-K3": (2780, 104),
}


@pytest.mark.parametrize("name", sorted(REAL_PARAMETERS))
def test_parameters_of_real_files(shared_cases, name):
    counted = count_parameters(load_model(str(shared_cases / "models" / f"{name}_config.json")))
    assert (counted.total / 1e9, counted.active / 1e9) == pytest.approx(REAL_PARAMETERS[name], rel=0.01)


def test_deepseek_matrices():
    """Routed expert 44.04e6, MLA 187.1e6 and indexer 13.96e6 a layer, dense 396.4e6 x 3, embedding and head 0.927e9."""
    model = load_model("deepseek-v3.2")
    counted = count_parameters(model)
    assert counted.attention == pytest.approx(61 * (187.1e6 + 13.96e6), rel=1e-3)
    assert counted.routed_experts == 58 * 256 * 3 * 7168 * 2048
    assert counted.shared_experts == 58 * 3 * 7168 * 2048
    assert counted.dense == 3 * 3 * 7168 * 18432
    assert counted.embedding == counted.head == 7168 * 129280
    assert counted.total == pytest.approx(671.9e9, rel=1e-4)


# ---------------------------------------------------------------- families in small files

PLAIN = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


def read(**changes):
    values = {key: value for key, value in {**PLAIN, **changes}.items() if value is not ...}
    return read_model(json.dumps(values), where="config.json", name="test")


def kinds(model):
    return dict(sum((Counter({kind_name(group.attention): group.count}) for group in model.layers), Counter()))


def test_head_dim_is_hidden_over_heads_only_where_it_is_missing():
    assert read().layers[0].attention == GroupedQuery(heads=8, kv_heads=2, head_dim=64, v_head_dim=64)
    assert read(head_dim=128).layers[0].attention.head_dim == 128
    assert read(head_dim=128, v_head_dim=96).layers[0].attention.v_head_dim == 96
    assert read(num_key_value_heads=...).layers[0].attention.kv_heads == 8


def test_window_in_a_file_does_not_mean_that_it_is_used():
    window = {"sliding_window": 256, "max_position_embeddings": 4096}
    assert kinds(read(model_type="qwen2", use_sliding_window=False, **window)) == {"full": 8}
    assert kinds(read(model_type="qwen2", **window)) == {"full": 8}  # the library's default is false
    assert kinds(read(model_type="qwen2", use_sliding_window=True, max_window_layers=6, **window)) == {
        "full": 6,
        "sliding 256": 2,
    }
    assert kinds(read(model_type="mistral", **window)) == {"sliding 256": 8}
    assert kinds(read(model_type="mistral", sliding_window=None)) == {"full": 8}
    assert kinds(read(model_type="phi3", sliding_window=8192, max_position_embeddings=4096)) == {"full": 8}


def test_window_patterns():
    assert kinds(read(model_type="gemma2", sliding_window=256)) == {"sliding 256": 4, "full": 4}
    assert kinds(read(model_type="gpt_oss", sliding_window=256)) == {"sliding 256": 4, "full": 4}
    assert kinds(read(model_type="gemma3_text", sliding_window=256)) == {"sliding 256": 7, "full": 1}
    assert kinds(read(model_type="gemma3_text", sliding_window=256, sliding_window_pattern=4)) == {
        "sliding 256": 6,
        "full": 2,
    }
    assert kinds(read(model_type="cohere2", sliding_window=256)) == {"sliding 256": 6, "full": 2}
    assert kinds(read(model_type="exaone4", sliding_window=256, sliding_window_pattern="LLLG")) == {
        "sliding 256": 6,
        "full": 2,
    }
    with pytest.raises(InputError, match="which layers slide is not said"):
        read(sliding_window=256)


def test_gemma3_files_leave_out_what_the_library_knows():
    nested = {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "vision_config": {"num_hidden_layers": 27, "num_attention_heads": 16},
        "torch_dtype": "bfloat16",
    }
    model = read_model(json.dumps(nested), where="config.json", name="gemma-3-4b")
    # 5 of 34 layers are full: 4 KV heads of 256, keys and values, 2 B
    assert kv.kv_bytes_per_token(model, "bf16") == 5 * 4 * 512 * 2
    assert kv.state_bytes_per_sequence(model, "bf16") == 29 * 1024 * 4 * 512 * 2
    assert count_parameters(model).total / 1e9 == pytest.approx(3.88, rel=0.01)  # 4.3e9 with its vision tower
    assert model.tied_embeddings
    assert any("default of its library" in rule for rule in model.rules)


def test_llama4_chunks():
    llama4 = {"model_type": "llama4_text", "attention_chunk_size": 128, "intermediate_size_mlp": 2048}
    model = read(num_local_experts=16, num_experts_per_tok=1, interleave_moe_layer_step=2, **llama4)
    assert kinds(model) == {"chunked 128": 6, "full": 2}
    assert model.moe_layers == 4
    assert {group.ffn for group in model.layers} == {
        Dense(intermediate=2048),
        Experts(count=16, top_k=1, intermediate=1024, shared_intermediate=1024),
    }
    assert kinds(read(no_rope_layers=[1, 0] * 4, **llama4)) == {"chunked 128": 4, "full": 4}
    assert kinds(read(no_rope_layers=[], **llama4)) == {"chunked 128": 6, "full": 2}


LATENT = {
    "kv_lora_rank": 64,
    "q_lora_rank": None,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "head_dim": 7,  # a decoy, as is num_key_value_heads
}


def test_latent_attention_ignores_the_decoys():
    model = read(model_type="deepseek_v2", **LATENT)
    assert kinds(model) == {"mla": 8}
    assert kv.kv_bytes_per_token(model, "bf16") == 8 * (64 + 16) * 2
    # without a query LoRA: 512 -> 8 heads of 48; kv_a 512 -> 80; kv_b 64 -> 8 * (32 + 32); out 8 * 32 -> 512
    assert count_parameters(model).attention == 8 * (512 * 384 + 512 * 80 + 64 * 512 + 256 * 512)
    # DeepSeek-VL2 says use_mla: false beside the ranks
    assert kinds(read(model_type="deepseek_v2", use_mla=False, **{**LATENT, "head_dim": 64})) == {"full": 8}


def test_index_layers_by_frequency():
    sparse = {"model_type": "glm_moe_dsa", "index_topk": 16, "index_n_heads": 2, "index_head_dim": 128}
    # layers 0 to 2 own keys, then every 4th: 6
    model = read(index_topk_freq=4, index_skip_topk_offset=3, **sparse, **LATENT)
    assert kinds(model) == {"mla + indexer": 4, "mla, shared index": 4}
    assert kv.kv_index_bytes_per_token(model, "bf16") == 4 * INDEX
    with pytest.raises(InputError, match='"odd" is not known'):
        read(indexer_types=["full", "odd"] * 4, **sparse, **LATENT)


def test_kimi_linear_lists_count_from_one():
    linear = {
        "num_heads": 4,
        "head_dim": 16,
        "short_conv_kernel_size": 4,
        "kda_layers": [1, 2, 3, 5, 6, 7],
        "full_attn_layers": [4, 8],
    }
    model = read(model_type="kimi_linear", linear_attn_config=linear, mla_use_nope=True, **LATENT)
    assert kinds(model) == {"kda": 6, "mla": 2}
    # state 4 heads * 16 * 16 in fp32; convolutions over q, k, v keep 3 inputs of 64 in 16 bits
    assert kv.state_bytes_per_sequence(model, "bf16") == 6 * (4 * 16 * 16 * 4 + 3 * 64 * 3 * 2)
    with pytest.raises(InputError, match="does not name each of the layers 1 to 8 once"):
        read(model_type="kimi_linear", linear_attn_config={**linear, "kda_layers": [0, 1, 2]}, **LATENT)


def test_nemotron_pattern_letters():
    mamba = {"mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "conv_kernel": 4}
    model = read(model_type="nemotron_h", hybrid_override_pattern="M-M*-M-M", **mamba)
    assert kinds(model) == {"mamba2": 4, "full": 1, "none": 3}
    assert [group.count for group in model.layers if isinstance(group.ffn, Dense)] == [3]
    # state 4 * 16 * 8 in fp32, convolution over 64 + 2 * 2 * 8 channels
    assert kv.state_bytes_per_sequence(model, "bf16") == 4 * (4 * 16 * 8 * 4 + 96 * 3 * 2)
    # squared ReLU has no gate: two matrices
    assert count_parameters(model).dense == 3 * 2 * 512 * 1024
    with pytest.raises(InputError, match='the layer kind "X" is not known'):
        read(model_type="nemotron_h", hybrid_override_pattern="M-M*-M-X", **mamba)
    with pytest.raises(InputError, match="has 2 letters for 8 layers"):
        read(model_type="nemotron_h", hybrid_override_pattern="M-", **mamba)


def test_minimax_linear_layers():
    model = read(model_type="minimax_m1", attn_type_list=[0, 0, 0, 1] * 2, head_dim=32)
    assert kinds(model) == {"lightning": 6, "full": 2}
    assert kv.state_bytes_per_sequence(model, "bf16") == 6 * 8 * 32 * 32 * 4
    assert kinds(read(model_type="minimax_m2", attn_type_list=[1] * 8)) == {"full": 8}
    with pytest.raises(InputError, match="recurrent rule"):
        read(model_type="minimax_m2", attn_type_list=[0] * 8)


def test_gated_delta_net_by_interval():
    linear = {
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
    }
    model = read(model_type="qwen3_next", **linear)
    assert kinds(model) == {"gated-delta-net": 6, "full": 2}
    assert kinds(read(model_type="qwen3_next", full_attention_interval=2, **linear)) == {
        "gated-delta-net": 4,
        "full": 4,
    }
    # state 4 * 16 * 16 fp32; convolution over 2 * 32 + 64 channels
    assert kv.state_bytes_per_sequence(model, "bf16") == 6 * (4 * 16 * 16 * 4 + 128 * 3 * 2)
    halved = read(model_type="qwen3_next", mamba_ssm_dtype="bfloat16", **linear)
    assert kv.state_bytes_per_sequence(halved, "bf16") == 6 * (4 * 16 * 16 * 2 + 128 * 3 * 2)
    assert isinstance(model.layers[0].attention, Recurrent)
    # the query projection also makes the output gate
    assert next(g.attention for g in model.layers if isinstance(g.attention, GroupedQuery)).output_gate


def test_gemma4_small_models_share_their_cache():
    model = read(
        model_type="gemma4_text",
        layer_types=["sliding_attention"] * 3 + ["full_attention"] + ["sliding_attention"] * 3 + ["full_attention"],
        sliding_window=256,
        head_dim=64,
        global_head_dim=128,
        num_kv_shared_layers=4,
        use_double_wide_mlp=True,
    )
    # the last 4 layers keep nothing: one full layer with 2 KV heads of 128, three windows with 2 of 64
    assert kv.kv_bytes_per_token(model, "bf16") == 2 * 256 * 2
    assert kv.state_bytes_per_sequence(model, "bf16") == 3 * 256 * 2 * 128 * 2
    # but they attend: a decode step reads all of them
    assert kv.kv_read_bytes(model, "bf16", 100) == 2 * (100 * 512 * 2) + 6 * (100 * 256 * 2)
    assert sorted(group.ffn.intermediate for group in model.layers) == [1024, 1024, 2048, 2048]


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({"n_routed_experts": 16, "first_k_dense_replace": 3, "moe_layer_freq": 1}, 5),
        ({"n_routed_experts": 16, "moe_layer_freq": [0, 1, 1, 1, 0, 1, 1, 1]}, 6),
        ({"num_experts": 16, "decoder_sparse_step": 2}, 4),
        ({"num_experts": 16, "mlp_only_layers": [0, 7]}, 6),
        ({"num_local_experts": 16}, 8),
        ({"n_routed_experts": 16, "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 6}, 6),
        ({"num_experts": 0}, 0),
        ({"num_experts": None}, 0),
    ],
)
def test_which_layers_have_experts(changes, layers):
    model = read(num_experts_per_tok=4, moe_intermediate_size=64, **changes)
    assert model.moe_layers == layers


@pytest.mark.parametrize("key", ["num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts"])
def test_names_of_top_k(key):
    assert read(num_experts=16, **{key: 3}).experts.top_k == 3


def test_width_of_experts():
    assert read(num_local_experts=8, num_experts_per_tok=2).experts.intermediate == 1024
    assert read(num_local_experts=8, num_experts_per_tok=2, moe_intermediate_size=64).experts.intermediate == 64
    shared = read(n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, n_shared_experts=2)
    assert shared.experts.shared_intermediate == 128
    gated = read(model_type="qwen2_moe", num_experts=8, num_experts_per_tok=2, shared_expert_intermediate_size=96)
    assert (gated.experts.shared_intermediate, gated.experts.shared_gate) == (96, True)


def test_nesting():
    inner = {key: value for key, value in PLAIN.items() if key != "torch_dtype"}
    for nest in ("text_config", "llm_config", "language_config"):
        text = json.dumps({"model_type": "some_vision_model", nest: inner, "torch_dtype": "float16"})
        model = read_model(text, where="config.json", name="test")
        assert (model.model_type, model.kv_format) == ("llama", "fp16")


def test_infinity_in_a_file_is_read(shared_cases):
    text = (shared_cases / "models" / "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8_config.json").read_text()
    assert "Infinity" in text
    assert read_model(text, where="config.json", name="nemotron").num_layers == 88


def test_deepseek_v4_by_its_own_rules():
    pro, flash = load_model("deepseek-v4-pro"), load_model("deepseek-v4-flash")
    assert kinds(pro) == {"compressed 4": 30, "compressed 128": 31}
    assert kinds(flash) == {"compressed 4": 21, "compressed 128": 20, "window 128": 2}
    assert all(isinstance(group.ffn, Experts) for group in flash.layers)
    assert kv.kv_total_bytes_per_token(pro, pro.kv_format) == pytest.approx(5511, abs=0.5)
    assert kv.kv_total_bytes_per_token(flash, flash.kv_format) == pytest.approx(3850, abs=0.5)
    assert kv.state_bytes_per_sequence(flash, flash.kv_format) == 2 * 128 * 584
    # one layout, whatever is asked
    assert kv.kv_bytes_per_token(flash, "bf16") == kv.kv_bytes_per_token(flash, "fp8")
    # the window that every compressed layer keeps beside its entries stays in HBM
    assert kv.window_tail_bytes_per_sequence(flash, "fp8") == 41 * 128 * 584


def test_ds_27b():
    model = load_model("ds-27b")
    assert kv.kv_total_bytes_per_token(model, "fp8") == (656 + 68) * 30 == 21_720
    latent = model.layers[0].attention
    assert isinstance(latent, Latent)
    assert latent.q_lora_rank is None
    assert (latent.indexer.heads, latent.indexer.head_dim, latent.indexer.topk) == (32, 64, 1024)
    assert (model.experts.count, model.experts.top_k, model.moe_layers) == (72, 6, 29)


def test_qwen25_32b():
    model = load_model("qwen2.5-32b")
    assert kv.kv_bytes_per_token(model, "bf16") == 256 * KIB
    assert any("not in use" in rule for rule in model.rules)
    # Qwen2.5-7B: 28 layers, 4 KV heads of 128
    small = read(
        model_type="qwen2", hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4
    )
    assert kv.kv_bytes_per_token(small, "bf16") == 56 * KIB
