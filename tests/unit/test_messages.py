"""The catalogue of messages: every code has a sentence in each language, and no sentence is left over."""

import ast
import re
from functools import cache
from pathlib import Path
from string import Formatter

import msgspec
import pytest

import dualplan
from dualplan.messages import LANGUAGES, Message, catalogue, message, parts, text
from dualplan.nomenclature import QUANTITIES
from dualplan.plan.assumptions import assumptions
from dualplan.plan.explain.derivations import equations
from dualplan.plan.explain.parameters import PARAMETERS
from dualplan.plan.purchase.cost import Prices, price_origin
from dualplan.plan.purchase.upgrades import upgrades
from dualplan.steady.answer import evaluate
from tests.cli.runner import PAPER

PACKAGE = Path(dualplan.__file__).parent
CODE = re.compile(r"[a-z_]+\.[A-Za-z0-9_.-]+")
STEADY = [
    [],
    *([f"mode={mode}"] for mode in ("basic", "layerwise", "split-read", "oracle")),
    ["mode=dram-pool", "copy=engine"],
    ["staging=gds", "copy=engine"],
    ["prefill_nodes=40", "decode_nodes=1"],
    ["prefill_nodes=1", "decode_nodes=40"],
    ["hardware=aws-p5", "prefill_nodes=8", "decode_nodes=16"],
    ["hardware=dgx-h100", "decode_hardware=dgx-h200"],
    ["hardware=dgx-a100", "prefill_nodes=4", "decode_nodes=8"],
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
    ["hardware.gpu.hbm_capacity=4GB"],
    ["workload.context=60000000"],
    ["hardware.dram.buffer_sockets=1", "hardware.efficiency.prefill=0.5"],
    ["workload.append=429"],
    ["workload.context=32721", "workload.append=429", "workload.generated=176"],
]
DERIVED = [
    ["hardware=dgx-a100", "prefill_nodes=4", "decode_nodes=8"],
    STEADY[0],
    STEADY[5],
    STEADY[6],
    ["hardware.snic.count=4"],
    ["hardware.storage.read_bandwidth=100GB/s"],
]
NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")


def fields(sentence):
    """Values of a sentence with how they are written; words for one or for several are those of a language."""
    found = {(name, form) for _, name, form, _ in Formatter().parse(sentence) if name is not None}
    return {(name, form) for name, form in found if "|" not in (form or "")}


@cache
def nodes():
    """All syntax of the package, and the words that its templates take from the catalogue."""
    found = [node for source in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(source.read_text("utf-8")))]
    for template in PACKAGE.rglob("report.html"):
        found += map(ast.Constant, re.findall(r"""labels\[["']([^"']+)["']\]""", template.read_text("utf-8")))
    return found


