"""The samples of real traces, against figures from a second, plain way of reading and counting."""

import csv
import json
import re

import pytest

from dualplan.errors import InputError
from dualplan.trace.hits import hit_rates
from dualplan.trace.read import read_trace
from dualplan.trace.record import ReadOptions
from dualplan.trace.stats import summarise


def refused(text):
    return pytest.raises(InputError, match=re.escape(text))


def plain_hits(requests):
    """Totals of hit rates by a set of seen ids: requests are (scope, block size, input tokens, ids) in time order."""
    seen = set()
    hit_tokens = hit_blocks = blocks = tokens = 0
    ratios = []
    for scope, size, length, ids in requests:
        leading = 0
        while leading < len(ids) and (scope, ids[leading]) in seen:
            leading += 1
        seen.update((scope, block) for block in ids)
        hit = min(size * leading, length)
        hit_tokens, hit_blocks = hit_tokens + hit, hit_blocks + leading
        blocks, tokens = blocks + len(ids), tokens + length
        ratios.append(hit / length)
    return hit_tokens / tokens, hit_blocks / blocks, sum(ratios) / len(ratios)


@pytest.mark.parametrize(
    ("name", "requests", "inputs", "outputs", "hit_tokens", "hit_blocks", "blocks"),
    [
        ("conversation_head1000.jsonl", 1000, 13_732_944, 349_357, 2_962_776, 5_791, 27_305),
        ("synthetic_head500.jsonl", 500, 6_403_130, 97_659, 553_165, 1_084, 12_833),
    ],
)
def test_mooncake(shared_cases, name, requests, inputs, outputs, hit_tokens, hit_blocks, blocks):
    path = shared_cases / "traces" / "mooncake" / name
    trace = read_trace(str(path))
    report = trace.report
    assert (report.format, report.rows_read, report.rows_used, report.dropped) == ("mooncake", requests, requests, {})
    assert (report.time_unit, trace.clock) == ("ms", "shared")
    assert (trace.blocks.size, trace.blocks.rounding, trace.blocks.matched) == (512, "ceil", 1.0)
    assert trace.input_tokens.sum() == inputs and trace.output_tokens.sum() == outputs
    rates = hit_rates(trace, "block_hashes")
    assert rates.by_token == hit_tokens / inputs
    assert rates.by_block == hit_blocks / blocks
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    plain = plain_hits((0, 512, row["input_length"], row["hash_ids"]) for row in rows)
    assert (rates.by_token, rates.by_block) == plain[:2]
    assert rates.mean_of_ratios == pytest.approx(plain[2], rel=1e-12)
    assert trace.arrival_s.tolist() == [row["timestamp"] / 1000 for row in rows]
    assert not trace.has_sessions


def test_mooncake_mean_of_ratios(shared_cases):
    trace = read_trace(str(shared_cases / "traces" / "mooncake" / "conversation_head1000.jsonl"))
    # 287.8103727334513 summed over 1,000 requests by the plain way
    assert hit_rates(trace, "block_hashes").mean_of_ratios == pytest.approx(0.2878103727334513, rel=1e-12)


def test_weka_folder(shared_cases):
    folder = shared_cases / "traces" / "weka"
    trace = read_trace(str(folder))
    summary = summarise(trace)
    assert (trace.report.format, summary.requests, summary.sessions) == ("weka", 144, 10)
    assert len(trace.report.files) == 10
    assert trace.input_tokens.sum() == 12_744_859 and trace.output_tokens.sum() == 66_689
    assert (trace.blocks.size, trace.blocks.rounding, trace.blocks.matched) == (64, "floor", 1.0)
    rates = summary.hit_rates["block_hashes"]
    assert summary.accounting == "block_hashes"
    assert rates.by_token == 11_476_544 / 12_744_859
    assert rates.by_block == 179_321 / 199_068
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    plain = plain_hits(
        (number, 64, request["in"], request["hash_ids"])
        for number, document in enumerate(documents)
        for request in document["requests"]
    )
    assert (rates.by_token, rates.by_block) == plain[:2]
    assert rates.mean_of_ratios == pytest.approx(plain[2], rel=1e-12)
    assert summary.turns_per_session.mean == 14.4
    assert (summary.turns_per_session.p50, summary.turns_per_session.max) == (12, 36)
    assert sum(summary.models.values()) == 144 and len(summary.models) == 5
    # two compactions: 147,274 -> 137,883 and 56,109 -> 55,238
    assert summary.resets == 2
    assert summary.arrivals.requests_per_s is None and trace.clock == "session"
    # the files give 0 for the first request of a session, which has waited for nothing
    assert all(document["requests"][0]["think_time"] == 0 for document in documents)
    waits = [r["think_time"] for d in documents for r in d["requests"][1:] if r.get("think_time") is not None]
    assert summary.think_time_s.mean == pytest.approx(sum(waits) / len(waits))
    # the totals that the files themselves state
    assert sum(d["totals"]["combined_tokens"]["input"] for d in documents) == trace.input_tokens.sum()


