"""Calibration: known parameters come back from formulas and runs with noise; what data cannot tell is said."""

import json
import math
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dualplan import load
from dualplan.errors import InputError
from dualplan.plan.calibrate import PARAMETERS, fit, priors, with_values
from dualplan.plan.measurements import Measurement, parse_measurements
from dualplan.report.calibrate import overlay
from dualplan.serving.cluster import cluster
from dualplan.serving.run import offline
from dualplan.serving.trajectories import equal_turns, for_workload
from dualplan.spec.constants import roofline_constants
from dualplan.spec.hardware import read_hardware, unsourced
from dualplan.spec.run import RunSpec

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
SCENARIO = load(PAPER)
LINE = 50e9
RATE, READ = "snic.efficiency", "snic.time_per_read"
TRUE = dict(zip([p.name for p in PARAMETERS], (0.8, 12e-3, 0.22, 0.1, 0.7, 0.5, 3e-4), strict=True))


def read(size, efficiency=0.8, time=12e-3, noise=1.0):
    """A read of ``size`` bytes: bytes over time per read plus time on the wire, written out here once more."""
    return Measurement(
        line=2, kind="snic_gbps", read_size=size, value=noise * size / (time + size / (LINE * efficiency))
    )


def result(answer, name):
    return next(found for found in answer.parameters if found.parameter.name == name)


# ---------------------------------------------------------------- storage NICs


def test_rate_and_time_per_read_from_two_read_sizes():
    answer = fit(SCENARIO, [read(1e8), read(4e8), read(1.5e9), read(3e9)])
    assert result(answer, RATE).value == pytest.approx(0.8, rel=1e-6)
    assert result(answer, READ).value == pytest.approx(12e-3, rel=1e-6)
    assert {found.status for found in answer.changed} == {"fitted"} and len(answer.changed) == 2
    assert answer.rms_error < 1e-8
    assert result(answer, "efficiency.prefill").status == "not measured"


def test_one_read_size_tells_rate_and_time_per_read_not_apart():
    answer = fit(SCENARIO, [read(1.5e9, noise=noise) for noise in (0.99, 1.0, 1.01, 1.0)])
    left = [found for found in answer.parameters if found.status == "not told apart"]
    assert len(left) == 1 and len(answer.changed) == 1
    pair = {left[0].parameter.name, *left[0].with_}
    assert pair == {RATE, READ}
    assert left[0].value == left[0].prior
    # what stays to be fitted still meets the measurements
    assert answer.predicted[0] == pytest.approx(read(1.5e9).value, rel=0.01)


def test_two_read_sizes_that_hardly_differ_do_not_help():
    answer = fit(SCENARIO, [read(1.5e9), read(1.51e9), read(1.5e9, noise=1.01)])
    assert any(found.status == "not told apart" for found in answer.parameters)


def test_intervals_cover_the_truth_about_19_times_in_20():
    inside = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        noise = np.exp(0.03 * random.standard_normal(8))
        sizes = np.repeat([1e8, 4e8, 1.5e9, 3e9], 2)
        answer = fit(SCENARIO, [read(size, noise=factor) for size, factor in zip(sizes, noise, strict=True)])
        low, high = result(answer, READ).interval
        inside += low <= 12e-3 <= high
    # binomial, 60 draws of 0.95: 51 or fewer have a chance of 1 in 200
    assert inside > 51


def test_interval_is_that_of_linear_least_squares():
    """One parameter, by hand: the logarithms of four measurements scatter about their mean."""
    factors = np.array([0.9, 0.95, 1.05, 1.12])
    measured = [read(1.5e9, time=0.0, noise=factor) for factor in factors]
    flat = msgspec.structs.replace(SCENARIO, hardware=no_time_per_read(), decode_hardware=no_time_per_read())
    answer = fit(flat, measured, wanted=[RATE])
    found, logs = result(answer, RATE), np.log(factors)
    # the time per read of the profile is 1e-7 s at least, 1e-7 / 0.0375 of the time of a read
    assert found.value == pytest.approx(0.8 * math.exp(logs.mean()), rel=1e-5)
    half = 3.182446 * logs.std(ddof=1) / 2  # t at 97.5 % for three degrees of freedom
    assert np.log(found.interval) == pytest.approx(math.log(found.value) + np.array([-half, half]), abs=1e-4)


