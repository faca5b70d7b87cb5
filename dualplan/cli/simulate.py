"""``dualplan simulate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, check_place, emit, write_text
from dualplan.cli.scenario_flags import ScenarioFlags, scenario_command

if TYPE_CHECKING:
    from dualplan.report.simulate import Answer
    from dualplan.schedule.registry import Policies
    from dualplan.serving.result import Result
    from dualplan.serving.run import Progress
    from dualplan.serving.trajectories import Floats, Trajectories
    from dualplan.spec.choices import Mode
    from dualplan.spec.scenario import Scenario

AFTER_TRACE = 60.0
"""Seconds that a run goes on after the last arrival of a trace, unless --duration says otherwise."""


@scenario_command
def simulate(
    flags: ScenarioFlags,
    agents: Annotated[
        str | None, typer.Option(metavar="N", help="Agents that start together (offline): job completion time.")
    ] = None,
    find_capacity: Annotated[
        bool, typer.Option("--find-capacity", help="The highest arrival rate that meets the SLO.")
    ] = False,
    compare: Annotated[
        str | None, typer.Option(metavar="MODES", help="Several modes in one table: basic,layerwise,dual-path,oracle.")
    ] = None,
    trace_times: Annotated[
        bool, typer.Option("--trace-times", help="Arrivals at the times of the trace given as workload.")
    ] = False,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Length of an online run, 3000s unless given.")
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option(metavar="TIME", help="Turns that end before do not count; a third of the run.")
    ] = None,
    runs: Annotated[
        str | None, typer.Option(metavar="N", help="Offline runs with seeds one after the other, for an interval.")
    ] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Seed of trajectories and arrivals, 0.")] = None,
    append_scale: Annotated[str | None, typer.Option(metavar="X", help="Multiply all appends.")] = None,
    generated_scale: Annotated[str | None, typer.Option(metavar="X", help="Multiply all generated lengths.")] = None,
    tokens_per_step: Annotated[
        str | None, typer.Option(metavar="X", help="Tokens of a decode step (speculative decoding), 1.")
    ] = None,
    prefill_placement: Annotated[
        str | None, typer.Option(metavar="POLICY", help="three-class, paper-literal, least-tokens or round-robin.")
    ] = None,
    decode_placement: Annotated[
        str | None, typer.Option(metavar="POLICY", help="threshold, least-tokens or round-robin.")
    ] = None,
    read_side: Annotated[
        str | None, typer.Option(metavar="POLICY", help="shorter-queue, round-robin or prefill-only.")
    ] = None,
    timeline_file: Annotated[
        Path | None,
        typer.Option(
            "--timeline", metavar="FILE", help="State over time: FILE.csv columns, else Perfetto trace events."
        ),
    ] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="End with 0 even if the SLO is missed.")] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """Job completion time, TTFT, TTST, TPOT and capacity, with scheduling and arrivals simulated over time."""
    from dualplan.errors import InfeasibleError, UsageError
    from dualplan.schedule.registry import policies

    if str(timeline_file) == "-" and str(output_file or "-") == "-":
        raise UsageError("--timeline - and the result both go to standard output: give -o FILE for the result")
    check_place(timeline_file, "--timeline")
    check_place(output_file, "-o")
    scenario = flags.resolve()
    rate = scenario.settings.demand.arrival_rate
    online_given = "arrival_rate" in flags.values
    if sum((agents is not None, online_given or trace_times, find_capacity)) > 1:
        raise UsageError("give one of --agents N (offline), --arrival-rate R (online) and --find-capacity")
    if agents is None and rate is None and not (find_capacity or trace_times):
        raise UsageError("give --agents N (offline), --arrival-rate R (online) or --find-capacity")
    if runs is not None and agents is None:
        raise UsageError("--runs belongs to --agents; online runs give one mean over time")
    from dualplan.serving.run import MOST_AGENTS

    call = _Call(
        agents=None if agents is None else _whole(agents, "--agents", MOST_AGENTS),
        rate=rate,
        find_capacity=find_capacity,
        modes=_modes(compare, scenario),
        duration=_time(duration, "--duration"),
        warm_up=_time(warm_up, "--warm-up"),
        runs=1 if runs is None else _whole(runs, "--runs", 1000),
        seed=scenario.settings.seed if seed is None else _whole(seed, "--seed", 2**31 - 1, least=0),
        tokens_per_step=_factor(tokens_per_step, "--tokens-per-step", least=1.0),
        scales=(_factor(append_scale, "--append-scale"), _factor(generated_scale, "--generated-scale")),
        policies=policies(
            scenario.settings.policy, prefill=prefill_placement, decode=decode_placement, read_side=read_side
        ),
    )
    from dualplan.report.simulate import infeasible, output, timeline

    try:
        answer, met = _answer(flags, scenario, call, trace_times)
    except InfeasibleError as error:
        emit(infeasible([str(error)]), fmt, as_json, output_file)
        raise typer.Exit(error.exit_code) from None
    results = [*answer.results, *(run for found in answer.capacities for run in found.results)]
    if timeline_file is not None:
        write_text(timeline_file, timeline(results, timeline_file.suffix.lstrip(".").lower()))
    emit(output(answer), fmt, as_json, output_file)
    if any(result.stopped == "interrupted" for result in results):
        raise typer.Exit(130)
    if not met and not exit_zero:
        raise typer.Exit(4)


def simulation_documents(flags: ScenarioFlags, scenario: Scenario) -> dict[str, Any]:
    """Documents of ``dualplan simulate``: ``capacity`` under the SLO, and ``run`` at the demand, None without one.

    Only ``reasons`` where the deployment cannot be simulated.
    """
    from dualplan.errors import InfeasibleError, InputError
    from dualplan.report.simulate import output
    from dualplan.schedule.registry import policies
    from dualplan.spec.workload import mean_turns

    demand = scenario.settings.demand
    rates = [demand.arrival_rate, demand.turn_rate and demand.turn_rate / mean_turns(scenario.workload)]
    rate = max((rate for rate in rates if rate is not None), default=None)
    common: dict[str, Any] = {
        "agents": None,
        "modes": (scenario.settings.mode,),
        "duration": None,
        "warm_up": None,
        "runs": 1,
        "seed": scenario.settings.seed,
        "tokens_per_step": 1.0,
        "scales": (1.0, 1.0),
        "policies": policies(scenario.settings.policy),
    }
    found: dict[str, Any] = {"run": None}
    try:
        answer, _ = _answer(flags, scenario, _Call(rate=None, find_capacity=True, **common), False)
        found["capacity"] = output(answer).data
        if rate is not None:
            answer, _ = _answer(flags, scenario, _Call(rate=rate, find_capacity=False, **common), False)
            found["run"] = output(answer).data
    except (InfeasibleError, InputError) as error:
        return {"reasons": str(error).splitlines()}
    return found


class _Call:
    """What one call asks for."""

    def __init__(self, **values: Any) -> None:
        self.agents: int | None = values["agents"]
        self.rate: float | None = values["rate"]
        self.find_capacity: bool = values["find_capacity"]
        self.modes: tuple[Mode, ...] = values["modes"]
        self.duration: float | None = values["duration"]
        self.warm_up: float | None = values["warm_up"]
        self.runs: int = values["runs"]
        self.seed: int = values["seed"]
        self.tokens_per_step: float = values["tokens_per_step"]
        self.scales: tuple[float, float] = values["scales"]
        self.policies: Policies = values["policies"]

    def options(self) -> dict[str, Any]:
        """The call as plain data, for the hash of the inputs."""
        import msgspec

        return {**self.__dict__, "policies": msgspec.to_builtins(self.policies)}


def _answer(flags: ScenarioFlags, scenario: Scenario, call: _Call, trace_times: bool) -> tuple[Answer, bool]:
    """Run what was asked for; and whether the SLO, where there is one, was met."""
    from dualplan.report.simulate import Answer
    from dualplan.serving.cluster import cluster
    from dualplan.serving.result import Slo, meets
    from dualplan.serving.run import DURATION, find_capacity, online

    given = scenario.settings.slo
    slo = Slo(ttft=given.ttft or Slo().ttft, tpot=given.tpot or Slo().tpot)
    trajectories, arrivals = _trajectories(flags, scenario, call)
    if trace_times and arrivals is None:
        from dualplan.errors import InputError

        raise InputError("--trace-times", "the workload is not a trace with times on one clock")
    laid = [
        cluster(scenario, trajectories, mode=mode, policies=call.policies, tokens_per_step=call.tokens_per_step)
        for mode in call.modes
    ]
    common: dict[str, Any] = {
        "slo": slo,
        "slo_given": given.ttft is not None or given.tpot is not None,
        "trajectories": trajectories,
        "options": call.options(),
    }
    duration = DURATION if call.duration is None else call.duration
    if trace_times and arrivals is not None and call.duration is None:
        duration = float(arrivals.max()) + AFTER_TRACE
    results: list[Result] = []
    with _progress() as show:
        if call.agents is not None:
            job_times = []
            for one in laid:
                result, times = _jobs(call, scenario, one, trajectories, show)
                results.append(result)
                job_times.append(times)
            return Answer(results=tuple(results), job_times=tuple(job_times), **common), True
        if call.find_capacity:
            capacities = tuple(
                find_capacity(
                    one,
                    trajectories,
                    slo=slo,
                    duration=duration,
                    warm_up=call.warm_up,
                    seed=call.seed,
                    progress=show,
                )
                for one in laid
            )
            return Answer(capacities=capacities, **common), all(found.met > 0 for found in capacities)
        for one in laid:
            results.append(
                online(
                    one,
                    trajectories,
                    None if trace_times else call.rate,
                    arrivals=arrivals if trace_times else None,
                    duration=duration,
                    warm_up=call.warm_up,
                    slo=slo,
                    seed=call.seed,
                    progress=show,
                )
            )
            if results[-1].stopped == "interrupted":
                break
            if not results[-1].turns:
                from dualplan.errors import InputError

                what = f"no turn ended in the {results[-1].simulated_s - results[-1].warm_up_s:.0f} s that count"
                raise InputError("--duration", what, "run longer")
    return Answer(results=tuple(results), **common), all(meets(result, slo) for result in results)


def _jobs(
    call: _Call, scenario: Scenario, laid: Any, trajectories: Trajectories, show: Progress
) -> tuple[Result, tuple[float, ...]]:
    """Offline runs of one mode: the first result, and all completion times [s]."""
    from dualplan.serving.run import offline

    assert call.agents is not None
    first: Result | None = None
    times: list[float] = []
    for run in range(call.runs):
        seed = call.seed + run
        drawn = trajectories if run == 0 else _drawn(scenario, call, seed) or trajectories
        result = offline(laid, drawn, call.agents, seed=seed, progress=show)
        first = first or result
        if result.jct_s is None:
            break
        times.append(result.jct_s)
    assert first is not None
    return first, tuple(times)


def _trajectories(flags: ScenarioFlags, scenario: Scenario, call: _Call) -> tuple[Trajectories, Floats | None]:
    """What the agents replay, and when they start where the workload is a trace that says so."""
    drawn = _drawn(scenario, call, call.seed)
    if drawn is not None:
        return drawn, None
    from dualplan.serving.trajectories import from_trace, scaled
    from dualplan.trace.read import read_trace

    place = flags.workload_path()
    made, arrivals = from_trace(read_trace(str(place)), Path(place).name)
    return scaled(made, *call.scales, scenario.workload.max_length), arrivals


def _drawn(scenario: Scenario, call: _Call, seed: int) -> Trajectories | None:
    """Trajectories of a workload that is no trace."""
    if scenario.workload.mix:
        return None
    from dualplan.serving.trajectories import for_workload, scaled

    return scaled(for_workload(scenario.workload, seed=seed), *call.scales, scenario.workload.max_length)


@contextmanager
def _progress() -> Iterator[Callable[[float, int, float], None]]:
    """A progress line on standard error if that is a terminal."""
    import sys

    if not sys.stderr.isatty():
        yield lambda done, turns, time: None
        return
    from time import monotonic

    started = last = monotonic()

    def show(done: float, turns: int, time: float) -> None:
        nonlocal last
        now = monotonic()
        if now - last < 0.2 or now - started < 1.0:
            return
        last = now
        left = (now - started) * (1 - done) / done if done > 0 else 0.0
        sys.stderr.write(f"\r{100 * done:3.0f} %  {turns:,} turns  {time:,.0f} s simulated  {left:.0f} s left \x1b[K")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _modes(text: str | None, scenario: Scenario) -> tuple[Mode, ...]:
    if text is None:
        return (scenario.settings.mode,)
    from dualplan.errors import InputError, did_you_mean
    from dualplan.spec.choices import MODES

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in MODES:
            hint = did_you_mean(name, MODES) or "known: " + ", ".join(MODES)
            raise InputError("--compare", f'"{name}" is not a mode', hint)
    if not names:
        raise InputError("--compare", "names no mode", "known: " + ", ".join(MODES))
    return tuple(dict.fromkeys(names))  # type: ignore[arg-type]


def _whole(text: str, flag: str, most: int, *, least: int = 1) -> int:
    from dualplan.errors import InputError

    if not text.isdecimal() or not least <= int(text[:12]) <= most:
        raise InputError(flag, f'"{text[:40]}" is not a whole number of {least:,} to {most:,}')
    return int(text)


def _factor(text: str | None, flag: str, *, least: float = 0.0) -> float:
    from dualplan.errors import InputError

    if text is None:
        return 1.0
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (least <= value < 1e6 and value > 0):
        raise InputError(flag, f'"{text[:40]}" is not a factor' + (f" of at least {least:g}" if least else " above 0"))
    return value


def _time(text: str | None, flag: str) -> float | None:
    if text is None:
        return None
    from dualplan.units import parse

    return parse(text, "s", flag)
