"""What a scenario predicts for a measurement: from formulas for one engine or NIC, from the simulation for a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.errors import InputError, each
from dualplan.plan.measurements import Measurement
from dualplan.spec.parallel import Parallel, Side, hosted
from dualplan.spec.scenario import Scenario

if TYPE_CHECKING:
    from dualplan.serving.cluster import Cluster
    from dualplan.serving.trajectories import Trajectories


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement with the scenario it belongs to. Of one engine: its parallelism on either side, and ``batch``, the
    sequences of an attention rank. Of a run: the trajectories of its workload.
    """

    measurement: Measurement
    scenario: Scenario
    prefill: Parallel = Parallel()
    decode: Parallel = Parallel()
    batch: float = 1.0
    trajectories: Trajectories | None = None


def cases(scenario: Scenario, measurements: Sequence[Measurement], name: str) -> tuple[Case, ...]:
    """What each measurement is computed from. Raises InputError with all problems."""
    return tuple(each(measurements, lambda one: _case(scenario, one, f"{one.file or name}:{one.line}")))


def _case(scenario: Scenario, one: Measurement, where: str) -> Case:
    from dualplan.spec.workload import load_workload, with_plain_means

    if one.kind == "snic_gbps":
        return Case(measurement=one, scenario=scenario)
    workload = scenario.workload if one.workload is None else load_workload(one.workload, where=f"{where}: workload")
    context = one.context
    if context is None and one.append is not None and not one.simulated:
        context = 0.0  # a prompt whose length is stated, and no prefix
    lengths = {"context": context, "append": one.append, "generated": one.generated}
    if any(value is not None for value in lengths.values()):
        workload = with_plain_means(workload, **lengths)
    own = msgspec.structs.replace(scenario, workload=workload)
    return _run_case(own, one, where) if one.simulated else _engine_case(own, one, where)


def _run_case(scenario: Scenario, one: Measurement, where: str) -> Case:
    from dualplan.serving.trajectories import for_workload

    settings = scenario.settings
    nodes = {f"{side}_nodes": _nodes(scenario, one, side) for side in ("prefill", "decode")}
    for key, count in nodes.items():
        if count is None:
            raise InputError(where, f"{key} is missing", _nodes_hint(key))
    settings = msgspec.structs.replace(settings, mode=one.mode or settings.mode, **nodes)
    changes: dict[str, Any] = {"settings": settings}
    if _degrees(one):
        changes["prefill_parallel"] = _with_degrees(one, scenario.prefill_parallel)
        changes["decode_parallel"] = _with_degrees(one, scenario.decode_parallel)
    scenario = msgspec.structs.replace(scenario, **changes)
    return Case(measurement=one, scenario=scenario, trajectories=for_workload(scenario.workload))


def _engine_case(scenario: Scenario, one: Measurement, where: str) -> Case:
    """One engine: the side that is measured decides. An aggregated one is on the decode side's hardware."""
    side: Side = "decode" if one.kind == "tpot" else "prefill"
    parallel, gpus = _parallel(scenario, one, side, where)
    batch = one.batch
    if batch is None:
        batch = (one.concurrency or 1.0) * parallel.tp / gpus if one.kind == "tpot" else 1.0
    return Case(measurement=one, scenario=scenario, prefill=parallel, decode=parallel, batch=batch)


def _parallel(scenario: Scenario, one: Measurement, side: Side, where: str) -> tuple[Parallel, int]:
    """Degrees of the measured engine, and the GPUs over which its requests are spread."""
    from dualplan.steady.setup import hosting

    hardware = scenario.hardware if side == "prefill" else scenario.decode_hardware
    given = scenario.prefill_parallel if side == "prefill" else scenario.decode_parallel
    per_node = hardware.gpu.count
    nodes = one.prefill_nodes if side == "prefill" else one.decode_nodes
    if not _degrees(one):
        nodes = nodes or _nodes(scenario, one, side)
        if given is None:
            if nodes is None:
                raise InputError(
                    where, f"{side}_nodes is missing", _nodes_hint(f"{side}_nodes") + ", or columns tp, dp, ep"
                )
            return hosting(scenario, side, nodes, None)[0], nodes * per_node
    parallel = _with_degrees(one, given)
    gpus = max(parallel.tp * parallel.dp, parallel.ep) if nodes is None else nodes * per_node
    return hosted(parallel, scenario.model, gpus, per_node, where=where), gpus


