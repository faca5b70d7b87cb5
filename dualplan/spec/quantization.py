"""How a checkpoint stores its weights and its KV-cache, read from quantization_config and hf_quant_config.json.

Only bytes are wanted: what a parameter of each matrix takes with its scales, and the KV format that the checkpoint
asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from dualplan.spec.model_config import Config

DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "half": "fp16",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
}

# bytes of a parameter with its block scales
_FP8_BLOCK = 1 + 4 / 128**2  # one fp32 scale for 128 x 128 weights (DeepSeek-V3)
_MXFP4 = 0.5 + 1 / 32  # one e8m0 scale for 32 weights (OCP microscaling)
_NVFP4 = 0.5 + 1 / 16  # one e4m3 scale for 16 weights (NVIDIA)
_MXFP8 = 1 + 1 / 32
# modelopt algorithms: bytes of a parameter, type of the matrix products
_MODELOPT = {
    "FP8": (1.0, "fp8"),
    "FP8_PER_CHANNEL_PER_TOKEN": (1.0, "fp8"),
    "FP8_PB_WO": (_FP8_BLOCK, "fp8"),
    "FP8_PB_REAL": (_FP8_BLOCK, "fp8"),
    "NVFP4": (_NVFP4, "fp4"),
    "NVFP4_AWQ": (_NVFP4, "fp4"),
    "MXFP4": (_MXFP4, "fp4"),
    "MXFP8": (_MXFP8, "fp8"),
    "W4A16_AWQ": (0.5 + 2 / 128, "bf16"),
    "W4A8_AWQ": (0.5 + 2 / 128, "fp8"),
    "W8A8_SQ": (1.0, "int8"),
    "W8A16": (1.0, "bf16"),
}
_METHODS = (
    "fp8",
    "mxfp4",
    "compressed-tensors",
    "modelopt",
    "modelopt_fp4",
    "fbgemm_fp8",
    "gptq",
    "awq",
    "auto-round",
    "bitsandbytes",
)
_KV_NAMES = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8", "AUTO": "", "NONE": "", "BF16": "bf16", "FP16": "fp16"}


class Quantization(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a parameter by module name, the type of the matrix products, the KV format asked for (empty: none)."""

    base_dtype: str
    weights: str
    arithmetic: str
    kv_format: str
    kv_origin: str
    rules: tuple[str, ...]
    bytes_of: Callable[[str], float]


class Storage(NamedTuple):
    """Bytes of a parameter by module name, a label for people, the type of the matrix products."""

    bytes_of: Callable[[str], float]
    label: str
    arithmetic: str


def read_quantization(raw: Config, config: Config, companion: Config | None) -> Quantization:
    """The storage of weights and cache. ``raw``: the top level, ``companion``: hf_quant_config.json."""
    rules: list[str] = []
    base = _base_dtype(raw, config, rules)
    plain = 2.0  # fp32 checkpoints are served in 16 bits
    modelopt = companion.mapping("quantization") if companion is not None else None
    section = next(
        (level.mapping("quantization_config") for level in (config, raw) if level.has("quantization_config")), None
    )
    kv_format, kv_origin = _kv_format(raw, config, section, modelopt)

    def all_plain(module: str) -> float:
        return plain

    storage = Storage(all_plain, "bf16" if base == "fp32" else base, "bf16")
    if modelopt is not None and modelopt.text("quant_algo"):
        storage = _modelopt(modelopt, plain)
    elif section is not None and section.values:
        storage = _method(section, config, plain, rules)
    return Quantization(
        base_dtype=base,
        weights=storage.label,
        arithmetic=storage.arithmetic,
        kv_format=kv_format,
        kv_origin=kv_origin,
        rules=tuple(rules),
        bytes_of=storage.bytes_of,
    )


def _base_dtype(raw: Config, config: Config, rules: list[str]) -> str:
    name = config.text("torch_dtype", "dtype") or raw.text("torch_dtype", "dtype")
    if not name:
        rules.append("no dtype in the file: bf16 assumed")
        return "bf16"
    dtype = DTYPES.get(name.removeprefix("torch."))
    if dtype is None:
        config.refuse("dtype", f'"{name}" is not known', "bfloat16, float16 or float32")
        return "bf16"
    if dtype == "fp32":
        rules.append("float32 checkpoint: weights and KV counted in bf16, as serving engines load them")
    return dtype