def no_time_per_read():
    hardware = SCENARIO.hardware
    return msgspec.structs.replace(hardware, snic=msgspec.structs.replace(hardware.snic, time_per_read=1e-7))


def test_a_rate_above_the_line_ends_at_the_bound():
    answer = fit(SCENARIO, [read(size, efficiency=1.3, time=1e-3) for size in (1e8, 4e8, 1.5e9, 3e9)])
    assert result(answer, RATE).status == "at its bound"
    assert result(answer, RATE).value == pytest.approx(1.0, rel=1e-3)
    assert result(answer, RATE).interval is None


def test_as_many_values_as_measurements_give_no_interval():
    answer = fit(SCENARIO, [read(1e8), read(3e9)])
    assert result(answer, RATE).value == pytest.approx(0.8, rel=1e-6)
    assert result(answer, RATE).interval is None
    assert answer.degrees_of_freedom == 0


# ---------------------------------------------------------------- compute, from the model with known values


def known_hardware():
    return with_values(SCENARIO.hardware, tuple(TRUE.values()))


def known(**lengths):
    from dualplan.spec.workload import with_plain_means

    hardware = known_hardware()
    workload = with_plain_means(SCENARIO.workload, **lengths) if lengths else SCENARIO.workload
    return msgspec.structs.replace(SCENARIO, hardware=hardware, decode_hardware=hardware, workload=workload)


def test_decode_from_steps_of_several_batches_and_contexts():
    from dualplan.spec.workload import per_turn_means

    measured = []
    random = np.random.default_rng(3)
    for batch, context in ((1, 30e3), (32, 30e3), (128, 60e3), (128, 2e3), (64, 2e3), (256, 2e3), (256, 60e3)):
        found = known(context=context)
        means = per_turn_means(found.workload)
        times = cluster(found, equal_turns(found.workload)).times
        grows = times.decode_slope + times.decode_cache.value(context + means.append + means.generated / 2)
        step = (times.decode_base + batch * grows) * math.exp(0.003 * random.standard_normal())
        measured.append(Measurement(line=2, kind="tpot", batch=batch, context=context, value=step))
    answer = fit(SCENARIO, measured)
    for name in ("efficiency.hbm", "efficiency.decode", "efficiency.decode_layer_time"):
        found = result(answer, name)
        assert found.status == "fitted", name
        assert found.interval[0] <= TRUE[name] <= found.interval[1], name
    assert result(answer, RATE).status == "not measured"


def test_prefill_from_short_and_long_contexts():
    measured = []
    for append, context in ((1000, 500), (1000, 60e3), (500, 30e3), (4000, 500)):
        found = known(context=context, append=append)
        times = cluster(found, equal_turns(found.workload)).times
        each = times.per_request + append * (times.per_token + times.attention.value(context + append / 2))
        passing = times.pass_base + times.experts_time(4 * append) + 4 * each
        measured.append(
            Measurement(
                line=2, kind="tokens_per_s", batch=4, append=append, context=context, value=4 * append / passing
            )
        )
    start = with_values(SCENARIO.hardware, [0.8, 12e-3, 0.3, 0.2, 0.7, 0.5, 3e-4])
    begun = msgspec.structs.replace(SCENARIO, hardware=start, decode_hardware=start)
    answer = fit(begun, measured, wanted=["efficiency.prefill", "efficiency.attention"])
    assert result(answer, "efficiency.prefill").value == pytest.approx(0.22, rel=1e-4)
    assert result(answer, "efficiency.attention").value == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize(("mode", "expected"), [("basic", {READ, RATE}), ("oracle", set())])
def test_runs_of_the_simulation_give_back_the_storage_nic(mode, expected):
    """Completion times and reads of 100 MB: the storage NIC is seen where it is read, and only there."""
    small = load(PAPER, ["model=ds-27b", "workload=dualpath-32k", "prefill_nodes=1", "decode_nodes=1", f"mode={mode}"])
    found = msgspec.structs.replace(small, hardware=known_hardware(), decode_hardware=known_hardware())
    measured = [read(1e8), read(1e8, noise=1.01)] if expected else []
    for agents in (700, 1000):
        drawn = for_workload(found.workload)
        job = offline(cluster(found, drawn, mode=mode), drawn, RunSpec(agents=agents, compiled=True)).jct_s
        measured.append(Measurement(line=2, kind="jct", agents=agents, mode=mode, value=job))
    others = (*TRUE.values(),)
    start = with_values(SCENARIO.hardware, (0.9, 6e-3, *others[2:]))
    begun = msgspec.structs.replace(small, hardware=start, decode_hardware=start)
    answer = fit(begun, measured, wanted=[RATE, READ])
    assert {one.parameter.name for one in answer.changed} == expected
    for name in expected:
        assert result(answer, name).value == pytest.approx(TRUE[name], rel=0.06)


