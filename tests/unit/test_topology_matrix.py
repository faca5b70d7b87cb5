"""The matrix of nvidia-smi topo -m: odd layouts are read, damaged rows are refused with the reason."""

import pytest

from dualplan.errors import InputError
from dualplan.spec.topology import read_topology
from dualplan.spec.topology_matrix import read_gpu_names, read_matrix
from dualplan.spec.topology_records import Topology

HEADER = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
GPU0 = "GPU0\t X \tNV12\tPXB\tSYS\t0-31\t0\t\tN/A\n"
GPU1 = "GPU1\tNV12\t X \tSYS\tPXB\t32-63\t1\t\tN/A\n"
NIC0 = "NIC0\tPXB\tSYS\t X \tSYS\t\t\t\t\n"
NIC1 = "NIC1\tSYS\tPXB\tSYS\t X \t\t\t\t\n"
LEGEND = "\nNIC Legend:\n\n  NIC0: mlx5_2\n  NIC1: mlx5_bond_0\n"
TABLE = HEADER + GPU0 + GPU1 + NIC0 + NIC1 + LEGEND


def topology(text: str) -> Topology:
    return read_topology([("topo.txt", text)])


def affinity(text: str) -> dict[str, dict[str, str]]:
    return {nic.name: nic.affinity for nic in topology(text).nics}


WANTED = {"mlx5_2": {"GPU0": "PXB", "GPU1": "SYS"}, "mlx5_bond_0": {"GPU0": "SYS", "GPU1": "PXB"}}


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        TABLE.replace("\n", "\r\n"),
        TABLE.replace("\t", "      "),
        TABLE.replace("\t", "\xa0\xa0 "),
        "root@node:~# nvidia-smi topo -m\n" + TABLE + "root@node:~# exit\n",
        "\x1b[4m" + HEADER.rstrip("\n") + "\x1b[0m\n" + TABLE.removeprefix(HEADER),
        "\t\x1b[4mGPU0\t" + HEADER.removeprefix("\tGPU0\t").rstrip("\n") + "\x1b[0m\n" + TABLE.removeprefix(HEADER),
        TABLE.replace("\tGPU0\tGPU1", "[4m\tGPU0\tGPU1").replace("NUMA ID\n", "NUMA ID[0m\n"),
        TABLE.replace("GPU0\t X ", "-----------\nGPU0\t X "),
        TABLE + TABLE,
        TABLE + "```\n",
        "    " + TABLE.replace("\n", "\n    "),
    ],
    ids=["tabs", "crlf", "spaces", "nbsp", "prompt", "ansi", "ansi2", "lost-esc", "rule", "twice", "fence", "indent"],
)
def test_layouts(text: str) -> None:
    assert affinity(text) == WANTED


def test_names_come_from_the_legend_and_numa_from_the_rows() -> None:
    machine = topology(TABLE)
    assert [(nic.name, nic.device.alias) for nic in machine.nics] == [("mlx5_2", "NIC0"), ("mlx5_bond_0", "NIC1")]
    assert [(gpu.key, gpu.cpu_affinity, gpu.numa) for gpu in machine.gpus] == [
        ("GPU0", "0-31", "0"),
        ("GPU1", "32-63", "1"),
    ]


def test_soc_of_old_drivers_is_sys() -> None:
    rows = "GPU0\t X \tPIX\tSOC\t0-13\nGPU1\tPIX\t X \tSOC\t0-13\nmlx5_0\tSOC\tSOC\t X\n"
    text = "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\n" + rows
    assert affinity(text) == {"mlx5_0": {"GPU0": "SYS", "GPU1": "SYS"}}


