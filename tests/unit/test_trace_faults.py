"""Bad input: what is said about it, with file and line, and what --lenient keeps."""

import gzip
import io
import json
import os
import re
import threading

import pytest

from dualplan.errors import InputError
from dualplan.trace import source
from dualplan.trace.read import read_trace
from dualplan.trace.record import ReadOptions
from dualplan.trace.stats import summarise
from dualplan.trace.view import inputs_sha256
from dualplan.trace.workload import workload_of_trace

LENIENT = ReadOptions(lenient=True)
GOOD = b'{"timestamp": 0, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]}\n'
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = b"2023-11-16 18:17:03,4808,10\n"


def refused(text):
    return pytest.raises(InputError, match=re.escape(text))


def write(path, data):
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("data", [b"", b"\n  \n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["t.jsonl", "t.csv"])
def test_empty(tmp_path, name, data):
    path = write(tmp_path / name, data)
    with refused(f"{path}: is empty"):
        read_trace(path)


def test_header_only(tmp_path):
    with refused("no usable request in 0 rows"):
        read_trace(write(tmp_path / "t.csv", AZURE))


def test_comments_above_json_lines(tmp_path):
    above = b"# one\n\n  # two\n"
    path = write(tmp_path / "t.jsonl", above + GOOD + GOOD + b"{}\n")
    with refused(f"{path}:6: "):
        read_trace(path)
    assert read_trace(path, LENIENT).hit_blocks.tolist() == [0, 2]
    own = b'{"schema": "dualplan/trace/1", "clock": "none"}\n{"input_tokens": 5, "output_tokens": 1}\n'
    trace = read_trace(write(tmp_path / "own.jsonl", above + own))
    assert trace.report.format == "dualplan" and trace.clock == "none" and trace.requests == 1


def test_one_line(tmp_path):
    assert read_trace(write(tmp_path / "t.jsonl", GOOD.rstrip())).requests == 1


@pytest.mark.parametrize(
    ("bad", "what", "reason"),
    [
        (b'{"timestamp": 0, "input_len\n', "is not JSON", "not JSON"),
        (b"plain words\n", "is not JSON", "not JSON"),
        (b'{"timestamp": 0, "input_length": "many", "output_length": 7}\n', "expected `int`", "wrong type"),
        (b'{"timestamp": 0, "input_length": 6.5, "output_length": 7}\n', "expected `int`", "wrong type"),
        (b'{"timestamp": 0, "input_length": 99999999999999999999, "output_length": 7}\n', "2147483647", "wrong type"),
        (
            b'{"start_time_s": 0, "input_tokens": 5, "output_tokens": 7}\n',
            "`input_length`: another format",
            "field mis",
        ),
        (b'{"timestamp": 0, "input_length": 5\x00, "output_length": 7}\n', "contains NUL bytes", "NUL bytes"),
        (b"[1, 2]\n", "expected `object`", "wrong type"),
    ],
)
def test_bad_json_line(tmp_path, bad, what, reason):
    path = write(tmp_path / "t.jsonl", GOOD * 3 + bad + GOOD * 2)
    with refused(f"{path}:4: ") as caught:
        read_trace(path)
    assert what in str(caught.value) and "--lenient" in str(caught.value)
    report = read_trace(path, LENIENT).report
    assert (report.rows_read, report.rows_used) == (6, 5)
    (name,) = report.dropped
    assert name.startswith(reason) and report.dropped[name] == 1


def test_cut_off_last_line(tmp_path):
    path = write(tmp_path / "t.jsonl", GOOD * 3 + GOOD[:30])
    with refused(f"{path}:4: the last line is cut off"):
        read_trace(path)
    assert read_trace(path, LENIENT).report.dropped == {"cut off": 1}


def test_all_problems_at_once(tmp_path):
    path = write(tmp_path / "t.jsonl", GOOD + b"x\n" * 30)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert len(caught.value.problems) == 21
    assert caught.value.problems[1].startswith(f"{path}:3: ")
    assert caught.value.problems[-1].startswith("and 10 more bad rows")


def test_numbers_as_text(tmp_path):
    row = b'{"timestamp": "1500", "input_length": "600", "output_length": 7.0, "hash_ids": [1]}\n'
    trace = read_trace(write(tmp_path / "t.jsonl", GOOD + row))
    assert trace.input_tokens.tolist() == [600, 600] and trace.arrival_s.tolist() == [0, 1.5]
    assert trace.report.notes == ("numbers written as text or as whole decimals were taken as numbers",)


def test_hashes_beyond_64_bits_and_without_sign(tmp_path):
    ids = [2**64 - 1, 2**63, 5]
    rows = [{"timestamp": i, "input_length": 1536, "output_length": 1, "hash_ids": ids} for i in range(2)]
    rows.append({"timestamp": 9, "input_length": 1536, "output_length": 1, "hash_ids": [2**64 - 1, 6, 5]})
    trace = read_trace(write(tmp_path / "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()))
    assert trace.hit_blocks.tolist() == [0, 3, 1]


def test_times_that_go_back(tmp_path):
    late, early = GOOD.replace(b'p": 0', b'p": 5000'), GOOD.replace(b'p": 0', b'p": 1000').replace(b"600", b"601")
    trace = read_trace(write(tmp_path / "t.jsonl", late + early))
    assert trace.input_tokens.tolist() == [601, 600] and trace.hit_blocks.tolist() == [0, 2]
    assert trace.report.notes == ("the time went back 1 times; requests were sorted by time",)


def test_failed_calls(tmp_path):
    rows = [(0, 0), (0, 5), (-1, -1), (9, -1), (9, 0)]
    lines = b"".join(b'{"timestamp": 0, "input_length": %d, "output_length": %d}\n' % row for row in rows)
    trace = read_trace(write(tmp_path / "t.jsonl", GOOD + lines))
    assert trace.report.dropped == {
        "negative input tokens (failed call)": 1,
        "negative output tokens (failed call)": 1,
        "zero input tokens (failed call)": 2,
    }
    assert trace.input_tokens.tolist() == [600, 9]


@pytest.mark.parametrize("value", [b"1e300", b"-1e300", b"1e18", b"-1e18", b"1" * 30, b'"nan"', b'"inf"', b'"-inf"'])
@pytest.mark.parametrize("field", [b"timestamp", b"delay"])
def test_impossible_times(tmp_path, field, value):
    bad = b'{"%s": %s, "input_length": 5, "output_length": 7}\n' % (field, value)
    path = write(tmp_path / "t.jsonl", GOOD + bad)
    with refused(f"{path}:2: the time at `{field.decode()}` is beyond 1e+11 s"):
        read_trace(path)
    assert read_trace(path, LENIENT).report.dropped == {"wrong type or out of range": 1}


def test_times_possible_in_another_unit(tmp_path):
    row = GOOD.replace(b'p": 0', b'p": 1700000000000000000')
    path = write(tmp_path / "t.jsonl", row)
    with refused(f"{path}:1: the time at `timestamp` is beyond"):
        read_trace(path)
    assert read_trace(path, ReadOptions(time_unit="ns")).start_s == 1.7e9


@pytest.mark.parametrize("value", [b"1e300", b"-1e18", b"2147483648", b"-2147483648", b"1.5", b"null", b"true", b"[]"])
@pytest.mark.parametrize("field", [b"input_length", b"output_length"])
def test_impossible_lengths(tmp_path, field, value):
    other = b"output_length" if field == b"input_length" else b"input_length"
    path = write(tmp_path / "t.jsonl", GOOD + b'{"timestamp": 0, "%s": 5, "%s": %s}\n' % (other, field, value))
    with refused(f"{path}:2: expected `int`"):
        read_trace(path)


@pytest.mark.parametrize(
    "value", [b"[1.5]", b"[1e300]", b"[null]", b"[[1]]", b"[1,[2]]", b'"x"', b"[true]", b"{}", b"3", b"345"]
)
def test_impossible_block_ids(tmp_path, value):
    bad = b'{"timestamp": 0, "input_length": 5, "output_length": 7, "hash_ids": %s}\n' % value
    path = write(tmp_path / "t.jsonl", GOOD + bad)
    with refused(f"{path}:2: expected "):
        read_trace(path)


def test_negative_waits_count_as_none(tmp_path):
    row = GOOD.replace(b"{", b'{"session_id": 1, "delay": %d, ')
    trace = read_trace(write(tmp_path / "t.jsonl", row % -3 + row % 4000))
    assert trace.think_time_s.tolist() == [0, 4]
    assert "1 negative waits were taken as none" in trace.report.notes


def test_far_apart_times_take_no_memory(tmp_path):
    rows = GOOD + GOOD.replace(b'p": 0', b'p": 100000000000000')
    arrivals = summarise(read_trace(write(tmp_path / "t.jsonl", rows))).arrivals
    assert arrivals.duration_s == 1e11 and arrivals.peak_requests_per_s == 1 / 60


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 2_000_000,
        b"x" * 2_000_000 + b"\n",
        b"x" * 200_000 + b"\n1\n",
        b'"' * 300_000,
        b'"a,b\n' + b"y" * 300_000,
        b"," * 200_000 + b"\n",
        b"x",
        b"{",
        b"[",
        b"{" * 100_000,
        b"a\x1c\x85b,c\n1,2\n",
        b"\n\n,\n",
    ],
    ids=range(12),
)
def test_junk(tmp_path, data):
    path = write(tmp_path / "t.jsonl", data)
    with refused(f"{path}") as caught:
        read_trace(path)
    assert len(str(caught.value)) < 1000 and len(caught.value.problems) == 1


DEEP = b"[" * 100_000 + b"]" * 100_000
CLAUDE = (
    b'{"type":"assistant","sessionId":"a","message":{"role":"assistant","usage":{"input_tokens":5},"content":%s}}\n'
)
AGENT = b'{"input": %s, "output": "y"}\n'
WEKA = b'{"id": "x", "block_size": 64, "requests": [%s]}\n'


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (GOOD * 2 + GOOD.replace(b"{", b'{"more": %s, ' % DEEP) + GOOD, ":3"),
        (GOOD.replace(b"{", b'{"more": %s, ' % DEEP) + GOOD, ":1"),
        (CLAUDE % b'"hi"' + CLAUDE % DEEP, ":2"),
        (AGENT % b'"x"' + AGENT % DEEP, ":2"),
        (WEKA % b"" + WEKA % (b'{"requests": [' * 20_000 + b"]}" * 20_000), ":2"),
        (DEEP, ""),
        (b'{\n"requests": ' + DEEP + b"\n}", ""),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, ""),
    ],
    ids=range(8),
)
def test_nested_too_deeply(tmp_path, data, line):
    path = write(tmp_path / "t.jsonl", data)
    with refused(f"{path}{line}: ") as caught:
        read_trace(path, ReadOptions(chars_per_token=4))
    assert "nested too deeply" in str(caught.value)


