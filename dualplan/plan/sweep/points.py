"""Many points of a scenario: which there are, which of them share an evaluation, and what each gives.

Points are numbered in the order of nested loops over the axes, the first axis outermost. Points that share everything
but node counts and STACKED hardware numbers are one part, answered by one call of ``evaluate_grid``; simulated points
are a part each. Parts know nothing of each other, so they may run anywhere in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from dualplan import __version__
from dualplan.errors import DualplanError, InfeasibleError, InputError, refuse
from dualplan.messages import text
from dualplan.model.demand import mean_turn
from dualplan.plan.assumptions import scenario_sha256
from dualplan.plan.sweep.simulated_point import SIMULATED_KEYS, simulate_point
from dualplan.spec.change import Assignment, changed
from dualplan.spec.load import flag_node
from dualplan.spec.run import RunSpec
from dualplan.spec.scenario import Scenario
from dualplan.spec.vary import Axis, count_points, splits
from dualplan.spec.workload import mean_turns
from dualplan.steady.answer import Evaluation, evaluate
from dualplan.steady.grid import Grid, evaluate_grid
from dualplan.steady.setup import demand_turns_per_s
from dualplan.steady.stacked_hardware import STACKED, stacked
from dualplan.units import whole

Ints = NDArray[np.int64]
Pairs = tuple[tuple[str, str], ...]
Columns = dict[str, Any]

MOST_IN_PART = 50_000
FIRST = 20
"""Combinations of values that are tried before a sweep begins."""
NODE_AXES = ("prefill_nodes", "decode_nodes", "pd")
SHARED = frozenset(f"{root}.{key}" for root in ("hardware", "prefill_hardware", "decode_hardware") for key in STACKED)
"""Keys whose values can share an evaluation."""


class Source(Protocol):
    """Makes the scenario of some keys and values. Raises InputError."""

    def __call__(self, pairs: Pairs) -> Scenario: ...


class Points(msgspec.Struct, frozen=True, kw_only=True):
    """All points. ``pairs[which[i]]`` are the keys and values of point i but for its node counts."""

    axes: tuple[Axis, ...]
    indices: tuple[Ints, ...]
    prefill_nodes: Ints
    decode_nodes: Ints
    pairs: tuple[Pairs, ...]
    which: Ints

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.which)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Points that are answered together; ``pairs[which[i]]`` are the keys and values of the i-th of them."""

    positions: Ints
    prefill_nodes: Ints
    decode_nodes: Ints
    pairs: tuple[Pairs, ...]
    which: Ints


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Answers: columns with one entry for each of the positions."""

    positions: Ints
    columns: Columns


def points_of(
    scenario: Scenario, axes: Sequence[Axis], *, zipped: bool = False, nodes: int | None = None, ratios: str = ""
) -> Points:
    """The points of a product of axes, or of axes side by side.

    ``nodes``: with a ``pd`` axis, given as ``ratios``, the nodes that are split. Node counts that are not varied are
    those of the scenario. Raises InputError where they are missing or the axes make no sweep.
    """
    axes = list(axes)
    keys = [axis.key for axis in axes]
    if nodes is not None:
        if "pd" not in keys:
            raise InputError("--nodes", "is the number that --vary pd splits", "add --vary pd=1:8..8:1")
        at = keys.index("pd")
        axes[at] = Axis("pd", splits(axes[at], nodes, ratios))
    count = count_points(axes, zipped)
    shape = [len(axis.values) for axis in axes]
    every = np.arange(count)
    indices = [every] * len(axes) if zipped else list(np.unravel_index(every, shape))
    counts = _node_counts(scenario, axes, indices, count)
    rest = [(axis, index) for axis, index in zip(axes, indices, strict=True) if axis.key not in NODE_AXES]
    code = np.zeros(count, dtype=np.int64)
    for axis, index in rest:
        code = code * len(axis.values) + index
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    pairs = tuple(tuple((axis.key, axis.values[index[at]]) for axis, index in rest) for at in first.tolist())
    return Points(
        axes=tuple(axes),
        indices=tuple(indices),
        prefill_nodes=counts["prefill_nodes"],
        decode_nodes=counts["decode_nodes"],
        pairs=pairs,
        which=which,
    )


def _node_counts(scenario: Scenario, axes: Sequence[Axis], indices: Sequence[Ints], count: int) -> dict[str, Ints]:
    """Node counts of every point, from its axes or the scenario."""
    found: dict[str, Ints] = {}
    for axis, index in zip(axes, indices, strict=True):
        if axis.key == "pd":
            pairs = np.array([[int(n) for n in value.split(":")] for value in axis.values])
            found["prefill_nodes"], found["decode_nodes"] = pairs[index, 0], pairs[index, 1]
        elif axis.key in NODE_AXES:
            found[axis.key] = np.array([whole(value, f"--vary {axis.key}") for value in axis.values])[index]
    problems = []
    for key in ("prefill_nodes", "decode_nodes"):
        own = getattr(scenario.settings, key)
        if key not in found and own is None:
            problems.append(f"{key}: missing (give --{key[:-6]}, vary it, or vary pd)")
        found.setdefault(key, np.full(count, own or 0))
    refuse(problems)
    return found


def parts_of(points: Points, spec: RunSpec | None, left: Ints) -> list[Part]:
    """The parts that cover the points ``left``, in the order of their first points."""

    def part(positions: Ints) -> Part:
        used, which = np.unique(points.which[positions], return_inverse=True)
        return Part(
            positions=positions,
            prefill_nodes=points.prefill_nodes[positions],
            decode_nodes=points.decode_nodes[positions],
            pairs=tuple(points.pairs[index] for index in used.tolist()),
            which=which,
        )

    if spec is not None:
        return [part(left[index : index + 1]) for index in range(len(left))]
    kinds: dict[Pairs, int] = {}
    kind = np.array(
        [
            kinds.setdefault(tuple(pair for pair in pairs if pair[0] not in SHARED), len(kinds))
            for pairs in points.pairs
        ],
        dtype=np.int64,
    )[points.which[left]]
    order, sizes = np.argsort(kind, kind="stable"), np.bincount(kind, minlength=len(kinds))
    found = []
    for members in np.split(left[order], np.cumsum(sizes)[:-1]):
        found += [part(members[at : at + MOST_IN_PART]) for at in range(0, len(members), MOST_IN_PART)]
    return sorted(found, key=lambda one: int(one.positions[0]))


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A Source whose files have been read: ``scenarios`` by the values of ``keys``, or why there is none.

    All other keys are changed in those records, so points can run where the files are not.
    """

    keys: tuple[str, ...]
    scenarios: dict[Pairs, Scenario | tuple[str, ...]]

    def __call__(self, pairs: Pairs) -> Scenario:
        found = self.scenarios[tuple(pair for pair in pairs if pair[0] in self.keys)]
        if isinstance(found, tuple):
            raise InputError("", problems=found)
        rest = [pair for pair in pairs if pair[0] not in self.keys and pair[0] not in SIMULATED_KEYS]
        return changed(found, assignments(rest)) if rest else found


