"""Fit the constants of the roofline to the measured runs: ``python -m tests.published.fit_roofline``.

Least squares on logarithms, soft L1 at 0.2: TPOT of all runs (weight 1), TTFT of those with at most 8 clients (0.5),
published prefill rates (2), and weak log-normal priors, so that a constant which a fold cannot see (latency between
nodes without the H100 runs) stays where physics puts it. The same functions that predict are called on arrays.

Prints dualplan/data/roofline.yaml; ``--report``: errors in sample, with each system and each model left out, by term,
batch, tp and system, and what each term is worth; ``--write`` writes the file.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import least_squares

from dualplan.model.roofline import Curve, Loop, Rank, prompt_rate, serve
from dualplan.plan.measured import (
    Case,
    Point,
    Run,
    case,
    contradiction,
    hardware_of,
    model_of,
    predicted_point,
    published_points,
    read_runs,
)
from dualplan.spec.constants import Constants

DATA = Path(__file__).resolve().parents[2] / "dualplan" / "data"

START = {
    "kernel_time": 4.6e-6,
    "older_kernel_factor": 1.25,
    "sequence_time": 25e-6,
    "reduce_latency": 4.4e-6,
    "network_latency": 47e-6,
    "exchange_latency": 30e-6,
    "unpack_share": 0.71,
    "nic_share": 0.55,
    "compute_share": 0.9,
    "hidden_vectors": 12.0,
    "expert_prefill_share": 0.42,
    "attention_prefill_share": 0.36,
    "host_launch_time": 5e-5,
    "queue_share": 0.14,
}
"""Fitted constants with the centre of their priors: launch times of kernels and collectives as traced on such GPUs, and
shares of peaks that matrix products and attention kernels are published with."""

SIGMA = {
    "kernel_time": 1.0,
    "older_kernel_factor": 0.4,
    "sequence_time": 1.5,
    "reduce_latency": 1.0,
    "network_latency": 0.7,
    "exchange_latency": 1.0,
    "unpack_share": 0.5,
    "nic_share": 0.4,
    "compute_share": 0.5,
    "hidden_vectors": 0.7,
    "expert_prefill_share": 0.7,
    "attention_prefill_share": 0.7,
    "host_launch_time": 1.0,
    "queue_share": 1.5,
}
"""Standard deviations of the priors, of the logarithm."""

SET = {"hbm_share": 1.08}
"""Not fitted, for any fit goes to its bound: 0.97 of the HBM rate of an NVIDIA GPU, which refresh leaves."""

SHARES = ("unpack_share", "nic_share", "compute_share", "expert_prefill_share", "attention_prefill_share")
SMOOTH, FEW_CLIENTS, FIGURES = 0.2, 8, 4
LEFT_OUT = {"A6": "a day's mean of a production fleet with its load, not what a node can do"}
"""Published points that are scored and not fitted."""


class Runs(msgspec.Struct, frozen=True):
    """Runs as one case of arrays; ``tpot``, ``ttft`` as measured [s]."""

    rows: tuple[Run, ...]
    cases: tuple[Case, ...]
    loop: Loop
    decode: Rank
    prefill: Rank
    tpot: Any
    ttft: Any

    def part(self, mask: Any) -> Runs:
        """The runs of a mask."""
        return runs_of([(r, c) for r, c, keep in zip(self.rows, self.cases, mask, strict=True) if keep])

    def column(self, value: Callable[[Run], Any]) -> Any:
        """One value a run."""
        return np.array([value(run) for run in self.rows])

    @property
    def apart(self) -> Any:
        """Whether prefill and decode are on engines of their own."""
        return self.loop.apart > 0

    @property
    def few(self) -> Any:
        """Whether there are few clients, so that TTFT says something about prefill."""
        return self.loop.sequences * self.loop.decode_ranks <= FEW_CLIENTS


def stacked(records: Sequence[Any]) -> Any:
    """Records of numbers as one record of arrays; curves are padded to the longest."""
    first = records[0]
    if isinstance(first, Curve):
        most = max(len(r.slopes) for r in records)
        slopes = np.array([[*r.slopes, *[0.0] * (most - len(r.slopes))] for r in records]).T
        spans = np.array([[*r.spans, *[np.inf] * (most - len(r.spans))] for r in records]).T
        return Curve(fixed=np.array([r.fixed for r in records]), slopes=tuple(slopes), spans=tuple(spans))
    if isinstance(first, msgspec.Struct):
        fields = first.__struct_fields__
        return type(first)(**{f: stacked([getattr(record, f) for record in records]) for f in fields})
    return np.array(records, dtype=float)


def runs_of(pairs: Sequence[tuple[Run, Case]]) -> Runs:
    """Runs as arrays."""
    rows, cases = tuple(r for r, _ in pairs), tuple(c for _, c in pairs)
    return Runs(
        rows=rows,
        cases=cases,
        loop=stacked([c.loop for c in cases]),
        decode=stacked([c.decode for c in cases]),
        prefill=stacked([c.prefill for c in cases]),
        tpot=np.array([r.tpot_ms for r in rows], dtype=float) / 1e3,
        ttft=np.array([r.ttft_ms for r in rows], dtype=float) / 1e3,
    )


def shipped_runs() -> tuple[Runs, list[tuple[Run, str]]]:
    """The shipped runs, and those that contradict themselves with the reason."""
    path = DATA / "measured" / "serving_runs.csv"
    pairs, out = [], []
    for run in read_runs(path.read_text(encoding="utf-8"), path.name):
        known = case(run)
        assert isinstance(known, Case), known
        reason = contradiction(run, known)
        if reason:
            out.append((run, reason))
        else:
            pairs.append((run, known))
    return runs_of(pairs), out


class Rates(msgspec.Struct, frozen=True):
    """Published prefill rates as arrays."""

    points: tuple[Point, ...]
    engine: Rank
    prompt: Any
    generated: Any
    batch: Any
    ranks: Any
    measured: Any

    def predicted(self, c: Any) -> Any:
        """Tokens/s."""
        return self.ranks * prompt_rate(self.engine, c, self.prompt, self.batch, self.generated)


def rates_of(points: Sequence[Point]) -> Rates:
    """Published prefill rates as arrays."""
    return Rates(
        points=tuple(points),
        engine=stacked([p.engine for p in points]),
        prompt=np.array([p.prompt_tokens for p in points]),
        generated=np.array([p.output_tokens for p in points]),
        batch=np.array([p.batch for p in points]),
        ranks=np.array([p.ranks for p in points]),
        measured=np.array([p.measured for p in points]),
    )


def fit(runs: Runs, rates: Rates, near: Constants | None = None, **fixed: float) -> Constants:
    """The constants nearest to runs and rates; ``fixed`` ones are kept. ``near``: those of a fit to nearly
    the same, from which a rough search is enough.
    """
    kept = {**SET, **fixed}
    names = [name for name in START if name not in kept]
    centre, sigma = np.log([START[n] for n in names]), np.array([SIGMA[n] for n in names])
    most = np.log([1.0 if n in SHARES else 1e3 * START[n] for n in names])
    few = runs.few

    def constants(logs: Any) -> Constants:
        return Constants(**kept, **dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def residuals(logs: Any) -> Any:
        c = constants(logs)
        served = serve(runs.loop, runs.decode, runs.prefill, c)
        parts = [
            np.log(served.tpot / runs.tpot),
            np.sqrt(0.5) * np.log(served.ttft / runs.ttft)[few],
            np.sqrt(2.0) * np.log(rates.predicted(c) / rates.measured),
        ]
        size = np.concatenate(parts) / SMOOTH
        return np.concatenate([np.sign(size) * np.sqrt(2 * (np.sqrt(1 + size**2) - 1)), (logs - centre) / sigma])

    start = centre if near is None else np.log([getattr(near, n) for n in names])
    exact = 1e-12 if near is None else 1e-5
    best = least_squares(
        residuals, np.minimum(start, most - 1e-6), bounds=(-np.inf, most), xtol=exact, ftol=exact, gtol=exact
    )
    return constants(best.x)


def rounded(c: Constants) -> Constants:
    """Constants as they are shipped, to FIGURES figures."""
    return Constants(**{name: float(f"{value:.{FIGURES}g}") for name, value in msgspec.structs.asdict(c).items()})


def error(ratio: Any) -> Any:
    """exp|ln ratio| - 1."""
    return np.expm1(np.abs(np.log(ratio)))


def figures(errors: Any) -> str:
    """Median and 90th percentile in per cent."""
    return "-" if not len(errors) else f"{100 * np.median(errors):.1f} / {100 * np.percentile(errors, 90):.0f}"


def system_of(run: Run) -> str:
    """The group that is left out with a system."""
    return run.system


def architecture_of(run: Run) -> str:
    """The group that is left out with a model: all its names and precisions."""
    model = model_of(run.model, run.precision)
    assert not isinstance(model, str)
    return model.name


class LeftOut(msgspec.Struct, frozen=True):
    """Ratios predicted/measured of runs of groups that were not fitted."""

    groups: Any
    tpot: Any
    ttft: Any


def left_out(runs: Runs, rates: Rates, group: Callable[[Run], str], near: Constants, **fixed: float) -> LeftOut:
    """Each group predicted by the fit to the others; ``near``: the fit to all."""
    groups = runs.column(group)
    tpot, ttft = np.empty(len(groups)), np.empty(len(groups))
    for name in sorted(set(groups)):
        c = fit(runs.part(groups != name), rates, near, **fixed)
        rest = runs.part(groups == name)
        served = serve(rest.loop, rest.decode, rest.prefill, c)
        tpot[groups == name], ttft[groups == name] = served.tpot / rest.tpot, served.ttft / rest.ttft
    return LeftOut(groups, tpot, ttft)


# ---------------------------------------------------------------- what each term is worth


def _changed(runs: Runs, change: Callable[[Rank], dict[str, Any]]) -> Runs:
    sides = {
        name: msgspec.structs.replace(side, **change(side))
        for name, side in (("decode", runs.decode), ("prefill", runs.prefill))
    }
    cases = tuple(
        msgspec.structs.replace(
            c,
            decode=msgspec.structs.replace(c.decode, **change(c.decode)),
            prefill=msgspec.structs.replace(c.prefill, **change(c.prefill)),
        )
        for c in runs.cases
    )
    return Runs(runs.rows, cases, runs.loop, sides["decode"], sides["prefill"], runs.tpot, runs.ttft)


def _prefill_free(runs: Runs) -> Runs:
    """Runs whose prefill side makes a thousand times as many prompts, so that every client decodes."""
    cases = tuple(
        msgspec.structs.replace(
            c,
            loop=msgspec.structs.replace(c.loop, prefill_ranks=c.loop.prefill_ranks * (1e3 if c.loop.apart else 1.0)),
        )
        for c in runs.cases
    )
    return runs_of(list(zip(runs.rows, cases, strict=True)))


PER_LAYER = 16
"""Kernels a layer where they are not counted: about the mean."""

WITHOUT: dict[str, tuple[dict[str, float], Callable[[Rank], dict[str, Any]] | None]] = {
    "kernels counted by layer kind": ({}, lambda r: {"kernels": PER_LAYER * r.layers}),
    "kernel factor of older GPUs": ({"older_kernel_factor": 1.0}, None),
    "experts touched": ({}, lambda r: {"expert_share": r.expert_share * 0 + 1.0}),
    "time per sequence": ({"sequence_time": 1e-12}, None),
    "hidden vectors": ({"hidden_vectors": 1e-6}, None),
    "all-reduce": ({}, lambda r: {"reduces": 0 * r.reduces, "reduce_bytes": 0 * r.reduce_bytes}),
    "all-to-all": (
        {},
        lambda r: {
            "exchanges": 0 * r.exchanges,
            "decode_exchange_bytes": 0 * r.exchanges,
            "prefill_exchange_bytes": 0 * r.exchanges,
        },
    ),
    "latency of the network": (
        {},
        lambda r: {"reduce_remote": 0 * r.reduce_remote, "exchange_remote": 0 * r.exchange_remote},
    ),
    "unpacking of 4-bit experts": ({}, lambda r: {"packed": 0 * r.packed}),
    "tiles of experts in prefill": ({}, lambda r: {"expert_row_time": 0 * r.expert_row_time}),
    "experts' share in prefill": ({"expert_prefill_share": 1.0}, None),
    "unabsorbed prefill": ({}, lambda r: {"prefill_attention": r.decode_attention}),
    "copies merged per node": ({}, lambda r: {"prefill_exchange_bytes": r.decode_exchange_bytes}),
    "memory that holds the sequences": ({}, lambda r: {"room": 1e6 * abs(r.room)}),
}
"""Term: constants that put it out of force, or what is changed in the counts of a GPU."""


def score(runs: Runs, rates: Rates, points: Rates, **fixed: float) -> list[str]:
    """Errors of TPOT in sample, with each system and each model left out (all; disaggregated), TTFT with few clients,
    prefill rates.
    """
    c = fit(runs, rates, **fixed)
    served = serve(runs.loop, runs.decode, runs.prefill, c)
    cells = []
    by_system, by_model = (left_out(runs, rates, group, c, **fixed).tpot for group in (system_of, architecture_of))
    for ratio in (served.tpot / runs.tpot, by_system, by_model):
        cells += [figures(error(ratio)), figures(error(ratio)[runs.apart])]
    clean = np.array([p.id in CLEAN for p in points.points])
    found = error(points.predicted(c) / points.measured)
    return [*cells, figures(error(served.ttft / runs.ttft)[runs.few]), figures(found[clean]), figures(found)]


CLEAN = ("A1", "A2", "A3", "A4", "A7", "A8")
"""Prefill rates of engines that do nothing else: SGLang EP32 on H100 and GB200."""


def ablation(runs: Runs, rates: Rates, points: Rates) -> None:
    """Print what the errors are without each term."""
    head = "term left out | in sample | disagg | system out | disagg | model out | disagg | TTFT | prefill clean | all"
    print(head)
    print(" | ".join(["none", *score(runs, rates, points)]), flush=True)
    for term, (fixed, change) in WITHOUT.items():
        changed = runs if change is None else _changed(runs, change)
        engine = points.engine if change is None else msgspec.structs.replace(points.engine, **change(points.engine))
        other = msgspec.structs.replace(points, engine=engine)
        fitted = [i for i, point in enumerate(points.points) if point.id not in LEFT_OUT]
        part = rates if change is None else _rates_part(other, fitted)
        print(" | ".join([term, *score(changed, part, other, **fixed)]), flush=True)
    print(" | ".join(["occupancy of closed loops", *score(_prefill_free(runs), rates, points)]))


def _rates_part(rates: Rates, kept: Sequence[int]) -> Rates:
    def part(record: Any) -> Any:
        if isinstance(record, Curve):
            slopes, spans = (tuple(x[list(kept)] for x in side) for side in (record.slopes, record.spans))
            return Curve(fixed=record.fixed[list(kept)], slopes=slopes, spans=spans)
        if isinstance(record, msgspec.Struct):
            return type(record)(**{f: part(getattr(record, f)) for f in record.__struct_fields__})
        return record[list(kept)]

    return Rates(
        points=tuple(rates.points[i] for i in kept),
        **{f: part(getattr(rates, f)) for f in Rates.__struct_fields__ if f != "points"},
    )


def residuals_by(runs: Runs, ratio: Any) -> None:
    """Print the bias and the errors of TPOT by system and model, engine, tp, batch and lengths."""
    keys: dict[str, Callable[[Run], str]] = {
        "system, model": lambda r: f"{r.system} {r.model} {r.precision}",
        "engine": lambda r: f"{r.system} {r.engine}",
        "tp, dp, ep": lambda r: f"{r.mode} tp {r.tp} dp {r.dp} ep {r.ep}",
        "sequences a rank": lambda r: f"{4 ** int(np.log2(r.sequences or 1) // 2)} and more",
        "lengths": lambda r: f"{r.prompt_tokens:g} + {r.output_tokens:g}",
    }
    for title, key in keys.items():
        print(f"-- by {title}: runs, median predicted/measured, error")
        groups = defaultdict(list)
        for index, run in enumerate(runs.rows):
            groups[key(run)].append(index)
        for name, where in sorted(groups.items()):
            part = ratio[where]
            print(f"  {name}: {len(where)}, {np.median(part):.2f}, {figures(error(part))}")


# ---------------------------------------------------------------- intervals and the file


FEW_ROWS = 20
"""Classes with fewer rows have all of them inside their interval."""


def interval(ratios: Any, least: tuple[float, float] = (1.0, 1.0)) -> dict[str, float]:
    """10 % and 90 % of measured/predicted, at least as wide as ``least``; least and most where rows are few."""
    tail = 0.0 if len(ratios) < FEW_ROWS and least != (1.0, 1.0) else 0.1
    low, high = np.quantile(1 / np.asarray(ratios), [tail, 1 - tail])
    low, high = min(float(low), least[0]), max(float(high), least[1])
    return {"low": float(f"{low:.3g}"), "high": float(f"{high:.3g}"), "rows": len(ratios)}


def remote(runs: Runs) -> Any:
    """Runs whose collectives cross NICs."""
    sides = (runs.decode.reduce_remote, runs.decode.exchange_remote, runs.prefill.exchange_remote)
    return np.maximum.reduce(sides) > 0


def intervals(runs: Runs, rates: Rates, points: Sequence[Point], c: Constants) -> dict[str, Any]:
    """Intervals by quantity and class, from residuals of what was left out of the fit.

    ``other_vendor`` and ``network`` add published points that no fit saw: six of AMD GPUs, four across nodes.
    """
    systems, models = left_out(runs, rates, system_of, c), left_out(runs, rates, architecture_of, c)
    across = remote(runs)
    step = {p.id: predicted_point(p, c) / p.measured for p in points if p.kind == "tpot"}
    network_points = [step[name] for name in ("C1", "C12", "C14", "C27")]
    vendor_points = [step[p.id] for p in points if p.kind == "tpot" and p.hardware.gpu.kind.startswith("MI")]
    found: dict[str, Any] = {}
    for name, first, second in (("tpot", systems.tpot, models.tpot), ("ttft", systems.ttft, models.ttft)):
        usual = interval(first)
        span = (usual["low"], usual["high"])
        found[name] = {
            "usual": usual,
            "unseen": interval(second, span),
            # TTFT of the runs over nodes is the start of their workers, seconds that are no network's
            "network": interval([*second[across], *network_points], span) if name == "tpot" else interval(second, span),
            "other_vendor": interval(vendor_points, span),
        }
    one = np.array([_left_out_rate(runs, rates, i, c) for i in range(len(rates.points))])
    usual = interval(one)
    span = (usual["low"], usual["high"])
    found["prefill_rate"] = {
        "usual": usual,
        "unseen": interval(one, span),
        "network": interval(one, span),
        "other_vendor": interval(1 / np.array(vendor_points), span),
    }
    return found


def _left_out_rate(runs: Runs, rates: Rates, index: int, near: Constants) -> float:
    others = [i for i in range(len(rates.points)) if i != index]
    c = fit(runs, _rates_part(rates, others), near)
    return float((rates.predicted(c) / rates.measured)[index])


HEAD = """\
# Constants of dualplan/model/roofline.py, and the intervals of what it predicts. Times in s; shares of a peak or rate.
# Written by `python -m tests.published.fit_roofline --write` from the runs of measured/. What each is stands in
# dualplan/spec/constants.py, how they are fitted in the script; hbm_share is set. Interval factors are 10 and 90 % of
# measured/predicted of runs whose system (usual) or model (unseen) was left out of the fit.
"""


def file_text(runs: Runs, rates: Rates, points: Sequence[Point]) -> str:
    """The text of roofline.yaml."""
    c = rounded(fit(runs, rates))
    lines = ["constants:"]
    lines += [f"  {name}: {value:g}" for name, value in msgspec.structs.asdict(c).items()]
    profiles = {profile.name for r in runs.rows if (profile := hardware_of(r.system)) is not None}
    lines.append(f"models: [{', '.join(sorted({architecture_of(r) for r in runs.rows}))}]")
    lines.append(f"systems: [{', '.join(sorted(profiles))}]")
    for quantity, classes in intervals(runs, rates, points, c).items():
        lines.append(f"{quantity}:")
        for name, value in classes.items():
            lines.append(f"  {name}: {{low: {value['low']:g}, high: {value['high']:g}, rows: {value['rows']}}}")
    return HEAD + "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Print or write the file of constants, or report."""
    runs, out = shipped_runs()
    points = published_points()
    every = rates_of([p for p in points if p.kind.startswith("pre/")])
    rates = _rates_part(every, [i for i, p in enumerate(every.points) if p.id not in LEFT_OUT])
    if "--report" not in arguments:
        text = file_text(runs, rates, points)
        if "--write" in arguments:
            (DATA / "roofline.yaml").write_text(text, encoding="utf-8")
        sys.stdout.write(text)
        return
    print(f"{len(runs.rows)} runs fitted; left out:")
    for run, reason in out:
        print(f"  line {run.line}, {run.model} on {run.system}: {reason}")
    c = rounded(fit(runs, rates))
    served = serve(runs.loop, runs.decode, runs.prefill, c)
    residuals_by(runs, served.tpot / runs.tpot)
    for point in points:
        ratio = predicted_point(point, c) / point.measured
        print(f"  {point.id} {point.kind} {point.hardware.name}, {point.source}: {ratio:.2f}")
    for group in (system_of, architecture_of):
        rest = left_out(runs, rates, group, c)
        for name in sorted(set(rest.groups)):
            print(f"  without {name}: {figures(error(rest.tpot[rest.groups == name]))}")
    ablation(runs, rates, every)


if __name__ == "__main__":
    main(sys.argv[1:])
