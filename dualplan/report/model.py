"""The shipped models, and one model with its KV-cache, parameters, memory and FLOPs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from dualplan.model import compute, kv
from dualplan.report.blocks import GAP, Block, Bullets, Facts, Paragraph, Text, table
from dualplan.report.output import Output
from dualplan.report.records import pick
from dualplan.spec.layers import kind_name
from dualplan.spec.model import Model, count_parameters
from dualplan.spec.parallel import stored_bytes
from dualplan.units import show

ABOUT = """
    name title model_type layers=num_layers hidden_size vocab_size max_context_tokens=max_context
"""
EXPERTS = """
    count=experts.count per_token=experts.top_k layers=moe_layers intermediate_size=experts.intermediate
    shared_intermediate_size=experts.shared_intermediate groups=experts.groups groups_kept=experts.groups_kept
"""


def list_output(models: list[Model]) -> Output:
    """The shipped models, one a row."""
    rows = [summary(model) for model in models]
    data = {"schema": "dualplan/model-list/1", "models": rows}
    return Output(data=data, rows=rows, view=lambda: list_view(rows))


def output(model: Model, kv_dtype: str, context: int, append: int) -> Output:
    """One model; csv, jsonl and md hold a row for each kind of attention."""
    data = document(model, kv_dtype, context, append)
    return Output(data=data, rows=data["layer_kinds"], view=lambda: view(data))


def document(model: Model, kv_dtype: str, context: int, append: int) -> dict[str, Any]:
    """Everything about a model in a KV format, as JSON values in SI units."""
    form = kv.check_format(kv_dtype, model)
    origin = "the model's only layout" if kv.has_own_layout(model) else "given"
    origin = model.kv_origin if kv_dtype == "auto" else origin
    parameters = msgspec.structs.asdict(count_parameters(model))
    turn, step = compute.turn_flops(model, append, context), compute.decode_step_flops(model, context)
    return {
        "schema": "dualplan/model-show/1",
        **pick(model, ABOUT),
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
        "experts": None if model.experts is None else pick(model, EXPERTS),
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


def _layer_kinds(model: Model, form: str, context: int) -> list[dict[str, Any]]:
    """One row per attention kind; layers of a kind with different feed-forward parts are counted together."""
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


def summary(model: Model) -> dict[str, Any]:
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


def list_view(rows: list[dict[str, Any]]) -> Iterator[Block]:
    """The table of models."""
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
    yield table("", heads, cells, "lrrrrlrr", below=True, indent=0)
    yield GAP
    yield Paragraph("Parameters are counted from matrix shapes; active ones without the input embedding.", indent=0)
    yield Paragraph("KV: in the default format, index keys included. dualplan model show NAME says more.", indent=0)


def view(data: dict[str, Any]) -> Iterator[Block]:
    """One model: KV-cache, parameters, a turn, the kinds of attention, rules and sources."""
    yield Paragraph(f"{data['title']} ({data['model_type']}), {data['layers']} layers", "title")
    index, total = data["kv_index_bytes_per_token"], data["kv_total_bytes_per_token"]
    parts = f" ({_bytes(data['kv_bytes_per_token'])} and {_bytes(index)} of index keys)" if index else ""
    form = f"format {data['kv_format']} ({data['kv_format_origin']})"
    yield Paragraph(f"KV-cache: {_bytes(total)} per token{parts}, {form}", indent=0, hanging=0)
    for key, text in (
        ("state_bytes_per_sequence", "state: {} per sequence, however long it is"),
        ("window_tail_bytes_per_sequence", "windows beside the entries, in HBM only: {}"),
    ):
        if data[key]:
            yield Paragraph(text.format(_bytes(data[key])), indent=0, hanging=0)
    yield Facts(tuple(_facts(data)), room=14, indent=0)
    yield GAP
    heads = ("attention\n", "layers\n", "KV\nB/token", "index\nB/token", "state\nB/seq", "attention FLOPs\nMFLOP/token")
    rows = [
        (
            row["kind"],
            str(row["layers"]),
            *(
                f"{row[key]:{form}}" if row[key] else "-"
                for key, form in (
                    ("kv_bytes_per_token_and_layer", ",g"),
                    ("kv_index_bytes_per_token_and_layer", ",g"),
                    ("state_bytes_per_sequence_and_layer", ",.0f"),
                )
            ),
            f"{row['attention_flops_per_token_and_layer'] / 1e6:,.1f}",
        )
        for row in data["layer_kinds"]
    ]
    yield table("", heads, rows, "lrrrrr", below=True, indent=0)
    for title in ("rules", "sources"):
        if data[title]:
            yield from (GAP, Paragraph(title, indent=0), Bullets(tuple(data[title])))


def _facts(data: dict[str, Any]) -> list[tuple[str, Text]]:
    counted, turn = data["parameters"], data["turn"]
    published = [f"{k} {v / 1e9:g}e9" for k, v in data["published_parameters"].items() if v is not None]
    beside = f" (published: {', '.join(published)})" if published else ""
    facts: list[tuple[str, Text]] = [
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


def _bytes(value: float) -> str:
    """Bytes in full, since they are compared with other tools: 48,068 B; large ones also in MB."""
    text = f"{value:,.0f} B" if value == int(value) else f"{value:,.2f} B"
    return f"{text} ({value / 1e6:,.1f} MB)" if value >= 1e6 else text
