"""``dualplan calibrate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, check_place, emit, write_text
from dualplan.cli.scenario_flags import ScenarioFlags, scenario_command


@scenario_command
def calibrate(
    flags: ScenarioFlags,
    measurements: Annotated[
        Path, typer.Option("--measurements", metavar="FILE.csv", help="Your figures; columns kind, value, conditions.")
    ],
    only: Annotated[
        str | None, typer.Option("--fit", metavar="KEY,KEY", help="Values to fit, such as snic.efficiency; all else.")
    ] = None,
    profile_file: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.yaml", help="Write a profile with the fitted values."),
    ] = None,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
) -> None:
    """Fit the efficiencies of a profile to your own measurements, and say what they cannot tell.

    A line of the file is one figure. kind: jct, ttft, tpot (times), snic_gbps (a rate such as 43GB/s, with read_size),
    turns_per_s, tokens_per_s. Conditions: agents or arrival_rate for a run; batch for one decode step (tpot) or one
    prefill engine (tokens_per_s, with append and context); prefill_nodes, decode_nodes, mode, workload, context,
    append, generated where they differ from the scenario's.
    """
    from dualplan.errors import InputError, UsageError
    from dualplan.plan.calibrate import fit
    from dualplan.plan.measurements import parse_measurements
    from dualplan.report.calibrate import output, overlay
    from dualplan.spec.fitted_sets import parameter_sets
    from dualplan.spec.load import read_text
    from dualplan.units import listed

    if str(profile_file) == "-":
        raise UsageError("-o is a profile, the result goes to standard output: give a file name")
    check_place(profile_file, "-o")
    found = parse_measurements(read_text(measurements), str(measurements))
    scenario = flags.resolve()
    wanted = listed(only)
    if only is not None and not wanted:
        raise InputError("--fit", "names no value", "such as snic.efficiency, or leave it out for all")
    with _progress() as show:
        answer = fit(scenario, found, name=str(measurements), wanted=wanted, progress=show)
    extends = _profile_name(flags, scenario.hardware.name)
    name = profile_file.stem if profile_file is not None else f"{scenario.hardware.name}-calibrated"
    if name in {fitted.hardware for fitted in parameter_sets()}:
        name += "-calibrated"  # a fitted set of that name would be used in place of these values
    source = f"{len(found)} measurements of {measurements.name} (dualplan calibrate)"
    text = overlay(answer, name=name, extends=extends, source=source) if answer.changed else None
    if profile_file is not None and text is not None:
        write_text(profile_file, text)
    written = str(profile_file) if profile_file is not None and text is not None else None
    emit(output(answer, source, text, written), fmt, as_json)
    if profile_file is not None and text is None:
        from dualplan.errors import InfeasibleError

        raise InfeasibleError(f"{profile_file} was not written: the measurements tell none of the values")


def _profile_name(flags: ScenarioFlags, name: str) -> str:
    """The profile as the scenario names it; a file by its whole path, since the overlay may lie elsewhere."""
    from dualplan.spec.load import shipped_names
    from dualplan.spec.scenario import read_scenario

    given: str | None = flags.values.get("hardware")
    base = Path()
    if given is None and flags.file is not None:
        value = read_scenario(flags.file).items()["hardware"].value
        given, base = (value if isinstance(value, str) else None), flags.file.parent
    if given is None:
        return name
    if given in shipped_names("hardware_profiles", ".yaml"):
        return given
    return str((base / given).resolve())


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
