"""The section of a report on links: diagrams of both read paths, and every resource with its load."""

from __future__ import annotations

from dualplan.plan.movements import Movement, movements, path_turns_per_s
from dualplan.report.blocks import Block, Figure, Paragraph, Prose, Section, Table, Text, say, table
from dualplan.report.capacity_review.findings import Review
from dualplan.report.capacity_review.labels import Labels
from dualplan.report.capacity_review.words import NO_VALUE, amount, per_cent, resource, turns
from dualplan.report.figures.read_paths import Arrow, path_diagram
from dualplan.steady.answer import Evaluation
from dualplan.steady.rate import Load
from dualplan.units import show


def links_section(review: Review, labels: Labels, prefix: str) -> Section:
    """A diagram of each read path with the load of every movement, and all resources."""
    answer = review.answer
    blocks: list[Block] = [Paragraph(say("links.lead"))]
    for path, moves in movements(answer).items():
        drawn = [move for move in moves if not move.collective]
        if drawn and answer.turns_per_s:
            blocks.append(_diagram(answer, path, drawn, moves, labels, prefix))
    blocks.append(resources_table(answer))
    return Section("links", say("title.links"), tuple(blocks))


def _diagram(
    answer: Evaluation, path: str, drawn: list[Movement], moves: tuple[Movement, ...], labels: Labels, prefix: str
) -> Figure:
    name = f"{prefix}path-{path}"
    rate = path_turns_per_s(answer, "decode" if path == "decode" else "prefill")
    title = labels[f"links.figure_{path}"]
    arrows = [
        Arrow(
            move.source,
            move.target,
            f"{', '.join(move.steps)}: {show(move.load, 'B/s')}",
            ""
            if move.tightest is None
            else labels["links.of"].format(
                capacity=show(move.tightest.capacity, "B/s"), share=per_cent(move.tightest.utilization)
            ),
            None if move.tightest is None else move.tightest.utilization,
        )
        for move in drawn
    ]
    svg = path_diagram(
        name,
        title,
        arrows,
        _boxes(answer, labels),
        {
            side: labels[f"links.{side}_nodes"].format(n=getattr(answer, f"{side}_nodes"))
            for side in ("prefill", "decode")
        },
    )
    rows: list[tuple[Text, ...]] = []
    for move in moves:
        full = move.tightest
        rows.append(
            (
                ", ".join(move.steps),
                say(f"place.{move.source}"),
                say(f"place.{move.target}"),
                show(move.bytes, "B"),
                show(move.load, "B/s"),
                NO_VALUE if full is None else resource(full.name),
                NO_VALUE if full is None else show(full.capacity, full.unit),
                NO_VALUE if full is None else per_cent(full.utilization),
            )
        )
    columns = ("step", "from", "to", "bytes_of_turn", "load", "tightest", "capacity", "used_in_all")
    data = table(say("links.caption"), [say(f"column.{column}") for column in columns], rows, "lllrrlrr")
    fullest = max(drawn, key=lambda move: move.tightest.utilization if move.tightest else 0.0)
    alt = say(
        f"links.alt_{path}",
        rate=turns(rate),
        count=str(len(drawn)),
        fullest=NO_VALUE if fullest.tightest is None else resource(fullest.tightest.name),
        share=NO_VALUE if fullest.tightest is None else per_cent(fullest.tightest.utilization),
    )
    return Figure(name, svg, alt, say(f"links.figure_{path}_long", rate=turns(rate)), data)


def _boxes(answer: Evaluation, labels: Labels) -> dict[str, str]:
    boxes = {"storage": labels["place.storage"]}
    for side, hardware in answer.scenario.sides:
        nodes = answer.prefill_nodes if side == "prefill" else answer.decode_nodes
        gpu, cnic, snic, dram = hardware.gpu, hardware.cnic, hardware.snic, hardware.dram
        bandwidth = "" if dram.bandwidth is None else f"\n{nodes} × {show(dram.bandwidth, 'B/s')}"
        boxes |= {
            f"{side}_snic": f"{labels['box.snic']}\n{nodes * snic.count} × {show(snic.rate, 'B/s')}",
            f"{side}_host": f"{labels['box.host']}{bandwidth}",
            f"{side}_cnic": f"{labels['box.cnic']}\n{nodes * cnic.count} × {show(cnic.rate, 'B/s')}",
            f"{side}_gpu": f"{labels['box.gpu']}\n{nodes * gpu.count} × {show(gpu.hbm_capacity, 'B')}",
        }
    return boxes


def resources_table(answer: Evaluation) -> Table:
    """Every resource, the fullest first."""
    # a demand that is not carried has no use of its own
    check = answer.demand_check if answer.demand_check and answer.demand_check.utilization <= 1 else None
    loads = sorted(answer.loads, key=lambda load: -load.utilization)
    header = [say(f"column.{name}") for name in ("resource", "load", "capacity")]
    if check is not None:
        header.append(say("column.at_demand"))
    rows: list[tuple[Text, ...]] = []
    marked = []
    for index, load in enumerate(loads):
        cells: list[Text] = [_load_name(load), amount(load.load, load.unit), amount(load.capacity, load.unit)]
        if check is not None:
            cells.append(per_cent(load.utilization * check.utilization))
        binds = load.utilization > 1 - 1e-9
        if binds:
            marked.append(index)
        share = per_cent(load.utilization, 1)
        rows.append((*cells, (share, " ", say("links.binds")) if binds else share))
    align = "lrr" + ("r" if check is not None else "") + "r"
    return table(
        say("links.resources"),
        [*header, say("column.used")],
        rows,
        align,
        marked=marked,
        bars=[min(load.utilization, 1.0) for load in loads],
    )


def _load_name(load: Load) -> Text:
    return (resource(load.name), " (", Prose(load.detail), ")") if load.detail else resource(load.name)
