"""Measured serving runs of any machine: a table of them, and what the roofline says of each.

Columns: those of ``dualplan/data/measured/README.md``. A row that cannot be predicted says why; a table that cannot be
read raises InputError with file and line.
"""

from __future__ import annotations

import csv
import functools
import io
from importlib.resources import files
from math import exp, log
from pathlib import Path
from statistics import median, quantiles
from typing import Any, get_args

import msgspec

from dualplan.errors import InputError, did_you_mean, problem
from dualplan.model.roofline import (
    Loop,
    Rank,
    Served,
    decode_step,
    prefill_pass,
    prompt_rate,
    rank,
    serve,
    serving_kv_format,
    step_time,
    unloaded_ttft,
)
from dualplan.plan.measurements import filled_rows
from dualplan.spec.constants import Constants, interval_classes, roofline_data, widest
from dualplan.spec.hardware import KIND as HARDWARE
from dualplan.spec.hardware import Hardware, read_hardware
from dualplan.spec.load import decode, read_yaml, shipped_names
from dualplan.spec.model import Model, load_model, shipped_models
from dualplan.spec.parallel import Parallel, parse_parallel
from dualplan.spec.precision import with_precision

MOST_ROWS = 100_000
FEW_CLIENTS = 8
"""Clients of a closed loop up to which its TTFT is more than the queue of the others."""

NOT_SCORED_PEAK, NOT_SCORED_TTFT, FITS = 0.8, 0.3, 0.95
"""A run contradicts itself where its prompts alone need this share of the peak, where TTFT is this share of a request's
life on an aggregated engine (clients wait for an engine that is full), or where weights exceed this share of HBM."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One measured run. ``sequences``: clients of an attention rank of the decode side, None where it is not known;
    ``tp``, ``dp``, ``ep`` of a decode engine, ``prefill_*`` of a prefill engine. Measured times in ms, None: not given.
    """

    line: int
    model: str
    system: str
    precision: str
    prompt_tokens: float
    output_tokens: float
    tp: int
    dp: int = 1
    ep: int = 1
    mode: str = "agg"
    engine: str = ""
    concurrency: float = 0.0
    sequences_per_rank: float = 0.0
    prefill_tp: int | None = None
    prefill_dp: int | None = None
    prefill_ep: int | None = None
    prefill_workers: int = 1
    decode_workers: int = 1
    ttft_ms: float | None = None
    tpot_ms: float | None = None

    @property
    def sequences(self) -> float | None:
        """Clients of an attention rank of the decode side."""
        share = self.sequences_per_rank or self.concurrency / (self.dp * self.decode_workers)
        return share or None

    @property
    def clients(self) -> float:
        """Clients of the whole closed loop."""
        return (self.sequences or 0.0) * self.dp * self.decode_workers

    @property
    def decode(self) -> Parallel:
        """Parallelism of a decode engine."""
        return Parallel(tp=self.tp, dp=self.dp, ep=self.ep)

    @property
    def prefill(self) -> Parallel:
        """Parallelism of a prefill engine: that of the decode engine where prefill runs there."""
        if self.mode == "agg":
            return self.decode
        return Parallel(tp=self.prefill_tp or self.tp, dp=self.prefill_dp or self.dp, ep=self.prefill_ep or self.ep)


NEEDED = tuple(f for f in Run.__struct_fields__[: -len(Run.__struct_defaults__)] if f != "line")
COLUMNS = tuple(f for f in Run.__struct_fields__ if f != "line")
MODES = ("agg", "disagg")


