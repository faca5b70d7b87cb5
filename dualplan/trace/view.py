"""The figures of a trace as a JSON document, with everything that was assumed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from dualplan.errors import InputError, printable
from dualplan.trace.record import Trace
from dualplan.trace.stats import Summary

RULES = (
    "a request with zero or negative input tokens, or negative output tokens, is a failed call: dropped and counted by"
    " reason, with or without --lenient; one with input and no output is kept",
    "hit rates: infinite cache, prefix match, requests in time order; models do not share a cache, nor do files"
    " or sessions whose block ids are local",
    "think time: the client's wait before later turns of a session, never before its first",
    "session growth: a prompt as long as prompt and output before it begins with both; one as long as the prompt before"
    " begins with that; a shorter one is a new context",
    "quantiles are linear between values",
)
"""What the figures rest on; the readers' docstrings give the rules of each format."""

_ACCOUNTINGS = {
    "block_hashes": "block ids of the trace",
    "reported": "cached tokens that the server reported",
    "session_growth": "growth of the prompts within a session, in whole blocks of 64 tokens",
}


def inputs_sha256(trace: Trace) -> str | None:
    """SHA-256 over the files of a trace, one after the other; None where one cannot be read twice, such as standard
    input or a pipe. Raises InputError for a file that is gone by now.
    """
    digest = hashlib.sha256()
    for name in trace.report.files:
        path = Path(name)
        try:
            if name == "-" or not path.is_file():
                return None
            with path.open("rb") as stream:
                while data := stream.read(1 << 20):
                    digest.update(data)
        except OSError as error:
            raise InputError(name, f"cannot be read again: {error.strerror or error}") from None
    return digest.hexdigest()


def as_document(trace: Trace, summary: Summary, source: str) -> dict[str, Any]:
    """The document of ``trace inspect --json``; tokens, seconds, rates 0..1; null where a trace has no such figure."""
    figures: dict[str, Any] = msgspec.to_builtins(summary)
    report = trace.report
    main = figures["hit_rates"].get(summary.accounting) or {}
    dropped = sum(report.dropped.values())
    return {
        "schema": "dualplan/trace-inspect/1",
        "source": printable(source),
        "format": report.format,
        "format_because": report.format_because,
        "files": len(report.files),
        "rows": {
            "read": report.rows_read,
            "used": report.rows_used,
            "dropped": dropped,
            "dropped_by_reason": report.dropped,
        },
        "requests": summary.requests,
        "sessions": summary.sessions,
        "models": summary.models,
        "input_tokens": figures["input_tokens"],
        "output_tokens": figures["output_tokens"],
        "context_tokens": figures["context_tokens"],
        "append_tokens": figures["append_tokens"],
        "turns_per_session": figures["turns_per_session"],
        "think_time_s": figures["think_time_s"],
        "turn_gap_s": figures["turn_gap_s"],
        "zero_outputs": summary.zero_outputs,
        "resets": summary.resets,
        "hit_rate": {
            "by_token": main.get("by_token"),
            "by_block": main.get("by_block"),
            "mean_of_ratios": main.get("mean_of_ratios"),
            "accounting": summary.accounting,
            "because": why_accounting(summary),
        },
        "hit_rates": figures["hit_rates"],
        "arrivals": figures["arrivals"],
        "growth_by_turn": list(figures["growth"]),
        "cache": _cache(figures["curve"]),
        "time": {"unit": report.time_unit, "because": report.time_unit_because, "clock": trace.clock},
        "blocks": {
            "size_tokens": trace.blocks.size if trace.blocks else None,
            "rounding": trace.blocks.rounding if trace.blocks else None,
            "matched": trace.blocks.matched if trace.blocks else None,
            "because": report.block_because,
        },
        "later_turns": {"kind": report.later_turns, "because": report.later_turns_because},
        "tokens_estimated": report.estimated_tokens,
        "assumptions": list(RULES),
        "notes": list(report.notes),
    }


def _cache(curve: dict[str, Any] | None) -> dict[str, Any] | None:
    if curve is None:
        return None
    names = {"for_share": "tokens_for_share_of_hits", "windows": "mean_tokens_in_window_s"}
    return {names.get(key, key): value for key, value in curve.items()}


def why_accounting(summary: Summary) -> str:
    """What the main hit rates rest on, in words."""
    if summary.accounting is None:
        return "the trace has no block ids, no cached counts and no sessions: nothing says what is used again"
    if summary.accounting == "reported" and summary.cached_from == "generator":
        return "cached tokens that the generator wrote; no server reported them"
    return _ACCOUNTINGS[summary.accounting]
