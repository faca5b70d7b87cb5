"""What must hold for any deployment, whatever the model, workload and machine: order, monotony, units, bounds."""

import math
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dualplan.serving.cluster import cluster
from dualplan.serving.run import offline
from dualplan.serving.trajectories import Trajectories
from dualplan.spec.fitted_sets import find_set
from dualplan.spec.hardware import read_hardware
from dualplan.spec.model import load_model
from dualplan.spec.run import RunSpec
from dualplan.spec.scenario import Slo, read_scenario, resolve, set_flags
from dualplan.spec.workload import with_plain_means
from dualplan.steady.answer import evaluate
from dualplan.steady.problem import build
from dualplan.steady.ranges import ranges
from dualplan.steady.setup import prepare

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
MODES = ("basic", "layerwise", "dual-path", "split-read", "dram-pool", "oracle")
SLACK = 1 + 1e-9
ITERATED = 1 + 1e-5
"""Rates under fitted sets are found by iteration."""


@cache
def paper(*sets):
    return resolve(read_scenario(PAPER), sets=set_flags(sets), base=PAPER.parent)


def changed(record, **values):
    return msgspec.structs.replace(record, **values)


def at(record, path, value):
    """A record with the value at a key path replaced."""
    first, _, rest = path.partition(".")
    return changed(record, **{first: at(getattr(record, first), rest, value) if rest else value})


def value_at(record, path):
    for name in path.split("."):
        record = getattr(record, name)
    return record


def both_sides(found, path, value):
    return changed(
        found, hardware=at(found.hardware, path, value), decode_hardware=at(found.decode_hardware, path, value)
    )


def in_mode(found, mode, **values):
    return changed(found, settings=changed(found.settings, mode=mode, **values))


@st.composite
def deployments(draw, modes=MODES, balance=None):
    """Shipped machines with changed NICs, shipped models, plain turns; whole blocks, so that no tail is recomputed."""
    name = draw(st.sampled_from(["dualpath-hopper", "dgx-h200", "dgx-b200", "aws-p5", "h20-hgx", "mi300x-8"]))
    hardware = changed(read_hardware(name), name="drawn")  # no fitted set: the roofline of the profile
    hardware = at(hardware, "snic.count", draw(st.integers(1, 4)))
    hardware = at(hardware, "snic.efficiency", draw(st.sampled_from([0.5, 0.9, 1.0])))
    model = load_model(draw(st.sampled_from(["ds-27b", "qwen2.5-32b", "gpt-oss-120b", "qwen3-235b-a22b", "kimi-k2"])))
    workload = with_plain_means(
        paper().workload,
        context=64.0 * draw(st.integers(1, 1500)),
        append=64.0 * draw(st.integers(1, 60)),
        generated=64.0 * draw(st.integers(0, 30)),
        turns=10.0,
    )
    found = changed(paper(), hardware=hardware, decode_hardware=hardware, model=model, workload=workload)
    return in_mode(
        found,
        draw(st.sampled_from(modes)),
        prefill_nodes=draw(st.integers(1, 12)),
        decode_nodes=draw(st.integers(1, 12)),
        balance=balance,
        slo=Slo(),
    )


@st.composite
def fitted_deployments(draw):
    """The paper's machine and models, for which there are fitted sets, with any turns."""
    found = draw(deployments())
    hardware = read_hardware("dualpath-hopper")
    model = load_model(draw(st.sampled_from(["ds-27b", "deepseek-v3.2", "qwen2.5-32b"])))
    return changed(found, hardware=hardware, decode_hardware=hardware, model=model)


def rate(found):
    return evaluate(found).turns_per_s


# ---------------------------------------------------------------- order and monotony


@settings(max_examples=60)
@given(
    deployments(),
    st.sampled_from(
        ["snic.rate", "cnic.rate", "dram.bandwidth", "gpu.hbm_bandwidth", "efficiency.prefill", "efficiency.attention"]
    ),
    st.floats(1.0, 4.0),
)
def test_more_of_a_rate_never_lowers_throughput(found, path, factor):
    before = value_at(found.hardware, path)
    assume(before is not None)
    more = min(before * factor, 1.0) if path.startswith("efficiency") else before * factor
    assert rate(both_sides(found, path, more)) >= rate(found) / SLACK


