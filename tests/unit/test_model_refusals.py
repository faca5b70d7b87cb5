"""What the reader refuses, each in one clear line; and that no mangled file gets past it any other way."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.errors import InputError
from dualplan.spec.model import Model, load_model, read_model

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


def refusal(text):
    with pytest.raises(InputError) as caught:
        read_model(text if isinstance(text, str) else json.dumps(text), where="config.json", name="test")
    return str(caught.value)


def with_changes(**changes):
    return {key: value for key, value in {**PLAIN, **changes}.items() if value is not ...}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "config.json: is empty"),
        (" \n", "config.json: is empty"),
        ("[1]", "config.json: is not a JSON object"),
        ("null", "config.json: is not a JSON object"),
        ('{\n"a": 1,\n', "config.json:3: is not valid JSON: it ends too early"),
        ('{"a": "b', "config.json:1: is not valid JSON: it ends too early"),
        ('{"a": 1,\n"b" 2}', "config.json:2: is not valid JSON: expecting ':' delimiter"),
        ('{"a": 1, "a": 2}', 'config.json: the key "a" appears twice in one object'),
        ("[" * 100_000, "config.json: is nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", "config.json: has a number with too many digits"),
        ("{}", "config.json: is not the config.json of a model"),
    ],
)
def test_what_is_not_a_config(text, expected):
    message = refusal(text)
    assert message.startswith(expected)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers: 0 is out of range"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: -1 is out of range"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000 is out of range"),
        ({"num_hidden_layers": "8"}, 'num_hidden_layers: is the text "8", a whole number is needed'),
        ({"num_hidden_layers": True}, "num_hidden_layers: is true, a whole number is needed"),
        ({"num_hidden_layers": [8]}, "num_hidden_layers: is a list of 1, a whole number is needed"),
        ({"num_hidden_layers": ...}, "num_hidden_layers: missing"),
        ({"hidden_size": float("nan")}, "hidden_size: nan is not a whole number"),
        ({"hidden_size": float("inf")}, "hidden_size: inf is not a whole number"),
        ({"hidden_size": 512.5}, "hidden_size: 512.5 is not a whole number"),
        ({"hidden_size": 10**400}, "hidden_size: a number of 401 digits is out of range"),
        ({"hidden_size": 510}, "head_dim: missing, and the hidden size 510 is not a multiple of 8 heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide the 8 attention heads"),
        ({"vocab_size": ...}, "vocab_size: missing"),
        ({"intermediate_size": ...}, "intermediate_size: missing"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok: 5 experts per token of 4"),
        ({"num_experts": 4}, "num_experts_per_tok: missing"),
        ({"torch_dtype": "int3"}, 'dtype: "int3" is not known'),
        ({"torch_dtype": 16}, "torch_dtype: is 16, text is needed"),
        ({"model_type": ...}, "model_type: missing"),
        ({"model_type": 5}, "model_type: is 5, text is needed"),
        ({"text_config": 5}, "text_config: is 5, an object is needed"),
        ({"quantization_config": 7}, "quantization_config: is 7, an object is needed"),
        ({"quantization_config": {"quant_method": "magic"}}, 'quant_method: "magic" has no rule here'),
        ({"kv_cache_scheme": {"num_bits": 3, "type": "float"}}, "kv_cache_scheme: 3-bit float has no rule here"),
        ({"dualplan": {"colour": 1}}, "colour: unknown key"),
        ({"dualplan": {"kv_format": "fp7"}}, 'kv_format: "fp7" is not known (did you mean fp8?)'),
    ],
)
def test_bad_values(changes, expected):
    message = refusal(with_changes(**changes))
    assert expected in message
    assert "\n" not in message
    assert message.startswith("config.json: ")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "bert"}, '"bert" is an encoder'),
        ({"model_type": "xlm-roberta"}, '"xlm_roberta" is an encoder'),
        ({"model_type": "t5"}, '"t5" is an encoder-decoder'),
        ({"is_encoder_decoder": True}, "is an encoder-decoder"),
        ({"architectures": ["LlamaForMaskedLM"]}, "is an encoder"),
        ({"use_bidirectional_attention": True}, "attends in both directions"),
        ({"model_type": "rwkv"}, 'the attention of "rwkv" is not known'),
        ({"model_type": "lama"}, "did you mean llama?"),
        ({"model_type": "gemma3n"}, "AltUp"),
        (
            {"layer_types": ["quantum_attention"] * 8},
            'layer_types: the attention kind "quantum_attention" is not known',
        ),
        ({"layer_types": ["full_attention"] * 7}, "layer_types: has 7 entries for 8 layers"),
        ({"attn_type_list": [1, 2] * 4}, "attn_type_list: the attention kind 2 is not known"),
        ({"hybrid_layer_pattern": [0, 7] * 4}, "hybrid_layer_pattern: the attention kind 7 is not known"),
        ({"sparse_attention_config": {"block": 64}}, "sparse_attention_config: speaks of attention or cache"),
        ({"block_configs": [{}]}, "block_configs: speaks of attention or cache"),
        ({"kv_source_layers": [0, 1]}, "kv_source_layers: speaks of attention or cache"),
        ({"multi_query_group_num": 2}, "multi_query_group_num: speaks of attention or cache"),
        ({"sliding_windw": 128}, "did you mean sliding_window?"),
        ({"model_type": "deepseek_v3"}, 'kv_lora_rank: missing, and the attention of "deepseek_v3" is not known'),
        ({"model_type": "deepseek_v4"}, 'compress_ratios: missing, and the attention of "deepseek_v4" is not known'),
        ({"model_type": "mimo_v2_flash"}, "hybrid_layer_pattern: missing"),
        ({"model_type": "nemotron_h"}, "hybrid_override_pattern or layers_block_type: missing"),
    ],
)
def test_attention_that_is_not_known_is_refused_by_name(changes, expected):
    assert expected in refusal(with_changes(**changes))


def test_ratios_of_compressed_attention(shared_cases):
    path = shared_cases / "models" / "deepseek-ai--DeepSeek-V4-Flash_config.json"
    values = json.loads(path.read_text())
    assert "the ratio 16 is not known" in refusal({**values, "compress_ratios": [16] * 44})
    assert "has 3 entries for 43 layers" in refusal({**values, "compress_ratios": [0, 4, 128]})


def test_all_faults_of_a_file_at_once():
    message = refusal(with_changes(num_hidden_layers=0, num_attention_heads="8", head_dim=-1))
    assert [line.split(":")[1].strip() for line in message.split("\n")] == [
        "num_hidden_layers",
        "num_attention_heads",
        "head_dim",
    ]


def test_keys_that_are_off_do_not_matter():
    values = with_changes(sparse_attention_config=None, kv_source_layers=[], use_mla=False, linear_attn_config=None)
    assert read_model(json.dumps(values), where="config.json", name="test").num_layers == 8


def test_places_of_models(tmp_path):
    (tmp_path / "my-model").mkdir()
    with pytest.raises(InputError, match="the directory holds no config"):
        load_model(str(tmp_path / "my-model"))
    (tmp_path / "my-model" / "config.json").write_text(json.dumps(PLAIN))
    assert load_model(str(tmp_path / "my-model")).name == "my-model"
    assert load_model(str(tmp_path / "my-model" / "config.json")).name == "my-model"
    (tmp_path / "binary.json").write_bytes(b"\x00\x01\x02")
    with pytest.raises(InputError, match="binary file"):
        load_model(str(tmp_path / "binary.json"))
    with pytest.raises(InputError, match="no such file"):
        load_model(str(tmp_path / "absent.json"))
    with pytest.raises(InputError, match="did you mean deepseek-v3"):
        load_model("deepseek-v3.22")
    assert load_model("my-model/config.json", base=tmp_path).name == "my-model"


# ---------------------------------------------------------------- mangled files

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 200),
    st.sampled_from([0, 10**30, 1.5, float("nan"), float("inf"), "", "8", "full_attention", "fp8"]),
    st.lists(st.one_of(st.integers(-1, 3), st.sampled_from(["full_attention", "mamba", "x"])), max_size=9),
    st.dictionaries(st.sampled_from(["num_bits", "type", "quant_method", "kda_layers"]), st.integers(0, 9), max_size=3),
)
KEYS = (
    "model_type hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads vocab_size "
    "torch_dtype head_dim v_head_dim kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim index_topk "
    "index_n_heads index_head_dim compress_ratios layer_types attn_type_list hybrid_layer_pattern linear_attn_config "
    "hybrid_override_pattern full_attention_interval sliding_window sliding_window_pattern use_sliding_window "
    "max_window_layers num_experts num_experts_per_tok moe_intermediate_size moe_layer_freq mlp_only_layers n_group "
    "topk_group first_k_dense_replace quantization_config kv_cache_scheme text_config dualplan architectures "
    "num_kv_shared_layers indexer_types index_topk_freq hidden_size_per_layer_input mlp_layer_types"
)
FAMILIES = [
    "llama",
    "qwen3_next",
    "deepseek_v32",
    "deepseek_v4",
    "nemotron_h",
    "kimi_linear",
    "llama4",
    "gemma3",
    "minimax",
]


@given(
    st.sampled_from(FAMILIES),
    st.dictionaries(st.sampled_from(KEYS.split()), VALUES, max_size=8),
)
def test_a_mangled_file_is_a_model_or_a_clear_refusal(family, changes):
    text = json.dumps({**PLAIN, "model_type": family, **changes})
    try:
        model = read_model(text, where="config.json", name="test")
    except InputError as error:
        assert str(error)
        assert all(line.startswith("config.json") for line in str(error).split("\n"))
    else:
        assert isinstance(model, Model)
        assert 1 <= model.num_layers <= 10_000
