"""Trajectories from a recipe: a population described by how contexts grow, cut at any length.

With k = max(context, lowest) / reference, a trajectory of growth score z (stretched by ``slow_tail`` below
-``slow_from``) and generation score y, and lognormal noise of mean 1 between turns, e (``append_noise``) and e'
(``generated_noise``),

    first append   prompt * exp(prompt_scatter * x), at most prompt_limit
    append         append * exp(growth_scatter * z) * k^-append_decline * e
    generated      generated * exp(generated_growth * z + generated_scatter * y) * min(k, level)^generated_rise * e'

until the trajectory ends: an ``early_share`` after 1 to ``early_turns`` turns, the others a Weibull distance after
their prompt, all of them at the maximum length. A turn whose prompt would reach the end is not made; a generation that
would pass it is cut there.

Scores come from a Sobol sequence scrambled by the seed, each moved to the middles of equal strata: 500 trajectories
then have the means of 5,000, and their slowest one, which ends a run of few agents, is nearly as slow with every seed.
In each turn trajectories of like score draw their noise from equal strata. The cut sets of one seed and count hold the
same trajectories.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec
import numpy as np

from dualplan.errors import InputError, did_you_mean
from dualplan.spec.load import Positive, Share, decode, read_yaml
from dualplan.trace.record import Bools, Floats, Ints

NEIGHBOURS = 50
"""Trajectories of like score that share strata of their noise."""

RECIPES = Path(__file__).resolve().parents[1] / "data" / "trajectories.yaml"


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """What is fitted to published means; lengths in tokens."""

    prompt: Positive
    append: Positive
    append_decline: float
    generated: Positive
    generated_rise: float
    generated_level: Positive
    early_share: Share
    early_turns: Positive
    early_factor: Positive
    end_scale: Positive


class Assumed(msgspec.Struct, frozen=True, kw_only=True):
    """What means alone do not tell; lengths in tokens, scatters as standard deviations of the logarithm."""

    reference_context: Positive
    lowest_context: Positive
    prompt_limit: Positive
    prompt_scatter: float
    growth_scatter: float
    slow_tail: float
    slow_from: float
    generated_growth: float
    generated_scatter: float
    append_noise: float
    generated_noise: float
    scatter_limit: Positive
    end_shape: Positive


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A population of trajectories."""

    source: str
    fitted: Fitted
    assumed: Assumed


