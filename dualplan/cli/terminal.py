"""A rich console that lets nothing of the text steer the terminal: the only codes that come out are its own styles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dualplan.errors import printable_lines


class SafeConsole(Console):
    """Names come from files of others. What is not printable in them is made visible before a style is added to it,
    so codes of styles cannot be mistaken for codes of names. Line ends stay.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Text with what is not printable made visible, so that it is measured as it is shown."""
        return super().render_str(printable_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of anything, likewise."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)
