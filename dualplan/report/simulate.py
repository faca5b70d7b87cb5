"""The answer of ``simulate`` for machines, and its assumptions; ``simulate_text`` is the view for people."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from dualplan.plan.assumptions import sources
from dualplan.plan.simulation import ResourceUse, resources, series
from dualplan.report.blocks import Block, Paragraph
from dualplan.report.feasible_document import INPUTS
from dualplan.report.output import Output
from dualplan.report.records import pick, pick_all
from dualplan.serving import layout as k
from dualplan.serving.result import Result, Spread, misses
from dualplan.serving.run import Capacity
from dualplan.serving.trajectories import Trajectories
from dualplan.spec.run import Slo
from dualplan.steady.answer import evaluate
from dualplan.steady.resources import TITLES
from dualplan.units import show, significant

SCHEMA = "dualplan/simulate/1"
SERIES = (
    ("time_s", k.S_TIME),
    ("waiting_agents", k.S_UNADMITTED),
    ("waiting_turns", k.S_WAITING),
    ("prefilling_turns", k.S_PREFILLING),
    ("decoding_turns", k.S_DECODING),
    ("turns_done", k.S_TURNS),
    ("working_set_bytes", k.S_WORKING_SET),
    ("read_bytes", k.S_READ),
    ("prefill_buffer_bytes", k.S_PREFILL_BUFFER),
    ("decode_buffer_bytes", k.S_DECODE_BUFFER),
)
RUN = """
    agents agents_done agents_waiting_at_end=agents_waiting arrival_rate stopped simulated_s warm_up_s steady
    ttft_halves_s
"""
RATES = "turns turns_per_s prompt_tokens_per_s output_tokens_per_s"
USE = """
    name detail utilization peak_utilization=peak capacity_used max_over_mean can_bind=simulated
