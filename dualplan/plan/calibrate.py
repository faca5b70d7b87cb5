"""Efficiencies of a profile from measurements: least squares on logarithms, with intervals and what cannot be told.

The parameters are the few efficiencies and fixed times that a profile holds and that the roofline and the storage NICs
are computed from. With x the logarithms of the parameters and r the logarithms of prediction over measurement, r'r is
made small within physical bounds (an efficiency is at most 1). J = dr/dx holds elasticities, numbers without a unit.

* Standard errors are those of linear least squares at the solution, s^2 (J'J)^-1 with s^2 = r'r / (n - p), s at least
  NOISE, and a 95 % interval is exp(x -+ t se), t of Student's distribution with n - p degrees of freedom.
* What cannot be told: along a right singular vector of J with singular value v the standard error is s / v. Where
  1.96 s / v >= 1 the 95 % interval reaches a factor of e. Then the parameter that the vector
  points to most is left at its value in the profile and the rest is fitted again. If that parameter alone would be
  told well, those that make up for it along the vector are named: they are not told apart.

Reference: Golub and Van Loan, Matrix Computations, section 5.5 (rank deficiency by singular values).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import ConvergenceError, InputError, did_you_mean, each
from dualplan.nomenclature import QUANTITIES, Quantity
from dualplan.plan.measurements import Measurement
from dualplan.spec.constants import roofline_constants
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import Scenario

if TYPE_CHECKING:
    from dualplan.serving.cluster import Cluster
    from dualplan.serving.trajectories import Trajectories

Floats = npt.NDArray[np.float64]
Progress = Callable[[], None]
"""Called after each run of the simulation."""

Status = Literal["fitted", "at its bound", "not told apart", "not measured", "not asked for"]

NOISE = 0.01
"""Relative error that any measurement is taken to have at least, when it is asked what can be told apart."""

NAMED = 0.3
"""Parameters whose part of a unit vector is larger than this are named as not told apart."""

SMALL_STEP, LARGE_STEP = 1e-4, 0.05
"""Steps in a logarithm for derivatives: of formulas, and of runs, which are not smooth."""

MOST_EVALUATIONS = (60, 15)
"""Steps of a search: with formulas alone, and with runs."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a profile that is fitted, between bounds; ``start`` stands in where the profile has none, or 0."""

    quantity: Quantity
    low: float
    high: float
    start: float
    tells: str

    @property
    def name(self) -> str:
        """Its key path in a profile."""
        return self.quantity.field

    @property
    def unit(self) -> str:
        """``1`` or ``s``."""
        return self.quantity.unit


