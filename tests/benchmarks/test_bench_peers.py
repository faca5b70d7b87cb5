"""The same task done by other tools, where their commands are on the PATH. Their answers are compared as well.

kvcache-simulator (PyPI) replays a trace against an infinite cache; aiconfigurator (PyPI) searches the best split of a
cluster. The second task is not quite the same: aiconfigurator varies parallelism and batch too and knows no storage,
dualplan solves every link for each split. SimGrid stands in test_bench_flow.py.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks.test_bench_trace import mooncake_lines

ROOT = Path(__file__).resolve().parents[2]


def timed(command):
    """Wall time of a command [s] and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def dualplan(*arguments):
    return json.loads(timed([sys.executable, "-m", "dualplan", *map(str, arguments), "--json"])[1])


@pytest.mark.long
def test_hit_rate_of_an_infinite_cache(benchmark, tmp_path):
    path = tmp_path / "trace.jsonl"
    mooncake_lines(path, 50_000)
    ours = benchmark.pedantic(dualplan, ("trace", "inspect", path), rounds=3)
    benchmark.extra_info |= {"figure": "hit rate of 50,000 Mooncake lines", "peers": {"kvcache-simulator": None}}
    tool = shutil.which("kvcache-simulator")
    if tool is None:
        return
    command = [tool, "run", "--trace", str(path), "--model", "deepseek-v3.2", "--block-size", "512", "--no-progress"]
    command += ["--policies", "lru", "--budgets-gib", "1000000", "--format", "json"]
    timed(command)  # it compiles its core when it first runs
    seconds, text = timed(command)
    benchmark.extra_info["peers"] = {"kvcache-simulator": seconds}
    # it leaves out the first half of the requests, in which the cache of a random trace fills alike
    assert json.loads(text)["hitRateCeiling"] == pytest.approx(ours["hit_rate"]["by_token"], rel=0.02)


@pytest.mark.long
def test_best_split_of_four_nodes(benchmark):
    scenario = ["--hardware", "dgx-h200", "--model", "qwen3-235b-a22b", "--workload", "dualpath-32k"]
    call = ("feasible", *scenario, "--nodes", "4", "--exit-zero")
    found = benchmark.pedantic(dualplan, call, rounds=3)
    assert found["prefill_nodes"] + found["decode_nodes"] == 4
    benchmark.extra_info |= {"figure": "best split of 4 nodes of H200", "peers": {"aiconfigurator": None}}
    tool = shutil.which("aiconfigurator")
    if tool is None:
        return
    lengths = ["--isl", "20000", "--prefix", "19640", "--osl", "117", "--ttft", "4000", "--tpot", "50"]
    command = [tool, "cli", "default", "--model", "Qwen/Qwen3-235B-A22B", "--total-gpus", "32", "--system", "h200_sxm"]
    benchmark.extra_info["peers"] = {"aiconfigurator": timed([*command, *lengths])[0]}
