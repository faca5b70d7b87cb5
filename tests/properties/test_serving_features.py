"""Buffers, nodes that differ, staging, admission, clusters, roles that change, waits and loads: limits, conservation
and cases that can be counted by hand.
"""

import itertools

import msgspec
import numpy as np
import pytest

import dualplan
from dualplan.errors import InfeasibleError, InputError
from dualplan.flow.fluid import run_fluid
from dualplan.flow.problem import Flow, FlowProblem, Link
from dualplan.plan.simulation import resources, simulate
from dualplan.serving import kernel
from dualplan.serving import layout as k
from dualplan.serving import policies as registry
from dualplan.serving.cluster import cluster
from dualplan.serving.elastic import Controller, most_nodes
from dualplan.serving.initial import state
from dualplan.serving.policies import Policies
from dualplan.serving.result import meets, misses
from dualplan.serving.run import Driver, offline, online
from dualplan.serving.trajectories import Trajectories
from dualplan.spec.load import Node
from dualplan.spec.run import Elastic, RunSpec, Slo, Split
from dualplan.spec.scenario import resolve, set_flags
from dualplan.steady.answer import evaluate
from tests.properties.test_serving_agreement import BUSY, KV_27B, PEOPLE, equal, times


def scenario(*sets, model="ds-27b", prefill=1, decode=1, variants=None, **values):
    keys = {"hardware": "dualpath-hopper", "model": model, "workload": "dualpath-64k", **values}
    tree = {key: Node(str(value), key, origin="flag") for key, value in keys.items()}
    tree["prefill_nodes"], tree["decode_nodes"] = (Node(str(n), "n", origin="flag") for n in (prefill, decode))
    if variants:
        items = [
            Node(
                {
                    "side": Node(side, "side"),
                    "nodes": Node(str(nodes), "nodes"),
                    "set": Node({key: Node(value, key)}, "set"),
                },
                "variant",
            )
            for side, nodes, key, value in variants
        ]
        tree["variants"] = Node(items, "variants")
    return resolve(Node(tree, "test", origin="flag"), sets=set_flags(sets))


def moved_by(s, first, end):
    """Bytes that the turns of some nodes moved."""
    return s.moved[2 * first : 2 * end].view(np.float64).sum()


def finished(laid, turns, agents, **values):
    """The state of a job after its end."""
    s = state(laid, turns, np.zeros(agents), seed=0, **values)
    assert kernel.compiled().run(s, 10**8)
    assert s.count["done"] == agents
    return s


# ---------------------------------------------------------------- host buffers


@pytest.mark.parametrize("mode", ["basic", "layerwise", "dual-path", "split-read"])
def test_buffers_are_never_passed_and_nothing_is_lost(mode):
    small = scenario("hardware.dram.kv_buffer=1GB")
    laid = cluster(small, PEOPLE, mode=mode, times=BUSY)
    free = cluster(scenario("hardware.dram.kv_buffer=1TB"), PEOPLE, mode=mode, times=BUSY)
    held, roomy = (
        offline(laid, PEOPLE, RunSpec(agents=60, compiled=True)),
        offline(free, PEOPLE, RunSpec(agents=60, compiled=True)),
    )
    assert roomy.peaks["prefill_buffer_bytes_per_node"] > 1e9
    for side in ("prefill", "decode"):
        # a byte of slack, since sums round
        assert held.peaks[f"{side}_buffer_bytes_per_node"] <= 1e9 + 2
    assert held.agents_done == 60 and held.turns == roomy.turns
    assert held.totals == pytest.approx({**roomy.totals, "decode_read_bytes": held.totals["decode_read_bytes"]})
    assert held.utilization["prefill_buffer"] <= 1


