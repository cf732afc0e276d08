"""Rows through a real HTTP service, as a Spark task sends them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock import config
from penstock.data.schema import to_arrow_schema
from penstock.errors import ConfigError, ConnectorError, DataError
from penstock.pipeline.transforms.handler import HandlerNode
from penstock.transforms import TRANSFORMS
from penstock.transforms.columns import output_columns
from penstock.transforms.failed_rows import TaskFailed, with_error_columns
from penstock.transforms.handler.service import Service, ServiceClient
from penstock.transforms.handler.task import HandlerTask
from penstock.transforms.handler.transform import HandlerTransform
from penstock.transforms.task_error import carried
from servers.http_service import HttpService


@pytest.fixture
def service() -> Iterator[HttpService]:
    with HttpService() as running:
        yield running


def _task(
    service: HttpService,
    in_ddl: str,
    out_ddl: str | None = None,
    *,
    keeps_failed: bool = False,
    retry_for: float = 20,
    timeout: float = 10,
    batch_size: int = 500,
    single: bool = False,
    parallelism: int = 4,
    headers: dict[str, str] | None = None,
    keys: tuple[str, ...] = (),
) -> HandlerTask:
    fields = output_columns(out_ddl, to_arrow_schema(in_ddl))
    return HandlerTask(
        service=Service(service.url, headers or {}, timeout, retry_for),
        columns=pa.schema(fields),
        out_schema=with_error_columns(fields) if keeps_failed else pa.schema(fields),
        zone="UTC",
        node="node",
        batch_size=batch_size,
        single=single,
        parallelism=parallelism,
        keeps_failed=keeps_failed,
        keys=keys,
    )


def _run(
    service: HttpService, rows: list[dict[str, Any]], in_ddl: str, out_ddl: str | None = None, **options: Any
) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(in_ddl))
    return [row for piece in _task(service, in_ddl, out_ddl, **options)([batch]) for row in piece.to_pylist()]


def _error(
    service: HttpService, rows: list[dict[str, Any]], in_ddl: str, out_ddl: str | None = None, **options: Any
) -> Any:
    with pytest.raises(TaskFailed) as failed:
        _run(service, rows, in_ddl, out_ddl, **options)
    assert "t0ps3cret" not in str(failed.value)
    return carried(failed.value)


def _ids(*ids: int) -> list[dict[str, Any]]:
    return [{"id": value} for value in ids]


def test_rows_are_posted_in_portions_and_answered_in_order(service: HttpService) -> None:
    service.respond = lambda rows: [
        None if row["id"] == 3 else {"id": row["id"] * 10, "more": 1} for row in rows
    ]
    rows = _run(service, _ids(*range(10)), "id BIGINT", batch_size=3, headers={"X-Own": "y"})
    assert rows == _ids(0, 10, 20, 40, 50, 60, 70, 80, 90)
    assert sorted(len(body) for body in service.bodies) == [1, 3, 3, 3]
    assert service.headers[0]["Content-Type"] == "application/json"
    assert service.headers[0]["X-Own"] == "y"


def test_one_row_per_request(service: HttpService) -> None:
    answers: dict[int, Any] = {0: None, 1: {"id": 10}, 2: [{"id": 20}, {"id": 21}], 3: b""}
    service.respond = lambda row: answers[row["id"]]
    assert _run(service, _ids(0, 1, 2, 3), "id BIGINT", single=True) == _ids(10, 20, 21)
    assert sorted(body["id"] for body in service.bodies) == [0, 1, 2, 3]


def test_no_more_requests_at_once_than_allowed(service: HttpService) -> None:
    together = threading.Barrier(3)

    def respond(rows: Any) -> Any:
        together.wait(timeout=20)
        return rows

    service.respond = respond
    assert _run(service, _ids(*range(9)), "id INT", batch_size=1, parallelism=3) == _ids(*range(9))
    assert service.most_at_once == 3


def test_every_type_there_and_back(service: HttpService) -> None:
    columns = (
        "b BOOLEAN, i8 TINYINT, i64 BIGINT, d DOUBLE, s STRING, bin BINARY, day DATE, ts TIMESTAMP, ntz TIMESTAMP_NTZ, "
        "dec DECIMAL(38,10), tags ARRAY<STRING>, m MAP<INT, DOUBLE>, st STRUCT<a: BIGINT, b: STRUCT<c: DATE>>"
    )
    rows: list[dict[str, Any]] = [
        {
            "b": True,
            "i8": -128,
            "i64": 2**63 - 1,
            "d": 0.1,
            "s": "Zoë 😀 \x00",
            "bin": b"\x00\xff",
            "day": date(2026, 1, 2),
            "ts": datetime(2026, 1, 1, 10, 0, 0, 123456, tzinfo=UTC),
            "ntz": datetime(1969, 12, 31, 23, 59, 59, 999000),
            "dec": Decimal("-1234567890123456789012345678.0000000001"),
            "tags": ["a", None],
            "m": [(1, 0.5), (-2, None)],
            "st": {"a": 7, "b": {"c": date(9999, 12, 31)}},
        },
        dict.fromkeys(field.name for field in to_arrow_schema(columns)),
    ]
    assert _run(service, rows, columns) == rows
    [row] = _run(service, [{"d": math.inf}], "d DOUBLE")
    assert row["d"] == math.inf
    service.respond = lambda _: b'[{"n": 1.0, "dec": 0.123456789012345678901, "s": "\\ud800", "more": 1}]'
    assert _run(service, _ids(1), "id INT", "n INT, dec DECIMAL(38,21), s STRING, missing DATE") == [
        {"n": 1, "dec": Decimal("0.123456789012345678901"), "s": "\ufffd", "missing": None}
    ]


def test_a_row_that_does_not_fit_fails_alone_where_it_is_known(service: HttpService) -> None:
    service.respond = lambda rows: [{"n": "x" if row["id"] == 2 else row["id"]} for row in rows]
    rows = _run(service, _ids(1, 2, 3), "id INT", "n INT", keeps_failed=True)
    assert rows == [
        {"n": 1, "_error": None, "_input": None},
        {"n": 3, "_error": None, "_input": None},
        {"n": None, "_error": "column 'n' is INT and got \"x\"", "_input": '{"id":2}'},
    ]
    error = _error(service, _ids(1, 2, 3), "id INT", "n INT")
    assert isinstance(error, DataError)
    assert (error.code, error.where) == ("HANDLER_ROW", service.url.partition("?")[0])
    assert error.message.endswith('column \'n\' is INT and got "x"; the row is {"id":2}')
    service.respond = lambda rows: [{"n": 1}, {"n": "x"}]
    rows = _run(service, _ids(1, 2, 3), "id INT", "n INT", keeps_failed=True)
    assert [row["_error"] for row in rows] == [
        "one of the rows that the service answers: column 'n' is INT and got \"x\""
    ] * 3


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"<html>", "the service answers what is no JSON: <html>"),
        ([1], "the service answers something else than objects: [1]"),
        ((422, {"no": "id"}), 'the service answers 422 Unprocessable Entity: {"no": "id"}'),
        ((413, b""), "the service answers 413 Request Entity Too Large"),
    ],
)
def test_rows_that_the_service_does_not_take(service: HttpService, answer: Any, text: str) -> None:
    service.respond = lambda _: answer
    rows = _run(service, _ids(1, 2), "id INT", keeps_failed=True)
    assert [(row["id"], row["_error"]) for row in rows] == [(None, text), (None, text)]
    assert len(service.bodies) == 1
    assert "failed for a row and 1 more" in _error(service, _ids(1, 2), "id INT").message


def test_a_service_that_repeats_its_secret_does_not_bring_it_into_the_reason(service: HttpService) -> None:
    service.respond = lambda _: (422, b"no access with t0ps3cret")
    headers = {"Authorization": "Bearer t0ps3cret"}
    [row] = _run(service, _ids(1), "id INT", keeps_failed=True, headers=headers)
    assert row["_error"] == "the service answers 422 Unprocessable Entity: no access with ***"


def test_a_busy_service_is_asked_again_and_a_wrong_address_is_not(service: HttpService) -> None:
    service.refusals = [503, 429, 408, 0, 500]
    assert _run(service, _ids(1), "id INT") == _ids(1)
    assert len(service.bodies) == 6
    for status in (401, 403, 404, 302):
        service.refusals = [status]
        error = _error(service, _ids(1), "id INT", keeps_failed=True)
        assert isinstance(error, ConnectorError)
        assert (error.code, error.retryable) == ("HANDLER_REFUSED", False)
    assert len(service.bodies) == 10
    service.refusals = [503] * 100
    error = _error(service, _ids(1), "id INT", keeps_failed=True, retry_for=0.3)
    assert (error.code, error.retryable) == ("HANDLER_UNREACHABLE", True)
    assert "503" in error.message


def test_a_service_that_is_slow_or_gone() -> None:
    with HttpService() as service:
        stopping = threading.Event()
        service.respond = lambda rows: stopping.wait(20)
        slow = _error(service, _ids(1), "id INT", timeout=0.1, retry_for=0.2)
        stopping.set()
        assert slow.code == "HANDLER_UNREACHABLE"
        with ServiceClient(Service(service.url, {}, 1, 0.1)) as client:
            client.reach()
    gone = _error(service, _ids(1), "id INT", retry_for=0.2)
    assert "refused" in gone.message
    with (
        ServiceClient(Service(service.url, {}, 1, 0.1)) as client,
        pytest.raises(ConnectorError, match="refused"),
    ):
        client.reach()


def test_the_operation_comes_through_where_the_row_is_known(service: HttpService) -> None:
    rows = [{"id": 1, "_op": "d"}, {"id": 2, "_op": "u"}]
    in_ddl = "id INT, _op STRING"
    service.respond = lambda rows: [{"id": row["id"]} for row in rows]
    assert _run(service, rows, in_ddl) == rows
    service.respond = lambda rows: [{"id": 7}]
    assert "answers 1 rows for 2, and not all say their `_op`" in _error(service, rows, in_ddl).message
    assert _run(service, rows[:1] * 2, in_ddl) == [{"id": 7, "_op": "d"}]
    service.respond = lambda rows: [{"id": 7, "_op": "i"}]
    assert _run(service, rows, in_ddl) == [{"id": 7, "_op": "i"}]
    # With a key, what was there of a row without an answer goes.
    service.respond = lambda rows: [None, {"id": 2}]
    assert _run(service, rows, in_ddl, keys=("id",)) == [{"id": 1, "_op": "d"}, {"id": 2, "_op": "u"}]
    service.respond = lambda rows: b"no JSON"
    failed = _run(service, rows, in_ddl, keys=("id",), keeps_failed=True)
    assert [(row["id"], row["_op"]) for row in failed if row["_error"] is None] == [(1, "d"), (2, "d")]
    assert len(failed) == 4


def test_options_and_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**options: Any) -> str:
        with pytest.raises(ConfigError) as error:
            HandlerTransform({"url": "https://user:pw@host/x?key=t0ps3cret", **options})
        assert "t0ps3cret" not in str(error.value)
        return str(error.value)

    assert "starts with http" in refused(url="ftp://x?t0ps3cret")
    assert "two names for one thing" in refused(schema={"a": "int"}, schema_override="a INT")
    assert "both have an Authorization" in refused(secret_name="S", headers={"authorization": "t0ps3cret"})
    assert "no option 'batch_sizes'" in refused(batch_sizes=3)
    node = HandlerNode.model_validate(
        {
            "type": "handler",
            "from": "rows",
            "url": "http://h/",
            "secret_name": "PENSTOCK_TEST_SECRET",
            "schema_override": {"a": "int"},
        }
    )
    transform = node.transform(config.load({}))
    assert transform.options.answer_columns == "`a` int"
    assert "http://h/" not in repr(transform.options)
    assert TRANSFORMS.load("handler") is type(transform)
    monkeypatch.delenv("PENSTOCK_TEST_SECRET", raising=False)
    with pytest.raises(ConfigError, match="the secret PENSTOCK_TEST_SECRET of the handler is not set"):
        transform._service()
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "Bearer t0ps3cret")
    service = transform._service()
    assert service.headers["Authorization"] == "Bearer t0ps3cret"
    assert "t0ps3cret" not in repr(service)
