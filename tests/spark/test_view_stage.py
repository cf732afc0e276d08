"""Views in the middle of a pipeline: their changes add up to what Spark computes from all rows, whatever the process dies at."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from golden.spark_answer import settings
from penstock.data.schema import to_arrow_schema
from penstock.pipeline.stage_plan import StageInput, StageView
from penstock.pipeline.transforms.cdc import CdcNode
from penstock.pipeline.transforms.dedup import DedupNode
from penstock.pipeline.view_stage import ViewStage
from penstock.spark.arrow import to_arrow
from penstock.state.files import LocalFiles
from seed import SEED

Row = dict[str, Any]
Frames = dict[str, pa.Table]

ORDERS = "id BIGINT, customer BIGINT, amount DECIMAL(10,2), day DATE"
CUSTOMERS = "id BIGINT, name STRING, region STRING"
CLICKS = "page STRING, n INT"
EVENTS = "k BIGINT, seq BIGINT, value STRING, _op STRING"
INPUTS = (
    StageInput("orders", f"{ORDERS}, _op STRING", ("id",), operations=True),
    StageInput("shop.customers", f"{CUSTOMERS}, _op STRING", ("id",), operations=True),
    StageInput("clicks", CLICKS),
    StageInput("events__log", EVENTS, operations=True, log=True),
)
_EVENT_COLUMNS = {"events__log": ["k", "seq", "value", "_op", "_arrival"]}
_CHANGES = {"from": "events", "primary_key": "k", "sequence_by": "seq"}
VIEWS = (
    StageView(
        "joined",
        "SELECT o.id, o.amount, c.name FROM orders o LEFT JOIN shop.customers c ON o.customer = c.id",
        ("id",),
    ),
    StageView(
        "totals",
        "SELECT coalesce(region, '?') AS region, sum(amount) AS total, count(*) AS n FROM orders o "
        "LEFT JOIN shop.customers c ON o.customer = c.id GROUP BY coalesce(region, '?')",
        ("region",),
    ),
    StageView("best", "SELECT * FROM totals ORDER BY total DESC, region LIMIT 2", ("region",)),
    StageView(
        "ranked",
        "SELECT id, customer, sum(amount) OVER (PARTITION BY customer ORDER BY id) AS so_far FROM orders",
        ("ID",),
    ),
    StageView("pages", "SELECT page FROM clicks WHERE n > 1"),
    StageView("pairs", "SELECT a.page, b.n FROM clicks a JOIN clicks b ON a.n = b.n", wanted=False),
    StageView("counted", "SELECT page, count(*) AS n FROM pairs GROUP BY page", ("page",)),
    StageView(
        "first", DedupNode.model_validate({"from": "events", "by": "k"}).definition(_EVENT_COLUMNS), ("k",)
    ),
    StageView(
        "latest", CdcNode.model_validate({**_CHANGES, "exclude": ["seq"]}).definition(_EVENT_COLUMNS), ("k",)
    ),
    StageView(
        "history",
        CdcNode.model_validate({**_CHANGES, "scd": 2}).definition(_EVENT_COLUMNS),
        ("k", "valid_from"),
    ),
)


class ArrowStage(ViewStage):
    """A stage whose changes do not go to the JVM."""

    def step(self, epoch: int, frames: Mapping[str, Any]) -> dict[str, Any]:
        return dict(super().step(epoch, frames))

    def _frame(self, view: str, columns: Sequence[pa.Array]) -> Any:
        return pa.table(list(columns), self.schema(view).names)


class Sink:
    """What a sink has that stores changes: the row of each key, or each row so many times."""

    def __init__(self, view: StageView) -> None:
        self.keys = [key.lower() for key in view.keys]
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.counts: Counter[str] = Counter()

    def store(self, changes: pa.Table, *, strict: bool = True) -> None:
        """Store the changes of an epoch; `strict` ones fit what is there exactly."""
        for row in changes.to_pylist():
            if not self.keys:
                weight = row.pop("_weight")
                self.counts[_text(row)] += weight
                assert not strict or self.counts[_text(row)] >= 0
                continue
            operation = row.pop("_op")
            key = tuple(row[name] for name in self.keys)
            if strict:
                assert (operation == "i") == (key not in self.rows)
                assert operation != "d" or self.rows[key] == row
                assert operation != "u" or self.rows[key] != row
            if operation == "d":
                self.rows.pop(key, None)
            else:
                self.rows[key] = row

    @property
    def content(self) -> Counter[str]:
        """Its rows as text."""
        return +self.counts if not self.keys else Counter(map(_text, self.rows.values()))


def _text(row: Row) -> str:
    # A sink has NULL in a column that is new.
    return str(sorted((name, value) for name, value in row.items() if value is not None))


class History:
    """Random epochs, and the rows of every input that they lead to."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tables: dict[str, dict[int, Row]] = {"orders": {}, "shop.customers": {}}
        self.clicks: list[Row] = []
        self.events: list[Row] = []

    def epoch(self, number: int) -> Frames:
        """The rows of the next epoch; some inputs have none, or are not there."""
        frames = {}
        for name, rows in {
            "orders": self._changes("orders", self._order),
            "shop.customers": self._changes("shop.customers", self._customer),
            "clicks": self._clicks(),
            "events__log": self._events(number),
        }.items():
            if rows or self.random.random() < 0.5:
                declared = next(one for one in INPUTS if one.name == name)
                schema = to_arrow_schema(declared.schema)
                frames[name] = pa.Table.from_pylist(rows, schema)
        return frames

    def _changes(self, name: str, make: Callable[[int], Row]) -> list[Row]:
        rows = []
        table = self.tables[name]
        for _ in range(self.random.choice([0, 1, 3, 8])):
            key = self.random.randrange(9)
            if self.random.random() < 0.3:
                table.pop(key, None)
                rows.append({"id": key, "_op": "d"})
            else:
                operation = "u" if self.random.random() < 0.5 else "i"
                table[key] = make(key)
                rows.append({**table[key], "_op": operation})
        return rows

    def _order(self, key: int) -> Row:
        amount = Decimal(self.random.randrange(1_000)) / 100
        customer = self.random.choice([None, 0, 1, 2])
        return {"id": key, "customer": customer, "amount": amount, "day": None}

    def _customer(self, key: int) -> Row:
        return {"id": key, "name": self.random.choice("abc"), "region": self.random.choice(["n", "s", None])}

    def _clicks(self) -> list[Row]:
        rows = [
            {"page": self.random.choice("xyz"), "n": self.random.randrange(4)}
            for _ in range(self.random.choice([0, 2, 5]))
        ]
        self.clicks += rows
        return rows

    def _events(self, epoch: int) -> list[Row]:
        rows = [
            {
                "k": self.random.randrange(3),
                "seq": self.random.randrange(6),
                "value": self.random.choice("pqr"),
                "_op": self.random.choice("iud"),
            }
            for _ in range(self.random.choice([0, 1, 4]))
        ]
        self.events += [{**row, "_arrival": epoch * 2**32 + at} for at, row in enumerate(rows)]
        return rows

    def answers(self, spark: SparkSession, views: Sequence[StageView]) -> dict[str, Counter[str]]:
        """What Spark says of views over all rows."""
        rows = {
            "orders": (list(self.tables["orders"].values()), ORDERS),
            "customers": (list(self.tables["shop.customers"].values()), CUSTOMERS),
            "clicks": (self.clicks, CLICKS),
            "events__log": (self.events, f"{EVENTS}, _arrival BIGINT"),
        }
        names = [*rows]
        answers = {}
        try:
            for name, (content, schema) in rows.items():
                spark.createDataFrame(content, schema).createOrReplaceTempView(name)
            for view in views:
                frame = spark.sql(view.sql.replace("shop.customers", "customers"))
                frame.createOrReplaceTempView(view.name)
                names.append(view.name)
                if view.wanted:
                    answers[view.name] = Counter(_text(row.asDict(recursive=True)) for row in frame.collect())
        finally:
            for name in names:
                spark.catalog.dropTempView(name)
        return answers


