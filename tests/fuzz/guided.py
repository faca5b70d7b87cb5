"""One target under atheris, in a process of its own: ``python -m tests.fuzz.guided TARGET [libFuzzer's options]``."""

import contextlib
import sys

import atheris

from tests.fuzz.__main__ import corpus
from tests.fuzz.targets import TARGETS


def main() -> None:
    name, *options = sys.argv[1:]
    target = TARGETS[name]

    def once(data: bytes) -> None:
        with contextlib.suppress(*target.expected):
            target.run(data)

    with atheris.instrument_imports(include=["dualplan"]):
        # targets import when they run: a first run over the corpus imports, and so instruments, all that they need
        for data in corpus(name):
            once(data)
    atheris.Setup([sys.argv[0], *options], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
