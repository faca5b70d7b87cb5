"""dualplan from Python, as a notebook: editors and Jupyter show the parts between ``# %%`` as cells.

Run it with ``python examples/python_api.py``.
"""

# %% Load a scenario; values may be laid over the file, as with --set
from pathlib import Path

import dualplan
from dualplan.errors import InputError

PAPER = Path(__file__).with_name("dualpath-paper.yaml")
scenario = dualplan.load(PAPER)

# %% Evaluate: the steady answer
answer = dualplan.evaluate(scenario)
assert answer.bottleneck is not None
print(f"{'feasible' if answer.feasible else 'not feasible'}: {answer.turns_per_s:.1f} turns/s,", end=" ")
print(f"bound by {answer.bottleneck.resource}")
for load in answer.loads:
    if load.utilization > 0.5:
        print(f"  {load.name:<22}{load.utilization:5.0%}")

# %% The P/D range in exact fractions: what the paper counts, and with all traffic
print(f"hits only    {answer.ranges.paper.lower} .. {answer.ranges.paper.upper}")
print(f"all traffic  {float(answer.ranges.all_traffic.lower):.3f} .. {float(answer.ranges.all_traffic.upper):.3f}")

# %% What would twice the storage NICs change?
more = dualplan.evaluate(dualplan.load(PAPER, ["hardware.snic.count=2"]))
print(f"two storage NICs a node: {more.turns_per_s / answer.turns_per_s - 1:+.0%} turns/s")

# %% Sweep: arrays, one entry a point, ready for pandas or a plot
points = dualplan.sweep(scenario, {"prefill": range(1, 5), "decode": [2, 4, 8]})
best = max(points.rows(), key=lambda row: row["throughput.turns_per_s"] / (row["prefill_nodes"] + row["decode_nodes"]))
print(f"most turns/s a node: {best['prefill_nodes']}P{best['decode_nodes']}D of {len(points.rows())} points")

# %% Simulate: queues, batches and think times
run = dualplan.simulate(scenario, agents=8)
print(f"8 agents, {run.turns:,} turns: {run.jct_s:,.0f} s, mean TTFT {run.ttft_s.mean:.2f} s")

# %% Bad input is one exception with every problem in it
try:
    dualplan.load(PAPER, ["hardware.snic.rate=400GB", "prefill_nodes=-1"])
except InputError as error:
    print(error)