def test_the_overlay_gives_the_fitted_predictions(tmp_path):
    answer = fit(SCENARIO, [read(1e8), read(4e8), read(1.5e9), read(3e9)])
    path = tmp_path / "mine.yaml"
    path.write_text(overlay(answer, name="mine", extends="dualpath-hopper", source="four reads of x.csv"))
    hardware = read_hardware(str(path))
    assert hardware.name == "mine"
    assert hardware.snic.efficiency == pytest.approx(0.8, rel=1e-5)
    assert hardware.snic.time_per_read == pytest.approx(12e-3, rel=1e-5)
    assert hardware.efficiency == SCENARIO.hardware.efficiency
    assert unsourced(hardware) == []
    assert "fitted to four reads of x.csv" in hardware.sources["snic.efficiency"]


def test_names_cannot_break_out_of_the_overlay(tmp_path):
    answer = fit(SCENARIO, [read(1e8), read(3e9)])
    evil = 'x"\ngpu: {count: 1}\n# '
    path = tmp_path / "mine.yaml"
    path.write_text(overlay(answer, name=evil, extends="dualpath-hopper", source=evil))
    hardware = read_hardware(str(path))
    assert (hardware.gpu.count, hardware.name) == (8, evil)


def test_a_profile_without_a_time_per_read_starts_above_zero():
    hardware = SCENARIO.hardware
    none = msgspec.structs.replace(hardware, snic=msgspec.structs.replace(hardware.snic, time_per_read=0.0))
    begun = msgspec.structs.replace(SCENARIO, hardware=none, decode_hardware=none)
    assert min(priors(none)) > 0
    answer = fit(begun, [read(1e8), read(4e8), read(3e9)])
    assert result(answer, READ).value == pytest.approx(12e-3, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"wanted": ["snic.eficiency"]}, "did you mean snic.efficiency"),
        (
            {"measurements": [Measurement(line=7, kind="tpot", batch=1, value=0.03, workload="nope")]},
            "x.csv:7: workload",
        ),
    ],
)
def test_refusals(change, what):
    arguments = {"measurements": [read(1e9)], "name": "x.csv", "wanted": []} | change
    with pytest.raises(InputError, match=what):
        fit(SCENARIO, arguments["measurements"], name="x.csv", wanted=arguments["wanted"])


# ---------------------------------------------------------------- which values are fitted

DECODE = ("efficiency.hbm", "efficiency.decode", "efficiency.decode_layer_time")
MEASURED_MS = {4: 12.02, 8: 12.42, 16: 13.39, 32: 15.43, 64: 18.99, 128: 27.01}
"""TPOT by sequences of a 70B model in FP8 on two H200 (TP2), 1,024 tokens in and out."""


def dense(model="llama-3.1-70b"):
    """A scenario of a dense 70B model on nodes of eight GPUs, two an engine."""
    sets = ["hardware=dgx-h200", f"model={model}", "workload=dualpath-32k", "prefill_nodes=1"]
    return load(PAPER, [*sets, "decode_nodes=1", "prefill.parallel=ep=1,tp=2,dp=1", "decode.parallel=ep=1,tp=2,dp=1"])


def steps(by_batch, **conditions):
    lengths = {"context": 0.0, "append": 1024.0, "generated": 1024.0} | conditions
    return [
        Measurement(line=2, kind="tpot", batch=batch, value=value * 1e-3, **lengths)
        for batch, value in by_batch.items()
    ]


