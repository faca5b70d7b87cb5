"""The answer of ``feasible`` as a JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.model.closed_form import Range
from dualplan.model.service_times import Intervals
from dualplan.plan.assumptions import assumptions, inputs_sha256, sources
from dualplan.report.near_limit import near_limit_document
from dualplan.report.records import pick, pick_all, pick_or_none
from dualplan.spec.workload import mean_turns
from dualplan.steady.answer import Evaluation
from dualplan.steady.rate import Load

if TYPE_CHECKING:
    from dualplan.plan.uncertainty import Uncertainty

SCHEMA = "dualplan/feasible/1"
INPUTS = """
    name=settings.name hardware=hardware.name decode_hardware=decode_hardware.name model=model.name
    workload=workload.name
"""
"""The inputs of a scenario by name."""

TURN = """
    context_tokens=context hit_tokens computed_tokens generated_tokens=generated
    hit_bytes=amounts.hit miss_bytes=amounts.miss generated_bytes=amounts.generated
    prefill_collective_bytes=amounts.prefill_collective decode_collective_bytes=amounts.decode_collective
    prefill_gpu_seconds decode_step_base_s=decode_base decode_step_per_sequence_s=decode_slope
    decode_step_per_square_s=decode_quadratic
"""
RESOURCE = "name side load capacity unit utilization"


def document(answer: Evaluation, uncertainty: Uncertainty | None = None) -> dict[str, Any]:
    """The JSON document; keys and units as dualplan/feasible/1 has them."""
    demand, settings = answer.demand, answer.scenario.settings
    turns = answer.turns_per_s
    scenario = answer.scenario
    check, ranges = answer.demand_check, answer.ranges
    return {
        "schema": SCHEMA,
        "feasible": answer.feasible,
        "reasons": list(answer.reasons),
        **pick(scenario, INPUTS),
        **pick(settings, "mode staging copy persist policy"),
        "prefill_nodes": answer.prefill_nodes,
        "decode_nodes": answer.decode_nodes,
        "pd_ratio": answer.prefill_nodes / answer.decode_nodes,
        "range": _range(ranges.all_traffic),
        "paper_range": _range(ranges.paper),
        "effective_range": _range(ranges.effective),
        "throughput": {
            "turns_per_s": turns,
            "agents_per_s": turns / mean_turns(scenario.workload),
            "prompt_tokens_per_s": turns * demand.prompt_tokens,
            "computed_tokens_per_s": turns * demand.computed_tokens,
            "output_tokens_per_s": turns * demand.generated,
        },
        "bottleneck": pick(answer.bottleneck, "resource side utilization detail next next_gain"),
        "resources": [_resource(load) for load in answer.loads],
        "classes": msgspec.to_builtins(answer.classes),
        **pick(answer, "decode_read_share speedup_over_basic balance"),
        "collective_load": pick(answer.collectives, "prefill decode origin"),
        "qos": _qos(answer),
        "flow_check": _flow_check(answer),
        "splits": [
            pick(split, "prefill_nodes decode_nodes feasible turns_per_s bottleneck") for split in answer.splits
        ],
        "demand": pick_or_none(check, "turns_per_s utilization headroom"),
        "near_limit": None if check is None else near_limit_document(check.utilization),
        "latency": pick(answer, "ttft_unloaded_s tpot_s") | {"ttft_is_lower_bound": True},
        "turn": pick(demand, TURN)
        | {
            "prefill_pass_base_s": None if demand.passes is None else demand.passes.base,
            "prefill_pass_excess_turns": None if demand.passes is None else demand.passes.excess,
            "kv_format": demand.kv_format,
        },
        "parallel": {side: pick(getattr(answer, f"{side}_parallel"), "ep tp dp") for side in ("prefill", "decode")},
        "memory": {
            side: pick(memory, "weight_bytes_per_gpu usable_bytes_per_gpu kv_bytes_per_gpu")
            for side, memory in answer.memory.items()
        },
        "pair_traffic_prefill_read_bytes_per_s": answer.pair_traffic[0],
        "pair_traffic_decode_read_bytes_per_s": answer.pair_traffic[1],
        "uncertainty": None if uncertainty is None else _uncertainty(uncertainty),
        "compute_times": demand.compute_origin,
        "service_times": {"origin": demand.compute_origin, "interval": interval_document(demand.interval)},
        "assumptions": list(assumptions(answer)),
        "sources": sources(scenario),
        "inputs_sha256": inputs_sha256(answer),
    }


def interval_document(interval: Intervals | None) -> dict[str, list[float]] | None:
    """By figure, the relative deviations between which the true one lies in 80 of 100 cases; None where unknown."""
    if interval is None:
        return None
    figures = {name: getattr(interval, name) for name in ("tpot", "ttft", "prefill_rate")}
    return {name: [figure.low - 1, figure.high - 1] for name, figure in figures.items()}


def _uncertainty(found: Uncertainty) -> dict[str, Any]:
    from dualplan.report.uncertainty import document as uncertainty_document

    return uncertainty_document(found)


def _qos(answer: Evaluation) -> dict[str, Any]:
    """What the arbiter of the compute network guarantees KV traffic, and what it gets at this collective load."""
    collectives = answer.collectives
    return {
        side: {
            "kv_guaranteed_share": collectives.kv_floor[index],
            "kv_available_share": collectives.kv_available[index],
        }
        for index, side in enumerate(("prefill", "decode"))
    }


def _flow_check(answer: Evaluation) -> dict[str, Any] | None:
    """The flow problem over all pairs of nodes, where it was solved."""
    pairs = answer.pairs
    if pairs is None:
        return None
    return {
        "turns_per_s": pairs.turns_per_s,
        "closed_form_turns_per_s": answer.closed_form_turns_per_s,
        "relative_difference": pairs.turns_per_s / answer.closed_form_turns_per_s - 1,
        "nodes_differ": bool(answer.scenario.variants),
        "binding": [
            pick(one, "resource=resource.name nodes=label differs share_of_turns=share") for one in pairs.binding
        ],
        "classes": pick_all(pairs.classes, "side nodes label turns_per_s"),
    }


def _range(found: Range) -> dict[str, Any]:
    return {
        "lower": None if found.lower is None else float(found.lower),
        "upper": None if found.upper is None else float(found.upper),
        "lower_exact": None if found.lower is None else str(found.lower),
        "upper_exact": None if found.upper is None else str(found.upper),
        "lower_constraint": found.lower_constraints[0] if found.lower_constraints else None,
        "upper_constraint": found.upper_constraints[0] if found.upper_constraints else None,
        **pick(found, "lower_constraints upper_constraints"),
        "empty_because": list(found.empty_because) or None,
        "crossing": None if found.crossing is None else [float(bound) for bound in found.crossing],
    }


def _resource(load: Load) -> dict[str, Any]:
    entry = pick(load, RESOURCE)
    if load.unit == "B/s":
        entry |= {"load_bytes_per_s": load.load, "capacity_bytes_per_s": load.capacity}
    if load.detail:
        entry["detail"] = load.detail
    return entry