@pytest.fixture(scope="module")
def planned(session: ps.Session) -> Any:
    """The plans of `VIEWS`, which tests share."""
    stage = ArrowStage(session, "unused", INPUTS, VIEWS)
    return stage._planned()


def _stage(session: ps.Session, path: Path, planned: Any, **options: Any) -> ArrowStage:
    stage = ArrowStage(session, path, INPUTS, VIEWS, **options)
    stage._prepared = planned
    return stage


@contextmanager
def dying(calls: int) -> Iterator[list[int]]:
    """Let the disk die at one of the calls that write to it; gives how many are left."""
    left = [calls]
    patched = pytest.MonkeyPatch()

    def dies(name: str) -> None:
        true = getattr(LocalFiles, name)

        def call(self: LocalFiles, *args: Any) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                raise OSError("the disk is gone")
            return true(self, *args)

        patched.setattr(LocalFiles, name, call)

    for name in ("append", "sync", "write", "replace", "remove", "sync_folder"):
        dies(name)
    try:
        yield left
    finally:
        patched.undo()


def _same(one: Mapping[str, pa.Table], other: Mapping[str, pa.Table]) -> bool:
    def shown(changes: Mapping[str, pa.Table]) -> dict[str, Counter[str]]:
        return {name: Counter(map(_text, table.to_pylist())) for name, table in changes.items()}

    return shown(one) == shown(other)


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (0, {}),
        (1, {"checkpoint_every": 1}),
        *(pytest.param(n, {"checkpoint_every": 1}, marks=pytest.mark.soak) for n in range(2, 60)),
    ],
)
def test_changes_add_up_to_the_answers_of_spark(
    number: int, options: dict[str, Any], session: ps.Session, planned: Any, tmp_path: Path
) -> None:
    history = History(SEED + number)
    chance = random.Random(SEED + number)
    sinks = {view.name: Sink(view) for view in VIEWS if view.wanted}
    stage = _stage(session, tmp_path, planned, **options)
    stage.open(committed=-1)
    for epoch in range(5):
        frames = history.epoch(epoch)
        if chance.random() < 0.3:
            with dying(chance.randrange(1, 3)), suppress(ps.PenstockError, OSError):
                stage.step(epoch, frames)
            stage = _again(session, tmp_path, planned, stage, epoch - 1, options)
        changes = stage.step(epoch, frames)
        while chance.random() < 0.4:
            stage = _again(session, tmp_path, planned, stage, epoch - 1, options)
            assert _same(stage.step(epoch, {}), changes)
        assert _same(stage.step(epoch, {}), changes)
        for name, sink in sinks.items():
            sink.store(changes[name])
        assert {name: sink.content for name, sink in sinks.items()} == history.answers(session.spark, VIEWS)
        if chance.random() < 0.6:
            stage.finalize(epoch)
        if chance.random() < 0.3:
            stage = _again(session, tmp_path, planned, stage, epoch, options)
    stage.close()


