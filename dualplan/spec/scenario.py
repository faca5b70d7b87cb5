"""A scenario: a deployment, what it runs, and what is asked of it. A YAML file, flags, or both; flags win over file
over defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from dualplan.errors import InputError, did_you_mean, problem, refuse
from dualplan.spec.choices import Copy, Mode, Persist, Policy, Staging
from dualplan.spec.hardware import Hardware, decode_hardware
from dualplan.spec.hardware import resolve as resolve_hardware
from dualplan.spec.load import (
    BelowOne,
    Count,
    Duration,
    Factor,
    Node,
    NonNegative,
    Positive,
    PositiveShare,
    Share,
    decode,
    find,
    flag_node,
    json_schema,
    leaves,
    parse_yaml,
    read_text,
    read_yaml,
    with_value,
)
from dualplan.spec.model import Model, load_model
from dualplan.spec.parallel import Parallel, parse_parallel
from dualplan.spec.workload import MEANS, Workload, with_means

SideName = Literal["prefill", "decode"]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Slo(_Record, frozen=True):
    """Service levels: time to first token, time per output token [s]."""

    ttft: Duration | None = None
    tpot: Duration | None = None


class Demand(_Record, frozen=True):
    """What the deployment must carry: agents that start per second, or turns per second."""

    arrival_rate: Positive | None = None
    turn_rate: Positive | None = None


class CollectiveLoad(_Record, frozen=True):
    """Share of each side's compute NICs that collectives take, given instead of derived."""

    prefill: BelowOne
    decode: BelowOne


class ParallelKeys(_Record, frozen=True):
    """Parallelism as written in YAML."""

    ep: Count | None = None
    tp: Count | None = None
    dp: Count | None = None


class Side(_Record, frozen=True):
    """Settings of one side."""

    parallel: str | ParallelKeys | None = None


class VariantKeys(_Record, frozen=True):
    """Nodes of a side that differ: another profile, or some keys of the usual one, such as ``snic.rate: 200Gb/s``.

    ``cnics``: the new ``cnic.rate`` is that of so many compute NICs of such a node, not of all.
    """

    side: SideName
    nodes: Count = 1
    hardware: str | None = None
    set: dict[str, str] = {}
    cnics: Count | None = None


class Variant(_Record, frozen=True):
    """``nodes`` nodes of a side with other hardware; of its compute NICs ``cnics`` are at their own rate, the rest
    as usual.
    """

    side: SideName
    nodes: int
    hardware: Hardware
    cnics: int | None = None


class MixKeys(_Record, frozen=True):
    """One class of turns of a cluster that several models or workloads share: ``share`` of all turns."""

    share: PositiveShare
    model: str | None = None
    workload: str | None = None


class MixClass(_Record, frozen=True):
    """A model and a workload with their share of all turns."""

    share: float
    model: Model
    workload: Workload