def assignments(pairs: Iterable[tuple[str, str]], flag: str = "--vary") -> list[Assignment]:
    """Keys and values as key paths and nodes."""
    return [(tuple(key.split(".")), flag_node(value, f"{flag} {key}")) for key, value in pairs]


def made(points: Points, keys: Sequence[str], make: Source) -> Made:
    """Make the scenario of every combination of the values of ``keys``.

    Raises InputError with the problems of the points where none of the first ones has a scenario.
    """
    scenarios: dict[Pairs, Scenario | tuple[str, ...]] = {}
    for pairs in points.pairs:
        chosen = tuple(pair for pair in pairs if pair[0] in keys)
        if chosen not in scenarios:
            try:
                scenarios[chosen] = make(chosen)
            except InputError as error:
                scenarios[chosen] = error.problems
    source = Made(keys=tuple(keys), scenarios=scenarios)
    problems: dict[str, None] = {}
    for pairs in points.pairs[:FIRST]:
        try:
            source(pairs)
        except InputError as error:
            problems |= dict.fromkeys(error.problems)
        else:
            return source
    raise InputError("", problems=problems)


def point_hashes(points: Points, source: Made, spec: RunSpec | None) -> list[str]:
    """Hash of everything that the answer of each point depends on; the same in every sweep that has the point."""
    bases = {
        chosen: scenario_sha256(found) if isinstance(found, Scenario) else ""
        for chosen, found in source.scenarios.items()
    }
    # how a run is computed does not change what it gives
    how = msgspec.json.encode([__version__, None if spec is None else spec.but(compiled=None)])
    groups = []
    for pairs in points.pairs:
        chosen = tuple(pair for pair in pairs if pair[0] in source.keys)
        groups.append(sha256(how + repr((bases[chosen], sorted(set(pairs) - set(chosen)))).encode()))
    found = []
    nodes = zip(points.which.tolist(), points.prefill_nodes.tolist(), points.decode_nodes.tolist(), strict=True)
    for which, prefill, decode in nodes:
        one = groups[which].copy()
        one.update(b"%d:%d" % (prefill, decode))
        found.append(one.hexdigest())
    return found


