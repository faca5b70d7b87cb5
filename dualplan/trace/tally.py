"""Rows read and rows dropped, with the places of bad ones."""

from __future__ import annotations

from collections import Counter

from dualplan.errors import InputError, printable, problem

SHOWN = 20
"""Problems listed one by one; the rest are counted."""


class Tally:
    """Counts rows while a trace is read.

    Two kinds of rows are dropped. Rows that cannot be used by a stated rule (a failed call with no tokens, a record
    written twice) are dropped always. Malformed rows are dropped only when ``lenient``; otherwise reading goes on to
    find the others, and :meth:`close` raises InputError with all of them.
    """

    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient
        self.read = 0
        self.dropped: Counter[str] = Counter()
        self.notes: list[str] = []
        self._problems: list[str] = []
        self._malformed = 0

    def rule(self, reason: str, count: int = 1) -> None:
        """Drop rows by a stated rule."""
        if count:
            self.dropped[reason] += count

    def malformed(self, where: str, what: str, reason: str, hint: str = "", count: int = 1) -> None:
        """Rows that cannot be read. ``reason`` is the short name under which they are counted."""
        self._malformed += count
        self.dropped[reason] += count
        if len(self._problems) < SHOWN:
            self._problems.append(problem(where, what, hint))

    def failed(self, error: InputError, reason: str) -> None:
        """A file that could not be read, or only in part."""
        self._malformed += 1
        self.dropped[reason] += 1
        self._problems.extend(error.problems)

    def note(self, text: str) -> None:
        """Something that the reader of the result should know; the same text is kept once."""
        text = printable(text)
        if text not in self.notes:
            self.notes.append(text)

    def close(self) -> None:
        """Raise InputError if there were malformed rows and they are not to be dropped."""
        if not self._malformed or self.lenient:
            return
        problems = list(self._problems)
        if self._malformed > len(problems):
            problems.append(f"and {self._malformed - len(problems):,} more bad rows")
        problems[-1] += "; --lenient drops bad rows and counts them"
        raise InputError("", problems=problems)
