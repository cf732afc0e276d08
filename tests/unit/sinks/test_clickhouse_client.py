"""Addresses and answers of ClickHouse."""

from __future__ import annotations

import pickle

import pytest

from penstock.errors import ConfigError
from penstock.sinks.clickhouse.client import Address, Refusal
from penstock.sinks.clickhouse.options import ClickHouseOptions


def test_addresses_in_all_their_forms() -> None:
    address = Address.of("https://me%40x:p%2Fw@db.example/shop?max_threads=2")
    assert (address.host, address.port, address.secure) == ("db.example", 8443, True)
    assert (address.user, address.password, address.database) == ("me@x", "p/w", "shop")
    assert address.settings == {"max_threads": "2"}
    assert address.location == "db.example:8443/shop"
    assert "p/w" not in repr(address)
    plain = Address.of("http://db:9000?database=a&user=b&password=c")
    assert (plain.port, plain.database, plain.user, plain.password) == (9000, "a", "b", "c")
    assert Address.of("http://db").database == "default"
    options = ClickHouseOptions.model_validate(
        {
            "url": "http://db:9000?database=a&user=b&password=c",
            "table": "t",
            "user": "you",
            "settings": {"insert_quorum": 2, "async": True},
            "timeout": "2 seconds",
        }
    )
    changed = options.address()
    assert (changed.user, changed.settings) == ("you", {"insert_quorum": "2", "async": "1"})
    assert (changed.password, changed.database, changed.seconds) == ("c", "a", 2.0)
    assert pickle.loads(pickle.dumps(changed)) == changed
    with pytest.raises(ConfigError, match="starts with http"):
        Address.of("tcp://db:9000")


@pytest.mark.parametrize(
    ("status", "code", "transient", "of_rows"),
    [
        (500, 252, True, False),
        (500, 999, True, False),
        (404, 60, False, False),
        (403, 516, False, False),
        (500, 349, False, True),
        (503, None, True, False),
        (404, None, False, False),
    ],
)
def test_which_answers_are_transient(status: int, code: int | None, transient: bool, of_rows: bool) -> None:
    answer = Refusal("text", status=status, code=code)
    assert (answer.transient, answer.of_rows) == (transient, of_rows)
