"""The shipped hardware profiles: complete, sourced, and equal to the figures that makers and clouds publish."""

import re

import pytest

from dualplan.model.roofline import own_figures
from dualplan.report.hardware import storage_ratio
from dualplan.spec.hardware import KIND, Hardware, check_sources, read_hardware, source_of, unsourced
from dualplan.spec.load import shipped_names
from dualplan.units import parse

NAMES = shipped_names(KIND, ".yaml")

WANTED = {
    "dualpath-hopper",
    "dgx-h100",
    "dgx-h200",
    "h800-deepseek",
    "h20-hgx",
    "dgx-b200",
    "dgx-b300",
    "gb200-nvl72",
    "dgx-a100",
    "mi300x-8",
    "l40s-8-pcie",
    "aws-p5",
    "aws-p5en",
    "azure-nd-h100-v5",
}


def value(profile: Hardware, path: str) -> object:
    found: object = profile
    for name in path.split("."):
        found = getattr(found, name)
    return found


def test_the_machines_that_were_asked_for_are_there() -> None:
    assert set(NAMES) >= WANTED


@pytest.mark.parametrize("name", NAMES)
def test_profile_is_complete_and_every_value_has_a_source(name: str) -> None:
    profile = read_hardware(name)
    check_sources(profile)
    assert profile.name == name
    assert profile.title not in ("", "custom")


@pytest.mark.parametrize("name", NAMES)
def test_sources_can_be_looked_up(name: str) -> None:
    profile = read_hardware(name)
    for key, source in profile.sources.items():
        assert not re.fullmatch(r"\W*\d+\W*", source), f"{key}: a number is no citation"
        assert len(source) > 12, f"{key}: too short to find anything by"
        if source.startswith("assumed"):
            assert source.startswith("assumed: "), f"{key}: an assumption says why"


@pytest.mark.parametrize("name", NAMES)
def test_sources_name_values_that_exist(name: str) -> None:
    profile = read_hardware(name)
    for key in profile.sources:
        value(profile, key)  # AttributeError for a misspelt key


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("dualpath-hopper", 1),  # 1x 400 / 400
        ("dgx-h100", 2),  # 2x 400 / 400
        ("dgx-h200", 2),
        ("dgx-b200", 2),
        ("dgx-b300", 1),  # 2x 400 / 800
        ("azure-nd-h100-v5", 0.2),  # 80 / 400
        ("gcp-a3-ultra", 1),  # 400 / 400
        ("nebius-b200", 0.5),  # 200 / 400
        ("gb300-nvl72", 0.5),  # 400 / 800
        ("h20-hgx", 2),  # 400 / (4x 400 / 8 GPUs)
        ("aws-p5", 101 / 50),  # 94 GiB/s = 101 GB/s over 3,200 Gb/s / 8 GPUs
        ("aws-p5en", 101 / 50),
    ],
)
def test_storage_ratio(name: str, ratio: float) -> None:
    assert storage_ratio(read_hardware(name)) == pytest.approx(ratio, rel=1e-12)


# figures as published: data sheets, user guides, instance pages
PUBLISHED = [
    ("dgx-h100", "gpu.flops.fp8", "1979TFLOPS", "FLOP/s"),
    ("dgx-h100", "gpu.hbm_bandwidth", "3.35TB/s", "B/s"),
    ("dgx-h100", "nvlink.bandwidth", "450GB/s", "B/s"),
    ("dgx-h100", "dram.bandwidth", "563.2GB/s", "B/s"),  # 2 x 8 x 8 B x 4.4e9
    ("dgx-h100", "cost.power", "10.2kW", "W"),
    ("dgx-h200", "gpu.hbm_capacity", "141GB", "B"),
    ("dgx-h200", "gpu.hbm_bandwidth", "4.8TB/s", "B/s"),
    ("h800-deepseek", "nvlink.bandwidth", "200GB/s", "B/s"),
    ("h20-hgx", "gpu.flops.bf16", "148TFLOPS", "FLOP/s"),
    ("h20-hgx", "gpu.hbm_bandwidth", "4TB/s", "B/s"),
    ("dgx-b200", "gpu.hbm_capacity", "180GB", "B"),
    ("dgx-b200", "gpu.flops.fp4", "9000TFLOPS", "FLOP/s"),
    ("dgx-b200", "cost.power", "14.3kW", "W"),
    ("dgx-b300", "cnic.rate", "800Gb/s", "B/s"),
    ("gb200-nvl72", "gpu.flops.fp8", "5000TFLOPS", "FLOP/s"),
    ("gb200-nvl72", "dram.bandwidth", "1TB/s", "B/s"),
    ("gb300-nvl72", "gpu.hbm_capacity", "279GB", "B"),
    ("dgx-a100", "gpu.flops.bf16", "312TFLOPS", "FLOP/s"),
    ("dgx-a100", "pcie.rate", "31.5GB/s", "B/s"),
    ("dgx-a100", "dram.bandwidth", "409.6GB/s", "B/s"),  # 2 x 8 x 8 B x 3.2e9
    ("mi300x-8", "gpu.hbm_bandwidth", "5.3TB/s", "B/s"),
    ("mi300x-8", "nvlink.bandwidth", "448GB/s", "B/s"),  # 7 x 64
    ("mi300x-8", "dram.bandwidth", "921.6GB/s", "B/s"),  # 2 x 12 x 38.4
    ("l40s-8-pcie", "gpu.hbm_bandwidth", "864GB/s", "B/s"),
    ("aws-p5", "dram.capacity", "2048GiB", "B"),
    ("aws-p5en", "cost.price_per_hour", "63.296USD/h", "USD/h"),
    ("azure-nd-h100-v5", "cost.price_per_hour", "98.32USD/h", "USD/h"),
    ("azure-nd-h100-v5", "dram.capacity", "1900GiB", "B"),
    ("gcp-a3-ultra", "cost.price_per_hour", "84.8069USD/h", "USD/h"),
]


