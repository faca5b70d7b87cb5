"""Nodes that change their role during a run, at given times or by a rule on queue lengths.

A change closes groups of one side: they get nothing more, what waits at them goes to the others, and what is under way
there ends. When they are empty their nodes switch for a given time, and groups of the other side open. Nodes change in
whole groups of both sides, so the expert-parallel groups that stay are not disturbed.
"""

from __future__ import annotations

import math
from typing import Literal

from dualplan.errors import InputError
from dualplan.model.service_times import step_time
from dualplan.serving import layout as k
from dualplan.serving.cluster import Cluster, SideLayout
from dualplan.serving.result import RoleChange
from dualplan.serving.turns import queue_turn
from dualplan.spec.run import Elastic

RULE_INTERVAL = 30.0
"""Time between two looks of the rule [s]; four times as long after each change that takes one back."""

RULE_GAIN = 0.05
"""The rule moves nodes only where it expects turns to become shorter by this share."""

RULE_FILL = 0.9
"""The rule leaves the decode side at least as much HBM as would be so full with what is held now."""

DRAIN_POLL = 1.0
"""Time between two looks whether closed groups are empty [s]."""


def group_nodes(side: SideLayout) -> int:
    """Fewest whole nodes that are whole groups of a side."""
    return math.lcm(side.group, side.per_node) // side.per_node


def step_nodes(laid: Cluster) -> int:
    """Fewest nodes that can change roles: whole groups of both sides."""
    return math.lcm(group_nodes(laid.prefill), group_nodes(laid.decode))


