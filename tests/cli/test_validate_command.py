"""``validate`` through real processes: formats, selection, samples, plots, exit codes; and the table of the README."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from tests.accuracy import README, block, table
from tests.cli.runner import dualplan

EXACT = "lanes,traffic,kv-bytes,nodes"


def answer(*arguments, code=0):
    done = dualplan("validate", *arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_json():
    data = answer("--only", EXACT)
    assert data["schema"] == "dualplan/validate/1"
    points = {point["id"]: point for point in data["points"]}
    nodes = points["deepseek-nodes"]
    # 608e9 / 86,400 / 73,700 + 168e9 / 86,400 / 14,800 against 226.75
    assert nodes["predicted"] == pytest.approx(95.48 + 131.38, abs=0.01)
    assert nodes["relative_error"] == pytest.approx(226.86 / 226.75 - 1, abs=1e-4)
    assert nodes["published"] == 226.75
    assert nodes["within"] is True and "open-infra-index" in nodes["source"]
    assert list(nodes)[:5] == ["id", "kind", "published", "predicted", "relative_error"]
    kinds = {row["kind"]: row for row in data["summary"]}
    assert kinds.keys() == set(EXACT.split(","))
    assert kinds["traffic"]["within_share"] == 1.0
    assert answer("--only", EXACT) == data


def test_a_broken_tolerance_ends_with_4(tmp_path):
    """On a copy of the package whose data says otherwise: the exit code follows the figures, not the code."""
    import shutil

    root = Path(__file__).resolve().parents[2]
    for name in ("dualplan", "hardware_profiles", "workloads"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    data = tmp_path / "dualplan" / "data" / "published.yaml"
    text = data.read_text()
    assert text.count("published: 226.75") == 1
    data.write_text(text.replace("published: 226.75", "published: 300"))
    done = dualplan("validate", "--only", "nodes", cwd=tmp_path, environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 4
    assert done.stdout.startswith("1 OUTSIDE  0 of 1")
    assert "-24.4 %" in done.stdout
    done = dualplan(
        "validate", "--only", "nodes", "--exit-zero", cwd=tmp_path, environment={"PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode == 0


def test_for_people():
    done = dualplan("validate", "--only", "nodes", "--only", "ratio,trace")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ALL WITHIN  7 of 7 published figures")
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:3] == ["deepseek-nodes", "226.8", "226.9"] for line in lines)
    assert "26 skipped: need public traces (their folder: --samples DIR)." in lines


@pytest.mark.parametrize("columns", ["50", "60", "120"])
def test_fits_the_terminal(columns):
    done = dualplan("validate", "--only", EXACT, "--plot", environment={"COLUMNS": columns})
    assert max(map(len, done.stdout.splitlines())) <= max(int(columns), 50)


def test_csv_and_markdown():
    done = dualplan("validate", "--only", "lanes", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 4
    assert float(rows[0]["predicted"]) == pytest.approx(1 / 964)
    done = dualplan("validate", "--only", "lanes", "-f", "md")
    assert "| shares of InfiniBand lanes | 4 | 0.0 % |" in done.stdout
    done = dualplan("validate", "--only", "lanes", "-f", "jsonl")
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == ["lanes"] * 4


def test_samples(shared_cases):
    points = {point["id"]: point for point in answer("--only", "trace", "--samples", shared_cases / "traces")["points"]}
    # 2,962,776 of 13,732,944 tokens are hits
    head = points["mooncake-conversation-head-hit-by-token"]
    assert head["predicted"] == 2_962_776 / 13_732_944
    whole = points["mooncake-conversation-hit-rate-by-token"]
    assert whole["predicted"] is None
    assert whole["skipped"] == "conversation_trace.jsonl is not in the folder of --samples"


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_plot_to_a_file(tmp_path, suffix):
    path = tmp_path / f"plot{suffix}"
    done = dualplan("validate", "--only", EXACT, "--plot", path)
    assert done.returncode == 0, done.stderr
    start = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(start)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_plot_in_the_terminal():
    done = dualplan("validate", "--only", EXACT, "--plot")
    line = next(line for line in done.stdout.splitlines() if line.startswith("bytes on links") and "%" not in line)
    axis = next(line for line in done.stdout.splitlines() if line.startswith("predicted / published"))
    # 13 exact figures, one mark below the 1 of the axis
    assert line.split()[-1] == "O"
    assert line.index("O") == axis.index("  1  ") + 2


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--only", "jtc"], 3, '--only: "jtc" is not a kind (did you mean jct?)'),
        (["--only", "x,y"], 3, '"y" is not a kind'),
        (["jtc"], 2, 'KIND: "jtc" is not a kind (did you mean jct?)'),
        (["my.yaml"], 2, "a scenario is checked by: dualplan feasible my.yaml)"),
        (["a folder/x"], 2, "dualplan feasible 'a folder/x')"),
        (["--samples", "/no/such"], 3, "--samples: /no/such is not a folder"),
        (["--only", "nodes", "--plot", "/no/such/x.svg"], 3, "is not a folder"),
        (["--only", "nodes", "--plot-file", "x.gif"], 3, "end it in .svg, .png, .pdf"),
        (["--only", "nodes", "-o", "/no/such/x.json"], 3, "cannot be written"),
        (["--tolerance", "1"], 2, "--tolerance"),
        (["surplus"], 2, "surplus"),
    ],
)
def test_bad_arguments(arguments, code, expected):
    done = dualplan("validate", *arguments)
    assert done.returncode == code
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_the_readme_shows_the_current_table():
    """The table between the markers of the README is that of ``validate``; ``python -m tests.accuracy`` writes it.

    Words and counts must agree; errors of simulations may differ by a point, for they are not smooth and another
    processor may round otherwise.
    """
    done = dualplan("validate", "-f", "md", "--exit-zero", timeout=600)
    assert done.returncode == 0, done.stderr
    shown, current = block(README.read_text()).splitlines(), table(done.stdout).splitlines()
    assert len(shown) == len(current)
    number = re.compile(r"\d+(?:\.\d+)?")
    for before, now in zip(shown, current, strict=True):
        cells = [[cell.strip() for cell in line.split("|")] for line in (before, now)]
        assert [cells[0][i] for i in (1, 2, 6)] == [cells[1][i] for i in (1, 2, 6)]
        for one, other in zip(cells[0][3:6], cells[1][3:6], strict=True):
            assert number.sub("", one) == number.sub("", other), (before, now)
            for a, b in zip(number.findall(one), number.findall(other), strict=True):
                assert float(a) == pytest.approx(float(b), abs=1.0), (before, now)


COLUMNS = "mode model system precision prompt_tokens output_tokens concurrency sequences_per_rank"
RUNS = ",".join([*COLUMNS.split(), "tp", "dp", "ep", "ttft_ms", "tpot_ms"]) + "\n"
KNOWN = "agg,DeepSeek-R1,h200_sxm,fp8,1024,8192,4,4,8,1,8,,13.67\n"


def test_runs_are_predicted_in_the_order_of_the_file():
    """The second run is DeepSeek-R1 in fp8 on 8 H200 with 4 clients: 13.67 ms in InferenceX (TRT, TP8 EP8, 1k/8k)."""
    text = RUNS + "agg,Nobody-1B,h200_sxm,fp8,1024,8192,4,4,8,1,8,,5\n" + KNOWN
    done = dualplan("validate", "--runs", "-", "--json", text=text)
    assert done.returncode == 0, done.stderr
    unknown, known = json.loads(done.stdout)["runs"]
    assert unknown["covered"] is False and "Nobody-1B" in unknown["reason"] and unknown["predicted_tpot_ms"] is None
    low, high = known["interval"]
    assert low < 13.67 < high and low < known["predicted_tpot_ms"] < high
    summary = json.loads(done.stdout)["summary"]
    assert (summary["runs"], summary["covered"], summary["tpot"]["inside_interval"]) == (2, 1, 1.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RUNS.replace("tpot_ms", "tpot") + "agg,x,h200_sxm,fp8,1,1,1,1,1,1,1,,1\n", '"tpot" is not a column'),
        (RUNS + KNOWN.replace("13.67", "13.67ms"), ":2"),
        (RUNS + "agg,DeepSeek-R1,h200_sxm,fp8,1024\n", "5 cells"),
        ("", "holds no"),
    ],
)
def test_a_table_of_runs_at_fault_is_one_line(text, said):
    done = dualplan("validate", "--runs", "-", text=text)
    assert done.returncode == 3 and done.stdout == "" and said in done.stderr and done.stderr.count("\n") == 1


def test_a_run_without_a_batch_is_not_covered():
    text = RUNS + "agg,DeepSeek-R1,h200_sxm,fp8,1024,8192,0,0,8,1,8,,13.67\n"
    (run,) = json.loads(dualplan("validate", "--runs", "-", "--json", text=text).stdout)["runs"]
    assert run["covered"] is False and "concurrency" in run["reason"]


def test_runs_are_asked_alone():
    done = dualplan("validate", "jct", "--runs", "x.csv")
    assert done.returncode == 2 and "leave out KIND" in done.stderr
