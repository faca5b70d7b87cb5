"""Bad flow problems and bad files: each fault named with its place, all of a file at once."""

import json
import math

import pytest

from dualplan.errors import ConvergenceError, InputError
from dualplan.flow import layout
from dualplan.flow.flowcase import parse_flowcase
from dualplan.flow.fluid import run_fluid
from dualplan.flow.maxmin import settled, solve_rates
from dualplan.flow.network import lay_out
from dualplan.flow.problem import MOST_LINES, Flow, FlowProblem, Link, TrafficClass, check, priorities

GOOD = {
    "format": "flowcase/1",
    "links": [{"id": "a", "capacity": 100}, {"id": "b", "capacity": 50, "policy": "FATPIPE"}],
    "flows": [{"links": [["a", 1]], "size": 10, "start": 0}, {"links": [["a", 1], ["b", 2]], "size": 10, "start": 1}],
}


def changed(path, value):
    """A copy of GOOD with one value replaced; Ellipsis removes the key."""
    case = json.loads(json.dumps(GOOD))
    place = case
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(case)


def faults(text):
    with pytest.raises(InputError) as caught:
        parse_flowcase(text, "case.json")
    return list(caught.value.problems)


def test_the_good_case_is_good():
    case = parse_flowcase(json.dumps(GOOD), "case.json")
    assert case.problem.flows[1].route == (("a", 1.0), ("b", 2.0))
    assert case.problem.links[1] == Link(id="b", capacity=50.0, shared=False)
    assert case.expected_finish_s is None
    assert case.ignored == ()


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("format",), ..., 'format: is missing, "flowcase/1" is needed'),
        (("format",), "flowcase/2", 'format: is "flowcase/2", "flowcase/1" is needed'),
        (("links",), ..., "links: is missing"),
        (("links",), {}, "links: is an object, a list is needed"),
        (("links", 0), 5, "links[0]: is a number, an object is needed"),
        (("links", 0, "id"), ..., "links[0].id: is missing"),
        (("links", 0, "id"), 3, "links[0].id: is 3, a text is needed"),
        (("links", 0, "capacity"), ..., "links[0].capacity: is missing"),
        (("links", 0, "capacity"), "50GB/s", 'links[0].capacity: is "50GB/s", a number is needed (plain numbers in'),
        (("links", 0, "capacity"), True, "links[0].capacity: is true, a number is needed"),
        (("links", 0, "capacity"), -1, "links[0].capacity: -1 is negative"),
        (("links", 0, "capacity"), math.nan, "links[0].capacity: nan is not a finite number"),
        (("links", 0, "capacity"), math.inf, "links[0].capacity: inf is not a finite number"),
        (("links", 0, "capacity"), 10**400, "links[0].capacity: is too large for a number"),
        (("links", 0, "capacity"), 1e-40, "links[0].capacity: 1e-40 is outside of 1e-30 to 1e+30"),
        (
            ("links", 0, "policy"),
            "FATPIP",
            'links[0].policy: is "FATPIP", not SHARED or FATPIPE (did you mean FATPIPE?)',
        ),
        (("links", 0, "policy"), None, "links[0].policy: is null, not SHARED or FATPIPE"),
        (("links", 0, "capacty"), 1, "links[0].capacty: unknown key (did you mean capacity?)"),
        (("links", 0, "class_weights"), [], "links[0].class_weights: is a list, an object of classes and weights"),
        (("links", 0, "class_weights"), {"": 0}, "links[0].class_weights.: 0 is not positive"),
        (("links", 1, "class_weights"), {"": 1}, "links[1].class_weights: a cap-only link is not shared"),
        (("links", 0, "capacity_changes"), 5, "links[0].capacity_changes: is a number, a list of [time, capacity]"),
        (
            ("links", 0, "capacity_changes"),
            [[1]],
            "links[0].capacity_changes[0]: is a list, [time, capacity] is needed",
        ),
        (
            ("links", 0, "capacity_changes"),
            [[2, 1], [1, 1]],
            "links[0].capacity_changes[1][0]: time 1 does not come after",
        ),
        (("links", 0, "capacity_changes"), [[1, -2]], "links[0].capacity_changes[0][1]: -2 is negative"),
        (("flows",), ..., "flows: is missing"),
        (("flows", 0), [], "flows[0]: is a list, an object is needed"),
        (("flows", 0, "size"), ..., "flows[0].size: is missing"),
        (("flows", 0, "size"), -5, "flows[0].size: -5 is negative"),
        (("flows", 0, "size"), math.nan, "flows[0].size: nan is not a finite number"),
        (("flows", 0, "start"), ..., "flows[0].start: is missing"),
        (("flows", 0, "start"), -1, "flows[0].start: -1 is negative"),
        (("flows", 0, "weight"), 0, "flows[0].weight: 0 is not positive"),
        (("flows", 0, "weight"), 1e13, "flows[0].weight: 1e+13 is outside of 1e-12 to 1e+12"),
        (("flows", 0, "rate_cap"), 0, "flows[0].rate_cap: 0 is not positive"),
        (("flows", 0, "rate_cap"), math.inf, "flows[0].rate_cap: inf is not a finite number"),
        (("flows", 0, "prio"), -1, "flows[0].prio: -1 is not a priority"),
        (("flows", 0, "prio"), 0.5, "flows[0].prio: is 0.5, a whole number is needed"),
        (("flows", 0, "id"), 1, "flows[1].id: 1 is already the id of flows[0]"),
        (("flows", 0, "id"), [], "flows[0].id: is a list, a whole number or a text is needed"),
        (("flows", 0, "links"), ..., "flows[0].links: is missing"),
        (("flows", 0, "links"), "a", "flows[0].links: is a text, a list is needed"),
        (("flows", 0, "links"), [], "flows[0].links: crosses no link and has no rate cap"),
        (("flows", 0, "links"), ["a"], 'flows[0].links[0]: is "a", [link id, times] is needed'),
        (("flows", 0, "links"), [["a", 0]], "flows[0].links[0][1]: 0 is not positive"),
        (("flows", 0, "links"), [["a", -2]], "flows[0].links[0][1]: -2 is not positive"),
        (("flows", 0, "links"), [["a", math.inf]], "flows[0].links[0][1]: inf is not a finite number"),
        (("flows", 0, "links"), [["linkk", 1]], 'flows[0].links[0]: unknown link "linkk"'),
        (("flows", 0, "wieght"), 2, "flows[0].wieght: unknown key (did you mean weight?)"),
        (("flows", 0, "class"), 7, "flows[0].class: is 7, a text is needed"),
        (("classes",), [{}], "classes[0].id: is missing"),
        (("classes",), [{"id": "x", "after": 4}], "classes[0].after: is 4, a class or a list of classes is needed"),
        (("classes",), [{"id": "x", "after": "y"}], 'classes[0].after: unknown class "y"'),
        (("classes",), [{"id": "x", "after": "x"}], 'classes: come after one another in a cycle: "x" after "x"'),
        (("classes",), [{"id": "x"}, {"id": "x"}], 'classes[1].id: "x" is already the id of classes[0]'),
        (("expected",), 4, "expected: is a number, an object is needed"),
        (("expected",), {"finish": [1]}, "expected.finish: holds 1 times, one for each of the 2 flows is needed"),
        (("expected",), {"finish": [1, "2"]}, 'expected.finish[1]: is "2", a number is needed'),
        (("units",), {"capacity": "GB/s"}, 'units.capacity: is "GB/s", only B/s is read'),
        (("units",), "SI", "units: is a text, an object is needed"),
        (("name",), 3, "name: is 3, a text is needed"),
    ],
)
def test_one_fault_is_one_line(path, value, fault):
    (line,) = faults(changed(path, value))
    assert line.startswith(f"case.json: {fault}")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (
            ("links", 1, "id"),
            "a",
            [
                'links[1].id: "a" is already the id of links[0]',
                'flows[1].links[1]: unknown link "b"',
            ],
        ),
        (
            ("links", 0, "capacity"),
            0,
            [f'flows[{i}].links[0]: link "a" has no capacity (give it one, or take the flow off it)' for i in (0, 1)],
        ),
        (
            ("links", 0, "class_weights"),
            {"kv": 1},
            [f'flows[{i}].class: link "a" has no weight for class ""' for i in (0, 1)],
        ),
    ],
)
def test_faults_that_several_places_feel(path, value, expected):
    assert faults(changed(path, value)) == [f"case.json: {line}" for line in expected]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "case.json:1: is empty"),
        ("{\n  oops}", "case.json:2: is not JSON: Expecting property name enclosed in double quotes, column 3"),
        ("[]", "case.json: holds a list, an object with links and flows is needed"),
        ("[" * 200_000, "case.json: is nested too deeply"),
        ('{"name": "\\ud800"}', "case.json: holds half of a surrogate pair, which is no character"),
        ('{"format": ' + "1" * 5000 + "}", "case.json: holds a number that is too long"),
    ],
)
def test_text_that_is_no_case(text, line):
    assert faults(text) == [line]


