"""The step table against loads worked out by hand from DualPath's figures 4a and 4b."""

from fractions import Fraction

import pytest

from dualplan.model.traffic import Bytes, copied_bytes, hits_only, loads, path_loads, steps

H, M, N = Fraction("1.5"), Fraction("0.03"), Fraction("0.01")  # GB
TURN = Bytes(hit=H, read=H, loaded=H, miss=M, append=M, generated=N)


def totals(prefill_turns, decode_turns, **options):
    """GB/s on each resource at these rates, both paths together."""
    by_path = path_loads(steps("dual-path", **options), TURN)
    return {name: prefill_turns * p + decode_turns * d for name, (p, d) in by_path.items()}


def test_worked_example_2p4d():
    # P=2, D=4, g=8; 20 turns/s read on the prefill side and 40 on the decode side, persisted by the decode side
    total = totals(20, 40)
    per_nic = {
        "prefill_cnic_read": "3.8625",
        "prefill_cnic_write": "5.625",
        "prefill_wire_egress": "1.9875",
        "prefill_wire_ingress": "3.75",
        "decode_cnic_read": "4.7625",
        "decode_cnic_write": "3.88125",
        "decode_wire_egress": "1.875",
        "decode_wire_ingress": "0.99375",
    }
    for name, value in per_nic.items():
        assert total[name] / ((2 if name.startswith("prefill") else 4) * 8) == Fraction(value), name
    per_node = {
        "prefill_snic_ingress": 15,
        "decode_snic_ingress": 15,
        "prefill_dram": 30,
        "decode_dram": "61.65",
        "decode_snic_egress": "0.6",
    }
    for name, value in per_node.items():
        assert total[name] / (2 if name.startswith("prefill") else 4) == Fraction(value), name
    assert "prefill_snic_egress" not in total


def test_persisting_on_the_prefill_side_moves_the_miss_bytes_there():
    decode, prefill = totals(20, 40), totals(20, 40, persist="prefill")
    miss = 60 * M
    change = {name: prefill.get(name, 0) - decode.get(name, 0) for name in {*prefill, *decode} if "pcie" not in name}
    assert {name: delta for name, delta in change.items() if delta} == {
        "decode_dram": -miss,
        "decode_snic_egress": -miss,
        "prefill_cnic_read": miss,
        "prefill_cnic_write": miss,
        "prefill_dram": 2 * miss,
        "prefill_snic_egress": miss,
    }


def test_gpudirect_removes_the_pass_through_decode_memory():
    by_path = path_loads(steps("dual-path", staging="gpudirect"), hits_only(1))
    assert by_path["decode_cnic_write"] == (1, 1)  # prefill-read: straight into HBM; decode-read: the copy of H
    assert by_path["decode_cnic_read"] == (0, 2)  # towards the prefill node, and the copy
    assert by_path["decode_dram"] == (0, 3)
    assert by_path["prefill_cnic_write"] == (1, 1)
    # persisting a miss that never was in host memory: NIC read and write, DRAM write, then DRAM read and egress
    miss = loads(steps("dual-path", staging="gpudirect")["prefill"], Bytes(hit=0, read=0, loaded=0, miss=1, append=1))
    assert (miss["decode_cnic_read"], miss["decode_cnic_write"], miss["decode_dram"], miss["decode_snic_egress"]) == (
        1,
        2,
        2,
        1,
    )


def test_gpudirect_storage_reads_past_host_memory():
    by_path = path_loads(steps("dual-path", staging="gds"), hits_only(1))
    assert by_path["prefill_snic_ingress"] == (1, 0)
    assert by_path["decode_snic_ingress"] == (0, 1)
    assert by_path.get("prefill_dram", (0, 0)) == (0, 0)
    assert by_path["decode_dram"] == (0, 0)
    assert by_path["prefill_cnic_write"] == (0, 1)
    assert by_path["decode_cnic_read"] == (0, 1)


def test_copy_engine_takes_host_gpu_copies_off_the_nic():
    nic, engine = (path_loads(steps("dual-path", copy=copy), hits_only(1)) for copy in ("cnic", "engine"))
    # prefill-read: steps 3-4 and 8-9 are copies; decode-read: 6-7 (3-5 cross the network and stay)
    assert nic["prefill_cnic_read"] == (2, 0) and engine["prefill_cnic_read"] == (1, 0)
    assert nic["prefill_cnic_write"] == (1, 1) and engine["prefill_cnic_write"] == (0, 1)
    assert nic["decode_cnic_read"] == (1, 2) and engine["decode_cnic_read"] == (0, 1)
    assert nic["decode_cnic_write"] == (2, 1) and engine["decode_cnic_write"] == (1, 0)
    assert nic["decode_dram"] == engine["decode_dram"] == (2, 3)


