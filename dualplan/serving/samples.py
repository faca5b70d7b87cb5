"""The state of a run noted over time."""

from __future__ import annotations

from dualplan.serving.layout import (
    CLUSTERS,
    D_ROOM,
    DECODE_OPEN,
    DECODE_ROOM,
    FREE_AT,
    HELD_BYTES,
    N_ADMITTED,
    N_ARRIVED,
    N_DECODING,
    N_IN_POOL,
    N_PREFILLING,
    N_RECORDS,
    N_SAMPLES,
    N_WAITING,
    NEXT_SAMPLE,
    NIC_BUSY,
    P_ROOM,
    PASS_BUSY,
    PASS_END,
    PREFILL_OPEN,
    PREFILL_ROOM,
    READ_BYTES,
    S_DECODE_BUFFER,
    S_DECODE_HBM,
    S_DECODE_MOVED,
    S_DECODE_NIC,
    S_DECODE_OPEN,
    S_DECODING,
    S_PASSES,
    S_PREFILL_BUFFER,
    S_PREFILL_HBM,
    S_PREFILL_MOVED,
    S_PREFILL_NIC,
    S_PREFILL_OPEN,
    S_PREFILLING,
    S_READ,
    S_TIME,
    S_TURNS,
    S_UNADMITTED,
    S_WAITING,
    S_WORKING_SET,
    SAMPLE_EVERY,
    WORKING_SET,
    Floats,
    State,
)


def busy_until(sums: float, end: float, time: float) -> float:
    """Busy seconds up to a time, of what has been charged to ``end``."""
    return sums - max(end - time, 0.0)


def thin_out(table: Floats, half: int) -> None:
    """Keep every second row, at the front."""
    for i in range(half):
        for column in range(table.shape[1]):
            table[i, column] = table[2 * i + 1, column]


def take_sample(s: State, time: float) -> None:
    """Note the state at a time; when the samples are full every second one goes and the interval doubles."""
    k = s.counter[N_SAMPLES]
    if k == len(s.sample):
        thin_out(s.sample, k // 2)
        thin_out(s.detail, k // 2)
        s.counter[N_SAMPLES] = k = k // 2
        s.total[SAMPLE_EVERY] *= 2.0
    fill_sample(s, s.sample[k], s.detail[k], time)
    s.counter[N_SAMPLES] = k + 1
    s.total[NEXT_SAMPLE] = time + s.total[SAMPLE_EVERY]


def fill_sample(s: State, row: Floats, detail: Floats, time: float) -> None:
    """One sample: what is where, what is held, and sums of what was done, of all and in detail."""
    for column in range(len(row)):
        row[column] = 0.0
    row[S_TIME] = time
    row[S_WAITING] = s.counter[N_WAITING]
    row[S_PREFILLING] = s.counter[N_PREFILLING]
    row[S_DECODING] = s.counter[N_DECODING]
    row[S_TURNS] = s.counter[N_RECORDS]
    row[S_WORKING_SET] = s.total[WORKING_SET]
    row[S_READ] = s.total[READ_BYTES]
    row[S_UNADMITTED] = s.counter[N_ARRIVED] - s.counter[N_ADMITTED]
    row[S_PREFILL_OPEN] = s.choice[PREFILL_OPEN] * s.choice[CLUSTERS]
    row[S_DECODE_OPEN] = s.choice[DECODE_OPEN] * s.choice[CLUSTERS]
    fine = len(detail) > 0
    at = 0
    for nics, column in ((s.prefill_nic, S_PREFILL_NIC), (s.decode_nic, S_DECODE_NIC)):
        for nic in range(len(nics)):
            busy = busy_until(nics[nic, NIC_BUSY], nics[nic, FREE_AT], time)
            row[column] += busy
            if fine:
                detail[at + nic] = busy
        at += len(nics)
    for p in range(len(s.group)):
        busy = busy_until(s.group[p, PASS_BUSY], s.group[p, PASS_END], time)
        row[S_PASSES] += busy
        if fine:
            detail[at + p] = busy
    at += len(s.group)
    if fine:
        for d in range(len(s.pool)):
            detail[at + d] = s.pool_index[d, N_IN_POOL]
    at += len(s.pool)
    for buffers, column in ((s.prefill_buffer, S_PREFILL_BUFFER), (s.decode_buffer, S_DECODE_BUFFER)):
        for node in range(len(buffers)):
            row[column] += buffers[node, HELD_BYTES]
    for e in range(len(s.engine)):
        row[S_PREFILL_HBM] += s.number[PREFILL_ROOM] - s.engine[e, P_ROOM]
    for e in range(len(s.decoder)):
        row[S_DECODE_HBM] += s.number[DECODE_ROOM] - s.decoder[e, D_ROOM]
    for moved, first in ((s.prefill_moved, S_PREFILL_MOVED), (s.decode_moved, S_DECODE_MOVED)):
        for node in range(len(moved)):
            for column in range(8):
                row[first + column] += moved[node, column]
                if fine:
                    detail[at + 8 * node + column] = moved[node, column]
        at += 8 * len(moved)
