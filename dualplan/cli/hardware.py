"""``dualplan hardware list|show|schema``: the shipped profiles, one with all its sources, the schema for editors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit

if TYPE_CHECKING:
    from rich.console import Console

    from dualplan.spec.hardware import Hardware

_SUFFIX = {
    "B/s": "_bytes_per_s",
    "B": "_bytes",
    "s": "_s",
    "FLOP/s": "_flop_per_s",
    "W": "_w",
    "USD": "_usd",
    "USD/h": "_usd_per_h",
}
_ABOUT = ("name", "title", "notes", "sources")


def list_hardware(
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """List the shipped hardware profiles: GPUs, NICs, storage ratio s, DRAM, HBM and price of a node."""
    from dualplan.report.output import Output
    from dualplan.spec.hardware import KIND, read_hardware
    from dualplan.spec.load import shipped_names

    profiles = [read_hardware(name, "hardware list") for name in shipped_names(KIND, ".yaml")]
    rows = [_summary(profile) for profile in profiles]
    data = {"schema": "dualplan/hardware-list/1", "hardware": rows}
    emit(Output(data=data, rows=rows, text=lambda console: _print_list(console, profiles)), fmt, as_json, file)


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A shipped profile, or a profile file.", show_default=False)
    ],
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Show one hardware profile: every value with its unit and where it comes from. Variants are shown resolved."""
    from dualplan.report.output import Output
    from dualplan.spec.hardware import read_hardware

    profile = read_hardware(name, "hardware show")
    output = Output(
        data=_document(profile),
        rows=_value_rows(profile),
        text=lambda console: _print_profile(console, profile),
    )
    emit(output, fmt, as_json, file)


def schema(
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Print the JSON Schema of a hardware profile, for editors. With csv, jsonl or md: its keys, one a row."""
    from dualplan.report.output import Output

    document = profile_schema()
    rows = list(_key_rows(document, "Hardware"))
    as_json = as_json or fmt is Format.table  # JSON is what there is to read
    emit(Output(data=document, rows=rows, text=lambda console: None), fmt, as_json, file)


# ---------------------------------------------------------------- storage ratio


def storage_ratio(profile: Hardware) -> float:
    """Nominal storage bandwidth of the node in units of one GPU's share of its compute NICs [-].

    DualPath's s = S/B where every GPU has a compute NIC of its own; nodes with other NIC counts compare with it.
    """
    return _storage_bandwidth(profile) * profile.gpu.count / _cnic_bandwidth(profile)


def _cnic_bandwidth(profile: Hardware) -> float:
    return profile.cnic.count * profile.cnic.rate


def _storage_bandwidth(profile: Hardware) -> float:
    return profile.snic.count * profile.snic.rate


# ---------------------------------------------------------------- machine view


def _fields(record: Any) -> Iterator[tuple[str, str, Any]]:
    """Name, dimension (of dualplan.units, or empty) and value of every field of a record."""
    from dualplan.spec.load import dimension_of

    for name in record.__struct_fields__:
        yield name, dimension_of(type(record), name), getattr(record, name)


def _machine_key(name: str, dimension: str) -> str:
    return name.removesuffix("_per_hour") + _SUFFIX.get(dimension, "")


def _values(record: Any, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Key path, dimension and value of everything below a record; sections that are not given are one row."""
    import msgspec

    for name, dimension, value in _fields(record):
        if not prefix and name in _ABOUT:
            continue
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, msgspec.Struct):
            yield from _values(value, key)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                place = f"{key}[{index}]"
                yield from _values(item, place) if isinstance(item, msgspec.Struct) else [(place, dimension, item)]
        else:
            yield key, dimension, value


def _nested(record: Any) -> dict[str, Any]:
    """A record as JSON values in SI units, the unit at the end of each key."""
    import msgspec

    result: dict[str, Any] = {}
    for name, dimension, value in _fields(record):
        if isinstance(value, msgspec.Struct):
            result[name] = _nested(value)
        elif isinstance(value, tuple):
            result[name] = [_nested(item) if isinstance(item, msgspec.Struct) else item for item in value]
        else:
            result[_machine_key(name, dimension)] = value
    return result


def _plain(key: str) -> str:
    """A key path without list positions, as sources are keyed."""
    import re

    return re.sub(r"\[\d+\]", "", key)


def _sources(profile: Hardware) -> dict[str, str | None]:
    """The source of every value that is given, by key path."""
    from dualplan.spec.hardware import source_of

    return {key: source_of(profile, _plain(key)) for key, _, value in _values(profile) if value is not None}


