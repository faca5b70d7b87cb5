"""A report as HTML and Markdown: structure, escaping, numbers, contrast, the same bytes for the same input."""

import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

import dualplan
from dualplan.messages import message
from dualplan.report.blocks import Prose, Typed, figures
from dualplan.report.capacity_review.assemble import report
from dualplan.report.capacity_review.findings import review
from dualplan.report.capacity_review.labels import Labels
from dualplan.report.feasible_document import document as feasible_document
from dualplan.report.figures.drawing import THEME
from dualplan.report.output import clean
from dualplan.report.renderers import html as html_renderer
from dualplan.report.renderers import markdown as markdown_renderer
from dualplan.report.renderers.html import HtmlWords, html
from dualplan.report.renderers.markdown import MarkdownWords, markdown
from dualplan.units import show, significant
from tests.cli.runner import PAPER

HOSTILE = "a/b\\\"'<script>alert(1)</script> & {x} {{y}} %s $x$ | `c` **d** [e](javascript:f) \u202e =1"
RIGHT_TO_LEFT = "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627"
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Tags, ids, headings, tables of a page; checks that tags are balanced."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.headings, self.hrefs, self.open = [], [], [], [], []
        self.tables = []
        self.data = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.tags.append((tag, named))
        if "id" in named:
            self.ids.append(named["id"])
        self.hrefs += [named[key] for key in ("href", "src", "xlink:href") if key in named]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append([int(tag[1]), ""])
        if tag == "table":
            self.tables.append([])
        if tag == "tr" and "table" in self.open:
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, text):
        if "script" in self.open:
            self.data += text
        if any(re.fullmatch("h[1-6]", tag) for tag in self.open):
            self.headings[-1][1] += text
        if ("td" in self.open or "th" in self.open) and self.tables and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1][-1][-1] += text


def made(sets=(), language="en", label="paper"):
    found = review(dualplan.load(PAPER, sets), label=label, file="paper.yaml")
    return report([found], Labels(language), "dualplan report paper.yaml -o report.html")


@pytest.fixture(scope="module")
def document():
    return made(["demand.arrival_rate=0.2"])


@pytest.fixture(scope="module")
def page(document):
    return html(document, Labels("en"))


def test_page_is_well_formed_and_self_contained(page):
    found = Page(page)
    assert len(found.ids) == len(set(found.ids))
    assert all(href.startswith("#") or href == "data:," for href in found.hrefs), found.hrefs
    targets = {href[1:] for href in found.hrefs if href.startswith("#")}
    assert targets <= set(found.ids)
    assert not re.search(r"url\((?!#)", page)
    assert [tag for tag, named in found.tags if tag == "script" and named.get("type") != "application/json"] == []


def test_headings_are_in_order(page):
    levels = [level for level, _ in Page(page).headings]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_all_sections_are_there(page):
    titles = [text for _, text in Page(page).headings]
    labels = Labels("en")
    wanted = "answer deployment range throughput links modes sensitivity upgrades cost working_set risks assumptions"
    for name in [*wanted.split(), "equations", "inputs"]:
        assert labels[f"title.{name}"] in titles


def test_data_in_the_page_is_that_of_feasible(page, document):
    data = json.loads(Page(page).data)
    answer = dualplan.evaluate(dualplan.load(PAPER, ["demand.arrival_rate=0.2"]))
    assert data["scenarios"][0]["feasible"] == clean(json.loads(json.dumps(clean(feasible_document(answer)))))


def test_shown_numbers_are_those_of_the_json_document(page):
    found = Page(page)
    data = json.loads(found.data)["scenarios"][0]["feasible"]
    rows = [[cell.strip() for cell in row] for table in found.tables for row in table]
    for entry in data["resources"]:
        if entry["unit"] in ("B", "B/s"):
            wanted = [show(entry["load"], entry["unit"]), show(entry["capacity"], entry["unit"])]
        else:
            wanted = [f"{significant(entry[key])} turns/s" for key in ("load", "capacity")]
        used = f"{100 * entry['utilization']:.1f} %"
        assert any(row[1:3] == wanted and row[-1].startswith(used) for row in rows), entry
    assert f"{significant(data['throughput']['turns_per_s'])} turns/s" in page
    assert f"{significant(data['throughput']['agents_per_s'])} agents/s" in page
    for end in ("lower", "upper"):
        bound = data["range"][end]
        assert any(significant(bound) in row for row in rows), end
    assert data["inputs_sha256"] in page


