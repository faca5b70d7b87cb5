"""``simulate`` through real processes: values, formats, exit codes, bad input."""

import csv
import io
import json
import subprocess
import sys
from itertools import pairwise

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
    assert people.stdout.count("Missed by") == len(data["missed_by"])
    assert indented_to_80_columns(people.stdout)


def indented_to_80_columns(text):
    """No line is longer, and none but the headline begins in the first column."""
    lines = text.splitlines()
    return max(map(len, lines)) <= 80 and all(line.startswith(" ") or not line for line in lines[1:])


def test_what_missed_the_slo_stands_beside_a_mean_that_keeps_it():
    """At 0.5 agents/s mean TTFT keeps its limit, and the last slices do not."""
    data = answer(PAPER, "--arrival-rate", "0.5", code=4)
    assert data["ttft_s"]["mean"] < 4 and data["stopped"] == "TTFT above the limit"
    (miss,) = data["missed_by"]
    *_, third, second, last = data["slices"]
    assert miss["rule"] == "ttft_of_slices" and miss["limit"] == 4 and miss["value"] == last["ttft_s"]
    assert min(third["ttft_s"], second["ttft_s"], last["ttft_s"]) > 4 >= data["slices"][-4]["ttft_s"]
    assert last["end_s"] == data["simulated_s"] and last["start_s"] == second["end_s"]
    done = dualplan("simulate", PAPER, "--arrival-rate", "0.5")
    text = " ".join(done.stdout.split())
    assert f"slices from {third['start_s']:,.0f} s to {last['end_s']:,.0f} s, limit 4.00 s" in text
    assert f"{last['ttft_s']:.2f} s in the 3 slices" in text and indented_to_80_columns(done.stdout)


def test_capacity_is_an_interval():
    # one class of 4 turns keeps it short
    plain = ["--set=workload.turns=4", "--set=workload.context=30000", "--set=workload.generated=50"]
    data = answer(PAPER, "--find-capacity", "--duration", "120s", *plain)
    low, high = data["interval"]
    assert data["capacity_agents_per_s"] == low < high <= low * 1.03
    assert any(not run["slo_met"] for run in data["runs"]) and any(run["slo_met"] for run in data["runs"])
    # what failed at the upper end
    (upper,) = (run for run in data["runs"] if run["arrival_rate"] == high)
    assert data["upper_missed_by"] == upper["missed_by"] != []
    assert all(bool(run["missed_by"]) != run["slo_met"] for run in data["runs"])
    people = dualplan("simulate", PAPER, "--find-capacity", "--duration", "120s", *plain).stdout
    assert upper["missed_by"][0]["text"] in " ".join(people.split()) and indented_to_80_columns(people)


def test_what_is_not_steady_says_what_to_do():
    short = (PAPER, "--arrival-rate", "0.4", "--duration", "900s")
    data = answer(*short)
    first, second = data["ttft_halves_s"]
    assert data["steady"] is False and second > 1.1 * first
    note = next(note for note in data["notes"] if note.startswith("not steady"))
    assert "--duration 1800s" in note and "--arrival-rate" in note and "--find-capacity" in note
    people = dualplan("simulate", *short).stdout
    assert "but not steady" in people and note in " ".join(people.split()) and indented_to_80_columns(people)


def test_rows_say_what_they_missed():
    flags = ("--arrival-rate", "20", "--duration", "300s", "--compare", "basic,dual-path")
    rows = answer(PAPER, *flags, code=4)["modes"]
    people = " ".join(dualplan("simulate", PAPER, *flags).stdout.split())
    for row in rows:
        assert all(f"{row['mode']} misses: {miss['text']}" in people for miss in row["missed_by"])


@pytest.mark.parametrize("load", [("--agents", "8"), ("--arrival-rate", "0.1"), ("--find-capacity",)])
def test_a_comparison_shows_the_rate_of_each_mode(load):
    online = () if "--agents" in load else ("--duration", "300s")
    flags = (PAPER, *load, *online, "--compare", "basic,dual-path", "--set=workload.turns=4")
    people = dualplan("simulate", *flags, "--exit-zero").stdout.splitlines()
    header = next(line.split("  ") for line in people if line.startswith("  mode"))
    place = [cell.strip() for cell in header if cell.strip()].index("turns/s")
    for row in answer(*flags, "--exit-zero")["modes"]:
        cells = next(line.split("  ") for line in people if line.startswith(f"  {row['mode']} "))
        shown = [cell.strip() for cell in cells if cell.strip()][place]
        assert float(shown) == pytest.approx(row["turns_per_s"], rel=5e-3)


