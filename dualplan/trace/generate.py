"""Synthetic trajectories that reproduce a workload: its means, quantiles and how lengths hang together. Seeded.

A workload with a recipe is grown turn by turn (:mod:`dualplan.trace.recipe`). Any other is dealt out: every length is
cut into as many classes of equal probability as there are turns, each stood for by its mean, so means and quantiles are
those of the workload whatever the seed. Which turn gets which context is decided by the rank of a normal score

    s = b1 T + b2 L + sqrt(1 - R^2) (sqrt(q) S + sqrt(1 - q) e)

of its position in the trajectory (T), the length of the trajectory (L), the trajectory itself (S) and chance (e). The
weights b1, b2 are the regression of the two stated correlations, R^2 is what they explain, q is ``session_context``: a
Gaussian copula.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.spec.distribution import Distribution, Durations, Segment, quantile_function
from dualplan.spec.workload import Correlation, Workload, load_workload, mean_of
from dualplan.trace.build import build_trace
from dualplan.trace.hits import context_tokens, main_accounting
from dualplan.trace.recipe import grow, load_recipe
from dualplan.trace.record import Floats, Ints, Trace

GROWING = Correlation(turn_context=0.6, session_context=1.0)
"""For workloads that state no correlation: contexts rise within a trajectory, trajectories differ."""

CORRECTIONS = 6
"""Steps in which the correlations of ranks are brought to the stated ones."""

MOST_TURNS = 50_000_000
"""More turns than this are refused: some 2 GB."""


class Trajectories(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Turns of all trajectories, one trajectory after the other.

    ``offsets`` [trajectories + 1]: trajectory i has turns ``offsets[i]:offsets[i + 1]``. ``context`` (cached before the
    append), ``append`` and ``generated`` [turns] in tokens; ``think_time_s`` [turns]: wait before the turn, 0 before a
    first one.
    """

    offsets: Ints
    context: Ints
    append: Ints
    generated: Ints
    think_time_s: Floats

    @property
    def count(self) -> int:
        """Number of trajectories."""
        return len(self.offsets) - 1

    @property
    def turns(self) -> Ints:
        """Turns of each trajectory [trajectories]."""
        return np.diff(self.offsets)


class TrajectoryMeans(msgspec.Struct, frozen=True, kw_only=True):
    """Means by trajectory, as the DualPath paper prints them: turns; append, generated and context as means of
    per-trajectory means; ``total`` at the end of the trajectory [tokens].
    """

    turns: float
    append: float
    generated: float
    total: float
    context: float


def generate_trajectories(workload: Workload | str, count: int, seed: int = 0) -> Trajectories:
    """``count`` trajectories of a workload, or of a shipped one by name. Raises InputError for what cannot be made."""
    if isinstance(workload, str):
        workload = load_workload(workload, where="workload")
    if count < 1:
        raise InputError("count", f"{count} trajectories", "at least 1")
    if seed < 0:
        raise InputError("seed", f"{seed} is negative", "0 or more")
    expected = count * mean_of(workload.turns)
    if expected > MOST_TURNS:
        raise InputError("count", f"{count:,} trajectories have about {expected:,.0f} turns", f"at most {MOST_TURNS:,}")
    if workload.recipe is None:
        return _dealt(workload, count, np.random.default_rng([seed, count]))
    if workload.max_length is None or workload.max_length < 2:
        raise InputError("max_length", f"needed by the recipe {workload.recipe}", "2 tokens or more")
    grown = grow(load_recipe(workload.recipe), int(workload.max_length), count, seed)
    random = np.random.default_rng([seed, count, 1])
    return Trajectories(
        offsets=_offsets(grown.counts),
        context=grown.context,
        append=grown.append,
        generated=grown.generated,
        think_time_s=_waits(workload, grown.counts, random),
    )


def trajectory_means(trajectories: Trajectories) -> TrajectoryMeans:
    """Means in which every trajectory counts once."""
    turns, starts = trajectories.turns, trajectories.offsets[:-1]
    append, generated, context = (
        np.add.reduceat(lengths, starts)
        for lengths in (trajectories.append, trajectories.generated, trajectories.context)
    )
    ends = trajectories.offsets[1:] - 1
    total = trajectories.context[ends] + trajectories.append[ends] + trajectories.generated[ends]
    return TrajectoryMeans(
        turns=float(turns.mean()),
        append=float((append / turns).mean()),
        generated=float((generated / turns).mean()),
        total=float(total.mean()),
        context=float((context / turns).mean()),
    )


