"""Readers of lspci: the tree of ``-tv`` and the link status of ``-vv``."""

from __future__ import annotations

import re

from dualplan.errors import InputError, problem
from dualplan.spec.topology_records import Capture, Device, PcieLink, bus_id, lines
from dualplan.spec.topology_tree import MAX_DEVICES, Leaf, tree_groups, tree_relations
from dualplan.units import plain

_BUS = re.compile(r"\[(?:([0-9a-f]{4,8}):)?([0-9a-f]{2})(?:-[0-9a-f]{2})?\]")
_SLOT = re.compile(r"([0-9a-f]{2}\.[0-7])(?![0-9a-f.])")
_TREE = re.compile(r"[ |]*(?:-?[+\\]-|-)\[[0-9a-f]{2,8}[:\]]|[ |]*[+\\]-[0-9a-f]{2}\.[0-7](?:[- ]|$)")

_NVSWITCH = re.compile(r"NVSwitch|Device (?:1ac[02]|1af1|22a3)\b", re.IGNORECASE)
_GPU_TEXT = re.compile(
    r"NVIDIA Corporation (?!.*(?:Audio|USB|UCSI|Bridge|Switch))"
    r"|\[AMD/ATI\](?!.*Audio).*Instinct|Aqua Vanjaram|Aldebaran|Arcturus"
)
_NIC_TEXT = re.compile(
    r"ConnectX|BlueField|Mellanox Technologies MT|Elastic Fabric Adapter|Elastic Network Adapter|InfiniBand|Omni-Path"
    r"|NetXtreme|\bThor\b|Pollara|Pensando.*Ethernet|Ethernet (?:Controller|Connection|Network)"
    r"|Network Connection|Gigabit|\bGbE\b",
    re.IGNORECASE,
)
_NOT_NIC = re.compile(r"Bridge|SoC|DMA|Management Interface|Crypto|NVMe|Audio|Serial|Non-Volatile", re.IGNORECASE)
_RDMA_TEXT = re.compile(
    r"ConnectX|BlueField|Mellanox|Elastic Fabric|InfiniBand|Omni-Path|\bThor\b|BCM576|Pollara", re.IGNORECASE
)


def read_lspci_tree(text: str, source: str) -> list[Capture]:
    """GPUs and NICs of ``lspci -tv`` by bus id, and which of them share a port of a host bridge.

    The drawing is read by columns: a branch hangs below the bus whose branches start in the same column. A line that
    fits no branch is refused. Raises InputError for a tree without a GPU or NIC, such as one without names (``-t``).
    """
    branches: dict[int, tuple[str, str, tuple[str, ...]]] = {}
    found: dict[str, Leaf] = {}
    refused: list[str] = []
    first = 0
    for number, line in lines(text):
        line = line.rstrip()
        if not _TREE.match(line):
            continue
        branch = _tree_line(line, branches)
        if branch is None:
            refused.append(
                problem(
                    f"{source}:{number}",
                    "the line hangs on no branch of the tree above",
                    "capture it again with: lspci -tv > FILE",
                )
            )
            continue
        first = first or number
        leaf = _leaf(*branch)
        if leaf is not None and found.setdefault(leaf.device.key, leaf) != leaf:
            what = f"{leaf.device.key} stands at two places of the tree"
            raise InputError(f"{source}:{number}", what, "give one machine at a time")
        if len(found) > MAX_DEVICES:
            raise InputError(f"{source}:{number}", f"more than {MAX_DEVICES} GPUs and NICs")
    if not first:
        return []
    leaves = list(found.values())
    if not leaves:
        raise InputError(f"{source}:{first}", "the tree of lspci names no GPU and no NIC", "lspci -tv prints the names")
    notes = []
    relations = tree_relations(leaves, folded=False, other_root="NODE/SYS")
    loose = {leaf.device.key for leaf in leaves if leaf.device.role == "gpu" and not leaf.bridges}
    if loose:
        # a slot is always below a port: without one, a hypervisor made the tree up
        relations = {key: word for key, word in relations.items() if not loose & set(key)}
        notes.append(
            problem(
                f"{source}:{first}",
                f"{len(loose)} GPUs hang on no port: the tree of a virtual machine, not that of its host",
            )
        )
    return [
        Capture(
            form="lspci -tv",
            source=source,
            line=first,
            devices=tuple(leaf.device for leaf in leaves),
            relations=relations,
            groups=tree_groups(leaves, f"lspci -tv, {source}"),
            refused=tuple(refused),
            notes=tuple(notes),
        )
    ]


def _tree_line(
    line: str, branches: dict[int, tuple[str, str, tuple[str, ...]]]
) -> tuple[str, tuple[str, ...], str, str] | None:
    """Root, bridges, bus id and text of the last device of a line; ``branches`` gains the branches that start in it.

    The state on the way is the bus that the next slot sits on: (host bridge, bus number with domain, bridges above).
    """
    root, bus, bridges, address = "", "", tuple[str, ...](), ""
    at = len(line) - len(line.lstrip(" |"))
    start = at
    while at < len(line):
        character = line[at]
        number, slot = _BUS.match(line, at), _SLOT.match(line, at)
        if character in "+\\" and line[at + 1 : at + 2] == "-":
            if bus:
                branches[at] = (root, bus, bridges)
            elif at in branches:
                root, bus, bridges = branches[at]
            elif at != start and line[start] != "-":
                return None
            at += 1
        elif character == "-":
            at += 1
        elif number:
            domain = (number[1] or (bus or "0000").rpartition(":")[0] or "0000").lstrip("0").rjust(4, "0")
            if address:
                bridges = (*bridges, address)
            bus, address = f"{domain}:{number[2]}", ""
            root = root or bus
            at = number.end()
        elif slot and bus:
            address = f"{bus}:{slot[1]}"
            at = slot.end()
        else:
            break
    for column in [column for column in branches if column > at]:
        del branches[column]
    if not bus:
        return None
    return root, bridges, address, line[at:].strip()


def _leaf(root: str, bridges: tuple[str, ...], address: str, text: str) -> Leaf | None:
    if not address or not text:
        return None
    if _GPU_TEXT.search(text) and not _NVSWITCH.search(text):
        model = re.search(r"\[([^\[\]:]{1,60})\]", text.replace("[AMD/ATI]", ""))
        return Leaf(Device(role="gpu", bus_id=address, model=model[1] if model else None), root, bridges)
    if _NIC_TEXT.search(text) and not _NOT_NIC.search(text):
        return Leaf(
            Device(role="nic", bus_id=address, model=text[:80], rdma=bool(_RDMA_TEXT.search(text))), root, bridges
        )
    return None


# ---------------------------------------------------------------- lspci -vv

_FUNCTION = re.compile(r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) [A-Z0-9].*")
_STATUS = re.compile(r"\s+LnkSta:\s*Speed ([0-9.]{1,5})GT/s(?: \(\w+\))?, Width x([0-9]{1,2})\b.*")


def read_lspci_links(text: str, source: str) -> list[Capture]:
    """PCIe speed and width by bus id from ``lspci -vv`` (``LnkSta``: the link as trained, not what the slot can do)."""
    found: dict[str, PcieLink] = {}
    current, first = None, 0
    for number, line in lines(text):
        function, status = _FUNCTION.fullmatch(line), _STATUS.fullmatch(line)
        if function:
            current = bus_id(function[1])
        elif status and current:
            found[current] = PcieLink(
                speed=plain(status[1]) or 0.0, width=int(status[2]), source=f"lspci -vv, {source}"
            )
            first = first or number
    if not found:
        return []
    return [Capture(form="lspci -vv", source=source, line=first, pcie=found)]
