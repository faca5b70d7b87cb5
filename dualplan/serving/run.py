"""Runs of the simulation: a job of agents that start together, agents that arrive, the capacity under an SLO."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.serving import kernel as k
from dualplan.serving.cluster import Cluster, state
from dualplan.serving.trajectories import Trajectories

Floats = npt.NDArray[np.float64]
Progress = Callable[[float, int, float], None]
"""Called between slices of a run with the share done (0..1), turns so far, and the simulated time [s]."""

Stopped = Literal["all agents done", "end of the run", "TTFT above the limit", "interrupted"]

DURATION = 3000.0
"""Length of an online run [s]; with it the published mean completion times and capacities come out."""

WARM_UP = 1 / 3
"""Share of an online run before turns count."""

SLICE_EVENTS = 400_000
PLAIN_EVENTS = 2_000
"""Events between two looks at progress and interruption, compiled and plain."""

PARTS = ("scheduling", "allocation", "read", "prefill")
"""Parts of TTFT: from ready to fetched, to the start of the read, to the pass, to its end."""

PLAIN_LIMIT = 20_000
"""Turns of a run up to which plain Python is used rather than waiting for the compiler."""

MOST_AGENTS = 2_000_000
"""More agents in a run would not fit the memory of a usual machine."""

SLICES = 30
"""Slices of an online run, after each of which the stop rule looks."""

OVER_LIMIT = 3
"""Slices in a row with a mean TTFT above the limit that end an online run."""


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


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave. Times in s, rates in 1/s, sizes in B.

    ``jct_s``: when the last agent ended; None if some had not. ``turns``, ``turns_per_s`` and the spreads: turns that
    ended after the warm-up. ``agent_time_s``: from arrival to the last turn, of agents that ended before the run did.
    ``in_system``: mean turns under way, over the whole run. ``waits_s``: waits so far of the turns that have no first
    token at the end. ``utilization``: busy shares of the run. ``decode_batch_per_engine``: mean sequences that decode.
    ``mean_working_set_bytes``: KV of the agents that have not
    ended, over samples after the warm-up. ``samples``: state over time, columns of
    ``kernel.S_TIME`` and following. ``totals``: bytes and tokens of the whole run.
    """

    kind: Literal["offline", "online"]
    cluster: Cluster
    seed: int
    arrival_rate: float | None
    agents: int
    agents_done: int
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
    in_system: float
    waits_s: Floats
    steady: bool | None
    utilization: dict[str, float]
    decode_batch_per_engine: float
    max_over_mean: dict[str, float | None]
    peaks: dict[str, float]
    mean_working_set_bytes: float
    totals: dict[str, float]
    samples: Floats
    events: int
    decode_read_share: float | None


def spread(values: Floats) -> Spread:
    """Mean and percentiles of values."""
    if not len(values):
        return Spread(mean=None, p50=None, p90=None, p99=None)
    p50, p90, p99 = np.percentile(values, [50, 90, 99])
    return Spread(mean=float(values.mean()), p50=float(p50), p90=float(p90), p99=float(p99))


def offline(
    laid: Cluster,
    trajectories: Trajectories,
    agents: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    compiled: bool | None = None,
) -> Result:
    """``agents`` agents start together at time 0 and run to their end. Raises InputError for less than one agent."""
    if agents < 1:
        raise InputError("--agents", f"{agents} is not a number of agents above 0")
    s = state(laid, trajectories, np.zeros(agents), seed=seed)
    stopped: Stopped = "all agents done"
    if not _advance(s, progress, compiled):
        stopped = "interrupted"
    return _result("offline", laid, trajectories, s, seed, stopped, warm_up=0.0, rate=None)