def _degrees(one: Measurement) -> bool:
    return any(degree is not None for degree in (one.tp, one.dp, one.ep))


def _with_degrees(one: Measurement, given: Parallel | None) -> Parallel:
    usual = given or Parallel()
    return Parallel(ep=one.ep or usual.ep, tp=one.tp or usual.tp, dp=one.dp or usual.dp)


def _nodes(scenario: Scenario, one: Measurement, side: Side) -> int | None:
    own = one.prefill_nodes if side == "prefill" else one.decode_nodes
    usual = scenario.settings.prefill_nodes if side == "prefill" else scenario.settings.decode_nodes
    return own or usual


def _nodes_hint(key: str) -> str:
    return f"give a column of that name, or --{key.removesuffix('_nodes')}"


# ---------------------------------------------------------------- predictions


def of_engine(case: Case, scenario: Scenario) -> float:
    """What is measured of one storage NIC [B/s] or one engine: a decode step [s], the pass of one prompt [s], tokens/s
    of passes. ``scenario``: that of the case with other values in its profiles.

    An aggregated decode step also waits for the prefills of the other n - 1 sequences of its rank, each of which starts
    once in ``generated`` steps: TPOT = step + (n - 1) / generated * pass of one prompt.
    """
    from dualplan.model.latency import touched
    from dualplan.model.service_times import step_time
    from dualplan.model.sources import from_roofline
    from dualplan.plan.ratio import pass_time
    from dualplan.spec.workload import per_turn_means

    one = case.measurement
    if one.kind == "snic_gbps":
        return _read_rate(scenario, one)
    if one.aggregated and one.kind == "tpot":
        scenario = msgspec.structs.replace(scenario, hardware=scenario.decode_hardware)
    times = from_roofline(scenario, case.prefill, case.decode)
    means = per_turn_means(scenario.workload)
    if one.kind == "tpot":
        batch = case.batch
        experts = times.decode_experts * touched(times.expert_share, batch * times.expert_ranks)
        cache = batch * times.decode_cache.value(means.context + means.append + means.generated / 2)
        step = step_time(times.decode_base, times.decode_slope, times.decode_quadratic, batch, experts, cache)
        if one.aggregated:
            step += max(batch - 1, 0.0) / means.generated * pass_time(times, 1, means.append, means.context)
        return float(step)
    passing = float(pass_time(times, case.batch, means.append, means.context))
    return passing if one.kind == "ttft" else case.batch * means.append / passing


def _read_rate(scenario: Scenario, one: Measurement) -> float:
    """Bytes over time of one read at a time of one storage NIC [B/s]."""
    from dualplan.model.latency import read_time

    assert one.read_size is not None
    snic = scenario.hardware.snic
    return float(one.read_size / read_time(one.read_size, snic.rate * snic.efficiency, snic.time_per_read))


def predictor(
    found: Sequence[Case], changed: Callable[[Scenario, Sequence[float]], Scenario]
) -> Callable[[int, Sequence[float]], float]:
    """A function of (measurement, values). ``changed``: a scenario with such values in its profiles. Runs are kept:
    many values leave a run as it is.
    """
    runs: dict[Any, float] = {}

    def predict(index: int, values: Sequence[float]) -> float:
        case = found[index]
        scenario = changed(case.scenario, values)
        if case.trajectories is None:
            return of_engine(case, scenario)
        from dualplan.serving.cluster import cluster

        laid = cluster(scenario, case.trajectories)
        key = (index, laid.times)
        if key not in runs:
            runs[key] = _of_run(laid, case.trajectories, case.measurement)
        return runs[key]

    return predict


def _of_run(laid: Cluster, trajectories: Trajectories, one: Measurement) -> float:
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
        raise InputError(
            f"{one.file or 'measurements'}:{one.line}", "the simulated run gives no value", "measure a longer run"
        )
    return float(value)
