"""Reader of ``rocm-smi --showtopo``: weights, hops and link types between AMD GPUs, and their NUMA nodes."""

from __future__ import annotations

import re

from dualplan.errors import InputError, problem
from dualplan.spec.topology_records import Capture, Device, Link, Pair, lines, pair

_TITLE = re.compile(r"[=\s]*(Weight|Hops|Link Type|Link accessibility) between two GPUs[=\s]*")
_NUMA = re.compile(r"\s*GPU ?\[?([0-9]{1,3})\]?\s*:\s*\(Topology\) Numa Node:\s*([0-9]{1,3})\s*")
_GPU = re.compile(r"GPU[0-9]{1,3}")
_WORDS = {
    "Weight": re.compile(r"[0-9]{1,9}"),
    "Hops": re.compile(r"[0-9]{1,9}"),
    "Link Type": re.compile(r"0|XGMI|PCIE|N/A"),
}


def read_rocm(text: str, source: str) -> list[Capture]:
    """GPUs and links of a text, or nothing. Raises InputError where the tables hold no usable row."""
    values: dict[str, dict[Pair, str]] = {title: {} for title in _WORDS}
    gpus: dict[str, str | None] = {}
    refused: list[str] = []
    title, first = "", 0
    columns: list[str] = []
    for number, line in lines(text):
        heading, numa, tokens = _TITLE.fullmatch(line), _NUMA.fullmatch(line), line.split()
        if heading:
            title, columns, first = heading[1], [], first or number
        elif numa:
            gpus[f"GPU{int(numa[1])}"] = numa[2]
            first = first or number
        elif not tokens or title not in _WORDS or not _GPU.fullmatch(tokens[0]):
            continue
        elif not columns and all(_GPU.fullmatch(token) for token in tokens):
            columns = tokens
        elif tokens[0] in columns:
            gpus.setdefault(tokens[0], None)
            cells = tokens[1:]
            if len(cells) == len(columns) and all(_WORDS[title].fullmatch(cell) for cell in cells):
                values[title] |= {
                    pair(tokens[0], column): cell
                    for column, cell in zip(columns, cells, strict=True)
                    if column != tokens[0]
                }
            else:
                refused.append(
                    problem(
                        f"{source}:{number}",
                        f"row {tokens[0]} refused: not one {title.lower()} for each of {len(columns)} GPUs",
                    )
                )
    if not first:
        return []
    if not gpus:
        raise InputError(
            f"{source}:{first}", "rocm-smi tables without a row", "capture it again with: rocm-smi --showtopo > FILE"
        )
    devices = tuple(Device(role="gpu", name=name, numa=numa) for name, numa in gpus.items())
    return [
        Capture(
            form="rocm-smi --showtopo",
            source=source,
            line=first,
            devices=devices,
            links=tuple(_link(key, values) for key in {key: None for table in values.values() for key in table}),
            refused=tuple(refused),
            notes=(
                problem(
                    f"{source}:{first}",
                    "rocm-smi shows no NICs",
                    "add lspci -tv or an NCCL topology XML of the machine",
                ),
            ),
        )
    ]


def _link(key: Pair, values: dict[str, dict[Pair, str]]) -> Link:
    hops, weight = values["Hops"].get(key), values["Weight"].get(key)
    kind = values["Link Type"].get(key, "unknown")
    return Link(
        first=key[0],
        second=key[1],
        kind="unknown" if kind in ("0", "N/A") else kind,
        hops=int(hops) if hops else None,
        weight=int(weight) if weight else None,
    )
