"""``dualplan hardware list|show|schema``: the shipped profiles, one with all its sources, the schema for editors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit


def list_hardware(
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """List the shipped hardware profiles: GPUs, NICs, storage ratio s, DRAM, HBM and price of a node."""
    from dualplan.report.hardware import list_output
    from dualplan.spec.hardware import KIND, read_hardware
    from dualplan.spec.load import shipped_names

    profiles = [read_hardware(name, "hardware list") for name in shipped_names(KIND, ".yaml")]
    emit(list_output(profiles), fmt, as_json, file)


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A shipped profile, or a profile file.", show_default=False)
    ],
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Show one hardware profile: every value with its unit and where it comes from. Variants are shown resolved."""
    from dualplan.report.hardware import output
    from dualplan.spec.hardware import read_hardware

    emit(output(read_hardware(name, "hardware show")), fmt, as_json, file)


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
    emit(Output(data=document, rows=rows), fmt, as_json, file)


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
