"""Readers of what nvidia-smi prints: the matrix of ``topo -m`` (or ``-mp``), GPU names of ``-L`` and the plain table.

A row of the matrix is used only if it has exactly one cell for every column, every cell is a word of the legend, and
its ``X`` stands under its own name. A row that a terminal wrapped or glued (``NODENODE``) is refused: shifting cells
would attach NICs to wrong GPUs.
"""

from __future__ import annotations

import re

import msgspec

from dualplan.errors import InputError, problem
from dualplan.spec.topology_records import Capture, Device, Link, Pair, bus_id, lines, name_list, pair

FORM = "nvidia-smi topo -m"
_HINT = "capture it again with: nvidia-smi topo -m > FILE"

_SHOWN = 3

_WORD = r"X|NV[0-9]{1,2}|PIX|PXB|PHB|NODE|SYS|SOC"
_CELL = re.compile(_WORD)
_GLUED = re.compile(f"(?:{_WORD}){{2,40}}")
_NAME = re.compile(r"[A-Za-z](?=[\w.-]*[0-9])[\w.-]{1,63}")
_GPU = re.compile(r"GPU[0-9]{1,4}")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,4})\s*:\s*([\w.-]{1,64})\s*")
_CPU_LIST = re.compile(r"[0-9]+(?:[-,][0-9]+)+")


class _Row(msgspec.Struct, frozen=True):
    name: str
    cells: tuple[str, ...]
    cpu_affinity: str | None
    numa: str | None


class _Table(msgspec.Struct):
    line: int
    columns: list[str]
    affinity: str
    rows: dict[str, _Row]
    refused: list[str]
    refused_names: list[str]
    wrapped: bool = False


def read_matrix(text: str, source: str) -> list[Capture]:
    """Every matrix of a text. Raises InputError where there is one and no row of any can be used."""
    tables, legend = _tables(text, source)
    if not tables:
        return []
    if not any(table.rows for table in tables):
        raise InputError("", problems=_all_refused(tables, source))
    captures = [_capture(table, legend, source) for table in tables if table.rows]
    elsewhere = tuple(line for table in tables if not table.rows for line in table.refused)
    return [msgspec.structs.replace(captures[0], refused=(*captures[0].refused, *elsewhere)), *captures[1:]]


def _tables(text: str, source: str) -> tuple[list[_Table], dict[str, str]]:
    tables: list[_Table] = []
    legend: dict[str, str] = {}
    for number, line in lines(text):
        named = _LEGEND.fullmatch(line)
        if named:
            legend.setdefault(named[1], named[2])
            continue
        tokens = line.split()
        header = _header(tokens)
        if header is not None and _GPU.fullmatch(header[0]):
            if tables and not (tables[-1].rows or tables[-1].refused or "CPU" in tables[-1].affinity):
                tables.pop()  # a heading of another table, as rocm-smi prints them
            tables.append(_Table(number, header, " ".join(tokens[len(header) :]), {}, [], []))
        elif tables and tokens and not line.lstrip().startswith("Legend"):
            _add_line(tables[-1], line, tokens, header is not None, f"{source}:{number}")
    if tables and not text.endswith("\n"):
        _drop_cut_row(tables[-1], text, source)
    return [table for table in tables if table.rows or table.refused or "CPU" in table.affinity], legend


def _header(tokens: list[str]) -> list[str] | None:
    names = []
    for token in tokens:
        if not _NAME.fullmatch(token) or _CELL.fullmatch(token) or _GLUED.fullmatch(token):
            break
        names.append(token)
    rest = tokens[len(names) :]
    if (
        not names
        or len(set(names)) < len(names)
        or (rest and rest[0] not in ("CPU", "NUMA", "GPU"))
        or (not rest and len(names) < 2)
    ):
        return None
    return names


