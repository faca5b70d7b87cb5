"""``dualplan model list|show``: shipped models; KV-cache, parameters, memory and FLOPs of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit

if TYPE_CHECKING:
    from rich.console import Console

    from dualplan.spec.model import Model


def list_models(
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """List the shipped models: parameters, layers, default KV format and what it takes per token."""
    from dualplan.report.output import Output
    from dualplan.spec.model import load_model, shipped_models

    rows = [_summary(load_model(name, where="model list")) for name in shipped_models()]
    data = {"schema": "dualplan/model-list/1", "models": rows}
    emit(Output(data=data, rows=rows, text=lambda console: _print_list(console, rows)), fmt, as_json, file)


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE|DIR",
            help="A shipped name, a Hugging Face config.json, or a directory with one (and hf_quant_config.json).",
            show_default=False,
        ),
    ],
    kv_dtype: Annotated[
        str,
        typer.Option(
            metavar="bf16|fp16|fp8|fp8-tensor|int8|nvfp4|auto", help="KV-cache format; auto: the model's own."
        ),
    ] = "auto",
    context: Annotated[int, typer.Option(metavar="TOKENS", help="Cached context of a turn [tokens].")] = 32768,
    append: Annotated[int, typer.Option(metavar="TOKENS", help="Tokens that a turn appends.")] = 429,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Show one model: KV bytes by layer kind, parameters, weights, FLOPs of a turn, and the rules they come from.

    kv_bytes_per_token is what the cache grows by without the index keys of sparse attention; those stand beside it as
    kv_index_bytes_per_token, and kv_total_bytes_per_token is both. state_bytes_per_sequence does not grow: sliding
    windows and recurrent states.
    """
    from dualplan.report.output import Output
    from dualplan.spec.model import load_model

    check_tokens(context, "--context")
    check_tokens(append, "--append")
    model = load_model(name, where="model show")
    data = document(model, kv_dtype, context, append)
    kinds = data["layer_kinds"]
    emit(Output(data=data, rows=kinds, text=lambda console: _print_model(console, model, data)), fmt, as_json, file)


def check_tokens(count: int, flag: str) -> None:
    """Raise InputError unless ``count`` is a possible number of tokens."""
    from dualplan.errors import InputError

    if not 1 <= count <= 10**9:
        raise InputError(flag, f"{count} is out of range", "1 to 1,000,000,000 tokens")


# ---------------------------------------------------------------- machine view


def document(model: Model, kv_dtype: str, context: int, append: int) -> dict[str, Any]:
    """Everything about a model in a KV format, as JSON values in SI units."""
    import hashlib

    import msgspec

    from dualplan.model import compute, kv
    from dualplan.spec.model import count_parameters
    from dualplan.spec.parallel import stored_bytes

    form = kv.check_format(kv_dtype, model)
    origin = "the model's only layout" if kv.has_own_layout(model) else "given"
    origin = model.kv_origin if kv_dtype == "auto" else origin
    parameters = msgspec.structs.asdict(count_parameters(model))
    turn, step = compute.turn_flops(model, append, context), compute.decode_step_flops(model, context)
    return {
        "schema": "dualplan/model-show/1",
        "name": model.name,
        "title": model.title,
        "model_type": model.model_type,
        "layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "max_context_tokens": model.max_context,
        "kv_format": form,
        "kv_format_origin": origin,
        "kv_bytes_per_token": kv.kv_bytes_per_token(model, form),
        "kv_index_bytes_per_token": kv.kv_index_bytes_per_token(model, form),
        "kv_total_bytes_per_token": kv.kv_total_bytes_per_token(model, form),
        "state_bytes_per_sequence": kv.state_bytes_per_sequence(model, form),
        "window_tail_bytes_per_sequence": kv.window_tail_bytes_per_sequence(model, form),
        "parameters": {"total": parameters.pop("total"), "active": parameters.pop("active"), **parameters},
        "published_parameters": msgspec.structs.asdict(model.published),
        "weight_dtype": model.weight_dtype,
        "weight_storage": model.weight_storage,
        "weight_bytes": stored_bytes(model),
        "experts": _experts(model),
        "turn": {
            "context_tokens": context,
            "append_tokens": append,
            "hit_tokens": kv.hit_tokens(context),
            "hit_bytes": kv.hit_bytes(model, form, context),
            "gemm_flops": turn.gemm,
            "attention_flops": turn.attention,
            "flops": turn.total,
            "decode_step_flops": step.total,
            "decode_step_kv_read_bytes": kv.kv_read_bytes(model, form, context),
        },
        "layer_kinds": _layer_kinds(model, form, context),
        "rules": list(model.rules),
        "sources": list(model.sources),
        "inputs_sha256": hashlib.sha256(msgspec.json.encode(model, order="sorted")).hexdigest(),
    }


