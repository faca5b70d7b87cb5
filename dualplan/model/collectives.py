"""Bytes that collectives of model execution put on the compute NICs, per token.

A figure is the sum over all compute NICs of a side of what leaves them for one token, over all layers; balanced load
makes what arrives equal. Per GPU it is that figure times the tokens per second and GPU of the side. Traffic inside a
node, or inside a scale-up domain if ``gpus_per_node`` is that of the domain, stays off the NICs.

Sources: DeepEP (message sizes and copies: tests/legacy/test_internode.py, test_low_latency.py); ring all-reduce
factor 2(n-1)/n of nccl-tests. Derived here: the expected number of nodes that a token reaches.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import combinations
from math import comb
from typing import Any

from dualplan.spec.layers import Experts
from dualplan.spec.model import Model
from dualplan.spec.parallel import Parallel

LOW_LATENCY_HEADER = 16
"""Bytes before each message of the low-latency kernels (DeepEP)."""


def dispatch_bytes(width: Any) -> Any:
    """One token to one place: fp8 with an fp32 scale for 128 [B]."""
    return width + 4 * width / 128


def combine_bytes(width: Any) -> Any:
    """One token's result from one place: bf16 [B]."""
    return 2 * width


@cache
def remote_nodes(experts: Experts, nodes: int) -> Fraction:
    """Expected number of other nodes that a token is sent to in prefill, R: once per node with one of its experts.

    Uniform routing, experts in order over the nodes, the token on any node: R = D (N-1)/N with D the expected number
    of distinct nodes. Without group limit D = N (1 - (1 - 1/N)^k). With one, ``kept`` of ``groups`` are chosen first
    and k distinct experts among theirs, so a node is missed with the probability that none of its experts in the kept
    groups is drawn; exact, by summing over the subsets of groups. For 256 experts, 8 of 4 groups of 8: 0.963 at 2
    nodes, 2.20 at 4, 3.18 at 8.
    """
    if nodes <= 1:
        return Fraction(0)
    top_k, others = experts.top_k, Fraction(nodes - 1, nodes)
    if experts.groups == 1 or experts.groups_kept * (experts.count // experts.groups) < top_k:
        return nodes * (1 - others**top_k) * others
    size = experts.count // experts.groups
    subsets = list(combinations(range(experts.groups), experts.groups_kept))
    drawn_from = experts.groups_kept * size
    distinct = Fraction(0)
    for node in range(nodes):
        first, end = node * experts.count // nodes, (node + 1) * experts.count // nodes
        here = [max(0, min(end, (group + 1) * size) - max(first, group * size)) for group in range(experts.groups)]
        missed = sum(comb(drawn_from - sum(here[group] for group in subset), top_k) for subset in subsets)
        distinct += 1 - Fraction(missed, len(subsets) * comb(drawn_from, top_k))
    return distinct * others


def remote_copies(top_k: int, nodes: int) -> Fraction:
    """Copies of a token that leave its node in decode: one for each chosen expert elsewhere, k (1 - 1/N)."""
    return top_k * (1 - Fraction(1, nodes))


def prefill_exchange_bytes(moe_layers: Any, prefill_copies: Any, width: Any) -> Any:
    """Dispatch and combine of one prefilled token over all layers with experts [B]."""
    return moe_layers * prefill_copies * (dispatch_bytes(width) + combine_bytes(width))


def decode_exchange_bytes(moe_layers: Any, decode_copies: Any, width: Any) -> Any:
    """Dispatch and combine of one decoded token over all layers with experts, by the low-latency kernels [B]."""
    return moe_layers * decode_copies * (dispatch_bytes(width) + LOW_LATENCY_HEADER + combine_bytes(width))


def all_reduce_bytes(hidden: Any, nodes: Any) -> Any:
    """One hierarchical all-reduce of a bf16 vector over ``nodes`` nodes: 2 (M-1)/M of it per node, M nodes [B]."""
    return 2 * (nodes - 1) * 2 * hidden


def prefill_collective_bytes_per_token(model: Model, parallel: Parallel, gpus_per_node: int) -> Fraction:
    """Bytes per prefilled token on the compute NICs, one direction, exact: deduplicated all-to-all, all-reduces over
    nodes.
    """
    experts, nodes = model.experts, _nodes(parallel.ep, gpus_per_node)
    total = _tensor_parallel(model, parallel, gpus_per_node)
    if experts is not None and nodes > 1:
        width = Fraction(experts.latent or model.hidden_size)
        total += prefill_exchange_bytes(model.moe_layers, remote_nodes(experts, nodes), width)
    return total


def decode_collective_bytes_per_token(model: Model, parallel: Parallel, gpus_per_node: int) -> Fraction:
    """Bytes per decoded token on the compute NICs, one direction, exact: a message per expert, all-reduces over
    nodes.
    """
    experts, nodes = model.experts, _nodes(parallel.ep, gpus_per_node)
    total = _tensor_parallel(model, parallel, gpus_per_node)
    if experts is not None and nodes > 1:
        width = Fraction(experts.latent or model.hidden_size)
        total += decode_exchange_bytes(model.moe_layers, remote_copies(experts.top_k, nodes), width)
    return total


def _nodes(gpus: int, gpus_per_node: int) -> int:
    return -(-gpus // gpus_per_node)


def _tensor_parallel(model: Model, parallel: Parallel, gpus_per_node: int) -> Fraction:
    """Two all-reduces a layer, after attention and after the feed-forward; with experts spread by ep only the first."""
    nodes = _nodes(parallel.tp, gpus_per_node)
    if nodes == 1:
        return Fraction(0)
    spread = model.moe_layers if parallel.ep > 1 else 0
    return Fraction(all_reduce_bytes(model.hidden_size, nodes) * (2 * model.num_layers - spread))
