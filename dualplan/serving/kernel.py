"""The inner loop of the simulation, as plain functions over arrays.

Every function of ``events``, ``turns``, ``pools``, ``passes`` and of this file runs as ordinary Python; ``compiled``
gives the same functions through Numba, with the same results to the last bit. Nothing in them knows records, names or
units of people: ``layout`` names the arrays, ``cluster`` lays them out, ``run`` states what they mean.

Time goes from event to event, three kinds of them in one heap: a boundary between two passes of a prefill group, the
start of the decode of a turn (also the return of an agent from a tool), and the next completion in a decode group.

* A *prefill group* is the engines that meet in every layer (an expert-parallel group; one engine for dense models).
  It runs synchronised passes back to back. At a boundary it ends the running pass, fetches waiting requests (places
  them on a prefill and a decode engine, reserves memory on both and issues the read), and starts the next pass with
  what was fetched at an earlier boundary and has been read since. A pass takes its base plus the work of its slowest
  engine. An idle group passes boundaries too, ``idle`` seconds apart; they are not simulated one by one, nor are more
  than a few of a group that has nothing to do but wait.
* A storage NIC serves reads in the order of issue, so the end of a read is known when it is issued. The time per read
  stands for its blocks: each side of a split read takes its share of it, as in the steady model. A read is issued when
  the host buffer of the side that reads has room for it.
* A *decode group* is the engines that step together. Its clock counts the steps since the start; a turn ends when
  the clock reaches its mark.

A turn of an agent is under way in one place at a time, so lists are links between agents.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, get_type_hints

from dualplan.model import latency, service_times
from dualplan.serving import (
    compiling,
    events,
    layout,
    machine_code,
    passes,
    placement,
    policies,
    pools,
    reads,
    samples,
    turns,
)
from dualplan.serving.events import pop, turn_ahead
from dualplan.serving.layout import State
from dualplan.serving.passes import boundary
from dualplan.serving.pools import complete, start_decode
from dualplan.serving.samples import take_sample
from dualplan.serving.turns import admit, begin_turn, count_under_way


def run(s: State, budget: int) -> bool:
    """Run up to ``budget`` events; True when nothing is left to do before the horizon."""
    agents = len(s.span)
    enough = s.count["events"] + budget
    while s.count["events"] < enough:
        arrived = s.count["arrived"]
        arrives = s.span["arrival"][arrived] if arrived < agents else math.inf
        now = min(arrives, s.event["time"][0] if s.count["queued"] > 0 else math.inf)
        if now > s.total["horizon"] or now == math.inf:
            if s.total["horizon"] < math.inf:
                count_under_way(s, s.total["horizon"], 0)
                s.total["now"] = s.total["horizon"]
            return True
        while s.total["next_sample"] <= now:
            take_sample(s, s.total["next_sample"])
        s.total["now"] = now
        s.count["events"] += 1
        if arrives <= now:
            s.count["arrived"] += 1
            admit(s, now)
            continue
        item = pop(s)
        kind, number = item % 3, item // 3
        # the event after the next is one of these, if it is of an agent
        turn_ahead(s, s.event["item"][1] // 3)
        turn_ahead(s, s.event["item"][2] // 3)
        if kind == 1:
            # a group that was woken earlier has moved on
            if s.group["next_at"][number] == now:
                boundary(s, number, now)
        elif kind == 2:
            complete(s, number, now)
        elif s.agent["first"][number] < 0.0:
            begin_turn(s, number, now)
        else:
            start_decode(s, number, now)
    return False


def run_plain(s: State, budget: int) -> bool:
    """``run`` as ordinary Python, which is faster with dictionaries than with single rows of tables."""
    names = s.count.dtype.names, s.total.dtype.names
    count, total = (dict(zip(of, row.item(), strict=True)) for of, row in zip(names, (s.count, s.total), strict=True))
    try:
        return run(s._replace(count=count, total=total), budget)
    finally:
        for row, values in ((s.count, count), (s.total, total)):
            for name, value in values.items():
                row[name] = value


class Kernel(NamedTuple):
    """The inner loop, plain or compiled."""

    run: Callable[[State, int], bool]


PLAIN = Kernel(run_plain)

_MODULES = (placement, events, turns, pools, reads, passes, samples)
_EQUATIONS = ("attention_work", "on_curve", "pass_time", "seen", "step_time", "token_work", "touched")
"""Functions of dualplan.model.service_times (``touched`` by way of it) that the kernel calls."""

_CALLED = ("on_curve", "fitting_tokens", "chunk_attention", "cache_time", "group_step")
"""Functions that are called, not made part of each place that needs them, which would take longer to compile."""


@functools.cache
def compiled() -> Kernel | None:
    """The kernel through Numba, or None where Numba cannot be imported.

    Machine code is kept in Numba's cache; a cache that cannot be read or written must not stop a run, so any failure
    with it means compiling in memory; so does a version of Numba that cannot be told what is in ``machine_code``.
    """
    try:
        import numba
    except ImportError:
        return None
    for cache in (True, False):
        with contextlib.suppress(Exception), machine_code.plain_indices():
            return _compile(numba, cache, machine_code.prefetch())
    return _compile(numba, cache=False)


def _state_type(numba: Any) -> Any:
    """What Numba is told of State: the only signature there is."""
    kinds = {float: numba.float64, int: numba.int64}
    settings = [kinds[kind] for kind in get_type_hints(layout.Setting).values()]
    tables = {name: numba.from_dtype(dtype)[::1] for name, dtype in layout.TABLES.items()}
    others = {
        "setting": numba.types.NamedTuple(settings, layout.Setting),
        "count": numba.from_dtype(layout.COUNT),
        "total": numba.from_dtype(layout.TOTAL),
        "attention": numba.float64[:, ::1],
        "cache": numba.float64[:, ::1],
        "detail": numba.float64[:, ::1],
    }
    return numba.types.NamedTuple([(others | tables)[name] for name in State._fields], State)


def _compile(numba: Any, cache: bool, prefetch: Any = None) -> Kernel:
    # Numba knows a cached function by file, name and line, and does not see changes in what it calls in other files
    parts = (*_MODULES, service_times, latency, layout, machine_code, policies)
    sources = "".join(inspect.getsource(module) for module in parts)
    digest = hashlib.sha256(sources.encode()).hexdigest()[:12]
    namespace: dict[str, Any] = {}
    for module in _MODULES:
        namespace |= vars(module)
    namespace |= globals() | {"maximum": max, "minimum": min}

    def build(function: Callable[..., Any], **options: Any) -> Any:
        assert isinstance(function, FunctionType)
        copy = FunctionType(function.__code__, namespace, function.__name__)
        copy.__qualname__ = f"{function.__name__}_{digest}"
        copy.__module__ = __name__
        # no array is made or kept inside, so references need not be counted, which would take half of the time
        options |= {"nogil": True, "_nrt": False, "error_model": "numpy", "no_cfunc_wrapper": True}
        made = numba.njit(forceinline=function.__name__ not in _CALLED, **options)(copy)
        namespace[function.__name__] = made
        return made

    for name in _EQUATIONS:
        build(getattr(service_times, name), no_cpython_wrapper=True)
    for module in _MODULES:
        for part in vars(module).values():
            if isinstance(part, FunctionType) and part.__module__ == module.__name__:
                # called from compiled functions only
                build(part, no_cpython_wrapper=True)
    if prefetch is not None and not numba.config.DISABLE_JIT:
        namespace["ahead"] = prefetch
    made = build(run, cache=cache)
    if not numba.config.DISABLE_JIT:
        kept = cache and any(Path(made.stats.cache_path).glob(f"*{digest}*.nbi"))
        listeners = () if kept else tuple(compiling.listeners)
        for listener in listeners:
            listener(True)
        try:
            made.compile(numba.boolean(_state_type(numba), numba.int64))
        finally:
            for listener in listeners:
                listener(False)
        made.disable_compile()
    return Kernel(made)
