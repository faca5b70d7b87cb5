"""Working set, store and break-even against published figures and by hand."""

import math
from pathlib import Path

import pytest

import dualplan
from dualplan.errors import InputError
from dualplan.model import storage
from dualplan.plan import sizing
from dualplan.spec.workload import per_turn_means
from dualplan.steady.answer import evaluate
from dualplan.trace.reuse import CurvePoint, ReuseCurve

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "examples" / "dualpath-paper.yaml"
TOLERANCE = 0.12
"""Of the published working sets and break-even bandwidths, which are rounded and rest on rules of thumb."""


def load(*sets):
    return dualplan.load(PAPER, sets)


@pytest.mark.parametrize(("rate", "time", "published"), [(0.1, 570.0, 69e9), (0.45, 1099.0, 681e9)])
def test_published_working_sets(rate, time, published):
    held = sizing.working_set(load(f"demand.arrival_rate={rate}"), time)
    assert held.bytes == pytest.approx(published, rel=TOLERANCE)
    # the figures of the rule itself: 77 and 665 GB
    assert held.bytes == pytest.approx({0.1: 76.7e9, 0.45: 665e9}[rate], rel=2e-3)
    assert held.kv_bytes_per_token == 48068
    assert held.agents == pytest.approx(rate * time)


@pytest.mark.parametrize(("flops", "published"), [(312, 6e9), (989, 19e9)], ids=["8x A800", "8x H800"])
def test_published_break_even_bandwidths(flops, published):
    # Mooncake (FAST 2025): LLaMA-3-70B, a prefix of 8,192 tokens, all FLOPS of 8 GPUs
    scenario = load(
        "hardware=dgx-h100",
        "model=llama-3.1-70b",
        "workload.context=8192",
        f"hardware.gpu.flops.bf16={flops}TFLOPS",
        "hardware.efficiency.prefill=1",
        "hardware.efficiency.attention=1",
        "hardware.nvlink.bandwidth=1000000TB/s",  # no time for all-reduces
        "kv_format=bf16",
    )
    (found,) = sizing.break_even(scenario, [8192])
    assert found.kv_bytes == 8192 * 320 * 1024
    assert found.bandwidth == pytest.approx(published, rel=TOLERANCE)
    # by hand: matrices of 80 layers (8 KV heads of 128, feed-forward 28,672), the LM head for the last token; causal
    # attention of 64 heads over half of the prefix on average
    layer = 8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672
    work = 2 * (80 * layer * 8192 + 8192 * 128256) + 80 * 2 * 64 * (128 + 128) * 8192 * 4096
    assert found.recompute_s == pytest.approx(work / (8 * flops * 1e12))
    # and its own count of FLOPs: layers d (4 p^2 + 22 p d)
    count = 80 * 8192 * (4 * 8192**2 + 22 * 8192 * 8192)
    own = storage.break_even_bandwidth(found.kv_bytes, count / (8 * flops * 1e12))
    assert own == pytest.approx(published, rel=TOLERANCE)


def test_break_even_is_where_loading_takes_as_long():
    found = sizing.break_even(load("hardware=dgx-h200"), [4096, 65536])
    for entry in found:
        assert storage.transfer_time(entry.kv_bytes, entry.bandwidth, 0) == pytest.approx(entry.recompute_s)
        for time, factor in entry.loads.values():
            assert time * factor == pytest.approx(entry.recompute_s)
    # attention makes long prefixes dearer to compute, so a slower tier is enough
    assert found[1].bandwidth < found[0].bandwidth


def test_tiers_by_hand():
    # a loopback copy takes the compute NICs once each way; storage also passes memory twice; a pool adds its way over
    # the network: memory of source and reader written and read, which 500 GB/s bear 3 times
    tiers = {tier.name: tier for tier in sizing.tiers(load(), 1e9)}
    assert tiers["local dram"].bandwidth == pytest.approx(400e9)
    assert tiers["dram pool"].bandwidth == pytest.approx(500e9 / 3)
    snic = load().hardware.snic
    assert tiers["storage"].bandwidth == pytest.approx(1e9 / (snic.time_per_read + 1e9 / (50e9 * snic.efficiency)))
    one_socket = {tier.name: tier for tier in sizing.tiers(load("hardware.dram.buffer_sockets=1"), 1e9)}
    assert one_socket["dram pool"].bandwidth == pytest.approx(250e9 / 3)


