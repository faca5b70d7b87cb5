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
    from dualplan.plan.evaluate import Evaluation
    from dualplan.plan.simulated import Simulated
    from dualplan.plan.swept import Swept
    from dualplan.spec.scenario import Scenario
    from dualplan.spec.workload import Workload

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "load", "sweep"]


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
    """The steady answer: ranges, rate, loads, bottleneck, verdict. See dualplan.plan.evaluate.evaluate."""
    from dualplan.plan.evaluate import evaluate as steady

    return steady(scenario, prefill_nodes, decode_nodes, check_flow=check_flow)


def sweep(
    scenario: Scenario,
    vary: Mapping[str, str | Iterable[Any]],
    *,
    zipped: bool = False,
    nodes: int | None = None,
    simulate: Simulated | None = None,
    jobs: int = 1,
    cluster: str | None = None,
) -> Swept:
    """Many points at once: ``sweep(scenario, {"prefill": range(1, 9), "hardware.snic.count": [1, 2, 4]})``.

    The result's ``columns`` are arrays with one entry a point, named as in ``dualplan sweep -f csv``. See
    dualplan.plan.swept.sweep.
    """
    from dualplan.plan.swept import sweep as run

    return run(scenario, vary, zipped=zipped, nodes=nodes, simulate=simulate, jobs=jobs, cluster=cluster)