def test_every_movement_of_the_diagram_has_a_row_behind_it(document):
    for figure in figures(document.sections):
        assert figure.table.rows, figure.name
        words = re.findall(r">([^<>]+)</text>", figure.svg)
        if "path" in figure.name:
            steps = [word.partition(":")[0] for word in words if re.match(r"[\w, -]+: [\d.]+ [kMGT]?B/s", word)]
            listed = [row[0] for row in figure.table.rows]
            assert steps and all(step in listed for step in steps)


def test_figures_are_drawings_of_text_without_dates_or_user_text(document):
    seen = set()
    for figure in figures(document.sections):
        root = ElementTree.fromstring(figure.svg)
        assert root.attrib["role"] == "img"
        title = root.find("{http://www.w3.org/2000/svg}title")
        assert title is not None and title.text and root.attrib["aria-labelledby"] == title.attrib["id"]
        assert not root.findall(".//{http://www.w3.org/2000/svg}metadata")
        assert root.findall(".//{http://www.w3.org/2000/svg}text")
        ids = [node.attrib["id"] for node in root.iter() if "id" in node.attrib]
        assert len(ids) == len(set(ids)) and not seen & set(ids)
        seen |= set(ids)


def test_same_input_same_bytes():
    labels = Labels("en")
    assert html(made(), labels) == html(made(), labels)
    first, second = (markdown(made(), labels, "figures") for _ in range(2))
    assert first == second


def test_colours_of_the_page_replace_those_of_the_figures(page):
    for colour in THEME:
        assert f"fill: {colour}" not in page and f"stroke: {colour}" not in page
    assert "var(--blue)" in page


@pytest.mark.parametrize("language", ["en", "zh"])
def test_hostile_names_stay_text(language):
    labels = Labels(language)
    text = html(made(label=HOSTILE, language=language), labels)
    found = Page(text)
    assert "<script>alert" not in text
    assert sum(tag == "script" for tag, _ in found.tags) == 1
    assert "\u202e" not in text and "\\u202e" in text
    assert json.loads(found.data)["scenarios"][0]["name"] == HOSTILE
    assert HOSTILE.replace("\u202e", "\\u202e") in found.headings[0][1]


def test_names_are_isolated_from_the_direction_of_the_text():
    text = html(made(label=RIGHT_TO_LEFT), Labels("en"))
    assert f"<bdi>{RIGHT_TO_LEFT}</bdi>" in text
    written, _ = markdown(made(label=RIGHT_TO_LEFT), Labels("en"), "f")
    assert f"\u2068{RIGHT_TO_LEFT}\u2069" in written


def test_names_in_messages_are_escaped_and_isolated():
    told = Prose(message("machine.shares_cnic", machine="\u05e9<b>*x*"))
    labels = Labels("zh")
    assert HtmlWords(labels).text(told) == "<bdi>\u05e9&lt;b&gt;*x*</bdi>：存储流量与计算网卡共用"
    written = MarkdownWords(labels).text(told)
    assert written == "\u2068\u05e9&lt;b&gt;\\*x\\*\u2069：存储流量与计算网卡共用"


def test_what_has_no_code_is_marked_as_english():
    told = Prose("snic.rate: is <odd>")
    page = HtmlWords(Labels("zh")).text(told)
    assert page == '<span dir="auto" lang="en">snic.rate: is &lt;odd&gt;</span>'
    assert MarkdownWords(Labels("zh")).plain(told) == "snic.rate: is <odd>"


def test_long_names_are_cut_and_say_so():
    text = html(made(label="x" * 10_000), Labels("en"))
    found = Page(text)
    assert len(found.headings[0][1]) < 200 and "(10,000)" in found.headings[0][1]
    titles = [named["title"] for tag, named in found.tags if tag == "bdi" and "title" in named]
    assert titles[0] == "x" * 2000


