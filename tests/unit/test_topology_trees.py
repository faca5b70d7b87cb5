"""PCI trees: lspci -tv, lspci -vv and NCCL topology XML."""

import pytest

from dualplan.errors import InputError
from dualplan.spec.topology import read_topology
from dualplan.spec.topology_lspci import read_lspci_links, read_lspci_tree
from dualplan.spec.topology_records import Capture, PcieLink, bus_id, pair
from dualplan.spec.topology_xml import read_nccl_xml

GPU = "NVIDIA Corporation GH100 [H100 SXM5 80GB]"
NIC = "Mellanox Technologies MT2910 Family [ConnectX-7]"

# One switch below 0000:15:01.0 with a GPU, a NIC and a second switch that holds another GPU and NIC.
TREE = rf"""
-+-[0000:15]-+-00.0  Intel Corporation Device 09a2
 |           \-01.0-[16-1d]----00.0-[17-1d]--+-00.0-[18]----00.0  {NIC}
 |                                           +-01.0-[19]----00.0  {GPU}
 |                                           \-02.0-[1a-1d]----00.0-[1b-1d]--+-00.0-[1c]----00.0  {NIC}
 |                                                                           \-01.0-[1d]----00.0  {GPU}
 +-[0000:37]-+-00.0  Intel Corporation Device 09a2
 |           +-01.0-[38]----00.0  {NIC}
 |           \-03.0-[39]--+-00.0  Intel Corporation Ethernet Controller X710 for 10GBASE-T
 |                        \-00.1  Intel Corporation Ethernet Controller X710 for 10GBASE-T
 \-[0000:00]-+-00.0  Intel Corporation Device 09a2
             +-1c.0-[01]----00.0  ASPEED Technology, Inc. ASPEED Graphics Family
             \-1d.0-[02]----00.0  NVIDIA Corporation Device 22a3 (NVSwitch)
"""


def tree(text: str) -> Capture:
    (capture,) = read_lspci_tree(text, "lspci.txt")
    return capture


def relation(capture: Capture, first: str, second: str) -> str:
    return capture.relations[pair(f"0000:{first}:00.0", f"0000:{second}:00.0")]


def test_words_of_the_matrix_follow_from_the_tree() -> None:
    capture = tree(TREE)
    assert [(d.role, d.bus_id) for d in capture.devices] == [
        ("nic", "0000:18:00.0"),
        ("gpu", "0000:19:00.0"),
        ("nic", "0000:1c:00.0"),
        ("gpu", "0000:1d:00.0"),
        ("nic", "0000:38:00.0"),
        ("nic", "0000:39:00.0"),
        ("nic", "0000:39:00.1"),
    ]
    assert relation(capture, "18", "19") == "PIX"  # two downstream ports of one switch
    assert relation(capture, "1c", "1d") == "PIX"
    assert relation(capture, "19", "1c") == "PXB"  # down through the second switch
    assert relation(capture, "38", "39") == "PHB"  # two ports of one host bridge
    assert relation(capture, "19", "38") == "NODE/SYS"  # another host bridge; lspci does not tell the socket
    assert capture.refused == ()


def test_both_switches_hang_on_one_uplink() -> None:
    (group, card) = tree(TREE).groups
    assert group.devices == ("0000:18:00.0", "0000:19:00.0", "0000:1c:00.0", "0000:1d:00.0")
    assert group.through == "0000:15:01.0"
    assert card.devices == ("0000:39:00.0", "0000:39:00.1")


def test_kinds_from_lspci_alone() -> None:
    topology = read_topology([("lspci.txt", TREE)])
    assert [nic.name for nic in topology.of_kind("compute")] == ["0000:18:00.0", "0000:1c:00.0"]
    assert [nic.name for nic in topology.of_kind("storage")] == ["0000:38:00.0"]
    # an ordinary Ethernet controller may be anything: nvidia-smi would not list it at all
    assert [nic.name for nic in topology.of_kind("undecided")] == ["0000:39:00.0", "0000:39:00.1"]
    assert topology.same_switch is True
    assert {gpu.model for gpu in topology.gpus} == {"H100 SXM5 80GB"}