def test_content_that_is_no_text(tmp_path):
    path = write(tmp_path / "t.jsonl", CLAUDE % b'"hi"' + CLAUDE % b'"\xff"')
    with refused(f"{path}:2: the content cannot be read"):
        read_trace(path, ReadOptions(chars_per_token=4))
    assert read_trace(path).requests == 2  # its token counts are all that is needed


def test_nested_messages(tmp_path):
    path = write(tmp_path / "t.jsonl", AGENT % b'"x"' + AGENT % (b"[" * 900 + b'"12345678"' + b"]" * 900))
    assert read_trace(path, ReadOptions(chars_per_token=4)).input_tokens.tolist() == [1, 2]


def test_control_characters_are_shown(tmp_path):
    row = GOOD.replace(b"{", b'{"model": "m\\u001b[31m\\u0007", ')
    trace = read_trace(write(tmp_path / "t.jsonl", row))
    assert trace.models == (r"m\x1b[31m\x07",)
    path = write(tmp_path / "e\x1b\x07.jsonl", GOOD + b"x\n")
    with refused(r"e\x1b\x07.jsonl:2: is not JSON"):
        read_trace(path)
    assert workload_of_trace(trace, "a\x1bb").name == r"a\x1bb"


# ---------------------------------------------------------------- CSV


