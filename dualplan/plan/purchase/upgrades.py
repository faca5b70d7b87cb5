"""What to buy next for a deployment: what binds one after the other, what one more unit of each thing brings, and what
that may cost before more nodes bring the same rate for less.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import msgspec

from dualplan.errors import InputError
from dualplan.messages import Message, message
from dualplan.model.throughput import Rate, Use, best_split
from dualplan.nomenclature import QUANTITIES
from dualplan.plan.purchase.cost import Prices, node_price
from dualplan.spec.choices import SINGLE_SIDED
from dualplan.spec.fitted_sets import fitted
from dualplan.spec.hardware import Hardware
from dualplan.spec.scenario import Scenario
from dualplan.steady.problem import Problem, build
from dualplan.steady.ranges import all_traffic_range
from dualplan.steady.rate import solve, storage_positions, uses
from dualplan.steady.reasons import misfits
from dualplan.steady.setup import Setup, prepare

NIC_STEPS = (12.5e9, 25e9, 50e9, 100e9, 200e9)
"""Line rates of compute NICs that are sold [B/s]: 100 to 1,600 Gb/s."""

TEN_PER_CENT = 1.1
SMALL = 1e-6
"""Relative step of a capacity that a dual value is read off with."""

FITTED_PARTS = {"gpu_flops": ("prefill", "decode"), "hbm_bandwidth": ("decode",)}
"""Upgrades that change what a fitted set measured, and the parts of the set."""

NOTHING = 1e-9
"""Relative gains below this are rounding."""


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One bottleneck of the ladder. ``turns_per_s``: the rate while it binds; ``gain``: relative rise once it is
    relieved too, up to ``next``; None where nothing binds any more. ``tied``: what had to be relieved with it.
    """

    resource: str
    side: str | None
    turns_per_s: float
    tied: tuple[str, ...]
    next: str | None
    gain: float | None


class Dual(msgspec.Struct, frozen=True, kw_only=True):
    """Dual value of a resource: relative rise of the rate for a relative rise of its capacity, 0 to 1. Those of a
    deployment add up to 1 at most; with ties, where no single resource helps, to less.
    """

    resource: str
    side: str | None
    value: float


