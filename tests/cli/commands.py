"""One small call of every command, on files of this repository: what tests of all commands run over."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.cli.runner import PAPER, ROOT

_CORPUS = ROOT / "tests" / "fuzz" / "corpus"
BLOCKS = str(_CORPUS / "trace" / "mooncake.jsonl")
TRACE = str(_CORPUS / "trace" / "own.jsonl")


class Call(NamedTuple):
    """``arguments`` behind the command's name. ``writes``: whether it has ``-o``. ``code``: how it ends.

    ``slow``: takes seconds, so it is left out where its call would say the same as those of the quick commands.
    """

    arguments: tuple[str, ...] = ()
    writes: bool = True
    code: int = 0
    slow: bool = False


CALLS: dict[str, Call] = {
    "feasible": Call((PAPER,)),
    "simulate": Call((PAPER, "--agents", "4"), slow=True),
    "sweep": Call((PAPER, "--vary", "pd=1:2,2:1", "--nodes", "6")),
    "plan": Call((PAPER, "--arrival-rate", "0.2", "--max-nodes", "8")),
    "compare": Call((PAPER, PAPER)),
    "explain": Call((PAPER, "hit"), slow=True),
    "report": Call((PAPER, "-f", "md", "-o", "-"), slow=True),
    "ratio": Call(("qwen2.5-32b", "--context", "16384")),
    "validate": Call(("--only", "range"), slow=True),
    "calibrate": Call((PAPER, "--measurements", str(_CORPUS / "measurements" / "reads.csv")), slow=True),
    "flow": Call((str(_CORPUS / "flowcase" / "shared.json"),)),
    "qos": Call((str(_CORPUS / "qos" / "opensm.conf"), "--kv-lane", "2")),
    "init": Call(("--force",)),
    "size working-set": Call((PAPER, "--arrival-rate", "0.4")),
    "size store": Call((PAPER, "--arrival-rate", "0.4")),
    "size break-even": Call((PAPER,)),
    "size pool": Call((PAPER, "--trace", BLOCKS, "--capacity", "2TB")),
    "size wan": Call((PAPER, "--bandwidth", "10Gb/s")),
    "scenario schema": Call(),
    "hardware list": Call(),
    "hardware show": Call(("dualpath-hopper",)),
    "hardware schema": Call(),
    "hardware import": Call((str(_CORPUS / "topology" / "matrix.txt"),)),
    "model list": Call(),
    "model show": Call((str(_CORPUS / "model" / "gqa.json"),)),
    "workload list": Call(),
    "workload show": Call((str(_CORPUS / "workload" / "published.yaml"),)),
    "trace inspect": Call((TRACE,)),
    "trace convert": Call((TRACE, "-", "--to", "dualplan"), writes=False),
    "trace fit": Call((TRACE,), slow=True),
    "trace generate": Call((str(_CORPUS / "workload" / "plain.yaml"), "-n", "3")),
}


def command_line(name: str) -> list[str]:
    """The words of one call."""
    return [*name.split(), *CALLS[name].arguments]


def files(name: str) -> list[str]:
    """The input files among the arguments of a call."""
    return [word for word in CALLS[name].arguments if "/" in word and Path(word).is_file()]
