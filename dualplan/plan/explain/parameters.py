"""The quantities of a deployment that one can ask about: what each is now, and the deployment with another value.

A value may be a float, a Fraction or a number that remembers its formula; the parallelism of both sides stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dualplan.errors import InputError, did_you_mean
from dualplan.messages import Message, message
from dualplan.model.demand import side_memory
from dualplan.model.symbolic import value_of
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import CollectiveLoad
from dualplan.spec.workload import Workload, per_turn_means, scaled_to
from dualplan.steady.problem import Setup, balance_factor, build, given_collectives, redundant_experts


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity: its unit (SI), the values that make sense, how to read and to replace it.

    ``read`` is None where the deployment has no such thing. ``put`` gives the deployment with the value. ``whole``:
    counted in whole numbers.
    """

    name: str
    key: str
    unit: str
    meaning: Message
    read: Callable[[Setup], Any]
    put: Callable[[Setup, Any], Setup]
    least: float = 0.0
    most: float | None = None
    whole: bool = False
    workload: bool = False


# name, key path inside a hardware profile, unit, most, whole
_MACHINE: tuple[tuple[str, str, str, float | None, bool], ...] = (
    ("snic_count", "snic.count", "1", None, True),
    ("snic_rate", "snic.rate", "B/s", None, False),
    ("snic_efficiency", "snic.efficiency", "1", 1.0, False),
    ("time_per_read", "snic.time_per_read", "s", None, False),
    ("cnic_bandwidth", "cnic.rate", "B/s", None, False),
    ("cnic_count", "cnic.count", "1", None, True),
    ("cnic_efficiency", "cnic.efficiency", "1", 1.0, False),
    ("dram_bandwidth", "dram.bandwidth", "B/s", None, False),
    ("kv_buffer", "dram.kv_buffer", "B", None, False),
    ("hbm_capacity", "gpu.hbm_capacity", "B", None, False),
    ("hbm_bandwidth", "gpu.hbm_bandwidth", "B/s", None, False),
    ("store_read_bandwidth", "storage.read_bandwidth", "B/s", None, False),
    ("store_write_bandwidth", "storage.write_bandwidth", "B/s", None, False),
    ("read_latency", "storage.latency", "s", None, False),
    ("prefill_efficiency", "efficiency.prefill", "1", 1.0, False),
    ("attention_efficiency", "efficiency.attention", "1", 1.0, False),
    ("decode_efficiency", "efficiency.decode", "1", 1.0, False),
    ("hbm_efficiency", "efficiency.hbm", "1", 1.0, False),
    ("decode_layer_time", "efficiency.decode_layer_time", "s", None, False),
)
BOTH = ("prefill", "decode")
_OF_ONE_SIDE = ("snic.", "cnic.", "dram.", "gpu.")


def _read_key(hardware: Hardware, key: str) -> Any:
    section, field = key.split(".")
    part = getattr(hardware, section)
    return None if part is None else getattr(part, field)


def _with_key(hardware: Hardware, key: str, value: Any) -> Hardware:
    section, field = key.split(".")
    part = msgspec.structs.replace(getattr(hardware, section), **{field: value})
    return msgspec.structs.replace(hardware, **{section: part})


def _machine(name: str, key: str, unit: str, most: float | None, whole: bool, side: str) -> Parameter:
    meaning = message(f"parameter.{name}")
    sides = (side,) if side else BOTH

    def read(setup: Setup) -> Any:
        found = [_read_key(dict(setup.scenario.sides)[one], key) for one in sides]  # type: ignore[index]
        return found[0] if found[0] == found[-1] else None

    def put(setup: Setup, value: Any) -> Setup:
        scenario, memories = setup.scenario, {}
        for one in sides:
            field = "hardware" if one == "prefill" else "decode_hardware"
            hardware = _with_key(getattr(scenario, field), key, value)
            scenario = msgspec.structs.replace(scenario, **{field: hardware})
            if key.startswith("gpu."):
                parallel = getattr(setup, f"{one}_parallel")
                memories[f"{one}_memory"] = side_memory(scenario.model, parallel, hardware, redundant_experts(scenario))
        return msgspec.structs.replace(setup, scenario=scenario, **memories)

    return Parameter(
        name=f"{side}_{name}" if side else name,
        key=f"{side}_hardware.{key}" if side else f"hardware.{key}",
        unit=unit,
        meaning=message("parameter.of_side", what=meaning, side=side) if side else meaning,
        read=read,
        put=put,
        most=most,
        whole=whole,
    )


def is_plain(workload: Workload) -> bool:
    """Whether the lengths are plain numbers that stand for themselves, so that whole blocks of them are hits."""
    lengths = (workload.context, workload.append, workload.generated)
    spread = workload.per_turn is not None or workload.mix or workload.classes or workload.first_append is not None
    return not spread and all(isinstance(length, int | float) for length in lengths)


