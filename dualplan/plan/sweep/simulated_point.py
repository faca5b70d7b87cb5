"""One simulated point of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.errors import InputError
from dualplan.spec.run import MOST_AGENTS, RunSpec, slo_of
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import Workload
from dualplan.units import factor, whole

if TYPE_CHECKING:
    from dualplan.serving.result import Miss

MANY = 16
"""Points from which on the compiled kernel is used for short runs too: loading or compiling it then pays."""

SCALES = ("append_scale", "generated_scale")
SIMULATED_KEYS = ("agents", *SCALES)
"""Keys of a sweep that belong to the simulation and not to the scenario."""


def for_points(spec: RunSpec, count: int) -> RunSpec:
    """The same for a sweep of ``count`` points: compiled where that pays, unless the call decides it."""
    return spec.but(compiled=True) if spec.compiled is None and count >= MANY else spec


def simulate_point(scenario: Scenario, spec: RunSpec, pairs: Mapping[str, str]) -> dict[str, Any]:
    """The figures of one run, named as the keys of ``simulate --json``; ``missed_by`` is in words.

    ``pairs``: varied values, of which SIMULATED_KEYS replace those of the run. ``feasible``: the SLO was met, or the
    job ended. Raises InputError, and InfeasibleError where weights or a context do not fit.
    """
    from dualplan.plan.simulation import lay_out, simulate
    from dualplan.serving.capacity import find_capacity
    from dualplan.serving.result import misses

    own: dict[str, Any] = {key: factor(pairs[key], key) for key in SCALES if key in pairs}
    if not spec.find_capacity and "agents" in pairs:
        own |= {"agents": whole(pairs["agents"], "agents", most=MOST_AGENTS)}
        own |= dict.fromkeys(("arrival_rate", "duration", "warm_up"))
    spec = spec.but(**own).of(scenario)
    slo = spec.slo or slo_of(scenario)
    shared = RunSpec(seed=spec.seed, trace=spec.trace, **{key: getattr(spec, key) for key in SCALES})
    trajectories = _trajectories(scenario.workload, shared)
    if spec.find_capacity:
        found = find_capacity(lay_out(scenario, trajectories, spec), trajectories, spec)
        if found.interrupted:
            raise KeyboardInterrupt
        return {
            "feasible": found.met > 0,
            "capacity_agents_per_s": found.met,
            "interval.lower": found.met,
            "interval.upper": found.missed,
            "missed_by": _in_words(misses(found.beyond, slo)) if found.beyond is not None else None,
            "seed": spec.seed,
        }
    if not spec.arrives:
        raise InputError("--simulate", "nothing arrives", "give --agents N, --arrival-rate R or --find-capacity")
    result = simulate(scenario, spec, drawn=(trajectories, None))
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
def _trajectories(workload: Workload, spec: RunSpec) -> Any:
    """What the agents replay; drawn once for the points that share it."""
    from dualplan.plan.simulation import trajectories_of

    if workload.mix and (spec.trace is None or Path(spec.trace).name != workload.name):
        raise InputError("workload", "a trace cannot be simulated without its file", "give it as --workload")
    return trajectories_of(workload, spec)[0]
