"""Workloads: what agents ask for. Turns per trajectory; per turn the cached context, the append, what is generated.

A length is either one number, a mean, or a :class:`Distribution`. What counts once in a mean is said by ``means``:

* ``mean_per_turn``: every turn counts once. Rates, bytes and FLOPs need these.
* ``mean_of_trajectory_means``: every trajectory counts once, however many turns it has, as in the DualPath paper's
  table. Such means do not multiply with the number of turns, so the workload also carries ``per_turn`` means, taken
  from generated trajectories, and those are what :func:`turn_mix` uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dualplan.errors import problem, refuse
from dualplan.spec.distribution import Distribution, Durations, stratum_means
from dualplan.spec.load import (
    Count,
    Duration,
    Node,
    NonNegative,
    Positive,
    Share,
    decode,
    find,
    parse_yaml,
    read_text,
    shipped_dir,
    with_value,
)

MeansKind = Literal["mean_per_turn", "mean_of_trajectory_means"]
HitDefinition = Literal["by_token", "by_block", "mean_of_ratios"]
MeanName = Literal["context", "append", "generated", "turns"]

KIND = "workloads"
"""Folder of the shipped workloads."""

LENGTHS: tuple[MeanName, ...] = ("context", "append", "generated")
"""What a turn has of tokens."""

MEANS: tuple[MeanName, ...] = (*LENGTHS, "turns")
"""Means of a workload that can be set by hand."""

STRATA = 8
"""Classes per length in :func:`turn_mix`: 8 x 8 = 64 representative turns."""


MOST = 1e15
"""Tokens of a turn and turns of a trajectory; what is more is a slip, and ends beyond the range of numbers."""

CLASS_TOLERANCE = 0.01
"""How far the means of ``classes`` may lie from those of the lengths."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One representative turn; ``weight`` is the share of all turns that it stands for, lengths in tokens."""

    weight: float
    context: float
    append: float
    generated: float


class TurnMeans(msgspec.Struct, frozen=True, kw_only=True):
    """Means over all turns [tokens]: cached prefix before the append, append, generated.

    ``context_scatter`` and ``append_scatter``: standard deviation over mean of all turns; 0 where it is not known. They
    tell how unevenly turns load the engines of a pass. ``generated_by_length``: mean of what is generated with turns
    weighted by their length at the end, as memory that they hold counts them; as ``generated`` if it is not known.
    """

    context: NonNegative
    append: Positive
    generated: NonNegative
    context_scatter: NonNegative = 0.0
    append_scatter: NonNegative = 0.0
    generated_by_length: NonNegative | None = None


class SetMean(msgspec.Struct, frozen=True, kw_only=True):
    """A mean that was set by hand: ``context``, ``append`` or ``generated`` over all turns [tokens], or ``turns`` of a
    trajectory; what it was before, and what it is now. ``of_trajectories``: the mean over trajectories that the source
    prints instead.
    """

    name: MeanName
    source: NonNegative
    value: NonNegative
    of_trajectories: NonNegative | None = None


