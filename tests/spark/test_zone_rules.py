"""The rules of single zones and the table of all of them, as the JVM gives them, say the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.errors import StateError
from penstock.functions.scalars import zone_ids, zones
from penstock.spark.catalyst import bridge
from twin.zones import no_zones_known


@pytest.fixture(autouse=True)
def _no_zones() -> Iterator[None]:
    with no_zones_known():
        yield


def test_views_with_rules_and_views_with_the_table_may_be_in_one_process(spark: SparkSession) -> None:
    front = bridge.front(spark)
    packed = zone_ids.pack(front.zoneTable())
    zone_ids.learn((), packed)
    names = [name for name in zone_ids.regions() if zones.fixed_offset(name) is None]
    assert len(names) > 400
    for name in names:
        zone_ids.learn([(name, [int(number) for number in front.zoneRules(name)])], packed)


def test_a_query_is_refused_beside_a_saved_view_of_another_java(session: ps.Session) -> None:
    zone_ids.learn([("Europe/Berlin", (3600, 323830800, 3600))], "")
    flow = ps.IncrementalFlow(session)
    flow.register_source("times", "t TIMESTAMP")
    with pytest.raises(StateError, match="Europe/Berlin") as refused:
        flow.register_view("local", "SELECT from_utc_timestamp(t, 'Europe/Berlin') AS l FROM times")
    assert refused.value.code == "STATE_ZONE_RULES"
    assert "local" not in flow._graph.views
