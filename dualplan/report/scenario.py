"""A resolved scenario with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dualplan.report.blocks import Block, Drawing
from dualplan.report.output import Output
from dualplan.spec.load import dimension_of
from dualplan.spec.scenario import Scenario
from dualplan.units import show


def output(scenario: Scenario) -> Output:
    """One row a value: its key, the value in SI units, and where it came from (a flag, a file and line, or default)."""
    rows = list(value_rows(scenario))
    data = {"schema": "dualplan/scenario/1", "values": rows}
    return Output(data=data, rows=rows, view=lambda: view(rows))


def value_rows(scenario: Scenario) -> list[dict[str, Any]]:
    """Every value of a scenario: key, value in SI units, unit, origin."""
    rows: list[dict[str, Any]] = []

    def visit(value: Any, key: str, fallback: str, dimension: str = "") -> None:
        if isinstance(value, msgspec.Struct):
            for field in value.__struct_fields__:
                if field not in ("sources", "notes", "published", "set_means"):
                    inner = f"{key}.{field}" if key else field
                    visit(getattr(value, field), inner, fallback, dimension_of(type(value), field))
        elif value is not None and value not in ((), {}, ""):
            origin = _origin(scenario.origins, key, fallback)
            rows.append({"key": key, "value": _plain(value), "unit": dimension or None, "origin": origin})

    visit(scenario.settings, "", "default")
    visit(scenario.hardware, "hardware", scenario.hardware.name)
    if scenario.decode_hardware != scenario.hardware:
        visit(scenario.decode_hardware, "decode_hardware", scenario.decode_hardware.name)
    origin = scenario.origins.get("model", "default")
    rows.append({"key": "model", "value": scenario.model.name, "unit": None, "origin": origin})
    visit(scenario.workload, "workload", scenario.workload.name)
    return rows


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _origin(origins: dict[str, str], key: str, fallback: str) -> str:
    """The origin of a key, or of the input that holds it together with that input's name."""
    if key in origins:
        return origins[key]
    above = key
    while "." in above:
        above = above.rpartition(".")[0]
        if above in origins and above in ("prefill", "decode", "slo", "demand", "collective_load"):
            return origins[above]
    return fallback


def view(rows: list[dict[str, Any]]) -> Iterator[Block]:
    """A line for each value, as in YAML, with its origin as a comment."""
    room = max(len(row["key"]) for row in rows) + 2
    lines = [f"{row['key']:<{room}}{value_text(row['value'], row['unit'])}  # {row['origin']}" for row in rows]
    yield Drawing(lambda width: lines, indent=0)


def value_text(value: Any, unit: str | None) -> str:
    """A value as it would be written in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(value_text(item, None) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {value_text(child, None)}" for key, child in value.items()) + "}"
    if isinstance(value, float) and unit not in (None, "1"):
        return show(value, unit or "1", 4)
    return f"{value:g}" if isinstance(value, float) else str(value)
