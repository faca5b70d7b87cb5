"""Change a line of the code, see whether a test notices: ``python -m tests.mutation``.

A mutant of ``mutants.yaml`` is a file, a text that occurs in it once, what stands there instead, and the tests that
must fail then. Files are changed in a copy of the package in a temporary folder, never in place, and only the named
tests run on it. Ends with 0 if every mutant is noticed, 1 if one is not, 2 if the list is at fault.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import yaml

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).resolve().parent / "mutants.yaml"
LONGEST_S = 600
"""Tests that run longer have noticed: a change may well make a loop endless."""


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change: in ``file``, ``old`` for ``new``; ``tests`` are names as pytest takes them."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class ListError(Exception):
    """A list that does not say what to change, or tests that say nothing."""


def read(path: Path) -> list[Mutant]:
    """The mutants of a file. Raises ListError."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), list[Mutant])
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise ListError(f"{path.name}: {error}") from None


def changed(mutant: Mutant, root: Path) -> str:
    """The text of the file of a mutant with its change. Raises ListError where that is not one change."""
    path = root / mutant.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if (count := text.count(mutant.old)) != 1:
        raise ListError(f"{mutant.name}: {mutant.old!r} occurs {count} times in {mutant.file}, not once")
    if not mutant.tests or mutant.new == mutant.old:
        raise ListError(f"{mutant.name}: names {'the same text' if mutant.tests else 'no test'}")
    return text.replace(mutant.old, mutant.new)


def copy(root: Path, folder: Path, parts: set[str]) -> None:
    """What of ``root`` is changed or run, copied into a folder, with bytecode; links to the rest."""
    for path in root.iterdir():
        how = (shutil.copytree if path.is_dir() else shutil.copy2) if path.name in parts else os.symlink
        how(path, folder / path.name)


def passes(tests: Iterable[str], folder: Path) -> bool:
    """Whether tests pass in a copy. Raises ListError where they do not run."""
    command = [sys.executable, "-m", "pytest", "-xqp", "no:cacheprovider", *tests]
    # bytecode of a changed file would outlive the change
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise ListError(f"tests do not run: {' '.join(tests)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def run(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """Names of the mutants that no test noticed; each is told as it is tried. Raises ListError."""
    texts = {mutant.name: changed(mutant, root) for mutant in mutants}
    tests = dict.fromkeys(test for mutant in mutants for test in mutant.tests)
    parts = {Path(name).parts[0] for name in (*(one.file for one in mutants), *(test.split("::")[0] for test in tests))}
    missed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copy(root, folder, parts)
        if not passes(tests, folder):
            raise ListError("a named test fails without any change")
        for mutant in mutants:
            path = folder / mutant.file
            path.write_text(texts[mutant.name], encoding="utf-8")
            noticed = not passes(mutant.tests, folder)
            shutil.copy2(root / mutant.file, path)
            print(f"{'noticed' if noticed else 'NOT noticed'}  {mutant.name}", flush=True)
            missed += [] if noticed else [mutant.name]
    return missed


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--list", type=Path, default=LIST, metavar="FILE", help="other mutants than the committed ones")
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this text in name or file")
    given = parser.parse_args(arguments)
    try:
        missed = run(mutants := [one for one in read(given.list) if given.only in one.name or given.only in one.file])
    except ListError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(mutants) - len(missed)} of {len(mutants)} noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
