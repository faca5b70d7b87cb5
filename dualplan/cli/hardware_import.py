"""``dualplan hardware import``: captures of a machine to GPUs, compute and storage NICs, and a hardware profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, emit, note, write_text

if TYPE_CHECKING:
    from rich.console import Console

    from dualplan.report.output import Output
    from dualplan.spec.topology_records import Kind, Topology

MAX_BYTES = 4_000_000
"""Largest capture that is read; those of real machines have a few kB."""

_SHOWN = 8


def import_hardware(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Captures of one machine, - for standard input.", show_default=False),
    ],
    compute: Annotated[
        str | None, typer.Option("--compute", metavar="NIC,...", help="NICs that you know to be compute NICs.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option("--storage", metavar="NIC,...", help="NICs that you know to be storage NICs.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write a hardware profile (YAML) to this file.")
    ] = None,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
) -> None:
    """Read a machine from captures: which NICs are compute, which storage, and why.

    Known, and recognised from content: nvidia-smi topo -m, ibstat, ibdev2netdev, lspci -tv, NCCL topology XML,
    rocm-smi --showtopo. Several captures are joined by device name and bus id. What they cannot tell is listed, never
    guessed: decide it with --compute and --storage. With -o, keys that stay unknown are comments in the profile.
    """
    import hashlib

    from dualplan.spec.topology import read_topology
    from dualplan.spec.topology_kinds import decide
    from dualplan.spec.topology_profile import profile

    texts = _read(files)
    topology = decide(read_topology(texts), compute=_names(compute, "--compute"), storage=_names(storage, "--storage"))
    digest = hashlib.sha256(b"\0".join(text.encode() for _, text in texts)).hexdigest()
    if file is not None:
        made = profile(topology, file.stem)
        write_text(file, made.text)
        note(f"{file}: to fill in: {', '.join(made.open_keys)}" if made.open_keys else f"{file}: complete")
        undecided = topology.of_kind("undecided")
        if undecided:
            from dualplan.spec.topology_records import name_list

            note(f"undecided: {name_list(nic.name for nic in undecided)} (decide with --compute and --storage)")
        for line in topology.refused:
            note(line)
    if file is None or as_json or fmt is not Format.table:
        emit(_output(topology, digest), fmt, as_json)


def _read(files: list[Path]) -> list[tuple[str, str]]:
    """Texts with their names. Raises InputError with the problems of all files."""
    from dualplan.errors import each
    from dualplan.spec.load import read_text

    def named(file: Path) -> tuple[str, str]:
        stdin = str(file) == "-"
        name = "standard input" if stdin else str(file)
        return name, read_text(Path("/dev/stdin") if stdin else file, limit=MAX_BYTES, where=name)

    return each(files, named)


def _names(text: str | None, flag: str) -> list[str]:
    from dualplan.errors import InputError
    from dualplan.units import listed

    if text is None:
        return []
    names = listed(text)
    if not names:
        raise InputError(flag, "names no NIC", f"write for example {flag} mlx5_0,mlx5_1")
    return names


# ---------------------------------------------------------------- result


def _output(topology: Topology, digest: str) -> Output:
    from dualplan.report.output import Output

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
            {
                "gpus": [link.first, link.second],
                "kind": link.kind,
                "count": link.count,
                "hops": link.hops,
                "weight": link.weight,
            }
            for link in topology.links
        ],
        "shared_uplinks": [
            {
                "devices": list(group.devices),
                "through": group.through,
                "rate_bytes_per_s": group.rate,
                "source": group.source,
            }
            for group in topology.uplinks
        ],
        "refused": list(topology.refused),
        "notes": _notes(topology),
        "sources": [
            {"file": capture.source, "line": capture.line, "kind": capture.form} for capture in topology.captures
        ],
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
    link = topology.pcie.get(gpu.bus_id or "")
    return {
        "name": gpu.key,
        "bus_id": gpu.bus_id,
        "model": gpu.model,
        "numa": gpu.numa,
        "cpu_affinity": gpu.cpu_affinity,
        "pcie_bytes_per_s": link.rate if link else None,
    }


def _nic_row(topology: Topology, index: int) -> dict[str, Any]:
    nic = topology.nics[index]
    device, link = nic.device, topology.pcie.get(nic.device.bus_id or "")
    return {
        "name": nic.name,
        "kind": nic.kind,
        "reason": nic.reason,
        "rate_bytes_per_s": device.rate,
        "rate_source": device.rate_source,
        "state": device.state,
        "link_layer": device.link_layer,
        "netdev": device.netdev,
        "column": device.alias,
        "bus_id": device.bus_id,
        "model": device.model,
        "numa": device.numa,
        "pcie_bytes_per_s": link.rate if link else None,
        "affinity": nic.affinity,
    }


# ---------------------------------------------------------------- human view


def _show(console: Console, topology: Topology) -> None:
    from dualplan.spec.topology_records import name_list

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
    from dualplan.spec.topology_profile import gpu_kind
    from dualplan.spec.topology_records import name_list

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

    from dualplan.spec.topology_profile import gigabits
    from dualplan.spec.topology_records import name_list

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