@pytest.mark.parametrize(
    ("bad", "what", "reason"),
    [
        (b"yesterday,1,2\n", "TIMESTAMP is not what it should be", "wrong type or out of range"),
        (b"2023-11-16 18:17:04,x,2\n", "ContextTokens is not what it should be", "wrong type or out of range"),
        (b"2023-11-16 18:17:04,,2\n", "ContextTokens is not what it should be", "wrong type or out of range"),
        (b"2023-11-16 18:17:04,99999999999999999999,2\n", "ContextTokens is not", "wrong type or out of range"),
        (b"2023-11-16 18:17:04,1\n", "too few columns", "field missing"),
        (b"2023-11-16 18:17:04,1,2,3\n", "too many columns", "too many columns"),
        (b"2023-11-16 18:17:04,1\x00,2\n", "contains NUL bytes", "NUL bytes"),
    ],
)
@pytest.mark.parametrize("comment", [b"", b"# first\n# second\n"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_bad_csv_row(tmp_path, bad, what, reason, comment, end):
    path = write(tmp_path / "t.csv", (comment + AZURE + ROW + bad + ROW).replace(b"\n", end))
    with refused(f"{path}:{comment.count(b'#') + 3}: {what}"):
        read_trace(path)
    report = read_trace(path, LENIENT).report
    assert (report.rows_read, report.rows_used, report.dropped) == (3, 2, {reason: 1})
    assert report.notes == ()


def test_many_bad_csv_rows(tmp_path):
    path = write(tmp_path / "t.csv", AZURE + ROW + b"x,1,2\n" * 50)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert len(caught.value.problems) == 21 and "and 30 more bad rows" in caught.value.problems[-1]
    assert read_trace(path, LENIENT).report.dropped == {"wrong type or out of range": 50}


def test_quoted_numbers_and_mixed_line_ends(tmp_path):
    trace = read_trace(write(tmp_path / "t.csv", AZURE + b'2023-11-16 18:17:03,"4808","10"\r\n' + ROW))
    assert trace.input_tokens.tolist() == [4808, 4808]


VIDUR = b"arrived_at,num_prefill_tokens,num_decode_tokens\n"


@pytest.mark.parametrize("value", [b"1e300", b"-1e300", b"1e18", b"nan", b"inf", b"-inf", b'"1e300"'])
def test_impossible_times_in_csv(tmp_path, value):
    path = write(tmp_path / "t.csv", b"# note\n" + VIDUR + b"1,5,5\n\n" + value + b",5,5\n2,5,5\n")
    with refused(f"{path}:5: arrived_at is beyond 1e+11 s"):
        read_trace(path)
    report = read_trace(path, LENIENT).report
    assert (report.rows_read, report.rows_used) == (3, 2)
    assert report.dropped == {"wrong type or out of range": 1}


@pytest.mark.parametrize("date", [b"infinity", b"-infinity", b"294247-01-01", b"10000-01-01", b"9999-12-31"])
def test_impossible_dates(tmp_path, date):
    path = write(tmp_path / "t.csv", AZURE + ROW + date + b",5,5\n")
    with refused(f"{path}:3: TIMESTAMP is beyond 1e+11 s"):
        read_trace(path)


def test_many_impossible_times_in_csv(tmp_path):
    path = write(tmp_path / "t.csv", VIDUR + b"1,5,5\n" + b"inf,5,5\n" * 50)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert len(caught.value.problems) == 21 and "and 30 more bad rows" in caught.value.problems[-1]
    assert read_trace(path, LENIENT).report.dropped == {"wrong type or out of range": 50}


@pytest.mark.parametrize("name", ["t[1].csv", "t*.csv", "t.csv.gz", "t.parquet", "t\udcff.csv", "t'.csv"])
def test_names_that_duckdb_takes_for_something_else(tmp_path, name):
    write(tmp_path / "t1.csv", b"something else")
    assert read_trace(write(tmp_path / name, VIDUR + b"1,5,5\n")).input_tokens.tolist() == [5]


def test_columns_that_differ_in_case_only(tmp_path):
    with refused("has two columns of one name"):
        read_trace(write(tmp_path / "t.csv", b"ARRIVED_AT," + VIDUR + b"1,1,5,5\n"))


# ---------------------------------------------------------------- files


def test_no_such_file(tmp_path):
    write(tmp_path / "conversation.jsonl", GOOD)
    with refused("no such file or folder (did you mean conversation.jsonl?)"):
        read_trace(str(tmp_path / "conversations.jsonl"))
    with refused("no file matches"):
        read_trace(str(tmp_path / "*.csv"))


def test_bad_files_in_a_folder(tmp_path):
    good, empty, other = (str(tmp_path / f"{name}.jsonl") for name in "abc")
    write(tmp_path / "a.jsonl", GOOD)
    write(tmp_path / "b.jsonl", b"")
    write(tmp_path / "c.jsonl", b'{"start_time_s": 0, "input_tokens": 5, "output_tokens": 7}\n')
    with pytest.raises(InputError) as caught:
        read_trace(str(tmp_path))
    assert caught.value.problems[0] == f"{empty}: is empty"
    assert caught.value.problems[1].startswith(f"{other}: is otel, but {good} is mooncake")
    assert read_trace(str(tmp_path), LENIENT).report.dropped == {"file unreadable": 2}
    with refused('--trace-format: there is no format "x"'):
        read_trace(str(tmp_path), ReadOptions(trace_format="x", lenient=True))


def test_lenient_keeps_what_came_before_the_break(tmp_path):
    path = write(tmp_path / "t.jsonl.gz", gzip.compress(GOOD * 200_000)[:-20])
    with refused("the compressed data end early"):
        read_trace(path)
    report = read_trace(path, LENIENT).report
    assert 0 < report.rows_used < 200_000
    assert report.dropped["rest of a file unreadable"] == 1


def test_folder(tmp_path):
    (tmp_path / "a").mkdir()
    with refused("the folder has no trace in it"):
        read_trace(str(tmp_path / "a"))
    write(tmp_path / "a" / "x.jsonl", GOOD)
    write(tmp_path / "a" / "README.md", b"not a trace")
    write(tmp_path / "a" / ".hidden.jsonl", b"not a trace")
    assert read_trace(str(tmp_path)).report.files == (str(tmp_path / "a" / "x.jsonl"),)


def test_unreadable_file_in_folder(tmp_path, monkeypatch):
    write(tmp_path / "a.jsonl", GOOD)
    bad = write(tmp_path / "b.jsonl", GOOD)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != bad)
    with refused(f"{bad}: cannot be read (permission denied)"):
        read_trace(str(tmp_path))
    assert read_trace(str(tmp_path), LENIENT).report.dropped == {"file unreadable": 1}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (bytes(range(256)) * 40, "is binary data"),
        (b"PK\x03\x04" + b"x" * 100, "is a zip archive"),
        (b"PAR1" + b"x" * 100, "is a Parquet file"),
        (b"\x1f\x8b" + b"x" * 100, "cannot be read"),
        (gzip.compress(GOOD * 1000)[:-30], "the compressed data end early"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 100, "the zstd data are damaged"),
        ("\ud800".encode("utf-16", "surrogatepass") + b"\x00\xd8x", "is not valid UTF-16"),
    ],
)
def test_not_a_text_trace(tmp_path, data, what):
    path = write(tmp_path / "t.jsonl", data)
    with refused(what):
        read_trace(path)


