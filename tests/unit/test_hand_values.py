"""A machine and a model in round numbers, and what every figure of an answer is by hand; only commands are asked."""

import json
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

import dualplan
from tests.cli.runner import in_process

# 10 layers, 8 heads and 2 KV heads of 128: bf16 KV of 10 * 2 * (128 + 128) * 2 B a token, and for each pair of a new
# and a cached token 10 * 2 * 8 * (128 + 128) FLOPs. Matrix products of a token: in each layer Q and O of 1024 x 1024,
# K and V of 1024 x 256, three of 1024 x 1024 behind them, and a head of 1024 x 1000, 2 FLOPs an element.
KV = 10_240
PAIR = 40_960
MATRICES = 2 * 10 * (2 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 1024)
HEAD = 2 * 1024 * 1000
WEIGHTS = MATRICES + HEAD + 2 * 1024 * 1000  # 2 B an element, with the input embedding
MODEL = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 10,
    "vocab_size": 1000,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "intermediate_size": 1024,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
# one GPU a node; a storage NIC reaches 5 GB/s and takes 10 ms a read, the store 30 ms
SCENARIO = """
name: by-hand
hardware:
  gpu: {kind: round, count: 1, flops: {bf16: 100TFLOPS}, hbm_capacity: 100GB, hbm_bandwidth: 1TB/s}
  cnic: {count: 1, rate: 40GB/s}
  snic: {count: 1, rate: 10GB/s, efficiency: 0.5, time_per_read: 10ms}
  dram: {bandwidth: 100GB/s, sockets: 2, kv_buffer: 100GB}
  pcie: {generation: 5, gpu_nic_same_switch: true}
  storage: {kind: store, latency: 30ms}
  efficiency: {prefill: 0.5, attention: 0.25, hbm: 0.5, decode: 0.8, decode_layer_time: 0ms, memory: 0.9, reserve: 1GB}
model: model.json
workload: {turns: 1, context: 64000, append: 32000, generated: 16000}
prefill_nodes: 4
decode_nodes: 8
prefill: {parallel: {ep: 1, tp: 1, dp: 4}}
decode: {parallel: {ep: 1, tp: 1, dp: 8}}
"""
OLD, NEW, GENERATED = 64_000, 32_000, 16_000
HIT, MISS, WRITTEN, WHOLE = (KV * tokens for tokens in (OLD, NEW, NEW + GENERATED, OLD + NEW + GENERATED))
READING = 0.030 + 0.010 + HIT / 5e9
# fitted constants; a layer has 8 kernels: norm, QKV, rotary, attention, output, and 3 of the products behind
FIT = yaml.safe_load((files("dualplan.data") / "roofline.yaml").read_text())["constants"]
KERNELS = 80
HBM, PRODUCTS = 0.5e12 * FIT["hbm_share"], 80e12 * FIT["compute_share"]
# each of the new tokens sees all cached ones and on average half of the new ones; the last one goes through the head
ATTENTION = PAIR * NEW * (OLD + NEW / 2) / 25e12
WORK = MATRICES * NEW / 50e12 + HEAD / 50e12 + ATTENTION
# a pass is launched by the host and reads the weights; full ones hold 0.3 s of attention
BASE = KERNELS * FIT["host_launch_time"] + (MATRICES + HEAD) / HBM
PREFILL = WORK + BASE * ATTENTION / 0.3
# a sequence is on average half generated: the cache that a step reads and computes with; hidden vectors cross HBM
DURING = OLD + NEW + GENERATED / 2
VECTORS = FIT["hidden_vectors"] * 10 * 2 * 1024 / HBM
STEP_BASE = (MATRICES + HEAD) / HBM
SCALED = KV * DURING / HBM + (MATRICES + HEAD + PAIR * DURING) / PRODUCTS  # what two GPUs share
STEP_SEQUENCE = FIT["sequence_time"] + VECTORS + SCALED
ROOM = 0.9 * 100e9 - 1e9 - WEIGHTS
CLOSE = 1e-3


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """The JSON of a command on the scenario."""
    folder = tmp_path_factory.mktemp("by-hand")
    (folder / "model.json").write_text(json.dumps(MODEL))
    (folder / "fp8.json").write_text(json.dumps(MODEL | {"quantization_config": {"quant_method": "fp8"}}))
    (folder / "scenario.yaml").write_text(SCENARIO)

    def answer(command, *arguments, sets=(), model="model.json"):
        flags = [f"--model={folder / model}", *(f"--set={one}" for one in sets)]
        done = in_process(command, folder / "scenario.yaml", *flags, *arguments, "--json", "--exit-zero")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return answer


