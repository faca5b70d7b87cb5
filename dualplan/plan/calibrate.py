"""Efficiencies of a profile from measurements: least squares on logarithms, with intervals and what cannot be told.

The parameters are the few efficiencies and fixed times that a profile holds and that the roofline and the storage NICs
are computed from. With x the logarithms of the parameters and r the logarithms of prediction over measurement, r'r is
made small within physical bounds (an efficiency is at most 1). J = dr/dx holds elasticities, numbers without a unit.

* Standard errors are those of linear least squares at the solution, s^2 (J'J)^-1 with s^2 = r'r / (n - p), s at least
  NOISE, and a 95 % interval is exp(x -+ t se), t of Student's distribution with n - p degrees of freedom.
* What cannot be told: along a right singular vector of J with singular value v the standard error is s / v. Where
  1.96 s / v >= 1, s at most MOST_NOISE, the 95 % interval reaches a factor of e, and the set of parameters is not
  told. The answer is the largest set that is told and that no smaller one fits better than; the others stay at their
  value in the profile.
* A parameter without slope (a time near 0) is put to the end of its range where it does least. It is told there if its
  prior fits significantly worse.
* If a parameter that is left out would alone be told well, those that make up for it along the vector are named: they
  are not told apart.

Reference: Golub and Van Loan, Matrix Computations, section 5.5 (rank deficiency by singular values).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from operator import attrgetter
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import ConvergenceError, InputError, did_you_mean
from dualplan.nomenclature import QUANTITIES, Quantity
from dualplan.plan.measurement_prediction import cases, predictor
from dualplan.plan.measurements import Measurement
from dualplan.spec.constants import roofline_constants
from dualplan.spec.hardware import Efficiencies, Hardware
from dualplan.spec.parallel import Side
from dualplan.spec.scenario import Scenario

Floats = npt.NDArray[np.float64]
Progress = Callable[[], None]
"""Called after each run of the simulation."""

Status = Literal["fitted", "at its bound", "not told apart", "not measured", "not asked for"]

NOISE, MOST_NOISE = 0.01, 0.1
"""Relative error that any measurement is taken to have at least, and at most when it is asked what can be told: the
same configuration on another engine or version differs by 1.12 in the median. What is left beyond is of the formulas,
and no reason to keep a value that is far off."""

NAMED = 0.3
"""Parameters whose part of a unit vector is larger than this are named as not told apart."""

REACH = 1.96
"""Standard errors of a 95 % interval's half, when it is asked what can be told."""

SIGNIFICANT = 3.84
"""By how many variances of a measurement sums of squares differ to be told apart: chi-squared at 95 %, one degree."""

MOST_TRIED_ROWS = 4000
"""Sets of parameters times measurements, up to which all sets are tried."""

FIRST = "efficiency.decode_layer_time"
"""The parameter that is fitted before others which fit alike: it is what profiles miss most, and it carries over to
other parallelism (a study of 2,104 runs)."""

LINE = 9
"""Values of a parameter's range that are looked at where it has no slope."""

NO_END = "the fit did not converge: fit fewer parameters (--fit), or check the values"

SMALL_STEP, LARGE_STEP = 1e-4, 0.05
"""Steps in a logarithm for derivatives: of formulas, and of runs, which are not smooth."""

MOST_EVALUATIONS = (60, 15)
"""Steps of a search: with formulas alone, and with runs."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a profile that is fitted, between bounds; ``start`` stands in where the profile has none, or 0.

    ``side``: whose profile, where those of the two sides differ.
    """

    quantity: Quantity
    low: float
    high: float
    start: float
    tells: str
    side: Side | None = None

    @property
    def key(self) -> str:
        """Its key path in a profile."""
        return self.quantity.field

    @property
    def name(self) -> str:
        """Its key path in a scenario whose sides differ, else in a profile."""
        return self.key if self.side is None else f"{self.side}_hardware.{self.key}"

    @property
    def unit(self) -> str:
        """``1`` or ``s``."""
        return self.quantity.unit


