"""``dualplan size`` as a user runs it."""

import csv
import io
import json

import pytest

from tests.cli.runner import PAPER, dualplan


def answer(*arguments):
    done = dualplan("size", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_working_set():
    data = answer("working-set", PAPER, "--arrival-rate", 0.1, "--completion-time", "570s")
    assert data["schema"] == "dualplan/size-working-set/1"
    assert data["working_set_bytes"] == pytest.approx(69e9, rel=0.12)
    assert data["completion_origin"] == "given"
    text = dualplan("size", "working-set", PAPER, "--arrival-rate", 0.1, "--completion-time", "570s").stdout
    assert "Working set 76.7 GB" in text and all(len(line) <= 80 for line in text.splitlines())


def test_think_time_tells_both_rules():
    arguments = ("--arrival-rate", 0.1, "--set", "workload.think_time=10s")
    text = dualplan("size", "working-set", PAPER, *arguments).stdout
    assert "Think time stretches an agent" in text and "r^2" in text and "Little" in text


def test_working_set_of_a_simulation():
    arguments = ("--arrival-rate", 0.02, "--workload", "dualpath-32k", "--simulate")
    data = answer("working-set", PAPER, *arguments)
    assert data["completion_origin"] == "simulated" and data["simulated_working_set_bytes"] > 0
    # the simulation comes first, the rule that it exceeds behind it
    lines = dualplan("size", "working-set", PAPER, *arguments).stdout.splitlines()
    measured, ruled = (f"{data[key] / 1e9:.2f} GB" for key in ("simulated_working_set_bytes", "working_set_bytes"))
    assert lines[2] == f"  Working set {measured} on average in the simulation"
    assert lines[3].startswith(f"  By the rule {ruled}")
    stored = answer("store", PAPER, *arguments)
    assert stored["stored_bytes"] == data["simulated_working_set_bytes"]
    done = dualplan("size", "working-set", PAPER, *arguments, "--completion-time", "1s")
    assert done.returncode == 2 and "give one" in done.stderr


def test_store():
    limits = ("--server-capacity", "100TB", "--server-read", "40GB/s", "--server-write", "10GB/s")
    data = answer("store", PAPER, "--arrival-rate", 0.3, "--retention", "24h", *limits)
    assert data["servers"] == max(data["servers_by"].values())
    assert data["servers_with_one_down"] == data["servers"] + 1
    assert data["written_bytes_per_day"] == pytest.approx(data["written_bytes_per_s"] * 86400)
    assert set(data["turns_per_s_with_one_down"]) == {"prefill", "decode"}
    text = dualplan("size", "store", PAPER, "--arrival-rate", 0.3).stdout
    assert "--server-capacity" in text


def test_store_names_the_demand_or_none():
    def said(*arguments):
        done = dualplan("size", "store", PAPER, *arguments)
        assert all(len(line) <= 80 for line in done.stdout.splitlines())
        return " ".join(done.stdout.split())

    none = answer("store", PAPER)
    down, whole = none["turns_per_s_with_one_down"]["decode"], none["turns_per_s_now"]
    assert none["demand_turns_per_s"] is None and none["turns_per_s"] == whole
    text = said()
    assert f"One decode node down: {down:.1f} turns/s of the {whole:.1f} that all nodes carry" in text
    assert "the most that the deployment carries" in text and "demand" not in text
    assert f"{down:.1f} turns/s, enough for the demand of 31.4" in said("--arrival-rate", 0.2)
    assert f"{down:.1f} turns/s, less than the demand of 62.8" in said("--turn-rate", 62.8)
    assert f"(more than the {whole:.1f} that the deployment carries)" in said("--turn-rate", 80)


def test_break_even():
    data = answer("break-even", PAPER, "--context", "1024,8192")
    assert [row["context"] for row in data["rows"]] == [1024, 8192]
    assert {tier["name"] for tier in data["tiers"]} == {"storage", "dram_pool", "local_dram"}
    rows = list(csv.DictReader(io.StringIO(dualplan("size", "break-even", PAPER, "-f", "csv").stdout)))
    assert len(rows) == 4 and float(rows[0]["tiers.storage.load_s"]) > 0
    text = dualplan("size", "break-even", PAPER).stdout
    assert "Loading pays" in text and all(len(line) <= 80 for line in text.splitlines())


@pytest.fixture
def trace(tmp_path):
    """Three sessions that take turns: each prompt holds the one before, in blocks of 512 tokens."""
    rows = []
    for turn in range(1, 9):
        for session in range(3):
            blocks = [session * 1000 + block for block in range(2 * turn)]
            row = {"timestamp": len(rows) * 1000, "input_length": 1024 * turn, "output_length": 64, "hash_ids": blocks}
            rows.append(json.dumps(row))
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_pool(trace):
    data = answer("pool", PAPER, "--trace", trace, "--capacity", "100MB,100TB")
    small, large = data["rows"]
    assert small["hit_share"] < large["hit_share"] == 1.0
    assert large["turns_per_s"] >= small["turns_per_s"]
    text = dualplan("size", "pool", PAPER, "--trace", trace, "--capacity", "100MB,100TB").stdout
    assert "of the hits" in text and all(len(line) <= 80 for line in text.splitlines())


def test_remote_site():
    data = answer("wan", PAPER, "--bandwidth", "10Gb/s", "--latency", "30ms", "--share", "0.2")
    assert data["pays_in_time"] == (data["ttft_s"]["loaded"] < data["ttft_s"]["recomputed"])
    assert data["turns_per_s"]["loaded"] <= data["turns_per_s"]["all_local"]
    text = dualplan("size", "wan", PAPER, "--bandwidth", "10Gb/s", "--latency", "30ms").stdout
    assert "First token" in text and all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("working-set", PAPER, "--completion-time", "570"), 3, "has no unit"),
        (("working-set", PAPER, "--completion-time", "-5s"), 3, "not above 0"),
        (("working-set", PAPER, "--arrival-rate", "50", "--simulate"), 3, "more than this deployment carries"),
        (("store", PAPER, "--server-capacity", "40GB/s"), 3, "is a rate"),
        (("store", PAPER, "--dwpd", "0"), 3, "not above 0"),
        (("break-even", PAPER, "--context", "0"), 3, "not a number of tokens"),
        (("break-even", PAPER, "--context", "1e3"), 3, "not a number of tokens"),
        (("pool", PAPER), 2, "--trace"),
        (("pool", PAPER, "--trace", "/nonexistent", "--capacity", "1TB"), 3, "nonexistent"),
        (("wan", PAPER), 2, "--bandwidth"),
        (("wan", PAPER, "--bandwidth", "10Gb/s", "--share", "1.5"), 3, "not a share"),
        (("wan", PAPER, "--bandwidth", "10Gb/s", "--mode", "oracle", "--set", "residency=1"), 3, "no prefix is read"),
    ],
)
def test_bad_calls(arguments, code, message):
    done = dualplan("size", *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
