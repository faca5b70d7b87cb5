"""What turns ask of the prefill engines, and how much of it they can do: the compute behind the busy passes.

A group runs passes while any turn is there, so it is busy at any load; passes are longer, and hold more turns, the more
there is to do. How much of the capacity is used is work done against work in full passes, as the steady model has it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualplan.model.kv import hit_tokens
from dualplan.model.passes import excess_work, pass_rate
from dualplan.serving.cluster import Cluster
from dualplan.serving.trajectories import Trajectories

Floats = npt.NDArray[np.float64]


def turn_works(laid: Cluster, trajectories: Trajectories) -> Floats:
    """Work of a prefill engine for each turn [s], without its share of the base of a pass."""
    return np.asarray(laid.times.turn_work(*_lengths(laid, trajectories)), dtype=np.float64)


def full_pass_share(laid: Cluster, trajectories: Trajectories, works: Floats) -> float:
    """Share of an engine's time that is work when passes are full; 1 where a pass has no base. ``works``: those of
    :func:`turn_works`.
    """
    times, work = laid.times, float(works.mean())
    attention = float(np.mean(times.attention_work(*_lengths(laid, trajectories))))
    if not (times.pass_base and work and attention):
        return 1.0
    excess = excess_work(laid.prefill.group, float(works.std()) / work)
    return float(pass_rate(times.pass_base, work, excess, times.quota / attention)) * work


def _lengths(laid: Cluster, trajectories: Trajectories) -> tuple[Floats, Floats]:
    """Tokens that prefill computes for each turn, and those it finds cached in whole blocks."""
    cached = hit_tokens(trajectories.context, laid.scenario.workload.block)
    return trajectories.context - cached + trajectories.append, cached
