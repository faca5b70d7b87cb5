"""What a turn of a workload asks of a machine: bytes, tokens, GPU seconds, decode step times. Means over the turns
of the workload.

A prefix is reused in whole blocks: of a cached context of ``c`` tokens ``floor(c/block)*block`` are hits and the
tail is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from dualplan.messages import Message, message
from dualplan.model import collectives, compute, kv
from dualplan.model.latency import decode_base, decode_slope, prefill_gpu_seconds
from dualplan.model.memory import kv_bytes_left, kv_share_per_gpu, weight_bytes_per_gpu
from dualplan.model.traffic import Bytes
from dualplan.spec.choices import Mode
from dualplan.spec.hardware import Gpu, Hardware, source_of
from dualplan.spec.model import Model
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import Scenario, SideName
from dualplan.spec.workload import Turn, Workload, turn_mix


class SideMemory(msgspec.Struct, frozen=True, kw_only=True):
    """HBM of one GPU of a side [B]: what the engine may use, the weights, what is left for KV (negative: no fit)."""

    usable_bytes_per_gpu: float
    weight_bytes_per_gpu: float
    kv_bytes_per_gpu: float


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn goes through the synchronised passes of a prefill group (dualplan.model.passes). Times in s.

    ``base`` of a pass; ``excess`` of its slowest engine in mean turns; ``fullest``: most turns of an engine in a pass,
    by the attention quota (None: no limit). ``handover``: from the first token to decode. ``read_service``: time of a
    storage NIC for the read of a turn, ``read_variation``: its standard deviation over mean, ``read_sides``: where
    these are. ``prefill_bytes``: KV that a turn holds on its prefill engine from fetch to first token. ``held_bytes``:
    KV of the sequences that decode engines hold, over time the mean: long turns generate more and stay longer.
    ``alike``: all turns are.
    """

    base: float
    excess: float
    fullest: float | None
    handover: float
    read_service: float
    read_variation: float
    read_sides: tuple[SideName, ...]
    prefill_bytes: float
    held_bytes: float
    alike: bool


class TurnDemand(msgspec.Struct, frozen=True, kw_only=True):
    """Means of a turn. Tokens: ``context`` cached, ``hit_tokens`` of it reused, ``computed_tokens`` by prefill,
    ``generated``.

    ``prefill_gpu_seconds`` are summed over GPUs, ``prefill_latency`` is their duration on the GPUs that serve the turn
    [s]. A decode step of an engine takes ``decode_base + decode_slope * sequences + decode_quadratic * sequences**2``
    [s]. ``passes``: None where prefill is not taken to run in passes. ``sequence_bytes``: KV of a whole sequence at the
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
    kv_per_gpu: dict[str, float]
    layer_block_bytes: float
    prefill_gpu_seconds: float
    prefill_latency: float
    decode_base: float
    decode_slope: float
    kv_format: str
    compute_origin: Message
    decode_quadratic: float = 0.0
    passes: Passes | None = None


def side_memory(model: Model, parallel: Parallel, hardware: Hardware, redundant_experts: int = 0) -> SideMemory:
    """Weights and KV room of one GPU."""
    weights = weight_bytes_per_gpu(model, parallel, redundant_experts=redundant_experts)
    usable = usable_hbm(hardware)
    return SideMemory(usable_bytes_per_gpu=usable, weight_bytes_per_gpu=weights, kv_bytes_per_gpu=usable - weights)


def usable_hbm(hardware: Hardware) -> float:
    """HBM of one GPU for weights and KV [B]."""
    efficiency = hardware.efficiency
    left: float = kv_bytes_left(hardware.gpu.hbm_capacity, 0, share=efficiency.memory, reserve=efficiency.reserve)
    return left


def peak_flops(gpu: Gpu, weight_dtype: str) -> float:
    """Peak of a GPU for a weight type [FLOP/s]; a type that the GPU lacks is computed in the next wider one."""
    wider = {"fp4": ("fp4", "fp8", "bf16"), "fp8": ("fp8", "bf16"), "int8": ("int8", "fp8", "bf16")}
    peaks: list[float | None] = [getattr(gpu.flops, name) for name in wider.get(weight_dtype, ("bf16",))]
    return next(peak for peak in peaks if peak is not None)


def turn_hit_tokens(workload: Workload, turn: Turn) -> float:
    """Tokens of the cached context that whole blocks cover.

    A context that is given as one number is taken literally. Where it stands for many contexts, half a block is lost on
    average: ``(block - 1) / 2`` for remainders that are equally likely.
    """
    block = workload.block
    if isinstance(workload.context, float | int) and workload.per_turn is None and not workload.mix:
        return float(kv.hit_tokens(turn.context, block))
    return max(turn.context - (block - 1) / 2, 0.0)


class MeanTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of a workload and the means of what they hold [tokens]; ``number`` makes the kind of number."""

    mix: tuple[Turn, ...]
    hits: tuple[float, ...]
    number: Callable[[Any], Any]

    def mean(self, values: Iterable[Any]) -> Any:
        """Mean over turns, by weight."""
        return sum(self.number(turn.weight) * value for turn, value in zip(self.mix, values, strict=True))

    @property
    def computed(self) -> list[Any]:
        """Tokens that prefill computes in each turn: the append and the tail below a whole block."""
        return [
            self.number(turn.context) - self.number(hit) + self.number(turn.append)
            for turn, hit in zip(self.mix, self.hits, strict=True)
        ]


