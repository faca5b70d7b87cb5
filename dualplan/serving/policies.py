"""Policies by name, and the sets of them that ``--policy`` chooses.

A new policy is a function in ``placement``, a member here, and a branch in the function of the kernel that decides:
``passes.place_prefill``, ``pools.place_decode`` or ``reads.decode_share``.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TypeVar

import msgspec

from dualplan.errors import InputError, did_you_mean


class Prefill(IntEnum):
    """Placement on prefill engines."""

    THREE_CLASS = auto()
    PAPER_LITERAL = auto()
    """Three classes, classified once per fetch, as the published pseudo-code."""
    LEAST_TOKENS = auto()
    ROUND_ROBIN = auto()


class Decode(IntEnum):
    """Placement on decode engines."""

    THRESHOLD = auto()
    LEAST_TOKENS = auto()
    ROUND_ROBIN = auto()


class ReadSide(IntEnum):
    """Side that reads in modes with a choice."""

    SHORTER_QUEUE = auto()
    ROUND_ROBIN = auto()
    PREFILL_ONLY = auto()


_Policy = TypeVar("_Policy", bound=IntEnum)


def _by_name(kind: type[_Policy]) -> dict[str, _Policy]:
    """The members of a decision by the names of flags: ``THREE_CLASS`` is ``three-class``."""
    return {member.name.lower().replace("_", "-"): member for member in kind}


PREFILL, DECODE, READ_SIDE = _by_name(Prefill), _by_name(Decode), _by_name(ReadSide)
"""The policies of each decision by name. The kernel compares with the members, so no order or number matters."""


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """One policy for each decision, by name."""

    prefill: str = "three-class"
    decode: str = "threshold"
    read_side: str = "shorter-queue"


SETS = {
    "shortest-queue": Policies(),
    "round-robin": Policies(prefill="round-robin", decode="round-robin", read_side="round-robin"),
}
"""The sets behind ``--policy``: DualPath's scheduler, and none (its ablation without a scheduler)."""


def policies(
    name: str, *, prefill: str | None = None, decode: str | None = None, read_side: str | None = None
) -> Policies:
    """The policies of a set, some of them replaced. Raises InputError for unknown names, all of them at once."""
    faults = []
    for flag, value, known in (
        ("--policy", name, SETS),
        ("--prefill-placement", prefill, PREFILL),
        ("--decode-placement", decode, DECODE),
        ("--read-side", read_side, READ_SIDE),
    ):
        if value is not None and value not in known:
            hint = did_you_mean(value, known) or "known: " + ", ".join(known)
            faults.append(InputError(flag, f'"{value}" is not a policy', hint).problems[0])
    if faults:
        raise InputError("", problems=faults)
    chosen = SETS[name]
    return Policies(
        prefill=prefill or chosen.prefill, decode=decode or chosen.decode, read_side=read_side or chosen.read_side
    )
