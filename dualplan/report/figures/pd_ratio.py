"""Figures over P/D: the ranges with what binds their ends, and the rate with its bottlenecks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dualplan.report.figures.drawing import (
    BLUE,
    INK,
    ORANGE,
    PAPER,
    RULE,
    SOFT,
    TINTS,
    WIDTH,
    canvas,
    grid_lines,
    log_ticks,
    style,
    svg_text,
)

if TYPE_CHECKING:
    from dualplan.steady.grid import Curve, Grid


class RangeBar(NamedTuple):
    """One range: its ends as numbers (None: no limit), and two lines of text for each end."""

    title: str
    lower: float | None
    upper: float | None
    at_lower: str
    at_upper: str
    empty: str = ""


MARGIN = 0.27
"""Share of the width on either side of the bars, for the words at their ends."""


def range_bars(name: str, title: str, bars: Sequence[RangeBar], ratio: float, chosen: str, axis_label: str) -> str:
    """Ranges of P/D as bars on a logarithmic axis, and the chosen ratio as a line through them."""
    ends = [ratio, *(end for bar in bars for end in (bar.lower, bar.upper) if end)]
    low, high = math.log(min(ends)), math.log(max(ends))
    room = max(high - low, math.log(4)) / (1 - 2 * MARGIN) * MARGIN
    left, right = math.exp(low - room), math.exp(high + room)
    with style():
        figure, axes = canvas(0.66 * len(bars) + 0.95, left=1.5, top=0.3, bottom=0.55)
        axes.set_xscale("log")
        axes.set_xlim(left, right)
        axes.set_ylim(len(bars) - 0.45, -0.55)
        axes.axvline(ratio, color=ORANGE, linewidth=1.6, zorder=1)
        axes.annotate(
            chosen,
            (ratio, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            color=ORANGE,
            fontweight="bold",
        )
        for place, bar in enumerate(bars):
            if bar.empty:
                empty = {"facecolor": PAPER, "edgecolor": "none", "pad": 2}
                axes.text(ratio, place, bar.empty, ha="center", va="center", fontsize=8.5, bbox=empty)
                continue
            start, end = bar.lower or left, bar.upper or right
            axes.barh(
                place, end - start, left=start, height=0.42, color=BLUE, alpha=1 if place == 0 else 0.55, zorder=2
            )
            axes.plot([ratio], [place], marker="D", color=ORANGE, markersize=6, markeredgecolor="#ffffff", zorder=3)
            for text, where, side in ((bar.at_lower, start, "right"), (bar.at_upper, end, "left")):
                shift = -5 if side == "right" else 5
                if (side == "right" and bar.lower) or (side == "left" and bar.upper):
                    axes.annotate(
                        text,
                        (where, place),
                        xytext=(shift, 0),
                        textcoords="offset points",
                        ha=side,
                        va="center",
                        fontsize=8,
                        linespacing=1.35,
                        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
                        zorder=4,
                    )
        axes.set_yticks(range(len(bars)), [bar.title for bar in bars])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(axis_label)
        log_ticks(axes, left, right)
        return svg_text(figure, name, title)


class Region(NamedTuple):
    """Ratios in a row with one bottleneck."""

    resource: str
    low: float
    high: float


def regions(curve: Curve) -> list[Region]:
    """Where each resource binds along the curve; a change lies half-way (in logarithms) between two points."""
    found: list[Region] = []
    ratios = curve.pd_ratio.tolist()
    for index, (ratio, resource) in enumerate(zip(ratios, curve.bottleneck.tolist(), strict=True)):
        if found and found[-1].resource == resource:
            found[-1] = found[-1]._replace(high=ratio)
            continue
        edge = ratio if index == 0 else math.sqrt(ratio * ratios[index - 1])
        if found:
            found[-1] = found[-1]._replace(high=edge)
        found.append(Region(resource, edge, ratio))
    return found


def rate_curve(
    name: str,
    title: str,
    curve: Curve,
    whole: Grid,
    chosen: tuple[float, float, str],
    names: dict[str, str],
    words: dict[str, str],
) -> str:
    """Turns/s over P/D: the curve of fractional splits, whole nodes as points, regions by what binds, the chosen split.

    ``chosen``: its ratio, rate and name. ``names``: resource -> words. ``words``: axis and legend texts.
    """
    found = regions(curve)
    numbers = {resource: n for n, resource in enumerate(dict.fromkeys(region.resource for region in found), start=1)}
    low, high = float(curve.pd_ratio[0]), float(curve.pd_ratio[-1])
    lines = -(-len(numbers) // 3)
    with style():
        figure, axes = canvas(3.4 + 0.22 * lines, left=0.75, top=0.3, bottom=0.6 + 0.22 * lines)
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        top = max(float(curve.turns_per_s.max()), chosen[1], 1e-9) * 1.18
        axes.set_ylim(0, top)
        for region in found:
            number = numbers[region.resource]
            axes.axvspan(region.low, region.high, color=TINTS[(number - 1) % len(TINTS)], linewidth=0, zorder=0)
            if region.low > low:
                axes.axvline(region.low, color=RULE, linewidth=0.8, zorder=1)
            if math.log(region.high / region.low) > 0.02 * math.log(high / low):
                centre = math.sqrt(region.low * region.high)
                axes.text(centre, top * 0.975, str(number), ha="center", va="top", fontweight="bold", color=SOFT)
        grid_lines(axes, "y")
        axes.plot(curve.pd_ratio, curve.turns_per_s, color=BLUE, linewidth=2, label=words["curve"], zorder=3)
        ratios = whole.prefill_nodes / whole.decode_nodes
        seen = (ratios >= low) & (ratios <= high)
        points: dict[str, Any] = {
            "linestyle": "none",
            "marker": "o",
            "markersize": 5,
            "color": INK,
            "label": words["whole"],
        }
        axes.plot(ratios[seen], whole.turns_per_s[seen], zorder=4, **points)
        axes.plot(
            [chosen[0]],
            [chosen[1]],
            linestyle="none",
            marker="D",
            markersize=8,
            color=ORANGE,
            markeredgecolor="#ffffff",
            label=f"{words['chosen']} {chosen[2]}",
            zorder=5,
        )
        axes.set_xlabel(words["x"])
        axes.set_ylabel(words["y"])
        log_ticks(axes, low, high)
        figure.legend(
            loc="upper left", bbox_to_anchor=(0.085, 1.0), ncols=3, frameon=False, fontsize=8.5, borderpad=0.2
        )
        height = figure.get_figheight()
        for resource, number in numbers.items():
            column, line = (number - 1) % 3, (number - 1) // 3
            x, y = 0.75 + 2.3 * column, 0.12 + 0.22 * (lines - 1 - line)
            box = {"boxstyle": "square,pad=0.25", "facecolor": TINTS[(number - 1) % len(TINTS)], "edgecolor": "none"}
            figure.text(x / WIDTH, y / height, str(number), fontweight="bold", fontsize=8.5, bbox=box, color=INK)
            figure.text((x + 0.2) / WIDTH, y / height, names.get(resource, resource), fontsize=8.5)
        return svg_text(figure, name, title)
