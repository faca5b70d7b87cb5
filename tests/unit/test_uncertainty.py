"""Uncertain values: how they are read, how they are sampled, what the indices say of functions with known ones."""

from statistics import NormalDist

import msgspec
import numpy as np
import pytest

import dualplan
from dualplan.errors import InputError
from dualplan.plan.uncertainty import assess, hypercube, judge, rank_correlation, sobol_indices
from dualplan.spec.load import json_schema
from dualplan.spec.scenario import Demand, ScenarioFile
from dualplan.spec.uncertain import centred, parse_uncertain, with_values
from tests.unit.test_purchase import scenario


def with_uncertain(found, **values):
    uncertain = {key.replace("__", "."): text for key, text in values.items()}
    return msgspec.structs.replace(found, settings=msgspec.structs.replace(found.settings, uncertain=uncertain))


def demanding(turns):
    found = scenario()
    settings = msgspec.structs.replace(found.settings, demand=Demand(turn_rate=turns))
    return msgspec.structs.replace(found, settings=settings)


@pytest.mark.parametrize(
    ("key", "text", "shape", "centre", "spread", "ends"),
    [
        ("hardware.efficiency.prefill", "0.68 +- 0.08", "normal", 0.68, 0.08, (1e-6, 1.0)),
        ("hardware.efficiency.prefill", "0.68 ± 0.08", "normal", 0.68, 0.08, (1e-6, 1.0)),
        ("hardware.snic.efficiency", "0.8..0.95", "uniform", 0.875, 0.15 / 12**0.5, (0.8, 0.95)),
        ("workload.append", "429 +- 20 %", "normal", 429.0, 85.8, (0.0, np.inf)),
        ("hardware.dram.bandwidth", "400 +- 50 GB/s", "normal", 400e9, 50e9, (0.0, np.inf)),
        ("hardware.snic.rate", "320Gb/s..400Gb/s", "uniform", 45e9, 10e9 / 12**0.5, (40e9, 50e9)),
        ("hardware.snic.rate", "320..400 Gb/s", "uniform", 45e9, 10e9 / 12**0.5, (40e9, 50e9)),
        ("hardware.snic.time_per_read", "6ms +- 1ms", "normal", 6e-3, 1e-3, (0.0, np.inf)),
        ("hardware.cnic.efficiency", "90 % +- 5 %", "normal", 0.9, 0.045, (1e-6, 1.0)),
        ("balance", "1.1..1.3", "uniform", 1.2, 0.2 / 12**0.5, (1.1, 1.3)),
        ("collective_load", "0.2 +- 0.05", "normal", 0.2, 0.05, (0.0, 1.0)),
        ("workload.turns", "157 +- 30", "normal", 157.0, 30.0, (1.0, np.inf)),
    ],
)
def test_texts(key, text, shape, centre, spread, ends):
    value = parse_uncertain(key, text, "here")
    assert value.shape == shape
    assert (value.centre, value.spread) == (pytest.approx(centre), pytest.approx(spread))
    assert (value.low, value.high) == (pytest.approx(ends[0]), pytest.approx(ends[1]))


@pytest.mark.parametrize(
    ("key", "text", "part"),
    [
        ("hardware.snic.eficiency", "0.8..0.9", "did you mean efficiency?"),
        ("hardware.name", "0.8..0.9", "no number"),
        ("hardware.snic", "0.8..0.9", "no number"),
        ("hardware.snic.count", "1..2", "whole number"),
        ("hardware.snic.efficiency", "0.8", "no uncertain value"),
        ("hardware.snic.efficiency", "0.9..0.8", "wrong order"),
        ("hardware.snic.efficiency", "0.9..1.1", "leaves the values"),
        ("hardware.snic.efficiency", "0.9 +- -0.1", "negative"),
        ("hardware.snic.rate", "40GB +- 1GB", "is a size"),
        ("hardware.snic.rate", "40..50", "has no unit"),
        ("workload.block", "1..2", "workload.context"),
        ("workload.append", "x +- 1", "not a number"),
        ("workload.append", "nan..1", "not a number"),
        ("mode", "1..2", "no number"),
        ("", "1..2", "no key"),
    ],
)
def test_bad_texts(key, text, part):
    with pytest.raises(InputError, match=part.replace("?", r"\?")):
        parse_uncertain(key, text, "here")


