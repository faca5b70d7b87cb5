"""Which NIC is compute, storage or undecided, and whether the paper's assumption on PCIe switches holds."""

import pytest

from dualplan.errors import InputError
from dualplan.spec.topology import read_topology
from dualplan.spec.topology_kinds import decide
from dualplan.spec.topology_records import Topology


def matrix(*rows: str, extra: str = "") -> str:
    """A matrix of GPU rows given as the words to the NICs, mlx5 columns; GPUs are tied by SYS."""
    count = len(rows)
    nics = len(rows[0].split())
    lines = [
        "\t" + "\t".join([*(f"GPU{i}" for i in range(count)), *(f"mlx5_{i}" for i in range(nics))]) + "\tCPU Affinity"
    ]
    for index, words in enumerate(rows):
        own = ["X" if index == other else "SYS" for other in range(count)]
        lines.append("\t".join([f"GPU{index}", *own, *words.split(), "0-31"]))
    return "\n".join(lines) + "\n" + extra


def kinds(topology: Topology) -> dict[str, str]:
    return {nic.name: nic.kind for nic in topology.nics}


def read(*texts: str) -> Topology:
    return read_topology([(f"{index}.txt", text) for index, text in enumerate(texts)])


def port(name: str, rate: int, layer: str = "InfiniBand", state: str = "Active") -> str:
    return f"CA '{name}'\n\tPort 1:\n\t\tState: {state}\n\t\tRate: {rate}\n\t\tLink layer: {layer}\n"


def test_one_to_one_and_a_storage_nic() -> None:
    topology = read(matrix("PIX SYS NODE", "SYS PXB SYS"))
    assert kinds(topology) == {"mlx5_0": "compute", "mlx5_1": "compute", "mlx5_2": "storage"}
    assert topology.nics[0].reason == "PIX to GPU0, one to one"
    assert topology.nics[2].reason == "no PIX or PXB to any GPU (NODE to GPU0, SYS to GPU1), while other NICs have one"
    assert topology.same_switch is True


def test_two_gpus_and_two_nics_a_switch() -> None:
    # DGX A100: two GPUs and two NICs below one switch, and two storage NICs far from all
    topology = read(matrix("PXB PXB SYS SYS SYS", "PXB PXB SYS SYS SYS", "SYS SYS PXB PXB SYS", "SYS SYS PXB PXB SYS"))
    assert kinds(topology) == {
        "mlx5_0": "compute",
        "mlx5_1": "compute",
        "mlx5_2": "compute",
        "mlx5_3": "compute",
        "mlx5_4": "storage",
    }
    assert topology.same_switch is True
    assert ("GPU0", "GPU1", "mlx5_0", "mlx5_1") in [uplink.devices for uplink in topology.uplinks]


def test_fewer_nics_than_gpus() -> None:
    # as on a machine with 8 A40: one NIC shared by two GPUs of a socket, two others far from it
    topology = read(matrix("NODE SYS", "PIX SYS", "PIX SYS", "SYS PIX"))
    assert kinds(topology) == {"mlx5_0": "compute", "mlx5_1": "compute"}
    assert topology.same_switch is False
    assert topology.same_switch_reason == "GPU0 has no compute NIC below the same PCIe switch"


def test_crowded_switch_is_left_to_the_user() -> None:
    # a dual-port card beside the compute NIC of GPU0: the matrix cannot tell the three apart
    topology = read(matrix("PIX PIX PIX NODE", "NODE NODE NODE PIX"))
    assert kinds(topology) == dict.fromkeys(("mlx5_0", "mlx5_1", "mlx5_2"), "undecided") | {"mlx5_3": "compute"}
    assert "one of 3 NICs below the switch of GPU0; 1 would be usual" in topology.nics[0].reason
    assert topology.same_switch is True


def test_ports_settle_a_crowded_switch() -> None:
    ports = port("mlx5_0", 400) + port("mlx5_1", 25, "Ethernet") + port("mlx5_2", 25, "Ethernet") + port("mlx5_3", 400)
    topology = read(matrix("PIX PIX PIX NODE", "NODE NODE NODE PIX"), ports)
    assert kinds(topology) == {
        "mlx5_0": "compute",
        "mlx5_1": "undecided",
        "mlx5_2": "undecided",
        "mlx5_3": "compute",
    }
    alike = ports.replace("Rate: 25", "Rate: 400").replace("Ethernet", "InfiniBand")
    assert kinds(read(matrix("PIX PIX PIX NODE", "NODE NODE NODE PIX"), alike))["mlx5_0"] == "undecided"


def test_virtual_functions_of_one_card_are_left_to_the_user() -> None:
    topology = read(matrix("PIX PIX PIX PIX PIX SYS SYS SYS SYS SYS", "SYS SYS SYS SYS SYS PIX PIX PIX PIX PIX"))
    assert set(kinds(topology).values()) == {"undecided"}
    assert "SR-IOV" in topology.nics[0].reason
    # four NICs a GPU, as on AWS p5, are taken as they are
    assert set(kinds(read(matrix("PIX PIX PIX PIX SYS", "SYS SYS SYS SYS PIX"))).values()) >= {"compute"}


@pytest.mark.parametrize("rows", [("NODE NODE", "NODE NODE"), ("NODE SYS", "SYS NODE"), ("SYS PHB", "SYS SYS")])
def test_without_a_common_switch_nothing_is_decided(rows: tuple[str, ...]) -> None:
    topology = read(matrix(*rows))
    assert set(kinds(topology).values()) == {"undecided"}
    assert topology.same_switch is False


