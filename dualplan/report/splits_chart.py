"""The rate over every split of the same number of nodes, with the one that was asked about."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dualplan.plan.resources import TITLES

if TYPE_CHECKING:
    from dualplan.plan.evaluate import Evaluation


def splits_chart(answer: Evaluation, width: int) -> list[str]:
    """Turns/s over P/D at as many nodes as the answer has, with what binds. Whole nodes; nodes that differ are taken
    as the usual ones.
    """
    from dualplan.plan.grid import evaluate_grid
    from dualplan.report.chart import Mark, line_chart

    scenario, nodes = answer.scenario, answer.prefill_nodes + answer.decode_nodes
    prefill = list(range(1, nodes))
    grid = evaluate_grid(scenario, prefill, [nodes - count for count in prefill])
    marks = []
    for index, count in enumerate(prefill):
        ratio = Fraction(count, nodes - count)
        fits = bool(grid.fits[index] and grid.inside_range[index] and grid.meets_slo[index])
        marks.append(
            Mark(
                label=f"{ratio.numerator}:{ratio.denominator}",
                value=None if grid.error[index] else float(grid.turns_per_s[index]),
                region=TITLES.get(str(grid.bottleneck[index]), ""),
                feasible=fits,
                chosen=count == answer.prefill_nodes,
            )
        )
    return line_chart(marks, f"turns/s over P/D at {nodes:,} nodes", width)
