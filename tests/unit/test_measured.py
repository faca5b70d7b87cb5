"""Tables of measured runs: what is read, what is refused, what is predicted, against figures worked by hand."""

from math import exp, log

import pytest

from dualplan.errors import InputError
from dualplan.model.roofline import decode_step, step_time
from dualplan.plan.measured import (
    Run,
    case,
    classes_of,
    contradiction,
    errors,
    model_of,
    predict,
    published_points,
    read_runs,
    runs_document,
)
from dualplan.spec.constants import roofline_data, widest
from dualplan.spec.hardware import read_hardware
from dualplan.spec.model import Model

HEAD = "model,system,precision,prompt_tokens,output_tokens,tp,sequences_per_rank,ttft_ms,tpot_ms\n"
ROW = "DeepSeek-R1,h200_sxm,fp8,1024,1024,8,4,250,12.8\n"


def run(**changes: object) -> Run:
    known: dict[str, object] = {
        "line": 2,
        "model": "DeepSeek-R1",
        "system": "h200_sxm",
        "precision": "fp8",
        "prompt_tokens": 1024,
        "output_tokens": 1024,
        "tp": 8,
        "sequences_per_rank": 4,
    }
    return Run(**{**known, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv: holds no runs"),
        (HEAD, "t.csv: holds no runs"),
        (HEAD.replace("tpot_ms", "tpot") + ROW, 't.csv:1: "tpot" is not a column'),
        (HEAD.replace("tp,", "", 1) + ROW, "t.csv:1: the columns tp are missing"),
        (HEAD.replace("ttft_ms", "tpot_ms") + ROW, "t.csv:1: the column tpot_ms is there twice"),
        (HEAD + ROW.replace("1024", "1k", 1), 't.csv:2: prompt_tokens: "1k" is not a plain number without a unit'),
        (HEAD + ROW.replace("12.8", "12.8 ms"), 't.csv:2: tpot_ms: "12.8 ms" is not a plain number'),
        (HEAD + ROW.replace("12.8", "nan"), 't.csv:2: tpot_ms: "nan" is not a plain number'),
        (HEAD + ROW.replace("1024", "-1", 1), 't.csv:2: prompt_tokens: "-1" is not a plain number'),
        (HEAD + ROW.replace(",8,", ",2.5,"), 't.csv:2: tp: "2.5" is not a whole number'),
        (HEAD + ROW.replace("DeepSeek-R1", ""), "t.csv:2: model: is empty"),
        (HEAD + ROW + "a,b\n", "t.csv:3: has 2 cells, the header 9"),
        (HEAD + '"' + ROW, "is not CSV"),
        ("mode," + HEAD + "both," + ROW, 't.csv:2: mode: "both" is neither agg nor disagg'),
    ],
)
def test_tables_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_runs(text, "t.csv")
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_every_bad_line_is_named() -> None:
    with pytest.raises(InputError) as caught:
        read_runs(HEAD + ROW.replace("fp8", "") + ROW + ROW.replace("250", "x"), "t.csv")
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == ["t.csv:2", "t.csv:4"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"system": "tpu-v9"}, 'no profile of a GPU "tpu-v9" is shipped'),
        ({"model": "Claude"}, 'no model "Claude" is shipped'),
        ({"precision": "fp3"}, '"fp3" is not a precision'),
        ({"sequences_per_rank": 0}, "neither concurrency nor sequences_per_rank is given"),
        ({"ep": 16}, "experts over 16 GPUs of an engine that has 8"),
        ({"model": "Llama-3.1-8B", "ep": 8}, "experts over 8 GPUs, but Llama-3.1-8B has none"),
    ],
)
def test_rows_that_are_not_covered(changes: dict[str, object], reason: str) -> None:
    prediction = predict(run(**changes))
    assert not prediction.covered
    assert reason.lower() in prediction.reason.lower()
    assert prediction.predicted_tpot_ms is None