_LEAST = {"1": 1e-4, "s": 1e-7}
_START = roofline_constants()
PARAMETERS = tuple(
    Parameter(quantity=QUANTITIES[name], low=_LEAST[QUANTITIES[name].unit], high=high, start=start, tells=tells)
    for name, high, start, tells in (
        ("snic_efficiency", 1.0, 0.9, "rates of storage NICs at two or more read sizes (snic_gbps, read_size)"),
        ("time_per_read", 1.0, 5e-3, "rates of storage NICs at a small read size (snic_gbps, read_size)"),
        (
            "prefill_efficiency",
            1.0,
            _START.compute_share * _START.expert_prefill_share,
            "tokens_per_s of a prefill engine at a short context",
        ),
        (
            "attention_efficiency",
            1.0,
            _START.attention_prefill_share,
            "tokens_per_s of a prefill engine at a long context",
        ),
        ("hbm_efficiency", 1.0, _START.hbm_share, "tpot at large batches and long contexts"),
        ("decode_efficiency", 1.0, _START.compute_share, "tpot at large batches and short contexts"),
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


class _Left(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter that is left at its prior, why, and the ``others`` that it is not told apart from."""

    index: int
    status: Literal["not told apart", "not measured"]
    others: tuple[int, ...] = ()


# ---------------------------------------------------------------- predictions


def with_values(hardware: Hardware, values: Sequence[float]) -> Hardware:
    """A profile with the values of all PARAMETERS, in their order. Its name changes: fitted sets of the shipped
    profile are not of it any more. What the profile does not say, and still is where a search starts, it does not say.
    """
    sections: dict[str, dict[str, float]] = {}
    for parameter, value in zip(PARAMETERS, values, strict=True):
        section, field = parameter.name.split(".")
        if _own(hardware, parameter) is None and math.isclose(value, parameter.start, rel_tol=1e-12):
            continue
        sections.setdefault(section, {})[field] = float(value)
    changed = {name: msgspec.structs.replace(getattr(hardware, name), **fields) for name, fields in sections.items()}
    return msgspec.structs.replace(hardware, name=f"{hardware.name}-calibrated", **changed)


def priors(hardware: Hardware) -> tuple[float, ...]:
    """The values of a profile for PARAMETERS, with a small number above 0 where it has none."""
    return tuple(
        min(max(_own(hardware, parameter) or parameter.start, parameter.low), parameter.high)
        for parameter in PARAMETERS
    )


def _own(hardware: Hardware, parameter: Parameter) -> float | None:
    value: float | None = attrgetter(parameter.name)(hardware)
    return value


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement with the scenario it belongs to and the trajectories of its workload."""

    measurement: Measurement
    scenario: Scenario
    trajectories: Trajectories | None


def _cases(scenario: Scenario, measurements: Sequence[Measurement], name: str) -> tuple[_Case, ...]:
    """What each measurement is computed from. Raises InputError with all problems."""
    return tuple(each(measurements, lambda one: _case(scenario, one, f"{name}:{one.line}")))


def _case(scenario: Scenario, one: Measurement, where: str) -> _Case:
    from dualplan.serving.trajectories import equal_turns, for_workload
    from dualplan.spec.workload import load_workload, with_plain_means

    if one.kind == "snic_gbps":
        return _Case(measurement=one, scenario=scenario, trajectories=None)
    workload = scenario.workload if one.workload is None else load_workload(one.workload, where=f"{where}: workload")
    lengths = {"context": one.context, "append": one.append, "generated": one.generated}
    if any(value is not None for value in lengths.values()):
        workload = with_plain_means(workload, **lengths)
    nodes = {side: getattr(one, side) or getattr(scenario.settings, side) for side in ("prefill_nodes", "decode_nodes")}
    missing = [side for side, count in nodes.items() if count is None]
    if missing:
        flag = missing[0].removesuffix("_nodes")
        raise InputError(where, f"{missing[0]} is missing", f"give a column of that name, or --{flag}")
    settings = msgspec.structs.replace(scenario.settings, mode=one.mode or scenario.settings.mode, **nodes)
    own = msgspec.structs.replace(scenario, workload=workload, settings=settings)
    made = for_workload(workload) if one.simulated else equal_turns(workload)
    return _Case(measurement=one, scenario=own, trajectories=made)


def _predictor(cases: Sequence[_Case]) -> Callable[[int, Sequence[float]], float]:
    """A function of (measurement, values of PARAMETERS). Runs are kept: many values leave a run as it is."""
    runs: dict[Any, float] = {}

    def predict(index: int, values: Sequence[float]) -> float:
        case = cases[index]
        one, hardware = case.measurement, with_values(case.scenario.hardware, values)
        if one.kind == "snic_gbps":
            return _read_rate(hardware, one)
        assert case.trajectories is not None
        from dualplan.serving.cluster import cluster

        scenario = msgspec.structs.replace(case.scenario, hardware=hardware, decode_hardware=hardware)
        laid = cluster(scenario, case.trajectories)
        if not one.simulated:
            return _formula(laid, case.trajectories, one)
        key = (index, laid.times)
        if key not in runs:
            runs[key] = _run(laid, case.trajectories, one)
        return runs[key]

    return predict


def _read_rate(hardware: Hardware, one: Measurement) -> float:
    """Bytes over time of one read at a time of one storage NIC [B/s]."""
    from dualplan.model.latency import read_time

    assert one.read_size is not None
    snic = hardware.snic
    return float(one.read_size / read_time(one.read_size, snic.rate * snic.efficiency, snic.time_per_read))


def _formula(laid: Cluster, turns: Trajectories, one: Measurement) -> float:
    """A decode step of a batch [s], or tokens/s that one prefill engine computes."""
    from dualplan.model.latency import touched
    from dualplan.model.service_times import step_time
    from dualplan.plan.ratio import pass_time

    times, batch = laid.times, one.batch
    assert batch is not None
    if one.kind == "tpot":
        cache = float(np.mean(times.decode_cache.value(turns.context + turns.append + turns.generated / 2)))
        base, slope, quadratic = times.decode_base, times.decode_slope, times.decode_quadratic
        experts = times.decode_experts * touched(times.expert_share, batch * times.expert_ranks)
        return float(step_time(base, slope, quadratic, batch, experts, batch * cache))
    assert one.append is not None
    context = one.context if one.context is not None else 0.0
    return float(batch * one.append / pass_time(times, batch, one.append, context))


def _run(laid: Cluster, trajectories: Trajectories, one: Measurement) -> float:
    from dualplan.serving.run import offline, online
    from dualplan.spec.run import RunSpec

    run = online if one.agents is None else offline
    found = run(laid, trajectories, RunSpec(agents=one.agents, arrival_rate=one.arrival_rate, compiled=True))
    if found.stopped == "interrupted":
        raise KeyboardInterrupt
    value = {
        "jct": found.jct_s,
        "ttft": found.ttft_s.mean,
        "tpot": found.tpot_s.mean,
        "turns_per_s": found.turns_per_s,
        "tokens_per_s": found.output_tokens_per_s,
    }[one.kind]
    if not value:
        raise InputError(f"line {one.line}", "the simulated run gives no value", "measure a longer run")
    return float(value)


# ---------------------------------------------------------------- fit


class _Model(msgspec.Struct, frozen=True):
    """Residuals: logarithms of prediction over measurement, as a function of the logarithms of all PARAMETERS."""

    predict: Callable[[int, Sequence[float]], float]
    measured: Floats
    simulated: tuple[bool, ...]
    progress: Progress | None

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
                    moved[index] = min(moved[index] + sign * step, math.log(PARAMETERS[index].high))
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
    """Fit the parameters of the scenario's profile to measurements; ``wanted``: key paths, all if empty.

    Raises InputError for sides with different profiles, unknown parameters and measurements that nothing computes,
    ConvergenceError where the search ends without a result.
    """
    if scenario.hardware != scenario.decode_hardware:
        raise InputError("hardware", "prefill and decode nodes differ", "calibrate one profile at a time")
    asked = _asked(wanted)
    cases = _cases(scenario, measurements, name)
    model = _Model(
        _predictor(cases),
        np.log([one.value for one in measurements]),
        tuple(one.simulated for one in measurements),
        progress,
    )
    prior = np.log(priors(scenario.hardware))
    before = model.residuals(prior)
    jacobian = model.jacobian(prior, asked)
    unseen = [i for column, i in enumerate(asked) if not np.any(np.abs(jacobian[:, column]) > 1e-9)]
    left = [_Left(index=index, status="not measured") for index in unseen]
    active = [index for index in asked if index not in unseen]
    x, r, bounded = prior, before, []
    while active:
        x, converged = _solve(model, prior, active)
        r, jacobian = model.residuals(x), model.jacobian(x, active)
        bounded = [i for i in active if _at_bound(x, i)]
        free = [i for i in active if i not in bounded]
        jacobian = jacobian[:, [active.index(i) for i in free]]
        weakest = _weakest(jacobian, r, free)
        if weakest is None and not converged:
            raise ConvergenceError("the fit did not converge: fit fewer parameters (--fit), or check the values")
        if weakest is None:
            break
        left.append(weakest)
        active.remove(weakest.index)
    if not active:
        x, r, jacobian, bounded = prior, before, np.zeros((len(before), 0)), []
    free = [i for i in active if i not in bounded]
    errors = _standard_errors(jacobian, r)
    degrees = len(r) - len(free)
    reach = _student(degrees) if errors is not None else 0.0
    parameters = []
    for index, parameter in enumerate(PARAMETERS):
        found = next((one for one in left if one.index == index), None)
        status: Status = (
            found.status
            if found
            else "at its bound"
            if index in bounded
            else "fitted"
            if index in free
            else "not asked for"
        )
        interval = None
        if status == "fitted" and errors is not None:
            half = reach * errors[free.index(index)]
            low, high = math.exp(max(x[index] - half, -700.0)), math.exp(min(x[index] + half, 700.0))
            interval = max(low, parameter.low), min(high, parameter.high)
        parameters.append(
            Fitted(
                parameter=parameter,
                value=math.exp(x[index]),
                prior=math.exp(prior[index]),
                status=status,
                interval=interval,
                with_=tuple(PARAMETERS[i].name for i in found.others) if found else (),
            )
        )
    return Calibration(
        scenario=scenario,
        measurements=tuple(measurements),
        predicted=tuple(float(value) for value in np.exp(r + model.measured)),
        before=tuple(float(value) for value in np.exp(before + model.measured)),
        parameters=tuple(parameters),
        rms_error=float(np.sqrt(np.mean(r**2))),
        degrees_of_freedom=degrees,
        singular_values=tuple(float(v) for v in np.linalg.svd(jacobian, compute_uv=False)) if free else (),
    )


def _asked(wanted: Sequence[str]) -> list[int]:
    names = [parameter.name for parameter in PARAMETERS]
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

    low, high = (np.log([getattr(PARAMETERS[i], end) for i in active]) for end in ("low", "high"))

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


def _at_bound(x: Floats, index: int) -> bool:
    parameter = PARAMETERS[index]
    ends = math.log(parameter.low), math.log(parameter.high)
    return bool(min(abs(x[index] - end) for end in ends) < 1e-3)


def _noise(r: Floats, parameters: int) -> float:
    """Standard deviation of a measurement's logarithm: from the residuals, and at least NOISE."""
    degrees = len(r) - parameters
    return max(math.sqrt(float(r @ r) / degrees) if degrees > 0 else 0.0, NOISE)


def _weakest(jacobian: Floats, r: Floats, free: Sequence[int]) -> _Left | None:
    """The parameter that measurements tell least, where the 95 % interval along a direction reaches a factor of e."""
    if not free:
        return None
    rank = np.linalg.svd(jacobian, full_matrices=True)
    values = np.zeros(len(free))
    values[: len(rank.S)] = rank.S
    weak = values[-1]
    direction = rank.Vh[-1]
    reach = 1.96 * _noise(r, len(free))
    if weak > reach:
        return None
    norms = np.linalg.norm(jacobian, axis=0)
    worst = int(np.argmax(np.abs(direction)))
    parts = np.abs(direction) * norms
    others = tuple(
        index
        for column, index in enumerate(free)
        if column != worst and parts[column] > NAMED * parts.max() and norms[worst] > reach
    )
    return _Left(index=free[worst], status="not told apart" if others else "not measured", others=others)


def _standard_errors(jacobian: Floats, r: Floats) -> Floats | None:
    """Of the logarithms; None without degrees of freedom."""
    degrees = len(r) - jacobian.shape[1]
    if not jacobian.shape[1] or degrees < 1:
        return None
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * _noise(r, jacobian.shape[1]) ** 2
    return np.sqrt(np.diag(covariance))


def _student(degrees: int) -> float:
    """Student's t at 97.5 %."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.975))
