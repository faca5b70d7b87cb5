"""The sections of a report that a reviewer checks: cost, risks, assumptions with sources, inputs and reproduction."""

from __future__ import annotations

from shlex import quote

from dualplan import __version__
from dualplan.plan.assumptions import assumptions, inputs_sha256, sources
from dualplan.plan.purchase.cost import node_price, price_origin
from dualplan.report.blocks import (
    Block,
    Bullets,
    Code,
    Folded,
    Name,
    Paragraph,
    Prose,
    Section,
    Text,
    Typed,
    say,
    table,
)
from dualplan.report.capacity_review.findings import Review
from dualplan.report.capacity_review.words import NO_VALUE, change, deployment, joined, per_cent, resource, turns
from dualplan.report.scenario import value_rows, value_text
from dualplan.spec.hardware import unsourced
from dualplan.spec.workload import mean_turns
from dualplan.steady.answer import Evaluation
from dualplan.units import show, significant

SOURCE_LENGTH = 1000
"""Characters of a source that are shown."""

NEAR = 1.15
"""A ratio closer than this factor to an end of the range is called near it."""

LITTLE_ROOM = 0.2
"""Head-room below this is called little."""


# ---------------------------------------------------------------- cost


def cost_section(review: Review) -> Section:
    """Price of the nodes by the hour, and of what they serve; what is unknown is said, never made up."""
    answer, prices = review.answer, review.prices
    hourly: list[float | None] = []
    rows: list[tuple[Text, ...]] = []
    for side, hardware in answer.scenario.sides:
        nodes = answer.prefill_nodes if side == "prefill" else answer.decode_nodes
        each, cost = node_price(hardware, prices), hardware.cost
        hourly.append(None if each is None else each * nodes)
        rows.append(
            (
                say(f"column.{side}_side"),
                (f"{nodes:,} × ", Name(hardware.name)),
                _money(cost.price),
                _money(each, 2),
                Prose(price_origin(hardware, prices)),
                NO_VALUE if cost.power is None else show(cost.power * nodes, "W"),
            )
        )
    columns = ("side", "nodes", "price", "price_per_hour", "price_origin", "power")
    blocks: list[Block] = [table(say("cost.nodes"), [say(f"column.{column}") for column in columns], rows, "llrrlr")]
    known = [price for price in hourly if price is not None]
    if len(known) < len(hourly):
        blocks.append(_unpriced(review))
    elif answer.turns_per_s:
        blocks.append(_served(answer, sum(known)))
    else:
        blocks.append(Paragraph(say("upgrades.no_rate"), "note"))
    return Section("cost", say("title.cost"), tuple(blocks))


def _unpriced(review: Review) -> Block:
    """Which machines have no price by the hour, and how to give one."""
    missing = [hardware for _, hardware in review.answer.scenario.sides if node_price(hardware, review.prices) is None]
    machines: dict[str, Text] = {hardware.name: Name(hardware.name) for hardware in missing}
    flags: list[Text] = [Typed(f"--price {quote(name)}=USD") for name in machines]
    if any(hardware.cost.price is not None for hardware in missing) and review.prices.lifetime_hours is None:
        return Paragraph(
            say(
                "cost.unknown_bought",
                machines=joined(list(machines.values())),
                flags=joined(flags),
                lifetime=Typed("--lifetime 1460d"),
            ),
            "note",
        )
    return Paragraph(say("cost.unknown", machines=joined(list(machines.values())), flags=joined(flags)), "note")


def _served(answer: Evaluation, per_hour: float) -> Block:
    """Cost of tokens, turns and agents, at the full rate and at the demand."""
    rates: list[tuple[Text, float]] = [(say("cost.full_rate"), answer.turns_per_s)]
    check = answer.demand_check
    if check is not None and check.turns_per_s <= answer.turns_per_s:
        rates.append((say("cost.at_demand"), check.turns_per_s))
    demand = answer.demand
    quantities = (
        ("cost.prompt", demand.prompt_tokens / 1e6),
        ("cost.output", demand.generated / 1e6),
        ("cost.agent", 1 / mean_turns(answer.scenario.workload)),
    )
    rows: list[tuple[Text, ...]] = [(say("cost.hour"), *(_money(per_hour, 2) for _ in rates))]
    for key, of_a_turn in quantities:
        cells = [_money(per_hour / 3600 / (rate * of_a_turn), 2) if of_a_turn else NO_VALUE for _, rate in rates]
        rows.append((say(key), *cells))
    header = (say("column.quantity"), *(name for name, _ in rates))
    return table(say("cost.served"), header, rows, "l" + "r" * len(rates))


def _money(value: float | None, digits: int = 0) -> str:
    if value is None:
        return NO_VALUE
    return f"{value:,.{digits}f} USD" if value >= 1 or not value else f"{significant(value, 3)} USD"


# ---------------------------------------------------------------- risks


