"""``dualplan sweep`` as a user runs it."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.runner import PAPER, ROOT, dualplan


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def points(done):
    return list(csv.DictReader(io.StringIO(done.stdout)))


def test_csv_is_one_line_a_point_named_as_the_json_of_feasible():
    done = dualplan("sweep", PAPER, "--vary", "prefill=2,3", "--vary", "hardware.snic.count=1,2", "-f", "csv")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 5
    found = points(done)
    assert [(row["prefill_nodes"], row["hardware.snic.count"]) for row in found] == [
        ("2", "1"),
        ("2", "2"),
        ("3", "1"),
        ("3", "2"),
    ]
    for row in found:
        flags = ["--prefill", row["prefill_nodes"], "--set", f"hardware.snic.count={row['hardware.snic.count']}"]
        single = json.loads(dualplan("feasible", PAPER, *flags, "--json", "--exit-zero").stdout)
        assert row["feasible"] == str(single["feasible"]).lower()
        assert row["bottleneck.resource"] == single["bottleneck"]["resource"]
        for name in ("throughput.turns_per_s", "throughput.agents_per_s", "range.lower", "range.upper", "pd_ratio"):
            expected = single
            for key in name.split("."):
                expected = expected[key]
            assert float(row[name]) == pytest.approx(expected, rel=1e-9), name
        assert row["error"] == ""


def test_every_split_of_some_nodes():
    found = points(dualplan("sweep", PAPER, "--vary", "pd=1:8..8:1", "--nodes", "6", "-f", "csv"))
    assert [row["prefill_nodes"] + ":" + row["decode_nodes"] for row in found] == ["1:5", "2:4", "3:3", "4:2", "5:1"]
    plain = points(dualplan("sweep", PAPER, "--vary", "pd=1:2,3:4", "-f", "csv"))
    assert [(row["prefill_nodes"], row["decode_nodes"]) for row in plain] == [("1", "2"), ("3", "4")]


def test_zip_pairs_values_and_formats_hold_the_same():
    flags = ("sweep", PAPER, "--zip", "--vary", "prefill=2,3", "--vary", "mode=basic,dual-path")
    document = json.loads(dualplan(*flags, "--json").stdout)
    assert document["schema"] == "dualplan/sweep/1" and document["points"] == document["evaluated"] == 2
    assert [(row["prefill_nodes"], row["mode"]) for row in document["rows"]] == [(2, "basic"), (3, "dual-path")]
    lines = [json.loads(line) for line in dualplan(*flags, "-f", "jsonl").stdout.splitlines()]
    assert lines == document["rows"]
    assert document["rows"][0]["throughput"]["turns_per_s"] > 0 and document["rows"][0]["error"] is None
    markdown = dualplan(*flags, "-f", "md").stdout.splitlines()
    assert len(markdown) == 4 and "throughput.turns_per_s" in markdown[0]
    table = dualplan(*flags).stdout
    assert "2 of 2 points are feasible" in table
    assert all(len(line) <= 80 for line in table.splitlines())


def test_points_may_be_infeasible_or_fail_and_the_sweep_goes_on():
    infeasible = dualplan("sweep", PAPER, "--vary", "prefill=1,2", "-f", "csv")
    assert infeasible.returncode == 0 and {row["feasible"] for row in points(infeasible)} == {"true", "false"}
    assert dualplan("sweep", PAPER, "--vary", "prefill=1,2", "--require-feasible").returncode == 4
    assert dualplan("sweep", PAPER, "--vary", "prefill=2,3", "--require-feasible").returncode == 0
    failed = dualplan("sweep", PAPER, "--vary", "hardware.snic.rate=400GB,400Gb/s", "-f", "csv")
    assert failed.returncode == 3 and "1 of 2 points failed" in failed.stderr
    first, second = points(failed)
    assert "a rate is needed" in first["error"] and first["feasible"] == ""
    assert second["error"] == "" and float(second["throughput.turns_per_s"]) > 0


def test_why_points_are_not_feasible():
    flags = ("--vary", "prefill=1,2,20", "--arrival-rate", "0.45", "--slo-ttft", "375ms")
    found = points(dualplan("sweep", PAPER, *flags, "-f", "csv"))
    assert [row["reasons"] for row in found] == [
        "weights or a context do not fit the prefill side",
        "the rate is below the demand; TTFT is above its limit",
        "P/D is above its range (decode CNIC write); TTFT is above its limit",
    ]
    for row in found:
        # feasible says the same in sentences with figures
        nodes = ("--prefill", row["prefill_nodes"], "--json", "--exit-zero")
        sentences = " ".join(json.loads(dualplan("feasible", PAPER, *flags[2:], *nodes).stdout)["reasons"])
        words = {"its range": "P/D 20:4 is above", "TTFT": "TTFT is at least", "demand": "times what"}
        if "do not fit" in row["reasons"]:
            words = {"do not fit": "Weights do not fit"}  # which alone is said here
        for phrase, sentence in words.items():
            assert (phrase in row["reasons"]) == (sentence in sentences), (row["reasons"], sentences)
    fine = points(dualplan("sweep", PAPER, "--vary", "prefill=2", "-f", "csv"))
    assert fine[0]["feasible"] == "true" and fine[0]["reasons"] == ""


def test_no_point_is_named_best_where_none_is_feasible():
    none = dualplan("sweep", PAPER, "--vary", "pd=1:5..5:1").stdout
    assert "None of 9 points is feasible\n" in none and "Best" not in none
    assert "(1) 4 points: weights or a context do not fit the prefill side\n" in none
    assert "(2) 4 points: weights or a context do not fit the decode side\n" in none
    # the ratio's numbers were taken as nodes; the scenario has 6
    assert "--nodes 6 splits 6 nodes by each ratio" in " ".join(none.split())
    split = dualplan("sweep", PAPER, "--vary", "pd=1:5..5:1", "--nodes", "6").stdout
    assert "3 of 5 points are feasible\n" in split and "1 point: weights or a context do not fit the decode" in split
    assert "Best turns/s: 69.4 at prefill nodes 2, decode nodes 4" in split and "--nodes" not in split
    one = dualplan("sweep", PAPER, "--vary", "prefill=1,2").stdout
    assert "1 of 2 points is feasible; the other: weights or a context do not fit the" in one
    single = dualplan("sweep", PAPER, "--vary", "prefill=1").stdout
    assert "1 point over prefill (1)" in single and "The point is not feasible: weights or" in single
    least = " ".join(dualplan("sweep", PAPER, "--vary", "prefill=1", "--best", "gpus:min").stdout.split())
    assert "Least gpus, of points that are not feasible" in least
    slow = ("--simulate", "--arrival-rate", "0.4", "--duration", "100s", "--slo-ttft", "1ms")
    assert "feasible: the SLO is missed" in dualplan("sweep", PAPER, "--vary", "decode=4", *slow).stdout


def test_more_storage_nics_at_the_same_rate_name_the_links_that_end_the_range():
    """Two on eight, u = 0.4, C = 240 GB/s: hits alone need P/D from 100/140 and to 40/100; more leave no room."""
    flags = ("--vary", "hardware.snic.count=1,2,3,8", "--collective-load", "0.4", "--set", "mode=dual-path")
    found = points(dualplan("sweep", PAPER, *flags, "-f", "csv"))
    assert len({row["throughput.turns_per_s"] for row in found}) == 1
    crossing = "no P/D is in range (the bounds of prefill CNIC write and decode CNIC read cross)"
    assert [row["feasible"] for row in found] == ["true", "false", "false", "false"]
    assert found[0]["reasons"] == "" and found[1]["reasons"] == crossing
    assert "bind at any)" in found[2]["reasons"] != found[3]["reasons"]
    people = dualplan("sweep", PAPER, *flags).stdout
    text = " ".join(people.split())
    marks = [line.split()[3:5] for line in people.splitlines() if line.startswith(("  2 ", "  3 ", "  8 "))]
    for row, (word, mark) in zip(found[1:], marks, strict=True):
        assert word == "no" and f"{mark} 1 point: {row['reasons'][:60]}" in text
    assert all(len(line) <= 80 for line in people.splitlines())
    alone = " ".join(dualplan("sweep", PAPER, *flags[2:], "--vary", "hardware.snic.count=1,2").stdout.split())
    assert f"1 of 2 points is feasible; the other: {crossing}" in alone and "no (1)" not in alone


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ((), 3, "nothing is varied"),
        (("--vary", "prefill=8..1"), 3, "empty"),
        (("--vary", "prefill=1..2000", "--vary", "decode=1..2000"), 3, "4,000,000 points"),
        (("--vary", "prefil=1..2"), 3, "did you mean prefill"),
        (("--vary", "hardware.snic.cuont=1"), 3, "did you mean count"),
        (("--vary", "hardware=nope"), 3, "neither a shipped name nor a file"),
        (("--vary", "model=nope"), 3, "neither a shipped name nor a file"),
        (("--vary", "prefill=1", "--vary", "prefill=2"), 3, "given twice"),
        (("--vary", "prefill=0"), 3, "is not a whole number of 1 to"),
        (("--vary", "prefill=1,2", "--nodes", "6"), 3, "--vary pd"),
        (("--vary", "pd=1:3", "--nodes", "6"), 3, "cannot be split"),
        (("--vary", "prefill=1,2", "--zip", "--vary", "decode=1..3"), 3, "different numbers"),
        (("--vary", "prefill=1,2", "--agents", "3"), 2, "belongs to --simulate"),
        (("--vary", "agents=1,2"), 3, "belongs to --simulate"),
        (("--vary", "prefill=2", "--simulate"), 2, "needs --agents"),
        (("--vary", "prefill=2", "--best", "a", "--pareto", "b"), 2, "two ways"),
        (("--vary", "prefill=2", "--best", "turns"), 3, "is not a column"),
        (("--vary", "prefill=2", "--pareto", "turns_per_s"), 3, "two columns"),
        (("--vary", "prefill=2", "--limit", "0"), 3, "above 0"),
        (("--vary", "prefill=2", "-j", "0"), 3, "processes"),
        (("--vary", "seed=1,2", "--simulate", "--agents", "3", "--arrival-rate", "1"), 2, "give one of"),
        (("--vary", "seed=1,2", "--simulate", "--agents", "3", "--find-capacity"), 2, "give one of"),
        (("--vary", "prefill=2", "--restart"), 2, "-o FILE.jsonl"),
        (("--vary", "prefill=2", "--cluster", "127.0.0.1:1", "-j", "2"), 2, "leave out --jobs"),
    ],
)
def test_wrong_use_is_one_clear_line(flags, code, says):
    done = dualplan("sweep", PAPER, *flags)
    assert done.returncode == code and says in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_names_do_not_steer_the_terminal_and_lines_keep_its_width(tmp_path):
    for name in ("\x1b[31mred", "long" * 2500, "[bold]"):
        scenario = tmp_path / "named.yaml"
        text = Path(PAPER).read_text().replace("name: dualpath-paper", f"name: {json.dumps(name)}")
        scenario.write_text(text)
        done = dualplan("sweep", scenario, "--vary", "mode=basic,nope")
        assert done.returncode == 3 and "\x1b" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80 and "pool, oracle)" in done.stdout


def test_best_and_pareto():
    flags = ("sweep", PAPER, "--vary", "prefill=2..5", "--vary", "decode=2..5", "-f", "csv")
    every = points(dualplan(*flags))
    rate = "throughput.turns_per_s"
    feasible = [row for row in every if row["feasible"] == "true"]
    top = points(dualplan(*flags, "--best", "turns_per_s", "--limit", "3"))
    assert [float(row[rate]) for row in top] == sorted((float(row[rate]) for row in feasible), reverse=True)[:3]
    least = points(dualplan(*flags, "--best", "gpus:min"))
    assert len(least) == 1 and least[0]["gpus"] == min((row["gpus"] for row in feasible), key=int)
    front = points(dualplan(*flags, "--pareto", "turns_per_s,-gpus"))
    have = {(float(row[rate]), int(row["gpus"])) for row in feasible}
    expected = {(a, b) for a, b in have if not any((c >= a and d <= b) and (c > a or d < b) for c, d in have)}
    assert {(float(row[rate]), int(row["gpus"])) for row in front} == expected


def test_jsonl_goes_on_where_it_was_stopped(tmp_path):
    file = tmp_path / "points.jsonl"
    flags = ("sweep", PAPER, "--vary", "decode=4,5", "-o", str(file))
    assert dualplan(*flags, "--vary", "prefill=2..3").returncode == 0
    whole = tmp_path / "whole.jsonl"
    assert dualplan(*flags[:-1], str(whole), "--vary", "prefill=2..5").returncode == 0
    with file.open("a") as lines:
        lines.write('{"inputs_sha256": "torn')
    done = dualplan(*flags, "--vary", "prefill=2..5", "-j", "2")
    assert done.returncode == 0, done.stderr
    assert "torn" in done.stderr and "4 of 8 points are there already" in done.stderr
    assert file.read_bytes() == whole.read_bytes() and len(file.read_text().splitlines()) == 8


def test_a_file_of_other_inputs_is_kept(tmp_path):
    file = tmp_path / "points.jsonl"
    flags = ("sweep", PAPER, "--vary", "prefill=2..3", "-o", str(file))
    assert dualplan(*flags).returncode == 0
    before = file.read_bytes()
    other = dualplan(*flags, "--set", "hardware.snic.count=2")
    assert other.returncode == 3 and "2 points of other inputs" in other.stderr and file.read_bytes() == before
    assert dualplan(*flags, "--set", "hardware.snic.count=2", "--restart").returncode == 0
    assert file.read_bytes() != before
    file.write_text("my notes\n")
    notes = dualplan(*flags)
    assert notes.returncode == 3 and "line 1 is no point" in notes.stderr and file.read_text() == "my notes\n"


def test_failed_points_are_tried_again(tmp_path):
    file, profile = tmp_path / "points.jsonl", tmp_path / "node.yaml"
    profile.write_text("extends: dualpath-hopper\nsnic: {rate: 1}\n")
    flags = ("sweep", PAPER, "--vary", f"hardware=dualpath-hopper,{profile}", "-o", str(file))
    assert dualplan(*flags).returncode == 3
    assert [json.loads(line)["error"] is None for line in file.read_text().splitlines()] == [True, False]
    profile.write_text("extends: dualpath-hopper\nsnic: {rate: 100Gb/s}\n")
    again = dualplan(*flags, "--restart")
    assert again.returncode == 0, again.stderr


def test_a_full_disk_keeps_what_fits(tmp_path):
    file = tmp_path / "points.jsonl"
    arguments = ["sweep", PAPER, "--vary", "prefill=2..40", "--vary", "decode=1..5", "-o", str(file)]
    # a limit on the size of a file stands for a full disk
    code = (
        "import resource, signal, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        f"from dualplan.cli.app import run\nsys.exit(run({arguments!r}))"
    )
    full = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert full.returncode == 3 and "cannot be written" in full.stderr and len(full.stderr.splitlines()) == 1
    kept = file.read_bytes().count(b"\n")
    assert kept > 0
    done = dualplan(*arguments)
    assert done.returncode == 0 and f"{kept} of 195 points are there already" in done.stderr
    assert file.read_bytes().count(b"\n") == 195


def test_an_interruption_keeps_the_finished_points(tmp_path):
    file = tmp_path / "points.jsonl"
    command = [sys.executable, "-m", "dualplan", "sweep", PAPER, "--simulate", "--agents", "24"]
    command += ["--vary", "seed=1..500", "-o", str(file)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: process.poll() is not None or (file.exists() and file.read_bytes().count(b"\n") >= 2))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    reached = int(re.search(r"(\d+) of 500 points were", errors)[1])
    assert len(file.read_text().splitlines()) == reached >= 2


def test_a_file_that_another_sweep_writes_is_refused(tmp_path):
    file = tmp_path / "points.jsonl"
    flags = ["sweep", PAPER, "--simulate", "--agents", "24", "--vary", "seed=1..500", "-o", str(file)]
    first = subprocess.Popen([sys.executable, "-m", "dualplan", *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: first.poll() is not None or (file.exists() and file.read_bytes().count(b"\n") >= 1))
    second = dualplan(*flags)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert second.returncode == 3 and "another sweep is writing this file" in second.stderr
    assert first.returncode == 130 and file.read_bytes().count(b"\n") >= 1


def test_an_interruption_prints_the_finished_points(tmp_path):
    file = tmp_path / "points.csv"
    arguments = ["sweep", PAPER, "--vary", "mode=basic,layerwise,dual-path,oracle", "-o", str(file)]
    code = f"""
