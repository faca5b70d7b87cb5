"""Where the service times of a scenario come from: its fitted set, the roofline, or both of them by parts."""

from __future__ import annotations

from typing import Any

import msgspec

from dualplan.messages import message
from dualplan.model import kv
from dualplan.model.roofline import (
    decode_constants,
    decode_step,
    handover_rate,
    model_intervals,
    own_figures,
    prefill_constants,
    prefill_pass,
    rank,
)
from dualplan.model.service_times import ServiceTimes, linear
from dualplan.spec.constants import roofline_constants
from dualplan.spec.fitted_sets import Fitted, ParameterSet, origin_of
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import Scenario


def service_times(scenario: Scenario, prefill: Parallel, decode: Parallel, fit: Fitted | None) -> ServiceTimes:
    """Those of the fitted set of a scenario, with the roofline for parts where the user's own figures win; or of the
    roofline.
    """
    if fit is None:
        return from_roofline(scenario, prefill, decode)
    times = from_set(fit.chosen, scenario.model.num_layers)
    if not fit.given:
        return times
    roofline = from_roofline(scenario, prefill, decode, fit.chosen.redundant_experts)
    changes: dict[str, Any] = {name: getattr(roofline, name) for part in fit.given for name in _PARTS[part]}
    return msgspec.structs.replace(times, origin=fit.origin, **changes)


_PARTS = {
    "prefill": (
        "pass_base",
        "pass_experts",
        "pass_idle",
        "per_request",
        "per_token",
        "per_token_hidden",
        "per_token_link",
        "per_context",
        "attention",
        "expert_share",
    ),
    "decode": (
        "decode_base",
        "decode_slope",
        "decode_quadratic",
        "decode_experts",
        "decode_cache",
        "expert_share",
        "expert_ranks",
    ),
    "storage": ("snic_efficiency", "time_per_read", "both_sides"),
}
"""Fields by the part of a fitted set that they belong to."""


def from_set(fit: ParameterSet, layers: int) -> ServiceTimes:
    """A fitted set as service times."""
    base = fit.pass_time_per_layer * layers
    return ServiceTimes(
        name=f"{fit.model} on {fit.hardware}",
        origin=origin_of(fit),
        pass_base=base,
        pass_idle=base,
        per_request=fit.time_per_request,
        per_token=fit.time_per_token,
        per_context=fit.time_per_context_token,
        attention=linear(fit.time_per_token_and_context_token),
        decode_base=fit.decode_base,
        decode_slope=fit.decode_slope,
        decode_quadratic=fit.decode_quadratic,
        decode_read_slowdown=fit.decode_read_slowdown,
        snic_efficiency=fit.snic_efficiency,
        time_per_read=fit.time_per_read,
        both_sides=fit.both_sides,
        handover=fit.handover,
        handover_rate=fit.handover_rate,
        redundant_experts=fit.redundant_experts,
    )


def from_roofline(scenario: Scenario, prefill: Parallel, decode: Parallel, redundant_experts: int = 0) -> ServiceTimes:
    """Service times from counts of kernels, bytes and FLOPs, with the fitted constants or what the profiles say
    instead.
    """
    model, first, second = scenario.model, scenario.hardware, scenario.decode_hardware
    form = kv.check_format(scenario.settings.kv_format or model.kv_format, model, "kv_format")
    one = rank(model, first, prefill.engine, form, redundant_experts)
    other = rank(model, second, decode.engine, form, redundant_experts)
    constants, owned = roofline_constants(), own_figures(first.efficiency) or own_figures(second.efficiency)
    p = prefill_pass(one, prefill_constants(constants, first.efficiency))
    d = decode_step(other, decode_constants(constants, second.efficiency, other))
    return ServiceTimes(
        name="roofline",
        origin=message("times.roofline", machines=tuple(dict.fromkeys((first.name, second.name)))),
        pass_base=p.base,
        pass_experts=p.experts,
        per_request=p.per_request,
        per_token=p.per_token,
        per_token_hidden=p.per_token_hidden,
        per_token_link=p.per_token_link,
        attention=p.attention,
        decode_base=d.base,
        decode_slope=d.slope,
        decode_experts=d.experts,
        decode_cache=d.cache,
        expert_share=d.expert_share,
        expert_ranks=d.expert_ranks,
        snic_efficiency=first.snic.efficiency,
        time_per_read=first.snic.time_per_read,
        handover_rate=handover_rate(model, form, (one, prefill), (other, decode)),
        interval=None if owned else model_intervals(model, ((first, one), (second, other))),
    )
