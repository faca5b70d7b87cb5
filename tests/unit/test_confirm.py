"""Which deployments are simulated, and what happens to those that fail, with a simulation that is made up."""

import pytest

from dualplan.errors import InfeasibleError, InputError
from dualplan.plan.purchase import confirm as module
from dualplan.plan.purchase.confirm import confirmed
from dualplan.plan.purchase.cost import Prices
from dualplan.plan.purchase.search import Wanted, find_plans, kinds, rank
from dualplan.report.plan_document import rejection
from dualplan.spec.run import RunSpec
from tests.unit.test_purchase import scenario

PRICES = Prices(per_hour={"dgx-h100": 30.0, "dgx-h200": 31.0, "mi300x-8": 32.0})
WANTED = Wanted(turns_per_s=70.0, max_nodes=40, prices=PRICES)


def answers(monkeypatch, needed):
    """A simulation that keeps the SLO with a head-room of ``needed`` of the kind of nodes, and what it was asked."""
    asked = []

    def simulate(scenario, call, pairs):
        import dualplan

        rate = dualplan.evaluate(scenario).turns_per_s
        asked.append((scenario.hardware.name, scenario.settings.prefill_nodes, scenario.settings.decode_nodes))
        assert scenario.settings.demand.arrival_rate == pytest.approx(70.0 / 157)
        room = needed[scenario.hardware.name]
        if room is None:
            raise InfeasibleError("the longest context does not fit")
        met = rate / 70.0 - 1 >= room
        return {
            "slo_met": met,
            "missed_by": None if met else "mean TTFT 9.00 s, limit 4.00 s",
            "ttft_s.mean": 1.0 if met else 9.0,
            "tpot_s.mean": 0.03,
            "turns_per_s": 70.0,
            "stopped": "end of the run",
        }

    monkeypatch.setattr(module, "simulate_point", simulate)
    return asked


def candidates():
    return kinds([scenario(name) for name in ("dgx-h100", "dgx-h200", "mi300x-8")])


def test_all_pass(monkeypatch):
    asked = answers(monkeypatch, {"dgx-h100": 0, "dgx-h200": 0, "mi300x-8": 0})
    steady = find_plans(candidates(), WANTED)
    found = confirmed(steady, candidates(), RunSpec())
    assert [plan.label for plan in found.plans] == [plan.label for plan in steady.plans]
    assert all(plan.confirmed.slo_met for plan in found.plans) and not found.rejected
    assert len(asked) == 3


def test_one_that_fails_is_dropped_with_its_reason_and_a_roomier_one_tried(monkeypatch):
    steady = find_plans(candidates(), WANTED)
    first = steady.plans[0]
    name = first.kind.name
    room = {plan.kind.name: 0.0 for plan in steady.plans} | {name: first.headroom + 0.05}
    answers(monkeypatch, room)
    found = confirmed(steady, candidates(), RunSpec())
    assert found.rejected[0].label == first.label
    assert found.rejected[0].confirmed.reason == "mean TTFT 9.00 s, limit 4.00 s"
    better = next(plan for plan in found.plans if plan.kind.name == name)
    assert better.confirmed.slo_met and better.headroom > first.headroom and better.cost >= first.cost
    assert [plan.cost for plan in found.plans] == sorted(plan.cost for plan in found.plans)
    assert found.plans[0].lost_because == "" and all(plan.lost_because for plan in found.plans[1:])


def test_kinds_beyond_the_finalists_are_not_simulated(monkeypatch):
    asked = answers(monkeypatch, {"dgx-h100": 0, "dgx-h200": 0, "mi300x-8": 0})
    found = confirmed(find_plans(candidates(), WANTED), candidates(), RunSpec(), finalists=1)
    assert len(asked) == 1 and len(found.plans) == 3
    assert [plan.confirmed is not None for plan in found.plans] == [True, False, False]
    assert "not simulated" in found.plans[1].lost_because


def test_no_plan_that_was_not_simulated_is_cheaper_than_a_confirmed_one(monkeypatch):
    steady = find_plans(candidates(), WANTED)
    first = steady.plans[0]
    room = {plan.kind.name: 0.0 for plan in steady.plans} | {first.kind.name: first.headroom + 1.0}
    answers(monkeypatch, room)
    found = confirmed(steady, candidates(), RunSpec(), finalists=1)
    assert found.plans[0].confirmed.slo_met and found.plans[0].kind.name != first.kind.name
    assert all(plan.cost >= found.plans[0].cost for plan in found.plans)


