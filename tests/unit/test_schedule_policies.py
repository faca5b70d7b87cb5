"""Policies of placement against cases worked by hand."""

import numpy as np
import pytest

from dualplan.errors import InputError
from dualplan.serving import passes, pools, reads
from dualplan.serving import policies as registry
from dualplan.serving.cluster import cluster
from dualplan.serving.placement import (
    decode_by_threshold,
    in_turn,
    least_load,
    prefill_three_classes,
    shorter_queue,
    split_shares,
)
from dualplan.serving.policies import SETS, Policies, policies
from dualplan.serving.run import offline
from dualplan.spec.run import RunSpec
from tests.properties.test_serving_agreement import BUSY, PEOPLE, scenario

ROOM = np.full(4, 100.0)
POLICY_FUNCTIONS = {"prefill_three_classes", "least_load", "in_turn", "decode_by_threshold", "shorter_queue"}


def three(work, queue, *, marked=None, room=ROOM, need=1.0, alpha=3.0, beta=5.0):
    """Four engines on two nodes."""
    work = np.array(work, float)
    marked = work if marked is None else np.array(marked, float)
    return prefill_three_classes(work, marked, room, np.array(queue, float), 2, 0, 4, need, alpha, beta)


def test_engines_on_nodes_with_a_short_read_queue_come_first():
    # engine 0 has the least work, but its node waits 4 s > alpha; of engines 2 and 3 the latter has less
    assert three([0, 1, 3, 2], [4, 1]) == 3


def test_a_read_queue_of_just_alpha_is_short():
    # the paper prefers nodes whose read queue is at most alpha: engine 1 before the emptier 2, whose node waits longer
    assert three([3, 2, 0, 1], [3.0, 3.1], alpha=3.0) == 1


def test_without_a_short_read_queue_the_fewest_work_win():
    assert three([2, 1, 3, 4], [4, 9]) == 1


def test_engines_over_beta_get_nothing():
    assert three([5.1, 6, 4, 7], [0, 9]) == 2
    assert three([6, 6, 6, 6], [0, 0]) == -1


def test_an_engine_at_beta_still_gets_work():
    assert three([5.0, 6, 6, 6], [0, 0]) == 0


def test_literal_pseudo_code_classifies_by_the_marks():
    # all were below beta when the fetch began, so the second engine may take more than beta
    assert three([9, 7, 8, 9], [0, 0], marked=[0, 0, 0, 0]) == 1


def test_engines_without_room_are_left_out():
    assert three([0, 1, 2, 3], [0, 0], room=np.array([1.0, 1.0, 50.0, 50.0]), need=10.0) == 2


def test_least_load_and_round_robin():
    tokens = np.array([3.0, 1.0, 2.0])
    assert least_load(tokens, ROOM, 0, 3, 1.0) == 1
    assert [in_turn(turn, ROOM, 1, 4, 1.0) for turn in range(4)] == [1, 2, 3, 1]
    assert in_turn(0, np.array([0.0, 0.0, 5.0, 5.0]), 0, 4, 1.0) == 2
    assert in_turn(0, np.zeros(4), 0, 4, 1.0) == -1


def test_decode_threshold_prefers_few_sequences_within_z():
    # Z = 1.05 * (10 + 60) / 3 = 24.5: engines 0 (10+10) and 2 (12+10) stay within, engine 1 (38+10) does not
    tokens, sequences = np.array([10.0, 38.0, 12.0]), np.array([4.0, 1.0, 2.0])
    assert decode_by_threshold(tokens, sequences, ROOM, 60.0, 0, 3, 10.0, 1.0) == 2


def test_decode_threshold_leaves_five_per_cent_over_the_mean():
    # the mean with the request is (10 + 150) / 3 = 53.3, Z = 56: engine 0 comes to 55.5, the longer engine 1 to 53
    tokens, sequences = np.array([45.5, 43.0, 61.5]), np.array([1.0, 2.0, 3.0])
    assert decode_by_threshold(tokens, sequences, ROOM, 150.0, 0, 3, 10.0, 1.0) == 0


