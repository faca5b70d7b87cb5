"""Properties of traces, each against a second, plain way of computing the same."""

import io
import json
import tempfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dualplan.trace.blocks import dense, find_size, gather
from dualplan.trace.build import build_trace
from dualplan.trace.columns import id_column, raw_id_column
from dualplan.trace.convert import lines, write
from dualplan.trace.hits import context_tokens, hit_rates, session_context
from dualplan.trace.mix import turn_mix
from dualplan.trace.read import read_trace
from dualplan.trace.reuse import _prefix_depth, depths, previous, reuse_curve

SIZE = 16


@st.composite
def prompts(draw):
    """Requests of a few conversations that share prefixes, or of any blocks at all."""
    if draw(st.booleans()):
        return draw(st.lists(st.lists(st.integers(0, 12), max_size=6), min_size=1, max_size=12))
    trunk = list(range(draw(st.integers(1, 4))))
    branches: list[list[int]] = [trunk]
    requests = []
    for number in range(draw(st.integers(1, 12))):
        base = draw(st.sampled_from(branches))
        fresh = [100 + 10 * number + i for i in range(draw(st.integers(0, 4)))]
        branch = base[: draw(st.integers(0, len(base)))] + fresh
        branches.append(branch)
        requests.append(branch)
    return requests


def trace_of(ids, **more):
    lengths = [max(1, SIZE * len(blocks) - (number % SIZE)) for number, blocks in enumerate(ids)]
    return build_trace(
        input_tokens=lengths,
        output_tokens=[1] * len(ids),
        arrival_s=list(range(len(ids))),
        block_ids=ids,
        block_size=SIZE,
        **more,
    )


@given(prompts())
def test_leading_hits(ids):
    trace = trace_of(ids)
    seen, expected = set(), []
    for blocks in ids:
        k = 0
        while k < len(blocks) and blocks[k] in seen:
            k += 1
        seen.update(blocks)
        expected.append(k)
    if any(ids):
        assert trace.hit_blocks.tolist() == expected


def lru_hit_blocks(ids, leading, capacity):
    """Hit blocks of a cache of so many blocks: blocks are accessed one by one, and count while all before them hit."""
    cache, hits = OrderedDict(), 0
    for blocks, limit in zip(ids, leading, strict=True):
        good = True
        for position, block in enumerate(blocks):
            good = good and block in cache and position < limit
            hits += good
            cache.pop(block, None)
            cache[block] = None
            while len(cache) > capacity:
                cache.popitem(last=False)
    return hits


@given(prompts())
def test_curve_is_that_of_an_lru_cache(ids):
    trace = trace_of(ids)
    curve = reuse_curve(trace)
    if curve is None:
        assert not any(ids)
        return
    total = sum(map(len, ids))
    for point in curve.points:
        capacity = int(point.cache_tokens // SIZE)
        assert point.by_block == pytest.approx(lru_hit_blocks(ids, trace.hit_blocks, capacity) / total)
    rates = hit_rates(trace, "block_hashes")
    assert curve.points[-1].by_block == pytest.approx(rates.by_block)
    assert curve.points[-1].by_token == pytest.approx(rates.by_token)
    assert [point.by_token for point in curve.points] == sorted(point.by_token for point in curve.points)
    assert curve.working_set_tokens == SIZE * len({block for blocks in ids for block in blocks})


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=40))
def test_depths(accesses):
    item = np.array([entry[0] for entry in accesses], np.int64)
    weight = np.array([entry[1] for entry in accesses], np.int64)
    held, order, expected = {}, [], []
    for key, size in accesses:
        if key in held:
            place = order.index(key)
            expected.append(sum(held[other] for other in order[place:]))
            order.remove(key)
        else:
            expected.append(0)
        order.append(key)
        held[key] = size
    assert depths(weight, previous(item)).tolist() == expected


TURNS = st.lists(st.tuples(st.integers(-1, 3), st.integers(1, 300), st.integers(0, 60)), min_size=1, max_size=40)