def with_workload(setup: Setup, workload: Workload) -> Setup:
    """The deployment under another workload."""
    return msgspec.structs.replace(setup, scenario=msgspec.structs.replace(setup.scenario, workload=workload))


def _length(name: str) -> Parameter:
    def read(setup: Setup) -> float:
        return float(getattr(per_turn_means(setup.scenario.workload), name))

    def put(setup: Setup, value: Any) -> Setup:
        return with_workload(setup, scaled_to(setup.scenario.workload, {name: float(value)}))

    return Parameter(
        name=name,
        key=f"workload.{name}",
        unit="tokens",
        meaning=message(f"parameter.{name}"),
        read=read,
        put=put,
        workload=True,
    )


def _setting(name: str, *, least: float = 0.0, most: float | None = None) -> Parameter:
    def put(setup: Setup, value: Any) -> Setup:
        settings = msgspec.structs.replace(setup.scenario.settings, **{name: value})
        return msgspec.structs.replace(setup, scenario=msgspec.structs.replace(setup.scenario, settings=settings))

    return Parameter(
        name=name,
        key=name,
        unit="1",
        meaning=message(f"parameter.{name}"),
        read=lambda setup: getattr(setup.scenario.settings, name),
        put=put,
        least=least,
        most=most,
    )


def _put_load(setup: Setup, value: Any) -> Setup:
    settings = msgspec.structs.replace(setup.scenario.settings, collective_load=CollectiveLoad(value, value))
    return msgspec.structs.replace(setup, scenario=msgspec.structs.replace(setup.scenario, settings=settings))


def _read_load(setup: Setup) -> Any:
    given = given_collectives(setup.scenario)
    return None if given is None or given.prefill != given.decode else given.prefill


def _nodes(side: str) -> Parameter:
    field = f"{side}_nodes"
    return Parameter(
        name=field,
        key=field,
        unit="1",
        meaning=message("parameter.nodes", side=side),
        read=lambda setup: getattr(setup, field),
        put=lambda setup, value: msgspec.structs.replace(setup, **{field: value}),
        whole=True,
    )


def _known() -> dict[str, Parameter]:
    found = [_machine(*row, "") for row in _MACHINE]
    found += [_machine(*row, side) for side in BOTH for row in _MACHINE if row[1].startswith(_OF_ONE_SIDE)]
    found += [_length(name) for name in ("context", "append", "generated")]
    found += [
        _setting("residency", most=1.0),
        _setting("pool_share", most=1.0),
        msgspec.structs.replace(
            _setting("balance", least=1.0),
            read=lambda setup: balance_factor(setup.scenario, setup.scenario.settings.mode),
        ),
        Parameter(
            name="collective_load",
            key="collective_load",
            unit="1",
            meaning=message("parameter.collective_load"),
            read=_read_load,
            put=_put_load,
            most=1.0,
        ),
        _nodes("prefill"),
        _nodes("decode"),
        Parameter(
            name="pd_ratio",
            key="prefill_nodes/decode_nodes",
            unit="1",
            meaning=message("parameter.pd_ratio"),
            read=lambda setup: setup.prefill_nodes / setup.decode_nodes,
            put=lambda setup, value: msgspec.structs.replace(setup, prefill_nodes=value * setup.decode_nodes),
        ),
    ]
    return {parameter.name: parameter for parameter in found}


PARAMETERS: dict[str, Parameter] = _known()
"""Parameters by name; ``prefill_`` and ``decode_`` names are those of one side."""


def find_parameter(name: str, where: str) -> Parameter:
    """A parameter by its name or by the key that ``--set`` uses. Raises InputError."""
    by_key = {parameter.key: parameter for parameter in PARAMETERS.values()}
    found = PARAMETERS.get(name) or by_key.get(name)
    if found is None:
        known = [*PARAMETERS, *by_key]
        hint = did_you_mean(name[:60], known) or "such as snic_count, dram_bandwidth, cnic_bandwidth, pd_ratio, context"
        raise InputError(where, f'"{name[:60]}" is nothing that can be solved for', hint)
    return found


def number_now(parameter: Parameter, setup: Setup) -> float | None:
    """The value of a parameter as a float; None where there is none."""
    value = parameter.read(setup)
    return None if value is None else float(value_of(value))


def leaves_fitted_set(parameter: Parameter, setup: Setup, value: float) -> bool:
    """Whether another value would change where compute times come from.

    A parameter set is fitted on one machine as it is; with another HBM bandwidth, say, the roofline takes its place,
    and the two do not meet.
    """
    mode = setup.scenario.settings.mode
    other = build(parameter.put(setup, value * (1 - 1e-6)), mode).demand.compute_origin
    return other != build(parameter.put(setup, value), mode).demand.compute_origin
