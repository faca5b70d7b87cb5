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
from types import FunctionType
from typing import Any, NamedTuple

from dualplan.model import latency, service_times
from dualplan.serving import events, machine_code, passes, placement, pools, samples, turns
from dualplan.serving.events import pop, turn_ahead
from dualplan.serving.layout import (
    FIRST,
    HORIZON,
    N_ARRIVED,
    N_EVENTS,
    N_HEAP,
    NEXT_AT,
    NEXT_SAMPLE,
    NOW,
    State,
)
from dualplan.serving.machine_code import plain_indices, prefetch
from dualplan.serving.passes import boundary
from dualplan.serving.pools import complete, start_decode
from dualplan.serving.samples import take_sample
from dualplan.serving.turns import admit, begin_turn, count_under_way


def run(s: State, budget: int) -> bool:
    """Run up to ``budget`` events; True when nothing is left to do before the horizon."""
    agents = len(s.arrival)
    enough = s.counter[N_EVENTS] + budget
    while s.counter[N_EVENTS] < enough:
        arrived = s.counter[N_ARRIVED]
        arrives = s.arrival[arrived] if arrived < agents else math.inf
        now = min(arrives, s.heap_time[0] if s.counter[N_HEAP] > 0 else math.inf)
        if now > s.number[HORIZON] or now == math.inf:
            if s.number[HORIZON] < math.inf:
                count_under_way(s, s.number[HORIZON], 0)
                s.total[NOW] = s.number[HORIZON]
            return True
        while s.total[NEXT_SAMPLE] <= now:
            take_sample(s, s.total[NEXT_SAMPLE])
        s.total[NOW] = now
        s.counter[N_EVENTS] += 1
        if arrives <= now:
            s.counter[N_ARRIVED] += 1
            admit(s, now)
            continue
        item = pop(s)
        kind, number = item % 3, item // 3
        # the event after the next is one of these, if it is of an agent
        turn_ahead(s, s.heap_item[1] // 3)
        turn_ahead(s, s.heap_item[2] // 3)
        if kind == 1:
            # a group that was woken earlier has moved on
            if s.group[number, NEXT_AT] == now:
                boundary(s, number, now)
        elif kind == 2:
            complete(s, number, now)
        elif s.agent[number, FIRST] < 0.0:
            begin_turn(s, number, now)
        else:
            start_decode(s, number, now)
    return False


class Kernel(NamedTuple):
    """The inner loop, plain or compiled."""

    run: Callable[[State, int], bool]


PLAIN = Kernel(run)

_MODULES = (placement, events, turns, pools, passes, samples)
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
        with contextlib.suppress(Exception), plain_indices():
            return _compile(numba, cache, prefetch())
    return _compile(numba, cache=False)


def _compile(numba: Any, cache: bool, prefetch: Any = None) -> Kernel:
    floats, table = numba.float64[::1], numba.float64[:, ::1]
    single = ("number", "total", "arrival", "admitted", "done_at", "mark", "prefill_queue", "heap_time", "record_time")
    special = {
        "record": numba.float32[:, ::1],
        "agent_index": numba.int32[:, ::1],
        "child": numba.int32[:, ::1],
        "group_index": numba.int64[:, ::1],
        "pool_index": numba.int64[:, ::1],
        **dict.fromkeys(("choice", "counter", "heap_item", "record_turn"), numba.int64[::1]),
        **dict.fromkeys(single, floats),
    }
    state = numba.types.NamedTuple([special.get(name, table) for name in State._fields], State)
    # Numba knows a cached function by file, name and line, and does not see changes in what it calls in other files
    sources = "".join(inspect.getsource(module) for module in (*_MODULES, service_times, latency, machine_code))
    digest = hashlib.sha256(sources.encode()).hexdigest()[:12]
    namespace: dict[str, Any] = {}
    for module in _MODULES:
        namespace |= vars(module)
    namespace |= globals() | {"maximum": max, "minimum": min}

    def build(function: Callable[..., Any], *signature: Any, **options: Any) -> Any:
        assert isinstance(function, FunctionType)
        copy = FunctionType(function.__code__, namespace, function.__name__)
        copy.__qualname__ = f"{function.__name__}_{digest}"
        copy.__module__ = __name__
        # no array is made or kept inside, so references need not be counted, which would take half of the time
        inline = function.__name__ not in _CALLED
        made = numba.njit(*signature, nogil=True, _nrt=False, error_model="numpy", forceinline=inline, **options)(copy)
        namespace[function.__name__] = made
        return made

    for name in _EQUATIONS:
        build(getattr(service_times, name))
    for module in _MODULES:
        for part in vars(module).values():
            if isinstance(part, FunctionType) and part.__module__ == module.__name__:
                build(part)
    if prefetch is not None and not numba.config.DISABLE_JIT:
        namespace["ahead"] = prefetch
    return Kernel(build(run, numba.boolean(state, numba.int64), cache=cache))
