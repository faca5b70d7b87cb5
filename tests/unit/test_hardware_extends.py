"""``extends``: what a variant takes from its parent, which sources it loses, and what goes wrong."""

from pathlib import Path

import pytest

from dualplan.errors import InputError
from dualplan.spec.hardware import check_sources, read_hardware, source_of, unsourced
from dualplan.spec.load import shipped_dir

BASE = """\
name: base
title: Base
gpu: {kind: X, count: 8, flops: {bf16: 1PFLOPS}, hbm_capacity: 80GB, hbm_bandwidth: 3TB/s}
cnic: {count: 8, rate: 400Gb/s}
snic: {count: 1, rate: 400Gb/s}
dram: {bandwidth: 500GB/s}
pcie: {generation: 5, uplinks: [{rate: 63GB/s, count: 4, gpus: 2, cnics: 2}]}
efficiency: {prefill: 0.5, attention: 0.5, hbm: 0.9}
sources:
  gpu: gpu sheet
  cnic: nic sheet
  snic: nic sheet
  snic.rate: rate sheet
  dram: dram sheet
  pcie: pcie sheet
  efficiency: measured
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path


def variant(folder: Path, text: str, name: str = "child.yaml") -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def problems(name: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        read_hardware(name)
    return caught.value.problems


def test_a_variant_replaces_single_values_and_keeps_the_rest(folder: Path) -> None:
    made = read_hardware(variant(folder, "extends: base.yaml\nname: child\nsnic: {count: 2}\n"))
    base = read_hardware(str(folder / "base.yaml"))
    assert made.snic.count == 2
    assert made.snic.rate == base.snic.rate
    assert (made.gpu, made.cnic, made.dram, made.pcie) == (base.gpu, base.cnic, base.dram, base.pcie)
    assert (made.name, made.title) == ("child", "Base")


def test_a_replaced_value_loses_its_own_source(folder: Path) -> None:
    text = "extends: base.yaml\nname: child\nsnic: {rate: 200Gb/s}\n"
    made = read_hardware(variant(folder, text))
    assert source_of(made, "snic.rate") is None
    assert source_of(made, "snic.count") == "nic sheet"


def test_a_replaced_value_loses_the_source_of_its_section_too(folder: Path) -> None:
    made = read_hardware(variant(folder, "extends: base.yaml\nname: child\ngpu: {hbm_capacity: 141GB}\n"))
    assert unsourced(made) == ["gpu.hbm_capacity"]
    assert source_of(made, "gpu.hbm_bandwidth") == "gpu sheet"
    with pytest.raises(InputError, match=r"child: sources: gpu\.hbm_capacity has no source"):
        check_sources(made)


@pytest.mark.parametrize("key", ["gpu.hbm_capacity", "gpu"])
def test_a_variant_brings_the_source_of_what_it_replaces(folder: Path, key: str) -> None:
    text = f"extends: base.yaml\nname: child\ngpu: {{hbm_capacity: 141GB}}\nsources: {{{key}: new sheet}}\n"
    made = read_hardware(variant(folder, text))
    assert source_of(made, "gpu.hbm_capacity") == "new sheet"
    check_sources(made)


def test_a_source_of_a_whole_section_does_not_cover_the_parents_own_ones(folder: Path) -> None:
    text = "extends: base.yaml\nname: child\nsnic: {count: 2}\nsources: {snic: new sheet}\n"
    made = read_hardware(variant(folder, text))
    assert source_of(made, "snic.count") == "new sheet"
    assert source_of(made, "snic.rate") == "rate sheet"


def test_replacing_a_list_replaces_all_of_it_and_drops_its_source(folder: Path) -> None:
    made = read_hardware(variant(folder, "extends: base.yaml\npcie: {uplinks: [{rate: 31.5GB/s, gpus: 8}]}\n"))
    assert [(uplink.count, uplink.gpus, uplink.cnics) for uplink in made.pcie.uplinks] == [(1, 8, 0)]
    assert "pcie.uplinks.rate" in unsourced(made)
    assert source_of(made, "pcie.generation") == "pcie sheet"


def test_null_takes_a_value_back(folder: Path) -> None:
    made = read_hardware(variant(folder, "extends: base.yaml\ndram: {bandwidth: null}\n"))
    assert made.dram.bandwidth is None
    assert unsourced(made) == []


def test_grandchildren(folder: Path) -> None:
    variant(folder, "extends: base.yaml\nname: child\nsnic: {rate: 200Gb/s}\n")
    text = "extends: child.yaml\nname: grandchild\nsnic: {count: 4}\nsources: {snic.rate: found, snic.count: seen}\n"
    made = read_hardware(variant(folder, text, "grandchild.yaml"))
    assert (made.snic.count, made.snic.rate) == (4, 25e9)
    assert source_of(made, "snic.rate") == "found"
    check_sources(made)


def test_a_source_that_was_lost_stays_lost_for_grandchildren(folder: Path) -> None:
    variant(folder, "extends: base.yaml\nname: child\nsnic: {rate: 200Gb/s}\n")
    made = read_hardware(variant(folder, "extends: child.yaml\nname: grandchild\n", "grandchild.yaml"))
    assert unsourced(made) == ["snic.rate"]


def test_relative_paths_start_at_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = variant(folder, "extends: ../base.yaml\nname: child\n", "deeper/child.yaml")
    monkeypatch.chdir(shipped_dir("hardware_profiles"))
    assert read_hardware(path).gpu.kind == "X"


def test_shipped_names_can_be_extended_from_anywhere(folder: Path) -> None:
    made = read_hardware(variant(folder, "extends: dgx-h100\nname: mine\nsnic: {count: 1}\n"))
    assert (made.gpu.kind, made.snic.count) == ("H100 SXM", 1)


def test_a_cycle_is_named(folder: Path) -> None:
    variant(folder, "extends: b.yaml\n", "a.yaml")
    b = variant(folder, "name: b\nextends: a.yaml\n", "b.yaml")
    (line,) = problems(b)
    assert line.startswith(f"{folder / 'a.yaml'}:1: extends: ")
    assert line.endswith('"b.yaml" extends itself')


def test_a_profile_that_extends_itself(folder: Path) -> None:
    (line,) = problems(variant(folder, "extends: child.yaml\n"))
    assert line.endswith('child.yaml:1: extends: "child.yaml" extends itself')


def test_an_unknown_parent_gets_the_closest_name(folder: Path) -> None:
    (line,) = problems(variant(folder, "name: x\nextends: dgx-h1000\n"))
    assert line.endswith(
        'child.yaml:2: extends: "dgx-h1000" is neither a shipped name nor a file (did you mean dgx-h100?)'
    )


def test_a_parent_must_be_text(folder: Path) -> None:
    (line,) = problems(variant(folder, "extends: [dgx-h100]\n"))
    assert line.endswith("child.yaml:1: extends: a name or a path is needed")


def test_problems_name_the_file_that_has_them(folder: Path) -> None:
    (folder / "base.yaml").write_text(BASE.replace("hbm_capacity: 80GB", "hbm_capacity: 80"))
    lines = problems(variant(folder, "extends: base.yaml\nsnic: {cnt: 2}\ncnic: {rate: 400GB}\n"))
    assert len(lines) == 3
    assert f"{folder / 'base.yaml'}:3: gpu.hbm_capacity: " in "\n".join(lines)
    assert f"{folder / 'child.yaml'}:2: snic.cnt: unknown key (did you mean count?)" in lines
    assert any(
        line.startswith(f"{folder / 'child.yaml'}:3: cnic.rate: ") and "rate is needed" in line for line in lines
    )


def test_more_devices_than_there_are(folder: Path) -> None:
    (line,) = problems(variant(folder, "extends: base.yaml\ngpu: {count: 4}\n"))
    assert "pcie.uplinks[0].gpus: 4 x 2 is more than the 4 there are" in line
