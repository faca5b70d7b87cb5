"""``trace inspect`` and ``trace convert`` through real processes: values, formats, exit codes, pipes, bad input."""

import csv
import io
import json
import os
import subprocess
import sys
import threading

import pytest

from tests.cli.runner import ROOT, dualplan

GOOD = '{"timestamp": 0, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]}\n'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4808,10\n2023-11-16 18:17:04,12,2\n"


@pytest.fixture
def mooncake(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(GOOD + GOOD.replace('p": 0', 'p": 3000').replace("600", "900"))
    return path


def answer(*arguments):
    done = dualplan("trace", "inspect", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_fixed_names(shared_cases):
    data = answer(shared_cases / "traces" / "mooncake" / "conversation_head1000.jsonl")
    assert next(iter(data)) == "schema" and data["schema"] == "dualplan/trace-inspect/1"
    assert data["requests"] == 1000 and data["sessions"] is None
    assert data["input_tokens"]["mean"] == 13_732.944 and data["output_tokens"]["mean"] == 349.357
    assert data["hit_rate"]["by_token"] == 2_962_776 / 13_732_944
    assert data["hit_rate"]["by_block"] == 5_791 / 27_305
    assert data["hit_rate"]["mean_of_ratios"] == pytest.approx(0.2878103727334513)
    assert data["rows"] == {"read": 1000, "used": 1000, "dropped": 0, "dropped_by_reason": {}}
    assert data["time"]["unit"] == "ms" and data["blocks"]["size_tokens"] == 512
    assert len(data["inputs_sha256"]) == 64


def test_sessions(shared_cases):
    data = answer(shared_cases / "traces" / "weka")
    assert (data["requests"], data["sessions"], data["turns_per_session"]["mean"]) == (144, 10, 14.4)
    assert data["hit_rate"]["by_token"] == 11_476_544 / 12_744_859
    assert {"block_hashes", "session_growth"} == set(data["hit_rates"])
    assert data["growth_by_turn"][0]["context_tokens"] == 0
    assert data["cache"]["points"][-1]["by_token"] == pytest.approx(data["hit_rate"]["by_token"])


def test_no_hit_rate_is_null(tmp_path):
    (tmp_path / "t.csv").write_text(AZURE)
    data = answer(tmp_path / "t.csv")
    assert data["hit_rate"]["by_token"] is None and data["cache"] is None
    assert "nothing says what is used again" in data["hit_rate"]["because"]


def test_same_input_same_bytes(mooncake):
    first, second = (dualplan("trace", "inspect", mooncake, "--json").stdout for _ in range(2))
    assert first == second


def test_table(mooncake):
    arguments = ("trace", "inspect", mooncake.name, "--plot")
    done = dualplan(*arguments, cwd=mooncake.parent, environment={"NO_COLOR": "1"})
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "t.jsonl: mooncake, 2 requests"
    # the second request finds both blocks: 900 of 900 tokens
    assert "60.0% by token, 50.0% by block" in done.stdout
    assert "Rows: 2 read, 2 used, 0 dropped" in done.stdout
    assert "Hit rate by token against cache size" in done.stdout
    assert max(map(len, lines)) <= 80 and "\x1b" not in done.stdout


@pytest.mark.parametrize("form", ["csv", "jsonl", "md"])
def test_other_formats(mooncake, form):
    done = dualplan("trace", "inspect", mooncake, "-f", form)
    assert done.returncode == 0, done.stderr
    if form == "csv":
        (row,) = csv.DictReader(io.StringIO(done.stdout))
        assert (row["requests"], row["rows.read"], row["hit_rate.by_token"]) == ("2", "2", "0.6")
    elif form == "jsonl":
        assert json.loads(done.stdout)["rows"]["read"] == 2
    else:
        assert "| requests | 2 |" in done.stdout


def test_output_file(mooncake, tmp_path):
    done = dualplan("trace", "inspect", mooncake, "--json", "-o", tmp_path / "o.json")
    assert done.returncode == 0 and done.stdout == ""
    assert json.loads((tmp_path / "o.json").read_text())["requests"] == 2


def test_standard_input():
    done = dualplan("trace", "inspect", "-", "--json", text=GOOD)
    data = json.loads(done.stdout)
    assert data["requests"] == 1 and data["inputs_sha256"] is None
    cut = dualplan("trace", "inspect", "-", text=GOOD + GOOD[:30])
    assert cut.returncode == 3 and cut.stderr.startswith("-:2: the last line is cut off")


def test_text_says_what_shares_a_cache(mooncake):
    done = dualplan("trace", "inspect", mooncake)
    assert "hits are counted per model, and per file or session where block ids are local" in done.stdout


def test_lenient(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(GOOD + "oops\n" + GOOD)
    strict = dualplan("trace", "inspect", path, "--json")
    assert strict.returncode == 3 and strict.stdout == ""
    assert (
        strict.stderr
        == f"{path}:2: is not JSON: invalid character (byte 0); --lenient drops bad rows and counts them\n"
    )
    data = answer(path, "--lenient")
    assert data["rows"] == {"read": 3, "used": 2, "dropped": 1, "dropped_by_reason": {"not JSON": 1}}


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["missing.jsonl"], 3, "missing.jsonl: no such file or folder"),
        ([], 2, "FILE"),
        (["t.jsonl", "--trace-format", "x"], 3, '--trace-format: there is no format "x"'),
        (["t.jsonl", "--chars-per-token", "0"], 3, '--chars-per-token: "0" is not a number of 0.1 to 100'),
        (["t.jsonl", "--chars-per-token", "4B"], 3, "--chars-per-token:"),
        (["t.jsonl", "--block-size", "0"], 3, "--block-size: 0 is not between"),
        (["t.jsonl", "--time-unit", "h"], 2, "--time-unit"),
        (["t.jsonl", "--nonsense"], 2, "--nonsense"),
    ],
)
def test_errors(mooncake, arguments, code, what):
    done = dualplan("trace", "inspect", *arguments, cwd=mooncake.parent)
    assert done.returncode == code and done.stdout == ""
    assert what in done.stderr and "Traceback" not in done.stderr


