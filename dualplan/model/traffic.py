"""The step table: what one turn moves, from where to where, and which resources each movement charges.

Every mode and option is a list of rows (``Step``). Link loads, the closed form, the flow problem and the diagrams are
derived from these rows; a new mode is new rows. Steps carry the numbers of DualPath (arXiv 2602.21548), figures 4a and
4b; ``r1``-``r3`` are the return of the miss bytes, which figure 4b does not label.

Bytes of a row are a sum of the quantities in ``Bytes``. Places are ``storage`` and, on each side, ``host``, ``cnic``
and ``gpu``.
A compute NIC *reads* when it fetches from host or GPU memory over PCIe, and *writes* when it stores there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from dualplan.spec.choices import Copy, Mode, Persist, Staging

Path = Literal["prefill", "decode"]

SIDES: tuple[Path, Path] = ("prefill", "decode")


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """KV-cache and collective bytes of one turn [B]; numbers, arrays, Fractions or symbols.

    ``hit``: the reused prefix. ``read``: the part of it that storage delivers. ``pooled``: the part that a DRAM pool
    delivers.
    ``loaded``: the part that must reach the decode GPU (all but what still resides there). ``miss``: KV that prefill
    computes (the
    append and the recomputed tail). ``append``: the part of it that is new to storage. ``generated``: KV of the
    generated tokens.
    ``prefill_collective`` and ``decode_collective``: bytes that a turn's collectives send, and receive, on the
    compute NICs.
    """

    hit: Any
    read: Any
    loaded: Any
    pooled: Any = 0
    miss: Any = 0
    append: Any = 0
    generated: Any = 0
    prefill_collective: Any = 0
    decode_collective: Any = 0


def hits_only(hit: Any) -> Bytes:
    """A turn that moves nothing but the reused prefix: what the paper's ranges count."""
    return Bytes(hit=hit, read=hit, loaded=hit)


class Step(msgspec.Struct, frozen=True):
    """One movement: its number, where from, where to, and the names of the byte quantities that add up."""

    label: str
    source: str
    target: str
    bytes: tuple[str, ...]


# What a movement charges, by the kinds of its two ends. ``{s}`` is the side of the source, ``{t}`` of the target.
# The pcie_* names are crossings; a machine turns them into loads of shared uplinks and of the link between its sockets.
_CHARGES: dict[tuple[str, str], tuple[str, ...]] = {
    ("storage", "host"): ("{t}_snic_ingress", "{t}_dram", "{t}_pcie_snic_up"),
    ("storage", "gpu"): ("{t}_snic_ingress", "{t}_pcie_snic_gpu"),
    ("host", "storage"): ("{s}_dram", "{s}_snic_egress", "{s}_pcie_snic_down"),
    ("host", "cnic"): ("{s}_dram", "{s}_cnic_read", "{s}_pcie_cnic_down"),
    ("gpu", "cnic"): ("{s}_cnic_read", "{s}_pcie_gpu_cnic"),
    ("cnic", "host"): ("{t}_cnic_write", "{t}_dram", "{t}_pcie_cnic_up"),
    ("cnic", "gpu"): ("{t}_cnic_write", "{t}_pcie_cnic_gpu"),
    ("cnic", "cnic"): ("{s}_wire_egress", "{t}_wire_ingress"),
    ("host", "gpu"): ("{s}_dram", "{s}_pcie_gpu_down"),
    ("gpu", "host"): ("{t}_dram", "{t}_pcie_gpu_up"),
}


def charges(step: Step, *, shares_cnic: tuple[bool, bool] = (False, False)) -> tuple[str, ...]:
    """Resources that a movement charges with its bytes, once for each time a name appears.

    ``shares_cnic``: whether storage traffic of the prefill and of the decode side runs over the compute NICs, as on
    AWS: such a
    read also arrives on their wire and is written by them, such a write is read by them and leaves on their wire.
    """
    (source_side, source), (target_side, target) = _place(step.source), _place(step.target)
    side = target_side or source_side
    names = [name.format(s=source_side, t=target_side) for name in _CHARGES[source, target]]
    if "storage" in (source, target) and shares_cnic[SIDES.index(side)]:
        extra = ("wire_ingress", "cnic_write") if source == "storage" else ("cnic_read", "wire_egress")
        names += [f"{side}_{name}" for name in extra]
    return tuple(names)


def _place(name: str) -> tuple[str, str]:
    side, _, kind = name.rpartition("_")
    return side, kind


