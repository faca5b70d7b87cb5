"""A node: its GPUs, NICs, memory and PCIe, with a source for every value.

Rates are nominal line rates per direction in bytes per second; what is reachable stands beside them as an efficiency.
``None`` means unknown: the constraint is left out and the answer says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dualplan.errors import InputError, problem
from dualplan.spec.load import (
    Bandwidth,
    ComputeRate,
    Count,
    CountOrZero,
    Duration,
    Efficiency,
    HourlyPrice,
    Money,
    Node,
    Power,
    Size,
    decode,
    find,
    leaves,
    merged,
    read_yaml,
)

if TYPE_CHECKING:
    from dualplan.spec.qos import ClassTable, LaneTables

KIND = "hardware_profiles"


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Flops(_Record, frozen=True):
    """Dense peak of one GPU by data type [FLOP/s]."""

    bf16: ComputeRate
    fp8: ComputeRate | None = None
    fp4: ComputeRate | None = None
    int8: ComputeRate | None = None


class Gpu(_Record, frozen=True):
    """The GPUs of a node; memory and power are of one GPU."""

    kind: str
    count: Count
    flops: Flops
    hbm_capacity: Size
    hbm_bandwidth: Bandwidth
    power: Power | None = None


class Cnic(_Record, frozen=True):
    """Compute NICs (the network of collectives and of P-D transfers). ``rate`` is of one NIC and direction."""

    count: Count
    rate: Bandwidth
    efficiency: Efficiency = 1.0


class Snic(_Record, frozen=True):
    """Storage NICs. A read takes ``time_per_read`` plus its bytes at ``rate * efficiency``.

    ``shares_cnic``: there is no separate storage network; storage traffic also loads the compute NICs' wire.
    """

    count: Count
    rate: Bandwidth
    efficiency: Efficiency = 1.0
    time_per_read: Duration = 0.0
    shares_cnic: bool = False


class Dram(_Record, frozen=True):
    """Host memory of a node. ``bandwidth``: reads and writes together. ``kv_buffer``: part set aside for KV in flight.

    ``buffer_sockets``: sockets whose memory holds the KV buffers; with fewer than ``sockets`` only that part of the
    bandwidth counts.
    """

    bandwidth: Bandwidth | None = None
    capacity: Size | None = None
    sockets: Count = 2
    buffer_sockets: Count | None = None
    kv_buffer: Size | None = None


class Uplink(_Record, frozen=True):
    """A PCIe link that several devices share on their way to the host; ``count`` such links in a node, ``rate`` per
    direction.
    """

    rate: Bandwidth
    count: Count = 1
    gpus: CountOrZero = 0
    cnics: CountOrZero = 0
    snics: CountOrZero = 0


class Pcie(_Record, frozen=True):
    """PCIe of a node. ``rate`` is of one device's slot and direction. ``numa_link``: the link between the sockets,
    per direction.

    ``gpu_nic_same_switch``: whether each GPU reaches its compute NIC without passing the host (the paper assumes it).
    """

    generation: Count
    width: Count = 16
    rate: Bandwidth | None = None
    gpu_nic_same_switch: bool | None = None
    uplinks: tuple[Uplink, ...] = ()
    numa_link: Bandwidth | None = None


class Nvlink(_Record, frozen=True):
    """Scale-up network. ``bandwidth`` of one GPU and direction; ``domain_gpus`` GPUs reach each other over it."""

    bandwidth: Bandwidth
    domain_gpus: Count


class Storage(_Record, frozen=True):
    """The KV store behind the storage NICs. Bandwidths are of the whole store; None: not a limit."""

    kind: str
    read_bandwidth: Bandwidth | None = None
    write_bandwidth: Bandwidth | None = None
    latency: Duration | None = None


class CopyCost(_Record, frozen=True):
    """Submission of one host-GPU copy: by RDMA write through the compute NIC, or by the CUDA copy engine, and
    parallel queues of a GPU.
    """

    cnic: Duration
    engine: Duration
    queues: Count = 1


class Efficiencies(_Record, frozen=True):
    """What a GPU reaches of its peaks, of which the roofline (dualplan.model.roofline) takes fitted shares, and what of
    its memory an engine may use.

    ``hbm``: share of the HBM bandwidth that streams reach; ``decode``: of the peak that large matrix products reach
    (as H100 where nothing is said). What an owner knows better than the fitted constants, None leaves them:
    ``prefill``: share of the peak in all matrices of a prefill, end to end; ``attention``: of the bf16 peak in its
    attention; ``decode_layer_time``: launch and synchronisation of one layer of a decode step. ``memory``: share of HBM
    that the engine may use; ``reserve``: HBM for activations, graphs and communication.
    """

    hbm: Efficiency = 0.9
    decode: Efficiency = 0.71
    prefill: Efficiency | None = None
    attention: Efficiency | None = None
    decode_layer_time: Duration | None = None
    memory: Efficiency = 0.9
    reserve: Size = 4.17e9


class Cost(_Record, frozen=True):
    """What a node costs and draws. Any of them may be unknown."""

    price: Money | None = None
    price_per_hour: HourlyPrice | None = None
    power: Power | None = None


class QosClass(_Record, frozen=True):
    """One traffic class of a RoCE port: strict, or with an ETS weight in per cent."""

    number: CountOrZero
    selection: Literal["ets", "strict"] = "ets"
    bandwidth: CountOrZero | None = None


class Qos(_Record, frozen=True):
    """How the compute network keeps KV traffic and collectives apart.

    InfiniBand: ``high``, ``low`` (``lane:weight`` lists) and ``high_limit`` as in opensm.conf. RoCE: ``classes``. KV
    runs on ``kv_lane``, collectives on ``collective_lanes`` (lanes or traffic classes). ``file``: an opensm.conf, or
    smpquery or mlnx_qos output, whose tables are used instead of written ones.
    """

    kv_lane: CountOrZero
    collective_lanes: tuple[CountOrZero, ...]
    high: str | None = None
    low: str | None = None
    high_limit: CountOrZero | None = None
    mtu: Count = 4096
    classes: tuple[QosClass, ...] = ()
    file: str | None = None

    def __post_init__(self) -> None:
        if self.file is not None:
            if self.classes or self.high or self.low or self.high_limit is not None:
                raise InputError("qos", "has a file and tables of its own", "leave out one of them")
            return
        setting = self.setting()
        if self.kv_lane not in setting.lanes():
            raise InputError("qos.kv_lane", f"{self.kv_lane} has no weight, so KV traffic would never move")

    def setting(self) -> LaneTables | ClassTable:
        """The arbiter's tables."""
        from dualplan.spec.qos import ClassTable, LaneTables, TrafficClass
        from dualplan.spec.qos_opensm import parse_table

        if self.classes:
            if self.high or self.low or self.high_limit is not None:
                raise InputError("qos", "has lane tables and traffic classes", "InfiniBand has the one, RoCE the other")
            return ClassTable(
                classes=tuple(
                    TrafficClass(number=c.number, selection=c.selection, bandwidth=c.bandwidth) for c in self.classes
                )
            )
        if self.high is None or self.low is None or self.high_limit is None:
            raise InputError("qos", "needs high, low and high_limit (InfiniBand), or classes (RoCE)")
        return LaneTables(
            high=parse_table(self.high, "qos.high"), low=parse_table(self.low, "qos.low"), high_limit=self.high_limit
        )