def test_a_launch_time_near_zero_is_fitted_and_not_put_back(tmp_path):
    """TPOTs that leave no time for launches: the 200 us of the profile alone would be 16 ms of 12.

    A line in the batch is the form of launches and weights and one share of the peak; these six follow theirs in
    logarithms to 1 %. At the profile's 0.9 of 4.8 TB/s, 35 GB of FP8 weights a GPU take 8.2 ms; the 11.3 ms that the
    line leaves at no sequence are 40 us for each of 80 layers.
    """
    from scipy.optimize import least_squares

    batches, times = np.array([*MEASURED_MS]), np.array([*MEASURED_MS.values()])
    line = least_squares(lambda ends: np.log((ends[0] + ends[1] * batches) / times), [11.0, 0.1])
    straight = math.sqrt(np.mean(line.fun**2))
    shipped = PAPER.parents[1] / "workloads" / "models" / "llama-3.1-70b.json"
    scheme = {"type": "float", "num_bits": 8}
    config = json.loads(shipped.read_text()) | {
        "quantization_config": {"quant_method": "fp8", "kv_cache_scheme": scheme}
    }
    config["dualplan"]["kv_format"] = "fp8"
    (tmp_path / "config.json").write_text(json.dumps(config))
    scenario = dense(tmp_path)
    answer = fit(scenario, steps(MEASURED_MS))
    assert straight < 0.01
    assert answer.rms_error == pytest.approx(straight, rel=0.05)
    launch = result(answer, "efficiency.decode_layer_time")
    assert launch.status == "fitted" and 20e-6 < launch.value < 50e-6
    alone = fit(scenario, steps(MEASURED_MS), wanted=[launch.parameter.name])
    assert answer.rms_error < alone.rms_error < 0.09


@pytest.mark.parametrize("seed", range(12))
def test_no_fit_with_fewer_values_is_better(seed):
    """Random steps of random truths, launch times near 0 among them: the answer is at least as near as every fit that
    may change fewer values, whichever they are.
    """
    random = np.random.default_rng(seed)
    scenario = dense()
    truth = [*priors(scenario.hardware)]
    truth[4:] = random.uniform(0.3, 1.0), random.uniform(0.1, 1.0), random.choice([1e-7, 2e-6, 2e-5, 1e-4])
    true = with_values(scenario.hardware, truth)
    known = msgspec.structs.replace(scenario, hardware=true, decode_hardware=true)
    measured = []
    for batch in random.choice([1, 4, 16, 64, 200, 500], size=random.integers(2, 6), replace=False):
        (one,) = steps({int(batch): 1.0}, context=float(random.choice([0.0, 4e3, 3e4])))
        step = fit(known, [one], wanted=["snic.efficiency"]).before[0]
        measured.append(
            msgspec.structs.replace(
                one, value=step * math.exp(random.choice([0.0, 0.02, 0.2]) * random.standard_normal())
            )
        )
    answer = fit(scenario, measured)
    for size in range(1, len(DECODE)):
        for names in combinations(DECODE, size):
            part = fit(scenario, measured, wanted=names)
            if len(part.changed) < len(answer.changed):
                assert answer.rms_error <= part.rms_error * (1 + 1e-6) + 1e-9, names


def test_the_launch_time_goes_first():
    """One step of one sequence: launch time and HBM share explain it alike."""
    answer = fit(dense(), steps({1: 40.0}))
    assert [found.parameter.name for found in answer.changed] == ["efficiency.decode_layer_time"]


# ---------------------------------------------------------------- engines


def test_sides_that_differ_have_values_of_their_own():
    """Steps tell the decode side's profile, passes and reads the prefill side's."""
    prefill, decode = SCENARIO.hardware, read_hardware("dgx-h200")
    differ = msgspec.structs.replace(SCENARIO, decode_hardware=decode)
    answer = fit(differ, [read(1e8), read(4e8), read(3e9), *steps({1: 30.0, 64: 40.0, 256: 60.0})])
    changed = {found.parameter.name: found for found in answer.changed}
    assert changed["prefill_hardware.snic.efficiency"].value == pytest.approx(0.8, rel=1e-5)
    assert changed["decode_hardware.efficiency.decode_layer_time"].prior == pytest.approx(
        20 * roofline_constants().kernel_time
    )
    assert not any(name.startswith("decode_hardware.snic") for name in changed)
    assert prefill.name in overlay(answer, name="x", extends=prefill.name, source="x", side="prefill")


