"""The answer of ``simulate`` for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dualplan.report.blocks import GAP, Block, Facts, Paragraph, assumed, table
from dualplan.report.simulate import Answer, assumptions, gain_key
from dualplan.steady.resources import TITLES
from dualplan.units import show, significant

KEYS = 13
"""Characters of the keys of facts."""

SHOWN_SHARE = 0.005
"""Resources used less are left out of the table for people."""


def view(answer: Answer, documents: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """Verdict, figures, resources, what to know, what was assumed."""
    first = documents[0]
    nodes = f"{first['prefill_nodes']}P{first['decode_nodes']}D"
    hardware = first["hardware"]
    if first["decode_hardware"] != hardware:
        hardware += f" + {first['decode_hardware']}"
    model = answer.shown[0].cluster.scenario.model.title
    yield from (Paragraph(f"{model} · {hardware} · {first['workload']} · {nodes}", "title"), GAP)
    if answer.interrupted:
        yield Paragraph("INTERRUPTED  this is what was known; the last run ends where it was stopped", "warning")
        if answer.left_out:
            yield Paragraph("not run: " + "; ".join(answer.left_out))
        yield GAP
    if len(documents) > 1:
        yield from _rows(documents)
    else:
        if "capacity_agents_per_s" in first:
            yield Paragraph(_capacity_line(first))
            yield _missed(first["upper_missed_by"], f"At {significant(first['interval'][1] or 0.0)}")
        else:
            yield from _headline(first)
        yield from _result(first)
    for note in _notes(documents):
        yield from (GAP, Paragraph(f"Note: {note}.", hanging=0))
    yield from assumed(map(str, assumptions(answer, *answer.shown)))


def _notes(documents: Sequence[dict[str, Any]]) -> list[str]:
    """The notes of all rows, each once, with the rows that it is about where it is not about all of them."""
    rows: dict[str, list[str]] = {}
    for document in documents:
        for note in document["notes"]:
            rows.setdefault(note, []).append(document["label"])
    return [note if len(labels) == len(documents) else f"{'; '.join(labels)}: {note}" for note, labels in rows.items()]


def _missed(missed: Sequence[dict[str, Any]], title: str = "Missed by") -> Facts:
    """What of the SLO was missed, a line each."""
    return Facts(tuple((title, miss["text"]) for miss in missed), room=KEYS)


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


def _headline(document: dict[str, Any]) -> Iterator[Block]:
    name = _named(document)
    if document["kind"] == "offline":
        if document["jct_s"] is None:
            done = f"{document['agents_done']} of {document['agents']} agents done"
            yield Paragraph(f"STOPPED  {done} after {_seconds(document['simulated_s'])} ({document['stopped']})")
            return
        interval = document.get("jct_interval_s")
        several = f", {_seconds(interval[0])} to {_seconds(interval[1])} over the runs" if interval else ""
        yield Paragraph(f"{_seconds(document['jct_s'])} for {document['agents']} agents in {name}{several}")
        return
    verdict = "SLO MET" if document["slo_met"] else "SLO MISSED"
    rate = document["arrival_rate"]
    asked = "at the times of the trace" if rate is None else f"at {significant(rate)} agents/s"
    unsettled = ", but not steady: see the note" if document["slo_met"] and document["steady"] is False else ""
    yield Paragraph(f"{verdict}  {asked} in {name}{unsettled}", "good" if document["slo_met"] else "bad")
    slo = document["slo"]
    limits = ", ".join(
        f"{key.upper()} {show(slo[f'{key}_s'], 's')}{' by default' if key in slo['defaults'] else ''}"
        for key in ("ttft", "tpot")
    )
    yield from (Paragraph(f"Means are held against {limits}."), _missed(document["missed_by"]))
    if document["stopped"] == "TTFT above the limit":
        least, limit = document["ttft_unloaded_s"], slo["ttft_s"]
        why = (
            f"No rate meets this TTFT: that of a mean turn is {show(least, 's')} without any load."
            if least is not None and least > limit
            else "The rate is above capacity (--find-capacity finds it)."
        )
        span = f"{_seconds(document['warm_up_s'])} to {_seconds(document['simulated_s'])}"
        yield Paragraph(f"{why} Figures below are of all turns that ended from {span}.")
    elif document["stopped"] == "interrupted":
        yield Paragraph(f"Interrupted after {_seconds(document['simulated_s'])} of simulated time.")


SPREADS = {
    "TTFT": "ttft_s",
    "TTST": "ttst_s",
    "TPOT": "tpot_s",
    "agent, start to end": "agent_time_s",
    "wait for admission": "admission_wait_s",
}
QUANTILES = ("mean", "p50", "p90", "p99")


def _result(document: dict[str, Any]) -> Iterator[Block]:
    yield Paragraph(
        f"{document['turns']:,} turns, {significant(document['turns_per_s'])} turns/s, "
        f"{_tokens(document['prompt_tokens_per_s'])} prompt tok/s, "
        f"{_tokens(document['output_tokens_per_s'])} output tok/s"
    )
    rows = [
        (title, *(show(document[key][name], "s") for name in QUANTILES))
        for title, key in SPREADS.items()
        if document[key] is not None
    ]
    yield from (GAP, table("", ("", *QUANTILES), rows, "lrrrr", widths=(20, 7, 7, 7, 7)), GAP)
    shares = ", ".join(
        f"{name} {100 * share:.0f} %" for name, share in document["ttft_shares"].items() if share is not None
    )
    peak = document["peaks"]
    facts = {
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
        facts["Agents"] = (
            f"{done:,} of {of:,} ended in the run, the shorter ones first; one takes about {show(expected, 's')}"
        )
    roles = [("Roles", _role_change(change)) for change in document["role_changes"]]
    yield Facts((*facts.items(), *roles), room=KEYS)
    yield from (GAP, *_resources(document))


def _share(value: float) -> str:
    """A share in per cent; of what is many times over, how many times."""
    return f"{100 * value:.0f} %" if value < 10 else f"{significant(value, 2)}x"


def _tokens(rate: float) -> str:
    """Tokens/s with a prefix."""
    return show(rate, "1") if rate < 1e3 else show(rate, "").rstrip()


def _role_change(change: dict[str, Any]) -> str:
    nodes = f"{change['prefill_nodes']}P{change['decode_nodes']}D"
    return f"{nodes} decided at {_seconds(change['decided_s'])}, ready at {_seconds(change['ready_s'])}"


def _resources(document: dict[str, Any]) -> Iterator[Block]:
    rows = []
    for use in document["resources"]:
        if use["utilization"] < SHOWN_SHARE:
            continue
        title = TITLES[use["name"]] + (f" ({use['detail']})" if use["detail"] else "")
        if use["name"] == "prefill_compute":
            rows.append((title, _share(use["capacity_used"]), "-", "-"))
            title = "prefill passes running"
        uneven = "-" if use["max_over_mean"] is None else f"{use['max_over_mean']:.2f}"
        rows.append((title[:28], _share(use["utilization"]), _share(use["peak_utilization"]), uneven))
    yield table("", ("Used", "mean", "busiest", "max/mean"), rows, "lrrr", widths=(28, 6, 7, 8))
    whole = " All other shares, and the sequences that decode, are of the whole run, its filling included."
    yield Paragraph(
        "prefill compute is work over that of full passes, as feasible counts; passes run while any turn is there, so "
        f"their busy share is high at any load.{whole if document['warm_up_s'] else ''}",
        "note",
        hanging=0,
    )


def _rows(documents: Sequence[dict[str, Any]]) -> Iterator[Block]:
    first, key = documents[0], gain_key(documents)
    heads: tuple[str, ...]
    if "capacity_agents_per_s" in first:
        heads = ("mode", "agents/s", "missed at", "turns/s", "TTFT", "TPOT", "against")
    elif first["kind"] == "offline":
        heads = ("mode", "JCT", "turns/s", "TTFT", "TPOT", "speed-up")
    else:
        heads = ("mode", "turns/s", "TTFT", "TTST", "TPOT", "SLO", "TTFT gain")
    rows = [(row["label"], *_cells(row, f"{significant(row[key])}x" if row[key] else "-")) for row in documents]
    yield table("", heads, rows, "l" + "r" * (len(heads) - 1), flow="w" + "." * (len(heads) - 1), below=True)
    gains = {row["label"]: row[key] for row in documents}
    if gains.get("split-read") and gains.get("dual-path"):
        gain = 100 * (gains["split-read"] / gains["dual-path"] - 1)
        yield Paragraph(f"Splitting each read over both sides gains {gain:+.1f} % over dual-path.")
    for row in documents:
        if "capacity_agents_per_s" in row:
            about, missed = f"{row['label']} at {significant(row['interval'][1] or 0.0)}", row["upper_missed_by"]
        else:
            about, missed = f"{row['label']} misses", row["missed_by"]
        for miss in missed:
            yield Paragraph(f"{about}: {miss['text']}")
        for change in row["role_changes"]:
            yield Paragraph(f"{row['label']}: {_role_change(change)}")


def _cells(row: dict[str, Any], gain: str) -> tuple[str, ...]:
    """A row of several modes, from its second cell on."""
    rate = significant(row["turns_per_s"])
    ttft, tpot = show(row["ttft_s"]["mean"], "s"), show(row["tpot_s"]["mean"], "s")
    if "capacity_agents_per_s" in row:
        low, high = row["interval"]
        return significant(low), "-" if high is None else significant(high), rate, ttft, tpot, gain
    if row["kind"] == "offline":
        return _seconds(row["jct_s"]), rate, ttft, tpot, gain
    return rate, ttft, show(row["ttst_s"]["mean"], "s"), tpot, "met" if row["slo_met"] else "missed", gain


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s" if value >= 100 else show(value, "s")
