"""Service times of a deployment: from a fitted parameter set, or from the roofline of the hardware profile."""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from dualplan.messages import Message, message
from dualplan.model import compute, kv
from dualplan.model.collectives import decode_collective_bytes_per_token
from dualplan.model.demand import peak_flops, scale_up_gpus
from dualplan.model.latency import decode_base, decode_slope
from dualplan.model.memory import kv_share_per_gpu, weight_bytes_per_gpu
from dualplan.spec.hardware import Hardware, read_hardware
from dualplan.spec.load import Count, CountOrZero, NonNegative, Positive, Share, decode, read_yaml
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import per_turn_means

QUOTA = 0.3
"""Attention time of one engine in one pass [s] (DualPath, section 5.4)."""

CHUNK_TOKENS = 8192
"""New tokens of one request in one pass (chunked prefill): the default of SGLang and of vLLM on such GPUs."""

READ_QUEUE = 3.0
"""alpha: reads that wait at a node before it stops being preferred [s] (DualPath, section 5.2)."""

ENGINE_QUEUE = 5.0
"""beta: work of an engine beyond which it gets nothing [s] (DualPath, section 5.2)."""

BASIC_COPIES = 2.0
"""Mode ``basic`` keeps a batch's whole KV in HBM: half of the room for the batch that is read, half for the one that
is computed. An assumption; it reproduces the published basic runs of DeepSeek-V3.2, which HBM binds."""

SHORTEST_PASS = 1e-3
"""A pass takes at least this long [s], so that idle groups do not spin."""


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


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Service times of one engine and one storage NIC, as the kernel takes them. Times in s, rates in B/s.

    ``origin`` says where they come from, ``name`` names the fitted set or is ``roofline``. A pass takes
    ``pass_base`` plus the work of its slowest engine, and at least ``pass_floor`` (the roofline: its weights from HBM).
    """

    name: str
    origin: Message
    pass_base: float
    pass_floor: float = 0.0
    per_request: float
    per_token: float
    per_context: float
    per_token_context: float
    quota: float
    decode_base: float
    decode_slope: float
    decode_quadratic: float
    decode_read_slowdown: float
    snic_efficiency: float
    time_per_read: float
    both_sides: float
    handover: float
    handover_rate: float
    redundant_experts: int = 0


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
        return _origin_of(self.chosen, instead)


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


def with_measured_storage(scenario: Scenario) -> Scenario:
    """The scenario with the storage NICs as its parameter set has them, where there is one and the user gave none."""
    found = fitted(scenario)
    if found is None or not found.has("storage"):
        return scenario
    chosen = found.chosen
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


def service_times(scenario: Scenario, prefill: Parallel, decode_parallel: Parallel) -> Times:
    """The fitted set of a scenario, with the roofline for parts where the user's own figures win; or the roofline."""
    roofline, found = from_roofline(scenario, prefill, decode_parallel), fitted(scenario)
    if found is None:
        return roofline
    times = from_set(found.chosen, scenario.model.num_layers)
    fields = {
        "prefill": ("pass_base", "pass_floor", "per_request", "per_token", "per_context", "per_token_context"),
        "decode": ("decode_base", "decode_slope", "decode_quadratic"),
        "storage": ("snic_efficiency", "time_per_read", "both_sides"),
    }
    changes: dict[str, Any] = {name: getattr(roofline, name) for part in found.given for name in fields[part]}
    return msgspec.structs.replace(times, origin=found.origin, **changes)


def from_set(found: ParameterSet, layers: int) -> Times:
    """A fitted set as service times."""
    return Times(
        name=f"{found.model} on {found.hardware}",
        origin=_origin_of(found),
        pass_base=found.pass_time_per_layer * layers,
        per_request=found.time_per_request,
        per_token=found.time_per_token,
        per_context=found.time_per_context_token,
        per_token_context=found.time_per_token_and_context_token,
        quota=QUOTA,
        decode_base=found.decode_base,
        decode_slope=found.decode_slope,
        decode_quadratic=found.decode_quadratic,
        decode_read_slowdown=found.decode_read_slowdown,
        snic_efficiency=found.snic_efficiency,
        time_per_read=found.time_per_read,
        both_sides=found.both_sides,
        handover=found.handover,
        handover_rate=found.handover_rate,
        redundant_experts=found.redundant_experts,
    )


def _origin_of(found: ParameterSet, instead: tuple[Message, ...] = ()) -> Message:
    names = {"model": found.model, "hardware": found.hardware, "runs": found.fitted_on}
    return message("times.set", **names, instead=instead)


def from_roofline(scenario: Scenario, prefill: Parallel, decode_parallel: Parallel) -> Times:
    """Service times from peaks and the profile's named efficiencies, as ``feasible`` has them.

    Attention is taken linear in the context through its value at the mean context of the workload and at none.
    """
    model, first, second = scenario.model, scenario.hardware, scenario.decode_hardware
    form = kv.check_format(scenario.settings.kv_format or model.kv_format, model, "kv_format")
    peak = peak_flops(first.gpu, model.weight_dtype)
    gemm, attention = peak * first.efficiency.prefill * prefill.tp, peak * first.efficiency.attention * prefill.tp
    means = per_turn_means(scenario.workload)
    context = max(means.context, 1.0)
    at_none = compute.attention_flops(model, 1, 0)
    slope = (compute.attention_flops(model, 1, context) - at_none) / context
    during = means.context + means.append + means.generated / 2
    share = kv_share_per_gpu(model, decode_parallel, form)
    weights = weight_bytes_per_gpu(model, decode_parallel)
    hbm = second.gpu.hbm_bandwidth * second.efficiency.hbm
    rate = peak_flops(second.gpu, model.weight_dtype) * (second.efficiency.decode or second.efficiency.prefill)
    nic = second.cnic.count * second.cnic.rate * second.cnic.efficiency / second.gpu.count
    flops = compute.gemm_flops(model, 1) + compute.attention_flops(model, 1, during)
    collective = decode_collective_bytes_per_token(model, decode_parallel, scale_up_gpus(second))
    return Times(
        name="roofline",
        origin=message("times.efficiencies", machines=tuple(dict.fromkeys((first.name, second.name)))),
        pass_base=0.0,
        pass_floor=decode_base(
            weight_bytes_per_gpu(model, prefill),
            first.gpu.hbm_bandwidth * first.efficiency.hbm,
            model.num_layers,
            first.efficiency.decode_layer_time,
        ),
        per_request=0.0,
        per_token=compute.gemm_flops(model, 1) / gemm + at_none / attention,
        per_context=0.0,
        per_token_context=slope / attention,
        quota=QUOTA,
        decode_base=decode_base(weights, hbm, model.num_layers, second.efficiency.decode_layer_time),
        decode_slope=decode_slope(
            share * kv.kv_read_bytes(model, form, during), hbm, flops / decode_parallel.tp, rate, collective, nic
        ),
        decode_quadratic=0.0,
        decode_read_slowdown=0.0,
        snic_efficiency=first.snic.efficiency,
        time_per_read=first.snic.time_per_read,
        both_sides=1.0,
        handover=0.0,
        handover_rate=second.cnic.count * second.cnic.rate * second.cnic.efficiency / second.gpu.count,
    )
