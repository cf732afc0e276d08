"""Real servers, one of each kind for all tests, started when the first test asks for them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import seed

if TYPE_CHECKING:
    from servers.clickhouse import ClickHouse
    from servers.iceberg_rest import RestCatalog
    from servers.kafka import Broker
    from servers.postgres import Postgres
    from servers.s3 import Store


# A runner in the background of a shell ignores Ctrl-C, and so would everything that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"random tests: {seed.VARIABLE}={seed.SEED} repeats this run, but for generated queries: {seed.VARIABLE}={seed.FRESH}"


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Queries of tests are recorded in a state of their own, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_STATE", f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db")
        yield


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A Kafka broker; take a topic of your own with `new_topic`."""
    from servers.kafka import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server; take a database of your own with `new_database`."""
    from servers.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouse]:
    """A ClickHouse server; take a database of your own with `new_database`."""
    from servers.clickhouse import ClickHouse

    with ClickHouse() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[Store]:
    """An S3 store; take a bucket of your own with `new_bucket`."""
    from servers.s3 import Store

    with Store() as store:
        yield store


@pytest.fixture(scope="session")
def rest_catalog(postgres: Postgres) -> Iterator[RestCatalog]:
    """An Iceberg REST catalog with its tables in a local folder."""
    from servers.iceberg_rest import RestCatalog

    with RestCatalog(postgres.new_database()) as catalog:
        yield catalog
