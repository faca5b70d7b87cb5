"""Reference cases with times from SimGrid 3.32 and by hand, the plain oracle itself, and hand-worked problems."""

import json
import math

import pytest

from dualplan.flow import kernels
from dualplan.flow.flowcase import parse_flowcase
from dualplan.flow.fluid import run_fluid
from dualplan.flow.problem import Flow, FlowProblem, Link, TrafficClass
from tests.flow_reference import reference_finish

CASES = [
    "01_one_flow",
    "02_two_equal",
    "03_two_sizes",
    "05_cap_one",
    "06_weight_2_1",
    "07_parking_lot3",
    "08_classic_maxmin",
    "09_twice_alone",
    "11_loopback_nic",
    "12_half_duplex_dram",
    "13_fatpipe",
    "16_back_to_back",
    "18_strict_prio",
    "19_size_extremes",
    "21_incast32",
    "22_outcast32",
    "23_alltoall8",
    "25_alltoall32_random",
    "26_parkinglot20x100",
    "28_random200x1000",
    "29_random_caps",
    "30_random_weights",
    "32_bipartite48x96_1000",
]
LARGE = ("25_alltoall32_random", "28_random200x1000", "32_bipartite48x96_1000")


def read(shared_cases, name):
    path = shared_cases / "flow" / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"no case {name} beside this checkout")
    return parse_flowcase(path.read_text(), path.name)


@pytest.mark.parametrize("name", CASES)
def test_case(shared_cases, name):
    case = read(shared_cases, name)
    result = run_fluid(case.problem, compiled=name in LARGE)
    assert result.finish_s == pytest.approx(case.expected_finish_s, rel=1e-9, abs=0)
    assert max(result.finish_s) - min(flow.start for flow in case.problem.flows) == result.makespan_s


@pytest.mark.parametrize("name", [name for name in CASES if name not in LARGE])
def test_case_gives_the_same_bits_compiled(shared_cases, name):
    if kernels.compiled() is None:
        pytest.skip("Numba is not installed")
    problem = read(shared_cases, name).problem
    assert run_fluid(problem, compiled=True) == run_fluid(problem, compiled=False)


@pytest.mark.parametrize("name", [name for name in CASES if name[:2] < "21"] + ["26_parkinglot20x100"])
def test_the_oracle_agrees_with_the_case(shared_cases, name):
    case = read(shared_cases, name)
    assert reference_finish(case.problem) == pytest.approx(case.expected_finish_s, rel=1e-9, abs=0)


def flow(route, size, number=None, **attributes):
    links = tuple((name, 1.0) for name in route.split()) if isinstance(route, str) else route
    return Flow(id=id(links) if number is None else number, route=links, size=size, **attributes)


def finish(links, flows, **more):
    links = tuple(Link(id=name, capacity=capacity) for name, capacity in links.items())
    flows = tuple(flow(*item[:2], number, **(item[2] if len(item) > 2 else {})) for number, item in enumerate(flows))
    return list(run_fluid(FlowProblem(links=links, flows=flows, **more)).finish_s)


def test_staggered_starts():
    # 0..1: A alone at 100, 100 of 300 gone; 1..3: both at 50, B's 100 gone at 3, A has 100 left; then A alone until 4
    assert finish({"l": 100.0}, [("l", 300.0), ("l", 100.0, {"start": 1.0})]) == [4.0, 3.0]


def test_twice_against_once():
    # 2x + y = 90 with x = y: 30 each; the flow that crosses once ends at 2, then the other has 45
    twice = (("l", 2.0),)
    assert finish({"l": 90.0}, [(twice, 105.0), ("l", 60.0)]) == [3.0, 2.0]
    # the same link named twice is the same route
    assert finish({"l": 90.0}, [((("l", 1.0), ("l", 1.0)), 105.0), ("l", 60.0)]) == [3.0, 2.0]


def test_cap_above_the_share_does_not_matter_until_it_binds():
    # 50 each until 1; then the survivor may use 100 but is capped at 60: 60 more bytes in 1 s
    assert finish({"l": 100.0}, [("l", 50.0), ("l", 110.0, {"rate_cap": 60.0})]) == [1.0, 2.0]


def test_idle_gap_and_simultaneous_events():
    # ends at 1, nothing until 5; two start at 5 when nothing runs, a third when both end at 7
    flows = [("l", 100.0), ("l", 100.0, {"start": 5.0}), ("l", 100.0, {"start": 5.0}), ("l", 50.0, {"start": 7.0})]
    assert finish({"l": 100.0}, flows) == [1.0, 7.0, 7.0, 7.5]


def test_many_equal_flows_end_in_one_event():
    problem = FlowProblem(
        links=(Link(id="l", capacity=100.0),), flows=tuple(flow("l", 7.0, number) for number in range(1000))
    )
    result = run_fluid(problem)
    assert result.finish_s == pytest.approx([70.0] * 1000, rel=1e-13)
    assert (result.events, result.flow_classes) == (2, 1)


def test_flow_without_bytes_ends_when_it_starts():
    assert finish({"l": 100.0}, [("l", 0.0, {"start": 3.0}), ("l", 500.0)]) == [3.0, 5.0]


def test_flow_without_links_runs_at_its_cap():
    assert finish({}, [("", 100.0, {"rate_cap": 10.0}), ("", 30.0, {"rate_cap": 10.0, "start": 1.0})]) == [10.0, 4.0]