def _again(
    session: ps.Session, path: Path, planned: Any, stage: ViewStage, committed: int, options: dict[str, Any]
) -> ArrowStage:
    """The stage of a process that has died, opened again."""
    with suppress(ps.PenstockError, OSError):
        stage.close()
    again = _stage(session, path, planned, **options)
    assert again.plan().is_unchanged or committed < 0
    again.open(committed=committed)
    return again


# A definition that changes

BEFORE = "id BIGINT, customer BIGINT, amount INT, _op STRING"
AFTER = "id BIGINT, customer BIGINT, amount BIGINT, note STRING, _op STRING"
OLD = (
    StageView("totals", "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer", ("customer",)),
    StageView("large", "SELECT id, amount FROM orders WHERE amount > 2", ("id",)),
    StageView("gone", "SELECT id FROM orders"),
    StageView("pages", "SELECT page, count(*) AS n FROM clicks GROUP BY page", ("page",)),
)
NEW = (
    StageView("totals", "SELECT customer, max(amount) AS most FROM orders GROUP BY customer", ("customer",)),
    StageView("large", "SELECT id, amount, note FROM orders WHERE amount > 4", ("id",)),
    OLD[3],
    StageView("count", "SELECT 'all' AS what, count(*) AS n FROM orders", ("what",)),
)


