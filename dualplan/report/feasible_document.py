"""The answer of ``feasible`` as a JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualplan.model.closed_form import Range
from dualplan.plan.assumptions import assumptions, inputs_sha256, sources
from dualplan.report.near_limit import near_limit_document
from dualplan.spec.workload import mean_turns
from dualplan.steady.answer import Evaluation
from dualplan.steady.rate import Load
from dualplan.steady.solved import ClassRate

if TYPE_CHECKING:
    from dualplan.plan.uncertainty import Uncertainty

SCHEMA = "dualplan/feasible/1"


def document(answer: Evaluation, uncertainty: Uncertainty | None = None) -> dict[str, Any]:
    """The JSON document; keys and units as dualplan/feasible/1 has them."""
    demand, settings = answer.demand, answer.scenario.settings
    turns = answer.turns_per_s
    return {
        "schema": SCHEMA,
        "feasible": answer.feasible,
        "reasons": list(answer.reasons),
        "name": settings.name,
        "hardware": answer.scenario.hardware.name,
        "decode_hardware": answer.scenario.decode_hardware.name,
        "model": answer.scenario.model.name,
        "workload": answer.scenario.workload.name,
        "mode": settings.mode,
        "staging": settings.staging,
        "copy": settings.copy,
        "persist": settings.persist,
        "policy": settings.policy,
        "prefill_nodes": answer.prefill_nodes,
        "decode_nodes": answer.decode_nodes,
        "pd_ratio": answer.prefill_nodes / answer.decode_nodes,
        "range": _range(answer.ranges.all_traffic),
        "paper_range": _range(answer.ranges.paper),
        "effective_range": _range(answer.ranges.effective),
        "throughput": {
            "turns_per_s": turns,
            "agents_per_s": turns / mean_turns(answer.scenario.workload),
            "prompt_tokens_per_s": turns * demand.prompt_tokens,
            "computed_tokens_per_s": turns * demand.computed_tokens,
            "output_tokens_per_s": turns * demand.generated,
        },
        "bottleneck": {
            "resource": answer.bottleneck.resource,
            "side": answer.bottleneck.side,
            "utilization": answer.bottleneck.utilization,
            "detail": answer.bottleneck.detail,
            "next": answer.bottleneck.next,
            "next_gain": answer.bottleneck.next_gain,
        },
        "resources": [_resource(load) for load in answer.loads],
        "classes": [_class(one) for one in answer.classes],
        "decode_read_share": answer.decode_read_share,
        "speedup_over_basic": answer.speedup_over_basic,
        "balance": answer.balance,
        "collective_load": {
            "prefill": answer.collectives.prefill,
            "decode": answer.collectives.decode,
            "origin": answer.collectives.origin,
        },
        "qos": _qos(answer),
        "flow_check": _flow_check(answer),
        "splits": [
            {
                "prefill_nodes": split.prefill_nodes,
                "decode_nodes": split.decode_nodes,
                "feasible": split.feasible,
                "turns_per_s": split.turns_per_s,
                "bottleneck": split.bottleneck,
            }
            for split in answer.splits
        ],
        "demand": None
        if answer.demand_check is None
        else {
            "turns_per_s": answer.demand_check.turns_per_s,
            "utilization": answer.demand_check.utilization,
            "headroom": answer.demand_check.headroom,
        },
        "near_limit": None if answer.demand_check is None else near_limit_document(answer.demand_check.utilization),
        "latency": {"ttft_unloaded_s": answer.ttft_unloaded_s, "tpot_s": answer.tpot_s, "ttft_is_lower_bound": True},
        "turn": {
            "context_tokens": demand.context,
            "hit_tokens": demand.hit_tokens,
            "computed_tokens": demand.computed_tokens,
            "generated_tokens": demand.generated,
            "hit_bytes": demand.amounts.hit,
            "miss_bytes": demand.amounts.miss,
            "generated_bytes": demand.amounts.generated,
            "prefill_collective_bytes": demand.amounts.prefill_collective,
            "decode_collective_bytes": demand.amounts.decode_collective,
            "prefill_gpu_seconds": demand.prefill_gpu_seconds,
            "decode_step_base_s": demand.decode_base,
            "decode_step_per_sequence_s": demand.decode_slope,
            "decode_step_per_square_s": demand.decode_quadratic,
            "prefill_pass_base_s": None if demand.passes is None else demand.passes.base,
            "prefill_pass_excess_turns": None if demand.passes is None else demand.passes.excess,
            "kv_format": demand.kv_format,
        },
        "parallel": {side: _parallel(getattr(answer, f"{side}_parallel")) for side in ("prefill", "decode")},
        "memory": {
            side: {
                "weight_bytes_per_gpu": memory.weight_bytes_per_gpu,
                "usable_bytes_per_gpu": memory.usable_bytes_per_gpu,
                "kv_bytes_per_gpu": memory.kv_bytes_per_gpu,
            }
            for side, memory in answer.memory.items()
        },
        "pair_traffic_prefill_read_bytes_per_s": answer.pair_traffic[0],
        "pair_traffic_decode_read_bytes_per_s": answer.pair_traffic[1],
        "uncertainty": None if uncertainty is None else _uncertainty(uncertainty),
        "compute_times": demand.compute_origin,
        "assumptions": list(assumptions(answer)),
        "sources": sources(answer.scenario),
        "inputs_sha256": inputs_sha256(answer),
    }


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
            {"resource": b.resource.name, "nodes": b.label, "differs": b.differs, "share_of_turns": b.share}
            for b in pairs.binding
        ],
        "classes": [
            {"side": c.side, "nodes": c.nodes, "label": c.label, "turns_per_s": c.turns_per_s} for c in pairs.classes
        ],
    }


def _range(found: Range) -> dict[str, Any]:
    return {
        "lower": None if found.lower is None else float(found.lower),
        "upper": None if found.upper is None else float(found.upper),
        "lower_exact": None if found.lower is None else str(found.lower),
        "upper_exact": None if found.upper is None else str(found.upper),
        "lower_constraint": found.lower_constraints[0] if found.lower_constraints else None,
        "upper_constraint": found.upper_constraints[0] if found.upper_constraints else None,
        "lower_constraints": list(found.lower_constraints),
        "upper_constraints": list(found.upper_constraints),
        "empty_because": list(found.empty_because) or None,
        "crossing": None if found.crossing is None else [float(bound) for bound in found.crossing],
    }


def _resource(load: Load) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": load.name,
        "side": load.side,
        "load": load.load,
        "capacity": load.capacity,
        "unit": load.unit,
        "utilization": load.utilization,
    }
    if load.unit == "B/s":
        entry |= {"load_bytes_per_s": load.load, "capacity_bytes_per_s": load.capacity}
    if load.detail:
        entry["detail"] = load.detail
    return entry


def _class(one: ClassRate) -> dict[str, Any]:
    """One model and workload of a mix."""
    return {name: getattr(one, name) for name in one.__struct_fields__}


def _parallel(parallel: Any) -> dict[str, int]:
    return {"ep": parallel.ep, "tp": parallel.tp, "dp": parallel.dp}
