"""JSON documents from records: a table of keys, and of what each of them is in the record."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec

from dualplan.messages import Message


def pick(record: Any, table: str) -> dict[str, Any]:
    """Values of a record under the keys of a table, in its order.

    A word of the table is ``key``, an attribute of that name, or ``key=path.to.attribute``. Tuples become lists,
    records mappings of their fields, messages English sentences, and numbers of other kinds plain ones.
    """
    keys = (word.partition("=") for word in table.split())
    return {key: _plain(attrgetter(path or key)(record)) for key, _, path in keys}


def pick_or_none(record: Any, table: str) -> dict[str, Any] | None:
    """The same, None where there is no record."""
    return None if record is None else pick(record, table)


def pick_all(records: Iterable[Any], table: str) -> list[dict[str, Any]]:
    """The same of several records."""
    return [pick(record, table) for record in records]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Message):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return {field: _plain(getattr(value, field)) for field in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(child) for child in value]
    return value.tolist() if hasattr(value, "tolist") else float(value)
