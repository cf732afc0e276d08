"""The recorded answers to the golden cases are complete, and they are what Spark answers without penstock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from golden.case import area_names, load
from golden.codes import CODES
from golden.recording import TPCH_TIERS, recorded, recorded_tpch
from golden.tpch import QUERIES

TESTS = Path(__file__).parents[1]
AREAS = {name: load(name) for name in area_names()}


def test_every_case_is_recorded_with_the_tiers_of_its_views() -> None:
    assert sum(len(area.cases) for area in AREAS.values()) >= 700
    for name, area in AREAS.items():
        recordings = recorded(name)
        assert list(recordings) == [case.name for case in area.cases]
        for case in area.cases:
            assert set(recordings[case.name].tiers) == {case.name, *dict(case.views)}
    assert set(recorded_tpch()) == set(QUERIES), TPCH_TIERS


def test_every_recorded_error_has_a_documented_code() -> None:
    errors = {
        tick.error
        for name in AREAS
        for recording in recorded(name).values()
        for tick in recording.answers.ticks
        if tick.error
    }
    assert errors == CODES.keys()
    reference = (TESTS.parent / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert [code for code in CODES.values() if f"`{code}`" not in reference] == []


@pytest.mark.timeout(1200)
def test_recordings_are_what_plain_spark_answers() -> None:
    count = sum(len(area.cases) for area in AREAS.values())
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    check = subprocess.run(
        [sys.executable, "-m", "golden.record", "--check"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.stdout.endswith(f"\n0 of {count} cases have another answer\n"), (
        check.stdout[-10_000:] + check.stderr[-5_000:]
    )
    assert check.returncode == 0
