"""The simulation against what must hold for any queue, exact results of single stations, and the steady model."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualplan.model.service_times import ServiceTimes, linear
from dualplan.model.sources import from_roofline
from dualplan.serving import kernel
from dualplan.serving import layout as k
from dualplan.serving.cluster import cluster
from dualplan.serving.initial import state
from dualplan.serving.run import offline, online
from dualplan.serving.trajectories import Trajectories, dealt, equal_turns, for_workload
from dualplan.spec.load import Node
from dualplan.spec.run import RunSpec
from dualplan.spec.scenario import resolve, set_flags
from dualplan.spec.workload import load_workload
from dualplan.steady.answer import evaluate

KV_27B = 21720
"""Bytes of KV-cache of a token of the DS 27B model: (656 + 68) * 30."""

NOTHING = ServiceTimes(
    name="test",
    origin="test",
    decode_base=1e-6,
)
"""Service times of nothing; tests set what they look at."""


def scenario(model="ds-27b", prefill=1, decode=1, **values):
    keys = {"hardware": "dualpath-hopper", "model": model, "workload": "dualpath-64k", **values}
    tree = {key: Node(str(value), key, origin="flag") for key, value in keys.items()}
    tree["prefill_nodes"], tree["decode_nodes"] = (Node(str(n), "n", origin="flag") for n in (prefill, decode))
    return resolve(Node(tree, "test", origin="flag"))


def equal(turns, context, append, generated):
    shape = np.ones(turns)
    return Trajectories(
        offsets=np.array([0, turns]),
        context=shape * context,
        append=shape * append,
        generated=shape * generated,
        think=shape * 0.0,
        origin="equal turns",
    )


def times(**values):
    """Engines that run passes in step also while none has work."""
    return msgspec.structs.replace(NOTHING, pass_idle=values.get("pass_base", 0.0), **values)


PEOPLE = for_workload(load_workload("dualpath-32k"), count=60, seed=5)
BUSY = times(
    pass_base=0.02,
    per_request=0.002,
    per_token=3e-5,
    per_context=2e-7,
    decode_base=0.012,
    decode_slope=2e-4,
    snic_efficiency=0.9,
    time_per_read=0.006,
    handover=0.02,
    handover_rate=25e9,
)


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize(("context", "append"), [(10_000, 500), (64, 9_000)])
def test_a_working_set_is_what_the_running_agents_have_stored(context, append):
    # contexts that do not grow with what is appended, as in replayed traces and in equal turns
    turns = equal(5, context, append, 100)
    laid = cluster(scenario(), turns, times=BUSY)
    run = state(laid, turns, np.zeros(3), seed=0)
    kernel.PLAIN.run(run, 10_000)
    most = run.total["peak_working_set"]
    assert most == pytest.approx(3 * (context + append + 100) * KV_27B)
    assert run.total["working_set"] == pytest.approx(0, abs=1)
    assert run.sample["working_set"][: run.count["samples"]].min(initial=0) >= 0


@pytest.mark.parametrize("mode", ["basic", "layerwise", "dual-path", "split-read", "oracle"])
@settings(max_examples=4)
@given(agents=st.integers(1, 60), seed=st.integers(0, 9))
def test_tokens_bytes_and_time_are_conserved(mode, agents, seed):
    laid = cluster(scenario(), PEOPLE, mode=mode, times=BUSY)
    found = offline(laid, PEOPLE, RunSpec(agents=agents, seed=seed, compiled=True))
    who = dealt(PEOPLE, agents, seed)
    turns = np.concatenate([np.arange(PEOPLE.offsets[i], PEOPLE.offsets[i + 1]) for i in who])
    hits = np.floor(PEOPLE.context[turns] / 64) * 64
    assert found.agents_done == agents and found.turns == len(turns)
    totals = found.totals
    assert totals["hit_bytes"] == pytest.approx(hits.sum() * KV_27B)
    assert totals["read_bytes"] == pytest.approx(0 if mode == "oracle" else hits.sum() * KV_27B)
    computed = (PEOPLE.context[turns] - hits + PEOPLE.append[turns]).sum()
    assert totals["computed_tokens"] == pytest.approx(computed)
    assert totals["generated_tokens"] == pytest.approx(PEOPLE.generated[turns].sum())
    written = (PEOPLE.append[turns] + PEOPLE.generated[turns]).sum() * KV_27B
    assert totals["written_bytes"] == pytest.approx(written)
    # Little's law: without think time every agent has one turn under way until it ends
    whole = found.agent_time_s.mean * agents
    assert found.in_system * found.simulated_s == pytest.approx(whole)
    # the storage NICs work exactly as long as their reads take
    reads = np.count_nonzero(hits)
    busy = sum(found.utilization[f"{side}_snic_ingress"] for side in ("prefill", "decode")) * found.simulated_s
    if mode != "oracle":
        assert busy == pytest.approx(hits.sum() * KV_27B / 45e9 + 0.006 * reads)
    assert sum(found.ttft_parts_s.values()) == pytest.approx(found.ttft_s.mean, rel=1e-5)


@pytest.mark.parametrize("mode", ["basic", "dual-path", "split-read", "oracle"])
def test_memory_and_queues_are_empty_at_the_end(mode):
    laid = cluster(scenario(), PEOPLE, mode=mode, times=BUSY)
    s = state(laid, PEOPLE, np.zeros(50), seed=1)
    while not kernel.compiled().run(s, 10**6):
        pass
    assert np.allclose(s.engine["room"], laid.prefill.room)
    assert np.allclose(s.decoder["room"], laid.decode.room)
    assert np.allclose(s.engine["load"], 0, atol=1e-9) and np.allclose(s.decoder["tokens"], 0, atol=1e-6)
    assert s.count["waiting"] == s.count["prefilling"] == s.count["decoding"] == 0
    assert np.allclose(s.node["held"], 0, atol=1)
    assert abs(s.total["working_set"]) < 1


@pytest.mark.parametrize("policy", ["shortest-queue", "round-robin"])
@pytest.mark.parametrize("mode", ["basic", "dual-path", "split-read", "oracle"])
def test_compiled_and_plain_runs_agree_to_the_last_bit(mode, policy):
    from dualplan.serving.policies import policies

    laid = cluster(scenario(), PEOPLE, mode=mode, times=BUSY, policies=policies(policy))
    arrivals = np.sort(np.random.default_rng(2).random(15)) * 20
    runs = [state(laid, PEOPLE, arrivals, seed=4) for _ in range(2)]
    for s, form in zip(runs, (kernel.PLAIN, kernel.compiled()), strict=True):
        assert form.run(s, 10**9)
    for name in k.State._fields:
        assert np.asarray(getattr(runs[0], name)).tobytes() == np.asarray(getattr(runs[1], name)).tobytes(), name


def test_same_seed_same_result_and_slices_do_not_matter():
    laid = cluster(scenario(), PEOPLE, mode="dual-path", times=BUSY)
    whole, sliced = (state(laid, PEOPLE, np.zeros(20), seed=3) for _ in range(2))
    kernel.compiled().run(whole, 10**9)
    while not kernel.compiled().run(sliced, 101):
        pass
    assert np.array_equal(whole.record, sliced.record)
    assert offline(laid, PEOPLE, RunSpec(agents=20, seed=3)).jct_s == whole.total["last_done"]
    assert offline(laid, PEOPLE, RunSpec(agents=20, seed=4)).jct_s != whole.total["last_done"]


# ---------------------------------------------------------------- single stations


def lindley(arrivals, service):
    """Waits of a single server in order of arrival, by Lindley's recursion."""
    waits = [0.0]
    for gap in np.diff(arrivals):
        waits.append(max(waits[-1] + service - gap, 0.0))
    return np.array(waits)


