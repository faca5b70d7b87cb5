"""Fit the population of trajectories to the published means: ``python -m tests.published.fit_population``.

The paper tells fifteen means (turns, append, generated, total and context of its three sets), and the token factor of
one set. The slowest trajectories, which end an offline run of few agents, are seen in the runs of 512 agents at the
three lengths, at the turn and token times that the larger model has then. Prints a recipe in the
form of dualplan/data/trajectories.yaml; takes about two minutes.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import numpy as np

from dualplan.spec.workload import load_workload, mean_of
from dualplan.trace.recipe import Recipe, grow, load_recipe


def published_means(name: str) -> tuple[float, ...]:
    """Turns of a set, and means of trajectory means of append, generated, total and context [tokens]."""
    found = load_workload(name)
    total = next(figure.value for figure in found.published if figure.name == "total_tokens_mean")
    lengths = (found.turns, found.append, found.generated, total, found.context)
    return tuple(mean_of(length) for length in lengths)


MEANS = {length: published_means(f"dualpath-{length // 1024}k") for length in (32_768, 49_152, 65_536)}
"""By maximum length."""

LONGEST = {32_768: 885.0, 49_152: 1407.0, 65_536: 1945.0}
"""Seconds of the slowest of 500 trajectories at TURN and TOKEN: offline runs of 512 agents, oracle, of DeepSeek-V3.2
(882 and 1,974 s) and, between them, DS 27B (623 s between 389 and 868), less what such a run takes beyond it."""

TURN, TOKEN = 0.95, 0.034
"""Seconds of a turn without its decode, and of a generated token, with few agents."""

FACTOR = 1.16
"""Prompt tokens of the 48K set over trajectories x turns x (context + append) of the table, published as 1.15-1.18."""

GENERATED = 117.0
"""Tokens generated in a turn of the 48K set. Means of means leave it open; saturated runs ask for about so many."""

FITTED = (
    "prompt",
    "append",
    "append_decline",
    "generated",
    "generated_rise",
    "generated_level",
    "early_share",
    "early_turns",
    "early_factor",
    "end_scale",
)
SHAPES = {
    "growth_scatter": 0.1,
    "generated_growth": 0.2,
    "generated_scatter": 0.05,
    "prompt_scatter": 0.1,
    "slow_tail": 0.15,
}
"""What means hardly tell, with how far each may move from where it starts (one standard deviation)."""


def per_trajectory(recipe: Recipe, length: int, count: int, seed: int) -> tuple[Any, Any, Any, float]:
    """Means of MEANS by trajectory [trajectories, 5], tokens generated and turns of each, and all prompt tokens."""
    grown = grow(recipe, length, count, seed)
    first = np.cumsum(grown.counts) - grown.counts

    def total(values: Any) -> Any:
        return np.add.reduceat(values, first)

    turns, generated = grown.counts, total(grown.generated)
    means = (
        turns,
        total(grown.append) / turns,
        generated / turns,
        total(grown.append) + generated,
        total(grown.context) / turns,
    )
    return np.stack(means, axis=1), generated, turns, float((grown.context + grown.append).sum())


def residuals(recipe: Recipe) -> dict[str, float]:
    """By name, in standard deviations. Errors of means grow faster than in proportion: beyond 2 % none may stay."""
    found: dict[str, float] = {}
    for length, published in MEANS.items():
        sets = [per_trajectory(recipe, length, 2000, seed) for seed in range(4)]
        error = np.log(np.mean([means.mean(axis=0) for means, *_ in sets], axis=0) / published) / 0.008
        for name, value in zip(("turns", "append", "generated", "total", "context"), error, strict=True):
            found[f"{length} {name}"] = float(np.sign(value) * abs(value) ** 2)
        longest = [
            float((turns * TURN + generated * TOKEN).max())
            for _, generated, turns, _ in (per_trajectory(recipe, length, 500, seed) for seed in range(4))
        ]
        found[f"{length} longest"] = float(np.log(np.mean(longest) / LONGEST[length])) / 0.025
        if length == 49_152:
            turns, append, _, _, context = published
            factor = np.mean([prompts / (2000 * turns * (append + context)) for *_, prompts in sets])
            found["factor"] = float(factor - FACTOR) / 0.004
            made = np.mean([generated.sum() / counts.sum() for _, generated, counts, _ in sets])
            found["generated a turn"] = float(made - GENERATED) / 3.0
    return found


def fit(start: Recipe) -> Recipe:
    """The recipe nearest to the published means, by least squares on logarithms of lengths and on scatters."""
    from scipy.optimize import least_squares

    scatters = np.array([getattr(start.assumed, name) for name in SHAPES])

    def made(at: Any) -> Recipe:
        fitted = dict(zip(FITTED, np.exp(at[: len(FITTED)]).tolist(), strict=True))
        shapes = dict(zip(SHAPES, at[len(FITTED) :].tolist(), strict=True))
        replace = msgspec.structs.replace
        return replace(start, fitted=replace(start.fitted, **fitted), assumed=replace(start.assumed, **shapes))

    def values(at: Any) -> Any:
        moved = (at[len(FITTED) :] - scatters) / np.array(list(SHAPES.values()))
        return np.array([*residuals(made(at)).values(), *moved])

    at = np.concatenate([np.log([getattr(start.fitted, name) for name in FITTED]), scatters])
    return made(least_squares(values, at, diff_step=0.01, x_scale=0.05, max_nfev=40).x)


if __name__ == "__main__":
    best = fit(load_recipe("dualpath"))
    sys.stdout.write("".join(f"# {name}: {value:+.2f}\n" for name, value in residuals(best).items()))
    sys.stdout.write(msgspec.yaml.encode(best).decode())
