"""Every reference capture is read, or refused for a stated reason; the verdicts were read off the captures by hand."""

from pathlib import Path

import pytest

from dualplan.errors import InputError
from dualplan.spec.topology import read_topology
from dualplan.spec.topology_records import Topology


def mlx(*numbers: int) -> list[str]:
    return [f"mlx5_{number}" for number in numbers]


AZURE_NICS = [f"010{n}:00:00.0" for n in range(1, 9)]
AWS_NICS = [f"0000:{bus}:1b.0" for bus in ("10", "20", "90", "a0")]
ASUS_NICS = [f"0000:{bus}:00.{port}" for bus in ("21", "81", "82") for port in (0, 1)]

# file: (GPUs, compute, storage, undecided, GPU and NIC under one switch)
CASES: dict[str, tuple[int, list[str], list[str], list[str], bool | None]] = {
    "gb200_nvl72_ansi_container.txt": (4, [], [], mlx(0, 1, 2, 3, 4, 5), False),
    "h100_6nic_ibstat_nccl1591.txt": (8, ["NIC0", "NIC1"], [], ["NIC2", "NIC3", "NIC4", "NIC5"], False),
    "h100_hgx_8nic_sglang_check_env.txt": (8, mlx(*range(8)), [], [], True),
    "h100_ibdev2netdev_imbue4.txt": (0, [], [], mlx(*range(12)), None),
    "h100_sxm_8gpu_no_nic.txt": (8, [], [], [], None),
    "hgx_nv18_9nic_mlx5_bond0_storage.txt": (8, mlx(0, 3, 4, 5, 6, 7, 8, 9), ["mlx5_bond_0"], [], True),
    "old_driver_4gpu_mlx5_columns.txt": (4, [], [], mlx(0, 1, 2, 3), False),
    "pcie_4x_rtx6000ada_asus_esc8000a_lspci_tv.txt": (4, [], [], ASUS_NICS, False),
    "pcie_4x_rtx6000ada_asus_esc8000a_topo.txt": (4, [], [], mlx(0, 1, 2, 3), False),
    "pcie_6gpu_ansi_no_nic.txt": (6, [], [], [], None),
    "rtx4090_8gpu_pcie_2nic_gpuallocator17.txt": (8, [], [], ["NIC0", "NIC1"], False),
    "vm_1gpu_phb_kvm.txt": (1, [], [], ["mlx5_0"], None),
    "xml_aws_p4d-24xl-topo.xml": (8, AWS_NICS, [], [], True),
    "xml_azure_ndv5-topo.xml": (8, AZURE_NICS, [], [], True),
}


def read(folder: Path, *names: str) -> Topology:
    return read_topology([(name, (folder / "topo" / name).read_text(encoding="utf-8")) for name in names])


@pytest.mark.parametrize("name", CASES)
def test_verdict(shared_cases: Path, name: str) -> None:
    topology = read(shared_cases, name)
    gpus, compute, storage, undecided, same_switch = CASES[name]
    assert len(topology.gpus) == gpus
    assert [nic.name for nic in topology.of_kind("compute")] == compute
    assert [nic.name for nic in topology.of_kind("storage")] == storage
    assert [nic.name for nic in topology.of_kind("undecided")] == undecided
    assert topology.same_switch is same_switch
    assert all(nic.reason for nic in topology.nics)
    assert topology.same_switch_reason


def test_glued_row_is_refused_and_not_shifted(shared_cases: Path) -> None:
    with pytest.raises(InputError, match=r'head\.txt:2: row GPU0 refused: "NODENODE" is cells glued'):
        read(shared_cases, "hgx_nv18_36nic_sriov_glued_columns_head.txt")


def test_every_case_is_covered(shared_cases: Path) -> None:
    names = {path.name for path in (shared_cases / "topo").iterdir()} - {"README.md"}
    assert names == {*CASES, "hgx_nv18_36nic_sriov_glued_columns_head.txt"}


def test_empty_cpu_affinity_does_not_take_the_numa_node(shared_cases: Path) -> None:
    gpus = read(shared_cases, "gb200_nvl72_ansi_container.txt").gpus
    assert [(gpu.cpu_affinity, gpu.numa) for gpu in gpus] == [("0-35", "0"), ("0-35", "0"), (None, "1"), (None, "1")]


