"""``plan`` and uncertain values through real processes."""

import csv
import io
import json

import pytest

from dualplan.spec.workload import load_workload, per_turn_means
from tests.cli.runner import PAPER, dualplan

TWO = ["--candidates=dgx-h100,mi300x-8", "--price=dgx-h100=30"]


def plan(*arguments, code=0):
    done = dualplan("plan", PAPER, *arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_plans_best_first():
    data = plan("--arrival-rate=0.45", *TWO)
    assert list(data)[:2] == ["schema", "feasible"] and data["schema"] == "dualplan/plan/1"
    assert data["demand"]["turns_per_s"] == pytest.approx(0.45 * 157)
    plans = data["plans"]
    assert [one["rank"] for one in plans] == [1, 2]
    assert plans[0]["cost_per_hour"] <= plans[1]["cost_per_hour"]
    assert plans[0]["lost_because"] is None and plans[1]["lost_because"]
    for one in plans:
        assert one["turns_per_s"] >= 0.45 * 157 and one["inside_range"]
        feasible = dualplan(
            "feasible",
            PAPER,
            f"--hardware={one['hardware']}",
            f"--prefill={one['prefill_nodes']}",
            f"--decode={one['decode_nodes']}",
            "--arrival-rate=0.45",
        )
        assert feasible.returncode == 0
        # USD/h over tokens an hour: 157 turns an agent
        tokens = 0.45 * 157 * per_turn_means(load_workload("dualpath-64k")).generated * 3600 / 1e6
        assert one["cost_per_million_output_tokens"] == pytest.approx(one["cost_per_hour"] / tokens)
    assert data["nearest_miss"] is None and data["inputs_sha256"]
    assert {"price_per_hour": 30.0, "price_origin": "given"}.items() <= data["candidates"][0]["prefill"].items()


def test_what_a_ranking_rests_on_stands_beside_it():
    flags = ["--arrival-rate=0.3", *TWO, "--spare=1", "--headroom=5%"]
    data = plan(*flags)
    assert data["assumptions"][-1] == "given: --arrival-rate, --candidates, --headroom, --price, --spare"
    given, profile = (one["prefill"] for one in data["candidates"])
    assert given["price_source"] is None and "TensorWave" in profile["price_source"]
    assert profile["price_per_hour"] == 13.68 and profile["prefill_efficiency"] is None
    assert profile["prefill_efficiency_source"] is None
    done = dualplan("plan", PAPER, *flags)
    text, lines = " ".join(done.stdout.split()), done.stdout.splitlines()
    assert "Prices USD a node-hour: mi300x-8 13.7 (rent, of the profile), dgx-h100 30.0 (given)" in text
    assert "Prefill mi300x-8 by the roofline, dgx-h100 by the roofline" in text
    assert text.index("Prefill mi300x-8") < text.index("plan USD/h") and max(map(len, lines)) <= 80
    assert "(given)" in dualplan("plan", PAPER, *flags, "-f", "md").stdout
    unpriced = " ".join(dualplan("plan", PAPER, "--arrival-rate=0.3").stdout.split())
    assert "Prices none known, so ranked by GPUs" in unpriced
    assert "Prefill dualpath-hopper as fitted on measured runs" in unpriced
    nothing = plan("--hardware=dgx-h200", "--arrival-rate=100", "--max-nodes=8", code=4)
    assert nothing["assumptions"][-1] == "given: --arrival-rate, --max-nodes"


def test_node_counts_beside_a_demand_are_said_to_be_unused():
    done = dualplan("plan", PAPER, "--arrival-rate=0.3", "--prefill=3", "--decode=5", "--json")
    assert "--prefill and --decode not used" in done.stderr
    assert json.loads(done.stdout)["assumptions"][-1] == "given: --arrival-rate"


def test_three_ways_to_ask_for_the_same():
    rate = plan("--arrival-rate=0.25", *TWO)["plans"]
    turns = plan(f"--turn-rate={0.25 * 157}", *TWO)["plans"]
    agents = plan("--agents=1800", "--within=2h", *TWO)["plans"]
    keys = ("hardware", "prefill_nodes", "decode_nodes", "cost_per_hour")
    chosen = [[tuple(one[key] for key in keys) for one in found] for found in (rate, turns, agents)]
    assert chosen[0] == chosen[1] == chosen[2]


def test_without_a_price_by_gpus_and_with_the_default_slo():
    done = dualplan(
        "plan", "--hardware=dgx-h200", "--model=deepseek-v3.2", "--workload=dualpath-64k", "--arrival-rate=0.2"
    )
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert "TTFT 4 s and TPOT 50 ms by default" in text
    assert "ranked by GPU count, since no price is known" in text
    assert max(map(len, done.stdout.splitlines())) <= 80 and "\x1b" not in done.stdout
    data = plan("--hardware=dgx-h200", "--arrival-rate=0.2")
    assert data["ranked_by"] == "gpus" and data["slo"] == {"ttft_s": 4.0, "tpot_s": 0.05, "defaults": []}
    assert all(one["cost_per_hour"] is None for one in data["plans"]) and len(data["plans"]) == 3
    gpus = [one["gpus"] for one in data["plans"]]
    assert gpus == sorted(gpus)


def test_spare_and_headroom_cost_more():
    base, spare, room = (
        plan("--arrival-rate=0.3", "--hardware=dgx-h200", *extra)["plans"][0]
        for extra in ([], ["--spare=1"], ["--headroom=100%"])
    )
    assert spare["spare"]["meets_demand"] and spare["gpus"] > base["gpus"]
    assert room["headroom"] >= 1
    assert min(spare["spare"][f"{side}_down_turns_per_s"] for side in ("prefill", "decode")) >= 0.3 * 157


@pytest.mark.parametrize(
    ("arguments", "stage", "words"),
    [
        (["--hardware=dgx-h200", "--arrival-rate=100", "--max-nodes=8"], "rate", "The most is"),
        (["--hardware=dgx-h200", "--arrival-rate=0.3", "--slo-ttft=1ms"], "slo", "TTFT is at least"),
        (["--hardware=dgx-h200", "--arrival-rate=0.3", "--slo-tpot=1us"], "slo", "TPOT is"),
        (["--hardware=l40s-8-pcie", "--arrival-rate=0.3", "--max-nodes=16"], "memory", "do not fit"),
        (["--hardware=aws-p5", "--arrival-rate=0.3", "--max-nodes=16"], "range", "carries the demand"),
    ],
)
def test_no_plan_ends_with_4_and_the_nearest_miss(arguments, stage, words):
    data = plan(*arguments, code=4)
    assert data["feasible"] is False and data["plans"] == []
    assert data["nearest_miss"]["stopped_by"] == stage
    assert words in data["nearest_miss"]["reasons"][0] and data["reasons"]
    done = dualplan("plan", PAPER, *arguments, "--exit-zero")
    assert done.returncode == 0 and "NO PLAN" in done.stdout
    assert words in " ".join(done.stdout.split())


def test_outside_the_range_on_demand():
    data = plan("--hardware=aws-p5", "--arrival-rate=0.3", "--max-nodes=16", "--allow-outside-range")
    assert data["plans"] and not data["plans"][0]["inside_range"]


def test_fleet_and_upgrades():
    data = plan("--arrival-rate=0.3", *TWO, "--fleet", "--upgrades", "--available=mi300x-8=3")
    fleet = data["fleet"]
    assert fleet["cost_per_hour"] <= data["plans"][0]["cost_per_hour"] * 1.001
    assert sum(g["count"] * g["turns_per_s"] for g in fleet["groups"]) == pytest.approx(fleet["turns_per_s"])
    assert data["upgrades"]["prefill_nodes"] == data["plans"][0]["prefill_nodes"]
    alone = plan("--upgrades", "--hardware=dgx-h100")
    assert alone["plans"] == [] and alone["demand"] is None
    ladder = alone["upgrades"]["ladder"]
    assert [rung["turns_per_s"] for rung in ladder] == sorted(rung["turns_per_s"] for rung in ladder)
    assert {"title", "gain", "worth_nodes", "break_even_usd_per_node_hour"} <= set(alone["upgrades"]["upgrades"][0])


def test_confirmed_by_simulation():
    data = plan("--arrival-rate=0.2", "--hardware=dgx-h200", "--price=dgx-h200=30", "--confirm")
    best = data["plans"][0]
    assert best["slo_met"] is True and best["confirmed"]["ttft_s"] <= 4 and best["confirmed"]["tpot_s"] <= 0.05
    # the other splits are finalists too, so the ranking stays
    assert len(data["plans"]) == 3 and all(one["slo_met"] for one in data["plans"])
    first = dualplan("plan", PAPER, "--arrival-rate=0.2", "--hardware=dgx-h200", "--confirm", "--finalists=1")
    rows = [line for line in first.stdout.splitlines() if line.startswith(("  1  ", "  2  ", "  3  "))]
    assert len(rows) == 3 and "was not simulated" in " ".join(first.stdout.split())
    for one in data["rejected"]:
        assert one["confirmed"]["slo_met"] is False and one["confirmed"]["reason"]
        assert one["cost_per_hour"] <= best["cost_per_hour"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "md"])
