"""Start-up and steady evaluation. Run with: python -m pytest tests/benchmarks --benchmark-only -s -p no:xdist."""

import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

import dualplan
from dualplan.steady.grid import evaluate_grid

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "examples" / "dualpath-paper.yaml"


def seconds(arguments, runs=9):
    times = []
    for _ in range(runs):
        start = perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        times.append(perf_counter() - start)
    return median(times)


def compare(name, command, base, goal):
    """Alternate both, so that a busy machine slows them alike."""
    ours, theirs = zip(*((seconds(command, 1), seconds(["-c", base], 1)) for _ in range(11)), strict=True)
    ratio = median(ours) / median(theirs)
    print(f"\n{name}: {median(ours) * 1e3:.0f} ms, {ratio:.2f} x python -c '{base}' (goal {goal})")
    return ratio


def test_cold_feasible(benchmark):
    base = "import numpy, typer, rich.table, yaml"
    ratio = compare("cold feasible", ["-m", "dualplan", "feasible", str(PAPER)], base, 1.5)
    benchmark.extra_info |= {"figure": "feasible, cold", "ratio": ratio, "goal_ratio": 1.5, "ratio_to": base}
    benchmark(seconds, ["-m", "dualplan", "feasible", str(PAPER)], runs=1)


def test_help(benchmark):
    ratio = compare("--help", ["-m", "dualplan", "--help"], "import typer", 2.5)
    benchmark.extra_info |= {"figure": "--help, cold", "ratio": ratio, "goal_ratio": 2.5, "ratio_to": "import typer"}
    benchmark(seconds, ["-m", "dualplan", "--help"], runs=1)


def test_one_evaluation(benchmark):
    scenario = dualplan.load(PAPER)
    benchmark.extra_info["figure"] = "one steady evaluation"
    benchmark(dualplan.evaluate, scenario)


def test_ten_thousand_points(benchmark):
    scenario = dualplan.load(PAPER)
    prefill, decode = (axis.ravel() for axis in np.meshgrid(np.arange(1, 101), np.arange(1, 101)))
    benchmark.extra_info |= {"figure": "10,000 P/D points", "goal_s": 1.0}
    grid = benchmark(evaluate_grid, scenario, prefill, decode)
    print(f"\n10,000 P/D points: {benchmark.stats['mean']:.2f} s (goal 1 s)")
    assert len(grid.turns_per_s) == 10_000
