"""Run the command line as a user does: a real process."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
PAPER = str(ROOT / "examples" / "dualpath-paper.yaml")


def dualplan(*arguments, cwd=ROOT, text=None, environment=None, timeout=120):
    """The finished process of ``dualplan ARGUMENTS``."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **(environment or {})}
    env.pop("FORCE_COLOR", None)
    return subprocess.run(
        [sys.executable, "-m", "dualplan", *map(str, arguments)],
        cwd=cwd,
        env=env,
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def in_process(*arguments):
    """The same without a process of its own, for tests of many calls: ``returncode``, ``stdout``, ``stderr``."""
    from dualplan.cli.app import run

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(map(str, arguments)))
        texts = []
        for stream in (out, err):
            stream.flush()
            texts.append(stream.buffer.getvalue().decode("utf-8"))
    return SimpleNamespace(returncode=code, stdout=texts[0], stderr=texts[1])