def test_a_buffer_for_one_read_serves_one_turn_after_the_other():
    # 0.99 GB a read at 50 GB/s; the buffer holds one of them until its prefill ends, two passes of 1 ms later
    tokens = round(1e9 / KV_27B / 64) * 64
    turn = equal(1, tokens, 1, 1)
    laid = cluster(scenario("hardware.dram.kv_buffer=1.5GB"), turn, mode="layerwise", times=times())
    found = offline(laid, turn, RunSpec(agents=10))
    read = tokens * KV_27B / 50e9
    assert 10 * read < found.jct_s <= 10 * (read + 0.004)
    # the first of those that wait does so for the buffer, the i-th behind it for i others in the queue
    assert found.ttft_parts_s["allocation"] == pytest.approx(0.9 * read, rel=0.15)
    assert found.ttft_parts_s["scheduling"] == pytest.approx(3.6 * read, rel=0.15)


def test_a_read_goes_to_the_other_side_where_the_buffer_is_full():
    tokens = round(1e9 / KV_27B / 64) * 64
    turn = equal(1, tokens, 1, 2)
    laid = cluster(scenario("hardware.dram.kv_buffer=1.5GB"), turn, mode="dual-path", times=times())
    s = finished(laid, turn, 2)
    assert s.total["decode_read_bytes"] == pytest.approx(s.total["read_bytes"] / 2)


def test_what_no_buffer_ever_holds_is_an_error():
    with pytest.raises(InfeasibleError, match="host buffer of a prefill node"):
        cluster(scenario("hardware.dram.kv_buffer=100MB"), PEOPLE, mode="dual-path", times=BUSY)
    # nothing is staged: nothing has to fit
    cluster(scenario("hardware.dram.kv_buffer=100MB"), PEOPLE, mode="oracle", times=BUSY)
    cluster(scenario("hardware.dram.kv_buffer=100MB", staging="gds"), PEOPLE, mode="dual-path", times=BUSY)


def test_a_slow_nic_costs_no_more_events_than_turns():
    # reads take hours: the groups sleep between them
    tokens = 64 * 64
    turn = equal(5, tokens, 1, 2)
    laid = cluster(scenario("hardware.snic.rate=80kb/s"), turn, mode="layerwise", times=times())
    s = finished(laid, turn, 8)
    read = tokens * KV_27B / 1e4
    assert s.total["last_done"] == pytest.approx(40 * read, rel=1e-4)
    assert s.count["events"] < 40 * 3 * k.MOST_POLLS


@pytest.mark.parametrize("mode", ["layerwise", "dual-path"])
def test_sleeping_groups_are_woken_by_freed_room(mode):
    # engines hold one sequence each; groups sleep until one of them ends, and the run comes to its end
    turn = equal(3, 6400, 10, 3001)
    laid = cluster(scenario(prefill=2), turn, mode=mode, times=times(decode_base=0.01))
    laid = msgspec.structs.replace(laid, decode=msgspec.structs.replace(laid.decode, room=1.5 * 9500 * KV_27B))
    found = offline(laid, turn, RunSpec(agents=24, compiled=True))
    # 24 agents on 8 engines, 3 turns of 30 s each, one after the other
    assert found.jct_s == pytest.approx(9 * 30.0, rel=0.02)


# ---------------------------------------------------------------- nodes, staging, pools


def test_nodes_with_other_storage_nics_read_at_their_own_rate():
    found = scenario(prefill=2, variants=[("prefill", 1, "snic.rate", "100Gb/s")])
    laid = cluster(found, PEOPLE, mode="layerwise", times=BUSY)
    assert laid.prefill.nic_rates == pytest.approx((0.9 * 12.5e9, 0.9 * 50e9))
    s = finished(laid, PEOPLE, 40)
    for node, rate in enumerate((0.9 * 12.5e9, 0.9 * 50e9)):
        # what is left beside the bytes is 6 ms for each read
        reads = (s.nic["busy"][node] - s.moved["hit"][2 * node] / rate) / 0.006
        assert reads == pytest.approx(round(reads), abs=1e-3) and reads > 100
    slower = offline(laid, PEOPLE, RunSpec(agents=40)).jct_s
    assert (
        slower
        > offline(cluster(scenario(prefill=2), PEOPLE, mode="layerwise", times=BUSY), PEOPLE, RunSpec(agents=40)).jct_s
    )


