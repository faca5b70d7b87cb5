"""The prefill passes of an answer as equations: work of a turn, what turns wait for, what they hold of a memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dualplan.messages import message
from dualplan.model.latency import touched
from dualplan.model.passes import computing_time, pass_time_at_rate, place_taken, time_to_first_token
from dualplan.model.queueing import read_response_at
from dualplan.model.service_times import attention_work, pass_time, seen, token_work
from dualplan.model.symbolic import value_of
from dualplan.plan.explain.notation import Symbols
from dualplan.plan.explain.roofline_terms import Term
from dualplan.plan.explain.symbolic_setup import same
from dualplan.steady.latencies import decode_turns, pass_flow, prefill_turns
from dualplan.steady.problem import Problem
from dualplan.steady.setup import Setup


def work_terms(symbols: Symbols, setup: Setup, numbers: Problem) -> Iterator[Term]:
    """GPU time and pass of a turn's prefill from the coefficients of the service times."""
    times, demand = setup.times, numbers.demand
    known = symbols.known
    new, old = known("computed_tokens", demand.computed_tokens), known("hit_tokens", demand.hit_tokens)
    names = ("per_request", "per_token", "per_token_hidden", "per_token_link", "per_context")
    request, token, hidden, link, context = (_or_zero(symbols, name, getattr(times, name)) for name in names)
    attention = attention_work(context, _or_zero(symbols, "pair_time", attention_of_pairs(setup)), old)
    work = (token_work(request, token, hidden, link, new, attention) + attention) * setup.prefill_parallel.tp
    if not same(work, demand.prefill_gpu_seconds):  # where some turns wait for what should hide behind them
        work = known("prefill_gpu_seconds", demand.prefill_gpu_seconds)
    lines = (message("assumption.compute_times", origin=demand.compute_origin), message("derivation.work"))
    yield Term("prefill_gpu_seconds", work, "s", lines)
    engine = known("prefill_gpu_seconds", demand.prefill_gpu_seconds) / setup.prefill_parallel.tp
    base, alone = _or_zero(symbols, "pass_base", times.pass_base), 0
    if times.expert_share and demand.passes is not None:
        base, share = symbols.known("pass_launch", times.pass_base), symbols.known("expert_share", times.expert_share)
        experts, group = symbols.known("pass_experts", times.pass_experts), setup.prefill_parallel.engine.dp
        engines = symbols.known("expert_ranks", group, "prefill")
        touching = (message("derivation.touched"),)
        yield Term("pass_base", base + experts * touched(share, new * engines), "s", touching)
        alone = experts * touched(share, new)
    idle = _or_zero(symbols, "pass_base", times.pass_idle)
    chunks = 1.0 if demand.passes is None else demand.passes.chunks
    base = base if chunks == 1 else base * known("pass_chunks", chunks)
    yield Term("prefill_latency", pass_time(base, alone, engine, idle), "s", (message("derivation.lone_pass"),))


def attention_of_pairs(setup: Setup) -> Any:
    """Attention of the new tokens of a mean turn to what they see, on an engine [s]."""
    turns = setup.turns
    pairs = zip(turns.computed, turns.hits, strict=True)
    return turns.mean(setup.times.attention.times(new, seen(new, old)) for new, old in pairs)


def waiting_terms(symbols: Symbols, setup: Setup, problem: Problem, turns_per_s: Any) -> Iterator[Term]:
    """What turns wait for at a turn rate, and the turns that a memory holds; of a deployment with symbols."""
    demand, known = problem.demand, symbols.known
    flow, passes = pass_flow(setup, demand), demand.passes
    assert passes is not None
    held = {"decode_turns": decode_turns(setup, demand)}
    if passes.prefill_bytes:
        held["prefill_turns"] = prefill_turns(setup, demand)
    for name, value in held.items():
        yield Term(name, value, "1", (message("derivation.held_turns"),))
    most = min((known(name, value_of(value)) for name, value in held.items()), key=value_of)
    passing = pass_time_at_rate(flow.base, flow.work, flow.excess, turns_per_s / flow.engines)
    yield Term("pass_time", passing, "s", (message("derivation.pass_time"),))
    passing, reading = known("pass_time", value_of(passing)), 0.0
    if flow.reads:
        reading = flow.latency + read_response_at(flow.read_service, flow.read_variation, turns_per_s, flow.nics, most)
        yield Term("read_response", reading, "s", (message("derivation.closed_queue"),))
        reading = known("read_response", value_of(reading))
    computing = computing_time(passing, flow.base, flow.work, flow.chunks)
    first = time_to_first_token(passing, reading, computing)
    place = place_taken(passing, first, flow.handover)
    lines = (message("derivation.place"),)
    yield Term("place_time", place, "s", lines)
    for name, rate in problem.filling.items():
        if value_of(rate) < math.inf:
            side = name.removesuffix("_hbm")
            turns = value_of(held[f"{side}_turns"])
            # how long a turn stays depends on the rate itself, which is found by search
            stay = known(f"{side}_stay", turns / value_of(rate))
            lines = (message("derivation.stay"),)
            yield Term(f"{name}_rate", known(f"{side}_turns", turns) / stay, "1/s", lines)


def decode_load(symbols: Symbols, setup: Setup, problem: Problem, turns_per_s: Any) -> Any:
    """Bytes that turns in passes hold of decode HBM at a turn rate."""
    demand, engines = problem.demand, setup.engines("decode")
    decoding = demand.step.batch_at_rate(turns_per_s / engines, demand.generated)
    terms = {term.name: value_of(term.value) for term in waiting_terms(symbols, setup, problem, turns_per_s)}
    if value_of(decoding) >= 1:
        decoding = symbols.known("batch", value_of(decoding))
    room = setup.decode_memory.kv_bytes_per_gpu / demand.kv_per_gpu["decode"]
    each = engines * room / symbols.known("decode_turns", terms["decode_turns"])
    return (engines * decoding + turns_per_s * symbols.known("place_time", terms["place_time"])) * each


def _or_zero(symbols: Symbols, name: str, value: Any) -> Any:
    return symbols.known(name, value) if value else 0