ALIKE = ("--set=workload.turns=20", "--set=workload.context=20000", "--set=workload.append=429")


def test_the_share_of_prefill_capacity_is_that_of_feasible():
    """Passes are busy at any load; what is used of them is turns/s over what ``feasible`` says the side can do."""
    sets = (*ALIKE, "--set=workload.generated=100")
    steady = json.loads(dualplan("feasible", PAPER, *sets, "--json").stdout)
    (compute,) = (use for use in steady["resources"] if use["name"] == "prefill_compute")
    data = answer(PAPER, "--arrival-rate", "0.6", "--duration", "300s", *sets)
    assert data["prefill_capacity_used"] == pytest.approx(data["turns_per_s"] / compute["capacity"], rel=1e-9)
    uses = {use["name"]: use for use in data["resources"]}
    assert uses["prefill_compute"]["capacity_used"] == data["prefill_capacity_used"]
    assert uses["prefill_compute"]["utilization"] > 4 * data["prefill_capacity_used"]
    assert uses["decode_hbm"]["capacity_used"] == uses["decode_hbm"]["utilization"]
    people = dualplan("simulate", PAPER, "--arrival-rate", "0.6", "--duration", "300s", *sets).stdout
    assert f"prefill compute{100 * data['prefill_capacity_used']:19.0f} %" in people
    assert "prefill passes running" in people and "as feasible counts" in " ".join(people.split())


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


def test_a_comparison_says_what_its_runs_and_its_gain_are():
    flags = (PAPER, "--arrival-rate=0.6", "--duration=900s", "--compare=basic,oracle")
    rows = answer(*flags, code=4)["modes"]
    people = " ".join(dualplan("simulate", *flags).stdout.split())
    assert people.startswith("DeepSeek-V3.2 ·") and "TTFT gain" in people
    assert rows[1]["speedup_over_basic"] == pytest.approx(rows[0]["ttft_s"]["mean"] / rows[1]["ttft_s"]["mean"])
    # the stop rule ends the run of basic early
    assert rows[0]["simulated_s"] < rows[1]["simulated_s"] == 900
    for row in rows:
        assert f"{row['mode']}: run of {row['simulated_s']:.0f} s" in people


def test_shares_of_a_run_with_a_warm_up_are_said_to_be_of_all_of_it():
    online = dualplan("simulate", PAPER, "--arrival-rate=0.05", "--duration=900s").stdout
    assert "of the whole run, its filling included" in " ".join(online.split())
    assert "whole run" not in dualplan("simulate", *SMALL).stdout


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
    single = answer(PAPER, "--agents", "2", "--generated-scale", "0.0001")
    assert single["totals"]["generated_tokens"] == single["turns"]
    assert single["tpot_s"]["mean"] is None and any("no TPOT" in note for note in single["notes"])


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
    data = answer(PAPER, "--workload", trace, "--trace-times")
    # all but the first request hit five blocks of 512 tokens: 59 * 2,560 tokens of 48,068 B
    assert data["agents"] == data["turns"] == 60
    assert data["totals"]["hit_bytes"] == pytest.approx(59 * 2560 * 48068)
    assert data["warm_up_s"] == 0 and answer(*replay(trace), "--warm-up", "10s")["turns"] < 60


