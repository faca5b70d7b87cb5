"""Files to typed records: the only place of the core that opens files.

YAML text becomes a tree of ``Node`` with a place for every value; flags are laid over that tree; ``decode`` turns it
into frozen records and reports every problem it finds at once, each with its file and line. YAML's own guesses about
types are not used: the record says what a value must be, so ``no``, ``1e9`` and ``08`` mean the same for every key.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

import msgspec
from msgspec import Meta

from dualplan.errors import InputError, did_you_mean, problem, refuse
from dualplan.units import parse, pattern, plain

MAX_YAML_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 40


def _quantity(dimension: str, example: str, **bounds: float) -> Meta:
    schema = {"type": ["string", "number"], "pattern": pattern(dimension), "examples": [example]}
    return Meta(extra={"dimension": dimension} | bounds, extra_json_schema=schema)


Bandwidth = Annotated[float, _quantity("B/s", "400Gb/s", gt=0)]
Size = Annotated[float, _quantity("B", "80GB", gt=0)]
Duration = Annotated[float, _quantity("s", "300ms", ge=0)]
ComputeRate = Annotated[float, _quantity("FLOP/s", "989TFLOPS", gt=0)]
Power = Annotated[float, _quantity("W", "700W", gt=0)]
Money = Annotated[float, _quantity("USD", "199000USD", ge=0)]
HourlyPrice = Annotated[float, _quantity("USD/h", "55.04USD/h", ge=0)]
Share = Annotated[float, Meta(extra={"dimension": "1", "ge": 0, "le": 1}, ge=0, le=1)]
PositiveShare = Annotated[float, Meta(extra={"dimension": "1", "gt": 0, "le": 1}, gt=0, le=1)]
BelowOne = Annotated[float, Meta(extra={"dimension": "1", "ge": 0, "lt": 1}, ge=0, lt=1)]
Efficiency = Annotated[float, Meta(extra={"dimension": "1", "ge": 1e-6, "le": 1}, ge=1e-6, le=1)]
Factor = Annotated[float, Meta(extra={"dimension": "1", "ge": 1}, ge=1)]
Positive = Annotated[float, Meta(extra={"gt": 0}, gt=0)]
NonNegative = Annotated[float, Meta(extra={"ge": 0}, ge=0)]
Count = Annotated[int, Meta(extra={"ge": 1, "le": 10_000_000}, ge=1, le=10_000_000)]
CountOrZero = Annotated[int, Meta(extra={"ge": 0, "le": 10_000_000}, ge=0, le=10_000_000)]


class Node(msgspec.Struct, frozen=True):
    """A value of a configuration file with the place it came from.

    ``value`` is a mapping, a list, or the text of a scalar (None for null). ``place`` is ``file:line`` or a flag.
    """

    value: dict[str, Node] | list[Node] | str | None
    place: str
    quoted: bool = False
    origin: str = "file"

    def items(self) -> dict[str, Node]:
        """The children by key; empty for anything but a mapping."""
        return self.value if isinstance(self.value, dict) else {}


# ---------------------------------------------------------------- reading


def shipped_dir(kind: str) -> Path:
    """Folder of shipped files (``hardware_profiles``, ``workloads``, ``workloads/models``): in an installed wheel or
    in a checkout.
    """
    package = Path(__file__).resolve().parents[1]
    inside = package / "shipped" / kind
    return inside if inside.is_dir() else package.parent / kind


def shipped_names(kind: str, suffix: str) -> list[str]:
    """Names of the shipped files of a kind, sorted."""
    folder = shipped_dir(kind)
    return sorted(p.stem for p in folder.glob(f"*{suffix}")) if folder.is_dir() else []


def find(kind: str, suffix: str, name: str, *, where: str, base: Path | None = None) -> Path:
    """Path of a shipped name, or of a file given as a path (relative to ``base``).

    A word without a slash or the suffix is looked up among the shipped files first. Raises InputError with the
    closest name.
    """
    if not name or "\0" in name:
        raise InputError(where, "an empty name" if not name else "a name with a NUL character")
    path = Path(name)
    with suppress(RuntimeError):  # no such user, or no home
        path = path.expanduser()
    path = path if path.is_absolute() or base is None else base / path
    looks_like_path = "/" in name or name.endswith((suffix, ".yml", ".json", ".yaml"))
    if not looks_like_path:
        shipped = shipped_dir(kind) / (name + suffix)
        if _exists(shipped):
            return shipped
    if _exists(path):
        return path
    if looks_like_path:
        raise InputError(where, f'no such file "{name}"')
    known = shipped_names(kind, suffix)
    raise InputError(
        where,
        f'"{name}" is neither a shipped name nor a file',
        did_you_mean(name, known) or "known: " + ", ".join(known),
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for the file system
        return False


def read_text(path: Path, *, limit: int = MAX_YAML_BYTES, where: str = "") -> str:
    """UTF-8 text of a file (a byte-order mark is dropped). Raises InputError for anything that is not such a file."""
    where = where or str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except IsADirectoryError:
        raise InputError(where, "is a directory, a file is needed") from None
    except FileNotFoundError:
        raise InputError(where, "no such file") from None
    except OSError as error:
        raise InputError(where, f"cannot be read: {error.strerror or error}") from None
    if len(raw) > limit:
        raise InputError(
            where, f"is larger than {limit // 1_000_000 or limit} {'MB' if limit >= 1_000_000 else 'bytes'}"
        )
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(where, "is UTF-16 text, UTF-8 is needed", "iconv -f UTF-16 -t UTF-8")
    if b"\0" in raw:
        raise InputError(where, "is a binary file, text is needed")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{where}:{line}", "is not UTF-8 text") from None


def parse_yaml(text: str, name: str) -> Node:
    """YAML text to a tree of nodes. Duplicate keys, tags, merge keys, many documents and alias bombs are refused."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        what = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise InputError(f"{name}{line}", f"is not valid YAML: {what}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(name, f"is not valid YAML: {type(error).__name__}") from None
    if root is None:
        raise InputError(name, "is empty")
    budget = [MAX_NODES]
    problems: list[str] = []
    node = _from_yaml(root, name, 0, budget, problems)
    refuse(problems)
    return node


