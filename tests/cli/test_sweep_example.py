"""examples/sweep.sh and the sweep from Python."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import dualplan as library
from dualplan.errors import InputError
from dualplan.spec.run import RunSpec
from tests.cli.runner import PAPER, ROOT, dualplan


def script(tmp_path, *arguments):
    """The example with this checkout's dualplan."""
    program = tmp_path / "dualplan"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dualplan "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "DUALPLAN": str(program), "PYTHONPATH": str(ROOT)}
    command = ["bash", str(ROOT / "examples" / "sweep.sh"), *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_the_example_finds_the_cheapest_split(tmp_path):
    done = script(tmp_path, PAPER, "0.4", "10")
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    split = first.split()[0]
    prefill, decode = (int(part) for part in split[:-1].split("P"))
    asked = ("--arrival-rate", "0.4", "--json")
    assert json.loads(dualplan("feasible", PAPER, "--prefill", prefill, "--decode", decode, *asked).stdout)["feasible"]
    for fewer in range(2, prefill + decode):
        best = json.loads(dualplan("feasible", PAPER, "--nodes", fewer, *asked, "--exit-zero").stdout)
        assert not best["feasible"]
    assert len(rest) == 3 and "storage NICs a node" in rest[0]


def test_the_example_ends_with_4_where_nothing_carries_the_demand(tmp_path):
    done = script(tmp_path, PAPER, "1000", "4")
    assert done.returncode == 4 and "no split of 4 nodes" in done.stderr


def test_sweep_from_python_is_that_of_the_command():
    scenario = library.load(PAPER)
    vary = {"prefill": range(2, 4), "hardware.snic.rate": ["200Gb/s", "400Gb/s"], "mode": "basic,dual-path"}
    found = library.sweep(scenario, vary)
    flags = ["--vary", "prefill=2,3", "--vary", "hardware.snic.rate=200Gb/s,400Gb/s", "--vary", "mode=basic,dual-path"]
    lines = dualplan("sweep", PAPER, *flags, "-f", "jsonl").stdout.splitlines()
    assert len(lines) == len(found.rows()) == 8
    for row, line in zip(found.rows(), lines, strict=True):
        other = json.loads(line)
        assert row["throughput.turns_per_s"] == other["throughput"]["turns_per_s"]
        assert (row["mode"], row["hardware.snic.rate"]) == (other["mode"], other["hardware.snic.rate"])
        assert row["feasible"] == other["feasible"] and row["error"] is None
    answer = library.evaluate(library.load(PAPER, ["hardware.snic.rate=200Gb/s", "mode=basic"]), 2)
    assert found.columns["throughput.turns_per_s"][0] == pytest.approx(answer.turns_per_s, rel=1e-9)


def test_sweep_from_python_pairs_splits_and_simulates():
    scenario = library.load(PAPER)
    split = library.sweep(scenario, {"pd": "1:8..8:1"}, nodes=6)
    assert split.columns["prefill_nodes"].tolist() == [1, 2, 3, 4, 5]
    paired = library.sweep(scenario, {"prefill": [2, 3], "decode": [4, 6]}, zipped=True)
    assert np.allclose(paired.columns["pd_ratio"], 0.5)
    run = library.sweep(scenario, {"seed": [1, 2]}, simulate=RunSpec(agents=4))
    assert all(run.columns["jct_s"] > 0) and run.columns["seed"].tolist() == [1, 2]
    for vary in ({}, {"prefill": []}, {"prefil": [1]}, {"hardware.snic.cuont": [1]}):
        with pytest.raises(InputError):
            library.sweep(scenario, vary)
