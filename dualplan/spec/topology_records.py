"""What the readers of machine captures hand on: devices, how they hang together, and what could not be used.

A capture names its devices as it likes: the NVIDIA matrix by column (``GPU0``, ``NIC0`` with a legend), ibstat by
``mlx5_0``, lspci by bus id only. ``Device`` keeps all of these names, so that captures of one machine can be joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

NEAR = frozenset({"PIX", "PXB"})
"""Relations of two devices below one PCIe host bridge: one switch (PIX) or several (PXB)."""

MAX_LINE = 10_000
"""Longest line that the line readers look at; no capture comes close, and it keeps their cost linear."""

Pair = tuple[str, str]
Kind = Literal["compute", "storage", "undecided"]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or a NIC as far as one capture, or several joined, describe it. None where nothing is said.

    ``alias``: the column of the matrix (``NIC0``) where a legend gives the name. ``rate``: line rate of the network
    side [B/s]. ``rdma``: whether the capture lists it as an RDMA device.
    """

    role: Literal["gpu", "nic"]
    name: str | None = None
    alias: str | None = None
    bus_id: str | None = None
    model: str | None = None
    numa: str | None = None
    cpu_affinity: str | None = None
    rate: float | None = None
    rate_source: str | None = None
    state: str | None = None
    link_layer: str | None = None
    netdev: str | None = None
    rdma: bool | None = None

    @property
    def key(self) -> str:
        """The name that relations use: the device's own name, else its column, else its bus id."""
        return self.name or self.alias or self.bus_id or "?"


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A scale-up link of two GPUs. ``count``: bonded NVLinks (``NV18``: 18). ``weight``, ``hops``: as of rocm-smi."""

    first: str
    second: str
    kind: str
    count: int | None = None
    hops: int | None = None
    weight: int | None = None


class PcieLink(msgspec.Struct, frozen=True, kw_only=True):
    """A PCIe link: transfers per second and lane [GT/s], and lanes."""

    speed: float
    width: int
    source: str

    @property
    def generation(self) -> int | None:
        """PCIe generation of the speed, None for a speed that no generation has."""
        return {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}.get(self.speed)

    @property
    def rate(self) -> float | None:
        """Bytes per second and direction after line coding; None for a width of 0, which virtual machines report.

        8b/10b up to 5 GT/s, 128b/130b up to 32, 242 of the 256 bytes of a flit at 64. Source: PCI Express Base
        Specification 6.0, sections 4.2.1 to 4.2.3. Gen5 x16 is 63.0 GB/s, Gen6 x16 121.0 GB/s.
        """
        if self.width <= 0 or self.generation is None:
            return None
        coding = 8 / 10 if self.speed <= 5 else 128 / 130 if self.speed <= 32 else 242 / 256
        return self.speed * 1e9 * self.width / 8 * coding


class SharedUplink(msgspec.Struct, frozen=True, kw_only=True):
    """Devices below one port of a host bridge.

    ``through``: the bus id of that port where a capture gives it. ``rate``: of its link, per direction [B/s].
    """

    devices: tuple[str, ...]
    through: str | None = None
    rate: float | None = None
    source: str


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What one reader found in one text.

    ``relations``: GPU-NIC, GPU-GPU and NIC-NIC pairs (``pair``) to PIX, PXB, PHB, NODE, SYS, NODE/SYS or NV#.
    ``groups``: devices that share a port of a host bridge. ``pcie``: PCIe links by bus id.
    """

    form: str
    source: str
    line: int
    devices: tuple[Device, ...] = ()
    relations: Mapping[Pair, str] = {}
    links: tuple[Link, ...] = ()
    groups: tuple[SharedUplink, ...] = ()
    pcie: Mapping[str, PcieLink] = {}
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A NIC, what it is for and why. ``affinity``: relation to every GPU of which a capture says one."""

    device: Device
    kind: Kind
    reason: str
    affinity: dict[str, str]

    @property
    def name(self) -> str:
        return self.device.key

    @property
    def near(self) -> list[str]:
        """GPUs below the same PCIe switch (PIX) or switches (PXB)."""
        return [gpu for gpu, word in self.affinity.items() if word in NEAR]


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """One machine.

    ``same_switch``: whether every GPU has its compute NIC below one PCIe switch; None where no capture tells.
    """

    gpus: tuple[Device, ...]
    nics: tuple[Nic, ...]
    links: tuple[Link, ...]
    uplinks: tuple[SharedUplink, ...]
    pcie: dict[str, PcieLink]
    same_switch: bool | None
    same_switch_reason: str
    hypervisor: str | None
    captures: tuple[Capture, ...]
    notes: tuple[str, ...]

    def of_kind(self, kind: Kind) -> list[Nic]:
        """The NICs of a kind."""
        return [nic for nic in self.nics if nic.kind == kind]

    @property
    def refused(self) -> tuple[str, ...]:
        """Rows that were not used, each with the reason."""
        return tuple(line for capture in self.captures for line in capture.refused)


def contradiction(first: Capture, second: Capture) -> str | None:
    """What shows that two captures of one form are of different machines; None where they can be of the same one."""
    if {device.key for device in first.devices} != {device.key for device in second.devices}:
        return "other devices"
    different = next((key for key, word in first.relations.items() if second.relations.get(key, word) != word), None)
    return (
        f"{first.relations[different]} or {second.relations[different]} for {'-'.join(different)}"
        if different
        else None
    )


def pair(first: str, second: str) -> Pair:
    """The two names in a fixed order, so that a relation is kept once."""
    return (first, second) if first <= second else (second, first)


_BUS_ID = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


def bus_id(text: str) -> str | None:
    """A PCI bus id as ``0000:9d:00.0``, else None. nvidia-smi writes 00000000:9D:00.0, lspci leaves domain 0 out."""
    match = _BUS_ID.fullmatch(text)
    if match is None:
        return None
    domain = (match[1] or "").lstrip("0").rjust(4, "0")
    return f"{domain}:{match[2]}:{match[3]}.{match[4]}".lower()


# colour and cursor codes, also where a copy through a web page lost or spelled out the escape character
_CODES = re.compile(
    r"(?:\x1b|\^\[|\\e|\\033|\\x1b)\[[0-?]{0,20}[ -/]{0,5}[@-~]"
    r"|\[\d{0,2}(?:;\d{1,3}){0,4}m"
    r"|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?"
)


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without colour codes, carriage returns and no-break spaces; none longer than ``MAX_LINE``."""
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) <= MAX_LINE:
            yield number, _CODES.sub("", line).replace("\xa0", " ").replace("\r", "")


def name_list(names: Iterable[str]) -> str:
    """``GPU0-GPU3, GPU7``: names for people, runs of consecutive numbers drawn together."""
    runs: list[list[str]] = []
    for name in names:
        stem, number = split_number(name)
        if runs and number is not None:
            last_stem, last_number = split_number(runs[-1][-1])
            if last_stem == stem and last_number is not None and number == last_number + 1:
                runs[-1].append(name)
                continue
        runs.append([name])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def split_number(name: str) -> tuple[str, int | None]:
    """``mlx5_10`` as ``("mlx5_", 10)``; None where the name does not end in a number. Sorts names as people count."""
    match = re.fullmatch(r"(.*?)([0-9]{1,9})", name, re.DOTALL)
    return (match[1], int(match[2])) if match else (name, None)


def by_number(name: str) -> tuple[str, int]:
    """Sort key under which mlx5_9 stands before mlx5_10."""
    stem, number = split_number(name)
    return stem, -1 if number is None else number
