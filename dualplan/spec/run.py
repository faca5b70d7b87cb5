"""One simulated run: everything that a command, a sweep or a caller from Python can ask of it, checked once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from dualplan.errors import InputError, each, problem, refuse
from dualplan.spec.choices import Mode
from dualplan.spec.scenario import Scenario
from dualplan.units import factor, number, parse, whole

MOST_AGENTS = 2_000_000
"""More agents in a run would not fit the memory of a usual machine."""

DURATION = 3000.0
"""Length of an online run [s]; with it the published mean completion times and capacities come out."""

SWITCH_COST = 30.0
"""Time from the end of a node's last work in one role to its first in the other [s]: loading weights, building
groups. An assumption; vendors give 10 s to minutes."""


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on mean TTFT and mean TPOT [s], the published form of the SLO."""

    ttft: float = 4.0
    tpot: float = 0.05


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of each side from a time [s] on."""

    time: float
    prefill_nodes: int
    decode_nodes: int


class Elastic(msgspec.Struct, frozen=True, kw_only=True):
    """When nodes change roles: ``splits`` in time order, or by the rule if there are none. ``switch_cost`` in s."""

    splits: tuple[Split, ...] = ()
    switch_cost: float = SWITCH_COST


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is asked. Times in s. Raises InputError with every value that is out of range.

    What arrives, one of them: ``agents`` that start together and run to their end, ``arrival_rate`` in agents/s,
    ``trace_times``, those of the trace, ``find_capacity``, the highest rate that meets ``slo`` (a bracket of relative
    width ``tolerance``). ``duration``: of an online run; turns that end within ``warm_up`` do not count. ``trace``: the
    file of a workload that is a trace. ``append_scale`` and ``generated_scale`` multiply lengths, ``tokens_per_step``:
    more than 1 with speculative decoding. ``max_active``: agents that may have started and not ended, 0 for any number.
    ``clusters``: equal clusters that the nodes are split into; ``elastic``: nodes change their roles. ``label``: what
    the result is called. ``compiled``: whether the compiled kernel runs it, None to decide by its size; the figures are
    the same. None elsewhere: as the scenario says, or the default.
    """

    agents: int | None = None
    arrival_rate: float | None = None
    trace_times: bool = False
    find_capacity: bool = False
    duration: float | None = None
    warm_up: float | None = None
    seed: int | None = None
    slo: Slo | None = None
    tolerance: float = 0.02
    mode: Mode | None = None
    prefill_placement: str | None = None
    decode_placement: str | None = None
    read_side: str | None = None
    tokens_per_step: float = 1.0
    append_scale: float = 1.0
    generated_scale: float = 1.0
    max_active: int = 0
    clusters: int = 1
    elastic: Elastic | None = None
    trace: str | None = None
    label: str | None = None
    compiled: bool | None = None

    def __post_init__(self) -> None:
        agents, rate, length, warm_up = self.agents, self.arrival_rate, self.duration, self.warm_up
        arrivals = (agents is not None, rate is not None, self.trace_times, self.find_capacity)
        timed = length is not None or warm_up is not None
        cost = self.elastic.switch_cost if self.elastic is not None else 0.0
        faults = (
            ("simulate", sum(arrivals) > 1, "takes one of agents, arrival_rate, trace_times and find_capacity"),
            ("simulate", agents is not None and timed, "a job of agents runs to its end, without duration and warm_up"),
            ("--agents", agents is not None and agents < 1, f"{agents} is not a number of agents above 0"),
            ("--arrival-rate", rate is not None and not 0 < rate < math.inf, f"{rate} is not a rate above 0"),
            (
                "--duration",
                length is not None and not 0 < length < math.inf,
                f"{length or 0:g} s is not a length of a run",
            ),
            (
                "--tokens-per-step",
                not 1 <= self.tokens_per_step < 1e6,
                f"{self.tokens_per_step:g} is not a factor of at least 1",
            ),
            ("--append-scale", not 0 < self.append_scale < 1e6, f"{self.append_scale:g} is not a factor above 0"),
            (
                "--generated-scale",
                not 0 < self.generated_scale < 1e6,
                f"{self.generated_scale:g} is not a factor above 0",
            ),
            ("tolerance", not 0 < self.tolerance < 1, f"{self.tolerance:g} is not between 0 and 1"),
            ("--max-active", self.max_active < 0, f"{self.max_active} is below 0"),
            ("--clusters", self.clusters < 1, f"{self.clusters} is not a number of clusters above 0"),
            ("--switch-cost", cost < 0, f"{cost:g} s is below 0"),
            (
                "--elastic",
                self.elastic is not None and self.clusters > 1,
                "roles change within one cluster (leave out --clusters)",
            ),
        )
        refuse(problem(flag, what) for flag, bad, what in faults if bad)

    def but(self, **values: Any) -> RunSpec:
        """The same run with some values replaced, checked again."""
        return msgspec.structs.replace(self, **values)

    @property
    def arrives(self) -> bool:
        """Whether it says itself what arrives."""
        return self.agents is not None or self.arrival_rate is not None or self.trace_times or self.find_capacity

    def of(self, scenario: Scenario) -> RunSpec:
        """The run with what it leaves open as the scenario says: what arrives, seed, SLO and mode."""
        settings = scenario.settings
        return self.but(
            arrival_rate=self.arrival_rate if self.arrives else settings.demand.arrival_rate,
            seed=settings.seed if self.seed is None else self.seed,
            slo=self.slo or slo_of(scenario),
            mode=self.mode or settings.mode,
        )


