"""Bad input: what is said about it, with file and line, and what --lenient keeps."""

import gzip
import io
import json
import os
import re

import pytest

from dualplan.errors import InputError
from dualplan.trace import source
from dualplan.trace.read import read_trace
from dualplan.trace.record import ReadOptions

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
    rows = [(0, 0), (-1, -1), (9, -1), (9, 0)]
    lines = b"".join(b'{"timestamp": 0, "input_length": %d, "output_length": %d}\n' % row for row in rows)
    trace = read_trace(write(tmp_path / "t.jsonl", GOOD + lines))
    assert trace.report.dropped == {"negative output tokens": 1, "no input tokens (failed call)": 2}
    assert trace.input_tokens.tolist() == [600, 9]


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


def test_progress_counts_bytes(tmp_path):
    path = tmp_path / "t.jsonl"
    write(path, GOOD * 5000)
    seen = []
    read_trace(str(path), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
