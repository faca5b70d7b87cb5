"""A machine as its captures show it, for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualplan.report.output import Output
from dualplan.report.records import pick, pick_all
from dualplan.spec.topology_profile import gigabits, gpu_kind
from dualplan.spec.topology_records import Kind, Topology, name_list

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 8
NIC = """
    name kind reason rate_bytes_per_s=device.rate rate_source=device.rate_source state=device.state
    link_layer=device.link_layer netdev=device.netdev column=device.alias bus_id=device.bus_id model=device.model
    numa=device.numa
"""
GPU = "name=key bus_id model numa cpu_affinity"


def output(topology: Topology, digest: str) -> Output:
    """The result in all formats; csv, jsonl and md hold a row for each GPU and NIC."""
    data: dict[str, Any] = {
        "schema": "dualplan/hardware-import/1",
        "gpus": [gpu.key for gpu in topology.gpus],
        "compute_nics": [nic.name for nic in topology.of_kind("compute")],
        "storage_nics": [nic.name for nic in topology.of_kind("storage")],
        "undecided_nics": [nic.name for nic in topology.of_kind("undecided")],
        "gpu_nic_same_switch": topology.same_switch,
        "gpu_nic_same_switch_reason": topology.same_switch_reason,
        "reasons": {nic.name: nic.reason for nic in topology.nics},
        "hypervisor": topology.hypervisor,
        "gpu_details": [_gpu_row(topology, index) for index in range(len(topology.gpus))],
        "nic_details": [_nic_row(topology, index) for index in range(len(topology.nics))],
        "links": [
            {"gpus": [link.first, link.second], **pick(link, "kind count hops weight")} for link in topology.links
        ],
        "shared_uplinks": pick_all(topology.uplinks, "devices through rate_bytes_per_s=rate source"),
        "refused": list(topology.refused),
        "notes": _notes(topology),
        "sources": pick_all(topology.captures, "file=source line kind=form"),
        "inputs_sha256": digest,
    }
    rows = [{"device": "gpu", **gpu} for gpu in data["gpu_details"]] + [
        {"device": "nic", **nic} for nic in data["nic_details"]
    ]
    return Output(data=data, rows=rows, text=lambda console: _show(console, topology))


def _notes(topology: Topology) -> list[str]:
    return [*topology.notes, *(line for capture in topology.captures for line in capture.notes)]


def _gpu_row(topology: Topology, index: int) -> dict[str, Any]:
    gpu = topology.gpus[index]
    return pick(gpu, GPU) | {"pcie_bytes_per_s": _pcie_rate(topology, gpu.bus_id)}


def _nic_row(topology: Topology, index: int) -> dict[str, Any]:
    nic = topology.nics[index]
    rate = _pcie_rate(topology, nic.device.bus_id)
    return pick(nic, NIC) | {"pcie_bytes_per_s": rate, "affinity": nic.affinity}


def _pcie_rate(topology: Topology, bus_id: str | None) -> float | None:
    link = topology.pcie.get(bus_id or "")
    return link.rate if link else None


# ---------------------------------------------------------------- human view


def _show(console: Console, topology: Topology) -> None:
    kinds: tuple[Kind, ...] = ("compute", "storage", "undecided")
    counts = ", ".join(f"{len(topology.of_kind(kind))} {kind}" for kind in kinds)
    found = f"{_many(len(topology.gpus), 'GPU')}, {_many(len(topology.nics), 'NIC')}"
    console.print(found + (f": {counts}" if topology.nics else ""), style="bold")
    answer = {True: "yes", False: "no", None: "unknown"}[topology.same_switch]
    console.print(
        f"Each GPU and its compute NIC under one PCIe switch: {answer}",
        style="green" if topology.same_switch else "yellow",
    )
    _hanging(console, "  ", topology.same_switch_reason)
    console.print()
    for label, text in _facts(topology):
        _hanging(console, f"{label:<8}", text)
    if topology.nics:
        console.print()
        _nic_table(console, topology)
    shared = [group for group in topology.uplinks if len(group.devices) > 2 or _one_role(group.devices, topology)]
    if shared:
        console.print("\nShared PCIe links on the way to the host")
    for group in shared:
        through = f" through {group.through}" if group.through else ""
        _hanging(
            console, "  ", name_list(group.devices) + through + (f", {group.rate / 1e9:.1f} GB/s" if group.rate else "")
        )
    undecided = topology.of_kind("undecided")
    if undecided:
        console.print("\nLeft to you")
        _hanging(
            console,
            "  ",
            f"{name_list(nic.name for nic in undecided)}: say with --compute NIC,... and --storage NIC,...",
        )
    for heading, lines in (("Not used", topology.refused), ("Notes", _notes(topology))):
        if lines:
            console.print(f"\n{heading}")
        for line in lines[:_SHOWN]:
            _hanging(console, "  ", line)
        if len(lines) > _SHOWN:
            console.print(f"  and {len(lines) - _SHOWN} more (all with --json)")


def _many(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _hanging(console: Console, indent: str, text: str) -> None:
    """Text wrapped beside a label; names too long for the line are cut between lines rather than run over it."""
    import textwrap

    width = max(console.width, len(indent) + 20)
    for line in textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=" " * len(indent), break_on_hyphens=False
    ):
        console.print(line, soft_wrap=True)


def _one_role(devices: tuple[str, ...], topology: Topology) -> bool:
    gpus = {gpu.key for gpu in topology.gpus}
    return len({device in gpus for device in devices}) == 1


def _facts(topology: Topology) -> list[tuple[str, str]]:

    numa: dict[str, list[str]] = {}
    for gpu in topology.gpus:
        if gpu.numa is not None:
            numa.setdefault(gpu.numa, []).append(gpu.key)
    where = "; ".join(f"NUMA {node}: {name_list(gpus)}" for node, gpus in numa.items())
    facts = (
        [
            (
                "GPUs",
                ", ".join(part for part in (gpu_kind(topology), where) if part)
                or "model and NUMA node not in the captures",
            )
        ]
        if topology.gpus
        else []
    )
    counts: dict[tuple[str, int | None], int] = {}
    for link in topology.links:
        counts[link.kind, link.count] = counts.get((link.kind, link.count), 0) + 1
    pairs = len(topology.gpus) * (len(topology.gpus) - 1) // 2
    words = [
        f"{kind}{f' x{count}' if count else ''} between {'all' if number == pairs else f'{number} of {pairs}'} pairs"
        for (kind, count), number in counts.items()
    ]
    if words:
        facts.append(("Links", "; ".join(words)))
    if topology.hypervisor:
        facts.append(("Guest", f"the captures are of a virtual machine ({topology.hypervisor})"))
    facts += [("From", f"{capture.source}: {capture.form}") for capture in topology.captures]
    return facts


def _nic_table(console: Console, topology: Topology) -> None:
    """NICs with their kind and reason; neighbours that differ in nothing else share a row."""
    from itertools import groupby

    from rich.table import Table

    rated = any(nic.device.rate for nic in topology.nics)
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("NIC", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    if rated:
        table.add_column("rate", no_wrap=True, justify="right")
    table.add_column("why", overflow="fold")
    colors = {"compute": "green", "storage": "cyan", "undecided": "yellow"}
    for (kind, rate, reason), nics in groupby(topology.nics, key=lambda nic: (nic.kind, nic.device.rate, nic.reason)):
        cells = ["\n".join(name_list(nic.name for nic in nics).split(", ")), kind]
        if rated:
            cells.append(gigabits(rate) if rate else "-")
        table.add_row(*cells, reason, style=colors[kind])
    console.print(table)
