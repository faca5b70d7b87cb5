"""What an answer relies on: assumptions in words, sources of the figures, a hash of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dualplan.spec.choices import SINGLE_SIDED
from dualplan.spec.fitted_sets import fitted
from dualplan.spec.hardware import Hardware, unsourced
from dualplan.spec.model import Model
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import Workload, has_spread, turns_changed
from dualplan.steady.answer import Evaluation
from dualplan.steady.latencies import reachable_read_rate
from dualplan.steady.resources import cnic_bandwidth, storage_bandwidth
from dualplan.units import show

NAMED = ("hardware", "decode_hardware", "model", "workload")
"""Inputs that the headline names anyway."""


class Assumption(NamedTuple):
    """A phrase. ``about``: parts of names of the resources that it bears on, "" where it bears on every answer."""

    text: str
    about: tuple[str, ...] = ("",)


def assumptions(answer: Evaluation, given: Sequence[str] = ()) -> tuple[str, ...]:
    """Assumptions that matter to this answer, a phrase each; where it departs from DualPath, the paper is named.

    ``given``: flags beside those of the scenario.
    """
    return (*(one.text for one in _assumed(answer)), *given_flags(answer.scenario, given))


def deciding(answer: Evaluation) -> tuple[str, ...]:
    """The assumptions that bear on every answer, on what binds in this one, or on what ends its P/D range."""
    found = answer.ranges.all_traffic
    names = {answer.bottleneck.resource or "", *found.lower_constraints, *found.upper_constraints}
    names |= set(found.empty_because or ())
    return tuple(one.text for one in _assumed(answer) if any(part in name for part in one.about for name in names))


def _assumed(answer: Evaluation) -> list[Assumption]:
    settings, demand = answer.scenario.settings, answer.demand
    forms = f"KV format {demand.kv_format}; prefill {answer.prefill_parallel}, decode {answer.decode_parallel}"
    found = [
        Assumption(_steady(answer)),
        Assumption(f"compute times: {demand.compute_origin}"),
        Assumption(forms, ("hbm", "compute", "buffer")),
        Assumption(_balance(answer), ("snic",)),
        Assumption(_collective_text(answer), ("cnic", "wire")),
        *map(Assumption, _expert_groups(answer)),
    ]
    if settings.mode not in SINGLE_SIDED:
        text = "decode-read turns return their miss KV to the decode node, which figure 4b of the paper leaves out"
        found.append(Assumption(text, ()))
    if settings.mode != "oracle":
        text = f"the {settings.persist} side persists the miss KV (the paper does not say which)"
        found.append(Assumption(text, ("snic_egress", "storage_backend")))
    if settings.mode == "dram-pool":
        text = f"a pool on the prefill nodes serves {settings.pool_share:.0%} of the hits"
        found.append(Assumption(text.replace("%", " %")))
    if settings.residency:
        text = f"{settings.residency:.0%} of each prefix still is on the decode node"
        found.append(Assumption(text.replace("%", " %")))
    if settings.copy == "engine" or settings.staging == "gds":
        text = "copy engine and GPUDirect Storage pass no lanes; how they disturb collectives is not modelled"
        found.append(Assumption(text, ("cnic", "wire")))
    if settings.slo.tpot is None:
        found.append(Assumption("no TPOT is asked for, so decode speed is that of ever larger batches"))
    elif any(reason.startswith("TPOT") for reason in answer.reasons):
        found.append(Assumption("the rate ignores the TPOT that cannot be met"))
    for side, hardware in answer.scenario.sides:
        if side == "prefill" or answer.scenario.decode_hardware != answer.scenario.hardware:
            found += _machine(answer, hardware)
    if answer.scenario.variants:
        found.append(Assumption("the P/D ranges are those of the usual nodes"))
    if answer.classes:
        text = (
            "every GPU holds the weights of all models, engines serve one class at a time and are divided by need, all "
            "classes read the same share on the decode side; parallelism shown is that of the first"
        )
        found.append(Assumption(text))
    if settings.uncertain and answer.scenario.variants:
        text = "uncertain values are at their centres: they are not sampled where nodes of a side differ"
        found.append(Assumption(text))
    elif settings.uncertain:
        text = (
            "uncertain values are independent, x +- d normal with standard deviation d, a..b equally likely; all else "
            "is for their centres"
        )
        found.append(Assumption(text))
    return [*found, *map(Assumption, set_means(answer.scenario.workload))]


def given_flags(scenario: Scenario, more: Sequence[str] = ()) -> list[str]:
    """The flags that set values of a scenario, and ``more`` of them, as one phrase; nothing without any."""
    flags = {place for key, place in scenario.origins.items() if place.startswith("--") and key not in NAMED}
    return ["given: " + ", ".join(sorted({*flags, *more}))] if flags or more else []


def set_means(workload: Workload) -> list[str]:
    """What setting means of a workload by hand has made of it, a phrase each."""
    changed = [one for one in workload.set_means if one.value != one.source]
    if not changed:
        return []
    now = ", ".join(
        f"{one.name} {one.value:,.5g}{'' if one.name == 'turns' else ' tokens'} (was {one.source:,.5g})"
        for one in changed
    )
    kept = "; turns differ as before, in proportion" if has_spread(workload) else ""
    return [f"set in {workload.name}, means over all turns: {now}{kept}", *cautions_on_means(workload)]


def cautions_on_means(workload: Workload) -> list[str]:
    """What a user who set means of a workload may not expect."""
    changed = [one for one in workload.set_means if one.value != one.source]
    found = []
    if changed and not has_spread(workload):
        found.append(
            "context, append and generated are all set, so all turns are alike: without the spread that the turns of "
            f"{workload.name} have rates come out higher; set fewer of them to keep it"
        )
    printed = [one for one in changed if one.of_trajectories is not None]
    if printed:
        over_trajectories = ", ".join(f"{one.name} {one.of_trajectories:,.5g}" for one in printed)
        over_turns = ", ".join(f"{one.name} {one.source:,.5g}" for one in printed)
        found.append(
            f"{workload.name} prints means over trajectories ({over_trajectories}); --set and --uncertain take means "
            f"over all turns (there {over_turns})"
        )
    return found


def cautions_on_trajectories(workload: Workload) -> list[str]:
    """What of a workload whose number of turns was set cannot be replayed."""
    if not turns_changed(workload) or not (workload.recipe or workload.mix):
        return []
    kept = "recipe" if workload.recipe else "trace"
    return [
        f"the {kept} of {workload.name} has no trajectories of another number of turns: agents replay equal turns of "
        "the means, without the spread between turns"
    ]


def _steady(answer: Evaluation) -> str:
    passes = answer.demand.passes
    if passes is None:
        return (
            "steady means without queueing, batching or skew between GPUs: rates are upper, latencies and buffers "
            "lower bounds (dualplan simulate adds these)"
        )
    return (
        "steady means of a full deployment: prefill in synchronised passes, each "
        f"{show(passes.base, 's', 2)} and its slowest engine {passes.excess:.2g} mean turns above the others, turns on "
        "decode engines from fetch on; latencies and buffers are lower bounds (dualplan simulate adds queueing)"
    )


def _expert_groups(answer: Evaluation) -> list[str]:
    """Expert-parallel groups larger than those of the deployment that was fitted, which simulate repeats."""
    found, notes = fitted(answer.scenario), []
    for side in ("prefill", "decode"):
        usual = None if found is None else getattr(found.chosen, f"{side}_ep")
        chosen = getattr(answer, f"{side}_parallel").ep
        if usual is not None and chosen > usual:
            how = f"--{side}-parallel ep={usual},dp={usual} to do so as well"
            notes.append(
                f"{side}: fitted with expert-parallel groups of {usual} GPUs, which simulate repeats; here they have "
                f"{chosen} GPUs ({how})"
            )
    return notes


def _balance(answer: Evaluation) -> str:
    settings = answer.scenario.settings
    value = f"balance {answer.balance:g}"
    if settings.balance is not None:
        return f"{value} (given)"
    if settings.mode in SINGLE_SIDED:
        return f"{value} (reads have no choice of side, so none is lost in choosing)"
    if settings.mode == "split-read":
        return f"{value} (reads are split over both sides)"
    return f"{value} (largest over mean storage NIC load, measured in the paper for {settings.policy})"


def _collective_text(answer: Evaluation) -> str:
    collectives = answer.collectives
    shares = f"prefill {collectives.prefill:.2f}, decode {collectives.decode:.2f} of the compute NICs"
    if collectives.origin == "given":
        return f"collectives given ({shares})"
    if collectives.prefill == collectives.decode == 0:
        return "no collectives cross the compute NICs under this parallelism"
    text = f"collectives derived ({shares}); the paper leaves them out"
    floor, available = collectives.kv_floor[1], collectives.kv_available[1]
    if floor is not None:
        text += f"; decode-side KV has {available:.0%} of the NICs left, its lane guarantees {100 * floor:.2g} %"
    return text.replace("%", " %").replace("  %", " %")


def _machine(answer: Evaluation, hardware: Hardware) -> list[Assumption]:
    found: list[Assumption] = []

    def add(text: str, *about: str) -> None:
        found.append(Assumption(f"{hardware.name}: {text}", about or ("",)))

    dram = hardware.dram
    if dram.bandwidth is None:
        add("DRAM bandwidth unknown, so DRAM is no limit")
    elif dram.buffer_sockets is not None and dram.buffer_sockets < dram.sockets:
        where = f"{dram.buffer_sockets} of {dram.sockets} sockets"
        add(f"KV buffers on {where}, which leaves them that share of DRAM bandwidth", "dram")
    elif dram.sockets > 1:
        add(f"KV buffers spread over {dram.sockets} sockets; on one, half of DRAM bandwidth counts", "dram")
    if hardware.pcie.gpu_nic_same_switch is None:
        add("GPU and compute NIC taken to share a PCIe switch, which no source confirms", "cnic", "dram")
    elif not hardware.pcie.gpu_nic_same_switch:
        add("GPU and compute NIC do not share a PCIe switch, unlike in the paper", "cnic", "dram")
    storage, cnics = storage_bandwidth(hardware), cnic_bandwidth(hardware)
    if storage <= cnics < 2 * storage:
        add("s exceeds g/2, which no P/D allows; the paper's s <= g does not suffice")
    if hardware.snic.shares_cnic:
        add("storage traffic shares the compute NICs", "snic", "cnic", "wire")
    if answer.scenario.settings.mode != "oracle" and answer.demand.amounts.read:
        snic, rate = hardware.snic, reachable_read_rate(hardware, answer.demand.amounts.read)
        how = f"{snic.efficiency:g} of line rate, {show(snic.time_per_read, 's', 2)} a read"
        add(f"a storage NIC reaches {show(rate, 'B/s')} of {show(snic.rate, 'B/s')} ({how})", "snic")
    missing = unsourced(hardware)
    if missing:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        add(f"no source given for {shown}")
    return found


def sources(scenario: Scenario) -> list[dict[str, str]]:
    """Where the figures come from, by key."""
    found = []
    sides = [("hardware", scenario.hardware)]
    if scenario.decode_hardware != scenario.hardware:
        sides.append(("decode_hardware", scenario.decode_hardware))
    for key, hardware in sides:
        found += [{"key": f"{key}.{path}", "source": text} for path, text in hardware.sources.items() if text]
    found += [{"key": "model", "source": text} for text in scenario.model.sources]
    found += [{"key": "workload", "source": text} for text in scenario.workload.sources]
    return found


def inputs_sha256(answer: Evaluation) -> str:
    """Hash of every input that the answer depends on; sources, notes, names of files and places do not enter."""
    nodes = [answer.prefill_nodes, answer.decode_nodes]
    return _sha256([*_inputs(answer.scenario), answer.prefill_parallel, answer.decode_parallel, *nodes])


def scenario_sha256(scenario: Scenario) -> str:
    """Hash of a scenario, without what says where its values come from."""
    return _sha256([*_inputs(scenario), scenario.prefill_parallel, scenario.decode_parallel])


def _inputs(scenario: Scenario) -> list[Any]:
    import msgspec

    return [
        scenario.settings,
        *(msgspec.structs.replace(hardware, sources={}, notes=()) for _, hardware in scenario.sides),
        *([] if scenario.mix else _turns(scenario.model, scenario.workload)),
        *(part for one in scenario.mix for part in _turns(one.model, one.workload)),
        [
            msgspec.structs.replace(v, hardware=msgspec.structs.replace(v.hardware, sources={}))
            for v in scenario.variants
        ],
    ]


def _turns(model: Model, workload: Workload) -> list[Any]:
    """A model and a workload without their sources."""
    import msgspec

    bare = msgspec.structs.replace(model, sources=(), rules=())
    return [bare, msgspec.structs.replace(workload, sources=(), notes=(), published=(), set_means=())]


def _sha256(inputs: list[Any]) -> str:
    import hashlib

    import msgspec

    return hashlib.sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()
