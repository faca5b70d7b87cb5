"""Every command in the documents is run, every link leads somewhere, and the command reference is that of --help."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runner import ROOT, in_process
from tests.docs import DOCUMENTS, REFERENCE, blocks, command_reference, commands, examples

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
FILES = {
    "trace.jsonl": CORPUS / "trace" / "own.jsonl",
    "path/to/config.json": CORPUS / "model" / "mla-moe.json",
    "opensm.conf": CORPUS / "qos" / "opensm.conf",
    "topo.txt": CORPUS / "topology" / "matrix.txt",
    "ibstat.txt": CORPUS / "topology" / "ibstat.txt",
}
"""Files of a user that the documents speak of, and what stands in for them."""

HELP_FILES = {
    **FILES,
    "case.json": CORPUS / "flowcase" / "shared.json",
    "measured.csv": CORPUS / "measurements" / "reads.csv",
    "my.yaml": ROOT / "examples" / "dualpath-paper.yaml",
    "other.yaml": ROOT / "examples" / "dualpath-paper.yaml",
}
"""Files that the examples of the help speak of."""

BLOCKS = {
    document: [block for block in blocks(document) if block.language in ("sh", "python")] for document in DOCUMENTS
}
SHELL = re.compile(r"[|<>$;&\n]|^(?!dualplan )")


@pytest.fixture
def desk(tmp_path):
    """A folder that looks like a checkout, with the files of a user beside, and ``dualplan`` and ``python`` to call."""
    folder = tmp_path / "desk"
    for name in ("examples", "hardware_profiles", "workloads"):
        shutil.copytree(ROOT / name, folder / name)
    for name, source in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name)
    (folder / "bin").mkdir()
    for name, call in (("dualplan", "-m dualplan"), ("python", "")):
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    "document", [document for document in DOCUMENTS if BLOCKS[document]], ids=lambda path: path.name
)
def test_commands_of_the_documents(document, desk, monkeypatch):
    """All commands of a document, one after the other, as a reader does who starts at its top in a fresh checkout."""
    for block in BLOCKS[document]:
        run(block, desk, monkeypatch)


def run(block, desk, monkeypatch):
    """Run the commands of a block, each of which ends as it says."""
    if block.comment.startswith(("not run: ", "test command")):
        # the test command is what runs this; others say why
        assert block.comment == "test command" or len(block.comment) > len("not run: ") + 10
        return
    monkeypatch.chdir(desk)
    if block.language == "python":
        subprocess.run([sys.executable, "-c", block.text], env=environment(desk), check=True, capture_output=True)
        return
    for text, code in commands(block):
        command = re.sub(r"(?<!\S)\.venv/bin/(?=dualplan |python )", "", text)
        assert not re.search(r"\bpip\b", command), "blocks that install carry a comment <!-- not run: why -->"
        if SHELL.search(command):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                env=environment(desk),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        else:
            words = shlex.split(command, comments=True)
            done = in_process(*words[1:])
        assert done.returncode == code, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name, example", [pytest.param(*pair, id=pair[0]) for pair in examples()])
def test_examples_of_the_help(name, example, tmp_path, monkeypatch):
    assert example.startswith(f"dualplan {name}") and len(example) <= 68, "the line of the help has room for 68"
    monkeypatch.chdir(tmp_path)
    words = shlex.split(example)
    for file, source in HELP_FILES.items():
        if file in words and words[words.index(file) - 1] != "-o":
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, file)
    done = in_process(*words[1:])
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def environment(desk):
    path = f"{desk / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}


def test_every_document_has_commands_that_are_run():
    shown = {document.name for document, found in BLOCKS.items() if found}
    assert {"README.md", "quickstart.md", "faq.md", "hardware-profile.md", "trace.md", "CONTRIBUTING.md"} <= shown
    found = [block for document in DOCUMENTS for block in BLOCKS[document]]
    assert sum(not block.comment.startswith("not run") for block in found) > 0.7 * len(found)


def test_the_tour_is_run_whole_and_passes_most_commands():
    tour = next(document for document in DOCUMENTS if document.name == "quickstart.md")
    assert not any(block.comment for block in BLOCKS[tour])
    called = {command.text.split()[1] for block in BLOCKS[tour] for command in commands(block)}
    wanted = {"init", "feasible", "explain", "sweep", "compare", "size", "plan", "simulate", "report"}
    assert wanted <= called
    report = next(command.text for block in BLOCKS[tour] for command in commands(block) if " report " in command.text)
    assert "--arrival-rate" in report


def test_command_reference_is_that_of_help(monkeypatch):
    """Written by ``python -m tests.docs``; line breaks may differ."""
    monkeypatch.setenv("COLUMNS", "80")
    assert REFERENCE.read_text().split() == command_reference().split()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = re.sub(r"```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "#")):
            continue
        path, _, anchor = target.partition("#")
        assert (document.parent / path).exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", (document.parent / path).read_text(), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
            }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_commands_that_are_named_exist(document):
    from dualplan.cli.app import COMMANDS, GROUPS

    text = document.read_text()
    for name in re.findall(r"`((?:dualplan|tests|hardware_profiles|workloads|examples)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
    known = {*COMMANDS, *GROUPS}
    for name in re.findall(r"`dualplan ([a-z]+)", text):
        assert name in known, name
