"""One copy of each equation, read as symbols: published formulas derived, units proved, arrays and floats agreeing."""

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

from dualplan.model import closed_form as cf
from dualplan.model import collectives, latency
from dualplan.model.roofline import Rank, decode_step, prefill_pass
from dualplan.model.service_times import Curve
from dualplan.model.traffic import Bytes, path_loads, steps
from dualplan.spec.constants import Constants

s, g, B, M, mu, nu, rho, u = sp.symbols("s g B M mu nu rho u", positive=True)


def shares(name, **amounts):
    """Bytes on a resource for each byte of hit, under either read path."""
    turn = Bytes(hit=1, read=1, loaded=1, miss=mu, append=mu, generated=nu, **amounts)
    return path_loads(steps("dual-path"), turn)[name]


@pytest.mark.parametrize(
    ("name", "capacity", "load"),
    [
        # r = s B / g for each engine, so a node carries g r = s B times these
        ("prefill_cnic_read", g * B, 2 + mu * (1 + 1 / rho)),
        ("prefill_cnic_write", g * B, 1 + 1 / rho),
        ("decode_cnic_read", g * B, rho * (1 + mu + nu) + 2 + mu + nu),
        ("decode_cnic_write", g * B, rho * (2 + 2 * mu + nu) + 1 + 2 * mu + nu),
        ("prefill_dram", M, 2),
        ("decode_dram", M, 3 + 2 * rho + 3 * mu * (1 + rho) + 2 * nu * (1 + rho)),
        ("decode_snic_egress", s * B, (mu + nu) * (1 + rho)),
    ],
)
def test_loads_are_the_published_left_hand_sides(name, capacity, load):
    side = cf.prefill_side_load if name.startswith("prefill") else cf.decode_side_load
    assert sp.simplify(side(rho, s * B, s * B, *shares(name)) - s * B * load) == 0


@pytest.mark.parametrize(
    ("name", "capacity", "bound", "published"),
    [
        ("prefill_cnic_write", g * B, cf.lower_bound, s / (g - s)),
        ("decode_cnic_read", g * B, cf.upper_bound, (g - 2 * s) / s),
        ("decode_cnic_write", g * B, cf.upper_bound, (g - s) / (2 * s)),
        ("decode_dram", M, cf.upper_bound, (M / (s * B) - 3) / 2),
    ],
)
def test_bounds_are_the_published_ones_for_hit_bytes(name, capacity, bound, published):
    found = bound(capacity, s * B, s * B, *shares(name)).subs({mu: 0, nu: 0})
    assert sp.simplify(found - published) == 0


def test_a_bound_is_where_the_load_equals_the_capacity():
    C, Sp, Sd, ap, ad = sp.symbols("C S_p S_d a_p a_d", positive=True)
    low, high = cf.lower_bound(C, Sp, Sd, ap, ad), cf.upper_bound(C, Sp, Sd, ap, ad)
    assert sp.simplify(cf.prefill_side_load(low, Sp, Sd, ap, ad) - C) == 0
    assert sp.simplify(cf.decode_side_load(high, Sp, Sd, ap, ad) - C) == 0


BYTE, SECOND = sp.symbols("byte second", positive=True)
RATE = BYTE / SECOND


def quantity(name, unit=sp.Integer(1)):
    return sp.Symbol(name, positive=True) * unit


def unit_of(expression):
    """Unit of an expression whose symbols carry units; an error if its terms do not have the same one."""
    powers = {}
    expression = sp.together(sp.expand(expression))
    for symbol in (BYTE, SECOND):
        scale = sp.Symbol("scale", positive=True)
        ratio = sp.simplify(expression.subs(symbol, scale * symbol) / expression)
        power = sp.simplify(sp.log(ratio) / sp.log(scale))
        power = sp.simplify(sp.expand_log(power, force=True))
        assert power.is_number, f"{expression} mixes units"
        powers[symbol] = power
    return sp.prod(symbol**power for symbol, power in powers.items())


