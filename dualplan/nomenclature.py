"""Every quantity of the model once: its name in code and output, symbol, unit, meaning and source.

``DualPath`` is arXiv 2602.21548. A name that appears in an equation, a YAML key or a JSON key appears here with the
same spelling.
"""

from __future__ import annotations

import msgspec


class Quantity(msgspec.Struct, frozen=True):
    """One named quantity. ``unit`` is an SI base unit text of dualplan.units, or ``1``."""

    name: str
    symbol: str
    latex: str
    unit: str
    meaning: str
    source: str = "DualPath, section 3"


_ROWS: tuple[tuple[str, ...], ...] = (
    ("prefill_nodes", "P", "P", "1", "prefill nodes"),
    ("decode_nodes", "D", "D", "1", "decode nodes"),
    ("pd_ratio", "ρ", r"\rho", "1", "prefill nodes per decode node, P/D"),
    ("gpus_per_node", "g", "g", "1", "GPUs of a node; the paper has one compute NIC for each"),
    ("cnic_bandwidth", "B", "B", "B/s", "one compute NIC, per direction, as seen on its PCIe side"),
    (
        "cnic_node_bandwidth",
        "C",
        "C",
        "B/s",
        "all compute NICs of a node, per direction",
        "dualplan: NIC counts other than GPU counts",
    ),
    ("storage_bandwidth", "S", "S", "B/s", "all storage NICs of a node, per direction", "dualplan"),
    (
        "storage_ratio",
        "s",
        "s",
        "1",
        "storage bandwidth of a node in units of a GPU's share of the compute NICs, S·g/C; S/B with one NIC a GPU",
    ),
    ("dram_bandwidth", "M", "M", "B/s", "host memory of a node; reads and writes add up"),
    ("hit", "H", "H", "B", "KV-cache bytes of the reused prefix of a turn"),
    (
        "miss",
        "m",
        "m",
        "B",
        "KV-cache bytes computed by prefill in a turn: the append and the tail below a whole block",
    ),
    ("generated", "n", "n", "B", "KV-cache bytes of the generated tokens of a turn"),
    ("miss_ratio", "μ", r"\mu", "1", "m/H"),
    ("generated_ratio", "ν", r"\nu", "1", "n/H"),
    (
        "collective_load",
        "u",
        "u",
        "1",
        "share of a compute NIC that collectives of model execution use",
        "dualplan; DualPath leaves it out",
    ),
    (
        "prefill_collective",
        "c_p",
        "c_p",
        "B",
        "collective bytes of a turn on the prefill side, per direction",
        "DeepEP message sizes",
    ),
    (
        "decode_collective",
        "c_d",
        "c_d",
        "B",
        "collective bytes of a turn on the decode side, per direction",
        "DeepEP message sizes",
    ),
    ("decode_read_share", "φ", r"\varphi", "1", "share of hit bytes read on the decode side"),
    (
        "pair_traffic_prefill_read",
        "T_p",
        "T_p",
        "B/s",
        "traffic of a (prefill GPU, decode GPU) pair from prefill-side reads",
        "DualPath, eq. 1-4",
    ),
    (
        "pair_traffic_decode_read",
        "T_c",
        "T_c",
        "B/s",
        "traffic of a (prefill GPU, decode GPU) pair from decode-side reads",
        "DualPath, eq. 1-4",
    ),
)

QUANTITIES: dict[str, Quantity] = {row[0]: Quantity(*row) for row in _ROWS}
"""Quantities by name."""