def rows(data):
    """Resources by name, and by detail where one has it."""
    return {row["name"] + (f" ({row['detail']})" if row.get("detail") else ""): row for row in data["resources"]}


def turn_loads(data):
    """What a turn takes of each resource, as load over rate."""
    rate = data["throughput"]["turns_per_s"]
    return {name: row["load"] / rate for name, row in rows(data).items()}


# ---------------------------------------------------------------- compute


def test_prefill_by_hand(ask):
    data = ask("feasible", "--mode=layerwise")
    assert rows(data)["prefill_compute"]["capacity"] == pytest.approx(4 / PREFILL, rel=CLOSE)
    assert data["latency"]["ttft_unloaded_s"] == pytest.approx(READING + PREFILL, rel=CLOSE)
    # passes of whole blocks of 64 tokens, at most 8,192, whose attention takes up to 0.3 s
    passes, done = 0, 0
    while done < NEW:
        tokens = min(NEW - done, 8192)
        while PAIR * tokens * (OLD + done + tokens / 2) / 25e12 > 0.3:
            tokens -= 64
        passes, done = passes + 1, done + tokens
    data = ask("simulate", "--mode=layerwise", "--agents=1")
    assert data["ttft_parts_s"]["prefill"] == pytest.approx(WORK + passes * BASE, rel=CLOSE)


def test_decode_by_hand(ask):
    # batches without end: the share of the weights in a sequence's step goes to nothing
    data = ask("feasible", "--mode=layerwise")
    assert rows(data)["decode_compute"]["capacity"] == pytest.approx(8 / (GENERATED * STEP_SEQUENCE), rel=CLOSE)
    # a TPOT that a batch of 10 keeps: 8 engines of 10 sequences, each of which leaves after its generated tokens
    step = STEP_BASE + 10 * STEP_SEQUENCE
    data = ask("feasible", "--mode=layerwise", f"--slo-tpot={step}s")
    assert rows(data)["decode_compute"]["capacity"] == pytest.approx(8 * 10 / (GENERATED * step), rel=CLOSE)
    # a lone sequence, without and with 1 ms that each of the 10 layers takes for itself
    for layer in (0, 1):
        sets = [f"hardware.efficiency.decode_layer_time={layer}ms"]
        data = ask("simulate", "--mode=layerwise", "--agents=1", sets=sets)
        assert data["tpot_s"]["mean"] == pytest.approx(STEP_BASE + STEP_SEQUENCE + layer * 0.010, rel=CLOSE)


def test_two_gpus_that_serve_a_turn_together_take_half_the_time(ask):
    # each holds half of the weights and one of the two KV heads; NVLink so fast that nothing is seen of it
    pairs = ("hardware.gpu.count=2", "hardware.cnic.count=2", "hardware.nvlink={bandwidth: 100TB/s, domain_gpus: 2}")
    parallel = [f"{side}.parallel={{ep: 1, tp: 2, dp: {nodes}}}" for side, nodes in (("prefill", 4), ("decode", 8))]
    data = ask("feasible", "--mode=layerwise", sets=[*pairs, *parallel])
    # two all-reduces a layer, and as many launches as one GPU has
    reduces = 20 * FIT["reduce_latency"]
    base = KERNELS * FIT["host_launch_time"] + STEP_BASE / 2 + reduces
    full = WORK / 2 + base * ATTENTION / 2 / 0.3
    assert data["latency"]["ttft_unloaded_s"] == pytest.approx(READING + full, rel=CLOSE)
    assert rows(data)["prefill_compute"]["capacity"] == pytest.approx(4 / full, rel=CLOSE)
    sequence = FIT["sequence_time"] + VECTORS + SCALED / 2
    assert rows(data)["decode_compute"]["capacity"] == pytest.approx(8 / (GENERATED * sequence), rel=CLOSE)
    data = ask("simulate", "--mode=layerwise", "--agents=1", sets=[*pairs, *parallel])
    assert data["tpot_s"]["mean"] == pytest.approx(STEP_BASE / 2 + reduces + sequence, rel=CLOSE)


