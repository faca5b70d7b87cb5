"""Ladder, dual values, exact gains and what they are worth."""

from itertools import pairwise

import msgspec
import pytest

import dualplan
from dualplan.errors import InputError
from dualplan.plan.purchase.cost import Prices
from dualplan.plan.purchase.upgrades import dual_values, least_cost, upgrades
from dualplan.spec.choices import SINGLE_SIDED
from dualplan.spec.hardware import Storage
from dualplan.steady.problem import build
from dualplan.steady.rate import solve, uses
from dualplan.steady.setup import prepare
from tests.unit.test_purchase import scenario

CASES = [("dgx-h100", 2, 4), ("dgx-b200", 2, 3), ("dgx-h200", 3, 3)]


def problem_of(hardware, p, d, mode="dual-path", **gpu):
    found = scenario(hardware)
    machine = msgspec.structs.replace(found.hardware, gpu=msgspec.structs.replace(found.hardware.gpu, **gpu))
    setup = prepare(msgspec.structs.replace(found, hardware=machine, decode_hardware=machine), p, d)
    return setup, build(setup, mode)


@pytest.mark.parametrize("mode", ["dual-path", "layerwise"])
@pytest.mark.parametrize(("hardware", "p", "d"), CASES)
def test_dual_values_are_those_of_a_linear_programme(hardware, p, d, mode):
    from scipy.optimize import linprog

    _, problem = problem_of(hardware, p, d, mode)
    rows = [[float(use.prefill), float(use.decode)] for use in uses(problem)]
    bounds = [(0, None), (0, 0 if mode in SINGLE_SIDED else None)]
    found = linprog([-1, -1], A_ub=rows, b_ub=[1.0] * len(rows), bounds=bounds, method="highs")
    rate = -found.fun
    expected = {
        (resource.name, resource.side): -dual / rate
        for resource, dual in zip(problem.resources, found.ineqlin.marginals, strict=True)
        if dual < -1e-4 * rate
    }
    values = {(dual.resource, dual.side): dual.value for dual in dual_values(problem)}
    assert values == pytest.approx(expected, abs=1e-4)
    assert sum(values.values()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("hardware", "p", "d"), CASES)
def test_ladder_rises_and_starts_with_what_binds(hardware, p, d):
    ladder = upgrades(scenario(hardware), p, d).ladder
    answer = dualplan.evaluate(scenario(hardware), p, d)
    assert (ladder[0].resource, ladder[0].turns_per_s) == (answer.bottleneck.resource, answer.turns_per_s)
    rates = [rung.turns_per_s for rung in ladder]
    assert rates == sorted(rates) and len(set(rates)) == len(rates)
    for rung, after in pairwise(ladder):
        assert rung.next == after.resource
        assert rung.turns_per_s * (1 + rung.gain) == pytest.approx(after.turns_per_s)
    assert ladder[-1].next is None and ladder[-1].gain is None


def test_gains_are_those_of_the_changed_scenario():
    found = scenario("dgx-b200")
    base = dualplan.evaluate(found, 2, 3).turns_per_s
    result = upgrades(found, 2, 3)
    by_key = {upgrade.key: upgrade for upgrade in result.upgrades}
    more = msgspec.structs.replace(found.hardware.snic, count=found.hardware.snic.count + 1)
    hardware = msgspec.structs.replace(found.hardware, snic=more)
    changed = msgspec.structs.replace(found, hardware=hardware, decode_hardware=hardware)
    for key, after in (
        ("snic_count", dualplan.evaluate(changed, 2, 3)),
        ("prefill_nodes", dualplan.evaluate(found, 3, 3)),
        ("decode_nodes", dualplan.evaluate(found, 2, 4)),
    ):
        assert by_key[key].turns_per_s == pytest.approx(after.turns_per_s)
        assert by_key[key].gain == pytest.approx(after.turns_per_s / base - 1)
        assert by_key[key].bottleneck == after.bottleneck.resource
    gains = [upgrade.gain for upgrade in result.upgrades]
    assert gains == sorted(gains, reverse=True)
    assert by_key["snic_count"].gain > 0


