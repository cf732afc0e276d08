"""What a state backend does, whatever database it is in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial

import pytest

from penstock.backend import (
    Backend,
    Heartbeat,
    Job,
    JobState,
    Lease,
    Owner,
    Start,
    open_backend,
    this_process,
)
from penstock.errors import ConfigError, PenstockError, StateError

OTHER = Owner("elsewhere", 4711, 1, "s2", "another machine")


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def _is_past(backend: Backend, moment: datetime) -> bool:
    return backend.now() > moment


def code_of(action: Callable[[], object]) -> str:
    """The code of the error that an action must raise."""
    with pytest.raises(PenstockError) as caught:
        action()
    return caught.value.code


class Beats:
    """The progress of a job, which a heartbeat asks for before each renewal; it counts them."""

    def __init__(self, more: Mapping[str, object] | None = None) -> None:
        self._count = 0
        self._more = more or {}

    def __call__(self) -> dict[str, object]:
        self._count += 1
        return {"batch_id": self._count, **self._more}

    def await_more(self, renewals: int) -> None:
        """Wait for so many renewals to be over."""
        last = self._count + renewals
        until(lambda: self._count > last)


class BackendContract:
    """Inherit, and give a fixture `url` of an empty database."""

    @pytest.fixture
    def backend(self, url: str) -> Iterator[Backend]:
        with open_backend(url) as opened:
            yield opened

    @pytest.fixture
    def lease(self, backend: Backend) -> Lease:
        return backend.leases.acquire("orders", this_process("s1"))

    # Leases

    def test_a_lease_of_another_is_refused_with_its_owner(self, backend: Backend) -> None:
        backend.leases.acquire("orders", OTHER, ttl_ms=60_000)
        with pytest.raises(StateError) as caught:
            backend.leases.acquire("orders", this_process())
        assert caught.value.code == "STATE_LEASE_HELD"
        assert "process 4711 on elsewhere, since 20" in caught.value.message
        assert "until 20" in caught.value.message
        assert "penstock jobs stop orders" in (caught.value.hint or "")

    def test_the_holder_itself_gets_no_second_lease(self, backend: Backend, lease: Lease) -> None:
        with pytest.raises(StateError, match="owned by this process"):
            backend.leases.acquire("orders", this_process("s1"))

    def test_leases_of_two_jobs_have_nothing_to_do_with_each_other(
        self, backend: Backend, lease: Lease
    ) -> None:
        assert backend.leases.acquire("customers", OTHER).epoch == 1

    def test_a_lease_that_ran_out_is_taken_with_a_higher_epoch(self, backend: Backend) -> None:
        first = backend.leases.acquire("orders", OTHER, ttl_ms=100)
        second = backend.leases.acquire("orders", this_process(), wait_ms=5_000)
        assert (first.epoch, second.epoch) == (1, 2)
        assert second.acquired_at >= first.expires_at
        assert not backend.leases.renew(first)
        assert not backend.leases.release(first)
        assert backend.leases.renew(second)

    def test_waiting_for_a_live_holder_ends(self, backend: Backend) -> None:
        backend.leases.acquire("orders", OTHER, ttl_ms=600_000)
        begun = time.monotonic()
        assert code_of(lambda: backend.leases.acquire("orders", OTHER, wait_ms=300)) == "STATE_LEASE_HELD"
        assert time.monotonic() - begun >= 0.3

    def test_a_holder_of_this_machine_that_is_gone_is_waited_for(self, backend: Backend) -> None:
        me = this_process()
        gone = Owner(me.host, me.pid, me.started - 1, "", me.machine)
        backend.leases.acquire("orders", gone, ttl_ms=500)
        assert backend.leases.acquire("orders", me).epoch == 2

    def test_a_released_lease_is_free_at_once(self, backend: Backend, lease: Lease) -> None:
        assert backend.leases.release(lease)
        assert backend.leases.acquire("orders", OTHER).epoch == 2

    def test_a_renewal_prolongs(self, backend: Backend) -> None:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=60_000)
        last = lease.acquired_at
        for _ in range(3):
            until(partial(_is_past, backend, last))
            last = backend.now()
            assert backend.leases.renew(lease)
            current = backend.leases.get("orders")
            assert current is not None
            assert current.active
            assert current.expires_at >= last + timedelta(milliseconds=lease.ttl_ms)

    def test_one_of_many_gets_the_lease(self, url: str, backend: Backend) -> None:
        def take(number: int) -> int:
            with open_backend(url) as own:
                try:
                    return own.leases.acquire("orders", Owner("host", number)).epoch
                except StateError as error:
                    return 0 if error.code == "STATE_LEASE_HELD" else -1

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(take, range(1, 9))) == [0] * 7 + [1]

    def test_a_fence_keeps_a_late_writer_out(self, backend: Backend) -> None:
        first = backend.leases.acquire("orders", OTHER, ttl_ms=50)
        second = backend.leases.acquire("orders", this_process(), wait_ms=5_000)
        backend.epochs.commit(second, 0)
        for late in (
            lambda: backend.epochs.begin(first, 1),
            lambda: backend.epochs.commit(first, 1),
            lambda: backend.jobs.record(Job("orders"), first),
            lambda: backend.jobs.update(first, state=JobState.FAILED),
            lambda: backend.state.put("orders", "k", 1, lease=first),
            lambda: backend.state.clear("orders", lease=first),
        ):
            assert code_of(late) == "STATE_LEASE_LOST"
        assert [epoch.number for epoch in backend.epochs.list("orders")] == [0]
        assert backend.state.items("orders") == {}

    def test_nobody_takes_over_inside_a_fenced_transaction(self, url: str, backend: Backend) -> None:
        lease = backend.leases.acquire("orders", OTHER, ttl_ms=200)
        taken = threading.Event()

        def take() -> None:
            with open_backend(url) as other:
                other.leases.acquire("orders", this_process(), wait_ms=5_000)
            taken.set()

        taker = threading.Thread(target=take)
        with backend.transaction() as connection:
            backend.leases.fence(connection, lease)
            taker.start()
            assert not taken.wait(0.8)
            backend.epochs.commit(lease, 7, connection=connection)
        assert taken.wait(5)
        taker.join()
        last = backend.epochs.last("orders")
        assert last is not None
        assert last.number == 7

    # Jobs

    def test_a_job_is_kept_as_it_was_given(self, backend: Backend, lease: Lease) -> None:
        start = Start(("python", "app.py"), "/srv", place="app.py:12")
        given = Job(
            "orders", kind="pipeline", definition={"n": 1}, checkpoint="c/", log="l", start=start, id="7"
        )
        job = backend.jobs.record(given, lease)
        assert (job.kind, job.definition, job.checkpoint, job.log, job.start, job.id) == (
            "pipeline", {"n": 1}, "c/", "l", start, "7",
        )  # fmt: skip
        assert job.state is JobState.STARTING
        assert job.lease is not None
        assert job.lease.owner == this_process("s1")
        assert backend.jobs.get("7") == backend.jobs.get("orders")

    def test_states_and_times(self, backend: Backend, lease: Lease) -> None:
        backend.jobs.record(Job("orders"), lease)
        backend.jobs.update(
            lease, state=JobState.RUNNING, message="fine\x00", progress={"rate": float("nan")}
        )
        job = backend.jobs.get("orders")
        assert (job.state, job.message, job.progress) == (JobState.RUNNING, "fine\\x00", {"rate": "nan"})
        assert job.ended_at is None
        backend.jobs.update(lease, state=JobState.FAILED, message="no")
        job = backend.jobs.get("orders")
        assert job.ended_at is not None
        assert job.started_at is not None
        assert job.ended_at >= job.started_at
        assert job.progress == {"rate": "nan"}

    def test_a_new_start_replaces_the_old_one(self, backend: Backend, lease: Lease) -> None:
        backend.jobs.record(Job("orders"), lease)
        backend.jobs.request("orders", "stop")
        backend.jobs.update(lease, state=JobState.STOPPED, message="done")
        assert backend.jobs.get("orders").request is None
        backend.leases.release(lease)
        time.sleep(0.01)
        again = backend.leases.acquire("orders", OTHER)
        job = backend.jobs.record(Job("orders", checkpoint="new/"), again)
        assert (job.state, job.message, job.request, job.ended_at) == (JobState.STARTING, None, None, None)
        assert len(backend.jobs.list()) == 1

    def test_a_job_whose_lease_ran_out_is_lost(self, backend: Backend) -> None:
        lease = backend.leases.acquire("orders", OTHER, ttl_ms=300)
        backend.jobs.record(Job("orders"), lease)
        backend.jobs.update(lease, state=JobState.RUNNING)
        assert backend.jobs.get("orders").state is JobState.RUNNING
        until(lambda: backend.jobs.get("orders").state is JobState.LOST)
        assert [job.name for job in backend.jobs.list(JobState.LOST)] == ["orders"]
        assert backend.jobs.list(JobState.RUNNING) == []
        assert code_of(lambda: backend.jobs.request("orders", "stop")) == "JOB_NOT_RUNNING"
        # A new holder that has recorded nothing yet does not bring the old job back.
        backend.leases.acquire("orders", this_process())
        assert backend.jobs.get("orders").state is JobState.LOST

    def test_an_unknown_job_suggests_the_nearest(self, backend: Backend, lease: Lease) -> None:
        backend.jobs.record(Job("orders"), lease)
        with pytest.raises(ConfigError, match="did you mean 'orders'"):
            backend.jobs.get("order")
        assert backend.jobs.find("order") is None

    def test_names_that_cannot_be(self, backend: Backend) -> None:
        for name in ("", " a", "a\n", "x\x00", "n" * 201):
            assert code_of(lambda name=name: backend.leases.acquire(name, OTHER)) == "JOB_NAME"  # type: ignore[misc]
        assert backend.leases.acquire("Bestellungen für 東京; --'\"", OTHER).epoch == 1

    # Heartbeats

    def test_a_heartbeat_keeps_the_lease_and_records_progress(self, backend: Backend) -> None:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=60_000)
        backend.jobs.record(Job("orders"), lease)
        lost: list[StateError] = []
        beats = Beats()
        with Heartbeat(backend, lease, on_lost=lost.append, progress=beats, every=0.02) as heart:
            beats.await_more(3)
            current = backend.leases.get("orders")
            assert current is not None
            assert current.expires_at > lease.expires_at
            assert (current.active, current.epoch, heart.lost, lost) == (True, 1, None, [])
            assert (backend.jobs.get("orders").progress or {})["batch_id"] > 0

    def test_a_heartbeat_renews_before_the_lease_ends(self, backend: Backend) -> None:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=5_000)
        with Heartbeat(backend, lease, on_lost=lambda _: None) as heart:
            until(lambda: (current := backend.leases.get("orders")) and current.expires_at > lease.expires_at)
            assert heart.lost is None

    def test_a_heartbeat_hands_on_each_request_once(self, backend: Backend) -> None:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=60_000)
        backend.jobs.record(Job("orders"), lease)
        asked: list[str] = []
        lost: list[StateError] = []
        beats = Beats()
        with Heartbeat(
            backend, lease, on_lost=lost.append, on_request=asked.append, progress=beats, every=0.02
        ):
            backend.jobs.request("orders", "restart")
            until(lambda: asked == ["restart"])
            beats.await_more(3)
            backend.jobs.request("orders", "stop")
            until(lambda: asked == ["restart", "stop"])
            beats.await_more(3)
        assert (asked, lost) == (["restart", "stop"], [])

    def test_a_request_that_takes_long_does_not_hold_up_the_renewals(self, backend: Backend) -> None:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=60_000)
        backend.jobs.record(Job("orders"), lease)
        lost: list[StateError] = []
        asked, free = threading.Event(), threading.Event()
        beats = Beats()

        def slow(_: str) -> None:
            asked.set()
            free.wait(60)

        with Heartbeat(backend, lease, on_lost=lost.append, on_request=slow, progress=beats, every=0.02):
            backend.jobs.request("orders", "stop")
            assert asked.wait(60)
            beats.await_more(3)
            free.set()
            assert backend.jobs.get("orders").state is JobState.STARTING
        assert lost == []

    def test_a_heartbeat_says_once_when_the_lease_is_taken(self, backend: Backend) -> None:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=300)
        backend.leases.acquire("orders", OTHER, ttl_ms=600_000, wait_ms=60_000)
        lost: list[StateError] = []
        with Heartbeat(backend, lease, on_lost=lost.append):
            until(lambda: lost)
        assert [error.code for error in lost] == ["STATE_LEASE_LOST"]

    def test_a_restart_that_was_done_is_not_asked_for_again(self, backend: Backend, lease: Lease) -> None:
        backend.jobs.record(Job("orders"), lease)
        backend.jobs.request("orders", "restart")
        assert backend.leases.beat(lease).request == "restart"
        backend.jobs.record(Job("orders"), lease)
        assert backend.leases.beat(lease).request is None
        backend.jobs.request("orders", "restart")
        before = backend.jobs.get("orders").started_at
        assert before is not None
        until(partial(_is_past, backend, before))
        backend.jobs.update(lease, state=JobState.STARTING)
        job = backend.jobs.get("orders")
        assert (job.state, job.request) == (JobState.STARTING, None)
        assert job.started_at != before
        backend.jobs.request("orders", "stop")
        backend.jobs.update(lease, state=JobState.STARTING)
        backend.jobs.record(Job("orders"), lease)
        assert backend.leases.beat(lease).request == "stop"

    def test_progress_that_cannot_be_had_does_not_cost_the_lease(self, backend: Backend) -> None:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=60_000)
        backend.jobs.record(Job("orders"), lease)
        endless: dict[str, object] = {}
        endless["self"] = endless
        lost: list[StateError] = []
        beats = Beats(endless)
        with Heartbeat(backend, lease, on_lost=lost.append, progress=beats, every=0.02):
            beats.await_more(3)
        assert lost == []
        assert backend.leases.renew(lease)

    # Epochs

    def test_epochs_begin_and_are_committed_once(self, backend: Backend, lease: Lease) -> None:
        assert backend.epochs.last("orders") is None
        begun = backend.epochs.begin(lease, 0, {"to": 10})
        assert (begun.committed, begun.meta) == (False, {"to": 10})
        assert backend.epochs.begin(lease, 0, {"to": 11}).meta == {"to": 11}
        assert backend.epochs.last("orders") is None
        done = backend.epochs.commit(lease, 0, {"to": 12})
        assert (done.committed, done.meta) == (True, {"to": 12})
        assert backend.epochs.commit(lease, 0, {"to": 13}) == done
        assert backend.epochs.begin(lease, 0, {"to": 14}) == done
        assert backend.epochs.commit(lease, 1).meta is None
        backend.epochs.begin(lease, 2)
        last, begun_last = backend.epochs.last("orders"), backend.epochs.last("orders", committed=False)
        assert last is not None
        assert begun_last is not None
        assert (last.number, begun_last.number) == (1, 2)

    def test_old_epochs_go(self, backend: Backend, lease: Lease) -> None:
        for number in range(120):
            backend.epochs.commit(lease, number)
        kept = [epoch.number for epoch in backend.epochs.list("orders", limit=1_000)]
        assert kept == list(range(119, 19, -1))
        assert backend.epochs.clear(lease) == 100

    def test_an_epoch_shares_the_fate_of_its_transaction(self, backend: Backend, lease: Lease) -> None:
        def fail() -> None:
            with backend.transaction() as connection:
                backend.state.put("orders", "k", 1, lease=lease, connection=connection)
                backend.epochs.commit(lease, 0, connection=connection)
                raise StateError("no", code="NO")

        assert code_of(fail) == "NO"
        assert backend.epochs.last("orders") is None
        assert backend.state.items("orders") == {}

    # Values

    @pytest.mark.parametrize(
        "value", [None, 0, "", "ä\x00", b"\x00\xff", b"", [1, {"a": None}], {"a": 1.5}, True]
    )
    def test_values_come_back(self, backend: Backend, value: object) -> None:
        backend.state.put("orders", "k", value)
        assert backend.state.get("orders", "k", "default") == value
        assert backend.state.items("orders") == {("", "k"): value}

    def test_namespaces(self, backend: Backend) -> None:
        backend.state.put("orders", "k", 1)
        backend.state.put("orders", "k", 2, namespace="plugin")
        backend.state.put("customers", "k", 3)
        assert backend.state.get("orders", "k", namespace="plugin") == 2
        assert backend.state.items("orders") == {("", "k"): 1, ("plugin", "k"): 2}
        assert backend.state.items("orders", namespace="plugin") == {("plugin", "k"): 2}
        assert backend.state.jobs() == {"customers", "orders"}
        backend.state.put("orders", "k", 4, namespace="plugin/a_b")
        backend.state.put("orders", "k", 5, namespace="plugins")
        within = backend.state.items("orders", namespace="plugin")
        assert within == {("plugin", "k"): 2, ("plugin/a_b", "k"): 4}
        assert backend.state.clear("orders", namespace="plugin/aXb") == 0
        assert backend.state.clear("orders", namespace="plugin") == 2
        assert backend.state.clear("orders", namespace="plugins") == 1
        assert backend.state.remove("orders", "k")
        assert not backend.state.remove("orders", "k")
        assert backend.state.get("orders", "k", "gone") == "gone"
        assert backend.state.get("customers", "k") == 3

    def test_swaps_lose_no_change(self, url: str, backend: Backend) -> None:
        def count(_: int) -> None:
            with open_backend(url) as own:
                for _ in range(10):
                    while True:
                        found = own.state.get("orders", "n")
                        if own.state.swap("orders", "n", found, (found or 0) + 1):
                            break

        assert not backend.state.swap("orders", "n", 5, 6)
        assert backend.state.items("orders") == {}
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count, range(4)))
        assert backend.state.get("orders", "n") == 40

    # The database

    def test_a_reopened_backend_has_everything(self, url: str, backend: Backend, lease: Lease) -> None:
        backend.jobs.record(Job("orders"), lease)
        backend.epochs.commit(lease, 3)
        with open_backend(url, create=False) as again:
            assert again.jobs.get("orders") == backend.jobs.get("orders")
            last = again.epochs.last("orders")
            assert last is not None
            assert last.number == 3

    def test_many_open_a_new_database_at_once(self, url: str) -> None:
        with ThreadPoolExecutor(8) as pool:
            opened = list(pool.map(lambda _: open_backend(url), range(8)))
        for backend in opened:
            assert backend.jobs.list() == []
            backend.close()

    def test_a_database_without_tables_is_not_filled_unasked(self, url: str) -> None:
        assert code_of(lambda: open_backend(url, create=False)) == "STATE_MISSING"

    def test_a_newer_version_is_refused(self, url: str, backend: Backend) -> None:
        from sqlalchemy import update

        from penstock.backend.table import STEPS, meta

        with backend.transaction() as connection:
            connection.execute(update(meta).values(value="99"))
        with pytest.raises(StateError, match=f"version 99.*up to {len(STEPS)}") as caught:
            open_backend(url)
        assert caught.value.code == "STATE_VERSION"
        assert "upgrade" in (caught.value.hint or "")

    def test_an_older_version_is_brought_up_or_left_as_it_was(self, backend: Backend, lease: Lease) -> None:
        from sqlalchemy import Connection, inspect, text

        from penstock.backend.table import STEPS, prepare, version

        def widen(connection: Connection) -> None:
            connection.execute(text("ALTER TABLE penstock_jobs ADD COLUMN extra VARCHAR"))

        def fail(connection: Connection) -> None:
            raise StateError("no")

        def columns() -> set[str]:
            with backend.reading() as connection:
                return {column["name"] for column in inspect(connection).get_columns("penstock_jobs")}

        backend.jobs.record(Job("orders"), lease)
        location = backend.location
        with pytest.raises(StateError, match="no"), backend.transaction() as connection:
            prepare(connection, backend.dialect, create=True, location=location, steps=(*STEPS, widen, fail))
        assert "extra" not in columns()
        with backend.transaction() as connection:
            prepare(connection, backend.dialect, create=True, location=location, steps=(*STEPS, widen))
        assert "extra" in columns()
        with backend.reading() as connection:
            assert version(connection) == len(STEPS) + 1
        assert backend.jobs.get("orders").name == "orders"