class Hardware(_Record, frozen=True, kw_only=True):
    """A node type. ``sources`` maps a key path (or a section) to a citation, or to ``assumed: why``."""

    name: str
    title: str
    gpu: Gpu
    cnic: Cnic
    snic: Snic
    dram: Dram
    pcie: Pcie
    nvlink: Nvlink | None = None
    storage: Storage | None = None
    copy: CopyCost | None = None
    qos: Qos | None = None
    efficiency: Efficiencies = Efficiencies()
    cost: Cost = Cost()
    notes: tuple[str, ...] = ()
    sources: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.dram.buffer_sockets is not None and self.dram.buffer_sockets > self.dram.sockets:
            raise InputError(
                "dram.buffer_sockets",
                f"{self.dram.buffer_sockets} is more than the {self.dram.sockets} sockets of the node",
            )
        for index, uplink in enumerate(self.pcie.uplinks):
            for name, have in (("gpus", self.gpu.count), ("cnics", self.cnic.count), ("snics", self.snic.count)):
                if getattr(uplink, name) * uplink.count > have:
                    raise InputError(
                        f"pcie.uplinks[{index}].{name}",
                        f"{uplink.count} x {getattr(uplink, name)} is more than the {have} there are",
                    )


_META = ("name", "title", "notes", "sources", "extends")


def source_of(hardware: Hardware, key: str) -> str | None:
    """The source of a value: of its key path, or of the closest section above it; None where none is given."""
    while key:
        if key in hardware.sources:
            return hardware.sources[key] or None
        key = key.rpartition(".")[0]
    return None