@pytest.mark.parametrize(("name", "path", "text", "dimension"), PUBLISHED)
def test_published_figure(name: str, path: str, text: str, dimension: str) -> None:
    assert value(read_hardware(name), path) == pytest.approx(parse(text, dimension), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "cnics", "gpus", "domain"),
    [
        ("aws-p5", 32, 8, 8),
        ("aws-p5en", 16, 8, 8),
        ("h20-hgx", 4, 8, 8),
        ("l40s-8-pcie", 4, 8, None),
        ("gb200-nvl72", 4, 4, 72),
        ("gb300-nvl72", 4, 4, 72),
        ("dgx-b300", 8, 8, 8),
    ],
)
def test_nics_and_scale_up_domain(name: str, cnics: int, gpus: int, domain: int | None) -> None:
    profile = read_hardware(name)
    assert (profile.cnic.count, profile.gpu.count) == (cnics, gpus)
    assert (profile.nvlink.domain_gpus if profile.nvlink else None) == domain


@pytest.mark.parametrize("name", ["aws-p5", "aws-p5en", "l40s-8-pcie"])
def test_instances_without_a_storage_network_share_the_compute_nics(name: str) -> None:
    profile = read_hardware(name)
    assert profile.snic.shares_cnic
    # what one storage client reads has to fit the cards that carry it
    assert profile.snic.count * profile.snic.rate <= profile.cnic.count * profile.cnic.rate


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"aws-p5", "aws-p5en", "l40s-8-pcie"}))
def test_other_nodes_have_a_storage_network(name: str) -> None:
    profile = read_hardware(name)
    assert not profile.snic.shares_cnic
    # one NIC fits its slot: only a cap such as that of an AWS client may exceed one slot
    if profile.pcie.rate is not None:
        assert max(profile.cnic.rate, profile.snic.rate) <= profile.pcie.rate


@pytest.mark.parametrize("name", NAMES)
def test_orders_of_magnitude(name: str) -> None:
    profile = read_hardware(name)
    gpu = profile.gpu
    if gpu.flops.fp8 is not None:
        assert gpu.flops.fp8 == pytest.approx(2 * gpu.flops.bf16, rel=0.02)  # 362 and 733 on the L40S
    scale_up = [profile.nvlink.bandwidth] if profile.nvlink else []
    falling = [gpu.hbm_bandwidth, *scale_up, profile.cnic.rate]
    assert falling == sorted(falling, reverse=True)
    assert 40e9 < gpu.hbm_capacity < 300e9
    if profile.dram.bandwidth is not None:
        assert 350e9 < profile.dram.bandwidth <= 1e12
    if profile.cost.power is not None and gpu.power is not None:
        assert profile.cost.power > gpu.count * gpu.power


@pytest.mark.parametrize("name", ["azure-nd-h100-v5", "gcp-a3-ultra", "aws-p5en", "nebius-b200", "h20-hgx"])
def test_unknown_dram_bandwidth_is_left_out(name: str) -> None:
    assert read_hardware(name).dram.bandwidth is None


def test_no_profile_replaces_the_constants_of_the_roofline() -> None:
    for name in NAMES:
        assert not own_figures(read_hardware(name).efficiency), name


def test_rack_power_of_the_nvl72_is_spread_over_its_18_trays() -> None:
    assert read_hardware("gb200-nvl72").cost.power == pytest.approx(145e3 / 18, rel=1e-3)
    assert read_hardware("gb300-nvl72").cost.power == pytest.approx(142e3 / 18, rel=1e-3)


def test_price_of_own_costing_is_8_times_the_gpu_hour() -> None:
    assert read_hardware("h800-deepseek").cost.price_per_hour == 8 * 2
    assert read_hardware("mi300x-8").cost.price_per_hour == pytest.approx(8 * 1.71)


def test_h200_differs_from_h100_only_where_the_machines_differ() -> None:
    old, new = read_hardware("dgx-h100"), read_hardware("dgx-h200")
    assert (old.cnic, old.snic, old.dram, old.pcie, old.nvlink) == (new.cnic, new.snic, new.dram, new.pcie, new.nvlink)
    assert old.gpu.flops == new.gpu.flops
    assert old.gpu.hbm_capacity < new.gpu.hbm_capacity


def test_a100_pairs_share_an_uplink() -> None:
    uplink = read_hardware("dgx-a100").pcie.uplinks[0]
    assert (uplink.count, uplink.gpus, uplink.cnics, uplink.snics) == (4, 2, 2, 0)


def test_source_of_falls_back_to_the_section() -> None:
    profile = read_hardware("dualpath-hopper")
    assert source_of(profile, "gpu.count") == profile.sources["gpu"]
    assert source_of(profile, "gpu.flops.bf16") == profile.sources["gpu.flops"]
    assert source_of(profile, "nothing.here") is None
    assert unsourced(profile) == []
