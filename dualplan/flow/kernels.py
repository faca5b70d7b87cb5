"""The inner loops of max-min sharing and of the fluid run: plain functions over arrays, or the same through Numba.

Every function of ``clocks``, ``filling``, ``sharing`` and ``events`` runs as ordinary Python; ``compiled`` gives the
same functions through Numba, with the same results to the last bit. Nothing in them knows records, names or files:
``layout`` names the arrays, ``network`` fills them, ``maxmin`` states what they mean.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

from dualplan.flow import clocks, events, filling, sharing
from dualplan.flow.layout import State

PLAIN = SimpleNamespace(solve=sharing.solve, run=events.run)

_MODULES = (clocks, filling, events, sharing)
_INLINED = frozenset(
    {"bound_outside", "differs", "foresee", "freeze", "heap_pop", "heap_push", "include", "list_dirty", "read_clock"}
    | {"sift_down"}
)
"""What runs for every class is put in place: passing State costs some hundred words a call."""


@functools.cache
def digest() -> str:
    """Of the source of all kernels: Numba knows a function by its file and name, not by what it calls elsewhere."""
    folder = Path(__file__).parent
    names = (*(module.__name__.rpartition(".")[2] for module in _MODULES), "layout", "kernels")
    return hashlib.sha256(b"".join((folder / f"{name}.py").read_bytes() for name in names)).hexdigest()[:12]


def plain_work(folder: Path = Path(__file__).parent / "__pycache__") -> int:
    """Rates to find in plain Python (some 20 us each) before going on compiled pays: few if machine code is kept.

    Making machine code takes about ten seconds, loading it half a second. ``folder``: where it is kept.
    """
    made = folder.glob(f"*{digest()}*.py{sys.version_info.major}{sys.version_info.minor}.nbi")
    return 30_000 if any(made) else 400_000


@functools.cache
def compiled() -> SimpleNamespace | None:
    """The kernels through Numba, or None where Numba cannot be imported.

    Machine code is kept in Numba's cache (beside the source, else in the user's cache folder). A cache that cannot
    be read or written must not stop a run, so any failure with it means compiling in memory.
    """
    try:
        import numba
    except ImportError:
        return None
    try:
        return _compile(numba, cache=True)
    except Exception:
        return _compile(numba, cache=False)


def _compile(numba: Any, cache: bool) -> SimpleNamespace:
    floats, table, ints, indices = numba.float64[::1], numba.float64[:, ::1], numba.int64[::1], numba.int64[:, ::1]
    tables = {"links", "lanes", "classes", "hops", "flows", "changes"}
    vectors = {"held_before", "queue_time", "finish_time", "heap_key", "clock"}
    fields = [
        table if name in tables else floats if name in vectors else indices if name.endswith("_index") else ints
        for name in State._fields
    ]
    state = numba.types.NamedTuple(fields, State)
    # copies of the functions see the compiled callees instead of the plain ones
    names: dict[str, Any] = {}
    for module in _MODULES:
        names |= vars(module)

    def build(function: Any, *signature: Any, **options: Any) -> Any:
        copy = FunctionType(function.__code__, names, function.__name__)
        copy.__qualname__ = f"{function.__name__}_{digest()}"
        copy.__module__ = __name__
        # no array is made or kept inside, so references need not be counted, which would take half of the time
        inline = function.__name__ in _INLINED
        made = numba.njit(*signature, no_cfunc_wrapper=True, _nrt=False, forceinline=inline, **options)(copy)
        names[function.__name__] = made
        return made

    for module in _MODULES:
        for part in vars(module).values():
            if isinstance(part, FunctionType) and part.__module__ == module.__name__:
                # called from compiled functions only
                build(part, no_cpython_wrapper=True)
    solve = build(sharing.solve, numba.void(state), cache=cache)
    return SimpleNamespace(solve=solve, run=build(events.run, numba.boolean(state, numba.int64), cache=cache))
