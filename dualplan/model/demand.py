"""What a turn of a workload asks of a machine: bytes, tokens, GPU seconds, decode step times. Means over the turns
of the workload.

A prefix is reused in whole blocks: of a cached context of ``c`` tokens ``floor(c/block)*block`` are hits and the
tail is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from dualplan.messages import Message
from dualplan.model import collectives, kv
from dualplan.model.latency import DecodeStep, read_time
from dualplan.model.memory import kv_bytes_left, kv_share_per_gpu, weight_bytes_per_gpu
from dualplan.model.passes import excess_work
from dualplan.model.service_times import BASIC_COPIES, CHUNK_TOKENS, Intervals, ServiceTimes, pass_time, scale_up_gpus
from dualplan.model.traffic import Bytes
from dualplan.spec.choices import SINGLE_SIDED, Mode
from dualplan.spec.hardware import Hardware
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
    ``alike``: all turns are. ``chunks``: passes in which a turn is computed, by the quota and by tokens.
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
    chunks: float = 1.0


class TurnDemand(msgspec.Struct, frozen=True, kw_only=True):
    """Means of a turn. Tokens: ``context`` cached, ``hit_tokens`` of it reused, ``computed_tokens`` by prefill,
    ``generated``.

    ``prefill_gpu_seconds`` are summed over GPUs, ``prefill_latency`` is the pass of a turn alone [s]. The ``decode_``
    and ``expert_`` fields make the ``step`` of a decode engine. ``passes``: None where prefill is not taken to run in
    passes. ``interval``: how sure the times are. ``sequence_bytes``: KV of a whole sequence at the end of the turn [B].
    ``layer_block_bytes``: KV of 64 tokens and one layer [B].
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
    decode_experts: float = 0.0
    expert_share: float = 0.0
    expert_ranks: int = 1
    passes: Passes | None = None
    interval: Intervals | None = None

    @property
    def step(self) -> DecodeStep:
        """A decode step by the sequences of an engine."""
        return DecodeStep(
            base=self.decode_base,
            slope=self.decode_slope,
            quadratic=self.decode_quadratic,
            experts=self.decode_experts,
            share=self.expert_share,
            ranks=self.expert_ranks,
        )


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
    turns: MeanTurn,
    form: str,
    *,
    derive_collectives: bool,
) -> Bytes:
    """Bytes of a mean turn, in the kind of number of ``turns``: floats, or Fractions for exact ranges."""
    model, settings, number = scenario.model, scenario.settings, turns.number
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
    parallels: tuple[Parallel, Parallel],
    times: ServiceTimes,
    turns: MeanTurn,
    form: str,
    *,
    derive_collectives: bool,
) -> TurnDemand:
    """Everything a mean turn asks for. ``parallels``: of the prefill and the decode side; ``derive_collectives``:
    whether collectives are bytes of the turn, else a given load.
    """
    model, mix, (prefill, decode) = scenario.model, turns.mix, parallels
    amounts = turn_bytes(scenario, mode, prefill, decode, turns, form, derive_collectives=derive_collectives)
    work, attention, variation = prefill_work(scenario.workload, turns, times)
    steps, generated = times.slowed(mode), turns.mean(turn.generated for turn in mix)
    per_token = kv.kv_total_bytes_per_token(model, form)
    fixed = kv.state_bytes_per_sequence(model, form) + kv.window_tail_bytes_per_sequence(model, form)
    sequence = per_token * turns.mean(turn.context + turn.append + turn.generated for turn in mix) + fixed
    # engines that run passes together: those of an expert-parallel group; one for dense models
    group, computed = prefill.engine.dp, turns.mean(turns.computed)
    chunks = max(1.0, attention / times.quota, computed / (CHUNK_TOKENS * prefill.tp))
    base, passes = times.pass_base + times.experts_time(computed * group), None
    if base:
        snic = scenario.hardware.snic
        reading = read_time(amounts.read, snic.rate * snic.efficiency, snic.time_per_read) if amounts.read else 0.0
        moved = 0.0 if mode == "oracle" else (amounts.hit + amounts.miss) / times.handover_rate
        passes = Passes(
            base=base,
            excess=excess_work(group, variation),
            fullest=times.quota / attention if attention > 0 else None,
            handover=times.handover + moved,
            read_service=0.0 if mode == "oracle" else reading,
            read_variation=_read_variation(scenario.workload, turns, snic.time_per_read / reading)
            if amounts.read
            else 0.0,
            read_sides=_reading_sides(mode) if amounts.read else (),
            prefill_bytes=BASIC_COPIES * (amounts.hit + amounts.miss) if mode == "basic" else 0.0,
            held_bytes=sequence * _longer_generate_more(scenario.workload, mix),
            alike=variation == 0,
            chunks=chunks,
        )
    return TurnDemand(
        context=turns.mean(turn.context for turn in mix),
        hit_tokens=turns.mean(turns.hits),
        computed_tokens=computed,
        generated=generated,
        prompt_tokens=turns.mean(turn.context + turn.append for turn in mix),
        amounts=amounts,
        layers=model.num_layers,
        sequence_bytes=sequence,
        kv_per_gpu={
            "prefill": kv_share_per_gpu(model, prefill, form),
            "decode": kv_share_per_gpu(model, decode, form),
        },
        layer_block_bytes=per_token * kv.BLOCK_TOKENS / model.num_layers,
        prefill_gpu_seconds=work * prefill.tp,
        prefill_latency=pass_time(chunks * times.pass_base, times.experts_time(computed), work, times.pass_idle),
        decode_base=steps.decode_base,
        decode_slope=steps.decode_slope + decode_cache(turns, steps),
        decode_quadratic=steps.decode_quadratic,
        decode_experts=steps.decode_experts,
        expert_share=times.expert_share,
        expert_ranks=times.expert_ranks,
        kv_format=form,
        compute_origin=times.origin,
        passes=passes,
        interval=times.interval,
    )


