"""Captures of one machine, recognised from content and joined by device name and bus id."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dualplan.errors import InputError, each, problem
from dualplan.spec.topology_kinds import with_kinds, with_same_switch
from dualplan.spec.topology_lspci import read_lspci_links, read_lspci_tree
from dualplan.spec.topology_matrix import read_gpu_names, read_matrix
from dualplan.spec.topology_ports import read_ibdev2netdev, read_ibstat
from dualplan.spec.topology_records import (
    NEAR,
    Capture,
    Device,
    Link,
    Nic,
    Pair,
    PcieLink,
    SharedUplink,
    Topology,
    by_number,
    contradiction,
    lines,
    name_list,
    pair,
)
from dualplan.spec.topology_rocm import read_rocm
from dualplan.spec.topology_xml import read_nccl_xml

_READERS: tuple[Callable[[str, str], list[Capture]], ...] = (
    # in the order in which their device names are trusted
    read_matrix,
    read_gpu_names,
    read_nccl_xml,
    read_rocm,
    read_ibdev2netdev,
    read_ibstat,
    read_lspci_tree,
    read_lspci_links,
)
KNOWN = "nvidia-smi topo -m, ibstat, ibdev2netdev, lspci -tv, NCCL topology XML, rocm-smi --showtopo"
_ORDER = (
    "nvidia-smi topo -m",
    "nvidia-smi",
    "NCCL topology XML",
    "rocm-smi --showtopo",
    "ibdev2netdev",
    "ibstat",
    "lspci -tv",
    "lspci -vv",
)


def read_captures(text: str, source: str) -> list[Capture]:
    """Everything that the readers find in one text. Raises InputError where that is nothing, or cannot be used."""
    if not text.strip():
        raise InputError(source, "is empty")
    captures = [capture for reader in _READERS for capture in reader(text, source)]
    if not captures:
        raise InputError(source, "no machine description recognised in it", f"known: {KNOWN}")
    return captures


def read_topology(texts: Sequence[tuple[str, str]]) -> Topology:
    """Join captures of one machine, given as (source name, text). Raises InputError with the problems of every text."""
    found = each(texts, lambda named: read_captures(named[1], named[0]))
    captures = sorted((capture for some in found for capture in some), key=lambda capture: _ORDER.index(capture.form))
    hypervisor = next((vendor for _, text in texts if (vendor := _hypervisor(text))), None)
    _check_one_machine(captures)
    return _joined(captures, hypervisor)


def _hypervisor(text: str) -> str | None:
    """Vendor in a line ``Hypervisor vendor: KVM``, as lscpu and environment reports print it in a virtual machine."""
    for _, line in lines(text):
        key, colon, value = line.partition(":")
        if colon and key.strip().lower() == "hypervisor vendor":
            return value.strip(" :\t")[:40] or None
    return None


def _check_one_machine(captures: Sequence[Capture]) -> None:
    matrices = [capture for capture in captures if capture.form == _ORDER[0]]
    for other in matrices[1:]:
        difference = contradiction(matrices[0], other)
        if difference:
            first = f"{matrices[0].source}:{matrices[0].line}"
            what = f"the matrix differs from that of {first}: {difference}"
            raise InputError(f"{other.source}:{other.line}", what, "give one machine at a time")


# ---------------------------------------------------------------- joining


def _joined(captures: Sequence[Capture], hypervisor: str | None) -> Topology:
    devices: list[Device] = []
    names: list[dict[str, int]] = []  # for each capture, its device keys to places in ``devices``
    notes: list[str] = []
    for capture in captures:
        places: dict[str, int] = {}
        unmatched: list[str] = []
        before = tuple(devices)
        for device in capture.devices:
            place = _place(device, devices[: len(before)])
            if place is None and _cannot_join(device, before):
                unmatched.append(device.key)
                continue
            if place is None:
                devices.append(device)
                place = len(devices) - 1
            else:
                devices[place] = _merge(devices[place], device)
            places[device.key] = place
        names.append(places)
        if unmatched:
            notes.append(problem(f"{capture.source}:{capture.line}", _unmatched(capture, unmatched)))
    relations, conflicts = _relations(captures, names, devices)
    notes += conflicts
    gpus = sorted((device for device in devices if device.role == "gpu"), key=lambda device: by_number(device.key))
    nics = sorted((device for device in devices if device.role == "nic"), key=lambda device: by_number(device.key))
    pcie = {address: link for capture in reversed(captures) for address, link in capture.pcie.items()}
    affinity = {
        n.key: {g.key: relations[pair(g.key, n.key)] for g in gpus if pair(g.key, n.key) in relations} for n in nics
    }
    topology = Topology(
        gpus=tuple(gpus),
        nics=tuple(Nic(device=nic, kind="undecided", reason="", affinity=affinity[nic.key]) for nic in nics),
        links=_links(captures, names, devices),
        uplinks=_uplinks(captures, names, devices, relations, pcie),
        pcie=pcie,
        same_switch=None,
        same_switch_reason="",
        hypervisor=hypervisor,
        captures=tuple(captures),
        notes=tuple(notes),
    )
    return with_same_switch(with_kinds(topology))


def _place(device: Device, devices: Sequence[Device]) -> int | None:
    """Where the same device already stands: by name, by column, by bus id (where not both have names of their own)."""
    for index, other in enumerate(devices):
        if other.role != device.role:
            continue
        if device.name is not None and device.name in (other.name, other.alias):
            return index
        if device.alias is not None and device.alias == other.alias and None in (device.name, other.name):
            return index
        if device.bus_id is not None and device.bus_id == other.bus_id and None in (device.name, other.name):
            return index
    return None


def _cannot_join(device: Device, devices: Sequence[Device]) -> bool:
    """Whether the device may already be listed under a name of another kind, so that it must not be counted again."""
    peers = [other for other in devices if other.role == device.role]
    if device.name is None:
        return any(peer.bus_id is None for peer in peers)
    return any(peer.name is None for peer in peers)


def _unmatched(capture: Capture, keys: Sequence[str]) -> str:
    shown = name_list(sorted(keys, key=by_number)[:8]) + (f" and {len(keys) - 8} more" if len(keys) > 8 else "")
    if any(":" in key for key in keys):
        missing = "add `ibdev2netdev -v` and `nvidia-smi`, which print bus ids beside names"
    else:
        missing = "the matrix has no NIC legend"
    return f"{capture.form}: {shown} cannot be matched to the named devices: {missing}"


def _merge(known: Device, more: Device) -> Device:
    """``known`` with what it lacks taken from ``more``."""
    fields = {
        field: value
        for field in known.__struct_fields__
        if getattr(known, field) is None and (value := getattr(more, field)) is not None
    }
    return msgspec.structs.replace(known, **fields)


def _relations(
    captures: Sequence[Capture], names: Sequence[dict[str, int]], devices: Sequence[Device]
) -> tuple[dict[Pair, str], list[str]]:
    """Relations under joined names. Captures come in order of trust; a PCIe switch that any of them shows is there."""
    relations: dict[Pair, str] = {}
    origin: dict[Pair, Capture] = {}
    conflicts: dict[tuple[str, str], list[str]] = {}
    for capture, places in zip(captures, names, strict=True):
        for (first, second), word in capture.relations.items():
            if first not in places or second not in places:
                continue
            key = pair(devices[places[first]].key, devices[places[second]].key)
            if key not in relations:
                relations[key], origin[key] = word, capture
            elif (word in NEAR) != (relations[key] in NEAR) and not relations[key].startswith("NV"):
                conflicts.setdefault((capture.form, origin[key].form), []).append(f"{key[0]}-{key[1]}")
                relations[key] = word if word in NEAR else relations[key]
    notes = [
        f"{forms[0]} and {forms[1]} disagree on a common PCIe switch for {len(pairs)} pairs"
        f" ({', '.join(pairs[:3])}): the switch is taken as there"
        for forms, pairs in conflicts.items()
    ]
    return relations, notes


def _links(captures: Sequence[Capture], names: Sequence[dict[str, int]], devices: Sequence[Device]) -> tuple[Link, ...]:
    links: dict[Pair, Link] = {}
    for capture, places in zip(captures, names, strict=True):
        for link in capture.links:
            if link.first in places and link.second in places:
                ends = sorted((devices[places[link.first]].key, devices[places[link.second]].key), key=by_number)
                links.setdefault(pair(*ends), msgspec.structs.replace(link, first=ends[0], second=ends[1]))
    return tuple(sorted(links.values(), key=lambda link: (by_number(link.first), by_number(link.second))))


def _uplinks(
    captures: Sequence[Capture],
    names: Sequence[dict[str, int]],
    devices: Sequence[Device],
    relations: dict[Pair, str],
    pcie: dict[str, PcieLink],
) -> tuple[SharedUplink, ...]:
    """Groups of devices below one port of a host bridge: of the trees, and by PIX and PXB where no tree covers them.

    PIX and PXB paths do not pass a host bridge, so devices tied by them hang below the same port of one.
    """
    found: dict[frozenset[str], SharedUplink] = {}
    covered: set[str] = set()
    for capture, places in zip(captures, names, strict=True):
        for group in capture.groups:
            members = tuple(
                sorted((devices[places[key]].key if key in places else key for key in group.devices), key=by_number)
            )
            link = pcie.get(group.through or "")
            # a slower link than Gen3 x1 above GPUs is the placeholder of a virtual bridge, not a link of the machine
            rate = link.rate if link is not None and link.speed >= 8 else None
            found.setdefault(
                frozenset(members), SharedUplink(devices=members, through=group.through, rate=rate, source=group.source)
            )
            covered.update(members)
    tied = {device.key for device in devices} - covered
    source = next((f"{c.form}, {c.source}" for c in captures if c.relations), "")
    for component in _components(sorted(tied, key=by_number), relations):
        found.setdefault(frozenset(component), SharedUplink(devices=tuple(component), source=source))
    return tuple(group for members, group in found.items() if len(members) > 1)


def _components(keys: Sequence[str], relations: dict[Pair, str]) -> list[list[str]]:
    """Devices tied by PIX and PXB, directly or through others."""
    near: dict[str, list[str]] = {key: [] for key in keys}
    for (first, second), word in relations.items():
        if word in NEAR and first in near and second in near:
            near[first].append(second)
            near[second].append(first)
    groups, seen = [], set[str]()
    for key in keys:
        if key in seen:
            continue
        group, queue = [], [key]
        seen.add(key)
        while queue:
            group.append(queue.pop())
            fresh = [other for other in near[group[-1]] if other not in seen]
            seen.update(fresh)
            queue += fresh
        groups.append(sorted(group, key=by_number))
    return groups
