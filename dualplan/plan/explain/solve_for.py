"""Inverse questions: the value of a quantity at which P/D sits on the end of its range, or at which a rate is reached.

The condition of each link is a formula in the one unknown (numbers that remember their formula, run through the same
functions as the answer), so its roots are exact wherever they are rational. Where a formula cannot be had, as for the
lengths of a workload with their whole blocks, the condition is solved numerically and the root is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import msgspec

from dualplan.errors import InfeasibleError, InputError
from dualplan.model.closed_form import Constraint, decode_side_load, prefill_side_load
from dualplan.model.symbolic import Known, as_fraction, exact, symbol
from dualplan.model.traffic import hits_only
from dualplan.plan.explain.parameters import Parameter, find_parameter, leaves_fitted_set, number_now
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import mean_turns
from dualplan.steady.problem import build
from dualplan.steady.ranges import constraints, exact_bytes, saturated
from dualplan.steady.rate import solve
from dualplan.steady.resources import TITLES, storage_bandwidth
from dualplan.steady.setup import Setup, given_collectives, prepare

RangeName = Literal["all", "paper"]
FACTOR = 1e6
"""How far from its present value a quantity is searched, up and down."""
TOLERANCE = 1e-9
STEP = 1e-5


class End(msgspec.Struct, frozen=True, kw_only=True):
    """A value at which P/D sits on an end of its range, the link that sets it, and its fraction where it has one."""

    value: float
    exact: str | None
    constraint: str


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one inverse question.

    ``value`` [unit of the parameter]; ``exact``: the fraction. ``constraint``: the link, or the resource that binds at
    a target. ``valid``: the interval of the parameter over which P/D lies in its range (None: no end), or from which on
    the target is met. ``now``: the present value, ``holds``: whether what is asked for is so now. ``ends``: all ends.
    """

    parameter: Parameter
    value: float
    exact: str | None
    constraint: str
    valid: tuple[float | None, float | None]
    now: float | None
    holds: bool
    method: Literal["exact", "numeric"]
    ends: tuple[End, ...]
    target: tuple[str, float] | None = None


# ---------------------------------------------------------------- the end of the range


def solve_range(scenario: Scenario, name: str, *, which: RangeName = "all", where: str = "--solve-for") -> Solution:
    """The value at which the P/D ratio of the scenario sits on the end of the range that this quantity moves.

    Where it moves both ends, the first one that P/D meets, going from the present value; for pd_ratio the upper end,
    if there is one. Raises InfeasibleError where no value does, InputError for an unknown name.
    """
    parameter = find_parameter(name, where)
    setup = prepare(scenario)
    now = number_now(parameter, setup)
    start = _start(parameter, now)
    slacks = _Slacks(setup, parameter, which)
    if not slacks.at(exact(start)):
        raise InfeasibleError("nothing limits P/D: no hits are read from storage, or the mode moves none")
    found = _exact_ends(slacks, start) if not parameter.workload else None
    method: Literal["exact", "numeric"] = "exact" if found is not None else "numeric"
    low, high = found if found is not None else _numeric_ends(slacks, start)
    if low is None and high is None:
        raise InfeasibleError(_no_end(slacks, parameter, start))
    chosen = _first_met(parameter, low, high, start)
    holds = (low is None or low.value <= start) and (high is None or start <= high.value)
    return Solution(
        parameter=parameter,
        value=chosen.value,
        exact=chosen.exact,
        constraint=chosen.constraint,
        valid=(low.value if low else None, high.value if high else None),
        now=now,
        holds=holds,
        method=method,
        ends=tuple(end for end in (low, high) if end),
    )


def _start(parameter: Parameter, now: float | None) -> float:
    """Where the search begins: the present value, or one that makes sense."""
    if now is not None and now > 0:
        return now
    if parameter.most is not None:
        return parameter.most / 1000
    if now is None and parameter.unit not in ("1", "tokens"):
        return 1e11 if parameter.unit == "B/s" else 1.0
    return 1.0


