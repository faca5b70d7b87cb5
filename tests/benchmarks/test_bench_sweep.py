"""Sweeps: many steady points on one core, simulated ones on two processes."""

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAPER = str(ROOT / "examples" / "dualpath-paper.yaml")


def run(*flags):
    """Seconds of ``dualplan sweep`` with its output in a pipe."""
    start = perf_counter()
    command = [sys.executable, "-m", "dualplan", "sweep", PAPER, *flags, "-f", "csv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return perf_counter() - start, done.stdout


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("nodes", ("--vary", "prefill=1..250", "--vary", "decode=1..400")),
        (
            "nodes and storage NICs",
            (
                *("--vary", "prefill=1..50", "--vary", "decode=1..50", "--vary", "hardware.snic.count=1..8"),
                *("--vary", "hardware.snic.rate=100Gb/s..500Gb/s+100Gb/s"),
            ),
        ),
    ],
)
def test_hundred_thousand_steady_points(benchmark, name, flags):
    benchmark.extra_info |= {"figure": f"sweep of 100,000 steady points over {name}, with output", "goal_s": 5.0}
    _, text = benchmark.pedantic(run, args=flags, rounds=3)
    assert text.count("\n") == 100_001


@pytest.mark.long
def test_simulated_points_on_two_processes(benchmark):
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core")
    flags = ("--simulate", "--agents", "64", "--vary", "seed=1..1000")
    one, text = run(*flags, "-j", "1")
    seconds, same = benchmark.pedantic(run, args=(*flags, "-j", "2"), rounds=1)
    assert same == text
    benchmark.extra_info |= {
        "figure": "sweep of 1,000 simulated points, two processes against one",
        "seconds": seconds,
        "ratio": seconds / one,
        "goal_ratio": 1 / 1.8,
        "ratio_to": "one process",
    }
