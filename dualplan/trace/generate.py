"""Synthetic trajectories that reproduce a workload: its means, quantiles and how lengths hang together. Seeded.

A workload with a recipe is grown turn by turn (:mod:`dualplan.trace.recipe`). For any other, turns, appends, generated
lengths and waits are dealt out: each is cut into as many classes of equal probability as there are turns, each stood
for by its mean, so means and quantiles are those of the workload whatever the seed. Contexts are not dealt: they follow
from the turn before. With prompt P = context + append, output G, append A and the carry-over w of the workload

    context_k = P_(k-1) + w G_(k-1)     0 <= w <= 1
    context_k = P_(k-1) + w A_k        -1 <= w < 0: that share of the append had been computed before

so that 0 <= context_k <= P_(k-1) + G_(k-1) and P_k >= P_(k-1). Resets, as many as the workload states, are the only
exceptions: there a context falls to a drawn one. Contexts stop to grow at the largest stated one.

What moves the mean context, each as far as it must until the stated mean comes out (:data:`STATED`, :data:`OPEN`): w;
which trajectories append much per turn, and which begin with long prompts (correlations with the number of turns);
where in a trajectory the long appends stand. Where first turns are not given apart, the length of the first contexts
comes before all of these. A mean that cannot be had in this way is noted, never forced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.errors import InputError
from dualplan.messages import Message, message
from dualplan.spec.distribution import Distribution, Durations, Segment, quantile_function
from dualplan.spec.workload import Correlation, Workload, load_workload, mean_of
from dualplan.trace.build import build_trace
from dualplan.trace.hits import context_tokens, main_accounting
from dualplan.trace.recipe import grow, load_recipe
from dualplan.trace.record import Bools, Floats, Ints, Trace

MEAN_TOLERANCE = 0.005
"""A mean context that differs more than this from the stated one is noted."""

STATED = (
    ("turns_first", -0.7, 0.7),
    ("turns_append", -0.9, 0.9),
    ("turn_append", -1.0, 1.0),
    ("carry_over", -1.0, 1.0),
)
"""Where the workload states its carry-over: what is moved in turn, and how far."""

OPEN = (
    ("carry_over", 0.0, 1.0),
    ("turns_append", -0.5, 0.5),
    ("carry_over", -1.0, 1.0),
    ("turns_first", -1.0, 1.0),
    ("turn_append", -1.0, 1.0),
)
"""As :data:`STATED` where it states none: prompts are kept before they are computed again; half a correlation is what
long trajectories with short appends, as those of the DualPath sets are, may explain.
"""

SMALL_ERROR = 0.005
"""The search ends with a mean context as near as this [tokens]."""

STEPS = 40
"""Most evaluations in the search for one quantity."""

MOST_TURNS = 50_000_000
"""More turns than this are refused: some 2 GB."""


class Trajectories(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Turns of all trajectories, one trajectory after the other.

    ``offsets`` [trajectories + 1]: trajectory i has turns ``offsets[i]:offsets[i + 1]``. ``context`` (cached before the
    append), ``append`` and ``generated`` [turns] in tokens; ``think_time_s`` [turns]: wait before the turn, 0 before a
    first one. ``resets`` [turns]: where the context is a new one. ``notes``: what of the workload could not be kept.
    """

    offsets: Ints
    context: Ints
    append: Ints
    generated: Ints
    think_time_s: Floats
    resets: Bools
    notes: tuple[Message, ...] = ()

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
        return _built(workload, count, np.random.default_rng([seed, count]))
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
        resets=np.zeros(len(grown.context), bool),
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
    resets = np.append(False, prompt[1:] < prompt[:-1])
    resets[offsets[:-1]] = False
    return Trajectories(
        offsets=offsets,
        context=context,
        append=prompt - context,
        generated=np.maximum(trace.output_tokens[order], 1),
        think_time_s=waits,
        resets=resets,
    )


def as_trace(trajectories: Trajectories, because: str = "made here") -> Trace:
    """Trajectories as a trace with sessions, without arrival times; its cached tokens are marked as made up.

    Trajectories of one turn each are requests without sessions.
    """
    session = np.repeat(np.arange(trajectories.count), trajectories.turns)
    turn = np.arange(len(session)) - np.repeat(trajectories.offsets[:-1], trajectories.turns)
    think = trajectories.think_time_s.copy()
    think[trajectories.offsets[:-1]] = np.nan
    return build_trace(
        input_tokens=trajectories.context + trajectories.append,
        output_tokens=trajectories.generated,
        session=session if trajectories.turns.max() > 1 else None,
        turn=turn,
        cached_tokens=trajectories.context,
        think_time_s=think if think[~np.isnan(think)].any() else None,
        because=because,
        cached_from="generator",
    )


