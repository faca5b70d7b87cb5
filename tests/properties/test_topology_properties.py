"""Readers of machine captures against random machines and against damaged or arbitrary text."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from dualplan.errors import InputError
from dualplan.spec.topology import read_topology
from dualplan.spec.topology_profile import profile
from dualplan.spec.topology_records import Topology, pair

FAR = ("PHB", "NODE", "SYS")


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[str], list[str], dict[tuple[str, str], str]]:
    """GPU names, NIC names and the word of every pair."""
    gpus = [f"GPU{index}" for index in range(draw(st.integers(1, 6)))]
    numbers = draw(st.lists(st.integers(0, 40), min_size=0, max_size=6, unique=True))
    nics = [f"mlx5_{number}" for number in numbers]
    if draw(st.booleans()):
        nics.append("mlx5_bond_0")
    words = {}
    names = gpus + nics
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            options = ("PIX", "PXB", *FAR) + (("NV18", "NV4") if second in gpus else ())
            words[pair(first, second)] = draw(st.sampled_from(options))
    return gpus, nics, words


def render(gpus: list[str], nics: list[str], words: dict[tuple[str, str], str], *, tabs: bool, legend: bool) -> str:
    """The matrix as nvidia-smi prints it, with a NIC legend or, as old drivers did, with device names as columns."""
    names = gpus + nics
    titles = gpus + ([f"NIC{index}" for index in range(len(nics))] if legend else nics)
    rows = [["", *titles, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]]
    for name, title in zip(names, titles, strict=True):
        cells = [" X " if name == other else words[pair(name, other)] for other in names]
        rows.append([title, *cells, *(["0-31,64-95", "0", "", "N/A"] if name in gpus else [])])
    text = "\n".join(("\t" if tabs else "     ").join(row) for row in rows) + "\n"
    if legend:
        text += "\nNIC Legend:\n\n" + "".join(f"  NIC{index}: {nic}\n" for index, nic in enumerate(nics))
    return text


def relations(topology: Topology) -> dict[tuple[str, str], str]:
    return {pair(nic.name, gpu): word for nic in topology.nics for gpu, word in nic.affinity.items()}


@given(machines(), st.booleans(), st.booleans())
def test_matrix_round_trip(
    machine: tuple[list[str], list[str], dict[tuple[str, str], str]], tabs: bool, legend: bool
) -> None:
    gpus, nics, words = machine
    topology = read_topology([("topo", render(gpus, nics, words, tabs=tabs, legend=legend))])
    assert [gpu.key for gpu in topology.gpus] == gpus
    assert {nic.name for nic in topology.nics} == set(nics)
    assert relations(topology) == {key: word for key, word in words.items() if len({*key} & {*gpus}) == 1}
    assert topology.refused == ()
    assert all((gpu.cpu_affinity, gpu.numa) == ("0-31,64-95", "0") for gpu in topology.gpus)
    assert {(link.first, link.second): link.count for link in topology.links} == {
        key: int(word[2:]) for key, word in words.items() if word.startswith("NV")
    }


@given(machines())
def test_kinds_follow_the_words(machine: tuple[list[str], list[str], dict[tuple[str, str], str]]) -> None:
    gpus, nics, words = machine
    topology = read_topology([("topo", render(gpus, nics, words, tabs=True, legend=True))])
    near = {nic: [gpu for gpu in gpus if words[pair(nic, gpu)] in ("PIX", "PXB")] for nic in nics}
    for nic in topology.nics:
        assert nic.kind in ("compute", "storage", "undecided")
        if nic.kind == "compute":
            assert near[nic.name]
        if nic.kind == "storage":
            assert not near[nic.name]
            assert any(near.values())
        if not any(near.values()):
            assert nic.kind == "undecided"
    if topology.same_switch:
        assert all(any(gpu in gpus_near for gpus_near in near.values()) for gpu in gpus)
    if topology.same_switch is False:
        assert any(all(gpu not in gpus_near for gpus_near in near.values()) for gpu in gpus)


@given(machines(), st.data())
def test_glued_cells_never_shift_a_row(
    machine: tuple[list[str], list[str], dict[tuple[str, str], str]], data: st.DataObject
) -> None:
    gpus, nics, words = machine
    if len(gpus) + len(nics) < 2:
        return
    lines = render(gpus, nics, words, tabs=True, legend=True).split("\n")
    index = data.draw(st.integers(1, len(gpus) + len(nics)))
    cells = lines[index].split("\t")
    at = data.draw(st.integers(1, len(gpus) + len(nics) - 1))
    cells[at : at + 2] = [cells[at].strip() + cells[at + 1].strip()]
    lines[index] = "\t".join(cells)
    topology = read_topology([("topo", "\n".join(lines))])
    assert len(topology.refused) == 1
    for key, word in relations(topology).items():
        assert words[key] == word


@given(machines(), st.lists(st.integers(1, 12), max_size=5))
def test_missing_rows_leave_nothing_wrong(
    machine: tuple[list[str], list[str], dict[tuple[str, str], str]], gone: list[int]
) -> None:
    gpus, nics, words = machine
    lines = render(gpus, nics, words, tabs=True, legend=True).split("\n")
    rows = len(gpus) + len(nics)
    kept = [line for index, line in enumerate(lines) if index not in gone or index > rows]
    try:
        topology = read_topology([("topo", "\n".join(kept))])
    except InputError:
        assert set(range(1, rows + 1)) <= set(gone)
        return
    assert len(topology.gpus) == len(gpus)
    assert all(words[key] == word for key, word in relations(topology).items())
    for nic in topology.of_kind("storage"):
        assert len(nic.affinity) == len(gpus)


SAMPLES = (
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV12\tPXB\tSYS\t0-31\t0\n"
    "GPU1\tNV12\t X \tSYS\tPXB\t32-63\t1\nNIC0\tPXB\tSYS\t X \tSYS\nNIC Legend:\n  NIC0: mlx5_0\n",
    "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n",
    "0000:18:00.0 mlx5_0 (MT4129 - X) fw 1 port 1 (ACTIVE) ==> ib0 (Up)\nmlx5_1 port 1 ==> ib1 (Down)\n",
    "-+-[0000:15]-+-01.0-[16-19]----00.0-[17-19]--+-00.0-[18]----00.0  Mellanox Technologies [ConnectX-7]\n"
    " |           |                               \\-01.0-[19]----00.0  NVIDIA Corporation GH100 [H100]\n"
    " \\-[0000:25]---01.0-[26]----00.0  NVIDIA Corporation GH100 [H100]\n",
    '<system version="1"><cpu numaid="0">'
    '<pci busid="0000:15:00.0" class="0x060400" link_speed="32.0 GT/s" link_width="16">'
    '<pci busid="0000:17:00.0" class="0x030200">'
    '<gpu dev="0"><nvlink target="0000:c1:00.0" count="9" tclass="0x068000"/></gpu></pci>'
    '<pci busid="0000:18:00.0" class="0x020700"><nic><net name="mlx5_0" speed="400000"/></nic></pci></pci>'
    "</cpu></system>",
    "== Weight between two GPUs ==\n  GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\nGPU[0]\t: (Topology) Numa Node: 0\n",
    "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:9D:00.0 Off |  0 |\nGPU 1: NVIDIA A100 (UUID: GPU-2)\n",
    "15:01.0 PCI bridge: Intel\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\nHypervisor vendor: KVM\n",
)
ALPHABET = "\t\n\r \x1b[]()<>/\\|+-=\"':.,_#&;XGPUNICVSYHBDEOA0123456789abcdefmlxport"


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Captures joined, with pieces cut out, doubled and typed over."""
    text = "".join(draw(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 6))):
        first = draw(st.integers(0, len(text)))
        last = draw(st.integers(first, min(len(text), first + 30)))
        middle = draw(st.one_of(st.just(""), st.text(ALPHABET, max_size=12), st.just(text[first:last] * 2)))
        text = text[:first] + middle + text[last:]
    return text


def check(texts: list[str]) -> None:
    """Reading either says in one line each what is wrong, or gives a machine that can be written as a profile."""
    try:
        topology = read_topology([(f"file{index}", text) for index, text in enumerate(texts)])
    except InputError as error:
        assert error.problems
        assert all(line and "\n" not in line for line in error.problems)
        return
    names = [nic.name for nic in topology.nics]
    assert len(names) == len(set(names))
    assert all(nic.reason for nic in topology.nics)
    assert sum(len(topology.of_kind(kind)) for kind in ("compute", "storage", "undecided")) == len(names)
    assert re.search(r"^name: ", profile(topology, "node").text, re.MULTILINE)


@settings(max_examples=300)
@given(st.lists(damaged(), min_size=1, max_size=3))
def test_damaged_captures(texts: list[str]) -> None:
    check(texts)


@given(st.lists(st.one_of(st.text(max_size=200), st.text(ALPHABET, max_size=300)), min_size=1, max_size=2))
def test_arbitrary_text(texts: list[str]) -> None:
    check(texts)
