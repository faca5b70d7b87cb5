"""The table of ``python -m tests.benchmarks``: goals met and missed, peers there and absent."""

import json
import subprocess
import sys

import pytest

from tests.benchmarks.__main__ import ROOT, machine, row, table

STATS = {"min": 2.0, "median": 2.5}


def test_row_of_a_figure_with_a_goal():
    told = {"figure": "sweep", "goal_s": 5.0, "peers": {"other": 8.0, "absent": None}}
    found = row({"name": "test_x", "stats": STATS, "extra_info": told})
    assert (found["figure"], found["seconds"], found["of_goal"]) == ("sweep", 2.0, 0.4)
    assert found["peers"] == {"other": {"seconds": 8.0, "times_ours": 4.0}, "absent": None}


def test_the_figure_may_be_part_of_what_the_clock_held():
    found = row({"name": "test_x", "stats": STATS, "extra_info": {"seconds": 0.5}})
    assert (found["figure"], found["seconds"], found["goal_s"], found["of_goal"]) == ("test_x", 0.5, None, None)


def test_missed_goals_are_said_in_words():
    told = {
        "goal_s": 1.0,
        "ratio": 3.0,
        "goal_ratio": 2.5,
        "ratio_to": "import typer",
        "peak_bytes": 2e9,
        "goal_bytes": 1e9,
    }
    lines = table(
        {"machine": machine(), "figures": [row({"name": "x", "stats": STATS, "extra_info": told})]}
    ).splitlines()
    assert lines[-3].endswith("200% MISSED")
    assert lines[-2].strip() == "3.00 x import typer (goal 2.5) MISSED"
    assert lines[-1].strip() == "peak memory 2000 MB (goal 1000) MISSED"


@pytest.mark.parametrize("flag", ["--json", "--quick"])
def test_one_benchmark_as_a_command(flag):
    command = [sys.executable, "-m", "tests.benchmarks", "--quick", "--json", "-k", "one_evaluation"]
    if flag == "--quick":
        command.remove("--json")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if flag == "--json":
        answer = json.loads(done.stdout)
        assert answer["schema"] == "dualplan/benchmarks/1" and answer["machine"]["versions"]["numpy"]
        assert [figure["figure"] for figure in answer["figures"]] == ["one steady evaluation"]
        assert 0 < answer["figures"][0]["seconds"] < 10
    else:
        assert "one steady evaluation" in done.stdout
