"""What a plan needs from a trace: turns per session, waits, and a few weighted turns that stand for all."""

from __future__ import annotations

import msgspec
import numpy as np

from dualplan.spec.workload import Turn
from dualplan.trace.hits import Accounting, context_tokens, main_accounting
from dualplan.trace.record import Ints, Trace


class TraceMix(msgspec.Struct, frozen=True, kw_only=True):
    """``turns``: representative turns, weights sum to 1, lengths in tokens. ``turns_per_session``: mean, 1 where the
    trace has no sessions. ``think_time_s``: mean of those known before later turns, None where none is.
    ``accounting``: what says which part of a prompt is context; None: nothing does, and all of it is append.
    """

    turns_per_session: float
    think_time_s: float | None
    turns: tuple[Turn, ...]
    accounting: Accounting | None


def turn_mix(trace: Trace, classes: int = 64) -> TraceMix:
    """At most ``classes`` turns whose weighted means of context, append and generated are those of all requests.

    Requests are ordered by context and cut into groups of (nearly) equal number; each group is stood for by its means,
    so that append and generated keep their course over the context. Raises ValueError for fewer than one class.
    """
    if classes < 1:
        raise ValueError("at least one class is needed")
    accounting = main_accounting(trace)
    context = context_tokens(trace, accounting)
    append = trace.input_tokens - context
    order = np.argsort(context, kind="stable")
    bounds = np.linspace(0, len(order), min(classes, len(order)) + 1).astype(np.int64)
    counts = np.diff(bounds)

    def means(values: Ints) -> list[float]:
        return [float(mean) for mean in np.add.reduceat(values[order], bounds[:-1]) / counts]

    turns = tuple(
        Turn(weight=count / len(order), context=before, append=new, generated=output)
        for count, before, new, output in zip(
            counts.tolist(), means(context), means(append), means(trace.output_tokens), strict=True
        )
    )
    inside = trace.session[trace.session >= 0]
    waits = trace.waits_s
    return TraceMix(
        turns_per_session=len(inside) / len(np.unique(inside)) if len(inside) else 1.0,
        think_time_s=float(waits.mean()) if len(waits) else None,
        turns=turns,
        accounting=accounting,
    )