class Grown(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Turns of all trajectories, one trajectory after the other: ``counts`` [trajectories], lengths [turns, tokens]."""

    counts: Ints
    context: Ints
    append: Ints
    generated: Ints


def load_recipe(name: str) -> Recipe:
    """A recipe by name. Raises InputError for an unknown one."""
    recipes = decode(read_yaml(RECIPES), dict[str, Recipe])
    if name not in recipes:
        raise InputError(
            "recipe", f'"{name}" is not known', did_you_mean(name, recipes) or "known: " + ", ".join(recipes)
        )
    return recipes[name]


def grow(recipe: Recipe, max_length: int, count: int, seed: int) -> Grown:
    """``count`` trajectories of at most ``max_length`` tokens (at least 2); the same seed gives the same ones."""
    fitted, assumed = recipe.fitted, recipe.assumed
    random = np.random.default_rng([seed, count])
    people = _population(recipe, count, random)
    prompt = fitted.prompt * np.exp(assumed.prompt_scatter * people.prompt)
    prompt_tokens: Ints = _whole(np.minimum(prompt, min(assumed.prompt_limit, max_length - 1)))
    limit: Ints = np.minimum(prompt_tokens + people.distance, max_length)
    growth = people.growth - assumed.slow_tail * np.maximum(-people.growth - assumed.slow_from, 0.0)
    append_of = fitted.append * np.exp(assumed.growth_scatter * growth)
    append_of *= np.where(people.early, fitted.early_factor, 1.0)
    generation = assumed.generated_growth * growth + assumed.generated_scatter * people.generated
    generated_of = fitted.generated * np.exp(generation)

    by_growth, by_generated = (np.argsort(score, kind="stable") for score in (people.growth, people.generated))
    context = np.zeros(count, np.int64)
    active: Ints = np.arange(count)
    turns: list[tuple[Ints, Ints, Ints, Ints]] = []
    while len(active):
        # drawn for all, so that the noise of a trajectory does not depend on where the others were cut
        append_noise = _noise(random, assumed.append_noise, by_growth)[active]
        generated_noise = _noise(random, assumed.generated_noise, by_generated)[active]
        before = context[active]
        k = np.maximum(before, assumed.lowest_context) / assumed.reference_context
        level = fitted.generated_level / assumed.reference_context
        append = _whole(append_of[active] * k**-fitted.append_decline * append_noise) if turns else prompt_tokens
        generated = _whole(generated_of[active] * np.minimum(k, level) ** fitted.generated_rise * generated_noise)
        made = before + append < limit[active]
        active, before, append, generated = active[made], before[made], append[made], generated[made]
        generated = np.minimum(generated, limit[active] - before - append)
        turns.append((active, before, append, generated))
        context[active] = before + append + generated
        active = active[(context[active] < limit[active]) & (len(turns) < people.turns[active])]
    return _in_order(turns, count)


class _People(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What tells trajectories apart [trajectories]: whether they end early; normal scores; the most turns; the tokens
    from the prompt to the end.
    """

    early: Bools
    prompt: Floats
    growth: Floats
    generated: Floats
    turns: Ints
    distance: Ints


def _population(recipe: Recipe, count: int, random: np.random.Generator) -> _People:
    from scipy.special import ndtri

    fitted, assumed = recipe.fitted, recipe.assumed
    early_count = min(count, int(fitted.early_share * count + random.random()))
    uniform = np.concatenate([_stratified(n, 4, random) for n in (early_count, count - early_count)])
    order = random.permutation(count)
    early, share = (np.arange(count) < early_count)[order], uniform[order, 0]
    scores = np.clip(ndtri(uniform[order, 1:]), -assumed.scatter_limit, assumed.scatter_limit)
    weibull = fitted.end_scale * (-np.log1p(-share)) ** (1 / assumed.end_shape)
    endless = np.iinfo(np.int64).max // 2
    return _People(
        early=early,
        prompt=scores[:, 0],
        growth=scores[:, 1],
        generated=scores[:, 2],
        turns=np.where(early, 1 + np.floor(share * fitted.early_turns), endless).astype(np.int64),
        distance=np.where(early, endless, 1 + np.floor(weibull)).astype(np.int64),
    )


def _stratified(count: int, dimensions: int, random: np.random.Generator) -> Floats:
    """``count`` points in the unit cube, evenly spread together; each coordinate alone takes the middles of strata."""
    from scipy.stats import qmc

    with _signals_held():
        sequence = qmc.Sobol(dimensions, rng=random)
    points = sequence.random_base2(max(count - 1, 0).bit_length())[:count]
    ranks = np.argsort(np.argsort(points, axis=0, kind="stable"), axis=0, kind="stable")
    return np.asarray((ranks + 0.5) / max(count, 1))


@contextmanager
def _signals_held() -> Iterator[None]:
    """Signals that Python handles wait for the end: SciPy swallows a Ctrl-C while it reads the table of its sequence,
    and would go on with a part of the table.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[tuple[int, FrameType | None]] = []
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {int(number): handler for number, handler in found.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda *caught: seen.append(caught))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number, frame in seen[:1]:
        handlers[number](number, frame)


def _noise(random: np.random.Generator, scatter: float, order: Ints) -> Floats:
    """Lognormal factors of mean 1 [trajectories] for a turn of each. ``order``: neighbours in it, NEIGHBOURS at a time,
    draw from equal strata.

    So the few fastest trajectories, whose first appends weigh most in a mean, do not draw high or low together.
    """
    from scipy.special import ndtri

    count = len(order)
    strata = np.argsort(random.random((-(-count // NEIGHBOURS), NEIGHBOURS)), axis=1).ravel()[:count]
    normal = np.empty(count)
    normal[order] = ndtri((strata + random.random(count)) / NEIGHBOURS)
    return np.asarray(np.exp(scatter * normal - scatter**2 / 2))


def _whole(tokens: Floats) -> Ints:
    return np.maximum(np.rint(tokens), 1.0).astype(np.int64)


def _in_order(turns: list[tuple[Ints, Ints, Ints, Ints]], count: int) -> Grown:
    """Turns collected one turn number after the other, put in order of trajectories."""
    who = np.concatenate([turn[0] for turn in turns])
    order = np.argsort(who, kind="stable")
    context, append, generated = (np.concatenate([turn[i] for turn in turns])[order] for i in (1, 2, 3))
    return Grown(counts=np.bincount(who, minlength=count), context=context, append=append, generated=generated)
