"""The capacity of a deployment under an SLO: the highest arrival rate that meets it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dualplan.errors import InputError
from dualplan.serving.cluster import Cluster
from dualplan.serving.prefill_load import turn_works
from dualplan.serving.result import Result, meets
from dualplan.serving.run import Progress, online, poisson
from dualplan.serving.trajectories import Trajectories
from dualplan.spec.run import DURATION, MOST_AGENTS, RunSpec, Slo


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The highest arrival rate that meets the SLO [agents/s]: ``met`` was met, ``missed`` was not.

    ``results``: the runs in order of their rates. ``met`` is 0 when no rate that was tried met the SLO, ``missed`` is
    None when all did, up to ``MOST_AGENTS`` in a run. ``interrupted``: the search was not finished; ``results`` holds
    the run that was stopped where no other was finished.
    """

    met: float
    missed: float | None
    slo: Slo
    results: tuple[Result, ...]
    interrupted: bool = False

    @property
    def best(self) -> Result:
        """The run at the highest rate that was met, or at the lowest one if none was."""
        met = [run for run in self.results if run.arrival_rate is not None and run.arrival_rate <= self.met]
        return met[-1] if met else self.results[0]

    @property
    def beyond(self) -> Result | None:
        """The run at the lowest rate that was missed; None where none was."""
        missed = [run for run in self.results if run.arrival_rate == self.missed]
        return missed[0] if missed else None


def find_capacity(
    laid: Cluster, trajectories: Trajectories, spec: RunSpec, *, progress: Progress | None = None
) -> Capacity:
    """Bisection on the arrival rate with the same random numbers at every rate, down to a bracket of relative width
    ``spec.tolerance``; where nodes change their roles, they do in every run.

    Starts from what the prefill engines can compute and widens until one rate is met and one is missed, up to
    ``MOST_AGENTS`` in a run and down to a rate at which none arrives. Raises InputError where the run is too short
    for any turn to end, or so long that the first rate brings too many agents.
    """
    limit, seed, duration, tolerance = spec.slo or Slo(), spec.seed or 0, spec.duration or DURATION, spec.tolerance
    start = _prefill_bound(laid, trajectories)
    if start * duration > MOST_AGENTS:
        what = f"in {duration:g} s more than {MOST_AGENTS:,} agents arrive at {start:g} agents/s"
        raise InputError("--duration", what, "run shorter")
    if not len(poisson(start, duration, seed)):
        raise InputError("--duration", f"no agent arrives in {duration:g} s at {start:g} agents/s", "run longer")
    runs: dict[float, Result] = {}
    partial: Result | None = None

    def met(rate: float) -> bool:
        nonlocal partial
        run = online(laid, trajectories, spec.but(arrival_rate=rate, find_capacity=False), progress=progress)
        if run.stopped == "interrupted":
            partial = run
            raise KeyboardInterrupt
        runs[rate] = run
        return meets(run, limit)

    interrupted = False
    try:
        low, high = _bracket(met, start, duration, seed)
        while low and high is not None and high - low > tolerance * high:
            middle = (low + high) / 2
            low, high = (middle, high) if met(middle) else (low, middle)
    except KeyboardInterrupt:
        if not runs:
            if partial is None or not partial.turns:
                raise
            return Capacity(met=0.0, missed=None, slo=limit, results=(partial,), interrupted=True)
        interrupted = True
        low = max((rate for rate, run in runs.items() if meets(run, limit)), default=0.0)
        high = min((rate for rate, run in runs.items() if not meets(run, limit)), default=None)
    if not low and not interrupted and not any(run.turns for run in runs.values()):
        raise InputError("--duration", f"no turn ended in the part of {duration:g} s that counts", "run longer")
    results = tuple(runs[rate] for rate in sorted(runs))
    return Capacity(met=low, missed=high, slo=limit, results=results, interrupted=interrupted)


def _bracket(met: Callable[[float], bool], start: float, duration: float, seed: int) -> tuple[float, float | None]:
    """A rate that meets the SLO and one that does not; 0 where none is met, None where all are."""
    low, high = 0.0, start
    while met(high):
        if 1.5 * high * duration > MOST_AGENTS:
            return high, None
        low, high = high, 1.5 * high
    if low:
        return low, high
    low = high
    while len(poisson(low := low / 1.5, duration, seed)):
        if met(low):
            return low, high
        high = low
    return 0.0, high


def _prefill_bound(laid: Cluster, trajectories: Trajectories) -> float:
    """Agents/s that the prefill engines could compute if they never idled."""
    work, side = float(turn_works(laid, trajectories).sum()), laid.prefill
    agents = len(trajectories.offsets) - 1
    # of the nodes at the start, so that a search with changing roles begins where one without them does
    engines = side.engines * side.first_nodes / side.nodes
    return engines / (work / agents) if work > 0 else 1.0
