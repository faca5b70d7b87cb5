"""What must hold of shares whatever the tables: the inequalities at the top of dualplan.flow.arbitration, and ETS's."""

from fractions import Fraction

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dualplan.flow.arbitration import exact_shares, guaranteed, kv_share_available
from dualplan.flow.arbitration_settings import settings_for_floor
from dualplan.spec.qos import ClassTable, LaneTables, TrafficClass

sizes = st.sampled_from([256, 512, 1024, 1500, 2048, 4096])
entries = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 255)), min_size=1, max_size=8).map(tuple)
tables = st.builds(LaneTables, high=entries, low=entries, high_limit=st.integers(0, 255), operational_lanes=st.just(8))
percents = st.integers(0, 100).map(lambda percent: Fraction(percent, 100))


@st.composite
def class_tables(draw):
    classes = []
    for number in range(draw(st.integers(1, 8))):
        selection = draw(st.sampled_from(["ets", "ets", "strict", "vendor"]))
        bandwidth = draw(st.integers(0, 100)) if selection == "ets" else None
        classes.append(TrafficClass(number=number, selection=selection, bandwidth=bandwidth, priorities=(number,)))
    return ClassTable(classes=tuple(classes))


@st.composite
def questions(draw):
    """A setting, backlogged lanes and loads; lanes without weight among them now and then."""
    setting = draw(st.one_of(tables, class_tables()))
    lanes = range(6) if isinstance(setting, LaneTables) else setting.lanes()
    role = {lane: draw(st.sampled_from(["busy", "busy", "loaded", "silent"])) for lane in lanes}
    loads = {lane: draw(percents) for lane in lanes if role[lane] == "loaded"}
    packet = {lane: draw(sizes) for lane in lanes}
    return setting, [lane for lane in lanes if role[lane] == "busy"], loads, packet


@given(question=questions())
def test_no_share_exceeds_its_load_nor_all_of_them_the_link(question):
    setting, busy, loads, packet = question
    found = exact_shares(setting, backlogged=busy, loads=loads, packet_bytes=packet)
    assert set(found) == {*busy, *loads}
    assert list(found) == sorted(found)
    assert all(share >= 0 for share in found.values())
    assert all(found[lane] <= load for lane, load in loads.items())
    assert sum(found.values()) <= 1


@given(question=questions())
def test_the_link_is_full_while_a_lane_with_weight_wants_more(question):
    setting, busy, loads, packet = question
    found = exact_shares(setting, backlogged=busy, loads=loads, packet_bytes=packet)
    reachable = setting.lanes()
    wants_more = [lane for lane in busy if lane in reachable]
    wants_more += [lane for lane, load in loads.items() if lane in reachable and found[lane] < load]
    if wants_more:
        assert sum(found.values()) == 1
    else:
        assert all(found[lane] == load for lane, load in loads.items() if lane in reachable)


@given(setting=tables, lane=st.integers(0, 5), more=st.integers(0, 5), size=sizes)
def test_one_more_busy_lane_never_helps_the_others(setting, lane, more, size):
    assume(lane != more)
    alone = guaranteed(setting, lane, busy=[], mtu=size)
    assert guaranteed(setting, lane, busy=[more], mtu=size) <= alone
    assert alone == (1 if lane in setting.lanes() else 0)


@given(setting=tables, size=sizes)
def test_order_and_splitting_of_entries_do_not_matter_for_equal_packets(setting, size):
    """One packet is 64 * k bytes for these sizes except 1500, so an entry of weight w may be split at whole packets."""
    assume(size % 64 == 0)
    step = size // 64
    split = []
    for lane, weight in reversed(setting.high):
        split += [(lane, step), (lane, weight - step)] if weight > step else [(lane, weight)]
    other = LaneTables(high=tuple(split), low=setting.low[::-1], high_limit=setting.high_limit, operational_lanes=8)
    lanes = range(6)
    assert exact_shares(other, backlogged=lanes, mtu=size) == exact_shares(setting, backlogged=lanes, mtu=size)


@given(setting=tables, data=st.data())
def test_renamed_lanes_get_the_renamed_shares(setting, data):
    order = data.draw(st.permutations(range(6)))
    renamed = LaneTables(
        high=tuple((order[lane], weight) for lane, weight in setting.high),
        low=tuple((order[lane], weight) for lane, weight in setting.low),
        high_limit=setting.high_limit,
        operational_lanes=8,
    )
    loads = {lane: data.draw(percents) for lane in range(3)}
    found = exact_shares(setting, backlogged=range(3, 6), loads=loads)
    turned = exact_shares(
        renamed,
        backlogged=[order[lane] for lane in range(3, 6)],
        loads={order[lane]: load for lane, load in loads.items()},
    )
    assert all(turned[order[lane]] == share for lane, share in found.items())


@given(setting=tables, load=percents, size=sizes)
def test_kv_gets_what_is_left_or_its_guarantee(setting, load, size):
    assume(5 in setting.lanes())
    others = [lane for lane in setting.lanes() if lane != 5]
    available = kv_share_available(setting, 5, others, float(load), mtu=size)
    assert available >= float(guaranteed(setting, 5, busy=others, mtu=size))
    assert available >= 1 - float(load)
    assert 0 <= available <= 1


@given(high=st.integers(1, 255), low=st.integers(1, 255), limit=st.integers(0, 255), load=percents)
def test_kv_share_agrees_with_the_arbiter(high, low, limit, load):
    """Collectives on lane 0 of the high table, KV on lane 1 of the low one: the arbiter with that load gives KV the
    larger of what is left and what is guaranteed.
    """
    setting = LaneTables(high=((0, high),), low=((1, low),), high_limit=limit)
    found = exact_shares(setting, backlogged=[1], loads={0: load})[1]
    assert abs(kv_share_available(setting, 1, [0], float(load)) - found) < 1e-12


@settings(max_examples=50, deadline=None)
@given(
    setting=st.one_of(tables, class_tables()),
    lane=st.integers(0, 5),
    floor=st.integers(1, 99).map(lambda percent: Fraction(percent, 100)),
    size=st.sampled_from([2048, 4096]),
)
def test_suggested_settings_reach_the_floor_and_keep_the_others(setting, lane, floor, size):
    for suggestion in settings_for_floor(setting, lane, floor, mtu=size):
        others = [other for other in setting.lanes() if other != lane]
        reached = guaranteed(suggestion.setting, lane, busy=others, mtu=size)
        assert suggestion.guaranteed == reached >= floor
        for other in others:
            assert guaranteed(suggestion.setting, other, busy=[], mtu=size) == 1
        if isinstance(setting, LaneTables):
            assert suggestion.setting.high_limit <= setting.high_limit
            kept = [entry for entry in suggestion.setting.high if entry[0] != lane]
            assert kept == [entry for entry in setting.high if entry[0] != lane]
        else:
            assert sum(traffic.bandwidth or 0 for traffic in suggestion.setting.classes) == 100
