"""Bytes of a trace from a file, a folder, a glob or standard input: decompressed, as UTF-8, line by line.

Limits, all of them stated in the errors: a line is at most 64 MiB, a JSON document 512 MiB, and a compressed file may
expand to 1 GiB or to 200 times its size, whichever is more (a harmless trace stays under 100 times).
"""

from __future__ import annotations

import codecs
import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from dualplan.errors import InputError, did_you_mean
from dualplan.trace.record import Progress

LINE_LIMIT = 64 << 20
DOCUMENT_LIMIT = 512 << 20
EXPANSION_LIMIT = 200
EXPANSION_FREE = 1 << 30
CHUNK = 4 << 20
HEAD = 64 << 10

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".traj")
"""File names that are looked at in a folder, each also with .gz or .zst behind it."""

_DANGLING = "is a symbolic link to nothing that can be read"

_NOT_TEXT = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
    b"PAR1": "a Parquet file",
    b"SQLite format 3": "an SQLite database",
    b"%PDF": "a PDF",
    b"\x7fELF": "a program",
}


def expand(argument: str) -> tuple[list[Path], list[str]]:
    """The files that a file, folder or glob stands for, in order of name, and the problems of what cannot be read.

    Raises InputError where there is no such file or a folder has no trace in it.
    """
    if not argument:
        raise InputError("FILE", "an empty name")
    try:
        return _expand(argument)
    except OSError as error:  # a name too long, a folder that may not be looked into
        raise InputError(argument, f"cannot be read: {error.strerror or error}") from None