def test_quantiles():
    normal = parse_uncertain("workload.append", "100 +- 10", "here")
    assert normal.quantile(0.5) == pytest.approx(100)
    assert normal.quantile(0.975) == pytest.approx(119.5996, abs=1e-3)  # tables of the normal distribution
    cut = parse_uncertain("hardware.snic.efficiency", "0.95 +- 0.1", "here")
    values = [cut.quantile(u) for u in np.linspace(0.0005, 0.9995, 2000)]
    assert max(values) <= 1 and min(values) >= 1e-6
    # mean of a normal distribution cut at z = 0.5: mu - sigma phi(0.5)/Phi(0.5)
    z = NormalDist()
    assert np.mean(values) == pytest.approx(0.95 - 0.1 * z.pdf(0.5) / z.cdf(0.5), abs=1e-3)
    assert parse_uncertain("balance", "1.1 +- 0", "here").quantile(0.3) == 1.1


def test_hypercube_meets_every_class_once():
    points = hypercube(500, 4, seed=3)
    assert all((np.sort((column * 500).astype(int)) == np.arange(500)).all() for column in points.T)
    assert (points == hypercube(500, 4, seed=3)).all()
    assert (points != hypercube(500, 4, seed=4)).any()
    # other columns do not follow
    assert abs(np.corrcoef(points.T)[np.triu_indices(4, 1)]).max() < 0.15


def indices(function, dimensions, count=20_000):
    a, b = hypercube(count, dimensions, 1), hypercube(count, dimensions, 2)
    mixed = []
    for i in range(dimensions):
        rows = a.copy()
        rows[:, i] = b[:, i]
        mixed.append(function(rows))
    return sobol_indices(function(a), function(b), np.array(mixed))


def test_indices_of_a_linear_function():
    weights = np.array([4.0, 2.0, 1.0, 0.0])
    first, total, error = indices(lambda x: 10 + x @ weights, 4)
    expected = weights**2 / (weights**2).sum()
    assert abs(first - expected).max() < 0.02
    assert abs(total - expected).max() < 0.02
    assert first[3] == total[3] == error[3] == 0
    assert (abs(first - expected) <= 5 * error + 1e-12).all()


def test_indices_of_the_ishigami_function():
    # a = 7, b = 0.1: S1 = 0.3139, S2 = 0.4424, S3 = 0, ST3 = 0.2437 (Ishigami and Homma 1990; Saltelli et al. 2008)
    def ishigami(u):
        x = np.pi * (2 * u - 1)
        return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])

    first, total, _ = indices(ishigami, 3)
    assert first == pytest.approx([0.3139, 0.4424, 0.0], abs=0.03)
    assert total == pytest.approx([0.5576, 0.4424, 0.2437], abs=0.03)


def test_a_value_that_alone_matters_has_index_one():
    first, total, error = indices(lambda x: np.exp(3 * x[:, 1]), 2, count=500)
    assert first == pytest.approx([0.0, 1.0], abs=0.01) and first[0] == total[0] == 0
    assert total[1] == pytest.approx(1, abs=0.1) and error[0] == 0


def test_nothing_varies():
    first, total, _ = indices(lambda x: np.full(len(x), 3.0), 2, count=100)
    assert not first.any() and not total.any()


def test_rank_correlation_is_spearmans():
    from scipy.stats import spearmanr

    random = np.random.default_rng(0)
    a = random.integers(0, 20, 300).astype(float)
    b = a + random.normal(0, 5, 300)
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert rank_correlation(a, np.ones(300)) == 0


def test_share_of_an_uncertain_demand_is_exact():
    # the rate is R whatever is asked, so of evenly spread demands those up to R are met
    rate = dualplan.evaluate(scenario(), 2, 4).turns_per_s
    low, high = 0.8 * rate, 1.1 * rate
    found = with_uncertain(scenario(), demand__turn_rate=f"{low!r}..{high!r}")
    result = assess(centred(found), 2, 4, samples=400)
    assert result.feasible_share == pytest.approx((rate - low) / (high - low), abs=1 / 400)
    assert result.failures["demand"] == pytest.approx(1 - result.feasible_share)
    one = result.influences[0]
    assert one.flips_at == pytest.approx(rate, rel=1e-4) and one.feasible_above is False
    assert (one.first, one.total, one.correlation) == (0, 0, 0)  # the rate does not depend on what is asked
    assert one.verdict_total == pytest.approx(1, abs=0.2)
    assert result.decides == result.measure_next == "demand.turn_rate"
    assert result.turns_per_s["p5"] == pytest.approx(result.turns_per_s["p95"])


