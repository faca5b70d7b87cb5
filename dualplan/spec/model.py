"""A model: its layers by kind, its parameters counted from matrix shapes, how weights and KV-cache are stored.

Read from a Hugging Face config.json: a file, a directory with config.json and perhaps hf_quant_config.json, or a
shipped name. A shipped file is such a config.json cut down to the facts that are used, with a ``dualplan`` object for
what it does not say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dualplan.errors import InputError, did_you_mean, refuse
from dualplan.spec.layers import Compressed, Experts, Latent, LayerGroup, attention_shapes, ffn_size
from dualplan.spec.load import find, read_text, shipped_dir, shipped_names
from dualplan.spec.model_config import Config, language_model, parse_json, refuse_other_models, refuse_unknown_attention
from dualplan.spec.model_families import Family, family_of
from dualplan.spec.model_layers import read_layers
from dualplan.spec.quantization import Quantization, read_quantization

KIND = "workloads/models"
KV_FORMATS = ("bf16", "fp16", "fp8", "fp8-tensor", "int8", "nvfp4", "mla-704")
"""Names of the KV-cache formats; dualplan.model.kv has their bytes."""

_MAX_CONFIG_BYTES = 4_000_000
_EXTRA_KEYS = ("name", "title", "kv_format", "published", "sources", "notes")


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters by part, counted from matrix shapes. ``other``: look-up tables besides the input embedding."""

    routed_experts: int
    shared_experts: int
    attention: int
    dense: int
    router: int
    embedding: int
    head: int
    other: int
    active: int
    total: int


class PartBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one parameter by part, block scales included; router, embedding and head stay in 16 bits."""

    routed_experts: float
    shared_experts: float
    attention: float
    dense: float
    plain: float = 2.0


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What the maker prints, to compare the counted parameters with."""

    total: float | None = None
    active: float | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder-only language model.

    ``layers``: alike layers together, in the order of their first member. ``weight_dtype``: the type its matrix
    products run in (bf16, fp8, fp4, int8), ``weight_storage`` how the checkpoint keeps them. ``kv_format``: the
    default format for planning and ``kv_origin`` where it comes from. ``lookup_parameters``: tables that cost memory
    and no FLOPs. ``rules``: what was decided in reading, for people.
    """

    name: str
    title: str
    model_type: str
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool
    layers: tuple[LayerGroup, ...]
    part_bytes: PartBytes
    weight_dtype: str
    weight_storage: str
    kv_format: str
    kv_origin: str
    max_context: int | None = None
    prediction_layers: int = 0
    lookup_parameters: int = 0
    lookup_matrix_parameters: int = 0
    published: Published = Published()
    rules: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def num_layers(self) -> int:
        """Layers of the decoder, without those for multi-token prediction."""
        return sum(group.count for group in self.layers)

    @property
    def experts(self) -> Experts | None:
        """The mixture of experts, None for a dense model."""
        return next((group.ffn for group in self.layers if isinstance(group.ffn, Experts)), None)

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return sum(group.count for group in self.layers if isinstance(group.ffn, Experts))

    @property
    def is_latent(self) -> bool:
        """Whether its cache is that of multi-head latent attention."""
        return any(isinstance(group.attention, Latent) for group in self.layers)


def count_parameters(model: Model) -> Parameters:
    """Parameters by part. Active: those a token multiplies with, the LM head included and the input embedding not."""
    parts = dict.fromkeys(("routed_experts", "shared_experts", "attention", "dense", "router"), 0)
    active_experts = 0
    for group in model.layers:
        size = ffn_size(group.ffn, model.hidden_size)
        parts["attention"] += group.count * sum(attention_shapes(group.attention, model.hidden_size).values())
        parts["dense"] += group.count * size.dense
        parts["shared_experts"] += group.count * size.shared
        parts["router"] += group.count * size.router
        if isinstance(group.ffn, Experts):
            parts["routed_experts"] += group.count * group.ffn.count * size.expert
            active_experts += group.count * group.ffn.top_k * size.expert
    table = model.hidden_size * model.vocab_size
    head = 0 if model.tied_embeddings else table
    parts["dense"] += model.lookup_matrix_parameters
    total = sum(parts.values()) + table + head + model.lookup_parameters
    active = sum(parts.values()) - parts["routed_experts"] + active_experts + table
    return Parameters(**parts, embedding=table, head=head, other=model.lookup_parameters, active=active, total=total)


# ---------------------------------------------------------------- reading


def shipped_models() -> list[str]:
    """Names of the shipped models."""
    return shipped_names(KIND, ".json")


def load_model(name: str, *, where: str = "--model", base: Path | None = None) -> Model:
    """A model by shipped name, or from a config.json or a directory that holds one. Raises InputError."""
    path = find(KIND, ".json", name, where=where, base=base)
    shipped = path.parent == shipped_dir(KIND) and "/" not in name
    label = path.stem if shipped else _label(path)
    if path.is_dir():
        path = path / "config.json"
        if not path.exists():
            raise InputError(f"{where}: {name}", "the directory holds no config.json")
    place = path.name if shipped else str(path)
    text = read_text(path, limit=_MAX_CONFIG_BYTES, where=place)
    beside = path.with_name(path.name.removesuffix("config.json") + "hf_quant_config.json")
    quantization = ""
    if path.name.endswith("config.json") and not path.name.endswith("hf_quant_config.json") and beside.is_file():
        quantization = read_text(beside, limit=_MAX_CONFIG_BYTES)
    return read_model(text, where=place, name=label, quantization=quantization, quantization_where=str(beside))


def _label(path: Path) -> str:
    if path.is_dir() or path.name == "config.json":
        return (path if path.is_dir() else path.absolute().parent).absolute().name
    return path.stem.removesuffix("config").rstrip("_-.") or path.stem


def read_model(
    text: str, *, where: str, name: str, quantization: str = "", quantization_where: str = "hf_quant_config.json"
) -> Model:
    """A model from the texts of a config.json and perhaps hf_quant_config.json. Raises InputError with every fault."""
    problems: list[str] = []
    rules: list[str] = []
    raw = Config(parse_json(text, where), where, problems)
    companion = None
    if quantization:
        companion = Config(parse_json(quantization, quantization_where), quantization_where, problems)
    config, family, layers = _decoder(raw, rules)
    stored = read_quantization(raw, config, companion)
    extra = _extra(raw)
    hidden, vocab = config.integer("hidden_size"), config.integer("vocab_size")
    count = sum(group.count for group in layers)
    tables, matrices = _per_layer_inputs(config, hidden, count)
    kv_format, kv_origin = _kv_format(extra, stored, layers)
    model = Model(
        name=extra.text("name", default=name),
        title=extra.text("title", default=extra.text("name", default=name)),
        model_type=config.text("model_type"),
        hidden_size=hidden,
        vocab_size=vocab,
        tied_embeddings=config.boolean("tie_word_embeddings", family.tied),
        layers=layers,
        part_bytes=_part_bytes(layers, hidden, stored),
        weight_dtype=stored.arithmetic,
        weight_storage=stored.weights,
        kv_format=kv_format,
        kv_origin=kv_origin,
        max_context=config.integer("max_position_embeddings", default=0, least=0) or None,
        prediction_layers=config.integer(
            "num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, least=0, most=100
        ),
        lookup_parameters=tables,
        lookup_matrix_parameters=matrices,
        published=_published(extra),
        rules=(*rules, *stored.rules, *_texts(extra, "notes")),
        sources=_texts(extra, "sources") or (f"config.json: {where}",),
    )
    refuse(problems)
    return model


def _decoder(raw: Config, rules: list[str]) -> tuple[Config, Family, tuple[LayerGroup, ...]]:
    """The decoder's part of a file, its family and its layers. Raises InputError if it has none that is known here."""
    if not raw.values.keys() & {"model_type", "num_hidden_layers", "hidden_size"}:
        raise InputError(raw.where, "is not the config.json of a model", "it has no model_type and no hidden_size")
    refuse_other_models(raw)
    config = language_model(raw.values, raw.where, raw.problems)
    refuse_other_models(config)
    family = family_of(config)
    refuse_unknown_attention(config)
    layers = read_layers(config, family, rules)
    if raw.problems:
        raise InputError("", problems=raw.problems)
    if any(isinstance(group.attention, Compressed) for group in layers):
        rules.append("DeepSeek-V4 entries have one layout of 584 B, whatever KV format is asked")
    return config, family, layers