class Changed:
    """A stage whose definition changes before epoch 3, and two sinks of each view, the first of which has stored epoch 2 already."""

    def __init__(self, session: ps.Session, plans: dict[str, Any]) -> None:
        self.session, self.plans = session, plans

    def stage(self, path: Path, schema: str, views: Sequence[StageView]) -> ArrowStage:
        inputs = [
            StageInput("orders", schema, ("id",), operations=True),
            StageInput("clicks", CLICKS),
        ]
        stage = ArrowStage(self.session, path, inputs, views, checkpoint_every=1)
        stage._prepared = self.plans.get(schema)
        self.plans[schema] = stage._planned()
        return stage

    @staticmethod
    def frames(epoch: int, schema: str) -> Frames:
        """Orders come, change and go; every epoch has others."""
        rows = [
            {"id": epoch, "customer": epoch % 2, "amount": epoch + 1, "_op": "i"},
            {"id": 10 + epoch, "customer": epoch, "amount": 2 * epoch, "_op": "i"},
            {"id": epoch - 1, "customer": 7, "amount": 9 - epoch, "_op": "u"},
            {"id": 8 + epoch, "_op": "d"},
        ]
        clicks = [{"page": "a", "n": 1}, {"page": str(epoch), "n": 1}]
        return {
            "orders": pa.Table.from_pylist(rows, to_arrow_schema(schema)),
            "clicks": pa.Table.from_pylist(clicks, to_arrow_schema(CLICKS)),
        }

    @staticmethod
    def answers(epochs: int) -> dict[str, Counter[str]]:
        """What the new views have behind so many epochs."""
        orders: dict[int, Row] = {}
        for epoch in range(epochs):
            for row in Changed.frames(epoch, BEFORE)["orders"].to_pylist():
                if row.pop("_op") == "d":
                    orders.pop(row["id"], None)
                else:
                    orders[row["id"]] = row
        customers = {row["customer"] for row in orders.values()}
        pages = Counter({"a": epochs, **{str(epoch): 1 for epoch in range(epochs)}})
        rows = {
            "totals": [
                {
                    "customer": one,
                    "most": max(row["amount"] for row in orders.values() if row["customer"] == one),
                }
                for one in customers
            ],
            "large": [
                {"id": row["id"], "amount": row["amount"], "note": None}
                for row in orders.values()
                if row["amount"] > 4
            ],
            "pages": [{"page": page, "n": n} for page, n in pages.items()],
            "count": [{"what": "all", "n": len(orders)}],
        }
        return {name: Counter(map(_text, content)) for name, content in rows.items()}


@pytest.fixture(scope="module")
def changed(session: ps.Session) -> Changed:
    return Changed(session, {})


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_definition_that_changes_is_taken_over_whatever_write_the_process_dies_at(
    in_flight: bool, changed: Changed, tmp_path: Path
) -> None:
    stage = changed.stage(tmp_path / "before", BEFORE, OLD)
    stage.open(committed=-1)
    stored: list[dict[str, pa.Table]] = []
    for epoch in range(3):
        stored.append(stage.step(epoch, changed.frames(epoch, BEFORE)))
        if epoch < 2 or not in_flight:
            stage.finalize(epoch)
    stage.close()
    for calls in range(1, 1_000):
        path = tmp_path / str(calls)
        shutil.copytree(tmp_path / "before", path)
        sinks = [{view.name: Sink(view) for view in NEW} for _ in range(2)]
        done = [2, 1 if in_flight else 2]
        for of_sink, last in zip(sinks, done, strict=True):
            for changes in stored[: last + 1]:
                for name in changes.keys() & of_sink.keys():
                    of_sink[name].store(changes[name], strict=False)
        with dying(calls) as left:
            died = _finish(changed, path, sinks, done)
        while died:
            died = _finish(changed, path, sinks, done)
        expected = changed.answers(5)
        for of_sink in sinks:
            assert {name: sink.content for name, sink in of_sink.items()} == expected, calls
        shutil.rmtree(path)
        if left[0] > 0:
            return
    raise AssertionError("there are more writes than that")


def _finish(changed: Changed, path: Path, sinks: list[dict[str, Sink]], done: list[int]) -> bool:
    """Run the new definition until epoch 4; says whether it has died. A sink leaves out what it has stored."""
    stage = changed.stage(path, AFTER, NEW)
    try:
        stage.open(committed=min(done))
        for epoch in range(min(done) + 1, 5):
            changes = stage.step(epoch, changed.frames(epoch, AFTER))
            for at, of_sink in enumerate(sinks):
                if done[at] < epoch:
                    for name, table in changes.items():
                        of_sink[name].store(table, strict=False)
                    done[at] = epoch
            stage.finalize(epoch)
    except (ps.PenstockError, OSError):
        return True
    finally:
        with suppress(ps.PenstockError, OSError):
            stage.close()
    return False


