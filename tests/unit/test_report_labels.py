"""The table of words of a report: both languages complete, nothing missing, nothing unused."""

import re
from pathlib import Path
from string import Formatter

import pytest

import dualplan.report
from dualplan.model.traffic import SIDES, steps
from dualplan.plan.explain.equation import GROUPS
from dualplan.report.capacity_review.labels import LANGUAGES, Labels, table
from dualplan.spec.choices import MODES
from dualplan.steady.resources import TITLES

FOLDER = Path(dualplan.report.__file__).parent
SOURCES = [
    source
    for folder in ("capacity_review", "renderers")
    for source in (*FOLDER.glob(f"{folder}/*.py"), *FOLDER.glob(f"{folder}/report.*"))
]
LITERAL = re.compile(r"""(?:say|labels?)[(\[]\s*f?["']([^"']+)["']""")


def fields(text):
    return {name for _, name, *_ in Formatter().parse(text) if name is not None}


def test_every_key_has_a_text_in_every_language_with_the_same_values():
    for key, row in table().items():
        assert set(row) == set(LANGUAGES), key
        assert all(isinstance(text, str) for text in row.values()), key
        assert fields(row["en"]) == fields(row["zh"]), key


def test_chinese_texts_are_chinese_unless_they_are_terms():
    terms = re.compile(r"[A-Za-z/{}_#0-9 .,;:()、；。]*")
    for key, row in table().items():
        assert re.search("[\u4e00-\u9fff]", row["zh"]) or terms.fullmatch(row["zh"]), (key, row["zh"])


def patterns():
    """Keys as the code names them; parts in braces stand for anything."""
    found = set()
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        found |= set(LITERAL.findall(text))
        # keys that are handed on before they are said
        found |= set(re.findall(r'"((?:range|risk|cost|answer|simulation|compare)\.[a-z_0-9]+)"', text))
    return found


def test_every_key_that_the_code_names_exists():
    for pattern in patterns():
        matching = re.compile(re.sub(r"\\\{.*?\\\}", ".+", re.escape(pattern)))
        assert any(matching.fullmatch(key) for key in table()), pattern


def test_every_key_is_named_by_the_code():
    matching = [re.compile(re.sub(r"\\\{.*?\\\}", ".+", re.escape(pattern))) for pattern in patterns()]
    unused = [key for key in table() if not any(one.fullmatch(key) for one in matching)]
    assert unused == []


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
