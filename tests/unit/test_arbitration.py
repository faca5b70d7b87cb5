"""Shares of lanes: published values, the reference cases, hand derivations, ETS and strict classes."""

import json
from fractions import Fraction

import pytest

from dualplan.errors import InputError
from dualplan.flow.arbitration import exact_shares, guaranteed, kv_share_available, shares
from dualplan.spec.qos import ClassTable, LaneTables, TrafficClass, read_qos

PUBLISHED = LaneTables(
    high=((0, 192), (1, 192), (2, 0), (3, 192)),
    low=((0, 192), (1, 192), (2, 64), (3, 192)),
    high_limit=240,
    operational_lanes=4,
)


# ---------------------------------------------------------------- InfiniBand


def test_reference_cases(shared_cases):
    cases = json.loads((shared_cases / "qos" / "vl_cases.json").read_text())
    assert len(cases) >= 136
    for case in cases:
        setting = read_qos(shared_cases / "qos" / case["file"], case["port_class"]).setting
        found = shares(setting, backlogged=case["backlogged"], mtu=case["mtu"])
        expected = {int(lane): share for lane, share in case["share"].items()}
        assert found == pytest.approx(expected, rel=1e-12, abs=0), (case["file"], case["mtu"], case["backlogged"])


@pytest.mark.parametrize(
    ("busy", "share"),
    [
        ([0, 2], Fraction(1, 964)),  # 240 + 1 packets, the low one is lane 0's 3 times of 4
        ([0, 1, 2, 3], Fraction(1, 2410)),  # 9 packets of the others beside 1 in a round of the low table
        ([2], Fraction(1)),
    ],
)
def test_published_shares_of_the_kv_lane(busy, share):
    assert exact_shares(PUBLISHED, backlogged=busy)[2] == share


def test_kv_alone_in_the_low_table():
    """The 0.415 % that the configuration would give if 2:64 were all of its low table."""
    alone = LaneTables(high=PUBLISHED.high, low=((2, 64),), high_limit=240)
    assert guaranteed(alone, 2) == Fraction(1, 241)
    assert float(guaranteed(alone, 2)) == pytest.approx(0.00415, abs=5e-6)


def test_high_priority_load_leaves_the_rest():
    assert shares(PUBLISHED, backlogged=[2], loads={0: 0.8}) == {0: 0.8, 2: 0.2}
    assert kv_share_available(PUBLISHED, 2, [0, 1, 3], 0.8) == pytest.approx(0.2)
    assert kv_share_available(PUBLISHED, 2, [0, 1, 3], 1.0) == pytest.approx(1 / 2410)
    assert kv_share_available(PUBLISHED, 2, [0], 1.0) == pytest.approx(1 / 964)
    assert kv_share_available(PUBLISHED, 5, [0], 0.1) == 0


def test_a_light_lane_leaves_its_turns_to_the_others():
    """High table alone, three equal lanes: 0 asks for 1/10, the others share 9/10."""
    tables = LaneTables(high=((0, 64), (1, 64), (2, 64)), low=(), high_limit=3)
    found = exact_shares(tables, backlogged=[1, 2], loads={0: 0.1})
    assert found == {0: Fraction(1, 10), 1: Fraction(9, 20), 2: Fraction(9, 20)}
    # asking for more than its third is asking without bound
    assert exact_shares(tables, backlogged=[1, 2], loads={0: 0.9}) == dict.fromkeys(range(3), Fraction(1, 3))


def test_a_light_low_lane_leaves_the_low_fraction_to_its_neighbour():
    """Limit 4: the low table gets 1 packet of 5. Lane 1 asks for 5 %, lane 2 gets the other 15 %."""
    tables = LaneTables(high=((0, 64),), low=((1, 64), (2, 64)), high_limit=4)
    assert exact_shares(tables, backlogged=[0, 2], loads={1: 0.05}) == {
        0: Fraction(4, 5),
        1: Fraction(1, 20),
        2: Fraction(3, 20),
    }
    # and what the low table does not use goes up
    assert exact_shares(tables, backlogged=[0], loads={1: 0.05})[0] == Fraction(19, 20)


