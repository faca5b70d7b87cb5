"""``flow`` through real processes: cases, formats, links that fail, bad files."""

import csv
import hashlib
import io
import json

import pytest

from tests.cli.runner import dualplan

CASE = {
    "format": "flowcase/1",
    "name": "two",
    "description": "one flow leaves early",
    "links": [{"id": "l", "capacity": 100}, {"id": "port", "capacity": 80, "policy": "FATPIPE"}],
    "flows": [
        {"links": [["l", 1], ["port", 1]], "size": 100, "start": 0.0},
        {"links": [["l", 1]], "size": 200, "start": 0.0, "id": "big"},
    ],
    "expected": {"finish": [2.0, 3.0]},
}


@pytest.fixture
def case(tmp_path):
    def write(**changes):
        path = tmp_path / "case.json"
        path.write_text(json.dumps(CASE | changes))
        return path

    return write


def answer(path):
    done = dualplan("flow", path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_json(case):
    path = case()
    data = answer(path)
    assert list(data)[:3] == ["schema", "name", "finish_s"]
    assert data["schema"] == "dualplan/flow/1"
    assert data["finish_s"] == [2.0, 3.0]
    assert data["makespan_s"] == 3.0
    assert data["max_relative_error"] == 0.0
    assert data["bottlenecks"] == ["l", "l"]
    assert data["unfinished"] == []
    assert data["links"] == [
        {"id": "l", "policy": "SHARED", "capacity_bytes_per_s": 100.0, "bytes": 300.0, "utilization": 1.0},
        {"id": "port", "policy": "FATPIPE", "capacity_bytes_per_s": 80.0, "bytes": 100.0, "utilization": None},
    ]
    assert (data["events"], data["flow_classes"]) == (3, 2)
    assert data["inputs_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["18_strict_prio", "19_size_extremes", "23_alltoall8", "26_parkinglot20x100"])
def test_reference_cases(shared_cases, name):
    path = shared_cases / "flow" / f"{name}.json"
    data = answer(path)
    expected = json.loads(path.read_text())["expected"]["finish"]
    assert data["finish_s"] == pytest.approx(expected, rel=1e-9, abs=0)
    assert data["max_relative_error"] <= 1e-9


def test_without_expected_times_there_is_no_error_to_tell(case):
    assert "max_relative_error" not in answer(case(expected={}))
    assert answer(case(expected={"finish": [2.0, 4.0]}))["max_relative_error"] == 0.25


def test_the_makespan_counts_from_the_first_start(case):
    """At 100 B/s: alone from 2 s, 50 of its 100 B by 2.5 s, then half of the rate each until 3.5 s, when 50 of 200 B
    of the other flow are through. That one has the link alone for 1.5 s more: 5 s is 3 s after the first start.
    """
    links = [{"id": "l", "capacity": 100}]
    flows = [{"links": [["l", 1]], "size": size, "start": start} for size, start in ((100, 2.0), (200, 2.5))]
    data = answer(case(links=links, flows=flows, expected={"finish": [3.5, 5.0]}))
    assert (data["finish_s"], data["makespan_s"]) == ([3.5, 5.0], 3.0)
    assert [link["utilization"] for link in data["links"]] == [1.0]


def test_people_read_the_makespan_first(case):
    done = dualplan("flow", case())
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert lines[0] == "two · one flow leaves early"
    assert lines[1].split() == ["Makespan", "3.000", "s"]
    assert "2 flows in 2 classes over 2 links, 3 events" in done.stdout
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in lines[4:7]] == ["Flow", "0", "big"]


def test_many_flows_are_cut_down_to_the_last(case):
    flows = [{"links": [["l", 1]], "size": 10 + i, "start": 0} for i in range(30)]
    links = [{"id": "l", "capacity": 100}] + [{"id": f"spare{i}", "capacity": 1} for i in range(20)]
    done = dualplan("flow", case(flows=flows, links=links, expected={}))
    shown = done.stdout.split("Last flows")[1].split("\n\n")[0].splitlines()[1:]
    assert [line.split()[0] for line in shown[:20]] == [str(i) for i in range(29, 9, -1)]
    assert "10 flows that end earlier are left out" in done.stdout
    assert "9 less used links are left out" in done.stdout
    assert done.stdout.index("Busiest links") > done.stdout.index("Last flows")


def test_csv_has_a_row_per_flow(case):
    done = dualplan("flow", case(), "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["flow"] for row in rows] == ["0", "big"]
    assert [float(row["finish_s"]) for row in rows] == [2.0, 3.0]
    assert float(rows[1]["mean_rate_bytes_per_s"]) == pytest.approx(200 / 3)


def test_standard_input_and_output_file(case, tmp_path):
    done = dualplan("flow", "-", "-o", tmp_path / "out.json", "--json", text=case().read_text())
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((tmp_path / "out.json").read_text())["finish_s"] == [2.0, 3.0]


def test_a_flow_that_never_ends_is_4(case):
    path = case(links=[{"id": "l", "capacity": 100, "capacity_changes": [[1, 0]]}, CASE["links"][1]], expected={})
    done = dualplan("flow", path, "--json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["finish_s"] == [None, None]
    assert json.loads(done.stdout)["unfinished"] == [0, "big"]
    assert done.stderr == "2 of 2 flows never end\n"
    shown = dualplan("flow", path)
    assert "NEVER ENDS  2 flows of 2" in shown.stdout


def test_unknown_keys_are_noted_beside_the_result(case):
    done = dualplan("flow", case(made_by="somebody"), "--json")
    assert done.returncode == 0
    assert "ignored keys: made_by" in done.stderr


def test_all_faults_of_a_file_with_3(case):
    flows = [{"links": [["k", 1]], "size": -1, "start": 0}, {"links": [["l", 1]], "size": 1, "start": 0, "weight": 0}]
    path = case(flows=flows)
    done = dualplan("flow", path, "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines() == [
        f"{path}: flows[0].size: -1 is negative",
        f'{path}: flows[0].links[0]: unknown link "k"',
        f"{path}: flows[1].weight: 0 is not positive",
    ]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "case.json:1: is empty"),
        (b"{", "case.json:1: is not JSON"),
        (b"\x00\x01", "is a binary file"),
        (b"\xff\xfe{\x00", "is UTF-16 text"),
        (b'{"format": "flowcase/1", "links": [], "flows": []', "is not JSON"),
        (b"format: flowcase/1\n", "is not JSON"),
    ],
)
def test_files_that_are_no_case(tmp_path, content, what):
    path = tmp_path / "case.json"
    path.write_bytes(content)
    done = dualplan("flow", path)
    assert (done.returncode, done.stdout) == (3, "")
    assert what in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_missing_file_and_directory(tmp_path):
    for path, what in ((tmp_path / "none.json", "no such file"), (tmp_path, "is a directory")):
        done = dualplan("flow", path)
        assert done.returncode == 3
        assert what in done.stderr


def test_no_file_is_a_usage_error():
    assert dualplan("flow").returncode == 2


def test_no_flows_is_an_answer(case):
    data = answer(case(flows=[], expected={}))
    assert (data["finish_s"], data["makespan_s"]) == ([], 0.0)
