"""Resources that only some machines have, and limits of the store, against loads worked out by hand."""

from pathlib import Path

import pytest

from dualplan.errors import InputError
from dualplan.spec.scenario import read_scenario, resolve, set_flags
from dualplan.steady.answer import evaluate

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"


def answer(*sets):
    return evaluate(resolve(read_scenario(PAPER), sets=set_flags(sets), base=PAPER.parent))


def loads(found):
    """Load by name and detail [B/s]."""
    return {(load.name, str(load.detail)): load.load for load in found.loads}


def test_gpu_and_nic_on_different_switches_pass_both_uplinks():
    uplinks = "hardware.pcie.uplinks=[{rate: 10TB/s, gpus: 8}, {rate: 10TB/s, cnics: 8}]"
    found = answer("collective_load=0", "hardware.pcie.gpu_nic_same_switch=false", uplinks)
    load = loads(found)

    def plain(name):
        return load[(name, "")]

    for side in ("prefill", "decode"):
        gpu, cnic = f"{side}, {{}}, 1 x (8 GPU)", f"{side}, {{}}, 1 x (8 CNIC)"
        # what NICs read from GPUs goes up the GPUs' uplink and down the NICs'; what they write to GPUs the other way
        # round
        to_wire = {
            "prefill": plain("prefill_wire_egress"),
            "decode": found.turns_per_s * found.demand.amounts.generated,
        }[side]
        assert load[("pcie_uplink", gpu.format("to host"))] == pytest.approx(to_wire)
        assert load[("pcie_uplink", cnic.format("from host"))] == pytest.approx(plain(f"{side}_cnic_read"))
        assert load[("pcie_uplink", cnic.format("to host"))] == pytest.approx(plain(f"{side}_cnic_write"))
    assert load[("pcie_uplink", "prefill, from host, 1 x (8 GPU)")] == pytest.approx(plain("prefill_cnic_write"))


def test_the_same_switch_keeps_gpu_traffic_off_the_uplink():
    uplink = "hardware.pcie.uplinks=[{rate: 10TB/s, gpus: 8, cnics: 8}]"
    load = loads(answer("collective_load=0", uplink))
    # up: the NICs' writes to host memory (none on the prefill side); down: their reads of it, the prefix once
    assert ("pcie_uplink", "prefill, to host, 1 x (8 GPU, 8 CNIC)") not in load
    down = load[("pcie_uplink", "prefill, from host, 1 x (8 GPU, 8 CNIC)")]
    assert down == pytest.approx(load[("prefill_snic_ingress", "")])


@pytest.mark.parametrize(
    ("snics", "sockets", "crossing"),
    [(1, 2, 0.5), (2, 2, 0.0), (2, 1, 0.5), (1, 1, 0.0)],
)
def test_reads_that_cross_between_sockets(snics, sockets, crossing):
    sets = ["hardware.pcie.numa_link=10TB/s", f"hardware.snic.count={snics}", f"hardware.dram.buffer_sockets={sockets}"]
    load = loads(answer("collective_load=0", "mode=layerwise", *sets))
    expected = crossing * load[("prefill_snic_ingress", "")]
    assert load.get(("numa_link", "prefill, to memory"), 0) == pytest.approx(expected)


def test_the_store_limits_reads_and_writes_whichever_side_names_it():
    for side in ("hardware", "prefill_hardware", "decode_hardware"):
        found = answer(f"{side}.storage.read_bandwidth=20GB/s")
        assert found.bottleneck.resource == "storage_backend"
        assert found.turns_per_s == pytest.approx(20e9 / found.demand.amounts.read)
    found = answer("hardware.storage.write_bandwidth=100MB/s")
    written = found.demand.amounts.append + found.demand.amounts.generated
    assert found.bottleneck.resource == "storage_backend"
    assert found.turns_per_s == pytest.approx(100e6 / written)


ROOFLINE = ("hardware.snic.time_per_read=6ms", "hardware.efficiency.prefill=0.15", "hardware.efficiency.hbm=0.9")
"""Figures of the profile, given, so that they win over the parameter set."""


def test_latency_of_the_store_delays_the_first_token():
    slow = answer(*ROOFLINE, "hardware.storage.latency=100ms").ttft_unloaded_s
    assert slow == pytest.approx(answer(*ROOFLINE).ttft_unloaded_s + 0.1)


