"""The coefficients of the service times as the roofline gives them, with symbols for its counts and constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dualplan.messages import Message, message
from dualplan.model.demand import MeanTurn, decode_context
from dualplan.model.roofline import (
    NVLINK_SHARE,
    TILE_ROWS,
    Rank,
    decode_constants,
    decode_step,
    prefill_constants,
    prefill_pass,
    rank,
)
from dualplan.model.service_times import Curve, seen
from dualplan.plan.explain.notation import Symbols
from dualplan.spec.constants import Constants, roofline_constants
from dualplan.steady.setup import Setup


class Term(msgspec.Struct, frozen=True):
    """A quantity with its formula, its unit and where it comes from."""

    name: str
    value: Any
    unit: str
    lines: tuple[Message, ...]


_FIELDS = {
    "hbm": "hbm_rate",
    "weights": "dense_bytes",
    "experts": "expert_bytes",
    "dense_time": "dense_time",
    "expert_time": "expert_time",
    "head_time": "head_time",
    "reduces": "reduces",
    "reduce_bytes": "reduce_bytes",
    "exchanges": "exchanges",
    "decode_exchange_bytes": "decode_exchange_bytes",
    "prefill_exchange_bytes": "prefill_exchange_bytes",
    "nic": "gpu_cnic_rate",
}
"""Quantities of a side by fields of a Rank."""


def roofline_terms(symbols: Symbols, setup: Setup) -> Iterator[Term]:
    """What the roofline says of a deployment, whether its times are used or not: base, experts and work of a prefill
    pass, base, experts and sequence of a decode step.
    """
    scenario, turns, shipped = setup.scenario, setup.turns, roofline_constants()
    sides = (scenario.hardware, setup.prefill_parallel), (scenario.decode_hardware, setup.decode_parallel)
    redundant = setup.times.redundant_experts
    one, other = (rank(scenario.model, h, parallel.engine, setup.kv_format, redundant) for h, parallel in sides)
    own = (scenario.hardware.efficiency, scenario.decode_hardware.efficiency)
    works = list(zip(turns.computed, turns.hits, strict=True))
    attention = symbols.known(
        "attention_time", turns.mean(one.prefill_attention.times(n, seen(n, o)) for n, o in works)
    )
    first = _constants(symbols, prefill_constants(shipped, own[0]), shipped, "prefill")
    p = prefill_pass(_rank(symbols, one, "prefill", prefill_attention=Curve(attention)), first)
    cache = symbols.known("kv_read_bytes", _in_steps(turns, other.cache))
    scores = symbols.known("decode_attention_time", _in_steps(turns, other.decode_attention))
    second = _constants(symbols, decode_constants(shipped, own[1], other), shipped, "decode")
    d = decode_step(_rank(symbols, other, "decode", cache=Curve(cache), decode_attention=Curve(scores)), second)
    for name, value in (
        ("pass_launch", p.base),
        ("pass_experts", p.experts),
        ("per_request", p.per_request),
        ("per_token", p.per_token),
        ("per_token_hidden", p.per_token_hidden),
        ("per_token_link", p.per_token_link),
        ("pair_time", p.attention.value(0)),
        ("decode_step_base_s", d.base),
        ("decode_step_experts_s", d.experts),
        ("decode_step_per_sequence_s", d.slope + d.cache.value(0)),
    ):
        if value:
            yield Term(name, value, "s", (message(f"roofline.{name}"), message("roofline.counted")))


def _in_steps(turns: MeanTurn, curve: Curve) -> Any:
    """Mean of a curve over the decode steps of the turns."""
    steps = [turn.weight * (turn.generated or 1.0) for turn in turns.mix]
    return sum(w * curve.value(decode_context(turn)) for w, turn in zip(steps, turns.mix, strict=True)) / sum(steps)


def _rank(symbols: Symbols, r: Rank, side: str, **curves: Curve) -> Rank:
    """A rank with symbols; what is nothing stays 0. Links at what they reach, rows in half tiles."""

    def known(name: str, value: Any, of: str = side) -> Any:
        return symbols.known(name, value, of) if value else 0

    fields = {field: known(name, getattr(r, field)) for field, name in _FIELDS.items()}
    return msgspec.structs.replace(
        r,
        **fields,
        **curves,
        kernels=known("kernel_count", r.kernels, ""),
        layers=known("layers", r.layers, ""),
        vector_bytes=known("vector_bytes", r.vector_bytes, ""),
        link=known("link_rate", NVLINK_SHARE * r.link) / NVLINK_SHARE,
        expert_row_time=known("tile_time", TILE_ROWS / 2 * r.expert_row_time) / (TILE_ROWS / 2),
    )


def _constants(symbols: Symbols, c: Constants, shipped: Constants, side: str) -> Constants:
    """The constants as symbols, of a side where its profile changes them."""
    names = [name for name in c.__struct_fields__ if name != "queue_share"]
    values = {name: getattr(c, name) for name in names}
    usual = {name: getattr(shipped, name) for name in names}
    return msgspec.structs.replace(
        c,
        **{n: symbols.known(n, v, "" if v == usual[n] else side) if v not in (0, 1) else v for n, v in values.items()},
    )
