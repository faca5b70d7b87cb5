"""Capacity planning for prefill/decode inference clusters that load KV-cache from storage on either side.

>>> import dualplan
>>> scenario = dualplan.load("examples/dualpath-paper.yaml")
>>> answer = dualplan.evaluate(scenario)
>>> answer.feasible, answer.bottleneck.resource, answer.turns_per_s  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualplan.plan.sweep.run import Swept
    from dualplan.serving.result import Result
    from dualplan.spec.choices import Mode
    from dualplan.spec.run import RunSpec
    from dualplan.spec.scenario import Scenario
    from dualplan.spec.workload import Workload
    from dualplan.steady.answer import Evaluation

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "load", "simulate", "sweep"]


def load(path: str | Path, sets: Iterable[str] = ()) -> Scenario:
    """A scenario file, with ``key.path=value`` texts laid over it; uncertain values are at their centres.

    Raises errors.InputError with every problem.
    """
    from dualplan.spec.scenario import read_scenario, resolve, set_flags

    def read_trace(trace: Path) -> Workload:
        from dualplan.trace.workload import read_trace_workload

        return read_trace_workload(trace)

    file = Path(path)
    tree, given = read_scenario(file), set_flags(sets)
    if "uncertain" in tree.items():
        from dualplan.spec.uncertain import central_sets

        given = [*central_sets(tree), *given]
    return resolve(tree, sets=given, base=file.parent, read_trace=read_trace)


def evaluate(
    scenario: Scenario, prefill_nodes: int | None = None, decode_nodes: int | None = None, *, check_flow: bool = False
) -> Evaluation:
    """The steady answer: ranges, rate, loads, bottleneck, verdict. See dualplan.steady.answer.evaluate."""
    from dualplan.steady.answer import evaluate as steady

    return steady(scenario, prefill_nodes, decode_nodes, check_flow=check_flow)


def simulate(
    scenario: Scenario,
    *,
    agents: int | None = None,
    arrival_rate: float | None = None,
    trace: str | Path | None = None,
    trace_times: bool = False,
    duration: float | None = None,
    warm_up: float | None = None,
    seed: int | None = None,
    mode: Mode | None = None,
    max_active: int = 0,
    clusters: int = 1,
    elastic: str | None = None,
    switch_cost: float | None = None,
    tokens_per_step: float = 1.0,
    append_scale: float = 1.0,
    generated_scale: float = 1.0,
) -> Result:
    """One simulated run, as ``dualplan simulate`` makes it. Times in s, ``arrival_rate`` in agents/s.

    Offline with ``agents`` that start together; online at ``arrival_rate`` (the scenario's demand if nothing else is
    given) or at the times of a ``trace``, which must be named where the workload is one. ``max_active``: admission
    control, 0 for none; ``clusters``: equal clusters that the nodes are split into; ``elastic``: nodes change roles,
    as ``"600s:3P3D,1200s:2P4D"`` or ``"auto"``. See dualplan.plan.simulation for what it rests on and for the use of
    every resource. Raises errors.InputError, and errors.InfeasibleError for what does not fit.

    >>> found = dualplan.simulate(scenario, agents=512)  # doctest: +SKIP
    >>> found.jct_s, found.turns_per_s, found.ttft_s.p90  # doctest: +SKIP
    """
    from dualplan.plan.simulation import simulate as run
    from dualplan.spec.run import SWITCH_COST, RunSpec, parse_elastic

    cost = SWITCH_COST if switch_cost is None else switch_cost
    spec = RunSpec(
        agents=agents,
        arrival_rate=arrival_rate,
        trace=None if trace is None else str(trace),
        trace_times=trace_times,
        duration=duration,
        warm_up=warm_up,
        seed=seed,
        mode=mode,
        max_active=max_active,
        clusters=clusters,
        elastic=None if elastic is None else parse_elastic(elastic, "elastic", cost),
        tokens_per_step=tokens_per_step,
        append_scale=append_scale,
        generated_scale=generated_scale,
    )
    return run(scenario, spec)


def sweep(
    scenario: Scenario,
    vary: Mapping[str, str | Iterable[Any]],
    *,
    zipped: bool = False,
    nodes: int | None = None,
    simulate: RunSpec | None = None,
    jobs: int = 1,
    cluster: str | None = None,
) -> Swept:
    """Many points at once: ``sweep(scenario, {"prefill": range(1, 9), "hardware.snic.count": [1, 2, 4]})``.

    The result's ``columns`` are arrays with one entry a point, named as in ``dualplan sweep -f csv``. See
    dualplan.plan.sweep.run.sweep.
    """
    from dualplan.plan.sweep.run import sweep as run

    return run(scenario, vary, zipped=zipped, nodes=nodes, simulate=simulate, jobs=jobs, cluster=cluster)
