"""A line on standard error that says how far a command is, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dualplan.serving import compiling

QUIET = 1.0
"""Seconds before anything is shown."""

EVERY = 0.2
"""Seconds between two updates."""


@contextmanager
def progress_line(quiet: float = QUIET) -> Iterator[Callable[[Callable[[float], str]], None]]:
    """Call what is yielded with a function from the seconds so far [s] to the line; it is asked if a line is due.

    Nothing is shown before ``quiet`` [s], and what was shown is cleared at the end.
    """
    import sys
    from time import monotonic

    if not sys.stderr.isatty():
        yield lambda line: None
        return
    started = monotonic()
    last = started - EVERY

    def show(line: Callable[[float], str]) -> None:
        nonlocal last
        now = monotonic()
        if now - last < EVERY or now - started < quiet:
            return
        last = now
        sys.stderr.write(f"\r{line(now - started)} \x1b[K")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def compiling_line(begins: bool) -> None:
    """Say while the simulation is compiled, on any command and where standard error is a terminal."""
    import sys

    if sys.stderr.isatty():
        text = f"compiling the simulation once, about {compiling.SECONDS:.0f} s; later runs start at once "
        sys.stderr.write(f"\r{text if begins else ''}\x1b[K")
        sys.stderr.flush()


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """Call what is yielded with the share that is done, 0 to 1."""
    with progress_line() as show:
        yield lambda done: show(
            lambda elapsed: f"{100 * done:3.0f} % of the {what}, {seconds_left(done, elapsed):.0f} s left"
        )


def seconds_left(done: float, elapsed: float) -> float:
    """What is left at the pace so far [s]; 0 where nothing is done yet."""
    return elapsed * (1 - done) / done if done > 0 else 0.0
