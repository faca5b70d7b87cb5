"""ibstat, ibstatus, ibdev2netdev and rocm-smi."""

import pytest

from dualplan.errors import InputError
from dualplan.spec.topology import read_topology
from dualplan.spec.topology_ports import read_ibdev2netdev, read_ibstat
from dualplan.spec.topology_records import Device
from dualplan.spec.topology_rocm import read_rocm


def adapter(name: str, *ports: tuple[str, int, str]) -> str:
    lines = [f"CA '{name}'", "\tCA type: MT4129", f"\tNumber of ports: {len(ports)}", "\tFirmware version: 28.41.1000"]
    for number, (state, rate, layer) in enumerate(ports, start=1):
        lines += [f"\tPort {number}:", f"\t\tState: {state}", "\t\tPhysical state: LinkUp", f"\t\tRate: {rate}"]
        lines += ["\t\tBase lid: 7", "\t\tPort GUID: 0x01", f"\t\tLink layer: {layer}"]
    return "\n".join(lines) + "\n"


def only(text: str) -> Device:
    (capture,) = read_ibstat(text, "ib.txt")
    (device,) = capture.devices
    return device


def test_rate_state_and_link_layer() -> None:
    device = only("$ ibstat\n" + adapter("mlx5_0", ("Active", 400, "InfiniBand")))
    assert device.name == "mlx5_0"
    assert device.rate == 50e9  # 400 Gb/s / 8
    assert (device.state, device.link_layer, device.model) == ("Active", "InfiniBand", "MT4129")
    assert device.rate_source == "ibstat, ib.txt"


def test_port_that_is_down_has_no_rate() -> None:
    device = only(adapter("mlx5_4", ("Down", 10, "Ethernet")))
    assert (device.rate, device.rate_source, device.state) == (None, None, "Down")


def test_two_active_ports_add_up_and_a_dead_one_does_not() -> None:
    assert only(adapter("mlx5_0", ("Active", 200, "InfiniBand"), ("Active", 200, "InfiniBand"))).rate == 50e9
    assert only(adapter("mlx5_0", ("Active", 200, "InfiniBand"), ("Down", 10, "InfiniBand"))).rate == 25e9


def test_capture_cut_before_the_rate() -> None:
    (capture,) = read_ibstat("CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n", "ib.txt")
    assert capture.devices[0].rate is None
    assert "its rate is unknown" in capture.notes[0]


def test_ibstatus() -> None:
    text = (
        "Infiniband device 'mlx5_3' port 1 status:\n\tdefault gid:\t fe80::1\n\tstate:\t\t 4: ACTIVE\n"
        "\tphys state:\t 5: LinkUp\n\trate:\t\t 200 Gb/sec (4X HDR)\n\tlink_layer:\t InfiniBand\n"
    )
    device = only(text)
    assert (device.name, device.rate, device.state, device.link_layer) == ("mlx5_3", 25e9, "Active", "InfiniBand")


def test_ibdev2netdev_plain_and_aligned() -> None:
    text = "mlx5_0 port 1 ==> ib0 (Up)\nmlx5_10  port  1  ==>  ibp204s0       (Down)  # spare\n"
    (capture,) = read_ibdev2netdev(text, "x")
    assert [(d.name, d.netdev, d.bus_id, d.state) for d in capture.devices] == [
        ("mlx5_0", "ib0", None, None),
        ("mlx5_10", "ibp204s0", None, None),
    ]


def test_ibdev2netdev_verbose_gives_bus_ids() -> None:
    text = "0000:18:00.0 mlx5_2 (MT4129 - MCX75310AAS-NEAT) ConnectX-7 fw 28.39.1002 port 1 (ACTIVE) ==> ibp24s0 (Up)\n"
    (capture,) = read_ibdev2netdev(text, "x")
    assert [(d.name, d.netdev, d.bus_id) for d in capture.devices] == [("mlx5_2", "ibp24s0", "0000:18:00.0")]


ROCM = """
============================ ROCm System Management Interface ============================
================================ Weight between two GPUs =================================
       GPU0         GPU1
GPU0   0            15
GPU1   15           0

================================= Hops between two GPUs ==================================
       GPU0         GPU1
GPU0   0            1
GPU1   1            0

=============================== Link Type between two GPUs ===============================
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0

======================================= Numa Nodes =======================================
GPU[0]\t\t: (Topology) Numa Node: 0
GPU[0]\t\t: (Topology) Numa Affinity: 0
GPU[1]\t\t: (Topology) Numa Node: 1
GPU[1]\t\t: (Topology) Numa Affinity: 1
================================== End of ROCm SMI Log ===================================
"""


@pytest.mark.parametrize("text", [ROCM, ROCM.replace("[0]", " 0 ").replace("[1]", " 1 ")], ids=["new", "old"])
def test_rocm(text: str) -> None:
    topology = read_topology([("rocm.txt", text)])
    assert [(gpu.key, gpu.numa) for gpu in topology.gpus] == [("GPU0", "0"), ("GPU1", "1")]
    (link,) = topology.links
    assert (link.first, link.second, link.kind, link.hops, link.weight) == ("GPU0", "GPU1", "XGMI", 1, 15)
    assert topology.same_switch is None
    assert topology.nics == ()


def test_rocm_row_with_a_missing_cell_is_refused() -> None:
    (capture,) = read_rocm(ROCM.replace("GPU1   XGMI         0", "GPU1   XGMI"), "r")
    assert capture.refused == ("r:16: row GPU1 refused: not one link type for each of 2 GPUs",)
    assert capture.links[0].kind == "XGMI"


def test_rocm_titles_without_rows_are_refused() -> None:
    with pytest.raises(InputError, match="rocm-smi tables without a row"):
        read_rocm("==== Weight between two GPUs ====\n", "r")