def _rows(text: str) -> tuple[Step, ...]:
    """Rows written one a line: label, source, target, bytes joined by ``+``."""
    steps = []
    for line in text.strip().splitlines():
        label, source, target, quantities = line.split()
        steps.append(Step(label, source, target, tuple(quantities.split("+"))))
    return tuple(steps)


_PREFILL_READ = _rows("""
    1-2  storage       prefill_host  read
    3    prefill_host  prefill_cnic  hit
    4    prefill_cnic  prefill_gpu   hit
    5    prefill_gpu   prefill_cnic  loaded+miss
    6    prefill_cnic  decode_cnic   loaded+miss
    7    decode_cnic   decode_host   loaded+miss
    8    decode_host   decode_cnic   loaded+miss
    9    decode_cnic   decode_gpu    loaded+miss
""")
_DECODE_READ = _rows("""
    1-2  storage       decode_host   read
    3    decode_host   decode_cnic   hit
    4    decode_cnic   prefill_cnic  hit
    5    prefill_cnic  prefill_gpu   hit
    r1   prefill_gpu   prefill_cnic  miss
    r2   prefill_cnic  decode_cnic   miss
    r3   decode_cnic   decode_host   miss
    6    decode_host   decode_cnic   loaded+miss
    7    decode_cnic   decode_gpu    loaded+miss
""")
# GPUDirect staging: KV goes straight into decode HBM, which is then held from the first layer of prefill on.
_PREFILL_READ_GPUDIRECT = _rows("""
    1-2  storage       prefill_host  read
    3    prefill_host  prefill_cnic  hit
    4    prefill_cnic  prefill_gpu   hit
    5    prefill_gpu   prefill_cnic  loaded+miss
    6    prefill_cnic  decode_cnic   loaded+miss
    7    decode_cnic   decode_gpu    loaded+miss
""")
_DECODE_READ_GPUDIRECT = _rows("""
    1-2  storage       decode_host   read
    3    decode_host   decode_cnic   hit
    4    decode_cnic   prefill_cnic  hit
    5    prefill_cnic  prefill_gpu   hit
    r1   prefill_gpu   prefill_cnic  miss
    r2   prefill_cnic  decode_cnic   miss
    r3   decode_cnic   decode_gpu    miss
    6    decode_host   decode_cnic   loaded
    7    decode_cnic   decode_gpu    loaded
""")
# GPUDirect Storage: reads end in HBM and obey no lanes; host memory is not touched on the way in.
_PREFILL_READ_GDS = _rows("""
    1-2  storage       prefill_gpu   read
    5    prefill_gpu   prefill_cnic  loaded+miss
    6    prefill_cnic  decode_cnic   loaded+miss
    7    decode_cnic   decode_gpu    loaded+miss
""")
_DECODE_READ_GDS = _rows("""
    1-2  storage       decode_gpu    read
    3    decode_gpu    decode_cnic   hit
    4    decode_cnic   prefill_cnic  hit
    5    prefill_cnic  prefill_gpu   hit
    r1   prefill_gpu   prefill_cnic  miss
    r2   prefill_cnic  decode_cnic   miss
    r3   decode_cnic   decode_gpu    miss
""")
_READS: dict[Staging, tuple[tuple[Step, ...], tuple[Step, ...]]] = {
    "host": (_PREFILL_READ, _DECODE_READ),
    "gpudirect": (_PREFILL_READ_GPUDIRECT, _DECODE_READ_GPUDIRECT),
    "gds": (_PREFILL_READ_GDS, _DECODE_READ_GDS),
}
# A DRAM pool spread over the prefill nodes: a remote node's memory to the reader's memory over the compute network.
_POOL_READ = _rows("""
    p1   prefill_host  prefill_cnic  pooled
    p2   prefill_cnic  prefill_cnic  pooled
    p3   prefill_cnic  prefill_host  pooled
""")
_PERSIST_GENERATED = _rows("""
    w1   decode_gpu    decode_cnic   generated
    w2   decode_cnic   decode_host   generated
    w3   decode_host   storage       generated
""")
_PERSIST_MISS_DECODE = _rows("""
    w6   decode_host   storage       append
""")
# Under GPUDirect staging the miss never was in host memory and is brought there first.
_MISS_TO_DECODE_HOST = _rows("""
    w4   decode_gpu    decode_cnic   append
    w5   decode_cnic   decode_host   append
""")
_PERSIST_MISS_PREFILL = _rows("""
    w4   prefill_gpu   prefill_cnic  append
    w5   prefill_cnic  prefill_host  append
    w6   prefill_host  storage       append
""")
# Collectives of model execution: sent to, and received from, GPUs of the same side; on the high-priority lane.
_COLLECTIVES = _rows("""
    cp1  prefill_gpu   prefill_cnic  prefill_collective
    cp2  prefill_cnic  prefill_cnic  prefill_collective
    cp3  prefill_cnic  prefill_gpu   prefill_collective
    cd1  decode_gpu    decode_cnic   decode_collective
    cd2  decode_cnic   decode_cnic   decode_collective
    cd3  decode_cnic   decode_gpu    decode_collective
""")