def replay(trace):
    return (PAPER, "--workload", trace, "--trace-times")


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
        (("--agents", "5", "--duration", "10s"), 2, "--duration"),
        (("--agents", "5", "--warm-up", "10s"), 2, "--warm-up"),
        (("--trace-times", "--arrival-rate", "1"), 2, "one of"),
        (("--agents", "5", "--trace-times"), 2, "one of"),
        (("--find-capacity", "--elastic", "auto"), 3, "--elastic: no node of 2P4D can change its role"),
        (("--agents", "5", "--decode", "1000000"), 3, "no more than 160 are ever in use at a time, with agents: 5"),
        (("--agents", "5", "--prefill", "1000000"), 3, "--prefill: 1,000,000 nodes have 8,000,000 engines"),
        (("--arrival-rate", "0.1", "--decode", "1000000"), 3, "give fewer nodes or more agents"),
        (("--find-capacity", "--decode", "1000000"), 3, "give fewer nodes or more agents"),
        (("--agents", "5", "--switch-cost", "3s"), 2, "--switch-cost"),
        (("--agents", "5", "--elastic", "auto", "--switch-cost", "-1s"), 3, "--switch-cost: -1 s is below 0"),
        (("--agents", "1000000000000x"), 3, "--agents"),
        (("--agents", "5", "--max-active", "0"), 3, "--max-active"),
        (("--agents", "5", "--clusters", "4"), 3, "--clusters: 2 nodes of a side cannot be split into 4"),
        (("--agents", "5", "--clusters", "1,x"), 3, '--clusters: "x"'),
        (("--agents", "5", "--elastic", "100s:3P3D"), 3, "3P3D are not whole groups: prefill groups are of 2"),
        (("--agents", "5", "--elastic", "100s:3P4D"), 3, "3P4D are not the 6 nodes of 2P4D"),
        (("--agents", "5", "--elastic", "100:3P3D"), 3, "--elastic"),
        (("--agents", "5", "--elastic", "100s:3P,3D"), 3, "is not TIME:xPyD"),
        (("--agents", "5", "--elastic", "20s:2P4D,10s:2P4D"), 3, "not a time after the one before"),
        (("--agents", "5", "--elastic", "auto"), 3, "no node of 2P4D can change its role"),
        (("--arrival-rate", "1", "--duration", "10"), 3, "--duration"),
        (("--arrival-rate", "1", "--duration", "10s", "--warm-up", "20s"), 3, "--warm-up"),
        (("--arrival-rate", "0.05", "--duration", "4.4s"), 3, "no turn ended"),
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
        (("--find-capacity", "--duration", "1s"), 3, "--duration: no turn ended"),
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
        (("--agents", "5", "--set=hardware.dram.kv_buffer=1GB"), "host buffer of a prefill node: 3.15 GB"),
    ],
)
def test_what_does_not_fit_is_an_answer(arguments, text):
    data = answer(PAPER, *arguments, code=4)
    assert list(data) == ["schema", "reasons"] and data["schema"] == "dualplan/simulate/1"
    assert len(data["reasons"]) == 1 and text in data["reasons"][0]
    people = dualplan("simulate", PAPER, *arguments)
    assert people.returncode == 4 and text in people.stdout and text not in people.stderr


def test_a_job_that_does_not_end_is_no_success():
    data = answer(PAPER, "--agents", "3", "--set=hardware.snic.rate=1b/s", code=4)
    assert data["jct_s"] is None and data["stopped"] == "longest time"


def test_several_runs_say_what_is_of_the_first():
    data = answer(PAPER, "--agents", "2", "--set=workload.turns=3", "--runs", "2")
    assert any(
        "means of 2 runs, seeds from 0 on; other figures are of the first" in line for line in data["assumptions"]
    )


def test_no_utilization_is_below_nothing():
    """Sums of bytes do not fall; of 3 agents one line of the series was -6e-17 of the decode NICs."""
    data = answer(PAPER, "--agents", "3")
    assert min(min(values) for values in data["series"]["utilization"].values()) >= 0


SHORT = ("--find-capacity", "--duration", "300s", "--set=workload.turns=4")


@pytest.mark.parametrize("limit", [("--slo-ttft", "1ns"), ("--slo-ttft", "10ms"), ("--slo-tpot", "1ms")])
def test_an_slo_out_of_reach_gives_no_capacity(limit):
    data = answer(PAPER, *SHORT, *limit, code=4)
    assert data["capacity_agents_per_s"] == data["interval"][0] == 0 < data["interval"][1]
    assert not any(run["slo_met"] for run in data["runs"])
    assert data["upper_missed_by"][-1]["rule"] == limit[0].removeprefix("--slo-")
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
    assert all(0 <= use["utilization"] <= 1 for use in data["resources"] if use["can_bind"])
    people = dualplan("simulate", *stuck)
    assert "SLO MISSED" in people.stdout and "wait for their first token" in people.stdout