@pytest.mark.parametrize(
    ("name", "precision", "shipped", "storage"),
    [
        ("DeepSeek-V3", "fp4", "deepseek-v3", "nvfp4-ffn"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "fp4", "llama-3.1-70b", "nvfp4"),
        ("Llama-3.1-8B-Instruct", "fp8", "llama-3.1-8b", "fp8"),
        ("gpt-oss-120b", "fp4", "gpt-oss-120b", "mxfp4-experts"),
        ("Qwen3-32B-NVFP4", "fp4", "qwen3-32b", "nvfp4"),
        ("moonshotai/Kimi-K2.5", "int4", "kimi-k2", "int4-experts"),
        ("DeepSeek-R1-0528", "fp8", "deepseek-v3", "fp8"),
    ],
)
def test_names_of_models(name: str, precision: str, shipped: str, storage: str) -> None:
    model = model_of(name, precision)
    assert isinstance(model, Model)
    assert (model.name, model.weight_storage) == (shipped, storage)


def test_sequences_follow_from_concurrency() -> None:
    """4,096 clients on 4 engines of 32 ranks: 32 a rank."""
    assert run(sequences_per_rank=0, concurrency=4096, dp=32, decode_workers=4).sequences == 32


def test_an_aggregated_run_is_the_step_and_the_prefill_of_the_others() -> None:
    known = case(run())
    assert not isinstance(known, str)
    c = roofline_data().constants
    step = step_time(decode_step(known.decode, c), 4, 1024 + 512)
    prediction = predict(run())
    assert prediction.predicted_tpot_ms is not None
    assert prediction.predicted_tpot_ms > 1e3 * step
    assert prediction.predicted_tpot_ms == pytest.approx(1e3 * step, rel=0.05)  # 3 prompts in 1,024 steps


def test_runs_that_contradict_themselves() -> None:
    def reason(**changes: object) -> str:
        row = run(**changes)
        known = case(row)
        assert not isinstance(known, str)
        return contradiction(row, known)

    assert reason(ttft_ms=250, tpot_ms=12.8) == ""
    assert "TTFT is 60 % of a request's life" in reason(ttft_ms=20_000, tpot_ms=13)
    assert reason(ttft_ms=20_000, tpot_ms=13, mode="disagg") == ""
    assert "GB of weights on a GPU of 141 GB" in reason(tp=4)
    assert "of the peak" in reason(tpot_ms=0.1, ttft_ms=1, sequences_per_rank=64, prompt_tokens=8192)


def test_document() -> None:
    """Runs in the file's order; errors and the share inside the interval of what was measured."""
    text = HEAD + ROW + ROW.replace("h200_sxm", "tpu-v9")
    document = runs_document(text, "t.csv")
    first, second = document["runs"]
    assert (first["covered"], second["covered"]) == (True, False)
    low, high = first["interval"]
    assert low < first["predicted_tpot_ms"] < high
    assert document["summary"]["covered"] == document["summary"]["scored"] == 1
    ratio = first["predicted_tpot_ms"] / 12.8
    assert document["summary"]["tpot"]["median_error"] == pytest.approx(exp(abs(log(ratio))) - 1)
    assert document["summary"]["tpot"]["inside_interval"] == float(low <= 12.8 <= high)


def test_document_without_measured_figures() -> None:
    head, row = HEAD.replace(",ttft_ms,tpot_ms", ""), ROW.replace(",250,12.8", "")
    assert runs_document(head + row, "t.csv")["summary"]["tpot"] is None


def test_errors() -> None:
    """Ratios of 2, 1/2, 1: errors 1, 1, 0."""
    assert errors([(2, 1), (1, 2), (3, 3)]) == pytest.approx((1.0, 1.0))


def test_intervals_are_wider_for_what_was_not_fitted() -> None:
    data = roofline_data()

    def width(**changes: object) -> float:
        row = run(**changes)
        known, model = case(row), model_of(row.model, row.precision)
        assert not isinstance(known, str) and isinstance(model, Model)
        profiles = {"h200_sxm": "dgx-h200", "mi300x": "mi300x-8", "gb300": "gb300-nvl72"}
        found = widest(data.tpot, classes_of(model, read_hardware(profiles[row.system]), known))
        return found.high / found.low

    usual = width()
    assert width(system="gb300") > usual
    assert width(model="GLM-5") > usual
    assert width(tp=16) > usual
    assert width(system="mi300x") > width(system="gb300")


def test_points_are_read() -> None:
    points = {point.id: point for point in published_points()}
    assert len(points) == 37
    assert points["A1"].ranks == 8  # a node of an EP32 engine of tp 1
    assert points["A12"].ranks == 1  # an engine of tp 4
    assert points["A7"].ranks == 1  # a GPU