def online(
    laid: Cluster,
    trajectories: Trajectories,
    rate: float | None = None,
    *,
    arrivals: Floats | None = None,
    duration: float = DURATION,
    warm_up: float | None = None,
    slo: Slo | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    compiled: bool | None = None,
) -> Result:
    """Agents arrive as a Poisson process of ``rate`` agents/s, or at ``arrivals`` [s], for ``duration`` seconds. With
    ``arrivals`` trajectory i is replayed from arrivals[i] on.

    The run ends then, or when mean TTFT has been above the limit in several slices of the run in a row (not for given
    arrivals). The same seed
    gives the same trajectories and, but for the scale, the same arrivals at every rate (common random numbers).
    Raises InputError for a rate, a duration or a warm-up out of range, for no arrival at all and for more than
    ``MOST_AGENTS`` of them.
    """
    replayed = None
    if not 0 < duration < math.inf:
        raise InputError("--duration", f"{duration:g} s is not a length of a run")
    if arrivals is not None:
        replayed = np.argsort(arrivals, kind="stable")
        arrivals = arrivals[replayed]
    else:
        if rate is None or not 0 < rate < math.inf:
            raise InputError("--arrival-rate", f"{rate} is not a rate above 0")
        if rate * duration > MOST_AGENTS:
            what = f"{rate:g} agents/s for {duration:g} s are more than {MOST_AGENTS:,} agents"
            raise InputError("--arrival-rate", what, "give a lower rate or a shorter --duration")
        arrivals = _poisson(rate, duration, seed)
        if not len(arrivals):
            what = f"at {rate:g} agents/s no agent arrives in {duration:g} s"
            raise InputError("--arrival-rate", what, "give a higher rate or a longer --duration")
    warm = duration * WARM_UP if warm_up is None else warm_up
    if not 0 <= warm < duration:
        raise InputError("--warm-up", f"{warm:g} s is not before the end of the run at {duration:g} s")
    limit = slo or Slo()
    s = state(laid, trajectories, arrivals, seed=seed, horizon=duration, replayed=replayed)
    stopped: Stopped = "end of the run"
    over = seen = 0
    end = duration
    for i in range(1, SLICES + 1):
        s.number[k.HORIZON] = duration * i / SLICES
        if not _advance(s, progress, compiled, i / SLICES):
            stopped, end = "interrupted", float(s.total[k.NOW])
            break
        n = int(s.counter[k.N_RECORDS])
        ended = s.record[seen:n, :4].sum(axis=1, dtype=np.float64)
        seen = n
        over = over + 1 if len(ended) and ended.mean() > limit.ttft else 0
        if over == OVER_LIMIT and i < SLICES and replayed is None:
            stopped, end = "TTFT above the limit", float(s.number[k.HORIZON])
            break
    warm = min(warm, end / 2)
    return _result("online", laid, trajectories, s, seed, stopped, warm_up=warm, rate=rate, end=end)


def _poisson(rate: float, duration: float, seed: int) -> Floats:
    """Arrival times of a Poisson process before ``duration`` [s]."""
    random = np.random.default_rng([seed, 2])
    times: list[Floats] = []
    last = 0.0
    while last < duration:
        # drawn in pieces of fixed size, so that a longer run starts with the arrivals of a shorter one
        with np.errstate(over="ignore"):
            piece = last + np.cumsum(random.exponential(1.0, 1024)) / rate
        times.append(piece)
        last = float(piece[-1])
    arrivals = np.concatenate(times)
    return arrivals[arrivals < duration]


