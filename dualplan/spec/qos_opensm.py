"""The traffic classes that an ``opensm.conf`` makes, read as OpenSM reads it (opensm/osm_qos.c, opensm/osm_subnet.c).

A key of the port class wins over the generic one, and that over a built-in default. ``(null)``, ``-1`` and a
``max_vls`` of 0 are unset. Lane numbers are taken modulo 15 and weights modulo 256. When a table goes to a port, every
lane in it is masked by the operational lanes of that port, which ``max_op_vls`` bounds; ``qos_max_vls`` itself enters
no table.

Two things are refused that OpenSM lets pass: a key set twice to different values, where it takes the last, and lanes
over 15, where it hands the weight to another lane.
"""

from __future__ import annotations

import re

import msgspec

from dualplan.errors import InputError, did_you_mean, problem, refuse
from dualplan.spec.qos import (
    MAX_ENTRIES,
    MAX_PROBLEMS,
    OPERATIONAL_LANES,
    LaneTables,
    PortClass,
    QosFile,
    Remark,
    TableEntries,
    integer,
    lane_mask,
    lanes_for,
    listed,
)

# opensm/include/opensm/osm_base.h
DEFAULT_MAX_VLS = 15
DEFAULT_HIGH_LIMIT = 0
DEFAULT_HIGH: TableEntries = ((0, 4), *((lane, 0) for lane in range(1, 15)))
DEFAULT_LOW: TableEntries = ((0, 0), *((lane, 4) for lane in range(1, 15)))
DEFAULT_SL2VL: tuple[int, ...] = (*range(15), 7)

_PREFIXES = ("qos", "qos_ca", "qos_sw0", "qos_swe", "qos_sw2sw", "qos_rtr")
_FIELDS = ("max_vls", "high_limit", "vlarb_high", "vlarb_low", "sl2vl")
_KEYS = (
    *(f"{prefix}_{field}" for prefix in _PREFIXES for field in _FIELDS),
    "qos",
    "qos_policy_file",
    "qos_config_file",
    "max_op_vls",
)
_NUMBER = r"0[xX][0-9a-fA-F]{1,4}|[0-9]{1,6}"
_ENTRY = re.compile(rf"({_NUMBER})\s*:\s*({_NUMBER})")


class _Value(msgspec.Struct, frozen=True):
    text: str
    line: int
    place: str


def parse(text: str, name: str, port_class: PortClass) -> QosFile:
    """The setting of one port class. Raises InputError with every problem of the file."""
    problems: list[str] = []
    remarks: list[Remark] = []
    values = _values(text, name, remarks, problems)

    def effective(field: str) -> _Value | None:
        return values.get(f"qos_{port_class}_{field}") or values.get(f"qos_{field}")

    max_vls = _whole(effective("max_vls"), 1, 15, problems)
    limit = _whole(effective("high_limit"), 0, 255, problems)
    high = _table(effective("vlarb_high"), remarks, problems)
    low = _table(effective("vlarb_low"), remarks, problems)
    service_levels = _service_levels(effective("sl2vl"), problems)
    code = _whole(values.get("max_op_vls"), 1, 5, problems, "a code: 1 VL0, 2 VL0-1, 3 VL0-3, 4 VL0-7, 5 VL0-14")
    refuse(problems[:MAX_PROBLEMS])

    unset = [f"qos_{field}" for field in ("high_limit", "vlarb_high", "vlarb_low") if effective(field) is None]
    if unset:
        text = f"OpenSM's default stands in for what the file does not set: {listed(unset)}."
        remarks.append(Remark(code="default", text=text))
    named = [lane for lane, weight in (*(high or ()), *(low or ())) if weight]
    lanes, how = _operational_lanes(code, max_vls, max(named, default=0) + 1, remarks)
    return QosFile(
        kind="opensm",
        setting=LaneTables(
            high=_folded(DEFAULT_HIGH if high is None else high, lanes, how, "high", remarks),
            low=_folded(DEFAULT_LOW if low is None else low, lanes, how, "low", remarks),
            high_limit=DEFAULT_HIGH_LIMIT if limit is None else limit,
            operational_lanes=lanes,
        ),
        port_class=port_class,
        max_vls=max_vls or DEFAULT_MAX_VLS,
        class_keys=tuple(field for field in _FIELDS if f"qos_{port_class}_{field}" in values),
        service_levels=service_levels,
        remarks=tuple(remarks),
    )


def parse_table(text: str, where: str = "", remarks: list[Remark] | None = None) -> TableEntries:
    """``0:192,1:64`` as (lane, weight) pairs. What OpenSM takes otherwise than written is added to ``remarks``.

    Raises InputError for text that is no such table and for lanes over 15.
    """
    entries: list[tuple[int, int]] = []
    problems: list[str] = []
    noticed: list[Remark] = []
    parts = text.strip().rstrip(",").split(",")
    for part in (part.strip() for part in parts[:MAX_ENTRIES]):
        match = _ENTRY.fullmatch(part)
        if match is None:
            problems.append(problem(where, f'"{part[:40]}" is not LANE:WEIGHT', "write for example 0:192,1:64"))
            continue
        lane, weight = integer(match[1]), integer(match[2])
        if lane > 15:
            hint = f"OpenSM takes it modulo 15 and gives its weight to VL{lane % 15}"
            problems.append(problem(where, f"lane {lane} does not exist, lanes are 0 to 14", hint))
            continue
        if lane == 15:
            noticed.append(_remark("lane_modulo", f"{where}: OpenSM takes VL15 as VL0, lanes are modulo 15."))
        if weight > 255:
            taken = f"{where}: weight {weight} of VL{lane} does not fit 8 bits, OpenSM takes {weight % 256}."
            noticed.append(_remark("weight_modulo", taken))
        entries.append((lane % 15, weight % 256))
    refuse(problems)
    if len(parts) > MAX_ENTRIES:
        dropped = f"{where}: {len(parts)} entries, OpenSM drops those after the first {MAX_ENTRIES}."
        noticed.append(_remark("table_too_long", dropped))
    if remarks is not None:
        remarks.extend(noticed)
    return tuple(entries)


