"""``dualplan model list|show``: shipped models; KV-cache, parameters, memory and FLOPs of one model."""

from __future__ import annotations

from typing import Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit


def list_models(
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """List the shipped models: parameters, layers, default KV format and what it takes per token."""
    from dualplan.report.model import list_output
    from dualplan.spec.model import load_model, shipped_models

    emit(list_output([load_model(name, where="model list") for name in shipped_models()]), fmt, as_json, file)


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
    from dualplan.report.model import output
    from dualplan.spec.model import load_model

    check_tokens(context, "--context")
    check_tokens(append, "--append")
    emit(output(load_model(name, where="model show"), kv_dtype, context, append), fmt, as_json, file)


def check_tokens(count: int, flag: str) -> None:
    """Raise InputError unless ``count`` is a possible number of tokens."""
    from dualplan.errors import InputError

    if not 1 <= count <= 10**9:
        raise InputError(flag, f"{count} is out of range", "1 to 1,000,000,000 tokens")
