"""Tables of text at any width: nothing is lost, nothing is wider, numbers stay below their heads."""

import pytest

from dualplan.report.columns import aligned

HEADER = ("figure", "published", "predicted", "error")
ROWS = [("lowest P/D with two storage NICs", "0.3333", "0.3333", "+0.0 %"), ("highest P/D", "1.000", "1.01", "+1.0 %")]


def lines(width, **options):
    return list(aligned(HEADER, ROWS, "lrrr", width, indent="  ", **options))


def test_a_table_that_fits():
    assert lines(80) == [
        (None, "  figure                            published  predicted   error"),
        (0, "  lowest P/D with two storage NICs     0.3333     0.3333  +0.0 %"),
        (1, "  highest P/D                           1.000       1.01  +1.0 %"),
    ]


def test_a_column_wraps_with_an_indent():
    assert lines(50, wraps=0) == [
        (None, "  figure              published  predicted   error"),
        (0, "  lowest P/D with        0.3333     0.3333  +0.0 %"),
        (0, "    two storage NICs"),
        (1, "  highest P/D             1.000       1.01  +1.0 %"),
    ]


def test_columns_that_do_not_fit_follow_below():
    assert lines(47) == [
        (None, "  figure                            published"),
        (0, "  lowest P/D with two storage NICs     0.3333"),
        (1, "  highest P/D                           1.000"),
        (None, ""),
        (None, "  figure                            predicted"),
        (0, "  lowest P/D with two storage NICs     0.3333"),
        (1, "  highest P/D                            1.01"),
        (None, ""),
        (None, "  figure                             error"),
        (0, "  lowest P/D with two storage NICs  +0.0 %"),
        (1, "  highest P/D                       +1.0 %"),
    ]


@pytest.mark.parametrize("width", range(40, 100, 3))
def test_every_cell_is_shown_at_any_width(width):
    found = lines(width, wraps=0)
    assert all(len(text) <= width for _, text in found)
    for number, row in enumerate(ROWS):
        words = " ".join(text for at, text in found if at == number).split()
        assert all(word in words for cell in row for word in cell.split())


def test_heads_of_several_lines():
    found = [text for _, text in aligned(("name", "rate\nGb/s"), [("a", "400"), ("b", "8")], "lr", 40)]
    assert found == ["name  rate", "      Gb/s", "a      400", "b        8"]