@pytest.mark.parametrize("copy", ["cnic", "engine"])
def test_copied_bytes(copy):
    table = steps("dual-path", copy=copy)
    assert copied_bytes(table["prefill"], TURN, "prefill") == H
    assert copied_bytes(table["prefill"], TURN, "decode") == H + M + N
    assert copied_bytes(table["decode"], TURN, "prefill") == 0
    assert copied_bytes(table["decode"], TURN, "decode") == H + M + N


def test_modes():
    assert set(steps("basic")) == set(steps("layerwise")) == {"prefill"}
    assert steps("split-read") == steps("dual-path")
    oracle = loads(steps("oracle")["prefill"], TURN)
    assert not any(oracle.values())
    assert (
        loads(steps("oracle")["prefill"], Bytes(hit=1, read=1, loaded=1, prefill_collective=2))["prefill_cnic_read"]
        == 2
    )


def test_residency_drops_the_read_and_the_move_to_the_decode_gpu():
    kept = Bytes(hit=1, read=Fraction(3, 4), loaded=Fraction(3, 4))
    by_path = path_loads(steps("dual-path"), kept)
    assert by_path["prefill_snic_ingress"] == (Fraction(3, 4), 0)
    assert by_path["decode_cnic_write"] == (Fraction(3, 2), Fraction(3, 4))
    assert by_path["prefill_wire_ingress"] == (0, 1)  # the prefill GPU still needs all of it


def test_storage_over_the_compute_nics_charges_their_wire():
    by_path = path_loads(steps("dual-path"), hits_only(1), shares_cnic=(True, True))
    assert by_path["prefill_wire_ingress"] == (1, 1)
    assert by_path["decode_wire_ingress"] == (1, 1)
    assert by_path["prefill_cnic_write"] == (2, 1)


# a digit for each quantity: a sum says what it is made of
DIGITS = Bytes(
    hit=1,
    read=10,
    loaded=100,
    pooled=1000,
    miss=10**4,
    append=10**5,
    generated=10**6,
    prefill_collective=10**7,
    decode_collective=10**8,
)


def test_a_pool_is_read_over_the_wire_between_prefill_nodes():
    total = loads(steps("dram-pool")["prefill"], DIGITS)
    # from the memory of a node into that of another, which the store's part enters too, and on to the GPU
    assert total["prefill_dram"] == 2011
    # the pool, KV to the decode side, collectives; in come the pool and the collectives
    assert total["prefill_wire_egress"] == 1000 + 10_100 + 10**7
    assert total["prefill_wire_ingress"] == 1000 + 10**7
    assert total["decode_wire_egress"] == 10**8
    assert total["decode_wire_ingress"] == 10_100 + 10**8
    # what is new to the store: the append, not the recomputed tail, and the answer
    assert total["decode_snic_egress"] == 1_100_000


def test_gpudirect_brings_each_byte_to_the_decode_gpu_once():
    total = loads(steps("dual-path", staging="gpudirect")["decode"], DIGITS)
    # to the prefill node, to the GPU beside, and from the GPU what is persisted; collectives
    assert total["decode_cnic_read"] == 1 + 100 + 1_100_000 + 10**8
    # the miss straight into HBM, the prefix from memory beside it
    assert total["decode_cnic_write"] == 10_000 + 100 + 1_100_000 + 10**8
    # in from the store, out to both GPUs, in from the GPU and out to the store what is persisted
    assert total["decode_dram"] == 10 + 1 + 100 + 2 * 1_100_000


def test_writes_to_storage_over_the_compute_nics_are_read_by_them_and_leave_on_their_wire():
    plain, shared = (
        loads(steps("layerwise")["prefill"], DIGITS, shares_cnic=(False, shares)) for shares in (False, True)
    )
    more = {name: amount - plain.get(name, 0) for name, amount in shared.items() if amount != plain.get(name, 0)}
    assert more == {"decode_cnic_read": 1_100_000, "decode_wire_egress": 1_100_000}
