"""Why a plan is not the best one, in words with figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from dualplan.steady.resources import TITLES
from dualplan.units import many_times, significant

if TYPE_CHECKING:
    from dualplan.plan.purchase.search import Plan


def with_reasons(plans: Sequence[Plan]) -> list[Plan]:
    """Plans with a sentence on why each but the first lost."""
    return [
        plan if i == 0 else msgspec.structs.replace(plan, lost_because=lost_because(plan, plans[0]))
        for i, plan in enumerate(plans)
    ]


def lost_because(plan: Plan, best: Plan) -> str:
    """Why a plan is behind the best one, a sentence with the figures that decide."""
    if best.confirmed is not None and plan.confirmed is None:
        return "was not simulated: --finalists takes more plans"
    if best.cost is not None and plan.cost is None:
        return f"has no price to compare; {plan.gpus} GPUs against {best.gpus}"
    figure, best_figure, unit = float(plan.gpus), float(best.gpus), "GPUs"
    if plan.cost is not None and best.cost is not None:
        figure, best_figure, unit = plan.cost, best.cost, "USD/h"
    if figure > best_figure * (1 + 1e-9):
        both = (significant(one) if unit == "USD/h" else f"{one:.0f}" for one in (figure, best_figure))
        more = f"{' against '.join(both)} {unit}"
        text = f"costs {_more(figure, best_figure)} ({more})" if unit == "USD/h" else f"takes {more}"
        return f"{text}: {_why(plan, best)}"
    if plan.nodes > best.nodes:
        return f"costs the same with more nodes, {plan.nodes} against {best.nodes}"
    if plan.headroom < best.headroom - 1e-9:
        return f"costs the same with less head-room, {_room(plan)} against {_room(best)}"
    return "is as good; the names decide the order"


def _why(plan: Plan, best: Plan) -> str:
    """Where a higher cost comes from: more nodes, because each carries less, or dearer ones."""
    rates = [one.answer.turns_per_s / one.nodes for one in (plan, best)]
    bound = TITLES.get(plan.answer.bottleneck.resource or "", "nothing that is modelled")
    if plan.nodes <= best.nodes:
        what = f"{plan.nodes} nodes against {best.nodes}"
        if plan.cost is not None and best.cost is not None:
            prices = [significant(one.cost / one.nodes) for one in (plan, best) if one.cost is not None]
            what += f", {' against '.join(prices)} USD/h each"
        return f"{what}; {significant(rates[0])} turns/s a node against {significant(rates[1])}, bound by {bound}"
    if rates[0] >= rates[1]:
        return f"{plan.nodes} nodes against {best.nodes}, for {_room(plan)} of head-room"
    each = f"{significant(rates[0])} turns/s a node against {significant(rates[1])}, bound by {bound}"
    return f"{plan.nodes} nodes against {best.nodes}; {each}"


def _room(plan: Plan) -> str:
    return many_times(1 + plan.headroom) or _per_cent(plan.headroom)


def _per_cent(share: float) -> str:
    return f"{significant(100 * share, 2)} %"


def _more(cost: float, best: float) -> str:
    """How much more a cost is, in words."""
    if not best:
        return "more"
    ratio = cost / best
    return f"{significant(ratio, 2)} times as much" if ratio >= 2 else f"{_per_cent(ratio - 1)} more"
