"""The lock of connector jars and the check of the cache, without any JVM."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.spark.boot import jars
from penstock.spark.progress import Progress, show

NAMES = ["kafka", "iceberg", "postgres", "avro", "delta", "s3", "adls", "gcs"]


def test_the_lock_has_every_connector_with_pinned_jars() -> None:
    assert list(jars.CONNECTORS) == NAMES
    for connector in jars.CONNECTORS.values():
        assert connector.about
        assert connector.jars
        for jar in connector.jars:
            assert len(jar.sha256) == 64
            assert int(jar.sha256, 16) > 0
            assert jar.size > 1000


def test_no_two_jars_share_a_file_name() -> None:
    pinned = jars.needed(NAMES)
    assert len({jar.file_name for jar in pinned}) == len(pinned)


def test_the_lock_names_no_host_and_no_bundle() -> None:
    text = jars.LOCK_FILE.read_text()
    assert "://" not in text.replace("s3://", "").replace("s3a://", "").replace("abfss://", "").replace(
        "gs://", ""
    )
    assert jars.CONNECTORS["s3"].size < 40_000_000


def test_coordinates() -> None:
    assert jars.coordinates(["postgres"]) == ("org.postgresql:postgresql:42.7.14",)
    assert "gcs-connector-4.0.4-shaded.jar" in [jar.file_name for jar in jars.needed(["gcs"])]


def test_jars_that_two_connectors_need_come_once() -> None:
    assert jars.needed(["avro", "avro"]) == jars.needed(["avro"])


def test_an_unknown_connector_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        jars.coordinates(["kafak"])
    assert caught.value.code == "UNKNOWN_CONNECTOR"
    assert "did you mean 'kafka'?" in (caught.value.hint or "")


def test_the_version_of_hadoop_is_pysparks() -> None:
    from penstock.spark.boot.classpath import spark_home

    (client,) = (spark_home() / "jars").glob("hadoop-client-api-*.jar")
    assert client.name == f"hadoop-client-api-{jars.CONNECTORS['s3'].version}.jar"
    assert jars.CONNECTORS["adls"].version == jars.CONNECTORS["s3"].version


@pytest.fixture
def cached(tmp_path: Path) -> tuple[jars.Jar, Path]:
    """A good jar in a cache."""
    content = b"the content of a jar" * 100
    jar = jars.Jar("g", "n", "1", None, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    path = tmp_path / "jars" / jar.file_name
    path.parent.mkdir()
    path.write_bytes(content)
    return jar, path


def _ensure(jar: jars.Jar, path: Path) -> tuple[Path, ...]:
    return jars.ensure_jars((jar,), path.parent, Settings(home=path.parent.parent))


def test_a_good_jar_is_read_once_and_then_known_by_its_time(cached: tuple[jars.Jar, Path]) -> None:
    jar, path = cached
    assert _ensure(jar, path) == (path,)
    assert path.stat().st_mtime_ns == jar.stamp_ns
    path.chmod(0)  # nobody needs to read it again
    try:
        assert jars._is_good(jar, path.parent)
    finally:
        path.chmod(0o644)


def test_a_jar_that_was_touched_but_not_changed_stays_good(cached: tuple[jars.Jar, Path]) -> None:
    jar, path = cached
    _ensure(jar, path)
    os.utime(path)
    assert jars._is_good(jar, path.parent)
    assert path.stat().st_mtime_ns == jar.stamp_ns


@pytest.mark.parametrize("content", [b"", b"X" * 2000, b"the content of a jar" * 99])
def test_an_altered_jar_is_not_good(cached: tuple[jars.Jar, Path], content: bytes) -> None:
    jar, path = cached
    _ensure(jar, path)
    path.write_bytes(content)
    assert not jars._is_good(jar, path.parent)


def test_the_full_check_sees_what_the_quick_one_cannot(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    jar = jars.CONNECTORS["postgres"].jars[0]
    path = jars.folder(settings) / jar.file_name
    path.parent.mkdir()
    path.write_bytes(b"\0" * jar.size)
    os.utime(path, ns=(jar.stamp_ns, jar.stamp_ns))
    assert {row.name: row.installed for row in jars.status(settings)}["postgres"]
    assert jars.altered(settings) == (path,)


def test_status_of_an_empty_home(tmp_path: Path) -> None:
    rows = jars.status(Settings(home=tmp_path))
    assert [row.name for row in rows] == NAMES
    assert not any(row.installed for row in rows)
    assert rows[2].version == "42.7.14"
    assert list(tmp_path.iterdir()) == []


def test_progress_without_a_terminal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(Progress("installing x", 0, 2_000_000))
    show(Progress("installing x", 1_000_000, 2_000_000, "middle"))
    show(Progress("installed x", 2_000_000, 2_000_000, "end"))
    out = capsys.readouterr()
    assert out.err == "installing x: 2.0 MB\n"
    assert out.out == ""
