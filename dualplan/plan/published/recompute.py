"""What the model says about each published figure: one function for each way to compute one, in a table.

A function takes the record of a figure (``dualplan.plan.published.records``) and returns the value in the figure's
unit. Runs of the simulation are kept, because several figures rest on the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualplan.errors import InputError
from dualplan.plan.published import records
from dualplan.plan.ratio import cache_compute, hardware_trend, published_table, relative_throughput

if TYPE_CHECKING:
    from dualplan.serving.policies import Policies
    from dualplan.serving.result import Result
    from dualplan.serving.trajectories import Trajectories
    from dualplan.spec.choices import Mode, Policy
    from dualplan.spec.scenario import Scenario
    from dualplan.trace.stats import Summary

Samples = Callable[[str], Path | None]
"""The file of a trace by its name, or None."""

HARDWARE = "dualpath-hopper"
PAPER = records.ABLATION
BATCH_APPEND, BATCH_CONTEXT, BATCH_MODEL = 300, 30_000, "ds-27b"
DISPATCH_TOKENS, DISPATCH_WIDTH, DISPATCH_COPIES = 128, 7168, 8
SECONDS_A_DAY = 86_400

WORKED_HIT, WORKED_MISS, WORKED_GENERATED = Fraction(3, 2) * 10**9, 3 * 10**7, 10**7
WORKED_TURNS, WORKED_NODES, NICS = (20, 40), {"prefill": 2, "decode": 4}, 8
"""The worked example: bytes of a turn, turns/s read on either side, nodes, compute NICs of a node."""


class NotAtHandError(Exception):
    """A figure that cannot be computed here, with the reason."""


def recompute(given: records.Given, samples: Samples | None = None) -> float:
    """The value that the model gives for a published figure, in its unit.

    Raises NotAtHandError for figures of traces that are not at hand.
    """
    if isinstance(given, records.TraceFigure):
        return _trace_figure(given, samples)
    return float(FUNCTIONS[type(given)](given))


# ---------------------------------------------------------------- steady model and facts


def _scenario(
    deployment: Any, mode: Mode | None = None, sets: tuple[str, ...] = (), load: float | None = None
) -> Scenario:
    from dualplan.spec.load import Node
    from dualplan.spec.scenario import resolve, set_flags

    values = {
        "hardware": HARDWARE,
        "model": deployment.model,
        "workload": deployment.workload,
        "prefill_nodes": str(deployment.prefill_nodes),
        "decode_nodes": str(deployment.decode_nodes),
    }
    if mode is not None:
        values["mode"] = mode
    if load is not None:
        values["collective_load"] = str(load)
    tree = Node({key: Node(value, key, origin="flag") for key, value in values.items()}, "published", origin="flag")
    return resolve(tree, sets=set_flags(sets))


def _range(given: records.RangeBound) -> float:
    from dualplan.steady.answer import evaluate

    found = evaluate(_scenario(PAPER, sets=given.set, load=given.collective_load)).ranges
    wanted = found.paper if given.which == "paper" else found.all_traffic
    if given.bound == "empty":
        return float(bool(wanted.empty_because))
    bound = wanted.lower if given.bound == "lower" else wanted.upper
    return float("nan") if bound is None else float(bound)


def _traffic(given: records.LinkLoad) -> float:
    from dualplan.model.traffic import Bytes, path_loads, steps

    turn = Bytes(
        hit=WORKED_HIT,
        read=WORKED_HIT,
        loaded=WORKED_HIT,
        miss=WORKED_MISS,
        append=WORKED_MISS,
        generated=WORKED_GENERATED,
    )
    prefill, decode = path_loads(steps("dual-path"), turn)[given.resource]
    nodes = WORKED_NODES[given.resource.partition("_")[0]]
    total = WORKED_TURNS[0] * prefill + WORKED_TURNS[1] * decode
    return float(total / (nodes * (NICS if given.each == "nic" else 1)))


def _kv_bytes(given: records.KvBytes) -> float:
    from dualplan.model import kv
    from dualplan.spec.model import load_model

    model = load_model(given.model)
    size = kv.kv_total_bytes_per_token if given.index else kv.kv_bytes_per_token
    return size(model, given.format)


def _parameters(given: records.ParameterCount) -> float:
    from dualplan.spec.model import count_parameters, load_model

    counted = count_parameters(load_model(given.model))
    return float(counted.total if given.of == "total" else counted.active)


def _ratio(given: records.CacheCompute) -> float:
    from dualplan.spec.model import load_model

    return cache_compute(load_model(given.model), given.append, given.context).gb_per_pflop


def _trend(given: records.Trend) -> float:
    rows = hardware_trend(published_table()["hardware"])
    found = next(row for row in rows if (row["gpu"], row["dtype"]) == (given.gpu, given.dtype))
    return float(found["fall_from_a100_bf16"])


def _lane(given: records.LaneShare) -> float:
    import msgspec

    from dualplan.flow.arbitration import exact_shares
    from dualplan.spec.hardware import read_hardware
    from dualplan.spec.qos import LaneTables
    from dualplan.spec.qos_opensm import parse_table

    qos = read_hardware(HARDWARE).qos
    assert qos is not None
    setting = qos.setting()
    assert isinstance(setting, LaneTables)
    if given.low is not None:
        setting = msgspec.structs.replace(setting, low=parse_table(given.low))
    return float(exact_shares(setting, backlogged=given.backlogged)[given.lane])


def _collectives(given: records.AllToAll) -> float:
    from dualplan.model.collectives import LOW_LATENCY_HEADER, combine_bytes, dispatch_bytes, remote_nodes
    from dualplan.spec.model import load_model

    if given.what == "remote":
        experts = load_model("deepseek-v3").experts
        assert experts is not None and given.nodes is not None
        return float(remote_nodes(experts, given.nodes))
    assert given.microseconds is not None
    header = LOW_LATENCY_HEADER if given.what == "dispatch" else 0
    message = (dispatch_bytes if given.what == "dispatch" else combine_bytes)(DISPATCH_WIDTH) + header
    return float(DISPATCH_TOKENS * DISPATCH_COPIES * message / (given.microseconds * 1e-6))


def _copies(given: records.CopyRate) -> float:
    from dualplan.model import kv
    from dualplan.spec.model import load_model

    model = load_model(given.model)
    block = kv.kv_total_bytes_per_token(model, model.kv_format) / model.num_layers * kv.BLOCK_TOKENS
    return block / (given.microseconds * 1e-6)


def _weights(given: records.WeightBytes) -> float:
    from dualplan.model.memory import weight_bytes_per_gpu
    from dualplan.spec.model import load_model
    from dualplan.spec.parallel import Parallel

    parallel = Parallel(ep=given.ep, tp=1, dp=given.ep)
    return weight_bytes_per_gpu(load_model(given.model), parallel, redundant_experts=given.redundant)


def _nodes(given: records.NodeCount) -> float:
    prefill = given.input_tokens / SECONDS_A_DAY / given.input_rate
    return prefill + given.output_tokens / SECONDS_A_DAY / given.output_rate


def _steady(given: records.Steady) -> float:
    from dualplan.steady.answer import evaluate

    return evaluate(_scenario(given, given.mode)).turns_per_s


def _working_set(given: records.WorkingSet) -> float:
    from dualplan.model import kv
    from dualplan.model.storage import working_set_bytes
    from dualplan.spec.model import load_model

    model = load_model(given.model)
    per_token = kv.kv_total_bytes_per_token(model, model.kv_format)
    return float(working_set_bytes(given.arrival_rate, given.completion_time, given.total_tokens, per_token))


def _break_even(given: records.BreakEven) -> float:
    from dualplan.model import compute, kv
    from dualplan.model.storage import break_even_bandwidth
    from dualplan.spec.model import load_model

    model = load_model(given.model)
    size = kv.kv_total_bytes_per_token(model, "bf16") * given.prefix
    # a new token sees half of the prefix on average
    flops = compute.turn_flops(model, given.prefix, given.prefix / 2).total
    return float(break_even_bandwidth(size, flops / (given.gpus * given.flop_per_s)))


def _batch(given: records.Batch) -> float:
    from dualplan.model.sources import from_set
    from dualplan.spec.fitted_sets import find_set
    from dualplan.spec.model import load_model

    fitted = find_set(BATCH_MODEL, HARDWARE)
    assert fitted is not None
    times = from_set(fitted, load_model(BATCH_MODEL).num_layers)
    return float(relative_throughput(times, given.batch, BATCH_APPEND, BATCH_CONTEXT))


# ---------------------------------------------------------------- simulation


@cache
def _drawn(workload: str) -> Trajectories:
    from dualplan.serving.trajectories import for_workload
    from dualplan.spec.workload import load_workload

    return for_workload(load_workload(workload))


def _trajectories(given: records.TrajectoryMean) -> float:
    import numpy as np

    from dualplan.spec.workload import load_workload, mean_of, mean_turns

    drawn = _drawn(given.workload)
    first, last = drawn.offsets[:-1], drawn.offsets[1:] - 1
    if given.of == "turns":
        return float(drawn.turns.mean())
    if given.of == "token_factor":
        stated = load_workload(given.workload)
        of_means = mean_turns(stated) * (mean_of(stated.context) + mean_of(stated.append))
        return float((drawn.context + drawn.append).sum() / (len(first) * of_means))
    if given.of == "total":
        return float((drawn.context + drawn.append + drawn.generated)[last].mean())
    return float((np.add.reduceat(getattr(drawn, given.of), first) / drawn.turns).mean())


def _policies(name: Policy) -> Policies:
    from dualplan.serving.policies import policies

    return policies(name)


@cache
def _offline(deployment: records.Deployment, agents: int, mode: Mode, policy: Policy) -> Result:
    from dualplan.serving.cluster import cluster
    from dualplan.serving.run import offline
    from dualplan.spec.run import RunSpec

    drawn = _drawn(deployment.workload)
    laid = cluster(_scenario(deployment), drawn, mode=mode, policies=_policies(policy))
    found = offline(laid, drawn, RunSpec(agents=agents, compiled=True))
    if found.stopped == "interrupted":
        raise KeyboardInterrupt
    return found


def _job_time(given: records.JobTime, mode: Mode | None = None) -> float:
    found = _offline(given.deployment, given.agents, mode or given.mode, given.policy).jct_s
    assert found is not None
    return found


def _job_times(given: records.JobTime) -> float:
    own = _job_time(given)
    return own if given.over is None else _job_time(given, given.over) / own


def _growth(given: records.Growth) -> float:
    return _job_time(given.large) / _job_time(given.small)


@cache
def _online(deployment: records.Deployment, mode: Mode, rate: float) -> Result:
    from dualplan.serving.cluster import cluster
    from dualplan.serving.run import online
    from dualplan.spec.run import RunSpec

    drawn = _drawn(deployment.workload)
    laid = cluster(_scenario(deployment), drawn, mode=mode)
    found = online(laid, drawn, RunSpec(arrival_rate=rate, compiled=True))
    if found.stopped == "interrupted":
        raise KeyboardInterrupt
    return found


def _latency(given: records.Latency) -> float:
    found = _online(given.deployment, given.mode, given.arrival_rate)
    if given.of in found.ttft_parts_s:
        whole = found.ttft_s.mean
        return found.ttft_parts_s[given.of] / whole if whole else float("nan")
    mean = {"ttft": found.ttft_s, "tpot": found.tpot_s, "ttst": found.ttst_s}[given.of].mean
    return float("nan") if mean is None else mean


@cache
def _highest_rate(deployment: records.Deployment, mode: Mode) -> float:
    from dualplan.serving.capacity import find_capacity
    from dualplan.serving.cluster import cluster
    from dualplan.spec.run import RunSpec

    drawn = _drawn(deployment.workload)
    return find_capacity(cluster(_scenario(deployment), drawn, mode=mode), drawn, RunSpec(find_capacity=True)).met


def _capacity(given: records.Capacity) -> float:
    return _highest_rate(given.deployment, given.mode)


def _capacity_ratio(given: records.Capacities) -> float:
    deployment = records.Deployment(
        model=given.model,
        prefill_nodes=given.prefill_nodes,
        decode_nodes=given.decode_nodes,
        workload=given.workload,
    )
    return _highest_rate(deployment, "dual-path") / _highest_rate(deployment, "basic")


STEPS: dict[str, tuple[Mode, Policy]] = {
    "layerwise": ("layerwise", "shortest-queue"),
    "dual-path without scheduler": ("dual-path", "round-robin"),
    "dual-path": ("dual-path", "shortest-queue"),
}


def _saving(given: records.Saving) -> float:
    mode, policy = STEPS[given.step]
    basic = records.JobTime(deployment=given.deployment, agents=given.agents, mode="basic")
    step = records.JobTime(deployment=given.deployment, agents=given.agents, mode=mode, policy=policy)
    return 1 - _job_time(step) / _job_time(basic)


def _append_scale(given: records.AppendScale) -> float:
    gains = _gains(given.scales)
    return min(gains) if given.which == "least" else max(gains)


@cache
def _gains(scales: tuple[float, ...]) -> list[float]:
    """Speed-up of dual-path over basic with appends multiplied by each scale."""
    from dualplan.serving.cluster import cluster
    from dualplan.serving.run import offline
    from dualplan.serving.trajectories import scaled
    from dualplan.spec.run import RunSpec

    scenario, spec = _scenario(PAPER), RunSpec(agents=records.FEW_AGENTS, compiled=True)
    gains = []
    for scale in scales:
        turns = scaled(_drawn(PAPER.workload), scale, 1.0, scenario.workload.max_length)
        modes: tuple[Mode, Mode] = ("basic", "dual-path")
        times = [offline(cluster(scenario, turns, mode=mode), turns, spec).jct_s for mode in modes]
        if times[0] is None or times[1] is None:
            raise KeyboardInterrupt
        gains.append(times[0] / times[1])
    return gains


def _balance(given: records.Balance) -> float:
    found = _offline(given.deployment, given.agents, "dual-path", given.policy).max_over_mean[given.of]
    return float("nan") if found is None else found


def _equal(given: records.EqualTimes) -> float:
    first, second = (_job_time(_written(text)) for text in (given.one, given.other))
    return first / second


def _written(text: str) -> records.JobTime:
    """``basic 1P2D`` as a job of DS 27B."""
    mode, _, nodes = text.partition(" ")
    prefill, _, decode = nodes.rstrip("D").partition("P")
    deployment = records.Deployment(
        model="ds-27b", prefill_nodes=int(prefill), decode_nodes=int(decode), workload="dualpath-64k"
    )
    return records.JobTime(deployment=deployment, agents=records.FEW_AGENTS, mode=mode)  # type: ignore[arg-type]


# ---------------------------------------------------------------- traces


def _measured_run(given: records.MeasuredRun) -> float:
    from dualplan.plan.measured import predict, shipped_runs

    run = predict(shipped_runs()[given.line])
    value = run.predicted_tpot_ms if given.of == "tpot" else run.predicted_ttft_ms
    assert value is not None
    return value / 1e3


def _prefill_rate(given: records.PrefillRate) -> float:
    from dualplan.plan.measured import predicted_point, published_points
    from dualplan.spec.constants import roofline_constants

    point = next(point for point in published_points() if point.id == given.id)
    return predicted_point(point, roofline_constants())


def _trace_figure(given: records.TraceFigure, samples: Samples | None) -> float:
    if samples is None:
        raise NotAtHandError(f"needs the public trace {given.file}: give its folder as --samples DIR")
    path = samples(given.file)
    if path is None:
        raise NotAtHandError(f"{given.file} is not in the folder of --samples")
    try:
        return float(TRACE_FIGURES[given.figure](_summary(path)))
    except InputError as error:
        raise NotAtHandError(f"{given.file} cannot be read: {error.problems[0]}") from None


@cache
def _summary(path: Path) -> Summary:
    from dualplan.trace.read import read_trace
    from dualplan.trace.stats import summarise

    return summarise(read_trace(str(path)))


def _hits(summary: Summary) -> Any:
    return summary.hit_rates["block_hashes"]


TRACE_FIGURES: dict[str, Callable[[Summary], Any]] = {
    "requests": lambda summary: summary.requests,
    "input_tokens_mean": lambda summary: summary.input_tokens.mean,
    "output_tokens_mean": lambda summary: summary.output_tokens.mean,
    "hit_rate_by_token": lambda summary: _hits(summary).by_token,
    "hit_rate_by_block": lambda summary: _hits(summary).by_block,
    "hit_rate_mean_of_ratios": lambda summary: _hits(summary).mean_of_ratios,
}

FUNCTIONS: dict[type[records.Given], Callable[[Any], float]] = {
    records.RangeBound: _range,
    records.LinkLoad: _traffic,
    records.KvBytes: _kv_bytes,
    records.ParameterCount: _parameters,
    records.CacheCompute: _ratio,
    records.Trend: _trend,
    records.LaneShare: _lane,
    records.AllToAll: _collectives,
    records.CopyRate: _copies,
    records.WeightBytes: _weights,
    records.NodeCount: _nodes,
    records.TrajectoryMean: _trajectories,
    records.Batch: _batch,
    records.Steady: _steady,
    records.WorkingSet: _working_set,
    records.BreakEven: _break_even,
    records.AppendScale: _append_scale,
    records.JobTime: _job_times,
    records.Growth: _growth,
    records.Latency: _latency,
    records.Capacity: _capacity,
    records.Capacities: _capacity_ratio,
    records.Saving: _saving,
    records.Balance: _balance,
    records.MeasuredRun: _measured_run,
    records.PrefillRate: _prefill_rate,
    records.EqualTimes: _equal,
}
"""The function of each record but that of a trace, which needs the files."""
