"""Whole pipelines over files: what their sinks have after crashes, repairs and changes of the file."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

import penstock as ps
from penstock.backend import open_backend
from penstock.cli.main import main
from penstock.cli.pipeline import confirm_losses
from penstock.errors import PenstockError
from penstock.pipeline.case import run_tests
from penstock.pipeline.changes import changes
from penstock.pipeline.load import check_text
from penstock.pipeline.preview import Preview
from penstock.pipeline.run import PipelineRun, plan_pipeline
from penstock.pipeline.values import GroupValues
from penstock.pipeline.views_step import ViewsStep
from penstock.streaming.queries import Queries
from servers.kafka import Broker
from servers.postgres import Postgres
from servers.proxy import Proxy
from waiting import wait_for

MODULE = "penstock_test_pipelines"
PLUGINS = """
import json
import time
from pathlib import Path
import penstock as ps
import pyarrow as pa

class Rows(ps.SinkPlugin):
    '''Appends rows to a file; it fails, or waits, as long as there is a file of its name with .broken or .waiting behind it.'''
    class Options(ps.Options):
        file: str

    def process_batch(self, batch):
        while Path(self.options.file + ".waiting").exists():
            time.sleep(0.02)
        if Path(self.options.file + ".broken").exists():
            raise ValueError("out of order")
        with open(self.options.file, "a") as file:
            file.writelines(json.dumps(row, default=str) + "\\n" for row in batch.to_pylist())

class One(ps.SourcePlugin):
    '''One row, with what it remembers of rows before it.'''
    class Options(ps.Options):
        id: int
        pace: int = 1

    schema = "id BIGINT, before BIGINT"
    bounded = True
    identity = ("id",)

    def initialize(self, context):
        self.context = context

    def read(self, offset, limit):
        before = self.context.state.get("before")
        row = {"id": self.options.id, "before": before}
        return ([pa.RecordBatch.from_pylist([row])] if offset is None else []), 1

    def process_checkpoint_marker(self, epoch):
        self.context.state.put("before", self.options.id)

class Copied(ps.TransformPlugin):
    parallel = False

    def process_batch(self, batch):
        self.context.side_output("copies").write(batch)
        return batch

    def initialize(self, context):
        self.context = context
