"""The answer of ``flow`` for people and for machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.flow.flowcase import FlowCase
from dualplan.flow.problem import Flow, FlowResult
from dualplan.report.output import Output
from dualplan.units import counted, show, significant

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "dualplan/flow/1"
MOST_FLOWS = 20
MOST_LINKS = 12
_BAR = 20


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What ``flow`` found. ``max_relative_error``: against the times the file expects, None where it has none."""

    name: str
    case: FlowCase
    result: FlowResult
    max_relative_error: float | None
    inputs_sha256: str

    @property
    def unfinished(self) -> list[int]:
        """Places of the flows that never end."""
        return [i for i, time in enumerate(self.result.finish_s) if time == math.inf]


def relative_error(found: Sequence[float], expected: Sequence[float]) -> float:
    """Largest relative difference of completion times; absolute where 0 is expected, infinite where only one ends."""
    return max((_difference(a, b) for a, b in zip(found, expected, strict=True)), default=0.0)


def output(answer: Answer) -> Output:
    """The result in all formats; csv, jsonl and md hold one row per flow."""
    return Output(data=document(answer), rows=flow_rows(answer), text=lambda console: show_answer(answer, console))


# ---------------------------------------------------------------- machines


def document(answer: Answer) -> dict[str, Any]:
    """The JSON document; lists of flows are in the order of the file, null where a flow never ends."""
    result, problem = answer.result, answer.case.problem
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "name": answer.case.name,
        "finish_s": list(result.finish_s),
        "makespan_s": result.makespan_s,
        "unfinished": [problem.flows[i].id for i in answer.unfinished],
    }
    if answer.max_relative_error is not None:
        data["max_relative_error"] = answer.max_relative_error
    return data | {
        "bottlenecks": list(result.bottlenecks),
        "links": [
            {
                "id": link.id,
                "policy": "SHARED" if link.shared else "FATPIPE",
                "capacity_bytes_per_s": link.capacity,
                "bytes": carried,
                "utilization": used,
            }
            for link, carried, used in zip(problem.links, result.link_bytes, result.link_utilization, strict=True)
        ],
        "events": result.events,
        "flow_classes": result.flow_classes,
        "inputs_sha256": answer.inputs_sha256,
    }


def flow_rows(answer: Answer) -> list[dict[str, Any]]:
    """One record per flow, in the order of the file."""
    expected = answer.case.expected_finish_s
    rows = []
    for i, flow in enumerate(answer.case.problem.flows):
        finish = answer.result.finish_s[i]
        row: dict[str, Any] = {
            "flow": flow.id,
            "start_s": flow.start,
            "size_bytes": flow.size,
            "finish_s": finish,
            "mean_rate_bytes_per_s": _mean_rate(flow, finish),
            "bottleneck": answer.result.bottlenecks[i],
        }
        if expected is not None:
            row |= {"expected_finish_s": expected[i], "relative_error": _difference(finish, expected[i])}
        rows.append(row)
    return rows


def _difference(found: float, expected: float) -> float:
    if found == expected:
        return 0.0
    if math.isinf(found) or math.isinf(expected):
        return math.inf
    return abs(found - expected) / abs(expected) if expected else abs(found)


def _mean_rate(flow: Flow, finish: float) -> float | None:
    return flow.size / (finish - flow.start) if flow.start < finish < math.inf else None


# ---------------------------------------------------------------- people


def show_answer(answer: Answer, console: Console) -> None:
    """The makespan, then flows and links; of many, those that matter most."""
    from rich.text import Text

    result, problem = answer.result, answer.case.problem
    n = len(problem.flows)
    heading = " · ".join(part for part in (answer.case.name or answer.name, answer.case.description) if part)
    console.print(Text(_clean(heading)))
    console.print()
    if answer.unfinished:
        console.print(Text(f"  NEVER ENDS  {counted(len(answer.unfinished), 'flow')} of {n:,}: capacity fell to 0"))
    console.print(Text(f"  Makespan   {show(result.makespan_s, 's', 4)}"))
    sizes = f"{counted(n, 'flow')} in {counted(result.flow_classes, 'class', 'classes')} over "
    console.print(Text(f"  {sizes}{counted(len(problem.links), 'link')}, {counted(result.events, 'event')}"))
    if answer.max_relative_error is not None:
        error = answer.max_relative_error
        console.print(f"  Expected times {f'differ by at most {error:.2g} (relative)' if error else 'are met exactly'}")
    if problem.flows:
        _show_flows(answer, console)
    if problem.links:
        _show_links(answer, console)


def _show_flows(answer: Answer, console: Console) -> None:
    flows, result = answer.case.problem.flows, answer.result
    places = list(range(len(flows)))
    title = "Flow"
    if len(places) > MOST_FLOWS:
        places = sorted(places, key=lambda i: (-result.finish_s[i], i))[:MOST_FLOWS]
        title = "Last flows"
    table = _table(console, (title, "left"), ("start", "right"), ("size", "right"), ("end", "right"))
    table.add_column("mean rate", justify="right", no_wrap=True)
    table.add_column("held back by", overflow="ellipsis", no_wrap=True)
    for i in places:
        flow, finish = flows[i], result.finish_s[i]
        table.add_row(
            _clean(str(flow.id)),
            show(flow.start, "s"),
            show(flow.size, "B"),
            "never" if math.isinf(finish) else show(finish, "s", 4),
            show(_mean_rate(flow, finish), "B/s"),
            _holder(flow, result.bottlenecks[i], finish),
        )
    console.print()
    console.print(table)
    if len(flows) > len(places):
        console.print(
            f"  {len(flows) - len(places):,} flows that end earlier are left out; --json or -f csv shows all."
        )


def _show_links(answer: Answer, console: Console) -> None:
    result, links = answer.result, answer.case.problem.links
    places = list(range(len(links)))
    if len(places) > MOST_LINKS:
        places = sorted(places, key=lambda i: (-(result.link_utilization[i] or 0.0), i))[:MOST_LINKS]
    table = _table(console, ("Link" if len(places) == len(links) else "Busiest links", "left"), ("capacity", "right"))
    table.add_column("carried", justify="right", no_wrap=True)
    table.add_column("used", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for i in places:
        used = result.link_utilization[i]
        table.add_row(
            _clean(links[i].id),
            show(links[i].capacity, "B/s"),
            show(result.link_bytes[i], "B"),
            "cap only" if used is None else f"{significant(100 * used)} %",
            "" if used is None else "#" * min(round(_BAR * used), _BAR),
        )
    console.print()
    console.print(table)
    if len(links) > len(places):
        console.print(f"  {len(links) - len(places):,} less used links are left out; --json shows all.")


def _table(console: Console, *columns: tuple[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for title, side in columns:
        table.add_column(title, justify=side, no_wrap=True, overflow="ellipsis")
    return table


def _holder(flow: Flow, bottleneck: str | None, finish: float) -> str:
    if bottleneck is not None:
        return _clean(bottleneck)
    return "its own cap" if flow.size and finish < math.inf else "-"


def _clean(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)
