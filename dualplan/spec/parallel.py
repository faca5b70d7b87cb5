"""Parallelism of one side: expert, tensor and data parallel degrees, the default, and what a side can host."""

from __future__ import annotations

from typing import Literal

import msgspec

from dualplan.errors import InputError, did_you_mean
from dualplan.messages import Message, message
from dualplan.spec.model import Model, count_parameters
from dualplan.units import whole

Side = Literal["prefill", "decode"]

EP_LIMIT: dict[str, int] = {"prefill": 32, "decode": 144}
"""Largest default expert-parallel group: what DeepSeek serves V3/R1 with (open-infra-index, day 6)."""


class Parallel(msgspec.Struct, frozen=True, kw_only=True):
    """``ep``: GPUs that share the experts; ``tp``: GPUs that share the matrices; ``dp``: replicas of the attention.

    A replica is ``tp`` GPUs. ``tp * dp`` GPUs make an instance, of which a side may run several; ``ep`` 1 means that
    a mixture of experts is sharded as the rest is.
    """

    ep: int = 1
    tp: int = 1
    dp: int = 1

    @property
    def engine(self) -> Parallel:
        """The replicas whose tokens meet in one group of experts, as an instance of their own."""
        return Parallel(ep=self.ep, tp=self.tp, dp=max(self.ep // self.tp, 1))

    def __str__(self) -> str:
        return f"ep={self.ep},tp={self.tp},dp={self.dp}"


def parse_parallel(text: str, *, where: str = "--parallel") -> Parallel:
    """``ep=16,tp=1,dp=16`` as a record; degrees that are left out are 1. Raises InputError."""
    degrees: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in ("ep", "tp", "dp"):
            hint = did_you_mean(name, ("ep", "tp", "dp")) or "write for example ep=16,tp=1,dp=16"
            raise InputError(where, f'"{part.strip()[:40]}" is not a degree of parallelism', hint)
        if name in degrees:
            raise InputError(where, f"{name} is given twice")
        degrees[name] = whole(number, f"{where}: {name}", most=9_999_999)
    return Parallel(**degrees)


def default_parallel(model: Model, gpus: int, gpus_per_node: int, usable_bytes: float, side: Side | str) -> Parallel:
    """The parallelism of a side that says nothing.

    A mixture of experts: expert parallel over all GPUs of the side, at most 32 for prefill and 144 for decode (and
    never more than there are experts), with data-parallel attention. A dense model: data-parallel if the weights fit
    ``usable_bytes`` of one GPU, else tensor-parallel over the fewest GPUs of a node that hold them; the whole node if
    none does.
    """
    experts = model.experts
    if experts is not None:
        return Parallel(ep=min(gpus, EP_LIMIT[side], experts.count), tp=1, dp=gpus)
    whole = stored_bytes(model)
    shards = [n for n in range(1, gpus_per_node + 1) if gpus_per_node % n == 0 and gpus % n == 0]
    tp = next((n for n in shards if whole / n < usable_bytes), shards[-1])
    return Parallel(tp=tp, dp=gpus // tp)


def hosted(parallel: Parallel, model: Model, gpus: int, gpus_per_node: int, *, where: str) -> Parallel:
    """``parallel`` as it is, if a side of ``gpus`` GPUs can run it. Raises InputError with all that does not fit."""
    faults: list[Message] = []
    experts = model.experts
    if parallel.ep > gpus:
        faults.append(message("parallel.ep", where=where, ep=parallel.ep, gpus=gpus))
    if experts is None and parallel.ep > 1:
        faults.append(message("parallel.dense", where=where, ep=parallel.ep, model=model.name))
    if experts is not None and parallel.ep > experts.count:
        how = {"ep": parallel.ep, "experts": experts.count, "model": model.name}
        faults.append(message("parallel.experts", where=where, **how))
    instance = parallel.tp * parallel.dp
    if instance > gpus:
        how = {"tp": parallel.tp, "dp": parallel.dp, "product": instance, "gpus": gpus}
        faults.append(message("parallel.product", where=where, **how))
    elif gpus % instance:
        faults.append(message("parallel.instances", where=where, size=instance, gpus=gpus))
    if parallel.tp > gpus_per_node and parallel.tp % gpus_per_node:
        faults.append(message("parallel.nodes", where=where, tp=parallel.tp, gpus=gpus_per_node))
    if faults:
        raise InputError("", problems=map(str, faults), messages=faults)
    return parallel


def stored_bytes(model: Model) -> float:
    """Bytes of all weights of a model, once."""
    counted, size = count_parameters(model), model.part_bytes
    return (
        counted.routed_experts * size.routed_experts
        + counted.shared_experts * size.shared_experts
        + counted.attention * size.attention
        + counted.dense * size.dense
        + (counted.router + counted.embedding + counted.head + counted.other) * size.plain
    )
