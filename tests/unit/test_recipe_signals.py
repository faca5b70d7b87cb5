"""Ctrl-C while SciPy reads the table of its Sobol sequence, which it would swallow and go on with half of the table."""

import signal

import pytest

from dualplan.trace.recipe import _signals_held


def test_a_signal_waits_for_the_end_and_is_not_lost():
    before, reached = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), _signals_held():
        signal.raise_signal(signal.SIGINT)
        reached.append("end")
    assert reached == ["end"] and signal.getsignal(signal.SIGINT) is before


def test_without_a_signal_nothing_changes():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with _signals_held():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
