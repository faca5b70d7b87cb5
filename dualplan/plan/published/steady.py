"""What published runs carried of their steady rates: for a demand near the limit the steady answer does not decide."""

from __future__ import annotations

from functools import cache

import msgspec

from dualplan.plan.published.validate import validate

KIND = "steady"
"""The published figures: turn rates of saturated runs."""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """Turn rates of ``runs`` published saturated runs over the steady rates of their deployments."""

    runs: int
    lowest: float
    highest: float

    def undecided(self, utilization: float) -> bool:
        """Whether a demand, as a share of the steady rate, lies between what runs carried at worst and at best."""
        return self.lowest < utilization < self.highest


@cache
def carried() -> Carried:
    """The shares, of the figures that ``dualplan validate`` compares."""
    found = [one for one in validate(only=(KIND,)).comparisons if one.predicted]
    shares = [one.point.published / one.predicted for one in found if one.predicted]
    return Carried(runs=len(shares), lowest=min(shares), highest=max(shares))
