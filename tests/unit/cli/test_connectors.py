"""`penstock connectors`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.spark.boot import jars


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_list_shows_every_connector(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connectors", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in jars.CONNECTORS)
    assert "48.3 MB" in out


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connectors", "list", "--output", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows] == list(jars.CONNECTORS)
    assert not any(row["installed"] for row in rows)
    assert rows[0]["size"] == jars.CONNECTORS["kafka"].size


def test_an_unknown_name_is_wrong_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["connectors", "install", "kafak"]) == 2
    assert "did you mean 'kafka'?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_no_name_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connectors", "install"]) == 2
    assert "penstock connectors install kafka" in capsys.readouterr().err
