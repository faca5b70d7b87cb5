"""A calibration for people and machines, and as a profile that extends the one it started from."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dualplan import __version__
from dualplan.plan.calibrate import Calibration, Fitted, Parameter
from dualplan.report.blocks import GAP, Block, Drawing, Paragraph
from dualplan.report.output import Output
from dualplan.report.records import pick_all
from dualplan.spec.parallel import Side
from dualplan.units import show, significant

ASSUMPTIONS = [
    "model: the roofline of the profile and its storage NICs, not a fitted parameter set",
    "intervals: 95 %, Student's t, linear at the solution, measurements uncertain by at least 1 %",
    "a measurement of snic_gbps is of one read at a time",
]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile with fitted values: the ``side`` it is of where the sides differ, its text, the file it went to."""

    side: Side | None
    text: str
    file: str | None


def output(answer: Calibration, source: str, profiles: Sequence[Profile]) -> Output:
    """A calibration as an Output, with the profiles that hold its values."""
    rows = pick_all(answer.parameters, PARAMETER)
    data: dict[str, Any] = {
        "schema": "dualplan/calibrate/1",
        "version": __version__,
        "hardware": answer.scenario.hardware.name,
        "decode_hardware": answer.scenario.decode_hardware.name,
        "parameters": rows,
        "measurements": _measurement_rows(answer),
        "rms_error": answer.rms_error,
        "degrees_of_freedom": answer.degrees_of_freedom,
        "singular_values": list(answer.singular_values),
        "profile": next((profile.text for profile in profiles if profile.side != "decode"), None),
        "profile_file": next((profile.file for profile in profiles if profile.side != "decode"), None),
        "decode_profile": next((profile.text for profile in profiles if profile.side == "decode"), None),
        "decode_profile_file": next((profile.file for profile in profiles if profile.side == "decode"), None),
        "assumptions": ASSUMPTIONS,
        "sources": [source],
        "inputs_sha256": _hash(answer),
    }
    return Output(data=data, rows=rows, view=lambda: view(answer, profiles))


def overlay(answer: Calibration, *, name: str, extends: str, source: str, side: Side | None = None) -> str:
    """A profile in YAML that lays the fitted values over the one they started from, each with where it comes from.
    ``side``: whose profile, where those of the two sides differ.

    The text is JSON where a value is text, which is YAML too, so that no name can break out of it.
    """
    sections: dict[str, list[str]] = {}
    sources: list[str] = []
    for found in answer.changed:
        parameter = found.parameter
        if parameter.side != side:
            continue
        section, field = parameter.key.split(".")
        sections.setdefault(section, []).append(f"{field}: {_yaml_value(parameter, found.value)}")
        sources.append(f"  {parameter.key}: {json.dumps(_provenance(found, source))}")
    hardware = answer.scenario.decode_hardware if side == "decode" else answer.scenario.hardware
    kinds = sorted({one.kind for one in answer.measurements})
    lines = [
        f"# dualplan {__version__} calibrate: {len(answer.measurements)} measurements ({', '.join(kinds)}),",
        f"# off by {_percent(answer.rms_error)} (root mean square). Values not here are those of the profile.",
        f"extends: {json.dumps(extends)}",
        f"name: {json.dumps(name)}",
        f"title: {json.dumps(hardware.title + ', calibrated')}",
        *(f"{section}: {{{', '.join(values)}}}" for section, values in sections.items()),
        *(["sources:", *sources] if sources else []),
    ]
    return "\n".join(lines) + "\n"


def _yaml_value(parameter: Parameter, value: float) -> str:
    return f"{value:.6g}" if parameter.unit == "1" else f"{value * 1e3:.6g}ms"


def _provenance(found: Fitted, source: str) -> str:
    told = "at the bound of the fit" if found.interval is None else f"95 % {_interval(found)}"
    if found.status == "fitted" and found.interval is None:
        told = "as many values as measurements, no interval"
    return f"fitted to {source}: {told}; was {_value(found.parameter, found.prior)}"


PARAMETER = "name=parameter.name unit=parameter.unit value interval prior status not_told_apart_from=with_"


def _measurement_rows(answer: Calibration) -> list[dict[str, Any]]:
    rows = []
    for one, predicted, before in zip(answer.measurements, answer.predicted, answer.before, strict=True):
        given = {key: value for key, value in msgspec.to_builtins(one).items() if value is not None}
        file, line, kind, value = (given.pop(key, None) for key in ("file", "line", "kind", "value"))
        rows.append(
            {
                "file": file,
                "line": line,
                "kind": kind,
                "measured": value,
                "predicted": predicted,
                "relative_error": predicted / value - 1,
                "relative_error_before": before / value - 1,
                "conditions": given,
            }
        )
    return rows


