"""Who is told that the simulation is being compiled. Loads nothing, so that a command line can say so at its start."""

from __future__ import annotations

from collections.abc import Callable

SECONDS = 18.0
"""Time that machine code takes to make, once on a machine [s]."""

listeners: list[Callable[[bool], None]] = []
"""Called with True before machine code is made and with False when it is done, not where it is loaded."""
