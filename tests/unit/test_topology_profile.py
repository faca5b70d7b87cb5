"""The profile that an import writes: valid YAML of the hardware schema, nothing guessed."""

from pathlib import Path

import pytest
import yaml

from dualplan.errors import InputError
from dualplan.spec.hardware import read_hardware
from dualplan.spec.topology import read_topology
from dualplan.spec.topology_profile import profile

LINK = 'link_speed="32.0 GT/s PCIe" link_width="16"'
XML = (
    '<system version="1"><cpu numaid="0">'
    + "".join(
        f'<pci busid="0000:{bus}5:00.0" class="0x060400" {LINK}>'
        f'<pci busid="0000:{bus}7:00.0" class="0x030200" {LINK}><gpu dev="{dev}"/></pci>'
        f'<pci busid="0000:{bus}8:00.0" class="0x020700" {LINK}>'
        f'<nic><net name="mlx5_{dev}" speed="400000" gdr="1"/></nic></pci></pci>'
        for dev, bus in enumerate("12")
    )
    + '<pci busid="0000:38:00.0" class="0x020700"><nic><net name="mlx5_2" speed="200000" gdr="1"/></nic></pci>'
    "</cpu></system>\n"
)
NODE = "\tGPU0\tmlx5_0\tmlx5_1\tCPU Affinity\nGPU0\t X \tNODE\tNODE\t0-31\n"


def made(*texts: str) -> tuple[dict[str, object], tuple[str, ...], str]:
    result = profile(read_topology([(f"{index}.txt", text) for index, text in enumerate(texts)]), "node")
    return yaml.safe_load(result.text), result.open_keys, result.text


def test_what_captures_tell_is_written_with_its_source() -> None:
    values, open_keys, _ = made(XML, "GPU 0,1: NVIDIA H100 80GB HBM3\n")
    assert values["gpu"] == {"kind": "NVIDIA H100 80GB HBM3", "count": 2}
    assert values["cnic"] == {"count": 2, "rate": "400Gb/s"}
    assert values["snic"] == {"count": 1, "rate": "200Gb/s"}
    uplink = {"rate": "63.02GB/s", "count": 2, "gpus": 1, "cnics": 1, "snics": 0}
    assert values["pcie"] == {
        "generation": 5,
        "width": 16,
        "rate": "63.02GB/s",
        "gpu_nic_same_switch": True,
        "uplinks": [uplink],
    }
    sources = values["sources"]
    assert isinstance(sources, dict)
    assert set(sources) >= {"gpu.kind", "gpu.count", "cnic.count", "cnic.rate", "snic.rate", "pcie.generation"}
    assert "0.txt" in sources["cnic.rate"]
    assert set(open_keys) == {
        "gpu.flops",
        "gpu.hbm_capacity",
        "gpu.hbm_bandwidth",
        "dram.bandwidth",
    }


def test_undecided_nics_leave_their_keys_as_comments() -> None:
    values, open_keys, text = made(NODE)
    assert "cnic" not in values
    assert "snic" not in values
    assert {"cnic.count", "cnic.rate", "snic.count", "snic.rate"} <= set(open_keys)
    assert "#   count:  # none found, undecided: mlx5_0, mlx5_1" in text


def test_rates_that_differ_are_not_averaged() -> None:
    values, open_keys, text = made(XML.replace('"mlx5_1" speed="400000"', '"mlx5_1" speed="200000"'))
    assert values["cnic"] == {"count": 2}
    assert "cnic.rate" in open_keys
    assert "mlx5_0 400 Gb/s, mlx5_1 200 Gb/s" in text


def test_unknown_verdict_stays_a_comment() -> None:
    values, _, text = made("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-31\nGPU1\tNV18\t X \t0-31\n")
    assert "pcie" not in values
    assert "gpu_nic_same_switch:  # the captures name no NIC" in text
    assert "18 NVLinks between two GPUs" in text


def test_rest_can_be_taken_from_a_shipped_profile(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(made(XML)[2].replace("# extends:", "extends:"), encoding="utf-8")
    hardware = read_hardware(str(file))
    assert (hardware.gpu.count, hardware.cnic.count, hardware.cnic.rate) == (2, 2, 50e9)
    assert (hardware.snic.count, hardware.snic.rate) == (1, 25e9)
    assert hardware.pcie.gpu_nic_same_switch is True
    assert hardware.pcie.uplinks[0].rate == pytest.approx(63.0e9, rel=1e-3)


def test_profile_with_open_keys_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(made(XML)[2], encoding="utf-8")
    with pytest.raises(InputError, match=r"gpu\.flops: missing"):
        read_hardware(str(file))


def test_names_from_captures_cannot_break_the_yaml() -> None:
    values, _, _ = made('GPU 0: NVIDIA "H100": {a} #b\n')
    assert values["gpu"] == {"kind": 'NVIDIA "H100": {a} #b', "count": 1}
