"""A user's measurements: a CSV file, one figure a line, with the conditions it was measured under."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Literal, get_args

import msgspec

from dualplan.errors import InputError, did_you_mean, problem, refuse
from dualplan.spec.choices import MODES, Mode
from dualplan.units import number, whole

Quantity = Literal["jct", "ttft", "tpot", "snic_gbps", "tokens_per_s", "turns_per_s"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)

DIMENSIONS: dict[Quantity, str] = {"jct": "s", "ttft": "s", "tpot": "s", "snic_gbps": "B/s"}
"""Quantities that are written with a unit, and its dimension; the others are plain numbers per second."""

COUNTS = ("agents", "prefill_nodes", "decode_nodes", "batch", "concurrency", "tp", "dp", "ep")
NUMBERS = ("arrival_rate", "context", "append", "generated")
SERVING = ("agg", "disagg")
"""Values of ``mode`` beside the read modes: prefill and decode on the same engines, or apart."""

COLUMNS = ("kind", "value", *COUNTS, *NUMBERS, "mode", "workload", "read_size")
MOST_ROWS = 1000


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. ``value`` in s, B/s (of one storage NIC) or 1/s. Conditions that were not given are None; those of
    the scenario apply then. Lengths in tokens, ``read_size`` in B, ``arrival_rate`` in agents/s.

    ``ttft``, ``tpot``, ``turns_per_s`` and ``tokens_per_s`` (output) are means of a run with ``agents`` or
    ``arrival_rate``. Without either they are of one engine: ``tpot`` of a decode step of ``batch`` sequences of an
    attention rank (or of ``concurrency`` requests over all ranks), ``tokens_per_s`` what a prefill engine computes in
    passes of ``batch`` prompts, ``ttft`` of one request alone. ``aggregated``: prefill runs on the engine that decodes.
    ``tp``, ``dp``, ``ep``: the engine's degrees of parallelism.
    """

    file: str | None = None
    line: int
    kind: Quantity
    value: float
    agents: int | None = None
    arrival_rate: float | None = None
    prefill_nodes: int | None = None
    decode_nodes: int | None = None
    mode: Mode | None = None
    aggregated: bool | None = None
    workload: str | None = None
    context: float | None = None
    append: float | None = None
    generated: float | None = None
    batch: float | None = None
    concurrency: float | None = None
    tp: int | None = None
    dp: int | None = None
    ep: int | None = None
    read_size: float | None = None

    @property
    def simulated(self) -> bool:
        """Whether it takes a run of the simulation."""
        return self.agents is not None or self.arrival_rate is not None


def filled_rows(reader: Iterable[list[str]]) -> Iterator[list[str]]:
    """Cells of the rows of a table without space around them; empty rows and those that start with # are skipped."""
    for row in reader:
        cells = [cell.strip() for cell in row]
        if any(cells) and not cells[0].startswith("#"):
            yield cells


