"""What a newcomer reads first: the lists of commands, and what is said to a call that lacks something."""

import pytest

from dualplan.cli.app import COMMANDS, GROUPS
from tests.cli.runner import dualplan, in_process

LISTS = [((), {**COMMANDS, **GROUPS}), *(((group,), inner) for group, (_, inner) in GROUPS.items())]


def listed(arguments):
    """The lines below Commands."""
    text = in_process(*arguments, "--help").stdout
    return text.partition("Commands:\n")[2].splitlines()


@pytest.mark.parametrize(("arguments", "names"), LISTS)
def test_every_summary_takes_one_line_of_80_columns(arguments, names, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = listed(arguments)
    assert [line.split()[0] for line in lines] == list(names)
    for line in lines:
        assert len(line) <= 80 and line.endswith(".") and not line.endswith("..") and "…" not in line


@pytest.mark.parametrize("columns", ["60", "40"])
@pytest.mark.parametrize(("arguments", "names"), LISTS)
def test_narrow_terminals_wrap_summaries_whole(arguments, names, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    whole = " ".join(" ".join(listed(arguments)).split())
    monkeypatch.setenv("COLUMNS", columns)
    lines = listed(arguments)
    # the option parser makes its help no narrower than 50 columns
    assert all(len(line) <= max(int(columns), 52) for line in lines)
    assert " ".join(" ".join(lines).split()) == whole


@pytest.mark.parametrize(
    ("arguments", "missing", "example"),
    [
        (("size", "pool", "my.yaml"), "--trace", "dualplan size pool my.yaml --trace trace.jsonl"),
        (("size", "wan", "my.yaml"), "--bandwidth", "dualplan size wan my.yaml --bandwidth 10Gb/s"),
        (("calibrate", "my.yaml"), "--measurements", "dualplan calibrate my.yaml --measurements"),
        (("flow",), "FILE", "dualplan flow case.json"),
        (("trace", "convert", "a.jsonl"), "OUT", "dualplan trace convert trace.jsonl out.jsonl.gz"),
    ],
)
def test_what_is_missing_is_said_with_an_example(arguments, missing, example):
    done = dualplan(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    line = done.stderr.splitlines()[-1]
    assert missing in line and f"Example: {example}" in line


def test_every_help_ends_with_its_example():
    for name, entry in COMMANDS.items():
        assert " ".join(in_process(name, "--help").stdout.split()).endswith(f"Example: {entry.example}")
