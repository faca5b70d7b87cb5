"""The words of a report: whatever the plan can name has some, and they are those of the terminal."""

import pytest

from dualplan.messages import LANGUAGES
from dualplan.model.traffic import SIDES, steps
from dualplan.plan.explain.equation import GROUPS
from dualplan.report.capacity_review.labels import Labels
from dualplan.spec.choices import MODES
from dualplan.steady.resources import TITLES


@pytest.mark.parametrize("language", LANGUAGES)
def test_whatever_the_plan_can_name_has_words(language):
    labels = Labels(language)
    for name in TITLES:
        assert labels[f"resource.{name}"]
    for mode in MODES:
        assert labels[f"mode.{mode}"]
    for group in GROUPS:
        assert labels[f"equations.{group}"]
    for staging in ("host", "gpudirect", "gds"):
        for mode in MODES:
            for rows in steps(mode, staging=staging).values():
                for step in rows:
                    assert labels[f"place.{step.source}"] and labels[f"place.{step.target}"]
    for side in SIDES:
        assert labels[f"links.{side}_nodes"]


def test_english_names_of_resources_are_those_of_the_terminal():
    labels = Labels("en")
    assert {name: labels[f"resource.{name}"] for name in TITLES} == TITLES


def test_english_groups_of_equations_are_those_of_explain():
    labels = Labels("en")
    assert {name: labels[f"equations.{name}"] for name in GROUPS} == GROUPS
