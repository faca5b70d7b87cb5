"""Runs of small problems by hand, classes of flows, compiled kernels and their cache."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from dualplan.flow import kernels
from dualplan.flow.fluid import run_fluid
from dualplan.flow.maxmin import solve_rates
from dualplan.flow.problem import Flow, FlowProblem, Link

ROOT = Path(__file__).resolve().parents[2]
ONE = (("l", 1.0),)
TWICE = (("l", 2.0),)


def run(*flows, capacity=100.0, changes=()):
    links = (Link(id="l", capacity=capacity, capacity_changes=changes), Link(id="m", capacity=1000.0))
    return run_fluid(FlowProblem(links=links, flows=flows), compiled=False)


def test_two_flows_that_overlap():
    found = run(Flow(id=0, route=ONE, size=200.0), Flow(id=1, route=TWICE, size=100.0, start=1.0))
    # the first has 100 bytes left at 1 s, then x + 2x = 100: both end 3 s later
    assert found.finish_s == pytest.approx((4.0, 4.0))
    assert found.link_bytes == (400.0, 0.0)
    assert found.makespan_s == pytest.approx(4.0)


def test_a_link_that_stops_and_goes_on():
    # 100 B in the first second, 50 in the second, nothing until 3 s, the last 150 B in a second
    stops = ((1.0, 50.0), (2.0, 0.0))
    flow = Flow(id=0, route=ONE, size=300.0)
    assert run(flow, changes=(*stops, (3.0, 150.0))).finish_s == (4.0,)
    assert run(flow, changes=stops).finish_s == (math.inf,)


def test_same_attributes_are_the_same_class():
    there, back = (("l", 1.0), ("m", 1.0)), (("m", 1.0), ("l", 1.0))
    same = [{"route": there}, {"route": back}, {"route": there, "traffic_class": "kv"}]
    others = [{"route": there, "weight": 2.0}, {"route": there, "rate_cap": 5.0}, {"route": there, "priority": 1}]
    # without class weights on its route, the traffic class makes no difference
    for kinds, count in ((same, 1), ([{"route": TWICE}, {"route": ONE + ONE}], 1), ([*same, *others], 4)):
        flows = [Flow(id=i, size=1.0, **kind) for i, kind in enumerate(kinds)]
        assert run(*flows).flow_classes == count


def test_empty_problem():
    result = run_fluid(FlowProblem(links=(Link(id="l", capacity=1.0),), flows=()))
    assert (result.finish_s, result.makespan_s, result.link_utilization, result.events) == ((), 0.0, (0.0,), 0)
    assert solve_rates(FlowProblem(links=(), flows=())).rates == ()


def test_steady_rates_name_what_binds():
    links = (
        Link(id="nic", capacity=50.0),
        Link(id="half", capacity=25.0),
        Link(id="dram", capacity=500.0),
        Link(id="port", capacity=30.0, shared=False),
    )
    flows = (
        Flow(id="a", route=(("nic", 1.0), ("dram", 2.0)), size=1.0),
        Flow(id="b", route=(("nic", 1.0), ("half", 1.0)), size=1.0, weight=3.0),
        Flow(id="c", route=(("half", 1.0),), size=1.0, rate_cap=5.0),
        Flow(id="d", route=(("port", 2.0), ("dram", 1.0)), size=1.0),
    )
    # c has its cap 5, b the 20 that half leaves, a the 30 that nic leaves, d half of 30 because it crosses twice
    found = solve_rates(FlowProblem(links=links, flows=flows))
    assert found.rates == (30.0, 20.0, 5.0, 15.0)
    assert found.binding == ("nic", "half", None, "port")
    assert found.link_loads == (50.0, 25.0, 75.0, 30.0)


def test_plain_run_goes_on_compiled_in_the_middle(monkeypatch):
    if kernels.compiled() is None:
        pytest.skip("Numba is not installed")
    monkeypatch.setattr(kernels, "plain_work", lambda: 40)
    links = (Link(id="l", capacity=7.0),)
    flows = tuple(Flow(id=i, route=ONE, size=1.0 + i % 5, weight=1.0 + i % 3, start=i / 3) for i in range(60))
    problem = FlowProblem(links=links, flows=flows)
    switched = run_fluid(problem)
    assert switched == run_fluid(problem, compiled=False)
    assert switched.events > 40


def test_without_numba_the_plain_kernels_do_it_all(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    kernels.compiled.cache_clear()
    monkeypatch.setattr(kernels, "plain_work", lambda: 0)
    try:
        assert kernels.compiled() is None
        flows = tuple(Flow(id=i, route=ONE, size=1.0) for i in range(3))
        assert run_fluid(FlowProblem(links=(Link(id="l", capacity=1.0),), flows=flows)).finish_s == (3.0, 3.0, 3.0)
    finally:
        kernels.compiled.cache_clear()


def test_a_cache_that_cannot_be_used_means_compiling_in_memory(monkeypatch):
    asked = []

    def no_place(numba, cache):
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return kernels.PLAIN

    pytest.importorskip("numba")
    monkeypatch.setattr(kernels, "_compile", no_place)
    kernels.compiled.cache_clear()
    try:
        assert kernels.compiled() is kernels.PLAIN
    finally:
        kernels.compiled.cache_clear()
    assert asked == [True, False]


def test_work_in_plain_python_depends_on_kept_machine_code(tmp_path):
    cold = kernels.plain_work(tmp_path)
    (tmp_path / f"events.run_0123456789ab-1.py{sys.version_info.major}{sys.version_info.minor}.nbi").touch()
    assert kernels.plain_work(tmp_path) == cold
    (tmp_path / f"events.run_{kernels.digest()}-1.py{sys.version_info.major}{sys.version_info.minor}.nbi").touch()
    assert kernels.plain_work(tmp_path) < cold


def test_flow_records_need_no_numpy():
    code = "import sys, dualplan.flow.problem, dualplan.flow.flowcase; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