BUSY = ["--set=workload.turns=20", "--set=workload.context=20000"]


def test_resources_in_all_views(tmp_path):
    data = answer(PAPER, "--agents", "200", *BUSY)
    uses = {use["name"]: use for use in data["resources"]}
    for name in ("prefill_snic_ingress", "decode_cnic_write", "decode_dram", "prefill_buffer", "decode_hbm"):
        assert 0 < uses[name]["utilization"] <= uses[name]["peak_utilization"] <= 1
        assert uses[name]["utilization"] == data["utilization"][name]
        assert len(data["series"]["utilization"][name]) == len(data["series"]["time_s"])
    assert uses["decode_dram"]["max_over_mean"] >= 1 and data["over_capacity"] == []
    # the mean over the run is the mean of the series, weighted by the time between its points
    times = [0, *data["series"]["time_s"]]
    series = data["series"]["utilization"]["decode_dram"]
    mean = sum((b - a) * v for (a, b), v in zip(pairwise(times), series, strict=True)) / times[-1]
    assert mean == pytest.approx(uses["decode_dram"]["utilization"])
    columns = tmp_path / "line.csv"
    people = dualplan("simulate", PAPER, "--agents", "200", *BUSY, "--timeline", columns).stdout
    assert "decode DRAM" in people and max(map(len, people.splitlines())) <= 80
    rows = list(csv.DictReader(io.StringIO(columns.read_text())))
    assert float(rows[-1]["utilization.decode_dram"]) >= 0 and "max_over_mean.prefill_snic_ingress" in rows[0]


def test_a_link_that_would_bind_is_said():
    slow = (PAPER, "--agents", "200", *BUSY, "--set=hardware.dram.bandwidth=5GB/s")
    data = answer(*slow)
    over = {entry["resource"]: entry["times"] for entry in data["over_capacity"]}
    assert over["decode_dram"] > 1 and any("decode DRAM would have to carry" in note for note in data["notes"])
    assert "would have to carry" in dualplan("simulate", *slow).stdout


def test_settings_that_only_feasible_uses_are_noted():
    done = dualplan("simulate", *SMALL, "--balance", "1.3", "--collective-load", "0.5", "--json")
    assert "balance is not used" in done.stderr and "collective_load" in done.stderr
    data = json.loads(done.stdout)
    plain = answer(*SMALL)
    assert data["jct_s"] == plain["jct_s"]
    # half of the compute NICs is left: they are twice as full, but for derived collectives
    assert data["utilization"]["prefill_cnic_write"] > plain["utilization"]["prefill_cnic_write"]


def test_limits_say_which_of_them_are_defaults():
    flags = ("--hardware", "dualpath-hopper", "--model", "ds-27b", "--workload", "dualpath-32k")
    call = (*flags, "--prefill", "1", "--decode", "1", "--arrival-rate", "0.05", "--duration", "900s")
    data = answer(*call, "--slo-ttft", "2s")
    assert data["slo"]["given"] == ["ttft"] and data["slo"]["defaults"] == ["tpot"]
    assert "TPOT 50.0 ms by default" in dualplan("simulate", *call, "--slo-ttft", "2s").stdout


def test_a_short_search_is_said():
    data = answer(PAPER, "--find-capacity", "--duration", "60s")
    assert any("is short" in note and "capacity is too high" in note for note in data["notes"])


def test_clusters_and_roles_are_compared():
    flags = ("--hardware", "dualpath-hopper", "--model", "ds-27b", "--workload", "dualpath-32k")
    small = (*flags, "--prefill", "2", "--decode", "2", "--agents", "20", "--set=workload.turns=5")
    data = answer(*small, "--clusters", "1,2")
    assert [row["clusters"] for row in data["modes"]] == [1, 2]
    assert data["modes"][0]["turns"] == data["modes"][1]["turns"] == 100
    one, two = answer(*small, "--elastic", "1s:1P3D", "--switch-cost", "1s")["modes"]
    assert one["role_changes"] == [] and two["label"].endswith("elastic")
    (change,) = two["role_changes"]
    assert change["decided_s"] == 1 and change["ready_s"] >= 2
    assert (change["prefill_nodes"], change["decode_nodes"]) == (1, 3)


