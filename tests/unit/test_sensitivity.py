"""Elasticities against derivatives by hand, Euler's theorem, and the answer with a changed scenario."""

from pathlib import Path

import pytest

import dualplan
from dualplan.plan.explain.sensitivity import elasticities, held_by_fitted_set, tornado
from dualplan.steady.answer import evaluate

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
ROOFLINE = ("hardware.efficiency.prefill=0.15", "hardware.efficiency.decode=0.71", "hardware.efficiency.hbm=0.9")


def by_name(*sets):
    return {entry.parameter.name: entry for entry in elasticities(dualplan.load(PAPER, sets))}


def test_the_lower_end_by_hand():
    # s/(g - s) with s = n_s B_s/B: d ln/d ln s = g/(g - s) = 8/7, and as much against the compute NICs
    found = by_name("collective_load=0")
    assert found["snic_count"].lower == pytest.approx(8 / 7)
    assert found["snic_rate"].lower == pytest.approx(8 / 7)
    assert found["cnic_bandwidth"].lower == found["cnic_count"].lower == pytest.approx(-8 / 7)
    assert found["snic_count"].method == "exact"


def test_the_upper_end_by_hand():
    # decode DRAM: rho = (M/S - a_d)/a_p, so d ln rho/d ln M = M/(M - S a_d) = 500/(500 - 50 a_d)
    found = by_name("collective_load=0")
    answer = evaluate(dualplan.load(PAPER, ["collective_load=0"]))
    assert answer.ranges.all_traffic.upper_constraints == ("decode_dram",)
    amounts = answer.demand.amounts
    share = 3 + (2 * amounts.miss + amounts.append + 2 * amounts.generated) / amounts.hit
    assert found["dram_bandwidth"].upper == pytest.approx(500 / (500 - 50 * share), rel=1e-3)


@pytest.mark.parametrize(
    "sets", [(), ("hardware=dgx-h200",), ("hardware=dgx-h100", "slo.tpot=null"), ("mode=basic", *ROOFLINE)], ids=str
)
def test_the_rate_is_homogeneous_in_the_nodes(sets):
    # twice as many nodes of both sides serve twice the turns: by Euler's theorem the elasticities add up to 1
    found = by_name(*sets)
    nodes = [found[name].turns_per_s for name in ("prefill_nodes", "decode_nodes") if name in found]
    assert sum(nodes) == pytest.approx(1.0, abs=1e-6)


PLAIN = (
    "hardware=dgx-h200",
    "slo.tpot=null",
    "workload.context=32768",
    "workload.append=429",
    "workload.generated=176",
)


@pytest.mark.parametrize(
    ("name", "key", "unit", "value"),
    [
        ("snic_rate", "hardware.snic.rate", "B/s", 50e9),
        ("generated", "workload.generated", "", 176.0),
        ("append", "workload.append", "", 429.0),
        ("hbm_bandwidth", "hardware.gpu.hbm_bandwidth", "B/s", 4.8e12),
    ],
)
@pytest.mark.parametrize(
    "nodes", [("prefill_nodes=2", "decode_nodes=4"), ("prefill_nodes=8", "decode_nodes=2")], ids=str
)
def test_elasticities_are_what_the_answer_does(name, key, unit, value, nodes):
    entry = by_name(*PLAIN, *nodes).get(name)
    ends = []
    for factor in (1 - 1e-4, 1 + 1e-4):
        sets = [entry for entry in PLAIN if not entry.startswith(f"{key}=")]
        ends.append(evaluate(dualplan.load(PAPER, [*sets, *nodes, f"{key}={value * factor:.6f}{unit}"])).turns_per_s)
    expected = (ends[1] / ends[0] - 1) / 2e-4
    assert (entry.turns_per_s if entry else 0.0) == pytest.approx(expected, abs=2e-3)


def test_tornado_bars_are_answers():
    scenario = dualplan.load(PAPER, ["hardware=dgx-h200", "model=llama-3.1-70b"])
    found = tornado(scenario, 0.25)
    bars = {bar.parameter.name: bar for bar in found}
    assert bars["decode_nodes"].base == pytest.approx(evaluate(scenario).turns_per_s, rel=1e-6)
    assert bars["decode_nodes"].low_value == 3
    assert bars["decode_nodes"].low == pytest.approx(evaluate(scenario, 2, 3).turns_per_s, rel=1e-6)
    widths = [abs(bar.high - bar.low) for bar in found]
    assert widths == sorted(widths, reverse=True)


def test_bars_of_memory_are_answers_where_experts_are_held_twice():
    # the fitted deployment holds some experts twice; the weights of both are in memory at any capacity
    bar = next(bar for bar in tornado(dualplan.load(PAPER)) if bar.parameter.name == "hbm_capacity")
    more = evaluate(dualplan.load(PAPER, [f"hardware.gpu.hbm_capacity={bar.high_value:.0f}B"]))
    assert bar.high == pytest.approx(more.turns_per_s, rel=1e-6)


def test_a_fitted_set_keeps_the_machine_as_it_is():
    held = {parameter.name for parameter in held_by_fitted_set(dualplan.load(PAPER))}
    assert "hbm_bandwidth" in held
    varied = {bar.parameter.name for bar in tornado(dualplan.load(PAPER))}
    assert not varied & held
    assert not held_by_fitted_set(dualplan.load(PAPER, ["hardware=dgx-h200"]))