@settings(max_examples=60)
@given(deployments(), st.sampled_from(["snic.count", "prefill_nodes", "decode_nodes"]))
def test_one_more_never_lowers_throughput_at_the_same_parallelism(found, what):
    setup = prepare(found)
    found = changed(found, prefill_parallel=setup.prefill_parallel, decode_parallel=setup.decode_parallel)
    if what == "snic.count":
        more = both_sides(found, what, found.hardware.snic.count + 1)
    else:
        # whole replicas, since a parallelism covers a given number of GPUs
        more = in_mode(found, found.settings.mode, **{what: 2 * getattr(found.settings, what)})
    assert rate(more) >= rate(found) / SLACK


@settings(max_examples=80)
@given(deployments(balance=1.0))
def test_modes_are_ordered(found):
    """Basic is left out: as under fitted sets below, it fetches later and holds decode memory for less long."""
    rates = {mode: rate(in_mode(found, mode)) for mode in MODES}
    assert rates["layerwise"] <= rates["dual-path"] * ITERATED
    assert rates["dual-path"] <= rates["split-read"] * ITERATED
    assert max(rates.values()) <= rates["oracle"] * ITERATED


@settings(max_examples=60)
@given(fitted_deployments())
def test_modes_are_ordered_under_fitted_sets(found):
    """Storage NICs lose a little where both sides read (``both_sides``); but for that the order is the same.

    Basic is left out: decode memory is held from the fetch of a turn on, and basic fetches later, when its prefill
    memory is free. Where decode memory binds, that carries a few per cent more turns than layerwise.
    """
    found = in_mode(found, "dual-path", balance=1.0)
    rates = {mode: rate(in_mode(found, mode)) for mode in MODES}
    lost = find_set(found.model.name, found.hardware.name).both_sides
    assert lost * rates["layerwise"] <= rates["dual-path"] * ITERATED
    assert rates["dual-path"] <= rates["split-read"] * ITERATED
    assert max(rates.values()) <= rates["oracle"] * ITERATED


@settings(max_examples=60)
@given(
    fitted_deployments(),
    st.sampled_from(["snic.rate", "cnic.rate", "dram.bandwidth", "gpu.hbm_capacity"]),
    st.floats(1.0, 4.0),
)
def test_more_never_lowers_throughput_under_fitted_sets(found, path, factor):
    setup = prepare(found)
    found = changed(found, prefill_parallel=setup.prefill_parallel, decode_parallel=setup.decode_parallel)
    assert rate(both_sides(found, path, factor * value_at(found.hardware, path))) >= rate(found) / ITERATED


@settings(max_examples=40)
@given(deployments(modes=("dual-path",)), st.floats(1.0, 3.0))
def test_imbalance_never_helps(found, balance):
    assert rate(in_mode(found, "dual-path", balance=balance)) <= rate(in_mode(found, "split-read")) * SLACK


@settings(max_examples=40)
@given(deployments(modes=("oracle",)), st.integers(1, 500), st.integers(1, 500), st.integers(1, 500))
def test_a_prompt_that_is_cached_to_a_larger_part_is_faster_to_compute_and_slower_to_read(found, prompt, one, other):
    """A prompt of ``prompt`` + 500 blocks of which more or fewer are hits, nothing generated."""
    fewer, more = sorted((min(one, prompt + 499), min(other, prompt + 499)))
    assume(fewer < more)
    answers = []
    for hits in (fewer, more):
        tokens = {"context": 64.0 * hits, "append": 64.0 * (prompt + 500 - hits), "generated": 0.0}
        answers.append(changed(found, workload=with_plain_means(found.workload, **tokens)))
    oracle = [evaluate(answer) for answer in answers]
    if all(answer.turns_per_s for answer in oracle):
        assert oracle[1].turns_per_s >= oracle[0].turns_per_s / SLACK
    reads = [build(prepare(in_mode(answer, "dual-path")), "dual-path").demand.amounts.read for answer in answers]
    assert reads[1] > reads[0]
    assert oracle[1].demand.computed_tokens < oracle[0].demand.computed_tokens