def _add_line(table: _Table, line: str, tokens: list[str], is_header: bool, where: str) -> None:
    name = tokens[0]
    if is_header and not table.rows and not table.refused and not _GPU.fullmatch(name):
        table.refused.append(problem(where, "the header goes on in this line: the table was wrapped", _HINT))
        table.wrapped = True
    if table.wrapped:
        return
    known = name in table.columns
    if not known and not (_NAME.fullmatch(name) and len(tokens) > 2 and all(_CELL.fullmatch(t) for t in tokens[1:3])):
        return
    if known and not table.affinity and not any(_CELL.fullmatch(t) or _GLUED.fullmatch(t) for t in tokens[1:2]):
        return  # a row of another kind of table
    row = _row(line, tokens, table) if known else "no column of the header has this name"
    if name in table.rows:
        row = "a second row of this name"
    if isinstance(row, str):
        table.refused.append(problem(where, f"row {name} refused: {row}", _HINT))
        table.refused_names.append(name)
    else:
        table.rows[name] = row


def _row(line: str, tokens: list[str], table: _Table) -> _Row | str:
    """The row, or why it is refused."""
    name, count = tokens[0], len(table.columns)
    cells = tokens[1 : 1 + count]
    for index, cell in enumerate(cells):
        if _CELL.fullmatch(cell):
            continue
        if _GLUED.fullmatch(cell):
            return f'"{cell}" is cells glued together, so the cells after it would shift'
        if index == 0 or not (_CPU_LIST.fullmatch(cell) or cell == "N/A" or cell.isdecimal()):
            return f'"{cell[:20]}" in column {table.columns[index]} is no word of the legend'
        return f"{index} cells for {count} columns"
    if len(cells) < count:
        return f"{len(cells)} cells for {count} columns"
    if len(tokens) > 1 + count and (_CELL.fullmatch(tokens[1 + count]) or _GLUED.fullmatch(tokens[1 + count])):
        return f"more cells than the {count} columns"
    crosses = [column for column, cell in zip(table.columns, cells, strict=True) if cell == "X"]
    if crosses != [name]:
        return f"its X stands under {name_list(crosses)}, so cells are shifted" if crosses else "it has no X of its own"
    cpu, numa = _affinity(line, tokens, table)
    return _Row(name, tuple("SYS" if cell == "SOC" else cell for cell in cells), cpu, numa)


def _affinity(line: str, tokens: list[str], table: _Table) -> tuple[str | None, str | None]:
    """CPU and NUMA affinity of a row. Tabs keep an empty CPU affinity apart; pasted rows are read by their looks."""
    count = len(table.columns)
    fields = [field.strip() for field in line.lstrip().split("\t")]
    if len(fields) > count and fields[0] == tokens[0] and fields[1 : 1 + count] == tokens[1 : 1 + count]:
        rest = fields[1 + count :]
    else:
        rest = tokens[1 + count :]
        fields_wanted = 1 + table.affinity.count("NUMA")
        if rest and 1 < fields_wanted > len(rest) and not _CPU_LIST.fullmatch(rest[0]):
            rest = ["", *rest]
    if not table.affinity.startswith("CPU"):
        rest = ["", *rest]
    cpu, numa = (*rest, "", "")[:2]
    known_numa = numa not in ("", "N/A") and "NUMA" in table.affinity
    return (cpu if cpu not in ("", "N/A") else None), (numa if known_numa else None)


def _drop_cut_row(table: _Table, text: str, source: str) -> None:
    """The last row of a text that ends inside a line may have lost the end of its last cell (NV1 of NV18)."""
    tokens = text.rsplit("\n", 1)[-1].split()
    row = table.rows.get(tokens[0]) if tokens else None
    if row is None or not _GPU.fullmatch(row.name) or len(tokens) > 1 + len(table.columns):
        return
    if "CPU" in table.affinity and row.cells[-1].startswith("NV"):
        del table.rows[row.name]
        table.refused.append(problem(source, f"row {row.name} refused: the text ends inside it", _HINT))
        table.refused_names.append(row.name)


def _all_refused(tables: list[_Table], source: str) -> list[str]:
    empty = [problem(f"{source}:{table.line}", "the matrix has a header and no row", _HINT) for table in tables[:1]]
    refused = [line for table in tables for line in table.refused] or empty
    more = len(refused) - _SHOWN
    return [*refused[:_SHOWN], *([problem(source, f"{more} more rows refused")] if more > 0 else [])]


