"""Inverse questions, against solutions by hand: with g = 8, B = 50 GB/s and S = s B, the published bounds solved for
each quantity in turn.
"""

from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

import dualplan
from dualplan.errors import InfeasibleError, InputError
from dualplan.plan.explain.solve_for import solve_range, solve_target
from dualplan.steady.answer import evaluate

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "examples" / "dualpath-paper.yaml"
ROW = ("workload.context=32721", "workload.append=429", "workload.generated=176", "collective_load=0")


@pytest.fixture(scope="module")
def paper():
    return dualplan.load(PAPER, ROW)


@pytest.mark.parametrize(
    ("name", "value", "exact", "constraint"),
    [
        # rho = (M/(sB) - 3)/2, so M = (2 rho + 3) s B = 200 GB/s at rho = 1/2
        ("dram_bandwidth", 200e9, "200000000000", "decode_dram"),
        # the same with M = 500 GB/s: s = M/(B (2 rho + 3)) = 5/2, before s/(g - s) = rho at s = 8/3
        ("snic_count", 2.5, "5/2", "decode_dram"),
        ("snic_rate", 125e9, "125000000000", "decode_dram"),
        # rho = S/(g B - S), so B = S (1 + 1/rho)/g = 150/8 GB/s
        ("cnic_bandwidth", 18.75e9, "18750000000", "prefill_cnic_write"),
        # (1 - u) g B = S (1 + 1/rho)
        ("collective_load", 0.625, "5/8", "prefill_cnic_write"),
        ("pd_ratio", 3.5, "7/2", "decode_cnic_write"),
        # P = D S/(g B - S)
        ("prefill_nodes", 4 / 7, "4/7", "prefill_cnic_write"),
        # 2 S_p <= g B: only the prefill side's own reads grow
        ("prefill_snic_count", 4.0, "4", "prefill_cnic_read"),
    ],
)
def test_hit_bytes_only(paper, name, value, exact, constraint):
    found = solve_range(paper, name, which="paper")
    assert found.value == pytest.approx(value, rel=1e-12)
    assert (found.exact, found.constraint, found.method) == (exact, constraint, "exact")


def test_all_traffic(paper):
    H, m, a, n = 511 * 64, 429 + 32721 - 511 * 64, 429, 176
    # decode DRAM of the step table: S (rho (2H + 2m + a + 2n) + 3H + 2m + a + 2n)/H = M, at rho = 1/2
    by_hand = Fraction(50 * 10**9) * (Fraction(2 * H + 2 * m + a + 2 * n, 2) + 3 * H + 2 * m + a + 2 * n) / H
    found = solve_range(paper, "dram_bandwidth")
    assert Fraction(found.exact) == by_hand
    assert found.valid == (found.value, None) and found.holds
    ratio = solve_range(paper, "pd_ratio")
    assert ratio.value == pytest.approx(3.39, abs=0.005)  # published
    assert ratio.valid[0] == pytest.approx(1 / 7)
    assert ratio.constraint == "decode_dram"


@pytest.mark.parametrize("name", ["snic_count", "snic_rate", "dram_bandwidth", "cnic_bandwidth", "residency"])
def test_the_answer_changes_at_the_value(paper, name):
    found = solve_range(paper, name)
    key = found.parameter.key
    upwards = found.valid[1] is None

    def inside(value):
        if found.parameter.whole:
            hardware = msgspec.structs.replace(
                paper.hardware, snic=msgspec.structs.replace(paper.hardware.snic, count=value)
            )
            changed = msgspec.structs.replace(paper, hardware=hardware, decode_hardware=hardware)
        else:
            text = {"B/s": f"{value:.0f}B/s", "1": f"{value:.12f}"}[found.parameter.unit]
            changed = dualplan.load(PAPER, [*ROW, f"{key}={text}"])
        return evaluate(changed).ranges.all_traffic.contains(Fraction(1, 2))

    assert inside(found.value * (1 + 1e-6)) is upwards
    assert inside(found.value * (1 - 1e-6)) is not upwards


