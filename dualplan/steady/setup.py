"""A deployment with what is decided once: who runs where, service times, turns, KV format, storage NICs as measured."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec

from dualplan.errors import InputError
from dualplan.model import kv
from dualplan.model.demand import MeanTurn, SideMemory, mean_turn, side_memory, usable_hbm
from dualplan.model.service_times import ServiceTimes
from dualplan.model.sources import service_times
from dualplan.model.traffic import Path
from dualplan.spec.choices import Mode
from dualplan.spec.fitted_sets import Fitted, fitted, with_measured_storage
from dualplan.spec.hardware import Hardware
from dualplan.spec.parallel import Parallel, default_parallel, hosted
from dualplan.spec.scenario import CollectiveLoad, Scenario
from dualplan.spec.workload import mean_turns

BALANCE = {"shortest-queue": 1.18, "round-robin": 1.53}
"""Largest over mean load of a storage NIC by policy of choosing the read side (DualPath, section 7.4)."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs where, and what follows from it under every mode. Node counts may be arrays of one parallelism."""

    scenario: Scenario
    prefill_nodes: Any
    decode_nodes: Any
    prefill_parallel: Parallel
    decode_parallel: Parallel
    prefill_memory: SideMemory
    decode_memory: SideMemory
    times: ServiceTimes
    turns: MeanTurn
    kv_format: str

    def nodes(self, side: str) -> Any:
        """Nodes of a side."""
        return self.prefill_nodes if side == "prefill" else self.decode_nodes

    def engines(self, side: str) -> Any:
        """Groups of GPUs of a side that serve a turn each: one GPU, or ``tp`` of them."""
        parallel = self.prefill_parallel if side == "prefill" else self.decode_parallel
        return self.nodes(side) * dict(self.scenario.sides)[side].gpu.count / parallel.tp  # type: ignore[index]


def prepare(scenario: Scenario, prefill_nodes: int | None = None, decode_nodes: int | None = None) -> Setup:
    """Parallelism and memory of both sides, and storage NICs as the parameter set of the scenario has them. Raises
    InputError where node counts are missing or a parallelism cannot be hosted.
    """
    if scenario.mix:
        raise InputError("mix", "several models or workloads are not counted with here", "feasible, sweep, compare are")
    settings = scenario.settings
    prefill_nodes, decode_nodes = prefill_nodes or settings.prefill_nodes, decode_nodes or settings.decode_nodes
    counts = {"prefill": prefill_nodes, "decode": decode_nodes}
    missing = [side for side, count in counts.items() if count is None]
    if prefill_nodes is None or decode_nodes is None:
        flags = " and ".join(f"--{side}" for side in missing)
        raise InputError(
            "",
            problems=[f"{side}_nodes: missing (give {flags}, or --nodes N for the best split)" for side in missing[:1]],
        )
    fit = fitted(scenario)
    prefill, decode = hosting(scenario, "prefill", prefill_nodes, fit), hosting(scenario, "decode", decode_nodes, fit)
    return setup_of(scenario, fit, (prefill_nodes, decode_nodes), prefill, decode)


Host = tuple[Parallel, SideMemory]
"""The parallelism of a side, and its memory."""


def setup_of(scenario: Scenario, fit: Fitted | None, nodes: tuple[Any, Any], prefill: Host, decode: Host) -> Setup:
    """The setup of a deployment: storage NICs as the fitted set has them, service times, turns and KV format."""
    scenario, model = with_measured_storage(scenario, fit), scenario.model
    return Setup(
        scenario=scenario,
        prefill_nodes=nodes[0],
        decode_nodes=nodes[1],
        prefill_parallel=prefill[0],
        decode_parallel=decode[0],
        prefill_memory=prefill[1],
        decode_memory=decode[1],
        times=service_times(scenario, prefill[0], decode[0], fit),
        turns=mean_turn(scenario.workload),
        kv_format=kv.check_format(scenario.settings.kv_format or model.kv_format, model, "kv_format"),
    )


def with_scenario(setup: Setup, scenario: Scenario, **changes: Any) -> Setup:
    """The deployment of another scenario on the same nodes, with what follows from the scenario decided anew."""
    setup = msgspec.structs.replace(setup, **changes)
    nodes = (setup.prefill_nodes, setup.decode_nodes)
    prefill, decode = (setup.prefill_parallel, setup.prefill_memory), (setup.decode_parallel, setup.decode_memory)
    return setup_of(scenario, fitted(scenario), nodes, prefill, decode)


def hosting(scenario: Scenario, side: Path, nodes: int, fit: Fitted | None) -> Host:
    """The parallelism of a side of so many nodes, and its memory. Raises InputError where a given one has no room."""
    hardware = scenario.hardware if side == "prefill" else scenario.decode_hardware
    given = scenario.prefill_parallel if side == "prefill" else scenario.decode_parallel
    gpus = nodes * hardware.gpu.count
    if given is None:
        parallel = default_parallel(scenario.model, gpus, hardware.gpu.count, usable_hbm(hardware), side)
    else:
        parallel = hosted(given, scenario.model, gpus, hardware.gpu.count, where=f"{side}.parallel")
    redundant = 0 if fit is None else fit.chosen.redundant_experts
    return parallel, side_memory(scenario.model, parallel, hardware, redundant)


def given_collectives(scenario: Scenario) -> CollectiveLoad | None:
    """The collective load of --collective-load, for both sides; None where it is derived."""
    given = scenario.settings.collective_load
    return CollectiveLoad(given, given) if isinstance(given, float | int) else given


def kv_share(hardware: Hardware, collective_load: Any) -> Any:
    """Share of a compute NIC that KV traffic can use while collectives use ``collective_load`` of it.

    What the collectives leave, and under a QoS setting at least what the arbiter guarantees. Exact for Fractions.
    """
    if hardware.qos is None or not collective_load:
        return 1 - collective_load
    from dualplan.flow.arbitration import kv_share_available

    qos = hardware.qos
    return kv_share_available(qos.setting(), qos.kv_lane, qos.collective_lanes, collective_load, mtu=qos.mtu)


def kv_floor(hardware: Hardware) -> Fraction:
    """Share of a compute NIC that the arbiter guarantees KV traffic while all collective lanes are busy; 0 without
    QoS.
    """
    if hardware.qos is None:
        return Fraction(0)
    from dualplan.flow.arbitration import guaranteed

    qos = hardware.qos
    return guaranteed(qos.setting(), qos.kv_lane, busy=qos.collective_lanes, mtu=qos.mtu)


def balance_factor(scenario: Scenario, mode: Mode) -> float:
    """Largest over mean load of a storage NIC: set, or by policy; 1 where reads are not a choice or are split."""
    if scenario.settings.balance is not None:
        return scenario.settings.balance
    return BALANCE[scenario.settings.policy] if mode == "dual-path" else 1.0


def demand_turns_per_s(scenario: Scenario) -> float | None:
    """The turn rate that is asked for; of two demands the larger, None where none is given."""
    demand = scenario.settings.demand
    wanted = [demand.turn_rate] if demand.turn_rate is not None else []
    if demand.arrival_rate is not None:
        wanted.append(demand.arrival_rate * mean_turns(scenario.workload))
    return max(wanted, default=None)