def parse_measurements(text: str, name: str) -> tuple[Measurement, ...]:
    """CSV text with a header line; empty lines and lines that start with # are skipped. Raises InputError with all
    problems.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    found: list[Measurement] = []
    problems: list[str] = []
    try:
        for cells in filled_rows(reader):
            where = f"{name}:{reader.line_num}"
            if header is None:
                header = _header(cells, where)
                continue
            if len(cells) > len(header):
                problems.append(problem(where, f"has {len(cells)} cells, the header {len(header)}"))
                continue
            given = {key: cell for key, cell in zip(header, cells, strict=False) if cell}
            row = _row(given, reader.line_num, where, problems)
            if row is not None:
                found.append(row)
            if len(found) > MOST_ROWS:
                raise InputError(where, f"more than {MOST_ROWS:,} measurements")
    except csv.Error as error:
        problems.append(problem(f"{name}:{reader.line_num}", f"is not CSV: {error}"))
    if header is None and not problems:
        problems.append(problem(name, "holds no header line", "columns: " + ", ".join(COLUMNS)))
    refuse(problems)
    if not found:
        raise InputError(name, "holds no measurement", "one line each: kind, value and conditions")
    return tuple(found)


def _header(cells: list[str], where: str) -> list[str]:
    if len(cells) > 2 * len(COLUMNS):
        raise InputError(where, f"has {len(cells):,} columns", "known: " + ", ".join(COLUMNS))
    problems = []
    for cell in cells:
        if cell not in COLUMNS:
            hint = did_you_mean(cell, COLUMNS) or "known: " + ", ".join(COLUMNS)
            problems.append(problem(where, f'"{cell[:40]}" is not a column', hint))
    problems += [
        problem(where, f"{name}: the column is there twice") for name in {c for c in cells if cells.count(c) > 1}
    ]
    problems += [problem(where, f"{name}: the column is missing") for name in ("kind", "value") if name not in cells]
    refuse(problems)
    return cells


def _row(given: Mapping[str, str], line: int, where: str, problems: list[str]) -> Measurement | None:
    """One line; problems are appended."""
    before = len(problems)

    def read(key: str, convert: Callable[[str, str], float]) -> float | None:
        try:
            return convert(given[key], f"{where}: {key}") if key in given else None
        except InputError as error:
            problems.extend(error.problems)
            return None

    kind = given.get("kind", "")
    if kind not in QUANTITIES:
        hint = did_you_mean(kind, QUANTITIES) or "known: " + ", ".join(QUANTITIES)
        problems.append(problem(f"{where}: kind", f'"{kind[:40]}" is not known' if kind else "missing", hint))
        return None
    values: dict[str, object] = {"line": line, "kind": kind}
    dimension = DIMENSIONS.get(kind)
    if "value" not in given:
        problems.append(problem(f"{where}: value", "missing"))
    for key in COUNTS:
        values[key] = read(key, whole)
    for key, unit in {"value": dimension or "1", **dict.fromkeys(NUMBERS, "1"), "read_size": "B"}.items():
        above, least = (None, 0.0) if key == "context" else (0.0, None)
        values[key] = read(key, partial(number, what="", dimension=unit, above=above, least=least))
    mode, values["workload"] = given.get("mode"), given.get("workload")
    values["mode"] = None if mode in SERVING else mode
    values["aggregated"] = mode == "agg" if mode in SERVING else None
    if mode is not None and mode not in (*MODES, *SERVING):
        hint = did_you_mean(mode, (*MODES, *SERVING)) or "known: " + ", ".join((*SERVING, *MODES))
        problems.append(problem(f"{where}: mode", f'"{mode[:40]}" is not a mode', hint))
    _check_conditions(kind, given, where, problems)
    return None if len(problems) > before else Measurement(**values)  # type: ignore[arg-type]


def _check_conditions(kind: str, given: Mapping[str, str], where: str, problems: list[str]) -> None:
    """What a quantity needs to be computed."""
    run = [key for key in ("agents", "arrival_rate") if key in given]
    size = [key for key in ("batch", "concurrency") if key in given]
    if len(run) > 1:
        problems.append(problem(where, "agents start together or arrive at a rate", "give one of the two"))
    if len(size) > 1:
        problems.append(
            problem(where, "batch is of an attention rank, concurrency of all ranks", "give one of the two")
        )
    if run and given.get("mode") == "agg":
        problems.append(
            problem(f"{where}: mode", "runs of aggregated engines are not simulated", "give tpot and batch")
        )
    if kind == "snic_gbps":
        if "read_size" not in given:
            problems.append(problem(f"{where}: read_size", "missing: the bytes of one read", "such as 1.5GB"))
    elif kind == "jct":
        if "agents" not in given:
            problems.append(problem(f"{where}: agents", "missing: how many start together"))
    elif run or (kind == "tpot" and size):
        pass
    elif kind == "ttft" and size:
        if given[size[0]] != "1":
            what = f"a TTFT with {size[0]} {given[size[0]][:12]} holds a queue"
            problems.append(problem(where, what, f"give {size[0]} 1, one request alone, or agents or arrival_rate"))
    elif kind == "tokens_per_s" and "batch" in given:
        if "append" not in given:
            problems.append(problem(f"{where}: append", "missing: new tokens of each request of the batch"))
    else:
        other = {
            "tpot": ", or batch, or concurrency",
            "ttft": ", or batch 1",
            "tokens_per_s": ", or batch, append and context",
        }.get(kind, "")
        problems.append(problem(where, f"{kind} needs agents or arrival_rate{other}"))
