"""``dualplan compare`` as a user runs it."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.runner import PAPER, dualplan


@pytest.fixture
def other(tmp_path):
    """The paper's scenario on other nodes, slower storage NICs and without a choice of side."""
    text = Path(PAPER).read_text().replace("mode: dual-path", "mode: layerwise")
    text = text.replace("hardware: dualpath-hopper", "hardware: {extends: dualpath-hopper, snic: {rate: 200Gb/s}}")
    file = tmp_path / "other.yaml"
    file.write_text(text.replace("name: dualpath-paper", "name: slow [bold]"))
    return str(file)


def test_figures_are_those_of_feasible_and_changes_are_relative_to_the_first(other):
    found = json.loads(dualplan("compare", PAPER, other, "--json").stdout)
    assert found["schema"] == "dualplan/compare/1" and found["relative_to"] == "dualpath-paper"
    first, second = found["scenarios"]
    for row, file in ((first, PAPER), (second, other)):
        single = json.loads(dualplan("feasible", file, "--json", "--exit-zero").stdout)
        for key in ("throughput", "bottleneck", "feasible", "speedup_over_basic", "inputs_sha256"):
            assert row[key] == single[key]
        assert row["range"]["upper"] == single["range"]["upper"]
    rate = "throughput.turns_per_s"
    expected = second["throughput"]["turns_per_s"] / first["throughput"]["turns_per_s"] - 1
    assert expected < 0 and second["change"][rate] == pytest.approx(expected)
    assert first["change"][rate] == 0


def test_every_difference_of_the_inputs_is_listed(other):
    found = json.loads(dualplan("compare", PAPER, other, "--json").stdout)["input_differences"]
    by_key = {entry["key"]: entry for entry in found}
    assert set(by_key) == {"mode", "hardware.snic.rate"}
    assert by_key["mode"]["values"] == ["dual-path", "layerwise"]
    assert by_key["hardware.snic.rate"] == {"key": "hardware.snic.rate", "unit": "B/s", "values": [50e9, 25e9]}


def test_all_formats(other):
    rows = list(csv.DictReader(io.StringIO(dualplan("compare", PAPER, other, "-f", "csv").stdout)))
    assert [row["mode"] for row in rows] == ["dual-path", "layerwise"]
    assert len(dualplan("compare", PAPER, other, "-f", "jsonl").stdout.splitlines()) == 2
    assert "| hardware.snic.rate | 50.00 GB/s | 25.00 GB/s |" in dualplan("compare", PAPER, other, "-f", "md").stdout
    text = dualplan("compare", PAPER, other, environment={"NO_COLOR": "1"}).stdout
    assert "slow [bold]" in text and "Inputs that differ" in text and "layerwise" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_alike_scenarios_and_names(tmp_path):
    same = dualplan("compare", PAPER, PAPER)
    assert "No input differs" in same.stdout and "dualpath-paper (2)" in same.stdout
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(Path(PAPER).read_text())
    text = dualplan("compare", tmp_path / "a.yaml", tmp_path / "b.yaml", "-f", "csv").stdout
    assert [line.split(",")[0] for line in text.splitlines()] == ["name", "a", "b"]


def test_exit_codes(other):
    assert dualplan("compare", PAPER, other, "--prefill", "1").returncode == 0
    assert dualplan("compare", PAPER, other, "--prefill", "1", "--require-feasible").returncode == 4
    alone = dualplan("compare", PAPER)
    assert alone.returncode == 2 and "two scenario files" in alone.stderr
    missing = dualplan("compare", PAPER, "nope.yaml", "nowhere.yaml")
    assert missing.returncode == 3 and "nope.yaml" in missing.stderr and "nowhere.yaml" in missing.stderr


def test_a_caution_is_said_once_and_a_fault_names_its_key_once(other):
    done = dualplan("compare", PAPER, other, "--set", "workload.append=500")
    assert done.stderr.count("prints means over trajectories") == 1
    wrong = dualplan("compare", PAPER, other, "--set", "workload.append=0")
    assert wrong.returncode == 3
    assert wrong.stderr.splitlines() == ['--set workload.append: "0" must be greater than 0']


@pytest.fixture
def wider(tmp_path):
    """More storage NICs and memory: a higher rate, and no P/D at which all of the NICs could be busy."""
    file = tmp_path / "wider.yaml"
    hardware = "hardware: {extends: dualpath-hopper, snic: {count: 3}, gpu: {hbm_capacity: 96GB}}"
    text = Path(PAPER).read_text().replace("hardware: dualpath-hopper", hardware)
    file.write_text(text.replace("name: dualpath-paper", "name: wider"))
    return str(file)


def test_the_highest_rate_is_said_to_be_that_of_the_feasible_ones(wider):
    rows = json.loads(dualplan("compare", PAPER, wider, "--json").stdout)["scenarios"]
    rates = [row["throughput"]["turns_per_s"] for row in rows]
    assert [row["feasible"] for row in rows] == [True, False] and rates[1] > rates[0]
    text = dualplan("compare", PAPER, wider).stdout
    joined = " ".join(text.split())
    assert f"Most turns/s of those that are feasible: dualpath-paper with {rates[0]:.1f}" in joined
    assert f"; wider, which is not feasible, has {rates[1]:.1f}." in joined
    assert all(len(line) <= 80 for line in text.splitlines())
    alone = dualplan("compare", wider, wider).stdout
    assert "Most turns/s of these: wider (1)" in alone
    assert "Most turns/s: dualpath-paper (1) with" in dualplan("compare", PAPER, PAPER).stdout


def test_an_empty_range_is_said_with_the_links_that_make_it_so(wider):
    rows = json.loads(dualplan("compare", PAPER, wider, "--json").stdout)["scenarios"]
    (reason,) = rows[1]["reasons"]
    for form in ("table", "md"):
        text = " ".join(dualplan("compare", PAPER, wider, "-f", form).stdout.split())
        assert f"wider: {reason} Still the rate holds" in text
    table = dualplan("compare", PAPER, wider).stdout.splitlines()
    assert [line.split()[-1] for line in table if line.startswith(("  P/D from", "  P/D to"))] == ["empty", "empty"]
    assert "prefill CNIC write needs at least" in reason and "decode" in reason


def test_demands_near_the_limit_are_told_apart():
    text = " ".join(dualplan("compare", PAPER, PAPER, "--arrival-rate", "0.45").stdout.split())
    assert "Near the limit: dualpath-paper (1), dualpath-paper (2); published runs carried" in text