def test_columns_of_other_makers_are_nics() -> None:
    text = "\tGPU0\tbnxt_re0\trdmap16s27\tCPU Affinity\nGPU0\t X \tPIX\tPHB\t0-13\n"
    assert affinity(text) == {"bnxt_re0": {"GPU0": "PIX"}, "rdmap16s27": {"GPU0": "PHB"}}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("GPU0\t X \tNV12\tPXBSYS\t0-31\t0\t\tN/A\n", '"PXBSYS" is cells glued together'),
        ("GPU0\tXNV12PXBSYS\n", '"XNV12PXBSYS" is cells glued together'),
        ("GPU0\t X \tNV12PXB\tSYS\t0-31\t0\t\tN/A\n", '"NV12PXB" is cells glued together'),
        ("GPU0\t X \tNV12\tPXB\n", "3 cells for 4 columns"),
        ("GPU0\t X \tNV12\tPXB\t0-31\t0\t\tN/A\n", "3 cells for 4 columns"),
        ("GPU0\t X \tNV12\tPXB\tSYS\tSYS\t0-31\t0\t\tN/A\n", "more cells than the 4 columns"),
        ("GPU0\tNV12\t X \tPXB\tSYS\t0-31\t0\t\tN/A\n", "its X stands under GPU1"),
        ("GPU0\tNV12\tNV12\tPXB\tSYS\t0-31\t0\t\tN/A\n", "it has no X of its own"),
        ("GPU0\t X \tNV12\tPIQ\tSYS\t0-31\t0\t\tN/A\n", '"PIQ" in column NIC0 is no word of the legend'),
    ],
)
def test_damaged_row_is_refused(row: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        topology(HEADER + row)
    assert caught.value.problems[0].startswith(f"topo.txt:2: row GPU0 refused: {reason}")
    assert "nvidia-smi topo -m > FILE" in caught.value.problems[0]


def test_nic_rows_stand_in_for_a_refused_gpu_row() -> None:
    machine = topology(TABLE.replace(GPU0, "GPU0\t X \tNV12\tPXBSYS\t0-31\t0\t\tN/A\n"))
    assert {nic.name: nic.affinity for nic in machine.nics} == WANTED
    assert [nic.kind for nic in machine.nics] == ["compute", "compute"]
    assert len(machine.refused) == 1
    assert machine.refused[0].startswith("topo.txt:2: row GPU0 refused")


def test_without_nic_rows_a_refused_gpu_row_leaves_its_nic_undecided() -> None:
    text = HEADER + "GPU0\t X \tNV12\tPXBSYS\t0-31\t0\t\tN/A\n" + GPU1 + LEGEND
    machine = topology(text)
    assert [(nic.name, nic.kind) for nic in machine.nics] == [("mlx5_2", "undecided"), ("mlx5_bond_0", "compute")]
    assert machine.nics[0].reason == "its relation to GPU0 is not in the capture"
    assert machine.same_switch is None


def test_cells_that_contradict_their_mirror_are_left_out() -> None:
    machine = topology(TABLE.replace(NIC0, "NIC0\tSYS\tSYS\t X \tSYS\t\t\t\t\n"))
    assert machine.nics[0].affinity == {"GPU1": "SYS"}
    assert any("contradict" in note for capture in machine.captures for note in capture.notes)


def test_wrapped_header_is_refused() -> None:
    text = "\tGPU0\tGPU1\tNIC0\nNIC1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV12\tPXB\nSYS\t0-31\t0\n"
    with pytest.raises(InputError, match="the header goes on in this line: the table was wrapped"):
        topology(text)


def test_row_without_a_column_is_refused_and_named() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-31\nGPU1\tNV12\t X \t0-31\nNIC0\tPIX\tSYS\t X\n"
    assert topology(text).refused == (
        "topo.txt:4: row NIC0 refused: no column of the header has this name "
        "(capture it again with: nvidia-smi topo -m > FILE)",
    )


def test_text_that_ends_inside_a_cell() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-31\nGPU1\tNV18\t X \t0-31\n"
    assert topology(text).links[0].count == 18
    cut = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU2\tNV18\tNV18\t X \t0-3\nGPU0\t X \tNV18\tNV1"
    machine = topology(cut)
    assert {link.count for link in machine.links} == {18}
    assert "the text ends inside it" in machine.refused[0]


def test_header_alone_is_refused() -> None:
    with pytest.raises(InputError, match=r"topo\.txt:1: the matrix has a header and no row"):
        topology(HEADER + "\nLegend:\n")


def test_long_lists_of_refused_rows_are_cut() -> None:
    rows = "".join(f"GPU{index}\t X\tNODENODE\n" for index in range(8))
    header = "\t" + "\t".join(f"GPU{index}" for index in range(8)) + "\tCPU Affinity\n"
    with pytest.raises(InputError) as caught:
        topology(header + rows)
    assert len(caught.value.problems) == 4
    assert caught.value.problems[3] == "topo.txt: 5 more rows refused"


def test_other_tables_with_gpu_headings_are_no_matrix() -> None:
    assert read_matrix("       GPU0         GPU1\nGPU0   0            15\nGPU1   15           0\n", "x") == []
    assert read_matrix("GPU0 and GPU1 are tied to NIC0\n", "x") == []


def test_gpu_models_and_bus_ids() -> None:
    table = "|   4  NVIDIA H100 80GB HBM3          On  |   00000000:9D:00.0 Off |                    0 |\n"
    assert [(d.name, d.model, d.bus_id) for d in read_gpu_names(table, "x")[0].devices] == [
        ("GPU4", "NVIDIA H100 80GB HBM3", "0000:9d:00.0")
    ]
    listed = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\nGPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-2)\n"
    assert [(d.name, d.model) for d in read_gpu_names(listed, "x")[0].devices] == [
        ("GPU0", "NVIDIA A100-SXM4-80GB"),
        ("GPU1", "NVIDIA A100-SXM4-80GB"),
    ]
    report = "GPU 0,1: NVIDIA H800\nGPU 0,1 Compute Capability: 9.0\n"
    assert [d.model for d in read_gpu_names(report, "x")[0].devices] == ["NVIDIA H800", "NVIDIA H800"]