def test_lengths_meet_whole_blocks(paper):
    found = solve_range(paper, "context")
    assert found.method == "numeric" and found.constraint == "decode_snic_egress"
    for context, expected in ((960, True), (959, False)):
        changed = dualplan.load(PAPER, [*ROW, f"workload.context={context}"])
        assert evaluate(changed).ranges.all_traffic.contains(Fraction(1, 2)) is expected
    assert found.value == pytest.approx(960, abs=1e-3)


def test_the_qos_setting_enters():
    # the arbiter leaves KV what the collectives do not use, at least its guarantee: numeric or exact, both sides agree
    scenario = dualplan.load(PAPER, [*ROW[:3], "collective_load=0.5"])
    found = solve_range(scenario, "collective_load", which="paper")
    assert found.value == pytest.approx(0.625, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "reason"), [("hbm_capacity", "at any hbm_capacity"), ("balance", "at any balance"), ("context", "at any")]
)
def test_what_moves_no_end_has_no_value(paper, name, reason):
    with pytest.raises(InfeasibleError, match=reason):
        solve_range(paper, name, which="paper")


def test_nothing_limits_an_oracle():
    with pytest.raises(InfeasibleError, match="nothing limits"):
        solve_range(dualplan.load(PAPER, ["mode=oracle"]), "snic_count")


def test_no_value_brings_the_ratio_inside():
    # one compute NIC in eight left: 2 s/g <= 1 fails whatever the host memory does
    scenario = dualplan.load(PAPER, [*ROW, "hardware.snic.count=4"])
    with pytest.raises(InfeasibleError, match="binds before the storage NICs"):
        solve_range(scenario, "dram_bandwidth")


@pytest.mark.parametrize(
    ("name", "unit"),
    [("snic_rate", "B/s"), ("dram_bandwidth", "B/s"), ("generated", ""), ("append", ""), ("balance", "")],
)
@pytest.mark.parametrize("rate", [30.0, 55.0])
def test_a_target_is_reached(name, unit, rate):
    scenario = dualplan.load(PAPER, [*ROW, "hardware=dgx-h200", "slo.tpot=null"])
    found = solve_target(scenario, name, "turns_per_s", rate)
    text = f"{found.value:.6f}{unit}" if unit != "B/s" else f"{found.value:.3f}B/s"
    sets = [*ROW, "hardware=dgx-h200", "slo.tpot=null"]
    sets = [entry for entry in sets if not entry.startswith(f"{found.parameter.key}=")]
    changed = dualplan.load(PAPER, [*sets, f"{found.parameter.key}={text}"])
    assert evaluate(changed).turns_per_s == pytest.approx(rate, rel=1e-6)
    assert found.target == ("turns_per_s", rate)


def test_a_target_in_agents(paper):
    turns = solve_target(paper, "decode_nodes", "turns_per_s", 0.2 * 157)
    agents = solve_target(paper, "decode_nodes", "agents_per_s", 0.2)
    assert agents.value == pytest.approx(turns.value)


def test_a_target_out_of_reach_names_what_binds(paper):
    with pytest.raises(InfeasibleError, match=r"no snic_count reaches 5000 turns/s.* binds"):
        solve_target(paper, "snic_count", "turns_per_s", 5000.0)


def test_what_a_fitted_set_holds_is_said(paper):
    with pytest.raises(InputError, match="fitted on the machine as it is"):
        solve_target(paper, "hbm_bandwidth", "turns_per_s", 200.0)


@pytest.mark.parametrize(
    "name",
    [
        "__import__('os').system('touch pwned')",
        "x; import os",
        "snic_count + 1",
        "",
        "a" * 5000,
        "\x1b[31m",
        "lambda: 0",
    ],
)
def test_names_are_looked_up_and_never_run(paper, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="nothing that can be solved for"):
        solve_range(paper, name)
    assert not list(tmp_path.iterdir())


def test_keys_of_set_are_names_too(paper):
    assert solve_range(paper, "hardware.snic.count", which="paper").value == 2.5
    with pytest.raises(InputError, match="did you mean snic_count"):
        solve_range(paper, "snic_cuont")
