"""Scenarios side by side: what differs in them, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dualplan.report.blocks import Block, Figure, Name, Paragraph, Section, Text, Typed, say, table
from dualplan.report.capacity_review.findings import Review
from dualplan.report.capacity_review.labels import Labels
from dualplan.report.capacity_review.words import (
    NO_VALUE,
    change,
    deployment,
    end,
    letter_of,
    per_cent,
    resource,
    turns,
)
from dualplan.report.compare import Compared, input_differences
from dualplan.report.figures.drawing import bars
from dualplan.report.scenario import value_text
from dualplan.spec.workload import mean_turns
from dualplan.steady.answer import Evaluation
from dualplan.units import show, significant

MOST_INPUTS = 60
"""Differing inputs that are listed."""


def comparison_section(reviews: Sequence[Review], labels: Labels) -> Section:
    """Results and differing inputs of all scenarios, one column each."""
    letters = [letter_of(number) for number in range(len(reviews))]
    names: list[tuple[Text, ...]] = [
        (letter, Name(review.label), Name(review.answer.scenario.model.title), deployment(review.answer))
        for letter, review in zip(letters, reviews, strict=True)
    ]
    listed = table(
        say("compare.names"),
        [say(f"column.{column}") for column in ("letter", "scenario", "model", "deployment")],
        names,
        "llll",
    )
    blocks: list[Block] = [Paragraph(say("compare.lead")), listed, _results(reviews, letters)]
    if any(review.answer.turns_per_s for review in reviews):
        blocks.append(_figure(reviews, letters, labels))
    blocks.append(_inputs(reviews, letters))
    return Section("comparison", say("title.comparison"), tuple(blocks))


def _results(reviews: Sequence[Review], letters: list[str]) -> Block:
    answers = [review.answer for review in reviews]
    rows: list[tuple[Text, ...]] = []
    marked = []
    for key, cell in _RESULTS.items():
        cells = [cell(answer) for answer in answers]
        differs = any(other != cells[0] for other in cells[1:])
        if differs:
            marked.append(len(rows))
        rows.append((say(f"compare.{key}"), *cells, say("compare.differs") if differs else say("compare.same")))
    header: list[Text] = [say("column.quantity"), *letters, say("column.difference")]
    return table(say("compare.results"), header, rows, "l" + "r" * len(letters) + "l", marked=marked)


def _limits(answer: Evaluation) -> Text:
    found = answer.ranges.all_traffic
    return say("range.empty") if found.empty_because else f"{end(found.lower) or '0'} … {end(found.upper) or '∞'}"


_RESULTS: dict[str, Callable[[Evaluation], Text]] = {
    "verdict": lambda answer: say("answer.word_yes" if answer.feasible else "answer.word_no"),
    "pd": lambda answer: deployment(answer),
    "range": _limits,
    "rate": lambda answer: turns(answer.turns_per_s),
    "agents": lambda answer: significant(answer.turns_per_s / mean_turns(answer.scenario.workload)),
    "bound": lambda answer: resource(answer.bottleneck.resource),
    "basic": lambda answer: (
        NO_VALUE if answer.speedup_over_basic is None else f"{significant(answer.speedup_over_basic)}×"
    ),
    "headroom": lambda answer: NO_VALUE if answer.demand_check is None else change(answer.demand_check.headroom),
    "share": lambda answer: NO_VALUE if answer.decode_read_share is None else per_cent(answer.decode_read_share),
    "ttft": lambda answer: show(answer.ttft_unloaded_s, "s"),
    "tpot": lambda answer: show(answer.tpot_s, "s"),
}


def _figure(reviews: Sequence[Review], letters: list[str], labels: Labels) -> Figure:
    rates = [review.answer.turns_per_s for review in reviews]
    rows: list[tuple[Text, ...]] = [
        (letter, Name(review.label), turns(rate)) for letter, review, rate in zip(letters, reviews, rates, strict=True)
    ]
    header = (say("column.letter"), say("column.scenario"), say("column.rate"))
    data = table(say("compare.figure"), header, rows, "llr")
    texts = [significant(rate) for rate in rates]
    svg = bars("comparison", labels["compare.figure"], letters, rates, texts, axis_label=labels["axis.turns"], left=0.6)
    alt = say("compare.alt", values="; ".join(f"{a} {b}" for a, b in zip(letters, texts, strict=True)))
    return Figure("comparison", svg, alt, say("compare.figure"), data)


def _inputs(reviews: Sequence[Review], letters: list[str]) -> Block:
    """Input values that are not the same in all scenarios."""
    compared = Compared(names=tuple(letters), answers=tuple(review.answer for review in reviews))
    differing = input_differences(compared)
    rows: list[tuple[Text, ...]] = [
        (Typed(row["key"]), *(NO_VALUE if v is None else Name(value_text(v, row["unit"])) for v in row["values"]))
        for row in differing[:MOST_INPUTS]
    ]
    if len(differing) > MOST_INPUTS:
        rows.append((say("compare.more", n=str(len(differing) - MOST_INPUTS)), *([""] * len(letters))))
    if not rows:
        return Paragraph(say("compare.no_difference"))
    return table(say("compare.inputs"), (say("column.input"), *letters), rows, "l" * (len(letters) + 1))
