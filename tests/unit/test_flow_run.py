"""The run that a simulation drives: answers between events, numbers used again, compiled kernels and their cache."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dualplan.flow import kernels
from dualplan.flow.fluid import FluidRun, run_fluid
from dualplan.flow.maxmin import solve_rates
from dualplan.flow.problem import Flow, FlowProblem, Link

ROOT = Path(__file__).resolve().parents[2]
ONE = (("l", 1.0),)
TWICE = (("l", 2.0),)


def run_on(capacity=100.0, **options):
    return FluidRun((Link(id="l", capacity=capacity), Link(id="m", capacity=1000.0)), compiled=False, **options)


def test_what_a_run_says_between_events():
    run = run_on()
    once, twice = run.flow_class(ONE), run.flow_class(TWICE)
    first = run.add_flow(once, 200.0)
    later = run.add_flow(twice, 100.0, at=1.0)
    assert (run.now, run.rate(first), run.rate(later), run.next_event_time()) == (0.0, 100.0, 0.0, 1.0)
    assert run.remaining(later) == 100.0
    assert run.advance(1.5) == []
    # x + 2x = 100 from 1 s on
    assert run.now == 1.5
    assert run.rate(first) == run.rate(later) == pytest.approx(100 / 3)
    assert run.remaining(first) == pytest.approx(100 - 50 / 3)
    assert run.link_loads() == pytest.approx({"l": 100.0, "m": 0.0})
    assert run.next_event_time() == pytest.approx(4.0)
    ended = run.advance(10.0)
    # both have 100 bytes left at 1 s at the same rate
    assert sorted(number for number, _ in ended) == [first, later]
    assert [time for _, time in ended] == pytest.approx([4.0, 4.0])
    assert (run.now, run.next_event_time()) == (10.0, math.inf)
    assert (run.rate(first), run.remaining(first)) == (0.0, 0.0)
    assert run.link_bytes() == {"l": 400.0, "m": 0.0}
    assert run.advance(math.inf) == []
    assert run.now == 10.0


def test_capacity_set_from_outside():
    run = run_on()
    number = run.add_flow(run.flow_class(ONE), 300.0)
    run.advance(1.0)
    run.set_capacity("l", 50.0)
    run.set_capacity("l", 0.0, at=2.0)
    assert run.rate(number) == 50.0
    assert run.advance(3.0) == []
    assert (run.rate(number), run.remaining(number), run.next_event_time()) == (0.0, 150.0, math.inf)
    run.set_capacity("l", 150.0)
    assert run.advance(math.inf) == [(number, 4.0)]


def test_same_attributes_are_the_same_class():
    run = run_on()
    route = (("l", 1.0), ("m", 1.0))
    assert run.flow_class(route) == run.flow_class(route[::-1]) == run.flow_class((("m", 1.0), ("l", 1.0)))
    assert run.flow_class(TWICE) == run.flow_class(ONE + ONE)
    others = {run.flow_class(route, weight=2.0), run.flow_class(route, rate_cap=5.0), run.flow_class(route, priority=1)}
    assert len(others | {run.flow_class(route)}) == 4
    # without class weights on its route, the traffic class makes no difference
    assert run.flow_class(route, traffic_class="kv") == run.flow_class(route)


def test_a_run_in_steps_is_the_run_at_once():
    run = run_on(capacity=3.0)
    kinds = [run.flow_class(ONE, weight=weight) for weight in (1.0, 2.0, 5.0)]
    for i in range(30):
        run.add_flow(kinds[i % 3], 1.0 + i, at=i / 7)
    for step in range(1, 2000):
        run.advance(step * 0.1)
    flows = tuple(Flow(id=i, route=ONE, size=1.0 + i, start=i / 7, weight=(1.0, 2.0, 5.0)[i % 3]) for i in range(30))
    at_once = run_fluid(FlowProblem(links=(Link(id="l", capacity=3.0),), flows=flows))
    assert tuple(run.finish_times()) == at_once.finish_s
    assert tuple(run.bottlenecks()) == at_once.bottlenecks == ("l",) * 30


def test_numbers_are_used_again_when_asked_for():
    run = run_on(reuse=True)
    short, long = run.flow_class(ONE), run.flow_class((("l", 1.0), ("m", 1.0)))
    numbers = set()
    for turn in range(200):
        numbers |= {run.add_flow(short, 10.0), run.add_flow(long, 10.0)}
        assert len(run.advance(float(turn + 1))) == 2
    assert numbers == {0, 1}
    assert run.link_bytes() == {"l": 4000.0, "m": 2000.0}


def test_numbers_are_not_used_again_by_default():
    run = run_on()
    kind = run.flow_class(ONE)
    for turn in range(3):
        assert run.add_flow(kind, 10.0) == turn
        run.advance(float(turn + 1))
    assert run.finish_times() == [0.1, 1.1, 2.1]


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


def test_work_in_plain_python_depends_on_kept_machine_code(monkeypatch, tmp_path):
    source = tmp_path / "kernels.py"
    source.touch()
    monkeypatch.setattr(kernels, "__file__", str(source))
    cold = kernels.plain_work()
    kept = tmp_path / "__pycache__" / f"kernels.advance-1.py{sys.version_info.major}{sys.version_info.minor}.nbi"
    kept.parent.mkdir()
    kept.touch()
    os.utime(source, (1e9, 1e9))
    assert kernels.plain_work() < cold
    os.utime(kept, (9e8, 9e8))
    assert kernels.plain_work() == cold


def test_flow_records_need_no_numpy():
    code = "import sys, dualplan.flow.problem, dualplan.flow.flowcase; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