def test_limits_without_and_of_one_packet():
    tables = LaneTables(high=((0, 64),), low=((1, 64),), high_limit=255)
    assert exact_shares(tables, backlogged=[0, 1]) == {0: 1, 1: 0}
    assert exact_shares(tables, backlogged=[1], loads={0: 0.3}) == {0: Fraction(3, 10), 1: Fraction(7, 10)}
    one = LaneTables(high=((0, 64),), low=((1, 64),), high_limit=0)
    assert exact_shares(one, backlogged=[0, 1]) == {0: Fraction(1, 2), 1: Fraction(1, 2)}


def test_weights_count_whole_packets():
    """ceil(64 * 80 / 4096) = 2 packets against 1; at 1024 B it is 5 against 4."""
    tables = LaneTables(high=((0, 80), (1, 64)), low=(), high_limit=0)
    assert exact_shares(tables, backlogged=[0, 1])[0] == Fraction(2, 3)
    assert exact_shares(tables, backlogged=[0, 1], mtu=1024)[0] == Fraction(5, 9)


def test_unequal_packets_by_hand():
    """Limit 1 = 4096 B. The high round is 4096, 1024 x 4. Bursts from its start: 4096, then 4 x 1024, again and again,
    so 4096 B of the high table go for each 2048 B packet of lane 2: 2/3 of the link, shared 1:1.
    """
    tables = LaneTables(high=((0, 64), (1, 64)), low=((2, 64),), high_limit=1)
    found = exact_shares(tables, backlogged=[0, 1, 2], packet_bytes={0: 4096, 1: 1024, 2: 2048})
    assert found == {0: Fraction(1, 3), 1: Fraction(1, 3), 2: Fraction(1, 3)}


def test_bursts_overshoot_by_less_than_a_packet():
    """Limit 1 and packets of 3000 B: two of them, 6000 B, for each packet of the low table."""
    tables = LaneTables(high=((0, 64),), low=((1, 64),), high_limit=1)
    assert exact_shares(tables, backlogged=[0, 1], mtu=3000)[1] == Fraction(1, 3)


def test_lanes_without_weight_get_nothing():
    assert exact_shares(PUBLISHED, backlogged=[0, 9]) == {0: 1, 9: 0}
    assert exact_shares(PUBLISHED, backlogged=[0], loads={9: 0.5}) == {0: 1, 9: 0}
    assert exact_shares(PUBLISHED) == {}


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"backlogged": [15]}, "VL15 does not exist"),
        ({"backlogged": [-1]}, "VL-1 does not exist"),
        ({"loads": {0: 1.5}}, "1.5 on VL0 is not in 0 .. 1"),
        ({"loads": {0: -0.1}}, "not in 0 .. 1"),
        ({"loads": {0: float("nan")}}, "not in 0 .. 1"),
        ({"backlogged": [0], "loads": {0: 0.5}}, "VL0 is backlogged and has a load"),
        ({"backlogged": [0], "mtu": 0}, "0 bytes on VL0"),
        ({"backlogged": [0], "packet_bytes": {0: -4}}, "-4 bytes on VL0"),
    ],
)
def test_impossible_questions(arguments, what):
    with pytest.raises(InputError, match=what):
        shares(PUBLISHED, **arguments)


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("high", ((16, 4),), "lane 16 is not in 0 .. 3"),
        ("low", ((4, 4),), "lane 4 is not in 0 .. 3"),
        ("low", ((0, 256),), "weight 256 of lane 0"),
        ("low", ((0, 1),) * 65, "65 entries"),
        ("high_limit", 256, "256 is not in 0 .. 255"),
        ("operational_lanes", 5, "5 is not one of 1, 2, 4, 8, 15"),
    ],
)
def test_tables_that_no_port_can_hold(field, value, what):
    arguments = {"high": (), "low": (), "high_limit": 0, "operational_lanes": 4} | {field: value}
    with pytest.raises(InputError, match=what):
        LaneTables(**arguments)