_LEAST = {"1": 1e-4, "s": 1e-7}
_START, _REACHED = roofline_constants(), Efficiencies().decode
PARAMETERS = tuple(
    Parameter(quantity=QUANTITIES[name], low=_LEAST[QUANTITIES[name].unit], high=high, start=start, tells=tells)
    for name, high, start, tells in (
        ("snic_efficiency", 1.0, 0.9, "rates of storage NICs at two or more read sizes (snic_gbps, read_size)"),
        ("time_per_read", 1.0, 5e-3, "rates of storage NICs at a small read size (snic_gbps, read_size)"),
        (
            "prefill_efficiency",
            1.0,
            _REACHED * _START.compute_share * _START.expert_prefill_share,
            "tokens_per_s of a prefill engine at a short context",
        ),
        (
            "attention_efficiency",
            1.0,
            _REACHED * _START.attention_prefill_share,
            "tokens_per_s of a prefill engine at a long context",
        ),
        ("hbm_efficiency", 1.0, Efficiencies().hbm, "tpot at large batches and long contexts"),
        ("decode_efficiency", 1.0, _REACHED, "tpot at large batches and short contexts"),
        ("decode_layer_time", 0.05, 20 * _START.kernel_time, "tpot at a batch of one"),
    )
)


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter after the fit. ``value`` and ``interval`` (95 %) in its unit; ``prior`` is that of the profile.

    ``status``: ``fitted``; ``at its bound``; ``not told apart`` and ``not measured`` stay at the prior; ``not asked
    for``. ``with_``: what it is not told apart from.
    """

    parameter: Parameter
    value: float
    prior: float
    status: Status
    interval: tuple[float, float] | None = None
    with_: tuple[str, ...] = ()


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. ``predicted``: after the fit, in the order of ``measurements``; ``before``: with the profile as it
    is. ``rms_error``: of the logarithms; ``singular_values``: of J over the fitted parameters.
    """

    scenario: Scenario
    measurements: tuple[Measurement, ...]
    predicted: tuple[float, ...]
    before: tuple[float, ...]
    parameters: tuple[Fitted, ...]
    rms_error: float
    degrees_of_freedom: int
    singular_values: tuple[float, ...]

    @property
    def changed(self) -> tuple[Fitted, ...]:
        """The parameters that have new values."""
        return tuple(found for found in self.parameters if found.status in ("fitted", "at its bound"))


# ---------------------------------------------------------------- predictions


def with_values(hardware: Hardware, values: Sequence[float]) -> Hardware:
    """A profile with the values of all PARAMETERS, in their order. Its name changes: fitted sets of the shipped
    profile are not of it any more. What the profile does not say, and still is where a search starts, it does not say.
    """
    sections: dict[str, dict[str, float]] = {}
    for parameter, value in zip(PARAMETERS, values, strict=True):
        section, field = parameter.key.split(".")
        if _own(hardware, parameter) is None and math.isclose(value, parameter.start, rel_tol=1e-12):
            continue
        sections.setdefault(section, {})[field] = float(value)
    changed = {name: msgspec.structs.replace(getattr(hardware, name), **fields) for name, fields in sections.items()}
    return msgspec.structs.replace(hardware, name=f"{hardware.name}-calibrated", **changed)


def parameters_of(scenario: Scenario) -> tuple[Parameter, ...]:
    """PARAMETERS, or those of the prefill and then of the decode side's profile where the sides differ."""
    if scenario.hardware == scenario.decode_hardware:
        return PARAMETERS
    sides: tuple[Side, ...] = ("prefill", "decode")
    return tuple(msgspec.structs.replace(parameter, side=side) for side in sides for parameter in PARAMETERS)


def _with_values(scenario: Scenario, values: Sequence[float]) -> Scenario:
    """The scenario with the values of its parameters in its profiles."""
    count = len(PARAMETERS)
    first, last = values[:count], values[-count:]
    prefill = with_values(scenario.hardware, first)
    decode = prefill if len(values) == count else with_values(scenario.decode_hardware, last)
    return msgspec.structs.replace(scenario, hardware=prefill, decode_hardware=decode)


def _priors(scenario: Scenario) -> tuple[float, ...]:
    """The values of the profiles for the parameters of the scenario."""
    if scenario.hardware == scenario.decode_hardware:
        return priors(scenario.hardware)
    return (*priors(scenario.hardware), *priors(scenario.decode_hardware))


