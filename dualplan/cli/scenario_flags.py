"""The flags that describe a scenario, shared by every command that takes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import note, spliced

if TYPE_CHECKING:
    from dualplan.messages import Message
    from dualplan.spec.load import Node
    from dualplan.spec.scenario import Scenario
    from dualplan.spec.workload import Workload

KEY_OF_FLAG = {
    "hardware": "hardware",
    "decode_hardware": "decode_hardware",
    "model": "model",
    "workload": "workload",
    "prefill": "prefill_nodes",
    "decode": "decode_nodes",
    "mode": "mode",
    "staging": "staging",
    "copy": "copy",
    "persist": "persist",
    "policy": "policy",
    "balance": "balance",
    "kv_format": "kv_format",
    "prefill_parallel": "prefill.parallel",
    "decode_parallel": "decode.parallel",
    "arrival_rate": "demand.arrival_rate",
    "turn_rate": "demand.turn_rate",
    "slo_ttft": "slo.ttft",
    "slo_tpot": "slo.tpot",
}
"""Flag name -> key of the scenario, in the order of the help text."""


def _template(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="SCENARIO", help="Scenario file (see: dualplan init).", show_default=False),
    ] = None,
    hardware: Annotated[str | None, typer.Option(help="Node of both sides: a shipped profile or a file.")] = None,
    decode_hardware: Annotated[str | None, typer.Option(help="Node of the decode side, if it differs.")] = None,
    model: Annotated[str | None, typer.Option(help="Shipped model, or a config.json or its folder.")] = None,
    workload: Annotated[str | None, typer.Option(help="Shipped workload, a YAML file, or a trace.")] = None,
    prefill: Annotated[str | None, typer.Option(metavar="N", help="Prefill nodes.")] = None,
    decode: Annotated[str | None, typer.Option(metavar="N", help="Decode nodes.")] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="basic, layerwise, dual-path, split-read, dram-pool or oracle.")
    ] = None,
    staging: Annotated[str | None, typer.Option(metavar="WHERE", help="host, gpudirect or gds.")] = None,
    copy: Annotated[str | None, typer.Option(metavar="HOW", help="Host-GPU copies by cnic or engine.")] = None,
    persist: Annotated[
        str | None, typer.Option(metavar="SIDE", help="Who persists the miss KV: decode or prefill.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Read side: shortest-queue or round-robin.")
    ] = None,
    balance: Annotated[
        str | None, typer.Option(metavar="X", help="Largest over mean storage NIC load, instead of the policy's.")
    ] = None,
    collective_load: Annotated[
        str | None, typer.Option(metavar="U", help="Share of CNICs that collectives use: 0.5, or prefill=.3,decode=.2.")
    ] = None,
    kv_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="KV-cache format, see: dualplan model show.")
    ] = None,
    prefill_parallel: Annotated[str | None, typer.Option(metavar="EP,TP,DP", help="Such as ep=16,tp=1,dp=16.")] = None,
    decode_parallel: Annotated[str | None, typer.Option(metavar="EP,TP,DP", help="Such as ep=32,tp=1,dp=32.")] = None,
    arrival_rate: Annotated[str | None, typer.Option(metavar="R", help="Demand in agents per second.")] = None,
    turn_rate: Annotated[str | None, typer.Option(metavar="R", help="Demand in turns per second.")] = None,
    slo_ttft: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time to first token asked for, such as 4s.")
    ] = None,
    slo_tpot: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time per output token asked for, such as 50ms.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key, such as hardware.snic.count=2.")
    ] = None,
) -> None: ...


class ScenarioFlags:
    """What the flags of one call say, not yet resolved."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.file: Path | None = values["file"]
        self.values = {name: value for name, value in values.items() if value is not None}
        self.said: set[Message] = set()

    def resolve(self, over: Iterable[tuple[tuple[str, ...], Node]] = (), *, mixed: bool = False) -> Scenario:
        """The scenario of file and flags, and of values laid over both; uncertain values at their centres.

        ``mixed``: whether the command counts with several models or workloads. Raises InputError with all problems.
        """
        from dualplan.errors import InputError
        from dualplan.spec.scenario import resolve, set_flags

        tree = self._tree()
        sets = [*set_flags(self.values.get("set_", ())), *over]
        base = self.file.parent if self.file else None
        if "uncertain" in tree.items():
            from dualplan.spec.uncertain import central_sets

            sets = [*central_sets(tree), *sets]
        scenario = resolve(tree, sets=sets, base=base, read_trace=read_trace_workload)
        self.caution(scenario)
        if scenario.mix and not mixed:
            raise InputError(
                "mix", "this command answers for one model and workload", "feasible, sweep, compare mix them"
            )
        return scenario

    def caution(self, scenario: Scenario, *, simulated: bool = False) -> None:
        """Say, once, what means that were set do to the workload that a user may not expect."""
        workload = scenario.workload
        if not workload.set_means:
            return
        from dualplan.plan.assumptions import cautions_on_means, cautions_on_trajectories

        for caution in [*cautions_on_means(workload), *(cautions_on_trajectories(workload) if simulated else [])]:
            if caution not in self.said:
                note(str(caution))
                self.said.add(caution)

    def workload_path(self) -> Path:
        """Where the workload is, as given: by the flag, or by the scenario file and relative to it."""
        from dualplan.spec.scenario import read_scenario

        if "workload" in self.values:
            return Path(self.values["workload"])
        if self.file is None:
            return Path()
        return self.file.parent / str(read_scenario(self.file).items()["workload"].value)

    def _tree(self) -> Node:
        from dualplan.errors import InputError
        from dualplan.spec.load import Node, with_value
        from dualplan.spec.scenario import read_scenario

        tree = read_scenario(self.file) if self.file else Node({}, "the flags", origin="flag")
        for name, key in KEY_OF_FLAG.items():
            if name in self.values:
                flag = "--" + name.replace("_", "-")
                tree = with_value(tree, tuple(key.split(".")), Node(self.values[name], flag, origin="flag"))
        if "collective_load" in self.values:
            tree = with_value(tree, ("collective_load",), _sides(self.values["collective_load"], "--collective-load"))
        for text in self.values.get("uncertain", ()):
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise InputError("--uncertain", f'"{text[:60]}" is not KEY=VALUE', "such as balance='1.18 +- 0.1'")
            tree = with_value(tree, ("uncertain", key.strip()), Node(value, "--uncertain", origin="flag"))
        return tree


