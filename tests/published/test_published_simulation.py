"""Predictions of the simulation against the published results of DualPath, at the accuracy that was reached.

Each limit is a statistic over many points, a little above what the shipped parameter sets give; a change that loses
accuracy fails here. Points, sources and reading errors: dualplan/data/calibration-published.yaml.
"""

import functools
from pathlib import Path

import numpy as np
import pytest
import yaml

from dualplan.serving.capacity import find_capacity
from dualplan.serving.cluster import cluster
from dualplan.serving.policies import policies
from dualplan.serving.run import offline, online
from dualplan.serving.trajectories import for_workload
from dualplan.spec.load import Node
from dualplan.spec.run import RunSpec, Slo
from dualplan.spec.scenario import resolve

DATA = Path(__file__).resolve().parents[2] / "dualplan" / "data" / "calibration-published.yaml"
PUBLISHED = yaml.safe_load(DATA.read_text())
KEYS = ("model", "prefill_nodes", "decode_nodes", "workload")


@functools.cache
def scenario(model, prefill_nodes, decode_nodes, workload):
    values = {
        "hardware": "dualpath-hopper",
        "model": model,
        "workload": workload,
        "prefill_nodes": str(prefill_nodes),
        "decode_nodes": str(decode_nodes),
    }
    found = resolve(Node({key: Node(value, key, origin="flag") for key, value in values.items()}, "", origin="flag"))
    return found, for_workload(found.workload)


@functools.cache
def job_time(point, mode, agents, policy="shortest-queue"):
    found, turns = scenario(*point)
    laid = cluster(found, turns, mode=mode, policies=policies(policy))
    # which of the trajectories few agents draw moves their completion time by several percent
    seeds = range(4) if agents < 500 else range(1)
    jobs = [offline(laid, turns, RunSpec(agents=agents, seed=seed, compiled=True)).jct_s for seed in seeds]
    return sum(jobs) / len(jobs)


def arrivals(point, mode, rate):
    found, turns = scenario(*point)
    return online(cluster(found, turns, mode=mode), turns, RunSpec(arrival_rate=rate, compiled=True))


def key(entry):
    return tuple(entry[name] for name in KEYS)


def small(entries):
    return [entry for entry in entries if entry["prefill_nodes"] <= 2]


def errors(model):
    return np.array(
        [
            job_time(key(entry), mode, entry["agents"]) / published - 1
            for entry in small(PUBLISHED["offline"])
            if entry["model"] == model
            for mode, published in entry["jct_s"].items()
        ]
    )


def missed(*values, reason):
    """A limit that is missed, and by how much; the test fails once it is kept."""
    return pytest.param(*values, marks=pytest.mark.xfail(reason=reason, strict=True))


@pytest.mark.parametrize(
    ("model", "points", "limit"),
    [("deepseek-v3.2", 25, 0.025), ("ds-27b", 36, 0.04), ("qwen2.5-32b", 3, 0.03)],
)
def test_median_of_completion_times(model, points, limit):
    found = np.abs(errors(model))
    assert len(found) == points
    assert np.median(found) < limit


@pytest.mark.parametrize(
    ("model", "limit"),
    [("deepseek-v3.2", 0.06), ("ds-27b", 0.12), ("qwen2.5-32b", 0.05)],
)
def test_ninetieth_percentile_of_completion_times(model, limit):
    assert np.percentile(np.abs(errors(model)), 90) < limit


def test_completion_times_of_all_models_together():
    found = np.abs(np.concatenate([errors(model) for model in ("deepseek-v3.2", "ds-27b", "qwen2.5-32b")]))
    assert len(found) == 64
    assert np.median(found) < 0.03 and np.percentile(found, 90) < 0.10


def speed_up_errors(model):
    found = []
    for entry in small(PUBLISHED["offline"]):
        published = entry["jct_s"]
        if entry["model"] == model and "basic" in published:
            basic, dual = (job_time(key(entry), mode, entry["agents"]) for mode in ("basic", "dual-path"))
            found.append(abs(basic / dual / (published["basic"] / published["dual-path"]) - 1))
    return found


@pytest.mark.parametrize(("model", "limit"), [("deepseek-v3.2", 0.03), ("ds-27b", 0.03)])
def test_median_of_speed_up_over_basic(model, limit):
    assert np.median(speed_up_errors(model)) < limit