@pytest.mark.parametrize("key", ["snic.count", "gpu.hbm_capacity"])
def test_other_differences_are_refused_by_name(key):
    value = {"snic.count": "2", "gpu.hbm_capacity": "60GB"}[key]
    with pytest.raises(InputError, match="variants: nodes of a side with other GPUs"):
        cluster(scenario(prefill=2, variants=[("prefill", 1, key, value)]), PEOPLE, times=BUSY)


@pytest.mark.parametrize(("sets", "share"), [((), 0.5), (("pool_share=0.8",), 0.2), (("residency=0.5",), 0.25)])
def test_a_pool_and_what_still_resides_spare_storage(sets, share):
    laid = cluster(scenario(*sets), PEOPLE, mode="dram-pool", times=BUSY)
    found = offline(laid, PEOPLE, RunSpec(agents=20, compiled=True))
    assert found.totals["read_bytes"] == pytest.approx(share * found.totals["hit_bytes"])


def test_staging_in_hbm_spares_buffers_and_the_copy():
    host, direct, gds = (
        offline(
            cluster(scenario(staging=staging), PEOPLE, mode="layerwise", times=BUSY),
            PEOPLE,
            RunSpec(agents=40, compiled=True),
        )
        for staging in ("host", "gpudirect", "gds")
    )
    assert host.peaks["decode_buffer_bytes_per_node"] > 0 == direct.peaks["decode_buffer_bytes_per_node"]
    assert direct.peaks["prefill_buffer_bytes_per_node"] > 0 == gds.peaks["prefill_buffer_bytes_per_node"]
    # the second token waits for the fixed handover and a step, not for a copy
    assert direct.ttst_s.mean == pytest.approx(0.02 + direct.tpot_s.mean, rel=0.05)
    assert host.ttst_s.mean > direct.ttst_s.mean
    # GPUDirect Storage holds whole prefixes in prefill HBM, the others a layer
    assert gds.utilization["prefill_hbm"] > 10 * direct.utilization["prefill_hbm"]


def test_sides_of_different_hardware():
    found = scenario(decode_hardware="dgx-h200", decode=2)
    laid = cluster(found, PEOPLE, mode="dual-path")
    other = found.decode_hardware
    assert laid.times.name == "roofline"
    assert laid.decode.nic_rates[0] == pytest.approx(other.snic.rate * other.snic.efficiency)
    assert laid.decode.room > laid.prefill.room
    s = finished(laid, PEOPLE, 30)
    assert s.total["decode_read_bytes"] > 0
    moved, nodes = s.moved.view(np.float64).reshape(-1, 8), laid.prefill.nodes
    assert moved[:nodes].sum(axis=0)[:3] == pytest.approx(moved[nodes:].sum(axis=0)[:3])


# ---------------------------------------------------------------- admission, clusters, roles


def test_one_active_agent_at_a_time_is_a_chain():
    turn = equal(5, 0, 10, 11)
    one = offline(cluster(scenario(), turn, mode="oracle", times=times(decode_base=0.1)), turn, RunSpec(agents=1)).jct_s
    laid = cluster(scenario(), turn, mode="oracle", times=times(decode_base=0.1), max_active=1)
    found = offline(laid, turn, RunSpec(agents=6))
    assert found.jct_s == pytest.approx(6 * one, rel=1e-3)
    assert found.admission_s.mean == pytest.approx(2.5 * one, rel=1e-3)
    assert found.in_system == pytest.approx(1.0, rel=1e-3)


