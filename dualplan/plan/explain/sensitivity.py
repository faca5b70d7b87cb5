"""How the rate and the P/D range follow each quantity: elasticities, and what a change of some per cent does.

An elasticity is d ln y / d ln x: by how many per cent y moves when x moves by one. It is the exact derivative of the
formula that holds now (what binds stays what binds), and a central difference where there is no formula, as for the
lengths of a workload. Where two resources bind at once it is that of one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from dualplan.model.closed_form import feasible_range
from dualplan.model.symbolic import Known, exact, symbol, value_of
from dualplan.plan.explain.parameters import PARAMETERS, Parameter, leaves_fitted_set, number_now, with_workload
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import turn_mix
from dualplan.steady.problem import build
from dualplan.steady.ranges import constraints, exact_bytes, saturated
from dualplan.steady.rate import solve
from dualplan.steady.reasons import misfits
from dualplan.steady.resources import storage_bandwidth
from dualplan.steady.setup import Setup, given_collectives, prepare

OUTPUTS = ("turns_per_s", "lower", "upper")
STEP = 1e-4
"""Relative step of a central difference."""
AGREEMENT = 1e-3
"""How close derivative and difference lie where both say the same."""


class Elasticity(msgspec.Struct, frozen=True, kw_only=True):
    """Elasticities of the rate and of both ends of the range; None where there is no such value."""

    parameter: Parameter
    value: float
    turns_per_s: float | None
    lower: float | None
    upper: float | None
    method: Literal["exact", "difference"]


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """The rate [turns/s] with a quantity lowered and raised by the spread; one that cannot go higher stays."""

    parameter: Parameter
    value: float
    low_value: float
    high_value: float
    low: float
    base: float
    high: float


def elasticities(scenario: Scenario) -> tuple[Elasticity, ...]:
    """Elasticities to every quantity that the deployment has, the strongest on the rate first."""
    setup = prepare(scenario)
    found = [_elasticity(_smooth(setup, parameter), parameter, value) for parameter, value in _present(setup)]
    moved = [entry for entry in found if any(getattr(entry, name) for name in OUTPUTS)]
    return tuple(sorted(moved, key=lambda entry: -abs(entry.turns_per_s or 0.0)))


def tornado(scenario: Scenario, spread: float = 0.1) -> tuple[Bar, ...]:
    """The rate with each quantity lowered and raised by ``spread``, the widest bar first; unmoved ones are left out."""
    setup = prepare(scenario)
    base = turns_per_s(setup)
    bars = []
    if not base:
        return ()
    for parameter, value in _present(setup):
        ends = [value * (1 - spread), value * (1 + spread)]
        if parameter.most is not None:
            ends = [min(end, parameter.most) for end in ends]
        smooth = _smooth(setup, parameter)
        # relative to the same workload, with the blocks of many contexts or of the one that is given
        scale = base / turns_per_s(smooth)
        low, high = (turns_per_s(parameter.put(smooth, end)) * scale for end in ends)
        if abs(high - base) + abs(low - base) > 1e-9 * base:
            bars.append(
                Bar(
                    parameter=parameter,
                    value=value,
                    low_value=ends[0],
                    high_value=ends[1],
                    low=low,
                    base=base,
                    high=high,
                )
            )
    return tuple(sorted(bars, key=lambda bar: -abs(bar.high - bar.low)))


def turns_per_s(setup: Setup) -> float:
    """The steady rate; 0 where the deployment does not fit."""
    problem = build(setup, setup.scenario.settings.mode)
    return 0.0 if misfits(setup, problem) else float(solve(problem).turns_per_s or 0.0)


def _smooth(setup: Setup, parameter: Parameter) -> Setup:
    """The deployment; for the context with a workload whose contexts stand for many, so that no block ends are met."""
    if parameter.name != "context":
        return setup
    workload = setup.scenario.workload
    return with_workload(setup, msgspec.structs.replace(workload, mix=turn_mix(workload)))


def held_by_fitted_set(scenario: Scenario) -> tuple[Parameter, ...]:
    """Quantities that do not enter, because compute times are fitted on the machine as it is."""
    setup = prepare(scenario)
    return tuple(parameter for parameter, value in _all_present(setup) if leaves_fitted_set(parameter, setup, value))


def _present(setup: Setup) -> list[tuple[Parameter, float]]:
    """Quantities that enter the answer."""
    return [entry for entry in _all_present(setup) if not leaves_fitted_set(entry[0], setup, entry[1])]


def _all_present(setup: Setup) -> list[tuple[Parameter, float]]:
    """Quantities that this deployment has: of both sides together, of one side where the sides differ in it."""
    found = []
    for parameter in PARAMETERS.values():
        value = number_now(parameter, setup)
        one_sided = parameter.key.startswith(("prefill_hardware", "decode_hardware"))
        both = PARAMETERS.get(parameter.name.partition("_")[2]) if one_sided else None
        if value and not (both and both.read(setup) is not None) and parameter.name != "pd_ratio":
            found.append((parameter, value))
    return found


def outputs(setup: Setup) -> dict[str, Any]:
    """The rate and both ends of the range; numbers or formulas, None where there is none."""
    problem = build(setup, setup.scenario.settings.mode)
    found: dict[str, Any] = dict.fromkeys(OUTPUTS)
    if not misfits(setup, problem):
        found["turns_per_s"] = solve(problem).turns_per_s
    problem = msgspec.structs.replace(problem, given=given_collectives(setup.scenario))
    amounts = exact_bytes(setup, problem)
    if amounts.read and problem.mode != "oracle":
        storage = tuple(exact(storage_bandwidth(hardware)) for _, hardware in setup.scenario.sides)
        ends = feasible_range(constraints(setup, problem, amounts), *saturated(problem, storage))
        found |= {"lower": ends.lower, "upper": ends.upper}
    return found


def _elasticity(setup: Setup, parameter: Parameter, value: float) -> Elasticity:
    found = None if parameter.workload else _derivatives(setup, parameter, value)
    nearby = _differences(setup, parameter, value)
    # a value that was found by iteration carries no formula: the difference tells
    agree = found is not None and all(_close(found[name], nearby[name]) for name in OUTPUTS)
    if found is None or not agree:
        return Elasticity(parameter=parameter, value=value, method="difference", **nearby)
    return Elasticity(parameter=parameter, value=value, method="exact", **found)


def _close(a: float | None, b: float | None) -> bool:
    return a is b or (a is not None and b is not None and abs(a - b) <= AGREEMENT * max(1.0, abs(b)))


def _derivatives(setup: Setup, parameter: Parameter, value: float) -> dict[str, float | None] | None:
    """From the formulas of the outputs in one unknown; None where these cannot be had."""
    unknown = symbol("x")
    try:
        found = outputs(parameter.put(setup, Known(exact(value), unknown)))
    except (TypeError, ValueError, AttributeError):
        return None
    result: dict[str, float | None] = {}
    for name, output in found.items():
        if not isinstance(output, Known):
            result[name] = 0.0 if output else None
            continue
        slope = output.formula.diff(unknown).subs(unknown, value).evalf()
        result[name] = float(slope) * value / float(output.value)
    return result


def _differences(setup: Setup, parameter: Parameter, value: float) -> dict[str, float | None]:
    high = value * (1 + STEP)
    if parameter.most is not None:
        high = min(high, parameter.most)
    low = value * (1 - STEP)
    below, above = (outputs(parameter.put(setup, end)) for end in (low, high))
    return {name: _slope(below[name], above[name], low, high) for name in OUTPUTS}


def _slope(below: Any, above: Any, low: float, high: float) -> float | None:
    import math

    if not below or not above:
        return None
    logarithm: Callable[[Any], float] = lambda value: math.log(float(value_of(value)))  # noqa: E731
    return (logarithm(above) - logarithm(below)) / (math.log(high) - math.log(low))