class HitRate(msgspec.Struct, frozen=True, kw_only=True):
    """A published hit rate and its definition: share of prompt tokens, share of blocks, or mean of ratios."""

    value: Share
    definition: HitDefinition


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A published figure about the workload: its name with the unit at the end, the value, where it is printed."""

    name: str
    value: float
    source: str = ""


Coefficient = Annotated[float, Meta(extra={"ge": -1, "le": 1}, ge=-1, le=1)]


class Correlation(msgspec.Struct, frozen=True, kw_only=True):
    """How lengths hang together: correlations (-1..1) of normal scores of ranks, over all turns but first ones that
    are given apart.

    ``turn_context``: position of a turn in its trajectory with context. ``turns_context``: number of turns of its
    trajectory with context. ``session_context``: share (0..1) of what those two leave of the variance of context that
    lies between trajectories. ``append_context``: append with context.

    Generated trajectories, whose contexts follow from what was appended before, are made from the others:
    ``turn_append`` and ``turns_append``: append with position and with number of turns; ``turns_first``: number of
    turns with the first prompt, over trajectories.
    """

    turn_context: Coefficient = 0.0
    turns_context: Coefficient = 0.0
    session_context: Share = 0.0
    append_context: Coefficient = 0.0
    turn_append: Coefficient = 0.0
    turns_append: Coefficient = 0.0
    turns_first: Coefficient = 0.0


class Resets(msgspec.Struct, frozen=True, kw_only=True):
    """Turns whose prompt is shorter than the one before: the conversation was compacted, or begun anew.

    ``share`` of the turns that are not first ones. ``context``: what of such a prompt is cached; ``append``: mean of
    the rest of it; both [tokens].
    """

    share: Share
    context: NonNegative | Distribution = 0.0
    append: Positive


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A population of agent trajectories. Lengths in tokens, times in seconds.

    ``recipe`` names a trajectory recipe in ``dualplan/data/trajectories.yaml``; ``block`` is the unit of a cache hit
    [tokens]; ``mix`` holds representative turns measured on a trace, whose contexts are hits in whole blocks;
    ``max_length`` is where trajectories are cut [tokens]; ``assumed`` lists the keys that no source gives.

    Where ``first_append`` is given, first turns stand apart: they append that much to ``first_context``, and
    ``context`` and ``append`` are those of later turns.

    ``carry_over`` (-1..1) says what a turn finds of the turn before, its prompt P and its output G: P + carry_over G,
    or, below 0, P + carry_over A where A is the own append, of which that share had been computed before. ``resets``
    are the exceptions. ``context_block`` [tokens]: contexts are hits in whole blocks of this size already, so nothing
    more of them is lost and ``block`` is 1. ``classes`` are turns measured on the trace that the workload was fitted
    to, ``measured`` its figures; where there are classes, :func:`turn_mix` gives these. ``set_means``: what
    :func:`with_means` has changed; lengths here have it already, those that a recipe grows or a trace replays have not.
    """

    name: str = ""
    description: str = ""
    turns: Positive | Distribution
    context: NonNegative | Distribution
    append: Positive | Distribution
    generated: NonNegative | Distribution
    first_context: NonNegative | Distribution = 0.0
    first_append: Positive | Distribution | None = None
    means: MeansKind = "mean_per_turn"
    per_turn: TurnMeans | None = None
    mix: tuple[Turn, ...] = ()
    classes: tuple[Turn, ...] = ()
    think_time: Duration | Durations = 0.0
    correlation: Correlation | None = None
    carry_over: Coefficient | None = None
    resets: Resets | None = None
    max_length: Positive | None = None
    recipe: str | None = None
    block: Count = 64
    context_block: Count | None = None
    hit_rate: HitRate | None = None
    published: tuple[Figure, ...] = ()
    measured: tuple[Figure, ...] = ()
    set_means: tuple[SetMean, ...] = ()
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        faults = []
        if mean_turns(self) < 1:
            faults.append(problem("turns", "a trajectory has at least one turn"))
        if mean_of(self.append) <= 0:
            faults.append(problem("append", "a turn appends at least one token"))
        if self.means == "mean_of_trajectory_means" and self.per_turn is None:
            faults.append(
                problem(
                    "per_turn",
                    "missing beside means of trajectory means",
                    "{context, append, generated} over all turns",
                )
            )
        for name in MEANS:
            found = getattr(self, name) if name == "turns" or self.per_turn is None else getattr(self.per_turn, name)
            if mean_of(found) > MOST:
                faults.append(problem(name, f"{mean_of(found):g} is more than {MOST:g}"))
        if self.first_append is None and mean_of(self.first_context) > 0:
            faults.append(problem("first_append", "missing beside first_context"))
        if not faults and self.classes:
            faults += _faults_of_classes(self)
        refuse(faults)


def _faults_of_classes(workload: Workload) -> list[str]:
    """Classes whose means are not those of the lengths: one of the two was edited without the other."""
    means, faults = per_turn_means(workload), []
    for name in ("context", "append", "generated"):
        stated: float = getattr(means, name)
        found = sum(turn.weight * float(getattr(turn, name)) for turn in workload.classes)
        if abs(found - stated) > CLASS_TOLERANCE * max(stated, 1.0):
            what = f"have a mean {name} of {found:,.5g} tokens, the workload {stated:,.5g} over all turns"
            faults.append(problem("classes", what, "delete classes to plan with the lengths as stated"))
    return faults


def mean_of(length: float | Distribution | Durations) -> float:
    """The mean of a length or a time, given as a number or as a distribution."""
    return float(length) if isinstance(length, int | float) else length.mean