_READERS: dict[str, Callable[[str, str], float]] = {
    "agents": partial(whole, most=MOST_AGENTS),
    "duration": partial(number, what="a time", dimension="s"),
    "warm_up": partial(number, what="a time", dimension="s"),
    "seed": partial(whole, least=0, most=2**31 - 1),
    "tokens_per_step": partial(factor, least=1.0),
    "append_scale": factor,
    "generated_scale": factor,
    "max_active": partial(whole, most=MOST_AGENTS),
}
"""How the text of a flag is read, by the field that it sets."""


def from_flags(texts: Mapping[str, str | None], **values: Any) -> RunSpec:
    """A run from texts of flags by the name of the field, None where not given, beside ``values`` that are read
    already. Raises InputError with every problem.
    """
    read = each(
        [(name, text) for name, text in texts.items() if text is not None],
        lambda one: (one[0], _READERS[one[0]](one[1], "--" + one[0].replace("_", "-"))),
    )
    values |= dict(read)
    return RunSpec(**values)


def slo_of(scenario: Scenario) -> Slo:
    """The SLO that a scenario gives, DualPath's 4 s and 50 ms where it gives none."""
    limits = {name: getattr(scenario.settings.slo, name) for name in ("ttft", "tpot")}
    return Slo(**{name: limit for name, limit in limits.items() if limit is not None})


def parse_elastic(text: str, flag: str, switch_cost: float) -> Elastic:
    """``auto``, or splits such as ``600s:3P3D,1200s:2P4D``. Raises InputError."""
    if text.strip() == "auto":
        return Elastic(switch_cost=switch_cost)
    splits: list[Split] = []
    for part in text.split(","):
        when, _, nodes = part.partition(":")
        found = re.fullmatch(r"\s*([1-9]\d{0,5})P([1-9]\d{0,5})D\s*", nodes, re.IGNORECASE | re.ASCII)
        if found is None:
            raise InputError(flag, f'"{part[:40]}" is not TIME:xPyD', 'such as "600s:3P3D,1200s:2P4D", or auto')
        time = parse(when.strip(), "s", flag)
        if not 0 < time < math.inf or (splits and time <= splits[-1].time):
            raise InputError(flag, f"{when.strip()[:40]} is not a time after the one before")
        splits.append(Split(time=time, prefill_nodes=int(found[1]), decode_nodes=int(found[2])))
    return Elastic(splits=tuple(splits), switch_cost=switch_cost)
