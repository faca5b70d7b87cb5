"""What nodes cost and draw, by the hour. Prices are the profile's or given; nothing is made up where one is unknown."""

from __future__ import annotations

import msgspec

from dualplan.messages import Message, message
from dualplan.spec.hardware import Hardware, source_of


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes are priced. ``per_hour``: profile name -> USD of a node-hour, before what the profile says.

    ``lifetime_hours``: what a purchase price is spread over, evenly; None leaves nodes with nothing but a purchase
    price without an hourly one. ``energy``: USD of a kWh, added to bought nodes at their full power; ``snic_per_hour``:
    USD an hour of a storage NIC more than the profile has.
    """

    per_hour: dict[str, float] = {}
    lifetime_hours: float | None = None
    energy: float = 0.0
    snic_per_hour: float = 0.0


def node_price(hardware: Hardware, prices: Prices, extra_snics: int = 0) -> float | None:
    """USD of a node-hour: as given, as rented, or bought and written off. None where none of them is known."""
    cost = hardware.cost
    more = extra_snics * prices.snic_per_hour
    hourly = prices.per_hour.get(hardware.name, cost.price_per_hour)
    if hourly is not None:
        return hourly + more
    if cost.price is None or prices.lifetime_hours is None:
        return None
    if prices.energy and cost.power is None:
        return None
    return cost.price / prices.lifetime_hours + prices.energy * (cost.power or 0.0) / 1000 + more


def price_origin(hardware: Hardware, prices: Prices) -> Message:
    """Where the price of a node-hour comes from, or why there is none."""
    cost = hardware.cost
    if hardware.name in prices.per_hour:
        return message("price.given")
    if cost.price_per_hour is not None:
        return message("price.rent")
    if cost.price is None:
        return message("price.unknown")
    if prices.lifetime_hours is None:
        return message("price.no_lifetime")
    if prices.energy and cost.power is None:
        return message("price.no_power")
    return message("price.purchase")


def price_source(hardware: Hardware, prices: Prices) -> str | None:
    """Where the profile has the price from that is used; None where it is given, or there is none."""
    if hardware.name in prices.per_hour:
        return None
    cost = hardware.cost
    if cost.price_per_hour is not None:
        return source_of(hardware, "cost.price_per_hour")
    return None if cost.price is None else source_of(hardware, "cost.price")
