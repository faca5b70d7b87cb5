"""``simulate`` through real processes: values, formats, exit codes, bad input."""

import csv
import io
import json
import subprocess
import sys

import pytest

from tests.cli.runner import PAPER, ROOT, dualplan

SMALL = [PAPER, "--agents", "20", "--set=workload.turns=6", "--set=workload.context=20000"]


def answer(*arguments, code=0):
    done = dualplan("simulate", *arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_offline_has_the_fixed_names():
    data = answer(PAPER, "--agents", "12")
    assert next(iter(data)) == "schema" and data["schema"] == "dualplan/simulate/1"
    assert data["agents"] == data["agents_done"] == 12
    assert data["turns_per_s"] == pytest.approx(data["turns"] / data["jct_s"])
    assert data["parameters"] == "deepseek-v3.2 on dualpath-hopper"
    assert any("parameter set" in line for line in data["assumptions"])


def test_online_has_the_fixed_names():
    data = answer(PAPER, "--arrival-rate", "0.05", "--duration", "900s")
    for key in ("ttft_s", "ttst_s", "tpot_s"):
        spread = data[key]
        assert set(spread) == {"mean", "p50", "p90", "p99"}
        assert 0 < spread["p50"] <= spread["p90"] <= spread["p99"]
    assert data["slo_met"] is True and data["slo"]["ttft_s"] == 4.0
    assert sum(data["ttft_shares"].values()) == pytest.approx(1)
    assert sum(data["ttft_parts_s"].values()) == pytest.approx(data["ttft_s"]["mean"], rel=1e-5)
    assert data["simulated_s"] == 900 and data["warm_up_s"] == 300


def test_above_capacity_is_said_and_stops_by_rule():
    done = dualplan("simulate", PAPER, "--arrival-rate", "20", "--duration", "600s", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == 4
    assert data["stopped"] == "TTFT above the limit" and data["simulated_s"] < 600
    assert data["slo_met"] is False
    people = dualplan("simulate", PAPER, "--arrival-rate", "20", "--duration", "600s", "--exit-zero")
    assert people.returncode == 0 and "SLO MISSED" in people.stdout and "above capacity" in people.stdout


def test_capacity_is_an_interval():
    # one class of 4 turns keeps it short
    plain = ["--set=workload.turns=4", "--set=workload.context=30000", "--set=workload.generated=50"]
    data = answer(PAPER, "--find-capacity", "--duration", "120s", *plain)
    low, high = data["interval"]
    assert data["capacity_agents_per_s"] == low < high <= low * 1.03
    assert any(not run["slo_met"] for run in data["runs"]) and any(run["slo_met"] for run in data["runs"])


def test_modes_side_by_side():
    data = answer(*SMALL, "--compare", "basic,layerwise,dual-path,oracle")
    times = [mode["jct_s"] for mode in data["modes"]]
    assert [mode["mode"] for mode in data["modes"]] == ["basic", "layerwise", "dual-path", "oracle"]
    assert data["modes"][0]["speedup_over_basic"] == 1
    assert data["modes"][2]["speedup_over_basic"] == pytest.approx(times[0] / times[2])
    rows = list(
        csv.DictReader(io.StringIO(dualplan("simulate", *SMALL, "--compare", "basic,oracle", "-f", "csv").stdout))
    )
    assert [row["mode"] for row in rows] == ["basic", "oracle"]
    assert float(rows[0]["jct_s"]) == times[0]
    people = dualplan("simulate", *SMALL, "--compare", "basic,oracle").stdout
    assert "speed-up" in people and "1.00x" in people
    assert max(map(len, people.splitlines())) <= 80


def test_same_seed_same_bytes():
    one, two = (dualplan("simulate", *SMALL, "--seed", "7", "--json").stdout for _ in range(2))
    assert one == two and json.loads(one)["seed"] == 7


def test_several_runs_give_an_interval():
    data = answer(PAPER, "--agents", "8", "--runs", "3")
    low, high = data["jct_interval_s"]
    assert len(data["jct_runs_s"]) == 3 and low < data["jct_s"] < high
    assert data["jct_s"] == pytest.approx(sum(data["jct_runs_s"]) / 3)


def test_scales_lengthen_and_cut():
    plain, longer = answer(PAPER, "--agents", "10"), answer(PAPER, "--agents", "10", "--append-scale", "3")
    # appends three times as long fill a context of at most 65,536 tokens in fewer turns
    assert longer["turns"] < 0.7 * plain["turns"]
    generated = answer(PAPER, "--agents", "10", "--generated-scale", "2")
    assert generated["totals"]["generated_tokens"] > plain["totals"]["generated_tokens"]


def test_without_a_fitted_set_the_roofline_is_used_and_named():
    data = answer(*SMALL, "--hardware", "dgx-h200")
    assert data["parameters"] == "roofline"
    assert any("no fitted set" in line for line in data["assumptions"])


def test_timeline_as_trace_events_and_as_columns(tmp_path):
    events, columns = tmp_path / "line.json", tmp_path / "line.csv"
    data = answer(*SMALL, "--timeline", events)
    document = json.loads(events.read_text())["traceEvents"]
    done = [event["args"]["turns"] for event in document if event["name"] == "turns done"]
    assert done == sorted(done) and 0 < done[-1] <= data["turns"]
    assert document[0]["args"]["name"] == "mode dual-path"
    answer(*SMALL, "--timeline", columns)
    rows = list(csv.DictReader(io.StringIO(columns.read_text())))
    assert [float(row["turns_done"]) for row in rows] == done
    for row in rows:
        under_way = sum(float(row[f"{place}_turns"]) for place in ("waiting", "prefilling", "decoding"))
        assert under_way <= 20


def test_a_trace_at_its_own_times(tmp_path):
    trace = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 500 * i, "input_length": 3000, "output_length": 20, "hash_ids": [1, 2, 3, 4, 5, 10 + i]}
        for i in range(60)
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = answer(PAPER, "--workload", trace, "--trace-times", "--warm-up", "0s")
    # all but the first request hit five blocks of 512 tokens: 59 * 2,560 tokens of 48,068 B
    assert data["agents"] == data["turns"] == 60
    assert data["totals"]["hit_bytes"] == pytest.approx(59 * 2560 * 48068)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 2, "--agents"),
        (("--agents", "5", "--arrival-rate", "1"), 2, "one of"),
        (("--agents", "5", "--find-capacity"), 2, "one of"),
        (("--arrival-rate", "1", "--runs", "3"), 2, "--runs"),
        (("--agents", "0"), 3, "--agents"),
        (("--agents", "-3"), 3, "--agents"),
        (("--agents", "many"), 3, "--agents"),
        (("--agents", "99999999999999999999"), 3, "--agents"),
        (("--agents", "5", "--seed", "x"), 3, "--seed"),
        (("--agents", "5", "--append-scale", "0"), 3, "--append-scale"),
        (("--agents", "5", "--generated-scale", "nan"), 3, "--generated-scale"),
        (("--agents", "5", "--tokens-per-step", "0.5"), 3, "--tokens-per-step"),
        (("--agents", "5", "--compare", "basic,orcale"), 3, "did you mean oracle?"),
        (("--agents", "5", "--compare", ","), 3, "--compare"),
        (("--agents", "5", "--read-side", "shortest"), 3, "--read-side"),
        (("--agents", "5", "--prefill-placement", "three-clas"), 3, "did you mean three-class?"),
        (("--agents", "5", "--mode", "dram-pool"), 3, "dram-pool is not simulated"),
        (("--agents", "5", "--staging", "gds"), 3, "gds is not simulated"),
        (("--arrival-rate", "1", "--duration", "10"), 3, "--duration"),
        (("--arrival-rate", "1", "--duration", "10s", "--warm-up", "20s"), 3, "--warm-up"),
        (("--arrival-rate", "0.05", "--duration", "5s"), 3, "no turn ended"),
        (("--trace-times",), 3, "--trace-times"),
        (("--arrival-rate", "1e-9"), 3, "--arrival-rate: at 1e-09 agents/s no agent arrives"),
        (("--arrival-rate", "5e-324"), 3, "--arrival-rate"),
        (("--arrival-rate", "0.2", "--duration", "1ms"), 3, "no agent arrives in 0.001 s"),
        (("--arrival-rate", "0.2", "--duration", "-10s"), 3, "--duration: -10 s"),
        (("--arrival-rate", "0.2", "--duration", "0s"), 3, "--duration: 0 s"),
        (("--arrival-rate", "1e4"), 3, "--arrival-rate: 10000 agents/s for 3000 s are more than 2,000,000 agents"),
        (("--arrival-rate", "1e300"), 3, "--arrival-rate"),
        (("--find-capacity", "--duration", "0s"), 3, "--duration: 0 s"),
        (("--find-capacity", "--duration", "1ms"), 3, "--duration: no agent arrives"),
        (("--find-capacity", "--duration", "3s"), 3, "--duration: no turn ended"),
        (("--find-capacity", "--duration", "1e9s"), 3, "--duration: in 1e+09 s more than 2,000,000 agents"),
        (("--agents", "5", "--timeline", "/no/such/folder/x.csv"), 3, "--timeline: /no/such/folder/x.csv"),
        (("--agents", "5", "--timeline", "/"), 3, "--timeline: / is a directory"),
        (("--agents", "5", "-o", "/no/such/folder/x"), 3, "-o: /no/such/folder/x cannot be written"),
        (("--agents", "5", "--timeline", "-", "--json"), 2, "--timeline -"),
    ],
)
def test_faults_are_one_clear_line(arguments, code, text):
    done = dualplan("simulate", PAPER, *arguments)
    assert done.returncode == code
    assert text in done.stderr and "Traceback" not in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--agents", "5", "--prefill", "1"), "Weights do not fit"),
        (("--agents", "5", "--set=workload.context=900000"), "longest context"),
    ],
)
def test_what_does_not_fit_is_an_answer(arguments, text):
    data = answer(PAPER, *arguments, code=4)
    assert list(data) == ["schema", "reasons"] and data["schema"] == "dualplan/simulate/1"
    assert len(data["reasons"]) == 1 and text in data["reasons"][0]
    people = dualplan("simulate", PAPER, *arguments)
    assert people.returncode == 4 and text in people.stdout and not people.stderr