def _from_yaml(node: Any, name: str, depth: int, budget: list[int], problems: list[str]) -> Node:
    place = f"{name}:{node.start_mark.line + 1}"
    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_DEPTH:
        raise InputError(place, "too many nested or aliased values")
    kind = type(node).__name__
    if kind == "ScalarNode":
        quoted = bool(node.style)  # libyaml says '' for a plain scalar, the Python loader None
        if not node.tag.startswith("tag:yaml.org,2002:") or ":python/" in node.tag:
            problems.append(problem(place, f'the tag "{node.tag}" is not supported'))
        text = None if not quoted and node.value in ("", "~", "null", "Null", "NULL") else node.value
        return Node(text, place, quoted)
    if kind == "SequenceNode":
        return Node([_from_yaml(child, name, depth + 1, budget, problems) for child in node.value], place)
    children: dict[str, Node] = {}
    for key_node, child in node.value:
        key, key_place = key_node.value, f"{name}:{key_node.start_mark.line + 1}"
        if not isinstance(key, str):
            problems.append(problem(key_place, "a key must be plain text"))
        elif key == "<<":
            problems.append(problem(key_place, "merge keys are not supported", "use extends: NAME"))
        elif key in children:
            problems.append(
                problem(key_place, f"{key}: duplicate key", f"first at line {children[key].place.rpartition(':')[2]}")
            )
        else:
            children[key] = _from_yaml(child, name, depth + 1, budget, problems)
    return Node(children, place)


def read_yaml(path: Path, *, where: str = "") -> Node:
    """A YAML file as a tree of nodes."""
    return parse_yaml(read_text(path, where=where), where or str(path))


# ---------------------------------------------------------------- writing


