"""``dualplan calibrate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, check_place, emit, note, write_text
from dualplan.cli.scenario_flags import ScenarioFlags, scenario_command

if TYPE_CHECKING:
    from dualplan.plan.calibrate import Calibration
    from dualplan.report.calibrate import Profile
    from dualplan.spec.parallel import Side

MOST_BYTES = 200_000_000
"""Largest result file: those with the times of each token are long."""


@scenario_command
def calibrate(
    flags: ScenarioFlags,
    measurements: Annotated[
        list[Path],
        typer.Option("--measurements", metavar="FILE", help="Your figures, or a benchmark's result file; repeatable."),
    ],
    only: Annotated[
        str | None, typer.Option("--fit", metavar="KEY,KEY", help="Values to fit, such as snic.efficiency; all else.")
    ] = None,
    aggregated: Annotated[
        bool,
        typer.Option("--aggregated", help="Prefill ran on the engines that decode, where a file does not say."),
    ] = False,
    profile_file: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.yaml", help="Write a profile with the fitted values."),
    ] = None,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
) -> None:
    """Fit the efficiencies of a profile to your own measurements, and say what they cannot tell.

    FILE is what vllm bench serve, sglang.bench_serving (JSON, JSONL), AIPerf or GenAI-Perf wrote, serving runs as
    InferenceX publishes them (CSV), or a CSV of your own, a line a figure. kind: jct, ttft, tpot (times), snic_gbps (a
    rate such as 43GB/s, with read_size), turns_per_s, tokens_per_s.

    Conditions: agents or arrival_rate for a run. Without either one engine: batch, the sequences of an attention rank,
    or concurrency, the requests of all ranks, for a decode step (tpot); batch and append for a prefill engine
    (tokens_per_s); batch 1 for the TTFT of one request; tp, dp, ep where they are not the scenario's; mode agg where
    prefill runs on the engine that decodes, else disagg. context is 0 where append is given. Elsewhere: prefill_nodes,
    decode_nodes, mode (how KV is read), workload, context, append, generated where they differ from the scenario's.
    """
    from dualplan.errors import InfeasibleError, InputError, UsageError
    from dualplan.plan.calibrate import fit
    from dualplan.plan.measurement_files import read_measurements
    from dualplan.report.calibrate import output
    from dualplan.spec.load import read_text
    from dualplan.units import listed

    if str(profile_file) == "-":
        raise UsageError("-o is a profile, the result goes to standard output: give a file name")
    check_place(profile_file, "-o")
    files = [
        read_measurements(read_text(path, limit=MOST_BYTES), str(path), aggregated=aggregated or None)
        for path in measurements
    ]
    for path, file in zip(measurements, files, strict=True):
        for text in file.notes:
            note(f"{path}: {text}")
    found = [one for file in files for one in file.measurements]
    scenario = flags.resolve()
    wanted = listed(only)
    if only is not None and not wanted:
        raise InputError("--fit", "names no value", "such as snic.efficiency, or leave it out for all")
    with _progress() as show:
        answer = fit(scenario, found, wanted=wanted, progress=show)
    source = f"{len(found)} measurements of {', '.join(path.name for path in measurements)} (dualplan calibrate)"
    profiles = _profiles(answer, flags, source, profile_file)
    emit(output(answer, source, profiles), fmt, as_json)
    if profile_file is not None and not profiles:
        raise InfeasibleError(f"{profile_file} was not written: the measurements tell none of the values")


def _profiles(answer: Calibration, flags: ScenarioFlags, source: str, file: Path | None) -> list[Profile]:
    """The profiles with new values, written to ``file``; where the sides differ, to one a side named after it."""
    from dualplan.report.calibrate import Profile, overlay
    from dualplan.spec.fitted_sets import parameter_sets

    profiles = []
    for side in sorted({found.parameter.side for found in answer.changed}, key=lambda side: side == "decode"):
        usual = answer.scenario.decode_hardware.name if side == "decode" else answer.scenario.hardware.name
        own = file if file is None or side is None else file.with_name(f"{file.stem}-{side}{file.suffix}")
        name = f"{usual}-calibrated" if own is None else own.stem
        if name in {fitted.hardware for fitted in parameter_sets()}:
            name += "-calibrated"  # a fitted set of that name would be used in place of these values
        extends = _profile_name(flags, side, usual)
        text = overlay(answer, name=name, extends=extends, source=source, side=side)
        if own is not None:
            write_text(own, text)
        profiles.append(Profile(side=side, text=text, file=None if own is None else str(own)))
    return profiles


def _profile_name(flags: ScenarioFlags, side: Side | None, name: str) -> str:
    """The profile of a side as the scenario names it; a file by its whole path, since the overlay may lie elsewhere."""
    from dualplan.spec.load import shipped_names
    from dualplan.spec.scenario import read_scenario

    for key in ("decode_hardware", "hardware") if side == "decode" else ("hardware",):
        given: str | None = flags.values.get(key)
        base = Path()
        if given is None and flags.file is not None:
            node = read_scenario(flags.file).items().get(key)
            value = None if node is None else node.value
            given, base = (value if isinstance(value, str) else None), flags.file.parent
        if given is not None:
            return given if given in shipped_names("hardware_profiles", ".yaml") else str((base / given).resolve())
    return name


@contextmanager
def _progress() -> Iterator[Callable[[], None]]:
    """Runs of the simulation so far."""
    from itertools import count

    from dualplan.cli.progress import progress_line

    runs = count(1)
    with progress_line(quiet=0.0) as show:

        def counted() -> None:
            number = next(runs)
            show(lambda _: f"{number} runs compared")

        yield counted