@pytest.mark.parametrize(
    ("model", "limit"),
    [("deepseek-v3.2", 0.05), ("ds-27b", 0.18)],
)
def test_worst_speed_up_over_basic(model, limit):
    assert max(speed_up_errors(model)) < limit


def test_latencies_below_four_fifths_of_capacity():
    capacity = {entry["mode"]: entry["agents_per_s"] for entry in PUBLISHED["capacity"]}
    ttft, tpot = [], []
    for entry in small(PUBLISHED["online"]):
        if entry["arrival_rate"] > 0.8 * capacity[entry["mode"]] + 1e-9:
            continue
        found = arrivals(key(entry), entry["mode"], entry["arrival_rate"])
        ttft.append(abs(found.ttft_s.mean / entry["ttft_s"] - 1))
        if "tpot_s" in entry:
            tpot.append(abs(found.tpot_s.mean / entry["tpot_s"] - 1))
    assert len(ttft) == 15
    assert np.median(ttft) < 0.08 and max(ttft) < 0.15
    assert np.median(tpot) < 0.02 and max(tpot) < 0.04


def test_shares_of_ttft():
    (entry,) = PUBLISHED["ttft_shares"]
    found = arrivals(key(entry), entry["mode"], entry["arrival_rate"])
    for name, share in entry["shares"].items():
        assert found.ttft_parts_s[name] / found.ttft_s.mean == pytest.approx(share, abs=0.02)


def test_second_token():
    entry = next(entry for entry in small(PUBLISHED["online"]) if "ttst_s" in entry)
    found = arrivals(key(entry), entry["mode"], entry["arrival_rate"])
    assert found.ttst_s.mean == pytest.approx(entry["ttst_s"], rel=0.03)


@pytest.mark.parametrize("entry", PUBLISHED["capacity"], ids=lambda entry: entry["mode"])
def test_capacity_within_one_step(entry):
    # runs of 3,000 s; the published rates are multiples of 0.05 agents/s
    found, turns = scenario(*key(entry))
    capacity = find_capacity(
        cluster(found, turns, mode=entry["mode"]), turns, RunSpec(find_capacity=True, slo=Slo(ttft=4.0, tpot=0.05))
    )
    assert capacity.met == pytest.approx(entry["agents_per_s"], abs=0.05)


@pytest.mark.parametrize(
    ("step", "mode", "policy"),
    [
        ("layerwise", "layerwise", "shortest-queue"),
        missed("dual-path without scheduler", "dual-path", "round-robin", reason="42.4 % saved, published 38.2 %"),
        ("dual-path", "dual-path", "shortest-queue"),
    ],
)
def test_ablation(step, mode, policy):
    point = ("deepseek-v3.2", 2, 4, "dualpath-64k")
    saved = 1 - job_time(point, mode, 2048, policy) / job_time(point, "basic", 2048)
    assert saved == pytest.approx(PUBLISHED["ablation"][step], abs=0.04)


@pytest.mark.parametrize(
    ("policy", "published"),
    [("round-robin", "snic_round_robin"), ("shortest-queue", "snic_scheduler")],
)
def test_balance_of_storage_nics(policy, published):
    found, turns = scenario("deepseek-v3.2", 2, 4, "dualpath-64k")
    laid = cluster(found, turns, mode="dual-path", policies=policies(policy))
    ratio = offline(laid, turns, RunSpec(agents=2048, compiled=True)).max_over_mean["snic"]
    assert ratio == pytest.approx(PUBLISHED["balance"][published], rel=0.08)


@pytest.mark.parametrize(
    ("one", "other", "limit"),
    # published as equal, for their storage NICs are
    [
        (("basic", 1, 1), ("basic", 1, 2), 0.01),
        missed(("dual-path", 1, 1), ("basic", 2, 1), 0.06, reason="9.8 %"),
        (("dual-path", 2, 1), ("dual-path", 1, 2), 0.06),
    ],
)
def test_deployments_with_equal_storage_nics(one, other, limit):
    times = [job_time(("ds-27b", p, d, "dualpath-64k"), mode, 1024) for mode, p, d in (one, other)]
    assert times[0] / times[1] == pytest.approx(1, abs=limit)


def test_large_deployments_repeat_small_ones():
    large = job_time(("deepseek-v3.2", 8, 16, "dualpath-48k"), "dual-path", 8192)
    unit = job_time(("deepseek-v3.2", 2, 4, "dualpath-48k"), "dual-path", 2048)
    # published for 24 units: 3,201 s against 3,167 s
    assert large / unit == pytest.approx(1, abs=0.03)
