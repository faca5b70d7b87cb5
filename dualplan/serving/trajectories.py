"""Trajectories of agents as columns: what the kernel replays."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.messages import Message, message
from dualplan.spec.distribution import Distribution
from dualplan.spec.workload import Workload, mean_of, mean_turns, per_turn_means, turns_changed
from dualplan.trace.generate import Trajectories as Generated
from dualplan.trace.generate import generate_trajectories, trajectories_of_trace
from dualplan.trace.record import Trace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Trajectories(msgspec.Struct, frozen=True, kw_only=True):
    """Turns of all trajectories, one after the other; trajectory i has the turns offsets[i] to offsets[i+1] - 1.

    ``context``: tokens cached before the append; ``append``, ``generated``: tokens; ``think``: seconds from the end
    of the turn to the next one. All of them have one entry a turn. ``origin`` says how they were made.
    """

    offsets: Ints
    context: Floats
    append: Floats
    generated: Floats
    think: Floats
    origin: Message | str

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
        origin=message("trajectories.equal", turns=turns, workload=workload.name or message("trajectories.unnamed")),
    )


MOST_DEALT = 500_000
"""Turns that are dealt before a job of few agents gets no more trajectories than it has agents."""


def for_workload(workload: Workload, *, count: int = 500, seed: int = 0, agents: int | None = None) -> Trajectories:
    """Trajectories of a workload: grown from its recipe, dealt from its distributions, or its mean turn if it has means
    only, or a recipe and another number of turns than the recipe gives. Raises InputError for an unknown recipe.

    ``agents``: those of a job, which replay a trajectory each; where trajectories are very long no more are made.
    """
    if agents is not None and count * mean_turns(workload) > MOST_DEALT:
        count = min(count, agents)
    lengths = (workload.turns, workload.context, workload.append, workload.generated)
    made_of = {"count": count, "workload": workload.name or message("trajectories.unnamed"), "seed": seed}
    if workload.recipe is not None and not turns_changed(workload):
        origin = message("trajectories.recipe", **made_of, recipe=workload.recipe)
        return with_set_lengths(_as_columns(generate_trajectories(workload, count, seed), origin), workload)
    if workload.recipe is None and any(isinstance(length, Distribution) for length in lengths):
        made = generate_trajectories(workload, count, seed)
        notes = tuple(message("trajectories.note", note=note) for note in made.notes)
        return _as_columns(made, message("trajectories.dealt", **made_of, notes=notes))
    return equal_turns(workload)


def with_set_lengths(trajectories: Trajectories, workload: Workload) -> Trajectories:
    """Trajectories of the recipe or the trace of a workload with every length in proportion to the means that were set.

    Each length by itself: contexts do not grow with appends that are longer, as they do with :func:`scaled`.
    """
    changed = [one for one in workload.set_means if one.name != "turns" and one.value != one.source]
    if not changed:
        return trajectories
    columns = {
        one.name: _times(getattr(trajectories, one.name), one.value / one.source)
        if one.source and one.value
        else np.full(len(trajectories.context), one.value)
        for one in changed
    }
    means = tuple(
        message("trajectories.mean", length=message(f"length.{one.name}"), value=one.value, before=one.source)
        for one in changed
    )
    origin = message("trajectories.set", base=trajectories.origin, means=means)
    return msgspec.structs.replace(trajectories, **columns, origin=origin)


def from_trace(trace: Trace, name: str) -> tuple[Trajectories, Floats | None]:
    """A trace as trajectories, one a session (one a request without sessions), and when each starts [s].

    Start times are None where the trace has no shared clock.
    """
    made = trajectories_of_trace(trace)
    single = trace.session.max() + 1 + np.arange(trace.requests)
    session = np.where(trace.session < 0, single, trace.session)
    order = np.lexsort((trace.turn, session))
    starts = trace.arrival_s[order][made.offsets[:-1]]
    known = trace.clock == "shared" and not np.isnan(starts).any()
    return _as_columns(made, message("trajectories.trace", count=made.count, name=name)), starts if known else None


def _as_columns(made: Generated, origin: Message) -> Trajectories:
    """Waits before a turn become think times after the turn before it."""
    think = np.concatenate((made.think_time_s[1:], [0.0]))
    think[made.offsets[1:] - 1] = 0.0
    return Trajectories(
        offsets=made.offsets,
        context=made.context.astype(np.float64),
        append=made.append.astype(np.float64),
        generated=made.generated.astype(np.float64),
        think=think,
        origin=origin,
    )


def scaled(
    trajectories: Trajectories, append: float, generated: float, max_length: float | None = None
) -> Trajectories:
    """Trajectories with appends and generated lengths multiplied; contexts grow along, and a trajectory ends before
    the turn that would pass ``max_length`` tokens (its first turn always stays). Whole tokens stay whole, and of those
    that there are one stays at least.

    Raises InputError for factors that are not positive.
    """
    for flag, factor in (("--append-scale", append), ("--generated-scale", generated)):
        if not 0 < factor < 1e6:
            raise InputError(flag, f"{factor:g} is not a factor above 0")
    if append == 1 and generated == 1:
        return trajectories
    more, longer = _times(trajectories.append, append), _times(trajectories.generated, generated)
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
        origin=message(
            "trajectories.scaled",
            base=trajectories.origin,
            append=append,
            generated=generated,
            least=message("trajectories.least") if min(append, generated) < 1 else "",
        ),
    )


def _times(tokens: Floats, factor: float) -> Floats:
    """Lengths times a factor; means of turns that are all alike need not be whole."""
    found = tokens * factor
    whole = np.where(tokens == np.rint(tokens), np.rint(found), found)
    return np.maximum(whole, np.minimum(tokens, 1.0))


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
