"""The sinks of a flow that run, as several threads ask for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from guarded import OwnedLock, guarded
from penstock.engine.followers import FlowAccess, Followers
from penstock.engine.registration import Prepared, install
from penstock.errors import StateError
from penstock.plan import node as plan
from penstock.plan.node import Field

FIELDS = (Field("n", "bigint"),)


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


@pytest.fixture
def flow() -> Iterator[ps.IncrementalFlow]:
    with ps.IncrementalFlow() as made:
        made.register_source("rows", "n BIGINT")
        view = plan.View("numbers", "", plan.Scan(FIELDS, "rows", (0,)))
        install(made._graph, Prepared(view, no_fragment), 0)
        made.tick("rows", [{"n": 1}])
        yield made


def test_who_runs_is_only_asked_and_changed_under_the_lock(flow: ps.IncrementalFlow, tmp_path: Path) -> None:
    lock, wrong = OwnedLock(), list[str]()
    access = FlowAccess(
        lock=lock,
        graph=lambda: flow._graph,
        journal=lambda: flow._runner.journal,
        name=lambda: "shop",
        settings=flow._settings,
        session=flow._opened_session,
    )
    followers = Followers(access)
    followers._running = guarded(followers._running, lock, wrong)
    followers._stopped = guarded(followers._stopped, lock, wrong)
    for name in ("first", "second"):
        followers.register(
            "numbers", "parquet", key="n", name=name, overwrite=False, options={"path": tmp_path / name}
        )
    followers.flush_one("first")
    assert followers.flush(10)
    assert len(followers.describe("numbers")) == 2
    assert len(followers.metrics()) == 10
    followers.drop("second")
    followers.close()
    assert followers.describe("numbers") == ("sink first: parquet, not started: closed",)
    with pytest.raises(StateError, match="closed"):
        followers.flush_one("first")
    followers.start_all()
    followers.close()
    assert wrong == []


def test_threads_that_add_one_sink_start_one_follower(flow: ps.IncrementalFlow, tmp_path: Path) -> None:
    failures: list[BaseException] = []
    together = threading.Barrier(8)

    def add() -> None:
        try:
            together.wait()
            flow.sink("numbers", "parquet", key=["n"], name="shared", path=tmp_path / "rows")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    running = [thread.name for thread in threading.enumerate() if thread.name == "penstock-sink-shared"]
    assert running == ["penstock-sink-shared"]
