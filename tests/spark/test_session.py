"""The embedded session: one Spark per process, and what its sessions share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.backend import open_backend
from penstock.spark.micro_batch.plan import readings


@pytest.mark.smoke
def test_the_first_query_answers(session: ps.Session) -> None:
    assert session.sql("SELECT 1 AS one").toArrow().to_pylist() == [{"one": 1}]


def test_plain_pyspark_code_gets_our_session(session: ps.Session, spark: SparkSession) -> None:
    assert SparkSession.builder.getOrCreate() is session.spark is spark
    assert spark.range(10).agg(F.sum("id").alias("total")).collect()[0].total == 45


def test_python_functions_run_in_this_interpreter(spark: SparkSession) -> None:
    import sys

    executable = F.udf(lambda _: __import__("sys").executable, "string")
    assert spark.range(1).select(executable("id")).collect()[0][0] == sys.executable


def test_numpy_values_go_into_queries(spark: SparkSession) -> None:
    row = spark.range(1).select(
        F.lit(np.int32(7)).alias("n"),
        F.lit(np.float64(0.5)).alias("x"),
        F.lit(np.array([1, 2])).alias("many"),
    )
    assert row.collect()[0].asDict() == {"n": 7, "x": 0.5, "many": [1, 2]}


def test_sessions_with_other_settings_do_not_see_each_others(
    session: ps.Session, spark: SparkSession, tmp_path: Path
) -> None:
    partitions = "spark.sql.shuffle.partitions"
    before = spark.conf.get(partitions)
    catalog = {"type": "hadoop", "warehouse": str(tmp_path)}
    with (
        ps.Session.embedded(conf={partitions: 7}, catalogs={"lake_of_second": catalog}) as second,
        ps.Session.embedded(conf={partitions: 7}, catalogs={"lake_of_second": catalog}) as same,
        ps.Session.embedded() as plain,
    ):
        assert same.spark is second.spark
        assert plain.spark is spark
        assert second.spark is not spark
        assert second.spark.sparkContext is spark.sparkContext
        assert second.spark.conf.get(partitions) == "7"
        assert spark.conf.get(partitions) == before
        assert spark.conf.get("spark.sql.catalog.lake_of_second", None) is None
        second.register_table("of_second", [{"id": 1}])
        assert second.sql("SELECT count(*) AS n FROM of_second").toArrow().to_pylist() == [{"n": 1}]
        assert not spark.catalog.tableExists("of_second")
        assert second.sql("SELECT count(*) FROM range(9) GROUP BY id % 3").toArrow().num_rows == 3
    assert spark.range(2).count() == 2


def test_a_stream_runs_in_the_session_that_reads_it(session: ps.Session) -> None:
    with ps.Session.embedded(conf={"spark.sql.session.timeZone": "Asia/Tokyo"}) as second:
        query = (
            second.stream([{"id": 1}, {"id": 2}])
            .sql("SELECT current_timezone() AS zone, count(*) AS n FROM stream GROUP BY 1")
            .write_stream.trigger(ps.Trigger.available_now())
            .output_mode("complete")
            .format("memory")
            .start()
        )
        query.await_termination()
        assert query.memory_batches()[0].to_pylist() == [{"zone": "Asia/Tokyo", "n": 2}]
    assert session.spark.conf.get("spark.sql.session.timeZone") != "Asia/Tokyo"


def test_the_settings_of_a_session_reach_its_sources_sinks_and_state_and_no_others(
    session: ps.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PENSTOCK_STATE")
    monkeypatch.setenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS", "of-second:9092")
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", "postgresql://me:x@127.0.0.1:1/of_second")
    second = ps.Session.embedded()
    monkeypatch.undo()

    def to_postgres(owner: ps.Session) -> ps.StreamingQuery:
        writer = owner.stream([{"id": 1}]).write_stream.trigger(ps.Trigger.once()).format("postgres")
        return writer.options(table="out", retry_for=1).start()

    with second:
        [kafka] = readings(second.read_stream.kafka(topic="t").df)
        assert kafka.options["kafka.bootstrap.servers"] == "of-second:9092"
        with pytest.raises(ps.ConfigError) as servers:
            session.read_stream.kafka(topic="t")
        assert servers.value.code == "KAFKA_SERVERS"
        with pytest.raises(ps.ConnectorError, match=r"127\.0\.0\.1:1/of_second"):
            to_postgres(second)
        with pytest.raises(ps.ConfigError) as url:
            to_postgres(session)
        assert url.value.code == "STREAM_OPTION_MISSING"
        named = second.stream([{"id": 1}]).write_stream.trigger(ps.Trigger.once()).format("memory")
        named.start("of-second").await_termination()
    with open_backend(f"sqlite:///{tmp_path}/home/state.db", create=False) as state:
        assert [job.name for job in state.jobs.list()] == ["of-second"]
    with open_backend(session.settings) as state:
        assert state.jobs.find("of-second") is None


def test_a_spark_session_that_nobody_uses_is_forgotten(session: ps.Session) -> None:
    with ps.Session.embedded(conf={"spark.sql.shuffle.partitions": 11}) as first:
        with ps.Session.embedded(conf={"spark.sql.shuffle.partitions": 11}) as second:
            assert second.spark is first.spark
        with ps.Session.embedded(conf={"spark.sql.shuffle.partitions": 11}) as third:
            assert third.spark is first.spark
        used = first.spark
    with ps.Session.embedded(conf={"spark.sql.shuffle.partitions": 11}) as later:
        assert later.spark is not used
        assert later.sql("SELECT 1 AS one").toArrow().to_pylist() == [{"one": 1}]


def test_the_flow_of_sql_has_a_memory_budget(tmp_path: Path) -> None:
    with ps.Session.embedded(flow=tmp_path / "flow", flow_memory="1 MB") as session:
        session.sql("CREATE SOURCE budgeted (id BIGINT)")
        session.sql("INSERT INTO budgeted SELECT id FROM range(200000)")
        metrics = session.flow.metrics()
    assert metrics["penstock_flow_memory_budget_bytes"] == 1_000_000
    assert metrics["penstock_flow_state_bytes"] > 1_000_000 >= metrics["penstock_flow_state_resident_bytes"]
