"""Calibration: known parameters come back from formulas and runs with noise; what data cannot tell is said."""

import math
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
    answer = fit(SCENARIO, measured)
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


def test_sides_that_differ_are_refused():
    other = read_hardware("dgx-h200")
    with pytest.raises(InputError, match="one profile at a time"):
        fit(msgspec.structs.replace(SCENARIO, decode_hardware=other), [read(1e9)])


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
    ],
)
def test_bad_files(text, what):
    with pytest.raises(InputError, match=what):
        parse_measurements(text, "x.csv")
