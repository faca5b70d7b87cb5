"""Points of a sweep in parts: which share an evaluation, where they run, and that a lost process loses nothing."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from dualplan.errors import InputError
from dualplan.plan.sweep.points import Block, Made, failed, made, parts_of, point_hashes, points_of
from dualplan.plan.sweep.table import Table, choose, key_columns
from dualplan.plan.sweep.workers import here, on_processes
from dualplan.spec.scenario import read_scenario, resolve
from dualplan.spec.vary import parse_axis

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
SCENARIO = resolve(read_scenario(PAPER), base=PAPER.parent)


def points(*texts):
    return points_of(SCENARIO, [parse_axis(text) for text in texts])


def table_of(found, blocks):
    table = Table(found, key_columns(found))
    for block in blocks:
        table.put(block)
    return table


def test_points_that_share_all_but_nodes_and_storage_nics_are_one_part():
    found = points("prefill=1..3", "mode=basic,oracle", "hardware.snic.count=1,2", "decode=1..5")
    parts = parts_of(found, None, np.arange(found.count))
    assert found.count == 60 and len(parts) == 2
    assert sorted(np.concatenate([part.positions for part in parts]).tolist()) == list(range(60))
    for part in parts:
        assert len({dict(pairs)["mode"] for pairs in part.pairs}) == 1 and len(part.pairs) == 2


def test_order_of_points_is_that_of_nested_loops():
    found = points("prefill=2,3", "mode=basic,oracle", "decode=4,5")
    columns = key_columns(found)
    rows = list(zip(columns["prefill_nodes"], columns["mode"], columns["decode_nodes"], strict=True))
    assert rows[:5] == [(2, "basic", 4), (2, "basic", 5), (2, "oracle", 4), (2, "oracle", 5), (3, "basic", 4)]


class Deadly:
    """A source that ends the process that asks for one of its points, the first time."""

    def __init__(self, source: Made, flag: Path, times: int) -> None:
        self.source, self.flag, self.times, self.home = source, flag, times, os.getpid()

    def __call__(self, pairs):
        if dict(pairs)["seed"] == "3" and os.getpid() != self.home:
            killed = self.flag.read_text() if self.flag.exists() else ""
            if len(killed) < self.times:
                self.flag.write_text(killed + "x")
                os.kill(os.getpid(), signal.SIGKILL)
        return self.source(pairs)


@pytest.mark.parametrize("times", [1, 9])
def test_a_lost_process_is_made_up_for(tmp_path, times):
    found = points("seed=1..6")
    source = made(found, (), lambda pairs: SCENARIO)
    parts = parts_of(found, None, np.arange(found.count))
    expected = table_of(found, here(source, None, parts))
    met = table_of(found, on_processes(Deadly(source, tmp_path / "killed", times), None, parts, 2))
    assert met.done.all()
    rates = met.columns["throughput.turns_per_s"]
    if times == 1:
        assert (rates == expected.columns["throughput.turns_per_s"]).all()
        assert met.columns["error"].tolist() == [None] * 6
    else:
        # a point that ends every process that tries it fails by name; the others may share its fate in the last round
        assert met.columns["error"][2] is not None and met.columns["error"][0] is None


def test_hashes_tell_points_apart_and_know_the_same_point_again():
    one, two = points("prefill=1,2", "hardware.snic.count=1,2"), points("hardware.snic.count=2,4", "prefill=2,3")
    hashes = [point_hashes(found, made(found, (), lambda pairs: SCENARIO), None) for found in (one, two)]
    assert len(set(hashes[0])) == len(set(hashes[1])) == 4
    assert set(hashes[0]) & set(hashes[1]) == {hashes[0][3]} == {hashes[1][0]}


def test_a_table_says_which_points_failed_and_which_are_feasible():
    found = points("prefill=1..4")
    table = Table(found, key_columns(found))
    assert not table.failed.any() and not table.feasible.any() and table.errors() == []
    table.put(Block(positions=np.array([1, 3]), columns={"feasible": [True, False], "error": [None, None]}))
    table.put(failed(np.array([0]), InputError("here", "no")))
    assert table.failed.tolist() == [True, False, False, False] and table.errors() == ["here: no"]
    assert table.answered.tolist() == [False, True, False, True]
    assert table.feasible.tolist() == [False, True, False, False]


def test_choices_prefer_feasible_points():
    found = points("prefill=1..4")
    source = made(found, (), lambda pairs: SCENARIO)
    table = table_of(found, here(source, None, parts_of(found, None, np.arange(4))))
    assert not table.columns["feasible"][0]
    order, words = choose(table, "-gpus", None, None)
    assert order.tolist() == [1] and words == "Least gpus"
    assert choose(table, None, None, 2)[0].tolist() == [0, 1]
    table.columns["feasible"][:] = False
    assert choose(table, "-gpus", None, None)[1] == "Least gpus, of points that are not feasible"