def test_admission_control_bounds_what_is_active_and_its_wait_counts():
    laid = cluster(scenario(), PEOPLE, mode="dual-path", times=BUSY, max_active=5)
    s = state(laid, PEOPLE, np.sort(np.random.default_rng(3).random(60)) * 100, seed=0)
    active = 0
    while not kernel.compiled().run(s, 50):
        active = max(active, int(s.count["admitted"] - s.count["done"]))
    assert active == 5 and s.count["done"] == 60
    assert (np.diff(s.span["admitted"]) >= 0).all() and (s.span["admitted"] >= s.span["arrival"]).all()
    crowded = online(laid, PEOPLE, RunSpec(arrival_rate=0.5, duration=600.0, compiled=True))
    assert crowded.agents_waiting > 0 and crowded.admission_s.mean > 4
    assert crowded.ttft_s.mean < 4 and not meets(crowded, Slo())
    (miss,) = misses(crowded, Slo())
    assert (miss.rule, miss.value, miss.limit) == ("admission_wait", crowded.admission_s.mean, 4.0)
    # without a limit that is reached nothing changes
    free = cluster(scenario(), PEOPLE, mode="dual-path", times=BUSY, max_active=1000)
    plain = cluster(scenario(), PEOPLE, mode="dual-path", times=BUSY)
    assert offline(free, PEOPLE, RunSpec(agents=30)).jct_s == offline(plain, PEOPLE, RunSpec(agents=30)).jct_s


def test_equal_clusters_are_as_many_alone():
    turn = equal(6, 12_800, 50, 40)
    one = offline(cluster(scenario(), turn, mode="dual-path", times=BUSY), turn, RunSpec(agents=25))
    three = cluster(scenario(prefill=3, decode=3), turn, mode="dual-path", times=BUSY, clusters=3)
    found = offline(three, turn, RunSpec(agents=75))
    assert found.jct_s == one.jct_s and found.ttft_s.mean == pytest.approx(one.ttft_s.mean)
    assert found.totals == pytest.approx({name: 3 * value for name, value in one.totals.items()})
    # agents stay in their cluster: no node is left out
    assert (found.prefill_moved.sum(axis=1) > 0).all()
    with pytest.raises(InputError, match="cannot be split into 2"):
        cluster(scenario(prefill=3), turn, clusters=2)


def phases(count):
    """Agents whose first turns are prefill-heavy and whose later ones decode-heavy."""
    shape = np.r_[np.ones(10), np.zeros(10)]
    append = np.tile(np.where(shape == 1, 3000.0, 10.0), count)
    generated = np.tile(np.where(shape == 1, 2.0, 300.0), count)
    return Trajectories(
        offsets=np.arange(count + 1) * 20,
        context=np.zeros(20 * count),
        append=append,
        generated=generated,
        think=np.zeros(20 * count),
        origin="prefill-heavy first",
    )


HEAVY = times(pass_base=0.02, per_token=1e-4, decode_base=0.005, decode_slope=1e-3)


def by_node(prefill, decode):
    """A deployment whose groups are nodes, so that each of them can change its role."""
    sides = {"prefill": prefill, "decode": decode}
    return scenario(*(f"{side}.parallel=ep=8,tp=1,dp={8 * nodes}" for side, nodes in sides.items()), **sides)


def elastic_run(turns, agents, elastic, prefill, decode):
    found = by_node(prefill, decode)
    base = cluster(found, turns, mode="dual-path", times=HEAVY)
    if elastic is None:
        return offline(base, turns, RunSpec(agents=agents, compiled=True))
    laid = cluster(found, turns, mode="dual-path", times=HEAVY, most_nodes=most_nodes(base, elastic, "--elastic"))
    return offline(laid, turns, RunSpec(agents=agents, compiled=True, elastic=elastic))


def split(time, prefill, decode):
    return Split(time=time, prefill_nodes=prefill, decode_nodes=decode)