def _kv_format(raw: Config, config: Config, section: Config | None, modelopt: Config | None) -> tuple[str, str]:
    """The KV format that a file asks for and the key that says so."""
    if modelopt is not None and modelopt.has("kv_cache_quant_algo"):
        return _named_kv(modelopt, "kv_cache_quant_algo"), "kv_cache_quant_algo of hf_quant_config.json"
    for level in (section, config, raw):
        if level is None:
            continue
        if level.has("kv_cache_quant_algo"):
            return _named_kv(level, "kv_cache_quant_algo"), "kv_cache_quant_algo"
        if isinstance(level.values.get("kv_cache_scheme"), dict):
            scheme = level.mapping("kv_cache_scheme")
            bits, kind = scheme.integer("num_bits", default=8), scheme.text("type", default="float")
            name = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4", (16, "float"): "bf16"}.get(
                (bits, kind), ""
            )
            if not name:
                level.refuse(
                    "kv_cache_scheme", f"{bits}-bit {kind} has no rule here", "8-bit float, 8-bit int or 4-bit float"
                )
            return name, "kv_cache_scheme"
        if level.has("kv_cache_scheme"):
            return _named_kv(level, "kv_cache_scheme"), "kv_cache_scheme"
    return "", ""


def _named_kv(level: Config, key: str) -> str:
    name = level.text(key).upper()
    if name not in _KV_NAMES:
        level.refuse(key, f'"{name}" is not known', "known: " + ", ".join(_KV_NAMES))
    return _KV_NAMES.get(name, "")


def _method(section: Config, config: Config, plain: float, rules: list[str]) -> Storage:
    method = section.text("quant_method", default="compressed-tensors" if section.has("config_groups") else "")
    if method in ("modelopt", "modelopt_fp4") and section.has("quant_algo"):
        return _modelopt(section, plain)
    if method == "compressed-tensors" or section.has("config_groups"):
        return _compressed_tensors(section, plain, rules)
    if method == "mxfp4":
        experts = _except(lambda m: _MXFP4 if _is_routed(m) else plain, _excluded(section), plain)
        return Storage(experts, "mxfp4 experts", "bf16")
    if method in ("fp8", "fbgemm_fp8"):
        size = _FP8_BLOCK if section.has("weight_block_size") else 1.0
        excluded = (*_excluded(section), "compressor")  # DeepSeek-V4 keeps its pooling projections in bf16
        fp4_experts = config.text("expert_dtype") == "fp4"
        label = "fp8, fp4 experts" if fp4_experts else "fp8"
        matrices = _except(lambda m: _MXFP4 if fp4_experts and _is_routed(m) else size, excluded, plain)
        return Storage(matrices, label, "fp8")
    if method in ("gptq", "awq", "auto-round", "bitsandbytes"):
        four = section.boolean("load_in_4bit", default=not section.boolean("load_in_8bit", default=False))
        bits = section.integer("bits", "w_bit", default=4 if four else 8, least=1, most=16)
        group = section.integer("group_size", "q_group_size", default=128, least=-1)
        scales = 2 / group if group > 0 else 0.0
        return Storage(_except(lambda m: bits / 8 + scales, _excluded(section), plain), f"{method} {bits}-bit", "bf16")
    section.refuse("quant_method", f'"{method}" has no rule here', "known: " + ", ".join(_METHODS))
    return Storage(lambda m: plain, "unknown", "bf16")


def _modelopt(section: Config, plain: float) -> Storage:
    algorithm = section.text("quant_algo").upper()
    if algorithm == "MIXED_PRECISION" and section.has("quantized_layers"):
        entries = section.mapping("quantized_layers").values
        found = {name: str(e.get("quant_algo", "")).upper() for name, e in entries.items() if isinstance(e, dict)}
        sizes = {name: _MODELOPT[kind][0] for name, kind in found.items() if kind in _MODELOPT}
        arithmetic = max((_MODELOPT[kind][1] for kind in found.values() if kind in _MODELOPT), default="bf16")
        return Storage(lambda m: next((s for n, s in sizes.items() if _matches(m, n)), plain), "mixed", arithmetic)
    if algorithm not in _MODELOPT:
        section.refuse("quant_algo", f'"{algorithm}" is not known', "known: " + ", ".join(_MODELOPT))
        return Storage(lambda m: plain, algorithm.lower(), "bf16")
    size, arithmetic = _MODELOPT[algorithm]
    return Storage(_except(lambda m: size, _excluded(section), plain), algorithm.lower(), arithmetic)


