"""Run the command line as a user does: a real process."""

import os
import subprocess
import sys
from pathlib import Path

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
