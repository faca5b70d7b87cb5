"""What to say where a demand is so near the steady rate that published runs say neither yes nor no."""

from __future__ import annotations

from typing import Any

from dualplan.messages import Message, message
from dualplan.plan.published.steady import KIND, carried

LEAVE_ROOM = message("near.leave_room")
SIMULATE = message("near.simulate")


def near_limit(utilization: float, advice: Message | str) -> Message | None:
    """A message about a demand, as a share of the steady rate, and what to do; None where it is not near the limit."""
    found = carried()
    if not found.undecided(utilization):
        return None
    shares = {"lowest": found.lowest, "highest": found.highest}
    return message("near.carried", **shares, runs=found.runs, kind=KIND, advice=advice)


def near_limit_document(utilization: float) -> dict[str, Any] | None:
    """The same for machines."""
    found = carried()
    if not found.undecided(utilization):
        return None
    return {
        "published_runs": found.runs,
        "lowest_share_of_steady_rate": found.lowest,
        "highest_share_of_steady_rate": found.highest,
        "source": f"dualplan validate --only {KIND}",
    }
