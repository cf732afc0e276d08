"""An exception that nobody expected inside the kernel reaches the user as an error of penstock, and nothing has changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.circuit.circuit import Circuit
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.engine.graph import OnError
from penstock.engine.registration import Prepared, install
from penstock.operators.aggregate import Aggregate
from penstock.plan import node as plan
from penstock.plan.node import Field

FIELDS = (Field("k", "bigint"), Field("v", "bigint"))
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=(("evalMode", "ANSI"),))
TOTALS = plan.View("totals", "", plan.Aggregate(FIELDS, plan.Scan(FIELDS, "rows", (0, 1)), (0,), (SUM,)))
UNEXPECTED = [
    AssertionError(),
    AttributeError("'NoneType' object has no attribute 'cast'"),
    IndexError("list index out of range"),
    KeyError("city"),
    OSError(5, "input/output error"),
    OverflowError("int too large to convert"),
    pa.ArrowInvalid("cannot cast"),
    pa.ArrowNotImplementedError("no kernel"),
    pa.ArrowTypeError("expected int"),
    RecursionError("maximum recursion depth exceeded"),
    RuntimeError("dictionary changed size"),
    TypeError("unsupported operand"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ValueError("zero-size array"),
    ZeroDivisionError("division by zero"),
]
TOO_LARGE = [
    pa.ArrowCapacityError("array of 2147483648 bytes"),
    pa.ArrowInvalid("offset overflow while concatenating"),
]
NO_MEMORY = [MemoryError(), pa.ArrowMemoryError("malloc of size 8 failed")]


@pytest.fixture
def flow() -> ps.IncrementalFlow:
    made = ps.IncrementalFlow(clock=lambda: 7)
    made.register_source("rows", "k BIGINT, v BIGINT")
    install(made._graph, _prepared(TOTALS), 0)
    made.tick("rows", [{"k": 1, "v": 2}])
    return made


def _prepared(view: plan.View, on_error: OnError = "reject") -> Prepared:
    return Prepared(view, lambda node: pytest.fail(str(node)), on_error=on_error)


def _by_value(name: str) -> plan.View:
    root = plan.Aggregate(FIELDS, plan.Scan(FIELDS, "rows", (0, 1)), (1,), (SUM,))
    return plan.View(name, "", root)


@contextmanager
def _broken(monkeypatch: pytest.MonkeyPatch, thrown: Exception) -> Iterator[None]:
    """Inside, every step of an aggregate raises it."""

    def step(self: Aggregate, inputs: Sequence[Delta], tick: Tick) -> Delta:
        raise thrown

    with monkeypatch.context() as patch:
        patch.setattr(Aggregate, "step", step)
        yield


def _names(thrown: Exception) -> str:
    return f"{type(thrown).__name__} {thrown}".strip()


@pytest.mark.parametrize("thrown", UNEXPECTED + TOO_LARGE + NO_MEMORY, ids=_names)
def test_tick_that_meets_it_is_refused_with_view_operator_and_cause(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch, thrown: Exception
) -> None:
    with _broken(monkeypatch, thrown), pytest.raises(ps.PenstockError) as caught:
        flow.tick("rows", [{"k": 1, "v": 3}])
    assert caught.value.__cause__ is thrown
    assert caught.value.where == "view 'totals', aggregate"
    assert caught.value.message.startswith(f"tick 2 failed: {type(thrown).__name__}")
    assert caught.value.hint
    assert flow.snapshot("totals").to_pylist() == [{"k": 1, "v": 2}]
    flow.tick("rows", [{"k": 1, "v": 3}])
    assert flow.snapshot("totals").to_pylist() == [{"k": 1, "v": 5}]


@pytest.mark.parametrize(
    ("thrown", "kind", "code"),
    [
        *((one, ps.InternalError, "INTERNAL") for one in UNEXPECTED),
        *((one, ps.DataError, "DATA_TOO_LARGE") for one in TOO_LARGE),
        *((one, MemoryError, "OUT_OF_MEMORY") for one in NO_MEMORY),
    ],
    ids=lambda value: _names(value) if isinstance(value, Exception) else None,
)
def test_kind_says_who_must_act(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch, thrown: Exception, kind: type[Any], code: str
) -> None:
    with _broken(monkeypatch, thrown), pytest.raises(kind) as caught:
        flow.tick("rows", [{"k": 1, "v": 3}])
    assert caught.value.code == code


def test_registration_that_meets_it_leaves_no_view(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = _by_value("again")
    with _broken(monkeypatch, KeyError("city")), pytest.raises(ps.InternalError, match="city") as caught:
        install(flow._graph, _prepared(view), 0)
    assert caught.value.where == "view 'again', aggregate"
    assert "again" not in flow._graph.views
    install(flow._graph, _prepared(view), 0)
    assert flow.snapshot("again").num_rows == 1


def test_view_that_does_not_compile_is_not_registered(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = _by_value("again")
    monkeypatch.setattr(Circuit, "fill", lambda *_, **__: dict[str, int]()["city"])
    with pytest.raises(ps.InternalError, match="the registration of view 'again' failed: KeyError: 'city'"):
        install(flow._graph, _prepared(view), 0)
    assert "again" not in flow._graph.views


def test_optional_view_is_suspended_with_it(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.drop_view("totals")
    install(flow._graph, _prepared(_by_value("by_value"), "suspend"), 0)
    with _broken(monkeypatch, IndexError("list index out of range")):
        summary = flow.tick("rows", [{"k": 1, "v": 3}])
    assert summary.tick == 2
    assert "IndexError" in str(flow._graph.state.suspended["by_value"])
