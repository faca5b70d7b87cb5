"""The steady state over all pairs of nodes, solved as shares of links instead of in closed form.

Every turn is a flow between a compute NIC of a prefill node and one of a decode node, under either read path; its
route is the step
table, with bytes of a turn as multiplicities, so its rate is in turns per second. Flows of all pairs share links by
weighted max-min.
Where all nodes of a side are alike this must give the rate of the two-variable programme; where they differ it is
the answer, since a
slow NIC, a slow node or a shared uplink then holds back only the turns that cross it.

Alike nodes, and alike NICs of a node, are one class with a link of all their capacity: max-min gives equal members
equal rates, so
classes lose nothing and the problem stays small for any number of nodes.
"""

from __future__ import annotations

import msgspec

from dualplan.errors import InputError
from dualplan.flow.maxmin import solve_rates
from dualplan.flow.problem import Flow, FlowProblem, Link, Rates
from dualplan.messages import Message, message
from dualplan.model.traffic import SIDES
from dualplan.spec.choices import SINGLE_SIDED, Mode
from dualplan.spec.hardware import Hardware
from dualplan.steady.problem import Problem, build
from dualplan.steady.resources import Resource
from dualplan.steady.setup import Setup, with_scenario

PER_NIC = ("cnic_read", "cnic_write", "wire_egress", "wire_ingress")
STORE = message("nodes.store")
NEGLIGIBLE = 1e-12
"""A turn that takes less of a resource [s] never fills it."""
PER_GPU = ("compute", "hbm", "copy_submission")


class NodeClass(msgspec.Struct, frozen=True):
    """``nodes`` alike nodes of a side; ``nics``: pairs of a number of compute NICs of each and their rate [B/s].

    ``key`` tells classes apart, ``label`` describes them.
    """

    key: str
    side: str
    label: Message
    nodes: int
    hardware: Hardware
    nics: tuple[tuple[int, float], ...]


