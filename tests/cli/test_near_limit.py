"""Demands near the steady rate: published runs say by how much that rate may be off, and what to ask instead."""

import json

import pytest

from tests.cli.runner import PAPER, in_process
from tests.cli.test_start_up import modules_after


def answer(*arguments):
    return json.loads(in_process(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def shares():
    """What published saturated runs carried of their steady rates, from the figures that validate prints."""
    points = answer("validate", "--only", "steady", "--exit-zero")["points"]
    assert len(points) == 8
    return sorted(point["published"] / point["predicted"] for point in points)


def test_a_demand_that_some_runs_would_carry_is_said_to_be_open(shares):
    rate = answer("feasible", PAPER)["throughput"]["turns_per_s"]
    for share, near in (
        (shares[0] * 0.999, False),
        (shares[0] * 1.001, True),
        (1.0, True),
        (shares[-1] * 0.999, True),
        (shares[-1] * 1.001, False),
    ):
        found = answer("feasible", PAPER, "--turn-rate", repr(rate * share))
        assert bool(found["near_limit"]) == near and found["feasible"] == (share <= 1)
        if near:
            assert found["near_limit"] == {
                "published_runs": 8,
                "lowest_share_of_steady_rate": pytest.approx(shares[0]),
                "highest_share_of_steady_rate": pytest.approx(shares[-1]),
                "source": "dualplan validate --only steady",
            }
    assert answer("feasible", PAPER)["near_limit"] is None


def test_the_answer_points_to_what_decides(shares):
    said = (
        f"Near limit published runs carried {100 * shares[0]:.0f} % to {100 * shares[-1]:.0f} % of their steady rates"
    )
    told = in_process("feasible", PAPER, "--arrival-rate", "0.45")
    text = " ".join(told.stdout.split())
    assert told.returncode == 4 and said in text and "let dualplan simulate --find-capacity decide" in text
    assert all(len(line) <= 80 for line in told.stdout.splitlines())
    listed = in_process("feasible", PAPER, "--arrival-rate", "0.45", "-f", "md").stdout
    assert f"- {said.replace('limit', 'limit:', 1)}" in listed
    assert "Near limit" not in in_process("feasible", PAPER, "--arrival-rate", "0.1").stdout


def test_the_best_plan_says_so_until_it_is_simulated():
    call = ("plan", PAPER, "--arrival-rate", "0.42")
    assert "let --confirm decide" in " ".join(in_process(*call).stdout.split())
    assert "Near limit" not in in_process(*call, "--confirm", "--finalists", "1").stdout
    assert "Near limit" not in in_process(*call, "--headroom", "40%").stdout


def test_a_mix_can_only_be_given_room(tmp_path):
    file = tmp_path / "mix.yaml"
    entries = "[{share: 50 %, workload: dualpath-64k}, {share: 50 %, workload: dualpath-32k}]"
    file.write_text(
        f"hardware: dualpath-hopper\nmodel: deepseek-v3.2\nprefill_nodes: 2\ndecode_nodes: 4\nmix: {entries}\n"
    )
    rate = answer("feasible", file)["throughput"]["turns_per_s"]
    text = in_process("feasible", file, "--turn-rate", str(0.9 * rate)).stdout
    assert "leave room; no command simulates" in " ".join(text.split())


def test_it_takes_nothing_heavy():
    heavy = {"scipy", "sympy", "numba", "duckdb", "pandas", "matplotlib", "numpy"}
    assert not modules_after("feasible", PAPER, "--arrival-rate", "0.45", "--exit-zero") & heavy
