"""Traffic classes of a fabric as records: virtual lanes of InfiniBand, traffic classes of RoCE.

Three kinds of text are told apart by content: an ``opensm.conf`` (``qos_opensm``), ``smpquery vlarb`` output and
``mlnx_qos`` output (both ``qos_ports``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from dualplan.errors import InputError, problem, refuse
from dualplan.spec.load import read_text

PortClass = Literal["ca", "sw0", "swe", "rtr"]
Selection = Literal["ets", "strict", "vendor"]
TableEntries = tuple[tuple[int, int], ...]

MAX_ENTRIES = 64
MAX_FILE_BYTES = 4_000_000
MAX_PROBLEMS = 20
"""Problems of one file that are told."""

OPERATIONAL_LANES = {1: 1, 2: 2, 3: 4, 4: 8, 5: 15}
"""Code of PortInfo:OperationalVLs (``max_op_vls``) -> number of data lanes; VL15, for management, is not among them."""


class LaneTables(msgspec.Struct, frozen=True, kw_only=True):
    """VL arbitration of an InfiniBand port.

    ``high``, ``low``: entries (lane, weight), weight in units of 64 bytes; with weight 0 the lane is not in that table.
    ``high_limit``: this many times 4096 bytes of the high table go before a packet of the low one may; 0 is one
    packet, 255 no limit. ``operational_lanes``: data lanes of the port (1, 2, 4, 8 or 15). Raises InputError for
    anything a port cannot hold.
    """

    high: TableEntries
    low: TableEntries
    high_limit: int
    operational_lanes: int = 15

    def __post_init__(self) -> None:
        problems = []
        if not 0 <= self.high_limit <= 255:
            problems.append(problem("high_limit", f"{self.high_limit} is not in 0 .. 255"))
        if self.operational_lanes not in OPERATIONAL_LANES.values():
            problems.append(problem("operational_lanes", f"{self.operational_lanes} is not one of 1, 2, 4, 8, 15"))
        for name, table in (("high", self.high), ("low", self.low)):
            if len(table) > MAX_ENTRIES:
                problems.append(problem(name, f"{len(table)} entries, a table holds {MAX_ENTRIES}"))
            for lane, weight in table:
                if not 0 <= lane < self.operational_lanes:
                    problems.append(problem(name, f"lane {lane} is not in 0 .. {self.operational_lanes - 1}"))
                if not 0 <= weight <= 255:
                    problems.append(problem(name, f"weight {weight} of lane {lane} is not in 0 .. 255"))
        refuse(problems)

    def lanes(self) -> tuple[int, ...]:
        """Lanes with weight in either table, ascending."""
        return tuple(sorted({lane for lane, weight in (*self.high, *self.low) if weight}))


class TrafficClass(msgspec.Struct, frozen=True, kw_only=True):
    """A traffic class of an Ethernet port.

    ``bandwidth``: ETS weight in per cent. ``priorities``: 802.1p priorities on it. ``rate_limit``: as the tool wrote
    it, None for unlimited.
    """

    number: int
    selection: Selection
    bandwidth: int | None = None
    priorities: tuple[int, ...] = ()
    rate_limit: str | None = None


class ClassTable(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic classes of an Ethernet port. ``dscp``: priority -> DSCP values, empty where unknown.

    Raises InputError for classes described twice, a priority on two classes, and numbers out of range.
    """

    classes: tuple[TrafficClass, ...]
    dscp: dict[int, tuple[int, ...]] = {}

    def __post_init__(self) -> None:
        problems: list[str] = []
        seen: set[int] = set()
        owner: dict[int, int] = {}
        for traffic in self.classes:
            where = f"tc {traffic.number}"
            if not 0 <= traffic.number <= 7:
                problems.append(problem(where, "traffic classes are 0 to 7"))
            if traffic.number in seen:
                problems.append(problem(where, "described twice"))
            seen.add(traffic.number)
            if traffic.bandwidth is not None and not 0 <= traffic.bandwidth <= 100:
                problems.append(problem(where, f"bw {traffic.bandwidth}% is not in 0 .. 100 %"))
            for priority in traffic.priorities:
                if not 0 <= priority <= 7:
                    problems.append(problem(where, f"priority {priority}: priorities are 0 to 7"))
                if owner.setdefault(priority, traffic.number) != traffic.number:
                    problems.append(problem(where, f"priority {priority} is on tc {owner[priority]} as well"))
        refuse(problems)

    def lanes(self) -> tuple[int, ...]:
        """Classes that traffic can reach: those with a priority; all of them where the text names no priorities."""
        mapped = tuple(sorted(traffic.number for traffic in self.classes if traffic.priorities))
        return mapped or tuple(sorted(traffic.number for traffic in self.classes))