def read_runs(text: str, name: str) -> tuple[Run, ...]:
    """A CSV table with a header line. Raises InputError with every line that cannot be read."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    runs: list[Run] = []
    problems: list[str] = []
    try:
        for cells in filled_rows(reader):
            where = f"{name}:{reader.line_num}"
            if not header:
                header = _header(cells, where)
            elif len(cells) != len(header):
                problems.append(problem(where, f"has {len(cells)} cells, the header {len(header)}"))
            elif (run := _run(dict(zip(header, cells, strict=True)), reader.line_num, where, problems)) is not None:
                runs.append(run)
            if len(runs) > MOST_ROWS:
                raise InputError(where, f"more than {MOST_ROWS:,} runs")
    except csv.Error as error:
        raise InputError(f"{name}:{reader.line_num}", f"is not CSV: {error}") from None
    if problems:
        raise InputError("", problems=problems)
    if not runs:
        raise InputError(name, "holds no runs", "a header line and one run a line")
    return tuple(runs)


def _header(cells: list[str], where: str) -> list[str]:
    for cell in cells:
        if cell not in COLUMNS:
            hint = did_you_mean(cell, COLUMNS) or "known: " + ", ".join(COLUMNS)
            raise InputError(where, f'"{cell[:40]}" is not a column of measured runs', hint)
        if cells.count(cell) > 1:
            raise InputError(where, f"the column {cell} is there twice")
    missing = [column for column in NEEDED if column not in cells]
    if missing:
        raise InputError(where, f"the columns {', '.join(missing)} are missing")
    return cells


def _run(cells: dict[str, str], line: int, where: str, problems: list[str]) -> Run | None:
    values: dict[str, Any] = {}
    before = len(problems)
    for field in msgspec.structs.fields(Run):
        text = cells.get(field.name, "")
        if not text:
            if field.name in NEEDED:
                problems.append(problem(f"{where}: {field.name}", "is empty"))
            continue
        if field.type is str:
            values[field.name] = text
            continue
        whole = int in (field.type, *get_args(field.type))
        least = 0.0 if field.name in ("concurrency", "sequences_per_rank") else 1e-9
        value = _number(text, whole, least)
        if value is None:
            kind = "a whole number of at least 1" if whole else "a plain number without a unit"
            problems.append(problem(f"{where}: {field.name}", f'"{text[:40]}" is not {kind}'))
        else:
            values[field.name] = value
    if values.get("mode", "agg") not in MODES:
        problems.append(problem(f"{where}: mode", f'"{values["mode"][:40]}" is neither agg nor disagg'))
    return Run(line=line, **values) if len(problems) == before else None


def _number(text: str, whole: bool, least: float) -> float | int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if not least <= value < 1e12 or (whole and (value != int(value) or value < 1 or value > 1e6)):
        return None
    return int(value) if whole else value


# ---------------------------------------------------------------- names


class Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What names in tables stand for. ``precisions``: for dense models and for mixtures of experts. ``points``: the
    precision of a published point by its id, or by its model where that does not say.
    """

    systems: dict[str, str]
    endings: tuple[str, ...]
    models: dict[str, str]
    precisions: dict[str, tuple[str, ...]]
    exceptions: dict[str, dict[str, str]]
    points: dict[str, str]


@functools.cache
def names() -> Names:
    """The shipped table of names."""
    return decode(read_yaml(Path(str(files("dualplan.data") / "measured" / "names.yaml"))), Names)


@functools.cache
def hardware_of(system: str) -> Hardware | None:
    """The profile that a table calls ``system``; None where there is none."""
    name = names().systems.get(system.lower(), system.lower())
    return read_hardware(name) if name in shipped_names(HARDWARE, ".yaml") else None


@functools.cache
def model_of(name: str, precision: str) -> Model | str:
    """The model of a table in its precision, or a reason why there is none."""
    known = names()
    words = name.rsplit("/", 1)[-1].lower().split("-")
    shipped = shipped_models()
    while words and (key := known.models.get("-".join(words), "-".join(words))) not in shipped:
        if words[-1] not in known.endings:
            return f'no model "{name}" is shipped'
        words.pop()
    if not words:
        return f'no model "{name}" is shipped'
    forms = known.precisions.get(precision.lower())
    if forms is None:
        return f'"{precision}" is not a precision; known: {", ".join(known.precisions)}'
    model = load_model(key)
    form = known.exceptions.get(key, {}).get(precision.lower(), forms[model.experts is not None])
    return with_precision(model, form)


# ---------------------------------------------------------------- prediction


SOURCE = "InferenceX (SemiAnalysis) and laboratory runs, as the silicon sample of aiconfigurator-core 0.12 holds them"


