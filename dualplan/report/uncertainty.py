"""How sure a verdict is, for people and for machines."""

from __future__ import annotations

from typing import Any

from dualplan.plan.uncertainty import FAULT_TITLES, Influence, Uncertainty
from dualplan.report.blocks import MORE, Table, table
from dualplan.report.records import pick
from dualplan.units import show, significant

RUN = """
    samples seed evaluations feasible_share feasible_share_error=share_error turns_per_s failures decides measure_next
"""
INFLUENCE = """
    key value=text unit rank_correlation=correlation rate_index_first=first rate_index_first_error=first_error
    rate_index_total=total verdict_index_total=verdict_total flips_at feasible_above
"""
SHOWN = 5
"""Values that people are shown."""

LITTLE = 0.005
"""An index below this is named as one that does not matter."""


def document(found: Uncertainty) -> dict[str, Any]:
    """The JSON of ``uncertainty``."""
    return pick(found, RUN) | {
        "influences": [pick(one, INFLUENCE) | {"unit": one.unit or None} for one in found.influences]
    }


def facts(found: Uncertainty) -> list[tuple[str, str]]:
    """The answer as key and text: how robust, why not, what decides, what to measure."""
    rate = found.turns_per_s
    share = _share(found.feasible_share, found.samples)
    strength = _strength(found.feasible_share)
    text = [("Robust", f"{share} of {found.samples:,} samples are feasible ({strength})")]
    quantiles = ", ".join(f"{name} {significant(rate[name])}" for name in ("p5", "p50", "p95"))
    text.append(("Rate", f"{quantiles} turns/s over the samples"))
    failing = sorted(((name, part) for name, part in found.failures.items() if part), key=lambda one: -one[1])
    if failing:
        missed = (f"{FAULT_TITLES[name]} in {_share(part, found.samples)}" for name, part in failing)
        text.append(("Missed", ", ".join(missed)))
    if found.decides is None:
        return [*text, ("Decides", "nothing: none of the uncertain values changes rate or verdict")]
    top, *others = found.influences
    text.append(("Decides", f"{top.key}: {_influence(top)}"))
    text += [(MORE, f"{one.key}: {_influence(one)}") for one in others[: SHOWN - 1] if _matters(one)]
    idle = [one.key for one in found.influences if not _matters(one)]
    if idle:
        text.append(("No matter", ", ".join(idle)))
    if found.measure_next is not None:
        text.append(("Measure", f"{found.measure_next} next: {_worth(found)}"))
    return text


def _share(part: float, samples: int) -> str:
    """Per cent; what is not all or nothing is not rounded to it."""
    if part in (0, 1) or samples < 100:
        return f"{100 * part:.0f} %"
    return f"{min(max(100 * part, 0.1), 99.9):.1f} %"


def _strength(share: float) -> str:
    for least, words in ((1.0, "robust"), (0.95, "nearly sure"), (0.5, "more likely than not"), (1e-9, "unlikely")):
        if share >= least:
            return words
    return "not in any of them"


def _matters(one: Influence) -> bool:
    return max(one.total, one.verdict_total or 0.0) >= LITTLE


def _influence(one: Influence) -> str:
    parts = []
    if one.verdict_total is not None:
        parts.append(f"index {one.verdict_total:.2f} of the verdict")
    direction = "" if abs(one.correlation) < 0.1 else (", rising" if one.correlation > 0 else ", falling")
    parts.append(
        f"{one.total:.2f} of the rate{direction}" if parts else f"index {one.total:.2f} of the rate{direction}"
    )
    if one.flips_at is not None:
        side = "above" if one.feasible_above else "below"
        parts.append(f"feasible {side} {value_text(one.flips_at, one.unit)} with the others at their centres")
    return ", ".join(parts)


def value_text(value: float, unit: str) -> str:
    """A value of a key with its unit."""
    return show(value, unit) if unit not in ("", "1") else significant(value)


def _worth(found: Uncertainty) -> str:
    """What knowing the value that should be measured is worth."""
    one = next(one for one in found.influences if one.key == found.measure_next)
    if one.verdict_total:
        return f"it is what the verdict hangs on most, now {one.text}"
    left = max(1 - one.first, 0.0) ** 0.5
    return f"known exactly, the spread of the rate falls by {100 * (1 - left):.0f} %"


def influences(found: Uncertainty) -> Table:
    """What each uncertain value does to verdict and rate."""
    rows = []
    for one in found.influences:
        verdict = "-" if one.verdict_total is None else f"{one.verdict_total:.2f}"
        flips = "-" if one.flips_at is None else value_text(one.flips_at, one.unit)
        side = "" if one.feasible_above is None else ("above " if one.feasible_above else "below ")
        rows.append((one.key, one.text, verdict, f"{one.total:.2f}", side + flips))
    header = ("uncertain value", "is", "index of the verdict", "index of the rate", "feasible")
    return table("", header, rows, "llrrl")
