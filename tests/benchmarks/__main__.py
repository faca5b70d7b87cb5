"""All speed figures in one table: ``python -m tests.benchmarks [--quick] [--json]``.

Runs the pytest-benchmark tests of this folder and prints what they say beside the goals. A benchmark tells this table
about itself in ``benchmark.extra_info``, every key optional: ``figure`` (its name here), ``seconds`` (the figure, where
the clock of the benchmark holds more than is meant; else the fastest round), ``goal_s``; ``ratio``, ``goal_ratio``,
``ratio_to`` (how many times as long as something else); ``peak_bytes``, ``goal_bytes``; ``peers`` (name of another tool
-> its seconds for the same task, None where it is not installed).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "scipy", "numba", "sympy", "duckdb", "msgspec", "typer", "rich")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one short round each, without the long ones")
    parser.add_argument("--json", action="store_true", help="machine, figures, goals and ratios as JSON")
    parser.add_argument("-k", dest="chosen", metavar="EXPRESSION", help="only these benchmarks, as for pytest")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [sys.executable, "-m", "pytest", "tests/benchmarks", "--benchmark-only", "-p", "no:xdist", "-q"]
        command += [f"--benchmark-json={results}", "--benchmark-columns=min,median", "--no-header"]
        command += ["-m", "not long", "--benchmark-max-time=0.2", "--benchmark-min-rounds=1"] if given.quick else []
        command += ["-k", given.chosen] if given.chosen else []
        # the table of pytest-benchmark itself goes to standard error, where long runs show that they live
        code = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode
        if not results.exists() or not results.stat().st_size:
            print("no benchmark ran", file=sys.stderr)
            return code or 1
        found = json.loads(results.read_text())
    answer = {"schema": "dualplan/benchmarks/1", "machine": machine(), "figures": [row(b) for b in found["benchmarks"]]}
    print(json.dumps(answer, indent=2) if given.json else table(answer))
    return code


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2] for line in info.read_text().splitlines() if "model name" in line]
        if info.exists()
        else []
    )
    return names[0].strip() if names else platform.processor() or platform.machine()


def row(benchmark: dict[str, Any]) -> dict[str, Any]:
    """One benchmark of pytest-benchmark's file as a row of the table."""
    told = benchmark.get("extra_info", {})
    seconds = told.get("seconds", benchmark["stats"]["min"])
    goal = told.get("goal_s")
    return {
        "figure": told.get("figure", benchmark["name"]),
        "seconds": seconds,
        "goal_s": goal,
        "of_goal": None if goal is None else seconds / goal,
        "ratio": told.get("ratio"),
        "ratio_to": told.get("ratio_to"),
        "goal_ratio": told.get("goal_ratio"),
        "peak_bytes": told.get("peak_bytes"),
        "goal_bytes": told.get("goal_bytes"),
        "peers": {
            name: None if theirs is None else {"seconds": theirs, "times_ours": theirs / seconds}
            for name, theirs in told.get("peers", {}).items()
        },
    }


def table(answer: dict[str, Any]) -> str:
    """The answer for people; a goal that is missed says so in words."""
    about = answer["machine"]
    busy = (about["load_average"] or 0) > (about["cores"] or 1)
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        f"{about['cpu']}, {about['cores']} cores, load {about['load_average']}",
        f"{about['system']}, Python {about['python']}",
        versions,
        *([] if not busy else ["The machine was busy: times are upper bounds."]),
        "",
        f"{'figure':<48}{'seconds':>10}{'goal':>8}{'of goal':>9}",
    ]
    for figure in answer["figures"]:
        goal = figure["goal_s"]
        share = "" if goal is None else f"{figure['of_goal']:>8.0%}" + (" MISSED" if figure["of_goal"] > 1 else "")
        lines.append(
            f"{figure['figure'][:47]:<48}{figure['seconds']:>10.4g}{'' if goal is None else f'{goal:g}':>8}{share:>9}"
        )
        lines += [f"    {line}" for line in _notes(figure)]
    return "\n".join(lines)


def _notes(figure: dict[str, Any]) -> list[str]:
    notes = []
    if figure["ratio"] is not None:
        wanted = figure["goal_ratio"]
        goal = "" if wanted is None else f" (goal {wanted:.3g})" + (" MISSED" if figure["ratio"] > wanted else "")
        notes.append(f"{figure['ratio']:.2f} x {figure['ratio_to'] or 'its base'}{goal}")
    if figure["peak_bytes"]:
        missed = " MISSED" if figure["goal_bytes"] and figure["peak_bytes"] > figure["goal_bytes"] else ""
        goal = f" (goal {figure['goal_bytes'] / 1e6:.0f})" if figure["goal_bytes"] else ""
        notes.append(f"peak memory {figure['peak_bytes'] / 1e6:.0f} MB{goal}{missed}")
    for name, peer in figure["peers"].items():
        notes.append(
            f"{name}: not installed"
            if peer is None
            else f"{name}: {peer['seconds']:.3g} s, {peer['times_ours']:.2f} times ours"
        )
    return notes


if __name__ == "__main__":
    sys.exit(main())
