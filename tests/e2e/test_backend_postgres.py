"""The state backend in a real Postgres."""

from __future__ import annotations

import pytest

from contract.backend import OTHER, BackendContract, Beats, code_of, until
from penstock.backend import Heartbeat, Job, open_backend, this_process
from penstock.errors import PenstockError, StateError
from servers.postgres import Postgres


class TestPostgres(BackendContract):
    @pytest.fixture
    def url(self, postgres: Postgres) -> str:
        return postgres.new_database()


@pytest.mark.smoke
def test_a_long_fenced_transaction_does_not_hold_up_the_heartbeat(postgres: Postgres) -> None:
    with open_backend(postgres.new_database()) as backend:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=60_000)
        backend.jobs.record(Job("orders"), lease)
        lost: list[StateError] = []
        beats = Beats()
        with (
            Heartbeat(backend, lease, on_lost=lost.append, progress=beats, every=0.02),
            backend.transaction() as connection,
        ):
            backend.epochs.commit(lease, 0, connection=connection)
            beats.await_more(3)
            assert lost == []
            assert code_of(lambda: backend.leases.acquire("orders", OTHER)) == "STATE_LEASE_HELD"


def test_refusals_of_the_server(postgres: Postgres) -> None:
    url = postgres.new_database()
    open_backend(url).close()
    postgres.execute("CREATE ROLE reader LOGIN PASSWORD 'secret'")
    as_reader = url.replace("penstock:", "reader:")
    for wrong, code in (
        (url.replace("secret", "wrong-one"), "STATE_AUTH"),
        (url.replace("penstock:", "nobody:"), "STATE_AUTH"),
        (f"{url}_missing", "STATE_MISSING"),
        (as_reader, "STATE_FORBIDDEN"),
        (f"{url}?options=-c%20default_transaction_read_only%3Don", "STATE_READ_ONLY"),
    ):
        with pytest.raises(PenstockError) as caught, open_backend(wrong) as backend:
            backend.state.put("a", "b", 1)
        assert caught.value.code == code
        assert not any(word in str(caught.value) for word in ("secret", "wrong-one"))
    postgres.execute("DROP ROLE reader")


def test_a_heartbeat_survives_a_restart_of_the_server() -> None:
    with Postgres() as server, open_backend(server.new_database()) as backend:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=6_000)
        backend.jobs.record(Job("orders"), lease)
        lost: list[StateError] = []
        beats = 0

        def progress() -> dict[str, int]:
            nonlocal beats
            beats += 1
            return {"beats": beats}

        with Heartbeat(backend, lease, on_lost=lost.append, progress=progress) as heart:
            server.kill()
            server.start()
            seen = beats
            until(lambda: beats > seen + 1, seconds=30)
            assert heart.lost is None
            assert backend.leases.renew(lease)
        assert lost == []


def test_a_heartbeat_ends_when_the_server_stays_away() -> None:
    with Postgres() as server, open_backend(server.new_database()) as backend:
        lease = backend.leases.acquire("orders", this_process(), ttl_ms=1_000)
        lost: list[StateError] = []
        with Heartbeat(backend, lease, on_lost=lost.append):
            server.kill()
            until(lambda: lost)
        assert "could not be renewed in time" in lost[0].message
        with pytest.raises(PenstockError) as caught:
            backend.jobs.list()
        assert (caught.value.code, getattr(caught.value, "retryable", None)) == ("STATE_UNREACHABLE", True)
        server.start()
        assert backend.jobs.list() == []
