"""Readers of the ports of RDMA devices: ``ibstat``, ``ibstatus`` and ``ibdev2netdev``."""

from __future__ import annotations

import re

import msgspec

from dualplan.errors import problem
from dualplan.spec.topology_records import Capture, Device, bus_id, lines

_DEVICE = re.compile(r"CA:? '([\w.-]{1,64})'|Infiniband device '([\w.-]{1,64})' port ([0-9]+) status:")
_FIELD = re.compile(r"(CA type|Port [0-9]+|State|state|Rate|rate|Link layer|link_layer)\s*:\s*(.{0,80}?)")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:\s*Gb/sec\b.*)?")


class _Port(msgspec.Struct):
    state: str | None = None
    rate: float | None = None
    link_layer: str | None = None


class _Adapter(msgspec.Struct):
    line: int
    model: str | None = None
    ports: dict[str, _Port] = msgspec.field(default_factory=dict)


def read_ibstat(text: str, source: str) -> list[Capture]:
    """Rate [Gb/s in the text], link layer and state of every channel adapter."""
    adapters: dict[str, _Adapter] = {}
    current: _Adapter | None = None
    port = ""
    for number, line in lines(text):
        line = line.strip()
        head = _DEVICE.fullmatch(line)
        if head:
            current = adapters.setdefault(head[1] or head[2], _Adapter(number))
            port = head[3] or ""
            continue
        field = _FIELD.fullmatch(line)
        if field is None or current is None:
            continue
        key, value = field[1].lower().replace("_", " "), field[2].strip()
        if key.startswith("port "):
            port = key[5:]
            current.ports.setdefault(port, _Port())
        elif key == "ca type":
            current.model = value or None
        elif value:
            _set(current.ports.setdefault(port, _Port()), key, value)
    if not adapters:
        return []
    devices, notes = [], []
    for name, adapter in adapters.items():
        devices.append(_device(name, adapter, source))
        if not any(port.rate or port.state for port in adapter.ports.values()):
            notes.append(
                problem(f"{source}:{adapter.line}", f"{name} has no port in this capture: its rate is unknown")
            )
    first = min(adapter.line for adapter in adapters.values())
    return [Capture(form="ibstat", source=source, line=first, devices=tuple(devices), notes=tuple(notes))]


def _set(port: _Port, key: str, value: str) -> None:
    if key == "state":
        port.state = value.rpartition(": ")[2].capitalize()  # ibstatus writes "4: ACTIVE"
    elif key == "rate":
        number = _RATE.fullmatch(value)
        port.rate = float(number[1]) * 1e9 / 8 if number and 0 < float(number[1]) < 1e5 else None
    elif key == "link layer":
        port.link_layer = value


def _device(name: str, adapter: _Adapter, source: str) -> Device:
    """One NIC. Its rate is that of its active ports together: a port that is down reports a placeholder instead."""
    active = [port for port in adapter.ports.values() if port.state in ("Active", None) and port.rate]
    states = list(dict.fromkeys(port.state for port in adapter.ports.values() if port.state))
    layers = list(dict.fromkeys(port.link_layer for port in adapter.ports.values() if port.link_layer))
    return Device(
        role="nic",
        name=name,
        model=adapter.model,
        rate=sum(port.rate for port in active if port.rate) or None,
        rate_source=f"ibstat, {source}" if active else None,
        state="Active" if "Active" in states else states[0] if states else None,
        link_layer="/".join(layers) or None,
        rdma=True,
    )


def read_ibdev2netdev(text: str, source: str) -> list[Capture]:
    """Network interface of every RDMA device, with ``-v`` also its bus id.

    Up and Down are left out: they are those of the interface, and an InfiniBand link works without one.
    """
    devices: dict[str, Device] = {}
    first = 0
    for number, line in lines(text):
        left, arrow, right = line.partition("==>")
        words, ends = left.split(), right.split()
        if not arrow or not ends or "port" not in words[1:]:
            continue
        address = bus_id(words[0])
        name = words[1] if address and len(words) > 3 else words[0]
        if not re.fullmatch(r"[A-Za-z][\w.-]{0,63}", name) or not re.fullmatch(r"[\w.@-]{1,64}", ends[0]):
            continue
        first = first or number
        devices.setdefault(name, Device(role="nic", name=name, bus_id=address, netdev=ends[0], rdma=True))
    if not devices:
        return []
    return [Capture(form="ibdev2netdev", source=source, line=first, devices=tuple(devices.values()))]