Setting = LaneTables | ClassTable


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that whoever relies on the setting should know. ``code`` is stable, ``text`` a sentence."""

    code: str
    text: str


class QosFile(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with what was noticed while reading it.

    Of OpenSM files only: ``port_class``, ``max_vls``, ``class_keys``, the fields that keys of the port class set, and
    ``service_levels``, the lane of each of the 16 service levels (15: dropped). ``high_limit_known`` is False where the
    text does not tell the limit and OpenSM's default stands in.
    """

    kind: Literal["opensm", "smpquery", "mlnx_qos"]
    setting: Setting
    port_class: PortClass | None = None
    max_vls: int | None = None
    class_keys: tuple[str, ...] = ()
    service_levels: tuple[int, ...] = ()
    high_limit_known: bool = True
    remarks: tuple[Remark, ...] = ()


def read_qos(path: Path, port_class: PortClass = "ca") -> QosFile:
    """Read an ``opensm.conf``, ``smpquery vlarb`` output or ``mlnx_qos`` output.

    ``port_class`` picks the keys of an OpenSM file and means nothing to the others. Raises InputError with file and
    line.
    """
    return parse_qos(read_text(path, limit=MAX_FILE_BYTES), str(path), port_class)


_KINDS = {
    "an OpenSM configuration": re.compile(r"^[ \t]*(?:qos_\w+|max_op_vls)[ \t]+\S", re.MULTILINE),
    "smpquery vlarb output": re.compile(r"^[ \t]*VL[ \t]*:[ \t]*\|", re.MULTILINE),
    "mlnx_qos output": re.compile(r"(?<![a-z])tc\s*:\s*\d+\s*ratelimit\s*:", re.IGNORECASE),
}


def parse_qos(text: str, name: str, port_class: PortClass = "ca") -> QosFile:
    """``read_qos`` for text already at hand; ``name`` stands in errors."""
    from dualplan.spec import qos_opensm, qos_ports

    if not text.strip():
        raise InputError(name, "is empty")
    found = [kind for kind, pattern in _KINDS.items() if pattern.search(text)]
    if not found:
        raise InputError(
            name,
            "has no qos_ keys, no VL arbitration tables and no traffic classes",
            "an opensm.conf, the output of smpquery vlarb or of mlnx_qos is needed",
        )
    if len(found) > 1:
        raise InputError(name, f"holds {' and '.join(found)}", "keep one of them in the file")
    if found == ["an OpenSM configuration"]:
        return qos_opensm.parse(text, name, port_class)
    if found == ["smpquery vlarb output"]:
        return qos_ports.parse_smpquery(text, name)
    return qos_ports.parse_mlnx_qos(text, name)


def service_levels_of(file: QosFile, lane: int) -> tuple[int, ...]:
    """Service levels whose packets an OpenSM file sends on a lane. Empty for other kinds of files."""
    if not isinstance(file.setting, LaneTables):
        return ()
    mask = lane_mask(file.setting.operational_lanes)
    return tuple(level for level, to in enumerate(file.service_levels) if to != 15 and to & mask == lane)


def lane_mask(operational_lanes: int) -> int:
    """The bits of a lane number that count on a port with that many data lanes."""
    return 15 if operational_lanes == 15 else operational_lanes - 1


def lanes_for(count: int) -> int:
    """The smallest number of data lanes, of those a port can have, that holds ``count`` lanes (1 to 15)."""
    return min(lanes for lanes in OPERATIONAL_LANES.values() if lanes >= count)


def integer(text: str) -> int:
    """A number as fabric tools write it, in base 10 or 16."""
    return int(text, 16 if text[:2] in ("0x", "0X") else 10)


def table_text(table: Iterable[tuple[int, int]]) -> str:
    """A table as OpenSM writes it: ``0:192,1:64``."""
    return ",".join(f"{lane}:{weight}" for lane, weight in table)


def listed(items: Iterable[object]) -> str:
    """``a, b and c``."""
    words = [str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
