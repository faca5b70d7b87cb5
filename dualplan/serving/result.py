"""What a run of the simulation gave."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.messages import Message, message
from dualplan.serving import layout as k
from dualplan.serving.cluster import Cluster
from dualplan.serving.prefill_load import full_pass_share, turn_works
from dualplan.serving.samples import fill_sample
from dualplan.serving.trajectories import Trajectories
from dualplan.units import show

Floats = npt.NDArray[np.float64]

Stopped = Literal["all agents done", "end of the run", "TTFT above the limit", "longest time", "interrupted"]

STEADY = 0.1
"""Share by which mean TTFT may differ between the halves of a run that is called steady."""

PARTS = ("scheduling", "allocation", "read", "prefill")
"""Parts of TTFT: from ready to fetched, to the start of the read, to the pass, to its end. A wait for host buffers
belongs to allocation."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and percentiles; None where nothing was counted."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on mean TTFT and mean TPOT [s], the published form of the SLO."""

    ttft: float = 4.0
    tpot: float = 0.05


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

    ``steady``: mean TTFT of the second half of the time that counts is within ``STEADY`` of that of the first half;
    ``ttft_halves_s`` are the two. ``slices``: of an online run, in order of time.

    ``utilization``: over the run, busy shares of storage NICs and prefill groups, held shares of buffers and HBM.
    ``prefill_capacity_used``: work of the turns that count over what the prefill engines do in full passes.
    ``decode_batch_per_engine``: mean sequences that decode. ``max_over_mean``: of what each storage NIC, engine or
    decode group did. ``mean_working_set_bytes``: KV of the agents that have not ended, over samples after the warm-up.
    ``samples``, ``detail``: state over time, columns of ``layout.S_TIME`` and following and of ``layout.State``; the
    last row is the end of the run. ``prefill_moved``, ``decode_moved``: bytes of turns by node, columns of
    ``layout.MOVED_HIT`` and following. ``totals``: bytes and tokens of the whole run. ``changes``: of roles.
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
    samples: Floats
    detail: Floats
    prefill_moved: Floats
    decode_moved: Floats
    events: int
    decode_read_share: float | None
    changes: tuple[RoleChange, ...] = ()


def spread(values: Floats) -> Spread:
    """Mean and percentiles of values, which are put into another order."""
    if not len(values):
        return Spread(mean=None, p50=None, p90=None, p99=None)
    mean = float(values.mean())
    p50, p90, p99 = np.percentile(values, [50, 90, 99], overwrite_input=True)
    return Spread(mean=mean, p50=float(p50), p90=float(p90), p99=float(p99))


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


def result_of(
    kind: Literal["offline", "online"],
    laid: Cluster,
    trajectories: Trajectories,
    s: k.State,
    seed: int,
    stopped: Stopped,
    *,
    warm_up: float,
    rate: float | None,
    end: float | None = None,
    label: str | None = None,
    changes: tuple[RoleChange, ...] = (),
    slices: tuple[Slice, ...] = (),
) -> Result:
    """The result of a run in state ``s``. ``end``: when it ended [s], where not with its last event."""
    n = int(s.counter[k.N_RECORDS])
    arrived, done = int(s.counter[k.N_ARRIVED]), int(s.counter[k.N_DONE])
    whole = kind == "offline" and done == len(s.arrival)
    now = float(s.total[k.LAST_DONE]) if whole else float(s.total[k.NOW]) if end is None else end
    # turns are recorded as they end, so those that count and those of the second half are the last ones
    first = int(np.searchsorted(s.record_time[:n], warm_up, side="right")) if warm_up else 0
    count, span = n - first, max(now - warm_up, 1e-12)
    record, turns = s.record[first:n], s.record_turn[first:n]
    ttft_parts, ttft = _ttft(record)
    ended = ~np.isnan(s.done_at[:arrived])
    late = int(np.searchsorted(s.record_time[first:n], warm_up + span / 2, side="right"))
    halves = None
    if kind == "online" and 0 < late < count:
        halves = (float(ttft[:late].mean()), float(ttft[late:].mean()))
    until_first = ttft.sum()
    # the largest arrays of a run go as soon as they have been used
    ttft_s = spread(ttft)
    del ttft
    tpot = record[:, k.R_TPOT].astype(np.float64)
    tokens = trajectories.generated[turns]
    output_tokens = float(tokens.sum())
    decoding = tpot * np.maximum(tokens - 1, 0, out=tokens)
    whole_turn = until_first + decoding.sum() + trajectories.think[turns].sum()
    decoded = tpot > 0
    samples, detail = _samples(s, now)
    return Result(
        kind=kind,
        label=laid.mode if label is None else label,
        cluster=laid,
        seed=seed,
        arrival_rate=rate,
        agents=arrived,
        agents_done=done,
        agents_waiting=arrived - int(s.counter[k.N_ADMITTED]),
        stopped=stopped,
        simulated_s=now,
        warm_up_s=warm_up,
        jct_s=now if whole else None,
        turns=count,
        turns_per_s=count / span,
        output_tokens_per_s=output_tokens / span,
        prompt_tokens_per_s=float((trajectories.context + trajectories.append)[turns].sum()) / span,
        ttft_s=ttft_s,
        ttst_s=spread(record[decoded, k.R_TTST].astype(np.float64)),
        tpot_s=spread(tpot[decoded]),
        ttft_parts_s=ttft_parts,
        agent_time_s=spread(s.done_at[:arrived][ended] - s.arrival[:arrived][ended]),
        admission_s=_admission(laid, s, arrived, now),
        expected_agent_time_s=float(whole_turn / count * trajectories.turns.mean()) if count else None,
        in_system=float(s.total[k.UNDER_WAY_TIME]) / now if now else 0.0,
        steady=None if halves is None else abs(halves[1] / halves[0] - 1) <= STEADY,
        ttft_halves_s=halves,
        slices=slices,
        waits_s=_waits(s, now),
        utilization=_utilization(laid, s, samples, now),
        prefill_capacity_used=_prefill_capacity_used(laid, trajectories, samples, turns, span),
        decode_batch_per_engine=_decode_batch(laid, s, samples, now),
        max_over_mean=_max_over_mean(laid, s),
        peaks={
            "working_set_bytes": float(s.total[k.PEAK_WORKING_SET]),
            "prefill_buffer_bytes_per_node": float(s.prefill_buffer[:, k.PEAK_BYTES].max()),
            "decode_buffer_bytes_per_node": float(s.decode_buffer[:, k.PEAK_BYTES].max()),
        },
        mean_working_set_bytes=_mean_working_set(samples, warm_up),
        totals={
            "read_bytes": float(s.total[k.READ_BYTES]),
            "decode_read_bytes": float(s.total[k.DECODE_READ_BYTES]),
            "hit_bytes": float(s.total[k.HIT_BYTES]),
            "written_bytes": float(s.total[k.WRITTEN_BYTES]),
            "computed_tokens": float(s.total[k.COMPUTED_TOKENS]),
            "generated_tokens": float(s.total[k.GENERATED_TOKENS]),
        },
        samples=samples,
        detail=detail,
        prefill_moved=s.prefill_moved.copy(),
        decode_moved=s.decode_moved.copy(),
        events=int(s.counter[k.N_EVENTS]),
        decode_read_share=_ratio(s.total[k.DECODE_READ_BYTES], s.total[k.READ_BYTES])
        if laid.mode in ("dual-path", "split-read")
        else None,
        changes=changes,
    )


def _ttft(record: npt.NDArray[np.float32]) -> tuple[dict[str, float], Floats]:
    """Mean of each part of the TTFT, and the TTFT of every turn [s]."""
    ttft, part, means = np.zeros(len(record)), np.empty(len(record)), {}
    # a column at a time: all of them in double precision would take more memory than the run itself
    for i, name in enumerate(PARTS):
        part[:] = record[:, i]
        means[name] = float(part.mean()) if len(part) else 0.0
        ttft += part
    return means, ttft


def _samples(s: k.State, now: float) -> tuple[Floats, Floats]:
    """The samples before the end of a run and one at its end."""
    n = int(s.counter[k.N_SAMPLES])
    n = int(np.searchsorted(s.sample[:n, k.S_TIME], now))
    samples, detail = s.sample[: n + 1].copy(), s.detail[: n + 1].copy()
    if len(samples) == n:
        samples = np.concatenate((samples, np.zeros((1, samples.shape[1]))))
        detail = np.concatenate((detail, np.zeros((1, detail.shape[1]))))
    fill_sample(s, samples[n], detail[n], now)
    return samples, detail


def _admission(laid: Cluster, s: k.State, arrived: int, now: float) -> Spread:
    """Waits of agents for their start [s]; nothing without admission control."""
    if not laid.max_active:
        return spread(np.zeros(0))
    started = s.admitted[:arrived]
    return spread(np.where(np.isnan(started), now, started) - s.arrival[:arrived])


def _waits(s: k.State, now: float) -> Floats:
    """Waits so far [s] of the turns without a first token."""
    started = int(s.counter[k.N_ADMITTED])
    agent = s.agent[:started]
    ready = agent[:, k.READY]
    # between two turns READY is negative; FIRST of a turn that waits is that of the turn before, or still 0
    waiting = (ready >= 0) & (agent[:, k.FIRST] <= ready) & np.isnan(s.done_at[:started])
    return now - ready[waiting]


def mean_over_time(samples: Floats, column: int) -> float:
    """Mean of a gauge over time: each sample stands for the time up to it."""
    time = samples[:, k.S_TIME]
    widths = np.diff(time, prepend=0.0)
    return float((samples[:, column] * widths).sum() / time[-1]) if time[-1] > 0 else 0.0


def open_share(laid: Cluster, samples: Floats) -> tuple[float, float]:
    """Mean share of the groups of each side that are open; 1 unless nodes change roles."""
    shares = []
    for side, column in ((laid.prefill, k.S_PREFILL_OPEN), (laid.decode, k.S_DECODE_OPEN)):
        mean = mean_over_time(samples, column) / side.groups
        shares.append(mean if 0 < mean < 1 else 1.0)
    return shares[0], shares[1]


def _utilization(laid: Cluster, s: k.State, samples: Floats, now: float) -> dict[str, float]:
    """Busy share of time of storage NICs and prefill groups, and mean share of memories that is held."""
    span, last = max(now, 1e-12), samples[-1]
    open_prefill, open_decode = open_share(laid, samples)
    found = {
        "prefill_snic_ingress": last[k.S_PREFILL_NIC] / (span * len(s.prefill_nic) * open_prefill),
        "decode_snic_ingress": last[k.S_DECODE_NIC] / (span * len(s.decode_nic) * open_decode),
        "prefill_compute": last[k.S_PASSES] / (span * laid.prefill.groups * open_prefill),
        "prefill_hbm": mean_over_time(samples, k.S_PREFILL_HBM)
        / (laid.prefill.engines * laid.prefill.room * open_prefill),
        "decode_hbm": mean_over_time(samples, k.S_DECODE_HBM) / (laid.decode.engines * laid.decode.room * open_decode),
    }
    for name, side, column, share in (
        ("prefill_buffer", laid.prefill, k.S_PREFILL_BUFFER, open_prefill),
        ("decode_buffer", laid.decode, k.S_DECODE_BUFFER, open_decode),
    ):
        size = sum(side.buffers)
        if size < math.inf:
            found[name] = mean_over_time(samples, column) / (size * share)
    return {name: float(value) for name, value in found.items()}


def _prefill_capacity_used(
    laid: Cluster, trajectories: Trajectories, samples: Floats, turns: npt.NDArray[np.int64], span: float
) -> float:
    """Work of some turns over what the open prefill engines do in so many seconds of full passes."""
    engines = laid.prefill.engines * open_share(laid, samples)[0]
    works = turn_works(laid, trajectories)
    return float(works[turns].sum()) / (span * engines * full_pass_share(laid, trajectories, works))


def _decode_batch(laid: Cluster, s: k.State, samples: Floats, now: float) -> float:
    """Mean sequences in the batch of a decode engine, over the whole run."""
    since = s.pool_index[:, k.N_IN_POOL] * (now - s.pool[:, k.SINCE])
    engines = laid.decode.engines * open_share(laid, samples)[1]
    return float((s.pool[:, k.BUSY] + since).sum()) / (max(now, 1e-12) * engines)


def _max_over_mean(laid: Cluster, s: k.State) -> dict[str, float | None]:
    """Largest over mean of what alike parts did in the whole run."""
    prefill, decode = s.prefill_nic[:, k.NIC_BUSY], s.decode_nic[:, k.NIC_BUSY]
    both = laid.mode in ("dual-path", "split-read")
    return {
        "snic": _uneven(np.concatenate((prefill, decode)) if both else prefill),
        "prefill_snic": _uneven(prefill),
        "decode_snic": _uneven(decode),
        "attention": _ratio(s.total[k.WORK_MAX], s.total[k.WORK_MEAN]),
        "prefill_passes": _uneven(s.group[:, k.PASS_BUSY]),
        "decode_sequences": _uneven(s.pool[:, k.BUSY]),
        "prefill_buffer_peak": _uneven(s.prefill_buffer[:, k.PEAK_BYTES]),
        "decode_buffer_peak": _uneven(s.decode_buffer[:, k.PEAK_BYTES]),
    }


def _mean_working_set(samples: Floats, warm_up: float) -> float:
    counted = samples[:-1][samples[:-1, k.S_TIME] >= warm_up, k.S_WORKING_SET]
    return float(counted.mean()) if len(counted) else 0.0


def _uneven(busy: Any) -> float | None:
    return _ratio(busy.max(), busy.mean())


def _ratio(a: Any, b: Any) -> float | None:
    return float(a) / float(b) if b else None
