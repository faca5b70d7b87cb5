"""All checks, as CI runs them: lint, format, types, import contract, tests. ``python -m tests``; arguments go to
pytest.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
    "import contract": ["lint-imports"],
}


def main() -> int:
    failed = []
    for name, command in CHECKS.items():
        print(f"== {name}: {' '.join(command)}", flush=True)
        tool = Path(sys.executable).parent / command[0]
        if subprocess.run([str(tool), *command[1:]], cwd=ROOT, check=False).returncode:
            failed.append(name)
    print("== tests: pytest", flush=True)
    if subprocess.run([sys.executable, "-m", "pytest", "-n", "2", *sys.argv[1:]], cwd=ROOT, check=False).returncode:
        failed.append("tests")
    if failed:
        print("failed: " + ", ".join(failed), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
