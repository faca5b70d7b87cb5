"""Measurements from the result files of benchmarks, told by their content.

* ``vllm bench serve`` and ``sglang.bench_serving``: one JSON object a run (JSONL: one a line), latencies in ms.
* AIPerf and GenAI-Perf: the JSON of all metrics, and AIPerf's JSONL of requests; each metric names its unit.
* Rows of serving runs as InferenceX publishes them (CSV with prompt_tokens, output_tokens, tpot_ms, tp ..).
* Else the CSV of :mod:`dualplan.plan.measurements`.

A run gives its mean TPOT with the requests under way, and its mean TTFT if they came one at a time: any other TTFT
holds a queue. Under way are the clients of a closed loop, else what decodes by Little's law: requests/s times
(output - 1) TPOT. Prompts are taken to have no cached prefix, as random ones have.

Formats: docs/developer_guide/bench_serving.md of sgl-project/sglang, vllm/benchmarks/serve.py of vllm-project/vllm,
docs/tutorials/working-with-profile-exports.md of ai-dynamo/aiperf.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dualplan.errors import InputError, did_you_mean, problem
from dualplan.plan.measurements import MOST_ROWS, Measurement, parse_measurements
from dualplan.units import counted

Document = dict[str, Any]

SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Units of time that AIPerf and GenAI-Perf write beside a metric."""

KNOWN = "known: results of vllm bench serve, sglang.bench_serving, AIPerf and GenAI-Perf, serving runs, kind and value"

RUN_COLUMNS = ("prompt_tokens", "output_tokens", "tpot_ms", "tp")
"""Columns of serving runs that every file has."""

ALONE = 1.01
"""Requests under way, up to which they came one at a time."""