@contextmanager
def written(path: Path, where: str = "") -> Iterator[BinaryIO]:
    """A binary file to write ``path`` with: it replaces the target whole when the block ends, or not at all.

    Devices and pipes are written directly, a symbolic link's target is what is replaced, and an existing file keeps its
    mode. Raises InputError where writing is impossible.
    """
    where = where or str(path)
    temporary: Path | None = None
    try:
        if path.is_dir():
            raise InputError(where, "is a directory, a file name is needed")
        target = Path(os.path.realpath(path))
        if _written_directly(path, target):
            with path.open("wb") as device:
                yield device
            return
        # named before it exists, so that a signal at any moment finds what to remove
        temporary = target.parent / f".dualplan.{secrets.token_hex(8)}.part"
        with os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as part:
            yield part
            part.flush()
            os.fsync(part.fileno())
        temporary.chmod(_mode(target))
        temporary.replace(target)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InputError(where, f"cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            # it may not have come to be, in a folder that is none
            with contextlib.suppress(OSError):
                temporary.unlink()


def _written_directly(path: Path, target: Path) -> bool:
    """Whether a path is something that must not be renamed over: a device, a pipe, a name of an open file."""
    special = any(str(name).startswith(("/dev/", "/proc/")) for name in (path.absolute(), target))
    return special or (target.exists() and not target.is_file())


def _mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


# ---------------------------------------------------------------- merging


def merged(below: Node, above: Node) -> Node:
    """``above`` laid over ``below``: mappings are merged key by key, everything else is replaced."""
    if not isinstance(below.value, dict) or not isinstance(above.value, dict):
        return above
    result = dict(below.value)
    for key, child in above.value.items():
        result[key] = merged(result[key], child) if key in result else child
    return Node(result, above.place, origin=above.origin)


def with_value(node: Node, path: tuple[str, ...], value: Node) -> Node:
    """A copy of ``node`` with the value at a key path replaced; missing mappings on the way are made."""
    if not path:
        return value
    children = dict(node.items())
    inner = children.get(path[0], Node({}, value.place, origin=value.origin))
    children[path[0]] = with_value(inner, path[1:], value)
    return Node(children, node.place, origin=node.origin)


def flag_node(text: str, flag: str) -> Node:
    """The value of ``--set key=value``: YAML flow text, so lists and mappings can be given too."""
    node = parse_yaml(text, flag) if text.strip() else Node(None, flag)

    def relabel(child: Node) -> Node:
        value = child.value
        if isinstance(value, dict):
            value = {key: relabel(grandchild) for key, grandchild in value.items()}
        elif isinstance(value, list):
            value = [relabel(grandchild) for grandchild in value]
        return Node(value, flag, child.quoted, "flag")

    return relabel(node)


def leaves(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every scalar (and empty container) of a tree with its dotted key path."""
    if isinstance(node.value, dict) and node.value:
        for key, child in node.value.items():
            yield from leaves(child, f"{path}.{key}" if path else key)
    elif isinstance(node.value, list) and node.value:
        for index, child in enumerate(node.value):
            yield from leaves(child, f"{path}[{index}]")
    else:
        yield path, node


# ---------------------------------------------------------------- decoding

T = TypeVar("T")


def decode(node: Node, kind: type[T], path: str = "") -> T:
    """A tree of nodes as a record of type ``kind``. Raises InputError with every problem found."""
    problems: list[str] = []
    value = _decode(node, kind, path, problems)
    refuse(problems)
    return typing.cast(T, value)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def hint_of(kind: type, field: str) -> Any:
    """The annotated type of a record's field, for ``decode``."""
    return _hints(kind)[field]


def dimension_of(kind: type, field: str) -> str:
    """The dimension in the annotation of a record's field, such as that of ``Bandwidth | None``; empty without one."""
    hint = _hints(kind)[field]
    for part in (hint, *typing.get_args(hint)):
        for meta in getattr(part, "__metadata__", ()):
            if "dimension" in (meta.extra or {}):
                return str(meta.extra["dimension"])
    return ""


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _decode(node: Node, kind: Any, path: str, problems: list[str]) -> Any:
    where = _where(node.place, path)
    extra: Mapping[str, Any] = {}
    if typing.get_origin(kind) is Annotated:
        for meta in kind.__metadata__:
            extra = meta.extra or {} if isinstance(meta, Meta) else extra
        kind = typing.get_args(kind)[0]
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(node, typing.get_args(kind), path, problems)
    if _is_struct(kind):
        return _decode_struct(node, kind, path, problems)
    if origin is dict:
        if not isinstance(node.value, dict):
            problems.append(problem(where, f"{_form(node)}, a mapping is needed"))
            return None
        inner = typing.get_args(kind)[1]
        return {key: _decode(child, inner, f"{path}.{key}", problems) for key, child in node.value.items()}
    if origin in (tuple, list):
        if not isinstance(node.value, list):
            problems.append(
                problem(
                    where,
                    f"{_form(node)}, a list is needed",
                    f"write [{node.value}]" if isinstance(node.value, str) else "",
                )
            )
            return None
        inner = typing.get_args(kind)[0]
        return tuple(_decode(child, inner, f"{path}[{index}]", problems) for index, child in enumerate(node.value))
    try:
        return _scalar(node, kind, extra, where)
    except InputError as error:
        problems.extend(error.problems)
        return None


def _where(place: str, path: str) -> str:
    """A place and the key there; the place alone where it is a flag that names the key."""
    return f"{place}: {path}" if path and not place.endswith(f" {path}") else place


def _decode_union(node: Node, options: tuple[Any, ...], path: str, problems: list[str]) -> Any:
    if node.value is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    records = [option for option in options if _is_struct(option) or typing.get_origin(option) is dict]
    lists = [option for option in options if typing.get_origin(option) in (tuple, list)]
    scalars = [option for option in options if option not in records and option not in lists]
    fitting = records if isinstance(node.value, dict) else lists if isinstance(node.value, list) else scalars
    return _decode(node, (fitting or list(options))[0], path, problems)


def _decode_struct(node: Node, kind: Any, path: str, problems: list[str]) -> Any:
    where = _where(node.place, path)
    if not isinstance(node.value, dict):
        problems.append(
            problem(where, f"{_form(node)}, a mapping is needed", "keys: " + ", ".join(kind.__struct_fields__[:8]))
        )
        return None
    hints = _hints(kind)
    names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    before = len(problems)
    values: dict[str, Any] = {}
    for key, child in node.value.items():
        inner = f"{path}.{key}" if path else key
        if key not in names:
            problems.append(
                problem(
                    _where(child.place, inner), "unknown key", did_you_mean(key, names) or "known: " + ", ".join(names)
                )
            )
            continue
        values[names[key]] = _decode(child, hints[names[key]], inner, problems)
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in values:
            missing = f"{path}.{field.encode_name}" if path else field.encode_name
            problems.append(problem(f"{node.place}: {missing}", "missing"))
    if len(problems) > before:
        return None
    try:
        return kind(**values)
    except (InputError, ValueError) as error:
        lines = error.problems if isinstance(error, InputError) else (str(error),)
        # what does not go together is blamed on the flag that changed it, if one did
        flag = next((leaf.place for _, leaf in leaves(node) if leaf.origin == "flag"), None)
        problems.extend(problem(flag or where, line) for line in lines)
        return None


def _form(node: Node) -> str:
    if isinstance(node.value, dict):
        return "is a mapping"
    if isinstance(node.value, list):
        return "is a list"
    return "is empty" if node.value is None else f'"{node.value[:60]}" is plain text'


def _scalar(node: Node, kind: Any, extra: Mapping[str, Any], where: str) -> Any:
    text = node.value
    if not isinstance(text, str):
        raise InputError(where, f"{_form(node)}, {_wanted(kind)} is needed")
    if typing.get_origin(kind) is Literal:
        known = typing.get_args(kind)
        if text not in known:
            raise InputError(
                where, f'"{text[:60]}" is not known', did_you_mean(text, known) or "one of " + ", ".join(known)
            )
        return text
    if kind is bool:
        if text in ("true", "false") and not node.quoted:
            return text == "true"
        raise InputError(where, f'"{text[:60]}" is not true or false')
    if kind is str or kind is Any:
        return text
    if "dimension" in extra:
        value: float = parse(text, extra["dimension"], where)
    else:
        value = _number(text, kind, node.quoted or node.origin == "flag", where)
    _check_bounds(value, extra, text, where)
    return value


def _wanted(kind: Any) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "a value")


_ENDLESS = re.compile(r"[+-]?(nan|inf(inity)?|[0-9.]+e\+?[0-9]+)", re.ASCII | re.IGNORECASE)


def _number(text: str, kind: Any, quoted: bool, where: str) -> float:
    clean = text.strip()
    digits = clean.lstrip("+-")
    if not quoted and digits[:1].isdigit() and "e" in digits.lower() and "." not in digits and plain(clean) is not None:
        # PyYAML reads 1e9 as text, other readers as a number: say how to write it so that all agree
        raise InputError(
            where,
            f'"{text}" is text in YAML 1.1',
            f"write {float(clean):g}".replace("e+", ".0e+") if float(clean) >= 1e16 else f"write {float(clean):.0f}",
        )
    value = plain(clean)
    if value is None:
        endless = _ENDLESS.fullmatch(clean) is not None
        raise InputError(where, f'"{text[:60]}" is not {"a finite number" if endless else _wanted(kind)}')
    if kind is int:
        if value != int(value):
            raise InputError(where, f'"{text}" is not a whole number')
        return int(value)
    return value


_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "gt": (lambda value, bound: value > bound, "must be greater than"),
    "ge": (lambda value, bound: value >= bound, "must be at least"),
    "lt": (lambda value, bound: value < bound, "must be less than"),
    "le": (lambda value, bound: value <= bound, "must be at most"),
}


def _check_bounds(value: float, extra: Mapping[str, Any], text: str, where: str) -> None:
    for name, (holds, words) in _BOUNDS.items():
        if name in extra and not holds(value, extra[name]):
            raise InputError(where, f'"{text}" {words} {extra[name]}')


# ---------------------------------------------------------------- JSON Schema


def json_schema(kind: type, title: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of a record as it is written in YAML: quantities are text with a unit, unknown keys are
    refused.
    """
    schema = msgspec.json.schema(kind)

    def visit(part: Any) -> None:
        if isinstance(part, dict):
            if "pattern" in part:
                # msgspec describes the float that is kept; a file holds text such as 400Gb/s, or a bare 0
                part["type"] = ["string", "number"]
                for bound in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
                    part.pop(bound, None)
            if part.get("type") == "object" and "properties" in part:
                part["additionalProperties"] = False
            for child in part.values():
                visit(child)
        elif isinstance(part, list):
            for child in part:
                visit(child)

    visit(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title} | schema
