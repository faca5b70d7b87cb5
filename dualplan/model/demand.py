"""What a turn of a workload asks of a machine: bytes, tokens, GPU seconds, decode step times. Means over the turns
of the workload.

A prefix is reused in whole blocks: of a cached context of ``c`` tokens ``floor(c/block)*block`` are hits and the
tail is computed again.
"""

from __future__ import annotations

import msgspec

from dualplan.model import collectives, compute, kv
from dualplan.model.latency import decode_base, decode_slope, prefill_gpu_seconds
from dualplan.model.memory import kv_bytes_left, kv_share_per_gpu, weight_bytes_per_gpu
from dualplan.model.traffic import Bytes
from dualplan.spec.choices import Mode
from dualplan.spec.hardware import Gpu, Hardware, source_of
from dualplan.spec.model import Model
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import Turn, Workload, turn_mix

LAYER_BLOCK_TOKENS = 64
"""Tokens of a layer block, the unit of host-GPU copies (DualPath, section 5)."""


class SideMemory(msgspec.Struct, frozen=True, kw_only=True):
    """HBM of one GPU of a side [B]: what the engine may use, the weights, what is left for KV (negative: no fit)."""

    usable_bytes_per_gpu: float
    weight_bytes_per_gpu: float
    kv_bytes_per_gpu: float


class TurnDemand(msgspec.Struct, frozen=True, kw_only=True):
    """Means of a turn. Tokens: ``context`` cached, ``hit_tokens`` of it reused, ``computed_tokens`` by prefill,
    ``generated``.

    ``prefill_gpu_seconds`` are summed over GPUs, ``prefill_latency`` is their duration on the GPUs that serve the
    turn [s].
    A decode step of an engine takes ``decode_base + decode_slope * sequences`` [s]. ``sequence_bytes``: KV of a
    whole sequence at the
    end of the turn [B]. ``layer_block_bytes``: KV of 64 tokens and one layer [B].
    """

    context: float
    hit_tokens: float
    computed_tokens: float
    generated: float
    prompt_tokens: float
    amounts: Bytes
    layers: int
    sequence_bytes: float
    kv_share: dict[str, float]
    layer_block_bytes: float
    prefill_gpu_seconds: float
    prefill_latency: float
    decode_base: float
    decode_slope: float
    kv_format: str
    compute_origin: str


def side_memory(model: Model, parallel: Parallel, hardware: Hardware) -> SideMemory:
    """Weights and KV room of one GPU."""
    efficiency = hardware.efficiency
    weights = weight_bytes_per_gpu(model, parallel)
    left = kv_bytes_left(hardware.gpu.hbm_capacity, weights, share=efficiency.memory, reserve=efficiency.reserve)
    return SideMemory(
        usable_bytes_per_gpu=hardware.gpu.hbm_capacity * efficiency.memory - efficiency.reserve,
        weight_bytes_per_gpu=weights,
        kv_bytes_per_gpu=left,
    )


def peak_flops(gpu: Gpu, weight_dtype: str) -> float:
    """Peak of a GPU for a weight type [FLOP/s]; a type that the GPU lacks is computed in the next wider one."""
    wider = {"fp4": ("fp4", "fp8", "bf16"), "fp8": ("fp8", "bf16"), "int8": ("int8", "fp8", "bf16")}
    peaks: list[float | None] = [getattr(gpu.flops, name) for name in wider.get(weight_dtype, ("bf16",))]
    return next(peak for peak in peaks if peak is not None)


