"""The equations behind an answer, each with its derivation, its numbers, and its text, LaTeX and MathML.

Nothing is typed twice: the functions of dualplan.model and dualplan.plan run once more on numbers that remember their
formula (:mod:`dualplan.model.symbolic`), with symbols for the hardware and for what a mean turn asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dualplan.messages import Message, message
from dualplan.messages import text as text_of
from dualplan.model import closed_form, kv
from dualplan.model.closed_form import Constraint
from dualplan.model.collectives import decode_exchange_bytes, prefill_exchange_bytes, remote_copies, remote_nodes
from dualplan.model.demand import cached_bytes, usable_hbm
from dualplan.model.memory import kv_bytes_left
from dualplan.model.service_times import scale_up_gpus
from dualplan.model.symbolic import Known, value_of
from dualplan.model.throughput import Use
from dualplan.model.traffic import SIDES, amount, charges, hits_only, steps
from dualplan.plan.explain.equation import (
    OWN,
    RELATIONS,
    Equation,
    Sign,
    expanded,
    of_quantity,
    of_resource,
    short_form,
    tidy,
)
from dualplan.plan.explain.notation import Symbols, quantity_latex, quantity_text
from dualplan.plan.explain.pass_model import attention_of_pairs, decode_load, waiting_terms, work_terms
from dualplan.plan.explain.roofline_terms import Term, roofline_terms
from dualplan.plan.explain.symbolic_setup import same, symbolic_demand, symbolic_problem, symbolic_setup
from dualplan.spec.choices import SINGLE_SIDED
from dualplan.spec.hardware import Hardware
from dualplan.spec.parallel import Parallel
from dualplan.spec.scenario import Scenario
from dualplan.spec.workload import mean_turns
from dualplan.steady.latencies import decode_bytes, decode_sequences, unloaded_ttft
from dualplan.steady.problem import build
from dualplan.steady.ranges import constraints, exact_bytes, saturated
from dualplan.steady.rate import solve
from dualplan.steady.reasons import misfits
from dualplan.steady.resources import TITLES, Resource, storage_bandwidth
from dualplan.steady.resources import title as title_of
from dualplan.steady.setup import prepare


def equations(scenario: Scenario) -> tuple[Equation, ...]:
    """Every equation that the steady answer of a scenario uses. Raises InputError as ``evaluate`` does."""
    return tuple(Derivation(scenario).equations())


class Derivation:
    """A deployment twice: with numbers, and with symbols in their place."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.setup = prepare(scenario)
        self.problem = build(self.setup, scenario.settings.mode)
        self.symbols = Symbols()
        self.rate = None if misfits(self.setup, self.problem) else solve(self.problem)
        known = self.symbols.known
        self.turns = known("turns_per_s", float(self.rate.turns_per_s or 0.0) if self.rate else 0.0)
        single = self.problem.mode in SINGLE_SIDED
        share = float(self.rate.decode_share) if self.rate else 0.0
        self.share: Any = 0 if single else known("decode_read_share", share)
        self.known_demand = symbolic_demand(self.symbols, self.problem.demand, scenario, self.problem.mode)
        self.known_setup = symbolic_setup(self.symbols, self.setup)
        self.known_problem = symbolic_problem(self.symbols, self.known_setup, self.known_demand, self.problem)
        settings = scenario.settings
        self.table = steps(self.problem.mode, staging=settings.staging, copy=settings.copy, persist=settings.persist)

    def equation(
        self,
        name: str,
        kind: str,
        group: str,
        left: Sign,
        right: Any,
        unit: str,
        *,
        title: Message | None = None,
        relation: str = "=",
        exact: str | None = None,
        value: Any = None,
        derivation: Iterable[Message] = (),
        source: str = OWN,
    ) -> Equation:
        """An equation from its left side and a right side that remembers its formula."""
        symbols = self.symbols
        formula = tidy(right.formula if isinstance(right, Known) else Known(right, 0).value)
        found = float(value_of(right) if value is None else value)
        numbers, numbers_latex = symbols.substituted(formula), symbols.substituted_latex(formula)
        if formula.is_Symbol or formula.is_number:
            numbers, numbers_latex = "", ""
        sign = RELATIONS[relation]
        text, latex, written = symbols.text(formula), symbols.latex(formula), symbols.mathml(formula)
        if text == left.text:  # an input: it stands for itself
            text, latex = quantity_text(found, unit), quantity_latex(found, unit)
            written = f"<mtext>{text}</mtext>"
        mathml = f"<mrow>{left.mathml}<mo>{relation}</mo>{written}</mrow>"
        return Equation(
            name=name,
            kind=kind,
            group=group,
            title=title or message(f"quantity.{name}"),
            symbol=left.text,
            relation=relation,
            text=f"{left.text} {relation} {text}",
            latex=f"{left.latex} {sign} {latex}",
            mathml=f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">{mathml}</math>',
            substituted=f"{numbers} = {quantity_text(found, unit)}" if numbers else quantity_text(found, unit),
            substituted_latex=f"{numbers_latex} = {quantity_latex(found, unit)}"
            if numbers_latex
            else quantity_latex(found, unit),
            value=found,
            unit=unit,
            exact=exact,
            derivation=tuple(derivation),
            inputs=symbols.of(formula),
            source=source,
        )

    def equations(self) -> Iterator[Equation]:
        """All equations, group by group."""
        yield from self._turn()
        yield from self._loads()
        yield from self._capacities()
        yield from self._bounds()
        yield from self._rate()
        yield from self._latencies()
        yield from self._pairs()

    # ---------------------------------------------------------------- what a turn asks for

    def _turn(self) -> Iterator[Equation]:
        scenario, demand, known = self.scenario, self.problem.demand, self.symbols.known
        model, form = scenario.model, demand.kv_format
        per_token = known("kv_bytes_per_token", kv.kv_total_bytes_per_token(model, form))
        state_bytes = kv.state_bytes_per_sequence(model, form)
        state: Any = known("state_bytes", state_bytes) if state_bytes else 0
        mean = self.setup.turns
        tokens = {
            "hit": ("hit_tokens", demand.hit_tokens),
            "miss": ("computed_tokens", demand.computed_tokens),
            "append_bytes": ("append_tokens", mean.mean(turn.append for turn in mean.mix)),
            "generated": ("generated_tokens", demand.generated),
        }
        for name, (count, number) in tokens.items():
            if number:
                size = cached_bytes(per_token, known(count, number), 0 if name == "append_bytes" else state)
                size_of_one = {"bytes": quantity_text(per_token.value, "B"), "form": str(form)}
                lines = [message("derivation.at_bytes", what=message(f"derivation.{name}"), **size_of_one)]
                if name == "hit":
                    block = scenario.workload.block
                    whole = message("derivation.blocks", block=block)
                    lines.append(whole if block > 1 else message("derivation.measured"))
                yield self.equation(name, "value", "turn", of_quantity(name), size, "B", derivation=lines)
        yield from self._collectives()
        yield from self._compute()

    def _collectives(self) -> Iterator[Equation]:
        scenario, amounts, known = self.scenario, self.problem.amounts, self.symbols.known
        model, experts = scenario.model, scenario.model.experts
        if experts is None:
            return
        sides: tuple[tuple[str, Parallel, Hardware, Any], ...] = (
            ("prefill", self.setup.prefill_parallel, scenario.hardware, self.problem.demand.computed_tokens),
            ("decode", self.setup.decode_parallel, scenario.decode_hardware, self.problem.demand.generated),
        )
        for side, parallel, hardware, number in sides:
            nodes = -(-parallel.ep // scale_up_gpus(hardware))
            name = f"{side}_collective"
            if not getattr(amounts, name) or nodes < 2 or parallel.tp > scale_up_gpus(hardware):
                continue
            layers = known("moe_layers", model.moe_layers)
            width = known("width", experts.latent or model.hidden_size)
            if side == "prefill":
                copies = known("prefill_copies", float(remote_nodes(experts, nodes)))
                size = known("computed_tokens", number) * prefill_exchange_bytes(layers, copies, width)
            else:
                copies = known("decode_copies", float(remote_copies(experts.top_k, nodes)))
                size = known("generated_tokens", number) * decode_exchange_bytes(layers, copies, width)
            lines = (
                message("derivation.copies", parallel=str(parallel), nodes=nodes, copies=copies.value),
                message("derivation.copy"),
            )
            yield self.equation(
                name, "value", "turn", of_quantity(name), size, "B", derivation=lines, source="DeepEP message sizes"
            )

    def _compute(self) -> Iterator[Equation]:
        known = self.symbols.known
        for side, memory, hardware in (
            ("prefill", self.setup.prefill_memory, self.scenario.hardware),
            ("decode", self.setup.decode_memory, self.scenario.decode_hardware),
        ):
            weights = known("weight_bytes", memory.weight_bytes_per_gpu, side)
            name, usable = f"{side}_kv_room", known("usable_bytes_per_gpu", usable_hbm(hardware), side)
            room = kv_bytes_left(usable, weights, share=1, reserve=0)
            yield self.equation(name, "value", "turn", of_quantity(name), room, "B")
        yield from self._times()

    def _times(self) -> Iterator[Equation]:
        """Compute times: coefficients as the roofline gives them where it does, then what a turn takes."""
        demand, known, times = self.problem.demand, self.symbols.known, self.setup.times
        values = {
            "pass_launch": times.pass_base,
            "decode_step_base_s": demand.decode_base,
            "decode_step_per_sequence_s": demand.decode_slope,
            "decode_step_experts_s": demand.decode_experts,
            "pair_time": attention_of_pairs(self.setup),
        }
        derived = {
            term.name
            for term in roofline_terms(self.symbols, self.setup)
            if same(term.value, values.get(term.name, getattr(times, term.name, 0)))
        }
        for term in roofline_terms(self.symbols, self.setup):
            if term.name in derived:
                yield self._term(term, "turn")
        for term in work_terms(self.symbols, self.setup, self.problem):
            yield self._term(term, "turn")
        for name in ("decode_step_base_s", "decode_step_per_sequence_s"):
            if name not in derived:
                lines = (message("assumption.compute_times", origin=demand.compute_origin),)
                yield self._term(Term(name, known(name, values[name]), "s", lines), "turn")

    # ---------------------------------------------------------------- resources

    def _title(self, resource: Resource) -> Message:
        words = title_of(resource.name)
        return message("resource.detailed", resource=words, detail=resource.detail) if resource.detail else words

    def _loads(self) -> Iterator[Equation]:
        for resource in self.known_problem.resources:
            title = self._title(resource)
            left = of_resource("L", text_of(title))
            if resource.unit == "turns/s":
                continue
            load = self.turns * Use(resource.name, resource.prefill, resource.decode).at(self.share)
            lines = (
                list(self._rows(resource))
                if resource.unit == "B/s"
                else [message(f"held.{_HELD.get(resource.name, resource.name)}")]
            )
            if resource.name == "decode_hbm":
                load = self._decode_load()
            yield self.equation(
                resource.name,
                "load",
                "loads",
                left,
                load,
                resource.unit,
                title=message("equation.load", resource=title),
                derivation=lines,
            )

    def _decode_load(self) -> Any:
        """Bytes that turns hold of decode HBM."""
        if self.known_demand.passes is not None:
            return decode_load(self.symbols, self.known_setup, self.known_problem, self.turns)
        found = decode_sequences(self.known_setup, self.known_demand, self.turns, self.share)
        return found * decode_bytes(self.known_setup, self.known_demand)

    def _term(self, term: Term, group: str) -> Equation:
        """The equation of a term."""
        name, lines = term.name, term.lines
        return self.equation(name, "value", group, of_quantity(name), term.value, term.unit, derivation=lines)

    def _rows(self, resource: Resource) -> Iterator[Message]:
        """The rows of the step table that charge a resource, by read path, and what they add up to."""
        shares = tuple(hardware.snic.shares_cnic for _, hardware in self.scenario.sides)
        for path, total in zip(SIDES, (resource.prefill, resource.decode), strict=True):
            if path not in self.table:
                continue
            parts = []
            for step in self.table[path]:
                times = sum(_charged(resource, name) for name in charges(step, shares_cnic=(shares[0], shares[1])))
                if times and (moved := amount(step, self.known_demand.amounts)):
                    count = f"{times} x " if times > 1 else ""
                    places = {"source": message(f"spot.{step.source}"), "target": message(f"spot.{step.target}")}
                    size = f"{count}{self.symbols.text(moved.formula)}"
                    parts.append(message("derivation.step", label=step.label, **places, bytes=size))
            if parts:
                yield message("derivation.rows", side=path, steps=tuple(parts))
                if isinstance(total, Known):
                    formula = self.symbols.text(tidy(total.formula))
                    yield message("derivation.together", formula=formula, bytes=quantity_text(total.value, "B"))
            elif not total:
                yield message("derivation.no_rows", side=path)

    def _capacities(self) -> Iterator[Equation]:
        for resource in self.known_problem.resources:
            title = self._title(resource)
            unit = "1/s" if resource.unit == "turns/s" else resource.unit
            lines = [message(f"room.{_ROOM.get(resource.name, 'all_nodes')}")]
            yield self.equation(
                resource.name,
                "capacity",
                "capacities",
                of_resource("K", text_of(title)),
                resource.capacity,
                unit,
                title=message("equation.capacity", resource=title),
                derivation=lines,
            )

    # ---------------------------------------------------------------- range

    def _bounds(self) -> Iterator[Equation]:
        amounts = exact_bytes(self.setup, self.problem)
        if not amounts.read or self.problem.mode == "oracle":
            return
        storage = tuple(storage_bandwidth(hardware) for _, hardware in self.known_setup.scenario.sides)
        busy = saturated(self.problem, storage)
        busy_exact = saturated(self.problem, tuple(map(exact_storage, self.scenario.sides)))
        pairs = zip(
            constraints(self.known_setup, self.known_problem, self.known_demand.amounts),
            constraints(self.setup, self.problem, amounts),
            strict=True,
        )
        for constraint, numbers in pairs:
            yield self._bound(constraint, numbers, busy, busy_exact)

    def _bound(self, known: Constraint, numbers: Constraint, busy: Any, busy_exact: Any) -> Equation:
        prefill = known.side == "prefill"
        bound = closed_form.lower_bound if prefill else closed_form.upper_bound
        load = closed_form.prefill_side_load if prefill else closed_form.decode_side_load
        ratio = self.symbols.known("pd_ratio", self.setup.prefill_nodes / self.setup.decode_nodes)
        carried = load(ratio, busy[0], busy[1], known.prefill_share, known.decode_share)
        symbols, lines = self.symbols, []
        for name, share in (("prefill", known.prefill_share), ("decode", known.decode_share)):
            if share:
                formula = symbols.text(expanded(share))
                value = float(value_of(share))
                lines.append(message("derivation.bytes_on_it", side=name, formula=formula, value=value))
        held, most = symbols.text(tidy(carried.formula)), symbols.text(tidy(known.capacity.formula))
        lines.append(message("derivation.holds", carried=held, capacity=most))
        moves = busy_exact[1] * numbers.decode_share if prefill else busy_exact[0] * numbers.prefill_share
        fixed = busy_exact[0] * numbers.prefill_share if prefill else busy_exact[1] * numbers.decode_share
        if not moves or numbers.capacity <= fixed:
            verdict = message(f"derivation.{'every_pd' if numbers.capacity >= fixed + moves else 'no_pd'}")
            return self.equation(
                known.name,
                "condition",
                "range",
                of_resource("C", TITLES[known.name]),
                carried,
                "B/s",
                relation="≥",
                title=message("equation.condition", resource=title_of(known.name)),
                derivation=(*lines, verdict),
                source="DualPath, section 4",
            )
        arguments = (known.capacity, *busy, known.prefill_share, known.decode_share)
        exact = bound(numbers.capacity, busy_exact[0], busy_exact[1], numbers.prefill_share, numbers.decode_share)
        paper = self._published(known.name, bound, busy)
        return self.equation(
            known.name,
            "bound",
            "range",
            of_quantity("pd_ratio"),
            bound(*arguments),
            "1",
            relation="≥" if prefill else "≤",
            title=message(f"equation.{'lowest' if prefill else 'highest'}", resource=title_of(known.name)),
            exact=str(exact),
            value=exact,
            derivation=(*lines, *paper),
            source="DualPath, section 4",
        )

    def _published(self, name: str, bound: Any, busy: Any) -> Iterator[Message]:
        """The bound for hit bytes alone, as the paper has it."""
        found = constraints(self.known_setup, self.known_problem, hits_only(self.known_demand.amounts.hit))
        for constraint in found:
            moves = constraint.decode_share if constraint.side == "prefill" else constraint.prefill_share
            if constraint.name == name and moves:
                value = bound(constraint.capacity, *busy, constraint.prefill_share, constraint.decode_share)
                if value_of(value) > 0:
                    formula = self.symbols.text(tidy(value.formula))
                    yield message("derivation.hits_alone", formula=formula, value=value)

    # ---------------------------------------------------------------- rate and latencies

    def _rate(self) -> Iterator[Equation]:
        rate, known = self.rate, self.symbols.known
        if rate is None or rate.binding is None:
            return
        binding = self.problem.resources[rate.binding]
        title = self._title(binding)
        resource = self.known_problem.resources[rate.binding]
        taken = [resource.prefill / resource.capacity, resource.decode / resource.capacity]
        names = ("seconds_prefill_read", "seconds_decode_read")
        symbols = []
        for name, side, seconds in zip(names, SIDES, taken, strict=True):
            if side not in self.table or not value_of(seconds):
                symbols.append(known(name, value_of(seconds)) if value_of(seconds) else 0)
                continue
            symbols.append(known(name, value_of(seconds)))
            yield self.equation(
                name,
                "value",
                "throughput",
                of_quantity(name),
                seconds,
                "s",
                title=message("equation.seconds", resource=title, side=side),
                derivation=(
                    message("derivation.filling" if binding.name in self.problem.filling else "derivation.seconds"),
                ),
            )
        if self.share:
            share = solve(self.known_problem).decode_share
            lines = [message("derivation.best_split")]
            if isinstance(share, Known):
                yield self.equation(
                    "decode_read_share",
                    "value",
                    "throughput",
                    of_quantity("decode_read_share"),
                    Known(share.value, short_form(share.formula)),
                    "1",
                    derivation=lines,
                )
        use = Use(binding.name, *symbols)
        yield self.equation(
            "turns_per_s",
            "value",
            "throughput",
            of_quantity("turns_per_s"),
            1 / use.at(self.share),
            "1/s",
            derivation=(message("derivation.binds", resource=title), message("derivation.programme")),
        )
        turns = known("turns", mean_turns(self.scenario.workload))
        yield self.equation(
            "agents_per_s", "value", "throughput", of_quantity("agents_per_s"), self.turns / turns, "1/s"
        )

    def _latencies(self) -> Iterator[Equation]:
        demand, known = self.known_demand, self.symbols.known
        ttft = unloaded_ttft(self.known_setup, self.known_demand, self.problem.mode, self.share)
        lines = [message("derivation.ttft")]
        yield self.equation(
            "ttft_unloaded_s", "value", "latency", of_quantity("ttft_unloaded_s"), ttft, "s", derivation=lines
        )
        if demand.passes is not None:
            for term in waiting_terms(self.symbols, self.known_setup, self.known_problem, self.turns):
                yield self._term(term, "latency")
        if not (self.rate and demand.generated):
            return
        engines = known("decode_engines", self.setup.engines("decode"))
        sequences = demand.step.batch_at_rate(self.turns / engines, demand.generated)
        lines = [message("derivation.little")]
        if not isinstance(sequences, Known):
            step = demand.step.time(known("batch", sequences))
            sequences = self.turns / engines * demand.generated * step
            lines.append(message("derivation.search"))
        yield self.equation("batch", "value", "latency", of_quantity("batch"), sequences, "1", derivation=lines)
        tpot = demand.step.time(known("batch", max(value_of(sequences), 1.0)))
        lines = [message("derivation.tpot")]
        yield self.equation("tpot_s", "value", "latency", of_quantity("tpot_s"), tpot, "s", derivation=lines)

    def _pairs(self) -> Iterator[Equation]:
        setup, scenario = self.known_setup, self.known_setup.scenario
        storage = [storage_bandwidth(hardware) for _, hardware in scenario.sides]
        gpus = [hardware.gpu.count for _, hardware in scenario.sides]
        traffic = (
            ("pair_traffic_prefill_read", closed_form.pair_traffic_prefill_read(storage[0], setup.decode_nodes, *gpus)),
            ("pair_traffic_decode_read", closed_form.pair_traffic_decode_read(storage[1], setup.prefill_nodes, *gpus)),
        )
        for name, value in traffic:
            lines = (message("derivation.pairs"),)
            yield self.equation(
                name, "value", "pairs", of_quantity(name), value, "B/s", derivation=lines, source="DualPath, eq. 1-4"
            )


_HELD = {"prefill_buffer": "buffer", "decode_buffer": "buffer"}
"""What is said of how a memory is held, where it has another name than the memory."""

_ROOM = {
    **{name: name for name in ("prefill_compute", "decode_compute", "prefill_hbm", "decode_hbm")},
    **{name: name for name in ("storage_backend", "copy_submission")},
    "prefill_snic_ingress": "snic_ingress",
    "decode_snic_ingress": "snic_ingress",
}
"""What is said of a capacity that is more than what all nodes of the side have together."""


def exact_storage(side: tuple[str, Hardware]) -> Any:
    """Nominal storage bandwidth of a node of a side, exactly."""
    from dualplan.model.symbolic import exact

    return exact(storage_bandwidth(side[1]))


def _charged(resource: Resource, name: str) -> int:
    """How often a charge of the step table falls on a resource; for shared links those that may."""
    if resource.name == "storage_backend":
        return int(name.endswith("snic_ingress" if resource.detail == message("detail.reads") else "snic_egress"))
    if resource.name in ("pcie_uplink", "numa_link"):
        return int(name.startswith(f"{resource.side}_pcie_"))
    return int(name == resource.name)
