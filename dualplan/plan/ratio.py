"""The cache-compute ratio of models, network bytes per FLOP of GPU generations, throughput against batch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import msgspec

from dualplan.model import compute, kv, service_times
from dualplan.model.service_times import ServiceTimes
from dualplan.spec.model import Model

BATCH_HARDWARE = "dualpath-hopper"
PUBLISHED_APPEND, PUBLISHED_CONTEXT = 300, 30_000
BATCHES = (1, 2, 3, 5, 10, 20)
"""Lengths [tokens] and batches of the published curve."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """KV-cache to load for the compute of a turn: ``gb_per_pflop`` with what it is made of [B], [FLOP]."""

    kv_format: str
    kv_bytes: float
    flops: float
    gb_per_pflop: float


def published_table() -> dict[str, Any]:
    """The paper's table and hardware facts, as in the data file."""
    text = (files("dualplan.data") / "cache_compute_ratio.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def cache_compute(model: Model, append: int, context: int, kv_format: str | None = None) -> Ratio:
    """GB of KV-cache to load for each PFLOP of a turn that appends ``append`` tokens to ``context`` cached ones.

    Without a format: the convention of the paper's table, which counts only what grows with the context.
    """
    form = kv.paper_format(model) if kv_format is None else kv_format
    form = kv.check_format(form, model, "--kv-format")
    state = 0 if kv_format is None else kv.state_bytes_per_sequence(model, form)
    size = kv.kv_total_bytes_per_token(model, form) * context + state
    flops = compute.turn_flops(model, append, context).total
    ratio = compute.cache_compute_ratio(size, flops)
    return Ratio(kv_format=form, kv_bytes=size, flops=flops, gb_per_pflop=ratio)


def hardware_trend(hardware: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bytes that the network moves and that HBM holds for each FLOP; falls are against the first row."""
    base = hardware[0]["nic_bytes_per_s"] / hardware[0]["flop_per_s"]
    return [
        {
            **row,
            "nic_bytes_per_flop": row["nic_bytes_per_s"] / row["flop_per_s"],
            "fall_from_a100_bf16": base * row["flop_per_s"] / row["nic_bytes_per_s"],
        }
        for row in hardware
    ]


def pass_time(times: ServiceTimes, batch: Any, append: Any, context: Any) -> Any:
    """Time of a prefill pass of an engine with so many equal requests [s], each of ``append`` new tokens [tokens].

    A base, and for each request a constant, its new tokens, its cached ones and their pairs; at least the floor, which
    is what the weights take to come from HBM.
    """
    return service_times.pass_time(
        times.pass_base, times.experts_time(batch * append), batch * times.turn_work(append, context), times.pass_idle
    )


def relative_throughput(times: ServiceTimes, batch: Any, append: Any, context: Any) -> Any:
    """Requests per second of passes of ``batch`` requests, against passes of one."""
    return batch * pass_time(times, 1, append, context) / pass_time(times, batch, append, context)


def batch_rows(models: Iterable[str], append: int, context: int) -> dict[str, Any]:
    """Relative throughput by model and batch, with the published curve where the lengths are its own.

    Keys: ``rows``, ``assumptions``, ``sources``. Service times are those of the fitted set, else of the roofline.
    """
    from dualplan.model.sources import from_roofline, from_set
    from dualplan.plan.published.points import points
    from dualplan.spec.fitted_sets import find_set
    from dualplan.spec.hardware import read_hardware
    from dualplan.spec.model import load_model
    from dualplan.spec.parallel import default_parallel
    from dualplan.spec.scenario import Scenario, Settings
    from dualplan.spec.workload import Workload

    hardware = read_hardware(BATCH_HARDWARE)
    curve = [point for point in points() if point.kind == "batch"]
    printed = {1: 1.0} | {getattr(point.given, "batch", 0): point.published for point in curve}
    own = (append, context) == (PUBLISHED_APPEND, PUBLISHED_CONTEXT)
    rows, assumptions = [], []
    for name in models:
        model = load_model(name, where="MODEL")
        fitted = find_set(model.name, hardware.name)
        if fitted is not None:
            times = from_set(fitted, model.num_layers)
        else:
            workload = Workload(turns=1, context=context, append=append, generated=1)
            scenario = Scenario(
                settings=Settings(), hardware=hardware, decode_hardware=hardware, model=model, workload=workload
            )
            usable = hardware.gpu.hbm_capacity * hardware.efficiency.memory - hardware.efficiency.reserve
            parallel = default_parallel(model, 4 * hardware.gpu.count, hardware.gpu.count, usable, "prefill")
            times = from_roofline(scenario, parallel, parallel)
        assumptions.append(f"{model.name}: {times.origin}")
        for batch in BATCHES:
            rows.append(
                {
                    "model": model.name,
                    "batch": batch,
                    "relative": relative_throughput(times, batch, append, context),
                    "pass_s": pass_time(times, batch, append, context),
                    "published": printed[batch] if own else None,
                }
            )
    note = "paper: its figure of throughput against batch, which names neither model nor GPU in what is held here"
    return {
        "rows": rows,
        "assumptions": [*assumptions, *([note] if own else [])],
        "sources": list(dict.fromkeys(point.source for point in curve)),
    }
