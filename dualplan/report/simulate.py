"""The answer of ``simulate`` for people and for machines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.plan.assumptions import sources
from dualplan.report.output import Output, csv_text
from dualplan.serving import layout as k
from dualplan.serving.result import Result, Slo, Spread, meets
from dualplan.serving.run import Capacity
from dualplan.serving.trajectories import Trajectories
from dualplan.units import show, significant

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "dualplan/simulate/1"
SERIES = (
    ("time_s", k.S_TIME),
    ("waiting_turns", k.S_WAITING),
    ("prefilling_turns", k.S_PREFILLING),
    ("decoding_turns", k.S_DECODING),
    ("turns_done", k.S_TURNS),
    ("working_set_bytes", k.S_WORKING_SET),
    ("read_bytes", k.S_READ),
)
POINTS = 100
"""Most points of a series in the JSON document."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gave: one result a mode (offline: several runs), or one capacity a mode.

    ``job_times``: completion times of all runs of a mode [s], for the interval. ``options``: what the call asked for.
    """

    results: tuple[Result, ...] = ()
    job_times: tuple[tuple[float, ...], ...] = ()
    capacities: tuple[Capacity, ...] = ()
    slo: Slo
    slo_given: bool
    trajectories: Trajectories
    options: dict[str, Any]


def output(answer: Answer) -> Output:
    """The result in all formats; csv, jsonl and md hold one row a mode."""
    documents = [_one(answer, i) for i in range(max(len(answer.results), len(answer.capacities)))]
    data = {"schema": SCHEMA, **documents[0]}
    if len(documents) > 1:
        data = {"schema": SCHEMA, "modes": [_with_gain(document, documents) for document in documents]}
    rows = [
        {key: value for key, value in _with_gain(document, documents).items() if key not in ("series", "sources")}
        for document in documents
    ]
    return Output(data=data, rows=rows, text=lambda console: _show(answer, documents, console))


def infeasible(reasons: Sequence[str]) -> Output:
    """The answer where nothing can be run: why, in all formats."""

    def text(console: Console) -> None:
        for reason in reasons:
            console.print(reason)

    data = {"schema": SCHEMA, "reasons": list(reasons)}
    return Output(data=data, rows=[{"reason": reason} for reason in reasons], text=text)


# ---------------------------------------------------------------- machines


def _one(answer: Answer, index: int) -> dict[str, Any]:
    if answer.capacities:
        found = answer.capacities[index]
        best = _last_met(found)
        return {
            "mode": best.cluster.mode,
            "capacity_agents_per_s": found.met,
            "interval": [found.met, found.missed],
            "runs": [
                {
                    "arrival_rate": run.arrival_rate,
                    "ttft_mean_s": run.ttft_s.mean,
                    "tpot_mean_s": run.tpot_s.mean,
                    "slo_met": meets(run, found.slo),
                    "stopped": run.stopped,
                }
                for run in found.results
            ],
            **_result(answer, best),
        }
    times = answer.job_times[index] if answer.job_times else ()
    document = _result(answer, answer.results[index])
    if len(times) > 1:
        document["jct_s"] = sum(times) / len(times)
        document["jct_runs_s"] = list(times)
        document["jct_interval_s"] = [min(times), max(times)]
    return document


def _last_met(found: Capacity) -> Result:
    met = [run for run in found.results if run.arrival_rate is not None and run.arrival_rate <= found.met]
    return met[-1] if met else found.results[0]


def _result(answer: Answer, result: Result) -> dict[str, Any]:
    laid, scenario = result.cluster, result.cluster.scenario
    whole = result.ttft_s.mean or 0.0
    document: dict[str, Any] = {
        "kind": result.kind,
        "name": scenario.settings.name,
        "hardware": scenario.hardware.name,
        "decode_hardware": scenario.decode_hardware.name,
        "model": scenario.model.name,
        "workload": scenario.workload.name,
        "mode": laid.mode,
        "policies": msgspec.to_builtins(laid.policies),
        "prefill_nodes": laid.prefill.nodes,
        "decode_nodes": laid.decode.nodes,
        "seed": result.seed,
        "parameters": laid.times.name,
        "agents": result.agents,
        "agents_done": result.agents_done,
        "arrival_rate": result.arrival_rate,
        "stopped": result.stopped,
        "simulated_s": result.simulated_s,
        "warm_up_s": result.warm_up_s,
        "steady": result.steady,
        "jct_s": result.jct_s,
        "jct_interval_s": None,
        "turns": result.turns,
        "turns_per_s": result.turns_per_s,
        "prompt_tokens_per_s": result.prompt_tokens_per_s,
        "output_tokens_per_s": result.output_tokens_per_s,
        "ttft_s": _spread(result.ttft_s),
        "ttst_s": _spread(result.ttst_s),
        "tpot_s": _spread(result.tpot_s),
        "agent_time_s": _spread(result.agent_time_s),
        "slo": {"ttft_s": answer.slo.ttft, "tpot_s": answer.slo.tpot, "of": "means", "given": answer.slo_given},
        "slo_met": meets(result, answer.slo) if result.kind == "online" else None,
        "ttft_parts_s": result.ttft_parts_s,
        "ttft_shares": {name: value / whole if whole else None for name, value in result.ttft_parts_s.items()},
        "turns_in_system": result.in_system,
        "decode_read_share": result.decode_read_share,
        "turns_waiting_at_end": len(result.waits_s),
        "wait_at_end_mean_s": float(result.waits_s.mean()) if len(result.waits_s) else None,
        "utilization": result.utilization,
        "decode_batch_per_engine": result.decode_batch_per_engine,
        "max_over_mean": result.max_over_mean,
        "peaks": result.peaks,
        "working_set_mean_bytes": result.mean_working_set_bytes,
        "totals": result.totals,
        "parallel": {
            "prefill": msgspec.to_builtins(laid.prefill.parallel),
            "decode": msgspec.to_builtins(laid.decode.parallel),
        },
        "memory": {
            side: {"kv_bytes_per_engine": layout.room, "weight_bytes_per_gpu": layout.memory.weight_bytes_per_gpu}
            for side, layout in (("prefill", laid.prefill), ("decode", laid.decode))
        },
        "series": _series(result),
        "assumptions": assumptions(answer, result),
        "sources": sources(scenario),
        "inputs_sha256": _hash(answer, result),
    }
    return document


def _spread(spread: Spread) -> dict[str, float | None]:
    return {"mean": spread.mean, "p50": spread.p50, "p90": spread.p90, "p99": spread.p99}


def _series(result: Result) -> dict[str, list[float]]:
    step = max(-(-len(result.samples) // POINTS), 1)
    return {name: [float(value) for value in result.samples[::step, column]] for name, column in SERIES}


def _hash(answer: Answer, result: Result) -> str:
    scenario = msgspec.structs.replace(result.cluster.scenario, origins={})
    text = msgspec.json.encode([scenario, answer.options, result.cluster.times], order="deterministic")
    return hashlib.sha256(text).hexdigest()


def _with_gain(document: dict[str, Any], documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A document with what its mode gains over the first one: in completion time, in capacity, or in TTFT."""
    if len(documents) == 1:
        return document
    first = documents[0]
    if "capacity_agents_per_s" in document:
        gain = _quotient(document["capacity_agents_per_s"], first["capacity_agents_per_s"])
    elif document["kind"] == "offline":
        gain = _quotient(first["jct_s"], document["jct_s"])
    else:
        gain = _quotient(first["ttft_s"]["mean"], document["ttft_s"]["mean"])
    return {**document, f"speedup_over_{first['mode'].replace('-', '_')}": gain}