def trajectories_of_trace(trace: Trace) -> Trajectories:
    """The sessions of a trace as they are; a request outside of sessions is a trajectory of one turn.

    Context is what the trace's accounting says was there from before; a prompt that was there entirely keeps one token
    to compute, and an empty output counts as one token. Unknown waits are 0.
    """
    single = trace.session.max() + 1 + np.arange(trace.requests)
    session = np.where(trace.session < 0, single, trace.session)
    order = np.lexsort((trace.turn, session))
    _, counts = np.unique(session, return_counts=True)
    context = context_tokens(trace, main_accounting(trace))[order]
    prompt = trace.input_tokens[order]
    context = np.minimum(context, prompt - 1)
    waits = np.nan_to_num(trace.think_time_s[order])
    offsets = _offsets(counts)
    waits[offsets[:-1]] = 0.0
    return Trajectories(
        offsets=offsets,
        context=context,
        append=prompt - context,
        generated=np.maximum(trace.output_tokens[order], 1),
        think_time_s=waits,
    )


def as_trace(trajectories: Trajectories, because: str = "made here") -> Trace:
    """Trajectories as a trace with sessions and reported cached tokens, without arrival times."""
    session = np.repeat(np.arange(trajectories.count), trajectories.turns)
    turn = np.arange(len(session)) - np.repeat(trajectories.offsets[:-1], trajectories.turns)
    think = trajectories.think_time_s.copy()
    think[trajectories.offsets[:-1]] = np.nan
    return build_trace(
        input_tokens=trajectories.context + trajectories.append,
        output_tokens=trajectories.generated,
        session=session,
        turn=turn,
        cached_tokens=trajectories.context,
        think_time_s=think if think[~np.isnan(think)].any() else None,
        because=because,
    )


# ---------------------------------------------------------------- dealing out


def _dealt(workload: Workload, count: int, random: np.random.Generator) -> Trajectories:
    counts = np.maximum(random.permutation(_whole(_classes(workload.turns, count))), 1)
    total = int(counts.sum())
    offsets = _offsets(counts)
    first = np.zeros(total, bool)
    first[offsets[:-1]] = workload.first_append is not None
    later = np.flatnonzero(~first)
    context, append, generated = (np.zeros(total, np.int64) for _ in range(3))
    if workload.mix:
        context, append, generated = _dealt_mix(workload, counts, random)
    else:
        score, append_score = _scores(workload.correlation or GROWING, counts, later, random)
        turn = workload if workload.per_turn is None else workload.per_turn
        context[later] = _by_rank(_whole(_classes(turn.context, len(later))), score)
        append[later] = _by_rank(_whole(_classes(turn.append, len(later))), append_score)
        generated = random.permutation(_whole(_classes(turn.generated, total)))
    if workload.first_append is not None:
        context[first] = random.permutation(_whole(_classes(workload.first_context, count)))
        append[first] = random.permutation(_whole(_classes(workload.first_append, count)))
    return Trajectories(
        offsets=offsets,
        context=context,
        append=np.maximum(append, 1),
        generated=np.maximum(generated, 1),
        think_time_s=_waits(workload, counts, random),
    )