def test_none_passes(monkeypatch):
    asked = answers(monkeypatch, {"dgx-h100": None, "dgx-h200": 1e9, "mi300x-8": 1e9})
    found = confirmed(find_plans(candidates(), WANTED), candidates(), RunSpec())
    assert found.plans == ()
    assert {plan.kind.name for plan in found.rejected} == {"dgx-h100", "dgx-h200", "mi300x-8"}
    assert len(asked) <= 3 * module.TRIES
    assert any(plan.confirmed.reason == "the longest context does not fit" for plan in found.rejected)


def test_other_splits_of_a_kind_are_finalists_behind_the_best_of_each(monkeypatch):
    kind = kinds([scenario("dgx-h200")])
    steady = find_plans(kind, WANTED, splits=3)
    asked = answers(monkeypatch, {"dgx-h200": 0})
    found = confirmed(steady, kind, RunSpec())
    assert [plan.label for plan in found.plans] == [plan.label for plan in steady.plans]
    assert all(plan.confirmed.slo_met for plan in found.plans) and len(asked) == 3
    two = confirmed(steady, kind, RunSpec(), finalists=2)
    assert [plan.confirmed is not None for plan in two.plans] == [True, True, False]


def test_a_split_that_is_cheaper_than_what_keeps_the_slo_is_not_listed(monkeypatch):
    kind = kinds([scenario("dgx-h200")])
    steady = find_plans(kind, WANTED, splits=3)
    asked = answers(monkeypatch, {"dgx-h200": max(plan.headroom for plan in steady.plans) + 0.01})
    found = confirmed(steady, kind, RunSpec(), finalists=1)
    best = found.plans[0]
    assert best.confirmed.slo_met and best.label not in {plan.label for plan in steady.plans}
    assert all(rank(plan) >= rank(best) for plan in found.plans)
    assert len(asked) == len(set(asked)) == len(found.rejected) + 1


def test_an_interruption_leaves_what_was_confirmed_and_the_steady_plans(monkeypatch):
    answers(monkeypatch, {"dgx-h100": 0, "dgx-h200": 0, "mi300x-8": 0})
    simulate, calls = module.simulate_point, []

    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return simulate(*arguments)

    monkeypatch.setattr(module, "simulate_point", stopped)
    steady = find_plans(candidates(), WANTED, splits=2)
    found = confirmed(steady, candidates(), RunSpec())
    assert found.interrupted and not found.rejected
    assert found.plans[0].label == steady.plans[0].label and found.plans[0].confirmed.slo_met
    assert all(plan.confirmed is None for plan in found.plans[1:])
    assert {plan.label for plan in found.plans} == {plan.label for plan in steady.plans}


def refusing(monkeypatch, refused):
    """The made-up simulation, which refuses some kinds of nodes and has all others keep the SLO."""
    answers(monkeypatch, {"dgx-h100": 0, "dgx-h200": 0, "mi300x-8": 0})
    simulate = module.simulate_point

    def simulated(scenario, call, pairs):
        if scenario.hardware.name in refused:
            raise InputError("variants", "nodes that differ have no times", "leave them out")
        return simulate(scenario, call, pairs)

    monkeypatch.setattr(module, "simulate_point", simulated)


def test_one_that_is_refused_does_not_end_the_others(monkeypatch):
    steady = find_plans(candidates(), WANTED)
    first = steady.plans[0]
    refusing(monkeypatch, {first.kind.name})
    found = confirmed(steady, candidates(), RunSpec())
    assert [plan.label for plan in found.rejected] == [first.label]  # and no roomier one
    said = rejection(found.rejected[0])
    assert said.startswith(f"{first.label}: it cannot be simulated, variants: nodes that differ have no times")
    assert [plan.label for plan in found.plans] == [plan.label for plan in steady.plans[1:]]
    assert all(plan.confirmed.slo_met for plan in found.plans)


def test_where_none_can_be_simulated_the_fault_is_the_answer(monkeypatch):
    refusing(monkeypatch, {"dgx-h100", "dgx-h200", "mi300x-8"})
    with pytest.raises(InputError, match="nodes that differ have no times") as caught:
        confirmed(find_plans(candidates(), WANTED), candidates(), RunSpec())
    assert len(caught.value.problems) == 1
