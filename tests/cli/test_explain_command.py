"""``dualplan explain`` and ``feasible --explain`` as a user runs them."""

import json
import re
import subprocess
import sys

import pytest

from tests.cli.runner import PAPER, ROOT, dualplan

ROW = ("--set", "workload.context=32721", "--set", "workload.append=429", "--set", "workload.generated=176")
EXACT = (*ROW, "--collective-load", "0")


def answer(*arguments):
    done = dualplan("explain", PAPER, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json_of_all_equations():
    data = answer()
    assert next(iter(data)) == "schema" and data["schema"] == "dualplan/explain/1"
    keys = {"name", "symbol", "latex", "text", "substituted", "value", "unit", "derivation", "source"}
    assert all(keys <= set(equation) for equation in data["equations"])
    names = {equation["name"] for equation in data["equations"]}
    assert {"decode_dram", "prefill_compute", "turns_per_s", "pair_traffic_prefill_read", "decode_collective"} <= names
    assert data["assumptions"] and data["sources"] and len(data["inputs_sha256"]) == 64
    # every resource that feasible prints has its equation
    feasible = json.loads(dualplan("feasible", PAPER, "--json").stdout)
    assert {resource["name"] for resource in feasible["resources"]} <= names


def test_named_equations_and_groups():
    assert {e["name"] for e in answer("decode_dram")["equations"]} == {"decode_dram"}
    assert {e["group"] for e in answer("range", "latency")["equations"]} == {"range", "latency"}
    text = dualplan("explain", PAPER, "decode_dram").stdout
    assert "step w6" in text and "500.0 GB/s" in text and "Symbols" in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("turns/s", "turns_per_s"),
        ("agents/s", "agents_per_s"),
        ("TPOT", "tpot_s"),
        ("ttft", "ttft_unloaded_s"),
        ("X", "turns_per_s"),
        ("H", "hit"),
        ("Decode  HBM", "decode_hbm"),
    ],
)
def test_names_as_they_are_printed(word, name):
    assert {equation["name"] for equation in answer(word)["equations"]} == {name}


@pytest.mark.parametrize(
    ("word", "group"),
    [("rate", "throughput"), ("P/D", "range"), ("P/D ratio", "range"), ("pd_ratio", "range"), ("latencies", "latency")],
)
def test_everyday_words_for_groups(word, group):
    assert {equation["group"] for equation in answer(word)["equations"]} == {group}


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("decode", "did you mean decode_cnic_read, "),
        ("storage nic", "did you mean prefill_snic_ingress, decode_snic_ingress or decode_snic_egress?"),
        ("hits", "did you mean hit?"),
        ("xyz", "all names: dualplan explain SCENARIO"),
        ("", "all names: dualplan explain SCENARIO"),
    ],
)
def test_suggestions_for_words_that_name_nothing(word, hint):
    done = dualplan("explain", PAPER, word)
    assert done.returncode == 3 and hint in done.stderr and len(done.stderr.splitlines()) == 1


def test_all_equations_come_with_their_symbols():
    """Whatever stands in a formula is explained below them."""
    lines = dualplan("explain", PAPER).stdout.splitlines()
    start = lines.index("Symbols")
    explained = {line.split()[0] for line in lines[start + 1 :] if re.match(r"  \S", line)}
    equations = " ".join(line for line in lines[1:start])
    assert {"H", "c_h", "X", "φ", "TPOT", "λ", "η_s"} <= explained
    used = set(re.findall(r"(?<![\w\[])(?:[A-Za-zα-ω]_\w+|[α-ω])(?!\w)", equations))
    assert used and used <= explained


def test_flags_alone_with_a_name():
    flags = ("--hardware", "dualpath-hopper", "--model", "deepseek-v3.2", "--workload", "dualpath-64k")
    done = dualplan("explain", "decode_dram", *flags, "--prefill", 2, "--decode", 4)
    assert done.returncode == 0 and "decode DRAM" in done.stdout


def test_markdown_and_latex(tmp_path):
    markdown = dualplan("explain", PAPER, "prefill_cnic_write", "-f", "md").stdout
    assert r"$$\rho \ge " in markdown and "| $B$ | 50.00 GB/s |" in markdown
    latex = dualplan("explain", PAPER, "--latex").stdout
    assert latex.startswith(r"\documentclass") and latex.rstrip().endswith(r"\end{document}")
    assert latex.isascii()
    assert latex.count(r"\begin{") == latex.count(r"\end{")
    file = tmp_path / "equations.tex"
    assert dualplan("explain", PAPER, "--latex", "-o", file).returncode == 0
    assert file.read_text() == latex


@pytest.mark.parametrize(
    ("name", "value", "constraint"),
    [
        ("dram_bandwidth", 200e9, "decode_dram"),
        ("snic_count", 2.5, "decode_dram"),
        ("cnic_bandwidth", 18.75e9, "prefill_cnic_write"),
        ("pd_ratio", 3.5, "decode_cnic_write"),
    ],
)
def test_solve_for(name, value, constraint):
    data = answer(*EXACT, "--solve-for", name, "--range", "paper")
    assert data["value"] == pytest.approx(value)
    assert data["constraint"] == constraint
    assert data["exact"] and data["unit"] in ("1", "B/s")


