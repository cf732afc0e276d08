from __future__ import annotations

import pickle

import pytest

from penstock.errors import ConnectorError, PenstockError, QueryTimeout, SqlError, suggest


def test_an_error_reads_as_message_place_and_hint() -> None:
    error = SqlError("no table 'ordrs'", where="line 1, column 15", hint="did you mean 'orders'?")
    assert str(error) == "no table 'ordrs'\n  at: line 1, column 15\n  hint: did you mean 'orders'?"
    assert error.code == "SQL"


def test_errors_survive_pickling_with_all_they_know() -> None:
    error = ConnectorError("broker away", code="KAFKA_DOWN", hint="start it", where="b:9092", retryable=True)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ConnectorError
    assert (copy.message, copy.code, copy.hint, copy.where, copy.retryable) == (
        "broker away",
        "KAFKA_DOWN",
        "start it",
        "b:9092",
        True,
    )


def test_a_query_timeout_is_a_python_timeout() -> None:
    with pytest.raises(TimeoutError):
        raise QueryTimeout("30 s are over")
    assert issubclass(QueryTimeout, PenstockError)


@pytest.mark.parametrize(
    ("name", "choices", "expected"),
    [
        ("ordrs", ["orders", "customers"], "did you mean 'orders'? Known tables: customers, orders"),
        ("ORDERS", ["orders"], "did you mean 'orders'? Known tables: orders"),
        ("zzz", ["orders"], "Known tables: orders"),
        ("zzz", [], "there are no tables yet"),
    ],
)
def test_suggest(name: str, choices: list[str], expected: str) -> None:
    assert suggest(name, choices, what="table") == expected
