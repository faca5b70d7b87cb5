"""Speed of the simulation after compilation. Run with: python -m pytest tests/benchmarks --benchmark-only -s."""

import resource
import sys

import numpy as np
import pytest

from dualplan.serving import kernel
from dualplan.serving.cluster import cluster
from dualplan.serving.run import offline, online
from dualplan.serving.trajectories import Trajectories, for_workload
from dualplan.spec.load import Node
from dualplan.spec.run import RunSpec
from dualplan.spec.scenario import resolve


def laid_out(prefill, decode, trajectories=None):
    values = {
        "hardware": "dualpath-hopper",
        "model": "deepseek-v3.2",
        "workload": "dualpath-48k",
        "prefill_nodes": str(prefill),
        "decode_nodes": str(decode),
    }
    found = resolve(Node({key: Node(value, key, origin="flag") for key, value in values.items()}, "", origin="flag"))
    turns = trajectories or for_workload(found.workload)
    kernel.compiled()
    return cluster(found, turns, mode="dual-path"), turns


@pytest.mark.parametrize(
    ("prefill", "decode", "agents", "goal"),
    [(2, 4, 2048, 1.0), pytest.param(48, 96, 49152, 30.0, marks=pytest.mark.long)],
)
def test_offline(benchmark, prefill, decode, agents, goal):
    laid, turns = laid_out(prefill, decode)
    spec = RunSpec(agents=agents, compiled=True)
    result = benchmark.pedantic(offline, (laid, turns, spec), rounds=3 if agents < 9999 else 1)
    seconds = benchmark.stats.stats.min
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    benchmark.extra_info |= {
        "figure": f"simulate, {prefill}P{decode}D, {agents:,} agents",
        "goal_s": goal,
        "peak_bytes": memory,
        "goal_bytes": 2 << 30,
        "us_a_turn": 1e6 * seconds / result.turns,
    }
    print(
        f"\n{prefill}P{decode}D, {agents} agents: {result.turns:,} turns, {result.events:,} events, {seconds:.2f} s "
        f"(goal {goal:g}), {1e6 * seconds / result.turns:.2f} us a turn, peak {memory / 2**30:.2f} GiB (goal 2)"
    )


def test_one_turn_requests_at_given_times(benchmark):
    # the shape of the Mooncake conversation trace: 12,031 requests in an hour, 12,035 tokens in, 343 out, 37 % hits
    random = np.random.default_rng(0)
    n = 12_031
    prompt = random.lognormal(np.log(12_035) - 0.32, 0.8, n).clip(64, 120_000).round()
    context = np.floor(prompt * 0.37 / 512) * 512
    turns = Trajectories(
        offsets=np.arange(n + 1),
        context=context,
        append=prompt - context,
        generated=random.lognormal(np.log(343) - 0.32, 0.8, n).clip(1).round(),
        think=np.zeros(n),
        origin="like the Mooncake conversation trace",
    )
    benchmark.extra_info |= {"figure": f"simulate, 4P4D, {n:,} requests", "goal_s": 1.0}
    laid, _ = laid_out(4, 4, turns)
    times = np.sort(random.random(n)) * 3600
    spec = RunSpec(duration=3660.0, compiled=True)
    result = benchmark.pedantic(online, (laid, turns, spec), {"arrivals": times}, rounds=3)
    print(f"\n4P4D, {n} requests: {benchmark.stats.stats.min:.2f} s (goal 1), {result.turns:,} turns counted")
