"""Turns that wait: at storage NICs, for passes and for places, and the rates at which those under way fill a memory.

Times in seconds, rates in turns/s of a whole side. Functions are plain arithmetic on floats, arrays and symbols but for
the rates, which are found by search: they are plain numbers.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from dualplan.model.elementwise import maximum, minimum, root, where
from dualplan.model.latency import DecodeStep
from dualplan.model.passes import computing_time, pass_time_at_rate, place_taken, time_to_first_token
from dualplan.model.symbolic import value_of

Record = TypeVar("Record", bound=msgspec.Struct)

BELOW = 1 - 1e-9
"""Share of a rate at which something would never end, up to which is searched."""


class PassFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Turns through the prefill passes of ``engines`` engines, in the terms of dualplan.model.passes.

    ``read_service`` of a turn's read by one of ``nics`` storage NICs, ``read_variation`` its standard deviation over
    mean; ``reads``: whether anything is read. ``most``: turns that may be under way. ``handover``: from the first token
    to decode; ``latency`` of the store; ``chunks``: passes in which a turn is computed.
    """

    base: Any
    work: Any
    excess: Any
    engines: Any
    reads: bool
    read_service: Any
    read_variation: Any
    nics: Any
    most: Any
    handover: Any
    latency: Any = 0
    chunks: Any = 1


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Of a turn at a turn rate [s]: a pass, its read, fetch to first token, its place on a decode engine before it
    decodes.
    """

    passing: Any
    reading: Any
    first_token: Any
    place: Any


def waits(flow: PassFlow, turns_per_s: Any) -> Waits:
    """What a turn waits for at a turn rate."""
    passing = pass_time_at_rate(flow.base, flow.work, flow.excess, turns_per_s / flow.engines)
    reading: Any = 0.0
    if flow.reads:
        reading = flow.latency + read_response_at(
            flow.read_service, flow.read_variation, turns_per_s, flow.nics, flow.most
        )
    computing = computing_time(passing, flow.base, flow.work, flow.chunks)
    first = time_to_first_token(passing, reading, computing)
    place = place_taken(passing, first, flow.handover)
    return Waits(passing=passing, reading=reading, first_token=first, place=place)


def read_response(service: Any, variation: Any, turns_per_s: Any, reads: Any) -> Any:
    """Time from the issue of a read to its end [s] at a storage NIC with ``turns_per_s`` reads of ``service`` seconds,
    if at most ``reads`` turns are under way there. ``variation``: standard deviation over mean of a read's time.

    Schweitzer's approximation to a closed queue: a read finds the mean queue, less its own share of it; of the read
    that is served it finds (1 + variation^2)/2 left (Reiser, 1979; all of it in an exponential service).
    """
    busy = turns_per_s * service * (reads - 1) / reads
    return service * (1 - busy * (1 - variation * variation) / 2) / (1 - busy)


def read_response_at(service: Any, variation: Any, turns_per_s: Any, nics: Any, most: Any) -> Any:
    """As :func:`read_response`, of ``nics`` storage NICs at a turn rate of them all, ``most`` turns under way."""
    # a closed queue is never longer than all turns that may be under way
    return read_response(service, variation, minimum(turns_per_s / nics, 1 / service), maximum(most / nics, 1))


def prefill_filling_rate(flow: PassFlow, most: Any) -> Any:
    """Turn rate at which ``most`` turns are between fetch and first token; infinite where no rate gets there."""
    flow, most = plain(flow), value_of(most)
    return root(lambda rate: rate * waits(flow, rate).first_token - most, 0.0, _fastest(flow))


def decode_filling_rate(flow: PassFlow, step: DecodeStep, engines: Any, generated: Any, most: Any) -> Any:
    """Turn rate at which ``most`` turns have a place on one of the decode ``engines``, which each takes when it is
    fetched; infinite where no rate gets there.
    """
    flow, step = plain(flow), plain(step)
    engines, generated, most = value_of(engines), value_of(generated), value_of(most)

    def rate_of(batch: Any) -> Any:
        return minimum(engines * step.rate_at(batch, generated), _fastest(flow))

    def over(batch: Any) -> Any:
        return rate_of(batch) * waits(flow, rate_of(batch)).place + engines * batch - most

    # by the sequences that decode, for their rate is a formula; beyond the best batch no rate is higher
    best, high = step.best_batch(), most / engines
    high = high if best is None else minimum(high, best)
    batch = root(over, 0.0, high)
    return where(batch < math.inf, rate_of(minimum(batch, high)), math.inf)


def _fastest(flow: PassFlow) -> Any:
    """Turn rate at which passes would never end."""
    return flow.engines / flow.work * BELOW


def plain(record: Record) -> Record:
    """A record of numbers without their formulas."""
    return type(record)(**{name: value_of(getattr(record, name)) for name in record.__struct_fields__})
