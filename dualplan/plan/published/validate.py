"""Published figures against predictions: errors point by point, and what they come to by kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from dualplan.plan.published.points import kinds, points
from dualplan.plan.published.recompute import NotAtHandError, Samples, recompute
from dualplan.plan.published.records import Goals, Kind, Point

SMALL = 400_000.0
"""Turns of a simulation up to which it belongs to the small points: about half a second."""

Progress = Callable[[int, int], None]
"""Called with the number of points done and that of all."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A figure and its prediction. ``error`` is what the tolerance is of: relative to the published value, or absolute
    in its unit; ``within`` is None where no tolerance is stated; ``skipped`` says why nothing was computed.
    """

    point: Point
    predicted: float | None
    relative_error: float | None
    error: float | None
    tolerance: float | None
    tolerance_is: Literal["relative", "absolute"]
    within: bool | None
    skipped: str = ""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What a statistic of the errors should be, and is."""

    statistic: str
    goal: float
    found: float
    met: bool


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of a kind, without their signs: ``median``, ``p90`` and ``worst`` of ``count`` figures; ``within``
    of the ``judged`` ones keep their tolerance.
    """

    kind: str
    title: str
    why: str
    count: int
    skipped: int
    error_is: Literal["relative", "absolute"]
    median: float | None
    p90: float | None
    worst: float | None
    worst_id: str | None
    tolerance: float | None
    judged: int
    within: int
    goals: tuple[Goal, ...]


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """All comparisons and their summary by kind. ``full``: whether large runs were made too; ``left_out``: how many
    points belong to them; ``interrupted``: stopped before the end.
    """

    comparisons: tuple[Comparison, ...]
    summaries: tuple[Summary, ...]
    full: bool
    left_out: int
    interrupted: bool = False

    @property
    def outside(self) -> tuple[Comparison, ...]:
        """Figures outside their tolerance."""
        return tuple(found for found in self.comparisons if found.within is False)


def chosen(*, full: bool = False, only: Iterable[str] = ()) -> list[Point]:
    """The published figures of some kinds, or of all; ``full``: those that take long too."""
    wanted = set(only)
    return [point for point in points() if (not wanted or point.kind in wanted) and (full or point.effort <= SMALL)]


def validate(
    *,
    full: bool = False,
    only: Iterable[str] = (),
    samples: Samples | None = None,
    progress: Progress | None = None,
) -> Validation:
    """Recompute the published figures and compare. An interruption keeps what is done."""
    only = tuple(only)
    wanted = chosen(full=full, only=only)
    found: list[Comparison] = []
    interrupted = False
    table = kinds()
    try:
        for point in wanted:
            found.append(compare(point, table[point.kind], samples))
            if progress is not None:
                progress(len(found), len(wanted))
    except KeyboardInterrupt:
        interrupted = True
    return Validation(
        comparisons=tuple(found),
        summaries=summarise(found, table),
        full=full,
        left_out=len(chosen(full=True, only=only)) - len(wanted),
        interrupted=interrupted,
    )


def compare(point: Point, kind: Kind, samples: Samples | None = None) -> Comparison:
    """Recompute one figure."""
    absolute = kind.absolute is not None
    tolerance = kind.absolute if absolute else kind.tolerance
    predicted: float | None = None
    skipped = ""
    try:
        predicted = recompute(point.given, samples)
        if not math.isfinite(predicted):
            predicted, skipped = None, "the model gives no value"
    except NotAtHandError as reason:
        skipped = str(reason)
    relative = None if predicted is None else predicted / point.published - 1
    error = relative
    if predicted is not None and relative is not None:
        if absolute:
            error = predicted - point.published
        elif kind.ratio:
            error = math.copysign(math.exp(abs(math.log(predicted / point.published))) - 1, relative)
    # a step of 0.05 is not exactly that in binary
    within = None if error is None or tolerance is None else abs(error) <= tolerance * (1 + 1e-9)
    if skipped == "the model gives no value" and tolerance is not None:
        within = False
    return Comparison(
        point=point,
        predicted=predicted,
        relative_error=relative,
        error=error,
        tolerance=tolerance,
        tolerance_is="absolute" if absolute else "relative",
        within=within,
        skipped=skipped,
    )


def summarise(found: Sequence[Comparison], table: dict[str, Kind]) -> tuple[Summary, ...]:
    """The errors by kind, in the order of the kinds; kinds without points are left out."""
    return tuple(
        _summary(name, kind, [one for one in found if one.point.kind == name])
        for name, kind in table.items()
        if any(one.point.kind == name for one in found)
    )


def _summary(name: str, kind: Kind, found: Sequence[Comparison]) -> Summary:
    errors = sorted((abs(one.error), one.point.id) for one in found if one.error is not None)
    sizes = [size for size, _ in errors]
    statistics = {"median": _quantile(sizes, 0.5), "p90": _quantile(sizes, 0.9), "worst": sizes[-1] if sizes else None}
    judged = [one.within for one in found if one.within is not None]
    return Summary(
        kind=name,
        title=kind.title,
        why=kind.why,
        count=len(sizes),
        skipped=len(found) - len(sizes),
        error_is="relative" if kind.absolute is None else "absolute",
        median=statistics["median"],
        p90=statistics["p90"],
        worst=statistics["worst"],
        worst_id=errors[-1][1] if errors else None,
        tolerance=kind.tolerance if kind.absolute is None else kind.absolute,
        judged=len(judged),
        within=sum(judged),
        goals=_goals(kind.goals, statistics),
    )


def _goals(goals: Goals, statistics: dict[str, float | None]) -> tuple[Goal, ...]:
    result = []
    for name, value in statistics.items():
        goal: float | None = getattr(goals, name)
        if goal is not None and value is not None:
            result.append(Goal(statistic=name, goal=goal, found=value, met=value <= goal))
    return tuple(result)


def _quantile(ascending: Sequence[float], share: float) -> float | None:
    """The quantile of sorted values, between neighbours in proportion."""
    if not ascending:
        return None
    place = share * (len(ascending) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (place - below) * (ascending[above] - ascending[below])
