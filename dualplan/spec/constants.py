"""Constants of the roofline: what no data sheet says, fitted once for all machines, models and engines.

They are read from ``dualplan/data/roofline.yaml``, which ``tests/published/fit_roofline.py`` writes.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path

import msgspec

from dualplan.spec.load import Count, Efficiency, NonNegative, Positive, decode, read_yaml


class Constants(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The constants of ``dualplan.model.roofline``. Times in s; shares of a peak or a line rate.

    ``kernel_time``: one kernel of a replayed graph however little it computes, ``older_kernel_factor`` times that on
    GPUs without FP4 units. ``sequence_time``: a step's bookkeeping of one sequence (scheduler, sampling).
    ``reduce_latency``: one all-reduce inside the scale-up domain; ``network_latency``: what it takes over NICs, or adds
    to an all-to-all there; ``exchange_latency``: dispatch and combine of one layer. ``nic_share``: of a GPU's NIC rate.
    ``hbm_share``, ``compute_share``: of what the profile's GPU reaches of its HBM rate and in large matrix products
    (efficiency.hbm, efficiency.decode). ``hbm_share`` is set, not fitted, for any fit goes to its bound: above 1, as
    launches are counted apart. ``unpack_share``: of the HBM rate for 4-bit experts on GPUs that
    must widen them first. ``hidden_vectors``: vectors of hidden size that norms, residuals, rotary, activation and
    quantisation read and write for a token in each layer. ``expert_prefill_share``: of the compute share in the experts
    of a prefill; ``attention_prefill_share``: of the peak in the attention of a prefill. ``host_launch_time``: one
    kernel of a prefill pass, which no graph replays, with all that the host does for it; an idle engine's TTFT holds it
    beside its work. ``queue_share``: part of the other clients' prompts that a prompt waits for.
    """

    kernel_time: NonNegative
    older_kernel_factor: Positive
    sequence_time: NonNegative
    reduce_latency: NonNegative
    network_latency: NonNegative
    exchange_latency: NonNegative
    hbm_share: Positive
    unpack_share: Efficiency
    nic_share: Efficiency
    compute_share: Efficiency
    hidden_vectors: NonNegative
    expert_prefill_share: Efficiency
    attention_prefill_share: Efficiency
    host_launch_time: NonNegative
    queue_share: NonNegative


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A figure lies between ``low`` and ``high`` times its prediction in 80 of 100 cases; ``rows`` say so."""

    low: Positive
    high: Positive
    rows: Count


class Intervals(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Intervals by what a prediction is of (``interval_classes``); all are at least as wide as the usual one."""

    usual: Interval
    unseen: Interval
    network: Interval
    other_vendor: Interval


class Roofline(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file of constants. ``models``, ``systems``: names of the models and profiles that were fitted."""

    constants: Constants
    models: tuple[str, ...]
    systems: tuple[str, ...]
    tpot: Intervals
    ttft: Intervals
    prefill_rate: Intervals


def interval_classes(model: str, gpu: str, hardware: str, *, remote: bool) -> tuple[str, ...]:
    """What a prediction is of: ``usual``, and ``unseen`` where no run of the model or the profile was fitted,
    ``network`` where experts or tensor parallelism cross NICs (``remote``), ``other_vendor`` for a GPU that is not
    NVIDIA's.
    """
    data = roofline_data()
    applies = {
        "unseen": model not in data.models or hardware not in data.systems,
        "network": remote,
        "other_vendor": "instinct" in gpu.lower() or gpu.upper().startswith("MI"),
    }
    return ("usual", *(name for name, holds in applies.items() if holds))


def widest(intervals: Intervals, classes: tuple[str, ...]) -> Interval:
    """The interval of a prediction: the widest of its classes on either side; ``rows`` of the last of them."""
    kinds: list[Interval] = [getattr(intervals, name) for name in classes]
    return Interval(low=min(k.low for k in kinds), high=max(k.high for k in kinds), rows=kinds[-1].rows)


@functools.cache
def roofline_data() -> Roofline:
    """The shipped constants with their intervals."""
    return decode(read_yaml(Path(str(files("dualplan.data") / "roofline.yaml"))), Roofline)


def roofline_constants() -> Constants:
    """The shipped constants."""
    return roofline_data().constants
