"""What ``import dualplan`` offers: four functions, lazily imported, typed, documented; and an example of them."""

import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import dualplan

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = ("load", "evaluate", "sweep", "simulate")


def test_stable_names():
    assert sorted(dualplan.__all__) == sorted(("__version__", *FUNCTIONS))
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{dualplan.__version__}"' in project


@pytest.mark.parametrize("name", FUNCTIONS)
def test_typed_and_documented(name):
    function = getattr(dualplan, name)
    signature = inspect.signature(function)
    assert all(part.annotation is not inspect.Parameter.empty for part in signature.parameters.values())
    assert signature.return_annotation not in (inspect.Signature.empty, "Any", "object")
    assert len(inspect.getdoc(function)) > 40
    # what comes after the first thing it is about is given by name
    positional = [part for part in signature.parameters.values() if part.kind is part.POSITIONAL_OR_KEYWORD]
    assert len(positional) <= 3


def test_import_loads_nothing_heavy():
    code = "import sys, dualplan; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"numpy", "scipy", "sympy", "numba", "yaml", "duckdb", "msgspec", "typer", "rich", "matplotlib"}
    assert not heavy & {name.partition(".")[0] for name in done.stdout.split()}


def test_mypy_sees_the_types(tmp_path):
    """A user's code is checked against the annotations."""
    user = tmp_path / "user.py"
    user.write_text(
        "import dualplan\n"
        "answer = dualplan.evaluate(dualplan.load('x.yaml'))\n"
        "reveal_type(answer.turns_per_s)\n"
        "reveal_type(dualplan.simulate(answer.scenario, agents=2).turns)\n"
        "dualplan.load(3)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", str(user)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 'user.py:3: note: Revealed type is "float"' in done.stdout.replace("builtins.", "")
    assert 'user.py:4: note: Revealed type is "int"' in done.stdout.replace("builtins.", "")
    assert "user.py:5: error" in done.stdout and "Found 1 error" in done.stdout


def test_example_runs_and_uses_all_four(capsys):
    path = ROOT / "examples" / "python_api.py"
    text = path.read_text()
    assert all(f"dualplan.{name}(" in text for name in FUNCTIONS) and text.count("# %%") >= len(FUNCTIONS)
    runpy.run_path(str(path))
    shown = capsys.readouterr().out
    assert "feasible: " in shown and "hits only    1/7 .. 7/2" in shown
    assert '"400GB" is a size, a rate is needed' in shown
