"""Session logs of coding agents: Claude Code and Codex.

Both log what happened, not what was asked for when. A request arrives when the last input (user or tool result) before
its response was logged, else when its response was; the wait from the response before to that input is its think time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from dualplan.errors import InputError
from dualplan.trace.columns import Columns
from dualplan.trace.documents import TOO_DEEP, DocumentReader, Row, seconds
from dualplan.trace.formats import Sample
from dualplan.trace.record import ReadOptions
from dualplan.trace.source import Text
from dualplan.trace.tally import Tally
from dualplan.trace.text import characters, tokens


class _Clock:
    """Times of the last input and the last response of one session."""

    def __init__(self) -> None:
        self.input: float | None = None
        self.response: float | None = None

    def arrival(self, now: float | None) -> tuple[float | None, float | None]:
        """Arrival and think time of a request whose response is logged now."""
        if self.input is None:
            return now, None
        return self.input, None if self.response is None else max(0.0, self.input - self.response)

    def responded(self, now: float | None) -> None:
        self.input, self.response = None, now


class _ClaudeUsage(msgspec.Struct, gc=False):
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0


class _ClaudeMessage(msgspec.Struct):
    role: str = ""
    id: str | None = None
    model: str | None = None
    usage: _ClaudeUsage | None = None
    content: msgspec.Raw = msgspec.Raw(b"null")


class _ClaudeLine(msgspec.Struct, rename="camel"):
    type: str = ""
    timestamp: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    is_sidechain: bool | None = None
    message: _ClaudeMessage | None = None


class ClaudeCode(DocumentReader):
    """Claude Code logs. The prompt is input_tokens plus what was read from and written to the cache, which the log
    counts outside of it. A response is logged in several lines of one message id: the first sets the time, the largest
    output is the final one. Side chains (sub-agents) are sessions of their own.
    """

    def __init__(self, columns: Columns, tally: Tally, options: ReadOptions) -> None:
        super().__init__(columns, tally, options)
        self._rows: list[Row] = []
        self._seen: dict[str, Row] = {}
        self._clocks: dict[int, _Clock] = {}
        self._characters: dict[int, int] = {}
        self._open: dict[int, Row] = {}
        self._without_usage = 0
        self._where = ""

    def read(self, text: Text, found: Sample) -> None:
        """Read one log."""
        self._where = self._where or text.name
        for where, line in self.documents(text, found, _ClaudeLine):
            message = line.message
            if message is None or not (message.role or message.usage):
                continue
            side = (line.agent_id or text.name) if line.is_sidechain or line.agent_id else None
            size = self._size(where, message)
            if size is None:
                continue
            # the same session id in two logs is one session: a resumed one
            key: Hashable = ("claude", line.session_id or text.name, side)
            session = self.columns.session_index(key)
            now = seconds(line.timestamp)
            clock = self._clocks.setdefault(session, _Clock())
            if message.role == "user":
                clock.input = now
                self._open.pop(session, None)
            elif message.usage is not None:
                self._response(where, session, message, message.usage, clock.arrival(now))
                clock.responded(now)
            elif message.role == "assistant":
                self._text_response(session, message, size, clock.arrival(now))
                clock.responded(now)
            self._characters[session] = self._characters.get(session, 0) + size

    def _size(self, where: str, message: _ClaudeMessage) -> int | None:
        """Characters of a message, 0 where they are not asked for, None where its content cannot be read."""
        if not self.options.chars_per_token:
            return 0
        try:
            return characters(msgspec.json.decode(message.content))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what, reason = f"the content cannot be read: {error}", "not JSON"
        except RecursionError:
            what, reason = TOO_DEEP, "nested too deeply"
        self.tally.read += 1
        self.tally.malformed(where, what, reason)
        return None

    def _response(
        self,
        where: str,
        session: int,
        message: _ClaudeMessage,
        usage: _ClaudeUsage,
        times: tuple[float | None, float | None],
    ) -> None:
        cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        whole, output = (usage.input_tokens or 0) + cached + written, usage.output_tokens or 0
        if not self.usable(where, input=whole, output=output, cached=cached):
            return
        known = self._seen.get(message.id) if message.id else None
        if known is not None:
            known.output = max(known.output, output)
            self.tally.rule("another line of the same response")
            return
        row = Row(
            session=session,
            input=whole,
            output=output,
            arrival=times[0],
            cached=cached,
            think=times[1],
            model=message.model,
        )
        self._rows.append(row)
        if message.id:
            self._seen[message.id] = row

    def _text_response(
        self, session: int, message: _ClaudeMessage, size: int, times: tuple[float | None, float | None]
    ) -> None:
        self._without_usage += 1
        ratio = self.options.chars_per_token
        if not ratio:
            return
        row = self._open.get(session)
        if row is not None:  # lines without an input between them are one response
            row.output += tokens(size, ratio)
            return
        self.tally.read += 1
        row = Row(
            session=session,
            input=tokens(self._characters.get(session, 0), ratio),
            output=tokens(size, ratio),
            arrival=times[0],
            think=times[1],
            model=message.model,
        )
        self._open[session] = row
        self._rows.append(row)
        self.estimated = True

    def finish(self) -> None:
        """Add the requests. Raises InputError for logs with text but no usage."""
        if self._without_usage and not self.options.chars_per_token:
            if not self._rows:
                what = f"has text but no token counts: no usage in {self._without_usage:,} assistant messages"
                raise InputError(self._where, what, "--chars-per-token 4, for example, estimates them from the text")
            self.tally.note(f"{self._without_usage:,} assistant messages without usage were passed over")
        self.add(self._rows)


class _CodexTokens(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0

    def less(self, before: _CodexTokens) -> _CodexTokens:
        return _CodexTokens(
            self.input_tokens - before.input_tokens,
            self.cached_input_tokens - before.cached_input_tokens,
            self.output_tokens - before.output_tokens,
        )


class _CodexInfo(msgspec.Struct):
    model: str | None = None
    last_token_usage: _CodexTokens | None = None
    total_token_usage: _CodexTokens | None = None


class _CodexPayload(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    role: str | None = None
    model: str | None = None
    info: _CodexInfo | None = None


class _CodexLine(msgspec.Struct):
    type: str = ""
    timestamp: str | None = None
    payload: _CodexPayload | None = None


_CODEX_INPUTS: tuple[Any, ...] = ("user_message", "function_call_output", "custom_tool_call_output")


class Codex(DocumentReader):
    """Codex logs: a token_count event a request, whose input_tokens include the cached ones. An event whose running
    totals are those of the one before is a repetition; without per-call counts the totals' rise is taken.
    """

    def read(self, text: Text, found: Sample) -> None:
        """Read one log, which is one session."""
        session = self.session("codex")
        clock, model, before, rows = _Clock(), None, _CodexTokens(), []
        for where, line in self.documents(text, found, _CodexLine):
            payload, now = line.payload or _CodexPayload(), seconds(line.timestamp)
            if line.type == "turn_context":
                model = payload.model or model
            if payload.type in _CODEX_INPUTS or (payload.type == "message" and payload.role == "user"):
                clock.input = now
            info = payload.info
            if payload.type != "token_count" or info is None:
                continue
            total, last = info.total_token_usage, info.last_token_usage
            if last is None:
                last = _CodexTokens() if total is None else total.less(before)
            cached = last.cached_input_tokens
            if not self.usable(where, input=last.input_tokens, output=last.output_tokens, cached=cached):
                continue
            if total is not None and total == before:
                self.tally.rule("token_count repeated")
                continue
            before = total or before
            arrival, think = clock.arrival(now)
            clock.responded(now)
            rows.append(
                Row(
                    session=session,
                    input=last.input_tokens,
                    output=last.output_tokens,
                    arrival=arrival,
                    cached=last.cached_input_tokens,
                    think=think,
                    model=info.model or model,
                )
            )
        self.add(rows)
