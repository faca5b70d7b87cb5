"""Weights and KV room of a GPU against the published placement of DeepSeek-V3.2; parallelism of a side."""

import pytest

from dualplan.errors import InputError
from dualplan.model.memory import kv_bytes_left, kv_share_per_gpu, weight_bytes_per_gpu, weights_per_gpu
from dualplan.spec.model import load_model
from dualplan.spec.parallel import Parallel, default_parallel, hosted, parse_parallel, stored_bytes

GIB = 2**30
CARDS = (80 * GIB, 96 * GIB, 141e9, 180e9)

# ep, redundant experts: weights [GB], with one prediction layer, KV left [GB] on cards of 80 GiB, 96 GiB, 141 GB and
# 180 GB (None: does not fit)
PLACEMENTS = {
    (8, 0): (101.7, 103.4, (None, None, 21, 56)),
    (32, 0): (40.4, 41.1, (32.8, 48.2, 82.4, 117.5)),
    (32, 32): (42.9, 43.7, (30.2, 45.7, 79.8, 114.9)),
    (72, 0): (30.1, 30.7, (43.0, 58.5, 92.6, 127.7)),
    (144, 32): (25.0, 25.5, (48.1, 63.6, 97.7, 132.8)),
}


@pytest.mark.parametrize(("ep", "redundant"), sorted(PLACEMENTS))
def test_published_placements(ep, redundant):
    model = load_model("deepseek-v3.2")
    weights, with_prediction, rooms = PLACEMENTS[ep, redundant]
    found = weights_per_gpu(model, Parallel(ep=ep, dp=ep), redundant_experts=redundant)
    assert found.total / 1e9 == pytest.approx(weights, abs=0.06)
    more = weights_per_gpu(model, Parallel(ep=ep, dp=ep), redundant_experts=redundant, prediction_layers=1)
    assert more.total / 1e9 == pytest.approx(with_prediction, abs=0.06)
    for capacity, room in zip(CARDS, rooms, strict=True):
        left = kv_bytes_left(capacity, found.total)
        if room is None:
            assert left < 0
        else:
            assert left / 1e9 == pytest.approx(room, abs=0.15)
    assert weight_bytes_per_gpu(model, Parallel(ep=ep), redundant_experts=redundant) == found.total


def test_a_million_tokens_of_the_decode_placement():
    """48.1 GB at 48,068 B: 1.00e6 tokens on an 80 GiB card."""
    weights = weights_per_gpu(load_model("deepseek-v3.2"), Parallel(ep=144), redundant_experts=32).total
    assert kv_bytes_left(80 * GIB, weights) / 48_068 == pytest.approx(1.00e6, rel=0.005)


def test_parts():
    """EP32 with 32 redundant: 9 of 288 experts, everything else whole; fp8 is 1 B and its scales."""
    scale = 1 + 4 / 16384
    parts = weights_per_gpu(load_model("deepseek-v3.2"), Parallel(ep=32), redundant_experts=32)
    expert = 3 * 7168 * 2048
    assert parts.routed_experts == pytest.approx(58 * 9 * expert * scale)
    assert parts.shared_experts == pytest.approx(58 * expert * scale)
    assert parts.dense == pytest.approx(3 * 3 * 7168 * 18432 * scale)
    assert parts.embedding == 2 * 7168 * 129280 * 2
    assert parts.router == 58 * 256 * 7168 * 2
    assert parts.attention == pytest.approx(61 * (187.107e6 + 13.959e6) * scale, rel=1e-4)


def test_everything_sharded_over_a_node():
    """TP8 and EP8: 84.2 GB per GPU."""
    parts = weights_per_gpu(load_model("deepseek-v3.2"), Parallel(ep=8, tp=8))
    assert parts.total / 1e9 == pytest.approx(84.2, abs=0.06)
    # sharding whole experts or slices of them is the same amount
    sliced = weights_per_gpu(load_model("deepseek-v3.2"), Parallel(tp=8))
    assert sliced.total == pytest.approx(parts.total)


def test_dense_models():
    model = load_model("llama-3.1-70b")
    assert weight_bytes_per_gpu(model, Parallel()) == stored_bytes(model) == pytest.approx(141.1e9, rel=1e-3)
    assert weight_bytes_per_gpu(model, Parallel(tp=4)) == pytest.approx(stored_bytes(model) / 4)
    for name in ("deepseek-v3", "gpt-oss-120b", "kimi-k2"):
        moe = load_model(name)
        assert weight_bytes_per_gpu(moe, Parallel()) == pytest.approx(stored_bytes(moe))


