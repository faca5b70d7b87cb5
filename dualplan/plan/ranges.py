"""P/D ranges of a deployment, in exact rationals: all traffic, hit bytes only, and at the reachable storage rate."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec

from dualplan.model.closed_form import Constraint, Range, feasible_range
from dualplan.model.traffic import Bytes, Path, hits_only, steps
from dualplan.plan.problem import SINGLE_SIDED, Problem, Setup, kv_share
from dualplan.plan.resources import NodeLinks, Resource, link_resources, ordered, side_loads, storage_bandwidth
from dualplan.spec.choices import Mode
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import CollectiveLoad


class Ranges(msgspec.Struct, frozen=True, kw_only=True):
    """P/D ranges: with all traffic, with hit bytes only, and with all traffic at the reachable storage rate."""

    all_traffic: Range
    paper: Range
    effective: Range


def exact(value: Any) -> Fraction:
    """The decimal number that a float prints as, exactly: 0.1 is 1/10."""
    return value if isinstance(value, Fraction) else Fraction(repr(value))


def ranges(setup: Setup, problem: Problem) -> Ranges:
    full = msgspec.structs.replace(problem.amounts)
    given = problem.given or CollectiveLoad(0.0, 0.0)
    storage = tuple(exact(storage_bandwidth(h)) for h in (setup.scenario.hardware, setup.scenario.decode_hardware))
    reachable = tuple(
        exact(h.snic.count) * exact(rate) / exact(problem.balance)
        for h, rate in zip((setup.scenario.hardware, setup.scenario.decode_hardware), problem.read_rates, strict=True)
    )
    return Ranges(
        all_traffic=_range(setup, problem.mode, full, given, storage),
        paper=_range(setup, problem.mode, hits_only(Fraction(1)), given, storage),
        effective=_range(setup, problem.mode, full, given, reachable),
    )


def _range(setup: Setup, mode: Mode, amounts: Bytes, given: CollectiveLoad, storage: tuple[Fraction, ...]) -> Range:
    if not amounts.read or mode == "oracle":
        return Range()
    scenario, settings = setup.scenario, setup.scenario.settings
    read = exact(amounts.read)
    exact_amounts = Bytes(**{name: exact(getattr(amounts, name)) for name in amounts.__struct_fields__})
    table = steps(mode, staging=settings.staging, copy=settings.copy, persist=settings.persist)
    by_path = side_loads(table, exact_amounts, scenario.hardware, scenario.decode_hardware)
    constraints: list[tuple[Resource, Constraint]] = []
    sides: tuple[tuple[Path, Hardware, float], ...] = (
        ("prefill", scenario.hardware, given.prefill),
        ("decode", scenario.decode_hardware, given.decode),
    )
    for side, hardware, load in sides:
        share = kv_share(hardware, exact(load))
        links = NodeLinks(hardware=hardware, side=side, nodes=1, kv_share=share, read_rate=hardware.snic.rate)
        for resource in link_resources(links, by_path):
            if resource.in_range:
                shares = exact(resource.prefill) / read, exact(resource.decode) / read
                constraints.append((resource, Constraint(resource.name, side, exact(resource.nominal), *shares)))
    rank = {id(resource): index for index, resource in enumerate(ordered([resource for resource, _ in constraints]))}
    constraints.sort(key=lambda pair: rank[id(pair[0])])
    decode_storage = Fraction(0) if mode in SINGLE_SIDED else storage[1]
    return feasible_range([constraint for _, constraint in constraints], storage[0], decode_storage)
