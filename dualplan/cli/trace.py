"""``dualplan trace inspect`` and ``trace convert``: what is in a trace, and the same trace in another format."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit, note, print_bytes, spliced

if TYPE_CHECKING:
    from rich.console import Console

    from dualplan.trace.record import Trace
    from dualplan.trace.stats import Moments, Summary

PROGRESS_AFTER_S = 2.0
"""Shorter reads show no progress bar [s]."""


class TimeUnit(StrEnum):
    """Units of the times in a trace."""

    s = "s"
    ms = "ms"
    us = "us"
    ns = "ns"


class LaterTurns(StrEnum):
    """What a later turn of a session gives."""

    cumulative = "cumulative"
    delta = "delta"


SourceArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A file, a folder, a glob, or - for standard input.", show_default=False)
]


def _template(
    trace_format: Annotated[
        str | None,
        typer.Option("--trace-format", metavar="NAME", help="Format of the trace instead of recognising it."),
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Drop malformed rows and count them instead of refusing.")
    ] = False,
    chars_per_token: Annotated[
        str | None,
        typer.Option(
            "--chars-per-token",
            metavar="X",
            help="Estimate tokens of text-only traces: characters per token, such as 4.",
        ),
    ] = None,
    time_unit: Annotated[
        TimeUnit | None, typer.Option("--time-unit", help="Unit of the times where it is not the format's own.")
    ] = None,
    block_size: Annotated[
        int | None,
        typer.Option("--block-size", metavar="TOKENS", help="Tokens of a block where the ids do not show it."),
    ] = None,
    later_turns: Annotated[
        LaterTurns | None, typer.Option("--later-turns", help="Whether later turns repeat their session (mooncake).")
    ] = None,
) -> None:
    """What every command that reads a trace shares; the order is that of the help text."""


class TraceFlags:
    """The options about reading, as given. Raises InputError for figures that cannot be."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        from dualplan.errors import InputError
        from dualplan.units import number

        self.values = {name: getattr(value, "value", value) for name, value in values.items() if value is not None}
        ratio, block = self.values.get("chars_per_token"), self.values.get("block_size", 1)
        if ratio is not None:
            self.values["chars_per_token"] = number(
                ratio, "--chars-per-token", dimension="1", least=0.1, most=100, hint="about 4 for English"
            )
        if not 1 <= block <= 1 << 20:
            raise InputError("--block-size", f"{block} is not between 1 and {1 << 20}")

    def read(self, source: str) -> Trace:
        """Read a trace, from standard input for ``-``, with a progress bar where that takes long."""
        from dualplan.trace.read import read_trace
        from dualplan.trace.record import ReadOptions

        with _progress(source) as report:
            # there is none where it was closed
            stdin = sys.stdin.buffer if source == "-" and sys.stdin else None
            return read_trace(source, ReadOptions(**self.values), stdin=stdin, progress=report)


def trace_command(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options about reading: its parameter ``flags`` becomes all of them."""
    return spliced(function, _template, TraceFlags)


@trace_command
def inspect(
    source: SourceArgument,
    flags: TraceFlags,
    plot: Annotated[bool, typer.Option("--plot", help="Show small charts.")] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Show what is in a trace: lengths, sessions, arrivals, hit rates, hit rate against cache size.

    Requests with zero or negative input tokens, or negative output tokens, are failed calls: they are dropped and
    counted by reason, with or without --lenient. Requests with input and no output are kept.
    """
    from dualplan.report.output import Output
    from dualplan.trace.stats import summarise
    from dualplan.trace.view import as_document, inputs_sha256

    trace = flags.read(source)
    summary = summarise(trace)
    data = as_document(trace, summary, source)
    if as_json or fmt is Format.json:
        data["inputs_sha256"] = inputs_sha256(trace)
    rows = [{key: value for key, value in data.items() if key != "cache"}]
    output = Output(data=data, rows=rows, text=lambda console: _print(console, trace, summary, source, plot))
    emit(output, fmt, as_json, file)


@trace_command
def convert(
    source: SourceArgument,
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="File to write (.gz and .zst compress), or -.", show_default=False)
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="NAME",
            help="dualplan, mooncake, bailian, session-rows, otel, azure-2024, burstgpt or vidur.",
            show_default=False,
        ),
    ],
    flags: TraceFlags,
) -> None:
    """Write a trace in another format. Refused where the trace lacks what that format is about.

    Failed calls (zero or negative input tokens, negative output tokens) are dropped and counted.
    """
    from dualplan.trace.convert import check, lines, write
    from dualplan.trace.convert import target as find
    from dualplan.units import counted

    form = find(to)
    trace = flags.read(source)
    notes = check(trace, form)
    if target == "-":
        print_bytes(lines(trace, to))
    else:
        write(trace, to, Path(target))
    report = trace.report
    for text in (*report.notes, *(f"{count:,} rows dropped: {why}" for why, count in report.dropped.items()), *notes):
        note(text)
    note(f"{counted(trace.requests, 'request')} of {report.format} written as {to}")


