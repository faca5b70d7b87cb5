"""Traces of text without token counts. They are read only with a figure of characters per token, and say so."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from dualplan.trace.documents import DocumentReader, Row
from dualplan.trace.formats import Sample
from dualplan.trace.source import Text

_NOT_PROMPT = frozenset(("type", "id", "tool_use_id", "tool_call_id", "role"))


def characters(value: Any) -> int:
    """Characters of all text in a message, its structure and ids left out."""
    total, left = 0, [value]  # no recursion: a message may be nested deeper than the stack
    while left:
        part = left.pop()
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, dict):
            left += [child for key, child in part.items() if key not in _NOT_PROMPT]
        elif isinstance(part, list):
            left += part
    return total


def tokens(size: int, ratio: float) -> int:
    """Tokens that text of this many characters is estimated to have."""
    return math.ceil(size / ratio)


class _Conversations(DocumentReader):
    """Base: conversations of messages. Each assistant message is the output of a request, whose input is all before."""

    estimated = True

    def conversation(self, where: str, messages: Any) -> None:
        """Add the requests of one conversation as a session."""
        ratio = self.options.chars_per_token or 1.0
        session, rows, before = self.session("text", where), [], 0
        for message in messages if isinstance(messages, list) else []:
            if not isinstance(message, dict):
                continue
            size = characters({key: value for key, value in message.items() if key in ("content", "tool_calls")})
            if message.get("role") in ("assistant", "ai", "agent"):
                self.tally.read += 1
                rows.append(Row(session=session, input=tokens(before, ratio), output=tokens(size, ratio)))
            before += size
        self.add(rows)


class SweAgent(_Conversations):
    """SWE-agent trajectories: the recorded query of each step where there is one, else the history."""

    def read(self, text: Text, found: Sample) -> None:
        """Read one trajectory, or one a line."""
        ratio = self.options.chars_per_token or 1.0
        for where, document in self.documents(text, found, dict[str, Any]):
            steps = [step for step in document.get("trajectory") or [] if isinstance(step, dict)]
            if steps and all("query" in step and "response" in step for step in steps):
                session = self.session("text", where)
                self.tally.read += len(steps)
                self.add(
                    [
                        Row(
                            session=session,
                            input=tokens(characters(step["query"]), ratio),
                            output=tokens(characters(step["response"]), ratio),
                        )
                        for step in steps
                    ]
                )
            elif document.get("history"):
                self.conversation(where, document["history"])
            else:
                self.conversation(where, [message for step in steps for message in _messages(step)])


def _messages(step: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"role": "assistant", "content": step.get("response", "")},
        {"role": "user", "content": step.get("observation", "")},
    ]


class TauBench(_Conversations):
    """tau-bench results: the messages under ``traj`` of each task."""

    def read(self, text: Text, found: Sample) -> None:
        """Read one file of results."""
        for where, document in self.documents(text, found, dict[str, Any] | list[dict[str, Any]]):  # type: ignore[arg-type]
            for number, task in enumerate(document if isinstance(document, list) else [document]):
                self.conversation(f"{where}[{number}]", task.get("traj"))


class _AgentLine(msgspec.Struct):
    input: Any
    output: Any
    session_id: str | int | None = None


class LmCacheAgent(DocumentReader):
    """LMCache agent traces: prompt and response as text, a request a line. Their times have no documented unit and
    are left out.
    """

    estimated = True

    def read(self, text: Text, found: Sample) -> None:
        """Read one file."""
        ratio = self.options.chars_per_token or 1.0
        rows = []
        for _, line in self.documents(text, found, _AgentLine):
            self.tally.read += 1
            session = -1 if line.session_id is None else self.session("lmcache", line.session_id)
            size, answer = characters(line.input), characters(line.output)
            rows.append(Row(session=session, input=tokens(size, ratio), output=tokens(answer, ratio)))
        self.add(rows)
