"""Traces in other formats: what is written, and what is refused for want of information."""

import json
import re

import pytest

from dualplan.errors import InputError
from dualplan.trace.build import build_trace
from dualplan.trace.convert import TARGETS, check, lines, target, write
from dualplan.trace.hits import hit_rates
from dualplan.trace.read import read_trace


def refused(text):
    return pytest.raises(InputError, match=re.escape(text))


def blocks(**more):
    values = dict(
        input_tokens=[600, 1100, 700],
        output_tokens=[5, 6, 7],
        session=[1, 1, -1],
        arrival_s=[0, 0.471, 2],
        think_time_s=[float("nan"), 0.4, float("nan")],
        block_ids=[[1, 2], [1, 2, 3], [8, 9]],
        block_size=512,
    )
    return build_trace(**(values | more))


def written(trace, name):
    return b"".join(lines(trace, name)).decode().splitlines()


def test_mooncake():
    rows = [json.loads(line) for line in written(blocks(), "mooncake")]
    first, second, third = ({"hash_ids": ids} for ids in ([1, 2], [1, 2, 3], [8, 9]))
    assert rows == [
        {"timestamp": 0, "input_length": 600, "output_length": 5, "session_id": 1} | first,
        {"timestamp": 471, "input_length": 1100, "output_length": 6, "session_id": 1, "delay": 400} | second,
        {"timestamp": 2000, "input_length": 700, "output_length": 7} | third,
    ]


def test_mooncake_sample_round_trip(shared_cases, tmp_path):
    source = shared_cases / "traces" / "mooncake" / "conversation_head1000.jsonl"
    trace = read_trace(str(source))
    write(trace, "mooncake", tmp_path / "t.jsonl")
    before = [json.loads(line) for line in source.read_text().splitlines()]
    after = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert after == before


def test_bailian_links_turns():
    rows = [json.loads(line) for line in written(blocks(), "bailian")]
    assert [(row["chat_id"], row["parent_chat_id"], row["turn"]) for row in rows] == [(0, -1, 1), (1, 0, 2), (2, -1, 1)]


def test_burstgpt():
    assert written(blocks(), "burstgpt")[:2] == [
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "0.0,1,,,600,5,605,",
    ]


def test_azure_needs_dates():
    with refused("--to azure-2024: it needs dates, the trace has times from its start"):
        written(blocks(), "azure-2024")
    dated = blocks(arrival_s=[1_700_000_000, 1_700_000_000.5, 1_700_000_002])
    assert written(dated, "azure-2024")[:3] == [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-14 22:13:20.000000+00:00,600,5",
        "2023-11-14 22:13:20.500000+00:00,1100,6",
    ]


@pytest.mark.parametrize(
    ("change", "to", "what"),
    [
        ({"block_ids": None}, "mooncake", "it needs block ids, the trace has none"),
        ({"session": None}, "session-rows", "it needs sessions, the trace has none"),
        ({"arrival_s": None}, "vidur", "it needs arrival times, the trace has none"),
        ({"clock": "session"}, "otel", "it needs arrivals on one clock"),
        ({"arrival_s": [0, float("nan"), 2]}, "burstgpt", "it needs an arrival time of every request"),
    ],
)
def test_refused(change, to, what):
    with refused(f"--to {to}: {what}"):
        written(blocks(**change), to)


def test_all_that_is_missing_at_once():
    trace = build_trace(input_tokens=[5], output_tokens=[1])
    with pytest.raises(InputError) as caught:
        written(trace, "mooncake")
    assert len(caught.value.problems) == 2


def test_deltas_lose_their_block_ids(tmp_path):
    rows = [
        {"timestamp": 0, "input_length": 1024, "output_length": 7, "hash_ids": [1, 2], "session_id": "a"},
        {"input_length": 600, "output_length": 9, "hash_ids": [50, 51], "session_id": "a", "delay": 10},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read_trace(str(tmp_path / "t.jsonl"))
    with refused("it needs block ids of whole prompts, the trace has those of deltas"):
        check(trace, target("mooncake"))
    assert check(trace, target("dualplan")) == [
        "block ids are left out: those of delta turns do not cover what was generated"
    ]
    assert all("hash_ids" not in line for line in written(trace, "dualplan"))


def test_notes_on_block_size():
    small = blocks(input_tokens=[30, 40, 20], block_ids=[[1, 2], [1, 2, 3], [8, 9]], block_size=16)
    assert check(small, target("mooncake")) == ["blocks have 16 tokens; readers of mooncake take 512 unless told"]
    assert check(small, target("vidur")) == ["block ids are left out: vidur has no place for them"]
    assert check(small, target("dualplan")) == []


def rates(trace):
    found = hit_rates(trace, "block_hashes")
    return found.by_token, found.by_block, found.mean_of_ratios


def test_session_rows_keep_block_ids(tmp_path):
    # two sessions share a prefix, and the first 60 prompts have no whole block
    trace = build_trace(
        input_tokens=[10] * 60 + [640, 800, 320, 200],
        output_tokens=[1] * 64,
        session=[*range(60), 60, 60, 61, 61],
        block_ids=[[]] * 60 + [[*range(10)], [*range(12)], [0, 1, 2, 77, 78], [0, 1, 2]],
        block_size=64,
    )
    # 0 + 640 + 192 + 192 tokens hit of 600 + 640 + 800 + 320 + 200
    assert rates(trace)[0] == pytest.approx(1024 / 2560)
    write(trace, "session-rows", tmp_path / "t.jsonl")
    again = read_trace(str(tmp_path / "t.jsonl"))
    assert rates(again) == rates(trace)
    assert check(trace, target("session-rows")) == []


def test_session_rows_of_weka_keep_hit_rates(shared_cases, tmp_path):
    trace = read_trace(str(shared_cases / "traces" / "weka"))
    write(trace, "session-rows", tmp_path / "t.jsonl")
    assert rates(read_trace(str(tmp_path / "t.jsonl"))) == rates(trace)


def test_session_rows_lose_the_time_between_sessions():
    assert check(blocks(block_size=64, input_tokens=[128, 192, 128]), target("session-rows")) == [
        "hit rates may change: session-rows has no time between sessions, and readers take one after the other"
    ]


def test_targets():
    with refused('--to: "moonkake" cannot be written (did you mean mooncake?)'):
        target("moonkake")
    assert {form.name for form in TARGETS} >= {"mooncake", "dualplan"}


def test_write_faults(tmp_path):
    with refused("is a directory"):
        write(blocks(), "dualplan", tmp_path)
    with refused("cannot be written"):
        write(blocks(), "dualplan", tmp_path / "no" / "t.jsonl")


def test_same_trace_same_bytes(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write(blocks(), "dualplan", tmp_path / name)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
