"""A hardware profile from captures: what they tell is written, what they cannot tell stays a comment to fill in."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from dualplan.spec.topology_records import Kind, Nic, PcieLink, SharedUplink, Topology, name_list


class Profile(msgspec.Struct, frozen=True):
    """YAML of ``dualplan.spec.hardware`` and the key paths that are still open in it."""

    text: str
    open_keys: tuple[str, ...]


# section, key: example, why it is open and what to write
_OPEN: dict[tuple[str, str], tuple[str, str]] = {
    ("gpu", "kind"): ("", "model of the GPUs (nvidia-smi -L)"),
    ("gpu", "count"): ("", "GPUs of a node"),
    ("gpu", "flops"): ("{bf16: ..., fp8: ...}", "dense peak of one GPU, such as 989TFLOPS (data sheet)"),
    ("gpu", "hbm_capacity"): ("", "of one GPU, such as 80GiB (data sheet)"),
    ("gpu", "hbm_bandwidth"): ("", "of one GPU, such as 3.35TB/s (data sheet)"),
    ("dram", "bandwidth"): ("", "of the node, reads and writes together, such as 500GB/s"),
    ("dram", "sockets"): ("2", "CPU sockets (lscpu)"),
    ("pcie", "generation"): ("", "PCIe generation of the GPU slots (lspci -vv, LnkSta)"),
    ("nvlink", "bandwidth"): ("", "scale-up rate of one GPU and direction; leave the section out where there is none"),
    ("nvlink", "domain_gpus"): ("", "GPUs that reach each other over it"),
}
_OPTIONAL = frozenset({("dram", "sockets"), ("nvlink", "bandwidth"), ("nvlink", "domain_gpus")})
"""Keys that a profile may do without."""


class _Section:
    """Lines of one mapping of the profile. With no value at all the whole mapping becomes a comment."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.open_keys: list[str] = []
        self.sources: dict[str, str] = {}

    def value(self, key: str, text: str, source: str) -> None:
        self.lines.append(f"  {key}: {text}")
        self.sources[f"{self.name}.{key}"] = source

    def missing(self, key: str, example: str, why: str, *, needed: bool = True) -> None:
        self.lines.append(f"  # {key}: {example}".rstrip() + f"  # {why}")
        if needed:
            self.open_keys.append(f"{self.name}.{key}")

    def open(self, *keys: str) -> _Section:
        """Keys that no capture tells, with the words of the table."""
        for key in keys:
            self.missing(key, *_OPEN[self.name, key], needed=(self.name, key) not in _OPTIONAL)
        return self

    def yaml(self) -> list[str]:
        if self.sources:
            return ["", f"{self.name}:", *self.lines]
        return ["", f"# {self.name}:", *("# " + line.replace("  # ", "  ", 1) for line in self.lines)]


def profile(topology: Topology, name: str) -> Profile:
    """The profile of a machine.

    Counts of NICs are written only when all NICs are decided, rates only where captures give one for all of a kind.
    """
    sections = [
        _gpu(topology),
        _nics(topology, "cnic", "compute"),
        _nics(topology, "snic", "storage"),
        _Section("dram").open("bandwidth", "sockets"),
        _pcie(topology),
        _nvlink(topology),
    ]
    files = list(dict.fromkeys(capture.source for capture in topology.captures))
    head = [
        f"# Imported from {', '.join(files)}. The captures cannot tell the lines that are comments:",
        "# fill them in with a source, or take them from a shipped profile with extends: NAME and check each one.",
        f"name: {json.dumps(name, ensure_ascii=False)}",
        f"title: {json.dumps(_title(topology), ensure_ascii=False)}",
        "# extends: dualpath-hopper",
    ]
    sources = {key: text for section in sections for key, text in section.sources.items()}
    tail = (
        ["", "sources:", *(f"  {key}: {json.dumps(text, ensure_ascii=False)}" for key, text in sources.items())]
        if sources
        else []
    )
    lines = [_one_line(line) for line in head] + [line for section in sections for line in section.yaml()] + tail
    return Profile("\n".join(lines) + "\n", tuple(key for section in sections for key in section.open_keys))


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _title(topology: Topology) -> str:
    kind = gpu_kind(topology) or "GPU"
    return f"{len(topology.gpus)}x {kind}, {len(topology.nics)} NICs" if topology.gpus else f"{len(topology.nics)} NICs"


def gpu_kind(topology: Topology) -> str | None:
    """The model of the GPUs, where captures give the same one for all that they name."""
    models = {gpu.model for gpu in topology.gpus}
    return models.pop() if len(models) == 1 else None


def _cite(topology: Topology, *forms: str) -> str:
    """``nvidia-smi topo -m capture, topo.txt``: the first capture of one of the forms, else of any with devices."""
    capture = next((c for c in topology.captures if c.form in forms), None) or next(
        (c for c in topology.captures if c.devices), topology.captures[0]
    )
    return f"{capture.form} capture, {capture.source}"


