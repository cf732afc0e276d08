"""Java classes that are compiled in the driver's JVM."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.spark.boot import janino


@pytest.fixture(autouse=True)
def java_folder(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    """Compiled classes go to a folder of the test."""
    jvm: Any = spark._jvm
    properties = jvm.java.lang.System.getProperties()
    own = properties.remove(janino.FOLDER)
    janino.use_folder(spark, tmp_path / "home" / "java")
    yield
    properties.put(janino.FOLDER, own)


def adder(folder: Path, patch: pytest.MonkeyPatch, package: str, body: str) -> None:
    """A package with a class of Java."""
    place = folder / package
    place.mkdir()
    (place / "__init__.py").touch()
    (place / "Adder.java").write_text(
        f"package penstock;\npublic class Adder {{ public int add(final int a, final int b) {{ {body} }} }}\n"
    )
    patch.syspath_prepend(str(folder))


def forget(spark: SparkSession) -> None:
    """What a new JVM would not know; py4j does, so no method of the class may have been called yet."""
    janino._MAKERS.clear()
    jvm: Any = spark._jvm
    properties = jvm.java.lang.System.getProperties()
    for name in [name for name in properties if str(name).startswith("penstock.adder")]:
        properties.remove(name)


def test_a_class_is_compiled_once_however_many_ask_for_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adder(tmp_path, monkeypatch, "somejava", "return a + b;")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: janino.instance(spark, "somejava", "Adder"), range(8)))
    assert len({each.getClass().hashCode() for each in made}) == 1
    assert [each.add(number, 1) for number, each in enumerate(made)] == list(range(1, 9))


INNER = "return new Object() { int sum() { return a + b; } }.sum();"


def test_what_was_compiled_is_kept_for_later_processes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adder(tmp_path, monkeypatch, "keptjava", INNER)
    janino.instance(spark, "keptjava", "Adder")
    (jar,) = (tmp_path / "home" / "java").iterdir()
    written = jar.stat().st_mtime_ns
    forget(spark)
    assert janino.instance(spark, "keptjava", "Adder").add(2, 2) == 4
    assert jar.stat().st_mtime_ns == written


@pytest.mark.parametrize("damage", [b"", b"no jar"])
def test_a_damaged_jar_is_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    adder(tmp_path, monkeypatch, f"damagedjava{len(damage)}", INNER + f" // {len(damage)}\n")
    janino.instance(spark, f"damagedjava{len(damage)}", "Adder")
    (jar,) = (tmp_path / "home" / "java").iterdir()
    whole = jar.read_bytes()
    jar.write_bytes(damage)
    forget(spark)
    assert janino.instance(spark, f"damagedjava{len(damage)}", "Adder").add(2, 2) == 4
    assert len(jar.read_bytes()) == len(whole)


def test_a_home_that_cannot_be_written_is_no_obstacle(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adder(tmp_path, monkeypatch, "homelessjava", "return b + a;")
    (tmp_path / "home").touch()
    assert janino.instance(spark, "homelessjava", "Adder").add(1, 2) == 3
