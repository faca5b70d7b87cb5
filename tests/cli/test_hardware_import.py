"""``dualplan hardware import`` from the outside: exit codes, streams, JSON keys, the profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import dualplan.cli.app as cli

TOPO = (
    "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV18\tPIX\tSYS\tNODE\t0-31\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\tPIX\tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \tSYS\tNODE\t\t\t\t\n"
    "NIC1\tSYS\tPIX\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC2\tNODE\tSYS\tNODE\tSYS\t X \t\t\t\t\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_3\n  NIC2: mlx5_bond_0\n"
)
IBSTAT = "".join(
    f"CA '{name}'\n\tPort 1:\n\t\tState: Active\n\t\tRate: {rate}\n\t\tLink layer: {layer}\n"
    for name, rate, layer in (
        ("mlx5_0", 400, "InfiniBand"),
        ("mlx5_3", 400, "InfiniBand"),
        ("mlx5_bond_0", 200, "Ethernet"),
    )
)
NODE = "\tGPU0\tmlx5_0\tmlx5_1\tCPU Affinity\nGPU0\t X \tNODE\tNODE\t0-31\n"

Run = tuple[int, str, str]


class Command:
    """Runs ``dualplan hardware import`` in this process with a folder of files."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def file(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def __call__(self, *arguments: str) -> Run:
        code = cli.run(["hardware", "import", *arguments])
        out, err = self.capsys.readouterr()
        return code, out, err


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    return Command(tmp_path, capsys)


def test_json(command: Command) -> None:
    code, out, err = command(command.file("topo.txt", TOPO), command.file("ib.txt", IBSTAT), "--json")
    data = json.loads(out)
    assert (code, err) == (0, "")
    assert next(iter(data)) == "schema"
    assert data["schema"] == "dualplan/hardware-import/1"
    assert data["gpus"] == ["GPU0", "GPU1"]
    assert data["compute_nics"] == ["mlx5_0", "mlx5_3"]
    assert data["storage_nics"] == ["mlx5_bond_0"]
    assert data["undecided_nics"] == []
    assert data["gpu_nic_same_switch"] is True
    assert data["nic_details"][2]["rate_bytes_per_s"] == 25e9
    assert data["nic_details"][0]["affinity"] == {"GPU0": "PIX", "GPU1": "SYS"}
    assert data["links"] == [{"gpus": ["GPU0", "GPU1"], "kind": "NVLink", "count": 18, "hops": None, "weight": None}]
    assert len(data["inputs_sha256"]) == 64


def test_same_input_same_bytes(command: Command) -> None:
    files = command.file("topo.txt", TOPO), command.file("ib.txt", IBSTAT)
    assert command(*files, "--json") == command(*files, "--json")


def test_human_view_fits_80_columns_and_answers_first(command: Command) -> None:
    code, out, _ = command(command.file("topo.txt", TOPO), command.file("ib.txt", IBSTAT))
    assert code == 0
    assert out.startswith("2 GPUs, 3 NICs: 2 compute, 1 storage, 0 undecided\n")
    assert "under one PCIe switch: yes" in out
    assert "400 Gb/s" in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_undecided_nics_are_left_to_the_user(command: Command) -> None:
    file = command.file("topo.txt", NODE)
    code, out, _ = command(file)
    assert code == 0
    assert "mlx5_0, mlx5_1: say with --compute NIC,... and --storage NIC,..." in " ".join(out.split())
    data = json.loads(command(file, "--json", "--compute", "mlx5_0", "--storage", "mlx5_1")[1])
    assert (data["compute_nics"], data["storage_nics"], data["undecided_nics"]) == (["mlx5_0"], ["mlx5_1"], [])


def test_rows(command: Command) -> None:
    code, out, _ = command(command.file("topo.txt", TOPO), "-f", "csv")
    header, *rows = out.splitlines()
    assert code == 0
    assert header.startswith("device,name,")
    assert [row.split(",")[1] for row in rows] == ["GPU0", "GPU1", "mlx5_0", "mlx5_3", "mlx5_bond_0"]


def test_profile(command: Command) -> None:
    target = command.folder / "node.yaml"
    code, out, err = command(command.file("topo.txt", TOPO), command.file("ib.txt", IBSTAT), "-o", str(target))
    values = yaml.safe_load(target.read_text(encoding="utf-8"))
    assert (code, out) == (0, "")
    assert err.startswith(f"{target}: to fill in: gpu.kind, gpu.flops, ")
    assert values["cnic"] == {"count": 2, "rate": "400Gb/s"}
    assert values["snic"] == {"count": 1, "rate": "200Gb/s"}
    assert values["pcie"]["gpu_nic_same_switch"] is True


def test_profile_with_undecided_nics_says_so(command: Command) -> None:
    target = command.folder / "node.yaml"
    code, out, err = command(command.file("topo.txt", NODE), "-o", str(target), "--json")
    assert code == 0
    assert json.loads(out)["undecided_nics"] == ["mlx5_0", "mlx5_1"]
    assert "undecided: mlx5_0, mlx5_1 (decide with --compute and --storage)" in err
    assert "cnic" not in yaml.safe_load(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\x7fELF\x00\x01", "is a binary file, text is needed"),
        (TOPO.encode("utf-16"), "is UTF-16 text, UTF-8 is needed"),
        (b"hello\nworld\n", "no machine description recognised in it"),
        (b"x" * 4_000_001, "is larger than 4 MB"),
        (TOPO.replace("PIX\tSYS", "PIXSYS").encode(), "is cells glued together"),
    ],
    ids=["empty", "blank", "binary", "utf-16", "prose", "huge", "glued"],
)
def test_bad_files(command: Command, content: bytes, message: str) -> None:
    if "glued" in message:
        content = b"\n".join(content.split(b"\n")[:2]) + b"\n"
    code, out, err = command(command.file("bad.txt", content))
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert message in err
    assert "bad.txt" in err


def test_missing_files_and_directories_are_all_named(command: Command) -> None:
    code, _, err = command(str(command.folder), str(command.folder / "none.txt"))
    assert code == 3
    assert "is a directory, a file is needed" in err
    assert "none.txt: no such file" in err


def test_unknown_nic(command: Command) -> None:
    code, _, err = command(command.file("topo.txt", NODE), "--compute", "mlx5_7")
    assert code == 3
    assert err == '--compute: no NIC "mlx5_7" in the captures (did you mean mlx5_1?)\n'


def test_empty_list_of_nics(command: Command) -> None:
    code, _, err = command(command.file("topo.txt", NODE), "--storage", " , ")
    assert code == 3
    assert err.startswith("--storage: names no NIC")


def test_no_file_is_a_usage_error(command: Command) -> None:
    assert command()[0] == 2


def test_bom_is_no_obstacle(command: Command) -> None:
    code, out, _ = command(command.file("topo.txt", TOPO.encode("utf-8-sig")), "--json")
    assert code == 0
    assert json.loads(out)["compute_nics"] == ["mlx5_0", "mlx5_3"]


def test_refused_rows_are_reported(command: Command) -> None:
    text = TOPO.replace("GPU0\t X \tNV18\tPIX\tSYS", "GPU0\t X \tNV18\tPIXSYS")
    code, out, _ = command(command.file("topo.txt", text), "--json")
    data = json.loads(out)
    assert code == 0
    assert data["compute_nics"] == ["mlx5_0", "mlx5_3"]  # the NIC rows tell the same
    assert len(data["refused"]) == 1
    assert '"PIXSYS" is cells glued together' in data["refused"][0]
