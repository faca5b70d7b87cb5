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
from dualplan.nomenclature import PLACED, QUANTITIES, Quantity
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import CollectiveLoad
from dualplan.spec.workload import Workload, per_turn_means, scaled_to
from dualplan.steady.problem import build
from dualplan.steady.setup import Setup, balance_factor, given_collectives, with_scenario


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


def _parameter(quantity: Quantity, **values: Any) -> Parameter:
    """A quantity as one that can be asked about."""
    own: dict[str, Any] = {
        "name": quantity.name,
        "key": quantity.path,
        "unit": quantity.unit,
        "meaning": message(f"parameter.{values.get('name', quantity.name)}"),
        "least": quantity.least,
        "most": quantity.most,
        "whole": quantity.whole,
    }
    return Parameter(**own | values)


def _machine(quantity: Quantity, side: str = "") -> Parameter:
    key = quantity.field
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
                memories[f"{one}_memory"] = side_memory(
                    scenario.model, parallel, hardware, setup.times.redundant_experts
                )
        return with_scenario(setup, scenario, **memories)

    if not side:
        return _parameter(quantity, read=read, put=put)
    return _parameter(
        quantity,
        name=f"{side}_{quantity.name}",
        key=f"{side}_hardware.{key}",
        meaning=message("parameter.of_side", what=message(f"parameter.{quantity.name}"), side=side),
        read=read,
        put=put,
    )


def is_plain(workload: Workload) -> bool:
    """Whether the lengths are plain numbers that stand for themselves, so that whole blocks of them are hits."""
    lengths = (workload.context, workload.append, workload.generated)
    spread = workload.per_turn is not None or workload.mix or workload.classes or workload.first_append is not None
    return not spread and all(isinstance(length, int | float) for length in lengths)


def with_workload(setup: Setup, workload: Workload) -> Setup:
    """The deployment under another workload."""
    return with_scenario(setup, msgspec.structs.replace(setup.scenario, workload=workload))


def _length(quantity: Quantity) -> Parameter:
    name = quantity.field

    def read(setup: Setup) -> float:
        return float(getattr(per_turn_means(setup.scenario.workload), name))

    def put(setup: Setup, value: Any) -> Setup:
        return with_workload(setup, scaled_to(setup.scenario.workload, {name: float(value)}))

    return _parameter(quantity, name=name, read=read, put=put, workload=True)


def _setting(quantity: Quantity) -> Parameter:
    def read(setup: Setup) -> Any:
        return getattr(setup.scenario.settings, quantity.path)

    def put(setup: Setup, value: Any) -> Setup:
        value = CollectiveLoad(value, value) if quantity.name == "collective_load" else value
        settings = msgspec.structs.replace(setup.scenario.settings, **{quantity.path: value})
        return with_scenario(setup, msgspec.structs.replace(setup.scenario, settings=settings))

    return _parameter(quantity, read=_READ.get(quantity.name, read), put=put)


def _read_load(setup: Setup) -> Any:
    given = given_collectives(setup.scenario)
    return None if given is None or given.prefill != given.decode else given.prefill


_READ: dict[str, Callable[[Setup], Any]] = {
    "collective_load": _read_load,
    "balance": lambda setup: balance_factor(setup.scenario, setup.scenario.settings.mode),
}
"""Settings that are more than a field."""


def _nodes(quantity: Quantity) -> Parameter:
    return _parameter(
        quantity,
        meaning=message("parameter.nodes", side=quantity.path.removesuffix("_nodes")),
        read=lambda setup: getattr(setup, quantity.path),
        put=lambda setup, value: msgspec.structs.replace(setup, **{quantity.path: value}),
    )


def _known() -> dict[str, Parameter]:
    asked = [quantity for quantity in PLACED if "ask" in quantity.roles]
    machine = [quantity for quantity in asked if quantity.path.startswith("hardware.")]
    found = [_machine(quantity) for quantity in machine]
    found += [
        _machine(quantity, side) for side in BOTH for quantity in machine if quantity.field.startswith(_OF_ONE_SIDE)
    ]
    found += [_length(quantity) for quantity in asked if quantity.path.startswith("workload.")]
    found += [_setting(quantity) for quantity in asked if "." not in quantity.path and "nodes" not in quantity.path]
    ratio = QUANTITIES["pd_ratio"]
    found += [
        _nodes(QUANTITIES["prefill_nodes"]),
        _nodes(QUANTITIES["decode_nodes"]),
        _parameter(
            ratio,
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
