"""Java classes that are compiled in the driver's JVM."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark import janino


def test_a_class_is_compiled_once_however_many_ask_for_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "somejava"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "Adder.java").write_text(
        "package penstock;\npublic class Adder { public int add(int a, int b) { return a + b; } }\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: janino.instance(spark, "somejava", "Adder"), range(8)))
    assert len({adder.getClass().hashCode() for adder in made}) == 1
    assert [adder.add(number, 1) for number, adder in enumerate(made)] == list(range(1, 9))