def test_values_that_matter_and_those_that_do_not():
    found = with_uncertain(
        demanding(50.0),
        hardware__gpu__hbm_capacity="78GB +- 3 %",
        hardware__cost__power="10kW +- 10 %",
        slo__ttft="3s..5s",
    )
    result = assess(centred(found), 2, 4, samples=200)
    by_key = {one.key: one for one in result.influences}
    room = by_key["hardware.gpu.hbm_capacity"]
    assert result.decides == "hardware.gpu.hbm_capacity"
    assert room.correlation > 0.99 and room.first == pytest.approx(1, abs=0.1)
    for idle in ("hardware.cost.power", "slo.ttft"):
        one = by_key[idle]
        assert (one.first, one.total, one.correlation, one.flips_at) == (0, 0, 0, None)
        assert one.verdict_total in (0, None)


def test_the_lean_verdict_is_that_of_feasible():
    random = np.random.default_rng(5)
    base = demanding(70.0)
    ways = set()
    for _ in range(60):
        texts = {
            "hardware.snic.efficiency": random.uniform(0.4, 1.0),
            "hardware.snic.rate": random.uniform(10e9, 120e9),
            "hardware.dram.bandwidth": random.uniform(1e11, 6e11),
            "hardware.gpu.hbm_capacity": random.uniform(50e9, 150e9),
            "slo.ttft": random.uniform(0.05, 1.0),
            "slo.tpot": random.uniform(0.005, 0.08),
            "collective_load": random.uniform(0.0, 0.5),
        }
        values = [parse_uncertain(key, f"{x!r}{UNITS[key]} +- 0{UNITS[key]}", "here") for key, x in texts.items()]
        found = with_values(base, values, list(texts.values()))
        answer, judged = dualplan.evaluate(found, 3, 4), judge(found, 3, 4)
        assert judged.turns_per_s == pytest.approx(answer.turns_per_s)
        assert (not judged.faults) == answer.feasible
        ways |= set(judged.faults) or {"feasible"}
    assert {"feasible", "memory", "range", "demand", "ttft", "tpot"} <= ways


UNITS = {
    "hardware.snic.efficiency": "",
    "hardware.snic.rate": "B/s",
    "hardware.dram.bandwidth": "B/s",
    "hardware.gpu.hbm_capacity": "B",
    "slo.ttft": "s",
    "slo.tpot": "s",
    "collective_load": "",
}


def test_a_scenario_has_its_uncertain_values_at_their_centres(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(
        "hardware: dgx-h100\nmodel: deepseek-v3.2\nworkload: dualpath-64k\nprefill_nodes: 2\ndecode_nodes: 4\n"
        "uncertain: {hardware.snic.efficiency: 0.8..0.9, workload.append: 429 +- 20 %}\n"
    )
    found = dualplan.load(file)
    assert found.hardware.snic.efficiency == pytest.approx(0.85)
    assert found.decode_hardware.snic.efficiency == pytest.approx(0.85)
    assert found.workload.append == 429
    file.write_text(file.read_text().replace("0.8..0.9", "0.9..0.8"))
    with pytest.raises(InputError, match=r"s\.yaml:6: hardware\.snic\.efficiency: .*wrong order"):
        dualplan.load(file)


def test_the_schema_of_a_scenario_knows_uncertain_values():
    from jsonschema import Draft202012Validator

    schema = json_schema(ScenarioFile, "scenario")
    validator = Draft202012Validator(schema)
    good = {"hardware": "x", "model": "m", "workload": "w", "uncertain": {"balance": "1.1..1.3"}}
    assert not list(validator.iter_errors(good))
    assert list(validator.iter_errors(good | {"uncertain": ["balance"]}))


@pytest.mark.parametrize("samples", [1, 200_000])
def test_numbers_of_samples(samples):
    with pytest.raises(InputError, match="--samples"):
        assess(centred(with_uncertain(demanding(50.0), balance="1.1..1.2")), 2, 4, samples=samples)
