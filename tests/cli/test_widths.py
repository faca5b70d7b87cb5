"""Answers on narrow terminals: no line is wider than the terminal, and no word is cut."""

import pytest
from rich.cells import cell_len

from tests.cli.runner import PAPER, in_process

CALLS = [
    ("feasible", PAPER, "--nodes", "12", "--arrival-rate", "0.3"),
    ("compare", PAPER, PAPER),
    ("plan", PAPER, "--arrival-rate", "0.2", "--max-nodes", "8", "--upgrades"),
    ("sweep", PAPER, "--vary", "pd=1:5..5:1", "--nodes", "6"),
    ("explain", PAPER),
    ("explain", PAPER, "decode HBM", "rate"),
    ("explain", PAPER, "--elasticities"),
    ("explain", PAPER, "--solve-for", "snic_count"),
    ("size", "break-even", PAPER),
    ("size", "store", PAPER, "--arrival-rate", "0.4"),
    ("validate", "range", "kv-bytes", "traffic", "--list"),
    ("validate", "range", "lanes", "--plot"),
    ("ratio", "--hardware-trend"),
    ("ratio", "--batch"),
    ("hardware", "list"),
    ("model", "list"),
    ("workload", "list"),
]


@pytest.mark.parametrize("columns", [120, 80, 60, 40])
@pytest.mark.parametrize("arguments", CALLS, ids=lambda words: " ".join(word for word in words if word != PAPER))
def test_lines_fit(arguments, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    done = in_process(*arguments)
    assert done.returncode == 0 and done.stdout
    assert [line for line in done.stdout.splitlines() if cell_len(line) > columns] == []
    if "--plot" not in arguments:
        assert "…" not in done.stdout