def test_other_formats(form, tmp_path):
    arguments = ["plan", PAPER, "--arrival-rate=0.3", *TWO, "-f", form]
    printed = dualplan(*arguments)
    assert printed.returncode == 0
    file = tmp_path / "out"
    assert dualplan(*arguments, "-o", file).stdout == ""
    assert file.read_text() == printed.stdout
    if form == "csv":
        header, *rows = csv.reader(io.StringIO(printed.stdout))
        assert {"rank", "prefill_nodes", "decode_nodes", "hardware", "cost_per_hour"} <= set(header)
        assert len(rows) == 2 and all(len(row) == len(header) for row in rows)


def test_same_input_same_bytes():
    call = ["plan", PAPER, "--arrival-rate=0.3", *TWO, "--json"]
    assert dualplan(*call).stdout == dualplan(*call).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ([], 2, "no demand"),
        (["--agents=100"], 2, "go together"),
        (["--agents=100", "--within=2"], 3, "has no unit"),
        (["--agents=100", "--within=0s"], 3, "is not above 0"),
        (["--agents=100", "--within=2h", "--turn-rate=3"], 2, "one demand"),
        (["--arrival-rate=0"], 3, "must be greater than 0"),
        (["--arrival-rate=1e200"], 3, "is not a demand"),
        (["--arrival-rate=0.3", "--slo-tpot=50"], 3, "has no unit"),
        (["--arrival-rate=0.3", "--candidates=dgx-h20"], 3, "did you mean dgx-h200?"),
        (["--arrival-rate=0.3", "--candidates=,"], 3, "names no profile"),
        (["--arrival-rate=0.3", "--candidates=dgx-h100", "--decode-hardware=dgx-h200"], 2, "--mixed"),
        (["--arrival-rate=0.3", "--mixed"], 2, "at least two"),
        (["--arrival-rate=0.3", "--price=dualpath-hoper=3"], 3, "did you mean dualpath-hopper?"),
        (["--arrival-rate=0.3", "--price=dualpath-hopper"], 3, "is not NAME=USD"),
        (["--arrival-rate=0.3", "--price=dualpath-hopper=-1"], 3, "is not a number of 0 or more"),
        (["--arrival-rate=0.3", "--available=dualpath-hopper=1.5"], 3, "whole number"),
        (["--arrival-rate=0.3", "--snic-counts=1,two"], 3, "--snic-counts"),
        (["--arrival-rate=0.3", "--max-nodes=1"], 3, "--max-nodes"),
        (["--arrival-rate=0.3", "--spare=-1"], 3, "--spare"),
        (["--arrival-rate=0.3", "--headroom=-5%"], 3, "--headroom"),
        (["--arrival-rate=0.3", "--finalists=2"], 2, "--confirm"),
        (["--confirm", "--upgrades"], 2, "needs a demand"),
        (["--arrival-rate=0.3", "-o", "/nowhere/x"], 3, "cannot be written"),
    ],
)
def test_bad_calls(arguments, code, part):
    done = dualplan("plan", PAPER, *arguments)
    assert done.returncode == code
    assert part in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stderr and "unexpected" not in done.stderr