def _expand(argument: str) -> tuple[list[Path], list[str]]:
    path = Path(argument)
    problems: list[str] = []
    if path.is_dir():
        files = _walk(path, problems)
        if not files and not problems:
            raise InputError(argument, "the folder has no trace in it", f"looked for {', '.join(SUFFIXES)} (.gz, .zst)")
    elif path.exists():
        files = [path]
    elif glob.has_magic(argument):
        names = glob.glob(argument, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        files = sorted(Path(name) for name in names if Path(name).is_file())
        if not files:
            raise InputError(argument, "no file matches")
    elif path.is_symlink():
        raise InputError(argument, _DANGLING)
    else:
        near = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(argument, "no such file or folder", did_you_mean(path.name, near))
    readable = []
    for file in files:
        if os.access(file, os.R_OK):
            readable.append(file)
        else:
            problems.append(f"{file}: {_DANGLING if file.is_symlink() else 'cannot be read (permission denied)'}")
    return readable, problems


def _walk(folder: Path, problems: list[str]) -> list[Path]:
    found = []

    def failed(error: OSError) -> None:
        problems.append(f"{error.filename}: cannot be read ({error.strerror})")

    for base, folders, names in os.walk(folder, onerror=failed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            plain = name.removesuffix(".gz").removesuffix(".zst")
            path = Path(base, name)
            # a pipe in a folder would be waited for
            if not name.startswith(".") and plain.endswith(SUFFIXES) and (path.is_file() or not path.exists()):
                found.append(path)
    return sorted(found)


class _Counted:
    """A raw stream that knows how much has been read from it."""

    def __init__(self, raw: BinaryIO, size: int, progress: Progress | None) -> None:
        self._raw = raw
        self._size = size
        self._progress = progress
        self.count = 0
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        while len(self._ahead) < size and (more := self._raw.read(size - len(self._ahead))):
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = CHUNK
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        if len(data) < size:
            data += self._raw.read(size - len(data)) or b""
        self.count += len(data)
        if self._progress:
            self._progress(self.count, self._size)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._raw.close()


class Text:
    """A trace file as UTF-8 text. ``name`` is what errors call it; ``notes`` says what had to be done to the bytes."""

    def __init__(self, name: str, raw: BinaryIO, size: int = 0, progress: Progress | None = None) -> None:
        self.name = name
        self.notes: list[str] = []
        self.plain = True
        self._raw = _Counted(raw, size, progress)
        self._expanded = 0
        self._head = b""
        self._stream, self._compressed = self._decompress()
        self._decoder = self._decode()

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _decompress(self) -> tuple[IO[bytes] | _Counted, str]:
        try:
            start = self._raw.peek(16)
        except OSError as error:
            raise InputError(self.name, f"cannot be read: {error.strerror or error}") from None
        for magic, what in _NOT_TEXT.items():
            if start.startswith(magic):
                raise InputError(self.name, f"is {what}", "a text trace is needed, plain or as .gz or .zst")
        if start[:2] == b"\x1f\x8b":
            import gzip

            return gzip.GzipFile(fileobj=self._raw), "gzip"  # type: ignore[call-overload]
        if start[:4] == b"\x28\xb5\x2f\xfd":
            try:
                import zstandard
            except ImportError:
                raise InputError(self.name, "is Zstandard data", "install the package zstandard") from None
            reader = zstandard.ZstdDecompressor().stream_reader(self._raw, read_across_frames=True)  # type: ignore[arg-type]
            return reader, "zstd"
        return self._raw, ""

    def _decode(self) -> codecs.IncrementalDecoder | None:
        start = self._more(HEAD)
        encoding = ""
        if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
            encoding = "utf-16"
        elif len(start) >= 4 and start[1::2].count(0) > 0.4 * len(start) / 2 and not start[::2].count(0):
            encoding = "utf-16-le"
        elif len(start) >= 4 and start[::2].count(0) > 0.4 * len(start) / 2 and not start[1::2].count(0):
            encoding = "utf-16-be"
        elif start.startswith(codecs.BOM_UTF8):
            start = start[3:]
            self.notes.append("byte order mark skipped")
        if self._compressed:
            self.plain = False
            self.notes.append(f"{self._compressed} decompressed")
        self._head = start
        if not encoding:
            return None
        self.plain = False
        self.notes.append("converted from UTF-16")
        decoder = codecs.getincrementaldecoder(encoding)()
        self._head = self._convert(decoder, start)
        return decoder

    def _convert(self, decoder: codecs.IncrementalDecoder, data: bytes) -> bytes:
        try:
            return decoder.decode(data, final=not data).encode("utf-8")
        except UnicodeError:
            raise InputError(self.name, "is not valid UTF-16") from None

    def _more(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except EOFError:
            raise InputError(self.name, "the compressed data end early", "the file was cut off") from None
        except OSError as error:
            raise InputError(self.name, f"cannot be read: {error.strerror or error}") from None
        except Exception as error:  # zlib.error and ZstdError have no common base but this
            raise InputError(self.name, f"the {self._compressed} data are damaged: {error}") from None
        self._expanded += len(data)
        limit = max(EXPANSION_FREE, EXPANSION_LIMIT * self._raw.count)
        if self._compressed and self._expanded > limit:
            what = f"expands to more than {EXPANSION_LIMIT} times its size and 1 GiB"
            raise InputError(self.name, what, "decompress it yourself if it is meant to")
        return data

    def read(self, size: int = CHUNK) -> bytes:
        """The next bytes of text, empty at the end."""
        if self._head:
            data, self._head = self._head, b""
            return data
        data = self._more(size)
        return self._convert(self._decoder, data) if self._decoder else data

    def head(self) -> bytes:
        """The start of the text, at least 64 KiB and one whole line; reading begins with it all the same."""
        pieces, length = [self._head], len(self._head)
        self._head = b""
        whole = b"\n" in pieces[0]
        while (length < HEAD or not whole) and length <= LINE_LIMIT and (more := self.read()):
            pieces.append(more)
            length += len(more)
            whole = whole or b"\n" in more
        self._head = b"".join(pieces)
        if length > LINE_LIMIT and b"\n" not in self._head:
            raise self._overlong(1)
        return self._head

    def _overlong(self, line: int) -> InputError:
        what = f"the line is longer than {LINE_LIMIT >> 20} MiB"
        return InputError(f"{self.name}:{line}", what, "one request or record a line is expected")

    def blank(self, size: int) -> bytes:
        """Put blank lines in place of the first bytes of the head, so that lines keep their numbers; the new head."""
        self._head = b"\n" * self._head[:size].count(b"\n") + self._head[size:]
        return self._head

    def push_back(self, data: bytes) -> None:
        """Put text back in front of what is still to be read."""
        self._head = data + self._head

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Runs of whole lines, each with the number of its first line. Raises InputError for an overlong line."""
        pieces: list[bytes] = []
        line, length = 1, 0
        while data := self.read():
            cut = data.rfind(b"\n") + 1
            if cut:
                run = b"".join([*pieces, data[:cut]])
                yield line, run
                line += run.count(b"\n")
                pieces, length = [], 0
            pieces.append(data[cut:])
            length += len(data) - cut
            if length > LINE_LIMIT:
                raise self._overlong(line)
        if length:
            yield line, b"".join(pieces)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Lines that are not blank, without their end, each with its number."""
        for first, run in self.chunks():
            for number, line in enumerate(run.split(b"\n"), first):
                stripped = line.strip()
                if stripped:
                    yield number, stripped

    def whole(self) -> bytes:
        """All of the text. Raises InputError beyond the limit of a document."""
        pieces, length = [], 0
        while data := self.read():
            pieces.append(data)
            length += len(data)
            if length > DOCUMENT_LIMIT:
                raise InputError(self.name, f"the JSON document is larger than {DOCUMENT_LIMIT >> 20} MiB")
        return b"".join(pieces)


def open_file(path: Path, progress: Progress | None = None) -> Text:
    """Open a trace file. Raises InputError where it cannot be read or is no text."""
    try:
        raw = path.open("rb", buffering=0)
        size = path.stat().st_size
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    try:
        return Text(str(path), raw, size, progress)
    except BaseException:
        raw.close()
        raise
