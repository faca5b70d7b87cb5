"""Search for inputs that break a reader: ``python -m tests.fuzz --target trace --seconds 60``.

Coverage-guided with atheris where that is installed, else by seeded mutations of the corpus (``--engine`` decides).
A crash is written to the current folder, or to ``--crashes DIR``; put it into ``tests/fuzz/corpus/TARGET`` with the
fix, and the test keeps it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.mutate import MOST_BYTES, mutations

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).resolve().parent / "corpus"
SLOW_S = 10
"""An input that takes longer is a fault too."""


def corpus(name: str) -> list[bytes]:
    """The committed inputs of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def main() -> int:
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, action="append", help="reader to fuzz; may be repeated [all]")
    parser.add_argument("--seconds", type=float, default=20, help="time for each target [20]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutations [0]")
    parser.add_argument("--engine", choices=("auto", "atheris", "mutations"), default="auto")
    parser.add_argument("--crashes", type=Path, default=Path(), metavar="DIR", help="where crashing inputs go [.]")
    parser.add_argument("--inputs", type=Path, metavar="DIR", help="keep what atheris finds interesting here")
    given = parser.parse_args()
    atheris = given.engine == "atheris" or (given.engine == "auto" and importlib.util.find_spec("atheris") is not None)
    search = _atheris if atheris else _mutations
    given.crashes.mkdir(parents=True, exist_ok=True)
    failed = [name for name in given.target or TARGETS if not search(name, given)]
    print("faults: " + ", ".join(failed) if failed else "no faults", flush=True)
    return 1 if failed else 0


def _mutations(name: str, given: argparse.Namespace) -> bool:
    from tests.fuzz.targets import TARGETS

    target, inputs = TARGETS[name], corpus(name)
    end, number, worst = time.monotonic() + given.seconds, 0, 0.0
    for data in mutations(inputs, 10**9, given.seed):
        if (begin := time.monotonic()) > end:
            break
        try:
            target.run(data)
        except target.expected:
            pass
        except Exception:
            path = given.crashes / f"crash-{name}-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            traceback.print_exc()
            print(f"{name}: {path}", flush=True)
            return False
        number, worst = number + 1, max(worst, time.monotonic() - begin)
    print(f"{name}: {number:,} inputs, the slowest took {worst:.2f} s", flush=True)
    return worst < SLOW_S


def _atheris(name: str, given: argparse.Namespace) -> bool:
    # in a process of its own, for libFuzzer ends the one that it runs in
    options = {
        "max_total_time": f"{given.seconds:.0f}",
        "max_len": MOST_BYTES,
        "timeout": SLOW_S,
        "rss_limit_mb": 3000,
        "artifact_prefix": f"{given.crashes.resolve()}/crash-{name}-",
        "print_final_stats": 1,
        "verbosity": 0,
        "seed": given.seed or 1,
    }
    arguments = [f"-{key}={value}" for key, value in options.items()]
    with tempfile.TemporaryDirectory() as scratch:
        # libFuzzer writes what it finds into the first folder, which must not be the committed one
        found = given.inputs.resolve() / name if given.inputs else Path(scratch)
        found.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz.guided", name, *arguments, str(found), str(CORPUS / name)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    count = [line.split()[-1] for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed_units")]
    if done.returncode:
        sys.stderr.write(done.stderr[-4000:])
    print(f"{name}: {int(count[0]) if count else 0:,} inputs by atheris", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
