"""Inverse questions on random machines: at the exact value one end of the range is exactly the ratio."""

from fractions import Fraction
from pathlib import Path

import hypothesis.strategies as st
import msgspec
from hypothesis import assume, given, settings

import dualplan
from dualplan.errors import InfeasibleError
from dualplan.model.closed_form import feasible_range
from dualplan.model.symbolic import exact
from dualplan.plan.explain.parameters import PARAMETERS
from dualplan.plan.explain.solve_for import solve_range
from dualplan.steady.problem import build
from dualplan.steady.ranges import constraints, exact_bytes, saturated
from dualplan.steady.resources import storage_bandwidth
from dualplan.steady.setup import given_collectives, prepare

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
NAMES = ("snic_rate", "snic_count", "cnic_bandwidth", "cnic_count", "dram_bandwidth", "prefill_snic_rate", "residency")


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    nodes=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    snics=st.integers(1, 3),
    cnics=st.sampled_from((2, 4, 8)),
    dram=st.sampled_from((None, 250e9, 500e9, 1e12)),
    mode=st.sampled_from(("dual-path", "split-read", "basic")),
)
def test_an_end_of_the_range_is_the_ratio(name, nodes, snics, cnics, dram, mode):
    sets = [
        f"prefill_nodes={nodes[0]}",
        f"decode_nodes={nodes[1]}",
        f"mode={mode}",
        "residency=0.1",
        "hardware=dgx-h200",
    ]
    scenario = dualplan.load(PAPER, sets)
    replace, hardware = msgspec.structs.replace, scenario.hardware
    hardware = replace(
        hardware,
        snic=replace(hardware.snic, count=snics),
        cnic=replace(hardware.cnic, count=cnics),
        dram=replace(hardware.dram, bandwidth=dram),
    )
    scenario = replace(scenario, hardware=hardware, decode_hardware=hardware)
    assume(not (name == "dram_bandwidth" and dram is None))
    try:
        found = solve_range(scenario, name)
    except InfeasibleError:
        return
    assert found.exact is not None
    setup = prepare(scenario)
    # rates are floats, so a fraction of a NIC is exact to a rounding: a hair towards the valid side
    low, high = found.valid
    hair = Fraction(1, 10**12) * (-1 if found.value == high else 1)
    placed = PARAMETERS[name].put(setup, Fraction(found.exact) * (1 + hair))
    problem = replace(build(setup, mode), given=given_collectives(placed.scenario))
    storage = tuple(exact(storage_bandwidth(side)) for _, side in placed.scenario.sides)
    ends = feasible_range(constraints(placed, problem, exact_bytes(placed, problem)), *saturated(problem, storage))
    ratio = Fraction(*nodes)
    assert not ends.empty_because
    if found.constraint in (*ends.lower_constraints, *ends.upper_constraints):
        at = [end for end in (ends.lower, ends.upper) if end is not None]
        assert min(abs(float(end / ratio) - 1) for end in at) < 1e-9
    else:  # a link that holds for all ratios or for none
        assert ends.contains(ratio)
    assert low is None or high is None or low < high
