"""Views as tables of PostgreSQL: the table is the view after the tick of its mark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

import penstock as ps
from servers.postgres import PASSWORD, Postgres
from twin.durable import add_view, declare, opened, tick
from waiting import wait_for


@pytest.fixture
def url(postgres: Postgres) -> str:
    """A database of its own."""
    return postgres.new_database()


@pytest.fixture
def flow() -> Iterator[ps.IncrementalFlow]:
    """A flow in memory with the sum of v by k, and two rows."""
    made = opened()
    _fill(made)
    yield made
    made.close()


def _fill(flow: ps.IncrementalFlow) -> None:
    declare(flow)
    add_view(flow, "totals")
    tick(flow, [(1, 2, 0, False), (2, 3, 0, False)])


def _rows(postgres: Postgres, url: str, table: str = "totals") -> list[Any]:
    return postgres.execute(f"SELECT * FROM {table} ORDER BY 1", url)


def _mark(postgres: Postgres, url: str) -> list[Any]:
    return postgres.execute("SELECT name, epoch FROM penstock_epochs", url)


@pytest.mark.smoke
def test_a_table_is_the_view_and_its_mark_is_the_tick(
    flow: ps.IncrementalFlow, postgres: Postgres, url: str
) -> None:
    flow.sink("totals", "postgres", url=url, table="totals", key=["k"])
    assert _rows(postgres, url) == [(1, 2), (2, 3)]
    assert _mark(postgres, url) == [("view totals in table totals", 1)]
    tick(flow, [(1, 5, 0, False), (2, 3, 0, True), (3, 4, 0, False)])
    assert flow.flush_sinks(60)
    assert _rows(postgres, url) == [(1, 7), (3, 4)]
    assert _mark(postgres, url) == [("view totals in table totals", 2)]
    [line] = flow.explain("totals").sinks
    assert line.startswith("sink totals_postgres: postgres table totals in 127.0.0.1:")
    assert line.endswith(", exactly once, has tick 2, 0 behind")
    assert PASSWORD not in line
    labels = '{sink="totals_postgres",view="totals"}'
    assert flow.metrics()[f"penstock_flow_sink_lag_ticks{labels}"] == 0
    assert flow.metrics()[f"penstock_flow_sink_tick{labels}"] == 2


def test_old_and_new_of_one_key_are_an_update(flow: ps.IncrementalFlow, postgres: Postgres, url: str) -> None:
    postgres.execute("CREATE TABLE \"by k\" (v BIGINT, k BIGINT UNIQUE, note TEXT DEFAULT 'new')", url)
    flow.sink("totals", "postgres", url=url, table="by k", key="k")
    postgres.execute("UPDATE \"by k\" SET note = 'mine'", url)
    tick(flow, [(1, 5, 0, False), (3, 4, 0, False)])
    assert flow.flush_sinks(60)
    assert _rows(postgres, url, '"by k"') == [(3, 2, "mine"), (4, 3, "new"), (7, 1, "mine")]


def test_a_server_that_is_away_holds_up_no_tick(
    flow: ps.IncrementalFlow, postgres: Postgres, url: str
) -> None:
    flow.sink("totals", "postgres", url=url, table="totals", key=["k"])
    postgres.stop()
    try:
        for value in range(5):
            tick(flow, [(1, value, 0, False)])
        wait_for(lambda: "waiting for postgres table" in flow.explain("totals").sinks[0])
        assert "has tick 1, 5 behind" in flow.explain("totals").sinks[0]
        assert not flow.flush_sinks(0.1)
        with pytest.raises(ps.ConnectorError) as refused:
            flow.sink("totals", "postgres", url=url, table="others", key="k", name="b", retry_for="1 ms")
        assert refused.value.code == "SINK_UNREACHABLE"
    finally:
        postgres.start()
    assert flow.flush_sinks(60)
    assert _rows(postgres, url) == [(1, 12), (2, 3)]


def test_a_sink_that_stays_behind_is_an_error_of_close(
    flow: ps.IncrementalFlow, postgres: Postgres, url: str
) -> None:
    flow.sink("totals", "postgres", url=url, table="totals", key=["k"], retry_for="1 ms")
    postgres.stop()
    try:
        tick(flow, [(1, 1, 0, False)])
        with pytest.raises(ps.ConnectorError, match="lacks the last 1 ticks of view 'totals'") as behind:
            flow.close()
    finally:
        postgres.start()
    assert behind.value.code == "FLOW_SINK_BEHIND"


def test_a_durable_flow_keeps_no_password_and_goes_on_when_it_is_given_again(
    postgres: Postgres, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "flow") as flow:
        _fill(flow)
        flow.sink("totals", "postgres", url=url, table="totals", key=["k"])
        tick(flow, [(1, 5, 0, False)])
    for file in (tmp_path / "flow").rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes()
    with opened(tmp_path / "flow") as flow:
        assert "its url has a secret, which the flow does not keep" in caplog.text
        assert "not started" in flow.explain("totals").sinks[0]
        tick(flow, [(2, 3, 0, True)])
        assert _rows(postgres, url) == [(1, 7), (2, 3)]
        with pytest.raises(ps.ConfigError, match="table was 'totals' and is 'other'") as refused:
            flow.sink("totals", "postgres", url=url, table="other", key=["k"])
        assert refused.value.code == "FLOW_SINK_TAKEN"
        for _ in range(2):
            flow.sink("totals", "postgres", url=url, table="totals", key=["k"])
        assert flow.flush_sinks(60)
        assert _rows(postgres, url) == [(1, 7)]
    assert "brought in line" not in caplog.text


def test_a_sink_whose_address_is_a_setting_starts_with_the_flow(
    postgres: Postgres, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", url)
    with opened(tmp_path / "flow") as flow:
        _fill(flow)
        flow.sink("totals", "postgres", table="totals", key=["k"])
    with opened(tmp_path / "flow") as flow:
        tick(flow, [(1, 5, 0, False)])
    assert _rows(postgres, url) == [(1, 7), (2, 3)]


def test_columns_that_are_no_key_end_the_sink_and_not_the_flow(
    flow: ps.IncrementalFlow, postgres: Postgres, url: str
) -> None:
    add_view(flow, "large")
    tick(flow, [(1, 9, 0, False)])
    with pytest.raises(ps.DataError) as refused:
        flow.sink("large", "postgres", url=url, table="large", key=["k"])
    assert refused.value.code == "FLOW_SINK_KEY"
    assert "several rows with the key k=1" in refused.value.message
    tick(flow, [(1, 9, 0, True)])
    flow.sink("large", "postgres", url=url, table="large", key=["k"])
    tick(flow, [(5, 5, 0, False), (1, 8, 0, False)])
    with pytest.raises(ps.DataError, match="several rows with the key k=1") as ended:
        flow.flush_sinks(60)
    assert ended.value.code == "FLOW_SINK_KEY"
    assert _rows(postgres, url, "large") == [(1, 2), (2, 3)]
    assert flow.snapshot("large").num_rows == 4
    tick(flow, [(1, 8, 0, True)])
    flow.sink("large", "postgres", url=url, table="large", key=["k"])
    assert flow.flush_sinks(60)
    assert _rows(postgres, url, "large") == [(1, 2), (2, 3), (5, 5)]


def test_a_table_of_others_is_refused_until_it_is_overwritten_which_fences_them(
    flow: ps.IncrementalFlow, postgres: Postgres, url: str
) -> None:
    postgres.execute("CREATE TABLE totals (k BIGINT PRIMARY KEY, v BIGINT)", url)
    postgres.execute("INSERT INTO totals VALUES (1, 1), (9, 9)", url)
    with pytest.raises(ps.ConfigError, match="has rows that this sink has not stored") as refused:
        flow.sink("totals", "postgres", url=url, table="totals", key=["k"])
    assert refused.value.code == "FLOW_SINK_NOT_EMPTY"
    flow.sink("totals", "postgres", url=url, table="totals", key=["k"], overwrite=True)
    assert _rows(postgres, url) == [(1, 2), (2, 3)]
    with opened() as second:
        _fill(second)
        tick(second, [(7, 7, 0, False)])
        with pytest.raises(ps.ConfigError, match="is written by another sink, of view totals"):
            second.sink("totals", "postgres", url=url, table="totals", key=["k"])
        second.sink("totals", "postgres", url=url, table="totals", key=["k"], overwrite=True)
        tick(flow, [(1, 5, 0, False)])
        with pytest.raises(ps.ConnectorError) as fenced:
            flow.flush_sinks(60)
        assert fenced.value.code == "SINK_FENCED"
        assert _rows(postgres, url) == [(1, 2), (2, 3), (7, 7)]
    flow.drop_sink("totals_postgres")


def test_a_table_that_someone_else_has_changed_is_noticed(
    flow: ps.IncrementalFlow, postgres: Postgres, url: str
) -> None:
    flow.sink("totals", "postgres", url=url, table="totals", key=["k"])
    postgres.execute("DELETE FROM totals WHERE k = 1", url)
    tick(flow, [(1, 5, 0, False)])
    with pytest.raises(ps.DataError, match="of which 0 are there") as changed:
        flow.flush_sinks(60)
    assert changed.value.code == "SINK_TABLE_CHANGED"
    flow.drop_sink("totals_postgres")
    flow.sink("totals", "postgres", url=url, table="totals", key=["k"], overwrite=True)
    assert _rows(postgres, url) == [(1, 7), (2, 3)]


def test_a_table_that_was_dropped_is_made_again(
    flow: ps.IncrementalFlow, postgres: Postgres, url: str
) -> None:
    flow.sink("totals", "postgres", url=url, table="totals", key=["k"])
    postgres.execute("DROP TABLE totals", url)
    tick(flow, [(1, 5, 0, False)])
    with pytest.raises(ps.ConnectorError) as refused:
        flow.flush_sinks(60)
    assert refused.value.code == "SINK_REFUSED"
    flow.sink("totals", "postgres", url=url, table="totals", key=["k"])
    assert flow.flush_sinks(60)
    assert _rows(postgres, url) == [(1, 7), (2, 3)]


def test_what_is_followed_is_not_dropped_and_a_dropped_sink_leaves_its_rows(
    flow: ps.IncrementalFlow, postgres: Postgres, url: str, tmp_path: Path
) -> None:
    flow.sink("totals", "postgres", url=url, table="totals", key=["k"], name="mine")
    flow.checkpoint(tmp_path / "copy")
    for refused_call in (lambda: flow.drop_view("totals"), lambda: flow.restore(tmp_path / "copy")):
        with pytest.raises(ps.StateError) as refused:
            refused_call()
        assert refused.value.code == "FLOW_IN_USE"
        assert "flow.drop_sink('mine')" in str(refused.value.hint)
    with pytest.raises(ps.ConfigError, match="there is no sink 'mime'") as unknown:
        flow.drop_sink("mime")
    assert "did you mean 'mine'" in str(unknown.value.hint)
    flow.drop_sink("MINE")
    assert _mark(postgres, url) == []
    assert len(_rows(postgres, url)) == 2
    copy = ps.IncrementalFlow.load(tmp_path / "copy")
    assert copy.explain("totals").sinks == ()
    flow.drop_view("totals")


def test_every_type_that_postgres_has_arrives(session: ps.Session, postgres: Postgres, url: str) -> None:
    with ps.IncrementalFlow(session) as flow:
        flow.register_source("t", "id BIGINT, n INT")
        flow.register_view(
            "v",
            """SELECT id, n > 1 AS flag, CAST(n AS TINYINT) AS tiny, CAST(n AS DECIMAL(20, 3)) / 8 AS amount,
            CAST(n AS DOUBLE) / 3 AS ratio, CAST('NaN' AS FLOAT) AS nothing, concat('a "', n, ',\\n') AS text, '' AS empty,
            CAST(NULL AS STRING) AS missing, X'00FF' AS bytes, DATE'2024-02-29' AS day,
            TIMESTAMP'2024-02-29 12:34:56.789Z' AS at, TIMESTAMP_NTZ'2024-02-29 12:34:56' AS local,
            array(n, NULL) AS list, named_struct('a', n, 'b', 'x"y', 'c', DATE'2024-02-29') AS pair, map('k', n) AS pairs FROM t""",
        )
        flow.tick("t", [{"id": 1, "n": 1}, {"id": 2, "n": 2}])
        flow.sink("v", "postgres", url=url, table="v", key=["id"])
        flow.tick("t", ps.DeltaBatch.updates([{"id": 2, "n": 2}], [{"id": 2, "n": 5}]))
        assert flow.flush_sinks(60)
        names = flow.snapshot("v").column_names
        rows = postgres.execute(
            sql.SQL("SELECT {} FROM v ORDER BY id").format(sql.SQL(", ").join(map(sql.Identifier, names))),
            url,
        )
        expected = {row["id"]: row for row in flow.snapshot("v").to_pylist()}
    assert len(rows) == 2
    for row in rows:
        stored = dict(zip(names, row, strict=True))
        row_of_view = expected[stored["id"]]
        for name in (
            "flag",
            "tiny",
            "amount",
            "ratio",
            "text",
            "empty",
            "missing",
            "day",
            "at",
            "local",
            "list",
        ):
            assert stored[name] == row_of_view[name], name
        assert str(stored["nothing"]) == "nan"
        assert bytes(stored["bytes"]) == b"\x00\xff"
        n = row_of_view["pair"]["a"]
        assert stored["pair"] == {"a": n, "b": 'x"y', "c": "2024-02-29"}
        assert stored["pairs"] == {"k": n}


def test_a_large_view_is_rewritten_by_the_difference(postgres: Postgres, url: str) -> None:
    with opened() as flow:
        declare(flow)
        add_view(flow, "totals")
        flow.tick("rows", [{"k": k, "v": k, "w": 0} for k in range(20_000)])
        postgres.execute("CREATE TABLE totals (k BIGINT PRIMARY KEY, v BIGINT)", url)
        postgres.execute(
            "INSERT INTO totals SELECT n, n % 19999 FROM generate_series(10000, 30000) AS n", url
        )
        before = Counter(postgres.execute("SELECT k, xmin::text FROM totals", url))
        flow.sink("totals", "postgres", url=url, table="totals", key=["k"], overwrite=True)
        after = Counter(postgres.execute("SELECT k, xmin::text FROM totals", url))
        assert _rows(postgres, url) == [(k, k) for k in range(20_000)]
    assert sum((before & after).values()) == 9_999, "rows that are the same are not written"
