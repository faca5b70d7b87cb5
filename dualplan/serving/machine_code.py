"""What Numba is told beyond the functions of the kernel, which changes their speed and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def plain_indices() -> Iterator[None]:
    """Let Numba take indices as they are while it compiles.

    It allows for an index counted from the end at every access, which none here is and which takes a sixth of the time
    of a run.
    """
    from numba.core import types
    from numba.np import arrayobj

    def as_it_is(context: Any, builder: Any, kind: Any, index: Any, size: Any) -> Any:
        return context.cast(builder, index, kind, types.intp)

    usual = arrayobj.fix_integer_index
    arrayobj.fix_integer_index = as_it_is
    try:
        yield
    finally:
        arrayobj.fix_integer_index = usual


def prefetch() -> Any:
    """``events.ahead`` as an instruction of the processor; it may point anywhere, outside of the table too."""
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array

    def ahead(typing: Any, column: Any, row: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = signature.args[0]
            array = make_array(kind)(context, builder, arguments[0])  # type: ignore[no-untyped-call]
            place = cgutils.get_item_pointer(  # type: ignore[no-untyped-call]
                context, builder, kind, array, arguments[1:], wraparound=False
            )
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            form = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], form)
            # for reading, to be kept in every cache, of data
            builder.call(fetch, [builder.bitcast(place, byte), number(0), number(3), number(1)])
            return context.get_dummy_value()

        return types.void(column, types.intp), code

    return intrinsic(ahead)
