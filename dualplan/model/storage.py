"""How much storage a load needs, and whether loading a prefix pays: plain arithmetic.

Arguments are floats, arrays, Fractions or symbols: tokens, seconds, bytes, bytes per second.
"""

from __future__ import annotations

from typing import Any

DAY = 86_400.0
YEAR = 365 * DAY


def agents_in_flight(arrival_rate: Any, completion_time: Any) -> Any:
    """Agents under way, by Little's law: λ·T."""
    return arrival_rate * completion_time


def working_set_bytes(arrival_rate: Any, completion_time: Any, total_tokens: Any, kv_bytes_per_token: Any) -> Any:
    """KV-cache of the agents in flight [B]: λ·T of them, each half way to its total length on average.

    Published (DualPath, section 7): 69 GB at 0.1 agents/s (T about 570 s) and 681 GB at 0.45 (about 1,099 s) for
    DeepSeek-V3.2 and agents of 55,958 tokens; this gives 77 and 665 GB.
    """
    return agents_in_flight(arrival_rate, completion_time) * total_tokens / 2 * kv_bytes_per_token


def completion_time(turns: Any, turn_time: Any, think_time: Any) -> Any:
    """Mean time of an agent from its first prompt to its last answer [s]; nobody thinks after the last turn."""
    return turns * turn_time + (turns - 1) * think_time


def think_time_stretch(busy_time: Any, thinking_time: Any) -> Any:
    """How many times longer an agent takes with think time: r = (T + thinking)/T.

    At the same arrivals, agents in flight and working set grow by r and the rate of turns stays (Little's law).
    DualPath states capacity r, working set r² and cost r³, which scales the arrivals as well.
    """
    return (busy_time + thinking_time) / busy_time


def retained_bytes(write_rate: Any, retention: Any) -> Any:
    """KV that was written within the retention time [B]."""
    return write_rate * retention


def drive_writes_per_day(write_rate: Any, capacity: Any) -> Any:
    """How often a day the whole flash capacity is written (DWPD), before write amplification."""
    return write_rate * DAY / capacity


def break_even_bandwidth(kv_bytes: Any, prefill_time: Any) -> Any:
    """Bandwidth above which loading a prefix takes less time than computing it [B/s].

    Published (Mooncake, FAST 2025): 6 GB/s on 8x A800 and 19 GB/s on 8x H800 for LLaMA-3-70B and 8,192 tokens.
    """
    return kv_bytes / prefill_time


def transfer_time(size: Any, bandwidth: Any, latency: Any) -> Any:
    """One transfer over a link of its own [s]."""
    return latency + size / bandwidth


def link_turn_rate(bandwidth: Any, size: Any, share: Any) -> Any:
    """Turns/s at which a link is full that carries ``size`` bytes for ``share`` of the turns."""
    return bandwidth / (share * size)
