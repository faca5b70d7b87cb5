"""The answer of ``qos`` for people and for machines."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.flow.arbitration import LIMIT_UNIT_BYTES, NO_LIMIT, exact_shares
from dualplan.flow.arbitration_settings import Suggestion, classes_before, dilution
from dualplan.report.output import Output
from dualplan.spec.qos import ClassTable, LaneTables, QosFile, Remark, listed, service_levels_of, table_text
from dualplan.units import significant

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "dualplan/qos/1"
_BAR = 20
_FLAGS = {"tsa": "-s", "tcbw": "-t"}
_GLUE = "\u00a0"
_READABLE_DENOMINATOR = 100_000


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """A wanted floor and settings that reach it."""

    wanted: Fraction
    suggestions: tuple[Suggestion, ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What ``qos`` found. Shares and loads are fractions of the link."""

    name: str
    file: QosFile
    mtu: int
    packet_bytes: dict[int, int]
    backlogged: tuple[int, ...]
    loads: dict[int, Fraction]
    shares: dict[int, Fraction]
    kv: int | None
    guaranteed: Fraction | None
    findings: tuple[Remark, ...]
    floor: Floor | None
    inputs_sha256: str

    @property
    def floor_met(self) -> bool:
        """Whether the setting as it is guarantees the floor."""
        return self.floor is not None and self.guaranteed is not None and self.guaranteed >= self.floor.wanted

    @property
    def others(self) -> tuple[int, ...]:
        """The lanes that are busy where KV gets no more than its guarantee."""
        return tuple(lane for lane in self.file.setting.lanes() if lane != self.kv)

    @property
    def word(self) -> str:
        """``VL`` or ``TC``."""
        return "VL" if isinstance(self.file.setting, LaneTables) else "TC"


def output(answer: Answer) -> Output:
    """The result in all formats; csv, jsonl and md hold one row per lane."""
    return Output(data=document(answer), rows=lane_rows(answer), text=lambda console: show_answer(answer, console))


# ---------------------------------------------------------------- machines


def document(answer: Answer) -> dict[str, Any]:
    """The JSON document."""
    setting = answer.file.setting
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "shares": {str(lane): float(share) for lane, share in answer.shares.items()},
        "shares_exact": {str(lane): _exact(share) for lane, share in answer.shares.items()},
        "backlogged": list(answer.backlogged),
        "loads": {str(lane): float(load) for lane, load in answer.loads.items()},
        "kv": _kv(answer),
        "floor": _floor(answer),
        "warnings": [{"code": remark.code, "text": remark.text} for remark in _remarks(answer)],
        "file": answer.name,
        "kind": answer.file.kind,
    }
    if isinstance(setting, LaneTables):
        data |= {
            "port_class": answer.file.port_class,
            "operational_lanes": setting.operational_lanes,
            "high_limit": setting.high_limit,
            "high": [list(entry) for entry in setting.high],
            "low": [list(entry) for entry in setting.low],
            "mtu_bytes": answer.mtu,
            "packet_bytes": {str(lane): size for lane, size in sorted(answer.packet_bytes.items())},
        }
    else:
        data["classes"] = [_class(setting, traffic.number) for traffic in setting.classes]
    return data | {"assumptions": _assumptions(answer), "inputs_sha256": answer.inputs_sha256}


def lane_rows(answer: Answer) -> list[dict[str, Any]]:
    """One record per lane of the setting or of the question."""
    setting = answer.file.setting
    rows = []
    for lane in sorted({*setting.lanes(), *answer.shares}):
        row: dict[str, Any] = {"lane": lane}
        if isinstance(setting, LaneTables):
            row |= {"high_weight": _weight(setting.high, lane), "low_weight": _weight(setting.low, lane)}
        else:
            row |= {
                key: value
                for key, value in _class(setting, lane).items()
                if key in ("selection", "bandwidth_percent", "priorities")
            }
        share = answer.shares.get(lane)
        load = answer.loads.get(lane)
        rows.append(
            row
            | {
                "backlogged": lane in answer.backlogged,
                "load": None if load is None else float(load),
                "share": None if share is None else float(share),
            }
        )
    return rows


