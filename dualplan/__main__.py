"""``dualplan`` and ``python -m dualplan``."""

import signal
import sys
from types import FrameType


def main() -> None:
    """Entry point; an interruption while modules still load ends as quietly as a later one."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it, and so do we
            signal.signal(number, _stop)
    try:
        from dualplan.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _stop(number: int, frame: FrameType | None) -> None:
    """End by way of the ``finally`` clauses, which remove half-written files."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
