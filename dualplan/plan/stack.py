"""Scenarios that differ in a few hardware numbers, as one scenario whose numbers are arrays: one entry a point.

The equations are plain arithmetic, so they give one answer a point. Only numbers that no equation branches on can be
stacked: the rates, counts and efficiencies of NICs and the bandwidth of host memory.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.spec.scenario import Scenario

STACKED = frozenset({"snic.count", "snic.rate", "snic.efficiency", "snic.time_per_read", "dram.bandwidth"})
"""Key paths inside hardware that may be arrays."""


def stacked(scenarios: Sequence[Scenario], which: NDArray[np.int64]) -> Scenario | None:
    """Point i has scenario ``scenarios[which[i]]``; they differ in STACKED numbers only, which the caller knows.

    None where one of them lacks a number that another has.
    """

    def values(side: str, section: str, name: str) -> list[Any]:
        return [getattr(getattr(getattr(scenario, side), section), name) for scenario in scenarios]

    def array(found: list[Any]) -> Any:
        return np.array(found, dtype=float)[which]

    changes: dict[tuple[str, str, str], Any] = {}
    for side in ("hardware", "decode_hardware"):
        for section, name in (path.split(".") for path in STACKED):
            found = values(side, section, name)
            if any(value != found[0] for value in found):
                if None in found:
                    return None
                changes[side, section, name] = array(found)
    return _replaced(scenarios[0], changes)


def picked(scenario: Scenario, members: NDArray[np.int64]) -> Scenario:
    """A stacked scenario for some of its points; a plain one is the same for all."""
    changes = {}
    for side in ("hardware", "decode_hardware"):
        for section, name in (path.split(".") for path in STACKED):
            value = getattr(getattr(getattr(scenario, side), section), name)
            if isinstance(value, np.ndarray):
                changes[side, section, name] = value[members]
    return _replaced(scenario, changes)


def _replaced(scenario: Scenario, changes: dict[tuple[str, str, str], Any]) -> Scenario:
    """Numbers replaced by arrays. The checks of a record, which compare numbers, have passed for each scenario."""
    made: dict[str, Any] = {}
    for (side, section, name), value in changes.items():
        hardware = made.setdefault(side, copy.copy(getattr(scenario, side)))
        part = copy.copy(getattr(hardware, section))
        msgspec.structs.force_setattr(part, name, value)
        msgspec.structs.force_setattr(hardware, section, part)
    return msgspec.structs.replace(scenario, **made) if made else scenario
