"""A sweep from Python: what ``dualplan sweep`` does, with values in and columns out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.plan.sweep.points import Points, assignments, made, parts_of, points_of
from dualplan.plan.sweep.simulated_point import SIMULATED_KEYS, for_points
from dualplan.plan.sweep.table import Table, key_columns
from dualplan.plan.sweep.workers import blocks
from dualplan.spec.change import NAMED, changed
from dualplan.spec.run import RunSpec
from dualplan.spec.scenario import Scenario
from dualplan.spec.vary import NODE_KEYS, Axis, parse_axis


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a sweep: arrays with one entry a point, in the order of the points.

    ``columns`` are named as those of ``dualplan sweep -f csv``; NaN or None where there is no value. ``error`` says why
    a point has no answer.
    """

    points: Points
    columns: dict[str, NDArray[Any]]

    def rows(self) -> list[dict[str, Any]]:
        """The points as records with dotted keys."""
        lists = {name: column.tolist() for name, column in self.columns.items()}
        return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def sweep(
    scenario: Scenario,
    vary: Mapping[str, str | Iterable[Any]],
    *,
    zipped: bool = False,
    nodes: int | None = None,
    simulate: RunSpec | None = None,
    jobs: int = 1,
    cluster: str | None = None,
) -> Swept:
    """Evaluate every combination of the values of some keys, or with ``zipped`` first values together, then second.

    ``vary``: key (``prefill``, ``decode``, ``pd``, or any key of a scenario such as ``hardware.snic.count``) to its
    values: a list, or text such as ``1..8`` as on the command line. Physical values carry units: ``["200Gb/s"]``.
    ``nodes``: what ``pd`` splits. ``simulate``: simulate points instead. ``jobs``: processes; ``cluster``: address of
    a Dask scheduler. Raises InputError where the keys or values make no sweep.
    """
    axes, ratios = [], ""
    for key, values in vary.items():
        if isinstance(values, str):
            axes.append(parse_axis(f"{key}={values}", "vary"))
            ratios = values if key == "pd" else ratios
        else:
            texts = tuple(dict.fromkeys(str(value) for value in values))
            axes.append(parse_axis(f"{key}=", "vary") if not texts else Axis(NODE_KEYS.get(key, key), texts))
            ratios = ",".join(texts) if key == "pd" else ratios
    points = points_of(scenario, axes, zipped=zipped, nodes=nodes, ratios=ratios)
    read = [axis.key for axis in axes if axis.key in NAMED and axis.key not in SIMULATED_KEYS]
    source = made(points, read, lambda pairs: changed(scenario, assignments(pairs, "vary")))
    simulate = simulate and for_points(simulate, points.count)
    table = Table(points, key_columns(points))
    parts = parts_of(points, simulate, np.arange(points.count))
    for block in blocks(source, simulate, parts, jobs=jobs, cluster=cluster):
        table.put(block)
    none = np.full(points.count, None, dtype=object)
    return Swept(points=points, columns={**table.columns, "error": table.columns.get("error", none)})