def priors(hardware: Hardware) -> tuple[float, ...]:
    """The values of a profile for PARAMETERS, with a small number above 0 where it has none."""
    return tuple(
        min(max(_own(hardware, parameter) or parameter.start, parameter.low), parameter.high)
        for parameter in PARAMETERS
    )


def _own(hardware: Hardware, parameter: Parameter) -> float | None:
    value: float | None = attrgetter(parameter.key)(hardware)
    return value


# ---------------------------------------------------------------- fit


class _Model(msgspec.Struct, frozen=True):
    """Residuals: logarithms of prediction over measurement, as a function of the logarithms of all parameters."""

    parameters: tuple[Parameter, ...]
    predict: Callable[[int, Sequence[float]], float]
    measured: Floats
    simulated: tuple[bool, ...]
    progress: Progress | None

    @property
    def first(self) -> int:
        """The parameter that goes first: the launch time, of the side that decodes."""
        return max(index for index, parameter in enumerate(self.parameters) if parameter.key == FIRST)

    def at_bound(self, x: Floats, index: int) -> bool:
        """Whether a parameter is at an end of its range."""
        parameter = self.parameters[index]
        return bool(min(abs(x[index] - math.log(end)) for end in (parameter.low, parameter.high)) < 1e-3)

    def along(self, x: Floats, index: int, count: int) -> list[Floats]:
        """``count`` points with one parameter from end to end of its range."""
        parameter = self.parameters[index]
        points = []
        for value in np.linspace(math.log(parameter.low), math.log(parameter.high), count):
            points.append(x.copy())
            points[-1][index] = value
        return points

    def residuals(self, x: Floats, rows: Sequence[int] | None = None) -> Floats:
        """Those of all rows, or of some. Shape (rows,)."""
        values = tuple(float(value) for value in np.exp(x))
        chosen = range(len(self.measured)) if rows is None else rows
        found = []
        for row in chosen:
            found.append(math.log(self.predict(row, values)) - self.measured[row])
            if self.progress is not None and self.simulated[row]:
                self.progress()
        return np.array(found)

    def jacobian(self, x: Floats, active: Sequence[int]) -> Floats:
        """Elasticities: central differences, with larger steps where runs are not smooth. Shape (rows, active)."""
        result = np.zeros((len(self.measured), len(active)))
        for simulated, step in ((False, SMALL_STEP), (True, LARGE_STEP)):
            rows = [row for row, flag in enumerate(self.simulated) if flag == simulated]
            for column, index in enumerate(active):
                ends = []
                for sign in (1, -1):
                    moved = x.copy()
                    moved[index] = min(moved[index] + sign * step, math.log(self.parameters[index].high))
                    ends.append((moved[index], self.residuals(moved, rows)))
                result[rows, column] = (ends[0][1] - ends[1][1]) / (ends[0][0] - ends[1][0])
        return result


