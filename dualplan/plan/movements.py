"""What each row of the step table carries at the predicted rate, link by link, of both read paths."""

from __future__ import annotations

import msgspec

from dualplan.model.traffic import Path, Step, amount, charges, steps
from dualplan.steady.answer import Evaluation
from dualplan.steady.rate import Load


class Movement(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that turns of one read path move from one place to the next.

    Places are those of the step table, and ``prefill_snic`` and ``decode_snic`` between storage and a node. ``steps``:
    labels of the rows. ``bytes``: of a turn [B]. ``load``: of all turns of the path [B/s]. ``charges``: resources that
    carry it; ``tightest`` is the fullest of them, under the traffic of both paths, None where the machine has no limit.
    ``collective``: traffic of model execution, not KV-cache.
    """

    path: Path
    source: str
    target: str
    steps: tuple[str, ...]
    bytes: float
    load: float
    charges: tuple[str, ...]
    tightest: Load | None
    collective: bool


def movements(answer: Evaluation) -> dict[Path, tuple[Movement, ...]]:
    """The movements of each read path in the order of the step table, rows between the same places together."""
    settings = answer.scenario.settings
    table = steps(settings.mode, staging=settings.staging, copy=settings.copy, persist=settings.persist)
    return {path: _of_path(answer, path, table[path]) for path in table}


def path_turns_per_s(answer: Evaluation, path: Path) -> float:
    """Turns per second that are read on one side."""
    share = answer.decode_read_share or 0.0
    return answer.turns_per_s * (share if path == "decode" else 1 - share)


def _of_path(answer: Evaluation, path: Path, rows: tuple[Step, ...]) -> tuple[Movement, ...]:
    hardware = (answer.scenario.hardware, answer.scenario.decode_hardware)
    shares_cnic = (hardware[0].snic.shares_cnic, hardware[1].snic.shares_cnic)
    turns = path_turns_per_s(answer, path)
    found: dict[tuple[str, str, bool], Movement] = {}
    for step in rows:
        moved = float(amount(step, answer.demand.amounts))
        names = tuple(name for name in charges(step, shares_cnic=shares_cnic) if "_pcie_" not in name)
        collective = any(name.endswith("_collective") for name in step.bytes)
        for source, target, charged in _legs(step.source, step.target, names):
            key = (source, target, collective)
            before = found.get(key)
            found[key] = Movement(
                path=path,
                source=source,
                target=target,
                steps=(*(before.steps if before else ()), step.label),
                bytes=(before.bytes if before else 0.0) + moved,
                load=(before.load if before else 0.0) + moved * turns,
                charges=charged,
                tightest=_tightest(answer, charged),
                collective=collective,
            )
    return tuple(movement for movement in found.values() if movement.bytes)


def _legs(source: str, target: str, names: tuple[str, ...]) -> list[tuple[str, str, tuple[str, ...]]]:
    """A row that ends or starts in storage passes the storage NIC: two legs, each with what it charges."""
    if "storage" not in (source, target):
        return [(source, target, names)]
    side = (target if source == "storage" else source).partition("_")[0]
    memory = tuple(name for name in names if name.endswith("_dram"))
    network = tuple(name for name in names if name not in memory)
    legs = [(source, f"{side}_snic", network), (f"{side}_snic", target, memory)]
    return legs if source == "storage" else [(source, f"{side}_snic", memory), (f"{side}_snic", target, network)]


def _tightest(answer: Evaluation, names: tuple[str, ...]) -> Load | None:
    loads = [load for load in answer.loads if load.name in names]
    return max(loads, key=lambda load: load.utilization, default=None)
