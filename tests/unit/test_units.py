import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.errors import InputError
from dualplan.units import UNITS, listed, number, parse, show, significant, whole, wholes


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("400Gb/s", "B/s", 50e9),  # 400 gigabit are 50 gigabyte
        ("50GB/s", "B/s", 50e9),
        ("80 GiB", "B", 80 * 1024**3),
        ("80GB", "B", 80e9),
        ("300ms", "s", 0.3),
        ("6us", "s", 6e-6),
        ("2h", "s", 7200),
        ("1979TFLOPS", "FLOP/s", 1.979e15),
        ("10.2kW", "W", 10200),
        ("63.296 USD/h", "USD/h", 63.296),
        ("1%", "1", 0.01),
        ("0.5", "1", 0.5),
        ("0", "B/s", 0),
        ("1.5e3 B", "B", 1500),
    ],
)
def test_values(text, dimension, value):
    assert parse(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("base", "prefixes"), [(1000, ["", "k", "M", "G", "T", "P", "E"]), (1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"])]
)
def test_a_byte_is_eight_bits_whatever_the_prefix(base, prefixes):
    for power, prefix in enumerate(prefixes):
        for per, dimension in (("", "B"), ("/s", "B/s")):
            assert parse(f"8{prefix}b{per}", dimension) == parse(f"1{prefix}B{per}", dimension) == base**power


@pytest.mark.parametrize(
    ("text", "dimension", "part"),
    [
        ("400 GB", "B/s", "is a size, a rate is needed (did you mean 400Gb/s"),
        ("400Gb/s", "B", "is a rate, a size is needed"),
        ("400", "B/s", "has no unit"),
        ("40KB", "B", "kB (1000) or KiB (1024)"),
        ("400Gbps", "B/s", "did you mean Gb/s?"),
        ("400gb/s", "B/s", "did you mean GB/s or Gb/s?"),
        ("5 apples", "B", 'unknown unit "apples"'),
        ("nan", "B/s", "is not a rate"),
        ("inf GB/s", "B/s", "is not a rate"),
        ("1e999GB", "B", "too large"),
        ("", "s", "is not a time"),
        ("1_000GB", "B", "unknown unit"),
        ("٣GB", "B", "is not a size"),
        ("-", "s", "is not a time"),
        ("9" * 200, "B", "is not a size"),
    ],
)
def test_refusals_say_what_is_wrong(text, dimension, part):
    with pytest.raises(InputError) as caught:
        parse(text, dimension, "x.yaml:7: key")
    assert str(caught.value).startswith("x.yaml:7: key: ")
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30), st.sampled_from(["B", "B/s", "s", "FLOP/s", "W", "USD", "USD/h", "1"]))
def test_any_text_gives_a_finite_number_or_an_input_error(text, dimension):
    with contextlib.suppress(InputError):
        assert math.isfinite(parse(text, dimension))


@given(st.sampled_from(sorted(UNITS)), st.floats(1e-3, 1e6))
def test_every_unit_scales_linearly(unit, number):
    dimension, factor = UNITS[unit]
    assert parse(f"{number!r} {unit}", dimension) == pytest.approx(number * factor, rel=1e-12)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (50e9, "B/s", "50.0 GB/s"),
        (999.96e6, "B", "1.00 GB"),
        (0.0062, "s", "6.20 ms"),
        (7300, "s", "2.03 h"),
        (None, "B", "-"),
        (0, "B", "0 B"),
    ],
)
def test_show(value, dimension, text):
    assert show(value, dimension) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.02814, "0.0281"),
        (62.04, "62.0"),
        (1171, "1,170"),
        (999.6, "1,000"),
        (0, "0"),
        (-3.14159, "-3.14"),
        (1e300, "1.00e+300"),
        (6.5e-300, "6.50e-300"),
    ],
)
def test_significant(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        ("1e3", {"least": 0.0}, None),
        (" 2.5 ", {"above": 0.0, "most": 3.0}, None),
        ("3", {"least": 1.0, "most": 3.0}, None),
        ("0", {"above": 0.0}, '--x: "0" is not a number above 0'),
        ("nan", {}, '--x: "nan" is not a number'),
        ("1_000", {}, '--x: "1_000" is not a number'),
        ("1e999", {}, '--x: "1e999" is not a number'),
        ("٣", {}, '--x: "٣" is not a number'),
        ("4", {"least": 1.0, "most": 3.0}, '--x: "4" is not a number of 1 to 3'),
        ("0.5", {"least": 1.0}, '--x: "0.5" is not a number of 1 or more'),
        ("2", {"above": 0.0, "most": 1.0}, '--x: "2" is not a number above 0 and up to 1'),
    ],
)
def test_numbers_of_flags(text, limits, message):
    if message is None:
        assert number(text, "--x", **limits) == float(text)
        return
    with pytest.raises(InputError) as refused:
        number(text, "--x", **limits)
    assert str(refused.value) == message


def test_quantities_and_lists_of_flags():
    assert number("30ms", "--x", dimension="s", least=0.0) == 0.03
    assert whole(" 12 ", "--x") == 12 and wholes("1, 2,1", "--x", most=2) == (1, 2)
    assert listed(" a,,b , a") == ["a", "b"] and listed(None) == []
    for text in ("", "-1", "1.0", "1e3", "0", "11", "²"):
        with pytest.raises(InputError, match="is not a whole number of 1 to 10"):
            whole(text, "--x", most=10)
