"""A review document, cold. Run with: python -m tests.benchmarks -k report."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_html_report(benchmark, tmp_path):
    def write():
        command = [
            sys.executable,
            "-m",
            "dualplan",
            "report",
            "examples/dualpath-paper.yaml",
            "-o",
            tmp_path / "r.html",
        ]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)

    benchmark.extra_info |= {"figure": "report, html, cold", "goal_s": 4.0}
    benchmark.pedantic(write, rounds=3)
    assert (tmp_path / "r.html").stat().st_size > 10_000
