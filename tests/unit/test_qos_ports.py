"""smpquery vlarb and mlnx_qos output: real ones, pasted ones, and what is refused."""

import pytest

from dualplan.errors import InputError
from dualplan.spec.qos import parse_qos, read_qos


def parse(text):
    return parse_qos(text, "f")


def problems(text):
    with pytest.raises(InputError) as caught:
        parse(text)
    return caught.value.problems


# ---------------------------------------------------------------- smpquery vlarb

VLARB = """\
# VLArbitration tables: Lid 2 port 1 LowCap 8 HighCap 8
# Low priority VL Arbitration Table:
VL    : |0x1 |0x2 |0x0 |
WEIGHT: |0x1C|0x4 |0x0 |
# High priority VL Arbitration Table:
VL    : |0x0 |0x0 |
WEIGHT: |0x4 |0x0 |
"""


def test_the_port_holds_what_the_configuration_says(shared_cases):
    """The output was taken from a fabric that ran that configuration; only the limit is missing from it."""
    port = read_qos(shared_cases / "qos" / "smpquery_vlarb_07.txt")
    configured = read_qos(shared_cases / "qos" / "opensm_07_ai_three_class.conf").setting
    assert port.kind == "smpquery"
    assert (port.setting.high, port.setting.low) == (configured.high, configured.low)
    assert (port.setting.high_limit, port.high_limit_known) == (0, False)


def test_port_information_beside_the_tables():
    found = parse("VLHighLimit:.....................4\nOperVLs:.........................VL0-3\n" + VLARB)
    assert (found.setting.high_limit, found.high_limit_known) == (4, True)
    assert found.setting.operational_lanes == 4
    assert found.remarks == ()


def test_tables_of_several_rows_and_without_blanks():
    found = parse(
        "# Low priority VL Arbitration Table:\nVL:|0x1|0x2|\nWEIGHT:|0x1C|0x4|\nVL:|3|\nWEIGHT:|5|\n"
        "# High priority VL Arbitration Table:\nVL:|0x0|\nWEIGHT:|0x4|\n"
    )
    assert found.setting.low == ((1, 28), (2, 4), (3, 5))


def test_lanes_that_the_port_does_not_have():
    found = parse("OperVLs:....VL0\n" + VLARB)
    assert (found.setting.high, found.setting.low) == (((0, 4),), ())
    assert "VL1 and VL2" in found.remarks[0].text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("0x2 |0x0", "0x10|0x0", "f:4: lane 16 of the low table does not exist, lanes are 0 to 14"),
        ("0x2 |0x0", "0xF |0x0", "f:4: lane 15 of the low table carries management and is not arbitrated"),
        ("|0x1C|", "|0x1C0|", "f:4: weight 448 of lane 1 does not fit 8 bits"),
        ("|0x1C|", "|", "f:4: 2 weights for 3 lanes"),
        ("|0x1C|", "|red|", 'f:4: "red" is not a number'),
        ("# Low priority VL Arbitration Table:\n", "", "f:3: a row before the name of its table"),
        ("# High", "# Low", "f:5: a second low table (keep the tables of one port in the file)"),
    ],
)
def test_tables_that_are_none(old, new, expected):
    assert expected in problems(VLARB.replace(old, new))


def test_half_an_output():
    assert problems(VLARB.partition("# High")[0])[0].startswith("f: has no high table")
    assert "VLHighLimit 300" in problems("VLHighLimit:...300\n" + VLARB)[0]


# ---------------------------------------------------------------- mlnx_qos


def test_production_node(shared_cases):
    found = read_qos(shared_cases / "qos" / "mlnx_qos_01_prod_ets4.txt")
    classes = found.setting.classes
    assert [traffic.bandwidth for traffic in classes] == [9, 1, 80, 10, None, None, None, None]
    assert [traffic.selection for traffic in classes] == ["ets"] * 4 + ["strict"] * 4
    assert [traffic.priorities for traffic in classes] == [(number,) for number in range(8)]
    assert found.setting.dscp[5] == tuple(range(40, 48))
    assert found.remarks == ()


