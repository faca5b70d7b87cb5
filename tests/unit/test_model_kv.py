"""KV bytes by format and layer kind, against published layouts and by hand."""

import json
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.errors import InputError
from dualplan.model import kv
from dualplan.spec.layers import Compressed, GroupedQuery, Indexer, Latent, Recurrent
from dualplan.spec.model import load_model, read_model, shipped_models

GQA = GroupedQuery(heads=8, kv_heads=2, head_dim=64, v_head_dim=32)
MLA = Latent(heads=128, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128)
V4 = Compressed(
    heads=64, head_dim=512, qk_rope_head_dim=64, q_lora_rank=1024, o_groups=8, o_lora_rank=1024, ratio=4, window=128
)


def test_deepseek_v32():
    """61 layers: 656 + 132 B in the published fp8 layout, 576 elements in bf16."""
    model = load_model("deepseek-v3.2")
    assert model.kv_format == "fp8"
    assert kv.kv_bytes_per_token(model, "fp8") == 40_016
    assert kv.kv_index_bytes_per_token(model, "fp8") == 8_052
    assert kv.kv_total_bytes_per_token(model, "fp8") == 48_068
    assert kv.kv_bytes_per_token(model, "bf16") == 70_272
    assert kv.kv_index_bytes_per_token(model, "bf16") == 8_052
    assert kv.kv_bytes_per_token(model, "fp8-tensor") == 61 * 576
    assert kv.kv_total_bytes_per_token(model, "mla-704") == 61 * 704
    assert kv.state_bytes_per_sequence(model, "fp8") == 0


@pytest.mark.parametrize(
    ("attention", "form", "expected"),
    [
        (GQA, "bf16", 2 * (64 + 32) * 2),
        (GQA, "fp16", 2 * (64 + 32) * 2),
        (GQA, "fp8", 2 * (64 + 32)),
        (GQA, "int8", 2 * (64 + 32)),
        (GQA, "nvfp4", 2 * (64 + 32) * (0.5 + 1 / 16)),
        (MLA, "bf16", 1152),
        (MLA, "fp8", 512 + 16 + 128),
        (MLA, "fp8-tensor", 576),
        (V4, "fp8", 448 + 8 + 128),
        (V4, "bf16", 584),
        (None, "bf16", 0),
    ],
)
def test_entries(attention, form, expected):
    assert kv.entry_bytes(attention, form) == expected


def test_compressed_layers_keep_an_entry_for_several_tokens():
    """DeepSeek-V4-Flash: of 43 layers two have a window only, then every other one of 41 has an entry of 584 B for 4
    tokens with an index key of 132 B, and the others an entry for 128 tokens.
    """
    model = load_model("deepseek-v4-flash")
    assert kv.kv_bytes_per_token(model, "fp8") == 21 * 584 / 4 + 20 * 584 / 128
    assert kv.kv_index_bytes_per_token(model, "fp8") == 21 * 132 / 4
    assert kv.state_bytes_per_sequence(model, "fp8") == 2 * 128 * 584
    assert kv.window_tail_bytes_per_sequence(model, "fp8") == 41 * 128 * 584


def test_layers_that_share_a_cache_store_nothing_and_read_it():
    model = load_model("qwen2.5-32b")
    (group,) = model.layers
    sharing = msgspec.structs.replace(
        group, count=16, first=48, attention=msgspec.structs.replace(group.attention, shares_kv=True)
    )
    model = msgspec.structs.replace(model, layers=(msgspec.structs.replace(group, count=48), sharing))
    # 8 KV heads of 128, keys and values of 2 B
    assert kv.kv_bytes_per_token(model, "bf16") == 48 * 8 * 256 * 2
    assert kv.kv_read_bytes(model, "bf16", 1000) == 64 * 8 * 256 * 2 * 1000


def test_index_keys():
    assert kv.index_key_bytes(Indexer(heads=64, head_dim=128, topk=2048)) == 132
    assert kv.index_key_bytes(Indexer(heads=32, head_dim=64, topk=1024)) == 68
    assert kv.index_key_bytes(Indexer(heads=32, head_dim=64, topk=1024, own_keys=False)) == 0
    assert kv.index_key_bytes(None) == 0