def test_duplicate_keys_are_refused():
    assert faults(json.dumps(GOOD).replace('"size": 10', '"size": 10, "size": 20', 1)) == [
        "case.json: size: this key appears twice in one object"
    ]


def test_all_faults_of_a_file_come_at_once():
    case = json.loads(json.dumps(GOOD))
    case["links"][0]["capacity"] = "fast"
    case["flows"][0] |= {"size": -1, "weight": 0}
    case["flows"][1]["links"] = [["a", 1], ["c", 1]]
    assert [line.split(":")[1].strip() for line in faults(json.dumps(case))] == [
        "links[0].capacity",
        "flows[0].size",
        "flows[0].weight",
        "flows[1].links[1]",
    ]


def test_a_flood_of_faults_is_cut_off_and_counted():
    case = GOOD | {"flows": [{"links": [["a", 1]], "size": -1, "start": 0}] * 500}
    lines = faults(json.dumps(case))
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "case.json: 450 more problems like these"


def test_unknown_keys_of_other_tools_are_told_not_refused():
    case = GOOD | {"generator": "x", "flows": [GOOD["flows"][0] | {"colour": "red"}, GOOD["flows"][1] | {"colour": 1}]}
    assert parse_flowcase(json.dumps(case), "case.json").ignored == ("generator", "flows[].colour")