def _first_met(parameter: Parameter, low: End | None, high: End | None, start: float) -> End:
    if parameter.name == "pd_ratio":
        return high or low  # type: ignore[return-value]
    ends = [end for end in (low, high) if end]
    return min(ends, key=lambda end: abs(math.log(max(end.value, 1e-300) / start)))


class _Slacks:
    """Capacity less load of every link that limits P/D, relative to its capacity, as a function of one quantity."""

    def __init__(self, setup: Setup, parameter: Parameter, which: RangeName) -> None:
        self.setup, self.parameter, self.which = setup, parameter, which
        self.problem = build(setup, setup.scenario.settings.mode)

    def at(self, value: Any) -> dict[str, Any]:
        """Slack by link: a number, or a formula where ``value`` is one. Empty where nothing limits P/D."""
        setup = self.parameter.put(self.setup, value)
        problem = msgspec.structs.replace(self.problem, given=given_collectives(setup.scenario))
        amounts = hits_only(Fraction(1)) if self.which == "paper" else exact_bytes(setup, problem)
        if problem.mode == "oracle" or not amounts.read:
            return {}
        storage = tuple(exact(storage_bandwidth(hardware)) for _, hardware in setup.scenario.sides)
        busy = saturated(problem, storage)
        ratio = exact(setup.prefill_nodes) / exact(setup.decode_nodes)
        if isinstance(ratio, float):
            ratio = Fraction(self.setup.prefill_nodes, self.setup.decode_nodes)
        return {c.name: c.capacity - _carried(c, ratio, busy) for c in constraints(setup, problem, amounts)}


def _carried(constraint: Constraint, ratio: Any, busy: tuple[Any, Any]) -> Any:
    load = prefill_side_load if constraint.side == "prefill" else decode_side_load
    return load(ratio, *busy, constraint.prefill_share, constraint.decode_share)


def _exact_ends(slacks: _Slacks, start: float) -> tuple[End | None, End | None] | None:
    """The ends of the interval in which all slacks are positive, from the roots of their formulas; None without."""
    import sympy as sp

    unknown = symbol("x")
    try:
        formulas = slacks.at(Known(exact(start), unknown))
    except (TypeError, ValueError, AttributeError):
        return None
    roots: list[tuple[Any, str | None]] = []
    for name, slack in formulas.items():
        if not isinstance(slack, Known):
            continue
        top, bottom = sp.fraction(sp.together(slack.formula))
        # at the roots of the denominator the formula ends, but no link does
        for part, link in ((top, name), (bottom, None)):
            if not part.has(unknown):
                continue
            if not part.is_polynomial(unknown):
                return None
            roots += [(root, link) for root in sp.real_roots(sp.Poly(part, unknown)) if root > 0]
    parameter = slacks.parameter
    most = math.inf if parameter.most is None else parameter.most
    roots = [(root, link) for root, link in roots if parameter.least <= root < most]
    return _interval(slacks, roots, start)


def _interval(
    slacks: _Slacks, roots: list[tuple[Any, str | None]], start: float
) -> tuple[End | None, End | None] | None:
    """Of the intervals between roots, the feasible one closest to ``start``, with the links at its ends."""
    points = sorted({_number(root) for root, _ in roots})
    if not points:
        return (None, None)
    most = slacks.parameter.most
    last_middle = points[-1] * 2 if most is None else (points[-1] + exact(most)) / 2
    middles = [points[0] / 2, *((a + b) / 2 for a, b in pairwise(points)), last_middle]
    good = [index for index, point in enumerate(middles) if all(s > 0 for s in slacks.at(point).values())]
    if not good:
        return (None, None)
    here = sum(1 for point in points if point < start)
    first = last = min(good, key=lambda index: abs(index - here))
    while first - 1 in good:
        first -= 1
    while last + 1 in good:
        last += 1

    def end(index: int) -> End | None:
        if not 0 <= index < len(points):
            return None
        at = [(root, link) for root, link in roots if _number(root) == points[index] and link is not None]
        if not at:
            return None
        root, link = at[0]
        text = str(root) if root.is_Rational or root.count_ops() < 20 else None
        return End(value=float(points[index]), exact=text, constraint=str(link))

    return end(first - 1), end(last)