def prefill_work(workload: Workload, turns: MeanTurn, times: ServiceTimes) -> tuple[Any, Any, Any]:
    """Prefill work of the turns of a workload on an engine: its mean, the part of attention [s], and its variation,
    standard deviation over mean. Scatter that the workload states beside its means is taken as independent.
    """
    pairs = list(zip(turns.computed, turns.hits, strict=True))
    works = [times.turn_work(new, old) for new, old in pairs]
    mean = turns.mean(works)
    variance = turns.mean((work - mean) ** 2 for work in works)
    if workload.per_turn is not None and not workload.classes:
        means = workload.per_turn
        by_append = (times.per_token + times.attention.value(means.context)) * means.append * means.append_scatter
        rise = times.per_context + times.attention.rise(means.context) * means.append
        by_context = rise * means.context * means.context_scatter
        variance += by_append**2 + by_context**2
    attention = turns.mean(times.attention_work(new, old) for new, old in pairs)
    return mean, attention, variance**0.5 / mean if mean else 0.0


def decode_cache(turns: MeanTurn, times: ServiceTimes) -> Any:
    """What the cache of a sequence adds to each decode step on average [s], at half of its generation: turns that
    generate more are there in more steps.
    """
    generated = sum(turn.weight * turn.generated for turn in turns.mix)
    if not generated:
        return turns.mean(times.decode_cache.value(decode_context(turn)) for turn in turns.mix)
    steps = (turn.generated * times.decode_cache.value(decode_context(turn)) for turn in turns.mix)
    return turns.mean(steps) / generated


def decode_context(turn: Turn) -> float:
    """Context of a turn at half of its generation [tokens]."""
    return turn.context + turn.append + turn.generated / 2


def _reading_sides(mode: Mode) -> tuple[SideName, ...]:
    """Sides whose storage NICs read."""
    if mode == "oracle":
        return ()
    return ("prefill",) if mode in SINGLE_SIDED else ("prefill", "decode")


def _read_variation(workload: Workload, turns: MeanTurn, fixed: float) -> float:
    """Standard deviation over mean of the time of a read, ``fixed`` of which does not depend on its size."""
    if workload.per_turn is not None and not workload.classes:
        return workload.per_turn.context_scatter * (1 - fixed)
    hits = turns.mean(turns.hits)
    return float(turns.mean((hit - hits) ** 2 for hit in turns.hits) ** 0.5 / hits * (1 - fixed)) if hits else 0.0


def _longer_generate_more(workload: Workload, mix: tuple[Turn, ...]) -> float:
    """Mean generated tokens with turns weighted by length, over the plain mean: by how much the sequences that decode
    at a moment are longer than those of all turns.
    """
    if workload.per_turn is not None and not workload.classes:
        means = workload.per_turn
        held = means.generated if means.generated_by_length is None else means.generated_by_length
        return held / means.generated if means.generated else 1.0
    lengths = [turn.context + turn.append + turn.generated for turn in mix]
    length = sum(turn.weight * size for turn, size in zip(mix, lengths, strict=True))
    generated = sum(turn.weight * turn.generated for turn in mix)
    both = sum(turn.weight * turn.generated * size for turn, size in zip(mix, lengths, strict=True))
    return both / (length * generated) if generated else 1.0