def _remark(code: str, text: str) -> Remark:
    return Remark(code=code, text=problem("", text))


def _values(text: str, name: str, remarks: list[Remark], problems: list[str]) -> dict[str, _Value]:
    values: dict[str, _Value] = {}
    known = False
    unknown = []
    for number, raw in enumerate(text.splitlines(), 1):
        words = raw.partition("#")[0].split(maxsplit=1)
        if len(words) < 2 or not words[0].startswith(("qos", "max_op")):
            continue
        key, value = words[0], words[1].strip().strip("\"'")
        if key not in _KEYS:
            unknown.append((number, key))
            continue
        known = True
        if value in ("", "(null)", "-1") or (value == "0" and key.endswith("max_vls")):
            continue
        first = values.setdefault(key, _Value(value, number, f"{name}:{number}: {key}"))
        if "".join(first.text.split()) != "".join(value.split()):
            what = f'"{value[:60]}" contradicts "{first.text[:60]}" of line {first.line}'
            problems.append(problem(f"{name}:{number}: {key}", what, "OpenSM takes the last; keep one"))
    if not known:
        where, key = f"{name}:{unknown[0][0]}", unknown[0][1]
        problems.append(problem(where, f'"{key[:60]}" is no key of OpenSM, nor is any other', did_you_mean(key, _KEYS)))
    for number, key in unknown[:5]:
        hint = did_you_mean(key, _KEYS)
        ignored = f"{name}:{number}: OpenSM has no key {key[:60]} and ignores it" + (f"; {hint}" if hint else ".")
        remarks.append(_remark("unknown_key", ignored))
    if len(unknown) > 5:
        remarks.append(_remark("unknown_key", f"{name}: {len(unknown) - 5} more lines have unknown qos keys."))
    if "qos" in values and values["qos"].text.upper() in ("FALSE", "NO", "0"):
        remarks.append(Remark(code="qos_off", text="qos is FALSE: OpenSM does not write these tables to ports."))
    return values


def _whole(value: _Value | None, least: int, most: int, problems: list[str], hint: str = "") -> int | None:
    if value is None:
        return None
    number = integer(value.text) if re.fullmatch(_NUMBER, value.text) else -1
    if not least <= number <= most:
        what = f'"{value.text[:40]}" is not a whole number in {least} .. {most}'
        problems.append(problem(value.place, what, hint))
        return None
    return number


def _table(value: _Value | None, remarks: list[Remark], problems: list[str]) -> TableEntries | None:
    if value is None:
        return None
    try:
        return parse_table(value.text, value.place, remarks)
    except InputError as error:
        problems.extend(error.problems)
        return None


def _service_levels(value: _Value | None, problems: list[str]) -> tuple[int, ...]:
    if value is None:
        return DEFAULT_SL2VL
    levels = []
    for part in (part.strip() for part in value.text.strip().rstrip(",").split(",")):
        if not re.fullmatch(_NUMBER, part) or integer(part) > 15:
            problems.append(problem(value.place, f'"{part[:40]}" is not a lane in 0 .. 15'))
            return DEFAULT_SL2VL
        levels.append(integer(part))
    return tuple((levels + [0] * 16)[:16])  # OpenSM reads what is missing as 0


def _operational_lanes(code: int | None, max_vls: int | None, named: int, remarks: list[Remark]) -> tuple[int, str]:
    """Operational lanes and, for a sentence, where the number comes from. ``named``: lanes that the tables need."""
    if code is None:
        # OpenSM would leave it to the port, which a file cannot tell: the lanes that its author plans for are taken,
        # all that the tables use among them, so that qos_max_vls takes none away
        lanes = lanes_for(max(max_vls or DEFAULT_MAX_VLS, named))
        how = f"as in qos_max_vls {max_vls}; max_op_vls is not set"
        reason = f"the tables use {named} lanes"
    else:
        lanes, how = OPERATIONAL_LANES[code], f"max_op_vls {code}"
        reason = f"{how} makes {lanes} {'lane' if lanes == 1 else 'lanes'} operational"
    if max_vls is not None and lanes_for(max_vls) != lanes:
        text = f"qos_max_vls {max_vls} does not change arbitration: {reason}."
        remarks.append(Remark(code="max_vls_ignored", text=text))
    return lanes, how


def _folded(table: TableEntries, lanes: int, how: str, name: str, remarks: list[Remark]) -> TableEntries:
    mask = lane_mask(lanes)
    beyond = sorted({lane for lane, _ in table if lane & mask != lane})
    if beyond:
        which = f"VL{beyond[0]}" if len(beyond) == 1 else f"VL{beyond[0]} to VL{beyond[-1]}"
        text = f"The {name} table names {which} beyond the {lanes} operational lanes ({how}): "
        text += f"OpenSM folds them onto the others, VL{beyond[0]} onto VL{beyond[0] & mask}."
        remarks.append(Remark(code="lanes_beyond_operational", text=text))
    return tuple((lane & mask, weight) for lane, weight in table)
