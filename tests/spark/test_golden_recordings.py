"""The recorded answers to the golden cases are complete, and they are still Spark's."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from golden.case import Area, Case, area_names, load
from golden.record import differences
from golden.spark_answer import ask, recorded

AREAS = {name: load(name) for name in area_names()}
CASES = [case for area in AREAS.values() for case in area.cases]
# A sample, the same in every run; `make golden` asks for all of them.
SAMPLE = CASES[7::45]


def test_enough_cases_are_recorded() -> None:
    assert len(CASES) >= 400
    for name, area in AREAS.items():
        assert set(recorded(name)) == {case.name for case in area.cases}, name


@pytest.mark.parametrize("case", SAMPLE, ids=[case.id for case in SAMPLE])
def test_recordings_are_still_the_answer_of_spark(spark: SparkSession, case: Case) -> None:
    area = AREAS[case.area]
    alone = Area(area.name, area.tables, area.conf, (case,))
    assert differences(alone, recorded(case.area), {case.name: ask(spark, area, case)}) == []
