"""A large steady sweep, and what a second process brings. Run with: python -m tests.benchmarks -k sweep."""

import time
from pathlib import Path

import pytest

import dualplan
from dualplan.plan.simulated import Simulated

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"


def test_steady_sweep_of_100_000_points(benchmark):
    scenario = dualplan.load(PAPER)
    vary = {"prefill": range(1, 101), "decode": range(1, 101), "hardware.snic.count": range(1, 11)}
    benchmark.extra_info |= {"figure": "sweep, 100,000 steady points", "goal_s": 5.0}
    found = benchmark.pedantic(dualplan.sweep, (scenario, vary), rounds=2, warmup_rounds=0)
    assert len(found.columns["feasible"]) == 100_000


@pytest.mark.long
def test_simulated_sweep_on_two_processes(benchmark):
    """1,000 points: the time of one process over that of two."""
    scenario = dualplan.load(PAPER)
    vary = {"prefill": range(1, 26), "decode": range(1, 41)}
    call = Simulated(agents=2)
    start = time.perf_counter()
    alone = dualplan.sweep(scenario, vary, simulate=call)
    alone_s = time.perf_counter() - start
    together = benchmark.pedantic(dualplan.sweep, (scenario, vary), {"simulate": call, "jobs": 2}, rounds=1)
    gain = alone_s / benchmark.stats.stats.min
    print(f"\n1,000 simulated points: {gain:.2f} times as fast on two processes (goal 1.8)")
    # as a share of the time of one process, so that less is better
    benchmark.extra_info |= {"figure": "sweep, 1,000 simulated points, two processes"}
    benchmark.extra_info |= {"ratio": 1 / gain, "goal_ratio": 1 / 1.8, "ratio_to": "the time of one process"}
    assert together.columns["feasible"].tolist() == alone.columns["feasible"].tolist()
