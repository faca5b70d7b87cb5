"""``workload``, ``trace fit`` and ``trace generate`` through real processes: values, formats, exit codes, bad input."""

import json
import subprocess
import sys

import pytest

from dualplan.spec.load import shipped_names
from tests.cli.runner import ROOT, dualplan


def answer(*arguments, **options):
    done = dualplan(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_list():
    data = answer("workload", "list")
    assert next(iter(data)) == "schema"
    assert data["schema"] == "dualplan/workload-list/1"
    assert [row["name"] for row in data["workloads"]] == shipped_names("workloads", ".yaml")
    rows = {row["name"]: row for row in data["workloads"]}
    assert rows["mooncake-conversation"]["hit_share"] == pytest.approx(0.374, abs=1e-4)
    assert rows["dualpath-64k"]["max_length_tokens"] == 65_536


@pytest.mark.parametrize("arguments", [["list"], *(["show", name] for name in shipped_names("workloads", ".yaml"))])
def test_for_people(arguments):
    done = dualplan("workload", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout


def test_show():
    data = answer("workload", "show", "claude-code-weka")
    assert data["schema"] == "dualplan/workload-show/1"
    assert data["append_tokens"] == {"mean": 3242, "p50": 713}
    assert data["think_time_s"] == {"mean": 172, "p50": 10}
    assert data["per_turn"]["context_tokens"] == pytest.approx(117_486, abs=1)
    assert data["hit_rate"] == {"value": 0.963, "definition": "by_token"}
    assert data["sources"]
    assert len(data["inputs_sha256"]) == 64


def test_show_says_which_means():
    done = dualplan("workload", "show", "dualpath-48k")
    assert "means of per-trajectory means" in done.stdout
    assert answer("workload", "show", "dualpath-48k")["means"] == "mean_of_trajectory_means"


@pytest.mark.parametrize("form", ["csv", "jsonl", "md"])
def test_rows(form):
    done = dualplan("workload", "show", "mooncake-toolagent", "-f", form)
    assert done.returncode == 0
    assert "generated_tokens" in done.stdout
    assert "182" in done.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("turns: 3\n", "w.yaml:1: context: missing"),
        ("", "w.yaml: is empty"),
        ("turns: 3\nturns: 4\n", "w.yaml:2: turns: duplicate key"),
        ("turns: 3\ncontext: 1\nappend: 1k\ngenerated: 1\n", 'w.yaml:3: append: "1k" is not a number'),
    ],
)
def test_bad_files(tmp_path, text, expected):
    (tmp_path / "w.yaml").write_text(text)
    done = dualplan("workload", "show", "w.yaml", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith(expected)
    assert "Traceback" not in done.stderr


def test_bad_names(tmp_path):
    for name, expected in (
        ("dualpath-65k", "did you mean dualpath-64k?"),
        ("none.yaml", "no such file"),
        (str(tmp_path), "is a directory"),
        ("trace.jsonl", "dualplan trace inspect"),
    ):
        done = dualplan("workload", "show", name)
        assert done.returncode == 3
        assert expected in done.stderr


def test_generate_and_back(tmp_path):
    file = tmp_path / "trace.jsonl.gz"
    data = answer("trace", "generate", "dualpath-32k", "-n", "40", "--seed", "3", "-o", file)
    assert data["trajectories"] == 40
    assert data["per_trajectory"]["turns"] == data["turns"] / 40
    seen = answer("trace", "inspect", file)
    assert (seen["sessions"], seen["requests"]) == (40, data["turns"])
    assert seen["input_tokens"]["mean"] * data["turns"] == pytest.approx(data["prompt_tokens"])
    workload = tmp_path / "fitted.yaml"
    done = dualplan("trace", "fit", file, "-o", workload)
    assert (done.returncode, done.stdout) == (0, "")
    shown = answer("workload", "show", workload)
    assert shown["turns"]["mean"] == pytest.approx(data["turns"] / 40, rel=1e-4)
    assert shown["per_turn"]["context_tokens"] == pytest.approx(data["per_turn"]["context_tokens"], rel=1e-4)


def test_generate_to_standard_output():
    named, default = (dualplan("trace", "generate", "claude-code-weka", "-n", 3, *more) for more in (["-o", "-"], []))
    assert named.returncode == 0
    assert named.stdout == default.stdout
    assert json.loads(named.stdout.splitlines()[0])["schema"] == "dualplan/trace/1"


def test_generated_hits_are_not_called_reported(tmp_path):
    file = tmp_path / "trace.jsonl"
    answer("trace", "generate", "claude-code-weka", "-n", "5", "-o", file)
    assert json.loads(file.read_text().splitlines()[0])["cached_from"] == "generator"
    because = answer("trace", "inspect", file)["hit_rate"]["because"]
    assert because == "cached tokens that the generator wrote; no server reported them"
    # a copy does not lose where they come from
    copy = dualplan("trace", "convert", file, "-", "--to", "dualplan")
    assert json.loads(copy.stdout.splitlines()[0])["cached_from"] == "generator"
    otel = dualplan("trace", "generate", "claude-code-weka", "-n", "5", "--json", "-o", tmp_path / "t.jsonl.gz")
    assert json.loads(otel.stdout)["resets"] == 0


def test_a_fit_is_measured_not_published(tmp_path):
    dualplan("trace", "generate", "codex-swebench-pro", "-n", 20, "-o", tmp_path / "t.jsonl")
    dualplan("trace", "fit", "t.jsonl", "-o", "fit.yaml", cwd=tmp_path)
    shown = dualplan("workload", "show", "fit.yaml", cwd=tmp_path).stdout
    assert "Published" not in shown
    assert "\nMeasured\n" in shown
    assert "Measured hit rate" in shown
    data = answer("workload", "show", "fit.yaml", cwd=tmp_path)
    assert data["published"] == []
    assert "hit_rate_by_token" in [figure["name"] for figure in data["measured"]]
    assert "Published hit rate 94.2%" in dualplan("workload", "show", "codex-swebench-pro").stdout


def test_means_that_do_not_go_together_are_noted(tmp_path):
    (tmp_path / "w.yaml").write_text("turns: 3\ncontext: 500\nappend: 20\ngenerated: 10\nfirst_append: 100\n")
    done = dualplan("trace", "generate", "w.yaml", "-n", 4, "-o", "t.jsonl", cwd=tmp_path)
    assert done.returncode == 0
    assert "500 tokens, does not go with turns, appends and outputs" in done.stderr
    data = answer("trace", "generate", "w.yaml", "-n", 4, "-o", "t.jsonl", cwd=tmp_path)
    assert len(data["notes"]) == 1


def test_estimated_quantiles_do_not_pass_the_largest(tmp_path):
    # three digits would make the 99th percentile 1,010, above the largest
    (tmp_path / "w.yaml").write_text(
        "turns: 1\ncontext: 0\nappend: {mean: 1006.9, min: 1006, p50: 1007, max: 1007.4}\ngenerated: 1\n"
    )
    line = next(
        line for line in dualplan("workload", "show", "w.yaml", cwd=tmp_path).stdout.splitlines() if "append" in line
    )
    p90, p99, largest = (float(cell.lstrip("~").replace(",", "")) for cell in line.split()[-3:])
    assert p90 <= largest == 1007.4
    assert p99 <= largest


def test_same_seed_same_bytes():
    one, same, other = (dualplan("trace", "generate", "codex-swebench-pro", "-n", 9, "--seed", s) for s in (1, 1, 2))
    assert one.returncode == 0
    assert one.stdout == same.stdout != other.stdout
    header = json.loads(one.stdout.splitlines()[0])
    assert header["schema"] == "dualplan/trace/1"


def test_fit_prints_yaml(tmp_path):
    made = dualplan("trace", "generate", "claude-code-weka", "-n", 5, "-o", tmp_path / "t.jsonl")
    assert "5 trajectories of claude-code-weka" in made.stderr
    done = dualplan("trace", "fit", "t.jsonl", "--name", "mine", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("name: mine\n")
    (tmp_path / "mine.yaml").write_text(done.stdout)
    assert (
        answer("trace", "fit", "t.jsonl", "--name", "mine", cwd=tmp_path)["append_tokens"]
        == (answer("workload", "show", "mine.yaml", cwd=tmp_path)["append_tokens"])
    )


def test_generate_from_a_trace(tmp_path):
    rows = [{"timestamp": i, "input_length": 600, "output_length": 5, "hash_ids": [0, i + 1]} for i in range(4)]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = dualplan("trace", "generate", "m.jsonl", "-n", 8, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    # one request in four found nothing, the others the first block of 512 tokens
    assert sum(row["cached_tokens"] for row in made) == 8 * 512 * 3 / 4
    assert {row["input_tokens"] for row in made} <= set(range(88, 1200))


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["trace", "generate", "dualpath-64k", "-n", "0"], 3, "-n: 0 trajectories"),
        (["trace", "generate", "dualpath-64k", "--seed", "-1"], 3, "--seed: -1 is negative"),
        (["trace", "generate", "dualpath-64k", "-n", "x"], 2, "is not a whole number"),
        (["trace", "generate", "dualpath-64k", "-n", "999999999"], 3, "at most 50,000,000"),
        (["trace", "generate", "dualpath-64k", "--json"], 2, "add -o FILE"),
        (["trace", "generate", "nope"], 3, "is neither a shipped name nor a file"),
        (["trace", "fit", "nope"], 3, "no such file"),
        (["trace", "fit"], 2, "Missing argument"),
    ],
)
def test_refusals(arguments, code, expected):
    done = dualplan(*arguments)
    assert done.returncode == code
    assert done.stdout == ""
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_pipe():
    command = f"{sys.executable} -m dualplan trace generate dualpath-64k -n 200 | head -1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert json.loads(done.stdout)["schema"] == "dualplan/trace/1"
    assert "Traceback" not in done.stderr
    assert "rror" not in done.stderr
