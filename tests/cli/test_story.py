"""The story in examples/ is what its script makes today."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runner import ROOT

STORY = ROOT / "examples" / "story"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if shutil.which("bash") is None:
        pytest.skip("the script needs bash")
    folder = tmp_path_factory.mktemp("story")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DUALPLAN": f"{sys.executable} -m dualplan",
        "PYTHON": sys.executable,
    }
    script = ROOT / "examples" / "build_story.sh"
    done = subprocess.run(
        ["bash", str(script), str(folder)], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def files(folder: Path):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_formulas(name, text):
    """What does not depend on the release of the libraries that draw and typeset."""
    if name.endswith(".svg"):
        return re.findall(rb">([^<>]+)</text>", text)
    return re.sub(rb"(?s)\$\$.*?\$\$", b"", text)


def test_story_is_current(built):
    """Where this fails, run examples/build_story.sh, read the story, and commit it."""
    committed, made = files(STORY), files(built)
    assert sorted(made) == sorted(committed)
    same_libraries = made["made-with.txt"] == committed["made-with.txt"]
    for name in sorted(set(made) - {"made-with.txt"}):
        if same_libraries:
            assert made[name] == committed[name], name
        else:
            assert without_formulas(name, made[name]) == without_formulas(name, committed[name]), name


def test_the_plan_of_the_scenario_is_the_one_that_the_story_chose(built):
    text = (built / "README.md").read_text(encoding="utf-8")
    chosen = re.findall(r"BUY  (\d+)P(\d+)D", text)[1]
    scenario = (STORY / "scenario.yaml").read_text(encoding="utf-8")
    for side, count in zip(("prefill", "decode"), chosen, strict=True):
        assert f"{side}_nodes: {count}\n" in scenario