def test_one_byte_next_to_a_terabyte_at_any_time():
    # 1 B starts at 10 s beside 1 TB at 50 GB/s: it has 25 GB/s
    found = finish({"l": 5e10}, [("l", 1e12), ("l", 1.0, {"start": 10.0}), ("l", 1e-3, {"start": 15.0})])
    assert found == pytest.approx([20.0 + 1.001 / 5e10, 10.0 + 1 / 2.5e10, 15.0 + 1e-3 / 2.5e10], rel=1e-15)
    assert found[1] > 10.0


def test_three_priorities():
    # a: 100. Priority 0 capped at 60 for 2 s, 1 capped at 30, 2 has the rest: 10 until 2, then 70 until 4, then 100
    flows = [
        ("a", 120.0, {"rate_cap": 60.0}),
        ("a", 120.0, {"rate_cap": 30.0, "priority": 1}),
        ("a", 200.0, {"priority": 7}),
    ]
    assert finish({"a": 100.0}, flows) == [2.0, 4.0, 4.0 + 40.0 / 100.0]


def test_starved_flow_waits():
    assert finish({"a": 100.0}, [("a", 300.0), ("a", 100.0, {"priority": 1})]) == [3.0, 4.0]


def test_classes_give_priorities_by_order():
    classes = (TrafficClass(id="kv", after=("collective",)), TrafficClass(id="collective"))
    flows = [("a", 100.0, {"traffic_class": "kv"}), ("a", 300.0, {"traffic_class": "collective"})]
    assert finish({"a": 100.0}, flows, classes=classes) == [4.0, 3.0]


def with_changes(*changes, shared=True):
    return Link(id="l", capacity=100.0, capacity_changes=changes, shared=shared)


def test_capacity_changes():
    # 100 for 1 s, 50 for 2 s, nothing for 2 s, 200 from then on: 100 + 100 + 0 + 400 by time 7
    links = (with_changes((1.0, 50.0), (3.0, 0.0), (5.0, 200.0)),)
    result = run_fluid(FlowProblem(links=links, flows=(flow("l", 600.0, 0), flow("l", 150.0, 1))))
    # equal shares: the small one has 50 by 1, 100 by 3, 150 at 5.5; 450 are left of the large one: 50 + 50 + 50 sent
    assert result.finish_s == (5.5 + 450.0 / 200.0, 5.5)
    # 750 bytes; possible until 7.75: 100 + 100 + 0 + 550
    assert result.link_utilization == (1.0,)


def test_capacity_change_of_a_cap_only_link():
    links = (with_changes((1.0, 50.0), shared=False),)
    result = run_fluid(FlowProblem(links=links, flows=(flow("l", 150.0, 0), flow("l", 100.0, 1))))
    assert result.finish_s == (2.0, 1.0)
    assert result.link_utilization == (None,)


def test_link_that_goes_down_leaves_flows_unfinished():
    links = (with_changes((1.0, 0.0)), Link(id="m", capacity=10.0))
    result = run_fluid(FlowProblem(links=links, flows=(flow("l m", 50.0, 0), flow("m", 1.0, 1))))
    assert result.finish_s == (math.inf, 0.2)
    assert result.bottlenecks == (None, "m")
    assert result.makespan_s == 0.2


def test_bottleneck_is_what_held_the_flow_longest():
    links = (Link(id="a", capacity=100.0), Link(id="b", capacity=100.0))
    flows = (
        flow("a b", 400.0, "long"),  # a with one other for 1 s, then b with three others for longer
        flow("a", 50.0, "short"),
        *(flow("b", 100.0, f"late {i}", start=1.0) for i in range(3)),
        flow("b", 10.0, "capped", start=20.0, rate_cap=5.0),
        flow("b", 0.0, "empty"),
    )
    result = run_fluid(FlowProblem(links=links, flows=flows))
    # 50 by 1 s; 25/s until the late ones end at 5 s: 150; alone at 100/s for the rest, 250: until 7.5 s on both
    assert result.finish_s[0] == 7.5
    assert result.bottlenecks == ("b", "a", "b", "b", "b", None, None)
    assert result.link_bytes == (450.0, 710.0)


def test_case_of_the_contract_that_arbitration_must_share():
    # class weights 8:1 on one link: KV alone has all, both backlogged 8/9 and 1/9, a light KV leaves its rest
    link = Link(id="l", capacity=90.0, class_weights={"collective": 8.0, "kv": 1.0})
    flows = (
        flow("l", 160.0, 0, traffic_class="collective"),
        flow("l", 5.0, 1, traffic_class="kv"),
        flow("l", 25.0, 2, traffic_class="kv"),
    )
    # 80, 5, 5: the first KV flow ends at 1 s; then 80, 10: 2 s; all at 2 s collective ends: KV has sent 5 + 10
    assert run_fluid(FlowProblem(links=(link,), flows=flows)).finish_s == pytest.approx((2.0, 1.0, 2.0 + 10.0 / 90.0))


def test_expected_times_of_the_files_are_read(shared_cases):
    text = (shared_cases / "flow" / "03_two_sizes.json").read_text()
    assert parse_flowcase(text, "x").expected_finish_s == tuple(json.loads(text)["expected"]["finish"])
