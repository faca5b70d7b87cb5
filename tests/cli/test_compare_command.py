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
