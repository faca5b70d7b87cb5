"""opensm.conf as OpenSM reads it: real files, defaults, unset values, folding, and what is refused."""

import json

import pytest

from dualplan.errors import InputError
from dualplan.spec.qos import parse_qos, read_qos, service_levels_of, table_text
from dualplan.spec.qos_opensm import DEFAULT_HIGH, DEFAULT_LOW, parse_table


def parse(text, port_class="ca"):
    return parse_qos(text, "f", port_class)


def problems(text, port_class="ca"):
    with pytest.raises(InputError) as caught:
        parse(text, port_class)
    return caught.value.problems


def remarks(text):
    return {remark.code: remark.text for remark in parse(text).remarks}


# ---------------------------------------------------------------- real files


def test_effective_settings_of_the_reference_cases(shared_cases):
    folder = shared_cases / "qos"
    for case in json.loads((folder / "vl_cases.json").read_text()):
        found = read_qos(folder / case["file"], case["port_class"])
        effective = case["effective"]
        assert found.kind == "opensm"
        assert found.setting.high_limit == effective["high_limit"]
        assert found.max_vls == effective["max_vls"]
        assert found.setting.operational_lanes == case["oper_vls"]
        assert [list(entry) for entry in found.setting.high] == case["table_high"]
        assert [list(entry) for entry in found.setting.low] == case["table_low"]
        named = [int(lane) for lane in effective["sl2vl"].split(",")]
        assert list(found.service_levels[: len(named)]) == named


def test_other_port_classes_of_the_reference_files(shared_cases):
    path = shared_cases / "qos" / "opensm_04_opensm_doc_example.conf"
    assert read_qos(path, "swe").setting == read_qos(path, "ca").setting
    # neither generic nor router keys: the defaults
    router = read_qos(path, "rtr")
    assert (router.setting.high, router.setting.low) == (DEFAULT_HIGH, DEFAULT_LOW)
    assert router.setting.high_limit == 0


# ---------------------------------------------------------------- keys


TWO_CLASSES = """
qos_high_limit 3
qos_vlarb_high 0:64
qos_vlarb_low 1:64
qos_ca_high_limit 7
qos_swe_vlarb_low 2:128
qos_sw0_vlarb_high 3:1
"""


@pytest.mark.parametrize(
    ("port_class", "limit", "high", "low", "own"),
    [
        ("ca", 7, "0:64", "1:64", ("high_limit",)),
        ("swe", 3, "0:64", "2:128", ("vlarb_low",)),
        ("sw0", 3, "3:1", "1:64", ("vlarb_high",)),
        ("rtr", 3, "0:64", "1:64", ()),
    ],
)
def test_keys_of_the_port_class_win(port_class, limit, high, low, own):
    found = parse(TWO_CLASSES, port_class)
    assert found.port_class == port_class
    assert found.setting.high_limit == limit
    assert (table_text(found.setting.high), table_text(found.setting.low)) == (high, low)
    assert found.class_keys == own


def test_unset_values_fall_through():
    found = parse(
        "qos_high_limit 5\nqos_ca_high_limit -1\nqos_vlarb_high 1:9\nqos_ca_vlarb_high (null)\n"
        "qos_vlarb_low (null)\nqos_ca_max_vls 0\nqos_max_vls 8\n"
    )
    assert found.setting.high_limit == 5
    assert found.setting.high == ((1, 9),)
    assert found.max_vls == 8
    assert found.setting.low[:2] == ((0, 0), (1, 4))
    assert "qos_vlarb_low" in next(remark.text for remark in found.remarks if remark.code == "default")


def test_defaults_are_told():
    assert remarks("qos_vlarb_high 0:4\n")["default"].endswith("qos_high_limit and qos_vlarb_low.")
    assert "default" not in remarks("qos_high_limit 1\nqos_vlarb_high 0:4\nqos_vlarb_low 1:4\n")


def test_comments_quotes_blanks_and_line_ends():
    found = parse(
        '# qos_high_limit 9\r\n  qos_high_limit\t"240" # not 9\r\nqos_vlarb_high 0:192, 1 : 192 ,# two\r\n'
        "qos_vlarb_low 0x2:0x40\r\n"
    )
    assert found.setting.high_limit == 240
    assert found.setting.high == ((0, 192), (1, 192))
    assert found.setting.low == ((2, 64),)


def test_other_keys_are_passed_over_and_misspelled_ones_told():
    assert parse("routing_engine minhop\nqos_high_limit 1\nsm_priority 15\n").setting.high_limit == 1
    assert "did you mean qos_vlarb_high?" in remarks("qos_high_limit 1\nqos_vlarb_hi 0:1\n")["unknown_key"]
    found = [remark for remark in parse("qos_high_limit 1\n" + "qos_x 1\n" * 9).remarks if remark.code == "unknown_key"]
    assert len(found) == 6
    assert "4 more" in found[-1].text


def test_qos_switched_off_is_told():
    assert "qos_off" in remarks("qos FALSE\nqos_high_limit 1\n")
    assert "qos_off" not in remarks("qos TRUE\nqos_high_limit 1\n")


def test_the_same_value_twice_is_no_contradiction():
    assert parse("qos_vlarb_high 0:1,1:2\nqos_vlarb_high 0:1, 1:2\nqos_high_limit -1\nqos_high_limit 4\n")


# ---------------------------------------------------------------- tables


