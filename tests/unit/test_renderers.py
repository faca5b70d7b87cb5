"""The same blocks as lines of a terminal and as Markdown."""

from io import StringIO

import msgspec
import pytest

from dualplan.cli.terminal import SafeConsole
from dualplan.report.blocks import (
    GAP,
    MORE,
    Bullets,
    Drawing,
    Equation,
    Facts,
    Formula,
    Name,
    Paragraph,
    Typed,
    say,
    table,
)
from dualplan.report.records import pick, pick_all, pick_or_none
from dualplan.report.renderers.markdown import markdown_text
from dualplan.report.renderers.terminal import print_blocks


def lines(*blocks, width=40, colour=False):
    buffer = StringIO()
    system = "standard" if colour else None
    print_blocks(blocks, SafeConsole(file=buffer, width=width, color_system=system, force_terminal=colour))
    return [line.rstrip() for line in buffer.getvalue().splitlines()]


def test_facts_hang_under_their_text():
    facts = Facts((("", "60 turns/s"), ("Bound by", "decode HBM, " + "which is full " * 3), (MORE, "alone")))
    assert lines(facts) == [
        "  60 turns/s",
        "  Bound by   decode HBM, which is full",
        "             which is full which is full",
        "             alone",
    ]
    assert markdown_text([facts]).splitlines()[::2] == ["- 60 turns/s", "- alone"]


def test_paragraphs_wrap_to_the_width_and_no_option_is_broken():
    text = "leave room for what comes, with --find-capacity"
    assert lines(Paragraph(text, hanging=4)) == ["  leave room for what comes, with", "      --find-capacity"]
    assert lines(Paragraph(text, "title")) == ["leave room for what comes, with", "  --find-capacity"]
    assert all(len(line) <= 100 for line in lines(Paragraph("word " * 100), width=400))


def test_colour_only_repeats_what_words_say():
    found = Paragraph("FEASIBLE", "good")
    assert lines(found) == ["  FEASIBLE"]
    assert lines(found, colour=True) == ["\x1b[1;32m  FEASIBLE\x1b[0m"]


def test_bars_stand_beside_the_rows():
    used = table("", ("Resource", "used"), [("links", "100 %"), ("memory", "25 %")], "lr", bars=(1.0, 0.25))
    assert lines(GAP, used) == [
        "",
        "  Resource   used",
        "  links     100 %  ####################",
        "  memory     25 %  #####",
    ]
    assert markdown_text([used]).splitlines()[2:] == ["| links | 100 % |", "| memory | 25 % |"]


def test_columns_that_do_not_fit_follow_below():
    wide = table("", ("key", "first", "second"), [("a", "x" * 20, "y" * 20)], "lll", flow="...")
    assert lines(wide, width=60)[0].split() == ["key", "first", "second"]
    assert lines(wide) == [
        *("  key  first", "  a    xxxxxxxxxxxxxxxxxxxx", ""),
        *("  key  second", "  a    yyyyyyyyyyyyyyyyyyyy"),
    ]


def test_drawings_know_their_room():
    rule = Drawing(lambda width: ["-" * width])
    assert lines(rule) == ["  " + "-" * 38]
    assert markdown_text([rule]).splitlines() == ["```", "-" * 76, "```"]


def test_markdown_is_literal_in_names_and_open_in_formulas():
    equation = Equation("rate", "", r"\lambda = 1", derivation=("so",))
    text = markdown_text([Bullets((Name("a*b"), Typed("--x"), Formula(r"\rho", "P/D"), say("word.yes"))), equation])
    assert text == "- a\\*b\n- `--x`\n- $\\rho$\n- yes\n\n**rate**\n\n$$\\lambda = 1$$\n\n- so\n"
    assert lines(Paragraph(("at ", Formula(r"\rho", "P/D")))) == ["  at P/D"]


class Inner(msgspec.Struct):
    """A record within another."""

    size: float


class Outer(msgspec.Struct):
    """A record."""

    names: tuple[str, ...]
    inner: Inner


def test_keys_come_from_a_table():
    record = Outer(("a", "b"), Inner(2.5))
    assert list(pick(record, "size_bytes=inner.size names").items()) == [("size_bytes", 2.5), ("names", ["a", "b"])]
    assert pick_all([record], "inner") == [{"inner": {"size": 2.5}}]
    assert pick_or_none(None, "anything") is None
    with pytest.raises(AttributeError):
        pick(record, "absent")
