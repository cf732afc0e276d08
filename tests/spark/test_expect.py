"""Expectations over rows: counted, dropped, put in quarantine, refused."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import DataError, PenstockError
from penstock.sinks.epoch_rows import EpochRows
from penstock.transforms.expect import ExpectTransform
from penstock.transforms.failure import Split
from transform_context import context


def _expect(**expectations: str) -> ExpectTransform:
    """Expectations, each as `action: condition`."""
    pairs = {name: text.split(": ", 1) for name, text in expectations.items()}
    return ExpectTransform(
        {"expectations": {name: {"action": a, "condition": c} for name, (a, c) in pairs.items()}}
    )


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT id, IF(id = 3, NULL, id * 10) AS amount FROM range(6)")


@pytest.mark.smoke
def test_warnings_and_drops_are_counted_and_null_is_not_met(spark: SparkSession, rows: DataFrame) -> None:
    transform = _expect(small="warn: amount < 45", known="drop: amount IS NOT NULL", odd="warn: true")
    out = transform.apply(rows, context(spark))
    assert sorted(row.id for row in out.where("id < 5").collect()) == [0, 1, 2, 4]
    assert transform.counts() == {"small": 2, "known": 1, "odd": 0}
    assert transform.counts() == {}


def test_counts_are_right_when_a_sink_runs_jobs_of_its_own(spark: SparkSession, rows: DataFrame) -> None:
    transform = _expect(small="warn: amount < 45")
    with EpochRows(transform.apply(rows, context(spark))) as epoch:
        assert sum(batch.num_rows for batch in epoch.batches()) == 6
    assert transform.counts() == {"small": 2}


def test_counts_without_a_reader_are_counted(spark: SparkSession, rows: DataFrame) -> None:
    transform = _expect(small="warn: amount < 45")
    transform.apply(rows, context(spark))
    assert transform.counts() == {"small": 2}


def test_quarantine_says_why_and_what(spark: SparkSession, rows: DataFrame) -> None:
    transform = _expect(
        small="quarantine: amount < 45", even="quarantine: id % 2 = 0", known="warn: amount > 0"
    )
    split = Split(transform.apply(rows, context(spark)))
    assert split.good.columns == ["id", "amount"]
    assert sorted(tuple(row) for row in split.good.collect()) == [(0, 0), (2, 20), (4, 40)]
    assert split.count() == 3
    failed = split.failed()
    assert failed is not None
    reasons = {json.loads(row["_input"])["id"]: row["_error"] for row in failed.collect()}
    assert reasons == {
        1: "fails 'even'",
        3: "fails 'small'; fails 'even'",
        5: "fails 'small'; fails 'even'",
    }
    assert transform.counts() == {"small": 2, "even": 3, "known": 2}
    split.release()


def test_a_failure_names_the_expectation_the_count_and_a_row(spark: SparkSession, rows: DataFrame) -> None:
    transform = _expect(small="fail: amount < 35", known="drop: amount IS NOT NULL")
    out = transform.apply(rows, context(spark, name="checked"))
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as raised:
        out.where("id <> 4").select("amount").write.format("noop").mode("overwrite").save()
    error = transform.failure(raised.value)
    assert isinstance(error, DataError)
    assert error.code == "EXPECTATION_FAILED"
    assert error.message.startswith(
        "3 rows of the epoch fail the expectation 'small' of checked, amount < 35; one of them is {"
    )
    assert transform.failure(ValueError("x")) is None


def test_filters_that_come_later_do_not_hide_a_row_that_fails(spark: SparkSession, rows: DataFrame) -> None:
    transform = _expect(small="fail: amount < 35")
    out = transform.apply(rows, context(spark))
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        out.where("amount < 10").collect()


CHANGES = "SELECT * FROM VALUES (1, NULL, 'd'), (2, -1, 'u'), (3, 1, 'i'), (4, 1, 'u'), (5, -1, 'i') AS t(id, amount, _op)"


def test_deletes_pass_and_an_update_that_is_dropped_becomes_one(spark: SparkSession) -> None:
    transform = _expect(known="drop: amount > 0", odd="drop: id <> 7")
    rows = transform.apply(spark.sql(CHANGES), context(spark)).select("id", "_op").collect()
    assert [tuple(row) for row in rows] == [(1, "d"), (2, "d"), (3, "i"), (4, "u")]
    assert transform.counts() == {"known": 2, "odd": 0}


@pytest.mark.parametrize("dropped", ["id <> 7", "id <> 2"])
def test_an_update_that_is_put_in_quarantine_deletes_the_row_that_it_was(
    spark: SparkSession, dropped: str
) -> None:
    transform = _expect(known="quarantine: amount > 0", other=f"drop: {dropped}")
    split = Split(transform.apply(spark.sql(CHANGES), context(spark, keys=("id",))))
    good = [tuple(row) for row in split.good.collect()]
    assert good == [(1, None, "d"), (2, None if "7" in dropped else -1, "d"), (3, 1, "i"), (4, 1, "u")]
    failed = split.failed()
    assert failed is not None
    inputs = [json.loads(row["_input"]) for row in failed.collect()]
    assert [(one["id"], one["_op"]) for one in inputs] == ([(2, "u")] if "7" in dropped else []) + [(5, "i")]
    split.release()


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("amont > 0", "SQL_UNKNOWN_COLUMN"),
        ("amount >", "SQL_SYNTAX"),
        ("amount + 1", "EXPECTATION_TYPE"),
        ("sum(amount) > 1", None),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused_by_name(
    spark: SparkSession, rows: DataFrame, condition: str, code: str | None
) -> None:
    with pytest.raises(PenstockError) as raised:
        _expect(bad=f"warn: {condition}").apply(rows.limit(0), context(spark))
    assert "expectation 'bad' of n" in str(raised.value)
    assert code in (None, raised.value.code)


def test_names_with_dots_and_an_empty_epoch(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id AS `a.b` FROM range(0)")
    transform = _expect(**{"with space": "quarantine: `a.b` > 0"})
    split = Split(transform.apply(rows, context(spark)))
    assert split.good.columns == ["a.b"]
    assert split.good.collect() == []
    assert split.failed() is None