def test_markdown_escapes_what_would_be_markup():
    text, _ = markdown(made(label=HOSTILE), Labels("en"), "figures")
    heading = text.partition("\n")[0]
    for raw in ("<script>", "**d**", "[e](", "`c`", " | "):
        assert raw not in heading
    assert "&lt;script&gt;" in heading and r"\*\*d\*\*" in heading and r"\[e\]" in heading


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("price_per_hour", "price_per_hour"),
        ("a__b", "a__b"),
        ("_a_", r"\_a\_"),
        ("__init__", r"\_\_init\_\_"),
        ("a_ b _c", r"a\_ b \_c"),
        ("_", r"\_"),
        ("Größe_µs", "Größe_µs"),
    ],
)
def test_underscores_are_escaped_where_they_could_be_emphasis(text, written):
    """CommonMark, rules of emphasis: an underscore inside a word neither opens nor closes it."""
    assert markdown_renderer._marked(text) == written


def test_code_that_a_table_could_not_hold_is_text():
    words = markdown_renderer.MarkdownWords(Labels("en"))
    assert words.text(Typed("--set a.b_c=1")) == "`--set a.b_c=1`"
    assert words.text(Typed("a|b")) == r"a\|b" and words.text(Typed("a`b")) == r"a\`b"
    assert html_renderer.HtmlWords(Labels("en")).text(Typed("<b>")) == '<code dir="ltr">&lt;b&gt;</code>'


def test_markdown_tables_have_as_many_cells_in_every_row(document):
    text, drawn = markdown(document, Labels("en"), "figures")
    widths = []
    for line in text.splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
        elif widths:
            assert len(set(widths)) == 1, line
            widths = []
    linked = re.findall(r"\]\(figures/([^)]+)\)", text)
    assert sorted(linked) == sorted(drawn) and linked
    for drawing in drawn.values():
        ElementTree.fromstring(drawing.encode())


def test_several_scenarios_are_compared():
    labels = Labels("en")
    found = [
        review(dualplan.load(PAPER), label="one"),
        review(dualplan.load(PAPER, ["hardware.snic.count=2"]), label="two"),
    ]
    text = html(report(found, labels), labels)
    parsed = Page(text)
    assert len(parsed.ids) == len(set(parsed.ids))
    levels = [level for level, _ in parsed.headings]
    assert levels[:3] == [1, 2, 2] and max(levels) == 3
    # the scenarios, what comes out, the values of the figure, the inputs that differ
    tables = [{row[0].strip(): [cell.strip() for cell in row[1:]] for row in table} for table in parsed.tables[:4]]
    assert tables[1]["P/D range"][-1] == labels["compare.differs"]
    assert tables[1]["Deployment"][-1] == labels["compare.same"]
    assert tables[3]["hardware.snic.count"] == ["1", "2"]
    first, second = (data["feasible"]["inputs_sha256"] for data in json.loads(parsed.data)["scenarios"])
    assert first != second


def test_equal_scenarios_have_no_differences():
    labels = Labels("en")
    found = [review(dualplan.load(PAPER), label=name) for name in "ab"]
    text = html(report(found, labels), labels)
    assert labels["compare.no_difference"] in text and labels["compare.differs"] not in text


@pytest.mark.parametrize(
    "sets",
    [
        ["mode=oracle"],
        ["mode=basic"],
        ["mode=dram-pool", "copy=engine"],
        ["staging=gds", "copy=engine"],
        ["prefill_nodes=40", "decode_nodes=1"],
        ["hardware=aws-p5", "prefill_nodes=8", "decode_nodes=16"],
        ["variants=[{side: decode, nodes: 1, set: {snic.rate: 200Gb/s}}]"],
        ["collective_load=0.8"],
        ["uncertain={balance: 1.18 +- 0.1}"],
    ],
)
def test_other_deployments_make_whole_pages(sets):
    page = Page(html(made(sets), Labels("zh")))
    assert page.headings


# ---------------------------------------------------------------- contrast


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def schemes():
    css = (Path(html_renderer.__file__).parent / "report.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def test_contrast_formula():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the well-known near miss of WCAG


def test_text_has_enough_contrast_in_light_dark_and_print():
    found = schemes()
    assert len(found) == 3
    for colours in found:
        for ink, grounds in {
            "ink": ["paper", "ground", "mark", "meter", "good", "bad", *(f"tint{i}" for i in range(8))],
            "soft": ["paper", "ground", *(f"tint{i}" for i in range(8))],
            "link": ["paper", "ground"],
            "orange": ["paper"],
            "good-ink": ["good"],
            "bad-ink": ["bad"],
        }.items():
            for ground in grounds:
                assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground, colours[ink], colours[ground])
        for line in ("blue", "red", "green", "orange"):
            assert contrast(colours[line], colours["paper"]) >= 3, line
