"""Properties of max-min rates and of the fluid run on random problems, against their conditions and an exact oracle."""

import math
import random
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dualplan.flow import kernels
from dualplan.flow.fluid import run_fluid
from dualplan.flow.layout import LIMIT_TOLERANCE
from dualplan.flow.maxmin import solve_rates
from dualplan.flow.problem import Flow, FlowProblem, Link
from tests.flow_reference import crossings, reference_finish, reference_rates

SLACK = 1e-9
CAPACITIES = st.one_of(st.integers(1, 100), st.sampled_from([0.1, 1 / 3, 1e-3, 5e10]))


@st.composite
def problems(draw, *, changes=True, priorities=True, tiny=1e-6):
    names = [f"l{i}" for i in range(draw(st.integers(1, 6)))]
    links = []
    for name in names:
        times = draw(st.lists(st.integers(0, 20), max_size=2, unique=True)) if changes else []
        links.append(
            Link(
                id=name,
                capacity=float(draw(CAPACITIES)),
                shared=draw(st.integers(0, 4)) > 0,
                capacity_changes=tuple((time / 4, float(draw(CAPACITIES))) for time in sorted(times)),
            )
        )
    flows = []
    for i in range(draw(st.integers(1, 12))):
        route = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
        flows.append(
            Flow(
                id=i,
                route=tuple((name, float(draw(st.sampled_from([1, 1, 1, 2, 3])))) for name in route),
                size=float(draw(st.one_of(st.integers(0, 50), st.sampled_from([tiny, 1e3])))),
                start=draw(st.integers(0, 12)) / 4,
                weight=float(draw(st.sampled_from([1, 1, 2, 0.3, 1000]))),
                rate_cap=draw(st.one_of(st.just(math.inf), st.integers(1, 40).map(float))),
                priority=draw(st.sampled_from([0, 0, 0, 1, 5])) if priorities else 0,
            )
        )
    return FlowProblem(links=tuple(links), flows=tuple(flows))


def load(problem, rates, link, chosen=lambda flow: True):
    return sum(
        float(crossings(flow).get(link, 0)) * rate
        for flow, rate in zip(problem.flows, rates, strict=True)
        if chosen(flow)
    )


@given(problems(changes=False))
def test_rates_fulfil_the_conditions(problem):
    found = solve_rates(problem)
    links = {link.id: link for link in problem.links}
    for link, total in zip(problem.links, found.link_loads, strict=True):
        assert total == pytest.approx(load(problem, found.rates, link.id), rel=1e-12)
        if link.shared:
            assert total <= link.capacity * (1 + SLACK)
    for flow, rate, binding in zip(problem.flows, found.rates, found.binding, strict=True):
        assert 0 <= rate <= flow.rate_cap
        if binding is None:
            assert rate == flow.rate_cap
            continue
        link = links[binding]
        if not link.shared:
            assert rate * float(crossings(flow)[binding]) == pytest.approx(link.capacity, rel=SLACK)
            continue
        served = load(problem, found.rates, binding, lambda other, last=flow.priority: other.priority <= last)
        assert served == pytest.approx(link.capacity, rel=SLACK)
        for other, its_rate in zip(problem.flows, found.rates, strict=True):
            if binding in crossings(other) and other.priority == flow.priority:
                assert its_rate / other.weight <= rate / flow.weight * (1 + SLACK)


@given(problems(changes=False))
def test_rates_equal_exact_progressive_filling(problem):
    capacity = {link.id: Fraction(link.capacity) for link in problem.links}
    exact = reference_rates(problem, range(len(problem.flows)), capacity)
    scale = max(link.capacity for link in problem.links)
    # a share that is left by larger ones is as exact as their difference, to which the solver stops looking
    assert solve_rates(problem).rates == pytest.approx(
        [float(exact[i]) for i in range(len(exact))], rel=1e-9, abs=LIMIT_TOLERANCE * scale
    )


@given(problems())
@settings(max_examples=200)
def test_finish_times_equal_the_exact_run(problem):
    assert run_fluid(problem, compiled=False).finish_s == pytest.approx(reference_finish(problem), rel=1e-9, abs=0)


@given(problems(changes=False), st.sampled_from([3.0, 0.1, 1e6]))
def test_scaling_capacities_and_caps_scales_rates(problem, factor):
    scaled = replace(
        problem,
        links=tuple(replace(link, capacity=link.capacity * factor) for link in problem.links),
        flows=tuple(replace(flow, rate_cap=flow.rate_cap * factor) for flow in problem.flows),
    )
    scale = factor * max(link.capacity for link in problem.links)
    assert solve_rates(scaled).rates == pytest.approx(
        [rate * factor for rate in solve_rates(problem).rates], rel=1e-9, abs=LIMIT_TOLERANCE * scale
    )


