"""The answer of ``simulate`` for people."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dualplan.plan.resources import TITLES
from dualplan.report.simulate import Answer, assumptions, gain_key
from dualplan.units import show, significant

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_SHARE = 0.005
"""Resources used less are left out of the table for people."""


def show_answer(answer: Answer, documents: Sequence[dict[str, Any]], console: Console) -> None:
    """Verdict, figures, resources, what to know, what was assumed."""
    first = documents[0]
    nodes = f"{first['prefill_nodes']}P{first['decode_nodes']}D"
    hardware = first["hardware"]
    if first["decode_hardware"] != hardware:
        hardware += f" + {first['decode_hardware']}"
    console.print(f"{first['model']} · {hardware} · {first['workload']} · {nodes}", style="bold")
    console.print()
    if answer.interrupted:
        _show_interrupted(answer, console)
    if len(documents) > 1:
        _show_rows(documents, console)
    else:
        if "capacity_agents_per_s" in first:
            console.print(f"  {_capacity_line(first)}")
        else:
            _show_headline(first, console)
        _show_result(first, console)
    for note in dict.fromkeys(note for document in documents for note in document["notes"]):
        console.print()
        console.print(_wrapped(f"Note: {note}.", console.width, "  ", "  "))
    console.print()
    console.print("  Assumed (all figures and their sources: --json)", style="dim")
    for line in assumptions(answer, answer.shown[0]):
        console.print(_wrapped(line, console.width))


def _show_interrupted(answer: Answer, console: Console) -> None:
    console.print("  INTERRUPTED  this is what was known; the last run ends where it was stopped", style="yellow")
    if answer.left_out:
        console.print(_wrapped("not run: " + "; ".join(answer.left_out), console.width, "  ", "    "))
    console.print()


def _capacity_line(document: dict[str, Any]) -> str:
    low, high = document["interval"]
    name = _named(document)
    if not document["interval_closed"]:
        if not low and high is None:
            rate = significant(document["arrival_rate"])
            return f"no rate was tried to its end in {name}; up to here the run at {rate} agents/s"
        upper = "no rate missed yet" if high is None else f"{significant(high)} agents/s do not"
        lower = f"at least {significant(low)} agents/s meet the SLO" if low else "no rate that was tried meets the SLO"
        return f"{lower} in {name}; {upper}"
    if high is None:
        return f"{significant(low)} agents/s in {name} meet the SLO, the highest rate tried"
    if not low:
        return f"SLO MISSED  no rate meets the SLO in {name}, down to {significant(high)} agents/s"
    return f"{significant(low)} agents/s in {name} meet the SLO; {significant(high)} do not"


def _named(document: dict[str, Any]) -> str:
    extra = document["label"].removeprefix(document["mode"])
    return f"mode {document['mode']}{extra}"


def _wrapped(line: str, width: int, first: str = "  - ", rest: str = "    ") -> str:
    return textwrap.fill(line, min(width, 100), initial_indent=first, subsequent_indent=rest)


def _show_headline(document: dict[str, Any], console: Console) -> None:
    name = _named(document)
    if document["kind"] == "offline":
        if document["jct_s"] is None:
            console.print(
                f"  STOPPED  {document['agents_done']} of {document['agents']} agents done after "
                f"{_seconds(document['simulated_s'])} ({document['stopped']})"
            )
            return
        interval = document.get("jct_interval_s")
        several = f", {_seconds(interval[0])} to {_seconds(interval[1])} over the runs" if interval else ""
        console.print(f"  {_seconds(document['jct_s'])} for {document['agents']} agents in {name}{several}")
        return
    verdict = "SLO MET" if document["slo_met"] else "SLO MISSED"
    rate = document["arrival_rate"]
    asked = "at the times of the trace" if rate is None else f"at {significant(rate)} agents/s"
    console.print(f"  {verdict}  {asked} in {name}", style="green" if document["slo_met"] else "red")
    slo = document["slo"]
    limits = ", ".join(
        f"{key.upper()} {show(slo[f'{key}_s'], 's')}{' by default' if key in slo['defaults'] else ''}"
        for key in ("ttft", "tpot")
    )
    console.print(f"  Means are held against {limits}.")
    if document["stopped"] == "TTFT above the limit":
        console.print(
            f"  The rate is above capacity: TTFT stayed above its limit, so the run ended after "
            f"{_seconds(document['simulated_s'])}."
        )
    elif not document["slo_met"] and document["turns_waiting_at_end"]:
        console.print(
            f"  {document['turns_waiting_at_end']:,} turns wait for their first token at the end of the run, for "
            f"{show(document['wait_at_end_mean_s'], 's')} on average."
        )
    elif document["stopped"] == "interrupted":
        console.print(f"  Interrupted after {_seconds(document['simulated_s'])} of simulated time.")
    elif document["steady"] is False:
        console.print("  Not steady: TTFT still changes by more than 10 % between the halves of the run.")


def _show_result(document: dict[str, Any], console: Console) -> None:
    console.print(
        f"  {document['turns']:,} turns, {significant(document['turns_per_s'])} turns/s, "
        f"{significant(document['prompt_tokens_per_s'] / 1e6)} M prompt tok/s, "
        f"{significant(document['output_tokens_per_s'] / 1e3)} k output tok/s"
    )
    console.print()
    console.print(f"  {'':20}{'mean':>9}{'p50':>9}{'p90':>9}{'p99':>9}", style="bold")
    rows = [("TTFT", "ttft_s"), ("TTST", "ttst_s"), ("TPOT", "tpot_s"), ("agent, start to end", "agent_time_s")]
    if document["admission_wait_s"] is not None:
        rows.append(("wait for admission", "admission_wait_s"))
    for title, key in rows:
        cells = "".join(f"{show(document[key][name], 's'):>9}" for name in ("mean", "p50", "p90", "p99"))
        console.print(f"  {title:20}{cells}")
    console.print()
    shares = ", ".join(
        f"{name} {100 * share:.0f} %" for name, share in document["ttft_shares"].items() if share is not None
    )
    console.print(f"  TTFT is      {shares}")
    peak = document["peaks"]
    console.print(
        f"  Working set  {show(document['working_set_mean_bytes'], 'B')} on average, at most "
        f"{show(peak['working_set_bytes'], 'B')}"
    )
    console.print(
        f"  Host buffer  at most {show(peak['prefill_buffer_bytes_per_node'], 'B')} a prefill node, "
        f"{show(peak['decode_buffer_bytes_per_node'], 'B')} a decode node"
    )
    console.print(f"  Decoding     {significant(document['decode_batch_per_engine'])} sequences an engine on average")
    for change in document["role_changes"]:
        console.print(
            f"  Roles        {change['prefill_nodes']}P{change['decode_nodes']}D decided at "
            f"{_seconds(change['decided_s'])}, ready at {_seconds(change['ready_s'])}"
        )
    _show_resources(document, console)


def _show_resources(document: dict[str, Any], console: Console) -> None:
    console.print()
    console.print(f"  {'Used':28}{'mean':>8}{'busiest':>9}{'max/mean':>10}", style="bold")
    for use in document["resources"]:
        if use["utilization"] < SHOWN_SHARE:
            continue
        title = TITLES[use["name"]] + (f" ({use['detail']})" if use["detail"] else "")
        uneven = "-" if use["max_over_mean"] is None else f"{use['max_over_mean']:.2f}"
        shares = f"{100 * use['utilization']:>6.0f} %{100 * use['peak_utilization']:>7.0f} %{uneven:>10}"
        console.print(f"  {title[:28]:28}{shares}")


def _show_rows(documents: Sequence[dict[str, Any]], console: Console) -> None:
    first, key = documents[0], gain_key(documents)
    width = min(max(12, *(len(document["label"]) + 2 for document in documents)), 34)
    if "capacity_agents_per_s" in first:
        heads = ("agents/s", "not", "TTFT", "TPOT", "against")
    elif first["kind"] == "offline":
        heads = ("JCT", "turns/s", "TTFT", "TPOT", "speed-up")
    else:
        heads = ("TTFT", "TTST", "TPOT", "SLO", "speed-up")
    cell = 10 if width < 27 else 8
    console.print(f"  {'mode':{width}}" + "".join(f"{head:>{cell}}" for head in heads), style="bold")
    for row in documents:
        times = f"{significant(row[key])}x" if row[key] else "-"
        ttft, tpot = show(row["ttft_s"]["mean"], "s"), show(row["tpot_s"]["mean"], "s")
        if "capacity_agents_per_s" in row:
            low, high = row["interval"]
            cells = (significant(low), "-" if high is None else significant(high), ttft, tpot, times)
        elif row["kind"] == "offline":
            cells = (_seconds(row["jct_s"]), significant(row["turns_per_s"]), ttft, tpot, times)
        else:
            cells = (ttft, show(row["ttst_s"]["mean"], "s"), tpot, "met" if row["slo_met"] else "missed", times)
        console.print(f"  {row['label'][:width]:{width}}" + "".join(f"{text:>{cell}}" for text in cells))
    gains = {row["label"]: row[key] for row in documents}
    if gains.get("split-read") and gains.get("dual-path"):
        gain = 100 * (gains["split-read"] / gains["dual-path"] - 1)
        console.print(f"  Splitting each read over both sides gains {gain:+.1f} % over dual-path.")
    for row in documents:
        for change in row["role_changes"]:
            console.print(
                f"  {row['label']}: {change['prefill_nodes']}P{change['decode_nodes']}D decided at "
                f"{_seconds(change['decided_s'])}, ready at {_seconds(change['ready_s'])}"
            )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s" if value >= 100 else show(value, "s")