def test_ids_in_the_names_and_a_single_domain() -> None:
    text = f"-[0000:00]-+-00.0  Host bridge\n           +-01.0-[01]----00.0  {GPU} [10de:2330]\n"
    text += f"           \\-02.0-[02]----00.0  {NIC} [15b3:1021]\n"
    capture = tree(text)
    assert capture.devices[0].model == "H100 SXM5 80GB"
    assert relation(capture, "01", "02") == "PHB"


def test_second_domain() -> None:
    text = f"-[10000:e0]-+-02.0-[e1]----00.0  {NIC}\n            \\-03.0-[e2]----00.0  {NIC}\n"
    assert [d.bus_id for d in tree(text).devices] == ["10000:e1:00.0", "10000:e2:00.0"]


def test_tree_of_a_virtual_machine_tells_nothing() -> None:
    text = f"-+-[0001:00]---00.0  {GPU}\n +-[0002:00]---00.0  {GPU}\n \\-[0101:00]---00.0  {NIC} Virtual Function\n"
    topology = read_topology([("lspci.txt", text)])
    assert len(topology.gpus) == 2
    assert topology.same_switch is None
    assert [nic.kind for nic in topology.nics] == ["undecided"]


def test_line_on_no_branch_is_refused() -> None:
    capture = tree(TREE + f"  +-05.0  {NIC}\n")
    assert capture.refused == (
        "lspci.txt:14: the line hangs on no branch of the tree above (capture it again with: lspci -tv > FILE)",
    )


def test_tree_without_names_is_refused() -> None:
    with pytest.raises(InputError, match="names no GPU and no NIC"):
        tree("-[0000:00]-+-00.0\n           \\-01.1-[01]----00.0\n")


def test_tables_of_other_tools_are_no_tree() -> None:
    assert read_lspci_tree("+-----------+\n| NVIDIA-SMI |\n+-----------+\n- [ ] task\n-[x] done\n", "x") == []


def test_link_status_gives_rates_to_gpus_and_uplinks() -> None:
    status = "0000:15:01.0 PCI bridge: Intel Corporation Device 352a\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n"
    status += "19:00.0 3D controller: NVIDIA Corporation GH100\n"
    status += "\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)\n"
    topology = read_topology([("tree.txt", TREE), ("vv.txt", status)])
    assert topology.pcie["0000:19:00.0"].generation == 4
    assert topology.pcie["0000:19:00.0"].rate == pytest.approx(15.75e9, rel=1e-3)  # 16 GT/s x 8 / 8 x 128/130
    assert topology.uplinks[0].rate == pytest.approx(63.0e9, rel=1e-3)
    assert read_lspci_links("no devices\n", "x") == []


@pytest.mark.parametrize(
    ("speed", "width", "rate"),
    [(8, 16, 15.75e9), (16, 16, 31.5e9), (32, 16, 63.0e9), (64, 16, 121.0e9), (2.5, 1, 0.25e9), (5, 8, 4e9)],
)
def test_pcie_rates(speed: float, width: int, rate: float) -> None:
    assert PcieLink(speed=speed, width=width, source="").rate == pytest.approx(rate, rel=1e-3)


def test_pcie_rate_is_unknown_without_a_width() -> None:
    assert PcieLink(speed=32, width=0, source="").rate is None


def test_bus_ids() -> None:
    assert bus_id("00000000:9D:00.0") == "0000:9d:00.0"
    assert bus_id("9d:00.0") == "0000:9d:00.0"
    assert bus_id("10000:e1:00.0") == "10000:e1:00.0"
    assert bus_id("mlx5_0") is None


def xml(inner: str, attributes: str = 'numaid="0"') -> str:
    return f'<system version="1">\n<cpu {attributes}>\n{inner}</cpu>\n</system>\n'


def pci(address: str, kind: str, inner: str = "", link: str = 'link_speed="32.0 GT/s PCIe" link_width="16"') -> str:
    return f'<pci busid="0000:{address}" class="{kind}" {link}>{inner}</pci>\n'


def gpu(address: str, dev: int, links: str = "") -> str:
    return pci(address, "0x030200", f'<gpu dev="{dev}" sm="90" rank="{dev}" gdr="1">{links}</gpu>')