# ---------------------------------------------------------------- ranges


@settings(max_examples=80)
@given(deployments(modes=("dual-path", "split-read")), st.sampled_from([None, 0.0, 0.3]))
def test_ranges_lie_inside_each_other(found, load):
    """All traffic leaves no more room than hit bytes alone; storage NICs below their line rate leave more."""
    found = in_mode(found, found.settings.mode, collective_load=load)
    setup = prepare(found)
    three = ranges(setup, build(setup, found.settings.mode))
    for inner, outer in ((three.all_traffic, three.paper), (three.all_traffic, three.effective)):
        if inner.empty_because:
            continue
        assert not outer.empty_because
        assert outer.lower is None or inner.lower >= outer.lower
        assert outer.upper is None or inner.upper <= outer.upper


@settings(max_examples=60)
@given(deployments(modes=("split-read",)))
def test_inside_the_reachable_range_no_link_binds_before_storage(found):
    answer = evaluate(found)
    assume(answer.turns_per_s > 0)
    setup = prepare(found)
    problem = build(setup, found.settings.mode)
    links = {resource.name for resource in problem.resources if resource.in_range}
    inside = answer.ranges.effective.contains(setup.prefill_nodes / setup.decode_nodes)
    storage = max(load.utilization for load in answer.loads if load.name.endswith("snic_ingress"))
    if inside and answer.bottleneck.resource in links:
        # a link may be full only together with the storage NICs
        assert storage == pytest.approx(1.0)


# ---------------------------------------------------------------- units


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        ("hardware.snic.rate", ("400Gb/s", "50GB/s", "0.05TB/s", "50000MB/s", "4e11 b/s")),
        ("hardware.dram.bandwidth", ("500GB/s", "4Tb/s", "0.5 TB/s")),
        ("hardware.snic.time_per_read", ("6ms", "6000us", "0.006s")),
        ("hardware.gpu.hbm_capacity", ("80GiB", "81920MiB", "640Gib")),
    ],
)
def test_the_same_quantity_in_other_units_gives_the_same_answer(key, texts):
    answers = [evaluate(paper(f"{key}={text}")) for text in texts]
    for answer in answers[1:]:
        assert answer.turns_per_s == answers[0].turns_per_s
        assert answer.ranges == answers[0].ranges
        assert [load.load for load in answer.loads] == [load.load for load in answers[0].loads]


RATES = ("cnic.rate", "snic.rate", "dram.bandwidth", "gpu.hbm_bandwidth", "pcie.rate", "pcie.numa_link")
TIMES = ("snic.time_per_read", "efficiency.decode_layer_time", "copy.cnic", "copy.engine")


@pytest.mark.xfail(
    strict=True,
    reason="kernel times, latencies and the attention quota are of engines, not of a profile that can scale",
)
@settings(max_examples=40)
@given(deployments(), st.floats(0.1, 10.0))
def test_a_machine_that_does_everything_k_times_as_fast_has_k_times_the_rate(found, factor):
    """Time in another unit: every rate times k and every time over k, so rates of turns times k and times over k."""
    hardware = found.hardware
    for path in (*RATES, *TIMES):
        section = getattr(hardware, path.split(".")[0])
        before = value_at(hardware, path) if section is not None else None
        if before is not None:
            hardware = at(hardware, path, before * factor if path in RATES else before / factor)
    flops = {name: getattr(hardware.gpu.flops, name) for name in ("bf16", "fp8", "fp4", "int8")}
    hardware = at(hardware, "gpu.flops", changed(hardware.gpu.flops, **{n: v and v * factor for n, v in flops.items()}))
    if hardware.storage is not None:
        store = hardware.storage
        hardware = at(
            hardware,
            "storage",
            changed(
                store,
                read_bandwidth=store.read_bandwidth and store.read_bandwidth * factor,
                write_bandwidth=store.write_bandwidth and store.write_bandwidth * factor,
                latency=store.latency and store.latency / factor,
            ),
        )
    uplinks = tuple(changed(uplink, rate=uplink.rate * factor) for uplink in hardware.pcie.uplinks)
    hardware = at(hardware, "pcie.uplinks", uplinks)
    slow, fast = evaluate(found), evaluate(changed(found, hardware=hardware, decode_hardware=hardware))
    assert fast.turns_per_s == pytest.approx(factor * slow.turns_per_s, rel=1e-9)
    assert fast.tpot_s == pytest.approx(slow.tpot_s / factor, rel=1e-9)
    assert fast.ttft_unloaded_s == pytest.approx(slow.ttft_unloaded_s / factor, rel=1e-9)
    for one, other in zip(slow.loads, fast.loads, strict=True):
        assert other.utilization == pytest.approx(one.utilization, rel=1e-9)


