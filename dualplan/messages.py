"""What the program says: codes with values between the layers, and their sentences in every language at the end.

``data/messages.json`` has a sentence a language for each code. Values stand in braces; what follows a colon says how a
number is written: ``B``, ``B/s``, ``s`` or ``ms`` with that unit (``s,2``: in two digits), ``%`` or ``.2g%`` as per
cent, ``sig`` in three significant digits, ``node|nodes`` counted, ``=is|are`` the word for one or for several, else
the formats of Python. Of a list ``,``, ``;`` and ``and`` say what stands between its members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal, get_args

import msgspec

from dualplan.units import counted, show, significant

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

_UNITS = ("B", "B/s", "s")
_BETWEEN = {",": "list.comma", ";": "list.semicolon", "and": "list.comma", "lines": "list.line"}


class Message(msgspec.Struct, frozen=True):
    """A code of the catalogue and its values by name: numbers in SI units, names, other messages, tuples of these.

    As a string it is the English sentence.
    """

    code: str
    values: tuple[tuple[str, Any], ...] = ()

    def value(self, name: str) -> Any:
        """A value by its name."""
        return dict(self.values)[name]

    def __str__(self) -> str:
        return text(self)


def message(code: str, /, **values: Any) -> Message:
    """A message: ``message("reason.ttft", ttft=2.5, limit=2.0)``."""
    return Message(code, tuple(values.items()))


def text(value: Any, language: Language = "en") -> str:
    """A message in words; names and numbers beside messages stay as they are."""
    return "".join(map(str, parts(value, language)))


def parts(value: Any, language: Language = "en", name: Callable[[str], Any] = str) -> Iterator[Any]:
    """What a message consists of in one language, in a row: its own words and numbers as text, anything else as it is.

    ``name`` makes something of each text that the program does not say itself, such as names in files.
    """
    if isinstance(value, Message):
        values = dict(value.values)
        for literal, key, form in _template(value.code, language):
            if literal:
                yield literal
            if key is not None:
                yield from _value(values[key], form, language, name)
    elif isinstance(value, tuple):
        for part in value:
            yield from parts(part, language, name)
    else:
        yield name(value) if isinstance(value, str) else value


def _value(value: Any, form: str, language: Language, name: Callable[[str], Any]) -> Iterator[Any]:
    one, _, many = form.partition("|")
    if many and one.startswith("="):
        number = len(value) if isinstance(value, tuple) else value
        yield one[1:] if number == 1 else many
    elif many:
        yield counted(value, one, many)
    elif isinstance(value, tuple) and form:
        for number, part in enumerate(value):
            if number:
                yield sentence("list.and" if form == "and" and number == len(value) - 1 else _BETWEEN[form], language)
            yield from parts(part, language, name)
    elif form:
        yield _number(value, form)
    else:
        yield from parts(value, language, name)


def _number(value: Any, form: str) -> str:
    unit, _, digits = form.partition(",")
    if unit in _UNITS:
        return show(value, unit, int(digits or 3))
    if form == "ms":
        return f"{value * 1e3:.3g} ms"
    if form == "sig":
        return significant(value)
    if form.endswith("%"):
        return f"{format(100 * value, form[:-1] or '.0f')} %"
    return format(value, form)


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Code -> language -> sentence."""
    from importlib.resources import files

    found: dict[str, dict[str, str]] = msgspec.json.decode((files("dualplan.data") / "messages.json").read_bytes())
    return found


def sentence(code: str, language: Language) -> str:
    """The sentence of a code as the catalogue has it."""
    return catalogue()[code][language]


@cache
def _template(code: str, language: Language) -> tuple[tuple[str, str | None, str], ...]:
    from string import Formatter

    return tuple((literal, key, form or "") for literal, key, form, _ in Formatter().parse(sentence(code, language)))
