"""A report from reviews: one scenario, or several with a comparison in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dualplan import __version__
from dualplan.plan.assumptions import inputs_sha256
from dualplan.report.blocks import (
    Block,
    Bullets,
    Document,
    Equation,
    Folded,
    Name,
    Paragraph,
    Prose,
    Section,
    Text,
    Typed,
    say,
)
from dualplan.report.capacity_review.answer import answer_section, deployment_section, range_section, throughput_section
from dualplan.report.capacity_review.basis import assumptions_section, cost_section, inputs_section, losses_table, risks
from dualplan.report.capacity_review.comparison import comparison_section
from dualplan.report.capacity_review.findings import Review
from dualplan.report.capacity_review.labels import Labels
from dualplan.report.capacity_review.links import links_section
from dualplan.report.capacity_review.modes import modes_section, simulation_section
from dualplan.report.capacity_review.outlook import (
    sensitivity_section,
    uncertainty_blocks,
    upgrades_section,
    working_set_section,
)
from dualplan.report.capacity_review.words import letter_of
from dualplan.report.feasible_document import document as feasible_document

SCHEMA = "dualplan/report/1"


def report(reviews: Sequence[Review], labels: Labels, command: str | None = None) -> Document:
    """The document. ``command``: the line that makes it again."""
    hashes = ", ".join(inputs_sha256(review.answer)[:12] for review in reviews)
    common: dict[str, Any] = {
        "subtitle": say("document.subtitle", version=__version__),
        "footer": say("document.footer", version=__version__, hash=hashes, command=Typed("dualplan feasible --json")),
        "data": data(reviews),
    }
    if len(reviews) == 1:
        title = say("document.title", name=Name(reviews[0].label))
        return Document(title=title, sections=sections(reviews[0], labels, "", command), **common)
    parts = [comparison_section(reviews, labels)]
    for number, review in enumerate(reviews):
        letter = letter_of(number)
        prefix = f"{letter.lower()}-"
        title = say("document.scenario", letter=letter, name=Name(review.label))
        inner = sections(review, labels, prefix, command if number == len(reviews) - 1 else None)
        parts.append(Section(f"scenario-{letter.lower()}", title, (), tuple(inner)))
    return Document(title=say("document.title_many", count=str(len(reviews))), sections=tuple(parts), **common)


def data(reviews: Sequence[Review]) -> dict[str, Any]:
    """The figures of the report as ``feasible`` and ``simulate`` give them in JSON."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "scenarios": [
            {"name": review.label, "feasible": feasible_document(review.answer), "simulate": review.simulation}
            for review in reviews
        ],
    }


def sections(review: Review, labels: Labels, prefix: str, command: str | None) -> tuple[Section, ...]:
    """All sections of one scenario; ``prefix`` keeps anchors and figures of several apart."""
    found = [
        answer_section(review),
        deployment_section(review),
        range_section(review, labels, prefix),
        throughput_section(review, labels, prefix),
        links_section(review, labels, prefix),
        modes_section(review, labels, prefix),
        simulation_section(review),
        sensitivity_section(review, labels, prefix),
        upgrades_section(review, labels, prefix),
        cost_section(review),
        working_set_section(review),
        risks_section(review),
        assumptions_section(review),
        equations_section(review),
        inputs_section(review, command),
    ]
    return tuple(
        Section(prefix + section.anchor, section.title, section.blocks, section.sections)
        for section in found
        if section is not None
    )


def risks_section(review: Review) -> Section:
    """Risks, the loss of a node, and how sure the answer is."""
    found = risks(review)
    blocks: list[Block] = [Bullets(tuple(found)) if found else Paragraph(say("risk.none")), losses_table(review)]
    blocks += uncertainty_blocks(review)
    return Section("risks", say("title.risks"), tuple(blocks))


def equations_section(review: Review) -> Section:
    """Every equation of the answer by group, folded, with numbers in place of symbols and its derivation."""
    from dualplan.plan.explain.derivations import equations
    from dualplan.plan.explain.equation import GROUPS

    found = equations(review.answer.scenario)
    blocks: list[Block] = [Paragraph(say("equations.lead", command=Typed("dualplan explain")))]
    for group in GROUPS:
        shown = [one for one in found if one.group == group]
        if shown:
            summary: Text = (say(f"equations.{group}"), f" ({len(shown)})")
            blocks.append(Folded(summary, tuple(_equation(one) for one in shown)))
    return Section("equations", say("title.equations"), tuple(blocks))


def _equation(one: Any) -> Equation:
    lines = tuple(Prose(line) for line in one.derivation)
    # an input stands for itself
    numbers = "" if one.text.endswith(one.substituted) else f"{one.relation} {one.substituted}"
    return Equation(Prose(one.title), one.mathml, one.latex, numbers, lines)
