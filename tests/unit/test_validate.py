"""Published figures: the data is whole and sourced, comparisons and summaries are right, runs that must agree do."""

import json
import math
from collections import Counter
from fractions import Fraction
from importlib.resources import files

import msgspec
import pytest
import yaml

from dualplan.plan.published import recompute, records
from dualplan.plan.published.points import kinds, points
from dualplan.plan.published.records import Goals, Kind, Point
from dualplan.plan.published.validate import SMALL, chosen, compare, summarise, validate
from dualplan.spec.load import shipped_dir

POINTS = points()
BY_ID = {point.id: point for point in POINTS}
DATA = files("dualplan.data")


def figure(**values):
    keys = {
        "id": "x",
        "kind": "test",
        "published": 2.0,
        "unit": "1",
        "source": "here",
        "given": records.NodeCount(input_tokens=86400.0, output_tokens=86400.0, input_rate=1.0, output_rate=1.0),
    }
    return Point(**keys | values)


# ---------------------------------------------------------------- data


def test_every_figure_of_the_paper_is_a_point():
    """Counted from the data files by another way: no line of them is lost."""
    runs = yaml.safe_load((DATA / "calibration-published.yaml").read_text())
    table = json.loads((DATA / "cache_compute_ratio.json").read_text())
    count = Counter(point.kind for point in POINTS)
    assert count["jct"] == sum(len(entry["jct_s"]) for entry in runs["offline"]) == 65
    assert count["speed-up"] == sum("basic" in entry["jct_s"] for entry in runs["offline"]) == 20
    assert count["ttft"] + count["ttft-near-capacity"] == len(runs["online"])
    assert count["tpot"] + count["tpot-near-capacity"] == sum("tpot_s" in entry for entry in runs["online"])
    assert count["second-token"] == sum("ttst_s" in entry for entry in runs["online"])
    assert count["capacity"] == len(runs["capacity"])
    assert count["ratio"] + count["ratio-mla"] == len(table["rows"])
    assert count["scale"] == 1
    listed = yaml.safe_load((DATA / "published.yaml").read_text())["points"]
    for kind, entries in listed.items():
        expected = len(entries) + sum(
            len(trace["figures"]) for trace in yaml.safe_load((DATA / "published.yaml").read_text())["traces"]
        ) * (kind == "trace")
        assert count[kind] == expected, kind


def test_every_figure_has_its_own_name_a_source_and_a_kind():
    assert len(BY_ID) == len(POINTS)
    table = kinds()
    for point in POINTS:
        assert point.kind in table
        assert len(point.source) > 8 and not point.source.startswith("paper")
        assert math.isfinite(point.published) and point.published > 0
    for name, kind in table.items():
        assert kind.why, name
        assert kind.tolerance is None or kind.absolute is None


def test_every_record_has_a_function():
    given = {type(point.given) for point in POINTS}
    assert given == {*recompute.FUNCTIONS, records.TraceFigure}


def test_trace_figures_are_those_of_the_workloads():
    conversation = BY_ID["mooncake-conversation-hit-rate-by-token"]
    workload = yaml.safe_load((shipped_dir("workloads") / "mooncake-conversation.yaml").read_text())
    assert {"name": "hit_rate_by_token", "value": conversation.published, "source": "trace"} in workload["published"]
    assert conversation.source == "infinite cache over the whole trace, in time order"


def test_near_capacity_is_above_four_fifths_of_the_published_one():
    near = {point.id for point in POINTS if point.kind == "ttft-near-capacity"}
    # capacities: basic 0.2, dual-path 0.45, oracle 0.5 agents/s; 8.8 on 44P88D is 0.4 on 2P4D
    assert near == {
        "ttft-deepseek-v3.2-2p4d-64k-0.2-basic",
        "ttft-deepseek-v3.2-2p4d-64k-0.4-dual-path",
        "ttft-deepseek-v3.2-2p4d-64k-0.4-dual-path-table",
        "ttft-deepseek-v3.2-2p4d-64k-0.45-dual-path",
        "ttft-deepseek-v3.2-2p4d-64k-0.45-oracle",
        "ttft-deepseek-v3.2-44p88d-64k-8.8-dual-path",
    }


def test_fractions_are_read_exactly():
    assert BY_ID["range-80-percent-hit-upper"].published == float(Fraction(13, 7))
    assert BY_ID["lane-2-beside-all"].published == float(Fraction(1, 2410))