@pytest.mark.parametrize(("fp8", "faster"), [("100TFLOPS", 1), ("200TFLOPS", 2), ("null", 1)])
def test_weights_run_at_the_peak_of_their_type_or_of_the_next_wider_one(ask, fp8, faster):
    sets = [f"hardware.gpu.flops={{bf16: 100TFLOPS, fp8: {fp8}}}", "kv_format=bf16"]
    data = ask("feasible", "--mode=layerwise", sets=sets, model="fp8.json")
    # quantised inputs take 2 kernels more on either side of a layer; attention and the head stay in bf16
    work = MATRICES * NEW / 50e12 / faster + HEAD / 50e12 + ATTENTION
    base = 120 * FIT["host_launch_time"] + (MATRICES / 2 + HEAD) / HBM
    full = work + base * ATTENTION / 0.3
    assert rows(data)["prefill_compute"]["capacity"] == pytest.approx(4 / full, rel=CLOSE)


def test_hbm_for_kv_is_what_reserve_and_weights_leave(ask):
    data = ask("feasible")
    assert rows(data)["decode_hbm"]["capacity"] == pytest.approx(8 * (0.9 * 100e9 - 1e9 - WEIGHTS))


# ---------------------------------------------------------------- what of a prefix is read and moved


def test_what_still_resides_on_the_decode_node_is_neither_read_nor_moved_there(ask):
    per_turn = turn_loads(ask("feasible", "--mode=layerwise", sets=["residency=0.25"]))
    assert per_turn["prefill_snic_ingress"] == pytest.approx(0.75 * HIT)
    assert per_turn["decode_wire_ingress"] == pytest.approx(0.75 * HIT + MISS)


def test_what_a_pool_delivers_is_not_read_from_storage(ask):
    per_turn = turn_loads(ask("feasible", "--mode=dram-pool", sets=["pool_share=0.25"]))
    assert per_turn["prefill_snic_ingress"] == pytest.approx(0.75 * HIT)
    # from the memory of one prefill node to that of another, and what is read and sent on to the GPU beside
    assert per_turn["prefill_wire_ingress"] == pytest.approx(0.25 * HIT)
    assert per_turn["prefill_dram"] == pytest.approx((0.25 + 0.25 + 0.75 + 1) * HIT)


def test_a_length_that_stands_for_many_loses_half_a_block():
    # remainders of 0 to 63 tokens are equally likely: 31.5 on average
    turn = paper("feasible")["turn"]
    assert turn["context_tokens"] - turn["hit_tokens"] == 31.5


# ---------------------------------------------------------------- what is held while a turn is read


@pytest.mark.parametrize("mode", ["layerwise", "dual-path"])
def test_host_buffers_hold_a_prefix_from_its_read_to_the_end_of_prefill(ask, mode):
    data = ask("feasible", f"--mode={mode}")
    held, share = turn_loads(data), data["decode_read_share"] or 0.0
    assert share == pytest.approx({"layerwise": 0.0, "dual-path": 8 / 12}[mode])
    assert held["prefill_buffer"] == pytest.approx((1 - share) * HIT * (READING + PREFILL), rel=CLOSE)
    # layers come from the prefill side as they are computed; a prefix read on the decode side is there from its read on
    arrived = (1 - share) * (HIT + MISS) * PREFILL + share * (HIT * (READING + PREFILL) + MISS * PREFILL)
    assert held["decode_buffer"] == pytest.approx(arrived, rel=CLOSE)


