"""JSON documents from records: a table of keys, and of what each of them is in the record."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec


def pick(record: Any, table: str) -> dict[str, Any]:
    """Values of a record under the keys of a table, in its order.

    A word of the table is ``key``, an attribute of that name, or ``key=path.to.attribute``. Tuples become lists,
    records mappings of their fields, and numbers of NumPy plain ones.
    """
    found = {}
    for word in table.split():
        key, _, path = word.partition("=")
        value = msgspec.to_builtins(attrgetter(path or key)(record), enc_hook=_plain)
        found[key] = list(value) if isinstance(value, tuple) else value
    return found


def pick_or_none(record: Any, table: str) -> dict[str, Any] | None:
    """The same, None where there is no record."""
    return None if record is None else pick(record, table)


def pick_all(records: Iterable[Any], table: str) -> list[dict[str, Any]]:
    """The same of several records."""
    return [pick(record, table) for record in records]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else float(value)