class Settings(_Record, frozen=True):
    """A scenario without its three inputs. ``pool_share``: share of hits that a DRAM pool serves in mode dram-pool.

    ``residency``: share of a turn's prefix that still is on the decode node. ``balance``: largest over mean load of
    the storage NICs. ``uncertain``: key path -> ``0.68 +- 0.08`` or ``0.8..0.95``, see dualplan.spec.uncertain.
    """

    name: str = ""
    prefill_nodes: Count | None = None
    decode_nodes: Count | None = None
    mode: Mode = "dual-path"
    staging: Staging = "host"
    copy: Copy = "cnic"
    persist: Persist = "decode"
    policy: Policy = "shortest-queue"
    prefill: Side = Side()
    decode: Side = Side()
    slo: Slo = Slo()
    demand: Demand = Demand()
    collective_load: BelowOne | CollectiveLoad | None = None
    balance: Factor | None = None
    kv_format: str | None = None
    residency: Share = 0.0
    pool_share: Share = 0.5
    variants: tuple[VariantKeys, ...] = ()
    mix: tuple[MixKeys, ...] = ()
    uncertain: dict[str, str] = {}
    seed: int = 0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved scenario. ``prefill_parallel`` and ``decode_parallel`` are None where the default applies.

    ``mix``: several models or workloads that share the cluster; ``model`` and ``workload`` then are those of the first.
    ``origins``: dotted key -> where its value came from (a file and line, a flag).
    """

    settings: Settings
    hardware: Hardware
    decode_hardware: Hardware
    model: Model
    workload: Workload
    prefill_parallel: Parallel | None = None
    decode_parallel: Parallel | None = None
    variants: tuple[Variant, ...] = ()
    mix: tuple[MixClass, ...] = ()
    origins: dict[str, str] = {}

    @property
    def sides(self) -> tuple[tuple[SideName, Hardware], tuple[SideName, Hardware]]:
        """Both sides with their hardware, prefill first."""
        return ("prefill", self.hardware), ("decode", self.decode_hardware)


INPUTS = ("hardware", "model", "workload")


def scenario_keys() -> list[str]:
    """The keys of a scenario file."""
    return ["hardware", "decode_hardware", "model", "workload", *Settings.__struct_fields__]


def read_scenario(path: Path) -> Node:
    """A scenario file as a tree; its keys are checked when it is resolved."""
    node = read_yaml(path)
    if not isinstance(node.value, dict):
        raise InputError(str(path), "is not a scenario: a mapping is needed", "keys: " + ", ".join(scenario_keys()[:6]))
    return node


def set_flags(assignments: Iterable[str]) -> list[tuple[tuple[str, ...], Node]]:
    """``key.path=value`` texts as key paths and nodes."""
    result = []
    for text in assignments:
        key, equals, value = text.partition("=")
        parts = tuple(part.strip() for part in key.split("."))
        if not equals or not all(parts):
            raise InputError("--set", f'"{text}" is not key.path=value')
        result.append((parts, flag_node(value, f"--set {key}")))
    return result


def _apply_sets(
    tree: Node, sets: Iterable[tuple[tuple[str, ...], Node]]
) -> tuple[Node, dict[str, list[tuple[tuple[str, ...], Node]]]]:
    """Scenario keys are laid over the tree; those inside hardware and workload wait until these are read."""
    inside: dict[str, list[tuple[tuple[str, ...], Node]]] = {"hardware": [], "decode_hardware": [], "workload": []}
    for path, value in sets:
        root, rest = path[0], path[1:]
        if not rest:
            tree = with_value(tree, path, value)
        elif root == "hardware":
            inside["hardware"].append((rest, value))
            inside["decode_hardware"].append((rest, value))
        elif root in ("prefill_hardware", "decode_hardware"):
            inside[root.replace("prefill_", "")].append((rest, value))
        elif root == "workload":
            inside["workload"].append((rest, value))
        elif root == "model":
            raise InputError(value.place, "a model's facts cannot be set", "copy its config.json, or set kv_format")
        else:
            tree = with_value(tree, path, value)
    return tree, inside


def resolve(
    tree: Node,
    *,
    sets: Iterable[tuple[tuple[str, ...], Node]] = (),
    base: Path | None = None,
    read_trace: Callable[[Path], Workload] | None = None,
) -> Scenario:
    """A tree of scenario keys as a Scenario. ``base``: the folder that paths in the file are relative to.

    ``read_trace`` turns a workload path that is not YAML into a workload. Raises InputError with all problems of the
    file.
    """
    tree, inside = _apply_sets(tree, sets)
    items = dict(tree.items())
    problems: list[str] = []
    for key in [key for key in items if key not in scenario_keys()]:
        hint = did_you_mean(key, scenario_keys()) or "known: " + ", ".join(scenario_keys())
        problems.append(problem(f"{items.pop(key).place}: {key}", "unknown key", hint))
    inputs = {key: items.pop(key, None) for key in (*INPUTS, "decode_hardware")}
    mixed = items.get("mix")
    for key in INPUTS:
        if key != "hardware" and _all_name(mixed, key):
            continue
        if inputs[key] is None or inputs[key].value is None:  # type: ignore[union-attr]
            problems.append(problem(f"{tree.place}: {key}", "missing", f"give it in a scenario file or as --{key}"))
    alike = inputs["decode_hardware"] is None and inside["decode_hardware"] == inside["hardware"]
    if inputs["decode_hardware"] is None:
        inputs["decode_hardware"] = inputs["hardware"]

    def collect(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except InputError as error:
            problems.extend(line for line in error.problems if line not in problems)
            return None

    trees: dict[str, Node] = {}

    def hardware(key: str, node: Node) -> Hardware:
        found = resolve_hardware(node, where=f"{node.place}: {key}", base=_base(node, base))
        for path, value in inside[key]:
            found = _set_inside(found, path, value)
        trees[key] = found
        return decode_hardware(found, key)

    settings = collect(lambda: decode(Node(items, tree.place), Settings))
    known = {key: node for key, node in inputs.items() if node is not None and node.value is not None}
    prefill_hardware = collect(lambda: hardware("hardware", known["hardware"])) if "hardware" in known else None
    decode_side = prefill_hardware
    if "decode_hardware" in known and not alike:
        decode_side = collect(lambda: hardware("decode_hardware", known["decode_hardware"]))
    variants: tuple[Variant, ...] = ()
    if settings and prefill_hardware and decode_side:
        place = items["variants"].place if "variants" in items else ""
        variants = (
            collect(
                lambda: tuple(
                    _variant(keys, trees, f"{place}: variants", _base(items["variants"], base))
                    for keys in settings.variants
                )
            )
            or ()
        )
    model = collect(lambda: _read_model(known["model"], base)) if "model" in known else None
    workload = (
        collect(lambda: _read_workload(known["workload"], inside["workload"], base, read_trace))
        if "workload" in known
        else None
    )
    classes: tuple[MixClass, ...] = ()
    if settings and settings.mix:
        if inside["workload"]:
            problems.append(problem(inside["workload"][0][1].place, "cannot be set where several workloads are mixed"))
        classes = collect(lambda: _mix(settings.mix, items["mix"], known, base, read_trace)) or ()
        if classes:
            model, workload = classes[0].model, classes[0].workload
    places: dict[str, str] = {side: items[side].place for side in ("prefill", "decode") if side in items}
    given = (collect(lambda: parallels(settings, places)) if settings else None) or (None, None)
    if problems or not (settings and prefill_hardware and decode_side and model and workload):
        raise InputError("", problems=problems)
    origins = {path: leaf.place for path, leaf in leaves(Node({**items, **known}, tree.place))}
    origins |= {".".join((key, *path)): value.place for key, entries in inside.items() for path, value in entries}
    return Scenario(
        settings=msgspec.structs.replace(settings, variants=()),
        hardware=prefill_hardware,
        decode_hardware=decode_side,
        model=model,
        workload=workload,
        prefill_parallel=given[0],
        decode_parallel=given[1],
        variants=variants,
        mix=classes,
        origins=origins,
    )


def _base(node: Node, base: Path | None) -> Path | None:
    """Paths in flags are relative to where the command runs, paths in a file to that file."""
    return base if node.origin == "file" else None


def _set_inside(tree: Node, path: tuple[str, ...], value: Node) -> Node:
    """A value set by a flag, with the flag as its source."""
    sources = dict(tree.items().get("sources", Node({}, tree.place)).items())
    key = ".".join(path)
    sources = {name: node for name, node in sources.items() if name != key and not name.startswith(key + ".")}
    sources[key] = Node(f"given: {value.place}", value.place, origin="flag")
    return with_value(with_value(tree, path, value), ("sources",), Node(sources, value.place))


def _variant(keys: VariantKeys, trees: dict[str, Node], where: str, base: Path | None) -> Variant:
    own_side = keys.side == "decode" and "decode_hardware" in trees
    usual = tree = trees["decode_hardware" if own_side else "hardware"]
    if keys.hardware is not None:
        tree = resolve_hardware(Node(keys.hardware, where), where=f"{where}.hardware", base=base)
    for key, text in keys.set.items():
        tree = _set_inside(tree, tuple(key.split(".")), Node(text, where))
    hardware = decode_hardware(tree)
    if keys.cnics is not None and keys.cnics > hardware.cnic.count:
        raise InputError(
            f"{where}.cnics", f"{keys.cnics} is more than the {hardware.cnic.count} compute NICs of a node"
        )
    if keys.cnics is not None and "cnic.rate" not in keys.set:
        raise InputError(f"{where}.cnics", "says how many compute NICs have another rate", "set cnic.rate as well")
    if hardware.gpu.count != decode_hardware(usual).gpu.count:
        raise InputError(where, "nodes of a side have the same number of GPUs", "vary their rates instead")
    return Variant(side=keys.side, nodes=keys.nodes, hardware=hardware, cnics=keys.cnics)


def _all_name(mixed: Node | None, key: str) -> bool:
    """Whether every class of a mix names its own model or workload."""
    entries = mixed.value if mixed is not None and isinstance(mixed.value, list) else []
    return bool(entries) and all(key in entry.items() for entry in entries)


def _mix(
    keys: tuple[MixKeys, ...],
    node: Node,
    known: dict[str, Node],
    base: Path | None,
    read_trace: Callable[[Path], Workload] | None,
) -> tuple[MixClass, ...]:
    """The classes of a mix; what an entry does not name is that of the scenario. Raises InputError."""
    problems: list[str] = []
    found: list[MixClass] = []
    entries = node.value if isinstance(node.value, list) else []
    for entry, one in zip(entries, keys, strict=True):
        inputs = {key: entry.items().get(key, known.get(key)) for key in ("model", "workload")}
        if None in inputs.values():
            continue  # said already: the scenario has none either
        try:
            model = _read_model(cast(Node, inputs["model"]), base)
            workload = _read_workload(cast(Node, inputs["workload"]), [], base, read_trace)
        except InputError as error:
            problems += error.problems
            continue
        found.append(MixClass(share=one.share, model=model, workload=workload))
    total = sum(one.share for one in keys)
    if abs(total - 1) > 1e-6:
        problems.append(
            problem(f"{node.place}: mix", f"the shares add up to {total:g}", "shares of all turns add up to 1")
        )
    refuse(problems)
    return tuple(found)


def _read_model(node: Node, base: Path | None) -> Model:
    if not isinstance(node.value, str):
        raise InputError(f"{node.place}: model", "a name or the path of a config.json is needed")
    return load_model(node.value, where=f"{node.place}: model", base=_base(node, base))


def _read_workload(
    node: Node,
    sets: list[tuple[tuple[str, ...], Node]],
    base: Path | None,
    read_trace: Callable[[Path], Workload] | None,
) -> Workload:
    where = f"{node.place}: workload"
    means: dict[str, Node] = {path[0]: value for path, value in sets if len(path) == 1 and path[0] in MEANS}
    rest = [(path, value) for path, value in sets if not (len(path) == 1 and path[0] in MEANS)]
    if isinstance(node.value, str):
        path = find("workloads", ".yaml", node.value, where=where, base=_base(node, base))
        if path.suffix not in (".yaml", ".yml"):
            if read_trace is None:
                raise InputError(where, f'"{node.value}" is not a YAML file')
            if rest:
                raise InputError(rest[0][1].place, "only " + ", ".join(MEANS) + " of a trace can be set")
            workload = read_trace(path)
            return with_set_means(workload, means)
        shipped = "/" not in node.value and not node.value.endswith((".yaml", ".yml"))
        tree = parse_yaml(read_text(path), path.name if shipped else str(path))
    else:
        tree = node
    if isinstance(tree.value, dict) and "name" not in tree.value:
        tree = with_value(
            tree, ("name",), Node(Path(node.value).stem if isinstance(node.value, str) else "custom", node.place)
        )
    for key_path, value in rest:
        tree = with_value(tree, key_path, value)
    workload = decode(tree, Workload, "workload" if tree is node else "")
    return with_set_means(workload, means)


class _Means(msgspec.Struct, frozen=True):
    context: NonNegative | None = None
    append: Positive | None = None
    generated: NonNegative | None = None
    turns: Positive | None = None


def with_set_means(workload: Workload, values: dict[str, Node]) -> Workload:
    """The workload with some means set, from their nodes. Raises InputError."""
    if not values:
        return workload
    found = decode(Node(dict(values), "--set workload"), _Means, "workload")
    means: dict[str, float] = {name: value for name in MEANS if (value := getattr(found, name)) is not None}
    try:
        return with_means(workload, means)
    except InputError as error:
        place = next(iter(values.values())).place
        raise InputError("", problems=[f"{place}: workload.{line}" for line in error.problems]) from None


def parallels(settings: Settings, places: dict[str, str]) -> tuple[Parallel | None, Parallel | None]:
    """The parallelism given for prefill and decode; ``places`` says where, by side. Raises InputError."""
    return _parallel("prefill", settings.prefill, places), _parallel("decode", settings.decode, places)


def _parallel(name: str, side: Side, places: dict[str, str]) -> Parallel | None:
    value = side.parallel
    if value is None:
        return None
    where = f"{places[name]}: {name}.parallel" if name in places else f"{name}.parallel"
    if isinstance(value, ParallelKeys):
        value = ",".join(
            f"{name}={getattr(value, name)}" for name in value.__struct_fields__ if getattr(value, name) is not None
        )
    return parse_parallel(value, where=where)


class ScenarioFile(Settings, frozen=True, kw_only=True):
    """What a scenario file may hold; only its JSON Schema is used, to help editors."""

    hardware: str | dict[str, Any]
    decode_hardware: str | dict[str, Any] | None = None
    model: str | None = None
    workload: str | dict[str, Any] | None = None


def scenario_schema() -> dict[str, Any]:
    """JSON Schema of a scenario file: a model and a workload, or a mix of them."""
    given = {"anyOf": [{"required": ["model", "workload"]}, {"required": ["mix"]}]}
    schema = json_schema(ScenarioFile, "dualplan scenario")
    definitions = {**schema["$defs"], "ScenarioFile": {**schema["$defs"]["ScenarioFile"], **given}}
    return {**schema, "$defs": definitions}