"""


@pytest.fixture(scope="module", autouse=True)
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The module with the sink, found by its name."""
    folder = tmp_path_factory.mktemp("site")
    (folder / f"{MODULE}.py").write_text(PLUGINS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield
    sys.modules.pop(MODULE, None)


class Pipeline:
    """A pipeline in a folder of its own: `put` gives its sources files, `run` runs what is there to its end, `rows` are those of a sink."""

    def __init__(self, session: ps.Session, folder: Path) -> None:
        self.session = session
        self.folder = folder
        self.name = f"pipelines-{folder.name}"
        self._files = 0

    def put(self, source: str, *rows: dict[str, Any]) -> None:
        self._files += 1
        folder = self.folder / source
        folder.mkdir(exist_ok=True)
        (folder / f"{self._files:03}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def source(self, name: str, schema: str, **fields: Any) -> str:
        self.put(name)
        more = "".join(f", {key}: {json.dumps(value)}" for key, value in fields.items())
        return f"{name}: {{type: file, path: '{self.folder / name}', format: json, schema: {schema}{more}}}"

    def sink(self, name: str, reads: str) -> str:
        return f"{name}: {{type: python, module: '{MODULE}:Rows', from: {reads}, file: '{self.folder / name}.out'}}"

    def planned(self, *parts: str, checkpoint: str = "", say: Callable[[str], None] = print) -> PipelineRun:
        place = checkpoint or f"checkpoint: '{self.folder / 'state'}'"
        text = "\n".join((f"name: {self.name}", place, *parts))
        spec = check_text(text, str(self.folder / "pipeline.yaml")).spec
        return PipelineRun(self.session, plan_pipeline(self.session, spec, runs=True), say=say)

    def run(self, *parts: str, say: Callable[[str], None] = print) -> PenstockError | None:
        run = self.planned(*parts, say=say)
        run.start()
        return run.wait()

    def rows(self, sink: str) -> list[dict[str, Any]]:
        path = self.folder / f"{sink}.out"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def table(self, sink: str, *keys: str) -> dict[Any, dict[str, Any]]:
        """What a sink that keeps rows by a key would have."""
        table: dict[Any, dict[str, Any]] = {}
        for row in self.rows(sink):
            key = tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]
            if row.pop("_op") == "d":
                table.pop(key, None)
            else:
                table[key] = row
        return table

    def mark(self, sink: str, state: str) -> Path:
        """Let a sink be `broken`, or `waiting`, until the file is removed."""
        mark = self.folder / f"{sink}.out.{state}"
        mark.touch()
        return mark


@pytest.fixture
def pipeline(session: ps.Session, tmp_path: Path) -> Pipeline:
    return Pipeline(session, tmp_path)


def _section(name: str, *nodes: str) -> str:
    return "\n".join([f"{name}:", *(f"  {node}" for node in nodes)])


ORDERS = "{id: int64, customer: string, amount: int64}"
TOTALS = "totals: {type: view, primary_key: customer, sql: 'SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer'}"


def _order(number: int, customer: str | None, amount: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "customer": customer, "amount": amount, **more}


def _totals(table: dict[Any, dict[str, Any]]) -> dict[Any, int]:
    return {key: row["total"] for key, row in table.items()}


def test_two_sources_in_one_query_and_a_sink_that_fails(pipeline: Pipeline, postgres: Postgres) -> None:
    url = postgres.new_database()
    parts = [
        # Not in the order of their names, in which Spark has them.
        _section(
            "sources",
            pipeline.source("right", "{id: int64, b: string}"),
            pipeline.source("left", "{id: int64, a: string}"),
        ),
        _section(
            "transforms",
            "both: {type: view, primary_key: id, sql: 'SELECT id, a, b FROM left JOIN right USING (id)'}",
        ),
        _section(
            "sinks",
            # Sinks are written in this order: two with every row once before the one that fails, and one behind it.
            f"files: {{type: file, from: right, path: '{pipeline.folder / 'files'}', format: json}}",
            f"rows: {{type: postgres, from: left, url: '{url}', table: rows, output_mode: append}}",
            pipeline.sink("plain", "left"),
            f"behind: {{type: postgres, from: left, url: '{url}', table: behind, output_mode: append}}",
            pipeline.sink("out", "both"),
        ),
    ]
    pipeline.put("left", {"id": 1, "a": "x"}, {"id": 2, "a": "y"})
    pipeline.put("right", {"id": 1, "b": "X"})
    assert pipeline.run(*parts) is None
    assert pipeline.table("out", "id") == {1: {"id": 1, "a": "x", "b": "X"}}
    pipeline.put("right", {"id": 2, "b": "Y"})
    pipeline.put("left", {"id": 3, "a": "z"})
    broken = pipeline.mark("plain", "broken")
    error = pipeline.run(*parts)
    assert error is not None
    assert "out of order" in error.message
    assert "pipeline.yaml:11:3" in str(error.where)
    # The epoch is half written: what comes again is left out by the sinks that had it.
    assert postgres.execute("SELECT count(*) FROM rows", url) == [(3,)]
    assert postgres.execute("SELECT count(*) FROM behind", url) == [(2,)]
    broken.unlink()
    pipeline.put("right", {"id": 3, "b": "Z"})
    # Sources stand in another order, and nothing is taken for the other's.
    sources = parts[0].splitlines()
    assert pipeline.run("\n".join([sources[0], *sources[:0:-1]]), *parts[1:]) is None
    assert sorted(pipeline.table("out", "id")) == [1, 2, 3]
    assert sorted(row["id"] for row in pipeline.rows("plain")) == [1, 2, 3]
    written = pipeline.session.spark.read.schema("id BIGINT").json(str(pipeline.folder / "files")).collect()
    assert sorted(row.id for row in written) == [1, 2, 3]
    for table in ("rows", "behind"):
        assert postgres.execute(f"SELECT id FROM {table} ORDER BY id", url) == [(1,), (2,), (3,)]


def test_a_server_that_goes_away_after_another_has_the_epoch(
    pipeline: Pipeline, postgres: Postgres, kafka: Broker
) -> None:
    url, topic = postgres.new_database(), kafka.new_topic()
    place, _, database = url.rpartition("/")

    def sent() -> list[int]:
        records = (
            pipeline.session.spark.read.format("kafka")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .load()
        )
        ids = records.selectExpr("CAST(get_json_object(CAST(value AS STRING), '$.id') AS INT) AS id")
        return sorted(row.id for row in ids.collect())

    with Proxy(postgres.port) as proxy, ThreadPoolExecutor() as pool:
        through = f"{place.rpartition(':')[0]}:{proxy.port}/{database}"
        parts = [
            _section("sources", pipeline.source("orders", ORDERS)),
            _section(
                "sinks",
                f'sent: {{type: kafka, from: orders, topic: {topic}, bootstrap_servers: "{kafka.bootstrap_servers}"}}',
                pipeline.sink("plain", "orders"),
                f"rows: {{type: postgres, from: orders, url: '{through}', table: rows, output_mode: append, retry_for: 1s}}",
            ),
        ]
        pipeline.put("orders", _order(1, "a", 1))
        assert pipeline.run(*parts) is None
        pipeline.put("orders", _order(2, "b", 2))
        waiting = pipeline.mark("plain", "waiting")
        failing = pool.submit(pipeline.run, *parts)
        try:
            wait_for(lambda: sent() == [1, 2], "the epoch in Kafka")
            proxy.cut()
        finally:
            waiting.unlink()
        error = failing.result()
        assert error is not None
        assert "pipeline.yaml:8:3" in str(error.where)
        proxy.mend()
        pipeline.put("orders", _order(3, "c", 3))
        assert pipeline.run(*parts) is None
    assert sent() == [1, 2, 3]
    assert postgres.execute("SELECT id FROM rows ORDER BY id", url) == [(1,), (2,), (3,)]


def test_other_groups_come_and_go(pipeline: Pipeline) -> None:
    first = pipeline.source("orders", ORDERS)
    second = pipeline.source("clicks", "{id: int64}")
    outs = [pipeline.sink("out", "orders"), pipeline.sink("clicked", "clicks")]
    pipeline.put("orders", _order(1, "a", 1))
    pipeline.put("clicks", {"id": 7})
    assert pipeline.run(_section("sources", first), _section("sinks", outs[0])) is None
    for sources in ((second, first), (first, second)):
        pipeline.put("orders", _order(2, "a", 1))
        assert pipeline.run(_section("sources", *sources), _section("sinks", *outs)) is None
    assert [row["id"] for row in pipeline.rows("out")] == [1, 2, 2]
    assert [row["id"] for row in pipeline.rows("clicked")] == [7]
    assert pipeline.run(_section("sources", second), _section("sinks", outs[1])) is None
    assert len(pipeline.rows("clicked")) == 1


def _changes(run: PipelineRun, pipeline: Pipeline) -> dict[str, tuple[str | None, bool]]:
    found = changes(run.plan.spec, run.plan.groups, pipeline.session.queries.backend())
    assert found is not None
    return {one.node: (one.state, one.loses_rows) for one in found if one.state not in (None, "unchanged")}


def test_sources_change_while_others_go_on(pipeline: Pipeline) -> None:
    right, left = pipeline.source("right", "{id: int64}"), pipeline.source("left", "{id: int64}")
    counted = "ids: {type: view, primary_key: id, sql: 'SELECT id, count(*) AS total FROM left GROUP BY id'}"
    both = "all: {type: sql, sql: 'SELECT id FROM left UNION ALL SELECT id FROM right'}"
    sinks = _section("sinks", pipeline.sink("out", "all"), pipeline.sink("views", "ids"))
    parts = [_section("sources", right, left), _section("transforms", both, counted), sinks]
    pipeline.put("left", {"id": 1})
    pipeline.put("right", {"id": 7})
    assert pipeline.run(*parts) is None
    # Another folder: it is read from its beginning, the other source goes on.
    pipeline.put("moved", {"id": 2})
    moved = left.replace(str(pipeline.folder / "left"), str(pipeline.folder / "moved"))
    parts[0] = _section("sources", right, moved)
    pipeline.put("right", {"id": 8})
    run = pipeline.planned(*parts)
    assert _changes(run, pipeline) == {"left": ("read again", True), "ids": ("rebuilt", True)}
    with pytest.raises(
        PenstockError, match=r"left \(another path: it is read from its beginning\)"
    ) as caught:
        confirm_losses(pipeline.session, run.plan, yes=False)
    assert caught.value.code == "PIPELINE_STATE_LOSS"
    confirm_losses(pipeline.session, run.plan, yes=True)
    run.start()
    assert run.wait() is None
    assert sorted(row["id"] for row in pipeline.rows("out")) == [1, 2, 7, 8]
    # The view has nothing of the old folder any more.
    assert pipeline.table("views", "id") == {2: {"id": 2, "total": 1}}
    pipeline.put("moved", {"id": 3})
    run = pipeline.planned(*parts)
    assert _changes(run, pipeline) == {}
    # A source comes, before the others in the order in which Spark has them, and one goes.
    came = pipeline.source("came", "{id: int64}")
    pipeline.put("came", {"id": 20})
    three = both.replace("FROM right", "FROM right UNION ALL SELECT id FROM came")
    parts[:2] = [_section("sources", right, moved, came), _section("transforms", three, counted)]
    run = pipeline.planned(*parts)
    assert _changes(run, pipeline) == {"came": ("new", False)}
    confirm_losses(pipeline.session, run.plan, yes=False)
    run.start()
    assert run.wait() is None
    assert sorted(row["id"] for row in pipeline.rows("out")) == [1, 2, 3, 7, 8, 20]
    pipeline.put("came", {"id": 21})
    only = both.replace("FROM right", "FROM came")
    parts[:2] = [_section("sources", moved, came), _section("transforms", only, counted)]
    run = pipeline.planned(*parts)
    assert _changes(run, pipeline) == {"right": ("dropped", True)}
    run.start()
    assert run.wait() is None
    assert sorted(row["id"] for row in pipeline.rows("out")) == [1, 2, 3, 7, 8, 20, 21]
    assert _totals(pipeline.table("views", "id")) == {2: 1, 3: 1}


def test_a_start_that_dies_while_sources_change_is_done_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, left = pipeline.source("right", "{id: int64}"), pipeline.source("left", "{id: int64}")
    rest = [
        _section("transforms", "all: {type: sql, sql: 'SELECT id FROM left UNION ALL SELECT id FROM right'}"),
        _section("sinks", pipeline.sink("out", "all")),
    ]
    pipeline.put("left", {"id": 1})
    pipeline.put("right", {"id": 7})
    assert pipeline.run(_section("sources", right, left), *rest) is None
    pipeline.put("moved", {"id": 2})
    moved = left.replace(str(pipeline.folder / "left"), str(pipeline.folder / "moved"))
    with monkeypatch.context() as patch:
        patch.setattr(GroupValues, "store", lambda *_: 1 / 0)
        with pytest.raises(Exception, match="division"):
            pipeline.planned(_section("sources", right, moved), *rest).start()
    assert pipeline.run(_section("sources", right, moved), *rest) is None
    assert pipeline.run(_section("sources", right, moved), *rest) is None
    assert sorted(row["id"] for row in pipeline.rows("out")) == [1, 2, 7]
    assert [path.name for path in (pipeline.folder / "state" / "main").glob("*checkpoint*")] == [
        "checkpoint.3"
    ]


def test_a_source_plugin_with_other_rows_forgets_what_it_remembered(pipeline: Pipeline) -> None:
    for options in ("id: 1", "id: 1", "id: 1, pace: 2", "id: 2"):
        source = f"one: {{type: python, module: '{MODULE}:One', options: {{{options}}}}}"
        assert (
            pipeline.run(_section("sources", source), _section("sinks", pipeline.sink("out", "one"))) is None
        )
    assert [(row["id"], row["before"]) for row in pipeline.rows("out")] == [(1, None), (2, None)]


def test_another_source_while_an_epoch_is_not_done_is_refused(pipeline: Pipeline) -> None:
    parts = [
        _section("sources", pipeline.source("orders", ORDERS)),
        _section("sinks", pipeline.sink("out", "orders")),
    ]
    pipeline.put("orders", _order(1, "a", 5))
    broken = pipeline.mark("out", "broken")
    assert pipeline.run(*parts) is not None
    other = [parts[0].replace(str(pipeline.folder / "orders"), str(pipeline.folder / "others")), parts[1]]
    (pipeline.folder / "others").mkdir()
    with pytest.raises(ps.StateError, match="epoch 0 of the sources as they were has begun") as caught:
        pipeline.planned(*other).start()
    assert caught.value.code == "PIPELINE_SOURCE_CHANGED"
    broken.unlink()
    assert pipeline.run(*parts) is None
    assert pipeline.run(*other) is None
    assert [row["id"] for row in pipeline.rows("out")] == [1]


def test_views_change_between_runs_and_sinks_agree(pipeline: Pipeline) -> None:
    sources = _section("sources", pipeline.source("orders", ORDERS, primary_key="id"))
    out = pipeline.sink("out", "totals")
    pipeline.put("orders", _order(1, "a", 5), _order(2, None, 7), _order(3, "b", 1))
    error = pipeline.run(sources, _section("transforms", TOTALS), _section("sinks", out))
    assert error is not None
    assert error.message == "the key column 'customer' is NULL in a row of the view 'totals'"
    assert "pipeline.yaml:6:47, view" in str(error.where)
    named = TOTALS.replace("SELECT customer", 'SELECT coalesce(customer, "") AS customer')
    assert pipeline.run(sources, _section("transforms", named), _section("sinks", out)) is None
    assert _totals(pipeline.table("out", "customer")) == {"a": 5, "": 7, "b": 1}
    # Another query: customers that are no longer in it are deleted, without a row that comes.
    changed = named.replace("FROM orders", "FROM orders WHERE amount > 1")
    said: list[str] = []
    assert (
        pipeline.run(sources, _section("transforms", changed), _section("sinks", out), say=said.append)
        is None
    )
    assert said == ["totals is rebuilt: its query has changed"]
    assert _totals(pipeline.table("out", "customer")) == {"a": 5, "": 7}
    # A sink that comes later has all rows of the view, again without a row that comes.
    late = _section("sinks", out, pipeline.sink("late", "totals"))
    assert pipeline.run(sources, _section("transforms", changed), late) is None
    assert pipeline.table("late", "customer") == pipeline.table("out", "customer")
    before = len(pipeline.rows("late"))
    pipeline.put("orders", _order(1, "b", 50))
    assert pipeline.run(sources, _section("transforms", changed), late) is None
    assert _totals(pipeline.table("late", "customer")) == {"b": 50, "": 7}
    assert len(pipeline.rows("late")) == before + 2
    assert pipeline.table("late", "customer") == pipeline.table("out", "customer")


def test_views_that_go_take_their_state_along(pipeline: Pipeline) -> None:
    sources = _section("sources", pipeline.source("orders", ORDERS, primary_key="id"))
    out, plain = pipeline.sink("out", "totals"), pipeline.sink("plain", "orders")
    with_view = (sources, _section("transforms", TOTALS), _section("sinks", out, plain))
    without = (sources, _section("sinks", plain))
    pipeline.put("orders", _order(1, "a", 5))
    assert pipeline.run(*with_view) is None
    plan = pipeline.planned(*without).plan
    with open_backend(pipeline.session.settings.state) as backend:
        found = changes(plan.spec, plan.groups, backend)
    assert found is not None
    assert {one.node: (one.state, one.loses_rows) for one in found if one.state} == {
        "orders": ("dropped", True),
        "totals": ("dropped", False),
    }
    pipeline.put("orders", _order(2, "a", 6))
    assert pipeline.run(*without) is None
    pipeline.put("orders", _order(3, "b", 7))
    assert pipeline.run(*with_view) is None
    assert _totals(pipeline.table("out", "customer"))["b"] == 7


def test_chained_views_with_rows_that_fail_between_them(pipeline: Pipeline) -> None:
    letters = pipeline.folder / "letters"
    parts = [
        _section("sources", pipeline.source("Shop.Orders", ORDERS, primary_key="id")),
        _section(
            "transforms",
            TOTALS.replace("orders", "shop.ORDERS"),
            "checked: {type: expect, from: totals, primary_key: customer, on_error: dead_letter, "
            f"dead_letter: {{type: file, path: '{letters}'}}, expectations: {{few: {{condition: 'n < 3', action: quarantine}}}}}}",
            "sizes: {type: view, primary_key: n, sql: 'SELECT n, count(*) AS customers FROM checked GROUP BY n'}",
            "large: {type: sql, sql: 'SELECT SHOP.orders.id, now() AS at FROM shop.orders WHERE amount > 9'}",
        ),
        _section(
            "sinks",
            pipeline.sink("out", "sizes"),
            pipeline.sink("large_out", "large"),
        ),
    ]
    pipeline.put("Shop.Orders", _order(1, "a", 5), _order(2, "b", 7), _order(3, "b", 1))
    assert pipeline.run(*parts) is None
    assert {n: row["customers"] for n, row in pipeline.table("out", "n").items()} == {1: 1, 2: 1}
    assert pipeline.rows("large_out") == []
    # A batch of which nothing passes the filter, and one of whose rows fails.
    pipeline.put("Shop.Orders", _order(4, "b", 1), _order(5, "c", 1))
    assert pipeline.run(*parts) is None
    assert {n: row["customers"] for n, row in pipeline.table("out", "n").items()} == {1: 2}
    stored = [json.loads(line) for path in letters.glob("*.json") for line in path.read_text().splitlines()]
    assert [(one["node"], json.loads(one["row"])["customer"]) for one in stored] == [("checked", "b")]
    run = pipeline.planned(*parts)
    run.start()
    run.wait()
    pipeline.put("Shop.Orders", _order(6, "d", 10))
    assert pipeline.run(*parts) is None
    [row] = pipeline.rows("large_out")
    assert row["id"] == 6


@pytest.mark.parametrize("read", ["orders", "totals"])
def test_a_record_that_cannot_be_read_is_said_with_its_place(pipeline: Pipeline, read: str) -> None:
    parts = [
        _section("sources", pipeline.source("orders", ORDERS, primary_key="id")),
        _section("transforms", TOTALS),
        _section("sinks", pipeline.sink("out", read), pipeline.sink("all", "totals")),
    ]
    (pipeline.folder / "orders" / "009.json").write_text('{"id": 1}\n{"id": "one"}\n')
    error = pipeline.run(*parts)
    assert error is not None
    assert error.code == "DATA_BAD_RECORD"
    assert "a record cannot be read" in error.message
    assert "009.json" in str(error.where)
    assert "on_bad_record" in str(error.hint)


def test_queries_over_rows_with_operations(pipeline: Pipeline) -> None:
    parts = [
        _section("sources", pipeline.source("orders", ORDERS[:-1] + ", _op: string}", primary_key="id")),
        _section(
            "transforms",
            "large: {type: sql, sql: 'SELECT id, amount * 2 AS twice FROM orders WHERE amount > 4'}",
        ),
        _section("sinks", pipeline.sink("out", "large")),
    ]
    pipeline.put("orders", _order(1, "a", 5, _op="i"), _order(2, "b", 3, _op="i"), _order(3, "c", 9, _op="i"))
    pipeline.put("orders", _order(1, "a", 2, _op="u"), _order(2, "b", 6, _op="u"), {"id": 3, "_op": "d"})
    assert pipeline.run(*parts) is None
    assert {key: row["twice"] for key, row in pipeline.table("out", "id").items()} == {2: 12}
    for query in (
        "SELECT id, amount FROM orders UNION ALL SELECT id + 1, amount FROM orders",
        "SELECT id, explode(array(1, 2)) AS part FROM orders",
    ):
        parts[1] = _section("transforms", f"large: {{type: sql, sql: '{query}'}}")
        with pytest.raises(ps.ConfigError) as refused:
            pipeline.planned(*parts)
        assert refused.value.code == "PIPELINE_SQL_OPERATIONS"
        assert "pipeline.yaml:6" in str(refused.value.where)


def test_the_last_row_of_a_key_is_that_of_the_newest_file_also_when_it_is_the_largest(
    pipeline: Pipeline,
) -> None:
    parts = [
        _section("sources", pipeline.source("orders", ORDERS[:-1] + ", _op: string}", primary_key="id")),
        _section("transforms", TOTALS),
        _section("sinks", pipeline.sink("out", "orders"), pipeline.sink("totals_out", "totals")),
    ]
    pipeline.put("orders", _order(1, "a", 5, _op="i"), _order(2, "b", 3, _op="i"))
    late = [_order(number, "c", 1, _op="i") for number in range(10, 200)]
    pipeline.put("orders", _order(1, "a", 2, _op="u"), {"id": 2, "_op": "d"}, *late)
    assert pipeline.run(*parts) is None
    table = pipeline.table("out", "id")
    assert (table[1]["amount"], 2 in table, len(table)) == (2, False, 191)
    totals = pipeline.table("totals_out", "customer")
    assert {customer: row["total"] for customer, row in totals.items()} == {"a": 2, "c": 190}


def test_sinks_agree_on_the_time_and_on_random_values_after_a_repair(pipeline: Pipeline) -> None:
    parts = [
        _section("sources", pipeline.source("orders", ORDERS)),
        _section(
            "transforms",
            "timed: {type: sql, sql: 'SELECT id, now() AS at, current_date() AS day, current_time() AS clock, rand() AS r, uuid() AS u FROM orders'}",
            "checked: {type: expect, from: timed, expectations: {past: {condition: 'at <= now()', action: drop}}}",
        ),
        _section("sinks", pipeline.sink("first", "checked"), pipeline.sink("second", "checked")),
    ]
    pipeline.put("orders", *(_order(number, "a", 1) for number in range(5)))
    mark = pipeline.mark("second", "broken")
    assert pipeline.run(*parts) is not None
    before = pipeline.rows("first")
    assert len(before) == 5
    assert len({row["u"] for row in before}) == 5
    mark.unlink()
    assert pipeline.run(*parts) is None
    assert pipeline.rows("second") == before
    assert pipeline.rows("first") == before + before
    pipeline.put("orders", _order(7, "a", 1))
    assert pipeline.run(*parts) is None
    [later] = pipeline.rows("second")[5:]
    assert later["at"] > before[0]["at"]
    assert later["r"] not in {row["r"] for row in before}
    # One that keeps nothing, and does not come again.
    assert pipeline.run(*parts[:2], _section("sinks", "out: {type: blackhole, from: checked}")) is None


CHANGES = ORDERS[:-1] + ", _op: string}"
KEYED = "out: {type: clickhouse, from: %s, table: t, url: 'http://127.0.0.1:1', primary_key: %s}"


@pytest.mark.parametrize(
    ("transform", "key"),
    [
        ("rows: {type: sql, sql: 'SELECT * FROM orders'}", "customer"),
        ("rows: {type: sql, sql: 'SELECT customer, amount FROM orders'}", "customer"),
        ("rows: {type: sql, primary_key: customer, sql: 'SELECT * FROM orders'}", "customer"),
        ("rows: {type: sql, primary_key: id, sql: 'SELECT id + amount AS id FROM orders'}", "id"),
        ("rows: {type: sql, sql: 'SELECT id + amount AS id FROM orders'}", "id"),
        (
            "rows: {type: expect, from: orders, primary_key: customer, expectations: {a: {condition: id > 0, action: warn}}}",
            "customer",
        ),
        ("rows: {type: dynamic_table, sql: 'SELECT customer FROM orders'}", "id"),
    ],
)
def test_another_key_than_that_of_the_operations_is_refused(
    pipeline: Pipeline, transform: str, key: str
) -> None:
    reads = "orders" if "dynamic_table" in transform else "rows"
    parts = [
        _section("sources", pipeline.source("orders", CHANGES, primary_key="id")),
        _section("transforms", transform),
        _section("sinks", KEYED % (reads, key)),
    ]
    with pytest.raises(ps.ConfigError) as refused:
        pipeline.planned(*parts)
    assert refused.value.code == "PIPELINE_KEY"
    assert "customer" in refused.value.message or "id" in refused.value.message


def test_a_sink_that_has_enough_ends_all_groups(pipeline: Pipeline) -> None:
    endless = pipeline.source("orders", ORDERS, mode={"type": "continuous"})
    parts = [
        _section("sources", endless, "ticks: {type: rate, rows_per_second: 100}"),
        _section(
            "sinks",
            pipeline.sink("out", "orders"),
            "shown: {type: print, from: ticks, num_records_before_stop: 1}",
        ),
    ]
    run = pipeline.planned(*parts)
    run.start()
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(run.wait)
        try:
            assert ends.result(60) is None
        finally:
            run.stop()


def test_a_version_without_a_sequence_is_none(pipeline: Pipeline) -> None:
    parts = [
        _section("sources", pipeline.source("orders", ORDERS)),
        _section(
            "transforms",
            "versions: {type: cdc, from: orders, primary_key: customer, sequence_by: amount, scd: 2}",
        ),
        _section("sinks", pipeline.sink("out", "versions")),
    ]
    pipeline.put(
        "orders", *({"id": number, "customer": "a", "amount": at} for number, at in enumerate([1, None, 5]))
    )
    assert pipeline.run(*parts) is None
    versions = sorted((row["valid_from"], row["valid_to"]) for row in pipeline.rows("out"))
    assert versions == [(1, 5), (5, None)]


def test_changes_of_views_are_in_the_session_of_their_batch(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = set()
    evaluate = ViewsStep.evaluate

    def watched(self: ViewsStep, epoch: int, frames: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        changes = evaluate(self, epoch, frames)
        for frame in (*(frames[name] for name in self.inputs), *changes.values()):
            sessions.add(frame.sparkSession._jsparkSession.sessionUUID())
        return changes

    monkeypatch.setattr(ViewsStep, "evaluate", watched)
    pipeline.put("orders", _order(1, "a", 1))
    sources = _section("sources", pipeline.source("orders", ORDERS))
    sinks = _section("sinks", pipeline.sink("out", "totals"))
    assert pipeline.run(sources, _section("transforms", TOTALS), sinks) is None
    assert len(pipeline.rows("out")) == 1
    assert len(sessions) == 1


def test_a_log_of_a_view_needs_its_key(pipeline: Pipeline) -> None:
    parts = [
        _section("sources", pipeline.source("orders", ORDERS)),
        _section(
            "transforms",
            "sizes: {type: view, sql: 'SELECT customer, count(*) AS n FROM orders GROUP BY customer'}",
            "rows: {type: cdc, primary_key: n, sequence_by: n, from: sizes}",
        ),
        _section("sinks", pipeline.sink("out", "rows")),
    ]
    with pytest.raises(ps.ConfigError, match="'sizes', which has no primary key") as refused:
        pipeline.planned(*parts)
    assert refused.value.code == "PIPELINE_KEY"


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT id AS number, customer FROM orders", "number"),
        ("SELECT CAST(id AS STRING) AS id FROM orders WHERE amount > 1", "id"),
        ("SELECT customer, id FROM orders", "id"),
    ],
)
def test_a_key_may_have_another_name_or_type(pipeline: Pipeline, query: str, key: str) -> None:
    parts = [
        _section("sources", pipeline.source("orders", CHANGES, primary_key="id")),
        _section("transforms", f"rows: {{type: sql, sql: '{query}'}}"),
        _section("sinks", KEYED % ("rows", key)),
    ]
    [group] = pipeline.planned(*parts).plan.groups
    assert group.outputs["rows"].keys == (key,)


def test_another_type_of_a_source_is_said(pipeline: Pipeline) -> None:
    rest = [_section("transforms", TOTALS), _section("sinks", pipeline.sink("out", "totals"))]
    pipeline.put("orders", _order(1, "a", 5))
    assert (
        pipeline.run(_section("sources", pipeline.source("orders", ORDERS, primary_key="id")), *rest) is None
    )
    other = ORDERS.replace("amount: int64", "amount: string")
    plan = pipeline.planned(
        _section("sources", pipeline.source("orders", other, primary_key="id")), *rest
    ).plan
    with open_backend(pipeline.session.settings.state) as backend:
        found = changes(plan.spec, plan.groups, backend)
    assert found is not None
    lost = {one.node: one.reason for one in found if one.loses_rows}
    assert lost["orders"] == "column 'amount' was bigint and is string"


def test_a_pipeline_runs_once_and_goes_on_after_a_restart(pipeline: Pipeline) -> None:
    parts = [
        _section("sources", pipeline.source("orders", ORDERS, primary_key="id", mode="continuous")),
        _section("transforms", TOTALS),
        _section("sinks", pipeline.sink("out", "totals")),
    ]
    run = pipeline.planned(*parts)
    run.start()
    try:
        with pytest.raises(ps.StateError, match="is running in this session"):
            pipeline.planned(*parts).start()
        pipeline.put("orders", _order(1, "a", 5))
        wait_for(lambda: pipeline.rows("out"))
        # The second run of the same query opens the views where the checkpoint is by now.
        with open_backend(pipeline.session.settings.state) as backend:
            started = backend.jobs.get(pipeline.name).started_at
            backend.jobs.request(pipeline.name, "restart")
            wait_for(lambda: backend.jobs.get(pipeline.name).started_at != started)
        pipeline.put("orders", _order(2, "a", 6))
        wait_for(lambda: _totals(pipeline.table("out", "customer")) == {"a": 11})
    finally:
        run.stop()
    assert run.wait() is None
    assert Counter(row["total"] for row in pipeline.rows("out")) == {5: 1, 11: 1}


def test_a_paused_pipeline_with_a_view_over_a_topic_goes_on_where_it_was(
    pipeline: Pipeline, kafka: Broker
) -> None:
    topic = kafka.new_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def send(*orders: dict[str, Any]) -> None:
        for order in orders:
            producer.produce(topic, json.dumps(order).encode())
        assert producer.flush(30) == 0

    servers = f'bootstrap_servers: "{kafka.bootstrap_servers}"'
    parts = [
        _section(
            "sources",
            f"orders: {{type: kafka, topic: {topic}, {servers}, schema: {ORDERS}, operations: none, primary_key: id}}",
        ),
        _section("transforms", TOTALS),
        _section("sinks", pipeline.sink("out", "totals")),
    ]
    backend = pipeline.session.queries.backend()
    send(_order(1, "a", 5))
    run = pipeline.planned(*parts)
    job = run.plan.job_name(run.plan.groups[0])
    run.start()
    try:
        wait_for(lambda: _totals(pipeline.table("out", "customer")) == {"a": 5})
        assert main(["jobs", "pause", pipeline.name, "--state", backend.url]) == 0
        epochs = backend.epochs.list(job)
        assert epochs
        send(_order(2, "a", 6), _order(3, "b", 7))
        assert not threading.Event().wait(0.5)
        assert backend.epochs.list(job) == epochs
        assert main(["jobs", "resume", pipeline.name, "--state", backend.url]) == 0
        wait_for(lambda: _totals(pipeline.table("out", "customer")) == {"a": 11, "b": 7})
    finally:
        run.stop()
    assert run.wait() is None
    assert sum(row["n"] for row in pipeline.table("out", "customer").values()) == 3


def test_a_history_that_is_stopped_goes_on(pipeline: Pipeline) -> None:
    for number in range(1, 4):
        pipeline.put("old", {"id": number})
    pipeline.put("new", {"id": 3}, {"id": 4})
    history = f"{{type: file, path: '{pipeline.folder / 'old'}', format: json, schema: {{id: int64}}, max_files: 1}}"
    live = f"{{type: file, path: '{pipeline.folder / 'new'}', format: json, schema: {{id: int64}}, mode: continuous}}"
    parts = [
        _section("sources", f"ids: {{type: hybrid, cursor: id, history: {history}, live: {live}}}"),
        _section("sinks", pipeline.sink("out", "ids")),
    ]
    waiting = pipeline.mark("out", "waiting")
    run = pipeline.planned(*parts)
    run.start()
    with open_backend(pipeline.session.settings.state) as backend:
        wait_for(lambda: backend.epochs.jobs())
        backend.jobs.request(pipeline.name, "stop")
        wait_for(lambda: run.queries[""].was_stopped)
        waiting.unlink()
        assert run.wait() is None
    before = [row["id"] for row in pipeline.rows("out")]
    assert 4 not in before
    assert len(before) < 3
    run = pipeline.planned(*parts)
    run.start()
    with ThreadPoolExecutor() as threads:
        ended = threads.submit(run.wait)
        try:
            wait_for(lambda: 4 in [row["id"] for row in pipeline.rows("out")])
        finally:
            run.stop()
    assert ended.result() is None
    assert sorted(row["id"] for row in pipeline.rows("out")) == [1, 2, 3, 4]
    # Without its folder the pipeline has read nothing, its history neither.
    shutil.rmtree(pipeline.folder / "state")
    assert pipeline.planned(*parts).plan.groups[0].phase == "history"


def test_a_second_run_of_a_pipeline_changes_nothing_of_the_first(pipeline: Pipeline) -> None:
    pipeline.put("old", {"id": 1})
    pipeline.put("new", {"id": 1}, {"id": 2})
    history = f"{{type: file, path: '{pipeline.folder / 'old'}', format: json, schema: {{id: int64}}}}"
    live = f"{{type: file, path: '{pipeline.folder / 'new'}', format: json, mode: continuous}}"
    parts = [
        _section("sources", f"ids: {{type: hybrid, cursor: id, history: {history}, live: {live}}}"),
        _section("sinks", pipeline.sink("out", "ids")),
    ]
    waiting = pipeline.mark("out", "waiting")
    run = pipeline.planned(*parts)
    backend = pipeline.session.queries.backend()
    assert backend.state.items(pipeline.name) == {}
    run.start()
    stored = backend.state.items(pipeline.name)
    assert stored["sources/ids", "boundary"]["cursor"] == "1"
    pipeline.put("old", {"id": 2})
    # As on another machine: the folder is not there.
    elsewhere = f"checkpoint: '{pipeline.folder / 'elsewhere'}'"
    other = pipeline.planned(*parts, checkpoint=elsewhere)
    assert other.plan.groups[0].phase == "history"
    with pytest.raises(ps.StateError):
        other.start()
    assert backend.state.items(pipeline.name) == stored
    with ThreadPoolExecutor() as threads:
        ended = threads.submit(run.wait)
        try:
            waiting.unlink()
            wait_for(lambda: 2 in [row["id"] for row in pipeline.rows("out")])
        finally:
            run.stop()
    assert ended.result() is None
    assert sorted(row["id"] for row in pipeline.rows("out")) == [1, 2]
    assert backend.state.get(pipeline.name, "history_done", namespace="sources") is True
    # Another history cannot go on from what the live source has given.
    (pipeline.folder / "older").mkdir()
    parts[0] = parts[0].replace(str(pipeline.folder / "old"), str(pipeline.folder / "older"))
    with pytest.raises(ps.StateError, match="the hybrid source 'ids' reads something else") as caught:
        pipeline.planned(*parts).start()
    assert caught.value.code == "PIPELINE_SOURCE_CHANGED"


def test_looking_and_testing_write_nothing(pipeline: Pipeline) -> None:
    letters = pipeline.folder / "letters"
    text = "\n".join(
        [
            f"name: {pipeline.name}",
            _section("sources", pipeline.source("orders", ORDERS, primary_key="id")),
            _section(
                "transforms",
                # No server is there to be asked.
                "large: {type: dynamic_table, backend: Postgres, url: 'postgresql://127.0.0.1:1/none', table: t, "
                "sql: 'SELECT customer FROM orders WHERE amount > 9'}",
                f"copied: {{type: python, module: '{MODULE}:Copied', from: orders, side_outputs: "
                f"{{copies: {{type: file, path: '{pipeline.folder / 'copies'}', format: json}}}}}}",
                "checked: {type: expect, from: copied, on_error: dead_letter, "
                f"dead_letter: {{type: file, path: '{letters}'}}, expectations: {{few: {{condition: 'amount < 20', action: quarantine}}}}}}",
                "chosen: {type: sql, sql: \"SELECT id FROM checked WHERE dynamic_table_check('large', customer)\"}",
            ),
            _section("sinks", pipeline.sink("out", "chosen")),
            "tests:\n- name: large\n  given: {orders: [{id: 7, customer: a, amount: 10}, {id: 8, customer: b, amount: 1}]}\n"
            "  expect: {chosen: [{id: 7}]}",
            "- name: rows of a plugin\n  given: {orders: [{id: 7, customer: a, amount: 10}], copied: [{id: 9, customer: a, amount: 2}]}\n"
            "  expect: {chosen: [{id: 9}]}",
            "- name: of a sink\n  given: {orders: [{id: 7, customer: a, amount: 10}]}\n  expect: {out: [{id: 8}], orders: [{id: 7}]}",
        ]
    )
    pipeline.put("orders", _order(1, "a", 10), _order(2, "a", 1), _order(3, "b", 1), _order(4, "b", 99))
    spec = check_text(text, str(pipeline.folder / "pipeline.yaml")).spec
    with Preview(pipeline.session, spec, "chosen", limit=2).opened() as (_, batches):
        assert sorted(row["id"] for batch in batches for row in batch.to_pylist()) == [1, 2]
    *passed, failed = run_tests(pipeline.session, spec)
    assert [outcome.passed for outcome in passed] == [True, True], passed
    [difference] = failed.differences
    assert (difference.node, difference.missing, difference.surplus) == ("out", ({"id": 8},), ({"id": 7},))
    settings = pipeline.session.settings
    home = replace(settings, home=pipeline.folder / "home", state=f"sqlite:///{pipeline.folder}/state.db")
    queries = Queries(home, session="looks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(pipeline.session), "queries", property(lambda _: queries))
        assert changes(spec, plan_pipeline(pipeline.session, spec).groups, queries.existing_backend()) is None
    queries.close()
    assert not (pipeline.folder / "state.db").exists()
    assert not letters.exists()
    assert not (pipeline.folder / "copies").exists()
    assert pipeline.rows("out") == []


def test_odd_names_and_a_node_under_several_aliases(pipeline: Pipeline) -> None:
    parts = [
        _section(
            "sources",
            f"2024.Größe-x: {pipeline.source('s', '{id: int64, next: int64}', primary_key='id').partition(': ')[2]}",
        ),
        _section(
            "transforms",
            "7: {type: sql, sql: 'SELECT id, next FROM `2024`.`größe-X` WHERE id IS NOT NULL'}",
            "select: {type: sql, sql: 'SELECT id + 1 AS id FROM `7`'}",
            "pairs: {type: view, primary_key: id, sql: 'SELECT a.id, b.next AS far FROM `7` a JOIN `7` b ON a.next = b.id'}",
        ),
        _section("sinks", pipeline.sink("out", "pairs"), pipeline.sink("plain", "select")),
    ]
    pipeline.put("s", {"id": 1, "next": 2}, {"id": 2, "next": 3})
    assert pipeline.run(*parts) is None
    assert pipeline.table("out", "id") == {1: {"id": 1, "far": 3}}
    assert sorted(row["id"] for row in pipeline.rows("plain")) == [2, 3]


def test_a_row_without_its_key_is_said(pipeline: Pipeline) -> None:
    parts = [
        _section("sources", pipeline.source("orders", ORDERS, primary_key="id")),
        _section("transforms", TOTALS),
        _section("sinks", pipeline.sink("out", "totals")),
    ]
    pipeline.put("orders", _order(1, "a", 5), {"customer": "b", "amount": 6})
    error = pipeline.run(*parts)
    assert error is not None
    assert "NULL" in str(error)
    print(error)
    assert isinstance(error, ps.DataError)
