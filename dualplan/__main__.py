"""``dualplan`` and ``python -m dualplan``."""

import sys


def main() -> None:
    """Entry point; an interruption while modules still load ends as quietly as a later one."""
    try:
        from dualplan.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
