"""``dualplan ratio``: GB of KV-cache to load for a PFLOP, by model and context; two pictures of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.model import check_tokens
from dualplan.cli.options import (
    Format,
    FormatOption,
    JsonOption,
    OutputOption,
    check_picture,
    emit,
    write_bytes,
)

if TYPE_CHECKING:
    from rich.console import Console

_PAPER = "paper"
_CONVENTION = (
    "The paper's convention: 704 B per token and MLA layer (576 + 128; the paper does not state its format), other "
    "models in the cache format of its table; only what grows with the context; attention of the appended tokens over "
    "the cached context, MLA absorbed. It reproduces every published row within 6 %, those without MLA within 2 %."
)
_PHYSICAL = (
    "KV format {}: what grows with the context, index keys and the state of a sequence included; attention of the "
    "appended tokens over the cached context, MLA absorbed."
)
_APPEND, _CONTEXTS = 429, "16384,65536"
_BATCH_MODELS = ("ds-27b", "deepseek-v3.2", "qwen2.5-32b")


def ratio(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Shipped names, files or directories; without: the paper's five."),
    ] = None,
    append: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Tokens that a turn appends, 429 (300 with --batch).")
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Cached contexts [tokens], 16384,65536 (30000 with --batch)."),
    ] = None,
    kv_format: Annotated[
        str, typer.Option(metavar="paper|default|bf16|fp8|...", help="KV format; paper: the convention of its table.")
    ] = _PAPER,
    trend: Annotated[
        bool,
        typer.Option("--hardware-trend", "--trend", help="Also show network bytes per FLOP by GPU generation."),
    ] = False,
    batch: Annotated[
        bool, typer.Option("--batch", help="Instead: prefill throughput against batch, relative to batches of one.")
    ] = False,
    plot: Annotated[
        bool, typer.Option("--plot", help="With one of these two: a chart; --plot FILE.svg (.png, .pdf) draws it.")
    ] = False,
    plot_file: Annotated[Path | None, typer.Option("--plot-file", metavar="FILE", hidden=True)] = None,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """GB of KV-cache to load per PFLOP of compute: how storage-bound the turns of a model are."""
    from dualplan.errors import UsageError
    from dualplan.report.output import Output

    check_picture(plot_file)
    if (plot or plot_file) and not (trend or batch):
        raise UsageError("--plot belongs to --hardware-trend or --batch")
    if batch:
        if trend or kv_format != _PAPER:
            raise UsageError("--batch shows throughput alone: leave out --hardware-trend and --kv-format")
        _show_batch(models, append, context, plot, plot_file, (fmt, as_json, file))
        return
    from dualplan.plan.ratio import hardware_trend, published_table

    append = _APPEND if append is None else append
    check_tokens(append, "--append")
    published = published_table()
    names = models or published["models"]
    contexts = _contexts(_CONTEXTS if context is None else context)
    rows = [row for name in names for row in _rows(name, append, contexts, kv_format, published)]
    data: dict[str, Any] = {
        "schema": "dualplan/ratio/1",
        "convention": {
            "kv_format": kv_format,
            "text": _CONVENTION if kv_format == _PAPER else _PHYSICAL.format(kv_format),
            "tolerance": 0.06 if kv_format == _PAPER else None,
        },
        "rows": rows,
        "sources": [published["source"]],
    }
    if trend:
        data["hardware_trend"] = hardware_trend(published["hardware"])
        data["sources"].append(published["hardware_source"])
    if plot_file is not None:
        from dualplan.report.figures.pictures import hardware_trend as trend_picture

        write_bytes(plot_file, trend_picture(data["hardware_trend"], plot_file.suffix.lower()))
    bars = plot and plot_file is None
    emit(Output(data=data, rows=rows, text=lambda console: _print(console, data, contexts, bars)), fmt, as_json, file)


def _contexts(text: str) -> list[int]:
    from dualplan.units import wholes

    return list(wholes(text, "--context", "a number of tokens", most=10**9, hint="write for example 16384,65536"))


def _rows(
    name: str, append: int, contexts: list[int], kv_format: str, published: dict[str, Any]
) -> list[dict[str, Any]]:
    from dualplan.plan.ratio import cache_compute
    from dualplan.spec.model import load_model

    model = load_model(name, where="MODEL")
    form = None if kv_format == _PAPER else model.kv_format if kv_format == "default" else kv_format
    printed = {(row["model"], row["context"]): row["gb_per_pflop"] for row in published["rows"]}
    rows = []
    for tokens in contexts:
        found = cache_compute(model, append, tokens, form)
        rows.append(
            {
                "model": model.name,
                "context": tokens,
                "append": append,
                "gb_per_pflop": found.gb_per_pflop,
                "kv_format": found.kv_format,
                "kv_bytes": found.kv_bytes,
                "flops": found.flops,
                "published_gb_per_pflop": printed.get((model.name, tokens)) if append == published["append"] else None,
            }
        )
    return rows


def _show_batch(
    models: list[str] | None,
    append: int | None,
    context: str | None,
    plot: bool,
    plot_file: Path | None,
    where: tuple[Format, bool, Path | None],
) -> None:
    """Show throughput of prefill passes against their batch, beside the published curve."""
    from dualplan.report.output import Output

    data = _batch(models, append, context)
    if plot_file is not None:
        from dualplan.report.figures.pictures import batch_curve

        write_bytes(plot_file, batch_curve(data["rows"], plot_file.suffix.lower()))
    bars = plot and plot_file is None
    emit(Output(data=data, rows=data["rows"], text=lambda console: _print_batch(console, data, bars)), *where)


def _batch(models: list[str] | None, append: int | None, context: str | None) -> dict[str, Any]:
    from dualplan.errors import InputError
    from dualplan.plan.ratio import PUBLISHED_APPEND, PUBLISHED_CONTEXT, batch_rows

    append = PUBLISHED_APPEND if append is None else append
    check_tokens(append, "--append")
    contexts = [PUBLISHED_CONTEXT] if context is None else _contexts(context)
    if len(contexts) > 1:
        raise InputError("--context", "one context is needed with --batch")
    answer = batch_rows(models or _BATCH_MODELS, append, contexts[0])
    return {"schema": "dualplan/ratio-batch/1", "append": append, "context": contexts[0], **answer}


# ---------------------------------------------------------------- human view


def _print(console: Console, data: dict[str, Any], contexts: list[int], bars: bool) -> None:
    from dualplan.report.columns import print_table

    rows = data["rows"]
    append = rows[0]["append"]
    _wrapped(console, f"GB of KV-cache to load per PFLOP of compute, {append:,} tokens appended", "bold")
    groups = [rows[start : start + len(contexts)] for start in range(0, len(rows), len(contexts))]
    columns = [_with_printed(tokens, group) for tokens, group in zip(contexts, zip(*groups, strict=True), strict=True)]
    header = ["model", "KV", *(column[0] for column in columns)]
    cells = [
        [group[0]["model"], group[0]["kv_format"], *(column[number] for column in columns)]
        for number, group in enumerate(groups, start=1)
    ]
    print_table(console, header, cells, "l" * len(header))
    console.print()
    _wrapped(console, data["convention"]["text"])
    if "hardware_trend" in data:
        _print_trend(console, data["hardware_trend"], bars)


def _with_printed(tokens: int, rows: Sequence[dict[str, Any]]) -> list[str]:
    """The column of a context with its head: values, each with the published one beside it."""
    from dualplan.units import significant

    values = [f"{tokens:,}", *(significant(row["gb_per_pflop"]) for row in rows)]
    room = max(map(len, values))
    printed = [row["published_gb_per_pflop"] for row in rows]
    beside = ["", *("" if value is None else f"  (paper {value:g})" for value in printed)]
    return [f"{value:>{room}}{text}" for value, text in zip(values, beside, strict=True)]


def _print_trend(console: Console, trend: list[dict[str, Any]], bars: bool) -> None:
    from dualplan.report.columns import print_table
    from dualplan.units import significant

    console.print()
    console.print("Network bytes per FLOP by GPU generation", style="bold")
    cells = [
        (
            f"{row['gpu']} {row['dtype']}",
            f"{row['flop_per_s'] / 1e12:,.0f}",
            f"{row['nic_bytes_per_s'] * 8 / 1e9:.0f}",
            f"{row['hbm_bytes'] / 1e9:.0f}",
            significant(row["nic_bytes_per_flop"] * 1000),
            f"{significant(row['fall_from_a100_bf16'])}x",
        )
        for row in trend
    ]
    header = ("GPU", "TFLOPS", "NIC Gb/s", "HBM GB", "B/kFLOP", "fall from A100")
    print_table(console, header, cells, "lrrrrr")
    if bars:
        console.print()
        _print_bars(console, [(f"{row['gpu']} {row['dtype']}", 1000 * row["nic_bytes_per_flop"]) for row in trend])
    console.print()
    _wrapped(console, "The fall of the first three rows mixes number formats; the last two compare bf16 with bf16.")


def _print_batch(console: Console, data: dict[str, Any], bars: bool) -> None:
    from dualplan.report.columns import print_table

    about = "Requests/s of prefill passes against passes of one request"
    _wrapped(console, f"{about}, {data['append']:,} tokens appended to {data['context']:,}", "bold")
    names = list(dict.fromkeys(row["model"] for row in data["rows"]))
    table = []
    for batch in dict.fromkeys(row["batch"] for row in data["rows"]):
        group = [row for row in data["rows"] if row["batch"] == batch]
        printed = group[0]["published"]
        cells = [f"{row['relative']:.2f}" for row in group]
        table.append([str(batch), *cells, "-" if printed is None else f"{printed:.2f}"])
    print_table(console, ["batch", *names, "paper"], table, "r" * (len(names) + 2))
    if bars:
        for name in names:
            console.print()
            console.print(name, style="bold")
            group = [row for row in data["rows"] if row["model"] == name]
            _print_bars(console, [(str(row["batch"]), row["relative"]) for row in group])
    console.print()
    for line in data["assumptions"]:
        _wrapped(console, line)


def _wrapped(console: Console, text: str, style: str | None = None) -> None:
    from textwrap import fill

    wrapped = fill(text, max(console.width, 40), subsequent_indent="  ", break_on_hyphens=False)
    console.print(wrapped, style=style, soft_wrap=True)


def _print_bars(console: Console, values: list[tuple[str, float]]) -> None:
    """A bar for each value, the longest as wide as the terminal allows."""
    from dualplan.units import significant

    label = max(len(name) for name, _ in values)
    room = console.width - label - 12
    most = max(value for _, value in values)
    for name, value in values:
        console.print(f"{name:>{label}}  {'#' * round(room * value / most)} {significant(value)}", no_wrap=True)