def meets(result: Result, slo: Slo) -> bool:
    """Whether mean TTFT and mean TPOT keep the limits and the run did not end for its TTFT.

    A turn without a first token at the end of the run counts in mean TTFT with its wait so far once that is above the
    limit. More such turns, overdue or not, than turns that ended miss the SLO: the few that ended say nothing.
    """
    ttft, tpot = result.ttft_s.mean, result.tpot_s.mean
    if result.stopped == "TTFT above the limit" or ttft is None or len(result.waits_s) > result.turns:
        return False
    overdue = result.waits_s[result.waits_s > slo.ttft]
    ttft = (ttft * result.turns + float(overdue.sum())) / (result.turns + len(overdue))
    return ttft <= slo.ttft and (tpot is None or tpot <= slo.tpot)


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The highest arrival rate that meets the SLO [agents/s]: ``met`` was met, ``missed`` was not.

    ``results``: the runs in order of their rates. ``met`` is 0 when no rate that was tried met the SLO, ``missed`` is
    None when all did, up to ``MOST_AGENTS`` in a run.
    """

    met: float
    missed: float | None
    slo: Slo
    results: tuple[Result, ...]


def find_capacity(
    laid: Cluster,
    trajectories: Trajectories,
    *,
    slo: Slo | None = None,
    duration: float = DURATION,
    warm_up: float | None = None,
    seed: int = 0,
    tolerance: float = 0.02,
    progress: Progress | None = None,
) -> Capacity:
    """Bisection on the arrival rate with the same random numbers at every rate, down to a bracket of relative width
    ``tolerance``.

    Starts from what the prefill engines can compute and widens until one rate is met and one is missed, up to
    ``MOST_AGENTS`` in a run and down to a rate at which none arrives. Raises InputError where the run is too short
    for any turn to end, or so long that the first rate brings too many agents.
    """
    limit = slo or Slo()
    runs: dict[float, Result] = {}

    def met(rate: float) -> bool:
        runs[rate] = online(
            laid, trajectories, rate, duration=duration, warm_up=warm_up, slo=limit, seed=seed, progress=progress
        )
        if runs[rate].stopped == "interrupted":
            raise KeyboardInterrupt
        return meets(runs[rate], limit)

    def found(low: float, high: float | None) -> Capacity:
        return Capacity(met=low, missed=high, slo=limit, results=tuple(runs[r] for r in sorted(runs)))

    if not 0 < duration < math.inf:
        raise InputError("--duration", f"{duration:g} s is not a length of a run")
    high = _prefill_bound(laid, trajectories)
    if high * duration > MOST_AGENTS:
        what = f"in {duration:g} s more than {MOST_AGENTS:,} agents arrive at {high:g} agents/s"
        raise InputError("--duration", what, "run shorter")
    if not len(_poisson(high, duration, seed)):
        raise InputError("--duration", f"no agent arrives in {duration:g} s at {high:g} agents/s", "run longer")
    while met(high):
        if 1.5 * high * duration > MOST_AGENTS:
            return found(high, None)
        high *= 1.5
    low = high
    while len(_poisson(low := low / 1.5, duration, seed)) and not met(low):
        high = low
    if low not in runs:
        if not any(run.turns for run in runs.values()):
            raise InputError("--duration", f"no turn ended in the part of {duration:g} s that counts", "run longer")
        return found(0.0, high)
    while high - low > tolerance * high:
        middle = (low + high) / 2
        if met(middle):
            low = middle
        else:
            high = middle
    return found(low, high)


def _prefill_bound(laid: Cluster, trajectories: Trajectories) -> float:
    """Agents/s that the prefill engines could compute if they never idled."""
    times, block = laid.times, laid.scenario.workload.block
    old = np.floor(trajectories.context / block) * block
    new = trajectories.context - old + trajectories.append
    work = times.per_request + times.per_token * new + times.per_context * old
    work = work + times.per_token_context * new * (old + new / 2)
    agents = len(trajectories.offsets) - 1
    return float(laid.prefill.engines / (work.sum() / agents)) if work.sum() > 0 else 1.0


def _advance(s: k.State, progress: Progress | None, compiled: bool | None, share: float | None = None) -> bool:
    """Run to the horizon in slices; False if interrupted."""
    kernel = None
    if compiled or (compiled is None and len(s.record_time) > PLAIN_LIMIT):
        kernel = k.compiled()
    step = SLICE_EVENTS if kernel is not None else PLAIN_EVENTS
    run = (kernel or k.PLAIN).run
    try:
        while not run(s, step):
            _report(s, progress, share)
        _report(s, progress, share)
    except KeyboardInterrupt:
        return False
    return True


def _report(s: k.State, progress: Progress | None, share: float | None) -> None:
    if progress is not None:
        done = s.counter[k.N_RECORDS] / max(len(s.record_time), 1) if share is None else share
        progress(float(done), int(s.counter[k.N_RECORDS]), float(s.total[k.NOW]))


def _result(
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
) -> Result:
    n = int(s.counter[k.N_RECORDS])
    record, when, which = s.record[:n], s.record_time[:n], s.record_turn[:n]
    arrived, done = int(s.counter[k.N_ARRIVED]), int(s.counter[k.N_DONE])
    whole = kind == "offline" and done == len(s.arrival)
    now = float(s.total[k.LAST_DONE]) if whole else float(s.total[k.NOW]) if end is None else end
    counted = when > warm_up if warm_up else np.ones(n, dtype=bool)
    kept = record[counted].astype(np.float64)
    span = max(now - warm_up, 1e-12)
    ttft = kept[:, :4].sum(axis=1)
    decoded = kept[:, k.R_TPOT] > 0
    done_at = s.agent[:arrived, k.DONE_AT]
    ended = ~np.isnan(done_at)
    halves = when[counted] > warm_up + span / 2
    steady = None
    if kind == "online" and halves.any() and not halves.all():
        steady = bool(abs(ttft[halves].mean() / ttft[~halves].mean() - 1) <= 0.1)
    turns = which[counted]
    return Result(
        kind=kind,
        cluster=laid,
        seed=seed,
        arrival_rate=rate,
        agents=arrived,
        agents_done=done,
        stopped=stopped,
        simulated_s=now,
        warm_up_s=warm_up,
        jct_s=now if whole else None,
        turns=len(kept),
        turns_per_s=len(kept) / span,
        output_tokens_per_s=float(trajectories.generated[turns].sum()) / span,
        prompt_tokens_per_s=float((trajectories.context[turns] + trajectories.append[turns]).sum()) / span,
        ttft_s=spread(ttft),
        ttst_s=spread(kept[decoded, k.R_TTST]),
        tpot_s=spread(kept[decoded, k.R_TPOT]),
        ttft_parts_s={name: float(kept[:, i].mean()) if len(kept) else 0.0 for i, name in enumerate(PARTS)},
        agent_time_s=spread(done_at[ended] - s.arrival[:arrived][ended]),
        in_system=float(s.total[k.UNDER_WAY_TIME]) / now if now else 0.0,
        steady=steady,
        waits_s=_waits(s, now),
        utilization=_utilization(laid, s, now),
        decode_batch_per_engine=_decode_batch(laid, s, now),
        max_over_mean={
            "snic": _uneven(np.concatenate((s.prefill_nic_busy, s.decode_nic_busy)))
            if laid.mode in ("dual-path", "split-read")
            else _uneven(s.prefill_nic_busy),
            "prefill_snic": _uneven(s.prefill_nic_busy),
            "decode_snic": _uneven(s.decode_nic_busy),
            "attention": _ratio(s.total[k.WORK_MAX], s.total[k.WORK_MEAN]),
        },
        peaks={
            "working_set_bytes": float(s.total[k.PEAK_WORKING_SET]),
            "prefill_buffer_bytes_per_node": float(s.prefill_buffer[:, 1].max()),
            "decode_buffer_bytes_per_node": float(s.decode_buffer[:, 1].max()),
        },
        mean_working_set_bytes=_mean_working_set(s, warm_up),
        totals={
            "read_bytes": float(s.total[k.READ_BYTES]),
            "decode_read_bytes": float(s.total[k.DECODE_READ_BYTES]),
            "hit_bytes": float(s.total[k.HIT_BYTES]),
            "written_bytes": float(s.total[k.WRITTEN_BYTES]),
            "computed_tokens": float(s.total[k.COMPUTED_TOKENS]),
            "generated_tokens": float(s.total[k.GENERATED_TOKENS]),
        },
        samples=s.sample[: int(s.counter[k.N_SAMPLES])].copy(),
        events=int(s.counter[k.N_EVENTS]),
        decode_read_share=_ratio(s.total[k.DECODE_READ_BYTES], s.total[k.READ_BYTES])
        if laid.mode in ("dual-path", "split-read")
        else None,
    )


def _waits(s: k.State, now: float) -> Floats:
    """Waits so far [s] of the turns without a first token."""
    agent = s.agent[: int(s.counter[k.N_ARRIVED])]
    ready = agent[:, k.READY]
    # between two turns READY is negative; FIRST of a turn that waits is that of the turn before, or still 0
    waiting = (ready >= 0) & (agent[:, k.FIRST] <= ready) & np.isnan(agent[:, k.DONE_AT])
    return now - ready[waiting]


def _utilization(laid: Cluster, s: k.State, now: float) -> dict[str, float]:
    """Busy share of time: storage NICs, prefill groups in passes with work.

    Reads and passes are charged when they start or are issued; what lies after the end of the run is taken off. A NIC
    is busy without a gap from now to the end of its last read.
    """
    span = max(now, 1e-12)
    size, groups = laid.prefill.group, laid.prefill.engines // laid.prefill.group
    passes = float(s.total[k.PASS_TIME])
    work = (s.engine[:, k.P_WORK] + s.engine[:, k.P_ATTENTION]).reshape(groups, size).max(axis=1)
    for i in range(int(s.counter[k.N_HEAP])):
        kind, group = s.heap_item[i] % 3, s.heap_item[i] // 3
        if kind == 1 and work[group] > 0:
            passes -= max(float(s.heap_time[i]) - now, 0.0)
    return {
        "prefill_snic_ingress": _nic_busy(s.prefill_nic_busy, s.prefill_nic, now) / span,
        "decode_snic_ingress": _nic_busy(s.decode_nic_busy, s.decode_nic, now) / span,
        "prefill_compute": passes / (span * groups),
    }


def _nic_busy(busy: Floats, free: Floats, now: float) -> float:
    """Mean busy time [s] up to now of NICs that are free again at ``free``."""
    return float((busy - np.maximum(free - now, 0.0)).mean())


def _decode_batch(laid: Cluster, s: k.State, now: float) -> float:
    """Mean sequences in the batch of a decode engine, over the whole run."""
    since = s.pool_index[:, k.N_IN_POOL] * (now - s.pool[:, k.SINCE])
    return float((s.pool[:, k.BUSY] + since).sum()) / (max(now, 1e-12) * laid.decode.engines)


def _mean_working_set(s: k.State, warm_up: float) -> float:
    samples = s.sample[: int(s.counter[k.N_SAMPLES])]
    counted = samples[samples[:, k.S_TIME] >= warm_up, k.S_WORKING_SET]
    return float(counted.mean()) if len(counted) else 0.0


def _uneven(busy: Any) -> float | None:
    return _ratio(busy.max(), busy.mean())


def _ratio(a: Any, b: Any) -> float | None:
    return float(a) / float(b) if b else None
