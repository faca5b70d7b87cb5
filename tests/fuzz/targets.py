"""Every reader of text that dualplan has, as a function of bytes, and what it may raise.

A target does with the bytes what a command does: it reads them, computes with what was accepted and renders the
answer. So a reader that lets a value through which breaks a later step is found here too.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dualplan.errors import ConvergenceError, DualplanError, InfeasibleError, InputError

if TYPE_CHECKING:
    from dualplan.spec.scenario import Scenario


class Target(NamedTuple):
    """``run`` takes any bytes. ``expected``: what it may raise (and subclasses); anything else is a fault."""

    run: Callable[[bytes], None]
    expected: tuple[type[DualplanError], ...] = (InputError,)


def text_of(data: bytes) -> str:
    """Bytes as the reader of files hands them on: without a byte-order mark, and never with NUL or broken UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("fuzz", "is not UTF-8 text") from None
    if "\0" in text:
        raise InputError("fuzz", "is a binary file, text is needed")
    return text


def rendered(output: object) -> None:
    """An output in every format."""
    from dualplan.cli.options import console
    from dualplan.report.output import Output, render

    assert isinstance(output, Output)
    for form in ("json", "jsonl", "csv", "md"):
        render(output, form)  # type: ignore[arg-type]
    output.show(console(io.StringIO(), for_file=True))


# ---------------------------------------------------------------- YAML


def yaml_tree(data: bytes) -> None:
    from dualplan.spec.load import leaves, parse_yaml

    for path, leaf in leaves(parse_yaml(text_of(data), "fuzz.yaml")):
        assert isinstance(path, str) and leaf.place.startswith("fuzz.yaml:")


def scenario(data: bytes) -> None:
    from dualplan.report.feasible import output
    from dualplan.report.scenario import output as resolved
    from dualplan.spec.load import parse_yaml
    from dualplan.spec.scenario import resolve
    from dualplan.steady.answer import evaluate

    found = resolve(parse_yaml(text_of(data), "fuzz.yaml"))
    rendered(resolved(found))
    rendered(output(evaluate(found)))


def sets(data: bytes) -> None:
    """Lines of ``--set`` over a complete scenario."""
    from dualplan.spec.load import Node
    from dualplan.spec.scenario import resolve, set_flags
    from dualplan.steady.answer import evaluate

    base = {"hardware": "dualpath-hopper", "model": "qwen2.5-32b", "workload": "dualpath-32k"}
    tree = Node({key: Node(value, "fuzz", origin="flag") for key, value in base.items()}, "fuzz", origin="flag")
    evaluate(resolve(tree, sets=set_flags(text_of(data).splitlines())))


def hardware(data: bytes) -> None:
    from dualplan.spec.hardware import decode_hardware, resolve, unsourced
    from dualplan.spec.load import parse_yaml

    unsourced(decode_hardware(resolve(parse_yaml(text_of(data), "fuzz.yaml"), where="fuzz")))


def workload(data: bytes) -> None:
    from dualplan.spec.load import decode, parse_yaml
    from dualplan.spec.workload import Workload, mean_turns, per_turn_means, turn_mix
    from dualplan.trace.fit import workload_yaml

    found = decode(parse_yaml(text_of(data), "fuzz.yaml"), Workload)
    mean_turns(found)
    per_turn_means(found)
    turn_mix(found)
    again = decode(parse_yaml(workload_yaml(found), "again.yaml"), Workload)
    assert per_turn_means(again) == per_turn_means(found)


# ---------------------------------------------------------------- JSON


def model(data: bytes) -> None:
    from dualplan.report.model import document
    from dualplan.report.output import Output
    from dualplan.spec.model import read_model

    found = read_model(text_of(data), where="config.json", name="fuzz")
    shown = document(found, "auto", 65536, 429)
    rendered(Output(data=shown, rows=shown["layer_kinds"], text=lambda console: None))


def flowcase(data: bytes) -> None:
    from dualplan.flow.flowcase import parse_flowcase
    from dualplan.flow.fluid import run_fluid
    from dualplan.report.flow import Answer, output, relative_error

    text = text_of(data)
    case = parse_flowcase(text, "fuzz.json")
    if len(case.problem.flows) > 200 or len(case.problem.links) > 200:
        return  # correct, and slow enough to starve the search
    result = run_fluid(case.problem, compiled=False)
    expected = case.expected_finish_s
    error = None if expected is None else relative_error(result.finish_s, expected)
    rendered(output(Answer(name="fuzz", case=case, result=result, max_relative_error=error, inputs_sha256="")))


# ---------------------------------------------------------------- traces


def trace(data: bytes) -> None:
    from dualplan.trace.record import ReadOptions

    try:
        _trace(data, ReadOptions(chars_per_token=4.0))
    except InputError:
        _trace(data, ReadOptions(chars_per_token=4.0, lenient=True))


def _trace(data: bytes, options: object) -> None:
    from dualplan.report.output import Output
    from dualplan.spec.workload import per_turn_means
    from dualplan.trace.fit import fit_workload, workload_yaml
    from dualplan.trace.read import read_trace
    from dualplan.trace.stats import summarise
    from dualplan.trace.view import as_document
    from dualplan.trace.workload import workload_of_trace

    found = read_trace("-", options, stdin=io.BytesIO(data))  # type: ignore[arg-type]
    shown = as_document(found, summarise(found), "fuzz")
    rendered(Output(data=shown, rows=[shown], text=lambda console: None))
    # an accepted trace may still be no workload, but only with a reason
    with contextlib.suppress(InputError):
        per_turn_means(workload_of_trace(found, "fuzz"))
    with contextlib.suppress(InputError):
        workload_yaml(fit_workload(found, "fuzz"))


