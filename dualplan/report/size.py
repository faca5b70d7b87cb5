"""Working set, store, break-even, pool and remote site for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dualplan.model.storage import YEAR
from dualplan.plan.assumptions import scenario_sha256, sources
from dualplan.plan.sizing import BreakEven, PoolSize, Remote, StoreNeeds, Tier, WorkingSet
from dualplan.report.blocks import GAP, Block, Bullets, Paragraph, Table, table
from dualplan.report.output import Output
from dualplan.report.records import pick
from dualplan.spec.scenario import Scenario
from dualplan.steady.resources import TITLES
from dualplan.steady.setup import demand_turns_per_s
from dualplan.units import show, significant

INPUTS = "name=settings.name hardware=hardware.name model=model.name workload=workload.name mode=settings.mode"
PAPER_RULE = (
    "DualPath (section 7) states that think time which stretches an agent by r needs capacity r, working set r^2 and "
    "cost r^3; that scales the arrivals as well. At the same arrivals it is r, by Little's law."
)


def _headline(scenario: Scenario) -> str:
    settings = scenario.settings
    nodes = f"{settings.prefill_nodes or '?'}P{settings.decode_nodes or '?'}D"
    return " · ".join((scenario.model.title, scenario.hardware.name, scenario.workload.name, nodes, settings.mode))


def _output(
    name: str,
    scenario: Scenario,
    body: dict[str, Any],
    rows: Sequence[dict[str, Any]],
    lines: Sequence[str | Table],
    assumed: Sequence[str],
) -> Output:
    """The document, and for people headline, lines (a first one in bold) and assumptions."""
    data = {"schema": f"dualplan/size-{name}/1", **pick(scenario, INPUTS), **body, "assumptions": list(assumed)}
    data |= {"sources": sources(scenario), "inputs_sha256": scenario_sha256(scenario)}

    def view() -> Iterator[Block]:
        yield from (Paragraph(_headline(scenario), indent=0), GAP)
        for index, line in enumerate(lines):
            yield line if isinstance(line, Table) else Paragraph(line, "" if index else "lead")
        yield from (GAP, Bullets(tuple(assumed), "note"))

    return Output(data=data, rows=rows, view=view)


# ---------------------------------------------------------------- working set and store


WORKING_SET = """
    agents_per_s completion_time_s completion_origin agents_in_flight=agents total_tokens kv_bytes_per_token
    working_set_bytes=bytes think_time_stretch=stretch working_set_without_thinking_bytes=bytes_without_thinking
    simulated_working_set_bytes=measured_bytes
"""
STORE = """
    turns_per_s read_bytes_per_s written_bytes_per_s written_bytes_per_day retention_s stored_bytes servers
"""
DRIVES = "drive_writes_per_day rated_drive_writes_per_day=rated_writes_per_day"
RATES = """
    loaded=loaded_turns_per_s recomputed=recomputed_turns_per_s all_local=local_turns_per_s link_full=link_turns_per_s
"""
REMOTE = """
    bandwidth_bytes_per_s=bandwidth latency_s share_of_turns=share prefix_bytes pays_in_time pays_in_rate
    break_even_bytes_per_s=break_even