class ClassRate(msgspec.Struct, frozen=True, kw_only=True):
    """What one class of nodes carries [turns/s], all its nodes together."""

    side: str
    label: Message
    nodes: int
    turns_per_s: float


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A full link: its resource, its nodes and whether these differ, the share of all turns that it holds back."""

    resource: Resource
    label: Message
    differs: bool
    share: float


class PairRates(msgspec.Struct, frozen=True, kw_only=True):
    """The solution. ``binding``: what holds turns back, links of nodes that differ first, then by share of the turns.

    ``loads``: (resource, class label, load, capacity) of every link, in the unit of the resource.
    """

    turns_per_s: float
    decode_read_share: float | None
    binding: tuple[Binding, ...]
    classes: tuple[ClassRate, ...]
    loads: tuple[tuple[Resource, Message, float, float], ...]


def node_classes(setup: Setup) -> tuple[NodeClass, ...]:
    """Classes of nodes of both sides: the usual ones and the variants of the scenario. Raises InputError for too
    many variants.
    """
    classes: list[NodeClass] = []
    for side, hardware in setup.scenario.sides:
        usual = setup.nodes(side)
        for variant in setup.scenario.variants:
            if variant.side != side:
                continue
            usual -= variant.nodes
            own = variant.hardware
            special = own.cnic.count if variant.cnics is None else variant.cnics
            nics = ((special, own.cnic.rate), (own.cnic.count - special, hardware.cnic.rate))
            label = message("nodes.different", nodes=variant.nodes, side=side, keys=_difference(hardware, own))
            classes.append(
                NodeClass(
                    f"{side}{len(classes)}", side, label, variant.nodes, own, tuple(nic for nic in nics if nic[0])
                )
            )
        if usual < 0:
            raise InputError("variants", f"more {side} nodes differ than the {setup.nodes(side)} there are")
        if usual:
            label = message("nodes.usual", nodes=usual, side=side)
            classes.append(NodeClass(side, side, label, usual, hardware, ((hardware.cnic.count, hardware.cnic.rate),)))
    return tuple(classes)


def _difference(usual: Hardware, own: Hardware) -> Message | str:
    """Key paths in which two machines differ."""
    keys = []
    for section in ("gpu", "cnic", "snic", "dram", "pcie", "efficiency"):
        a, b = getattr(usual, section), getattr(own, section)
        keys += [f"{section}.{name}" for name in a.__struct_fields__ if getattr(a, name) != getattr(b, name)]
    return ", ".join(keys) or message("nodes.alike")


def solve_pairs(setup: Setup, mode: Mode, decode_share: float) -> PairRates:
    """Rates over all pairs, with ``decode_share`` of the turns offered to read on the decode side where the mode
    allows it.
    """
    classes = node_classes(setup)
    links: dict[str, tuple[Resource, NodeClass | None, float]] = {}
    lanes: dict[str, list[tuple[NodeClass, float, dict[str, tuple[float, float]]]]] = {side: [] for side in SIDES}
    for node_class in classes:
        problem = build(_alone(setup, node_class), mode)
        lanes[node_class.side] += _lanes(node_class, problem, links)
    paths = [(0, 1.0)] if mode in SINGLE_SIDED else [(0, 1 - decode_share), (1, decode_share)]
    # weights around one, whatever the number of nodes
    everything = sum(w for _, w, _ in lanes["prefill"]) * sum(w for _, w, _ in lanes["decode"])
    flows: list[Flow] = []
    ends: list[tuple[int, NodeClass, NodeClass]] = []
    for path, share in paths:
        for prefill, prefill_weight, prefill_route in lanes["prefill"]:
            for decode, decode_weight, decode_route in lanes["decode"]:
                route = {**prefill_route, **decode_route}
                hops = tuple((name, times[path]) for name, times in route.items() if times[path] > NEGLIGIBLE)
                weight = prefill_weight * decode_weight * share
                if weight and hops:
                    flows.append(Flow(id=len(flows), route=hops, size=1.0, weight=weight / everything))
                    ends.append((path, prefill, decode))
    flow_problem = FlowProblem(
        links=tuple(Link(id=name, capacity=nodes) for name, (_, _, nodes) in links.items()), flows=tuple(flows)
    )
    return _read(classes, links, ends, solve_rates(flow_problem), mode)


def _alone(setup: Setup, node_class: NodeClass) -> Setup:
    """The deployment with all nodes of a side alike and just one of them, to read off what one node can do.

    The other side shrinks along: how long a turn holds the memory of one side depends on how busy the other is.
    """
    key = "hardware" if node_class.side == "prefill" else "decode_hardware"
    scenario = msgspec.structs.replace(setup.scenario, **{key: node_class.hardware})
    share = 1 / setup.nodes(node_class.side)
    nodes = {"prefill_nodes": setup.prefill_nodes * share, "decode_nodes": setup.decode_nodes * share}
    return with_scenario(setup, scenario, **nodes)


def _lanes(
    node_class: NodeClass, problem: Problem, links: dict[str, tuple[Resource, NodeClass | None, float]]
) -> list[tuple[NodeClass, float, dict[str, tuple[float, float]]]]:
    """One lane for each kind of compute NIC of a node class: its weight and its route; the links it needs are added
    to ``links``.
    """
    count = sum(number for number, _ in node_class.nics)
    nominal = count * node_class.hardware.cnic.rate
    lanes = []
    for position, (number, rate) in enumerate(node_class.nics):
        route: dict[str, tuple[float, float]] = {}
        for index, resource in enumerate(problem.resources):
            if resource.side not in (node_class.side, None):
                continue
            kind = resource.name.removeprefix(f"{node_class.side}_")
            if kind in PER_NIC:
                name, share = f"{resource.name}#{node_class.key}#{position}", number * rate / nominal
            elif kind in PER_GPU:
                name, share = f"{resource.name}#{index}#{node_class.key}#{position}", number / count
            elif resource.side is None:
                name, share = resource.name, 1.0
            else:
                name, share = f"{resource.name}#{index}#{node_class.key}", 1.0
            nodes = 1 if resource.side is None else node_class.nodes
            links[name] = (resource, None if resource.side is None else node_class, share * nodes)
            # seconds of one node's resource that a turn takes: of the same size for bytes, turns and byte-seconds
            route[name] = (float(resource.prefill / resource.capacity), float(resource.decode / resource.capacity))
        lanes.append((node_class, float(node_class.nodes * number), route))
    return lanes


def _read(
    classes: tuple[NodeClass, ...],
    links: dict[str, tuple[Resource, NodeClass | None, float]],
    ends: list[tuple[int, NodeClass, NodeClass]],
    rates: Rates,
    mode: Mode,
) -> PairRates:
    total = sum(rates.rates)
    held: dict[tuple[str, Message], float] = {}
    full: dict[tuple[str, Message], tuple[Resource, bool]] = {}
    carried = {node_class.key: 0.0 for node_class in classes}
    for rate, stop, (_, prefill, decode) in zip(rates.rates, rates.binding, ends, strict=True):
        carried[prefill.key] += rate
        carried[decode.key] += rate
        if stop is not None:
            resource, node_class, _ = links[stop]
            key = (resource.name, node_class.label if node_class else STORE)
            full[key] = resource, node_class is not None and node_class.key != node_class.side
            held[key] = held.get(key, 0.0) + rate
    binding = [
        Binding(resource=full[key][0], label=key[1], differs=full[key][1], share=rate / total)
        for key, rate in held.items()
    ]
    by_decode = sum(rate for rate, (path, _, _) in zip(rates.rates, ends, strict=True) if path == 1)
    return PairRates(
        turns_per_s=total,
        decode_read_share=None if mode in SINGLE_SIDED else by_decode / total,
        binding=tuple(sorted(binding, key=lambda entry: (not entry.differs, -entry.share))),
        classes=tuple(
            ClassRate(side=c.side, label=c.label, nodes=c.nodes, turns_per_s=carried[c.key]) for c in classes
        ),
        loads=tuple(
            (resource, node_class.label if node_class else STORE, load * resource.capacity, nodes * resource.capacity)
            for (resource, node_class, nodes), load in zip(links.values(), rates.link_loads, strict=True)
        ),
    )