def test_nvlinks(shared_cases: Path) -> None:
    links = read(shared_cases, "old_driver_4gpu_mlx5_columns.txt").links
    assert [(link.first, link.second, link.kind, link.count) for link in links] == [
        ("GPU0", "GPU1", "NVLink", 3),
        ("GPU2", "GPU3", "NVLink", 3),
    ]
    assert {link.count for link in read(shared_cases, "h100_hgx_8nic_sglang_check_env.txt").links} == {18}


def test_partial_capture_says_what_is_missing(shared_cases: Path) -> None:
    topology = read(shared_cases, "h100_6nic_ibstat_nccl1591.txt")
    notes = " ".join(line for capture in topology.captures for line in capture.notes)
    assert "partial capture: no row for GPU3-GPU7, NIC0-NIC5" in notes
    assert topology.nics[2].reason == "its relation to GPU3-GPU7 is not in the capture"


def test_ports_without_a_legend_are_not_joined_by_number(shared_cases: Path) -> None:
    topology = read(shared_cases, "h100_6nic_ibstat_nccl1591.txt")
    assert all(nic.device.rate is None for nic in topology.nics)
    assert any("mlx5_5 cannot be matched" in note for note in topology.notes)


def test_pcie_of_the_azure_file_is_gen5_x16(shared_cases: Path) -> None:
    topology = read(shared_cases, "xml_azure_ndv5-topo.xml")
    # 32 GT/s x 16 lanes / 8 bits x 128/130 = 63.0 GB/s, as the list of machines has it for Gen5 x16
    assert [uplink.rate for uplink in topology.uplinks] == [pytest.approx(63.015e9, rel=1e-4)] * 8
    assert topology.uplinks[0].devices == ("0001:00:00.0", "0101:00:00.0")
    assert [gpu.numa for gpu in topology.gpus] == ["0"] * 4 + ["1"] * 4


def test_two_gpus_and_a_nic_share_an_uplink_on_p4d(shared_cases: Path) -> None:
    topology = read(shared_cases, "xml_aws_p4d-24xl-topo.xml")
    assert topology.uplinks[0].devices == ("0000:10:1b.0", "0000:10:1c.0", "0000:10:1d.0")
    assert topology.uplinks[0].rate == pytest.approx(15.75e9, rel=1e-3)  # 8 GT/s x 16 / 8 x 128/130
    assert "8 GPUs share 4" in topology.same_switch_reason


def test_lspci_shows_both_ports_of_a_card_below_one_root_port(shared_cases: Path) -> None:
    topology = read(shared_cases, "pcie_4x_rtx6000ada_asus_esc8000a_lspci_tv.txt")
    assert [(uplink.devices, uplink.through) for uplink in topology.uplinks] == [
        (("0000:21:00.0", "0000:21:00.1"), "0000:20:03.1"),
        (("0000:81:00.0", "0000:81:00.1"), "0000:80:01.1"),
        (("0000:82:00.0", "0000:82:00.1"), "0000:80:05.1"),
    ]
    assert [gpu.bus_id for gpu in topology.gpus] == [f"0000:{bus}:00.0" for bus in ("01", "41", "c1", "e1")]
    assert {gpu.model for gpu in topology.gpus} == {"RTX 6000 Ada Generation"}
    assert topology.refused == ()


def test_lspci_beside_a_matrix_counts_no_device_twice(shared_cases: Path) -> None:
    topology = read(
        shared_cases,
        "pcie_4x_rtx6000ada_asus_esc8000a_topo.txt",
        "pcie_4x_rtx6000ada_asus_esc8000a_lspci_tv.txt",
    )
    assert [gpu.key for gpu in topology.gpus] == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert [nic.name for nic in topology.nics] == mlx(0, 1, 2, 3)
    assert any("ibdev2netdev -v" in note for note in topology.notes)


def test_matrices_of_two_machines_are_refused(shared_cases: Path) -> None:
    with pytest.raises(InputError, match=r"differs from that of .*one machine at a time"):
        read(shared_cases, "h100_hgx_8nic_sglang_check_env.txt", "gb200_nvl72_ansi_container.txt")
