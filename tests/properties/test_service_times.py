"""One record of service times: curves against the layer kinds, ``feasible`` against ``simulate`` on the same turns."""

import math
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.errors import InfeasibleError, InputError
from dualplan.model import compute, kv
from dualplan.model.roofline import attention_curves
from dualplan.model.service_times import step_time
from dualplan.serving.cluster import cluster
from dualplan.serving.initial import state
from dualplan.serving.pools import cache_time, group_step
from dualplan.serving.prefill_load import full_pass_share, turn_works
from dualplan.serving.trajectories import for_workload
from dualplan.serving.turns import chunk_attention, chunk_work
from dualplan.spec.distribution import Distribution
from dualplan.spec.hardware import read_hardware
from dualplan.spec.model import load_model
from dualplan.spec.scenario import Scenario, Settings
from dualplan.spec.workload import Turn, Workload, load_workload
from dualplan.steady.answer import evaluate
from dualplan.steady.problem import build
from dualplan.steady.setup import prepare

SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "workloads" / "models").glob("*.json"))
PROFILES = (
    "dualpath-hopper",
    "dgx-h100",
    "dgx-h200",
    "dgx-b200",
    "gb200-nvl72",
    "h20-hgx",
    "h800-deepseek",
    "aws-p5en",
    "mi300x-8",
    "mi355x-8",
)
MODELS = ("deepseek-v3.2", "deepseek-v4-flash", "ds-27b", "glm-5", "gpt-oss-120b", "kimi-k2", "llama-3.1-70b")
WORKLOADS = ("dualpath-32k", "codex-swebench-pro", "mooncake-toolagent", "claude-code-weka", "spread")


@pytest.mark.parametrize("name", SHIPPED)
@given(context=st.floats(0, 3e6) | st.floats(0, 5000))
def test_curves_are_what_the_layer_kinds_say(name, context):
    model = load_model(name)
    read, flops, _ = attention_curves(model, model.kv_format, 1)
    assert flops.value(context) == pytest.approx(compute.attention_flops(model, 1, context), rel=1e-12)
    assert read.value(context) == pytest.approx(kv.kv_read_bytes(model, model.kv_format, context), rel=1e-12)


@cache
def turns_of(name):
    """Some trajectories of a workload, and a workload whose turns are these very ones."""
    workload = (
        Workload(
            name=name, turns=10, context=Distribution(mean=9000, p50=900, p90=20e3, p99=90e3), append=300, generated=200
        )
        if name == "spread"
        else load_workload(name)
    )
    turns = for_workload(workload, count=4, seed=7)
    count = len(turns.context)
    rows = zip(turns.context.tolist(), turns.append.tolist(), turns.generated.tolist(), strict=True)
    mix = tuple(Turn(weight=1 / count, context=c, append=a, generated=g) for c, a, g in rows)
    means = {name: float(getattr(turns, name).mean()) for name in ("context", "append", "generated")}
    # blocks of one token, since the steady model takes the mean loss of whole blocks
    return turns, Workload(name=name, turns=count / 4, block=1, mix=mix, **means)


def agree(setup, laid, turns):
    """Mean prefill work, prefill capacity and decode steps of both on the same turns."""
    problem = build(setup, setup.scenario.settings.mode)
    demand = problem.demand
    works = turn_works(laid, turns)
    assert demand.prefill_gpu_seconds / setup.prefill_parallel.tp == pytest.approx(works.mean(), rel=1e-3)
    capacity = next(float(r.capacity) for r in problem.resources if r.name == "prefill_compute")
    share = full_pass_share(laid, turns, works)
    assert capacity == pytest.approx(laid.prefill.engines * share / works.mean(), rel=1e-3)
    s = state(laid, turns, np.zeros(1), seed=0)
    for turn in range(0, len(turns.context), 37):
        new, old = float(turns.append[turn]), float(turns.context[turn])
        attention = chunk_attention(s, old, new)
        assert chunk_work(s, new, attention) + attention == pytest.approx(works[turn], rel=1e-9)
    caches = np.array([cache_time(s, turn) for turn in range(len(turns.context))])
    mean = float((caches * turns.generated).sum() / turns.generated.sum())
    for batch in (1, 20):
        s.pool["size"][0] = batch * laid.decode.group
        s.pool["cache"][0] = batch * laid.decode.group * mean
        assert group_step(s, 0) == pytest.approx(demand.step.time(batch), rel=1e-3)


