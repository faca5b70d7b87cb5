"""Every quantity of the model once: its name in code and output, symbol, unit, meaning and source.

``DualPath`` is arXiv 2602.21548. Quantities that the output of ``feasible`` gives a number for stand here under the
same name.
"""

from __future__ import annotations

import msgspec


class Quantity(msgspec.Struct, frozen=True):
    """One named quantity. ``unit`` is an SI base unit text of dualplan.units, ``tokens``, ``1/s``, or ``1``."""

    name: str
    symbol: str
    latex: str
    unit: str
    meaning: str
    source: str = "DualPath, section 3"


_OWN = "dualplan"
_ROWS: tuple[tuple[str, ...], ...] = (
    ("prefill_nodes", "P", "P", "1", "prefill nodes"),
    ("decode_nodes", "D", "D", "1", "decode nodes"),
    ("pd_ratio", "ρ", r"\rho", "1", "prefill nodes per decode node, P/D"),
    ("gpus_per_node", "g", "g", "1", "GPUs of a node; the paper has one compute NIC for each"),
    ("cnic_bandwidth", "B", "B", "B/s", "one compute NIC, per direction, as seen on its PCIe side"),
    ("cnic_node_bandwidth", "C", "C", "B/s", "all compute NICs of a node, per direction", _OWN),
    ("prefill_storage", "S_p", "S_p", "B/s", "all storage NICs of a prefill node, per direction", _OWN),
    ("decode_storage", "S_d", "S_d", "B/s", "all storage NICs of a decode node, per direction", _OWN),
    (
        "storage_ratio",
        "s",
        "s",
        "1",
        "storage bandwidth of a node in units of a GPU's share of the compute NICs, S·g/C; S/B with one NIC a GPU",
    ),
    ("dram_bandwidth", "M", "M", "B/s", "host memory of a node; reads and writes add up"),
    ("hit", "H", "H", "B", "KV-cache bytes of the reused prefix of a turn"),
    ("miss", "m", "m", "B", "KV-cache bytes computed by prefill: the append and the tail below a whole block"),
    ("generated", "n", "n", "B", "KV-cache bytes of the generated tokens of a turn"),
    ("miss_ratio", "μ", r"\mu", "1", "m/H"),
    ("generated_ratio", "ν", r"\nu", "1", "n/H"),
    ("prefill_share", "a_p", "a_p", "1", "bytes on a resource for a byte of hit read on the prefill side", _OWN),
    ("decode_share", "a_d", "a_d", "1", "bytes on a resource for a byte of hit read on the decode side", _OWN),
    ("collective_load", "u", "u", "1", "share of a compute NIC that collectives use; DualPath leaves it out", _OWN),
    ("prefill_collective", "c_p", "c_p", "B", "collective bytes of a turn on the prefill side", "DeepEP message sizes"),
    ("decode_collective", "c_d", "c_d", "B", "collective bytes of a turn on the decode side", "DeepEP message sizes"),
    ("decode_read_share", "φ", r"\varphi", "1", "share of hit bytes read on the decode side"),
    (
        "pair_traffic_prefill_read",
        "T_p",
        "T_p",
        "B/s",
        "traffic of a GPU pair from prefill-side reads",
        "DualPath, eq. 1-4",
    ),
    (
        "pair_traffic_decode_read",
        "T_c",
        "T_c",
        "B/s",
        "traffic of a GPU pair from decode-side reads",
        "DualPath, eq. 1-4",
    ),
    (
        "lower",
        "ρ_min",
        r"\rho_{\min}",
        "1",
        "lowest P/D at which no prefill resource binds before storage",
        "DualPath, section 4",
    ),
    (
        "upper",
        "ρ_max",
        r"\rho_{\max}",
        "1",
        "highest P/D at which no decode resource binds before storage",
        "DualPath, section 4",
    ),
    ("turns_per_s", "X", "X", "1/s", "turns completed per second in the steady state", _OWN),
    (
        "agents_per_s",
        "λ",
        r"\lambda",
        "1/s",
        "trajectories completed per second: turns per second over mean turns",
        _OWN,
    ),
    ("prompt_tokens_per_s", "", "", "1/s", "prompt tokens per second, hits included", _OWN),
    ("computed_tokens_per_s", "", "", "1/s", "prompt tokens per second that prefill computes", _OWN),
    ("output_tokens_per_s", "", "", "1/s", "generated tokens per second", _OWN),
    ("load", "", "", "", "what a resource carries, in its unit", _OWN),
    ("capacity", "", "", "", "what a resource can carry, in its unit", _OWN),
    ("load_bytes_per_s", "", "", "B/s", "load of a link", _OWN),
    ("capacity_bytes_per_s", "", "", "B/s", "capacity of a link", _OWN),
    ("utilization", "", "", "1", "load over capacity", _OWN),
    ("next_gain", "", "", "1", "relative rise of turns per second when what binds is relieved, up to the next", _OWN),
    ("speedup_over_basic", "", "", "1", "turns per second over those of mode basic at the same P/D", _OWN),
    ("balance", "", "", "1", "largest over mean load of a storage NIC", "DualPath, section 7.4"),
    ("headroom", "", "", "1", "predicted over wanted turns per second, less one", _OWN),
    (
        "kv_guaranteed_share",
        "",
        "",
        "1",
        "share of a compute NIC that the arbiter guarantees KV traffic",
        "InfiniBand VL arbitration",
    ),
    ("kv_available_share", "", "", "1", "share of a compute NIC that KV traffic can have beside the collectives", _OWN),
    ("ttft_unloaded_s", "TTFT", r"\mathrm{TTFT}", "s", "time to first token of a turn that meets no other", _OWN),
    ("tpot_s", "TPOT", r"\mathrm{TPOT}", "s", "time per output token at the predicted rate", _OWN),
    ("context_tokens", "c", "c", "tokens", "cached context of a turn before its append", _OWN),
    ("hit_tokens", "", "", "tokens", "tokens of the context that whole blocks cover", _OWN),
    ("computed_tokens", "a", "a", "tokens", "tokens that prefill computes in a turn", _OWN),
    ("generated_tokens", "o", "o", "tokens", "tokens that a turn generates", _OWN),
    ("hit_bytes", "H", "H", "B", "as hit"),
    ("miss_bytes", "m", "m", "B", "as miss"),
    ("generated_bytes", "n", "n", "B", "as generated"),
    ("prefill_collective_bytes", "c_p", "c_p", "B", "as prefill_collective", "DeepEP message sizes"),
    ("decode_collective_bytes", "c_d", "c_d", "B", "as decode_collective", "DeepEP message sizes"),
    ("prefill_gpu_seconds", "t_p", "t_p", "s", "GPU time of the prefill of a turn", _OWN),
    ("decode_step_base_s", "t_0", "t_0", "s", "time of a decode step that does not depend on the batch", _OWN),
    ("decode_step_per_sequence_s", "t_1", "t_1", "s", "time that one more sequence adds to a decode step", _OWN),
    ("weight_bytes_per_gpu", "", "", "B", "weights of one GPU under the parallelism", _OWN),
    ("usable_bytes_per_gpu", "", "", "B", "HBM of one GPU that weights and KV may use", "vLLM gpu_memory_utilization"),
    ("kv_bytes_per_gpu", "", "", "B", "HBM of one GPU left for KV", _OWN),
    ("pair_traffic_prefill_read_bytes_per_s", "T_p", "T_p", "B/s", "as pair_traffic_prefill_read", "DualPath, eq. 1-4"),
    ("pair_traffic_decode_read_bytes_per_s", "T_c", "T_c", "B/s", "as pair_traffic_decode_read", "DualPath, eq. 1-4"),
    ("ep", "", "", "1", "GPUs that share the experts", "DeepSeek-V3/R1 inference overview"),
    ("tp", "", "", "1", "GPUs that share the matrices of a layer", _OWN),
    ("dp", "", "", "1", "replicas of the attention", _OWN),
    ("prefill", "", "", "1", "share of the prefill side's compute NICs that collectives take", _OWN),
    ("decode", "", "", "1", "share of the decode side's compute NICs that collectives take", _OWN),
)

QUANTITIES: dict[str, Quantity] = {row[0]: Quantity(*row) for row in _ROWS}
"""Quantities by name."""