# ---------------------------------------------------------------- RoCE


def table(*classes):
    return ClassTable(
        classes=tuple(
            TrafficClass(number=number, selection=selection, bandwidth=bandwidth, priorities=(number,))
            for number, (selection, bandwidth) in enumerate(classes)
        )
    )


def test_ets_shares_by_weight_and_hands_on_what_is_left():
    setting = table(("ets", 9), ("ets", 1), ("ets", 80), ("ets", 10))
    assert exact_shares(setting, backlogged=[0, 1, 2, 3])[2] == Fraction(80, 100)
    assert exact_shares(setting, backlogged=[0, 2]) == {0: Fraction(9, 89), 2: Fraction(80, 89)}
    # class 2 asks for 10 % of the link; classes 1 and 3 share the rest 1:10
    found = exact_shares(setting, backlogged=[1, 3], loads={2: 0.1})
    assert found == {1: Fraction(9, 110), 2: Fraction(1, 10), 3: Fraction(9, 11)}


def test_strict_classes_go_first_the_higher_before_the_lower():
    setting = table(("ets", 60), ("strict", None), ("ets", 40), ("strict", None))
    assert exact_shares(setting, backlogged=[0, 1, 2, 3]) == {0: 0, 1: 0, 2: 0, 3: 1}
    found = exact_shares(setting, backlogged=[0, 2], loads={1: 0.3, 3: 0.5})
    assert found == {0: Fraction(12, 100), 1: Fraction(3, 10), 2: Fraction(8, 100), 3: Fraction(1, 2)}
    # the lower strict class gets what the higher one leaves
    assert exact_shares(setting, backlogged=[1], loads={3: 0.75})[1] == Fraction(1, 4)


def test_classes_without_ets_weight_get_what_the_weighted_leave():
    setting = table(("ets", 0), ("ets", 100), ("ets", None))
    assert exact_shares(setting, backlogged=[0, 1, 2]) == {0: 0, 1: 1, 2: 0}
    assert exact_shares(setting, backlogged=[0, 2], loads={1: 0.5}) == {
        0: Fraction(1, 4),
        1: Fraction(1, 2),
        2: Fraction(1, 4),
    }


def test_vendor_classes_are_one_group_above_the_strict_ones():
    setting = table(("ets", 50), ("ets", 50), ("strict", None), ("vendor", None), ("vendor", None))
    assert exact_shares(setting, backlogged=[0, 2, 3, 4]) == {0: 0, 2: 0, 3: Fraction(1, 2), 4: Fraction(1, 2)}
    assert exact_shares(setting, backlogged=[0, 1]) == {0: Fraction(1, 2), 1: Fraction(1, 2)}


def test_kv_share_on_roce():
    setting = table(("ets", 70), ("ets", 30))
    assert kv_share_available(setting, 1, [0], 0.5) == pytest.approx(0.5)
    assert kv_share_available(setting, 1, [0], 0.9) == pytest.approx(0.3)


def test_class_numbers_end_at_7():
    with pytest.raises(InputError, match="TC8 does not exist"):
        shares(table(("ets", 100)), backlogged=[8])


def test_a_priority_belongs_to_one_class():
    classes = (
        TrafficClass(number=0, selection="ets", bandwidth=120, priorities=(1,)),
        TrafficClass(number=0, selection="strict", priorities=(9,)),
        TrafficClass(number=8, selection="strict", priorities=(1,)),
    )
    with pytest.raises(InputError) as caught:
        ClassTable(classes=classes)
    assert caught.value.problems == (
        "tc 0: bw 120% is not in 0 .. 100 %",
        "tc 0: described twice",
        "tc 0: priority 9: priorities are 0 to 7",
        "tc 8: traffic classes are 0 to 7",
        "tc 8: priority 1 is on tc 0 as well",
    )
