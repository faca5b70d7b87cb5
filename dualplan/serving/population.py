"""The trajectories of the DualPath paper's sets, as a population of which each set is a cut.

The paper prints means only; the shape below is a fit to them (``dualplan/data/calibration-population.yaml``). The
parameter sets of the simulation were fitted with this population. Check values of the 500 trajectories of
seed 0: all fifteen published means (turns, append, generated, total, context of three sets) within 3.1 %.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from dualplan.serving.trajectories import Trajectories
from dualplan.spec.load import NonNegative, Positive, Share, decode, read_yaml

Floats = npt.NDArray[np.float64]


SALT = 21
"""Part of every seed, chosen so that the 500 trajectories of seed 0 match the published means best (1.4 % rms)."""


class Population(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters of the population; the data file says what each one means. Lengths in tokens."""

    prompt: NonNegative
    prompt_scatter: NonNegative
    growth: Positive
    growth_scatter: NonNegative
    slow_tail: NonNegative
    slow_from: NonNegative
    growth_decline: NonNegative
    decline_scatter: NonNegative
    generated_share: Share
    generated_scatter: NonNegative
    generated_growth: Share
    generated_rise: NonNegative
    generated_early: NonNegative
    share_least: Share
    share_most: Share
    early_share: Share
    early_end: Positive
    end_rate: Positive
    turn_scatter: NonNegative
    lowest_context: Positive
    reference_context: Positive


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    population: Population


def load_population() -> Population:
    """The shipped population."""
    path = Path(str(files("dualplan.data") / "calibration-population.yaml"))
    return decode(read_yaml(path), _File).population


def draw(population: Population, max_length: float, count: int, seed: int) -> Trajectories:
    """``count`` trajectories cut at ``max_length`` tokens; the same seed gives the same ones.

    Scores are the middles of strata: else the slowest trajectory, which sets the completion time of few agents, would
    differ by half from seed to seed.

    A trajectory ends before the turn that would pass its end or the maximum length; its first turn is always made.
    """
    from scipy.special import logit, ndtri

    p, random = population, np.random.default_rng([seed, SALT])

    def stratified() -> Floats:
        return random.permutation((np.arange(count) + 0.5) / count)

    z0, z1, z3 = (ndtri(stratified()) for _ in range(3))
    early, until = stratified() < p.early_share, stratified()
    growth_score = z1 - p.slow_tail * np.maximum(0.0, -z1 - p.slow_from)
    end = np.where(early, until * p.early_end, p.early_end - np.log1p(-until) / p.end_rate)
    limit = np.minimum(max_length, end)
    own = np.sqrt(1 - p.generated_growth**2)
    score = logit(p.generated_share) + p.generated_scatter * (p.generated_growth * growth_score + own * z3)
    share = 1 / (1 + np.exp(-(score + p.generated_early * early)))
    decline = p.growth_decline - p.decline_scatter * z1
    base = p.growth * np.exp(p.growth_scatter * growth_score)
    prompt = p.prompt * np.exp(p.prompt_scatter * z0)

    context, active = np.zeros(count), np.arange(count)
    turns: list[tuple[npt.NDArray[np.int64], Floats, Floats, Floats]] = []
    while len(active):
        # drawn for all, so that the noise of a trajectory does not depend on where the others end
        noise = np.exp(p.turn_scatter * random.standard_normal((2, count)) - p.turn_scatter**2 / 2)[:, active]
        before = context[active]
        k = np.maximum(before, p.lowest_context) / p.reference_context
        grown = base[active] * k ** -decline[active]
        part = np.clip(share[active] * k**p.generated_rise, p.share_least, p.share_most)
        append = grown * (1 - part) * noise[0] + (0.0 if turns else prompt[active])
        generated = np.maximum(np.rint(grown * part * noise[1]), 1.0)
        append = np.maximum(np.rint(append), 1.0)
        if not turns:
            append = np.minimum(append, max(max_length - 1, 1))
            generated = np.minimum(generated, np.maximum(max_length - append, 1))
        made = (before + append + generated <= limit[active]) | (not turns)
        active, before, append, generated = active[made], before[made], append[made], generated[made]
        turns.append((active, before, append, generated))
        context[active] = before + append + generated
        active = active[context[active] < limit[active]]
    who = np.concatenate([turn[0] for turn in turns])
    order = np.argsort(who, kind="stable")
    contexts, appends, generations = (np.concatenate([turn[i] for turn in turns])[order] for i in (1, 2, 3))
    counts = np.bincount(who, minlength=count)
    return Trajectories(
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        context=contexts,
        append=appends,
        generated=generations,
        think=np.zeros(len(contexts)),
        origin=f"{count} trajectories of the DualPath population cut at {max_length:.0f} tokens, seed {seed}",
    )