def rate_with(problem, factors):
    """The rate when what all nodes of a side can do has grown by these factors."""
    resources = (
        msgspec.structs.replace(one, capacity=one.capacity * factors.get(one.side, 1.0)) for one in problem.resources
    )
    return float(solve(msgspec.structs.replace(problem, resources=tuple(resources))).turns_per_s)


@pytest.mark.parametrize(("hardware", "p", "d"), CASES)
def test_the_nodes_an_upgrade_is_worth_bring_its_rate(hardware, p, d):
    # memory that turns do not fill: what turns in passes hold of it does not grow in proportion to nodes
    setup, problem = problem_of(hardware, p, d, hbm_capacity=1e12)
    target = 1.2 * float(solve(problem).turns_per_s)
    worth = least_cost(setup, problem, target, (1.0, 1.0))
    # with nodes in fractions, no mix of that many reaches more than the target, and the best one reaches it
    shares = [i / 1000 for i in range(1001)]
    more = [{"prefill": 1 + share * worth / p, "decode": 1 + (1 - share) * worth / d} for share in shares]
    best = max(rate_with(problem, factors) for factors in more)
    assert best == pytest.approx(target, rel=2e-3)
    assert best <= target * (1 + 1e-9)


@pytest.mark.parametrize(("hardware", "p", "d"), CASES)
def test_shorter_passes_make_those_nodes_bring_a_little_more(hardware, p, d):
    """More prefill nodes shorten passes, and turns hold decode HBM for less long: the programme, which counts each side
    by itself, asks for a little too much and never for too little.
    """
    setup, problem = problem_of(hardware, p, d)
    target = 1.2 * float(solve(problem).turns_per_s)
    worth = least_cost(setup, problem, target, (1.0, 1.0))
    rates = []
    for share in [i / 100 for i in range(101)]:
        nodes = {"prefill_nodes": p + share * worth, "decode_nodes": d + (1 - share) * worth}
        rates.append(float(solve(build(msgspec.structs.replace(setup, **nodes), "dual-path")).turns_per_s))
    assert target * (1 - 2e-3) <= max(rates) <= target * 1.02


def test_break_even_price_is_that_of_the_nodes_it_saves():
    found = scenario("dgx-b200")
    result = upgrades(found, 2, 3, prices=Prices(per_hour={"dgx-b200": 10.0}))
    upgrade = next(one for one in result.upgrades if one.key == "snic_count")
    assert upgrade.upgraded_nodes == 5
    assert upgrade.break_even_usd_per_node_hour == pytest.approx(upgrade.worth_nodes * 10.0 / 5)
    assert upgrade.break_even_usd_per_node is None  # no purchase price known
    assert next(one for one in result.upgrades if one.key == "prefill_nodes").worth_nodes is None


def test_a_full_store_is_not_relieved_by_nodes():
    found = scenario("dgx-b200")
    hardware = msgspec.structs.replace(found.hardware, storage=Storage(kind="small", read_bandwidth=50e9))
    found = msgspec.structs.replace(found, hardware=hardware, decode_hardware=hardware)
    setup = prepare(found, 2, 3)
    problem = build(setup, "dual-path")
    rate = float(solve(problem).turns_per_s)
    assert problem.resources[solve(problem).binding].name == "storage_backend"
    assert least_cost(setup, problem, 1.1 * rate, (1.0, 1.0)) is None


def test_fitted_times_leave_faster_gpus_open():
    result = upgrades(dualplan.load("examples/dualpath-paper.yaml"), 2, 4)
    assert any("GPU compute" in str(title) for title in result.unknown)
    assert not any(upgrade.key.endswith("gpu_flops") for upgrade in result.upgrades)


def test_no_rate_to_raise():
    with pytest.raises(InputError, match=r"do(es)? not fit"):
        upgrades(scenario("l40s-8-pcie"), 1, 1)