"""

_ORIGIN = {
    "given": "as given",
    "steady": "unloaded times to first token, so a lower bound (--completion-time or --simulate for another)",
    "simulated": "mean of the simulation",
}


def _working_set_lines(held: WorkingSet) -> list[str]:
    """The working set, the simulated one first where there is one, and what it follows from."""
    ruled = (
        f"{show(held.bytes, 'B')}: {significant(held.agents)} agents under way, each half way to "
        f"{significant(held.total_tokens, 5)} tokens of {show(held.kv_bytes_per_token, 'B')}"
    )
    lines = [f"Working set {ruled}"]
    if held.measured_bytes is not None:
        lines = [f"Working set {show(held.measured_bytes, 'B')} on average in the simulation"]
        factor = f"{significant(held.measured_bytes / held.bytes)} times what the rule gives" if held.bytes else ""
        lines.append(f"By the rule {ruled}")
        if held.measured_bytes > held.bytes > 0:
            lines[-1] += (
                f". The simulation holds {factor}: contexts grow fast at first and long agents stay longer, so most "
                "time is spent beyond half way"
            )
    lines.append(
        f"{significant(held.agents_per_s)} agents/s that take {significant(held.completion_time_s)} s each: "
        f"{_ORIGIN[held.completion_origin]}"
    )
    if held.stretch > 1:
        without = show(held.bytes_without_thinking, "B")
        lines.append(f"Think time stretches an agent by {significant(held.stretch)}; without it {without}")
    return lines


def _working_set_assumptions(held: WorkingSet) -> list[str]:
    found = ["agents are half way on average: working set = arrivals x time x total / 2 x bytes per token"]
    return [*found, PAPER_RULE] if held.stretch > 1 else found


def working_set_output(scenario: Scenario, held: WorkingSet) -> Output:
    """The working set."""
    body = pick(held, WORKING_SET)
    return _output("working-set", scenario, body, [body], _working_set_lines(held), _working_set_assumptions(held))


def store_output(scenario: Scenario, needs: StoreNeeds) -> Output:
    """What the store must hold and move."""
    wanted = demand_turns_per_s(scenario)
    body = {
        **pick(needs.working_set, WORKING_SET),
        **pick(needs, STORE),
        "servers_by": pick(needs, "capacity=by_capacity read=by_read write=by_write"),
        "servers_with_one_down": needs.with_one_down,
        **pick(needs, DRIVES),
        "life_years": None if needs.life_s is None else needs.life_s / YEAR,
        "demand_turns_per_s": wanted,
        "turns_per_s_now": needs.rate_now,
        "turns_per_s_with_one_down": {"prefill": needs.node_down[0], "decode": needs.node_down[1]},
    }
    held, since = needs.working_set, ""
    if needs.retention_s is not None and needs.stored_bytes > held.needed_bytes:
        since = f", what {show(needs.retention_s, 's')} of turns wrote"
    at = "the most that the deployment carries" if wanted is None else "the demand"
    if wanted is not None and needs.rate_now < wanted * (1 - 1e-9):
        at += f" (more than the {significant(needs.rate_now)} that the deployment carries)"
    lines = [
        f"The store holds {show(needs.stored_bytes, 'B')}{since or ', the working set'}",
        f"At {significant(needs.turns_per_s)} turns/s, {at}, it reads {show(needs.read_bytes_per_s, 'B/s')} and writes "
        f"{show(needs.written_bytes_per_s, 'B/s')}, {show(needs.written_bytes_per_day, 'B')} a day",
    ]
    if needs.servers is not None:
        counts = {"capacity": needs.by_capacity, "reads": needs.by_read, "writes": needs.by_write}
        parts = ", ".join(f"{count} for {name}" for name, count in counts.items() if count is not None)
        lines.append(f"Servers: {needs.servers} ({parts}); {needs.with_one_down} so that one may be down")
    else:
        lines.append("Servers: say what one holds and moves: --server-capacity, --server-read, --server-write")
    if needs.drive_writes_per_day is not None and needs.life_s is not None:
        years = needs.life_s / YEAR
        lines.append(
            f"Flash is written {significant(needs.drive_writes_per_day, 2)} times a day: drives rated "
            f"{needs.rated_writes_per_day:g} a day for {needs.warranty_s / YEAR:g} years last "
            f"{significant(years, 2) + ' years' if years < 100 else 'over 100 years'}"
        )
    for side, rate in zip(("prefill", "decode"), needs.node_down, strict=True):
        if rate is None:
            what = "none is left, or the rest cannot host the parallelism"
        elif not rate:
            what = "the rest cannot hold the weights and a context"
        else:
            what = f"{significant(rate)} turns/s of the {significant(needs.rate_now)} that all nodes carry"
            if wanted is not None:
                enough = "enough for" if rate >= wanted * (1 - 1e-9) else "less than"
                what = f"{significant(rate)} turns/s, {enough} the demand of {significant(wanted)}"
        lines.append(f"One {side} node down: {what}")
    lines += _working_set_lines(held)
    assumed = [
        *_working_set_assumptions(held),
        "written: the append and the generated tokens, once; file system overhead, replicas and write amplification of "
        "the drives come on top",
    ]
    return _output("store", scenario, body, [body], lines, assumed)


# ---------------------------------------------------------------- load or recompute


def break_even_output(scenario: Scenario, found: Sequence[BreakEven], tiers: Sequence[Tier]) -> Output:
    """Load or recompute, by context and tier."""
    rows = [
        {
            **pick(entry, "context kv_bytes recompute_s break_even_bytes_per_s=bandwidth"),
            "tiers": {
                name.replace(" ", "_"): {"load_s": time, "speedup": factor, "pays": factor > 1}
                for name, (time, factor) in entry.loads.items()
            },
        }
        for entry in found
    ]
    body = {
        "tiers": [{"name": t.name.replace(" ", "_"), "bytes_per_s": t.bandwidth, "limit": t.limit} for t in tiers],
        "rows": rows,
    }
    names = [tier.name for tier in tiers]
    cells = [
        (
            f"{entry.context:,}",
            show(entry.kv_bytes, "B"),
            show(entry.recompute_s, "s"),
            show(entry.bandwidth, "B/s"),
            *(_factor(entry.loads[name][1]) for name in names),
        )
        for entry in found
    ]
    heads = ("context", "KV", "compute", "break-even", *names)
    lengths = table("", heads, cells, "r" * len(heads), below=True, head="")
    worst = min((min(f for _, f in entry.loads.values()) for entry in found), default=0.0)
    first = "Loading pays from every tier at these lengths" if worst > 1 else "Loading does not pay everywhere"
    lines: list[str | Table] = [
        first,
        lengths,
        "tiers: loading is so many times faster than computing; below 1x compute",
    ]
    lines += [f"{tier.name}: {show(tier.bandwidth, 'B/s')} a node, {TITLES[tier.limit]} limits" for tier in tiers]
    assumed = [
        "a prefill node on its own: all its GPUs compute the prefix, or all its links load it, nothing else runs",
        "local DRAM and a pool hold the prefix already; storage has its time per read and its latency",
    ]
    return _output("break-even", scenario, body, rows, lines, assumed)


def _factor(value: float) -> str:
    return f"{significant(value, 2)}x"


# ---------------------------------------------------------------- pool and remote site


def pool_output(scenario: Scenario, found: Sequence[PoolSize], trace: str) -> Output:
    """A DRAM pool beside storage."""
    rows = [
        {
            **pick(entry, "pool_bytes=capacity_bytes hit_share turns_per_s"),
            "gain": entry.turns_per_s / entry.without - 1 if entry.without else None,
            **pick(entry, "bottleneck layerwise_turns_per_s=without dual_path_turns_per_s=dual_path"),
        }
        for entry in found
    ]
    cells = [
        (
            show(entry.capacity_bytes, "B"),
            f"{100 * entry.hit_share:.0f} %",
            significant(entry.turns_per_s),
            f"{100 * (entry.turns_per_s / entry.without - 1):+.0f} %" if entry.without else "-",
            TITLES[entry.bottleneck] if entry.bottleneck else "-",
        )
        for entry in found
    ]
    heads = ("pool", "of hits", "turns/s", "gain", "bound by")
    best = max(found, key=lambda entry: entry.turns_per_s)
    first = f"A pool of {show(best.capacity_bytes, 'B')} serves {100 * best.hit_share:.0f} % of the hits"
    both = "" if not best.dual_path else f"; without a pool, both sides reading: {significant(best.dual_path)} turns/s"
    lines: list[str | Table] = [
        f"{first}: {significant(best.turns_per_s)} turns/s{both}",
        table("", heads, cells, "rrrrl", below=True, head=""),
    ]
    lines.append(f"gain over mode layerwise, {significant(best.without)} turns/s, whose storage reads the rest")
    assumed = [
        f"hit share from the reuse curve of {trace}: least recently used goes first; shares of the hits of an infinite "
        "cache",
        "the pool is the memory of the prefill nodes, reached over the compute network",
    ]
    return _output("pool", scenario, {"trace": trace, "rows": rows}, rows, lines, assumed)


def remote_output(scenario: Scenario, found: Remote) -> Output:
    """KV of another site over a WAN link."""
    body = {
        **pick(found, REMOTE),
        "ttft_s": pick(found, "loaded=loaded_ttft_s recomputed=recomputed_ttft_s"),
        "turns_per_s": pick(found, RATES),
    }
    time = "earlier" if found.pays_in_time else "later"
    rate = "more" if found.pays_in_rate else "fewer"
    verdict = {
        (True, True): "Loading over the link pays",
        (True, False): "Loading pays in time to first token, not in rate",
        (False, True): "Loading pays in rate, not in time to first token",
        (False, False): "Recompute: loading over the link does not pay",
    }[found.pays_in_time, found.pays_in_rate]
    needed = "at no bandwidth" if found.break_even is None else f"above {show(found.break_even, 'B/s')}"
    lines = [
        verdict,
        f"First token {time} by loading: {show(found.loaded_ttft_s, 's')} against {show(found.recomputed_ttft_s, 's')} "
        f"(unloaded); loading is earlier {needed}",
        f"Rate {rate} by loading: {significant(found.loaded_turns_per_s)} against "
        f"{significant(found.recomputed_turns_per_s)} turns/s; {significant(found.local_turns_per_s)} if all were "
        f"local, the link is full at {significant(found.link_turns_per_s)}",
        f"{100 * found.share:.3g} % of the turns have their prefix of {show(found.prefix_bytes, 'B')} at the other "
        f"site; link {show(found.bandwidth, 'B/s')}, {show(found.latency_s, 's')}",
    ]
    assumed = ["a loaded prefix crosses the link and then takes the local path; the link carries nothing else"]
    return _output("wan", scenario, body, [body], lines, assumed)