def nic(address: str, name: str, speed: int = 400000) -> str:
    net = f'<nic><net name="{name}" dev="0" speed="{speed}" port="1" guid="0x1" gdr="1"/></nic>'
    return pci(address, "0x020700", net)


def test_dump_with_names_rates_and_nvswitch() -> None:
    nvlink = '<nvlink target="0000:c1:00.0" count="9" tclass="0x068000"/>'
    nvlink += '<nvlink target="0000:c2:00.0" count="9" tclass="0x068000"/>'
    text = "log line\n" + xml(
        pci("15:00.0", "0x060400", gpu("17:00.0", 0, nvlink) + nic("18:00.0", "mlx5_0"))
        + pci("25:00.0", "0x060400", gpu("27:00.0", 1, nvlink) + nic("28:00.0", "mlx5_1"))
        + nic("30:00.0", "mlx5_9", 200000)
    )
    topology = read_topology([("dump.xml", text)])
    assert [(n.name, n.kind, n.device.rate) for n in topology.nics] == [
        ("mlx5_0", "compute", 50e9),
        ("mlx5_1", "compute", 50e9),
        ("mlx5_9", "storage", 25e9),
    ]
    assert [(link.first, link.second, link.count) for link in topology.links] == [("GPU0", "GPU1", 18)]
    assert topology.same_switch is True


def test_nested_switches_are_pxb_and_other_sockets_sys() -> None:
    near = pci("15:00.0", "0x060400", nic("16:00.0", "mlx5_0") + pci("17:00.0", "0x060400", gpu("18:00.0", 0)))
    text = xml(near).replace("</system>", f'<cpu numaid="1">{nic("80:00.0", "mlx5_1")}</cpu></system>')
    (capture,) = read_nccl_xml(text, "x")
    assert capture.relations[pair("GPU0", "mlx5_0")] == "PXB"
    assert capture.relations[pair("GPU0", "mlx5_1")] == "SYS"


def test_ethernet_of_the_socket_transport_is_not_taken_for_storage() -> None:
    inner = pci("15:00.0", "0x060400", gpu("17:00.0", 0) + nic("18:00.0", "mlx5_0"))
    inner += '<nic><net name="eth0" dev="1" speed="10000" port="0" guid="0x0" gdr="0"/></nic>'
    topology = read_topology([("dump.xml", xml(inner))])
    assert [(n.name, n.kind) for n in topology.nics] == [("eth0", "undecided"), ("mlx5_0", "compute")]


def test_rate_of_a_virtual_bridge_is_not_believed() -> None:
    virtual = 'link_speed="2.5 GT/s PCIe" link_width="1"'
    text = xml(pci("a1:00.0", "0x060400", gpu("a4:00.0", 0) + nic("a3:00.0", "mlx5_7"), virtual))
    assert [uplink.rate for uplink in read_topology([("x", text)]).uplinks] == [None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (xml(gpu("17:00.0", 0))[:-10], r"x:1: the XML ends before </system>"),
        (xml("<pci busid='0000:01:00.0' class='0x030200'>"), r"x:3: is not well-formed XML: mismatched tag"),
        (xml(gpu("17:00.0", 0) + gpu("18:00.0", 0)), "the XML names GPU0 twice"),
        (xml(pci("15:00.0", "0x060400", "")), "the XML names no GPU and no NIC"),
        ('<system>\n<!DOCTYPE a [<!ENTITY b "c">]><cpu/></system>', "x:2: is not well-formed XML"),
        ("<system><cpu>" + "<pci>" * 100 + "</pci>" * 100 + "</cpu></system>", "too deeply nested"),
        (
            xml(gpu("17:00.0", 0), 'numaid="0" host_hash="0x1"').replace(
                "</system>", f'<cpu numaid="0" host_hash="0x2">{gpu("27:00.0", 1)}</cpu></system>'
            ),
            "the XML joins 2 hosts",
        ),
    ],
    ids=["cut", "malformed", "twice", "empty", "doctype", "deep", "hosts"],
)
def test_unusable_xml(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_nccl_xml(text, "x")


def test_other_xml_is_not_recognised() -> None:
    assert read_nccl_xml("<html><body/></html>", "x") == []
    assert read_nccl_xml("systemd <systemd-unit>", "x") == []