def test_virtual_machines_hide_their_host() -> None:
    assert read(matrix("PHB PHB", "PHB PHB")).same_switch is None
    guest = read(matrix("NODE SYS", "SYS NODE", extra="\nHypervisor vendor:: Microsoft\n"))
    assert (guest.same_switch, guest.hypervisor) == (None, "Microsoft")
    assert "Microsoft" in guest.same_switch_reason
    # a guest that shows switches is believed
    passed = read(matrix("PIX PHB SYS", "PHB PIX SYS", extra="\nHypervisor vendor: KVM\n"))
    assert passed.same_switch is True
    assert kinds(passed) == {"mlx5_0": "compute", "mlx5_1": "compute", "mlx5_2": "storage"}


def test_storage_nic_without_a_link_is_left_to_the_user() -> None:
    ports = port("mlx5_0", 400) + port("mlx5_1", 10, state="Down")
    topology = read(matrix("PIX SYS"), ports)
    assert kinds(topology) == {"mlx5_0": "compute", "mlx5_1": "undecided"}
    assert "its port is Down" in topology.nics[1].reason
    # a compute NIC is told by its wiring, so a missing cable does not change what it is for
    assert kinds(read(matrix("PIX SYS"), port("mlx5_0", 10, state="Down")))["mlx5_0"] == "compute"


def test_rates_are_joined_by_name() -> None:
    topology = read(matrix("PIX SYS"), port("mlx5_0", 400) + port("mlx5_1", 200, "Ethernet"))
    assert [(nic.device.rate, nic.device.rate_source) for nic in topology.nics] == [
        (50e9, "ibstat, 1.txt"),
        (25e9, "ibstat, 1.txt"),
    ]


def test_lspci_is_joined_by_the_bus_ids_of_other_captures() -> None:
    smi = "".join(
        f"|   {index}  NVIDIA H100 80GB HBM3          On  |   00000000:{bus}:00.0 Off |                    0 |\n"
        for index, bus in enumerate(("19", "29"))
    )
    devices = "0000:18:00.0 mlx5_0 (MT4129 - X) fw 1 port 1 (ACTIVE) ==> ib0 (Up)\n"
    devices += "0000:28:00.0 mlx5_1 (MT4129 - X) fw 1 port 1 (ACTIVE) ==> ib1 (Up)\n"
    tree = (
        "-+-[0000:15]---01.0-[16-19]----00.0-[17-19]--+-00.0-[18]----00.0  Mellanox Technologies [ConnectX-7]\n"
        " |                                           \\-01.0-[19]----00.0  NVIDIA Corporation GH100 [H100]\n"
        " \\-[0000:25]---01.0-[26-29]----00.0-[27-29]--+-00.0-[28]----00.0  Mellanox Technologies [ConnectX-7]\n"
        "                                             \\-01.0-[29]----00.0  NVIDIA Corporation GH100 [H100]\n"
    )
    topology = read(smi, devices, tree)
    assert [gpu.key for gpu in topology.gpus] == ["GPU0", "GPU1"]
    assert kinds(topology) == {"mlx5_0": "compute", "mlx5_1": "compute"}
    assert [uplink.devices for uplink in topology.uplinks] == [("GPU0", "mlx5_0"), ("GPU1", "mlx5_1")]
    assert topology.same_switch is True
    assert topology.notes == ()


def test_a_switch_that_one_capture_shows_is_there_and_the_conflict_is_named() -> None:
    xml = (
        '<system version="1"><cpu numaid="0"><pci busid="0000:15:00.0" class="0x060400">'
        '<pci busid="0000:17:00.0" class="0x030200"><gpu dev="0"/></pci>'
        '<pci busid="0000:18:00.0" class="0x020700"><nic><net name="mlx5_0" speed="400000" gdr="1"/></nic></pci>'
        "</pci></cpu></system>"
    )
    topology = read(matrix("NODE"), xml)
    assert kinds(topology) == {"mlx5_0": "compute"}
    assert "disagree on a common PCIe switch for 1 pairs" in topology.notes[0]


def test_the_user_decides() -> None:
    topology = read(matrix("NODE NODE NODE", "NODE NODE NODE"))
    decided = decide(topology, compute=["mlx5_0", "mlx5_1"], storage=["mlx5_2"])
    assert kinds(decided) == {"mlx5_0": "compute", "mlx5_1": "compute", "mlx5_2": "storage"}
    assert decided.nics[2].reason == "given with --storage"
    assert decided.same_switch is False


def test_the_user_can_overrule_and_the_assumption_follows() -> None:
    topology = decide(read(matrix("PIX SYS", "SYS PIX")), storage=["mlx5_1"])
    assert kinds(topology) == {"mlx5_0": "compute", "mlx5_1": "storage"}
    assert topology.same_switch is False
    assert topology.same_switch_reason == "GPU1 has no compute NIC below the same PCIe switch"


def test_unknown_and_contradicting_names() -> None:
    topology = read(matrix("NODE NODE"))
    with pytest.raises(InputError) as caught:
        decide(topology, compute=["mlx5_0", "mlx5_7"], storage=["mlx5_0"])
    assert caught.value.problems == (
        '--compute: no NIC "mlx5_7" in the captures (did you mean mlx5_1?)',
        "--storage: mlx5_0 is also given to --compute",
    )


def test_every_bad_text_is_named() -> None:
    with pytest.raises(InputError) as caught:
        read("", "just a note\n", matrix("PIX"))
    assert caught.value.problems[0] == "0.txt: is empty"
    assert caught.value.problems[1].startswith("1.txt: no machine description recognised in it (known: nvidia-smi topo")
    assert len(caught.value.problems) == 2
