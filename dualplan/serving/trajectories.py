"""Trajectories of agents as columns: what the kernel replays."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.spec.distribution import Distribution, quantile
from dualplan.spec.workload import Workload, mean_of, mean_turns, per_turn_means
from dualplan.trace.record import Trace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Trajectories(msgspec.Struct, frozen=True, kw_only=True):
    """Turns of all trajectories, one after the other; trajectory i has the turns offsets[i] to offsets[i+1] - 1.

    ``context``: tokens cached before the append; ``append``, ``generated``: tokens; ``think``: seconds from the end
    of the turn to the next one. All of them have one entry a turn. ``origin`` says in words how they were made.
    """

    offsets: Ints
    context: Floats
    append: Floats
    generated: Floats
    think: Floats
    origin: str

    def __post_init__(self) -> None:
        counts = np.diff(self.offsets)
        if len(counts) == 0 or counts.min() < 1:
            raise InputError("workload", "has a trajectory without turns")

    @property
    def turns(self) -> Ints:
        """Turns of each trajectory."""
        return np.diff(self.offsets)

    @property
    def longest(self) -> float:
        """Tokens of the longest sequence at the end of a turn."""
        return float((self.context + self.append + self.generated).max())


def equal_turns(workload: Workload) -> Trajectories:
    """One trajectory whose turns are all the mean turn: the class that the steady model counts with."""
    means = per_turn_means(workload)
    turns = max(round(mean_turns(workload)), 1)
    return Trajectories(
        offsets=np.array([0, turns], dtype=np.int64),
        context=np.full(turns, float(means.context)),
        append=np.full(turns, float(means.append)),
        generated=np.full(turns, float(means.generated)),
        think=np.full(turns, mean_of(workload.think_time)),
        origin=f"{turns} equal turns of the means of {workload.name or 'the workload'}",
    )


def for_workload(workload: Workload, *, count: int = 500, seed: int = 0) -> Trajectories:
    """Trajectories of a workload: drawn from its population, from its distributions, or its mean turn if it has means
    only. Raises InputError for a recipe that has no population.
    """
    if workload.recipe is not None:
        from dualplan.serving.population import draw, load_population

        if workload.recipe != "dualpath" or workload.max_length is None:
            raise InputError("workload.recipe", f'"{workload.recipe}" cannot be simulated', "known: dualpath")
        return draw(load_population(), workload.max_length, count, seed)
    lengths = (workload.turns, workload.context, workload.append, workload.generated)
    if any(isinstance(length, Distribution) for length in lengths):
        return _from_distributions(workload, count, seed)
    return equal_turns(workload)


def _from_distributions(workload: Workload, count: int, seed: int) -> Trajectories:
    """Independent draws by stratified quantiles; contexts ascend within a trajectory."""
    random = np.random.default_rng([seed, 3])

    def draws(length: float | Distribution, n: int) -> Floats:
        if not isinstance(length, Distribution):
            return np.full(n, float(length))
        return np.array([quantile(length, float(u)) for u in random.permutation((np.arange(n) + random.random(n)) / n)])

    turns = np.maximum(np.rint(draws(workload.turns, count)), 1).astype(np.int64)
    total = int(turns.sum())
    who = np.repeat(np.arange(count), turns)
    context = draws(workload.context, total)
    context = context[np.lexsort((context, who))]
    append = np.maximum(draws(workload.append, total), 1.0)
    generated = np.maximum(draws(workload.generated, total), 1.0)
    if workload.max_length is not None:
        context = np.minimum(context, np.maximum(workload.max_length - append - generated, 0.0))
    return Trajectories(
        offsets=np.concatenate(([0], np.cumsum(turns))).astype(np.int64),
        context=context,
        append=append,
        generated=generated,
        think=np.full(total, mean_of(workload.think_time)),
        origin=f"{count} trajectories drawn from the distributions of {workload.name or 'the workload'}, seed {seed}",
    )


def from_trace(trace: Trace, name: str) -> tuple[Trajectories, Floats | None]:
    """A trace as trajectories, one a session (one a request without sessions), and when each starts [s].

    The cached context of a request is what its blocks, or the server, say; else what the request before it left. Start
    times are None where the trace has no shared clock. Think time is the client's wait where the trace has it.
    """
    n = trace.requests
    session = np.where(trace.session < 0, np.arange(n) + (trace.session.max() + 1 if n else 0), trace.session)
    order = np.lexsort((trace.turn, session)) if trace.has_sessions else np.arange(n)
    session = session[order]
    starts = np.flatnonzero(np.concatenate(([True], session[1:] != session[:-1])))
    given, output = trace.input_tokens[order].astype(float), trace.output_tokens[order].astype(float)
    before = np.concatenate(([0.0], (given + output)[:-1]))
    before[starts] = 0.0
    context = np.minimum(before, given)
    reported = trace.cached_tokens[order]
    context = np.where(reported >= 0, np.minimum(reported, given), context)
    if trace.blocks is not None:
        blocks = trace.hit_blocks[order]
        context = np.where(blocks >= 0, np.minimum(blocks * float(trace.blocks.size), given), context)
    context = np.minimum(context, np.maximum(given - 1, 0))
    think = np.nan_to_num(np.concatenate((trace.think_time_s[order][1:], [0.0])), nan=0.0)
    think[np.concatenate((starts[1:] - 1, [n - 1]))] = 0.0
    arrivals = trace.arrival_s[order][starts]
    known = trace.clock == "shared" and not np.isnan(arrivals).any()
    made = Trajectories(
        offsets=np.concatenate((starts, [n])).astype(np.int64),
        context=context,
        append=np.maximum(given - context, 1.0),
        generated=np.maximum(output, 1.0),
        think=np.maximum(think, 0.0),
        origin=f"{len(starts)} trajectories of {name}",
    )
    return made, arrivals if known else None


def scaled(
    trajectories: Trajectories, append: float, generated: float, max_length: float | None = None
) -> Trajectories:
    """Trajectories with appends and generated lengths multiplied; contexts grow along, and a trajectory ends before
    the turn that would pass ``max_length`` tokens (its first turn always stays).

    Raises InputError for factors that are not positive.
    """
    for flag, factor in (("--append-scale", append), ("--generated-scale", generated)):
        if not 0 < factor < 1e6:
            raise InputError(flag, f"{factor:g} is not a factor above 0")
    if append == 1 and generated == 1:
        return trajectories
    more, longer = trajectories.append * append, trajectories.generated * generated
    grown = (more - trajectories.append) + (longer - trajectories.generated)
    first = trajectories.offsets[:-1]
    before = np.cumsum(grown) - grown
    extra = before - np.repeat(before[first], trajectories.turns)
    follows = _grows(trajectories)
    context = np.maximum(trajectories.context + np.where(follows, extra, 0.0), 0.0)
    keep = np.ones(len(context), dtype=bool)
    if max_length is not None:
        over = (context + more + longer > max_length).astype(np.int64)
        over[first] = 0
        passed = np.cumsum(over)
        keep = passed - np.repeat(passed[first], trajectories.turns) == 0
    counts = np.add.reduceat(keep.astype(np.int64), first)
    return Trajectories(
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        context=context[keep],
        append=more[keep],
        generated=longer[keep],
        think=trajectories.think[keep],
        origin=f"{trajectories.origin}; append times {append:g}, generated times {generated:g}",
    )


def _grows(trajectories: Trajectories) -> npt.NDArray[np.bool_]:
    """For each turn whether contexts of its trajectory grow from turn to turn (equal turns do not)."""
    first, last = trajectories.offsets[:-1], trajectories.offsets[1:] - 1
    return np.repeat(trajectories.context[last] > trajectories.context[first], trajectories.turns)


def dealt(trajectories: Trajectories, agents: int, seed: int) -> Ints:
    """Trajectory of each agent: all of them in a random order, as often as it takes. Integers, shape (agents,)."""
    random = np.random.default_rng([seed, 1])
    count = len(trajectories.offsets) - 1
    rounds = [random.permutation(count) for _ in range(-(-agents // count))]
    return np.concatenate(rounds)[:agents].astype(np.int64)