"""
POINTS = 100
"""Most points of a series in the JSON document."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gave: one result a row (offline: several runs), or one capacity a row.

    ``job_times``: completion times of all runs of a row [s], for the interval. ``options``: what the call asked for.
    ``slo_given``: the limits that were given, the others are defaults. ``interrupted``: some of it was not run;
    ``left_out`` names the rows that are missing. ``notes``: what a reader must know, a sentence each.
    """

    results: tuple[Result, ...] = ()
    job_times: tuple[tuple[float, ...], ...] = ()
    capacities: tuple[Capacity, ...] = ()
    slo: Slo
    slo_given: tuple[str, ...]
    trajectories: Trajectories
    options: list[Any]
    interrupted: bool = False
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[Result, ...]:
        """The result that stands for each row: of a capacity, the run at the highest rate that was met."""
        return tuple(found.best for found in self.capacities) or self.results


def output(answer: Answer) -> Output:
    """The result in all formats; csv, jsonl and md hold one row a mode."""
    documents = [_one(answer, i) for i in range(len(answer.shown))]
    rows = [_with_gain(document, documents) for document in documents]
    data: dict[str, Any] = {"schema": SCHEMA, **documents[0]}
    if len(documents) > 1 or answer.left_out:
        data = {"schema": SCHEMA, "modes": rows}
    if answer.interrupted:
        data |= {"interrupted": True, "not_run": list(answer.left_out)}
    flat = [{key: value for key, value in row.items() if key not in ("series", "sources", "resources")} for row in rows]

    def view() -> Iterable[Block]:
        from dualplan.report.simulate_text import view

        return view(answer, rows)

    return Output(data=data, rows=flat, view=view)


def infeasible(reasons: Sequence[str]) -> Output:
    """The answer where nothing can be run: why, in all formats."""
    view = [Paragraph(reason, indent=0) for reason in reasons]
    data = {"schema": SCHEMA, "reasons": list(reasons)}
    return Output(data=data, rows=[{"reason": reason} for reason in reasons], view=lambda: view)


def _one(answer: Answer, index: int) -> dict[str, Any]:
    result = answer.shown[index]
    if answer.capacities:
        found = answer.capacities[index]
        return {
            "mode": result.cluster.mode,
            "capacity_agents_per_s": found.met,
            "interval": [found.met, found.missed],
            "interval_closed": not found.interrupted,
            "upper_missed_by": [] if found.beyond is None else _missed_by(found.beyond, found.slo),
            "runs": [
                {
                    **pick(run, "arrival_rate ttft_mean_s=ttft_s.mean tpot_mean_s=tpot_s.mean"),
                    "slo_met": not misses(run, found.slo),
                    "missed_by": _missed_by(run, found.slo),
                    "stopped": run.stopped,
                }
                for run in found.results
            ],
            **_result(answer, result),
        }
    times = answer.job_times[index] if answer.job_times else ()
    document = _result(answer, result)
    if len(times) > 1:
        document["jct_s"] = sum(times) / len(times)
        document["jct_runs_s"] = list(times)
        document["jct_interval_s"] = [min(times), max(times)]
    return document


def _result(answer: Answer, result: Result) -> dict[str, Any]:
    laid, scenario = result.cluster, result.cluster.scenario
    whole = result.ttft_s.mean or 0.0
    used = resources(result)
    missed = _missed_by(result, answer.slo) if result.kind == "online" else []
    document: dict[str, Any] = {
        **pick(result, "kind label"),
        **pick(scenario, INPUTS),
        "mode": laid.mode,
        "policies": msgspec.to_builtins(laid.policies),
        **pick(scenario.settings, "prefill_nodes decode_nodes"),
        "clusters": laid.clusters,
        "max_active": laid.max_active or None,
        **pick(result, f"role_changes=changes seed parameters=cluster.times.name {RUN}"),
        "jct_s": result.jct_s,
        "jct_interval_s": None,
        **pick(result, RATES),
        "ttft_s": _spread(result.ttft_s),
        "ttst_s": _spread(result.ttst_s),
        "tpot_s": _spread(result.tpot_s),
        "agent_time_s": _spread(result.agent_time_s),
        "expected_agent_time_s": result.expected_agent_time_s,
        "admission_wait_s": _spread(result.admission_s) if laid.max_active else None,
        "slo": {
            "ttft_s": answer.slo.ttft,
            "tpot_s": answer.slo.tpot,
            "of": "means",
            "given": list(answer.slo_given),
            "defaults": [name for name in ("ttft", "tpot") if name not in answer.slo_given],
        },
        "ttft_unloaded_s": _unloaded(result) if result.stopped == "TTFT above the limit" else None,
        "slo_met": not missed if result.kind == "online" else None,
        "missed_by": missed,
        "slices": msgspec.to_builtins(result.slices),
        "ttft_parts_s": result.ttft_parts_s,
        "ttft_shares": {name: value / whole if whole else None for name, value in result.ttft_parts_s.items()},
        **pick(result, "turns_in_system=in_system decode_read_share"),
        "turns_waiting_at_end": len(result.waits_s),
        "wait_at_end_mean_s": float(result.waits_s.mean()) if len(result.waits_s) else None,
        "utilization": {_key(use): use.utilization for use in used},
        **pick(result, "prefill_capacity_used decode_batch_per_engine max_over_mean"),
        "resources": pick_all(used, USE),
        "over_capacity": [{"resource": use.name, "times": use.over} for use in used if use.over is not None],
        **pick(result, "peaks working_set_mean_bytes=mean_working_set_bytes totals"),
        "parallel": {
            "prefill": msgspec.to_builtins(laid.prefill.parallel),
            "decode": msgspec.to_builtins(laid.decode.parallel),
        },
        "memory": {
            side: pick(layout, "kv_bytes_per_engine=room weight_bytes_per_gpu=memory.weight_bytes_per_gpu")
            for side, layout in (("prefill", laid.prefill), ("decode", laid.decode))
        },
        "series": _series(result),
        "notes": [*answer.notes, *notes(answer, result, used)],
        "assumptions": assumptions(answer, result),
        "sources": sources(scenario),
        "inputs_sha256": _hash(answer, result),
    }
    return document


def _unloaded(result: Result) -> float:
    """TTFT of a mean turn that meets no other [s]: what no rate can better."""
    laid = result.cluster
    settings = msgspec.structs.replace(laid.scenario.settings, mode=laid.mode)
    return evaluate(msgspec.structs.replace(laid.scenario, settings=settings)).ttft_unloaded_s


def _key(use: ResourceUse) -> str:
    return f"{use.name} ({use.detail})" if use.detail else use.name


def _missed_by(result: Result, slo: Slo) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(miss) for miss in misses(result, slo)]


def _spread(spread: Spread) -> dict[str, float | None]:
    return pick(spread, "mean p50 p90 p99")


def _points(result: Result) -> Any:
    """Samples of a series in the document: at most POINTS, the last one among them."""
    last = len(result.samples) - 1
    step = max(-(-last // POINTS), 1)
    return np.unique(np.append(np.arange(step - 1, last, step), last))


def _series(result: Result) -> dict[str, Any]:
    at = _points(result)
    columns: dict[str, Any] = {name: result.samples[at, column].tolist() for name, column in SERIES}
    over_time = series(result, at)
    columns["utilization"] = {name: values.tolist() for name, values in over_time.utilization.items()}
    columns["max_over_mean"] = {
        name: [None if np.isnan(value) else float(value) for value in values]
        for name, values in over_time.max_over_mean.items()
    }
    return columns


def _hash(answer: Answer, result: Result) -> str:
    scenario = msgspec.structs.replace(result.cluster.scenario, origins={})
    text = msgspec.json.encode([scenario, answer.options, result.cluster.times], order="deterministic")
    return hashlib.sha256(text).hexdigest()


def _with_gain(document: dict[str, Any], documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A document with what its row gains over the first one: in completion time, in capacity, or in TTFT."""
    if len(documents) == 1:
        return document
    return {**document, gain_key(documents): _gain(document, documents[0])}