def test_a_storage_nic_is_an_md1_queue():
    # one read of 0.1 s (one block and a fixed time) for each agent, everything else takes nothing
    turn = equal(1, 64, 1, 1)
    laid = cluster(scenario(), turn, mode="layerwise", times=times(time_per_read=0.1 - 64 * KV_27B / 50e9))
    arrivals = np.cumsum(np.random.default_rng(8).exponential(0.2, 40_000))
    s = state(laid, turn, arrivals, seed=0)
    kernel.compiled().run(s, 10**9)
    parts = s.record[: s.count["records"]]
    waits = lindley(arrivals, 0.1)
    # a request is fetched at the next boundary, at most a millisecond later
    assert (parts["allocation"] + parts["scheduling"]).mean(dtype=float) == pytest.approx(waits.mean(), abs=1e-3)
    # Pollaczek-Khinchine at half load: rho * S / (2 * (1 - rho)) = 0.05 s; 40,000 arrivals give it within 3 %
    assert parts["allocation"].mean(dtype=float) == pytest.approx(0.05, rel=0.03)


def test_a_saturated_storage_nic_sets_the_completion_time():
    # 20 agents, 10 turns, 1 GB each over one NIC at 50 GB/s and 5 ms a read: 200 * 25 ms, and the way in and out
    tokens = round(1e9 / KV_27B / 64) * 64
    turn = equal(10, tokens, 1, 2)
    laid = cluster(scenario(), turn, mode="layerwise", times=times(time_per_read=0.005))
    service = tokens * KV_27B / 50e9 + 0.005
    assert offline(laid, turn, RunSpec(agents=20)).jct_s == pytest.approx(200 * service, abs=0.01)


