"""Scenarios that differ in a few hardware numbers, as one scenario whose numbers are arrays: one entry a point.

The equations are plain arithmetic, so they give one answer a point. Only numbers that no equation branches on can be
stacked, those of the storage NICs and the bandwidth of host memory, and only where both sides are alike.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan.nomenclature import PLACED
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import Scenario

STACKED = frozenset(quantity.field for quantity in PLACED if "stack" in quantity.roles)
"""Key paths inside hardware that may be arrays."""


def stacked(scenarios: Sequence[Scenario], which: NDArray[np.int64]) -> Scenario | None:
    """Point i has scenario ``scenarios[which[i]]``; they differ in STACKED numbers only, which the caller knows.

    None where that cannot be: one of them lacks a number that another has, the sides are alike in some only, or traffic
    goes by other ways on PCIe and between the sockets, which branches on the number of storage NICs.
    """
    alike = {scenario.hardware == scenario.decode_hardware for scenario in scenarios}
    if len(scenarios) > 1 and alike != {True}:
        return None
    changes: dict[str, Any] = {}
    for path in STACKED:
        found = [_number(scenario.hardware, path) for scenario in scenarios]
        if any(value != found[0] for value in found):
            if None in found:
                return None
            pcie = scenarios[0].hardware.pcie
            if path == "snic.count" and (pcie.uplinks or pcie.numa_link is not None):
                return None
            changes[path] = np.array(found, dtype=float)[which]
    return _with_numbers(scenarios[0], changes)


def picked(scenario: Scenario, members: NDArray[np.int64]) -> Scenario:
    """A stacked scenario for some of its points; a plain one is the same for all."""
    numbers = {path: _number(scenario.hardware, path) for path in STACKED}
    return _with_numbers(scenario, {path: n[members] for path, n in numbers.items() if isinstance(n, np.ndarray)})


def _number(hardware: Hardware, path: str) -> Any:
    section, name = path.split(".")
    return getattr(getattr(hardware, section), name)


def _with_numbers(scenario: Scenario, numbers: dict[str, Any]) -> Scenario:
    """Numbers of both sides replaced by arrays. The checks of a record, which compare numbers, have passed for each
    scenario. Both sides are one record, so that they still compare as alike.
    """
    if not numbers:
        return scenario
    hardware = copy.copy(scenario.hardware)
    for path, value in numbers.items():
        section, name = path.split(".")
        part = copy.copy(getattr(hardware, section))
        msgspec.structs.force_setattr(part, name, value)
        msgspec.structs.force_setattr(hardware, section, part)
    return msgspec.structs.replace(scenario, hardware=hardware, decode_hardware=hardware)
