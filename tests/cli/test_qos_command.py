"""``dualplan qos`` as a user runs it: real processes, streams and exit codes."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# runs the command and tells if it loads what it does not need
RUN = """
import sys
from dualplan.cli import app
code = app.run(sys.argv[1:])
if {"numpy", "sympy", "scipy"} & set(sys.modules):
    sys.stderr.write("a heavy module was imported")
sys.exit(code)
"""

PUBLISHED = """\
# KV traffic on VL2
qos_max_vls 4
qos_high_limit 240
qos_vlarb_high 0:192,1:192,2:0,3:192
qos_vlarb_low 0:192,1:192,2:64,3:192  # all of them
"""
ETS = """\
tc: 0 ratelimit: unlimited, tsa: ets, bw: 20%
         priority:  0
         priority:  1
tc: 2 ratelimit: unlimited, tsa: ets, bw: 80%
         priority:  2
tc: 5 ratelimit: unlimited, tsa: strict
         priority:  5
"""
VLARB = """\
# Low priority VL Arbitration Table:
VL    : |0x1 |0x2 |
WEIGHT: |0x1C|0x4 |
# High priority VL Arbitration Table:
VL    : |0x0 |0x0 |
WEIGHT: |0x4 |0x0 |
"""


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("opensm.conf", PUBLISHED), ("ets.txt", ETS), ("vlarb.txt", VLARB)):
        (tmp_path / name).write_text(text)


def dualplan(*arguments, stdin="", **extra):
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "DUALPLAN_COLOR")}
    environment = kept | {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"} | extra
    return subprocess.run(
        [sys.executable, "-c", RUN, "qos", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=60,
    )


def text(*arguments, **extra):
    done = dualplan(*arguments, **extra)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    return done.stdout


def data(*arguments, **extra):
    done = dualplan(*arguments, "--json", **extra)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert next(iter(document)) == "schema"
    assert document["schema"] == "dualplan/qos/1"
    return document


def failure(*arguments, code=3):
    done = dualplan(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
    return done.stderr


# ---------------------------------------------------------------- answers


def test_shares_of_the_backlogged_lanes():
    found = data("opensm.conf", "--backlogged", "0,2", "--mtu", "4096")
    assert found["shares"] == {"0": 963 / 964, "2": 1 / 964}
    assert found["shares_exact"] == {"0": "963/964", "2": "1/964"}
    assert found["kv"]["lane"] == 2
    assert found["kv"]["guaranteed"] == 1 / 2410
    assert found["kv"]["busy_lanes"] == [0, 1, 3]
    assert found["kv"]["dilution"] == 10
    assert [warning["code"] for warning in found["warnings"]] == ["diluted_low_table"]
    assert len(found["inputs_sha256"]) == 64


def test_at_a_load_kv_gets_what_is_left():
    found = data("opensm.conf", "--load", "0:0.8", "--kv-lane", "2")
    assert found["shares"] == {"0": 0.8, "2": 0.2}
    assert (found["backlogged"], found["loads"]) == ([2], {"0": 0.8})
    assert found["kv"]["share"] == 0.2
    per_cent = data("opensm.conf", "--load", "VL0:50%", "--load", "1:0.3")
    assert per_cent["shares"] == {"0": 0.5, "1": 0.3, "2": 0.2}


def test_without_a_question_all_lanes_are_busy():
    found = data("opensm.conf")
    assert found["backlogged"] == [0, 1, 2, 3]
    assert found["shares"]["2"] == 1 / 2410


def test_the_human_view_answers_first():
    lines = text("opensm.conf", "--kv-lane", "2").splitlines()
    assert lines[0] == "opensm.conf · OpenSM, ca ports · 4 lanes · MTU 4096"
    assert lines[2].startswith("  VL2 (KV) is guaranteed 0.0415 % (1/2410) while lanes 0, 1 and 3 are busy; it")
    shown = " ".join(" ".join(lines).split())
    assert "it may use all that they leave." in shown
    assert "Lanes 0, 1 and 3 also sit in the low table: that dilutes the KV share 10-fold." in shown
    assert "VL2 (KV) - 64 0.0415 %" in shown


def test_the_human_view_of_a_load():
    shown = " ".join(text("opensm.conf", "--load", "0:0.8").split())
    assert "With VL0 at 80 % load, VL2 gets 20 % of the link." in shown


def test_a_floor():
    found = data("opensm.conf", "--floor", "1%")["floor"]
    assert (found["wanted"], found["met"]) == (0.01, False)
    assert found["suggestions"] == [
        {
            "set": {"qos_vlarb_low": "2:64", "qos_high_limit": "99"},
            "guaranteed": 0.01,
            "guaranteed_exact": "1/100",
        },
        {"set": {"qos_high_limit": "9"}, "guaranteed": 0.01, "guaranteed_exact": "1/100"},
    ]
    lines = text("opensm.conf", "--floor", "1%").splitlines()
    assert lines[-5:] == [
        "  For a floor of 1 %, set (then VL2 is guaranteed 1 %)",
        "    qos_vlarb_low 2:64",
        "    qos_high_limit 99",
        "  or only (then VL2 is guaranteed 1 %)",
        "    qos_high_limit 9",
    ]


def test_suggested_lines_reach_the_floor_when_they_are_put_into_the_file(tmp_path):
    for suggestion in data("opensm.conf", "--floor", "1%")["floor"]["suggestions"]:
        kept = [line for line in PUBLISHED.splitlines() if line.split()[0] not in suggestion["set"]]
        lines = kept + [f"{key} {value}" for key, value in suggestion["set"].items()]
        (tmp_path / "new.conf").write_text("\n".join(lines))
        again = data("new.conf", "--floor", "1%")
        assert again["kv"]["guaranteed"] == suggestion["guaranteed"] >= 0.01
        assert again["floor"]["met"] is True
        assert again["floor"]["suggestions"] == []
    assert "The floor of 1 % is met as it is." in text("new.conf", "--floor", "1%")


def test_a_suggestion_uses_the_keys_that_count(tmp_path):
    (tmp_path / "class.conf").write_text(PUBLISHED.replace("qos_high_limit", "qos_swe_high_limit"))
    sets = [
        suggestion["set"]
        for suggestion in data("class.conf", "--port-class", "swe", "--floor", "1%")["floor"]["suggestions"]
    ]
    assert sets == [{"qos_vlarb_low": "2:64", "qos_swe_high_limit": "99"}, {"qos_swe_high_limit": "9"}]
    # other classes do not see that key: OpenSM's default of 0 gives the low table half the link
    assert data("class.conf")["high_limit"] == 0


def test_a_floor_out_of_reach_prints_the_answer_and_ends_with_4():
    done = dualplan("opensm.conf", "--floor", "90%")
    assert done.returncode == 4
    assert done.stderr == "no setting near this one guarantees lane 2 90 %\n"
    assert "No setting guarantees VL2 a floor of 90 %" in done.stdout
    answer = json.loads(dualplan("opensm.conf", "--floor", "90%", "--json").stdout)
    assert answer["floor"] == {"wanted": 0.9, "met": False, "suggestions": []}


def test_traffic_classes():
    found = data("ets.txt", "--backlogged", "0,2")
    assert found["shares"] == {"0": 0.2, "2": 0.8}
    assert found["kv"] is None
    assert {warning["code"] for warning in found["warnings"]} == {"shared_class", "strict_first"}
    kv = data("ets.txt", "--kv-lane", "2")["kv"]
    assert (kv["guaranteed"], kv["guaranteed_after_strict"]) == (0, 0.8)
    shown = " ".join(text("ets.txt", "--kv-lane", "2", "--load", "5:0.1", "--floor", "50%").split())
    assert "TC2 (KV) is guaranteed 0 % while classes 0 and 5 are busy" in shown
    assert "While the classes that go before it are idle, it is guaranteed 80 %." in shown
    assert "With TC5 at 10 % load, TC2 gets 90 % of the link." in shown
    assert "mlnx_qos -i INTERFACE -s ets,strict,ets,strict,strict,ets -t 19,0,80,0,0,1" in shown


def test_output_of_smpquery_lacks_the_limit():
    found = data("vlarb.txt")
    assert found["high_limit"] == 0
    assert "limit_unknown" in {warning["code"] for warning in found["warnings"]}
    given = data("vlarb.txt", "--high-limit", "4")
    assert given["shares"] == {"0": 0.8, "1": 0.1, "2": 0.1}
    assert "limit_unknown" not in {warning["code"] for warning in given["warnings"]}


def test_packet_sizes():
    """Limit 240 at 2048 B: 480 packets for one of the low table, of which KV has one in ten."""
    assert data("opensm.conf", "--mtu", "2048")["kv"]["guaranteed_exact"] == "1/4810"
    # 983,040 B of lanes 0, 1, 3 for a packet of the low table; per round 9 of 4096 B and 4 of KV's 1024 B
    small = data("opensm.conf", "--packet", "2:1024")
    assert small["kv"]["guaranteed"] == pytest.approx(4 * 1024 / (13 * 983_040 + 9 * 4096 + 4 * 1024), rel=1e-12)


def test_standard_input_and_other_formats(tmp_path):
    assert data("-", stdin=PUBLISHED)["kv"]["guaranteed"] == 1 / 2410
    rows = list(csv.DictReader(io.StringIO(dualplan("opensm.conf", "-f", "csv").stdout)))
    assert [(row["lane"], row["high_weight"], row["low_weight"]) for row in rows] == [
        ("0", "192", "192"),
        ("1", "192", "192"),
        ("2", "0", "64"),
        ("3", "192", "192"),
    ]
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)
    assert dualplan("opensm.conf", "-o", "out.txt").stdout == ""
    assert "VL2 (KV) is guaranteed" in (tmp_path / "out.txt").read_text(encoding="utf-8")
    assert dualplan("ets.txt", "-f", "md").stdout.startswith("| lane | selection |")


def test_reference_files_are_readable_at_80_columns(shared_cases):
    for path in sorted((shared_cases / "qos").glob("*_[0-9][0-9]*.*")):
        # from standard input, so that a long path does not count
        assert "Share" in text("-", stdin=path.read_text())


def test_no_colour_where_none_is_wanted():
    assert "\x1b" not in text("opensm.conf", NO_COLOR="1")


def test_the_same_input_gives_the_same_bytes():
    first = dualplan("opensm.conf", "--json", "--floor", "1%").stdout
    assert first == dualplan("opensm.conf", "--json", "--floor", "1%", PYTHONHASHSEED="7").stdout


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "bad: is empty\n"),
        (b"\0\1\2", "bad: is a binary file, text is needed\n"),
        (b"\xff\xfe\xfd", "bad: is UTF-16 text"),
        (b"qos_high_limit \xe9\n", "bad:1: is not UTF-8 text\n"),
        (b"some prose\n", "bad: has no qos_ keys"),
        (b"qos_high_limit 3\nqos_high_limit 4\n", 'bad:2: qos_high_limit: "4" contradicts "3" of line 1'),
        (b"qos_vlarb_low 0:1,16:4\n", "bad:1: qos_vlarb_low: lane 16 does not exist, lanes are 0 to 14"),
        (VLARB.replace("0x2", "0x10").encode(), "bad:3: lane 16 of the low table does not exist"),
        ((VLARB + ETS).encode(), "bad: holds smpquery vlarb output and mlnx_qos output"),
    ],
)
def test_bad_files(tmp_path, content, what):
    (tmp_path / "bad").write_bytes(content)
    found = failure("bad")
    assert what in found
    assert found.count("\n") == 1
    assert failure("bad", "--json", "-o", "out.json")
    assert not (tmp_path / "out.json").exists()


def test_files_that_are_none():
    assert failure("absent") == "absent: no such file\n"
    assert failure(".") == ".: is a directory, a file is needed\n"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--kv-lane", "15"], "--kv-lane: 15 does not exist, lanes are 0 to 14"),
        (["--kv-lane", "-3"], '--kv-lane: "-3" is not a lane number'),
        (["--backlogged", "0,x"], '--backlogged: "x" is not a lane number'),
        (["--load", "0"], '--load: "0" has no colon'),
        (["--load", "0:1.5"], '--load 0:1.5: "1.5" is not a share of 0 to 1'),
        (["--load", "0:nan"], '--load 0:nan: "nan" is not a ratio'),
        (["--load", "0:0.1", "--load", "VL0:0.2"], "--load: lane 0 is given twice"),
        (["--mtu", "1500"], "--mtu: 1500 is not an MTU of InfiniBand"),
        (["--high-limit", "256"], "--high-limit: 256 is not in 0 .. 255"),
        (["--packet", "0:0"], '--packet 0:0: "0" is not a packet size'),
        (["--floor", "100%"], '--floor: "100%" is not between 0 and 1'),
        (["--floor", "1B"], '--floor: "1B" is a size, a ratio is needed'),
    ],
)
def test_bad_values(arguments, what):
    found = failure("opensm.conf", *arguments)
    assert what in found
    assert found.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["opensm.conf", "--backlogged", "0", "--load", "0:0.1"], "lane 0 is in --backlogged too"),
        (["ets.txt", "--floor", "1%"], "--floor needs --kv-lane"),
        (["ets.txt", "--high-limit", "1"], "--high-limit is for InfiniBand"),
        (["opensm.conf", "--port-class", "hca"], "not one of ca, sw0, swe, rtr"),
        (["opensm.conf", "--mtu", "4kB"], "'4kB' is not a whole number"),
        ([], "Missing argument"),
    ],
)
def test_wrong_use(arguments, what):
    assert what in failure(*arguments, code=2)


def test_classes_end_at_7():
    assert failure("ets.txt", "--kv-lane", "8") == "--kv-lane: 8 does not exist, traffic classes are 0 to 7\n"
