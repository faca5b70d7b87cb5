"""GB of KV-cache for a PFLOP, network bytes for a FLOP by generation, and prefill throughput against batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dualplan.report.blocks import GAP, Block, Drawing, Paragraph, table
from dualplan.report.output import Output
from dualplan.units import significant


def output(data: dict[str, Any], contexts: list[int], *, bars: bool) -> Output:
    """The table of models and contexts; ``bars``: with a chart of the hardware trend."""
    return Output(data=data, rows=data["rows"], view=lambda: view(data, contexts, bars=bars))


def batch_output(data: dict[str, Any], *, bars: bool) -> Output:
    """Throughput against batch; ``bars``: with a chart for each model."""
    return Output(data=data, rows=data["rows"], view=lambda: batch_view(data, bars=bars))


def view(data: dict[str, Any], contexts: list[int], *, bars: bool) -> Iterator[Block]:
    """A row for each model and a column for each context, the published value beside it."""
    rows = data["rows"]
    append = rows[0]["append"]
    yield Paragraph(f"GB of KV-cache to load per PFLOP of compute, {append:,} tokens appended", "title")
    groups = [rows[start : start + len(contexts)] for start in range(0, len(rows), len(contexts))]
    columns = [_with_printed(tokens, group) for tokens, group in zip(contexts, zip(*groups, strict=True), strict=True)]
    header = ["model", "KV", *(column[0] for column in columns)]
    cells = [
        [group[0]["model"], group[0]["kv_format"], *(column[number] for column in columns)]
        for number, group in enumerate(groups, start=1)
    ]
    yield table("", header, cells, "l" * len(header), below=True, indent=0)
    yield from (GAP, Paragraph(data["convention"]["text"], indent=0))
    if "hardware_trend" in data:
        yield GAP
        yield from _trend(data["hardware_trend"], bars)


def _trend(trend: list[dict[str, Any]], bars: bool) -> Iterator[Block]:
    yield Paragraph("Network bytes per FLOP by GPU generation", "title")
    cells = [
        (
            f"{row['gpu']} {row['dtype']}",
            f"{row['flop_per_s'] / 1e12:,.0f}",
            f"{row['nic_bytes_per_s'] * 8 / 1e9:.0f}",
            f"{row['hbm_bytes'] / 1e9:.0f}",
            significant(row["nic_bytes_per_flop"] * 1000),
            f"{significant(row['fall_from_a100_bf16'])}x",
        )
        for row in trend
    ]
    header = ("GPU", "TFLOPS", "NIC Gb/s", "HBM GB", "B/kFLOP", "fall from A100")
    yield table("", header, cells, "lrrrrr", below=True, indent=0)
    if bars:
        yield from (GAP, _bars([(f"{row['gpu']} {row['dtype']}", 1000 * row["nic_bytes_per_flop"]) for row in trend]))
    note = "The fall of the first three rows mixes number formats; the last two compare bf16 with bf16."
    yield from (GAP, Paragraph(note, indent=0))


def batch_view(data: dict[str, Any], *, bars: bool) -> Iterator[Block]:
    """A row for each batch and a column for each model, the published value beside them."""
    about = "Requests/s of prefill passes against passes of one request"
    yield Paragraph(f"{about}, {data['append']:,} tokens appended to {data['context']:,}", "title")
    names = list(dict.fromkeys(row["model"] for row in data["rows"]))
    cells = []
    for batch in dict.fromkeys(row["batch"] for row in data["rows"]):
        group = [row for row in data["rows"] if row["batch"] == batch]
        printed = group[0]["published"]
        relative = (f"{row['relative']:.2f}" for row in group)
        cells.append([str(batch), *relative, "-" if printed is None else f"{printed:.2f}"])
    yield table("", ["batch", *names, "paper"], cells, "r" * (len(names) + 2), below=True, indent=0)
    for name in names if bars else ():
        group = [row for row in data["rows"] if row["model"] == name]
        yield from (GAP, Paragraph(name, "title"), _bars([(str(row["batch"]), row["relative"]) for row in group]))
    yield GAP
    for line in data["assumptions"]:
        yield Paragraph(line, indent=0)


def _bars(values: list[tuple[str, float]]) -> Drawing:
    """A bar for each value, the longest as wide as the lines allow."""
    label = max(len(name) for name, _ in values)
    most = max(value for _, value in values)

    def draw(width: int) -> list[str]:
        room = width - label - 12
        return [f"{name:>{label}}  {'#' * round(room * value / most)} {significant(value)}" for name, value in values]

    return Drawing(draw, indent=0)


def _with_printed(tokens: int, rows: Sequence[dict[str, Any]]) -> list[str]:
    """The column of a context with its head: values, each with the published one beside it."""
    values = [f"{tokens:,}", *(significant(row["gb_per_pflop"]) for row in rows)]
    room = max(map(len, values))
    printed = [row["published_gb_per_pflop"] for row in rows]
    beside = ["", *("" if value is None else f"  (paper {value:g})" for value in printed)]
    return [f"{value:>{room}}{text}" for value, text in zip(values, beside, strict=True)]
