"""The rate over every split of the same number of nodes, with the one that was asked about."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from dualplan.steady.resources import TITLES

if TYPE_CHECKING:
    from dualplan.steady.answer import Evaluation


MOST_SPLITS = 2_000
MOST_MIXED = 200
"""Most splits that are looked at, all at once or, of several workloads, one by one; a terminal shows fewer."""


def splits_chart(answer: Evaluation, width: int) -> list[str]:
    """Turns/s over P/D at as many nodes as the answer has, with what binds. Whole nodes; nodes that differ are taken
    as the usual ones.
    """
    from dualplan.report.chart import Mark, line_chart

    nodes = answer.prefill_nodes + answer.decode_nodes
    marks = []
    counts = _counts(answer.prefill_nodes, nodes, MOST_MIXED if answer.scenario.mix else MOST_SPLITS)
    for prefill, (rate, name, feasible) in zip(counts, _splits(answer, nodes, counts), strict=True):
        ratio = Fraction(prefill, nodes - prefill)
        marks.append(
            Mark(
                label=f"{ratio.numerator}:{ratio.denominator}",
                value=rate,
                region=TITLES.get(name or "", ""),
                feasible=feasible,
                chosen=prefill == answer.prefill_nodes,
            )
        )
    return line_chart(marks, f"turns/s over P/D at {nodes:,} nodes", width)


def _counts(chosen: int, nodes: int, most: int) -> list[int]:
    """Prefill nodes of the splits to look at: all, or of very many some at even distances and the chosen one."""
    if nodes - 1 <= most:
        return list(range(1, nodes))
    return sorted({1 + index * (nodes - 2) // (most - 1) for index in range(most)} | {chosen})


def _splits(answer: Evaluation, nodes: int, counts: list[int]) -> Iterator[tuple[float | None, str | None, bool]]:
    """Rate, bottleneck and verdict of splits with so many prefill nodes."""
    scenario = answer.scenario
    if scenario.mix:
        from dualplan.steady.answer import evaluate

        for prefill in counts:
            one = evaluate(scenario, prefill, nodes - prefill)
            yield one.turns_per_s, one.bottleneck.resource, one.feasible
        return
    from dualplan.steady.grid import evaluate_grid

    grid = evaluate_grid(scenario, counts, [nodes - count for count in counts])
    feasible = grid.fits & grid.inside_range & grid.meets_slo
    for index in range(len(counts)):
        rate = None if grid.error[index] else float(grid.turns_per_s[index])
        yield rate, str(grid.bottleneck[index]), bool(feasible[index])