# ---------------------------------------------------------------- simulation


@st.composite
def populations(draw):
    """A few trajectories of growing context, in whole blocks."""
    counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    append, generated = draw(st.integers(1, 40)), draw(st.integers(1, 20))
    context = np.concatenate([np.arange(n) * 64.0 * (append + generated) for n in counts])
    shape = np.ones(len(context))
    return Trajectories(
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        context=context,
        append=64.0 * append * shape,
        generated=64.0 * generated * shape,
        think=0.0 * shape,
        origin="drawn",
    )


@settings(max_examples=25)
@given(
    populations(),
    st.sampled_from(["basic", "layerwise", "dual-path", "split-read", "oracle"]),
    st.integers(1, 40),
    st.sampled_from(["ds-27b", "qwen2.5-32b"]),
)
def test_no_run_is_faster_than_its_storage_nics_engines_and_longest_agent(turns, mode, agents, model):
    """Bounds of the steady model that hold for any order of work: bytes over rates, work over engines, and the time
    that the longest trajectory takes alone.
    """
    found = in_mode(changed(paper(), model=load_model(model)), mode, prefill_nodes=1, decode_nodes=2)
    hardware = changed(found.hardware, name="drawn")
    found = changed(found, hardware=hardware, decode_hardware=hardware)
    laid = cluster(found, turns, mode=mode)
    run = offline(laid, turns, RunSpec(agents=agents, compiled=True))
    assert run.agents_done == agents and run.stopped == "all agents done"
    line = hardware.snic.rate * hardware.snic.efficiency
    decode_read = (run.decode_read_share or 0.0) * run.totals["read_bytes"]
    assert run.jct_s >= (run.totals["read_bytes"] - decode_read) / line / SLACK
    assert run.jct_s >= decode_read / (2 * line) / SLACK
    work = run.totals["computed_tokens"] * laid.times.per_token / laid.prefill.engines
    assert run.jct_s >= work / SLACK
    tokens = run.totals["generated_tokens"]
    assert run.jct_s >= tokens * laid.times.decode_slope / laid.decode.engines / SLACK
    # with as many agents as trajectories and more, the longest one is among them
    if agents >= len(turns.offsets) - 1:
        starts = turns.offsets[:-1]
        alone = np.add.reduceat((turns.generated - 1) * laid.times.decode_base, starts).max()
        assert run.jct_s >= alone / SLACK
    assert math.isclose(run.turns_per_s * run.jct_s, run.turns, rel_tol=1e-9)


@settings(max_examples=10)
@given(populations(), st.integers(2, 30))
def test_more_storage_bandwidth_never_slows_a_run_by_more_than_its_order_of_work(turns, agents):
    """Lists of work are not monotone: Graham's bound for list scheduling, a factor of two, is what holds."""
    found = in_mode(changed(paper(), model=load_model("ds-27b")), "layerwise", prefill_nodes=1, decode_nodes=1)
    times = []
    for factor in (1.0, 4.0):
        hardware = changed(at(found.hardware, "snic.rate", factor * 12.5e9), name="drawn")
        own = changed(found, hardware=hardware, decode_hardware=hardware)
        times.append(offline(cluster(own, turns), turns, RunSpec(agents=agents, compiled=True)).jct_s)
    assert times[1] <= 2 * times[0]