def test_roles_that_change_with_the_work_beat_every_static_split():
    turns, agents = phases(64), 256
    statics = {p: elastic_run(turns, agents, None, p, 4 - p) for p in (1, 2, 3)}
    # the first half of three prefill nodes ends when its turns have been computed
    half = 256 * 10 * (3000 * 1e-4) / 24
    changed = elastic_run(turns, agents, Elastic(splits=(split(half, 1, 3),), switch_cost=2.0), 3, 1)
    assert changed.agents_done == agents and changed.turns == statics[1].turns
    assert changed.totals == pytest.approx({**statics[1].totals})
    assert changed.jct_s < min(run.jct_s for run in statics.values())
    (change,) = changed.changes
    assert change.decided_s == pytest.approx(half) and change.ready_s >= half + 2.0
    # a switch that takes longer helps less
    slow = elastic_run(turns, agents, Elastic(splits=(split(half, 1, 3),), switch_cost=40.0), 3, 1)
    assert slow.jct_s > changed.jct_s


def test_a_plan_without_a_change_changes_nothing():
    turns = phases(20)
    static = elastic_run(turns, 60, None, 2, 2)
    same = elastic_run(turns, 60, Elastic(splits=(split(1.0, 2, 2), split(5.0, 2, 2))), 2, 2)
    assert same.jct_s == static.jct_s and same.changes == () and same.ttft_s == static.ttft_s


def test_the_rule_moves_nodes_to_where_turns_wait():
    turns = phases(64)
    starved = elastic_run(turns, 512, None, 1, 5)
    found = elastic_run(turns, 512, Elastic(switch_cost=1.0), 1, 5)
    assert found.changes[0].prefill_nodes == 2 and found.jct_s < starved.jct_s
    assert found.turns == starved.turns


def test_a_closed_group_drains_and_hands_its_queue_on():
    turns, found = phases(64), by_node(3, 1)
    elastic = Elastic(splits=(split(1.0, 1, 3),), switch_cost=5.0)
    base = cluster(found, turns, mode="dual-path", times=HEAVY)
    laid = cluster(found, turns, mode="dual-path", times=HEAVY, most_nodes=most_nodes(base, elastic, "--elastic"))
    s = state(laid, turns, np.zeros(1000), seed=0, horizon=1.0)
    kernel.compiled().run(s, 10**8)
    waiting = int(s.count["waiting"])
    Controller(laid, elastic).act(s, 1.0)
    assert s.count["waiting"] == waiting > 0
    assert (s.group["queue"][1:3] == k.NONE).all() and s.count["prefill_open"] == 1
    moved = moved_by(s, 1, 3)
    s.total["horizon"] = 60.0
    kernel.compiled().run(s, 10**8)
    assert (s.group["pending"][1:3] == k.NONE).all()
    drained = moved_by(s, 1, 3)
    s.total["horizon"] = 90.0
    kernel.compiled().run(s, 10**8)
    assert moved < drained == moved_by(s, 1, 3)


# ---------------------------------------------------------------- first in, first out against max-min sharing


def test_fifo_and_max_min_storage_nics_end_a_backlog_together():
    random = np.random.default_rng(4)
    n = 200
    context = 64.0 * random.integers(50, 900, n)
    turns = Trajectories(
        offsets=np.arange(n + 1),
        context=context,
        append=np.ones(n),
        generated=np.ones(n),
        think=np.zeros(n),
        origin="reads of many sizes",
    )
    found = scenario("hardware.dram.kv_buffer=1TB", prefill=2)
    # a little work, so that placement spreads the turns
    laid = cluster(found, turns, mode="dual-path", times=times(per_token=1e-9, per_context=1e-9))
    s = finished(laid, turns, n)
    # what each NIC had to read, as flows that share it: equal totals, so it is idle from the same time on
    for nic, node, side in ((0, 0, 0), (1, 1, 0), (2, 2, 1)):
        size, rate = s.moved["hit"][2 * node + side], float(s.nic["rate"][nic])
        parts = size * random.dirichlet(np.ones(30))
        flows = tuple(Flow(id=i, size=float(b), route=(("nic", 1.0),)) for i, b in enumerate(parts))
        shared = run_fluid(FlowProblem(links=(Link(id="nic", capacity=rate),), flows=flows), compiled=False)
        # all reads were issued at the first boundaries, within a few milliseconds
        assert max(shared.finish_s) == pytest.approx(s.nic["free_at"][nic], abs=0.05)
    # and at saturation both carry the line rate of all NICs
    total = s.total["read_bytes"] / s.nic["free_at"].max()
    assert total == pytest.approx(3 * 50e9, rel=0.02)