@cache
def texts():
    """Every text of the package."""
    return {node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@cache
def patterns():
    """Every text that is put together after the group of a code: what it has in braces is a text of the package too."""
    found = set()
    for node in nodes():
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            pieces = [re.escape(part.value) if isinstance(part, ast.Constant) else "(.+)" for part in node.values]
            if re.match(r"[a-z_]+\\\.", pieces[0]):
                found.add(re.compile("".join(pieces)))
    return found


def is_named(code):
    """Whether the package names a code as it is, or puts it together of texts that it has."""
    matches = (pattern.fullmatch(code) for pattern in patterns())
    return code in texts() or any(match and all(map(is_text, match.groups())) for match in matches)


def is_text(word):
    """Whether the package has a word, or puts it together of a side and another one."""
    side, _, rest = word.partition("_")
    return word in texts() or (side in ("prefill", "decode") and rest in texts())


def test_every_code_has_a_sentence_in_each_language_with_the_same_values():
    assert LANGUAGES == ("en", "zh")
    for code, sentences in catalogue().items():
        assert CODE.fullmatch(code) and set(sentences) == set(LANGUAGES), code
        assert fields(sentences["en"]) == fields(sentences["zh"]), code


def test_chinese_sentences_are_chinese_unless_they_are_terms():
    terms = re.compile(r"(?:roofline|prefill|decode|[A-Z][A-Za-z]*|[0-9 .,;:()、；，。：（）#/x\n_-])*")
    for code, sentences in catalogue().items():
        bare = re.sub(r"\{.*?\}", "", sentences["zh"])
        assert re.search("[\u4e00-\u9fff]", bare) or terms.fullmatch(bare), (code, sentences["zh"])


def test_no_sentence_is_left_over():
    assert [code for code in catalogue() if not is_named(code)] == []
    assert not is_named("reason.nobody_says_this") and not is_named("assumption.nobody_says_this")


def test_every_code_that_the_package_names_is_in_the_catalogue():
    for node in nodes():
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("message", "say") and node.args:
            code = node.args[0]
            for one in ast.walk(code) if not isinstance(code, ast.JoinedStr) else ():
                if isinstance(one, ast.Constant) and isinstance(one.value, str) and "." in one.value:
                    assert one.value in catalogue()
    for pattern in patterns():
        group = pattern.pattern.partition("\\.")[0]
        if any(code.startswith(f"{group}.") for code in catalogue()):
            assert any(pattern.fullmatch(code) for code in catalogue()), pattern.pattern


def said(one):
    """A message in both languages, checked: Chinese with the numbers of the English sentence."""
    english, chinese = text(one), text(one, "zh")
    assert isinstance(one, Message) and "{" not in english
    assert sorted(NUMBER.findall(chinese)) == sorted(NUMBER.findall(english)), (english, chinese)
    return chinese


@pytest.mark.parametrize("sets", STEADY, ids=lambda sets: " ".join(sets) or "as it is")
def test_assumptions_and_reasons_are_said_in_chinese(sets):
    answer = evaluate(dualplan.load(PAPER, sets))
    for one in (*assumptions(answer), *answer.reasons, *answer.why_not):
        assert re.search("[\u4e00-\u9fff]", said(one)), text(one)
    for load in answer.loads:
        assert not load.detail or said(load.detail)


@pytest.mark.parametrize("sets", DERIVED, ids=lambda sets: " ".join(sets) or "as it is")
def test_titles_and_derivations_of_equations_are_said_in_chinese(sets):
    for equation in equations(dualplan.load(PAPER, sets)):
        for one in (equation.title, *equation.derivation):
            assert re.search("[\u4e00-\u9fff]", said(one)) or one.code.startswith("resource."), text(one)


def test_what_can_be_changed_is_said_in_chinese():
    for parameter in PARAMETERS.values():
        assert re.search("[\u4e00-\u9fff]", said(parameter.meaning))
    for upgrade in upgrades(dualplan.load(PAPER, ["hardware=dgx-h100", "decode_hardware=dgx-h200"])).upgrades:
        assert re.search("[\u4e00-\u9fff]", said(upgrade.title))


def test_origins_of_prices_are_said_in_chinese():
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


def test_english_names_of_quantities_are_those_of_the_nomenclature():
    for code, sentences in catalogue().items():
        group, _, name = code.partition(".")
        if group == "quantity":
            assert sentences["en"] == QUANTITIES[name].meaning


@pytest.mark.parametrize(
    ("sets", "chinese"),
    [
        # 60,000,000 tokens in 61 layers of 656 bytes and 132 of the indexer: 2.884e12 bytes
        (["workload.context=60000000"], "prefill 侧：放不下一个上下文：每 GPU 需 2.88 TB，除权重外余 7.22 GB"),
        # nothing of 4 GB is left beside what is reserved
        (["hardware.gpu.hbm_capacity=4GB"], "prefill 侧：放不下权重：每 GPU 需 65.9 GB，可用 0 B"),
    ],
)
def test_what_does_not_fit_is_said_in_chinese_with_its_units(sets, chinese):
    assert text(evaluate(dualplan.load(PAPER, sets)).reasons[0], "zh").startswith(chinese)


def test_numbers_are_written_as_the_sentence_says():
    assert text(message("reason.tpot", tpot=0.0512, limit=0.05)) == (
        "TPOT is 51.2 ms for a single sequence; 50 ms are asked for."
    )
    assert text(message("assumption.residency", share=0.125), "zh") == "每个前缀有 12 % 仍在 decode 节点上"
    assert text(message("nodes.usual", nodes=1, side="decode")) == "1 decode node"
    assert text(message("nodes.usual", nodes=2, side="decode")) == "2 decode nodes"


def test_lists_have_the_marks_of_the_language():
    names = [message(f"resource.{name}") for name in ("prefill_cnic_read", "decode_cnic_read")]
    empty = message("reason.range_empty", names=(*names, message("list.more", n=6)))
    assert text(empty).endswith(": prefill CNIC read, decode CNIC read and 6 more bind before.")
    assert text(empty, "zh").endswith("：prefill 计算网卡读、decode 计算网卡读、另外 6 项会先成为瓶颈。")
    alone = message("reason.range_empty", names=(names[0],))
    assert text(alone).endswith(": prefill CNIC read binds before.")


def test_what_others_named_is_apart_from_what_the_program_says():
    told = message("machine.shares_cnic", machine="{x} שלום")
    assert text(told) == "{x} שלום: storage traffic shares the compute NICs"
    assert list(parts(told, "zh", lambda name: ("named", name))) == [("named", "{x} שלום"), "：存储流量与计算网卡共用"]


def test_messages_with_the_same_values_are_one():
    first, second = (message("reason.ttft", ttft=2.5, limit=2.0) for _ in range(2))
    assert first == second and len({first, second}) == 1 and first.value("limit") == 2.0
    assert str(first) == "TTFT is at least 2.5 s (unloaded, a lower bound); 2 s are asked for."