@given(problems(), st.randoms(use_true_random=False))
def test_order_of_flows_and_links_is_irrelevant(problem, generator):
    places = list(range(len(problem.flows)))
    generator.shuffle(places)
    links = list(problem.links)
    generator.shuffle(links)
    mixed = replace(problem, links=tuple(links), flows=tuple(problem.flows[place] for place in places))
    straight, turned = run_fluid(problem, compiled=False), run_fluid(mixed, compiled=False)
    assert turned.finish_s == pytest.approx([straight.finish_s[place] for place in places], rel=1e-9, abs=0)


def overused(problem, result):
    """Links used more than they can be, by more than they carry in a few units of the last place of a time."""
    found, end = [], max(time for time in result.finish_s if time < math.inf)
    for link, used, total in zip(problem.links, result.link_utilization, result.link_bytes, strict=True):
        fastest = max(link.capacity, *(value for _, value in link.capacity_changes), 0.0)
        blur = fastest * end * 1e-14 / total if total else 0.0
        if used is not None and used > 1 + SLACK + blur:
            found.append((link.id, used))
    return found


FAST_AT_LAST = FlowProblem(
    links=(Link(id="l0", capacity=1.0, capacity_changes=((0.0, 0.1), (0.75, 5e10))),),
    flows=(Flow(id=0, route=(("l0", 1.0),), size=1.0),),
)
"""It ends so soon after its link became fast that the time is known to a few units in its last place only."""


def integrated(problem, finish):
    """Bytes that each flow sends and each link carries where rates between events are those of a solution from nothing,
    and by how much the rounding of times blurs what a flow sends.
    """
    capacity = {link.id: [(0.0, link.capacity), *link.capacity_changes] for link in problem.links}
    times = {
        *finish,
        *(flow.start for flow in problem.flows),
        *(time for link in capacity.values() for time, _ in link),
    }
    times = sorted(time for time in times if time < math.inf)
    sent, blur = [0.0] * len(problem.flows), [0.0] * len(problem.flows)
    carried = dict.fromkeys(capacity, 0.0)
    for now, then in pairwise(times):
        links = tuple(
            replace(link, capacity=[value for time, value in capacity[link.id] if time <= now][-1], capacity_changes=())
            for link in problem.links
        )
        stopped = {link.id for link in links if link.capacity == 0}
        busy = [
            i
            for i, flow in enumerate(problem.flows)
            if flow.start <= now and finish[i] > now and flow.size and not stopped & set(crossings(flow))
        ]
        rates = solve_rates(replace(problem, links=links, flows=tuple(problem.flows[i] for i in busy))).rates
        for i, rate in zip(busy, rates, strict=True):
            sent[i] += rate * (then - now)
            blur[i] += rate * then * 1e-14
            for name, times_crossed in crossings(problem.flows[i]).items():
                carried[name] += float(times_crossed) * rate * (then - now)
    return sent, blur, carried


@example(FAST_AT_LAST)
@given(problems(tiny=0.5))
def test_bytes_are_conserved(problem):
    """Rates integrated over time are sizes; loads integrated over time are what the result says of the links."""
    result = run_fluid(problem, compiled=False)
    sent, blur, carried = integrated(problem, result.finish_s)
    assert all(abs(flow.size - sent[i]) <= 1e-12 * flow.size + blur[i] for i, flow in enumerate(problem.flows))
    for link, total in zip(problem.links, result.link_bytes, strict=True):
        crossing = [float(crossings(flow).get(link.id, 0)) for flow in problem.flows]
        assert total == sum(flow.size * times for flow, times in zip(problem.flows, crossing, strict=True))
        allowed = 1e-12 * total + sum(times * blur[i] for i, times in enumerate(crossing))
        assert abs(carried[link.id] - total) <= allowed
    assert not overused(problem, result)


@given(problems())
@settings(max_examples=50)
def test_compiled_kernels_give_the_same_bits(problem):
    if kernels.compiled() is None:
        pytest.skip("Numba is not installed")
    assert run_fluid(problem, compiled=True) == run_fluid(problem, compiled=False)


@st.composite
def weighted(draw):
    """Problems where every link arbitrates between classes with the same weights."""
    problem = draw(problems(changes=False, priorities=False))
    classes = draw(st.lists(st.sampled_from(["kv", "collective", "other"]), min_size=1, max_size=3, unique=True))
    weights = {name: float(draw(st.sampled_from([1, 8, 192, 0.5]))) for name in classes}
    return replace(
        problem,
        links=tuple(replace(link, shared=True, class_weights=weights) for link in problem.links),
        flows=tuple(replace(flow, traffic_class=draw(st.sampled_from(classes))) for flow in problem.flows),
    )


