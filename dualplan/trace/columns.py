"""Columns under construction: readers add runs of rows, and the assembly turns them into a trace."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.trace.record import CachedFrom, Clock, Floats, Ints, constant, float_constant

Name = Literal["arrival", "input", "output", "session", "turn", "cached", "think", "model"]

EMPTY: dict[Name, float] = {
    "arrival": np.nan,
    "input": 0,
    "output": 0,
    "session": -1,
    "turn": -1,
    "cached": -1,
    "think": np.nan,
    "model": -1,
}
"""Column -> the value of a row that has none."""

LONGEST = 2**31 - 1
"""Token counts beyond this are faults of the file, not prompts [tokens]."""


class Columns:
    """Rows read so far. ``sessions`` and ``models`` number the keys in order of appearance, ``file`` the files;
    ``block_size`` [tokens], ``clock`` and ``cached_from`` are what the files themselves say.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.file = 0
        self.block_size: int | None = None
        self.clock: Clock | None = None
        self.cached_from: CachedFrom = "server"
        self.sessions: dict[Hashable, int] = {}
        self.models: dict[str, int] = {}
        self._parts: dict[Name, list[tuple[npt.NDArray[Any] | None, int]]] = {name: [] for name in EMPTY}
        self._block_counts: list[Ints] = []
        self._block_ids: list[npt.NDArray[Any]] = []
        self._scopes: list[Ints] = []
        self.has_blocks = False

    def add(self, n: int, **parts: npt.NDArray[Any] | None) -> None:
        """Add n rows; columns not named stay empty."""
        for name, column in self._parts.items():
            column.append((parts.get(name), n))
        self._block_counts.append(constant(0, n))
        self._scopes.append(constant(0, n))
        self.rows += n

    def add_blocks(self, counts: Ints, ids: npt.NDArray[Any], scope: Ints) -> None:
        """Give the rows added last their block ids. ``scope`` [rows]: ids mean the same only within one scope."""
        self._block_counts[-1] = counts
        self._block_ids.append(narrow(ids))
        self._scopes[-1] = scope
        self.has_blocks = self.has_blocks or len(ids) > 0

    def ints(self, name: Name) -> Ints:
        """One column as integers."""
        parts = self._parts[name]
        if all(part is None for part, _ in parts):
            return constant(int(EMPTY[name]), self.rows)
        whole = [constant(int(EMPTY[name]), n) if part is None else part for part, n in parts]
        return (whole[0] if len(whole) == 1 else np.concatenate(whole)).astype(np.int64, copy=False)

    def floats(self, name: Name) -> Floats:
        """One column as floats."""
        parts = self._parts[name]
        if all(part is None for part, _ in parts):
            return float_constant(EMPTY[name], self.rows)
        whole = [float_constant(EMPTY[name], n) if part is None else part for part, n in parts]
        return (whole[0] if len(whole) == 1 else np.concatenate(whole)).astype(np.float64, copy=False)

    def blocks(self) -> tuple[Ints, npt.NDArray[Any], Ints]:
        """Number of blocks per row, all ids, scope per row; gives up its own copy of the ids."""
        ids = np.concatenate(self._block_ids) if self._block_ids else np.zeros(0, np.int32)
        self._block_ids = []
        scopes = np.concatenate(self._scopes) if self._scopes else np.zeros(0, np.int64)
        counts = np.concatenate(self._block_counts) if self._block_counts else np.zeros(0, np.int64)
        return counts, ids, scopes

    def session_index(self, key: Hashable) -> int:
        """Number of a session, a new one where the key is new; -1 for no key."""
        return -1 if key is None or key == "" else self.sessions.setdefault(key, len(self.sessions))

    def model_index(self, name: str | None) -> int:
        """Number of a model, a new one where the name is new; -1 for no name."""
        return self.models.setdefault(name, len(self.models)) if name else -1


def narrow(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Block ids in half the memory where they are small."""
    small = len(ids) == 0 or (ids.dtype.kind == "i" and ids.min() >= 0 and ids.max() < 2**31)
    return ids.astype(np.int32, copy=False) if small else ids


def int_column(values: Iterable[int | None], n: int, empty: int = -1) -> Ints:
    """Integers with gaps as a column."""
    values = list(values)
    try:
        return np.fromiter(values, np.int64, n)
    except TypeError:  # there are gaps
        return np.fromiter((empty if value is None else value for value in values), np.int64, n)


def float_column(values: Iterable[float | None], n: int, unit: float = 1.0) -> Floats:
    """Floats with gaps as a column, divided by ``unit``."""
    column = np.array(list(values), np.float64)  # None becomes NaN
    return column if unit == 1.0 else column / unit


_PLAIN = bytes(
    byte if byte in b"0123456789-, \t" else {ord("["): ord(" "), ord("]"): ord(",")}.get(byte, ord("!"))
    for byte in range(256)
)
"""Brackets as blanks and commas, and a ! for all that has no place in a list of integers."""


def raw_id_column(lists: Sequence[bytes | msgspec.Raw]) -> tuple[Ints, npt.NDArray[Any]] | None:
    """Block ids of several rows from their JSON text, see :func:`id_column`; None where any of it is no plain list of
    64-bit integers. No Python number is made, which halves the time of reading.
    """
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    there = lengths > len("[]")
    if not there.all():
        if any(bytes(lists[i]) not in (b"", b"[]") for i in np.flatnonzero(~there).tolist()):
            return None
        lists = [lists[i] for i in np.flatnonzero(there).tolist()]
    joined = b"".join(lists)
    if joined.count(b"[") != len(lists):
        return None
    joined = joined.translate(_PLAIN)
    # with the bracket that has become one, a comma behind each number
    commas = np.flatnonzero(np.frombuffer(joined, np.uint8) == ord(","))
    counts = np.zeros(len(lengths), np.int64)
    counts[there] = np.diff(np.searchsorted(commas, np.cumsum(lengths[there])), prepend=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of text that goes on behind the last number
        try:
            ids = np.fromstring(joined[:-1], np.int64, sep=",")
        except (DeprecationWarning, ValueError):
            return None
    # a number too large for 64 bits is read as the largest there is
    beyond = len(ids) and (int(ids.max()) == 2**63 - 1 or int(ids.min()) == -(2**63))
    return None if beyond or len(ids) != counts.sum() else (counts, ids)


def id_column(lists: list[list[Any]]) -> tuple[Ints, npt.NDArray[Any]]:
    """Block ids of several rows: number per row and all of them. Hashes of 64 bit without sign wrap around, text
    and longer numbers are hashed, text of digits too, so that an id does not depend on the rows beside it.
    """
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    try:
        # an array takes no text, where NumPy would read "01" as 1
        return counts, np.asarray(array("q", chain.from_iterable(lists)), np.int64)
    except (OverflowError, TypeError):
        flat = [_id(value) for value in chain.from_iterable(lists)]
        return counts, np.array(flat, np.uint64).view(np.int64)


def _id(value: Any) -> int:
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value & (2**64 - 1)
    from hashlib import blake2b

    return int.from_bytes(blake2b(str(value).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
