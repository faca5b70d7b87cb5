"""Figures of a report: the common style, and an SVG text that is the same for the same input.

Text stays text (readers can search it, and the browser chooses a font that has the letters). Colours are the
colour-blind safe ones of Okabe and Ito, darkened where needed; every figure says in words what its colours say.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, RULE, PAPER = "#1c2128", "#56606b", "#c9d0d8", "#ffffff"
BLUE, ORANGE, GREEN, RED = "#0072b2", "#b45309", "#00795c", "#b3261e"
TINTS = ("#cfe5f5", "#fbe0c3", "#cdeadf", "#ecd9ea", "#f3ecc0", "#dfe3e8", "#f7d3cf", "#d8dcf5")
"""Fills of regions, told apart by a number as well."""

THEME = {INK: "ink", SOFT: "soft", RULE: "rule", PAPER: "paper", BLUE: "blue", ORANGE: "orange", GREEN: "green"}
THEME |= {RED: "red"} | {tint: f"tint{number}" for number, tint in enumerate(TINTS)}
"""Colour -> the name of the style sheet's variable that replaces it in HTML, for light and dark."""

WIDTH = 7.6
"""Inches; at 100 px an inch the figure is as wide as the text."""

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "text.color": INK,
    "text.parse_math": False,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.unicode_minus": False,
    "path.simplify": False,
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The style of all figures, whatever the user's own matplotlib settings are.

    Letters that the bundled font lacks are measured as a box and drawn by the reader's browser, so that is no fault.
    """
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(_STYLE)
        yield


def canvas(
    height: float, *, left: float, right: float = 0.15, top: float = 0.1, bottom: float = 0.5
) -> tuple[Any, Any]:
    """A figure of the common width and its axes, with margins in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    box = (left / WIDTH, bottom / height, (WIDTH - left - right) / WIDTH, (height - top - bottom) / height)
    return figure, figure.add_axes(box)


def svg_text(figure: Figure, name: str, title: str) -> str:
    """The drawing as an ``svg`` element without date, program or document header, ids starting with ``name``."""
    import io

    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    blank = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata=blank, dpi=100)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    head, _, rest = text.partition(">")
    points = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    width, height = (float(value) for value in points.groups()) if points else (WIDTH * 72, WIDTH * 72)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    size = f'width="{width * 100 / 72:.0f}" height="{height * 100 / 72:.0f}"'
    label = f'role="img" aria-labelledby="{name}-title"'
    return f'{head} {size} {label}>\n <title id="{name}-title">{_escaped(title)}</title>{rest}'.rstrip() + "\n"


def _escaped(text: str) -> str:
    from xml.sax.saxutils import escape

    return escape(text)


def themed(svg: str) -> str:
    """The drawing with its colours as variables of the style sheet and its font that of the page."""
    for colour, name in THEME.items():
        svg = re.sub(rf"{colour}\b", f"var(--{name})", svg, flags=re.IGNORECASE)
    return svg.replace("'DejaVu Sans', ", "").replace("'DejaVu Sans'", "sans-serif")


def log_ticks(axes: Axes, low: float, high: float, labels: dict[float, str] | None = None) -> None:
    """Ticks of a P/D axis at 1:8, 1:4 .. 8:1 or as given, none outside."""
    if labels is None:
        powers = range(-20, 21, 1 if high / low < 2**9 else 2)
        labels = {2.0**power: f"{2**power}:1" if power >= 0 else f"1:{2**-power}" for power in powers}
    shown = {value: text for value, text in labels.items() if low <= value <= high}
    axes.set_xticks(list(shown), list(shown.values()))
    axes.xaxis.set_minor_locator(_null_locator())
    axes.xaxis.set_minor_formatter(_null_formatter())


def _null_locator() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _null_formatter() -> Any:
    from matplotlib.ticker import NullFormatter

    return NullFormatter()


def grid_lines(axes: Axes, axis: str = "x") -> None:
    """Light lines behind the data."""
    axes.grid(axis=axis, color=RULE, linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def bars(
    name: str,
    title: str,
    labels: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    *,
    axis_label: str,
    strong: Sequence[int] = (),
    left: float = 1.6,
) -> str:
    """Horizontal bars from 0, first on top, the value in words at the end of each; ``strong`` ones in a second colour
    and with a bold label.
    """
    with style():
        height = 0.34 * len(values) + 0.65
        figure, axes = canvas(height, left=left, right=1.9)
        places = range(len(values))
        colours = [ORANGE if place in strong else BLUE for place in places]
        axes.barh(places, values, height=0.62, color=colours)
        axes.set_yticks(places, labels)
        for place, label in zip(places, axes.get_yticklabels(), strict=True):
            label.set_fontweight("bold" if place in strong else "normal")
        axes.invert_yaxis()
        axes.set_xlim(0, max([*values, 1e-12]) * 1.02)
        axes.set_xlabel(axis_label)
        axes.tick_params(axis="y", length=0)
        grid_lines(axes)
        for place, (value, text) in enumerate(zip(values, texts, strict=True)):
            axes.annotate(text, (value, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5)
        return svg_text(figure, name, title)


def tornado_bars(
    name: str,
    title: str,
    labels: Sequence[str],
    changes: Sequence[tuple[float, float]],
    words: tuple[str, str],
    axis_label: str,
) -> str:
    """Relative changes (quantity lower, quantity higher) as bars about 0, the first on top."""
    with style():
        height = 0.42 * len(labels) + 1.05
        figure, axes = canvas(height, left=2.75, right=0.55, top=0.4, bottom=0.6)
        places = range(len(labels))
        for side, colour, hatch in ((0, ORANGE, "////"), (1, BLUE, "")):
            values = [100 * change[side] for change in changes]
            rows = [place + (-0.17, 0.17)[side] for place in places]
            look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": PAPER, "linewidth": 0}
            axes.barh(rows, values, height=0.33, label=words[side], **look)
        widest = 100 * max(abs(value) for change in changes for value in change)
        axes.set_xlim(-1.4 * widest, 1.4 * widest)
        axes.axvline(0, color=SOFT, linewidth=0.8)
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(axis_label)
        ticks = [tick for tick in axes.get_xticks() if abs(tick) <= 1.4 * widest]
        axes.set_xticks(ticks, [f"{tick:+g} %".replace("-", "−").replace("+0 %", "0 %") for tick in ticks])
        grid_lines(axes)
        for place, change in enumerate(changes):
            for value, up in ((min(change), False), (max(change), True)):
                if abs(value) < 5e-4 or (value < 0) == up:
                    continue
                text = f"{100 * value:+.{0 if abs(value) >= 0.0995 else 1}f} %".replace("-", "−")
                axes.annotate(
                    text,
                    (100 * value, place),
                    xytext=(4 if up else -4, 0),
                    textcoords="offset points",
                    ha="left" if up else "right",
                    va="center",
                    fontsize=8,
                )
        figure.legend(
            loc="upper left", bbox_to_anchor=(2.7 / WIDTH, 1.0), ncols=2, frameon=False, fontsize=8.5, borderpad=0.2
        )
        return svg_text(figure, name, title)