def test_lanes_are_modulo_15_and_weights_modulo_256():
    told = []
    assert parse_table("15:7,1:256,2:300", "f:1", told) == ((0, 7), (1, 0), (2, 44))
    assert [remark.code for remark in told] == ["lane_modulo", "weight_modulo", "weight_modulo"]
    assert "OpenSM takes 44" in told[2].text


def test_entries_after_64_are_dropped():
    told = []
    assert len(parse_table(",".join(["1:1"] * 70), "f:1", told)) == 64
    assert "70 entries" in told[0].text


@pytest.mark.parametrize(
    ("code", "lanes", "table"),
    [
        (1, 1, ((0, 1), (0, 2), (0, 3))),
        (2, 2, ((0, 1), (1, 2), (0, 3))),
        (3, 4, ((0, 1), (1, 2), (2, 3))),
        (4, 8, ((0, 1), (5, 2), (6, 3))),
        (5, 15, ((0, 1), (5, 2), (14, 3))),
    ],
)
def test_max_op_vls_is_a_code_and_folds_the_lanes(code, lanes, table):
    found = parse(f"max_op_vls {code}\nqos_vlarb_high 0:1,5:2,14:3\nqos_vlarb_low 0:1\n")
    assert found.setting.operational_lanes == lanes
    assert found.setting.high == table
    assert ("lanes_beyond_operational" in {remark.code for remark in found.remarks}) == (code < 5)


@pytest.mark.parametrize("max_vls", [1, 2, 4, 8, 15])
def test_max_vls_does_not_change_arbitration(max_vls):
    """With max_op_vls set, and without it for the lanes that the tables use."""
    tables = "qos_high_limit 240\nqos_vlarb_high 0:192,1:192,3:192\nqos_vlarb_low 2:64\n"
    with_code = parse(f"max_op_vls 3\nqos_max_vls {max_vls}\n{tables}")
    without = parse(f"qos_max_vls {max_vls}\n{tables}")
    assert with_code.setting.operational_lanes == 4
    assert (with_code.setting.high, with_code.setting.low) == (without.setting.high, without.setting.low)
    assert with_code.setting.high == ((0, 192), (1, 192), (3, 192))
    assert ("max_vls_ignored" in {remark.code for remark in with_code.remarks}) == (max_vls != 4)


def test_service_levels_of_a_lane():
    found = parse("max_op_vls 2\nqos_high_limit 0\nqos_sl2vl 0,1,2,3,15\n")
    # lanes are folded as in the tables, 15 drops, and OpenSM reads what is missing as 0
    assert service_levels_of(found, 1) == (1, 3)
    assert service_levels_of(found, 0) == (0, 2, *range(5, 16))
    assert service_levels_of(found, 2) == ()


# ---------------------------------------------------------------- refused


def test_all_problems_with_their_lines():
    found = problems(
        "qos_high_limit 300\nqos_vlarb_high 0:64,16:64\nqos_vlarb_low 1;2\n"
        "qos_sl2vl 0,99\nmax_op_vls 15\nqos_max_vls x\n"
    )
    assert found == (
        'f:6: qos_max_vls: "x" is not a whole number in 1 .. 15',
        'f:1: qos_high_limit: "300" is not a whole number in 0 .. 255',
        "f:2: qos_vlarb_high: lane 16 does not exist, lanes are 0 to 14 "
        "(OpenSM takes it modulo 15 and gives its weight to VL1)",
        'f:3: qos_vlarb_low: "1;2" is not LANE:WEIGHT (write for example 0:192,1:64)',
        'f:4: qos_sl2vl: "99" is not a lane in 0 .. 15',
        'f:5: max_op_vls: "15" is not a whole number in 1 .. 5 (a code: 1 VL0, 2 VL0-1, 3 VL0-3, 4 VL0-7, 5 VL0-14)',
    )


def test_contradictions_name_both_lines():
    (found,) = problems("qos_high_limit 3\n\nqos_high_limit 4\n")
    assert found.startswith('f:3: qos_high_limit: "4" contradicts "3" of line 1')


@pytest.mark.parametrize("entry", ["0:-1", "-1:4", "0", ":", "0:1:2", "1.5:4", "０:1", "0:9999999"])
def test_entries_that_are_none(entry):
    (found,) = problems(f"qos_vlarb_high 0:1,{entry}\n")
    assert "is not LANE:WEIGHT" in found


@pytest.mark.parametrize("text", ["", " \n\t\n"])
def test_empty(text):
    assert problems(text) == ("f: is empty",)


@pytest.mark.parametrize("text", ["hello\n", "qos is a fine thing\n", "# qos_high_limit 3\n", "{}"])
def test_text_of_no_kind(text):
    (found,) = problems(text)
    assert "has no qos_ keys, no VL arbitration tables and no traffic classes" in found


def test_keys_of_nobody():
    (found,) = problems("qos_what ever\n")
    assert found == 'f:1: "qos_what" is no key of OpenSM, nor is any other'


def test_two_kinds_in_one_file():
    (found,) = problems("qos_high_limit 3\ntc: 0 ratelimit: unlimited, tsa: strict\n")
    assert found == "f: holds an OpenSM configuration and mlnx_qos output (keep one of them in the file)"


def test_no_more_than_20_problems_are_told():
    assert len(problems("qos_vlarb_high " + "x," * 60)) == 20


def test_files_that_are_none(tmp_path):
    (tmp_path / "binary").write_bytes(b"qos_high_limit 3\n\0\1")
    for path, what in (("binary", "is a binary file"), (".", "is a directory"), ("absent", "no such file")):
        with pytest.raises(InputError, match=what):
            read_qos(tmp_path / path)