def test_a_decode_pool_shares_its_steps():
    # 16 sequences on 8 engines: every step takes 10 ms + 2 * 1 ms; 100 steps after the first token
    turn = equal(1, 0, 10, 101)
    laid = cluster(scenario(), turn, mode="oracle", times=times(decode_base=0.010, decode_slope=0.001))
    found = offline(laid, turn, RunSpec(agents=16))
    assert found.tpot_s.mean == pytest.approx(0.012, rel=1e-6)
    assert found.ttst_s.mean == pytest.approx(0.012, rel=1e-6)
    # two passes of a millisecond: one to be fetched, one to be computed
    assert found.jct_s == pytest.approx(1.2 + 0.002, abs=1e-3)


def test_speculative_decoding_takes_fewer_steps():
    turn = equal(1, 0, 10, 101)
    laid = cluster(scenario(), turn, mode="oracle", times=times(decode_base=0.010), tokens_per_step=2.0)
    assert offline(laid, turn, RunSpec(agents=8)).tpot_s.mean == pytest.approx(0.005)


def test_a_turn_takes_two_and_a_half_passes():
    # fetched at the first boundary (half a pass on average), read during the pass after it, computed in the next one
    turn = equal(1, 0, 10, 1)
    laid = cluster(scenario(), turn, mode="oracle", times=times(pass_base=0.1))
    found = online(laid, turn, RunSpec(arrival_rate=0.5, duration=4000.0, warm_up=0.0, compiled=True))
    parts = found.ttft_parts_s
    assert parts["scheduling"] == pytest.approx(0.05, rel=0.05)
    assert parts["read"] == pytest.approx(0.1, rel=1e-4)
    assert parts["prefill"] == pytest.approx(0.1, rel=1e-4)


def test_a_pass_takes_as_long_as_its_slowest_engine():
    # 9 equal requests on 8 engines: one engine has two
    turn = equal(1, 0, 100, 1)
    laid = cluster(scenario(), turn, mode="oracle", times=times(pass_base=0.1, per_token=1e-3))
    assert offline(laid, turn, RunSpec(agents=8)).jct_s == pytest.approx(0.1 + 0.1 + 0.1)
    assert offline(laid, turn, RunSpec(agents=9)).jct_s == pytest.approx(0.1 + 0.1 + 0.2)


def test_a_long_prompt_is_cut_by_the_attention_quota():
    # attention of 4,096 tokens: 1e-7 / 2 * 4096^2 = 0.84 s, three passes under a quota of 0.3 s, not one
    turn = equal(1, 0, 4096, 1)
    laid = cluster(scenario(), turn, mode="oracle", times=times(pass_base=0.1, attention=linear(1e-7)))
    s = state(laid, turn, np.zeros(1), seed=0)
    kernel.PLAIN.run(s, 10**6)
    assert s.count["passes"] == 3
    assert s.total["last_done"] == pytest.approx(0.1 + 3 * 0.1 + 0.5e-7 * 4096**2)


def test_decode_memory_holds_turns_back():
    # an engine holds two sequences of 30,000 tokens, so 16 of 24 decode first and 8 after them
    turn = equal(1, 0, 29_900, 101)
    laid = cluster(scenario(), turn, mode="oracle", times=times(decode_base=0.01))
    room = 2.5 * 30_001 * KV_27B
    laid = msgspec.structs.replace(laid, decode=msgspec.structs.replace(laid.decode, room=room))
    assert offline(laid, turn, RunSpec(agents=16)).jct_s == pytest.approx(1.0, abs=0.01)
    assert offline(laid, turn, RunSpec(agents=24)).jct_s == pytest.approx(2.0, abs=0.02)


# ---------------------------------------------------------------- the steady model


ROOFLINE = ("hardware.efficiency.prefill=0.15", "hardware.efficiency.hbm=0.9", "hardware.snic.time_per_read=6ms")
"""Figures of the profile, given, so that they win over the parameter set."""