def _capture(table: _Table, legend: dict[str, str], source: str) -> Capture:
    names = {column: column if _GPU.fullmatch(column) else legend.get(column, column) for column in table.columns}
    if len(set(names.values())) < len(names):
        names = {column: column for column in table.columns}
    devices = []
    for column in table.columns:
        row = table.rows.get(column)
        if _GPU.fullmatch(column):
            numa, cpu = (row.numa, row.cpu_affinity) if row else (None, None)
            devices.append(Device(role="gpu", name=column, numa=numa, cpu_affinity=cpu))
        elif re.fullmatch(r"NIC[0-9]+", column):
            name = names[column] if names[column] != column else None
            devices.append(Device(role="nic", name=name, alias=column, rdma=True))
        else:
            devices.append(Device(role="nic", name=column, rdma=True))
    relations, conflicts = _relations(table, names)
    nics = [column for column in table.columns if not _GPU.fullmatch(column)]
    return Capture(
        form=FORM,
        source=source,
        line=table.line,
        devices=tuple(devices),
        relations=relations,
        links=tuple(
            Link(first=first, second=second, kind="NVLink", count=int(word[2:]))
            for (first, second), word in relations.items()
            if word.startswith("NV")
        ),
        refused=tuple(table.refused),
        notes=tuple(_notes(table, nics, legend, conflicts, source)),
    )


def _relations(table: _Table, names: dict[str, str]) -> tuple[dict[Pair, str], list[str]]:
    """Each pair once. The matrix is symmetric, so a NIC's row stands in for a refused GPU row.

    Pairs whose two cells contradict each other are left out and named.
    """
    relations: dict[Pair, str] = {}
    conflicts: list[str] = []
    for row in table.rows.values():
        for column, cell in zip(table.columns, row.cells, strict=True):
            key = pair(names[row.name], names[column])
            if cell != "X" and relations.setdefault(key, cell) != cell:
                conflicts.append(f"{row.name}-{column}")
                relations[key] = "?"
    return {key: word for key, word in relations.items() if word != "?"}, conflicts


def _notes(table: _Table, nics: list[str], legend: dict[str, str], conflicts: list[str], source: str) -> list[str]:
    notes = []
    where = f"{source}:{table.line}"
    missing = [column for column in table.columns if column not in table.rows and column not in table.refused_names]
    if missing:
        notes.append(problem(where, f"partial capture: no row for {name_list(missing)}"))
    if not nics:
        hint = "the driver shows RDMA devices only where their kernel modules are loaded"
        notes.append(problem(where, "the matrix lists no NICs", hint))
    unnamed = [nic for nic in nics if re.fullmatch(r"NIC[0-9]+", nic) and nic not in legend]
    if unnamed:
        what = f"no NIC legend for {name_list(unnamed)}: they cannot be joined with ibstat or ibdev2netdev"
        notes.append(problem(where, what))
    if conflicts:
        notes.append(problem(where, "cells contradict the mirrored ones and are left out: " + ", ".join(conflicts[:6])))
    return notes


_LISTED = re.compile(
    r"\s*GPU ([0-9]{1,3}(?:,[0-9]{1,3}){0,71}): ((?:NVIDIA|Tesla|Quadro|GeForce|AMD)[^(]{0,60}?)\s*(?:\(UUID.*)?"
)
_SMI_ROW = re.compile(
    r"\|\s{1,5}([0-9]{1,3})\s{1,5}(\S.{0,40}?)\s{2,40}(?:On|Off)\s*\|"
    r"\s*([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s.*"
)


def read_gpu_names(text: str, source: str) -> list[Capture]:
    """GPU models and bus ids of ``nvidia-smi``, ``nvidia-smi -L``, or a line ``GPU 0,1: NVIDIA H800`` of a report."""
    devices: dict[str, Device] = {}
    first = 0
    for number, line in lines(text):
        listed, row = _LISTED.fullmatch(line), _SMI_ROW.fullmatch(line)
        if listed:
            for index in listed[1].split(","):
                devices.setdefault(f"GPU{int(index)}", Device(role="gpu", name=f"GPU{int(index)}", model=listed[2]))
        elif row:
            model = row[2] if not row[2].endswith("...") else None
            name = f"GPU{int(row[1])}"
            devices[name] = Device(role="gpu", name=name, model=model, bus_id=bus_id(row[3]))
        first = first or (number if devices else 0)
    if not devices:
        return []
    return [Capture(form="nvidia-smi", source=source, line=first, devices=tuple(devices.values()))]