def mean_turns(workload: Workload) -> float:
    """Mean number of turns of a trajectory."""
    return mean_of(workload.turns)


def per_turn_means(workload: Workload) -> TurnMeans:
    """Context, append and generated [tokens] averaged over turns, every turn counting once."""
    if workload.per_turn is not None:
        return workload.per_turn
    context, append = mean_of(workload.context), mean_of(workload.append)
    if workload.first_append is not None:
        first = 1 / mean_turns(workload)
        context = first * mean_of(workload.first_context) + (1 - first) * context
        append = first * mean_of(workload.first_append) + (1 - first) * append
    return TurnMeans(context=context, append=append, generated=mean_of(workload.generated))


def turn_mix(workload: Workload) -> tuple[Turn, ...]:
    """Weighted representative turns, at most 64, whose weighted means are the workload's means per turn.

    Plain means give one turn of weight 1. Distributions are cut into 8 classes of equal probability, each stood for by
    its mean, so the overall mean is exact. The turns are the 8 x 8 pairs of context and append classes; the generated
    classes run over them as a Latin square: every pair of two lengths is met equally often (independent lengths).
    First turns that are given apart are one turn more, beside 7 x 7 of the others. Measured turns
    are taken as they are.
    """
    if workload.mix or workload.classes:
        return workload.mix or workload.classes
    if workload.per_turn is not None:
        means = workload.per_turn
        return (Turn(weight=1.0, context=means.context, append=means.append, generated=means.generated),)
    if workload.first_append is None:
        return _square(workload, STRATA, 1.0)
    share = 1 / mean_turns(workload)
    first = Turn(
        weight=share,
        context=mean_of(workload.first_context),
        append=mean_of(workload.first_append),
        generated=mean_of(workload.generated),
    )
    return (first, *_square(workload, STRATA - 1, 1 - share)) if share < 1 else (first,)


def _square(workload: Workload, classes: int, weight: float) -> tuple[Turn, ...]:
    contexts, appends, generated = (
        (float(length),) if isinstance(length, int | float) else stratum_means(length, classes)
        for length in (workload.context, workload.append, workload.generated)
    )
    spread = [len(contexts) > 1, len(appends) > 1, len(generated) > 1]
    rows = classes if spread[0] or spread[2] else 1
    columns = classes if spread[1] or (spread[0] and spread[2]) else 1
    return tuple(
        Turn(
            weight=weight / (rows * columns),
            context=contexts[i % len(contexts)],
            append=appends[j % len(appends)],
            generated=generated[(i + j) % len(generated)],
        )
        for i in range(rows)
        for j in range(columns)
    )


def has_spread(workload: Workload) -> bool:
    """Whether the workload tells how its turns or its trajectories differ."""
    lengths = (workload.turns, workload.context, workload.append, workload.generated)
    told = (workload.per_turn, workload.mix, workload.classes, workload.first_append, workload.recipe)
    return any(told) or any(isinstance(length, Distribution) for length in lengths)


def turns_changed(workload: Workload) -> bool:
    """Whether trajectories are to have another number of turns than the recipe or the trace of the workload gives."""
    return any(one.name == "turns" and one.value != one.source for one in workload.set_means)


def with_means(workload: Workload, means: Mapping[str, float]) -> Workload:
    """The workload with some of :data:`MEANS` set: lengths over all turns [tokens], turns of a trajectory.

    What is not set stays, and so does the spread: lengths are scaled to their new means, so that turns differ as they
    did in proportion. With all three lengths set a turn is what they say, and all turns are alike, unless the lengths
    are those that the workload had.
    """
    if not has_spread(workload):
        return scaled_to(workload, means)
    own, known = per_turn_means(workload), {one.name: one for one in workload.set_means}
    printed = LENGTHS if workload.means == "mean_of_trajectory_means" else ()
    for name in (name for name in MEANS if name in means):
        one = known.get(name) or SetMean(
            name=name,
            source=mean_turns(workload) if name == "turns" else getattr(own, name),
            value=means[name],
            of_trajectories=mean_of(getattr(workload, name)) if name in printed else None,
        )
        known[name] = msgspec.structs.replace(one, value=means[name])
    lengths = [known[name] for name in LENGTHS if name in known]
    before = [one for one in workload.set_means if one.name in LENGTHS]
    whole = len(before) < len(lengths) == len(LENGTHS) and any(one.value != one.source for one in lengths)
    found = with_plain_means(workload, **means) if whole else scaled_to(workload, means)
    return msgspec.structs.replace(found, set_means=tuple(known[name] for name in MEANS if name in known))


