"""The shipped hardware profiles, one profile with the source of every value, and the keys of the schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from dualplan import units
from dualplan.report.blocks import GAP, Block, Bullets, Facts, Paragraph, Text, table
from dualplan.report.output import Output
from dualplan.report.records import pick
from dualplan.spec.hardware import Hardware, source_of
from dualplan.spec.load import dimension_of
from dualplan.units import significant

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
NODE = """
    name title gpu=gpu.kind gpus=gpu.count cnics=cnic.count cnic_rate_bytes_per_s=cnic.rate snics=snic.count
    snic_rate_bytes_per_s=snic.rate snic_shares_cnic=snic.shares_cnic
"""
MEMORY_AND_COST = """
    dram_bandwidth_bytes_per_s=dram.bandwidth dram_capacity_bytes=dram.capacity hbm_capacity_bytes=gpu.hbm_capacity
    price_usd=cost.price price_usd_per_h=cost.price_per_hour power_w=cost.power
"""


def list_output(profiles: list[Hardware]) -> Output:
    """The shipped profiles, one a row."""
    rows = [summary(profile) for profile in profiles]
    data = {"schema": "dualplan/hardware-list/1", "hardware": rows}
    return Output(data=data, rows=rows, view=lambda: list_view(profiles))


def output(profile: Hardware) -> Output:
    """One profile; csv, jsonl and md hold a row for each value."""
    return Output(data=document(profile), rows=_value_rows(profile), view=lambda: view(profile))


def storage_ratio(profile: Hardware) -> float:
    """Nominal storage bandwidth of the node in units of one GPU's share of its compute NICs [-].

    DualPath's s = S/B where every GPU has a compute NIC of its own; nodes with other NIC counts compare with it.
    """
    return _storage_bandwidth(profile) * profile.gpu.count / _cnic_bandwidth(profile)


def _cnic_bandwidth(profile: Hardware) -> float:
    return profile.cnic.count * profile.cnic.rate


def _storage_bandwidth(profile: Hardware) -> float:
    return profile.snic.count * profile.snic.rate


def _fields(record: Any) -> Iterator[tuple[str, str, Any]]:
    """Name, dimension (of dualplan.units, or empty) and value of every field of a record."""
    for name in record.__struct_fields__:
        yield name, dimension_of(type(record), name), getattr(record, name)


def _machine_key(name: str, dimension: str) -> str:
    return name.removesuffix("_per_hour") + _SUFFIX.get(dimension, "")


def _values(record: Any, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Key path, dimension and value of everything below a record; sections that are not given are one row."""
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
    return re.sub(r"\[\d+\]", "", key)


def _sources(profile: Hardware) -> dict[str, str | None]:
    """The source of every value that is given, by key path."""
    return {key: source_of(profile, _plain(key)) for key, _, value in _values(profile) if value is not None}


def _assumed(source: str | None) -> bool:
    return source is not None and source.startswith("assumed")


def document(profile: Hardware) -> dict[str, Any]:
    """Every value of a profile in SI units, with its source."""

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


def summary(profile: Hardware) -> dict[str, Any]:
    """The figures of a profile that are compared between profiles."""
    return {
        **pick(profile, NODE),
        "storage_ratio": storage_ratio(profile),
        **pick(profile, MEMORY_AND_COST),
        "assumed_values": sum(_assumed(source) for source in _sources(profile).values()),
    }


def list_view(profiles: list[Hardware]) -> Iterator[Block]:
    """The table of profiles."""
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
    yield table("", heads, cells, "llrrrrrr", below=True, indent=0)
    yield GAP
    for line in (
        "s: storage bandwidth over a GPU's share of the compute NICs. HBM: of one GPU.",
        "-: not known. *: storage traffic also loads the compute NICs' wire.",
        "dualplan hardware show NAME prints every value with its source.",
    ):
        yield Paragraph(line, indent=0)


def view(profile: Hardware) -> Iterator[Block]:
    """One profile: every value with the number of its source, notes and sources."""
    sources = _sources(profile)
    numbers = {text: index for index, text in enumerate(dict.fromkeys(filter(None, sources.values())), 1)}
    yield Paragraph(f"{profile.title} ({profile.name})", "title")
    yield Paragraph(
        f"{profile.gpu.count} GPUs, compute NICs {_show('', 'B/s', _cnic_bandwidth(profile))}, "
        f"storage NICs {_show('', 'B/s', _storage_bandwidth(profile))}: "
        f"storage ratio s = {_number(storage_ratio(profile))}",
        indent=0,
        hanging=0,
    )
    rows: list[tuple[str, str, str]] = []
    section = ""
    for key, dimension, value in _values(profile):
        head, _, name = key.partition(".")
        if head.partition("[")[0] != section:
            section = head.partition("[")[0]
            rows += [("", "", ""), (section, "" if name else "not given", "")]
        if name:
            mark = "" if value is None else _mark(sources[key], numbers)
            rows.append((f"  {name}", _show(key, dimension, value), mark))
    yield table("", ("", "", ""), rows, "lll", below=True, flow=".w.", indent=0)
    yield GAP
    rates = "Rates are nominal, per direction, of one device; what is not given sets no limit."
    yield Paragraph(rates, indent=0, hanging=0)
    if profile.notes:
        yield from (GAP, Paragraph("notes", indent=0), Bullets(profile.notes))
    if numbers:
        room = len(f"[{len(numbers)}]")
        marked: list[tuple[str, Text]] = [(f"{f'[{index}]':>{room}} ", text) for text, index in numbers.items()]
        yield from (GAP, Paragraph("sources", indent=0), Facts(tuple(marked), room=room + 1))


def _number(value: float | None) -> str:
    """Three significant digits without trailing zeros: 2, 2.02, 563; ``-`` for nothing."""
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


def _mark(source: str | None, numbers: dict[str, int]) -> str:
    if source is None:
        return "no source"
    return f"assumed [{numbers[source]}]" if _assumed(source) else f"[{numbers[source]}]"


def _show(key: str, dimension: str, value: Any) -> str:
    """A value for people: ``50 GB/s (400 Gb/s)``, ``yes``, ``not given``."""
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
