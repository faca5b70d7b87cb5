"""Findings about a KV lane, and settings for a floor."""

from fractions import Fraction

import msgspec
import pytest

from dualplan.flow.arbitration import guaranteed
from dualplan.flow.arbitration_settings import (
    classes_before,
    dilution,
    findings,
    high_lanes_in_low_table,
    settings_for_floor,
)
from dualplan.spec.qos import ClassTable, LaneTables, QosFile, TrafficClass

PUBLISHED = LaneTables(
    high=((0, 192), (1, 192), (2, 0), (3, 192)),
    low=((0, 192), (1, 192), (2, 64), (3, 192)),
    high_limit=240,
    operational_lanes=4,
)
PRODUCTION = ClassTable(
    classes=(
        *(
            TrafficClass(number=number, selection="ets", bandwidth=bandwidth, priorities=(number,))
            for number, bandwidth in enumerate((9, 1, 80, 10))
        ),
        *(TrafficClass(number=number, selection="strict", priorities=(number,)) for number in (4, 5, 6, 7)),
    )
)


def replaced(**fields):
    return msgspec.structs.replace(PUBLISHED, **fields)


def texts(setting, lane, **file):
    kind = "mlnx_qos" if isinstance(setting, ClassTable) else "smpquery"
    return {remark.code: remark.text for remark in findings(QosFile(kind=kind, setting=setting, **file), lane)}


# ---------------------------------------------------------------- dilution


def test_the_published_low_table_dilutes_tenfold():
    """1/2410 with all lanes in it, 1/241 with lane 2 alone."""
    assert high_lanes_in_low_table(PUBLISHED, 2) == (0, 1, 3)
    assert dilution(PUBLISHED, 2) == 10
    assert dilution(replaced(low=((2, 64),)), 2) == 1
    assert dilution(replaced(high_limit=255), 2) is None
    assert texts(PUBLISHED, 2) == {
        "diluted_low_table": "Lanes 0, 1 and 3 also sit in the low table: that dilutes the KV share 10-fold."
    }


# ---------------------------------------------------------------- a floor


def test_floor_of_one_per_cent():
    """Alone in the low table: 1/(n+1) >= 1/100 up to n = 99. In the low table as it is: 1/(10 (n+1)) up to n = 9."""
    alone, as_it_is = settings_for_floor(PUBLISHED, 2, Fraction(1, 100))
    assert alone.setting == replaced(low=((2, 64),), high_limit=99)
    assert as_it_is.setting == replaced(high_limit=9)
    assert alone.guaranteed == as_it_is.guaranteed == Fraction(1, 100)


def test_the_limit_never_rises():
    """0.1 % is reached alone in the low table with the limit as it is, 1/241."""
    alone, as_it_is = settings_for_floor(PUBLISHED, 2, Fraction(1, 1000))
    assert alone.setting == replaced(low=((2, 64),))
    assert as_it_is.setting == replaced(high_limit=99)


def test_other_lanes_of_the_low_table_keep_their_place():
    """KV on lane 2 shares the low table with lane 1, and lane 1 must not be starved for it. Limit 2 leaves the low
    table 1/3; 4 packets of 5 of that are 26.7 %, for which a weight of 193 is the least (3 * 64 + 1). Limit 3 leaves
    too little.
    """
    tables = LaneTables(high=((0, 4),), low=((1, 28), (2, 4)), high_limit=4)
    (found,) = settings_for_floor(tables, 2, Fraction(26, 100))
    assert found.setting.high == tables.high
    assert dict(found.setting.low)[1] == 28
    assert found.guaranteed == guaranteed(found.setting, 2, busy=[0, 1]) == Fraction(4, 15)
    assert found.setting.high_limit == 2
    assert dict(found.setting.low)[2] == 193


def test_more_than_half_needs_weight_in_the_high_table():
    """Limit 1: one packet each way. KV has the low half and 3 packets of 12 in the high one: 1/2 + 1/8."""
    (found,) = settings_for_floor(PUBLISHED, 2, Fraction(6, 10))
    assert found.setting == replaced(high=((0, 192), (1, 192), (2, 129), (3, 192)), low=((2, 255),), high_limit=1)
    assert found.guaranteed == Fraction(5, 8)


def test_floors_out_of_reach():
    """At most 4 packets of 13 in the high half: 1/2 + 2/13 = 0.654."""
    assert settings_for_floor(PUBLISHED, 2, Fraction(2, 3)) == []
    assert len(settings_for_floor(PUBLISHED, 2, Fraction(17, 26))) == 1
    assert settings_for_floor(PUBLISHED, 5, Fraction(1, 100)) == []  # 4 lanes are operational