def _assumed(source: str | None) -> bool:
    return source is not None and source.startswith("assumed")


def _document(profile: Hardware) -> dict[str, Any]:
    import hashlib

    import msgspec

    sources = _sources(profile)
    values = _nested(profile)
    return {
        "schema": "dualplan/hardware-show/1",
        "name": profile.name,
        "title": profile.title,
        "values": {key: value for key, value in values.items() if key not in _ABOUT},
        "derived": {
            "cnic_node_bandwidth_bytes_per_s": _cnic_bandwidth(profile),
            "storage_bandwidth_bytes_per_s": _storage_bandwidth(profile),
            "storage_ratio": storage_ratio(profile),
        },
        "notes": list(profile.notes),
        "assumed": [key for key, source in sources.items() if _assumed(source)],
        "without_source": [key for key, source in sources.items() if source is None],
        "sources": {key: source for key, source in sources.items() if source is not None},
        "inputs_sha256": hashlib.sha256(msgspec.json.encode(profile, order="sorted")).hexdigest(),
    }


def _value_rows(profile: Hardware) -> list[dict[str, Any]]:
    sources = _sources(profile)
    rows = []
    for key, dimension, value in _values(profile):
        section, dot, name = key.rpartition(".")
        source = sources.get(key)
        rows.append(
            {
                "key": key,
                "name": section + dot + _machine_key(name, dimension),
                "value": value,
                "unit": dimension,
                "assumed": _assumed(source),
                "source": source,
            }
        )
    return rows


def _summary(profile: Hardware) -> dict[str, Any]:
    return {
        "name": profile.name,
        "title": profile.title,
        "gpu": profile.gpu.kind,
        "gpus": profile.gpu.count,
        "cnics": profile.cnic.count,
        "cnic_rate_bytes_per_s": profile.cnic.rate,
        "snics": profile.snic.count,
        "snic_rate_bytes_per_s": profile.snic.rate,
        "snic_shares_cnic": profile.snic.shares_cnic,
        "storage_ratio": storage_ratio(profile),
        "dram_bandwidth_bytes_per_s": profile.dram.bandwidth,
        "dram_capacity_bytes": profile.dram.capacity,
        "hbm_capacity_bytes": profile.gpu.hbm_capacity,
        "price_usd": profile.cost.price,
        "price_usd_per_h": profile.cost.price_per_hour,
        "power_w": profile.cost.power,
        "assumed_values": sum(_assumed(source) for source in _sources(profile).values()),
    }


# ---------------------------------------------------------------- human view


def _print_list(console: Console, profiles: list[Hardware]) -> None:
    from textwrap import fill

    from dualplan.report.columns import print_table

    heads = ("name", "GPUs", "CNICs\nGb/s", "SNICs\nGb/s", "s", "DRAM\nGB/s", "HBM\nGB", "price\nUSD")
    cells = [
        (
            profile.name,
            f"{profile.gpu.count}x {profile.gpu.kind}",
            f"{profile.cnic.count}x{_number(profile.cnic.rate * 8 / 1e9)}",
            f"{profile.snic.count}x{_number(profile.snic.rate * 8 / 1e9)}{'*' if profile.snic.shares_cnic else ''}",
            _number(storage_ratio(profile)),
            _number(profile.dram.bandwidth and profile.dram.bandwidth / 1e9),
            _number(profile.gpu.hbm_capacity / 1e9),
            _price(profile),
        )
        for profile in profiles
    ]
    print_table(console, heads, cells, "llrrrrrr")
    console.print()
    for line in (
        "s: storage bandwidth over a GPU's share of the compute NICs. HBM: of one GPU.",
        "-: not known. *: storage traffic also loads the compute NICs' wire.",
        "dualplan hardware show NAME prints every value with its source.",
    ):
        console.print(fill(line, console.width, subsequent_indent="  "))


def _number(value: float | None) -> str:
    """Three significant digits without trailing zeros: 2, 2.02, 563; ``-`` for nothing."""
    from dualplan.units import significant

    if value is None:
        return "-"
    return _trim(significant(value))