def test_formats_by_their_other_names():
    model = load_model("deepseek-v3.2")
    for name, form in {"auto": "fp8", "bfloat16": "bf16", "FP8_DS_MLA": "fp8", "float16": "fp16"}.items():
        assert kv.check_format(name, model) == form
    with pytest.raises(InputError, match=r"--kv-dtype: .fp9. is not a KV-cache format"):
        kv.check_format("fp9", model)
    with pytest.raises(InputError, match="mla-704 is a format of MLA models"):
        kv.kv_bytes_per_token(load_model("qwen2.5-32b"), "mla-704")
    assert kv.check_format("bf16", load_model("deepseek-v4-pro")) == "fp8"


def test_windows_are_a_constant():
    model = load_model("gpt-oss-120b")
    assert kv.kv_bytes_per_token(model, "bf16") == 18 * 8 * 128 * 2
    assert kv.state_bytes_per_sequence(model, "bf16") == 18 * 128 * 8 * 128 * 2


def test_hits_are_whole_blocks():
    assert kv.hit_tokens(32_721) == 32_704
    assert kv.hit_tokens(63) == 0
    assert kv.hit_tokens(100, 50) == 100
    assert kv.hit_tokens(Fraction(1000, 7)) == 128
    model = load_model("deepseek-v3.2")
    assert kv.hit_bytes(model, "fp8", 32_721) == 32_704 * 48_068
    hybrid = load_model("gpt-oss-120b")
    assert kv.hit_bytes(hybrid, "fp8", 128) == 128 * 18_432 + kv.state_bytes_per_sequence(hybrid, "fp8")


@given(st.integers(0, 10**7))
def test_hit_bytes_never_exceed_the_context(context):
    assert 0 <= context - kv.hit_tokens(context) < 64


def test_arrays_and_symbols():
    import numpy as np
    import sympy as sp

    contexts = np.array([0.0, 63.0, 64.0, 32_721.0])
    assert list(kv.hit_tokens(contexts)) == [0, 0, 64, 32_704]
    model = load_model("deepseek-v3.2")
    reads = kv.kv_read_bytes(model, "fp8", contexts)
    assert list(reads) == [kv.kv_read_bytes(model, "fp8", c) for c in contexts]
    c = sp.Symbol("c", positive=True)
    assert kv.kv_read_bytes(model, "fp8", c).subs(c, 32_721) == kv.kv_read_bytes(model, "fp8", 32_721)
    assert kv.hit_tokens(c).subs(c, 100) == 64


def test_bytes_read_by_a_decode_step():
    # sparse attention: all index keys, 2048 entries
    model = load_model("deepseek-v3.2")
    assert kv.kv_read_bytes(model, "fp8", 32_721) == 61 * (132 * 32_721 + 656 * 2048)
    assert kv.kv_read_bytes(model, "fp8", 1000) == 61 * (132 + 656) * 1000
    # windows: 18 layers of 128 tokens
    oss = load_model("gpt-oss-120b")
    assert kv.kv_read_bytes(oss, "bf16", 1000) == 18 * 2048 * 1000 + 18 * 2048 * 128
    # DeepSeek-V4: 32,768 tokens are 8,192 entries of which 512 are read, or 256 entries; every layer has its window
    flash = load_model("deepseek-v4-flash")
    sparse, dense = 132 * 8192 + 584 * (512 + 128), 584 * (256 + 128)
    assert kv.kv_read_bytes(flash, "fp8", 32_768) == 21 * sparse + 20 * dense + 2 * 584 * 128


def test_recurrent_state_is_read_and_written():
    state = {"state_elements": 100, "state_element_bytes": 4, "conv_elements": 30, "conv_element_bytes": 2}
    layer = Recurrent(rule="mamba2", flops_per_state_element=4, shapes=(), **state)
    assert kv.layer_cache(layer, "bf16").per_sequence == 460
    model = read_model(
        json.dumps(
            {
                "model_type": "minimax_m1",
                "attn_type_list": [0, 1],
                "hidden_size": 64,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "vocab_size": 10,
                "head_dim": 16,
            }
        ),
        where="config.json",
        name="test",
    )
    assert kv.kv_read_bytes(model, "bf16", 10) == 2 * (2 * 16 * 16 * 4) + 10 * 2 * 32 * 2


@pytest.mark.parametrize("name", shipped_models())
def test_narrower_formats_are_never_larger(name):
    model = load_model(name)
    sizes = [kv.kv_bytes_per_token(model, form) for form in ("bf16", "fp8", "fp8-tensor", "nvfp4")]
    assert sizes == sorted(sizes, reverse=True)
    assert kv.kv_total_bytes_per_token(model, model.kv_format) > 0