def fit(
    scenario: Scenario,
    measurements: Sequence[Measurement],
    *,
    name: str = "measurements",
    wanted: Sequence[str] = (),
    progress: Progress | None = None,
) -> Calibration:
    """Fit the parameters of the scenario's profile, or of both where its sides differ; ``wanted``: key paths, all if
    empty.

    Raises InputError for unknown parameters and measurements that nothing computes, ConvergenceError where no search
    ends with a result.
    """
    parameters = parameters_of(scenario)
    asked = _asked(parameters, wanted)
    model = _Model(
        parameters,
        predictor(cases(scenario, measurements, name), _with_values),
        np.log([one.value for one in measurements]),
        tuple(one.simulated for one in measurements),
        progress,
    )
    prior = np.log(_priors(scenario))
    before = model.residuals(prior)
    seen = _seen(model, prior, asked)
    best = _selected(model, prior, seen)
    x, active = best.x, best.active
    r, bounded = model.residuals(x), [i for i in active if model.at_bound(x, i)]
    free = [i for i in active if i not in bounded]
    jacobian = model.jacobian(x, free)
    errors = _standard_errors(jacobian, r)
    degrees = len(r) - len(free)
    reach = _student(degrees) if errors is not None else 0.0
    found = []
    for index, parameter in enumerate(parameters):
        others: tuple[int, ...] = ()
        interval = None
        status: Status = "not asked for" if index not in asked else "not measured"
        if index in active:
            status = "at its bound" if index in bounded else "fitted"
        elif index in seen and (others := _not_told_from(model, x, r, active, index)):
            status = "not told apart"
        if status == "fitted" and errors is not None:
            half = reach * errors[free.index(index)]
            low, high = math.exp(max(x[index] - half, -700.0)), math.exp(min(x[index] + half, 700.0))
            interval = max(low, parameter.low), min(high, parameter.high)
        found.append(
            Fitted(
                parameter=parameter,
                value=math.exp(x[index]),
                prior=math.exp(prior[index]),
                status=status,
                interval=interval,
                with_=tuple(parameters[i].name for i in others),
            )
        )
    return Calibration(
        scenario=scenario,
        measurements=tuple(measurements),
        predicted=tuple(float(value) for value in np.exp(r + model.measured)),
        before=tuple(float(value) for value in np.exp(before + model.measured)),
        parameters=tuple(found),
        rms_error=float(np.sqrt(np.mean(r**2))),
        degrees_of_freedom=degrees,
        singular_values=tuple(float(v) for v in np.linalg.svd(jacobian, compute_uv=False)) if free else (),
    )


def _seen(model: _Model, prior: Floats, asked: Sequence[int]) -> tuple[int, ...]:
    """The parameters that some measurement depends on: at the prior, or somewhere in their range (a prior near 0, or
    below what binds, has no slope).
    """
    slopes = np.abs(model.jacobian(prior, asked)).max(axis=0)
    seen = [index for index, slope in zip(asked, slopes, strict=True) if slope > 1e-9]
    if not any(model.simulated):
        before = model.residuals(prior)
        for index in asked:
            ends = [model.residuals(x) for x in model.along(prior, index, 2)]
            if index not in seen and max(float(np.abs(r - before).max()) for r in ends) > 1e-9:
                seen.append(index)
    return tuple(sorted(seen))


# ---------------------------------------------------------------- which parameters


class _Trial(msgspec.Struct, frozen=True):
    """A fit of the ``active`` parameters, the others at their prior. ``sse``: sum of squares; ``noise``: of one
    logarithm; ``told``: whether the measurements tell all of them, so that it may be the answer; ``loose``: whether one
    is at an end of its range that nothing presses it against.
    """

    active: tuple[int, ...]
    x: Floats
    sse: float
    noise: float
    converged: bool
    told: bool
    loose: bool = False

    def improves(self, least: float, firm: float) -> bool:
        """Whether it is worth its parameters beside smaller sets that end at ``least``, those without a loose
        parameter at ``firm``: a parameter at a loose end tells nothing by itself.
        """
        clear = not self.loose or self.sse < firm - SIGNIFICANT * self.noise**2
        return self.told and clear and _no_worse(self.sse, least)


