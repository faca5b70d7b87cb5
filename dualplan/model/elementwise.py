"""Functions that equations need beside + - * /, for floats, fractions, NumPy arrays and SymPy symbols alike.

Neither library is imported here: an argument of theirs means that it is loaded already.
"""

from __future__ import annotations

import math
import sys
from typing import Any


def _library(*values: Any) -> Any:
    """The loaded library of the arguments: sympy before numpy, None for plain numbers."""
    homes = {type(value).__module__.partition(".")[0] for value in values}
    for name in ("sympy", "numpy"):
        if name in homes:
            return sys.modules[name]
    return None


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two values, element by element."""
    library = _library(a, b)
    if library is None:
        return min(a, b)
    return library.Min(a, b) if library.__name__ == "sympy" else library.minimum(a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two values, element by element."""
    return -minimum(-a, -b)


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` where a condition holds, else ``b``, element by element; the condition is a bool or an array of them."""
    library = _library(condition)
    return (a if condition else b) if library is None else library.where(condition, a, b)


def floor(value: Any) -> Any:
    """The largest whole number that is not above a value, element by element."""
    library = _library(value)
    return math.floor(value) if library is None else library.floor(value)
