"""A line on standard error that says how far a command is, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET = 1.0
"""Seconds before anything is shown."""

EVERY = 0.2
"""Seconds between two updates."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """Call what is yielded with the share that is done, 0 to 1."""
    import sys
    from time import monotonic

    if not sys.stderr.isatty():
        yield lambda done: None
        return
    started = last = monotonic()

    def show(done: float) -> None:
        nonlocal last
        now = monotonic()
        if now - last < EVERY or now - started < QUIET:
            return
        last = now
        left = (now - started) * (1 - done) / done if done > 0 else 0.0
        sys.stderr.write(f"\r{100 * done:3.0f} % of the {what}, {left:.0f} s left \x1b[K")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