def _sides(text: str, flag: str) -> Node:
    """``0.5``, or ``prefill=.3,decode=.2``, as a node."""
    from dualplan.errors import InputError
    from dualplan.spec.load import Node

    if "=" not in text:
        return Node(text, flag, origin="flag")
    parts: dict[str, Node] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key.strip() in parts:
            raise InputError(flag, f'"{key.strip()}" is given twice')
        parts[key.strip()] = Node(value.strip(), flag, origin="flag")
    return Node(parts, flag, origin="flag")


@lru_cache(maxsize=8)
def read_trace_workload(path: Path) -> Workload:
    """A trace as a workload; how it was read goes to standard error."""
    from dualplan.trace.read import read_trace
    from dualplan.trace.workload import workload_of_trace

    trace = read_trace(str(path))
    report = trace.report
    dropped = f", {sum(report.dropped.values())} dropped" if report.dropped else ""
    note(f"{path}: {report.format}, {report.rows_used} of {report.rows_read} rows used{dropped}")
    workload = workload_of_trace(trace, path.name)
    for remark in workload.notes:
        note(f"{path}: {remark}")
    return workload


def scenario_command(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the scenario flags: its parameter ``flags`` becomes all of them, in front of its own options."""
    return spliced(function, _template, ScenarioFlags)