def test_text_only(shared_cases):
    path = shared_cases / "traces" / "sessions" / "simonw_sample_session.jsonl"
    done = dualplan("trace", "inspect", path)
    assert done.returncode == 3 and "has text but no token counts" in done.stderr
    assert answer(path, "--chars-per-token", "4")["tokens_estimated"] is True


def test_closed_pipe(mooncake):
    for command in ("inspect t.jsonl --plot", "convert t.jsonl - --to dualplan"):
        done = subprocess.run(
            f"{sys.executable} -m dualplan trace {command} | true",
            shell=True,
            cwd=mooncake.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr and "rror" not in done.stderr


def test_convert(mooncake, tmp_path):
    target = tmp_path / "out.jsonl.gz"
    done = dualplan("trace", "convert", mooncake, target, "--to", "dualplan")
    assert done.returncode == 0 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == "2 requests of mooncake written as dualplan"
    data, before = answer(target), answer(mooncake)
    assert data["format"] == "dualplan"
    assert data["hit_rate"]["by_token"] == before["hit_rate"]["by_token"] == 0.6


def test_convert_to_standard_output(mooncake):
    done = dualplan("trace", "convert", mooncake, "-", "--to", "vidur")
    assert done.stdout.splitlines() == ["arrived_at,num_prefill_tokens,num_decode_tokens", "0.0,600,7", "3.0,900,7"]
    assert "block ids are left out" in done.stderr


def test_convert_into_a_pipe(mooncake, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    done = dualplan("trace", "convert", mooncake, pipe, "--to", "vidur")
    reader.join()
    assert done.returncode == 0 and pipe.is_fifo()
    assert got == [b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,600,7\n3.0,900,7\n"]


def test_convert_through_a_link(mooncake, tmp_path):
    target = tmp_path / "real.csv"
    target.write_text("old")
    target.chmod(0o640)
    (tmp_path / "link.csv").symlink_to("real.csv")
    done = dualplan("trace", "convert", mooncake, tmp_path / "link.csv", "--to", "vidur")
    assert done.returncode == 0 and (tmp_path / "link.csv").is_symlink()
    assert target.read_text().startswith("arrived_at") and target.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "real.csv", "t.jsonl"]


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (".", "is a directory"),
        ("missing/t.csv", "cannot be written: No such file"),
        ("t.jsonl/t.csv", "cannot be written: Not a directory"),
        ("a" * 300, "cannot be written: File name too long"),
    ],
)
def test_convert_where_nothing_can_be_written(mooncake, target, what):
    done = dualplan("trace", "convert", mooncake.name, target, "--to", "vidur", cwd=mooncake.parent)
    assert done.returncode == 3 and done.stderr.startswith(f"{target}: {what}")
    assert [path.name for path in mooncake.parent.iterdir()] == ["t.jsonl"]