# ---------------------------------------------------------------- built forward


class _Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What moves the mean context: factor on first contexts that are not given apart, carry-over, correlations."""

    first_context: float
    carry_over: float
    turns_first: float
    turn_append: float
    turns_append: float


class _Plan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Lengths as dealt out, ascending where the setting decides who gets which.

    Per trajectory: ``counts``, ``first_context`` and ``first_append`` (ascending), the normal score of its number of
    turns and chance that orders first prompts. Per later turn: ``append`` (ascending), scores of its position and of
    the number of turns (``known``), chance. ``reset_from`` is where the appends of resets begin among these;
    ``reset_context`` and ``reset_place`` (0..1) [resets]. ``rounding`` [turns, 0..1] is added before parts of
    tokens are cut off.
    """

    counts: Ints
    first_context: Ints
    first_append: Ints
    generated: Ints
    append: Ints
    length_score: Floats
    first_chance: Floats
    known: Floats
    append_chance: Floats
    reset_from: int
    reset_context: Ints
    reset_place: Floats
    longest: int
    block: int
    apart: bool
    rounding: Floats


def _built(workload: Workload, count: int, random: np.random.Generator) -> Trajectories:
    counts = np.maximum(random.permutation(_whole(_classes(workload.turns, count))), 1)
    notes: tuple[Message, ...] = ()
    if int(counts.max()) == 1 and workload.first_append is None:
        context, append, generated = _single(workload, count, random)
        resets = np.zeros(count, bool)
    else:
        plan = _plan(workload, counts, random)
        setting, notes = _settle(workload, plan)
        context, append, resets = _forward(plan, setting)
        generated = plan.generated
    return Trajectories(
        offsets=_offsets(counts),
        context=context,
        append=append,
        generated=generated,
        think_time_s=_waits(workload, counts, random),
        resets=resets,
        notes=notes,
    )


