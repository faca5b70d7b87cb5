"""``dualplan ratio``: GB of KV-cache to load for a PFLOP, by model and context; two pictures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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

    check_picture(plot_file)
    if (plot or plot_file) and not (trend or batch):
        raise UsageError("--plot belongs to --hardware-trend or --batch")
    if batch:
        if trend or kv_format != _PAPER:
            raise UsageError("--batch shows throughput alone: leave out --hardware-trend and --kv-format")
        _show_batch(models, append, context, plot, plot_file, (fmt, as_json, file))
        return
    from dualplan.plan.ratio import hardware_trend, published_table
    from dualplan.report.ratio import output

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
    emit(output(data, contexts, bars=plot and plot_file is None), fmt, as_json, file)


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
    from dualplan.report.ratio import batch_output

    data = _batch(models, append, context)
    if plot_file is not None:
        from dualplan.report.figures.pictures import batch_curve

        write_bytes(plot_file, batch_curve(data["rows"], plot_file.suffix.lower()))
    emit(batch_output(data, bars=plot and plot_file is None), *where)


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
