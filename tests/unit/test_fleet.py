"""The integer programme of a fleet against enumeration."""

from itertools import product

import pytest

from dualplan.plan.purchase.cost import Prices
from dualplan.plan.purchase.fleet import cheapest_fleet
from dualplan.plan.purchase.search import Wanted, find_plans, kinds, points_of
from dualplan.steady.grid import evaluate_grid
from tests.unit.test_purchase import scenario

PRICES = Prices(per_hour={"dgx-h100": 30.0, "dgx-h200": 47.0, "mi300x-8": 25.0})


def small(turns, **changes):
    return Wanted(turns_per_s=turns, **({"max_nodes": 5, "prices": PRICES} | changes))


def enumerated(candidates, wanted, most):
    """The least cost over all fleets of at most ``most`` deployments."""
    groups = []
    for kind in candidates:
        prefill, decode = points_of(kind, wanted)
        grid = evaluate_grid(kind.scenario, prefill, decode)
        price = PRICES.per_hour[kind.scenario.hardware.name]
        groups += [
            (kind.scenario.hardware.name, int(p + d), float(turns), float((p + d) * price))
            for p, d, turns, good in zip(
                prefill, decode, grid.turns_per_s, grid.fits & grid.meets_slo & grid.inside_range, strict=True
            )
            if good
        ]
    costs = []
    for count in range(1, most + 1):
        for chosen in product(groups, repeat=count):
            used = {name: sum(g[1] for g in chosen if g[0] == name) for name in wanted.available}
            if any(used[name] > limit for name, limit in wanted.available.items()):
                continue
            if sum(g[2] for g in chosen) >= wanted.turns_per_s:
                costs.append(sum(g[3] for g in chosen))
    return min(costs, default=None)


@pytest.mark.parametrize(("turns", "available"), [(150.0, {}), (70.0, {"dgx-h100": 3, "dgx-h200": 5})])
def test_fleet_is_as_cheap_as_enumeration(turns, available):
    candidates = kinds([scenario(name) for name in ("dgx-h100", "dgx-h200")])
    wanted = small(turns, available=available)
    fleet = cheapest_fleet(candidates, wanted)
    assert fleet.turns_per_s >= turns
    assert sum(group.count for group in fleet.groups) <= 3
    assert fleet.cost == pytest.approx(enumerated(candidates, wanted, 3), rel=1.1e-3)
    used = dict.fromkeys(available, 0)
    for group in fleet.groups:
        name = group.kind.scenario.hardware.name
        if name in used:
            used[name] += group.count * (group.prefill_nodes + group.decode_nodes)
    assert all(used[name] <= limit for name, limit in available.items())


def test_fleet_is_no_dearer_than_one_deployment():
    candidates = kinds([scenario(name) for name in ("dgx-h100", "mi300x-8")])
    wanted = small(150.0, max_nodes=24)
    assert cheapest_fleet(candidates, wanted).cost <= find_plans(candidates, wanted).plans[0].cost * (1 + 1e-3)


def test_fleet_that_stock_does_not_allow():
    candidates = kinds([scenario("dgx-h100")])
    fleet = cheapest_fleet(candidates, small(1e4, available={"dgx-h100": 4}))
    assert fleet.groups == ()
    best = find_plans(candidates, small(1e4, max_nodes=4)).misses[0]
    assert fleet.most_turns_per_s == pytest.approx(best.share * 1e4, rel=1e-3)


def test_spare_counts_what_is_left_with_a_node_down():
    candidates = kinds([scenario("mi300x-8")])
    wanted = small(60.0, max_nodes=8)
    assert cheapest_fleet(candidates, wanted).cost < cheapest_fleet(candidates, small(60.0, max_nodes=8, spare=1)).cost
