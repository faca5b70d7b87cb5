"""Workloads: what agents ask for. Turns per trajectory; per turn the cached context, the append, what is generated.

A length is either one number, a mean, or a :class:`Distribution`. What counts once in a mean is said by ``means``:

* ``mean_per_turn``: every turn counts once. Rates, bytes and FLOPs need these.
* ``mean_of_trajectory_means``: every trajectory counts once, however many turns it has, as in the DualPath paper's
  table. Such means do not multiply with the number of turns, so the workload also carries ``per_turn`` means, taken
  from generated trajectories, and those are what :func:`turn_mix` uses.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dualplan.errors import InputError, problem
from dualplan.spec.distribution import Distribution, Durations, stratum_means
from dualplan.spec.load import Count, Duration, NonNegative, Positive, Share

MeansKind = Literal["mean_per_turn", "mean_of_trajectory_means"]
HitDefinition = Literal["by_token", "by_block", "mean_of_ratios"]

STRATA = 8
"""Classes per length in :func:`turn_mix`: 8 x 8 = 64 representative turns."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One representative turn; ``weight`` is the share of all turns that it stands for, lengths in tokens."""

    weight: float
    context: float
    append: float
    generated: float


class TurnMeans(msgspec.Struct, frozen=True, kw_only=True):
    """Means over all turns [tokens]: cached prefix before the append, append, generated."""

    context: NonNegative
    append: Positive
    generated: NonNegative


class HitRate(msgspec.Struct, frozen=True, kw_only=True):
    """A published hit rate and its definition: share of prompt tokens, share of blocks, or mean of ratios."""

    value: Share
    definition: HitDefinition


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A published figure about the workload: its name with the unit at the end, the value, where it is printed."""

    name: str
    value: float
    source: str = ""


class Correlation(msgspec.Struct, frozen=True, kw_only=True):
    """How lengths hang together over all turns of all trajectories, as rank correlations in -1..1.

    ``turn_context``: position of a turn in its trajectory with context. ``turns_context``: number of turns of the
    trajectory with context. ``session_context``: share of the rank variance of context that lies between trajectories
    (0..1), beyond the other two.
    """

    turn_context: float = 0.0
    turns_context: float = 0.0
    session_context: float = 0.0


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A population of agent trajectories. Lengths in tokens, times in seconds.

    ``recipe`` names a trajectory recipe in ``dualplan/data/trajectories.yaml``; ``block`` is the unit of a cache hit
    [tokens]; ``mix`` holds representative turns measured on a trace, whose contexts are hits in whole blocks;
    ``max_length`` is where trajectories are cut [tokens]; ``assumed`` lists the keys that no source gives.
    """

    name: str = ""
    description: str = ""
    turns: Positive | Distribution
    context: NonNegative | Distribution
    append: Positive | Distribution
    generated: NonNegative | Distribution
    means: MeansKind = "mean_per_turn"
    per_turn: TurnMeans | None = None
    mix: tuple[Turn, ...] = ()
    think_time: Duration | Durations = 0.0
    correlation: Correlation | None = None
    max_length: Positive | None = None
    recipe: str | None = None
    block: Count = 64
    hit_rate: HitRate | None = None
    published: tuple[Figure, ...] = ()
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
        if faults:
            raise InputError("", problems=faults)


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
    return TurnMeans(
        context=mean_of(workload.context), append=mean_of(workload.append), generated=mean_of(workload.generated)
    )


def turn_mix(workload: Workload) -> tuple[Turn, ...]:
    """Weighted representative turns, at most 64, whose weighted means are the workload's means per turn.

    Plain means give one turn of weight 1. Distributions are cut into 8 classes of equal probability, each stood for by
    its mean, so the overall mean is exact. The turns are the 8 x 8 pairs of context and append classes; the generated
    classes run over them as a Latin square: every pair of two lengths is met equally often (independent lengths).
    """
    if workload.mix:
        return workload.mix
    if workload.per_turn is not None:
        means = workload.per_turn
        return (Turn(weight=1.0, context=means.context, append=means.append, generated=means.generated),)
    contexts = _classes(workload.context)
    appends = _classes(workload.append)
    generated = _classes(workload.generated)
    count = max(len(contexts), len(appends), len(generated))
    rows = count if len(contexts) > 1 or len(generated) > 1 else 1
    columns = count if len(appends) > 1 or (len(contexts) > 1 and len(generated) > 1) else 1
    weight = 1.0 / (rows * columns)
    return tuple(
        Turn(
            weight=weight,
            context=contexts[i % len(contexts)],
            append=appends[j % len(appends)],
            generated=generated[(i + j) % len(generated)],
        )
        for i in range(rows)
        for j in range(columns)
    )


def _classes(length: float | Distribution) -> tuple[float, ...]:
    return (float(length),) if isinstance(length, int | float) else stratum_means(length, STRATA)


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
        means="mean_per_turn",
        per_turn=None,
        mix=(),
        correlation=None,
        recipe=None,
        hit_rate=None,
        published=(),
    )
