"""Times of one turn on otherwise idle hardware, and what decode batches make of them. Roofline with named efficiencies.

Times in seconds, sizes in bytes, rates in bytes or FLOPs per second. An *engine* is the group of GPUs that serves
one sequence
(one GPU under data-parallel attention, ``tp`` GPUs under tensor parallelism). Functions are plain arithmetic.
"""

from __future__ import annotations

from typing import Any

from dualplan.model.elementwise import maximum


def read_time(size: Any, rate: Any, time_per_read: Any) -> Any:
    """One read by one storage NIC [s]: a fixed time plus the bytes at the reachable rate."""
    return time_per_read + size / rate


def effective_read_rate(size: Any, rate: Any, time_per_read: Any) -> Any:
    """Rate of a storage NIC that serves such reads one after the other [B/s]."""
    return size / read_time(size, rate, time_per_read)


def prefill_gpu_seconds(gemm_flops: Any, attention_flops: Any, gemm_rate: Any, attention_rate: Any) -> Any:
    """GPU time of the prefill of a turn [GPU s]: GEMMs and attention, each at its reachable rate of one GPU."""
    return gemm_flops / gemm_rate + attention_flops / attention_rate


def decode_base(weight_bytes: Any, hbm_rate: Any, layers: Any, layer_time: Any) -> Any:
    """Time of a decode step that does not depend on the batch [s]: weights of the GPU from HBM, and a fixed time a
    layer.
    """
    return weight_bytes / hbm_rate + layers * layer_time


def decode_slope(
    kv_bytes: Any, hbm_rate: Any, flops: Any, flop_rate: Any, collective_bytes: Any, cnic_rate: Any
) -> Any:
    """Time that one more sequence adds to a decode step of its engine [s]: its KV from HBM, its FLOPs, its
    collectives.
    """
    return kv_bytes / hbm_rate + flops / flop_rate + collective_bytes / cnic_rate


def time_per_output_token(base: Any, slope: Any, batch: Any, quadratic: Any = 0) -> Any:
    """TPOT of an engine that decodes ``batch`` sequences [s]."""
    return base + slope * batch + quadratic * batch * batch if quadratic else base + slope * batch


def batch_at_tpot(base: Any, slope: Any, tpot: Any, quadratic: Any = 0) -> Any:
    """Sequences of an engine at which a step takes ``tpot``: the inverse of time_per_output_token."""
    if not quadratic:
        return (tpot - base) / slope
    return 2 * (tpot - base) / (slope + (slope * slope + 4 * quadratic * (tpot - base)) ** 0.5)


def turn_rate_at_batch(base: Any, slope: Any, batch: Any, generated: Any, quadratic: Any = 0) -> Any:
    """Turns/s of an engine that always decodes ``batch`` sequences: batch / (generated tokens * TPOT)."""
    return batch / (generated * time_per_output_token(base, slope, batch, quadratic))


def highest_turn_rate(base: Any, slope: Any, generated: Any, quadratic: Any = 0) -> Any:
    """Turns/s of an engine at the batch that serves most: the asymptote of ever larger ones, or sqrt(base/quadratic)
    sequences, beyond which steps lengthen faster than they grow.
    """
    return 1 / (generated * (slope + 2 * (quadratic * base) ** 0.5)) if quadratic else 1 / (generated * slope)


def batch_at_turn_rate(base: Any, slope: Any, turns_per_s: Any, generated: Any, quadratic: Any = 0) -> Any:
    """Sequences in decode at a turn rate of an engine (Little's law): the inverse of turn_rate_at_batch.

    Valid up to highest_turn_rate; of the two batches with that rate the smaller one.
    """
    if not quadratic:
        return turns_per_s * generated * base / (1 - turns_per_s * generated * slope)
    left = 1 - turns_per_s * generated * slope
    under_root = left * left - 4 * quadratic * base * (turns_per_s * generated) ** 2
    return 2 * base * turns_per_s * generated / (left + maximum(under_root, 0) ** 0.5)


def decoding_batch(base: Any, slope: Any, slots: Any, generated: Any, held_before: Any) -> Any:
    """Sequences that decode when ``slots`` hold one each, and a sequence takes its slot ``held_before`` seconds
    before it decodes.

    Little's law for both stages, ``slots = x·(generated·TPOT(b) + held_before)`` with ``b = x·generated·TPOT(b)``,
    is a quadratic in b;
    this is its positive root. Without early holding, b = slots.
    """
    linear = generated * base + held_before - slots * generated * slope
    constant = slots * generated * base
    if slope == 0:
        return constant / linear
    quadratic = generated * slope
    return (-linear + (linear * linear + 4 * quadratic * constant) ** 0.5) / (2 * quadratic)
