"""Capacity planning for prefill/decode inference clusters that load KV-cache from storage on either side.

>>> import dualplan
>>> scenario = dualplan.load("examples/dualpath-paper.yaml")
>>> answer = dualplan.evaluate(scenario)
>>> answer.feasible, answer.bottleneck.resource, answer.turns_per_s  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dualplan.plan.evaluate import Evaluation
    from dualplan.spec.scenario import Scenario
    from dualplan.spec.workload import Workload

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "load"]


def load(path: str | Path, sets: Iterable[str] = ()) -> Scenario:
    """A scenario file, with ``key.path=value`` texts laid over it; uncertain values are at their centres.

    Raises errors.InputError with every problem.
    """
    from dualplan.spec.scenario import read_scenario, resolve, set_flags

    def read_trace(trace: Path) -> Workload:
        from dualplan.trace.workload import read_trace_workload

        return read_trace_workload(trace)

    file = Path(path)
    scenario = resolve(read_scenario(file), sets=set_flags(sets), base=file.parent, read_trace=read_trace)
    if not scenario.settings.uncertain:
        return scenario
    from dualplan.spec.uncertain import centred

    return centred(scenario)


def evaluate(
    scenario: Scenario, prefill_nodes: int | None = None, decode_nodes: int | None = None, *, check_flow: bool = False
) -> Evaluation:
    """The steady answer: ranges, rate, loads, bottleneck, verdict. See dualplan.plan.evaluate.evaluate."""
    from dualplan.plan.evaluate import evaluate as steady

    return steady(scenario, prefill_nodes, decode_nodes, check_flow=check_flow)
