"""The answer of ``simulate`` for people."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dualplan.report.columns import print_table
from dualplan.report.simulate import Answer, assumptions, gain_key
from dualplan.steady.resources import TITLES
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
    console.print(
        f"{answer.shown[0].cluster.scenario.model.title} · {hardware} · {first['workload']} · {nodes}", style="bold"
    )
    console.print()
    if answer.interrupted:
        _show_interrupted(answer, console)
    if len(documents) > 1:
        _show_rows(documents, console)
    else:
        if "capacity_agents_per_s" in first:
            _say(console, _capacity_line(first))
            _say_missed(console, first["upper_missed_by"], f"At {significant(first['interval'][1] or 0.0)}")
        else:
            _show_headline(first, console)
        _show_result(first, console)
    for note in _notes(documents):
        console.print()
        _say(console, f"Note: {note}.", hanging=0)
    console.print()
    console.print("  Assumed (all figures and their sources: --json)", style="dim")
    for line in assumptions(answer, *answer.shown):
        console.print(_wrapped(str(line), console.width))


def _notes(documents: Sequence[dict[str, Any]]) -> list[str]:
    """The notes of all rows, each once, with the rows that it is about where it is not about all of them."""
    rows: dict[str, list[str]] = {}
    for document in documents:
        for note in document["notes"]:
            rows.setdefault(note, []).append(document["label"])
    return [note if len(labels) == len(documents) else f"{'; '.join(labels)}: {note}" for note, labels in rows.items()]


def _show_interrupted(answer: Answer, console: Console) -> None:
    console.print("  INTERRUPTED  this is what was known; the last run ends where it was stopped", style="yellow")
    if answer.left_out:
        _say(console, "not run: " + "; ".join(answer.left_out))
    console.print()


def _say(console: Console, text: str, *, hanging: int = 2, style: str | None = None) -> None:
    """A line of the answer, wrapped to its indent."""
    console.print(_wrapped(text, console.width, "  ", " " * (2 + hanging)), style=style)


def _say_missed(console: Console, missed: Sequence[dict[str, Any]], title: str = "Missed by") -> None:
    """What of the SLO was missed, a line each."""
    for miss in missed:
        _say(console, f"{title:<13}{miss['text']}", hanging=13)


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
    # capacity falls with the length of a run, so it is part of the answer
    length = show(document["simulated_s"], "s")
    if high is None:
        return f"{significant(low)} agents/s in {name} meet the SLO in runs of {length}, the highest rate tried"
    if not low:
        return f"SLO MISSED  no rate meets the SLO in {name}, down to {significant(high)} agents/s"
    return f"{significant(low)} agents/s in {name} meet the SLO in runs of {length}; {significant(high)} do not"


def _named(document: dict[str, Any]) -> str:
    extra = document["label"].removeprefix(document["mode"])
    return f"mode {document['mode']}{extra}"


def _wrapped(line: str, width: int, first: str = "  - ", rest: str = "    ") -> str:
    return textwrap.fill(line, min(width, 100), initial_indent=first, subsequent_indent=rest)


def _show_headline(document: dict[str, Any], console: Console) -> None:
    name = _named(document)
    if document["kind"] == "offline":
        if document["jct_s"] is None:
            done = f"{document['agents_done']} of {document['agents']} agents done"
            _say(console, f"STOPPED  {done} after {_seconds(document['simulated_s'])} ({document['stopped']})")
            return
        interval = document.get("jct_interval_s")
        several = f", {_seconds(interval[0])} to {_seconds(interval[1])} over the runs" if interval else ""
        _say(console, f"{_seconds(document['jct_s'])} for {document['agents']} agents in {name}{several}")
        return
    verdict = "SLO MET" if document["slo_met"] else "SLO MISSED"
    rate = document["arrival_rate"]
    asked = "at the times of the trace" if rate is None else f"at {significant(rate)} agents/s"
    unsettled = ", but not steady: see the note" if document["slo_met"] and document["steady"] is False else ""
    style = "green" if document["slo_met"] else "red"
    _say(console, f"{verdict}  {asked} in {name}{unsettled}", style=style)
    slo = document["slo"]
    limits = ", ".join(
        f"{key.upper()} {show(slo[f'{key}_s'], 's')}{' by default' if key in slo['defaults'] else ''}"
        for key in ("ttft", "tpot")
    )
    _say(console, f"Means are held against {limits}.")
    _say_missed(console, document["missed_by"])
    if document["stopped"] == "TTFT above the limit":
        least, limit = document["ttft_unloaded_s"], slo["ttft_s"]
        why = (
            f"No rate meets this TTFT: that of a mean turn is {show(least, 's')} without any load."
            if least is not None and least > limit
            else "The rate is above capacity (--find-capacity finds it)."
        )
        _say(
            console,
            f"{why} Figures below are of all turns that ended from "
            f"{_seconds(document['warm_up_s'])} to {_seconds(document['simulated_s'])}.",
        )
    elif document["stopped"] == "interrupted":
        _say(console, f"Interrupted after {_seconds(document['simulated_s'])} of simulated time.")


def _show_result(document: dict[str, Any], console: Console) -> None:
    _say(
        console,
        f"{document['turns']:,} turns, {significant(document['turns_per_s'])} turns/s, "
        f"{_tokens(document['prompt_tokens_per_s'])} prompt tok/s, "
        f"{_tokens(document['output_tokens_per_s'])} output tok/s",
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
    peak = document["peaks"]
    lines = {
        # a read ends, for the engine, when the next pass takes the turn in: a long share need not be a slow NIC
        "TTFT is": f"{shares} (read: until the next pass, however fast the NICs are)",
        "Working set": f"{show(document['working_set_mean_bytes'], 'B')} on average, at most "
        f"{show(peak['working_set_bytes'], 'B')}",
        "Host buffer": f"at most {show(peak['prefill_buffer_bytes_per_node'], 'B')} a prefill node, "
        f"{show(peak['decode_buffer_bytes_per_node'], 'B')} a decode node",
        "Decoding": f"{significant(document['decode_batch_per_engine'])} sequences an engine on average",
    }
    done, of = document["agents_done"], document["agents"]
    expected = document["expected_agent_time_s"]
    if document["kind"] == "online" and 0 < done < of and expected is not None:
        # those that did not end before the run did are the longer ones
        lines["Agents"] = (
            f"{done:,} of {of:,} ended in the run, the shorter ones first; one takes about {show(expected, 's')}"
        )
    for title, text in lines.items():
        _say(console, f"{title:<13}{text}", hanging=13)
    for change in document["role_changes"]:
        _say(console, f"{'Roles':<13}{_role_change(change)}", hanging=13)
    _show_resources(document, console)


def _share(value: float) -> str:
    """A share in per cent; of what is many times over, how many times."""
    return f"{100 * value:.0f} %" if value < 10 else f"{significant(value, 2)}x"


def _tokens(rate: float) -> str:
    """Tokens/s with a prefix."""
    return show(rate, "1") if rate < 1e3 else show(rate, "").rstrip()


def _role_change(change: dict[str, Any]) -> str:
    nodes = f"{change['prefill_nodes']}P{change['decode_nodes']}D"
    return f"{nodes} decided at {_seconds(change['decided_s'])}, ready at {_seconds(change['ready_s'])}"


def _show_resources(document: dict[str, Any], console: Console) -> None:
    console.print()
    console.print(f"  {'Used':28}{'mean':>8}{'busiest':>9}{'max/mean':>10}", style="bold")
    for use in document["resources"]:
        if use["utilization"] < SHOWN_SHARE:
            continue
        title = TITLES[use["name"]] + (f" ({use['detail']})" if use["detail"] else "")
        if use["name"] == "prefill_compute":
            console.print(f"  {title:28}{_share(use['capacity_used']):>8}{'-':>9}{'-':>10}")
            title = "prefill passes running"
        uneven = "-" if use["max_over_mean"] is None else f"{use['max_over_mean']:.2f}"
        shares = f"{_share(use['utilization']):>8}{_share(use['peak_utilization']):>9}{uneven:>10}"
        console.print(f"  {title[:28]:28}{shares}")
    _say(
        console,
        "prefill compute is work over that of full passes, as feasible counts; passes run while any turn is there, so "
        "their busy share is high at any load."
        + (
            " All other shares, and the sequences that decode, are of the whole run, its filling included."
            if document["warm_up_s"]
            else ""
        ),
        hanging=0,
        style="dim",
    )


def _show_rows(documents: Sequence[dict[str, Any]], console: Console) -> None:
    first, key = documents[0], gain_key(documents)
    heads: tuple[str, ...]
    cells: tuple[str, ...]
    if "capacity_agents_per_s" in first:
        heads = ("mode", "agents/s", "missed at", "turns/s", "TTFT", "TPOT", "against")
    elif first["kind"] == "offline":
        heads = ("mode", "JCT", "turns/s", "TTFT", "TPOT", "speed-up")
    else:
        heads = ("mode", "turns/s", "TTFT", "TTST", "TPOT", "SLO", "TTFT gain")
    table: list[tuple[str, ...]] = []
    for row in documents:
        times = f"{significant(row[key])}x" if row[key] else "-"
        rate = significant(row["turns_per_s"])
        ttft, tpot = show(row["ttft_s"]["mean"], "s"), show(row["tpot_s"]["mean"], "s")
        if "capacity_agents_per_s" in row:
            low, high = row["interval"]
            cells = (significant(low), "-" if high is None else significant(high), rate, ttft, tpot, times)
        elif row["kind"] == "offline":
            cells = (_seconds(row["jct_s"]), rate, ttft, tpot, times)
        else:
            cells = (rate, ttft, show(row["ttst_s"]["mean"], "s"), tpot, "met" if row["slo_met"] else "missed", times)
        table.append((row["label"], *cells))
    print_table(console, heads, table, "l" + "r" * (len(heads) - 1), indent="  ", wraps=0)
    gains = {row["label"]: row[key] for row in documents}
    if gains.get("split-read") and gains.get("dual-path"):
        gain = 100 * (gains["split-read"] / gains["dual-path"] - 1)
        _say(console, f"Splitting each read over both sides gains {gain:+.1f} % over dual-path.")
    for row in documents:
        if "capacity_agents_per_s" in row:
            at = significant(row["interval"][1] or 0.0)
            for miss in row["upper_missed_by"]:
                _say(console, f"{row['label']} at {at}: {miss['text']}")
        else:
            for miss in row["missed_by"]:
                _say(console, f"{row['label']} misses: {miss['text']}")
        for change in row["role_changes"]:
            _say(console, f"{row['label']}: {_role_change(change)}")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s" if value >= 100 else show(value, "s")
