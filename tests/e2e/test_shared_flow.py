"""Flows in an object store with a real state backend: other owners, a backend that is away, profiles that cannot be kept."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.backend import JobState, open_backend
from penstock.cli.main import main
from penstock.errors import ConnectorError
from servers.postgres import Postgres
from servers.proxy import Proxy
from servers.s3 import ACCESS_KEY, SECRET_KEY, Store
from twin.durable import actions, answers, declare, opened, tick
from twin.shared import owned
from waiting import wait_for


@pytest.fixture
def place(s3: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A prefix of a store, with a state of its own."""
    conf = {"endpoint": s3.endpoint, "access.key": ACCESS_KEY, "secret.key": SECRET_KEY}
    words = [f"spark.hadoop.fs.s3a.{key}={value}" for key, value in conf.items()]
    monkeypatch.setenv("PENSTOCK_CONF", " ".join(words))
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PENSTOCK_STATE", f"sqlite:///{tmp_path}/state.db")
    return f"s3://{s3.new_bucket()}/flows/orders"


def clocked(path: str, **options: Any) -> ps.IncrementalFlow:
    return ps.IncrementalFlow(path=path, clock=lambda: 0, **options)


@pytest.mark.parametrize("sync", ["tick", 20])
def test_a_flow_in_a_store_goes_on_for_its_next_owner(sync: Any, place: str, tmp_path: Path) -> None:
    memory = opened()
    todo = actions()
    for part in (todo[:4], todo[4:7], todo[7:]):
        flow = clocked(place, sync=sync, checkpoint_every=2_000)
        assert flow.durability == "shared"
        assert answers(flow) == answers(memory)
        for action in part:
            action(memory)
            action(flow)
        with pytest.raises(ps.StateError) as held:
            clocked(place)
        assert held.value.code == "STATE_LEASE_HELD"
        flow.close()
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        job = backend.jobs.get("orders")
    assert (job.kind, job.state, job.checkpoint) == ("flow", JobState.STOPPED, place)
    assert job.definition == {"durability": "shared"}
    last = clocked(place)
    assert answers(last) == answers(memory)
    last.restore(_saved(memory, tmp_path))
    tick(last, [(1, 1, 1, False)])
    tick(memory, [(1, 1, 1, False)])
    last.close()
    with clocked(place) as again:
        assert answers(again) == answers(memory)


def _saved(flow: ps.IncrementalFlow, tmp_path: Path) -> Path:
    flow.checkpoint_full(tmp_path / "full")
    return tmp_path / "full"


