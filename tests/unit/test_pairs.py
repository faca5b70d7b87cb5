"""The flow problem over all pairs of nodes: the closed form for alike nodes, its own answer where they differ."""

from pathlib import Path

import pytest

from dualplan.errors import InputError
from dualplan.spec.scenario import read_scenario, resolve, set_flags
from dualplan.steady.answer import evaluate

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
# storage NICs at line rate, so that hand-made figures are round: 50 GB/s a node
PLAIN = ("hardware.snic.efficiency=1", "hardware.snic.time_per_read=0", "balance=1")
# compute and memory out of the way
FAST = (
    "hardware.gpu.flops={bf16: 1000000TFLOPS, fp8: 1000000TFLOPS}",
    "hardware.gpu.hbm_capacity=10TB",
    "hardware.gpu.hbm_bandwidth=1000TB/s",
)
FAST = (*FAST, "hardware.efficiency.decode_layer_time=0", "hardware.dram.bandwidth=100TB/s")


def answer(*sets, **options):
    return evaluate(resolve(read_scenario(PAPER), sets=set_flags(sets), base=PAPER.parent), check_flow=True, **options)


@pytest.mark.parametrize("mode", ["basic", "layerwise", "dual-path", "split-read", "oracle", "dram-pool"])
@pytest.mark.parametrize(
    "sets", [(), ("hardware.snic.count=4",), ("hardware.cnic.rate=100Gb/s",), ("staging=gpudirect", "copy=engine")]
)
def test_alike_nodes_give_the_closed_form(mode, sets):
    found = answer(f"mode={mode}", *sets)
    assert found.pairs.turns_per_s == pytest.approx(found.closed_form_turns_per_s, rel=1e-9)
    assert found.turns_per_s == found.closed_form_turns_per_s


@pytest.mark.parametrize(("prefill", "decode"), [(1, 7), (2, 4), (5, 2), (48, 96)])
def test_alike_nodes_at_any_size(prefill, decode):
    found = evaluate(resolve(read_scenario(PAPER), base=PAPER.parent), prefill, decode, check_flow=True)
    if found.turns_per_s:
        assert found.pairs.turns_per_s == pytest.approx(found.closed_form_turns_per_s, rel=1e-9)


def test_a_slower_storage_nic_costs_its_own_share():
    # six storage NICs of 50 GB/s; one decode node at half rate leaves 5.5 of 6
    usual = answer(*PLAIN, *FAST)
    slow = answer(*PLAIN, *FAST, "variants=[{side: decode, nodes: 1, set: {snic.rate: 200Gb/s}}]")
    assert usual.bottleneck.resource == "prefill_snic_ingress"
    assert slow.turns_per_s == pytest.approx(usual.turns_per_s * 5.5 / 6, rel=1e-9)
    assert (slow.bottleneck.resource, slow.bottleneck.side) == ("decode_snic_ingress", "decode")
    assert str(slow.bottleneck.detail) == "1 decode node (snic.rate)"
    assert slow.decode_read_share == pytest.approx(3.5 / 5.5)


def test_a_nic_at_half_rate_binds_where_the_network_does():
    # two prefill nodes with 8 compute NICs bind everything; one NIC at half rate takes away half of 1/16
    slow_network = ("hardware.cnic.rate=20Gb/s", "hardware.snic.rate=10000Gb/s", "collective_load=0", "mode=layerwise")
    usual = answer(*PLAIN, *FAST, *slow_network)
    assert usual.bottleneck.resource == "prefill_cnic_read"
    variant = "variants=[{side: prefill, nodes: 1, cnics: 1, set: {cnic.rate: 10Gb/s}}]"
    slow = answer(*PLAIN, *FAST, *slow_network, variant)
    assert slow.bottleneck.resource == "prefill_cnic_read"
    assert str(slow.bottleneck.detail) == "1 prefill node (cnic.rate)"
    assert slow.turns_per_s == pytest.approx(usual.turns_per_s * 15.5 / 16, rel=1e-9)


def test_a_storage_nic_behind_a_shared_uplink():
    # each node's storage NIC shares a 20 GB/s uplink with two of its eight compute NICs
    uplink = "hardware.pcie.uplinks=[{rate: 20GB/s, cnics: 2, snics: 1}]"
    found = answer(*PLAIN, *FAST, uplink, "collective_load=0", "mode=layerwise")
    assert found.bottleneck.resource == "pcie_uplink"
    # layerwise: a read passes the prefill uplink upwards once and, as two of eight loopback copies, downwards 1/4
    size = found.demand.amounts.read
    assert found.turns_per_s == pytest.approx(2 * 20e9 / size, rel=1e-9)
    assert found.pairs.turns_per_s == pytest.approx(found.turns_per_s, rel=1e-9)


def test_inter_socket_link_carries_half_of_the_reads_of_one_storage_nic():
    found = answer(*PLAIN, *FAST, "hardware.pcie.numa_link=10GB/s", "collective_load=0", "mode=layerwise")
    assert found.bottleneck.resource == "numa_link"
    assert found.turns_per_s == pytest.approx(2 * 10e9 / (found.demand.amounts.read / 2), rel=1e-9)


def test_another_profile_for_some_nodes(tmp_path):
    (tmp_path / "old.yaml").write_text("extends: dualpath-hopper\nsnic: {rate: 10Gb/s}\n")
    found = answer(f"variants=[{{side: prefill, nodes: 1, hardware: {tmp_path}/old.yaml}}]", "mode=layerwise")
    assert any(str(c.label).startswith("1 prefill node (snic.rate") for c in found.pairs.classes)
    assert found.turns_per_s < found.closed_form_turns_per_s


def test_order_of_variants_is_irrelevant():
    one, two = "{side: decode, set: {snic.rate: 200Gb/s}}", "{side: decode, set: {snic.rate: 100Gb/s}}"
    assert answer(f"variants=[{one}, {two}]").turns_per_s == pytest.approx(
        answer(f"variants=[{two}, {one}]").turns_per_s
    )


def test_memory_of_nodes_that_differ_counts():
    found = answer("variants=[{side: decode, nodes: 1, set: {gpu.hbm_capacity: 1GB}}]")
    assert not found.feasible and found.turns_per_s == 0
    assert str(found.reasons[0]).startswith("Weights do not fit on 1 of the decode nodes")


@pytest.mark.parametrize(
    ("variant", "part"),
    [
        ("{side: decode, nodes: 9}", "more decode nodes differ than the 4 there are"),
        ("{side: both}", "is not known"),
        ("{side: decode, set: {snic.rat: 200Gb/s}}", "unknown key"),
        ("{side: decode, cnics: 2}", "set cnic.rate as well"),
        ("{side: prefill, set: {gpu.count: 1}}", "the same number of GPUs"),
        ("{side: decode, cnics: 9, set: {cnic.rate: 1Gb/s}}", "more than the 8 compute NICs"),
        ("{side: decode, hardware: nowhere}", "neither a shipped name nor a file"),
    ],
)
def test_bad_variants(variant, part):
    with pytest.raises(InputError, match=part):
        answer(f"variants=[{variant}]")
