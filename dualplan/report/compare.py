"""The answer of ``compare``: scenarios side by side, with what differs in inputs and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from sys import maxsize
from typing import Any

import msgspec

from dualplan.plan.assumptions import assumptions
from dualplan.plan.purchase.cost import Prices, node_price
from dualplan.report.blocks import GAP, Block, Paragraph, Table, table
from dualplan.report.feasible import STILL, only_the_range
from dualplan.report.feasible_document import document as feasible_document
from dualplan.report.near_limit import LEAVE_ROOM, SIMULATE, near_limit
from dualplan.report.output import Output
from dualplan.report.scenario import output as scenario_output
from dualplan.report.scenario import value_text
from dualplan.steady.answer import Evaluation
from dualplan.steady.resources import TITLES
from dualplan.units import significant

SCHEMA = "dualplan/compare/1"
SAME = 1e-9
"""Relative change below which two figures are the same."""

LONGEST = 60
"""Characters of a cell for people."""

BUSY = 0.5
"""Resources that are used this much in one of the scenarios are shown for all."""

# key of the JSON row, heading, whether the change against the first scenario is shown
FIGURES = (
    ("feasible", "feasible", False),
    ("throughput.turns_per_s", "turns/s", True),
    ("throughput.agents_per_s", "agents/s", True),
    ("throughput.prompt_tokens_per_s", "prompt tok/s", True),
    ("bottleneck.resource", "bound by", False),
    ("bottleneck.next", "then", False),
    ("speedup_over_basic", "x basic", True),
    ("pd_ratio", "P/D", True),
    ("range.lower", "P/D from", True),
    ("range.lower_constraint", "  set by", False),
    ("range.upper", "P/D to", True),
    ("range.upper_constraint", "  set by", False),
    ("latency.ttft_unloaded_s", "TTFT alone, s", True),
    ("latency.tpot_s", "TPOT, s", True),
    ("demand.utilization", "demand over rate", True),
    ("gpus", "GPUs", True),
    ("throughput_per_gpu.turns_per_s", "turns/s a GPU", True),
    ("cost_per_hour", "USD/h", True),
    ("cost_per_million_turns", "USD a million turns", True),
)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Scenarios under the names that tell them apart, with their answers; others are compared with the first."""

    names: tuple[str, ...]
    answers: tuple[Evaluation, ...]


def names_of(files: Sequence[Path | None], answers: Sequence[Evaluation]) -> tuple[str, ...]:
    """A name for each scenario: its own, else that of its file; numbered where two are alike."""
    found = []
    for file, answer in zip(files, answers, strict=True):
        found.append(answer.scenario.settings.name or (file.stem if file is not None else "flags"))
    if len(set(found)) < len(found):
        stems = [file.stem if file is not None else name for file, name in zip(files, found, strict=True)]
        found = stems if len(set(stems)) == len(stems) else [f"{name} ({i})" for i, name in enumerate(found, 1)]
    return tuple(found)


def output(compared: Compared) -> Output:
    """The result in all formats; a row a scenario."""
    rows = scenario_rows(compared)
    data = {
        "schema": SCHEMA,
        "relative_to": compared.names[0],
        "scenarios": rows,
        "input_differences": input_differences(compared),
        "assumptions": {
            name: list(assumptions(answer)) for name, answer in zip(compared.names, compared.answers, strict=True)
        },
    }
    return Output(
        data=data,
        rows=rows,
        view=lambda: view(compared),
        document=lambda: [Paragraph(" / ".join(compared.names), "title"), *view(compared, longest=maxsize)],
    )


# ---------------------------------------------------------------- machines


def scenario_rows(compared: Compared) -> list[dict[str, Any]]:
    """One record a scenario: figures named as in ``feasible --json``, and their change against the first, by key."""
    rows = [_row(name, answer) for name, answer in zip(compared.names, compared.answers, strict=True)]
    for row in rows:
        row["change"] = {
            key: _change(_at(rows[0], key), _at(row, key)) for key, _, shown in FIGURES if shown and key != "pd_ratio"
        }
    return rows