def _hash(answer: Calibration) -> str:
    scenario = msgspec.structs.replace(answer.scenario, origins={})
    text = msgspec.json.encode([scenario, answer.measurements], order="deterministic")
    return hashlib.sha256(text).hexdigest()


# ---------------------------------------------------------------- people


def _value(parameter: Parameter, value: float) -> str:
    return show(value, parameter.unit) if parameter.unit == "s" else significant(value)


def _interval(found: Fitted) -> str:
    assert found.interval is not None
    low, high = (_value(found.parameter, end) for end in found.interval)
    return f"{low} .. {high}"


def view(answer: Calibration, profiles: Sequence[Profile]) -> Iterator[Block]:
    """What was fitted and how well, each value with its interval, advice, and the measurements."""
    changed, count = answer.changed, len(answer.measurements)
    if changed:
        kinds = dict.fromkeys((answer.scenario.hardware.name, answer.scenario.decode_hardware.name))
        names = f"{len(changed)} of {len(answer.parameters)} values of {' and '.join(kinds)} fitted"
        yield Paragraph(f"{names} to {count} measurements", "title")
    else:
        yield Paragraph(f"NOTHING FITTED  {count} measurements tell none of the values", "warning", indent=0)
    worst = max(abs(p / one.value - 1) for one, p in zip(answer.measurements, answer.predicted, strict=True))
    before = max(abs(p / one.value - 1) for one, p in zip(answer.measurements, answer.before, strict=True))
    yield Paragraph(
        f"Off by {_percent(answer.rms_error)} (root mean square), at most {_percent(worst)}; "
        f"with the profile as it is at most {_percent(before)}",
        indent=0,
        hanging=0,
    )
    width = max(30, *(len(found.parameter.name) + 1 for found in answer.parameters))
    yield from (GAP, Paragraph(f"{'':{width}}{'was':>9}{'is':>9}  95 % interval", "lead"))
    yield Drawing(lambda _: [_parameter_line(found, found in changed, width) for found in answer.parameters])
    if advice := [line for found in answer.parameters if (line := _advice(found))]:
        yield GAP
        for line in advice:
            yield Paragraph(line, indent=0, hanging=0)
    yield from (
        GAP,
        Paragraph(f"{'line':>4}  {'kind':14}{'measured':>12}{'predicted':>12}{'error':>10}{'before':>11}", "lead"),
    )
    yield Drawing(lambda width: list(_measurement_lines(answer)))
    yield GAP
    for profile in profiles:
        if profile.file is not None:
            flag = "--decode-hardware" if profile.side == "decode" else "--hardware"
            yield Drawing(lambda width, file=profile.file: [f"Written to {file}"], indent=0)  # type: ignore[misc]
            yield Paragraph(f"Give it as {flag} wherever a command takes a profile.", indent=0)
    if changed and not any(profile.file for profile in profiles):
        how = "-o my-profile.yaml writes a profile with these values, for --hardware my-profile.yaml."
        yield Paragraph(how, indent=0, hanging=0)


def _parameter_line(found: Fitted, moved: bool, width: int) -> str:
    parameter = found.parameter
    was, now = _value(parameter, found.prior), _value(parameter, found.value) if moved else "-"
    interval = _interval(found) if found.interval else found.status if found.status != "fitted" else "unknown"
    return f"{parameter.name:{width}}{was:>9}{now:>9}  {interval}"


def _percent(share: float) -> str:
    return "less than 0.01 %" if share < 1e-4 else f"{100 * share:.2g} %"


def _advice(found: Fitted) -> str:
    """Why a value stayed as it was, and what would tell it."""
    name, prior = found.parameter.name, _value(found.parameter, found.prior)
    if found.status == "not told apart":
        others = " and ".join(found.with_)
        return f"{name} and {others} cannot be told apart: {name} stays {prior}. Measure {found.parameter.tells}."
    if found.status == "at its bound":
        more = found.value > math.sqrt(found.parameter.low * found.parameter.high)
        return f"{name} is at its bound: these measurements ask for {'more' if more else 'less'} than it can be."
    return ""


def _measurement_lines(answer: Calibration) -> Iterator[str]:
    for one, predicted, before in zip(answer.measurements, answer.predicted, answer.before, strict=True):
        unit = {"snic_gbps": "B/s", "jct": "s", "ttft": "s", "tpot": "s"}.get(one.kind, "1")
        cells = f"{show(one.value, unit):>12}{show(predicted, unit):>12}"
        errors = f"{100 * (predicted / one.value - 1):+9.1f} %{100 * (before / one.value - 1):+9.1f} %"
        yield f"{one.line:>4}  {one.kind:14}{cells}{errors}"