class Upgrade(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to buy, evaluated exactly. ``gain``: relative rise of the rate.

    ``worth_nodes``: nodes, in fractions, that bring the same rate at least cost; None where no number of them does, or
    where the upgrade itself is a node. ``break_even_usd_per_node_hour`` and ``break_even_usd_per_node``: what the
    upgrade of one node may cost by the hour, or at purchase, before those nodes are cheaper.
    """

    key: str
    title: Message
    change: str
    upgraded_nodes: int
    prefill_nodes: int
    decode_nodes: int
    turns_per_s: float
    gain: float
    bottleneck: str | None
    inside_range: bool
    worth_nodes: float | None = None
    break_even_usd_per_node_hour: float | None = None
    break_even_usd_per_node: float | None = None


class Upgrades(msgspec.Struct, frozen=True, kw_only=True):
    """All of it for one deployment; ``upgrades`` by gain, best first. ``unknown``: upgrades of which nobody knows what
    they bring, since the times are a fitted set and it does not say how they change with the GPU.
    """

    prefill_nodes: int
    decode_nodes: int
    turns_per_s: float
    ladder: tuple[Rung, ...]
    duals: tuple[Dual, ...]
    upgrades: tuple[Upgrade, ...]
    unknown: tuple[Message, ...] = ()


def ladder_of(problem: Problem) -> tuple[Rung, ...]:
    """The sequence of bottlenecks as each is relieved, for a deployment that fits its memory."""
    rungs: list[Rung] = []
    relieved: tuple[int, ...] = ()
    rate = solve(problem)
    while rate.binding is not None:
        first, tied, before = rate.binding, [], rate
        relieved = (*relieved, first)
        rate = solve(problem, without=relieved, near_share=before.decode_share)
        while rate.binding is not None and rate.turns_per_s < before.turns_per_s * (1 + NOTHING):
            tied.append(problem.resources[rate.binding].name)
            relieved = (*relieved, rate.binding)
            rate = solve(problem, without=relieved, near_share=before.decode_share)
        following = None if rate.binding is None else problem.resources[rate.binding].name
        rungs.append(
            Rung(
                resource=problem.resources[first].name,
                side=problem.resources[first].side,
                turns_per_s=float(before.turns_per_s),
                tied=tuple(dict.fromkeys(tied)),
                next=following,
                gain=None if following is None else float(rate.turns_per_s / before.turns_per_s - 1),
            )
        )
    return tuple(rungs)


def dual_values(problem: Problem) -> tuple[Dual, ...]:
    """What a little more of each resource brings, those that bring nothing left out."""
    base = uses(problem)
    before = _rate(problem, base).turns_per_s
    found = []
    if before is None:
        return ()
    for index, resource in enumerate(problem.resources):
        more = [_faster(use, 1 + SMALL) if position == index else use for position, use in enumerate(base)]
        value = (float(_rate(problem, more).turns_per_s) / float(before) - 1) / SMALL
        if value > 1e-4:
            found.append(Dual(resource=resource.name, side=resource.side, value=min(value, 1.0)))
    return tuple(sorted(found, key=lambda dual: -dual.value))


def _faster(use: Use, factor: float) -> Use:
    return Use(use.name, use.prefill / factor, use.decode / factor)


def _rate(problem: Problem, found: list[Use]) -> Rate:
    return best_split(found, both_paths=problem.mode not in SINGLE_SIDED, balance=storage_positions(found))


def upgrades(
    scenario: Scenario,
    prefill_nodes: int | None = None,
    decode_nodes: int | None = None,
    *,
    prices: Prices | None = None,
) -> Upgrades:
    """Ladder, dual values and single upgrades of a deployment. Raises InputError without node counts, or where the
    deployment does not fit its memory, so that there is no rate to raise.
    """
    setup = prepare(scenario, prefill_nodes, decode_nodes)
    problem = build(setup, scenario.settings.mode)
    missing = misfits(setup, problem)
    if missing:
        raise InputError("--upgrades", "the deployment has no rate to raise. " + " ".join(map(str, missing.values())))
    rate = solve(problem)
    turns = float(rate.turns_per_s or 0.0)
    duals = dual_values(problem)
    set_in_use = fitted(scenario)
    options = [option for option in _options(setup) if option is not None and turns]
    unknown = [option for option in options if set_in_use and any(set_in_use.has(part) for part in option.fitted_parts)]
    found = [_evaluated(setup, problem, turns, prices or Prices(), o) for o in options if o not in unknown]
    return Upgrades(
        prefill_nodes=setup.prefill_nodes,
        decode_nodes=setup.decode_nodes,
        turns_per_s=turns,
        ladder=ladder_of(problem),
        duals=duals,
        upgrades=tuple(sorted(found, key=lambda upgrade: -upgrade.gain)),
        unknown=tuple(option.title for option in unknown),
    )


class _Option(msgspec.Struct, frozen=True, kw_only=True):
    """A changed deployment. ``upgraded``: sides whose nodes are changed; none where a node is added.
    ``fitted_parts``: parts of a fitted set whose times the change would alter.
    """

    key: str
    title: Message
    change: str
    scenario: Scenario
    prefill_nodes: int
    decode_nodes: int
    upgraded: tuple[str, ...] = ()
    fitted_parts: tuple[str, ...] = ()


def _options(setup: Setup) -> list[_Option | None]:
    """Everything that is tried: parts of all nodes, parts of the nodes of one side, balance, nodes."""
    scenario = setup.scenario
    alike = scenario.hardware == scenario.decode_hardware
    sides: list[tuple[str, ...]] = [("prefill", "decode"), ("prefill",), ("decode",)]
    options: list[_Option | None] = []
    for key, change in PARTS:
        options += [_part(setup, key, change, chosen) for chosen in sides]
    for side in ("prefill", "decode"):
        more = {"prefill_nodes": setup.prefill_nodes, "decode_nodes": setup.decode_nodes}
        before = more[f"{side}_nodes"]
        more[f"{side}_nodes"] += 1
        machine = dict(scenario.sides)[side].name
        options.append(
            _Option(
                key=f"{side}_nodes",
                title=message("upgrade.node", side=side)
                if alike
                else message("upgrade.node_of", side=side, hardware=machine),
                change=f"{before} -> {before + 1}",
                scenario=scenario,
                **more,
            )
        )
    balance = build(setup, scenario.settings.mode).balance
    if balance > 1:
        settings = msgspec.structs.replace(scenario.settings, balance=1.0)
        options.append(
            _Option(
                key="balance",
                title=message("upgrade.balance"),
                change=f"{balance:g} -> 1",
                scenario=msgspec.structs.replace(scenario, settings=settings),
                prefill_nodes=setup.prefill_nodes,
                decode_nodes=setup.decode_nodes,
                upgraded=("prefill", "decode"),
            )
        )
    return options


Change = Callable[[Hardware], tuple[Hardware, str] | None]


def _part(setup: Setup, key: str, change: Change, sides: tuple[str, ...]) -> _Option | None:
    """A part of every node of some sides changed; None where a side lacks it or cannot have more."""
    scenario = setup.scenario
    fields = {"prefill": "hardware", "decode": "decode_hardware"}
    replaced: dict[str, Hardware] = {}
    texts: list[str] = []
    for side in sides:
        changed = change(getattr(scenario, fields[side]))
        if changed is None:
            return None
        replaced[fields[side]] = changed[0]
        texts.append(changed[1])
    part = message(f"upgrade.{key}")
    each = message("upgrade.each_node", part=part, side=sides[0])
    return _Option(
        key=key if len(sides) == 2 else f"{sides[0]}_{key}",
        title=message("upgrade.every_node", part=part) if len(sides) == 2 else each,
        change=", ".join(dict.fromkeys(texts)),
        scenario=msgspec.structs.replace(scenario, **replaced),
        prefill_nodes=setup.prefill_nodes,
        decode_nodes=setup.decode_nodes,
        upgraded=sides,
        fitted_parts=tuple(part for part in FITTED_PARTS.get(key, ()) if part in sides),
    )


def _scaled(name: str) -> Change:
    """Ten per cent more of a rate or a size of a node; None where it is unknown."""
    quantity = QUANTITIES[name]
    section, field = quantity.field.split(".")

    def change(hardware: Hardware) -> tuple[Hardware, str] | None:
        from dualplan.units import show

        part = getattr(hardware, section)
        value = getattr(part, field)
        if value is None:
            return None
        more = msgspec.structs.replace(part, **{field: value * TEN_PER_CENT})
        text = f"{show(value, quantity.unit)} -> {show(value * TEN_PER_CENT, quantity.unit)}"
        return msgspec.structs.replace(hardware, **{section: more}), text

    return change


def _one_more_snic(hardware: Hardware) -> tuple[Hardware, str]:
    count = hardware.snic.count
    return with_snics(hardware, count + 1), f"{count} -> {count + 1}"


def with_snics(hardware: Hardware, count: int) -> Hardware:
    """The node with another number of storage NICs. Raises InputError where its PCIe uplinks hold more."""
    return msgspec.structs.replace(hardware, snic=msgspec.structs.replace(hardware.snic, count=count))


def _next_cnic(hardware: Hardware) -> tuple[Hardware, str] | None:
    rate = hardware.cnic.rate
    faster = next((step for step in NIC_STEPS if step > rate * (1 + NOTHING)), None)
    if faster is None:
        return None
    cnic = msgspec.structs.replace(hardware.cnic, rate=faster)
    return msgspec.structs.replace(hardware, cnic=cnic), f"{rate * 8e-9:g} -> {faster * 8e-9:g} Gb/s"


def _faster_gpu(hardware: Hardware) -> tuple[Hardware, str]:
    flops = hardware.gpu.flops
    more = {name: value * TEN_PER_CENT for name in flops.__struct_fields__ if (value := getattr(flops, name))}
    gpu = msgspec.structs.replace(hardware.gpu, flops=msgspec.structs.replace(flops, **more))
    return msgspec.structs.replace(hardware, gpu=gpu), "FLOPS x 1.1"


def _both_sockets(hardware: Hardware) -> tuple[Hardware, str] | None:
    dram = hardware.dram
    if dram.buffer_sockets is None or dram.buffer_sockets == dram.sockets:
        return None
    more = msgspec.structs.replace(dram, buffer_sockets=dram.sockets)
    return msgspec.structs.replace(hardware, dram=more), f"{dram.buffer_sockets} -> {dram.sockets} sockets"


PARTS: tuple[tuple[str, Change], ...] = (
    ("snic_count", _one_more_snic),
    ("cnic_rate", _next_cnic),
    ("dram_bandwidth", _scaled("dram_bandwidth")),
    ("buffer_sockets", _both_sockets),
    ("gpu_flops", _faster_gpu),
    ("hbm_bandwidth", _scaled("hbm_bandwidth")),
    ("hbm_capacity", _scaled("hbm_capacity")),
    ("kv_buffer", _scaled("kv_buffer")),
)
"""Parts of a node: key, the changed node and what changes."""


def _evaluated(setup: Setup, problem: Problem, turns: float, prices: Prices, option: _Option) -> Upgrade:
    new_setup = prepare(option.scenario, option.prefill_nodes, option.decode_nodes)
    new = build(new_setup, problem.mode)
    rate = Rate(0.0, 0.0, None) if misfits(new_setup, new) else solve(new)
    after = float(rate.turns_per_s or 0.0)
    gain = after / turns - 1
    nodes = sum(setup.nodes(side) for side in option.upgraded)
    worth = by_hour = once = None
    if nodes and gain > NOTHING:
        sides = [hardware for _, hardware in setup.scenario.sides]
        worth = least_cost(setup, problem, after, (1.0, 1.0))
        by_hour = _worth(setup, problem, after, [node_price(hardware, prices) for hardware in sides], nodes)
        once = _worth(setup, problem, after, [hardware.cost.price for hardware in sides], nodes)
    found = all_traffic_range(new_setup, new)
    return Upgrade(
        key=option.key,
        title=option.title,
        change=option.change,
        upgraded_nodes=nodes,
        prefill_nodes=option.prefill_nodes,
        decode_nodes=option.decode_nodes,
        turns_per_s=after,
        gain=0.0 if abs(gain) < NOTHING else gain,
        bottleneck=None if rate.binding is None else new.resources[rate.binding].name,
        inside_range=found.contains(Fraction(option.prefill_nodes, option.decode_nodes)),
        worth_nodes=worth,
        break_even_usd_per_node_hour=by_hour,
        break_even_usd_per_node=once,
    )


def _worth(setup: Setup, problem: Problem, turns: float, costs: list[float | None], nodes: int) -> float | None:
    if costs[0] is None or costs[1] is None:
        return None
    total = least_cost(setup, problem, turns, (costs[0], costs[1]))
    return None if total is None else total / nodes


def least_cost(setup: Setup, problem: Problem, turns: float, costs: tuple[float, float]) -> float | None:
    """The least cost of nodes that raise a deployment to a rate [turns/s]: nodes in fractions, of both sides as needed,
    at ``costs`` of a prefill and a decode node. None where no number of them does, as with a full store.

    A linear programme: what all nodes of a side can do grows with their number, so with more nodes x_p, x_d and turns
    of either path X_p, X_d, minimise ``c_p x_p + c_d x_d`` subject to ``X_p p_r + X_d d_r <= 1 + x_s/n_s`` for every
    resource r of side s (``<= 1`` for the store) and ``X_p + X_d = turns``. The parallelism stays that of the
    deployment. Each side counts by itself: that more prefill nodes shorten passes, and so free decode HBM a little
    earlier, is left out, so the cost is at most a few per cent too high.
    """
    from scipy.optimize import linprog

    both = problem.mode not in SINGLE_SIDED
    rows, limits = [], []
    for resource, use in zip(problem.resources, uses(problem), strict=True):
        more = [-1 / setup.nodes(side) if resource.side == side else 0.0 for side in ("prefill", "decode")]
        # turns as a multiple of the wanted rate, so that all columns are of the same size
        rows.append([float(use.prefill) * turns, float(use.decode) * turns, *more])
        limits.append(1.0)
    largest = max(costs) or 1.0
    solution = linprog(
        [0.0, 0.0, costs[0] / largest, costs[1] / largest],
        A_ub=rows,
        b_ub=limits,
        A_eq=[[1.0, 1.0, 0.0, 0.0]],
        b_eq=[1.0],
        bounds=[(0, 1), (0, 1 if both else 0), (0, None), (0, None)],
        method="highs",
    )
    return float(solution.fun) * largest if solution.status == 0 else None
