"""Published ranges of P/D, in exact rationals, and the paper's own formulas as a second formulation."""

from fractions import Fraction as F

import pytest

from dualplan.model.closed_form import (
    Constraint,
    decode_side_load,
    feasible_range,
    pair_traffic_decode_read,
    pair_traffic_prefill_read,
    prefill_side_load,
)
from dualplan.model.traffic import Bytes, path_loads, steps

NODE_LINKS = ("prefill_cnic_read", "prefill_cnic_write", "decode_cnic_read", "decode_cnic_write")
REST = ("prefill_dram", "decode_dram", "decode_snic_egress")


def pd_range(s, *, mu=F(0), nu=F(0), u=F(0), dram=F(500), g=8, rate=F(50), collectives=(0, 0)):
    amounts = Bytes(
        hit=1,
        read=1,
        loaded=1,
        miss=mu,
        append=mu,
        generated=nu,
        prefill_collective=collectives[0],
        decode_collective=collectives[1],
    )
    by_path = path_loads(steps("dual-path"), amounts)
    capacity = (
        dict.fromkeys(NODE_LINKS, g * rate * (1 - u))
        | dict.fromkeys(("prefill_dram", "decode_dram"), dram)
        | {"decode_snic_egress": s * rate}
    )
    rows = [
        Constraint(name, name.split("_")[0], capacity[name], *by_path.get(name, (0, 0)))
        for name in (*NODE_LINKS, *REST)
    ]
    return feasible_range(rows, s * rate, s * rate)


@pytest.mark.parametrize(
    ("case", "lower", "upper", "constraints"),
    [
        (dict(s=1), F(1, 7), F(7, 2), ("decode_cnic_write", "decode_dram")),
        (dict(s=2), F(1, 3), F(1), ("decode_dram",)),
        (dict(s=1, u=F(1, 2)), F(1, 3), F(3, 2), ("decode_cnic_write",)),
        (dict(s=1, dram=F(250)), F(1, 7), F(1), ("decode_dram",)),
        (dict(s=1, mu=F(1, 4), nu=F(1, 10)), F(5, 27), F(13, 7), ("decode_snic_egress",)),
    ],
)
def test_published_ranges(case, lower, upper, constraints):
    found = pd_range(**case)
    # prefill_cnic_write does not carry the miss; prefill_cnic_read does, and binds the lower end where the miss is
    # large
    assert found.upper == upper
    assert found.upper_constraints == constraints
    if "mu" not in case:
        assert found.lower == lower
        assert found.lower_constraints == ("prefill_cnic_write",)


@pytest.mark.parametrize(
    ("case", "because"),
    [
        (dict(s=4), ("decode_cnic_read", "decode_dram")),
        (dict(s=1, u=F(4, 5)), ("prefill_cnic_read", "decode_cnic_read")),
    ],
)
def test_published_empty_ranges(case, because):
    found = pd_range(**case)
    assert found.lower is None and found.upper is None
    assert found.empty_because == because
    assert not found.contains(F(1))


def test_64k_row_as_it_stands():
    found = pd_range(1, mu=F(429, 32721), nu=F(176, 32721))
    assert float(found.upper) == pytest.approx(3.39, abs=0.005)
    assert found.upper_constraints == ("decode_dram",)


def test_two_that_exclude_each_other_are_named():
    found = pd_range(1, u=F(7, 10))
    # C = 120: rho >= 50/70 from prefill_cnic_write, rho <= (120-100)/50 from decode_cnic_read
    assert found.empty_because == ("prefill_cnic_write", "decode_cnic_read")


@pytest.mark.parametrize("s", [F(1, 2), F(1), F(2), F(3)])
@pytest.mark.parametrize(
    ("mu", "nu", "u"), [(F(0), F(0), F(0)), (F(1, 9), F(1, 30), F(1, 10)), (F(1, 4), F(1, 10), F(1, 3))]
)
def test_domain_formulas(s, mu, nu, u):
    """The closed forms written out for s, g, B, mu, nu, u, against the bounds that the step table gives."""
    g, rate, dram = 8, F(50), F(500)
    c = (1 - u) * g / s  # capacity in units of r
    lowers = [1 / (c - 1), mu / (c - 2 - mu)] if c > 2 + mu else None
    uppers = [
        (c - 2 - mu - nu) / (1 + mu + nu),
        (c - 1 - 2 * mu - nu) / (2 + 2 * mu + nu),
        (dram / (s * rate) - 3 - 3 * mu - 2 * nu) / (2 + 3 * mu + 2 * nu),
    ] + ([1 / (mu + nu) - 1] if mu + nu else [])
    found = pd_range(s, mu=mu, nu=nu, u=u)
    if lowers is None or min(uppers) <= 0 or max(lowers) > min(uppers):
        assert found.empty_because
    else:
        assert (found.lower, found.upper) == (max(lowers), min(uppers))


def test_derived_collectives_narrow_both_ends():
    # DeepSeek-V3.2 on the 64K set: c_p/H = 0.75 (R = 2.2): rho >= 1/(8/1.75 - 1) = 0.28; c_d/H = 0.85 (EP32) and 1.07
    # (EP144)
    for decode_collective, upper in ((F(85, 100), 2.12), (F(107, 100), 1.90)):
        found = pd_range(1, mu=F(429, 32721), nu=F(176, 32721), collectives=(F(3, 4), decode_collective))
        assert float(found.lower) == pytest.approx(0.28, abs=0.005)
        assert float(found.upper) == pytest.approx(upper, abs=0.01)
        assert found.upper_constraints == ("decode_cnic_write",)


def test_pair_traffic_of_sides_that_differ():
    # 48 GB/s of a node, spread over 2 nodes of the other side and 3 x 4 pairs of GPUs with each
    assert pair_traffic_prefill_read(48, 2, 3, 4) == pair_traffic_decode_read(48, 2, 3, 4) == 2


def test_loads_of_one_node_with_all_storage_nics_busy():
    # one prefill node to two decode nodes: prefill reads put 1 B a byte on it and decode reads 2 B
    busy = {"pd_ratio": F(1, 2), "prefill_storage": 50, "decode_storage": 40, "prefill_share": 1, "decode_share": 2}
    assert prefill_side_load(**busy) == 50 * 1 + 2 * 40 * 2
    assert decode_side_load(**busy) == 50 * 1 / 2 + 40 * 2


def test_pair_traffic_adds_up_to_the_storage_bandwidth():
    storage, prefill_nodes, decode_nodes, g = F(50), 2, 4, 8
    pairs = prefill_nodes * g * decode_nodes * g
    assert pair_traffic_prefill_read(storage, decode_nodes, g, g) * pairs == prefill_nodes * storage
    assert pair_traffic_decode_read(storage, prefill_nodes, g, g) * pairs == decode_nodes * storage
