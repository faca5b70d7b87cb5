"""``dualplan workload list|show``: the shipped workloads, one with its lengths, published figures and sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit

if TYPE_CHECKING:
    from rich.console import Console

    from dualplan.spec.distribution import Distribution, Durations
    from dualplan.spec.workload import Workload

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


def list_workloads(
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """List the shipped workloads: turns, lengths per turn, hit rate and kind of means."""
    from dualplan.report.output import Output
    from dualplan.spec.load import shipped_names
    from dualplan.spec.workload import KIND, load_workload

    rows = [_summary(load_workload(name, where="workload list")) for name in shipped_names(KIND, ".yaml")]
    data = {"schema": "dualplan/workload-list/1", "workloads": rows}
    emit(Output(data=data, rows=rows, text=lambda console: _print_list(console, rows)), fmt, as_json, file)


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A shipped workload, or a YAML file.", show_default=False)
    ],
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Show one workload: lengths and their quantiles, means per turn, published or measured figures, what is assumed,
    sources.
    """
    from pathlib import Path

    from dualplan.errors import InputError
    from dualplan.report.output import Output
    from dualplan.spec.workload import load_workload

    if Path(name).suffix in (".jsonl", ".json", ".csv", ".gz", ".zst"):
        raise InputError("workload show", f'"{name}" is not a workload file', f"dualplan trace inspect {name}")
    workload = load_workload(name, where="workload show")
    data = document(workload)
    rows = [{"length": key, **value} for key in LENGTHS.values() if isinstance(value := data[key], dict)]
    emit(Output(data=data, rows=rows, text=lambda console: _print(console, workload, data)), fmt, as_json, file)


# ---------------------------------------------------------------- machine view


def document(workload: Workload) -> dict[str, Any]:
    """Everything about a workload as JSON values: tokens, seconds, shares."""
    import hashlib

    import msgspec

    from dualplan.spec.workload import per_turn_means, turn_mix

    per_turn = per_turn_means(workload)
    known = msgspec.to_builtins(workload)
    return {
        "schema": "dualplan/workload-show/1",
        "name": workload.name,
        "description": workload.description,
        "means": workload.means,
        **{name: _length(getattr(workload, key)) for key, name in LENGTHS.items()},
        "per_turn": _tokens(per_turn),
        "hit_share": per_turn.context / (per_turn.context + per_turn.append),
        "representative_turns": len(turn_mix(workload)),
        "correlation": known["correlation"],
        "carry_over": workload.carry_over,
        "resets": _known_resets(workload),
        "recipe": workload.recipe,
        "max_length_tokens": workload.max_length,
        "block_tokens": workload.block,
        "context_block_tokens": workload.context_block,
        "hit_rate": known["hit_rate"],
        "published": [dict(figure) for figure in known["published"]],
        "measured": [dict(figure) for figure in known["measured"]],
        "assumed": list(workload.assumed),
        "notes": list(workload.notes),
        "sources": list(workload.sources),
        "inputs_sha256": hashlib.sha256(msgspec.json.encode(workload, order="sorted")).hexdigest(),
    }


def _known_resets(workload: Workload) -> dict[str, Any] | None:
    resets = workload.resets
    if resets is None:
        return None
    return {"share": resets.share, "context_tokens": _length(resets.context), "append_tokens": resets.append}


def _length(length: float | Distribution | Durations | None) -> dict[str, float] | None:
    import msgspec

    if length is None:
        return None
    if isinstance(length, int | float):
        return {"mean": float(length)}
    return {key: value for key, value in msgspec.structs.asdict(length).items() if value is not None}


def _tokens(means: Any) -> dict[str, float]:
    return {f"{key}_tokens": getattr(means, key) for key in ("context", "append", "generated")}


def _summary(workload: Workload) -> dict[str, Any]:
    from dualplan.spec.workload import mean_of, mean_turns, per_turn_means

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


# ---------------------------------------------------------------- human view


def _print_list(console: Console, rows: list[dict[str, Any]]) -> None:
    from textwrap import fill

    from dualplan.report.columns import print_table
    from dualplan.units import show as quantity

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
            quantity(row["think_time_s"], "s") if row["think_time_s"] else "-",
        )
        for row in rows
    ]
    print_table(console, heads, cells, "lrrrrrr")
    console.print()
    for line in (
        "Lengths are means over all turns; context is cached before the append.",
        "dualplan workload show NAME has distributions, published figures, sources.",
    ):
        console.print(fill(line, console.width, subsequent_indent="  "))


def _print(console: Console, workload: Workload, data: dict[str, Any]) -> None:
    from rich.table import Table

    console.print(workload.name or "workload", style="bold")
    if workload.description:
        console.print(workload.description)
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    spread = any(not isinstance(getattr(workload, key), int | float | None) for key in LENGTHS)
    for title in ("", "mean", *SHOWN, "max") if spread else ("", "mean"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for key, name in LENGTHS.items():
        length = getattr(workload, key)
        if length is None or (length == 0 and key in ("first_context", "think_time")):
            continue
        table.add_row(name.replace("_tokens", " [tokens]").replace("_s", " [s]").replace("_", " "), *_figures(length))
    console.print(table)
    if spread:
        console.print("~ is not stated: read off the curve through the stated quantiles and the mean.")
    if workload.first_append is not None:
        console.print("Context and append are those of later turns; first turns stand apart.")
    console.print()
    for line in _facts(workload, data):
        console.print(line)
    _print_lists(console, data)


def _figures(length: float | Distribution | Durations) -> list[str]:
    from dualplan.spec.distribution import QUANTILES, quantile

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
    from dualplan.units import significant

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
    from dualplan.spec.workload import mean_of

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


def _print_lists(console: Console, data: dict[str, Any]) -> None:
    from rich.table import Table

    for title in ("published", "measured"):
        if not data[title]:
            continue
        console.print(f"\n{title.capitalize()}")
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column()
        for figure in data[title]:
            table.add_row("  " + figure["name"], f"{figure['value']:,.10g}", figure["source"])
        console.print(table)
    if data["assumed"]:
        console.print("\nAssumed: " + ", ".join(data["assumed"]))
    for title in ("notes", "sources"):
        if data[title]:
            console.print(f"\n{title.capitalize()}")
            bullets = Table.grid(padding=(0, 1))
            bullets.add_column(width=3, justify="right")
            bullets.add_column(overflow="fold")
            for text in data[title]:
                bullets.add_row("-", text)
            console.print(bullets)
