"""Max-min sharing and the fluid run written down plainly, for exact numbers: the oracle of the flow solver's tests.

No classes of flows, no heaps, no increments: every rate is found anew at every event. With ``Fraction`` inputs the
results are exact. Class weights are left out; tests check them against the conditions of ``dualplan.flow.maxmin``.
"""

from fractions import Fraction

from dualplan.flow.problem import FlowProblem, priorities

NEVER = float("inf")


def exact(number):
    return number if number == NEVER else Fraction(number)


def crossings(flow):
    times = {}
    for name, count in flow.route:
        times[name] = times.get(name, 0) + Fraction(count)
    return times


def reference_rates(problem, active, capacity):
    """Rates of the flows with these places; ``capacity``: link id to capacity now."""
    shared = {link.id: link.shared for link in problem.links}
    by_class = priorities(problem)
    left = dict(capacity)
    rates = {}
    level_of = {i: by_class.get(problem.flows[i].traffic_class, problem.flows[i].priority) for i in active}
    for priority in sorted(set(level_of.values())):
        waiting = {i for i in active if level_of[i] == priority}
        weight = {i: Fraction(problem.flows[i].weight) for i in waiting}
        times = {i: crossings(problem.flows[i]) for i in waiting}
        cap = {
            i: min(
                [
                    exact(problem.flows[i].rate_cap),
                    *(capacity[name] / m for name, m in times[i].items() if not shared[name]),
                ]
            )
            for i in waiting
        }
        while waiting:
            pull = {}
            for i in waiting:
                for name, m in times[i].items():
                    if shared[name]:
                        pull[name] = pull.get(name, 0) + weight[i] * m
            full = {name: left[name] / total for name, total in pull.items()}
            level = min([*full.values(), *(cap[i] / weight[i] for i in waiting)])
            stopped = {
                i for i in waiting if cap[i] / weight[i] == level or any(full.get(name) == level for name in times[i])
            }
            for i in stopped:
                rates[i] = level * weight[i]
                for name, m in times[i].items():
                    if shared[name]:
                        left[name] -= rates[i] * m
            waiting -= stopped
    return rates


def reference_finish(problem: FlowProblem):
    """When each flow ends; ``inf`` for those that never do."""
    capacity = {link.id: Fraction(link.capacity) for link in problem.links}
    changes = sorted(
        (Fraction(time), link.id, Fraction(new)) for link in problem.links for time, new in link.capacity_changes
    )
    starts = sorted((Fraction(flow.start), i) for i, flow in enumerate(problem.flows))
    finish = [NEVER] * len(problem.flows)
    remaining = {}
    now = Fraction(0)
    while True:
        while starts and starts[0][0] == now:
            _, i = starts.pop(0)
            remaining[i] = Fraction(problem.flows[i].size)
        while changes and changes[0][0] == now:
            _, name, new = changes.pop(0)
            capacity[name] = new
        for i in [i for i, rest in remaining.items() if rest == 0]:
            finish[i] = float(now)
            del remaining[i]
        rates = reference_rates(problem, remaining, capacity)
        times = [now + rest / rates[i] for i, rest in remaining.items() if rates[i] > 0]
        times += [event[0] for event in (*starts[:1], *changes[:1])]
        if not times:
            return finish
        then = min(times)
        for i in remaining:
            remaining[i] -= rates[i] * (then - now)
        now = then
