"""How weights and cache are stored: bytes of a parameter by part, the KV format that a checkpoint asks for."""

import json

import pytest

from dualplan.errors import InputError
from dualplan.model import kv
from dualplan.spec.model import count_parameters, load_model, read_model
from dualplan.spec.parallel import stored_bytes

MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "mlp_only_layers": [0],
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


def read(quantization=None, companion="", **changes):
    values = {**MOE, **({"quantization_config": quantization} if quantization else {}), **changes}
    return read_model(json.dumps(values), where="config.json", name="test", quantization=companion)


def sizes(model):
    parts = model.part_bytes
    return parts.routed_experts, parts.attention, parts.dense


def test_sixteen_bits_without_a_word_on_quantization():
    assert sizes(read()) == (2, 2, 2)
    # a float32 checkpoint is loaded in 16 bits
    assert sizes(read(torch_dtype="float32")) == (2, 2, 2)
    assert read(torch_dtype="float32").kv_format == "bf16"
    assert read(torch_dtype="float16").kv_format == "fp16"
    assert read(torch_dtype=None).kv_format == "bf16"
    assert read(torch_dtype=None, dtype="float16").kv_format == "fp16"


def test_fp8_blocks():
    block = read({"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert sizes(block) == (1 + 4 / 16384,) * 3
    assert block.weight_dtype == "fp8"
    assert sizes(read({"quant_method": "fp8"})) == (1, 1, 1)
    kept = read({"quant_method": "fp8", "modules_to_not_convert": ["gate", "lm_head", "self_attn"]})
    assert sizes(kept) == (1, 2, 1)  # "gate" is the router, not gate_proj


def test_mxfp4_experts_only():
    model = read({"quant_method": "mxfp4"})
    assert sizes(model) == (0.5 + 1 / 32, 2, 2)
    assert model.weight_dtype == "bf16"
    assert stored_bytes(load_model("gpt-oss-120b")) / 1e9 == pytest.approx(65.2, abs=0.1)


def test_compressed_tensors():
    weights = {"num_bits": 4, "type": "float", "group_size": 32, "scale_dtype": "torch.uint8"}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    ignore = ["re:.*self_attn.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "lm_head"]
    model = read({"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ignore})
    assert sizes(model) == (0.5 + 1 / 32, 2, 2)
    eight = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}
    eight["group_0"]["input_activations"] = {"num_bits": 8, "type": "float"}
    scheme = {"num_bits": 8, "type": "float"}
    model = read({"quant_method": "compressed-tensors", "config_groups": eight, "kv_cache_scheme": scheme})
    assert sizes(model) == (1, 1, 1)
    assert (model.weight_dtype, model.kv_format, model.kv_origin) == ("fp8", "fp8", "kv_cache_scheme")
    targeted = {"group_0": {**eight["group_0"], "targets": ["re:.*experts.*"]}}
    assert sizes(read({"quant_method": "compressed-tensors", "config_groups": targeted})) == (1, 2, 2)


def test_a_pattern_that_could_take_forever_is_not_run():
    groups = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int"}}}
    model = read({"config_groups": groups, "ignore": ["re:(.*)*(.*)*(.*)*self_attnx"]})
    assert sizes(model) == (1, 1, 1)
    assert any("not understood" in rule for rule in model.rules)


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.5 + 2 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, 0.5 + 2 / 64),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1 + 2 / 128),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5 + 1 / 16),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 1),
    ],
)
def test_other_methods(quantization, expected):
    assert sizes(read(quantization)) == (expected,) * 3


def test_second_file():
    section = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["model.layers.*.self_attn*"]}
    model = read(companion=json.dumps({"quantization": section}))
    assert sizes(model) == (0.5625, 2, 0.5625)
    assert (model.kv_format, model.kv_origin) == ("fp8", "kv_cache_quant_algo of hf_quant_config.json")
    for algorithm, name in {"NVFP4": "nvfp4", "INT8": "int8", None: "bf16"}.items():
        section = {"quant_algo": "FP8", "kv_cache_quant_algo": algorithm}
        assert read(companion=json.dumps({"quantization": section})).kv_format == name
    with pytest.raises(InputError, match='kv_cache_quant_algo: "ODD" is not known'):
        read(companion=json.dumps({"quantization": {"kv_cache_quant_algo": "odd"}}))
    with pytest.raises(InputError, match="is not valid JSON: it ends too early"):
        read(companion='{"quantization": ')


def test_nvfp4_of_deepseek(shared_cases):
    """o_proj is in fp4, the other MLA matrices and the indexer in 16 bits; the second file lies beside the first."""
    model = load_model(str(shared_cases / "models" / "nvidia--DeepSeek-V3.2-NVFP4_config.json"))
    out, rest = 128 * 128 * 7168, 187.107e6 - 128 * 128 * 7168 + 13.96e6
    assert model.part_bytes.attention == pytest.approx((0.5625 * out + 2 * rest) / (out + rest), rel=1e-3)
    assert model.part_bytes.routed_experts == 0.5625
    assert model.kv_format == "fp8"
    assert kv.kv_total_bytes_per_token(model, model.kv_format) == 48_068


def test_a_directory_with_both_files(shared_cases, tmp_path):
    for name in ("config.json", "hf_quant_config.json"):
        source = shared_cases / "models" / f"nvidia--DeepSeek-V3.2-NVFP4_{name}"
        (tmp_path / name).write_bytes(source.read_bytes())
    model = load_model(str(tmp_path))
    assert model.weight_storage == "nvfp4"
    assert model.name == tmp_path.name


def test_deepseek_v4_experts_are_fp4():
    model = load_model("deepseek-v4-flash")
    assert model.part_bytes.routed_experts == 0.5 + 1 / 32
    assert model.part_bytes.shared_experts == 1 + 4 / 16384
    # 284e9 parameters with fp4 experts: the published checkpoint is about 160 GB
    assert stored_bytes(model) / 1e9 == pytest.approx(156, abs=2)


def test_whole_model_is_the_sum_of_its_parts():
    model = load_model("deepseek-v3.2")
    counted = count_parameters(model)
    sixteen = counted.router + counted.embedding + counted.head
    assert stored_bytes(model) == pytest.approx((counted.total - sixteen) * (1 + 4 / 16384) + 2 * sixteen, rel=1e-12)