def test_an_aggregated_step_waits_for_the_prefills_of_the_others():
    """TPOT = step + (n - 1)/output * pass of one prompt, with 5 sequences and 100 output tokens."""
    scenario = dense()
    conditions = {"append": 2000.0, "generated": 100.0}
    apart, shared = (
        fit(scenario, steps({5: 30.0}, aggregated=flag, **conditions), wanted=["snic.efficiency"]).before[0]
        for flag in (False, True)
    )
    alone = Measurement(line=2, kind="ttft", batch=1, value=1.0, context=0.0, append=2000.0, generated=100.0)
    passing = fit(scenario, [alone], wanted=["snic.efficiency"]).before[0]
    assert shared - apart == pytest.approx(4 / 100 * passing)


def test_the_first_token_of_one_request_tells_the_prefill_efficiency():
    """2 FLOP a parameter and token at a share of the peak: half the time, twice the efficiency."""
    scenario = dense()
    one = Measurement(line=2, kind="ttft", batch=1, value=1.0, context=0.0, append=64.0, generated=1.0)
    before = fit(scenario, [one], wanted=["efficiency.prefill"]).before[0]
    long = msgspec.structs.replace(one, append=8000.0)
    time = fit(scenario, [long], wanted=["efficiency.prefill"]).before[0]
    answer = fit(scenario, [msgspec.structs.replace(long, value=time / 2)], wanted=["efficiency.prefill"])
    assert result(answer, "efficiency.prefill").value > 1.9 * result(answer, "efficiency.prefill").prior
    assert before < time


def test_rows_have_engines_of_their_own():
    """The same weights over twice the GPUs: half the time, but for launches, for what each GPU does for a sequence by
    itself (bookkeeping, 80 layers of hidden vectors) and for 160 all-reduces of 8,192 elements.
    """
    c = roofline_constants()

    def beside(tp, latency, rate):
        vectors = c.hidden_vectors * 80 * 2 * 8192 / (0.9 * 4.8e12 * c.hbm_share)
        return c.sequence_time + vectors + 160 * (latency + 4 * 8192 * (tp - 1) / tp / rate)

    scenario = dense()
    none = with_values(scenario.hardware, [*priors(scenario.hardware)[:6], 1e-7])
    scenario = msgspec.structs.replace(scenario, hardware=none, decode_hardware=none)
    measured = [*steps({1: 9.0}, tp=2), *steps({1: 9.0}, tp=4), *steps({1: 9.0}, tp=8), *steps({1: 9.0}, tp=16)]
    two, four, eight, sixteen = fit(scenario, measured, wanted=["snic.efficiency"]).before
    two, four, eight = (
        time - beside(tp, c.reduce_latency, 0.85 * 450e9) for time, tp in ((two, 2), (four, 4), (eight, 8))
    )
    sixteen -= beside(16, c.network_latency, 50e9 * c.nic_share)
    assert two / four == pytest.approx(2.0, rel=0.01)
    assert two / eight == pytest.approx(4.0, rel=0.03)
    assert eight / sixteen == pytest.approx(2.0, rel=0.06)  # over two nodes; the 8 KV heads are on two GPUs each


def test_concurrency_is_spread_over_the_ranks():
    """64 requests over four ranks of two GPUs are 16 sequences a rank."""
    scenario = dense()
    spread = Measurement(
        line=2, kind="tpot", value=0.02, concurrency=64, tp=2, dp=4, context=0.0, append=1024.0, generated=1024.0
    )
    both = fit(scenario, [spread, *steps({16: 20.0}, tp=2, dp=4)], wanted=["snic.efficiency"]).before
    assert both[0] == both[1]


def test_a_prompt_without_a_stated_prefix_has_none():
    scenario = dense()
    stated, silent = steps({4: 12.0}), steps({4: 12.0}, context=None)
    workload = [msgspec.structs.replace(silent[0], append=None, generated=None)]
    first, second, third = fit(scenario, [*stated, *silent, *workload], wanted=["snic.efficiency"]).before
    assert first == second < third  # 32 thousand cached tokens of the workload


@pytest.mark.parametrize(
    ("conditions", "what"),
    [
        ({"tp": 12}, "x.csv:2: tp=12 is neither inside a node nor over whole nodes"),
        ({"ep": 8}, "x.csv:2: .*no experts"),
    ],
)
def test_engines_that_nothing_hosts_are_refused(conditions, what):
    with pytest.raises(InputError, match=what):
        fit(dense(), steps({1: 9.0}, **conditions), name="x.csv")


# ---------------------------------------------------------------- the file


