"""What to say where a demand is so near the steady rate that published runs say neither yes nor no."""

from __future__ import annotations

from typing import Any

from dualplan.plan.published.steady import KIND, carried

LEAVE_ROOM = "leave room; no command simulates several models or workloads"
SIMULATE = "let dualplan simulate --find-capacity decide; the longer its --duration, the less a run carries"


def near_limit(utilization: float, advice: str) -> str | None:
    """A sentence about a demand, as a share of the steady rate, and what to do; None where it is not near the limit."""
    found = carried()
    if not found.undecided(utilization):
        return None
    shares = f"{100 * found.lowest:.0f} % to {100 * found.highest:.0f} %"
    where = f"{found.runs} saturated runs, dualplan validate --only {KIND}"
    return f"published runs carried {shares} of their steady rates ({where}): {advice}"


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