def test_nothing_of_the_input_steers_the_terminal(tmp_path):
    path = tmp_path / "e\x1b]0;x\x07\udcff.jsonl"
    path.write_text(
        GOOD.replace("{", '{"model": "m\\u001b[31m\\u0007", ') + GOOD.replace("{", '{"model": "n\\u009b", ')
    )
    for more in ([], ["--json"], ["-f", "csv"], ["-f", "jsonl"], ["-f", "md"]):
        done = dualplan("trace", "inspect", path.name, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (done.stdout + done.stderr).replace("\n", "").isprintable()
        assert r"e\x1b]0;x\x07\udcff.jsonl" in done.stdout.replace("\\\\", "\\") and "m\\" in done.stdout
    path.write_text("x\x1b[31m\n")
    done = dualplan("trace", "inspect", path.name, cwd=tmp_path)
    assert done.returncode == 3 and done.stderr.replace("\n", "").isprintable()


def test_failed_calls(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(GOOD + GOOD.replace("600", "0") + GOOD.replace("600", "-600") + GOOD.replace("7,", "-7,"))
    reasons = {
        "negative input tokens (failed call)": 1,
        "negative output tokens (failed call)": 1,
        "zero input tokens (failed call)": 1,
    }
    data = answer(path)
    assert data["rows"] == {"read": 4, "used": 1, "dropped": 3, "dropped_by_reason": reasons}
    assert any("zero or negative input tokens" in rule for rule in data["assumptions"])
    table = dualplan("trace", "inspect", path).stdout
    assert "Rows: 4 read, 1 used, 3 dropped" in table and all(f"  1 {reason}\n" in table for reason in reasons)
    assert "zero or negative" in " ".join(dualplan("trace", "inspect", "--help").stdout.split())


def test_hostile_streams(tmp_path):
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    cases = {
        "- < /dev/null": "-: is empty\n",
        "- <&-": "-: there is no standard input\n",
        "/dev/null": "/dev/null: is empty\n",
        "deep.jsonl": "deep.jsonl: is JSON that is nested too deeply\n",
        "''": "FILE: an empty name\n",
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for source, what in cases.items():
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m dualplan trace inspect {source}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, "", what)


def test_convert_refused(tmp_path):
    (tmp_path / "t.csv").write_text(AZURE)
    done = dualplan("trace", "convert", tmp_path / "t.csv", tmp_path / "out", "--to", "mooncake")
    assert done.returncode == 3 and done.stderr == "--to mooncake: it needs block ids, the trace has none\n"
    assert not (tmp_path / "out").exists()
    assert dualplan("trace", "convert", tmp_path / "t.csv", "-").returncode == 2
