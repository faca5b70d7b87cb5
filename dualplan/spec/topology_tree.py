"""What a PCI tree says of its devices, in the words of the NVIDIA matrix, and which of them share a link to the host.

lspci and NCCL draw the same tree; both are reduced to a path of bridges from a host bridge down to every GPU and NIC.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec

from dualplan.spec.topology_records import Device, Pair, SharedUplink, pair

MAX_DEVICES = 500
"""GPUs and NICs of one tree; far more than a machine has, and it bounds the number of pairs."""


class Leaf(msgspec.Struct, frozen=True):
    """A GPU or NIC with its host bridge and the bridges between them, top first."""

    device: Device
    root: str
    bridges: tuple[str, ...]


def _relation(first: Leaf, second: Leaf, *, folded: bool, other_root: str) -> str:
    """PIX: one switch; PXB: several below one port of the host bridge; PHB: the host bridge; ``other_root`` beyond it.

    Source: legend of nvidia-smi topo -m. In lspci's tree a switch is an upstream bridge with a downstream bridge for
    each device, so a path through one switch leaves one bridge a side; NCCL writes a switch as one node (``folded``).
    """
    if first.root != second.root:
        return other_root
    common = 0
    for one, other in zip(first.bridges, second.bridges, strict=False):
        if one != other:
            break
        common += 1
    if common == 0:
        return "PHB"
    beyond = max(len(first.bridges), len(second.bridges)) - common
    return "PIX" if beyond <= (0 if folded else 1) else "PXB"


def tree_relations(leaves: Sequence[Leaf], *, folded: bool, other_root: str) -> dict[Pair, str]:
    """The relation of every pair of devices; ``folded`` and ``other_root`` as in ``_relation``."""
    return {
        pair(first.device.key, second.device.key): _relation(first, second, folded=folded, other_root=other_root)
        for first, second in combinations(leaves, 2)
        if first.device.key != second.device.key
    }


def tree_groups(leaves: Sequence[Leaf], source: str) -> tuple[SharedUplink, ...]:
    """Devices below the same port of a host bridge, where there are several."""
    below: dict[tuple[str, str], list[str]] = {}
    for leaf in leaves:
        if leaf.bridges:
            below.setdefault((leaf.root, leaf.bridges[0]), []).append(leaf.device.key)
    return tuple(
        SharedUplink(devices=tuple(dict.fromkeys(devices)), through=port, source=source)
        for (_, port), devices in below.items()
        if len(set(devices)) > 1
    )
