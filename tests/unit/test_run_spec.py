"""What a run may be asked: every fault with its flag, all of them at once, and what a scenario fills in."""

from pathlib import Path

import pytest

import dualplan
from dualplan.errors import InputError
from dualplan.spec.run import Elastic, RunSpec, Slo, from_flags

ROOT = Path(__file__).resolve().parents[2]


def test_all_faults_are_told_at_once():
    with pytest.raises(InputError) as refused:
        RunSpec(agents=0, duration=-1.0, tokens_per_step=0.5, append_scale=0.0, max_active=-1, clusters=0)
    flags = [line.partition(": ")[0] for line in refused.value.problems]
    assert flags == [
        "simulate",
        "--agents",
        "--duration",
        "--tokens-per-step",
        "--append-scale",
        "--max-active",
        "--clusters",
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"agents": 3, "arrival_rate": 1.0}, "takes one of agents, arrival_rate, trace_times and find_capacity"),
        ({"agents": 3, "warm_up": 1.0}, "a job of agents runs to its end"),
        ({"arrival_rate": float("inf")}, "--arrival-rate: inf is not a rate above 0"),
        ({"elastic": Elastic(), "clusters": 2}, "--elastic: roles change within one cluster"),
        ({"elastic": Elastic(switch_cost=-1.0)}, "--switch-cost: -1 s is below 0"),
    ],
)
def test_what_does_not_go_together(values, text):
    with pytest.raises(InputError, match=text):
        RunSpec(**values)


def test_a_changed_run_is_checked_again():
    with pytest.raises(InputError, match="--duration"):
        RunSpec(arrival_rate=1.0).but(duration=0.0)


def test_flags_are_read_with_their_names():
    spec = from_flags({"agents": "12", "duration": None, "tokens_per_step": "1.7", "seed": "0"}, label="x")
    assert (spec.agents, spec.duration, spec.tokens_per_step, spec.seed, spec.label) == (12, None, 1.7, 0, "x")
    with pytest.raises(InputError) as refused:
        from_flags({"agents": "1.5", "warm_up": "3"})
    assert [line.partition(": ")[0] for line in refused.value.problems] == ["--agents", "--warm-up"]


def test_a_scenario_fills_in_what_is_open():
    scenario = dualplan.load(
        ROOT / "examples" / "dualpath-paper.yaml", ["seed=7", "mode=basic", "demand.arrival_rate=0.25", "slo.ttft=2s"]
    )
    spec = RunSpec().of(scenario)
    assert (spec.seed, spec.mode, spec.arrival_rate, spec.slo) == (7, "basic", 0.25, Slo(ttft=2.0, tpot=0.05))
    job = RunSpec(agents=3, seed=1).of(scenario)
    assert (job.agents, job.seed, job.arrival_rate) == (3, 1, None)