def _experts(model: Model) -> dict[str, Any] | None:
    experts = model.experts
    if experts is None:
        return None
    return {
        "count": experts.count,
        "per_token": experts.top_k,
        "layers": model.moe_layers,
        "intermediate_size": experts.intermediate,
        "shared_intermediate_size": experts.shared_intermediate,
        "groups": experts.groups,
        "groups_kept": experts.groups_kept,
    }


def _layer_kinds(model: Model, form: str, context: int) -> list[dict[str, Any]]:
    """One row per attention kind; layers of a kind with different feed-forward parts are counted together."""
    from dualplan.model import compute, kv
    from dualplan.spec.layers import kind_name

    rows: dict[object, dict[str, Any]] = {}
    for group in model.layers:
        if group.attention in rows:
            rows[group.attention]["layers"] += group.count
            continue
        cache = kv.layer_cache(group.attention, form)
        rows[group.attention] = {
            "kind": kind_name(group.attention),
            "layers": group.count,
            "kv_bytes_per_token_and_layer": cache.per_token,
            "kv_index_bytes_per_token_and_layer": cache.index_per_token,
            "state_bytes_per_sequence_and_layer": cache.per_sequence,
            "attention_flops_per_token_and_layer": compute.layer_attention_flops(group.attention, context),
        }
    return list(rows.values())


def _summary(model: Model) -> dict[str, Any]:
    from dualplan.model import kv
    from dualplan.spec.model import count_parameters
    from dualplan.spec.parallel import stored_bytes

    counted = count_parameters(model)
    return {
        "name": model.name,
        "title": model.title,
        "parameters_total": counted.total,
        "parameters_active": counted.active,
        "layers": model.num_layers,
        "experts": model.experts.count if model.experts else None,
        "weight_storage": model.weight_storage,
        "weight_bytes": stored_bytes(model),
        "kv_format": model.kv_format,
        "kv_total_bytes_per_token": kv.kv_total_bytes_per_token(model, model.kv_format),
        "state_bytes_per_sequence": kv.state_bytes_per_sequence(model, model.kv_format),
    }


# ---------------------------------------------------------------- human view


def _print_list(console: Console, rows: list[dict[str, Any]]) -> None:
    from textwrap import fill

    from dualplan.report.columns import print_table

    heads = ("name", "total\n1e9", "active\n1e9", "layers", "weights\nGB", "KV format", "KV\nB/token", "state\nMB/seq")
    cells = [
        (
            row["name"],
            f"{row['parameters_total'] / 1e9:,.1f}",
            f"{row['parameters_active'] / 1e9:,.1f}",
            str(row["layers"]),
            f"{row['weight_bytes'] / 1e9:,.0f}",
            row["kv_format"],
            f"{row['kv_total_bytes_per_token']:,.0f}",
            f"{row['state_bytes_per_sequence'] / 1e6:,.2f}" if row["state_bytes_per_sequence"] else "-",
        )
        for row in rows
    ]
    print_table(console, heads, cells, "lrrrrlrr")
    console.print()
    for line in (
        "Parameters are counted from matrix shapes; active ones without the input embedding.",
        "KV: in the default format, index keys included. dualplan model show NAME says more.",
    ):
        console.print(fill(line, console.width, subsequent_indent="  "))