def run_parts(source: Source, spec: RunSpec | None, parts: Sequence[Part]) -> list[Block]:
    """The answers of some parts. A point that has none gets the reason in column ``error``."""
    return [block for one in parts for block in _run_part(source, spec, one)]


def _run_part(source: Source, spec: RunSpec | None, part: Part) -> Iterator[Block]:
    scenarios: list[Scenario] = []
    kept: list[int] = []
    for index, pairs in enumerate(part.pairs):
        try:
            scenarios.append(source(pairs))
            kept.append(index)
        except DualplanError as error:
            yield failed(part.positions[part.which == index], error)
    if not scenarios:
        return
    if len(kept) < len(part.pairs):
        number = np.full(len(part.pairs), -1)
        number[kept] = np.arange(len(kept))
        good = number[part.which] >= 0
        part = msgspec.structs.replace(
            part,
            positions=part.positions[good],
            prefill_nodes=part.prefill_nodes[good],
            decode_nodes=part.decode_nodes[good],
            which=number[part.which[good]],
        )
    if spec is not None:
        yield _simulated(scenarios[0], spec, part)
        return
    whole = None if any(scenario.variants or scenario.mix for scenario in scenarios) else stacked(scenarios, part.which)
    if whole is not None:
        grid = evaluate_grid(whole, part.prefill_nodes, part.decode_nodes)
        yield Block(positions=part.positions, columns=grid_columns(scenarios[0], grid))
        return
    for index, scenario in enumerate(scenarios):
        members = np.flatnonzero(part.which == index)
        at = {"positions": part.positions[members]}
        nodes = part.prefill_nodes[members], part.decode_nodes[members]
        if not (scenario.variants or scenario.mix):
            yield Block(**at, columns=grid_columns(scenario, evaluate_grid(scenario, *nodes)))
            continue
        for position, p, d in zip(part.positions[members], *(n.tolist() for n in nodes), strict=True):
            yield _single(scenario, np.array([position]), p, d)


def failed(positions: Ints, error: Exception) -> Block:
    """Points without an answer, and why."""
    text = str(error) if isinstance(error, DualplanError) else f"{type(error).__name__}: {error}"
    return Block(positions=positions, columns={"error": np.full(len(positions), text, dtype=object)})


def _simulated(scenario: Scenario, spec: RunSpec, part: Part) -> Block:
    pairs = dict(part.pairs[0])
    nodes = {"prefill_nodes": int(part.prefill_nodes[0]), "decode_nodes": int(part.decode_nodes[0])}
    settings = msgspec.structs.replace(scenario.settings, **nodes)
    try:
        row = simulate_point(msgspec.structs.replace(scenario, settings=settings), spec, pairs)
    except InfeasibleError as error:
        row = {"feasible": False, "reasons": str(error)}
    except (DualplanError, ArithmeticError) as error:
        return failed(part.positions, error)
    return Block(positions=part.positions, columns={key: [value] for key, value in row.items()})


def _single(scenario: Scenario, position: Ints, prefill: int, decode: int) -> Block:
    try:
        row = row_of(evaluate(scenario, prefill, decode))
    except (DualplanError, ArithmeticError) as error:
        return failed(position, error)
    return Block(positions=position, columns={key: [value] for key, value in row.items()})