def unsourced(hardware: Hardware) -> list[str]:
    """Key paths of values without a source."""
    missing = []

    def visit(value: Any, path: str) -> None:
        if isinstance(value, msgspec.Struct):
            for field in value.__struct_fields__:
                if path or field not in _META:
                    visit(getattr(value, field), f"{path}.{field}" if path else field)
        elif isinstance(value, tuple):
            for item in value:
                visit(item, path)
        elif value is not None and source_of(hardware, path) is None:
            missing.append(path)

    visit(hardware, "")
    return list(dict.fromkeys(missing))


def resolve(node: Node, *, where: str, base: Path | None = None, seen: tuple[str, ...] = ()) -> Node:
    """A profile as one tree: a name or path is read, ``extends:`` is followed, children laid over parents.

    A child that replaces a value must bring its own source: the parent's is dropped for the keys that the child sets.
    Raises InputError for unknown names and cycles.
    """
    if isinstance(node.value, str):
        path = find(KIND, ".yaml", node.value, where=where, base=base)
        key = str(path.resolve())
        if key in seen:
            raise InputError(where, f'"{node.value}" extends itself')
        return resolve(read_yaml(path), where=str(path), base=path.parent, seen=(*seen, key))
    if not isinstance(node.value, dict):
        raise InputError(where, "a name, a path or a mapping is needed")
    if len(seen) > 20:
        raise InputError(where, "extends too many profiles")
    child = dict(node.value)
    parent = child.pop("extends", None)
    if parent is None:
        return node
    if not isinstance(parent.value, str):
        raise InputError(f"{parent.place}: extends", "a name or a path is needed")
    below = resolve(parent, where=f"{parent.place}: extends", base=base, seen=seen)
    own = Node(child, node.place, origin=node.origin)
    plain = {re.sub(r"\[\d+\]", "", path): leaf for path, leaf in leaves(own)}
    replaced = {path: leaf for path, leaf in plain.items() if path.split(".")[0] not in _META}
    sources = below.items().get("sources")
    if sources is not None:
        brought = child["sources"].items() if "sources" in child else {}
        kept = {key: value for key, value in sources.items().items() if key not in replaced}
        for key, leaf in replaced.items():
            # an empty text hides the source of the section above, which is the parent's too
            if leaf.value is not None and not any(part in brought for part in _with_sections(key)):
                kept[key] = Node("", sources.place, quoted=True)
        below = Node({**below.items(), "sources": Node(kept, sources.place)}, below.place)
    return merged(below, own)


def _with_sections(key: str) -> list[str]:
    """A key path and the sections it lies in, innermost first."""
    parts = key.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _tables_of_file(qos: Qos) -> Qos:
    """A QoS setting with the tables of its file in place of the file. Raises InputError."""
    from dualplan.spec.qos import ClassTable, read_qos, table_text

    if qos.file is None:
        return qos
    setting = read_qos(Path(qos.file)).setting
    if isinstance(setting, ClassTable):
        classes = tuple(
            QosClass(number=c.number, selection="ets" if c.selection == "ets" else "strict", bandwidth=c.bandwidth)
            for c in setting.classes
        )
        return msgspec.structs.replace(qos, file=None, classes=classes)
    tables = {"high": table_text(setting.high), "low": table_text(setting.low), "high_limit": setting.high_limit}
    return msgspec.structs.replace(qos, file=None, **tables)


def decode_hardware(node: Node, path: str = "") -> Hardware:
    """A resolved tree as a record. Raises InputError with every problem."""
    items = node.items()
    for key in ("name", "title"):
        if key not in items and isinstance(node.value, dict):
            items = {**items, key: Node("custom", node.place)}
    hardware = decode(Node(items, node.place) if items else node, Hardware, path)
    if hardware.qos is None or hardware.qos.file is None:
        return hardware
    return msgspec.structs.replace(hardware, qos=_tables_of_file(hardware.qos))


def read_hardware(name: str, where: str = "--hardware") -> Hardware:
    """A shipped profile by name, or a profile file."""
    return decode_hardware(resolve(Node(name, where), where=where))


def check_sources(hardware: Hardware) -> None:
    """Raise InputError for values without a source; what every shipped profile must pass."""
    missing = unsourced(hardware)
    if missing:
        raise InputError("", problems=[problem(f"{hardware.name}: sources", f"{key} has no source") for key in missing])