def _single(workload: Workload, count: int, random: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Requests of their own: contexts are drawn; the lengths of a measured mix stay together."""
    if workload.mix:
        which = random.permutation(_mixed(workload, np.arange(len(workload.mix)), count))
        context, append, generated = (
            _whole(np.array([getattr(turn, name) for turn in workload.mix])[which])
            for name in ("context", "append", "generated")
        )
    else:
        turn = workload if workload.per_turn is None else workload.per_turn
        score = random.standard_normal(count)
        block = workload.context_block or 1
        context = _by_rank(block * _whole(_classes(turn.context, count) / block), score)
        with_context = workload.correlation.append_context if workload.correlation else 0.0
        chance = random.standard_normal(count)
        append_score = with_context * normal_scores(score) + math.sqrt(1 - with_context**2) * chance
        append = _by_rank(_whole(_classes(turn.append, count)), append_score)
        generated = random.permutation(_whole(_classes(turn.generated, count)))
    return context, np.maximum(append, 1), np.maximum(generated, 1)


def _mixed(workload: Workload, values: npt.NDArray[np.generic], count: int) -> npt.NDArray[Any]:
    """``count`` of the values, one a turn of the mix, as often as the weights of the mix say."""
    ends = np.cumsum([turn.weight for turn in workload.mix])
    return np.asarray(values)[np.searchsorted(ends / ends[-1], (np.arange(count) + 0.5) / count)]


def _lengths(workload: Workload, name: str, count: int) -> Ints:
    """``count`` lengths of a kind, ascending."""
    length = getattr(workload if workload.per_turn is None else workload.per_turn, name)
    if workload.mix and isinstance(length, int | float):
        found = _mixed(workload, np.array([getattr(turn, name) for turn in workload.mix]), count)
        return np.sort(_whole(found))
    return np.sort(_whole(_classes(length, count)))


def _plan(workload: Workload, counts: Ints, random: np.random.Generator) -> _Plan:
    count, total = len(counts), int(counts.sum())
    starts, apart = _offsets(counts)[:-1], workload.first_append is not None
    generated = np.maximum(random.permutation(_lengths(workload, "generated", total)), 1)
    if workload.first_append is not None:
        first_context = _whole(_classes(workload.first_context, count))
        first_append = _whole(_classes(workload.first_append, count))
        append = _lengths(workload, "append", total - count)
    else:
        first_context = _lengths(workload, "context", count)
        append = random.permutation(_lengths(workload, "append", total))
        first_append, append = append[:count], np.sort(append[count:])
    later = np.ones(total, bool)
    later[starts] = False
    position = (np.arange(total) - np.repeat(starts, counts))[later]
    resets = round(workload.resets.share * len(append)) if workload.resets else 0
    fallen = _classes(workload.resets.context if workload.resets else 0, resets)
    block = workload.context_block or 1
    longest = workload.context.max if isinstance(workload.context, Distribution) else None
    return _Plan(
        counts=counts,
        first_context=first_context,
        first_append=np.maximum(first_append, 1),
        generated=generated,
        append=np.maximum(append, 1),
        length_score=normal_scores(counts),
        first_chance=_standard(random.standard_normal(count)),
        known=np.stack([normal_scores(position), normal_scores(np.repeat(counts, counts)[later])]),
        append_chance=_standard(random.standard_normal(len(append))),
        reset_from=_window(append, resets, workload.resets.append) if workload.resets else 0,
        reset_context=random.permutation(block * _whole(fallen / block)),
        reset_place=random.random(resets),
        longest=int(longest) if longest is not None else np.iinfo(np.int64).max // 4,
        block=block,
        apart=apart,
        rounding=random.random(total),
    )


def _window(ascending: Ints, width: int, mean: float) -> int:
    """Where ``width`` neighbours begin whose mean is nearest to the given one."""
    if not width:
        return 0
    sums = np.concatenate(([0], np.cumsum(ascending)))
    return int(np.argmin(np.abs((sums[width:] - sums[:-width]) / width - mean)))


def _settle(workload: Workload, plan: _Plan) -> tuple[_Setting, tuple[Message, ...]]:
    """The setting with which the stated mean context comes out, and what to say about it."""
    correlation = workload.correlation or Correlation()
    stated = workload.carry_over
    setting = _Setting(
        first_context=1.0,
        carry_over=1.0 if stated is None else stated,
        turns_first=correlation.turns_first,
        turn_append=correlation.turn_append,
        turns_append=correlation.turns_append,
    )
    target = mean_of(workload.context if workload.per_turn is None else workload.per_turn.context)
    later = np.ones(int(plan.counts.sum()), bool)
    if plan.apart:
        later[_offsets(plan.counts)[:-1]] = False
    if not later.any():
        return setting, ()

    def error(setting: _Setting) -> float:
        return float(_forward(plan, setting)[0][later].mean()) - target

    moves = OPEN if stated is None else STATED
    if not plan.apart:
        moves = (("first_context", 0.0, 1.0), *moves)
    for name, lower, upper in moves:
        setting = _solve(error, setting, name, (lower, upper))
    missed = error(setting)
    notes = []
    if min(stated or 0.0, 0.0) - setting.carry_over > 0.05:
        notes.append(message("trajectories.carry_over", percent=100 * (1 + setting.carry_over)))
    if abs(missed) > MEAN_TOLERANCE * max(target, 200.0):
        notes.append(message("trajectories.context_missed", stated=target, found=target + missed))
    return setting, tuple(notes)


def _solve(error: Callable[[_Setting], float], setting: _Setting, name: str, ends: tuple[float, float]) -> _Setting:
    """The setting with ``name`` moved from where it is, inside ``ends``, to where the error is 0, or least of all."""
    from scipy.optimize import brentq

    def at(value: float) -> _Setting:
        return msgspec.structs.replace(setting, **{name: value})

    now = float(getattr(setting, name))
    best, least = setting, error(setting)
    if abs(least) < SMALL_ERROR or not ends[0] <= now <= ends[1]:
        return setting
    # contexts get longer with every quantity but turn_append, so the likelier end first
    start = least
    for end in ends if start > 0 else ends[::-1]:
        reached = error(at(end))
        if reached * start <= 0:
            found, _ = brentq(lambda x: error(at(x)), now, end, xtol=1e-7, maxiter=STEPS, full_output=True, disp=False)
            return at(float(found))
        if abs(reached) < abs(least):
            best, least = at(end), reached
    return best


def _forward(plan: _Plan, setting: _Setting) -> tuple[Ints, Ints, Bools]:
    """Context, append and resets of every turn."""
    starts, total = _offsets(plan.counts)[:-1], int(plan.counts.sum())
    score = setting.turns_first * plan.length_score + math.sqrt(1 - setting.turns_first**2) * plan.first_chance
    context, append = np.zeros(total, np.int64), np.zeros(total, np.int64)
    first = _by_rank(plan.first_context, score)
    if not plan.apart:
        first = np.floor(first * setting.first_context + plan.rounding[starts]).astype(np.int64)
    context[starts] = _blocks(first, plan.block)
    append[starts] = _by_rank(plan.first_append, score) if plan.apart else plan.first_append
    resets, reset_context = np.zeros(total, bool), np.zeros(total, np.int64)
    turns, which = _places_of_resets(plan, context[starts] + append[starts])
    begin, end = plan.reset_from, plan.reset_from + len(turns)
    resets[turns], append[turns], reset_context[turns] = True, plan.append[begin:end][which], plan.reset_context
    later = np.ones(total, bool)
    later[starts] = False
    free = ~resets[later]
    weights, explained = regression(plan.known, np.array([setting.turn_append, setting.turns_append]))
    scores = weights @ plan.known + math.sqrt(max(1 - explained, 0.0)) * plan.append_chance
    rest = np.concatenate((plan.append[:begin], plan.append[end:]))
    append[np.flatnonzero(later)[free]] = _by_rank(rest, scores[free])
    _build(plan, setting.carry_over, context, append, resets, reset_context)
    return context, append, resets


def _build(plan: _Plan, carry_over: float, context: Ints, append: Ints, resets: Bools, reset_context: Ints) -> None:
    """Contexts of later turns, in place. Where whole blocks would leave a prompt shorter than the one before, the
    append is raised by what lacks, less than a block.
    """
    order = np.argsort(-plan.counts, kind="stable")
    starts, counts = _offsets(plan.counts)[:-1][order], plan.counts[order]
    for turn in range(1, int(counts[0])):
        now = starts[: int(np.searchsorted(-counts, -turn))] + turn
        prompt, new = context[now - 1] + append[now - 1], append[now]
        carried = plan.generated[now - 1] if carry_over >= 0 else new
        found = prompt + np.floor(carry_over * carried + plan.rounding[now]).astype(np.int64)
        found = np.minimum(found, np.maximum(plan.longest, prompt - new))
        # a reset keeps less than the new prompt may have, so that it is shorter than the one before where it can be
        shorter = prompt - new - 1
        fresh = np.minimum(reset_context[now], np.where(shorter >= 0, shorter, prompt))
        reset = resets[now]
        context[now] = _blocks(np.maximum(np.where(reset, fresh, found), 0), plan.block)
        append[now] = np.where(reset, new, np.maximum(new, prompt - context[now]))


def _places_of_resets(plan: _Plan, first: Ints) -> tuple[Ints, Ints]:
    """Turns that are resets and which of their appends each gets: trajectories whose first prompt is as long as the
    append, so that a reset shortens the prompt; else those with the longest.
    """
    resets = len(plan.reset_context)
    if not resets:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    appends = plan.append[plan.reset_from : plan.reset_from + resets]
    order = np.argsort(-first, kind="stable")
    rooms = np.cumsum(plan.counts[order] - 1)
    fits = rooms[np.maximum(np.searchsorted(-first[order], -appends, side="right") - 1, 0)]
    slots: dict[int, int] = {}
    for i in range(resets - 1, -1, -1):
        place = int(plan.reset_place[i] * max(int(fits[i]), 1))
        while place in slots:
            place = (place + 1) % int(rooms[-1])
        slots[place] = i
    slot = np.fromiter(slots, np.int64, resets)
    who = np.searchsorted(rooms, slot, side="right")
    before = np.where(who > 0, rooms[np.maximum(who - 1, 0)], 0)
    turns = _offsets(plan.counts)[:-1][order][who] + 1 + slot - before
    return turns, np.fromiter(slots.values(), np.int64, resets)


def _blocks(tokens: Ints, block: int) -> Ints:
    """Whole blocks of them."""
    return tokens // block * block


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