def _kv(answer: Answer) -> dict[str, Any] | None:
    if answer.kv is None or answer.guaranteed is None:
        return None
    setting, share = answer.file.setting, answer.shares.get(answer.kv)
    result: dict[str, Any] = {
        "lane": answer.kv,
        "guaranteed": float(answer.guaranteed),
        "guaranteed_exact": _exact(answer.guaranteed),
        "busy_lanes": list(answer.others),
        "share": None if share is None else float(share),
    }
    if isinstance(setting, LaneTables):
        factor = dilution(setting, answer.kv, mtu=answer.mtu, packet_bytes=answer.packet_bytes)
        result |= {
            "dilution": None if factor is None else float(factor),
            "service_levels": list(service_levels_of(answer.file, answer.kv)) if answer.file.service_levels else None,
        }
    else:
        behind = _behind_strict(answer)
        result["guaranteed_after_strict"] = None if behind is None else float(behind)
    return result


def _behind_strict(answer: Answer) -> Fraction | None:
    """What KV gets of the link while only classes that do not go before it are busy."""
    table, kv = answer.file.setting, answer.kv
    if not isinstance(table, ClassTable) or kv is None or all(traffic.number != kv for traffic in table.classes):
        return None
    before = classes_before(table, kv)
    return exact_shares(table, backlogged={kv, *(lane for lane in answer.others if lane not in before)})[kv]


def _floor(answer: Answer) -> dict[str, Any] | None:
    if answer.floor is None:
        return None
    return {
        "wanted": float(answer.floor.wanted),
        "met": answer.floor_met,
        "suggestions": [
            {
                "set": dict(changes(answer, suggestion)),
                "guaranteed": float(suggestion.guaranteed),
                "guaranteed_exact": _exact(suggestion.guaranteed),
            }
            for suggestion in answer.floor.suggestions
        ],
    }


def changes(answer: Answer, suggestion: Suggestion) -> list[tuple[str, str]]:
    """Keys and values to set, in the words of the tool that sets them. Empty if nothing changes."""
    before, after = answer.file.setting, suggestion.setting
    if isinstance(before, LaneTables) and isinstance(after, LaneTables):
        fields = (
            ("vlarb_high", table_text(before.high), table_text(after.high)),
            ("vlarb_low", table_text(before.low), table_text(after.low)),
            ("high_limit", str(before.high_limit), str(after.high_limit)),
        )
        return [(_key(answer, field), new) for field, old, new in fields if old != new]
    if isinstance(before, ClassTable) and isinstance(after, ClassTable) and before != after:
        by_number = {traffic.number: traffic for traffic in after.classes}
        numbers = range(max(by_number) + 1)
        kinds = [by_number[number].selection if number in by_number else "strict" for number in numbers]
        weights = [str(by_number[number].bandwidth or 0) if number in by_number else "0" for number in numbers]
        return [("tsa", ",".join(kinds)), ("tcbw", ",".join(weights))]
    return []


def _key(answer: Answer, field: str) -> str:
    """The key that counts: one of the port class if the file sets that, else the generic one."""
    return f"qos_{answer.file.port_class}_{field}" if field in answer.file.class_keys else f"qos_{field}"


def _class(table: ClassTable, number: int) -> dict[str, Any]:
    traffic = next((traffic for traffic in table.classes if traffic.number == number), None)
    if traffic is None:
        return {"class": number, "selection": None, "bandwidth_percent": None, "priorities": [], "dscp": []}
    return {
        "class": number,
        "selection": traffic.selection,
        "bandwidth_percent": traffic.bandwidth,
        "priorities": list(traffic.priorities),
        "dscp": sorted(value for priority in traffic.priorities for value in table.dscp.get(priority, ())),
        "rate_limit": traffic.rate_limit,
    }


def _exact(share: Fraction) -> str | None:
    """The fraction where it is one that a person would write; estimates have none."""
    return str(share) if share.denominator <= _READABLE_DENOMINATOR else None


def _weight(table: Iterable[tuple[int, int]], lane: int) -> int:
    return sum(weight for other, weight in table if other == lane)


def _remarks(answer: Answer) -> list[Remark]:
    return [*answer.findings, *answer.file.remarks]


def _assumptions(answer: Answer) -> list[str]:
    if isinstance(answer.file.setting, ClassTable):
        return ["ETS weights count bytes", "strict classes: the higher number goes first"]
    sizes = "".join(f", {size} B on VL{lane}" for lane, size in sorted(answer.packet_bytes.items()))
    return [f"packets of {answer.mtu} B{sizes}", "lanes have credits at all times"]