def test_weka_session_growth(shared_cases):
    """Blocks show what session growth can only suppose: here both agree within a quarter of a per cent."""
    trace = read_trace(str(shared_cases / "traces" / "weka"))
    growth, blocks = hit_rates(trace, "session_growth"), hit_rates(trace, "block_hashes")
    assert growth.by_token == pytest.approx(blocks.by_token, abs=0.0025)


@pytest.mark.parametrize(
    ("name", "form", "requests", "inputs", "outputs"),
    [
        ("code_2023_head400.csv", "azure-2023", 399, 849_576, 9_809),
        # 2162+2399+76+2376+7670 + 1452+584+862+1569+617 and 5+6+15+1+8 + 3+3+38+3+104
        ("AzureLLMInferenceTrace_2024_heads_from_notebook.csv", "azure-2024", 10, 19_767, 186),
    ],
)
def test_azure(shared_cases, name, form, requests, inputs, outputs):
    trace = read_trace(str(shared_cases / "traces" / "azure" / name))
    assert (trace.report.format, trace.requests) == (form, requests)
    assert trace.input_tokens.sum() == inputs and trace.output_tokens.sum() == outputs
    assert trace.blocks is None and not trace.has_sessions
    summary = summarise(trace)
    assert summary.accounting is None and summary.hit_rates == {} and summary.curve is None


def test_azure_seven_decimals(shared_cases):
    path = shared_cases / "traces" / "azure" / "code_2023_head400.csv"
    trace = read_trace(str(path))
    # 18:17:03.9799600, 18:17:04.0319600, 18:17:04.0781490
    assert trace.arrival_s[:3].tolist() == pytest.approx([0, 0.052, 0.098189], abs=1e-6)
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert trace.input_tokens.tolist() == [int(row["ContextTokens"]) for row in rows]


def test_claude_code(shared_cases):
    trace = read_trace(str(shared_cases / "traces" / "sessions" / "ccusage_claude_chat.jsonl"))
    assert trace.report.format == "claude-code"
    # what is read from the cache and written to it counts outside of input_tokens: 100+25+10, 200+50+20, 300+0+40
    assert trace.input_tokens.tolist() == [135, 270, 340]
    assert trace.cached_tokens.tolist() == [10, 20, 40]
    assert trace.output_tokens.tolist() == [50, 75, 125]
    assert trace.session.tolist() == [0, 0, 0]
    sonnet, opus = "claude-sonnet-4-20250514", "claude-opus-4-20250514"
    assert [trace.models[i] for i in trace.model] == [sonnet, opus, sonnet]
    rates = hit_rates(trace, "reported")
    assert rates.by_token == 70 / 745 and rates.by_block is None
    assert rates.mean_of_ratios == pytest.approx((10 / 135 + 20 / 270 + 40 / 340) / 3)


def test_codex(shared_cases):
    trace = read_trace(str(shared_cases / "traces" / "sessions" / "ccusage_codex_session.jsonl"))
    assert trace.report.format == "codex"
    # cached tokens are inside input_tokens; the running totals (3,500, 425) are not a second request
    assert trace.input_tokens.tolist() == [1000, 2500] and trace.output_tokens.tolist() == [125, 300]
    assert trace.cached_tokens.tolist() == [250, 500]
    assert trace.models == ("gpt-5.2-codex", "gpt-5.3-codex")
    assert hit_rates(trace, "reported").by_token == 750 / 3500


def test_text_only_session(shared_cases):
    path = str(shared_cases / "traces" / "sessions" / "simonw_sample_session.jsonl")
    with refused(f"{path}: has text but no token counts: no usage in 3 assistant messages"):
        read_trace(path)
    trace = read_trace(path, ReadOptions(chars_per_token=4))
    assert trace.requests == 3 and trace.report.estimated_tokens
    # first prompt "Create a hello world function" has 29 characters: 8 tokens at 4 characters each
    assert trace.input_tokens[0] == 8
    # 10:00:00 user, 10:00:10 tool result, 10:01:00 user
    assert trace.arrival_s.tolist() == [0, 10, 60]
    # responses at 10:00:05 and 10:00:15
    assert trace.think_time_s[1:].tolist() == [5, 45]


def test_folder_of_two_formats(shared_cases):
    with refused("code_2023_head400.csv: is azure-2023, but"):
        read_trace(str(shared_cases / "traces" / "azure"))


def test_glob(shared_cases):
    assert read_trace(str(shared_cases / "traces" / "weka" / "trace_0[0-3]*.json")).report.rows_used == 24 + 6 + 8 + 6
