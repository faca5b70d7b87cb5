"""A packet-level arbiter, written from the rules and not from the closed form, against the closed form.

The arbiter sends one packet after the other: two tables of turns, a count of high-priority bytes, queues that fill at
a given load. With backlogged lanes it runs until its state repeats, so shares are exact and compared for equality.
"""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualplan.flow.arbitration import exact_shares, shares
from dualplan.spec.qos import LaneTables


class Table:
    """A ring of entries; the current one sends while it has weight left and its lane has a packet."""

    def __init__(self, entries):
        self.entries = [(lane, 64 * weight) for lane, weight in entries if weight]
        self.index = 0
        self.left = self.entries[0][1] if self.entries else 0

    def pick(self, waiting):
        for _ in range(len(self.entries) + 1):
            if not self.entries:
                return None
            lane = self.entries[self.index][0]
            if self.left > 0 and waiting(lane):
                return lane
            self.index = (self.index + 1) % len(self.entries)
            self.left = self.entries[self.index][1]
        return None

    def state(self):
        # an entry that is used up stands for the next one, untouched
        if self.entries and self.left <= 0:
            following = (self.index + 1) % len(self.entries)
            return following, self.entries[following][1]
        return self.index, self.left


class Arbiter:
    """``percent``: load of lanes that are not backlogged; all others are silent."""

    def __init__(self, tables, sizes, backlogged, percent):
        self.high, self.low = Table(tables.high), Table(tables.low)
        self.limit = None if tables.high_limit == 255 else 4096 * tables.high_limit
        self.sizes, self.backlogged, self.percent = sizes, set(backlogged), percent
        self.time = 0  # bytes that the link could have sent
        self.count = 0  # bytes of the high table since the last packet of the low one
        self.sent = dict.fromkeys(sizes, 0)

    def waiting(self, lane):
        if lane in self.backlogged:
            return True
        load = self.percent.get(lane, 0)
        # a packet is there as soon as its last byte has arrived
        return load > 0 and self.time * load >= 100 * (self.sent[lane] + self.sizes[lane])

    def step(self):
        """One packet, or the time of 64 bytes with nothing to send."""
        expired = self.limit is not None and self.count >= max(self.limit, 1)
        lane = None
        if not expired:
            lane = self.high.pick(self.waiting)
            table = self.high
        if lane is None:
            lane = self.low.pick(self.waiting)
            table = self.low
        if lane is None and expired:
            lane = self.high.pick(self.waiting)
            table = self.high
        if lane is None:
            self.time += 64
            return
        size = self.sizes[lane]
        table.left -= size
        self.time += size
        self.sent[lane] += size
        if table is self.low:
            self.count = 0
        elif self.limit is not None:
            self.count = min(self.count + size, self.limit + size)

    def state(self):
        return self.high.state(), self.low.state(), self.count


def shares_by_packets(tables, sizes, backlogged):
    """Exact long-run shares of backlogged lanes: bytes between two equal states."""
    arbiter = Arbiter(tables, sizes, backlogged, {})
    seen = {}
    while arbiter.state() not in seen:
        seen[arbiter.state()] = (arbiter.time, dict(arbiter.sent))
        arbiter.step()
        assert len(seen) < 2_000_000
    time, sent = seen[arbiter.state()]
    return {lane: Fraction(arbiter.sent[lane] - sent[lane], arbiter.time - time) for lane in backlogged}


weights = st.integers(0, 255)


@st.composite
def two_tables(draw, limits, separate=False):
    lanes = range(draw(st.integers(2, 4)))
    high, low = [], []
    for lane in lanes:
        if separate:
            (high if draw(st.booleans()) else low).append((lane, draw(st.integers(1, 255))))
        else:
            high.append((lane, draw(weights)))
            low.append((lane, draw(weights)))
    tables = LaneTables(high=tuple(high), low=tuple(low), high_limit=draw(limits))
    return tables, list(lanes)


@settings(max_examples=200, deadline=None)
@given(problem=two_tables(st.integers(0, 12) | st.just(255)), size=st.sampled_from([1024, 2048, 4096]))
def test_backlogged_lanes_of_one_packet_size(problem, size):
    tables, lanes = problem
    lanes = [lane for lane in lanes if lane in tables.lanes()]
    if lanes:
        sizes = dict.fromkeys(lanes, size)
        assert exact_shares(tables, backlogged=lanes, mtu=size) == shares_by_packets(tables, sizes, lanes)