def mean_turn(workload: Workload, number: Callable[[Any], Any] = float) -> MeanTurn:
    """The turns of a workload with their hits."""
    mix = turn_mix(workload)
    return MeanTurn(mix=mix, hits=tuple(turn_hit_tokens(workload, turn) for turn in mix), number=number)


def cached_bytes(kv_bytes_per_token: Any, tokens: Any, state_bytes: Any) -> Any:
    """Cache of some tokens [B]: what grows with them, and the state of the sequence if there are any."""
    return kv_bytes_per_token * tokens + (state_bytes if tokens else 0)


def delivered(hit: Any, residency: Any, pool_share: Any) -> tuple[Any, Any, Any]:
    """Of the hit bytes: those that must reach the decode GPU, and of these what storage and what a pool delivers."""
    loaded = hit * (1 - residency)
    return loaded, loaded * (1 - pool_share), loaded * pool_share


def turn_bytes(
    scenario: Scenario,
    mode: Mode,
    prefill_parallel: Parallel,
    decode_parallel: Parallel,
    *,
    derive_collectives: bool,
    number: Callable[[Any], Any] = float,
) -> Bytes:
    """Bytes of a mean turn. ``number`` makes the kind of number: floats, or Fractions for exact ranges."""
    model, settings = scenario.model, scenario.settings
    form = kv.check_format(settings.kv_format or model.kv_format, model, "kv_format")
    turns = mean_turn(scenario.workload, number)
    per_token = number(kv.kv_total_bytes_per_token(model, form))
    state = number(kv.state_bytes_per_sequence(model, form))
    hit = turns.mean(cached_bytes(per_token, number(tokens), state) for tokens in turns.hits)
    computed = turns.mean(turns.computed)
    generated = turns.mean(number(turn.generated) for turn in turns.mix)
    prefill_collective = decode_collective = number(0)
    if derive_collectives:
        prefill_collective = computed * number(
            collectives.prefill_collective_bytes_per_token(model, prefill_parallel, scale_up_gpus(scenario.hardware))
        )
        decode_collective = generated * number(
            collectives.decode_collective_bytes_per_token(
                model, decode_parallel, scale_up_gpus(scenario.decode_hardware)
            )
        )
    pooled = number(settings.pool_share if mode == "dram-pool" else 0.0)
    loaded, read, from_pool = delivered(hit, number(settings.residency), pooled)
    return Bytes(
        hit=hit,
        read=read,
        pooled=from_pool,
        loaded=loaded,
        # what does not grow with the context is made anew by prefill, and again by decode until the turn ends
        miss=cached_bytes(per_token, computed, state),
        append=per_token * turns.mean(number(turn.append) for turn in turns.mix),
        generated=cached_bytes(per_token, generated, state),
        prefill_collective=prefill_collective,
        decode_collective=decode_collective,
    )