def _gain(document: dict[str, Any], first: dict[str, Any]) -> float | None:
    if "capacity_agents_per_s" in document:
        return _quotient(document["capacity_agents_per_s"], first["capacity_agents_per_s"])
    if document["kind"] == "offline":
        return _quotient(first["jct_s"], document["jct_s"])
    return _quotient(first["ttft_s"]["mean"], document["ttft_s"]["mean"])


def gain_key(documents: Sequence[dict[str, Any]]) -> str:
    """The key of the gain over the first row: ``speedup_over_basic``."""
    words = "".join(c if c.isalnum() else " " for c in documents[0]["label"]).split()
    return "speedup_over_" + "_".join(words)


def _quotient(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


def notes(answer: Answer, result: Result, used: Sequence[ResourceUse]) -> list[str]:
    """What limits the use of a result, a sentence each."""
    found = []
    for use in used:
        if use.over is not None:
            found.append(
                f"{TITLES[use.name]} would have to carry {significant(use.over)} times what it can at its busiest, "
                f"which is not simulated: rates are at most 1/{significant(use.over)} of these there"
            )
    if result.turns and result.tpot_s.mean is None:
        found.append("no turn generates more than its first token, so nothing decodes: there is no TTST and no TPOT")
    if result.kind != "online" or result.stopped != "end of the run":
        return found
    needs, span = result.expected_agent_time_s, result.simulated_s
    short = result.arrival_rate is not None and needs is not None and span < 2 * needs
    if short and needs is not None:
        what = "so the capacity is too high" if answer.capacities else "so the load is not yet what it will be"
        found.append(
            f"the run of {show(span, 's')} is short: an agent takes about {show(needs, 's')} and agents are still "
            f"accumulating, {what}; give a longer --duration, such as {_round_seconds(3 * needs)}"
        )
    if result.steady is False and result.ttft_halves_s is not None:
        first, second = result.ttft_halves_s
        found.append(
            f"not steady: mean TTFT is {show(first, 's')} in the first half of the time that counts and "
            f"{show(second, 's')} in the second; {_to_settle(answer, result, rises=second > first)}"
        )
    return found


def _to_settle(answer: Answer, result: Result, *, rises: bool) -> str:
    """What to do about a run that is not steady."""
    longer = f"--duration {_round_seconds(2 * result.simulated_s)}"
    if result.arrival_rate is None:
        return "a trace need not settle: --warm-up leaves its start out, --timeline shows its load over time"
    if not rises:
        return f"the start still counts: give a longer --warm-up, or {longer}"
    if answer.capacities:
        return f"a longer run may not carry this rate: give {longer}"
    return (
        f"give {longer}; if TTFT goes on rising, the rate is more than is carried for long: a lower --arrival-rate, or "
        "--find-capacity"
    )


def _round_seconds(value: float) -> str:
    """A time of about this many seconds as it is given to a flag."""
    step = 10 ** max(math.floor(math.log10(value)) - 1, 0)
    return f"{math.ceil(value / step) * step:.0f}s"


def assumptions(answer: Answer, result: Result, *more: Result) -> list[str]:
    """What the figures rest on, a phrase each: of a result, and of others that stand beside it."""
    laid, settings = result.cluster, result.cluster.scenario.settings
    found = [f"service times: {laid.times.origin}", f"workload: {answer.trajectories.origin}", *laid.notes]
    runs = max((len(times) for times in answer.job_times), default=0)
    if runs > 1:
        found.append(
            f"completion times are means of {runs} runs, seeds from {result.seed} on; other figures are of the first"
        )
    if result.kind == "online":
        lengths: dict[tuple[float, float], list[str]] = {}
        for one in (result, *more):
            lengths.setdefault((one.simulated_s, one.warm_up_s), []).append(one.label)
        runs_text = "; ".join(
            (f"{', '.join(labels)}: " if len(lengths) > 1 else "")
            + f"run of {length:.0f} s, turns that end in the first {warm_up:.0f} s do not count"
            for (length, warm_up), labels in lengths.items()
        )
        found.append(f"{runs_text}; capacity and completion times depend on the length of the run")
        limits = [
            f"{title} {show(limit, 's')} ({'given' if name in answer.slo_given else 'default, DualPath section 7'})"
            for name, title, limit in (("ttft", "TTFT", answer.slo.ttft), ("tpot", "TPOT", answer.slo.tpot))
        ]
        found.append(
            "SLO on means: " + ", ".join(limits) + "; agents count in completion times when they end before the run"
        )
    found += [
        "storage NICs serve reads in the order of issue; compute network and DRAM do not slow turns, their loads are "
        "checked against what they can carry",
        "decode HBM is reserved from the placement of a turn to its end; a read waits for room in its host buffer",
    ]
    if settings.staging != "host" and laid.mode != "oracle":
        found.append(
            f"staging {settings.staging}: KV is in decode HBM when prefill ends, no copy follows; HBM is reserved from "
            "placement on under every staging, so it does not show that host would hold it for a shorter time"
            + (", prefixes are read into HBM and pass no host buffer" if settings.staging == "gds" else "")
        )
    if laid.mode == "dram-pool":
        found.append(f"a DRAM pool serves {100 * settings.pool_share:.0f} % of the hits without a wait")
    if laid.mode == "basic":
        found.append("basic holds the KV of a batch in prefill HBM, half of the room for reading, half for computing")
    if settings.balance is not None:
        found.append("balance is not used: how even storage NICs are follows from the schedule")
    if settings.collective_load is not None:
        found.append("collective_load only enters the check of compute NICs; it slows no turn")
    if laid.clusters > 1:
        found.append(f"{laid.clusters} clusters of {_nodes(laid, laid.clusters)}, agents dealt to them in turn")
    if laid.max_active:
        found.append(
            f"at most {laid.max_active:,} agents are active, the others wait in their order; TTFT is from admission on"
        )
    if laid.scenario.variants:
        found.append("nodes that differ are the first of their side; the scheduler knows their queues, not their rates")
    return found


def _nodes(laid: Any, clusters: int) -> str:
    settings = laid.scenario.settings
    return f"{settings.prefill_nodes // clusters}P{settings.decode_nodes // clusters}D"