# ---------------------------------------------------------------- loads of links


@pytest.mark.parametrize("staging", ["host", "gpudirect", "gds"])
def test_loads_of_links_are_those_of_the_steady_model_at_the_same_rate(staging):
    means = ("workload.context=32768", "workload.append=256", "workload.generated=65", "workload.turns=4")
    found = scenario(*means, prefill=2, decode=4, model="deepseek-v3.2", mode="layerwise", staging=staging)
    result = simulate(found, RunSpec(agents=200, compiled=True))
    answer = evaluate(found)
    ratio = result.turns / result.simulated_s / answer.turns_per_s
    steady = {load.name: load.utilization * ratio for load in answer.loads}
    compared = 0
    for use in resources(result):
        if not use.simulated:
            assert use.utilization == pytest.approx(steady[use.name], rel=1e-6), use.name
            assert use.peak >= use.utilization and use.max_over_mean >= 1
            compared += 1
    assert compared >= 9


def test_python_and_the_command_run_the_same():
    found = scenario(prefill=2, decode=2)
    result = dualplan.simulate(found, agents=20, seed=3, max_active=10)
    assert result.agents_done == 20 and result.seed == 3 and result.cluster.max_active == 10
    again = simulate(found, RunSpec(agents=20, seed=3))
    assert again.jct_s < result.jct_s
    with pytest.raises(InputError, match="one of agents"):
        dualplan.simulate(found)
    with pytest.raises(InputError, match="runs to its end"):
        dualplan.simulate(found, agents=3, duration=5.0)


# ---------------------------------------------------------------- indices


class Strict(np.ndarray):
    """An array without indices that count from the end: Numba is told that the kernel has none."""

    def __getitem__(self, index):
        self.refuse(index)
        return super().__getitem__(index)

    def __setitem__(self, index, value):
        self.refuse(index)
        super().__setitem__(index, value)

    def refuse(self, index):
        for axis, one in enumerate(index if isinstance(index, tuple) else (index,)):
            if isinstance(one, int | np.integer) and not 0 <= one < self.shape[axis]:
                raise IndexError(f"index {one} on an axis of {self.shape[axis]}")


def strict(*values, **named):
    s = state(*values, **named)
    return s._replace(**{name: getattr(s, name).view(Strict) for name in (*k.TABLES, "detail")})


def odd_turns():
    """Short trajectories with all that a turn may lack: context, append, generated tokens, a wait after it."""
    random = np.random.default_rng(0)
    counts = random.integers(1, 5, 6)
    context, append, generated, think = (
        random.choice(values, counts.sum())
        for values in ([0.0, 10.0, 640.0, 9000.0], [0.0, 1.0, 9000.0], [0.0, 1.0, 2.0, 60.0], [0.0, 0.5])
    )
    return Trajectories(
        offsets=np.r_[0, np.cumsum(counts)],
        context=context,
        append=append,
        generated=generated,
        think=think,
        origin="odd turns",
    )


ODD = odd_turns()


