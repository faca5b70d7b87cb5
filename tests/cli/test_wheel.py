"""The wheel, installed elsewhere, finds what it ships."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the unpacked wheel, far from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("dualplan-*.whl")
    target = folder / "site"
    zipfile.ZipFile(wheel).extractall(target)
    return target


def run(site, *arguments):
    code = "import sys; from dualplan.cli.app import run; sys.exit(run(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=site.parent,
        env={"PYTHONPATH": str(site), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_shipped_files_travel(site):
    names = {row["name"] for row in json.loads(run(site, "hardware", "list", "--json"))["hardware"]}
    assert names == {path.stem for path in (ROOT / "hardware_profiles").glob("*.yaml")}
    assert (site / "dualplan" / "py.typed").is_file()
    shipped = site / "dualplan" / "shipped"
    for folder, pattern in (("workloads", "*.yaml"), ("workloads/models", "*.json")):
        assert {p.name for p in (shipped / folder).glob(pattern)} == {p.name for p in (ROOT / folder).glob(pattern)}


def test_main_job_runs_from_the_wheel(site):
    flags = "--hardware dualpath-hopper --model deepseek-v3.2 --workload dualpath-64k --prefill 2 --decode 4 --json"
    data = json.loads(run(site, "feasible", *flags.split()))
    assert data["paper_range"]["upper_exact"] == "7/2"


def test_nothing_but_the_package_is_installed(site):
    top = {path.name for path in site.iterdir()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"dualplan"}