def turn_demand(
    scenario: Scenario,
    mode: Mode,
    prefill_parallel: Parallel,
    decode_parallel: Parallel,
    decode_memory: SideMemory,
    *,
    derive_collectives: bool,
) -> TurnDemand:
    """Everything a mean turn asks for. ``derive_collectives``: whether collectives are bytes of the turn, else a given
    load, which then adds no time to decode steps.
    """
    model, prefill = scenario.model, scenario.hardware
    amounts = turn_bytes(scenario, mode, prefill_parallel, decode_parallel, derive_collectives=derive_collectives)
    form = kv.check_format(scenario.settings.kv_format or model.kv_format, model, "kv_format")
    turns = mean_turn(scenario.workload)
    mix, computed = turns.mix, turns.computed
    peak = peak_flops(prefill.gpu, model.weight_dtype)
    seconds = prefill_gpu_seconds(
        compute.gemm_flops(model, turns.mean(computed)),
        # a new token sees the hits and on average half of the new tokens
        turns.mean(
            compute.attention_flops(model, new, old + new / 2) for new, old in zip(computed, turns.hits, strict=True)
        ),
        peak * prefill.efficiency.prefill,
        peak * prefill.efficiency.attention,
    )
    kv_per_gpu = {
        "prefill": kv_share_per_gpu(model, prefill_parallel, form),
        "decode": kv_share_per_gpu(model, decode_parallel, form),
    }
    generated = turns.mean(turn.generated for turn in mix)
    during = [turn.context + turn.append + turn.generated / 2 for turn in mix]
    base, slope = _decode_step(
        scenario,
        decode_memory,
        kv_per_gpu["decode"] * turns.mean(kv.kv_read_bytes(model, form, tokens) for tokens in during),
        turns.mean(compute.decode_step_flops(model, tokens).total for tokens in during) / decode_parallel.tp,
        amounts.decode_collective / generated if generated else 0.0,
    )
    per_token = kv.kv_total_bytes_per_token(model, form)
    fixed = kv.state_bytes_per_sequence(model, form) + kv.window_tail_bytes_per_sequence(model, form)
    return TurnDemand(
        context=turns.mean(turn.context for turn in mix),
        hit_tokens=turns.mean(turns.hits),
        computed_tokens=turns.mean(computed),
        generated=generated,
        prompt_tokens=turns.mean(turn.context + turn.append for turn in mix),
        amounts=amounts,
        layers=model.num_layers,
        sequence_bytes=per_token * turns.mean(turn.context + turn.append + turn.generated for turn in mix) + fixed,
        kv_per_gpu=kv_per_gpu,
        layer_block_bytes=per_token * kv.BLOCK_TOKENS / model.num_layers,
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


def _compute_origin(hardware: Hardware) -> Message:
    """What the compute times rest on."""
    source = source_of(hardware, "efficiency.prefill") or message("times.no_source")
    return message("times.roofline", share=hardware.efficiency.prefill, hardware=hardware.name, source=source)


def _decode_step(
    scenario: Scenario, memory: SideMemory, kv_bytes: float, flops: float, collective_bytes: float
) -> tuple[float, float]:
    """Base and slope of a decode step of an engine [s], from what one more sequence asks of each of its GPUs."""
    hardware, model = scenario.decode_hardware, scenario.model
    efficiency = hardware.efficiency
    hbm = hardware.gpu.hbm_bandwidth * efficiency.hbm
    rate = peak_flops(hardware.gpu, model.weight_dtype) * (efficiency.decode or efficiency.prefill)
    nic = hardware.cnic.count * hardware.cnic.rate * hardware.cnic.efficiency / hardware.gpu.count
    base = decode_base(memory.weight_bytes_per_gpu, hbm, model.num_layers, efficiency.decode_layer_time)
    return base, decode_slope(kv_bytes, hbm, flops, rate, collective_bytes, nic)