def test_what_does_not_change_keeps_its_state(changed: Changed, tmp_path: Path) -> None:
    with _opened(changed.stage(tmp_path, BEFORE, OLD)) as stage:
        stage.step(0, changed.frames(0, BEFORE))
        stage.finalize(0)
    again = changed.stage(tmp_path, AFTER, NEW)
    assert [(one.name, one.change) for one in again.plan().views] == [
        ("totals", "rebuilt"),
        ("large", "rebuilt"),
        ("pages", "unchanged"),
        ("count", "new"),
        ("gone", "dropped"),
    ]
    assert again.plan().input("orders").change == "kept"
    assert not again.plan().loses_rows
    # A plan changes nothing.
    assert changed.stage(tmp_path, BEFORE, OLD).plan().is_unchanged
    assert again.has_waiting_changes
    with _opened(again, 0) as stage:
        # Also when nothing more happens before the process dies.
        assert again.plan().is_unchanged
        assert again.has_waiting_changes
        changes = stage.step(1, {})
        assert changes["pages"].num_rows == 0
        assert changes["count"].to_pylist() == [{"what": "all", "n": 3, "_op": "i"}]
        stage.finalize(1)
    assert changed.stage(tmp_path, AFTER, NEW).plan().is_unchanged
    assert not changed.stage(tmp_path, AFTER, NEW).has_waiting_changes
    with _opened(changed.stage(tmp_path, AFTER, NEW), 1, fresh={"pages"}) as stage:
        changes = stage.step(2, {})
        assert {row["_op"] for row in changes["pages"].to_pylist()} == {"i"}
        assert changes["pages"].num_rows == 2
        assert changes["totals"].num_rows == 0


@contextmanager
def _opened(stage: ArrowStage, committed: int = -1, **options: Any) -> Iterator[ArrowStage]:
    stage.open(committed=committed, **options)
    try:
        yield stage
    finally:
        stage.close()


def test_a_query_that_spark_refuses_changes_nothing(changed: Changed, tmp_path: Path) -> None:
    with _opened(changed.stage(tmp_path, BEFORE, OLD)) as stage:
        stage.step(0, changed.frames(0, BEFORE))
        stage.finalize(0)
    inputs = [StageInput("orders", BEFORE, ("id",), operations=True), StageInput("clicks", CLICKS)]
    wrong = replace(OLD[0], sql="SELECT custmer FROM orders")
    with pytest.raises(ps.SqlError, match="custmer"):
        ArrowStage(changed.session, tmp_path, inputs, (wrong, *OLD[1:])).open(committed=0)
    wrong = replace(OLD[0], keys=("nothing",))
    with pytest.raises(ps.ConfigError, match="names 'nothing', which is none of its columns"):
        ArrowStage(changed.session, tmp_path, inputs, (wrong, *OLD[1:])).open(committed=0)
    wrong = replace(OLD[0], sql="SELECT customer, 1 AS _op FROM orders")
    with pytest.raises(ps.ConfigError, match="has a column '_op'"):
        ArrowStage(changed.session, tmp_path, inputs, (wrong, *OLD[1:])).open(committed=0)
    assert changed.stage(tmp_path, BEFORE, OLD).plan().is_unchanged
    with _opened(changed.stage(tmp_path, BEFORE, OLD), 0) as stage:
        assert all(table.num_rows == 0 for table in stage.step(1, {}).values())


# What is refused


def test_a_key_that_is_none_is_an_error_each_time(session: ps.Session, tmp_path: Path) -> None:
    views = [StageView("named", "SELECT k, value FROM rows", ("k",))]
    inputs = [StageInput("rows", "k BIGINT, value STRING")]
    with _opened(ArrowStage(session, tmp_path, inputs, views)) as stage:
        first = pa.table({"k": [1], "value": ["a"]})
        assert stage.step(0, {"rows": first})["named"].to_pylist() == [{"k": 1, "value": "a", "_op": "i"}]
        stage.finalize(0)
        second = pa.table({"k": [2, 1], "value": ["b", "c"]})
        with pytest.raises(
            ps.DataError, match=r"the view 'named' has several rows with the key k=1"
        ) as refused:
            stage.step(1, {"rows": second})
        assert refused.value.code == "VIEW_KEY"
    again = ArrowStage(session, tmp_path, inputs, views)
    with _opened(again, 0), pytest.raises(ps.DataError, match="the key k=1"):
        again.step(1, {"rows": second})
    better = [replace(views[0], keys=("k", "value"))]
    with _opened(ArrowStage(session, tmp_path, inputs, better), 0) as stage:
        assert stage.step(1, {"rows": second})["named"].num_rows == 3
        stage.finalize(1)
        nothing = pa.table({"k": pa.array([None], pa.int64()), "value": ["d"]})
        with pytest.raises(ps.DataError, match="the key column 'k' is NULL in a row of the view 'named'"):
            stage.step(2, {"rows": nothing})