def steps(
    mode: Mode, *, staging: Staging = "host", copy: Copy = "cnic", persist: Persist = "decode"
) -> dict[Path, tuple[Step, ...]]:
    """The rows of a turn by the side that reads it; modes that read on the prefill side only have no ``decode``
    entry.
    """
    if mode == "oracle":
        return {"prefill": _COLLECTIVES}
    miss = _PERSIST_MISS_PREFILL if persist == "prefill" else _PERSIST_MISS_DECODE
    if persist == "decode" and staging != "host":
        miss = _MISS_TO_DECODE_HOST + miss
    common = _PERSIST_GENERATED + miss + _COLLECTIVES
    prefill, decode = _READS[staging]
    if mode == "dram-pool":
        prefill = _POOL_READ + prefill
    both: dict[Path, tuple[Step, ...]] = {"prefill": prefill + common}
    if mode in ("dual-path", "split-read"):
        both["decode"] = decode + common
    return {path: _by_engine(rows) for path, rows in both.items()} if copy == "engine" else both


def _by_engine(rows: tuple[Step, ...]) -> tuple[Step, ...]:
    """Copies between host and GPU of one node done by the CUDA copy engine: two NIC movements become one direct one."""
    result: list[Step] = []
    for step in rows:
        before = result[-1] if result else None
        (side, kind), (end_side, end) = _place(step.source), _place(step.target)
        if (
            before
            and before.target == step.source
            and kind == "cnic"
            and side == end_side
            and end != "cnic"
            and before.bytes == step.bytes
        ):
            start_side, start = _place(before.source)
            if start_side == side and {start, end} == {"host", "gpu"}:
                result[-1] = Step(f"{before.label},{step.label}", before.source, step.target, step.bytes)
                continue
        result.append(step)
    return tuple(result)


def is_copy(step: Step) -> bool:
    """Whether a movement is a direct copy between host and GPU memory of one node, by the copy engine."""
    return {_place(step.source)[1], _place(step.target)[1]} == {"host", "gpu"}


def copied_bytes(rows: Iterable[Step], amounts: Bytes, side: str) -> Any:
    """Bytes of a turn that ``side`` copies between host and GPU memory, by NIC loopback or copy engine [B]."""
    rows = tuple(rows)
    total: Any = 0
    for step, following in zip_longest(rows, rows[1:]):
        loopback = (
            following is not None
            and following.source == step.target == f"{side}_cnic"
            and step.bytes == following.bytes
            and {step.source, following.target} == {f"{side}_host", f"{side}_gpu"}
        )
        if loopback or (is_copy(step) and _place(step.source)[0] == side):
            total = total + amount(step, amounts)
    return total


def amount(step: Step, amounts: Bytes) -> Any:
    """Bytes that a row moves [B]."""
    total: Any = 0
    for name in step.bytes:
        total = total + getattr(amounts, name)
    return total


def loads(rows: Iterable[Step], amounts: Bytes, *, shares_cnic: tuple[bool, bool] = (False, False)) -> dict[str, Any]:
    """Bytes of one turn on each resource that its rows charge [B], by name such as ``decode_cnic_write``."""
    total: dict[str, Any] = {}
    for step in rows:
        moved = amount(step, amounts)
        for name in charges(step, shares_cnic=shares_cnic):
            total[name] = total.get(name, 0) + moved
    return total


def path_loads(
    table: Mapping[Path, tuple[Step, ...]], amounts: Bytes, *, shares_cnic: tuple[bool, bool] = (False, False)
) -> dict[str, tuple[Any, Any]]:
    """Bytes on each resource of a turn read on the prefill side and of one read on the decode side: {name: (prefill,
    decode)} [B].
    """
    by_path = [loads(table.get(path, ()), amounts, shares_cnic=shares_cnic) for path in SIDES]
    names = dict.fromkeys(name for part in by_path for name in part)
    return {name: (by_path[0].get(name, 0), by_path[1].get(name, 0)) for name in names}