def test_uncertain_verdict():
    memory = "--set=hardware.gpu.hbm_capacity=76GiB"
    usual = json.loads(dualplan("feasible", PAPER, "--hardware=dgx-h100", memory, "--json", "--exit-zero").stdout)
    capacity = "--uncertain=hardware.gpu.hbm_capacity=76 +- 2 GiB"
    demand = f"--turn-rate={usual['throughput']['turns_per_s']}"
    arguments = [
        "feasible",
        PAPER,
        "--hardware=dgx-h100",
        demand,
        capacity,
        "--exit-zero",
        "--uncertain=balance=1.1..1.2",
        "--samples=200",
    ]
    done = dualplan(*arguments, "--json")
    found = json.loads(done.stdout)["uncertainty"]
    # of a demand that the central value just meets, half of the samples meet it
    assert found["samples"] == 200 and found["feasible_share"] == pytest.approx(0.5, abs=0.01)
    assert found["decides"] == found["measure_next"] == "hardware.gpu.hbm_capacity"
    assert found["turns_per_s"]["p5"] < found["turns_per_s"]["p50"] < found["turns_per_s"]["p95"]
    assert dualplan(*arguments, "--json").stdout == done.stdout
    text = " ".join(dualplan(*arguments).stdout.split())
    assert "Robust" in text and "of 200 samples are feasible" in text
    assert "Measure hardware.gpu.hbm_capacity next" in text
    assert "uncertain" in dualplan(*arguments, "-f", "md").stdout
    assert json.loads(dualplan("feasible", PAPER, "--json").stdout)["uncertainty"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["--uncertain=balance"], 3, "is not KEY=VALUE"),
        (["--uncertain=balance=1.2"], 3, "no uncertain value"),
        (["--uncertain=balanse=1.1..1.2"], 3, "did you mean balance?"),
        (["--uncertain=hardware.snic.count=1..2"], 3, "sweep"),
        (["--uncertain=balance=1.1..1.2", "--samples=1"], 3, "--samples"),
        (["--samples=10"], 2, "--uncertain"),
    ],
)
def test_bad_uncertain_values(arguments, code, part):
    done = dualplan("feasible", PAPER, *arguments)
    assert done.returncode == code
    assert part in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("rate", "room"), [("1e-9", ">1000x"), ("0.2", "+")])
def test_head_room_over_a_demand_of_next_to_nothing(rate, room):
    text = dualplan("plan", PAPER, "--hardware=dgx-h200", f"--arrival-rate={rate}").stdout
    assert f"head-room {room}" in text
    assert "0000 %" not in text and "000,000 %" not in text
