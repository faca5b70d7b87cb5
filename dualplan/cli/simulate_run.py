"""What a call of ``dualplan simulate`` asks for, run row by row; what is known is kept when it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING

from dualplan.cli.scenario_flags import ScenarioFlags
from dualplan.units import counted

if TYPE_CHECKING:
    from dualplan.report.simulate import Answer
    from dualplan.serving.capacity import Capacity
    from dualplan.serving.result import Result
    from dualplan.serving.run import Progress
    from dualplan.serving.trajectories import Floats, Trajectories
    from dualplan.spec.choices import Mode
    from dualplan.spec.run import Elastic, RunSpec
    from dualplan.spec.scenario import Scenario


def rows(
    spec: RunSpec, *, modes: Iterable[Mode], clusters: Iterable[int] | None, elastic: Elastic | None
) -> tuple[RunSpec, ...]:
    """A run for each combination of modes, numbers of equal clusters, and static or changing roles, with a label that
    tells it from the others.
    """
    found = []
    for mode, count, plan in product(
        modes, (1,) if clusters is None else dict.fromkeys(clusters), (None,) if elastic is None else (None, elastic)
    ):
        label: str = mode
        if clusters is not None:
            label += f", {counted(count, 'cluster')}"
        if elastic is not None:
            label += ", elastic" if plan else ", static"
        found.append(spec.but(mode=mode, clusters=count, elastic=plan, label=label))
    return tuple(found)


def answer(flags: ScenarioFlags, scenario: Scenario, specs: Sequence[RunSpec], repeats: int = 1) -> tuple[Answer, bool]:
    """Run each row; and whether the SLO, where there is one, was met, or all jobs came to their end. ``repeats``: runs
    of a row with seeds one after the other.

    Ctrl-C ends it with what is known so far; it is raised again where nothing is.
    """
    import msgspec

    from dualplan.plan.simulation import lay_out, trajectories_of
    from dualplan.report.simulate import Answer
    from dualplan.serving.capacity import find_capacity
    from dualplan.serving.result import meets
    from dualplan.spec.run import slo_of

    slo, given = slo_of(scenario), scenario.settings.slo
    trace = str(flags.workload_path()) if scenario.workload.mix else None
    specs = [spec.but(trace=trace).of(scenario) for spec in specs]
    first = specs[0]
    drawn = trajectories_of(scenario.workload, first)
    # all are laid out first: what does not fit is said before anything is run
    laid = [lay_out(scenario, drawn[0], spec) for spec in specs]
    results: list[Result] = []
    capacities: list[Capacity] = []
    job_times: list[tuple[float, ...]] = []
    interrupted = False
    with progress() as show:
        for spec, cluster in zip(specs, laid, strict=True):
            try:
                if spec.find_capacity:
                    capacities.append(find_capacity(cluster, drawn[0], spec, progress=show))
                    interrupted = capacities[-1].interrupted
                else:
                    result, times, interrupted = _runs(scenario, spec, repeats, drawn, show)
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
        job_times=tuple(job_times) if first.agents is not None else (),
        capacities=tuple(capacities),
        slo=slo,
        slo_given=tuple(name for name in ("ttft", "tpot") if getattr(given, name) is not None),
        trajectories=drawn[0],
        options=[repeats, *(msgspec.structs.asdict(spec.but(label=None, trace=None)) for spec in specs)],
        interrupted=interrupted,
        left_out=tuple(spec.label or "" for spec in specs[done:]),
    )
    if first.find_capacity:
        return found, all(capacity.met > 0 for capacity in capacities)
    if first.agents is not None:
        return found, all(result.jct_s is not None for result in results)
    return found, all(meets(result, slo) for result in results)


def _runs(
    scenario: Scenario, spec: RunSpec, repeats: int, drawn: tuple[Trajectories, Floats | None], show: Progress
) -> tuple[Result, tuple[float, ...], bool]:
    """Runs of one row: the first result, all completion times [s], and whether it was interrupted."""
    from dualplan.errors import InputError
    from dualplan.plan.simulation import simulate, trajectories_of

    first: Result | None = None
    times: list[float] = []
    try:
        for run in range(repeats):
            again = spec.but(seed=(spec.seed or 0) + run)
            if run and not scenario.workload.mix:
                drawn = trajectories_of(scenario.workload, again)
            result = simulate(scenario, again, drawn=drawn, progress=show)
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
    from dualplan.cli.progress import progress_line, seconds_left

    with progress_line() as show:

        def shown(done: float, turns: int, time: float) -> None:
            show(
                lambda elapsed: (
                    f"{100 * done:3.0f} %  {turns:,} turns ({turns / elapsed:,.0f}/s)  {time:,.0f} s simulated  "
                    f"{seconds_left(done, elapsed):.0f} s left"
                )
            )

        yield shown