def test_what_lasts_is_shown_and_a_flow_is_stopped_from_outside(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = clocked(place)
    declare(flow)
    flow.register_asof_view(
        "near", left="rows", right="names", left_time="k", right_time="k", columns=["name"]
    )
    tick(flow, [(1, 1, 1, False)])
    assert str(flow.explain("near")).startswith("near: kernel, durability shared\n")
    metrics = flow.metrics()
    assert metrics['penstock_flow_durability{durability="shared"}'] == 1
    assert metrics["penstock_flow_events_total"] == 4
    assert metrics["penstock_flow_log_bytes"] > 0
    assert main(["jobs", "list", "-o", "json"]) == 0
    job = json.loads(capsys.readouterr().out)
    assert (job["name"], job["kind"], job["state"], job["durability"]) == (
        "orders",
        "flow",
        "RUNNING",
        "shared",
    )
    assert main(["jobs", "stop", "orders"]) == 0
    with pytest.raises(ps.StateError) as closed:
        tick(flow, [(1, 1, 1, False)])
    assert closed.value.code == "FLOW_CLOSED"
    with clocked(place) as again:
        assert again.snapshot("near").num_rows == 1
    with ps.IncrementalFlow() as memory:
        assert memory.metrics()['penstock_flow_durability{durability="memory"}'] == 1
    flow.close()


def test_profiles_that_cannot_be_kept_are_refused(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def message(**options: Any) -> str:
        with pytest.raises(ps.ConfigError) as refused:
            ps.IncrementalFlow(**options)
        assert refused.value.code == "FLOW_DURABILITY"
        assert refused.value.hint
        return refused.value.message

    assert "needs a path" in message(durability="shared")
    assert "is an object store" in message(durability="local", path=place)
    assert "has no path" in message(durability="memory", path=place)
    monkeypatch.setenv("PENSTOCK_MASTER", "spark://host:7077")
    assert "path of this machine" in message(durability="shared", path=tmp_path / "flow")
    assert "state backend is a file" in message(durability="shared", path=tmp_path / "flow", shared_disk=True)
    assert "state backend is a file" in message(path=place)
    monkeypatch.setenv("PENSTOCK_MASTER", "local[2]")
    with clocked(str(tmp_path / "flow"), durability="shared") as flow:
        declare(flow)
    monkeypatch.setenv("PENSTOCK_STATE", f"sqlite:///{tmp_path}/other.db")
    # Another backend knows nothing of the flow, and must not begin a second one over it.
    with pytest.raises(ps.StateError) as refused:
        clocked(str(tmp_path / "flow"), durability="shared")
    assert refused.value.code == "FLOW_STATE_MISSING"


def test_a_store_that_is_away_refuses_ticks_and_the_flow_goes_on(
    s3: Store, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(s3.port) as proxy:
        monkeypatch.setenv(
            "PENSTOCK_CONF", os.environ["PENSTOCK_CONF"].replace(str(s3.port), str(proxy.port))
        )
        flow = clocked(place)
        declare(flow)
        tick(flow, [(1, 1, 1, False)])
        before = answers(flow)
        proxy.cut()
        with pytest.raises(ps.ConnectorError) as away:
            tick(flow, [(2, 2, 0, False)])
        assert away.value.code == "STATE_STORE"
        assert answers(flow) == before
        proxy.mend()
        tick(flow, [(2, 2, 0, False)])
        expected = answers(flow)
        assert expected != before
        flow.close()
        with clocked(place) as again:
            assert answers(again) == expected


@pytest.fixture
def way(postgres: Postgres) -> Iterator[tuple[Proxy, str]]:
    """A way to Postgres that can be cut, and the address of a database behind it."""
    url = postgres.new_database()
    with Proxy(postgres.port) as proxy:
        yield proxy, url.replace(f":{postgres.port}/", f":{proxy.port}/")


def test_a_tick_waits_for_a_backend_that_is_away_longer_than_the_lease(
    way: tuple[Proxy, str], tmp_path: Path
) -> None:
    proxy, url = way
    flow, owner = owned(tmp_path / "flow", url, ttl_ms=600, wait_seconds=60)
    declare(flow)
    tick(flow, [(1, 1, 1, False)])
    before = answers(flow)
    proxy.cut()
    waiting = threading.Thread(target=tick, args=(flow, [(2, 2, 0, False)]))
    waiting.start()
    wait_for(lambda: owner._heartbeat.lost is not None, "the end of the lease")
    assert waiting.is_alive()
    proxy.mend()
    waiting.join(30)
    assert not waiting.is_alive()
    assert answers(flow) != before
    tick(flow, [(3, 3, 0, False)])
    expected = answers(flow)
    flow.close()
    again, _ = owned(tmp_path / "flow", url)
    assert answers(again) == expected
    again.close()


def test_a_tick_that_waited_too_long_fails_cleanly_and_others_go_on(
    way: tuple[Proxy, str], tmp_path: Path
) -> None:
    proxy, url = way
    flow, _ = owned(tmp_path / "flow", url, ttl_ms=60_000, wait_seconds=0.3)
    declare(flow)
    tick(flow, [(1, 1, 1, False)])
    before = answers(flow)
    proxy.cut()
    for _ in range(2):
        with pytest.raises(ps.StateError) as away:
            tick(flow, [(2, 2, 0, False)])
        assert away.value.code == "FLOW_BACKEND"
        assert answers(flow) == before
    proxy.mend()
    tick(flow, [(2, 2, 0, False)])
    expected = answers(flow)
    assert expected != before
    flow.close()
    again, _ = owned(tmp_path / "flow", url)
    assert answers(again) == expected
    again.close()


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_swap_whose_answer_was_lost_counts_once(gives_up: bool, tmp_path: Path) -> None:
    flow, owner = owned(
        tmp_path / "flow", f"sqlite:///{tmp_path}/state.db", wait_seconds=0.0 if gives_up else 60.0
    )
    declare(flow)
    swap = owner._swap
    lost: list[bool] = []

    def losing(*words: Any) -> bool:
        answer = swap(*words)
        if not lost:
            lost.append(answer)
            raise ConnectorError("the answer was lost", code="STATE_UNREACHABLE", retryable=True)
        return answer

    owner._swap = losing  # type: ignore[method-assign,assignment]
    before = answers(flow)
    if gives_up:
        with pytest.raises(ps.StateError):
            tick(flow, [(1, 1, 1, False)])
        assert answers(flow) == before
        # Another head that nobody answers for: the one that counts is neither the last nor the one before.
        lost.clear()
        with pytest.raises(ps.StateError):
            owner.publish(["checkpoint-000001-none.json"])
        owner.publish([])
        # A checkpoint takes back what was counted and has not happened, and another tick takes its place.
        assert flow._runner.directory is not None
        flow._runner.directory.checkpoint(flow._graph, None)
        flow._runner.directory.wait()
        assert flow._runner.directory.error is None
    tick(flow, [(2, 2, 1, False)])
    assert lost == [not gives_up]
    expected = answers(flow)
    flow.close()
    again, _ = owned(tmp_path / "flow", f"sqlite:///{tmp_path}/state.db")
    assert answers(again) == expected
    again.close()
