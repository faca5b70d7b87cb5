"""Runs of the simulation: a job of agents that start together, agents that arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.serving import kernel
from dualplan.serving import layout as k
from dualplan.serving.cluster import Cluster
from dualplan.serving.elastic import Controller
from dualplan.serving.figures import result_of, ttft_of
from dualplan.serving.initial import state
from dualplan.serving.result import Result, RoleChange, Slice, Stopped
from dualplan.serving.trajectories import Trajectories
from dualplan.spec.run import DURATION, MOST_AGENTS, RunSpec, Slo

Floats = npt.NDArray[np.float64]
Progress = Callable[[float, int, float], None]
"""Called between slices of a run with the share done (0..1), turns so far, and the simulated time [s]."""

WARM_UP = 1 / 3
"""Share of an online run before turns count."""

SLICE_EVENTS = 400_000
PLAIN_EVENTS = 2_000
"""Events between two looks at progress and interruption, compiled and plain."""

PLAIN_LIMIT = 20_000
"""Turns of a run up to which plain Python is used rather than waiting for the compiler; each looks at all groups, so
many groups count as more turns."""

GROUPS_A_TURN = 64
"""Groups to look at that take plain Python as long as a turn."""

MOST_IDLE = 500_000
"""Engines of a side that no turn can reach, beyond which a run is refused: it would take minutes to show nothing."""

LONGEST = 1e10
"""A job that takes longer [s], 300 years, is not followed to its end."""

SLICES = 30
"""Slices of an online run, after each of which the stop rule looks."""

OVER_LIMIT = 3
"""Slices in a row with a mean TTFT above the limit that end an online run."""


def offline(laid: Cluster, trajectories: Trajectories, spec: RunSpec, *, progress: Progress | None = None) -> Result:
    """``spec.agents`` agents start together at time 0 and run to their end. Raises InputError for engines that so many
    agents can never use.
    """
    agents, seed = spec.agents or 1, spec.seed or 0
    _refuse_idle(laid, agents)
    s = state(laid, trajectories, np.zeros(agents), seed=seed)
    driver = _driver(laid, s, spec)
    stopped: Stopped = "all agents done"
    if not driver.to(LONGEST, progress):
        stopped = "interrupted"
    elif s.count["done"] < agents:
        stopped = "longest time"
    return result_of(
        "offline",
        laid,
        trajectories,
        s,
        seed,
        stopped,
        warm_up=0.0,
        rate=None,
        label=spec.label,
        changes=driver.changes,
    )


def online(
    laid: Cluster,
    trajectories: Trajectories,
    spec: RunSpec,
    *,
    arrivals: Floats | None = None,
    progress: Progress | None = None,
) -> Result:
    """Agents arrive as a Poisson process of ``spec.arrival_rate``, or at ``arrivals`` [s], for ``spec.duration``. With
    ``arrivals`` trajectory i is replayed from arrivals[i] on, and all turns count unless a warm-up is given.

    The run ends then, or when mean TTFT has been above the limit in several slices of the run in a row (not for given
    arrivals). The same seed gives the same trajectories and, but for the scale, the same arrivals at every rate (common
    random numbers). Raises InputError without a rate, for a warm-up out of range, for no arrival at all, for more than
    ``MOST_AGENTS`` of them, and for engines that they can never use.
    """
    replayed = None
    rate, seed, duration = spec.arrival_rate, spec.seed or 0, spec.duration or DURATION
    if arrivals is not None:
        replayed = np.argsort(arrivals, kind="stable")
        arrivals = arrivals[replayed]
    else:
        if rate is None:
            raise InputError("--arrival-rate", "missing: an online run without times needs a rate")
        if rate * duration > MOST_AGENTS:
            what = f"{rate:g} agents/s for {duration:g} s are more than {MOST_AGENTS:,} agents"
            raise InputError("--arrival-rate", what, "give a lower rate or a shorter --duration")
        arrivals = poisson(rate, duration, seed)
        if not len(arrivals):
            what = f"at {rate:g} agents/s no agent arrives in {duration:g} s"
            raise InputError("--arrival-rate", what, "give a higher rate or a longer --duration")
    usual = 0.0 if replayed is not None else duration * WARM_UP
    warm = usual if spec.warm_up is None else spec.warm_up
    if not 0 <= warm < duration:
        raise InputError("--warm-up", f"{warm:g} s is not before the end of the run at {duration:g} s")
    limit = spec.slo or Slo()
    _refuse_idle(laid, len(arrivals))
    s = state(laid, trajectories, arrivals, seed=seed, horizon=duration, replayed=replayed)
    driver = _driver(laid, s, spec)
    stopped: Stopped = "end of the run"
    slices: list[Slice] = []
    over = seen = 0
    end = duration
    for i in range(1, SLICES + 1):
        if not driver.to(duration * i / SLICES, progress, i / SLICES):
            stopped, end = "interrupted", float(s.total["now"])
            break
        n = int(s.count["records"])
        ended = ttft_of(s.record[seen:n])
        seen = n
        mean = float(ended.mean()) if len(ended) else None
        slices.append(Slice(start_s=duration * (i - 1) / SLICES, end_s=duration * i / SLICES, ttft_s=mean))
        over = over + 1 if mean is not None and mean > limit.ttft else 0
        if over == OVER_LIMIT and i < SLICES and replayed is None:
            stopped, end = "TTFT above the limit", duration * i / SLICES
            break
    warm = min(warm, end / 2)
    return result_of(
        "online",
        laid,
        trajectories,
        s,
        seed,
        stopped,
        warm_up=warm,
        rate=rate,
        end=end,
        label=spec.label,
        changes=driver.changes,
        slices=tuple(slices),
    )


def _refuse_idle(laid: Cluster, agents: int) -> None:
    """Raises InputError for a side with far more engines than agents that all are at one group each could use."""
    for flag, side in (("--prefill", laid.prefill), ("--decode", laid.decode)):
        used = agents * side.group
        if side.engines - used > MOST_IDLE:
            what = f"{side.nodes:,} nodes have {side.engines:,} engines, of which no more than {used:,} are ever in use"
            raise InputError(flag, f"{what} at a time, with agents: {agents:,}", "give fewer nodes or more agents")


def poisson(rate: float, duration: float, seed: int) -> Floats:
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


def _driver(laid: Cluster, s: k.State, spec: RunSpec) -> Driver:
    return Driver(s, _chosen(s, spec.compiled), None if spec.elastic is None else Controller(laid, spec.elastic))


def _chosen(s: k.State, compiled: bool | None) -> kernel.Kernel:
    """The compiled kernel, or plain Python for runs that end before the compiler would."""
    work = len(s.record) * (1 + (len(s.group) + len(s.pool)) / (GROUPS_A_TURN * s.setting.clusters))
    if compiled or (compiled is None and work > PLAIN_LIMIT):
        return kernel.compiled() or kernel.PLAIN
    return kernel.PLAIN


class Driver(NamedTuple):
    """Drives a run from time to time, with a controller of roles if there is one."""

    s: k.State
    kernel: kernel.Kernel
    controller: Controller | None

    @property
    def changes(self) -> tuple[RoleChange, ...]:
        """Changes of roles so far."""
        return () if self.controller is None else tuple(self.controller.changes)

    def to(self, until: float, progress: Progress | None, share: float | None = None) -> bool:
        """Run up to a time [s], or to the end of all agents; False if interrupted."""
        s, controller = self.s, self.controller
        step = PLAIN_EVENTS if self.kernel is kernel.PLAIN else SLICE_EVENTS
        try:
            while True:
                stop = until if controller is None else min(until, controller.next_time)
                s.total["horizon"] = stop
                while not self.kernel.run(s, step):
                    _report(s, progress, share)
                _report(s, progress, share)
                if controller is None or stop >= until or s.count["done"] == len(s.span):
                    return True
                controller.act(s, stop)
        except KeyboardInterrupt:
            return False


def _report(s: k.State, progress: Progress | None, share: float | None) -> None:
    if progress is not None:
        done = s.count["records"] / max(len(s.record), 1) if share is None else share
        progress(float(done), int(s.count["records"]), float(s.total["now"]))