@given(weighted())
def test_class_weights_fulfil_the_conditions(problem):
    found = solve_rates(problem)
    links = {link.id: link for link in problem.links}
    for link, total in zip(problem.links, found.link_loads, strict=True):
        assert total <= link.capacity * (1 + SLACK)
    for flow, rate, binding in zip(problem.flows, found.rates, found.binding, strict=True):
        if binding is None:
            assert rate == flow.rate_cap
            continue
        link = links[binding]
        assert load(problem, found.rates, binding) == pytest.approx(link.capacity, rel=SLACK)
        levels = {
            name: load(problem, found.rates, binding, lambda other, name=name: other.traffic_class == name) / weight
            for name, weight in link.class_weights.items()
        }
        assert levels[flow.traffic_class] >= max(levels.values()) * (1 - SLACK)
        for other, its_rate in zip(problem.flows, found.rates, strict=True):
            if binding in crossings(other) and other.traffic_class == flow.traffic_class:
                assert its_rate / other.weight <= rate / flow.weight * (1 + SLACK)


@given(weighted())
@settings(max_examples=30)
def test_class_weights_over_time_end_all_flows(problem):
    result = run_fluid(problem, compiled=False)
    assert max(result.finish_s) < math.inf
    assert not overused(problem, result)
    for flow, finish in zip(problem.flows, result.finish_s, strict=True):
        narrowest = min(
            link.capacity / float(crossings(flow)[link.id]) for link in problem.links if link.id in crossings(flow)
        )
        assert finish >= (flow.start + flow.size / min(narrowest, flow.rate_cap)) * (1 - SLACK)


@given(
    st.lists(
        st.tuples(st.integers(1, 200), st.integers(1, 5), st.one_of(st.none(), st.integers(1, 60))),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 100),
)
def test_one_link_with_class_weights_is_generalised_processor_sharing(classes, capacity):
    """``classes``: weight, flows, cap of each flow. Exact water filling between classes, then equal shares inside."""
    weights = {f"c{i}": float(weight) for i, (weight, _, _) in enumerate(classes)}
    flows = [
        Flow(
            id=f"{i}.{j}",
            route=(("l", 1.0),),
            size=1.0,
            rate_cap=math.inf if cap is None else cap,
            traffic_class=f"c{i}",
        )
        for i, (_, count, cap) in enumerate(classes)
        for j in range(count)
    ]
    found = solve_rates(
        FlowProblem(links=(Link(id="l", capacity=float(capacity), class_weights=weights),), flows=tuple(flows))
    )
    wants = {i: None if cap is None else Fraction(cap * count) for i, (_, count, cap) in enumerate(classes)}
    got, left, waiting = {}, Fraction(capacity), set(wants)
    while waiting:
        level = left / sum(classes[i][0] for i in waiting)
        sated = {i for i in waiting if wants[i] is not None and wants[i] <= level * classes[i][0]}
        for i in sated or waiting:
            got[i] = wants[i] if sated else level * classes[i][0]
        left -= sum(got[i] for i in sated)
        waiting = waiting - sated if sated else set()
    expected = [float(got[i] / count) for i, (_, count, _) in enumerate(classes) for _ in range(count)]
    assert found.rates == pytest.approx(expected, rel=1e-12)


def test_a_large_random_network_equals_full_solves():
    """The rates that the run keeps by local repair are those of solutions from nothing, through many events."""
    generator = random.Random(5)
    links = tuple(Link(id=f"l{i}", capacity=generator.choice([1e9, 5e9, 1e10])) for i in range(40))
    routes = [tuple((link.id, 1.0) for link in generator.sample(links, generator.randint(1, 3))) for _ in range(80)]
    flows, start = [], 0.0
    for i in range(300):
        flows.append(Flow(id=i, route=generator.choice(routes), size=generator.uniform(1e6, 1e9), start=start))
        start += generator.expovariate(25.0)
    problem = FlowProblem(links=links, flows=tuple(flows))
    result = run_fluid(problem, compiled=False)
    sent, _, _ = integrated(problem, result.finish_s)
    assert sent == pytest.approx([flow.size for flow in flows], rel=1e-9)
    most = max(
        sum(f.start <= flow.start < end for f, end in zip(flows, result.finish_s, strict=True)) for flow in flows
    )
    assert most > 30
