"""A LanceDB table in step with a view: the real embedded database."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.sinks.lance import LanceTable
from seed import SEED

SCHEMA = pa.schema({"id": pa.string(), "title": pa.string(), "vec": pa.list_(pa.float32())})


def opened(path: Path, **options: Any) -> LanceTable:
    shape: dict[str, Any] = {"sink": "s", "schema": SCHEMA, "key": "id", "embedding": "vec", "dimensions": 2}
    return LanceTable(str(path), "docs", **{**shape, **options})


def row(number: int, vector: Any = (1.0, 0.0), title: str | None = "t") -> dict[str, Any]:
    # Keys with quotes, because deletes are written as SQL.
    return {"id": f"it's {number}", "title": title, "vec": None if vector is None else list(vector)}


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def stored(path: Path) -> list[dict[str, Any]]:
    import lancedb

    rows: list[dict[str, Any]] = lancedb.connect(str(path)).open_table("docs").to_arrow().to_pylist()
    return sorted(rows, key=lambda one: str(one["id"]))


def test_it_follows_random_changes_and_is_opened_again(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    lance = opened(tmp_path)
    assert lance.open() is None
    lance.replace(table([]), 0)
    rows: dict[int, dict[str, Any]] = {}
    for tick in range(1, 12):
        before = dict(rows)
        for _ in range(rng.choice([0, 1, 5])):
            number = rng.randrange(6)
            if number in rows and rng.random() < 0.5:
                del rows[number]
            else:
                rows[number] = row(number, rng.choice([None, (rng.random(), 1.0)]), rng.choice([None, "a"]))
        gone = [one for number, one in before.items() if rows.get(number) != one]
        fresh = [one for number, one in rows.items() if before.get(number) != one]
        change = (ps.DeltaBatch.deletes(table(gone)) + ps.DeltaBatch.inserts(table(fresh))).consolidate()
        lance.apply(change, tick)
        assert lance.mark() == tick
        expected = table([rows[number] for number in sorted(rows)]).to_pylist()
        assert stored(tmp_path) == expected
        if tick % 4 == 0:
            lance.close()
            lance = opened(tmp_path)
            assert lance.open() == tick


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_change_that_did_not_end_leaves_no_mark(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance = opened(tmp_path)
    lance.open()
    lance.replace(table([row(1)]), 5)
    done = 0
    for name in ("_move_mark", "_merge"):
        method = getattr(lance, name)

        def failing(*arguments: Any, method: Any = method, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done == step:
                raise ConnectionError("the disk is gone")
            return method(*arguments, **options)

        monkeypatch.setattr(lance, name, failing)
    with pytest.raises(ConnectionError):
        lance.apply(ps.DeltaBatch.inserts(table([row(2)])), 6)
    again = opened(tmp_path)
    assert again.open() == (5 if step == 1 else None)
    # The caller has the sum of later changes only, in which row 2 does not occur: it replaces all rows.
    again.replace(table([row(1), row(3)]), 7)
    assert again.mark() == 7
    assert [one["id"] for one in stored(tmp_path)] == ["it's 1", "it's 3"]


def test_the_vectors_of_a_view_are_searched(tmp_path: Path) -> None:
    import lancedb

    flow = ps.IncrementalFlow()
    flow.register_source("docs", "id STRING, title STRING, vec ARRAY<FLOAT>", primary_key="id")
    spec = ps.VectorViewSpec(
        source="docs",
        id="id",
        embedding="vec",
        query=[1, 0],
        k=3,
        payload={"title": "title", "vector": "vec"},
    )
    flow.register_vector_view("similar", spec)
    watch = flow.watch_output("similar")
    flow.tick("docs", [row(number, (1.0, number / 10)) for number in range(6)])
    flow.tick("docs", ps.DeltaBatch.deletes([row(0)]))
    lance = opened(tmp_path, schema=flow.snapshot("similar").schema, embedding="vector")
    lance.open()
    lance.replace(flow.snapshot("similar").slice(0, 0), 0)
    for tick in (1, 2):
        change = watch.recv(timeout=0)
        assert change is not None
        lance.apply(change, tick)
    lance.optimize()
    docs = lancedb.connect(str(tmp_path)).open_table("docs")
    nearest = docs.search([1.0, 0.2]).limit(1).to_list()
    assert [one["id"] for one in nearest] == ["it's 2"]
    assert docs.count_rows() == 3


def test_what_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(ps.ConfigError, match="key 'vec'"):
        opened(tmp_path, key="vec")
    with pytest.raises(ps.ConfigError, match="not a list of floating numbers"):
        opened(tmp_path, embedding="title")
    lance = opened(tmp_path)
    lance.open()
    lance.replace(table([]), 0)
    with pytest.raises(ps.DataError, match=r"it's 7.*has not 2 dimensions") as caught:
        lance.apply(ps.DeltaBatch.inserts(table([row(7, (1.0,))])), 1)
    assert caught.value.code == "DATA_VECTOR_DIMENSION"
    assert lance.mark() == 0
    with pytest.raises(ps.DataError, match="columns"):
        opened(tmp_path, schema=SCHEMA.remove(1)).open()