@settings(max_examples=200, deadline=None)
@given(problem=two_tables(st.integers(0, 6) | st.just(255)), data=st.data())
def test_backlogged_lanes_of_different_packet_sizes(problem, data):
    tables, lanes = problem
    lanes = [lane for lane in lanes if lane in tables.lanes()]
    if lanes:
        sizes = {lane: data.draw(st.sampled_from([1024, 1500, 2048, 4096])) for lane in lanes}
        assert exact_shares(tables, backlogged=lanes, packet_bytes=sizes) == shares_by_packets(tables, sizes, lanes)


@settings(max_examples=100, deadline=None)
@given(problem=two_tables(st.integers(0, 6) | st.just(255)), data=st.data())
def test_some_lanes_silent(problem, data):
    tables, lanes = problem
    lanes = [lane for lane in lanes if lane in tables.lanes() and data.draw(st.booleans())]
    if lanes:
        sizes = dict.fromkeys(lanes, 4096)
        assert exact_shares(tables, backlogged=lanes) == shares_by_packets(tables, sizes, lanes)


def shares_by_long_run(tables, sizes, backlogged, percent, window):
    arbiter = Arbiter(tables, sizes, backlogged, percent)
    while arbiter.time < window // 4:
        arbiter.step()
    time, sent = arbiter.time, dict(arbiter.sent)
    while arbiter.time < time + window:
        arbiter.step()
    return {lane: (arbiter.sent[lane] - sent[lane]) / (arbiter.time - time) for lane in sizes}


@settings(max_examples=30, deadline=None)
@given(problem=two_tables(st.integers(0, 6) | st.just(255), separate=True), data=st.data())
def test_partial_loads_on_lanes_of_one_table(problem, data):
    """Within what one round of each table and one burst can move over the window, once for every lane."""
    tables, lanes = problem
    high_size = data.draw(st.sampled_from([1024, 4096]))
    in_high = {lane for lane, _ in tables.high}
    sizes = {lane: high_size if lane in in_high else data.draw(st.sampled_from([1024, 2048, 4096])) for lane in lanes}
    percent = {lane: data.draw(st.integers(0, 60)) for lane in lanes if data.draw(st.booleans())}
    loads = {lane: Fraction(load, 100) for lane, load in percent.items()}
    backlogged = [lane for lane in lanes if lane not in percent]
    window = 20_000_000
    rounds = sum(64 * weight + sizes[lane] for lane, weight in (*tables.high, *tables.low))
    burst = 0 if tables.high_limit == 255 else 4096 * (tables.high_limit + 1)
    simulated = shares_by_long_run(tables, sizes, backlogged, percent, window)
    for lane, share in shares(tables, backlogged=backlogged, loads=loads, packet_bytes=sizes).items():
        assert simulated[lane] == pytest.approx(share, abs=len(lanes) * (rounds + burst) / window)


def test_published_setting_packet_by_packet():
    """Lanes 0, 1, 3 and KV on 2: 240 packets of the high table, then one of the low, of which one in ten is KV's."""
    tables = LaneTables(
        high=((0, 192), (1, 192), (2, 0), (3, 192)), low=((0, 192), (1, 192), (2, 64), (3, 192)), high_limit=240
    )
    lanes = [0, 1, 2, 3]
    assert shares_by_packets(tables, dict.fromkeys(lanes, 4096), lanes)[2] == Fraction(1, 2410)
    assert shares_by_packets(tables, dict.fromkeys([0, 2], 4096), [0, 2])[2] == Fraction(1, 964)


@pytest.mark.parametrize("percent", [5, 20, 30])
def test_partly_loaded_lane_in_both_tables_is_an_estimate(percent):
    """Lane 1 sits in both tables and does not fill its turns. The low table gets half the link; what lane 1 takes of
    that is between nothing and all of its load, and lanes 0 and 2 share the rest.
    """
    load = percent / 100
    tables = LaneTables(high=((0, 64), (1, 64)), low=((0, 64), (1, 64), (2, 64)), high_limit=0)
    found = shares(tables, backlogged=[0, 2], loads={1: load})
    assert found[1] == load
    assert (0.5 - load) / 2 <= found[2] <= 0.25
    simulated = shares_by_long_run(tables, dict.fromkeys(range(3), 4096), [0, 2], {1: percent}, 20_000_000)
    assert simulated[1] == pytest.approx(load, abs=1e-3)
    assert simulated[2] == pytest.approx(found[2], abs=0.03)
