"""Several models or workloads on one cluster: against one class, against sums by hand, against another formulation."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml

from dualplan.errors import InputError
from dualplan.model.kv import kv_total_bytes_per_token
from dualplan.serving.cluster import cluster
from dualplan.serving.trajectories import equal_turns
from dualplan.spec.scenario import read_scenario, resolve, scenario_schema, set_flags
from dualplan.steady.answer import best_node_split, evaluate
from dualplan.steady.grid import evaluate_grid
from tests.cli.runner import PAPER, dualplan

BASE = "hardware: dgx-h200\nprefill_nodes: 4\ndecode_nodes: 8\n"
TWO = """mix:
  - {model: deepseek-v3.2, workload: dualpath-64k, share: 0.7}
  - {model: qwen2.5-32b, workload: dualpath-32k, share: 0.3}
"""


def scenario(tmp_path, text, *sets):
    file = tmp_path / "s.yaml"
    file.write_text(text)
    return resolve(read_scenario(file), sets=set_flags(sets), base=tmp_path)


@pytest.mark.parametrize("mode", ["basic", "layerwise", "dual-path", "split-read", "oracle"])
@pytest.mark.parametrize("hardware", ["dgx-h200", "dualpath-hopper"])
def test_a_class_mixed_with_itself_is_the_class(tmp_path, mode, hardware):
    base = f"hardware: {hardware}\nprefill_nodes: 3\ndecode_nodes: 4\nmode: {mode}\nslo: {{tpot: 50ms}}\n"
    one = evaluate(scenario(tmp_path, base + "model: deepseek-v3.2\nworkload: dualpath-64k\n"))
    entry = "{model: deepseek-v3.2, workload: dualpath-64k, share: %s}"
    both = evaluate(scenario(tmp_path, base + f"mix: [{entry % 0.25}, {entry % '75 %'}]\n"))
    assert both.turns_per_s == pytest.approx(one.turns_per_s, rel=1e-12)
    assert both.bottleneck.resource == one.bottleneck.resource and both.bottleneck.next == one.bottleneck.next
    assert both.ranges == one.ranges and both.feasible == one.feasible and both.reasons == one.reasons
    assert both.tpot_s == pytest.approx(one.tpot_s) and both.ttft_unloaded_s == pytest.approx(one.ttft_unloaded_s)
    assert both.decode_read_share == (None if one.decode_read_share is None else pytest.approx(one.decode_read_share))
    assert both.speedup_over_basic == pytest.approx(one.speedup_over_basic)
    assert both.demand.amounts.read == pytest.approx(one.demand.amounts.read)
    links = {(load.name, load.detail): load.utilization for load in one.loads if load.unit == "B/s"}
    for load in both.loads:
        if load.unit == "B/s":
            assert load.utilization == pytest.approx(links[load.name, load.detail], rel=1e-12)
    assert [one.turns_per_s for one in both.classes] == pytest.approx([0.25 * one.turns_per_s, 0.75 * one.turns_per_s])


FAST = (  # nothing but the storage NICs of the prefill side is ever full
    "hardware.gpu.flops={bf16: 1000000TFLOPS, fp8: 1000000TFLOPS}",
    "hardware.gpu.hbm_bandwidth=100000TB/s",
    "hardware.gpu.hbm_capacity=100TB",
    "hardware.efficiency.decode_layer_time=0",
    "hardware.dram.bandwidth=100TB/s",
    "hardware.snic.count=1",
    "hardware.snic.rate=50GB/s",
    "hardware.snic.efficiency=1",
    "hardware.snic.time_per_read=0",
)


def test_two_workloads_by_hand(tmp_path):
    workload = "turns: %d\ncontext: %d\nappend: 640\ngenerated: 64\nblock: 64\n"
    (tmp_path / "short.yaml").write_text(workload % (10, 6400))
    (tmp_path / "long.yaml").write_text(workload % (40, 64000))
    text = BASE + "model: deepseek-v3.2\nmode: layerwise\nmix:\n"
    text += "  - {workload: short.yaml, share: 0.6}\n  - {workload: long.yaml, share: 0.4}\n"
    found = scenario(tmp_path, text, *FAST)
    answer = evaluate(found)
    # 61 layers of 656 B latent cache and 132 B index a token; 4 nodes with one NIC of 50 GB/s
    per_token = 61 * (656 + 132)
    assert kv_total_bytes_per_token(found.model, "fp8") == per_token
    read = per_token * (0.6 * 6400 + 0.4 * 64000)
    turns = 4 * 50e9 / read
    assert answer.bottleneck.resource == "prefill_snic_ingress"
    assert answer.turns_per_s == pytest.approx(turns, rel=1e-12)
    short, long = answer.classes
    assert (short.turns_per_s, long.turns_per_s) == pytest.approx((0.6 * turns, 0.4 * turns))
    assert short.agents_per_s == pytest.approx(0.6 * turns / 10) and long.agents_per_s == pytest.approx(
        0.4 * turns / 40
    )
    assert long.alone_turns_per_s == pytest.approx(4 * 50e9 / (per_token * 64000))
    assert short.prompt_tokens_per_s == pytest.approx(0.6 * turns * 7040)


def test_two_models_by_hand(tmp_path):
    """Prefill compute alone: GPU seconds of a turn of either model, weighted by share."""
    sets = [text for text in FAST if "flops" not in text] + ["mode=oracle"]
    one = evaluate(scenario(tmp_path, BASE + "model: deepseek-v3.2\nworkload: dualpath-64k\n", *sets))
    two = evaluate(scenario(tmp_path, BASE + "model: qwen2.5-32b\nworkload: dualpath-32k\n", *sets))
    both = evaluate(scenario(tmp_path, BASE + TWO, *sets))
    assert {answer.bottleneck.resource for answer in (one, two, both)} == {"prefill_compute"}
    # in passes of n turns an engine of work w, whose slowest has e mean turns more: w + (base + e w) / n a turn
    seconds = 0.0
    for share, answer in ((0.7, one), (0.3, two)):
        work, passes = answer.demand.prefill_gpu_seconds, answer.demand.passes
        base = passes.base * answer.prefill_parallel.tp
        seconds += share * (work + (base + passes.excess * work) / passes.fullest)
    assert both.turns_per_s == pytest.approx(4 * 8 / seconds, rel=1e-12)
    assert 1 / both.turns_per_s == pytest.approx(0.7 / one.turns_per_s + 0.3 / two.turns_per_s, rel=1e-12)


def test_all_weights_are_resident(tmp_path):
    one = evaluate(scenario(tmp_path, BASE + "model: deepseek-v3.2\nworkload: dualpath-64k\n"))
    two = evaluate(scenario(tmp_path, BASE + "model: qwen2.5-32b\nworkload: dualpath-32k\n"))
    both = evaluate(scenario(tmp_path, BASE + TWO))
    for side in ("prefill", "decode"):
        weights = one.memory[side].weight_bytes_per_gpu + two.memory[side].weight_bytes_per_gpu
        assert both.memory[side].kv_bytes_per_gpu == pytest.approx(both.memory[side].usable_bytes_per_gpu - weights)
    small = evaluate(scenario(tmp_path, BASE + TWO, "hardware.gpu.hbm_capacity=80GB"), 2, 2)
    assert not small.feasible and "Weights of all models do not fit" in str(small.reasons[0]) and small.turns_per_s == 0


def test_one_model_with_two_workloads_is_close_to_their_union(tmp_path):
    """A second formulation: one workload whose turns are those of both has the same bytes and links."""
    lengths = ((0.6, 6400, 640, 64), (0.4, 64000, 320, 128))
    turns = [{"weight": w, "context": c, "append": a, "generated": g} for w, c, a, g in lengths]
    mean = {key: sum(t["weight"] * t[key] for t in turns) for key in ("context", "append", "generated")}
    (tmp_path / "union.yaml").write_text(yaml.safe_dump({"turns": 20, **mean, "block": 1, "mix": turns}))
    for name, turn in zip("ab", turns, strict=True):
        single = {key: turn[key] for key in mean}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"turns": 20, "block": 1, **single}))
    base = BASE + "model: deepseek-v3.2\n"
    union = evaluate(scenario(tmp_path, base + "workload: union.yaml\n"))
    mixed = "mix: [{workload: a.yaml, share: 0.6}, {workload: b.yaml, share: 0.4}]\n"
    both = evaluate(scenario(tmp_path, base + mixed))
    # floats of the union against exact shares
    for end in ("lower", "upper"):
        ends = [getattr(answer.ranges.effective, end) for answer in (both, union)]
        assert float(ends[0]) == pytest.approx(float(ends[1]), rel=1e-9)
    for name in ("hit", "read", "miss", "generated", "prefill_collective", "decode_collective"):
        assert getattr(both.demand.amounts, name) == pytest.approx(getattr(union.demand.amounts, name)), name
    compute = {load.name: load.capacity for load in union.loads}
    for load in both.loads:
        if load.name in ("decode_dram", "prefill_cnic_write"):
            assert load.capacity == pytest.approx(compute[load.name], rel=1e-9)
    # turns that differ meet in passes of the union, where engines wait for the slowest; those of a class are alike
    passes, work = union.demand.passes, union.demand.prefill_gpu_seconds
    both_compute = next(load.capacity for load in both.loads if load.name == "prefill_compute")
    waiting = passes.excess * work / passes.fullest / (4 * 8)
    assert 1 / compute["prefill_compute"] == pytest.approx(1 / both_compute + waiting, rel=1e-3)


def test_demand_slo_and_splits(tmp_path):
    found = scenario(tmp_path, BASE + TWO + "demand: {arrival_rate: 0.5}\nslo: {ttft: 4s, tpot: 50ms}\n")
    answer = evaluate(found)
    agents = 1 / (0.7 / 157 + 0.3 / 60)  # mean turns of an agent of the mix
    assert answer.demand_check.turns_per_s == pytest.approx(0.5 * agents, rel=1e-9)
    assert sum(one.agents_per_s for one in answer.classes) == pytest.approx(answer.turns_per_s / agents)
    best = best_node_split(found, 12)
    assert best.turns_per_s >= answer.turns_per_s and best.classes
    slow = evaluate(scenario(tmp_path, BASE + TWO + "slo: {tpot: 1ms}\n"))
    assert sum("for a single sequence" in str(reason) for reason in slow.reasons) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TWO.replace("0.3", "0.2"), "add up to 0.9"),
        (TWO.replace("0.3", "0"), "greater than 0"),
        (TWO.replace("qwen2.5-32b", "qwen"), "neither a shipped name"),
        (TWO.replace("model: qwen2.5-32b, ", ""), "model: missing"),
        (TWO.replace("share", "part"), "unknown key"),
        ("mix: []\n", "missing"),
    ],
)
def test_a_mix_that_cannot_be_is_said(tmp_path, text, says):
    with pytest.raises(InputError, match=says):
        scenario(tmp_path, BASE + text)


def test_what_does_not_count_with_a_mix_says_so(tmp_path):
    found = scenario(tmp_path, BASE + TWO)
    with pytest.raises(InputError, match="point by point"):
        evaluate_grid(found, [1], [1])
    with pytest.raises(InputError, match="check-flow"):
        evaluate(found, check_flow=True)
    with pytest.raises(InputError, match="several workloads are mixed"):
        scenario(tmp_path, BASE + TWO, "workload.append=3")
    with pytest.raises(InputError, match="not simulated"):
        cluster(found, equal_turns(found.workload))
    varied = scenario(tmp_path, BASE + TWO + "variants: [{side: decode, set: {snic.rate: 200Gb/s}}]\n")
    with pytest.raises(InputError, match="nodes that differ"):
        evaluate(varied)
    file = tmp_path / "s.yaml"
    file.write_text(BASE + TWO)
    for command in (("simulate", file, "--agents", "2"), ("plan", file, "--turn-rate", "2"), ("explain", file)):
        done = dualplan(*command)
        assert done.returncode == 3 and "mix" in done.stderr, command


def test_commands_that_count_with_a_mix(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("name: two\n" + BASE + TWO)
    found = json.loads(dualplan("feasible", file, "--json", "--exit-zero").stdout)
    answer = evaluate(resolve(read_scenario(file), base=tmp_path))
    assert found["throughput"]["turns_per_s"] == answer.turns_per_s
    assert [(one["model"], one["share"]) for one in found["classes"]] == [("deepseek-v3.2", 0.7), ("qwen2.5-32b", 0.3)]
    assert sum(one["turns_per_s"] for one in found["classes"]) == pytest.approx(answer.turns_per_s)
    text = dualplan("feasible", file).stdout
    assert "qwen2.5-32b on dualpath-32k" in text and "if alone" in text
    rows = [
        json.loads(line) for line in dualplan("sweep", file, "--vary", "prefill=3,4", "-f", "jsonl").stdout.splitlines()
    ]
    assert rows[1]["throughput"] == found["throughput"]
    shares = dualplan("compare", file, PAPER, "--json")
    assert any(entry["key"] == "mix" for entry in json.loads(shares.stdout)["input_differences"])
    printed = dualplan("feasible", file, "--print-scenario").stdout
    assert "mix" in printed and "qwen2.5-32b" in printed


def test_the_schema_takes_a_mix_or_a_model_and_a_workload():
    validator = jsonschema.Draft202012Validator(scenario_schema())
    paper = yaml.safe_load(Path(PAPER).read_text())
    validator.validate(yaml.safe_load(BASE + TWO))
    validator.validate(paper)
    assert not validator.is_valid({key: value for key, value in paper.items() if key != "model"})
    assert not validator.is_valid(yaml.safe_load(BASE + TWO.replace("share: 0.3", "part: 0.3")))


def test_the_hash_knows_every_class(tmp_path):
    from dualplan.plan.assumptions import inputs_sha256

    one, two = (
        evaluate(scenario(tmp_path, BASE + text)) for text in (TWO, TWO.replace("dualpath-32k", "dualpath-48k"))
    )
    assert inputs_sha256(one) != inputs_sha256(two)
    renamed = msgspec.structs.replace(one.scenario, origins={})
    assert inputs_sha256(msgspec.structs.replace(one, scenario=renamed)) == inputs_sha256(one)