def test_share_of_the_cache():
    assert kv_share_per_gpu(load_model("llama-3.1-70b"), Parallel(tp=4), "bf16") == pytest.approx(1 / 4)
    # 4 KV heads over 8 GPUs: each head twice
    assert kv_share_per_gpu(load_model("qwen3-235b-a22b"), Parallel(tp=8), "bf16") == pytest.approx(1 / 4)
    assert kv_share_per_gpu(load_model("deepseek-v3.2"), Parallel(tp=8), "fp8") == 1
    assert kv_share_per_gpu(load_model("deepseek-v3.2"), Parallel(ep=16, dp=16), "fp8") == 1


# ---------------------------------------------------------------- parallelism

USABLE = 0.9 * 80e9 - 4.17e9


@pytest.mark.parametrize(
    ("name", "gpus", "side", "expected"),
    [
        ("deepseek-v3.2", 16, "prefill", Parallel(ep=16, tp=1, dp=16)),
        ("deepseek-v3.2", 32, "decode", Parallel(ep=32, tp=1, dp=32)),
        ("deepseek-v3.2", 64, "prefill", Parallel(ep=32, tp=1, dp=64)),
        ("deepseek-v3.2", 320, "decode", Parallel(ep=144, tp=1, dp=320)),
        ("deepseek-v3.2", 1, "decode", Parallel(ep=1, tp=1, dp=1)),
        ("gpt-oss-120b", 320, "decode", Parallel(ep=128, tp=1, dp=320)),
        ("qwen2.5-32b", 16, "prefill", Parallel(ep=1, tp=1, dp=16)),  # 65.5 GB of 67.8 usable
        ("llama-3.1-70b", 16, "prefill", Parallel(ep=1, tp=4, dp=4)),  # 141 GB: over 2 GPUs 70.6 do not fit
        (
            "llama-3.1-405b",
            16,
            "decode",
            Parallel(ep=1, tp=8, dp=2),
        ),  # fits no node: the whole node, and the memory says so
    ],
)
def test_default_parallelism(name, gpus, side, expected):
    assert default_parallel(load_model(name), gpus, 8, USABLE, side) == expected


def test_parse():
    assert parse_parallel("ep=16,tp=1,dp=16") == Parallel(ep=16, tp=1, dp=16)
    assert parse_parallel(" tp = 8 ") == Parallel(ep=1, tp=8, dp=1)
    assert str(Parallel(ep=16, dp=16)) == "ep=16,tp=1,dp=16"
    for text, expected in {
        "": "is not a degree",
        "pp=2": "is not a degree",
        "ep": "is not a whole number",
        "ep=0": "is not a whole number",
        "ep=-1": "is not a whole number",
        "ep=1.5": "is not a whole number",
        "ep=99999999": "is not a whole number",
        "ep=2,ep=3": "ep is given twice",
    }.items():
        with pytest.raises(InputError, match=expected):
            parse_parallel(text, where="--prefill-parallel")


def test_what_a_side_hosts():
    moe, dense = load_model("deepseek-v3.2"), load_model("llama-3.1-70b")
    fits = Parallel(ep=16, tp=1, dp=16)
    assert hosted(fits, moe, 16, 8, where="prefill.parallel") is fits
    assert hosted(fits, moe, 32, 8, where="prefill.parallel") is fits  # two instances
    for parallel, model, gpus, expected in [
        (Parallel(ep=32), moe, 16, "ep=32 needs 32 GPUs, the side has 16"),
        (Parallel(ep=512), moe, 1024, "ep=512 is more than the 256 experts of deepseek-v3.2"),
        (Parallel(ep=8), dense, 16, "llama-3.1-70b has no experts"),
        (Parallel(tp=8, dp=4), dense, 16, "tp=8 times dp=4 is 32 GPUs, the side has 16"),
        (Parallel(tp=3), dense, 16, "instances of tp*dp=3 GPUs do not divide the 16 GPUs"),
        (Parallel(tp=12), dense, 24, "neither inside a node nor over whole nodes of 8 GPUs"),
    ]:
        with pytest.raises(InputError) as caught:
            hosted(parallel, model, gpus, 8, where="prefill.parallel")
        assert expected in str(caught.value)
        assert all(line.startswith("prefill.parallel: ") for line in str(caught.value).split("\n"))
