"""One simulated point of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.errors import InputError
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import Workload

if TYPE_CHECKING:
    from dualplan.serving.result import Miss

MANY = 16
"""Points from which on the compiled kernel is used for short runs too: loading or compiling it then pays."""

SIMULATED_KEYS = ("agents", "append_scale", "generated_scale")
"""Keys of a sweep that belong to the simulation and not to the scenario."""


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """How points are simulated: ``agents`` that start together, or arrivals at the rate of the scenario's demand.

    ``find_capacity``: the highest arrival rate that meets the SLO. ``duration`` and ``warm_up`` of an online run [s].
    ``trace``: path of the trace that the workload is, else None. ``compiled``: whether runs are worth the compiled
    kernel, None to decide for each; the figures are the same.
    """

    agents: int | None = None
    find_capacity: bool = False
    duration: float | None = None
    warm_up: float | None = None
    append_scale: float = 1.0
    generated_scale: float = 1.0
    trace: str | None = None
    compiled: bool | None = None


def for_points(call: Simulated, count: int) -> Simulated:
    """The same for a sweep of ``count`` points: compiled where that pays, unless the call decides it."""
    return msgspec.structs.replace(call, compiled=True) if call.compiled is None and count >= MANY else call


def simulate_point(scenario: Scenario, call: Simulated, pairs: Mapping[str, str]) -> dict[str, Any]:
    """The figures of one run, named as the keys of ``simulate --json``; ``missed_by`` is in words.

    ``pairs``: varied values, of which SIMULATED_KEYS replace those of the call. ``feasible``: the SLO was met, or the
    job ended. Raises InputError, and InfeasibleError where weights or a context do not fit.
    """
    from dualplan.plan.simulation import Options, simulate, slo_of
    from dualplan.serving.result import misses
    from dualplan.serving.run import DURATION, find_capacity

    factors = (
        factor_of(pairs[key], key) if key in pairs else getattr(call, key)
        for key in ("append_scale", "generated_scale")
    )
    agents = agents_of(pairs["agents"], "agents") if "agents" in pairs else call.agents
    settings, slo = scenario.settings, slo_of(scenario)
    trajectories = _trajectories(scenario.workload, settings.seed, *factors, call.trace)
    if call.find_capacity:
        laid = Options().lay_out(scenario, trajectories)
        duration = DURATION if call.duration is None else call.duration
        found = find_capacity(laid, trajectories, slo=slo, duration=duration, warm_up=call.warm_up, seed=settings.seed)
        if found.interrupted:
            raise KeyboardInterrupt
        return {
            "feasible": found.met > 0,
            "capacity_agents_per_s": found.met,
            "interval.lower": found.met,
            "interval.upper": found.missed,
            "missed_by": _in_words(misses(found.beyond, slo)) if found.beyond is not None else None,
            "seed": settings.seed,
        }
    if agents is None and settings.demand.arrival_rate is None:
        raise InputError("--simulate", "nothing arrives", "give --agents N, --arrival-rate R or --find-capacity")
    online = agents is None
    result = simulate(
        scenario,
        agents=agents,
        duration=call.duration if online else None,
        warm_up=call.warm_up if online else None,
        drawn=(trajectories, None),
        slo=slo,
        compiled=call.compiled,
    )
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    missed = misses(result, slo) if result.kind == "online" else ()
    row: dict[str, Any] = {"feasible": not missed}
    if result.kind == "online":
        row |= {"slo_met": not missed, "missed_by": _in_words(missed)}
    row |= {"jct_s": result.jct_s, "turns": result.turns, "turns_per_s": result.turns_per_s}
    row |= {name: getattr(result, name) for name in ("prompt_tokens_per_s", "output_tokens_per_s")}
    for name in ("ttft_s", "ttst_s", "tpot_s", "agent_time_s"):
        row |= {f"{name}.{key}": value for key, value in msgspec.structs.asdict(getattr(result, name)).items()}
    row |= {name: getattr(result, name) for name in ("decode_read_share", "agents", "arrival_rate", "seed")}
    return {**row, "simulated_s": result.simulated_s, "stopped": result.stopped}


def _in_words(missed: Sequence[Miss]) -> str | None:
    return "; ".join(str(miss.text) for miss in missed) or None


@lru_cache(maxsize=16)
def _trajectories(workload: Workload, seed: int, append: float, generated: float, trace: str | None) -> Any:
    """What the agents replay; drawn once for the points that share it."""
    from dualplan.plan.simulation import trajectories_of

    if workload.mix and (trace is None or Path(trace).name != workload.name):
        raise InputError("workload", "a trace cannot be simulated without its file", "give it as --workload")
    return trajectories_of(workload, seed=seed, trace=trace, scales=(append, generated))[0]


def factor_of(text: str, where: str) -> float:
    """A factor above 0. Raises InputError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise InputError(where, f'"{text[:40]}" is not a factor above 0')
    return value


def agents_of(text: str, where: str) -> int:
    """A number of agents. Raises InputError."""
    from dualplan.serving.run import MOST_AGENTS

    if not text.isdecimal() or not 0 < int(text[:12]) <= MOST_AGENTS:
        raise InputError(where, f'"{text[:40]}" is not a whole number of 1 to {MOST_AGENTS:,}')
    return int(text)
