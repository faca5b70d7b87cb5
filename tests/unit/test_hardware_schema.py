"""The JSON Schema for editors and the reader agree: on every shipped profile, on variants, and on mistakes."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dualplan.cli.hardware import profile_schema
from dualplan.errors import InputError
from dualplan.spec.hardware import KIND, read_hardware, resolve
from dualplan.spec.load import Node, shipped_dir, shipped_names

NAMES = shipped_names(KIND, ".yaml")
SCHEMA = profile_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def shipped(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((shipped_dir(KIND) / f"{name}.yaml").read_text()))


def plain(node: Node) -> Any:
    """A resolved tree as a YAML reader would give it."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value if node.quoted or node.value is None else yaml.safe_load(node.value)


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(json.dumps(SCHEMA)))


@pytest.mark.parametrize("name", NAMES)
def test_shipped_files_as_they_are_written(name: str) -> None:
    VALIDATOR.validate(shipped(name))


@pytest.mark.parametrize("name", NAMES)
def test_shipped_files_with_extends_followed(name: str) -> None:
    document = plain(resolve(Node(name, name), where=name))
    assert "extends" not in document
    VALIDATOR.validate(document)


def without(document: dict[str, Any], path: str) -> dict[str, Any]:
    *sections, last = path.split(".")
    inner = document
    for name in sections:
        inner = inner[name]
    del inner[last]
    return document


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *sections, last = path.split(".")
    inner = document
    for name in sections:
        inner = inner.setdefault(name, {})
    inner[last] = value
    return document


def reads(document: dict[str, Any], folder: Path) -> bool:
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(document))
    try:
        read_hardware(str(path))
    except InputError:
        return False
    return True


@pytest.mark.parametrize(
    "path",
    [
        *("gpu", "cnic", "snic", "dram", "pcie"),
        *("gpu.kind", "gpu.flops", "gpu.flops.bf16", "cnic.rate", "snic.count"),
        *("pcie.generation", "nvlink.domain_gpus", "copy.engine"),
    ],
)
def test_what_is_required_without_a_parent_may_be_left_to_one(path: str, tmp_path: Path) -> None:
    document = without(shipped("dgx-h100"), path)
    assert not VALIDATOR.is_valid(document)
    assert not reads(document, tmp_path)
    document["extends"] = "dgx-h100"
    assert VALIDATOR.is_valid(document)
    assert reads(document, tmp_path)


@pytest.mark.parametrize(
    "path", ["name", "title", "nvlink", "copy", "cost", "sources", "notes", "snic.efficiency", "efficiency"]
)
def test_what_has_a_default_may_be_left_out(path: str, tmp_path: Path) -> None:
    document = without(shipped("dgx-h100"), path)
    assert VALIDATOR.is_valid(document)
    assert reads(document, tmp_path)


WRONG = [
    ("gpus", 8),
    ("gpu.cont", 8),
    ("gpu.count", 0),
    ("gpu.count", "eight"),
    ("gpu.count", 2.5),
    ("gpu.hbm_capacity", "lots"),
    ("gpu.hbm_capacity", ["80GB"]),
    ("gpu.flops", "989TFLOPS"),
    ("cnic.rate", {"value": "400Gb/s"}),
    ("cnic.efficiency", 1.5),
    ("snic.shares_cnic", "perhaps"),
    ("efficiency.prefill", 0),
    ("pcie.uplinks", [{"count": 4}]),
    ("pcie.uplinks", [{"rate": "63GB/s", "gpu": 2}]),
    ("notes", "one text"),
    ("sources", ["NVIDIA"]),
    ("extends", ["dgx-h100"]),
]


@pytest.mark.parametrize(("path", "value"), WRONG)
@pytest.mark.parametrize("start", ["dgx-h100", "dgx-h200"])
def test_mistakes_are_refused_in_profiles_and_in_variants(start: str, path: str, value: Any, tmp_path: Path) -> None:
    document = changed(shipped(start), path, value)
    assert not VALIDATOR.is_valid(document)
    assert not reads(document, tmp_path)


def test_unknown_stays_unknown(tmp_path: Path) -> None:
    document = changed(shipped("dgx-h100"), "dram.bandwidth", None)
    assert VALIDATOR.is_valid(document)
    assert reads(document, tmp_path)