def _extra(raw: Config) -> Config:
    extra = raw.mapping("dualplan")
    for key in extra.values:
        if key not in _EXTRA_KEYS:
            extra.refuse(key, "unknown key", did_you_mean(key, _EXTRA_KEYS) or "known: " + ", ".join(_EXTRA_KEYS))
    return extra


def _texts(extra: Config, key: str) -> tuple[str, ...]:
    return extra.texts(key) if extra.has(key) else ()


def _published(extra: Config) -> Published:
    values: dict[str, Any] = extra.mapping("published").values
    found = {
        key: float(value)
        for key, value in values.items()
        if key in ("total", "active") and isinstance(value, int | float)
    }
    return Published(**found)


def _kv_format(extra: Config, stored: Quantization, layers: tuple[LayerGroup, ...]) -> tuple[str, str]:
    """The default planning format and where it comes from."""
    name = extra.text("kv_format")
    if name and name not in KV_FORMATS:
        extra.refuse(
            "kv_format", f'"{name}" is not known', did_you_mean(name, KV_FORMATS) or "known: " + ", ".join(KV_FORMATS)
        )
    if name:
        return name, "default of the shipped model"
    if stored.kv_format:
        return stored.kv_format, stored.kv_origin
    if any(getattr(group.attention, "indexer", None) is not None for group in layers):
        return "fp8", "sparse attention is published with an fp8 cache"
    return "bf16" if stored.base_dtype == "fp32" else stored.base_dtype, "dtype of the model"


def _per_layer_inputs(config: Config, hidden: int, count: int) -> tuple[int, int]:
    """Gemma's inputs per layer: parameters of the look-up table, and of the matrices that use it."""
    width = config.integer("hidden_size_per_layer_input", default=0, least=0)
    if not width:
        return 0, 0
    table = config.integer("vocab_size_per_layer_input", "vocab_size") * count * width
    return table, hidden * count * width + 2 * count * hidden * width


def _part_bytes(layers: tuple[LayerGroup, ...], hidden: int, stored: Quantization) -> PartBytes:
    """Bytes of a parameter by part: the mean over the matrices of the first layer of each group."""
    sums = {part: [0.0, 0] for part in ("routed_experts", "shared_experts", "attention", "dense")}

    def add(part: str, count: int, parameters: int, module: str) -> None:
        sums[part][0] += count * parameters * stored.bytes_of(module)
        sums[part][1] += count * parameters

    for group in layers:
        prefix, size = f"model.layers.{group.first}", ffn_size(group.ffn, hidden)
        for matrix, parameters in attention_shapes(group.attention, hidden).items():
            add("attention", group.count, parameters, f"{prefix}.self_attn.{matrix}")
        add("dense", group.count, size.dense, f"{prefix}.mlp.gate_proj")
        add("shared_experts", group.count, size.shared, f"{prefix}.mlp.shared_experts.gate_proj")
        add("routed_experts", group.count, size.expert, f"{prefix}.mlp.experts.0.gate_proj")
    return PartBytes(**{part: total / parameters if parameters else 2.0 for part, (total, parameters) in sums.items()})
