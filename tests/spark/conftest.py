"""One Spark for all tests of this folder. Add fixtures that build on it here; do not start another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import penstock as ps

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
