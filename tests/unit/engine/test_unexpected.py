"""An exception that nobody expected inside the kernel reaches the user as an error of penstock, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.circuit.circuit import Circuit
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.engine import feed, full_checkpoint, read, replay
from penstock.engine.checkpoint import FlowCheckpoints
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


# Methods outside of ticks and registrations, and what they call inside.
OUTSIDE: list[tuple[str, Any, str, Callable[[ps.IncrementalFlow, Path], Any]]] = [
    ("feed", feed, "to_delta", lambda flow, _: flow.feed("rows", [{"k": 1, "v": 2}])),
    ("feed_snapshot", feed, "to_delta", lambda flow, _: flow.feed_snapshot("rows", [{"k": 1, "v": 2}])),
    ("check", feed, "to_delta", lambda flow, _: flow.check("rows", [{"k": 1, "v": 2}])),
    ("tick", feed, "to_delta", lambda flow, _: flow.tick("rows", [{"k": 1, "v": 2}])),
    ("snapshot", read, "to_table", lambda flow, _: flow.snapshot("totals")),
    ("lookup", read, "to_table", lambda flow, _: flow.lookup("totals", k=1)),
    ("metrics", read, "metrics", lambda flow, _: flow.metrics()),
    ("checkpoint", FlowCheckpoints, "stage", lambda flow, path: flow.checkpoint(path / "new")),
    ("checkpoint_full", full_checkpoint, "stage", lambda flow, path: flow.checkpoint_full(path / "new")),
    ("restore", replay, "restored", lambda flow, path: flow.restore(path / "saved")),
    ("load", replay, "restored", lambda _, path: ps.IncrementalFlow.load(path / "saved")),
]


@pytest.mark.parametrize(("method", "owner", "inside", "call"), OUTSIDE, ids=[case[0] for case in OUTSIDE])
def test_methods_outside_of_ticks_raise_it_as_an_error_of_penstock(
    flow: ps.IncrementalFlow,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    method: str,
    owner: Any,
    inside: str,
    call: Callable[[ps.IncrementalFlow, Path], Any],
) -> None:
    flow.checkpoint(tmp_path / "saved")
    for thrown in (*UNEXPECTED, *TOO_LARGE, *NO_MEMORY):
        if isinstance(thrown, OSError):
            continue  # the system's own word about a file

        def broken(*_: Any, thrown: Exception = thrown, **__: Any) -> None:
            raise thrown

        with monkeypatch.context() as patch:
            patch.setattr(owner, inside, broken)
            with pytest.raises(ps.PenstockError) as caught:
                call(flow, tmp_path)
        assert caught.value.__cause__ is thrown
        said = "flow.restore" if method == "load" else f"flow.{method}"
        assert caught.value.message.startswith(f"{said} failed: {type(thrown).__name__}")
    call(flow, tmp_path)
    assert flow.snapshot("totals").num_rows == 1


def test_calls_that_do_not_fit_stay_errors_of_python(flow: ps.IncrementalFlow) -> None:
    with pytest.raises(TypeError, match="ordnal"):
        flow.feed("rows", [], ordnal=1)  # type: ignore[call-arg]
