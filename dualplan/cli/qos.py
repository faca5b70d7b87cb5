"""``dualplan qos``: shares of virtual lanes or traffic classes, what KV traffic is guaranteed, settings for a floor."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit

if TYPE_CHECKING:
    from dualplan.spec.qos import QosFile

T = TypeVar("T")

MTUS = (256, 512, 1024, 2048, 4096)
PUBLISHED_KV_LANE = 2


class PortClassChoice(StrEnum):
    """Port classes of OpenSM."""

    ca = "ca"
    sw0 = "sw0"
    swe = "swe"
    rtr = "rtr"


def qos(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="opensm.conf, smpquery vlarb output or mlnx_qos output; - for standard input.",
            show_default=False,
        ),
    ],
    kv_lane: Annotated[
        int | None,
        typer.Option(
            "--kv-lane",
            metavar="LANE",
            help="Lane (RoCE: traffic class) of KV traffic.  [default: 2 if the tables name it; RoCE: none]",
            show_default=False,
        ),
    ] = None,
    backlogged: Annotated[
        str | None,
        typer.Option(
            "--backlogged",
            metavar="LANE,...",
            help="Lanes with more to send than they get.  [default: the KV lane with --load, else all]",
            show_default=False,
        ),
    ] = None,
    load: Annotated[
        list[str] | None,
        typer.Option(
            "--load",
            metavar="LANE:LOAD",
            help="Load of a lane as part of the link: 0:0.8. May be repeated.",
            show_default=False,
        ),
    ] = None,
    mtu: Annotated[int, typer.Option("--mtu", metavar="BYTES", help="Packet size of all lanes.")] = 4096,
    packet: Annotated[
        list[str] | None,
        typer.Option(
            "--packet",
            metavar="LANE:BYTES",
            help="Packet size of a lane, if not the MTU. May be repeated.",
            show_default=False,
        ),
    ] = None,
    port_class: Annotated[
        PortClassChoice, typer.Option("--port-class", help="Port class whose keys of an opensm.conf count.")
    ] = PortClassChoice.ca,
    high_limit: Annotated[
        int | None,
        typer.Option(
            "--high-limit",
            metavar="LIMIT",
            help="Limit instead of the file's; smpquery vlarb does not print it.",
            show_default=False,
        ),
    ] = None,
    floor: Annotated[
        str | None,
        typer.Option(
            "--floor", metavar="SHARE", help="Suggest settings that guarantee KV this share: 1%.", show_default=False
        ),
    ] = None,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    file: OutputOption = None,
) -> None:
    """Shares of InfiniBand virtual lanes or RoCE traffic classes, and what KV traffic is guaranteed.

    The kind of file is recognised from its content. Shares are of the link while the lanes of --backlogged send all
    they can and those of --load offer that load; what a lane leaves, the others may use.
    """
    import hashlib
    from functools import partial

    from dualplan.errors import InfeasibleError, UsageError, problem
    from dualplan.flow.arbitration import exact_shares, guaranteed
    from dualplan.flow.arbitration_settings import findings, settings_for_floor
    from dualplan.report.qos import Answer, Floor, output
    from dualplan.spec.qos import LaneTables, parse_qos
    from dualplan.units import whole

    name = "standard input" if str(path) == "-" else str(path)
    text = _text(path)
    found = _with_limit(parse_qos(text, name, port_class.value), high_limit)
    setting = found.setting
    kv = _kv_lane(found, kv_lane)
    loads = _by_lane(load, found, "--load", _share)
    sizes = _by_lane(packet, found, "--packet", partial(whole, what="a packet size in bytes", most=999_999))
    if isinstance(setting, LaneTables):
        _check_mtu(mtu)
    busy = _backlogged(found, backlogged, loads, kv)
    for lane in busy & loads.keys():
        raise UsageError(f"--load {lane}: lane {lane} is in --backlogged too; give one of them")
    wanted = None if floor is None else _floor(floor)
    if wanted is not None and kv is None:
        raise UsageError("--floor needs --kv-lane: whose share?")

    guarantee = None if kv is None else guaranteed(setting, kv, mtu=mtu, packet_bytes=sizes)
    answer = Answer(
        name=problem("", name),
        file=found,
        mtu=mtu,
        packet_bytes=sizes,
        backlogged=tuple(sorted(busy)),
        loads=dict(sorted(loads.items())),
        shares=exact_shares(setting, backlogged=busy, loads=loads, mtu=mtu, packet_bytes=sizes),
        kv=kv,
        guaranteed=guarantee,
        findings=tuple(findings(found, kv, mtu=mtu, packet_bytes=sizes)),
        floor=None
        if wanted is None or kv is None or guarantee is None
        else Floor(
            wanted=wanted,
            suggestions=()
            if guarantee >= wanted
            else tuple(settings_for_floor(setting, kv, wanted, mtu=mtu, packet_bytes=sizes)),
        ),
        inputs_sha256=hashlib.sha256(text.encode()).hexdigest(),
    )
    emit(output(answer), fmt, as_json, file)
    if answer.floor is not None and not answer.floor.suggestions and not answer.floor_met:
        raise InfeasibleError(f"no setting near this one guarantees lane {kv} {float(100 * answer.floor.wanted):g} %")


def _text(path: Path) -> str:
    import sys

    from dualplan.errors import InputError
    from dualplan.spec.load import read_text
    from dualplan.spec.qos import MAX_FILE_BYTES

    if str(path) != "-":
        return read_text(path, limit=MAX_FILE_BYTES)
    raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("standard input", "is not UTF-8 text") from None
    if "\0" in text or len(raw) > MAX_FILE_BYTES:
        raise InputError("standard input", "is binary or too long")
    return text


def _with_limit(found: QosFile, limit: int | None) -> QosFile:
    import msgspec

    from dualplan.errors import InputError, UsageError
    from dualplan.spec.qos import LaneTables, Remark

    if limit is None:
        if found.high_limit_known:
            return found
        text = "smpquery vlarb does not print the limit: 0, OpenSM's default, is assumed. "
        unknown = Remark(code="limit_unknown", text=text + "--high-limit sets it (VLHighLimit in smpquery portinfo).")
        return msgspec.structs.replace(found, remarks=(unknown, *found.remarks))
    if not isinstance(found.setting, LaneTables):
        raise UsageError("--high-limit is for InfiniBand; the file has RoCE traffic classes")
    if not 0 <= limit <= 255:
        raise InputError("--high-limit", f"{limit} is not in 0 .. 255")
    setting = msgspec.structs.replace(found.setting, high_limit=limit)
    return msgspec.structs.replace(found, setting=setting, high_limit_known=True)


def _kv_lane(found: QosFile, given: int | None) -> int | None:
    from dualplan.spec.qos import LaneTables

    if given is not None:
        return _lane(str(given), found, "--kv-lane")
    tables = found.setting
    if isinstance(tables, LaneTables) and any(lane == PUBLISHED_KV_LANE for lane, _ in (*tables.high, *tables.low)):
        return PUBLISHED_KV_LANE
    return None


def _lane(text: str, found: QosFile, flag: str) -> int:
    from dualplan.errors import InputError
    from dualplan.spec.qos import LaneTables

    last = 14 if isinstance(found.setting, LaneTables) else 7
    clean = text.strip().upper().removeprefix("VL").removeprefix("TC")
    if not (clean.isascii() and clean.isdigit() and len(clean) <= 4):
        raise InputError(flag, f'"{text[:40]}" is not a lane number')
    if int(clean) > last:
        what = "lanes" if last == 14 else "traffic classes"
        raise InputError(flag, f"{int(clean)} does not exist, {what} are 0 to {last}")
    return int(clean)


def _by_lane(items: list[str] | None, found: QosFile, flag: str, read: Callable[[str, str], T]) -> dict[int, T]:
    """``LANE:VALUE`` items as a mapping."""
    from dualplan.errors import InputError

    values: dict[int, T] = {}
    for item in items or ():
        left, colon, right = item.partition(":")
        if not colon:
            raise InputError(flag, f'"{item[:40]}" has no colon', "write LANE:VALUE")
        lane = _lane(left, found, flag)
        if lane in values:
            raise InputError(flag, f"lane {lane} is given twice")
        values[lane] = read(right, f"{flag} {item[:40]}")
    return values


def _share(text: str, where: str) -> Fraction:
    from dualplan.units import number

    value = number(text, where, "a share", dimension="1", least=0, most=1)
    return Fraction(f"{value:.15g}")  # the decimal that was written, not the nearest binary number


def _floor(text: str) -> Fraction:
    from dualplan.errors import InputError

    share = _share(text, "--floor")
    if not 0 < share < 1:
        raise InputError("--floor", f'"{text.strip()}" is not between 0 and 1', "write for example 1%")
    return share


def _check_mtu(mtu: int) -> None:
    from dualplan.errors import InputError

    if mtu not in MTUS:
        raise InputError("--mtu", f"{mtu} is not an MTU of InfiniBand", "256, 512, 1024, 2048 or 4096")


def _backlogged(found: QosFile, given: str | None, loads: dict[int, Fraction], kv: int | None) -> set[int]:
    from dualplan.errors import InputError

    if given is not None:
        parts = given.split(",")
        if len(parts) > 64:
            raise InputError("--backlogged", "too many lanes")
        return {_lane(part, found, "--backlogged") for part in parts}
    if loads and kv is not None:
        return {kv} - loads.keys()
    return {*found.setting.lanes(), *(() if kv is None else (kv,))} - loads.keys()
