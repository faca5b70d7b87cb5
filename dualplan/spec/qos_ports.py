"""Traffic classes as a port reports them: ``smpquery vlarb`` of InfiniBand and ``mlnx_qos`` of RoCE."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from dualplan.errors import problem, refuse
from dualplan.spec.qos import (
    MAX_PROBLEMS,
    ClassTable,
    LaneTables,
    QosFile,
    Remark,
    TrafficClass,
    integer,
    lanes_for,
    listed,
)

# ---------------------------------------------------------------- smpquery vlarb

_TITLE = re.compile(r"\b(low|high)\s*priority\s*VL\s*Arbitration", re.IGNORECASE)
_ROW = re.compile(r"\s*(VL|WEIGHT)\s*:\s*\|(.*)", re.IGNORECASE)
_CELL = re.compile(r"0[xX][0-9a-fA-F]{1,4}|[0-9]{1,5}")
_HIGH_LIMIT = re.compile(r"\s*VLHighLimit:\.*\s*(\d{1,5})")
_OPERATIONAL = re.compile(r"\s*OperVLs:\.*\s*VL0(?:-(\d{1,2}))?")


def parse_smpquery(text: str, name: str) -> QosFile:
    """Both tables of a port.

    The limit and the operational lanes are not part of that output; lines of ``smpquery portinfo`` in the same file
    give them. Raises InputError for lanes over 14, incomplete tables, and tables of several ports.
    """
    problems: list[str] = []
    tables: dict[str, list[tuple[int, int]]] = {}
    title, lanes = "", list[int]()
    limit = operational = None
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{name}:{number}"
        if match := _TITLE.search(line):
            title = match[1].lower()
            if title in tables:
                problems.append(problem(place, f"a second {title} table", "keep the tables of one port in the file"))
            tables.setdefault(title, [])
        elif match := _HIGH_LIMIT.match(line):
            limit = int(match[1])
            if limit > 255:
                problems.append(problem(place, f"VLHighLimit {limit} is not in 0 .. 255"))
        elif match := _OPERATIONAL.match(line):
            operational = int(match[1] or 0) + 1
        elif match := _ROW.match(line):
            numbers = _cells(match[2], place, problems)
            if match[1].upper() == "VL":
                lanes = numbers
            elif not title or len(numbers) != len(lanes):
                what = (
                    f"{len(numbers)} weights for {len(lanes)} lanes" if title else "a row before the name of its table"
                )
                problems.append(problem(place, what))
            else:
                _check_row(title, lanes, numbers, place, problems)
                tables[title].extend(zip(lanes, numbers, strict=True))
    for title in ("high", "low"):
        if not tables.get(title) and not problems:
            problems.append(problem(name, f"has no {title} table", "give the whole output of smpquery vlarb"))
    refuse(problems[:MAX_PROBLEMS])

    remarks = []
    beyond = sorted(
        {lane for table in tables.values() for lane, weight in table if weight and lane >= (operational or 15)}
    )
    if beyond:
        which = listed(f"VL{lane}" for lane in beyond)
        skipped = f"The tables name {which} beyond the {operational} operational lanes (OperVLs): they carry nothing."
        remarks.append(Remark(code="lanes_beyond_operational", text=skipped))
    used = {
        title: tuple((lane, weight) for lane, weight in table if weight and lane not in beyond)
        for title, table in tables.items()
    }
    return QosFile(
        kind="smpquery",
        setting=LaneTables(
            high=used["high"],
            low=used["low"],
            high_limit=limit or 0,
            operational_lanes=lanes_for(min(operational or 15, 15)),
        ),
        high_limit_known=limit is not None,
        remarks=tuple(remarks),
    )


def _cells(text: str, place: str, problems: list[str]) -> list[int]:
    numbers = []
    for cell in (cell.strip() for cell in text.strip().rstrip("|").split("|")):
        if not _CELL.fullmatch(cell):
            problems.append(problem(place, f'"{cell[:40]}" is not a number'))
            return []
        numbers.append(integer(cell))
    return numbers


def _check_row(title: str, lanes: list[int], weights: list[int], place: str, problems: list[str]) -> None:
    for lane, weight in zip(lanes, weights, strict=True):
        if lane > 15:
            problems.append(problem(place, f"lane {lane} of the {title} table does not exist, lanes are 0 to 14"))
        elif lane == 15 and weight:
            problems.append(problem(place, f"lane 15 of the {title} table carries management and is not arbitrated"))
        if weight > 255:
            problems.append(problem(place, f"weight {weight} of lane {lane} does not fit 8 bits"))


# ---------------------------------------------------------------- mlnx_qos

_MAX_CLASSES = 64  # a port has 8; what comes after that many cannot be output for one port

# No pattern relies on line ends or indentation: both get lost where such output is pasted into pages.
_CLASS_START = re.compile(r"(?<![a-z])tc\s*:\s*\d+\s*ratelimit\s*:", re.IGNORECASE)
_CLASS = re.compile(
    r"tc\s*:\s*(?P<number>\d{1,3})\s*ratelimit\s*:\s*(?P<rate>[^,\s][^,]{0,40}?)\s*,\s*tsa\s*:\s*"
    r"(?P<tsa>ets|strict|vendor|[a-z_-]{1,20}?(?=[\s,]|$))(?:\s*,\s*bw\s*:\s*(?P<bw>\d{1,5})\s*%)?",
    re.IGNORECASE,
)
_PRIORITY = re.compile(r"priority\s*:\s*(\d{1,3})", re.IGNORECASE)
_DSCP = re.compile(r"prio\s*:\s*([0-7])\s*dscp\s*:((?:\s*\d{2}\s*,?)+)", re.IGNORECASE)


def parse_mlnx_qos(text: str, name: str) -> QosFile:
    """The traffic classes of a port. Raises InputError for classes described twice or incompletely, or at odds."""
    problems: list[str] = []
    classes: list[TrafficClass] = []
    lines: dict[int, int] = {}
    starts = [match.start() for match in islice(_CLASS_START.finditer(text), _MAX_CLASSES)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line = text.count("\n", 0, start) + 1
        traffic = _traffic_class(text[start:end], f"{name}:{line}", problems)
        if traffic is None:
            continue
        if traffic.number in lines:
            hint = "keep the output for one port in the file"
            what = f"tc {traffic.number} is described a second time, first at line {lines[traffic.number]}"
            problems.append(problem(f"{name}:{line}", what, hint))
            continue
        lines[traffic.number] = line
        classes.append(traffic)
    owner: dict[int, int] = {}
    for traffic in classes:
        for priority in traffic.priorities:
            first = owner.setdefault(priority, traffic.number)
            if first != traffic.number:
                what = f"priority {priority} is on tc {traffic.number} and on tc {first} (line {lines[first]})"
                problems.append(problem(f"{name}:{lines[traffic.number]}", what))
    refuse(problems[:MAX_PROBLEMS])
    classes.sort(key=lambda traffic: traffic.number)
    setting = ClassTable(classes=tuple(classes), dscp=_dscp(text))
    return QosFile(kind="mlnx_qos", setting=setting, remarks=tuple(_remarks(classes)))


def _traffic_class(block: str, place: str, problems: list[str]) -> TrafficClass | None:
    match = _CLASS.match(block)
    if match is None:
        problems.append(problem(place, f'"{block.splitlines()[0][:60]}" does not name ratelimit and tsa'))
        return None
    number, tsa = int(match["number"]), match["tsa"].lower()
    weight = int(match["bw"]) if match["bw"] else None
    priorities = sorted({int(digits) for digits in _PRIORITY.findall(block, match.end())})
    before = len(problems)
    if number > 7:
        problems.append(problem(place, f"tc {number} does not exist, traffic classes are 0 to 7"))
    if tsa not in ("ets", "strict", "vendor"):
        problems.append(problem(place, f'tsa "{tsa}" is not known', "ets, strict or vendor"))
    if weight is not None and weight > 100:
        problems.append(problem(place, f"bw {weight}% of tc {number} is over 100 %"))
    if any(priority > 7 for priority in priorities):
        problems.append(problem(place, f"priority {priorities[-1]} of tc {number} does not exist, they are 0 to 7"))
    if len(problems) > before:
        return None
    rate = match["rate"]
    return TrafficClass(
        number=number,
        selection=tsa,  # type: ignore[arg-type]
        bandwidth=weight if tsa == "ets" else None,
        priorities=tuple(priorities),
        rate_limit=None if rate.lower() == "unlimited" else rate,
    )


def _dscp(text: str) -> dict[int, tuple[int, ...]]:
    """A priority may have several lines of DSCP values."""
    table: dict[int, set[int]] = {}
    for priority, values in _DSCP.findall(text):
        table.setdefault(int(priority), set()).update(int(value) for value in re.findall(r"\d+", values))
    return {priority: tuple(sorted(values)) for priority, values in sorted(table.items())}


def _remarks(classes: Iterable[TrafficClass]) -> list[Remark]:
    remarks = []
    for traffic in classes:
        if len(traffic.priorities) > 1:
            text = f"Priorities {listed(traffic.priorities)} share TC{traffic.number}: nothing keeps them apart."
            remarks.append(Remark(code="shared_class", text=text))
    weights = [traffic.bandwidth or 0 for traffic in classes if traffic.selection == "ets"]
    if weights and sum(weights) != 100:
        text = f"The ETS weights add up to {sum(weights)} %, not 100 %; they are taken as relative."
        remarks.append(Remark(code="weights_sum", text=text))
    vendor = [f"TC{traffic.number}" for traffic in classes if traffic.selection == "vendor"]
    if vendor:
        text = f"{listed(vendor)}: tsa vendor leaves the order to the firmware; taken as the mlx5 driver sets it, "
        remarks.append(Remark(code="vendor", text=text + "above strict classes and equal among themselves."))
    limited = [f"TC{traffic.number} ({traffic.rate_limit})" for traffic in classes if traffic.rate_limit]
    if limited:
        remarks.append(Remark(code="rate_limit", text=f"Shares leave rate limits out: {listed(limited)}."))
    return remarks
