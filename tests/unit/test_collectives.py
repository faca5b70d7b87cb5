"""Collective bytes against the published message sizes, and the expected number of nodes against a simulation."""

from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.model.collectives import (
    all_reduce_bytes,
    combine_bytes,
    decode_collective_bytes_per_token,
    dispatch_bytes,
    prefill_collective_bytes_per_token,
    remote_copies,
    remote_nodes,
)
from dualplan.spec.layers import Experts
from dualplan.spec.model import load_model
from dualplan.spec.parallel import Parallel

DEEPSEEK = Experts(count=256, top_k=8, intermediate=2048, groups=8, groups_kept=4)
UNGROUPED = Experts(count=384, top_k=8, intermediate=2048)
MOE_LAYERS = 58
NIC = 50e9


def test_message_sizes():
    """DeepEP: fp8 with a scale for 128, and bf16, at a hidden size of 7,168."""
    assert dispatch_bytes(7168) == 7_392
    assert combine_bytes(7168) == 14_336


@pytest.mark.parametrize(("nodes", "expected"), [(1, 0), (2, 0.963), (4, 2.20), (8, 3.18)])
def test_remote_nodes_with_group_limit(nodes, expected):
    assert float(remote_nodes(DEEPSEEK, nodes)) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(("nodes", "expected"), [(1, 0), (4, 2.70), (8, 4.60), (18, 6.24)])
def test_remote_nodes_without_group_limit(nodes, expected):
    assert float(remote_nodes(UNGROUPED, nodes)) == pytest.approx(expected, abs=0.006)