# ---------------------------------------------------------------- people


def show_answer(answer: Answer, console: Console) -> None:
    """Print the human view: what KV gets, what spoils it, the lanes, a setting for the floor, what else to know."""
    from rich.text import Text

    width = min(console.width, 100)

    def line(text: str = "", style: str = "") -> None:
        console.print(Text(text, style=style), overflow="fold", no_wrap=False)

    def wrapped(text: str, style: str = "", indent: int = 2) -> None:
        import textwrap

        for part in textwrap.wrap(text, max(width - indent, 30), break_on_hyphens=False, break_long_words=False):
            line(" " * indent + part.replace(_GLUE, " "), style)

    wrapped(_headline(answer), "bold", indent=0)
    line()
    verdict = _verdict(answer)
    if verdict:
        wrapped(verdict, "bold")
    for text in _consequences(answer):
        wrapped(text)
    for remark in answer.findings:
        wrapped(remark.text, "yellow")
    if verdict or answer.findings:
        line()
    for index, text in enumerate(_table(answer, width - 2)):
        line("  " + text, "bold" if index == 0 else "")
    limit_told = any(remark.code in ("limit_0", "limit_255") for remark in answer.findings)
    if isinstance(answer.file.setting, LaneTables) and not limit_told:
        line()
        wrapped(_limit_text(answer.file.setting))
    if answer.floor is not None:
        line()
        for text in _floor_lines(answer):
            if text.startswith(("qos_", "mlnx_qos ")):
                line("    " + text)  # to be copied: in one piece
            else:
                wrapped(text)
    notes = [remark.text for remark in answer.file.remarks]
    if answer.kv is None:
        notes.append("--kv-lane tells which lane KV traffic uses, and the answer what it is guaranteed.")
    if notes:
        line()
        for text in notes:
            wrapped("Note: " + text, "yellow")


def _headline(answer: Answer) -> str:
    setting = answer.file.setting
    parts = [answer.name]
    if isinstance(setting, ClassTable):
        parts += ["mlnx_qos", f"{len(setting.classes)} traffic classes"]
    else:
        if answer.file.kind == "opensm":
            lanes = f"{setting.operational_lanes} {'lane' if setting.operational_lanes == 1 else 'lanes'}"
            parts += [f"OpenSM, {answer.file.port_class} ports", lanes]
        else:
            parts.append("smpquery vlarb")
        parts.append(f"MTU {answer.mtu}")
    return " · ".join(part.replace(" ", _GLUE) for part in parts)


def _verdict(answer: Answer) -> str:
    if answer.kv is None or answer.guaranteed is None:
        return ""
    text = f"{answer.word}{answer.kv} (KV) is guaranteed {_percent(answer.guaranteed)}"
    exact = _exact(answer.guaranteed)
    if exact and "/" in exact and answer.guaranteed.numerator == 1:
        text += f" ({exact})"
    if answer.others:
        text += f" while {_lanes(answer, answer.others)} {'is' if len(answer.others) == 1 else 'are'} busy"
        if answer.guaranteed or answer.kv in answer.file.setting.lanes():
            text += f"; it may use all that {'it leaves' if len(answer.others) == 1 else 'they leave'}"
    return text + "."


def _consequences(answer: Answer) -> list[str]:
    lines = []
    behind = _behind_strict(answer)
    if behind is not None and behind != answer.guaranteed:
        lines.append(f"While the classes that go before it are idle, it is guaranteed {_percent(behind)}.")
    if answer.kv in answer.shares and answer.loads and answer.kv is not None:
        loaded = [(lane, load) for lane, load in answer.loads.items() if lane != answer.kv]
        if loaded:
            given = listed(f"{answer.word}{lane} at {_percent(load)}" for lane, load in loaded)
            busy = [lane for lane in answer.backlogged if lane != answer.kv]
            also = f" and {_lanes(answer, busy)} busy" if busy else ""
            gets = _percent(answer.shares[answer.kv])
            lines.append(f"With {given} load{also}, {answer.word}{answer.kv} gets {gets} of the link.")
    return lines


