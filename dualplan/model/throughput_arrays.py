"""The programme of dualplan.model.throughput for many deployments at once: the same walk, a column for each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def lowest_point(starts: Floats, slopes: Floats) -> Floats:
    """Column by column, the x in 0..1 at which the largest of the lines ``starts + x*slopes`` is smallest."""
    columns = np.arange(starts.shape[1])
    share = np.zeros(starts.shape[1])
    if not len(starts):
        return share
    left = np.lexsort((slopes, starts), axis=0)[-1]
    right = np.lexsort((-slopes, starts + slopes), axis=0)[-1]
    flat = slopes[left, columns] >= 0
    end = ~flat & (slopes[right, columns] < 0)
    share[end] = 1.0
    active = ~flat & ~end
    for _ in range(len(starts) + 2):
        if not active.any():
            break
        at = columns[active]
        l, r = left[active], right[active]  # noqa: E741
        x = (starts[l, at] - starts[r, at]) / (slopes[r, at] - slopes[l, at])
        values = starts[:, at] + x * slopes[:, at]
        highest = values.argmax(axis=0)
        done = values.max(axis=0) <= (starts[l, at] + x * slopes[l, at]) * (1 + 1e-14)
        share[at] = x
        falls = slopes[highest, at] < 0
        left[at] = np.where(falls & ~done, highest, l)
        right[at] = np.where(~falls & ~done, highest, r)
        active[at[done]] = False
    return share


def level(starts: Floats, slopes: Floats, top: Floats) -> tuple[Floats, Floats]:
    """Column by column the interval of x in 0..1 where no line exceeds ``top``."""
    reach = top * (1 + 1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (top - starts) / slopes
    low = np.where((starts > reach) & (slopes < 0), x, 0.0).max(axis=0)
    high = np.where((starts + slopes > reach) & (slopes > 0), x, 1.0).min(axis=0)
    return low, np.maximum(low, high)