def risks(review: Review) -> list[Text]:
    """What could make the answer wrong or the deployment fall short, a sentence each."""
    answer = review.answer
    found = answer.ranges.all_traffic
    ratio = answer.prefill_nodes / answer.decode_nodes
    result: list[Text] = []
    for bound, names, key in (
        (found.lower, found.lower_constraints, "risk.near_lower"),
        (found.upper, found.upper_constraints, "risk.near_upper"),
    ):
        if bound is not None and 1 <= (ratio / float(bound) if "lower" in key else float(bound) / ratio) < NEAR:
            result.append(say(key, bound=significant(float(bound)), resource=resource(names[0])))
    check = answer.demand_check
    if check is None:
        result.append(say("risk.no_demand"))
    elif 0 <= check.headroom < LITTLE_ROOM:
        result.append(say("risk.little_room", headroom=change(check.headroom)))
    if review.simulation is None:
        result.append(say("risk.steady", flag=Typed("--simulate")))
    if answer.bottleneck.next_gain is not None and answer.bottleneck.next_gain < 0.05 and answer.bottleneck.next:
        following = resource(answer.bottleneck.next) if answer.bottleneck.next != "alike nodes" else NO_VALUE
        result.append(say("risk.tied", resource=resource(answer.bottleneck.resource), next=following))
    for index, (side, hardware) in enumerate(answer.scenario.sides):
        if side == "decode" and hardware == answer.scenario.hardware:
            continue
        name = Name(hardware.name)
        missing = unsourced(hardware)
        if missing:
            result.append(say("risk.unsourced", hardware=name, count=str(len(missing))))
        assumed = sum(source.startswith("assumed") for source in hardware.sources.values())
        if assumed:
            result.append(say("risk.assumed", hardware=name, count=str(assumed)))
        floor = answer.collectives.kv_floor[index]
        if floor is not None and floor < 0.01:
            result.append(say("risk.floor", hardware=name, share=f"{100 * floor:.2g} %"))
    return result


def losses_table(review: Review) -> Block:
    """What one node fewer on either side leaves."""
    whole = review.answer
    wanted = whole.demand_check
    rows: list[tuple[Text, ...]] = []
    for loss in review.losses:
        left = loss.answer
        if left is None:
            rows.append((say(f"loss.{loss.side}"), NO_VALUE, say("loss.none"), NO_VALUE, NO_VALUE, NO_VALUE))
            continue
        carried: Text = NO_VALUE
        if wanted is not None:
            carried = say("word.yes" if left.turns_per_s >= wanted.turns_per_s else "word.no")
        kept = left.turns_per_s / whole.turns_per_s if whole.turns_per_s else 0.0
        cells = (turns(left.turns_per_s), per_cent(kept), resource(left.bottleneck.resource), carried)
        rows.append((say(f"loss.{loss.side}"), deployment(left), *cells))
    columns = ("event", "left", "rate", "of_full_rate", "bound_by", "carries_demand")
    return table(say("loss.caption"), [say(f"column.{column}") for column in columns], rows, "llrrll")


# ---------------------------------------------------------------- assumptions and sources


def assumptions_section(review: Review) -> Section:
    """Every assumption, and the source of every figure that went in."""
    answer = review.answer
    notes = tuple(Prose(one) for one in assumptions(answer))
    rows = [(Typed(entry["key"]), Name(entry["source"], SOURCE_LENGTH)) for entry in sources(answer.scenario)]
    listed = table(say("sources.caption"), (say("column.input"), say("column.source")), rows, "ll")
    return Section(
        "assumptions",
        say("title.assumptions"),
        (
            Paragraph(say("assumptions.lead")),
            Bullets(notes),
            Folded(say("sources.summary", n=str(len(rows))), (listed,)),
        ),
    )


# ---------------------------------------------------------------- inputs


def inputs_section(review: Review, command: str | None) -> Section:
    """Every value with where it came from, the hash, and the command that makes this document again."""
    answer = review.answer
    rows: list[tuple[Text, ...]] = []
    for row in value_rows(answer.scenario):
        shown = value_text(row["value"], row["unit"])
        rows.append((Typed(row["key"]), Name(shown), Name(str(row["origin"]))))
    header = (say("column.input"), say("column.value"), say("column.origin"))
    listed = table(say("inputs.caption"), header, rows, "lll")
    facts: list[tuple[Text, ...]] = [
        (say("inputs.version"), f"dualplan {__version__}"),
        (say("inputs.hash"), inputs_sha256(answer)),
    ]
    if review.file is not None:
        facts.insert(0, (say("inputs.file"), Name(review.file)))
    blocks: list[Block] = [table(say("inputs.facts"), (say("column.quantity"), say("column.value")), facts, "ll")]
    if command is not None:
        blocks += [Paragraph(say("inputs.command")), Code(command)]
    blocks.append(Folded(say("inputs.summary", n=str(len(rows))), (listed,)))
    return Section("inputs", say("title.inputs"), tuple(blocks))