@contextmanager
def _progress(source: str) -> Iterator[Callable[[int, int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from dualplan.errors import printable

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(f"reading {printable(Path(source).name[:40])}", total=None)
    begin, started = time.monotonic(), False

    def report(done: int, total: int) -> None:
        nonlocal started
        if not started and time.monotonic() - begin > PROGRESS_AFTER_S:
            bar.start()
            started = True
        if started:
            bar.update(task, completed=done, total=total or None)

    try:
        yield report
    finally:
        if started:
            bar.stop()


# ---------------------------------------------------------------- the view for people


def _print(console: Console, trace: Trace, summary: Summary, source: str, plot: bool) -> None:
    from dualplan.errors import printable
    from dualplan.trace.view import why_accounting
    from dualplan.units import counted, show, significant

    report, arrivals = trace.report, summary.arrivals
    sessions = f" in {counted(summary.sessions, 'session')}" if summary.sessions else ""
    console.print(f"{printable(source)}: {report.format}, {counted(summary.requests, 'request')}{sessions}")
    main = summary.hit_rates.get(summary.accounting or "")
    if main:
        by_block = f", {main.by_block:.1%} by block" if main.by_block is not None else ""
        console.print(f"Hit rate of an infinite cache: {main.by_token:.1%} by token{by_block},")
        console.print(f"  {main.mean_of_ratios:.1%} mean of ratios; from {why_accounting(summary)}")
        if summary.accounting == "block_hashes":
            console.print("  hits are counted per model, and per file or session where block ids are local")
    else:
        console.print(f"No hit rate: {why_accounting(summary)}")
    for name, other in summary.hit_rates.items():
        if name != summary.accounting:
            console.print(f"  {other.by_token:.1%} by token from {name.replace('_', ' ')}")
    if arrivals.duration_s is not None:
        rate = f", {significant(arrivals.requests_per_s)} requests/s" if arrivals.requests_per_s else ""
        each = f", {significant(arrivals.sessions_per_s)} sessions/s" if arrivals.sessions_per_s else ""
        console.print(f"Arrivals: {show(arrivals.duration_s, 's')}{rate}{each}")
        if arrivals.interarrival_cv is not None:
            console.print(f"  burstiness (CV of interarrival times): {significant(arrivals.interarrival_cv)}")
    if arrivals.because:
        console.print(f"  arrival rates left out: {arrivals.because}")
    console.print()
    _print_moments(console, summary)
    if summary.growth:
        console.print()
        _print_growth(console, summary)
    if summary.curve:
        console.print()
        _print_curve(console, summary, plot)
    if plot:
        console.print()
        _print_growth_chart(console, summary)
    console.print()
    _print_reading(console, trace, summary)


def _print_moments(console: Console, summary: Summary) -> None:
    from dualplan.units import significant

    table = _table("", "mean", "p50", "p90", "p99", "max")
    rows: list[tuple[str, Moments | None]] = [
        ("input tokens", summary.input_tokens),
        ("output tokens", summary.output_tokens),
        ("context tokens", summary.context_tokens),
        ("append tokens", summary.append_tokens),
        ("turns per session", summary.turns_per_session),
        ("think time [s]", summary.think_time_s),
        ("turn gap [s]", summary.turn_gap_s),
    ]
    for label, moments in rows:
        if moments:
            values = (moments.mean, moments.p50, moments.p90, moments.p99, moments.max)
            table.add_row(label, *(significant(value, 4) for value in values))
    console.print(table)


def _print_growth(console: Console, summary: Summary) -> None:
    table = _table("turn", "requests", "input", "context", "append", "output")
    for group in summary.growth:
        label = str(group.first) if group.first == group.last else f"{group.first}-{group.last}"
        lengths = (group.input_tokens, group.context_tokens, group.append_tokens, group.output_tokens)
        table.add_row(label, f"{group.requests:,}", *("-" if value is None else f"{value:,.0f}" for value in lengths))
    console.print("Means by turn of the session [tokens]")
    console.print(table)


def _print_curve(console: Console, summary: Summary, plot: bool) -> None:
    from dualplan.units import show, significant

    curve = summary.curve
    if curve is None:
        return
    console.print(f"Working set {significant(curve.working_set_tokens)} tokens ({curve.basis}, LRU)")
    sizes = [f"{float(share):.0%} from {significant(size)} tokens" for share, size in curve.for_share.items() if size]
    if sizes:
        console.print("Cache for a share of all hits: " + ", ".join(sizes))
    if curve.windows:
        touched = [f"{significant(size)} within {show(float(window), 's')}" for window, size in curve.windows.items()]
        console.print("Tokens touched on average: " + ", ".join(touched))
    if curve.sampled < 1:
        console.print(f"  from a sample of {curve.sampled:.1%} of the blocks")
    if plot:
        _chart(
            console,
            "Hit rate by token against cache size [tokens]",
            [f"{point.cache_tokens:,.0f}" for point in curve.points],
            [point.by_token for point in curve.points],
            [f"{point.by_token:.1%}" for point in curve.points],
        )


def _print_growth_chart(console: Console, summary: Summary) -> None:
    if summary.growth:
        _chart(
            console,
            "Input tokens by turn",
            [f"{group.first}-{group.last}" for group in summary.growth],
            [group.input_tokens for group in summary.growth],
            [f"{group.input_tokens:,.0f}" for group in summary.growth],
        )
        return
    lengths = summary.input_tokens
    values = [lengths.min, lengths.p50, lengths.mean, lengths.p90, lengths.p99, lengths.max]
    labels = ["min", "p50", "mean", "p90", "p99", "max"]
    _chart(console, "Input tokens", labels, values, [f"{value:,.0f}" for value in values])


def _chart(console: Console, title: str, labels: list[str], values: list[float], texts: list[str]) -> None:
    from dualplan.trace.chart import bar_chart

    ascii_only = "utf" not in (getattr(console.file, "encoding", None) or "utf-8").lower()
    console.print(title)
    console.print(bar_chart(labels, values, texts, min(console.width, 100), ascii_only))


def _print_reading(console: Console, trace: Trace, summary: Summary) -> None:
    report = trace.report
    dropped = sum(report.dropped.values())
    console.print(f"Rows: {report.rows_read:,} read, {report.rows_used:,} used, {dropped:,} dropped")
    for reason, count in report.dropped.items():
        console.print(f"  {count:,} {reason}")
    lines = [f"Format: {report.format_because}"]
    if report.time_unit:
        lines.append(f"Times: {report.time_unit}, because {report.time_unit_because}")
    if trace.blocks:
        lines.append(f"Blocks: {trace.blocks.size} tokens, {trace.blocks.rounding}; {report.block_because}")
    if report.later_turns:
        lines.append(f"Later turns: {report.later_turns}; {report.later_turns_because}")
    if len(summary.models) > 1:
        lines.append(f"Models: {', '.join(f'{name} {count:,}' for name, count in summary.models.items())}")
    if summary.zero_outputs:
        lines.append(f"{summary.zero_outputs:,} requests have no output")
    if summary.resets:
        lines.append(f"{summary.resets:,} prompts are shorter than the one before (new context)")
    if report.estimated_tokens:
        lines.append("Token counts are estimates from the text")
    for line in (*lines, *report.notes):
        console.print(line)


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column and column != "turn" else "left", no_wrap=True)
    return table
