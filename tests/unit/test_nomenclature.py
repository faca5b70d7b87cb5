import inspect
from pathlib import Path

import dualplan
from dualplan.model import closed_form
from dualplan.nomenclature import QUANTITIES
from dualplan.report.feasible_document import document
from dualplan.report.output import clean
from dualplan.units import UNITS

ROOT = Path(__file__).resolve().parents[2]


def numbers(value, name=""):
    """Names of all numbers of a JSON document."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from numbers(child, key)
    elif isinstance(value, list):
        for child in value:
            yield from numbers(child, name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name


def test_every_number_of_feasible_is_a_named_quantity():
    scenario = dualplan.load(ROOT / "examples" / "dualpath-paper.yaml", ["demand.arrival_rate=0.1"])
    assert set(numbers(clean(document(dualplan.evaluate(scenario))))) <= set(QUANTITIES)


def test_arguments_of_the_closed_form_are_named_quantities():
    for name, function in inspect.getmembers(closed_form, inspect.isfunction):
        if function.__module__ != closed_form.__name__ or name == "feasible_range":
            continue
        known = set(QUANTITIES) | {"prefill_gpus", "decode_gpus", "storage"}
        assert set(inspect.signature(function).parameters) <= known, name


def test_units_are_known():
    known = {dimension for dimension, _ in UNITS.values()} | {"1/s", "tokens", "FLOP", ""}
    assert {quantity.unit for quantity in QUANTITIES.values()} <= known
    assert all(quantity.meaning and quantity.source for quantity in QUANTITIES.values())
