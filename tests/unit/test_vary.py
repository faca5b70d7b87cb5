"""What --vary says: values, ranges, ratios, and scenarios changed by key."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.errors import InputError
from dualplan.spec.change import changed
from dualplan.spec.load import flag_node
from dualplan.spec.scenario import read_scenario, resolve, set_flags
from dualplan.spec.vary import Axis, count_points, parse_axis, splits

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("prefill=1..4", "1 2 3 4"),
        ("prefill=1..4,8,16", "1 2 3 4 8 16"),
        ("prefill=1,1,2", "1 2"),
        ("decode=1..16+5", "1 6 11 16"),
        ("decode=1..64*4", "1 4 16 64"),
        ("decode=3..20*2", "3 6 12"),
        ("balance=1.1..1.3+0.1", "1.1 1.2 1.3"),
        ("hardware.snic.rate=100Gb/s..400Gb/s+100Gb/s", "100Gb/s 200Gb/s 300Gb/s 400Gb/s"),
        ("hardware.snic.rate=100Gb/s..400Gb/s+150", "100Gb/s 250Gb/s 400Gb/s"),
        ("slo.ttft=500ms..4000ms*2", "500ms 1000ms 2000ms 4000ms"),
        ("mode=basic,dual-path", "basic dual-path"),
        ("hardware=./nodes/a.yaml,../b.yaml", "./nodes/a.yaml ../b.yaml"),
        ("pd=1:3..3:1", "1:3 1:2 1:1 2:1 3:1"),
        ("pd=1:2..1:1,4:3", "1:2 1:1 4:3"),
    ],
)
def test_values(text, values):
    assert parse_axis(text).values == tuple(values.split())


def test_values_that_hold_commas_are_separated_by_bars():
    assert parse_axis("prefill.parallel=ep=8,tp=1|ep=16,tp=1").values == ("ep=8,tp=1", "ep=16,tp=1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prefill", "KEY=VALUES"),
        ("=1", "KEY=VALUES"),
        ("prefill=", "names no value"),
        ("prefill=1,,2", "empty value"),
        ("prefill=8..1", "empty"),
        ("prefill=1..8+0", "never ends"),
        ("prefill=1..8*1", "never ends"),
        ("prefill=0..8*2", "never ends"),
        ("prefill=1..1000000000", "more than"),
        ("prefill=1..1000000000*1.000001", "more than"),
        ("prefill=0.5..2", "does not say its step"),
        ("hardware.snic.rate=100Gb/s..400Gb/s", "does not say its step"),
        ("hardware.snic.rate=100Gb/s..400GB/s+100Gb/s", "different units"),
        ("hardware.snic.rate=100Gb/s..400Gb/s+1GB/s", "not a step"),
        ("prefill=a..b", "not a range"),
        ("prefill=1..nan", "not a range"),
        ("pd=8:1..1:8", "empty"),
        ("pd=1:0", "without nodes"),
        ("pd=2:3..3:1", "need a 1"),
        ("pd=x", "not a P/D ratio"),
    ],
)
def test_bad_values_are_said(text, says):
    with pytest.raises(InputError, match=says):
        parse_axis(text)


@given(st.text(max_size=30))
def test_any_text_is_values_or_an_input_error(text):
    for key in ("prefill", "pd"):
        try:
            axis = parse_axis(f"{key}={text}")
        except InputError:
            continue
        assert axis.values and all(axis.values)


def test_splits_of_a_number_of_nodes():
    axis = parse_axis("pd=1:8..8:1")
    assert splits(axis, 6, "1:8..8:1") == ("1:5", "2:4", "3:3", "4:2", "5:1")
    assert splits(axis, 6, "1:2..1:1") == ("2:4", "3:3")
    assert splits(axis, 9, "1:2,2:1") == ("3:6", "6:3")
    with pytest.raises(InputError, match="cannot be split 1:3"):
        splits(axis, 6, "1:3")
    with pytest.raises(InputError, match="no split"):
        splits(axis, 3, "4:1..8:1")
    with pytest.raises(InputError, match="cannot be split"):
        splits(axis, 1, "1:1")


def test_points_of_axes():
    a, b = Axis("prefill_nodes", ("1", "2")), Axis("decode_nodes", ("1", "2", "3"))
    assert count_points([a, b], False) == 6
    assert count_points([a, Axis("mode", ("basic", "oracle"))], True) == 2
    for axes, zipped, says in (
        ([], False, "nothing"),
        ([a, a], False, "twice"),
        ([a, b], True, "different numbers"),
        ([Axis("pd", ("1:2",)), a], False, "both node counts"),
        ([Axis("a", ("1",) * 2000), Axis("b", ("1",) * 2000)], False, "more than"),
    ):
        with pytest.raises(InputError, match=says):
            count_points(axes, zipped)


ASSIGNMENTS = [
    "hardware.snic.count=2",
    "hardware.snic.rate=200Gb/s",
    "prefill_hardware.dram.bandwidth=250GB/s",
    "decode_hardware.cnic.efficiency=0.9",
    "hardware.qos={kv_lane: 1, collective_lanes: [0], high: '0:64', low: '1:1', high_limit: 0}",
    "workload.append=1000",
    "workload.turns=12",
    "collective_load=0.25",
    "slo.ttft=2s",
    "demand.turn_rate=10",
    "mode=basic",
    "prefill.parallel=ep=16,tp=1,dp=16",
    "decode_nodes=7",
    "kv_format=fp8",
    "hardware=dgx-h200",
    "decode_hardware=dgx-h200",
    "workload=dualpath-32k",
    "model=ds-27b",
]


def plain(scenario):
    """A scenario without what says where its values come from."""
    return msgspec.structs.replace(scenario, origins={})


@given(st.lists(st.sampled_from(ASSIGNMENTS), max_size=6, unique_by=lambda text: text.partition("=")[0]))
def test_changed_is_what_the_same_flags_give(texts):
    """Two ways to one scenario: flags laid over the file before it is read, and values changed afterwards."""
    given_flags = [
        (path, flag_node(text.partition("=")[2], f"--set {text.partition('=')[0]}"))
        for text in texts
        for path in [tuple(text.partition("=")[0].split("."))]
    ]
    # a decode side of its own must be named before values of both sides are set
    given_flags.sort(key=lambda pair: pair[0] != ("hardware",))

    def of_flags():
        return resolve(read_scenario(PAPER), sets=set_flags(texts), base=PAPER.parent)

    base = resolve(read_scenario(PAPER), base=PAPER.parent)
    try:
        expected = of_flags()
    except InputError as error:
        with pytest.raises(InputError) as met:
            changed(base, given_flags)
        assert met.value.problems[0].split(": ")[-1] == error.problems[0].split(": ")[-1]
        return
    assert plain(changed(base, given_flags)) == plain(expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hardware.snic.cuont=2", "did you mean count"),
        ("hardware.snic.rate=400GB", "a rate is needed"),
        ("hardwear.snic.count=2", "did you mean hardware"),
        ("prefil_nodes=2", "did you mean prefill_nodes"),
        ("model.layers=2", "cannot be set"),
        ("mode=dualpath", "did you mean dual-path"),
        ("hardware.dram.buffer_sockets=9", "more than the"),
        ("variants=[]", "cannot be changed"),
    ],
)
def test_a_change_that_cannot_be_is_said(text, says):
    base = resolve(read_scenario(PAPER), base=PAPER.parent)
    key, _, value = text.partition("=")
    with pytest.raises(InputError, match=says):
        changed(base, [(tuple(key.split(".")), flag_node(value, "--vary"))])
