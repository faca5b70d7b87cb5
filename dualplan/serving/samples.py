"""The state of a run noted over time."""

from __future__ import annotations

from dualplan.serving.layout import Floats, State, Table


def busy_until(sums: float, end: float, time: float) -> float:
    """Busy seconds up to a time, of what has been charged to ``end``."""
    return sums - max(end - time, 0.0)


def take_sample(s: State, time: float) -> None:
    """Note the state at a time; when the samples are full every second one goes and the interval doubles."""
    k = s.count["samples"]
    if k == len(s.sample):
        k //= 2
        for i in range(k):
            s.sample[i] = s.sample[2 * i + 1]
            for column in range(s.detail.shape[1]):
                s.detail[i, column] = s.detail[2 * i + 1, column]
        s.total["sample_every"] *= 2.0
    fill_sample(s, s.sample, s.detail, k, time)
    s.count["samples"] = k + 1
    s.total["next_sample"] = time + s.total["sample_every"]


def fill_sample(s: State, sample: Table, detail: Floats, k: int, time: float) -> None:
    """Sample ``k``: what is where, what is held, and sums of what was done, of all and in detail."""
    sample["time"][k] = time
    sample["waiting"][k] = s.count["waiting"]
    sample["prefilling"][k] = s.count["prefilling"]
    sample["decoding"][k] = s.count["decoding"]
    sample["turns"][k] = s.count["records"]
    sample["working_set"][k] = s.total["working_set"]
    sample["read"][k] = s.total["read_bytes"]
    sample["unadmitted"][k] = s.count["arrived"] - s.count["admitted"]
    sample["prefill_open"][k] = s.count["prefill_open"] * s.setting.clusters
    sample["decode_open"][k] = s.count["decode_open"] * s.setting.clusters
    fine = detail.shape[1] > 0
    busy = 0.0
    for nic in range(len(s.nic)):
        if nic == s.node["first_nic"][s.setting.prefill_nodes]:
            sample["prefill_nic"][k] = busy
            busy = 0.0
        used = busy_until(s.nic["busy"][nic], s.nic["free_at"][nic], time)
        busy += used
        if fine:
            detail[k, nic] = used
    sample["decode_nic"][k] = busy
    at = len(s.nic)
    busy = 0.0
    for p in range(len(s.group)):
        used = busy_until(s.group["busy"][p], s.group["busy_until"][p], time)
        busy += used
        if fine:
            detail[k, at + p] = used
    sample["passes"][k] = busy
    at += len(s.group)
    if fine:
        for d in range(len(s.pool)):
            detail[k, at + d] = s.pool["size"][d]
    at += len(s.pool)
    held = 0.0
    for e in range(len(s.engine)):
        held += s.setting.prefill_room - s.engine["room"][e]
    sample["prefill_hbm"][k] = held
    held = 0.0
    for d in range(len(s.decoder)):
        held += s.setting.decode_room - s.decoder["room"][d]
    sample["decode_hbm"][k] = held
    fill_nodes(s, sample["prefill_buffer"], sample["prefill_moved"], k, 0, s.setting.prefill_nodes)
    fill_nodes(s, sample["decode_buffer"], sample["decode_moved"], k, s.setting.prefill_nodes, len(s.node))
    if fine:
        for row in range(len(s.moved)):
            detail[k, at] = s.moved["hit"][row]
            detail[k, at + 1] = s.moved["miss"][row]
            detail[k, at + 2] = s.moved["append"][row]
            detail[k, at + 3] = s.moved["generated"][row]
            at += 4


def fill_nodes(s: State, held: Floats, moved: Floats, k: int, first: int, end: int) -> None:
    """Of the nodes of a side: what their host buffers hold, and what their turns moved."""
    held[k] = 0.0
    for column in range(8):
        moved[k, column] = 0.0
    for node in range(first, end):
        held[k] += s.node["held"][node]
        for side in range(2):
            row = 2 * node + side
            moved[k, 4 * side] += s.moved["hit"][row]
            moved[k, 4 * side + 1] += s.moved["miss"][row]
            moved[k, 4 * side + 2] += s.moved["append"][row]
            moved[k, 4 * side + 3] += s.moved["generated"][row]
