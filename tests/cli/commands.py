"""One small call of every command, on files of this repository: what tests of all commands run over."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.cli.runner import PAPER, ROOT

_CORPUS = ROOT / "tests" / "fuzz" / "corpus"
TRACE = str(_CORPUS / "trace" / "own.jsonl")


class Call(NamedTuple):
    """``arguments`` behind the command's name. ``writes``: whether it has ``-o``. ``code``: how it ends."""

    arguments: tuple[str, ...] = ()
    writes: bool = True
    code: int = 0


CALLS: dict[str, Call] = {
    "feasible": Call((PAPER,)),
    "simulate": Call((PAPER, "--agents", "4")),
    "ratio": Call(("qwen2.5-32b", "--context", "16384")),
    "flow": Call((str(_CORPUS / "flowcase" / "shared.json"),)),
    "qos": Call((str(_CORPUS / "qos" / "opensm.conf"), "--kv-lane", "2")),
    "init": Call(("--force",)),
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
    "trace fit": Call((TRACE,)),
    "trace generate": Call(("dualpath-32k", "-n", "3")),
}


def command_line(name: str) -> list[str]:
    """The words of one call."""
    return [*name.split(), *CALLS[name].arguments]


def files(name: str) -> list[str]:
    """The input files among the arguments of a call."""
    return [word for word in CALLS[name].arguments if "/" in word and Path(word).is_file()]