def converted(data: bytes) -> None:
    """A trace in every format that can be written, read again."""
    from dualplan.trace.convert import TARGETS as FORMATS
    from dualplan.trace.convert import check, lines
    from dualplan.trace.read import read_trace
    from dualplan.trace.record import ReadOptions

    found = read_trace("-", ReadOptions(chars_per_token=4.0, lenient=True), stdin=io.BytesIO(data))
    for form in FORMATS:
        try:
            check(found, form)
        except InputError:
            continue
        text = b"".join(lines(found, form.name))
        again = read_trace("-", ReadOptions(trace_format=form.name), stdin=io.BytesIO(text))
        assert again.requests == found.requests


# ---------------------------------------------------------------- machines and fabrics


def topology(data: bytes) -> None:
    import re

    from dualplan.report.hardware_import import output
    from dualplan.spec.load import parse_yaml
    from dualplan.spec.topology import read_topology
    from dualplan.spec.topology_profile import profile

    # several captures of one machine stand one after the other behind a line of equals signs
    texts = re.split(r"^={8,}$", text_of(data), flags=re.MULTILINE)
    found = read_topology([(f"capture{number}.txt", text) for number, text in enumerate(texts)])
    rendered(output(found, ""))
    parse_yaml(profile(found, "fuzz").text, "profile.yaml")


def qos(data: bytes) -> None:
    from dualplan.flow.arbitration import exact_shares, guaranteed
    from dualplan.flow.arbitration_settings import findings, settings_for_floor
    from dualplan.report.qos import Answer, output
    from dualplan.spec.qos import parse_qos

    found = parse_qos(text_of(data), "fuzz.conf")
    setting = found.setting
    busy = set(setting.lanes())
    shares = exact_shares(setting, backlogged=busy)
    assert sum(shares.values()) <= 1
    settings_for_floor(setting, 2, (guaranteed(setting, 2) + 1) / 2)
    answer = Answer(
        name="fuzz",
        file=found,
        mtu=4096,
        packet_bytes={},
        backlogged=tuple(sorted(busy)),
        loads={},
        shares=shares,
        kv=2,
        guaranteed=guaranteed(setting, 2),
        findings=tuple(findings(found, 2)),
        floor=None,
        inputs_sha256="",
    )
    rendered(output(answer))


# ---------------------------------------------------------------- units


def units(data: bytes) -> None:
    from dualplan.units import UNITS, parse, show

    for dimension in sorted({dimension for dimension, _ in UNITS.values()}):
        with contextlib.suppress(InputError):
            show(parse(text_of(data), dimension, "fuzz"), dimension)


@functools.cache
def _paper() -> Scenario:
    """A complete scenario to change."""
    from dualplan.spec.load import Node
    from dualplan.spec.scenario import resolve

    base = {"hardware": "dualpath-hopper", "model": "qwen2.5-32b", "workload": "dualpath-32k"}
    return resolve(Node({key: Node(value, "fuzz", origin="flag") for key, value in base.items()}, "", origin="flag"))


def vary(data: bytes) -> None:
    """Lines of ``--vary`` of a sweep, each changing a scenario to its first and last value."""
    from dualplan.spec.change import changed
    from dualplan.spec.load import flag_node
    from dualplan.spec.vary import parse_axis, splits

    found = _paper()
    for line in text_of(data).splitlines():
        axis = parse_axis(line)
        if axis.key == "pd":
            splits(axis, 24, line.partition("=")[2])
            continue
        for value in {axis.values[0], axis.values[-1]}:
            changed(found, [(tuple(axis.key.split(".")), flag_node(value, "--vary"))])


def uncertain(data: bytes) -> None:
    """Lines ``key: text`` of uncertain values, with their quantiles."""
    import math

    from dualplan.spec.uncertain import parse_uncertain

    for line in text_of(data).splitlines():
        key, _, text = line.partition(":")
        value = parse_uncertain(key.strip(), text, "fuzz")
        for u in (0.0, 1e-9, 0.5, 1.0):
            assert value.low <= value.quantile(u) <= value.high and math.isfinite(value.quantile(u))


def measurements(data: bytes) -> None:
    import msgspec

    from dualplan.plan.calibrate import fit
    from dualplan.plan.measurement_files import read_measurements

    found = read_measurements(text_of(data), "fuzz.csv").measurements
    for one in found:
        assert 0 < one.value < float("inf") and one.file == "fuzz.csv"
    paper = _paper()
    nodes = msgspec.structs.replace(paper.settings, prefill_nodes=1, decode_nodes=1)
    engines = [one for one in found if not one.simulated][:2]
    if engines:
        fit(msgspec.structs.replace(paper, settings=nodes), engines, wanted=["snic.efficiency"])


TARGETS: dict[str, Target] = {
    "yaml": Target(yaml_tree),
    "scenario": Target(scenario, (InputError, InfeasibleError)),
    "sets": Target(sets, (InputError, InfeasibleError)),
    "hardware": Target(hardware),
    "workload": Target(workload),
    "model": Target(model),
    "flowcase": Target(flowcase, (InputError, ConvergenceError)),
    "trace": Target(trace),
    "convert": Target(converted),
    "topology": Target(topology),
    "qos": Target(qos),
    "units": Target(units),
    "vary": Target(vary),
    "uncertain": Target(uncertain),
    "measurements": Target(measurements, (InputError, ConvergenceError)),
}