def deployment(hardware, model, workload):
    """A setup of the steady model and the cluster of the kernel, of the same parallelism."""
    turns, same_turns = turns_of(workload)
    settings = Settings(prefill_nodes=8, decode_nodes=8)
    machine = {"hardware": hardware, "decode_hardware": hardware}
    scenario = Scenario(settings=settings, **machine, model=load_model(model), workload=same_turns)
    setup = prepare(scenario)
    parallels = {"prefill_parallel": setup.prefill_parallel, "decode_parallel": setup.decode_parallel}
    return turns, setup, msgspec.structs.replace(scenario, **parallels)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("model", MODELS)
def test_feasible_and_simulate_count_alike(profile, model):
    hardware, compared = read_hardware(profile), 0
    for workload in WORKLOADS:
        try:
            turns, setup, scenario = deployment(hardware, model, workload)
            laid = cluster(scenario, turns)
        except (InfeasibleError, InputError):
            continue  # what does not fit is not simulated
        compared += 1
        agree(setup, laid, turns)
    assert compared or model == "glm-5"


def test_feasible_and_simulate_count_experts_and_links_alike():
    turns, setup, scenario = deployment(read_hardware("dgx-h200"), "deepseek-v3.2", "dualpath-32k")
    times = msgspec.structs.replace(
        setup.times,
        pass_base=0.02,
        pass_experts=0.01,
        decode_experts=0.02,
        expert_share=8 / 256,
        expert_ranks=4,
        per_token_hidden=3e-5,
        per_token_link=1e-6,
    )
    laid = cluster(scenario, turns, times=times)
    agree(msgspec.structs.replace(setup, times=times), laid, turns)


def test_a_group_steps_with_the_mean_of_what_its_engines_hold():
    # 3 engines with 6 sequences, whose caches take 9 ms together: 2 sequences and 3 ms an engine
    assert step_time(0.01, 0.001, 1e-4, 2.0, 0.0, 0.003) == pytest.approx(0.01 + 0.002 + 4e-4 + 0.003)


# ---------------------------------------------------------------- what binds


@given(
    hardware=st.sampled_from(PROFILES),
    model=st.sampled_from(MODELS),
    mode=st.sampled_from(["basic", "layerwise", "dual-path", "split-read", "dram-pool", "oracle"]),
    staging=st.sampled_from(["host", "gpudirect", "gds"]),
    nodes=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    context=st.floats(0, 60e3),
    append=st.floats(1, 4000),
    generated=st.floats(1, 4000),
    capacity=st.floats(60e9, 900e9),
)
def test_what_binds_is_as_full_as_its_row_says(
    hardware, model, mode, staging, nodes, context, append, generated, capacity
):
    machine = read_hardware(hardware)
    machine = msgspec.structs.replace(machine, gpu=msgspec.structs.replace(machine.gpu, hbm_capacity=capacity))
    scenario = Scenario(
        settings=Settings(prefill_nodes=nodes[0], decode_nodes=nodes[1], mode=mode, staging=staging),
        hardware=machine,
        decode_hardware=machine,
        model=load_model(model),
        workload=Workload(name="drawn", turns=10, context=context, append=append, generated=generated),
    )
    answer = evaluate(scenario)
    if not answer.turns_per_s:
        return
    binds = answer.bottleneck
    rows = [load for load in answer.loads if (load.name, load.side) == (binds.resource, binds.side)]
    assert binds.utilization in [row.utilization for row in rows]
    assert binds.utilization == pytest.approx(1.0, rel=0.02)
    assert max(load.utilization for load in answer.loads) <= 1 + 1e-6


@pytest.mark.parametrize("capacity", [80 * 2**30, 800e9])
def test_a_memory_that_nothing_fills_does_not_bind(capacity):
    """An engine serves most turns at sqrt(base/quadratic) = 27 sequences; its HBM holds 99 of 0.3 GB."""
    machine = read_hardware("dualpath-hopper")
    machine = msgspec.structs.replace(machine, gpu=msgspec.structs.replace(machine.gpu, hbm_capacity=capacity))
    scenario = Scenario(
        settings=Settings(prefill_nodes=2, decode_nodes=4),
        hardware=machine,
        decode_hardware=machine,
        model=load_model("deepseek-v3.2"),
        workload=Workload(name="short", turns=10, context=4000, append=300, generated=2000),
    )
    answer = evaluate(scenario)
    assert (answer.bottleneck.resource, answer.bottleneck.utilization) == ("decode_compute", 1.0)
    assert answer.bottleneck.next != "decode_hbm"
    base, quadratic = 2.82e-2 * 1.0494, 3.77e-5 * 1.0494
    fastest = 32 / (2000 * (6.51e-4 * 1.0494 + 2 * math.sqrt(base * quadratic)))
    assert answer.turns_per_s == pytest.approx(fastest, rel=1e-6)
