"""What a call of ``dualplan simulate`` asks for, run row by row; what is known is kept when it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dualplan.cli.scenario_flags import ScenarioFlags

if TYPE_CHECKING:
    from dualplan.plan.simulation import Options
    from dualplan.report.simulate import Answer
    from dualplan.serving.capacity import Capacity
    from dualplan.serving.cluster import Cluster
    from dualplan.serving.elastic import Elastic
    from dualplan.serving.policies import Policies
    from dualplan.serving.result import Result, Slo
    from dualplan.serving.run import Progress
    from dualplan.serving.trajectories import Floats, Trajectories
    from dualplan.spec.choices import Mode
    from dualplan.spec.scenario import Scenario


class Call:
    """What one call asks for. ``clusters``: numbers of equal clusters, a row each; None where not asked for."""

    def __init__(self, **values: Any) -> None:
        self.agents: int | None = values.get("agents")
        self.rate: float | None = values.get("rate")
        self.find_capacity: bool = values.get("find_capacity", False)
        self.trace_times: bool = values.get("trace_times", False)
        self.modes: tuple[Mode, ...] = values["modes"]
        self.duration: float | None = values.get("duration")
        self.warm_up: float | None = values.get("warm_up")
        self.runs: int = values.get("runs", 1)
        self.seed: int = values["seed"]
        self.tokens_per_step: float = values.get("tokens_per_step", 1.0)
        self.scales: tuple[float, float] = values.get("scales", (1.0, 1.0))
        self.policies: Policies = values["policies"]
        self.max_active: int = values.get("max_active", 0)
        self.clusters: tuple[int, ...] | None = values.get("clusters")
        self.elastic: Elastic | None = values.get("elastic")

    def as_data(self) -> dict[str, Any]:
        """The call as plain data, for the hash of the inputs."""
        import msgspec

        data: dict[str, Any] = msgspec.to_builtins(self.__dict__)
        return data

    def rows(self) -> list[tuple[str, Options]]:
        """Each combination that is run, with a label that tells it from the others."""
        from dualplan.plan.simulation import Options

        found = []
        for mode in self.modes:
            for clusters in self.clusters or (1,):
                for elastic in (None,) if self.elastic is None else (None, self.elastic):
                    label: str = mode
                    if self.clusters:
                        label += f", {clusters} cluster{'s' if clusters > 1 else ''}"
                    if self.elastic is not None:
                        label += ", elastic" if elastic else ", static"
                    options = Options(
                        mode=mode,
                        policies=self.policies,
                        tokens_per_step=self.tokens_per_step,
                        max_active=self.max_active,
                        clusters=clusters,
                        elastic=elastic,
                    )
                    found.append((label, options))
        return found


def answer(flags: ScenarioFlags, scenario: Scenario, call: Call) -> tuple[Answer, bool]:
    """Run what was asked for; and whether the SLO, where there is one, was met, or all jobs came to their end.

    Ctrl-C ends it with what is known so far; it is raised again where nothing is.
    """
    from dualplan.plan.simulation import slo_of, trajectories_of
    from dualplan.report.simulate import Answer
    from dualplan.serving.result import meets

    slo, given = slo_of(scenario), scenario.settings.slo
    trace = flags.workload_path() if scenario.workload.mix else None
    drawn = trajectories_of(scenario.workload, seed=call.seed, trace=trace, scales=call.scales, agents=call.agents)
    rows = call.rows()
    # all are laid out first: what does not fit is said before anything is run
    laid = [options.lay_out(scenario, drawn[0]) for _, options in rows]
    results: list[Result] = []
    capacities: list[Capacity] = []
    job_times: list[tuple[float, ...]] = []
    interrupted = False
    with progress() as show:
        for (label, options), cluster in zip(rows, laid, strict=True):
            try:
                if call.find_capacity:
                    capacities.append(_capacity(call, cluster, drawn[0], slo, options, label, show))
                    interrupted = capacities[-1].interrupted
                else:
                    result, times, interrupted = _runs(call, scenario, drawn, options, slo, label, show)
                    results.append(result)
                    job_times.append(times)
            except KeyboardInterrupt:
                if not results and not capacities:
                    raise
                interrupted = True
            if interrupted:
                break
    done = len(results) + len(capacities)
    found = Answer(
        results=tuple(results),
        job_times=tuple(job_times) if call.agents is not None else (),
        capacities=tuple(capacities),
        slo=slo,
        slo_given=tuple(name for name in ("ttft", "tpot") if getattr(given, name) is not None),
        trajectories=drawn[0],
        options=call.as_data(),
        interrupted=interrupted,
        left_out=tuple(label for label, _ in rows[done:]),
    )
    if call.find_capacity:
        return found, all(capacity.met > 0 for capacity in capacities)
    if call.agents is not None:
        return found, all(result.jct_s is not None for result in results)
    return found, all(meets(result, slo) for result in results)


def _capacity(
    call: Call, cluster: Cluster, trajectories: Trajectories, slo: Slo, options: Options, label: str, show: Progress
) -> Capacity:
    from dualplan.serving.capacity import find_capacity
    from dualplan.serving.run import DURATION

    return find_capacity(
        cluster,
        trajectories,
        slo=slo,
        duration=DURATION if call.duration is None else call.duration,
        warm_up=call.warm_up,
        seed=call.seed,
        progress=show,
        elastic=options.elastic,
        label=label,
    )


def _runs(
    call: Call,
    scenario: Scenario,
    drawn: tuple[Trajectories, Floats | None],
    options: Options,
    slo: Slo,
    label: str,
    show: Progress,
) -> tuple[Result, tuple[float, ...], bool]:
    """Runs of one row: the first result, all completion times [s], and whether it was interrupted."""
    from dualplan.errors import InputError
    from dualplan.plan.simulation import simulate, trajectories_of

    first: Result | None = None
    times: list[float] = []
    try:
        for run in range(call.runs):
            seed = call.seed + run
            if run and not scenario.workload.mix:
                drawn = trajectories_of(scenario.workload, seed=seed, scales=call.scales, agents=call.agents)
            result = simulate(
                scenario,
                agents=call.agents,
                arrival_rate=call.rate if call.agents is None and not call.trace_times else None,
                trace_times=call.trace_times,
                duration=call.duration,
                warm_up=call.warm_up,
                seed=seed,
                options=options,
                drawn=drawn,
                slo=slo,
                label=label,
                progress=show,
            )
            first = first or result
            if result.stopped == "interrupted":
                return first, tuple(times), True
            if result.jct_s is not None:
                times.append(result.jct_s)
    except KeyboardInterrupt:
        if first is None:
            raise
        return first, tuple(times), True
    assert first is not None
    if not first.turns:
        what = f"no turn ended in the {first.simulated_s - first.warm_up_s:.0f} s that count"
        raise InputError("--duration", what, "run longer")
    return first, tuple(times), False


@contextmanager
def progress() -> Iterator[Callable[[float, int, float], None]]:
    """Share of the run that is done, turns that ended and simulated time [s]."""
    from dualplan.cli.progress import progress_line, seconds_left, status_line
    from dualplan.serving import kernel

    what = f"compiling the simulation once, about {kernel.COMPILE_SECONDS:.0f} s; later runs start at once"
    kernel.before_compiling[:] = [lambda: status_line(what)]
    with progress_line() as show:

        def shown(done: float, turns: int, time: float) -> None:
            show(
                lambda elapsed: (
                    f"{100 * done:3.0f} %  {turns:,} turns ({turns / elapsed:,.0f}/s)  {time:,.0f} s simulated  "
                    f"{seconds_left(done, elapsed):.0f} s left"
                )
            )

        yield shown
