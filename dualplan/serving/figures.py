"""The figures of a run, read off its tables."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dualplan.serving import layout as k
from dualplan.serving.cluster import Cluster
from dualplan.serving.prefill_load import full_pass_share, turn_works
from dualplan.serving.result import Result, RoleChange, Slice, Spread, Stopped
from dualplan.serving.samples import fill_sample
from dualplan.serving.trajectories import Trajectories

Floats = npt.NDArray[np.float64]

STEADY = 0.1
"""Share by which mean TTFT may differ between the halves of a run that is called steady."""

PARTS = ("scheduling", "allocation", "read", "prefill")
"""Parts of TTFT: from ready to fetched, to the start of the read, to the pass, to its end. A wait for host buffers
belongs to allocation."""


def spread(values: Floats) -> Spread:
    """Mean and percentiles of values, which are put into another order."""
    if not len(values):
        return Spread(mean=None, p50=None, p90=None, p99=None)
    mean = float(values.mean())
    p50, p90, p99 = np.percentile(values, [50, 90, 99], overwrite_input=True)
    return Spread(mean=mean, p50=float(p50), p90=float(p90), p99=float(p99))


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
    n = int(s.count["records"])
    arrived, done = int(s.count["arrived"]), int(s.count["done"])
    whole = kind == "offline" and done == len(s.span)
    now = float(s.total["last_done"]) if whole else float(s.total["now"]) if end is None else end
    # turns are recorded as they end, so those that count and those of the second half are the last ones
    first = int(np.searchsorted(s.record["time"][:n], warm_up, side="right")) if warm_up else 0
    count, span = n - first, max(now - warm_up, 1e-12)
    record, turns = s.record[first:n], s.record["turn"][first:n]
    ttft_parts, ttft = {name: _mean(record[name]) for name in PARTS}, ttft_of(record)
    ended = ~np.isnan(s.span["done"][:arrived])
    late = int(np.searchsorted(s.record["time"][first:n], warm_up + span / 2, side="right"))
    halves = None
    if kind == "online" and 0 < late < count:
        halves = (float(ttft[:late].mean()), float(ttft[late:].mean()))
    until_first = ttft.sum()
    # the largest arrays of a run go as soon as they have been used
    ttft_s = spread(ttft)
    del ttft
    tpot = record["tpot"].astype(np.float64)
    tokens = trajectories.generated[turns]
    output_tokens = float(tokens.sum())
    decoding = tpot * np.maximum(tokens - 1, 0, out=tokens)
    whole_turn = until_first + decoding.sum() + trajectories.think[turns].sum()
    decoded = tpot > 0
    samples, detail = _samples(s, now)
    moved = s.moved.view(np.float64).reshape(-1, 8).copy()
    return Result(
        kind=kind,
        label=laid.mode if label is None else label,
        cluster=laid,
        seed=seed,
        arrival_rate=rate,
        agents=arrived,
        agents_done=done,
        agents_waiting=arrived - int(s.count["admitted"]),
        stopped=stopped,
        simulated_s=now,
        warm_up_s=warm_up,
        jct_s=now if whole else None,
        turns=count,
        turns_per_s=count / span,
        output_tokens_per_s=output_tokens / span,
        prompt_tokens_per_s=float((trajectories.context + trajectories.append)[turns].sum()) / span,
        ttft_s=ttft_s,
        ttst_s=spread(record["ttst"][decoded].astype(np.float64)),
        tpot_s=spread(tpot[decoded]),
        ttft_parts_s=ttft_parts,
        agent_time_s=spread(s.span["done"][:arrived][ended] - s.span["arrival"][:arrived][ended]),
        admission_s=_admission(laid, s, arrived, now),
        expected_agent_time_s=float(whole_turn / count * trajectories.turns.mean()) if count else None,
        in_system=float(s.total["under_way_time"]) / now if now else 0.0,
        steady=None if halves is None else abs(halves[1] / halves[0] - 1) <= STEADY,
        ttft_halves_s=halves,
        slices=slices,
        waits_s=_waits(s, now),
        utilization=_utilization(laid, s, samples, now),
        prefill_capacity_used=_prefill_capacity_used(laid, trajectories, samples, turns, span),
        decode_batch_per_engine=_decode_batch(laid, s, samples, now),
        max_over_mean=_max_over_mean(laid, s),
        peaks={
            "working_set_bytes": float(s.total["peak_working_set"]),
            "prefill_buffer_bytes_per_node": float(s.node["peak"][: laid.prefill.nodes].max()),
            "decode_buffer_bytes_per_node": float(s.node["peak"][laid.prefill.nodes :].max()),
        },
        mean_working_set_bytes=_mean_working_set(samples, warm_up),
        totals={
            "read_bytes": float(s.total["read_bytes"]),
            "decode_read_bytes": float(s.total["decode_read_bytes"]),
            "hit_bytes": float(s.total["hit_bytes"]),
            "written_bytes": float(s.total["written_bytes"]),
            "computed_tokens": float(s.total["computed_tokens"]),
            "generated_tokens": float(s.total["generated_tokens"]),
        },
        samples=samples,
        detail=detail,
        prefill_moved=moved[: laid.prefill.nodes],
        decode_moved=moved[laid.prefill.nodes :],
        events=int(s.count["events"]),
        decode_read_share=_ratio(s.total["decode_read_bytes"], s.total["read_bytes"])
        if laid.mode in ("dual-path", "split-read")
        else None,
        changes=changes,
    )


def _mean(durations: npt.NDArray[np.float32]) -> float:
    return float(durations.astype(np.float64).mean()) if len(durations) else 0.0


def ttft_of(record: k.Table) -> Floats:
    """TTFT of turns that have ended [s]."""
    ttft = np.zeros(len(record))
    # a part at a time: all of them in double precision would take more memory than the run itself
    for name in PARTS:
        ttft += record[name]
    return ttft


def _samples(s: k.State, now: float) -> tuple[k.Table, Floats]:
    """The samples before the end of a run and one at its end."""
    n = int(s.count["samples"])
    n = int(np.searchsorted(s.sample["time"][:n], now))
    samples, detail = s.sample[: n + 1].copy(), s.detail[: n + 1].copy()
    if len(samples) == n:
        samples = np.concatenate((samples, np.zeros(1, k.SAMPLE)))
        detail = np.concatenate((detail, np.zeros((1, detail.shape[1]))))
    fill_sample(s, samples, detail, n, now)
    return samples, detail


def _admission(laid: Cluster, s: k.State, arrived: int, now: float) -> Spread:
    """Waits of agents for their start [s]; nothing without admission control."""
    if not laid.max_active:
        return spread(np.zeros(0))
    started = s.span["admitted"][:arrived]
    return spread(np.where(np.isnan(started), now, started) - s.span["arrival"][:arrived])


def _waits(s: k.State, now: float) -> Floats:
    """Waits so far [s] of the turns without a first token."""
    started = int(s.count["admitted"])
    agent = s.agent[:started]
    ready = agent["ready"]
    # between two turns READY is negative; FIRST of a turn that waits is that of the turn before, or still 0
    waiting = (ready >= 0) & (agent["first"] <= ready) & np.isnan(s.span["done"][:started])
    return np.asarray(now - ready[waiting], dtype=np.float64)


def mean_over_time(samples: k.Table, name: str) -> float:
    """Mean of a gauge over time: each sample stands for the time up to it."""
    time = samples["time"]
    widths = np.diff(time, prepend=0.0)
    return float((samples[name] * widths).sum() / time[-1]) if time[-1] > 0 else 0.0


def open_share(laid: Cluster, samples: k.Table) -> tuple[float, float]:
    """Mean share of the groups of each side that are open; 1 unless nodes change roles."""
    shares = []
    for side, name in ((laid.prefill, "prefill_open"), (laid.decode, "decode_open")):
        mean = mean_over_time(samples, name) / side.groups
        shares.append(mean if 0 < mean < 1 else 1.0)
    return shares[0], shares[1]


def _utilization(laid: Cluster, s: k.State, samples: k.Table, now: float) -> dict[str, float]:
    """Busy share of time of storage NICs and prefill groups, and mean share of memories that is held."""
    span, last = max(now, 1e-12), samples[-1]
    open_prefill, open_decode = open_share(laid, samples)
    prefill_nics = int(s.node["end_nic"][laid.prefill.nodes - 1])
    found = {
        "prefill_snic_ingress": last["prefill_nic"] / (span * prefill_nics * open_prefill),
        "decode_snic_ingress": last["decode_nic"] / (span * (len(s.nic) - prefill_nics) * open_decode),
        "prefill_compute": last["passes"] / (span * laid.prefill.groups * open_prefill),
        "prefill_hbm": mean_over_time(samples, "prefill_hbm")
        / (laid.prefill.engines * laid.prefill.room * open_prefill),
        "decode_hbm": mean_over_time(samples, "decode_hbm") / (laid.decode.engines * laid.decode.room * open_decode),
    }
    for name, side, column, share in (
        ("prefill_buffer", laid.prefill, "prefill_buffer", open_prefill),
        ("decode_buffer", laid.decode, "decode_buffer", open_decode),
    ):
        size = sum(side.buffers)
        if size < math.inf:
            found[name] = mean_over_time(samples, column) / (size * share)
    return {name: float(value) for name, value in found.items()}


def _prefill_capacity_used(
    laid: Cluster, trajectories: Trajectories, samples: k.Table, turns: npt.NDArray[np.int64], span: float
) -> float:
    """Work of some turns over what the open prefill engines do in so many seconds of full passes."""
    engines = laid.prefill.engines * open_share(laid, samples)[0]
    works = turn_works(laid, trajectories)
    return float(works[turns].sum()) / (span * engines * full_pass_share(laid, trajectories, works))


def _decode_batch(laid: Cluster, s: k.State, samples: k.Table, now: float) -> float:
    """Mean sequences in the batch of a decode engine, over the whole run."""
    since = s.pool["size"] * (now - s.pool["since"])
    engines = laid.decode.engines * open_share(laid, samples)[1]
    return float((s.pool["busy"] + since).sum()) / (max(now, 1e-12) * engines)


def _max_over_mean(laid: Cluster, s: k.State) -> dict[str, float | None]:
    """Largest over mean of what alike parts did in the whole run."""
    nodes = laid.prefill.nodes
    prefill, decode = np.split(s.nic["busy"], s.node["first_nic"][nodes : nodes + 1])
    both = laid.mode in ("dual-path", "split-read")
    return {
        "snic": _uneven(s.nic["busy"] if both else prefill),
        "prefill_snic": _uneven(prefill),
        "decode_snic": _uneven(decode),
        "attention": _ratio(s.total["work_max"], s.total["work_mean"]),
        "prefill_passes": _uneven(s.group["busy"]),
        "decode_sequences": _uneven(s.pool["busy"]),
        "prefill_buffer_peak": _uneven(s.node["peak"][:nodes]),
        "decode_buffer_peak": _uneven(s.node["peak"][nodes:]),
    }


def _mean_working_set(samples: k.Table, warm_up: float) -> float:
    counted = samples["working_set"][:-1][samples["time"][:-1] >= warm_up]
    return float(counted.mean()) if len(counted) else 0.0


def _uneven(busy: Any) -> float | None:
    return _ratio(busy.max(), busy.mean())


def _ratio(a: Any, b: Any) -> float | None:
    return float(a) / float(b) if b else None