@functools.cache
def shipped_runs() -> dict[int, Run]:
    """The shipped table of measured runs, by line."""
    path = Path(str(files("dualplan.data") / "measured" / "serving_runs.csv"))
    return {run.line: run for run in read_runs(path.read_text(encoding="utf-8"), path.name)}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A run that can be predicted: its closed loop, and what a GPU of each side does."""

    loop: Loop
    decode: Rank
    prefill: Rank


def case(run: Run) -> Case | str:
    """A run as the roofline takes it, or the reason why it cannot be predicted."""
    model, hardware = model_of(run.model, run.precision), hardware_of(run.system)
    if hardware is None:
        return f'no profile of a GPU "{run.system}" is shipped'
    if isinstance(model, str):
        return model
    if run.sequences is None:
        return "neither concurrency nor sequences_per_rank is given"
    for parallel in (run.decode, run.prefill):
        if parallel.ep > parallel.tp * parallel.dp:
            return f"experts over {parallel.ep} GPUs of an engine that has {parallel.tp * parallel.dp}"
        if parallel.ep > 1 and model.experts is None:
            return f"experts over {parallel.ep} GPUs, but {model.name} has none"
    prefill_ranks = run.prefill.dp * run.prefill_workers if run.mode == "disagg" else run.dp * run.decode_workers
    loop = Loop(
        apart=float(run.mode == "disagg"),
        prompt=run.prompt_tokens,
        generated=run.output_tokens,
        sequences=run.sequences,
        prefill_ranks=prefill_ranks,
        decode_ranks=run.dp * run.decode_workers,
    )
    sides = [_rank(run.model, run.precision, run.system, parallel) for parallel in (run.decode, run.prefill)]
    return Case(loop=loop, decode=sides[0], prefill=sides[1])


@functools.lru_cache(maxsize=10_000)
def _rank(name: str, precision: str, system: str, parallel: Parallel) -> Rank:
    """What a GPU does; the names are known ones."""
    model, hardware = model_of(name, precision), hardware_of(system)
    assert isinstance(model, Model) and hardware is not None
    return rank(model, hardware, parallel, serving_kv_format(model))


def contradiction(run: Run, known: Case) -> str:
    """Why the measured figures of a run cannot be of the run that it names; empty where they can."""
    hardware = hardware_of(run.system)
    assert hardware is not None
    for side in (known.decode, known.prefill):
        held = side.weights + side.experts
        if held > FITS * hardware.gpu.hbm_capacity:
            return f"{held / 1e9:.0f} GB of weights on a GPU of {hardware.gpu.hbm_capacity / 1e9:.0f} GB"
    if run.ttft_ms is None or run.tpot_ms is None:
        return ""
    life = (run.ttft_ms + run.output_tokens * run.tpot_ms) / 1e3
    if run.mode == "agg" and run.ttft_ms / 1e3 > NOT_SCORED_TTFT * life:
        return f"TTFT is {run.ttft_ms / 10 / life:.0f} % of a request's life: the engine takes fewer than the clients"
    loop, side = known.loop, known.prefill
    rate = loop.sequences * loop.decode_ranks / life / loop.prefill_ranks * loop.prompt
    share = rate * (side.dense_time + side.expert_time)
    if share > NOT_SCORED_PEAK:
        return f"its prompts need {share:.0%} of the peak"
    return ""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure. ``kind``: pre/node, pre/gpu, pre/eng (prompt tokens/s of a node, GPU, engine), ttft or tpot
    (ms); ``engine``: what a GPU does; ``batch``: prompts or sequences of an attention rank.
    """

    id: str
    kind: str
    measured: float
    hardware: Hardware
    engine: Rank
    prompt_tokens: float
    output_tokens: float
    batch: float
    source: str

    @property
    def ranks(self) -> float:
        """Attention ranks in what the figure is of."""
        gpus = {"pre/node": self.hardware.gpu.count, "pre/gpu": 1, "pre/eng": self.engine.tp * self.engine.dp}
        return float(gpus.get(self.kind, self.engine.tp) / self.engine.tp)


def published_points() -> tuple[Point, ...]:
    """The shipped table of published figures."""
    folder = Path(str(files("dualplan.data") / "measured"))
    points = []
    for row in csv.DictReader(io.StringIO((folder / "public_points.csv").read_text(encoding="utf-8"))):
        name, _, precision = row["model"].partition("-")
        word = names().points.get(row["id"]) or precision or names().points[name]
        points.append(
            Point(
                id=row["id"],
                kind=row["kind"],
                measured=float(row["measured"]),
                hardware=read_hardware(row["hw"]),
                engine=_rank(name, word, row["hw"], parse_parallel(row["par"])),
                prompt_tokens=float(row["isl"]),
                output_tokens=float(row["osl"]),
                batch=float(row["batch"]),
                source=row["source"],
            )
        )
    return tuple(points)


def predicted_point(point: Point, c: Constants) -> float:
    """What the roofline says of a published figure, in its unit: tokens/s, or ms."""
    if point.kind.startswith("pre/"):
        rate = prompt_rate(point.engine, c, point.prompt_tokens, point.batch, point.output_tokens)
        return float(point.ranks * rate)
    p, d = prefill_pass(point.engine, c), decode_step(point.engine, c)
    if point.kind == "tpot":
        return float(1e3 * step_time(d, point.batch, point.prompt_tokens + point.output_tokens / 2))
    return float(1e3 * unloaded_ttft(p, c, point.prompt_tokens, point.batch))