@given(TURNS)
def test_session_context(turns):
    trace = build_trace(
        input_tokens=[turn[1] for turn in turns],
        output_tokens=[turn[2] for turn in turns],
        session=[turn[0] for turn in turns],
        arrival_s=list(range(len(turns))),
    )
    last, expected = {}, []
    for session, prompt, output in turns:
        before, both = last.get(session, (None, None)) if session >= 0 else (None, None)
        if before is None:
            expected.append(0)
        else:
            expected.append(both if prompt >= both else before if prompt >= before else 0)
        last[session] = (prompt, prompt + output)
    assert session_context(trace).tolist() == expected
    assert (session_context(trace) <= trace.input_tokens).all()


@given(TURNS, st.integers(1, 70))
def test_turn_mix_keeps_the_means(turns, classes):
    trace = build_trace(
        input_tokens=[turn[1] for turn in turns],
        output_tokens=[turn[2] for turn in turns],
        session=[turn[0] for turn in turns],
    )
    mix = turn_mix(trace, classes)
    context = context_tokens(trace, mix.accounting)
    assert len(mix.turns) == min(classes, len(turns))
    assert sum(turn.weight for turn in mix.turns) == pytest.approx(1)
    assert sum(turn.weight * turn.context for turn in mix.turns) == pytest.approx(context.mean())
    assert sum(turn.weight * turn.append for turn in mix.turns) == pytest.approx((trace.input_tokens - context).mean())
    assert sum(turn.weight * turn.generated for turn in mix.turns) == pytest.approx(trace.output_tokens.mean())
    assert [turn.context for turn in mix.turns] == sorted(turn.context for turn in mix.turns)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 5, -3, 2**62, -(2**63), 2**63 - 1])), max_size=60))
def test_dense_codes(pairs):
    scopes = np.array([pair[0] for pair in pairs], np.int64)
    ids = np.array([pair[1] for pair in pairs], np.int64)
    codes, distinct = dense(ids, scopes)
    numbered = {}
    for pair, code in zip(pairs, codes.tolist(), strict=True):
        assert 0 <= code < distinct
        assert numbered.setdefault(pair, code) == code
    assert len(set(numbered.values())) == len(numbered)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=10), st.randoms())
