"""What an answer relies on: assumptions, sources of the figures, a hash of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dualplan.messages import Message, message
from dualplan.spec.choices import SINGLE_SIDED
from dualplan.spec.fitted_sets import fitted
from dualplan.spec.hardware import Hardware, unsourced
from dualplan.spec.model import Model
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import Workload, has_spread, turns_changed
from dualplan.steady.answer import Evaluation
from dualplan.steady.latencies import reachable_read_rate
from dualplan.steady.resources import cnic_bandwidth, storage_bandwidth

NAMED = ("hardware", "decode_hardware", "model", "workload")
"""Inputs that the headline names anyway."""

MOST_KEYS = 4
"""Values without a source that are named; more are counted."""


class Assumption(NamedTuple):
    """What an answer relies on. ``about``: parts of names of the resources that it bears on, "" where it bears on every
    answer.
    """

    message: Message
    about: tuple[str, ...] = ("",)


def assumptions(answer: Evaluation, given: Sequence[str] = ()) -> tuple[Message, ...]:
    """Assumptions that matter to this answer; where it departs from DualPath, the paper is named.

    ``given``: flags beside those of the scenario.
    """
    return (*(one.message for one in _assumed(answer)), *given_flags(answer.scenario, given))


def deciding(answer: Evaluation) -> tuple[Message, ...]:
    """The assumptions that bear on every answer, on what binds in this one, or on what ends its P/D range."""
    found = answer.ranges.all_traffic
    names = {answer.bottleneck.resource or "", *found.lower_constraints, *found.upper_constraints}
    names |= set(found.empty_because or ())
    return tuple(one.message for one in _assumed(answer) if any(part in name for part in one.about for name in names))


def _assumed(answer: Evaluation) -> list[Assumption]:
    settings, demand = answer.scenario.settings, answer.demand
    found: list[Assumption] = []

    def add(code: str, *about: str, **values: Any) -> None:
        found.append(Assumption(message(f"assumption.{code}", **values), about or ("",)))

    passes = demand.passes
    if passes is None:
        add("steady")
    else:
        add("passes", base=passes.base, excess=passes.excess)
    add("compute_times", origin=demand.compute_origin)
    sides = {"prefill": str(answer.prefill_parallel), "decode": str(answer.decode_parallel)}
    add("forms", "hbm", "compute", "buffer", form=str(demand.kv_format), **sides)
    found += [Assumption(_balance(answer), ("snic",)), Assumption(_collectives(answer), ("cnic", "wire"))]
    found += map(Assumption, _expert_groups(answer))
    if settings.mode not in SINGLE_SIDED:
        found.append(Assumption(message("assumption.miss_returned"), ()))
    if settings.mode != "oracle":
        add("persist", "snic_egress", "storage_backend", side=settings.persist)
    if settings.mode == "dram-pool":
        add("pool", share=settings.pool_share)
    if settings.residency:
        add("residency", share=settings.residency)
    if settings.copy == "engine" or settings.staging == "gds":
        add("no_lanes", "cnic", "wire")
    if settings.slo.tpot is None:
        add("no_tpot")
    elif any(reason.code in ("reason.tpot", "reason.tpot_of") for reason in answer.reasons):
        add("tpot_ignored")
    for side, hardware in answer.scenario.sides:
        if side == "prefill" or answer.scenario.decode_hardware != answer.scenario.hardware:
            found += _machine(answer, hardware)
    if answer.scenario.variants:
        add("usual_ranges")
    if answer.classes:
        add("classes")
    if settings.uncertain:
        add("uncertain_centres" if answer.scenario.variants else "uncertain")
    return [*found, *map(Assumption, set_means(answer.scenario.workload))]


def given_flags(scenario: Scenario, more: Sequence[str] = ()) -> list[Message]:
    """The flags that set values of a scenario, and ``more`` of them, as one message; nothing without any."""
    flags = {place for key, place in scenario.origins.items() if place.startswith("--") and key not in NAMED}
    return [message("assumption.given", flags=tuple(sorted({*flags, *more})))] if flags or more else []


def set_means(workload: Workload) -> list[Message]:
    """What setting means of a workload by hand has made of it."""
    changed = [one for one in workload.set_means if one.value != one.source]
    if not changed:
        return []
    means = tuple(
        message("assumption.mean_turns", value=one.value, before=one.source)
        if one.name == "turns"
        else message("assumption.mean_tokens", length=_length(one.name), value=one.value, before=one.source)
        for one in changed
    )
    kept = message("assumption.in_proportion") if has_spread(workload) else ""
    set_here = message("assumption.set_means", workload=workload.name, means=means, kept=kept)
    return [set_here, *cautions_on_means(workload)]


def _length(name: str, **value: float) -> Message:
    """A length of a turn by name, with its mean where one is given."""
    words = message(f"length.{name}")
    return message("length.mean", length=words, **value) if value else words


def cautions_on_means(workload: Workload) -> list[Message]:
    """What a user who set means of a workload may not expect."""
    changed = [one for one in workload.set_means if one.value != one.source]
    found = []
    if changed and not has_spread(workload):
        found.append(message("caution.all_alike", workload=workload.name))
    printed = [(one.name, one.of_trajectories, one.source) for one in changed if one.of_trajectories is not None]
    if printed:
        means = {
            "printed": tuple(_length(name, value=of_trajectories) for name, of_trajectories, _ in printed),
            "over_turns": tuple(_length(name, value=source) for name, _, source in printed),
        }
        found.append(message("caution.means", workload=workload.name, **means))
    return found


def cautions_on_trajectories(workload: Workload) -> list[Message]:
    """What of a workload whose number of turns was set cannot be replayed."""
    if not turns_changed(workload) or not (workload.recipe or workload.mix):
        return []
    return [message("caution.recipe" if workload.recipe else "caution.trace", workload=workload.name)]


def _expert_groups(answer: Evaluation) -> list[Message]:
    """Expert-parallel groups larger than those of the deployment that was fitted, which simulate repeats."""
    found, notes = fitted(answer.scenario), []
    for side in ("prefill", "decode"):
        usual = None if found is None else getattr(found.chosen, f"{side}_ep")
        chosen = getattr(answer, f"{side}_parallel").ep
        if usual is not None and chosen > usual:
            notes.append(message("assumption.expert_groups", side=side, usual=usual, chosen=chosen))
    return notes


def _balance(answer: Evaluation) -> Message:
    settings = answer.scenario.settings
    if settings.balance is not None:
        return message("assumption.balance_given", balance=answer.balance)
    if settings.mode in SINGLE_SIDED:
        return message("assumption.balance_one_side", balance=answer.balance)
    if settings.mode == "split-read":
        return message("assumption.balance_split", balance=answer.balance)
    return message("assumption.balance_measured", balance=answer.balance, policy=settings.policy)


def _collectives(answer: Evaluation) -> Message:
    collectives = answer.collectives
    loads = {"prefill": collectives.prefill, "decode": collectives.decode}
    if collectives.origin == "given":
        return message("assumption.collectives_given", **loads)
    if collectives.prefill == collectives.decode == 0:
        return message("assumption.collectives_none")
    floor, available = collectives.kv_floor[1], collectives.kv_available[1]
    left = "" if floor is None else message("assumption.kv_floor", available=available, floor=floor)
    return message("assumption.collectives", **loads, floor=left)


def _machine(answer: Evaluation, hardware: Hardware) -> list[Assumption]:
    found: list[Assumption] = []

    def add(code: str, *about: str, **values: Any) -> None:
        found.append(Assumption(message(f"machine.{code}", machine=hardware.name, **values), about or ("",)))

    dram = hardware.dram
    if dram.bandwidth is None:
        add("dram_unknown")
    elif dram.buffer_sockets is not None and dram.buffer_sockets < dram.sockets:
        add("dram_some_sockets", "dram", used=dram.buffer_sockets, all=dram.sockets)
    elif dram.sockets > 1:
        add("dram_sockets", "dram", all=dram.sockets)
    if hardware.pcie.gpu_nic_same_switch is None:
        add("switch_unknown", "cnic", "dram")
    elif not hardware.pcie.gpu_nic_same_switch:
        add("no_switch", "cnic", "dram")
    storage, cnics = storage_bandwidth(hardware), cnic_bandwidth(hardware)
    if storage <= cnics < 2 * storage:
        add("storage_ratio")
    if hardware.snic.shares_cnic:
        add("shares_cnic", "snic", "cnic", "wire")
    if answer.scenario.settings.mode != "oracle" and answer.demand.amounts.read:
        snic, rate = hardware.snic, reachable_read_rate(hardware, answer.demand.amounts.read)
        add("snic", "snic", rate=rate, line=snic.rate, efficiency=snic.efficiency, time=snic.time_per_read)
    missing = tuple(unsourced(hardware))
    if missing:
        more = message("machine.and_more", n=len(missing) - MOST_KEYS) if len(missing) > MOST_KEYS else ""
        add("no_source", keys=missing[:MOST_KEYS], more=more)
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
