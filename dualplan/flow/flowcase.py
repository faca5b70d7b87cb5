"""Flow problems as JSON text (``flowcase/1``), the format in which solvers are compared.

::

    {"format": "flowcase/1", "name": "...", "description": "...",
     "links": [{"id": "a", "capacity": 100, "policy": "SHARED"}, ...],
     "flows": [{"links": [["a", 1]], "size": 200, "start": 0.0}, ...],
     "expected": {"finish": [2.0, ...]}}

Bytes, bytes per second, seconds. ``policy`` is SHARED (default) or FATPIPE (cap-only); a flow may have ``id``,
``weight``, ``rate_cap`` and ``prio``. Beyond the format: ``class_weights`` (class to weight) and ``capacity_changes``
(pairs of time and capacity) of links, ``class`` of flows, and ``classes`` where some are strict:
``[{"id": "kv", "after": ["collective"]}]``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from dualplan.errors import InputError, did_you_mean
from dualplan.flow.problem import Fault, Flow, FlowProblem, Link, Route, TrafficClass, problems, report

FORMAT = "flowcase/1"
MAX_FILE_BYTES = 256_000_000
"""About two million flows."""

_UNITS = {"capacity": "B/s", "size": "B", "time": "s"}
_POLICIES = {"SHARED": True, "FATPIPE": False}
_CASE_KEYS = ("format", "name", "description", "tags", "units", "links", "flows", "classes", "expected")
_LINK_KEYS = ("id", "capacity", "policy", "class_weights", "capacity_changes")
_FLOW_KEYS = ("id", "links", "size", "start", "weight", "rate_cap", "prio", "class")
_CLASS_KEYS = ("id", "after")


class FlowCase(msgspec.Struct, frozen=True, kw_only=True):
    """A flow problem as read. ``expected_finish_s``: completion times that the file expects, infinity for null there.

    ``ignored``: keys that this reader does not know, which is no error because other tools may add their own.
    """

    problem: FlowProblem
    name: str
    description: str
    expected_finish_s: tuple[float, ...] | None
    ignored: tuple[str, ...]


def parse_flowcase(text: str, name: str) -> FlowCase:
    """Read a flow case. Raises InputError with every problem found, under ``name`` and the key path."""
    reader = _Reader(name)
    document = reader.document(text)
    case = reader.case(document)
    # the rest is checked even where something was replaced, so that one run shows all faults
    report([*reader.faults, *(problems(case.problem) if reader.whole else ())], name)
    return case


class _Reader:
    """Turns parsed JSON into records. A faulty value is noted and replaced by a harmless one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults: list[Fault] = []
        self.ignored: dict[str, None] = {}
        self.whole = True
        self._routes: dict[Route, Route] = {}

    def fault(self, place: str, what: str, hint: str = "") -> None:
        self.faults.append((place, what, hint))

    def document(self, text: str) -> Mapping[str, Any]:
        """The top-level object. Raises InputError where there is none."""
        try:
            document = json.loads(text, object_pairs_hook=self._object)
        except json.JSONDecodeError as error:
            what = "is empty" if not text.strip() else f"is not JSON: {error.msg}, column {error.colno}"
            raise InputError(f"{self.name}:{error.lineno}", what) from None
        except ValueError:
            raise InputError(self.name, "holds a number that is too long") from None
        except RecursionError:
            raise InputError(self.name, "is nested too deeply") from None
        if "\\ud" in text.lower():
            try:
                json.dumps(document, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise InputError(self.name, "holds half of a surrogate pair, which is no character") from None
        if not isinstance(document, dict):
            raise InputError(self.name, f"holds {_kind(document)}, an object with links and flows is needed")
        return document

    def case(self, document: Mapping[str, Any]) -> FlowCase:
        """The whole file."""
        self._keys("", document, _CASE_KEYS)
        if document.get("format") != FORMAT:
            found = f"is {_shown(document['format'])}" if "format" in document else "is missing"
            self.fault("format", f"{found}, {json.dumps(FORMAT)} is needed")
        self._units(document.get("units", {}))
        links = tuple(self._each(document, "links", self._link))
        flows = tuple(self._each(document, "flows", self._flow))
        classes = tuple(self._each(document, "classes", self._class)) if "classes" in document else ()
        return FlowCase(
            problem=FlowProblem(links=links, flows=flows, classes=classes),
            name=self._text("name", document.get("name", "")),
            description=self._text("description", document.get("description", "")),
            expected_finish_s=self._expected(document.get("expected"), len(flows)),
            ignored=tuple(self.ignored),
        )

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            for name in found:
                if names.count(name) > 1:
                    self.fault(name[:60], "this key appears twice in one object")
        return found

    def _each(self, document: Mapping[str, Any], key: str, read: Callable[[str, Any, int], Any]) -> Iterable[Any]:
        if not isinstance(document.get(key), list):
            self.fault(key, f"is {_kind(document[key])}, a list is needed" if key in document else "is missing")
            self.whole = False
            return
        for i, item in enumerate(document[key]):
            if isinstance(item, dict):
                yield read(f"{key}[{i}]", item, i)
            else:
                self.fault(f"{key}[{i}]", f"is {_kind(item)}, an object is needed")
                self.whole = False

    def _link(self, place: str, item: Mapping[str, Any], number: int) -> Link:
        self._keys(f"{place}.", item, _LINK_KEYS)
        policy = item.get("policy", "SHARED")
        if not isinstance(policy, str) or policy not in _POLICIES:
            hint = did_you_mean(policy.upper(), _POLICIES) if isinstance(policy, str) else ""
            self.fault(f"{place}.policy", f"is {_shown(policy)}, not SHARED or FATPIPE", hint)
            policy = "SHARED"
        weights = item.get("class_weights", {})
        if not isinstance(weights, dict):
            self.fault(f"{place}.class_weights", f"is {_kind(weights)}, an object of classes and weights is needed")
            weights = {}
        return Link(
            id=self._link_id(place, item, number),
            capacity=self._number(f"{place}.capacity", item.get("capacity"), 1.0),
            shared=_POLICIES[policy],
            class_weights={
                name: self._number(f"{place}.class_weights.{name[:60]}", weight, 1.0)
                for name, weight in weights.items()
            },
            capacity_changes=self._changes(f"{place}.capacity_changes", item.get("capacity_changes", [])),
        )

    def _link_id(self, place: str, item: Mapping[str, Any], number: int) -> str:
        name = item.get("id")
        if isinstance(name, str) and name:
            return name
        self.fault(f"{place}.id", "is missing" if name is None else f"is {_shown(name)}, a text is needed")
        self.whole = False
        return f"link {number}"

    def _changes(self, place: str, items: Any) -> tuple[tuple[float, float], ...]:
        if not isinstance(items, list):
            self.fault(place, f"is {_kind(items)}, a list of [time, capacity] is needed")
            return ()
        changes = []
        for i, item in enumerate(items):
            if isinstance(item, list) and len(item) == 2:
                time = self._number(f"{place}[{i}][0]", item[0], float(i))
                changes.append((time, self._number(f"{place}[{i}][1]", item[1], 1.0)))
            else:
                self.fault(f"{place}[{i}]", f"is {_shown(item)}, [time, capacity] is needed")
        return tuple(changes)

    def _flow(self, place: str, item: Mapping[str, Any], number: int) -> Flow:
        self._keys(f"{place}.", item, _FLOW_KEYS)
        before = len(self.faults)
        route = self._route(f"{place}.links", item.get("links"))
        faulty_route = len(self.faults) > before
        cap = item.get("rate_cap")
        rate_cap = math.inf if cap is None else self._cap(f"{place}.rate_cap", cap)
        name = item.get("id", number)
        if not isinstance(name, (int, str)) or isinstance(name, bool):
            self.fault(f"{place}.id", f"is {_shown(name)}, a whole number or a text is needed")
            name = number
        return Flow(
            id=name,
            route=route,
            size=self._number(f"{place}.size", item.get("size"), 1.0),
            start=self._number(f"{place}.start", item.get("start"), 0.0),
            weight=self._number(f"{place}.weight", item.get("weight", 1.0), 1.0),
            rate_cap=min(rate_cap, 1.0) if faulty_route else rate_cap,
            priority=self._whole_number(f"{place}.prio", item.get("prio", 0)),
            traffic_class=self._text(f"{place}.class", item.get("class", "")),
        )

    def _cap(self, place: str, value: Any) -> float:
        cap = self._number(place, value, 1.0)
        if cap == math.inf:
            self.fault(place, "inf is not a finite number", "leave rate_cap out for a flow without a cap")
        return cap

    def _route(self, place: str, items: Any) -> Route:
        if not isinstance(items, list):
            self.fault(place, "is missing" if items is None else f"is {_kind(items)}, a list is needed")
            return ()
        route = []
        for i, item in enumerate(items):
            if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
                route.append((item[0], self._number(f"{place}[{i}][1]", item[1], 1.0)))
            else:
                self.fault(f"{place}[{i}]", f"is {_shown(item)}, [link id, times] is needed")
        # flows of large cases share routes: keep one copy of each
        return self._routes.setdefault(tuple(route), tuple(route))

    def _class(self, place: str, item: Mapping[str, Any], _: int) -> TrafficClass:
        self._keys(f"{place}.", item, _CLASS_KEYS)
        after = item.get("after", [])
        names = [after] if isinstance(after, str) else after
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.fault(f"{place}.after", f"is {_shown(after)}, a class or a list of classes is needed")
            names = []
        if "id" not in item:
            self.fault(f"{place}.id", "is missing")
        return TrafficClass(id=self._text(f"{place}.id", item.get("id", place)), after=tuple(names))

    def _expected(self, item: Any, n_flows: int) -> tuple[float, ...] | None:
        if item is None:
            return None
        if not isinstance(item, dict):
            self.fault("expected", f"is {_kind(item)}, an object is needed")
            return None
        finish = item.get("finish")
        if finish is None:
            return None
        if not isinstance(finish, list) or len(finish) != n_flows:
            found = f"{len(finish)} times" if isinstance(finish, list) else _kind(finish)
            self.fault("expected.finish", f"holds {found}, one for each of the {n_flows} flows is needed")
            return None
        return tuple(
            math.inf if time is None else self._number(f"expected.finish[{i}]", time, 0.0)
            for i, time in enumerate(finish)
        )

    def _units(self, item: Any) -> None:
        if not isinstance(item, dict):
            self.fault("units", f"is {_kind(item)}, an object is needed")
            return
        for key, unit in item.items():
            if key in _UNITS and unit != _UNITS[key]:
                self.fault(f"units.{key}", f"is {_shown(unit)}, only {_UNITS[key]} is read")

    def _keys(self, place: str, item: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in item:
            if key not in known:
                meant = did_you_mean(key, known)
                if meant:
                    self.fault(f"{place}{key[:60]}", "unknown key", meant)
                else:
                    self.ignored[f"{place.partition('[')[0]}{'[].' if '[' in place else ''}{key[:60]}"] = None

    def _number(self, place: str, value: Any, instead: float) -> float:
        if isinstance(value, float):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                self.fault(place, "is too large for a number")
                return instead
        if value is None:
            self.fault(place, "is missing")
        else:
            hint = "plain numbers in B, B/s and s" if isinstance(value, str) else ""
            self.fault(place, f"is {_shown(value)}, a number is needed", hint)
        return instead

    def _whole_number(self, place: str, value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.fault(place, f"is {_shown(value)}, a whole number is needed")
        return 0

    def _text(self, place: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        self.fault(place, f"is {_shown(value)}, a text is needed")
        return ""


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return names[type(value)]


def _shown(value: Any) -> str:
    return json.dumps(value)[:60] if isinstance(value, (str, int, float, bool)) else _kind(value)
