"""Every quantity of the model once: its name in code and output, symbol, unit, meaning and source.

``DualPath`` is arXiv 2602.21548. Quantities that the output of ``feasible`` gives a number for stand here under the
same name.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Quantity(msgspec.Struct, frozen=True):
    """One named quantity. ``unit``: an SI base unit text of dualplan.units, ``tokens``, ``FLOP``, ``1/s``, or ``1``.

    ``path``: where a scenario holds it; ``roles``: what is made of it there, of ``ask`` (solved for, elasticities),
    ``symbol`` (stands as a symbol in equations) and ``stack`` (may be an array, one entry a point of a sweep).
    ``least`` and ``most``: values that make sense, ``most`` None without a bound; ``whole``: counted in whole numbers.
    ``noun``: what the value at ``path`` is called, where that is not the meaning.
    """

    name: str
    symbol: str
    latex: str
    unit: str
    meaning: str
    source: str = "DualPath, section 3"
    path: str = ""
    roles: str = ""
    least: float = 0.0
    most: float | None = None
    whole: bool = False
    noun: str = ""

    @property
    def title(self) -> str:
        """What the value in a scenario is called."""
        return self.noun or self.meaning

    @property
    def field(self) -> str:
        """The key path inside a hardware profile or a workload."""
        return self.path.partition(".")[2]


_OWN = "dualplan"
_FIT = "fitted to measured runs"
_ROWS: tuple[tuple[Any, ...], ...] = (
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
    ("cnic_count", "n_c", "n_c", "1", "compute NICs of a node", _OWN),
    ("snic_count", "n_s", "n_s", "1", "storage NICs of a node", _OWN),
    ("snic_rate", "B_s", "B_s", "B/s", "one storage NIC, per direction", _OWN),
    ("cnic_efficiency", "η_c", r"\eta_c", "1", "reachable share of a compute NIC's line rate", _OWN),
    ("snic_efficiency", "η_s", r"\eta_s", "1", "reachable share of a storage NIC's line rate", _OWN),
    ("time_per_read", "τ_r", r"\tau_r", "s", "fixed time of a storage NIC per read", _OWN),
    ("read_latency", "τ_s", r"\tau_s", "s", "latency of the store", _OWN),
    ("store_read_bandwidth", "W_r", "W_r", "B/s", "read bandwidth of the whole store", _OWN),
    ("store_write_bandwidth", "W_w", "W_w", "B/s", "write bandwidth of the whole store", _OWN),
    ("uplink_rate", "U", "U", "B/s", "a shared PCIe uplink, per direction", _OWN),
    ("numa_link", "N", "N", "B/s", "link between the sockets, per direction", _OWN),
    ("kv_buffer", "V", "V", "B", "host memory of a node set aside for KV in flight", _OWN),
    ("copy_cost", "τ_c", r"\tau_c", "s", "submission of one host-GPU copy", _OWN),
    ("hbm_capacity", "", "", "B", "HBM of a GPU", _OWN),
    ("hbm_bandwidth", "", "", "B/s", "HBM bandwidth of a GPU", _OWN),
    ("prefill_efficiency", "", "", "1", "reachable share of the peak in prefill", _OWN),
    ("attention_efficiency", "", "", "1", "reachable share of the peak in attention", _OWN),
    ("decode_efficiency", "", "", "1", "reachable share of the peak in decode", _OWN),
    ("hbm_efficiency", "", "", "1", "reachable share of the HBM bandwidth", _OWN),
    ("decode_layer_time", "", "", "s", "fixed time of a layer of a decode step", _OWN),
    ("layer_block_bytes", "b_l", "b_l", "B", "KV of 64 tokens and one layer", _OWN),
    ("append_bytes", "m_a", "m_a", "B", "KV of the append: the part of the miss that is new to storage", _OWN),
    ("residency", "r", "r", "1", "share of a turn's prefix that still is on the decode node"),
    ("pool_share", "q", "q", "1", "share of the hits that a DRAM pool serves", _OWN),
    ("prefill_latency", "t_q", "t_q", "s", "duration of the prefill of a turn on the GPUs that serve it", _OWN),
    ("sequence_bytes", "Q", "Q", "B", "KV of a sequence at the end of the turn", _OWN),
    ("prefill_kv_room", "K_p", "K_p", "B", "HBM of a prefill GPU left for KV", _OWN),
    ("decode_kv_room", "K_d", "K_d", "B", "HBM of a decode GPU left for KV", _OWN),
    ("tpot_limit", "θ", r"\theta", "s", "time per output token asked for", _OWN),
    ("seconds_prefill_read", "w_p", "w_p", "s", "time of a resource that a turn read on the prefill side takes", _OWN),
    ("seconds_decode_read", "w_d", "w_d", "s", "time of a resource that a turn read on the decode side takes", _OWN),
    ("batch", "b", "b", "1", "sequences that an engine decodes at once", _OWN),
    ("batch_limit", "b_θ", r"b_\theta", "1", "sequences of an engine at the time per output token asked for", _OWN),
    ("decode_engines", "E", "E", "1", "groups of GPUs that decode a sequence each", _OWN),
    ("kv_bytes_per_token", "k_t", "k_t", "B", "what the cache grows by per token, index keys included", _OWN),
    ("state_bytes", "k_0", "k_0", "B", "cache of a sequence that does not grow", _OWN),
    ("turns", "N_t", "N_t", "1", "mean turns of a trajectory", _OWN),
    ("width", "h", "h", "1", "elements of a hidden vector that is sent to experts", "config.json"),
    ("moe_layers", "L_e", "L_e", "1", "layers with experts", "config.json"),
    ("layers", "L", "L", "1", "layers", "config.json"),
    ("prefill_copies", "R", "R", "1", "other nodes that a token is sent to in prefill", "DeepEP"),
    ("decode_copies", "R_d", "R_d", "1", "experts on other nodes that a token is sent to in decode", "DeepEP"),
    ("kv_read_bytes", "k_r", "k_r", "B", "cache that a decode step reads for a sequence, of one GPU", _OWN),
    ("gpu_cnic_rate", "B_g", "B_g", "B/s", "line rate of the compute NICs for one GPU", _OWN),
    ("weight_bytes", "W", "W", "B", "weights of a GPU", _OWN),
    ("hbm_rate", "B_h", "B_h", "B/s", "what streams reach of the HBM bandwidth of a GPU", _OWN),
    ("kernel_count", "n_k", "n_k", "1", "kernels of all layers", "counted by kind of layer"),
    ("vector_bytes", "b_v", "b_v", "B", "a hidden vector", "config.json"),
    ("dense_bytes", "W_o", "W_o", "B", "weights of a GPU but for its routed experts", _OWN),
    ("expert_bytes", "W_e", "W_e", "B", "routed experts of a GPU", _OWN),
    ("dense_time", "t_m", "t_m", "s", "a token in all matrices but routed experts, at what large products reach", _OWN),
    (
        "expert_time",
        "t_e",
        "t_e",
        "s",
        "a token in the routed experts that it chose, at what large products reach",
        _OWN,
    ),
    ("head_time", "t_l", "t_l", "s", "a token in the head, at what large products reach", _OWN),
    (
        "tile_time",
        "t_w",
        "t_w",
        "s",
        "half a tile of rows in each routed expert of a GPU, at what large products reach",
        _OWN,
    ),
    (
        "attention_time",
        "t_u",
        "t_u",
        "s",
        "attention of the new tokens of a turn at what large products reach in bf16",
        _OWN,
    ),
    (
        "decode_attention_time",
        "t_c",
        "t_c",
        "s",
        "attention of a decoded token at what large products reach in bf16",
        _OWN,
    ),
    ("reduces", "n_r", "n_r", "1", "all-reduces of all layers", _OWN),
    ("reduce_bytes", "b_r", "b_r", "B", "what a GPU sends for a token in all all-reduces", "nccl-tests"),
    ("exchanges", "n_x", "n_x", "1", "layers with dispatch and combine", _OWN),
    ("prefill_exchange_bytes", "b_x", "b_x", "B", "dispatch and combine of a prefilled token", "DeepEP"),
    ("decode_exchange_bytes", "b_y", "b_y", "B", "dispatch and combine of a decoded token", "DeepEP"),
    ("link_rate", "B_l", "B_l", "B/s", "reachable rate of a GPU inside its scale-up domain", "nccl-tests"),
    ("expert_share", "q_e", "q_e", "1", "share of the routed experts of a layer that a token chooses", "config.json"),
    ("expert_ranks", "G", "G", "1", "engines whose tokens meet in a group of experts", _OWN),
    ("kernel_time", "κ", r"\kappa", "s", "a kernel of a replayed graph however little it computes", _FIT),
    ("older_kernel_factor", "ω", r"\omega", "1", "how much longer a kernel takes on GPUs without FP4 units", _FIT),
    ("sequence_time", "κ_s", r"\kappa_s", "s", "bookkeeping of a sequence in a decode step", _FIT),
    ("reduce_latency", "κ_r", r"\kappa_r", "s", "latency of an all-reduce inside the scale-up domain", _FIT),
    ("network_latency", "κ_n", r"\kappa_n", "s", "latency of a collective over NICs", _FIT),
    ("exchange_latency", "κ_x", r"\kappa_x", "s", "latency of dispatch and combine of a layer", _FIT),
    ("hbm_share", "η_h", r"\eta_h", "1", "share of that rate that a pass reaches", "what refresh leaves"),
    ("unpack_share", "η_u", r"\eta_u", "1", "share of the HBM rate at which 4-bit experts are read and widened", _FIT),
    ("nic_share", "η_n", r"\eta_n", "1", "share of the NICs' line rate that collectives reach", _FIT),
    ("compute_share", "η_f", r"\eta_f", "1", "of what large products reach, what those of a pass do", _FIT),
    ("hidden_vectors", "n_v", "n_v", "1", "hidden vectors that cross HBM for a token in a layer", _FIT),
    ("expert_prefill_share", "η_e", r"\eta_e", "1", "of that share, what the experts of a prefill reach", _FIT),
    (
        "attention_prefill_share",
        "η_a",
        r"\eta_a",
        "1",
        "of what large products reach, what the attention of a prefill does",
        _FIT,
    ),
    ("host_launch_time", "κ_h", r"\kappa_h", "s", "a kernel of a prefill pass, launched by the host", _FIT),
    ("pass_launch", "t_i", "t_i", "s", "time of a prefill pass without tokens", _OWN),
    ("pass_experts", "t_x", "t_x", "s", "time of a prefill pass for routed experts, where its tokens touch all", _OWN),
    ("per_token_hidden", "τ_h", r"\tau_h", "s", "all-to-all of a new token, which hides behind compute", _OWN),
    (
        "decode_step_experts_s",
        "t_3",
        "t_3",
        "s",
        "time of a decode step for routed experts, where all are touched",
        _OWN,
    ),
    ("active_parameters", "A", "A", "1", "parameters that a token multiplies with", "config.json"),
    ("completion_time", "T", "T", "s", "mean time from the first to the last turn of an agent", _OWN),
    ("total_tokens", "ℓ", r"\ell", "tokens", "tokens of a trajectory at its end", _OWN),
    ("working_set", "Ω", r"\Omega", "B", "KV of the agents in flight", "DualPath, section 7"),
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
    ("balance", "β", r"\beta", "1", "largest over mean load of a storage NIC", "DualPath, section 7.4"),
    ("headroom", "", "", "1", "predicted over wanted turns per second, less one", _OWN),
    (
        "kv_guaranteed_share",
        "",
        "",
        "1",
        "share of a compute NIC that the arbiter guarantees KV traffic",
        "InfiniBand VL arbitration",
    ),
    (
        "kv_available_share",
        "k",
        "k",
        "1",
        "share of a compute NIC that KV traffic can have beside the collectives",
        _OWN,
    ),
    ("ttft_unloaded_s", "TTFT", r"\mathrm{TTFT}", "s", "time to first token of a turn that meets no other", _OWN),
    ("tpot_s", "TPOT", r"\mathrm{TPOT}", "s", "time per output token at the predicted rate", _OWN),
    ("context_tokens", "c", "c", "tokens", "cached context of a turn before its append", _OWN),
    ("hit_tokens", "c_h", "c_h", "tokens", "tokens of the context that whole blocks cover", _OWN),
    ("computed_tokens", "a", "a", "tokens", "tokens that prefill computes in a turn", _OWN),
    ("append_tokens", "a_0", "a_0", "tokens", "tokens that a turn appends", _OWN),
    ("generated_tokens", "o", "o", "tokens", "tokens that a turn generates", _OWN),
    ("hit_bytes", "H", "H", "B", "as hit"),
    ("miss_bytes", "m", "m", "B", "as miss"),
    ("generated_bytes", "n", "n", "B", "as generated"),
    ("prefill_collective_bytes", "c_p", "c_p", "B", "as prefill_collective", "DeepEP message sizes"),
    ("decode_collective_bytes", "c_d", "c_d", "B", "as decode_collective", "DeepEP message sizes"),
    ("prefill_gpu_seconds", "t_p", "t_p", "s", "GPU time of the prefill of a turn", _OWN),
    ("decode_step_base_s", "t_0", "t_0", "s", "time of a decode step that does not depend on the batch", _OWN),
    ("decode_step_per_sequence_s", "t_1", "t_1", "s", "time that one more sequence adds to a decode step", _OWN),
    (
        "decode_step_per_square_s",
        "t_2",
        "t_2",
        "s",
        "time of a decode step for each squared sequence",
        _OWN,
    ),
    ("prefill_pass_base_s", "t_b", "t_b", "s", "time of a prefill pass whatever it holds", _OWN),
    (
        "prefill_pass_excess_turns",
        "e",
        "e",
        "1",
        "by how many mean turns the slowest engine of a pass exceeds the mean",
        _OWN,
    ),
    ("decode_step_quadratic_s", "t_2", "t_2", "s", "time of a decode step for the square of its sequences", _OWN),
    ("pass_base", "t_b", "t_b", "s", "time of a prefill pass whatever it holds", _OWN),
    ("pass_excess", "e", "e", "1", "by how many mean turns the slowest engine of a pass exceeds the mean", _OWN),
    ("pass_turns", "n_q", "n_q", "1", "most turns of an engine in a prefill pass, by the attention quota", _OWN),
    (
        "pass_chunks",
        "n_t",
        "n_t",
        "1",
        "passes in which a turn is computed, by the attention quota and by tokens",
        _OWN,
    ),
    ("pass_read_time", "t_r", "t_r", "s", "time of a storage NIC for the read of a turn", _OWN),
    ("weight_bytes_per_gpu", "", "", "B", "weights of one GPU under the parallelism", _OWN),
    (
        "usable_bytes_per_gpu",
        "U_g",
        "U_g",
        "B",
        "HBM of one GPU that weights and KV may use",
        "vLLM gpu_memory_utilization",
    ),
    ("kv_bytes_per_gpu", "", "", "B", "HBM of one GPU left for KV", _OWN),
    ("pair_traffic_prefill_read_bytes_per_s", "T_p", "T_p", "B/s", "as pair_traffic_prefill_read", "DualPath, eq. 1-4"),
    ("pair_traffic_decode_read_bytes_per_s", "T_c", "T_c", "B/s", "as pair_traffic_decode_read", "DualPath, eq. 1-4"),
    ("ep", "", "", "1", "GPUs that share the experts", "DeepSeek-V3/R1 inference overview"),
    ("tp", "", "", "1", "GPUs that share the matrices of a layer", _OWN),
    ("dp", "", "", "1", "replicas of the attention", _OWN),
    ("prefill", "", "", "1", "share of the prefill side's compute NICs that collectives take", _OWN),
    ("decode", "", "", "1", "share of the decode side's compute NICs that collectives take", _OWN),
    ("per_request", "τ_q", r"\tau_q", "s", "work of a prefill engine for a request in a pass", _OWN),
    ("per_token", "τ_a", r"\tau_a", "s", "work of a prefill engine for a new token", _OWN),
    ("per_token_link", "τ_n", r"\tau_n", "s", "all-reduce of a new token, which does not hide behind compute", _OWN),
    ("per_context", "τ_k", r"\tau_k", "s", "work of a prefill engine for a cached token", _OWN),
    ("pair_time", "t_a", "t_a", "s", "attention of the new tokens of a turn to what they see", _OWN),
    ("pass_time", "t_π", r"t_\pi", "s", "time of a prefill pass at the predicted rate", _OWN),
    ("read_variation", "v_r", "v_r", "1", "standard deviation over mean of the time of a read", _OWN),
    ("read_response", "t_R", "t_R", "s", "time of a read with its wait, at the predicted rate", _OWN),
    ("handover", "t_o", "t_o", "s", "from the first token of a turn to the start of its decode", _OWN),
    ("place_time", "t_h", "t_h", "s", "time that a turn holds a place on a decode engine before it decodes", _OWN),
    ("held_bytes", "Q_h", "Q_h", "B", "KV of a sequence that decodes, mean over time: long turns stay longer", _OWN),
    ("batch_bytes", "Q_b", "Q_b", "B", "KV that a turn holds on its prefill engine from fetch to first token", _OWN),
    ("prefill_turns", "N_p", "N_p", "1", "turns whose KV the prefill side can hold", _OWN),
    ("decode_turns", "N_d", "N_d", "1", "turns whose KV the decode side can hold", _OWN),
    ("prefill_stay", "t_s", "t_s", "s", "fetch to first token of a turn when turns fill the prefill side", _OWN),
    ("decode_stay", "t_d", "t_d", "s", "time that a turn holds decode HBM when turns fill the decode side", _OWN),
    ("prefill_hbm_rate", "X_p", "X_p", "1/s", "turn rate at which turns fill the HBM of the prefill side", _OWN),
    ("decode_hbm_rate", "X_d", "X_d", "1/s", "turn rate at which turns fill the HBM of the decode side", _OWN),
    ("kv_per_gpu", "σ", r"\sigma", "1", "share of a sequence's cache that each GPU of its engine holds", _OWN),
)

_PLACES: dict[str, dict[str, Any]] = {
    "snic_count": dict(path="hardware.snic.count", roles="ask symbol stack", whole=True),
    "snic_rate": dict(path="hardware.snic.rate", roles="ask symbol stack", noun="line rate of a storage NIC"),
    "snic_efficiency": dict(path="hardware.snic.efficiency", roles="ask symbol stack", most=1.0),
    "time_per_read": dict(path="hardware.snic.time_per_read", roles="ask symbol stack"),
    "cnic_bandwidth": dict(path="hardware.cnic.rate", roles="ask symbol", noun="line rate of a compute NIC"),
    "cnic_count": dict(path="hardware.cnic.count", roles="ask symbol", whole=True),
    "cnic_efficiency": dict(path="hardware.cnic.efficiency", roles="ask symbol", most=1.0),
    "dram_bandwidth": dict(
        path="hardware.dram.bandwidth", roles="ask symbol stack", noun="host memory bandwidth of a node"
    ),
    "kv_buffer": dict(
        path="hardware.dram.kv_buffer", roles="ask symbol", noun="host memory of a node for KV in flight"
    ),
    "hbm_capacity": dict(path="hardware.gpu.hbm_capacity", roles="ask"),
    "hbm_bandwidth": dict(path="hardware.gpu.hbm_bandwidth", roles="ask"),
    "store_read_bandwidth": dict(path="hardware.storage.read_bandwidth", roles="ask symbol"),
    "store_write_bandwidth": dict(path="hardware.storage.write_bandwidth", roles="ask symbol"),
    "read_latency": dict(path="hardware.storage.latency", roles="ask symbol"),
    "prefill_efficiency": dict(path="hardware.efficiency.prefill", roles="ask", most=1.0),
    "attention_efficiency": dict(path="hardware.efficiency.attention", roles="ask", most=1.0),
    "decode_efficiency": dict(path="hardware.efficiency.decode", roles="ask", most=1.0),
    "hbm_efficiency": dict(path="hardware.efficiency.hbm", roles="ask", most=1.0),
    "decode_layer_time": dict(path="hardware.efficiency.decode_layer_time", roles="ask"),
    "prefill_nodes": dict(
        path="prefill_nodes", roles="ask", whole=True, noun="prefill nodes, each with the parallelism of now"
    ),
    "decode_nodes": dict(
        path="decode_nodes", roles="ask", whole=True, noun="decode nodes, each with the parallelism of now"
    ),
    "pd_ratio": dict(path="prefill_nodes/decode_nodes", roles="ask", noun="prefill nodes per decode node"),
    "gpus_per_node": dict(path="hardware.gpu.count", roles="symbol"),
    "collective_load": dict(
        path="collective_load", roles="ask", most=1.0, noun="share of the compute NICs that collectives take"
    ),
    "uplink_rate": dict(path="hardware.pcie.uplinks.rate"),
    "numa_link": dict(path="hardware.pcie.numa_link", roles="symbol"),
    "copy_cost": dict(path="hardware.copy.cnic", roles="symbol"),
    "residency": dict(path="residency", roles="ask", most=1.0),
    "pool_share": dict(path="pool_share", roles="ask", most=1.0),
    "balance": dict(path="balance", roles="ask", least=1.0),
    "context_tokens": dict(path="workload.context", roles="ask", noun="cached context of a turn"),
    "append_tokens": dict(path="workload.append", roles="ask"),
    "generated_tokens": dict(path="workload.generated", roles="ask"),
}
"""Where a scenario holds a quantity, and what is made of it there."""

QUANTITIES: dict[str, Quantity] = {row[0]: Quantity(*row, **_PLACES.get(row[0], {})) for row in _ROWS}
"""Quantities by name."""

PLACED: tuple[Quantity, ...] = tuple(QUANTITIES[name] for name in _PLACES)
"""Quantities that a scenario holds, in the order in which they are asked about."""
