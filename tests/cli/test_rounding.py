"""A figure reads the same in every answer: three significant digits, of which those of the equations are the first."""

import json
import re

import pytest

from tests.cli.runner import PAPER, in_process


def text(*arguments):
    done = in_process(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def data():
    return json.loads(text("feasible", PAPER, "--json"))


@pytest.fixture(scope="module")
def answers():
    return {
        "feasible": text("feasible", PAPER),
        "report": text("report", PAPER, "-f", "md", "-o", "-"),
        "compare": text("compare", PAPER, PAPER),
        "explain": text("explain", PAPER, "latency", "rate"),
    }


def test_times(data, answers):
    for key, name in (("ttft_unloaded_s", "TTFT"), ("tpot_s", "TPOT")):
        seconds = data["latency"][key]
        three = f"{1e3 * seconds:.3g} ms"
        assert three in answers["feasible"] and three in answers["report"]
        assert f"{seconds:.3g}" in re.search(rf"^ *{name}.*$", answers["compare"], re.MULTILINE)[0]
        assert f"{1e3 * seconds:.4g} ms" in answers["explain"]
        two = f"{1e3 * seconds:.2g} ms"
        assert not any(re.search(rf"(?<![\d.]){two}", answer) for answer in answers.values())


def test_rate_and_factor(data, answers):
    rate, factor = data["throughput"]["turns_per_s"], data["speedup_over_basic"]
    tokens = data["throughput"]["prompt_tokens_per_s"] / 1e6
    for name in ("feasible", "report"):
        assert f"{rate:.3g} turns/s" in answers[name]
        assert f"{tokens:.3g} M prompt tok" in answers[name]
    assert f"{factor:.3g}x basic" in answers["feasible"] and f"{factor:.3g}× that of mode basic" in answers["report"]
    assert re.search(rf"x basic +{factor:.3g} ", answers["compare"])
    assert f"= {rate:#.4g}/s" in answers["explain"]
