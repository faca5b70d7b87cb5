"""The file that a sweep appends its finished points to, and goes on from: one JSON record a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dualplan.cli.options import note
from dualplan.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dualplan.plan.sweep.table import Table

HASH = "inputs_sha256"


class Journal:
    """Finished points of a sweep on disk. ``hashes``: of the inputs of every point, by position."""

    def __init__(self, path: Path, hashes: Sequence[str], restart: bool) -> None:
        self.path, self.hashes = path, hashes
        self.where = f"-o {path}"
        self.file: Any = None
        self._refuse_if_locked()
        self.found = {} if restart else self._read()

    def _refuse_if_locked(self) -> None:
        """Raises InputError while another sweep appends to the file: each would put its own rows in place of all."""
        try:
            with self.path.open("rb+") as file:
                free = _lock(file)
        except OSError:
            return
        if not free:
            raise InputError(self.where, "another sweep is writing this file", "wait for it, or give another file")

    def _read(self) -> dict[str, dict[str, Any]]:
        """Rows of an earlier run by hash. Raises InputError where the file holds anything but points of this sweep."""
        try:
            raw = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise InputError(self.where, f"cannot be read: {error.strerror or error}") from None
        lines = raw.split(b"\n")
        if lines[-1]:
            note(f"{self.path}: the last line is torn, its point is evaluated again")
        known, found, again, foreign = set(self.hashes), {}, 0, 0
        for number, line in enumerate(lines[:-1], 1):
            try:
                row = msgspec.json.decode(line)
                key = row[HASH]
            except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
                what = f"line {number} is no point of a sweep"
                raise InputError(self.where, what, "give another file, or --restart to replace it") from None
            if key not in known:
                foreign += 1
            elif row.get("error") is None:
                found[key] = row
            else:
                again += 1
        if foreign:
            what = f"holds {foreign:,} points of other inputs"
            raise InputError(self.where, what, "give another file, or --restart to replace it")
        if again:
            note(f"{self.path}: {again:,} points that failed are evaluated again")
        return found

    def begin(self, table: Table) -> NDArray[np.int64]:
        """Take the points that are there into the table, leave only them in the file; the positions that are left."""
        import numpy as np

        from dualplan.plan.sweep.points import Block

        have = [position for position, key in enumerate(self.hashes) if key in self.found]
        if have:
            names = dict.fromkeys(name for position in have for name in flat_names(self.found[self.hashes[position]]))
            columns = {
                name: [at(self.found[self.hashes[position]], name) for position in have]
                for name in names
                if name not in (*table.keys, HASH)
            }
            table.put(Block(positions=np.array(have), columns=columns))
            note(f"{self.path}: {len(have):,} of {len(self.hashes):,} points are there already")
        self._rewrite(table, have)
        try:
            self.file = self.path.open("ab")
        except OSError as error:
            raise InputError(self.where, f"cannot be written: {error.strerror or error}") from None
        _lock(self.file)
        return np.flatnonzero(~table.done)

    def append(self, table: Table, positions: NDArray[np.int64]) -> None:
        """Write finished points down. Raises InputError where the disk is full; what was written before stays."""
        try:
            self.file.write(self._lines(table, positions))
            self.file.flush()
        except OSError as error:
            done = int(table.done.sum())
            what = f"cannot be written: {error.strerror or error}; of {done:,} finished points it keeps what fits"
            raise InputError(self.where, what, "make room and run the same command again") from None

    def finish(self, table: Table) -> None:
        """The file in the order of the points, once all are there."""
        import numpy as np

        self.close()
        self._rewrite(table, np.flatnonzero(table.done))

    def close(self) -> None:
        """Let go of the file; what could not be written was said already."""
        try:
            if self.file is not None:
                self.file.close()
        except OSError:
            pass
        self.file = None

    def _rewrite(self, table: Table, positions: Sequence[int] | NDArray[np.int64]) -> None:
        from dualplan.spec.load import written

        with written(self.path, self.where) as file:
            file.write(self._lines(table, positions))

    def _lines(self, table: Table, positions: Sequence[int] | NDArray[np.int64]) -> bytes:
        from dualplan.report.sweep import rows

        encode = msgspec.json.encode
        made = zip(positions, rows(table, positions), strict=True)
        return b"".join(encode({HASH: self.hashes[position], **row}) + b"\n" for position, row in made)


def _lock(file: Any) -> bool:
    """Take the lock of a file open for writing, kept until it is closed; False while another process has it.

    Always True where the system or the file system has no locks. It is not that of child processes, which may live on.
    """
    try:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def flat_names(row: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of the values of a nested record."""
    found: list[str] = []
    for key, value in row.items():
        found += flat_names(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return found


def at(row: Any, name: str) -> Any:
    """A value of a nested record by its dotted name; None where it is not."""
    for key in name.split("."):
        row = row.get(key) if isinstance(row, dict) else None
    return row
