"""One Spark for all tests of this folder. Add fixtures that build on it here; do not start another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from servers.s3 import ACCESS_KEY, SECRET_KEY, Store

CONNECTORS = ("kafka", "iceberg", "postgres", "avro", "s3")


@pytest.fixture(scope="session")
def session() -> Iterator[ps.Session]:
    """An embedded session on two cores, in the user's own home so that its class archive is used.

    It has the connectors that most tests of connectors need, which shows that they get along with each other.
    """
    with ps.Session.embedded(master="local[2]", connectors=CONNECTORS) as running:
        yield running


@pytest.fixture(scope="session")
def spark(session: ps.Session) -> SparkSession:
    """The PySpark session of `session`."""
    return session.spark


@pytest.fixture
def bucket(session: ps.Session, s3: Store) -> Iterator[str]:
    """The address of a bucket of the test's own, which Spark can read and write."""
    settings = {
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.access.key": ACCESS_KEY,
        "fs.s3a.secret.key": SECRET_KEY,
    }
    conf = session.spark.conf
    before = {name: conf.get(name, None) for name in settings}
    for name, value in settings.items():
        conf.set(name, value)
    yield f"s3://{s3.new_bucket()}"
    for name, value in before.items():
        conf.unset(name) if value is None else conf.set(name, value)
