"""A deployment with its rate: what the answer for one workload and that for a mix are both made from."""

from __future__ import annotations

from typing import Any

import msgspec

from dualplan.messages import Message
from dualplan.model.throughput import Rate
from dualplan.steady.problem import Problem
from dualplan.steady.ranges import Ranges
from dualplan.steady.setup import Setup


class ClassRate(msgspec.Struct, frozen=True, kw_only=True):
    """One model and workload of a mix: its share of the turns, its rates, its latencies [s].

    ``alone_turns_per_s``: the rate if all turns were its own, the weights of the others still resident.
    """

    model: str
    workload: str
    share: float
    turns_per_s: float
    agents_per_s: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    ttft_unloaded_s: float
    tpot_s: float
    alone_turns_per_s: float


class Solved(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment with its rate, of one workload or of a mix: what an answer is made from.

    ``missing`` room by side, each with a message; ``basic_turns_per_s``: the rate under mode basic; ``ttft``: unloaded
    [s]. ``classes`` of a mix, of which ``slow`` ones keep no TPOT.
    """

    setup: Setup
    problem: Problem
    rate: Rate
    missing: dict[str, Message]
    ranges: Ranges
    basic_turns_per_s: Any
    ttft: float
    classes: tuple[ClassRate, ...] = ()
    slow: tuple[Message, ...] = ()
