"""Charts for a terminal: what is drawn where, and that it fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.report.chart import Mark, grid_chart, line_chart


def marks_of(values, regions=None):
    regions = regions or [""] * len(values)
    return [Mark(label=str(i), value=v, region=r) for i, (v, r) in enumerate(zip(values, regions, strict=True))]


def test_points_stand_at_their_heights():
    lines = line_chart(marks_of([0.0, 5.0, 10.0]), "turns/s", 40)
    assert lines[0] == "turns/s"
    body = [line.split("|", 1)[1] for line in lines[1:14]]
    assert body[0].endswith("*") and body[12].startswith("*") and body[6].count("*") == 1
    assert body[6].index("*") == round((len(body[0]) - 1) / 2)
    assert [lines[row].split("|")[0].strip() for row in (1, 7, 13)] == ["10.0", "5.00", "0"]
    assert lines[15].split() == ["0", "1", "2"]


def test_regions_and_shapes_are_said_in_words():
    marks = marks_of([1.0, 2.0, 3.0, 3.0, 3.0, 2.0], ["prefill compute"] * 3 + ["decode HBM"] * 3)
    marks[1] = Mark(label="1", value=2.0, region="prefill compute", feasible=False)
    marks[2] = Mark(label="2", value=3.0, region="prefill compute", chosen=True)
    text = "\n".join(line_chart(marks, "x", 72))
    assert "|prefill compute" in text and "|decode HBM" in text
    assert "* feasible" in text and "o not feasible" in text and "# this one" in text
    narrow = "\n".join(line_chart(marks, "x", 30))
    assert "a prefill compute" in narrow and "|a" in narrow


def test_points_without_a_value_leave_a_gap():
    lines = line_chart(marks_of([1.0, None, 1.0]), "x", 40)
    assert sum(line.count("*") for line in lines[1:14]) == 2
    assert not any("." in line.split("|", 1)[1] for line in lines[1:14])


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 1e9)), min_size=1, max_size=300),
    st.integers(40, 120),
    st.sampled_from(["", "decode storage NIC in", "x"]),
)
def test_every_chart_fits_and_keeps_its_top(values, width, region):
    marks = marks_of(values, [region] * len(values))
    lines = line_chart(marks, "t", width)
    assert all(len(line) <= width and line.isascii() for line in lines)
    if max((value or 0.0) for value in values) > 0:
        assert "*" in lines[1]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(40, 120))
def test_every_table_fits(rows, columns, width):
    marks = [
        [Mark(label="", value=1.5 * i + j, region="prefill compute", feasible=j > 2) for j in range(columns)]
        for i in range(rows)
    ]
    lines = grid_chart([str(i) for i in range(rows)], [str(j) for j in range(columns)], marks, "t", width)
    assert all(len(line) <= width for line in lines)


def test_a_table_marks_regions_and_what_is_not_feasible():
    marks = [[Mark(label="", value=1.0, region="prefill HBM", feasible=False), Mark(label="", value=None)]]
    lines = grid_chart(["p1"], ["d1", "d2"], marks, "t", 60)
    assert lines[2].split() == ["p1", "(1.00a)", "-"]
    assert lines[3] == "a prefill HBM  ( ) not feasible"


@pytest.mark.parametrize("width", [40, 80])
def test_one_point_is_a_chart_too(width):
    assert sum(line.count("*") for line in line_chart(marks_of([4.0]), "x", width)[1:14]) == 1
