"""The diagram of a read path, drawn from the step table: nodes, NICs, memory, storage, an arrow a movement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dualplan.report.figures.drawing import BLUE, INK, ORANGE, PAPER, RED, RULE, SOFT, TINTS, WIDTH, style, svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 4.65
"""Inches of one path."""

BUSY = 0.7
"""Share of a link from which its arrow is drawn as busy."""

_ROWS = {"snic": 118.0, "host": 212.0, "cnic": 306.0, "gpu": 400.0}
_CENTRE = {"prefill": 155.0, "decode": 605.0}
_BOX = (106.0, 38.0)
MIDDLE = 380.0
_BYPASS_ROWS = {("prefill", True): 230.0, ("decode", True): 255.0, ("decode", False): 370.0, ("prefill", False): 396.0}
"""Heights of the words of movements that pass a box by, by side and whether they go down: none over another."""
_STORAGE = (300.0, 460.0, 20.0, 58.0)


class Arrow(NamedTuple):
    """One movement: from where to where, two lines of words, and the share of its tightest link that is used."""

    source: str
    target: str
    load: str
    capacity: str
    used: float | None


def path_diagram(name: str, title: str, arrows: Sequence[Arrow], boxes: dict[str, str], nodes: dict[str, str]) -> str:
    """One read path. ``boxes``: place (``storage``, ``prefill_snic`` ..) -> its words; ``nodes``: side -> its title."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(WIDTH, HEIGHT))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, 100 * WIDTH)
        axes.set_ylim(100 * HEIGHT, 0)
        axes.set_axis_off()
        for side, text in nodes.items():
            _node(axes, side, text)
        used = {place for arrow in arrows for place in (arrow.source, arrow.target)}
        for place, text in boxes.items():
            _box(axes, place, text, place in used)
        for arrow in arrows:
            _draw(axes, arrow)
        return svg_text(figure, name, title)


