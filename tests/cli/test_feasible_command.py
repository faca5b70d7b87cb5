"""``feasible`` through real processes: values, formats, exit codes, pipes, bad input."""

import csv
import io
import json
import re
import subprocess
import sys
from fractions import Fraction

import pytest

from tests.cli.runner import PAPER, ROOT, dualplan

# the 64K row of the paper as it stands, no collectives: what the paper's own checks use
ROW = [
    f"--set=workload.{key}={value}" for key, value in dict(context=32721, append=429, generated=176, turns=157).items()
]


def answer(*arguments, code=0):
    done = dualplan("feasible", *arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_paper_scenario():
    data = answer(PAPER)
    assert list(data)[:2] == ["schema", "feasible"]
    assert data["schema"] == "dualplan/feasible/1"
    assert data["feasible"] is True and data["reasons"] == []
    paper = data["paper_range"]
    assert (paper["lower_exact"], paper["upper_exact"]) == ("1/7", "7/2")
    assert paper["lower_constraint"] == "prefill_cnic_write"
    assert paper["upper_constraint"] == "decode_cnic_write"
    assert paper["upper_constraints"] == ["decode_cnic_write", "decode_dram"]
    assert data["collective_load"]["origin"] == "derived"
    assert data["speedup_over_basic"] > 1.5
    used = {entry["name"]: entry["utilization"] for entry in data["resources"]}
    assert used[data["bottleneck"]["resource"]] == pytest.approx(1)
    assert max(used.values()) <= 1 + 1e-9
    # storage NICs are used evenly: P:D = 1:2 of equal nodes reads two thirds on the decode side
    assert data["decode_read_share"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("extra", "lower", "upper", "constraint"),
    [
        (["--set=hardware.snic.count=2"], "1/3", "1", "decode_dram"),
        (["--collective-load=0.5"], "1/3", "3/2", "decode_cnic_write"),
        (["--set=hardware.dram.buffer_sockets=1"], "1/7", "1", "decode_dram"),
        (["--set=hardware.dram.bandwidth=250GB/s"], "1/7", "1", "decode_dram"),
        (["--set=hardware.cnic.count=4"], "1/3", "3/2", "decode_cnic_write"),
    ],
)
def test_published_ranges(extra, lower, upper, constraint):
    found = answer(PAPER, "--prefill=2", "--decode=3", *extra, "--exit-zero")["paper_range"]
    assert (found["lower_exact"], found["upper_exact"]) == (lower, upper)
    assert constraint in found["upper_constraints"]


@pytest.mark.parametrize("extra", [["--set=hardware.snic.count=4"], ["--collective-load=0.8"]])
def test_published_empty_ranges(extra):
    data = answer(PAPER, *extra, code=4)
    for key in ("paper_range", "range"):
        assert data[key]["lower"] is None and data[key]["upper"] is None
        assert data[key]["empty_because"]
    assert data["feasible"] is False and data["reasons"]


def test_row_as_it_stands():
    data = answer(PAPER, "--collective-load=0", *ROW)
    assert data["range"]["lower_exact"] == "1/7"
    assert data["range"]["upper"] == pytest.approx(3.39, abs=0.005)
    assert data["range"]["upper_constraint"] == "decode_dram"


def test_eighty_per_cent_hit():
    values = dict(context=32000, append=8000, generated=3200, turns=10)
    data = answer(PAPER, "--collective-load=0", *[f"--set=workload.{k}={v}" for k, v in values.items()])
    assert Fraction(data["range"]["upper_exact"]) == Fraction(13, 7)
    assert data["range"]["upper_constraint"] == "decode_snic_egress"


def test_expert_parallelism_over_four_nodes_raises_the_lower_end():
    # 0.28 with R = 2.2 (EP32 on four nodes) and 0.20 with EP over two nodes; recomputed tails add up to 0.01
    wide = answer(PAPER, "--prefill=4", "--decode=8", *ROW)
    narrow = answer(PAPER, *ROW)
    assert wide["range"]["lower"] == pytest.approx(0.28, abs=0.01)
    assert narrow["range"]["lower"] == pytest.approx(0.20, abs=0.01)
    assert 1.9 <= wide["range"]["upper"] <= 2.2


def test_nodes_finds_the_best_split():
    best = answer(PAPER, "--nodes=6")
    assert best["prefill_nodes"] + best["decode_nodes"] == 6
    rates = [
        answer(PAPER, f"--prefill={p}", f"--decode={6 - p}", "--exit-zero")["throughput"]["turns_per_s"]
        for p in range(1, 6)
    ]
    assert best["throughput"]["turns_per_s"] == pytest.approx(max(rates))


def test_demand_and_slo():
    met = answer(PAPER, "--arrival-rate=0.1")
    assert met["demand"]["turns_per_s"] == pytest.approx(15.7)
    assert met["demand"]["utilization"] == pytest.approx(15.7 / met["throughput"]["turns_per_s"])
    missed = answer(PAPER, "--turn-rate=5000", code=4)
    assert "demand" in missed["reasons"][0].lower()
    assert answer(PAPER, "--slo-ttft=1ms", code=4)["reasons"]
    assert answer(PAPER, "--slo-tpot=1us", code=4)["reasons"]


def test_modes_are_ordered():
    rate = {
        mode: answer(PAPER, f"--mode={mode}", "--exit-zero")["throughput"]["turns_per_s"]
        for mode in ("basic", "layerwise", "dual-path", "split-read", "oracle")
    }
    assert rate["basic"] <= rate["layerwise"] <= rate["dual-path"] <= rate["split-read"] <= rate["oracle"]


def test_does_not_fit_is_said_and_ranges_stay():
    data = answer(
        "--hardware=dualpath-hopper",
        "--model=deepseek-v3.2",
        "--workload=dualpath-64k",
        "--prefill=1",
        "--decode=1",
        code=4,
    )
    assert any("do not fit" in reason for reason in data["reasons"])
    assert data["throughput"]["turns_per_s"] == 0
    assert data["paper_range"]["upper_exact"] == "7/2"


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "csv", "md"])
def test_formats_and_files(tmp_path, form):
    printed = dualplan("feasible", PAPER, "-f", form)
    target = tmp_path / "out"
    written = dualplan("feasible", PAPER, "-f", form, "-o", target)
    assert printed.returncode == written.returncode == 0
    assert written.stdout == ""
    assert target.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    if form != "table":
        assert target.read_text() == printed.stdout
    if form == "csv":
        header, row = csv.reader(io.StringIO(printed.stdout))
        assert {"feasible", "throughput.turns_per_s", "bottleneck.resource", "range.lower"} <= set(header)
        assert len(header) == len(row)


