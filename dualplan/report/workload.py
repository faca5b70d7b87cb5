"""The shipped workloads, and one workload with its lengths, published figures and sources."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from dualplan.report.blocks import GAP, Block, Bullets, Paragraph, table
from dualplan.report.output import Output
from dualplan.report.records import pick
from dualplan.spec.distribution import QUANTILES, Distribution, Durations, quantile
from dualplan.spec.workload import Workload, mean_of, mean_turns, per_turn_means, turn_mix
from dualplan.units import show, significant

LENGTHS = {
    "turns": "turns",
    "context": "context_tokens",
    "append": "append_tokens",
    "generated": "generated_tokens",
    "first_context": "first_context_tokens",
    "first_append": "first_append_tokens",
    "think_time": "think_time_s",
}
"""Key of a workload -> its name with the unit in machine output."""

SHOWN = ("p50", "p90", "p99")

FIGURES = """
    recipe max_length_tokens=max_length block_tokens=block context_block_tokens=context_block hit_rate published
    measured assumed notes sources
"""


def list_output(workloads: list[Workload]) -> Output:
    """The shipped workloads, one a row."""
    rows = [summary(workload) for workload in workloads]
    data = {"schema": "dualplan/workload-list/1", "workloads": rows}
    return Output(data=data, rows=rows, view=lambda: list_view(rows))


def output(workload: Workload) -> Output:
    """One workload; csv, jsonl and md hold a row for each length."""
    data = document(workload)
    rows = [{"length": key, **value} for key in LENGTHS.values() if isinstance(value := data[key], dict)]
    return Output(data=data, rows=rows, view=lambda: view(workload, data))


def document(workload: Workload) -> dict[str, Any]:
    """Everything about a workload as JSON values: tokens, seconds, shares."""
    per_turn = per_turn_means(workload)
    return {
        "schema": "dualplan/workload-show/1",
        **pick(workload, "name description means"),
        **{name: _length(getattr(workload, key)) for key, name in LENGTHS.items()},
        "per_turn": _tokens(per_turn),
        "hit_share": per_turn.context / (per_turn.context + per_turn.append),
        "representative_turns": len(turn_mix(workload)),
        **pick(workload, "correlation carry_over"),
        "resets": _known_resets(workload),
        **pick(workload, FIGURES),
        "inputs_sha256": hashlib.sha256(msgspec.json.encode(workload, order="sorted")).hexdigest(),
    }


def _known_resets(workload: Workload) -> dict[str, Any] | None:
    resets = workload.resets
    if resets is None:
        return None
    return {"share": resets.share, "context_tokens": _length(resets.context), "append_tokens": resets.append}


def _length(length: float | Distribution | Durations | None) -> dict[str, float] | None:
    if length is None:
        return None
    if isinstance(length, int | float):
        return {"mean": float(length)}
    return {key: value for key, value in msgspec.structs.asdict(length).items() if value is not None}


def _tokens(means: Any) -> dict[str, float]:
    return {f"{key}_tokens": getattr(means, key) for key in ("context", "append", "generated")}


def summary(workload: Workload) -> dict[str, Any]:
    per_turn = per_turn_means(workload)
    return {
        "name": workload.name,
        "description": workload.description,
        "turns": mean_turns(workload),
        **_tokens(per_turn),
        "hit_share": per_turn.context / (per_turn.context + per_turn.append),
        "think_time_s": mean_of(workload.think_time),
        "means": workload.means,
        "max_length_tokens": workload.max_length,
    }


def list_view(rows: list[dict[str, Any]]) -> Iterator[Block]:
    """The table of workloads."""
    heads = (
        "name",
        "turns",
        "context\ntokens",
        "append\ntokens",
        "generated\ntokens",
        "hits\nby token",
        "think time\nmean",
    )
    cells = [
        (
            row["name"],
            f"{row['turns']:g}",
            *(f"{row[f'{key}_tokens']:,.0f}" for key in ("context", "append", "generated")),
            f"{100 * row['hit_share']:.1f} %",
            show(row["think_time_s"], "s") if row["think_time_s"] else "-",
        )
        for row in rows
    ]
    yield table("", heads, cells, "lrrrrrr", below=True, indent=0)
    yield GAP
    yield Paragraph("Lengths are means over all turns; context is cached before the append.", indent=0)
    yield Paragraph("dualplan workload show NAME has distributions, published figures, sources.", indent=0)


def view(workload: Workload, data: dict[str, Any]) -> Iterator[Block]:
    """One workload: its lengths, what follows from them, published and measured figures, assumptions and sources."""
    yield Paragraph(workload.name or "workload", "title")
    if workload.description:
        yield Paragraph(workload.description, indent=0, hanging=0)
    yield GAP
    spread = any(not isinstance(getattr(workload, key), int | float | None) for key in LENGTHS)
    heads = ("", "mean", *SHOWN, "max") if spread else ("", "mean")
    lengths = {name: getattr(workload, key) for key, name in LENGTHS.items()}
    omitted = ("first_context_tokens", "think_time_s")
    rows = [
        [name.replace("_tokens", " [tokens]").replace("_s", " [s]").replace("_", " "), *_figures(length)]
        for name, length in lengths.items()
        if length is not None and not (length == 0 and name in omitted)
    ]
    rows = [row + [""] * (len(heads) - len(row)) for row in rows]
    yield table("", heads, rows, "l" + "r" * (len(heads) - 1), below=True, indent=0)
    lines = ["~ is not stated: read off the curve through the stated quantiles and the mean."] if spread else []
    if workload.first_append is not None:
        lines.append("Context and append are those of later turns; first turns stand apart.")
    for line in lines:
        yield Paragraph(line, indent=0, hanging=0)
    yield GAP
    for line in _facts(workload, data):
        for part in line.split("\n"):
            yield Paragraph(part.strip(), indent=len(part) - len(part.lstrip()), hanging=0)
    for title in ("published", "measured"):
        if data[title]:
            rows = [[figure["name"], f"{figure['value']:,.10g}", figure["source"]] for figure in data[title]]
            yield from (GAP, Paragraph(title.capitalize(), indent=0))
            yield table("", ("", "", ""), rows, "lrl", below=True, flow="..w")
    if data["assumed"]:
        yield from (GAP, Paragraph("Assumed: " + ", ".join(data["assumed"]), indent=0, hanging=0))
    for title in ("notes", "sources"):
        if data[title]:
            yield from (GAP, Paragraph(title.capitalize(), indent=0), Bullets(tuple(data[title])))


def _figures(length: float | Distribution | Durations) -> list[str]:
    if isinstance(length, int | float):
        return [_number(length)]
    cells = [_number(length.mean)]
    for name in SHOWN:
        stated = getattr(length, name)
        value = quantile(length, QUANTILES[name]) if stated is None else stated
        cells.append(f"~{_below(value, length.max)}" if stated is None else _number(value))
    return [*cells, "" if length.max is None else _number(length.max)]


def _below(value: float, most: float | None) -> str:
    """Three digits, more where rounding would take the value above the largest."""
    digits = 3
    while most is not None and digits < 10 and float(f"{value:.{digits}g}") > most:
        digits += 1
    return significant(value, digits)


def _number(value: float) -> str:
    return f"{value:,.10g}"


def _facts(workload: Workload, data: dict[str, Any]) -> list[str]:
    per_turn = data["per_turn"]
    lines = []
    if workload.means == "mean_of_trajectory_means":
        lines.append("These are means of per-trajectory means: they do not multiply with turns.")
    lines.append(
        "Over all turns, which is what --set workload.append=N sets: "
        + ", ".join(f"{key} {per_turn[f'{key}_tokens']:,.1f}" for key in ("context", "append"))
        + f", generated {per_turn['generated_tokens']:,.1f}"
    )
    lines.append(f"Context is {data['hit_share']:.1%} of all prompt tokens.")
    if workload.hit_rate:
        kind = "Measured" if workload.measured else "Published"
        lines.append(f"{kind} hit rate {workload.hit_rate.value:.1%}, {workload.hit_rate.definition.replace('_', ' ')}")
    if workload.context_block:
        lines.append(f"Contexts are hits in whole blocks of {workload.context_block} tokens already.")
    else:
        lines.append(f"Hits are whole blocks of {workload.block} token{'s' if workload.block > 1 else ''}.")
    lines += _continuation(workload)
    if workload.max_length:
        lines.append(f"Trajectories are cut at {workload.max_length:,.0f} tokens.")
    if workload.recipe:
        lines.append(f"Trajectories are generated by the recipe {workload.recipe}.")
    if workload.correlation:
        pairs = ", ".join(f"{key.replace('_', '/')} {value:g}" for key, value in data["correlation"].items())
        lines.append(f"Correlations: {pairs}")
    return lines


def _continuation(workload: Workload) -> list[str]:
    """How a turn follows from the turn before, and what a plan counts with."""
    lines = []
    if (carry := workload.carry_over) is not None:
        more = f"plus {carry:.0%} of its output" if carry >= 0 else f"less {-carry:.0%} of the append"
        lines.append(f"A turn finds the prompt before it, {more}.")
    if (resets := workload.resets) is not None:
        lines.append(
            f"{resets.share:.1%} of later turns have a shorter prompt than the turn before:"
            f"\n  {mean_of(resets.context):,.0f} tokens of it are cached, {resets.append:,.0f} appended."
        )
    if workload.classes:
        lines.append(f"Plans count with {len(workload.classes)} turns measured on the trace.")
    return lines
