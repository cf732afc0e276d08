"""Views keep the rules of time zones that they were planned with: another view cannot change what a running one gives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import penstock as ps
from penstock.engine.registration import Prepared, saved_view
from penstock.errors import StateError
from penstock.functions.scalars import zone_ids
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column
from penstock.plan.node import Field
from twin.zones import no_zones_known

ZONE = "Test/City"
NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
CHANGE = 323_830_800  # in 1980
ONE_HOUR, TWO_HOURS = (3600, CHANGE, 3600), (3600, CHANGE, 7200)


def table(*lines: str) -> str:
    return zone_ids.pack("".join(f"{line}\n" for line in lines))


ONE_HOUR_TABLE = table(f"{ZONE} 3600;{CHANGE} 3600 ;", "TST =Test/City")


@pytest.fixture(autouse=True)
def _no_zones() -> Iterator[None]:
    with no_zones_known():
        yield


def local_times(name: str, rules: tuple[int, ...] = (), packed: str = "") -> plan.View:
    """A view of the local time of each row, as its plan was saved."""
    local = Call("Cast", (Column(0, "timestamp"),), "timestamp_ntz", options=(("timeZoneId", ZONE),))
    rows = plan.Scan((Field("t", "timestamp"),), "times", (0,))
    root = plan.Project((Field("local", "timestamp_ntz"),), rows, (local,))
    return plan.View(name, "", root, zones=((ZONE, rules),) if rules else (), zone_table=packed)


def no_session(*_: Any) -> Any:
    raise AssertionError("nothing is asked of Spark")


def add(flow: ps.IncrementalFlow, view: plan.View) -> None:
    flow._install(saved_view(no_session, view, {}, ()), "reject")


def test_a_view_with_other_rules_is_refused_and_changes_no_running_one() -> None:
    flow = ps.IncrementalFlow()
    flow.register_source("times", "t TIMESTAMP")
    add(flow, local_times("one", ONE_HOUR))
    flow.feed("times", [{"t": NOON}])
    flow.step()
    with pytest.raises(StateError, match=ZONE) as refused:
        add(flow, local_times("other", TWO_HOURS))
    assert refused.value.code == "STATE_ZONE_RULES"
    assert [row["local"].hour for row in flow.snapshot("one").to_pylist()] == [13]
    flow.feed("times", ps.DeltaBatch.deletes([{"t": NOON}]))
    flow.step()
    assert flow.snapshot("one").to_pylist() == []
    add(flow, local_times("same", ONE_HOUR))


def test_a_kernel_learns_the_rules_of_the_views_that_it_is_given() -> None:
    """Whoever has planned them: the tasks of a flow in shards have seen none."""
    flow = ps.IncrementalFlow()
    flow.register_source("times", "t TIMESTAMP")
    flow._install(Prepared(local_times("view", TWO_HOURS), no_session), "reject")
    flow.feed("times", [{"t": NOON}])
    flow.step()
    assert [row["local"].hour for row in flow.snapshot("view").to_pylist()] == [14]


def test_views_of_another_flow_of_the_process_count() -> None:
    for rules, refused in ((ONE_HOUR, False), (TWO_HOURS, True)):
        flow = ps.IncrementalFlow()
        flow.register_source("times", "t TIMESTAMP")
        if refused:
            with pytest.raises(StateError):
                add(flow, local_times("view", rules))
        else:
            add(flow, local_times("view", rules))


@pytest.mark.parametrize(
    "other",
    [
        table(f"{ZONE} 3600;{CHANGE} 7200 ;", "TST =Test/City"),
        table(f"{ZONE},Test/New 3600;{CHANGE} 3600 ;", "TST =Test/City"),
        table(f"{ZONE} 3600;{CHANGE} 3600 ;"),
    ],
    ids=["other rules", "one more zone", "one less"],
)
def test_there_is_one_table_of_zones(other: str) -> None:
    zone_ids.learn((), ONE_HOUR_TABLE)
    zone_ids.learn((), ONE_HOUR_TABLE)
    with pytest.raises(StateError, match=r"Test/|TST") as refused:
        zone_ids.learn((), other)
    assert refused.value.code == "STATE_ZONE_RULES"
    assert zone_ids.resolve("Test/New") is None
    assert zone_ids.resolve("TST") == ZONE


def test_rules_and_table_agree() -> None:
    zone_ids.learn(((ZONE, ONE_HOUR),), ONE_HOUR_TABLE)
    for zone in (ZONE, "TST"):
        with pytest.raises(StateError):
            zone_ids.learn(((zone, TWO_HOURS),), "")


def test_a_table_must_agree_with_rules_that_came_before() -> None:
    zone_ids.learn(((ZONE, TWO_HOURS),), "")
    with pytest.raises(StateError):
        zone_ids.learn((), ONE_HOUR_TABLE)
    assert not zone_ids.has_zones()


def test_nothing_is_learnt_of_what_is_refused() -> None:
    zone_ids.learn(((ZONE, ONE_HOUR),), "")
    with pytest.raises(StateError):
        zone_ids.learn((("Test/Village", ONE_HOUR), (ZONE, TWO_HOURS)), "")
    zone_ids.learn((("Test/Village", TWO_HOURS),), "")
