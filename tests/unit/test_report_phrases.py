"""Sentences of the program in Chinese: every one has its words, with the values it had."""

import re
from pathlib import Path
from string import Formatter

import msgspec
import pytest
import yaml

import dualplan
from dualplan.plan.assumptions import assumptions
from dualplan.plan.explain.derivations import equations
from dualplan.plan.explain.parameters import PARAMETERS
from dualplan.plan.purchase.cost import Prices, price_origin
from dualplan.plan.purchase.upgrades import PARTS, upgrades
from dualplan.report.blocks import Prose
from dualplan.report.capacity_review import phrases
from dualplan.report.capacity_review.labels import Labels
from dualplan.report.capacity_review.phrases import chinese
from dualplan.report.renderers.html import HtmlWords
from dualplan.report.renderers.markdown import MarkdownWords
from dualplan.steady.answer import evaluate
from tests.cli.runner import PAPER

ROWS = yaml.safe_load((Path(phrases.__file__).parent / "phrases.yaml").read_text(encoding="utf-8"))
WORDS = MarkdownWords(Labels("zh"))
NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")

STEADY = [
    [],
    *([f"mode={mode}"] for mode in ("basic", "layerwise", "split-read", "oracle")),
    ["mode=dram-pool", "copy=engine"],
    ["staging=gds", "copy=engine"],
    ["prefill_nodes=40", "decode_nodes=1"],
    ["prefill_nodes=1", "decode_nodes=40"],
    ["hardware=aws-p5", "prefill_nodes=8", "decode_nodes=16"],
    ["hardware=dgx-h100", "decode_hardware=dgx-h200"],
    ["hardware=gb200-nvl72", "prefill_nodes=8", "decode_nodes=8"],
    ["hardware=h20-hgx", "model=qwen3-235b-a22b"],
    ["hardware=l40s-8-pcie", "model=llama-3.1-70b"],
    ["model=llama-3.1-405b"],
    ["variants=[{side: decode, nodes: 1, set: {snic.rate: 200Gb/s}}]"],
    ["collective_load=0.8"],
    ["uncertain={balance: 1.18 +- 0.1}"],
    ["balance=1.3"],
    ["policy=round-robin", "persist=prefill", "residency=0.3"],
    ["slo.ttft=1ms", "slo.tpot=1ms", "demand.arrival_rate=9"],
    ["hardware.snic.count=4"],
    ["hardware.snic.count=8"],
    ["hardware.dram.buffer_sockets=1", "hardware.efficiency.prefill=0.5"],
    ["workload.append=429"],
    ["workload.context=32721", "workload.append=429", "workload.generated=176"],
]
DERIVED = [STEADY[0], STEADY[5], STEADY[6], ["hardware.snic.count=4"], ["hardware.storage.read_bandwidth=100GB/s"]]


def said(sentence):
    """The sentence in Chinese, checked: it has the numbers of the English one."""
    found = chinese(sentence)
    assert found is not None, f"no template of report/capacity_review/phrases.yaml makes: {sentence}"
    text = WORDS.plain(found)
    assert sorted(NUMBER.findall(text)) == sorted(NUMBER.findall(sentence)), (sentence, text)
    return text


def fields(text):
    return sorted(name for _, name, *_ in Formatter().parse(text) if name is not None)