def test_overlong_line(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "LINE_LIMIT", 1 << 20)
    monkeypatch.setattr(source, "CHUNK", 1 << 18)
    head = write(tmp_path / "a.jsonl", b'{"hash_ids": [' + b"1," * (1 << 20))
    with refused(f"{head}:1: the line is longer than 1 MiB"):
        read_trace(head)
    later = write(tmp_path / "b.jsonl", GOOD * 2000 + b'{"hash_ids": [' + b"1," * (1 << 20))
    with refused(f"{later}:2001: the line is longer than 1 MiB"):
        read_trace(later)


def test_gzip_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "EXPANSION_FREE", 1 << 20)
    path = write(tmp_path / "t.jsonl.gz", gzip.compress(GOOD * 100_000))
    with refused("expands to more than 200 times its size and 1 GiB"):
        read_trace(path)


@pytest.mark.parametrize(("name", "data"), [("t.jsonl", GOOD), ("t.csv", VIDUR + b"1,600,5\n")])
def test_pipe(tmp_path, name, data):
    path = tmp_path / name
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    trace = read_trace(str(path))
    writer.join()
    assert trace.input_tokens.tolist() == [600]
    assert inputs_sha256(trace) is None  # a second reading would wait for ever


def test_pipe_in_a_folder_is_passed_over(tmp_path):
    write(tmp_path / "a.jsonl", GOOD)
    os.mkfifo(tmp_path / "b.jsonl")
    assert read_trace(str(tmp_path)).report.files == (str(tmp_path / "a.jsonl"),)


