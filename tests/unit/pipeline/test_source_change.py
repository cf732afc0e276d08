"""Sources that read something else, that come and that go, beside a checkpoint that is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.pipeline.nodes import SOURCE_NODES
from penstock.pipeline.source_change import (
    READS,
    SourceChange,
    SourceChanges,
    fingerprint,
    note_reads,
    source_changes,
)
from penstock.pipeline.values import PlannedValues

ORDERS, CLICKS = ("orders", "kafka topic a as orders"), ("clicks", "files of b as clicks")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of two sources, with an epoch that is done."""
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
        (tmp_path / log / "3").touch()
    shape = [["source", ORDERS[1]], ["source", CLICKS[1]], ["state", "x"]]
    (tmp_path / "_penstock.json").write_text(json.dumps({"shape": shape}))
    return tmp_path


def test_the_same_sources_are_no_change(checkpoint: Path) -> None:
    assert source_changes(checkpoint, [ORDERS, CLICKS], {}, {}) == SourceChanges((), (ORDERS[1], CLICKS[1]))


def test_sources_come_and_go_and_read_something_else(checkpoint: Path) -> None:
    stores, moved = ("stores", "rate as stores"), ("moved", "rate as moved")
    elsewhere = {"moved": "the group 'p/moved'"}
    changes = source_changes(checkpoint, [ORDERS, stores, moved], {"orders": "another table"}, elsewhere)
    assert changes.changes == (
        SourceChange("orders", "changed", "another table"),
        SourceChange("stores", "new"),
        SourceChange("moved", "new", "it was read in the group 'p/moved'"),
        SourceChange("clicks", "dropped"),
    )
    assert [change.loses_offset for change in changes.changes] == [True, False, True, True]
    assert (changes.continuing, changes.obstacle) == ((), "")


def test_other_words_of_spark_are_a_change(checkpoint: Path) -> None:
    changes = source_changes(checkpoint, [("orders", "kafka topic c as orders"), CLICKS], {}, {})
    assert [change.node for change in changes.changes] == ["orders"]
    assert changes.continuing == (CLICKS[1],)


def test_an_epoch_that_is_not_done_is_in_the_way(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "4").touch()
    assert source_changes(checkpoint, [ORDERS], {}, {}).obstacle.startswith("epoch 4 ")
    assert source_changes(checkpoint, [ORDERS, CLICKS], {}, {}).obstacle == ""


def test_what_has_not_begun_is_no_obstacle(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "3").unlink()
    assert source_changes(checkpoint, [ORDERS], {}, {}) == SourceChanges()
    assert source_changes(checkpoint / "none", [ORDERS], {}, {}) == SourceChanges()


def test_what_was_fixed_for_another_table_is_forgotten() -> None:
    values = PlannedValues({})
    tables = {"a": {"type": "postgres", "table": "t"}, "b": {"type": "kafka", "topic": "t"}}
    assert note_reads(values, tables) == {}
    for name in tables:
        values.within(name).within("history").put("n", 1)
    assert note_reads(values, tables) == {}
    assert note_reads(values, {"a": {"type": "postgres", "table": "u"}}) == {"a": "another table"}
    own = {(f"{values.namespace}/a", READS): fingerprint({"type": "postgres", "table": "u"})}
    assert values.values == own
    assert "postgres" not in str(own)


@pytest.mark.parametrize(
    ("fields", "changes", "same"),
    [
        ({"type": "kafka", "topic": "a"}, {"topic": "b"}, {"bootstrap_servers": "other:9092", "group": "g"}),
        ({"type": "file", "path": "a.json"}, {"path": "b.json"}, {"max_files": 3, "schema": {"id": "int64"}}),
        ({"type": "iceberg", "table": "l.s.t"}, {"table": "l.s.u"}, {"max_rows": 7}),
        (
            {"type": "clickhouse", "table": "t", "url": "http://a:1/d"},
            {"filter": "x > 1"},
            {"url": "http://b:1/d", "password": "p", "parallelism": 2},
        ),
        (
            {"type": "postgres", "table": "t", "url": "postgresql://a/d"},
            {"columns": ["id"]},
            {"url": "postgresql://b/d", "retry_for": "1 minute"},
        ),
        ({"type": "postgres_cdc", "table": "t", "url": "postgresql://a/d"}, {"table": "u"}, {"max_rows": 9}),
        (
            {"type": "postgres_cdc", "table": "t", "url": "postgresql://a/d"},
            {"url": "postgresql://a/e"},
            {"url": "host=b dbname=d password=p"},
        ),
        (
            {"type": "clickhouse", "table": "t", "url": "http://a:1/d"},
            {"url": "http://a:1/e"},
            {"database": "d"},
        ),
        ({"type": "rate"}, {}, {"rows_per_second": 9}),
    ],
)
def test_what_a_source_reads(fields: dict[str, Any], changes: dict[str, Any], same: dict[str, Any]) -> None:
    needed = {"bootstrap_servers": "k:9092", "schema": {"id": "int64"}} if fields["type"] == "kafka" else {}

    def reads(**more: Any) -> Any:
        return SOURCE_NODES.load(fields["type"]).model_validate({**needed, **fields, **more}).reads

    assert reads(**same) == reads()
    if changes:
        assert reads(**changes) != reads()
