"""A report as one HTML file that needs nothing from anywhere else."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from dualplan.errors import printable
from dualplan.messages import Message
from dualplan.messages import text as in_words
from dualplan.report.blocks import Document, Formula, Name, Prose, Typed, figures
from dualplan.report.figures.drawing import themed
from dualplan.report.output import clean
from dualplan.report.renderers.words import LONGEST_TITLE, Words, shortened

if TYPE_CHECKING:
    from markupsafe import Markup

    from dualplan.report.capacity_review.labels import Labels


def html(document: Document, labels: Labels) -> str:
    """The document in the language of the labels."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    words = HtmlWords(labels)
    environment = Environment(
        loader=PackageLoader("dualplan.report", "renderers"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["t"] = words.text
    drawings = {figure.name: Markup(themed(figure.svg)) for figure in figures(document.sections)}
    # "<" would let a name in the data end the script element, and other letters could turn the direction of the source
    data = json.dumps(clean(document.data), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    template = environment.get_template("report.html")
    text = template.render(document=document, labels=labels, drawings=drawings, data=Markup(data), plain=words.plain)
    return re.sub(r"\n\s*\n+", "\n", text) + "\n"


class HtmlWords(Words):
    """Everything but the templates' own markup is escaped; names are isolated from the direction of what surrounds."""

    def text(self, text: Any) -> Markup:
        from markupsafe import Markup, escape

        if isinstance(text, Message):
            return self.text(self.parts(text))
        if isinstance(text, Name):
            shown = shortened(text)
            whole = printable(text.text)[:LONGEST_TITLE]
            title = Markup(' title="{}"').format(whole) if len(shown) < len(whole) else ""
            return Markup("<bdi{}>{}</bdi>").format(title, shown)
        if isinstance(text, Prose):
            said = self.said(text)
            if said is not None:
                return self.text(said)
            language = Markup(' lang="en"') if self.language != "en" else ""
            return Markup('<span dir="auto"{}>{}</span>').format(language, printable(in_words(text.text)))
        if isinstance(text, Typed):
            return Markup('<code dir="ltr">{}</code>').format(printable(text.text))
        if isinstance(text, tuple):
            return Markup("").join(self.text(part) for part in text)
        return escape(text.text if isinstance(text, Formula) else str(text))