def test_small_points_leave_out_the_large_runs():
    small = {point.id for point in chosen()}
    assert "jct-deepseek-v3.2-48p96d-48k-49152-dual-path" not in small
    assert "jct-deepseek-v3.2-2p4d-64k-1024-basic" in small
    assert all(BY_ID[identity].effort <= SMALL for identity in small)
    assert {point.id for point in chosen(full=True)} == set(BY_ID)
    assert {point.kind for point in chosen(only=["nodes", "lanes"])} == {"nodes", "lanes"}


# ---------------------------------------------------------------- comparison


def test_relative_and_absolute_tolerances():
    # one node for input and one for output: 2 predicted
    relative = Kind(title="t", why="w", tolerance=0.1)
    found = compare(figure(published=1.9), relative)
    assert found.predicted == 2
    assert found.relative_error == pytest.approx(0.1 / 1.9)
    assert found.within is True
    assert compare(figure(published=1.8), relative).within is False
    absolute = Kind(title="t", why="w", absolute=0.1)
    found = compare(figure(published=1.9), absolute)
    assert (found.within, found.error) == (True, pytest.approx(0.1))
    assert compare(figure(published=1.85), absolute).within is False
    assert compare(figure(published=9.0), Kind(title="t", why="w")).within is None


def test_a_figure_without_a_value_is_outside():
    given = records.RangeBound(which="paper", bound="lower", set=("hardware.snic.count=4",))
    found = compare(figure(given=given, published=1.0), Kind(title="t", why="w", tolerance=0.1))
    assert (found.predicted, found.within, found.skipped) == (None, False, "the model gives no value")


def test_summary_statistics():
    kind = Kind(title="t", why="w", tolerance=0.3, goals=Goals(median=0.1, p90=0.2, worst=1.0))
    published_values = [2.0, 1.6, 1.0, 2.5, 2.0 / 1.5]  # errors 0, 0.25, 1, -0.2, 0.5
    found = [compare(figure(id=str(value), published=value), kind) for value in published_values]
    (summary,) = summarise(found, {"test": kind})
    assert summary.median == pytest.approx(0.25)
    assert summary.p90 == pytest.approx(0.5 + 0.6 * 0.5)  # place 3.6 of 0..4
    assert summary.worst == pytest.approx(1.0)
    assert summary.worst_id == "1.0"
    assert (summary.count, summary.judged, summary.within) == (5, 5, 3)
    assert [(goal.statistic, goal.met) for goal in summary.goals] == [
        ("median", False),
        ("p90", False),
        ("worst", True),
    ]


def test_traces_are_skipped_with_a_reason():
    answer = validate(only=["trace"])
    assert all(one.predicted is None and "--samples DIR" in one.skipped for one in answer.comparisons)
    answer = validate(only=["trace"], samples=lambda name: None)
    assert all("is not in the folder" in one.skipped for one in answer.comparisons)
    assert not answer.outside and answer.summaries[0].count == 0


def test_samples_of_mooncake(shared_cases):
    answer = validate(only=["trace"], samples=lambda name: next((shared_cases / "traces").rglob(name), None))
    done = [one for one in answer.comparisons if one.predicted is not None]
    assert len(done) == 5
    assert all(abs(one.relative_error) < 1e-5 for one in done)


def test_an_unreadable_trace_is_skipped(tmp_path):
    path = tmp_path / "conversation_trace.jsonl"
    path.write_text("not a trace\n")
    answer = validate(only=["trace"], samples=lambda name: path if name == path.name else None)
    assert any("cannot be read" in one.skipped for one in answer.comparisons)


def test_interruption_keeps_what_is_done():
    def stop(done, of):
        if done == 3:
            raise KeyboardInterrupt

    answer = validate(only=["lanes"], progress=stop)
    assert answer.interrupted and len(answer.comparisons) == 3


# ---------------------------------------------------------------- the model


EXACT = ("range", "traffic", "kv-bytes", "parameters", "ratio", "ratio-mla", "hardware-trend", "lanes", "collectives")


@pytest.mark.parametrize("kind", [*EXACT, "copies", "memory", "nodes", "trajectories", "working-set"])
def test_the_model_keeps_the_tolerance_of(kind):
    answer = validate(only=[kind])
    assert answer.comparisons and answer.outside == ()


def test_a_speed_up_is_the_ratio_of_the_two_completion_times():
    given = BY_ID["speed-up-ds-27b-1p1d-32k-512"].given
    base = msgspec.structs.replace(given, over=None)
    basic = msgspec.structs.replace(base, mode="basic")
    times = [recompute.recompute(one) for one in (basic, base)]
    assert recompute.recompute(given) == times[0] / times[1] > 1
    assert times[1] == recompute.recompute(BY_ID["jct-ds-27b-1p1d-32k-512-dual-path"].given)
