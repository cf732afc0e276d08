"""Plugins as sinks: found by name, module and class; their life; options, state, side outputs, tasks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock import config
from penstock.errors import ConfigError, ConnectorError, PenstockError
from penstock.sinks.base import Epoch, Guarantee, Target
from penstock.sinks.plugin import PluginSink
from penstock.streaming.writer import StreamWriter

MODULE = '''
import json, os
import penstock as ps
from penstock import config

class Lines(ps.SinkPlugin):
    """Appends JSON lines and tells its life."""

    class Options(ps.Options):
        path: str
        limit: int = 1000

    parallel = False

    def initialize(self, context):
        self.context = context
        self.waiting = []
        self.tell("initialize", context.name, context.mode, context.schema.names, context.state.get("epoch"))

    def process_batch(self, batch):
        assert self.context.epoch is not None
        for row in batch.to_pylist():
            if row["id"] < 0:
                self.context.side_output("negative").write(batch.filter([r["id"] < 0 for r in batch.to_pylist()]))
            if row["id"] >= self.options.limit:
                raise ValueError(f"{row['id']} is above the limit")
            self.waiting.append(row["id"])

    def process_checkpoint_marker(self, epoch):
        self.tell("marker", epoch, sorted(self.waiting))
        self.waiting = []
        self.context.state.put("epoch", epoch)

    def process_checkpoint_finalizer(self, epoch):
        self.tell("finalizer", epoch)

    def terminate(self):
        self.tell("terminate", len(self.waiting))

    def tell(self, *what):
        with open(self.options.path, "a") as file:
            file.write(json.dumps(what) + "\\n")


class Parallel(Lines):
    parallel = True
    exactly_once = True

    def initialize(self, context):
        self.context = context
        self.waiting = []

    def process_checkpoint_marker(self, epoch):
        partition = self.context.partition
        self.tell("task" if partition is not None else "driver", epoch, sorted(self.waiting), os.getpid())

    def terminate(self):
        pass


class Greedy(Parallel):
    def process_batch(self, batch):
        self.context.state.put("a", 1)
'''


@pytest.fixture(scope="module")
def module(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of an installed package that offers the sink `lines`; tasks have it too."""
    folder = tmp_path_factory.mktemp("site")
    name = f"lines_{uuid.uuid4().hex[:8]}"
    (folder / f"{name}.py").write_text(MODULE)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[penstock.sinks]\nlines = {name}:Lines\nodd = {name}:json\n")
    spark.sparkContext.addPyFile(str(folder / f"{name}.py"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield name


def _story(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _writer(session: ps.Session, source: Path, checkpoint: Path) -> StreamWriter:
    return (
        session.read_stream.json(source, schema="id BIGINT")
        .write_stream.trigger(ps.Trigger.available_now())
        .option("checkpoint.location", checkpoint)
    )


def _rows(source: Path, *ids: int) -> None:
    source.mkdir(exist_ok=True)
    text = "".join(json.dumps({"id": number}) + "\n" for number in ids)
    (source / f"{uuid.uuid4().hex}.json").write_text(text)


@pytest.mark.smoke
def test_the_life_of_a_plugin(session: ps.Session, module: str, tmp_path: Path) -> None:
    source, calls, side = tmp_path / "in", tmp_path / "calls", tmp_path / "side"
    _rows(source, 1, 2, -3)

    def run() -> ps.StreamingQuery:
        writer = _writer(session, source, tmp_path / "ckpt").format("lines").option("path", calls)
        writer.option("side_output.negative", {"format": "json", "path": str(side)})
        query = writer.start("plugin-life")
        query.await_termination()
        return query

    query = run()
    first = [
        ["initialize", "plugin-life", "append", ["id"], None],
        ["marker", 0, [-3, 1, 2]],
        ["finalizer", 0],
        ["terminate", 0],
    ]
    assert _story(calls) == first
    assert "sink        plugin lines" in query.explain()
    assert "guarantee   at least once" in query.explain()
    assert query.last_progress is not None
    assert query.last_progress.output_rows == 3
    _rows(source, 4)
    run()
    again = ["initialize", "plugin-life", "append", ["id"], 0]
    assert _story(calls)[4:] == [
        again,
        ["finalizer", 0],
        ["marker", 1, [4]],
        ["finalizer", 1],
        ["terminate", 0],
    ]
    assert [row.id for row in session.read_json(str(side)).collect()] == [-3]


def test_a_plugin_that_raises_fails_the_query_and_the_epoch_comes_again(
    session: ps.Session, module: str, tmp_path: Path
) -> None:
    source, calls = tmp_path / "in", tmp_path / "calls"
    _rows(source, 5)

    def run(limit: int) -> None:
        writer = _writer(session, source, tmp_path / "ckpt").format("python")
        writer.options(module=f"{module}:Lines", path=calls, limit=limit).start().await_termination()

    with pytest.raises(PenstockError, match="5 is above the limit"):
        run(5)
    assert [each[0] for each in _story(calls)] == ["initialize", "terminate"]
    run(6)
    assert _story(calls)[3:] == [["marker", 0, [5]], ["finalizer", 0], ["terminate", 0]]


def test_a_plugin_in_tasks(session: ps.Session, spark: SparkSession, module: str, tmp_path: Path) -> None:
    import importlib
    import os

    kinds = importlib.import_module(module)
    calls = tmp_path / "calls"
    query = (
        session.stream(spark.range(0, 20, numPartitions=2))
        .write_stream.trigger(ps.Trigger.once())
        .format(kinds.Parallel)
        .option("path", calls)
        .start()
    )
    query.await_termination()
    story = _story(calls)
    tasks = [each for each in story if each[0] == "task"]
    assert sorted(number for each in tasks for number in each[2]) == list(range(20))
    assert len(tasks) == 2
    assert os.getpid() not in {each[3] for each in tasks}
    assert [each for each in story if each[0] != "task"] == [["driver", 0, [], os.getpid()], ["finalizer", 0]]
    assert "exactly once" in query.explain()
    assert query.last_progress is not None
    assert query.last_progress.output_rows == 20
    greedy = (
        session.stream(spark.range(2))
        .write_stream.trigger(ps.Trigger.once())
        .format(kinds.Greedy)
        .option("path", calls)
        .start()
    )
    with pytest.raises(PenstockError, match=r"context\.state is on the driver only") as refused:
        greedy.await_termination()
    assert refused.value.code == "PLUGIN_IN_TASK"


def test_state_belongs_to_one_checkpoint(session: ps.Session, module: str, tmp_path: Path) -> None:
    source, calls = tmp_path / "in", tmp_path / "calls"
    _rows(source, 1)
    for checkpoint in ("a", "b"):
        writer = _writer(session, source, tmp_path / checkpoint).format("lines").option("path", calls)
        writer.start("plugin-state").await_termination()
    # Another checkpoint begins with epoch 0 again: what was remembered of the old one is no use.
    assert [each[4] for each in _story(calls) if each[0] == "initialize"] == [None, None]


class Away(ps.SinkPlugin):
    """Fails once, with an error that passes."""

    failed = False

    def process_batch(self, batch: Any) -> None:
        if not Away.failed:
            Away.failed = True
            raise ConnectorError("the server is away", retryable=True)


def test_an_error_that_passes_is_waited_for(session: ps.Session, tmp_path: Path) -> None:
    from waiting import wait_for

    source = tmp_path / "in"
    _rows(source, 1)
    writer = _writer(session, source, tmp_path / "ckpt").trigger(ps.Trigger.processing_time(0)).format(Away)
    with writer.start() as query:
        wait_for(lambda: query.last_progress is not None and query.last_progress.output_rows)
    assert Away.failed
    assert query.exception() is None


def test_options_are_checked_with_everything_that_is_wrong(
    session: ps.Session, module: str, tmp_path: Path
) -> None:
    writer = _writer(session, tmp_path, tmp_path / "ckpt")
    with pytest.raises(
        ConfigError, match=r"the sink lines: no option 'pth'; the option 'path' is missing"
    ) as wrong:
        writer.format("lines").option("pth", "x").start()
    assert wrong.value.code == "STREAM_OPTIONS"
    assert "did you mean 'path'?" in str(wrong.value.hint)
    writer = _writer(session, tmp_path, tmp_path / "ckpt").format("lines").option("path", "x")
    with pytest.raises(ConfigError, match="limit must be a whole number, got 'many'"):
        writer.option("limit", "many").start()
    with pytest.raises(ConfigError, match="unknown sink 'line'") as unknown:
        writer.format("line")
    assert "did you mean 'lines'" in str(unknown.value.hint)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "needs the option 'module'"),
        ({"module": "somewhere"}, "module must be \"my_module:MySink\", got 'somewhere'"),
        ({"module": "no_such_module:X"}, "cannot import 'no_such_module'"),
        ({"module": "json:Lines"}, "the module 'json' has no 'Lines'"),
        ({"module": "json:JSONDecoder"}, "'JSONDecoder' is no sink"),
    ],
)
def test_modules_that_cannot_work(
    session: ps.Session, tmp_path: Path, options: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        _writer(session, tmp_path, tmp_path / "ckpt").format("python").options(**options).start()


def test_things_that_are_no_plugins(session: ps.Session, module: str, tmp_path: Path) -> None:
    writer = _writer(session, tmp_path, tmp_path / "ckpt")
    with pytest.raises(ConfigError, match="'odd' is no sink"):
        writer.format("odd").start()
    with pytest.raises(ConfigError, match=r"a name or a subclass of penstock\.SinkPlugin"):
        writer.format(dict)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a dictionary with a format"):
        writer.format("lines").options(path="x").option("side_output.a", "x").start()


class Sided(ps.SinkPlugin):
    modes = ("append",)

    def initialize(self, context: Any) -> None:
        self.context = context

    def process_batch(self, batch: Any) -> None:
        self.context.side_output("late").write(batch)


def test_a_side_output_without_a_destination(spark: SparkSession) -> None:
    sink = PluginSink(Sided, {}, name="sided")
    assert sink.guarantee is Guarantee.AT_LEAST_ONCE
    assert sink.modes == {"append"}
    sink.open(Target(spark, "q", "q", "append", spark.range(1).schema, settings=config.load()))
    with pytest.raises(ConfigError, match="side output 'late'"):
        sink.write(Epoch(0, spark.range(1)))
    sink.close()