def _dealt_mix(workload: Workload, counts: Ints, random: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Turns of a measured mix as often as their weights say; context, append and generated of a turn stay together."""
    total = int(counts.sum())
    mix = sorted(workload.mix, key=lambda turn: turn.context)
    ends = np.cumsum([turn.weight for turn in mix])
    which = np.searchsorted(ends / ends[-1], (np.arange(total) + 0.5) / total)
    score, _ = _scores(workload.correlation or GROWING, counts, np.arange(total), random)
    which = _by_rank(which, score)
    context, append, generated = (
        _whole(np.array([getattr(turn, name) for turn in mix])[which]) for name in ("context", "append", "generated")
    )
    return context, append, generated


def _scores(correlation: Correlation, counts: Ints, later: Ints, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Scores that order the contexts and the appends of the turns ``later`` [later]."""
    session = np.repeat(np.arange(len(counts)), counts)[later]
    position = (np.arange(int(counts.sum())) - np.repeat(_offsets(counts)[:-1], counts))[later]
    known = np.stack([normal_scores(position), normal_scores(counts[session])])
    between = _standard(normal_scores(random.permutation(len(counts)))[session])
    chance = _standard(random.standard_normal(len(later)))
    own = math.sqrt(correlation.session_context) * between + math.sqrt(1 - correlation.session_context) * chance
    # few trajectories: what they differ in must not stand for their lengths or positions by chance
    own = _standard(own - regression(known, known @ own / max(len(own), 1))[0] @ known)
    wanted = np.array([correlation.turn_context, correlation.turns_context])
    aim, score = wanted, own
    for _ in range(CORRECTIONS):
        weights, explained = regression(known, aim)
        score = normal_scores(weights @ known + math.sqrt(1 - explained) * own)
        # positions and lengths are no normal variables, so ranking shifts their correlations a little
        aim = np.clip(aim + wanted - known @ score / max(len(score), 1), -1, 1)
    with_context = correlation.append_context
    noise = random.standard_normal(len(later))
    return score, with_context * score + math.sqrt(1 - with_context**2) * noise


def regression(known: Floats, wanted: Floats) -> tuple[Floats, float]:
    """Weights of standardised ``known`` scores [k, n] that give the ``wanted`` correlations [k], and the share of
    variance that they explain; shrunk where they would explain more than all.
    """
    gram = known @ known.T / max(known.shape[1], 1)
    weights = np.linalg.lstsq(gram, np.where(np.diag(gram) > 0, wanted, 0.0), rcond=1e-6)[0]
    explained = float(weights @ gram @ weights)
    if explained > 1:
        return weights / math.sqrt(explained), 1.0
    return weights, explained


def normal_scores(values: npt.NDArray[np.generic]) -> Floats:
    """Ranks (ties: their mean) turned into normal scores of mean 0 and variance 1; all 0 where all values are equal."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return _standard(ndtri((rankdata(values) - 0.5) / max(len(values), 1)))


def _standard(values: Floats) -> Floats:
    if not len(values):
        return values
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-12 else np.zeros_like(values)


def _by_rank(ascending: Ints, score: Floats) -> Ints:
    """``ascending`` values dealt out so that the n-th smallest goes to the n-th smallest score."""
    dealt = np.empty_like(ascending)
    dealt[np.argsort(score, kind="stable")] = ascending
    return dealt


def _waits(workload: Workload, counts: Ints, random: np.random.Generator) -> Floats:
    waits = np.zeros(int(counts.sum()))
    later = np.ones(len(waits), bool)
    later[_offsets(counts)[:-1]] = False
    waits[later] = random.permutation(np.round(_classes(workload.think_time, int(later.sum())), 6))
    return waits


def _classes(length: float | Distribution | Durations, count: int) -> Floats:
    """Means of ``count`` classes of equal probability, ascending [count]."""
    if isinstance(length, int | float) or not count:
        return np.full(count, mean_of(length))
    edges = np.arange(count + 1) / count
    integral = np.zeros(count + 1)
    for segment in quantile_function(length):
        start, stop = np.searchsorted(edges, (segment.u1, segment.u2), side="right")
        integral[start:stop] += _integral(segment, edges[start:stop])
        integral[stop:] += _integral(segment, np.array([segment.u2]))
    return np.asarray(np.maximum.accumulate(np.diff(integral) * count))


def _integral(segment: Segment, until: Floats) -> Floats:
    """Integral of x from the start of a segment to the probabilities ``until``."""
    from scipy.special import ndtr, ndtri

    if segment.power:
        v = (until - segment.u1) / (segment.u2 - segment.u1) if segment.u2 > segment.u1 else np.zeros_like(until)
        return np.asarray((until - segment.u1) * (segment.a + segment.b * v**segment.power / (segment.power + 1)))
    below = ndtr(ndtri(until) - segment.b) - ndtr(ndtri(segment.u1) - segment.b)
    return np.asarray(math.exp(segment.a + segment.b**2 / 2) * below)


def _whole(lengths: Floats) -> Ints:
    """Whole tokens with the same sum: what is rounded off one length is carried to the next."""
    return np.diff(np.rint(np.concatenate(([0.0], np.cumsum(lengths))))).astype(np.int64)


def _offsets(counts: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
