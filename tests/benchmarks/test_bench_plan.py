"""Purchase plans and samples of uncertain values."""

from pathlib import Path

import msgspec

import dualplan
from dualplan.plan.purchase.search import Wanted, find_plans, kinds
from dualplan.plan.uncertainty import assess
from dualplan.spec.hardware import read_hardware
from dualplan.spec.uncertain import centred

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
PROFILES = (
    "aws-p5",
    "aws-p5en",
    "dgx-a100",
    "dgx-b200",
    "dgx-h100",
    "dgx-h200",
    "dualpath-hopper",
    "gcp-a3-ultra",
    "h20-hgx",
    "h800-deepseek",
    "mi300x-8",
    "mi355x-8",
)


def search(turns_per_s):
    scenario = dualplan.load(PAPER)
    nodes = [read_hardware(name) for name in PROFILES]
    found = kinds([msgspec.structs.replace(scenario, hardware=node, decode_hardware=node) for node in nodes])
    return find_plans(found, Wanted(turns_per_s=turns_per_s, max_nodes=256, spare=1))


def test_plan(benchmark):
    benchmark.extra_info |= {"figure": "plan: 12 profiles, up to 256 nodes, N+1", "goal_s": 5.0}
    purchase = benchmark.pedantic(search, args=(200.0,), rounds=3, warmup_rounds=1)
    print(
        f"\nplan, 12 profiles up to 256 nodes: {benchmark.stats['mean']:.2f} s (goal 5 s), {purchase.points:,} points"
    )
    assert purchase.plans


def test_plan_that_fails(benchmark):
    """Every point of every profile is looked at."""
    benchmark.extra_info |= {"figure": "plan: 12 profiles, 256 nodes, no answer", "goal_s": 5.0}
    purchase = benchmark.pedantic(search, args=(1e6,), rounds=3, warmup_rounds=1)
    print(f"\nplan without an answer: {benchmark.stats['mean']:.2f} s (goal 5 s), {purchase.points:,} points")
    assert not purchase.plans and len(purchase.misses) == 12


def test_thousand_samples(benchmark):
    scenario = dualplan.load(PAPER)
    uncertain = {
        "hardware.efficiency.prefill": "0.15 +- 0.03",
        "hardware.snic.efficiency": "0.8..0.95",
        "workload.append": "429 +- 20 %",
    }
    settings = msgspec.structs.replace(scenario.settings, uncertain=uncertain)
    scenario = centred(msgspec.structs.replace(scenario, settings=settings))
    benchmark.extra_info |= {"figure": "1,000 samples of 3 uncertain values, with indices", "goal_s": 5.0}
    found = benchmark.pedantic(assess, args=(scenario, 2, 4), rounds=3, warmup_rounds=1)
    print(f"\n1,000 samples: {benchmark.stats['mean']:.2f} s (goal 5 s), {found.evaluations:,} evaluations")
    assert found.samples == 1000
