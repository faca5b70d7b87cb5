"""Reader of NCCL topology XML, as cloud providers ship it and as NCCL_TOPO_DUMP_FILE writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec

from dualplan.errors import InputError, problem
from dualplan.spec.topology_records import Capture, Device, Link, Pair, PcieLink, bus_id, pair
from dualplan.spec.topology_tree import MAX_DEVICES, Leaf, tree_groups, tree_relations

_MAX_ELEMENTS = 50_000
_MAX_DEPTH = 32
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
_NIC_CLASSES = ("0x0200", "0x0207", "0x0280")
_SWITCH_CLASS = "0x0680"


class _Element(msgspec.Struct):
    tag: str
    attributes: dict[str, str]
    line: int
    children: list[_Element]

    def named(self, *tags: str) -> list[_Element]:
        return [child for child in self.children if child.tag in tags]


def read_nccl_xml(text: str, source: str) -> list[Capture]:
    """GPUs, NICs, PCIe links and NVLinks of an NCCL topology file or dump.

    Files that a cloud provider ships name devices by bus id only; dumps (NCCL_TOPO_DUMP_FILE) also by ``dev`` and
    ``net name``. Raises InputError for XML that is cut off, malformed, or has entities.
    """
    start = text.find("<system")
    if start < 0 or not re.search(r"<(?:cpu|pci|gpu|net)\b", text[start : start + 20_000]):
        return []
    offset = text.count("\n", 0, start)
    end = text.find("</system>", start)
    if end < 0:
        raise InputError(
            f"{source}:{offset + 1}", "the XML ends before </system>: a partial capture", "give the whole file"
        )
    system = _parse_xml(text[start : end + len("</system>")], source, offset)
    leaves: list[Leaf] = []
    links: list[tuple[str, str, str, int, str]] = []
    pcie: dict[str, PcieLink] = {}
    hosts = {cpu.attributes.get("host_hash") for cpu in system.named("cpu")}
    if len(hosts) > 1:
        raise InputError(f"{source}:{offset + 1}", f"the XML joins {len(hosts)} hosts", "give the dump of one machine")
    for index, cpu in enumerate(system.named("cpu")):
        root = cpu.attributes.get("numaid", f"?{index}")
        _walk(cpu, Leaf(Device(role="gpu"), root, ()), leaves, links, pcie, source)
    leaves = [leaf for leaf in leaves if leaf.device.name or leaf.device.bus_id]
    if not leaves:
        raise InputError(f"{source}:{offset + 1}", "the XML names no GPU and no NIC")
    keys = [leaf.device.key for leaf in leaves]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice:
        raise InputError(f"{source}:{offset + 1}", f"the XML names {twice} twice", "give the dump of one machine")
    return [
        Capture(
            form="NCCL topology XML",
            source=source,
            line=offset + 1,
            devices=tuple(leaf.device for leaf in leaves),
            relations=tree_relations(leaves, folded=True, other_root="SYS"),
            links=_scale_up(leaves, links),
            groups=tree_groups(leaves, f"NCCL topology XML, {source}"),
            pcie=pcie,
            notes=_xml_notes(leaves, f"{source}:{offset + 1}"),
        )
    ]


def _parse_xml(text: str, source: str, offset: int) -> _Element:
    from xml.parsers import expat

    root = _Element("", {}, 0, [])
    stack = [root]
    count = 0
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise InputError(
            f"{source}:{offset + parser.CurrentLineNumber}", "has a document type or an entity, which NCCL never writes"
        )

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        line = offset + parser.CurrentLineNumber
        if count > _MAX_ELEMENTS or len(stack) > _MAX_DEPTH:
            raise InputError(f"{source}:{line}", "too many or too deeply nested elements for a machine")
        element = _Element(tag, attributes, line, [])
        stack[-1].children.append(element)
        stack.append(element)

    def finish(tag: str) -> None:
        stack.pop()

    parser.StartElementHandler, parser.EndElementHandler = begin, finish
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text.encode(), True)
    except (expat.ExpatError, ValueError) as error:
        line = getattr(error, "lineno", 1)
        code = getattr(error, "code", None)
        what = expat.errors.messages.get(code, "") if isinstance(code, int) else type(error).__name__
        raise InputError(f"{source}:{offset + line}", f"is not well-formed XML: {what}") from None
    return root.children[0]


def _walk(
    element: _Element,
    above: Leaf,
    leaves: list[Leaf],
    links: list[tuple[str, str, str, int, str]],
    pcie: dict[str, PcieLink],
    source: str,
) -> None:
    for child in element.children:
        if len(leaves) > MAX_DEVICES:
            raise InputError(f"{source}:{child.line}", f"more than {MAX_DEVICES} GPUs and NICs")
        if child.tag == "pci":
            address = _address(child)
            link = _pcie_link(child, source)
            if link is not None:
                pcie[address] = link
            devices = _pci_devices(child, address, above.root, source)
            leaves += [Leaf(device, above.root, above.bridges) for device in devices]
            links += [(device.key, *target) for device in devices if device.role == "gpu" for target in _targets(child)]
            if not devices or child.named("pci"):
                # a host bridge (class 0x0600) is the root itself, not a link that devices share
                host = child.attributes.get("class", "").startswith("0x0600")
                bridges = above.bridges if host else (*above.bridges, address)
                _walk(child, Leaf(above.device, above.root, bridges), leaves, links, pcie, source)
        elif child.tag in ("nic", "net", "gpu"):
            devices = _inner_devices(child, None, above.root, source)
            leaves += [Leaf(device, above.root, above.bridges) for device in devices]


def _address(element: _Element) -> str:
    text = element.attributes.get("busid", "")
    return bus_id(text) or text[:40] or f"line {element.line}"


def _pcie_link(element: _Element, source: str) -> PcieLink | None:
    speed = re.match(r"[0-9]{1,3}(?:\.[0-9])?(?= ?GT/s)", element.attributes.get("link_speed", ""))
    width = element.attributes.get("link_width", "")
    if speed is None or not re.fullmatch(r"[0-9]{1,2}", width):
        return None
    return PcieLink(speed=float(speed[0]), width=int(width), source=f"NCCL topology XML, {source}")


def _pci_devices(element: _Element, address: str, root: str, source: str) -> list[Device]:
    inner = [
        device
        for child in element.named("gpu", "nic", "net")
        for device in _inner_devices(child, address, root, source)
    ]
    kind = element.attributes.get("class", "").lower()[:6]
    if inner or element.named("pci") or kind == _SWITCH_CLASS:
        return inner
    if kind in _GPU_CLASSES:
        return [Device(role="gpu", bus_id=address, numa=_numa(root))]
    if kind in _NIC_CLASSES:
        efa = element.attributes.get("vendor") == "0x1d0f" and element.attributes.get("device", "").startswith("0xefa")
        return [
            Device(
                role="nic", bus_id=address, numa=_numa(root), model="Elastic Fabric Adapter" if efa else None, rdma=True
            )
        ]
    return []


def _numa(root: str) -> str | None:
    return root if root.isdecimal() else None


def _inner_devices(element: _Element, address: str | None, root: str, source: str) -> list[Device]:
    """The GPU of a <gpu>, or the NICs of a <nic> (or a bare <net>)."""
    if element.tag == "gpu":
        index = element.attributes.get("dev", "")
        return [
            Device(
                role="gpu",
                name=f"GPU{int(index)}" if re.fullmatch(r"[0-9]{1,4}", index) else None,
                bus_id=address,
                numa=_numa(root),
            )
        ]
    nets = [element] if element.tag == "net" else element.named("net")
    devices = []
    for net in nets:
        name, speed = net.attributes.get("name", ""), net.attributes.get("speed", "")
        rate = float(speed) * 1e6 / 8 if re.fullmatch(r"[1-9][0-9]{0,7}", speed) else None  # NCCL writes Mb/s
        devices.append(
            Device(
                role="nic",
                name=name if re.fullmatch(r"[\w.-]{1,64}", name) else None,
                bus_id=address,
                numa=_numa(root),
                rate=rate,
                rate_source=f"NCCL topology XML, {source}" if rate else None,
                # NCCL's socket transport lists plain Ethernet interfaces as well
                rdma=net.attributes.get("gdr") == "1" or name.startswith(("mlx", "rdma", "efa", "bnxt", "ionic")),
            )
        )
    return devices or [Device(role="nic", bus_id=address, numa=_numa(root))]


def _targets(element: _Element) -> list[tuple[str, str, int, str]]:
    targets = []
    for gpu in element.named("gpu"):
        for link in gpu.named("nvlink", "xgmi"):
            count = link.attributes.get("count", "")
            if re.fullmatch(r"[1-9][0-9]{0,2}", count):
                kind = "NVLink" if link.tag == "nvlink" else "XGMI"
                target = link.attributes.get("target", "")
                targets.append(
                    (bus_id(target) or target, kind, int(count), link.attributes.get("tclass", "").lower()[:6])
                )
    return targets


def _scale_up(leaves: Sequence[Leaf], found: Sequence[tuple[str, str, str, int, str]]) -> tuple[Link, ...]:
    """Links GPU to GPU. Where those of two GPUs end in NVSwitches, the pair has as many as the GPU with fewer."""
    names: Mapping[str | None, str] = {
        leaf.device.bus_id: leaf.device.key for leaf in leaves if leaf.device.role == "gpu"
    }
    direct: dict[Pair, tuple[str, int]] = {}
    switched: dict[str, int] = {}
    for gpu, target, kind, count, tclass in found:
        if target in names and names[target] != gpu:
            direct[pair(gpu, names[target])] = (kind, count)
        elif tclass == _SWITCH_CLASS:
            switched[gpu] = switched.get(gpu, 0) + count
    links = [
        Link(first=first, second=second, kind=kind, count=count) for (first, second), (kind, count) in direct.items()
    ]
    for first, second in combinations(switched, 2):
        if pair(first, second) not in direct:
            links.append(Link(first=first, second=second, kind="NVLink", count=min(switched[first], switched[second])))
    return tuple(links)


def _xml_notes(leaves: Sequence[Leaf], where: str) -> tuple[str, ...]:
    notes = []
    if not any(leaf.device.role == "nic" for leaf in leaves):
        notes.append(problem(where, "the XML names no NIC"))
    if not any(leaf.device.role == "gpu" for leaf in leaves):
        notes.append(problem(where, "the XML names no GPU"))
    return tuple(notes)