def _row(name: str, answer: Evaluation) -> dict[str, Any]:
    data, scenario = feasible_document(answer), answer.scenario
    gpus = answer.prefill_nodes * scenario.hardware.gpu.count + answer.decode_nodes * scenario.decode_hardware.gpu.count
    prices = [node_price(hardware, Prices()) for _, hardware in scenario.sides]
    cost = None
    if prices[0] is not None and prices[1] is not None:
        cost = answer.prefill_nodes * prices[0] + answer.decode_nodes * prices[1]
    turns = answer.turns_per_s
    keys = ("feasible", "hardware", "decode_hardware", "model", "workload", "mode", "prefill_nodes", "decode_nodes")
    return {
        "name": name,
        **{key: data[key] for key in (*keys, "pd_ratio", "throughput", "bottleneck")},
        "range": {key: value for key, value in data["range"].items() if not isinstance(value, list)},
        **{key: data[key] for key in ("speedup_over_basic", "decode_read_share")},
        "latency": {key: data["latency"][key] for key in ("ttft_unloaded_s", "tpot_s")},
        "demand": data["demand"] or {"turns_per_s": None, "utilization": None, "headroom": None},
        "utilization": _utilization(answer),
        "gpus": gpus,
        "throughput_per_gpu": {"turns_per_s": turns / gpus},
        "cost_per_hour": cost,
        "cost_per_million_turns": cost / (turns * 3600) * 1e6 if cost is not None and turns else None,
        "reasons": data["reasons"],
        "inputs_sha256": data["inputs_sha256"],
    }


def _utilization(answer: Evaluation) -> dict[str, float]:
    """The use of each resource; where a name stands for several, of the fullest."""
    found: dict[str, float] = {}
    for load in answer.loads:
        found[load.name] = max(found.get(load.name, 0.0), load.utilization)
    return found


def _at(row: Any, key: str) -> Any:
    for part in key.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row


def _change(before: Any, after: Any) -> float | None:
    """Relative change of a figure; None where there is none to compare."""
    if before is None or after is None or not before:
        return None
    change = after / before - 1
    return 0.0 if abs(change) < SAME else float(change)


def input_differences(compared: Compared) -> list[dict[str, Any]]:
    """Values of the scenarios that are not all alike: key, unit, and the value in each (null where it has none)."""
    tables = []
    units: dict[str, str | None] = {}
    for answer in compared.answers:
        rows = scenario_output(answer.scenario).rows
        units |= {row["key"]: row["unit"] for row in rows}
        counts = {"prefill_nodes": answer.prefill_nodes, "decode_nodes": answer.decode_nodes}
        tables.append({row["key"]: row["value"] for row in rows} | counts)
    keys = dict.fromkeys(key for table in tables for key in table)
    return [
        {"key": key, "unit": units.get(key), "values": [table.get(key) for table in tables]}
        for key in keys
        if key != "name" and any(table.get(key) != tables[0].get(key) for table in tables)
    ]


# ---------------------------------------------------------------- people


def verdict(compared: Compared) -> list[str]:
    """The answer in a sentence or two: what is feasible, and what carries most."""
    answers, names = compared.answers, compared.names
    fine = [name for name, answer in zip(names, answers, strict=True) if answer.feasible]
    if len(fine) == len(names):
        lines = ["All are feasible."]
    else:
        lines = [f"Feasible: {', '.join(fine) or 'none'}. Not: {', '.join(n for n in names if n not in fine)}."]
    candidates = [i for i, answer in enumerate(answers) if answer.feasible or not fine]
    top = max(candidates, key=lambda i: answers[i].turns_per_s)
    whole = max(range(len(answers)), key=lambda i: answers[i].turns_per_s)
    rate = answers[top].turns_per_s
    of = "" if len(fine) == len(names) else " of those that are feasible" if fine else " of these"
    text = f"Most turns/s{of}: {names[top]} with {significant(rate)}"
    if top and answers[0].turns_per_s:
        text += f", {_signed(_change(answers[0].turns_per_s, rate))} against {names[0]}"
    if answers[whole].turns_per_s > rate * (1 + SAME):
        text += f"; {names[whole]}, which is not feasible, has {significant(answers[whole].turns_per_s)}"
    return [*lines, f"{text}."]