class _Trials:
    """Fits of sets of parameters, each started from the best fit of the sets with one parameter less.

    So a fit is never worse than that of a part of its set, and depends on nothing but the set.
    """

    def __init__(self, model: _Model, prior: Floats) -> None:
        self._model = model
        r = model.residuals(prior)
        none = _Trial(active=(), x=prior, sse=float(r @ r), noise=_noise(r, 0), converged=True, told=True)
        self._done: dict[frozenset[int], _Trial] = {frozenset(): none}

    def of(self, active: Iterable[int]) -> _Trial:
        """The fit of a set."""
        key = frozenset(active)
        if key not in self._done:
            self._done[key] = self._fit(key)
        return self._done[key]

    def _fit(self, key: frozenset[int]) -> _Trial:
        model, active = self._model, tuple(sorted(key))
        parents = [self._done[part] for i in active if (part := key - {i}) in self._done]
        start = min(parents or [self.of(())], key=lambda trial: trial.sse).x
        x, converged = _solve(model, self._with_slope(start, active), active)
        r = model.residuals(x)
        while True:
            free = [i for i in active if not model.at_bound(x, i)]
            weak = _weakest(model.jacobian(x, free), r, free)
            end = None if weak is None else _at_an_end(model, x, r, free, weak)
            if end is None:
                break
            x, r = end
        noise, sse = _noise(r, len(free)), float(r @ r)
        loose = self._loose(x, r, active, noise)
        told = weak is None and converged
        return _Trial(
            active=active,
            x=x,
            sse=sse,
            noise=noise,
            converged=converged,
            told=told and all(self.of(key - {i}).sse > sse + SIGNIFICANT * noise**2 for i in loose),
            loose=bool(loose),
        )

    def _with_slope(self, x: Floats, active: Sequence[int]) -> Floats:
        """A start where parameters without slope are at the best of some values of their range."""
        if any(self._model.simulated):
            return x
        slopes = np.abs(self._model.jacobian(x, active)).max(axis=0)
        for index in (i for i, slope in zip(active, slopes, strict=True) if slope < 1e-3):
            x = min(
                [x, *self._model.along(x, index, LINE)],
                key=lambda point: float(np.sum(self._model.residuals(point) ** 2)),
            )
        return x

    def _loose(self, x: Floats, r: Floats, active: Sequence[int], noise: float) -> list[int]:
        """Parameters at an end of their range that the residuals do not press against it, or hardly have a slope."""
        bounded = [i for i in active if self._model.at_bound(x, i)]
        jacobian = self._model.jacobian(x, bounded)
        slopes = np.linalg.norm(jacobian, axis=0)
        pressed = (np.abs(jacobian.T @ r) > REACH * NOISE * slopes) & (slopes > REACH * noise)
        return [i for i, hard in zip(bounded, pressed, strict=True) if not hard]


def _at_an_end(model: _Model, x: Floats, r: Floats, free: Sequence[int], weak: int) -> tuple[Floats, Floats] | None:
    """The fit with a parameter that has no slope at the end of its range where it does least, and its residuals; None
    where that is worse. A time near 0 is such a parameter: nothing tells 1 us from 0, the 200 us of a profile are far.
    """
    moved = min(model.along(x, weak, 2), key=lambda end: float(np.sum(model.residuals(end) ** 2)))
    rest = [i for i in free if i != weak]
    if rest:
        moved, _ = _solve(model, moved, rest)
    there = model.residuals(moved)
    margin = SIGNIFICANT * _noise(there, len(rest)) ** 2
    return (moved, there) if there @ there <= r @ r + margin else None


def _selected(model: _Model, prior: Floats, seen: Sequence[int]) -> _Trial:
    """The largest set of parameters that the measurements tell and that no smaller set fits better than. Of sets of one
    size that fit alike one with the launch time per layer goes first, then the best.

    All sets are tried where that is cheap, so no fit with fewer parameters is better than the answer. Else the set
    grows by the parameter whose linear gain at the prior is largest, the launch time first.
    """
    trials = _Trials(model, prior)
    best = trials.of(())
    if any(model.simulated) or 2 ** len(seen) * len(model.measured) > MOST_TRIED_ROWS:
        return _grown(model, trials, seen)
    least = firm = best.sse
    failed = False
    for size in range(1, len(seen) + 1):
        tried = [trials.of(chosen) for chosen in combinations(seen, size)]
        failed |= not any(trial.converged for trial in tried)
        worth = [trial for trial in tried if trial.improves(least, firm)]
        if worth:
            bottom = min(worth, key=lambda trial: trial.sse)
            alike = [trial for trial in worth if trial.sse <= bottom.sse + SIGNIFICANT * bottom.noise**2]
            best = min(alike, key=lambda trial: (model.first not in trial.active, trial.sse))
        told = [trial for trial in tried if trial.told]
        least = min([least, *(trial.sse for trial in told)])
        firm = min([firm, *(trial.sse for trial in told if not trial.loose)])
    if failed and not best.active:
        raise ConvergenceError(NO_END)
    return best


