"""What a report says about one scenario, computed once: the answer, other modes and splits, losses of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.errors import InputError
from dualplan.plan.purchase.cost import Prices
from dualplan.spec.choices import MODES, Mode
from dualplan.spec.scenario import Scenario
from dualplan.steady.answer import Evaluation, evaluate

if TYPE_CHECKING:
    from dualplan.steady.grid import Curve, Grid

CURVE_POINTS = 481
CURVE_SPAN = 16.0
"""The curve runs from 1/16 to 16 nodes of one side for one of the other, further if the deployment or a range does."""

MOST_SPLITS = 40
"""Splits of whole nodes that are shown; of more nodes a selection, evenly over P/D."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """The deployment with a node of one side down; ``answer`` None where that was its last one."""

    side: str
    answer: Evaluation | None


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario. ``label``: what the report calls it. ``modes``: each mode on the same nodes, in their order.

    ``curve`` and ``splits``: the rate over P/D of as many nodes, in fractions and whole. ``simulation``: the document
    of ``dualplan simulate``, where asked for. ``prices``: given ones, before those of the profiles.
    """

    label: str
    file: str | None
    answer: Evaluation
    modes: tuple[Evaluation, ...]
    curve: Curve
    splits: Grid
    losses: tuple[Loss, ...]
    simulation: dict[str, Any] | None = None
    prices: Prices = Prices()


def review(
    scenario: Scenario,
    *,
    label: str = "",
    file: str | None = None,
    simulation: dict[str, Any] | None = None,
    prices: Prices | None = None,
) -> Review:
    """Everything that a report needs to know of a scenario. Raises InputError without node counts."""
    answer = evaluate(scenario)
    prefill, decode = answer.prefill_nodes, answer.decode_nodes
    return Review(
        label=label,
        file=file,
        answer=answer,
        modes=tuple(evaluate(with_mode(answer.scenario, mode)) for mode in MODES),
        curve=_curve(answer),
        splits=_splits(scenario, prefill, prefill + decode),
        losses=(
            Loss(side="prefill", answer=_fewer(scenario, prefill - 1, decode)),
            Loss(side="decode", answer=_fewer(scenario, prefill, decode - 1)),
        ),
        simulation=simulation,
        prices=prices or Prices(),
    )


def with_mode(scenario: Scenario, mode: Mode) -> Scenario:
    """The scenario under another mode."""
    return msgspec.structs.replace(scenario, settings=msgspec.structs.replace(scenario.settings, mode=mode))


def _curve(answer: Evaluation) -> Curve:
    import numpy as np

    from dualplan.steady.grid import ratio_curve

    found = answer.ranges.all_traffic
    ends = [answer.prefill_nodes / answer.decode_nodes, *(float(end) for end in (found.lower, found.upper) if end)]
    low = min(1 / CURVE_SPAN, *(end / 2 for end in ends))
    high = max(CURVE_SPAN, *(end * 2 for end in ends))
    ratios = np.geomspace(low, high, CURVE_POINTS)
    return ratio_curve(answer.scenario, answer.prefill_nodes, answer.decode_nodes, ratios)


def _splits(scenario: Scenario, chosen: int, nodes: int) -> Grid:
    """Whole-node splits, all of few nodes, of many a selection."""
    import numpy as np

    from dualplan.steady.grid import evaluate_grid

    prefill = np.arange(1, nodes)
    if len(prefill) > MOST_SPLITS:
        even = np.linspace(np.log(1 / (nodes - 1)), np.log(nodes - 1), MOST_SPLITS)
        ratio = np.exp(even)
        prefill = np.clip(np.round(nodes * ratio / (1 + ratio)), 1, nodes - 1).astype(int)
        prefill = np.unique([*prefill, chosen])
    return evaluate_grid(scenario, prefill, nodes - prefill)


def _fewer(scenario: Scenario, prefill: int, decode: int) -> Evaluation | None:
    if not (prefill and decode):
        return None
    try:
        return evaluate(scenario, prefill, decode)
    except InputError:  # a given parallelism that fewer nodes cannot host
        return None