def grid_columns(scenario: Scenario, grid: Grid) -> Columns:
    """The answers of a grid as columns, named as the keys of ``feasible --json``; NaN and empty text are null.

    ``reasons`` are phrases here, not sentences with their figures.
    """
    turns = mean_turn(scenario.workload)
    rate = grid.turns_per_s
    wanted = demand_turns_per_s(scenario)
    answered: NDArray[np.bool_] = grid.error == ""
    feasible = grid.fits & grid.inside_range & grid.meets_slo
    columns: Columns = {"feasible": feasible}
    prompt = turns.mean(turn.context + turn.append for turn in turns.mix)
    tokens = (prompt, turns.mean(turns.computed), turns.mean(turn.generated for turn in turns.mix))
    columns |= _throughput(rate, mean_turns(scenario.workload), tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        columns |= {
            "bottleneck.resource": grid.bottleneck,
            "decode_read_share": grid.decode_read_share,
            "speedup_over_basic": np.where(grid.basic_turns_per_s > 0, rate / grid.basic_turns_per_s, np.nan),
            "range.lower": grid.range_lower,
            "range.upper": grid.range_upper,
            "range.lower_constraint": grid.lower_constraint,
            "range.upper_constraint": grid.upper_constraint,
            "latency.ttft_unloaded_s": grid.ttft_unloaded_s,
            "latency.tpot_s": grid.tpot_s,
        }
        if wanted is not None:
            columns["demand.utilization"] = wanted / rate
            columns["feasible"] = feasible & (wanted <= rate)
    columns["reasons"] = _in_words(grid.why_not)
    columns["gpus"] = (
        grid.prefill_nodes * scenario.hardware.gpu.count + grid.decode_nodes * scenario.decode_hardware.gpu.count
    )
    if not answered.all():
        columns = {name: np.where(answered, values.astype(object), None) for name, values in columns.items()}
    error = grid.error.copy()
    error[answered] = None
    return {**columns, "error": _in_words(error)}


def _in_words(found: NDArray[np.object_]) -> NDArray[np.object_]:
    """Messages of points, or several of them each, as text; the same object is said once."""
    said: dict[int, str | None] = {id(None): None}
    for one in found:
        if id(one) not in said:
            said[id(one)] = "; ".join(map(text, one)) if isinstance(one, tuple) else text(one)
    return np.array([said[id(one)] for one in found], dtype=object)


def _throughput(rate: Any, turns_of_agent: float, tokens: tuple[float, float, float]) -> Columns:
    """Rates; ``tokens`` of a turn: in its prompt, computed by prefill, generated."""
    return {
        "throughput.turns_per_s": rate,
        "throughput.agents_per_s": rate / turns_of_agent,
        "throughput.prompt_tokens_per_s": rate * tokens[0],
        "throughput.computed_tokens_per_s": rate * tokens[1],
        "throughput.output_tokens_per_s": rate * tokens[2],
    }


def row_of(answer: Evaluation) -> dict[str, Any]:
    """One evaluation with the names and the meaning of ``grid_columns``."""
    scenario, full = answer.scenario, answer.ranges.all_traffic
    row: dict[str, Any] = {"feasible": answer.feasible}
    demand = answer.demand
    row |= _throughput(
        answer.turns_per_s,
        mean_turns(scenario.workload),
        (demand.prompt_tokens, demand.computed_tokens, demand.generated),
    )
    row |= {
        "bottleneck.resource": answer.bottleneck.resource,
        "decode_read_share": answer.decode_read_share,
        "speedup_over_basic": answer.speedup_over_basic,
        "range.lower": None if full.lower is None else float(full.lower),
        "range.upper": None if full.upper is None else float(full.upper),
        "range.lower_constraint": full.lower_constraints[0] if full.lower_constraints else None,
        "range.upper_constraint": full.upper_constraints[0] if full.upper_constraints else None,
        "latency.ttft_unloaded_s": answer.ttft_unloaded_s,
        "latency.tpot_s": answer.tpot_s,
    }
    if answer.demand_check is not None:
        row["demand.utilization"] = answer.demand_check.utilization
    row["reasons"] = "; ".join(map(text, answer.why_not)) or None
    gpus = scenario.hardware.gpu.count, scenario.decode_hardware.gpu.count
    return {**row, "gpus": answer.prefill_nodes * gpus[0] + answer.decode_nodes * gpus[1]}