def test_every_phrase_is_chinese_with_the_same_values():
    terms = re.compile(r"(?:roofline|prefill|decode|GPU|HBM|[ ，（）])*")
    for row in ROWS:
        assert set(row) == {"en", "zh"} and fields(row["en"]) == fields(row["zh"]), row
        bare = re.sub(r"\{.*?\}", "", row["zh"])
        assert re.search("[\u4e00-\u9fff]", bare) or terms.fullmatch(bare), row
    assert len({row["en"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("sets", STEADY, ids=lambda sets: " ".join(sets) or "as it is")
def test_assumptions_and_reasons(sets):
    answer = evaluate(dualplan.load(PAPER, sets))
    for sentence in (*assumptions(answer), *answer.reasons):
        assert re.search("[\u4e00-\u9fff]", said(sentence)), sentence
    for load in answer.loads:
        assert not load.detail or said(load.detail)


@pytest.mark.parametrize("sets", DERIVED, ids=lambda sets: " ".join(sets) or "as it is")
def test_titles_and_derivations_of_equations(sets):
    for equation in equations(dualplan.load(PAPER, sets)):
        for sentence in (equation.title, *equation.derivation):
            said(sentence)


def test_what_can_be_changed():
    for parameter in PARAMETERS.values():
        said(parameter.meaning)
    for _, title, _ in PARTS:
        for where in ("every node", "each prefill node", "each decode node"):
            assert re.search("[\u4e00-\u9fff].*：", said(f"{title} on {where}"))
    for upgrade in upgrades(dualplan.load(PAPER, ["hardware=dgx-h100", "decode_hardware=dgx-h200"])).upgrades:
        said(upgrade.title)


def test_origins_of_prices():
    plain = dualplan.load(PAPER).hardware
    bought = msgspec.structs.replace(plain, cost=msgspec.structs.replace(plain.cost, price=2e5, power=None))
    rented = msgspec.structs.replace(plain, cost=msgspec.structs.replace(plain.cost, price_per_hour=98.0))
    found = {
        price_origin(plain, Prices()),
        price_origin(plain, Prices(per_hour={plain.name: 1.0})),
        price_origin(rented, Prices()),
        price_origin(bought, Prices()),
        price_origin(bought, Prices(lifetime_hours=1.0)),
        price_origin(bought, Prices(lifetime_hours=1.0, energy=0.1)),
    }
    assert len({said(origin) for origin in found}) == 6


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        # a list is one before it is anything else: "prefill {}, decode {}" is a template too
        (
            "No P/D lets the storage NICs run at line rate: prefill CNIC read, decode CNIC read and 6 more "
            "bind before.",
            "没有任何 P/D 能让存储网卡跑满线速：prefill 计算网卡读、decode 计算网卡读、另外 6 项 会先成为瓶颈。",
        ),
        ("prefill ep=16,tp=1,dp=16, decode ep=32,tp=1,dp=32", "prefill ep=16,tp=1,dp=16，decode ep=32,tp=1,dp=32"),
        ("load of copy submission (decode, RDMA writes)", "负载：拷贝提交（decode、RDMA 写）"),
        (
            "decode.parallel: ep=16 needs 16 GPUs, the side has 8\n"
            "decode.parallel: tp=4 times dp=4 is 16 GPUs, the side has 8",
            "decode.parallel：ep=16 需要 16 个 GPU，该侧只有 8 个；"
            "decode.parallel：tp=4 乘 dp=4 为 16 个 GPU，该侧有 8 个",
        ),
        # free text of a profile stays in its language
        (
            "compute times: roofline, prefill at 0.24 of the peak of x (assumed: as H100, measured; no figure found)",
            "计算时间：roofline，prefill 为 x 峰值的 0.24（assumed: as H100, measured; no figure found）",
        ),
    ],
)
def test_lists_and_free_text(sentence, text):
    assert said(sentence) == text


@pytest.mark.parametrize(
    "text", ["", ".", " ", "load of ", "a user wrote this", "given: " + "x" * 5000, "balance  (given)"]
)
def test_what_no_template_makes_stays(text):
    assert chinese(text) is None
    assert WORDS.plain(Prose(text)) == text


def test_names_in_values_are_escaped_and_isolated():
    name = "\u05e9<b>*x*"
    html, markdown = (
        words.text(Prose(f"{name}: storage traffic shares the compute NICs"))
        for words in (
            HtmlWords(Labels("zh")),
            WORDS,
        )
    )
    assert html == "<bdi>\u05e9&lt;b&gt;*x*</bdi>：存储流量与计算网卡共用"
    assert markdown == "\u2068\u05e9&lt;b&gt;\\*x\\*\u2069：存储流量与计算网卡共用"