def test_units():
    C, Sp, Sd = (quantity(name, RATE) for name in ("C", "Sp", "Sd"))
    ap, ad, ratio = quantity("ap"), quantity("ad"), quantity("rho")
    assert unit_of(cf.prefill_side_load(ratio, Sp, Sd, ap, ad)) == RATE
    assert unit_of(cf.decode_side_load(ratio, Sp, Sd, ap, ad)) == RATE
    assert unit_of(cf.lower_bound(C, Sp, Sd, ap, ad)) == 1
    assert unit_of(cf.upper_bound(C, Sp, Sd, ap, ad)) == 1
    assert unit_of(cf.pair_traffic_prefill_read(Sp, *(quantity(n) for n in "abc"))) == RATE
    size, rate, time = quantity("H", BYTE), quantity("r", RATE), quantity("t", SECOND)
    assert unit_of(latency.read_time(size, rate, time)) == SECOND
    assert unit_of(latency.effective_read_rate(size, rate, time)) == RATE
    b, x, n = quantity("b"), quantity("x", 1 / SECOND), quantity("n")
    t0, t1 = quantity("t0", SECOND), quantity("t1", SECOND)
    assert unit_of(latency.time_per_output_token(t0, t1, b)) == SECOND
    assert unit_of(latency.turn_rate_at_batch(t0, t1, b, n)) == 1 / SECOND
    assert unit_of(latency.batch_at_turn_rate(t0, t1, x, n)) == 1
    assert unit_of(latency.batch_at_tpot(t0, t1, time)) == 1
    with pytest.raises(AssertionError, match="mixes units"):
        unit_of(size + rate)


def with_units(record, *, rates="", sizes="", seconds="", curves=None):
    """A record of symbols: rates and bytes by name, seconds, and numbers."""
    units = (
        dict.fromkeys(rates.split(), RATE) | dict.fromkeys(sizes.split(), BYTE) | dict.fromkeys(seconds.split(), SECOND)
    )
    curves = curves or {}
    fields = {name: quantity(name, units.get(name, sp.Integer(1))) for name in record.__struct_fields__}
    return record(**fields | {name: Curve(quantity(name, unit)) for name, unit in curves.items()})


def test_units_of_the_roofline():
    rank = with_units(
        Rank,
        rates="hbm link nic",
        sizes="weights experts vector_bytes room held_per_token held_per_sequence reduce_bytes decode_exchange_bytes "
        "prefill_exchange_bytes",
        seconds="dense_time expert_time expert_row_time head_time",
        curves={"cache": BYTE, "decode_attention": SECOND, "prefill_attention": SECOND},
    )
    times = "kernel_time sequence_time reduce_latency network_latency exchange_latency host_launch_time"
    constants = with_units(Constants, seconds=times)
    d, p = decode_step(rank, constants), prefill_pass(rank, constants)
    for coefficient in (d.base, d.slope, d.experts, d.cache.fixed, p.base, p.experts, p.per_request, p.per_token):
        assert unit_of(coefficient) == SECOND
    for coefficient in (p.attention.fixed, p.per_token_hidden, p.per_token_link):
        assert unit_of(coefficient) == SECOND


def test_inverses():
    base, slope, batch, n, tpot = sp.symbols("t_0 t_1 b n tau", positive=True)
    rate = latency.turn_rate_at_batch(base, slope, batch, n)
    assert sp.simplify(latency.batch_at_turn_rate(base, slope, rate, n) - batch) == 0
    assert sp.simplify(latency.time_per_output_token(base, slope, latency.batch_at_tpot(base, slope, tpot)) - tpot) == 0


@pytest.mark.parametrize("held", [0.0, 0.05, 3.0])
def test_slots_are_shared_between_waiting_and_decoding(held):
    base, slope, slots, n = 0.02, 0.0005, 16.0, 120.0
    batch = latency.decoding_batch(base, slope, slots, n, held)
    rate = latency.turn_rate_at_batch(base, slope, batch, n)
    assert rate * (n * latency.time_per_output_token(base, slope, batch) + held) == pytest.approx(slots)
    assert latency.decoding_batch(base, 0, slots, n, held) == pytest.approx(slots * n * base / (n * base + held))


def test_arrays_fractions_and_floats_agree():
    lower = cf.lower_bound(np.array([400e9, 200e9]), 50e9, 50e9, 1.0, 1.0)
    assert lower.tolist() == pytest.approx([1 / 7, 1 / 3])
    assert cf.lower_bound(Fraction(400), Fraction(50), Fraction(50), 1, 1) == Fraction(1, 7)


def test_collective_messages_of_deepep():
    # tests/legacy of DeepEP at hidden 7,168: 7,392 B dispatch in fp8 with scales, 14,336 B combine in bf16
    h = sp.Symbol("h", positive=True)
    assert collectives.dispatch_bytes(h).subs(h, 7168) == 7392
    assert collectives.combine_bytes(h).subs(h, 7168) == 14336