def scaled_to(workload: Workload, means: Mapping[str, float]) -> Workload:
    """The workload with its turns and lengths scaled to some means, as :func:`with_means`; the others keep theirs.

    Lengths that are means of trajectory means become those over all turns. Where a mean changes the workload is no
    longer the published one: its hit rate and figures go.
    """
    own, turns = per_turn_means(workload), mean_turns(workload)
    before: dict[str, float] = {"turns": turns, **{name: getattr(own, name) for name in LENGTHS}}
    wanted = {**before, **means}
    if workload.means == "mean_of_trajectory_means":
        lengths = {name: before[name] for name in LENGTHS}
        workload = msgspec.structs.replace(workload, **lengths, means="mean_per_turn")
    changes: dict[str, Any] = {"turns": _scaled(workload.turns, turns, wanted["turns"])}
    # of fewer turns a larger share are first ones: that must not change the means
    now = per_turn_means(msgspec.structs.replace(workload, classes=(), **changes))

    def to_wanted(record: Any, names: Iterable[str], of: Any) -> dict[str, Any]:
        return {name: _scaled(getattr(record, name), getattr(of, name), wanted[name]) for name in names}

    changes |= to_wanted(workload, LENGTHS, now)
    if workload.first_append is not None:
        for name in ("context", "append"):
            changes[f"first_{name}"] = _scaled(getattr(workload, f"first_{name}"), getattr(now, name), wanted[name])
    if workload.resets is not None:
        changes["resets"] = msgspec.structs.replace(
            workload.resets, **to_wanted(workload.resets, ("context", "append"), now)
        )
    if workload.per_turn is not None:
        by_length = own.generated_by_length
        changes["per_turn"] = msgspec.structs.replace(
            own,
            **{name: wanted[name] for name in LENGTHS},
            generated_by_length=None if by_length is None else _scaled(by_length, own.generated, wanted["generated"]),
        )
    for key in ("mix", "classes"):
        found = getattr(workload, key)
        changes[key] = tuple(msgspec.structs.replace(turn, **to_wanted(turn, LENGTHS, own)) for turn in found)
    if wanted != before:
        changes |= {"hit_rate": None, "published": (), "measured": ()}
    return msgspec.structs.replace(workload, **changes)


def _scaled(length: Any, before: float, after: float) -> Any:
    """A number or a Distribution times after / before; the number ``after`` itself where there is nothing to scale."""
    if before == after:
        return length
    if isinstance(length, int | float):
        return length / before * after if before else after
    if not before:
        return after
    known = {name: getattr(length, name) for name in length.__struct_fields__}
    return type(length)(**{name: None if value is None else value / before * after for name, value in known.items()})


def with_plain_means(
    workload: Workload,
    *,
    context: float | None = None,
    append: float | None = None,
    generated: float | None = None,
    turns: float | None = None,
) -> Workload:
    """The workload with its distributions replaced by means per turn: the given ones, else its own [tokens].

    Once a length is set by hand the workload is no longer the published one: its recipe, hit rate and figures go.
    """
    own = per_turn_means(workload) if None in (context, append, generated) else None
    return msgspec.structs.replace(
        workload,
        turns=mean_turns(workload) if turns is None else turns,
        context=own.context if context is None and own else context,
        append=own.append if append is None and own else append,
        generated=own.generated if generated is None and own else generated,
        first_context=0.0,
        first_append=None,
        means="mean_per_turn",
        per_turn=None,
        mix=(),
        classes=(),
        correlation=None,
        carry_over=None,
        resets=None,
        recipe=None,
        hit_rate=None,
        published=(),
        measured=(),
    )


def load_workload(name: str, *, where: str = "--workload") -> Workload:
    """A workload by shipped name, or from a YAML file. Raises InputError."""
    path = find(KIND, ".yaml", name, where=where)
    place = path.name if path.parent == shipped_dir(KIND) else str(path)
    tree = parse_yaml(read_text(path, where=place), place)
    if isinstance(tree.value, dict) and "name" not in tree.value:
        tree = with_value(tree, ("name",), Node(Path(name).stem, tree.place))
    return decode(tree, Workload)
