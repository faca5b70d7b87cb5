"""A trace as a workload, so that it can be planned for."""

from __future__ import annotations

from pathlib import Path

from dualplan.errors import InputError, printable
from dualplan.spec.workload import Workload
from dualplan.trace.mix import turn_mix
from dualplan.trace.read import read_trace
from dualplan.trace.record import Trace

SESSION_BLOCK = 64
"""Cache block where a trace tells only how sessions grow [tokens]: the block of DualPath and of most engines'
stores.
"""


def workload_of_trace(trace: Trace, name: str) -> Workload:
    """Weighted representative turns of a trace with its means. Contexts known from block ids, or reported by the
    server, are hits.

    Where only the growth of sessions is known, whole blocks of 64 tokens of the cached prefix hit. Raises InputError
    where every request is free of computed or generated tokens, or nothing tells the cached part and all of the prompt
    would be computed.
    """
    mix = turn_mix(trace)

    def mean(values: list[float]) -> float:
        return sum(turn.weight * value for turn, value in zip(mix.turns, values, strict=True))

    context, append, generated = (
        mean([getattr(turn, field) for turn in mix.turns]) for field in ("context", "append", "generated")
    )
    if append <= 0:
        raise InputError(name, "no request has a token that is not cached, so there is nothing to plan for")
    name = printable(name)
    return Workload(
        name=name,
        description=f"read from a trace ({trace.report.format}, {trace.requests} requests)",
        turns=max(mix.turns_per_session, 1.0),
        context=context,
        append=append,
        generated=generated,
        mix=mix.turns,
        think_time=mix.think_time_s or 0.0,
        block=SESSION_BLOCK if mix.accounting == "session_growth" else 1,
        notes=() if mix.accounting else ("nothing in the trace tells what is cached: every prompt is computed whole",),
        sources=(f"trace {name}: {trace.report.format}, {trace.report.format_because}",),
    )


def read_trace_workload(path: Path) -> Workload:
    """A trace file as a workload."""
    return workload_of_trace(read_trace(str(path)), path.name)