def most_nodes(laid: Cluster, elastic: Elastic, flag: str) -> tuple[int, int]:
    """The most nodes of each side that a plan, or the rule, comes to. ``laid``: the deployment at its start.

    Raises InputError for splits of another number of nodes or of no whole groups.
    """
    first = (laid.prefill.nodes, laid.decode.nodes)
    total = sum(first)
    units = (group_nodes(laid.prefill), group_nodes(laid.decode))
    names = f"prefill groups are of {units[0]} and decode groups of {units[1]} nodes"
    hint = "other group sizes: --prefill-parallel, --decode-parallel"
    for split in elastic.splits:
        nodes = (split.prefill_nodes, split.decode_nodes)
        if sum(nodes) != total:
            raise InputError(flag, f"{nodes[0]}P{nodes[1]}D are not the {total} nodes of {first[0]}P{first[1]}D")
        if any(count % unit for count, unit in zip(nodes, units, strict=True)):
            raise InputError(flag, f"{nodes[0]}P{nodes[1]}D are not whole groups: {names}", hint)
    if elastic.splits:
        return (
            max(first[0], *(s.prefill_nodes for s in elastic.splits)),
            max(first[1], *(s.decode_nodes for s in elastic.splits)),
        )
    step = step_nodes(laid)
    most = tuple(first[i] + (first[1 - i] - units[1 - i]) // step * step for i in (0, 1))
    if most == first:
        raise InputError(flag, f"no node of {first[0]}P{first[1]}D can change its role: {names}", hint)
    return most[0], most[1]


class Controller:
    """Changes the roles during a run. ``next_time``: when it wants to act [s]."""

    def __init__(self, laid: Cluster, elastic: Elastic) -> None:
        self.laid, self.elastic = laid, elastic
        self.nodes = (laid.prefill.first_nodes, laid.decode.first_nodes)
        self.splits = list(elastic.splits)
        self.changes: list[RoleChange] = []
        self.phase: Literal["steady", "draining", "switching"] = "steady"
        self.target = self.nodes
        self.decided = 0.0
        self.seen = (0, 0.0)
        self.interval = RULE_INTERVAL
        self.next_time = self.splits[0].time if self.splits else RULE_INTERVAL

    def act(self, s: k.State, now: float) -> None:
        """Take the next step of a change, or look whether there is one to make."""
        if self.phase == "steady":
            self.target = self._wanted(s)
            if self.target == self.nodes:
                self._rest(now)
                return
            self.phase, self.decided = "draining", now
            self._close(s, now)
        if self.phase == "draining":
            self.next_time = now + DRAIN_POLL
            if self._empty(s):
                self.phase, self.next_time = "switching", now + self.elastic.switch_cost
            return
        self._open(s)
        self.nodes = self.target
        change = RoleChange(
            decided_s=self.decided, ready_s=now, prefill_nodes=self.nodes[0], decode_nodes=self.nodes[1]
        )
        if len(self.changes) > 1 and self.changes[-2].prefill_nodes == self.nodes[0]:
            self.interval *= 4
        self.changes.append(change)
        self._rest(now)

    def _rest(self, now: float) -> None:
        self.phase = "steady"
        if self.elastic.splits:
            self.next_time = max(self.splits[0].time, now) if self.splits else math.inf
        else:
            self.next_time = now + self.interval

    def _wanted(self, s: k.State) -> tuple[int, int]:
        if self.elastic.splits:
            split = self.splits.pop(0)
            return split.prefill_nodes, split.decode_nodes
        return self._by_rule(s)

    def _by_rule(self, s: k.State) -> tuple[int, int]:
        """Move nodes to the other side if turns become shorter by RULE_GAIN.

        By Little's law the stay in a stage goes with the turns there. With more nodes shrinks the part of it that goes
        with the work of a node: of a pass what it takes beyond its base, of a decode step what the batch adds. Turns
        that wait for decode HBM stay for want of decode nodes altogether.
        """
        times, step = self.laid.times, step_nodes(self.laid)
        passes, busy = int(s.count["passes"]), float(s.group["busy"].sum())
        count, spent = passes - self.seen[0], busy - self.seen[1]
        self.seen = (passes, busy)
        prefill = float(s.count["waiting"] + s.count["prefilling"])
        decode = float(s.count["decoding"])
        if not count or prefill + decode == 0:
            return self.nodes
        work = max(1 - float(s.setting.pass_base) * count / spent, 0.0) if spent else 0.0
        batch = decode / (self.nodes[1] * self.laid.decode.per_node)
        cache = float(s.pool["cache"].sum()) / (self.nodes[1] * self.laid.decode.per_node)
        grows = step_time(0.0, times.decode_slope, times.decode_quadratic, batch, 0.0, cache)
        waiting = float(s.count["waiting"]) if (s.group["starved"] == 1).any() else 0.0
        shrinks = ((prefill - waiting) * work, decode * grows / (times.decode_base + grows) + waiting)
        held = float((s.setting.decode_room - s.decoder["room"]).sum())
        roomy = held / (self.laid.decode.per_node * self.laid.decode.room * RULE_FILL)
        best, gain = self.nodes, RULE_GAIN
        for to, of in ((0, 1), (1, 0)):
            if self.nodes[of] <= step or (to == 0 and self.nodes[1] - step < roomy):
                continue
            better = shrinks[to] * step / (self.nodes[to] + step)
            worse = shrinks[of] * step / (self.nodes[of] - step)
            if (better - worse) / (prefill + decode) > gain:
                gain = (better - worse) / (prefill + decode)
                move = step if to == 0 else -step
                best = (self.nodes[0] + move, self.nodes[1] - move)
        return best

    def _groups(self, nodes: tuple[int, int]) -> tuple[int, int]:
        return self.laid.prefill.open_groups(nodes[0]), self.laid.decode.open_groups(nodes[1])

    def _close(self, s: k.State, now: float) -> None:
        (prefill, decode), (now_prefill, _) = self._groups(self.target), self._groups(self.nodes)
        s.count["prefill_open"] = min(prefill, s.count["prefill_open"])
        s.count["decode_open"] = min(decode, s.count["decode_open"])
        for p in range(prefill, now_prefill):
            a = int(s.group["queue"][p])
            s.group["queue"][p] = k.NONE
            while a != k.NONE:
                following = int(s.agent["next"][a])
                s.group["load"][p] -= s.agent["cost"][a]
                s.count["waiting"] -= 1
                queue_turn(s, a, now)
                a = following

    def _empty(self, s: k.State) -> bool:
        (prefill, decode), (now_prefill, now_decode) = self._groups(self.target), self._groups(self.nodes)
        first, last = decode * self.laid.decode.group, now_decode * self.laid.decode.group
        return bool(
            (s.group["pending"][prefill:now_prefill] == k.NONE).all()
            and (s.decoder["sequences"][first:last] < 0.5).all()
        )

    def _open(self, s: k.State) -> None:
        s.count["prefill_open"], s.count["decode_open"] = self._groups(self.target)
