"""How a checkpoint of a named precision stores each part of a model: one config.json serves all its precisions."""

from __future__ import annotations

import msgspec

from dualplan.errors import InputError, did_you_mean
from dualplan.spec.model import Model, PartBytes

BYTES = {
    "bf16": 2.0,
    "fp8": 1 + 4 / 128**2,  # one fp32 scale for 128 x 128 weights
    "nvfp4": 0.5 + 1 / 16,  # one e4m3 scale for 16 weights
    "mxfp4": 0.5 + 1 / 32,  # one e8m0 scale for 32 weights
    "int4": 0.5 + 2 / 32,  # one bf16 scale for 32 weights
}
"""Bytes of a parameter with its block scales."""


class Precision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Formats of the parts of a model, keys of BYTES. ``arithmetic``: what its matrix products run in."""

    attention: str
    dense: str
    shared_experts: str
    routed_experts: str
    arithmetic: str


def _whole(name: str, arithmetic: str) -> Precision:
    return Precision(attention=name, dense=name, shared_experts=name, routed_experts=name, arithmetic=arithmetic)


PRECISIONS = {
    "bf16": _whole("bf16", "bf16"),
    "fp8": _whole("fp8", "fp8"),
    "nvfp4": _whole("nvfp4", "fp4"),
    # NVIDIA's checkpoints of DeepSeek and Kimi models, and of Qwen3.5: attention is left as it was trained
    "nvfp4-ffn": Precision(
        attention="bf16", dense="nvfp4", shared_experts="nvfp4", routed_experts="nvfp4", arithmetic="fp4"
    ),
    "nvfp4-experts": Precision(
        attention="bf16", dense="bf16", shared_experts="bf16", routed_experts="nvfp4", arithmetic="fp4"
    ),
    # SGLang on GB200 (LMSYS, September 2025): attention in fp8, experts in NVFP4
    "nvfp4-fp8-attention": Precision(
        attention="fp8", dense="nvfp4", shared_experts="nvfp4", routed_experts="nvfp4", arithmetic="fp4"
    ),
    "fp8-bf16-attention": Precision(
        attention="bf16", dense="fp8", shared_experts="fp8", routed_experts="fp8", arithmetic="fp8"
    ),
    "mxfp4-experts": Precision(
        attention="bf16", dense="bf16", shared_experts="bf16", routed_experts="mxfp4", arithmetic="bf16"
    ),
    "int4-experts": Precision(
        attention="bf16", dense="bf16", shared_experts="bf16", routed_experts="int4", arithmetic="bf16"
    ),
    "int4": _whole("int4", "bf16"),
}
"""Precisions by name."""


def with_precision(model: Model, name: str, *, where: str = "precision") -> Model:
    """The same model stored in another precision. Raises InputError for a name that is not known."""
    precision = PRECISIONS.get(name)
    if precision is None:
        hint = did_you_mean(name, PRECISIONS) or "known: " + ", ".join(PRECISIONS)
        raise InputError(where, f'"{name}" is not a precision of weights', hint)
    parts = {
        part: BYTES[getattr(precision, part)] for part in ("routed_experts", "shared_experts", "attention", "dense")
    }
    return msgspec.structs.replace(
        model, part_bytes=PartBytes(**parts), weight_dtype=precision.arithmetic, weight_storage=name
    )