def _grown(model: _Model, trials: _Trials, seen: Sequence[int]) -> _Trial:
    """A set grown one parameter at a time, as long as one is told and the fit no worse."""
    best = trials.of(())
    jacobian, r = model.jacobian(best.x, seen), model.residuals(best.x)
    gains = (jacobian.T @ r) ** 2 / np.maximum(np.sum(jacobian**2, axis=0), 1e-300)
    order = [index for _, index in sorted(zip(-gains, seen, strict=True))]
    order.sort(key=lambda index: index != model.first)
    failed = False
    while True:
        for index in (i for i in order if i not in best.active):
            trial = trials.of((*best.active, index))
            failed |= not trial.converged
            if trial.improves(best.sse, best.sse):
                best = trial
                break
        else:
            if failed and not best.active:
                raise ConvergenceError(NO_END)
            return best


def _no_worse(sse: float, least: float) -> bool:
    return sse <= least * (1 + 1e-9) + 1e-12


def _not_told_from(model: _Model, x: Floats, r: Floats, active: Sequence[int], index: int) -> tuple[int, ...]:
    """The parameters of a fit that make up for one that is left out; none where the measurements hardly see it."""
    members = [*active, index]
    jacobian = model.jacobian(x, members)
    norms = np.linalg.norm(jacobian, axis=0)
    if norms[-1] <= REACH * _noise(r, len(active)):
        return ()
    direction = np.linalg.svd(jacobian, full_matrices=True).Vh[-1]
    parts = np.abs(direction) * norms
    return tuple(i for column, i in enumerate(active) if parts[column] > NAMED * parts.max())


def _asked(parameters: Sequence[Parameter], wanted: Sequence[str]) -> list[int]:
    names = [parameter.name for parameter in parameters]
    for name in wanted:
        if name not in names:
            hint = did_you_mean(name, names) or "known: " + ", ".join(names)
            raise InputError("--fit", f'"{name[:60]}" is not a parameter', hint)
    return [index for index, name in enumerate(names) if not wanted or name in wanted]


def _solve(model: _Model, start: Floats, active: Sequence[int]) -> tuple[Floats, bool]:
    """The logarithms of all parameters with the least squares over the active ones, and whether the search ended.

    It does not where a valley has no bottom, which is for the singular values to say.
    """
    from scipy.optimize import least_squares

    low, high = (np.log([getattr(model.parameters[i], end) for i in active]) for end in ("low", "high"))

    def whole(part: Floats) -> Floats:
        x = start.copy()
        x[list(active)] = part
        return x

    rough = any(model.simulated)
    tolerance = 1e-3 if rough else 1e-10
    # beside the start, where a profile that does not say a value would still leave it unsaid
    inside = np.clip(start[list(active)] + 1e-9, low + 1e-6, high - 1e-6)
    found = least_squares(
        lambda part: model.residuals(whole(part)),
        inside,
        jac=lambda part: model.jacobian(whole(part), active),
        bounds=(low, high),
        x_scale=1.0,
        ftol=tolerance,
        xtol=tolerance,
        gtol=tolerance,
        max_nfev=MOST_EVALUATIONS[rough],
    )
    return whole(found.x), found.status != 0


def _spread(r: Floats, parameters: int) -> float:
    """Standard deviation of a measurement's logarithm: from the residuals, and at least NOISE."""
    degrees = len(r) - parameters
    return max(math.sqrt(float(r @ r) / degrees) if degrees > 0 else 0.0, NOISE)


def _noise(r: Floats, parameters: int) -> float:
    """The part of it that is the measurements'."""
    return min(_spread(r, parameters), MOST_NOISE)


def _weakest(jacobian: Floats, r: Floats, free: Sequence[int]) -> int | None:
    """The parameter that measurements tell least, where the 95 % interval along a direction reaches a factor of e."""
    if not free:
        return None
    rank = np.linalg.svd(jacobian, full_matrices=True)
    values = np.zeros(len(free))
    values[: len(rank.S)] = rank.S
    if values[-1] > REACH * _noise(r, len(free)):
        return None
    return free[int(np.argmax(np.abs(rank.Vh[-1])))]


def _standard_errors(jacobian: Floats, r: Floats) -> Floats | None:
    """Of the logarithms; None without degrees of freedom."""
    degrees = len(r) - jacobian.shape[1]
    if not jacobian.shape[1] or degrees < 1:
        return None
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * _spread(r, jacobian.shape[1]) ** 2
    return np.sqrt(np.diag(covariance))


def _student(degrees: int) -> float:
    """Student's t at 97.5 %."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.975))
