"""What a connector adds to a Spark session: jars at the end of the class path, settings, session extensions.

`session_parts` is for a session that is about to start, `add_to_running` for one that runs already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import Settings
from penstock.errors import ConnectorError
from penstock.spark import catalogs
from penstock.spark.boot import jars
from penstock.spark.progress import Report, show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS = "spark.sql.extensions"
S3_ENDPOINT = "spark.hadoop.fs.s3a.endpoint"


@dataclass(frozen=True, slots=True)
class Addition:
    """What one connector is to a session."""

    formats: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    extension: str | None = None
    jdbc_driver: str | None = None


@dataclass(frozen=True, slots=True)
class SessionParts:
    """Jars and settings for a session that is about to start; the settings go on top of the user's."""

    jars: tuple[Path, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)


ADDITIONS: Mapping[str, Addition] = {
    "kafka": Addition(formats=("kafka",)),
    "iceberg": Addition(
        formats=("iceberg",),
        extension="org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    ),
    "postgres": Addition(formats=("jdbc", "postgres", "postgresql"), jdbc_driver="org.postgresql.Driver"),
    "avro": Addition(formats=("avro",)),
    "delta": Addition(
        formats=("delta",),
        extension="io.delta.sql.DeltaSparkSessionExtension",
        conf={
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
        },
    ),
    "s3": Addition(
        schemes=("s3", "s3a"),
        conf={
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.s3a.aws.credentials.provider": ",".join(
                (
                    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
                    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
                    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
                )
            ),
        },
    ),
    "adls": Addition(schemes=("abfs", "abfss")),
    "gcs": Addition(
        schemes=("gs",),
        conf={
            "spark.hadoop.fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "spark.hadoop.fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        },
    ),
}


def connector_for_format(name: str) -> str | None:
    """Return the connector that a data source format needs, or None when no connector of ours has it.

    >>> connector_for_format("kafka"), connector_for_format("parquet")
    ('kafka', None)
    """
    wanted = name.casefold()
    return next((connector for connector, has in ADDITIONS.items() if wanted in has.formats), None)


def connector_for_path(path: str) -> str | None:
    """Return the connector that a path needs by its scheme, or None when Spark can read it alone.

    >>> connector_for_path("s3://bucket/orders/"), connector_for_path("data/orders.csv")
    ('s3', None)
    """
    scheme, separator, _ = path.partition("://")
    wanted = scheme.casefold()
    if not separator:
        return None
    return next((connector for connector, has in ADDITIONS.items() if wanted in has.schemes), None)


def asked_for(settings: Settings) -> tuple[str, ...]:
    """Return the connectors that the settings name, and those that their catalogs need."""
    implied = (name for options in settings.catalogs.values() for name in catalogs.connectors_of(options))
    return tuple(dict.fromkeys((*settings.connectors, *implied)))


def session_parts(settings: Settings, *, progress: Report = show) -> SessionParts:
    """Return what the settings' connectors and catalogs add to a session, installing jars that are missing."""
    names = asked_for(settings)
    conf = session_conf(names, settings)
    return SessionParts(jars.ensure(names, settings, progress=progress) if names else (), conf)


def session_conf(names: Iterable[str], settings: Settings) -> dict[str, str]:
    """Return the settings that connectors and catalogs add; what the user set stays, extensions are joined."""
    names = tuple(names)
    added: dict[str, str] = {}
    for name in names:
        added.update(_conf_of(name, settings))
    for catalog, options in settings.catalogs.items():
        added.update(catalogs.conf_of(catalog, options))
    conf = {key: value for key, value in added.items() if key not in settings.conf}
    given_extensions = [text.strip() for text in settings.conf.get(EXTENSIONS, "").split(",")]
    own = [addition.extension for addition in (_addition(name) for name in names) if addition.extension]
    if own:
        conf[EXTENSIONS] = ",".join(dict.fromkeys([*filter(None, given_extensions), *own]))
    return conf


def add_to_running(
    spark: SparkSession, name: str, settings: Settings, *, progress: Report = show
) -> tuple[Path, ...]:
    """Install a connector and make a running session use it at once, in all threads and on all executors."""
    addition = _addition(name)
    if addition.extension is not None:
        raise needs_restart(name)
    from penstock.spark.boot import loader

    paths = jars.ensure([name], settings, progress=progress)
    loader.append(spark, paths)
    loader.set_hadoop_conf(spark, _conf_of(name, settings))
    if addition.jdbc_driver is not None:
        loader.register_jdbc_driver(spark, addition.jdbc_driver)
    return paths


def ensure_format(spark: SparkSession, form: str, settings: Settings) -> None:
    """Bring the connector of a format, such as kafka, into a running session that does not have it yet."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    sources = jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        sources.lookupDataSource(form, spark._jsparkSession.sessionState().conf())
    except Py4JJavaError:
        name = next(name for name, addition in ADDITIONS.items() if form in addition.formats)
        add_to_running(spark, name, settings)


def needs_restart(name: str) -> ConnectorError:
    """Return the error for a connector that a session can only have from its start."""
    return ConnectorError(
        f"'{name}' brings session extensions, and this session started without them",
        code="CONNECTOR_AT_START",
        hint=f'start the session with it: ps.Session.embedded(connectors=("{name}",)), '
        f'or connectors = ["{name}"] in penstock.toml',
    )


def _addition(name: str) -> Addition:
    return ADDITIONS[jars.CONNECTORS[name].name]


def _conf_of(name: str, settings: Settings) -> dict[str, str]:
    conf = dict(_addition(name).conf)
    if name == "s3" and "amazonaws.com" not in settings.conf.get(S3_ENDPOINT, "amazonaws.com"):
        # Stores other than Amazon's rarely answer to a host name per bucket, and have no regions to ask for.
        conf["spark.hadoop.fs.s3a.path.style.access"] = "true"
        conf["spark.hadoop.fs.s3a.endpoint.region"] = "us-east-1"
    return conf
