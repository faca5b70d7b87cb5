"""Options that give prices: of plan and of report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dualplan.units import number, positive

if TYPE_CHECKING:
    from dualplan.plan.purchase.cost import Prices

T = TypeVar("T")
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
    from dualplan.plan.purchase.cost import Prices

    hours = None if lifetime is None else positive(lifetime, "s", "--lifetime", "such as 1460d") / 3600
    return Prices(
        per_hour=named(price, "--price", names, money, "USD"),
        lifetime_hours=hours,
        energy=0.0 if energy is None else money(energy, "--energy-price"),
        snic_per_hour=0.0 if snic is None else money(snic, "--snic-price"),
    )


def named(
    given: list[str] | None, flag: str, names: set[str], read: Callable[[str, str], T], value_name: str
) -> dict[str, T]:
    """``NAME=VALUE`` texts as a mapping of candidate names. Raises InputError for names that are none."""
    from dualplan.errors import InputError, did_you_mean

    found: dict[str, T] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InputError(flag, f'"{text[:60]}" is not NAME={value_name}')
        if name not in names:
            hint = did_you_mean(name, names) or "candidates: " + ", ".join(sorted(names))
            raise InputError(flag, f'"{name[:60]}" is not among the candidates', hint)
        found[name] = read(value, flag)
    return found


def money(text: str, flag: str) -> float:
    """USD, with or without the unit. Raises InputError."""
    clean = text.strip().removesuffix("/kWh").removesuffix("/hour").removesuffix("/h").strip().removesuffix("USD")
    return number(clean, flag, least=0.0, most=1e12)