def test_solve_for_the_range_with_all_traffic():
    data = answer(*EXACT, "--solve-for", "pd_ratio")
    assert data["exact"] == "32465/9583" and data["constraint"] == "decode_dram"
    assert data["valid"]["lower"] == pytest.approx(1 / 7)
    text = dualplan("explain", PAPER, *EXACT, "--solve-for", "snic_count").stdout
    assert "snic_count = 2.453 (exactly 93440/38093)" in text and "In whole numbers: 2." in text


def test_no_solution_ends_with_4_and_says_why():
    done = dualplan("explain", PAPER, "--solve-for", "snic_count", "--target", "turns_per_s=100000", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == 4 and data["value"] is None and "binds" in data["reason"]
    zero = dualplan("explain", PAPER, "--solve-for", "hbm_capacity", "--exit-zero")
    assert zero.returncode == 0 and "No answer" in zero.stdout


def test_a_target_that_is_met():
    data = answer("--solve-for", "decode_nodes", "--target", "agents_per_s=0.2")
    assert data["target"] == {"agents_per_s": 0.2} and data["holds"] is True
    assert 0 < data["value"] < 4


def test_elasticities():
    data = answer("--elasticities")
    rows = {row["parameter"]: row for row in data["elasticities"]}
    assert rows["snic_count"]["lower"] > 0 > rows["snic_count"]["upper"]
    assert all(bar["turns_per_s"]["base"] > 0 for bar in data["tornado"])
    assert "hbm_bandwidth" in data["held_by_fitted_set"]
    text = dualplan("explain", PAPER, "--elasticities").stdout
    assert "Per cent of change" in text and all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("decode_drm",), 3, "did you mean decode_dram?"),
        (("pcie_uplink",), 3, "no such resource"),
        (("--solve-for", "snic_cuont"), 3, "did you mean snic_count?"),
        (("--solve-for", "__import__('os').getpid()"), 3, "nothing that can be solved for"),
        (("--target", "turns_per_s=62"), 2, "--target needs --solve-for"),
        (("--solve-for", "snic_count", "--target", "turns_per_s"), 3, "not a rate"),
        (("--solve-for", "snic_count", "--target", "jct=4"), 3, "not a rate"),
        (("--solve-for", "snic_count", "--target", "turns_per_s=9**9"), 3, "not a rate"),
        (("--solve-for", "snic_count", "--range", "some"), 2, "all, paper"),
        (("--solve-for", "snic_count", "--elasticities"), 2, "give one"),
        (("--latex", "--json"), 2, "format of its own"),
        (("--set", "prefill_nodes=null"), 3, "prefill_nodes"),
        (("-o", "/nonexistent/x"), 3, "cannot be written"),
    ],
)
def test_bad_calls(arguments, code, message):
    done = dualplan("explain", PAPER, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr and "Traceback" not in done.stderr


def test_feasible_explains():
    text = dualplan("feasible", PAPER, "--explain").stdout
    assert "Equations" in text and "lowest P/D for prefill CNIC write" in text
    data = json.loads(dualplan("feasible", PAPER, "--explain", "--json").stdout)
    assert data["schema"] == "dualplan/feasible/1" and data["equations"]
    assert "equations" not in json.loads(dualplan("feasible", PAPER, "--json").stdout)


def test_a_closed_pipe_is_quiet():
    done = subprocess.run(
        f"{sys.executable} -m dualplan explain {PAPER} | head -1", shell=True, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stderr == "" and done.stdout.count("\n") == 1


def test_the_same_bytes_twice():
    assert dualplan("explain", PAPER, "--json").stdout == dualplan("explain", PAPER, "--json").stdout


def test_an_input_stands_for_itself_once():
    for arguments in ((), ("-f", "md"), ("--latex",)):
        done = dualplan("explain", PAPER, *arguments)
        assert done.returncode == 0, done.stderr
        equations = done.stdout.partition("\nSymbols\n")[0]
        values = [line for line in equations.splitlines() if line.strip().startswith(("t_1 ", "$$t_1", "t_1 &"))]
        assert len(values) == 1 and values[0].count("=") == 1


def test_lengths_of_turns_that_differ_are_scaled_and_it_says_so():
    said = "all turns are scaled alike"
    assert said in answer("--solve-for", "append", "--target", "turns_per_s=50")["note"]
    # of a plain workload the value is that of --set
    data = answer(*ROW, "--solve-for", "append", "--target", "turns_per_s=40")
    assert data["note"] is None
    back = dualplan("feasible", PAPER, *ROW, "--set", f"workload.append={data['value']}", "--json")
    assert json.loads(back.stdout)["throughput"]["turns_per_s"] == pytest.approx(40, rel=1e-6)


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("decode HBM", "decode_hbm"),
        ("prefill storage NIC in", "prefill_snic_ingress"),
        ("Decode  cnic WRITE", "decode_cnic_write"),
    ],
)
def test_a_name_may_be_given_as_it_is_printed(printed, name):
    assert dualplan("explain", PAPER, printed).stdout == dualplan("explain", PAPER, name).stdout
    assert dualplan("explain", PAPER, printed).returncode == 0
