"""FLOPs of a turn by hand for each layer kind, and the same functions on arrays, fractions and symbols."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.model import compute
from dualplan.model.elementwise import floor, minimum
from dualplan.spec.layers import Compressed, GroupedQuery, Indexer, Latent, Recurrent
from dualplan.spec.model import load_model, shipped_models

INDEXER = Indexer(heads=64, head_dim=128, topk=2048)
MLA = {"heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
V4 = {"heads": 64, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024}


@pytest.mark.parametrize(
    ("attention", "context", "expected"),
    [
        (GroupedQuery(heads=40, kv_heads=8, head_dim=128, v_head_dim=128), 1000, 2 * 40 * 256 * 1000),
        (GroupedQuery(heads=40, kv_heads=8, head_dim=192, v_head_dim=128), 1000, 2 * 40 * 320 * 1000),
        (GroupedQuery(heads=64, kv_heads=8, head_dim=64, v_head_dim=64, window=128), 1000, 2 * 64 * 128 * 128),
        (GroupedQuery(heads=64, kv_heads=8, head_dim=64, v_head_dim=64, window=128), 100, 2 * 64 * 128 * 100),
        (Latent(**MLA), 1000, 2 * 128 * (1024 + 64) * 1000),
        (Latent(**MLA, indexer=INDEXER), 1000, 2 * 128 * 1088 * 1000 + 2 * 64 * 128 * 1000),
        (Latent(**MLA, indexer=INDEXER), 32_721, 2 * 128 * 1088 * 2048 + 2 * 64 * 128 * 32_721),
        (Compressed(**V4, ratio=0, window=128), 4096, 2 * 64 * 1024 * 128),
        (Compressed(**V4, ratio=128, window=128), 4096, 2 * 64 * 1024 * (32 + 128)),
        (Compressed(**V4, ratio=4, window=128, indexer=Indexer(heads=64, head_dim=128, topk=512)), 4096,
         2 * 64 * 1024 * (512 + 128) + 2 * 64 * 128 * 1024),
        (Recurrent(rule="mamba2", state_elements=100, state_element_bytes=4, conv_elements=0, conv_element_bytes=2,
                   flops_per_state_element=4, shapes=()), 10**6, 400),
        (None, 1000, 0),
    ],
)  # fmt: skip
def test_one_layer_by_hand(attention, context, expected):
    assert compute.layer_attention_flops(attention, context) == expected


def test_shared_index_scores_nothing():
    owner, reader = (
        Latent(**MLA, indexer=Indexer(heads=64, head_dim=128, topk=2048, own_keys=own)) for own in (True, False)
    )
    difference = compute.layer_attention_flops(owner, 9000) - compute.layer_attention_flops(reader, 9000)
    assert difference == 2 * 64 * 128 * 9000


def test_turn_of_deepseek_v32():
    """Appending 429 tokens to 32,721 at 37.48e9 active parameters: 32.2e12 in GEMMs, 29.0e12 in attention."""
    model = load_model("deepseek-v3.2")
    assert compute.active_parameters(model) == pytest.approx(37.48e9, rel=1e-3)
    flops = compute.turn_flops(model, 429, 32_721)
    assert flops.gemm == 2 * 429 * compute.active_parameters(model)
    assert flops.attention == 429 * 61 * (2 * 128 * 1088 * 2048 + 2 * 64 * 128 * 32_721)
    assert flops.total == flops.gemm + flops.attention
    step = compute.decode_step_flops(model, 32_721)
    assert step.total * 429 == flops.total


def test_deepseek_v4_needs_a_quarter_of_v32_at_a_million_tokens():
    """Its makers print 27 % of the FLOPs per token of DeepSeek-V3.2 for V4-Pro."""
    v32, pro = (
        compute.decode_step_flops(load_model(name), 1_000_000).total for name in ("deepseek-v3.2", "deepseek-v4-pro")
    )
    assert pro / v32 == pytest.approx(0.27, abs=0.02)


@pytest.mark.parametrize("name", shipped_models())
def test_numbers_arrays_fractions_and_symbols_agree(name):
    import numpy as np
    import sympy as sp

    model = load_model(name)
    contexts = [64, 1000, 32_721, 500_000]
    plain = [compute.turn_flops(model, 429, c).total for c in contexts]
    assert list(compute.turn_flops(model, 429, np.array(contexts, dtype=float)).total) == pytest.approx(
        plain, rel=1e-15
    )
    exact = [compute.turn_flops(model, Fraction(429), Fraction(c)).total for c in contexts]
    assert all(isinstance(value, Fraction) for value in exact)
    assert [float(value) for value in exact] == pytest.approx(plain, rel=1e-15)
    a, c = sp.symbols("a c", positive=True)
    symbolic = compute.turn_flops(model, a, c).total
    assert [float(symbolic.subs({a: 429, c: value})) for value in contexts] == pytest.approx(plain, rel=1e-12)


@given(
    st.sampled_from(shipped_models()),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(1, 1e5),
)
def test_attention_grows_with_context_and_is_linear_in_tokens(name, context, more, tokens):
    model = load_model(name)
    low, high = (compute.attention_flops(model, 1, c) for c in (context, context + more))
    assert 0 <= low <= high * (1 + 1e-12)
    assert compute.attention_flops(model, tokens, context) == pytest.approx(low * tokens, rel=1e-12)


def test_elementwise():
    import numpy as np
    import sympy as sp

    assert minimum(3, Fraction(5, 2)) == Fraction(5, 2)
    assert list(minimum(np.array([1.0, 5.0]), 2)) == [1, 2]
    assert list(minimum(2, np.array([1.0, 5.0]))) == [1, 2]
    x = sp.Symbol("x")
    assert minimum(x, 2) == sp.Min(x, 2)
    assert minimum(np.float64(3), 2) == 2
    assert floor(Fraction(7, 2)) == 3
    assert list(floor(np.array([1.5, -1.5]))) == [1, -2]
    assert floor(x) == sp.floor(x)
