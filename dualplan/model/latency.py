"""Times of one turn on otherwise idle hardware, and what decode batches make of a step.

Times in seconds, sizes in bytes, rates in bytes or FLOPs per second. An *engine* is the group of GPUs that serves
one sequence
(one GPU under data-parallel attention, ``tp`` GPUs under tensor parallelism). Functions are plain arithmetic.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dualplan.model.elementwise import maximum, root
from dualplan.model.symbolic import value_of


def read_time(size: Any, rate: Any, time_per_read: Any) -> Any:
    """One read by one storage NIC [s]: a fixed time plus the bytes at the reachable rate."""
    return time_per_read + size / rate


def effective_read_rate(size: Any, rate: Any, time_per_read: Any) -> Any:
    """Rate of a storage NIC that serves such reads one after the other [B/s]."""
    return size / read_time(size, rate, time_per_read)


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


def touched(share: Any, tokens: Any) -> Any:
    """Share of the experts of a layer that ``tokens`` tokens touch, each of them a random ``share``."""
    return 1 - (1 - share) ** tokens


class DecodeStep(msgspec.Struct, frozen=True, kw_only=True):
    """Time of a decode step of an engine by its sequences n [s]: ``base + slope * n + quadratic * n^2``, and
    ``experts`` times the share of them that ``n * ranks`` tokens touch, each of them ``share``.

    Without experts the inverses are formulas; with them they are found by search, for a ``quadratic`` of 0. With both
    all experts are taken as touched.
    """

    base: Any
    slope: Any
    quadratic: Any = 0
    experts: Any = 0
    share: Any = 0
    ranks: Any = 1

    def time(self, batch: Any) -> Any:
        """A step with ``batch`` sequences."""
        step = time_per_output_token(self.base, self.slope, batch, self.quadratic)
        return step + self.experts * touched(self.share, batch * self.ranks) if self.share else step

    def batch_at(self, tpot: Any) -> Any:
        """Sequences at which a step takes ``tpot``."""
        if not self.searched:
            return batch_at_tpot(self._full, self.slope, tpot, self.quadratic)
        return root(lambda batch: self.time(batch) - tpot, 0.0, value_of((tpot - self.base) / self.slope))

    def rate_at(self, batch: Any, generated: Any) -> Any:
        """Turns/s of an engine that always decodes ``batch`` sequences."""
        return batch / (generated * self.time(batch))

    def best_batch(self) -> Any:
        """Sequences that serve most turns, None where ever more do."""
        return (self._full / self.quadratic) ** 0.5 if self.quadratic else None

    def highest_rate(self, generated: Any) -> Any:
        """Turns/s of an engine at the batch that serves most."""
        return highest_turn_rate(self._full, self.slope, generated, self.quadratic)

    def batch_at_rate(self, turns_per_s: Any, generated: Any) -> Any:
        """Sequences in decode at a turn rate of an engine, by Little's law; valid up to the highest rate."""
        most = batch_at_turn_rate(self._full, self.slope, turns_per_s, generated, self.quadratic)
        if not self.searched:
            return most
        tokens_per_s = value_of(turns_per_s * generated)
        return root(lambda batch: batch - tokens_per_s * self.time(batch), 0.0, value_of(most) * (1 + 1e-9))

    def decoding_batch(self, slots: Any, generated: Any, held_before: Any) -> Any:
        """Sequences that decode when ``slots`` hold one each, taken ``held_before`` seconds before it decodes."""
        if not self.searched:
            return decoding_batch(self._full, self.slope, slots, generated, held_before)
        return root(lambda b: b + held_before * self.rate_at(b, generated) - slots, 0.0, value_of(slots) * (1 + 1e-9))

    @property
    def searched(self) -> bool:
        return bool(self.share) and not self.quadratic

    @property
    def _full(self) -> Any:
        """The base with all experts touched."""
        return self.base + self.experts if self.share else self.base