def test_strict_arrays_refuse_what_numpy_takes_from_the_end():
    array = np.zeros((2, 3)).view(Strict)
    for index in (-1, np.int32(-1), (0, -1), (slice(None), -1), (2, 0)):
        with pytest.raises(IndexError, match="on an axis of"):
            array[index]
        with pytest.raises(IndexError, match="on an axis of"):
            array[index] = 1.0


@pytest.mark.parametrize("staging", ["host", "gpudirect", "gds"])
@pytest.mark.parametrize("mode", ["basic", "layerwise", "dram-pool", "dual-path", "split-read", "oracle"])
def test_no_index_of_the_kernel_counts_from_the_end(mode, staging):
    placements = zip(
        itertools.cycle(registry.PREFILL),
        itertools.cycle(registry.DECODE),
        itertools.cycle(registry.READ_SIDE),
        itertools.product((False, True), (False, True), (1, 2)),
    )
    for prefill, decode, read_side, (full, arrive, clusters) in placements:
        # full: hardly any room in buffers and decode engines, so that turns wait for them
        found = scenario(
            f"hardware.dram.kv_buffer={'1GB' if full else '1TB'}",
            "prefill.parallel=tp=2,dp=4" if full else "decode.parallel=tp=8",
            prefill=2,
            decode=2,
            staging=staging,
        )
        chosen = Policies(prefill=prefill, decode=decode, read_side=read_side)
        laid = cluster(
            found,
            ODD,
            mode=mode,
            times=BUSY,
            policies=chosen,
            clusters=clusters,
            max_active=3 if full and arrive else 0,
        )
        if full:
            room = ODD.longest * laid.kv_bytes_per_token + 1
            laid = msgspec.structs.replace(laid, decode=msgspec.structs.replace(laid.decode, room=room))
        arrivals = np.linspace(0.0, 3.0, 12) if arrive else np.zeros(12)
        s = strict(laid, ODD, arrivals, seed=1, horizon=2.0 if arrive else np.inf)
        assert kernel.PLAIN.run(s, 10**6)
        # at the end of an online run agents are still on their way, of a job all are done
        assert (s.count["done"] < 12) == arrive


@pytest.mark.parametrize("elastic", [Elastic(splits=(split(1.0, 1, 3),), switch_cost=0.5), Elastic(switch_cost=0.5)])
def test_no_index_counts_from_the_end_where_roles_change(elastic):
    turns, found = phases(8), by_node(3, 1)
    base = cluster(found, turns, mode="dual-path", times=HEAVY)
    laid = cluster(found, turns, mode="dual-path", times=HEAVY, most_nodes=most_nodes(base, elastic, "--elastic"))
    driver = Driver(strict(laid, turns, np.zeros(60), seed=0), kernel.PLAIN, Controller(laid, elastic))
    assert driver.to(1e6, None)
    assert driver.s.count["done"] == 60
    assert len(driver.changes) == 1 or not elastic.splits


@pytest.mark.parametrize(("side", "degrees"), [("prefill", "tp=3,dp=8"), ("decode", "tp=24"), ("decode", "tp=6")])
def test_engines_across_nodes_are_not_simulated(side, degrees):
    found = scenario(f"{side}.parallel={degrees}", prefill=3, decode=3)
    with pytest.raises(InputError, match=rf"{side}\.parallel: engines of tp=\d+ that lie across nodes of 8 GPUs"):
        cluster(found, PEOPLE, times=BUSY)


def test_what_does_not_fit_is_said_in_fitting_units():
    long, two = equal(1, 1e9, 1, 1), ("prefill.parallel=tp=2,dp=4",)
    for sets, engine in (((), "1 GPU has"), (two, "2 GPUs has")):
        with pytest.raises(InfeasibleError, match=rf"prefill side: [\d.]+ TB, an engine of {engine} [\d.]+ GB beside"):
            cluster(scenario(*sets), long, times=BUSY)
    with pytest.raises(InputError, match="1 node of a side cannot be split into 2"):
        cluster(scenario(), long, clusters=2)
