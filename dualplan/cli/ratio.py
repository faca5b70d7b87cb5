"""``dualplan ratio``: GB of KV-cache to load for each PFLOP of compute, by model and context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.model import check_tokens
from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit

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


def ratio(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="Shipped names, files or directories; without: the paper's five."),
    ] = None,
    append: Annotated[int, typer.Option(metavar="TOKENS", help="Tokens that a turn appends.")] = 429,
    context: Annotated[
        str, typer.Option(metavar="N,N,...", help="Cached contexts [tokens], separated by commas.")
    ] = "16384,65536",
    kv_format: Annotated[
        str, typer.Option(metavar="paper|default|bf16|fp8|...", help="KV format; paper: the convention of its table.")
    ] = _PAPER,
    trend: Annotated[bool, typer.Option("--trend", help="Also show network bytes per FLOP by GPU generation.")] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """GB of KV-cache to load per PFLOP of compute: how storage-bound the turns of a model are."""
    from dualplan.report.output import Output

    check_tokens(append, "--append")
    published = _published()
    names = models or published["models"]
    contexts = _contexts(context)
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
        data["hardware_trend"] = _trend(published["hardware"])
        data["sources"].append(published["hardware_source"])
    emit(Output(data=data, rows=rows, text=lambda console: _print(console, data, contexts)), fmt, as_json, file)


def _published() -> dict[str, Any]:
    import json
    from importlib.resources import files

    data: dict[str, Any] = json.loads((files("dualplan.data") / "cache_compute_ratio.json").read_text("utf-8"))
    return data


def _contexts(text: str) -> list[int]:
    from dualplan.errors import InputError

    found = []
    for part in text.split(","):
        digits = part.strip()
        if not digits.isascii() or not digits.isdigit() or len(digits) > 12:
            raise InputError("--context", f'"{digits[:40]}" is not a number of tokens', "write for example 16384,65536")
        check_tokens(int(digits), "--context")
        found.append(int(digits))
    return list(dict.fromkeys(found))


def _rows(
    name: str, append: int, contexts: list[int], kv_format: str, published: dict[str, Any]
) -> list[dict[str, Any]]:
    from dualplan.model import compute, kv
    from dualplan.spec.model import load_model

    model = load_model(name, where="MODEL")
    paper = kv_format == _PAPER
    form = kv.paper_format(model) if paper else model.kv_format if kv_format == "default" else kv_format
    form = kv.check_format(form, model, "--kv-format")
    state = 0 if paper else kv.state_bytes_per_sequence(model, form)
    printed = {(row["model"], row["context"]): row["gb_per_pflop"] for row in published["rows"]}
    rows = []
    for tokens in contexts:
        size = kv.kv_total_bytes_per_token(model, form) * tokens + state
        flops = compute.turn_flops(model, append, tokens).total
        rows.append(
            {
                "model": model.name,
                "context": tokens,
                "append": append,
                "gb_per_pflop": compute.cache_compute_ratio(size, flops),
                "kv_format": form,
                "kv_bytes": size,
                "flops": flops,
                "published_gb_per_pflop": printed.get((model.name, tokens)) if append == published["append"] else None,
            }
        )
    return rows


def _trend(hardware: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bytes that the network moves and that HBM holds for each FLOP; falls are against the A100 in bf16."""
    base = hardware[0]["nic_bytes_per_s"] / hardware[0]["flop_per_s"]
    return [
        {
            **row,
            "nic_bytes_per_flop": row["nic_bytes_per_s"] / row["flop_per_s"],
            "fall_from_a100_bf16": base * row["flop_per_s"] / row["nic_bytes_per_s"],
        }
        for row in hardware
    ]


# ---------------------------------------------------------------- human view


def _print(console: Console, data: dict[str, Any], contexts: list[int]) -> None:
    from rich.table import Table

    from dualplan.units import significant

    rows = data["rows"]
    append = rows[0]["append"]
    console.print(f"GB of KV-cache to load per PFLOP of compute, {append:,} tokens appended", style="bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("model", no_wrap=True)
    table.add_column("KV")
    for tokens in contexts:
        table.add_column(f"{tokens:,}", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
    for start in range(0, len(rows), len(contexts)):
        group = rows[start : start + len(contexts)]
        cells = []
        for row in group:
            printed = row["published_gb_per_pflop"]
            cells += [significant(row["gb_per_pflop"]), f"(paper {printed:g})" if printed is not None else ""]
        table.add_row(group[0]["model"], group[0]["kv_format"], *cells)
    console.print(table)
    console.print()
    console.print(data["convention"]["text"])
    if "hardware_trend" in data:
        _print_trend(console, data["hardware_trend"])


def _print_trend(console: Console, trend: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from dualplan.units import significant

    console.print()
    console.print("Network bytes per FLOP by GPU generation", style="bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("GPU", "type", "TFLOPS", "NIC Gb/s", "HBM GB", "B per kFLOP", "fall from A100"):
        table.add_column(title, justify="left" if title in ("GPU", "type") else "right", no_wrap=True)
    for row in trend:
        table.add_row(
            row["gpu"],
            row["dtype"],
            f"{row['flop_per_s'] / 1e12:,.0f}",
            f"{row['nic_bytes_per_s'] * 8 / 1e9:.0f}",
            f"{row['hbm_bytes'] / 1e9:.0f}",
            significant(row["nic_bytes_per_flop"] * 1000),
            f"{significant(row['fall_from_a100_bf16'])}x",
        )
    console.print(table)
    console.print()
    console.print("The fall of the first three rows mixes number formats; the last two compare bf16 with bf16.")