def test_capacity_with_changing_roles_against_the_static_split():
    flags = ("--hardware", "dualpath-hopper", "--model", "ds-27b", "--workload", "dualpath-32k")
    small = (*flags, "--prefill", "2", "--decode", "2", "--find-capacity", "--duration", "120s")
    call = (*small, "--set=workload.turns=4", "--elastic", "60s:1P3D", "--switch-cost", "1s")
    static, elastic = answer(*call)["modes"]
    plain = answer(*call[:-4])
    assert static["interval"] == plain["interval"] and static["role_changes"] == []
    assert [(row["prefill_nodes"], row["decode_nodes"]) for row in elastic["role_changes"]] == [(1, 3)]
    assert elastic["capacity_agents_per_s"] < static["capacity_agents_per_s"]
    assert "elastic" in dualplan("simulate", *call).stdout


@pytest.mark.parametrize("asked", [("--compare", "basic,dual-path,oracle"), ("--runs", "40"), ("--find-capacity",)])
def test_ctrl_c_keeps_what_is_known(asked):
    size = ("--agents", "2000") if "--find-capacity" not in asked else ()
    command = [sys.executable, "-c", INTERRUPT, "simulate", str(PAPER), *size, *asked, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    data = json.loads(done.stdout)
    assert data["interrupted"] is True
    if "--compare" in asked:
        assert [row["mode"] for row in data["modes"]] == ["basic", "dual-path"] and data["not_run"] == ["oracle"]
        assert data["modes"][0]["jct_s"] > 0 and data["modes"][1]["jct_s"] is None
        assert data["modes"][1]["stopped"] == "interrupted" and data["modes"][1]["turns"] > 0
    elif "--runs" in asked:
        assert data["jct_s"] > 0 and data["stopped"] == "all agents done"
    else:
        assert data["interval_closed"] is False and len(data["runs"]) == 1


def test_ctrl_c_in_the_first_run_of_a_search_keeps_that_run():
    code = INTERRUPT.replace("len(runs) == 2", "len(runs) == 1")
    command = [sys.executable, "-c", code, "simulate", str(PAPER), "--find-capacity"]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    data = json.loads(done.stdout)
    assert data["interval"] == [0.0, None] and data["interval_closed"] is False and data["interrupted"] is True
    assert data["stopped"] == "interrupted" and data["turns"] > 0
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "no rate was tried to its end" in text and "at least" not in text


INTERRUPT = """
import sys
from dualplan.serving import kernel
real, runs = kernel.compiled().run, []
def stops(s, budget):
    # the first run goes through, the second one is stopped by Ctrl-C in its middle
    done = real(s, 20000)
    if not any(s.count is one for one in runs):
        runs.append(s.count)
    if len(runs) == 2 and s.count["events"] > 20000:
        raise KeyboardInterrupt
    return done
fake = kernel.Kernel(stops)
kernel.compiled = lambda: fake
from dualplan.cli import app
sys.exit(app.run(sys.argv[1:]))
"""


def test_help_loads_no_numpy():
    check = (
        "import sys; from dualplan.cli import app; app.run(['simulate', '--help']); sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--find-capacity" in done.stdout


def test_a_limit_below_the_unloaded_ttft_is_not_blamed_on_the_rate():
    call = ("simulate", PAPER, "--prefill=2", "--decode=4", "--arrival-rate=0.02", "--duration=600s")
    done = dualplan(*call, "--slo-ttft=1ms")
    assert done.returncode == 4, done.stderr
    text = " ".join(done.stdout.split())
    assert "No rate meets this TTFT: that of a mean turn is" in text and "--find-capacity" not in text
    over = dualplan("simulate", PAPER, "--prefill=2", "--decode=4", "--arrival-rate=3", "--duration=600s")
    assert "The rate is above capacity (--find-capacity finds it)" in " ".join(over.stdout.split())