SHORT = ("--find-capacity", "--duration", "300s", "--set=workload.turns=4")


@pytest.mark.parametrize("limit", [("--slo-ttft", "1ns"), ("--slo-ttft", "10ms"), ("--slo-tpot", "1ms")])
def test_an_slo_out_of_reach_gives_no_capacity(limit):
    data = answer(PAPER, *SHORT, *limit, code=4)
    assert data["capacity_agents_per_s"] == data["interval"][0] == 0 < data["interval"][1]
    assert not any(run["slo_met"] for run in data["runs"])
    assert "no rate meets the SLO" in dualplan("simulate", PAPER, *SHORT, *limit).stdout


def test_a_loose_slo_ends_where_most_turns_wait():
    data = answer(PAPER, *SHORT, "--slo-ttft", "100000s")
    low, high = data["interval"]
    assert 0 < low < high <= low * 1.03
    met = [run for run in data["runs"] if run["arrival_rate"] == low]
    assert met[0]["slo_met"] and data["turns_waiting_at_end"] <= data["turns"]


def test_turns_that_are_stuck_miss_the_slo():
    stuck = (PAPER, "--set", "hardware.snic.rate=1kb/s", "--arrival-rate", "0.1")
    data = answer(*stuck, code=4)
    # the turns that end are those with nothing to read; the first read alone takes days at 125 B/s
    assert data["ttft_s"]["mean"] < 4 and data["slo_met"] is False
    assert data["turns_waiting_at_end"] > data["turns"] and data["wait_at_end_mean_s"] > 4
    assert all(0 <= share <= 1 for share in data["utilization"].values())
    people = dualplan("simulate", *stuck)
    assert "SLO MISSED" in people.stdout and "wait for their first token" in people.stdout


def test_help_loads_no_numpy():
    check = (
        "import sys; from dualplan.cli import app; app.run(['simulate', '--help']); sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--find-capacity" in done.stdout
