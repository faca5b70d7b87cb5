"""The answer of ``simulate`` for machines, and its assumptions; ``simulate_text`` is the view for people."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from dualplan.messages import Message, message
from dualplan.plan.assumptions import sources
from dualplan.plan.simulation import ResourceUse, resources, series
from dualplan.report.blocks import Block, Paragraph
from dualplan.report.feasible_document import INPUTS
from dualplan.report.output import Output
from dualplan.report.records import pick, pick_all
from dualplan.serving.capacity import Capacity
from dualplan.serving.result import Result, Spread, misses
from dualplan.serving.trajectories import Trajectories
from dualplan.spec.run import Slo
from dualplan.steady.answer import evaluate
from dualplan.steady.resources import title

SCHEMA = "dualplan/simulate/1"
SERIES = (
    ("time_s", "time"),
    ("waiting_agents", "unadmitted"),
    ("waiting_turns", "waiting"),
    ("prefilling_turns", "prefilling"),
    ("decoding_turns", "decoding"),
    ("turns_done", "turns"),
    ("working_set_bytes", "working_set"),
    ("read_bytes", "read"),
    ("prefill_buffer_bytes", "prefill_buffer"),
    ("decode_buffer_bytes", "decode_buffer"),
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
    columns: dict[str, Any] = {name: result.samples[field][at].tolist() for name, field in SERIES}
    over_time = series(result, at)
    columns["utilization"] = {name: values.tolist() for name, values in over_time.utilization.items()}
    columns["max_over_mean"] = {
        name: [None if np.isnan(value) else float(value) for value in values]
        for name, values in over_time.max_over_mean.items()
    }
    return columns


def _hash(answer: Answer, result: Result) -> str:
    scenario = msgspec.structs.replace(result.cluster.scenario, origins={})
    times = msgspec.structs.replace(result.cluster.times, origin=str(result.cluster.times.origin))
    text = msgspec.json.encode([scenario, answer.options, times], order="deterministic")
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


def notes(answer: Answer, result: Result, used: Sequence[ResourceUse]) -> list[Message]:
    """What limits the use of a result."""
    found = []
    for use in used:
        if use.over is not None:
            found.append(message("note.over", resource=title(use.name), over=use.over))
    if result.turns and result.tpot_s.mean is None:
        found.append(message("note.no_decode"))
    if result.kind != "online" or result.stopped != "end of the run":
        return found
    needs, span = result.expected_agent_time_s, result.simulated_s
    if result.arrival_rate is not None and needs is not None and span < 2 * needs:
        effect = message("note.capacity_too_high" if answer.capacities else "note.load_not_yet")
        longer = _round_seconds(3 * needs)
        found.append(message("note.short", span=span, needs=needs, effect=effect, duration=longer))
    if result.steady is False and result.ttft_halves_s is not None:
        first, second = result.ttft_halves_s
        advice = _to_settle(answer, result, rises=second > first)
        found.append(message("note.not_steady", first=first, second=second, advice=advice))
    return found


def _to_settle(answer: Answer, result: Result, *, rises: bool) -> Message:
    """What to do about a run that is not steady."""
    if result.arrival_rate is None:
        return message("note.trace")
    code = "longer" if answer.capacities else "rising"
    return message(f"note.{code if rises else 'start_counts'}", duration=_round_seconds(2 * result.simulated_s))


def _round_seconds(value: float) -> str:
    """A time of about this many seconds as it is given to a flag."""
    step = 10 ** max(math.floor(math.log10(value)) - 1, 0)
    return f"{math.ceil(value / step) * step:.0f}s"


def assumptions(answer: Answer, result: Result, *more: Result) -> list[Message]:
    """What the figures rest on: of a result, and of others that stand beside it."""
    laid, settings = result.cluster, result.cluster.scenario.settings
    found: list[Message] = []

    def add(code: str, **values: Any) -> None:
        found.append(message(f"simulated.{code}", **values))

    add("service_times", origin=laid.times.origin)
    add("workload", origin=answer.trajectories.origin)
    found += laid.notes
    runs = max((len(times) for times in answer.job_times), default=0)
    if runs > 1:
        add("runs", runs=runs, seed=result.seed)
    if result.kind == "online":
        rows: dict[tuple[float, float], list[str]] = {}
        for one in (result, *more):
            rows.setdefault((one.simulated_s, one.warm_up_s), []).append(one.label)
        add("lengths", lengths=tuple(_length(span, names if len(rows) > 1 else []) for span, names in rows.items()))
        limits = (("ttft", "TTFT", answer.slo.ttft), ("tpot", "TPOT", answer.slo.tpot))
        add("slo", limits=tuple(_limit(name, limit, name_ in answer.slo_given) for name_, name, limit in limits))
    add("order")
    add("reserved")
    if settings.staging != "host" and laid.mode != "oracle":
        gds = message("simulated.gds") if settings.staging == "gds" else ""
        add("staging", staging=settings.staging, gds=gds)
    if laid.mode == "dram-pool":
        add("pool", share=settings.pool_share)
    if laid.mode == "basic":
        add("basic")
    if settings.balance is not None:
        add("balance")
    if settings.collective_load is not None:
        add("collective_load")
    if laid.clusters > 1:
        nodes = (settings.prefill_nodes or 0) // laid.clusters, (settings.decode_nodes or 0) // laid.clusters
        add("clusters", clusters=laid.clusters, prefill=nodes[0], decode=nodes[1])
    if laid.max_active:
        add("max_active", agents=laid.max_active)
    if laid.scenario.variants:
        add("variants")
    return found


def _length(span: tuple[float, float], rows: Sequence[str]) -> Message:
    """Length and warm-up of runs [s], with the rows that they are of where not of all."""
    of = message("simulated.rows", rows=tuple(rows)) if rows else ""
    return message("simulated.length", rows=of, length=span[0], warm_up=span[1])


def _limit(name: str, limit: float, given: bool) -> Message:
    return message(f"simulated.limit_{'given' if given else 'default'}", name=name, limit=limit)