def test_a_turn_waits_for_two_passes_unless_its_read_takes_longer():
    # half an empty pass until it is fetched, one in which it is read, one of its own; or its read, on average half a
    # pass until the next boundary, and one of its own
    base = answer().demand.passes.base
    work = answer().demand.prefill_latency - base
    assert answer().ttft_unloaded_s == pytest.approx(2.5 * base + work)
    slow = answer("hardware.storage.latency=1s")
    reading = 1.0 + slow.demand.passes.read_service * 0.96
    assert slow.ttft_unloaded_s == pytest.approx(2 * base + reading + work, rel=0.01)


def test_split_read_reads_on_both_sides_at_once():
    split, whole = answer(*ROOFLINE, "mode=split-read"), answer(*ROOFLINE, "mode=dual-path")
    # two thirds on the decode side: the read takes 6 ms and two thirds of the bytes at 45 GB/s
    size = split.demand.amounts.read
    # an idle group launches nothing, so the pass of the turn starts when its read has ended
    latency = split.demand.prefill_latency
    assert split.ttft_unloaded_s == pytest.approx(0.006 + size * split.decode_read_share / 45e9 + latency)
    assert whole.ttft_unloaded_s == pytest.approx(0.006 + size / 45e9 + latency)


def test_gpudirect_storage_holds_what_it_reads_in_hbm():
    host, gds = answer(*ROOFLINE, "mode=layerwise"), answer(*ROOFLINE, "mode=layerwise", "staging=gds")
    held = {load.name: load.load for load in gds.loads}["prefill_hbm"]
    amounts, demand = gds.demand.amounts, gds.demand
    reading = 0.006 + amounts.read / 45e9
    expected = amounts.hit * (reading + demand.prefill_latency) + amounts.miss * demand.prefill_latency
    assert held == pytest.approx(gds.turns_per_s * expected)
    assert held > 10 * {load.name: load.load for load in host.loads}["prefill_hbm"]


@pytest.mark.parametrize(
    ("cost", "copy", "rate"), [("hardware.copy.engine=6us", "engine", 8.4e9), ("hardware.copy.cnic=1us", "cnic", 50e9)]
)
def test_submission_of_one_queue(cost, copy, rate):
    # published: a layer block of 64 x 788 B every 6 us is 8.4 GB/s, every 1 us 50 GB/s, for each of 8 x 2 prefill GPUs
    found = answer(cost, f"copy={copy}", "hardware.copy.queues=1")
    capacity = next(load.capacity for load in found.loads if load.name == "copy_submission" and load.side == "prefill")
    assert capacity / 16 == pytest.approx(rate, rel=0.01)


def test_kv_gets_what_the_arbiter_guarantees_beside_a_given_load():
    # two ETS classes, KV with half: at a collective load of 0.8 KV still has 0.5 of the NIC, without QoS 0.2
    halves = "classes: [{number: 0, bandwidth: 50}, {number: 1, bandwidth: 50}]"
    found = answer("collective_load=0.8", f"hardware.qos={{kv_lane: 1, collective_lanes: [0], {halves}}}")
    assert found.collectives.kv_available == pytest.approx((0.5, 0.5))
    assert found.ranges.paper == answer("collective_load=0.5").ranges.paper
    published = answer("collective_load=0.8")
    assert published.collectives.kv_available == pytest.approx((0.2, 0.2))
    assert published.collectives.kv_floor == pytest.approx((1 / 2410, 1 / 2410))


@pytest.mark.parametrize(
    ("qos", "part"),
    [
        ("{kv_lane: 5, collective_lanes: [0], high: '0:1', low: '1:1', high_limit: 1}", "has no weight"),
        ("{kv_lane: 1, collective_lanes: [0]}", "needs high, low and high_limit"),
        (
            "{kv_lane: 1, collective_lanes: [0], high: '0:1', classes: [{number: 1, bandwidth: 50}]}",
            "InfiniBand has the one",
        ),
        ("{kv_lane: 1, collective_lanes: [0], high: junk, low: '1:1', high_limit: 1}", "junk"),
    ],
)
def test_bad_qos_settings(qos, part):
    with pytest.raises(InputError, match=part):
        answer(f"hardware.qos={qos}")


def test_a_tensor_parallel_layout_that_fits_is_named():
    found = answer("model=qwen2.5-32b")
    assert any("--decode-parallel tp=2 would fit" in str(reason) for reason in found.reasons)
    fits = answer("model=qwen2.5-32b", "prefill.parallel='tp=2,dp=8'", "decode.parallel='tp=2,dp=16'")
    assert fits.turns_per_s > 0
