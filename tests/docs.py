"""The documents: which there are, the shell blocks in them, and ``examples/docs/commands.md`` from the help texts.

``python -m tests.docs`` writes commands.md anew.

Above a block a comment may say what the test has to know: ``<!-- not run: why -->``. A line that ends in
``# ends with 4`` has that exit code, all others 0.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "examples" / "docs" / "commands.md"
DOCUMENTS = (
    ROOT / "README.md",
    *sorted((ROOT / "examples" / "docs").glob("*.md")),
    ROOT / ".github" / "CONTRIBUTING.md",
)

_BLOCK = re.compile(
    r"(?:<!-- (?P<comment>[^\n]*) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_END = re.compile(r"<<'(\w+)'$", re.MULTILINE)
_EXIT = re.compile(r"\s+# ends with (\d+)$")


class Block(NamedTuple):
    """A fenced block: the comment above it, its language and text, and the line it starts at."""

    document: Path
    line: int
    comment: str
    language: str
    text: str


class Command(NamedTuple):
    """One command of a block, continuation lines joined, and the exit code that it states."""

    text: str
    code: int


def blocks(document: Path) -> Iterator[Block]:
    """The fenced blocks of a document in order."""
    text = document.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        yield Block(document, line, match["comment"] or "", match["language"], match["text"])


def commands(block: Block) -> list[Command]:
    """The commands of a shell block; a loop and a here-document, which span lines, are one command."""
    found: list[Command] = []
    pending = ""
    for line in block.text.replace("\\\n", " ").splitlines():
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        pending += ("\n" if pending else "") + line
        end = _END.search(pending)
        if (pending.startswith("for ") and line.strip() != "done") or (end and line.strip() != end[1]):
            continue
        code = _EXIT.search(pending)
        found.append(Command(_EXIT.sub("", pending), int(code[1]) if code else 0))
        pending = ""
    return found


def examples() -> list[tuple[str, str]]:
    """Every command by name, groups included, with the example of its help."""
    from dualplan.cli import app

    entries = {**app.COMMANDS}
    for group, (_, inner) in app.GROUPS.items():
        entries |= {f"{group} {name}": entry for name, entry in inner.items()}
    return [(name, entry.example) for name, entry in entries.items()]


def command_reference() -> str:
    """commands.md: the help of every command, in the order of the help."""
    from tests.cli.runner import in_process

    names = [name for name, _ in examples()]
    lines = [
        "# Commands",
        "",
        "What `--help` says, written by `python -m tests.docs`. Exit codes: 0 yes or done, 1 unexpected",
        "failure, 2 wrong usage, 3 bad input, 4 infeasible or SLO missed (the answer is printed), 5 no convergence,",
        "130 interrupted.",
        "",
        " · ".join(f"[{name}](#{name.replace(' ', '-')})" for name in names),
    ]
    for name in names:
        lines += ["", f"## {name}", "", "```text", in_process(*name.split(), "--help").stdout.strip(), "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import os

    os.environ["COLUMNS"] = "80"
    REFERENCE.write_text(command_reference())
    sys.exit(0)