def test_names_without_a_file(tmp_path):
    (tmp_path / "gone.jsonl").symlink_to("nothing")
    with refused("gone.jsonl: is a symbolic link to nothing"):
        read_trace(str(tmp_path / "gone.jsonl"))
    with refused("gone.jsonl: is a symbolic link to nothing"):
        read_trace(str(tmp_path))
    with refused("cannot be read: File name too long"):
        read_trace("a" * 300)
    with refused("FILE: an empty name"):
        read_trace("")
    with refused("/dev/null: is empty"):
        read_trace("/dev/null")


def test_stdin():
    assert read_trace("-", stdin=io.BytesIO(GOOD * 3)).requests == 3
    assert read_trace("-", stdin=io.BytesIO(AZURE + ROW)).requests == 1
    with refused("-:4: the last line is cut off"):
        read_trace("-", stdin=io.BytesIO(GOOD * 3 + GOOD[:40]))
    with refused("-: is empty"):
        read_trace("-", stdin=io.BytesIO(b""))
    with refused("there is no standard input"):
        read_trace("-")


def test_document_faults(tmp_path):
    path = write(tmp_path / "t.json", b'{"id": "x", "block_size": 64, "requests": [{"t": 0, "in": 5}]}')
    with refused(f"{path}:1: requests[0]: no output tokens"):
        read_trace(path)
    path = write(tmp_path / "u.json", b'{"id": "x", "block_size": "large", "requests": []}')
    with refused("expected `int`, got `str` at `block_size`"):
        read_trace(path)
    path = write(tmp_path / "v.json", b'{\n"id": "x",\n"requests": [\n')
    with refused("is neither JSON lines nor one JSON document"):
        read_trace(path)


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (b'{"id": "x", "block_size": 0, "requests": [{"t": 0, "in": 5, "out": 5}]}', "`int` >= 1 at `block_size`"),
        (b'{"id": "x", "block_size": 64, "requests": [{"t": 1e300, "in": 5, "out": 5}]}', "the time 1e+300 is beyond"),
        (b'{"id": "x", "block_size": 64, "requests": [{"t": "nan", "in": 5, "out": 5}]}', "the time nan is beyond"),
        (
            b'{"id": "x", "block_size": 64, "requests": [{"t": 0, "think_time": -1e18, "in": 5, "out": 5}]}',
            "the time -1e+18 is beyond",
        ),
        (
            b'{"metrics": {"token_usages": [{"prompt_tokens": 5, "completion_tokens": 5}],'
            b' "costs": [{"timestamp": 1e300}]}}',
            "the time 1e+300 is beyond",
        ),
        (
            b'{"metrics": {"token_usages": [{"prompt_tokens": 5, "completion_tokens": 5, "cache_read_tokens": 1%s}]}}'
            % (b"0" * 30),
            "cached tokens are 1000",
        ),
        (
            b'{"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 9,'
            b' "output_tokens": 1, "cached_input_tokens": 99999999999}}}}',
            "cached tokens are 99999999999, beyond any prompt",
        ),
    ],
)
def test_impossible_values_in_documents(tmp_path, document, what):
    path = write(tmp_path / "t.json", document)
    with refused(f"{path}:1: ") as caught:
        read_trace(path)
    assert what in str(caught.value)


def test_progress_counts_bytes(tmp_path):
    path = tmp_path / "t.jsonl"
    write(path, GOOD * 5000)
    seen = []
    read_trace(str(path), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
