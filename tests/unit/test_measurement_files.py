"""Result files of benchmarks: units and lengths as tools write them, requests under way, one line for what fails."""

import json
from pathlib import Path

import pytest

from dualplan.errors import InputError
from dualplan.plan.measurement_files import read_measurements

CORPUS = Path(__file__).resolve().parents[1] / "fuzz" / "corpus" / "measurements"

BENCH = {
    "request_rate": "inf",
    "max_concurrency": 16,
    "duration": 160.0,
    "completed": 160,
    "total_input_tokens": 163840,
    "total_output_tokens": 81920,
    "mean_ttft_ms": 400.0,
    "mean_tpot_ms": 31.25,
}
METRICS = {
    "inter_token_latency": {"unit": "ms", "avg": 20.0},
    "time_to_first_token": {"unit": "ms", "avg": 110.0},
    "input_sequence_length": {"unit": "tokens", "avg": 512.0},
    "output_sequence_length": {"unit": "tokens", "avg": 201.0},
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "input_config": {"loadgen": {"concurrency": 8}},
}
HEADER = "mode,model,prompt_tokens,output_tokens,concurrency,sequences_per_rank,tp,dp,ep,ttft_ms,tpot_ms\n"


def read(document, **more):
    text = document if isinstance(document, str) else json.dumps(document | more)
    return read_measurements(text, "x").measurements


def shared(name):
    return read_measurements((CORPUS / name).read_text(), name)


def test_vllm_result():
    """163,840 prompt tokens of 160 requests are 1,024 each; a cap of 16 without a rate is a closed loop of 16."""
    (one,) = read(BENCH)
    assert (one.kind, one.value, one.append, one.generated) == ("tpot", 0.03125, 1024.0, 512.0)
    assert (one.concurrency, one.batch, one.context, one.aggregated) == (16.0, None, 0.0, None)
    assert shared("vllm.json").measurements[0].tp == 8  # --metadata tp=8, which vLLM writes as text


def test_a_queue_is_no_first_token_of_one_request():
    assert [one.kind for one in read(BENCH, max_concurrency=1)] == ["tpot", "ttft"]
    notes = read_measurements(json.dumps(BENCH), "x").notes
    assert any("holds a queue" in note for note in notes)


def test_requests_under_way_at_a_rate_are_those_of_little():
    """1 request/s, each of 511 steps of 31.25 ms: 15.97 decode at a time."""
    (one,) = read(BENCH, request_rate=1.0, max_concurrency=None)
    assert one.concurrency == pytest.approx(511 * 0.03125)


def test_sglang_lines():
    """One run a line, Infinity for a rate without limit, its own count of requests under way at a rate."""
    first, ttft, second = shared("sglang.jsonl").measurements
    assert (first.line, first.concurrency, first.value, ttft.value) == (1, 1.0, 0.02, 0.12)
    assert (second.line, second.concurrency) == (2, 10.2)


def test_aiperf_and_genai_perf_metrics_have_units():
    (one,) = read(METRICS)
    assert (one.value, one.append, one.generated, one.concurrency) == (0.02, 512.0, 201.0, 8.0)
    (other,) = read(METRICS, inter_token_latency={"unit": "us", "avg": 18e3})
    assert other.value == pytest.approx(0.018)
    (rated,) = read(METRICS, input_config={"perf_analyzer": {"stimulus": {"request_rate": 2.0}}})
    assert rated.concurrency == pytest.approx(2 * 200 * 0.02)


def test_aiperf_requests_are_one_run():
    """Two requests of 100 steps of 20 ms within 2.3 s: 1.739 decode at a time; the cancelled one is not counted."""
    (one,) = shared("aiperf-requests.jsonl").measurements
    assert (one.append, one.generated, one.value) == (1500.0, 101.0, 0.02)
    assert one.concurrency == pytest.approx(2 * 100 * 0.02 / 2.3)


def test_serving_runs():
    """Sequences of a rank are the batch; where they are not known, the requests over ranks and decode engines."""
    aggregated, alone, ttft, unknown = shared("serving-runs.csv").measurements
    assert (aggregated.aggregated, aggregated.batch, aggregated.tp, aggregated.value) == (True, 16.0, 4, 0.0225)
    assert (alone.aggregated, alone.batch, ttft.kind, ttft.tp) == (False, 1.0, "ttft", 4)  # of the prefill engine
    assert unknown.batch == 64 / (4 * 2)


def test_how_engines_are_shared_may_be_said_for_a_file():
    (one,) = read_measurements(json.dumps(BENCH), "x", aggregated=True).measurements
    assert one.aggregated is True
    (said,) = read_measurements(json.dumps(BENCH | {"mode": "disagg"}), "x", aggregated=True).measurements
    assert said.aggregated is False


def without(document, key):
    return {name: value for name, value in document.items() if name != key}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (without(BENCH, "mean_tpot_ms"), "x:1: mean_tpot_ms: missing"),
        (BENCH | {"mean_tpot_ms": "fast"}, "x:1: mean_tpot_ms: is not a number above 0"),
        (without(without(BENCH, "duration"), "max_concurrency"), "x:1: max_concurrency: missing"),
        (BENCH | {"accept_length": 2.4}, "speculative"),
        (BENCH | {"tp": "two"}, "x:1: tp: is not a whole number"),
        (BENCH | {"mode": "mixed"}, "agg or disagg"),
        (METRICS | {"inter_token_latency": {"unit": "furlongs", "avg": 1}}, '"furlongs" is not a unit of time'),
        (METRICS | {"inter_token_latency": {"avg": 1}}, "inter_token_latency.unit: missing"),
        (without(METRICS, "input_sequence_length"), "input_sequence_length: avg: missing"),
        (without(without(METRICS, "input_config"), "request_throughput"), "input_config.concurrency: missing"),
        ({"experiments": []}, "raw profile of GenAI-Perf"),
        ({"spans": []}, "no benchmark result that is known"),
        ("[1]", "x:1: is not a JSON object"),
        ("{", "x:1: is not JSON"),
        ('{"completed": 1}\n{"completed"\n', "x:2: is not a line of JSON"),
        ("[" * 100_000, "too deep"),
        (HEADER + "agg,m,1024,512,0,0,4,1,1,300,20\n", "x:2: a run without batch"),
        (HEADER + "agg,m,1024,512,8,8,4,1,1,300,\n", "x:2: tpot_ms: missing"),
        (HEADER + "agg,m,1024,512,8,8,4,1,1,300,20ms\n", "x:2: tpot_ms: is not a number above 0"),
        (HEADER + "both,m,1024,512,8,8,4,1,1,300,20\n", "x:2: mode"),
        (HEADER + "agg,m,1,1,8,8,4,1,1,300,20\nagg,n,1,1,8,8,4,1,1,300,20\n", "runs of 2 models"),
        (HEADER.replace("prompt_tokens", "prompt_token") + "agg\n", "did you mean prompt_token"),
        (HEADER, "holds no measurement"),
        ("", "holds no header line"),
    ],
)
def test_bad_files(text, what):
    with pytest.raises(InputError) as caught:
        read(text)
    (line,) = caught.value.problems
    assert what in line
