"""``dualplan plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import Format, FormatOption, JsonOption, OutputOption, emit, note
from dualplan.cli.prices import LifetimeOption, PriceOption, named, prices_of
from dualplan.cli.progress import progress
from dualplan.cli.scenario_flags import ScenarioFlags, scenario_command

if TYPE_CHECKING:
    from dualplan.plan.purchase.cost import Prices
    from dualplan.plan.purchase.search import Kind, Purchase, Wanted
    from dualplan.report.plan_document import Answer
    from dualplan.spec.scenario import Scenario

MOST_CANDIDATES = 64
USUAL_NODES = 256
"""Nodes of a deployment at most, unless given."""


@scenario_command
def plan(
    flags: ScenarioFlags,
    agents: Annotated[str | None, typer.Option(metavar="N", help="Demand as agents to run --within a time.")] = None,
    within: Annotated[str | None, typer.Option(metavar="TIME", help="Time for --agents, such as 2h.")] = None,
    candidates: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Profiles to choose from, or all; --hardware unless given.")
    ] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Also prefill nodes of one profile with decode nodes of another.")
    ] = False,
    snic_counts: Annotated[
        str | None, typer.Option(metavar="1,2,4", help="Storage NICs of a node to try, instead of the profile's.")
    ] = None,
    max_nodes: Annotated[int, typer.Option(metavar="N", help="Nodes of a deployment at most.")] = USUAL_NODES,
    available: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="Nodes of a profile that can be had; repeatable.")
    ] = None,
    price: PriceOption = None,
    lifetime: LifetimeOption = None,
    energy_price: Annotated[
        str | None, typer.Option(metavar="USD", help="USD of a kWh, for bought nodes at full power.")
    ] = None,
    snic_price: Annotated[
        str | None, typer.Option(metavar="USD", help="USD an hour of a storage NIC more than the profile has.")
    ] = None,
    headroom: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Rate to have beyond the demand, such as 20%.")
    ] = None,
    spare: Annotated[
        int, typer.Option(metavar="N", help="Nodes of either side that may be down while the demand is met.")
    ] = 0,
    allow_outside_range: Annotated[
        bool, typer.Option("--allow-outside-range", help="Accept a P/D at which links bind before storage NICs.")
    ] = False,
    splits: Annotated[
        int | None, typer.Option(metavar="N", help="Deployments listed of each kind of nodes; 1, of a single kind 3.")
    ] = None,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="Also the cheapest fleet of several deployments, of any profiles.")
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Simulate the finalists; drop those that miss the SLO.")
    ] = False,
    finalists: Annotated[
        int | None, typer.Option(metavar="N", help="Plans that --confirm wants to see keep the SLO, 3.")
    ] = None,
    upgrades: Annotated[
        bool, typer.Option("--upgrades", help="What to buy next for the scenario's deployment, or for the best plan.")
    ] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="End with 0 even if there is no plan.")] = False,
    fmt: FormatOption = Format.table,
    as_json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """The cheapest deployments for a demand and an SLO; with --upgrades what pays next.

    Demand: --arrival-rate, --turn-rate, or --agents N --within TIME. SLO: 4s TTFT and 50ms TPOT unless given. A plan
    is feasible as in `dualplan feasible`. Ends with 0 if there is one, 4 if not: the nearest misses are printed.
    """
    from dualplan.errors import UsageError

    if (agents is None) != (within is None):
        raise UsageError("--agents N and --within TIME go together")
    if agents is not None and {"arrival_rate", "turn_rate"} & flags.values.keys():
        raise UsageError("give one demand: --agents with --within, or --arrival-rate, or --turn-rate")
    if (finalists is not None) and not confirm:
        raise UsageError("--finalists belongs to --confirm")
    scenarios, slo_defaults = _scenarios(flags, candidates, mixed)
    demand = _demand(scenarios[0], agents, within)
    if demand is not None:
        scenarios = _without_given_nodes(scenarios)
    if demand is None and not upgrades:
        raise UsageError("no demand: give --arrival-rate R, --turn-rate R, or --agents N --within 2h")
    for text, option in ((fleet, "--fleet"), (confirm, "--confirm")):
        if text and demand is None:
            raise UsageError(f"{option} needs a demand: --arrival-rate R, --turn-rate R, or --agents N --within 2h")
    from functools import partial

    from dualplan.plan.purchase.search import kinds
    from dualplan.report.plan import output
    from dualplan.units import whole, wholes

    names = {hardware.name for scenario in scenarios for _, hardware in scenario.sides}
    prices = prices_of(price, lifetime, names, energy=energy_price, snic=snic_price)
    counts = () if snic_counts is None else wholes(snic_counts, "--snic-counts", most=64, hint="such as 1,2,4")
    found = kinds(scenarios, mixed=mixed, snic_counts=counts)
    wanted = (
        None
        if demand is None
        else _wanted(
            demand[0],
            prices,
            max_nodes=max_nodes,
            headroom=headroom,
            spare=spare,
            outside=allow_outside_range,
            available=named(available, "--available", names, partial(whole, least=0), "N"),
        )
    )
    answer = _answer(
        flags,
        scenarios[0],
        found,
        wanted,
        prices,
        {
            "demand_origin": "" if demand is None else demand[1],
            "slo_defaults": slo_defaults,
            "splits": splits if splits is not None else (3 if len(found) == 1 else 1),
            "fleet": fleet,
            "finalists": (finalists or 3) if confirm else None,
            "upgrades": upgrades,
            "given": _given(
                agents=agents,
                within=within,
                candidates=candidates,
                mixed=mixed,
                snic_counts=snic_counts,
                max_nodes=max_nodes != USUAL_NODES,
                available=available,
                price=price,
                lifetime=lifetime,
                energy_price=energy_price,
                snic_price=snic_price,
                headroom=headroom,
                spare=spare,
                allow_outside_range=allow_outside_range,
            ),
        },
    )
    emit(output(answer), fmt, as_json, output_file)
    if answer.purchase is not None and answer.purchase.interrupted:
        raise KeyboardInterrupt
    if not answer.feasible and not exit_zero:
        raise typer.Exit(4)


def _given(**values: Any) -> tuple[str, ...]:
    """The flags of this command that were given and that its figures depend on."""
    return tuple("--" + name.replace("_", "-") for name, value in values.items() if value)


def _without_given_nodes(scenarios: list[Scenario]) -> list[Scenario]:
    """Scenarios that do not list node counts as given, because a demand is planned with any; flags are told so."""
    import msgspec

    keys = ("prefill_nodes", "decode_nodes")
    flags = [place for key in keys if (place := scenarios[0].origins.get(key, "")).startswith("--")]
    if flags:
        note(f"{' and '.join(flags)} not used: plan chooses the nodes of both sides for a demand")
    return [
        msgspec.structs.replace(one, origins={key: place for key, place in one.origins.items() if key not in keys})
        for one in scenarios
    ]


def _scenarios(flags: ScenarioFlags, candidates: str | None, mixed: bool) -> tuple[list[Scenario], tuple[str, ...]]:
    """A scenario for each candidate with the SLO filled in, and the parts of it that are defaults."""
    import msgspec

    from dualplan.errors import InputError, UsageError, each
    from dualplan.spec.load import find, shipped_names
    from dualplan.spec.scenario import Slo
    from dualplan.units import listed

    names = listed(candidates)
    if candidates is not None and not names:
        raise InputError("--candidates", "names no profile", "such as dgx-h200,dgx-b200, or all")
    if names == ["all"]:
        names = shipped_names("hardware_profiles", ".yaml")
    if len(names) > MOST_CANDIDATES:
        raise InputError("--candidates", f"{len(names)} profiles are more than {MOST_CANDIDATES}")
    if mixed and len(names) < 2:
        raise UsageError("--mixed needs at least two --candidates")
    if not names:
        scenarios = [flags.resolve()]
    else:
        if "decode_hardware" in flags.values:
            raise UsageError("--candidates are nodes of both sides: leave out --decode-hardware, or try --mixed")

        def candidate(name: str) -> Scenario:
            find("hardware_profiles", ".yaml", name, where="--candidates")
            values = {"file": flags.file, **flags.values, "hardware": name, "decode_hardware": name}
            return ScenarioFlags(values).resolve()

        scenarios = each(names, candidate)
    found = [scenario.hardware.name for scenario in scenarios]
    double = [name for name in dict.fromkeys(found) if found.count(name) > 1]
    if double:
        raise InputError("--candidates", f'two profiles have the name "{double[0]}"', "give each a name of its own")
    if any(scenario.variants for scenario in scenarios):
        raise InputError("variants", "nodes that differ cannot be planned", "leave them out, or give --candidates")
    given = scenarios[0].settings.slo
    usual = {"ttft": (4.0, "TTFT 4 s"), "tpot": (0.05, "TPOT 50 ms")}
    missing = {name: value for name, value in usual.items() if getattr(given, name) is None}
    slo = Slo(**{name: usual[name][0] if name in missing else getattr(given, name) for name in usual})
    scenarios = [
        msgspec.structs.replace(one, settings=msgspec.structs.replace(one.settings, slo=slo)) for one in scenarios
    ]
    return scenarios, tuple(text for _, text in missing.values())


def _demand(scenario: Scenario, agents: str | None, within: str | None) -> tuple[float, str] | None:
    """Turns per second that are asked for, and in whose words; None without a demand."""
    from dualplan.spec.workload import mean_turns
    from dualplan.units import number, positive, significant

    turns = mean_turns(scenario.workload)
    if agents is not None and within is not None:
        count, seconds = number(agents, "--agents", least=1, most=1e12), positive(within, "s", "--within", "such as 2h")
        return count / seconds * turns, f"{significant(count)} agents within {within.strip()}"
    given = scenario.settings.demand
    rates = [given.turn_rate] if given.turn_rate is not None else []
    if given.arrival_rate is not None:
        rates.append(given.arrival_rate * turns)
    return (max(rates), "") if rates else None


def _wanted(
    turns_per_s: float,
    prices: Prices,
    *,
    max_nodes: int,
    headroom: str | None,
    spare: int,
    outside: bool,
    available: dict[str, int],
) -> Wanted:
    from dualplan.errors import InputError
    from dualplan.plan.purchase.search import MOST_NODES, Wanted
    from dualplan.units import number

    room = number(headroom or "0", "--headroom", "a share", dimension="1", least=0, most=100, hint="such as 20%")
    if not 0 <= spare < MOST_NODES:
        raise InputError("--spare", f"{spare} is not a number of nodes")
    return Wanted(
        turns_per_s=turns_per_s,
        max_nodes=max_nodes,
        headroom=room,
        spare=spare,
        allow_outside_range=outside,
        prices=prices,
        available=available,
    )


def _answer(
    flags: ScenarioFlags,
    scenario: Scenario,
    found: tuple[Kind, ...],
    wanted: Wanted | None,
    prices: Prices,
    call: dict[str, Any],
) -> Answer:
    from dualplan.errors import InputError
    from dualplan.plan.purchase.search import find_plans
    from dualplan.report.plan_document import Answer

    if not found:
        raise InputError("--snic-counts", "no candidate can have any of these numbers of storage NICs")
    if not 1 <= call["splits"] <= 1000:
        raise InputError("--splits", f"{call['splits']} is not a number of 1 to 1,000")
    purchase = fleet = None
    if wanted is not None:
        with progress("kinds of nodes") as shown:
            purchase = find_plans(found, wanted, splits=call["splits"], progress=shown)
        if call["finalists"] is not None:
            purchase = _confirmed(flags, purchase, found, call["finalists"])
        if call["fleet"] and not purchase.interrupted:
            from dualplan.plan.purchase.fleet import cheapest_fleet

            fleet = cheapest_fleet(found, wanted)
    upgraded, upgrades = None, None
    if call["upgrades"] and not (purchase is not None and purchase.interrupted):
        upgraded = _upgraded(scenario, purchase)
    if upgraded is not None:
        from dualplan.plan.purchase.upgrades import upgrades as evaluate_upgrades

        upgrades = evaluate_upgrades(upgraded, prices=prices)
    return Answer(
        scenario=scenario,
        kinds=found,
        wanted=wanted,
        demand_origin=call["demand_origin"],
        slo_defaults=call["slo_defaults"],
        given=call["given"],
        purchase=purchase,
        fleet=fleet,
        upgrades=upgrades,
        upgraded=upgraded,
    )


def _upgraded(scenario: Scenario, purchase: Purchase | None) -> Scenario | None:
    """The deployment to improve: the best plan, else the one that the scenario describes."""
    from dualplan.errors import UsageError

    if purchase is not None:
        return purchase.plans[0].kind.scenario if purchase.plans else None
    if scenario.settings.prefill_nodes is None or scenario.settings.decode_nodes is None:
        raise UsageError("--upgrades needs a deployment: --prefill N and --decode N, or a demand")
    return scenario


def _confirmed(flags: ScenarioFlags, purchase: Purchase, found: tuple[Kind, ...], finalists: int) -> Purchase:
    from dualplan.errors import InputError
    from dualplan.plan.purchase.confirm import confirmed
    from dualplan.spec.run import RunSpec

    if not 1 <= finalists <= MOST_CANDIDATES:
        raise InputError("--finalists", f"{finalists} is not a number of 1 to {MOST_CANDIDATES}")
    trace = str(flags.workload_path()) if found[0].scenario.workload.mix else None
    return confirmed(
        purchase,
        found,
        RunSpec(trace=trace),
        finalists=finalists,
        report=lambda tried: note(f"simulating {tried.label} ..."),
    )
