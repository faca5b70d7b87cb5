import csv
import io
import json
import math

from dualplan.report.output import Output, csv_text, flat, markdown_table, render


def make(rows):
    return Output(data={"schema": "x/1", "rows": rows}, rows=rows, text=lambda console: None)


def test_json_has_no_nan_and_keeps_order():
    text = render(make([{"b": math.nan, "a": math.inf, "c": (1, 2)}]), "json")
    assert json.loads(text) == {"schema": "x/1", "rows": [{"b": None, "a": None, "c": [1, 2]}]}
    assert list(json.loads(text)["rows"][0]) == ["b", "a", "c"]


def test_csv_has_dotted_columns_and_one_header():
    rows = [{"a": {"b": 1.5, "c": [1, 2]}, "d": True}, {"a": {"b": None}, "e": 'x,"y"'}]
    lines = list(csv.reader(io.StringIO(render(make(rows), "csv"))))
    assert lines == [["a.b", "a.c", "d", "e"], ["1.5", "1;2", "true", ""], ["", "", "", 'x,"y"']]


def test_csv_neutralises_formulas_but_not_numbers():
    lines = list(csv.reader(io.StringIO(csv_text([{"n": -1.5, "t": "=1+1"}, {"n": 2, "t": "@x"}]))))
    assert lines[1:] == [["-1.5", "'=1+1"], ["2", "'@x"]]


def test_floats_round_trip_through_csv():
    value = 0.1 + 0.2
    assert float(csv_text([{"x": value}]).splitlines()[1]) == value


def test_markdown_escapes_pipes_and_tags():
    text = markdown_table([{"name": "a|b<script>", "n": 1}, {"name": "c", "n": None}])
    assert text.splitlines()[2] == "| a\\|b&lt;script> | 1 |"


def test_flat_leaves_out_lists_of_records():
    assert flat({"a": [{"b": 1}], "c": 2}) == {"c": 2}