def test_think_time_stretches_by_littles_law():
    plain = sizing.working_set(load("demand.arrival_rate=0.1", "workload.turns=101"), None)
    slow = sizing.working_set(load("demand.arrival_rate=0.1", "workload.turns=101", "workload.think_time=10s"), None)
    assert slow.completion_time_s == pytest.approx(plain.completion_time_s + 100 * 10)
    r = slow.completion_time_s / plain.completion_time_s
    assert slow.stretch == pytest.approx(r)
    assert slow.agents == pytest.approx(r * plain.agents)
    assert slow.bytes == pytest.approx(r * plain.bytes)
    assert slow.bytes_without_thinking == pytest.approx(plain.bytes)
    assert slow.agents_per_s == plain.agents_per_s
    with pytest.raises(InputError, match="not longer than the 1000 s"):
        sizing.working_set(load("demand.arrival_rate=0.1", "workload.turns=101", "workload.think_time=10s"), 900.0)


def test_store_by_hand():
    scenario = load("demand.turn_rate=20")
    held = sizing.working_set(scenario, 600.0)
    server = sizing.Server(capacity=10e12, read=20e9, write=1e9)
    needs = sizing.store_needs(scenario, held, server=server, retention=86400.0, rated_writes_per_day=3.0)
    amounts = evaluate(scenario).demand.amounts
    means = per_turn_means(scenario.workload)
    written = 20 * (means.append + means.generated) * 48068  # bytes per token of DeepSeek-V3.2
    assert needs.written_bytes_per_s == pytest.approx(written)
    assert needs.written_bytes_per_day == pytest.approx(written * 86400)
    assert needs.stored_bytes == pytest.approx(written * 86400)
    assert needs.read_bytes_per_s == pytest.approx(20 * amounts.hit)
    assert needs.by_capacity == math.ceil(written * 86400 / 10e12)
    assert needs.by_read == math.ceil(20 * amounts.hit / 20e9) == 2
    assert needs.by_write == 1
    assert needs.servers == max(needs.by_capacity, 2) and needs.with_one_down == needs.servers + 1
    assert needs.drive_writes_per_day == pytest.approx(written * 86400 / (needs.servers * 10e12))
    assert needs.life_s == pytest.approx(3 / needs.drive_writes_per_day * 5 * 365 * 86400)
    assert needs.node_down[1] == evaluate(scenario, 2, 3).turns_per_s


def test_short_retention_leaves_the_working_set():
    scenario = load("demand.turn_rate=20")
    held = sizing.working_set(scenario, 600.0)
    needs = sizing.store_needs(scenario, held, server=sizing.Server(), retention=1.0)
    assert needs.stored_bytes == held.bytes
    assert needs.servers is None and needs.drive_writes_per_day is None


def test_the_last_node_of_a_side_leaves_nothing():
    scenario = load("model=llama-3.1-70b", "prefill_nodes=1", "demand.turn_rate=1")
    needs = sizing.store_needs(scenario, sizing.working_set(scenario, 60.0), server=sizing.Server())
    assert needs.node_down[0] is None


def curve(*points):
    return ReuseCurve(
        basis="blocks",
        working_set_tokens=0.0,
        points=tuple(CurvePoint(cache_tokens=tokens, by_token=share, by_block=None) for tokens, share in points),
        for_share={},
        windows=None,
        sampled=1.0,
        because="",
    )


def test_hit_share_between_points_of_the_curve():
    found = curve((1024.0, 0.1), (2048.0, 0.3), (4096.0, 0.4))
    assert sizing.hit_share(found, 2048) == pytest.approx(0.75)
    assert sizing.hit_share(found, 2048 * 2**0.5) == pytest.approx(0.35 / 0.4)
    assert sizing.hit_share(found, 1e9) == 1.0
    assert sizing.hit_share(found, 0) == 0.0
    assert sizing.hit_share(curve((1.0, 0.0)), 10) == 0.0