class _Group(NamedTuple):
    targets: tuple[str, ...]
    size: float
    label: str
    arithmetic: str


def _compressed_tensors(section: Config, plain: float, rules: list[str]) -> Storage:
    entries = section.mapping("config_groups").values
    groups = [
        _group(Config(entry, f"{section.where}: config_groups: {name}", section.problems))
        for name, entry in entries.items()
        if isinstance(entry, dict) and isinstance(entry.get("weights"), dict)
    ]
    patterns = _excluded(section)
    for pattern in (*patterns, *(target for group in groups for target in group.targets)):
        if pattern.startswith("re:") and not _safe_regex(pattern[3:]):
            rules.append(f'quantization pattern "{pattern[:60]}" is not understood and was left out')

    def bytes_of(module: str) -> float:
        fitting = (g.size for g in groups if any(t == "Linear" or _matches(module, t) for t in g.targets))
        return next(fitting, plain)

    label = ", ".join(dict.fromkeys(group.label for group in groups)) or "bf16"
    return Storage(_except(bytes_of, patterns, plain), label, groups[0].arithmetic if groups else "bf16")


def _group(entry: Config) -> _Group:
    weights = entry.mapping("weights")
    bits, kind = weights.integer("num_bits", default=8, most=16), weights.text("type", default="int")
    block = weights.integer("group_size", default=0, least=-1)
    scale = 1 if "uint8" in weights.text("scale_dtype") or (bits == 4 and kind == "float") else 2
    targets = entry.values.get("targets")
    names = tuple(t for t in targets if isinstance(t, str)) if isinstance(targets, list) else ("Linear",)
    arithmetic = "bf16"
    if isinstance(entry.values.get("input_activations"), dict):
        inputs = entry.mapping("input_activations")
        form = (inputs.integer("num_bits", default=16, most=16), inputs.text("type", default="int"))
        arithmetic = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "fp4"}.get(form, "bf16")
    return _Group(names, bits / 8 + (scale / block if block > 0 else 0.0), f"{bits}-bit {kind}", arithmetic)


def _excluded(section: Config) -> tuple[str, ...]:
    found: list[str] = []
    for key in ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "llm_int8_skip_modules"):
        value: Any = section.values.get(key)
        if isinstance(value, list):
            found += [name for name in value if isinstance(name, str)]
    return tuple(found)


def _except(bytes_of: Callable[[str], float], excluded: tuple[str, ...], plain: float) -> Callable[[str], float]:
    return lambda module: plain if any(_matches(module, pattern) for pattern in excluded) else bytes_of(module)


def _is_routed(module: str) -> bool:
    return ".experts." in module


def _matches(module: str, pattern: str) -> bool:
    """Whether a pattern names a module: a regular expression after ``re:``, a glob, or whole parts of the name."""
    if pattern.startswith("re:"):
        return _safe_regex(pattern[3:]) and re.match(pattern[3:], module) is not None
    if fnmatchcase(module, pattern) or fnmatchcase(module, pattern + ".*"):
        return True
    parts, wanted = module.split("."), pattern.split(".")
    return any(
        all(fnmatchcase(part, want) for part, want in zip(parts[start:], wanted, strict=False))
        for start in range(len(parts) - len(wanted) + 1)
    )


_SIMPLE_REGEX = re.compile(r"\^?(?:\.\*|\\d\+?|\[0-9\]\+?|\\\.|[\w.\-/]|\([\w.\-|?:\\]+\)\??)*\$?")


def _safe_regex(pattern: str) -> bool:
    """Text from a file is only run as a regular expression where it cannot take exponential time."""
    return len(pattern) <= 200 and pattern.count("*") <= 4 and _SIMPLE_REGEX.fullmatch(pattern) is not None
