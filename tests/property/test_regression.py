"""A generated case that is kept as JSON is read back as it was."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from golden import regression
from golden.generate import Example, examples
from golden.generated_tables import ddl


@settings(
    max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None
)
@given(example=examples())
def test_a_kept_case_is_the_one_that_failed(example: Example) -> None:
    generated = regression.area(ddl(example.tables), example.query, example.ticks)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.json"
        path.write_text(regression.text(generated), encoding="utf-8")
        # repr makes NaN equal to itself.
        assert repr(regression.load(path)) == repr(generated)


def test_the_kept_cases_can_be_read() -> None:
    paths = regression.regressions()
    assert paths
    for path in paths:
        generated = regression.load(path)
        assert regression.text(generated) == path.read_text(encoding="utf-8"), path