def test_a_pool_takes_its_share_of_the_reads():
    scenario = load("hardware=dgx-h200", "slo.tpot=null")
    bytes_per_token = 48068
    sizes = [1024 * bytes_per_token, 4096 * bytes_per_token]
    small, large = sizing.pool_sizes(scenario, curve((1024.0, 0.2), (4096.0, 0.8)), sizes)
    assert small.hit_share == pytest.approx(0.25) and large.hit_share == 1.0
    assert large.turns_per_s >= small.turns_per_s >= small.without
    again = dualplan.load(PAPER, ["hardware=dgx-h200", "slo.tpot=null", "mode=dram-pool", "pool_share=0.25"])
    assert small.turns_per_s == pytest.approx(evaluate(again).turns_per_s)


def test_residency_takes_reads_away():
    amounts = {r: evaluate(load(f"residency={r}")).demand.amounts for r in (0, 0.25, 1)}
    assert amounts[0.25].read == pytest.approx(0.75 * amounts[0].read)
    assert amounts[0.25].loaded == pytest.approx(0.75 * amounts[0].hit)
    loads = {load.name: load.load for load in evaluate(load("residency=1")).loads}
    # steps 1-2 are gone, so no storage NIC reads
    assert "prefill_snic_ingress" not in loads and "decode_snic_ingress" not in loads


def test_remote_site_by_hand():
    scenario = load("hardware=dgx-h200")
    local = evaluate(scenario)
    size = local.demand.amounts.read
    found = sizing.remote(scenario, bandwidth=10e9, latency=0.05, share=0.5)
    assert found.loaded_ttft_s == pytest.approx(local.ttft_unloaded_s + 0.05 + size / 10e9)
    assert found.link_turns_per_s == pytest.approx(10e9 / (0.5 * size))
    assert found.loaded_turns_per_s == pytest.approx(min(local.turns_per_s, 10e9 / (0.5 * size)))
    assert found.recomputed_turns_per_s < local.turns_per_s
    # at the break-even bandwidth both have the first token at once
    even = sizing.remote(scenario, bandwidth=found.break_even, latency=0.05, share=0.5)
    assert even.loaded_ttft_s == pytest.approx(even.recomputed_ttft_s)


def test_a_link_that_is_too_far_never_pays_in_time():
    found = sizing.remote(load("hardware=dgx-h200"), bandwidth=1e12, latency=3600.0)
    assert found.break_even is None and not found.pays_in_time
    wide = sizing.remote(load("hardware=dgx-h200"), bandwidth=1e15, latency=0.0)
    assert wide.pays_in_time and wide.pays_in_rate
    assert wide.loaded_turns_per_s == pytest.approx(wide.local_turns_per_s)


def test_nothing_is_remote_where_nothing_is_read():
    with pytest.raises(InputError, match="no prefix is read"):
        sizing.remote(load("mode=oracle", "residency=1"), bandwidth=1e9, latency=0.0)


@pytest.mark.parametrize(
    ("changes", "read", "written"),
    [
        # bytes a turn: c = 32,704 tokens in whole blocks of 64, append 429, generated 176, at 48,068 B
        ([], 32_704, 429 + 176),
        (["persist=prefill"], 32_704, 429 + 176),
        (["staging=gpudirect"], 32_704, 429 + 176),
        (["residency=0.25"], 0.75 * 32_704, 429 + 176),
        (["mode=oracle"], 0, 0),
    ],
)
def test_what_a_turn_reads_and_writes_by_hand(changes, read, written):
    plain = ["workload.context=32704", "workload.append=429", "workload.generated=176", "workload.turns=157"]
    found = sizing.store_traffic(evaluate(load(*plain, *changes)))
    assert found == pytest.approx((read * 48_068, written * 48_068))


@pytest.mark.parametrize("rate", [1e-300, 1e300])
def test_rates_that_no_store_is_planned_for(rate):
    with pytest.raises(InputError, match="is not a demand"):
        sizing.working_set(load(f"demand.turn_rate={rate:.0f}" if rate > 1 else f"demand.turn_rate={rate}"))