def remarks(compared: Compared) -> list[str]:
    """Why scenarios are not feasible, and which demands are near the limit, a line each."""
    lines, near = [], []
    for name, answer in zip(compared.names, compared.answers, strict=True):
        still = [f"Still {STILL}."] if only_the_range(answer) else []
        if answer.reasons:
            lines.append(" ".join([f"{name}:", *map(str, answer.reasons), *still]))
        check = answer.demand_check
        text = None if check is None else near_limit(check.utilization, LEAVE_ROOM if answer.classes else SIMULATE)
        near += [(name, text)] if text else []
    for text in dict.fromkeys(text for _, text in near):
        lines.append(f"Near the limit: {', '.join(name for name, own in near if own == text)}; {text}.")
    return lines


def _signed(change: float | None) -> str:
    """A change in per cent, ``=`` where there is none."""
    if change is None:
        return ""
    if change == 0:
        return "="
    return f"{100 * change:+.1f} %" if abs(change) < 0.1 else f"{100 * change:+,.0f} %"


def figure_rows(compared: Compared) -> list[list[str]]:
    """Heading, then a cell a scenario: value, and change against the first. A ``*`` marks words that differ."""
    rows = scenario_rows(compared)
    found = []
    for key, heading, changes in FIGURES:
        values = [_at(row, key) for row in rows]
        if all(value is None for value in values):
            continue
        cells = []
        for index, value in enumerate(values):
            text = _text(value)
            if key in ("range.lower", "range.upper") and compared.answers[index].ranges.all_traffic.empty_because:
                text = "empty"
            if index and changes and key != "pd_ratio":
                text += "  " + _signed(_change(values[0], value)) if value is not None else ""
            elif index and value != values[0]:
                text += " *"
            cells.append(text.rstrip())
        found.append([heading, *cells])
    for name, title in TITLES.items():
        used = [row["utilization"].get(name) for row in rows]
        if any(share is not None and share >= BUSY for share in used):
            found.append([f"used: {title}", *("-" if share is None else f"{100 * share:.0f} %" for share in used)])
    return found


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return TITLES.get(value, value) if isinstance(value, str) else significant(value)


def difference_rows(compared: Compared) -> list[list[str]]:
    """Key, then the value of each scenario as it would be written in a file."""
    return [
        [entry["key"], *("-" if value is None else value_text(value, entry["unit"]) for value in entry["values"])]
        for entry in input_differences(compared)
    ]


def view(compared: Compared, longest: int = LONGEST) -> Iterator[Block]:
    """The verdict, the figures, and the inputs that differ, with cells of so many characters."""
    for line in verdict(compared):
        yield Paragraph(line, "lead")
    yield from (GAP, _table(compared, "", figure_rows(compared), longest))
    for text in remarks(compared):
        yield Paragraph(text)
    yield GAP
    differences = difference_rows(compared)
    if differences:
        yield _table(compared, "Inputs that differ", differences, longest)
    else:
        yield Paragraph("No input differs.")


def _table(compared: Compared, first: str, rows: list[list[str]], longest: int) -> Table:
    """Rows of a heading and a cell a scenario."""
    cells = [[c if len(c) <= longest else f"{c[: longest - 4]} ..." for c in row] for row in rows]
    count = 1 + len(compared.names)
    return table("", (first, *compared.names), cells, "l" * count, flow="f" * count)
