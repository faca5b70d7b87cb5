"""The published cache-compute table, in the paper's convention and in the physical formats."""

import json
from importlib.resources import files

import pytest

from dualplan.model import compute, kv
from dualplan.spec.model import load_model

# GB of KV-cache per PFLOP, append 429 (DualPath, table 1)
PUBLISHED = {
    ("qwen2.5-32b", 16_384): (117, 0.02),
    ("qwen2.5-32b", 65_536): (267, 0.02),
    ("gpt-oss-120b", 16_384): (47, 0.02),
    ("gpt-oss-120b", 65_536): (95, 0.02),
    ("qwen3-235b-a22b", 16_384): (39, 0.02),
    ("qwen3-235b-a22b", 65_536): (60, 0.02),
    ("deepseek-v3.2", 16_384): (13, 0.06),
    ("deepseek-v3.2", 32_721): (22, 0.06),
    ("deepseek-v3.2", 65_536): (36, 0.06),
    ("deepseek-v3", 16_384): (4.8, 0.06),
    ("deepseek-v3", 65_536): (5.8, 0.06),
}


def ratio(name, context, form=None, append=429):
    model = load_model(name)
    form = form or kv.paper_format(model)
    flops = compute.turn_flops(model, append, context).total
    return compute.cache_compute_ratio(kv.kv_total_bytes_per_token(model, form) * context, flops)


@pytest.mark.parametrize(("name", "context"), sorted(PUBLISHED))
def test_published_rows(name, context):
    expected, tolerance = PUBLISHED[name, context]
    assert ratio(name, context) == pytest.approx(expected, rel=tolerance)


def test_why_the_paper_has_a_convention_of_its_own():
    """The physical formats miss: 788 B on V3.2 by 13 to 18 %, 656 B on V3 by 10 to 11 %."""
    for context in (16_384, 65_536):
        v32 = ratio("deepseek-v3.2", context, "fp8") / PUBLISHED["deepseek-v3.2", context][0] - 1
        v3 = ratio("deepseek-v3", context, "fp8") / PUBLISHED["deepseek-v3", context][0] - 1
        assert 0.11 < v32 < 0.19
        assert -0.12 < v3 < -0.09


def test_shipped_table_is_the_published_one():
    table = json.loads((files("dualplan.data") / "cache_compute_ratio.json").read_text("utf-8"))
    assert {(row["model"], row["context"]): row["gb_per_pflop"] for row in table["rows"]} == {
        key: value for key, (value, _) in PUBLISHED.items()
    }


def test_arithmetic():
    assert compute.cache_compute_ratio(2e9, 1e15) == 2
    assert compute.cache_compute_ratio(1e9, 4e15) == 0.25
