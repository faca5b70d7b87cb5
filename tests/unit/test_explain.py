"""Equations of an answer: the values of ``feasible``, and texts, LaTeX and MathML that say the same."""

import math
import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dualplan
from dualplan.errors import InputError
from dualplan.plan.explain.derivations import equations
from dualplan.plan.explain.equation import GROUPS
from dualplan.steady.answer import evaluate

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "examples" / "dualpath-paper.yaml"
CASES = [
    (),
    ("mode=dram-pool", "residency=0.25"),
    ("mode=basic", "collective_load=0.3"),
    ("mode=split-read", "staging=gpudirect", "persist=prefill"),
    ("staging=gds", "copy=engine"),
    ("mode=oracle",),
    ("hardware=aws-p5", "workload=claude-code-weka"),
    ("hardware=h20-hgx", "model=llama-3.1-70b", "decode_hardware=dgx-h200"),
    ("hardware=l40s-8-pcie", "model=qwen2.5-32b", "workload=dualpath-32k"),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda sets: " ".join(sets) or "paper")
def case(request):
    scenario = dualplan.load(PAPER, request.param)
    return evaluate(scenario), equations(scenario)


def test_values_are_those_of_the_answer(case):
    answer, found = case
    for kind, skipped in (("load", ("turns/s",)), ("capacity", ())):
        expected = [(load.name, getattr(load, kind)) for load in answer.loads if load.unit not in skipped]
        values = [(e.name, e.value) for e in found if e.kind == kind]
        assert [name for name, _ in values] == [name for name, _ in expected]
        assert [value for _, value in values] == pytest.approx([value for _, value in expected], rel=1e-8)
    single = {e.name: e.value for e in found if e.kind == "value"}
    if answer.turns_per_s:
        assert single["turns_per_s"] == pytest.approx(answer.turns_per_s)
        assert single["tpot_s"] == pytest.approx(answer.tpot_s)
        assert single["ttft_unloaded_s"] == pytest.approx(answer.ttft_unloaded_s)
    assert single["pair_traffic_prefill_read"] == pytest.approx(answer.pair_traffic[0])
    assert single["pair_traffic_decode_read"] == pytest.approx(answer.pair_traffic[1])
    ends = answer.ranges.all_traffic
    bounds = {e.name: Fraction(e.exact) for e in found if e.kind == "bound"}
    if not ends.empty_because:
        assert ends.lower is None or bounds[ends.lower_constraints[0]] == ends.lower
        assert ends.upper is None or bounds[ends.upper_constraints[0]] == ends.upper


def test_the_text_gives_the_value_when_its_symbols_are_put_in(case):
    _, found = case
    for equation in found:
        right = equation.text.split(f" {equation.relation} ", 1)[1]
        if not equation.inputs or right.endswith((" B", "B/s", " ms", " s", " us")):
            continue
        code = right.replace("·", "*").replace("^", "**")
        code = re.sub(r"(\d),(?=\d{3})", r"\1", code)
        values = {entry.symbol: entry.value for entry in equation.inputs}
        result = eval(code, {"__builtins__": {}, "sqrt": math.sqrt}, values)
        # numbers in the text have four digits
        assert result == pytest.approx(equation.value, rel=5e-3, abs=1e-9), equation.text


def test_latex_and_mathml_are_well_formed(case):
    _, found = case
    for equation in found:
        root = ElementTree.fromstring(equation.mathml)
        assert root.tag == "{http://www.w3.org/1998/Math/MathML}math"
        for text in (equation.latex, equation.substituted_latex):
            assert text.count("{") == text.count("}") and text.isascii(), text
            assert text.count(r"\left") == text.count(r"\right")
        assert equation.group in GROUPS and equation.title and equation.source


def test_a_resource_names_the_rows_of_the_step_table_that_charge_it():
    found = {(e.name, e.kind): e for e in equations(dualplan.load(PAPER, ["collective_load=0"]))}
    load = found["decode_cnic_write", "load"]
    prefill_read, decode_read = (
        next(line for line in map(str, load.derivation) if line.startswith(f"a turn read on the {side} side"))
        for side in ("prefill", "decode")
    )
    assert re.findall(r"step (\S+),", prefill_read) == ["7", "9", "w2"]
    assert re.findall(r"step (\S+),", decode_read) == ["r3", "7", "w2"]
    bound = found["decode_dram", "bound"]
    assert any("with hit bytes alone" in line and line.endswith("3.5") for line in map(str, bound.derivation))
    assert found["prefill_cnic_write", "bound"].exact == "1/7"


def test_node_counts_are_needed():
    import msgspec

    scenario = dualplan.load(PAPER)
    settings = msgspec.structs.replace(scenario.settings, prefill_nodes=None)
    with pytest.raises(InputError, match="prefill_nodes: missing"):
        equations(msgspec.structs.replace(scenario, settings=settings))