def test_same_input_same_bytes():
    assert dualplan("feasible", PAPER, "--json").stdout == dualplan("feasible", PAPER, "--json").stdout


def test_human_view_fits_80_columns_and_has_no_colour_in_a_pipe():
    done = dualplan("feasible", PAPER)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert "FEASIBLE" in done.stdout
    coloured = dualplan("--color=always", "feasible", PAPER)
    assert "\x1b[" in coloured.stdout
    plain = dualplan("feasible", PAPER, environment={"NO_COLOR": "1"})
    assert plain.stdout == done.stdout


def test_closed_pipe_is_quiet():
    command = f"{sys.executable} -m dualplan feasible {PAPER} --json | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_print_scenario_names_origins():
    done = dualplan("feasible", PAPER, "--set=hardware.snic.count=2", "--prefill=3", "--print-scenario", "--json")
    values = {row["key"]: row for row in json.loads(done.stdout)["values"]}
    assert values["prefill_nodes"] == {"key": "prefill_nodes", "value": 3, "unit": None, "origin": "--prefill"}
    assert values["decode_nodes"]["origin"].endswith("dualpath-paper.yaml:8")
    assert values["hardware.snic.count"]["value"] == 2
    assert values["hardware.snic.count"]["origin"] == "--set hardware.snic.count"
    assert (values["hardware.snic.rate"]["value"], values["hardware.snic.rate"]["unit"]) == (50e9, "B/s")
    assert values["copy"]["origin"] == "default"