def test_remote_nodes_at_one_group_a_node_by_hand():
    """8 nodes of one group: a kept group is missed with C(96,8)/C(128,8), 4 of them count, 7 of 8 are elsewhere."""
    assert remote_nodes(DEEPSEEK, 8) == pytest.approx(4 * (1 - comb(96, 8) / comb(128, 8)) * 7 / 8, rel=1e-12)


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 16])
def test_remote_nodes_by_counting_everything(nodes):
    """All choices of a small case: 12 experts in 4 groups, 2 kept, 3 chosen."""
    experts = Experts(count=12, top_k=3, intermediate=1, groups=4, groups_kept=2)
    home = {e: node for node in range(nodes) for e in range(node * 12 // nodes, (node + 1) * 12 // nodes)}
    reached = [
        len({home[e] for e in chosen})
        for groups in combinations(range(4), 2)
        for chosen in combinations([e for e in range(12) if e // 3 in groups], 3)
    ]
    distinct = sum(reached) / len(reached)
    assert float(remote_nodes(experts, nodes)) == pytest.approx(distinct * (nodes - 1) / nodes, rel=1e-12)


@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 8))
def test_bounds_of_remote_nodes(nodes, kept, top_k):
    experts = Experts(count=64, top_k=top_k, intermediate=1, groups=8, groups_kept=kept)
    remote = remote_nodes(experts, nodes)
    assert 0 <= remote <= remote_copies(top_k, nodes)
    # uneven placements put one node's experts on two, so only whole groups bound the nodes by the groups
    if 8 % nodes == 0:
        assert remote <= min(kept, nodes) * (1 - 1 / nodes) + 1e-12


@pytest.mark.parametrize(
    ("ep", "rate", "per_layer", "megabytes", "egress", "load"),
    [
        (32, 32.2e3, 47_695, 2.77, 11.1, 0.22),
        (32, 50.3e3, 47_695, 2.77, 17.4, 0.35),
        (32, 62.7e3, 47_695, 2.77, 21.7, 0.43),
    ],
)
def test_prefill_of_deepseek_v32(ep, rate, per_layer, megabytes, egress, load):
    """``rate``: computed tokens per second and node of 8 GPUs. The published per-layer figure is simulated: 0.1 %."""
    found = prefill_collective_bytes_per_token(load_model("deepseek-v3.2"), Parallel(ep=ep), 8)
    assert found / MOE_LAYERS == pytest.approx(per_layer, rel=1e-3)
    assert found / 1e6 == pytest.approx(megabytes, abs=0.005)
    assert rate / 8 * found / 1e9 == pytest.approx(egress, abs=0.06)
    assert rate / 8 * found / NIC == pytest.approx(load, abs=0.006)


@pytest.mark.parametrize(
    ("ep", "copies", "per_layer", "rate", "egress", "load"),
    [
        (144, 7.56, 164_288, 14.8e3, 17.6, 0.35),
        (128, 7.5, 163_080, 18.6e3, 22.0, 0.44),
        (72, 7.11, 154_624, 22.3e3, 25.0, 0.50),
        (32, 6, 130_464, 14.8e3, 14.0, 0.28),
    ],
)
def test_decode_of_deepseek_v32(ep, copies, per_layer, rate, egress, load):
    assert float(remote_copies(8, ep // 8)) == pytest.approx(copies, abs=0.005)
    found = decode_collective_bytes_per_token(load_model("deepseek-v3.2"), Parallel(ep=ep), 8)
    assert found / MOE_LAYERS == pytest.approx(per_layer, abs=0.5)
    assert rate / 8 * found / 1e9 == pytest.approx(egress, abs=0.06)
    assert rate / 8 * found / NIC == pytest.approx(load, abs=0.006)


def test_a_turn_of_the_64k_set():
    """429 appended, 176 generated: 1.19 GB in prefill at EP32, 1.33 and 1.68 GB in decode at EP32 and EP144."""
    model = load_model("deepseek-v3.2")
    assert 429 * prefill_collective_bytes_per_token(model, Parallel(ep=32), 8) / 1e9 == pytest.approx(1.19, abs=0.005)
    for ep, expected in {32: 1.33, 144: 1.68}.items():
        found = 176 * decode_collective_bytes_per_token(model, Parallel(ep=ep), 8)
        assert found / 1e9 == pytest.approx(expected, abs=0.005)


def test_nothing_leaves_a_node():
    dense, moe = load_model("llama-3.1-70b"), load_model("deepseek-v3.2")
    for function in (prefill_collective_bytes_per_token, decode_collective_bytes_per_token):
        assert function(dense, Parallel(dp=16), 8) == 0
        assert function(dense, Parallel(tp=8, dp=2), 8) == 0
        assert function(moe, Parallel(ep=8, dp=8), 8) == 0
        assert function(moe, Parallel(ep=72, dp=72), 72) == 0  # one scale-up domain
        assert function(moe, Parallel(ep=4, dp=4), 8) == 0


def test_tensor_parallel_over_nodes():
    """Two all-reduces a layer; on each of 16 GPUs 2 (M-1)/M of the 8,192 * 2 B over 8 GPUs of a node."""
    model = load_model("llama-3.1-70b")
    per_gpu = 80 * 2 * (2 * (1 / 2) * 8192 * 2 / 8)
    for function in (prefill_collective_bytes_per_token, decode_collective_bytes_per_token):
        assert function(model, Parallel(tp=16), 8) == 16 * per_gpu
    assert all_reduce_bytes(8192, 1) == 0
    # experts that are spread leave the all-reduce after attention: 61 layers, and 3 dense ones
    moe = load_model("deepseek-v3.2")
    both = decode_collective_bytes_per_token(moe, Parallel(ep=16, tp=16), 8)
    apart = decode_collective_bytes_per_token(moe, Parallel(ep=16), 8)
    assert both - apart == (61 + 3) * all_reduce_bytes(7168, 2)


def test_a_latent_width_is_what_is_dispatched(shared_cases):
    path = shared_cases / "models" / "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8_config.json"
    model = load_model(str(path))
    found = decode_collective_bytes_per_token(model, Parallel(ep=16), 8)
    assert found == 40 * 22 / 2 * (dispatch_bytes(1024) + 16 + combine_bytes(1024))
