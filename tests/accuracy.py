"""The accuracy table of the README: ``python -m tests.accuracy`` computes it anew and writes it."""

import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- accuracy: written by python -m tests.accuracy -->\n", "<!-- end of accuracy -->\n"


def table(markdown: str) -> str:
    """The summary of ``validate -f md``: its first table."""
    lines = markdown.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    last = next(number for number, line in enumerate([*lines[first:], ""]) if not line.startswith("|"))
    return "\n".join(lines[first : first + last]) + "\n"


def block(readme: str) -> str:
    """The table that a README holds."""
    return readme.split(BEGIN)[1].split(END)[0]


def main() -> None:
    """Write the table."""
    command = [sys.executable, "-m", "dualplan", "validate", "-f", "md", "--exit-zero"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    README.write_text(before + BEGIN + table(done.stdout) + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