def classes_of(model: Model, hardware: Hardware, known: Case) -> tuple[str, ...]:
    """The classes of intervals that a prediction belongs to."""
    remote = max(known.decode.reduce_remote, known.decode.exchange_remote, known.prefill.exchange_remote) > 0
    return interval_classes(model.name, hardware.gpu.kind, hardware.name, remote=remote)


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What the roofline says of a run; None and a ``reason`` where it says nothing. Times in ms. ``classes``: of
    the intervals. ``not_scored``: why the measured figures are left out of the summary.
    """

    covered: bool
    reason: str = ""
    predicted_tpot_ms: float | None = None
    predicted_ttft_ms: float | None = None
    interval: tuple[float, float] | None = None
    ttft_interval: tuple[float, float] | None = None
    classes: tuple[str, ...] = ()
    not_scored: str = ""


def predict(run: Run) -> Prediction:
    """TPOT and TTFT of a run with their intervals."""
    known = case(run)
    if isinstance(known, str):
        return Prediction(covered=False, reason=known)
    data, model, hardware = roofline_data(), model_of(run.model, run.precision), hardware_of(run.system)
    assert isinstance(model, Model) and hardware is not None
    served: Served = serve(known.loop, known.decode, known.prefill, data.constants)
    tpot, ttft = 1e3 * served.tpot, 1e3 * served.ttft
    classes = classes_of(model, hardware, known)
    first, second = widest(data.tpot, classes), widest(data.ttft, classes)
    return Prediction(
        covered=True,
        predicted_tpot_ms=tpot,
        predicted_ttft_ms=ttft,
        interval=(tpot * first.low, tpot * first.high),
        ttft_interval=(ttft * second.low, ttft * second.high),
        classes=classes,
        not_scored=contradiction(run, known),
    )


def errors(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """Median and 90th percentile of exp|ln(predicted/measured)| - 1 (one row: that row's error twice)."""
    values = [exp(abs(log(predicted / measured))) - 1 for predicted, measured in pairs]
    if len(values) == 1:
        return values[0], values[0]
    return median(values), quantiles(values, n=10, method="inclusive")[8]


def runs_document(text: str, name: str) -> dict[str, Any]:
    """The table's runs with what is predicted of each, in the file's order, and a summary of the errors.

    Raises InputError where the table cannot be read.
    """
    runs = read_runs(text, name)
    predictions = [predict(run) for run in runs]
    scored = [(run, p) for run, p in zip(runs, predictions, strict=True) if p.covered and not p.not_scored]
    return {
        "runs": [_entry(run, prediction) for run, prediction in zip(runs, predictions, strict=True)],
        "summary": {
            "runs": len(runs),
            "covered": sum(p.covered for p in predictions),
            "scored": len(scored),
            "tpot": _score([_tpot(r, p) for r, p in scored]),
            "tpot_disaggregated": _score([_tpot(r, p) for r, p in scored if r.mode == "disagg"]),
            "ttft": _score([_ttft(r, p) for r, p in scored]),
            "ttft_few_clients": _score([_ttft(r, p) for r, p in scored if r.clients <= FEW_CLIENTS]),
        },
    }


def _tpot(run: Run, prediction: Prediction) -> tuple[Any, Any, Any]:
    return prediction.predicted_tpot_ms, run.tpot_ms, prediction.interval


def _ttft(run: Run, prediction: Prediction) -> tuple[Any, Any, Any]:
    return prediction.predicted_ttft_ms, run.ttft_ms, prediction.ttft_interval


def _entry(run: Run, prediction: Prediction) -> dict[str, Any]:
    return {
        "line": run.line,
        "mode": run.mode,
        "model": run.model,
        "system": run.system,
        "precision": run.precision,
        "measured_tpot_ms": run.tpot_ms,
        "measured_ttft_ms": run.ttft_ms,
        **msgspec.structs.asdict(prediction),
    }


def _score(figures: list[Any]) -> dict[str, Any] | None:
    """Errors of (predicted, measured, interval), None where nothing was measured."""
    known = [figure for figure in figures if figure[1] is not None]
    if not known:
        return None
    middle, tail = errors([(predicted, measured) for predicted, measured, _ in known])
    inside = sum(low <= measured <= high for _, measured, (low, high) in known)
    return {"runs": len(known), "median_error": middle, "p90_error": tail, "inside_interval": inside / len(known)}
