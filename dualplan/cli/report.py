"""``dualplan report``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualplan.cli.options import check_place, note, print_text, write_text
from dualplan.cli.prices import LifetimeOption, PriceOption, prices_of
from dualplan.cli.scenario_files import scenarios_command
from dualplan.cli.scenario_flags import ScenarioFlags

if TYPE_CHECKING:
    from dualplan.report.blocks import Document
    from dualplan.report.capacity_review.findings import Review
    from dualplan.report.capacity_review.labels import Labels

MOST_SCENARIOS = 20


class ReportFormat(StrEnum):
    """Forms of a report."""

    html = "html"
    md = "md"


class ReportLanguage(StrEnum):
    """Languages of a report."""

    en = "en"
    zh = "zh"


SUFFIXES = {
    ".html": ReportFormat.html,
    ".htm": ReportFormat.html,
    ".md": ReportFormat.md,
    ".markdown": ReportFormat.md,
}


@scenarios_command
def report(
    flags: list[ScenarioFlags],
    output_file: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="FILE.html (one file), or FILE.md and the folder FILE_figures."
        ),
    ] = None,
    fmt: Annotated[
        ReportFormat | None, typer.Option("-f", "--format", help="html or md, where the file's name does not say.")
    ] = None,
    lang: Annotated[
        ReportLanguage, typer.Option(help="Language of headings and sentences: en or zh.")
    ] = ReportLanguage.en,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Also simulate the demand, and the capacity under the SLO.")
    ] = False,
    price: PriceOption = None,
    lifetime: LifetimeOption = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="End with 0 even if not feasible.")] = False,
) -> None:
    """The document for a capacity review, as HTML or Markdown; several scenarios are compared.

    Holds the answer, ranges, links, modes, risks, assumptions with sources, equations and the inputs. Ends with 4 if a
    scenario is not feasible (the document is written all the same).
    """
    from dualplan.errors import UsageError

    form = _form(output_file, fmt)
    assert output_file is not None
    if len(flags) > MOST_SCENARIOS:
        raise UsageError(f"{len(flags)} scenarios are more than the {MOST_SCENARIOS} that fit one report")
    check_place(output_file, "-o")
    from dualplan.report.capacity_review.assemble import report as make
    from dualplan.report.capacity_review.labels import Labels

    reviews = _reviews(flags, simulate, price, lifetime)
    labels = Labels(lang.value)
    own = {"lang": lang.value if lang is not ReportLanguage.en else None, "simulate": simulate or None, "price": price}
    own |= {"lifetime": lifetime, "exit_zero": exit_zero or None, "format": None if fmt is None else fmt.value}
    document = make(reviews, labels, _command(flags, output_file, own))
    _write(document, labels, form, output_file)
    infeasible = [review for review in reviews if not review.answer.feasible]
    if infeasible and not exit_zero:
        note(f"not feasible: {len(infeasible)} of {len(reviews)} scenarios")
        raise typer.Exit(4)


def _form(file: Path | None, fmt: ReportFormat | None) -> ReportFormat:
    from dualplan.errors import UsageError

    if file is None:
        raise UsageError("say where the report goes: -o report.html or -o report.md")
    form = fmt or SUFFIXES.get(file.suffix.lower())
    if form is None:
        what = "standard output has no name" if str(file) == "-" else f'"{file.suffix}" is neither .html nor .md'
        raise UsageError(f"-o {file}: {what}; name the file so, or give --format html or --format md")
    return form


def _reviews(flags: list[ScenarioFlags], simulate: bool, price: list[str] | None, lifetime: str | None) -> list[Review]:
    """All scenarios, computed. Raises InputError with the problems of all of them."""
    import msgspec

    from dualplan.errors import each
    from dualplan.report.capacity_review.findings import review
    from dualplan.report.compare import names_of

    scenarios = each(flags, ScenarioFlags.resolve)
    machines = {hardware.name for scenario in scenarios for _, hardware in scenario.sides}
    prices = prices_of(price, lifetime, machines)
    found = []
    for one, scenario in zip(flags, scenarios, strict=True):
        simulation = None
        if simulate:
            from dualplan.cli.simulate import simulation_documents

            simulation = simulation_documents(one, scenario)
        file = None if one.file is None else str(one.file)
        found.append(review(scenario, file=file, simulation=simulation, prices=prices))
    names = names_of([one.file for one in flags], [one.answer for one in found])
    return [msgspec.structs.replace(one, label=name) for one, name in zip(found, names, strict=True)]


def _write(document: Document, labels: Labels, form: ReportFormat, file: Path) -> None:
    from dualplan.report.renderers.html import html
    from dualplan.report.renderers.markdown import markdown

    to_stdout = str(file) == "-"
    drawings: dict[str, str] = {}
    if form is ReportFormat.html:
        text = html(document, labels)
    else:
        text, drawings = markdown(document, labels, "" if to_stdout else f"{file.stem}_figures")
    if to_stdout:
        print_text(text)
        return
    if drawings:
        _write_figures(file.with_name(f"{file.stem}_figures"), drawings)
    write_text(file, text)
    beside = f" and {len(drawings)} figures in {file.stem}_figures" if drawings else ""
    note(f"{file}: {len(text.encode()) / 1e3:,.0f} kB{beside}")


def _write_figures(folder: Path, drawings: dict[str, str]) -> None:
    from shutil import rmtree

    from dualplan.errors import InputError

    made = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {folder}", f"the folder of figures cannot be made: {error.strerror or error}") from None
    try:
        for name, text in drawings.items():
            write_text(folder / name, text)
    except BaseException:
        if made:  # without the document its figures are of no use
            rmtree(folder, ignore_errors=True)
        raise


def _command(flags: list[ScenarioFlags], file: Path, own: dict[str, Any]) -> str:
    """The command line of this call, in one order and quoted for a shell. ``own``: the options of report."""
    from shlex import join

    words: list[Any] = ["dualplan", "report", *(one.file for one in flags if one.file is not None)]
    for name, value in {**flags[0].values, **own}.items():
        if name == "file" or value is None:
            continue
        flag = "--" + name.rstrip("_").replace("_", "-")
        for item in value if isinstance(value, (list, tuple)) else [value]:
            words += [flag] if item is True else [flag, item]
    return join(map(str, [*words, "-o", file]))
