"""``dualplan hardware list|show|schema`` as a user runs them: real processes, streams and exit codes."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dualplan.spec.hardware import KIND
from dualplan.spec.load import shipped_names

ROOT = Path(__file__).resolve().parents[2]
NAMES = shipped_names(KIND, ".yaml")

RUN = """
import sys
from dualplan.cli.app import run
code = run(sys.argv[1:])
if "numpy" in sys.modules:
    sys.stderr.write("numpy was imported")
sys.exit(code)
"""


def environment(**extra: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "DUALPLAN_COLOR")}
    return kept | {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"} | extra


def dualplan(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(**extra), check=False, timeout=60)


def output(*arguments: str, **extra: str) -> str:
    done = dualplan(*arguments, **extra)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def listed() -> list[dict[str, object]]:
    data = json.loads(output("hardware", "list", "--json"))
    assert list(data) == ["schema", "hardware"]
    assert data["schema"] == "dualplan/hardware-list/1"
    rows: list[dict[str, object]] = data["hardware"]
    return rows


@pytest.mark.parametrize("columns", ["80", "40", "200"])
def test_list_names_every_profile_and_fits_the_terminal(columns: str) -> None:
    lines = output("hardware", "list", COLUMNS=columns).splitlines()
    rows = [line for line in lines if line.partition(" ")[0] in NAMES]
    assert [row.partition(" ")[0] for row in rows][: len(NAMES)] == NAMES
    assert max(map(len, rows)) <= 80 and max(map(len, lines)) <= int(columns)
    assert "…" not in "".join(lines)
    # in one line, or in the parts of a narrow table
    azure = " ".join(line for line in lines if line.startswith("azure-nd-h100-v5"))
    # NICs in Gb/s, s, unknown DRAM, 80 GiB of HBM in GB, USD an hour
    found = ["8x", "H100", "SXM", "8x400", "1x80", "0.2", "-", "85.9", "98.32/h"]
    assert [word for word in azure.split() if word != "azure-nd-h100-v5"] == found


def test_list_json(listed: list[dict[str, object]]) -> None:
    rows = {str(row["name"]): row for row in listed}
    assert list(rows) == NAMES
    aws = rows["aws-p5"]
    assert (aws["cnics"], aws["cnic_rate_bytes_per_s"], aws["snic_shares_cnic"]) == (32, 12.5e9, True)
    assert aws["storage_ratio"] == pytest.approx(2.02)
    assert (rows["dgx-h100"]["price_usd"], rows["dgx-h100"]["price_usd_per_h"]) == (199_000, None)
    assert rows["gcp-a3-ultra"]["dram_bandwidth_bytes_per_s"] is None
    assert all(isinstance(row["assumed_values"], int) and row["assumed_values"] > 0 for row in listed)


def test_list_in_the_other_formats(listed: list[dict[str, object]]) -> None:
    rows = list(csv.DictReader(io.StringIO(output("hardware", "list", "-f", "csv"))))
    assert [row["name"] for row in rows] == NAMES
    assert rows[0].keys() == listed[0].keys()
    assert [json.loads(line) for line in output("hardware", "list", "-f", "jsonl").splitlines()] == listed
    assert output("hardware", "list", "-f", "md").count("\n") == 2 + len(NAMES)


def test_show_has_every_value_with_unit_and_source() -> None:
    text = output("hardware", "show", "dgx-a100")
    assert text.splitlines()[0] == "NVIDIA DGX A100 (80 GB) (dgx-a100)"
    rows = [line.split() for line in text.splitlines()]
    assert ["hbm_bandwidth", "2.039", "TB/s", "[4]"] in rows
    assert ["rate", "25", "GB/s", "(200", "Gb/s)", "[5]"] in rows
    assert ["uplinks[0].rate", "31.5", "GB/s", "assumed", "[16]"] in rows
    assert ["flops.fp8", "not", "given"] in rows
    assert ["storage", "not", "given"] in rows
    assert ["price", "199,000", "USD"] in [row[:3] for row in rows]
    sources = text.partition("\nsources\n")[2]
    assert "[4] NVIDIA A100 80GB data sheet: 2,039 GB/s" in sources
    # an assumption is called one beside the value, not only among the sources
    assert ["time_per_read", "6", "ms", "assumed", "[9]"] in rows
    assert "[9] assumed: 6 ms as in dualpath-hopper" in sources
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", ["dualpath-hopper", "aws-p5en", "gb300-nvl72"])
def test_show_json_sources_every_value(name: str) -> None:
    data = json.loads(output("hardware", "show", name, "--json"))
    assert next(iter(data)) == "schema"
    assert (data["schema"], data["name"], data["without_source"]) == ("dualplan/hardware-show/1", name, [])
    assert data["assumed"] == [key for key, source in data["sources"].items() if source.startswith("assumed")]

    def leaves(value: object) -> int:
        if isinstance(value, dict):
            return sum(map(leaves, value.values()))
        return sum(map(leaves, value)) if isinstance(value, list) else value is not None

    assert len(data["sources"]) == leaves(data["values"])


def test_show_json_is_in_si_with_units_in_the_keys() -> None:
    data = json.loads(output("hardware", "show", "dgx-h100", "--json"))
    values = data["values"]
    assert values["gpu"]["flops"]["fp8_flop_per_s"] == 1979e12
    assert values["gpu"]["hbm_capacity_bytes"] == 80 * 2**30
    assert values["cnic"]["rate_bytes_per_s"] == 50e9
    assert values["snic"]["time_per_read_s"] == 0.006
    assert values["dram"]["bandwidth_bytes_per_s"] == pytest.approx(2 * 8 * 8 * 4.4e9)
    assert (values["cost"]["price_usd"], values["cost"]["power_w"]) == (199_000, 10_200)
    assert values["storage"] is None
    assert data["derived"] == {
        "cnic_node_bandwidth_bytes_per_s": 400e9,
        "storage_bandwidth_bytes_per_s": 100e9,
        "storage_ratio": 2.0,
    }


def test_show_csv_has_a_row_for_each_value() -> None:
    rows = list(csv.DictReader(io.StringIO(output("hardware", "show", "dgx-a100", "-f", "csv"))))
    by_key = {row["key"]: row for row in rows}
    assert len(by_key) == len(rows)
    uplink = by_key["pcie.uplinks[0].rate"]
    assert (uplink["name"], uplink["unit"]) == ("pcie.uplinks[0].rate_bytes_per_s", "B/s")
    assert float(uplink["value"]) == pytest.approx(31.5e9)
    assert by_key["efficiency.hbm"]["assumed"] == "true"
    assert by_key["gpu.flops.fp8"]["value"] == ""


def test_the_hash_is_of_the_values(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return str(json.loads(output("hardware", "show", str(path), "--json"))["inputs_sha256"])

    plain = digest("extends: dgx-h100\nname: mine\n")
    assert digest("name: mine # same\nextends: dgx-h100\n") == plain
    assert digest("extends: dgx-h100\nname: mine\nsnic: {count: 1}\n") != plain


def test_a_variant_in_a_file_says_what_has_no_source(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: dgx-h100\nname: mine\ntitle: Mine\nsnic: {count: 1}\n")
    rows = [line.split() for line in output("hardware", "show", str(path)).splitlines()]
    assert ["Mine", "(mine)"] in rows
    assert ["count", "1", "no", "source"] in rows
    assert json.loads(output("hardware", "show", str(path), "--json"))["without_source"] == ["snic.count"]


def refused(*arguments: str, code: int = 3) -> str:
    done = dualplan("hardware", *arguments)
    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_an_unknown_name_gets_the_closest_one() -> None:
    line = 'hardware show: "dgx-h10" is neither a shipped name nor a file (did you mean dgx-h100?)\n'
    assert refused("show", "dgx-h10") == line


def test_files_that_are_none(tmp_path: Path) -> None:
    assert refused("show", str(tmp_path)) == f"{tmp_path}: is a directory, a file is needed\n"
    (tmp_path / "empty.yaml").write_text("")
    assert refused("show", str(tmp_path / "empty.yaml")) == f"{tmp_path / 'empty.yaml'}: is empty\n"
    (tmp_path / "binary.yaml").write_bytes(b"\x7fELF\0\0")
    assert "is a binary file" in refused("show", str(tmp_path / "binary.yaml"))
    assert refused("show", "missing.yaml") == 'hardware show: no such file "missing.yaml"\n'


def test_usage_errors() -> None:
    assert "NAME|FILE" in refused("show", code=2)
    assert "--bogus" in refused("list", "--bogus", code=2)
    assert "xml" in refused("list", "-f", "xml", code=2)


def test_schema_goes_to_standard_output_or_to_a_file(tmp_path: Path) -> None:
    text = output("hardware", "schema")
    data = json.loads(text)
    assert data["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert output("hardware", "schema", "--json") == text
    assert output("hardware", "schema", "-o", str(tmp_path / "schema.json")) == ""
    assert (tmp_path / "schema.json").read_text(encoding="utf-8") == text


def test_schema_as_a_list_of_keys() -> None:
    rows = {row["key"]: row for row in csv.DictReader(io.StringIO(output("hardware", "schema", "-f", "csv")))}
    assert rows["extends"]["type"] == "string"
    assert (rows["gpu.count"]["type"], rows["snic.shares_cnic"]["default"]) == ("integer", "false")
    assert (rows["pcie.uplinks[].rate"]["type"], rows["pcie.uplinks[].rate"]["example"]) == ("quantity", "400Gb/s")


def test_a_closed_pipe_ends_quietly() -> None:
    command = [sys.executable, "-c", RUN, "hardware", "show", "dgx-h100", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) in (0, 1)  # no signal, no other code


def test_colour_only_where_it_is_wanted() -> None:
    assert "\x1b[" not in output("hardware", "show", "dgx-h100")
    assert "\x1b[" in output("--color", "always", "hardware", "show", "dgx-h100")
    assert "\x1b[" not in output("--color", "never", "hardware", "show", "dgx-h100", FORCE_COLOR="1")
    assert "\x1b[1m" not in output("hardware", "show", "dgx-h100", NO_COLOR="1")
