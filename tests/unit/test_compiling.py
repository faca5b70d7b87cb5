"""Who is told that the simulation is compiled, and what a terminal shows of it."""

import sys
from types import SimpleNamespace

import pytest

from dualplan.cli.progress import compiling_line
from dualplan.serving import compiling, kernel


@pytest.fixture
def told(monkeypatch):
    calls = []
    monkeypatch.setattr(compiling, "listeners", [calls.append])
    monkeypatch.setattr(kernel, "_state_type", lambda numba: None)
    return calls


def numba_that(compiles, folder):
    """What the kernel asks of Numba, with ``compiles`` in place of making machine code."""
    made = SimpleNamespace(stats=SimpleNamespace(cache_path=folder), compile=compiles, disable_compile=lambda: None)
    kinds = {"int64": int, "boolean": lambda *given: None, "config": SimpleNamespace(DISABLE_JIT=False)}
    return SimpleNamespace(**kinds, njit=lambda **options: lambda function: made)


def test_listeners_are_told_of_the_begin_and_the_end(told, tmp_path):
    kernel._compile(numba_that(lambda signature: told.append("compiled"), tmp_path), cache=True)
    assert told == [True, "compiled", False]


def test_listeners_are_told_of_the_end_when_it_is_interrupted(told, tmp_path):
    def interrupted(signature):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kernel._compile(numba_that(interrupted, tmp_path), cache=False)
    assert told == [True, False]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_a_line_that_goes_again(terminal, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    compiling_line(True)
    compiling_line(False)
    line = "\rcompiling the simulation once, about 18 s; later runs start at once \x1b[K\r\x1b[K"
    assert capsys.readouterr().err == (line if terminal else "")
