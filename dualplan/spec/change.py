"""A resolved scenario with some of its values changed: ``hardware.snic.count`` = ``2``, as in a file or a flag."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from dualplan.errors import InputError, did_you_mean
from dualplan.spec.hardware import Hardware, decode_hardware
from dualplan.spec.hardware import resolve as resolve_hardware
from dualplan.spec.load import Node, decode, hint_of, with_value
from dualplan.spec.model import load_model
from dualplan.spec.scenario import Scenario, Settings, parallels, scenario_keys, with_set_means
from dualplan.spec.workload import MEANS, load_workload

Assignment = tuple[tuple[str, ...], Node]
NAMED = ("hardware", "decode_hardware", "model", "workload")
SIDES = {
    "hardware": ("hardware", "decode_hardware"),
    "prefill_hardware": ("hardware",),
    "decode_hardware": ("decode_hardware",),
}


def changed(scenario: Scenario, assignments: Iterable[Assignment]) -> Scenario:
    """The scenario with every assignment (key path, value) applied: first the inputs by name, then what is inside.

    A new ``hardware`` is that of both sides where they were alike. Raises InputError for unknown keys, values that do
    not fit, and for hardware keys where nodes of a side differ.
    """
    given = list(assignments)
    named = [(path, node) for path, node in given if path[0] in ("model", "workload")]
    if scenario.mix and named:
        raise InputError(named[0][1].place, "cannot be changed where several are mixed", "change mix")
    for key, node in [(path[0], node) for path, node in given if len(path) == 1 and path[0] in NAMED]:
        scenario = _with_input(scenario, key, node)
    means: dict[str, Node] = {}
    for path, node in given:
        root, rest = path[0], path[1:]
        if rest and root in SIDES:
            scenario = _with_hardware(scenario, root, rest, node)
        elif root == "workload" and len(rest) == 1 and rest[0] in MEANS:
            means[rest[0]] = node
        elif root == "workload" and rest:
            workload = with_leaf(scenario.workload, rest, node, "workload")
            scenario = msgspec.structs.replace(scenario, workload=workload)
        elif root == "model" and rest:
            raise InputError(node.place, "a model's facts cannot be set", "copy its config.json, or set kv_format")
        elif root not in NAMED:
            scenario = _with_setting(scenario, path, node)
    if means:
        workload = with_set_means(scenario.workload, means)
        scenario = msgspec.structs.replace(scenario, workload=workload)
    origins = {**scenario.origins, **{".".join(path): node.place for path, node in given}}
    return msgspec.structs.replace(scenario, origins=origins)


def _with_input(scenario: Scenario, key: str, node: Node) -> Scenario:
    if not isinstance(node.value, str):
        raise InputError(f"{node.place}: {key}", "a name or a path is needed")
    if key == "model":
        return msgspec.structs.replace(scenario, model=load_model(node.value, where=f"{node.place}: {key}"))
    if key == "workload":
        return msgspec.structs.replace(scenario, workload=load_workload(node.value, where=f"{node.place}: {key}"))
    _only_alike_nodes(scenario, node)
    hardware = decode_hardware(resolve_hardware(node, where=f"{node.place}: {key}"), key)
    alike = key == "hardware" and scenario.hardware == scenario.decode_hardware
    sides = {"hardware": hardware, "decode_hardware": hardware} if alike else {key: hardware}
    return msgspec.structs.replace(scenario, **sides)


def _only_alike_nodes(scenario: Scenario, node: Node) -> None:
    if scenario.variants:
        raise InputError(node.place, "hardware cannot be changed where nodes of a side differ", "load it changed")


def _with_hardware(scenario: Scenario, root: str, path: tuple[str, ...], node: Node) -> Scenario:
    _only_alike_nodes(scenario, node)
    alike = scenario.hardware == scenario.decode_hardware
    made: dict[str, Hardware] = {}
    key = ".".join(path)
    for side in SIDES[root]:
        if side == "decode_hardware" and alike and made:
            made[side] = made["hardware"]
            continue
        hardware = cast(Hardware, with_leaf(getattr(scenario, side), path, node, root))
        kept = {name: text for name, text in hardware.sources.items() if not f"{name}.".startswith(f"{key}.")}
        made[side] = msgspec.structs.replace(hardware, sources={**kept, key: f"given: {node.place}"})
    return msgspec.structs.replace(scenario, **made)


def _with_setting(scenario: Scenario, path: tuple[str, ...], node: Node) -> Scenario:
    if path[0] not in Settings.__struct_fields__:
        hint = did_you_mean(path[0], scenario_keys()) or "known: " + ", ".join(scenario_keys())
        raise InputError(f"{node.place}: {'.'.join(path)}", "unknown key", hint)
    if path[0] in ("variants", "mix"):
        raise InputError(node.place, f"{path[0]} cannot be changed here", "load the scenario with it")
    settings = cast(Settings, with_leaf(scenario.settings, path, node, ""))
    scenario = msgspec.structs.replace(scenario, settings=settings)
    if path[0] in ("prefill", "decode"):
        of_prefill, of_decode = parallels(settings, {path[0]: node.place})
        scenario = msgspec.structs.replace(scenario, prefill_parallel=of_prefill, decode_parallel=of_decode)
    return scenario


def with_leaf(record: msgspec.Struct, path: tuple[str, ...], node: Node, within: str) -> msgspec.Struct:
    """A record with the value at a key path replaced and checked again. Raises InputError."""
    names = dict(zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True))
    where = f"{within}.{path[0]}" if within else path[0]
    if path[0] not in names:
        hint = did_you_mean(path[0], names) or "known: " + ", ".join(names)
        raise InputError(f"{node.place}: {where}", "unknown key", hint)
    field = names[path[0]]
    current: Any = getattr(record, field)
    if len(path) > 1 and isinstance(current, msgspec.Struct):
        value: Any = with_leaf(current, path[1:], node, where)
    else:
        tree = with_value(Node({}, node.place, origin="flag"), path[1:], node) if path[1:] else node
        value = decode(tree, hint_of(type(record), field), where)
    try:
        return msgspec.structs.replace(record, **{field: value})
    except InputError as error:
        raise InputError("", problems=[f"{node.place}: {line}" for line in error.problems]) from None