def hit_tokens(workload: Workload, turn: Turn) -> float:
    """Tokens of the cached context that whole blocks cover.

    A context that is given as one number is taken literally. Where it stands for many contexts, half a block is lost
    on average:
    ``(block - 1) / 2`` for remainders that are equally likely.
    """
    block = workload.block
    if isinstance(workload.context, float | int) and workload.per_turn is None and not workload.mix:
        return float(turn.context // block * block)
    return max(turn.context - (block - 1) / 2, 0.0)


def turn_demand(
    scenario: Scenario,
    mode: Mode,
    prefill_parallel: Parallel,
    decode_parallel: Parallel,
    decode_memory: SideMemory,
    *,
    derive_collectives: bool,
) -> TurnDemand:
    """Everything a mean turn asks for. ``derive_collectives``: whether collectives are bytes of the turn (else a
    given load).
    """
    model, workload, settings = scenario.model, scenario.workload, scenario.settings
    prefill, decode = scenario.hardware, scenario.decode_hardware
    form = kv.check_format(settings.kv_format or model.kv_format, model, "kv_format")
    mix = turn_mix(workload)
    hits = [hit_tokens(workload, turn) for turn in mix]
    computed = [turn.context - hit + turn.append for turn, hit in zip(mix, hits, strict=True)]

    def mean(values: list[float]) -> float:
        return sum(turn.weight * value for turn, value in zip(mix, values, strict=True))

    per_token = kv.kv_total_bytes_per_token(model, form)
    state = kv.state_bytes_per_sequence(model, form)
    hit = mean([per_token * tokens + (state if tokens else 0) for tokens in hits])
    generated = mean([turn.generated for turn in mix])
    computed_tokens = mean(computed)
    sent = received = 0.0
    if derive_collectives:
        sent = computed_tokens * collectives.prefill_collective_bytes_per_token(
            model, prefill_parallel, scale_up_gpus(prefill)
        )
        received = generated * collectives.decode_collective_bytes_per_token(
            model, decode_parallel, scale_up_gpus(decode)
        )
    kv_share = {
        "prefill": kv_share_per_gpu(model, prefill_parallel, form),
        "decode": kv_share_per_gpu(model, decode_parallel, form),
    }
    pooled = settings.pool_share if mode == "dram-pool" else 0.0
    loaded = hit * (1 - settings.residency)
    amounts = Bytes(
        hit=hit,
        read=loaded * (1 - pooled),
        pooled=loaded * pooled,
        loaded=loaded,
        miss=per_token * computed_tokens,
        append=per_token * mean([turn.append for turn in mix]),
        # what does not grow with the context is written anew as it is at the end of the turn
        generated=per_token * generated + (state if generated else 0),
        prefill_collective=sent,
        decode_collective=received,
    )
    peak = peak_flops(prefill.gpu, model.weight_dtype)
    seconds = prefill_gpu_seconds(
        compute.gemm_flops(model, computed_tokens),
        # a new token sees the hits and on average half of the new tokens
        mean([compute.attention_flops(model, new, old + new / 2) for new, old in zip(computed, hits, strict=True)]),
        peak * prefill.efficiency.prefill,
        peak * prefill.efficiency.attention,
    )
    during = [turn.context + turn.append + turn.generated / 2 for turn in mix]
    base, slope = _decode_step(
        scenario,
        decode_parallel,
        decode_memory,
        kv_share["decode"] * mean([kv.kv_read_bytes(model, form, c) for c in during]),
        mean([compute.gemm_flops(model, 1) + compute.attention_flops(model, 1, c) for c in during]),
    )
    return TurnDemand(
        context=mean([turn.context for turn in mix]),
        hit_tokens=mean(hits),
        computed_tokens=computed_tokens,
        generated=generated,
        prompt_tokens=mean([turn.context + turn.append for turn in mix]),
        amounts=amounts,
        layers=model.num_layers,
        sequence_bytes=mean([per_token * (turn.context + turn.append + turn.generated) + state for turn in mix]),
        kv_share=kv_share,
        layer_block_bytes=per_token * LAYER_BLOCK_TOKENS / model.num_layers,
        prefill_gpu_seconds=seconds,
        prefill_latency=seconds / prefill_parallel.tp,
        decode_base=base,
        decode_slope=slope,
        kv_format=form,
        compute_origin=_compute_origin(prefill),
    )


def scale_up_gpus(hardware: Hardware) -> int:
    """GPUs that reach each other without a compute NIC: those of the node, or of its NVLink domain."""
    return max(hardware.gpu.count, hardware.nvlink.domain_gpus if hardware.nvlink else 1)


def _compute_origin(hardware: Hardware) -> str:
    """What the compute times rest on."""
    source = source_of(hardware, "efficiency.prefill") or "no source given"
    return f"roofline, prefill at {hardware.efficiency.prefill:g} of the peak of {hardware.name} ({source})"


def _decode_step(
    scenario: Scenario, parallel: Parallel, memory: SideMemory, kv_bytes: float, flops: float
) -> tuple[float, float]:
    """Base and slope of a decode step of an engine [s]; ``kv_bytes``: what one GPU of it reads for a sequence."""
    hardware, model = scenario.decode_hardware, scenario.model
    efficiency = hardware.efficiency
    hbm = hardware.gpu.hbm_bandwidth * efficiency.hbm
    rate = peak_flops(hardware.gpu, model.weight_dtype) * (efficiency.decode or efficiency.prefill)
    per_token = collectives.decode_collective_bytes_per_token(model, parallel, scale_up_gpus(hardware))
    nic = hardware.cnic.count * hardware.cnic.rate * hardware.cnic.efficiency / hardware.gpu.count
    base = decode_base(memory.weight_bytes_per_gpu, hbm, model.num_layers, efficiency.decode_layer_time)
    slope = decode_slope(kv_bytes, hbm, flops / parallel.tp, rate, per_token, nic)
    return base, slope
