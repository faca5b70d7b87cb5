"""The exceptions of dualplan and the exit code each one ends a command with.

::

    DualplanError            1  unexpected failure
    |-- UsageError           2  flags that do not go together
    |-- InputError           3  a file, a value or a name that cannot be used; carries every problem found
    |-- InfeasibleError      4  the question has an answer, and it is no
    `-- ConvergenceError     5  an iteration did not converge
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
V = TypeVar("V")

MOST_LINES = 50
"""Problems of one input that are printed; the rest is counted."""


LONGEST_NAME = 100
"""Longer words are no misspelt names [characters]."""


class DualplanError(Exception):
    """Base of all errors that dualplan raises on purpose.

    ``messages``: what it says, as messages of the catalogue where it is made of them.
    """

    exit_code: ClassVar[int] = 1
    messages: tuple[Any, ...] = ()


class UsageError(DualplanError):
    """Flags or arguments that do not make sense together."""

    exit_code = 2


class InputError(DualplanError):
    """Bad input. One line a problem, each ``where: what (hint)``.

    ``where`` is a file and line, a key path, a flag, or several of them joined with ``: ``.
    """

    exit_code = 3

    def __init__(
        self,
        where: str,
        what: str = "",
        hint: str = "",
        *,
        problems: Iterable[str] = (),
        messages: Iterable[Any] = (),
    ) -> None:
        self.messages = tuple(messages)
        self.problems: tuple[str, ...] = tuple(problems) or (problem(where, what, hint),)
        shown = self.problems[:MOST_LINES]
        if len(shown) < len(self.problems):
            shown = (*shown, f"and {len(self.problems) - len(shown)} more problems")
        super().__init__("\n".join(shown))


class InfeasibleError(DualplanError):
    """No deployment, split or setting meets what was asked: a text, or a message of the catalogue."""

    exit_code = 4

    def __init__(self, reason: Any) -> None:
        self.messages = (reason,)
        super().__init__(reason)


class ConvergenceError(DualplanError):
    """A solver stopped without reaching its tolerance."""

    exit_code = 5


def refuse(problems: Iterable[str]) -> None:
    """Raise InputError with all problems, if there are any."""
    lines = tuple(problems)
    if lines:
        raise InputError("", problems=lines)


def each(items: Iterable[T], read: Callable[[T], V]) -> list[V]:
    """What ``read`` gives for every item. Raises InputError with the problems of all of them, each once."""
    found: list[V] = []
    problems: dict[str, None] = {}
    for item in items:
        try:
            found.append(read(item))
        except InputError as error:
            problems |= dict.fromkeys(error.problems)
    refuse(problems)
    return found


def problem(where: str, what: str, hint: str = "") -> str:
    """One line of an error: ``where: what (hint)``, control characters made visible."""
    line = f"{where}: {what}" if where else what
    return printable(f"{line} ({hint})" if hint else line)


def printable(text: str) -> str:
    """``text`` with control characters made visible, so that nothing in a file can steer the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_lines(text: str) -> str:
    """:func:`printable`, but for line ends, which stay."""
    return "\n".join(map(printable, text.split("\n")))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean X?`` for the closest known name, or an empty string."""
    from difflib import get_close_matches

    if len(word) > LONGEST_NAME:  # which takes long to compare, and is no slip of a finger
        return ""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""
