"""How much storage a load needs, and whether loading a prefix pays: pure functions over numbers.

Plain arithmetic on floats, arrays, Fractions and symbols. Tokens, seconds, bytes, bytes per second.
"""

from __future__ import annotations

from typing import Any


def working_set_bytes(arrival_rate: Any, completion_time: Any, total_tokens: Any, kv_bytes_per_token: Any) -> Any:
    """KV-cache of the agents in flight [B]: λ·T of them (Little's law), each half way to its total length on average.

    Published (DualPath, section 7): 69 GB at 0.1 agents/s (T about 570 s) and 681 GB at 0.45 (about 1,099 s) for
    DeepSeek-V3.2 and agents of 55,958 tokens; this gives 77 and 665 GB.
    """
    return arrival_rate * completion_time * total_tokens / 2 * kv_bytes_per_token