def _trim(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _price(profile: Hardware) -> str:
    cost = profile.cost
    if cost.price_per_hour is not None:
        return f"{cost.price_per_hour:.2f}/h"
    return "-" if cost.price is None else f"{cost.price:,.0f}"


def _print_profile(console: Console, profile: Hardware) -> None:
    from rich.table import Table

    sources = _sources(profile)
    numbers = {text: index for index, text in enumerate(dict.fromkeys(filter(None, sources.values())), 1)}
    console.print(f"{profile.title} ({profile.name})", style="bold")
    console.print(
        f"{profile.gpu.count} GPUs, compute NICs {_show('', 'B/s', _cnic_bandwidth(profile))}, "
        f"storage NICs {_show('', 'B/s', _storage_bandwidth(profile))}: "
        f"storage ratio s = {_number(storage_ratio(profile))}"
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    section = ""
    for key, dimension, value in _values(profile):
        head, _, name = key.partition(".")
        if head.partition("[")[0] != section:
            section = head.partition("[")[0]
            table.add_row()
            table.add_row(section, None if name else "not given")
        if not name:
            continue
        table.add_row(f"  {name}", _show(key, dimension, value), "" if value is None else _mark(sources[key], numbers))
    console.print(table)
    console.print()
    console.print("Rates are nominal, per direction, of one device; what is not given sets no limit.")
    if profile.notes:
        console.print("\nnotes")
        console.print(_hanging([("-", note) for note in profile.notes]))
    if numbers:
        console.print("\nsources")
        console.print(_hanging([(f"[{index}]", text) for text, index in numbers.items()]))


def _mark(source: str | None, numbers: dict[str, int]) -> str:
    if source is None:
        return "no source"
    return f"assumed [{numbers[source]}]" if _assumed(source) else f"[{numbers[source]}]"


def _hanging(rows: list[tuple[str, str]]) -> Any:
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for mark, text in rows:
        grid.add_row(f"  {mark}", text)
    return grid


def _show(key: str, dimension: str, value: Any) -> str:
    """A value for people: ``50 GB/s (400 Gb/s)``, ``yes``, ``not given``."""
    from dualplan import units

    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if dimension in ("USD", "USD/h"):
        return f"{value:,.0f} USD" if dimension == "USD" else f"{value:,.2f} USD/h"
    if not dimension:
        return f"{value:,}" if isinstance(value, int) else str(value)
    number, _, unit = units.show(value, dimension, 4).partition(" ")
    text = f"{_trim(number)} {unit}".rstrip()
    return f"{text} ({_number(value * 8 / 1e9)} Gb/s)" if key in ("cnic.rate", "snic.rate") else text


# ---------------------------------------------------------------- JSON Schema


def profile_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a profile file.

    A profile with ``extends`` may leave out any key, one without must have all that have no default. So what is
    required stands in the ``else`` branch, section by section; only list items, which a variant replaces whole, keep
    their own.
    """
    from dualplan.spec.hardware import Hardware
    from dualplan.spec.load import json_schema

    document = json_schema(Hardware, "dualplan hardware profile")
    record = document["$defs"]["Hardware"]
    parent = {"type": "string", "description": "A shipped profile or a profile file that this one varies."}
    record["properties"] = {"extends": parent} | record["properties"]
    complete = _take_required(document["$defs"], "Hardware")
    # a file without name or title is read too
    complete["required"] = [key for key in complete["required"] if key not in ("name", "title")]
    return document | {"if": {"required": ["extends"]}, "else": complete}


def _take_required(records: dict[str, Any], name: str) -> dict[str, Any]:
    """Remove ``required`` from a record and from the sections below it; return it as a schema of its own."""
    record = records[name]
    required = record.pop("required", [])
    taken: dict[str, Any] = {"required": required} if required else {}
    below = {}
    for key, part in record["properties"].items():
        section = _section(part)
        found = _take_required(records, section) if section else {}
        if found:
            below[key] = found
    return taken | ({"properties": below} if below else {})


def _section(part: dict[str, Any]) -> str | None:
    """Name of the record that a property holds, directly or as one of its alternatives."""
    for option in (part, *part.get("anyOf", ())):
        if "$ref" in option:
            return str(option["$ref"]).rpartition("/")[2]
    return None


def _key_rows(document: dict[str, Any], name: str, prefix: str = "") -> Iterator[dict[str, Any]]:
    """Every key of the schema with an example of how it is written and its default."""
    for key, part in document["$defs"][name]["properties"].items():
        section = _section(part) or _section(part.get("items", {}))
        path = prefix + key + ("[]" if "items" in part else "")
        if section:
            yield from _key_rows(document, section, path + ".")
            continue
        options = [option for option in (part, *part.get("anyOf", ())) if option.keys() & {"type", "enum"}]
        example = next((example for option in options for example in option.get("examples", ())), None)
        kinds = [option.get("type", "string") for option in options]
        yield {
            "key": path,
            "type": "quantity" if example else next(kind for kind in kinds if kind != "null"),
            "example": example,
            "default": part.get("default") if not isinstance(part.get("default"), (dict, list)) else None,
        }
