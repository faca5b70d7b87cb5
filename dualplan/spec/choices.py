"""The words a scenario chooses from."""

from __future__ import annotations

from typing import Literal

Mode = Literal["basic", "layerwise", "dual-path", "split-read", "dram-pool", "oracle"]
Staging = Literal["host", "gpudirect", "gds"]
Copy = Literal["cnic", "engine"]
Persist = Literal["decode", "prefill"]
Policy = Literal["shortest-queue", "round-robin"]

MODES: tuple[Mode, ...] = ("basic", "layerwise", "dual-path", "split-read", "dram-pool", "oracle")
SINGLE_SIDED: tuple[Mode, ...] = ("basic", "layerwise", "dram-pool", "oracle")
"""Modes that read on the prefill side alone."""