def _number(root: Any) -> Fraction:
    return as_fraction(root) if root.is_Rational else Fraction(float(root))


def _numeric_ends(slacks: _Slacks, start: float) -> tuple[End | None, End | None]:
    """The same by bracketing and Brent's method, outward from ``start``."""

    def least(value: float) -> float:
        return min(float(slack) for slack in slacks.at(exact(value)).values())

    def worst(value: float) -> str:
        found = slacks.at(exact(value))
        return min(found, key=lambda name: found[name])

    candidates = [start, *_outward(slacks.parameter, start)]
    inside = next((value for value in candidates if least(value) >= 0), None)
    if inside is None:
        return None, None
    ends: list[End | None] = []
    for up in (False, True):
        found = _crossing(least, inside, _ladder(slacks.parameter, inside, up=up), met=True)
        ends.append(None if found is None else End(value=found[0], exact=None, constraint=worst(found[0])))
    return ends[0], ends[1]


def _ladder(parameter: Parameter, start: float, *, up: bool) -> list[float]:
    """Values from ``start`` outwards, each a quarter further, as far as they make sense."""
    count = int(math.log(FACTOR) / math.log(1.25))
    values = [start * 1.25 ** (index if up else -index) for index in range(1, count + 1)]
    most = math.inf if parameter.most is None else parameter.most
    return [value for value in values if parameter.least <= value < most]


def _outward(parameter: Parameter, start: float) -> list[float]:
    ups, downs = _ladder(parameter, start, up=True), _ladder(parameter, start, up=False)
    return [value for pair in zip(ups, downs, strict=False) for value in pair] + ups[len(downs) :] + downs[len(ups) :]


def find_root(function: Callable[[float], float], inside: float, outside: float) -> float:
    """Where ``function`` changes its sign between two points, from the side on which it is not negative.

    Brent's method where it is continuous; at a jump the last point before it.
    """
    from scipy.optimize import brentq

    at_inside = function(inside)
    if at_inside == 0:
        return inside
    root = float(brentq(function, inside, outside, xtol=1e-12 * abs(inside), rtol=8.9e-16, maxiter=500))
    if function(root) >= 0:
        return root
    step = math.copysign(max(abs(root) * 1e-12, 1e-300), inside - root)
    while function(root) < 0 and (root - inside) * (outside - root) >= 0:
        root, step = root + step, step * 2
    return root if (root - inside) * (outside - root) >= 0 else inside


def _no_end(slacks: _Slacks, parameter: Parameter, start: float) -> str:
    found = slacks.at(exact(start))
    name = min(found, key=lambda key: float(found[key]))
    if float(found[name]) < 0:
        return f"no {parameter.name} brings P/D inside its range: {TITLES[name]} binds before the storage NICs at any"
    return f"P/D lies inside its range at any {parameter.name}: it moves neither end as far as the ratio"


# ---------------------------------------------------------------- a rate to reach

TARGETS = ("turns_per_s", "agents_per_s")


