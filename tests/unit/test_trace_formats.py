"""Every format by small files written here after its public description."""

import gzip
import json
import re

import numpy as np
import pytest
import zstandard

from dualplan.errors import InputError
from dualplan.trace.formats import FORMATS
from dualplan.trace.hits import hit_rates, session_context
from dualplan.trace.read import read_trace
from dualplan.trace.record import ReadOptions
from dualplan.trace.stats import summarise


def refused(text):
    return pytest.raises(InputError, match=re.escape(text))


def jsonl(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def text(path, content):
    path.write_text(content)
    return str(path)


def mooncake(timestamp, length, ids, **more):
    return {"timestamp": timestamp, "input_length": length, "output_length": 7, "hash_ids": ids, **more}


# ---------------------------------------------------------------- mooncake


def test_mooncake_cumulative_sessions(tmp_path):
    trace = read_trace(
        jsonl(
            tmp_path / "t.jsonl",
            mooncake(0, 1000, [1, 2], session_id="a"),
            {"input_length": 1500, "output_length": 9, "hash_ids": [1, 2, 3], "session_id": "a", "delay": 2500},
            mooncake(1000, 600, [8, 9], session_id="b"),
        )
    )
    report = trace.report
    assert report.later_turns == "cumulative"
    assert report.later_turns_because == "1 of 1 later turns begin with the first block of the turn before"
    # the turn without a time stands 2.5 s behind the one before it, after the other session
    assert trace.input_tokens.tolist() == [1000, 600, 1500]
    assert trace.session.tolist() == [0, 1, 0] and trace.turn.tolist() == [0, 0, 1]
    assert trace.think_time_s[2] == 2.5 and np.isnan(trace.arrival_s[2])
    assert trace.hit_blocks.tolist() == [0, 0, 2]


def test_mooncake_delta_sessions(tmp_path):
    trace = read_trace(
        jsonl(
            tmp_path / "t.jsonl",
            mooncake(0, 1024, [1, 2], session_id="a"),
            {"input_length": 600, "output_length": 9, "hash_ids": [50, 51], "session_id": "a", "delay": 10},
            {"input_length": 100, "output_length": 5, "hash_ids": [60], "session_id": "a", "delay": 10},
        )
    )
    assert trace.report.later_turns == "delta"
    # 1024; 1024 + 7 + 600; 1631 + 9 + 100
    assert trace.input_tokens.tolist() == [1024, 1631, 1740]
    assert trace.hit_blocks.tolist() == [0, 2, 4]
    assert trace.blocks.offsets.tolist() == [0, 2, 6, 11]
    rates = hit_rates(trace, "block_hashes")
    # what the session had so far, prompts and outputs, is there: 1031 and 1640
    assert rates.by_token == (1031 + 1640) / (1024 + 1631 + 1740)
    assert session_context(trace).tolist() == [0, 1031, 1640]


def test_mooncake_delta_without_ids(tmp_path):
    rows = [{"timestamp": 0, "input_length": 900, "output_length": 50, "session_id": 3}]
    rows += [{"input_length": 80, "output_length": 20, "session_id": 3, "delay": 5}] * 2
    trace = read_trace(jsonl(tmp_path / "t.jsonl", *rows))
    assert trace.report.later_turns == "delta"
    assert trace.input_tokens.tolist() == [900, 1030, 1130]
    given = read_trace(str(tmp_path / "t.jsonl"), ReadOptions(later_turns="cumulative"))
    assert given.input_tokens.tolist() == [900, 80, 80]
    assert given.report.later_turns_because.startswith("given by --later-turns")


def test_two_files_share_no_blocks(tmp_path):
    (tmp_path / "d").mkdir()
    jsonl(tmp_path / "d" / "a.jsonl", mooncake(0, 512, [1]), mooncake(5, 512, [1]))
    jsonl(tmp_path / "d" / "b.jsonl", mooncake(0, 512, [1]))
    trace = read_trace(str(tmp_path / "d"))
    assert sorted(trace.hit_blocks.tolist()) == [0, 0, 1]
    assert trace.clock == "session"
    assert any("clock of its own" in line for line in trace.report.notes)


def test_block_size_found(tmp_path):
    rows = [mooncake(i, 100 + 61 * i, list(range((100 + 61 * i) // 32))) for i in range(20)]
    trace = read_trace(jsonl(tmp_path / "t.jsonl", *rows))
    assert (trace.blocks.size, trace.blocks.rounding) == (32, "floor")
    assert trace.report.block_because == "every id count fits floor(tokens/32)"
    given = read_trace(str(tmp_path / "t.jsonl"), ReadOptions(block_size=48))
    assert (given.blocks.size, given.blocks.rounding) == (48, "given")


def test_time_unit_given(tmp_path):
    path = jsonl(tmp_path / "t.jsonl", mooncake(0, 512, [1]), mooncake(471, 512, [1]))
    assert read_trace(path).arrival_s[1] == 0.471
    trace = read_trace(path, ReadOptions(time_unit="s"))
    assert trace.arrival_s[1] == 471 and trace.report.time_unit_because == "given by --time-unit"


# ---------------------------------------------------------------- other row formats


def test_bailian(tmp_path):
    def row(chat, parent, at, length, ids, turn):
        return {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": at,
            "input_length": length,
            "output_length": 3,
            "type": "text",
            "turn": turn,
            "hash_ids": ids,
        }

    trace = read_trace(
        jsonl(
            tmp_path / "t.jsonl",
            row(55, -1, 0.5, 30, [1, 2], 1),
            row(70, -1, 1.0, 16, [7], 1),
            row(159, 55, 61.114, 70, [1, 2, 3, 4, 5], 2),
            row(200, 159, 99.0, 80, [1, 2, 3, 4, 5], 3),
            row(300, 9999, 99.5, 10, [9], 4),
        )
    )
    assert trace.report.format == "bailian" and trace.report.time_unit == "s"
    assert trace.session.tolist() == [0, 1, 0, 0, 2]  # the last one's parent is not in the file
    assert trace.turn.tolist() == [0, 0, 1, 2, 0]
    assert (trace.blocks.size, trace.blocks.rounding) == (16, "ceil")
    assert trace.hit_blocks.tolist() == [0, 0, 2, 5, 0]
    assert trace.start_s == 0.5 and trace.arrival_s[2] == pytest.approx(60.614)


def test_bailian_sessions_do_not_depend_on_the_order_of_lines(tmp_path):
    def row(chat, parent, at):
        return {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": at,
            "input_length": 16,
            "output_length": 1,
            "type": "text",
            "turn": 1,
            "hash_ids": [chat],
        }

    # 1 <- 2 <- 3; 4 alone; 6 and 7 of a parent that was cut off; 8 is its own parent, 9 and 10 are each other's
    rows = [row(1, -1, 0), row(2, 1, 1), row(3, 2, 2), row(4, -1, 3), row(6, 5, 4), row(7, 5, 5)]
    rows += [row(8, 8, 6), row(9, 10, 7), row(10, 9, 8)]
    for number, order in enumerate((rows, rows[::-1], rows[1::2] + rows[::2])):
        trace = read_trace(jsonl(tmp_path / f"{number}.jsonl", *order))
        first = {session: place for place, session in reversed(list(enumerate(trace.session.tolist())))}
        assert [first[session] for session in trace.session.tolist()] == [0, 0, 0, 3, 4, 4, 6, 7, 7]


def test_text_ids_do_not_depend_on_the_rows_beside_them(tmp_path):
    def row(at, *ids):
        length = 512 * len(ids)
        return json.dumps({"timestamp": at, "input_length": length, "output_length": 1, "hash_ids": ids})

    # the last line, without a line end, is read by itself and has ids of digits only
    lines = [row(0, "00a1", "0002"), row(1, "0003", "0002"), row(2, "0003", "0002")]
    assert read_trace(text(tmp_path / "t.jsonl", "\n".join(lines))).hit_blocks.tolist() == [0, 0, 2]
    assert read_trace(text(tmp_path / "u.jsonl", "\n".join(lines) + "\n")).hit_blocks.tolist() == [0, 0, 2]
    lines = [row(0, "01"), row(1, "1"), row(2, "01")]
    assert read_trace(text(tmp_path / "v.jsonl", "\n".join(lines))).hit_blocks.tolist() == [0, 0, 1]


def test_session_rows_offsets(tmp_path):
    def row(session, turn, at, length, hashes, **more):
        return {
            "session_id": session,
            "turn_index": turn,
            "input_tokens": length,
            "output_tokens": 10,
            "request_arrival_delta_s": at,
            "think_time_s": 1.5,
            "block_hashes": hashes,
            **more,
        }

    trace = read_trace(
        jsonl(
            tmp_path / "t.jsonl",
            row("s1", 1, 20.0, 150, [1, 2]),
            row("s1", 0, 0.0, 128, [1, 2]),
            row("s2", 0, 0.0, 128, [1, 2]),
            row("s1", 2, 30.0, 190, [1, 2]),
        )
    )
    assert trace.report.format == "session-rows" and trace.clock == "session"
    assert trace.input_tokens.tolist() == [128, 150, 190, 128]
    assert trace.arrival_s.tolist() == [0, 20, 30, 0]
    assert trace.think_time_s.tolist() == [1.5] * 4
    # block ids of one session mean nothing in another
    assert trace.hit_blocks.tolist() == [0, 2, 2, 0]
    assert "from the session's start" in trace.report.time_unit_because


def test_session_rows_gaps(tmp_path):
    rows = [
        {"session_id": 1, "turn_index": i, "input_tokens": 64, "output_tokens": 1, "request_arrival_delta_s": gap}
        for i, gap in enumerate([0, 9, 4, 6])
    ]
    trace = read_trace(jsonl(tmp_path / "t.jsonl", *rows))
    assert trace.arrival_s.tolist() == [0, 9, 13, 19]
    assert "from the turn before, as it falls within a session 1 times" in trace.report.time_unit_because


def test_session_rows_with_text_hashes_are_global(tmp_path):
    rows = [
        {"session_id": s, "turn_index": 0, "input_tokens": 64, "output_tokens": 1, "block_hashes": ["ab12"]}
        for s in ("x", "y")
    ]
    assert read_trace(jsonl(tmp_path / "t.jsonl", *rows)).hit_blocks.tolist() == [0, 1]


def test_opentelemetry_rows(tmp_path):
    csv = "start_time_s,input_tokens,output_tokens,session_id\n1700000010.5,20,3,b\n1700000000,10,2,a\n"
    trace = read_trace(text(tmp_path / "t.csv", csv))
    assert trace.report.format == "otel"
    assert trace.input_tokens.tolist() == [10, 20] and trace.arrival_s.tolist() == [0, 10.5]
    assert trace.start_s == 1_700_000_000
    assert trace.report.notes == ("the time went back 1 times; requests were sorted by time",)
    row = {"start_time_s": 5, "gen_ai.usage.input_tokens": 40, "gen_ai.usage.output_tokens": 4}
    more = {"gen_ai.conversation.id": "c", "gen_ai.request.model": "m"}
    other = read_trace(jsonl(tmp_path / "t.jsonl", row | more, row | more))
    assert other.input_tokens.tolist() == [40, 40] and other.session.tolist() == [0, 0] and other.models == ("m",)


BURST = "{0}Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def test_burstgpt_first_release(tmp_path):
    csv = BURST.format("Timestamp,") + (
        "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n46,GPT-4,0,0,0,API log\n"
    )
    trace = read_trace(text(tmp_path / "t.csv", csv))
    assert trace.report.format == "burstgpt"
    # 0/0 is a failed call and goes; a prompt without an answer was processed and stays
    assert trace.input_tokens.tolist() == [472, 1087] and trace.output_tokens.tolist() == [18, 0]
    assert trace.report.dropped == {"zero input tokens (failed call)": 1}
    assert (trace.report.rows_read, trace.report.rows_used) == (3, 2)
    assert summarise(trace).zero_outputs == 1
    assert trace.models == ("ChatGPT", "GPT-4") and not trace.has_sessions


def test_burstgpt_later_release(tmp_path):
    csv = BURST.format("Timestamp,Session ID,Elapsed time,") + (
        "5,,,ChatGPT,472,18,490,Conversation log\n"
        "45,s1,3.2,GPT-4,1087,230,1317,Conversation log\n"
        "50,s1,,GPT-4,1400,20,1420,API log\n"
        "60,s1,1.0,ChatGPT,1500,20,1520,API log\n"
    )
    trace = read_trace(text(tmp_path / "t.csv", csv))
    assert trace.session.tolist() == [-1, 0, 0, 0] and trace.turn.tolist() == [0, 0, 1, 2]
    # the second GPT-4 turn continues the first (1087 + 230), the ChatGPT turn finds nothing of its model
    assert session_context(trace).tolist() == [0, 0, 1317, 0]
    assert summarise(trace).sessions == 1


def test_vidur(tmp_path):
    csv = "# made by hand\n\narrived_at,num_prefill_tokens,num_decode_tokens\n0.25,374,44\n1.5,396,109\n"
    trace = read_trace(text(tmp_path / "t.csv", csv))
    assert trace.report.format == "vidur"
    assert trace.input_tokens.tolist() == [374, 396] and trace.arrival_s.tolist() == [0, 1.25]
    lengths = read_trace(text(tmp_path / "l.csv", "num_prefill_tokens,num_decode_tokens\n374,44\n396,109\n"))
    assert lengths.clock == "none" and lengths.report.time_unit is None


def test_azure_mixed_fractions(tmp_path):
    csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + (
        "2024-05-10 00:00:00.009930+00:00,10,1\n2024-05-10 00:00:01+00:00,20,2\n2024-05-10 02:00:02+02:00,30,3\n"
    )
    trace = read_trace(text(tmp_path / "t.csv", csv))
    assert trace.report.format == "azure-2024"
    assert trace.arrival_s.tolist() == pytest.approx([0, 0.99007, 1.99007], abs=1e-6)
    with refused("--time-unit: azure-2024 has dates or no times"):
        read_trace(str(tmp_path / "t.csv"), ReadOptions(time_unit="ms"))


def test_own_format(tmp_path):
    trace = read_trace(
        jsonl(
            tmp_path / "t.jsonl",
            {"schema": "dualplan/trace/1", "clock": "shared"},
            {
                "session": 4,
                "turn": 0,
                "arrival_s": 0.5,
                "input_tokens": 100,
                "output_tokens": 5,
                "cached_tokens": 0,
                "think_time_s": None,
            },
            {
                "session": 4,
                "turn": 1,
                "arrival_s": 9.5,
                "input_tokens": 130,
                "output_tokens": 6,
                "cached_tokens": 96,
                "think_time_s": 4.0,
            },
        )
    )
    assert trace.report.format == "dualplan" and trace.report.rows_read == 2
    assert trace.cached_tokens.tolist() == [0, 96]
    assert hit_rates(trace, "reported").by_token == 96 / 230


# ---------------------------------------------------------------- documents


def weka(t, length, ids, **more):
    return {"t": t, "type": "n", "model": "m", "in": length, "out": 4, "hash_ids": ids, **more}


def test_weka_nested_subagents(tmp_path):
    inner = {"t": 3.0, "type": "subagent", "agent_id": "i", "requests": [weka(3.5, 64, [5])]}
    agent = {
        "t": 2.0,
        "type": "subagent",
        "agent_id": "a",
        "requests": [weka(2.5, 128, [1, 9]), inner, weka(4.0, 192, [1, 9, 10])],
    }
    late = {"t": 50.0, "type": "subagent", "agent_id": "b", "requests": [weka(0.0, 64, [5]), weka(7.0, 64, [6])]}
    session = {
        "id": "one",
        "block_size": 64,
        "hash_id_scope": "local",
        "requests": [weka(0.0, 128, [1, 2]), agent, weka(9.0, 200, [1, 2, 3], think_time=2.0), late],
    }
    trace = read_trace(jsonl(tmp_path / "t.json", session))
    assert trace.report.format == "weka" and trace.report.rows_read == 7
    assert summarise(trace).sessions == 4
    rows = {
        (int(session), float(at)): int(hits)
        for session, at, hits in zip(trace.session, trace.arrival_s, trace.hit_blocks, strict=True)
    }
    # sub-agents are sessions; block ids are the file's; times of the last one count from its start, 50 s
    assert sorted(at for _, at in rows) == [0, 2.5, 3.5, 4, 9, 50, 57]
    assert len({session for session, _ in rows}) == 4
    assert trace.report.notes == ("sub-agents are sessions of their own",)


def test_weka_pretty_printed_and_zero_output(tmp_path):
    session = {"id": "x", "block_size": 64, "requests": [weka(0.0, 130, [1, 2]) | {"out": 0}]}
    trace = read_trace(text(tmp_path / "t.json", json.dumps(session, indent=1)))
    assert trace.output_tokens.tolist() == [0] and trace.blocks.rounding == "floor"


def test_models_share_no_cache(tmp_path):
    requests = [weka(0.0, 128, [1, 2]), weka(1.0, 128, [1, 2], model="other"), weka(2.0, 192, [1, 2, 3])]
    requests[1]["model"] = "other"
    trace = read_trace(jsonl(tmp_path / "t.json", {"id": "x", "block_size": 64, "requests": requests}))
    assert trace.hit_blocks.tolist() == [0, 0, 2]
    assert session_context(trace).tolist() == [0, 0, 132]


def test_openhands(tmp_path):
    def usage(prompt, completion, cached):
        return {
            "model": "m",
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "cache_read_tokens": cached,
            "cache_write_tokens": 0,
        }

    metrics = {
        "token_usages": [usage(1000, 50, 0), usage(1200, 60, 900)],
        "costs": [{"timestamp": 1700000010.0}, {"timestamp": 1700000030.0}],
        "response_latencies": [{"latency": 4.0}, {"latency": 5.0}],
    }
    trace = read_trace(
        jsonl(
            tmp_path / "output.jsonl",
            {"instance_id": "django-1", "history": [{"x": 1}], "metrics": metrics},
            {"instance_id": "django-2", "metrics": {"token_usages": []}},
            {"instance_id": "django-3", "metrics": None},
        )
    )
    assert trace.report.format == "openhands" and summarise(trace).sessions == 1
    assert trace.input_tokens.tolist() == [1000, 1200] and trace.cached_tokens.tolist() == [0, 900]
    assert trace.arrival_s.tolist() == [0, 19]  # 1700000010 - 4 and 1700000030 - 5


def claude(at, message, **more):
    return {"timestamp": f"2026-01-09T10:00:{at:02d}.000Z", "sessionId": "s", "message": message, **more}


def test_claude_code_streamed_lines_and_side_chains(tmp_path):
    def answer(name, output, cached=50):
        usage = {"input_tokens": 10, "output_tokens": output, "cache_read_input_tokens": cached}
        return {"role": "assistant", "id": name, "model": "m", "usage": usage | {"cache_creation_input_tokens": 5}}

    trace = read_trace(
        jsonl(
            tmp_path / "t.jsonl",
            {"type": "summary", "summary": "x"},
            claude(0, {"role": "user", "content": "hi"}, type="user"),
            claude(4, answer("a", 1), type="assistant"),
            claude(5, answer("a", 1), type="assistant"),
            claude(6, answer("a", 120), type="assistant"),
            claude(16, {"role": "user", "content": "go on"}, type="user"),
            claude(17, answer("side", 9), type="assistant", isSidechain=True, agentId="x1"),
            claude(20, answer("b", 30, cached=150), type="assistant"),
        )
    )
    # the first line of a response sets its time, the largest output is the whole one
    assert sorted(trace.output_tokens.tolist()) == [9, 30, 120]
    assert trace.report.dropped == {"another line of the same response": 2}
    main = trace.session == trace.session[trace.output_tokens == 120]
    assert trace.arrival_s[main].tolist() == [0, 16]
    # the response before was complete at second 6
    assert trace.think_time_s[main][1] == 10
    assert summarise(trace).sessions == 2


def test_codex_repeats_and_totals(tmp_path):
    def count(at, total, last=None, cached=0):
        def usage(pair):
            return {"input_tokens": pair[0], "cached_input_tokens": cached, "output_tokens": pair[1]}

        info = {"total_token_usage": usage(total), "last_token_usage": None if last is None else usage(last)}
        payload = {"type": "token_count", "info": info}
        return {"timestamp": f"2026-05-13T09:00:{at:02d}.000Z", "type": "event_msg", "payload": payload}

    trace = read_trace(
        jsonl(
            tmp_path / "t.jsonl",
            {"timestamp": "2026-05-13T09:00:00.000Z", "type": "session_meta", "payload": {"id": "u"}},
            {"timestamp": "2026-05-13T09:00:01.000Z", "type": "turn_context", "payload": {"model": "g"}},
            {"timestamp": "2026-05-13T09:00:02.000Z", "type": "event_msg", "payload": {"type": "token_count"}},
            {"timestamp": "2026-05-13T09:00:03.000Z", "type": "event_msg", "payload": {"type": "user_message"}},
            count(9, (100, 10), (100, 10)),
            count(10, (100, 10), (100, 10)),
            count(30, (350, 25)),
        )
    )
    assert trace.input_tokens.tolist() == [100, 250] and trace.output_tokens.tolist() == [10, 15]
    assert trace.report.dropped == {"token_count repeated": 1}
    # asked at second 3; the second call was logged at 30, with no input before it
    assert trace.arrival_s.tolist() == [0, 27] and trace.models == ("g",)


TEXTS = {
    "swe-agent": {
        "trajectory": [],
        "history": [
            {"role": "system", "content": "s" * 40},
            {"role": "assistant", "content": "a" * 8},
            {"role": "user", "content": [{"type": "text", "text": "o" * 12}]},
            {"role": "assistant", "content": "b" * 4},
        ],
    },
    "tau-bench": [
        {
            "task_id": 0,
            "traj": [
                {"role": "user", "content": "s" * 40},
                {"role": "assistant", "content": "a" * 8},
                {"role": "tool", "content": "o" * 12},
                {"role": "assistant", "content": "b" * 4},
            ],
        }
    ],
}


@pytest.mark.parametrize("form", TEXTS)
def test_text_only(tmp_path, form):
    path = text(tmp_path / "t.json", json.dumps(TEXTS[form], indent=1))
    with refused("text but no token counts (--chars-per-token"):
        read_trace(path)
    trace = read_trace(path, ReadOptions(chars_per_token=4))
    assert trace.report.format == form and trace.report.estimated_tokens
    # 40/4 and 8/4; (40 + 8 + 12)/4 and 4/4
    assert trace.input_tokens.tolist() == [10, 15] and trace.output_tokens.tolist() == [2, 1]


def test_lmcache_text(tmp_path):
    rows = [
        {"timestamp": 0, "input": "x" * 10, "output": "y" * 4, "session_id": 1},
        {"timestamp": 9, "input": "x" * 30, "output": "", "session_id": 1},
    ]
    path = jsonl(tmp_path / "t.jsonl", *rows)
    with refused("text but no token counts"):
        read_trace(path)
    trace = read_trace(path, ReadOptions(chars_per_token=4))
    assert trace.input_tokens.tolist() == [3, 8] and trace.output_tokens.tolist() == [1, 0]
    assert trace.clock == "none"


# ---------------------------------------------------------------- recognition and containers


def test_unknown_format_lists_what_is_known(tmp_path):
    with refused("no known trace format has the fields a, b"):
        read_trace(text(tmp_path / "t.csv", "a,b\n1,2\n"))
    with refused("is a JSON array of no known format"):
        read_trace(text(tmp_path / "t.json", '[{"input_length": 5}]'))


def test_format_given(tmp_path):
    path = jsonl(tmp_path / "t.jsonl", mooncake(0, 512, [1]))
    assert read_trace(path, ReadOptions(trace_format="mooncake")).report.format_because == "given by --trace-format"
    with refused('--trace-format: there is no format "moonkake" (did you mean mooncake?)'):
        read_trace(path, ReadOptions(trace_format="moonkake"))
    with refused("has no num_prefill_tokens and num_decode_tokens, which vidur needs"):
        read_trace(path, ReadOptions(trace_format="vidur"))


def test_format_names_are_unique():
    names = [form.name for form in FORMATS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("form", ["plain", "gz", "zst", "utf-16", "bom", "crlf", "no final newline"])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_containers(tmp_path, form, kind):
    rows = [mooncake(i * 1000, 600, [0, i]) for i in range(3)]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    if kind == "csv":
        content = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,600,7\n1,600,7\n2,600,7\n"
    data = content.encode()
    data = {
        "plain": data,
        "gz": gzip.compress(data),
        "zst": zstandard.ZstdCompressor().compress(data),
        "utf-16": content.encode("utf-16"),
        "bom": b"\xef\xbb\xbf" + data,
        "crlf": data.replace(b"\n", b"\r\n"),
        "no final newline": data.rstrip(b"\n"),
    }[form]
    path = tmp_path / f"t.{kind}"
    path.write_bytes(data)
    trace = read_trace(str(path))
    assert trace.input_tokens.tolist() == [600] * 3 and trace.arrival_s.tolist() == [0, 1, 2]
    said = {"gz": "gzip decompressed", "zst": "zstd decompressed", "utf-16": "converted from UTF-16"}
    said["bom"] = "byte order mark skipped"
    assert (said.get(form) in trace.report.notes) == (form in said)
