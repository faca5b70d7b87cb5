"""Bounds of the two sides of a deployment against the answers of whole deployments."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

import dualplan
from dualplan.plan.purchase.side_bounds import Known, bounds
from dualplan.spec.hardware import read_hardware
from dualplan.spec.model import load_model
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import Slo
from dualplan.steady.grid import evaluate_grid

PAPER = Path(__file__).resolve().parents[2] / "examples" / "dualpath-paper.yaml"
MOST = 24


def scenario(prefill, decode, model=None, parallel=None, **changes):
    found = dualplan.load(PAPER)
    slo = Slo(ttft=changes.pop("ttft", 4.0), tpot=changes.pop("tpot", 0.05))
    settings = msgspec.structs.replace(found.settings, prefill_nodes=None, decode_nodes=None, slo=slo, **changes)
    found = msgspec.structs.replace(
        found,
        settings=settings,
        hardware=read_hardware(prefill),
        decode_hardware=read_hardware(decode),
        prefill_parallel=parallel,
    )
    return found if model is None else msgspec.structs.replace(found, model=load_model(model))


CASES = {
    "fitted": scenario("dualpath-hopper", "dualpath-hopper"),
    "fitted basic": scenario("dualpath-hopper", "dualpath-hopper", mode="basic"),
    "shared NICs": scenario("aws-p5", "aws-p5en"),
    "two kinds": scenario("dgx-b200", "h20-hgx", staging="gpudirect"),
    "gds": scenario("dgx-h100", "dgx-b300", staging="gds", persist="prefill"),
    "dense": scenario("mi300x-8", "l40s-8-pcie", model="llama-3.1-70b", mode="split-read"),
    "weights do not fit": scenario("l40s-8-pcie", "dgx-h200"),
    "pool": scenario("dgx-h200", "dgx-h200", mode="dram-pool", pool_share=0.5, copy="engine"),
    "oracle": scenario("dgx-h100", "dgx-h200", mode="oracle"),
    "given parallelism": scenario("dgx-h200", "dgx-h200", parallel=Parallel(ep=16, dp=16)),
    "given that nothing hosts": scenario("dgx-h200", "dgx-h200", parallel=Parallel(ep=3, tp=3, dp=7)),
    "no time to first token": scenario("dgx-h200", "dgx-h100", ttft=1e-3),
    "no time per token": scenario("dgx-h100", "dgx-h200", tpot=1e-3),
    "given collectives": scenario("dgx-h100", "dgx-h100", collective_load=0.3),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds_refuse_nothing_that_a_point_does(name):
    prefill, decode = (counts.ravel() for counts in np.mgrid[1 : MOST + 1, 1 : MOST + 1])
    found = bounds(CASES[name], prefill, decode, Known())
    exact = evaluate_grid(CASES[name], prefill, decode, basic=False)
    assert (found.error == exact.error).all()
    assert (found.fits == exact.fits).all()
    hosted = exact.error == ""
    assert (found.turns_per_s >= exact.turns_per_s)[hosted].all()
    assert (found.maybe_slo | ~exact.meets_slo)[hosted].all()
    assert (found.maybe_inside | ~exact.inside_range)[hosted].all()


def test_bounds_decide_most_points():
    # the range and the memory of sides are exact, and the rate is within a factor of two where storage or compute binds
    prefill, decode = (counts.ravel() for counts in np.mgrid[1 : MOST + 1, 1 : MOST + 1])
    case = CASES["two kinds"]
    found, exact = bounds(case, prefill, decode, Known()), evaluate_grid(case, prefill, decode, basic=False)
    assert (found.maybe_inside == exact.inside_range).all()
    fits = exact.fits
    assert np.median(found.turns_per_s[fits] / exact.turns_per_s[fits]) < 2


def test_what_is_known_of_a_side_serves_every_partner():
    known, counts = Known(), np.arange(1, MOST + 1)
    pairs = [(a, b) for a in ("dgx-h100", "aws-p5", "dgx-b200") for b in ("dgx-h100", "aws-p5", "dgx-b200")]
    for one, other in pairs:
        shared, alone = (bounds(scenario(one, other), counts, counts, k) for k in (known, Known()))
        assert (shared.turns_per_s == alone.turns_per_s).all()
        assert (shared.fits == alone.fits).all() and (shared.maybe_inside == alone.maybe_inside).all()
