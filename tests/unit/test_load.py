"""Strict YAML: places, all problems at once, traps."""

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from dualplan.errors import InputError
from dualplan.spec.load import (
    Bandwidth,
    Count,
    Efficiency,
    decode,
    find,
    flag_node,
    json_schema,
    merged,
    parse_yaml,
    read_text,
    with_value,
)


class Nic(msgspec.Struct, frozen=True):
    count: Count
    rate: Bandwidth
    efficiency: Efficiency = 1.0


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    nic: Nic
    kind: Literal["old", "new"] = "new"
    fast: bool = False
    tags: tuple[str, ...] = ()
    extra: Nic | None = None
    share: float | Nic | None = None


def problems(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        decode(parse_yaml(text, "m.yaml"), Machine)
    return list(caught.value.problems)


def test_a_good_file():
    text = "name: no\nnic: {count: 08, rate: 400Gb/s}\nfast: true\ntags: [a, '1e9']\nextra: null\n"
    assert decode(parse_yaml(text, "m.yaml"), Machine) == Machine("no", Nic(8, 50e9), fast=True, tags=("a", "1e9"))


def test_all_problems_at_once_with_line_and_hint():
    text = "nam: x\nnic:\n  count: 0\n  rate: 400 GB\n  efficiency: 1.5\nkind: nwe\nfast: yes\n"
    assert problems(text) == [
        "m.yaml:1: nam: unknown key (did you mean name?)",
        'm.yaml:3: nic.count: "0" must be at least 1',
        'm.yaml:4: nic.rate: "400 GB" is a size, a rate is needed (did you mean 400Gb/s or 400GB/s?)',
        'm.yaml:5: nic.efficiency: "1.5" must be at most 1',
        'm.yaml:6: kind: "nwe" is not known (did you mean new?)',
        'm.yaml:7: fast: "yes" is not true or false',
        "m.yaml:1: name: missing",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("name: a\nname: b\n", "m.yaml:2: name: duplicate key (first at line 1)"),
        ("name: !!python/object:os.system x\n", "tag"),
        ("a: &a {x: 1}\nb: {<<: *a}\n", "merge keys are not supported"),
        ("{a: b}: c\n", "key must be plain text"),
        ("a: [1\n", "not valid YAML"),
        ("\tname: x\n", "not valid YAML"),
        ("--- \na: 1\n---\nb: 1\n", "not valid YAML"),
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("&a [*a]", "too many nested or aliased"),
        ("a: " + "[" * 60 + "]" * 60, "too many nested"),
        ("name: x\nnic: {count: 1e1, rate: 1GB/s}\n", "is text in YAML 1.1 (write 10)"),
        ("name: x\nnic: {count: 1.5, rate: 1GB/s}\n", "is not a whole number"),
        ("name: x\nnic: {count: .inf, rate: 1GB/s}\n", "is not a whole number"),
        ("name: x\nnic: {count: nan, rate: -1GB/s}\n", "must be greater than 0"),
        ("name: x\nnic: [1]\n", "is a list, a mapping is needed"),
        ("name: {a: 1}\nnic: {count: 1, rate: 1GB/s}\n", "is a mapping"),
        ("name: x\nnic: {count: 1, rate: 1GB/s}\ntags: a\n", "a list is needed (write [a])"),
        ("- 1\n- 2\n", "is a list, a mapping is needed"),
        ("name:\nnic: {count: 1, rate: 1GB/s}\n", "is empty"),
    ],
)
def test_traps(text, part):
    with pytest.raises(InputError) as caught:
        decode(parse_yaml(text, "m.yaml"), Machine)
    assert part in str(caught.value)


def test_alias_bomb_ends_quickly():
    text = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    with pytest.raises(InputError, match="too many nested or aliased values"):
        parse_yaml(text, "bomb.yaml")


def test_files(tmp_path: Path):
    cases = {
        "binary": (b"\x00\x01", "binary"),
        "utf16": ("a: 1".encode("utf-16"), "UTF-16"),
        "latin": (b"a: 1\nb: \xff\n", "latin:2: is not UTF-8"),
        "large": (b"#" * 1_000_001, "larger than 1 MB"),
    }
    for name, (raw, part) in cases.items():
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(InputError, match=part):
            read_text(tmp_path / name)
    with pytest.raises(InputError, match="is a directory"):
        read_text(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_text(tmp_path / "absent")
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbfname: x\r\n")
    assert parse_yaml(read_text(tmp_path / "bom"), "bom").items()["name"].value == "x"


def test_find_names_the_closest():
    with pytest.raises(InputError, match=r"neither a shipped name nor a file \(did you mean dualpath-hopper\?\)"):
        find("hardware_profiles", ".yaml", "dualpath-hoper", where="--hardware")
    with pytest.raises(InputError, match="no such file"):
        find("hardware_profiles", ".yaml", "./absent.yaml", where="--hardware")
    with pytest.raises(InputError):
        find("hardware_profiles", ".yaml", "x" * 5000, where="--hardware")
    with pytest.raises(InputError):
        find("hardware_profiles", ".yaml", "", where="--hardware")


def test_laying_values_over_a_tree():
    tree = parse_yaml("name: a\nnic: {count: 1, rate: 1GB/s}\n", "m.yaml")
    changed = with_value(tree, ("nic", "count"), flag_node("4", "--set nic.count"))
    machine = decode(changed, Machine)
    assert (machine.nic.count, machine.nic.rate, decode(tree, Machine).nic.count) == (4, 1e9, 1)
    over = merged(tree, parse_yaml("nic: {rate: 2GB/s}\n", "n.yaml"))
    assert decode(over, Machine).nic == Nic(1, 2e9)
    with pytest.raises(InputError, match=r"^--set nic\.count: \"many\""):
        decode(with_value(tree, ("nic", "count"), flag_node("many", "--set nic.count")), Machine)


def test_a_union_is_chosen_by_form():
    tree = "name: a\nnic: {count: 1, rate: 1GB/s}\nshare: "
    assert decode(parse_yaml(tree + "0.5", "m"), Machine).share == 0.5
    assert decode(parse_yaml(tree + "{count: 2, rate: 1GB/s}", "m"), Machine).share == Nic(2, 1e9)
    assert decode(parse_yaml(tree + "~", "m"), Machine).share is None


def test_json_schema_accepts_and_refuses():
    import jsonschema

    validator = jsonschema.Draft202012Validator(json_schema(Machine, "machine"))
    good = {"name": "x", "nic": {"count": 1, "rate": "400Gb/s"}}
    validator.validate(good)
    for bad in (
        {**good, "nam": 1},
        {"name": "x"},
        {**good, "nic": {"count": 0, "rate": "400Gb/s"}},
        {**good, "nic": {"count": 1, "rate": "fast"}},
    ):
        assert not validator.is_valid(bad)