def test_output_that_lost_its_blanks(shared_cases):
    found = read_qos(shared_cases / "qos" / "mlnx_qos_03_mellanox_doc2792.txt")
    classes = found.setting.classes
    assert [traffic.bandwidth for traffic in classes] == [10, 10, 10, 10, 10, 10, None, 40]
    assert [traffic.priorities for traffic in classes] == [(1,), (0,), (2,), (3,), (4,), (5,), (6,), (7,)]
    assert found.setting.dscp[0] == tuple(range(8))


def test_output_without_priorities(shared_cases):
    setting = read_qos(shared_cases / "qos" / "mlnx_qos_04_doc_short.txt").setting
    assert setting.dscp == {}
    # nothing tells which classes are in use, so all of them may be
    assert setting.lanes() == tuple(range(8))


SHARED = """\
Priority trust state: dscp
tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%
         priority:  0
         priority:  1
         priority:  4
tc: 3 ratelimit: 25.0 Gbps, tsa: ets, bw: 40%
         priority:  3
tc: 6 ratelimit: unlimited, tsa: vendor
         priority:  6
tc: 7 ratelimit: unlimited, tsa: strict
"""


def test_several_priorities_on_one_class_and_a_vendor_class():
    found = parse(SHARED)
    assert [traffic.number for traffic in found.setting.classes] == [0, 3, 6, 7]
    assert found.setting.classes[0].priorities == (0, 1, 4)
    assert found.setting.classes[1].rate_limit == "25.0 Gbps"
    assert found.setting.classes[2].selection == "vendor"
    assert found.setting.lanes() == (0, 3, 6)
    told = {remark.code: remark.text for remark in found.remarks}
    assert set(told) == {"shared_class", "weights_sum", "vendor", "rate_limit"}
    assert "Priorities 0, 1 and 4 share TC0" in told["shared_class"]
    assert "add up to 90 %" in told["weights_sum"]
    assert "TC3 (25.0 Gbps)" in told["rate_limit"]


@pytest.mark.parametrize("lost", ["\n", " ", "\n "])
def test_lost_line_ends_and_blanks(lost):
    text = SHARED.replace("25.0 Gbps", "25.0Gbps").replace("Priority trust state: dscp\n", "")
    for character in lost:
        text = text.replace(character, "")
    assert parse(text).setting == parse(SHARED.replace("25.0 Gbps", "25.0Gbps")).setting


def test_dscp_values_on_two_lines():
    text = "prio:6 dscp:30,55,54,\n        prio:6 dscp:48,\nprio:0 dscp:07,06,\n" + SHARED
    assert parse(text).setting.dscp == {0: (6, 7), 6: (30, 48, 54, 55)}


def test_all_problems_of_classes_with_their_lines():
    found = problems(
        "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%\n priority: 1\ntc: 1 ratelimit: unlimited, tsa: ets, bw: 150%\n"
        "tc: 2 ratelimit: unlimited, tsa: round-robin\ntc: 9 ratelimit: unlimited, tsa: strict\n"
        "tc: 0 ratelimit: unlimited, tsa: strict\ntc: 4 ratelimit: unlimited\ntc: 5 ratelimit: unlimited, tsa: strict\n"
        " priority: 1\n priority: 12\ntc: 6 ratelimit: unlimited, tsa: strict\n priority: 1\n"
    )
    assert found == (
        "f:3: bw 150% of tc 1 is over 100 %",
        'f:4: tsa "round-robin" is not known (ets, strict or vendor)',
        "f:5: tc 9 does not exist, traffic classes are 0 to 7",
        "f:6: tc 0 is described a second time, first at line 1 (keep the output for one port in the file)",
        'f:7: "tc: 4 ratelimit: unlimited" does not name ratelimit and tsa',
        "f:8: priority 12 of tc 5 does not exist, they are 0 to 7",
        "f:11: priority 1 is on tc 6 and on tc 0 (line 1)",
    )