def test_gather(rows, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    flat = np.array([value for row in rows for value in row], np.int32)
    moved, result = gather(offsets, flat, np.array(order))
    assert [result[moved[i] : moved[i + 1]].tolist() for i in range(len(rows))] == [rows[i] for i in order]


@given(
    st.sampled_from([16, 64, 512]), st.sampled_from(["ceil", "floor"]), st.lists(st.integers(2000, 9000), min_size=8)
)
def test_block_size_is_found(size, rounding, lengths):
    tokens = np.array(lengths, np.int64)
    counts = tokens // size if rounding == "floor" else -(-tokens // size)
    found = find_size(tokens, counts, None, None)
    expected = tokens // found[0] if found[1] == "floor" else -(-tokens // found[0])
    assert found[2] == 1.0 and (expected == counts).all()


@settings(max_examples=40)
@given(prompts(), TURNS)
def test_own_format_round_trip(ids, turns):
    n = min(len(ids), len(turns))
    trace = build_trace(
        input_tokens=[turn[1] for turn in turns[:n]],
        output_tokens=[turn[2] for turn in turns[:n]],
        session=[turn[0] for turn in turns[:n]],
        arrival_s=[number / 7 for number in range(n)],
        think_time_s=[np.nan if number % 2 else number / 3 for number in range(n)],
        cached_tokens=[-1 if number % 3 else turns[number][1] // 2 for number in range(n)],
        block_ids=ids[:n],
        block_size=SIZE,
    )
    again = read_trace("-", stdin=io.BytesIO(b"".join(lines(trace, "dualplan"))))
    for name in ("input_tokens", "output_tokens", "cached_tokens", "turn", "hit_blocks"):
        assert getattr(again, name).tolist() == getattr(trace, name).tolist()
    np.testing.assert_array_equal(again.arrival_s, trace.arrival_s)
    np.testing.assert_array_equal(again.think_time_s, trace.think_time_s)
    assert (again.session < 0).tolist() == (trace.session < 0).tolist()
    pairs = set(zip(trace.session.tolist(), again.session.tolist(), strict=True))
    assert len(pairs) == len({pair[0] for pair in pairs}) == len({pair[1] for pair in pairs})


@settings(max_examples=20)
@given(TURNS, st.sampled_from(["", ".gz", ".zst"]), st.sampled_from(["otel", "burstgpt", "session-rows", "vidur"]))
def test_other_formats_keep_lengths(turns, suffix, form):
    trace = build_trace(
        input_tokens=[turn[1] for turn in turns],
        output_tokens=[turn[2] for turn in turns],
        session=[max(turn[0], 0) for turn in turns],
        arrival_s=[number * 0.25 for number in range(len(turns))],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.txt{suffix}"
        write(trace, form, path)
        again = read_trace(str(path))
        assert [entry.name for entry in Path(folder).iterdir()] == [path.name]
    assert again.report.format == form
    assert sorted(zip(again.input_tokens.tolist(), again.output_tokens.tolist(), strict=True)) == sorted(
        zip(trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    )
    if form != "vidur":
        assert len(set(again.session.tolist())) == len(set(trace.session.tolist()))
    if form != "session-rows":
        assert again.arrival_s.tolist() == trace.arrival_s.tolist()


@given(
    st.lists(st.lists(st.integers(-(2**64), 2**65) | st.integers(-3, 3), max_size=4), min_size=1, max_size=6),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", ":")]),
)
def test_block_ids_from_text(lists, separators):
    texts = [json.dumps(ids, separators=separators).encode() for ids in lists]
    found = raw_id_column(texts)
    plain = all(-(2**63) < value < 2**63 - 1 for ids in lists for value in ids)
    assert (found is not None) == plain
    if found is not None:
        counts, ids = id_column(lists)
        assert found[0].tolist() == counts.tolist() and found[1].tolist() == ids.tolist()


@given(st.lists(st.text('[]{},-0123 .e\t"n', max_size=6), min_size=1, max_size=4))
@example(["123", "[1,[2]]"])
@example(["[1,[2]]", "123"])
@example(["12", "[1]"])
def test_only_plain_lists_are_read_from_text(texts):
    try:
        values = [json.loads(text) if text else [] for text in texts]
    except ValueError:
        return  # the decoder has refused the line before
    found = raw_id_column([text.strip().encode() for text in texts])
    plain = all(isinstance(value, list) and all(type(item) is int for item in value) for value in values)
    if not plain:
        assert found is None
    elif found is not None:
        assert found[1].tolist() == [item for value in values for item in value]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(2**40, 2**40 + 5), min_size=1, max_size=40))
@example([2**40 + i * i % 6000 for i in range(9000)])
def test_codes_in_order_of_appearance(ids):
    numbers = {}
    expected = [numbers.setdefault(value, len(numbers)) for value in [*ids, 2**62, 2**62 + 2**61]]
    codes, distinct = dense(np.array([*ids, 2**62, 2**62 + 2**61], np.int64), np.zeros(1, np.int64))
    assert codes.tolist() == expected and distinct == len(numbers)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=20), st.sampled_from([1, 2**58]))
def test_prefix_depth_of_any_size(accesses, unit):
    accesses.sort(key=lambda access: access[0])
    request, depth = (np.array(column, np.int64) for column in zip(*accesses, strict=True))
    most, expected = {}, []
    for number, value in accesses:
        most[number] = max(most.get(number, 0), value)
        expected.append(most[number] * unit)
    assert _prefix_depth(depth * unit, request).tolist() == expected
