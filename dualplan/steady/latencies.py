"""Times of a turn in a steady deployment: alone, and under the load of a turn rate."""

from __future__ import annotations

from typing import Any

from dualplan.model.demand import TurnDemand
from dualplan.model.elementwise import maximum, minimum
from dualplan.model.latency import effective_read_rate, read_time
from dualplan.model.memory import held_turns
from dualplan.model.passes import unloaded_time_to_first_token
from dualplan.model.queueing import PassFlow, waits
from dualplan.spec.choices import SINGLE_SIDED, Mode
from dualplan.spec.hardware import Hardware
from dualplan.steady.setup import Setup


def reachable_read_rate(hardware: Hardware, size: float) -> float:
    """Rate of one storage NIC serving reads of that size one after the other [B/s]; of no size, its reachable rate."""
    rate = hardware.snic.rate * hardware.snic.efficiency
    return effective_read_rate(size, rate, hardware.snic.time_per_read) if size else rate


def read_seconds(hardware: Hardware, size: Any) -> Any:
    """One read that meets no other [s]: latency of the store, time per read of the NIC, its bytes; 0 for no bytes.

    Floats or arrays.
    """
    snic, latency = hardware.snic, hardware.storage.latency if hardware.storage is not None else None
    return ((latency or 0.0) + read_time(size, snic.rate * snic.efficiency, snic.time_per_read)) * (size > 0)


def prefill_turns(setup: Setup, demand: TurnDemand) -> Any:
    """Turns whose whole KV the prefill engines can hold, where a turn holds it from its read on."""
    assert demand.passes is not None
    room = setup.prefill_memory.kv_bytes_per_gpu / demand.kv_per_gpu["prefill"]
    return setup.engines("prefill") * held_turns(room, demand.passes.prefill_bytes, alike=demand.passes.alike)


def decode_turns(setup: Setup, demand: TurnDemand) -> Any:
    """Turns that the decode engines can hold, where a turn takes its place when it is fetched."""
    assert demand.passes is not None
    room = setup.decode_memory.kv_bytes_per_gpu / demand.kv_per_gpu["decode"]
    return setup.engines("decode") * held_turns(room, demand.passes.held_bytes, alike=demand.passes.alike)


def pass_flow(setup: Setup, demand: TurnDemand) -> PassFlow:
    """The flow of turns through the prefill passes of a deployment."""
    passes = demand.passes
    assert passes is not None
    most: Any = 1
    if passes.read_sides:
        most = decode_turns(setup, demand)
        if passes.prefill_bytes:
            most = minimum(most, prefill_turns(setup, demand))
    sides = dict(setup.scenario.sides)
    stores = [sides[side].storage for side in passes.read_sides]
    return PassFlow(
        base=passes.base,
        work=demand.prefill_gpu_seconds / setup.prefill_parallel.tp,
        excess=passes.excess,
        engines=setup.engines("prefill"),
        reads=bool(passes.read_sides),
        read_service=passes.read_service,
        read_variation=passes.read_variation,
        nics=sum(setup.nodes(side) * sides[side].snic.count for side in passes.read_sides),
        most=most,
        handover=passes.handover,
        latency=max((store.latency or 0.0 for store in stores if store is not None), default=0.0),
        chunks=passes.chunks,
    )


def held_before(setup: Setup, demand: TurnDemand) -> tuple[float, float]:
    """Seconds that a turn holds decode HBM before it decodes, when read on the prefill and on the decode side [s].

    None when staged in host memory; from the first layer of prefill on with GPUDirect; with GPUDirect Storage a read
    on the decode side ends there too.
    """
    staging, computing = setup.scenario.settings.staging, demand.prefill_latency
    if staging == "host":
        return 0.0, 0.0
    reading = read_seconds(setup.scenario.decode_hardware, demand.amounts.read)
    return computing, computing + (reading if staging == "gds" else 0.0)


def decode_sequences(setup: Setup, demand: TurnDemand, turns_per_s: Any, share: Any) -> Any:
    """Sequences that hold decode HBM at a turn rate."""
    engines = setup.engines("decode")
    decoding = demand.step.batch_at_rate(turns_per_s / engines, demand.generated)
    if demand.passes is not None:
        return engines * decoding + turns_per_s * waits(pass_flow(setup, demand), turns_per_s).place
    held = held_before(setup, demand)
    return engines * decoding + turns_per_s * ((1 - share) * held[0] + share * held[1])


def decode_bytes(setup: Setup, demand: TurnDemand) -> Any:
    """Decode HBM that a sequence takes [B]; in passes with its share of what is left over between sequences."""
    if demand.passes is None:
        return demand.sequence_bytes
    room = setup.decode_memory.kv_bytes_per_gpu / demand.kv_per_gpu["decode"]
    return setup.engines("decode") * room / decode_turns(setup, demand)


def tpot_at(setup: Setup, demand: TurnDemand, turns_per_s: Any) -> Any:
    """Time per output token at a turn rate [s], at least that of a lone sequence; floats or arrays."""
    if not demand.generated:
        return demand.step.time(1)
    batch = demand.step.batch_at_rate(turns_per_s / setup.engines("decode"), demand.generated)
    return demand.step.time(maximum(batch, 1.0))


def unloaded_ttft(setup: Setup, demand: TurnDemand, mode: Mode, share: Any) -> Any:
    """Time to first token of a turn that meets no other [s], for a share of decode-side reads or an array of shares:
    half an idle pass, its read, then its pass.

    A turn is read by the faster side, under split-read by both at once.
    """
    size, scenario = demand.amounts.read, setup.scenario
    if mode == "oracle":
        reading: Any = 0.0
    elif mode == "split-read":
        parts = (
            read_seconds(scenario.hardware, (1 - share) * size),
            read_seconds(scenario.decode_hardware, share * size),
        )
        reading = maximum(*parts)
    elif mode in SINGLE_SIDED:
        reading = read_seconds(scenario.hardware, size)
    else:
        reading = minimum(*(read_seconds(hardware, size) for _, hardware in scenario.sides))
    return unloaded_time_to_first_token(setup.times.pass_idle, demand.prefill_latency, reading)
