"""Fitted parameter sets: service times of a model on a kind of node, fitted on published or measured points."""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from dualplan.messages import Message, message
from dualplan.spec.hardware import Hardware, read_hardware
from dualplan.spec.load import Count, CountOrZero, NonNegative, Positive, Share, decode, read_yaml
from dualplan.spec.scenario import Scenario


class ParameterSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fitted set for a model on a kind of node. Times in s, rates in B/s; the rest are shares.

    ``pass_time_per_layer``: what a forward pass takes for a layer however little it computes. ``time_per_request``,
    ``time_per_token``, ``time_per_context_token``: work of an engine for a request in a pass, for each new token,
    for each cached one, and for each pair of them. ``decode_base``, ``decode_slope``, ``decode_quadratic``: step time
    by sequences of an engine. ``decode_read_slowdown``: what loading and persisting KV adds to a step, in every mode
    but oracle. ``snic_efficiency``, ``time_per_read``: storage NIC; ``both_sides``: share of its rate that is left
    when both sides read. ``handover``, ``handover_rate``: from the end of prefill to decode. ``prefill_ep``,
    ``decode_ep``: expert-parallel groups of the deployment that was fitted, which a larger one repeats unless a
    parallelism is given.
    """

    model: str
    hardware: str
    pass_time_per_layer: NonNegative
    time_per_request: NonNegative = 0.0
    time_per_token: NonNegative
    time_per_context_token: NonNegative = 0.0
    time_per_token_and_context_token: NonNegative = 0.0
    decode_base: Positive
    decode_slope: NonNegative
    decode_quadratic: NonNegative = 0.0
    decode_read_slowdown: NonNegative = 0.0
    snic_efficiency: Share
    time_per_read: NonNegative
    both_sides: Share = 1.0
    handover: NonNegative = 0.0
    handover_rate: Positive
    redundant_experts: CountOrZero = 0
    prefill_ep: Count | None = None
    decode_ep: Count | None = None
    fitted_on: str = ""
    sources: tuple[str, ...] = ()


class _Sets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sets: tuple[ParameterSet, ...]


REPLACED = {
    "prefill": ("gpu.flops", "efficiency.prefill", "efficiency.attention"),
    "decode": (
        "gpu.flops",
        "gpu.hbm_bandwidth",
        "efficiency.hbm",
        "efficiency.decode",
        "efficiency.decode_layer_time",
    ),
    "storage": ("snic.efficiency", "snic.time_per_read"),
}
"""Figures of a hardware profile that each part of a parameter set stands for; a user's own figure wins over it."""


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """The parameter set of a scenario. ``given``: parts that do not apply, each with the user's figures that win."""

    chosen: ParameterSet
    given: dict[str, tuple[str, ...]]

    def has(self, part: str) -> bool:
        """Whether a part of the set applies: prefill, decode or storage."""
        return part not in self.given

    @property
    def origin(self) -> Message:
        """Where the times come from."""
        instead = tuple(
            message(f"times.{'profile' if part == 'storage' else 'roofline'}_instead", part=part, keys=keys)
            for part, keys in self.given.items()
        )
        return origin_of(self.chosen, instead)


def origin_of(chosen: ParameterSet, instead: tuple[Message, ...] = ()) -> Message:
    """Where the times of a set come from; ``instead``: parts that the user's own figures stand for."""
    names = {"model": chosen.model, "hardware": chosen.hardware, "runs": chosen.fitted_on}
    return message("times.set", **names, instead=instead)


@functools.cache
def parameter_sets() -> tuple[ParameterSet, ...]:
    """The shipped sets."""
    path = Path(str(files("dualplan.data") / "calibration.yaml"))
    return decode(read_yaml(path), _Sets).sets


@functools.cache
def _shipped(name: str) -> Hardware:
    return read_hardware(name)


def find_set(model: str, hardware: str) -> ParameterSet | None:
    """The shipped set of a model on a kind of node."""
    return next((s for s in parameter_sets() if s.model == model and s.hardware == hardware), None)


def fitted(scenario: Scenario) -> Fitted | None:
    """The fitted set of the scenario's model and hardware; None where there is none or the sides differ in kind."""
    if scenario.hardware.name != scenario.decode_hardware.name:
        return None
    found = find_set(scenario.model.name.lower().replace(" ", "-"), scenario.hardware.name)
    if found is None:
        return None
    given: dict[str, tuple[str, ...]] = {}
    alike = scenario.hardware == scenario.decode_hardware
    for part, paths in REPLACED.items():
        sides = {"prefill": ("hardware",), "decode": ("decode_hardware",)}.get(part, ("hardware", "decode_hardware"))
        own = tuple(path for path in paths if any(_own(scenario, side, path, found, alike) for side in sides))
        if own:
            given[part] = own
    return Fitted(chosen=found, given=given)


def _own(scenario: Scenario, side: str, path: str, found: ParameterSet, alike: bool) -> bool:
    """Whether a figure of a side was given by the user, or is neither that of the shipped profile nor of the set."""
    roots = {side, "hardware", "decode_hardware"} if alike else {side}
    roots |= {"prefill_hardware"} if side == "hardware" else set()
    keys = tuple(f"{root}.{path}" for root in roots)
    inside = tuple(f"{key}." for key in keys)
    if any(key in scenario.origins for key in keys) or any(key.startswith(inside) for key in scenario.origins):
        return True
    value, usual = _figure(getattr(scenario, side), path), _figure(_shipped(found.hardware), path)
    of_set = {"snic.efficiency": found.snic_efficiency, "snic.time_per_read": found.time_per_read}.get(path, usual)
    return not (_equal(value, usual) or _equal(value, of_set))


def _figure(hardware: Hardware, path: str) -> Any:
    section, name = path.split(".")
    return getattr(getattr(hardware, section), name)


def _equal(value: Any, other: Any) -> bool:
    """Whether two figures are one; an array of a sweep is none."""
    same = value == other
    return same if isinstance(same, bool) else False


def with_measured_storage(scenario: Scenario, fit: Fitted | None) -> Scenario:
    """The scenario with the storage NICs as its parameter set has them, where there is one and the user gave none."""
    if fit is None or not fit.has("storage"):
        return scenario
    chosen = fit.chosen
    source = f"parameter set {chosen.model} on {chosen.hardware}"

    def measured(hardware: Hardware) -> Hardware:
        snic = msgspec.structs.replace(
            hardware.snic, efficiency=chosen.snic_efficiency, time_per_read=chosen.time_per_read
        )
        sources = {**hardware.sources, "snic.efficiency": source, "snic.time_per_read": source}
        return msgspec.structs.replace(hardware, snic=snic, sources=sources)

    usual = scenario.hardware.snic
    variants = tuple(
        msgspec.structs.replace(v, hardware=measured(v.hardware))
        if v.hardware.name == chosen.hardware
        and (v.hardware.snic.efficiency, v.hardware.snic.time_per_read) == (usual.efficiency, usual.time_per_read)
        else v
        for v in scenario.variants
    )
    return msgspec.structs.replace(
        scenario,
        hardware=measured(scenario.hardware),
        decode_hardware=measured(scenario.decode_hardware),
        variants=variants,
    )