def _print_model(console: Console, model: Model, data: dict[str, Any]) -> None:
    from rich.table import Table

    console.width = max(80, console.width)  # a narrower terminal wraps the rows; columns must not get lost
    console.print(f"{model.title} ({data['model_type']}), {data['layers']} layers", style="bold")
    index = data["kv_index_bytes_per_token"]
    parts = f" ({_bytes(data['kv_bytes_per_token'])} and {_bytes(index)} of index keys)" if index else ""
    total = data["kv_total_bytes_per_token"]
    console.print(
        f"KV-cache: {_bytes(total)} per token{parts}, format {data['kv_format']} ({data['kv_format_origin']})"
    )
    if data["state_bytes_per_sequence"]:
        console.print(f"state: {_bytes(data['state_bytes_per_sequence'])} per sequence, however long it is")
    if data["window_tail_bytes_per_sequence"]:
        console.print(f"windows beside the entries, in HBM only: {_bytes(data['window_tail_bytes_per_sequence'])}")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in _facts(data):
        table.add_row(name, text)
    console.print(table)
    console.print()
    console.print(_kinds_table(data))
    for title in ("rules", "sources"):
        if data[title]:
            console.print(f"\n{title}")
            console.print(_bullets(data[title]))


def _bullets(texts: list[str]) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    table.add_column(width=3, justify="right")
    table.add_column(overflow="fold")
    for text in texts:
        table.add_row("-", text)
    return table


def _facts(data: dict[str, Any]) -> list[tuple[str, str]]:
    from dualplan.units import show

    counted, turn = data["parameters"], data["turn"]
    published = [f"{k} {v / 1e9:g}e9" for k, v in data["published_parameters"].items() if v is not None]
    beside = f" (published: {', '.join(published)})" if published else ""
    facts = [
        ("parameters", f"{counted['total'] / 1e9:,.1f}e9, active {counted['active'] / 1e9:,.1f}e9{beside}"),
        ("weights", f"{show(data['weight_bytes'], 'B')} ({data['weight_storage']})"),
    ]
    if data["experts"]:
        moe = data["experts"]
        kept = f", {moe['groups_kept']} of {moe['groups']} groups" if moe["groups"] > 1 else ""
        facts.append(("experts", f"{moe['count']} in {moe['layers']} layers, {moe['per_token']} per token{kept}"))
    facts += [
        ("turn", f"{turn['append_tokens']:,} tokens on a context of {turn['context_tokens']:,}"),
        ("  to load", f"{show(turn['hit_bytes'], 'B')} (whole blocks of 64: {turn['hit_tokens']:,} tokens)"),
        (
            "  to compute",
            f"{turn['flops'] / 1e12:,.1f} TFLOP (matrices {turn['gemm_flops'] / 1e12:,.1f}, "
            f"attention {turn['attention_flops'] / 1e12:,.1f})",
        ),
        (
            "decode step",
            f"{turn['decode_step_flops'] / 1e9:,.1f} GFLOP, {show(turn['decode_step_kv_read_bytes'], 'B')} of KV read",
        ),
    ]
    return facts


def _kinds_table(data: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title, unit in (
        ("attention", ""),
        ("layers", ""),
        ("KV", "B/token"),
        ("index", "B/token"),
        ("state", "B/seq"),
        ("attention FLOPs", "MFLOP/token"),
    ):
        table.add_column(f"{title}\n{unit}", justify="left" if title == "attention" else "right", no_wrap=True)
    for row in data["layer_kinds"]:
        table.add_row(
            row["kind"],
            str(row["layers"]),
            f"{row['kv_bytes_per_token_and_layer']:,g}" if row["kv_bytes_per_token_and_layer"] else "-",
            f"{row['kv_index_bytes_per_token_and_layer']:,g}" if row["kv_index_bytes_per_token_and_layer"] else "-",
            f"{row['state_bytes_per_sequence_and_layer']:,.0f}" if row["state_bytes_per_sequence_and_layer"] else "-",
            f"{row['attention_flops_per_token_and_layer'] / 1e6:,.1f}",
        )
    return table


def _bytes(value: float) -> str:
    """Bytes in full, since they are compared with other tools: 48,068 B; large ones also in MB."""
    text = f"{value:,.0f} B" if value == int(value) else f"{value:,.2f} B"
    return f"{text} ({value / 1e6:,.1f} MB)" if value >= 1e6 else text