def test_a_batch_without_layers_holds_prefill_hbm_while_it_is_read(ask):
    data = ask("feasible", "--mode=basic")
    # room for the KV that is read and as much for what is computed, of whole turns; half a pass until the next boundary
    turn = ROOM / (ROOM // (2 * (HIT + MISS)))
    passing = BASE / (1 - data["throughput"]["turns_per_s"] / 4 * WORK)
    assert turn_loads(data)["prefill_hbm"] == pytest.approx(turn * (READING + passing / 2 + PREFILL), rel=CLOSE)


def test_gpudirect_storage_holds_hbm_of_the_side_that_reads_while_it_does(ask):
    # a store that takes minutes, so that a read counts beside the steps of 16,000 tokens
    data = ask("feasible", "--staging=gds", sets=["hardware.storage.latency=300s"])
    held, share, reading = turn_loads(data), data["decode_read_share"], READING - 0.030 + 300
    one_layer = (HIT + MISS) / 10 * PREFILL
    read_there = HIT * (reading + PREFILL) + MISS * PREFILL
    assert held["prefill_hbm"] == pytest.approx((1 - share) * read_there + share * one_layer, rel=CLOSE)
    # by Little's law a place on the decode side is taken for the read, the prefill, the hand-over by 0.75 of a NIC, and
    # all steps; whole turns fit
    taken = reading + PREFILL + (HIT + MISS) / 30e9 + GENERATED * data["latency"]["tpot_s"]
    assert held["decode_hbm"] == pytest.approx(ROOM / (ROOM // WHOLE) * taken, rel=CLOSE)


# ---------------------------------------------------------------- links and the store


@pytest.mark.parametrize(("prefill", "decode"), [(2, 3), (3, 2)])
@pytest.mark.parametrize(("key", "detail"), [("read_bandwidth", "reads"), ("write_bandwidth", "writes")])
def test_of_two_figures_for_the_store_the_tighter_one_holds(ask, prefill, decode, key, detail):
    sets = [f"prefill_hardware.storage.{key}={prefill}GB/s", f"decode_hardware.storage.{key}={decode}GB/s"]
    data = ask("feasible", sets=sets)
    assert rows(data)[f"storage_backend ({detail})"]["capacity"] == 2e9
    assert turn_loads(data)[f"storage_backend ({detail})"] == pytest.approx({"reads": HIT, "writes": WRITTEN}[detail])


EIGHT = ("hardware.gpu.count=8", "hardware.cnic.count=8", "hardware.snic.count=4")


@pytest.mark.parametrize("count", [4, 2])
def test_uplinks_of_a_node_carry_the_devices_below_them(ask, count):
    # four uplinks of 25 GB/s hold every device of a node, two of them half: a prefix goes up from the storage NICs to
    # memory and down to the compute NICs
    uplinks = f"hardware.pcie.uplinks=[{{rate: 25GB/s, count: {count}, gpus: 2, cnics: 2, snics: 1}}]"
    data = ask("feasible", "--mode=layerwise", sets=[*EIGHT, uplinks])
    for direction in ("to host", "from host"):
        name = f"pcie_uplink (prefill, {direction}, {count} x (2 GPU, 2 CNIC, 1 SNIC))"
        assert rows(data)[name]["capacity"] == pytest.approx(4 * count * 25e9)
        assert turn_loads(data)[name] == pytest.approx(HIT * count / 4)


@pytest.mark.parametrize(("buffers", "storage", "gpus"), [(2, 0.5, 0.0), (1, 0.0, 0.5)])
def test_what_passes_between_two_sockets(ask, buffers, storage, gpus):
    # one storage NIC, buffers on both sockets: half of its bytes are for the other socket, each GPU has its memory
    # beside it. Buffers on one, beside the storage NIC: half of the GPUs sit on the other
    sets = ["hardware.pcie.numa_link=25GB/s", f"hardware.dram.buffer_sockets={buffers}"]
    data = ask("feasible", "--mode=layerwise", sets=sets)
    passed = {
        "prefill, to memory": storage * HIT,
        "prefill, from memory": gpus * HIT,
        # KV of the prefix, of the append and of the answer goes to memory, and all but the answer back to the GPU
        "decode, to memory": gpus * WHOLE,
        "decode, from memory": gpus * (HIT + MISS) + storage * WRITTEN,
    }
    for direction, expected in passed.items():
        assert turn_loads(data).get(f"numa_link ({direction})", 0) == pytest.approx(expected), direction
    # of the 100 GB/s of a node those sockets count that hold buffers
    assert rows(data)["prefill_dram"]["capacity"] == pytest.approx(4 * 100e9 * buffers / 2)


def test_the_fullest_storage_nic_is_full_first(ask):
    # a NIC that serves 131 ms of bytes and 10 ms a read; the fullest of unequal ones has twice the mean
    reached = HIT / (0.010 + HIT / 5e9)
    for balance in (1, 2):
        data = rows(ask("feasible", f"--balance={balance}"))
        assert data["prefill_snic_ingress"]["capacity"] == pytest.approx(4 * reached / balance)
        assert data["decode_snic_ingress"]["capacity"] == pytest.approx(8 * reached / balance)


# ---------------------------------------------------------------- demand


def test_a_quarter_of_the_rate_leaves_three_times_the_demand(ask):
    quarter = ask("feasible")["throughput"]["turns_per_s"] / 4
    demand = ask("feasible", f"--turn-rate={quarter!r}")["demand"]
    assert demand == {"turns_per_s": quarter, "utilization": pytest.approx(0.25), "headroom": pytest.approx(3.0)}
    # the other side of the rate: a demand of twice of it leaves less than nothing
    demand = ask("feasible", f"--turn-rate={8 * quarter!r}")["demand"]
    assert (demand["utilization"], demand["headroom"]) == (pytest.approx(2.0), pytest.approx(-0.5))


# ---------------------------------------------------------------- nodes that change their role


def test_shares_of_time_are_of_the_nodes_that_are_open(ask):
    call = ("--mode=layerwise", "--agents=800", "--elastic=50s:2P10D", "--switch-cost=10s")
    _, data = ask("simulate", *call, sets=["workload.append=6400", "workload.generated=160"])["modes"]
    (change,), end, turns = data["role_changes"], data["simulated_s"], data["turns"]
    assert turns == 800 and change["ready_s"] < end - 100
    used, reading = data["utilization"], 0.010 + HIT / 5e9
    prefill = 4 * change["decided_s"] + 2 * (end - change["decided_s"])
    assert used["prefill_snic_ingress"] == pytest.approx(turns * reading / prefill, rel=0.01)
    decode = 8 * change["ready_s"] + 10 * (end - change["ready_s"])
    decoding = turns * 160 * data["tpot_s"]["mean"]
    assert data["decode_batch_per_engine"] == pytest.approx(decoding / decode, rel=0.01)


# ---------------------------------------------------------------- the node of the paper, with what was fitted to it

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
FITTED = yaml.safe_load((files("dualplan.data") / "calibration.yaml").read_text())["sets"][0]


def paper(command, *arguments, sets=()):
    done = in_process(command, PAPER, *(f"--set={one}" for one in sets), *arguments, "--json", "--exit-zero")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("mode", "both", "balance"), [("layerwise", False, 1.0), ("dual-path", True, 1.18), ("split-read", True, 1.0)]
)
def test_nics_of_modes_that_read_on_both_sides_lose_the_measured_share(mode, both, balance):
    # 50 GB/s at the share that clients reach, times what was left in runs that read on both sides
    sets = ["workload.turns=3", "workload.context=64000", "workload.append=400", "workload.generated=50"]
    data = paper("feasible", f"--mode={mode}", sets=sets)
    rate = 50e9 * FITTED["snic_efficiency"] * (FITTED["both_sides"] if both else 1.0)
    size = data["turn"]["hit_bytes"]
    assert size == 64_000 * 61 * 788  # tokens, layers, and an entry of 656 B with an index key of 132 B
    reading = FITTED["time_per_read"] + size / rate
    for side, nodes in (("prefill", 2), ("decode", 4)):
        row = rows(data).get(f"{side}_snic_ingress")
        assert (row is None) == (side == "decode" and not both)
        if row is not None:
            assert row["capacity"] == pytest.approx(nodes * size / reading / balance)
    # the time of all storage NICs in a run is that of its reads
    run = dualplan.simulate(dualplan.load(PAPER, sets), agents=20, mode=mode)
    used = run.utilization["prefill_snic_ingress"] * 2 + run.utilization["decode_snic_ingress"] * 4
    reads = round(run.totals["read_bytes"] / size)
    assert used * run.simulated_s == pytest.approx(reads * reading, rel=1e-6)


CLASSES = "workload={{turns: 10, context: 20000, append: 400, generated: 1000, classes: [{}, {}]}}"
CLASS = "{{weight: 0.5, context: {}, append: 400, generated: {}}}"


def test_sequences_in_decode_are_those_that_generate_long():
    """Two workloads of the same lengths, in one of which the long contexts generate much and in the other little.

    At a moment a sequence is in decode with a probability that goes with what it generates (length-biased sampling),
    so the mean length of those held is E[generated * length] / E[generated]. HBM without limit, and a handover and
    prefill that are short beside decode, leave all else alike.
    """
    held = {}
    for name, (short, long) in {"long": (500, 1500), "short": (1500, 500)}.items():
        workload = CLASSES.format(CLASS.format(10_000, short), CLASS.format(30_000, long))
        data = paper("feasible", sets=[workload, "hardware.gpu.hbm_capacity=100TB"])
        held[name] = data["latency"]["tpot_s"], turn_loads(data)["decode_hbm"]
    assert held["long"][0] == pytest.approx(held["short"][0], rel=1e-6)
    ratio = (500 * 10_900 + 1500 * 31_900) / (1500 * 11_900 + 500 * 30_900)
    assert held["long"][1] / held["short"][1] == pytest.approx(ratio, rel=0.03)


def test_a_stated_mean_by_length_counts_as_such():
    # the same, where a workload says by how much: 1,300 tokens where turns count by their length, against 1,000
    means = "context: 20000, append: 400, generated: 1000"
    each = f"workload={{{{turns: 10, {means}, per_turn: {{{{{means}{{}}}}}}}}}}"
    plain, more = (
        turn_loads(paper("feasible", sets=[each.format(one), "hardware.gpu.hbm_capacity=100TB"]))["decode_hbm"]
        for one in ("", ", generated_by_length: 1300")
    )
    assert more / plain == pytest.approx(1.3, rel=1e-3)