def steady(mode, *sets, model="deepseek-v3.2", nodes=(2, 4), roofline=False):
    """Turns/s of ``feasible`` and of a long job without ramp and tail, for one class of turns: both on the roofline, or
    both with the fitted set.
    """
    flags = [("balance", "1"), ("mode", mode)]
    tree = Node(
        {
            key: Node(v, key, origin="flag")
            for key, v in (
                *flags,
                ("hardware", "dualpath-hopper"),
                ("model", model),
                ("workload", "dualpath-64k"),
                ("prefill_nodes", str(nodes[0])),
                ("decode_nodes", str(nodes[1])),
            )
        },
        "test",
        origin="flag",
    )
    row = ["workload.context=32768", "workload.append=256", "workload.generated=64", "workload.turns=40"]
    found = resolve(tree, sets=set_flags([*row, *(ROOFLINE if roofline else ()), *sets]))
    answer = evaluate(found)
    turns = equal_turns(found.workload)
    times = from_roofline(found, answer.prefill_parallel, answer.decode_parallel) if roofline else None
    laid = cluster(found, turns, times=times)
    s = state(laid, turns, np.zeros(1024), seed=0)
    kernel.compiled().run(s, 10**9)
    when = s.record["time"][: s.count["records"]]
    first, last = np.searchsorted(when, [0.3 * when[-1], 0.7 * when[-1]])
    return answer, (last - first) / (when[last] - when[first])


@pytest.mark.parametrize(
    ("mode", "sets", "binds"),
    [
        ("layerwise", [], "prefill_snic_ingress"),
        ("dual-path", ["hardware.snic.rate=200Gb/s"], "snic_ingress"),
        ("split-read", ["hardware.snic.rate=200Gb/s"], "snic_ingress"),
        ("oracle", [], "prefill_compute"),
    ],
)
def test_one_class_converges_to_the_steady_rate(mode, sets, binds):
    answer, turns_per_s = steady(mode, *sets, roofline=True)
    assert answer.bottleneck.resource.endswith(binds)
    assert turns_per_s == pytest.approx(answer.turns_per_s, rel=0.02)


@pytest.mark.parametrize(
    ("model", "nodes", "mode", "sets"),
    [
        ("deepseek-v3.2", (2, 4), "layerwise", []),
        ("deepseek-v3.2", (2, 4), "oracle", []),
        ("deepseek-v3.2", (2, 4), "oracle", ["workload.generated=4"]),
        ("deepseek-v3.2", (2, 4), "dual-path", ["hardware.snic.rate=200Gb/s"]),
        ("deepseek-v3.2", (2, 4), "dual-path", ["workload.generated=300"]),
        ("ds-27b", (1, 1), "basic", []),
        ("ds-27b", (1, 1), "layerwise", []),
        ("ds-27b", (1, 1), "oracle", []),
        ("ds-27b", (1, 1), "dual-path", ["workload.generated=300"]),
    ],
)
def test_one_class_converges_to_the_steady_rate_of_a_fitted_set(model, nodes, mode, sets):
    answer, turns_per_s = steady(mode, *sets, model=model, nodes=nodes)
    assert answer.demand.passes is not None
    assert turns_per_s == pytest.approx(answer.turns_per_s, rel=0.02)


def test_given_arrivals_may_come_in_any_order():
    # the second trajectory starts first; each is found again by its length
    two = Trajectories(
        offsets=np.array([0, 1, 3]),
        context=np.zeros(3),
        append=np.full(3, 10.0),
        generated=np.array([11.0, 21.0, 31.0]),
        think=np.zeros(3),
        origin="by hand",
    )
    laid = cluster(scenario(), two, mode="oracle", times=times(decode_base=0.1))
    found = online(laid, two, RunSpec(duration=100.0, warm_up=0.0), arrivals=np.array([50.0, 1.0]))
    assert found.agents_done == 2 and found.turns == 3
    # 1.0 s + 2.0 and 3.0 s of decode, 50.0 s + 1.0 s; passes take 2 ms a turn
    assert found.agent_time_s.mean == pytest.approx((5.0 + 1.0) / 2, abs=0.01)


def test_think_time_stretches_a_job():
    slow = msgspec.structs.replace(equal(10, 0, 10, 2), think=np.full(10, 3.0))
    laid = cluster(scenario(), slow, mode="oracle", times=times(decode_base=0.1))
    # nine waits of 3 s between ten turns of one decode step of 0.1 s
    assert offline(laid, slow, RunSpec(agents=1)).jct_s == pytest.approx(9 * 3.0 + 10 * 0.1, abs=0.05)
