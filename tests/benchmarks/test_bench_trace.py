"""Speed and memory of inspecting large traces, each in a process of its own.

The traces are written to a temporary folder: 1,000,000 Mooncake-shaped lines of about 24 block ids (300 MB, with ids
of 40 bits 400 MB) and 10,000,000 Azure-shaped rows (400 MB). Run with ``--benchmark-only``; the limits are 15 s and
1 GiB.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 15
LIMIT_BYTES = 1 << 30

INSPECT = """
import json, resource, sys
from dualplan.trace.read import read_trace
from dualplan.trace.stats import summarise
from dualplan.trace.view import as_document
trace = read_trace(sys.argv[1])
document = as_document(trace, summarise(trace), sys.argv[1])
print(json.dumps({"requests": document["requests"], "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def mooncake_lines(path, count=1_000_000, spread=lambda block: block):
    chance, fresh, clock, prompts = random.Random(1), 0, 0, []
    with path.open("w") as stream:
        for _ in range(count):
            blocks = max(1, int(chance.expovariate(1 / 24)))
            prefix = prompts[chance.randrange(len(prompts))] if prompts and chance.random() < 0.5 else [0]
            ids = prefix[: chance.randint(1, min(len(prefix), blocks))]
            ids = ids + list(range(fresh + 1, fresh + 1 + blocks - len(ids)))
            fresh = max(fresh, ids[-1])
            if len(prompts) < 5000:
                prompts.append(ids)
            else:
                prompts[chance.randrange(5000)] = ids
            clock += chance.choice((0, 0, 60))
            stream.write(
                f'{{"timestamp": {clock}, "input_length": {512 * len(ids) - chance.randrange(512)}, '
                f'"output_length": {chance.randint(1, 800)}, "hash_ids": {list(map(spread, ids))}}}\n'
            )


def sparse_lines(path):
    # odd multipliers are one-to-one on 40 bits
    mooncake_lines(path, spread=lambda block: block * 0x9E3779B97F % 2**40)


def azure_rows(path, count=10_000_000, run=200_000):
    rng = np.random.default_rng(1)
    clock = np.datetime64("2024-05-10T00:00:00", "us")
    with path.open("w") as stream:
        stream.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for _ in range(count // run):
            times = clock + np.cumsum(rng.exponential(5e4, run)).astype("timedelta64[us]")
            clock = times[-1]
            texts = np.datetime_as_string(times, unit="us").tolist()
            prompts, outputs = rng.integers(1, 8000, run).tolist(), rng.integers(1, 500, run).tolist()
            stream.writelines(
                f"{text[:10]} {text[11:]}+00:00,{prompt},{output}\n"
                for text, prompt, output in zip(texts, prompts, outputs, strict=True)
            )


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "name", "requests"),
    [
        (mooncake_lines, "mooncake.jsonl", 1_000_000),
        (sparse_lines, "sparse.jsonl", 1_000_000),
        (azure_rows, "azure.csv", 10_000_000),
    ],
    ids=["mooncake", "sparse", "azure"],
)
def test_inspect(benchmark, tmp_path, make, name, requests):
    make(tmp_path / name)

    def inspect():
        done = subprocess.run(
            [sys.executable, "-c", INSPECT, str(tmp_path / name)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    found = benchmark.pedantic(inspect, rounds=3, iterations=1)
    benchmark.extra_info |= {"figure": f"trace inspect, {requests:,} rows of {name}", "goal_s": LIMIT_S}
    benchmark.extra_info |= {"peak_bytes": found["peak"], "goal_bytes": LIMIT_BYTES}
    assert found["requests"] == requests
    assert found["peak"] <= LIMIT_BYTES