def _gpu(topology: Topology) -> _Section:
    section, kind = _Section("gpu"), gpu_kind(topology)
    if kind:
        section.value("kind", json.dumps(kind, ensure_ascii=False), _cite(topology, "nvidia-smi", "lspci -tv"))
    else:
        section.open("kind")
    if topology.gpus:
        section.value("count", str(len(topology.gpus)), _cite(topology))
    else:
        section.open("count")
    return section.open("flops", "hbm_capacity", "hbm_bandwidth")


def _nics(topology: Topology, name: str, kind: Kind) -> _Section:
    section = _Section(name)
    nics, undecided = topology.of_kind(kind), topology.of_kind("undecided")
    if undecided:
        found = f"{len(nics)} found" if nics else "none found"
        section.missing("count", "", f"{found}, undecided: {name_list(nic.name for nic in undecided)}")
    elif nics:
        section.value(
            "count", str(len(nics)), f"{_cite(topology)}: {name_list(nic.name for nic in nics)}; {_why(nics)}"
        )
    elif kind == "storage":
        section.missing(
            "count", "", "no storage NIC in the captures; shares_cnic: true where storage uses the compute NICs"
        )
    else:
        section.missing("count", "", f"no {kind} NIC in the captures")
    rates = {nic.device.rate for nic in nics}
    if len(rates) == 1 and None not in rates and not undecided:
        section.value("rate", gigabits(nics[0].device.rate or 0.0).replace(" ", ""), nics[0].device.rate_source or "")
    elif rates - {None}:
        known = ", ".join(f"{nic.name} {gigabits(nic.device.rate)}" for nic in nics[:16] if nic.device.rate)
        section.missing("rate", "", f"of one NIC; the captures give {known}")
    else:
        section.missing("rate", "", f"line rate of one {kind} NIC, such as 400Gb/s (ibstat prints it)")
    return section


def _why(nics: Sequence[Nic]) -> str:
    reasons = list(dict.fromkeys(nic.reason for nic in nics))
    return "each one to one with a GPU" if all(reason.endswith("one to one") for reason in reasons) else reasons[0]


def gigabits(rate: float) -> str:
    """A line rate [B/s] as networks are named: ``400 Gb/s``."""
    return f"{rate * 8 / 1e9:.10g} Gb/s"


def _pcie(topology: Topology) -> _Section:
    section = _Section("pcie")
    links = [topology.pcie[gpu.bus_id] for gpu in topology.gpus if gpu.bus_id in topology.pcie]
    link = _common(links) if len(links) == len(topology.gpus) else None
    if link is not None and link.generation is not None:
        section.value("generation", str(link.generation), link.source)
        if link.rate is not None:
            section.value("width", str(link.width), link.source)
            section.value(
                "rate", f"{link.rate / 1e9:.4g}GB/s", f"{link.speed:g} GT/s x{link.width} of the GPUs, {link.source}"
            )
    else:
        section.open("generation")
    if topology.same_switch is not None:
        section.value(
            "gpu_nic_same_switch",
            str(topology.same_switch).lower(),
            f"{_cite(topology)}: {topology.same_switch_reason}",
        )
    else:
        section.missing("gpu_nic_same_switch", "", topology.same_switch_reason, needed=False)
    _uplinks(section, topology)
    return section


def _common(links: Sequence[PcieLink]) -> PcieLink | None:
    return links[0] if links and len({(link.speed, link.width) for link in links}) == 1 else None


def _uplinks(section: _Section, topology: Topology) -> None:
    """Links that devices share on the way to the host, alike ones counted together."""
    alike: dict[tuple[float | None, int, int, int], list[SharedUplink]] = {}
    kinds = {nic.name: nic.kind for nic in topology.nics}
    gpus = {gpu.key for gpu in topology.gpus}
    undecided = False
    for uplink in topology.uplinks:
        roles = [kinds.get(device, "gpu" if device in gpus else "other") for device in uplink.devices]
        if set(roles) == {"other"}:
            continue
        undecided = undecided or "undecided" in roles
        alike.setdefault((uplink.rate, roles.count("gpu"), roles.count("compute"), roles.count("storage")), []).append(
            uplink
        )
    known = not undecided and bool(alike) and all(rate is not None for rate, *_ in alike)
    rows = [
        f"{{rate: {f'{rate / 1e9:.4g}GB/s' if rate else '...'}, count: {len(links)},"
        f" gpus: {gpu}, cnics: {cnic}, snics: {snic}}}"
        for (rate, gpu, cnic, snic), links in alike.items()
    ]
    if known:
        section.value("uplinks", "[" + ", ".join(rows) + "]", topology.uplinks[0].source)
    for row in () if known else rows:
        section.missing(
            "uplinks", f"[{row}]", "shared on the way to the host; its rate is not in the captures", needed=False
        )


def _nvlink(topology: Topology) -> _Section:
    section = _Section("nvlink")
    counts = sorted({link.count for link in topology.links if link.kind == "NVLink" and link.count})
    if not counts:
        return section.open("bandwidth", "domain_gpus")
    what = f"of one GPU and direction; {'/'.join(map(str, counts))} NVLinks between two GPUs, times the rate of one"
    section.missing("bandwidth", "", what, needed=False)
    section.missing("domain_gpus", str(len(topology.gpus)), "GPUs that reach each other over NVLink", needed=False)
    return section
