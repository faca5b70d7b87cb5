"""``report`` through real processes: files, formats, exit codes, bad places and names."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.cli.runner import PAPER, ROOT, dualplan


def test_html_is_one_file(tmp_path):
    done = dualplan("report", PAPER, "-o", tmp_path / "r.html", "--exit-zero")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "r.html" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_markdown_has_a_folder_of_figures(tmp_path):
    done = dualplan("report", PAPER, "-o", tmp_path / "r.md", "--exit-zero")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((r_figures/[^)]+\.svg)\)", text)
    assert len(linked) >= 6 and all((tmp_path / path).is_file() for path in linked)
    assert len(linked) == len(list((tmp_path / "r_figures").iterdir()))


def test_the_command_in_the_document_makes_it_again(tmp_path):
    name = tmp_path / "first.md"
    arguments = ["--arrival-rate", "0.1", "--set", "hardware.snic.count=2", "--lang", "zh", "--exit-zero"]
    assert dualplan("report", PAPER, *arguments, "-o", name).returncode == 0
    first = name.read_text(encoding="utf-8")
    command = re.search(r"```sh\n(.*)\n```", first)[1]
    words = shlex.split(command)
    assert words[0] == "dualplan"
    name.unlink()
    assert dualplan(*words[1:]).returncode == 0
    assert name.read_text(encoding="utf-8") == first


def test_options_of_its_own_stand_in_the_command_too(tmp_path):
    name = tmp_path / "first.md"
    arguments = ["--price", "dualpath-hopper=20", "--lifetime", "1460d", "--lang", "zh", "-f", "md"]
    assert dualplan("report", PAPER, *arguments, "-o", name).returncode == 0
    first = name.read_text(encoding="utf-8")
    assert dualplan(*shlex.split(re.search(r"```sh\n(.*)\n```", first)[1])[1:]).returncode == 0
    assert name.read_text(encoding="utf-8") == first


def test_keys_and_flags_are_code_and_nothing_inside_words_is_escaped(tmp_path):
    done = dualplan("report", PAPER, "-f", "md", "-o", "-")
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[a-z]\\_[a-z]", done.stdout)
    for key in ("prefill_nodes", "hardware.gpu.hbm_capacity", "workload.append"):
        assert f"| `{key}` |" in done.stdout
    assert "`--price dualpath-hopper=USD`" in done.stdout and "`--simulate`" in done.stdout


def test_missing_prices_are_named_and_a_given_one_makes_the_cost(tmp_path):
    unpriced = ["--hardware=dgx-h100", "--decode-hardware=dgx-h200", "--model=deepseek-v3.2", "--workload=dualpath-64k"]
    call = ["report", *unpriced, "--prefill=2", "--decode=4", "--exit-zero", "-f", "md", "-o", "-"]
    text = dualplan(*call).stdout
    assert "No price by the hour is known for dgx-h100, dgx-h200, so" in text
    assert "`--price dgx-h100=USD`, `--price dgx-h200=USD`" in text and "`--lifetime 1460d`" in text
    text = dualplan(*call, "--price", "dgx-h100=20", "--price", "dgx-h200=24").stdout
    # 2 nodes at 20 USD and 4 at 24 USD
    assert "No price by the hour" not in text and "| All nodes, an hour | 136.00 USD |" in text
    done = dualplan(*call, "--price", "dgx-h20=20")
    assert done.returncode == 3 and "did you mean dgx-h200?" in done.stderr
    # bought for 199,000 USD, over 1460 days of 24 hours 5.68 USD a node-hour
    one = dualplan(*call, "--lifetime", "1460d", "--price", "dgx-h200=0").stdout
    assert "| 199,000 USD | 5.68 USD | purchase, written off evenly |" in one


def test_numbers_are_those_of_feasible(tmp_path):
    arguments = [PAPER, "--arrival-rate=0.1", "--exit-zero"]
    assert dualplan("report", *arguments, "-o", tmp_path / "r.html").returncode == 0
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    data = re.search(r'id="dualplan-data">(.*?)</script>', text, re.DOTALL)[1]
    asked = json.loads(dualplan("feasible", *arguments, "--json").stdout)
    assert json.loads(data)["scenarios"][0]["feasible"] == asked


def test_infeasible_is_written_and_ends_with_4(tmp_path):
    done = dualplan("report", PAPER, "--prefill=1", "--decode=20", "-o", tmp_path / "r.html")
    assert done.returncode == 4 and "not feasible" in done.stderr
    assert "NOT FEASIBLE" in (tmp_path / "r.html").read_text(encoding="utf-8")
    done = dualplan("report", PAPER, "--prefill=1", "--decode=20", "-o", tmp_path / "r.html", "--exit-zero")
    assert done.returncode == 0


def test_standard_output_needs_a_format(tmp_path):
    done = dualplan("report", PAPER, "-o", "-")
    assert done.returncode == 2 and "--format" in done.stderr
    done = dualplan("report", PAPER, "-o", "-", "-f", "md", "--exit-zero", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("# ") and ".svg" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["r.txt", "r", "r.pdf"])
def test_unknown_forms_are_refused(name, tmp_path):
    done = dualplan("report", PAPER, "-o", tmp_path / name)
    assert done.returncode == 2 and ".html" in done.stderr and ".md" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_place_is_needed():
    done = dualplan("report", PAPER)
    assert done.returncode == 2 and "-o report.html" in done.stderr


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "d.html").mkdir()
    (tmp_path / "f_figures").write_text("a file")
    for place in ("d.html", "nowhere/r.html", "f.md"):
        done = dualplan("report", PAPER, "-o", tmp_path / place)
        assert done.returncode == 3, place
        assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.html", "f_figures"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    assert dualplan("report", PAPER, "-o", tmp_path / "r.html").returncode == 3
    tmp_path.chmod(0o700)


def test_problems_of_all_files_at_once(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("hardwear: x\n")
    done = dualplan("report", bad, tmp_path / "missing.yaml", "-o", tmp_path / "r.html")
    assert done.returncode == 3
    assert "hardwear" in done.stderr and "missing.yaml" in done.stderr
    assert not (tmp_path / "r.html").exists()


def test_too_many_scenarios():
    done = dualplan("report", *[PAPER] * 21, "-o", "r.html")
    assert done.returncode == 2 and "20" in done.stderr


def test_without_a_writable_home_or_fonts(tmp_path):
    """No cache folder, another matplotlib backend and style, a C locale: same bytes, and not a word of a warning."""
    plain = tmp_path / "plain.html"
    assert dualplan("report", PAPER, "--lang=zh", "-o", plain, "--exit-zero", cwd=ROOT).returncode == 0
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "matplotlibrc").write_text("svg.fonttype: path\nfont.size: 30\naxes.facecolor: red\n")
    first = plain.read_bytes()
    done = dualplan(
        "report",
        PAPER,
        "--lang=zh",
        "-o",
        plain,
        "--exit-zero",
        environment={"HOME": "/nonexistent", "MPLCONFIGDIR": str(settings), "MPLBACKEND": "TkAgg", "LC_ALL": "C"},
    )
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 1, done.stderr
    assert plain.read_bytes() == first


def test_simulation_on_request(tmp_path):
    """The simulated figures are those of ``simulate``."""
    scenario = [PAPER, "--arrival-rate=0.05", "--set=workload.turns=12"]
    done = dualplan("report", *scenario, "--simulate", "-o", tmp_path / "r.html", "--exit-zero", timeout=600)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="dualplan-data">(.*?)</script>', text, re.DOTALL)[1])["scenarios"][0]
    run = json.loads(dualplan("simulate", *scenario, "--json", "--exit-zero", timeout=600).stdout)
    for key in ("ttft_s", "tpot_s", "turns_per_s", "slo_met"):
        assert data["simulate"]["run"][key] == run[key]
    assert data["simulate"]["capacity"]["capacity_agents_per_s"] > 0.05


def test_a_full_disk_leaves_no_folder_of_figures(tmp_path):
    code = (
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        f"from dualplan.cli.app import run\nsys.exit(run(['report', {str(PAPER)!r}, '-o', 'r.md']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "cannot be written" in done.stderr and not list(tmp_path.iterdir())