def _table(answer: Answer, width: int) -> list[str]:
    rows = lane_rows(answer)
    lanes = isinstance(answer.file.setting, LaneTables)
    cells = [["Lane", "High", "Low"] if lanes else ["Class", "Kind", "Weight", "Priorities"]]
    cells[0] += ["Share", _asked(answer)]
    for row in rows:
        lane = row["lane"]
        name = f"{answer.word}{lane}{' (KV)' if lane == answer.kv else ''}"
        if lanes:
            cell = [name, str(row["high_weight"] or "-"), str(row["low_weight"] or "-")]
        else:
            weight = row["bandwidth_percent"]
            cell = [name, row["selection"] or "-", "-" if weight is None else f"{weight} %"]
            cell.append(",".join(map(str, row["priorities"])) or "-")
        share = answer.shares.get(lane)
        cell.append("idle" if share is None else _percent(share))
        cell.append("" if share is None else "#" * round(_BAR * share))
        cells.append(cell)
    widths = [max(len(cell[column]) for cell in cells) for column in range(len(cells[0]) - 1)]
    left = {0} if lanes else {0, 1, 3}
    lines = []
    for cell in cells:
        parts = [
            f"{text:<{size}}" if column in left else f"{text:>{size}}"
            for column, (text, size) in enumerate(zip(cell, widths, strict=False))
        ]
        lines.append("  ".join([*parts, cell[-1]]).rstrip())
    if len(lines[0]) > width:
        # the question does not fit beside the head of the table and goes above it
        lines[0] = lines[0][: -len(cells[0][-1])].rstrip()
        lines.insert(0, "Shares " + cells[0][-1])
    return lines


def _asked(answer: Answer) -> str:
    busy = answer.backlogged
    configured = set(answer.file.setting.lanes()) | ({answer.kv} - {None})
    everything = set(busy) == configured and not answer.loads
    text = "while all are busy" if everything and len(busy) > 1 else ""
    if not everything and busy:
        text = f"while {_lanes(answer, busy)} {'is' if len(busy) == 1 else 'are'} busy"
    if answer.loads:
        given = listed(f"{answer.word}{lane} at {_percent(load)}" for lane, load in answer.loads.items())
        text += f"{', ' if text else 'with '}{given}"
    return text


def _limit_text(tables: LaneTables) -> str:
    if not any(weight for _, weight in tables.high) or not any(weight for _, weight in tables.low):
        return f"Limit {tables.high_limit}: without effect, one table is empty."
    if tables.high_limit == NO_LIMIT:
        return "Limit 255: the low table sends only while the high one has nothing."
    if tables.high_limit == 0:
        return "Limit 0: one packet of the high table, then one of the low."
    count = LIMIT_UNIT_BYTES * tables.high_limit
    return f"Limit {tables.high_limit}: {count:,} bytes of the high table, then one packet of the low."


def _floor_lines(answer: Answer) -> list[str]:
    if answer.floor is None:
        return []
    lane, wanted = f"{answer.word}{answer.kv}", _percent(answer.floor.wanted)
    if answer.floor_met:
        return [f"The floor of {wanted} is met as it is."]
    if not answer.floor.suggestions:
        kept = "with the high table's other lanes kept" if answer.word == "VL" else "with at least 1 % for every class"
        return [f"No setting guarantees {lane} a floor of {wanted} {kept}."]
    lines = []
    for index, suggestion in enumerate(answer.floor.suggestions):
        new = changes(answer, suggestion)
        only = "only " if answer.word == "VL" and not any("vlarb" in key for key, _ in new) else ""
        start = f"For a floor of {wanted}, set {only}" if index == 0 else f"or {only}"
        lines.append(f"{start}(then {lane} is guaranteed {_percent(suggestion.guaranteed)})")
        if answer.word == "VL":
            lines += [f"{key} {value}" for key, value in new]
        else:
            lines.append("mlnx_qos -i INTERFACE " + " ".join(f"{_FLAGS[key]} {value}" for key, value in new))
    return lines


def _lanes(answer: Answer, lanes: Iterable[int]) -> str:
    numbers = list(lanes)
    word = "lane" if answer.word == "VL" else "class"
    plural = "lanes" if word == "lane" else "classes"
    return f"{word if len(numbers) == 1 else plural} {_ranges(numbers)}"


def _ranges(numbers: list[int]) -> str:
    """``0, 1 and 3``; runs of four and more as ``1 to 14``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words: list[str] = []
    for run in runs:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 3 else [str(number) for number in run]
    return listed(words)


def _percent(share: Fraction) -> str:
    text = significant(float(100 * share))
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"
