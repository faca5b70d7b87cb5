"""Movements with their loads, against the loads of the resources and the worked example of the step table."""

import msgspec
import pytest

import dualplan
from dualplan.model.traffic import Bytes
from dualplan.plan.movements import movements, path_turns_per_s
from tests.cli.runner import PAPER


@pytest.fixture(scope="module")
def answer():
    return dualplan.evaluate(dualplan.load(PAPER))


@pytest.mark.parametrize(
    "sets",
    [
        [],
        ["mode=basic"],
        ["mode=split-read"],
        ["mode=dram-pool"],
        ["staging=gds"],
        ["staging=gpudirect", "persist=prefill"],
        ["copy=engine"],
        ["hardware=aws-p5", "prefill_nodes=4", "decode_nodes=8"],
    ],
)
def test_movements_of_both_paths_add_up_to_the_load_of_every_link(sets):
    found = dualplan.evaluate(dualplan.load(PAPER, sets))
    total = {}
    for moves in movements(found).values():
        for move in moves:
            for name in move.charges:
                total[name] = total.get(name, 0.0) + move.load
    links = {
        load.name: load.load
        for load in found.loads
        if load.unit == "B/s" and load.name not in ("pcie_uplink", "numa_link", "copy_submission", "storage_backend")
    }
    assert links
    for name, load in links.items():
        assert total[name] == pytest.approx(load, rel=1e-9), name


def test_worked_example(answer):
    """H = 1.5 GB, m = 0.03 GB, n = 0.01 GB; 20 turns/s read on the prefill side, 40 on the decode side."""
    gigabyte = 1e9
    sizes = Bytes(
        hit=1.5 * gigabyte,
        read=1.5 * gigabyte,
        loaded=1.5 * gigabyte,
        miss=0.03 * gigabyte,
        append=0.03 * gigabyte,
        generated=0.01 * gigabyte,
    )
    example = msgspec.structs.replace(
        answer,
        turns_per_s=60.0,
        decode_read_share=2 / 3,
        demand=msgspec.structs.replace(answer.demand, amounts=sizes),
    )
    assert path_turns_per_s(example, "prefill") == pytest.approx(20)
    assert path_turns_per_s(example, "decode") == pytest.approx(40)
    load = {
        (path, move.source, move.target): move.load / gigabyte
        for path, moves in movements(example).items()
        for move in moves
    }
    assert load["prefill", "storage", "prefill_snic"] == pytest.approx(30)  # 15 a node, two nodes
    assert load["decode", "storage", "decode_snic"] == pytest.approx(60)  # 15 a node, four nodes
    assert load["prefill", "prefill_cnic", "decode_cnic"] == pytest.approx(20 * 1.53)
    assert load["decode", "decode_cnic", "prefill_cnic"] == pytest.approx(40 * 1.5)
    assert load["decode", "prefill_cnic", "decode_cnic"] == pytest.approx(40 * 0.03)
    wire_in = load["prefill", "prefill_cnic", "decode_cnic"] + load["decode", "prefill_cnic", "decode_cnic"]
    assert wire_in / 32 == pytest.approx(0.99375)  # a decode NIC, as in the worked example
    written = [load[path, "decode_snic", "storage"] for path in ("prefill", "decode")]
    assert sum(written) / 4 == pytest.approx(0.6)  # egress of a decode node
    # step 3 feeds the prefill side, step 6 the decode GPU
    assert load["decode", "decode_host", "decode_cnic"] == pytest.approx(40 * (1.5 + 1.53))


def test_storage_is_reached_through_the_storage_nic(answer):
    for moves in movements(answer).values():
        ends = {(move.source, move.target) for move in moves}
        assert all("snic" in (source + target) for source, target in ends if "storage" in (source, target))


def test_the_fullest_resource_of_a_movement_is_named(answer):
    loads = {load.name: load.utilization for load in answer.loads}
    for moves in movements(answer).values():
        for move in moves:
            known = [loads[name] for name in move.charges if name in loads]
            assert move.tightest is not None
            assert move.tightest.utilization == max(known)
