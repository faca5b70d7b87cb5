"""Bursts and Poisson arrivals on a 48x96 bipartite cluster, beside SimGrid where it is installed.

Run with: python -m pytest tests/benchmarks/test_bench_flow.py --benchmark-only -s -p no:xdist
Each figure is from a process of its own, whose peak memory is told too.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PREFILL, DECODE, CAPACITY, MEAN_SIZE = 48, 96, 50e9, 5e8

OURS = """
import json, resource, sys, time
from dualplan.flow.fluid import run_fluid
from dualplan.flow.problem import Flow, FlowProblem, Link
PREFILL, DECODE, CAPACITY, flows = json.load(sys.stdin)
links = tuple(Link(id=f"{side}{i}", capacity=CAPACITY) for side, n in (("p", PREFILL), ("d", DECODE)) for i in range(n))
routes = {(p, d): ((f"p{p}", 1.0), (f"d{d}", 1.0)) for p in range(PREFILL) for d in range(DECODE)}
flows = tuple(
    Flow(id=i, route=routes[p, d], size=size, start=start)
    for i, (p, d, size, start) in enumerate(flows)
)
problem = FlowProblem(links=links, flows=flows)
run_fluid(FlowProblem(links=links, flows=flows[:2]), compiled=True)  # compiles, or loads what is compiled
begin, begin_cpu = time.perf_counter(), time.process_time()
result = run_fluid(problem, compiled=True)
print(json.dumps({
    "wall_s": time.perf_counter() - begin, "cpu_s": time.process_time() - begin_cpu, "makespan_s": result.makespan_s,
    "events": result.events, "flow_classes": result.flow_classes,
    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
}))
"""

# the same flows as S4U communications between hosts joined by their two NIC links, with CM02's plain max-min sharing
SIMGRID = """
import json, sys, time
from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor
PREFILL, DECODE, CAPACITY, flows = json.load(sys.stdin)
engine = Engine(["x", "--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0", "--cfg=network/latency-factor:0",
                 "--cfg=network/bandwidth-factor:1", "--cfg=network/weight-S:0", "--cfg=network/crosstraffic:0",
                 "--log=root.thres:error"])
zone = NetZone.create_full_zone("z")
hosts, links = {}, {}
for side, n in (("p", PREFILL), ("d", DECODE)):
    for i in range(n):
        hosts[side, i] = zone.create_host(f"{side}{i}", 1e9)
        links[side, i] = zone.create_link(f"link-{side}{i}", CAPACITY)
for p in range(PREFILL):
    for d in range(DECODE):
        route = [LinkInRoute(links["p", p]), LinkInRoute(links["d", d])]
        zone.add_route(hosts["p", p].netpoint, hosts["d", d].netpoint, None, None, route, True)
zone.seal()
def main():
    sent = []
    for p, d, size, start in flows:
        this_actor.sleep_until(start)
        sent.append(Comm.sendto_async(hosts["p", p], hosts["d", d], int(size)))
    Comm.wait_all(sent)
Actor.create("main", hosts["p", 0], main)
begin = time.perf_counter()
engine.run()
print(json.dumps({"wall_s": time.perf_counter() - begin, "makespan_s": engine.clock - flows[0][3]}))
"""


def random_flows(number, load):
    """(source, destination, bytes, start) of each flow; ``load`` of the sources, 0 for all starting at once."""
    generator = random.Random(7)
    rate = load * PREFILL * CAPACITY / MEAN_SIZE
    flows, start = [], 0.0
    for _ in range(number):
        start += generator.expovariate(rate) if rate else 0.0
        size = float(round(generator.uniform(0, 2 * MEAN_SIZE)) + 1)
        flows.append((generator.randrange(PREFILL), generator.randrange(DECODE), size, start))
    return flows


def measured(python, code, number, load):
    done = subprocess.run(
        [python, "-c", code],
        cwd=ROOT,
        input=json.dumps([PREFILL, DECODE, CAPACITY, random_flows(number, load)]),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def python_with_simgrid():
    """A Python that can import SimGrid: this one, or the system's."""
    for python in (sys.executable, shutil.which("python3", path="/usr/bin")):
        if python and not subprocess.run([python, "-c", "import simgrid"], capture_output=True, check=False).returncode:
            return python
    return None


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "number", "load", "goal"),
    [("burst of 20,000 flows", 20_000, 0, 3.0), ("100,000 Poisson arrivals at load 0.7", 100_000, 0.7, 3.0)],
)
def test_bipartite_48x96(benchmark, name, number, load, goal):
    pytest.importorskip("numba")
    measured(sys.executable, OURS, 2, 0)  # leaves machine code in the cache where there is one
    ours = benchmark.pedantic(measured, (sys.executable, OURS, number, load), rounds=3)
    print(
        f"\n{name}: {ours['wall_s']:.2f} s ({ours['cpu_s']:.2f} s CPU, goal {goal} s), "
        f"peak memory {ours['peak_mb']:.0f} MB (goal 300), {ours['events']:,} events, {ours['flow_classes']:,} classes"
    )
    benchmark.extra_info |= ours | {"figure": f"flow: {name}", "goal_s": goal, "seconds": ours["wall_s"]}
    benchmark.extra_info |= {"peak_bytes": 1e6 * ours["peak_mb"], "goal_bytes": 300e6, "peers": {"SimGrid": None}}
    assert ours["makespan_s"] > 0
    python = python_with_simgrid()
    if python is None:
        print("SimGrid is not installed (Debian: python3-simgrid)")
        return
    theirs = measured(python, SIMGRID, number, load)
    benchmark.extra_info["peers"] = {"SimGrid": theirs["wall_s"]}
    print(f"SimGrid: {theirs['wall_s']:.2f} s, {theirs['wall_s'] / ours['wall_s']:.1f} times ours")
    assert ours["makespan_s"] == pytest.approx(theirs["makespan_s"], rel=1e-6)
