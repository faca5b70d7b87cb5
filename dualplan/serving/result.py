"""What a run of the simulation gave."""

from __future__ import annotations

from itertools import takewhile
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.messages import Message, message
from dualplan.serving import layout as k
from dualplan.serving.cluster import Cluster
from dualplan.spec.run import Slo
from dualplan.units import show

Floats = npt.NDArray[np.float64]

Stopped = Literal["all agents done", "end of the run", "TTFT above the limit", "longest time", "interrupted"]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and percentiles; None where nothing was counted."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None


Rule = Literal["ttft_of_slices", "turns_ended", "turns_waiting", "admission_wait", "ttft", "tpot"]


class Miss(msgspec.Struct, frozen=True, kw_only=True):
    """What of an SLO a run missed: ``value`` against ``limit`` [s, or turns for ``turns_ended`` and ``turns_waiting``],
    and the same as a message.
    """

    rule: Rule
    value: float
    limit: float
    text: Message


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of an online run, after which the stop rule looks [s]: mean TTFT of the turns that ended in it, None
    where none did.
    """

    start_s: float
    end_s: float
    ttft_s: float | None


class RoleChange(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of each side from ``ready_s`` on; ``decided_s`` is when the closing groups got nothing more [s]."""

    decided_s: float
    ready_s: float
    prefill_nodes: int
    decode_nodes: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave. Times in s, rates in 1/s, sizes in B.

    ``label``: what tells it from others of the same call. ``jct_s``: when the last agent ended; None if some had not.
    ``turns``, ``turns_per_s`` and the spreads: turns that ended after the warm-up. ``agent_time_s``: from arrival to
    the last turn, of agents that ended before the run did. ``admission_s``: waits of arrived agents for their start,
    so far of those that still wait; ``agents_waiting`` do. ``in_system``: mean turns under way, over the whole run.
    ``waits_s``: waits so far of the turns that have no first token at the end. ``expected_agent_time_s``: mean turns
    of an agent times the mean time of a turn.

    ``steady``: mean TTFT of the second half of the time that counts is within ``figures.STEADY`` of that of the first
    half; ``ttft_halves_s`` are the two. ``slices``: of an online run, in order of time.

    ``utilization``: over the run, busy shares of storage NICs and prefill groups, held shares of buffers and HBM.
    ``prefill_capacity_used``: work of the turns that count over what the prefill engines do in full passes.
    ``decode_batch_per_engine``: mean sequences that decode. ``max_over_mean``: of what each storage NIC, engine or
    decode group did. ``mean_working_set_bytes``: KV of the agents that have not ended, over samples after the warm-up.
    ``samples``, ``detail``: state over time, of ``layout.SAMPLE`` and ``layout.State``; the last row is the end of the
    run. ``prefill_moved``, ``decode_moved``: bytes of turns by node, the fields of ``layout.MOVED`` for what the
    prefill side read, then for what the decode side read. ``totals``: bytes and tokens of the whole run. ``changes``:
    of roles.
    """

    kind: Literal["offline", "online"]
    label: str
    cluster: Cluster
    seed: int
    arrival_rate: float | None
    agents: int
    agents_done: int
    agents_waiting: int
    stopped: Stopped
    simulated_s: float
    warm_up_s: float
    jct_s: float | None
    turns: int
    turns_per_s: float
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    ttft_s: Spread
    ttst_s: Spread
    tpot_s: Spread
    ttft_parts_s: dict[str, float]
    agent_time_s: Spread
    admission_s: Spread
    expected_agent_time_s: float | None
    in_system: float
    waits_s: Floats
    steady: bool | None
    ttft_halves_s: tuple[float, float] | None
    slices: tuple[Slice, ...]
    utilization: dict[str, float]
    prefill_capacity_used: float
    decode_batch_per_engine: float
    max_over_mean: dict[str, float | None]
    peaks: dict[str, float]
    mean_working_set_bytes: float
    totals: dict[str, float]
    samples: k.Table
    detail: Floats
    prefill_moved: Floats
    decode_moved: Floats
    events: int
    decode_read_share: float | None
    changes: tuple[RoleChange, ...] = ()


def meets(result: Result, slo: Slo) -> bool:
    """Whether a run keeps an SLO: nothing of it is missed."""
    return not misses(result, slo)


def misses(result: Result, slo: Slo) -> tuple[Miss, ...]:
    """What of an SLO a run missed: a limit on mean TTFT or on mean TPOT, or it ended for its TTFT; else nothing.

    A turn without a first token at the end of the run counts in mean TTFT with its wait so far once that is above the
    limit. More such turns, overdue or not, than turns that ended miss the SLO: the few that ended say nothing. Under
    admission control the mean wait of agents for their start must keep the limit of TTFT too.
    """
    found = [_slices_over(result, slo)] if result.stopped == "TTFT above the limit" else []
    ttft, tpot, waits = result.ttft_s.mean, result.tpot_s.mean, result.waits_s
    if ttft is None:
        what = message("slo.none_ended", counted=result.simulated_s - result.warm_up_s)
        return (*found, Miss(rule="turns_ended", value=0, limit=1, text=what))
    if len(waits) > result.turns:
        what = message("slo.waiting", waiting=len(waits), ended=result.turns)
        found.append(Miss(rule="turns_waiting", value=len(waits), limit=result.turns, text=what))
    admission = result.admission_s.mean
    if admission is not None and admission > slo.ttft:
        what = message("slo.admission", mean=admission, limit=slo.ttft)
        found.append(Miss(rule="admission_wait", value=admission, limit=slo.ttft, text=what))
    overdue = waits[waits > slo.ttft]
    whole = (ttft * result.turns + float(overdue.sum())) / (result.turns + len(overdue))
    if whole > slo.ttft:
        more: Message | str = ""
        if len(overdue):
            more = message("slo.overdue", ended=ttft, overdue=len(overdue), wait=float(overdue.mean()))
        what = message("slo.ttft", mean=whole, limit=slo.ttft, overdue=more)
        found.append(Miss(rule="ttft", value=whole, limit=slo.ttft, text=what))
    if tpot is not None and tpot > slo.tpot:
        what = message("slo.tpot", mean=tpot, limit=slo.tpot)
        found.append(Miss(rule="tpot", value=tpot, limit=slo.tpot, text=what))
    return tuple(found)


def _slices_over(result: Result, slo: Slo) -> Miss:
    """What the stop rule saw: the last slices of a run, with a mean TTFT above the limit each."""
    over = list(takewhile(lambda one: one.ttft_s is not None and one.ttft_s > slo.ttft, reversed(result.slices)))[::-1]
    if not over:  # a run with a tighter limit than the one it is held against now
        what = message("slo.tighter", end=result.simulated_s)
        return Miss(rule="ttft_of_slices", value=result.slices[-1].ttft_s or 0.0, limit=slo.ttft, text=what)
    values = tuple(show(one.ttft_s, "s") for one in over)
    span = {"slices": len(over), "start": over[0].start_s, "end": over[-1].end_s}
    what = message("slo.slices", values=values, **span, limit=slo.ttft)
    return Miss(rule="ttft_of_slices", value=float(over[-1].ttft_s or 0.0), limit=slo.ttft, text=what)