BAD_FILES = {
    "unknown": ("prefil_nodes: 2\n", "s.yaml:1: prefil_nodes: unknown key (did you mean prefill_nodes?)"),
    "unit": (
        "hardware: {extends: dualpath-hopper, snic: {rate: 400 GB}}\n",
        's.yaml:1: hardware.snic.rate: "400 GB" is a size',
    ),
    "zero": ("prefill_nodes: 0\n", 's.yaml:1: prefill_nodes: "0" must be at least 1'),
    "negative": ("decode_nodes: -3\n", "must be at least 1"),
    "nan": ("balance: nan\n", "is not a ratio"),
    "inf": ("balance: .inf\n", "is not a ratio"),
    "duplicate": ("name: a\nname: b\n", "s.yaml:2: name: duplicate key"),
    "list": ("- a\n", "is not a scenario"),
    "empty": ("", "is empty"),
    "bomb": (
        "a: &a [x,x]\nb: &b [*a,*a]\n"
        + "".join(f"c{i}: &c{i} [*{'b' if i == 0 else f'c{i - 1}'}, *a]\n" for i in range(3)),
        "unknown key",
    ),
    "exponent": ("prefill_nodes: 1e1\n", "is text in YAML 1.1"),
    "mode": ("mode: dualpath\n", "did you mean dual-path?"),
    "gpus": ("hardware: {extends: dualpath-hopper, gpu: {count: 0}}\n", "must be at least 1"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_scenario_files(tmp_path, case):
    text, part = BAD_FILES[case]
    (tmp_path / "s.yaml").write_text(text)
    done = dualplan("feasible", "s.yaml", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout == ""
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_all_problems_of_a_file_at_once(tmp_path):
    text = "hardware: dualpath-hoper\nmodel: deepseek-v3.2\nworkload: dualpath-64k\nprefil_nodes: 2\nbalance: 0.5\n"
    (tmp_path / "s.yaml").write_text(text)
    lines = dualplan("feasible", "s.yaml", cwd=tmp_path).stderr.splitlines()
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["feasible"], 3, "hardware: missing"),
        (["feasible", "absent.yaml"], 3, "absent.yaml: no such file"),
        (["feasible", "tests"], 3, "is a directory"),
        (["feasible", sys.executable], 3, ""),
        (["feasible", PAPER, "--nodes=1"], 3, "at least 2"),
        (["feasible", PAPER, "--nodes=6", "--prefill=1"], 2, "--nodes"),
        (["feasible", PAPER, "--bogus"], 2, "No such option"),
        (["feasible", PAPER, "--set=hardware.snic.coun=2"], 3, "did you mean count?"),
        (["feasible", PAPER, "--set=nonsense"], 3, "is not key.path=value"),
        (["feasible", PAPER, "--collective-load=1"], 3, "must be less than 1"),
        (["feasible", PAPER, "--collective-load=prefill=.3"], 3, "decode: missing"),
        (["feasible", PAPER, "--model=bert"], 3, "--model"),
        (["feasible", PAPER, "--prefill=two"], 3, "is not a whole number"),
        (["feasible", PAPER, "--slo-ttft=4"], 3, "has no unit"),
        (["feasible", PAPER, "--prefill-parallel=ep=999"], 3, "prefill.parallel"),
        (["feasible", PAPER, "--kv-format=fp3"], 3, "fp3"),
        (["feasible", PAPER, "-o", "/nowhere/x"], 3, "cannot be written"),
        (["feasible", PAPER, "-o", "tests"], 3, "is a directory"),
    ],
)
def test_bad_calls(arguments, code, part):
    done = dualplan(*arguments)
    assert done.returncode == code
    assert part in done.stderr
    assert "Traceback" not in done.stderr and "unexpected" not in done.stderr


