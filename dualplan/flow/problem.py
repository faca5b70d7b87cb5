"""A flow problem and its results: links, flows, traffic classes, rates, finish times. Nothing here knows GPUs or nodes.

A *link* is anything with a capacity that flows share: a NIC direction, a memory, a switch port. A half-duplex link
is one link that the flows of both directions cross, a full-duplex one is two links. Bytes, bytes per second and
seconds everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from dualplan.errors import InputError, did_you_mean, problem

Route = tuple[tuple[str, float], ...]
"""The links that a flow crosses, each with how many times its rate counts there."""

Fault = tuple[str, str, str]
"""A problem found: key path, what is wrong, hint."""

MOST_LINES = 50
"""Problems of one file that are listed; the rest is counted."""

SMALLEST, LARGEST = 1e-30, 1e30
"""Other sizes, capacities, caps and times (but 0) are refused, so that no product leaves the range of floats."""
LIGHTEST, HEAVIEST = 1e-12, 1e12
"""The same for weights and multiplicities."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link and its ``capacity`` [B/s].

    ``shared``: the rates that cross the link add up, whatever their direction; otherwise each flow alone is capped
    (cap-only). ``class_weights``: traffic class -> weight where the link arbitrates between classes; empty where it
    treats all flows alike. ``capacity_changes``: times [s], increasing, each with the capacity from then on [B/s].
    """

    id: str
    capacity: float
    shared: bool = True
    class_weights: Mapping[str, float] = msgspec.field(default_factory=dict)
    capacity_changes: tuple[tuple[float, float], ...] = ()


class TrafficClass(msgspec.Struct, frozen=True, kw_only=True):
    """A traffic class. Strict: it gets what the classes named in ``after`` leave."""

    id: str
    after: tuple[str, ...] = ()


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """``size`` bytes that cross ``route`` from time ``start`` [s] on, at most ``rate_cap`` [B/s].

    Rates are proportional to ``weight`` at a shared bottleneck. ``priority`` 0 is served before 1 (strict), and so on;
    ``traffic_class`` matters on links with class weights, and gives the priority if the problem declares the class.
    """

    id: int | str
    route: Route
    size: float
    start: float = 0.0
    weight: float = 1.0
    rate_cap: float = math.inf
    priority: int = 0
    traffic_class: str = ""


class FlowProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Links, flows and, where strict classes are given by name, their order."""

    links: tuple[Link, ...]
    flows: tuple[Flow, ...]
    classes: tuple[TrafficClass, ...] = ()


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Max-min rates of all flows of a problem together, whatever their start and size, in the order of the problem.

    ``rates`` [B/s]; ``binding``: the link that stops the flow from going faster, None where it is the flow's own cap;
    ``link_loads`` [B/s], for cap-only links the sum over flows as well.
    """

    rates: tuple[float, ...]
    binding: tuple[str | None, ...]
    link_loads: tuple[float, ...]


class FlowResult(msgspec.Struct, frozen=True, kw_only=True):
    """When every flow of a problem ends, in its order; infinity for those that never do because a capacity fell to 0.

    ``bottlenecks``: the link that held the flow back for the longest time; None for the flow's own cap, for a flow
    without bytes and for one that never ends. ``makespan_s``: first start to last completion. ``link_bytes``: what
    finished flows carried over each link; ``link_utilization``: this over what the link could have carried in the
    makespan, None for cap-only links. ``events``: instants at which something happened; ``flow_classes``: sets of flows
    with one service clock.
    """

    finish_s: tuple[float, ...]
    bottlenecks: tuple[str | None, ...]
    makespan_s: float
    link_bytes: tuple[float, ...]
    link_utilization: tuple[float | None, ...]
    events: int
    flow_classes: int


def check(flow_problem: FlowProblem, where: str = "") -> None:
    """Raise InputError with every problem found: names, ranges, links without capacity, cycles of classes."""
    report(problems(flow_problem), where)


def report(found: Iterable[Fault], where: str = "") -> None:
    """Raise InputError if there are faults, with all of them."""
    lines = [problem(f"{where}: {place}" if where else place, what, hint) for place, what, hint in found]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [problem(where, f"{len(lines) - MOST_LINES} more problems like these")]
    if lines:
        raise InputError("", problems=lines)


def problems(flow_problem: FlowProblem) -> Iterable[Fault]:
    """Every problem of a flow problem."""
    links = {link.id: link for link in flow_problem.links}
    yield from _repeated("links", [link.id for link in flow_problem.links])
    yield from _repeated("flows", [flow.id for flow in flow_problem.flows])
    yield from _repeated("classes", [traffic_class.id for traffic_class in flow_problem.classes])
    yield from _class_problems(flow_problem)
    for i, link in enumerate(flow_problem.links):
        yield from _link_problems(f"links[{i}]", link)
    declared = {traffic_class.id for traffic_class in flow_problem.classes}
    for i, flow in enumerate(flow_problem.flows):
        yield from flow_problems(f"flows[{i}]", flow, links, declared)


def priorities(flow_problem: FlowProblem) -> dict[str, int]:
    """Strict priority of each declared class: 0, or one more than the lowest of the classes it comes after.

    Raises InputError where classes come after one another in a cycle.
    """
    after = {traffic_class.id: traffic_class.after for traffic_class in flow_problem.classes}
    done: dict[str, int] = {}
    for start in after:
        path = [start]
        while path:
            waiting = [name for name in after.get(path[-1], ()) if name not in done]
            if not waiting:
                name = path.pop()
                done[name] = max((done[other] + 1 for other in after.get(name, ())), default=0)
            elif waiting[0] in path:
                cycle = [*path[path.index(waiting[0]) :], waiting[0]]
                names = " after ".join(_quoted(name) for name in cycle)
                raise InputError("classes", f"come after one another in a cycle: {names}")
            else:
                path.append(waiting[0])
    return done


def _repeated(place: str, names: Sequence[int | str]) -> Iterable[Fault]:
    first: dict[int | str, int] = {}
    for i, name in enumerate(names):
        if name in first:
            yield f"{place}[{i}].id", f"{_quoted(name)} is already the id of {place}[{first[name]}]", ""
        else:
            first[name] = i


def _class_problems(flow_problem: FlowProblem) -> Iterable[Fault]:
    known = [traffic_class.id for traffic_class in flow_problem.classes]
    for i, traffic_class in enumerate(flow_problem.classes):
        for name in traffic_class.after:
            if name not in known:
                yield f"classes[{i}].after", f"unknown class {_quoted(name)}", did_you_mean(name, known)
    try:
        priorities(flow_problem)
    except InputError as error:
        yield "classes", str(error).removeprefix("classes: "), ""


def _link_problems(place: str, link: Link) -> Iterable[Fault]:
    yield from out_of_range(f"{place}.capacity", link.capacity, zero=True)
    for name, weight in link.class_weights.items():
        yield from _bad_factor(f"{place}.class_weights.{name}", weight)
    if link.class_weights and not link.shared:
        yield f"{place}.class_weights", "a cap-only link is not shared, so there is nothing to divide", ""
    before = -1.0
    for i, (time, capacity) in enumerate(link.capacity_changes):
        yield from out_of_range(f"{place}.capacity_changes[{i}][0]", time, zero=True)
        yield from out_of_range(f"{place}.capacity_changes[{i}][1]", capacity, zero=True)
        if time <= before:
            yield f"{place}.capacity_changes[{i}][0]", f"time {time:g} does not come after {before:g}", ""
        before = time


def flow_problems(place: str, flow: Flow, links: Mapping[str, Link], declared: Collection[str] = ()) -> Iterable[Fault]:
    """Every problem of one flow; ``links`` by id, ``declared``: the classes that the problem declares, if any."""
    yield from out_of_range(f"{place}.size", flow.size, zero=True)
    yield from out_of_range(f"{place}.start", flow.start, zero=True)
    yield from _bad_factor(f"{place}.weight", flow.weight)
    if flow.rate_cap != math.inf:
        yield from out_of_range(f"{place}.rate_cap", flow.rate_cap, zero=False)
    if not 0 <= flow.priority < 2**31:
        yield f"{place}.prio", f"{str(flow.priority)[:20]} is not a priority", "0 is served first, then 1, and so on"
    if flow.traffic_class in declared and flow.priority:
        yield (
            f"{place}.prio",
            f"class {_quoted(flow.traffic_class)} already gives the priority",
            "leave one of the two out",
        )
    elif declared and flow.traffic_class and flow.traffic_class not in declared:
        yield (
            f"{place}.class",
            f"unknown class {_quoted(flow.traffic_class)}",
            did_you_mean(flow.traffic_class, declared),
        )
    if not flow.route and flow.rate_cap == math.inf:
        yield f"{place}.links", "crosses no link and has no rate cap, so nothing limits it", ""
    for i, (name, times) in enumerate(flow.route):
        yield from _bad_factor(f"{place}.links[{i}][1]", times)
        link = links.get(name)
        if link is None:
            yield f"{place}.links[{i}]", f"unknown link {_quoted(name)}", did_you_mean(name, links)
            continue
        if link.capacity == 0 and not any(capacity > 0 for _, capacity in link.capacity_changes):
            yield f"{place}.links[{i}]", f"link {_quoted(name)} has no capacity", "give it one, or take the flow off it"
        if link.class_weights and flow.traffic_class not in link.class_weights:
            hint = did_you_mean(flow.traffic_class, link.class_weights)
            yield f"{place}.class", f"link {_quoted(name)} has no weight for class {_quoted(flow.traffic_class)}", hint


def out_of_range(place: str, value: float, *, zero: bool) -> Iterable[Fault]:
    """The problem of a size, capacity, cap or time, if it has one; ``zero``: whether it may be 0."""
    if not math.isfinite(value):
        yield place, f"{value:g} is not a finite number", ""
    elif value < 0 or (value == 0 and not zero):
        yield place, f"{value:g} is {'negative' if value < 0 else 'not positive'}", ""
    elif value and not SMALLEST <= value <= LARGEST:
        yield place, f"{value:g} is outside of {SMALLEST:g} to {LARGEST:g}", ""


def _bad_factor(place: str, value: float) -> Iterable[Fault]:
    if not math.isfinite(value):
        yield place, f"{value:g} is not a finite number", ""
    elif value <= 0:
        yield place, f"{value:g} is not positive", ""
    elif not LIGHTEST <= value <= HEAVIEST:
        yield place, f"{value:g} is outside of {LIGHTEST:g} to {HEAVIEST:g}", ""


def _quoted(name: int | str) -> str:
    return f'"{name[:60]}"' if isinstance(name, str) else str(name)
