"""Measured serving runs against predictions, for people and for machines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import exp, log
from typing import Any

from dualplan.report.blocks import GAP, Block, Facts, Paragraph, table
from dualplan.report.output import Output
from dualplan.units import counted

WORST = 10
"""Runs that people are shown, those that are furthest off."""

SCORES = {
    "tpot": "TPOT",
    "tpot_disaggregated": "TPOT, disaggregated",
    "ttft": "TTFT",
    "ttft_few_clients": "TTFT, 8 clients or fewer",
}


def output(document: dict[str, Any], name: str) -> Output:
    """The predictions of the runs of a table; rows are the runs in the order of the file."""
    data = {"schema": "dualplan/validate-runs/1", "file": name, **document}
    return Output(data=data, rows=document["runs"], view=lambda: view(document, name))


def view(document: dict[str, Any], name: str) -> Iterator[Block]:
    """How far predictions are off, the runs that are furthest off, and what is not covered."""
    runs, summary = document["runs"], document["summary"]
    said = f"{summary['covered']} of {counted(summary['runs'], 'run')} of {name} predicted, {summary['scored']} scored"
    yield Paragraph(said, "title")
    scores = [(title, score) for key, title in SCORES.items() if (score := summary[key]) is not None]
    rows = [
        (title, str(s["runs"]), *(f"{100 * s[key]:.1f} %" for key in ("median_error", "p90_error", "inside_interval")))
        for title, s in scores
    ]
    if rows:
        header = ("error, larger over smaller less 1", "runs", "median", "p90", "inside interval")
        yield from (GAP, table("", header, rows, "lrrrr", below=True))
    if worst := sorted((run for run in runs if _off(run)), key=_off, reverse=True)[:WORST]:
        rows = [
            (
                str(run["line"]),
                f"{run['model']} {run['precision']} {run['system']} {run['mode']}",
                f"{run['measured_tpot_ms']:.3g} ms",
                f"{run['predicted_tpot_ms']:.3g} ms",
                f"{run['interval'][0]:.3g} .. {run['interval'][1]:.3g}",
            )
            for run in worst
        ]
        header = ("line", "TPOT furthest off", "measured", "predicted", "80 % interval")
        yield from (GAP, table("", header, rows, "llrrr", flow=".w...", below=True))
    for title, key in (("Not predicted", "reason"), ("Not scored", "not_scored")):
        # reasons that differ in their numbers alone are one
        if reasons := Counter(re.sub(r"\d+", "N", run[key]) for run in runs if run[key]):
            facts = [(str(count), reason) for reason, count in reasons.most_common(WORST)]
            yield from (GAP, Paragraph(title, "lead"), Facts(tuple(facts), room=7))


def _off(run: dict[str, Any]) -> float:
    """How far the TPOT of a scored run is off; 0 where nothing was measured."""
    if not run["covered"] or run["not_scored"] or run["measured_tpot_ms"] is None:
        return 0.0
    return exp(abs(log(run["predicted_tpot_ms"] / run["measured_tpot_ms"]))) - 1