def test_rows_and_epochs_that_do_not_fit_are_refused(session: ps.Session, tmp_path: Path) -> None:
    views = [StageView("all", "SELECT k FROM rows")]
    inputs = [StageInput("rows", "k BIGINT, _op STRING", operations=True)]

    def rows(operation: str | None) -> Frames:
        return {"rows": pa.table({"k": [1, 2], "_op": pa.array(["i", operation])})}

    with _opened(ArrowStage(session, tmp_path, inputs, views)) as stage:
        for operation, message in (("d", "a delete came"), ("u", "an update came"), ("x", "_op is 'x'"), (None, "_op is None")):  # fmt: skip
            with pytest.raises(ps.DataError, match=message) as refused:
                stage.step(0, rows(operation))
            assert refused.value.code == "VIEW_OPERATION"
        with pytest.raises(ps.ConfigError, match="no input 'row'"):
            stage.step(0, {"row": pa.table({"k": [1]})})
        assert stage.step(0, rows("i"))["all"].num_rows == 2
        stage.finalize(0)
        with pytest.raises(ps.StateError, match="epoch 2 comes behind epoch 0"):
            stage.step(2, {})
        stage.step(1, {})
    for committed, code in ((2, "VIEW_BEHIND"), (-1, "VIEW_AHEAD")):
        with pytest.raises(ps.StateError) as behind:
            ArrowStage(session, tmp_path, inputs, views).open(committed=committed)
        assert behind.value.code == code
    # Nothing of a refused start stays open.
    ArrowStage(session, tmp_path, inputs, views).open(committed=1)


# Frames in and out


def test_changes_of_a_view_are_the_input_of_the_next_stage(session: ps.Session, tmp_path: Path) -> None:
    spark = session.spark
    first = ViewStage(
        session,
        tmp_path / "first",
        [StageInput("orders", "id BIGINT, k STRING, n INT", ("id",))],
        [
            StageView("sums", "SELECT k, sum(n) AS n FROM orders GROUP BY k", ("k",)),
            StageView("rows", "SELECT k FROM orders"),
        ],
    )
    second = ViewStage(
        session,
        tmp_path / "second",
        [
            StageInput("sums", first.schema("sums"), ("k",), operations=True),
            StageInput("rows", first.schema("rows"), weights=True),
        ],
        [
            StageView(
                "both",
                "SELECT k, s.n, count(*) AS rows FROM sums s JOIN rows USING (k) GROUP BY k, s.n",
                ("k",),
            )
        ],
    )
    schema = "id BIGINT, k STRING, n INT"
    first.open(committed=-1)
    second.open(committed=-1)
    sink = Sink(StageView("both", "", ("k",)))
    epochs = [[(1, "a", 1), (2, "a", 2), (3, "b", 3)], [], [(3, "a", 4), (4, "c", 0)]]
    for epoch, rows in enumerate(epochs):
        changes = second.step(epoch, first.step(epoch, {"orders": spark.createDataFrame(rows, schema)}))
        assert changes["both"].schema == second.schema("both")
        sink.store(changes["both"].toArrow())
        second.finalize(epoch)
        first.finalize(epoch)
    assert sorted(sink.rows.values(), key=str) == [
        {"k": "a", "n": 7, "rows": 3},
        {"k": "c", "n": 0, "rows": 1},
    ]
    first.close()
    second.close()


TYPES = """SELECT id, id = 1 AS bool, CAST(id AS TINYINT) AS i8, CAST(id AS SMALLINT) AS i16, CAST(id AS INT) AS i32,
  CAST(id / 3 AS FLOAT) AS f32, id / 3D AS f64, CAST(id AS DECIMAL(38,10)) AS dec, CAST(1.5 AS DECIMAL(4,2)) AS small,
  concat('é', id) AS text, CAST(concat('Ab', id) AS STRING COLLATE UTF8_LCASE) AS folded, CAST('x' AS BINARY) AS bytes,
  DATE '2024-02-29' + CAST(id AS INT) AS day, TIMESTAMP '2024-02-29 12:00:00.123456Z' AS at, TIMESTAMP_NTZ '2024-02-29 12:00:00.123456' AS local,
  INTERVAL '1-2' YEAR TO MONTH AS months, INTERVAL '1 02:03:04.5' DAY TO SECOND AS span, make_interval(1, 2, 3) AS mixed,
  array(id, NULL) AS list, map('a', id) AS dict, named_struct('a', id, 'b', array('x', NULL)) AS nested,
  array(named_struct('m', map(id, array(1.25)))) AS deep, parse_json('{"a": [1, null]}') AS json,
  IF(id = 1, NULL, 'there') AS gap, TIME '12:34:56.123456' AS clock FROM range(1, 3)"""


def _kind(field: Any) -> tuple[str, str]:
    return field.name, field.dataType.simpleString()


