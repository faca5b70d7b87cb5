"""``ratio`` through real processes: the paper's table, other formats and models, bad input."""

import csv
import io
import json

import pytest

from tests.cli.runner import dualplan

# GB of KV-cache per PFLOP, append 429 (DualPath, table 1): value and tolerance
PUBLISHED = {
    ("qwen2.5-32b", 16_384): (117, 0.02),
    ("qwen2.5-32b", 65_536): (267, 0.02),
    ("gpt-oss-120b", 16_384): (47, 0.02),
    ("gpt-oss-120b", 65_536): (95, 0.02),
    ("qwen3-235b-a22b", 16_384): (39, 0.02),
    ("qwen3-235b-a22b", 65_536): (60, 0.02),
    ("deepseek-v3.2", 16_384): (13, 0.06),
    ("deepseek-v3.2", 65_536): (36, 0.06),
    ("deepseek-v3", 16_384): (4.8, 0.06),
    ("deepseek-v3", 65_536): (5.8, 0.06),
}


def answer(*arguments):
    done = dualplan("ratio", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_papers_table():
    data = answer()
    assert data["schema"] == "dualplan/ratio/1"
    assert data == answer("--append", "429", "--context", "16384,65536")
    rows = {(row["model"], row["context"]): row for row in data["rows"]}
    assert rows.keys() == PUBLISHED.keys()
    for key, (value, tolerance) in PUBLISHED.items():
        assert rows[key]["gb_per_pflop"] == pytest.approx(value, rel=tolerance)
        assert rows[key]["append"] == 429
        assert rows[key]["published_gb_per_pflop"] == value
    assert rows["deepseek-v3", 16_384]["kv_format"] == "mla-704"
    assert data["convention"]["tolerance"] == 0.06


def test_row_of_the_64k_set():
    (row,) = answer("deepseek-v3.2", "--context", "32721")["rows"]
    assert row["gb_per_pflop"] == pytest.approx(22, rel=0.06)
    assert list(row)[:5] == ["model", "context", "append", "gb_per_pflop", "kv_format"]


def test_other_formats_and_models():
    (row,) = answer("deepseek-v3.2", "--context", "16384", "--kv-format", "fp8")["rows"]
    assert row["kv_format"] == "fp8"
    assert row["kv_bytes"] == 16_384 * 48_068
    own = answer("kimi-k2", "deepseek-v4-pro", "--kv-format", "default")
    assert [row["kv_format"] for row in own["rows"]] == ["fp8"] * 4
    assert own["convention"]["tolerance"] is None
    # with a window the constant is loaded too
    (row,) = answer("gpt-oss-120b", "--context", "16384", "--kv-format", "bf16")["rows"]
    assert row["kv_bytes"] == 16_384 * 36_864 + 18 * 128 * 2048


def test_a_longer_append_is_more_compute_for_the_same_load():
    rows = [answer("qwen2.5-32b", "--context", "16384", "--append", append)["rows"][0] for append in ("100", "200")]
    assert rows[0]["gb_per_pflop"] == pytest.approx(2 * rows[1]["gb_per_pflop"])
    assert rows[0]["published_gb_per_pflop"] is None


def test_hardware_trend():
    """I/O per FLOP falls 14.4 times from A100 bf16 to B200 fp4, and 3.6 times from bf16 to bf16."""
    falls = {(row["gpu"], row["dtype"]): row["fall_from_a100_bf16"] for row in answer("--trend")["hardware_trend"]}
    assert falls["B200", "fp4"] == pytest.approx(14.4, abs=0.05)
    assert falls["B200", "bf16"] == pytest.approx(3.6, abs=0.05)
    assert "hardware_trend" not in answer()


def test_for_people():
    done = dualplan("ratio", "--trend")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "within 6 %" in " ".join(done.stdout.split())
    assert "(paper 117)" in done.stdout


def test_csv():
    done = dualplan("ratio", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 10
    assert {row["model"] for row in rows} == {model for model, _ in PUBLISHED}


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["nope"], 3, "neither a shipped name nor a file"),
        (["--context", "16384,x"], 3, "is not a number of tokens"),
        (["--context", ""], 3, "is not a number of tokens"),
        (["--context", "0"], 3, '--context: "0" is not a number of tokens of 1 to'),
        (["--append", "0"], 3, "--append: 0 is out of range"),
        (["--append", "x"], 2, "--append"),
        (["qwen2.5-32b", "--kv-format", "mla-704"], 3, "--kv-format: mla-704 is a format of MLA models"),
        (["--kv-format", "fp9"], 3, "--kv-format"),
    ],
)
def test_bad_arguments(arguments, code, expected):
    done = dualplan("ratio", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("width", ["60", "80"])
@pytest.mark.parametrize("flag", ["--batch", "--trend"])
def test_wrapped_lines_keep_an_indent(width, flag):
    wide = dualplan("ratio", flag, environment={"COLUMNS": "500"}).stdout.splitlines()
    narrow = dualplan("ratio", flag, environment={"COLUMNS": width}).stdout.splitlines()
    starts = {line.split()[0] for line in wide if line.strip()}
    assert any(line.startswith("  ") for line in narrow)
    assert all(line.split()[0] in starts for line in narrow if line[:1].strip()), narrow
    assert all(len(line) <= int(width) for line in narrow)
