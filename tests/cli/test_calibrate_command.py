"""``calibrate`` through real processes: a fit, the profile it writes, what it says, bad input."""

import json

import pytest

from tests.cli.runner import PAPER, dualplan


def reads(sizes, efficiency=0.8, time=0.012):
    """Lines of a file: reads of a 400 Gb/s storage NIC with this efficiency and time per read [s]."""
    lines = ["kind,value,read_size"]
    for size in sizes:
        rate = size / (time + size / (50e9 * efficiency))
        lines.append(f"snic_gbps,{rate / 1e9:.9f}GB/s,{size / 1e6:g}MB")
    return "\n".join(lines) + "\n"


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(reads([1e8, 4e8, 1.5e9, 3e9]))
    return path


def test_json(measured):
    done = dualplan("calibrate", PAPER, "--measurements", measured, "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["schema"] == "dualplan/calibrate/1"
    found = {row["name"]: row for row in data["parameters"]}
    assert found["snic.efficiency"]["value"] == pytest.approx(0.8, rel=1e-5)
    assert found["snic.time_per_read"]["value"] == pytest.approx(0.012, rel=1e-5)
    assert found["snic.efficiency"]["interval"][0] < 0.8 < found["snic.efficiency"]["interval"][1]
    assert found["efficiency.prefill"]["status"] == "not measured"
    assert [row["line"] for row in data["measurements"]] == [2, 3, 4, 5]
    assert max(abs(row["relative_error"]) for row in data["measurements"]) < 1e-6
    assert data["profile"].splitlines()[2] == 'extends: "dualpath-hopper"'
    again = dualplan("calibrate", PAPER, "--measurements", measured, "--json")
    assert again.stdout == done.stdout


def test_the_profile_is_a_profile(measured, tmp_path):
    """What is written is read by --hardware, names its provenance, and plans with the fitted rate."""
    profile = tmp_path / "deeper" / "my-profile.yaml"
    profile.parent.mkdir()
    done = dualplan("calibrate", PAPER, "--measurements", measured, "-o", profile)
    assert done.returncode == 0, done.stderr
    assert f"Written to {profile}" in done.stdout.splitlines()
    shown = dualplan("hardware", "show", profile, "--json")
    assert "fitted to 4 measurements of mine.csv (dualplan calibrate)" in shown.stdout
    answer = json.loads(dualplan("feasible", PAPER, "--hardware", profile, "--mode", "layerwise", "--json").stdout)
    nic = next(row for row in answer["resources"] if row["name"] == "prefill_snic_ingress")
    size = nic["load_bytes_per_s"] / answer["throughput"]["turns_per_s"]
    expected = 2 * size / (0.012 + size / 40e9)  # two nodes
    assert nic["capacity_bytes_per_s"] == pytest.approx(expected, rel=0.01)


def test_a_profile_of_a_profile(measured, tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    dualplan("calibrate", PAPER, "--measurements", measured, "-o", first)
    other = tmp_path / "other.csv"
    other.write_text(reads([1e8, 4e8, 3e9], efficiency=0.7))
    done = dualplan("calibrate", PAPER, "--hardware", first, "--measurements", other, "-o", second)
    assert done.returncode == 0, done.stderr
    shown = json.loads(dualplan("hardware", "show", second, "--json").stdout)
    assert shown["values"]["snic"]["efficiency"] == pytest.approx(0.7, rel=1e-4)


def test_a_profile_for_each_side_that_differs(measured, tmp_path):
    """Reads tell the prefill side's profile, steps the decode side's; each file extends the profile of its side."""
    measured.write_text(measured.read_text().replace("kind,value,read_size", "kind,value,read_size,batch"))
    with measured.open("a") as file:
        file.write("tpot,30ms,,1\ntpot,40ms,,64\ntpot,60ms,,256\n")
    path = tmp_path / "mine.yaml"
    arguments = (PAPER, "--decode-hardware", "dgx-h200", "--measurements", measured, "-o", path, "--json")
    done = dualplan("calibrate", *arguments)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["profile_file"] == str(tmp_path / "mine-prefill.yaml")
    assert data["decode_profile_file"] == str(tmp_path / "mine-decode.yaml")
    assert not path.exists()
    shown = json.loads(dualplan("hardware", "show", data["decode_profile_file"], "--json").stdout)
    assert shown["values"]["gpu"]["kind"] == "H200 SXM"
    assert "efficiency.decode_layer_time" in shown["sources"]


def test_what_cannot_be_told_apart_is_said(tmp_path):
    path = tmp_path / "one-size.csv"
    path.write_text(reads([1.5e9] * 4))
    done = dualplan("calibrate", PAPER, "--measurements", path)
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    assert "cannot be told apart" in words and "snic.efficiency" in words
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_nothing_told_writes_nothing(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(reads([1e8]))
    target = tmp_path / "out.yaml"
    done = dualplan("calibrate", PAPER, "--measurements", path, "--fit", "efficiency.prefill", "-o", target)
    assert done.returncode == 4
    assert done.stdout.startswith("NOTHING FITTED")
    assert "was not written" in done.stderr and not target.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind,valu\n", 'mine.csv:1: "valu" is not a column (did you mean value?)'),
        ("kind,value\njct,5s\nfoo,1\n", "mine.csv:3: kind"),
        ("", "mine.csv: holds no header line"),
        ("\0", "is a binary file"),
        ("kind,value,workload,agents\njct,5s,nope,4\n", "mine.csv:2: workload"),
    ],
)
def test_bad_files(tmp_path, text, expected):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    done = dualplan("calibrate", PAPER, "--measurements", path)
    assert (done.returncode, done.stdout) == (3, "")
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_arguments(measured):
    for arguments, code, expected in (
        ([], 2, "--measurements"),
        (["--measurements", "/no/such.csv"], 3, "no such file"),
        (["--measurements", measured, "--fit", "snic.rate"], 3, "is not a parameter"),
        (["--measurements", measured, "--fit", ","], 3, "names no value"),
        (["--measurements", measured, "-o", "/no/such/x.yaml"], 3, "cannot be written"),
        (["--measurements", measured, "-o", "-"], 2, "give a file name"),
    ):
        done = dualplan("calibrate", PAPER, *arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert expected in done.stderr