def _node(axes: Axes, side: str, text: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    centre = _CENTRE[side]
    place, fill = (centre - 145, 86), TINTS[5]
    box = FancyBboxPatch(
        place, 290, 370, boxstyle="round,pad=0,rounding_size=8", facecolor=fill, edgecolor=RULE, zorder=0
    )
    axes.add_patch(box)
    axes.text(centre, 439, text, ha="center", va="center", fontweight="bold", fontsize=8.5)


def _box(axes: Axes, place: str, text: str, used: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    if place == "storage":
        left, right, top, bottom = _STORAGE
    else:
        x, y = _point(place)
        left, right, top, bottom = x - _BOX[0] / 2, x + _BOX[0] / 2, y - _BOX[1] / 2, y + _BOX[1] / 2
    box = FancyBboxPatch(
        (left, top),
        right - left,
        bottom - top,
        boxstyle="round,pad=0,rounding_size=5",
        facecolor=PAPER,
        edgecolor=SOFT,
        linewidth=1,
        linestyle="-" if used else (0, (3, 3)),
        zorder=3,
    )
    axes.add_patch(box)
    first, _, second = text.partition("\n")
    x, y = (left + right) / 2, (top + bottom) / 2
    weight = "bold" if used else "normal"
    axes.text(x, y - (7 if second else 0), first, ha="center", va="center", fontsize=8.5, fontweight=weight, zorder=4)
    if second:
        axes.text(x, y + 8, second, ha="center", va="center", fontsize=7.5, color=SOFT, zorder=4)


def _point(place: str) -> tuple[float, float]:
    side, _, kind = place.partition("_")
    return _CENTRE[side], _ROWS[kind]


def _colour(used: float | None) -> str:
    if used is None or used < BUSY:
        return BLUE
    return RED if used > 1 - 1e-6 else ORANGE


def _line(axes: Axes, points: Sequence[tuple[float, float]], used: float | None) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    style: dict[str, Any] = {"color": _colour(used), "linewidth": 1.3 + 1.7 * min(used or 0.0, 1.0), "zorder": 2}
    arrow = FancyArrowPatch(
        path=Path(list(points)),
        arrowstyle="-|>,head_length=5,head_width=2.6",
        mutation_scale=1,
        joinstyle="miter",
        capstyle="butt",
        **style,
    )
    axes.add_patch(arrow)


def _words(
    axes: Axes, x: float, y: float, arrow: Arrow, align: str, lines: tuple[str, ...] = (), size: float = 7.5
) -> None:
    shown = lines or (arrow.load, arrow.capacity)
    for number, text in enumerate(shown):
        axes.text(
            x,
            y + 11.5 * (number - (len(shown) - 1) / 2),
            text,
            ha=align,
            va="center",
            fontsize=size,
            fontweight="bold" if number == 0 else "normal",
            color=INK,
            zorder=5,
        )


def _draw(axes: Axes, arrow: Arrow) -> None:
    source, target = arrow.source, arrow.target
    if "storage" in (source, target):
        _storage(axes, arrow)
        return
    (x, y), (end_x, end_y) = _point(source), _point(target)
    half = _BOX[1] / 2
    if source == target:
        _loop(axes, arrow, x, y)
    elif x != end_x:
        right = end_x > x
        sign, lane = (1.0, -7.0) if right else (-1.0, 7.0)
        _line(axes, [(x + sign * _BOX[0] / 2, y + lane), (end_x - sign * _BOX[0] / 2, y + lane)], arrow.used)
        _words(axes, MIDDLE, y + lane + (-18 if right else 18), arrow, "center")
    elif abs(end_y - y) > 100:
        _bypass(axes, arrow, x, y, end_y)
    else:
        down = end_y > y
        lane = x - 13 if down else x + 13
        _line(axes, [(lane, y + (half if down else -half)), (lane, end_y - (half if down else -half))], arrow.used)
        _words(axes, lane - 7 if down else lane + 7, (y + end_y) / 2, arrow, "right" if down else "left")


def _storage(axes: Axes, arrow: Arrow) -> None:
    """Between storage and a storage NIC: reads on the lower of two lines, writes on the upper one."""
    reading = arrow.source == "storage"
    side = (arrow.target if reading else arrow.source).partition("_")[0]
    centre, top = _CENTRE[side], _ROWS["snic"] - _BOX[1] / 2
    edge = _STORAGE[0] if side == "prefill" else _STORAGE[1]
    outward = -1 if side == "prefill" else 1
    height = 46 if reading else 32
    lane = centre - outward * 13 if reading else centre + outward * 13
    points: list[tuple[float, float]] = [(edge, height), (lane, height), (lane, top)]
    _line(axes, points if reading else points[::-1], arrow.used)
    _words(axes, (edge + lane) / 2, height + (20 if reading else -17), arrow, "center")


def _bypass(axes: Axes, arrow: Arrow, x: float, y: float, end_y: float) -> None:
    """A movement that passes a box by, such as a copy between host memory and GPU: along the inner edge of the node."""
    inward, down = (1 if x < MIDDLE else -1), end_y > y
    lane = x + inward * (157 if down else 168)
    edge = x + inward * _BOX[0] / 2
    shift = 6 if down else -6
    _line(axes, [(edge, y + shift), (lane, y + shift), (lane, end_y + shift), (edge, end_y + shift)], arrow.used)
    row = _BYPASS_ROWS["prefill" if x < MIDDLE else "decode", down]
    _words(axes, lane + inward * 5, row, arrow, "left" if inward > 0 else "right")


def _loop(axes: Axes, arrow: Arrow, x: float, y: float) -> None:
    """Between NICs of one side: out of the box and back in on its outer edge."""
    outward = -1 if x < MIDDLE else 1
    edge, far = x + outward * _BOX[0] / 2, x + outward * (_BOX[0] / 2 + 10)
    _line(axes, [(edge, y - 8), (far, y - 8), (far, y + 8), (edge, y + 8)], arrow.used)
    capacity = arrow.capacity.split(", ") if arrow.capacity else []
    _words(axes, far + outward * 3, y, arrow, "right" if outward < 0 else "left", (arrow.load, *capacity), 7)
