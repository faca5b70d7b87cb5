"""The machine as resources: what each can do, and what one turn of either read path asks of it.

Amounts are totals over the nodes of a side. Links carry bytes, compute serves turns, memories hold bytes for the
time a turn needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from dualplan.messages import Message, message
from dualplan.model.traffic import SIDES, Bytes, Path, Step, copied_bytes, path_loads
from dualplan.spec.hardware import Hardware

Unit = Literal["B/s", "B", "turns/s"]

ORDER = (
    "prefill_cnic_read",
    "prefill_cnic_write",
    "decode_cnic_read",
    "decode_cnic_write",
    "prefill_dram",
    "decode_dram",
    "prefill_snic_ingress",
    "decode_snic_ingress",
    "decode_snic_egress",
    "storage_backend",
    "prefill_compute",
    "decode_compute",
    "prefill_hbm",
    "decode_hbm",
    "prefill_buffer",
    "decode_buffer",
    "pcie_uplink",
    "numa_link",
    "prefill_wire_egress",
    "prefill_wire_ingress",
    "decode_wire_egress",
    "decode_wire_ingress",
    "prefill_snic_egress",
    "copy_submission",
)
"""Resource names in the order in which they are listed and ties are named."""

TITLES = {
    "prefill_cnic_read": "prefill CNIC read",
    "prefill_cnic_write": "prefill CNIC write",
    "decode_cnic_read": "decode CNIC read",
    "decode_cnic_write": "decode CNIC write",
    "prefill_dram": "prefill DRAM",
    "decode_dram": "decode DRAM",
    "prefill_snic_ingress": "prefill storage NIC in",
    "decode_snic_ingress": "decode storage NIC in",
    "decode_snic_egress": "decode storage NIC out",
    "prefill_snic_egress": "prefill storage NIC out",
    "storage_backend": "storage back-end",
    "prefill_compute": "prefill compute",
    "decode_compute": "decode compute",
    "prefill_hbm": "prefill HBM",
    "decode_hbm": "decode HBM",
    "prefill_buffer": "prefill host buffer",
    "decode_buffer": "decode host buffer",
    "pcie_uplink": "PCIe uplink",
    "numa_link": "inter-socket link",
    "prefill_wire_egress": "prefill wire out",
    "prefill_wire_ingress": "prefill wire in",
    "decode_wire_egress": "decode wire out",
    "decode_wire_ingress": "decode wire in",
    "copy_submission": "copy submission",
}
"""Names for people."""


def title(name: str) -> Message:
    """A resource in words."""
    return message(f"resource.{name}")


def few(names: Sequence[str], between: str, most: int = 3) -> str:
    """Names in a row; of a long list the first ones and how many more there are."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return ", ".join(shown[:-1]) + between + shown[-1] if len(shown) > 1 else "".join(shown)


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of one side.

    ``nominal``: line rate or size of one node. ``capacity``: what all nodes of the side reach, efficiencies and
    balance applied.
    ``prefill`` and ``decode``: amount that a turn read on that side takes; for ``turns/s`` resources 1.
    ``side`` is None for the storage back-end.
    """

    name: str
    side: Path | None
    unit: Unit
    nominal: Any
    capacity: Any
    prefill: Any
    decode: Any
    detail: Message | Literal[""] = ""

    @property
    def in_range(self) -> bool:
        """Whether the resource is a link or memory bus that limits the P/D range while storage NICs are busy."""
        return (
            self.unit == "B/s"
            and self.name not in ("storage_backend", "copy_submission")
            and not self.name.endswith("snic_ingress")
        )


class NodeLinks(msgspec.Struct, frozen=True, kw_only=True):
    """What turns one node's profile into capacities: nodes of the side, storage rate, and shares.

    ``kv_share``: share of the compute NICs that KV traffic can use beside collectives of a given load.
    """

    hardware: Hardware
    side: Path
    nodes: Any
    kv_share: Any = 1
    read_rate: Any
    balance: Any = 1


def dram_bandwidth(hardware: Hardware) -> float | None:
    """Memory bandwidth that the KV buffers can use [B/s]: of the sockets that hold them."""
    dram = hardware.dram
    if dram.bandwidth is None:
        return None
    return dram.bandwidth * (dram.buffer_sockets or dram.sockets) / dram.sockets


def storage_bandwidth(hardware: Hardware) -> float:
    """Nominal storage bandwidth of a node [B/s], S."""
    return hardware.snic.count * hardware.snic.rate


def cnic_bandwidth(hardware: Hardware) -> float:
    """Nominal bandwidth of all compute NICs of a node and direction [B/s], C."""
    return hardware.cnic.count * hardware.cnic.rate


def link_resources(links: NodeLinks, by_path: dict[str, tuple[Any, Any]]) -> list[Resource]:
    """Links and memory buses of one side, from the loads that the step table gives by name."""
    hardware, side = links.hardware, links.side
    wire = cnic_bandwidth(hardware) * links.kv_share
    storage = storage_bandwidth(hardware)
    plain = {
        f"{side}_cnic_read": (wire, hardware.cnic.efficiency),
        f"{side}_cnic_write": (wire, hardware.cnic.efficiency),
        f"{side}_wire_egress": (wire, hardware.cnic.efficiency),
        f"{side}_wire_ingress": (wire, hardware.cnic.efficiency),
        f"{side}_dram": (dram_bandwidth(hardware), 1),
        f"{side}_snic_ingress": (storage, links.read_rate / hardware.snic.rate / links.balance),
        f"{side}_snic_egress": (storage, 1),
    }
    resources = []
    for name, (nominal, factor) in plain.items():
        if nominal is not None and any(by_path.get(name, (0, 0))):
            resources.append(_link(links, name, nominal, factor, by_path[name]))
    return resources + _pcie(links, by_path)


def _link(
    links: NodeLinks, name: str, nominal: Any, factor: Any, load: tuple[Any, Any], detail: Message | Literal[""] = ""
) -> Resource:
    return Resource(
        name=name,
        side=links.side,
        unit="B/s",
        nominal=nominal,
        capacity=nominal * factor * links.nodes,
        prefill=load[0],
        decode=load[1],
        detail=detail,
    )


def _pcie(links: NodeLinks, by_path: dict[str, tuple[Any, Any]]) -> list[Resource]:
    """Shared PCIe uplinks and the link between the sockets, where the profile has them.

    A device's traffic with host memory crosses its uplink; traffic between a GPU and a NIC does so only if they do
    not share a switch. Traffic is even over the devices of a kind.
    """
    hardware, pcie, side = links.hardware, links.hardware.pcie, links.side
    result = []

    def total(parts: dict[str, float]) -> tuple[Any, Any]:
        load: tuple[Any, Any] = (0, 0)
        for name, share in parts.items():
            if share:
                prefill, decode = by_path.get(f"{side}_pcie_{name}", (0, 0))
                load = (load[0] + share * prefill, load[1] + share * decode)
        return load

    # between a GPU and a NIC that do not share a switch, both uplinks are passed: up from one, down to the other
    apart = 0 if pcie.gpu_nic_same_switch in (True, None) else 1
    for uplink in pcie.uplinks:
        cnics = uplink.cnics * uplink.count / hardware.cnic.count
        snics = uplink.snics * uplink.count / hardware.snic.count
        gpus = uplink.gpus * uplink.count / hardware.gpu.count
        direct = 0 if uplink.snics and uplink.gpus else 1
        directions = {
            "to_host": {
                "cnic_up": cnics,
                "snic_up": snics,
                "gpu_up": gpus,
                "cnic_gpu": cnics * apart,
                "gpu_cnic": gpus * apart,
                "snic_gpu": snics * direct,
            },
            "from_host": {
                "cnic_down": cnics,
                "snic_down": snics,
                "gpu_down": gpus,
                "cnic_gpu": gpus * apart,
                "gpu_cnic": cnics * apart,
                "snic_gpu": gpus * direct,
            },
        }
        counts = ((uplink.gpus, "GPU"), (uplink.cnics, "CNIC"), (uplink.snics, "SNIC"))
        devices = ", ".join(f"{number} {kind}" for number, kind in counts if number)
        for direction, parts in directions.items():
            load = total(parts)
            if any(load):
                way = message(f"direction.{direction}")
                detail = message("detail.uplink", side=side, direction=way, uplinks=uplink.count, devices=devices)
                result.append(_link(links, "pcie_uplink", uplink.rate * uplink.count, 1, load, detail))
    if pcie.numa_link is not None:
        snic, gpu = _socket_crossings(hardware)
        for direction, parts in (
            ("to_memory", {"snic_up": snic, "cnic_up": gpu, "gpu_up": gpu}),
            ("from_memory", {"snic_down": snic, "cnic_down": gpu, "gpu_down": gpu}),
        ):
            load = total(parts)
            if any(load):
                detail = message("detail.sockets", side=side, direction=message(f"direction.{direction}"))
                result.append(_link(links, "numa_link", pcie.numa_link, 1, load, detail))
    return result


def _socket_crossings(hardware: Hardware) -> tuple[float, float]:
    """Shares of storage-NIC traffic and of GPU-side traffic with host memory that pass between sockets.

    GPUs are spread over the sockets, and storage NICs too if there are as many as sockets. KV buffers on all sockets
    lie beside their GPU: then only what a lone storage NIC reads for GPUs elsewhere crosses. Buffers on fewer sockets
    are crossed to by the GPUs of the others, and by storage NICs there; a lone storage NIC is taken to sit with them.
    """
    sockets = hardware.dram.sockets
    buffers = hardware.dram.buffer_sockets or sockets
    spread = hardware.snic.count >= sockets
    if buffers == sockets:
        return (0.0 if spread else 1 - 1 / sockets), 0.0
    return (1 - buffers / sockets if spread else 0.0), 1 - buffers / sockets


def copy_resource(
    links: NodeLinks,
    table: dict[Path, tuple[Step, ...]],
    amounts: Bytes,
    block_bytes: Any,
    cost: float,
    queues: int,
    how: str,
) -> Resource | None:
    """Submission of host-GPU copies: layer blocks of 64 tokens, one submission each, ``queues`` at once for each
    GPU.
    """
    prefill, decode = (copied_bytes(table.get(path, ()), amounts, links.side) for path in SIDES)
    if cost == 0 or not (prefill or decode):
        return None
    rate = links.hardware.gpu.count * queues * block_bytes / cost
    return _link(links, "copy_submission", rate, 1, (prefill, decode), message(f"detail.{how}", side=links.side))


def ordered(resources: list[Resource]) -> list[Resource]:
    """Resources in the order of ORDER; of one name, prefill first."""
    return sorted(resources, key=lambda r: (ORDER.index(r.name), r.side != "prefill"))


def side_loads(
    table: dict[Path, tuple[Step, ...]], amounts: Bytes, prefill: Hardware, decode: Hardware
) -> dict[str, tuple[Any, Any]]:
    """Loads by resource name of a turn of either path on these machines [B]."""
    return path_loads(table, amounts, shares_cnic=(prefill.snic.shares_cnic, decode.snic.shares_cnic))