import sys
from dualplan.cli.app import run
from dualplan.plan.sweep import workers

everywhere = workers.here

def stopped(source, call, parts):
    for number, block in enumerate(everywhere(source, call, parts)):
        if number == 2:
            raise KeyboardInterrupt
        yield block

workers.here = stopped
sys.exit(run({arguments!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 130 and "2 of 4 points were evaluated" in done.stderr, done.stderr
    lines = file.read_text().splitlines()
    assert len(lines) == 3 and ",basic," in lines[1] and ",layerwise," in lines[2]


def test_pipes_and_colours():
    shell = f"{sys.executable} -m dualplan sweep {PAPER} --vary prefill=1..50 --vary decode=1..50 -f csv | head -1"
    done = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("prefill_nodes,decode_nodes,") and done.stderr == ""
    for width in ("60", "80"):
        text = dualplan(
            "sweep", PAPER, "--vary", "prefill=2..5", environment={"NO_COLOR": "1", "COLUMNS": width}
        ).stdout
        assert "\x1b" not in text and all(len(line) <= int(width) for line in text.splitlines())


def test_simulated_points_are_those_of_simulate():
    flags = ("--agents", "16", "--json")
    alone = json.loads(dualplan("simulate", PAPER, *flags, "--seed", "3").stdout)
    done = dualplan("sweep", PAPER, "--simulate", "--agents", "16", "--vary", "seed=3,4", "-f", "csv", "-j", "2")
    assert done.returncode == 0, done.stderr
    first, second = points(done)
    assert float(first["jct_s"]) == alone["jct_s"] and int(first["turns"]) == alone["turns"]
    assert float(first["ttft_s.p90"]) == alone["ttft_s"]["p90"] and "missed_by" not in first
    assert second["seed"] == "4" and float(second["jct_s"]) != alone["jct_s"]
    serial = dualplan("sweep", PAPER, "--simulate", "--agents", "16", "--vary", "seed=3,4", "-f", "csv")
    assert serial.stdout == done.stdout


def test_a_simulated_point_that_does_not_fit_is_infeasible():
    done = dualplan("sweep", PAPER, "--simulate", "--agents", "2", "--vary", "prefill=1,2", "-f", "csv")
    assert done.returncode == 0, done.stderr
    first, second = points(done)
    assert first["feasible"] == "false" and first["reasons"] and first["error"] == ""
    assert second["feasible"] == "true"


@pytest.fixture
def dask_cluster(tmp_path):
    """A scheduler and two workers on loopback; the address, and the worker processes."""
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    common = {"cwd": tmp_path, "env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
    started = [subprocess.Popen([*dask, "--no-dashboard", "--dashboard-address", ":0"], **common)]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
    worker += ["--no-dashboard", "--host", "127.0.0.1"]
    started += [subprocess.Popen(worker, **common) for _ in range(2)]
    try:
        yield address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_dask_gives_the_same_rows_and_a_lost_worker_is_made_up_for(dask_cluster, tmp_path):
    address, workers = dask_cluster
    flags = ["sweep", PAPER, "--simulate", "--agents", "16", "--vary", "seed=1..24", "-f", "csv"]
    here = dualplan(*flags, "-j", "2")
    away = dualplan(*flags, "--cluster", address)
    assert away.returncode == 0, away.stderr
    assert away.stdout == here.stdout
    file = tmp_path / "points.jsonl"
    command = [sys.executable, "-m", "dualplan", *flags[:-2], "-o", str(file), "--cluster", address]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: process.poll() is not None or (file.exists() and file.read_bytes().count(b"\n") >= 2))
    assert process.poll() is None, process.communicate()
    workers[0].kill()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["jct_s"] for row in lines] == [float(row["jct_s"]) for row in points(here)]


def test_a_cluster_that_is_not_there_is_said():
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    done = dualplan("sweep", PAPER, "--vary", "prefill=2,3", "--cluster", "tcp://127.0.0.1:9", timeout=60)
    assert done.returncode == 3 and "no scheduler answers" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