def test_null_is_no_cap_and_no_expectation():
    case = json.loads(changed(("flows", 0, "rate_cap"), None)) | {"expected": {"finish": [1, None]}}
    read = parse_flowcase(json.dumps(case), "case.json")
    assert read.problem.flows[0].rate_cap == math.inf
    assert read.expected_finish_s == (1.0, math.inf)


def test_strict_classes():
    classes = (
        TrafficClass(id="bulk", after=("kv", "collective")),
        TrafficClass(id="kv", after=("collective",)),
        TrafficClass(id="collective"),
    )
    links = (Link(id="a", capacity=1.0),)
    assert priorities(FlowProblem(links=(), flows=(), classes=classes)) == {"collective": 0, "kv": 1, "bulk": 2}
    both = Flow(id=0, route=(("a", 1.0),), size=1.0, priority=1, traffic_class="kv")
    with pytest.raises(InputError, match=r'flows\[0\]\.prio: class "kv" already gives the priority'):
        check(FlowProblem(links=links, flows=(both,), classes=classes))
    unknown = Flow(id=0, route=(("a", 1.0),), size=1.0, traffic_class="colective")
    with pytest.raises(InputError, match=r'unknown class "colective" \(did you mean collective\?\)'):
        check(FlowProblem(links=links, flows=(unknown,), classes=classes))
    cycle = (TrafficClass(id="x", after=("y",)), TrafficClass(id="y", after=("z",)), TrafficClass(id="z", after=("y",)))
    with pytest.raises(InputError, match='cycle: "y" after "z" after "y"'):
        check(FlowProblem(links=(), flows=(), classes=cycle))


def test_a_problem_is_checked_before_it_is_solved():
    problem = FlowProblem(links=(), flows=(Flow(id=0, route=(("a", 1.0),), size=1.0),))
    for solve in (solve_rates, run_fluid):
        with pytest.raises(InputError, match='unknown link "a"'):
            solve(problem)


def test_shares_that_do_not_settle_are_an_error():
    state = lay_out(FlowProblem(links=(Link(id="a", capacity=1.0),), flows=())).state
    settled(state)
    state.counters[layout.UNSETTLED] = 1
    with pytest.raises(ConvergenceError, match="did not settle"):
        settled(state)
