"""A resolved scenario with the origin of every value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.report.output import Output
from dualplan.spec.scenario import Scenario

if TYPE_CHECKING:
    from rich.console import Console


def output(scenario: Scenario) -> Output:
    """One row a value: its key, the value in SI units, and where it came from (a flag, a file and line, or default)."""
    rows = list(_rows(scenario))
    data = {"schema": "dualplan/scenario/1", "values": rows}
    return Output(data=data, rows=rows, text=lambda console: _show(rows, console))


def _rows(scenario: Scenario) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def visit(value: Any, key: str, fallback: str) -> None:
        if isinstance(value, msgspec.Struct):
            for field in value.__struct_fields__:
                if field not in ("sources", "notes", "published"):
                    visit(getattr(value, field), f"{key}.{field}" if key else field, fallback)
        elif value is not None and value not in ((), {}):
            rows.append({"key": key, "value": _plain(value), "origin": _origin(scenario.origins, key, fallback)})

    visit(scenario.settings, "", "default")
    visit(scenario.hardware, "hardware", scenario.hardware.name)
    if scenario.decode_hardware != scenario.hardware:
        visit(scenario.decode_hardware, "decode_hardware", scenario.decode_hardware.name)
    rows.append({"key": "model", "value": scenario.model.name, "origin": scenario.origins.get("model", "default")})
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


def _show(rows: list[dict[str, Any]], console: Console) -> None:
    width = max(len(row["key"]) for row in rows) + 2
    for row in rows:
        value = row["value"]
        text = f"{value:g}" if isinstance(value, float) else str(value)
        console.print(f"{row['key']:<{width}}{text}  # {row['origin']}", soft_wrap=True)
