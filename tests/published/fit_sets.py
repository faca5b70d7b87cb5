"""Fit the parameter sets of the simulation to the published results: ``python -m tests.published.fit_sets``.

One set for a model, fitted on all of its points in dualplan/data/calibration-published.yaml at once. All runs use the
same trajectories and arrivals, so that differences between two parameter values are not noise. Residuals are in units
of what a point can tell: run-to-run noise of 4 % for a completion time, 2 % for a speed-up (part of the noise is
common), pixels for TTFT and TPOT, 2 % of the whole for shares of TTFT and of time saved.

Prints a set in the form of dualplan/data/calibration.yaml. It takes some minutes a model.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml

from dualplan.model.service_times import from_set
from dualplan.plan.published.recompute import STEPS
from dualplan.plan.published.records import ABLATION, ABLATION_AGENTS
from dualplan.serving.cluster import Cluster, cluster
from dualplan.serving.policies import policies
from dualplan.serving.run import offline, online
from dualplan.serving.trajectories import Trajectories, for_workload
from dualplan.spec.fitted_sets import ParameterSet, parameter_sets
from dualplan.spec.load import Node
from dualplan.spec.run import RunSpec
from dualplan.spec.scenario import Scenario, resolve

DATA = Path(__file__).resolve().parents[2] / "dualplan" / "data" / "calibration-published.yaml"
PUBLISHED = yaml.safe_load(DATA.read_text())
KEYS = ("model", "prefill_nodes", "decode_nodes", "workload")
SEEDS = (0,)

DRAWS = 16
"""Draws of agents, where there are fewer of them than trajectories."""

ROUNDS = 2
"""How often the derivatives are taken anew."""

STEP = 0.05
"""Difference of a logarithm for derivatives: a simulation is not smooth."""

JOB, SPEED_UP, SHARE, SAVED = 0.04, 0.01, 0.02, 0.02
"""Standard deviations: of ln of a completion time and of a speed-up, of a share of TTFT, of a share of time saved. That
of a speed-up is below its noise: it is the figure that is asked for most."""

SMOOTH = 0.25
"""Standard deviations beyond which a residual counts by its size instead of its square: nearly least absolute
deviations, for single points of the figures are far off any smooth law (DS 27B, 48K set, at 4,096 agents)."""

BOUNDS = {
    "pass_time_per_layer": (1e-4, 6e-3),
    "time_per_request": (1e-5, 3e-2),
    "time_per_token": (2e-5, 1e-3),
    "time_per_context_token": (1e-8, 3e-6),
    "decode_base": (5e-3, 4e-2),
    "decode_slope": (1e-5, 2e-3),
    "decode_quadratic": (1e-8, 2e-4),
    "decode_read_slowdown": (1e-3, 0.1),
    "time_per_read": (1e-3, 1e-2),
    "handover": (1e-2, 0.3),
}
FITTED = {
    "deepseek-v3.2": [name for name in BOUNDS if name != "time_per_read"],
    "ds-27b": [name for name in BOUNDS if name not in ("decode_read_slowdown", "handover")],
    "qwen2.5-32b": ["decode_base", "decode_slope"],
}


@functools.cache
def scenario(*point: Any) -> tuple[Scenario, dict[int, Trajectories]]:
    """A published deployment, and its trajectories by seed."""
    tree = {key: Node(str(value), key, origin="flag") for key, value in zip(KEYS, point, strict=True)}
    tree["hardware"] = Node("dualpath-hopper", "hardware", origin="flag")
    found = resolve(Node(tree, "", origin="flag"))
    return found, {seed: for_workload(found.workload, seed=seed) for seed in SEEDS}


def laid(point: tuple[Any, ...], mode: Any, chosen: ParameterSet, seed: int, policy: str = "shortest-queue") -> Cluster:
    """A deployment with the times of a set."""
    found, turns = scenario(*point)
    times = from_set(chosen, found.model.num_layers)
    return cluster(found, turns[seed], mode=mode, policies=policies(policy), times=times)


def job_time(
    point: tuple[Any, ...], mode: str, agents: int, chosen: ParameterSet, policy: str = "shortest-queue"
) -> float:
    """Completion time [s], the mean over sets of trajectories; for few agents, over DRAWS draws of agents as well."""
    turns = scenario(*point)[1]
    draws = range(DRAWS) if agents < len(turns[0].turns) else range(1)
    jobs = [
        offline(
            laid(point, mode, chosen, s, policy), turns[s], RunSpec(agents=agents, seed=s + draw, compiled=True)
        ).jct_s
        for s in SEEDS
        for draw in draws
    ]
    return float(np.mean(np.array(jobs, dtype=float)))


def residuals(chosen: ParameterSet, agents: tuple[int, ...] = (), rates: tuple[float, ...] = ()) -> dict[str, float]:
    """All residuals of a set by a readable name, in standard deviations; positive where the prediction is too high.

    ``agents``, ``rates``: only the points with these, if any are given.
    """
    found: dict[str, float] = {}

    def entries(kind: str) -> list[dict[str, Any]]:
        return [
            e
            for e in PUBLISHED[kind]
            if e["model"] == chosen.model
            and e["prefill_nodes"] <= 2
            and (not agents or e.get("agents", agents[0]) in agents)
            and (not rates or e.get("arrival_rate", rates[0]) in rates)
        ]

    for entry in entries("offline"):
        point = tuple(entry[key] for key in KEYS)
        jobs = {mode: job_time(point, mode, entry["agents"], chosen) for mode in entry["jct_s"]}
        name = f"{entry['workload']} {entry['agents']}"
        for mode, published in entry["jct_s"].items():
            found[f"jct {name} {mode}"] = float(np.log(jobs[mode] / published)) / JOB
        if "basic" in jobs:
            published = entry["jct_s"]["basic"] / entry["jct_s"]["dual-path"]
            found[f"speed-up {name}"] = float(np.log(jobs["basic"] / jobs["dual-path"] / published)) / SPEED_UP
    for entry in entries("online"):
        point = tuple(entry[key] for key in KEYS)
        turns = scenario(*point)[1][0]
        run = online(
            laid(point, entry["mode"], chosen, 0), turns, RunSpec(arrival_rate=entry["arrival_rate"], compiled=True)
        )
        near = 3.0 if entry["arrival_rate"] > 0.36 or entry["mode"] == "basic" else 1.0
        name = f"{entry['mode']} {entry['arrival_rate']}"
        for key, wide in (("ttft_s", 0.05 * near), ("tpot_s", 0.02 * near), ("ttst_s", 0.05)):
            if key in entry:
                mean = getattr(run, key).mean or 60.0
                found[f"{key} {name}"] = float(np.log(min(mean, 20 * entry[key]) / entry[key])) / wide
    for entry in entries("ttft_shares"):
        point = tuple(entry[key] for key in KEYS)
        run = online(
            laid(point, entry["mode"], chosen, 0),
            scenario(*point)[1][0],
            RunSpec(arrival_rate=entry["arrival_rate"], compiled=True),
        )
        for name, share in entry["shares"].items():
            found[f"share {name}"] = (run.ttft_parts_s[name] / (run.ttft_s.mean or 60.0) - share) / SHARE
    if chosen.model == ABLATION.model and not agents:
        point = tuple(getattr(ABLATION, key) for key in KEYS)
        basic = job_time(point, "basic", ABLATION_AGENTS, chosen)
        for step, (mode, policy) in STEPS.items():
            saved = 1 - job_time(point, mode, ABLATION_AGENTS, chosen, policy) / basic
            found[f"saved {step}"] = (saved - PUBLISHED["ablation"][step]) / SAVED
    return found


def fit(start: ParameterSet, steps: int = 8, **points: Any) -> tuple[ParameterSet, dict[str, float]]:
    """The set nearest to the published points, and its residuals: damped least squares (Levenberg and Marquardt) on the
    logarithms of the parameters, kept in their bounds. The derivatives come from differences at the start of each
    round and follow by Broyden's rule. Residuals beyond SMOOTH count by their size (soft L1).
    """
    names = FITTED[start.model]
    low, high = (np.log([BOUNDS[name][i] for name in names]) for i in (0, 1))
    at = np.clip(np.log([max(getattr(start, name), 1e-12) for name in names]), low, high)

    def made(logs: Any) -> ParameterSet:
        return msgspec.structs.replace(start, **dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def values(logs: Any) -> Any:
        found = np.array(list(residuals(made(logs), **points).values())) / SMOOTH
        return np.sign(found) * np.sqrt(2 * (np.sqrt(1 + found**2) - 1))

    now = values(at)
    for _ in range(ROUNDS):
        slopes = np.empty((len(now), len(names)))
        for i in range(len(names)):
            moved = at.copy()
            moved[i] += STEP if at[i] + STEP < high[i] else -STEP
            slopes[:, i] = (values(moved) - now) / (moved[i] - at[i])
        damping = 1.0
        for _ in range(steps):
            normal = slopes.T @ slopes
            change = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-3), -slopes.T @ now)
            tried = np.clip(at + np.clip(change, -0.5, 0.5), low, high)
            change = tried - at
            if not change.any():
                break
            new = values(tried)
            slopes += np.outer(new - now - slopes @ change, change) / (change @ change)
            if new @ new < now @ now:
                at, now, damping = tried, new, damping / 3
            else:
                damping *= 4
            sys.stderr.write(f"{start.model}: {now @ now:.1f}\n")
    return made(at), residuals(made(at), **points)


def summary(found: dict[str, float]) -> str:
    """Medians, 90th percentiles and worst errors by kind, in percent."""
    lines = []
    for kind, wide in (("jct", JOB), ("speed-up", SPEED_UP)):
        errors = np.abs(np.expm1([value * wide for name, value in found.items() if name.startswith(kind)]))
        if len(errors):
            p50, p90 = np.percentile(errors, [50, 90])
            lines.append(f"# {kind}: median {p50:.1%}, p90 {p90:.1%}, worst {errors.max():.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    for shipped in parameter_sets():
        if len(sys.argv) > 1 and shipped.model not in sys.argv[1:]:
            continue
        best, errors = fit(shipped)
        sys.stdout.write(summary(errors) + "\n")
        sys.stdout.write("".join(f"# {name}: {value:+.2f}\n" for name, value in errors.items() if abs(value) > 2))
        sys.stdout.write(msgspec.yaml.encode(best).decode() + "\n")
        sys.stdout.flush()
