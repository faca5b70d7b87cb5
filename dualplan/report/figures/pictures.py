"""Pictures of their own, as bytes of a file: predictions against published figures, and two figures of the paper."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dualplan.report.figures.drawing import BLUE, GREEN, INK, ORANGE, RED, SOFT, canvas, grid_lines, style, svg_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dualplan.plan.published.validate import Comparison

_COLOURS = (BLUE, ORANGE, GREEN, RED, INK, SOFT)
_MARKS = "os^vD<>Pp*"


def saved(figure: Figure, name: str, title: str, suffix: str) -> bytes:
    """A figure as the bytes of an ``.svg``, ``.png`` or ``.pdf`` file; the same figure gives the same bytes."""
    if suffix == ".svg":
        return svg_text(figure, name, title).encode()
    buffer = io.BytesIO()
    blank: dict[str, Any] = {"CreationDate": None} if suffix == ".pdf" else {"Software": None}
    figure.savefig(buffer, format=suffix.lstrip("."), metadata=blank, dpi=200)
    return buffer.getvalue()


def _plain_ticks(axis: Any) -> None:
    """Numbers of a logarithmic axis as plain text at whole powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def accuracy(found: Sequence[Comparison], suffix: str) -> bytes:
    """Prediction over published value against the published value, a mark for each kind; 1 is a perfect prediction.

    Figures are of many units and sizes, so their ratio is drawn: a scatter of both would hide errors below a decade.
    """
    kinds = list(dict.fromkeys(one.point.kind for one in found if one.predicted is not None))
    title = "Prediction over published figure"
    with style():
        figure, axes = canvas(4.6, left=0.7, right=2.1, bottom=0.55, top=0.3)
        axes.axhspan(0.9, 1.1, color="#cdeadf", zorder=0)
        axes.axhline(1.0, color=SOFT, linewidth=0.8)
        for number, kind in enumerate(kinds):
            chosen = [one for one in found if one.point.kind == kind and one.predicted is not None]
            axes.plot(
                [one.point.published for one in chosen],
                [(one.predicted or 0.0) / one.point.published for one in chosen],
                _MARKS[number % len(_MARKS)],
                color=_COLOURS[number % len(_COLOURS)],
                markersize=4,
                markerfacecolor="none" if number >= len(_COLOURS) else _COLOURS[number % len(_COLOURS)],
                label=kind,
            )
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
        axes.set_xlabel("published, in the unit of the figure (band: within 10 %)")
        axes.set_ylabel("predicted / published")
        axes.set_title(title, loc="left")
        grid_lines(axes, "both")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), frameon=False, fontsize=7.5)
        return saved(figure, "accuracy", title, suffix)


def hardware_trend(rows: Sequence[dict[str, Any]], suffix: str) -> bytes:
    """Network bytes per 1,000 FLOPs by GPU: each in the number format of its time, and all in bf16."""
    title = "Network bytes for each 1,000 FLOPs"
    base = rows[0]
    mixed = [base, *(row for row in rows[1:] if row["dtype"] != "bf16")]
    equal = [row for row in rows if row["dtype"] == "bf16"]
    with style():
        figure, axes = canvas(3.2, left=0.8, top=0.3)
        for series, name, colour in ((mixed, "number format of its time", BLUE), (equal, "bf16 throughout", ORANGE)):
            places = [[row["gpu"] for row in mixed].index(row["gpu"]) for row in series]
            values = [1000 * row["nic_bytes_per_flop"] for row in series]
            axes.plot(places, values, "o-", color=colour, label=name)
            for place, value, row in zip(places, values, series, strict=True):
                axes.annotate(row["dtype"], (place, value), (4, 5), textcoords="offset points", fontsize=7.5)
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
        axes.set_xticks(range(len(mixed)), [row["gpu"] for row in mixed])
        axes.set_ylabel("B per kFLOP")
        axes.set_yticks([0.005, 0.01, 0.02, 0.05, 0.1])
        axes.set_title(title, loc="left")
        axes.legend(frameon=False)
        grid_lines(axes, "y")
        return saved(figure, "hardware-trend", title, suffix)


def batch_curve(rows: Sequence[dict[str, Any]], suffix: str) -> bytes:
    """Requests per second of prefill passes against those of one request, by batch; the published curve beside."""
    title = "Prefill throughput against batch, relative to one request"
    with style():
        figure, axes = canvas(3.2, left=0.7, top=0.3)
        for number, model in enumerate(dict.fromkeys(row["model"] for row in rows)):
            own = [row for row in rows if row["model"] == model]
            colour = _COLOURS[number % len(_COLOURS)]
            axes.plot([row["batch"] for row in own], [row["relative"] for row in own], "-", color=colour, label=model)
        printed = [row for row in rows if row["model"] == rows[0]["model"] and row["published"] is not None]
        if printed:
            axes.plot(
                [row["batch"] for row in printed], [row["published"] for row in printed], "o", color=INK, label="paper"
            )
        axes.set_xticks(list(dict.fromkeys(row["batch"] for row in rows)))
        axes.set_xlabel("requests in a pass")
        axes.set_ylabel("relative throughput")
        axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left")
        axes.legend(frameon=False, loc="lower right")
        grid_lines(axes, "both")
        return saved(figure, "batch", title, suffix)
