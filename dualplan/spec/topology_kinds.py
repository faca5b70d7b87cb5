"""Which NICs of a machine are for compute and which for storage, and why; and the paper's assumption on PCIe switches.

Nothing is guessed. A NIC is a compute NIC where a capture shows it below one PCIe switch with a GPU, a storage NIC
where it is below none while others are; where a capture cannot tell, the NIC is ``undecided`` and says why. The user
has the last word (``decide``). Source of the rules: the legend of ``nvidia-smi topo -m``, and the node of the DualPath
paper (arXiv 2602.21548, section 4): each GPU and its compute NIC under one PCIe switch, storage NICs apart.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dualplan.errors import did_you_mean, problem, refuse
from dualplan.spec.topology_records import NEAR, Device, Kind, Nic, Topology, by_number, name_list

MAX_NICS_PER_GPU = 4
"""More NICs a GPU than this below one switch may be functions of one card; AWS p5, with 4, has the most known."""


def with_kinds(topology: Topology) -> Topology:
    """The machine with every NIC classified by what the captures tell."""
    return msgspec.structs.replace(topology, nics=tuple(_classified(topology)))


def _classified(topology: Topology) -> list[Nic]:
    if not any(nic.near for nic in topology.nics):
        reason = _no_near_reason(topology)
        return [msgspec.structs.replace(nic, reason=reason) for nic in topology.nics]
    crowded = _crowded(topology)
    return [_with_kind(nic, *_kind(nic, topology, crowded)) for nic in topology.nics]


def _with_kind(nic: Nic, kind: Kind, reason: str) -> Nic:
    return msgspec.structs.replace(nic, kind=kind, reason=reason)


def _no_near_reason(topology: Topology) -> str:
    words = {word for nic in topology.nics for word in nic.affinity.values()}
    if not topology.gpus or not words:
        return "no capture says how it is attached to the GPUs"
    if words == {"PHB"}:
        guest = f" ({topology.hypervisor})" if topology.hypervisor else ""
        hides = f"a virtual machine{guest} hides the PCIe tree"
        return f"PHB between every GPU and NIC: {hides}, so compute and storage NICs look alike"
    return f"no NIC has PIX or PXB to a GPU, only {', '.join(sorted(words))}, so compute and storage NICs look alike"


def _kind(nic: Nic, topology: Topology, crowded: dict[str, str]) -> tuple[Kind, str]:
    near = nic.near
    if near:
        if nic.name in crowded:
            return "undecided", crowded[nic.name]
        word = "/".join(dict.fromkeys(nic.affinity[gpu] for gpu in near))
        alone = len(near) == 1 and [other.name for other in topology.nics if near[0] in other.near] == [nic.name]
        return "compute", f"{word} to {name_list(near)}" + (", one to one" if alone else "")
    unknown = [gpu.key for gpu in topology.gpus if gpu.key not in nic.affinity]
    if unknown:
        return "undecided", f"its relation to {name_list(unknown)} is not in the capture"
    if nic.device.rdma is False:
        return "undecided", "not below a switch with a GPU, and not known as an RDMA device: perhaps a management port"
    if nic.device.state not in (None, "Active"):
        return (
            "undecided",
            f"not below a switch with a GPU, and its port is {nic.device.state}, so it carries no storage traffic now",
        )
    return "storage", f"no PIX or PXB to any GPU ({_far_words(nic)}), while other NICs have one"


def _far_words(nic: Nic) -> str:
    words: dict[str, list[str]] = {}
    for gpu, word in nic.affinity.items():
        words.setdefault(word, []).append(gpu)
    if len(words) == 1:
        return f"{next(iter(words))} to all"
    return ", ".join(f"{word} to {name_list(gpus)}" for word, gpus in words.items())


def _crowded(topology: Topology) -> dict[str, str]:
    """NICs of switches that hold more of them than the others, with the reason why they stay undecided.

    Where captures give rates and link layers, and exactly as many NICs of a switch as usual look like the compute NICs
    of other switches, those are compute NICs and only the rest stays undecided.
    """
    groups: dict[frozenset[str], list[Nic]] = {}
    for nic in topology.nics:
        if nic.near:
            groups.setdefault(frozenset(nic.near), []).append(nic)
    shares = [len(nics) / len(gpus) for gpus, nics in groups.items() for _ in gpus]
    usual = min(set(shares), key=lambda share: (-shares.count(share), share))
    if usual > MAX_NICS_PER_GPU:
        reason = f"{usual:.0f} NICs for each GPU below its switch: perhaps functions of one card (SR-IOV)"
        return {nic.name: reason for nics in groups.values() for nic in nics}
    if sum(len(nics) for nics in groups.values()) <= len(topology.gpus):
        return {}
    looks = {
        (nic.device.rate, nic.device.link_layer)
        for gpus, nics in groups.items()
        for nic in nics
        if len(nics) <= usual * len(gpus)
    }
    crowded: dict[str, str] = {}
    for gpus, nics in groups.items():
        wanted = round(usual * len(gpus))
        if len(nics) <= usual * len(gpus):
            continue
        alike = [
            nic for nic in nics if (nic.device.rate, nic.device.link_layer) in looks and nic.device.rate is not None
        ]
        chosen = alike if len(alike) == wanted and all(nic.device.rate is not None for nic in nics) else []
        where = name_list(sorted(gpus, key=by_number))
        reason = f"one of {len(nics)} NICs below the switch of {where}; {wanted} would be usual, which is not told"
        if chosen:
            reason = f"below the switch of {where} beside its compute NIC, but with another rate or link layer"
        crowded |= {nic.name: reason for nic in nics if nic not in chosen}
    return crowded


def decide(topology: Topology, *, compute: Iterable[str] = (), storage: Iterable[str] = ()) -> Topology:
    """The user's word on NICs, by name, column, network interface or bus id.

    Raises InputError for names that no capture has, and for a NIC that is given as both.
    """
    chosen: dict[str, Kind] = {}
    problems: list[str] = []
    for flag, kind, wanted in (("--compute", "compute", compute), ("--storage", "storage", storage)):
        for word in wanted:
            nic = next((nic for nic in topology.nics if word in _names(nic.device)), None)
            if nic is None:
                known = [nic.name for nic in topology.nics]
                hint = did_you_mean(word, known) or (
                    "NICs: " + name_list(known) if known else "the captures name no NIC"
                )
                problems.append(problem(flag, f'no NIC "{word}" in the captures', hint))
            elif chosen.setdefault(nic.name, kind) != kind:  # type: ignore[arg-type]
                problems.append(problem(flag, f"{word} is also given to --{chosen[nic.name]}"))
    refuse(problems)
    nics = tuple(
        msgspec.structs.replace(nic, kind=chosen[nic.name], reason=f"given with --{chosen[nic.name]}")
        if nic.name in chosen
        else nic
        for nic in topology.nics
    )
    return with_same_switch(msgspec.structs.replace(topology, nics=nics))


def _names(device: Device) -> set[str]:
    return {name for name in (device.name, device.alias, device.bus_id, device.netdev) if name}


# ---------------------------------------------------------------- the paper's assumption


def with_same_switch(topology: Topology) -> Topology:
    """The machine with the answer whether every GPU has its compute NIC below one PCIe switch."""
    holds, reason = _same_switch(topology)
    return msgspec.structs.replace(topology, same_switch=holds, same_switch_reason=reason)


def _same_switch(topology: Topology) -> tuple[bool | None, str]:
    candidates = [nic for nic in topology.nics if nic.kind != "storage"]
    words = {word for nic in candidates for word in nic.affinity.values()}
    if not topology.gpus:
        return None, "the captures name no GPU"
    if not topology.nics:
        return None, "the captures name no NIC"
    if not words:
        return None, "no capture says how GPUs and NICs are attached to each other"
    if not words & NEAR and (topology.hypervisor or words == {"PHB"}):
        guest = (
            f"the virtual machine ({topology.hypervisor})"
            if topology.hypervisor
            else "PHB everywhere, as in a virtual machine, which"
        )
        return None, f"{guest} hides the PCIe tree of the host"
    without = [
        gpu.key
        for gpu in topology.gpus
        if all(gpu.key in nic.affinity and gpu.key not in nic.near for nic in candidates)
    ]
    if without:
        return (
            False,
            f"{name_list(without)} {'has' if len(without) == 1 else 'have'} no compute NIC below the same PCIe switch",
        )
    unknown = [gpu.key for gpu in topology.gpus if not any(gpu.key in nic.near for nic in candidates)]
    if unknown:
        return None, f"the capture does not tell for {name_list(unknown)}"
    near = [nic for nic in candidates if nic.near]
    if len(near) < len(topology.gpus):
        return (
            True,
            f"every GPU has a compute NIC below its PCIe switch; {len(topology.gpus)} GPUs share {len(near)} such NICs",
        )
    return True, "every GPU has a compute NIC below its PCIe switch"