def test_every_type_comes_out_as_it_went_in(session: ps.Session, tmp_path: Path) -> None:
    with settings(session.spark, {"spark.sql.timeType.enabled": "true"}):
        _require_types(session, tmp_path)


def _require_types(session: ps.Session, tmp_path: Path) -> None:
    frame = session.sql(TYPES)
    inputs = [StageInput("typed", frame.schema, ("id",)), StageInput("typed__log", frame.schema, log=True)]
    views = [
        StageView("same", "SELECT * FROM typed", ("id",)),
        StageView("counted", "SELECT * EXCEPT (_arrival) FROM typed__log"),
    ]
    stage = ViewStage(session, tmp_path, inputs, views)
    stage.open(committed=-1)
    expected = sorted(map(str, to_arrow(frame).to_pylist()))
    for epoch, operation in enumerate("iu"):
        changes = stage.step(epoch, {"typed": frame, "typed__log": frame})
        for name, marker in (("same", "_op"), ("counted", "_weight")):
            out = changes[name]
            kinds = [_kind(field) for field in out.schema.fields if field.name != marker]
            assert kinds == [_kind(field) for field in frame.schema.fields]
            assert out.schema == stage.schema(name)
        if operation == "u":
            assert to_arrow(changes["same"]).num_rows == 0
        else:
            assert sorted(map(str, to_arrow(changes["same"].drop("_op")).to_pylist())) == expected
        assert sorted(map(str, to_arrow(changes["counted"].drop("_weight")).to_pylist())) == expected
    stage.close()


def test_now_is_the_time_of_the_tick_also_when_the_epoch_comes_again(
    session: ps.Session, tmp_path: Path
) -> None:
    moments = iter(range(10**15, 10**15 + 100 * 10**6, 10**6))
    inputs = [StageInput("rows", "k BIGINT", ("k",))]
    views = [StageView("seen", "SELECT k, now() AS at FROM rows", ("k",))]

    def stage() -> ArrowStage:
        return ArrowStage(session, tmp_path, inputs, views, clock=lambda: next(moments))

    with _opened(stage()) as first:
        changes = first.step(0, {"rows": pa.table({"k": [1]})})
    with _opened(stage()) as second:
        assert _same(second.step(0, {}), changes)
        second.finalize(0)
        later = second.step(1, {})["seen"].to_pylist()
    assert later[0]["at"] > changes["seen"].to_pylist()[0]["at"]
    assert later[0]["_op"] == "u"


def test_views_in_shards_give_the_same(changed: Changed, tmp_path: Path) -> None:
    answers = []
    for shards in (None, 2):
        stage = changed.stage(tmp_path / str(shards), BEFORE, OLD)
        stage._shards = shards
        with _opened(stage):
            answers.append([stage.step(epoch, changed.frames(epoch, BEFORE)) for epoch in range(2)])
    # What one process has stored goes on in shards.
    stage = changed.stage(tmp_path / "None", BEFORE, OLD)
    stage._shards = 2
    with _opened(stage, 0):
        assert _same(stage.step(1, {}), answers[0][1])
    for one, other in zip(*answers, strict=True):
        assert _same(one, other)


def test_inputs_that_keep_what_views_use(session: ps.Session, tmp_path: Path) -> None:
    schema = "id BIGINT, k STRING, seq BIGINT, note STRING, _op STRING"
    log = CdcNode.model_validate(
        {"from": "shop.rows", "primary_key": "id", "sequence_by": "seq", "exclude": "note"}
    )
    [read] = log.reads({"shop.rows": "shop.rows"})
    inputs = [
        StageInput("shop.rows", schema, ("id",), operations=True, retain="used"),
        StageInput(read.relation, schema, operations=True, log=True),
    ]
    columns = {read.relation: [field.name for field in inputs[1].fields]}
    views = [
        StageView("counts", "SELECT k, count(*) AS n FROM shop.rows GROUP BY k", ("k",)),
        StageView("latest", log.definition(columns), log.keys),
    ]
    first = [
        {"id": 1, "k": "a", "seq": 5, "note": "x", "_op": "i"},
        {"id": 2, "k": "a", "seq": 1, "note": "y", "_op": "i"},
        {"id": 9, "k": None, "seq": 1, "note": None, "_op": "d"},
    ]
    second = [{"id": 1, "k": "b", "seq": 3, "_op": "u"}, {"id": 2, "seq": 7, "_op": "d"}]
    arrow = to_arrow_schema(schema)
    with _opened(ArrowStage(session, tmp_path, inputs, views)) as stage:
        for epoch, rows in enumerate((first, second)):
            frame = pa.Table.from_pylist(rows, arrow)
            changes = stage.step(epoch, {"shop.rows": frame, read.relation: frame})
            stage.finalize(epoch)
        # The change of row 1 is older than what is there, and that of row 2 is not.
        assert changes["latest"].to_pylist() == [{"id": 2, "k": "a", "seq": 1, "_op": "d"}]
        assert sorted(map(_text, changes["counts"].to_pylist())) == sorted(
            map(_text, [{"k": "a", "n": 2, "_op": "d"}, {"k": "b", "n": 1, "_op": "i"}])
        )
        assert stage.metrics()["penstock_flow_ticks_total"] == 2
    assert stage.metrics() == {}


