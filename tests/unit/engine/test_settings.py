"""A flow has the settings of its session; one without a session reads them once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock import config
from penstock.config import Settings


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that were read, one for each reading."""
    made: list[Settings] = []
    load = config.load

    def read() -> Settings:
        made.append(load())
        return made[-1]

    monkeypatch.setattr(config, "load", read)
    return made


@pytest.mark.parametrize("make", [ps.IncrementalFlow, lambda: ps.PartitionedIncrementalFlow(shards=2)])
def test_a_flow_without_a_session_reads_its_settings_once(
    make: Callable[[], ps.IncrementalFlow], readings: list[Settings], tmp_path: Path
) -> None:
    with make() as flow:
        assert len(readings) == 1
        flow.register_source("rows", "n BIGINT")
        flow.checkpoint(tmp_path / "first")
        flow.checkpoint(tmp_path / "second")
        assert flow._settings is readings[0]
    assert len(readings) == 1


def test_what_changes_later_does_not_change_the_flow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with ps.IncrementalFlow() as flow:
        flow.register_source("rows", "n BIGINT")
        monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "missing.toml"))
        assert flow.checkpoint(tmp_path / "saved") == 1
