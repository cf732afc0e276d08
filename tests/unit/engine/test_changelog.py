"""The history of a view: kept for views that are watched, bounded, counted, and never in the way of a tick."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.engine import changelog
from penstock.engine.registration import Prepared, install
from penstock.errors import StateError
from penstock.plan import node as plan
from penstock.plan.node import Field

FIELDS = (Field("n", "bigint"),)


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


@pytest.fixture
def flow() -> ps.IncrementalFlow:
    made = ps.IncrementalFlow()
    made.register_source("rows", "n BIGINT")
    for name in ("watched", "other"):
        view = plan.View(name, "", plan.Scan(FIELDS, "rows", (0,)))
        install(made._graph, Prepared(view, no_fragment), 0)
    return made


def numbers(watch: ps.Watch) -> list[int]:
    found = []
    while (delta := watch.recv(timeout=0)) is not None:
        found += [row["n"] for row in delta.to_pylist()]
    return found


def history_bytes(flow: ps.IncrementalFlow) -> float:
    return float(flow.metrics()["penstock_flow_history_bytes"])


def test_nothing_is_kept_of_a_view_that_nobody_watches(flow: ps.IncrementalFlow) -> None:
    flow.tick("rows", [{"n": number} for number in range(1_000)])
    assert history_bytes(flow) == 0
    with pytest.raises(StateError) as caught:
        flow.watch_output("watched", from_tick=1)
    assert caught.value.code == "FLOW_HISTORY"
    assert "none are kept of a view that nobody watches" in str(caught.value)
    # What is refused begins nothing.
    flow.tick("rows", [{"n": 4_000}])
    assert history_bytes(flow) == 0
    assert flow._runner.changelogs == {}
    # A watch does, for its view alone.
    flow.watch_output("watched", from_tick=3)
    flow.tick("rows", [{"n": 5_000}])
    assert numbers(flow.watch_output("watched", from_tick=3)) == [5_000]
    assert 0 < history_bytes(flow) < 100
    with pytest.raises(StateError):
        flow.watch_output("other", from_tick=3)


def test_changes_are_kept_until_the_last_watch_could_not_go_on(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelog, "MOST_CHANGES", 3)
    first, last = flow.watch_output("watched"), flow.watch_output("watched")
    flow.tick("rows", [{"n": 1}])
    first.close()
    for number in range(2, 12):
        flow.tick("rows", [{"n": number}])
    assert history_bytes(flow) > 0, "somebody watches"
    last.close()
    for number in range(12, 15):
        flow.tick("rows", [{"n": number}])
    with flow.watch_output("watched", from_tick=12) as again:
        assert numbers(again) == [12, 13, 14]
    for number in range(15, 19):
        assert history_bytes(flow) > 0
        flow.tick("rows", [{"n": number}])
    assert history_bytes(flow) == 0
    assert flow._runner.changelogs == {}
    with pytest.raises(StateError, match="none are kept of a view that nobody watches"):
        flow.watch_output("watched", from_tick=18)
    with flow.watch_output("watched", from_tick=19) as watch:
        flow.tick("rows", [{"n": 19}])
        assert numbers(watch) == [19]


def test_a_watch_that_saw_nothing_can_come_back(flow: ps.IncrementalFlow) -> None:
    flow.tick("rows", [{"n": 1}])
    flow.watch_output("watched").close()
    flow.tick("rows", [{"n": 2}])
    assert numbers(flow.watch_output("watched", from_tick=2)) == [2]


def test_a_reader_that_comes_back_gets_what_it_missed(flow: ps.IncrementalFlow) -> None:
    with flow.watch_output("watched") as watch:
        flow.tick("rows", [{"n": 1}])
        assert numbers(watch) == [1]
    flow.tick("rows", [{"n": 2}])
    flow.tick("rows", [{"n": 3}])
    assert numbers(flow.watch_output("watched", from_tick=2)) == [2, 3]
    assert numbers(flow.watch_output("watched", from_tick=0)) == [1, 2, 3]
    assert sorted(numbers(flow.watch_output("watched", snapshot=True))) == [1, 2, 3]
    assert numbers(flow.watch_output("watched", from_tick=9)) == []


@pytest.mark.parametrize(("bound", "limit"), [("MOST_CHANGES", 3), ("MOST_BYTES", 3 * 16)])
def test_old_changes_go(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch, bound: str, limit: int
) -> None:
    monkeypatch.setattr(changelog, bound, limit)
    flow.watch_output("watched")
    for number in range(1, 8):
        flow.tick("rows", [{"n": number}])
    assert history_bytes(flow) == 3 * 16
    assert numbers(flow.watch_output("watched", from_tick=5)) == [5, 6, 7]
    with pytest.raises(StateError, match="since tick 4 are gone: they are kept from tick 5 on"):
        flow.watch_output("watched", from_tick=4)


def test_a_bulk_load_is_not_kept_twice(flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "MOST_BYTES", 1_000)
    watch = flow.watch_output("watched")
    flow.tick("rows", [{"n": number} for number in range(1_000)])
    assert history_bytes(flow) == 0
    assert len(numbers(watch)) == 1_000
    with pytest.raises(StateError):
        flow.watch_output("watched", from_tick=1)


def test_a_watch_that_fails_does_not_hold_up_the_tick(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, good = flow.watch_output("watched"), flow.watch_output("watched")
    monkeypatch.setattr(broken, "publish", lambda delta: (_ for _ in ()).throw(MemoryError("full")))
    assert flow.tick("rows", [{"n": 1}]).tick == 1
    assert broken.closed
    with pytest.raises(MemoryError):
        broken.recv(timeout=0)
    assert numbers(good) == [1]
    monkeypatch.setattr(changelog, "to_batch", lambda *_: (_ for _ in ()).throw(ValueError("no")))
    assert flow.tick("rows", [{"n": 2}]).tick == 2
    assert good.closed
    with pytest.raises(ValueError, match="no"):
        good.recv(timeout=0)
    assert flow.snapshot("watched").num_rows == 2


def test_a_history_that_may_lack_a_change_is_forgotten(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = flow.watch_output("watched")
    flow.tick("rows", [{"n": 1}])

    def interrupted(log: changelog.Changelog, tick: int, change: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(changelog.Changelog, "publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            flow.tick("rows", [{"n": 2}])
    change = watch.recv(timeout=0)
    assert change is not None
    assert change.to_pylist() == [{"n": 1, "_weight": 1}]
    with pytest.raises(KeyboardInterrupt):
        watch.recv(timeout=0)
    with pytest.raises(StateError) as refused:
        flow.watch_output("watched", from_tick=2)
    assert refused.value.code == "FLOW_HISTORY"
    assert flow.snapshot("watched")["n"].to_pylist() == [1, 2]