# Secrets in queries


WORD = "t0p-s3cret's"


def _stage_with(session: ps.Session, folder: Path, word: str, least: str = "4711") -> ArrowStage:
    text = word.replace("'", "\\'")
    query = f"SELECT k, concat(max(v), '{text}') AS word, '{text}' FROM rows WHERE n > {least} GROUP BY k"
    inputs = [StageInput("rows", "k BIGINT, v STRING, n INT", ("k",))]
    return ArrowStage(session, folder, inputs, [StageView("words", query, ("k",))], secrets=(word, least))


def _contains(folder: Path, *words: str) -> list[str]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [str(file) for file in files if any(word.encode() in file.read_bytes() for word in words)]


def _epoch(stage: ArrowStage, epoch: int, *keys: int) -> list[Row]:
    rows = [{"k": key, "v": "a", "n": 10_000} for key in keys]
    table = pa.Table.from_pylist(rows, pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int32())]))
    changes: list[Row] = stage.step(epoch, {"rows": table})["words"].to_pylist()
    return changes


def test_secrets_of_queries_are_not_in_the_files_and_views_go_on(session: ps.Session, tmp_path: Path) -> None:
    stage = _stage_with(session, tmp_path, WORD)
    stage.open(committed=-1)
    # No row passes, for what views compute is in the state.
    assert stage.step(0, {})["words"].num_rows == 0
    assert _contains(tmp_path, "FROM rows WHERE n > ${sealed text ")
    assert _contains(tmp_path, "s3cret", "4711") == []
    stage.finalize(0)
    assert [row["word"] for row in _epoch(stage, 1, 1)] == [f"a{WORD}"]
    stage.close()
    again = _stage_with(session, tmp_path, WORD)
    assert again.plan().is_unchanged
    assert again.open(committed=1).is_unchanged
    assert [row["word"] for row in _epoch(again, 2, 2)] == [f"a{WORD}"]
    again.finalize(2)
    again.close()
    assert _contains(tmp_path / "flow" / "log", "SELECT") == []
    plans = [*tmp_path.glob("flow/checkpoints/*.json"), tmp_path / "stage.json"]
    assert len(plans) > 1
    assert not any("s3cret" in file.read_text() or "4711" in file.read_text() for file in plans)


def test_a_view_is_made_again_when_its_secret_is_another_one(session: ps.Session, tmp_path: Path) -> None:
    stage = _stage_with(session, tmp_path, "first-word")
    stage.open(committed=-1)
    _epoch(stage, 0, 1)
    stage.finalize(0)
    stage.close()
    for epoch, word in ((1, "second-word"), (2, "third-word")):
        changed = _stage_with(session, tmp_path, word, "5000")
        [plan] = changed.plan().views
        assert (plan.change, plan.reason) == ("rebuilt", "its query has changed")
        changed.open(committed=epoch - 1)
        words = {row["k"]: row["word"] for row in _epoch(changed, epoch, epoch + 1)}
        assert words == dict.fromkeys(range(1, epoch + 2), f"a{word}")
        changed.finalize(epoch)
        changed.close()


def test_epochs_that_were_not_final_need_the_secret_of_then(session: ps.Session, tmp_path: Path) -> None:
    stage = _stage_with(session, tmp_path, "first-word")
    stage.open(committed=-1)
    _epoch(stage, 0, 1)
    stage.close()
    with pytest.raises(ps.StateError) as refused:
        _stage_with(session, tmp_path, "second-word").open(committed=-1)
    assert refused.value.code == "VIEW_VARIABLE"
    again = _stage_with(session, tmp_path, "first-word")
    again.open(committed=-1)
    assert [row["word"] for row in _epoch(again, 0, 1)] == ["afirst-word"]
    again.close()