def test_a_lane_without_weight_is_given_some():
    alone, *_ = settings_for_floor(replaced(low=((0, 192),)), 2, Fraction(1, 100))
    assert alone.setting.low == ((2, 64),)


def test_packet_sizes_count():
    """Limit 40 lets 163,840 B go; at 2048 B that is 80 packets, and 1/81 > 1 %."""
    (alone, _) = settings_for_floor(PUBLISHED, 2, Fraction(1, 100), mtu=2048)
    assert alone.setting.high_limit == 49
    small, *_ = settings_for_floor(PUBLISHED, 2, Fraction(1, 100), packet_bytes={2: 1024})
    # burst + 1024 >= 100 * 1024 while burst <= 99 * 1024 = 24 * 4096 + 3072
    assert small.setting.high_limit == 24


def test_floor_on_roce_needs_strict_classes_on_ets():
    (found,) = settings_for_floor(PRODUCTION, 2, Fraction(1, 5))
    assert [traffic.selection for traffic in found.setting.classes] == ["ets"] * 8
    # 80 stay; of the 20 others 7 are due, 13 go by weight 9:1:10 as 5, 0, 6, and the 2 left over to the heaviest
    assert [traffic.bandwidth for traffic in found.setting.classes] == [6, 1, 80, 9, 1, 1, 1, 1]
    assert found.guaranteed == Fraction(4, 5)


def test_floor_on_roce_is_rounded_up_to_whole_per_cents():
    table = ClassTable(
        classes=(
            TrafficClass(number=0, selection="ets", bandwidth=90, priorities=(0,)),
            TrafficClass(number=1, selection="ets", bandwidth=10, priorities=(1,)),
            TrafficClass(number=2, selection="strict"),
        )
    )
    (found,) = settings_for_floor(table, 1, Fraction(121, 1000))
    assert [(traffic.selection, traffic.bandwidth) for traffic in found.setting.classes] == [
        ("ets", 87),
        ("ets", 13),
        ("strict", None),  # no priority is mapped to it
    ]
    assert settings_for_floor(table, 1, Fraction(991, 1000)) == []
    assert settings_for_floor(table, 2, Fraction(1, 2)) == []


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("setting", "lane", "code", "text"),
    [
        (
            replaced(low=((0, 1),)),
            2,
            "kv_without_weight",
            "VL2 has no weight in either table: KV traffic on it is never",
        ),
        (PUBLISHED, 5, "kv_without_weight", "VL5 is not operational"),
        (PUBLISHED, 0, "kv_in_high_table", "VL0 sits in the high table beside lanes 1 and 3"),
        (replaced(high_limit=255), 2, "limit_255", "lane 2 gets nothing while lanes 0, 1 and 3 are busy"),
        (replaced(high_limit=255), None, "limit_255", "lane 2 gets nothing"),
        (replaced(low=((2, 64),), high_limit=0), 2, "limit_0", "lanes 0, 1 and 3 keep 50 % while all are busy"),
    ],
)
def test_findings_about_lanes(setting, lane, code, text):
    assert text in texts(setting, lane)[code]


def test_limits_matter_only_between_two_tables():
    assert texts(replaced(low=(), high_limit=255), None) == {}
    assert texts(LaneTables(high=((0, 1),), low=((0, 1),), high_limit=0), None) == {}


def test_a_lane_that_no_service_level_reaches():
    assert "no_service_level" in texts(PUBLISHED, 2, service_levels=(0,) * 16)
    assert "no_service_level" not in texts(PUBLISHED, 2, service_levels=(0,) * 15 + (2,))
    # folded by the operational lanes, as the tables are: 6 & 3 = 2; 15 drops
    assert "no_service_level" not in texts(PUBLISHED, 2, service_levels=(0,) * 15 + (6,))
    assert "no_service_level" in texts(PUBLISHED, 3, service_levels=(0,) * 15 + (15,))


def test_findings_about_classes():
    found = texts(PRODUCTION, 2)["strict_before_kv"]
    assert found == "TC4, TC5, TC6 and TC7 go before TC2 (strict or vendor): KV gets what they leave."
    assert texts(PRODUCTION, 7) == {}
    assert classes_before(PRODUCTION, 5) == (6, 7)
    assert "TC4, TC5, TC6 and TC7 go first" in texts(PRODUCTION, None)["strict_first"]
    partial = ClassTable(
        classes=(
            TrafficClass(number=0, selection="ets", bandwidth=100, priorities=(0, 1)),
            TrafficClass(number=1, selection="ets", bandwidth=0),
            TrafficClass(number=2, selection="vendor"),
        )
    )
    assert set(texts(partial, 1)) == {"no_priority", "kv_without_weight"}
    assert set(texts(partial, 3)) == {"kv_without_weight"}
    assert texts(partial, None) == {}
