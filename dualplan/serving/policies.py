"""Policies by name, and the sets of them that ``--policy`` chooses."""

from __future__ import annotations

import msgspec

from dualplan.errors import InputError, did_you_mean

PREFILL = {"three-class": 0, "paper-literal": 1, "least-tokens": 2, "round-robin": 3}
"""Placement on prefill engines. ``paper-literal`` classifies engines once per fetch, as the published pseudo-code."""

DECODE = {"threshold": 0, "least-tokens": 1, "round-robin": 2}
"""Placement on decode engines."""

READ_SIDE = {"shorter-queue": 0, "round-robin": 1, "prefill-only": 2}
"""Side that reads in modes with a choice."""


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


def codes(chosen: Policies) -> tuple[int, int, int]:
    """The numbers by which the kernel knows them: prefill, decode, read side."""
    return PREFILL[chosen.prefill], DECODE[chosen.decode], READ_SIDE[chosen.read_side]
