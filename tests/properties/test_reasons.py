"""Why deployments are not feasible: the same reason for one point and for many, and the links that make it so."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualplan.spec.scenario import read_scenario, resolve, set_flags
from dualplan.steady.answer import evaluate
from dualplan.steady.grid import evaluate_grid
from dualplan.steady.resources import TITLES

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
LINES = {
    "hardware.snic.count": ["1", "2", "3", "4", "8"],
    "collective_load": ["0", "0.3", "0.7", "0.9"],
    "demand.turn_rate": ["10", "60", "200"],
    "slo.ttft": ["0.2s", "4s"],
    "slo.tpot": ["20ms", "50ms"],
    "mode": ["basic", "layerwise", "dual-path", "split-read", "oracle"],
    "hardware.gpu.hbm_capacity": ["40GB", "80GiB"],
}
chosen = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in LINES.items()})


@cache
def scenario(*sets):
    return resolve(read_scenario(PAPER), sets=set_flags(sets), base=PAPER.parent)


@settings(max_examples=60, deadline=None)
@given(chosen, st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=4))
def test_many_points_have_the_reasons_of_each(sets, nodes):
    found = scenario(*(f"{key}={value}" for key, value in sets.items()))
    prefill, decode = zip(*nodes, strict=True)
    grid = evaluate_grid(found, prefill, decode)
    for (p, d), why in zip(nodes, grid.why_not.tolist(), strict=True):
        answer = evaluate(found, p, d)
        assert why == (answer.why_not or None)
        assert answer.feasible == (why is None) and 0 <= len(answer.why_not) <= len(answer.reasons)


@pytest.mark.parametrize(
    ("sets", "links", "bounds"),
    [
        # one NIC on eight, u = 0.7, hit bytes: rho >= 50 / 70 by prefill CNIC write, rho <= 20 / 50 by decode CNIC read
        (("collective_load=0.7",), ("prefill_cnic_write", "decode_cnic_read"), (5 / 7, 2 / 5)),
        # three on eight, 500 GB/s of DRAM, no collectives: rho >= 3 / 5, rho <= (500 / 150 - 3) / 2
        (("collective_load=0", "hardware.snic.count=3"), ("prefill_cnic_write", "decode_dram"), (3 / 5, 1 / 6)),
    ],
)
def test_links_whose_bounds_cross_are_named_with_the_bounds(sets, links, bounds):
    answer = evaluate(scenario(*sets))
    paper = answer.ranges.paper
    assert paper.empty_because == links and paper.lower is None and paper.upper is None
    assert [float(bound) for bound in paper.crossing] == pytest.approx(bounds)
    names = " and ".join(TITLES[name] for name in links)
    assert [*map(str, answer.why_not)] == [f"no P/D is in range (the bounds of {names} cross)"]
    full = [f"{float(bound):.3g}" for bound in answer.ranges.all_traffic.crossing]
    assert [*map(str, answer.reasons)] == [
        f"No P/D lets the storage NICs run at line rate: {TITLES[links[0]]} needs at least {full[0]}, "
        f"{TITLES[links[1]]} at most {full[1]}.",
    ]


def test_links_that_bind_at_any_ratio_cross_with_nothing():
    answer = evaluate(scenario("hardware.snic.count=4", "collective_load=0"))
    assert answer.ranges.paper.empty_because == ("decode_cnic_read", "decode_dram")
    assert answer.ranges.paper.crossing is None
    why = str(answer.why_not[0])
    assert why.startswith("no P/D is in range (") and why.endswith(" bind at any)")


def test_a_ratio_outside_names_the_end():
    """The range of the paper's deployment ends with compute NICs on both sides."""
    grid = evaluate_grid(scenario(), [2, 2, 12], [30, 4, 4])
    assert grid.why_not.tolist()[1] is None
    assert "P/D is below its range (prefill CNIC write)" in map(str, grid.why_not[0])
    assert "P/D is above its range (decode CNIC write)" in map(str, grid.why_not[2])
    assert np.isfinite(grid.range_lower).all()
