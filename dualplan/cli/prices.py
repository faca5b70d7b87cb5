"""Options that give prices: of plan and of report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dualplan.plan.purchase.cost import Prices

PriceOption = Annotated[
    list[str] | None, typer.Option("--price", metavar="NAME=USD", help="USD of a node-hour of a profile; repeatable.")
]
LifetimeOption = Annotated[
    str | None,
    typer.Option("--lifetime", metavar="TIME", help="What purchase prices are spread over, such as 1460d."),
]


def prices_of(
    price: list[str] | None,
    lifetime: str | None,
    names: set[str],
    *,
    energy: str | None = None,
    snic: str | None = None,
) -> Prices:
    """Prices of nodes as flags give them; ``names`` are the profiles that may have one. Raises InputError."""
    from dualplan.errors import InputError
    from dualplan.plan.purchase.cost import Prices
    from dualplan.units import parse

    hours = None if lifetime is None else parse(lifetime, "s", "--lifetime") / 3600
    if hours is not None and not hours > 0:
        raise InputError("--lifetime", f'"{lifetime}" is no time', "such as 1460d")
    return Prices(
        per_hour=named(price, "--price", names),
        lifetime_hours=hours,
        energy=0.0 if energy is None else money(energy, "--energy-price"),
        snic_per_hour=0.0 if snic is None else money(snic, "--snic-price"),
    )


def named(given: list[str] | None, flag: str, names: set[str], *, whole: bool = False) -> dict[str, float]:
    """``NAME=VALUE`` texts as a mapping of candidate names. Raises InputError for names that are none."""
    from dualplan.errors import InputError, did_you_mean

    found: dict[str, float] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InputError(flag, f'"{text[:60]}" is not NAME={"N" if whole else "USD"}')
        if name not in names:
            hint = did_you_mean(name, names) or "candidates: " + ", ".join(sorted(names))
            raise InputError(flag, f'"{name[:60]}" is not among the candidates', hint)
        found[name] = number(value, flag, least=0.0, whole=True) if whole else money(value, flag)
    return found


def money(text: str, flag: str) -> float:
    """USD, with or without the unit. Raises InputError."""
    clean = text.strip().removesuffix("/kWh").removesuffix("/hour").removesuffix("/h").strip().removesuffix("USD")
    return number(clean, flag, least=0.0)


def number(text: str, flag: str, *, least: float, whole: bool = False) -> float:
    """A plain number of at least ``least``. Raises InputError."""
    import math

    from dualplan.errors import InputError

    kind = "a whole number" if whole else "a number"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (least <= value < 1e12) or (whole and value != int(value)) or "_" in text:
        raise InputError(flag, f'"{text.strip()[:40]}" is not {kind} of {least:g} or more')
    return value
