"""``dualplan hardware import``: captures of a machine to GPUs, compute and storage NICs, and a hardware profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, emit, note, write_text

MAX_BYTES = 4_000_000
"""Largest capture that is read; those of real machines have a few kB."""


def import_hardware(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Captures of one machine, - for standard input.", show_default=False),
    ],
    compute: Annotated[
        str | None, typer.Option("--compute", metavar="NIC,...", help="NICs that you know to be compute NICs.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option("--storage", metavar="NIC,...", help="NICs that you know to be storage NICs.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write a hardware profile (YAML) to this file.")
    ] = None,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
) -> None:
    """Read a machine from captures: which NICs are compute, which storage, and why.

    Known, and recognised from content: nvidia-smi topo -m, ibstat, ibdev2netdev, lspci -tv, NCCL topology XML,
    rocm-smi --showtopo. Several captures are joined by device name and bus id. What they cannot tell is listed, never
    guessed: decide it with --compute and --storage. With -o, keys that stay unknown are comments in the profile.
    """
    import hashlib

    from dualplan.report.hardware_import import output
    from dualplan.spec.topology import read_topology
    from dualplan.spec.topology_kinds import decide
    from dualplan.spec.topology_profile import profile

    texts = _read(files)
    topology = decide(read_topology(texts), compute=_names(compute, "--compute"), storage=_names(storage, "--storage"))
    digest = hashlib.sha256(b"\0".join(text.encode() for _, text in texts)).hexdigest()
    if file is not None:
        made = profile(topology, file.stem)
        write_text(file, made.text)
        note(f"{file}: to fill in: {', '.join(made.open_keys)}" if made.open_keys else f"{file}: complete")
        undecided = topology.of_kind("undecided")
        if undecided:
            from dualplan.spec.topology_records import name_list

            note(f"undecided: {name_list(nic.name for nic in undecided)} (decide with --compute and --storage)")
        for line in topology.refused:
            note(line)
    if file is None or as_json or fmt is not Format.table:
        emit(output(topology, digest), fmt, as_json)


def _read(files: list[Path]) -> list[tuple[str, str]]:
    """Texts with their names. Raises InputError with the problems of all files."""
    from dualplan.errors import each
    from dualplan.spec.load import read_text

    def named(file: Path) -> tuple[str, str]:
        stdin = str(file) == "-"
        name = "standard input" if stdin else str(file)
        return name, read_text(Path("/dev/stdin") if stdin else file, limit=MAX_BYTES, where=name)

    return each(files, named)


def _names(text: str | None, flag: str) -> list[str]:
    from dualplan.errors import InputError
    from dualplan.units import listed

    if text is None:
        return []
    names = listed(text)
    if not names:
        raise InputError(flag, "names no NIC", f"write for example {flag} mlx5_0,mlx5_1")
    return names