def test_large_file(tmp_path):
    (tmp_path / "s.yaml").write_text("# " + "x" * 1_100_000)
    done = dualplan("feasible", "s.yaml", cwd=tmp_path)
    assert done.returncode == 3 and "larger than 1 MB" in done.stderr


def test_user_text_is_never_evaluated(tmp_path):
    trap = "__import__('pathlib').Path('trap').write_text('x')"
    dualplan("feasible", PAPER, f"--set=balance={trap}", f"--collective-load={trap}", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_plot_shows_the_rate_over_every_split():
    done = dualplan("feasible", PAPER, "--plot", environment={"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    chart = done.stdout[done.stdout.index("turns/s over P/D at 6 nodes") :]
    assert "# this one" in chart and "1:5" in chart and "5:1" in chart
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert dualplan("feasible", PAPER, "--plot", "--json").returncode == 2
    # a million splits are not all looked at
    many = dualplan("feasible", PAPER, "--plot", "--prefill", "1000000", "--decode", "500000", timeout=30)
    assert many.returncode == 0 and "turns/s over P/D at 1,500,000 nodes" in many.stdout and "# this one" in many.stdout


def test_the_assumptions_that_bear_on_the_answer_and_all_of_them():
    every = json.loads(dualplan("feasible", PAPER, "--json").stdout)["assumptions"]
    short, whole = (dualplan("feasible", PAPER, *flags).stdout for flags in ((), ("--verbose",)))

    def shown(text):
        lines = text[text.index("  Assumed") :].splitlines()[1:]
        return " ".join(line.strip() for line in lines).removeprefix("- ").split(" - ")

    heading = re.search(r"Assumed \((\d+) of (\d+): what bears on this answer; all: --verbose or --json\)", short)
    assert int(heading[2]) == len(every) and int(heading[1]) == len(shown(short)) < len(every)
    assert shown(whole) == every and "Assumed (all figures and their sources: --json)" in whole
    assert [text for text in every if text in shown(short)] == shown(short)


@pytest.mark.parametrize(
    ("flags", "binds", "bears", "background"),
    [
        ((), "decode_hbm", "KV format", "storage NIC reaches"),
        (("--hardware=dgx-b200", "--exit-zero"), "prefill_snic_ingress", "storage NIC reaches", "KV format"),
    ],
)
def test_which_assumptions_bear_on_an_answer_follows_from_what_binds(flags, binds, bears, background):
    data = json.loads(dualplan("feasible", PAPER, *flags, "--json").stdout)
    assert data["bottleneck"]["resource"] == binds
    assert all(any(words in text for text in data["assumptions"]) for words in (bears, background))
    text = " ".join(dualplan("feasible", PAPER, *flags).stdout.split())
    assert bears in text and background not in text
    # what an answer always rests on, and gaps in what is known
    for text_of in data["assumptions"]:
        if text_of.startswith(("steady", "compute times")) or "unknown" in text_of:
            assert text_of in text


def test_no_use_at_a_demand_that_is_not_carried():
    carried = dualplan("feasible", PAPER, "--arrival-rate=0.3").stdout
    assert "at demand" in carried and "At demand" in carried
    above = dualplan("feasible", PAPER, "--arrival-rate=0.9").stdout
    assert "times what the deployment carries" in " ".join(above.split())
    assert "at demand" not in above and "At demand" not in above and "At that" in above


def test_a_deployment_without_a_rate_carries_nothing():
    done = dualplan("feasible", PAPER, "--prefill-parallel=ep=1,tp=8,dp=2", "--arrival-rate=0.3")
    assert done.returncode == 4
    assert "Nothing of the demand of 47.1 turns/s is carried." in " ".join(done.stdout.split())
    assert "inf" not in done.stdout.split()


def test_sizes_of_what_does_not_fit_have_fitting_units():
    done = dualplan("feasible", PAPER, "--prefill", 2, "--decode", 4, "--set", "workload.context=1e12")
    assert done.returncode == 4
    text = " ".join(done.stdout.split())
    assert "One context does not fit on the prefill side: 48.1 PB a GPU, 7.22 GB are left" in text
