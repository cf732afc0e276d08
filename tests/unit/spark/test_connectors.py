"""What connectors and catalogs add to a session's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.spark import catalogs, connectors
from penstock.spark.boot import jars

ICEBERG = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
DELTA = "io.delta.sql.DeltaSparkSessionExtension"


def _settings(tmp_path: Path, **given: object) -> Settings:
    return Settings(home=tmp_path).with_arguments(**given)  # type: ignore[arg-type]  # shorthand of the tests


def test_every_connector_of_the_lock_has_its_line() -> None:
    assert list(connectors.ADDITIONS) == list(jars.CONNECTORS)


def test_nothing_asked_for_adds_nothing(tmp_path: Path) -> None:
    assert connectors.session_parts(Settings(home=tmp_path)) == connectors.SessionParts()
    assert list(tmp_path.iterdir()) == []


def test_extensions_are_joined_and_the_users_come_first(tmp_path: Path) -> None:
    settings = _settings(tmp_path, conf={"spark.sql.extensions": f"com.mine.Extension,{DELTA}"})
    conf = connectors.session_conf(["iceberg", "delta"], settings)
    assert conf["spark.sql.extensions"] == f"com.mine.Extension,{DELTA},{ICEBERG}"


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    mine = {"spark.sql.catalog.spark_catalog": "com.mine.Catalog"}
    conf = connectors.session_conf(["delta"], _settings(tmp_path, conf=mine))
    assert "spark.sql.catalog.spark_catalog" not in conf
    assert conf["spark.sql.extensions"] == DELTA


def test_s3_paths_go_to_hadoops_client(tmp_path: Path) -> None:
    conf = connectors.session_conf(["s3"], Settings(home=tmp_path))
    assert conf["spark.hadoop.fs.s3.impl"] == "org.apache.hadoop.fs.s3a.S3AFileSystem"
    assert "spark.hadoop.fs.s3a.path.style.access" not in conf


def test_another_store_than_amazons_is_addressed_by_path(tmp_path: Path) -> None:
    other = _settings(tmp_path, conf={"spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000"})
    assert connectors.session_conf(["s3"], other)["spark.hadoop.fs.s3a.path.style.access"] == "true"
    amazon = _settings(tmp_path, conf={"spark.hadoop.fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"})
    assert "spark.hadoop.fs.s3a.path.style.access" not in connectors.session_conf(["s3"], amazon)


@pytest.mark.parametrize(
    ("format", "connector"),
    [("kafka", "kafka"), ("Avro", "avro"), ("iceberg", "iceberg"), ("jdbc", "postgres"), ("csv", None)],
)
def test_the_connector_of_a_format(format: str, connector: str | None) -> None:
    assert connectors.connector_for_format(format) == connector


@pytest.mark.parametrize(
    ("path", "connector"),
    [
        ("s3://bucket/x", "s3"),
        ("s3a://bucket/x", "s3"),
        ("abfss://container@account.dfs.core.windows.net/x", "adls"),
        ("gs://bucket/x", "gcs"),
        ("file:///tmp/x", None),
        ("/tmp/x", None),
        ("gs", None),
    ],
)
def test_the_connector_of_a_path(path: str, connector: str | None) -> None:
    assert connectors.connector_for_path(path) == connector


def test_connectors_that_need_the_start_say_how(tmp_path: Path) -> None:
    error = connectors.needs_restart("iceberg")
    assert error.code == "CONNECTOR_AT_START"
    assert 'connectors=("iceberg",)' in str(error)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"type": "hadoop", "warehouse": "w"}, ("iceberg",)),
        ({"type": "hadoop", "warehouse": "s3://b/w"}, ("iceberg", "s3")),
        ({"type": "hadoop", "warehouse": "abfss://c@a/w"}, ("iceberg", "adls")),
        (
            {"type": "jdbc", "uri": "postgresql://h/d", "warehouse": "gs://b/w"},
            ("iceberg", "postgres", "gcs"),
        ),
        ({"type": "jdbc", "uri": "jdbc:postgresql://h/d", "warehouse": "w"}, ("iceberg", "postgres")),
        ({"type": "jdbc", "uri": "jdbc:sqlite:x.db", "warehouse": "w"}, ("iceberg",)),
        ({"type": "rest", "uri": "http://h"}, ("iceberg",)),
        ({"type": "rest", "uri": "http://h", "s3.endpoint": "http://s"}, ("iceberg", "s3")),
    ],
)
def test_catalogs_bring_the_connectors_they_need(
    tmp_path: Path, given: dict[str, str], names: tuple[str, ...]
) -> None:
    settings = _settings(tmp_path, catalogs={"lake": given})
    assert connectors.asked_for(settings) == names


def test_a_hadoop_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert catalogs.conf_of("lake", {"type": "hadoop", "warehouse": "wh/"}) == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "wh"),
    }


def test_s3_options_mean_the_same_for_hadoops_client() -> None:
    conf = catalogs.conf_of(
        "lake",
        {
            "type": "hadoop",
            "warehouse": "s3://bucket/wh",
            "s3.endpoint": "http://127.0.0.1:9000",
            "s3.access-key-id": "me",
            "cache-enabled": "false",
        },
    )
    prefix = "spark.sql.catalog.lake."
    assert conf[f"{prefix}warehouse"] == "s3://bucket/wh"
    assert conf[f"{prefix}hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert conf[f"{prefix}hadoop.fs.s3a.access.key"] == "me"
    assert conf[f"{prefix}hadoop.fs.s3a.path.style.access"] == "true"
    assert conf[f"{prefix}cache-enabled"] == "false"
    assert f"{prefix}s3.endpoint" not in conf


def test_a_jdbc_catalog_takes_a_plain_address() -> None:
    conf = catalogs.conf_of(
        "lake",
        {"type": "jdbc", "uri": "postgresql://me:p%40ss@db:6432/lake?sslmode=require", "warehouse": "/wh"},
    )
    prefix = "spark.sql.catalog.lake."
    assert conf[f"{prefix}uri"] == "jdbc:postgresql://db:6432/lake?sslmode=require"
    assert conf[f"{prefix}jdbc.user"] == "me"
    assert conf[f"{prefix}jdbc.password"] == "p@ss"
    assert conf[f"{prefix}jdbc.schema-version"] == "V1"


def test_a_jdbc_catalog_with_user_and_password_apart() -> None:
    given = {
        "type": "jdbc",
        "uri": "jdbc:postgresql://db/lake",
        "warehouse": "/wh",
        "user": "u",
        "password": "p",
    }
    conf = catalogs.conf_of("lake", given)
    assert conf["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db/lake"
    assert conf["spark.sql.catalog.lake.jdbc.user"] == "u"
    assert conf["spark.sql.catalog.lake.jdbc.password"] == "p"
    assert "spark.sql.catalog.lake.user" not in conf


def test_a_rest_catalog_passes_its_options_on() -> None:
    given = {
        "type": "rest",
        "uri": "http://h:8181",
        "warehouse": "prod",
        "token": "t",
        "s3.endpoint": "http://s",
    }
    conf = catalogs.conf_of("lake", given)
    assert conf["spark.sql.catalog.lake.warehouse"] == "prod"
    assert conf["spark.sql.catalog.lake.token"] == "t"
    assert conf["spark.sql.catalog.lake.s3.endpoint"] == "http://s"


@pytest.mark.parametrize(
    ("name", "given", "code", "says"),
    [
        ("lake", {}, "CONFIG_CATALOG_TYPE", "types: hadoop, jdbc, rest"),
        ("lake", {"type": "hadop"}, "CONFIG_CATALOG_TYPE", "did you mean 'hadoop'?"),
        ("lake", {"type": "hadoop"}, "CONFIG_CATALOG_FIELD", "needs 'warehouse'"),
        ("lake", {"type": "hadoop", "warehose": "x"}, "CONFIG_CATALOG_FIELD", "did you mean 'warehouse'?"),
        ("lake", {"type": "jdbc"}, "CONFIG_CATALOG_FIELD", "needs 'uri' and 'warehouse'"),
        ("lake", {"type": "jdbc", "uri": "db/lake", "warehouse": "x"}, "CONFIG_CATALOG_FIELD", "no database"),
        ("lake", {"type": "rest", "warehouse": "x"}, "CONFIG_CATALOG_FIELD", "needs 'uri'"),
        ("my lake", {"type": "rest", "uri": "x"}, "CONFIG_CATALOG_NAME", "letters, digits"),
        ("spark_catalog", {"type": "rest", "uri": "x"}, "CONFIG_CATALOG_NAME", "Spark's own"),
    ],
)
def test_catalogs_that_cannot_work(name: str, given: dict[str, str], code: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        catalogs.conf_of(name, given)
    assert caught.value.code == code
    assert says in str(caught.value)