def solve_target(scenario: Scenario, name: str, target: str, wanted: float, *, where: str = "--solve-for") -> Solution:
    """The value of a quantity that reaches ``wanted`` turns or agents per second, everything else as it is.

    Raises InfeasibleError where no value does: what binds then is named.
    """
    parameter = find_parameter(name, where)
    if target not in TARGETS:
        raise InputError("--target", f'"{target[:40]}" is not a rate', "turns_per_s=62 or agents_per_s=0.4")
    setup = prepare(scenario)
    turns = wanted * (mean_turns(scenario.workload) if target == "agents_per_s" else 1)
    now = number_now(parameter, setup)
    start = _start(parameter, now)

    if now and leaves_fitted_set(parameter, setup, now):
        what = f"the compute times of this answer are fitted on the machine as it is, so {name[:60]} does not enter"
        raise InputError(where, what, f"give --set {parameter.key}=... to plan with the roofline")

    def rate(value: Any) -> Any:
        placed = parameter.put(setup, value)
        found = solve(build(placed, scenario.settings.mode))
        return found.turns_per_s or 0.0

    def gap(value: float) -> float:
        return float(rate(value)) / turns - 1

    met = gap(start) >= 0
    ladders = [_ladder(parameter, start, up=up) for up in (True, False)]
    # towards the target first: the end at which the rate is farther on its side
    ladders.sort(key=lambda values: gap(values[-1]) if values else -math.inf, reverse=not met)
    crossing = _crossing(gap, start, ladders[0], met=met) or _crossing(gap, start, ladders[1], met=met)
    if crossing is None:
        raise InfeasibleError(_out_of_reach(setup, parameter, [start, *ladders[0]][-1], turns, met=met))
    root, upwards = crossing
    closed = _exact_target(rate, root, turns)
    placed = build(parameter.put(setup, root), scenario.settings.mode)
    binding = solve(placed).binding
    value = float(closed) if closed is not None else root
    return Solution(
        parameter=parameter,
        value=value,
        exact=None if closed is None else str(closed),
        constraint="" if binding is None else placed.resources[binding].name,
        valid=(value, None) if upwards else (None, value),
        now=now,
        holds=met,
        method="numeric" if closed is None else "exact",
        ends=(),
        target=(target, wanted),
    )


def _crossing(
    gap: Callable[[float], float], start: float, values: list[float], *, met: bool
) -> tuple[float, bool] | None:
    """Where ``gap`` changes its sign on the way through ``values``, and whether it is positive above; None if nowhere.

    ``met``: whether it is positive at ``start``.
    """
    edge = start
    for value in values:
        if (gap(value) >= 0) != met:
            inside, outside = (edge, value) if met else (value, edge)
            return find_root(gap, inside, outside), inside > outside
        edge = value
    return None


def _exact_target(rate: Callable[[Any], Any], root: float, turns: float) -> Fraction | None:
    """The root as a fraction: of the formula that the rate follows there. None where it has none."""
    import sympy as sp

    unknown = symbol("x")
    try:
        found = rate(Known(exact(root), unknown))
    except (TypeError, ValueError, AttributeError):
        return None
    if not isinstance(found, Known):
        return None
    wanted = exact(float(turns))
    equation = sp.fraction(sp.together(found.formula - sp.Rational(wanted.numerator, wanted.denominator)))[0]
    if not equation.is_polynomial(unknown):
        return None
    # what is found by iteration carries no formula: then the slope of the formula is not that of the rate
    step = root * STEP
    slope = float(rate(root + step) - rate(root - step)) / (2 * step)
    if abs(float(found.formula.diff(unknown).subs(unknown, root)) - slope) > 1e-3 * abs(slope):
        return None
    near = [r for r in sp.real_roots(sp.Poly(equation, unknown)) if abs(float(r) / root - 1) < TOLERANCE]
    return as_fraction(near[0]) if near and near[0].is_Rational else None


def _out_of_reach(setup: Setup, parameter: Parameter, edge: float, turns: float, *, met: bool) -> str:
    problem = build(parameter.put(setup, edge), setup.scenario.settings.mode)
    found = solve(problem)
    rate = float(found.turns_per_s or 0.0)
    if met:
        return f"{turns:.4g} turns/s are reached at every {parameter.name} that was tried"
    what = "nothing" if found.binding is None else TITLES[problem.resources[found.binding].name]
    return f"no {parameter.name} reaches {turns:.4g} turns/s: at {edge:.3g} the rate is {rate:.4g} and {what} binds"