def _quotient(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


def assumptions(answer: Answer, result: Result) -> list[str]:
    """What the figures rest on, a phrase each."""
    laid = result.cluster
    found = [f"service times: {laid.times.origin}", f"workload: {answer.trajectories.origin}", *laid.notes]
    if result.kind == "online":
        found.append(
            f"run of {result.simulated_s:.0f} s, turns that end in the first {result.warm_up_s:.0f} s do not count; "
            "capacity and completion times depend on the length of the run"
        )
        origin = "given" if answer.slo_given else "default, DualPath section 7"
        found.append(
            f"SLO on means: TTFT {show(answer.slo.ttft, 's')}, TPOT {show(answer.slo.tpot, 's')} ({origin}); agents "
            "count in completion times when they end before the run does"
        )
    found += [
        "storage NICs serve reads in the order of issue; the compute network and DRAM are taken not to bind (see: "
        "dualplan feasible)",
        "decode HBM is reserved from the placement of a turn to its end; host buffers are not limited, their peak is "
        "reported",
    ]
    if laid.mode == "basic":
        found.append("basic holds the KV of a batch in prefill HBM, half of the room for reading, half for computing")
    return found


def timeline(results: Sequence[Result], form: str) -> str:
    """The state over time, of all modes: ``csv`` columns, else trace events that Perfetto and Chrome show as counters.

    Both have every sample of a run. Times of trace events are in microseconds of simulated time.
    """
    if form == "csv":
        rows = [
            {"mode": result.cluster.mode, **{name: float(sample[column]) for name, column in SERIES}}
            for result in results
            for sample in result.samples
        ]
        return csv_text(rows)
    events: list[dict[str, Any]] = []
    for number, result in enumerate(results):
        name = {"name": "process_name", "ph": "M", "pid": number, "args": {"name": f"mode {result.cluster.mode}"}}
        events.append(name)
        for sample in result.samples:
            at = {"ph": "C", "pid": number, "ts": 1e6 * float(sample[k.S_TIME])}
            turns = {
                "waiting": float(sample[k.S_WAITING]),
                "prefilling": float(sample[k.S_PREFILLING]),
                "decoding": float(sample[k.S_DECODING]),
            }
            events.append({"name": "turns", **at, "args": turns})
            events.append({"name": "turns done", **at, "args": {"turns": float(sample[k.S_TURNS])}})
            events.append({"name": "working set", **at, "args": {"bytes": float(sample[k.S_WORKING_SET])}})
            events.append({"name": "read from storage", **at, "args": {"bytes": float(sample[k.S_READ])}})
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n"


# ---------------------------------------------------------------- people


def _show(answer: Answer, documents: Sequence[dict[str, Any]], console: Console) -> None:
    first = documents[0]
    nodes = f"{first['prefill_nodes']}P{first['decode_nodes']}D"
    console.print(f"{first['model']} · {first['hardware']} · {first['workload']} · {nodes}", style="bold")
    console.print()
    if len(documents) > 1:
        _show_modes(documents, console)
    elif "capacity_agents_per_s" in first:
        console.print(f"  {_capacity_line(first)}")
        _show_result(answer, first, console)
    else:
        _show_headline(first, console)
        _show_result(answer, first, console)
    console.print()
    console.print("  Assumed (all figures and their sources: --json)", style="dim")
    results = [_last_met(found) for found in answer.capacities] or list(answer.results)
    for line in assumptions(answer, results[0]):
        console.print(_wrapped(line, console.width))


def _capacity_line(document: dict[str, Any]) -> str:
    low, high = document["interval"]
    mode = document["mode"]
    if high is None:
        return f"{significant(low)} agents/s in mode {mode} meet the SLO, the highest rate tried"
    if not low:
        return f"SLO MISSED  no rate meets the SLO in mode {mode}, down to {significant(high)} agents/s"
    return f"{significant(low)} agents/s in mode {mode} meet the SLO; {significant(high)} do not"


def _wrapped(line: str, width: int) -> str:
    import textwrap

    return textwrap.fill(line, min(width, 100), initial_indent="  - ", subsequent_indent="    ")


def _show_headline(document: dict[str, Any], console: Console) -> None:
    mode = document["mode"]
    if document["kind"] == "offline":
        if document["jct_s"] is None:
            console.print(
                f"  STOPPED  {document['agents_done']} of {document['agents']} agents done after "
                f"{_seconds(document['simulated_s'])} ({document['stopped']})"
            )
            return
        interval = document.get("jct_interval_s")
        several = f", {_seconds(interval[0])} to {_seconds(interval[1])} over the runs" if interval else ""
        console.print(f"  {_seconds(document['jct_s'])} for {document['agents']} agents in mode {mode}{several}")
        return
    verdict = "SLO MET" if document["slo_met"] else "SLO MISSED"
    rate = document["arrival_rate"]
    asked = "at the times of the trace" if rate is None else f"at {significant(rate)} agents/s"
    console.print(f"  {verdict}  {asked} in mode {mode}", style="green" if document["slo_met"] else "red")
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


def _show_result(answer: Answer, document: dict[str, Any], console: Console) -> None:
    console.print(
        f"  {document['turns']:,} turns, {significant(document['turns_per_s'])} turns/s, "
        f"{significant(document['prompt_tokens_per_s'] / 1e6)} M prompt tok/s, "
        f"{significant(document['output_tokens_per_s'] / 1e3)} k output tok/s"
    )
    console.print()
    console.print(f"  {'':22}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}", style="bold")
    for title, key in (
        ("TTFT", "ttft_s"),
        ("TTST", "ttst_s"),
        ("TPOT", "tpot_s"),
        ("agent, start to end", "agent_time_s"),
    ):
        cells = "".join(f"{show(document[key][name], 's'):>10}" for name in ("mean", "p50", "p90", "p99"))
        console.print(f"  {title:22}{cells}")
    console.print()
    shares = ", ".join(
        f"{name} {100 * share:.0f} %" for name, share in document["ttft_shares"].items() if share is not None
    )
    console.print(f"  TTFT is      {shares}")
    used = document["utilization"]
    console.print(
        f"  Busy         prefill storage NICs {100 * used['prefill_snic_ingress']:.0f} %, decode storage NICs "
        f"{100 * used['decode_snic_ingress']:.0f} %,"
    )
    console.print(
        f"               prefill passes {100 * used['prefill_compute']:.0f} %; "
        f"{significant(document['decode_batch_per_engine'])} sequences a decode engine"
    )
    peak = document["peaks"]
    console.print(
        f"  Working set  {show(document['working_set_mean_bytes'], 'B')} on average, at most "
        f"{show(peak['working_set_bytes'], 'B')}"
    )
    console.print(
        f"  Host buffer  at most {show(peak['prefill_buffer_bytes_per_node'], 'B')} a prefill node, "
        f"{show(peak['decode_buffer_bytes_per_node'], 'B')} a decode node"
    )


def _show_modes(documents: Sequence[dict[str, Any]], console: Console) -> None:
    first = documents[0]
    if "capacity_agents_per_s" in first:
        console.print(f"  {'mode':12}{'agents/s':>10}{'not':>10}{'TTFT':>10}{'TPOT':>10}{'against':>10}", style="bold")
    elif first["kind"] == "offline":
        console.print(f"  {'mode':12}{'JCT':>10}{'turns/s':>10}{'TTFT':>10}{'TPOT':>10}{'speed-up':>10}", style="bold")
    else:
        console.print(f"  {'mode':12}{'TTFT':>10}{'TTST':>10}{'TPOT':>10}{'SLO':>10}{'speed-up':>10}", style="bold")
    for document in documents:
        row = _with_gain(document, documents)
        gain = row[f"speedup_over_{first['mode'].replace('-', '_')}"]
        times = f"{significant(gain)}x" if gain else "-"
        ttft, tpot = show(row["ttft_s"]["mean"], "s"), show(row["tpot_s"]["mean"], "s")
        if "capacity_agents_per_s" in row:
            low, high = row["interval"]
            cells = (significant(low), "-" if high is None else significant(high), ttft, tpot, times)
        elif row["kind"] == "offline":
            cells = (_seconds(row["jct_s"]), significant(row["turns_per_s"]), ttft, tpot, times)
        else:
            cells = (ttft, show(row["ttst_s"]["mean"], "s"), tpot, "met" if row["slo_met"] else "missed", times)
        console.print(f"  {row['mode']:12}" + "".join(f"{cell:>10}" for cell in cells))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s" if value >= 100 else show(value, "s")