class MeasurementFile(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements, and ``notes`` on what was left out or assumed."""

    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """Means of a run: lengths in tokens, times in s. ``under_way``: requests at a time, of an attention rank if
    ``ranked``, else of all; ``alone``: they came one at a time. ``degrees``, ``prefill_degrees``: tp, dp, ep where the
    file has them.
    """

    line: int
    prompt: float
    output: float
    tpot: float
    ttft: float | None
    under_way: float
    alone: bool
    ranked: bool = False
    aggregated: bool | None = None
    degrees: Mapping[str, int] = {}
    prefill_degrees: Mapping[str, int] = {}


def read_measurements(text: str, name: str, *, aggregated: bool | None = None) -> MeasurementFile:
    """The measurements of a file. ``aggregated``: whether prefill runs on the engines that decode, where the file does
    not say. Raises InputError with all problems.
    """
    start = text.lstrip()[:1]
    if start in ("{", "["):
        found = _from_json(text, name)
    else:
        header = _header(text)
        if not {"tpot_ms", "ttft_ms"} & set(header) or "kind" in header:
            rows = parse_measurements(text, name)
            return MeasurementFile(measurements=_completed(rows, name, aggregated))
        found = _from_rows(text, name)
    if not found.measurements:
        raise InputError(name, "holds no measurement")
    if len(found.measurements) > MOST_ROWS:
        raise InputError(name, f"more than {MOST_ROWS:,} measurements")
    return msgspec.structs.replace(found, measurements=_completed(found.measurements, name, aggregated))


def _completed(rows: Sequence[Measurement], name: str, aggregated: bool | None) -> tuple[Measurement, ...]:
    """Rows with the file they are of, and how engines are shared where a row does not say."""
    return tuple(
        msgspec.structs.replace(
            one, file=name, aggregated=aggregated if one.aggregated is None and not one.simulated else one.aggregated
        )
        for one in rows
    )


def _measurements(run: _Run) -> Iterator[Measurement]:
    """The figures of a run."""
    lengths = Measurement(
        line=run.line, kind="tpot", value=run.tpot, context=0.0, append=run.prompt, generated=run.output
    )
    size = {"batch" if run.ranked else "concurrency": max(run.under_way, 1.0)}
    yield msgspec.structs.replace(lengths, aggregated=run.aggregated, **size, **run.degrees)
    if run.ttft is not None and run.alone:
        degrees = run.prefill_degrees or run.degrees
        yield msgspec.structs.replace(lengths, kind="ttft", value=run.ttft, batch=1, **degrees)


def _file(runs: Sequence[_Run]) -> MeasurementFile:
    notes = ["prompts are taken to have no cached prefix"]
    queued = sum(run.ttft is not None and not run.alone for run in runs)
    if queued:
        notes.append(f"the TTFT of {counted(queued, 'run')} with several requests at a time holds a queue: left out")
    return MeasurementFile(measurements=tuple(one for run in runs for one in _measurements(run)), notes=tuple(notes))


# ---------------------------------------------------------------- JSON


def _from_json(text: str, name: str) -> MeasurementFile:
    documents = _documents(text, name)
    line, first = documents[0]
    if "experiments" in first:
        hint = "give profile_export_genai_perf.json, which holds the metrics"
        raise InputError(f"{name}:{line}", "is the raw profile of GenAI-Perf, without token counts", hint)
    if "metrics" in first:
        return _file([_of_requests(documents, name)])
    problems: list[str] = []
    runs: list[_Run] = []
    for line, document in documents:
        try:
            runs.append(_of_document(document, line, f"{name}:{line}"))
        except InputError as error:
            problems.extend(error.problems)
            if not runs:
                break  # a file of something else: once is enough
    if problems:
        raise InputError("", problems=problems)
    return _file(runs)


def _documents(text: str, name: str) -> list[tuple[int, Document]]:
    """JSON objects with the line each starts on: the whole text, the members of a list, or one a line.

    The reader of the standard library, since SGLang writes Infinity.
    """
    try:
        whole = json.loads(text)
        start = text[: len(text) - len(text.lstrip())].count("\n") + 1
        found = [(start, one) for one in (whole if isinstance(whole, list) else [whole])]
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise InputError(f"{name}:{error.lineno}", f"is not JSON: {error.msg}") from None
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    found.append((number, json.loads(line)))
                except (ValueError, RecursionError):
                    raise InputError(f"{name}:{number}", "is not a line of JSON") from None
    except (ValueError, RecursionError):
        raise InputError(name, "is not JSON that can be read: too deep, or a number of thousands of digits") from None
    for number, one in found:
        if not isinstance(one, dict):
            raise InputError(f"{name}:{number}", "is not a JSON object", KNOWN)
    if not found:
        raise InputError(name, "holds no measurement")
    return found


def _of_document(document: Document, line: int, where: str) -> _Run:
    records = document.get("records")
    metrics = {**document, **records} if isinstance(records, dict) else document
    if any(isinstance(metrics.get(key), dict) for key in ("inter_token_latency", "time_to_first_token")):
        return _of_metrics(metrics, line, where)
    if any(key in document for key in ("mean_tpot_ms", "mean_ttft_ms", "total_input_tokens")):
        return _of_bench_serve(document, line, where)
    raise InputError(where, "is no benchmark result that is known", KNOWN)


def _of_bench_serve(document: Document, line: int, where: str) -> _Run:
    problems: list[str] = []
    speculative = _optional(document, "accept_length")
    if speculative is not None and speculative > ALONE:
        problems.append(problem(f"{where}: accept_length", "is above 1: with speculative decoding TPOT is no step"))
    done, prompts, outputs, tpot = (
        _needed(document, key, where, problems)
        for key in ("completed", "total_input_tokens", "total_output_tokens", "mean_tpot_ms")
    )
    prompt, output = prompts / done, outputs / done
    clients, rate = _optional(document, "max_concurrency"), _optional(document, "request_rate")
    under_way = clients if rate is None else _optional(document, "concurrency")
    if under_way is None:
        seconds = _optional(document, "duration")
        under_way = _optional(document, "concurrency")
        if seconds is not None:
            under_way = done / seconds * (output - 1) * tpot * 1e-3
    if under_way is None and not problems:
        problems.append(problem(f"{where}: max_concurrency", "missing: how many requests are under way, nor duration"))
    if problems:
        raise InputError("", problems=problems)
    ttft = _optional(document, "mean_ttft_ms")
    return _Run(
        line=line,
        prompt=prompt,
        output=output,
        tpot=tpot * 1e-3,
        ttft=None if ttft is None else ttft * 1e-3,
        under_way=under_way or 1.0,
        alone=clients is not None and clients <= 1,
        aggregated=_serving(document, where),
        degrees=_degrees(document, where),
    )


def _of_metrics(metrics: Document, line: int, where: str) -> _Run:
    problems: list[str] = []
    tpot = _time(metrics, "inter_token_latency", "avg", where, problems)
    prompt, output = (
        _needed(_part(metrics, key), "avg", f"{where}: {key}", problems)
        for key in ("input_sequence_length", "output_sequence_length")
    )
    ttft = None
    if isinstance(metrics.get("time_to_first_token"), dict):
        ttft = _time(metrics, "time_to_first_token", "avg", where, problems)
    settings = _part(metrics, "input_config")
    clients = _single(settings, "concurrency")
    if _single(settings, "request_rate") is not None:
        clients = None
    under_way = clients
    rate = _optional(_part(metrics, "request_throughput"), "avg")
    if under_way is None and rate is not None:
        under_way = rate * (output - 1) * tpot
    if under_way is None:
        what = "missing: how many requests are under way, nor request_throughput"
        problems.append(problem(f"{where}: input_config.concurrency", what))
    if problems:
        raise InputError("", problems=problems)
    return _Run(
        line=line,
        prompt=prompt,
        output=output,
        tpot=tpot,
        ttft=ttft,
        under_way=under_way or 1.0,
        alone=clients is not None and clients <= 1,
    )


def _of_requests(documents: Sequence[tuple[int, Document]], name: str) -> _Run:
    """One run of the requests of AIPerf's profile export: means over those that ended well."""
    problems: list[str] = []
    rows: list[tuple[float, float, float, float]] = []
    firsts: list[float] = []
    begun, ended, busy = math.inf, -math.inf, 0.0
    for line, document in documents:
        where = f"{name}:{line}"
        metadata, metrics = _part(document, "metadata"), _part(document, "metrics")
        if document.get("error") or metadata.get("was_cancelled") is True:
            continue
        if metadata.get("benchmark_phase", "profiling") != "profiling":
            continue
        start, end = (
            _needed(metadata, key, f"{where}: metadata", problems) * 1e-9
            for key in ("request_start_ns", "request_end_ns")
        )
        begun, ended, busy = min(begun, start), max(ended, end), busy + max(end - start, 0.0)
        prompt, output = (
            _needed(_part(metrics, key), "value", f"{where}: metrics.{key}", problems)
            for key in ("input_sequence_length", "output_sequence_length")
        )
        if output > 1:
            rows.append((prompt, output, _time(metrics, "inter_token_latency", "value", where, problems), line))
        if isinstance(metrics.get("time_to_first_token"), dict):
            firsts.append(_time(metrics, "time_to_first_token", "value", where, problems))
        if problems:  # what one request lacks all do
            raise InputError("", problems=problems)
    if not rows:
        raise InputError(name, "holds no request that ended well with more than one token")
    if not begun < ended:
        raise InputError(name, "all requests start and end at one time")
    prompt, output, tpot = (math.fsum(row[i] for row in rows) / len(rows) for i in range(3))
    seconds = ended - begun
    return _Run(
        line=documents[0][0],
        prompt=prompt,
        output=output,
        tpot=tpot,
        ttft=math.fsum(firsts) / len(firsts) if firsts else None,
        under_way=math.fsum((row[1] - 1) * row[2] for row in rows) / seconds,
        alone=busy <= ALONE * seconds,
    )


def _part(document: Mapping[str, Any], key: str) -> Document:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _value(value: Any) -> float | None:
    """A number above 0 that fits a float; None for anything else. Text holds one where metadata was given by hand."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < 1e300 else None


def _optional(document: Mapping[str, Any], key: str) -> float | None:
    """A number above 0; None where there is none, as of a request rate without limit."""
    return _value(document.get(key))


def _needed(document: Mapping[str, Any], key: str, where: str, problems: list[str]) -> float:
    """A number above 0. Else a problem, and 1 to go on with."""
    number = _value(document.get(key))
    if number is None or number < 1e-9:
        what = "is not a number above 0" if document.get(key) is not None else "missing"
        problems.append(problem(f"{where}: {key}", what))
        return 1.0
    return number


def _time(metrics: Mapping[str, Any], key: str, statistic: str, where: str, problems: list[str]) -> float:
    """A metric in the unit that stands beside it [s]."""
    metric = _part(metrics, key)
    value = _needed(metric, statistic, f"{where}: {key}", problems)
    unit = metric.get("unit")
    second = SECONDS.get(unit) if isinstance(unit, str) else None
    if metric and second is None:
        shown = "missing" if unit is None else f'"{str(unit)[:20]}" is not a unit of time'
        problems.append(problem(f"{where}: {key}.unit", shown, "known: " + ", ".join(SECONDS)))
    return value * (second or 1.0)


def _single(settings: Any, key: str) -> float | None:
    """The number of a setting at any depth, if it is one: where it lies changes with the version of the tool."""
    found: set[float] = set()
    open_ = [settings]
    while open_:
        part = open_.pop()
        if isinstance(part, dict):
            number = _value(part.get(key))
            if number is not None:
                found.add(number)
            open_ += part.values()
        elif isinstance(part, list):
            open_ += part
    return found.pop() if len(found) == 1 else None


def _degrees(document: Mapping[str, Any], where: str) -> dict[str, int]:
    """Degrees of parallelism that were given as metadata of the benchmark."""
    found = {}
    for key in ("tp", "dp", "ep"):
        value = document.get(key)
        if value is not None:
            number = _value(value)
            if number is None or number != int(number) or number > 1e6:
                raise InputError(f"{where}: {key}", "is not a whole number above 0")
            found[key] = int(number)
    return found


def _serving(document: Mapping[str, Any], where: str) -> bool | None:
    mode = document.get("mode")
    if mode is None:
        return None
    if mode not in ("agg", "disagg"):
        raise InputError(f"{where}: mode", f'"{str(mode)[:40]}" is not known', "agg or disagg")
    return bool(mode == "agg")


# ---------------------------------------------------------------- rows of serving runs


def _header(text: str) -> list[str]:
    """The cells of the first line that is not empty and no comment."""
    for line in io.StringIO(text):
        if line.strip() and not line.startswith("#"):
            return [cell.strip() for cell in line.split(",")]
    return []


def _from_rows(text: str, name: str) -> MeasurementFile:
    """Runs of one model, system and precision. Columns that are not needed are not read."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    runs: list[_Run] = []
    problems: list[str] = []
    groups: dict[str, None] = {}
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            where = f"{name}:{reader.line_num}"
            if not any(cells) or cells[0].startswith("#"):
                continue
            if not header:
                header = cells
                _check_columns(header, where)
                continue
            row = {key: cell for key, cell in zip(header, cells, strict=False) if cell}
            groups[" ".join(row[key] for key in ("model", "system", "precision") if key in row)] = None
            try:
                runs.append(_of_row(row, reader.line_num, where))
            except InputError as error:
                problems.extend(error.problems)
    except csv.Error as error:
        problems.append(problem(f"{name}:{reader.line_num}", f"is not CSV: {error}"))
    if len(groups) > 1:
        shown = ", ".join(group[:60] for group in list(groups)[:3]) + (" .." if len(groups) > 3 else "")
        what = f"holds runs of {len(groups)} models, systems or precisions ({shown})"
        problems.insert(0, problem(name, what, "keep the rows of the one that the scenario has"))
    if problems:
        raise InputError("", problems=problems)
    return _file(runs)


def _check_columns(header: Sequence[str], where: str) -> None:
    problems = [
        problem(where, f"{column}: the column is missing", did_you_mean(column, header))
        for column in RUN_COLUMNS
        if column not in header
    ]
    if not {"sequences_per_rank", "concurrency"} & set(header):
        problems.append(problem(where, "sequences_per_rank or concurrency: the column is missing"))
    if problems:
        raise InputError("", problems=problems)


def _of_row(row: Mapping[str, str], line: int, where: str) -> _Run:
    problems: list[str] = []
    prompt, output, tpot = (_needed(row, key, where, problems) for key in RUN_COLUMNS[:3])
    degrees = _degrees(row, where)
    ranks = degrees.get("dp", 1) * (_optional(row, "decode_workers") or 1.0)
    sequences, clients = _optional(row, "sequences_per_rank"), _optional(row, "concurrency")
    if sequences is None and clients is None:
        problems.append(problem(where, "a run without batch: sequences_per_rank and concurrency are missing or 0"))
    if problems:
        raise InputError("", problems=problems)
    sequences = (clients or 1.0) / ranks if sequences is None else sequences
    ttft = _optional(row, "ttft_ms")
    prefill = {key: row[f"prefill_{key}"] for key in ("tp", "dp", "ep") if f"prefill_{key}" in row}
    return _Run(
        line=line,
        prompt=prompt,
        output=output,
        tpot=tpot * 1e-3,
        ttft=None if ttft is None else ttft * 1e-3,
        under_way=sequences,
        alone=(clients or sequences * ranks) <= 1,
        ranked=True,
        aggregated=_serving(row, where),
        degrees=degrees,
        prefill_degrees=_degrees(prefill, where),
    )
