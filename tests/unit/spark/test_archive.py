from __future__ import annotations

import json
import os
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.spark.boot import archive, archive_build
from penstock.spark.boot.classpath import ClassPath, class_path, spark_home
from penstock.spark.boot.java import Java

JAVA = Java(Path("/jdk/bin/java"), Path("/jdk"), "17.0.1", "PATH", "Acme 17.0.1+2")
OPTIONS = ("--add-opens=a/b=ALL-UNNAMED", "-Xmx1g", "-Dx=y")


@pytest.fixture
def jars(tmp_path: Path) -> ClassPath:
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_bytes(b"content")
    return ClassPath(base=(tmp_path / "a.jar", tmp_path / "b.jar"))


def finished(class_archive: archive.Archive, path: ClassPath) -> archive.Archive:
    """An archive as a build leaves it."""
    class_archive.folder.mkdir(parents=True, exist_ok=True)
    class_archive.classes.write_bytes(b"classes")
    card = {
        "class path": [str(entry) for entry in path.base],
        "head": archive.head(class_archive.classes),
        "files": {str(class_archive.classes): archive.stamp(class_archive.classes)},
    }
    class_archive.card.write_text(json.dumps(card))
    return class_archive


def test_the_key_changes_with_all_that_matters(tmp_path: Path, jars: ClassPath) -> None:
    def key(java: Java = JAVA, path: ClassPath = jars, options: tuple[str, ...] = OPTIONS) -> str:
        return archive.locate(tmp_path, java, path, options).key

    first = key()
    assert key() == first
    assert key(options=("--add-opens=a/b=ALL-UNNAMED", "-Xmx9g", "-Dx=z")) == first
    assert key(path=replace(jars, after=(tmp_path / "connector.jar",))) == first
    assert key(options=(*OPTIONS, "-XX:+UseSerialGC")) != first
    assert key(java=replace(JAVA, build="Acme 17.0.1+3")) != first
    assert key(java=replace(JAVA, executable=Path("/other/bin/java"))) != first
    assert key(path=ClassPath(base=jars.base[:1])) != first
    os.utime(jars.base[0], ns=(1, 1))
    assert key() != first


def test_a_whole_archive_is_used(tmp_path: Path, jars: ClassPath) -> None:
    class_archive = finished(archive.locate(tmp_path, JAVA, jars, OPTIONS), jars)
    path = replace(jars, after=(tmp_path / "connector.jar",))
    assert archive.usable(class_archive, path) == path
    assert f"-XX:SharedArchiveFile={class_archive.classes}" in archive.use(class_archive)
    assert "-Xshare:auto" in archive.use(class_archive)


def test_a_home_behind_a_link_has_the_same_archive(tmp_path: Path, jars: ClassPath) -> None:
    finished(archive.locate(tmp_path / "home", JAVA, jars, OPTIONS), jars)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "cds").symlink_to(tmp_path / "home" / "cds")
    (tmp_path / "alias").symlink_to(tmp_path / "home")
    for home in (tmp_path / "linked", tmp_path / "alias"):
        assert archive.usable(archive.locate(home, JAVA, jars, OPTIONS), jars) == jars


@pytest.mark.parametrize("damage", ["cut", "changed", "foreign", "gone", "no card", "bad card", "empty card"])
def test_a_damaged_archive_is_not_used(tmp_path: Path, jars: ClassPath, damage: str) -> None:
    class_archive = finished(archive.locate(tmp_path, JAVA, jars, OPTIONS), jars)
    match damage:
        case "cut":
            os.truncate(class_archive.classes, 3)
        case "changed":
            class_archive.classes.write_bytes(b"CLASSES")
            os.utime(class_archive.classes, ns=(1, 1))
        case "foreign":
            status = class_archive.classes.stat()
            class_archive.classes.write_bytes(b"CLASSES")
            os.utime(class_archive.classes, ns=(status.st_atime_ns, status.st_mtime_ns))
        case "gone":
            class_archive.classes.unlink()
        case "no card":
            class_archive.card.unlink()
        case "bad card":
            class_archive.card.write_text("{")
        case "empty card":
            class_archive.card.write_text("[]")
    assert archive.usable(class_archive, jars) is None


def test_only_one_build_at_a_time(tmp_path: Path) -> None:
    with archive_build._locked(tmp_path) as mine:
        assert mine is not None
        with archive_build._locked(tmp_path) as other:
            assert other is None
    with archive_build._locked(tmp_path) as again:
        assert again is not None


def test_leftovers_of_killed_builds_are_deleted(tmp_path: Path, jars: ClassPath) -> None:
    whole = finished(archive.locate(tmp_path, JAVA, jars, OPTIONS), jars)
    (whole.folder / "build-x").mkdir()
    (whole.folder / "build-x" / "classes.txt").write_text("half")
    (whole.folder / "0123.jsa").write_bytes(b"no card")
    archive_build._sweep(whole.folder)
    assert sorted(path.name for path in whole.folder.iterdir()) == [whole.classes.name, whole.card.name]


def test_the_archives_used_last_are_kept(tmp_path: Path, jars: ClassPath) -> None:
    archives = [finished(archive.Archive(tmp_path / "cds", f"k{number}"), jars) for number in range(5)]
    for age, class_archive in enumerate(archives):
        os.utime(class_archive.card, (1000 - age, 1000 - age))
    archive_build._prune(archives[4])
    assert sorted(path.stem for path in archives[0].folder.glob("*.jsa")) == ["k0", "k1", "k4"]


def test_a_signature_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "signed.jar"
    with zipfile.ZipFile(jar, "w") as out:
        out.writestr(
            "META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\n\r\nName: A.class\r\nSHA-256-Digest: x\r\n\r\n"
        )
        out.writestr("META-INF/DUMMY.SF", "signature")
        out.writestr("META-INF/DUMMY.DSA", "key")
        out.writestr("A.class", "code")
    copy = archive_build._unsigned(jar, tmp_path / "jars")
    with zipfile.ZipFile(copy) as content:
        assert content.namelist() == ["META-INF/MANIFEST.MF", "A.class"]
        assert content.read("META-INF/MANIFEST.MF") == b"Manifest-Version: 1.0\n\n"
        assert content.read("A.class") == b"code"
    before = archive.stamp(copy)
    monkeypatch.setattr(time, "time", lambda: 2e9)  # entries of an archive carry a time of their own
    assert archive_build._unsigned(jar, tmp_path / "jars") == copy
    assert archive.stamp(copy) == before
    with zipfile.ZipFile(tmp_path / "plain.jar", "w") as out:
        out.writestr("A.class", "code")
    assert archive_build._unsigned(tmp_path / "plain.jar", tmp_path / "jars") == tmp_path / "plain.jar"


def test_the_class_path_begins_with_sparks_jars(tmp_path: Path) -> None:
    home = spark_home()
    extra = tmp_path / "kafka.jar"
    path = class_path(home, {"spark.driver.extraClassPath": "/first:/second"}, jars=[extra])
    entries = path.text.split(":")
    assert entries[:2] == ["/first", "/second"]
    assert entries[-1] == str(extra)
    names = {Path(entry).name.split("_2.13")[0] for entry in entries}
    assert {
        "spark-core",
        "spark-sql",
        "spark-hive",
        "spark-connect",
        "spark-kubernetes",
        "spark-yarn",
    } <= names
