"""Steady rates of ``feasible`` against the saturated rates of DualPath: agents x turns / completion time, 4,096 agents.

The published rates include ramp and tail; the goal is 15 %.
"""

from pathlib import Path

import pytest
import yaml

from dualplan.spec.load import Node
from dualplan.spec.scenario import resolve, set_flags
from dualplan.spec.workload import load_workload, mean_turns
from dualplan.steady.answer import evaluate

DATA = Path(__file__).resolve().parents[2] / "dualplan" / "data" / "calibration-published.yaml"
OFFLINE = yaml.safe_load(DATA.read_text())["offline"]


def scenario(model, nodes, workload, mode, *sets):
    values = {"hardware": "dualpath-hopper", "model": model, "workload": workload, "mode": mode}
    values |= {"prefill_nodes": str(nodes[0]), "decode_nodes": str(nodes[1])}
    tree = {key: Node(value, key, origin="flag") for key, value in values.items()}
    return resolve(Node(tree, "", origin="flag"), sets=set_flags(sets))


def published(model, workload, mode):
    (entry,) = [e for e in OFFLINE if (e["model"], e["workload"], e["agents"]) == (model, workload, 4096)]
    return 4096 * mean_turns(load_workload(workload)) / entry["jct_s"][mode]


@pytest.mark.parametrize(
    ("model", "nodes", "workload", "mode", "rate"),
    [
        ("deepseek-v3.2", (2, 4), "dualpath-64k", "oracle", 69),
        ("deepseek-v3.2", (2, 4), "dualpath-64k", "dual-path", 62),
        ("deepseek-v3.2", (2, 4), "dualpath-64k", "basic", 33),
        ("deepseek-v3.2", (2, 4), "dualpath-32k", "dual-path", 85),
        ("deepseek-v3.2", (2, 4), "dualpath-32k", "basic", 52),
        ("ds-27b", (1, 1), "dualpath-64k", "dual-path", 68),
        ("ds-27b", (1, 1), "dualpath-64k", "basic", 38),
    ],
)
def test_steady_rate_is_near_the_saturated_one(model, nodes, workload, mode, rate):
    assert published(model, workload, mode) == pytest.approx(rate, abs=0.6)
    answer = evaluate(scenario(model, nodes, workload, mode))
    assert str(answer.demand.compute_origin).startswith(f"parameter set {model}")
    assert answer.turns_per_s == pytest.approx(rate, rel=0.15)


@pytest.mark.xfail(reason="30 % above", strict=True)
def test_oracle_of_ds_27b():
    # published: 134 turns/s with 2,048 agents and 123 with 4,096, as no steady rate behaves; predicted 159
    answer = evaluate(scenario("ds-27b", (1, 1), "dualpath-64k", "oracle"))
    assert answer.turns_per_s == pytest.approx(123, rel=0.15)


@pytest.mark.parametrize(
    ("sets", "part", "kept"),
    [
        (["hardware.efficiency.prefill=0.15"], "prefill", ("decode", "storage")),
        (["hardware.efficiency.hbm=0.9"], "decode", ("prefill", "storage")),
        (["hardware.snic.efficiency=0.9"], "storage", ("prefill", "decode")),
        (["prefill_hardware.gpu.flops.fp8=1000TFLOPS"], "prefill", ("decode", "storage")),
        (["decode_hardware.snic.time_per_read=1ms"], "storage", ("prefill", "decode")),
    ],
)
def test_a_figure_that_is_given_wins_over_the_set(sets, part, kept):
    from dualplan.spec.fitted_sets import fitted

    usual = evaluate(scenario("deepseek-v3.2", (2, 4), "dualpath-64k", "dual-path")).demand
    found = scenario("deepseek-v3.2", (2, 4), "dualpath-64k", "dual-path", *sets)
    answer, used = evaluate(found), fitted(found)
    assert not used.has(part) and all(used.has(other) for other in kept)
    assert f"{part} times" in str(answer.demand.compute_origin)
    assert (answer.demand.passes.base == usual.passes.base) == (part != "prefill")
    assert (answer.demand.decode_base == usual.decode_base) == (part != "decode")


@pytest.mark.parametrize("sets", [["hardware.snic.count=2"], ["hardware.dram.bandwidth=250GB/s"], ["slo.tpot=40ms"]])
def test_what_a_set_does_not_fix_leaves_it(sets):
    answer = evaluate(scenario("deepseek-v3.2", (2, 4), "dualpath-64k", "dual-path", *sets))
    assert "instead" not in str(answer.demand.compute_origin)
    assert answer.scenario.hardware.snic.efficiency == 0.9
    assert answer.scenario.hardware.snic.time_per_read == 0.005
