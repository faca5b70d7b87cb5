"""The state of simulated runs over time, as columns and as trace events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualplan.plan.simulation import series
from dualplan.report.output import csv_text
from dualplan.report.simulate import SERIES
from dualplan.serving.result import Result


def timeline(results: Sequence[Result], form: str) -> str:
    """The state over time, of all rows: ``csv`` columns, else trace events that Perfetto and Chrome show as counters.

    Both have every sample of a run. Utilisation is the mean since the sample before. Times of trace events are in
    microseconds of simulated time.
    """
    return _columns(results) if form == "csv" else _events(results)


def _columns(results: Sequence[Result]) -> str:
    rows: list[dict[str, Any]] = []
    for result in results:
        over_time = series(result, np.arange(len(result.samples)))
        for i, sample in enumerate(result.samples):
            row: dict[str, Any] = {"run": result.label, "mode": result.cluster.mode}
            row |= {name: float(sample[column]) for name, column in SERIES}
            row |= {f"utilization.{name}": float(values[i]) for name, values in over_time.utilization.items()}
            row |= {
                f"max_over_mean.{name}": None if np.isnan(values[i]) else float(values[i])
                for name, values in over_time.max_over_mean.items()
            }
            rows.append(row)
    return csv_text(rows)


def _events(results: Sequence[Result]) -> str:
    events: list[dict[str, Any]] = []
    for number, result in enumerate(results):
        name = f"mode {result.label}"
        events.append({"name": "process_name", "ph": "M", "pid": number, "args": {"name": name}})
        over_time = series(result, np.arange(len(result.samples)))
        for i, sample in enumerate(result.samples):
            at = {"ph": "C", "pid": number, "ts": 1e6 * float(sample["time"])}
            turns = {
                "waiting": float(sample["waiting"]),
                "prefilling": float(sample["prefilling"]),
                "decoding": float(sample["decoding"]),
            }
            events.append({"name": "turns", **at, "args": turns})
            events.append({"name": "agents waiting", **at, "args": {"agents": float(sample["unadmitted"])}})
            events.append({"name": "turns done", **at, "args": {"turns": float(sample["turns"])}})
            events.append({"name": "working set", **at, "args": {"bytes": float(sample["working_set"])}})
            events.append({"name": "read from storage", **at, "args": {"bytes": float(sample["read"])}})
            buffers = {"prefill": float(sample["prefill_buffer"]), "decode": float(sample["decode_buffer"])}
            events.append({"name": "host buffers", **at, "args": buffers})
            for resource, values in over_time.utilization.items():
                events.append({"name": f"utilization {resource}", **at, "args": {"share": float(values[i])}})
            for resource, values in over_time.max_over_mean.items():
                if not np.isnan(values[i]):
                    events.append({"name": f"max/mean {resource}", **at, "args": {"ratio": float(values[i])}})
        for change in result.changes:
            nodes = f"{change.prefill_nodes}P{change.decode_nodes}D"
            at = {"ph": "X", "pid": number, "tid": 0, "ts": 1e6 * change.decided_s}
            took = 1e6 * (change.ready_s - change.decided_s)
            events.append({"name": f"change to {nodes}", **at, "dur": took})
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n"
