"""Small charts as lines of text, for a terminal. Bars are eighths of a cell wide, or # where only ASCII is at hand."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar_chart(
    labels: Sequence[str], values: Sequence[float], texts: Sequence[str], width: int, ascii_only: bool
) -> str:
    """One bar a line, the largest value as wide as there is room: ``label |bar text``."""
    left = max(map(len, labels), default=0)
    right = max(map(len, texts), default=0)
    room = max(width - left - right - 4, 8)
    top = max(values, default=0.0)
    rows = []
    for label, value, text in zip(labels, values, texts, strict=True):
        length = room * value / top if top > 0 else 0.0
        rows.append(f"{label.rjust(left)} |{_bar(length, ascii_only)} {text}")
    return "\n".join(rows)


def _bar(length: float, ascii_only: bool) -> str:
    if ascii_only:
        return "#" * round(length)
    whole, part = divmod(round(length * 8), 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")