def test_decode_threshold_falls_back_to_fewest_tokens():
    # Z = 1.05 * (40 + 60) / 3 = 35: nobody has room within it
    tokens, sequences = np.array([20.0, 30.0, 10.0]), np.array([1.0, 1.0, 9.0])
    assert decode_by_threshold(tokens, sequences, ROOM, 60.0, 0, 3, 40.0, 1.0) == 2
    assert decode_by_threshold(tokens, sequences, np.zeros(3), 60.0, 0, 3, 40.0, 1.0) == -1


def test_read_side():
    assert shorter_queue(1.0, 2.0) == 0
    assert shorter_queue(2.0, 1.0) == 1


@pytest.mark.parametrize(
    ("prefill", "decode", "share"),
    # both idle: half each; the prefill NIC busy for 1 s of a 2 s read: 0.5 + 1.5 s = 2 * 0.75; too long: all on one
    [(0.0, 0.0, 0.5), (1.0, 0.0, 0.75), (5.0, 0.0, 1.0), (0.0, 5.0, 0.0)],
)
def test_split_read_ends_at_the_same_time(prefill, decode, share):
    assert split_shares(0.0, prefill, decode, 2.0, 2.0) == pytest.approx(share)


def test_sets_and_their_parts():
    assert policies("shortest-queue") == Policies() == SETS["shortest-queue"]
    mixed = policies("round-robin", decode="threshold")
    assert mixed == Policies(prefill="round-robin", decode="threshold", read_side="round-robin")


@pytest.mark.parametrize(
    ("part", "name", "runs"),
    [
        ("prefill", "three-class", "prefill_three_classes"),
        ("prefill", "paper-literal", "prefill_three_classes"),
        ("prefill", "least-tokens", "least_load"),
        ("prefill", "round-robin", "in_turn"),
        ("decode", "threshold", "decode_by_threshold"),
        ("decode", "least-tokens", "least_load"),
        ("decode", "round-robin", "in_turn"),
        ("read_side", "shorter-queue", "shorter_queue"),
        ("read_side", "round-robin", None),
        ("read_side", "prefill-only", None),
    ],
)
def test_a_name_runs_the_policy_of_that_name(part, name, runs, monkeypatch):
    module = {"prefill": passes, "decode": pools, "read_side": reads}[part]
    called, marks = set(), set()
    for function in POLICY_FUNCTIONS & set(vars(module)):

        def noted(*values, function=function, real=getattr(module, function)):
            called.add(function)
            if function == "prefill_three_classes":
                marks.add(values[1] is values[0])
            return real(*values)

        monkeypatch.setattr(module, function, noted)
    laid = cluster(
        scenario(), PEOPLE, mode="dual-path", times=BUSY, policies=policies("shortest-queue", **{part: name})
    )
    found = offline(laid, PEOPLE, RunSpec(agents=12, compiled=False))
    assert called == ({runs} if runs else set())
    # classified by the load itself, or by what it was when the fetch began
    if part == "prefill":
        assert marks == {"three-class": {True}, "paper-literal": {False}}.get(name, set())
    if part == "read_side":
        assert (found.decode_read_share == 0) == (name == "prefill-only")


@pytest.mark.parametrize("kind", ["PREFILL", "DECODE", "READ_SIDE"])
def test_every_policy_of_the_registry_is_looked_at(kind):
    marks = test_a_name_runs_the_policy_of_that_name.pytestmark
    looked_at = {name for part, name, _ in marks[0].args[1] if part == kind.lower()}
    assert looked_at == set(getattr(registry, kind))


def test_unknown_policies_are_all_named_with_a_hint():
    with pytest.raises(InputError) as caught:
        policies("round-robbin", prefill="three-clas", read_side="x")
    text = str(caught.value)
    assert "did you mean round-robin?" in text
    assert "did you mean three-class?" in text
    assert "--read-side" in text and len(caught.value.problems) == 3