def test_measurements_are_read_with_units_and_conditions():
    text = (
        "\n# a comment\nkind, value, read_size, agents, batch, mode, arrival_rate\r\n"
        "snic_gbps,43GB/s,1.5 GB\r\n\njct,5403s,,2048,,dual-path\ntpot,33.7ms,,,32\nturns_per_s,62,,,,,0.4\n"
    )
    found = parse_measurements(text, "x.csv")
    assert [(one.line, one.kind, one.value) for one in found] == [
        (4, "snic_gbps", 43e9),
        (6, "jct", 5403.0),
        (7, "tpot", pytest.approx(0.0337)),
        (8, "turns_per_s", 62.0),
    ]
    assert found[0].read_size == 1.5e9
    assert (found[1].agents, found[1].mode, found[1].simulated) == (2048, "dual-path", True)
    assert (found[2].batch, found[2].simulated) == (32, False)
    assert found[3].arrival_rate == 0.4


def test_engines_of_a_row_are_read():
    text = (
        "kind,value,batch,concurrency,tp,dp,ep,mode,context,append,generated\n"
        "tpot,12ms,16,,8,1,8,agg,0,1024,512\ntpot,12ms,,64,1,8,8,disagg,,,\nttft,300ms,1,,8,,,,0,1024,\ntpot,12ms,1,,,,,basic\n"
    )
    first, second, third, fourth = parse_measurements(text, "x.csv")
    assert (first.batch, first.tp, first.dp, first.ep, first.aggregated, first.mode) == (16, 8, 1, 8, True, None)
    assert (first.context, first.append, first.generated) == (0.0, 1024.0, 512.0)
    assert (second.concurrency, second.dp, second.aggregated, second.context) == (64, 8, False, None)
    assert (third.kind, third.batch, third.tp, third.simulated) == ("ttft", 1, 8, False)
    assert (fourth.aggregated, fourth.mode) == (None, "basic")


def test_all_faults_of_a_file_come_at_once():
    text = "kind,value,agents,mode\njct,54,3,\nttft,1s,,\nsnic_gbps,43GB,,\njct,5s,0,dual\nfoo,3\njct,,4,a,b,c\n"
    with pytest.raises(InputError) as caught:
        parse_measurements(text, "x.csv")
    places = [line.split(": ")[0] for line in caught.value.problems]
    assert places == ["x.csv:2", "x.csv:3", "x.csv:4", "x.csv:4", "x.csv:5", "x.csv:5", "x.csv:6", "x.csv:7"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "holds no header"),
        ("kind,value\n", "holds no measurement"),
        ("kind,valu\n", "did you mean value"),
        ("kind,kind,value\n", "there twice"),
        ("value,agents\n", "kind: the column is missing"),
        ('kind,value\n"jct,3\n', "is not CSV"),
        ("kind,value,agents,arrival_rate\nttft,1s,4,0.1\n", "one of the two"),
        ("kind,value,agents\nttft,-1s,4\n", "is not above 0"),
        ("kind,value,agents\nttft,0,4\n", "is not above 0"),
        ("kind,value,agents\nturns_per_s,nan,4\n", "is not a ratio"),
        ("kind,value,agents\nttft,1s,99999999999999999999\n", "is not a whole number"),
        ("kind,value,batch\ntokens_per_s,5,4\n", "append: missing"),
        ("kind,value\nsnic_gbps,5GB/s\n", "read_size: missing"),
        ("kind,value\njct,5s\n", "agents: missing"),
        ("kind,value\n" + "turns_per_s,3,\n", "has 3 cells"),
        ("kind,value,context,batch\ntpot,5ms,-1,4\n", "context: .* is not of 0 or more"),
        ("kind,value,batch\nttft,1s,4\n", "a TTFT with batch 4 holds a queue"),
        ("kind,value,batch,concurrency\ntpot,5ms,4,8\n", "one of the two"),
        ("kind,value,agents,mode\ntpot,5ms,4,agg\n", "aggregated engines are not simulated"),
        ("kind,value,tp\ntpot,5ms,4\n", "tpot needs agents or arrival_rate, or batch, or concurrency"),
        ("kind,value,batch\ntpot,5,4\n", "x.csv:2: value"),
        ("kind,value,batch\ntpot,5GB/s,4\n", "x.csv:2: value"),
    ],
)
def test_bad_files(text, what):
    with pytest.raises(InputError, match=what):
        parse_measurements(text, "x.csv")
