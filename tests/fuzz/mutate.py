"""Seeded mutations of a corpus: the search where atheris is not installed, and the repeatable part of the test."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

MOST_BYTES = 20_000
"""Longer inputs are cut: they make the search slow and show little more."""

_WORDS = r"""
-1 0 1e308 -1e308 1e-320 5e-324 1.7976931348623157e308 nan inf NaN Infinity 0x10 1_000 2**64 18446744073709551616
9223372036854775807 -9223372036854775808 null true {} [] "" [[[[[[[[ <<: --- 400Gb/s 1h / .. = , " ١ !!x &a *a
"""
_NASTY = (
    *(word.encode() for word in _WORDS.split()),
    *(character.encode() for character in "\u0661\u2028\U0001f600\x1b\0"),
    *(b"", b"\xef\xbb\xbf", b"\xff", b"\r\n", b"\n\n", b"9" * 30, b"4" * 5000),
)
"""What tends to break readers: odd numbers, syntax of YAML and JSON, bytes that are no text."""


def mutations(corpus: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """``count`` inputs, each one to four changes away from one of the corpus. Same corpus and seed, same inputs."""
    chance = random.Random(seed)
    for _ in range(count):
        data = chance.choice(corpus)
        for _ in range(chance.choice((1, 1, 2, 4))):
            data = _changed(data, corpus, chance)
        yield data[:MOST_BYTES]


def _changed(data: bytes, corpus: Sequence[bytes], chance: random.Random) -> bytes:
    start = chance.randint(0, len(data))
    end = min(len(data), start + int(chance.expovariate(0.15)))
    kind = chance.randrange(9)
    if kind == 0:  # a few bytes lost
        return data[:start] + data[end:]
    if kind == 1:  # cut off
        return data[:start]
    if kind == 2 and data:  # a bit flipped
        place = min(start, len(data) - 1)
        return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
    if kind == 3:  # repeated
        return data[:end] + data[start:end] * chance.choice((1, 2, 50)) + data[end:]
    if kind == 4:  # the rest of another file
        other = chance.choice(corpus)
        return data[:start] + other[chance.randint(0, len(other)) :]
    if kind == 5:  # a number or a word replaced
        return _with_word(data, chance.choice(_NASTY), chance)
    if kind == 6:  # a word of another place
        return _with_word(data, _word(data, chance), chance)
    if kind == 7:  # lines swapped, lost or doubled
        lines = data.split(b"\n")
        first, second = chance.randrange(len(lines)), chance.randrange(len(lines))
        lines[first : first + 1] = chance.choice(([], [lines[second]], [lines[first], lines[second]]))
        return b"\n".join(lines)
    return data[:start] + chance.choice(_NASTY) + data[start:]


def _span(data: bytes, chance: random.Random) -> tuple[int, int]:
    """Where a run of letters, digits, points and signs lies."""
    start = end = chance.randint(0, len(data))
    while start > 0 and _in_word(data[start - 1]):
        start -= 1
    while end < len(data) and _in_word(data[end]):
        end += 1
    return start, end


def _in_word(byte: int) -> bool:
    return chr(byte).isalnum() or byte in b"._+-"


def _word(data: bytes, chance: random.Random) -> bytes:
    start, end = _span(data, chance)
    return data[start:end]


def _with_word(data: bytes, word: bytes, chance: random.Random) -> bytes:
    start, end = _span(data, chance)
    return data[:start] + word + data[end:]
