"""What a command loads, seen in a fresh interpreter."""

import subprocess
import sys

import pytest

from tests.cli.runner import PAPER, ROOT


def modules_after(*arguments):
    code = (
        "import sys\nfrom dualplan.cli.app import run\n"
        f"code = run({list(arguments)!r})\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("arguments", [("--help",), ("feasible", "--help")])
def test_help_loads_no_numpy(arguments):
    assert not modules_after(*arguments) & {"numpy", "scipy", "sympy", "numba", "yaml", "duckdb", "msgspec"}


def test_feasible_loads_nothing_heavy():
    assert not modules_after("feasible", PAPER) & {"scipy", "sympy", "numba", "duckdb", "pandas", "matplotlib", "numpy"}
