"""Every reader on its corpus, on seeded mutations of it and, where atheris is installed, on what coverage leads to.

Longer searches: ``python -m tests.fuzz --target NAME --seconds 600``.
"""

import subprocess
import sys
import time

import pytest

from tests.fuzz.__main__ import ROOT, corpus
from tests.fuzz.mutate import mutations
from tests.fuzz.targets import TARGETS

MUTATED = {"trace": 40, "convert": 15, "scenario": 150, "sets": 150, "qos": 60, "topology": 200}
"""Mutations of slow targets; the others get 500. About a second each."""


def run(name, data):
    """Whether the input is accepted; if not, it is refused in words that can be printed on any terminal."""
    target = TARGETS[name]
    try:
        target.run(data)
    except target.expected as refused:
        assert str(refused).strip() and all(c.isprintable() or c == "\n" for c in str(refused))
        return False
    return True


@pytest.mark.parametrize("name", TARGETS)
def test_corpus(name):
    accepted = [run(name, data) for data in corpus(name)]
    # a search that starts from refused files would look at nothing but refusals
    assert sum(accepted) >= len(accepted) / 2


@pytest.mark.parametrize("name", TARGETS)
def test_mutations(name):
    for number, data in enumerate(mutations(corpus(name), MUTATED.get(name, 500), seed=20260101)):
        try:
            run(name, data)
        except Exception:
            print(f"mutation {number}: {data!r}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_long_and_empty_of_meaning(name):
    """300 kB of the same few characters, as a slip in copying or a broken disk makes them: refused or read at once."""
    start = time.monotonic()
    for piece in (b"[", b'{"a":', b'"', b"- ", b"a: ", b"9", b"[[1],", b"0:1,", b"GPU0\t", b"<a>", b"\xef\xbb\xbf"):
        run(name, piece * (300_000 // len(piece)))
    # quadratic ones took minutes
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("name", ["scenario", "topology", "trace", "flowcase"])
def test_coverage_guided(name, tmp_path):
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python")
    command = [sys.executable, "-m", "tests.fuzz", "--engine", "atheris", "--target", name, "--seconds", "3"]
    done = subprocess.run([*command, "--crashes", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "inputs by atheris" in done.stdout


def test_a_fault_is_found_and_kept(tmp_path, monkeypatch):
    """The search itself: a reader with a known fault does not pass."""
    import tests.fuzz.__main__ as search

    def faulty(data):
        if b"GPU" in data and not data.startswith(b"\t"):
            raise KeyError("GPU")

    monkeypatch.setitem(TARGETS, "topology", TARGETS["topology"]._replace(run=faulty))
    arguments = ["fuzz", "--target", "topology", "--engine", "mutations", "--seconds", "20", "--crashes", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert search.main() == 1
    (kept,) = tmp_path.iterdir()
    with pytest.raises(KeyError):
        faulty(kept.read_bytes())
